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

from casper.config import benchmark_settings
from casper.datasets import Benchmark
from casper.evaluate import device_name, evaluate, provenance, write_result
from casper.imputer import Casper
from casper.keeper import EpochRecord
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
    casper = Casper(
        preset=run.preset,
        seed=run.seed,
        device=workshop.device,
        progress=run.name if workshop.progress else False,
        **{**benchmark_settings(run.preset, run.dataset), **changed},
    )
    folder = workshop.work / run.name
    with _own_stream(workshop):
        casper.train_in(folder).fit_benchmark(benchmark)
        scores = evaluate(casper, benchmark)
    casper.save_pretrained(folder / _MODEL, force=True)
    assert casper.result is not None
    assert casper.network is not None
    history = casper.result.history
    record = {
        **{name: getattr(run, name) for name in ("table", "row", "number", "value", "preset")},
        **scores,
        "settings": changed,
        "validation_mae": casper.result.best_mae,
        "best_epoch": casper.result.best_epoch,
        "steps": len(history) * casper.training.batches_per_epoch,
        "training_seconds": round(sum(epoch.seconds for epoch in history), 2),
        "side_by_side": workshop.side_by_side,
        "parameters": sum(parameter.numel() for parameter in casper.network.parameters()),
        "decided": list(history[casper.result.best_epoch].decided) or None,
        "model": casper.config.to_dict(),
        "training": casper.training.to_dict(),
        "curve": [_of_epoch(epoch) for epoch in history],
        **provenance(seed=run.seed, device=device_name(workshop.device), started=begun),
    }
    workshop.results.mkdir(parents=True, exist_ok=True)
    write_result(workshop.result_of(run), record)
    return record


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
