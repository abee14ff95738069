"""Plots of measured runs: sensitivity, gates over training, learning curves; each function returns a Figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import TypeVar

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from casper.report.found_picture import found_picture
from casper.report.pictures import need_columns
from casper.report.sampling_picture import sampling_picture
from casper.report.style import BLUE, COLOURS, GREEN, GREY, INK, VERMILLION, headline, new_figure, panel_title, plain
from casper.reproduction.published import DECIDED_GATES
from casper.reproduction.results import Group, Results, TrainedRun, title_of
from casper.reproduction.sampling_results import PICTURE
from casper.reproduction.trial_results import TrialResult

_COLOUR_OF_PRESET = {"paper": BLUE, "best": VERMILLION, "fast": GREEN}
_Style = str | tuple[int, tuple[int, int]]
_STYLES: tuple[_Style, ...] = ("-", (0, (4, 2)), (0, (1, 2)))
"""Of lines: there are more trainings than colours that can be told apart."""
_MOST_COLUMNS = 3
_SHOWN_ON_MAP = ("wind, 30 % points", "CASPER")
_HIGHEST_ERROR = 1.6
"""Learning curves are shown up to so many times the lowest error."""
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class _Axis:
    """What a table of runs changes."""

    title: str
    label: str
    logarithmic: bool


SENSITIVITIES = {
    "sparsity": _Axis("Sensitivity to the weight of the l1 norm", "lambda", True),
    "prompts": _Axis("Sensitivity to the number of prompts", "number of prompts", False),
}


def draw_pictures(results: Results) -> dict[str, Figure]:
    """Every plot that the runs are enough for, by the name of its file."""
    drawn: dict[str, Figure] = {}
    for table in SENSITIVITIES:
        groups = results.groups(table)
        if groups:
            drawn[f"sensitivity-{table}.png"] = sensitivity_picture(groups)
    gated = [group for group in results.groups("main", "gates") if gate_curves(group) is not None]
    if gated:
        drawn["gates.png"] = gates_picture(gated)
    learned = [Curve.of_run(run) for group in results.groups("main") for run in group.runs]
    if any(curve.points for curve in learned):
        drawn["learning-curves.png"] = learning_curves_picture(learned)
    if results.samplings:
        drawn[PICTURE] = sampling_picture(results.samplings)
    simulated = [one for one in results.trials if one.table == "causal-simulated"]
    if simulated:
        drawn["causal-simulated.png"] = discovery_picture(simulated)
    shown = [one for one in simulated if one.strongest and (one.dataset, one.row) == _SHOWN_ON_MAP]
    if shown:
        drawn["causes-found.png"] = found_picture(shown[0])
    return drawn


def sensitivity_picture(groups: Sequence[Group]) -> Figure:
    """The test error against a setting: a dot for each seed, the mean, and the deviation as an error bar.

    A panel for each data set of each table: the paper's Figure 7 from runs of both of them.
    """
    tables = list(dict.fromkeys(group.first.table for group in groups))
    items = [(table, *of_dataset) for table in tables for of_dataset in _by_dataset(_of_table(groups, table))]
    figure, panels = _panels(items, width=7.0, height=3.8, columns=2 if len(tables) > 1 else _MOST_COLUMNS)
    for axes, (table, dataset, shown) in panels:
        _draw_sensitivity(axes, shown)
        axes.set_xlabel(SENSITIVITIES[table].label)
        if SENSITIVITIES[table].logarithmic:
            _log_axis(axes, sorted(group.value for group in shown))
        _plain(axes, title_of(dataset))
    headline(figure, SENSITIVITIES[tables[0]].title if len(tables) == 1 else "Sensitivity to settings")
    return figure


def _draw_sensitivity(axes: Axes, groups: Sequence[Group]) -> None:
    ordered = sorted(groups, key=lambda group: group.value)
    spreads = [group.spread("mae") for group in ordered]
    for group in ordered:
        maes = [run.mae for run in group.runs]
        axes.plot([group.value] * len(maes), maes, "o", ms=4, mfc="none", mew=1, color=GREY, zorder=2)
    axes.errorbar(
        [group.value for group in ordered],
        [spread.mean for spread in spreads],
        yerr=[spread.deviation or 0.0 for spread in spreads],
        color=BLUE,
        lw=1.6,
        marker="o",
        ms=6,
        capsize=4,
        zorder=3,
    )
    axes.set_ylabel("MAE (per window)")


def gates_picture(groups: Sequence[Group]) -> Figure:
    """How many gates have made up their mind, over the training: a line for each layer, the range of the seeds behind.

    Curves end where the first seed stopped, so that a mean is always over the same seeds.
    """
    columns = len({group.row for group in groups})  # so that the rows of a table stand beside each other
    figure, panels = _panels(groups, width=4.4, height=3.1, columns=min(columns, _MOST_COLUMNS))
    layers = 0
    for axes, group in panels:
        curves = gate_curves(group)
        assert curves is not None, "only groups with curves are drawn"
        steps, shares = curves
        layers = max(layers, shares.shape[2])
        for layer in range(shares.shape[2]):
            colour = COLOURS[layer % len(COLOURS)]
            of_layer = shares[:, :, layer]
            axes.fill_between(steps, of_layer.min(axis=0), of_layer.max(axis=0), color=colour, alpha=0.15, lw=0)
            axes.plot(steps, of_layer.mean(axis=0), color=colour, lw=1.8)
        axes.axhline(DECIDED_GATES, color=INK, lw=1, ls=(0, (4, 3)))
        axes.set_ylim(0, 1.03)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_ylabel("decided gates")
        _step_axis(axes)
        _plain(axes, f"{title_of(group.dataset)}: {group.row}")
    lines = [(COLOURS[layer % len(COLOURS)], f"layer {layer + 1}", "-") for layer in range(layers)]
    _legend(figure, [*lines, (INK, f"paper: {DECIDED_GATES:.0%} on AQI-36", (0, (4, 3)))])
    return figure


@dataclass(frozen=True)
class Curve:
    """A learning curve: validation errors over steps or epochs. panel: where it is drawn; label: what its colour is."""

    panel: str
    label: str
    points: Sequence[tuple[int, float]]
    unit: str = "training steps"

    @classmethod
    def of_run(cls, run: TrainedRun) -> Curve:
        points = [(epoch.step, epoch.validation_mae) for epoch in run.curve if epoch.validation_mae is not None]
        return cls(title_of(run.dataset), run.row, points)

    @classmethod
    def of_history(cls, history: pd.DataFrame, label: str) -> Curve:
        """history: a metrics.csv, as every fit leaves one."""
        need_columns(label, history, ("epoch", "validation_mae"))
        known = history.dropna(subset=["validation_mae"])
        points = zip(known["epoch"].astype(int) + 1, known["validation_mae"].astype(float), strict=True)
        return cls("fitted models", label, list(points), "epochs")


def learning_curves_picture(curves: Sequence[Curve]) -> Figure:
    """A panel for each data set, a thin line for each training, coloured by what it is."""
    curves = [curve for curve in curves if curve.points]
    labels = list(dict.fromkeys(curve.label for curve in curves))
    left = [colour for colour in COLOURS if colour not in _COLOUR_OF_PRESET.values()]
    others = [label for label in labels if label not in _COLOUR_OF_PRESET]
    if len(others) == len(labels):
        left = list(COLOURS)
    colours = _COLOUR_OF_PRESET | {label: left[place % len(left)] for place, label in enumerate(others)}
    styles = {label: _STYLES[place // len(left) % len(_STYLES)] for place, label in enumerate(others)}
    names = list(dict.fromkeys(curve.panel for curve in curves))
    figure, panels = _panels(names, width=4.6, height=3.4)
    for axes, name in panels:
        shown = [curve for curve in curves if curve.panel == name]
        for curve in shown:
            steps, errors = zip(*curve.points, strict=True)
            axes.plot(steps, errors, color=colours[curve.label], ls=styles.get(curve.label, "-"), lw=0.9)
        lowest = min(mae for curve in shown for _, mae in curve.points)
        last = max(curve.points[-1][1] for curve in shown)
        # The first epochs' errors, several times the last ones', would leave no room for what tells curves apart.
        axes.set_ylim(0.97 * lowest, max(_HIGHEST_ERROR * lowest, 1.1 * last))
        axes.set_ylabel("validation MAE")
        _step_axis(axes, shown[0].unit)
        _plain(axes, name)
    _legend(figure, [(colours[label], label, styles.get(label, "-")) for label in labels])
    return figure


def discovery_picture(trials: Sequence[TrialResult]) -> Figure:
    """How well each method finds the true graph as readings go missing: a panel for each system and kind of holes."""
    systems = list(dict.fromkeys(one.dataset.partition(", ")[0] for one in trials))
    methods = list(dict.fromkeys(one.row for one in trials))
    figure = new_figure(4.2 * len(systems), 6.4)
    panels = figure.subplots(2, len(systems), sharex=True, sharey=True, squeeze=False)
    colours = colormaps["tab10"]
    for down, kind in enumerate(("points", "blocks")):
        for across, system in enumerate(systems):
            axes: Axes = panels[down, across]
            for number, method in enumerate(methods):
                heard = _auroc_by_share([one for one in trials if one.row == method], system, kind)
                shares = sorted(heard)
                own = method.startswith("CASPER")
                axes.plot(
                    shares,
                    [float(np.mean(heard[share])) for share in shares],
                    marker="o" if own else ".",
                    linewidth=2.2 if own else 1.2,
                    color=colours(number),
                    label=method,
                )
            _plain(axes, f"{system}, missing {kind}")
            axes.axhline(0.5, color=GREY, linewidth=0.8, linestyle=":")
    for axes in panels[:, 0]:
        axes.set_ylabel("AUROC")
    for axes in panels[-1]:
        axes.set_xlabel("missing readings (%)")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure


def _auroc_by_share(trials: Sequence[TrialResult], system: str, kind: str) -> dict[int, list[float]]:
    """By percent of missing readings; kind: of the holes."""
    heard: dict[int, list[float]] = {}
    for one in trials:
        name, _, missing = one.dataset.partition(", ")
        if name == system and missing.endswith((kind, "complete")):
            share = 0 if missing == "complete" else int(missing.split(" ")[0])
            heard.setdefault(share, []).append(one.scores["offdiag"]["auroc"])
    return heard


def gate_curves(group: Group) -> tuple[np.ndarray, np.ndarray] | None:
    """(E,) steps and (S, E, L) shares: seeds, epochs, layers; None where no run has them."""
    curves = [[(epoch.step, epoch.decided) for epoch in run.curve if epoch.decided] for run in group.runs]
    curves = [curve for curve in curves if curve]
    if not curves:
        return None
    shortest = min(len(curve) for curve in curves)
    steps = np.array([step for step, _ in curves[0][:shortest]])
    return steps, np.array([[shares for _, shares in curve[:shortest]] for curve in curves])


# ---- how it looks


def _of_table(groups: Sequence[Group], table: str) -> list[Group]:
    return [group for group in groups if group.first.table == table]


def _by_dataset(groups: Sequence[Group]) -> list[tuple[str, list[Group]]]:
    names = dict.fromkeys(group.dataset for group in groups)
    return [(name, [group for group in groups if group.dataset == name]) for name in names]


def _panels(
    items: Sequence[_Item], *, width: float, height: float, columns: int = _MOST_COLUMNS
) -> tuple[Figure, list[tuple[Axes, _Item]]]:
    """A figure with a panel for each item, a few beside each other."""
    columns = min(len(items), columns)
    rows = ceil(len(items) / columns)
    figure = new_figure(max(width * columns, 6.5), height * rows + 0.5)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(items) :]:
        axes.remove()
    return figure, list(zip(grid[: len(items)], items, strict=True))


def _plain(axes: Axes, title: str) -> None:
    plain(axes)
    panel_title(axes, title)


def _log_axis(axes: Axes, values: Sequence[float]) -> None:
    """Logarithmic, with the values as ticks; zero, which has no logarithm, gets a place of its own on the left."""
    positive = [value for value in values if value > 0]
    if positive and min(values) == 0:
        axes.set_xscale("symlog", linthresh=min(positive), linscale=0.6)
    elif positive:
        axes.set_xscale("log")
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.minorticks_off()


def _step_axis(axes: Axes, unit: str = "training steps") -> None:
    axes.set_xlim(left=0)
    axes.set_xlabel(unit)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(_thousands))


def _legend(figure: Figure, lines: Sequence[tuple[str, str, _Style]]) -> None:
    keys = [Line2D([], [], color=colour, lw=1.8, ls=style, label=label) for colour, label, style in lines]
    widest = 0.6 + 0.08 * max(len(label) for _, label, _ in lines)  # inches, about
    ncols = int(np.clip(figure.get_figwidth() / widest, 1, min(len(keys), 5)))
    figure.set_figheight(figure.get_figheight() + 0.2 * (ceil(len(keys) / ncols) - 1))
    figure.legend(handles=keys, loc="outside lower center", ncols=ncols, frameon=False)


def _thousands(value: float, _place: int) -> str:
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"
