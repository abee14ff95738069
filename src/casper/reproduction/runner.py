"""Does the runs of a table: several side by side on one GPU, each resumable, one result file for each."""

from __future__ import annotations

import multiprocessing
import queue
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from casper.datasets import Benchmark
from casper.evaluate import device_name, evaluate, provenance, write_result
from casper.methods import has_network, make_imputer, settings_for
from casper.neural import NeuralImputer
from casper.progress import Tell, told_by_many
from casper.reproduction.tables import Run
from casper.train import Accelerator, fewer_threads
from casper.training.keeper import EpochRecord

_PATIENCE = 1.0
"""Seconds that processes wait for one another before they look around."""


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


def fitted_model(work: Path, run: Run) -> Path:
    """Where a run leaves its fitted model."""
    return work / run.name / "model"


def do_runs(runs: Sequence[Run], workshop: Workshop, *, tell: Callable[[str], None]) -> dict[str, str]:
    """Do what is not done yet, and say so line by line. Returns what failed, by the name of the run.

    A run that was interrupted goes on where its checkpoint left it.
    """
    left = [run for run in runs if not workshop.done(run)]
    # Read before any work is done, so that missing files are told at once.
    benchmarks = {name: workshop.load(name) for name in dict.fromkeys(run.dataset for run in left)}
    if workshop.side_by_side > 1 and len(left) > 1:
        return _side_by_side(left, workshop, benchmarks, tell)
    outcomes = (_try(run, workshop, benchmarks[run.dataset], progress=workshop.progress and run.name) for run in left)
    return _failures(outcomes, tell)


class _Outcome(NamedTuple):
    """Of one run. words: for the person who waits; failure: what went wrong, if anything did."""

    run: str
    words: str
    failure: str | None = None


def _failures(outcomes: Iterable[_Outcome], tell: Callable[[str], None]) -> dict[str, str]:
    failed: dict[str, str] = {}
    for outcome in outcomes:
        tell(outcome.words)
        if outcome.failure is not None:
            failed[outcome.run] = outcome.failure
    return failed


def _try(run: Run, workshop: Workshop, benchmark: Benchmark, *, progress: bool | str | Tell) -> _Outcome:
    try:
        record = _do(run, workshop, benchmark, progress)
    except Exception as error:  # one run's failure must not cost the others
        failure = f"{type(error).__name__}: {error}"
        where = _keep_traceback(workshop.work / run.name)
        return _Outcome(run.name, f"{run.name} failed, see {where}: {failure}", failure)
    return _Outcome(run.name, f"{run.name}: MAE {record['mae']:.3f}, MSE {record['mse']:.1f}")


# ---------------------------------------------------------------------- side by side


class _News(NamedTuple):
    """What a run has come to: what it does, and the share that is done."""

    run: str
    what: str
    share: float


def _side_by_side(
    runs: Sequence[Run], workshop: Workshop, benchmarks: dict[str, Benchmark], tell: Callable[[str], None]
) -> dict[str, str]:
    """In processes of their own: threads would wait for one another between any two steps.

    They are daemons: Ctrl-C ends them with this process, and checkpoints survive that.
    """
    spawn = multiprocessing.get_context("spawn")  # a forked child could not use the GPU
    waiting: multiprocessing.Queue[Run] = spawn.Queue()
    news: multiprocessing.Queue[_News | _Outcome] = spawn.Queue()
    for run in runs:
        waiting.put(run)
    count = min(workshop.side_by_side, len(runs))
    at_hand = replace(workshop, load=benchmarks.__getitem__)  # what `load` closes over may not travel
    with fewer_threads(count):
        workers = [spawn.Process(target=_work, args=(at_hand, waiting, news), daemon=True) for _ in range(count)]
        for worker in workers:
            worker.start()
    with told_by_many(shown=workshop.progress) as show:
        failed = _failures(_outcomes(runs, workers, news, show), tell)
    for worker in workers:
        worker.join()
    return failed


def _work(
    workshop: Workshop, waiting: multiprocessing.Queue[Run], news: multiprocessing.Queue[_News | _Outcome]
) -> None:
    """One process: does runs for as long as there are any."""
    while True:
        try:
            run = waiting.get(timeout=_PATIENCE)
        except queue.Empty:
            return

        def pass_on(what: str, share: float, name: str = run.name) -> None:
            news.put(_News(name, what, share))

        pass_on("starting", 0.0)
        news.put(_try(run, workshop, workshop.load(run.dataset), progress=pass_on))


def _outcomes(
    runs: Sequence[Run],
    workers: Sequence[BaseProcess],
    news: multiprocessing.Queue[_News | _Outcome],
    show: Callable[[str, str, float], None],
) -> Iterator[_Outcome]:
    """As they come. Runs whose process was killed have failed, too."""
    missing = {run.name for run in runs}
    while missing:
        alive = any(worker.is_alive() for worker in workers)  # asked first: what the last one says comes before its end
        try:
            told = news.get(timeout=_PATIENCE)
        except queue.Empty:
            if alive:
                continue
            break
        if isinstance(told, _News):
            show(*told)
        else:
            missing.discard(told.run)
            show(told.run, "done", 1.0)
            yield told
    for name in sorted(missing):
        yield _Outcome(name, f"{name}: its process ended before it did", "its process ended; out of memory?")


def _keep_traceback(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    where = folder / "error.txt"
    where.write_text(traceback.format_exc(), encoding="utf-8")
    return where


# ---------------------------------------------------------------------- one run


def _do(run: Run, workshop: Workshop, benchmark: Benchmark, progress: bool | str | Tell) -> dict[str, Any]:
    begun = time.time()
    changed = {**run.settings, **(workshop.settings or {})}
    imputer = make_imputer(run.method, **_options(run, workshop, changed, progress))
    folder = workshop.work / run.name
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
        "windows": len(benchmark.test_starts),
        **(_of_training(imputer) if isinstance(imputer, NeuralImputer) else _UNTRAINED),
        **provenance(seed=run.seed, device=device_name(workshop.device), started=begun),
    }
    if isinstance(imputer, NeuralImputer):
        imputer.save_pretrained(fitted_model(workshop.work, run), force=True)
    workshop.results.mkdir(parents=True, exist_ok=True)
    write_result(workshop.result_of(run), record)
    return record


def _options(run: Run, workshop: Workshop, changed: dict[str, Any], progress: bool | str | Tell) -> dict[str, Any]:
    if not has_network(run.method):
        return changed
    options: dict[str, Any] = {"preset": run.preset} if run.method == "casper" else {}
    options |= {"seed": run.seed, "device": workshop.device, "progress": progress}
    return {**options, **settings_for(run.method, run.preset, run.dataset), **changed}


def _of_training(imputer: NeuralImputer[Any, Any]) -> dict[str, Any]:
    assert imputer.result is not None
    assert imputer.network is not None
    history = imputer.result.history
    return {
        "validation_mae": imputer.validation_mae,
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
