"""What one value was made from, as a picture: the paper's Figure 5 for any value."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from casper.explanation import Explanation
from casper.report.graph_pictures import MOST_NAMES
from casper.report.style import INK, PALE, SHADES, VERMILLION, headline, new_figure, panel_title

_PANELS = {
    "readings": ("input", "reading (grey: missing)"),
    "attention": ("without gates", "correlation weight"),
    "rho": ("gates", "probability that the gate is open"),
    "weight": ("with gates", "weight in the message"),
}


def explanation_picture(explanation: Explanation, *, title: str | None = None) -> Figure:
    """Sensors down, the one with the value first, and steps of the window across: the input, attention alone, the
    gates, and what the gates leave of it. A diamond marks the value. Models without gates have no more than attention.
    """
    gated = bool((explanation.rho.to_numpy() < 1).any())
    panels = {name: words for name, words in _PANELS.items() if gated or name in ("readings", "attention")}
    rows = explanation.readings.index
    figure = new_figure(1.2 + 3.3 * len(panels), float(np.clip(2.3 + 0.2 * len(rows), 3.4, 9.5)))
    both = max(float(explanation.attention.to_numpy().max()), float(explanation.weight.to_numpy().max()), 1e-12)
    drawn = figure.subplots(1, len(panels), sharey=True)
    for axes, (name, (heading, label)) in zip(drawn, panels.items(), strict=True):
        # A sensor that does not look at itself has a row in the input alone.
        table: pd.DataFrame = getattr(explanation, name).reindex(rows)
        image = _draw(axes, table, explanation, most={"readings": None, "rho": 1.0}.get(name, both))
        panel_title(axes, heading)
        bar = figure.colorbar(image, ax=axes, location="bottom", pad=0.02, aspect=30)
        bar.set_label(label, fontsize=9)
        bar.locator = MaxNLocator(nbins=4)
        bar.ax.tick_params(labelsize=8)
    drawn[0].set_ylabel("sensor")
    if len(rows) <= MOST_NAMES:
        drawn[0].set_yticks(range(len(rows)), list(map(str, rows)), fontsize=8)
    headline(figure, _words(explanation) if title is None else title)
    return figure


def _words(explanation: Explanation) -> str:
    measured = "" if explanation.measured is None else f", measured: {explanation.measured:.4g}"
    time = f"{explanation.time:%Y-%m-%d %H:%M}"
    return f"What sensor {explanation.sensor} at {time} was drawn from (estimate: {explanation.estimate:.4g}{measured})"


def _draw(axes: Axes, table: pd.DataFrame, explanation: Explanation, *, most: float | None) -> AxesImage:
    """most: what is darkest; None: readings, which have shades of their own."""
    colours = (colormaps["cividis"] if most is None else SHADES).with_extremes(bad=PALE)
    lowest = 0.0
    if most is None:  # a few extreme readings must not leave all others in one shade
        known = explanation.readings.to_numpy()[explanation.readings.notna().to_numpy()]
        lowest, most = (float(np.percentile(known, share)) for share in (2, 98)) if len(known) else (0.0, 1.0)
    image = axes.imshow(table, aspect="auto", cmap=colours, vmin=lowest, vmax=most, interpolation="nearest")
    step = int(np.flatnonzero(explanation.attention.columns == explanation.time)[0])
    axes.plot(step, 0, marker="D", color=VERMILLION, markeredgecolor="white", markersize=7, clip_on=False)
    lags = step - np.arange(len(table.columns))
    shown = [place for place in range(len(lags)) if (place - step) % max(1, len(lags) // 6) == 0]
    axes.set_xticks(shown, [f"{lags[place]:+d}" if lags[place] else "0" for place in shown], fontsize=8)
    axes.set_xlabel("steps older (+) or younger (-) than the value", fontsize=8, color=INK)
    return image
