"""Files: what is read is right, what is written looks like what was read, and mistakes are told in one line."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from casper.errors import InputError, MissingPackageError, ProblemsError
from casper.frame import to_frame
from casper.io import read_matrix, read_sensors, read_table, write_table
from table_files import LONG, WIDE, filled_copy, problem, put

# --- which file ---


def test_a_missing_file_proposes_a_similar_name(tmp_path: Path) -> None:
    put(tmp_path, WIDE)
    assert f"did you mean {tmp_path / 'readings.csv'}?" in problem(tmp_path / "reading.csv")
    assert "check its name" in problem(tmp_path / "other" / "x.csv")
    assert "check its name" in problem(tmp_path / "sensors.csv")


def test_folders_and_unknown_kinds_are_refused(tmp_path: Path) -> None:
    assert "is a folder" in problem(tmp_path)
    assert "use one that ends in .csv, .tsv, .txt, .dat, .xlsx, .parquet, .h5" in problem(put(tmp_path, "x", "a.xls"))
    assert "not known" in problem(put(tmp_path, "x", "a.parquet.gz"))


def test_a_file_that_may_not_be_read_is_told_apart_from_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "no")

    csv, parquet = put(tmp_path, WIDE), put(tmp_path, "x", "r.parquet")
    monkeypatch.setattr(Path, "read_bytes", refuse)
    monkeypatch.setattr(pd, "read_parquet", refuse)
    assert "permission denied" in problem(csv)
    assert "permission denied" in problem(parquet)


# --- parquet and hdf5 ---


def test_float32_parquet_stays_float32_and_keeps_its_index(tmp_path: Path) -> None:
    table = pd.DataFrame(
        np.array([[1.1, np.nan], [2.2, 3.3]], dtype=np.float32),
        index=pd.date_range("2024-10-27 01:00", periods=2, freq="h", tz="Europe/Berlin", name="when"),
        columns=["a", "b"],
    )
    table.to_parquet(tmp_path / "r.parquet")
    read, form = read_table(tmp_path / "r.parquet")
    write_table(to_frame(read).restore(np.full((2, 2), 0.5)), tmp_path / "out.parquet", like=form)
    out = pd.read_parquet(tmp_path / "out.parquet")
    assert set(out.dtypes) == {np.dtype(np.float32)}
    pd.testing.assert_index_equal(out.index, pd.read_parquet(tmp_path / "r.parquet").index)
    pd.testing.assert_frame_equal(out.where(table.notna().to_numpy()), read)
    write_table(table, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().splitlines()[1] == "2024-10-27 01:00:00+02:00,1.1,"


def test_a_parquet_file_with_a_time_column_keeps_it(tmp_path: Path) -> None:
    raw = pd.DataFrame({"a": [1.5, 2.5], "timestamp": pd.to_datetime(["2024-01-01", "2024-01-02"]), "b": [1, 2]})
    raw.to_parquet(tmp_path / "r.parquet")
    table, form = read_table(tmp_path / "r.parquet")
    assert table.columns.tolist() == ["a", "b"]
    write_table(table, tmp_path / "out.parquet", like=form)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out.parquet"), raw)
    write_table(table, tmp_path / "out.csv", like=form)
    assert (tmp_path / "out.csv").read_text().startswith("a,timestamp,b\n1.5,2024-01-01,1\n")


def test_the_row_numbers_of_a_filtered_table_are_no_time_stamps(tmp_path: Path) -> None:
    raw = pd.DataFrame({"time": pd.to_datetime(["2024-01-01", "2024-01-02"]), "a": [1.5, 2.5]}, index=[3, 9])
    raw.to_parquet(tmp_path / "r.parquet")
    assert read_table(tmp_path / "r.parquet")[0].columns.tolist() == ["a"]


def test_a_time_column_beside_another_index_can_be_named(tmp_path: Path) -> None:
    raw = pd.DataFrame({"t": ["2024-01-01", "2024-01-02"], "a": [1.5, 2.5]}, index=pd.Index([7.0, 8.0], name="n"))
    raw.to_parquet(tmp_path / "r.parquet")
    assert read_table(tmp_path / "r.parquet", time_column="t")[0].columns.tolist() == ["n", "a"]


def test_csv_to_parquet_and_back_keeps_times_and_values(tmp_path: Path) -> None:
    for stamps in (("2024-01-01", "2024-01-02"), ("2024-03-31T01:00+01:00", "2024-03-31T03:00+02:00")):
        table, form = read_table(put(tmp_path, f"time,a,b\n{stamps[0]},1.5,2\n{stamps[1]},2.5,3\n"))
        write_table(table, tmp_path / "out.parquet", like=form, force=True)
        again, _ = read_table(tmp_path / "out.parquet")
        assert again.index.name == "time"
        assert [pd.Timestamp(stamp) for stamp in again.index] == [pd.Timestamp(stamp) for stamp in stamps]
        np.testing.assert_array_equal(again.to_numpy(), table.to_numpy())
        write_table(again, tmp_path / "back.csv", force=True)
        back, _ = read_table(tmp_path / "back.csv")
        np.testing.assert_array_equal(back.to_numpy(), table.to_numpy())


@pytest.mark.usefixtures("hdf5")
def test_hdf5_goes_in_and_out_wide_and_long(tmp_path: Path) -> None:
    table, form = read_table(put(tmp_path, WIDE))
    write_table(table, tmp_path / "out.h5", like=form)
    again, hdf = read_table(tmp_path / "out.h5")
    pd.testing.assert_frame_equal(again, table, check_freq=False, check_index_type=False, check_column_type=False)
    write_table(again, tmp_path / "again.hdf5", like=hdf)
    long, long_form = read_table(put(tmp_path, LONG))
    write_table(long, tmp_path / "long.h5", like=long_form)
    np.testing.assert_array_equal(read_table(tmp_path / "long.h5")[0].to_numpy(), long.to_numpy())


@pytest.mark.usefixtures("hdf5")
def test_one_of_several_hdf5_tables_is_chosen_by_key(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": [1.5, 2.5], "b": [1.0, 2.0]}, index=pd.date_range("2024-01-01", periods=2))
    table.to_hdf(str(tmp_path / "r.h5"), key="speed")
    (table * 2).to_hdf(str(tmp_path / "r.h5"), key="flow")
    table["a"].to_hdf(str(tmp_path / "r.h5"), key="single")
    assert "the tables 'flow', 'single', 'speed': name one of them with --key NAME (key=)" in problem(tmp_path / "r.h5")
    assert read_table(tmp_path / "r.h5", key="flow")[0].iloc[0, 0] == 3
    assert "'single' is a Series" in problem(tmp_path / "r.h5", key="single")
    assert "name one of them" in problem(tmp_path / "r.h5", key="other")


@pytest.mark.usefixtures("hdf5")
@pytest.mark.parametrize("name", ["r.parquet", "r.h5"])
def test_damaged_binary_files_are_refused(tmp_path: Path, name: str) -> None:
    assert "damaged" in problem(put(tmp_path, "this is nothing", name))


def test_hdf5_without_the_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tables", None)
    with pytest.raises(MissingPackageError, match=r"casper-impute\[hdf5\]"):
        read_table(put(tmp_path, "x", "r.h5"))
    with pytest.raises(MissingPackageError, match=r"casper-impute\[hdf5\]"):
        write_table(pd.DataFrame({"a": [1.0]}), tmp_path / "out.h5")


def test_a_parquet_file_without_rows_is_refused(tmp_path: Path) -> None:
    pd.DataFrame({"time": [], "a": []}).to_parquet(tmp_path / "r.parquet")
    assert "no rows" in problem(tmp_path / "r.parquet")


# --- writing ---


def test_an_existing_file_is_replaced_only_with_force(tmp_path: Path) -> None:
    table, form = read_table(put(tmp_path, WIDE))
    target = put(tmp_path, "precious", "out.csv")
    with pytest.raises(InputError, match="exists already"):
        write_table(table, target, like=form)
    assert target.read_text() == "precious"
    write_table(table, target, like=form, force=True)
    assert target.read_text() == WIDE


def test_a_full_disk_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    table, _ = read_table(put(tmp_path, WIDE))
    target = put(tmp_path, "precious", "out.csv")
    monkeypatch.setattr(pd.DataFrame, "to_csv", fail)
    with pytest.raises(InputError, match="disk is full"):
        write_table(table, target, force=True)
    assert target.read_text() == "precious"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["out.csv", "readings.csv"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(errno.EACCES, "no"), "permission"),
        (OSError(errno.EIO, "broken disk"), "could not be written: .*broken disk"),
        (TypeError("odd column"), "cannot hold this table, try another kind of file: odd column"),
    ],
)
def test_failures_to_write_are_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(pd.DataFrame, "to_parquet", fail)
    with pytest.raises(InputError, match=words):
        write_table(pd.DataFrame({"a": [1.0]}), tmp_path / "out.parquet")
    assert list(tmp_path.iterdir()) == []


def test_targets_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    table, form = read_table(put(tmp_path, WIDE))
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        write_table(table, tmp_path / "folder.csv")
    with pytest.raises(InputError, match="no folder"):
        write_table(table, tmp_path / "nowhere" / "out.csv")
    with pytest.raises(InputError, match="not known"):
        write_table(table, tmp_path / "out.xls")
    with pytest.raises(InputError, match="leave out like="):
        write_table(table.iloc[:2], tmp_path / "out.csv", like=form)


def test_written_files_are_readable_by_others(tmp_path: Path) -> None:
    write_table(read_table(put(tmp_path, WIDE))[0], tmp_path / "out.csv")
    assert (tmp_path / "out.csv").stat().st_mode == (tmp_path / "readings.csv").stat().st_mode


# --- sensors and matrices ---


def test_sensor_files_keep_their_ids_as_text(tmp_path: Path) -> None:
    listed = read_sensors(put(tmp_path, "sensor_id,latitude,longitude\n001,50.5,10\n002,51,11\n"))
    assert listed.index.tolist() == ["001", "002"]
    assert listed["latitude"].tolist() == [50.5, 51]
    comma = read_sensors(put(tmp_path, "id;lat;lon\n001;50,5;10,0\n"))
    assert comma.loc["001", "latitude"] == 50.5
    listed.rename_axis("id").reset_index().to_parquet(tmp_path / "s.parquet")
    pd.testing.assert_frame_equal(read_sensors(tmp_path / "s.parquet"), listed)


def test_mistakes_in_sensor_files_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^readings.csv: the list of sensors lacks columns"):
        read_sensors(put(tmp_path, "sensor_id,latitude\n001,50.5\n"))
    with pytest.raises(ProblemsError) as caught:
        read_sensors(put(tmp_path, "id,lat,lon\n001,,x\n"))
    assert all(text.startswith("readings.csv: ") for text in caught.value.problems)


MATRIX = np.array([[0.0, 1.5, np.inf], [2.5, 0.0, 3.5], [4.5, 5.5, 0.0]])


def save_matrix(folder: Path, form: str) -> Path:
    frame = pd.DataFrame(MATRIX, index=["a", "b", "7"], columns=["a", "b", "7"])
    file = folder / ("m.parquet" if "parquet" in form else "m.csv")
    if form == "npy":
        np.save(folder / "m.npy", MATRIX)
        return folder / "m.npy"
    if form == "plain csv":
        frame.to_csv(file, header=False, index=False)
    elif form == "csv with header":
        frame.to_csv(file, index=False)
    elif form == "csv with ids":
        frame.to_csv(file)
    elif form == "parquet with ids":
        frame.to_parquet(file)
    elif form == "parquet with header":
        frame.reset_index(drop=True).to_parquet(file)
    else:
        pd.DataFrame(MATRIX).to_parquet(file)
    return file


@pytest.mark.parametrize(
    "form",
    ["npy", "plain csv", "csv with header", "csv with ids", "parquet", "parquet with header", "parquet with ids"],
)
def test_matrices_are_read_from_every_form_and_ordered_by_id(tmp_path: Path, form: str) -> None:
    file = save_matrix(tmp_path, form)
    np.testing.assert_array_equal(read_matrix(file, sensors=["a", "b", "7"]), MATRIX)
    if "with" in form:
        np.testing.assert_array_equal(read_matrix(file, sensors=["7", "a"]), MATRIX[np.ix_([2, 0], [2, 0])])
        with pytest.raises(InputError, match="has no row for the sensors 'c'"):
            read_matrix(file, sensors=["a", "b", "c"])
    else:
        with pytest.raises(InputError, match=r"has the shape \(3, 3\), 2 sensors need"):
            read_matrix(file, sensors=["a", "b"])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("m.npy", "junk", "cannot be read as a NumPy array"),
        ("m.csv", "0,1\nx,0\n", "not a number"),
        ("m.csv", "0,nan\n1,0\n", "no number for the sensors 'a' and 'b': write inf"),
        ("m.csv", "0,1,2\n1,0\n", "line 2: 2 fields where the header has 3"),
    ],
)
def test_matrices_that_cannot_be_used_are_refused(tmp_path: Path, name: str, content: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_matrix(put(tmp_path, content, name), sensors=["a", "b"])


def test_a_matrix_may_have_decimal_commas(tmp_path: Path) -> None:
    file = put(tmp_path, ";a;b\na;0;1,5\nb;2,5;0\n", "m.csv")
    np.testing.assert_array_equal(read_matrix(file, sensors=["a", "b"]), [[0, 1.5], [2.5, 0]])


def test_a_pickled_array_is_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="cannot be read as a NumPy array"):
        read_matrix(tmp_path / "m.npy", sensors=["a"])


def test_the_look_of_a_file_does_not_drag_its_readings_along(tmp_path: Path) -> None:
    _, form = read_table(put(tmp_path, WIDE))
    assert form.beside.columns.tolist() == ["time"]


# --- columns that are no readings ---

NOTED = "note,time,a,quality,b\nlab,2024-01-01,1.5,ok,4\n,2024-01-02,,bad,5\n"


def test_ignored_columns_come_back_where_they_stood(tmp_path: Path) -> None:
    table, form = read_table(put(tmp_path, NOTED), ignore_columns=("note", "quality"))
    assert table.columns.tolist() == ["a", "b"]
    assert form.beside.columns.tolist() == ["note", "time", "quality"]
    assert filled_copy(
        tmp_path / "readings.csv", tmp_path / "out.csv", ignore_columns=["quality", "note"]
    ) == NOTED.replace("-02,,", "-02,7.5,")
    assert "has no column 'remarks'; its columns are 'note'" in problem(
        tmp_path / "readings.csv", ignore_columns=["remarks"]
    )


@pytest.mark.usefixtures("hdf5")
@pytest.mark.parametrize("name", ["out.parquet", "out.h5"])
def test_ignored_columns_of_a_csv_reach_a_binary_file_beside_real_times(tmp_path: Path, name: str) -> None:
    table, form = read_table(put(tmp_path, NOTED), ignore_columns=["note", "quality"])
    write_table(table, tmp_path / name, like=form)
    again, binary = read_table(tmp_path / name, ignore_columns=["note", "quality"])
    assert again.columns.tolist() == ["a", "b"]
    assert binary.beside["quality"].tolist() == ["ok", "bad"]
    write_table(again, tmp_path / f"again-{name}", like=binary)
    out = pd.read_parquet(tmp_path / f"again-{name}") if "parquet" in name else pd.read_hdf(tmp_path / f"again-{name}")
    assert out.columns.tolist() == ["note", "a", "quality", "b"]
    assert out.index[1] == pd.Timestamp("2024-01-02")


def test_the_time_index_of_a_parquet_file_is_never_taken_for_a_column_to_ignore(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": [1.5, 2], "b": [1.5, 2]}, index=pd.date_range("2024-01-01", periods=2, name="time"))
    table.to_parquet(tmp_path / "r.parquet")
    assert read_table(tmp_path / "r.parquet", ignore_columns=["time"])[0].columns.tolist() == ["a", "b"]


@pytest.mark.parametrize("header", ["", "Unnamed: 0", "index"])
@pytest.mark.parametrize("start", [0, 1])
def test_the_row_numbers_that_pandas_writes_are_no_sensor(
    tmp_path: Path, header: str, start: int, caplog: pytest.LogCaptureFixture
) -> None:
    text = f"{header},time,a,b\n{start},2024-01-01,1.5,2.5\n{start + 1},2024-01-02,,3.5\n"
    with caplog.at_level("INFO", logger="casper"):
        table, form = read_table(put(tmp_path, text))
    assert table.columns.tolist() == ["a", "b"]
    assert f"column {header!r} counts the rows" in caplog.text
    assert filled_copy(tmp_path / "readings.csv", tmp_path / "out.csv") == text.replace(",,", ",7.5,")
    write_table(table, tmp_path / "out.parquet", like=form)
    assert pd.read_parquet(tmp_path / "out.parquet").iloc[:, 0].tolist() == [start, start + 1]
    assert read_table(tmp_path / "out.parquet")[0].columns.tolist() == ["a", "b"]


def test_row_numbers_do_not_pass_for_the_time_column(tmp_path: Path) -> None:
    text = ",Zeit,a,b\n0,2024-01-01,1.5,2.5\n1,2024-01-02,1.5,3.5\n"
    assert read_table(put(tmp_path, text))[0].columns.tolist() == ["a", "b"]


def test_a_sensor_called_index_that_does_not_count_stays_a_sensor(tmp_path: Path) -> None:
    text = "time,index,b\n2024-01-01,1,2.5\n2024-01-02,3,3.5\n"
    assert read_table(put(tmp_path, text))[0].columns.tolist() == ["index", "b"]
    pd.DataFrame({"time": ["2024-01-01", "2024-01-02"], "index": [5, 6], "b": [1, 2]}).to_parquet(
        tmp_path / "r.parquet"
    )
    assert read_table(tmp_path / "r.parquet")[0].columns.tolist() == ["index", "b"]
