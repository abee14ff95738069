"""The paper's tables as lists of runs: what is trained and scored for each row, and with which seeds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from casper.datasets import AQI36_REHEARSAL
from casper.errors import InputError

_AQI36, _METR_LA = ("aqi36",), ("metr-la-point", "metr-la-block")
_NOT_SHIPPED = ("aqi", "pems-bay-point", "pems-bay-block")
"""Their readings are not published with the others; a user may have them."""


@dataclass(frozen=True)
class Run:
    """One training and its score. settings: what it changes in the preset; value: the place on the x axis of a plot.

    preset: of CASPER; other methods have none.
    """

    table: str
    row: str
    number: int
    dataset: str
    seed: int
    preset: str = "paper"
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    value: float | None = None
    method: str = "casper"

    @property
    def name(self) -> str:
        """Of its result file and of its folder of work."""
        words = re.sub(r"[^a-z0-9.]+", "-", self.row.lower()).strip("-")
        return f"{self.table}-{self.dataset}-{words}-seed{self.seed}"


@dataclass(frozen=True)
class Row:
    label: str
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    preset: str = "paper"
    value: float | None = None
    method: str = "casper"
    most_seeds: int | None = None
    """Methods that draw nothing at random need no second seed."""


@dataclass(frozen=True)
class TableOfRuns:
    """seeds: how many by default, for each data set. settings: shared by all rows; for_dataset: by those of one."""

    summary: str
    rows: tuple[Row, ...]
    seeds: dict[str, int]
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    for_dataset: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])


# All rows of a table share its schedule: 9,000 steps instead of the 90,000 of the main table.
_SHORTER = {"epochs": 30, "batches_per_epoch": 300, "patience": 30}
_WITHOUT_PROMPTS, _WITHOUT_GATES, _WITHOUT_NETWORK = {"decoder": "mlp"}, {"gate": "none"}, {"graph": False}

TABLES: dict[str, TableOfRuns] = {
    "main": TableOfRuns(
        "the benchmarks, with the paper's settings and with ours",
        (Row("paper"), Row("best", preset="best")),
        {**dict.fromkeys(_AQI36, 5), **dict.fromkeys((*_METR_LA, *_NOT_SHIPPED), 3)},
    ),
    "ablation": TableOfRuns(
        "what each part of the model is worth, on AQI-36",
        (
            Row("CASPER"),
            Row("w/o PBD", _WITHOUT_PROMPTS),
            Row("w/o SCA", _WITHOUT_GATES),
            Row("w/o PBD, SCA", _WITHOUT_PROMPTS | _WITHOUT_GATES),
            Row("w/o PBD, SCA, A", _WITHOUT_PROMPTS | _WITHOUT_GATES | _WITHOUT_NETWORK),
            Row("prompts: K-means centres (max)", {"decoder": "kmeans-max"}),
            Row("prompts: K-means centres (avg)", {"decoder": "kmeans-avg"}),
            Row("prompts: sampling (max)", {"decoder": "sample-max"}),
            Row("prompts: sampling (avg)", {"decoder": "sample-avg"}),
            Row("constrained causality", {"constrained": True}),
            Row("w/o skip projection", {"skip": False}),
        ),
        dict.fromkeys(_AQI36, 3),
        _SHORTER,
    ),
    "sparsity": TableOfRuns(
        "the weight of the l1 norm, on AQI-36",
        tuple(
            Row(f"lambda = {weight:g}", {"sparsity": weight}, value=weight)
            for weight in (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
        ),
        dict.fromkeys(_AQI36, 2),
        _SHORTER,
    ),
    "prompts": TableOfRuns(
        "the number of prompts, on AQI-36",
        tuple(
            Row(f"{count} prompts", {"prompts": count}, value=float(count))
            for count in (1, 50, 200, 500, 1000, 1400, 2000)
        ),
        dict.fromkeys(_AQI36, 2),
        _SHORTER,
    ),
}

TABLES["gates"] = TableOfRuns(
    "which rules make gates decide, and what it costs, on AQI-36",
    tuple(
        Row(label + words, {**settings, "gate_hard_inference": hard})
        for label, settings in {
            "soft gates": {},
            "null slot": {"gate_null_slot": True},
            "straight-through, null slot": {"gate_straight_through": True, "gate_null_slot": True},
            "steep": {"gate_sharpness": 16.0},
            "steep, null slot": {"gate_sharpness": 16.0, "gate_null_slot": True},
        }.items()
        for words, hard in (("", False), (", hard at inference", True))
    ),
    dict.fromkeys(_AQI36, 2),
    _SHORTER,
)


_STATISTICAL = ("mean", "linear", "knn", "mf", "mice", "var")
_TRAINED = (
    *("kriging", "rgain", "brits", "saits", "st-transformer", "grin", "spin", "pogevon", "imputeformer"),
    *("csdi", "pristi"),
)
TABLES["baselines"] = TableOfRuns(
    "every other method, on the same cells through the same code",
    (
        *(Row(name, method=name, most_seeds=1) for name in _STATISTICAL),
        *(Row(name, method=name) for name in _TRAINED),
    ),
    {**dict.fromkeys(_AQI36, 3), **dict.fromkeys((*_METR_LA, *_NOT_SHIPPED), 1)},
)


# Where the trials began; preset "best" is what came out of them.
_STARTING_POINT: dict[str, Any] = {
    "own_clock": 0, "harmonics": 1, "own_keys": False, "neighbours": None, "dropout": 0.1, "blackout_gaps": 0.0,
    "batch_size": 8, "learning_rate": 2e-3, "include_self": False, "width": 64, "sensor_spread": 0.02,
}  # fmt: skip
# What preset "best" has on AQI-36 since its trials.
_AQI36_BEFORE: dict[str, Any] = {
    "gate_sharpness": 1.0, "gate_hard_inference": False, "kriging": False, "train_on_hidden": False,
}  # fmt: skip
_RECIPE: dict[str, dict[str, Any]] = {
    "starting point": {},
    "the paper's learning rate": {"learning_rate": 8e-4},
    "learning rate 0.003": {"learning_rate": 3e-3},
    "batches of 32": {"batch_size": 32},
    "batches of 32, learning rate 0.003": {"batch_size": 32, "learning_rate": 3e-3},
    "width 32": {"width": 32},
    "width 96": {"width": 96},
    "2 layers": {"layers": 2},
    "3 layers": {"layers": 3},
    "8 neighbours": {"neighbours": 8},
    "messages from the key alone": {"message": "key"},
    "the sensor itself as a neighbour": {"include_self": True},
    "a straight line as first guess": {"guess": True},
    "no bias of the lag": {"relative_time": False},
    "own queries and keys": {"own_keys": True},
    "own course of the day": {"own_clock": 8, "harmonics": 4},
    "no level of the window": {"window_level": False},
    "level of the window": {"window_level": True},
    "a mean for each sensor": {"scaling": "sensor"},
    "no dropout": {"dropout": 0.0},
    "more dropout": {"dropout": 0.2},
    "no weight averaging": {"weight_averaging": 0.0},
    "no copied gaps": {"copied_gaps": 0.0},
    "blocks among the gaps": {"block_gaps": 0.2},
    "blackouts among the gaps": {"blackout_gaps": 0.2},
    "a quarter hidden": {"hidden_shares": [0.25], "copied_gaps": 0.0},
    "fewer cells hidden": {"hidden_shares": [0.1, 0.3, 0.5]},
    "only visible cells": {"train_on_hidden": False},
    "hidden cells of the training steps, too": {"train_on_hidden": True},
    "steep gates, null slot": {"gate_sharpness": 16.0, "gate_null_slot": True},
    "no gates": {"gate": "none"},
}
TABLES["recipe"] = TableOfRuns(
    "what helps and what does not, judged by the validation error of short trainings",
    tuple(Row(label, settings, preset="best") for label, settings in _RECIPE.items()),
    {**dict.fromkeys(_AQI36, 1), **dict.fromkeys(_METR_LA, 1)},
    {**_STARTING_POINT, "epochs": 20, "batches_per_epoch": 300, "patience": 20, "compiled": False},
    {"aqi36": {"layers": 2, **_AQI36_BEFORE}},
)

# Half as many months are learned from as on AQI-36, in half as many steps as preset best had there.
_REHEARSED: dict[str, dict[str, Any]] = {
    "starting point": {},
    "hidden cells of the training steps, too": {"train_on_hidden": True},
    "steep gates, hard at inference": {"gate_sharpness": 128.0, "gate_hard_inference": True},
    "Muon": {"optimizer": "muon"},
    "Muon, steep gates, hidden cells, too": {
        "optimizer": "muon", "gate_sharpness": 128.0, "gate_hard_inference": True, "train_on_hidden": True,
    },
}  # fmt: skip
TABLES["rehearsal"] = TableOfRuns(
    "what helps on AQI-36 in whole months that nothing was learned from, none of them a test month",
    tuple(Row(label, settings, preset="best") for label, settings in _REHEARSED.items()),
    {AQI36_REHEARSAL: 1},
    {
        **_AQI36_BEFORE,
        "epochs": 9, "batches_per_epoch": 300, "patience": 20, "compiled": True,
    },
)  # fmt: skip


def runs_of(
    table: str, *, datasets: Sequence[str] = (), rows: Sequence[str] = (), seeds: Sequence[int] = ()
) -> list[Run]:
    """The runs of a table in the order in which they are worth doing: every row once, then with the next seed.

    datasets, rows, seeds: only these; without any, all data sets and rows, and as many seeds as the table wants.
    """
    if table not in TABLES:
        from casper.discovery.trials import TRIAL_TABLES  # they have runs of another kind, but a user may mean them

        raise InputError(
            f"there is no table {table!r}; choose one of {', '.join((*TABLES, *TRIAL_TABLES, 'sampling'))}"
        )
    chosen = TABLES[table]
    _refuse_unknown("data set", datasets, tuple(chosen.seeds), table)
    _refuse_unknown("row", rows, tuple(row.label for row in chosen.rows), table)
    found = [
        Run(
            table,
            row.label,
            number,
            dataset,
            seed,
            row.preset,
            {**chosen.settings, **chosen.for_dataset.get(dataset, {}), **row.settings},
            row.value,
            row.method,
        )
        for dataset, wanted in chosen.seeds.items()
        for number, row in enumerate(chosen.rows)
        for seed in (seeds or range(wanted))[: row.most_seeds]
        if (not datasets or dataset in datasets) and (not rows or row.label in rows)
    ]
    return sorted(found, key=lambda run: run.seed)


def _refuse_unknown(what: str, given: Sequence[str], known: Sequence[str], table: str) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise InputError(f"the table {table} has no {what} {unknown[0]!r}; it has {', '.join(known)}")
