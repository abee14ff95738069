"""`casper reproduce dream3`, `causal-simulated` and `stability`: methods of causal discovery on known truths.

No method sees a true network for anything but the score, and each has the same settings for all data of a table.
"""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from casper.causal import CausalGraph
from casper.discovery import discover
from casper.discovery.systems import SYSTEMS, KnownSystem, with_holes
from casper.errors import InputError
from casper.reproduction.trial_results import FOLDER

_PAPERS_RECIPE = "CASPER, the paper's recipe"
_PAPER = {
    "task": "imputation", "measure": "rho", "pool": "max", "constrained": False, "width": 32, "layers": 2,
    "prompts": 1000, "sensor_spread": 0.02, "epochs": 20,
}  # fmt: skip
_MISSING = {"complete": (0.0, False)} | {
    f"{round(100 * share)} % {kind}": (share, kind == "blocks") for share in (0.3, 0.6) for kind in ("points", "blocks")
}


@dataclass(frozen=True)
class Trial:
    """One method on one series. dataset: a network of DREAM-3, or a system and how much of it is missing."""

    table: str
    row: str
    number: int
    dataset: str
    method: str
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    refits: int = 0

    @property
    def name(self) -> str:
        def words(text: str) -> str:
            return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")

        return f"{self.table}-{words(self.dataset)}-{words(self.row)}-seed{self.seed}"


_METHODS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("CASPER", "casper", {}),
    (_PAPERS_RECIPE, "casper", _PAPER),
    ("PCMCI", "pcmci", {}),
    ("NGC", "ngc", {}),
    ("eSRU", "esru", {}),
    ("LCCM", "lccm", {}),
    ("NGM", "ngm", {}),
    ("CUTS", "cuts", {}),
    ("Granger, linear", "granger", {}),
    ("PCMCI, lags chosen", "pcmci", {"lags": None}),
)
# The paper's recipe is for DREAM-3. What its networks tell lies in the first steps of each trajectory, where they
# return from a random state. The second stage of PCMCI asks for twice as many steps of the past as there are lags: with
# five none of these is left.
_ONLY_DREAM3 = (_PAPERS_RECIPE, "PCMCI, lags chosen")
_SEEDS = dict.fromkeys((("causal-simulated", f"wind, 30 % {kind}") for kind in ("points", "blocks")), 3)
TRIAL_TABLES = ("dream3", "causal-simulated", "stability")
STABILITY_CLASSES = (0.0, 0.2, 0.4, 0.6, 0.8)
"""From so much stability on, up to the next."""
_REFITS = 10
_ROWS_OF_STABILITY = ("CASPER", "PCMCI", "NGC")


def trials_of(
    table: str, *, datasets: Sequence[str] = (), rows: Sequence[str] = (), seeds: Sequence[int] = ()
) -> list[Trial]:
    """datasets, rows, seeds: only these; without any, all of the table with seed 0, and what is looked at most closely
    with three."""
    from casper.datasets import DREAM3_NAMES

    if table == "dream3":
        every = list(DREAM3_NAMES)
    else:
        every = [f"{system}, {missing}" for system in SYSTEMS for missing in _MISSING]
    methods = [one for one in enumerate(_METHODS) if table == "dream3" or one[1][0] not in _ONLY_DREAM3]
    refits = 0
    if table == "stability":  # every method is asked eleven times: one kind of holes is enough
        every = [name for name in every if name.endswith("30 % points")]
        methods, refits = [one for one in methods if one[1][0] in _ROWS_OF_STABILITY], _REFITS
    for what, given, known in (("data set", datasets, every), ("row", rows, [label for _, (label, _, _) in methods])):
        unknown = [one for one in given if one not in known]
        if unknown:
            raise InputError(f"the table {table} has no {what} {unknown[0]!r}; it has {', '.join(known)}")
    return [
        Trial(table, label, number, dataset, method, seed, settings, refits)
        for dataset in every
        for number, (label, method, settings) in methods
        for seed in seeds or range(_SEEDS.get((table, dataset), 1))
        if (not datasets or dataset in datasets) and (not rows or label in rows)
    ]


@dataclass(frozen=True)
class TrialRoom:
    """Where trials are done: results go into `results`/causal, one file each."""

    results: Path
    device: str = "auto"
    data_dir: Path | None = None
    trust: bool = False

    def result_of(self, trial: Trial) -> Path:
        return self.results / FOLDER / f"{trial.name}.json"

    def done(self, trial: Trial) -> bool:
        return self.result_of(trial).exists()


def do_trials(trials: Sequence[Trial], room: TrialRoom, *, tell: Callable[[str], None]) -> dict[str, str]:
    """Do what is not done yet, and say so line by line. Returns what failed, by the name of the trial."""
    failed: dict[str, str] = {}
    for trial in trials:
        if room.done(trial):
            continue
        try:
            scores = _do(trial, room)
            tell(f"{trial.name}: " + ", ".join(f"AUROC {one['auroc']:.4f} ({name})" for name, one in scores.items()))
        except Exception as error:  # one trial's failure must not cost the others
            failed[trial.name] = f"{type(error).__name__}: {error}"
            tell(f"{trial.name} failed: {failed[trial.name]}\n{traceback.format_exc()}")
    return failed


def _do(trial: Trial, room: TrialRoom) -> dict[str, dict[str, float]]:
    from casper.evaluate import device_name, provenance, write_result

    begun = time.time()
    if trial.table == "dream3":
        from casper.datasets import load_dream3

        network = load_dream3(trial.dataset, data_dir=room.data_dir, trust=room.trust)
        truth, beyond, sensors = network.network, None, None
        graph = _found(trial, room, [pd.DataFrame(one, columns=list(network.genes)) for one in network.trajectories])
    else:
        system = system_of(trial.dataset, seed=trial.seed)
        truth, beyond, sensors = system.truth, system.beyond, system.sensors
        graph = _found(trial, room, system.series)
    finished = time.time()
    scores = {
        "cuts": graph.compare(truth, self_pairs="cuts"),
        "offdiag": graph.compare(truth, self_pairs="offdiag"),
    }
    if sensors is not None:
        scores["neighbours"] = graph.between_neighbours(sensors).compare(truth)
    strongest = _strongest(graph, truth)
    told = {name: getattr(trial, name) for name in ("table", "row", "number", "dataset", "method")}
    record = {
        **told,
        "scores": scores,
        "across": None if beyond is None else _across(strongest, graph.sensors, beyond),
        "strongest": None if sensors is None else strongest,
        "stability": _stability(graph, truth) if trial.refits else None,
        "settings": dict(graph.origin).get("settings", {}),
        "seconds": round(finished - begun, 2),
        **provenance(seed=trial.seed, device=device_name(room.device), started=begun),
    }
    path = room.result_of(trial)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_result(path, record)
    return scores


def system_of(dataset: str, *, seed: int) -> KnownSystem:
    """Of a name such as "var, 30 % blocks"."""
    name, _, missing = dataset.partition(", ")
    share, blocks = _MISSING[missing]
    return with_holes(SYSTEMS[name](seed=seed), share=share, blocks=blocks, seed=seed)


def _found(trial: Trial, room: TrialRoom, series: Any) -> CausalGraph:
    device: Any = room.device
    return discover(series, method=trial.method, seed=trial.seed, device=device, refits=trial.refits, **trial.settings)


def _strongest(graph: CausalGraph, truth: np.ndarray) -> list[tuple[str, str]]:
    """As many of the strongest pairs (source, target) as there are true ones."""
    edges = graph.pairs().strongest(int(truth.sum())).edges
    return list(zip(edges["source"], edges["target"], strict=True))


def _stability(graph: CausalGraph, truth: np.ndarray) -> list[dict[str, float | int]]:
    """For each of the classes of stability: how many pairs of two variables it has, and how many of them are true."""
    pairs = graph.pairs().edges
    place = {name: number for number, name in enumerate(graph.sensors)}
    true = truth[pairs["source"].map(place), pairs["target"].map(place)]
    number = np.searchsorted(STABILITY_CLASSES, pairs["stability"].to_numpy(dtype=np.float64), side="right") - 1
    return [
        {"from": least, "pairs": int((number == one).sum()), "true": int(true[number == one].sum())}
        for one, least in enumerate(STABILITY_CLASSES)
    ]


def _across(pairs: Sequence[tuple[str, str]], names: Sequence[str], beyond: np.ndarray) -> float:
    """The share of these that joins what only a common cause joins."""
    place = {name: number for number, name in enumerate(names)}
    crosses = [beyond[place[source], place[target]] for source, target in pairs]
    return float(np.mean(crosses)) if crosses else 0.0
