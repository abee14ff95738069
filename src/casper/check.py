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
from casper.grid import step_text
from casper.level_jumps import find_jump

GAP_LENGTHS = {"1": (1, 1), "2-6": (2, 6), "7-24": (7, 24), "25+": (25, None)}
SENTINELS = (-1.0, -9.0, -99.0, -99.9, -999.0, -999.9, -9999.0, -99999.0, 9999.0, 99999.0, 999999.0)
STUCK_STEPS = 24  # so many equal readings in a row are rarely weather or traffic
NEARLY_DEAD = 0.05
SEVERAL_ZEROS = 3
FAR_OUT = 10.0  # robust standard deviations
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

    @property
    def sentence(self) -> str:
        what = {
            "sentinel": f"{self.count} times {self.value:g}, which often stands for a hole: {_remedy(self.value)}",
            "zeros": f"{self.count} zeros in runs of {STUCK_STEPS} steps or more",
            "stuck": f"{self.count} readings in runs of {STUCK_STEPS} equal values or more, such as {self.value:g}",
        }
        if self.kind == "jump":
            return f"{self.sensor}: {_jump(self)}; other units? {_jump_remedy(self)}, or make two sensors of it"
        if self.kind == "outlier":
            readings = "reading" if self.count == 1 else "readings"
            farthest = "" if self.count == 1 else "the farthest "
            return (
                f"{self.sensor}: {self.count} {readings} very far from the others, "
                f"{farthest}{self.value:g} at {self.time}"
            )
        return f"{self.sensor}: {what[self.kind]}, first at {self.time}"


def _remedy(sentinel: float) -> str:
    return f"pass --missing-value {sentinel:g} (missing_values=) if so"


def _jump(item: Suspicion) -> str:
    times = f"about {_round_factor(max(item.factor, 1 / item.factor)):,g} times as large"
    return f"readings are {times} " + (f"from {item.time} on" if item.factor > 1 else f"before {item.time} as later")


def _jump_remedy(item: Suspicion) -> str:
    return "Divide the later ones" if item.factor > 1 else "Divide the earlier ones"


def _round_factor(factor: float) -> float:
    """A power of ten if it is near one, as most units are, else two digits."""
    power = 10.0 ** round(np.log10(factor))
    return power if 0.6 < factor / power < 1.6 else float(f"{factor:.2g}")


def _group_sentence(group: Sequence[Suspicion]) -> str:
    """Readings of one kind in several sensors."""
    count, first = sum(item.count for item in group), group[0]
    names = some([item.sensor for item in group], most=5)
    earliest = min(group, key=lambda item: item.time)
    place = f"first {earliest.sensor} at {earliest.time}"
    if first.kind == "sentinel":
        often = f"which often stands for a hole: {_remedy(first.value)}"
        return f"{first.value:g} in {len(group)} sensors, {count} times, {place}, {often} ({names})"
    if first.kind == "jump":
        remedy = f"{_jump_remedy(first)}, or make two sensors of each"
        return f"{_jump(first)} in {len(group)} sensors ({names}); other units? {remedy}"
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
        """The suspicions for a person to read: those of one kind and number in one sentence."""
        groups: dict[tuple[Kind, object], list[Suspicion]] = {}
        for item in self.suspicions:
            shared = {"sentinel": item.value, "jump": (item.time, _round_factor(item.factor))}.get(item.kind)
            groups.setdefault((item.kind, shared), []).append(item)
        return [group[0].sentence if len(group) == 1 else _group_sentence(group) for group in groups.values()]

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
    constant: list[str] = []
    suspicions: list[Suspicion] = []
    for sensor, values, observed in zip(frame.sensors, np.transpose(frame.values), frame.observed.T, strict=True):
        series, present = np.ascontiguousarray(values), np.flatnonzero(observed)
        if len(present) > 1 and (series[present] == series[present[0]]).all():
            constant.append(sensor)
        elif len(present):
            suspicions += _suspicious(sensor, series, present, frame.times)
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


def _suspicious(
    sensor: str, series: NDArray[np.float64], present: NDArray[Any], times: pd.DatetimeIndex
) -> Iterator[Suspicion]:
    """One sensor's suspicious readings, kind by kind; a stand-in for a hole is named once only."""

    def suspicion(kind: Kind, cells: NDArray[Any], example: int = 0, **more: float) -> Suspicion:
        step = int(cells[example])
        return Suspicion(sensor, kind, len(cells), float(series[step]), times[step], **more)

    readings = series[present]
    others = readings[~np.isin(readings, SENTINELS)]
    stand_in = np.zeros(len(readings), dtype=bool)
    for sentinel in SENTINELS:
        same = readings == sentinel
        if same.any() and len(others) and _stands_apart(sentinel, others):
            stand_in |= same
            yield suspicion("sentinel", present[same])
    zero = readings == 0
    if zero.sum() >= SEVERAL_ZEROS and _zero_stands_apart(readings[~zero & ~stand_in]):
        stand_in |= zero
        yield suspicion("sentinel", present[zero])
    plain, readings = present[~stand_in], readings[~stand_in]

    repeated = _in_long_runs(plain, readings)
    zeros, stuck = plain[repeated & (readings == 0)], plain[repeated & (readings != 0)]
    if len(zeros):
        yield suspicion("zeros", zeros)
    if len(stuck):
        yield suspicion("stuck", stuck)

    jump = find_jump(readings)
    if jump is not None:
        yield suspicion("jump", plain[jump.at :], factor=jump.factor)
        # The jump is told: what else is far out is so beside readings of its own time.
        readings = np.concatenate([readings[: jump.at], readings[jump.at :] / jump.factor])

    centre = np.median(readings)
    distances = np.abs(readings - centre)
    spread = MAD_TO_STD * np.median(distances)
    far = np.flatnonzero(distances > FAR_OUT * spread)
    if spread > 0 and len(far):
        farthest = int(np.argmax(distances[far]))
        yield suspicion("outlier", plain[far], farthest, deviations=float(distances[far[farthest]] / spread))


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
