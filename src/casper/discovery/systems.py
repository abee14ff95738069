"""Series whose causes are known, with and without holes, to see what a method of causal discovery finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from casper.errors import InputError
from casper.simulate import simulate

_BURN_IN = 200
_BLOCK = (5, 20)
"""How many steps a block of missing values lasts, at least and at most."""


@dataclass(frozen=True)
class KnownSystem:
    """series: NaN where missing. truth: (N, N), sources in rows. beyond: (N, N), pairs that only a common cause joins,
    if there are such. sensors: their places, if they have any."""

    series: pd.DataFrame
    truth: NDArray[np.bool_]
    beyond: NDArray[np.bool_] | None = None
    sensors: pd.DataFrame | None = None


def linear_var(*, variables: int = 10, steps: int = 1000, seed: int = 0) -> KnownSystem:
    """x(t) = A x(t-1) + noise; every variable has two causes besides itself."""
    random = np.random.default_rng(seed)
    truth = np.zeros((variables, variables), dtype=bool)
    weights = np.zeros((variables, variables))  # (source, target)
    for target in range(variables):
        causes = random.choice(np.delete(np.arange(variables), target), size=2, replace=False)
        truth[causes, target] = True
        weights[causes, target] = random.choice([-1.0, 1.0], size=2) * random.uniform(0.3, 0.6, size=2)
    weights += 0.4 * np.eye(variables)
    weights *= 0.95 / max(0.95, float(np.abs(np.linalg.eigvals(weights)).max()))  # nothing blows up
    state = np.zeros(variables)
    rows = np.empty((steps, variables))
    for step in range(_BURN_IN + steps):
        state = state @ weights + random.normal(size=variables)
        if step >= _BURN_IN:
            rows[step - _BURN_IN] = state
    return KnownSystem(_table(rows), truth)


def lorenz96(*, variables: int = 10, steps: int = 1000, seed: int = 0) -> KnownSystem:
    """dx_i/dt = (x_{i+1} - x_{i-2}) x_{i-1} - x_i + 10, seen every 0.1 with a little noise."""
    random = np.random.default_rng(seed)
    state = 10.0 + random.normal(size=variables)
    fine, length = 10, 0.01

    def slope(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return (np.roll(x, -1) - np.roll(x, 2)) * np.roll(x, 1) - x + 10.0

    rows = np.empty((steps, variables))
    for step in range(_BURN_IN + steps):
        for _ in range(fine):
            first = slope(state)
            second = slope(state + length / 2 * first)
            third = slope(state + length / 2 * second)
            fourth = slope(state + length * third)
            state = state + length / 6 * (first + 2 * second + 2 * third + fourth)
        if step >= _BURN_IN:
            rows[step - _BURN_IN] = state + 0.1 * random.normal(size=variables)
    truth = np.zeros((variables, variables), dtype=bool)
    for target in range(variables):
        truth[[(target + 1) % variables, (target - 1) % variables, (target - 2) % variables], target] = True
    return KnownSystem(_table(rows), truth)


def wind_blown(*, sensors: int = 24, steps: int = 2160, seed: int = 0) -> KnownSystem:
    """`casper.simulate` without holes. Across the ridge nothing is carried, but the background is shared."""
    made = simulate(sensors=sensors, steps=steps, seed=seed, holes=None)
    names = list(made.complete.columns)
    truth = np.zeros((len(names), len(names)), dtype=bool)
    place = {name: number for number, name in enumerate(names)}
    truth[made.edges["source"].map(place), made.edges["target"].map(place)] = True
    side = made.east_of_ridge()
    return KnownSystem(made.complete, truth, side[:, None] != side[None, :], made.sensors)


SYSTEMS: dict[str, Callable[..., KnownSystem]] = {"wind": wind_blown, "var": linear_var, "lorenz": lorenz96}


def with_holes(system: KnownSystem, *, share: float, blocks: bool, seed: int = 0) -> KnownSystem:
    """The same with this share of the cells missing: single ones, or runs of 5 to 20 steps of one variable."""
    if not 0 <= share < 1:
        raise InputError(f"the missing share must lie between 0 and 1, not {share}")
    random = np.random.default_rng([seed, 1])  # not the numbers that made the series
    steps, variables = system.series.shape
    missing = np.zeros((steps, variables), dtype=bool)
    if not blocks:
        missing = random.random((steps, variables)) < share
    else:
        while missing.mean() < share:
            first, variable = random.integers(steps), random.integers(variables)
            missing[first : first + random.integers(_BLOCK[0], _BLOCK[1] + 1), variable] = True
    return KnownSystem(system.series.mask(missing), system.truth, system.beyond, system.sensors)


def _table(rows: NDArray[np.float64]) -> pd.DataFrame:
    times = pd.date_range("2024-01-01", periods=len(rows), freq="h")
    return pd.DataFrame(rows, index=times, columns=[f"x{number + 1}" for number in range(rows.shape[1])])
