"""Text files: how one is written (separator, decimal mark, encoding), its cells as numbers or texts, the way back."""

from __future__ import annotations

import gzip
import io
import re
import shlex
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

from casper.errors import MOST_TEXTS, InputError, first_line, some
from casper.io.excel import SUFFIX as EXCEL
from casper.io.excel import WHOLE_LIMIT, sheet_as_text
from casper.io.heading import DATE, HOLE_TEXTS, HOLES, NUMBER, SPACES, cells_of, find_heading, find_separator

Place = Callable[[int], str]  # row of the table -> where a person finds it in the file

MOST_PROBLEMS = 10  # that are told at once
SAMPLE = 100  # lines that tell how a file is written
ROW_NUMBER_NAMES = ("", "unnamed:_0", "index", "no", "nr")  # what pandas and people call the numbers of rows
RECORD = "record"  # what loggers call them, which begin at any number


@dataclass(frozen=True)
class TextStyle:
    """How a text file is written."""

    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    newline: str = "\n"
    titles: tuple[str, ...] = ()  # lines above the header
    units: tuple[str, ...] = ()  # lines between the header and the readings


@dataclass(frozen=True)
class BadText:
    """Texts of a column of numbers that are none."""

    column: str
    texts: tuple[str, ...]  # the different ones, in the order in which they come
    rows: tuple[int, ...]  # where each of them is first
    alone: bool  # the column holds no number at all
    number: int = 0  # of the column, from 1

    @property
    def text(self) -> str:
        return self.texts[0]

    @property
    def row(self) -> int:
        return self.rows[0]

    def sentence(self, place: Place) -> str:
        """Up to three of the texts: 'x' is not a number, nor are 'y' (line 7) and 'z' (line 9)."""
        first = f"{self.text!r} is not a number"
        if self.alone or len(self.texts) == 1:
            return first
        named = [
            f"{text!r} ({place(row).rpartition(', ')[2]})"
            for text, row in zip(self.texts[1:MOST_TEXTS], self.rows[1:MOST_TEXTS], strict=True)
        ]
        rest = len(self.texts) - MOST_TEXTS
        if rest > 0:
            named.append("another text" if rest == 1 else f"{rest} other texts")
        listed = ", ".join(named[:-1]) + (" and " if len(named) > 1 else "") + named[-1]
        return f"{first}, nor {'is' if len(self.texts) == 2 else 'are'} {listed}"


@dataclass(frozen=True)
class TextFile:
    """A text file in memory: its bytes, how they are to be read, and where its header stands."""

    name: str
    content: bytes = field(repr=False)
    style: TextStyle
    header: list[str]
    header_line: int  # from 1, as an editor counts
    body_line: int  # where the readings begin at the earliest
    comments: bool

    @classmethod
    def open(cls, file: Path, *, sheet: str | None = None) -> TextFile:
        """sheet: of an Excel workbook, which is read as the text file that it would be saved as."""
        is_excel = file.name.lower().endswith(EXCEL)
        content = sheet_as_text(file, sheet) if is_excel else _content(file)
        if content.startswith((b"\xff\xfe", b"\xfe\xff")):
            content = content.decode("utf-16", errors="replace").encode()
        if b"\0" in content:
            raise InputError(f"{file.name} is not a text file")
        encoding = _encoding(content)
        # A line that starts with # is a comment, unless # also occurs in others, say in the names of sensors.
        comments = re.search(rb"(?m)^(?:\xef\xbb\xbf)?[^#\r\n\xef][^\r\n]*#", content) is None
        sample = list(islice(_numbered_lines(content, encoding, comments=comments), SAMPLE))
        if not sample:
            raise InputError(f"{file.name} is empty: it has nothing but blank lines")
        lines = [line for _, line in sample]
        separator = "," if is_excel else find_separator(lines)
        heading = find_heading(lines, separator, file.name)
        first = heading.at
        header = cells_of([lines[first]], separator, file.name)[0]
        newline = "\r\n" if b"\r\n" in content[:65536] else "\n"
        plain = tuple(line.rstrip("\r\n") for line in lines)
        titles, units = plain[:first], plain[first + 1 :][: heading.below]
        style = TextStyle(separator, _decimal(content, separator), encoding, newline, titles, units)
        names, (header_line, _), (above_body, _) = (
            [name.strip() for name in header],
            sample[first],
            sample[first + heading.below],
        )
        return cls(file.name, content, style, names, header_line, above_body + 1, comments)

    def place(self, row: int) -> str:
        """Where row `row` (from 0) below the header is found with a text editor."""
        number, _ = next(islice(self._body(), row, None))
        return f"{self.name}, line {number}"

    def counts_rows(self, position: int) -> bool:
        """Whether a column holds the row numbers that pandas writes."""
        if not is_row_number_name(self.header[position]):
            return False
        lines = [line for _, line in islice(self._body(), SAMPLE)]
        cells = [row[position] for row in cells_of(lines, self.style.separator, self.name) if len(row) > position]
        return counts_rows(cells, self.header[position])

    def rows(self) -> list[list[str]]:
        """All cells below the header as text."""
        found = cells_of([line for _, line in self._body()], self.style.separator, self.name)
        for row, cells in enumerate(found):
            if len(cells) != len(self.header):
                raise InputError(f"{self.place(row)}: {len(cells)} fields where the header has {len(self.header)}")
        return found

    def read(self, texts: Collection[int], problems: list[str]) -> tuple[pd.DataFrame, frozenset[str]]:
        """The table below the header, and the columns whose numbers are all written without a decimal mark.

        The columns at the positions `texts` stay as they are written. Elsewhere texts that are no numbers become holes
        and are told in `problems`.
        """
        width = len(self.header)
        if width == 1:
            raise InputError(
                f"{self.name}: a single column found; columns are separated by comma, semicolon, tab, | or spaces"
            )
        if re.match(DATE, self.header[0]) or re.fullmatch(NUMBER, self.header[0]):
            raise InputError(
                f"{self.name}, line {self.header_line}: expected column names, found {self.header[0]!r}; the header is "
                "missing: write a line with a name for each column above the readings"
            )
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
                    skiprows=self.body_line - 1,
                    skipinitialspace=self.style.separator != " ",
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
        bad: list[BadText] = []
        whole: set[str] = set()
        for position in numeric:
            column = raw[position]
            if pd.api.types.is_integer_dtype(column.dtype):
                whole.add(self.header[position])
            if pd.api.types.is_string_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype):
                name, number = self.header[position], position + 1
                columns[position] = parse_numbers(column, self.style.decimal, name, bad, number=number)
            elif not (pd.api.types.is_integer_dtype(column.dtype) and bool((column.abs() >= WHOLE_LIMIT).any())):
                columns[position] = column.to_numpy(dtype=np.float64, na_value=np.nan)
        found = _grouped_problems(bad, self.place)
        rest = len(found) - MOST_PROBLEMS
        problems += found[:MOST_PROBLEMS] + ([f"and {rest} more texts like these"] if rest > 0 else [])
        table = pd.DataFrame(columns)
        table.columns = pd.Index(self.header, dtype=object)
        # A separator at the end of every line makes a column without name and content.
        if not self.header[-1] and bool(table.iloc[:, -1].isna().all()):
            table = table.iloc[:, :-1]
        return table, frozenset(whole)

    def _body(self) -> Iterator[tuple[int, str]]:
        lines = _numbered_lines(self.content, self.style.encoding, comments=self.comments)
        return ((number, line) for number, line in lines if number >= self.body_line)


def _content(file: Path) -> bytes:
    try:
        content = file.read_bytes()
        return gzip.decompress(content) if file.name.lower().endswith(".gz") else content
    except PermissionError as error:
        raise InputError(f"{file} may not be read: permission denied") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{file} cannot be read: {error}") from error


def is_row_number_name(name: object) -> bool:
    return str(name).strip().lower().replace(" ", "_") in (*ROW_NUMBER_NAMES, RECORD)


def counts_rows(cells: Sequence[object], name: object) -> bool:
    """Whether the cells are 0, 1, 2, ... or 1, 2, 3, ..., or those of a logger's records, from any number on."""
    texts = [str(cell).strip() for cell in cells]
    starts = (0, 1)
    if str(name).strip().lower() == RECORD and texts and texts[0].isdecimal():
        starts = (int(texts[0]),)
    return len(texts) > 1 and any(texts == [str(start + row) for row in range(len(texts))] for start in starts)


def stripped_texts(column: pd.Series) -> pd.Series:
    return column.astype(object).where(column.notna(), "").astype(str).str.strip()


def parse_numbers(
    column: pd.Series, decimal: str, name: str, bad: list[BadText], *, number: int = 0
) -> NDArray[np.float64]:
    """Numbers from texts, exactly; texts that are none become NaN and go to `bad`."""
    texts = stripped_texts(column)
    plain = texts.str.replace(decimal, ".", regex=False)
    hole = texts.str.lower().isin(HOLES).to_numpy()
    wrong = ~hole & ~plain.str.fullmatch(NUMBER, case=False).to_numpy(dtype=bool)
    numbers = np.full(len(texts), np.nan)
    good = ~hole & ~wrong
    numbers[good] = plain[good].to_numpy(dtype=object).astype(np.float64)
    if wrong.any():
        rows = pd.Series(np.flatnonzero(wrong), index=texts[wrong].to_numpy(dtype=object))
        rows = rows[~rows.index.duplicated()]
        bad.append(BadText(name, tuple(rows.index), tuple(rows.tolist()), alone=not good.any(), number=number))
    return numbers


def _grouped_problems(bad: Sequence[BadText], place: Place) -> list[str]:
    """A sentence for each text that is no number, however many columns it stands in."""
    by_text: dict[str, list[BadText]] = {}
    for found in bad:
        by_text.setdefault(found.text, []).append(found)
    problems: list[str] = []
    for group in by_text.values():
        first = min(group, key=lambda found: found.row)
        skip = f"skip {{}} with --ignore-column {shlex.quote(first.column)} (ignore_columns=)"
        column = f"column {first.column!r}"
        if not first.column:
            skip = "give {} a name in the header and skip it with --ignore-column NAME (ignore_columns=)"
            column = f"column number {first.number}, which has no name"
        told = f"{place(first.row)}, {column}: {first.sentence(place)}"
        several = len(first.texts) > 1 or len(group) > 1
        if len(group) > 1:
            others = some([repr(found.column) for found in group])
            told += f", in {len(group)} columns ({others})"
        elif first.alone:
            told += ", nor is anything else in this column: it looks like a column of notes, " + skip.format("it")
            problems.append(told)
            continue
        leave = "leave the cells empty for holes" if several else "leave the cell empty for a hole"
        problems.append(f"{told}; {leave}, or {skip.format('a column' if len(group) > 1 else 'the column')}")
    return problems


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
    hole = "NA" if style.separator == SPACES else ""  # one space more would not be seen
    out = _shorten_whole_numbers(table, whole, style.decimal, hole)
    options: dict[str, Any] = {
        "sep": " " if style.separator == SPACES else style.separator,
        "decimal": style.decimal,
        "lineterminator": style.newline,
        "index": with_index,
        "index_label": str(table.index.name or "time") if with_index else None,
        "na_rep": hole,
    }
    with opener(file, "wt", encoding=style.encoding, newline="") as handle:
        handle.writelines(title + style.newline for title in style.titles)
        out.iloc[:0].to_csv(handle, **options)
        handle.writelines(unit + style.newline for unit in style.units)
        out.to_csv(handle, header=False, **options)


def _shorten_whole_numbers(table: pd.DataFrame, whole: frozenset[str], decimal: str, hole: str) -> pd.DataFrame:
    """In columns that had whole numbers only, 3.0 is written as 3 again; the filled values keep their fractions."""
    positions = [p for p, name in enumerate(table.columns) if name in whole and table.dtypes.iloc[p].kind == "f"]
    if not positions:
        return table
    columns: dict[int, Any] = {position: table.iloc[:, position] for position in range(table.shape[1])}
    for position in positions:
        texts = columns[position].astype(str).str.removesuffix(".0").str.replace(".", decimal, regex=False)
        columns[position] = texts.where(columns[position].notna(), hole)
    out = pd.DataFrame(columns, index=table.index)
    out.columns = table.columns
    return out
