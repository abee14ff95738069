from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from casper.discovery import Recording, discover
from casper.discovery.by_imputation import CasperDiscoverer
from casper.errors import InputError

TINY: dict[str, Any] = {
    "width": 8,
    "heads": 2,
    "prompts": 4,
    "epochs": 2,
    "batches_per_epoch": 5,
    "looks": 8,
    "folds": 1,
}


def chain(steps: int = 300, seed: int = 0) -> np.ndarray:
    """x1 -> x2 -> x3, one step later each."""
    random = np.random.default_rng(seed)
    x = np.zeros((steps, 3))
    for step in range(1, steps):
        x[step] = 0.3 * x[step - 1] + random.normal(size=3) * (1.0, 0.2, 0.2)
        x[step, 1] += 0.9 * x[step - 1, 0]
        x[step, 2] += 0.9 * x[step - 1, 1]
    return x


def find(series: Any, **settings: Any):
    return CasperDiscoverer(device="cpu", **{**TINY, **settings}).find(Recording.of(series))


def test_the_causes_of_a_chain_are_found_at_their_lag() -> None:
    settings = {"width": 32, "epochs": 12, "batches_per_epoch": 40, "window": 6, "looks": 64, "learning_rate": 5e-3}
    graph = discover(chain(), device="cpu", **{**TINY, **settings}).without_self()
    truth = np.zeros((3, 3))
    truth[0, 1] = truth[1, 2] = 1
    assert graph.compare(truth)["auroc"] >= 0.9
    assert graph.edges.loc[:1, "lag"].tolist() == [1, 1]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"task": "imputation", "batches_per_epoch": 40, "learning_rate": 1e-2},
        {"measure": "rho", "pool": "max", "constrained": False},
        {"measure": "influence", "layers": 1},
    ],
)
def test_every_recipe_gives_finite_strengths_without_self_pairs(settings: dict[str, Any]) -> None:
    found = find(chain(60), **settings)
    assert (found.strength >= 0).all()
    assert (found.strength.diagonal() == 0).all()
    assert (found.strength[~np.eye(3, dtype=bool)] > 0).any()
    assert (found.by_lag is None) == (settings.get("pool") == "max" or settings.get("task") == "imputation")
    if found.by_lag is not None:
        np.testing.assert_allclose(found.by_lag.max(0), found.strength)


def test_the_same_seed_finds_the_same_and_holes_are_not_read() -> None:
    series = chain(80)
    series[np.random.default_rng(5).random(series.shape) < 0.3] = np.nan
    first, second = find(series), find(series)
    assert (first.strength == second.strength).all()
    recording = Recording.of(series)
    recording.values[~recording.observed] = 1e6
    assert (CasperDiscoverer(device="cpu", **TINY).find(recording).strength == first.strength).all()
    by_influence = [find(series, measure="influence", looks=looks).strength for looks in (8, 9)]
    assert (by_influence[0] != by_influence[1]).any()


def test_every_network_is_looked_at_where_it_has_not_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[set[int]] = []
    looked: list[set[int]] = []
    fit, asked = CasperDiscoverer._fit, CasperDiscoverer._asked

    def fit_and_tell(self: Any, recording: Any, steps: int, starts: Any, candidates: Any) -> Any:
        learned.append(set(starts.tolist()))
        return fit(self, recording, steps, starts, candidates)

    def ask_and_tell(self: Any, recording: Any, steps: int, starts: Any, *, at_once: int, what: str) -> Any:
        if what.startswith("silencing"):
            looked.append(set(starts.tolist()))
        return asked(self, recording, steps, starts, at_once=at_once, what=what)

    monkeypatch.setattr(CasperDiscoverer, "_fit", fit_and_tell)
    monkeypatch.setattr(CasperDiscoverer, "_asked", ask_and_tell)
    find(chain(60), folds=3, window=6)
    everything = set(range(55))
    assert len(learned) == 3
    assert all(not here & there for here, there in zip(learned, looked, strict=True))
    assert set.union(*looked) == everything
    assert all(here | there == everything for here, there in zip(learned, looked, strict=True))
    learned.clear()
    looked.clear()
    find(chain(60), folds=1, window=6)
    assert learned == looked == [everything]


def test_only_the_most_correlated_candidates_are_looked_at() -> None:
    noise = np.random.default_rng(3).normal(size=(300, 2))
    found = find(np.hstack([chain(), noise]), candidates=2, measure="influence")
    assert ((found.strength > 0).sum(0) == 2).all()
    assert found.strength[0, 1] > 0
    assert found.strength[1, 2] > 0


def test_short_trajectories_are_windows_of_their_own_and_too_short_ones_are_refused() -> None:
    series = chain(60).reshape(10, 6, 3)
    found = find(list(series), window=6)
    assert found.by_lag is not None
    assert found.by_lag.shape == (5, 3, 3)
    with pytest.raises(InputError, match="at least 4 steps"):
        find(series[:, :3])
    with pytest.raises(InputError, match="a window of 9 steps is longer than the 6 steps"):
        find(series, window=9)
    with pytest.raises(InputError, match='pooled by "mean"'):
        find(series, pool="max")
    with pytest.raises(InputError, match="folds must be at least 1"):
        find(series, folds=0)
