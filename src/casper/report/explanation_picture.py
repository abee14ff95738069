"""What one value was made from, as a picture: the paper's Figure 5 for any value."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from casper.explanation import Explanation
from casper.report.pictures import BLUE, INK, VERMILLION

_PANELS = {
    "attention": ("without gates", "correlation weight"),
    "rho": ("gates", "probability that the gate is open"),
    "weight": ("with gates", "weight in the message"),
}
_MOST_NAMES = 40


def explanation_picture(explanation: Explanation, *, title: str | None = None) -> Figure:
    """Source sensors down, steps of the window across; attention alone, the gates, and what the gates leave of it."""
    sources = explanation.attention.index
    height = float(np.clip(1.8 + 0.2 * len(sources), 3.0, 9.0))
    figure = Figure(figsize=(12, height), layout="constrained")
    panels = figure.subplots(1, len(_PANELS), sharey=True)
    both = max(float(explanation.attention.to_numpy().max()), float(explanation.weight.to_numpy().max()), 1e-12)
    for axes, (name, (heading, label)) in zip(panels, _PANELS.items(), strict=True):
        table: pd.DataFrame = getattr(explanation, name)
        image = _draw(axes, table, explanation, most=1.0 if name == "rho" else both)
        axes.set_title(heading, loc="left", fontsize=11, color=INK)
        figure.colorbar(image, ax=axes, location="bottom", pad=0.02, aspect=30).set_label(label)
    panels[0].set_ylabel("source sensor")
    if len(sources) <= _MOST_NAMES:
        panels[0].set_yticks(range(len(sources)), list(sources), fontsize=8)
    words = f"What sensor {explanation.sensor} at {explanation.time:%Y-%m-%d %H:%M} was drawn from"
    figure.suptitle(words if title is None else title, x=0.01, ha="left", fontsize=13, color=INK)
    return figure


def _draw(axes: Axes, table: pd.DataFrame, explanation: Explanation, *, most: float) -> AxesImage:
    colours = LinearSegmentedColormap.from_list("drawn on", ["#FFFFFF", "#9CC7E0", BLUE, "#00294A"])
    image = axes.imshow(table.to_numpy(), aspect="auto", cmap=colours, vmin=0, vmax=most, interpolation="nearest")
    step = int(np.flatnonzero(explanation.attention.columns == explanation.time)[0])
    axes.axvline(step, color=VERMILLION, linewidth=1.2)
    lags = step - np.arange(len(table.columns))
    shown = np.unique(np.append(np.arange(0, len(lags), max(1, len(lags) // 6)), step))
    axes.set_xticks(shown, [f"{lags[place]:+d}" if lags[place] else "0" for place in shown], fontsize=8)
    axes.set_xlabel("lag (+: the source is so many steps older)")
    return image
