from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

from casper.config import Scaling
from casper.errors import InputError
from casper.graph import SensorGraph
from casper.windows import (
    Scaler,
    Series,
    choose_periods,
    clock_features,
    cut,
    spread_starts,
    starts_with_readings,
)

NAMES = ("a", "b", "c", "d")


def graph(edges: list[tuple[int, int, float]]) -> SensorGraph:
    source, target, weight = zip(*edges, strict=True) if edges else ((), (), ())
    return SensorGraph.from_edges(NAMES, source, target, weight, origin="by hand")


def table() -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    random = np.random.default_rng(0)
    values = random.normal([0.0, 10.0, 20.0, 30.0], [1.0, 2.0, 3.0, 4.0], size=(200, 4))
    visible = random.random(values.shape) < 0.8
    return np.where(visible, values, np.nan), visible


EDGES = graph([(0, 3, 1.0), (1, 3, 0.5), (3, 0, 1.0)])


def test_global_scaling_is_the_mean_and_deviation_of_all_visible_cells() -> None:
    values, visible = table()
    scaler = Scaler.fit(values, visible, "global", EDGES)
    np.testing.assert_allclose(scaler.mean, values[visible].mean())
    np.testing.assert_allclose(scaler.deviation, values[visible].std())
    assert scaler.mean.shape == (4,)


def test_sensor_scaling_is_the_mean_and_deviation_of_every_sensor() -> None:
    values, visible = table()
    scaler = Scaler.fit(values, visible, "sensor", EDGES)
    np.testing.assert_allclose(scaler.mean, np.nanmean(values, axis=0))
    np.testing.assert_allclose(scaler.deviation, np.nanstd(values, axis=0))


def test_hidden_cells_do_not_influence_the_scale() -> None:
    values, visible = table()
    for kind in ("global", "sensor"):
        one = Scaler.fit(np.where(visible, values, 1e9), visible, kind, EDGES)
        other = Scaler.fit(values, visible, kind, EDGES)
        np.testing.assert_array_equal(one.mean, other.mean)
        np.testing.assert_array_equal(one.deviation, other.deviation)


def test_a_dead_sensor_takes_the_weighted_average_of_the_neighbours_it_listens_to() -> None:
    values, visible = table()
    visible[:, 3] = False
    scaler = Scaler.fit(values, visible, "sensor", EDGES)
    expected = (1.0 * scaler.mean[0] + 0.5 * scaler.mean[1]) / 1.5
    assert scaler.mean[3] == pytest.approx(expected)
    assert scaler.deviation[3] == pytest.approx((scaler.deviation[0] + 0.5 * scaler.deviation[1]) / 1.5)


@pytest.mark.parametrize("edges", [[], [(2, 3, 1.0)]], ids=["no neighbour", "only a dead neighbour"])
def test_a_dead_sensor_without_a_living_neighbour_takes_everybodys_average(edges: list[tuple[int, int, float]]) -> None:
    values, visible = table()
    visible[:, 2:] = False
    scaler = Scaler.fit(values, visible, "sensor", graph(edges))
    assert scaler.mean[3] == pytest.approx(scaler.mean[:2].mean())
    assert scaler.deviation[3] == pytest.approx(scaler.deviation[:2].mean())


def test_a_constant_sensor_has_a_small_but_positive_deviation() -> None:
    values, visible = table()
    values[:, 1] = 7.0
    scaler = Scaler.fit(values, visible, "sensor", EDGES)
    assert scaler.mean[1] == 7.0
    assert 0 < scaler.deviation[1] < 0.01 * scaler.deviation[0]
    assert np.isfinite(scaler.scale(values)[visible]).all()


@pytest.mark.parametrize("kind", ["global", "sensor"])
def test_a_constant_table_is_scaled_by_one(kind: Scaling) -> None:
    values = np.full((5, 4), 3.0)
    scaler = Scaler.fit(values, np.ones_like(values, dtype=bool), kind, EDGES)
    np.testing.assert_array_equal(scaler.deviation, 1.0)
    np.testing.assert_array_equal(scaler.scale(values), 0.0)


def test_nothing_visible_is_an_input_error() -> None:
    with pytest.raises(InputError, match="no value is visible"):
        Scaler.fit(np.zeros((3, 4)), np.zeros((3, 4), dtype=bool), "global", EDGES)


def test_scaling_and_unscaling_come_back_to_where_they_began() -> None:
    values, visible = table()
    scaler = Scaler.fit(values, visible, "sensor", EDGES)
    scaled = scaler.scale(values)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(np.nanmean(scaled, axis=0), 0.0, atol=1e-6)
    back = scaler.unscale(scaled)
    assert back.dtype == np.float64
    np.testing.assert_allclose(back, values, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("step", "steps", "expected"),
    [
        ("1h", 24 * 5, (24.0,)),
        ("1h", 24 * 14, (24.0, 168.0)),
        ("1h", 24 * 700, (24.0, 168.0, 8766.0)),
        ("5min", 288, (24.0,)),
        ("1D", 30, (168.0,)),
        ("1D", 1000, (168.0, 8766.0)),
        ("30D", 100, (8766.0,)),
        ("1s", 10, (24.0,)),
    ],
)
def test_periods_are_those_the_step_can_show_and_the_length_can_teach(
    step: str, steps: int, expected: tuple[float, ...]
) -> None:
    assert choose_periods(pd.Timedelta(step), steps) == expected


def test_more_waves_of_the_day_are_told_where_the_step_can_show_them() -> None:
    assert choose_periods(pd.Timedelta("5min"), 10_000, harmonics=3) == (12.0, 8.0, 24.0, 168.0)
    assert choose_periods(pd.Timedelta("3h"), 10_000, harmonics=3)[:2] == (12.0, 24.0), "8 hours need shorter steps"


def test_clock_features_are_sine_and_cosine_within_each_period() -> None:
    times = pd.date_range("2024-01-01", periods=24 * 14, freq="1h")  # a Monday
    features = clock_features(times, (24.0, 168.0))
    assert features.shape == (len(times), 4)
    assert features.dtype == np.float32
    np.testing.assert_allclose(features[0], [0, 0, 1, 1], atol=1e-4)  # midnight, the start of a day and of a week
    np.testing.assert_allclose(features[6], [1, np.sin(2 * np.pi * 6 / 168), 0, np.cos(2 * np.pi * 6 / 168)], atol=1e-4)
    np.testing.assert_allclose(features[:24, 0], features[24:48, 0], atol=1e-4)
    np.testing.assert_allclose(features[:168], features[168:], atol=1e-4)
    np.testing.assert_allclose(features[:, :2] ** 2 + features[:, 2:] ** 2, 1.0, atol=1e-5)


def test_the_clock_is_the_local_one() -> None:
    local = pd.date_range("2024-06-01", periods=48, freq="1h", tz="Asia/Shanghai")
    naive = pd.date_range("2024-06-01", periods=48, freq="1h")
    np.testing.assert_array_equal(clock_features(local, (24.0,)), clock_features(naive, (24.0,)))
    assert not np.allclose(clock_features(local, (24.0,)), clock_features(local.tz_convert("UTC"), (24.0,)))


def test_summer_time_moves_the_clock_by_an_hour() -> None:
    times = pd.date_range("2024-03-30", periods=72, freq="1h", tz="Europe/Berlin")
    features = clock_features(times, (24.0,))
    noons = np.flatnonzero(np.isclose(features[:, 1], -1.0, atol=1e-4))
    assert np.diff(noons).tolist() == [23, 24]


def series() -> Series:
    scaled = np.arange(20, dtype=np.float32).reshape(10, 2) + 1
    visible = np.ones((10, 2), dtype=bool)
    visible[3, 1] = False
    scaled[3, 1] = np.nan
    clock = np.arange(10, dtype=np.float32)[:, None]
    return Series.build(scaled, visible, clock, torch.device("cpu"))


def test_a_series_holds_zero_where_nothing_is_visible() -> None:
    assert series().values[3, 1] == 0
    assert series().values.isfinite().all()


def test_windows_are_cut_sensor_by_sensor() -> None:
    window = series().window(torch.tensor([0, 2]), 4)
    assert window.values.shape == (2, 2, 4)
    assert window.values[1, 0].tolist() == [5.0, 7.0, 9.0, 11.0]
    assert window.visible[1, 1].tolist() == [True, False, True, True]
    assert window.clock[1, :, 0].tolist() == [2.0, 3.0, 4.0, 5.0]
    assert torch.equal(cut(series().values, torch.tensor([0, 2]), 4), window.values)


@pytest.mark.parametrize(("steps", "window", "stride"), [(10, 4, 3), (10, 4, 4), (10, 10, 5), (7, 3, 1), (9, 4, 100)])
def test_spread_starts_end_flush_with_the_table(steps: int, window: int, stride: int) -> None:
    starts = spread_starts(steps, window, stride)
    assert starts[0] == 0
    assert starts[-1] == steps - window
    assert (np.diff(starts) > 0).all()
    if stride <= window:
        covered = np.unique(starts[:, None] + np.arange(window))
        assert covered.tolist() == list(range(steps))
        assert (np.diff(starts) <= stride).all()


def test_a_table_shorter_than_the_window_is_an_input_error() -> None:
    with pytest.raises(InputError, match="3 steps, fewer than the model's window of 4"):
        spread_starts(3, 4, 1)


def test_windows_without_any_reading_are_left_out() -> None:
    visible = np.zeros((12, 3), dtype=bool)
    visible[4, 1] = visible[11, 0] = True
    assert starts_with_readings(visible, 3).tolist() == [2, 3, 4, 9]
