"""Chained equations: against scikit-learn's own, and what it leaves to us: dead sensors, few sensors, warnings."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from casper.baselines.mice import ChainedEquationsImputer
from casper.errors import InputError
from casper.simulate import Simulation


def related_table(sensors: int, *, steps: int = 120, noise: float = 0.1) -> pd.DataFrame:
    rng = np.random.default_rng(4)
    values = 10 + rng.normal(size=(steps, 1)) * np.arange(1, sensors + 1) + noise * rng.normal(size=(steps, sensors))
    times = pd.date_range("2024-01-01", periods=steps, freq="h")
    return pd.DataFrame(values, index=times, columns=[f"S{number:02d}" for number in range(sensors)])


def with_holes(table: pd.DataFrame, share: float = 0.2) -> pd.DataFrame:
    return table.mask(np.random.default_rng(5).random(table.shape) < share)


def test_it_fills_as_scikit_learns_imputer_does_on_the_plain_readings() -> None:
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    table = with_holes(related_table(5))
    expected = IterativeImputer(max_iter=30, random_state=0).fit_transform(table.to_numpy())
    filled = ChainedEquationsImputer(rounds=30).fit_transform(table)
    np.testing.assert_allclose(filled.to_numpy(), expected, rtol=5e-3)


def test_linear_relations_are_found() -> None:
    complete = related_table(14, noise=0.01)
    table = with_holes(complete)
    filled = ChainedEquationsImputer(rounds=5).fit_transform(table)
    assert (filled - complete).abs().to_numpy().max() < 0.5


def test_many_sensors_are_drawn_from_few_are_all_taken() -> None:
    many = ChainedEquationsImputer(rounds=1, nearest=3).fit(with_holes(related_table(6)))
    assert {len(turn.neighbor_feat_idx) for turn in many._chain.imputation_sequence_} == {3}
    few = ChainedEquationsImputer(rounds=1).fit(with_holes(related_table(6)))
    assert {len(turn.neighbor_feat_idx) for turn in few._chain.imputation_sequence_} == {5}


def test_the_limit_of_rounds_passes_without_a_warning() -> None:
    """Warnings are errors in these tests."""
    filled = ChainedEquationsImputer(rounds=1, nearest=2).fit_transform(with_holes(related_table(6, noise=2.0)))
    assert filled.notna().to_numpy().all()


def test_dead_sensors_get_the_mean_of_all_and_disturb_nobody() -> None:
    table = with_holes(related_table(5))
    alone = ChainedEquationsImputer(rounds=5).fit_transform(table)
    filled = ChainedEquationsImputer(rounds=5).fit_transform(table.assign(S02b=np.nan))
    pd.testing.assert_frame_equal(filled[table.columns], alone)
    np.testing.assert_allclose(filled["S02b"], np.nanmean(table.to_numpy()))


def test_a_sensor_alone_among_dead_ones_gets_its_mean() -> None:
    table = with_holes(related_table(2))
    table["S00"] = np.nan
    filled = ChainedEquationsImputer().fit_transform(table)
    np.testing.assert_allclose(filled["S01"][table["S01"].isna()], table["S01"].mean())


def test_a_sensor_with_one_reading_and_one_that_never_changes_are_filled() -> None:
    table = with_holes(related_table(5))
    table.iloc[1:, 0] = np.nan
    table.iloc[0, 0] = 3.0
    table["S03"] = table["S03"].where(table["S03"].isna(), 7.0)
    filled = ChainedEquationsImputer(rounds=3).fit_transform(table)
    assert np.isfinite(filled.to_numpy()).all()
    np.testing.assert_allclose(filled["S03"], 7.0, atol=1e-3)


def test_a_sensor_that_reports_only_after_fitting_keeps_its_readings(six_sensors: Simulation) -> None:
    table = six_sensors.table
    imputer = ChainedEquationsImputer(rounds=2).fit(table.assign(S3=np.nan))
    filled = imputer.impute(table)
    measured = table["S3"].notna()
    pd.testing.assert_series_equal(filled["S3"][measured], table["S3"][measured])
    assert filled.notna().to_numpy().all()


def test_the_same_seed_gives_the_same_answer_and_another_seed_another() -> None:
    table = with_holes(related_table(8, noise=2.0))
    one, again, other = (
        ChainedEquationsImputer(rounds=2, nearest=3, seed=seed).fit_transform(table) for seed in (1, 1, 2)
    )
    pd.testing.assert_frame_equal(one, again, check_exact=True)
    assert not one.equals(other)


def test_scikit_learn_is_loaded_only_when_it_is_needed(shell: dict[str, str]) -> None:
    code = "import sys, casper.baselines.mice; sys.exit('sklearn.impute' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=shell, check=False).returncode == 0


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"nearest": 0}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="must be at least 1"):
        ChainedEquationsImputer(**wrong)
