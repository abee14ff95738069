"""Imputers that know how far they are off, because they held readings back when they were fitted."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from casper.config import TrainingConfig
from casper.contract import Imputer
from casper.datasets import Benchmark
from casper.errors import InputError
from casper.frame import SensorFrame
from casper.intervals.calibration import FEWEST_CELLS, FEWEST_OF_A_GROUP, Calibration, HeldBack
from casper.intervals.error_bars import ErrorBars, Reading, draw_error_bars, held_back_cells
from casper.masks import LONG_GAP, beside_long_gaps, gap_lengths, hide_like_gaps, lengthen_gaps
from casper.windows import spread_stretches

# Scored cells of a benchmark's validation windows that are enough to calibrate error bars on.
_ENOUGH_HELD_BACK = 20_000
# Of a large table no more cells than this are filled for that purpose ...
_MOST_CELLS = 4_000_000
# ... and more held-back ones than this teach nothing new.
_MOST_TO_LEARN_FROM = 100_000
# So much of the readings held back are the ones beside long gaps, of which copied gaps tell nothing.
_BESIDE_GAPS = 0.2
DRAWS = 4
"""How often readings of a table are hidden that was not learned from."""


class CalibratedImputer(Imputer):
    """Holds readings back, and judges by them how far estimates are off."""

    training: TrainingConfig
    seed: int
    _calibration: Calibration | None = None
    held_back_mae: float | None = None
    """Mean absolute error on the readings held back, in a table filled at one go; of a loaded model not known."""
    most_of_the_error: str | None = None
    """The sensor that has more than half of it, if there is one."""

    @abstractmethod
    def reading(self) -> Reading:
        """How the fitted method reads tables."""

    @abstractmethod
    def check_length(self, frame: SensorFrame) -> None:
        """Refuse tables that are too short."""

    def hold_back(self, frame: SensorFrame, *, draw: int = 0, at: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """(T, N), readings that are not learned from: the same ones of the same table. Other draws are of others.

        at: a share of the readings of these steps (T,) alone, however many of the whole table it may be.
        """
        random = np.random.default_rng((self.seed, draw) if draw else self.seed)
        steps = np.ones(len(frame.times), dtype=bool) if at is None else at
        held = np.zeros(frame.observed.shape, dtype=bool)
        observed, share = frame.observed[steps], self.training.validation_share
        held[steps] = hide_like_gaps(observed, share=share, rng=random)
        held[steps] |= lengthen_gaps(observed, share=_BESIDE_GAPS * share, rng=random)
        return held

    def calibrate(self, table: pd.DataFrame | SensorFrame, *, draws: int = 1) -> Self:
        """Error bars anew, judged by some of this table's readings, hidden from the model in the shapes of its gaps.

        `fit` does it on the readings that it holds back. A model that is used for another time than it was fitted on,
        or that was saved without error bars, may learn from a newer table how far it is off. draws: hide readings so
        many times, to judge by more of them; with more than 1 the table must be one that was not learned from.
        """
        if draws < 1:
            raise InputError(f"readings are hidden at least once, not {draws} times")
        frame = table if isinstance(table, SensorFrame) else self.to_frame(table)
        frame = frame.select(self.column_order(frame))
        self.check_length(frame)
        before = self._calibration, self.held_back_mae, self.most_of_the_error
        self.calibrate_frame(frame, *(self.hold_back(frame, draw=draw) for draw in range(draws)))
        if self._calibration is None:
            self._calibration, self.held_back_mae, self.most_of_the_error = before
            raise InputError(
                f"the table has too few readings to calibrate error bars on: at least {FEWEST_CELLS} must be hidden, "
                f"and {self.training.validation_share:.0%} of them are"
            )
        return self

    def calibrate_on(self, benchmark: Benchmark) -> None:
        """By the scored cells of the validation windows, and if they are few of the training windows, too."""
        watched = benchmark.validation_steps
        if not self.training.train_on_hidden and (benchmark.hidden & watched[:, None]).sum() < _ENOUGH_HELD_BACK:
            watched = watched | benchmark.train_steps  # their scored cells were not learned from, either
        self.calibrate_frame(benchmark.frame, benchmark.hidden, at=watched & ~benchmark.test_steps)

    def calibrated_within(self, benchmark: Benchmark) -> Self:
        """A copy that judges by visible readings of the test steps, hidden for this purpose, as `calibrate` does."""
        shown, other = benchmark.visible_frame, copy.copy(self)
        draws = (self.hold_back(shown, draw=1 + number, at=benchmark.test_steps) for number in range(DRAWS))
        other.calibrate_frame(shown, *draws, at=benchmark.test_steps)
        return other

    def calibrate_frame(
        self, frame: SensorFrame, *draws: NDArray[np.bool_], at: NDArray[np.bool_] | None = None
    ) -> None:
        """By readings (T, N) that were not learned from; at: only those of some steps (T,).

        All of a draw is hidden, also where nothing is looked at. Nothing comes of it if there are too few.
        """
        reading = self.reading()
        steps = np.ones(len(frame.times), dtype=bool) if at is None else at
        chosen = spread_stretches(steps, reading.window, _MOST_CELLS // len(frame.sensors) // len(draws))
        self._calibration = self.held_back_mae = self.most_of_the_error = None
        beside = beside_long_gaps(frame.observed) & chosen[:, None]
        enough_beside = sum(int((held & beside).sum()) for held in draws) >= FEWEST_OF_A_GROUP
        cells, off = list[HeldBack](), list[NDArray[np.float64]]()
        of_sensor = np.zeros(len(frame.sensors))
        for held in draws:
            looked_at = held & frame.observed & chosen[:, None]
            if enough_beside:  # then the ends of copied gaps need not stand for those of real ones
                looked_at &= beside | ~_at_ends_of_long_gaps(frame.observed & ~held)
            if not looked_at.any():
                continue
            shown = frame.hide(held)
            filled = self.impute_steps(shown, chosen)
            off.append(np.abs(filled - frame.values)[looked_at])
            of_sensor += np.bincount(np.nonzero(looked_at)[1], weights=off[-1], minlength=len(of_sensor))
            most = _MOST_TO_LEARN_FROM // len(draws)
            cells.append(held_back_cells(reading, frame, shown, filled, looked_at, most=most, seed=self.seed))
        if sum(map(len, off)) < FEWEST_CELLS:
            return
        self.held_back_mae = float(np.concatenate(off).mean())
        if len(of_sensor) > 2 and of_sensor.max() > of_sensor.sum() / 2:
            self.most_of_the_error = frame.sensors[int(of_sensor.argmax())]
        self._calibration = Calibration.fit(HeldBack.joined(cells), sensors=len(frame.sensors))

    @property
    def why_no_intervals(self) -> str | None:
        if self._graph is not None and self._calibration is None:
            return (
                "this model has no error bars: it was saved by an older version or fitted on too few readings "
                f"(at least {FEWEST_CELLS} must be held back); calibrate(table) gives it some, if the table is long"
            )
        return None

    def error_bars(self, frame: SensorFrame, filled: NDArray[np.float64], shares: Sequence[float]) -> ErrorBars:
        assert self._calibration is not None, "asked for before"
        return draw_error_bars(self._calibration, self.reading(), frame, filled, shares)


def _at_ends_of_long_gaps(visible: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(T, N): holes beside a reading."""
    beside = np.zeros(visible.shape, dtype=bool)
    beside[1:] |= visible[:-1]
    beside[:-1] |= visible[1:]
    return beside & (gap_lengths(visible) > LONG_GAP)
