"""python -m benchmarks.agreement: does the network learn the same with the fast path as with the plain attention?

The paper's network is trained on a published data set with each of them, several times. They get the same seeds, and so
meet the same windows, gaps and gates. What is compared is the best validation error.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import targets
from benchmarks.record import Record, default_path, make_console
from benchmarks.tables import agreement_table, targets_table
from casper.config import benchmark_settings
from casper.datasets import Benchmark, load
from casper.imputer import Casper
from casper.kernels import Version, using

PLAIN = "plain"
# The name, the version of the attention (None: the fastest here) and the settings of the training.
CONTESTANTS: dict[str, list[tuple[str, Version | None, dict[str, Any]]]] = {
    "cuda": [
        (PLAIN, "plain", {"compiled": False}),
        ("fast", None, {"compiled": True}),
        ("fast, bf16-mixed", None, {"compiled": True, "precision": "bf16-mixed"}),
    ],
    "cpu": [(PLAIN, "plain", {}), ("fast", None, {})],
}


def main(arguments: Sequence[str] | None = None, *, load_data: Callable[[str], Benchmark] | None = None) -> int:
    """load_data: where the data sets come from, if not from the folder with the published files."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = _parse(arguments)
    path = options.out or default_path("agreement", options.device)
    record = Record(
        path, module="benchmarks.agreement", arguments=arguments, seed=options.seeds[0], device=options.device
    )
    console = make_console()
    benchmark = load_data(options.data) if load_data else load(options.data, data_dir=options.data_dir)
    runs: list[dict[str, Any]] = []
    record.parts |= {"data": benchmark.name, "steps": options.epochs * options.steps, "runs": runs}
    for seed in options.seeds:
        for name, version, settings in CONTESTANTS[options.device]:
            begun = time.perf_counter()
            errors = _errors(options, benchmark, version, {**settings, "seed": seed})
            taken = time.perf_counter() - begun
            runs.append({"contestant": name, "seed": seed, "validation_mae": errors, "seconds": taken})
            console.print(f"{record.seconds:6.1f} s  seed {seed}, {name}: best {min(errors):.3f} in {taken:.0f} s")
            record.parts["summary"] = summary(runs)
            record.save(targets.of_agreement(record.parts))
    console.print(agreement_table(record.parts["summary"]))
    targets_table(console, targets.of_agreement(record.parts))
    console.print(f"{path}, {record.seconds:.0f} s")
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agreement", description=__doc__)
    parser.add_argument("--device", choices=tuple(CONTESTANTS), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data", default="aqi36")
    parser.add_argument("--data-dir", type=Path, help="folder of the published files (or CASPER_DATA)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=200, help="training steps in an epoch")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=NUMBER", help="other settings of the network")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    options.settings = {name: int(value) for name, _, value in (pair.partition("=") for pair in options.set)}
    return options


def _errors(
    options: argparse.Namespace, benchmark: Benchmark, version: Version | None, settings: Mapping[str, Any]
) -> list[float]:
    """The validation error after every epoch."""
    casper = Casper(
        preset="paper",
        device=options.device,
        epochs=options.epochs,
        batches_per_epoch=options.steps,
        patience=options.epochs,
        **{**benchmark_settings("paper", benchmark.name), **options.settings, **settings},
    )
    with tempfile.TemporaryDirectory() as folder, using(version):
        casper.train_in(folder).fit_benchmark(benchmark)
    assert casper.result is not None
    return [epoch.validation_mae for epoch in casper.result.history]


def summary(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By contestant: the best errors of its runs; how far their mean is from the plain one's, in standard errors."""
    best: dict[str, list[float]] = {}
    for run in runs:
        best.setdefault(run["contestant"], []).append(min(run["validation_mae"]))
    return [
        {
            "contestant": name,
            "best": errors,
            "mean": statistics.mean(errors),
            "deviation": statistics.stdev(errors) if len(errors) > 1 else None,
            "standard_errors_apart": None if name == PLAIN else _apart(errors, best[PLAIN]),
        }
        for name, errors in best.items()
    ]


def _apart(some: Sequence[float], others: Sequence[float]) -> float | None:
    """Welch's t without its sign; None where a single run leaves the noise unknown."""
    if min(len(some), len(others)) < 2:
        return None
    noise = math.sqrt(statistics.variance(some) / len(some) + statistics.variance(others) / len(others))
    distance = abs(statistics.mean(some) - statistics.mean(others))
    return distance / noise if noise > 0 else 0.0 if distance == 0 else math.inf


if __name__ == "__main__":
    sys.exit(main())
