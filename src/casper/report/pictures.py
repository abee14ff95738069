"""Pictures of tables, gaps, filled values and scores; each function returns a matplotlib Figure."""

from __future__ import annotations

from math import ceil

import numpy as np
import pandas as pd
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from casper.errors import InputError, some
from casper.frame.grid import ISO_DATE
from casper.report.graph_pictures import map_picture
from casper.report.runs import bin_borders, runs, with_neighbours
from casper.report.style import (
    BLUE,
    FILLED,
    GREY,
    INK,
    MEASURED,
    SUFFIXES,
    VERMILLION,
    axes_title,
    date_axis,
    headline,
    new_figure,
    plain,
    save,
)

__all__ = [
    "SUFFIXES",
    "error_picture",
    "filled_picture",
    "gap_picture",
    "learning_curve_picture",
    "map_picture",
    "save",
]

MOST_TIME_BINS, MOST_SENSOR_BINS, MOST_NAMES = 1000, 400, 40
READABLE_PERIOD, PERIOD_PARTS = pd.Timedelta(days=10), 4
MOST_PANELS = 4


def gap_picture(observed: pd.DataFrame, *, title: str = "Measured and missing readings") -> Figure:
    """Sensors down, time across, dark where readings are missing; large tables show the missing share of each bin."""
    times = _times(observed)
    values = observed.to_numpy(dtype=bool)
    steps, sensors = values.shape
    time_edges, sensor_edges = bin_borders(steps, MOST_TIME_BINS), bin_borders(sensors, MOST_SENSOR_BINS)
    seen = np.add.reduceat(values, time_edges[:-1], axis=0, dtype=np.int64)
    seen = np.add.reduceat(seen, sensor_edges[:-1], axis=1)
    missing = 1 - seen / np.outer(np.diff(time_edges), np.diff(sensor_edges))

    figure = new_figure(10, float(np.clip(1.6 + 0.19 * sensors, 2.8, 6.5)))
    axes = figure.add_subplot()
    colours = LinearSegmentedColormap.from_list("missing", ["#E3EDF4", "#F2B58A", VERMILLION, "#7A3500"])
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
    date_axis(axes, times)
    axes_title(axes, title, f"{sensors:,} sensors, {steps:,} time steps, {1 - values.mean():.1%} missing")
    if len(time_edges) == steps + 1 and len(sensor_edges) == sensors + 1:
        keys = [Patch(color=colours(0.0), label="measured"), Patch(color=colours(1.0), label="missing")]
        figure.legend(handles=keys, loc="outside lower right", ncols=2, frameon=False)
    else:
        bar = figure.colorbar(image, ax=axes, pad=0.01, aspect=30, format=PercentFormatter(1.0))
        bar.set_label("missing share of the bin")
    return figure


def filled_picture(
    table: pd.DataFrame,
    filled: pd.DataFrame | None,
    *,
    truth: pd.DataFrame | None = None,
    sensors: list[str] | None = None,
    period: tuple[str | pd.Timestamp, str | pd.Timestamp] | None = None,
    unit: str = "",
    title: str = "Filled readings",
) -> Figure:
    """Some sensors below each other: what was measured, what was filled in, and the truth, where they are known.

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

    figure = new_figure(10, 1.2 + 1.7 * len(positions))
    panels = figure.subplots(len(positions), 1, sharex=True, squeeze=False)[:, 0]
    when = date2num(times[span])
    for axes, position in zip(panels, positions, strict=True):
        measured = table.iloc[span, position].to_numpy(dtype=np.float64)
        hole = np.isnan(measured)
        beside = with_neighbours(hole)
        for start, length in runs(hole):
            axes.axvspan(
                when[max(start - 1, 0)], when[min(start + length, len(when) - 1)], color="#F4F1EC", lw=0, zorder=0
            )
        axes.plot(when, measured, color=MEASURED, lw=1.3, marker=".", ms=3, label="measured")
        if filled is not None:
            given = filled.iloc[span, position].to_numpy(dtype=np.float64)
            axes.plot(when, np.where(beside, given, np.nan), color=FILLED, lw=1.3, label="filled")
            axes.plot(when, np.where(hole, given, np.nan), color=FILLED, lw=0, marker="o", ms=2.6)
        if truth is not None:
            real = truth.iloc[span, position].to_numpy(dtype=np.float64)
            axes.plot(when, np.where(beside, real, np.nan), color=INK, lw=0.9, ls=(0, (4, 2)), label="truth")
        axes.set_title(str(table.columns[position]), loc="left", fontsize=10, pad=3)
        axes.margins(x=0.005)
        plain(axes)
    date_axis(panels[-1], times)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=3, frameon=False)
    headline(figure, title)
    figure.supylabel(unit or "reading", fontsize=10)
    return figure


def error_picture(scores: pd.DataFrame, *, unit: str = "", title: str = "Error on held-back readings") -> Figure:
    """A bar per method, the smallest mean absolute error on top and highlighted."""
    need_columns("scores", scores, ("mae",))
    ordered = scores["mae"].astype(float).sort_values(kind="stable")
    bad = ordered.index[~np.isfinite(ordered.to_numpy())]
    if len(bad):
        raise InputError(f"scores: method {bad[0]!r} has no finite error; leave it out")
    figure = new_figure(8, 1.3 + 0.42 * len(ordered))
    axes = figure.add_subplot()
    colours = [VERMILLION if value == ordered.min() else GREY for value in ordered]
    bars = axes.barh([str(name) for name in ordered.index], ordered.to_numpy(), color=colours, height=0.68)
    axes.bar_label(bars, fmt="%.3g", padding=4, fontsize=9)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel("mean absolute error" + (f" ({unit})" if unit else ""))
    plain(axes)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes_title(axes, title)
    return figure


def learning_curve_picture(history: pd.DataFrame, *, unit: str = "", title: str = "Learning curve") -> Figure:
    """Training loss above, validation error below, over the epochs; the best epoch is marked."""
    need_columns("history", history, ("epoch", "train_loss", "validation_mae"))
    figure = new_figure(8, 5)
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
        axes_title(upper, title, f"best: {best['validation_mae']:.4g} in epoch {best['epoch']:.0f}")
    else:
        axes_title(upper, title)
    lower.set_xlabel("epoch")
    lower.xaxis.set_major_locator(MaxNLocator(integer=True))
    plain(upper)
    plain(lower)
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


def _times(table: pd.DataFrame) -> pd.DatetimeIndex:
    if not isinstance(table.index, pd.DatetimeIndex) or not len(table) or not len(table.columns):
        raise InputError("the picture needs a table with time stamps as its index and at least one row and sensor")
    return table.index


def _spacing(times: pd.DatetimeIndex) -> pd.Timedelta:
    return pd.Timedelta((times[-1] - times[0]) / (len(times) - 1)) if len(times) > 1 else pd.Timedelta(hours=1)


def _rows_of(period: tuple[str | pd.Timestamp, str | pd.Timestamp], times: pd.DatetimeIndex) -> slice:
    """The rows from the first to the second time, both included."""
    try:
        if not all(ISO_DATE.match(when) for when in period if isinstance(when, str)):
            raise ValueError
        start, end = (pd.Timestamp(when) for when in period)
    except ValueError:
        raise InputError(f"period {period} is no pair of times; write them like '2024-01-31 12:00'") from None
    start, end = (when.tz_localize(times.tz) if when.tz is None else when.tz_convert(times.tz) for when in (start, end))
    rows = slice(int(times.searchsorted(start)), int(times.searchsorted(end, side="right")))
    if rows.stop - rows.start < 2:
        raise InputError(f"period {start} to {end} holds no two rows; choose it within {times[0]} to {times[-1]}")
    return rows


def need_columns(what: str, table: pd.DataFrame, names: tuple[str, ...]) -> None:
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise InputError(f"{what}: the column {missing[0]!r} is missing; it has {_some(table.columns)}")


def _some(names: pd.Index) -> str:
    return some([str(name) for name in names], 5)
