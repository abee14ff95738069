"""Numbers that stand for holes, such as -999: found by lying apart from all readings of the sensors that have them.

Only numbers that people are known to write for a hole are looked at, and zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_NINES = (99.0, 99.9, 99.99, 999.0, 999.9, 999.99, 9999.0, 9999.9, 99999.0, 999999.0)
SENTINELS = (-1.0, -9.0, *(-number for number in _NINES), -6999.0, -7999.0, -8888.0, -32768.0, *_NINES)
SEVERAL = 3  # as often a number must be there that may be a reading now and then, such as 0 or 999
_NEVER_A_READING = 9999.0  # so large a number is told even if it is there once, beside readings ten times as small
_LEAST_OF_STATISTICS = 99.0  # smaller ones are often readings of a cold day
_ENOUGH_READINGS = 10  # to know how far readings usually reach
_OF_RANGE = 0.5  # of all other readings must lie between them and a sentinel, with nothing in it
_OF_ITSELF = 0.1  # and of the sentinel's own size: 99.9 is not far from 97 % of humidity, nor 999 from 1009 hPa
_LOW_RANK = 0.25  # readings beside a natural zero, such as those of the first snow, are among the lowest


@dataclass(frozen=True)
class StandIn:
    """value: a number that stands for holes in a sensor (column) at these steps (rows).
    elsewhere: other sensors have it among their readings."""

    value: float
    column: int
    rows: NDArray[np.int64]
    elsewhere: bool


@dataclass(frozen=True)
class _Readings:
    """Of a sensor without the numbers in question."""

    count: int
    lowest: float
    highest: float

    @classmethod
    def of(cls, readings: NDArray[np.float64]) -> _Readings:
        return cls(len(readings), float(readings.min()), float(readings.max()))


def find_stand_ins(values: NDArray[np.float64]) -> list[StandIn]:
    """All of a table (T, N) with NaN for holes: sensor by sensor, in each zero last."""
    candidate = np.isin(values, [*SENTINELS, *(float(np.float32(number)) for number in SENTINELS)])
    found = list(_nines(values, candidate))
    taken = np.zeros_like(candidate)
    for one in found:
        taken[one.rows, one.column] = True
    found += _zeros(values, taken)
    return sorted(found, key=lambda one: one.column)  # stable: the order of SENTINELS stays


def _nines(values: NDArray[np.float64], candidate: NDArray[np.bool_]) -> Iterator[StandIn]:
    rows_of: dict[float, dict[int, NDArray[np.int64]]] = {number: {} for number in SENTINELS}
    readings: dict[int, _Readings] = {}
    for column in np.flatnonzero(candidate.any(axis=0)).tolist():
        series = np.ascontiguousarray(values[:, column])
        others = series[~candidate[:, column] & ~np.isnan(series)]
        if len(others) == 0:
            continue
        readings[column] = _Readings.of(others)
        there = np.unique(series[candidate[:, column]])
        for number in SENTINELS:
            # A table of float32 holds the number nearest to -999.9 instead.
            same = [one for one in (number, float(np.float32(number))) if one in there]
            if same:
                rows_of[number][column] = np.flatnonzero(np.isin(series, same))
    for number, places in rows_of.items():
        alone = {column for column in places if _cannot_be_read(number, readings[column])}
        repeated = {column for column in places if _far_from(number, readings[column])} | alone
        often = sum(len(places[column]) for column in repeated) >= SEVERAL
        if 0 < number < _NEVER_A_READING:
            alone = set[int]()
        stand_ins = repeated if often else alone
        for column in sorted(stand_ins):
            yield StandIn(number, column, places[column], elsewhere=len(repeated) < len(places))


def _cannot_be_read(sentinel: float, others: _Readings) -> bool:
    """On the other side of zero, or ten times as large."""
    if sentinel < 0 <= others.lowest:
        return True
    return sentinel != -1 and abs(sentinel) > 10 * max(abs(others.lowest), abs(others.highest))


def _far_from(sentinel: float, others: _Readings) -> bool:
    """Outside of all other readings by much of what they span."""
    span = others.highest - others.lowest
    if abs(sentinel) < _LEAST_OF_STATISTICS or others.count < _ENOUGH_READINGS or span == 0:
        return False
    distance = max(others.lowest - sentinel, sentinel - others.highest)
    return distance > max(_OF_RANGE * span, _OF_ITSELF * abs(sentinel))


def _zeros(values: NDArray[np.float64], taken: NDArray[np.bool_]) -> Iterator[StandIn]:
    zero = values == 0
    columns = np.flatnonzero(zero.sum(axis=0) >= SEVERAL).tolist()
    apart: list[int] = []
    for column in columns:
        others = values[~zero[:, column] & ~taken[:, column] & ~np.isnan(values[:, column]), column]
        if _zero_stands_apart(others) and not _zero_is_floor(values[~taken[:, column], column]):
            apart.append(column)
    natural = bool(apart) and any(
        _zero_is_floor(values[~taken[:, column], column]) for column in columns if column not in apart
    )
    for column in apart:
        yield StandIn(0.0, column, np.flatnonzero(zero[:, column]), elsewhere=natural)


def _zero_stands_apart(others: NDArray[np.float64]) -> bool:
    """Whether 0 lies far below all other readings, as among the speeds of cars, and is not just the next lower step.

    Rain and counts have zeros too, but there the smallest reading is one step of the instrument.
    """
    sizes = np.abs(others)
    if len(sizes) == 0 or sizes.min() <= np.median(sizes) / 4:
        return False
    steps = np.diff(np.unique(sizes))
    return len(steps) > 0 and bool(sizes.min() > 3 * np.median(steps))


def _zero_is_floor(series: NDArray[np.float64]) -> bool:
    """Whether readings come down to zero and rise from it, as those of snow do, instead of breaking off."""
    sizes = np.abs(series[~np.isnan(series)])
    zero = sizes == 0
    beside = ~zero & (np.append(zero[1:], False) | np.append(False, zero[:-1]))
    if not beside.any():
        return False
    ranks = np.searchsorted(np.sort(sizes[~zero]), sizes[beside]) / (~zero).sum()
    return bool(ranks.mean() < _LOW_RANK)
