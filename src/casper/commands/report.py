"""The command report, and what `casper impute --report` does: a page about a filled table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from casper.commands.options import (
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
    Table,
    TimeColumn,
    Timezone,
    ValueColumn,
    read_file,
)

if TYPE_CHECKING:
    import pandas as pd

    from casper.contract import Imputer
    from casper.filling import Filling

ReportPath = Annotated[Path | None, typer.Option("--report", help="Also write a page about it (.html), see `report`.")]


def add_commands(app: typer.Typer) -> None:
    app.command()(report)


def report(
    table: Table,
    model: Annotated[str, typer.Option(help="Folder of a fitted model, or the name of shipped weights.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page: a file that ends in .html.")],
    sensors: Annotated[Path | None, typer.Option(help="File with id, latitude, longitude, for the map.")] = None,
    unit: Annotated[str, typer.Option(help="Unit of the readings, such as 'ug/m3'.")] = "",
    series: Annotated[
        list[str] | None,
        typer.Option(help="A sensor whose series must be in the page, if it cannot hold all. Repeatable."),
    ] = None,
    freq: Freq = None,
    timezone: Timezone = None,
    missing_value: MissingValue = None,
    layout: LayoutOption = Layout.auto,
    time_column: TimeColumn = None,
    id_column: IdColumn = None,
    value_column: ValueColumn = None,
    ignore_column: IgnoreColumn = None,
    key: Key = None,
    device: DeviceOption = Device.auto,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Write a page about a filled table: what was filled, how well, and from what. One file that works offline."""
    from casper.check import warn_of_stand_ins
    from casper.commands import console
    from casper.methods import load_model

    console.set_up_notes(quiet=quiet)
    check_report(out, force=force)
    read, _ = read_file(table, layout, time_column, id_column, value_column, ignore_column, key)
    fitted = load_model(model, device=device.value, progress=not quiet)
    warn_of_stand_ins(fitted.to_frame(read, freq=freq, timezone=timezone, missing_values=missing_value))
    if sensors is None:
        note_on_map(fitted)
    write(
        out,
        fitted,
        read,
        file=table,
        sensors=sensors,
        unit=unit,
        series=tuple(series or ()),
        freq=freq,
        timezone=timezone,
        missing_values=missing_value,
        force=force,
    )


def check_report(path: Path | None, *, force: bool) -> None:
    """Before any work is done."""
    if path is not None:
        from casper.report.html import refuse_report

        refuse_report(path, force=force)


def note_on_map(fitted: Imputer) -> None:
    """Before the work: the page itself says so too late."""
    from casper.commands import console

    if fitted.name == "casper":  # no other report has a map
        console.note("A fitted model keeps no coordinates: for a map in the report, give them with --sensors.")


def write(
    path: Path, imputer: Imputer, table: pd.DataFrame | Filling, *, file: Path, sensors: Path | None, **options: Any
) -> None:
    from casper.evaluate import told_command
    from casper.frame.sensors import match_sensors
    from casper.io import read_sensors
    from casper.report.html import write_report

    write_report(
        path,
        imputer,
        table,
        sensors=None if sensors is None else match_sensors(read_sensors(sensors), imputer.graph.sensors),
        name=file.name,
        file=file,
        command=told_command("casper", sys.argv[1:]),
        **options,
    )
    typer.echo(f"Wrote {path} ({path.stat().st_size / 1e6:.1f} MB); open it in a browser, it needs no network")
