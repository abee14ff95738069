"""Low-rank factorisation: the regressions against loops, and tables of a rank that is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from casper.baselines.mf import MatrixFactorizationImputer, _ridge_regressions
from casper.errors import InputError


def low_rank_table(steps: int, sensors: int, *, rank: int, noise: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(steps, rank)) @ rng.normal(size=(rank, sensors)) + rng.normal(size=(steps, 1))
    values = 20 + 5 * (values + noise * rng.normal(size=values.shape))
    times = pd.date_range("2024-01-01", periods=steps, freq="h")
    return pd.DataFrame(values, index=times, columns=[f"S{number:04d}" for number in range(sensors)])


def with_holes(table: pd.DataFrame, share: float) -> pd.DataFrame:
    return table.mask(np.random.default_rng(2).random(table.shape) < share)


def test_every_row_is_a_ridge_regression_of_its_observed_cells() -> None:
    rng = np.random.default_rng(0)
    observed = rng.random((7, 9)) < 0.6
    targets, inputs = np.where(observed, rng.normal(size=(7, 9)), 0.0), rng.normal(size=(9, 3))
    penalties = np.array([0.5, 2.0, 0.1])
    answer = _ridge_regressions(targets, observed.astype(np.float64), inputs, penalties)
    for row in range(7):
        normal, right = np.diag(penalties), np.zeros(3)
        for column in range(9):
            if observed[row, column]:
                normal = normal + np.outer(inputs[column], inputs[column])
                right = right + targets[row, column] * inputs[column]
        np.testing.assert_allclose(answer[row], np.linalg.inv(normal) @ right, rtol=1e-10)


def test_a_table_of_low_rank_is_restored_but_for_what_the_penalty_costs() -> None:
    complete = low_rank_table(300, 15, rank=3)
    table = with_holes(complete, 0.3)
    # Sensors differ in their deviations: in standard units, the offset of the steps is a fourth factor.
    filled = MatrixFactorizationImputer(rank=4, rounds=60).fit_transform(table)
    error = (filled - complete).abs().to_numpy()[table.isna().to_numpy()]
    assert error.mean() < 0.1 * float(complete.to_numpy().std())


def test_more_rounds_fit_the_readings_no_worse() -> None:
    table = with_holes(low_rank_table(200, 12, rank=5, noise=0.3), 0.2)

    def objective(rounds: int) -> float:
        imputer = MatrixFactorizationImputer(rank=4, rounds=rounds).fit(table)
        scaled, observed = imputer._scaled(imputer._options.to_frame(table))
        steps = imputer._solve_steps(scaled, observed, imputer._loadings)
        answer = steps[:, :-1] @ imputer._loadings.T + steps[:, -1:]
        size = (steps[:, :-1] ** 2).sum() + (imputer._loadings**2).sum()
        return float((observed * (scaled - answer) ** 2).sum() + imputer._ridge * size)

    objectives = [objective(rounds) for rounds in (1, 2, 4, 8, 16)]
    assert objectives == sorted(objectives, reverse=True)


def test_a_step_without_readings_gets_the_means() -> None:
    table = with_holes(low_rank_table(80, 6, rank=1), 0.1)
    table.iloc[40] = np.nan
    filled = MatrixFactorizationImputer().fit_transform(table)
    np.testing.assert_allclose(filled.iloc[40], table.mean())


def test_a_sensor_that_never_reports_moves_with_the_others() -> None:
    table = low_rank_table(80, 6, rank=1)
    table["S0002"] = np.nan
    filled = MatrixFactorizationImputer().fit_transform(table)
    assert np.isfinite(filled["S0002"]).all()
    assert np.corrcoef(filled["S0002"], table.mean(axis=1))[0, 1] > 0.5


def test_a_sensor_that_never_changes_keeps_its_value() -> None:
    table = with_holes(low_rank_table(80, 6, rank=1), 0.1)
    table["S0001"] = table["S0001"].where(table["S0001"].isna(), 7.0)
    filled = MatrixFactorizationImputer().fit_transform(table)
    np.testing.assert_allclose(filled["S0001"], 7.0, rtol=1e-12)


def test_fifteen_hundred_sensors_are_filled() -> None:
    table = with_holes(low_rank_table(50, 1500, rank=3), 0.4)
    table.iloc[:, 700] = np.nan
    imputer = MatrixFactorizationImputer(rounds=2)
    frame = imputer._options.to_frame(table)
    imputer.fit_frame(frame, graph=None)  # type: ignore[arg-type]  # it is not looked at, and takes a while to build
    assert np.isfinite(imputer.impute_frame(frame)).all()


@pytest.mark.parametrize("wrong", [{"rank": 0}, {"rounds": 0}, {"penalty": -1.0}, {"penalty": float("nan")}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="must"):
        MatrixFactorizationImputer(**wrong)  # type: ignore[arg-type]
