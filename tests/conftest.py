"""What several test files need."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from casper.datasets import Benchmark
    from casper.imputer import Casper
    from casper.simulate import Simulation

BENCHMARK_STEPS, BENCHMARK_WINDOW = 240, 12

# The order of sums depends on the number of threads: processes that tests start use one, and so must the tests.
torch.set_num_threads(1)


@pytest.fixture
def hdf5() -> None:
    """Tests that read or write HDF5 files are skipped where the optional package is absent."""
    pytest.importorskip("tables", reason="the optional package tables is not installed")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with the benchmark readings; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("CASPER_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no benchmark data in {folder}: set CASPER_DATA to the folder that holds them")
    return folder.resolve()


@pytest.fixture(scope="session")
def tiny_settings() -> dict[str, Any]:
    """Settings of the smallest model worth fitting: a second on one core."""
    return {
        "window": 12,
        "width": 8,
        "heads": 2,
        "layers": 1,
        "feed_forward": 8,
        "prompts": 8,
        "epochs": 2,
        "batches_per_epoch": 10,
        "batch_size": 4,
        "validation_cells": 5_000,
        "kriging": False,
    }


@pytest.fixture(scope="session")
def six_sensors() -> Simulation:
    from casper.simulate import simulate

    return simulate(sensors=6, steps=150, seed=3)


@pytest.fixture(scope="session")
def tiny_casper(six_sensors: Simulation, tiny_settings: dict[str, Any]) -> Casper:
    """A Casper fitted on `six_sensors`; not to be fitted again."""
    from casper import Casper

    return Casper(device="cpu", **tiny_settings).fit(six_sensors.table, sensors=six_sensors.sensors)


@pytest.fixture(scope="session")
def tiny_folder(tiny_casper: Casper, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a saved model, to be read only."""
    return tiny_casper.save_pretrained(tmp_path_factory.mktemp("fitted") / "model")


@pytest.fixture(scope="session")
def small_benchmark() -> Benchmark:
    """Six sensors: 120 steps to train on, 48 to watch, 72 to test; every fifth reading is hidden."""
    import numpy as np

    from casper.datasets import Benchmark
    from casper.frame import from_arrays
    from casper.graph import graph_from_coordinates
    from casper.simulate import simulate

    made = simulate(sensors=6, steps=BENCHMARK_STEPS, seed=5)
    values = made.table.to_numpy()
    observed = ~np.isnan(values)
    sensors = tuple(made.table.columns)
    train, validation, test = slice(0, 120), slice(120, 168), slice(168, BENCHMARK_STEPS)

    def starts(steps: slice) -> np.ndarray:
        return np.arange(steps.start, steps.stop - BENCHMARK_WINDOW + 1)

    return Benchmark(
        name="small",
        frame=from_arrays(values, observed, made.table.index, sensors),
        hidden=observed & (np.random.default_rng(0).random(values.shape) < 0.2),
        graph=graph_from_coordinates(made.sensors, ids=sensors),
        kernel_width=1.0,
        window=BENCHMARK_WINDOW,
        train_starts=starts(train),
        validation_starts=starts(validation),
        test_starts=starts(test),
        gap_source_steps=np.arange(BENCHMARK_STEPS) < train.stop,
    )


@dataclass(frozen=True)
class Outcome:
    """What a command left in the terminal."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Outcome]]:
    """Runs `casper ARGUMENTS` in this process."""
    from casper.cli import main

    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")  # the command sets it, and the test gives it back
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["casper", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        told = capsys.readouterr()
        return Outcome(int(stop.value.code or 0), told.out, told.err)

    yield run
    logger = logging.getLogger("casper")
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def shell() -> dict[str, str]:
    """The environment of a new process that is to run the same package, installed or not."""
    import casper

    return {**os.environ, "PYTHONPATH": str(Path(casper.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def tiny_options(tiny_settings: dict[str, Any]) -> list[str]:
    """The tiny settings as the command line takes them."""
    pairs = [("--set", f"{name}={value}") for name, value in tiny_settings.items()]
    return ["--device", "cpu", "--quiet", *(part for pair in pairs for part in pair)]
