"""A change of units is found where it happened; weather, rivers, power and traffic are left alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from casper.check.level_jumps import Jump, find_jump, jumps_of_their_own, unit_factor

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


def snow(rng: np.random.Generator) -> Series:
    """Dustings of a few centimetres that melt, then a winter."""
    depth = np.where(rng.random(200) < 0.5, rng.uniform(0.03, 0.09, 200), 0.0)
    depth[80:] = 0.6 + np.cumsum(rng.exponential(0.005, 120))
    return depth


def test_the_first_snow_is_no_jump() -> None:
    for seed in range(12):
        depth = snow(np.random.default_rng(seed))
        assert find_jump(depth[depth > 0]) is not None, "all that is seen of it"
        assert find_jump(depth) is None, "there was none at times"
        inches = (depth / 0.0254).round() * 0.0254
        assert find_jump(inches[inches > 0]) is None, "a few steps of the instrument"


@pytest.mark.parametrize("make", [sun, rain])
def test_zeros_on_both_sides_do_not_hide_a_change_of_units(make: Callable[[np.random.Generator], Series]) -> None:
    series = make(np.random.default_rng(0))
    assert (series == 0).mean() > 0.4
    series[2000:] *= 1000.0
    jump = find_jump(series)
    assert jump is not None
    assert abs(jump.at - 2000) < 48


def test_what_the_other_sensors_do_too_is_no_change_of_units() -> None:
    readings = np.random.default_rng(0).normal(20.0, 2.0, (400, 5))
    readings[200:, 0] *= 10.0
    readings[7, 3] = np.nan
    own = {0: Jump(200, 10.0)}
    assert jumps_of_their_own(readings, own) == own
    weather = readings.copy()
    weather[200:, 1:] *= 6.0
    assert jumps_of_their_own(weather, own) == {}
    falling = readings.copy()
    falling[200:, 1:] /= 6.0
    assert jumps_of_their_own(falling, own) == own, "the other way"
    from_nothing = readings.copy()
    from_nothing[:200, 1:] = 0.0
    assert jumps_of_their_own(from_nothing, own) == {}


def test_sensors_that_change_their_units_at_the_same_step_do_not_speak_against_each_other() -> None:
    readings = np.random.default_rng(0).normal(20.0, 2.0, (400, 3))
    readings[200:] *= 10.0
    together = {column: Jump(200, 10.0 + 0.1 * column) for column in range(3)}
    assert jumps_of_their_own(readings, together) == together
    no_units = {column: Jump(200, 7.4) for column in range(3)}
    assert jumps_of_their_own(readings, no_units) == {}
    at_other_times = {column: Jump(200 + column, 10.0) for column in range(3)}
    assert jumps_of_their_own(readings, at_other_times) == {}
    without_others = {0: Jump(200, 7.4)}
    assert jumps_of_their_own(readings[:, :1], without_others) == without_others


@pytest.mark.parametrize(
    ("factor", "units"),
    [(10.4, 10), (0.0098, 100), (1100, 1000), (26, 25.4), (1 / 3500, 3600), (7.4, None), (37, None), (0.03, None)],
)
def test_factors_near_those_between_units_are_known(factor: float, units: float | None) -> None:
    assert unit_factor(factor) == units
