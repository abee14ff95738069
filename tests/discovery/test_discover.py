from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from casper import discovery
from casper.config import Configuration
from casper.discovery import DISCOVERERS, CausalGraph, Discoverer, Evidence, Recording, discover
from casper.errors import InputError


@dataclass(frozen=True)
class _NoSettings(Configuration):
    pass


class _Correlations(Discoverer[_NoSettings]):
    """How values go with the next ones of others: enough of a method to test what is around it."""

    name, summary, meaning, defaults = "correlations", "for tests", "a correlation", _NoSettings()

    def find(self, recording: Recording) -> Evidence:
        self.require_steps(recording, 3)
        values, _ = recording.filled().windows(2)
        size = recording.variables
        corner = np.abs(np.corrcoef(values[:, 0].T, values[:, 1].T)[:size, size:])
        for _ in self.rounds(10, "working"):
            pass
        return Evidence(corner, np.stack([corner, corner**2]))


@pytest.fixture(autouse=True)
def _with_a_simple_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(discovery._PLACES, "correlations", f"{__name__}:_Correlations")


def series(steps: int = 200) -> pd.DataFrame:
    random = np.random.default_rng(0)
    x = np.zeros((steps, 3))
    for step in range(1, steps):
        x[step] = random.normal(size=3)
        x[step, 1] += x[step - 1, 0]
    return pd.DataFrame(x, columns=["cause", "effect", "other"])


def test_every_listed_method_can_be_loaded_and_says_what_it_is() -> None:
    assert list(DISCOVERERS)[:8] == ["casper", "pcmci", "ngc", "esru", "lccm", "ngm", "cuts", "granger"]
    for name, method in DISCOVERERS.items():
        assert method.name == name
        assert len(method.summary) > 5
        assert method.defaults == type(method.defaults)()


def test_a_graph_comes_back_with_names_lags_and_origin() -> None:
    graph = discover(series(), method="correlations")
    assert isinstance(graph, CausalGraph)
    assert graph.edges.loc[0, ["source", "target", "lag"]].tolist() == ["cause", "effect", 1]
    assert graph.origin == {"method": "correlations", "seed": 0, "settings": {}, "weights": "a correlation"}
    assert graph.meaning == "a correlation"
    assert graph.edges["stability"].isna().all()


@pytest.mark.parametrize("trajectories", [1, 8])
def test_refits_say_how_stable_an_edge_is(trajectories: int) -> None:
    pieces: Any = series() if trajectories == 1 else list(series().to_numpy().reshape(trajectories, -1, 3))
    graph = discover(pieces, method="correlations", refits=5)
    own = graph.edges["source"] == graph.edges["target"]
    assert graph.edges["stability"][own].isna().all()
    told = graph.edges[~own]["stability"]
    assert told.between(0, 1).all()
    assert told.iloc[0] == 1.0, "a real edge stands in every refit"
    assert told.min() < 1.0
    assert graph.origin["refits"] == 5
    again = discover(pieces, method="correlations", refits=5)
    pd.testing.assert_frame_equal(graph.edges, again.edges)


def test_a_variable_without_readings_is_neither_cause_nor_effect() -> None:
    dead = series().assign(dead=np.nan)[["dead", "cause", "effect", "other"]]
    graph = discover(dead, method="correlations")
    assert graph.sensors == ("dead", "cause", "effect", "other")
    assert "dead" not in {*graph.edges["source"], *graph.edges["target"]}
    pd.testing.assert_frame_equal(graph.edges, discover(series(), method="correlations").edges)
    with pytest.raises(InputError, match="at least two variables with readings"):
        discover(dead[["dead", "cause"]], method="correlations")
    with pytest.raises(InputError, match="not be negative"):
        discover(series(), method="correlations", refits=-1)


def test_names_can_be_asked_for() -> None:
    assert "ngc" in DISCOVERERS
    assert "magic" not in DISCOVERERS


def test_progress_is_told_and_wrong_words_are_refused() -> None:
    heard: list[tuple[str, float]] = []
    discover(series(), method="correlations", tell=lambda what, share: heard.append((what, share)))
    assert heard[0] == ("working", 0.0)
    assert all(0 <= share < 1 for _, share in heard)
    with pytest.raises(InputError, match="no method of causal discovery 'magic'; choose one of casper, pcmci"):
        discover(series(), method="magic")
    with pytest.raises(InputError, match="has no setting 'colour'"):
        discover(series(), method="correlations", colour=1)
    with pytest.raises(InputError, match="at least 3 steps"):
        discover(series(2), method="correlations")


def test_told_the_places_only_edges_between_neighbours_are_kept() -> None:
    random = np.random.default_rng(1)
    names = [f"s{number}" for number in range(12)]
    table = pd.DataFrame(random.normal(size=(60, 12)), columns=names)
    longitude = np.repeat([10.0, 40.0], 6) + np.arange(12) / 100
    places = pd.DataFrame({"id": names, "latitude": 50.0, "longitude": longitude})
    everywhere, near = (discover(table, method="correlations", sensors=one) for one in (None, places))
    side = np.arange(12) < 6
    together = side[:, None] == side
    wanted = np.where(together, everywhere.matrix().to_numpy(), 0.0)
    np.testing.assert_array_equal(near.matrix().to_numpy(), wanted)
    assert near.origin["pairs"] == "neighbours only"
    assert "pairs" not in everywhere.origin
    stable = discover(table, method="correlations", sensors=places, refits=2)
    assert stable.edges["stability"].notna().any()
    assert (stable.matrix().to_numpy()[~together] == 0).all()
    with pytest.raises(InputError, match="s11"):
        discover(table, method="correlations", sensors=places[:-1])
