"""Pictures of tables, gaps, filled values, graphs and scores; each function returns a matplotlib Figure.

Figures are made without pyplot, so nothing here needs a display or touches a notebook's state. Colours are those of
Okabe and Ito, which colour-blind readers can tell apart.
"""

from __future__ import annotations

from math import ceil, cos, radians
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, LinearSegmentedColormap, ListedColormap
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from casper.errors import InputError
from casper.frame import sensor_list

BLUE, VERMILLION, GREY, INK = "#0072B2", "#D55E00", "#8C8C8C", "#222222"
MEASURED, BROWN = "#E3EDF4", "#A6835B"

MOST_TIME_BINS, MOST_SENSOR_BINS, MOST_NAMES = 1000, 400, 40
READABLE_PERIOD, PERIOD_PARTS = pd.Timedelta(days=10), 4
MOST_PANELS = 4
SUFFIXES = (".png", ".svg", ".pdf")


def save(figure: Figure, path: str | Path, *, dpi: int = 150) -> Path:
    """Write the figure as PNG, SVG or PDF, by the suffix; the same figure gives the same bytes."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: pictures are written as {', '.join(SUFFIXES)}; give the file one of these endings")
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata: dict[str, Any] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[suffix]
    with rc_context({"svg.hashsalt": "casper"}):
        figure.savefig(path, dpi=dpi, metadata=metadata)
    return path


def gap_picture(observed: pd.DataFrame, *, title: str = "Measured and missing readings") -> Figure:
    """Sensors down, time across, dark where readings are missing; large tables show the missing share of each bin."""
    times = _times(observed)
    values = observed.to_numpy(dtype=bool)
    steps, sensors = values.shape
    time_edges, sensor_edges = _bin_edges(steps, MOST_TIME_BINS), _bin_edges(sensors, MOST_SENSOR_BINS)
    seen = np.add.reduceat(values, time_edges[:-1], axis=0, dtype=np.int64)
    seen = np.add.reduceat(seen, sensor_edges[:-1], axis=1)
    missing = 1 - seen / np.outer(np.diff(time_edges), np.diff(sensor_edges))

    figure = Figure(figsize=(10, float(np.clip(1.6 + 0.19 * sensors, 2.8, 6.5))), layout="constrained")
    axes = figure.add_subplot()
    colours = LinearSegmentedColormap.from_list("missing", [MEASURED, "#F2B58A", VERMILLION, "#7A3500"])
    borders = date2num(times.append(pd.DatetimeIndex([times[-1] + _spacing(times)])))
    image = axes.pcolormesh(
        borders[time_edges], sensor_edges - 0.5, missing.T, cmap=colours, vmin=0, vmax=1, rasterized=True
    )
    axes.invert_yaxis()
    if sensors <= MOST_NAMES:
        axes.set_yticks(range(sensors), [str(name) for name in observed.columns], fontsize=8)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axes.set_ylabel("sensor" if sensors <= MOST_NAMES else "sensor (position in the table)")
    _date_axis(axes, times)
    _title(axes, title, f"{sensors:,} sensors, {steps:,} time steps, {1 - values.mean():.1%} missing")
    if len(time_edges) == steps + 1 and len(sensor_edges) == sensors + 1:
        keys = [Patch(color=colours(0.0), label="measured"), Patch(color=colours(1.0), label="missing")]
        figure.legend(handles=keys, loc="outside lower right", ncols=2, frameon=False)
    else:
        bar = figure.colorbar(image, ax=axes, pad=0.01, aspect=30, format=PercentFormatter(1.0))
        bar.set_label("missing share of the bin")
    return figure


def filled_picture(
    table: pd.DataFrame,
    filled: pd.DataFrame,
    *,
    truth: pd.DataFrame | None = None,
    sensors: list[str] | None = None,
    period: tuple[str | pd.Timestamp, str | pd.Timestamp] | None = None,
    unit: str = "",
    title: str = "Filled readings",
) -> Figure:
    """Some sensors below each other: what was measured, what was filled in, and the truth where it is known.

    Without `sensors` or `period` those with many holes between many readings are picked.
    """
    times = _times(table)
    for name, other in (("filled", filled), ("truth", truth)):
        if other is not None and not (other.index.equals(times) and other.columns.equals(table.columns)):
            raise InputError(f"{name}: its times and sensors differ from those of the table; pass tables of one shape")
    unknown = [name for name in sensors or () if name not in table.columns]
    if unknown:
        raise InputError(f"sensor {unknown[0]!r} is not in the table; it has {_some(table.columns)}")
    span = _busiest_period(table[sensors] if sensors else table) if period is None else _rows_of(period, times)
    if sensors:
        positions = [int(table.columns.get_indexer(pd.Index([name]))[0]) for name in sensors]
    else:
        order = np.argsort(-_hole_interest(table.iloc[span].isna().to_numpy()), kind="stable")
        positions = sorted(int(position) for position in order[:MOST_PANELS])

    figure = Figure(figsize=(10, 1.2 + 1.7 * len(positions)), layout="constrained")
    panels = figure.subplots(len(positions), 1, sharex=True, squeeze=False)[:, 0]
    when = date2num(times[span])
    for axes, position in zip(panels, positions, strict=True):
        measured = table.iloc[span, position].to_numpy(dtype=np.float64)
        given = filled.iloc[span, position].to_numpy(dtype=np.float64)
        hole = np.isnan(measured)
        beside = hole | np.r_[hole[1:], False] | np.r_[False, hole[:-1]]  # so that the line meets what was measured
        for start, end in _runs(hole):
            axes.axvspan(when[max(start - 1, 0)], when[min(end, len(when) - 1)], color="#F4F1EC", lw=0, zorder=0)
        axes.plot(when, measured, color=BLUE, lw=1.3, marker=".", ms=3, label="measured")
        axes.plot(when, np.where(beside, given, np.nan), color=VERMILLION, lw=1.3, label="filled")
        axes.plot(when, np.where(hole, given, np.nan), color=VERMILLION, lw=0, marker="o", ms=2.6)
        if truth is not None:
            real = truth.iloc[span, position].to_numpy(dtype=np.float64)
            axes.plot(when, np.where(beside, real, np.nan), color=INK, lw=0.9, ls=(0, (4, 2)), label="truth")
        axes.set_title(str(table.columns[position]), loc="left", fontsize=10, pad=3)
        axes.margins(x=0.005)
        _plain(axes)
    _date_axis(panels[-1], times)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=3, frameon=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    figure.supylabel(unit or "reading", fontsize=10)
    return figure


def map_picture(
    sensors: pd.DataFrame,
    edges: pd.DataFrame,
    *,
    ridge: NDArray[np.float64] | None = None,
    title: str = "Who influences whom",
    most_edges: int = 150,
) -> Figure:
    """Sensors in the plane and an arrow from each source to its target: wide when strong, coloured by its lag.

    A pair with several lags shows the strongest of them; a sensor's influence on itself is not drawn.
    """
    listed = sensor_list(sensors)
    _need_columns("edges", edges, ("source", "target", "lag", "weight"))
    names, places = listed.index, listed[["longitude", "latitude"]].to_numpy(dtype=np.float64)
    unknown = sorted({str(name) for end in ("source", "target") for name in edges[end]} - set(names))
    if unknown:
        raise InputError(f"edges: sensor {unknown[0]!r} has no coordinates; it is not in the list of sensors")

    between = edges[edges["source"] != edges["target"]].sort_values("weight", ascending=False, key=np.abs)
    between = between.drop_duplicates(["source", "target"])
    drawn = between.head(most_edges).iloc[::-1]  # the strongest last, on top

    longitude, latitude = places.T
    figure = Figure(figsize=(8.5, 7.5), layout="constrained")
    axes = figure.add_subplot()
    axes.set_aspect(1 / cos(radians(float(latitude.mean()))))
    crowded = len(places) > MOST_NAMES
    if ridge is not None:
        width = 5 if crowded else 11
        axes.plot(ridge[:, 1], ridge[:, 0], color=BROWN, lw=width, alpha=0.55, zorder=1, label="ridge")
    axes.scatter(
        longitude, latitude, s=14 if crowded else 75, color="white", edgecolor=INK, lw=1.2, zorder=4, label="sensor"
    )
    if len(drawn):
        ends = {end: places[names.get_indexer(pd.Index(drawn[end].astype(str)))] for end in ("source", "target")}
        _draw_arrows(figure, axes, drawn, crowded=crowded, **ends)
    if not crowded:
        for name, x, y in zip(names, longitude, latitude, strict=True):
            label = axes.annotate(name, (x, y), xytext=(6, 5), textcoords="offset points", fontsize=8, color=INK)
            label.set(zorder=5, bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "alpha": 0.7, "linewidth": 0})
    axes.set_xlim(*_padded(longitude))  # the sensors say what is worth showing; a ridge may go on beyond them
    axes.set_ylim(*_padded(latitude))
    axes.set_xlabel("longitude (degrees)")
    axes.set_ylabel("latitude (degrees)")
    axes.ticklabel_format(useOffset=False)
    _plain(axes)
    figure.legend(loc="outside lower right", ncols=2, frameon=False)
    strongest = f"the strongest {len(drawn):,} of " if len(drawn) < len(between) else ""
    _title(axes, title, f"{len(places):,} sensors, {strongest}{len(between):,} edges; the wider an arrow, the stronger")
    return figure


def _draw_arrows(
    figure: Figure,
    axes: Axes,
    edges: pd.DataFrame,
    *,
    source: NDArray[np.float64],
    target: NDArray[np.float64],
    crowded: bool,
) -> None:
    """An arrow per edge between the (longitude, latitude) of its ends, and the colour bar of the lags."""
    lags = edges["lag"].to_numpy(dtype=np.int64)
    lowest, highest = int(lags.min()), int(lags.max())
    # Without the palest end of the map, which would vanish on white.
    colours = ListedColormap(colormaps["viridis"](np.linspace(0.0, 0.85, highest - lowest + 1)))
    norm = BoundaryNorm(np.arange(lowest, highest + 2) - 0.5, colours.N)
    strength = edges["weight"].abs().to_numpy(dtype=np.float64)
    relative = strength / max(float(strength.max()), 1e-12)
    widths = 0.4 + 1.2 * relative if crowded else 0.7 + 2.8 * relative
    gap = 2 if crowded else 5  # points between an arrow and the middle of its sensors
    for start, end, lag, width in zip(source, target, lags, widths, strict=True):
        arrow = FancyArrowPatch(
            (start[0], start[1]),
            (end[0], end[1]),
            arrowstyle="-|>",
            connectionstyle="arc3,rad=0.12",  # bent, so that there and back are two arrows
            mutation_scale=(5 if crowded else 7) + 2 * width,
            shrinkA=gap,
            shrinkB=gap,
            linewidth=width,
            color=colours(norm(lag)),
            alpha=0.9,
            zorder=3,
        )
        axes.add_patch(arrow)
    bar = figure.colorbar(ScalarMappable(norm, colours), ax=axes, shrink=0.7, pad=0.02)
    bar.set_ticks([*range(lowest, highest + 1, ceil((highest - lowest + 1) / 10))])
    bar.ax.minorticks_off()
    bar.set_label("lag (time steps)")


def error_picture(scores: pd.DataFrame, *, unit: str = "", title: str = "Error on held-back readings") -> Figure:
    """A bar per method, the smallest mean absolute error on top and highlighted."""
    _need_columns("scores", scores, ("mae",))
    ordered = scores["mae"].astype(float).sort_values(kind="stable")
    bad = ordered.index[~np.isfinite(ordered.to_numpy())]
    if len(bad):
        raise InputError(f"scores: method {bad[0]!r} has no finite error; leave it out")
    figure = Figure(figsize=(8, 1.3 + 0.42 * len(ordered)), layout="constrained")
    axes = figure.add_subplot()
    colours = [VERMILLION if value == ordered.min() else GREY for value in ordered]
    bars = axes.barh([str(name) for name in ordered.index], ordered.to_numpy(), color=colours, height=0.68)
    axes.bar_label(bars, fmt="%.3g", padding=4, fontsize=9)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("mean absolute error" + (f" ({unit})" if unit else ""))
    _plain(axes)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    _title(axes, title)
    return figure


def learning_curve_picture(history: pd.DataFrame, *, unit: str = "", title: str = "Learning curve") -> Figure:
    """Training loss above, validation error below, over the epochs; the best epoch is marked."""
    _need_columns("history", history, ("epoch", "train_loss", "validation_mae"))
    figure = Figure(figsize=(8, 5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    upper.plot(history["epoch"], history["train_loss"], color=BLUE, lw=1.8, marker=".")
    upper.set_ylabel("training loss")
    validated = history.dropna(subset=["validation_mae"])
    lower.plot(validated["epoch"], validated["validation_mae"], color=VERMILLION, lw=1.8, marker=".")
    lower.set_ylabel("validation error" + (f" ({unit})" if unit else ""))
    if len(validated):
        best = validated.iloc[int(validated["validation_mae"].argmin())]
        lower.axvline(best["epoch"], color=GREY, lw=1, ls=":")
        lower.plot(best["epoch"], best["validation_mae"], "o", ms=8, mfc="none", color=INK)
        _title(upper, title, f"best: {best['validation_mae']:.4g} in epoch {best['epoch']:.0f}")
    else:
        _title(upper, title)
    lower.set_xlabel("epoch")
    lower.xaxis.set_major_locator(MaxNLocator(integer=True))
    _plain(upper)
    _plain(lower)
    return figure


# ---- what is worth showing


def _busiest_period(table: pd.DataFrame) -> slice:
    """The rows of about ten days in which some sensors have many holes between readings."""
    times = pd.DatetimeIndex(table.index)
    part = max(ceil(READABLE_PERIOD / _spacing(times) / PERIOD_PARTS), 1)
    length = part * PERIOD_PARTS
    if len(times) <= length:
        return slice(0, len(times))
    missing = table.isna().to_numpy()
    starts = range(0, len(times) - length + 1, part)
    few = min(MOST_PANELS, missing.shape[1])
    scores = [np.sort(_hole_interest(missing[start : start + length]))[-few:].sum() for start in starts]
    best = starts[int(np.argmax(scores))]
    return slice(best, best + length)


def _hole_interest(missing: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(N,) high for sensors with several holes, neither too few missing readings nor too many."""
    share = missing.mean(axis=0)
    begins = (missing[1:] & ~missing[:-1]).sum(axis=0)
    return share * (1 - share) * np.minimum(begins, 8)


def _runs(hole: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and last (exclusive) position of each run of True."""
    change = np.flatnonzero(np.diff(np.r_[False, hole, False].astype(np.int8)))
    return [(int(start), int(end)) for start, end in change.reshape(-1, 2)]


def _bin_edges(length: int, most: int) -> NDArray[np.int64]:
    """Borders of at most `most` bins of nearly one size."""
    return np.unique(np.linspace(0, length, min(length, most) + 1).round().astype(np.int64))


def _times(table: pd.DataFrame) -> pd.DatetimeIndex:
    if not isinstance(table.index, pd.DatetimeIndex) or not len(table) or not len(table.columns):
        raise InputError("the picture needs a table with time stamps as its index and at least one row and sensor")
    return table.index


def _spacing(times: pd.DatetimeIndex) -> pd.Timedelta:
    return pd.Timedelta((times[-1] - times[0]) / (len(times) - 1)) if len(times) > 1 else pd.Timedelta(hours=1)


def _rows_of(period: tuple[str | pd.Timestamp, str | pd.Timestamp], times: pd.DatetimeIndex) -> slice:
    """The rows from the first to the second time, both included."""
    try:
        start, end = (pd.Timestamp(when) for when in period)
    except ValueError:
        raise InputError(f"period {period} is no pair of times; write them like '2024-01-31 12:00'") from None
    start, end = (when.tz_localize(times.tz) if when.tz is None else when.tz_convert(times.tz) for when in (start, end))
    rows = slice(int(times.searchsorted(start)), int(times.searchsorted(end, side="right")))
    if rows.stop - rows.start < 2:
        raise InputError(f"period {start} to {end} holds no two rows; choose it within {times[0]} to {times[-1]}")
    return rows


def _need_columns(what: str, table: pd.DataFrame, names: tuple[str, ...]) -> None:
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise InputError(f"{what}: the column {missing[0]!r} is missing; it has {_some(table.columns)}")


def _some(names: pd.Index) -> str:
    return ", ".join(str(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")


# ---- how it looks


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color="#E6E6E6", lw=0.7)
    axes.set_axisbelow(True)


def _date_axis(axes: Axes, times: pd.DatetimeIndex) -> None:
    locator = AutoDateLocator(tz=times.tz, minticks=4, maxticks=9)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=times.tz))
    axes.set_xlabel("time")


def _title(axes: Axes, title: str, subtitle: str = "") -> None:
    axes.set_title(title, loc="left", fontsize=13, fontweight="bold", pad=22 if subtitle else 8)
    if subtitle:
        note = axes.annotate(subtitle, (0, 1), xytext=(0, 6), xycoords="axes fraction", textcoords="offset points")
        note.set(fontsize=9.5, color="#555555")


def _padded(values: NDArray[np.float64]) -> tuple[float, float]:
    room = 0.06 * max(float(np.ptp(values)), 1e-3)
    return float(values.min()) - room, float(values.max()) + room
