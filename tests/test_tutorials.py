"""The tutorials run from top to bottom and leave what they promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"


def run(name: str, folder: Path, shell: dict[str, str]) -> str:
    command = [sys.executable, str(TUTORIALS / f"{name}.py"), str(folder)]
    done = subprocess.run(command, check=False, env=shell, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_tutorial_is_run_by_a_test() -> None:
    assert {path.stem for path in TUTORIALS.glob("*.py")} == {"fill_my_csv", "find_causes", "reproduce_aqi36"}


def test_a_csv_is_filled(tmp_path: Path, shell: dict[str, str]) -> None:
    told = run("fill_my_csv", tmp_path / "new", shell)
    assert "mean absolute error in the holes" in told
    for name in ("filled.csv", "filled-values.csv", "gaps.png", "filled.png", "model/model.safetensors"):
        assert (tmp_path / "new" / name).stat().st_size > 0


def test_causes_are_found(tmp_path: Path, shell: dict[str, str]) -> None:
    told = run("find_causes", tmp_path, shell)
    assert "AUROC" in told
    for name in ("truth", "graph", "why", "causes", "found-by-casper", "found-by-cuts"):
        assert (tmp_path / f"{name}.png").stat().st_size > 0


def test_aqi36_is_reproduced_where_it_is_at_hand(tmp_path: Path, shell: dict[str, str], shared_data: Path) -> None:
    if not (shared_data / "aqi36.parquet").exists():
        pytest.skip("AQI-36 is not at hand")
    told = run("reproduce_aqi36", tmp_path, {**shell, "CASPER_DATA": str(shared_data)})
    names = ("CASPER, half a minute", "linear interpolation")
    casper, linear = (float(re.findall(rf"{name}\s+([\d.]+)", told)[0]) for name in names)
    assert casper < linear
    assert (tmp_path / "errors.png").exists()


def test_aqi36_is_skipped_politely_where_it_is_not(tmp_path: Path, shell: dict[str, str]) -> None:
    told = run("reproduce_aqi36", tmp_path / "out", {**shell, "CASPER_DATA": str(tmp_path)})
    assert told.count("\n") == 1
    assert "nothing to reproduce" in told
