"""How good an imputation is: MAE, MSE, MRE and interval coverage, counted per window and per step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from casper.errors import InputError


@dataclass(frozen=True)
class Scores:
    """Errors over `count` scored cells; NaN where nothing was scored."""

    mae: float
    mse: float
    mre: float
    """Sum of absolute errors as a percentage of the sum of absolute true values."""
    count: int


@dataclass
class ErrorSums:
    """Running sums, so that errors can be added batch by batch; averages are taken once, at the end."""

    absolute: float = 0.0
    squared: float = 0.0
    truth: float = 0.0
    count: int = 0

    def add(self, truth: NDArray[np.floating], imputed: NDArray[np.floating], times: ArrayLike = 1) -> None:
        """Adds scored cells; a cell counts as many `times` as it is said to (a number, or one per cell)."""
        true = np.asarray(truth, dtype=np.float64)
        error = np.abs(np.asarray(imputed, dtype=np.float64) - true)
        unusable = int(np.count_nonzero(~np.isfinite(error)))
        if unusable:
            raise InputError(f"{unusable} of {error.size} cells cannot be scored: truth or imputation is not a number")
        repeated = np.broadcast_to(np.asarray(times), error.shape)
        self.absolute += float(np.sum(error * repeated))
        self.squared += float(np.sum(np.square(error) * repeated))
        self.truth += float(np.sum(np.abs(true) * repeated))
        self.count += int(np.sum(repeated))

    def scores(self) -> Scores:
        if self.count == 0:
            return Scores(float("nan"), float("nan"), float("nan"), 0)
        relative = 100 * self.absolute / self.truth if self.truth > 0 else float("nan")
        return Scores(self.absolute / self.count, self.squared / self.count, relative, self.count)


def score_cells(truth: NDArray[np.floating], imputed: NDArray[np.floating], scored: NDArray[np.bool_]) -> Scores:
    """Every scored cell counts once."""
    sums = ErrorSums()
    sums.add(truth[scored], imputed[scored])
    return sums.scores()


def window_counts(starts: NDArray[np.int64], window: int, steps: int) -> NDArray[np.int64]:
    """(T,) how many of the windows that begin at `starts` cover each step."""
    change = np.bincount(starts, minlength=steps + 1) - np.bincount(starts + window, minlength=steps + 1)
    return np.cumsum(change)[:steps].astype(np.int64)


def score_table(
    truth: NDArray[np.floating],
    imputed: NDArray[np.floating],
    hidden: NDArray[np.bool_],
    *,
    starts: NDArray[np.int64],
    window: int,
) -> dict[str, float]:
    """Scores of a method that fills the whole (T, N) table once.

    `mae`, `mse`, `mre` count a hidden cell once per window that covers it; `mae_step`, `mse_step`, `mre_step` count it
    once; `n_scored` is how many different cells were scored.
    """
    counts = window_counts(starts, window, len(truth))
    steps, sensors = np.nonzero(hidden & (counts > 0)[:, None])
    true, filled = truth[steps, sensors], imputed[steps, sensors]
    per_window, per_step = ErrorSums(), ErrorSums()
    per_window.add(true, filled, counts[steps])
    per_step.add(true, filled)
    return _both(per_window, per_step)


def score_windows(
    batches: Iterable[tuple[NDArray[np.int64], NDArray[np.floating]]],
    *,
    truth: NDArray[np.floating],
    hidden: NDArray[np.bool_],
) -> dict[str, float]:
    """Scores of a method that fills window by window; the same figures as `score_table`.

    Each batch holds the first steps (B,) of its windows and their imputations (B, N, window). Per step, the
    imputations of a cell by overlapping windows are averaged before they are scored.
    """
    per_window, per_step = ErrorSums(), ErrorSums()
    average = PerStepAverage(truth.shape)
    for starts, imputed in batches:
        average.add(starts, imputed)
        steps = starts[:, None] + np.arange(imputed.shape[2])
        scored = hidden[steps].swapaxes(1, 2)  # (B, N, window)
        per_window.add(truth[steps].swapaxes(1, 2)[scored], imputed[scored])
    scored = hidden & average.covered[:, None]
    per_step.add(truth[scored], average.mean()[scored])
    return _both(per_window, per_step)


class PerStepAverage:
    """Mean over overlapping windows of the imputations of each cell of a (T, N) table."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._total = np.zeros(shape, dtype=np.float64)
        self._windows = np.zeros(shape[0], dtype=np.int64)

    def add(self, starts: NDArray[np.int64], imputed: NDArray[np.floating]) -> None:
        """Adds windows (B, N, window) that begin at `starts` (B,)."""
        window = imputed.shape[2]
        for start, filled in zip(starts, imputed, strict=True):
            self._total[start : start + window] += filled.T
            self._windows[start : start + window] += 1

    @property
    def covered(self) -> NDArray[np.bool_]:
        """(T,) steps that at least one window covers."""
        return self._windows > 0

    def mean(self) -> NDArray[np.float64]:
        """(T, N) averages; NaN at steps that no window covers."""
        return np.where(self.covered[:, None], self._total / np.maximum(self._windows, 1)[:, None], np.nan)


def coverage(
    truth: NDArray[np.floating],
    lower: NDArray[np.floating],
    upper: NDArray[np.floating],
    scored: NDArray[np.bool_],
) -> float:
    """Share of the scored cells whose true value lies within its interval, ends included; NaN if none is scored."""
    true = truth[scored]
    if true.size == 0:
        return float("nan")
    return float(np.mean((lower[scored] <= true) & (true <= upper[scored])))


def _both(per_window: ErrorSums, per_step: ErrorSums) -> dict[str, float]:
    windows, steps = per_window.scores(), per_step.scores()
    return {
        "mae": windows.mae,
        "mse": windows.mse,
        "mre": windows.mre,
        "mae_step": steps.mae,
        "mse_step": steps.mse,
        "mre_step": steps.mre,
        "n_scored": steps.count,
    }
