"""python -m benchmarks.training: the real training loop with ours and with others' attention, and imputation.

A training step is timed by fitting the paper's network on the real data for a few epochs and reading the seconds of
all but the first one. Only one window is validated after each, which takes a fraction of a step. On a GPU ours runs
with and without PyTorch's compiler, and padded neighbours with it; a CPU would compile for many minutes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks import targets
from benchmarks.edge_list import at_hand
from benchmarks.measure import first_line, tidy
from benchmarks.record import Record, default_path, make_console
from benchmarks.swap import ATTENTIONS, attention_in_the_model
from benchmarks.tables import targets_table, training_line, training_table
from casper.config import benchmark_settings
from casper.datasets import Benchmark, load
from casper.imputer import Casper
from casper.network.neighbourhood import Neighbourhood

DATA = ("aqi36", "metr-la-point")
DEFAULTS: dict[str, dict[str, Any]] = {
    "cuda": {"data": list(DATA), "steps": 200, "precisions": ["32-true", "bf16-mixed"]},
    "cpu": {"data": ["aqi36"], "steps": 2, "precisions": ["32-true"]},
}
COMPILED = {"ours": (False, True), "plain": (True,)}
"""Whether an attention's network is compiled on a GPU, or both; the others' are not."""


class Run:
    """One run of the command: its options, its record, and the models fitted so far that can be asked to impute."""

    def __init__(self, options: argparse.Namespace, record: Record, load_data: Callable[[str], Benchmark]) -> None:
        self.options, self.record, self.load_data = options, record, load_data
        self.console = make_console()
        self.fitted: dict[str, Casper] = {}

    def save(self) -> None:
        self.record.save(targets.of_training(self.record.parts, self.options.device))

    def say(self, *what: object) -> None:
        self.console.print(f"{self.record.seconds:6.1f} s ", *what)


def main(arguments: Sequence[str] | None = None, *, load_data: Callable[[str], Benchmark] | None = None) -> int:
    """load_data: where the data sets come from, if not from the folder with the published files."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = _parse(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    path = options.out or default_path("training", options.device)
    record = Record(path, module="benchmarks.training", arguments=arguments, seed=options.seed, device=options.device)
    run = Run(options, record, load_data or (lambda name: load(name, data_dir=options.data_dir)))
    record.parts |= {"steps": [], "imputing": []}
    for name in options.data:
        try:
            _measure(run, name)
        except Exception as error:  # one data set's failure must not cost the other
            record.failed[name] = first_line(error)
            run.console.print_exception()
        run.save()
    run.console.print(training_table(record.parts))
    targets_table(run.console, targets.of_training(record.parts, options.device))
    run.console.print(f"{path}, {record.seconds:.0f} s")
    return 1 if record.failed else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data", nargs="+", metavar="NAME", help=", ".join(DATA))
    parser.add_argument("--data-dir", type=Path, help="folder of the published files (or CASPER_DATA)")
    parser.add_argument("--attentions", nargs="+", choices=ATTENTIONS, default=list(ATTENTIONS))
    parser.add_argument("--precisions", nargs="+", choices=("32-true", "bf16-mixed"))
    parser.add_argument("--steps", type=int, help="training steps in an epoch")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=NUMBER", help="other settings of the network")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    for name, value in DEFAULTS[options.device].items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    options.settings = {name: int(value) for name, _, value in (pair.partition("=") for pair in options.set)}
    return options


def _measure(run: Run, name: str) -> None:
    benchmark = run.load_data(name)
    run.say(name, "is read")
    for number, precision in enumerate(run.options.precisions):
        # Once is enough for the others: they take long to compile or to run.
        for attention in run.options.attentions if number == 0 else ("ours",):
            for compiled in COMPILED.get(attention, (False,)) if run.options.device == "cuda" else (False,):
                step = _time_step(run, benchmark, attention, precision, compiled=compiled)
                run.record.parts["steps"].append(step)
                run.say(name, precision, attention, "compiled" if compiled else "", training_line(step))
                run.save()
    if name in run.fitted:
        run.record.parts["imputing"] += _time_imputing(run, run.fitted[name], benchmark)


def _time_step(run: Run, benchmark: Benchmark, attention: str, precision: str, *, compiled: bool) -> dict[str, Any]:
    settings = {**benchmark_settings("paper", benchmark.name), **run.options.settings}
    casper = Casper(
        preset="paper",
        seed=run.options.seed,
        device=run.options.device,
        epochs=run.options.epochs,
        batches_per_epoch=run.options.steps,
        patience=run.options.epochs,
        precision=precision,
        compiled=compiled,
        **settings,
    )
    told: dict[str, Any] = {
        "data": benchmark.name,
        "attention": attention,
        "precision": precision,
        "compiled": compiled,
        "sensors": len(benchmark.frame.sensors),
        **{name: getattr(casper.config, name) for name in ("width", "layers", "heads", "window", "message", "gate")},
        "batch": casper.training.batch_size,
        "steps_in_epoch": run.options.steps,
    }
    if attention == "edge_list":
        told["how"] = "PyTorch Geometric" if at_hand() else "index_add in plain PyTorch"
    try:
        told |= _fit(run, casper, benchmark, attention)
    except (torch.OutOfMemoryError, MemoryError) as error:
        told["out_of_memory"] = first_line(error)
    except Exception as error:  # one contestant's failure must not cost the others
        told["failed"] = first_line(error)
    tidy()
    return told


def _fit(run: Run, casper: Casper, benchmark: Benchmark, attention: str) -> dict[str, Any]:
    quickly_validated = replace(benchmark, validation_starts=benchmark.validation_starts[:1])
    cuda = run.options.device == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory() as folder, attention_in_the_model(attention, _graph(benchmark, casper)):
        casper.train_in(folder).fit_benchmark(quickly_validated)
    assert casper.result is not None
    seconds = [record.seconds for record in casper.result.history]
    later = seconds[1:] or seconds
    told: dict[str, Any] = {
        "milliseconds": 1e3 * statistics.median(later) / run.options.steps,
        "milliseconds_by_epoch": [1e3 * one / run.options.steps for one in seconds],
    }
    if cuda:
        told["peak_bytes"] = torch.cuda.max_memory_allocated()
    if attention == "ours":
        run.fitted.setdefault(benchmark.name, casper)
    return told


def _graph(benchmark: Benchmark, casper: Casper) -> Neighbourhood:
    """As the network gets it, on its device."""
    graph = benchmark.graph.symmetric()
    tables = graph.neighbour_table(max_neighbours=casper.config.neighbours, include_self=casper.config.include_self)
    index, present = (torch.as_tensor(table, device=casper.device) for table in tables)
    return Neighbourhood(index, present, full=bool(present.all()))


def _time_imputing(run: Run, casper: Casper, benchmark: Benchmark) -> list[dict[str, Any]]:
    """The whole table as a user would have it filled; on a GPU also the test range, every window on its own."""
    cuda = run.options.device == "cuda"
    steps, sensors = len(benchmark.frame.times), len(benchmark.frame.sensors)
    jobs: list[tuple[str, str, Callable[[], object]]] = [
        (
            "whole table",
            f"table of {steps:,} steps x {sensors} sensors filled",
            lambda: casper.impute_frame(benchmark.visible_frame),
        )
    ]
    if cuda:
        tested, windows = int(benchmark.test_steps.sum()), len(benchmark.test_starts)
        jobs.append(
            (
                "test range",
                f"test range of {tested:,} steps x {sensors} sensors, all {windows:,} overlapping windows",
                lambda: [None for _ in casper.impute_windows(benchmark)],
            )
        )
    found: list[dict[str, Any]] = []
    for job, what, work in jobs:
        told: dict[str, Any] = {"data": benchmark.name, "job": job, "what": what}
        try:
            taken = [_seconds(work) for _ in range(2 if cuda else 1)]
            told |= {"seconds": taken[-1], "seconds_of_first": taken[0]}
        except (torch.OutOfMemoryError, MemoryError) as error:
            told["out_of_memory"] = first_line(error)
        run.say(benchmark.name, what, f"{told['seconds']:.2f} s" if "seconds" in told else "out of memory")
        found.append(told)
    return found


def _seconds(job: Callable[[], object]) -> float:
    begun = time.perf_counter()
    job()
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
