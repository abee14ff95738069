"""How far sensors drift apart: all that is known about a hole that is farther from its sensor's readings than any that
error bars could be judged by, as where a gauge was installed years after the others.

Half the mean squared change, over so many steps, of what a sensor has beyond its neighbours (a variogram, as in
geostatistics) says how much more an estimate may be off at a distance than at another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from casper.graph import SensorGraph
from casper.intervals.cell_facts import listens_to, summed

_LAGS = 20
# So many pairs of readings say how far sensors drift in so many steps; more cells than these are not looked at.
_FEWEST_PAIRS, _MOST_CELLS = 200, 4_000_000


@dataclass(frozen=True)
class Drift:
    """lag: (K,), in steps; variance: (K,), half the mean squared change in so many steps, in scaled units, never
    falling; both empty where too little is read at the same time."""

    lag: NDArray[np.int64]
    variance: NDArray[np.float64]

    @classmethod
    def read(cls, scaled: NDArray[np.float32], seen: NDArray[np.bool_], graph: SensorGraph) -> Self:
        """scaled, seen: (T, N), readings, and 0 where there is none."""
        own, known = _beyond_neighbours(scaled, seen, graph)
        some = slice(None, None, -(-own.size // _MOST_CELLS))
        own, known = own[:, some], known[:, some]
        lags, variances = list[int](), list[float]()
        for lag in np.unique(np.geomspace(1, max(1, len(own) - 1), _LAGS).astype(np.int64)):
            pairs = known[lag:] & known[:-lag]
            if pairs.sum() >= _FEWEST_PAIRS:
                lags.append(int(lag))
                variances.append(float(np.square((own[lag:] - own[:-lag])[pairs]).mean()) / 2)
        return cls(np.array(lags, dtype=np.int64), np.maximum.accumulate(np.array(variances)))

    def added(self, away: NDArray[np.int64], *, than: float) -> NDArray[np.float64]:
        """(C,): by how much an error's variance is larger so many steps from the nearest reading than at `than`."""
        if not len(self.lag):
            return np.zeros(len(away))
        lag = np.log(self.lag)
        at, before = (np.interp(np.log(np.maximum(steps, 1)), lag, self.variance) for steps in (away, than))
        # Both ends change: the reading's difference from the others and the hole's.
        return 2 * np.maximum(at - before, 0.0)


def _beyond_neighbours(
    scaled: NDArray[np.float32], seen: NDArray[np.bool_], graph: SensorGraph
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(T, N) each: what readings have beyond a straight line through their neighbours' mean, and where it is known."""
    listens = listens_to(graph)
    heard = summed(listens, seen.astype(np.float32))
    others = summed(listens, np.where(seen, scaled, 0.0).astype(np.float32)) / np.maximum(heard, 1e-6)
    known = seen & (heard > 0)
    count = np.maximum(known.sum(axis=0), 1)
    x, y = _less_mean(others, known, count), _less_mean(scaled, known, count)
    slope = (x * y).sum(axis=0) / (np.square(x).sum(axis=0) + 1e-3 * count)
    return np.where(known, y - slope * x, 0.0), known


def _less_mean(rows: NDArray[np.floating], known: NDArray[np.bool_], count: NDArray[np.int64]) -> NDArray[np.float64]:
    mean = np.where(known, rows, 0.0).sum(axis=0, dtype=np.float64) / count
    return np.where(known, rows - mean, 0.0)
