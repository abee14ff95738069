"""Result files: reading, grouping, and the published figures they are compared with."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from casper.config import ModelConfig
from casper.errors import InputError
from casper.reproduction.published import ABLATIONS, FIGURES, Spread, best_figure, figure_of
from casper.reproduction.results import DATASETS, END, START, Results, fill_in, read_results, spread_of
from result_runs import RECORD, put, put_run, run_record


def files(results: Results) -> list[str]:
    return [one.file for one in (*results.evaluations, *results.runs)]


# ---- reading


def test_evaluations_are_ordered_by_data_set_and_error(tmp_path: Path) -> None:
    put(tmp_path, "a.json")
    put(tmp_path, "b.json", method="linear", mae=14.4)
    put(tmp_path, "c.json", dataset="aqi", mae=2.0)
    put(tmp_path, "d.json", dataset="somebody's own", mae=1.0)
    read = read_results(tmp_path)
    assert files(read) == ["b.json", "a.json", "c.json", "d.json"]
    assert read.datasets() == ["aqi36", "aqi", "somebody's own"]
    assert read.tables() == []


def test_a_result_that_does_not_say_where_it_came_from_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({key: RECORD[key] for key in RECORD if key != "commit"}))
    with pytest.raises(InputError, match=r"a\.json does not say its commit; .*casper evaluate --out"):
        read_results(tmp_path)


def test_a_run_without_its_seed_is_refused(tmp_path: Path) -> None:
    record = run_record()
    del record["seed"]
    (tmp_path / "a.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"a\.json does not say its seed; .*casper reproduce"):
        read_results(tmp_path)


def test_a_run_without_a_place_on_the_x_axis_is_refused_where_there_is_a_plot(tmp_path: Path) -> None:
    put_run(tmp_path, "sparsity", "lambda = 0.001")
    with pytest.raises(InputError, match=r"does not say its value; .*reproduce sparsity"):
        read_results(tmp_path)


def test_a_seed_that_would_count_twice_is_refused(tmp_path: Path) -> None:
    put_run(tmp_path)
    (tmp_path / "copy.json").write_text(json.dumps(run_record()))
    with pytest.raises(InputError, match=r"copy\.json and main-aqi36-paper-seed0\.json hold the same run"):
        read_results(tmp_path)


def test_unreadable_results_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(InputError, match=r"a\.json is not readable JSON"):
        read_results(tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        read_results(tmp_path / "nowhere")


def test_measurements_of_speed_stay_out(tmp_path: Path) -> None:
    put(tmp_path, "a.json")
    (tmp_path / "benchmark-attention-cpu.json").write_text('{"speed": []}')
    assert files(read_results(tmp_path)) == ["a.json"]


def test_an_epoch_ends_after_its_steps_and_may_lack_error_and_gates(tmp_path: Path) -> None:
    curve = [
        {"epoch": 0, "validation_mae": float("nan"), "decided": None},
        {"epoch": 1, "validation_mae": 9.0, "decided": [0.5, 0.7]},
    ]
    put_run(tmp_path, curve=curve, decided=None)
    (run,) = read_results(tmp_path).runs
    assert [epoch.step for epoch in run.curve] == [300, 600]
    assert [epoch.validation_mae for epoch in run.curve] == [None, 9.0]
    assert [epoch.decided for epoch in run.curve] == [None, (0.5, 0.7)]
    assert run.decided is None


# ---- grouping


def test_runs_that_differ_only_in_their_seed_form_a_group(tmp_path: Path) -> None:
    for seed, mae in ((10, 10.4), (0, 9.8), (2, 10.1)):
        put_run(tmp_path, seed=seed, mae=mae, decided=[0.1 * seed, 0.5])
    put_run(tmp_path, row="best", number=1, mae=9.0)
    put_run(tmp_path, row="best", number=1, mae=1.8, dataset="metr-la-point")
    put_run(tmp_path, "ablation", row="w/o PBD")
    groups = read_results(tmp_path).groups("main")
    assert [(group.dataset, group.row) for group in groups] == [
        ("aqi36", "paper"),
        ("aqi36", "best"),
        ("metr-la-point", "best"),
    ]
    assert [run.seed for run in groups[0].runs] == [0, 2, 10]
    assert groups[0].spread("mae").mean == pytest.approx(10.1)
    assert groups[0].spread("mae").deviation == pytest.approx(0.3)
    assert groups[0].decided == pytest.approx((0.4, 0.5))
    assert groups[1].spread("mae") == Spread(9.0, None)


def test_a_group_tells_how_long_its_seeds_were_trained(tmp_path: Path) -> None:
    for seed, steps in enumerate((900, 600, 900)):
        put_run(tmp_path, seed=seed, steps=steps)
    (group,) = read_results(tmp_path).groups("main")
    assert group.steps == (600, 900)


def test_the_deviation_is_that_of_a_sample() -> None:
    assert spread_of([1.0, 3.0]).deviation == pytest.approx(2**0.5)
    assert spread_of([1.0]) == Spread(1.0, None)


def test_tables_that_nobody_knows_are_kept_apart_at_the_end(tmp_path: Path) -> None:
    for table in ("another", "gates", "main"):
        put_run(tmp_path, table)
    assert read_results(tmp_path).tables() == ["main", "gates", "another"]


# ---- documents


def test_a_document_gets_the_table_between_its_marks_again_and_again(tmp_path: Path) -> None:
    document = tmp_path / "README.md"
    document.write_text(f"before\n{START}\nold\n{END}\nafter\n")
    for table in ("first", "second"):
        fill_in(document, table)
    assert document.read_text() == f"before\n{START}\nsecond\n{END}\nafter\n"


def test_a_document_without_marks_is_refused(tmp_path: Path) -> None:
    document = tmp_path / "README.md"
    document.write_text("no place")
    with pytest.raises(InputError, match="no place for the table"):
        fill_in(document, "table")


# ---- published figures


@pytest.fixture(scope="module")
def paper(shared_data: Path) -> str:
    text = shared_data.parent / "paper" / "casper.tex"
    if not text.exists():
        pytest.skip("the paper's source is not at hand")
    return text.read_text()


def printed(paper: str, label: str) -> list[tuple[str, list[Spread]]]:
    """The rows of one of the paper's tables: what is in the first cell, and the figures."""
    table = paper[paper.index(f"\\label{{{label}}}") :]
    lines = [
        line
        for line in table[: table.index("\\end{tabular}")].splitlines()
        if "\\pm" in line and line.strip()[0] != "%"
    ]
    figures = re.compile(r"([\d.]+)\$\\pm\$([\d.]+)")
    return [
        (line.split("&")[0], [Spread(float(mean), float(deviation)) for mean, deviation in figures.findall(line)])
        for line in lines
    ]


def test_the_figures_of_table_1_are_those_that_the_paper_prints(paper: str) -> None:
    columns = ("aqi36", "aqi", "metr-la-point", "pems-bay-point", "metr-la-block", "pems-bay-block")
    rows = printed(paper, "tab:mae")
    assert len(rows) == 12
    for name, spreads in rows:
        for column, dataset in enumerate(columns):
            figure = figure_of(name.strip().replace("\\casper", "CASPER"), dataset)
            assert figure is not None
            assert [figure.mae, figure.mse] == spreads[2 * column : 2 * column + 2]
            assert figure.source.checked == "paper"


def test_the_ablations_are_those_of_table_2_in_its_order(paper: str) -> None:
    rows = printed(paper, "tab:ablation")
    assert [[row.mae, row.mse] for row in ABLATIONS] == [spreads for _, spreads in rows]
    for (name, _), row in zip(rows, ABLATIONS, strict=True):
        if row.label.startswith("w/o P") or row.label == "w/o SCA":
            assert name.replace("$\\mathbf{A}$", "A").strip().startswith(row.label)


def test_every_ablation_is_recognised_by_its_settings_and_by_no_others() -> None:
    for row in ABLATIONS:
        model = ModelConfig().replace(**row.changes).to_dict()
        assert [other.label for other in ABLATIONS if other.describes(model)] == [row.label]
    assert not any(row.describes({"gate": "none", "skip": False}) for row in ABLATIONS)


def test_every_figure_has_a_source_and_is_given_once() -> None:
    assert all(figure.source.text and figure.dataset in DATASETS for figure in FIGURES)
    assert len({(figure.method, figure.dataset) for figure in FIGURES}) == len(FIGURES)
    assert {figure.source.checked for figure in FIGURES} == {"paper", "second hand", "unchecked"}


def test_the_best_published_figure_is_the_smallest_error() -> None:
    best = {dataset: best_figure(dataset) for dataset in DATASETS}
    assert {dataset: figure.method for dataset, figure in best.items() if figure} == {
        "aqi36": "CoFILL",
        "metr-la-point": "TIMBA",
        "metr-la-block": "TIMBA",
        "aqi": "CASPER",
        "pems-bay-point": "PriSTI",
        "pems-bay-block": "PriSTI",
    }
    assert best_figure("nowhere") is None
    assert figure_of("CoFILL", "aqi") is None
