"""The grid of uneven stamps: where its steps lie, and to which of them a reading goes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from casper.frame import SensorFrame, to_frame


def frame_at(times: pd.DatetimeIndex, freq: str) -> SensorFrame:
    return to_frame(pd.DataFrame({"a": np.arange(len(times)) + 0.5, "b": 1.0}, index=times), freq=freq)


@pytest.mark.parametrize("freq", ["D", "1h"])
@pytest.mark.parametrize("late", [pd.Timedelta("1min"), pd.Timedelta("-9min")])
def test_one_late_stamp_moves_alone(freq: str, late: pd.Timedelta) -> None:
    every = pd.date_range("2024-03-01 12:40", periods=60, freq=freq)
    frame = frame_at(pd.DatetimeIndex([*every[:20], every[20] + late, *every[21:]]), freq)
    assert frame.times.tolist() == every.tolist()
    assert frame.notes == (f"Stamps moved to the nearest step of {'1 day' if freq == 'D' else '01:00:00'}: 1, "
                           f"by at most {str(abs(late)).removeprefix('0 days ')}.",)  # fmt: skip


def test_a_reading_belongs_to_the_day_on_which_it_was_taken() -> None:
    times = pd.DatetimeIndex(["2024-06-14 12:00", "2024-06-15 17:30", "2024-06-16 08:10", "2024-06-18 23:50"])
    frame = frame_at(times, "D")
    assert frame.times.tolist() == pd.date_range("2024-06-14", periods=5, freq="D").tolist()
    np.testing.assert_array_equal(frame.values[:, 0], [0.5, 1.5, 2.5, np.nan, 3.5])
    assert "Stamps moved to the beginning of their step of 1 day: 4, by at most 23:50:00." in frame.notes


def test_a_day_is_the_mean_of_its_own_hours() -> None:
    hours = pd.date_range("2024-06-14 00:00", periods=72, freq="h")
    frame = frame_at(hours, "D")
    assert len(frame.times) == 3
    assert frame.values[:, 0].tolist() == [12.0, 36.0, 60.0]


def test_a_stray_reading_at_noon_stays_on_its_day_among_dates() -> None:
    days = pd.date_range("2024-06-01", periods=9, freq="D")
    frame = frame_at(days.delete(4).insert(4, days[4] + pd.Timedelta("14h")), "D")
    assert frame.times.tolist() == days.tolist()
    assert frame.observed.all()


def test_a_clock_that_runs_about_midnight_leaves_no_day_empty() -> None:
    minutes = np.resize([-4, 3, -1, 2, 0, 5], 30)
    days = pd.date_range("2024-06-01", periods=30, freq="D")
    frame = frame_at(days + pd.to_timedelta(minutes, unit="min"), "D")
    assert frame.times.tolist() == days.tolist()
    evenings = days + pd.to_timedelta(np.resize([-70, -20, -45], 30), unit="min")
    assert frame_at(evenings, "D").times[0] == pd.Timestamp("2024-05-31"), "always before midnight: the day before"


@pytest.mark.parametrize(("usual", "strays"), [("23:30", "00:20"), ("00:10", "23:50")])
def test_a_stray_stamp_over_midnight_stays_with_the_usual_time(usual: str, strays: str) -> None:
    days = pd.date_range(f"2024-06-01 {usual}", periods=20, freq="D")
    aside = pd.Timestamp(f"2024-06-{12 if usual > strays else 10} {strays}")
    frame = frame_at(days.delete(10).insert(10, aside), "D")
    assert frame.times.tolist() == days.tolist()
    assert frame.observed.all()


def test_weeks_are_counted_in_whole_days_about_their_usual_day() -> None:
    mondays = pd.date_range("2024-01-01", periods=30, freq="7D")
    taken = mondays + pd.to_timedelta(np.resize([9, 34, 15, -10], 30), unit="h")  # Monday, Tuesday and Sunday
    frame = frame_at(taken, "7D")
    assert frame.times.tolist() == mondays.tolist()
    assert frame.observed.all()
    daily = frame_at(pd.date_range("2024-01-01", periods=21, freq="D"), "7D")
    assert daily.values[:, 0].tolist() == [3.5, 10.5, 17.5]


def test_readings_near_half_past_lie_on_a_round_time() -> None:
    offsets = np.resize([29, 33, 31, 30, 27], 20)
    times = pd.date_range("2024-01-01", periods=20, freq="h") + pd.to_timedelta(offsets, unit="min")
    assert frame_at(times, "1h").times[0] == pd.Timestamp("2024-01-01 00:30")
