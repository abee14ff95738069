"""The readings that a page carries for its series browser: whole numbers, as many sensors as fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casper.filled import Filled
from casper.frame import SensorFrame
from casper.report.runs import runs

MOST_NUMBERS = 600_000
"""Readings and ends of intervals in a page: two megabytes, or less."""
DIGITS = 4


def shown_series(frame: SensorFrame, filled: Filled, *, wanted: Sequence[str] = ()) -> dict[str, Any]:
    """The series of the wanted sensors, and then of those with most holes, until the page is full.

    first: the step they begin with, later than 0 where not even one sensor would fit. Of every sensor: `values`, whole
    numbers that are to be divided by 10 ** `decimals`; `holes` and `flagged`, runs of cells (start, length); `lower`
    and `upper`, for every share the ends of the intervals, hole after hole.
    """
    bounds = 2 * len(filled.shares)
    first = max(0, len(frame.times) - MOST_NUMBERS // (1 + bounds))
    holes = ~frame.observed[first:]
    numbers = len(holes) + bounds * holes.sum(axis=0)
    order = _order(holes, [frame.sensors.index(name) for name in wanted])
    fitting = max(1, int(np.searchsorted(np.cumsum(numbers[order]), MOST_NUMBERS, side="right")))
    rows = slice(first, None)
    complete, flagged = filled.table.to_numpy(dtype=np.float64)[rows], filled.flagged.to_numpy(dtype=bool)[rows]
    ends = {
        f"{share:g}": (filled.lower[share].to_numpy()[rows], filled.upper[share].to_numpy()[rows])
        for share in filled.shares
    }
    shown = sorted(int(number) for number in order[:fitting])
    return {
        "first": first,
        "shares": [f"{share:g}" for share in filled.shares],
        "sensors": [
            _sensor(number, complete[:, number], holes[:, number], flagged[:, number], _of(ends, number))
            for number in shown
        ],
    }


def _order(holes: NDArray[np.bool_], wanted: Sequence[int]) -> NDArray[np.int64]:
    by_holes = np.argsort(-holes.sum(axis=0), kind="stable")
    return np.array(list(dict.fromkeys([*wanted, *by_holes.tolist()])), dtype=np.int64)


def _of(
    ends: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]], number: int
) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    return {share: (lower[:, number], upper[:, number]) for share, (lower, upper) in ends.items()}


def _sensor(
    number: int,
    values: NDArray[np.float64],
    hole: NDArray[np.bool_],
    flagged: NDArray[np.bool_],
    ends: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> dict[str, Any]:
    decimals = _decimals(values)
    return {
        "sensor": number,
        "decimals": decimals,
        "values": _whole(values, decimals),
        "holes": runs(hole).tolist(),
        "flagged": runs(flagged & hole).tolist(),
        "lower": {share: _whole(lower[hole], decimals) for share, (lower, _) in ends.items()},
        "upper": {share: _whole(upper[hole], decimals) for share, (_, upper) in ends.items()},
    }


def _decimals(values: NDArray[np.float64]) -> int:
    """So many that usual readings keep four digits; a single peak must not make all others coarse."""
    size = float(np.quantile(np.abs(values), 0.9))
    if size == 0:
        size = float(np.abs(values).max()) or 1.0
    return DIGITS - 1 - int(np.floor(np.log10(size)))


def _whole(values: NDArray[np.float64], decimals: int) -> list[int]:
    return [int(value) for value in np.rint(values * 10.0**decimals)]
