"""A benchmark: readings, what is hidden and scored, the graph, and the windows; and how each of the six is made.

Beside them a rehearsal, on which choices may be made: a benchmark without its test months, other whole months tested.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from casper.datasets import _files as files
from casper.datasets._splits import TEST_MONTHS, Split, split_by_months, split_in_order
from casper.errors import InputError
from casper.frame import SensorFrame, from_arrays
from casper.graph import SensorGraph, gaussian_kernel, graph_from_adjacency, kernel_width
from casper.masks import draw_faults_and_noise, next_month_pattern
from casper.metrics import window_counts

NAMES = ("aqi36", "aqi", "metr-la-point", "metr-la-block", "pems-bay-point", "pems-bay-block")
AQI36_REHEARSAL = "aqi36-rehearsal"
REHEARSALS = {AQI36_REHEARSAL: "aqi36"}
"""Not published: AQI-36 learned from January, April, July and October, judged by February, May, August and November.
None of its windows touches a test month of AQI-36."""
_REHEARSED_MONTHS = (2, 5, 8, 11)
AQI36_WINDOW = 36
WINDOW = 24
STATIONS_OF_KERNEL = 36
"""The kernel width of both air-quality sets is that of the first 36 stations."""
MONTHS_AFTER_TEST_MONTHS = (1, 4, 7, 10)
"""Their gaps are, shifted by a month, the scored cells of the test months: no training mask may copy them."""
METR_LA_SEED = 9101112
PEMS_BAY_SEED = 56789
POINT = (0.0, 0.25)
"""Probabilities of a fault and of a single lost reading."""
BLOCK = (0.0015, 0.05)


Protocol = Literal["in-sample", "out-of-sample"]
"""What a method is fitted on. in-sample: on everything but the scored cells of the test steps (GRIN's convention).
out-of-sample: on no reading of the test steps at all."""


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A published data set with its scored cells, its directed graph and the first steps of its windows."""

    name: str
    frame: SensorFrame
    hidden: NDArray[np.bool_]
    graph: SensorGraph
    kernel_width: float
    window: int
    train_starts: NDArray[np.int64]
    validation_starts: NDArray[np.int64]
    test_starts: NDArray[np.int64]
    gap_source_steps: NDArray[np.bool_]
    """(T,) steps whose gap patterns may be copied as training masks without learning those of the test."""
    protocol: Protocol | None = None
    """None: the one that is usual for a method."""

    @property
    def values(self) -> NDArray[np.float64]:
        return self.frame.values

    @property
    def observed(self) -> NDArray[np.bool_]:
        return self.frame.observed

    @property
    def visible(self) -> NDArray[np.bool_]:
        """Observed and not hidden: what a method may read."""
        return self.frame.observed & ~self.hidden

    @property
    def visible_frame(self) -> SensorFrame:
        """The readings without the hidden ones."""
        return self.frame.hide(self.hidden)

    @property
    def adjacency(self) -> NDArray[np.float32]:
        """(N, N) weights; rows are sources, columns are targets."""
        return self.graph.adjacency()

    @property
    def train_steps(self) -> NDArray[np.bool_]:
        return self._steps_of(self.train_starts)

    @property
    def validation_steps(self) -> NDArray[np.bool_]:
        return self._steps_of(self.validation_starts)

    @property
    def test_steps(self) -> NDArray[np.bool_]:
        return self._steps_of(self.test_starts)

    def scaler(self) -> tuple[float, float]:
        """Mean and population standard deviation of the visible cells of all steps that training windows cover."""
        steps = self.train_steps
        cells = self.values[steps][self.visible[steps]]
        return float(cells.mean()), float(cells.std())

    def _steps_of(self, starts: NDArray[np.int64]) -> NDArray[np.bool_]:
        return window_counts(starts, self.window, len(self.values)) > 0


def load(
    name: str, *, data_dir: str | Path | None = None, trust: bool = False, protocol: Protocol | None = None
) -> Benchmark:
    """One of the benchmarks in NAMES, or a rehearsal, from the files in `data_dir`.

    Without one, the folder is the one that CASPER_DATA names.

    Files whose bytes are not the published ones are refused unless `trust` is set; HDF5 files can run code when they
    are read, so trust only your own.
    """
    if name not in (*NAMES, *REHEARSALS):
        raise InputError(f"there is no benchmark {name!r}: choose one of {', '.join((*NAMES, *REHEARSALS))}")
    return replace(_load(name, files.data_folder(data_dir), trust=trust), protocol=protocol)


def _load(name: str, folder: Path, *, trust: bool) -> Benchmark:
    if name in ("aqi36", AQI36_REHEARSAL):
        return _aqi36(name, folder, trust=trust)
    if name == "aqi":
        return _aqi(folder, trust=trust)
    if name.startswith("metr-la"):
        return _metr_la(name, folder, trust=trust)
    return _pems_bay(name, folder, trust=trust)


def drawn_mask(name: str, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """The published random mask of a traffic benchmark, before it is limited to observed cells."""
    seed = METR_LA_SEED if name.startswith("metr-la") else PEMS_BAY_SEED
    p_fault, p_noise = POINT if name.endswith("point") else BLOCK
    return draw_faults_and_noise(shape, p_fault=p_fault, p_noise=p_noise, seed=seed)


def _aqi36(name: str, folder: Path, *, trust: bool) -> Benchmark:
    table = files.read_table(folder, files.AQI36, trust=trust)
    hidden = files.read_table(folder, files.AQI36_HIDDEN, trust=trust)
    if not (hidden.index.equals(table.index) and hidden.columns.equals(table.columns)):
        raise InputError(f"the mask and the readings of AQI-36 in {folder} do not have the same rows and columns")
    return _air_quality(name, folder, table, hidden.to_numpy(dtype=bool), window=AQI36_WINDOW, trust=trust)


def _aqi(folder: Path, *, trust: bool) -> Benchmark:
    table = files.read_table(folder, files.AQI, trust=trust)
    hidden = next_month_pattern(table.notna().to_numpy(), _times(table))
    return _air_quality("aqi", folder, table, hidden, window=WINDOW, trust=trust)


def _air_quality(
    name: str, folder: Path, table: pd.DataFrame, hidden: NDArray[np.bool_], *, window: int, trust: bool
) -> Benchmark:
    times = _times(table)
    stations = table.shape[1]
    distances = files.read_matrix(folder, files.AQI_DISTANCES, trust=trust)
    width = kernel_width(distances[:STATIONS_OF_KERNEL, :STATIONS_OF_KERNEL])
    graph = _kernel_graph(table, distances[:stations, :stations], width=width, what="great-circle distances", unit="km")
    may_be_copied = None
    if name in REHEARSALS:  # its scored cells have the gaps of the months that are left out
        split = split_by_months(times, window, test_months=_REHEARSED_MONTHS, left_out=TEST_MONTHS)
    else:
        split = split_by_months(times, window)
        may_be_copied = ~np.isin(np.asarray(times.month), MONTHS_AFTER_TEST_MONTHS)
    values = table.to_numpy(dtype=np.float64)
    return _benchmark(
        name, table, values, ~np.isnan(values), hidden, graph, width, split, window=window, may_be_copied=may_be_copied
    )


def _metr_la(name: str, folder: Path, *, trust: bool) -> Benchmark:
    table = files.read_table(folder, files.METR_LA, trust=trust)
    values = table.to_numpy(dtype=np.float64)
    observed = (values != 0) & ~np.isnan(values)
    return _traffic(name, folder, table, values, observed, files.METR_LA_DISTANCES, trust=trust)


def _pems_bay(name: str, folder: Path, *, trust: bool) -> Benchmark:
    table = files.read_table(folder, files.PEMS_BAY, trust=trust)
    table = table.reindex(pd.date_range(table.index[0], table.index[-1], freq="5min"))
    values = table.to_numpy(dtype=np.float32).astype(np.float64)  # the published readings are used in single precision
    return _traffic(name, folder, table, values, ~np.isnan(values), files.PEMS_BAY_DISTANCES, trust=trust)


def _traffic(
    name: str,
    folder: Path,
    table: pd.DataFrame,
    values: NDArray[np.float64],
    observed: NDArray[np.bool_],
    distance_source: files.DataSource,
    *,
    trust: bool,
) -> Benchmark:
    distances = files.read_matrix(folder, distance_source, trust=trust)
    width = kernel_width(distances)
    graph = _kernel_graph(table, distances, width=width, what="directed road distances", unit="m")
    split = split_in_order(len(table), WINDOW)
    hidden = drawn_mask(name, table.shape) & observed
    return _benchmark(name, table, values, observed, hidden, graph, width, split, window=WINDOW, may_be_copied=None)


def _kernel_graph(
    table: pd.DataFrame, distances: NDArray[np.floating], *, width: float, what: str, unit: str
) -> SensorGraph:
    ids = tuple(str(column) for column in table.columns)
    origin = f"{what} between {len(ids)} sensors, Gaussian kernel of width {width:.7g} {unit}, threshold 0.1"
    return graph_from_adjacency(gaussian_kernel(distances, width=width), ids=ids, origin=origin)


def _benchmark(
    name: str,
    table: pd.DataFrame,
    values: NDArray[np.float64],
    observed: NDArray[np.bool_],
    hidden: NDArray[np.bool_],
    graph: SensorGraph,
    width: float,
    split: Split,
    *,
    window: int,
    may_be_copied: NDArray[np.bool_] | None,
) -> Benchmark:
    frame = from_arrays(values, observed, _times(table), graph.sensors)
    copied = window_counts(split.train, window, len(values)) > 0
    if may_be_copied is not None:
        copied &= may_be_copied
    return Benchmark(
        name=name,
        frame=frame,
        hidden=hidden,
        graph=graph,
        kernel_width=width,
        window=window,
        train_starts=split.train,
        validation_starts=split.validation,
        test_starts=split.test,
        gap_source_steps=copied,
    )


def _times(table: pd.DataFrame) -> pd.DatetimeIndex:
    return pd.DatetimeIndex(table.index)
