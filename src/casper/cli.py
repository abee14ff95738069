"""The command `casper`: thin. Parses, calls, prints; heavy packages are imported by the command that needs them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from casper import __version__
from casper.commands import causal as cli_causal
from casper.commands import plot as cli_plot
from casper.commands import report as cli_report
from casper.commands import research as cli_research
from casper.commands.options import (
    Adjacency,
    AsJson,
    ConfigFile,
    DataDir,
    Device,
    DeviceOption,
    Devices,
    Distances,
    Force,
    Freq,
    IdColumn,
    IgnoreColumn,
    Key,
    Layout,
    LayoutOption,
    MissingValue,
    Preset,
    PresetName,
    Quiet,
    Seed,
    Sensors,
    Settings,
    Table,
    TimeColumn,
    Timezone,
    Trust,
    ValueColumn,
    fit_table,
    graph_inputs,
    interval_shares,
    method_options,
    read_file,
    refuse_error_bars,
    refuse_output,
    refuse_settings,
    training_folder,
    training_in,
    write_error_bars,
)
from casper.errors import InputError, ProblemsError, problems_of

if TYPE_CHECKING:
    from casper.contract import Imputer

app = typer.Typer(
    name="casper",
    help="Fill the holes in a table of sensor readings, and see which sensors the answer was drawn from.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_INTERRUPTED = 130  # what Typer exits with when the user presses Ctrl-C


def main() -> None:
    """Run the command line. What the user got wrong ends in one line and exit code 2, never in a traceback."""
    # Threads that wait politely: on a machine that does other things too, spinning ones make training crawl. Read by
    # PyTorch's thread pool when it is loaded, which is later than this.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app(prog_name="casper")
    except InputError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error}; check the path, its rights and the space on the disk")
    except SystemExit as stop:
        if stop.code == _INTERRUPTED:
            typer.echo("casper: stopped; an unfinished training continues with --resume", err=True)
        raise


def _fail(message: str) -> NoReturn:
    typer.echo(f"casper: error: {' '.join(message.splitlines())}", err=True)
    sys.exit(2)


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if show:
        typer.echo(f"casper {__version__}")
        raise typer.Exit


@app.command()
def check(
    table: Table,
    sensors: Sensors = None,
    distances: Distances = None,
    adjacency: Adjacency = None,
    freq: Freq = None,
    timezone: Timezone = None,
    missing_value: MissingValue = None,
    layout: LayoutOption = Layout.auto,
    time_column: TimeColumn = None,
    id_column: IdColumn = None,
    value_column: ValueColumn = None,
    ignore_column: IgnoreColumn = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Look at a table before filling it: period, step, gaps, odd sensors; every problem at once."""
    from casper.check import summarise
    from casper.commands import console
    from casper.frame import examine, match_sensors
    from casper.frame.sensors import region
    from casper.graph import build_graph

    console.set_up_notes(quiet=as_json)
    problems: list[str] = []
    read, _ = read_file(table, layout, time_column, id_column, value_column, ignore_column, key, problems=problems)
    frame, found = examine(read, freq=freq, timezone=timezone, missing_values=tuple(missing_value or ()))
    problems += found
    graph = places = None
    try:
        names = [str(name) for name in read.columns]
        listed = graph_inputs(names, sensors, distances, adjacency)
        if listed["sensors"] is not None:
            places = match_sensors(listed["sensors"], names)
        if frame is not None and not problems:
            graph = build_graph(frame, **listed)
    except InputError as error:
        problems += problems_of(error)
    summary = None if frame is None else summarise(frame)
    if graph is None or summary is None:
        seen = [] if summary is None else summary.findings()
        raise ProblemsError([*problems, *(f"also seen: {one}" if one is seen[0] else one for one in seen)])
    if as_json:
        degree = graph.degree()
        told = {"origin": graph.origin, "edges": len(graph.source), "degree": [int(degree.min()), int(degree.max())]}
        spans = None if places is None else {name: [float(p.min()), float(p.max())] for name, p in places.items()}
        typer.echo(json.dumps({**summary.to_dict(), "graph": told, "region": spans}, indent=2))
    else:
        console.show_summary(table.name, summary, graph, region=None if places is None else region(places))


@app.command()
def fit(
    table: Annotated[str, typer.Argument(help="A table file, or the name of a benchmark such as aqi36.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the fitted model.")],
    sensors: Sensors = None,
    distances: Distances = None,
    adjacency: Adjacency = None,
    freq: Freq = None,
    timezone: Timezone = None,
    missing_value: MissingValue = None,
    layout: LayoutOption = Layout.auto,
    time_column: TimeColumn = None,
    id_column: IdColumn = None,
    value_column: ValueColumn = None,
    ignore_column: IgnoreColumn = None,
    key: Key = None,
    method: Annotated[str, typer.Option(help="What to fit (see `casper methods`).")] = "casper",
    preset: Preset = PresetName.fast,
    seed: Seed = 0,
    device: DeviceOption = Device.auto,
    devices: Devices = 1,
    settings: Settings = None,
    config: ConfigFile = None,
    data_dir: DataDir = None,
    trust: Trust = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a training that was interrupted.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard logs.")] = False,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Fit a model on a table and keep it in a folder."""
    from casper import datasets
    from casper.commands import console
    from casper.files import refuse_replacing_folder
    from casper.methods import has_network, make_imputer
    from casper.neural import NeuralImputer
    from casper.pretrained import FILES

    console.set_up_notes(quiet=quiet)
    refuse_replacing_folder(out, force=force, ours=FILES)
    work = training_folder(out, resume=resume, force=force)
    if not has_network(method):
        raise InputError(f"{method} has nothing to keep; fill the table at once: casper impute --method {method}")
    is_benchmark = table in datasets.NAMES and not Path(table).exists()
    options = method_options(
        method,
        preset=preset,
        seed=seed,
        device=device,
        progress=not quiet,
        settings=settings,
        config=config,
        benchmark=table if is_benchmark else None,
    )
    model = make_imputer(method, devices=devices, **options)
    assert isinstance(model, NeuralImputer)
    model.train_in(work, tensorboard=tensorboard)
    benchmark = read = None
    if is_benchmark:
        benchmark = datasets.load(table, data_dir=data_dir, trust=trust)
    else:
        read, _ = read_file(Path(table), layout, time_column, id_column, value_column, ignore_column, key)
    with training_in(work, resume=resume):
        if benchmark is not None:
            model.fit_benchmark(benchmark)
        elif read is not None:
            fit_table(model, read, sensors, distances, adjacency, freq, timezone, missing_value)
        model.save_pretrained(out, force=force)
        for kept in ("metrics.csv", "tensorboard"):
            if (work / kept).exists():
                (work / kept).rename(out / kept)
    console.show_fitted(out, model.describe())


@app.command()
def impute(
    table: Table,
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the filled table; its suffix names the format.")],
    model: Annotated[str | None, typer.Option(help="Folder of a fitted model, or the name of shipped weights.")] = None,
    method: Annotated[str, typer.Option(help="Without a model: what to fit first (see `casper methods`).")] = "casper",
    sensors: Sensors = None,
    distances: Distances = None,
    adjacency: Adjacency = None,
    freq: Freq = None,
    timezone: Timezone = None,
    missing_value: MissingValue = None,
    layout: LayoutOption = Layout.auto,
    time_column: TimeColumn = None,
    id_column: IdColumn = None,
    value_column: ValueColumn = None,
    ignore_column: IgnoreColumn = None,
    key: Key = None,
    preset: Preset = PresetName.fast,
    seed: Seed = 0,
    device: DeviceOption = Device.auto,
    settings: Settings = None,
    all_steps: Annotated[bool, typer.Option("--all-steps", help="Also write rows for steps that had none.")] = False,
    error_bars: Annotated[
        Path | None, typer.Option("--error-bars", help="Also write the ends of every filled value's intervals (.csv).")
    ] = None,
    intervals: Annotated[
        str, typer.Option(help="For --error-bars and --report: shares of true values that intervals are to hold.")
    ] = "0.5,0.9",
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Judge the error bars anew by readings of this table: for another time than the model was fitted on.",
        ),
    ] = False,
    report: cli_report.ReportPath = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Write the same table without holes. Without --model it fits one first."""
    from casper.check import warn_of_stand_ins
    from casper.commands import console
    from casper.intervals.calibrated import DRAWS
    from casper.io import write_table
    from casper.methods import load_model, make_imputer

    console.set_up_notes(quiet=quiet)
    refuse_output(out, force=force)
    shares = None if error_bars is None and report is None else interval_shares(intervals)
    if error_bars is not None:
        refuse_error_bars(error_bars, force=force)
    cli_report.check_report(report, force=force)
    if calibrate and model is None:
        raise InputError("--calibrate is for fitted models (--model): what is fitted here judges by this table anyway")
    if calibrate and shares is None:
        raise InputError("--calibrate changes nothing but error bars: ask for them with --error-bars or --report")
    read, look = read_file(table, layout, time_column, id_column, value_column, ignore_column, key)
    as_read: dict[str, Any] = {"freq": freq, "timezone": timezone, "missing_values": missing_value}
    if model is not None:
        refuse_settings(settings, beside="--model")
        if any((sensors, distances, adjacency)):
            used = "used for the report's map only" if sensors is not None and report is not None else "not used"
            console.note(f"The model brings its own sensor network; the one given here is {used}.")
        fitted = load_model(model, device=device.value, progress=not quiet)
        if report is not None and sensors is None:
            cli_report.note_on_map(fitted)
        frame = fitted.to_frame(read, **as_read)
        warn_of_stand_ins(frame)
        if calibrate:
            fitted.calibrate(frame, draws=DRAWS)
        imputer: Imputer = fitted
    else:
        options = method_options(method, preset=preset, seed=seed, device=device, progress=not quiet, settings=settings)
        imputer = make_imputer(method, **options)
        frame = fit_table(imputer, read, sensors, distances, adjacency, freq, timezone, missing_value)
    if error_bars is None and not imputer.has_intervals:
        shares = None  # a report does without
    filling = imputer.fill(frame, intervals=shares)
    filled = filling.table(all_steps=all_steps)
    if error_bars is not None:
        write_error_bars(filling.with_bars(all_steps=all_steps), error_bars, like=look)
    if model is not None:  # a fit has told them already
        console.note(*filled.attrs["casper"]["notes"])
    # Rows that the file did not have cannot be written in its very form.
    like = look if filled.index.equals(read.index) else None
    write_table(filled, out, like=like, filled=filling.frame.holes(all_steps=all_steps), force=force)
    console.show_filled(out, filled)
    if error_bars is not None:
        typer.echo(f"Wrote {error_bars}: a row for every filled value, with its intervals")
    if report is not None:
        cli_report.write(report, imputer, filling, file=table, sensors=sensors, force=force)


@app.command()
def simulate(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the files.")],
    sensors: Annotated[int, typer.Option(help="How many sensors.")] = 24,
    steps: Annotated[int, typer.Option(help="How many hours.")] = 2160,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Write a simulated air-quality network: readings with holes, the truth, sensors, the true causal graph."""
    from casper.files import atomic_folder
    from casper.simulate import simulate as simulate_network

    made = simulate_network(sensors=sensors, steps=steps, seed=seed)
    names = ("readings.csv", "truth.csv", "sensors.csv", "edges.csv")
    with atomic_folder(out, force=force, ours=names) as folder:
        made.table.to_csv(folder / names[0])
        made.complete.to_csv(folder / names[1])
        made.sensors.to_csv(folder / names[2], index=False)
        made.edges.to_csv(folder / names[3], index=False)
    typer.echo(f"Wrote {', '.join(names)} to {out}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the filled table and the pictures.")] = Path(
        "casper-demo"
    ),
    force: Force = False,
) -> None:
    """Fill the holes of a simulated network with shipped weights, and compare with the truth. Under a minute."""
    from casper.commands import console
    from casper.commands.demo import run_demo

    console.show_demo(run_demo(out, force=force))


cli_causal.add_commands(app)
cli_plot.add_commands(app)
cli_report.add_commands(app)
cli_research.add_commands(app)
