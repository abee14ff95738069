"""Rows that are not in order or there twice are used all the same, and the caller's table comes back as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from casper.errors import InputError
from casper.filled import Filled
from casper.frame import SensorFrame, examine, to_frame


def table_of(*rows: tuple[str, float, float]) -> pd.DataFrame:
    index = pd.DatetimeIndex([row[0] for row in rows])
    return pd.DataFrame([row[1:] for row in rows], index=index, columns=["a", "b"])


def hours(*numbers: int) -> pd.DataFrame:
    """A row for each hour of a day, with a hole in the second one."""
    table = pd.DataFrame({"a": np.arange(6.0), "b": 10.5}, index=pd.date_range("2024-01-01", periods=6, freq="h"))
    table.iloc[1, 0] = np.nan
    return table.iloc[list(numbers)]


def filled(frame: SensorFrame) -> np.ndarray[Any, Any]:
    return np.where(frame.observed, frame.values, 7.25)


def problem(table: pd.DataFrame, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        to_frame(table, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ((0, 1, 2, 2, 3), ["The row at 2024-01-01 02:00:00 is there twice, with the same readings: it is used once."]),
        ((0, 1, 1, 1, 2), ["2 rows are exact copies of another, such as the one at 2024-01-01 01:00:00"]),
        ((3, 1, 2, 0), ["not in the order of time (2024-01-01 01:00:00 comes after 2024-01-01 03:00:00)"]),
        ((5, 4, 3, 2, 1, 0), ["not in the order of time"]),
        ((2, 1, 0, 1, 3), ["The row at 2024-01-01 01:00:00 is there twice", "not in the order of time"]),
    ],
)
def test_copies_and_unsorted_rows_are_noted_and_come_back_where_they_stood(rows: Any, words: list[str]) -> None:
    table = hours(*rows)
    untouched = table.copy(deep=True)
    frame = to_frame(table)
    assert frame.times.equals(hours(*sorted(set(rows))).index)
    np.testing.assert_array_equal(frame.values, hours(*sorted(set(rows))).to_numpy())
    assert len(frame.notes) == len(words)
    for note, expected in zip(frame.notes, words, strict=True):
        assert expected in note
    restored = frame.restore(filled(frame))
    pd.testing.assert_frame_equal(restored, untouched.fillna(7.25))
    pd.testing.assert_frame_equal(table, untouched)
    assert frame.hole_count() == rows.count(1)


def test_a_time_is_found_in_an_unsorted_table_and_cells_are_hidden_there() -> None:
    frame = to_frame(hours(3, 1, 2, 0))
    assert frame.position("2024-01-01 02:00") == 2
    hidden = np.zeros((4, 2), dtype=bool)
    hidden[3, 1] = True
    restored = frame.hide(hidden).restore(np.full((4, 2), 7.25))
    assert restored["b"].tolist() == [7.25, 10.5, 10.5, 10.5]


def test_all_steps_are_added_even_if_there_are_as_many_rows_as_steps() -> None:
    frame = to_frame(hours(0, 2, 2, 3))
    restored = frame.restore(filled(frame), all_steps=True)
    assert restored.index.equals(hours(0, 1, 2, 3).index)
    assert frame.holes(all_steps=True).tolist() == [[False] * 2, [True] * 2, [False] * 2, [False] * 2]
    assert frame.hole_count(all_steps=True) == 2


def test_an_unsorted_table_that_has_all_steps_keeps_its_order() -> None:
    frame = to_frame(hours(3, 1, 2, 0))
    restored = frame.restore(filled(frame), all_steps=True)
    assert restored.index.equals(hours(3, 1, 2, 0).index)
    assert frame.holes(all_steps=True)[:, 0].tolist() == [False, True, False, False]


@pytest.mark.parametrize(("other", "readings"), [(5.0, "3 and 5"), (np.nan, "3 and a hole")])
def test_rows_of_one_time_with_different_readings_are_refused_without_talk_of_clocks(
    other: float, readings: str
) -> None:
    rows = [("2024-01-01 00:00", 1.0, 2.0), ("2024-01-01 01:00", 3.0, 4.0), ("2024-01-01 01:00", other, 4.0)]
    told = problem(table_of(*rows))
    assert f"2024-01-01 01:00:00 occurs more than once with different readings ('a': {readings}): keep one" in told
    assert "clocks" not in told


@pytest.mark.parametrize(
    ("stamp", "said"),
    [("2024-10-27 02:00", True), ("2024-04-07 02:00", True), ("2024-10-27 04:00", False), ("2024-07-01 02:00", False)],
)
def test_only_stamps_that_clocks_may_repeat_are_told_of_clocks(stamp: str, *, said: bool) -> None:
    rows = [("2024-01-01 00:00", 1.0, 2.0), (stamp, 3.0, 4.0), (stamp, 5.0, 4.0)]
    assert ("the hour that clocks repeat" in problem(table_of(*rows))) == said
    assert "clocks" not in problem(table_of(*rows).tz_localize("UTC"))


def test_other_conflicts_are_told_beside_those_of_the_clocks() -> None:
    twice = [(f"2024-{day} 02:00", value, 1.0) for day in ("01-05", "01-06", "01-07", "10-27") for value in (1.0, 2.0)]
    told = problem(table_of(*twice))
    assert "2024-01-05 02:00:00 occurs more than once with different readings ('a': 1 and 2), as do 2 other" in told
    assert "2024-10-27 02:00:00 occurs more than once" in told


def test_the_repeated_hour_is_told_apart_in_a_table_with_the_newest_row_on_top() -> None:
    clocks = ("01:30", "02:00", "02:30", "02:00", "02:30", "03:00")
    rows = [(f"2024-10-27 {clock}", float(number), 1.0) for number, clock in enumerate(clocks)]
    frame = to_frame(table_of(*rows[::-1]), timezone="Europe/Berlin")
    assert frame.values[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert frame.restore(frame.values)["a"].tolist() == [5, 4, 3, 2, 1, 0]


def test_a_table_with_problems_is_read_as_far_as_possible() -> None:
    rows = [("2024-01-01 00:00", 1.0, 2.0), ("2024-01-01 01:00", np.inf, 4.0), ("2024-01-01 01:00", 5.0, 4.5)]
    frame, problems = examine(table_of(*rows, ("2024-01-01 07:12", 5.0, 4.5), ("2024-01-01 07:13", 5.0, 4.5)))
    assert len(problems) == 3
    assert frame is not None
    np.testing.assert_array_equal(frame.values[:, 0], [1.0, np.nan, 5.0, 5.0])
    np.testing.assert_array_equal(frame.values[:, 1], [2.0, 4.0, 4.5, 4.5])


def test_unsorted_rows_are_drawn_in_the_order_of_time() -> None:
    table = hours(3, 1, 2, 0).fillna(7.25)
    seen = table == table
    drawn = Filled(table, seen, {}, {}, ~seen, {}).plot("a", start="2024-01-01 00:30").lines[1].get_ydata()
    assert np.asarray(drawn).tolist() == [7.25, 2.0, 3.0]
