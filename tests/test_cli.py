from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from casper import Casper, __version__, datasets
from casper import neural as neural_module
from casper.commands.console import show_fitted
from casper.methods import METHODS
from casper.simulate import Simulation

Command = Callable[..., Any]
SCORES = {"dataset", "method", "protocol", "mae", "mse", "mre", "mae_step", "mse_step", "mre_step", "n_scored"}
SCORES |= {"imputing_seconds", "intervals"}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def readings(six_sensors: Simulation) -> str:
    """A table and its sensors in the working folder."""
    six_sensors.table.round(3).to_csv("readings.csv", index_label="time")
    six_sensors.sensors.to_csv("sensors.csv", index=False)
    return "readings.csv"


def succeeds(told: Any) -> Any:
    assert told.code == 0, told.err
    assert "Traceback" not in told.err
    return told


def same_cells(before: str, after: str) -> bool:
    """Every cell that held something holds the same text, and no cell is empty any more."""
    old, new = ([line.split(",") for line in Path(name).read_text().splitlines()] for name in (before, after))
    return (
        len(old) == len(new)
        and all(a in ("", b) for one, other in zip(old, new, strict=True) for a, b in zip(one, other, strict=True))
        and all(cell for row in new for cell in row)
    )


# ---------------------------------------------------------------------- looking at things


def test_the_version_and_the_help_are_shown(command: Command) -> None:
    assert succeeds(command("--version")).out == f"casper {__version__}\n"
    told = succeeds(command("--help")).out
    for name in ("check", "fit", "impute", "evaluate", "methods", "simulate", "demo", "data"):
        assert name in told


def test_check_tells_what_is_in_a_table(command: Command, readings: str) -> None:
    told = succeeds(command("check", readings, "--sensors", "sensors.csv")).out
    for words in ("2024-01-01 00:00:00", "01:00:00, 150 steps", "longest gap", "never report", "great-circle"):
        assert words in told


def test_check_tells_the_same_as_json(command: Command, readings: str, six_sensors: Simulation) -> None:
    told = json.loads(succeeds(command("check", readings, "--sensors", "sensors.csv", "--json")).out)
    assert (told["steps"], told["sensors"], told["step_seconds"]) == (150, 6, 3600.0)
    assert told["missing_share"] == pytest.approx(six_sensors.table.isna().to_numpy().mean())
    assert told["graph"]["edges"] > 0
    assert told["graph"]["origin"].startswith("great-circle")


def test_check_shows_where_the_sensors_lie(command: Command, readings: str) -> None:
    places = pd.read_csv("sensors.csv", index_col=0)
    told = " ".join(succeeds(command("check", readings, "--sensors", "sensors.csv")).out.replace("│", " ").split())
    north = f"{places['latitude'].min():.1f} and {places['latitude'].max():.1f} degrees north"
    east = f"{places['longitude'].min():.1f} and {places['longitude'].max():.1f} degrees east"
    assert f"sensors lie between {north}, {east}" in told
    told = json.loads(succeeds(command("check", readings, "--sensors", "sensors.csv", "--json")).out)
    assert told["region"]["latitude"] == [places["latitude"].min(), places["latitude"].max()]
    assert "region" not in succeeds(command("check", readings)).out


def test_unsorted_rows_and_copies_come_back_where_they_stood(command: Command, readings: str) -> None:
    header, *rows = Path(readings).read_text().splitlines()
    Path("odd.csv").write_text("\n".join((header, *rows[::-1], rows[5])) + "\n")
    succeeds(command("impute", "odd.csv", "-o", "filled.csv", "--method", "linear", "-q"))
    assert same_cells("odd.csv", "filled.csv")
    told = succeeds(command("check", "odd.csv")).out
    assert "is there twice" in told
    assert "not in the order of time" in told


def test_check_shows_names_as_they_are_written(command: Command, six_sensors: Simulation) -> None:
    """Brackets and colons are no markup, and a name such as [/b] must not end in a traceback."""
    table = six_sensors.table.rename(columns={"S1": "PM [ug/m3]", "S2": "[/b]", "S3": ":b:"})
    table[["PM [ug/m3]", "[/b]", ":b:"]] = np.nan
    table.to_csv("[b]readings.csv", index_label="time")
    told = succeeds(command("check", "[b]readings.csv")).out
    assert "PM [ug/m3], [/b], :b:" in told
    assert "[b]readings.csv" in told


def test_check_cuts_long_lists_short(command: Command, six_sensors: Simulation) -> None:
    table = pd.concat([six_sensors.complete.add_suffix(f"-{copy}") for copy in range(2)], axis=1)
    table.iloc[60] = -999.0
    table[[f"dead{number}" for number in range(9)]] = np.nan
    table.to_csv("readings.csv", index_label="time")
    told = succeeds(command("check", "readings.csv")).out
    assert "-999 in 12 sensors, 12 times" in " ".join(told.replace("│", " ").split())
    assert "dead7 and 1 more" in told


def test_results_become_a_table_on_the_screen_or_in_a_document(command: Command) -> None:
    Path("results").mkdir()
    figures = {"mae": 2.0, "mse": 5.0, "mae_step": 1.5, "mse_step": 4.0, "wall_seconds": 3.0}
    origin = {"command": "casper evaluate", "commit": "0" * 40, "device": "CPU"}
    Path("results/one.json").write_text(json.dumps({"dataset": "aqi36", "method": "mean", **figures, **origin}))
    row = "| aqi36 | mean | 2.00 | 5.0 | 1.50 | 4.0 | 3 s | CPU | `one.json` |"
    assert row in succeeds(command("results")).out
    Path("page.md").write_text("<!-- results:start -->\n<!-- results:end -->\n")
    succeeds(command("results", "--into", "page.md"))
    assert row in Path("page.md").read_text()


def test_methods_lists_every_imputer(command: Command) -> None:
    told = succeeds(command("methods")).out
    for name, method in METHODS.items():
        assert name in told
        assert method.summary in told


def test_simulate_writes_a_network(command: Command) -> None:
    succeeds(command("simulate", "-o", "made", "--sensors", 5, "--steps", 48, "--seed", 2))
    assert {path.name for path in Path("made").iterdir()} == {"readings.csv", "truth.csv", "sensors.csv", "edges.csv"}
    assert pd.read_csv("made/readings.csv", index_col=0).shape == (48, 5)
    assert command("simulate", "-o", "made").code == 2
    succeeds(command("simulate", "-o", "made", "--sensors", 4, "--steps", 48, "--force"))
    assert pd.read_csv("made/truth.csv", index_col=0).shape == (48, 4)


# ---------------------------------------------------------------------- fitting and filling


def test_fit_and_impute_give_the_same_csv_without_holes(
    command: Command, readings: str, tiny_options: list[str]
) -> None:
    told = succeeds(command("fit", readings, "-o", "model", "--sensors", "sensors.csv", *tiny_options))
    assert "Mean absolute error on held-back cells" in told.out
    assert told.err.startswith("Linear interpolation did better")  # than so short a training
    assert told.err.count("\n") == 1
    assert sorted(path.name for path in Path("model").iterdir()) == ["config.json", "metrics.csv", "model.safetensors"]
    assert len(pd.read_csv("model/metrics.csv")) == 2
    assert not Path("model.training").exists()
    holes = int(pd.read_csv(readings, index_col=0).isna().to_numpy().sum())
    told = succeeds(command("impute", readings, "--model", "model", "-o", "filled.csv"))
    assert told.out == f"Filled {holes:,} of 900 cells; wrote filled.csv\n"
    assert same_cells(readings, "filled.csv")


def test_notes_go_to_standard_error_unless_they_are_unwanted(
    command: Command, readings: str, tiny_options: list[str]
) -> None:
    arguments = ("impute", readings, "--method", "mean", "--sensors", "sensors.csv", "-o", "filled.csv", "--force")
    assert "great-circle distances" in succeeds(command(*arguments)).err
    assert succeeds(command(*arguments, "--quiet")).err == ""
    loud = [option for option in tiny_options if option != "--quiet"]
    assert "epoch" in succeeds(command("fit", readings, "-o", "model", *loud)).err


def test_a_table_may_be_read_in_another_way_than_the_fitted_one_was(
    command: Command, six_sensors: Simulation, tiny_folder: Path
) -> None:
    six_sensors.table.to_csv("holes.csv")
    six_sensors.table.fillna(-999.0).to_csv("sentinels.csv")
    six_sensors.sensors.to_csv("places.csv", index=False)
    model = ("--model", tiny_folder)
    succeeds(command("impute", "holes.csv", *model, "-o", "a.csv"))
    told = succeeds(
        command("impute", "sentinels.csv", *model, "--missing-value", "-999", "--sensors", "places.csv", "-o", "b.csv")
    )
    assert "brings its own sensor network" in " ".join(told.err.split())
    pd.testing.assert_frame_equal(pd.read_csv("a.csv"), pd.read_csv("b.csv"))


def test_numbers_that_stand_for_holes_are_told_before_they_are_taken_for_readings(
    command: Command, six_sensors: Simulation, tiny_folder: Path, tiny_options: list[str]
) -> None:
    six_sensors.table.fillna(-999.0).to_csv("readings.csv", index_label="time")
    quiet = ("--device", "cpu", "--quiet")
    for arguments in (
        ("impute", "readings.csv", "--method", "linear", "-o", "linear.csv", "-q"),
        ("impute", "readings.csv", "--model", tiny_folder, "-o", "filled.csv", *quiet),
        ("fit", "readings.csv", "-o", "model", *tiny_options),
        ("report", "readings.csv", "--model", tiny_folder, "-o", "page.html", *quiet),
    ):
        told = " ".join(succeeds(command(*arguments)).err.split())
        assert told.count("taken for readings: -999 in 6 sensors, ") == 1
        assert "which often stands for a hole: pass --missing-value -999 (missing_values=) if so" in told
    given = ("--missing-value", "-999", "-o", "given.csv", "-q")
    assert succeeds(command("impute", "readings.csv", "--method", "linear", *given)).err == ""
    assert "-999" in Path("linear.csv").read_text(), "the values are left as they are"


def test_the_sensors_may_be_called_by_another_column_of_their_list(
    command: Command, readings: str, six_sensors: Simulation, tiny_folder: Path
) -> None:
    ids = six_sensors.sensors.columns[0]
    codes = six_sensors.sensors.assign(name=[f"Place {number}" for number in range(6)])
    codes.rename(columns={ids: "Station Code"}).to_csv("codes.csv", index=False)
    same = succeeds(command("check", readings, "--sensors", "sensors.csv")).out
    assert succeeds(command("check", readings, "--sensors", "codes.csv")).out == same
    named = six_sensors.table.set_axis(codes["name"].tolist(), axis=1)
    named.to_csv("named.csv", index_label="time")
    told = succeeds(command("check", "named.csv", "--sensors", "codes.csv")).out
    assert "great-circle distances between 6 sensors" in " ".join(told.replace("│", " ").split())
    succeeds(command("report", readings, "--model", tiny_folder, "--sensors", "codes.csv", "-o", "page.html", "-q"))


def test_a_report_without_places_says_how_to_get_a_map(command: Command, readings: str, tiny_folder: Path) -> None:
    options = ("--model", tiny_folder, "--device", "cpu")
    for arguments in (
        ("impute", readings, *options, "-o", "filled.csv", "--report", "page.html"),
        ("report", readings, *options, "-o", "page.html"),
    ):
        told = " ".join(succeeds(command(*arguments, "--force")).err.split())
        assert "for a map in the report, give them with --sensors" in told
        told = " ".join(succeeds(command(*arguments, "--force", "--sensors", "sensors.csv")).err.split())
        assert "for a map in the report" not in told


def test_a_column_of_notes_can_be_skipped_and_comes_back(command: Command, six_sensors: Simulation) -> None:
    six_sensors.table.assign(notes="cleaned").to_csv("readings.csv", index_label="time")
    told = command("impute", "readings.csv", "--method", "linear", "-o", "filled.csv")
    assert told.code == 2
    assert "--ignore-column notes" in told.err
    succeeds(command("impute", "readings.csv", "--method", "linear", "-o", "filled.csv", "--ignore-column", "notes"))
    filled = pd.read_csv("filled.csv")
    assert list(filled.columns) == ["time", *six_sensors.table.columns, "notes"]
    assert (filled["notes"] == "cleaned").all()
    assert filled.notna().to_numpy().all()


def test_steps_without_a_row_are_written_when_they_are_wanted(command: Command, six_sensors: Simulation) -> None:
    six_sensors.table.drop(six_sensors.table.index[5:8]).to_csv("readings.csv", index_label="time")
    told = succeeds(command("impute", "readings.csv", "--method", "linear", "-o", "same.csv"))
    assert "Steps of 01:00:00 without a row: 3;" in " ".join(told.err.split())
    succeeds(command("impute", "readings.csv", "--method", "linear", "-o", "all.csv", "--all-steps"))
    same, whole = pd.read_csv("same.csv"), pd.read_csv("all.csv")
    assert len(whole) == len(six_sensors.table) == len(same) + 3
    assert list(whole.columns) == list(same.columns)
    pd.testing.assert_frame_equal(whole.drop([5, 6, 7]).reset_index(drop=True), same)


def test_parquet_goes_in_and_comes_out(command: Command, six_sensors: Simulation) -> None:
    six_sensors.table.to_parquet("readings.parquet")
    succeeds(command("impute", "readings.parquet", "--method", "linear", "-o", "filled.parquet"))
    filled = pd.read_parquet("filled.parquet")
    assert filled.notna().to_numpy().all()
    pd.testing.assert_frame_equal(filled.where(six_sensors.table.notna()), six_sensors.table, check_freq=False)


def test_a_long_table_comes_back_long(command: Command, six_sensors: Simulation, tiny_folder: Path) -> None:
    long = six_sensors.table.rename_axis(index="time").melt(ignore_index=False, var_name="station").reset_index()
    long[["station", "time", "value"]].to_csv("long.csv", index=False)
    succeeds(command("impute", "long.csv", "--model", tiny_folder, "-o", "filled.csv"))
    assert same_cells("long.csv", "filled.csv")
    renamed = long.rename(columns={"station": "what", "time": "when", "value": "how_much"})
    renamed.to_csv("odd.csv", index=False)
    named = ("--time-column", "when", "--id-column", "what", "--value-column", "how_much", "--layout", "long")
    succeeds(command("impute", "odd.csv", "--model", tiny_folder, "-o", "odd_filled.csv", *named))
    assert (pd.read_csv("odd_filled.csv")["how_much"] == pd.read_csv("filled.csv")["value"]).all()


def test_impute_fits_a_casper_if_there_is_no_model(command: Command, readings: str, tiny_options: list[str]) -> None:
    succeeds(command("impute", readings, "-o", "filled.csv", "--sensors", "sensors.csv", *tiny_options))
    assert same_cells(readings, "filled.csv")


def test_numbers_that_mean_missing_are_filled_and_counted(command: Command, six_sensors: Simulation) -> None:
    six_sensors.table.fillna(-999).to_csv("readings.csv", index_label="time")
    told = command("impute", "readings.csv", "--method", "linear", "--missing-value", -999, "-o", "filled.csv")
    holes = int(six_sensors.table.isna().to_numpy().sum())
    assert f"Filled {holes:,} of 900 cells" in succeeds(told).out
    assert (pd.read_csv("filled.csv", index_col=0).to_numpy() > 0).all()


def test_a_dead_sensor_is_mentioned(command: Command, six_sensors: Simulation, tiny_folder: Path) -> None:
    six_sensors.table.assign(S4=np.nan).to_csv("readings.csv", index_label="time")
    told = succeeds(command("impute", "readings.csv", "--model", tiny_folder, "-o", "filled.csv"))
    assert "trust with care: S4 (no reading at all)" in told.err


def test_settings_come_from_a_file_and_from_the_command_line_which_wins(
    command: Command, readings: str, tiny_settings: dict[str, Any]
) -> None:
    settings = {**tiny_settings, "epochs": 1, "width": 16, "hidden_shares": [0.3], "message": "pair"}
    Path("settings.json").write_text(json.dumps(settings))
    changed = ("--config", "settings.json", "--set", "width=8", "--set", "message=key", "--set", "dropout=0.25")
    succeeds(command("fit", readings, "-o", "model", *changed, "--seed", 5, "--preset", "paper", "--quiet"))
    written = json.loads(Path("model/config.json").read_text())
    assert (written["model"]["width"], written["model"]["window"], written["model"]["message"]) == (8, 12, "key")
    assert (written["model"]["dropout"], written["training"]["hidden_shares"]) == (0.25, [0.3])
    assert (written["seed"], written["preset"], written["training"]["epochs"]) == (5, "paper", 1)


def test_tensorboard_logs_are_kept_with_the_model(command: Command, readings: str, tiny_options: list[str]) -> None:
    pytest.importorskip("tensorboard")
    succeeds(command("fit", readings, "-o", "model", "--tensorboard", *tiny_options))
    assert any(Path("model/tensorboard").iterdir())


# ---------------------------------------------------------------------- not losing things


def test_a_killed_training_is_resumed_and_ends_with_the_same_weights(
    command: Command, readings: str, tiny_options: list[str], shell: dict[str, str]
) -> None:
    options = [*tiny_options, "--set", "epochs=30", "--set", "batches_per_epoch=5", "--set", "patience=30"]
    succeeds(command("fit", readings, "-o", "whole", *options))
    checkpoint = Path("killed.training/checkpoint.safetensors")
    with subprocess.Popen(
        [sys.executable, "-m", "casper", "fit", readings, "-o", "killed", *options], env=shell
    ) as training:
        until = time.monotonic() + 120
        while not checkpoint.exists() and training.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        training.send_signal(signal.SIGKILL)
    assert training.returncode == -signal.SIGKILL
    assert checkpoint.exists()
    assert not Path("killed").exists()

    told = command("fit", readings, "-o", "killed", *options)
    assert told.code == 2
    assert "killed.training holds an unfinished training: continue it with --resume or discard it" in told.err
    succeeds(command("fit", readings, "-o", "killed", *options, "--resume"))
    assert Path("killed/model.safetensors").read_bytes() == Path("whole/model.safetensors").read_bytes()
    assert len(pd.read_csv("killed/metrics.csv")) == 30
    assert not checkpoint.parent.exists()


def test_an_unfinished_training_is_discarded_by_force(command: Command, readings: str, tiny_options: list[str]) -> None:
    Path("model.training").mkdir()
    Path("model.training/checkpoint.safetensors").write_bytes(b"rubbish")
    succeeds(command("fit", readings, "-o", "model", "--force", *tiny_options))
    assert not Path("model.training").exists()


def test_an_unfinished_training_survives_a_command_that_cannot_begin(
    command: Command, readings: str, tiny_options: list[str]
) -> None:
    Path("model.training").mkdir()
    Path("model.training/checkpoint.safetensors").write_bytes(b"hours of work")
    assert command("fit", "readnigs.csv", "-o", "model", "--force", *tiny_options).code == 2
    assert command("fit", readings, "-o", "model", "--force", "--set", "window=one").code == 2
    assert Path("model.training/checkpoint.safetensors").read_bytes() == b"hours of work"


def test_methods_without_a_network_have_nothing_to_keep(command: Command, readings: str) -> None:
    told = command("fit", readings, "-o", "model", "--method", "knn")
    assert told.code == 2
    assert "casper impute --method knn" in told.err
    assert "choose one of casper, mean" in command("fit", readings, "-o", "model", "--method", "magic").err


def test_ctrl_c_ends_in_a_sentence(
    command: Command, readings: str, tiny_options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(neural_module, "train", interrupted)
    told = command("fit", readings, "-o", "model", *tiny_options)
    assert told.code == 130
    assert told.err == "casper: stopped; an unfinished training continues with --resume\n"
    assert sorted(path.name for path in Path().iterdir()) == ["readings.csv", "sensors.csv"]


def test_nothing_is_overwritten_without_force(command: Command, readings: str, tiny_options: list[str]) -> None:
    Path("model").mkdir()
    Path("model/config.json").write_text("mine")
    Path("filled.csv").write_text("mine")
    for arguments in (("fit", readings, "-o", "model", *tiny_options), ("impute", readings, "-o", "filled.csv")):
        told = command(*arguments)
        assert told.code == 2
        assert "exists already; choose another name or pass --force" in told.err
    assert Path("filled.csv").read_text() == Path("model/config.json").read_text() == "mine"
    succeeds(command("fit", readings, "-o", "model", "--force", *tiny_options))
    succeeds(command("impute", readings, "--method", "mean", "-o", "filled.csv", "--force"))
    assert Path("model/config.json").read_text() != "mine"
    Path("model/thesis.txt").write_text("mine")
    told = command("fit", readings, "-o", "model", "--force", *tiny_options)
    assert told.code == 2
    assert "model holds thesis.txt, which CASPER did not write" in told.err
    assert Path("model/thesis.txt").exists()
    assert same_cells(readings, "filled.csv")


# ---------------------------------------------------------------------- benchmarks


def test_data_list_says_what_is_at_hand(command: Command, shared_data: Path) -> None:
    told = succeeds(command("data", "list", "--data-dir", shared_data)).out
    for name in datasets.NAMES:
        assert name in told
    assert "pems-bay.h5" in told  # is lacking, and the table says where to get it


def test_data_verify_checks_against_the_protocol(command: Command, shared_data: Path) -> None:
    told = succeeds(command("data", "verify", "aqi36", "--data-dir", shared_data)).out
    assert "35737" in told
    assert "WRONG" not in told


def test_data_verify_fails_on_other_bytes(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrong = [datasets.Check("scored cells", 3, 4)]
    monkeypatch.setattr(datasets, "at_hand", lambda *, data_dir: {"aqi36": (), "aqi": ("it lacks",)})
    monkeypatch.setattr(datasets, "verify", lambda name, *, data_dir: wrong)
    told = command("data", "verify", "--data-dir", tmp_path)
    assert told.code == 1
    assert "WRONG" in told.out


@pytest.mark.parametrize(
    ("name", "mae", "mse"), [("metr-la-point", 2.4355, 14.8119), ("metr-la-block", 3.2697, 33.8094)]
)
def test_linear_interpolation_scores_what_the_protocol_says(
    command: Command, shared_data: Path, name: str, mae: float, mse: float
) -> None:
    told = succeeds(command("evaluate", name, "--method", "linear", "--json", "--data-dir", shared_data))
    scores = json.loads(told.out)
    assert set(scores) == SCORES
    assert (round(scores["mae_step"], 4), round(scores["mse_step"], 4)) == (mae, mse)


def test_a_model_fitted_on_a_benchmark_is_scored_and_the_result_says_how(
    command: Command, shared_data: Path, tiny_options: list[str]
) -> None:
    short = ["--set", "epochs=1", "--set", "batches_per_epoch=2", "--data-dir", shared_data]
    succeeds(command("fit", "aqi36", "-o", "model", *tiny_options, *short))
    told = succeeds(
        command("evaluate", "aqi36", "--model", "model", "--data-dir", shared_data, "--out", "result.json", "--json")
    )
    scores = json.loads(told.out)
    assert set(scores) == SCORES
    assert (scores["dataset"], scores["method"], scores["n_scored"]) == ("aqi36", "casper", 20434)
    result = json.loads(Path("result.json").read_text())
    assert {name: result[name] for name in scores} == scores
    assert result["command"].startswith("casper evaluate aqi36 --model model")
    assert result["seed"] is None
    assert result["model"]["sensors"] == 36
    assert result["wall_seconds"] > 0
    assert {"commit", "device", "versions"} <= set(result)
    assert result["versions"]["torch"] == torch.__version__


def test_reproduce_does_the_runs_that_are_left_and_lists_them(
    command: Command,
    small_benchmark: datasets.Benchmark,
    monkeypatch: pytest.MonkeyPatch,
    tiny_settings: dict[str, Any],
) -> None:
    monkeypatch.setattr(datasets, "load", lambda name, **_: small_benchmark)
    chosen = ["reproduce", "ablation", "--row", "w/o PBD", "--seeds", "0,4", "--device", "cpu"]
    settings = [part for name, value in tiny_settings.items() for part in ("--set", f"{name}={value}")]
    listed = succeeds(command(*chosen, "--list", "--dataset", "aqi36")).out.splitlines()
    assert listed == [f"to do   results/ablation-aqi36-w-o-pbd-seed{seed}.json" for seed in (0, 4)]
    told = succeeds(command(*chosen, "--dataset", "aqi36", "--side-by-side", "2", *settings))
    assert "2 of 2 runs are in results" in told.out
    assert "ablation-aqi36-w-o-pbd-seed4: MAE" in told.err
    assert json.loads(Path("results/ablation-aqi36-w-o-pbd-seed4.json").read_text())["model"]["decoder"] == "mlp"
    assert succeeds(command(*chosen, "--list", "--dataset", "aqi36")).out.count("done") == 2


def test_reproduce_leaves_out_what_is_not_at_hand_unless_it_is_asked_for(command: Command, tmp_path: Path) -> None:
    told = succeeds(command("reproduce", "main", "--list", "--data-dir", tmp_path))
    assert told.out == ""
    assert "The readings of aqi, aqi36, metr-la-block" in told.err
    told = command("reproduce", "main", "--dataset", "aqi36", "--seeds", "0", "--data-dir", tmp_path)
    assert told.code == 2
    assert "aqi36" in told.err
    assert command("reproduce", "main", "--seeds", "one").code == 2
    assert command("reproduce", "mane").code == 2


def test_evaluate_shows_a_table_for_people(
    command: Command,
    small_benchmark: datasets.Benchmark,
    monkeypatch: pytest.MonkeyPatch,
    tiny_settings: dict[str, Any],
) -> None:
    monkeypatch.setattr(datasets, "load", lambda name, **_: small_benchmark)
    settings = [part for name, value in tiny_settings.items() for part in ("--set", f"{name}={value}")]
    told = succeeds(command("evaluate", "small", "--method", "casper", "--device", "cpu", "--out", "r.json", *settings))
    assert "casper on small" in told.out
    assert "per window" in told.out
    assert "epoch" in told.err
    assert json.loads(Path("r.json").read_text())["model"]["epochs"] == 2
    quiet = succeeds(command("evaluate", "small", "--method", "casper", "--device", "cpu", "-q", *settings))
    assert "epoch" not in quiet.err
    assert "per window" in quiet.out
    assert command("evaluate", "small", "--method", "mean", "--out", "r.json").code == 2
    succeeds(command("evaluate", "small", "--method", "mean", "--out", "r.json", "--force"))
    assert json.loads(Path("r.json").read_text())["seed"] == 0


def test_a_saved_model_of_the_command_line_is_one_of_the_package(
    command: Command, readings: str, tiny_options: list[str], tiny_settings: dict[str, Any], six_sensors: Simulation
) -> None:
    succeeds(command("fit", readings, "-o", "model", "--sensors", "sensors.csv", *tiny_options))
    table = pd.read_csv(readings, index_col=0, parse_dates=True)
    here = Casper(device="cpu", **tiny_settings).fit(table, sensors=six_sensors.sensors)
    loaded = Casper.from_pretrained("model", device="cpu")
    pd.testing.assert_frame_equal(loaded.impute(table), here.impute(table), rtol=1e-5)


def test_error_bars_are_written_for_every_filled_value(
    command: Command, readings: str, tiny_folder: Path, six_sensors: Simulation
) -> None:
    told = command(
        "impute",
        readings,
        "--model",
        tiny_folder,
        "-o",
        "filled.csv",
        "--error-bars",
        "bars.csv",
        "--device",
        "cpu",
        "-q",
    )
    assert told.code == 0, told.err
    bars = pd.read_csv("bars.csv")
    assert len(bars) == int(six_sensors.table.isna().to_numpy().sum())
    assert (bars["lower_0.9"] <= bars["lower_0.5"]).all()
    assert (bars["lower_0.5"] <= bars["value"]).all()
    assert (bars["value"] <= bars["upper_0.5"]).all()
    assert (bars["upper_0.5"] <= bars["upper_0.9"]).all()
    assert "bars.csv" in told.out


def test_filled_values_and_error_bars_look_like_the_table(
    command: Command, tiny_folder: Path, six_sensors: Simulation
) -> None:
    table = six_sensors.table.round(2)
    table.index = table.index.strftime("%d.%m.%Y %H:%M")
    table.to_csv("readings.csv", sep=";", decimal=",", index_label="Zeit")
    options = ("--model", tiny_folder, "--error-bars", "bars.csv", "--device", "cpu", "-q")
    succeeds(command("impute", "readings.csv", "-o", "filled.csv", *options))
    header, *rows = (line.split(";") for line in Path("bars.csv").read_text().splitlines())
    assert header[:3] == ["time", "sensor", "value"]
    assert len(rows) == int(table.isna().to_numpy().sum())
    filled = pd.read_csv("filled.csv", sep=";", dtype=str).set_index("Zeit")
    for row in rows:
        assert row[2] == filled.loc[row[0], row[1]]
        assert all(len(number.partition(",")[2]) <= 6 and "." not in number for number in row[2:-1])


def test_error_bars_can_be_calibrated_on_the_table_that_is_filled(
    command: Command, readings: str, tiny_folder: Path
) -> None:
    given = ("impute", readings, "--model", tiny_folder, "--device", "cpu", "-q", "-o")
    for name, options in (("as-saved", ()), ("anew", ("--calibrate",))):
        told = command(*given, f"{name}.csv", "--error-bars", f"{name}-bars.csv", *options)
        assert told.code == 0, told.err
    assert Path("as-saved.csv").read_bytes() == Path("anew.csv").read_bytes()
    before, after = (pd.read_csv(f"{name}-bars.csv") for name in ("as-saved", "anew"))
    assert (before["value"] == after["value"]).all()
    assert not np.allclose(before["upper_0.9"], after["upper_0.9"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--error-bars", "bars.xls"), ".csv or .parquet"),
        (("--error-bars", "bars.csv", "--intervals", "most"), "such as 0.5,0.9"),
        (("--error-bars", "bars.csv", "--intervals", "0.5,90"), "between 0 and"),
        (("--error-bars", "bars.csv", "--method", "mean"), "mean gives no error bars"),
        (("--error-bars", "bars.csv", "--calibrate"), "--calibrate is for fitted models"),
        (("--model", "somewhere", "--calibrate"), "--calibrate changes nothing but error bars"),
    ],
)
def test_error_bars_that_cannot_be_are_refused(
    command: Command, readings: str, options: tuple[str, ...], words: str
) -> None:
    told = command("impute", readings, "-o", "filled.csv", *options)
    assert told.code == 2
    assert words in told.err
    assert not Path("bars.csv").exists()


def test_what_has_no_error_bars_cannot_be_calibrated(command: Command) -> None:
    told = command("evaluate", "aqi36", "--method", "mean", "--calibrate")
    assert told.code == 2
    assert "mean gives no error bars" in told.err


def test_shipped_models_say_what_they_know(command: Command, tiny_folder: Path) -> None:
    told = command("models")
    assert told.code == 0
    assert "model demo" in told.out
    assert "validation mae" in told.out
    one = json.loads(command("models", tiny_folder, "--json").out)
    assert next(iter(one.values()))["sensors"] == 6
    assert command("models", "nothing").code == 2


def test_a_model_that_a_straight_line_beats_is_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    card = {
        "seconds": 1.0,
        "epochs": 1,
        "trained_on": "CPU",
        "best_epoch": 0,
        "validation_mae": 9.4,
        "validation_mae_of_linear_interpolation": 2.0,
        "most_of_the_error": "G05",
    }
    show_fitted(Path("model"), card)
    told = capsys.readouterr().err
    assert "Linear interpolation did better" in told
    assert "G05" in told
    assert "casper check" in told
    show_fitted(Path("model"), {**card, "validation_mae": 1.0})
    assert "same units" in capsys.readouterr().err
    show_fitted(Path("model"), {**card, "validation_mae": 1.0, "most_of_the_error": None})
    assert capsys.readouterr().err == ""
