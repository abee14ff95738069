"""A handful of filled values with all they were made from: the middle of the longest gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from casper.errors import InputError
from casper.explanation import Explanation
from casper.filled import Filled
from casper.frame import SensorFrame
from casper.imputer import Casper
from casper.report.runs import runs
from casper.report.words import duration, lag_words, moment, number, percent

MOST_VALUES = 12
_NAMED_CAUSES = 3


def explained_values(model: Casper, frame: SensorFrame, grid: pd.DataFrame, filled: Filled) -> list[dict[str, Any]]:
    """For each value: sensor, words about it, the sources, the steps before (-) and after the value that the model saw,
    and for every source and step its weight without gates (`attention`) and with them (`weight`)."""
    told: list[dict[str, Any]] = []
    for sensor, start, length in _longest_gaps(frame):
        step = start + length // 2
        try:
            explanation = _explain(model, frame, grid, sensor, step)
        except InputError:  # around this value no sensor reported anything
            continue
        told.append(_told(explanation, frame, filled, sensor, step, length))
        if len(told) == MOST_VALUES:
            break
    return told


def _longest_gaps(frame: SensorFrame) -> list[tuple[int, int, int]]:
    """Sensor, first step and length of the longest gap of every sensor that reports at all, the longest first."""
    gaps: list[tuple[int, int, int]] = []
    for sensor, observed in enumerate(frame.observed.T):
        found = runs(~observed)
        if len(found) and observed.any():
            start, length = found[int(np.argmax(found[:, 1]))]
            gaps.append((sensor, int(start), int(length)))
    return sorted(gaps, key=lambda gap: (-gap[2], gap[0]))


def _explain(model: Casper, frame: SensorFrame, grid: pd.DataFrame, sensor: int, step: int) -> Explanation:
    """From the rows around it alone: they hold the same window, and a long table need not be read again and again."""
    window = model.config.window
    first = int(np.clip(step - window, 0, max(0, len(grid) - 2 * window)))
    return model.explain(grid.iloc[first : first + 2 * window], sensor=frame.sensors[sensor], time=frame.times[step])


def _told(
    explanation: Explanation, frame: SensorFrame, filled: Filled, sensor: int, step: int, length: int
) -> dict[str, Any]:
    columns = explanation.attention.columns
    query = int(np.flatnonzero(columns == explanation.time)[0])
    value = float(filled.table.to_numpy(dtype=np.float64)[step, sensor])
    band = ""
    if filled.shares:
        share = filled.shares[-1]
        low, high = (float(ends[share].to_numpy()[step, sensor]) for ends in (filled.lower, filled.upper))
        band = f" ({percent(share, decimals=0)} interval: {number(low)} to {number(high)})"
    causes = explanation.causes().head(_NAMED_CAUSES)
    heaviest = [
        f"{'its own reading' if source == explanation.sensor else source} {lag_words(int(lag), frame.step)} "
        f"({percent(float(weight))})"
        for source, lag, weight in zip(causes["source"], causes["lag"], causes["weight"], strict=True)
    ]
    return {
        "sensor": sensor,
        "label": f"{explanation.sensor}, {moment(frame.times[step])}",
        "words": f"Filled with {number(value)}{band}, in the middle of a gap of {duration(frame.step, length)}.",
        "causes": heaviest,
        "sources": [frame.sensors.index(str(source)) for source in explanation.attention.index],
        "offsets": (np.arange(len(columns)) - query).tolist(),
        "attention": _in_percent(explanation.attention),
        "weight": _in_percent(explanation.weight),
    }


def _in_percent(table: pd.DataFrame) -> list[list[float]]:
    """As fine as a colour can show."""
    return [[round(float(value) * 100, 2) for value in row] for row in table.to_numpy()]
