"""Causal graphs in files, ours and other people's."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from casper.causal import CausalGraph
from casper.errors import InputError
from tests.test_causal import EDGES, graph

WHOLE = (".json", ".graphml", ".parquet")


def with_a_lonely_sensor() -> CausalGraph:
    """Names that other programs take for numbers or for nothing; sensors in an order of their own."""
    named = EDGES.replace({"source": {"a": "007", "b": "NA"}, "target": {"a": "007", "b": "NA"}})
    origin = {"method": "hand", "settings": {"lags": 3, "note": 'Zürich <&> "Bern"'}}
    return CausalGraph.build(["NA", "lonely", "c", "007"], named, step=pd.Timedelta("15min"), origin=origin)


@pytest.mark.parametrize("ending", WHOLE)
def test_these_files_hold_all_of_a_graph(tmp_path: Path, ending: str) -> None:
    whole = with_a_lonely_sensor()
    back = CausalGraph.read(whole.write(tmp_path / "new" / f"graph{ending}"))
    assert back.sensors == whole.sensors
    assert back.step == whole.step
    assert dict(back.origin) == dict(whole.origin)
    pd.testing.assert_frame_equal(back.edges, whole.edges)


@pytest.mark.parametrize("ending", [*WHOLE, ".csv"])
def test_unknown_lags_and_stabilities_and_graphs_without_edges_survive(tmp_path: Path, ending: str) -> None:
    plain = CausalGraph.from_matrix(np.array([[0.0, 1.0], [0.0, 0.0]]), ["1", "2"])
    back = CausalGraph.read(plain.write(tmp_path / f"graph{ending}"))
    pd.testing.assert_frame_equal(back.edges, plain.edges)
    assert back.edges[["lag", "stability"]].isna().all(axis=None)
    empty = CausalGraph.read(plain.threshold(2).write(tmp_path / f"empty{ending}"))
    assert len(empty) == 0
    assert empty.sensors == (("1", "2") if ending != ".csv" else ())


def test_a_csv_holds_the_edges_and_is_told_the_other_sensors(tmp_path: Path) -> None:
    path = with_a_lonely_sensor().write(tmp_path / "graph.csv")
    back = CausalGraph.read(path)
    assert back.sensors == ("007", "NA", "c")
    assert back.step is None
    pd.testing.assert_frame_equal(back.edges, with_a_lonely_sensor().edges)
    assert CausalGraph.read(path, sensors=["lonely", "c", "NA", "007"]).sensors == ("lonely", "c", "NA", "007")
    with pytest.raises(InputError, match=r"graph\.csv: .*not among the 2 sensors"):
        CausalGraph.read(path, sensors=["c", "NA"])


def test_sensors_are_not_told_a_file_that_names_them(tmp_path: Path) -> None:
    path = graph().write(tmp_path / "graph.json")
    with pytest.raises(InputError, match=r"graph\.json: the file names its sensors itself"):
        CausalGraph.read(path, sensors=["a", "b", "c"])


def test_delays_in_a_text_file_are_seconds(tmp_path: Path) -> None:
    read = pd.read_csv(graph().write(tmp_path / "graph.csv"))
    assert read["delay_seconds"].tolist() == [10800, 3600, 0, 7200, -7200]


def test_graphml_keeps_every_lag_for_other_programs(tmp_path: Path) -> None:
    read = nx.read_graphml(graph().write(tmp_path / "graph.graphml"))
    assert sorted(edge["lag"] for edge in read.get_edge_data("a", "b").values()) == [-2, 1]
    assert set(read.nodes) == {"a", "b", "c"}


def test_somebody_else_s_edges_are_read(tmp_path: Path) -> None:
    other = nx.DiGraph()
    other.add_node("far")
    other.add_edge("a", "b", weight=0.5, colour="red")
    nx.write_graphml(other, tmp_path / "other.graphml")
    read = CausalGraph.read(tmp_path / "other.graphml")
    assert read.sensors == ("far", "a", "b")
    assert read.edges[["source", "target", "weight"]].values.tolist() == [["a", "b", 0.5]]
    assert read.edges["lag"].isna().all()
    EDGES.to_parquet(tmp_path / "other.parquet")
    assert CausalGraph.read(tmp_path / "other.parquet").sensors == ("a", "b", "c")
    assert CausalGraph.read(tmp_path / "other.parquet", sensors=["c", "b", "a", "z"]).sensors == ("c", "b", "a", "z")


def json_with(**changes: object) -> str:
    whole = {"format": "casper-causal-graph-1", "sensors": ["a"], "step_seconds": None, "origin": {}, "edges": []}
    return json.dumps({name: value for name, value in {**whole, **changes}.items() if value != "gone"})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("broken.json", "{", "this is not JSON"),
        ("other.json", "{}", "does not hold a causal graph"),
        ("list.json", "[1]", "does not hold a causal graph"),
        ("short.json", json_with(origin="gone", edges="gone"), "only a part of a causal graph: it lacks origin, edges"),
        ("odd.json", json_with(sensors="abc"), "sensors must be a list"),
        ("step.json", json_with(step_seconds="1h"), "step_seconds must be a number or null"),
        ("notes.txt", "see the other file", "graphs are read from .json, .graphml, .parquet, .csv"),
        ("broken.graphml", "<graphml", "this is not GraphML"),
        ("undirected.graphml", "undirected", "have no direction"),
        ("words.parquet", "words", "words.parquet: "),
        ("weights.csv", "source,target\na,b\n", "edges need a column 'weight'"),
        ("words.csv", "source,target,weight\na,b,much\n", "words.csv: "),
        ("empty.csv", "", "empty.csv: "),
    ],
)
def test_wrong_files_are_refused_by_name(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    if text == "undirected":
        nx.write_graphml(nx.Graph([("a", "b")]), path)
    else:
        path.write_text(text)
    with pytest.raises(InputError) as refused:
        CausalGraph.read(path)
    assert name in str(refused.value)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_unknown_ending_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a graph is written as"):
        graph().write(tmp_path / "graph.xlsx")
    assert not any(tmp_path.iterdir())
