from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from casper.causal import CausalGraph
from casper.simulate import Simulation

Command = Callable[..., Any]


@pytest.fixture(autouse=True)
def _in_a_folder_with_readings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, six_sensors: Simulation) -> None:
    monkeypatch.chdir(tmp_path)
    six_sensors.table.round(3).to_csv("readings.csv", index_label="time")
    six_sensors.sensors.to_csv("sensors.csv", index=False)


def succeeds(told: Any) -> Any:
    assert told.code == 0, told.err
    return told


def fails(told: Any) -> str:
    assert told.code == 2
    assert "Traceback" not in told.err
    return told.err


def test_a_models_graph_is_written_and_its_strongest_edges_shown(command: Command, tiny_folder: Path) -> None:
    arguments = ("graph", "readings.csv", "--model", str(tiny_folder), "--windows", "3", "-q")
    told = succeeds(command(*arguments, "-o", "graph.json", "--top", "2", "--past-only"))
    graph = CausalGraph.read("graph.json")
    assert graph.edges["target"].value_counts().max() == 2
    assert graph.edges["lag"].min() >= 0
    assert graph.origin["windows"] == 3
    assert "strongest edges" in told.out
    assert f"Wrote {len(graph):,} edges between 6 sensors to graph.json" in told.out
    assert (graph.edges["source"] != graph.edges["target"]).all()
    succeeds(command(*arguments, "-o", "all.parquet", "--top", "0", "--measure", "rho", "--with-self"))
    assert len(pd.read_parquet("all.parquet")) > len(graph)


def test_a_graph_can_be_drawn_on_a_map(command: Command, tiny_folder: Path) -> None:
    arguments = ("graph", "readings.csv", "--model", str(tiny_folder), "--windows", "2", "-o", "graph.csv")
    assert "pass --sensors" in fails(command(*arguments, "--picture", "map.png"))
    assert not Path("graph.csv").exists(), "nothing is written before everything is checked"
    Path("few.csv").write_text("\n".join(Path("sensors.csv").read_text().splitlines()[:-1]))
    fails(command(*arguments, "--picture", "map.png", "--sensors", "few.csv"))
    assert not Path("graph.csv").exists(), "a sensor without a place is told before the work"
    told = succeeds(command(*arguments, "--picture", "map.png", "--sensors", "sensors.csv"))
    assert "Wrote map.png" in told.out
    assert Path("map.png").read_bytes().startswith(b"\x89PNG")


def test_graphs_are_not_written_over_or_in_unknown_forms(command: Command, tiny_folder: Path) -> None:
    arguments = ("graph", "readings.csv", "--model", str(tiny_folder), "-o")
    assert "a graph is written as .json" in fails(command(*arguments, "graph.xlsx"))
    assert "pictures are written as" in fails(command(*arguments, "graph.json", "--picture", "map.bmp"))
    Path("graph.json").write_text("mine")
    assert "--force" in fails(command(*arguments, "graph.json"))
    assert Path("graph.json").read_text() == "mine"


def test_a_value_is_explained_as_table_picture_and_file(command: Command, tiny_folder: Path) -> None:
    arguments = ("explain", "readings.csv", "--model", str(tiny_folder), "--sensor", "S2")
    arguments += ("--time", "2024-01-03 05:00")
    shown = succeeds(command(*arguments, "-o", "why.png")).out
    assert "S2 at 2024-01-03 05:00:00" in shown
    assert Path("why.png").read_bytes().startswith(b"\x89PNG")
    succeeds(command(*arguments, "-o", "why.csv"))
    causes = pd.read_csv("why.csv")
    assert causes["weight"].is_monotonic_decreasing
    assert causes["weight"].sum() == pytest.approx(1.0, rel=1e-3)
    told = json.loads(succeeds(command(*arguments, "--json")).out)
    assert len(told) == len(causes)
    assert set(told[0]) == {"source", "time", "lag", "attention", "rho", "beta", "weight"}
    assert told[0]["source"] == causes["source"][0]


def test_what_cannot_be_explained_is_refused(command: Command, tiny_folder: Path) -> None:
    arguments = ("explain", "readings.csv", "--model", str(tiny_folder))
    assert "no sensor 'S99'" in fails(command(*arguments, "--sensor", "S99", "--time", "2024-01-03 05:00"))
    here = ("--sensor", "S2", "--time", "2024-01-03 05:00")
    assert "is written as" in fails(command(*arguments, *here, "-o", "why.txt"))


def test_causes_are_discovered_in_any_table(command: Command) -> None:
    random = np.random.default_rng(0)
    series = np.zeros((120, 3))
    for step in range(1, 120):
        series[step, 0] = 0.5 * series[step - 1, 0] + random.normal()
        series[step, 1] = 0.9 * series[step - 1, 0] + 0.3 * random.normal()
        series[step, 2] = 0.5 * series[step - 1, 2] + random.normal()
    times = pd.date_range("2024-01-01", periods=120, freq="h")
    table = pd.DataFrame(series, index=times, columns=["a", "b", "c"]).assign(dead=-999.0)
    table.to_csv("series.csv", index_label="time")
    arguments = ("discover", "series.csv", "--method", "cuts", "-o", "graph.json", "--device", "cpu")
    told = succeeds(command(*arguments, "--missing-value", "-999"))
    assert "left out: dead" in " ".join(told.err.split())
    graph = CausalGraph.read("graph.json")
    assert graph.sensors == ("a", "b", "c", "dead")
    assert "dead" not in {*graph.edges["source"], *graph.edges["target"]}
    assert graph.step == pd.Timedelta("1h")
    assert graph.origin["method"] == "cuts"
    assert graph.without_self().edges.loc[0, ["source", "target"]].tolist() == ["a", "b"]
    assert "no method of causal discovery 'magic'" in fails(
        command("discover", "series.csv", "--method", "magic", "-o", "other.json")
    )
    wrong = command("discover", "series.csv", "--method", "cuts", "-o", "other.json", "--set", "colour=1")
    assert "has no setting 'colour'" in fails(wrong)


def test_methods_of_both_kinds_are_listed(command: Command) -> None:
    told = succeeds(command("methods")).out
    assert "methods that fill tables" in told
    assert "methods that find causes" in told
    assert "cuts" in told
