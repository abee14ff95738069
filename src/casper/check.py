"""What is in a table and what looks wrong with it: the readable summary behind `casper check`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from casper.errors import some
from casper.frame import SensorFrame

GAP_LENGTHS = {"1": (1, 1), "2-6": (2, 6), "7-24": (7, 24), "25+": (25, None)}
SENTINELS = (-1.0, -9.0, -99.0, -99.9, -999.0, -999.9, -9999.0, -99999.0, 9999.0, 99999.0, 999999.0)
STUCK_STEPS = 24  # so many equal readings in a row are rarely weather or traffic
NEARLY_DEAD = 0.05
SEVERAL_ZEROS = 3
FAR_OUT = 10.0  # robust standard deviations
MAD_TO_STD = 1.4826  # median absolute deviation -> standard deviation, for a normal distribution

Kind = Literal["sentinel", "zeros", "stuck", "outlier"]


@dataclass(frozen=True)
class Gaps:
    """Runs of holes in single sensors, lengths in steps; sensors that never report are left out."""

    count: int
    cells_by_length: dict[str, int]  # how many holes lie in gaps of 1, 2-6, 7-24 and 25+ steps
    median: float  # 0 without gaps, as is longest
    longest: int
    longest_sensor: str | None
    longest_start: pd.Timestamp | None
    longest_end: pd.Timestamp | None  # the last missing step


@dataclass(frozen=True)
class Suspicion:
    """Readings of one sensor that may not be readings, with one example."""

    sensor: str
    kind: Kind
    count: int
    value: float
    time: pd.Timestamp

    @property
    def sentence(self) -> str:
        what = {
            "sentinel": f"{self.count} times {self.value:g}, which often stands for a hole: {_remedy(self.value)}",
            "zeros": f"{self.count} zeros in runs of {STUCK_STEPS} steps or more",
            "stuck": f"{self.count} readings in runs of {STUCK_STEPS} equal values or more, such as {self.value:g}",
            "outlier": f"{self.count} {'reading' if self.count == 1 else 'readings'} very far from the others, "
            f"such as {self.value:g}",
        }
        return f"{self.sensor}: {what[self.kind]}, first at {self.time}"


def _remedy(sentinel: float) -> str:
    return f"pass --missing-value {sentinel:g} (missing_values=) if so"


def _group_sentence(group: Sequence[Suspicion]) -> str:
    """Readings of one kind in several sensors."""
    count, first = sum(item.count for item in group), group[0]
    names = some([item.sensor for item in group], most=5)
    earliest = min(group, key=lambda item: item.time)
    place = f"first {earliest.sensor} at {earliest.time}"
    if first.kind == "sentinel":
        often = f"which often stands for a hole: {_remedy(first.value)}"
        return f"{first.value:g} in {len(group)} sensors, {count} times, {place}, {often} ({names})"
    what = {
        "zeros": f"zeros in runs of {STUCK_STEPS} steps or more",
        "stuck": f"readings in runs of {STUCK_STEPS} equal values or more",
        "outlier": "readings very far from the others",
    }
    return f"{count} {what[first.kind]} in {len(group)} sensors, {place}: {earliest.value:g} ({names})"


@dataclass(frozen=True)
class TableSummary:
    """A table in figures."""

    start: pd.Timestamp
    end: pd.Timestamp
    step: pd.Timedelta
    steps: int
    sensors: int
    missing_share: float
    blackout_share: float  # steps at which no sensor reports
    gaps: Gaps
    dead: tuple[str, ...]
    nearly_dead: tuple[str, ...]  # report, but at less than 5 % of the steps
    constant: tuple[str, ...]
    suspicions: tuple[Suspicion, ...]
    notes: tuple[str, ...]

    def sentences(self) -> list[str]:
        """The suspicions for a person to read: those of one kind and number in one sentence."""
        groups: dict[tuple[Kind, float | None], list[Suspicion]] = {}
        for item in self.suspicions:
            groups.setdefault((item.kind, item.value if item.kind == "sentinel" else None), []).append(item)
        return [group[0].sentence if len(group) == 1 else _group_sentence(group) for group in groups.values()]

    def to_dict(self) -> dict[str, object]:
        """The same, ready for JSON."""
        gaps = self.gaps
        return {
            "start": self.start.isoformat(),
            "end": self.end.isoformat(),
            "step": str(self.step).removeprefix("0 days "),
            "step_seconds": self.step.total_seconds(),
            "steps": self.steps,
            "sensors": self.sensors,
            "missing_share": self.missing_share,
            "blackout_share": self.blackout_share,
            "gaps": {
                "count": gaps.count,
                "cells_by_length": dict(gaps.cells_by_length),
                "median": gaps.median,
                "longest": gaps.longest,
                "longest_sensor": gaps.longest_sensor,
                "longest_start": gaps.longest_start.isoformat() if gaps.longest_start is not None else None,
                "longest_end": gaps.longest_end.isoformat() if gaps.longest_end is not None else None,
            },
            "dead": list(self.dead),
            "nearly_dead": list(self.nearly_dead),
            "constant": list(self.constant),
            "suspicions": [
                {
                    "sensor": suspicion.sensor,
                    "kind": suspicion.kind,
                    "count": suspicion.count,
                    "value": suspicion.value,
                    "time": suspicion.time.isoformat(),
                    "sentence": suspicion.sentence,
                }
                for suspicion in self.suspicions
            ],
            "notes": list(self.notes),
        }


def summarise(frame: SensorFrame) -> TableSummary:
    """Describe a frame: its period, its holes, and readings that may not be readings."""
    shares = np.atleast_1d(frame.observed.mean(axis=0))
    constant: list[str] = []
    suspicions: list[Suspicion] = []
    for sensor, values, observed in zip(frame.sensors, np.transpose(frame.values), frame.observed.T, strict=True):
        series, present = np.ascontiguousarray(values), np.flatnonzero(observed)
        if len(present) > 1 and (series[present] == series[present[0]]).all():
            constant.append(sensor)
        elif len(present):
            for kind, cells in _suspicious(series, present):
                first = int(cells[0])
                suspicions.append(Suspicion(sensor, kind, len(cells), float(series[first]), frame.times[first]))
    return TableSummary(
        start=frame.times[0],
        end=frame.times[-1],
        step=frame.step,
        steps=len(frame.times),
        sensors=len(frame.sensors),
        missing_share=1.0 - float(frame.observed.mean()),
        blackout_share=1.0 - float(frame.observed.any(axis=1).mean()),
        gaps=_gaps(frame),
        dead=frame.dead,
        nearly_dead=tuple(s for s, share in zip(frame.sensors, shares, strict=True) if 0 < share < NEARLY_DEAD),
        constant=tuple(constant),
        suspicions=tuple(suspicions),
        notes=frame.notes,
    )


def _gaps(frame: SensorFrame) -> Gaps:
    alive = np.flatnonzero(frame.observed.any(axis=0))
    missing = np.zeros((len(alive), len(frame.times) + 2), dtype=np.int8)  # a present step at both ends
    missing[:, 1:-1] = ~frame.observed[:, alive].T
    change = np.diff(missing, axis=1)
    sensors, starts = np.nonzero(change == 1)
    lengths = np.nonzero(change == -1)[1] - starts
    by_length = {
        label: int(lengths[(lengths >= low) & (lengths <= (high or len(frame.times)))].sum())
        for label, (low, high) in GAP_LENGTHS.items()
    }
    if len(lengths) == 0:
        return Gaps(0, by_length, 0.0, 0, None, None, None)
    at = int(np.argmax(lengths))
    start, longest = int(starts[at]), int(lengths[at])
    return Gaps(
        count=len(lengths),
        cells_by_length=by_length,
        median=float(np.median(lengths)),
        longest=longest,
        longest_sensor=frame.sensors[int(alive[sensors[at]])],
        longest_start=frame.times[start],
        longest_end=frame.times[start + longest - 1],
    )


def _suspicious(series: NDArray[np.float64], present: NDArray[Any]) -> Iterator[tuple[Kind, NDArray[Any]]]:
    """The steps of one sensor's suspicious readings, kind by kind; a stand-in for a hole is named once only."""
    readings = series[present]
    others = readings[~np.isin(readings, SENTINELS)]
    stand_in = np.zeros(len(readings), dtype=bool)
    for sentinel in SENTINELS:
        same = readings == sentinel
        if same.any() and len(others) and _stands_apart(sentinel, others):
            stand_in |= same
            yield "sentinel", present[same]
    zero = readings == 0
    if zero.sum() >= SEVERAL_ZEROS and _zero_stands_apart(readings[~zero & ~stand_in]):
        stand_in |= zero
        yield "sentinel", present[zero]
    plain, readings = present[~stand_in], readings[~stand_in]

    repeated = _in_long_runs(plain, readings)
    zeros, stuck = plain[repeated & (readings == 0)], plain[repeated & (readings != 0)]
    if len(zeros):
        yield "zeros", zeros
    if len(stuck):
        yield "stuck", stuck

    centre = np.median(readings)
    spread = MAD_TO_STD * np.median(np.abs(readings - centre))
    if spread > 0:
        far = plain[np.abs(readings - centre) > FAR_OUT * spread]
        if len(far):
            yield "outlier", far


def _stands_apart(sentinel: float, others: NDArray[np.float64]) -> bool:
    """Whether a suspicious number cannot be one of the readings: on the other side of zero, or ten times as large."""
    if sentinel == -1:
        return bool(others.min() >= 0)
    return bool(np.abs(sentinel) > 10 * np.abs(others).max()) or (sentinel < 0 and bool(others.min() >= 0))


def _zero_stands_apart(others: NDArray[np.float64]) -> bool:
    """Whether 0 lies far below all other readings, as among the speeds of cars, and is not just the next lower step.

    Rain and counts have zeros too, but there the smallest reading is one step of the instrument.
    """
    sizes = np.abs(others)
    if len(sizes) == 0 or sizes.min() <= np.median(sizes) / 4:
        return False
    steps = np.diff(np.unique(sizes))
    return len(steps) > 0 and bool(sizes.min() > 3 * np.median(steps))


def _in_long_runs(steps: NDArray[Any], readings: NDArray[np.float64]) -> NDArray[np.bool_]:
    """True for readings in a run of at least STUCK_STEPS equal ones without a hole in between."""
    breaks = (np.diff(steps) != 1) | (np.diff(readings) != 0)
    run = np.concatenate([[0], np.cumsum(breaks)])  # which run each reading belongs to
    return np.bincount(run)[run] >= STUCK_STEPS
