"""From a frame to tensors: scaling, clock features, and batches of windows cut out of a series on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from casper.config import Scaling
from casper.errors import InputError
from casper.graph import SensorGraph
from casper.kernels import choose_version
from casper.metrics import window_counts

# Cells of a batch without gradients: enough to keep the device busy, few enough for a laptop's cache, a GPU's memory
# and the plain attention, which keeps every pair.
_CELLS_AT_ONCE = {"cpu": 2**14, "cuda": 2**20, "plain": 2**14}
_HOUR = pd.Timedelta(hours=1)
_DAY, _WEEK, _YEAR = 24.0, 168.0, 8766.0  # hours


@dataclass(frozen=True)
class Scaler:
    """Scaled = (value - mean) / deviation, one pair for each sensor (all alike with "global" scaling)."""

    mean: NDArray[np.float64]  # (N,)
    deviation: NDArray[np.float64]  # (N,)

    @classmethod
    def fit(cls, values: NDArray[np.float64], visible: NDArray[np.bool_], kind: Scaling, graph: SensorGraph) -> Scaler:
        """From the visible cells of (T, N). A sensor without any takes its neighbours' average, or everybody's."""
        count = visible.sum(axis=0)
        if not count.any():
            raise InputError("no value is visible to the model, so nothing can be learned from this table")
        filled = np.where(visible, values, 0.0)
        everywhere_mean = filled.sum() / count.sum()
        everywhere_deviation = _safe(
            np.sqrt(np.where(visible, (values - everywhere_mean) ** 2, 0.0).sum() / count.sum())
        )
        if kind == "global":
            same = np.ones(values.shape[1])
            return cls(everywhere_mean * same, everywhere_deviation * same)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = filled.sum(axis=0) / count
            variance = np.where(visible, (values - mean) ** 2, 0.0).sum(axis=0) / count
        reports = count > 0
        mean[~reports], variance[~reports] = 0.0, 0.0
        adjacency_sum = np.zeros((3, values.shape[1]))
        heard = reports[graph.source]
        for row, what in enumerate((np.ones_like(mean), mean, np.sqrt(variance))):
            np.add.at(adjacency_sum[row], graph.target[heard], (graph.weight * what[graph.source])[heard])
        around = np.maximum(adjacency_sum[0], 1e-12)
        lonely = adjacency_sum[0] == 0
        mean_around = np.where(lonely, mean[reports].mean(), adjacency_sum[1] / around)
        deviation_around = np.where(lonely, np.sqrt(variance[reports]).mean(), adjacency_sum[2] / around)
        mean = np.where(reports, mean, mean_around)
        deviation = np.where(reports, np.sqrt(variance), deviation_around)
        # A constant sensor has no scale of its own; a floor keeps its errors from dominating everybody's.
        floor = 1e-3 * np.median(deviation[reports])
        return cls(mean, _safe(np.maximum(deviation, floor)))

    def scale(self, values: NDArray[np.float64]) -> NDArray[np.float32]:
        return ((values - self.mean) / self.deviation).astype(np.float32)

    def unscale(self, scaled: NDArray[np.floating]) -> NDArray[np.float64]:
        return scaled.astype(np.float64) * self.deviation + self.mean


def _safe(deviation: NDArray[np.float64] | np.float64) -> NDArray[np.float64]:
    return np.where(deviation > 0, deviation, 1.0)


def choose_periods(step: pd.Timedelta, steps: int, *, harmonics: int = 1) -> tuple[float, ...]:
    """The cycles, in hours, that the table's step can show and its length can teach: day, week, year.

    harmonics: so many waves of the day, or of the year where days cannot be seen: also its half, third, ...
    """
    hours = step / _HOUR
    span = hours * steps
    days_are_seen = hours <= _DAY / 3
    parts = [(_DAY if days_are_seen else _YEAR) / number for number in range(2, harmonics + 1)]
    waves = [*parts, _DAY, _WEEK, _YEAR]
    periods = [period for period in waves if hours <= period / 3 and span >= 1.5 * period]
    return tuple(periods) or (_DAY,)


def clock_features(times: pd.DatetimeIndex, periods: tuple[float, ...]) -> NDArray[np.float32]:
    """(T, 2 * periods): sine and cosine of the local clock within each period."""
    local = times.tz_localize(None) if times.tz is not None else times
    # 2001-01-01 was a Monday, so that weeks begin where people expect them.
    hours = ((local - pd.Timestamp("2001-01-01")) / _HOUR).to_numpy(dtype=np.float64)
    angle = 2 * np.pi * hours[:, None] / np.asarray(periods)
    return np.concatenate((np.sin(angle), np.cos(angle)), axis=1).astype(np.float32)


@dataclass(frozen=True)
class Series:
    """A whole table on the device. values: (T, N) scaled, 0 where not visible; visible: (T, N); clock: (T, F)."""

    values: Tensor
    visible: Tensor
    clock: Tensor

    @classmethod
    def build(
        cls, scaled: NDArray[np.float32], visible: NDArray[np.bool_], clock: NDArray[np.float32], device: torch.device
    ) -> Series:
        return cls(
            torch.as_tensor(np.where(visible, scaled, 0.0), dtype=torch.float32, device=device),
            torch.as_tensor(visible, device=device),
            torch.as_tensor(clock, device=device),
        )

    def window(self, starts: Tensor, length: int, sensors: Tensor | None = None, *, reach: int = 0) -> Window:
        """starts: (B,) -> a batch of windows of `length` steps, of all sensors or of some.

        reach: so many steps on either side come with them, in `wide`.
        """
        rows = starts[:, None] + torch.arange(length, device=starts.device)  # (B, T)
        return Window(
            cut(self.values, starts, length, sensors),
            cut(self.visible, starts, length, sensors),
            self.clock[rows],
            self._wide(starts, length, sensors, reach) if reach else None,
        )

    def _wide(self, starts: Tensor, length: int, sensors: Tensor | None, reach: int) -> Window:
        rows = starts[:, None] + torch.arange(-reach, length + reach, device=starts.device)
        within = (rows >= 0) & (rows < len(self.values))
        rows = rows.clamp(0, len(self.values) - 1)
        at = rows if sensors is None else (rows[:, :, None], sensors)
        visible = self.visible[at] & within[:, :, None]
        return Window((self.values[at] * visible).mT, visible.mT, self.clock[rows])


@dataclass(frozen=True)
class Window:
    """values, visible: (B, N, T); clock: (B, T, F). wide: the same windows with what lies on either side of them;
    beyond the table's ends nothing is visible."""

    values: Tensor
    visible: Tensor
    clock: Tensor
    wide: Window | None = None

    @property
    def alone(self) -> tuple[Tensor, Tensor, Tensor]:
        """What most networks look at."""
        return self.values, self.visible, self.clock

    def map(self, change: Callable[[Tensor], Tensor]) -> Window:
        """Of what most networks look at."""
        return Window(change(self.values), change(self.visible), change(self.clock))


def cut(table: Tensor, starts: Tensor, length: int, sensors: Tensor | None = None) -> Tensor:
    """(T, N) and (B,) -> (B, N, length), of all sensors or of some."""
    rows = starts[:, None] + torch.arange(length, device=starts.device)  # (B, T)
    picked = table[rows] if sensors is None else table[rows[:, :, None], sensors]
    return picked.transpose(1, 2)  # (B, T, N) -> (B, N, T)


def spread_starts(steps: int, window: int, stride: int) -> NDArray[np.int64]:
    """Starts of windows that cover every step, `stride` apart, the last one flush with the end."""
    if steps < window:
        raise InputError(f"the table has {steps} steps, fewer than the model's window of {window}")
    starts = np.arange(0, steps - window + 1, stride)
    return np.unique(np.append(starts, steps - window))


def spread_stretches(steps: NDArray[np.bool_], window: int, most: int) -> NDArray[np.bool_]:
    """(T,): all of them, or evenly spread stretches of a few windows each that hold about `most` of the steps."""
    if steps.sum() <= most:
        return steps
    stretch = 4 * window
    every = max(1, round(int(steps.sum()) / max(most, stretch)))
    return steps & (np.cumsum(steps) // stretch % every == 0)


def refit_starts(starts: NDArray[np.int64], length: int, window: int, steps: int) -> NDArray[np.int64]:
    """Starts of windows of another length within the steps that a benchmark's windows cover."""
    if window == length:
        return starts
    return starts_within(window_counts(starts, length, steps) > 0, window)


def starts_within(steps: NDArray[np.bool_], window: int) -> NDArray[np.int64]:
    """Starts of all windows whose every step is among `steps`."""
    return np.flatnonzero(np.convolve(steps, np.ones(window), mode="valid") > window - 0.5)


def starts_with_readings(visible: NDArray[np.bool_], window: int) -> NDArray[np.int64]:
    """Starts of all windows that hold any of the visible cells (T, N): a network that reports in winter only, or by
    day, has many that hold none, of which nothing can be learned."""
    return np.flatnonzero(np.convolve(visible.any(axis=1), np.ones(window), mode="valid") > 0.5)


def windows_at_once(device: torch.device, cells_of_window: int) -> int:
    """How many windows make a good batch for predicting only."""
    kind = "plain" if choose_version(device) == "plain" else device.type
    return max(1, _CELLS_AT_ONCE[kind] // cells_of_window)
