"""Vector autoregression: every sensor from the last few readings of all sensors, one step ahead.

In standard units per sensor, z[t] = c + A[1] z[t-1] + ... + A[p] z[t-p] (Lütkepohl, New Introduction to Multiple Time
Series Analysis, 2005). The series is walked through forward in time: where a reading is missing, the prediction takes
its place and feeds the predictions after it. Order 5, windows of 24 steps, and the mean of what a window shows as its
past are the settings of Cini et al., ICLR 2022 (GRIN).

The coefficients are ridge regressions on a table whose holes the model itself has filled, repeated from persistence
onwards: fill, regress, fill again. A missing target counts as predicted, so that all sensors share one matrix of normal
equations and the regressions converge to those on observed targets alone.

Departures from GRIN: least squares in closed form instead of absolute errors by Adam with early stopping, which needs
no validation period, no seed and no GPU; fitted in sample like the other statistical methods here, not on training
windows alone; and a prediction never leaves the range its sensor was seen in, since nothing else keeps a long gap from
diverging. On benchmarks every window is filled on its own, as published; a table is filled in one go from beginning to
end, which is better, since only its first steps have no past.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from casper.baselines.mean import sensor_means
from casper.contract import Imputer
from casper.datasets import Benchmark
from casper.errors import InputError
from casper.frame import SensorFrame
from casper.graph import SensorGraph

_PERSISTENCE = 0.97  # what the first round takes for A[1]: tomorrow much like today, and a little closer to the mean
_WINDOWS_AT_ONCE = 256


class VectorAutoregressionImputer(Imputer):
    """Predictions from the last `order` steps. ridge: the weight of the penalty, in steps' worth of readings; rounds:
    how often the table is filled and the model fitted to it; window: the steps of a window in which it is fitted."""

    name = "var"
    summary = "vector autoregression on the last five steps of all sensors (GRIN's VAR; Cini et al., ICLR 2022)"

    def __init__(self, *, order: int = 5, ridge: float = 30.0, rounds: int = 6, window: int = 24) -> None:
        if min(order, rounds, window) < 1:
            raise InputError(f"order, rounds and window must be at least 1, got {order}, {rounds} and {window}")
        if not ridge > 0:
            raise InputError(f"ridge must be positive, got {ridge}")
        self._order, self._ridge, self._rounds, self._window = order, ridge, rounds, window

    def fit_benchmark(self, benchmark: Benchmark) -> None:
        self._window = benchmark.window
        super().fit_benchmark(benchmark)

    def fit_frame(self, frame: SensorFrame, graph: SensorGraph) -> None:
        self._means = sensor_means(frame)
        alive = np.flatnonzero(frame.observed.any(axis=0))
        # Sums are rounded in the order of their terms: by name, the order of the columns makes no difference.
        self._used = alive[np.argsort(np.array(frame.sensors)[alive], kind="stable")]
        deviation = np.nanstd(frame.values[:, self._used], axis=0)
        self._spread = np.where(deviation > 0, deviation, 1.0)
        scaled, observed = self._scaled(frame)
        self._lowest, self._highest = scaled.min(axis=0), scaled.max(axis=0)  # the zeros in the holes are the means

        size = len(self._used)
        self._coefficients = np.zeros((size, self._order * size + 1))  # lags from the oldest on, then the constant
        newest = (self._order - 1) * size
        self._coefficients[:, newest : newest + size] = _PERSISTENCE * np.eye(size)
        window = min(self._window, len(scaled))
        for number in range(self._rounds):
            first = number * min(window, len(scaled) - window + 1) // self._rounds  # other windows in every round
            starts = np.arange(first, len(scaled) - window + 1, window)
            self._coefficients = self._refit(scaled, observed, starts[:, None] + np.arange(window))

    def impute_frame(self, frame: SensorFrame) -> NDArray[np.float64]:
        scaled, observed = self._scaled(frame)
        series = np.concatenate([np.zeros((self._order, len(self._used))), scaled])  # before the table: the means
        for step in np.flatnonzero(~observed.all(axis=1)):
            holes = np.flatnonzero(~observed[step])
            lags = np.append(series[step : step + self._order].ravel(), 1.0)
            predicted = self._coefficients[holes] @ lags
            series[step + self._order, holes] = np.clip(predicted, self._lowest[holes], self._highest[holes])
        filled = np.tile(self._means, (len(scaled), 1))
        filled[:, self._used] += series[self._order :] * self._spread
        return np.where(frame.observed, frame.values, filled)

    def impute_windows(self, benchmark: Benchmark) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Every window on its own, as in the published figures: nothing before its first step is known."""
        self.check_benchmark(benchmark)
        scaled, observed = self._scaled(benchmark.visible_frame)
        for starts in _batches(benchmark.test_starts):
            cells = starts[:, None] + np.arange(benchmark.window)
            series, _ = self._walk(scaled[cells], observed[cells])
            filled = np.tile(self._means, (*cells.shape, 1))
            filled[:, :, self._used] += series[:, self._order :] * self._spread
            yield starts, filled.swapaxes(1, 2)

    def _refit(
        self, scaled: NDArray[np.float64], observed: NDArray[np.bool_], windows: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """(N, order * N + 1) the ridge regression on the windows (W, steps), filled with the present coefficients."""
        inputs = self._coefficients.shape[1]
        penalty = np.append(np.full(inputs - 1, self._ridge), 0.0)
        normal = np.diag(penalty)
        right = -penalty[:, None] * self._coefficients.T
        for cells in _batches(windows):
            series, predicted = self._walk(scaled[cells], observed[cells])
            lags = [series[:, lag : lag + cells.shape[1]] for lag in range(self._order)]
            rows = np.concatenate([*lags, np.ones((*cells.shape, 1))], axis=2).reshape(-1, inputs)
            missed = np.where(observed[cells], scaled[cells] - predicted, 0.0)
            normal += rows.T @ rows
            right += rows.T @ missed.reshape(len(rows), -1)
        return self._coefficients + np.linalg.solve(normal, right).T

    def _walk(
        self, scaled: NDArray[np.float64], observed: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The windows (B, steps, N) with the past put before them and the holes filled, and the prediction of every
        cell before it was limited to the sensor's range."""
        shown = scaled.sum(axis=1) / np.maximum(observed.sum(axis=1), 1)  # (B, N)
        series = np.concatenate([np.repeat(shown[:, None], self._order, axis=1), scaled], axis=1)
        predicted = np.empty_like(scaled)
        for step in range(scaled.shape[1]):
            lags = series[:, step : step + self._order].reshape(len(series), -1)
            predicted[:, step] = lags @ self._coefficients[:, :-1].T + self._coefficients[:, -1]
            limited = np.clip(predicted[:, step], self._lowest, self._highest)
            series[:, step + self._order] = np.where(observed[:, step], scaled[:, step], limited)
        return series, predicted

    def _scaled(self, frame: SensorFrame) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """(T, used sensors) in standard units with zeros in the holes, and where there are none."""
        observed = np.ascontiguousarray(frame.observed[:, self._used])
        standard = (frame.values[:, self._used] - self._means[self._used]) / self._spread
        return np.ascontiguousarray(np.where(observed, standard, 0.0)), observed


def _batches(rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for first in range(0, len(rows), _WINDOWS_AT_ONCE):
        yield rows[first : first + _WINDOWS_AT_ONCE]
