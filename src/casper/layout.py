"""Wide and long: which columns of a file play which part, a long file as a wide table, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from casper.errors import InputError
from casper.stamps import TIME_NAMES
from casper.textfile import Place, TextStyle, parse_numbers

Kind = Literal["text", "parquet", "hdf5"]
Layout = Literal["auto", "wide", "long"]

ID_NAMES = ("id", "sensor", "sensor_id", "station", "station_id")
VALUE_NAMES = ("value", "reading", "measurement")
DEFAULT_KEY = "readings"  # not "table": PyTables would take the whole file for one


@dataclass(frozen=True, eq=False)
class LongRows:
    """Where the rows of a long file are found in the wide table."""

    value_position: int  # among the columns of the file
    value_name: object
    id_position: int  # among the columns beside the readings
    rows: NDArray[np.intp] = field(repr=False)
    columns: NDArray[np.intp] = field(repr=False)


@dataclass(frozen=True, eq=False)
class TableFormat:
    """What a file looked like beside its readings: enough to write the table back in the same form."""

    kind: Kind
    suffix: str
    index: pd.Index  # the rows and columns of the table that was read
    columns: pd.Index
    beside: pd.DataFrame = field(repr=False)  # the file's columns that hold no readings, as they stood there
    stamp_positions: tuple[int, ...] = ()  # where the time columns stood in the file; none: the times were its index
    style: TextStyle = field(default_factory=TextStyle)
    whole: frozenset[str] = frozenset()  # columns that were written without a decimal mark
    key: str = DEFAULT_KEY
    long: LongRows | None = None

    @property
    def layout(self) -> Literal["wide", "long"]:
        return "wide" if self.long is None else "long"


@dataclass(frozen=True)
class Roles:
    """Which columns of a file hold the times, and in a long file the ids and the readings."""

    stamps: tuple[int, ...]
    id: int | None = None  # None in a wide file
    value: int | None = None

    def beside(self, width: int) -> list[int]:
        """The columns of `width` that hold no readings."""
        return [p for p in range(width) if (p in self.stamps if self.value is None else p != self.value)]


def find_roles(
    file: str, header: Sequence[object], layout: Layout, time: str | None, sensor: str | None, value: str | None
) -> Roles:
    """The parts that the columns play, as named by the user or else by their usual names."""
    names = [str(name).strip().lower().replace(" ", "_") for name in header]

    def named(wanted: str) -> int:
        exact = [str(name).strip() for name in header]
        if wanted.strip() not in exact:
            listed = ", ".join(map(repr, exact[:12])) + (", ..." if len(exact) > 12 else "")
            raise InputError(f"{file} has no column {wanted!r}; its columns are {listed}")
        return exact.index(wanted.strip())

    def like(accepted: Sequence[str]) -> list[int]:
        return [position for position, name in enumerate(names) if name in accepted]

    times, ids, values = like(TIME_NAMES), like(ID_NAMES), like(VALUE_NAMES)
    halves = like(("time", "hour"))
    if time is not None:
        stamps = (named(time),)
    elif "date" in names and halves:
        stamps = (names.index("date"), halves[0])
    else:
        stamps = (times[0] if times else 0,)
    asked = layout == "long" or (layout == "auto" and not (sensor is None and value is None))
    found = layout == "auto" and len(ids) == len(values) == 1 and (bool(times) or time is not None)
    if not asked and not found:
        return Roles(stamps)
    for role, given, candidates in (("id", sensor, ids), ("value", value, values), ("time", time, times)):
        if given is None and not candidates:
            accepted = {"id": ID_NAMES, "value": VALUE_NAMES, "time": TIME_NAMES}[role]
            raise InputError(
                f"{file}: no {role} column found for the long layout; name it with {role}_column= "
                f"or call it {' or '.join(accepted)}"
            )
    return Roles(stamps, named(sensor) if sensor else ids[0], named(value) if value else values[0])


def wide_from_long(
    raw: pd.DataFrame, stamps: pd.Index, id_position: int, value_position: int, place: Place
) -> tuple[pd.DataFrame, LongRows]:
    ids = raw.iloc[:, id_position]
    if not pd.api.types.is_integer_dtype(ids.dtype):
        ids = ids.where(ids.isna(), ids.astype(str).str.strip())
    nameless = np.flatnonzero(ids.isna().to_numpy() | (ids == "").to_numpy(dtype=bool))
    if len(nameless):
        raise InputError(f"{place(int(nameless[0]))}: no sensor id")
    columns, sensors = pd.factorize(ids)
    instants = pd.DatetimeIndex(pd.to_datetime(stamps, utc=True)).asi8
    _, first, rows = np.unique(instants, return_index=True, return_inverse=True)
    cell = rows.astype(np.int64) * len(sensors) + columns
    repeated = np.flatnonzero(pd.Series(cell).duplicated().to_numpy())
    if len(repeated):
        row = int(repeated[0])
        before = place(int(np.argmax(cell == cell[row])))
        raise InputError(
            f"{place(row)}: sensor {ids.iloc[row]!r} has a second reading at {stamps[row]} (the first: {before}); "
            "keep one, or write the stamps with their offset if it is the hour that clocks repeat in autumn"
        )
    readings = raw.iloc[:, value_position]
    problems: list[str] = []
    if pd.api.types.is_float_dtype(readings.dtype) or pd.api.types.is_integer_dtype(readings.dtype):
        numbers = readings.to_numpy(dtype=np.float32 if readings.dtype == np.float32 else np.float64, na_value=np.nan)
    else:
        numbers = parse_numbers(readings, ".", f"column {readings.name!r}", place, problems)
    if problems:
        raise InputError(problems[0])
    matrix = np.full((len(first), len(sensors)), np.nan, dtype=numbers.dtype)
    matrix[rows, columns] = numbers
    table = pd.DataFrame(matrix, index=stamps[first], columns=pd.Index(sensors))
    beside = id_position - (id_position > value_position)
    return table, LongRows(value_position, readings.name, beside, rows, columns)


def lay_out(table: pd.DataFrame, like: TableFormat, kind: Kind) -> tuple[pd.DataFrame, bool]:
    """The table as the file's columns stood, and whether its index is to be written too."""
    if not table.index.equals(like.index) or not table.columns.equals(like.columns):
        raise InputError("the table has other rows or columns than the file it is to be written like: leave out like=")
    stamps_become_times = like.kind == "text" and kind != "text"
    if like.long is not None:
        return _long(table, like, like.long, stamps_become_times=stamps_become_times), False
    if stamps_become_times or not like.stamp_positions:
        return table, True
    out = table.reset_index(drop=True)
    for column, position in sorted(enumerate(like.stamp_positions), key=lambda pair: pair[1]):
        stamps = like.beside.iloc[:, column]
        out.insert(position, stamps.name, stamps.array, allow_duplicates=True)
    return out, False


def _long(table: pd.DataFrame, like: TableFormat, long: LongRows, *, stamps_become_times: bool) -> pd.DataFrame:
    """The rows of the long file in their order, then a row for every time and sensor that it had left out."""
    numbers = table.to_numpy()
    absent = ~np.isnan(numbers)
    absent[long.rows, long.columns] = False
    new_rows, new_columns = np.nonzero(absent)
    example = np.unique(long.rows, return_index=True)[1]  # a row of the file with the stamp text of each time
    added = like.beside.iloc[example[new_rows]].copy()
    added.isetitem(long.id_position, np.asarray(table.columns)[new_columns])
    known = {long.id_position, *(p - (p > long.value_position) for p in like.stamp_positions)}
    for position in set(range(added.shape[1])) - known:
        added.isetitem(position, [None] * len(added))
    at, sensor = np.concatenate([long.rows, new_rows]), np.concatenate([long.columns, new_columns])
    out = pd.concat([like.beside, added.astype(like.beside.dtypes)], ignore_index=True)
    out.insert(long.value_position, cast(str, long.value_name), numbers[at, sensor])
    if stamps_become_times:
        out = out.drop(columns=[out.columns[position] for position in like.stamp_positions])
        out.insert(like.stamp_positions[0], str(table.index.name), one_clock(table).index[at])
    return out


def one_clock(table: pd.DataFrame) -> pd.DataFrame:
    """Stamps with several offsets have no column type of their own: write them in UTC."""
    out = table.copy(deep=False)
    if pd.api.types.is_object_dtype(out.index.dtype) and all(isinstance(stamp, pd.Timestamp) for stamp in out.index):
        out.index = pd.DatetimeIndex(pd.to_datetime(out.index, utc=True)).rename(out.index.name)
    return out
