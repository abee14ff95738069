from __future__ import annotations

import numpy as np
import pytest

from casper.discovery.systems import SYSTEMS, linear_var, lorenz96, wind_blown, with_holes
from casper.errors import InputError
from casper.simulate import simulate


@pytest.mark.parametrize("name", SYSTEMS)
def test_systems_are_repeatable_finite_and_have_a_truth_without_self_pairs(name: str) -> None:
    first, second, other = (SYSTEMS[name](steps=300, seed=seed) for seed in (1, 1, 2))
    assert first.series.equals(second.series)
    assert not first.series.equals(other.series)
    assert np.isfinite(first.series.to_numpy()).all()
    assert first.truth.shape == (first.series.shape[1],) * 2
    assert not first.truth.diagonal().any()
    assert first.truth.any()


def test_the_causes_of_a_var_are_those_that_regression_finds() -> None:
    system = linear_var(steps=20_000, seed=3)
    values = system.series.to_numpy()
    weights = np.linalg.lstsq(values[:-1], values[1:], rcond=None)[0]  # (source, target)
    np.fill_diagonal(weights, 0.0)
    assert ((np.abs(weights) > 0.1) == system.truth).all()
    assert (system.truth.sum(0) == 2).all()


def test_lorenz_variables_are_driven_by_their_three_neighbours() -> None:
    system = lorenz96(variables=6, steps=50)
    assert np.flatnonzero(system.truth[:, 0]).tolist() == [1, 4, 5]
    assert system.series.to_numpy().std() > 2, "it is chaotic, not at rest"


@pytest.mark.parametrize("seed", range(6))
def test_no_true_edge_of_the_wind_crosses_the_ridge(seed: int) -> None:
    system = wind_blown(sensors=24, steps=200, seed=seed)
    assert system.beyond is not None
    assert system.beyond.any()
    assert not (system.truth & system.beyond).any()


def test_the_truth_of_the_wind_is_that_of_the_simulation() -> None:
    system = wind_blown(sensors=12, steps=200, seed=0)
    edges = simulate(sensors=12, steps=200, seed=0, holes=None).edges
    assert system.truth.sum() == len(edges.drop_duplicates(["source", "target"]))


@pytest.mark.parametrize("blocks", [False, True])
def test_holes_have_the_share_asked_for_and_hide_nothing_else(blocks: bool) -> None:
    system = linear_var(steps=1000)
    holed = with_holes(system, share=0.3, blocks=blocks, seed=4)
    missing = holed.series.isna().to_numpy()
    assert missing.mean() == pytest.approx(0.3, abs=0.02)
    assert (holed.series.to_numpy()[~missing] == system.series.to_numpy()[~missing]).all()
    runs = np.diff(np.flatnonzero(np.diff(np.pad(missing[:, 0], 1).astype(int))).reshape(-1, 2), axis=1)
    assert (runs.mean() > 5) == blocks
    with pytest.raises(InputError, match="between 0 and 1"):
        with_holes(system, share=1.0, blocks=blocks)
