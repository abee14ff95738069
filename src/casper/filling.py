"""What a method put into the holes of a frame: made once, then shown as a table, with error bars, or in a report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from casper.filled import Filled
from casper.frame import SensorFrame
from casper.intervals.error_bars import ErrorBars


@dataclass(frozen=True, eq=False)
class Filling:
    """estimate: (T, N) without NaN, sensors in the order of the frame, as in `bars`, which are None if nobody asked.
    cut_off: sensors that cannot be filled well, and why."""

    method: str
    frame: SensorFrame
    estimate: NDArray[np.float64]
    bars: ErrorBars | None
    cut_off: dict[str, str]

    def table(self, *, all_steps: bool = False) -> pd.DataFrame:
        """The caller's table without holes: its rows, or with `all_steps` every step."""
        result = self.frame.restore(self.estimate, all_steps=all_steps)
        result.attrs["casper"] = {
            "method": self.method,
            "filled": self.frame.hole_count(all_steps=all_steps),
            "notes": list(self.frame.notes),
            "flagged": list(self.frame.dead),
        }
        return result

    def with_bars(self, *, all_steps: bool = False) -> Filled:
        """The same with the ends of its intervals."""

        def as_table(values: NDArray[Any]) -> pd.DataFrame:
            return self.frame.as_table(values, all_steps=all_steps)

        assert self.bars is not None, "asked for before"
        return self._filled(self.table(all_steps=all_steps), self.bars, as_table)

    def on_grid(self) -> Filled:
        """Every step under the frame's own stamps, as plain numbers; without error bars if there are none."""
        frame = self.frame

        def as_table(values: NDArray[Any]) -> pd.DataFrame:
            return pd.DataFrame(values, index=frame.times, columns=list(frame.sensors))

        silent = ~frame.observed & np.isin(frame.sensors, frame.dead)
        bars = ErrorBars({}, {}, silent) if self.bars is None else self.bars
        return self._filled(as_table(np.where(frame.observed, frame.values, self.estimate)), bars, as_table)

    def _filled(self, table: pd.DataFrame, bars: ErrorBars, as_table: Callable[[NDArray[Any]], pd.DataFrame]) -> Filled:
        return Filled(
            table=table,
            observed=as_table(self.frame.observed),
            lower={share: as_table(lower) for share, lower in bars.lower.items()},
            upper={share: as_table(upper) for share, upper in bars.upper.items()},
            flagged=as_table(bars.flagged),
            flagged_sensors=self.cut_off,
            notes=self.frame.notes,
        )
