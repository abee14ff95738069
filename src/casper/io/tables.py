"""Files to and from a pandas table: CSV, Excel, Parquet and HDF5, wide or long. What a file looked like is kept for the
way back, so that a filled CSV shows the same stamps, separators and column names as the one that came in."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from casper.errors import InputError, MissingPackageError, ProblemsError, first_line, problems_of, raise_all
from casper.files import atomic, refuse_overwriting
from casper.frame import sensor_list
from casper.frame.grid import may_hold_stamps
from casper.io import excel
from casper.io.digits import round_filled
from casper.io.excel import write_sheet
from casper.io.layout import (
    DEFAULT_KEY,
    Kind,
    Layout,
    Roles,
    TableFormat,
    find_roles,
    lay_out,
    named_column,
    one_clock,
    wide_from_long,
)
from casper.io.open_roles import refuse_times_in_header, settle_roles
from casper.io.stamps import parse_stamps
from casper.io.textfile import SAMPLE, Place, TextFile, TextStyle, counts_rows, is_row_number_name, write_text

__all__ = ["TableFormat", "read_matrix", "read_sensors", "read_table", "write_table"]

log = logging.getLogger("casper")

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".dat")
HDF5_SUFFIXES = (".h5", ".hdf5", ".hdf")
SUFFIXES: dict[str, Kind] = {
    **dict.fromkeys(TEXT_SUFFIXES, "text"),
    excel.SUFFIX: "excel",
    ".parquet": "parquet",
    **dict.fromkeys(HDF5_SUFFIXES, "hdf5"),
}

_READ_AS_TEXT: tuple[Kind, ...] = ("text", "excel")


def read_table(
    path: str | os.PathLike[str],
    *,
    layout: Layout = "auto",
    time_column: str | None = None,
    id_column: str | None = None,
    value_column: str | None = None,
    key: str | None = None,
    ignore_columns: Sequence[str] = (),
    problems: list[str] | None = None,
) -> tuple[pd.DataFrame, TableFormat]:
    """Read a wide table (time stamps x sensors); a long file (id, time, value) is turned into one.

    `ignore_columns` are no readings, notes for example: they are left out and come back in the file that is written.
    With a list of `problems`, readings that cannot be read are told there and become holes instead of being refused.
    """
    found: list[str] = []
    file = _existing_file(path)
    kind = _kind(file)

    def choose(header: Sequence[object], row_numbers: Sequence[int]) -> Roles:
        ignored = {*row_numbers, *(named_column(file.name, header, name) for name in ignore_columns)}
        return find_roles(
            file.name,
            header,
            layout=layout,
            time=time_column,
            sensor=id_column,
            value=value_column,
            ignored=sorted(ignored),
        )

    style, whole = TextStyle(), frozenset[str]()
    if kind in _READ_AS_TEXT:
        text = TextFile.open(file, sheet=key)
        kind, style, place, key = "text", text.style, text.place, DEFAULT_KEY
        numbered = [position for position in range(len(text.header)) if text.counts_rows(position)]
        roles = choose(text.header, numbered)
        if roles.maybe_ids:
            cells, _ = text.read(range(len(text.header)), found)
            if not cells.empty:
                roles = settle_roles(file.name, cells, _stamps(file.name, cells, roles, place), roles, style.decimal)
        raw, whole = text.read(roles.beside(len(text.header)), found)
        for skipped, where in ((style.titles, "above"), (style.units, "below")):
            if skipped:
                lines = "1 line" if len(skipped) == 1 else f"{len(skipped)} lines"
                log.info(f"{file.name}: skipped {lines} {where} the header, such as {skipped[0]!r}.")
    else:
        raw, key = _read_binary(file, kind, key)
        place = _row_place(file.name)
        levels = raw.index.nlevels
        numbered = _row_numbers(raw)
        roles = choose([*raw.index.names, *raw.columns], [levels + position for position in numbered])
        if roles.id is None and time_column is None and may_hold_stamps(raw.index):
            indexed = raw.reset_index(allow_duplicates=True)
            roles = settle_roles(file.name, indexed, raw.index, roles)
            if roles.id is None:
                ignored = [position - levels for position in roles.ignored if position >= levels]
                _note_row_numbers(file, raw, numbered)
                table = raw.iloc[:, [position for position in range(raw.shape[1]) if position not in ignored]]
                return table, TableFormat(
                    kind, _suffix(file), table.index, table.columns, raw.iloc[:, ignored], tuple(ignored), key=key
                )
            raw = indexed
        else:
            raw = raw.reset_index(drop=all(name is None for name in raw.index.names), allow_duplicates=True)
            numbered = _row_numbers(raw)
            roles = choose(list(raw.columns), numbered)
    if raw.empty:
        raise InputError(f"{file.name} has no rows below its header")
    try:
        stamps = _stamps(file.name, raw, roles, place)
        roles = settle_roles(file.name, raw, stamps, roles)
        beside = roles.beside(raw.shape[1])
        if roles.id is None or roles.value is None:
            long, table = None, raw.iloc[:, [p for p in range(raw.shape[1]) if p not in beside]]
            table.index = stamps
            _note_row_numbers(file, raw, numbered)
        else:
            table, long = wide_from_long(raw, stamps, roles.id, roles.value, place, found)
    except InputError as error:
        raise_all([*found, *problems_of(error)])
    if found and problems is None:
        raise_all(found)
    if problems is not None:
        problems += found
    return table, TableFormat(
        kind,
        _suffix(file),
        table.index,
        table.columns,
        raw.iloc[:, beside],
        tuple(beside),
        roles.stamps,
        style,
        whole,
        key,
        long,
    )


def _stamps(file: str, raw: pd.DataFrame, roles: Roles, place: Place) -> pd.Index:
    name = str(raw.columns[roles.stamps[0]]).strip() if len(roles.stamps) == 1 else "time"
    try:
        return parse_stamps(raw.iloc[:, list(roles.stamps)], place, name).rename(name or "time")
    except InputError:
        refuse_times_in_header(file, list(raw.columns))
        raise


def _row_numbers(raw: pd.DataFrame) -> list[int]:
    """The columns that hold the row numbers that pandas writes."""
    return [
        position
        for position, name in enumerate(raw.columns)
        if is_row_number_name(name) and counts_rows(raw.iloc[:SAMPLE, position].tolist(), name)
    ]


def _note_row_numbers(file: Path, raw: pd.DataFrame, numbered: Sequence[int]) -> None:
    for position in numbered:
        log.info(f"{file.name}: the column {str(raw.columns[position])!r} counts the rows and is no sensor.")


def write_table(
    table: pd.DataFrame,
    path: str | os.PathLike[str],
    *,
    like: TableFormat | None = None,
    filled: NDArray[np.bool_] | None = None,
    force: bool = False,
) -> None:
    """Write a table in the form its suffix asks for; `like` is the look of the file it came from.

    `filled` (R, N) are cells that hold no readings: text files get them with a few digits more than the readings have.
    The file appears complete or not at all, and an existing one is replaced only with `force`.
    """
    file = Path(path).expanduser()
    kind, suffix = _kind(file), _suffix(file)
    if file.is_dir():
        raise InputError(f"{file} is a folder: give the name of a file in it")
    refuse_overwriting(file, force=force)
    if kind == "hdf5":
        _require_tables("writing HDF5 files")
    if kind in _READ_AS_TEXT and filled is not None:
        table = round_filled(table, filled)
    out, with_index = (table, True) if like is None else lay_out(table, like, kind)

    try:
        with atomic(file.resolve()) as temporary:
            if kind == "text":
                style = TextStyle(separator="\t" if suffix.startswith(".tsv") else ",")
                if like is not None and like.suffix.removesuffix(".gz") == suffix.removesuffix(".gz"):
                    style = like.style
                write_text(
                    out,
                    temporary,
                    style,
                    whole=like.whole if like else frozenset(),
                    with_index=with_index,
                    gzipped=suffix.endswith(".gz"),
                )
            elif kind == "excel":
                write_sheet(one_clock(out), temporary, with_index=with_index)
            elif kind == "parquet":
                one_clock(out).to_parquet(temporary)
            else:
                # Text columns would be pickled in the fixed format.
                form = "fixed" if with_index and not _holds_texts(out) else "table"
                one_clock(out).to_hdf(str(temporary), key=like.key if like else DEFAULT_KEY, mode="w", format=form)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{file} could not be written: {error}") from error
    except (ValueError, TypeError, NotImplementedError) as error:
        raise InputError(
            f"{file.name} cannot hold this table, try another kind of file: {first_line(error)}"
        ) from error


def read_sensors(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a list of sensors: ids as text in the index, columns latitude and longitude."""
    file = _existing_file(path)
    kind = _kind(file)
    if kind in _READ_AS_TEXT:
        text = TextFile.open(file)
        raw, _ = text.read(range(len(text.header)), [])
        if text.style.decimal == ",":
            raw = raw.replace(r"^(\s*[+-]?\d+),(\d+\s*)$", r"\1.\2", regex=True)
    else:
        raw, _ = _read_binary(file, kind, None)
    try:
        return sensor_list(raw)
    except ProblemsError as error:
        raise ProblemsError([f"{file.name}: {problem}" for problem in error.problems]) from error
    except InputError as error:
        raise InputError(f"{file.name}: {error}") from error


def read_matrix(path: str | os.PathLike[str], *, sensors: Sequence[str]) -> NDArray[np.float64]:
    """Read a matrix (N, N) of distances or weights between `sensors`, in their order; `inf` stands for no link.

    With ids as header (and first column) rows and columns are found by id, without they must be in order.
    """
    file = _existing_file(path)
    labels: list[str] | None = None
    if _suffix(file) == ".npy":
        try:
            numbers = np.asarray(np.load(file, allow_pickle=False), dtype=np.float64)
        except (ValueError, EOFError, OSError, TypeError) as error:
            raise InputError(f"{file.name} cannot be read as a NumPy array of numbers: {error}") from error
    else:
        labels, cells = _split_labels(_matrix_cells(file), sensors)
        try:
            numbers = cells.astype(np.float64)
        except (ValueError, TypeError) as error:
            raise InputError(f"{file.name} holds something that is not a number: {error}") from error
    if labels is not None:
        absent = [sensor for sensor in sensors if sensor not in labels]
        if absent:
            raise InputError(f"{file.name} has no row for the sensors {', '.join(map(repr, absent[:8]))}")
        if numbers.shape == (len(labels), len(labels)):
            order = [labels.index(sensor) for sensor in sensors]
            numbers = numbers[np.ix_(order, order)]
    if numbers.shape != (len(sensors), len(sensors)):
        raise InputError(
            f"{file.name} has the shape {numbers.shape}, {len(sensors)} sensors need a square of that size"
        )
    unknown = np.argwhere(np.isnan(numbers))
    if len(unknown):
        pair = " and ".join(repr(sensors[position]) for position in unknown[0])
        raise InputError(f"{file.name} has no number for the sensors {pair}: write inf where there is no link")
    return numbers


def _matrix_cells(file: Path) -> NDArray[Any]:
    """All cells of a matrix file, its ids among them where it has any."""
    kind = _kind(file)
    if kind in _READ_AS_TEXT:
        text = TextFile.open(file)
        cells = [text.header, *text.rows()]
        if text.style.decimal == ",":
            cells = [[cell.replace(",", ".") for cell in row] for row in cells]
        return np.array(cells, dtype=object)
    raw, _ = _read_binary(file, kind, None)
    ids = [] if isinstance(raw.index, pd.RangeIndex) else [raw.index.astype(str)]
    body = np.column_stack([*ids, raw.to_numpy(dtype=object)])
    names = [str(column) for column in raw.columns]
    if set(names) == set(map(str, range(len(names)))):
        return body  # columns that pandas numbered are no ids
    return np.vstack([np.array([""] * len(ids) + names, dtype=object), body])


def _split_labels(cells: NDArray[Any], sensors: Sequence[str]) -> tuple[list[str] | None, NDArray[Any]]:
    """Ids and numbers of a matrix that may have the ids in its first row, and in its first column too."""
    rows, columns = cells.shape
    top = [str(cell).strip() for cell in cells[0]]
    if rows == columns + 1:
        return top, cells[1:]
    side = [str(cell).strip() for cell in cells[:, 0]]
    if rows == columns and (top[1:] == side[1:] or set(sensors) <= set(top[1:])):
        return top[1:], cells[1:, 1:]
    return None, cells


def _suffix(file: Path) -> str:
    name = file.name.lower()
    inner = Path(name.removesuffix(".gz")).suffix
    return inner + ".gz" if name.endswith(".gz") else inner


def _kind(file: Path) -> Kind:
    suffix = _suffix(file)
    kind = SUFFIXES.get(suffix.removesuffix(".gz"))
    if kind is None or (kind != "text" and suffix.endswith(".gz")):
        raise InputError(f"{file.name}: files of this kind are not known; use one that ends in {', '.join(SUFFIXES)}")
    return kind


def _existing_file(path: str | os.PathLike[str]) -> Path:
    file = Path(path).expanduser()
    if file.is_dir():
        raise InputError(f"{file} is a folder: give the name of a file in it")
    if not file.exists():
        names = [entry.name for entry in file.parent.iterdir()] if file.parent.is_dir() else []
        similar = difflib.get_close_matches(file.name, names, n=1, cutoff=0.75)
        hint = f"did you mean {file.parent / similar[0]}?" if similar else "check its name and folder"
        raise InputError(f"there is no file {file}: {hint}")
    if file.stat().st_size == 0:
        raise InputError(f"{file} is empty")
    return file


def _row_place(name: str) -> Place:
    return lambda row: f"{name}, row {row + 1}"


def _holds_texts(table: pd.DataFrame) -> bool:
    return any(pd.api.types.is_string_dtype(dtype) or pd.api.types.is_object_dtype(dtype) for dtype in table.dtypes)


def _require_tables(purpose: str) -> None:
    try:
        import tables  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise MissingPackageError("tables", extra="hdf5", purpose=purpose) from error


def _read_binary(file: Path, kind: Kind, key: str | None) -> tuple[pd.DataFrame, str]:
    if kind == "hdf5":
        _require_tables("reading HDF5 files")
    try:
        if kind == "parquet":
            return pd.read_parquet(file), DEFAULT_KEY
        with pd.HDFStore(str(file), mode="r") as store:
            keys = [name.lstrip("/") for name in store.keys()]  # noqa: SIM118  # a store is no dict
            chosen = key.strip("/") if key else keys[0] if len(keys) == 1 else None
            if chosen not in keys:
                listed = ", ".join(map(repr, keys)) or "none that pandas can read"
                raise InputError(f"{file.name} holds the tables {listed}: name one of them with --key NAME (key=)")
            found = store.get(chosen)
    except InputError:
        raise
    except PermissionError as error:
        raise InputError(f"{file} may not be read: permission denied") from error
    except Exception as error:  # pyarrow and tables have a zoo of their own for a damaged file
        raise InputError(f"{file} cannot be read, it seems damaged or of another kind: {first_line(error)}") from error
    if not isinstance(found, pd.DataFrame):
        raise InputError(f"{file.name}: {chosen!r} is a {type(found).__name__}, not a table")
    return found, chosen
