"""Numbers that stand for holes are told from readings by where they lie; weather that looks like them is left alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from casper.check.sentinels import find_stand_ins

STEPS, SENSORS = 1000, 5
Table = NDArray[np.float64]


def air(seed: int = 0) -> Table:
    """Degrees Celsius of some years, about -30 to 35."""
    season = -13 * np.cos(np.linspace(0, 6 * np.pi, STEPS))[:, None]
    return (season + np.random.default_rng(seed).normal(4, 5, (STEPS, SENSORS))).clip(-30, 35).round(1)


def with_holes(table: Table, number: float, often: int = 3) -> Table:
    """Some steps of every sensor but the first."""
    holes = np.random.default_rng(1).choice(STEPS, often, replace=False)
    table = table.copy()
    table[holes[:, None], np.arange(1, SENSORS)] = number
    return table


def found(table: Table) -> dict[float, int]:
    """How often each number is taken for a hole."""
    counts: dict[float, int] = {}
    for one in find_stand_ins(table):
        assert (table[one.rows, one.column] == one.value).all()
        counts[one.value] = counts.get(one.value, 0) + len(one.rows)
    return counts


@pytest.mark.parametrize("number", [-99.9, -99.0, 999.0, 99.9, -999.0, -9999.0, -6999.0, 9999.9])
def test_holes_among_degrees_below_and_above_zero_are_found(number: float) -> None:
    assert found(with_holes(air(), number)) == {number: 12}


@pytest.mark.parametrize("number", [9999.0, 999.9, -99.0, 99999.0])
def test_holes_among_pressures_are_found(number: float) -> None:
    pressures = (1013 + air() / 3).round(1) + 10  # never below 1000
    wanted = {} if number == 999.9 else {number: 12}
    assert found(with_holes(pressures, number)) == wanted


def test_a_number_of_the_usual_ones_that_is_there_but_twice_may_be_a_reading() -> None:
    table = air()
    table[5, 0] = table[9, 1] = 99.9
    assert found(table) == {}
    table[11, 2] = 99.9
    assert found(table) == {99.9: 3}


def test_high_humidity_is_no_hole() -> None:
    humidity = (100 - np.abs(np.random.default_rng(0).normal(0, 12, (STEPS, SENSORS)))).round(1)
    humidity[::7] = 99.9
    humidity[1::7] = 99.0
    assert found(humidity) == {}
    fog = np.random.default_rng(0).uniform(97, 98, (STEPS, SENSORS)).round(1)
    assert found(with_holes(fog, 99.9, 50)) == {}, "beyond all others, but hardly"


def test_the_largest_of_readings_that_reach_far_is_no_hole() -> None:
    dust = np.random.default_rng(0).uniform(0, 700, (STEPS, SENSORS)).round()
    assert found(with_holes(dust, 999.0)) == {}
    assert found(with_holes(dust / 2, 999.0)) == {999.0: 12}


def test_what_is_a_reading_of_another_sensor_cannot_be_taken_out_of_the_whole_table() -> None:
    table = with_holes(air(), 99.9)
    assert not any(one.elsewhere for one in find_stand_ins(table))
    table[:, 0] = np.random.default_rng(0).uniform(60, 100, STEPS).round(1)
    table[::50, 0] = 99.9
    assert [one.elsewhere for one in find_stand_ins(table)] == [True] * (SENSORS - 1)


def test_a_sensor_that_sends_nothing_else_is_no_sensor_that_reads_it() -> None:
    table = with_holes(air(), -99.9)
    table[:, 0] = -99.9
    assert not any(one.elsewhere for one in find_stand_ins(table))


def test_a_table_of_float32_holds_another_number() -> None:
    stored = with_holes(air(), -99.9).astype(np.float32).astype(np.float64)
    assert {one.value for one in find_stand_ins(stored)} == {-99.9}
    assert sum(len(one.rows) for one in find_stand_ins(stored)) == 12


# ---------------------------------------------------------------------- zeros


def speeds(seed: int = 0) -> Table:
    return np.random.default_rng(seed).normal(60, 6, (STEPS, SENSORS)).round(2)


def snow(start: int, seed: int = 0) -> NDArray[np.float64]:
    """Depth in metres: nothing for long, then a first fall that lies, and grows."""
    fresh = np.random.default_rng(seed).exponential(0.0005, STEPS - start)
    return np.concatenate([np.zeros(start), 0.6 + np.cumsum(fresh)]).round(2)


def test_zeros_among_speeds_stand_for_holes() -> None:
    assert found(with_holes(speeds(), 0.0, 30)) == {0.0: 120}


def test_months_without_snow_are_no_holes() -> None:
    depths = np.column_stack([snow(200 + 10 * number, number) for number in range(SENSORS)])
    assert found(depths) == {}
    outages = with_holes(depths, 0.0, 60)
    assert found(outages)[0.0] > 0, "but where readings break off, they are"


def test_zeros_that_are_holes_are_not_taken_out_where_others_have_true_ones() -> None:
    mixed = with_holes(speeds(), 0.0, 30)
    mixed[:, 0] = np.random.default_rng(0).poisson(0.8, STEPS)
    assert all(one.elsewhere for one in find_stand_ins(mixed))
    assert found(mixed) == {0.0: 120}


# ---------------------------------------------------------------------- published readings


def test_published_readings_raise_no_false_alarm(shared_data: Path) -> None:
    assert find_stand_ins(pd.read_parquet(shared_data / "aqi36.parquet").to_numpy(np.float64)) == []
    of_traffic = find_stand_ins(pd.read_parquet(shared_data / "metr_la.parquet").to_numpy(np.float64))
    assert {(one.value, one.elsewhere) for one in of_traffic} == {(0.0, False)}
    assert len(of_traffic) == 8
