from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from casper.causal import CausalGraph
from casper.errors import InputError

EDGES = pd.DataFrame(
    {
        "source": ["a", "a", "b", "c", "c"],
        "target": ["b", "b", "c", "c", "a"],
        "lag": [1, -2, 0, 3, 2],
        "weight": [0.5, 0.1, 0.4, 0.9, 0.2],
        "stability": [1.0, 0.2, 0.7, 1.0, 0.5],
    }
)


def graph() -> CausalGraph:
    return CausalGraph.build(["a", "b", "c"], EDGES, step=pd.Timedelta("1h"), origin={"method": "hand"})


def test_edges_are_listed_strongest_first_with_direction_and_delay() -> None:
    frame = graph().to_frame()
    assert frame["weight"].tolist() == [0.9, 0.5, 0.4, 0.2, 0.1]
    assert frame["direction"].tolist() == ["past", "past", "same", "past", "future"]
    assert frame["delay"].tolist() == [pd.Timedelta(hours=lag) for lag in (3, 1, 0, 2, -2)]


def test_a_graph_is_cut_by_weight_stability_target_and_time() -> None:
    whole = graph()
    assert whole.threshold(0.4).edges["weight"].tolist() == [0.9, 0.5, 0.4]
    assert whole.threshold(stability=0.7).edges["weight"].tolist() == [0.9, 0.5, 0.4]
    assert sorted(whole.top(1).edges["target"]) == ["a", "b", "c"]
    assert whole.top(1).edges["weight"].tolist() == [0.9, 0.5, 0.2]
    assert whole.strongest(2).edges["weight"].tolist() == [0.9, 0.5]
    assert -2 not in whole.constrained().edges["lag"].tolist()
    assert len(whole.constrained()) == 4
    assert whole.without_self().edges["weight"].tolist() == [0.5, 0.4, 0.2, 0.1]
    assert whole.without_lags().edges["weight"].tolist() == [0.9, 0.5, 0.4, 0.2]
    assert whole.without_lags().edges["lag"].isna().all()
    assert whole.pairs().edges["weight"].tolist() == [0.5, 0.4, 0.2], "one lag for each pair of two"
    assert len(whole) == 5, "the graph itself stays as it was"


def test_causes_and_effects_of_a_sensor_are_found_and_unknown_sensors_refused() -> None:
    assert graph().causes_of("b")["lag"].tolist() == [1, -2]
    assert graph().effects_of("c")["target"].tolist() == ["c", "a"]
    with pytest.raises(InputError, match="no sensor 'd'"):
        graph().causes_of("d")


def test_the_matrix_has_sources_in_rows_and_the_strongest_lag() -> None:
    matrix = graph().matrix()
    assert matrix.index.name == "source"
    assert matrix.loc["a", "b"] == 0.5
    assert matrix.loc["b", "a"] == 0.0
    assert matrix.loc["c", "c"] == 0.9


def test_a_graph_comes_from_a_matrix_with_or_without_lags() -> None:
    strengths = np.array([[0.0, 0.3], [0.2, 0.0]])
    plain = CausalGraph.from_matrix(strengths, ["p", "q"])
    assert plain.edges["lag"].isna().all()
    assert plain.edges[["source", "target"]].to_numpy().tolist() == [["p", "q"], ["q", "p"]]
    lagged = CausalGraph.from_matrix(strengths, ["p", "q"], by_lag=np.stack([strengths, strengths.T * 2]))
    assert lagged.edges.loc[0, ["source", "target", "lag"]].tolist() == ["q", "p", 2]
    named = CausalGraph.from_matrix(pd.DataFrame(strengths, index=["u", "v"], columns=["u", "v"]))
    assert named.sensors == ("u", "v")
    with pytest.raises(InputError, match="does not fit 3 sensors"):
        CausalGraph.from_matrix(strengths, ["p", "q", "r"])


def test_scores_against_the_truth_are_those_counted_by_hand() -> None:
    found = graph().without_self()  # a->b .5, b->c .4, c->a .2
    truth = pd.DataFrame({"source": ["a", "a"], "target": ["b", "c"]})
    scores = found.compare(truth)
    # Six pairs: a->b (.5) is true, a->c (0) is true; false: b->c .4, c->a .2, and two pairs with 0 that tie with a->c.
    assert scores["auroc"] == pytest.approx((4 + 2 * 0.5) / 8)
    assert (scores["pairs"], scores["true_edges"]) == (6, 2)
    assert scores["precision"] == pytest.approx(1 / 3)
    assert scores["recall"] == pytest.approx(1 / 2)
    assert scores["f1"] == pytest.approx(2 / 5)
    assert scores["hamming"] == 3
    assert scores["f1_best"] == pytest.approx(2 / 3)


def test_networkx_keeps_every_lag() -> None:
    whole = graph().to_networkx()
    assert isinstance(whole, nx.MultiDiGraph)
    assert sorted(edge["lag"] for edge in whole.get_edge_data("a", "b").values()) == [-2, 1]


def test_self_pairs_are_left_out_or_count_as_negatives() -> None:
    truth = np.array([[1, 1, 0], [0, 0, 0], [0, 0, 1]])  # its diagonal never counts as true
    out, negatives = graph().compare(truth), graph().compare(truth, self_pairs="cuts")
    assert (out["pairs"], negatives["pairs"]) == (6, 9)
    assert out["true_edges"] == negatives["true_edges"] == 1
    assert out["auroc"] == 1.0
    assert negatives["auroc"] == pytest.approx(7 / 8), "the strong self-pair of c stands above the true edge"
    with pytest.raises(InputError, match="choose one of offdiag, cuts"):
        graph().compare(truth, self_pairs="none")  # pyright: ignore[reportArgumentType]


def test_a_truth_may_be_a_graph_or_a_table_and_must_fit() -> None:
    assert graph().compare(graph())["auroc"] == 1.0
    names = ["c", "b", "a"]
    assert graph().compare(graph().matrix().loc[names, names])["auroc"] == 1.0, "names count, not places"
    with pytest.raises(InputError, match="same names in the same order"):
        CausalGraph.from_matrix(graph().matrix()[names])
    with pytest.raises(InputError, match="different sensors"):
        graph().compare(CausalGraph.from_matrix(np.eye(3), ["a", "b", "x"]))
    with pytest.raises(InputError, match="shape"):
        graph().compare(np.eye(4))
    with pytest.raises(InputError, match="nothing to tell apart"):
        graph().compare(np.zeros((3, 3)))


def test_refits_are_joined_and_stability_is_how_often_an_edge_stands() -> None:
    first = CausalGraph.from_matrix(np.array([[0, 4.0, 0], [0, 0, 2.0], [1.0, 0, 0]]))
    second = CausalGraph.from_matrix(np.array([[0, 3.0, 0], [0, 0, 0], [2.0, 0, 0]]))
    joined = CausalGraph.of_refits([first, second], standing=2)
    told = joined.edges.set_index(["source", "target"])
    assert told["weight"].to_dict() == {("x1", "x2"): 3.5, ("x3", "x1"): 1.5, ("x2", "x3"): 1.0}
    assert told["stability"].to_dict() == {("x1", "x2"): 1.0, ("x3", "x1"): 0.5, ("x2", "x3"): 0.5}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda edges: edges.drop(columns="weight"), "column 'weight'"),
        (lambda edges: edges.assign(source="z"), "which are not among the 3 sensors"),
        (lambda edges: edges.assign(weight=np.nan), "weight that is a number"),
        (lambda edges: edges.assign(weight=-1.0), "not negative"),
        (lambda edges: pd.concat([edges, edges]), "listed twice"),
    ],
)
def test_wrong_edges_are_refused(change, message: str) -> None:
    with pytest.raises(InputError, match=message):
        CausalGraph.build(["a", "b", "c"], change(EDGES))
