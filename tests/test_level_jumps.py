"""A change of units is found where it happened; weather, rivers, power and traffic are left alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from casper.level_jumps import find_jump

Series = NDArray[np.float64]
HOURS = np.arange(24 * 365)


def smooth(rng: np.random.Generator, count: int, memory: float) -> Series:
    """Noise that remembers the steps before, of about one deviation."""
    noise = rng.normal(size=count) * np.sqrt(1 - memory**2)
    for step in range(1, count):
        noise[step] += memory * noise[step - 1]
    return noise


def river(rng: np.random.Generator) -> Series:
    """Floods that rise thirtyfold within hours and fall for a week or two, one of them near the end."""
    flow = 5.0 * np.exp(0.2 * smooth(rng, len(HOURS), 0.99))
    for start, size in ((rng.integers(0, 8000), 80.0), (rng.integers(0, 8000), 100.0), (8300, 200.0)):
        since = HOURS - start
        flow += size * np.where(since >= 0, np.exp(-np.maximum(since, 0) / 150), np.exp(np.minimum(since, 0) / 6))
    return flow


def sun(rng: np.random.Generator) -> Series:
    height = np.sin((HOURS % 24 - 6) / 12 * np.pi) * (0.4 - 0.35 * np.cos(HOURS / len(HOURS) * 2 * np.pi))
    return np.maximum(height, 0.0) * rng.uniform(0.1, 1.0, len(HOURS)) * 800


def celsius(rng: np.random.Generator) -> Series:
    season = 10 - 12 * np.cos(HOURS / len(HOURS) * 2 * np.pi)
    return season + 4 * np.sin(HOURS / 24 * 2 * np.pi) + 2 * smooth(rng, len(HOURS), 0.98)


def spring(rng: np.random.Generator) -> Series:
    """From frost to summer, with a gap of two months between."""
    temperature = celsius(rng)[: 24 * 200]
    return np.concatenate([temperature[: 24 * 60], temperature[24 * 140 :]])


def traffic(rng: np.random.Generator) -> Series:
    day = 20 + 800 * np.maximum(0.0, np.sin((HOURS % 24 - 5) / 18 * np.pi)) ** 2
    return rng.poisson(day * np.where(HOURS // 24 % 7 < 5, 1.0, 0.5)).astype(float)


def rain(rng: np.random.Generator) -> Series:
    return np.where(rng.random(len(HOURS)) < 0.1, rng.gamma(0.5, 4.0, len(HOURS)), 0.0).round(1)


def dust(rng: np.random.Generator) -> Series:
    return 20 * np.exp(0.8 * smooth(rng, len(HOURS), 0.97))


@pytest.mark.parametrize("make", [river, sun, celsius, spring, traffic, rain, dust])
def test_ordinary_series_do_not_jump(make: Callable[[np.random.Generator], Series]) -> None:
    for seed in range(12):
        series = make(np.random.default_rng(seed))
        for part in (series, series[::24], series[: len(series) // 2], series[len(series) // 3 :]):
            assert find_jump(part) is None


@pytest.mark.parametrize("factor", [10.0, 100.0, 1000.0, 0.01])
@pytest.mark.parametrize("at", [800, 4321, 8000])
def test_a_change_of_units_is_found_where_it_happened(factor: float, at: int) -> None:
    series = 1000 + 15 * smooth(np.random.default_rng(0), len(HOURS), 0.99)
    series[at:] *= factor
    jump = find_jump(series)
    assert jump is not None
    assert jump.at == at
    assert jump.factor == pytest.approx(factor, rel=0.1)


@pytest.mark.parametrize("make", [traffic, celsius, dust])
def test_days_nights_and_seasons_do_not_hide_a_change_of_units(make: Callable[[np.random.Generator], Series]) -> None:
    series = make(np.random.default_rng(0))
    series[3000:] *= 100.0
    jump = find_jump(series)
    assert jump is not None
    assert abs(jump.at - 3000) < 24
    assert 40 < jump.factor < 250


def test_restless_series_and_negative_ones_jump_too() -> None:
    dusty = dust(np.random.default_rng(1))
    dusty[3000:] *= 1000
    jump = find_jump(dusty)
    assert jump is not None
    assert jump.at == 3000
    below = -20 - dusty[:200]
    below[150:] *= 100
    assert find_jump(below) is not None


def test_a_jump_that_does_not_last_and_a_sensor_that_is_stuck_are_something_else() -> None:
    series = np.random.default_rng(0).normal(20, 2, 1000)
    back = series.copy()
    back[300:600] *= 100
    assert find_jump(back) is None
    stuck = series.copy()
    stuck[600:] = 0.01
    assert find_jump(stuck) is None
    few = series[:12].copy()
    few[6:] *= 100
    assert find_jump(few) is None
    assert find_jump(np.zeros(100)) is None
    assert find_jump(np.empty(0)) is None
