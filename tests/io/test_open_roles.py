"""Files whose column names leave open what is what: the readings tell, and what was chosen is said."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from casper.io import read_table, write_table
from table_files import problem, put

DAYS = [f"2024-01-{day:02}" for day in range(1, 15)]


def long_file(header: str, row: str) -> str:
    """A row for each day and station; {n} counts the stations, {d} the days."""
    return header + "".join(row.format(day=day, n=n, d=d) for d, day in enumerate(DAYS) for n in range(3))


def test_of_two_columns_that_name_the_same_sensors_the_id_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = long_file("date,station,id,count\n", "{day},Town {n},T{n},{d}.5\n")
    with caplog.at_level("INFO", logger="casper"):
        table, form = read_table(put(tmp_path, text))
    assert table.columns.tolist() == ["T0", "T1", "T2"]
    assert table["T2"].tolist() == [d + 0.5 for d in range(14)]
    assert "the columns 'station' and 'id' name the same sensors; 'id' is used" in caplog.text
    assert "with the sensors in column 'id' and the readings in 'count'" in caplog.text
    write_table(table, tmp_path / "out.csv", like=form)
    assert (tmp_path / "out.csv").read_text() == text
    assert read_table(put(tmp_path, text), id_column="station")[0].columns.tolist() == ["Town 0", "Town 1", "Town 2"]
    assert read_table(put(tmp_path, text), value_column="count")[0].columns.tolist() == ["T0", "T1", "T2"]
    assert read_table(put(tmp_path, text), layout="long")[0].columns.tolist() == ["T0", "T1", "T2"]


def test_a_name_that_changes_within_a_series_does_not_tear_it_apart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "".join(
        f"{day},Town {n},Town {n}_{d % 7},{d}.5\n" for d, day in enumerate(DAYS) for n in range(3)
    )  # by weekday
    with caplog.at_level("INFO", logger="casper"):
        table, _ = read_table(put(tmp_path, "date,station,id,count\n" + text))
    assert table.notna().all().all()
    assert table.shape == (14, 3)
    assert "'station' is used, which has the fewest names (3, not 21)" in caplog.text


def test_the_column_that_tells_the_rows_of_a_time_apart_is_the_id(tmp_path: Path) -> None:
    text = long_file("date,site,sensor,value\n", "{day},North,T{n},{d}.5\n")
    assert read_table(put(tmp_path, text))[0].columns.tolist() == ["T0", "T1", "T2"]


def test_ids_that_do_not_tell_the_sensors_apart_are_refused(tmp_path: Path) -> None:
    rows = "".join(f"{day},N{n},{kind},1.5\n" for day in DAYS for n in range(2) for kind in ("a", "b"))
    told = problem(put(tmp_path, "date,site,sensor,value\n" + rows))
    assert "none of the columns 'site' and 'sensor' alone tells the sensors apart; name the one" in told
    rows = "".join(f"{day},N{n},S{(n + d) % 3},1.5\n" for d, day in enumerate(DAYS) for n in range(3))
    told = problem(put(tmp_path, "date,site,sensor,value\n" + rows))
    assert "the columns 'site' and 'sensor' tell the sensors apart in different ways" in told


def test_copies_of_rows_do_not_hide_the_id(tmp_path: Path) -> None:
    text = long_file("date,station,id,count\n", "{day},Town {n},T{n},{d}.5\n" * 2)
    assert read_table(put(tmp_path, text))[0].columns.tolist() == ["T0", "T1", "T2"]


def test_the_only_column_of_numbers_has_the_readings(tmp_path: Path) -> None:
    text = long_file("Timestamp,Day,Hour,Sensor ID,Place,Counts\n", "{day},Monday,{d},{n},Town {n},{d}.5\n")
    table, _ = read_table(put(tmp_path, text))
    assert table["1"].tolist() == [d + 0.5 for d in range(14)]
    assert read_table(put(tmp_path, text), id_column="Place")[0].columns.tolist() == ["Town 0", "Town 1", "Town 2"]
    named = text.replace("Sensor ID", "which")
    assert read_table(put(tmp_path, named), id_column="which")[0].shape == (14, 3)
    more = text.replace("Place", "Rain").replace("Town ", "")
    told = problem(put(tmp_path, more), id_column="Sensor ID")
    assert told.endswith("no value column found for the long layout; name it with --value-column NAME (value_column=), "
                         "one of 'Rain', 'Counts'")  # fmt: skip


def test_a_long_parquet_with_two_ids_is_read_with_or_without_its_times_in_the_index(tmp_path: Path) -> None:
    rows = [(pd.Timestamp(day), f"Town {n}", n, float(d)) for d, day in enumerate(DAYS) for n in range(3)]
    raw = pd.DataFrame(rows, columns=["time", "station", "id", "count"])
    raw.to_parquet(tmp_path / "r.parquet")
    assert read_table(tmp_path / "r.parquet")[0].columns.tolist() == [0, 1, 2]
    raw.set_index("time").rename_axis(None).to_parquet(tmp_path / "i.parquet")
    table, _ = read_table(tmp_path / "i.parquet")
    assert table.columns.tolist() == [0, 1, 2]
    assert table.index.tolist() == [pd.Timestamp(day) for day in DAYS]


def test_a_long_file_of_one_sensor_is_long(tmp_path: Path) -> None:
    rows = "".join(f"USGS\t01646500\t{day}\tEST\t{d}.5\tA\n" for d, day in enumerate(DAYS))
    table, _ = read_table(put(tmp_path, "agency_cd\tsite_no\tdatetime\ttz_cd\t12_00060\t12_00060_cd\n" + rows))
    assert table["01646500"].tolist() == [d + 0.5 for d in range(14)]


@pytest.mark.parametrize("options", [{}, {"time_column": "2024-01-02 00:00"}])
def test_times_along_the_header_are_pointed_at(tmp_path: Path, options: dict[str, str]) -> None:
    told = problem(put(tmp_path, "name,2024-01-01 00:00,2024-01-02 00:00\nx,1,2\ny,3,4\n"), **options)
    assert "the times seem to run along the header ('2024-01-01 00:00', '2024-01-02 00:00' and so on)" in told


def test_sensors_with_names_like_dates_are_sensors(tmp_path: Path) -> None:
    table, _ = read_table(put(tmp_path, "time,1-1-1,1-1-2,1-2-1\n2024-01-01,1,2,3\n2024-01-02,1,2,3\n"))
    assert table.columns.tolist() == ["1-1-1", "1-1-2", "1-2-1"]
