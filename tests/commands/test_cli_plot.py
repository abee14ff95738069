"""`casper plot`: every kind of picture, and what cannot be drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from casper.causal import CausalGraph
from casper.simulate import Simulation
from result_runs import put_run

Command = Callable[..., Any]
SIGNS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.fixture(autouse=True)
def _in_a_folder_with_readings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, six_sensors: Simulation) -> None:
    monkeypatch.chdir(tmp_path)
    six_sensors.table.round(3).to_csv("readings.csv", index_label="time")
    six_sensors.table.interpolate(limit_direction="both").to_csv("filled.csv", index_label="time")
    six_sensors.complete.to_csv("truth.csv", index_label="time")
    six_sensors.sensors.to_csv("sensors.csv", index=False)


def drawn(told: Any, name: str) -> None:
    assert told.code == 0, told.err
    assert told.out == f"Wrote {name}\n"
    assert Path(name).read_bytes().startswith(SIGNS[Path(name).suffix])


def fails(told: Any) -> str:
    assert told.code == 2
    assert "Traceback" not in told.err
    return told.err


@pytest.mark.parametrize("name", ["gaps.png", "gaps.svg", "gaps.pdf"])
def test_gaps_are_drawn_in_every_form(command: Command, name: str) -> None:
    drawn(command("plot", "gaps", "readings.csv", "-o", name), name)


def test_numbers_that_mean_missing_are_gaps(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[pd.DataFrame] = []
    from casper.report import pictures

    draw = pictures.gap_picture

    def watched(observed: pd.DataFrame, **rest: Any) -> Any:
        seen.append(observed)
        return draw(observed, **rest)

    monkeypatch.setattr(pictures, "gap_picture", watched)
    table = pd.read_csv("readings.csv", index_col="time").fillna(-999.0)
    table.drop(index=table.index[5]).to_csv("odd.csv")
    drawn(command("plot", "gaps", "odd.csv", "--missing-value", "-999", "-o", "gaps.png"), "gaps.png")
    assert len(seen[0]) == len(table), "a step without a row is a gap, too"
    assert not seen[0].iloc[5].any()
    assert seen[0].to_numpy().mean() < 1


def test_series_are_drawn_with_and_without_what_was_filled_in(command: Command) -> None:
    drawn(command("plot", "series", "readings.csv", "--sensor", "S2", "-o", "one.png"), "one.png")
    arguments = ("plot", "series", "readings.csv", "--filled", "filled.csv", "--truth", "truth.csv", "--unit", "ug/m3")
    drawn(command(*arguments, "--from", "2024-01-02", "--to", "2024-01-04", "-o", "two.svg"), "two.svg")
    assert "no sensor" not in command(*arguments, "-o", "three.svg").err
    unknown = command(*arguments, "--sensor", "S99", "-o", "four.svg")
    assert "sensor 'S99' is not in the table" in fails(unknown)
    pd.read_csv("filled.csv").iloc[3:].to_csv("short.csv", index=False)
    other = command("plot", "series", "readings.csv", "--filled", "short.csv", "-o", "five.svg")
    assert "filled: its times and sensors differ" in fails(other)


def test_attention_is_drawn_for_one_value(command: Command, tiny_folder: Path) -> None:
    arguments = ("plot", "attention", "readings.csv", "--model", tiny_folder, "--sensor", "S2", "--device", "cpu")
    drawn(command(*arguments, "--time", "2024-01-03 05:00", "-o", "why.png"), "why.png")
    assert "between two steps" in fails(command(*arguments, "--time", "2024-01-03 05:10", "-o", "other.png"))


def test_causes_are_drawn_on_a_map_or_as_bars_for_one_value_or_all(command: Command, tiny_folder: Path) -> None:
    arguments = ("plot", "causes", "readings.csv", "--model", tiny_folder, "--sensor", "S2", "--device", "cpu")
    one = ("--time", "2024-01-03 05:00")
    drawn(command(*arguments, *one, "--sensors", "sensors.csv", "-o", "a.png"), "a.png")
    drawn(command(*arguments, *one, "--least", "0.2", "-o", "b.png"), "b.png")
    drawn(command(*arguments, "--windows", "2", "--sensors", "sensors.csv", "-o", "c.png"), "c.png")
    drawn(command(*arguments, "--windows", "2", "--layer", "0", "-o", "d.png"), "d.png")


def test_a_graph_is_drawn_as_a_matrix_or_on_a_map(command: Command, six_sensors: Simulation) -> None:
    edges = six_sensors.edges
    CausalGraph.build(list(six_sensors.table.columns), edges).write("graph.json")
    drawn(command("plot", "graph", "graph.json", "-o", "matrix.png"), "matrix.png")
    drawn(command("plot", "graph", "graph.json", "--sensors", "sensors.csv", "--past-only", "-o", "map.png"), "map.png")
    assert "there is no file other.json" in fails(command("plot", "graph", "other.json", "-o", "x.png"))
    Path("few.csv").write_text("id,latitude,longitude\nS1,50,8\n")
    assert "lacks 'S2'" in fails(command("plot", "graph", "graph.json", "--sensors", "few.csv", "-o", "x.png"))


def metrics(folder: str, errors: list[float]) -> Path:
    path = Path(folder) / "metrics.csv"
    path.parent.mkdir()
    columns = {"epoch": range(len(errors)), "train_loss": np.linspace(1, 0.5, len(errors)), "validation_mae": errors}
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


def test_learning_curves_are_drawn_of_models_and_of_results(command: Command) -> None:
    one, other = metrics("one", [3.0, 2.0]), metrics("other", [3.5, 2.5])
    drawn(command("plot", "learning", one, "-o", "a.png"), "a.png")
    drawn(command("plot", "learning", one, other, "-o", "b.png"), "b.png")
    Path("results").mkdir()
    put_run(Path("results"))
    results = list(Path("results").glob("*.json"))
    drawn(command("plot", "learning", *results, other, "--title", "Mine", "-o", "c.svg"), "c.svg")
    nothing = metrics("nothing", [np.nan, np.nan])
    assert "none of these files holds" in fails(command("plot", "learning", nothing, nothing, "-o", "x.png"))
    Path("list.json").write_text("[]")
    assert "holds no result" in fails(command("plot", "learning", "list.json", "-o", "x.png"))
    Path("graph.json").write_text("{}")
    assert "holds no run" in fails(command("plot", "learning", "graph.json", "-o", "x.png"))


def test_sensitivity_is_drawn_of_whichever_tables_were_run(command: Command) -> None:
    Path("results").mkdir()
    assert "casper reproduce sparsity" in fails(command("plot", "sensitivity", "results", "-o", "x.png"))
    for number, value in enumerate((0.001, 0.1)):
        put_run(Path("results"), "sparsity", f"lambda = {value}", value=value, number=number)
    drawn(command("plot", "sensitivity", "results", "-o", "one.png"), "one.png")
    put_run(Path("results"), "prompts", "50 prompts", value=50.0)
    drawn(command("plot", "sensitivity", "results", "-o", "both.png"), "both.png")


def test_pictures_are_not_written_over_or_in_unknown_forms(command: Command) -> None:
    Path("gaps.png").write_text("mine")
    assert "--force" in fails(command("plot", "gaps", "readings.csv", "-o", "gaps.png"))
    assert Path("gaps.png").read_text() == "mine"
    drawn(command("plot", "gaps", "readings.csv", "-o", "gaps.png", "--force"), "gaps.png")
    assert "pictures are written as .png" in fails(command("plot", "gaps", "readings.csv", "-o", "gaps.gif"))
