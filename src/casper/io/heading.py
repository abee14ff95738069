"""How a text file is laid out: what separates its cells, and where the names of its columns stand among its lines.

Loggers and authorities write more than a table: lines about the station above the names, units below them.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from casper.errors import InputError

_FAILED_FORMULAS = ("#div/0!", "#value!", "#ref!", "#name?", "#num!", "#null!")  # as Excel writes them
_MARKS = ("-", "--", "---", "*", "**", "***", "/", "//", "///", "////")
_WORDS = ("na", "nan", "null", "none", "n/a", "#n/a", "#n/v", "<na>", "k.a.", "missing", "nd", "n.d.", "m", "mm")
HOLES = ("", *_WORDS, *_MARKS, *_FAILED_FORMULAS)
HOLE_TEXTS = sorted({form for hole in HOLES for form in (hole, hole.upper(), hole.title())} | {"NaN", "k.A."})
NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:inf|infinity)"
ISO = r"\d{4}-?\d\d-?\d\d(?:$|[T ])"
_MONTH = r"(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
DATE = (
    r"\s*(?:\d{4}-?\d\d-?\d\d|\d{1,4}[./-]\d{1,2}[./-]\d{1,4}|\d{4}-\d{2,3}"
    rf"|\d{{1,2}}[-/. ]*{_MONTH}[-/, ]*(?:\d{{4}}|\d\d)|{_MONTH}[- ]+(?:\d{{1,2}}[, -]\s*)?\d{{4}})(?:$|[T ,])"
)
SPACES = r"\s+"  # as a separator: any number of them; a single one stands between empty cells, too
_TIME_NAME = (
    r"(?:date|time|datetime|time_?stamp|datum|zeit|zeitpunkt|zeitstempel|uhrzeit|messzeit|fecha|hora|heure|horodate"
    r"|tijd|dato|data)(?:[ _/-]*(?:date|time|zeit|hora|heure|utc|gmt|local))*\s*(?:[\[(].*[\])])?"
)
_UNIT = r"[\[(].*[\])]|%|°\w?|deg\w*|mm|cm|km|hpa|kpa|mbar|ppm|ppb|.{1,6}/(?:m|km|s|h|l|d|cm)[23²³]?|w/?m[2²]|k?wh?"


@dataclass(frozen=True)
class Heading:
    """Which of the lines of a file is its header."""

    at: int  # from 0
    below: int = 0  # lines right below it, of units or types, before the readings begin


def cells_of(lines: Sequence[str], separator: str, name: str) -> list[list[str]]:
    delimiter = separator
    if separator == SPACES:
        lines, delimiter = [line.strip().replace("\t", " ") for line in lines], " "
    try:
        return list(csv.reader(lines, delimiter=delimiter, skipinitialspace=separator != " "))
    except csv.Error as error:
        raise InputError(f"{name} cannot be read as a table: {error}") from error


def find_separator(lines: Sequence[str]) -> str:
    def rank(separator: str) -> tuple[bool, int, bool, int]:
        counts, usual = _counts(lines, separator)
        # Decimal commas stand in the rows, a separator in the header too.
        above = next(number for number, count in enumerate(counts) if count >= usual)
        return usual > 0, -above, len(set(counts[above:])) == 1, usual

    best = max(",;\t|", key=rank)
    if rank(best)[0]:
        return best
    by_spaces = (separator for separator in (SPACES, " ") for found, _, even, _ in [rank(separator)] if found and even)
    return next(by_spaces, best)


def find_heading(lines: Sequence[str], separator: str, name: str) -> Heading:
    """The header is the last line of names above the readings; lines about the table may stand above and below it."""
    counts, usual = _counts(lines, separator)
    rows = [[cell.strip() for cell in cells_of([line], separator, name)[0]] for line in lines]
    dated = [count for count, row in zip(counts, rows, strict=True) if re.match(DATE, row[0])]
    if dated:  # below more lines about the table than lines of it
        usual = Counter(dated).most_common(1)[0][0]
    # Titles have fewer separators or a single filled cell.
    full = [at for at, row in enumerate(rows) if counts[at] >= usual and not (usual >= 2 and sum(map(bool, row)) <= 1)]
    # A line about the table may have a date as well, but not where most lines have theirs.
    stamped = {at: _stamp_position(rows[at]) for at in full if counts[at] == usual}
    usual_stamp = Counter(position for position in stamped.values() if position is not None).most_common(1)
    reading = next((at for at, position in stamped.items() if usual_stamp and position == usual_stamp[0][0]), None)
    above = full[:1] if reading is None else [at for at in full if at < reading]
    above = [at for at in above if counts[at] == usual] or above
    if not above or (reading is None and _stamp_position(rows[above[0]]) is not None):
        return Heading(0)  # readings right below: the short line was the header after all, with a name too few
    at = _names_among(rows, above)
    between = [] if reading is None else range(at + 1, reading)
    no_readings = all(counts[line] == usual and not any(map(_is_value, rows[line])) for line in between)
    return Heading(at, len(between) if no_readings else 0)


def _names_among(rows: Sequence[Sequence[str]], lines: Sequence[int]) -> int:
    """Which of the lines above the readings, all as wide as these, has the names of the columns."""
    names = [at for at in lines if _may_be_names(rows[at])]
    with_time = [at for at in names or lines if any(re.fullmatch(_TIME_NAME, cell, re.IGNORECASE) for cell in rows[at])]
    if with_time:
        return with_time[-1]
    return next((at for at in names if rows[at][0]), (names or lines)[0])


def _may_be_names(row: Sequence[str]) -> bool:
    """No two names of columns are the same, and few of them are numbers; units and the like are told from them."""
    filled = [cell for cell in row if cell]
    numbers = sum(_is_value(cell) for cell in filled)
    units = sum(re.fullmatch(_UNIT, cell, re.IGNORECASE) is not None for cell in filled)
    return len(set(filled)) == len(filled) >= len(row) - 1 and max(numbers, units) * 2 < len(filled)


def _stamp_position(row: Sequence[str]) -> int | None:
    """Where a row of readings has its time, a date or else a number in front."""
    in_front = 0 if re.fullmatch(NUMBER, row[0]) else None
    return next((at for at, cell in enumerate(row) if re.match(DATE, cell)), in_front)


def _is_value(cell: str) -> bool:
    return re.match(DATE, cell) is not None or re.fullmatch(NUMBER, cell.replace(",", ".")) is not None


def _counts(lines: Sequence[str], separator: str) -> tuple[list[int], int]:
    """How many separators the lines have, and how many most of them have."""
    plain = [re.sub(r'"[^"]*"', '""', line) for line in lines]
    counts = [len(line.split()) - 1 if separator == SPACES else line.count(separator) for line in plain]
    return counts, Counter(counts).most_common(1)[0][0]
