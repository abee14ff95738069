"""A sensor whose readings become many times as large, or as small, from one reading on: often a change of units.

The first snow, a season and a flood look similar. But zeros become fewer with them, the readings before are but a few
steps of the instrument, and the other sensors of the network see them, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_BLOCKS = 200  # the series is cut into so many: their largest readings know neither day nor night, neither rain nor sun
_SMALLEST_SHARE = 0.05  # of the readings must lie on either side
_FEWEST = 10  # blocks on either side
_AT_ONCE = 5  # readings right before and after that must differ, too: seasons and floods come slowly
_WAY_BACK = 0.3  # of the jump; what returns so far in the readings after it was a flood, not a change of units
_FACTOR = np.log(7.0)  # between the medians; a factor of 10 is seldom exactly that among noise
_APART = np.log(3.0)  # between nearly all blocks of one side and nearly all of the other
_MORE_THAN_WEATHER = np.log(30.0)  # degrees Celsius, being around zero, are easily ten times as large as others
_ZEROS, _FEWER_ZEROS = 0.05, 0.2  # a share of zeros on one side, and the part of it that must be on the other, too
_STEPS_OF_INSTRUMENT = 5  # the lower level is above so many
_SEEN_AROUND = 0.5  # of a jump (in logarithms): what the others rise by, too, is no change of units
_NOTHING = 1e-300
_UNIT_FACTORS = (25.4, 60.0, 304.8, 3600.0)  # beside the powers of ten
_NEAR_POWER, _NEAR_OTHER = np.log(1.25), np.log(1.1)


@dataclass(frozen=True)
class Jump:
    """at: the first reading after it; factor: how many times as large the later readings are, below 1 if smaller."""

    at: int
    factor: float


def find_jump(readings: NDArray[np.float64]) -> Jump | None:
    """The jump in the level of one sensor's readings (n,), without NaN and in the order of time, if there is one."""
    used = np.flatnonzero(readings)  # zeros are the same in all units
    if len(used) < 2 * _FEWEST:
        return None
    starts = np.arange(0, len(used), max(1, len(used) // _BLOCKS))
    levels = np.log(np.maximum.reduceat(np.abs(readings[used]), starts))
    split = _best_split(levels)
    if split is None or not _lie_apart(levels[:split], levels[split:]):
        return None
    before, after = levels[:split], levels[split:]
    factor = float(np.median(after) - np.median(before))
    quarter = (len(after) + 3) // 4
    way_back = float(np.median(after[:quarter]) - np.median(after[-quarter:])) / factor
    if way_back > _WAY_BACK:
        return None
    stop = starts[split + 1] if split + 1 < len(starts) else len(used)
    window = used[starts[split - 1] : stop]
    at = int(starts[split - 1]) + _crossing(readings[window], (np.median(before) + np.median(after)) / 2, factor > 0)
    if not 0 < at < len(used) or not _at_once(readings[used], at, rises=factor > 0):
        return None
    if abs(factor) < _MORE_THAN_WEATHER and not _has_one_sign(readings[used[:at]], readings[used[at:]]):
        return None
    if _begins_at_zero(readings, int(used[at]), rises=factor > 0):
        return None
    return Jump(int(used[at]), float(np.exp(factor)))


def unit_factor(factor: float) -> float | None:
    """What lies between two usual units, if the factor of a jump (or one over it) is near that."""
    size = abs(np.log(factor))
    power = 10.0 ** max(1, round(size / np.log(10.0)))
    if abs(size - np.log(power)) < _NEAR_POWER:
        return power
    return next((one for one in _UNIT_FACTORS if abs(size - np.log(one)) < _NEAR_OTHER), None)


def jumps_of_their_own(values: NDArray[np.float64], jumps: Mapping[int, Jump]) -> dict[int, Jump]:
    """Those that the other sensors of a table (T, N) with NaN for holes do not make, too. `at` is a step of the table.

    Sensors whose units change at the same step, by the same factor, are not the others of each other.
    """
    known = ~np.isnan(values)
    sizes = np.where(known, np.abs(values), 0.0)
    steps = {jump.at for jump in jumps.values()}
    changes = {at: np.log(_means(sizes[at:], known[at:]) / _means(sizes[:at], known[:at])) for at in steps}
    return {column: jump for column, jump in jumps.items() if not _seen_around(changes[jump.at], column, jumps)}


def _means(sizes: NDArray[np.float64], known: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Of each column without its holes; NaN of one that has nothing else. From nothing all is a large step."""
    counts = known.sum(axis=0)
    means = sizes.sum(axis=0) / np.maximum(counts, 1)
    return np.where(counts > 0, np.maximum(means, _NOTHING), np.nan)


def _seen_around(changes: NDArray[np.float64], column: int, jumps: Mapping[int, Jump]) -> bool:
    """changes: of all sensors (N,) at the step of the jump, as logarithms."""
    jump = jumps[column]
    units = unit_factor(jump.factor)
    together = [
        one
        for one, other in jumps.items()
        if units is not None
        and (other.at, unit_factor(other.factor), other.factor > 1) == (jump.at, units, jump.factor > 1)
    ]
    others = np.delete(changes, [column, *together])
    others = others[~np.isnan(others)]
    size = np.log(jump.factor)
    return len(others) > 0 and bool(np.median(others * np.sign(size)) > _SEEN_AROUND * abs(size))


def _begins_at_zero(readings: NDArray[np.float64], at: int, *, rises: bool) -> bool:
    """Whether the lower level is hardly more than nothing, or one side has zeros and the other has not."""
    before, after = readings[:at], readings[at:]
    few, many = sorted((float((before == 0).mean()), float((after == 0).mean())))
    if many > _ZEROS and few < _FEWER_ZEROS * many:
        return True
    low = np.abs(before if rises else after)
    different = np.unique(low)
    steps = np.diff(different)
    steps = steps[steps > 1e-6 * different[-1]]  # 0.3 - 0.2 is not quite 0.1
    return len(steps) > 0 and bool(np.median(low[low > 0]) < _STEPS_OF_INSTRUMENT * steps.min())


def _crossing(readings: NDArray[np.float64], level: float, rises: bool) -> int:
    """The first reading above the level, or if the jump goes down, the one after the last."""
    above = np.flatnonzero(np.log(np.abs(readings)) > level)
    if len(above) == 0:
        return 0
    return int(above[0]) if rises else int(above[-1]) + 1


def _at_once(readings: NDArray[np.float64], at: int, *, rises: bool) -> bool:
    before, after = (np.log(np.median(np.abs(part))) for part in (readings[:at][-_AT_ONCE:], readings[at:][:_AT_ONCE]))
    return bool((after - before if rises else before - after) > _APART)


def _best_split(logs: NDArray[np.float64]) -> int | None:
    """Where the means before and after explain most; None if too few lie on either side."""
    count = len(logs)
    edge = max(_FEWEST, int(np.ceil(_SMALLEST_SHARE * count)))
    if count < 2 * edge:
        return None
    splits = np.arange(edge, count - edge + 1)
    centred = logs - logs.mean()
    explained = np.cumsum(centred)[splits - 1] ** 2 / (splits * (count - splits))
    return int(splits[np.argmax(explained)])


def _lie_apart(before: NDArray[np.float64], after: NDArray[np.float64]) -> bool:
    low, high = sorted((before, after), key=lambda part: float(part.mean()))
    if high.mean() - low.mean() < _APART:
        return False  # most sensors, and this is quick
    low_quantiles, high_quantiles = np.quantile(low, (0.25, 0.5, 0.75, 0.9)), np.quantile(high, (0.1, 0.25, 0.5, 0.75))
    varies = low_quantiles[0] < low_quantiles[2] and high_quantiles[1] < high_quantiles[3]  # a stuck sensor does not
    far = high_quantiles[2] - low_quantiles[1] >= _FACTOR and high_quantiles[0] - low_quantiles[3] > _APART
    return bool(varies and far)


def _has_one_sign(*parts: NDArray[np.float64]) -> bool:
    shares = [float((part > 0).mean()) for part in parts]
    return min(shares) > 1 - _SMALLEST_SHARE or max(shares) < _SMALLEST_SHARE
