"""Text files: how one is written (separator, decimal mark, encoding), its cells as numbers or texts, the way back."""

from __future__ import annotations

import csv
import gzip
import io
import re
import warnings
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from casper.errors import InputError, first_line, raise_all

Place = Callable[[int], str]  # row of the table -> where a person finds it in the file

HOLES = ("", "na", "nan", "null", "none", "-", "--", "n/a", "missing")
HOLE_TEXTS = sorted({form for hole in HOLES for form in (hole, hole.upper(), hole.title())} | {"NaN"})
NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:inf|infinity)"
ISO = r"\d{4}-?\d\d-?\d\d(?:$|[T ])"
WHOLE_LIMIT = 2**53  # integers up to here are floats without loss
MOST_PROBLEMS = 10  # columns that are told at once


@dataclass(frozen=True)
class TextStyle:
    """How a text file is written."""

    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    newline: str = "\n"


@dataclass(frozen=True)
class TextFile:
    """A text file in memory: its bytes, how they are to be read, and where its header stands."""

    name: str
    content: bytes = field(repr=False)
    style: TextStyle
    header: list[str]
    header_line: int  # from 1, as an editor counts
    comments: bool

    @classmethod
    def open(cls, file: Path) -> TextFile:
        try:
            content = file.read_bytes()
            if file.name.lower().endswith(".gz"):
                content = gzip.decompress(content)
        except PermissionError as error:
            raise InputError(f"{file} may not be read: permission denied") from error
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{file} cannot be read: {error}") from error
        if content.startswith((b"\xff\xfe", b"\xfe\xff")):
            content = content.decode("utf-16", errors="replace").encode()
        if b"\0" in content:
            raise InputError(f"{file.name} is not a text file")
        encoding = _encoding(content)
        # A line that starts with # is a comment, unless # also occurs elsewhere, say in the names of sensors.
        comments = re.search(rb"[^\r\n\xbf]#", content) is None
        sample = list(islice(_numbered_lines(content, encoding, comments=comments), 50))
        if not sample:
            raise InputError(f"{file.name} is empty: it has nothing but blank lines")
        separator = _separator([line for _, line in sample])
        header = _cells([sample[0][1]], separator, file.name)[0]
        newline = "\r\n" if b"\r\n" in content[:65536] else "\n"
        style = TextStyle(separator, _decimal(content, separator), encoding, newline)
        return cls(file.name, content, style, [name.strip() for name in header], sample[0][0], comments)

    def place(self, row: int) -> str:
        """Where row `row` (from 0) below the header is found with a text editor."""
        number, _ = next(islice(self._body(), row, None))
        return f"{self.name}, line {number}"

    def rows(self) -> list[list[str]]:
        """All cells below the header as text."""
        found = _cells([line for _, line in self._body()], self.style.separator, self.name)
        for row, cells in enumerate(found):
            if len(cells) != len(self.header):
                raise InputError(f"{self.place(row)}: {len(cells)} fields where the header has {len(self.header)}")
        return found

    def read(self, texts: Collection[int]) -> tuple[pd.DataFrame, frozenset[str]]:
        """The table below the header, and the columns whose numbers are all written without a decimal mark.

        The columns at the positions `texts` stay as they are written.
        """
        width = len(self.header)
        if width == 1:
            raise InputError(f"{self.name}: a single column found; columns are separated by comma, semicolon, tab or |")
        if re.fullmatch(rf"(?:{ISO}.*)|(?:{NUMBER})", self.header[0]):
            raise InputError(f"{self.name}, line {self.header_line}: expected column names, found {self.header[0]!r}")
        numeric = [position for position in range(width) if position not in texts]
        options: dict[str, Any] = {} if _pandas_reads_floats_exactly() else {"float_precision": "round_trip"}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)
                raw = pd.read_csv(
                    io.BytesIO(self.content),
                    sep=self.style.separator,
                    decimal=self.style.decimal,
                    encoding=self.style.encoding,
                    header=None,
                    names=list(range(width)),
                    index_col=False,
                    skiprows=self.header_line,
                    skipinitialspace=True,
                    comment="#" if self.comments else None,
                    dtype=dict.fromkeys(texts, str),
                    keep_default_na=False,
                    na_values=cast(Any, dict.fromkeys(numeric, HOLE_TEXTS)),
                    dtype_backend="numpy_nullable",
                    low_memory=False,
                    **options,
                )
        except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
            self.rows()  # finds the line
            raise InputError(f"{self.name} cannot be read: {first_line(error)}") from error
        columns: dict[int, Any] = {position: raw[position] for position in range(width)}
        problems: list[str] = []
        whole: set[str] = set()
        for position in numeric:
            column = raw[position]
            if pd.api.types.is_integer_dtype(column.dtype):
                whole.add(self.header[position])
            if pd.api.types.is_string_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype):
                label = f"column {self.header[position]!r}"
                columns[position] = parse_numbers(column, self.style.decimal, label, self.place, problems)
            elif not (pd.api.types.is_integer_dtype(column.dtype) and bool((column.abs() >= WHOLE_LIMIT).any())):
                columns[position] = column.to_numpy(dtype=np.float64, na_value=np.nan)
        if problems:
            rest = len(problems) - MOST_PROBLEMS
            raise_all(problems[:MOST_PROBLEMS] + ([f"and {rest} more columns like these"] if rest > 0 else []))
        table = pd.DataFrame(columns)
        table.columns = pd.Index(self.header, dtype=object)
        # A separator at the end of every line makes a column without name and content.
        if not self.header[-1] and bool(table.iloc[:, -1].isna().all()):
            table = table.iloc[:, :-1]
        return table, frozenset(whole)

    def _body(self) -> Iterator[tuple[int, str]]:
        lines = _numbered_lines(self.content, self.style.encoding, comments=self.comments)
        return ((number, line) for number, line in lines if number > self.header_line)


def stripped_texts(column: pd.Series) -> pd.Series:
    return column.astype(object).where(column.notna(), "").astype(str).str.strip()


def parse_numbers(
    column: pd.Series, decimal: str, label: str, place: Place, problems: list[str]
) -> NDArray[np.float64]:
    """Numbers from texts, exactly; the first text that is none becomes a problem."""
    texts = stripped_texts(column)
    plain = texts.str.replace(decimal, ".", regex=False)
    hole = texts.str.lower().isin(HOLES).to_numpy()
    bad = np.flatnonzero(~hole & ~plain.str.fullmatch(NUMBER, case=False).to_numpy(dtype=bool))
    numbers = np.full(len(texts), np.nan)
    if len(bad):
        text = texts.iloc[bad[0]]
        problems.append(f"{place(int(bad[0]))}, {label}: {text!r} is not a number (leave the cell empty for a hole)")
    else:
        numbers[~hole] = plain[~hole].to_numpy(dtype=object).astype(np.float64)
    return numbers


def _pandas_reads_floats_exactly() -> bool:
    major, minor = pd.__version__.split(".")[:2]
    return (int(major), int(minor)) >= (3, 1)


def _encoding(content: bytes) -> str:
    if content.startswith(b"\xef\xbb\xbf"):
        return "utf-8-sig"
    try:
        if not content.isascii():
            content.decode("utf-8")
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def _numbered_lines(content: bytes, encoding: str, *, comments: bool) -> Iterator[tuple[int, str]]:
    """The lines that are neither blank nor a comment, numbered from 1 as an editor counts."""
    lines = io.TextIOWrapper(io.BytesIO(content), encoding=encoding, errors="replace")
    for number, line in enumerate(lines, start=1):
        if line.strip(" \r\n") and not (comments and line.startswith("#")):
            yield number, line


def _cells(lines: Sequence[str], separator: str, name: str) -> list[list[str]]:
    try:
        return list(csv.reader(lines, delimiter=separator, skipinitialspace=True))
    except csv.Error as error:
        raise InputError(f"{name} cannot be read as a table: {error}") from error


def _separator(lines: Sequence[str]) -> str:
    unquoted = [re.sub(r'"[^"]*"', "", line) for line in lines]

    def rank(separator: str) -> tuple[bool, int]:
        counts = [line.count(separator) for line in unquoted]
        return counts[0] > 0 and len(set(counts)) == 1, counts[0]

    return max(",;\t|", key=rank)


def _decimal(content: bytes, separator: str) -> str:
    if separator not in ";\t":
        return "."
    comma = re.search(rb"[;\t]\s*[+-]?\d+,\d+\s*(?=[;\t\r\n]|$)", content)
    point = re.search(rb"[;\t]\s*[+-]?\d+\.\d+\s*(?=[;\t\r\n]|$)", content)
    return "," if comma and not point else "."


def write_text(
    table: pd.DataFrame, file: Path, style: TextStyle, *, whole: frozenset[str], with_index: bool, gzipped: bool
) -> None:
    opener = gzip.open if gzipped else open
    with opener(file, "wt", encoding=style.encoding, newline="") as handle:
        _shorten_whole_numbers(table, whole, style.decimal).to_csv(
            handle,
            sep=style.separator,
            decimal=style.decimal,
            lineterminator=style.newline,
            index=with_index,
            index_label=str(table.index.name or "time") if with_index else None,
        )


def _shorten_whole_numbers(table: pd.DataFrame, whole: frozenset[str], decimal: str) -> pd.DataFrame:
    """In columns that had whole numbers only, 3.0 is written as 3 again; the filled values keep their fractions."""
    positions = [p for p, name in enumerate(table.columns) if name in whole and table.dtypes.iloc[p].kind == "f"]
    if not positions:
        return table
    columns: dict[int, Any] = {position: table.iloc[:, position] for position in range(table.shape[1])}
    for position in positions:
        texts = columns[position].astype(str).str.removesuffix(".0").str.replace(".", decimal, regex=False)
        columns[position] = texts.where(columns[position].notna(), "")
    out = pd.DataFrame(columns, index=table.index)
    out.columns = table.columns
    return out
