"""Peak memory of a call on the CPU, where the operating system keeps the books: each in a process of its own.

python -m benchmarks.cpu_memory SPECIFICATION   prints the bytes; started by `peak_bytes_in_a_process`
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

import casper
from benchmarks.contestants import contestant
from benchmarks.layer import LayerInputs, there_and_back
from benchmarks.shapes import named_shape

_STATUS, _RESET, _MEMORY = Path("/proc/self/status"), Path("/proc/self/clear_refs"), Path("/proc/meminfo")
_LONGEST_SECONDS = 900
_REPEATS, _SHORT_SECONDS = 3, 2.0


@dataclass(frozen=True)
class Specification:
    """A contestant on a case, in words that travel to another process."""

    contestant: str
    shape: str
    data_dir: str | None
    batch: int
    width: int
    heads: int
    dtype: str
    seed: int
    compiled: bool
    threads: int


def peak_bytes_in_a_process(specification: Specification) -> int:
    here, package = Path(__file__).parents[1], Path(casper.__file__).parents[1]
    found_in = (str(package), str(here), os.environ.get("PYTHONPATH"))
    told = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "benchmarks.cpu_memory", json.dumps(asdict(specification))],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, found_in))},
        capture_output=True,
        text=True,
        timeout=_LONGEST_SECONDS,
        check=False,
    )
    if told.returncode != 0:
        last = told.stderr.strip().splitlines()[-1:] or [f"ended with code {told.returncode}"]
        # The operating system ends a process that takes all memory, without a word.
        raise MemoryError("killed") if told.returncode < 0 else RuntimeError(last[0])
    return int(told.stdout.strip().splitlines()[-1])


def peak_bytes(call: Callable[[], object]) -> int:
    """How far the resident memory rises during a call, above what it was just before; the median of up to three."""
    call()  # compiled before
    rises: list[int] = []
    begun = time.perf_counter()
    while len(rises) < _REPEATS and (not rises or time.perf_counter() - begun < _SHORT_SECONDS):
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        _RESET.write_text("5")  # the peak is counted from here
        before = _kilobytes("VmRSS")
        call()
        rises.append(max(0, _kilobytes("VmHWM") - before) * 1024)
    return int(statistics.median(rises))


def available_bytes() -> int:
    """What this machine can still give without swapping."""
    return 1024 * _kilobytes("MemAvailable", _MEMORY)


def _kilobytes(entry: str, file: Path = _STATUS) -> int:
    for line in file.read_text().splitlines():
        if line.startswith(f"{entry}:"):
            return int(line.split()[1])
    raise RuntimeError(f"{file} has no entry {entry}")


def main() -> None:
    wanted = Specification(**json.loads(sys.argv[1]))
    torch.set_num_threads(wanted.threads)
    device = torch.device("cpu")
    folder = None if wanted.data_dir is None else Path(wanted.data_dir)
    shape = named_shape(wanted.shape, data_dir=folder, seed=wanted.seed)
    inputs = LayerInputs.draw(
        shape,
        batch=wanted.batch,
        width=wanted.width,
        heads=wanted.heads,
        dtype=getattr(torch, wanted.dtype),
        device=device,
        seed=wanted.seed,
    )
    forward = contestant(wanted.contestant, compiled=wanted.compiled).bind(shape.neighbourhood_on(device), inputs)
    sys.stdout.write(f"{peak_bytes(lambda: there_and_back(forward, inputs))}\n")


if __name__ == "__main__":
    main()
