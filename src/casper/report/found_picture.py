"""True and found arrows on the map of the simulated network, whose ridge nothing crosses."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from casper.frame import sensor_list
from casper.report.graph_pictures import BROWN, draw_arrows, prepare_map
from casper.report.labels import label_places
from casper.report.style import BLUE, FAINT_INK, GREY, INK, VERMILLION, headline, new_figure
from casper.reproduction.trial_results import TrialResult
from casper.simulate import Simulation, simulate

_KINDS = {"true": BLUE, "wrong": GREY, "across the ridge": VERMILLION}


def found_picture(trial: TrialResult) -> Figure:
    """trial: of the system "wind", with the pairs that it found strongest."""
    assert trial.strongest is not None
    made = simulate(seed=trial.seed, holes=None)
    true = made.edges[["source", "target"]].assign(weight=1.0, kind="true")
    found = pd.DataFrame(trial.strongest, columns=["source", "target"]).assign(weight=1.0)
    found["kind"] = _kinds(found, made)
    figure = new_figure(13.0, 7.0)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    shares = found["kind"].value_counts(normalize=True)
    told = ", ".join(f"{shares.get(kind, 0.0):.0%} {kind}" for kind in _KINDS)
    _draw(panels[0], made, true, f"The truth:\n{len(true)} arrows")
    _draw(panels[1], made, found, f"Found by {trial.row}, the {len(found)} strongest pairs:\n{told}")
    handles = [Line2D([], [], color=colour, lw=2, label=kind) for kind, colour in _KINDS.items()]
    handles.append(Line2D([], [], color=BROWN, lw=8, alpha=0.55, label="ridge"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    headline(figure, f"Where the wind carries, and what is found of it (missing: {trial.dataset.partition(', ')[2]})")
    return figure


def _kinds(found: pd.DataFrame, made: Simulation) -> list[str]:
    side = dict(zip(made.sensors["id"], made.east_of_ridge(), strict=True))
    true = set(zip(made.edges["source"], made.edges["target"], strict=True))
    pairs = zip(found["source"], found["target"], strict=True)
    return [
        "true" if pair in true else "across the ridge" if side[pair[0]] != side[pair[1]] else "wrong" for pair in pairs
    ]


def _draw(axes: Axes, made: Simulation, edges: pd.DataFrame, title: str) -> None:
    listed = sensor_list(made.sensors)
    prepare_map(axes, listed)
    axes.plot(made.ridge[:, 1], made.ridge[:, 0], color=BROWN, lw=11, alpha=0.55, zorder=1)
    axes.scatter(listed["longitude"], listed["latitude"], s=75, color="white", edgecolor=INK, lw=1.2, zorder=4)
    ordered = edges.sort_values("kind", key=lambda kinds: kinds.map(list(_KINDS).index), ascending=False)  # true on top
    draw_arrows(axes, listed, ordered, crowded=False, colours=[_KINDS[kind] for kind in ordered["kind"]])
    axes.set_title(title, loc="left", fontsize=10, color=FAINT_INK)
    label_places(axes, listed)
