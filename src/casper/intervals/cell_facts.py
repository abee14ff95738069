"""What is known about a hole before its true value is: how far its sensor's readings are, what the neighbours show.

Facts say how hard a cell is to fill; `casper.intervals.calibration` learns from them how far estimates are off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from casper.graph import SensorGraph
from casper.masks import nearest_readings, steps_between

FACTS = (
    "steps to the nearest reading of the sensor",
    "steps to the nearest one on the other side",
    "neighbours that report at this step",
    "steps to the nearest time at which any of them reports",
    "how much neighbours disagree",
    "how restless the sensor is around this time",
    "how restless its neighbours are around this time",
    "how far the estimate is from a straight line between the sensor's readings",
    "how far the estimate is from the neighbours' readings",
)

_SMALLEST = 0.02  # deviations; logarithms of less say nothing
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class Cells:
    """Some cells of a table, C of them, and the facts about them.

    step, sensor: (C,), their places; facts: (C, F), NaN where there is nothing to know; gap: (C,), steps of their gap;
    away: (C,), steps to the nearest reading of the sensor.
    """

    step: NDArray[np.int64]
    sensor: NDArray[np.int64]
    facts: NDArray[np.float32]
    gap: NDArray[np.int64]
    away: NDArray[np.int64]


def cells_with_facts(
    scaled: NDArray[np.float32],
    visible: NDArray[np.bool_],
    estimate: NDArray[np.float32],
    wanted: NDArray[np.bool_],
    graph: SensorGraph,
    *,
    around: int,
) -> Iterator[Cells]:
    """The wanted cells of a table, which must not be visible, some hundred rows of it at a time.

    scaled, visible, estimate, wanted: (T, N). around: how many steps before and after a cell count as its time.
    """
    weights = listens_to(graph)
    before, after = nearest_readings(visible)
    for first in range(0, len(scaled), _ROWS_AT_ONCE):
        rows = slice(first, min(first + _ROWS_AT_ONCE, len(scaled)))
        step, sensor = np.nonzero(wanted[rows])
        if not len(step):
            continue
        # One step more before: the first change is that from the step before.
        margin = slice(max(0, rows.start - around - 1), min(len(scaled), rows.stop + around))
        seen = visible[margin]
        readings = np.where(seen, scaled[margin], 0.0).astype(np.float32)
        inner = step + rows.start - margin.start  # place of the step within the margin's rows
        at = (step + first, sensor)
        near = _distance(before, after, at)
        far = np.maximum(at[0] - before[at], after[at] - at[0])
        weight = summed(weights, seen.astype(np.float32))
        mean = summed(weights, readings) / np.maximum(weight, 1e-6)
        variance = summed(weights, np.square(readings)) / np.maximum(weight, 1e-6) - np.square(mean)
        mine = _restless(readings, seen, around)
        theirs, heard = summed(weights, np.nan_to_num(mine)), summed(weights, np.isfinite(mine) * np.float32(1))
        silent_for = _distance(*nearest_readings(weight > 0), (inner, sensor))
        line = _line(scaled, before[at], after[at], at)
        some, guess = weight[inner, sensor] > 0, estimate[at]
        with np.errstate(invalid="ignore"):
            facts = (
                np.log1p(np.minimum(near, around)),
                np.log1p(np.minimum(far, around)),
                weight[inner, sensor] / np.maximum(np.asarray(weights.sum(axis=1)).ravel()[sensor], 1e-6),
                np.log1p(np.minimum(silent_for, around)),
                np.where(some, _log(np.sqrt(np.maximum(variance[inner, sensor], 0.0))), np.nan),
                _log(mine[inner, sensor]),
                np.where(heard[inner, sensor] > 0, _log((theirs / np.maximum(heard, 1e-6))[inner, sensor]), np.nan),
                _log(np.abs(guess - line)),
                np.where(some, _log(np.abs(guess - mean[inner, sensor])), np.nan),
            )
        gap = steps_between(before[at], after[at], len(scaled))
        yield Cells(at[0], sensor, np.stack(facts, axis=1).astype(np.float32), gap, near)


def beside_a_reading(facts: NDArray[np.float32]) -> NDArray[np.bool_]:
    """(C,): whether the sensor has a reading one step away."""
    return facts[:, 0] < np.log1p(1.5)


def distance_to_readings(facts: NDArray[np.float32]) -> NDArray[np.float32]:
    """(C,): the logarithm of 1 + the steps to the nearest reading of the sensor or of its neighbours."""
    return np.minimum(facts[:, 0], facts[:, 3])


def listens_to(graph: SensorGraph) -> sparse.csr_matrix:
    """(N, N), rows are targets."""
    count = len(graph.sensors)
    return sparse.csr_matrix((graph.weight, (graph.target, graph.source)), shape=(count, count), dtype=np.float32)


def summed(listens_to: sparse.csr_matrix, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """(T, N) -> (T, N), over the neighbours of each sensor."""
    return np.asarray(listens_to @ rows.T).T


def _distance(
    before: NDArray[np.int32], after: NDArray[np.int32], at: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> NDArray[np.int64]:
    """(C,): steps to the nearest reading on either side."""
    return np.minimum(at[0] - before[at], after[at] - at[0])


def _line(
    scaled: NDArray[np.float32],
    before: NDArray[np.int32],
    after: NDArray[np.int32],
    at: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> NDArray[np.float32]:
    """The straight line between the readings around; the nearest reading at the ends; NaN for silent sensors."""
    steps, (step, sensor) = len(scaled), at
    has_before, has_after = before >= 0, after < steps
    first = scaled[np.where(has_before, before, 0), sensor]
    last = scaled[np.where(has_after, after, 0), sensor]
    share = (step - before) / np.maximum(after - before, 1)
    between = first + (last - first) * share
    one_sided = np.where(has_before, first, np.where(has_after, last, np.nan))
    return np.where(has_before & has_after, between, one_sided).astype(np.float32)


def _restless(readings: NDArray[np.float32], seen: NDArray[np.bool_], around: int) -> NDArray[np.float32]:
    """(T, N): the mean change from step to step within `around` steps, NaN where no two readings follow each other."""
    both = np.zeros(seen.shape, dtype=bool)
    both[1:] = seen[1:] & seen[:-1]
    change = np.zeros(seen.shape, dtype=np.float64)
    change[1:] = np.abs(np.diff(readings, axis=0))
    total = _moving_sum(np.where(both, change, 0.0), around)
    count = _moving_sum(both.astype(np.float64), around)
    return np.where(count > 0.5, total / np.maximum(count, 1.0), np.nan).astype(np.float32)


def _moving_sum(rows: NDArray[np.float64], around: int) -> NDArray[np.float64]:
    """Over the steps from t - around to t + around."""
    summed = np.concatenate((np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0)))
    step = np.arange(len(rows))
    return summed[np.minimum(step + around + 1, len(rows))] - summed[np.maximum(step - around, 0)]


def _log(size: NDArray[np.floating]) -> NDArray[np.floating]:
    return np.log(size + _SMALLEST)
