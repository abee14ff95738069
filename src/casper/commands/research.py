"""Commands for people who compare methods: evaluate, reproduce, results, methods, models, data."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from casper.commands.options import (
    AsJson,
    DataDir,
    Device,
    DeviceOption,
    Force,
    Preset,
    PresetName,
    Quiet,
    Seed,
    Settings,
    Trust,
    chosen_settings,
    method_options,
    refuse_settings,
)
from casper.errors import InputError

if TYPE_CHECKING:
    from casper.contract import Imputer
    from casper.discovery.trials import TrialRoom
    from casper.reproduction.runner import Workshop
    from casper.reproduction.sampling import SamplingRoom

data = typer.Typer(help="The published benchmarks: which are at hand, and are their bytes the right ones?")


class ProtocolName(StrEnum):
    in_sample = "in-sample"
    out_of_sample = "out-of-sample"


def add_commands(app: typer.Typer) -> None:
    for command in (evaluate, reproduce, results, methods, models):
        app.command()(command)
    app.add_typer(data, name="data", no_args_is_help=True)


def evaluate(
    dataset: Annotated[str, typer.Argument(help="A benchmark: aqi36, metr-la-point, metr-la-block, ...")],
    method: Annotated[str | None, typer.Option(help="Fit this method on the benchmark, then score it.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Score a fitted model: a folder, or the name of shipped weights.")
    ] = None,
    preset: Preset = PresetName.fast,
    protocol: Annotated[
        ProtocolName | None,
        typer.Option(help="Fit with the test period's visible readings or without; else what is usual for the method."),
    ] = None,
    seed: Seed = 0,
    device: DeviceOption = Device.auto,
    settings: Settings = None,
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="Also score error bars calibrated on visible readings of the test steps."),
    ] = False,
    data_dir: DataDir = None,
    trust: Trust = False,
    out: Annotated[Path | None, typer.Option("--out", help="Also write a result file (JSON).")] = None,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Score a method or a fitted model on a benchmark's test cells."""
    from casper import datasets
    from casper.commands import console
    from casper.evaluate import device_name, provenance, write_result
    from casper.evaluate import evaluate as score
    from casper.files import refuse_overwriting
    from casper.intervals.calibrated import CalibratedImputer
    from casper.methods import load_model, make_imputer
    from casper.neural import NeuralImputer

    if (method is None) == (model is None):
        raise InputError("say what to score: either --method NAME or --model MODEL")
    if out is not None:
        refuse_overwriting(out, force=force)
    started = time.time()
    if model is not None:
        refuse_settings(settings, beside="--model")
        imputer: Imputer = load_model(model, device=device.value)
    else:
        assert method is not None
        options = method_options(
            method,
            preset=preset,
            seed=seed,
            device=device,
            progress=not (as_json or quiet),
            settings=settings,
            benchmark=dataset,
        )
        imputer = make_imputer(method, **options)
    if calibrate and not isinstance(imputer, CalibratedImputer):
        raise InputError(f"{imputer.name} gives no error bars, so there is nothing to --calibrate")
    if model is not None and protocol is not None:
        raise InputError("--protocol says how to fit, but --model is fitted already")
    chosen = None if protocol is None else protocol.value
    benchmark = datasets.load(dataset, data_dir=data_dir, trust=trust, protocol=chosen)
    if model is None:
        imputer.fit_benchmark(benchmark)
    scores = score(imputer, benchmark, calibrate=calibrate)
    if model is not None:
        scores["protocol"] = None  # a fitted model does not say
    if out is not None:
        about = imputer.describe() if isinstance(imputer, NeuralImputer) else {}
        origin = provenance(seed=seed if model is None else None, device=device_name(device.value), started=started)
        shipped = {} if model is None or Path(model).exists() else {"weights": model}
        write_result(out, {**scores, **shipped, "model": about, **origin})
    if as_json:
        typer.echo(json.dumps(scores))
    else:
        console.show_scores(scores)


def reproduce(
    table: Annotated[
        str,
        typer.Argument(
            help="main, baselines, sampling, ablation, sparsity, prompts, gates, recipe, rehearsal, dream3, "
            "causal-simulated, stability."
        ),
    ],
    dataset: Annotated[list[str] | None, typer.Option(help="Only this data set (repeat for more).")] = None,
    row: Annotated[list[str] | None, typer.Option(help="Only this row of the table (repeat for more).")] = None,
    seeds: Annotated[str | None, typer.Option(help="These seeds, such as 0,1,2; else the table's.")] = None,
    side_by_side: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Runs at a time on one device, each a process; 4 on a GPU, 1 on a CPU. They compute at the same time, "
            "not in turns, if NVIDIA's MPS runs (nvidia-cuda-mps-control -d).",
        ),
    ] = None,
    device: DeviceOption = Device.auto,
    settings: Settings = None,
    results: Annotated[Path, typer.Option(help="Folder for the result files.")] = Path("results"),
    work: Annotated[Path, typer.Option(help="Folder for checkpoints and fitted models.")] = Path("runs"),
    list_only: Annotated[
        bool, typer.Option("--list", help="Only say which runs there are, and which are done.")
    ] = False,
    data_dir: DataDir = None,
    trust: Trust = False,
    quiet: Quiet = False,
) -> None:
    """Train and score the rows of a table of the paper; one result file for each run, done ones are not done again.

    Stopped at any time, the same command goes on where it was. `casper results` makes the tables.
    """
    from casper import datasets
    from casper.commands import console
    from casper.discovery.trials import TRIAL_TABLES, TrialRoom, do_trials, trials_of
    from casper.reproduction.runner import Workshop, do_runs
    from casper.reproduction.sampling import SamplingRoom, do_sampling, sampling_trials
    from casper.reproduction.tables import runs_of
    from casper.train import uses_cuda

    def load(name: str) -> datasets.Benchmark:
        return datasets.load(name, data_dir=data_dir, trust=trust)

    console.set_up_notes(quiet=quiet)
    if table in TRIAL_TABLES:
        refuse_settings(settings, beside=table)
        trials = trials_of(table, datasets=dataset or (), rows=row or (), seeds=_numbers(seeds))
        room = TrialRoom(results, device.value, data_dir, trust)
        _do_all(trials, room, lambda tell: do_trials(trials, room, tell=tell), results, list_only=list_only)
        return
    if table == "sampling":
        refuse_settings(settings, beside=table)
        ways = sampling_trials(datasets=dataset or (), rows=row or (), seeds=_numbers(seeds))
        place = SamplingRoom(results, work, load, device.value)
        _do_all(ways, place, lambda tell: do_sampling(ways, place, tell=tell), results, list_only=list_only)
        return
    runs = runs_of(table, datasets=dataset or (), rows=row or (), seeds=_numbers(seeds))
    if not dataset:
        lacking = {name for name, files in datasets.at_hand(data_dir=data_dir).items() if files}
        absent = sorted({run.dataset for run in runs} & lacking)
        runs = [run for run in runs if run.dataset not in lacking]
        if absent:
            console.note(f"The readings of {', '.join(absent)} are not at hand; see `casper data list`.")
    workshop = Workshop(
        results,
        work,
        load,
        device=device.value,
        side_by_side=side_by_side or (4 if uses_cuda(device.value) else 1),
        progress=not quiet,
        settings=chosen_settings(settings, None) or None,
    )
    _do_all(runs, workshop, lambda tell: do_runs(runs, workshop, tell=tell), results, list_only=list_only)


def _do_all(
    runs: Sequence[Any],
    place: Workshop | TrialRoom | SamplingRoom,
    work: Callable[[Callable[[str], None]], dict[str, str]],
    folder: Path,
    *,
    list_only: bool,
) -> None:
    if list_only:
        for run in runs:
            typer.echo(f"{'done   ' if place.done(run) else 'to do  '} {place.result_of(run)}")
        return
    failed = work(partial(typer.echo, err=True))
    done = sum(place.done(run) for run in runs)
    typer.echo(f"{done} of {len(runs)} runs are in {folder}; make the tables with: casper results")
    if failed:
        raise typer.Exit(code=1)


def results(
    folder: Annotated[Path, typer.Option(help="Folder with result files.")] = Path("results"),
    page: Annotated[Path | None, typer.Option(help="Write the page of results here, its plots beside it.")] = None,
    into: Annotated[Path | None, typer.Option(help="Put the short table between the marks of this document.")] = None,
) -> None:
    """Make tables and plots of the result files that `casper reproduce` and `casper evaluate --out` wrote."""
    from casper.reproduction.page import short_table, write_page
    from casper.reproduction.results import fill_in, read_results

    read = read_results(folder)
    if page is not None:
        typer.echo(f"Wrote {', '.join(map(str, write_page(read, page)))}")
    if into is not None:
        fill_in(into, short_table(read))
    if page is None and into is None:
        typer.echo(short_table(read))


def methods(
    settings: Annotated[
        str | None, typer.Option(metavar="NAME", help="List the settings of this method instead, for --set.")
    ] = None,
) -> None:
    """List every imputer there is, and every method of causal discovery."""
    from casper.commands import console
    from casper.commands.settings import method_settings
    from casper.discovery import DISCOVERERS
    from casper.methods import METHODS

    if settings is not None:
        found = method_settings(settings)
        for heading, listed in found.items():
            console.show_settings(f"{settings}: {heading}", listed)
        if not found:
            typer.echo(f"{settings} has no settings.")
        return
    console.show_methods("fill tables", {name: method.summary for name, method in METHODS.items()})
    console.show_methods("find causes", {name: method.summary for name, method in DISCOVERERS.items()})


def models(
    name: Annotated[str | None, typer.Argument(help="Only this one: a name, or the folder of a fitted model.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what the models that come with the package know: data, period, recipe, error, intended use."""
    from casper import pretrained
    from casper.commands import console

    cards = {one: pretrained.read(one).description["card"] for one in ([name] if name else pretrained.shipped())}
    if as_json:
        typer.echo(json.dumps(cards, indent=2))
        return
    for one, card in cards.items():
        console.show_card(one, card)


@data.command("list")
def data_list(data_dir: DataDir = None) -> None:
    """Which benchmarks there are, and which of them are at hand."""
    from casper import datasets
    from casper.commands import console

    console.show_benchmarks(datasets.at_hand(data_dir=data_dir))


@data.command("verify")
def data_verify(
    names: Annotated[list[str] | None, typer.Argument(help="Benchmarks to check; without any, all at hand.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Check bytes, masks, counts and splits against the published protocols."""
    from casper import datasets
    from casper.commands import console

    wanted = names or [name for name, lacking in datasets.at_hand(data_dir=data_dir).items() if not lacking]
    if not wanted:
        raise InputError(f"no benchmark is in {datasets.data_folder(data_dir)}; see `casper data list`")
    results = {name: datasets.verify(name, data_dir=data_dir) for name in wanted}
    console.show_checks(results)
    if not all(check.ok for checks in results.values() for check in checks):
        raise typer.Exit(code=1)


def _numbers(given: str | None) -> list[int]:
    if given is None:
        return []
    try:
        return [int(number) for number in given.split(",")]
    except ValueError as error:
        raise InputError(f"--seeds takes whole numbers such as 0,1,2, not {given!r}") from error
