"""Scoring an imputer on a benchmark, and saying where a figure came from."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from casper import __version__
from casper.contract import Imputer
from casper.datasets import Benchmark
from casper.files import atomic
from casper.intervals.calibrated import CalibratedImputer
from casper.intervals.scores import score_intervals
from casper.metrics import score_windows


def evaluate(imputer: Imputer, benchmark: Benchmark, *, calibrate: bool = False) -> dict[str, Any]:
    """dataset, method, protocol; mae, mse, mre counted per window; mae_step, mse_step, mre_step per step; n_scored;
    imputing_seconds: of filling and scoring all windows.

    intervals: how good the error bars are, see `score_intervals`; None if there are none. calibrate: also say how good
    they are if they are calibrated on visible readings of the test steps (calibrated_intervals).
    """
    begun = time.perf_counter()
    scores = score_windows(imputer.impute_windows(benchmark), truth=benchmark.values, hidden=benchmark.hidden)
    taken = time.perf_counter() - begun
    protocol = imputer.protocol_of(benchmark)
    intervals: dict[str, Any] = {"intervals": None}
    if imputer.has_intervals:
        filled = imputer.impute_steps(benchmark.visible_frame, benchmark.test_steps)
        intervals["intervals"] = score_intervals(imputer, benchmark, filled)
        if calibrate and isinstance(imputer, CalibratedImputer):
            calibrated = imputer.calibrated_within(benchmark)
            scored = score_intervals(calibrated, benchmark, filled) if calibrated.has_intervals else None
            intervals["calibrated_intervals"] = scored
    return {
        "dataset": benchmark.name,
        "method": imputer.name,
        "protocol": protocol,
        **scores,
        "imputing_seconds": round(taken, 3),
        **intervals,
    }


def provenance(*, seed: int | None, device: str, started: float) -> dict[str, Any]:
    """What makes a figure repeatable: command, commit, seed, device, versions, wall time since `started`."""
    packages = ("torch", "lightning", "numpy", "pandas", "scikit-learn")
    return {
        "command": told_command("casper", sys.argv[1:]),
        "commit": _commit(),
        "seed": seed,
        "device": device,
        "versions": {
            "casper-impute": __version__,
            "python": platform.python_version(),
            **{name: _version(name) for name in packages},
        },
        "wall_seconds": round(time.time() - started, 2),
    }


def told_command(program: str, arguments: Sequence[str]) -> str:
    """A command line for others: where files lie on this machine is nobody's business, so folders' names are enough."""
    plain = [Path(one).name if one.startswith(("/", "~")) or Path(one).is_absolute() else one for one in arguments]
    return shlex.join([*program.split(), *plain])


def write_result(path: Path, record: dict[str, Any]) -> None:
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def device_name(device: str) -> str:
    """The hardware a run uses, in words."""
    import torch

    if device != "cpu" and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{platform.processor() or platform.machine()} CPU, {torch.get_num_threads()} threads"


def _commit() -> str | None:
    """The commit of the checkout this package runs from, with a plus sign if files differ from it.

    A copy of a checkout on another machine is told its commit by CASPER_COMMIT.
    """
    if told := os.environ.get("CASPER_COMMIT"):
        return told
    here = Path(__file__).resolve()
    try:
        _git(here.parent, "ls-files", "--error-unmatch", here.name)  # else it is installed in somebody else's checkout
        return _git(here.parent, "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty=+")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    told = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)  # noqa: S603, S607
    return told.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
