"""What is in a table and what looks wrong with it: the readable summary behind `casper check`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from casper.check.level_jumps import Jump, find_jump, jumps_of_their_own, unit_factor
from casper.check.sentinels import StandIn, find_stand_ins
from casper.errors import some
from casper.frame import SensorFrame
from casper.frame.grid import step_text

GAP_LENGTHS = {"1": (1, 1), "2-6": (2, 6), "7-24": (7, 24), "25+": (25, None)}
STUCK_STEPS = 24  # so many equal readings in a row are rarely weather or traffic
NEARLY_DEAD = 0.05
FAR_OUT = 10.0  # robust standard deviations
MOST_OUTLIERS, OUTLIER_SHARE = 10, 0.01  # what more readings than both do is how the sensor is
MAD_TO_STD = 1.4826  # median absolute deviation -> standard deviation, for a normal distribution

Kind = Literal["sentinel", "zeros", "stuck", "jump", "outlier"]


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
    """Readings of one sensor that may not be readings, with one example: the first, or the most extreme outlier."""

    sensor: str
    kind: Kind
    count: int
    value: float
    time: pd.Timestamp
    deviations: float = 0.0  # of an outlier: how many robust standard deviations it is away from the median
    factor: float = 1.0  # of a jump: how many times as large readings are from then on
    elsewhere: bool = False  # of a sentinel: other sensors have it among their readings

    @property
    def sentence(self) -> str:
        what = {
            "sentinel": f"{self.count} times {self.value:g}, {_remedy(self)}",
            "zeros": f"{self.count} zeros in runs of {STUCK_STEPS} steps or more",
            "stuck": f"{self.count} readings in runs of {STUCK_STEPS} equal values or more, such as {self.value:g}",
        }
        if self.kind == "jump":
            return f"{self.sensor}: {_jump(self)}{_jump_remedy(self)}, or make two sensors of it"
        if self.kind == "outlier":
            readings = "reading" if self.count == 1 else "readings"
            farthest = "" if self.count == 1 else "the farthest "
            return (
                f"{self.sensor}: {self.count} {readings} very far from the others, "
                f"{farthest}{self.value:g} at {self.time}"
            )
        return f"{self.sensor}: {what[self.kind]}, first at {self.time}"


def sentences(suspicions: Sequence[Suspicion]) -> list[str]:
    """For a person to read: those of one kind and number in one sentence."""
    groups: dict[tuple[Kind, object], list[Suspicion]] = {}
    for item in suspicions:
        shared = {"sentinel": item.value, "jump": (item.time, _told_factor(item))}.get(item.kind)
        groups.setdefault((item.kind, shared), []).append(item)
    return [group[0].sentence if len(group) == 1 else _group_sentence(group) for group in groups.values()]


def _remedy(item: Suspicion) -> str:
    """Numbers are taken out of all sensors at once: that must not cost readings."""
    remedy = f"pass --missing-value {item.value:g} (missing_values=) if so"
    if item.elsewhere:
        remedy = f"empty these cells in the file if so; elsewhere in the table {item.value:g} is a reading"
    return f"which often stands for a hole: {remedy}"


def _jump(item: Suspicion) -> str:
    times = f"about {_told_factor(item):,g} times as large"
    return f"readings are {times} " + (f"from {item.time} on" if item.factor > 1 else f"before {item.time} as later")


def _jump_remedy(item: Suspicion) -> str:
    ones = "the later ones" if item.factor > 1 else "the earlier ones"
    if unit_factor(item.factor) is None:
        return f". Is that so, or are they in other units? Then divide {ones}"
    return f"; other units? Divide {ones}"


def _told_factor(item: Suspicion) -> float:
    """That of the units if there are such, else two digits."""
    return unit_factor(item.factor) or float(f"{max(item.factor, 1 / item.factor):.2g}")


def _group_sentence(group: Sequence[Suspicion]) -> str:
    """Readings of one kind in several sensors."""
    count, first = sum(item.count for item in group), group[0]
    names = some([item.sensor for item in group], most=5)
    earliest = min(group, key=lambda item: item.time)
    place = f"first {earliest.sensor} at {earliest.time}"
    if first.kind == "sentinel":
        return f"{first.value:g} in {len(group)} sensors, {count} times, {place}, {_remedy(first)} ({names})"
    if first.kind == "jump":
        return f"{_jump(first)} in {len(group)} sensors ({names}){_jump_remedy(first)}, or make two sensors of each"
    if first.kind == "outlier":
        farthest = max(group, key=lambda item: item.deviations)
        by_count = sorted(group, key=lambda item: -item.count)
        most = by_count[0]
        told = f"{count} readings very far from the others in {len(group)} sensors, "
        told += f"the farthest {farthest.value:g} in {farthest.sensor} at {farthest.time}"
        told += f", most in {most.sensor}: {most.count}" if most.count > by_count[-1].count else ""
        return f"{told} ({some([item.sensor for item in by_count], most=5)})"
    what = {
        "zeros": f"zeros in runs of {STUCK_STEPS} steps or more",
        "stuck": f"readings in runs of {STUCK_STEPS} equal values or more",
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
        """The suspicions for a person to read."""
        return sentences(self.suspicions)

    def findings(self) -> list[str]:
        """All that looks wrong, a sentence each: what is still told of a table that cannot be used."""
        odd = {"never report": self.dead, "hardly report": self.nearly_dead, "constant": self.constant}
        return [*(f"{what}: {some(names)}" for what, names in odd.items() if names), *self.sentences()]

    def to_dict(self) -> dict[str, object]:
        """The same, ready for JSON."""
        gaps = self.gaps
        return {
            "start": self.start.isoformat(),
            "end": self.end.isoformat(),
            "step": step_text(self.step),
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
                    "factor": suspicion.factor if suspicion.kind == "jump" else None,
                    "sentence": suspicion.sentence,
                }
                for suspicion in self.suspicions
            ],
            "notes": list(self.notes),
        }


def summarise(frame: SensorFrame) -> TableSummary:
    """Describe a frame: its period, its holes, and readings that may not be readings."""
    shares = np.atleast_1d(frame.observed.mean(axis=0))
    found: dict[int, list[StandIn]] = {}
    no_reading = ~frame.observed
    for one in find_stand_ins(frame.values):
        found.setdefault(one.column, []).append(one)
        no_reading[one.rows, one.column] = True
    constant: list[str] = []
    plain: dict[int, NDArray[np.int64]] = {}  # the steps of all readings that are no stand-ins for holes
    jumps: dict[int, Jump] = {}
    for column, sensor in enumerate(frame.sensors):
        present = np.flatnonzero(frame.observed[:, column])
        readings = frame.values[present, column]
        if len(present) > 1 and (readings == readings[0]).all():
            constant.append(sensor)
        elif len(present):
            plain[column] = np.flatnonzero(~no_reading[:, column])
            jump = find_jump(frame.values[plain[column], column])
            if jump is not None:
                jumps[column] = replace(jump, at=int(plain[column][jump.at]))
    if jumps:
        jumps = jumps_of_their_own(np.where(no_reading, np.nan, frame.values), jumps)
    suspicions: list[Suspicion] = []
    for column, steps in plain.items():
        series = np.ascontiguousarray(frame.values[:, column])
        suspicions += [_stand_in(frame, one) for one in found.get(column, ())]
        suspicions += _suspicious(frame.sensors[column], series, steps, jumps.get(column), frame.times)
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


def stand_ins(frame: SensorFrame) -> list[Suspicion]:
    """Numbers that probably stand for holes: all that is looked for before a table is filled, as it is quick."""
    return [_stand_in(frame, one) for one in find_stand_ins(frame.values)]


def warn_of_stand_ins(frame: SensorFrame) -> None:
    """That such numbers are about to be taken for readings."""
    for sentence in sentences(stand_ins(frame)):
        logging.getLogger("casper").warning("taken for readings: %s", sentence)


def _stand_in(frame: SensorFrame, one: StandIn) -> Suspicion:
    sensor, time = frame.sensors[one.column], frame.times[one.rows[0]]
    return Suspicion(sensor, "sentinel", len(one.rows), one.value, time, elsewhere=one.elsewhere)


def _suspicious(
    sensor: str, series: NDArray[np.float64], plain: NDArray[np.int64], jump: Jump | None, times: pd.DatetimeIndex
) -> Iterator[Suspicion]:
    """One sensor's suspicious readings, kind by kind, beside stand-ins for holes. plain: the steps of all others."""

    def suspicion(kind: Kind, cells: NDArray[Any], example: int = 0) -> Suspicion:
        step = int(cells[example])
        return Suspicion(sensor, kind, len(cells), float(series[step]), times[step])

    readings = series[plain]
    repeated = _in_long_runs(plain, readings)
    zeros, stuck = plain[repeated & (readings == 0)], plain[repeated & (readings != 0)]
    if len(zeros):
        yield suspicion("zeros", zeros)
    if len(stuck):
        yield suspicion("stuck", stuck)

    if jump is not None:
        yield replace(suspicion("jump", plain[plain >= jump.at]), factor=jump.factor)
        # The jump is told: what else is far out is so beside readings of its own time.
        readings = np.where(plain >= jump.at, readings / jump.factor, readings)

    # Each value counts once: nights without sun or months without snow, however long, do not narrow the spread.
    different = np.unique(readings)
    if len(different) < 2:
        return
    centre = np.median(different)
    spread = MAD_TO_STD * np.median(np.abs(different - centre))
    distances = np.abs(readings - centre)
    far = np.flatnonzero(distances > FAR_OUT * spread)
    if 0 < len(far) <= max(MOST_OUTLIERS, OUTLIER_SHARE * len(readings)):
        farthest = int(np.argmax(distances[far]))
        deviations = float(distances[far[farthest]] / spread)
        yield replace(suspicion("outlier", plain[far], farthest), deviations=deviations)


def _in_long_runs(steps: NDArray[Any], readings: NDArray[np.float64]) -> NDArray[np.bool_]:
    """True for readings in a run of at least STUCK_STEPS equal ones without a hole in between."""
    breaks = (np.diff(steps) != 1) | (np.diff(readings) != 0)
    run = np.concatenate([[0], np.cumsum(breaks)])  # which run each reading belongs to
    return np.bincount(run)[run] >= STUCK_STEPS
