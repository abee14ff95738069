"""What every imputer answers to, CASPER and baselines alike: `fit` and `impute` on tables.

A method fills in `fit_frame` and `impute_frame`; checking, matching of sensors and the round trip of units, names,
dtypes and observed values happen here, once.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self, overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from casper.check import warn_of_stand_ins
from casper.datasets import Benchmark, Protocol
from casper.errors import InputError, some
from casper.filled import Filled
from casper.filling import Filling
from casper.frame import SensorFrame, to_frame
from casper.frame.grid import step_text
from casper.graph import SensorGraph, build_graph
from casper.intervals.calibration import check_share
from casper.intervals.error_bars import ErrorBars, cut_off

log = logging.getLogger("casper")


@dataclass(frozen=True)
class TableOptions:
    """How a table is to be read; remembered from `fit` and used again by `impute`."""

    freq: str | None = None
    timezone: str | None = None
    missing_values: tuple[float, ...] = ()

    def changed(self, freq: str | None, timezone: str | None, missing_values: Sequence[float] | None) -> TableOptions:
        """The same with what is given instead."""
        return TableOptions(
            self.freq if freq is None else freq,
            self.timezone if timezone is None else timezone,
            self.missing_values if missing_values is None else tuple(missing_values),
        )

    def to_frame(self, table: pd.DataFrame) -> SensorFrame:
        return to_frame(table, freq=self.freq, timezone=self.timezone, missing_values=self.missing_values)


class Imputer(ABC):
    """Fills the holes of a table: a row per time, a column per sensor, NaN where nothing was measured."""

    name: ClassVar[str]
    summary: ClassVar[str]
    usual_protocol: ClassVar[Protocol] = "in-sample"
    """How a method without a notion of training windows is fitted in the literature."""

    _graph: SensorGraph | None = None
    _step: pd.Timedelta | None = None
    _options: TableOptions = TableOptions()

    def fit(
        self,
        table: pd.DataFrame,
        *,
        sensors: pd.DataFrame | None = None,
        distances: ArrayLike | None = None,
        adjacency: ArrayLike | None = None,
        freq: str | None = None,
        timezone: str | None = None,
        missing_values: Sequence[float] = (),
    ) -> Self:
        """Learn from a table. Give `sensors` (id, latitude, longitude), or `distances`, or `adjacency` (rows are
        sources), or nothing: then the graph comes from the table's strongest correlations."""
        options = TableOptions(freq, timezone, tuple(missing_values))
        frame = options.to_frame(table)
        graph = build_graph(frame, sensors=sensors, distances=distances, adjacency=adjacency)
        for note in (*frame.notes, graph.origin):
            log.info(note)
        warn_of_stand_ins(frame)
        self.fit_frame(frame, graph)
        self._remember(frame, graph, options)
        return self

    @overload
    def impute(
        self,
        table: pd.DataFrame,
        *,
        intervals: None = None,
        freq: str | None = None,
        timezone: str | None = None,
        missing_values: Sequence[float] | None = None,
        all_steps: bool = False,
    ) -> pd.DataFrame: ...

    @overload
    def impute(
        self,
        table: pd.DataFrame,
        *,
        intervals: Sequence[float],
        freq: str | None = None,
        timezone: str | None = None,
        missing_values: Sequence[float] | None = None,
        all_steps: bool = False,
    ) -> Filled: ...

    def impute(
        self,
        table: pd.DataFrame,
        *,
        intervals: Sequence[float] | None = None,
        freq: str | None = None,
        timezone: str | None = None,
        missing_values: Sequence[float] | None = None,
        all_steps: bool = False,
    ) -> pd.DataFrame | Filled:
        """The same table without holes. Observed values come back bit for bit; `attrs["casper"]` holds what was
        noticed: notes, and the sensors that never reported and were filled from the others. The table is read as the
        fitted one was, unless told otherwise. Its rows come back; with `all_steps`, also steps that had no row.

        intervals: shares such as (0.5, 0.9); then the table comes with the ends of intervals that hold so many of the
        true values, see `Filled`.
        """
        frame = self.to_frame(table, freq=freq, timezone=timezone, missing_values=missing_values)
        warn_of_stand_ins(frame)
        filling = self.fill(frame, intervals=intervals)
        return filling.table(all_steps=all_steps) if intervals is None else filling.with_bars(all_steps=all_steps)

    def to_frame(
        self,
        table: pd.DataFrame,
        *,
        freq: str | None = None,
        timezone: str | None = None,
        missing_values: Sequence[float] | None = None,
    ) -> SensorFrame:
        """The table as this imputer reads it: as the fitted one was, unless told otherwise."""
        return self._options.changed(freq, timezone, missing_values).to_frame(table)

    def fill(self, frame: SensorFrame, *, intervals: Sequence[float] | None = None) -> Filling:
        """`impute` for those who need the result in more than one shape: the holes are filled once."""
        order = self.column_order(frame)
        ordered = frame.select(order)
        if intervals is not None:
            self._check_intervals(intervals)
        estimate = np.clip(self.impute_frame(ordered), *ordered.limits)
        bars = None if intervals is None else self.error_bars(ordered, estimate, intervals)
        flagged = np.zeros_like(ordered.observed) if bars is None else bars.flagged
        place = np.argsort(order)  # of the frame's sensors among the model's
        return Filling(
            method=self.name,
            frame=frame,
            estimate=estimate[:, place],
            bars=None if bars is None else bars.select(place),
            cut_off=cut_off(ordered, self.graph, flagged),
        )

    @property
    def has_intervals(self) -> bool:
        """Whether `impute` can give error bars."""
        return self.why_no_intervals is None

    @property
    def why_no_intervals(self) -> str | None:
        """Why there are no error bars, and what to do about it; None if there are."""
        return f"{self.name} gives no error bars: only methods with a network do (see `casper methods`)"

    def error_bars(
        self,
        frame: SensorFrame,  # noqa: ARG002  # for those who have them
        filled: NDArray[np.float64],  # noqa: ARG002
        shares: Sequence[float],  # noqa: ARG002
    ) -> ErrorBars:
        """Around the filled values (T, N), sensors in the order of the frame that was fitted."""
        raise InputError(self.why_no_intervals or "")

    def _check_intervals(self, shares: Sequence[float]) -> None:
        """Before any work is done."""
        if isinstance(shares, int | float | str) or not len(shares):
            raise InputError(f"intervals are given as shares such as (0.5, 0.9), not {shares!r}")
        for share in shares:
            check_share(share)
        if self.why_no_intervals is not None:
            raise InputError(self.why_no_intervals)

    def transform(self, table: pd.DataFrame) -> pd.DataFrame:
        """`impute`, under the name scikit-learn users expect."""
        return self.impute(table)

    def fit_transform(
        self,
        table: pd.DataFrame,
        *,
        sensors: pd.DataFrame | None = None,
        distances: ArrayLike | None = None,
        adjacency: ArrayLike | None = None,
        freq: str | None = None,
        timezone: str | None = None,
        missing_values: Sequence[float] = (),
    ) -> pd.DataFrame:
        """`fit`, then `impute` the same table."""
        fitted = self.fit(
            table,
            sensors=sensors,
            distances=distances,
            adjacency=adjacency,
            freq=freq,
            timezone=timezone,
            missing_values=missing_values,
        )
        return fitted.impute(table)

    @abstractmethod
    def fit_frame(self, frame: SensorFrame, graph: SensorGraph) -> None:
        """Learn from a checked frame."""

    @abstractmethod
    def impute_frame(self, frame: SensorFrame) -> NDArray[np.float64]:
        """(T, N) without NaN, sensors in the order of the frame that was fitted."""

    def impute_steps(self, frame: SensorFrame, wanted: NDArray[np.bool_]) -> NDArray[np.float64]:  # noqa: ARG002
        """`impute_frame`, when only some steps (T,) matter: the others may stay as they are, to save time."""
        return self.impute_frame(frame)

    def fit_benchmark(self, benchmark: Benchmark) -> None:
        """Learn from what a benchmark lets a method see under its protocol, or under the one usual for the method."""
        tested = benchmark.test_steps[:, None]
        in_sample = self.protocol_of(benchmark) == "in-sample"
        frame = benchmark.frame.hide(
            benchmark.hidden & tested if in_sample else tested | np.zeros_like(benchmark.hidden)
        )
        self.fit_frame(frame, benchmark.graph)
        self._remember(frame, benchmark.graph, TableOptions())

    def protocol_of(self, benchmark: Benchmark) -> Protocol:
        return benchmark.protocol or self.usual_protocol

    def impute_windows(self, benchmark: Benchmark) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Batches of test window starts (B,) and their imputations (B, N, window).

        Methods that fill a whole table do so once, over the whole visible series, and cut the windows out of it.
        """
        self.check_benchmark(benchmark)
        filled = self.impute_frame(benchmark.visible_frame)
        for starts in np.array_split(benchmark.test_starts, max(1, len(benchmark.test_starts) // 256)):
            yield starts, filled[starts[:, None] + np.arange(benchmark.window)].swapaxes(1, 2)

    def check_benchmark(self, benchmark: Benchmark) -> None:
        if self.graph.sensors != benchmark.frame.sensors:
            raise InputError(f"the model was fitted on other sensors than those of {benchmark.name}")

    @property
    def graph(self) -> SensorGraph:
        if self._graph is None:
            raise InputError(f"this {self.name} imputer is not fitted yet; call fit(table) first")
        return self._graph

    @property
    def is_fitted(self) -> bool:
        return self._graph is not None

    @property
    def step(self) -> pd.Timedelta | None:
        """The time step of the table that was fitted; None before."""
        return self._step

    def _repr_html_(self) -> str:
        from casper.report.notebook import imputer_html

        return imputer_html(self)

    def column_order(self, frame: SensorFrame) -> NDArray[np.int64]:
        """Where each fitted sensor stands in the frame; refuses tables of other sensors or another step."""
        wanted = self.graph.sensors
        place = {sensor: number for number, sensor in enumerate(frame.sensors)}
        missing = [sensor for sensor in wanted if sensor not in place]
        extra = sorted(set(place) - set(wanted))
        if missing or extra:
            lacks = f"the table lacks {some(missing)}" if missing else ""
            knows_not = f"the model does not know {some(extra)}" if extra else ""
            what = " and ".join(filter(None, (lacks, knows_not)))
            raise InputError(f"the model was fitted on other sensors: {what}; fit a model on this table")
        if self._step is not None and frame.step != self._step:
            raise InputError(
                f"the model was fitted on steps of {step_text(self._step)}, this table has steps of "
                f"{step_text(frame.step)}; fit a model on this table or resample it"
            )
        return np.array([place[sensor] for sensor in wanted], dtype=np.int64)

    def _remember(self, frame: SensorFrame, graph: SensorGraph, options: TableOptions) -> None:
        self._graph, self._step, self._options = graph, frame.step, options
