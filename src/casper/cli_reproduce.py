"""`casper reproduce`: train and score the rows of one of the paper's tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from casper.options import DataDir, Device, DeviceOption, Quiet, Settings, Trust, chosen_settings


def reproduce(
    table: Annotated[str, typer.Argument(help="main, ablation, sparsity, prompts or gates.")],
    dataset: Annotated[list[str] | None, typer.Option(help="Only this data set (repeat for more).")] = None,
    row: Annotated[list[str] | None, typer.Option(help="Only this row of the table (repeat for more).")] = None,
    seeds: Annotated[str | None, typer.Option(help="These seeds, such as 0,1,2; else the table's.")] = None,
    side_by_side: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time on one device; 4 on a GPU, 1 on a CPU.")
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
    from casper import console, datasets
    from casper.reproduction import runs_of
    from casper.runner import Workshop, do_runs
    from casper.train import uses_cuda

    console.set_up_notes(quiet=quiet)
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
        lambda name: datasets.load(name, data_dir=data_dir, trust=trust),
        device=device.value,
        side_by_side=side_by_side or (4 if uses_cuda(device.value) else 1),
        progress=not quiet,
        settings=chosen_settings(settings, None) or None,
    )
    if list_only:
        for run in runs:
            typer.echo(f"{'done   ' if workshop.done(run) else 'to do  '} {workshop.result_of(run)}")
        return
    failed = do_runs(runs, workshop, tell=lambda line: typer.echo(line, err=True))
    done = sum(workshop.done(run) for run in runs)
    typer.echo(f"{done} of {len(runs)} runs are in {results}; make the tables with: casper results")
    if failed:
        raise typer.Exit(code=1)


def _numbers(given: str | None) -> list[int]:
    from casper.errors import InputError

    if given is None:
        return []
    try:
        return [int(number) for number in given.split(",")]
    except ValueError as error:
        raise InputError(f"--seeds takes whole numbers such as 0,1,2, not {given!r}") from error
