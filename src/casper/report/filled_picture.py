"""A filled table for people to look at: one sensor's series with its error bars, and a summary for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from casper.report.style import FILLED, MEASURED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from casper.filled import Filled

_SENSORS_SHOWN = 12


def draw_filled(filled: Filled, sensor: str, *, start: Any = None, end: Any = None, ax: Axes | None = None) -> Axes:
    """Readings as a line, filled values as another, the intervals as bands behind them."""
    if ax is None:  # a figure of pyplot's, which notebooks show by themselves
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(9, 3), layout="constrained")
    rows = slice(start, end)
    values, observed = filled.table[sensor].loc[rows], filled.observed[sensor].loc[rows]
    numbers, times = values.to_numpy(dtype=float), values.index
    missing = ~observed.to_numpy()
    beside = missing | np.roll(missing, 1) | np.roll(missing, -1)  # so that lines and bands meet the readings
    for share, strength in zip(reversed(filled.shares), np.linspace(0.18, 0.4, len(filled.shares)), strict=True):
        low = np.where(beside, filled.lower[share][sensor].loc[rows].to_numpy(dtype=float), np.nan)
        high = np.where(beside, filled.upper[share][sensor].loc[rows].to_numpy(dtype=float), np.nan)
        label = f"{share:.0%} of true values"
        ax.fill_between(times, low, high, color=FILLED, alpha=float(strength), linewidth=0, label=label)
    ax.plot(times, np.where(beside, numbers, np.nan), color=FILLED, linewidth=1.2, label="filled")
    ax.plot(times, np.where(missing, np.nan, numbers), color=MEASURED, linewidth=1.2, label="measured")
    lonely = ~missing & np.roll(missing, 1) & np.roll(missing, -1)  # a line of one point cannot be seen
    ax.plot(times[lonely], numbers[lonely], ".", color=MEASURED, markersize=3)
    ax.set_title(f"sensor {sensor}", loc="left")
    ax.margins(x=0.01)
    ax.legend(loc="upper right", frameon=False, ncols=4, fontsize="small")
    return ax


def filled_html(filled: Filled) -> str:
    """What was filled, sensor by sensor, those with most holes first."""
    holes = (~filled.observed).sum()
    shown = holes[holes > 0].sort_values(ascending=False).head(_SENSORS_SHOWN)
    widest = filled.shares[-1]
    rows = pd.DataFrame(
        {
            "filled": shown,
            "share": [f"{count / len(filled.table):.1%}" for count in shown],
            f"mean width of {widest:.0%} intervals": [
                f"{_mean_width(filled, str(name), widest):.3g}" for name in shown.index
            ],
            "": [escape(filled.flagged_sensors.get(str(name), "")) for name in shown.index],
        }
    )
    total, cells = int(holes.sum()), filled.table.size
    more = len(holes[holes > 0]) - len(shown)
    told = f"{total:,} of {cells:,} cells filled ({total / cells:.1%}) in {int((holes > 0).sum())} sensors"
    rest = f"<p>and {more} more sensors</p>" if more > 0 else ""
    rows.index = [escape(str(name)) for name in rows.index]
    return f"<p><b>{told}</b></p>{rows.to_html(escape=False, border=0)}{rest}"


def _mean_width(filled: Filled, sensor: str, share: float) -> float:
    missing = ~filled.observed[sensor].to_numpy()
    return float((filled.upper[share][sensor] - filled.lower[share][sensor]).to_numpy()[missing].mean())
