from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from casper import Casper
from casper.datasets import Benchmark
from casper.reproduction.runner import Workshop, do_runs
from casper.reproduction.tables import Run

Opened = Callable[..., Workshop]


def of_seed(seed: int, **settings: Any) -> Run:
    return Run("main", "paper", 0, "small", seed, settings=settings)


@pytest.fixture
def opened(tmp_path: Path, small_benchmark: Benchmark, tiny_settings: dict[str, Any]) -> Opened:
    def make(**options: Any) -> Workshop:
        settings = {"settings": tiny_settings, "load": lambda name: small_benchmark, "device": "cpu", **options}
        return Workshop(tmp_path / "results", tmp_path / "work", **settings)

    return make


def read(workshop: Workshop, run: Run) -> dict[str, Any]:
    return json.loads(workshop.result_of(run).read_text())


def test_a_run_leaves_a_result_file_that_tells_everything_and_a_model(opened: Opened, tmp_path: Path) -> None:
    workshop, said = opened(), []
    assert do_runs([of_seed(3)], workshop, tell=said.append) == {}
    told = read(workshop, of_seed(3))
    assert said == [f"main-small-paper-seed3: MAE {told['mae']:.3f}, MSE {told['mse']:.1f}"]
    assert (told["table"], told["row"]) == ("main", "paper")
    assert told["seed"] == 3
    assert told["steps"] == 20
    assert told["training"]["epochs"] == told["settings"]["epochs"] == 2
    assert told["model"]["width"] == 8
    assert [epoch["epoch"] for epoch in told["curve"]] == [0, 1]
    assert all(math.isfinite(told[name]) for name in ("mae", "mse", "mre", "mae_step", "validation_mae"))
    assert told["decided"] == pytest.approx(told["curve"][told["best_epoch"]]["decided"], abs=1e-4)
    assert {"command", "commit", "device", "versions", "wall_seconds", "training_seconds"} <= told.keys()
    model = Casper.from_pretrained(tmp_path / "work" / "main-small-paper-seed3" / "model", device="cpu")
    assert model.config.width == 8


def test_a_method_without_a_network_is_run_in_the_same_way(opened: Opened, tmp_path: Path) -> None:
    workshop = opened(settings=None)
    run = Run("baselines", "linear", 2, "small", 0, method="linear")
    assert do_runs([run], workshop, tell=print) == {}
    told = read(workshop, run)
    assert (told["method"], told["steps"], told["parameters"], told["curve"]) == ("linear", 0, 0, [])
    assert told["windows"] > 0
    assert told["imputing_seconds"] >= 0
    assert not (tmp_path / "work").exists()


def test_what_is_done_is_not_done_again(opened: Opened) -> None:
    do_runs([of_seed(0)], opened(), tell=print)
    before = opened().result_of(of_seed(0)).read_bytes()
    said: list[str] = []
    do_runs([of_seed(0)], opened(), tell=said.append)
    assert said == []
    assert opened().result_of(of_seed(0)).read_bytes() == before


def test_runs_side_by_side_give_what_they_give_one_by_one_and_a_failure_costs_no_other(
    opened: Opened, tmp_path: Path
) -> None:
    runs = [of_seed(seed) for seed in range(2)]
    one_by_one, together = opened(), opened(side_by_side=2)
    do_runs(runs, one_by_one, tell=print)
    alone = [read(one_by_one, run) for run in runs]
    (tmp_path / "results").rename(tmp_path / "before")
    (tmp_path / "work").rename(tmp_path / "work before")
    failed = do_runs([of_seed(7, colour="red"), *runs], together, tell=print)
    for run, wanted in zip(runs, alone, strict=True):
        got = read(together, run)
        assert got["mae"] == wanted["mae"]
        assert got["side_by_side"] == 2
    assert alone[0]["mae"] != alone[1]["mae"]
    assert list(failed) == ["main-small-paper-seed7"]
    assert "no setting colour" in failed["main-small-paper-seed7"]
    assert "Traceback" in (tmp_path / "work" / "main-small-paper-seed7" / "error.txt").read_text()


def test_an_interrupted_run_goes_on_where_it_was(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workshop = opened()
    do_runs([of_seed(0)], workshop, tell=print)
    whole = read(workshop, of_seed(0))
    workshop.result_of(of_seed(0)).unlink()

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("casper.reproduction.runner.evaluate", killed)
        with pytest.raises(KeyboardInterrupt):
            do_runs([of_seed(0)], workshop, tell=print)
    checkpoint = tmp_path / "work" / "main-small-paper-seed0" / "checkpoint.safetensors"
    left = checkpoint.stat().st_mtime_ns
    do_runs([of_seed(0)], workshop, tell=print)
    assert checkpoint.stat().st_mtime_ns == left, "nothing was trained again"
    assert read(workshop, of_seed(0))["mae"] == whole["mae"]


def test_a_run_that_fails_costs_no_other_and_leaves_its_traceback(opened: Opened, tmp_path: Path) -> None:
    workshop, said = opened(settings=None), []
    tiny = {"window": 12, "width": 8, "heads": 2, "layers": 1, "prompts": 8, "epochs": 1, "batches_per_epoch": 2}
    failed = do_runs([of_seed(0, **tiny, colour="red"), of_seed(1, **tiny)], workshop, tell=said.append)
    assert list(failed) == ["main-small-paper-seed0"]
    assert "no setting colour" in failed["main-small-paper-seed0"]
    assert "Traceback" in (tmp_path / "work" / "main-small-paper-seed0" / "error.txt").read_text()
    assert workshop.done(of_seed(1))
    assert not workshop.done(of_seed(0))


class _KillsItsProcess:
    """As when the machine runs out of memory: whoever unpacks it is gone."""

    def __reduce__(self) -> Any:
        return os._exit, (1,)


def test_runs_whose_process_was_killed_have_failed(opened: Opened) -> None:
    said: list[str] = []
    workshop = opened(side_by_side=2, load=lambda name: _KillsItsProcess())
    failed = do_runs([of_seed(0), of_seed(1)], workshop, tell=said.append)
    assert list(failed) == ["main-small-paper-seed0", "main-small-paper-seed1"]
    assert said[0] == "main-small-paper-seed0: its process ended before it did"


def test_settings_of_the_process_are_as_before(opened: Opened) -> None:
    do_runs([of_seed(0)], opened(), tell=print)
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
def test_runs_side_by_side_on_a_gpu_give_what_they_give_one_by_one(opened: Opened, tmp_path: Path) -> None:
    runs = [of_seed(seed) for seed in range(4)]
    do_runs(runs, opened(device="cuda"), tell=print)
    alone = [read(opened(), run) for run in runs]
    (tmp_path / "results").rename(tmp_path / "before")
    (tmp_path / "work").rename(tmp_path / "work before")
    assert do_runs(runs, opened(device="cuda", side_by_side=4), tell=print) == {}
    assert [read(opened(), run)["mae"] for run in runs] == [one["mae"] for one in alone]
