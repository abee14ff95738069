"""Does the runs of a table: several side by side on one GPU, each resumable, one result file for each."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from casper.datasets import Benchmark
from casper.evaluate import device_name, evaluate, provenance, write_result
from casper.keeper import EpochRecord
from casper.methods import has_network, make_imputer, settings_for
from casper.neural import NeuralImputer
from casper.reproduction import Run
from casper.train import Accelerator, fast_but_repeatable, uses_cuda

_MODEL = "model"


@dataclass(frozen=True)
class Workshop:
    """Where runs are done. results: folder of result files; work: checkpoints and fitted models, one folder each.

    settings: changes in all runs, for a quick try; the result files tell them.
    """

    results: Path
    work: Path
    load: Callable[[str], Benchmark]
    device: Accelerator = "auto"
    side_by_side: int = 1
    progress: bool = False
    settings: dict[str, Any] | None = None

    def result_of(self, run: Run) -> Path:
        return self.results / f"{run.name}.json"

    def done(self, run: Run) -> bool:
        return self.result_of(run).exists()


def do_runs(runs: Sequence[Run], workshop: Workshop, *, tell: Callable[[str], None]) -> dict[str, str]:
    """Do what is not done yet, and say so line by line. Returns what failed, by the name of the run.

    A run that was interrupted goes on where its checkpoint left it.
    """
    left = [run for run in runs if not workshop.done(run)]
    waiting: queue.SimpleQueue[Run] = queue.SimpleQueue()
    for run in left:
        waiting.put(run)
    # Read before any work is done, so that missing files are told at once.
    benchmarks = {name: workshop.load(name) for name in dict.fromkeys(run.dataset for run in left)}
    failed: dict[str, str] = {}

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                run = waiting.get_nowait()
                try:
                    record = _do(run, workshop, benchmarks[run.dataset])
                    tell(f"{run.name}: MAE {record['mae']:.3f}, MSE {record['mse']:.1f}")
                except Exception as error:  # one run's failure must not cost the others
                    failed[run.name] = f"{type(error).__name__}: {error}"
                    where = _keep_traceback(workshop.work / run.name)
                    tell(f"{run.name} failed, see {where}: {failed[run.name]}")

    device = torch.device("cuda" if uses_cuda(workshop.device) else "cpu")
    with fast_but_repeatable(device):  # here, so that no training restores the settings while others still go on
        if workshop.side_by_side == 1:
            work()
        else:
            _in_threads(work, workshop.side_by_side)
    return failed


def _in_threads(work: Callable[[], None], count: int) -> None:
    """As daemons: Ctrl-C ends them with the process, and checkpoints survive that."""
    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(timeout=0.5)


def _keep_traceback(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    where = folder / "error.txt"
    where.write_text(traceback.format_exc(), encoding="utf-8")
    return where


def _do(run: Run, workshop: Workshop, benchmark: Benchmark) -> dict[str, Any]:
    begun = time.time()
    changed = {**run.settings, **(workshop.settings or {})}
    imputer = make_imputer(run.method, **_options(run, workshop, changed))
    folder = workshop.work / run.name
    with _own_stream(workshop):
        if isinstance(imputer, NeuralImputer):
            imputer.train_in(folder)
        imputer.fit_benchmark(benchmark)
        fitted = time.time()
        scores = evaluate(imputer, benchmark)
    record = {
        **{name: getattr(run, name) for name in ("table", "row", "number", "value", "preset")},
        **scores,
        "settings": changed,
        "side_by_side": workshop.side_by_side,
        "fitting_seconds": round(fitted - begun, 2),
        "imputing_seconds": round(time.time() - fitted, 2),
        "windows": len(benchmark.test_starts),
        **(_of_training(imputer) if isinstance(imputer, NeuralImputer) else _UNTRAINED),
        **provenance(seed=run.seed, device=device_name(workshop.device), started=begun),
    }
    if isinstance(imputer, NeuralImputer):
        imputer.save_pretrained(folder / _MODEL, force=True)
    workshop.results.mkdir(parents=True, exist_ok=True)
    write_result(workshop.result_of(run), record)
    return record


def _options(run: Run, workshop: Workshop, changed: dict[str, Any]) -> dict[str, Any]:
    if not has_network(run.method):
        return changed
    options: dict[str, Any] = {"preset": run.preset} if run.method == "casper" else {}
    options |= {"seed": run.seed, "device": workshop.device, "progress": run.name if workshop.progress else False}
    return {**options, **settings_for(run.method, run.preset, run.dataset), **changed}


def _of_training(imputer: NeuralImputer[Any, Any]) -> dict[str, Any]:
    assert imputer.result is not None
    assert imputer.network is not None
    history = imputer.result.history
    return {
        "validation_mae": imputer.result.best_mae,
        "held_back_mae": imputer.held_back_mae,
        "best_epoch": imputer.result.best_epoch,
        "steps": len(history) * imputer.training.batches_per_epoch,
        "training_seconds": round(sum(epoch.seconds for epoch in history), 2),
        "parameters": sum(parameter.numel() for parameter in imputer.network.parameters()),
        "decided": list(history[imputer.result.best_epoch].decided) or None,
        "model": imputer.config.to_dict(),
        "training": imputer.training.to_dict(),
        "curve": [_of_epoch(epoch) for epoch in history],
    }


# What a method without a network says instead.
_UNTRAINED: dict[str, Any] = {
    "steps": 0, "training_seconds": 0.0, "parameters": 0, "decided": None, "model": {}, "training": {}, "curve": []
}  # fmt: skip


def _of_epoch(epoch: EpochRecord) -> dict[str, Any]:
    """Five digits are enough for a curve, and keep the files small."""
    return {
        "epoch": epoch.epoch,
        **{
            name: float(f"{getattr(epoch, name):.5g}")
            for name in ("train_loss", "validation_mae", "rho_mean", "learning_rate", "seconds")
        },
        "decided": [round(share, 4) for share in epoch.decided] or None,
    }


def _own_stream(workshop: Workshop) -> contextlib.AbstractContextManager[Any]:
    """On a GPU, work on different streams overlaps."""
    if workshop.side_by_side > 1 and uses_cuda(workshop.device):
        return torch.cuda.stream(torch.cuda.Stream())
    return contextlib.nullcontext()
