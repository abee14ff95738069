from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from casper.baselines.mean import MeanImputer
from casper.imputer import Casper
from casper.simulate import Simulation


def test_one_filling_gives_what_impute_gives_in_every_shape(
    six_sensors: Simulation, tiny_settings: dict[str, Any]
) -> None:
    model = Casper(device="cpu", **{**tiny_settings, "epochs": 1}, validation_share=0.2).fit(six_sensors.table)
    table = six_sensors.table.drop(index=six_sensors.table.index[40:43])[["S5", "S1", "S6", "S2", "S4", "S3"]]
    filling = model.fill(model.to_frame(table), intervals=(0.5, 0.9))
    for all_steps in (False, True):
        pd.testing.assert_frame_equal(filling.table(all_steps=all_steps), model.impute(table, all_steps=all_steps))
        mine, usual = (
            filling.with_bars(all_steps=all_steps),
            model.impute(table, intervals=(0.5, 0.9), all_steps=all_steps),
        )
        for share in (0.5, 0.9):
            pd.testing.assert_frame_equal(mine.lower[share], usual.lower[share])
            pd.testing.assert_frame_equal(mine.upper[share], usual.upper[share])
        pd.testing.assert_frame_equal(mine.flagged, usual.flagged)
        assert mine.flagged_sensors == usual.flagged_sensors
    whole, on_grid = filling.with_bars(all_steps=True), filling.on_grid()
    np.testing.assert_array_equal(on_grid.table, whole.table)
    np.testing.assert_array_equal(on_grid.lower[0.9], whole.lower[0.9])
    np.testing.assert_array_equal(on_grid.observed, whole.observed)


def test_without_error_bars_only_silent_sensors_are_flagged(six_sensors: Simulation) -> None:
    table = six_sensors.table.assign(S3=np.nan)
    model = MeanImputer().fit(table)
    filled = model.fill(model.to_frame(table)).on_grid()
    assert filled.shares == ()
    assert list(filled.flagged_sensors) == ["S3"]
    assert filled.flagged["S3"].all()
    assert not filled.flagged.drop(columns="S3").to_numpy().any()


def test_a_table_is_read_as_the_fitted_one_was(six_sensors: Simulation) -> None:
    model = MeanImputer().fit(six_sensors.table.fillna(-999), missing_values=(-999,))
    again = six_sensors.table.fillna(-999)
    assert model.to_frame(again).observed.sum() == six_sensors.table.notna().to_numpy().sum()
    assert model.to_frame(again, missing_values=()).observed.all()
    with pytest.raises(ValueError, match="other sensors"):
        model.fill(model.to_frame(six_sensors.table.rename(columns={"S1": "X"})))
