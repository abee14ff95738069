"""Where the names of the columns stand among what loggers and authorities write around a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from casper.io import read_sensors, read_table, write_table
from table_files import problem, put

GKD = """Quelle:;"Landesamt, www.example.de"
Datenbankabfrage:;"06.12.2025 00:01"
Gewässer:;Isar
Ostwert:;693161;Nordwert:;5335716;"ETRS89 / UTM Zone 32N"
Pegelnullpunktshöhe:;"500,33 m NHN"

Datum;"Wasserstand [cm]";Abfluss
"2025-01-01 00:00";96,5;1
"2025-01-01 00:15";96,25;2
"2025-01-01 00:30";96,25;3
"""
TOA5 = """"TOA5","CR1000","CR1000","1234"
"TIMESTAMP","RECORD","a","b"
"TS","RN","degC","degC"
"","","Avg","Avg"
"2024-01-01 00:00:00",517,9.5,10.25
"2024-01-01 01:00:00",518,"NAN",11.25
"""
RDB = """# U.S. Geological Survey
#   see https://waterdata.usgs.gov/#data for more
agency_cd\tsite_no\tdatetime\ttz_cd\tflow\tflow_cd
5s\t15s\t20d\t6s\t14n\t10s
USGS\t01\t2024-01-01 00:00\tEST\t1.5\tA
USGS\t02\t2024-01-01 00:00\tEST\t2.5\tA
USGS\t01\t2024-01-01 01:00\tEST\t3.5\tA
USGS\t02\t2024-01-01 01:00\tEST\t4.5\tA
"""


def test_lines_about_the_station_may_be_wider_than_the_table(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="casper"):
        table, form = read_table(put(tmp_path, GKD))
    assert table.columns.tolist() == ["Wasserstand [cm]", "Abfluss"]
    assert table["Wasserstand [cm]"].tolist() == [96.5, 96.25, 96.25]
    assert "skipped 5 lines above the header" in caplog.text
    write_table(table, tmp_path / "out.csv", like=form)
    assert (tmp_path / "out.csv").read_text().splitlines()[:5] == GKD.splitlines()[:5]
    one = "".join(line.rpartition(";")[0] + "\n" if line.count(";") == 2 else line + "\n" for line in GKD.splitlines())
    assert read_table(put(tmp_path, one))[0].columns.tolist() == ["Wasserstand [cm]"], "lines as wide as the table"


def test_a_logger_file_has_its_names_between_lines_of_other_things(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="casper"):
        table, form = read_table(put(tmp_path, TOA5, "logger.dat"))
    assert table.columns.tolist() == ["a", "b"]
    assert table["a"].fillna(-1).tolist() == [9.5, -1]
    assert 'skipped 2 lines below the header, such as \'"TS",' in caplog.text
    assert "the column 'RECORD' counts the rows" in caplog.text
    write_table(table, tmp_path / "out.dat", like=form)
    assert (tmp_path / "out.dat").read_text() == "\n".join(
        [
            '"TOA5","CR1000","CR1000","1234"',
            "TIMESTAMP,RECORD,a,b",
            '"TS","RN","degC","degC"',
            '"","","Avg","Avg"',
            "2024-01-01 00:00:00,517,9.5,10.25",
            "2024-01-01 01:00:00,518,,11.25",
            "",
        ]
    )
    assert "line 6, column 'b': 'x' is not a number" in problem(put(tmp_path, TOA5.replace("11.25", "x")))


def test_a_file_of_the_usgs_is_read_without_its_comments_and_types(tmp_path: Path) -> None:
    table, _ = read_table(put(tmp_path, RDB))
    assert table["02"].tolist() == [2.5, 4.5]


@pytest.mark.parametrize("units", [",degC,mm", "[UTC],[degC],[mm]", "UTC,°C,%", "yyyy-mm-dd,mm,m3/s"])
@pytest.mark.parametrize("time", ["time", "", "Messung"])
def test_a_line_of_units_below_the_header_is_skipped_and_comes_back(tmp_path: Path, units: str, time: str) -> None:
    text = f"{time},a,b\n{units}\n2024-01-01,1.5,2.5\n2024-01-02,3.5,4.5\n"
    table, form = read_table(put(tmp_path, text))
    assert table.columns.tolist() == ["a", "b"]
    assert table["a"].tolist() == [1.5, 3.5]
    write_table(table, tmp_path / "out.csv", like=form)
    assert (tmp_path / "out.csv").read_text() == text


@pytest.mark.parametrize("row", ["soon,3,2", "soon,,2", "2024-01-01,wet,dry"])
def test_a_bad_row_below_the_header_is_told_and_not_taken_for_units(tmp_path: Path, row: str) -> None:
    assert "line 2" in problem(put(tmp_path, f"when,a,b\n{row}\n2024-01-02,1,2\n2024-01-03,1,2\n"))


def test_numbers_may_be_names_of_sensors(tmp_path: Path) -> None:
    table, _ = read_table(put(tmp_path, "Air quality,,\n,101,102\n2024-01-01,1,2\n2024-01-02,3,4\n"))
    assert table.columns.tolist() == ["101", "102"]


def test_rows_without_a_date_are_rows_all_the_same(tmp_path: Path) -> None:
    text = "id,name,since,latitude,longitude\nx,Time Square,,1.5,2.5\ny,Date Farm,,2.5,3.5\nz,,2024-01-01,4.5,5.5\n"
    assert read_sensors(put(tmp_path, text)).index.tolist() == ["x", "y", "z"]


def test_a_title_with_a_date_is_no_row_of_the_table(tmp_path: Path) -> None:
    text = "state,2024-05-01\nDate (UTC),a\n2024-01-01,1\n2024-01-02,3\n2024-01-03,5\n"
    assert read_table(put(tmp_path, text))[0]["a"].tolist() == [1, 3, 5]
