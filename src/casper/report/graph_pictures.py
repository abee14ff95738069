"""Pictures of causal graphs: arrows between places on a map, or a matrix of sources and targets."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, cos, radians
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from casper.causal import CausalGraph
from casper.errors import InputError
from casper.frame import sensor_list
from casper.frame.sensors import KM_PER_DEGREE, on_plane
from casper.report.labels import label_places
from casper.report.style import BLUE, FAINT_INK, INK, PALE, SHADES, headline, new_figure, plain

BROWN = "#A6835B"
MOST_NAMES = 40
ARROWS_OF_SENSOR = 3
"""How many arrows end at a sensor, so that a map of many can be read."""
_FEW = 20
"""Sensors that a small map has room for."""
_NARROWEST, _FLATTEST = 0.75, 0.6
"""A map shows at least this share of its height as width, and of its width as height: sensors along a road need room
for their arrows."""


def graph_picture(
    graph: CausalGraph, sensors: pd.DataFrame | None = None, *, title: str = "Who influences whom"
) -> Figure:
    """A map with the strongest causes of every sensor where their places are given; else a matrix."""
    size = float(np.clip(2.6 + 0.2 * len(graph.sensors), 5.0, 8.5))
    figure = new_figure(size + 0.6, size) if sensors is None else map_figure(sensor_list(sensors))
    draw_graph(figure.add_subplot(), graph, sensors)
    headline(figure, title)
    return figure


def draw_graph(axes: Axes, graph: CausalGraph, sensors: pd.DataFrame | None = None) -> None:
    """Draws `graph_picture` into given axes."""
    if sensors is not None:
        draw_map(axes, sensors, graph.pairs().top(ARROWS_OF_SENSOR).edges)
    else:
        draw_matrix(axes, graph.matrix(), meaning=graph.meaning or "weight")


def map_picture(
    sensors: pd.DataFrame,
    edges: pd.DataFrame,
    *,
    ridge: NDArray[np.float64] | None = None,
    title: str = "Who influences whom",
    most_edges: int = 150,
) -> Figure:
    """Sensors in the plane and an arrow from each source to its target: wide when strong, coloured by its lag."""
    listed = sensor_list(sensors)
    figure = map_figure(listed)
    axes = figure.add_subplot()
    draw_map(axes, listed, edges, ridge=ridge, most_edges=most_edges)
    headline(figure, title)
    return figure


def map_figure(listed: pd.DataFrame) -> Figure:
    """An empty one, of a size that suits the places."""
    (left, right), (low, high) = map_limits(listed)
    ratio = (high - low) / ((right - left) * _shrink(listed))
    width = 8.5 if len(listed) <= _FEW else 11.0
    return new_figure(width, float(np.clip((width - 2.3) * ratio + 1.5, 4.5, width + 0.5)))


def draw_map(
    axes: Axes,
    sensors: pd.DataFrame,
    edges: pd.DataFrame,
    *,
    ridge: NDArray[np.float64] | None = None,
    most_edges: int = 150,
) -> None:
    """Draws `map_picture` into given axes.

    A pair with several lags shows the strongest of them; a sensor's influence on itself is not drawn.
    """
    listed = sensor_list(sensors)
    for column in ("source", "target", "lag", "weight"):
        if column not in edges.columns:
            raise InputError(f"edges: the column {column!r} is missing; it has {', '.join(map(str, edges.columns))}")
    unknown = sorted({str(name) for end in ("source", "target") for name in edges[end]} - set(listed.index))
    if unknown:
        raise InputError(f"edges: sensor {unknown[0]!r} has no coordinates; it is not in the list of sensors")
    between = edges[edges["source"] != edges["target"]].sort_values("weight", ascending=False, key=np.abs)
    between = between.drop_duplicates(["source", "target"])
    drawn = between.head(most_edges).iloc[::-1]  # the strongest last, on top

    prepare_map(axes, listed)
    longitude, latitude = listed["longitude"], listed["latitude"]
    crowded = len(listed) > MOST_NAMES
    if ridge is not None:
        width = 5 if crowded else 11
        axes.plot(ridge[:, 1], ridge[:, 0], color=BROWN, lw=width, alpha=0.55, zorder=1, label="ridge")
    size = 14 if crowded else 75
    axes.scatter(longitude, latitude, s=size, color="white", edgecolor=INK, lw=1.2, zorder=4, label="sensor")
    if ridge is not None:
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, fontsize=9, borderaxespad=0)
    draw_arrows(axes, listed, drawn, crowded=crowded)
    strongest = f"the strongest {len(drawn):,} of " if len(drawn) < len(between) else ""
    told = f"{len(listed):,} sensors, {strongest}{len(between):,} edges; the wider an arrow, the stronger"
    axes.set_title(told, loc="left", fontsize=9.5, color=FAINT_INK)
    if not crowded:
        label_places(axes, listed)


def prepare_map(axes: Axes, listed: pd.DataFrame) -> None:
    """Degrees are drawn as long as they are there; the sensors say what is worth showing."""
    axes.set_aspect(1 / _shrink(listed))
    across, up = map_limits(listed)
    flat = on_plane(listed)
    axes.set_xlabel("km east of the middle" if flat else "longitude (degrees)")
    axes.set_ylabel("km north of the middle" if flat else "latitude (degrees)")
    unit = 1 / KM_PER_DEGREE if flat else 1.0
    for axis, limits in ((axes.xaxis, across), (axes.yaxis, up)):
        round_numbers = np.asarray(MaxNLocator(nbins=6).tick_values(limits[0] / unit, limits[1] / unit))
        digits = max(len(f"{number:.6g}".partition(".")[2]) for number in round_numbers)
        axis.set_ticks(round_numbers * unit, [f"{number:.{digits}f}" for number in round_numbers])
    axes.set_xlim(*across)
    axes.set_ylim(*up)
    plain(axes)


def map_limits(listed: pd.DataFrame) -> tuple[tuple[float, float], tuple[float, float]]:
    """What to show: from and to, of longitude and of latitude."""
    shrink = _shrink(listed)
    middle, spans = [], []
    for name, scale in (("longitude", shrink), ("latitude", 1.0)):
        values = listed[name].to_numpy(dtype=np.float64)
        middle.append(float(values.min() + values.max()) / 2)
        spans.append(max(float(np.ptp(values)), 1e-3) * scale)
    across, up = max(spans[0], _NARROWEST * spans[1]), max(spans[1], _FLATTEST * spans[0])
    room = 0.58  # half of it, and some more
    return (
        (middle[0] - room * across / shrink, middle[0] + room * across / shrink),
        (middle[1] - room * up, middle[1] + room * up),
    )


def _shrink(listed: pd.DataFrame) -> float:
    """How long a degree of longitude is beside one of latitude."""
    return max(cos(radians(float(listed["latitude"].mean()))), 0.05)


def draw_arrows(
    axes: Axes, listed: pd.DataFrame, edges: pd.DataFrame, *, crowded: bool, colours: Sequence[str] | None = None
) -> None:
    """An arrow per edge between the places of its ends. colours: of each edge; else its lag's, with a bar of these."""
    if edges.empty:
        return
    places = listed[["longitude", "latitude"]].to_numpy(dtype=np.float64)
    source, target = (
        places[listed.index.get_indexer(pd.Index(edges[end].astype(str)))] for end in ("source", "target")
    )
    strength = edges["weight"].abs().to_numpy(dtype=np.float64)
    relative = strength / max(float(strength.max()), 1e-12)
    widths = 0.4 + 1.2 * relative if crowded else 0.7 + 2.8 * relative
    gap = 2 if crowded else 5  # points between an arrow and the middle of its sensors
    chosen = _lag_colours(axes, edges["lag"]) if colours is None else colours
    for start, end, colour, width in zip(source, target, chosen, widths, strict=True):
        arrow = FancyArrowPatch(
            (start[0], start[1]),
            (end[0], end[1]),
            arrowstyle="-|>",
            connectionstyle="arc3,rad=0.12",  # bent, so that there and back are two arrows
            mutation_scale=(5 if crowded else 7) + 2 * width,
            shrinkA=gap,
            shrinkB=gap,
            linewidth=width,
            color=colour,
            alpha=0.9,
            zorder=3,
        )
        axes.add_patch(arrow)


def _lag_colours(axes: Axes, given: pd.Series) -> list[str | tuple[float, ...]]:
    """A colour for each lag, with a bar that says so; one for all where a method does not tell lags apart."""
    if given.isna().any():
        return [BLUE] * len(given)
    lags = given.to_numpy(dtype=np.int64)
    lowest, highest = int(lags.min()), int(lags.max())
    if lowest == highest:
        words = f"all arrows: lag {lowest} (time steps)"
        axes.annotate(words, (0.99, 0.01), xycoords="axes fraction", ha="right", fontsize=9, color=FAINT_INK)
        return [BLUE] * len(given)
    # Without the palest end of the map, which would vanish on white.
    colours = ListedColormap(colormaps["viridis"](np.linspace(0.0, 0.8, highest - lowest + 1)))
    norm = BoundaryNorm(np.arange(lowest, highest + 2) - 0.5, colours.N)
    assert axes.figure is not None
    bar = axes.figure.colorbar(ScalarMappable(norm, colours), ax=axes, shrink=0.7, pad=0.02, aspect=30)
    bar.set_ticks([*range(lowest, highest + 1, ceil((highest - lowest + 1) / 10))])
    bar.ax.minorticks_off()
    bar.set_label("lag (time steps)")
    return [colours(norm(lag)) for lag in lags]


def draw_matrix(axes: Axes, weights: pd.DataFrame, *, meaning: str = "weight") -> None:
    """Sources down, targets across, the darker the stronger; a sensor's influence on itself is left grey.

    weights: sources in rows; meaning: what a weight is.
    """
    count = len(weights)
    strength = np.ma.masked_array(weights.to_numpy(dtype=np.float64), mask=np.eye(count, dtype=bool))
    colours = SHADES.with_extremes(bad=PALE)
    most = max(float(strength.max()), 1e-12) if count > 1 else 1.0
    image = axes.imshow(strength, cmap=colours, vmin=0, vmax=most, interpolation="nearest")
    if count <= MOST_NAMES:
        size = 8 if count <= 20 else 7
        names = [str(name) for name in weights.index]
        axes.set_yticks(range(count), names, fontsize=size)
        axes.set_xticks(range(count), names, fontsize=size, rotation=90)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    which = "" if count <= MOST_NAMES else " (position in the table)"
    axes.set_ylabel(f"source{which}")
    axes.set_xlabel(f"target{which}")
    assert axes.figure is not None
    bar = axes.figure.colorbar(image, ax=axes, pad=0.02, aspect=30, shrink=0.85)
    bar.set_label(fill(meaning, 58), fontsize=9)
    edges = int((strength.filled(0) > 0).sum())
    told = f"{edges:,} edges between {count:,} sensors; grey: a sensor with itself"
    axes.set_title(told, loc="left", fontsize=9.5, color=FAINT_INK)
