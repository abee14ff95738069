"""`casper reproduce sampling`: what the steps and samples of the diffusion models are worth, and what they cost.

Fitted models are scored, none is trained: those that `casper reproduce baselines` left in its working folder, and
CASPER's shipped weights, which need one pass. All fill the same test windows, as many as can be waited for, evenly
spread; the time is that of filling them in batches, after a first few to warm up.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from casper import pretrained
from casper.datasets import Benchmark
from casper.errors import InputError
from casper.evaluate import device_name, provenance, write_result
from casper.methods import load_model
from casper.metrics import score_windows
from casper.neural import NeuralImputer
from casper.reproduction.runner import fitted_model
from casper.reproduction.sampling_results import FOLDER
from casper.reproduction.tables import runs_of
from casper.train import Accelerator

_DATASETS = ("aqi36", "metr-la-point", "metr-la-block")
_DIFFUSION = ("csdi", "pristi")
_AT_ONCE = "casper"
# (sampling steps, samples); no number of steps: all those the model was trained with.
_SAMPLES_FOR_STEPS = 10
_WAYS: tuple[tuple[int | None, int], ...] = (
    *((None, samples) for samples in (1, 3, 10, 30, 100)),
    *((steps, _SAMPLES_FOR_STEPS) for steps in (2, 5, 10, 25)),
)
_MOST_WINDOWS, _WARM_UP = 256, 4


@dataclass(frozen=True)
class SamplingTrial:
    """One way of filling windows. steps: None for all; samples: 1, and no steps, for a method that needs one pass."""

    row: str
    dataset: str
    seed: int
    steps: int | None
    samples: int

    @property
    def name(self) -> str:
        way = "one-pass" if self.row == _AT_ONCE else f"{self.steps or 'all'}-steps-{self.samples}-samples"
        return f"sampling-{self.dataset}-{re.sub(r'[^a-z0-9]+', '-', self.row)}-{way}-seed{self.seed}"


def sampling_trials(
    *, datasets: Sequence[str] = (), rows: Sequence[str] = (), seeds: Sequence[int] = ()
) -> list[SamplingTrial]:
    """datasets, rows, seeds: only these; without any, AQI-36, all rows and seed 0."""
    for what, given, known in (("data set", datasets, _DATASETS), ("row", rows, (_AT_ONCE, *_DIFFUSION))):
        unknown = [one for one in given if one not in known]
        if unknown:
            raise InputError(f"the table sampling has no {what} {unknown[0]!r}; it has {', '.join(known)}")
    return [
        SamplingTrial(row, dataset, seed, steps, samples)
        for dataset in datasets or _DATASETS[:1]
        for row in (_AT_ONCE, *_DIFFUSION)
        for seed in ((0,) if row == _AT_ONCE else seeds or (0,))
        for steps, samples in (((None, 1),) if row == _AT_ONCE else _WAYS)
        if not rows or row in rows
    ]


@dataclass(frozen=True)
class SamplingRoom:
    """results: result files go into its folder `sampling`. work: where `casper reproduce baselines` left its models."""

    results: Path
    work: Path
    load: Callable[[str], Benchmark]
    device: Accelerator = "auto"

    def result_of(self, trial: SamplingTrial) -> Path:
        return self.results / FOLDER / f"{trial.name}.json"

    def done(self, trial: SamplingTrial) -> bool:
        return self.result_of(trial).exists()


def do_sampling(trials: Sequence[SamplingTrial], room: SamplingRoom, *, tell: Callable[[str], None]) -> dict[str, str]:
    """Do what is not done yet, and say so line by line. Returns what failed, by the name of the trial."""
    failed: dict[str, str] = {}
    for trial in trials:
        if room.done(trial):
            continue
        try:
            record = _do(trial, room)
        except InputError as error:  # one that is not trained must not cost the others
            failed[trial.name] = str(error)
            tell(f"{trial.name} failed: {error}")
        else:
            tell(f"{trial.name}: MAE {record['mae']:.3f}, {1e3 * record['seconds_per_window']:.3g} ms a window")
    return failed


def _do(trial: SamplingTrial, room: SamplingRoom) -> dict[str, Any]:
    begun = time.time()
    model = _model(trial, room)
    benchmark = room.load(trial.dataset)
    if trial.row != _AT_ONCE:
        model.config = model.config.replace(samples=trial.samples, sampling_steps=trial.steps)
        assert model.network is not None
        model.network.config = model.config
    _score(model, _with_windows(benchmark, _WARM_UP))
    some = _with_windows(benchmark, _MOST_WINDOWS)
    started = time.perf_counter()
    scores = _score(model, some)
    taken = time.perf_counter() - started
    record = {
        "table": "sampling",
        "row": trial.row,
        "dataset": trial.dataset,
        "steps": None if trial.row == _AT_ONCE else trial.steps or model.config.diffusion_steps,
        "samples": trial.samples,
        **scores,
        "windows": len(some.test_starts),
        "seconds_per_window": taken / len(some.test_starts),
        "model": model.config.to_dict(),
        "about": model.describe(),
        **provenance(seed=trial.seed, device=device_name(room.device), started=begun),
    }
    path = room.result_of(trial)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_result(path, record)
    return record


def _model(trial: SamplingTrial, room: SamplingRoom) -> NeuralImputer[Any, Any]:
    if trial.row == _AT_ONCE:
        if trial.dataset not in pretrained.shipped():
            raise InputError(f"no weights are shipped for {trial.dataset}")
        return load_model(trial.dataset, device=room.device)
    (run,) = runs_of("baselines", datasets=[trial.dataset], rows=[trial.row], seeds=[trial.seed])
    folder = fitted_model(room.work, run)
    if not folder.is_dir():
        raise InputError(
            f"there is no fitted model in {folder}; train it with: casper reproduce baselines --dataset "
            f"{trial.dataset} --row {trial.row} --seeds {trial.seed} --work {room.work}"
        )
    return load_model(folder, device=room.device)


def _with_windows(benchmark: Benchmark, most: int) -> Benchmark:
    """With fewer test windows, evenly spread."""
    starts = benchmark.test_starts
    kept = np.unique(np.linspace(0, len(starts) - 1, min(most, len(starts))).round().astype(np.int64))
    return replace(benchmark, test_starts=starts[kept])


def _score(model: NeuralImputer[Any, Any], benchmark: Benchmark) -> dict[str, Any]:
    return score_windows(model.impute_windows(benchmark), truth=benchmark.values, hidden=benchmark.hidden)
