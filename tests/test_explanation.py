"""What an explanation says besides attention: the value itself, and how much comes from whom."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from casper import Casper
from casper.explanation import Explanation
from casper.simulate import Simulation

ROW = 70


@pytest.fixture(scope="module")
def explained(tiny_casper: Casper, six_sensors: Simulation) -> Explanation:
    return tiny_casper.explain(six_sensors.table, sensor="S2", time=six_sensors.table.index[ROW])


def test_the_estimate_is_what_the_model_fills_in_if_the_reading_is_hidden(
    tiny_casper: Casper, six_sensors: Simulation, explained: Explanation
) -> None:
    window = six_sensors.table.iloc[ROW - 6 : ROW + 6].copy()  # a table of one window is filled from that window
    assert explained.measured == window.loc[explained.time, "S2"]
    window.loc[explained.time, "S2"] = np.nan
    filled = tiny_casper.impute(window)
    assert explained.estimate == pytest.approx(filled.loc[explained.time, "S2"], rel=1e-4)
    assert explained.estimate != explained.measured


def test_a_hole_has_no_measured_value(tiny_casper: Casper, six_sensors: Simulation) -> None:
    time = six_sensors.table.index[six_sensors.table["S2"].isna()][3]
    told = tiny_casper.explain(six_sensors.table, sensor="S2", time=time)
    assert told.measured is None
    assert np.isfinite(told.estimate)


def test_the_windows_readings_come_with_it_its_own_first(six_sensors: Simulation, explained: Explanation) -> None:
    readings = explained.readings
    assert readings.index[0] == "S2"
    assert set(readings.index) == {"S2", *explained.weight.index}
    np.testing.assert_array_equal(readings.T, six_sensors.table.loc[readings.columns, readings.index])


def test_shares_add_up_the_steps_of_each_source(explained: Explanation) -> None:
    shares = explained.shares()
    assert shares["weight"].sum() == pytest.approx(1, abs=1e-5)
    assert shares["weight"].is_monotonic_decreasing
    first = explained.causes().query("source == @shares.source[0]")
    assert shares["weight"][0] == pytest.approx(first["weight"].sum())
    assert shares["lag"][0] == first["lag"].iloc[0], "that of its heaviest step"


def test_a_time_without_offset_is_read_as_the_table_writes_it(
    tiny_casper: Casper, six_sensors: Simulation, explained: Explanation
) -> None:
    in_berlin = Casper.__new__(Casper)
    vars(in_berlin).update(vars(tiny_casper))
    in_berlin._options = replace(tiny_casper._options, timezone="Europe/Berlin")
    told = in_berlin.explain(six_sensors.table.tz_localize("UTC"), sensor="S2", time=str(explained.time))
    assert told.time == explained.time.tz_localize("UTC")
    assert told.measured == explained.measured
