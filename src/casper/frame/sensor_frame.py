"""The only place that validates and normalises what a user hands in: a table of readings, a list of sensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta, tzinfo
from decimal import Decimal
from numbers import Real
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from casper.errors import MOST_TEXTS, InputError, raise_all, some
from casper.frame.grid import ISO_DATE, index_stamps, may_hold_stamps, onto_grid, regular_grid, wanted_step
from casper.frame.months import month_numbers, months_of
from casper.frame.rows import rows_in_order
from casper.frame.sensors import match_sensors, sensor_list

__all__ = ["SensorFrame", "examine", "from_arrays", "match_sensors", "sensor_list", "to_frame"]

# So many readings, and such a share of all, at the smallest or the largest one make it an end of the scale.
_FEWEST_AT_END, _SHARE_AT_END = 20, 0.01


@dataclass(frozen=True, eq=False)
class SensorFrame:
    """A table of readings on a regular grid of time steps, and the way back to the table it came from."""

    values: NDArray[np.float64]  # (T, N), NaN where not observed
    observed: NDArray[np.bool_]  # (T, N)
    times: pd.DatetimeIndex  # (T,) on the local clock: time of day is read off it
    sensors: tuple[str, ...]
    step: pd.Timedelta
    notes: tuple[str, ...]  # what was done to the table, a sentence each
    _table: pd.DataFrame = field(repr=False)  # R rows as they came
    _row_observed: NDArray[np.bool_] = field(repr=False)  # (R, N)
    _cells: NDArray[np.int64] = field(repr=False)  # (R,) the grid step of each row
    _stamps: pd.DatetimeIndex = field(repr=False)  # (R,) the time of each row, on the clock of `times`

    @property
    def dead(self) -> tuple[str, ...]:
        """The sensors that never report."""
        reports = np.atleast_1d(self.observed.any(axis=0))
        return tuple(sensor for sensor, alive in zip(self.sensors, reports, strict=True) if not alive)

    @property
    def limits(self) -> tuple[float, float]:
        """Beyond which no reading is to be expected.

        Nothing is negative where nothing negative was ever read; and what readings reach again and again without ever
        passing it is an end of their scale, such as 100 % of humidity.
        """
        readings = self.values[self.observed]
        if not len(readings):
            return -np.inf, np.inf
        smallest, largest = float(readings.min()), float(readings.max())
        often = max(_FEWEST_AT_END, _SHARE_AT_END * len(readings))
        least = smallest if (readings == smallest).sum() >= often else 0.0 if smallest >= 0 else -np.inf
        return least, largest if (readings == largest).sum() >= often else np.inf

    def hole_count(self, *, all_steps: bool = False) -> int:
        """How many cells there are to fill, in the rows that came in or in all steps of the grid."""
        return int(self.holes(all_steps=all_steps).sum())

    def holes(self, *, all_steps: bool = False) -> NDArray[np.bool_]:
        """Which cells of what `restore` gives back are filled ones."""
        return ~(self.observed if all_steps and not self._has_every_step else self._row_observed)

    @property
    def _has_every_step(self) -> bool:
        """The caller's rows are the steps of the grid, in whatever order: there are none to add."""
        return len(self.times) == len(self._cells) == len(np.unique(self._cells))

    def restore(self, filled: NDArray[np.floating[Any]], *, all_steps: bool = False) -> pd.DataFrame:
        """Put `filled` (T, N) into the holes of the caller's table; what was observed comes back bit for bit.

        The rows are the ones that came in, or with `all_steps` every step of the grid.
        """
        if filled.shape != self.values.shape:
            raise InputError(f"the filled values have the shape {filled.shape}, the table has {self.values.shape}")
        holes = ~self._row_observed
        rows = filled[self._cells]  # (R, N)
        left = np.argwhere(holes & ~np.isfinite(rows))
        if len(left):
            row, column = left[0]
            place = f"sensor {self.sensors[column]!r} at {self._table.index[row]}"
            raise InputError(f"the filled values still have {len(left)} holes or infinities, the first: {place}")
        if all_steps and not self._has_every_step:
            return self._restore_all_steps(filled)
        columns: dict[int, object] = {}
        for position in range(len(self.sensors)):
            column = self._table.iloc[:, position].array.copy()
            hole = holes[:, position]
            if hole.any():
                column[hole] = _as_dtype(rows[hole, position], column.dtype)
            columns[position] = column
        restored = pd.DataFrame(columns, index=self._table.index)
        restored.columns = self._table.columns
        return restored

    def _restore_all_steps(self, filled: NDArray[np.floating[Any]]) -> pd.DataFrame:
        complete = np.where(self.observed, self.values, filled)
        columns = {
            position: pd.array(_as_dtype(complete[:, position], dtype), dtype=dtype)
            for position, dtype in enumerate(self._table.dtypes)
        }
        restored = pd.DataFrame(columns, index=self._grid_index())
        restored.columns = self._table.columns
        return restored

    def as_table(self, values: NDArray[Any], *, all_steps: bool = False) -> pd.DataFrame:
        """Any (T, N) under the names and stamps of the caller's table: its rows, or with `all_steps` every step."""
        came = self._table.index
        if not all_steps or self._has_every_step:
            return pd.DataFrame(values[self._cells], index=came, columns=self._table.columns)
        return pd.DataFrame(values, index=self._grid_index(), columns=self._table.columns)

    def _grid_index(self) -> pd.DatetimeIndex:
        """Every step of the grid, written as the caller's stamps are."""
        came = self._table.index
        naive = isinstance(came, pd.DatetimeIndex) and came.tz is None
        return (self.times.tz_localize(None) if naive else self.times).rename(came.name)

    def select(self, order: NDArray[np.int64]) -> SensorFrame:
        """The same frame with its sensors in another order."""
        return replace(
            self,
            values=self.values[:, order],
            observed=self.observed[:, order],
            sensors=tuple(self.sensors[number] for number in order),
            _table=self._table.iloc[:, order],
            _row_observed=self._row_observed[:, order],
        )

    def hide(self, hidden: NDArray[np.bool_]) -> SensorFrame:
        """The same frame with some cells (T, N) turned into holes."""
        return replace(
            self,
            values=np.where(hidden, np.nan, self.values),
            observed=self.observed & ~hidden,
            _row_observed=self._row_observed & ~hidden[self._cells],
        )

    def position(self, time: str | pd.Timestamp) -> int:
        """The step of the grid that a time stamp stands for; without an offset it is read as the table writes its own.

        A time beside a step stands for it if it is no farther away than the table's own stamps were moved, and in a
        table of months, quarters or years if it lies in it.
        """
        stamp = self._read_stamp(time)
        months = months_of(self.step)
        if months is not None:
            first, asked = (int(month_numbers(one)[0]) for one in (self.times[:1], pd.DatetimeIndex([stamp])))
            if 0 <= (asked - first) // months < len(self.times):
                return (asked - first) // months
        moved = np.abs((self._stamps - self.times[self._cells]).to_numpy()).max()
        # A reading of a day stands at its beginning, at whatever hour it was taken.
        method = "nearest" if moved < self.step / 2 else "pad"
        nearest = int(self.times.get_indexer(pd.DatetimeIndex([stamp]), method=method)[0])
        if nearest >= 0 and abs(stamp - self.times[nearest]) <= moved:
            return nearest
        if not self.times[0] < stamp < self.times[-1]:
            first, last = self._as_written(self.times[0]), self._as_written(self.times[-1])
            raise InputError(f"{time} is not in the table, which runs from {first} to {last}")
        after = int(self.times.searchsorted(stamp))
        beside = " and ".join(str(self._as_written(self.times[step])) for step in (after - 1, after))
        raise InputError(f"{time} lies between two steps of the table, {beside}: choose one of them")

    def _read_stamp(self, time: str | pd.Timestamp) -> pd.Timestamp:
        """On the clock of `times`."""
        try:
            # Only ISO texts: 01/02/2024 would be read as one of two days without a word.
            if isinstance(time, str) and not ISO_DATE.match(time):
                raise ValueError
            stamp = pd.Timestamp(time)
        except ValueError as error:
            raise InputError(f"{time!r} is not a time stamp: write it like 2024-01-31 13:00") from error
        if stamp.tz is not None and self.times.tz is None:
            raise InputError(f"{time} has an offset, the time stamps of the table have none: leave it out")
        if stamp.tz is None and self.times.tz is not None:
            stamp = stamp.tz_localize(self._zone_near(stamp), ambiguous=True, nonexistent="shift_forward")
        return stamp if stamp.tz is None else stamp.tz_convert(self.times.tz)

    def _zone_near(self, stamp: pd.Timestamp) -> tzinfo | None:
        """The zone in which the table writes its stamps; where each has an offset of its own, that of the nearest."""
        came = self._table.index
        if isinstance(came, pd.DatetimeIndex) and came.tz is not None:
            return came.tz
        if may_hold_stamps(came) and not isinstance(came, pd.DatetimeIndex | pd.PeriodIndex):
            written = [pd.Timestamp(one) for one in came]
            if written[0].tz is not None:
                apart = [abs((one if stamp.tz else one.tz_localize(None)) - stamp) for one in written]
                return written[apart.index(min(apart))].tz
        return self.times.tz

    def _as_written(self, time: pd.Timestamp) -> pd.Timestamp:
        """The same moment on the clock on which the table writes its stamps."""
        return time if time.tz is None else time.tz_convert(self._zone_near(time))


def to_frame(
    table: pd.DataFrame,
    *,
    freq: str | pd.Timedelta | timedelta | None = None,
    timezone: str | None = None,
    missing_values: Sequence[float] = (),
) -> SensorFrame:
    """Check a wide table (time stamps x sensors) and put it on a regular grid; all problems are told at once.

    `freq` is a step such as '5min' or 'MS' (months) when the stamps are uneven, `timezone` the zone of naive stamps (or
    the one whose clock is to be read), `missing_values` the numbers that stand for a hole.
    """
    frame, problems = examine(table, freq=freq, timezone=timezone, missing_values=missing_values)
    if frame is None or problems:
        raise_all(problems)
    return frame


def examine(
    table: pd.DataFrame,
    *,
    freq: str | pd.Timedelta | timedelta | None = None,
    timezone: str | None = None,
    missing_values: Sequence[float] = (),
) -> tuple[SensorFrame | None, list[str]]:
    """The frame as far as a table can be read, None if its times cannot be, and every problem of it.

    With problems it is good for looking at readings only: what could not be read became holes, the first of several
    rows with one stamp is used, and the times are those of the rows if they fit no grid.
    """
    if not isinstance(table, pd.DataFrame):  # pyright: ignore[reportUnnecessaryIsInstance]  # users do not run pyright
        raise InputError(f"expected a pandas DataFrame (rows are times, columns sensors), got {type(table).__name__}")
    problems = _shape_problems(table)
    if table.empty:
        return None, problems
    notes: list[str] = []
    sensors = tuple(str(column) for column in table.columns)
    values = _numbers(table, problems)
    _remove_sentinels(values, missing_values, notes)
    _remove_infinities(table, values, sensors, problems)
    if np.isnan(values).all() and not any(problem.startswith("column ") for problem in problems):
        problems.append("all values are missing: there is nothing to learn from")
    stamps = index_stamps(table.index, timezone, problems, notes)
    wanted = None if freq is None else wanted_step(freq, problems)
    if stamps is None or len(stamps) < 2:
        return None, problems
    order = rows_in_order(stamps, values, sensors, problems, notes)
    in_order = stamps[order.kept]
    if len(in_order) < 2:
        problems.append(f"all rows have the time stamp {stamps[0]}: two or more times are needed")
        return None, problems
    before = len(problems)
    step = pd.Timedelta(0)
    cells, times = np.arange(len(in_order)), in_order
    if freq is None or wanted is not None:
        cells, times, step = regular_grid(in_order, wanted, problems, notes)
    if len(problems) > before:
        cells, times = np.arange(len(in_order)), in_order

    row_observed = ~np.isnan(values)
    rounded = [
        repr(sensor)
        for position, sensor in enumerate(sensors)
        if pd.api.types.is_integer_dtype(table.dtypes.iloc[position]) and not row_observed[:, position].all()
    ]
    if rounded:
        notes.append(f"Filled values are rounded to whole numbers in the integer columns {some(rounded)}.")
    on_grid = onto_grid(values if order.as_they_came else values[order.kept], cells, len(times))
    observed = row_observed if on_grid is values else ~np.isnan(on_grid)
    row_cells = cells[order.stands_for]
    copied = table.copy(deep=True)
    frame = SensorFrame(on_grid, observed, times, sensors, step, tuple(notes), copied, row_observed, row_cells, stamps)
    return frame, problems


def from_arrays(values: ArrayLike, observed: ArrayLike, times: pd.DatetimeIndex, sensors: Sequence[str]) -> SensorFrame:
    """A frame from arrays (T, N) that already sit on a regular grid; cells that are not observed become NaN."""
    present = np.array(observed, dtype=np.bool_)
    numbers = np.where(present, np.asarray(values, dtype=np.float64), np.nan)
    names = tuple(str(sensor) for sensor in sensors)
    if numbers.shape != (len(times), len(names)) or present.shape != numbers.shape:
        raise InputError(f"values {numbers.shape} and observed {present.shape} must be {(len(times), len(names))}")
    if not np.isfinite(numbers[present]).all():
        raise InputError("an observed value is NaN or infinite: mark it as not observed")
    differences = np.unique(np.diff(times.as_unit("ns").asi8))
    if len(differences) != 1 or differences[0] <= 0:
        raise InputError("the times must be evenly spaced and ascending: use to_frame for a table with other times")
    step = pd.Timedelta(int(differences[0]), unit="ns")
    table = pd.DataFrame(numbers, index=times, columns=list(names), copy=False)
    return SensorFrame(numbers, present, times, names, step, (), table, present, np.arange(len(times)), times)


def _shape_problems(table: pd.DataFrame) -> list[str]:
    rows, columns = table.shape
    problems: list[str] = []
    if rows == 0:
        problems.append("the table is empty: it has no rows")
    if columns == 0:
        problems.append("the table is empty: it has no columns (a column per sensor is expected)")
    if rows == 1:
        problems.append("the table has a single row: two or more are needed")
    if columns == 1:
        problems.append(f"the table has a single sensor ({table.columns[0]!r}): CASPER needs two or more")
    if table.columns.nlevels > 1:
        problems.append(f"the column names have {table.columns.nlevels} levels: keep the sensor ids only")
    names = pd.Index([str(column) for column in table.columns])
    if names.has_duplicates:
        twice = names[names.duplicated()][0]
        problems.append(f"sensor id {twice!r} names more than one column (ids are compared as text): rename them")
    return problems


def _numbers(table: pd.DataFrame, problems: list[str]) -> NDArray[np.float64]:
    """The table as float64 (R, N), never sharing memory with it; columns that are not numbers become problems."""
    if all(isinstance(dtype, np.dtype) and dtype.kind in "fiu" for dtype in table.dtypes):
        return table.to_numpy(dtype=np.float64, copy=True)
    values = np.full(table.shape, np.nan)
    for position, (name, dtype) in enumerate(zip(table.columns, table.dtypes, strict=True)):
        column = table.iloc[:, position]
        if pd.api.types.is_bool_dtype(dtype):
            problems.append(f"column {name!r} holds True and False, not readings: drop it or turn it into numbers")
        elif isinstance(dtype, pd.SparseDtype):
            problems.append(f"column {name!r} is sparse: turn it into an ordinary column with .sparse.to_dense()")
        elif pd.api.types.is_float_dtype(dtype) or pd.api.types.is_integer_dtype(dtype):
            values[:, position] = column.to_numpy(dtype=np.float64, na_value=np.nan)
        elif pd.api.types.is_object_dtype(dtype) or column.notna().any():
            _convert_objects(column, values[:, position], problems)
        else:
            problems.append(f"column {name!r} is of type {dtype}: only columns of numbers can be filled")
    return values


def _convert_objects(column: pd.Series, numbers: NDArray[np.float64], problems: list[str]) -> None:
    wrong: dict[str, int] = {}  # what is no number, as Python writes it, and where it is first
    for row in np.flatnonzero(column.notna().to_numpy()).tolist():
        value = column.iloc[row]
        if isinstance(value, (Real, Decimal)) and not isinstance(value, (bool, np.bool_)):
            numbers[row] = float(value)
        else:
            wrong.setdefault(("the text " if isinstance(value, str) else "") + repr(value), row)
    if wrong:
        named = " and ".join(f"{what} at {column.index[row]}" for what, row in list(wrong.items())[:MOST_TEXTS])
        more = f" and {len(wrong) - MOST_TEXTS} others" if len(wrong) > MOST_TEXTS else ""
        problems.append(
            f"column {column.name!r} has {named}{more}: "
            "turn it into numbers (pd.to_numeric) or leave the column out (--ignore-column)"
        )


def _remove_sentinels(values: NDArray[np.float64], sentinels: Sequence[float], notes: list[str]) -> None:
    for sentinel in sentinels:
        # A float32 table holds the float32 nearest to -999.9, which is another number.
        found = (values == sentinel) | (values == np.float64(np.float32(sentinel)))
        count = int(found.sum())
        values[found] = np.nan
        notes.append(f"{count} {'value' if count == 1 else 'values'} equal to {sentinel:g} became holes.")


def _remove_infinities(
    table: pd.DataFrame, values: NDArray[np.float64], sensors: Sequence[str], problems: list[str]
) -> None:
    infinite = np.isinf(values)
    for position in np.flatnonzero(infinite.any(axis=0)).tolist():
        stamp = table.index[int(np.argmax(infinite[:, position]))]
        count = int(infinite[:, position].sum())
        problems.append(
            f"column {sensors[position]!r} has {count} infinite values, the first at {stamp}: replace them by NaN"
        )
    values[infinite] = np.nan


def _as_dtype(numbers: NDArray[np.floating[Any]], dtype: Any) -> Any:
    """Numbers in a form that a column of this type takes: rounded and kept in range for integers."""
    if not pd.api.types.is_any_real_numeric_dtype(dtype):
        return numbers
    plain = np.dtype(getattr(dtype, "numpy_dtype", dtype))
    if plain.kind == "f":
        return numbers.astype(plain)
    span = np.iinfo(cast("Literal['int64']", plain.name))
    # The float nearest to the largest int64 lies above it.
    within = np.clip(numbers.astype(np.float64), float(span.min), np.nextafter(float(span.max), 0))
    return np.rint(within).astype(plain)
