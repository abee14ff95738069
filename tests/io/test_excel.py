"""Excel workbooks are read like the text files that they would be saved as, and written with real times and numbers."""

from __future__ import annotations

from datetime import datetime, time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from casper.errors import InputError
from casper.frame import to_frame
from casper.io import read_matrix, read_sensors, read_table, write_table

openpyxl = pytest.importorskip("openpyxl", reason="the optional package openpyxl is not installed")


def workbook(file: Path, sheets: dict[str, list[list[Any]]]) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(file)
    return file


def hour(number: int) -> datetime:
    return datetime(2024, 3, 1, number)


READINGS = [["when", "a", "b"], [hour(0), 1.5, 2], [hour(1), None, 3], [hour(2), "n/a", "#DIV/0!"], [hour(3), 4.25, 5]]


def test_a_sheet_is_a_table(tmp_path: Path) -> None:
    table, _ = read_table(workbook(tmp_path / "readings.xlsx", {"Readings": READINGS, "Notes": [["nothing"]]}))
    assert table.index.tolist() == [pd.Timestamp(hour(number)) for number in range(4)]
    np.testing.assert_array_equal(table.to_numpy(), [[1.5, 2], [np.nan, 3], [np.nan, np.nan], [4.25, 5]])


def test_another_sheet_is_named(tmp_path: Path) -> None:
    file = workbook(tmp_path / "readings.xlsx", {"Notes": [["nothing"]], "Readings": READINGS})
    assert read_table(file, key="Readings")[0].shape == (4, 2)
    with pytest.raises(InputError, match="holds the sheets 'Notes', 'Readings': name one of them with --key"):
        read_table(file, key="readings 2024")


def test_titles_and_empty_rows_and_columns_are_passed_over_and_errors_say_where_they_are(tmp_path: Path) -> None:
    rows = [["Station report", None, None, None], [], *([*row, None] for row in READINGS)]
    table, _ = read_table(workbook(tmp_path / "titled.xlsx", {"S": rows}))
    assert list(table.columns) == ["a", "b"]
    rows[4][2] = "broken"
    with pytest.raises(InputError, match=r"titled.xlsx, line 5, column 'b': 'broken' is not a number"):
        read_table(workbook(tmp_path / "titled.xlsx", {"S": rows}))


def test_a_date_and_a_time_column_are_joined(tmp_path: Path) -> None:
    rows = [["date", "time", "a", "b"], *([datetime(2024, 3, 1), time(number), 1.0, 2.0] for number in (5, 6, 7))]
    table, _ = read_table(workbook(tmp_path / "readings.xlsx", {"S": rows}))
    assert table.index[0] == pd.Timestamp("2024-03-01 05:00")


def test_times_that_excel_keeps_as_fractions_of_a_day_are_even(tmp_path: Path) -> None:
    rows = [["time", "a", "b"], *([45352 + number / 144, number, 1] for number in range(500))]
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for cell in book.active["A"][1:]:
        cell.number_format = "yyyy-mm-dd hh:mm"
    book.save(tmp_path / "readings.xlsx")
    frame = to_frame(read_table(tmp_path / "readings.xlsx")[0])
    assert frame.step == pd.Timedelta("10min")
    assert len(frame.times) == 500


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    table, form = read_table(workbook(tmp_path / "readings.xlsx", {"S": READINGS}))
    filled = table.fillna(7.125)
    write_table(filled, tmp_path / "filled.xlsx", like=form)
    again, _ = read_table(tmp_path / "filled.xlsx")
    pd.testing.assert_frame_equal(again, filled, check_freq=False)
    assert isinstance(openpyxl.load_workbook(tmp_path / "filled.xlsx").active["A2"].value, datetime), "no text"
    write_table(filled, tmp_path / "filled.csv", like=form)
    assert (tmp_path / "filled.csv").read_text().splitlines()[0] == "when,a,b"


def test_a_csv_may_become_a_workbook_and_zones_become_texts(tmp_path: Path) -> None:
    (tmp_path / "readings.csv").write_text("time,a,b\n2024-03-01T00:00+01:00,1,2\n2024-03-01T01:00+01:00,3,4\n")
    table, form = read_table(tmp_path / "readings.csv")
    write_table(table, tmp_path / "out.xlsx", like=form)
    again, _ = read_table(tmp_path / "out.xlsx")
    assert again.index.tolist() == table.index.tolist()


def test_sensors_and_distances_may_be_sheets(tmp_path: Path) -> None:
    places = [["id", "latitude", "longitude"], [1001, 48.5, 9.25], [1002, 48.75, 9.5]]
    assert read_sensors(workbook(tmp_path / "sensors.xlsx", {"S": places})).index.tolist() == ["1001", "1002"]
    matrix = [[None, "a", "b"], ["a", 0, 2.5], ["b", 3.5, 0]]
    read = read_matrix(workbook(tmp_path / "distances.xlsx", {"S": matrix}), sensors=["b", "a"])
    np.testing.assert_array_equal(read, [[0, 3.5], [2.5, 0]])


def test_what_only_looks_like_a_workbook_is_refused(tmp_path: Path) -> None:
    (tmp_path / "readings.xlsx").write_text("time,a,b\n")
    with pytest.raises(InputError, match="cannot be read, it seems damaged or of another kind"):
        read_table(tmp_path / "readings.xlsx")
