"""Whether the data on this machine are the published ones: every count and hash that is known for a benchmark."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from casper.datasets import _files as files
from casper.datasets._benchmarks import Benchmark, drawn_mask, load
from casper.metrics import window_counts


@dataclass(frozen=True)
class Check:
    what: str
    expected: str
    found: str

    @property
    def ok(self) -> bool:
        return self.expected == self.found


AQI36 = {
    "steps": "8759",
    "sensors": "36",
    "first time": "2014-05-01 01:00:00",
    "last time": "2015-04-30 23:00:00",
    "missing cells in percent": "13.247",
    "hidden cells": "35737",
    "windows": "8724",
    "training windows": "4948",
    "validation windows": "564",
    "test windows": "2788",
    "test steps": "2928",
    "scored test cells": "20434",
    "scored test cells, once per window": "696266",
    "mean of the visible training cells": "90.6364",
    "standard deviation of the visible training cells": "83.5410",
    "kernel width": "26.67787",
    "edges": "654",
    "sum of edge weights": "356.9925",
    "isolated sensors": "0",
}
AQI = {
    "steps": "8760",
    "sensors": "437",
    "missing cells in percent": "25.67",
    "kernel width": "26.67787",
    "edges": "5398",
    "sum of edge weights": "2806.0832",
    "isolated sensors": "14",
}
METR_LA = {
    "steps": "34272",
    "sensors": "207",
    "first time": "2012-03-01 00:00:00",
    "last time": "2012-06-27 23:55:00",
    "observed cells": "6519002",
    "missing cells in percent": "8.109",
    "windows": "34249",
    "training windows": "24636",
    "validation windows": "2716",
    "first validation window": "24660",
    "test windows": "6849",
    "first test window": "27400",
    "test steps": "6872",
    "kernel width": "2584.4502",
    "edges": "1515",
    "edges made symmetric": "2626",
    "sum of edge weights": "607.5817",
}
PEMS_BAY = {
    "steps": "52128",
    "sensors": "325",
    "windows": "52105",
    "training windows": "37492",
    "validation windows": "4144",
    "first validation window": "37516",
    "test windows": "10421",
    "first test window": "41684",
    "kernel width": "3620.299",
    "edges": "2369",
    "edges made symmetric": "4158",
    "sum of edge weights": "1329.7470",
}
EXPECTED: Mapping[str, Mapping[str, str]] = {
    "aqi36": AQI36,
    "aqi": AQI,
    "metr-la-point": METR_LA
    | {
        "drawn cells": "1773799",
        "sha256 of the drawn cells": "28570ecb81582108ec29f7f2e38cc2edbdd1c57d466ae4f81afd5748031d7688",
        "hidden cells": "1630618",
        "sha256 of the hidden cells": "72a57414a41d8e346f144a28585c069b78e494c26fb0dc4bb680a84917758838",
        "scored test cells": "312311",
        "scored test cells, once per window": "7467361",
        "mean of the visible training cells": "58.4859",
        "standard deviation of the visible training cells": "12.9094",
    },
    "metr-la-block": METR_LA
    | {
        "drawn cells": "648272",
        "sha256 of the drawn cells": "43abe9315f41e77c05f9087534295d5d743c4a83d98fb044d4b64c08e30a3e0e",
        "hidden cells": "596491",
        "sha256 of the hidden cells": "c7d7bd23a0300f4094ff79e9fff7a9be1d4b8990f1300cb277621e44d5da8f5a",
        "scored test cells": "112644",
        "scored test cells, once per window": "2693290",
        "mean of the visible training cells": "58.4923",
        "standard deviation of the visible training cells": "12.9016",
    },
    "pems-bay-point": PEMS_BAY
    | {
        "drawn cells": "4235930",
        "sha256 of the drawn cells": "966be4e5084bffd8ebc0e7254fbd7f477b5d3519221ef452575479d66e10e54e",
    },
    "pems-bay-block": PEMS_BAY
    | {
        "drawn cells": "1537955",
        "sha256 of the drawn cells": "871e835207a7fdf59b7ec0540c0fc004bc157bdbf599edcb0d66c10677c038ba",
    },
}
SOURCES: Mapping[str, tuple[files.DataSource, ...]] = {
    "aqi36": (files.AQI36, files.AQI36_HIDDEN, files.AQI_DISTANCES),
    "aqi": (files.AQI, files.AQI_DISTANCES),
    "metr-la-point": (files.METR_LA, files.METR_LA_DISTANCES),
    "metr-la-block": (files.METR_LA, files.METR_LA_DISTANCES),
    "pems-bay-point": (files.PEMS_BAY, files.PEMS_BAY_DISTANCES),
    "pems-bay-block": (files.PEMS_BAY, files.PEMS_BAY_DISTANCES),
}


def verify(name: str, *, data_dir: str | Path | None = None) -> list[Check]:
    """Compares the files of a benchmark, and what is made of them, with every published count and hash.

    An HDF5 file that is not the published one is not opened, since reading it could run code: then only the hashes of
    the files are compared.
    """
    folder = files.data_folder(data_dir)
    checks: list[Check] = []
    safe = True
    for source in SOURCES.get(name, ()):
        path, file = files.find(folder, source)
        kind, expected, found = files.fingerprints(path, file)
        if kind:
            checks.append(Check(f"{kind} of {path.name}", expected, found))
        safe &= path.suffix != files.HDF5_SUFFIX or expected == found
    if not safe:
        return checks
    benchmark = load(name, data_dir=folder, trust=True)
    measured = _measure(benchmark)
    return checks + [
        Check(what, expected, _written_like(expected, measured[what])) for what, expected in EXPECTED[name].items()
    ]


def _measure(benchmark: Benchmark) -> dict[str, str | int | float]:
    """Everything that is published for one benchmark or another."""
    frame, graph = benchmark.frame, benchmark.graph
    steps, sensors = frame.values.shape
    scored = benchmark.hidden & benchmark.test_steps[:, None]
    windows_over_step = window_counts(benchmark.test_starts, benchmark.window, steps)
    mean, deviation = benchmark.scaler()
    silent = np.bincount(graph.source, minlength=sensors) == 0
    measured: dict[str, str | int | float] = {
        "steps": steps,
        "sensors": sensors,
        "first time": str(frame.times[0]),
        "last time": str(frame.times[-1]),
        "observed cells": int(frame.observed.sum()),
        "missing cells in percent": 100 * float(1 - frame.observed.mean()),
        "hidden cells": int(benchmark.hidden.sum()),
        "sha256 of the hidden cells": _hash(benchmark.hidden),
        "windows": steps - benchmark.window + 1,
        "training windows": benchmark.train_starts.size,
        "validation windows": benchmark.validation_starts.size,
        "first validation window": int(benchmark.validation_starts[0]),
        "test windows": benchmark.test_starts.size,
        "first test window": int(benchmark.test_starts[0]),
        "test steps": int(benchmark.test_steps.sum()),
        "scored test cells": int(scored.sum()),
        "scored test cells, once per window": int(scored.sum(axis=1) @ windows_over_step),
        "mean of the visible training cells": mean,
        "standard deviation of the visible training cells": deviation,
        "kernel width": benchmark.kernel_width,
        "edges": graph.source.size,
        "edges made symmetric": graph.symmetric().source.size,
        "sum of edge weights": float(graph.weight.sum(dtype=np.float64)),
        "isolated sensors": int(np.sum(silent & (graph.degree() == 0))),
    }
    if "drawn cells" in EXPECTED[benchmark.name]:
        drawn = drawn_mask(benchmark.name, (steps, sensors))
        measured |= {"drawn cells": int(drawn.sum()), "sha256 of the drawn cells": _hash(drawn)}
    return measured


def _hash(mask: NDArray[np.bool_]) -> str:
    return hashlib.sha256(mask.astype(np.uint8).tobytes()).hexdigest()


def _written_like(expected: str, found: str | int | float) -> str:
    """A found number with as many decimals as the expected one has."""
    return f"{found:.{len(expected.partition('.')[2])}f}" if isinstance(found, float) else str(found)
