"""A filled table together with its error bars: what `impute(table, intervals=...)` gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from casper.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class Filled:
    """table: without holes. observed: where it was measured. lower, upper: for each share asked for, a table of the
    ends of the intervals, equal to the reading where there is one. flagged: filled values that are hardly better than a
    guess; flagged_sensors: sensors too cut off to be filled well, and why."""

    table: pd.DataFrame
    observed: pd.DataFrame
    lower: dict[float, pd.DataFrame]
    upper: dict[float, pd.DataFrame]
    flagged: pd.DataFrame
    flagged_sensors: dict[str, str]
    notes: tuple[str, ...] = ()

    @property
    def shares(self) -> tuple[float, ...]:
        """The shares asked for, narrowest interval first."""
        return tuple(sorted(self.lower))

    def plot(self, sensor: str, *, start: Any = None, end: Any = None, ax: Axes | None = None) -> Axes:
        """Readings, filled values and their intervals of one sensor, between two times if they are given."""
        from casper.report.filled_picture import draw_filled

        if sensor not in self.table.columns:
            raise InputError(f"there is no sensor {sensor!r} in the table")
        return draw_filled(self, sensor, start=start, end=end, ax=ax)

    def to_long(self) -> pd.DataFrame:
        """A row for every filled value: time, sensor, value, the ends of its intervals, and whether it is flagged."""
        holes = ~self.observed.to_numpy()
        rows, columns = holes.nonzero()
        told: dict[str, Any] = {
            "time": self.table.index[rows],
            "sensor": self.table.columns[columns],
            "value": self.table.to_numpy(dtype=float)[rows, columns],
        }
        for share in self.shares:
            told[f"lower_{share:g}"] = self.lower[share].to_numpy()[rows, columns]
            told[f"upper_{share:g}"] = self.upper[share].to_numpy()[rows, columns]
        return pd.DataFrame({**told, "flagged": self.flagged.to_numpy()[rows, columns]})

    def _repr_html_(self) -> str:
        from casper.report.notebook import filled_html

        return filled_html(self)
