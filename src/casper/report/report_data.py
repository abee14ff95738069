"""All that a report tells, gathered from a model and a table; `casper.report.html` turns it into a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from casper.causal import CausalGraph
from casper.check import TableSummary, summarise
from casper.contract import Imputer
from casper.errors import InputError
from casper.filled import Filled
from casper.filling import Filling
from casper.frame import SensorFrame
from casper.frame.sensors import match_sensors
from casper.imputer import Casper
from casper.report.arrows import network
from casper.report.explained_values import explained_values
from casper.report.hidden_check import HiddenCheck, hidden_check
from casper.report.recipe import Recipe, recipe

INTERVALS = (0.5, 0.9)
WINDOWS_FOR_GRAPH = 96


@dataclass(frozen=True, eq=False)
class ReportData:
    """filled: every step of the frame. network: see `casper.report.arrows.network`; values: see
    `casper.report.explained_values`; both None if the method does not tell what it draws on. graph_origin: how the
    arrows were found. kriging_shares: how much of a value is kriging's, for each class of distance to the nearest
    reading; none if kriging is not mixed in."""

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
    kriging_shares: tuple[float, ...]
    wanted_series: tuple[str, ...]
    recipe: Recipe


def gather(
    model: Imputer,
    table: pd.DataFrame | Filling,
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
    """table: or what the model's `fill` made of it already; then freq, timezone and missing_values have had their say.
    sensors: places for the map. series: sensors whose series must be in the page. graph: the model's for this table, if
    it is already there. The rest is as in `Imputer.impute`."""
    if isinstance(table, Filling):
        frame = table.frame
    else:
        frame = model.to_frame(table, freq=freq, timezone=timezone, missing_values=missing_values)
    _refuse_unknown(frame, sensors, series)
    if not isinstance(table, Filling):
        table = model.fill(frame, intervals=INTERVALS if model.has_intervals else None)
    filled = table.on_grid()
    grid = pd.DataFrame(frame.values, index=frame.times, columns=list(frame.sensors))
    arrows = values = None
    origin: dict[str, Any] = {}
    kriging: tuple[float, ...] = ()
    if isinstance(model, Casper):
        graph = model.causal_graph(grid, windows=WINDOWS_FOR_GRAPH) if graph is None else graph
        arrows = network(model, graph, frame.sensors, frame.step, sensors, dead=frame.dead)
        origin = dict(graph.origin)
        values = explained_values(model, frame, grid, filled)
        kriging = tuple(model.describe().get("share_of_kriging", {}).values())
    return ReportData(
        name=name,
        unit=unit,
        method=model.name,
        frame=frame,
        filled=filled,
        why_no_intervals=model.why_no_intervals,
        summary=summarise(frame),
        check=hidden_check(model, frame, grid, filled.shares),
        network=arrows,
        graph_origin=origin,
        values=values,
        has_gates=isinstance(model, Casper) and model.config.gate != "none",
        kriging_shares=kriging,
        wanted_series=tuple(series),
        recipe=recipe(model, frame, file=file, command=command),
    )


def _refuse_unknown(frame: SensorFrame, sensors: pd.DataFrame | None, series: Sequence[str]) -> None:
    """Before any work is done."""
    if sensors is not None:
        match_sensors(sensors, frame.sensors)
    unknown = [name for name in series if name not in frame.sensors]
    if unknown:
        raise InputError(f"there is no sensor {unknown[0]!r} in the table to show the series of")
