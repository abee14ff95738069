"""Result files: reading them, grouping runs that differ only in their seed, and the figures of a group."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from casper.datasets import REHEARSALS
from casper.errors import InputError
from casper.files import atomic
from casper.reproduction.published import Spread
from casper.reproduction.result_files import read_record, refuse_lacking
from casper.reproduction.sampling_results import SamplingResult, read_samplings
from casper.reproduction.trial_results import TrialResult, read_trials

START, END = "<!-- results:start -->", "<!-- results:end -->"

DATASETS = {
    "aqi36": "AQI-36",
    "metr-la-point": "METR-LA, point",
    "metr-la-block": "METR-LA, block",
    "aqi": "AQI (437)",
    "pems-bay-point": "PEMS-BAY, point",
    "pems-bay-block": "PEMS-BAY, block",
}
"""Names and titles of the benchmarks, in the order in which they are shown."""

_NEEDED = ("dataset", "method", "mae", "mse", "mae_step", "mse_step", "command", "commit", "device", "wall_seconds")
_NEEDED_OF_RUNS = (*_NEEDED, "row", "number", "preset", "seed", "steps", "training_seconds", "model", "training")
_WITH_VALUES = ("sparsity", "prompts")
"""Tables that become a plot: each of their runs has a place on the x axis."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The scores of a result file, and where they came from."""

    file: str
    dataset: str
    method: str
    mae: float
    mse: float
    mae_step: float
    mse_step: float
    command: str
    commit: str | None
    device: str
    wall_seconds: float
    weights: str | None = None
    """The name of the shipped weights that were scored, if they were."""
    intervals: Mapping[str, Any] | None = None
    """How good its error bars are, see `casper.intervals.scores`."""
    calibrated_intervals: Mapping[str, Any] | None = None
    """The same if they are calibrated on visible readings of the test steps."""


@dataclass(frozen=True)
class Epoch:
    """A point of a learning curve. decided: by layer, the share of gates that are nearly open or nearly shut."""

    step: int
    validation_mae: float | None
    decided: tuple[float, ...] | None


@dataclass(frozen=True, kw_only=True)
class TrainedRun(Evaluation):
    """A run of `casper reproduce`: one seed of one row of a table. decided: at the kept weights."""

    table: str
    row: str
    number: int
    value: float | None
    preset: str
    seed: int
    steps: int
    training_seconds: float
    side_by_side: int
    model: Mapping[str, Any]
    training: Mapping[str, Any]
    settings: Mapping[str, Any]
    """What was changed in the recipe of the row's method or preset."""
    curve: tuple[Epoch, ...]
    decided: tuple[float, ...] | None
    protocol: str | None = None
    parameters: int | None = None
    seconds_per_window: float | None = None
    validation_mae: float | None = None
    held_back_mae: float | None = None
    best_epoch: int | None = None
    """Whose weights were kept."""


@dataclass(frozen=True)
class Group:
    """The runs of a row on a data set, one for each seed."""

    runs: tuple[TrainedRun, ...]

    @property
    def first(self) -> TrainedRun:
        return self.runs[0]

    @property
    def row(self) -> str:
        return self.first.row

    @property
    def dataset(self) -> str:
        return self.first.dataset

    @property
    def value(self) -> float:
        assert self.first.value is not None, f"{self.first.file} was read without a value"
        return self.first.value

    @property
    def steps(self) -> tuple[int, ...]:
        """How long the seeds were trained; more than one number where some stopped early."""
        return tuple(sorted({run.steps for run in self.runs}))

    @property
    def decided(self) -> tuple[float, ...] | None:
        """By layer, the mean over the seeds."""
        told = [run.decided for run in self.runs if run.decided is not None]
        return tuple(statistics.fmean(layer) for layer in zip(*told, strict=True)) if told else None

    def spread(self, score: str) -> Spread:
        return spread_of([float(getattr(run, score)) for run in self.runs])


@dataclass(frozen=True)
class Results:
    """evaluations: single ones, of `casper evaluate --out`; runs: those of `casper reproduce`; trials: its runs of
    causal discovery; samplings: those of the diffusion models' steps and samples."""

    evaluations: tuple[Evaluation, ...]
    runs: tuple[TrainedRun, ...]
    trials: tuple[TrialResult, ...] = ()
    samplings: tuple[SamplingResult, ...] = ()

    def groups(self, *tables: str) -> list[Group]:
        """The rows of these tables, by data set and by their place in the table."""
        found: dict[tuple[str, str, str], list[TrainedRun]] = {}
        for run in self.runs:
            if run.table in tables:
                found.setdefault((run.table, run.dataset, run.row), []).append(run)
        groups = [Group(tuple(sorted(runs, key=lambda run: run.seed))) for runs in found.values()]
        return sorted(
            groups,
            key=lambda group: (_place(group.dataset), tables.index(group.first.table), group.first.number, group.row),
        )

    def tables(self) -> list[str]:
        """Names of the tables that have runs, the paper's order first."""
        known = ("main", "baselines", "ablation", "sparsity", "prompts", "gates", "recipe", "rehearsal")
        names = {run.table for run in self.runs}
        return [name for name in known if name in names] + sorted(names.difference(known))

    def datasets(self) -> list[str]:
        """The measured benchmarks, in the order in which they are shown."""
        measured = {one.dataset for one in (*self.evaluations, *self.runs)}
        return sorted(measured.difference(REHEARSALS), key=_place)


def spread_of(values: Sequence[float]) -> Spread:
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def title_of(dataset: str) -> str:
    return DATASETS.get(dataset, dataset)


def read_results(folder: Path) -> Results:
    """Every result file of a folder; each must say where it came from.

    Measurements of speed (benchmark-*.json) are another kind of result and stay out.
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder} with result files")
    evaluations: list[Evaluation] = []
    runs: list[TrainedRun] = []
    for path in sorted(folder.glob("*.json")):
        if path.name.startswith("benchmark-"):
            continue
        record = read_record(path)
        if "table" in record:
            runs.append(_run(path, record))
        else:
            refuse_lacking(path, record, _NEEDED, "casper evaluate --out")
            evaluations.append(Evaluation(**_scores(path, record), weights=record.get("weights")))
    _refuse_twins(runs)
    return Results(
        tuple(sorted(evaluations, key=lambda one: (_place(one.dataset), one.mae))),
        tuple(sorted(runs, key=lambda run: (run.table, _place(run.dataset), run.number, run.seed))),
        read_trials(folder),
        read_samplings(folder),
    )


def read_run(path: Path) -> TrainedRun:
    """One result file of `casper reproduce`."""
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    record = read_record(path)
    if "table" not in record:
        raise InputError(f"{path} holds no run of `casper reproduce`")
    return _run(path, record)


def fill_in(document: Path, table: str) -> None:
    """Put the table between the marks of a document."""
    text = document.read_text(encoding="utf-8")
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise InputError(f"{document} has no place for the table: add the lines {START} and {END}")
    with atomic(document) as temporary:
        temporary.write_text(f"{before}{START}\n{table}\n{END}{after}", encoding="utf-8")


def _place(dataset: str) -> tuple[int, str]:
    names = list(DATASETS)
    return (names.index(dataset) if dataset in DATASETS else len(names), dataset)


def _run(path: Path, record: Mapping[str, Any]) -> TrainedRun:
    refuse_lacking(path, record, _NEEDED_OF_RUNS, "casper reproduce")
    if record["table"] in _WITH_VALUES and record.get("value") is None:
        raise InputError(f"{path} does not say its value; write it again with casper reproduce {record['table']}")
    steps_of_epoch = record["training"].get("batches_per_epoch", 1)
    told = ("table", "row", "number", "preset", "seed", "steps", "training_seconds", "model", "training")
    return TrainedRun(
        **_scores(path, record),
        **{name: record[name] for name in told},
        value=record.get("value"),
        settings=record.get("settings", {}),
        side_by_side=record.get("side_by_side", 1),
        curve=tuple(_epoch(epoch, steps_of_epoch) for epoch in record.get("curve", ())),
        decided=_shares(record.get("decided")),
        protocol=record.get("protocol"),
        parameters=record.get("parameters"),
        seconds_per_window=_per_window(record),
        validation_mae=record.get("validation_mae"),
        held_back_mae=record.get("held_back_mae"),
        best_epoch=record.get("best_epoch"),
    )


def _per_window(record: Mapping[str, Any]) -> float | None:
    taken, windows = record.get("imputing_seconds"), record.get("windows")
    return None if taken is None or not windows else taken / windows


def _scores(path: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    bars = {name: record.get(name) for name in ("intervals", "calibrated_intervals")}
    return {"file": path.name, **bars, **{name: record[name] for name in _NEEDED}}


def _epoch(record: Mapping[str, Any], steps: int) -> Epoch:
    """The figures of an epoch belong to its end."""
    mae = record.get("validation_mae")
    known = mae is not None and math.isfinite(mae)  # a training without validation writes NaN
    return Epoch((record["epoch"] + 1) * steps, mae if known else None, _shares(record.get("decided")))


def _shares(values: Sequence[float] | None) -> tuple[float, ...] | None:
    return tuple(values) if values else None


def _refuse_twins(runs: Iterable[TrainedRun]) -> None:
    """A seed that counts twice would make a deviation look smaller than it is."""
    seen: dict[tuple[str, str, str, int], str] = {}
    for run in runs:
        twin = seen.setdefault((run.table, run.dataset, run.row, run.seed), run.file)
        if twin != run.file:
            raise InputError(f"{twin} and {run.file} hold the same run ({run.row}, seed {run.seed}); remove one")
