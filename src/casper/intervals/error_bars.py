"""Error bars of a filled table: calibrated on cells that were held back, drawn around the ones that were missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from casper.frame import SensorFrame
from casper.graph import SensorGraph
from casper.intervals.calibration import Calibration, HeldBack
from casper.intervals.cell_facts import Cells, cells_with_facts
from casper.intervals.drift import Drift
from casper.windows import Scaler

# A filled value is a guess if its error is expected to be as large as this share of what the median would be off.
_AS_BAD_AS_A_GUESS = 0.8
# A sensor is too cut off to be filled well if more than this share of its filled values are guesses.
_MOST_FLAGGED = 0.5
# The mean size of what is normally distributed, in deviations.
_MEAN_SIZE = 0.8


@dataclass(frozen=True)
class ErrorBars:
    """lower, upper: for each share asked for, (T, N), equal to the reading where there is one. flagged: (T, N), filled
    cells that are hardly better than a guess."""

    lower: dict[float, NDArray[np.float64]]
    upper: dict[float, NDArray[np.float64]]
    flagged: NDArray[np.bool_]

    def select(self, order: NDArray[np.int64]) -> ErrorBars:
        """The same with the sensors in another order."""
        lower, upper = ({share: end[:, order] for share, end in ends.items()} for ends in (self.lower, self.upper))
        return ErrorBars(lower, upper, self.flagged[:, order])


@dataclass(frozen=True)
class Reading:
    """How a model reads tables: the units it learned, the network, and how many steps it sees at a time."""

    scaler: Scaler
    graph: SensorGraph
    window: int

    def cells(self, frame: SensorFrame, filled: NDArray[np.float64], wanted: NDArray[np.bool_]) -> list[Cells]:
        """The wanted cells, which are holes of the frame, and the facts about them."""
        estimate = self.scaler.scale(filled)
        return list(
            cells_with_facts(self.scaled(frame), frame.observed, estimate, wanted, self.graph, around=self.window)
        )

    def scaled(self, frame: SensorFrame) -> NDArray[np.float32]:
        """(T, N), the readings, and 0 where there is none."""
        return np.where(frame.observed, self.scaler.scale(frame.values), 0.0).astype(np.float32)


def held_back_cells(
    reading: Reading,
    frame: SensorFrame,
    shown: SensorFrame,
    filled: NDArray[np.float64],
    held: NDArray[np.bool_],
    *,
    most: int,
    seed: int,
) -> HeldBack:
    """By how much the model is off. frame: all readings; shown: those that it could see; filled: (T, N), what it made
    of the others; held: (T, N), the readings to compare, of which `most` are enough."""
    count = int(held.sum())
    if count > most:
        held = held & (np.random.default_rng(seed).random(held.shape) < most / count)
    parts = reading.cells(shown, filled, held)
    step, sensor, gap, away = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("step", "sensor", "gap", "away")
    )
    level = reading.scaler.scale(filled)[step, sensor]
    error = reading.scaler.scale(frame.values)[step, sensor] - level
    return HeldBack(np.concatenate([part.facts for part in parts]), level, step, sensor, gap, away, error)


def draw_error_bars(
    calibration: Calibration,
    reading: Reading,
    frame: SensorFrame,
    filled: NDArray[np.float64],
    shares: Sequence[float],
) -> ErrorBars:
    """Around the filled values (T, N) of the frame's holes."""
    complete = np.where(frame.observed, frame.values, filled)
    lower, upper = ({share: complete.copy() for share in shares} for _ in range(2))
    flagged = np.zeros(frame.values.shape, dtype=bool)
    scaled, deviation = reading.scaler.scale(filled), reading.scaler.deviation
    median, variation = _variation(frame, reading.scaler)
    silent = ~frame.observed.any(axis=0)
    never_heard = silent & (calibration.of_sensor == 0)  # not when it was fitted, either
    least, most = frame.limits
    parts = reading.cells(frame, filled, ~frame.observed)
    drift = None
    if any((part.away > calibration.reach).any() for part in parts):
        drift = Drift.read(reading.scaled(frame), frame.observed, reading.graph)
    for part in parts:
        at = part.step, part.sensor
        scale = calibration.scale(part.facts, scaled[at], part.sensor)
        # Where the estimate is far from the median, the median would be far off as well.
        of_a_guess = np.maximum(variation[part.sensor], np.abs(scaled[at] - median[part.sensor]))
        # What is farther from any reading than the held-back ones were is known less the farther it is.
        unknown = np.where(never_heard[part.sensor], 1.0, calibration.beyond(part.facts, window=reading.window))
        scale += unknown * np.maximum(calibration.scale_of(of_a_guess) - scale, 0.0)
        if drift is not None:  # nor has anybody seen how far off estimates are so far from their sensor's readings
            added = calibration.scale_of(_MEAN_SIZE * np.sqrt(drift.added(part.away, than=float(calibration.reach))))
            scale = np.hypot(scale, added)
        flagged[at] = calibration.expected_error(scale) >= _AS_BAD_AS_A_GUESS * of_a_guess
        ends = calibration.bounds(shares, scale, part, scaled[at])
        for share, (down, up) in zip(shares, ends, strict=True):
            lower[share][at] = np.minimum(np.maximum(filled[at] + down * deviation[part.sensor], least), filled[at])
            upper[share][at] = np.maximum(np.minimum(filled[at] + up * deviation[part.sensor], most), filled[at])
    flagged[:, silent] = True  # nobody knows the level of a sensor that never reports
    return ErrorBars(lower, upper, flagged)


def cut_off(frame: SensorFrame, graph: SensorGraph, flagged: NDArray[np.bool_]) -> dict[str, str]:
    """Sensors that cannot be filled well, each with the reason."""
    told: dict[str, str] = {}
    holes = (~frame.observed).sum(axis=0)
    for number, sensor in enumerate(frame.sensors):
        if holes[number] == len(frame.times):
            told[sensor] = "it never reports: filled from the others alone"
        elif holes[number] and flagged[:, number].sum() > _MOST_FLAGGED * holes[number]:
            alone = " and no other sensor is near" if graph.degree()[number] == 0 else ""
            told[sensor] = f"most of its filled values are hardly better than a guess{alone}"
    return told


def _variation(frame: SensorFrame, scaler: Scaler) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(N,) each, in scaled units: a sensor's median, and how far its readings lie from it on average.

    Of silent sensors, the others' mean, to which comes how far the others' medians lie apart.
    """
    scaled = np.where(frame.observed, scaler.scale(frame.values), np.nan)
    alive = frame.observed.any(axis=0)
    median, away = np.zeros(len(frame.sensors)), np.ones(len(frame.sensors))
    if alive.any():
        median[alive] = np.nanmedian(scaled[:, alive], axis=0)
        away[alive] = np.nanmean(np.abs(scaled[:, alive] - median[alive]), axis=0)
        levels = np.nanmedian(np.where(frame.observed, frame.values, np.nan)[:, alive], axis=0)
        apart = np.abs(levels - levels.mean()).mean()
        median[~alive], away[~alive] = median[alive].mean(), away[alive].mean() + apart / scaler.deviation[~alive]
    return median, away
