"""Tables of months, quarters and years: even on the calendar, though not in seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from casper.frame import to_frame
from casper.frame.grid import step_text
from casper.frame.months import MONTH, months_of
from casper.report.words import duration, lag_words, span
from casper.windows import choose_periods


def table_at(times: pd.DatetimeIndex) -> pd.DataFrame:
    return pd.DataFrame({"a": np.arange(len(times)) + 0.5, "b": 1.0}, index=times)


@given(
    first=st.dates(pd.Timestamp("1900-01-01").date(), pd.Timestamp("2100-01-01").date()),
    months=st.sampled_from([1, 2, 3, 6, 12]),
    missing=st.sets(st.integers(1, 28), max_size=9),
)
def test_stamps_a_calendar_step_apart_are_the_grid_and_come_back(first: Any, months: int, missing: set[int]) -> None:
    every = pd.DatetimeIndex([pd.Timestamp(first) + pd.DateOffset(months=months * number) for number in range(30)])
    rows = [number for number in range(30) if number not in missing]
    days = np.diff(every[rows].to_numpy()) // np.timedelta64(1, "D")
    assume((days % np.bincount(days).argmax()).any())  # some stretches of years are even in days, too
    frame = to_frame(table_at(every[rows]))
    assert months_of(frame.step) == months
    assert frame.times.tolist() == every.tolist()
    assert (np.flatnonzero(frame.observed[:, 0]) == rows).all()
    pd.testing.assert_frame_equal(frame.restore(frame.values), table_at(every[rows]))
    assert [frame.position(time) for time in every] == list(range(30))


@pytest.mark.parametrize(
    ("freq", "start", "months"), [("MS", "2023-11", 1), ("ME", "2023-11", 1), ("QE", "2023-01", 3), ("YS", "2001", 12)]
)
def test_beginnings_and_ends_of_months_are_recognised(freq: str, start: str, months: int) -> None:
    times = pd.date_range(start, periods=12, freq=freq)
    frame = to_frame(table_at(times))
    assert frame.step == months * MONTH
    assert frame.times.tolist() == times.tolist()
    assert frame.notes == ()


def test_months_of_a_zone_begin_at_local_midnight() -> None:
    times = pd.date_range("2024-01-01", periods=12, freq="MS", tz="Europe/Berlin")
    assert to_frame(table_at(times)).times.tolist() == times.tolist()


def test_uneven_stamps_are_put_into_their_months_when_asked_to() -> None:
    times = pd.to_datetime(["2020-01-03", "2020-02-11", "2020-03-02", "2020-03-29", "2020-05-20"])
    with pytest.raises(ValueError, match="pass --freq MS"):
        to_frame(table_at(times))
    frame = to_frame(table_at(times), freq="MS")
    assert to_frame(table_at(times), freq="M").times.equals(frame.times), "as pandas called it once"
    assert frame.times.tolist() == pd.date_range("2020-01-01", periods=5, freq="MS").tolist()
    np.testing.assert_array_equal(frame.values[:, 0], [0.5, 1.5, 3.0, np.nan, 4.5])
    assert frame.position("2020-03-29") == frame.position("2020-03") == 2
    assert "moved to the beginning of their step of 1 month" in frame.notes[0]
    with pytest.raises(ValueError, match="2020-06-01 is not in the table"):
        frame.position("2020-06-01")


def test_days_are_pooled_into_quarters_of_the_calendar() -> None:
    times = pd.date_range("2020-02-10", "2020-12-31", freq="D")
    frame = to_frame(table_at(times), freq="QS")
    assert frame.times.tolist() == pd.date_range("2020-01-01", periods=4, freq="QS").tolist()


def test_a_wrong_stamp_among_months_is_pointed_at() -> None:
    times = [*pd.date_range("2020-01-01", periods=6, freq="MS"), pd.Timestamp("2120-01-01")]
    with pytest.raises(ValueError, match=r"7 rows .* would become 1201 steps of 1 month: look for a wrong stamp"):
        to_frame(table_at(pd.DatetimeIndex(times)))


def test_thirty_days_are_no_month() -> None:
    frame = to_frame(table_at(pd.date_range("2020-01-01", periods=9, freq="30D")))
    assert months_of(frame.step) is None
    assert step_text(frame.step) == "30 days"


def test_months_are_told_as_such() -> None:
    assert [step_text(count * MONTH) for count in (1, 3, 12, 24)] == ["1 month", "3 months", "1 year", "2 years"]
    assert [duration(MONTH, count) for count in (1, 2, 18, 24, 25, 54, 0.5)] == [
        "1 month", "2 months", "18 months", "2 years", "25 months", "4.5 years", "0.5 months",
    ]  # fmt: skip
    assert span(MONTH, 1, 6) == "1 to 6 months"
    assert lag_words(-1, MONTH) == "1 month later"


def test_months_and_days_show_the_year_in_several_waves() -> None:
    year = 8766.0
    assert choose_periods(MONTH, 120, harmonics=4) == (year / 2, year / 3, year / 4, year)
    assert choose_periods(MONTH, 120) == (year,)
    assert choose_periods(pd.Timedelta(days=1), 1000, harmonics=2) == (year / 2, 168.0, year)
    assert choose_periods(pd.Timedelta(hours=1), 1000, harmonics=2) == (12.0, 24.0, 168.0)
    assert choose_periods(12 * MONTH, 50) == (24.0,), "years have no cycle that could be told"
