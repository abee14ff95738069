"""Vector autoregression: the walk and the regression against loops, a known process, gaps that could diverge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from casper.baselines.var import VectorAutoregressionImputer
from casper.datasets import Benchmark
from casper.errors import InputError
from casper.simulate import Simulation

TRUE = np.array([[0.6, 0.3, 0.0], [0.0, 0.7, -0.2], [0.2, 0.0, 0.5]])


def autoregressive_table(steps: int) -> pd.DataFrame:
    rng = np.random.default_rng(6)
    values = np.zeros((steps, 3))
    for step in range(1, steps):
        values[step] = TRUE @ values[step - 1] + rng.normal(size=3)
    times = pd.date_range("2024-01-01", periods=steps, freq="h")
    return pd.DataFrame(values, index=times, columns=["a", "b", "c"])


def with_holes(table: pd.DataFrame, share: float = 0.2) -> pd.DataFrame:
    return table.mask(np.random.default_rng(7).random(table.shape) < share)


def test_the_coefficients_of_a_known_process_are_found_through_its_holes() -> None:
    imputer = VectorAutoregressionImputer(order=2, ridge=0.1, window=200).fit(
        with_holes(autoregressive_table(4000), 0.1)
    )
    newest = imputer._coefficients[:, 3:6]
    in_units = newest * imputer._spread[:, None] / imputer._spread
    np.testing.assert_allclose(in_units, TRUE, atol=0.06)
    np.testing.assert_allclose(imputer._coefficients[:, :3], 0, atol=0.06)


def test_without_holes_one_round_is_the_ridge_regression_on_padded_windows() -> None:
    table = autoregressive_table(60)
    imputer = VectorAutoregressionImputer(order=2, ridge=3.0, rounds=1, window=20).fit(table)
    z = ((table - table.mean()) / table.std(ddof=0)).to_numpy()
    normal, right = np.diag([3.0] * 6 + [0.0]), np.zeros((7, 3))
    for start in (0, 20, 40):
        past = [z[start : start + 20].mean(axis=0)] * 2
        for step in range(start, start + 20):
            lags = np.append(np.concatenate(past), 1.0)
            normal = normal + np.outer(lags, lags)
            right = right + np.outer(lags, z[step])
            past = [past[1], z[step]]
    np.testing.assert_allclose(imputer._coefficients, np.linalg.solve(normal, right).T, rtol=1e-8, atol=1e-10)


def test_a_table_is_filled_step_by_step_from_what_stands_before(six_sensors: Simulation) -> None:
    table = six_sensors.table
    imputer = VectorAutoregressionImputer(order=3).fit(table)
    means, spread = table.mean().to_numpy(), table.std(ddof=0).to_numpy()
    lowest, highest = table.min().to_numpy(), table.max().to_numpy()
    past = [np.zeros(6)] * 3
    expected = table.to_numpy(copy=True)
    for row in expected:
        for sensor in np.flatnonzero(np.isnan(row)):
            predicted = imputer._coefficients[sensor] @ np.append(np.concatenate(past), 1.0)
            row[sensor] = np.clip(means[sensor] + spread[sensor] * predicted, lowest[sensor], highest[sensor])
        past = [*past[1:], (row - means) / spread]
    np.testing.assert_allclose(imputer.impute(table).to_numpy(), expected, rtol=1e-9)


def test_the_future_is_not_read(six_sensors: Simulation) -> None:
    table = six_sensors.table
    imputer = VectorAutoregressionImputer().fit(table)
    later = table.copy()
    later.iloc[100:] += 5.0
    pd.testing.assert_frame_equal(imputer.impute(table)[:100], imputer.impute(later)[:100], check_exact=True)


def test_it_beats_the_means_on_a_process_with_memory() -> None:
    complete = autoregressive_table(1500)
    table = with_holes(complete)
    holes = table.isna().to_numpy()
    filled = VectorAutoregressionImputer().fit_transform(table)
    error = (filled - complete).to_numpy()[holes]
    assert (error**2).mean() < 0.75 * ((complete - table.mean()).to_numpy()[holes] ** 2).mean()


def test_a_long_gap_in_a_growing_series_stays_within_what_was_seen() -> None:
    steps = np.arange(200.0)
    times = pd.date_range("2024-01-01", periods=200, freq="h")
    table = pd.DataFrame({"a": np.exp(steps[:200] / 20), "b": np.exp(steps / 18) + 1, "c": steps}, index=times)
    gap = table.copy()
    gap.iloc[60:190] = np.nan
    filled = VectorAutoregressionImputer(ridge=1e-6).fit(table).impute(gap)
    assert np.isfinite(filled.to_numpy()).all()
    assert (filled.max() <= table.max()).all()
    assert (filled.min() >= table.min()).all()


def test_a_table_that_begins_with_holes_and_has_a_dead_sensor_is_filled(six_sensors: Simulation) -> None:
    table = six_sensors.table.copy()
    table.iloc[:10] = np.nan
    table["S4"] = np.nan
    filled = VectorAutoregressionImputer().fit_transform(table)
    assert np.isfinite(filled.to_numpy()).all()
    np.testing.assert_allclose(filled["S4"], np.nanmean(table.to_numpy()))


def test_a_table_shorter_than_a_window_is_filled(six_sensors: Simulation) -> None:
    filled = VectorAutoregressionImputer().fit_transform(six_sensors.table.iloc[:4])
    assert np.isfinite(filled.to_numpy()).all()


def test_a_window_of_a_benchmark_is_filled_from_that_window_alone(small_benchmark: Benchmark) -> None:
    imputer = VectorAutoregressionImputer(order=2)
    imputer.fit_benchmark(small_benchmark)
    start, steps = int(small_benchmark.test_starts[3]), small_benchmark.window
    elsewhere = np.ones(len(small_benchmark.values), dtype=bool)
    elsewhere[start : start + steps] = False
    louder = np.where(elsewhere[:, None], small_benchmark.values + 50, small_benchmark.values)
    other = replace(small_benchmark, frame=replace(small_benchmark.frame, values=louder))
    one, same = (next(imputer.impute_windows(benchmark))[1][3] for benchmark in (small_benchmark, other))
    np.testing.assert_array_equal(one, same)

    z, visible = imputer._scaled(small_benchmark.frame.hide(small_benchmark.hidden))
    z, visible = z[start : start + steps], visible[start : start + steps]
    past = [np.array([column[seen].mean() if seen.any() else 0.0 for column, seen in zip(z.T, visible.T, strict=True)])]
    past = past * 2
    for step in range(steps):
        predicted = imputer._coefficients @ np.append(np.concatenate(past), 1.0)
        row = np.where(visible[step], z[step], np.clip(predicted, imputer._lowest, imputer._highest))
        past = [past[1], row]
        in_units = imputer._means[imputer._used] + imputer._spread * row
        np.testing.assert_allclose(one[imputer._used, step], in_units, rtol=1e-9)


@pytest.mark.parametrize("wrong", [{"order": 0}, {"rounds": 0}, {"window": 0}, {"ridge": 0.0}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="must be"):
        VectorAutoregressionImputer(**wrong)
