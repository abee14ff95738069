"""The causes of one sensor's values: arrows on a map, as in the paper's Figure 6, or bars where no places are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from casper.causal import CausalGraph
from casper.errors import InputError
from casper.explanation import Explanation
from casper.frame.sensors import list_by, match_sensors
from casper.report.graph_pictures import MOST_NAMES, draw_arrows, map_figure, prepare_map
from casper.report.labels import label_places
from casper.report.style import BLUE, FAINT_INK, GREY, INK, PALE, VERMILLION, axes_title, headline, new_figure, plain
from casper.report.words import counted

_ZOOM = 1.6
"""In a crowded network, how much farther than its causes the map reaches."""


@dataclass(frozen=True)
class Shares:
    """How much of what a sensor's values are made from comes from which source.

    table: source, weight (they add up to 1) and lag (the heaviest one), heaviest first. about: of which values, in a
    few words.
    """

    sensor: str
    about: str
    table: pd.DataFrame

    @classmethod
    def of_value(cls, explanation: Explanation) -> Shares:
        """Of one value: the weights of the paper's Figure 5, added up over the steps of each source."""
        return cls(explanation.sensor, f"at {explanation.time:%Y-%m-%d %H:%M}", _normalised(explanation.shares()))

    @classmethod
    def of_sensor(cls, graph: CausalGraph, sensor: str) -> Shares:
        """Of all its values: the weights of its edges, added up over the lags of each source."""
        edges = graph.causes_of(sensor)
        if edges.empty:
            raise InputError(f"sensor {sensor!r} has no causes in this graph")
        summed = edges.groupby("source", sort=False)["weight"].sum()
        lags = edges.drop_duplicates("source").set_index("source")["lag"]  # they are sorted by weight
        table = pd.DataFrame({"source": summed.index, "weight": summed.to_numpy(), "lag": lags[summed.index].array})
        return cls(sensor, "on the average", _normalised(table))

    @property
    def own(self) -> float:
        """What comes from the sensor's own readings."""
        return float(self.table.loc[self.table["source"] == self.sensor, "weight"].sum())

    def causes(self, least: float | None) -> pd.DataFrame:
        """Other sensors with at least this share; None: with more than an equal share of what others give."""
        others = self.table[self.table["source"] != self.sensor]
        if least is None:
            least = (1 - self.own) / max(1, len(others))
        return others[(others["weight"] >= least) & (others["weight"] > 0)]


def causes_map(
    shares: Shares, sensors: pd.DataFrame, *, least: float | None = None, title: str | None = None
) -> Figure:
    """Arrows from the causes to the sensor, wide when strong; dotted where it could look at a sensor but hardly does.

    sensors: id, latitude, longitude of all; in a crowded network only those around are shown.
    """
    names = [shares.sensor, *shares.table["source"]]
    match_sensors(sensors, names)  # all of them have a place
    listed = list_by(sensors, names)
    causes = shares.causes(least)
    hardly = [name for name in shares.table["source"] if name not in {shares.sensor, *causes["source"]}]
    shown = _around(listed, shares) if len(listed) > MOST_NAMES else listed
    figure = map_figure(shown)
    axes = figure.add_subplot()
    prepare_map(axes, shown)
    for name in hardly:
        ends = listed.loc[[name, shares.sensor]]
        axes.plot(ends["longitude"], ends["latitude"], color=GREY, lw=1, ls=(0, (1, 2)), zorder=2)
    edges = causes.assign(target=shares.sensor).sort_values("weight")
    draw_arrows(axes, listed, edges, crowded=False)
    others = shown.drop(index=[name for name in (shares.sensor, *causes["source"]) if name in shown.index])
    axes.scatter(others["longitude"], others["latitude"], s=45, color="white", edgecolor=GREY, lw=1, zorder=4)
    of_causes = listed.loc[list(causes["source"])]
    axes.scatter(of_causes["longitude"], of_causes["latitude"], s=75, color="white", edgecolor=INK, lw=1.6, zorder=4)
    here = listed.loc[[shares.sensor]]
    axes.scatter(here["longitude"], here["latitude"], s=110, marker="D", color=VERMILLION, edgecolor="white", zorder=5)
    handles = [
        Line2D([], [], color=VERMILLION, marker="D", lw=0, label="whose values"),
        Line2D([], [], color=INK, marker="o", mfc="white", mew=1.6, lw=0, label="cause"),
        Line2D([], [], color=GREY, marker="o", mfc="white", lw=1, ls=(0, (1, 2)), label="looked at, hardly used"),
    ]
    figure.legend(handles=handles, loc="outside lower right", ncols=3, frameon=False, fontsize=9)
    axes.set_title(_subtitle(shares, len(causes), len(hardly)), loc="left", fontsize=9.5, color=FAINT_INK)
    headline(figure, _title(shares) if title is None else title)
    named = shown if len(shown) <= MOST_NAMES else shown.loc[[shares.sensor, *shares.table["source"]]]
    label_places(axes, named[~named.index.duplicated()], avoid=shown)
    return figure


def causes_bars(shares: Shares, *, least: float | None = None, title: str | None = None) -> Figure:
    """A bar for each source, its own readings among them, the heaviest on top."""
    table = shares.table.head(MOST_NAMES)
    causes = set(shares.causes(least)["source"])
    figure = new_figure(8, 1.5 + 0.27 * max(4, len(table)))
    axes = figure.add_subplot()
    colours = [GREY if name == shares.sensor else BLUE if name in causes else PALE for name in table["source"]]
    names = [f"{name} (itself)" if name == shares.sensor else str(name) for name in table["source"]]
    bars = axes.barh(np.arange(len(table)), 100 * table["weight"].to_numpy(dtype=np.float64), color=colours, height=0.7)
    axes.set_yticks(range(len(table)), names, fontsize=8)
    lags = ["" if pd.isna(lag) else f"lag {int(lag):+d}" if lag else "same step" for lag in table["lag"]]
    axes.bar_label(bars, labels=lags, padding=4, fontsize=8, color=FAINT_INK)
    axes.invert_yaxis()
    axes.margins(x=0.12, y=0.02)
    axes.set_xlabel("share of what the values are made from (%); beside it the lag that gives most")
    plain(axes)
    axes.grid(visible=False, axis="y")
    told = _subtitle(shares, len(causes), len(shares.table) - len(causes) - (shares.own > 0))
    axes_title(axes, _title(shares) if title is None else title, told)
    return figure


def _normalised(table: pd.DataFrame) -> pd.DataFrame:
    ordered = table.sort_values("weight", ascending=False, kind="stable").reset_index(drop=True)
    return ordered.assign(weight=ordered["weight"] / max(float(ordered["weight"].sum()), 1e-12))


def _title(shares: Shares) -> str:
    return f"Causes of sensor {shares.sensor} {shares.about}"


def _subtitle(shares: Shares, causes: int, hardly: int) -> str:
    own = f"; its own readings give {shares.own:.0%}" if shares.own > 0 else ""
    return f"{counted(causes, 'cause')}, {counted(hardly, 'more sensor')} looked at{own}"


def _around(listed: pd.DataFrame, shares: Shares) -> pd.DataFrame:
    """The sensors near those that the sensor looks at."""
    looked_at = listed.loc[[shares.sensor, *(name for name in shares.table["source"] if name != shares.sensor)]]
    inside = pd.Series(True, index=listed.index)
    for name in ("longitude", "latitude"):
        low, high = looked_at[name].min(), looked_at[name].max()
        room = _ZOOM * max(high - low, 1e-3) / 2
        inside &= (listed[name] - (low + high) / 2).abs() <= room
    return listed[inside]
