"""What a user gets wrong, from the command line: exit code 2, one line that says what and where, nothing written."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from casper import pretrained
from casper.simulate import Simulation

Command = Callable[..., Any]
Refused = Callable[..., str]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CASPER_DATA", raising=False)


@pytest.fixture
def readings(six_sensors: Simulation) -> str:
    six_sensors.table.to_csv("good.csv", index_label="time")
    six_sensors.sensors.to_csv("sensors.csv", index=False)
    return "good.csv"


@pytest.fixture
def model(tiny_folder: Path) -> Path:
    """A model that may be spoilt."""
    return Path(shutil.copytree(tiny_folder, "model"))


def contents() -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in Path().rglob("*")}


@pytest.fixture
def refused(command: Command) -> Refused:
    """Runs a command that must fail in the way all of them do, and hands back the one line it said."""

    def run(*arguments: object) -> str:
        before = contents()
        told = command(*arguments)
        assert told.code == 2, told
        assert told.out == ""
        assert told.err.startswith("casper: error: ")
        assert told.err.count("\n") == 1
        assert told.err.endswith("\n")
        assert contents() == before
        return told.err

    return run


def csv(*rows: str, header: str = "time,a,b") -> str:
    return "\n".join((header, *rows)) + "\n"


def hours(*cells: str) -> list[str]:
    return [f"2024-01-01 {hour:02d}:00,{cell}" for hour, cell in enumerate(cells)]


BAD_TABLES: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "random bytes.parquet": (np.random.default_rng(0).bytes(500), ("random bytes.parquet", "damaged or of another")),
    "binary.csv": (bytes(range(256)), ("binary.csv", "is not a text file")),
    "empty.csv": ("", ("empty.csv", "is empty")),
    "blank.csv": ("\n\n", ("blank.csv", "is empty")),
    "header only.csv": (csv(), ("header only.csv", "no rows")),
    "one row.csv": (csv(*hours("1,2")), ("single row", "two or more")),
    "text.csv": (csv(*hours("1,2", "3,broken", "5,6")), ("text.csv, line 3", "'b'", "'broken' is not a number")),
    "infinite.csv": (csv(*hours("1,2", "3,inf", "5,6")), ("'b'", "infinite", "2024-01-01 01:00:00", "replace")),
    "stamp twice.csv": (
        csv(*hours("1,2", "3,4"), "2024-01-01 01:00,5,6"),
        ("2024-01-01 01:00:00 occurs more than once", "keep one row per time"),
    ),
    "sensor twice.csv": (csv(*hours("1,2,3", "3,4,5"), header="time,a,b,a"), ("'a'", "more than one column", "rename")),
    "two zones.csv": (
        csv("2024-01-01T00:00+00:00,1,2", "2024-01-01T06:00+05:00,3,4", "2024-01-01T02:00+00:00,5,6"),
        ("mixed zones", "2024-01-01 06:00:00+05:00", "one zone"),
    ),
    "some zones.csv": (
        csv("2024-01-01T00:00+00:00,1,2", "2024-01-01T01:00,3,4", "2024-01-01T02:00+00:00,5,6"),
        ("mixed zones", "2024-01-01 01:00:00, have none", "one zone"),
    ),
    "all missing.csv": (csv(*hours(",", ",", ",")), ("all values are missing",)),
    "one sensor.csv": (csv(*hours("1", "2", "3"), header="time,a"), ("single sensor ('a')", "two or more")),
    "no time.csv": (csv("x,1,2", "y,3,4", header="name,a,b"), ("no time.csv, line 2", "'x'")),
    "table.xls": ("?", ("table.xls", "not known; use one that ends in .csv")),
}
COMMANDS: dict[str, tuple[str, ...]] = {
    "check": (),
    "fit": ("-o", "out", "--quiet", "--set", "window=2"),
    "impute": ("-o", "out.csv", "--quiet", "--method", "linear"),
}


@pytest.mark.parametrize("name", list(COMMANDS))
@pytest.mark.parametrize("file", list(BAD_TABLES))
def test_a_table_that_cannot_be_used_is_refused(refused: Refused, file: str, name: str) -> None:
    content, says = BAD_TABLES[file]
    Path(file).write_bytes(content if isinstance(content, bytes) else content.encode())
    told = refused(name, file, *COMMANDS[name])
    for words in says:
        assert words in told


@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_table_that_is_not_there_is_refused(refused: Refused, readings: str, name: str) -> None:
    assert "there is no file goood.csv: did you mean good.csv?" in refused(name, "goood.csv", *COMMANDS[name])
    assert "there is no file nowhere/x.csv: check its name and folder" in refused(
        name, "nowhere/x.csv", *COMMANDS[name]
    )
    Path("folder.csv").mkdir()
    assert "folder.csv is a folder: give the name of a file in it" in refused(name, "folder.csv", *COMMANDS[name])


def test_all_problems_of_a_table_are_told_at_once(refused: Refused) -> None:
    Path("bad.csv").write_text(csv(*hours("1,2", "inf,3"), "2024-01-01 01:00,-inf,6"))
    Path("sensors.csv").write_text("id,latitude,longitude\na,50,500\nb,50,10\n")
    told = refused("check", "bad.csv", "--sensors", "sensors.csv")
    for words in ("'a' has 2 infinite values", "occurs more than once", "longitude of sensor 'a' is 500"):
        assert words in told


def test_check_tells_odd_readings_beside_the_problems_that_hide_them(refused: Refused) -> None:
    readings = np.random.default_rng(0).normal(20.0, 3.0, (60, 4)).round(2)
    readings[5:8, 0], readings[:, 1], readings[20:50, 2] = -999.0, np.nan, 7.5
    times = pd.date_range("2024-01-01", periods=60, freq="h")
    table = pd.DataFrame(readings, index=times, columns=list("abcd")).astype(object)
    table.iloc[9, 3], table.iloc[11, 3] = "broken", "worse"
    again = table.iloc[[30]].assign(a=1.0)
    pd.concat([table, again]).to_csv("bad.csv", index_label="time")
    Path("sensors.csv").write_text("id,latitude,longitude\na,50,500\n")
    told = refused("check", "bad.csv", "--sensors", "sensors.csv")
    for words in (
        "column 'd': 'broken' is not a number, nor is 'worse' (line 13)",
        "2024-01-02 06:00:00 occurs more than once with different readings ('a': ",
        "longitude of sensor 'a' is 500",
        "also seen: never report: b; a: 3 times -999",
        "c: 30 readings in runs of 24 equal values or more",
    ):
        assert words in told


def test_check_tells_odd_readings_beside_uneven_stamps(refused: Refused) -> None:
    stamps = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(40) ** 2, unit="min")
    table = pd.DataFrame(np.random.default_rng(0).normal(20.0, 3.0, (40, 2)), index=stamps, columns=["a", "b"])
    table.iloc[7, 1] = -999.0
    table.to_csv("bad.csv", index_label="time")
    told = refused("check", "bad.csv", "--freq", "sometimes")
    assert "freq='sometimes' is not understood" in told
    assert "also seen: b: 1 times -999" in told
    told = refused("check", "bad.csv")
    assert "not evenly spaced" in told
    assert "also seen: b: 1 times -999" in told


# ---------------------------------------------------------------------- sensors

BAD_SENSORS: dict[str, tuple[str, tuple[str, ...]]] = {
    "unknown sensor": ("id,lat,lon\na,50,10\nc,51,10\n", ("lacks 'b'", "add a row")),
    "duplicate id": ("id,lat,lon\na,50,10\nb,51,10\na,52,10\n", ("'a' occurs more than once", "keep one row each")),
    "out of range": ("id,lat,lon\na,50,10\nb,-91,500\n", ("'b' is -91, outside -90 to 90", "'b' is 500")),
    "swapped": ("id,lat,lon\na,116.3,39.9\nb,116.5,40.1\n", ("look swapped", "exchange the two columns")),
    "coordinate missing": ("id,lat,lon\na,50,10\nb,,10\n", ("the latitude of sensor 'b' is missing", "degrees")),
    "coordinate is text": ("id,lat,lon\na,50,10\nb,51,east\n", ("the longitude of sensor 'b'", "'east'")),
    "column missing": ("id,lat\na,50\nb,51\n", ("lacks columns", "longitude, lon, lng")),
    "no rows": ("id,lat,lon\n", ("no rows",)),
}


@pytest.mark.parametrize("name", list(COMMANDS))
@pytest.mark.parametrize("case", list(BAD_SENSORS))
def test_a_list_of_sensors_that_cannot_be_used_is_refused(refused: Refused, case: str, name: str) -> None:
    content, says = BAD_SENSORS[case]
    Path("table.csv").write_text(csv(*hours("1,2", "3,", "5,6")))
    Path("sensors.csv").write_text(content)
    told = refused(name, "table.csv", "--sensors", "sensors.csv", *COMMANDS[name])
    for words in says:
        assert words in told


@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_list_of_sensors_that_is_not_there_is_refused(refused: Refused, readings: str, name: str) -> None:
    assert "there is no file nowhere.csv" in refused(name, readings, "--sensors", "nowhere.csv", *COMMANDS[name])


def test_matrices_that_cannot_be_used_are_refused(refused: Refused, readings: str) -> None:
    np.save("small.npy", np.ones((2, 2)))
    assert "small.npy has the shape (2, 2), 6 sensors need" in refused("check", readings, "--distances", "small.npy")
    np.save("negative.npy", -np.ones((6, 6)))
    assert "'S1' to sensor 'S2' is -1.0" in refused("check", readings, "--adjacency", "negative.npy")
    both = ("--sensors", "sensors.csv", "--adjacency", "negative.npy")
    assert "pass only one of" in refused("fit", readings, "-o", "out", "--quiet", *both)


# ---------------------------------------------------------------------- fitting


def test_a_table_shorter_than_the_window_is_refused(refused: Refused, six_sensors: Simulation, model: Path) -> None:
    six_sensors.table.iloc[:10].to_csv("short.csv")
    says = "the table has 10 steps, the model looks at 12 at a time; use a longer table or a model with a smaller"
    assert says in refused("fit", "short.csv", "-o", "out", "--set", "window=12", "--quiet")
    assert says in refused("impute", "short.csv", "-o", "out.csv", "--model", model)


def test_settings_that_do_not_exist_are_refused(refused: Refused, readings: str) -> None:
    fit = ("fit", readings, "-o", "out", "--quiet")
    assert "no setting colour; known: batch_size" in refused(*fit, "--set", "colour=blue")
    assert "--set takes name=value, not 'window'" in refused(*fit, "--set", "window")
    assert "ModelConfig.window cannot be 'wide': it takes int" in refused(*fit, "--set", "window=wide")
    assert "window must be at least 2 steps, not 0" in refused(*fit, "--set", "window=0")
    assert "seed is no setting but has an option of its own: use --seed" in refused(*fit, "--set", "seed=1")
    assert "use --quiet" in refused("impute", readings, "-o", "out.csv", "--set", "progress=true")
    assert "seed must be a whole number from 0" in refused(*fit, "--seed", "-1")
    assert "devices must be at least 1, not 0" in refused(*fit, "--devices", "0")
    assert "cannot be split evenly over 4 devices" in refused(*fit, "--devices", "4", "--device", "cpu")


def test_a_file_of_settings_that_cannot_be_used_is_refused(refused: Refused, readings: str) -> None:
    fit = ("fit", readings, "-o", "out", "--quiet", "--config", "settings.json")
    assert "settings.json cannot be read as JSON settings" in refused(*fit)
    for content, says in {
        "{": "settings.json cannot be read as JSON settings",
        "[1]": 'settings.json must hold an object such as {"window": 48}',
        '{"colour": 1}': "no setting colour; known",
        '{"device": "cpu"}': "device is no setting but has an option of its own: use --device",
    }.items():
        Path("settings.json").write_text(content)
        assert says in refused(*fit)


def test_a_gpu_that_is_not_there_is_refused(
    refused: Refused, readings: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    says = "no GPU was found on this machine; use --device cpu"
    assert says in refused("fit", readings, "-o", "out", "--device", "cuda", "--quiet")
    assert says in refused("impute", readings, "-o", "out.csv", "--device", "cuda", "--model", model)
    assert says in refused("impute", readings, "-o", "out.csv", "--device", "cuda", "--quiet")


def test_resuming_what_was_never_begun_is_refused(refused: Refused, readings: str) -> None:
    assert "there is no unfinished training in out.training" in refused("fit", readings, "-o", "out", "--resume")


def test_a_broken_checkpoint_is_not_resumed(
    refused: Refused, readings: str, model: Path, tiny_options: list[str]
) -> None:
    Path("out.training").mkdir()
    checkpoint = Path("out.training/checkpoint.safetensors")
    whole = (model / pretrained.WEIGHTS).read_bytes()
    for broken in (whole[:1000], b"", b"{}", np.random.default_rng(0).bytes(300)):
        checkpoint.write_bytes(broken)
        told = refused("fit", readings, "-o", "out", "--resume", *tiny_options)
        assert f"{checkpoint} is not a readable weights file" in told
    checkpoint.write_bytes(whole)  # readable, but not a training
    assert f"{checkpoint} belongs to a training with" in refused(
        "fit", readings, "-o", "out", "--resume", *tiny_options
    )


def test_an_output_that_cannot_be_written_is_refused_before_any_work(
    refused: Refused, readings: str, model: Path
) -> None:
    Path("folder.csv").mkdir()
    impute = ("impute", readings, "--model", model, "-o")
    assert "folder.csv is a folder: give the name of a file in it" in refused(*impute, "folder.csv", "--force")
    assert "out.xls: files of this kind are not known; use one that ends in .csv" in refused(*impute, "out.xls")
    assert "create it first" in refused(*impute, "nowhere/out.csv")
    assert "create it first" in refused("fit", readings, "-o", "nowhere/out")
    assert "File name too long" in refused(*impute, "x" * 300 + ".csv")


# ---------------------------------------------------------------------- models


def test_a_model_that_is_not_there_is_refused(refused: Refused, readings: str) -> None:
    Path("folder").mkdir()
    impute = ("impute", readings, "-o", "out.csv", "--model")
    assert "nowhere does not exist; models that come with the package: " in refused(*impute, "nowhere")
    assert "folder is not a model folder (config.json and model.safetensors)" in refused(*impute, "folder")
    assert "nowhere does not exist" in refused("evaluate", "aqi36", "--model", "nowhere")


def test_a_model_of_other_sensors_or_another_step_is_refused(
    refused: Refused, six_sensors: Simulation, model: Path
) -> None:
    impute = ("impute", "table.csv", "-o", "out.csv", "--model", model)
    six_sensors.table.rename(columns={"S2": "X"}).to_csv("table.csv")
    assert "fitted on other sensors: the table lacks S2 and the model does not know X; fit a model" in refused(*impute)
    six_sensors.table.iloc[::2].to_csv("table.csv")
    assert "steps of 01:00:00, this table has steps of 02:00:00; fit a model" in refused(*impute)


def test_what_only_fitting_can_use_is_refused_beside_a_model(refused: Refused, readings: str, model: Path) -> None:
    assert "--set cannot be used together with --model" in refused(
        "impute", readings, "-o", "out.csv", "--model", model, "--set", "window=9"
    )
    assert "--set cannot be used together with --model" in refused(
        "evaluate", "aqi36", "--model", model, "--set", "window=9"
    )
    assert "--set cannot be used together with --method linear" in refused(
        "impute", readings, "-o", "out.csv", "--method", "linear", "--set", "window=9"
    )


def test_a_damaged_model_is_refused(refused: Refused, readings: str, model: Path) -> None:
    impute = ("impute", readings, "-o", "out.csv", "--model", model)
    config, weights = model / pretrained.CONFIG, model / pretrained.WEIGHTS
    whole, description = weights.read_bytes(), json.loads(config.read_text())
    for broken in (whole[: len(whole) // 2], b"", np.random.default_rng(0).bytes(300)):
        weights.write_bytes(broken)
        assert f"{weights} is not a readable weights file" in refused(*impute)
    save_file({"bert": torch.zeros(2)}, weights)
    assert f"{weights} is not a CASPER model: it lacks 'graph:source'" in refused(*impute)
    weights.write_bytes(whole)
    config.write_text('{"model_type": "bert"}')
    assert f"{config} does not describe a CASPER model" in refused(*impute)
    config.write_text(json.dumps({**description, "colour": "blue"}))
    assert f"{config} has unknown keys colour" in refused(*impute)
    config.write_text(json.dumps({**description, "model": {**description["model"], "depth": 9}}))
    assert f"{config}: ModelConfig has no setting 'depth'" in refused(*impute)
    config.write_text("not json")
    assert f"{config} is not readable JSON" in refused(*impute)


# ---------------------------------------------------------------------- a full disk


def no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_nothing_behind(
    refused: Refused, readings: str, model: Path, tiny_options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", no_space)
    fit = refused("fit", readings, "-o", "out", *tiny_options)
    assert "the disk is full: out.training/metrics.csv was not written; free some space and try again" in fit
    impute = refused("impute", readings, "-o", "out.csv", "--model", model)
    assert "the disk is full" in impute
    assert "out.csv was not written" in impute


def test_a_disk_that_is_full_at_the_very_end_does_not_cost_the_training(
    command: Command, readings: str, tiny_options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(pretrained, "write_tensors", no_space)
        told = command("fit", readings, "-o", "out", *tiny_options)
    assert told.code == 2
    assert told.err == "casper: error: the disk is full: out was not written; free some space and try again\n"
    assert sorted(path.name for path in Path().iterdir()) == ["good.csv", "out.training", "sensors.csv"]
    assert command("fit", readings, "-o", "out", "--resume", *tiny_options).code == 0
    assert not Path("out.training").exists()


def test_a_full_disk_outside_our_own_files_is_still_one_line(
    refused: Refused, readings: str, tiny_options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "mkdir", no_space)
    told = refused("fit", readings, "-o", "out", *tiny_options)
    assert "the disk is full: out.training was not written" in told


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 KiB, where the machine lets us have one."""
    place = tmp_path / "disk"
    place.mkdir()
    if shutil.which("mount") is None or os.name != "posix":
        pytest.skip("no file systems can be mounted here")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("no file systems may be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_disk_that_is_really_full_leaves_nothing_behind(
    refused: Refused, tiny_options: list[str], small_disk: Path
) -> None:
    readings = np.random.default_rng(0).normal(size=(5000, 4))  # hardly to be compressed
    readings[10:20, 1] = np.nan
    times = pd.date_range("2024-01-01", periods=len(readings), freq="1h")
    pd.DataFrame(readings, index=times, columns=list("abcd")).to_csv("long.csv")
    linear = ("--method", "linear", "--quiet")
    assert "out.csv was not written; free some space" in refused(
        "impute", "long.csv", "-o", small_disk / "out.csv", *linear
    )
    for suffix in ("parquet", "csv.gz"):
        told = refused("impute", "long.csv", "-o", small_disk / f"out.{suffix}", *linear)
        assert "out." in told
        assert "written" in told or "cannot hold" in told
    wide = ("--set", "width=64", "--set", "window=12")
    assert "the disk is full" in refused("fit", "long.csv", "-o", small_disk / "model", *tiny_options, *wide)
    assert list(small_disk.iterdir()) == []


# ---------------------------------------------------------------------- names that do not exist


def test_methods_benchmarks_and_folders_that_do_not_exist_are_refused(refused: Refused, readings: str) -> None:
    choose = "there is no method 'magic'; choose one of casper, mean, linear, knn"
    assert choose in refused("impute", readings, "-o", "out.csv", "--method", "magic")
    assert choose in refused("evaluate", "aqi36", "--method", "magic")
    assert "no benchmark 'mars': choose one of aqi36" in refused("evaluate", "mars", "--method", "mean")
    assert "say what to score: either --method NAME or --model MODEL" in refused("evaluate", "aqi36")
    both = ("--method", "mean", "--model", "x")
    assert "say what to score" in refused("evaluate", "aqi36", *both)
    assert "pass --data-dir" in refused("evaluate", "aqi36", "--method", "mean")
    assert "does not exist: nowhere" in refused("data", "verify", "--data-dir", "nowhere")
    assert "no benchmark is in ." in refused("data", "verify", "--data-dir", ".")
    assert "aqi36.parquet is not in" in refused("fit", "aqi36", "-o", "out", "--data-dir", ".")
    assert "at least 2 is needed" in refused("simulate", "-o", "out", "--sensors", "1")


@pytest.mark.parametrize(
    "arguments",
    [
        ("fit", "good.csv", "-o", "out", "--preset", "huge"),
        ("fit", "good.csv", "-o", "out", "--colour", "blue"),
        ("fit", "good.csv"),
        ("impute", "good.csv", "-o", "out.csv", "--device", "tpu"),
        ("impute", "good.csv", "-o", "out.csv", "--missing-value", "none"),
        ("check",),
        ("dance",),
    ],
)
def test_wrong_options_end_in_a_hint_how_to_use_the_command(
    command: Command, readings: str, arguments: tuple[str, ...]
) -> None:
    before = contents()
    told = command(*arguments)
    assert told.code == 2
    assert "Usage: casper" in told.err
    assert "Traceback" not in told.err
    assert contents() == before


def test_errors_leave_the_process_as_one_line_and_code_2(
    tiny_folder: Path, readings: str, shell: dict[str, str]
) -> None:
    """The same through the shell, where nothing of the test is in the way."""
    Path("model").mkdir()
    (Path("model") / pretrained.CONFIG).write_bytes((tiny_folder / pretrained.CONFIG).read_bytes())
    (Path("model") / pretrained.WEIGHTS).write_bytes(b"rubbish")
    for arguments in (["check", "nowhere.csv"], ["impute", readings, "-o", "out.csv", "--model", "model"]):
        told = subprocess.run([sys.executable, "-m", "casper", *arguments], env=shell, capture_output=True, text=True)
        assert told.returncode == 2
        assert told.stderr.startswith("casper: error: ")
        assert told.stderr.count("\n") == 1
        assert told.stdout == ""
    assert not Path("out.csv").exists()
