"""Wide and long: which columns of a file play which part, a long file as a wide table, and the way back."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from casper.errors import InputError
from casper.frame.rows import clocks_may_repeat
from casper.io.stamps import DAY_OF_YEAR, PARTS, PARTS_WITH_DAY_OF_YEAR, TIME_NAMES, parse_stamps, part_name
from casper.io.textfile import BadText, Place, TextStyle, parse_numbers

log = logging.getLogger("casper")

Kind = Literal["text", "excel", "parquet", "hdf5"]
Layout = Literal["auto", "wide", "long"]

ID_NAMES = (
    *("id", "sensor", "sensor_id", "station", "station_id", "site", "site_id", "detector", "detector_id"),
    *("station_no", "site_no"),
)
VALUE_NAMES = ("value", "reading", "measurement")
ROLE_NAMES = {"time": TIME_NAMES, "id": ID_NAMES, "value": VALUE_NAMES}
INTEGER = r"0|-?[1-9]\d{0,17}"  # without leading zeros, which an id may need
MANY_COPIES = 0.1  # of all rows: more than a slip
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
    beside_positions: tuple[int, ...] = ()  # where these stood in the file
    stamp_positions: tuple[int, ...] = ()  # where the time columns stood in the file; none: the times were its index
    style: TextStyle = field(default_factory=TextStyle)
    whole: frozenset[str] = frozenset()  # columns that were written without a decimal mark
    key: str = DEFAULT_KEY
    long: LongRows | None = None

    @property
    def layout(self) -> Literal["wide", "long"]:
        return "wide" if self.long is None else "long"

    def stamp_texts(self, rows: NDArray[np.intp]) -> pd.Series:
        """The times of rows of the table, as they stand in a text file; a date and a time column are joined."""
        if self.long is not None:
            rows = np.unique(self.long.rows, return_index=True)[1][rows]  # a row of the file with each time
        columns = self._stamp_columns().iloc[rows].astype(str)
        return columns.agg(" ".join, axis=1) if columns.shape[1] > 1 else columns.iloc[:, 0]

    def read_time(self, text: str) -> str | pd.Timestamp:
        """A time that is written as the file writes its own; the text itself if it is written in another way."""
        if self.kind != "text" or re.match(r"\s*\d{4}-\d\d-\d\d", text):
            return text  # ISO texts are for the frame, which knows the clock of the table
        columns = self._stamp_columns().astype(str)
        parts = text.rsplit(maxsplit=columns.shape[1] - 1) if columns.shape[1] > 1 else [text]
        if len(parts) != columns.shape[1]:
            return text
        # Beside the others, since only a whole column tells whether its days or its months come first.
        joined = pd.DataFrame([*columns.to_numpy(dtype=object).tolist(), parts], columns=columns.columns)
        try:
            return parse_stamps(joined, str, "time")[-1]
        except InputError:
            return text

    def _stamp_columns(self) -> pd.DataFrame:
        return self.beside.iloc[:, [self.beside_positions.index(position) for position in self.stamp_positions]]


@dataclass(frozen=True)
class Roles:
    """Which columns of a file hold the times, and in a long file the ids and the readings."""

    stamps: tuple[int, ...]
    id: int | None = None  # None in a wide file
    value: int | None = None
    ignored: tuple[int, ...] = ()
    maybe_ids: tuple[int, ...] = ()  # the columns with the name of an id, where names do not tell which is or if it is
    surely_long: bool = False  # as the user says, though no name tells which column has the readings

    def beside(self, width: int) -> list[int]:
        """The columns of `width` that hold no readings."""
        no_readings = {*self.stamps, *self.ignored}
        return [p for p in range(width) if (p in no_readings if self.value is None else p != self.value)]


def named_column(file: str, header: Sequence[object], wanted: str) -> int:
    exact = [str(name).strip() for name in header]
    if wanted.strip() not in exact:
        listed = ", ".join(map(repr, exact[:12])) + (", ..." if len(exact) > 12 else "")
        raise InputError(f"{file} has no column {wanted!r}; its columns are {listed}")
    return exact.index(wanted.strip())


def find_roles(
    file: str,
    header: Sequence[object],
    *,
    layout: Layout,
    time: str | None,
    sensor: str | None,
    value: str | None,
    ignored: Sequence[int],
) -> Roles:
    """The parts that the columns play, as named by the user or else by their usual names."""
    names = [part_name(name) for name in header]

    def like(accepted: Sequence[str]) -> list[int]:
        return [position for position, name in enumerate(names) if name in accepted and position not in ignored]

    times, ids, values = like(TIME_NAMES), like(ID_NAMES), like(VALUE_NAMES)
    dates, halves = like(("date",)), like(("time", "hour"))
    parts = PARTS_WITH_DAY_OF_YEAR if like((DAY_OF_YEAR,)) else PARTS
    spread = [position for part in parts for position in like((part,))[:1]]
    has_parts = not times and [names[position] for position in spread] == list(parts[: len(spread)])
    named = {
        role: None if wanted is None else named_column(file, header, wanted)
        for role, wanted in (("time", time), ("id", sensor), ("value", value))
    }
    if named["time"] is not None:
        stamps = (named["time"],)
    elif dates and halves:
        stamps = (dates[0], halves[0])
    elif has_parts and len(spread) > 1:
        stamps = tuple(spread)
    else:
        by_place = next((position for position in range(len(names)) if position not in ignored), 0)
        stamps = (times[0] if times else by_place,)
    has_time = bool(times) or time is not None or len(stamps) > 1
    id_at = named["id"] if named["id"] is not None else ids[0] if len(ids) == 1 else None
    if not values and id_at is not None and has_time:
        # A reading may be called anything where nothing else is left for it to be.
        others = [p for p in range(len(names)) if p not in (*stamps, id_at, *ignored) and names[p]]
        values = others if len(others) == 1 else []
    asked = layout == "long" or (layout == "auto" and not (sensor is None and value is None))
    found = layout == "auto" and len(ids) == len(values) == 1 and has_time
    open_ids = tuple(ids if named["id"] is None else ()) if layout == "auto" or len(ids) > 1 else ()
    if layout == "wide" or (not asked and not found):
        return Roles(stamps, ignored=tuple(ignored), maybe_ids=() if layout == "wide" else open_ids)
    if asked and value is None and not values and (id_at is not None or ids) and has_time:
        maybe_ids = tuple(ids) if id_at is None else (id_at,)
        return Roles(stamps, ignored=tuple(ignored), maybe_ids=maybe_ids, surely_long=True)
    for role, candidates in (("id", ids), ("value", values), ("time", times or stamps[1:])):
        if named[role] is None and not candidates:
            raise InputError(
                f"{file}: no {role} column found for the long layout; name it with --{role}-column NAME "
                f"({role}_column=) or call it {' or '.join(ROLE_NAMES[role])}"
            )
    value_at = named["value"] if named["value"] is not None else values[0]
    maybe_ids = open_ids if id_at is None else ()
    return Roles(stamps, id_at if id_at is not None else ids[0], value_at, tuple(ignored), maybe_ids)


def wide_from_long(
    raw: pd.DataFrame, stamps: pd.Index, id_position: int, value_position: int, place: Place, problems: list[str]
) -> tuple[pd.DataFrame, LongRows]:
    """A long file as a wide table; readings that cannot be used become holes and are told in `problems`."""
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
    readings = raw.iloc[:, value_position]
    bad: list[BadText] = []
    if pd.api.types.is_float_dtype(readings.dtype) or pd.api.types.is_integer_dtype(readings.dtype):
        numbers = readings.to_numpy(dtype=np.float32 if readings.dtype == np.float32 else np.float64, na_value=np.nan)
    else:
        numbers = parse_numbers(readings, ".", str(readings.name), bad)
    if bad:
        problems.append(
            f"{place(bad[0].row)}, column {bad[0].column!r}: {bad[0].sentence(place)}; leave the cell empty for "
            "a hole, or name another column with --value-column NAME (value_column=)"
        )
    _look_at_second_readings(cell, numbers, ids, stamps, place, problems)
    matrix = np.full((len(first), len(sensors)), np.nan, dtype=numbers.dtype)
    matrix[rows, columns] = numbers
    table = pd.DataFrame(matrix, index=stamps[first], columns=pd.Index(sensors))
    beside = id_position - (id_position > value_position)
    return table, LongRows(value_position, readings.name, beside, rows, columns)


def _look_at_second_readings(
    cell: NDArray[np.int64],
    numbers: NDArray[np.floating[Any]],
    ids: pd.Series,
    stamps: pd.Index,
    place: Place,
    problems: list[str],
) -> None:
    """Rows with the sensor and the time of another: fine if they are copies of it, else a problem.

    cell, numbers: (R,), where a row belongs in the wide table, and its reading.
    """
    repeated = np.flatnonzero(pd.Series(cell).duplicated().to_numpy())
    if len(repeated) == 0:
        return
    _, firsts, of_row = np.unique(cell, return_index=True, return_inverse=True)
    first = firsts[of_row[repeated]]
    differs = (numbers[repeated] != numbers[first]) & ~(np.isnan(numbers[repeated]) & np.isnan(numbers[first]))
    if not differs.any():
        share = len(repeated) / len(cell)
        many = share >= MANY_COPIES
        log.log(
            logging.WARNING if many else logging.INFO,
            f"{place(int(repeated[0]))}: this row repeats the sensor, time and reading of an earlier one, as do "
            f"{len(repeated):,} of {len(cell):,} rows" + (f" ({share:.0%})" if many else "") + "; each is used once.",
        )
        return
    row, before = int(repeated[differs][0]), place(int(first[differs][0]))
    remedy = "keep one"
    if clocks_may_repeat(stamps[row]):
        remedy += ", or write the stamps with their offset if it is the hour that clocks repeat in autumn"
    problems.append(
        f"{place(row)}: sensor {ids.iloc[row]!r} has a second reading at {stamps[row]} (the first: {before}); {remedy}"
    )


def lay_out(table: pd.DataFrame, like: TableFormat, kind: Kind) -> tuple[pd.DataFrame, bool]:
    """The table as the file's columns stood, and whether its index is to be written too."""
    if not table.index.equals(like.index) or not table.columns.equals(like.columns):
        raise InputError("the table has other rows or columns than the file it is to be written like: leave out like=")
    stamps_become_times = like.kind == "text" and kind != "text"
    if like.long is not None:
        return _long(table, like, like.long, stamps_become_times=stamps_become_times), False
    with_index = stamps_become_times or not like.stamp_positions
    out = table.copy(deep=False) if with_index else table.reset_index(drop=True)
    left_out = like.stamp_positions if with_index else ()
    for number, position in enumerate(like.beside_positions):
        if position not in left_out:
            column = like.beside.iloc[:, number]
            content = _typed(column) if stamps_become_times else column.array
            before = sum(other < position for other in left_out)
            out.insert(position - before, column.name, content, allow_duplicates=True)
    return out, with_index


def _typed(column: pd.Series) -> Any:
    """Texts that are whole numbers as such: a text file knows no types, the file that is written does."""
    is_text = pd.api.types.is_string_dtype(column.dtype) and column.notna().all()
    return column.astype(np.int64).array if is_text and column.str.fullmatch(INTEGER).all() else column.array


def _long(table: pd.DataFrame, like: TableFormat, long: LongRows, *, stamps_become_times: bool) -> pd.DataFrame:
    """The rows of the long file in their order, and a row for every time and sensor that it had left out."""
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
    order = _where_new_rows_belong(long, new_rows, new_columns, table.columns)
    at = np.concatenate([long.rows, new_rows])[order]
    sensor = np.concatenate([long.columns, new_columns])[order]
    out = pd.concat([like.beside, added.astype(like.beside.dtypes)], ignore_index=True).iloc[order]
    out = out.reset_index(drop=True)
    if stamps_become_times:
        for position in range(out.shape[1]):
            out.isetitem(position, _typed(out.iloc[:, position]))
    out.insert(long.value_position, cast(str, long.value_name), numbers[at, sensor])
    if stamps_become_times:
        out = out.drop(columns=[out.columns[position] for position in like.stamp_positions])
        out.insert(min(like.stamp_positions), str(table.index.name), one_clock(table).index[at])
    return out


def _where_new_rows_belong(
    long: LongRows, new_rows: NDArray[np.intp], new_columns: NDArray[np.intp], sensors: pd.Index
) -> NDArray[np.intp]:
    """The order of old and new rows: that of the file if it is sorted by sensor or time, else the new ones last."""
    rows, columns = np.concatenate([long.rows, new_rows]), np.concatenate([long.columns, new_columns])
    known = len(long.rows)
    by_text = np.argsort(np.argsort(sensors.astype(str).to_numpy(dtype=object), kind="stable"))
    by_number = np.argsort(np.argsort(pd.to_numeric(pd.Series(sensors), errors="coerce").to_numpy(), kind="stable"))
    none = np.zeros(len(sensors), dtype=np.intp)
    as_they_come = np.arange(len(sensors))
    for major, minor in (
        (columns, rows),  # by sensor, then time
        *((rows, rank[columns]) for rank in (as_they_come, by_text, by_number, none)),  # by time, then sensor
    ):
        step, inner = np.diff(major[:known]), np.diff(minor[:known])
        if ((step > 0) | ((step == 0) & (inner >= 0))).all():
            return np.lexsort((minor, major))
    return np.arange(len(rows))


def one_clock(table: pd.DataFrame) -> pd.DataFrame:
    """Stamps with several offsets have no column type of their own: write them in UTC."""
    out = table.copy(deep=False)
    if pd.api.types.is_object_dtype(out.index.dtype) and all(isinstance(stamp, pd.Timestamp) for stamp in out.index):
        out.index = pd.DatetimeIndex(pd.to_datetime(out.index, utc=True)).rename(out.index.name)
    return out
