"""Time stamps in files: what is clear is understood and kept as it was written, what is not is refused."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from casper.io import read_table, write_table
from table_files import problem, put


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("2024-01-31", "2024-02-01", "2024-01-31"),
        ("20240131", "20240201", "2024-01-31"),
        ("2024-01-31T13:00:00.5", "2024-02-01T00:00", "2024-01-31 13:00:00.5"),
        ("2024-01-31 5:00", "2024-01-31 6:00", "2024-01-31 05:00"),
        ("2024/1/31 05:00", "2024/2/1 05:00", "2024-01-31 05:00"),
        ("31.01.2024 05:00:30", "01.02.2024 05:00:30", "2024-01-31 05:00:30"),
        ("01.02.2024", "02.02.2024", "2024-02-01"),
        ("31/01/2024 05", "01/02/2024 05", "2024-01-31 05:00"),
        ("1/31/2024 1:00 PM", "2/1/2024 12:00 am", "2024-01-31 13:00"),
        ("31-01-2024", "01-02-2024", "2024-01-31"),
        ("1706706000", "1706709600", "2024-01-31 13:00+00:00"),
        ("1706706000000", "1706709600000", "2024-01-31 13:00+00:00"),
        ("2024-01", "2024-02", "2024-01-01"),
        ("2024/1", "2024/2", "2024-01-01"),
        ("01/2024", "02/2024", "2024-01-01"),
        ("Jan 2024", "Feb 2024", "2024-01-01"),
        ("September-2024", "October-2024", "2024-09-01"),
        ("2023", "2024", "2023-01-01"),
        ("2024013123", "2024020100", "2024-01-31 23:00"),
        ("2024013124", "2024020101", "2024-02-01 00:00"),
        ("202401312350", "202402010000", "2024-01-31 23:50"),
        ("20240131235059", "20240201000000", "2024-01-31 23:50:59"),
        ("2024013123.0", "2024020100.0", "2024-01-31 23:00"),
        ("20240131.0", "20240201.0", "2024-01-31"),
        ("1893456000", "1893459600", "2030-01-01 00:00+00:00"),
        ("1924003600", "1924007200", "2030-12-20 13:26:40+00:00"),  # read as an hour: 1924, month 0
        ("31-JAN-2024 23:00", "01-FEB-2024 00:00", "2024-01-31 23:00"),
        ("01-Feb-23", "02-Feb-23", "2023-02-01"),
        ("31 January 2024 5:00 PM", "1 February 2024 5:00 PM", "2024-01-31 17:00"),
        ("31jan1999", "01feb1999", "1999-01-31"),
        ("Jan 31 2024", "Feb 1 2024", "2024-01-31"),
        ("31/01/24 05:00", "01/02/24 05:00", "2024-01-31 05:00"),
        ("01/31/24", "02/01/24", "2024-01-31"),
        ("24/01/31", "24/02/01", "2024-01-31"),
        ("01.02.99 05:00", "02.02.99 05:00", "1999-02-01 05:00"),
        ("2024-01-31 24:00", "2024-02-01 01:00", "2024-02-01"),
        ("2024-01-31T24:00:00+01:00", "2024-02-01T01:00:00+01:00", "2024-02-01 00:00+01:00"),
        ("31.01.2024 24:00", "01.02.2024 01:00", "2024-02-01"),
        ("2024-366", "2025-001", "2024-12-31"),
        ("2024366", "2025001", "2024-12-31"),
    ],
)
def test_stamps_are_understood_and_kept_as_texts(tmp_path: Path, first: str, second: str, expected: str) -> None:
    text = f"stamp,a,b\n{first},1.5,2.5\n{second},3.5,4.5\n"
    table, form = read_table(put(tmp_path, text))
    assert table.index[0] == pd.Timestamp(expected)
    write_table(table, tmp_path / "out.csv", like=form)
    assert (tmp_path / "out.csv").read_text() == text


@pytest.mark.parametrize("clock", ["time", "Hour"])
def test_separate_date_and_time_columns_are_joined_and_kept(tmp_path: Path, clock: str) -> None:
    hours = ("5:00", "06:00") if clock == "time" else ("5", "6")
    text = f"a,Date,{clock},b\n1.5,2024-01-31,{hours[0]},2.5\n3.5,2024-01-31,{hours[1]},4.5\n"
    table, form = read_table(put(tmp_path, text))
    assert table.index.tolist() == [pd.Timestamp("2024-01-31 05:00"), pd.Timestamp("2024-01-31 06:00")]
    assert table.columns.tolist() == ["a", "b"]
    write_table(table, tmp_path / "out.csv", like=form)
    assert (tmp_path / "out.csv").read_text() == text


def test_the_time_column_is_found_by_name_by_place_or_as_told(tmp_path: Path) -> None:
    by_name, _ = read_table(put(tmp_path, "a,UTC,b\n1,2024-01-01,2\n1,2024-01-02,2\n"))
    assert by_name.columns.tolist() == ["a", "b"]
    by_place, _ = read_table(put(tmp_path, ",a,b\n2024-01-01,1,2\n2024-01-02,1,2\n"))
    assert by_place.index[0] == pd.Timestamp("2024-01-01")
    told, _ = read_table(put(tmp_path, "a,when,b\n1,2024-01-01,2\n1,2024-01-02,2\n"), time_column="when")
    assert told.columns.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "time,a,b\n01/02/2024,1,2\n02/02/2024,1,2\n",
            "readings.csv, line 2: '01/02/2024' can be read with the day or",
        ),
        ("time,a,b\n31/01/2024,1,2\n01/31/2024,1,2\n", "'31/01/2024' (readings.csv, line 2) and '01/31/2024' (read"),
        ("time,a,b\n\n2024-01-01,1,2\n2024-13-01,1,2\n", "readings.csv, line 4: '2024-13-01' is not a time stamp"),
        ("time,a,b\n2024-01-01T00:00Z,1,2\nsoonT00:00Z,1,2\n", "line 3: 'soonT00:00Z' is not a time stamp"),
        ("time,a,b\n2024-01-01,1,2\n,1,2\n", "line 3: no time stamp in column 'time'"),
        ("time,a,b\n123,1,2\n456,1,2\n", "line 2: '123' is not a time stamp"),
        ("time,a,b\n99999999999,1,2\n99999999999,1,2\n", "line 2: '99999999999' is not a time stamp"),
        (
            "row,a,b\n1,1,2\n2,1,2\n",
            "no time column found (column 'row' has '1'); name it with --time-column NAME (time_column=)",
        ),
        ("time,a,b\n31.01.2024 13:60,1,2\n31.01.2024 14:00,1,2\n", "line 2: '31.01.2024 13:60' is not a time"),
        ("time,a,b\n1/31/2024 13:00 PM,1,2\n1/31/2024 1:00 PM,1,2\n", "line 2: '1/31/2024 13:00 PM' is not a"),
        ("time,a,b\n2024010100,1,2\n2024010201,1,2\n2024013201,1,2\n", "line 4: '2024013201' is not a time stamp"),
        ("time,a,b\n2024010124,1,2\n202401012430,1,2\n2024010201,1,2\n", "line 3: '202401012430' is not a time"),
        ("time,a,b\n2024-01-01 24:30,1,2\n2024-01-02 01:30,1,2\n", "line 2: '2024-01-01 24:30' is not a time"),
        ("time,a,b\n01/02/24,1,2\n02/02/24,1,2\n", "'01/02/24' can be read with the day or the month first"),
        ("time,a,b\n01/02/03,1,2\n", "'01/02/03' can be read with the year first or last"),
        ("time,a,b\n2023-365,1,2\n2023-366,1,2\n", "line 2: '2023-365' is not a time stamp"),
        ("time,a,b\n01-Jun-2024,1,2\n01-Jux-2024,1,2\n", "line 3: '01-Jux-2024' is not a time stamp"),
        ("time,a,b\n31.02.2024,1,2\n01.03.2024,1,2\n", "line 2: '31.02.2024' is not a time stamp"),
        ("date,hour,a\n2024-01-01,24,2\n2024-01-01,25,2\n", "line 3: '2024-01-01 25:00' is not a time stamp"),
    ],
)
def test_stamps_that_cannot_be_read_are_named_with_their_line(tmp_path: Path, text: str, words: str) -> None:
    assert words in problem(put(tmp_path, text))


def test_an_hour_column_before_the_date_stays_there(tmp_path: Path) -> None:
    text = "hour,a,date,b\n5,1.5,2024-01-31,2.5\n6,3.5,2024-01-31,4.5\n"
    table, form = read_table(put(tmp_path, text))
    assert table.index[1] == pd.Timestamp("2024-01-31 06:00")
    write_table(table, tmp_path / "out.csv", like=form)
    assert (tmp_path / "out.csv").read_text() == text


@pytest.mark.parametrize(
    ("header", "first", "second", "expected"),
    [
        ("year,month", "2024,1", "2024,2", "2024-01-01"),
        ("Year,Month,Day", "2024,1,31", "2024,2,1", "2024-01-31"),
        ("day,month,year,hour", "31,1,2024,5", "31,1,2024,6", "2024-01-31 05:00"),
        ("year,month,day,hour,minute", "2024,1,31,5,30", "2024,1,31,5,45", "2024-01-31 05:30"),
        ("YEAR,MO,DY,HR", "2024,1,31,5", "2024,1,31,6", "2024-01-31 05:00"),
        ("YYYY,DOY", "2024,2", "2024,3", "2024-01-02"),
        ("year,doy,hour", "2024,366,23", "2024,366,24", "2024-12-31 23:00"),
    ],
)
def test_a_date_spread_over_columns_is_joined_and_kept(
    tmp_path: Path, header: str, first: str, second: str, expected: str
) -> None:
    text = f"{header},a,b\n{first},1.5,2.5\n{second},3.5,4.5\n"
    table, form = read_table(put(tmp_path, text))
    assert list(table.columns) == ["a", "b"]
    assert table.index[0] == pd.Timestamp(expected)
    write_table(table, tmp_path / "out.csv", like=form)
    assert (tmp_path / "out.csv").read_text() == text


def test_a_time_is_read_beside_the_days_of_a_year(tmp_path: Path) -> None:
    _, form = read_table(put(tmp_path, "year,doy,hour,a\n2024,5,22,1.5\n2024,5,23,2.5\n"))
    assert form.read_time("2024 5 23") == pd.Timestamp("2024-01-05 23:00")


def test_seconds_since_1970_stay_seconds_though_some_have_the_digits_of_a_date(tmp_path: Path) -> None:
    start = pd.Timestamp("2034-02-19 19:15")  # 2024010100 seconds
    seconds = [int(start.timestamp()) + 900 * step for step in range(40)]
    table, _ = read_table(put(tmp_path, "time,a,b\n" + "".join(f"{second},1,2\n" for second in seconds)))
    assert table.index[0] == start.tz_localize("UTC")


@pytest.mark.parametrize("form", ["%d/%m/%y %H:%M", "%y/%m/%d %H:%M", "%m/%d/%y %H:%M", "%d-%b-%y", "%b %d, %Y %H:%M"])
@pytest.mark.parametrize("freq", ["6h", "D", "MS"])
def test_the_place_of_the_year_is_clear_from_the_column(tmp_path: Path, form: str, freq: str) -> None:
    times = pd.date_range("2021-01-01", periods=120, freq=freq) + pd.Timedelta(days=14)
    rows = "".join(f'"{time.strftime(form)}",1,2\n' for time in times)
    table, _ = read_table(put(tmp_path, "time,a,b\n" + rows))
    assert list(table.index) == list(pd.to_datetime(times.strftime(form), format=form))


def test_a_long_file_may_spread_its_dates_over_columns(tmp_path: Path) -> None:
    rows = "".join(f"{sensor},2024,{month},{month + at}\n" for at, sensor in enumerate("ab") for month in (1, 2, 3))
    table, _ = read_table(put(tmp_path, "station,year,month,value\n" + rows))
    assert table["b"].tolist() == [2.0, 3.0, 4.0]
    assert table.index[2] == pd.Timestamp("2024-03-01")


def test_a_month_that_the_calendar_does_not_have_is_refused(tmp_path: Path) -> None:
    assert "'2024-13' is not a time stamp" in problem(put(tmp_path, "time,a,b\n2024-12,1,2\n2024-13,3,4\n"))


def test_four_digits_that_go_up_and_down_are_no_years(tmp_path: Path) -> None:
    assert "no time column found" in problem(put(tmp_path, "level,a,b\n2023,1,2\n2021,3,4\n2023,1,1\n"))


def test_a_column_that_counts_the_rows_is_no_sensor_beside_a_spread_date(tmp_path: Path) -> None:
    rows = "".join(f"{number},2024,{number},{number + 0.5},7\n" for number in (1, 2, 3))
    table, _ = read_table(put(tmp_path, "No,year,month,a,b\n" + rows))
    assert list(table.columns) == ["a", "b"]
    assert table.index[2] == pd.Timestamp("2024-03-01")
