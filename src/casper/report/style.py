"""How every picture looks: colours, figures, axes, titles, and how they are saved.

Figures are made without pyplot, so nothing here needs a display or touches a notebook's state. Colours are those of
Okabe and Ito, which colour-blind readers can tell apart; shades run from light to dark and can be told apart in print.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from casper.errors import InputError

BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
MEASURED, FILLED = BLUE, VERMILLION
GREY, INK, FAINT_INK, PALE = "#8C8C8C", "#222222", "#555555", "#D9D9D9"
SHADES = LinearSegmentedColormap.from_list("shades", ["#FFFFFF", "#9CC7E0", BLUE, "#00294A"])
"""From nothing to much."""

SUFFIXES = (".png", ".svg", ".pdf")


def new_figure(width: float, height: float) -> Figure:
    """In inches; nothing touches its edges."""
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.1))


def check_suffix(path: Path) -> None:
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: pictures are written as {', '.join(SUFFIXES)}; give the file one of these endings")


def save(figure: Figure, path: str | Path, *, dpi: int = 150) -> Path:
    """Write the figure as PNG, SVG or PDF, by the suffix; the same figure gives the same bytes."""
    path = Path(path)
    check_suffix(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata: dict[str, Any] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[path.suffix.lower()]
    with rc_context({"svg.hashsalt": "casper"}):
        figure.savefig(path, dpi=dpi, metadata=metadata)
    return path


def headline(figure: Figure, title: str) -> None:
    """Over all panels, from the left edge."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold", color=INK)


def axes_title(axes: Axes, title: str, subtitle: str = "") -> None:
    axes.set_title(title, loc="left", fontsize=13, fontweight="bold", pad=22 if subtitle else 8)
    if subtitle:
        note = axes.annotate(subtitle, (0, 1), xytext=(0, 6), xycoords="axes fraction", textcoords="offset points")
        note.set(fontsize=9.5, color=FAINT_INK)


def panel_title(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10.5)


def plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color="#E6E6E6", lw=0.7)
    axes.set_axisbelow(True)


def date_axis(axes: Axes, times: pd.DatetimeIndex) -> None:
    locator = AutoDateLocator(tz=times.tz, minticks=4, maxticks=9)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=times.tz))
    axes.set_xlabel("time")
