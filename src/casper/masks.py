"""How values go missing: the benchmarks' faults and gaps, simple draws, and gaps like those a table already has."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from casper.errors import InputError

COPIES_OF_GAPS = 8
"""How many shifted copies of a table's gaps are tried before single points and blocks top up the rest."""
STRETCHES = 50
SHORTEST_STRETCH = 48
LONG_GAP = 6
"""Gaps of more steps than this are long: what its sensor measures just before and after one may be odd."""
# No sensor loses more of its cells than this because its gaps are lengthened.
_MOST_OF_A_SENSOR = 0.1

# ---------------------------------------------------------------- the benchmarks


def draw_faults_and_noise(
    shape: tuple[int, int],
    *,
    p_fault: float,
    p_noise: float,
    shortest_fault: int = 12,
    longest_fault: int = 47,
    seed: int,
) -> NDArray[np.bool_]:
    """(T, N) cells hidden by sensor faults and by single lost readings, drawn in the order of the published masks.

    A fault starts at a cell with probability `p_fault`; all faults of a sensor share one length from `shortest_fault`
    to `longest_fault` steps. Each cell is also lost with probability `p_noise`. Both arrays of uniform numbers are
    always drawn, so that a mask depends on the seed in the same way whatever the probabilities are.
    """
    steps, sensors = shape
    rng = np.random.default_rng(seed)
    starts = rng.random((steps, sensors)) < p_fault
    hidden = np.zeros(shape, dtype=bool)
    for sensor in np.flatnonzero(starts.any(axis=0)):
        length = int(rng.integers(longest_fault - shortest_fault + 1)) + shortest_fault
        begun = np.cumsum(starts[:, sensor])
        hidden[:, sensor] = begun > np.concatenate([np.zeros(min(length, steps), dtype=begun.dtype), begun[:-length]])
    hidden |= rng.random((steps, sensors)) < p_noise
    return hidden


def next_month_pattern(observed: NDArray[np.bool_], times: pd.DatetimeIndex) -> NDArray[np.bool_]:
    """(T, N) cells observed in a month whose counterpart in the next month is not: the scoring mask of AQI (437).

    The months form a ring, so the last one takes its pattern from the first. Stamps are shifted by calendar months
    (days that do not exist become the last of the month, the first of several wins); hours of a month without a
    counterpart are never hidden.
    """
    month_of_step = np.asarray(times.year) * 12 + np.asarray(times.month) - 1
    months = np.unique(month_of_step)
    hidden = np.zeros(observed.shape, dtype=bool)
    for month, following in zip(months, np.roll(months, -1), strict=True):
        copied = np.flatnonzero(month_of_step == following)
        landed = times.get_indexer(times[copied] + pd.DateOffset(months=int(month - following)))
        arrived, first = np.unique(landed, return_index=True)
        first, arrived = first[arrived >= 0], arrived[arrived >= 0]
        hidden[arrived] = observed[arrived] & ~observed[copied[first]]
    return hidden


# ---------------------------------------------------------------- simple draws


def hide_points(observed: NDArray[np.bool_], *, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Each observed cell on its own, with probability `share`."""
    _check_share(share)
    return observed & (rng.random(observed.shape, dtype=np.float32) < share)


def hide_blocks(
    observed: NDArray[np.bool_],
    *,
    share: float,
    shortest: int = 12,
    longest: int = 47,
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """About `share` of the observed cells, in runs of `shortest` to `longest` steps of one sensor; runs may overlap."""
    _check_share(share)
    if not 1 <= shortest <= longest:
        raise InputError(
            f"blocks of {shortest} to {longest} steps: the shortest must be 1 or more, the longest no less"
        )
    steps, sensors = observed.shape
    mean_length = (shortest + longest) / 2
    starts_per_cell = -np.log1p(-share) / mean_length
    # Runs may begin before the table does, or its first steps would be hidden less often than the others.
    earliest = 1 - longest
    count = rng.poisson(starts_per_cell * (steps - earliest) * sensors)
    start = rng.integers(earliest, steps, size=count)
    end = np.clip(start + rng.integers(shortest, longest + 1, size=count), 0, steps)
    sensor = rng.integers(sensors, size=count)
    opened_minus_closed = np.zeros((steps + 1, sensors), dtype=np.int32)
    np.add.at(opened_minus_closed, (np.maximum(start, 0), sensor), 1)
    np.add.at(opened_minus_closed, (end, sensor), -1)
    return observed & (np.cumsum(opened_minus_closed, axis=0, dtype=np.int32)[:-1] > 0)


def hide_sensors(observed: NDArray[np.bool_], *, count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Everything that `count` of the reporting sensors observed."""
    reporting = np.flatnonzero(observed.any(axis=0))
    if not 0 <= count < reporting.size:
        raise InputError(f"cannot hide {count} of {reporting.size} reporting sensors: at least one must stay visible")
    hidden = np.zeros(observed.shape, dtype=bool)
    chosen = rng.choice(reporting, size=count, replace=False)
    hidden[:, chosen] = observed[:, chosen]
    return hidden


# ---------------------------------------------------------------- gaps like the table's own


def hide_like_gaps(observed: NDArray[np.bool_], *, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """About `share` of the observed cells, in the shapes of the table's own gaps; never all cells of a sensor.

    Stretches of the table receive the gap pattern that all sensors had at another time, a part of the cells each of
    several other times: a single long outage must not be all that is hidden. Where a table has too few gaps to copy,
    half of what is lacking is hidden as single points and half as blocks. No sensor loses more than half of its cells
    (or `share` of them, if that is more).
    """
    _check_share(share)
    wanted = round(share * int(observed.sum()))
    most_per_sensor = (max(share, 0.5) * observed.sum(axis=0)).astype(np.int64)
    hidden = np.zeros(observed.shape, dtype=bool)
    if len(observed) > 1 and not observed.all():
        for copies_left in range(COPIES_OF_GAPS, 0, -1):
            lacking = wanted - int(hidden.sum())
            if lacking <= 0:
                break
            hidden |= _copy_gaps(observed, hidden, wanted=-(-lacking // copies_left), most=lacking, rng=rng)
            _give_back(hidden, most_per_sensor, rng=rng)
    hidden |= _points_and_blocks(observed & ~hidden, wanted=wanted - int(hidden.sum()), rng=rng)
    _give_back(hidden, most_per_sensor, rng=rng)
    return hidden


def lengthen_gaps(observed: NDArray[np.bool_], *, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Up to `share` of the observed cells: the last reading before and the first after about half of the table's own
    long gaps, or fewer if that would be too much. A reading more makes a difference: only what lies next to an outage
    is as odd as what an outage took first and gave back last."""
    _check_share(share)
    beside = beside_long_gaps(observed)
    of_sensor = np.maximum(1, beside.sum(axis=0))
    affordable = share * observed.sum() / of_sensor.sum()
    bearable = _MOST_OF_A_SENSOR * observed.sum(axis=0) / of_sensor
    return beside & (rng.random(observed.shape) < np.minimum(bearable, min(0.5, affordable)))


def beside_long_gaps(observed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(T, N): observed cells that `lengthen_gaps` may hide."""
    long = gap_lengths(observed) > LONG_GAP
    beside = np.zeros(observed.shape, dtype=bool)
    beside[:-1] |= long[1:]
    beside[1:] |= long[:-1]
    return observed & beside


def gap_lengths(visible: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(T, N): how many steps the gap has that a hole belongs to, 0 for readings."""
    before, after = nearest_readings(visible)
    return np.where(visible, 0, steps_between(before, after, len(visible)))


def steps_between(before: NDArray[np.int32], after: NDArray[np.int32], steps: int) -> NDArray[np.int64]:
    """Without the two readings; a gap at an end of the table ends there."""
    return (np.minimum(after, steps) - np.maximum(before, -1) - 1).astype(np.int64)


def nearest_readings(visible: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """(T, N) each: the step of the last reading at or before, and of the first at or after; far away if none."""
    steps = len(visible)
    step = np.arange(steps, dtype=np.int32)[:, None]
    before = np.maximum.accumulate(np.where(visible, step, np.int32(-steps)), axis=0)
    after = np.minimum.accumulate(np.where(visible, step, np.int32(2 * steps))[::-1], axis=0)[::-1]
    return before, after


def steps_to_reading(visible: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(T, N): to the sensor's nearest reading before or after, 0 for readings."""
    before, after = nearest_readings(visible)
    step = np.arange(len(visible))[:, None]
    return np.minimum(step - before, after - step)


def _copy_gaps(
    observed: NDArray[np.bool_], hidden: NDArray[np.bool_], *, wanted: int, most: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Cells that one shifted copy of the gaps would hide, in as many random stretches of time as are wanted: about so
    many cells, and never more than `most`."""
    steps = len(observed)
    copied = np.roll(observed, int(rng.integers(1, steps)), axis=0)
    copied = observed & ~copied & ~hidden
    length = max(-(-steps // STRETCHES), min(SHORTEST_STRETCH, steps))
    firsts = np.arange(0, steps, length)
    per_stretch = np.add.reduceat(copied.sum(axis=1), firsts)
    order = rng.permutation(firsts.size)
    reached = np.cumsum(per_stretch[order])
    whole = int(np.searchsorted(reached, wanted, side="right"))
    chosen = np.zeros(firsts.size, dtype=bool)
    chosen[order[:whole]] = True
    some, stretch = np.zeros(0, dtype=np.int64), slice(0)  # sensors, of the stretch that would be too much
    if whole < firsts.size:
        last, before = order[whole], int(reached[whole - 1]) if whole else 0
        stretch = slice(firsts[last], firsts[last] + length)
        if before + per_stretch[last] > most:
            sensors = rng.permutation(observed.shape[1])
            some = sensors[: np.searchsorted(np.cumsum(copied[stretch].sum(axis=0)[sensors]), wanted - before)]
        else:  # all or none of them: an outage of all sensors must stay one
            chosen[last] = rng.random() < (wanted - before) / per_stretch[last]
    hide = copied & np.repeat(chosen, length)[:steps, None]
    hide[stretch, some] = copied[stretch, some]
    return hide


def _points_and_blocks(visible: NDArray[np.bool_], *, wanted: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    available = int(visible.sum())
    if wanted <= 0 or available == 0:
        return np.zeros(visible.shape, dtype=bool)
    half = wanted / available / 2
    longest = max(1, min(SHORTEST_STRETCH, len(visible) // 10))
    blocks = hide_blocks(visible, share=half, shortest=max(1, longest // 4), longest=longest, rng=rng)
    lacking = max(0, wanted - int(blocks.sum()))
    left = visible & ~blocks
    return blocks | hide_points(left, share=min(lacking / max(int(left.sum()), 1), 0.999), rng=rng)


def _give_back(hidden: NDArray[np.bool_], most_per_sensor: NDArray[np.int64], *, rng: np.random.Generator) -> None:
    """Shows again, in place, what was hidden of a sensor beyond its limit: one run of cells, so that gaps stay gaps."""
    too_many = hidden.sum(axis=0) - most_per_sensor
    for sensor in np.flatnonzero(too_many > 0):
        cells = np.flatnonzero(hidden[:, sensor])
        run = np.roll(cells, int(rng.integers(cells.size)))[: too_many[sensor]]
        hidden[run, sensor] = False


def _check_share(share: float) -> None:
    if not 0 <= share < 1:
        raise InputError(f"the share to hide must be at least 0 and below 1, not {share}")


def mostly_long_gaps(observed: NDArray[np.bool_], length: int) -> bool:
    """Whether more than half of the holes, of sensors that report at all, lie in gaps longer than so many steps."""
    observed = observed[:, observed.any(axis=0)]
    holes = int((~observed).sum())
    return holes > 0 and int((gap_lengths(observed) > length).sum()) > holes / 2
