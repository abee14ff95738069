"""Rows of a table in the order of their times: unsorted ones are sorted, copies of a row are used once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from casper.frame.grid import ZONE_OPTION

# Clocks go back in spring or autumn of either hemisphere, in the first hours of a day.
MONTHS_OF_CLOCK_CHANGES = (3, 4, 10, 11)
LAST_HOUR_OF_CLOCK_CHANGES = 3


@dataclass(frozen=True)
class RowOrder:
    """kept: the rows (K of R) that are used, ascending in time; stands_for: (R,) which of these each row is."""

    kept: NDArray[np.int64]
    stands_for: NDArray[np.int64]

    @property
    def as_they_came(self) -> bool:
        return len(self.kept) == len(self.stands_for) and bool((np.diff(self.kept) == 1).all())


def rows_in_order(
    stamps: pd.DatetimeIndex,
    values: NDArray[np.float64],
    sensors: Sequence[str],
    problems: list[str],
    notes: list[str],
) -> RowOrder:
    """Sort the rows by time. Of rows with the same stamp the first is used, which is a problem if readings differ.

    values: (R, N), NaN where there is no reading; two NaN are equal.
    """
    ticks = stamps.asi8
    steps = np.diff(ticks)
    every_row = np.arange(len(ticks), dtype=np.int64)
    if (steps > 0).all():
        return RowOrder(every_row, every_row)
    order = np.argsort(ticks, kind="stable").astype(np.int64)
    follows = np.concatenate([[False], np.diff(ticks[order]) == 0])  # the same time as the row before
    copies, originals = order[follows], order[np.flatnonzero(follows) - 1]
    differs = np.zeros(len(copies), dtype=bool)
    for position in range(values.shape[1]):  # column by column: a table that is there twice is compared in little space
        one, other = values[copies, position], values[originals, position]
        differs |= (one != other) & ~(np.isnan(one) & np.isnan(other))
    _tell_conflicts(stamps, values, sensors, copies[differs], originals[differs], problems)
    if not differs.any():
        _note_copies(stamps[copies], notes)
        _note_order(stamps, steps, notes)
    stands_for = np.empty(len(ticks), dtype=np.int64)
    stands_for[order] = np.cumsum(~follows) - 1
    return RowOrder(order[~follows], stands_for)


def clocks_may_repeat(stamp: pd.Timestamp) -> bool:
    """Whether a stamp without a zone may lie in the hour that clocks repeat when they go back."""
    return stamp.tz is None and stamp.month in MONTHS_OF_CLOCK_CHANGES and stamp.hour <= LAST_HOUR_OF_CLOCK_CHANGES


def _tell_conflicts(
    stamps: pd.DatetimeIndex,
    values: NDArray[np.float64],
    sensors: Sequence[str],
    rows: NDArray[np.int64],
    earlier: NDArray[np.int64],
    problems: list[str],
) -> None:
    """Stamps with several rows that differ; those that the clocks may have repeated are told apart from the others."""
    times = stamps[rows]
    repeated_by_clocks = np.array([clocks_may_repeat(time) for time in times], dtype=bool)
    for group, remedy in (
        (~repeated_by_clocks, "keep one row per time"),
        (
            repeated_by_clocks,
            f"keep one row per time, or, if it is the hour that clocks repeat in autumn, pass {ZONE_OPTION}",
        ),
    ):
        if not group.any():
            continue
        row, before = int(rows[group][0]), int(earlier[group][0])
        one, other = values[before], values[row]
        column = int(np.argmax((one != other) & ~(np.isnan(one) & np.isnan(other))))
        readings = " and ".join(
            "a hole" if np.isnan(number) else f"{number:g}" for number in (one[column], other[column])
        )
        others = len(times[group].unique()) - 1
        more = "" if others == 0 else ", as does one other stamp" if others == 1 else f", as do {others} other stamps"
        problems.append(
            f"time stamp {stamps[row]} occurs more than once with different readings "
            f"({sensors[column]!r}: {readings}){more}: {remedy}"
        )


def _note_copies(copies: pd.DatetimeIndex, notes: list[str]) -> None:
    if len(copies) == 1:
        notes.append(f"The row at {copies[0]} is there twice, with the same readings: it is used once.")
    elif len(copies):
        notes.append(f"{len(copies)} rows are exact copies of another, such as the one at {copies[0]}: used once each.")


def _note_order(stamps: pd.DatetimeIndex, steps: NDArray[np.int64], notes: list[str]) -> None:
    backwards = np.flatnonzero(steps < 0)
    if len(backwards):
        place = f"{stamps[backwards[0] + 1]} comes after {stamps[backwards[0]]}"
        notes.append(f"The rows are not in the order of time ({place}): they are read in order and keep their places.")
