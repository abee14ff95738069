"""A sensor whose readings become many times as large, or as small, from one reading on: often a change of units."""

from __future__ import annotations

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
    return Jump(int(used[at]), float(np.exp(factor)))


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
