"""Commands about causes: graph, explain, discover."""

from __future__ import annotations

import json
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from casper.commands.options import (
    AsJson,
    Device,
    DeviceOption,
    Force,
    Freq,
    IdColumn,
    IgnoreColumn,
    Key,
    Layout,
    LayoutOption,
    MissingValue,
    Quiet,
    Seed,
    Settings,
    Table,
    TimeColumn,
    Timezone,
    ValueColumn,
    chosen_settings,
    read_file,
)
from casper.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from casper.causal import CausalGraph
    from casper.imputer import Casper

_GRAPH_FILE = "File for the graph: .json, .graphml or .parquet (everything), or .csv (edges)."
Model = Annotated[str, typer.Option(help="Folder of a fitted model, or the name of shipped weights.")]
GraphOut = Annotated[Path, typer.Option("--out", "-o", help=_GRAPH_FILE)]
Layer = Annotated[int | None, typer.Option(help="Only this layer of the model; otherwise the mean of all.")]


Sensor = Annotated[str, typer.Option(help="Whose value.")]
Time = Annotated[str, typer.Option(help="When: a time stamp as the table has it, such as '2024-03-01 12:00'.")]
Places = Annotated[Path | None, typer.Option(help="File with id, latitude, longitude, for the picture.")]


class MeasureName(StrEnum):
    weight = "weight"
    attention = "attention"
    rho = "rho"
    influence = "influence"


def add_commands(app: typer.Typer) -> None:
    for command in (graph, explain, discover):
        app.command()(command)


def graph(
    table: Table,
    model: Model,
    out: GraphOut,
    measure: Annotated[
        MeasureName, typer.Option(help="What an edge weighs: its share of the messages, or another measure.")
    ] = MeasureName.weight,
    top: Annotated[
        int, typer.Option(min=0, help="Keep so many edges (a source at a lag) of every sensor; 0: all.")
    ] = 10,
    with_self: Annotated[bool, typer.Option("--with-self", help="Keep edges of a sensor to itself, too.")] = False,
    past_only: Annotated[bool, typer.Option("--past-only", help="Leave out edges from a sensor's future.")] = False,
    windows: Annotated[int, typer.Option(min=1, help="How many windows of the table are looked at.")] = 256,
    layer: Layer = None,
    picture: Annotated[
        Path | None, typer.Option(help="Also draw the sensors and arrows (needs --sensors); .png, .svg or .pdf.")
    ] = None,
    sensors: Places = None,
    device: DeviceOption = Device.auto,
    layout: LayoutOption = Layout.auto,
    time_column: TimeColumn = None,
    id_column: IdColumn = None,
    value_column: ValueColumn = None,
    ignore_column: IgnoreColumn = None,
    key: Key = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Write the causal graph: which sensors, at which lags, a model draws on to fill a table."""
    from casper.commands import console
    from casper.frame import match_sensors
    from casper.io import read_sensors

    console.set_up_notes(quiet=quiet)
    _check_files(out, picture, force=force)
    if picture is not None and sensors is None:
        raise InputError("a picture of the graph needs the sensors' places: pass --sensors FILE")
    places = None if sensors is None else read_sensors(sensors)
    read, _ = read_file(table, layout, time_column, id_column, value_column, ignore_column, key)
    if places is not None:
        places = match_sensors(places, [str(name) for name in read.columns])  # before any work is done
    found = _casper(model, device, quiet=quiet).causal_graph(read, measure=measure.value, windows=windows, layer=layer)
    found = found if with_self else found.without_self()
    found = found.constrained() if past_only else found
    found = found.top(top) if top else found
    found.write(out)
    _tell(found, out)
    if picture is not None:
        _draw(found, places, picture, f"What each sensor is filled from ({table.name})")


def explain(
    table: Table,
    model: Model,
    sensor: Sensor,
    time: Time,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A picture (.png, .svg, .pdf) or all causes (.csv, .parquet).")
    ] = None,
    layer: Annotated[int, typer.Option(help="Which layer of the model; -1 is the last.")] = -1,
    device: DeviceOption = Device.auto,
    layout: LayoutOption = Layout.auto,
    time_column: TimeColumn = None,
    id_column: IdColumn = None,
    value_column: ValueColumn = None,
    ignore_column: IgnoreColumn = None,
    key: Key = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Show what one value is made from: which sensors, at which steps, with and without the causal gates."""
    from casper.commands import console
    from casper.files import atomic, refuse_overwriting
    from casper.report.explanation_picture import explanation_picture
    from casper.report.style import SUFFIXES, save

    if out is not None:
        if out.suffix.lower() not in (*SUFFIXES, ".csv", ".parquet"):
            raise InputError(f"{out}: an explanation is written as {', '.join(SUFFIXES)}, .csv or .parquet")
        refuse_overwriting(out, force=force)
    read, look = read_file(table, layout, time_column, id_column, value_column, ignore_column, key)
    at = look.read_time(time)
    explanation = _casper(model, device, quiet=True).explain(read, sensor=sensor, time=at, layer=layer)
    causes = explanation.causes()
    if out is not None and out.suffix.lower() in SUFFIXES:
        save(explanation_picture(explanation), out)
    elif out is not None:
        with atomic(out) as temporary:
            causes.to_csv(temporary, index=False) if out.suffix == ".csv" else causes.to_parquet(temporary)
    if as_json:
        value = {name: getattr(explanation, name) for name in ("sensor", "estimate", "measured")}
        listed = json.loads(causes.to_json(orient="records", date_format="iso"))
        typer.echo(json.dumps({**value, "time": explanation.time.isoformat(), "causes": listed}))
        return
    console.show_causes(explanation, causes)
    if out is not None:
        typer.echo(f"Wrote {out}")


def discover(
    table: Table,
    out: GraphOut,
    method: Annotated[
        str, typer.Option(help="casper, pcmci, ngc, esru, lccm, ngm, cuts or granger (see `casper methods`).")
    ] = "casper",
    refits: Annotated[int, typer.Option(min=0, help="Look again at so many resampled series for stability.")] = 0,
    top: Annotated[int, typer.Option(min=0, help="Print so many of the strongest edges.")] = 8,
    strongest: Annotated[
        int,
        typer.Option(
            min=0,
            help="Write only so many of the strongest pairs of two sensors, each at its strongest lag; 0: all there "
            "is, since comparisons with a true graph, such as AUROC, need the scores of all pairs.",
        ),
    ] = 0,
    picture: Annotated[
        Path | None,
        typer.Option(help="Also draw it, .png, .svg or .pdf: a matrix, or with --sensors arrows on a map."),
    ] = None,
    sensors: Places = None,
    near: Annotated[
        bool, typer.Option("--near", help="Only neighbours can be causes: what --sensors says is far apart, is not.")
    ] = False,
    seed: Seed = 0,
    device: DeviceOption = Device.auto,
    settings: Settings = None,
    freq: Freq = None,
    timezone: Timezone = None,
    missing_value: MissingValue = None,
    layout: LayoutOption = Layout.auto,
    time_column: TimeColumn = None,
    id_column: IdColumn = None,
    value_column: ValueColumn = None,
    ignore_column: IgnoreColumn = None,
    key: Key = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Find which columns of a table cause which, by CASPER or another method of causal discovery.

    `casper methods --settings NAME` lists what --set can change.
    """
    import pandas as pd

    from casper.commands import console
    from casper.discovery import discover as find_causes
    from casper.frame import match_sensors, to_frame
    from casper.io import read_sensors
    from casper.progress import told_progress

    console.set_up_notes(quiet=quiet)
    _check_files(out, picture, force=force)
    if near and sensors is None:
        raise InputError("--near needs the sensors' places: pass --sensors FILE")
    if sensors is not None and picture is None and not near:
        raise InputError("--sensors is for --near, or for a picture: say where to write it with --picture FILE")
    places = None if sensors is None else read_sensors(sensors)
    read, _ = read_file(table, layout, time_column, id_column, value_column, ignore_column, key)
    frame = to_frame(read, freq=freq, timezone=timezone, missing_values=tuple(missing_value or ()))
    if places is not None:
        places = match_sensors(places, frame.sensors)  # before any work is done
    console.note(*frame.notes)
    if frame.dead:
        console.note(f"Without any reading, and therefore left out: {', '.join(frame.dead)}")
    series = pd.DataFrame(frame.values, index=frame.times, columns=list(frame.sensors))
    chosen = chosen_settings(settings, None)
    with told_progress(method, shown=not quiet) as tell:
        found = find_causes(
            series,
            method=method,
            seed=seed,
            device=device.value,
            refits=refits,
            sensors=places if near else None,
            tell=tell,
            **chosen,
        )
    if strongest:
        found = replace(found.pairs().strongest(strongest), origin={**found.origin, "strongest": strongest})
    found.write(out)
    _tell(found, out, most=top)
    if picture is not None:
        _draw(found, places, picture, f"Who influences whom ({table.name}, by {method})")


def _casper(name: str, device: Device, *, quiet: bool) -> Casper:
    from casper.imputer import Casper

    return Casper.from_pretrained(name, device=device.value, progress=not quiet)


def _check_files(out: Path, picture: Path | None, *, force: bool) -> None:
    """Before any work is done."""
    from casper.files import refuse_overwriting
    from casper.graph_files import GRAPH_SUFFIXES
    from casper.report.style import check_suffix

    if out.suffix not in GRAPH_SUFFIXES:
        raise InputError(f"{out}: a graph is written as {', '.join(GRAPH_SUFFIXES)}")
    if picture is not None:
        check_suffix(picture)
    for path in filter(None, (out, picture)):
        refuse_overwriting(path, force=force)


def _tell(found: CausalGraph, out: Path, *, most: int = 8) -> None:
    from casper.commands import console

    if most:
        console.show_edges(found, most=most)
    typer.echo(f"Wrote {len(found):,} edges between {len(found.sensors)} sensors to {out}")


def _draw(found: CausalGraph, places: pd.DataFrame | None, picture: Path, title: str) -> None:
    from casper.report.graph_pictures import ARROWS_OF_SENSOR, graph_picture
    from casper.report.style import save

    save(graph_picture(found, places, title=title), picture)
    shown = "a matrix" if places is None else f"the {ARROWS_OF_SENSOR} strongest causes of every sensor"
    typer.echo(f"Wrote {picture}: {shown}, of every pair its strongest lag")
