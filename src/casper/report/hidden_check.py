"""How good the filling is: some readings are hidden, filled like holes, and compared with what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from casper.baselines.linear import interpolate
from casper.check import GAP_LENGTHS
from casper.contract import Imputer
from casper.errors import InputError
from casper.frame import SensorFrame
from casper.intervals.calibrated import CalibratedImputer
from casper.intervals.calibration import reach_of
from casper.masks import gap_lengths, hide_like_gaps, steps_to_reading

USUAL_SHARE = 0.05
MOST_CELLS = 4_000_000
"""Of larger tables only some stretches are looked at."""
STRETCHES = 8
FEWEST_STEPS = 256  # of a stretch, so that windows of the usual lengths fit


@dataclass(frozen=True)
class Scores:
    """Of some hidden cells: mean absolute errors; for each share, how many true values its interval holds, and how
    wide it is on average."""

    cells: int
    mae: float
    mae_of_linear: float
    held: dict[float, float]
    width: dict[float, float]

    @property
    def gain(self) -> float:
        """How much smaller the error is than that of linear interpolation."""
        return 1 - self.mae / self.mae_of_linear if self.mae_of_linear > 0 else float("nan")


@dataclass(frozen=True)
class HiddenCheck:
    total: Scores
    by_gap: dict[str, Scores]
    """Lengths of gaps in steps, as `casper.check.GAP_LENGTHS` names them; only those that occur."""
    by_sensor: dict[str, Scores]
    stretches: int
    """0 if the whole table was looked at."""
    reach: int
    """In steps; hardly any hidden cell is farther from its sensor's nearest reading."""
    beyond: float
    """The share of the table's holes that are."""


@dataclass(frozen=True)
class _Cells:
    sensor: NDArray[np.int64]
    gap: NDArray[np.int64]
    truth: NDArray[np.float64]
    estimate: NDArray[np.float64]
    linear: NDArray[np.float64]
    lower: dict[float, NDArray[np.float64]]
    upper: dict[float, NDArray[np.float64]]

    def scores(self, chosen: NDArray[np.bool_]) -> Scores:
        truth = self.truth[chosen]
        inside = {s: (self.lower[s][chosen] <= truth) & (truth <= self.upper[s][chosen]) for s in self.lower}
        return Scores(
            cells=len(truth),
            mae=float(np.abs(self.estimate[chosen] - truth).mean()),
            mae_of_linear=float(np.abs(self.linear[chosen] - truth).mean()),
            held={share: float(held.mean()) for share, held in inside.items()},
            width={s: float((self.upper[s][chosen] - self.lower[s][chosen]).mean()) for s in self.lower},
        )


def hidden_check(model: Imputer, frame: SensorFrame, grid: pd.DataFrame, shares: Sequence[float]) -> HiddenCheck | None:
    """grid: the frame's values as a table. shares: of the intervals, none if the model has none.

    The cells are the ones that the model's own fit holds back on this table, so a model that was fitted on it has not
    learned from them. None if the table is too small to hide anything.
    """
    hidden = held_back(model, frame)
    linear = interpolate(frame.hide(hidden))
    parts: list[_Cells] = []
    stretches = _stretches(frame)
    for rows in stretches:
        scored = hidden[rows]
        if not scored.any():
            continue
        try:
            parts.append(_compare(model, grid.iloc[rows], scored, linear[rows], shares))
        except InputError:  # a stretch in which nothing at all was read
            if len(stretches) == 1:
                raise
    if not parts:
        return None
    cells, reach = _joined(parts), reach_of(steps_to_reading(frame.observed & ~hidden)[hidden])
    every = np.ones(len(cells.truth), dtype=bool)
    by_gap = {label: (low <= cells.gap) & (cells.gap <= (high or np.inf)) for label, (low, high) in GAP_LENGTHS.items()}
    by_sensor = {sensor: cells.sensor == number for number, sensor in enumerate(frame.sensors)}
    return HiddenCheck(
        total=cells.scores(every),
        by_gap={label: cells.scores(chosen) for label, chosen in by_gap.items() if chosen.any()},
        by_sensor={sensor: cells.scores(chosen) for sensor, chosen in by_sensor.items() if chosen.any()},
        stretches=0 if len(stretches) == 1 else len(parts),
        reach=reach,
        beyond=_share_beyond(frame.observed, reach),
    )


def held_back(model: Imputer, frame: SensorFrame) -> NDArray[np.bool_]:
    """(T, N) as the fit draws them, or some if the model holds nothing back."""
    if not isinstance(model, CalibratedImputer):
        return hide_like_gaps(frame.observed, share=USUAL_SHARE, rng=np.random.default_rng(0))
    order = model.column_order(frame)
    hidden = np.zeros(frame.observed.shape, dtype=bool)
    hidden[:, order] = model.hold_back(frame.select(order))
    return hidden


def _share_beyond(observed: NDArray[np.bool_], reach: int) -> float:
    holes = ~observed & observed.any(axis=0)
    return float((steps_to_reading(observed) > reach)[holes].mean()) if holes.any() else 0.0


def _stretches(frame: SensorFrame) -> list[slice]:
    steps, sensors = frame.observed.shape
    length = max(MOST_CELLS // sensors // STRETCHES, FEWEST_STEPS)
    if steps * sensors <= MOST_CELLS or steps <= STRETCHES * length:
        return [slice(0, steps)]
    starts = np.linspace(0, steps - length, STRETCHES).round().astype(np.int64)
    return [slice(int(start), int(start) + length) for start in starts]


def _compare(
    model: Imputer,
    table: pd.DataFrame,
    scored: NDArray[np.bool_],
    linear: NDArray[np.float64],
    shares: Sequence[float],
) -> _Cells:
    visible = table.mask(scored)
    filling = model.fill(model.to_frame(visible), intervals=tuple(shares) or None)
    lower: dict[float, NDArray[np.float64]] = {}
    upper: dict[float, NDArray[np.float64]] = {}
    if shares:
        filled = filling.with_bars()
        estimate = filled.table.to_numpy(dtype=np.float64)
        lower = {share: filled.lower[share].to_numpy()[scored] for share in shares}
        upper = {share: filled.upper[share].to_numpy()[scored] for share in shares}
    else:
        estimate = filling.table().to_numpy(dtype=np.float64)
    return _Cells(
        sensor=np.nonzero(scored)[1],
        gap=gap_lengths(visible.notna().to_numpy())[scored],
        truth=table.to_numpy(dtype=np.float64)[scored],
        estimate=estimate[scored],
        linear=linear[scored],
        lower=lower,
        upper=upper,
    )


def _joined(parts: Sequence[_Cells]) -> _Cells:
    def both(name: str) -> dict[float, NDArray[np.float64]]:
        return {share: np.concatenate([getattr(part, name)[share] for part in parts]) for share in parts[0].lower}

    return _Cells(
        sensor=np.concatenate([part.sensor for part in parts]),
        gap=np.concatenate([part.gap for part in parts]),
        truth=np.concatenate([part.truth for part in parts]),
        estimate=np.concatenate([part.estimate for part in parts]),
        linear=np.concatenate([part.linear for part in parts]),
        lower=both("lower"),
        upper=both("upper"),
    )
