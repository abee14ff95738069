"""Per-sensor mean."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from casper.contract import Imputer
from casper.frame import SensorFrame
from casper.graph import SensorGraph


def sensor_means(frame: SensorFrame) -> NDArray[np.float64]:
    """(N,) mean of each sensor's observed values; a sensor that never reports takes the mean of all."""
    count = frame.observed.sum(axis=0)
    total = np.where(frame.observed, frame.values, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), total.sum() / max(1, count.sum()))


class MeanImputer(Imputer):
    """Every hole of a sensor gets the mean of what the sensor reported."""

    name = "mean"
    summary = "the sensor's mean"

    def fit_frame(self, frame: SensorFrame, graph: SensorGraph) -> None:
        self._means = sensor_means(frame)

    def impute_frame(self, frame: SensorFrame) -> NDArray[np.float64]:
        return np.where(frame.observed, frame.values, self._means)
