"""The picture of docs/performance.md: one layer's time beside the others', and how it grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.contestants import EDGE_LIST, PADDED
from casper.report.pictures import BLUE, GREY, INK, VERMILLION

Case = Mapping[str, Any]

LABELS = {"ours": "CASPER", PADDED: "padded neighbours, compiled", EDGE_LIST: "edge list (message passing)"}
# Colours of Okabe and Ito; hatches and markers tell the same to who sees no colours.
COLOURS = {"ours": BLUE, PADDED: GREY, EDGE_LIST: VERMILLION}
HATCHES = {"ours": "", PADDED: "//", EDGE_LIST: ".."}
MARKERS = {"ours": "o", PADDED: "^", EDGE_LIST: "s"}
SHAPE_NAMES = {"aqi36": "AQI-36", "metr-la": "METR-LA", "aqi": "AQI-437"}
_BAR = 0.26


def performance_picture(result: Mapping[str, Any]) -> Figure:
    """From one result file of benchmarks.attention; parts that were not measured are left out."""
    growth: Mapping[str, Sequence[Case]] = result.get("growth", {})
    axes_that_grow = [axis for axis in ("sensors", "steps") if growth.get(axis)]
    figure = Figure(figsize=(10, 8 if axes_that_grow else 4.2), layout="constrained")
    grid = figure.add_gridspec(2 if axes_that_grow else 1, max(1, len(axes_that_grow)))
    if result.get("speed"):
        _bars(figure.add_subplot(grid[0, :]), result["speed"], result["device"])
    for column, axis in enumerate(axes_that_grow):
        _curves(figure.add_subplot(grid[-1, column]), growth[axis], axis)
    return figure


def entry_of(case: Case, who: str) -> Mapping[str, Any]:
    """A contestant's measurements; "ours" is the version that a user gets."""
    return case["contestants"].get(case["ours"] if who == "ours" else who, {})


def shape_name(case: Case) -> str:
    return SHAPE_NAMES.get(case["shape"]) or str(case["shape"])


def _bars(axes: Axes, cases: Sequence[Case], device: str) -> None:
    dtype = cases[0]["dtype"]
    shown = [case for case in cases if case["dtype"] == dtype]
    known = [
        entry["milliseconds"] for case in shown for entry in case["contestants"].values() if "milliseconds" in entry
    ]
    bottom = min(known, default=1.0) / 3
    for number, who in enumerate(LABELS):
        places = [group + (number - 1) * _BAR for group in range(len(shown))]
        times = [entry_of(case, who).get("milliseconds") for case in shown]
        heights = [bottom if time is None else time for time in times]
        bars = axes.bar(
            places, heights, _BAR * 0.94, color=COLOURS[who], hatch=HATCHES[who], edgecolor="white", label=LABELS[who]
        )
        axes.bar_label(bars, ["" if time is None else _short(time) for time in times], padding=2, fontsize=8, color=INK)
        for place, case, time in zip(places, shown, times, strict=True):
            if time is None:
                why = "out of memory" if "out_of_memory" in entry_of(case, who) else "not measured"
                axes.text(
                    place, bottom * 1.15, why, rotation=90, ha="center", va="bottom", fontsize=8, color=COLOURS[who]
                )
    axes.set_yscale("log")
    axes.set_ylim(bottom, max(known, default=1.0) * 2.5)
    axes.yaxis.set_major_formatter(FuncFormatter(_as_number))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("milliseconds (log scale)")
    names = [
        f"{shape_name(case)}, width {case['width']}\n{case['edges']:,} edges, {case['steps']} steps" for case in shown
    ]
    axes.set_xticks(range(len(shown)), names, fontsize=9)
    axes.tick_params(axis="x", length=0)
    title = f"One layer of causal attention, forward and backward, batch {shown[0]['batch']}, {dtype}: lower is better"
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.text(1.0, 1.01, device, transform=axes.transAxes, ha="right", va="bottom", fontsize=8, color=GREY)
    axes.legend(frameon=False, fontsize=9, ncols=3, loc="upper left")
    _plain_frame(axes)


def _curves(axes: Axes, cases: Sequence[Case], axis: str) -> None:
    for who in ("ours", EDGE_LIST):
        measured = [(case[axis], entry_of(case, who)) for case in cases]
        points = [(size, entry["milliseconds"]) for size, entry in measured if "milliseconds" in entry]
        if not points:
            continue
        sizes, times = zip(*points, strict=True)
        axes.plot(sizes, times, color=COLOURS[who], marker=MARKERS[who], markersize=5, label=LABELS[who])
        missing = [size for size, entry in measured if "out_of_memory" in entry]
        if missing:
            text = f"out of memory\nfrom {missing[0]:,} {axis}"
            axes.annotate(
                text, (sizes[-1], times[-1]), xytext=(0, 8), textcoords="offset points", ha="center", fontsize=8
            )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.margins(y=0.2)
    axes.set_xticks([case[axis] for case in cases], [f"{case[axis]:,}" for case in cases])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(FuncFormatter(_as_number))
    first = cases[0]
    fixed = f"{first['steps']} steps" if axis == "sensors" else f"{first['sensors']:,} sensors"
    axes.set_xlabel(f"{axis} ({fixed}, {first['most_neighbours']} neighbours each, {first['dtype']})")
    axes.set_ylabel("milliseconds")
    axes.set_title(f"Growth with the number of {axis}", loc="left", fontsize=11, color=INK)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    _plain_frame(axes)


def _plain_frame(axes: Axes) -> None:
    axes.grid(axis="y", color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _as_number(value: float, _: int | None = None) -> str:
    return f"{value:g}"


def _short(milliseconds: float) -> str:
    return f"{milliseconds:.2g}" if milliseconds < 10 else f"{milliseconds:.0f}"
