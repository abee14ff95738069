"""The demo, with the weights that come with the package."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from casper.causal import CausalGraph
from casper.commands import demo
from casper.commands.demo import DemoResult, run_demo
from casper.discovery.systems import wind_blown
from casper.errors import InputError, MissingPackageError

PICTURES = {"gaps.png", "filled.png", "errors.png", "true_graph.png", "found_graph.png"}
TABLES = {"readings.csv", "filled.csv", "sensors.csv", "graph.json"}
PAGE = {"report.html"} if importlib.util.find_spec("plotly") else set[str]()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DemoResult]:
    out = tmp_path_factory.mktemp("demo") / "out"
    return out, run_demo(out, force=False)


def test_casper_is_first_and_at_least_a_fifth_better_than_linear_interpolation(
    shown: tuple[Path, DemoResult],
) -> None:
    mae = shown[1].scores["mae"]
    assert mae.index[0] == "CASPER"
    assert mae["CASPER"] <= 0.8 * mae["linear interpolation"]
    assert mae.is_monotonic_increasing


def test_every_file_is_there_and_none_is_empty(shown: tuple[Path, DemoResult]) -> None:
    out, result = shown
    assert {path.name for path in out.iterdir()} == PICTURES | TABLES | PAGE
    assert set(result.files) == {out / name for name in PICTURES | TABLES | PAGE}
    assert all(path.stat().st_size > 500 for path in out.iterdir())
    for name in PICTURES:
        assert (out / name).read_bytes().startswith(b"\x89PNG")


def test_the_filled_table_keeps_the_readings_and_has_no_holes(shown: tuple[Path, DemoResult]) -> None:
    out, result = shown
    readings = pd.read_csv(out / "readings.csv", index_col=0)
    filled = pd.read_csv(out / "filled.csv", index_col=0)
    assert readings.isna().to_numpy().sum() == result.hidden
    assert filled.notna().to_numpy().all()
    measured = readings.notna()
    assert (filled.where(measured, 0.0) == readings.where(measured, 0.0)).all(axis=None)


def test_the_command_shows_the_scores_and_the_files(
    shown: tuple[Path, DemoResult], command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, result = shown
    monkeypatch.setattr(demo, "run_demo", lambda folder, *, force: result)
    told = command("demo", "--out", out)
    assert told.code == 0
    assert "CASPER" in told.out
    assert "worse than CASPER by" in told.out
    assert all(str(path) in told.out for path in result.files)


def test_an_existing_folder_is_refused_before_any_work_is_done(
    tmp_path: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "simulate", lambda **_: pytest.fail("worked in vain"))
    (tmp_path / "filled.csv").write_text("old")
    told = command("demo", "--out", tmp_path)
    assert told.code == 2
    assert told.err.startswith(f"casper: error: {tmp_path} exists already")
    assert "--force" in told.err


def test_with_force_the_folder_is_replaced_only_when_all_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "filled.csv").write_text("old")

    def no_more(figure: object, path: Path) -> Path:
        raise InputError("the disk is full")

    made = demo.simulate(sensors=24, steps=48, seed=0)
    monkeypatch.setattr(demo, "simulate", lambda **_: made)
    monkeypatch.setattr(demo.pictures, "save", no_more)
    with pytest.raises(InputError, match="disk is full"):
        run_demo(out, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in out.iterdir()] == ["filled.csv"]
    monkeypatch.undo()
    monkeypatch.setattr(demo, "simulate", lambda **_: made)
    run_demo(out, force=True)
    assert {path.name for path in out.iterdir()} == PICTURES | TABLES | PAGE


def test_without_plotly_the_demo_ends_without_a_report_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise MissingPackageError("plotly", extra="report", purpose="A report")

    made = demo.simulate(sensors=24, steps=48, seed=0)
    monkeypatch.setattr(demo, "simulate", lambda **_: made)
    monkeypatch.setattr(demo, "write_report", missing)
    result = run_demo(tmp_path / "out", force=False)
    assert {path.name for path in (tmp_path / "out").iterdir()} == PICTURES | TABLES
    assert "There is no report" in result.about
    assert "pip install 'casper-impute[report]'" in result.about


def test_hardly_any_of_the_arrows_found_crosses_the_ridge(shown: tuple[Path, DemoResult]) -> None:
    found = CausalGraph.read(shown[0] / "graph.json").without_self()
    system = wind_blown(sensors=24, steps=2160, seed=0)
    pairs = found.matrix().to_numpy()
    strongest = np.argsort(-pairs, axis=None)[: int(system.truth.sum())]
    assert system.beyond is not None
    assert system.beyond.ravel()[strongest].mean() < 0.1, "although both sides share a background"
    assert found.compare(system.truth)["auroc"] > 0.85
