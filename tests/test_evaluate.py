from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from casper import evaluate as evaluate_module
from casper.baselines.mean import MeanImputer
from casper.datasets import Benchmark
from casper.errors import InputError
from casper.evaluate import device_name, evaluate, provenance, told_command, write_result


def test_the_score_of_the_mean_is_what_a_hand_calculation_gives(small_benchmark: Benchmark) -> None:
    imputer = MeanImputer()
    imputer.fit_benchmark(small_benchmark)
    scores = evaluate(imputer, small_benchmark)
    tested = small_benchmark.hidden & small_benchmark.test_steps[:, None]
    readable = np.where(small_benchmark.observed & ~tested, small_benchmark.values, np.nan)
    error = np.abs(small_benchmark.values - np.nanmean(readable, axis=0))[tested]
    assert scores["dataset"] == "small"
    assert scores["method"] == "mean"
    assert scores["n_scored"] == tested.sum()
    assert scores["mae_step"] == pytest.approx(error.mean(), rel=1e-12)
    assert scores["mse_step"] == pytest.approx((error**2).mean(), rel=1e-12)
    assert scores["mre_step"] == pytest.approx(100 * error.sum() / small_benchmark.values[tested].sum(), rel=1e-12)
    windows = [
        np.abs(small_benchmark.values - np.nanmean(readable, axis=0))[rows][small_benchmark.hidden[rows]]
        for rows in (slice(start, start + small_benchmark.window) for start in small_benchmark.test_starts)
    ]
    assert scores["mae"] == pytest.approx(np.concatenate(windows).mean(), rel=1e-12)


def test_an_imputer_must_be_fitted_to_be_scored(small_benchmark: Benchmark) -> None:
    with pytest.raises(InputError, match="not fitted yet"):
        evaluate(MeanImputer(), small_benchmark)


def test_a_figure_says_where_it_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/casper", "evaluate", "aqi36", "--out", "a file.json"])
    told = provenance(seed=7, device="a toaster", started=time.time() - 10)
    assert told["command"] == "casper evaluate aqi36 --out 'a file.json'"
    assert told["seed"] == 7
    assert told["device"] == "a toaster"
    assert told["versions"]["python"] == platform.python_version()
    assert told["versions"]["numpy"] == np.__version__
    assert 10 <= told["wall_seconds"] < 20


def git(folder: Path, *arguments: str) -> str:
    """In a checkout of our own, untouched by whatever the machine has configured."""
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false")
    told = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return told.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in which the package seems to live."""
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "theirs")
    (tmp_path / "evaluate.py").write_text("# as committed")
    monkeypatch.setattr(evaluate_module, "__file__", str(tmp_path / "evaluate.py"))
    return tmp_path


def commit() -> str | None:
    return provenance(seed=0, device="cpu", started=0.0)["commit"]


def test_the_commit_is_the_one_of_the_checkout_and_a_plus_means_that_files_differ(checkout: Path) -> None:
    git(checkout, "add", "evaluate.py")
    git(checkout, "commit", "-q", "-m", "ours")
    git(checkout, "tag", "-a", "v1", "-m", "a tag does not hide the commit")
    head = git(checkout, "rev-parse", "HEAD")
    assert commit() == head
    (checkout / "evaluate.py").write_text("# changed")
    assert commit() == f"{head}+"


def test_a_package_installed_in_somebody_elses_checkout_does_not_name_their_commit(checkout: Path) -> None:
    assert commit() is None


def test_without_git_there_is_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert commit() is None


def test_a_copy_on_another_machine_is_told_its_commit(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASPER_COMMIT", "abc")
    assert commit() == "abc"


def test_a_package_that_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise evaluate_module.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(evaluate_module.metadata, "version", missing)
    assert provenance(seed=0, device="cpu", started=0.0)["versions"]["torch"] is None


def test_a_device_is_named_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    assert "CPU" in device_name("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Big GPU")
    assert device_name("auto") == "Big GPU"
    assert "CPU" in device_name("cpu")


def test_a_result_is_a_json_file(tmp_path: Path) -> None:
    write_result(tmp_path / "result.json", {"mae": 1.5})
    assert json.loads((tmp_path / "result.json").read_text()) == {"mae": 1.5}
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_a_told_command_names_files_but_not_where_they_lie_on_this_machine(tmp_path: Path) -> None:
    told = told_command("python -m benchmarks.attention", ["--out", str(tmp_path / "a file.json"), "--steps", "3"])
    assert told == "python -m benchmarks.attention --out 'a file.json' --steps 3"
