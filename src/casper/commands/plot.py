"""Pictures for papers and colleagues: `casper plot KIND ... -o FILE`, as PNG, SVG or PDF."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from casper.commands.causal import Layer, Model, Places, Sensor, Time
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
    Table,
    TimeColumn,
    Timezone,
    ValueColumn,
    read_file,
)
from casper.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from casper.io import TableFormat

Out = Annotated[Path, typer.Option("--out", "-o", help="The picture: .png, .svg or .pdf.")]
Title = Annotated[str | None, typer.Option(help="Another title.")]

plot = typer.Typer(help="Draw tables, gaps, causes and measured runs: .png, .svg or .pdf.")


def add_commands(app: typer.Typer) -> None:
    app.add_typer(plot, name="plot", no_args_is_help=True)


@plot.command()
def gaps(
    table: Table,
    out: Out,
    title: Title = None,
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
) -> None:
    """Where readings are missing: sensors down, time across; steps without a row count as missing."""
    import pandas as pd

    from casper.frame import to_frame
    from casper.report.pictures import gap_picture

    _check(out, force=force)
    read, _ = read_file(table, layout, time_column, id_column, value_column, ignore_column, key)
    frame = to_frame(read, freq=freq, timezone=timezone, missing_values=tuple(missing_value or ()))
    observed = pd.DataFrame(frame.observed, index=frame.times, columns=list(frame.sensors))
    _save(gap_picture(observed, title=title or f"Measured and missing readings ({table.name})"), out)


@plot.command()
def series(
    table: Table,
    out: Out,
    sensor: Annotated[
        list[str] | None, typer.Option(help="Which one. Repeatable; without: those with many holes between readings.")
    ] = None,
    filled: Annotated[Path | None, typer.Option(help="The same table as `casper impute` filled it.")] = None,
    truth: Annotated[Path | None, typer.Option(help="The same table without holes, if it is known.")] = None,
    begin: Annotated[str | None, typer.Option("--from", help="First time stamp; else ten days are picked.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Last time stamp.")] = None,
    unit: Annotated[str, typer.Option(help="Of the readings, for the axis.")] = "",
    title: Title = None,
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
) -> None:
    """Readings over time, and what was filled in between them."""
    import pandas as pd

    from casper.frame import to_frame
    from casper.report.pictures import filled_picture

    _check(out, force=force)

    looks: list[TableFormat] = []

    def on_grid(path: Path | None) -> pd.DataFrame | None:
        if path is None:
            return None
        read, look = read_file(path, layout, time_column, id_column, value_column, ignore_column, key)
        looks.append(look)
        frame = to_frame(read, freq=freq, timezone=timezone, missing_values=tuple(missing_value or ()))
        return pd.DataFrame(frame.values, index=frame.times, columns=list(frame.sensors))

    measured, given, known = map(on_grid, (table, filled, truth))
    assert measured is not None, "there is always a table"
    start, stop = (None if text is None else looks[0].read_time(text) for text in (begin, end))
    period = None if start is None and stop is None else (start or measured.index[0], stop or measured.index[-1])
    figure = filled_picture(
        measured,
        given,
        truth=known,
        sensors=sensor,
        period=period,
        unit=unit,
        title=title
        or (f"Readings ({table.name})" if given is None else f"Measured and filled readings ({table.name})"),
    )
    _save(figure, out)


@plot.command()
def attention(
    table: Table,
    model: Model,
    sensor: Sensor,
    time: Time,
    out: Out,
    layer: Annotated[int, typer.Option(help="Which layer of the model; -1 is the last.")] = -1,
    title: Title = None,
    device: DeviceOption = Device.auto,
    layout: LayoutOption = Layout.auto,
    time_column: TimeColumn = None,
    id_column: IdColumn = None,
    value_column: ValueColumn = None,
    ignore_column: IgnoreColumn = None,
    key: Key = None,
    force: Force = False,
) -> None:
    """What one value looks at, with and without the causal gates: the paper's Figure 5 for any value."""
    from casper.imputer import Casper
    from casper.report.explanation_picture import explanation_picture

    _check(out, force=force)
    read, look = read_file(table, layout, time_column, id_column, value_column, ignore_column, key)
    casper = Casper.from_pretrained(model, device=device.value)
    explanation = casper.explain(read, sensor=sensor, time=look.read_time(time), layer=layer)
    _save(explanation_picture(explanation, title=title), out)


@plot.command()
def causes(
    table: Table,
    model: Model,
    sensor: Annotated[str, typer.Option(help="Whose causes.")],
    out: Out,
    time: Annotated[
        str | None, typer.Option(help="Of its value then, such as '2024-03-01 12:00'; without: of all its values.")
    ] = None,
    sensors: Places = None,
    least: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Smallest share of a cause; without: more than an equal share."),
    ] = None,
    windows: Annotated[int, typer.Option(min=1, help="Without --time: how many windows are looked at.")] = 256,
    layer: Layer = None,
    title: Title = None,
    device: DeviceOption = Device.auto,
    layout: LayoutOption = Layout.auto,
    time_column: TimeColumn = None,
    id_column: IdColumn = None,
    value_column: ValueColumn = None,
    ignore_column: IgnoreColumn = None,
    key: Key = None,
    force: Force = False,
) -> None:
    """Which sensors one is filled from: the paper's Figure 6 with --sensors, bars without."""
    from casper.imputer import Casper
    from casper.io import read_sensors
    from casper.report.causes_picture import Shares, causes_bars, causes_map

    _check(out, force=force)
    places = None if sensors is None else read_sensors(sensors)
    read, look = read_file(table, layout, time_column, id_column, value_column, ignore_column, key)
    casper = Casper.from_pretrained(model, device=device.value, progress=time is None)
    if time is not None:
        at, layer = look.read_time(time), -1 if layer is None else layer
        shares = Shares.of_value(casper.explain(read, sensor=sensor, time=at, layer=layer))
    else:
        shares = Shares.of_sensor(casper.causal_graph(read, windows=windows, layer=layer), sensor)
    if places is None:
        _save(causes_bars(shares, least=least, title=title), out)
    else:
        _save(causes_map(shares, places, least=least, title=title), out)


@plot.command()
def graph(
    file: Annotated[Path, typer.Argument(metavar="GRAPH", help="A graph of `casper graph` or `casper discover`.")],
    out: Out,
    sensors: Places = None,
    past_only: Annotated[bool, typer.Option("--past-only", help="Leave out edges from a sensor's future.")] = False,
    least: Annotated[float, typer.Option(min=0, help="Smallest weight of an edge.")] = 0.0,
    title: Title = None,
    force: Force = False,
) -> None:
    """A causal graph: arrows on a map with --sensors, else a matrix of sources and targets."""
    from casper.causal import CausalGraph
    from casper.frame.sensors import match_sensors
    from casper.io import read_sensors
    from casper.report.graph_pictures import graph_picture

    _check(out, force=force)
    found = CausalGraph.read(_existing(file))
    found = (found.constrained() if past_only else found).threshold(least)
    places = None if sensors is None else match_sensors(read_sensors(sensors), found.sensors)
    _save(graph_picture(found, places, title=title or f"Who influences whom ({file.name})"), out)


@plot.command()
def learning(
    files: Annotated[
        list[Path], typer.Argument(help="Results of `casper reproduce` (.json), metrics.csv of fitted models, or both.")
    ],
    out: Out,
    title: Title = None,
    force: Force = False,
) -> None:
    """Validation errors in the course of trainings; of a single metrics.csv the training loss, too."""
    import pandas as pd

    from casper.report.pictures import learning_curve_picture
    from casper.report.result_plots import Curve, learning_curves_picture
    from casper.report.style import headline
    from casper.reproduction.results import read_run

    _check(out, force=force)
    if len(files) == 1 and files[0].suffix == ".csv":
        history = pd.read_csv(_existing(files[0]))
        history["epoch"] += 1  # people count from one
        _save(learning_curve_picture(history, title=title or f"Learning curve ({_home(files[0])})"), out)
        return
    curves = [
        Curve.of_history(pd.read_csv(_existing(file)), _home(file))
        if file.suffix == ".csv"
        else Curve.of_run(read_run(file))
        for file in files
    ]
    if not any(curve.points for curve in curves):
        raise InputError("none of these files holds a validation error to draw")
    figure = learning_curves_picture(curves)
    headline(figure, title or "Learning curves")
    _save(figure, out)


@plot.command()
def sensitivity(
    folder: Annotated[Path, typer.Argument(metavar="RESULTS", help="Folder with results of `casper reproduce`.")],
    out: Out,
    force: Force = False,
) -> None:
    """Test errors against lambda and the number of prompts: the paper's Figure 7."""
    from casper.report.result_plots import SENSITIVITIES, sensitivity_picture
    from casper.reproduction.results import read_results

    _check(out, force=force)
    groups = read_results(folder).groups(*SENSITIVITIES)
    if not groups:
        tables = " or ".join(f"`casper reproduce {name}`" for name in SENSITIVITIES)
        raise InputError(f"{folder} has no results of {tables}: run one of them first")
    _save(sensitivity_picture(groups), out)


def _check(out: Path, *, force: bool) -> None:
    """Before any work is done."""
    from casper.files import refuse_overwriting
    from casper.report.style import check_suffix

    check_suffix(out)
    refuse_overwriting(out, force=force)


def _existing(file: Path) -> Path:
    if not file.is_file():
        raise InputError(f"there is no file {file}: check its name and folder")
    return file


def _home(file: Path) -> str:
    """What tells a metrics.csv from another: the folder of its model."""
    return file.resolve().parent.name if file.name == "metrics.csv" else file.name


def _save(figure: Figure, out: Path) -> None:
    from casper.report.style import save

    typer.echo(f"Wrote {save(figure, out)}")
