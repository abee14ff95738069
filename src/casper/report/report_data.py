"""All that a report tells, gathered from a model and a table; `casper.report.html` turns it into a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from casper.causal import CausalGraph
from casper.check import TableSummary, summarise
from casper.contract import Imputer
from casper.filled import Filled
from casper.frame import SensorFrame
from casper.imputer import Casper
from casper.report.arrows import network
from casper.report.explained_values import explained_values
from casper.report.hidden_check import HiddenCheck, hidden_check
from casper.report.recipe import Recipe, recipe
from casper.sensors import match_sensors

INTERVALS = (0.5, 0.9)
WINDOWS_FOR_GRAPH = 96


@dataclass(frozen=True, eq=False)
class ReportData:
    """filled: every step of the frame. network: see `casper.report.arrows.network`; values: see
    `casper.report.explained_values`; both None if the method does not tell what it draws on. graph_origin: how the
    arrows were found."""

    name: str
    unit: str
    method: str
    frame: SensorFrame
    filled: Filled
    why_no_intervals: str | None
    summary: TableSummary
    check: HiddenCheck | None
    network: dict[str, Any] | None
    graph_origin: dict[str, Any]
    values: list[dict[str, Any]] | None
    has_gates: bool
    wanted_series: tuple[str, ...]
    recipe: Recipe


def gather(
    model: Imputer,
    table: pd.DataFrame,
    *,
    name: str,
    unit: str = "",
    sensors: pd.DataFrame | None = None,
    series: Sequence[str] = (),
    graph: CausalGraph | None = None,
    file: Path | None = None,
    command: str | None = None,
    freq: str | None = None,
    timezone: str | None = None,
    missing_values: Sequence[float] | None = None,
) -> ReportData:
    """sensors: places for the map. series: sensors whose series must be in the page. graph: the model's for this table,
    if it is already there. The rest is as in `Imputer.impute`."""
    options = model._options.changed(freq, timezone, missing_values)  # pyright: ignore[reportPrivateUsage]
    frame = options.to_frame(table)
    model.column_order(frame)  # refuses tables of other sensors before any work is done
    if sensors is not None:
        match_sensors(sensors, frame.sensors)
    grid = pd.DataFrame(frame.values, index=frame.times, columns=list(frame.sensors))
    shares = INTERVALS if model.has_intervals else ()
    filled = model.impute(grid, intervals=shares) if shares else _without_intervals(model, grid)
    arrows = values = None
    origin: dict[str, Any] = {}
    if isinstance(model, Casper):
        graph = model.causal_graph(grid, windows=WINDOWS_FOR_GRAPH) if graph is None else graph
        arrows = network(model, graph, frame.sensors, frame.step, sensors, dead=frame.dead)
        origin = dict(graph.origin)
        values = explained_values(model, frame, grid, filled)
    return ReportData(
        name=name,
        unit=unit,
        method=model.name,
        frame=frame,
        filled=filled,
        why_no_intervals=model.why_no_intervals,
        summary=summarise(frame),
        check=hidden_check(model, frame, grid, shares),
        network=arrows,
        graph_origin=origin,
        values=values,
        has_gates=isinstance(model, Casper) and model.config.gate != "none",
        wanted_series=tuple(series),
        recipe=recipe(model, frame, file=file, command=command),
    )


def _without_intervals(model: Imputer, grid: pd.DataFrame) -> Filled:
    table = model.impute(grid)
    observed = grid.notna()
    silent: list[str] = [str(name) for name in table.attrs["casper"]["flagged"]]
    flagged = ~observed & np.isin(grid.columns, silent)
    reasons = dict.fromkeys(silent, "no reading at all: filled from other sensors alone")
    return Filled(table, observed, {}, {}, flagged, reasons)
