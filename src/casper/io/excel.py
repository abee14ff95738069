"""Excel workbooks: a sheet is read as the text file that Excel would save it as, and a table written as a sheet.

So titles above the header, notes among the readings and odd stamps are dealt with where they are for text files.
"""

from __future__ import annotations

import csv
import io
from datetime import datetime, time
from pathlib import Path
from typing import Any

import pandas as pd

from casper.errors import InputError, MissingPackageError, first_line

SUFFIX = ".xlsx"
WHOLE_LIMIT = 2**53  # integers up to here are floats without loss


def sheet_as_text(file: Path, sheet: str | None) -> bytes:
    """The cells of a sheet, the first one if none is named, separated by commas; a line is a row of the sheet."""
    openpyxl = _openpyxl("reading Excel files")
    try:
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)  # what formulas came to, not the formulas
    except PermissionError as error:
        raise InputError(f"{file} may not be read: permission denied") from error
    except Exception as error:  # a damaged workbook fails in whatever part of it is read first
        raise InputError(f"{file} cannot be read, it seems damaged or of another kind: {first_line(error)}") from error
    try:
        if sheet is not None and sheet not in book.sheetnames:
            listed = ", ".join(map(repr, book.sheetnames))
            raise InputError(f"{file.name} holds the sheets {listed}: name one of them with --key NAME (key=)")
        rows = [list(row) for row in (book[sheet] if sheet else book.worksheets[0]).values]
    finally:
        book.close()
    width = max((number for row in rows for number, cell in enumerate(row, start=1) if cell is not None), default=0)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        cells = [_as_text(cell) for cell in row[:width]]
        writer.writerow(cells if any(cells) else [])  # a row without content is a blank line
    return text.getvalue().encode()


def write_sheet(table: pd.DataFrame, file: Path, *, with_index: bool) -> None:
    """Stamps with a zone, which Excel does not know, are written as texts."""
    _openpyxl("writing Excel files")
    out = table.copy(deep=False)
    if isinstance(out.index, pd.DatetimeIndex) and out.index.tz is not None:
        out.index = pd.Index(out.index.astype(str), name=out.index.name)
    for position, dtype in enumerate(out.dtypes):
        if isinstance(dtype, pd.DatetimeTZDtype):
            out.isetitem(position, out.iloc[:, position].astype(str).array)
    with pd.ExcelWriter(file, engine="openpyxl", datetime_format="yyyy-mm-dd hh:mm:ss") as writer:
        out.to_excel(writer, index=with_index, index_label=str(table.index.name or "time") if with_index else None)


def _as_text(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, datetime):
        # Excel counts days in binary fractions, which miss the second by some microseconds.
        return pd.Timestamp(cell).round("ms").isoformat(sep=" ")
    if isinstance(cell, time):
        return cell.isoformat()
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < WHOLE_LIMIT else repr(cell)
    # A line of the text is a row of the sheet, so that errors can say where they are.
    return " ".join(str(cell).split("\n"))


def _openpyxl(purpose: str) -> Any:
    try:
        import openpyxl
    except ImportError as error:
        raise MissingPackageError("openpyxl", extra="excel", purpose=purpose) from error
    return openpyxl
