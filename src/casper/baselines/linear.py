"""Linear interpolation along time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from casper.baselines.mean import sensor_means
from casper.contract import Imputer
from casper.frame import SensorFrame
from casper.graph import SensorGraph


def interpolate(frame: SensorFrame) -> NDArray[np.float64]:
    """(T, N) with straight lines over the holes; only sensors that never report stay NaN."""
    steps = np.arange(len(frame.values), dtype=np.float64)
    filled = frame.values.copy()
    for sensor, observed in enumerate(frame.observed.T):
        if observed.any() and not observed.all():
            holes = ~observed
            filled[holes, sensor] = np.interp(steps[holes], steps[observed], filled[observed, sensor])
    return filled


class LinearImputer(Imputer):
    """A straight line between the readings before and after a hole; at the ends, the nearest reading."""

    name = "linear"
    summary = "straight line between the readings before and after the hole"

    def fit_frame(self, frame: SensorFrame, graph: SensorGraph) -> None:
        self._means = sensor_means(frame)

    def impute_frame(self, frame: SensorFrame) -> NDArray[np.float64]:
        filled = interpolate(frame)
        return np.where(np.isnan(filled), self._means, filled)
