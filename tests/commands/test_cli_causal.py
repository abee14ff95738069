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


def test_a_value_is_explained_as_table_picture_and_file(
    command: Command, tiny_folder: Path, six_sensors: Simulation
) -> None:
    arguments = ("explain", "readings.csv", "--model", str(tiny_folder), "--sensor", "S2")
    arguments += ("--time", "2024-01-03 05:00")
    shown = succeeds(command(*arguments, "-o", "why.png")).out
    assert "S2 at 2024-01-03 05:00:00: the model says " in shown
    assert "and was hidden from it." in shown
    assert Path("why.png").read_bytes().startswith(b"\x89PNG")
    succeeds(command(*arguments, "-o", "why.csv"))
    causes = pd.read_csv("why.csv")
    assert causes["weight"].is_monotonic_decreasing
    assert causes["weight"].sum() == pytest.approx(1.0, rel=1e-3)
    told = json.loads(succeeds(command(*arguments, "--json")).out)
    assert {"sensor", "time", "estimate", "measured", "causes"} == set(told)
    assert told["time"] == "2024-01-03T05:00:00"
    assert told["measured"] == pytest.approx(six_sensors.table.loc["2024-01-03 05:00", "S2"], abs=1e-3)
    listed = told["causes"]
    assert len(listed) == len(causes)
    assert set(listed[0]) == {"source", "time", "lag", "attention", "rho", "beta", "weight"}
    assert listed[0]["source"] == causes["source"][0]


def test_the_time_of_a_value_may_be_written_as_the_table_has_it(
    command: Command, tiny_folder: Path, six_sensors: Simulation
) -> None:
    table = six_sensors.table.copy()
    table.index = table.index.strftime("%d.%m.%Y %H:%M")
    table.to_csv("european.csv", sep=";", decimal=",", index_label="Zeit")
    arguments = ("explain", "european.csv", "--model", str(tiny_folder), "--sensor", "S2", "--json", "--time")
    for time in ("05.01.2024 12:00", "2024-01-05 12:00"):
        assert json.loads(succeeds(command(*arguments, time)).out)["time"] == "2024-01-05T12:00:00"
    assert "is not a time stamp" in fails(command(*arguments, "at noon"))


def test_what_cannot_be_explained_is_refused(command: Command, tiny_folder: Path) -> None:
    arguments = ("explain", "readings.csv", "--model", str(tiny_folder))
    assert "no sensor 'S99'" in fails(command(*arguments, "--sensor", "S99", "--time", "2024-01-03 05:00"))
    here = ("--sensor", "S2", "--time", "2024-01-03 05:00")
    assert "is written as" in fails(command(*arguments, *here, "-o", "why.txt"))
    between = fails(command(*arguments, "--sensor", "S2", "--time", "2024-01-03 05:20"))
    assert "between two steps of the table, 2024-01-03 05:00:00 and 2024-01-03 06:00:00" in between


@pytest.fixture
def series() -> pd.DataFrame:
    """a drives b; c goes its own way; the fourth never reports. Also in series.csv."""
    random = np.random.default_rng(0)
    values = np.zeros((120, 3))
    for step in range(1, 120):
        values[step, 0] = 0.5 * values[step - 1, 0] + random.normal()
        values[step, 1] = 0.9 * values[step - 1, 0] + 0.3 * random.normal()
        values[step, 2] = 0.5 * values[step - 1, 2] + random.normal()
    times = pd.date_range("2024-01-01", periods=120, freq="h")
    table = pd.DataFrame(values, index=times, columns=["a", "b", "c"]).assign(dead=-999.0)
    table.to_csv("series.csv", index_label="time")
    return table


FEW_EPOCHS = ("--set", "settling_epochs=2", "--set", "imputing_epochs=2", "--set", "refining_epochs=2")


def test_causes_are_discovered_in_any_table(command: Command, series: pd.DataFrame) -> None:
    arguments = ("discover", "series.csv", "--method", "cuts", "-o", "graph.json", "--device", "cpu")
    told = succeeds(command(*arguments, "--missing-value", "-999"))
    assert "left out: dead" in " ".join(told.err.split())
    graph = CausalGraph.read("graph.json")
    assert graph.sensors == ("a", "b", "c", "dead")
    assert "dead" not in {*graph.edges["source"], *graph.edges["target"]}
    assert graph.step == pd.Timedelta("1h")
    assert graph.origin["method"] == "cuts"
    assert graph.without_self().edges.loc[0, ["source", "target"]].tolist() == ["a", "b"]
    assert "A weight is the probability that the edge exists, from 0 to 1." in told.out
    assert "no method of causal discovery 'magic'" in fails(
        command("discover", "series.csv", "--method", "magic", "-o", "other.json")
    )
    wrong = command("discover", "series.csv", "--method", "cuts", "-o", "other.json", "--set", "colour=1")
    assert "has no setting 'colour'" in fails(wrong)


def test_as_many_edges_are_printed_as_are_asked_for(command: Command, series: pd.DataFrame) -> None:
    arguments = ("discover", "series.csv", "--method", "cuts", "--force", "-q", "--missing-value", "-999", *FEW_EPOCHS)
    printed = {
        top: sum(line.startswith("│") for line in command(*arguments, "-o", "g.json", "--top", top).out.splitlines())
        for top in (0, 2, 5)
    }
    assert printed == {0: 0, 2: 2, 5: 5}


def test_only_the_strongest_pairs_are_written_if_that_is_asked_for(command: Command, series: pd.DataFrame) -> None:
    arguments = ("discover", "series.csv", "--method", "cuts", "-q", "--missing-value", "-999", *FEW_EPOCHS)
    succeeds(command(*arguments, "-o", "all.json"))
    succeeds(command(*arguments, "-o", "two.graphml", "--strongest", 2))
    everything, two = CausalGraph.read("all.json"), CausalGraph.read("two.graphml")
    assert len(everything) > 2
    pd.testing.assert_frame_equal(two.edges, everything.pairs().strongest(2).edges)
    assert two.sensors == everything.sensors
    assert two.origin["strongest"] == 2, "the file says that it is not the whole graph"


def test_a_discovered_graph_is_drawn_as_a_matrix_or_on_a_map(command: Command, series: pd.DataFrame) -> None:
    arguments = ("discover", "series.csv", "--method", "cuts", "-q", "--missing-value", "-999", *FEW_EPOCHS)
    told = succeeds(command(*arguments, "-o", "one.json", "--picture", "matrix.svg"))
    assert "Wrote matrix.svg: a matrix" in told.out
    assert Path("matrix.svg").read_bytes().startswith(b"<?xml")
    Path("places.csv").write_text("id,latitude,longitude\na,50,8\nb,50.1,8.1\nc,50.2,8\n")
    lacking = command(*arguments, "-o", "two.json", "--picture", "map.png", "--sensors", "places.csv")
    assert "lacks 'dead'" in fails(lacking)
    assert not Path("two.json").exists(), "a sensor without a place is told before the work"
    with Path("places.csv").open("a") as places:
        places.write("dead,50.1,8.2\n")
    told = succeeds(command(*arguments, "-o", "two.json", "--picture", "map.png", "--sensors", "places.csv"))
    assert "Wrote map.png: the 3 strongest causes of every sensor" in told.out
    assert "--picture" in fails(command(*arguments, "-o", "three.json", "--sensors", "places.csv"))
    assert "--near needs the sensors' places" in fails(command(*arguments, "-o", "three.json", "--near"))
    succeeds(command(*arguments, "-o", "three.json", "--sensors", "places.csv", "--near"))
    assert CausalGraph.read("three.json").origin["pairs"] == "neighbours only"
    assert "pairs" not in CausalGraph.read("two.json").origin


def test_the_settings_of_a_method_are_listed_with_their_defaults(command: Command) -> None:
    told = succeeds(command("methods", "--settings", "cuts")).out
    assert "imputation_rate" in told
    assert "0.01" in told
    assert "How far a hole moves" in told
    both = succeeds(command("methods", "--settings", "casper")).out
    for words in ("fast", "paper", "best", "Steps the model sees at a time (T).", "casper discover", "looks"):
        assert words in both
    assert "warmup_steps" in succeeds(command("methods", "--settings", "saits")).out
    assert succeeds(command("methods", "--settings", "mean")).out == "mean has no settings.\n"
    assert "there is no method 'magic'" in fails(command("methods", "--settings", "magic"))


def test_methods_of_both_kinds_are_listed(command: Command) -> None:
    told = succeeds(command("methods")).out
    assert "methods that fill tables" in told
    assert "methods that find causes" in told
    assert "cuts" in told
