"""python -m benchmarks.breakdown: where the GPU's time goes in a training step of the paper's network, compiled.

PyTorch's profiler watches one epoch of the real training loop, after another one in which everything is compiled.
Kernels are told apart by their names. Profiling itself makes a step a little slower.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from benchmarks.record import Record, default_path, make_console
from benchmarks.training import DATA
from casper.config import benchmark_settings
from casper.datasets import Benchmark, load
from casper.errors import InputError
from casper.imputer import Casper

# The first group with a word that is part of a kernel's name has it.
GROUPS: dict[str, tuple[str, ...]] = {
    "attention, forward": ("forward_kernel",),
    "attention, gradients of queries": ("query_gradients_kernel",),
    "attention, gradients of keys": ("key_gradients_kernel",),
    "prompts (the library's fused attention)": ("fmha", "flash", "attention"),
    "matrix products": ("gemm", "cutlass", "nvjet", "cublas", "splitk", "wgmma"),
    "optimiser": ("adam", "multi_tensor"),
    "small operations, joined by the compiler": ("triton_",),
}
REST = "everything else"


def main(arguments: Sequence[str] | None = None, *, load_data: Callable[[str], Benchmark] | None = None) -> int:
    """load_data: where the data sets come from, if not from the folder with the published files."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = _parse(arguments)
    if not torch.cuda.is_available():
        raise InputError("python -m benchmarks.breakdown needs a GPU, and PyTorch sees none")
    path = options.out or default_path("breakdown", "cuda")
    record = Record(path, module="benchmarks.breakdown", arguments=arguments, seed=options.seed, device="cuda")
    console = make_console()
    steps: list[dict[str, Any]] = []
    record.parts["steps"] = steps
    for name in options.data:
        benchmark = load_data(name) if load_data else load(name, data_dir=options.data_dir)
        steps.append(
            {
                "data": name,
                "precision": options.precision,
                "groups": grouped(_profile(benchmark, options), options.steps),
            }
        )
        record.save()
        console.print(_table(steps[-1]))
    console.print(f"{path}, {record.seconds:.0f} s")
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.breakdown", description=__doc__)
    parser.add_argument("--data", nargs="+", metavar="NAME", default=list(DATA), help=", ".join(DATA))
    parser.add_argument("--data-dir", type=Path, help="folder of the published files (or CASPER_DATA)")
    parser.add_argument("--precision", choices=("32-true", "bf16-mixed"), default="32-true")
    parser.add_argument("--steps", type=int, default=200, help="training steps that are watched")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    return parser.parse_args(arguments)


def _profile(benchmark: Benchmark, options: argparse.Namespace) -> dict[str, tuple[float, int]]:
    """Milliseconds and launches by the names of kernels."""
    benchmark = replace(benchmark, validation_starts=benchmark.validation_starts[:1])

    def fit(steps: int) -> None:
        Casper(
            preset="paper",
            seed=options.seed,
            device="cuda",
            epochs=1,
            batches_per_epoch=steps,
            precision=options.precision,
            compiled=True,
            **benchmark_settings("paper", benchmark.name),
        ).fit_benchmark(benchmark)

    fit(10)
    with profile(activities=[ProfilerActivity.CUDA]) as watched:
        fit(options.steps)
    return {event.key: (event.device_time_total / 1e3, event.count) for event in watched.key_averages()}


def grouped(kernels: Mapping[str, tuple[float, int]], steps: int) -> list[dict[str, Any]]:
    """Milliseconds and launches of a step by groups, longest first; kernels: totals by name."""
    found: dict[str, list[float]] = {}
    for name, (milliseconds, launches) in kernels.items():
        lower = name.lower()
        group = next((group for group, words in GROUPS.items() if any(word in lower for word in words)), REST)
        total = found.setdefault(group, [0.0, 0.0])
        total[0] += milliseconds
        total[1] += launches
    told = [
        {"group": group, "milliseconds": milliseconds / steps, "launches": launches / steps}
        for group, (milliseconds, launches) in found.items()
    ]
    return sorted(told, key=lambda one: -one["milliseconds"])


def _table(step: Mapping[str, Any]) -> Table:
    table = Table("part", "ms of a step", "launches", title=f"{step['data']}, {step['precision']}")
    for one in step["groups"]:
        table.add_row(one["group"], f"{one['milliseconds']:.3f}", f"{one['launches']:.1f}")
    return table


if __name__ == "__main__":
    sys.exit(main())
