"""The README's table and docs/results.md, made from made-up result files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from casper.errors import InputError
from casper.reproduction.page import page_text, short_table, write_page
from casper.reproduction.published import ABLATIONS
from casper.reproduction.results import END, START, read_results
from result_runs import put, put_run


def put_main(folder: Path) -> None:
    for seed, mae in enumerate((10.0, 10.2)):
        put_run(folder, "main", "paper", seed, mae=mae)
        put_run(folder, "main", "best", seed, mae=mae - 1, number=1, preset="best")
    put_run(folder, "main", "best", mae=1.8, number=1, preset="best", dataset="metr-la-point")


def put_everything(folder: Path) -> None:
    put_main(folder)
    put_run(folder, "ablation", "CASPER")
    put_run(folder, "sparsity", "lambda = 0", value=0.0)
    put_run(folder, "sparsity", "lambda = 0.001", number=1, value=0.001)
    put_run(folder, "prompts", "200 prompts", value=200.0)
    put_run(folder, "gates", "hard gates", model={"gate_hard_inference": True})
    put(folder, "aqi36-mean.json")


def section(text: str, title: str) -> str:
    assert text.count(f"\n## {title}\n") == 1
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def row(text: str, *starts: str) -> list[str]:
    """The cells of the only table row that begins with these."""
    (line,) = [line for line in text.splitlines() if line.startswith("| " + " | ".join(starts) + " |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


# ---- the short table


def test_single_evaluations_show_both_ways_of_counting_and_the_file(tmp_path: Path) -> None:
    put(tmp_path, "a.json")
    put(tmp_path, "b.json", method="linear", mae=14.4, wall_seconds=3.2)
    table = short_table(read_results(tmp_path))
    assert "| aqi36 | mean | 53.72 | 4655.6 | 53.48 | 4578.1 | 1.2 min | CPU | `a.json` |" in table.splitlines()
    assert row(table, "aqi36", "linear")[6] == "3 s"
    put(tmp_path, "b.json", method="linear", mae=14.4, wall_seconds=0.2)
    assert row(short_table(read_results(tmp_path)), "aqi36", "linear")[6] == "< 1 s"
    put(tmp_path, "b.json", method="linear", mae=14.4, wall_seconds=9000)
    assert row(short_table(read_results(tmp_path)), "aqi36", "linear")[6] == "2.5 h"


def test_the_short_table_has_our_presets_then_published_figures_then_single_evaluations(tmp_path: Path) -> None:
    put_main(tmp_path)
    put(tmp_path, "a.json")
    lines = short_table(read_results(tmp_path)).splitlines()
    assert [line.split("|")[2].strip() for line in lines[2:10]] == [
        "**casper, preset paper** (2 seeds)",
        "**casper, preset best** (2 seeds)",
        "CASPER, published",
        "CoFILL, best published that we know of †",
        "mean",
        "**casper, preset best** (1 seed)",
        "CASPER, published",
        "TIMBA, best published that we know of †",
    ]
    assert lines[2] == (
        "| aqi36 | **casper, preset paper** (2 seeds) | 10.10 ± 0.14 | 408.1 ± 11.4 | 9.10 ± 0.14 | 306.1 ± 8.6 "
        "| 1.5 min | NVIDIA H200 | 2 files |"
    )
    assert "| `main-metr-la-point-best-seed0.json` |" in lines[7]


def test_where_nobody_is_better_than_the_paper_it_is_named_once(tmp_path: Path) -> None:
    put(tmp_path, "a.json", dataset="aqi")
    table = short_table(read_results(tmp_path))
    assert row(table, "aqi", "CASPER, published")[2:4] == ["13.30 ± 0.06", "658.1 ± 4.9"]
    assert "best published" not in table


# ---- the page


def test_the_main_table_puts_our_presets_above_the_published_figures(tmp_path: Path) -> None:
    put_main(tmp_path)
    text = section(page_text(read_results(tmp_path)), "Benchmarks")
    per_window, per_step = text.split("Ours **per step**")
    nowhere = "not measured: readings not at hand"
    assert row(per_window, "**ours, preset `paper`**")[1:] == [
        "10.10 ± 0.14 / 408.1 ± 11.4 (2 seeds)",
        "not run",
        "not run",
        *[nowhere] * 3,
    ]
    assert row(per_window, "**ours, preset `best`**")[2] == "1.80 / 12.96 (1 seed)"
    assert row(per_window, "CASPER")[1:3] == ["10.09 ± 0.13 / 396.2 ± 12.9", "1.84 ± 0.00 / 9.99 ± 0.01"]
    assert row(per_window, "PriSTI")[1:5] == ["9.03 / - †", "1.72 / - †", "1.86 / - †", ""]
    assert row(per_window, "TIMBA")[3] == "1.76 / - ‡"
    assert row(per_step, "**ours, preset `paper`**")[1] == "9.10 ± 0.14 / 306.1 ± 8.6 (2 seeds)"
    for words in ("do not overlap", "standardises each sensor", "as quoted in our plan, not checked", "Table 1"):
        assert words in text


def test_readings_that_somebody_has_are_not_called_absent(tmp_path: Path) -> None:
    put_run(tmp_path, dataset="aqi", mae=13.0)
    put_run(tmp_path, dataset="mine", mae=3.0)
    text = page_text(read_results(tmp_path))
    cells = row(text.split("Ours **per step**")[0], "**ours, preset `paper`**")
    assert [cell.split(" (")[0] for cell in cells[4:]] == [
        "13.00 / 676.0",
        "not measured: readings not at hand",
        "not measured: readings not at hand",
        "3.00 / 36.00",
    ]


def test_ablations_stand_beside_the_published_ones_in_the_paper_s_order(tmp_path: Path) -> None:
    put_run(tmp_path, "ablation", "no gates", number=5, model={"gate": "none"}, mae=10.5)
    put_run(tmp_path, "ablation", "CASPER", number=0)
    put_run(tmp_path, "ablation", "something else", number=9, model={"gate": "none", "skip": False})
    text = section(page_text(read_results(tmp_path)), "What each part is worth")
    labels = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")][1:]
    assert labels == [
        *("no gates" if published.label == "w/o SCA" else published.label for published in ABLATIONS),
        "something else",
    ]
    assert row(text, "no gates") == ["no gates", "10.50", "441.0", "1", "10.45 ± 0.17", "426.6 ± 34.4"]
    assert row(text, "w/o PBD")[1:4] == ["not run", "", ""]
    assert row(text, "something else")[4:] == ["", ""]
    assert "Trained for 900 steps" in text
    assert "Warning" not in text


def test_ablations_that_were_not_trained_alike_come_with_a_warning(tmp_path: Path) -> None:
    put_run(tmp_path, "ablation", "CASPER", steps=90_000)
    put_run(tmp_path, "ablation", "w/o PBD", number=1, steps=15_000, model={"decoder": "mlp"})
    text = section(page_text(read_results(tmp_path)), "What each part is worth")
    assert "Trained for 15,000 to 90,000 steps" in text
    assert "**Warning:**" in text
    assert "CASPER: 90,000; w/o PBD: 15,000" in text


def test_the_gates_table_tells_soft_from_hard_and_the_share_of_each_layer(tmp_path: Path) -> None:
    put_run(tmp_path, decided=[0.5, 0.981])
    put_run(tmp_path, "gates", "rounded", model={"gate_hard_inference": True}, decided=None)
    put_run(tmp_path, "main", "ungated", number=2, decided=None)
    text = section(page_text(read_results(tmp_path)), "Do the gates decide?")
    assert row(text, "AQI-36", "paper")[2:5] == ["soft", "50.0%, 98.1%", "10.00"]
    assert row(text, "AQI-36", "rounded")[2:4] == ["hard", ""]
    assert "ungated" not in text


def test_the_origin_of_every_table_is_told(tmp_path: Path) -> None:
    put_everything(tmp_path)
    put_run(tmp_path, seed=7, commit="f" * 40 + "+", side_by_side=3, device="another GPU")
    put_run(tmp_path, seed=8, commit=None)
    text = section(page_text(read_results(tmp_path)), "Where the numbers come from")
    parts = dict(part.split("\n", 1) for part in text.split("### ")[1:])
    assert list(parts) == ["Main", "Ablation", "Sparsity", "Prompts", "Gates", "Single evaluations"]
    assert parts["Main"].count("casper reproduce main") == 1
    assert "Devices: NVIDIA H200, another GPU." in parts["Main"]
    assert "`0000000000`, `ffffffffff+`, `unknown`" in parts["Main"]
    assert row(parts["Main"], "`main-aqi36-paper-seed7.json`")[1:] == ["7", "10.000", "900", "1.5 min (3 side by side)"]
    assert "casper evaluate aqi36 --method mean" in parts["Single evaluations"]


def test_sections_without_runs_are_left_out(tmp_path: Path) -> None:
    put(tmp_path, "a.json")
    titles = [line for line in page_text(read_results(tmp_path)).splitlines() if line.startswith("#")]
    assert titles == ["# Results", "## Where the numbers come from", "### Single evaluations"]


def test_a_bar_in_a_name_does_not_break_the_table(tmp_path: Path) -> None:
    put(tmp_path, "a.json", method="a|b")
    assert "| a\\|b |" in short_table(read_results(tmp_path))


# ---- writing


def test_the_page_is_written_with_the_pictures_it_shows_and_the_same_again(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    put_everything(tmp_path / "results")
    page = tmp_path / "results.md"
    written = write_page(read_results(tmp_path / "results"), page)
    text = page.read_text()
    names = {"sensitivity-sparsity.png", "sensitivity-prompts.png", "gates.png", "learning-curves.png"}
    assert set(written) == {page, *(tmp_path / "images" / name for name in names)}
    assert all(text.count(f"](images/{name})") == 1 for name in names)
    for title in ("Benchmarks", "What each part is worth", "Sensitivity", "Do the gates decide?", "Learning curves"):
        section(text, title)
    before = {path: path.read_bytes() for path in written}
    write_page(read_results(tmp_path / "results"), page)
    assert {path: path.read_bytes() for path in written} == before


def test_a_page_in_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    put_main(tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        write_page(read_results(tmp_path), tmp_path / "nowhere" / "results.md")
    assert not (tmp_path / "nowhere").exists()


def test_the_command_writes_page_and_readme(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("results").mkdir()
    put_main(Path("results"))
    Path("README.md").write_text(f"{START}\n{END}\n")
    told = command("results", "--page", "results.md", "--into", "README.md")
    assert told.code == 0, told.err
    assert "Wrote results.md, images/gates.png" in told.out
    assert Path("images/learning-curves.png").exists()
    assert "**casper, preset best** (2 seeds)" in Path("README.md").read_text()
    assert "| aqi36 | CASPER, published |" in command("results").out


def test_a_table_on_the_screen_does_without_matplotlib() -> None:
    code = "import sys, casper.reproduction.page; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_other_methods_stand_below_ours_with_size_and_time_beside_the_published_figures(tmp_path: Path) -> None:
    put_main(tmp_path)
    for seed, mae in enumerate((12.0, 12.4)):
        told = {"protocol": "out-of-sample", "parameters": 123_456, "imputing_seconds": 2.788, "windows": 2788}
        put_run(tmp_path, "baselines", "grin", seed, mae=mae, number=10, method="grin", **told)
    shorter = {"epochs": 40, "compiled": True}
    put_run(tmp_path, "baselines", "saits", mae=13.0, number=8, method="saits", settings=shorter, steps=6400)
    text = section(page_text(read_results(tmp_path)), "Other methods in the same harness")
    cells = row(text, "grin")
    assert cells[1].startswith("12.20 ± 0.28 / ")
    assert cells[2].startswith("12.08")
    assert cells[3:6] == ["out-of-sample", "2", "123,456"]
    assert cells[7] == "1 ms"
    elsewhere = {"device": "a CPU", "training_seconds": 1e5, "imputing_seconds": 0.1, "windows": 2788}
    put_run(tmp_path, "baselines", "grin", 2, mae=12.2, number=10, method="grin", **elsewhere)
    again = row(section(page_text(read_results(tmp_path)), "Other methods in the same harness"), "grin")
    assert again[4] == "3"
    assert again[6:] == cells[6:], "times are of one device, the one that is named"
    ours = row(text, "saits (epochs=40)")  # compiling changes no figure
    assert ours[2] == "", "nobody published it on these cells"
    assert ours[6].startswith("6,400 steps, ")
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert [line.split("|")[1].strip() for line in lines[1:]] == [
        "**CASPER, preset paper**", "**CASPER, preset best**", "saits (epochs=40)", "grin"
    ]  # fmt: skip


def test_the_recipe_is_judged_by_validation_errors_best_first(tmp_path: Path) -> None:
    for number, (label, error) in enumerate({"starting point": 8.8, "width 32": 10.3, "own queries": 8.7}.items()):
        put_run(tmp_path, "recipe", label, number=number, validation_mae=error, held_back_mae=12.0, mae=77.0)
    text = section(page_text(read_results(tmp_path)), "What helps and what does not")
    lines = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert lines == [
        "| own queries | 8.700 | -0.100 | 12.000 |",
        "| starting point | 8.800 |  | 12.000 |",
        "| width 32 | 10.300 | +1.500 | 12.000 |",
    ]
    assert "77" not in text, "test errors choose nothing"


def test_the_rehearsal_is_judged_by_its_own_months_best_first_and_is_no_benchmark(tmp_path: Path) -> None:
    for number, (label, error) in enumerate({"starting point": 10.4, "steep gates": 10.3}.items()):
        put_run(tmp_path, "rehearsal", label, number=number, dataset="aqi36-rehearsal", mae=error, mse=350.0)
    results = read_results(tmp_path)
    lines = [
        line
        for line in section(page_text(results), "A rehearsal in other months").splitlines()
        if line.startswith("| ")
    ][1:]
    assert [line.split("|")[1:3] for line in lines] == [[" steep gates ", " 10.30 "], [" starting point ", " 10.40 "]]
    assert results.datasets() == []


def test_error_bars_are_told_with_their_coverage_by_gap_and_level(tmp_path: Path) -> None:
    def of_share(coverage: float) -> dict[str, Any]:
        by_gap = {"1": {"coverage": coverage, "cells": 5}, "25+": {"coverage": None, "cells": 0}}
        levels = [{"coverage": coverage, "cells": 3}, {"coverage": coverage - 0.1, "cells": 2}]
        return {"coverage": coverage, "width": 10 * coverage, "by_gap": by_gap, "by_level": levels}

    intervals = {"crps": 0.1234, "shares": {"0.5": of_share(0.51), "0.9": of_share(0.895)}}
    put_run(tmp_path, "main", "best", intervals=intervals)
    text = section(page_text(read_results(tmp_path)), "Error bars")
    assert "| AQI-36 | best | 51.0% | 89.5% | 5.1 | 8.95 | 0.1234 | 0.0997 | 0.1056 | 1 |" in text
    assert "| AQI-36 | best | 90% | 1: 89.5%, 25+: - | 89.5%, 79.5% |" in text
    assert "`--calibrate` |" not in text

    sure = {"crps": 0.12, "shares": {"0.5": {**of_share(0.495), "standard_error": 0.0117}}}
    put_run(tmp_path, "main", "best", intervals=intervals, calibrated_intervals=sure)
    text = section(page_text(read_results(tmp_path)), "Error bars")
    assert "| AQI-36 | best, `--calibrate` | 49.5% ± 1.2 |" in text
    assert "| AQI-36 | best | 51.0% |" in text
