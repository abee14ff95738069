"""Long files: they become wide tables and go back with their own rows and columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from casper.frame import to_frame
from casper.io import read_table, write_table
from table_files import LONG, WIDE, filled_copy, problem, put


def test_a_long_file_becomes_wide_and_goes_back_with_the_rows_it_left_out(tmp_path: Path) -> None:
    table, form = read_table(put(tmp_path, LONG))
    assert form.layout == "long"
    assert table.columns.tolist() == ["x", "007"]
    assert table.index.equals(pd.date_range("2024-01-01", periods=3, freq="h"))
    np.testing.assert_array_equal(table.to_numpy(), [[np.nan, 2.5], [1.5, np.nan], [np.nan, 3.5]])
    out = filled_copy(tmp_path / "readings.csv", tmp_path / "out.csv")
    added = "x,2024-01-01 00:00,7.5,\n007,2024-01-01 01:00,7.5,\n"
    assert out == LONG.replace(",,", ",7.5,") + added


def test_a_long_table_written_without_filling_is_the_same_file(tmp_path: Path) -> None:
    table, form = read_table(put(tmp_path, LONG))
    write_table(table, tmp_path / "out.csv", like=form)
    assert (tmp_path / "out.csv").read_text() == LONG


def test_long_files_with_offsets_and_own_column_names(tmp_path: Path) -> None:
    rows = ["2024-03-31T01:00+01:00", "2024-03-31T03:00+02:00"]
    text = "what,when,who\n" + "".join(f"{i}.5,{stamp},{who}\n" for who in "pq" for i, stamp in enumerate(rows))
    names: dict[str, Any] = {"time_column": "when", "id_column": "who", "value_column": "what"}
    table, form = read_table(put(tmp_path, text), **names)
    assert to_frame(table).observed.all()
    write_table(table, tmp_path / "out.csv", like=form)
    assert (tmp_path / "out.csv").read_text() == text


def test_a_long_parquet_file_keeps_its_types(tmp_path: Path) -> None:
    raw = pd.DataFrame(
        {
            "sensor_id": [5, 5, 7],
            "time": pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-01"]),
            "reading": np.array([1.5, np.nan, 3.5], dtype=np.float32),
            "flag": [True, False, True],
        }
    )
    raw.to_parquet(tmp_path / "r.parquet")
    table, form = read_table(tmp_path / "r.parquet")
    assert table.columns.tolist() == [5, 7]
    assert set(table.dtypes) == {np.dtype(np.float32)}
    write_table(table.fillna(9), tmp_path / "out.parquet", like=form)
    out = pd.read_parquet(tmp_path / "out.parquet")
    assert out["reading"].tolist() == [1.5, 9, 3.5, 9]
    assert out["sensor_id"].tolist() == [5, 5, 7, 7]
    assert out["time"].dtype == raw["time"].dtype
    assert out["flag"].tolist()[:3] == [True, False, True]


def test_an_indexed_long_table_is_understood(tmp_path: Path) -> None:
    raw = pd.DataFrame({"time": pd.to_datetime(["2024-01-01", "2024-01-02"]), "id": ["a", "b"], "value": ["1", "2"]})
    raw.set_index("time").to_parquet(tmp_path / "r.parquet")
    assert read_table(tmp_path / "r.parquet")[0].loc["2024-01-02", "b"] == 2


def test_a_long_csv_becomes_a_long_parquet_with_real_times(tmp_path: Path) -> None:
    table, form = read_table(put(tmp_path, "date,hour,station,value\n2024-01-01,5,x,1.5\n2024-01-01,6,y,2.5\n"))
    write_table(table.fillna(0), tmp_path / "out.parquet", like=form)
    out = pd.read_parquet(tmp_path / "out.parquet")
    assert out.columns.tolist() == ["time", "station", "value"]
    assert out["time"].iloc[1] == pd.Timestamp("2024-01-01 06:00")


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (LONG + "x,2024-01-01 01:00,9,mm\n", {}, "line 6: sensor 'x' has a second reading at 2024-01-01 01:00:00 (the"),
        (LONG + " ,2024-01-01 05:00,9,mm\n", {}, "line 6: no sensor id"),
        (
            LONG + "x,2024-01-01 05:00,wet,mm\n",
            {},
            "line 6, column 'value': 'wet' is not a number; leave the cell empty for a hole, or",
        ),
        (
            WIDE,
            {"layout": "long"},
            "no id column found for the long layout; name it with --id-column NAME (id_column=)",
        ),
        (
            WIDE.replace("a,b", "a,b,c").replace("\n2", ",1\n2"),
            {"id_column": "a"},
            "no value column found for the long layout",
        ),
        ("id,value\na,1\n", {"layout": "long"}, "no time column found for the long layout"),
        (LONG, {"value_column": "rain"}, "no column 'rain'; its columns are 'station', 'time', 'value', 'unit'"),
    ],
)
def test_mistakes_in_long_files_are_named(tmp_path: Path, text: str, options: dict[str, Any], words: str) -> None:
    assert words in problem(put(tmp_path, text), **options)


def test_a_text_in_the_readings_of_a_long_parquet_is_named_by_row(tmp_path: Path) -> None:
    raw = pd.DataFrame({"time": pd.to_datetime(["2024-01-01", "2024-01-02"]), "id": ["a", "b"], "value": ["1", "wet"]})
    raw.to_parquet(tmp_path / "r.parquet")
    assert "r.parquet, row 2, column 'value': 'wet'" in problem(tmp_path / "r.parquet")


def test_long_files_with_several_offsets_become_parquet_in_utc(tmp_path: Path) -> None:
    text = "id,time,value\nx,2024-03-31T01:00+01:00,1\nx,2024-03-31T03:00+02:00,2\n"
    table, form = read_table(put(tmp_path, text))
    write_table(table, tmp_path / "out.parquet", like=form)
    out = pd.read_parquet(tmp_path / "out.parquet")
    assert out["time"].tolist() == [pd.Timestamp("2024-03-31 00:00Z"), pd.Timestamp("2024-03-31 01:00Z")]


def test_layout_wide_keeps_a_file_with_telling_names_wide(tmp_path: Path) -> None:
    text = "time,id,value\n2024-01-01,1,2\n2024-01-02,1,2\n"
    assert read_table(put(tmp_path, text), layout="wide")[0].columns.tolist() == ["id", "value"]


def test_a_long_file_whose_readings_have_a_name_of_their_own_is_long(tmp_path: Path) -> None:
    text = "Station,Timestamp,PM10\nx,2024-01-01,1.5\nx,2024-01-02,2.5\ny,2024-01-01,3.5\n"
    table, form = read_table(put(tmp_path, text))
    assert form.layout == "long"
    assert table.columns.tolist() == ["x", "y"]
    noted = "".join(f"{line},{note}\n" for line, note in zip(text.splitlines(), ("note", "a", "b", "c"), strict=True))
    assert read_table(put(tmp_path, noted), ignore_columns=["note"])[0].columns.tolist() == ["x", "y"]
    numbered = "".join(f"{number},{line}\n" for number, line in zip(("", 0, 1, 2), text.splitlines(), strict=True))
    assert read_table(put(tmp_path, numbered))[0].columns.tolist() == ["x", "y"]


SEVERAL = "station;time;kind;pm10;no2\nx;2024-01-01;city;1,5;2\ny;2024-01-01;farm;2,5;\n"


def test_a_long_file_with_several_kinds_of_readings_asks_for_one(tmp_path: Path) -> None:
    words = "looks like a long table (a column 'station', and 2024-01-01 00:00:00 more than once): pass --layout long"
    told = problem(put(tmp_path, SEVERAL))
    assert words in told
    assert told.endswith("--value-column NAME (layout='long', value_column=) with one of 'pm10', 'no2'")
    assert read_table(tmp_path / "readings.csv", value_column="no2")[0].loc["2024-01-01", "x"] == 2
    raw = pd.DataFrame(
        {"id": ["x", "y"], "pm10": [1.5, 2], "no2": [1.5, 2], "time": pd.to_datetime(["2024-01-01"] * 2)}
    )
    raw.to_parquet(tmp_path / "r.parquet")
    assert problem(tmp_path / "r.parquet").endswith("with one of 'pm10', 'no2'")
    raw.set_index("time").to_parquet(tmp_path / "i.parquet")
    assert problem(tmp_path / "i.parquet").endswith("with one of 'pm10', 'no2'")


def test_a_wide_file_with_a_sensor_called_id_stays_wide(tmp_path: Path) -> None:
    text = "time,id,a,b\n2024-01-01,1,2,3\n2024-01-02,1,2,3\n"
    assert read_table(put(tmp_path, text))[0].columns.tolist() == ["id", "a", "b"]
    assert "no rows below its header" in problem(put(tmp_path, "time,id,a,b\n"))


@pytest.mark.parametrize(
    ("kept", "added", "place"),
    [
        (("a1", "a2", "a3", "b1", "b3"), "b2", 4),  # by sensor, then time
        (("b1", "b3", "a1", "a2", "a3"), "b2", 1),  # the sensors as they come
        (("a1", "b1", "b2", "a3", "b3"), "a2", 2),  # by time, then sensor
        (("b1", "a2", "b2", "a3", "b3"), "a1", 0),  # the same, the first sensor missing at the first time
        (("a1", "b1", "b2", "b3", "a3"), "a2", 3),  # by time, the sensors in any order
        (("a3", "a2", "a1", "b3", "b1"), "b2", 5),  # in no order known
    ],
)
def test_rows_that_a_long_file_left_out_go_where_they_belong(
    tmp_path: Path, kept: tuple[str, ...], added: str, place: int
) -> None:
    def line(row: str) -> str:
        return f"{row[0]},2024-01-0{row[1]},7.5\n"

    text = "id,time,value\n" + "".join(map(line, kept))
    rows = [*kept[:place], added, *kept[place:]]
    assert filled_copy(put(tmp_path, text), tmp_path / "out.csv") == "id,time,value\n" + "".join(map(line, rows))


def test_sensors_that_are_numbers_are_sorted_as_such(tmp_path: Path) -> None:
    text = "id,time,value\n10,2024-01-01,7.5\n9,2024-01-02,7.5\n10,2024-01-02,7.5\n"
    expected = text.replace("10,2024-01-01", "9,2024-01-01,7.5\n10,2024-01-01")
    assert filled_copy(put(tmp_path, text), tmp_path / "out.csv") == expected


@pytest.mark.parametrize(("first", "kept"), [("5", [5, 7]), ("05", ["05", "7"])])
def test_ids_that_are_whole_numbers_stay_so_on_the_way_to_parquet(tmp_path: Path, first: str, kept: list[Any]) -> None:
    text = f"id,time,value,note\n{first},2024-01-01,1.5,1\n7,2024-01-02,2.5,2\n"
    table, form = read_table(put(tmp_path, text))
    write_table(table.fillna(0), tmp_path / "out.parquet", like=form)
    out = pd.read_parquet(tmp_path / "out.parquet")
    assert out["id"].unique().tolist() == kept
    assert out["value"].tolist() == [1.5, 0, 0, 2.5]


def test_a_copy_of_a_row_of_a_long_file_is_used_once_and_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = LONG + "x,2024-01-01 01:00,1.5,mm\nx,2024-01-01 02:00,,mm\n"
    with caplog.at_level("INFO", logger="casper"):
        table, _ = read_table(put(tmp_path, text))
    assert table["x"].fillna(-1).tolist() == [-1, 1.5, -1]
    assert "readings.csv, line 6: this row repeats the sensor, time and reading of an earlier one, " in caplog.text
    assert "as do 2 of 6 rows (33%); each is used once." in caplog.text
    assert caplog.records[-1].levelname == "WARNING"
    out = filled_copy(put(tmp_path, text), tmp_path / "out.csv").splitlines()
    assert out.count("x,2024-01-01 01:00,1.5,mm") == 2
    assert out.count("x,2024-01-01 02:00,7.5,mm") == 2


def test_only_a_second_reading_in_an_hour_that_clocks_repeat_is_told_of_clocks(tmp_path: Path) -> None:
    ordinary = LONG + "x,2024-01-01 01:00,9,mm\n"
    assert "(the first: readings.csv, line 2); keep one" in problem(put(tmp_path, ordinary))
    assert "clocks" not in problem(put(tmp_path, ordinary))
    autumn = ordinary.replace("2024-01-01", "2024-10-27")
    assert "keep one, or write the stamps with their offset if it is the hour that" in problem(put(tmp_path, autumn))


# --- times as the file writes them ---

EUROPEAN = "Zeit;a;b\n05.03.2024 11:00;1,5;2\n05.03.2024 12:00;;2\n05.03.2024 13:00;3,5;2\n"


@pytest.mark.parametrize(
    ("text", "time", "expected"),
    [
        (EUROPEAN, "05.03.2024 12:00", "2024-03-05 12:00"),
        (EUROPEAN, " 05.03.2024 12:00 ", "2024-03-05 12:00"),
        ("time,a,b\n03/05/2024 11:00,1,2\n03/25/2024 11:00,1,2\n", "03/05/2024 11:00", "2024-03-05 11:00"),
        ("time,a,b\n05/03/2024 11:00,1,2\n25/03/2024 11:00,1,2\n", "05/03/2024 11:00", "2024-03-05 11:00"),
        ("date,hour,a,b\n05.03.2024,5,1,2\n05.03.2024,6,1,2\n", "05.03.2024 6", "2024-03-05 06:00"),
        ("time,a,b\n1709640000,1,2\n1709643600,1,2\n", "1709643600", "2024-03-05 13:00+00:00"),
        ("id,time,value\nx,05.03.2024 11:00,1\ny,05.03.2024 12:00,1\n", "05.03.2024 12:00", "2024-03-05 12:00"),
    ],
)
def test_a_time_is_read_as_the_file_writes_its_own(tmp_path: Path, text: str, time: str, expected: str) -> None:
    _, form = read_table(put(tmp_path, text))
    assert form.read_time(time) == pd.Timestamp(expected)


@pytest.mark.parametrize("time", ["2024-03-05 12:00", "soon", "01/02/2024 11:00", ""])
def test_a_time_in_another_form_is_left_to_the_frame(tmp_path: Path, time: str) -> None:
    _, form = read_table(put(tmp_path, WIDE))
    assert form.read_time(time) == time


def test_the_times_of_rows_are_given_as_they_stand_in_the_file(tmp_path: Path) -> None:
    _, form = read_table(put(tmp_path, EUROPEAN))
    assert form.stamp_texts(np.array([1, 1])).tolist() == ["05.03.2024 12:00"] * 2
    _, form = read_table(put(tmp_path, LONG))
    assert form.stamp_texts(np.array([0, 2])).tolist() == ["2024-01-01 00:00", "2024-01-01 02:00"]
    _, form = read_table(put(tmp_path, "date,hour,a,b\n05.03.2024,5,1,2\n05.03.2024,6,1,2\n"))
    assert form.stamp_texts(np.array([1])).tolist() == ["05.03.2024 6"]
