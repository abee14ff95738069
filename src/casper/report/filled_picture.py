"""One sensor of a filled table: readings, filled values and their error bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from casper.report.runs import with_neighbours
from casper.report.style import FILLED, MEASURED

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from casper.filled import Filled


def draw_filled(filled: Filled, sensor: str, *, start: Any = None, end: Any = None, ax: Axes | None = None) -> Axes:
    """Readings as a line, filled values as another, the intervals as bands behind them."""
    if ax is None:  # a figure of pyplot's, which notebooks show by themselves
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(9, 3), layout="constrained")

    def shown(table: pd.DataFrame) -> pd.Series:
        # The rows have the caller's order, a line needs that of time.
        column = table[sensor]
        return (column if column.index.is_monotonic_increasing else column.sort_index(kind="stable")).loc[start:end]

    values, observed = shown(filled.table), shown(filled.observed)
    numbers, times = values.to_numpy(dtype=float), values.index
    missing = ~observed.to_numpy()
    beside = with_neighbours(missing)
    for share, strength in zip(reversed(filled.shares), np.linspace(0.18, 0.4, len(filled.shares)), strict=True):
        low = np.where(beside, shown(filled.lower[share]).to_numpy(dtype=float), np.nan)
        high = np.where(beside, shown(filled.upper[share]).to_numpy(dtype=float), np.nan)
        label = f"{share:.0%} of true values"
        ax.fill_between(times, low, high, color=FILLED, alpha=float(strength), linewidth=0, label=label)
    ax.plot(times, np.where(beside, numbers, np.nan), color=FILLED, linewidth=1.2, label="filled")
    ax.plot(times, np.where(missing, np.nan, numbers), color=MEASURED, linewidth=1.2, label="measured")
    lonely = ~missing & np.r_[missing[1:], True] & np.r_[True, missing[:-1]]  # a line of one point cannot be seen
    ax.plot(times[lonely], numbers[lonely], ".", color=MEASURED, markersize=3)
    ax.set_title(f"sensor {sensor}", loc="left")
    ax.margins(x=0.01)
    ax.legend(loc="upper right", frameon=False, ncols=4, fontsize="small")
    return ax
