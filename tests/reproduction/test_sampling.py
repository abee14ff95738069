"""The study of the diffusion models' steps and samples: what it asks for, does, and says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from casper.datasets import Benchmark
from casper.errors import InputError
from casper.methods import make_imputer
from casper.reproduction.page import page_text, write_page
from casper.reproduction.results import read_results
from casper.reproduction.sampling import SamplingRoom, SamplingTrial, do_sampling, sampling_trials


@pytest.fixture
def room(tmp_path: Path, small_benchmark: Benchmark) -> SamplingRoom:
    return SamplingRoom(tmp_path / "results", tmp_path / "work", lambda name: small_benchmark, "cpu")


@pytest.fixture
def fitted(room: SamplingRoom, small_benchmark: Benchmark) -> SamplingRoom:
    small = {"width": 8, "layers": 1, "heads": 1, "feed_forward": 8, "window": small_benchmark.window}
    short = {"epochs": 1, "batches_per_epoch": 4, "batch_size": 4, "samples": 2, "diffusion_steps": 12}
    model: Any = make_imputer("csdi", device="cpu", **small, **short)
    model.fit_benchmark(small_benchmark)
    folder = room.work / "baselines-aqi36-csdi-seed0"
    folder.mkdir(parents=True)
    model.save_pretrained(folder / "model")
    return room


def way(steps: int | None = None, samples: int = 3, row: str = "csdi") -> SamplingTrial:
    return SamplingTrial(row, "aqi36", 0, steps, samples)


def test_every_way_is_asked_for_once_and_ours_needs_one_pass() -> None:
    trials = sampling_trials()
    assert len({trial.name for trial in trials}) == len(trials)
    assert [trial.name for trial in trials if trial.row == "casper"] == ["sampling-aqi36-casper-one-pass-seed0"]
    assert {trial.row for trial in sampling_trials(rows=["csdi"])} == {"csdi"}
    assert {trial.seed for trial in sampling_trials(rows=["csdi"], seeds=[1, 2])} == {1, 2}
    with pytest.raises(InputError, match="has no row 'grin'"):
        sampling_trials(rows=["grin"])


def test_a_fitted_model_is_scored_with_the_steps_and_samples_asked_for(fitted: SamplingRoom) -> None:
    said: list[str] = []
    trials = [way(), way(5), way(5, 1)]
    assert do_sampling(trials, fitted, tell=said.append) == {}
    told = [json.loads(fitted.result_of(trial).read_text()) for trial in trials]
    assert [(one["steps"], one["samples"]) for one in told] == [(12, 3), (5, 3), (5, 1)]
    assert len({one["mae"] for one in told}) == 3, "they are not the same imputations"
    assert all(one["seconds_per_window"] > 0 and one["windows"] > 1 for one in told)
    assert said[0].startswith("sampling-aqi36-csdi-all-steps-3-samples-seed0: MAE ")
    before = fitted.result_of(trials[0]).read_bytes()
    assert do_sampling(trials, fitted, tell=said.append) == {}
    assert fitted.result_of(trials[0]).read_bytes() == before, "what is done is not done again"


def test_a_model_that_was_never_trained_is_told_and_costs_no_other(fitted: SamplingRoom) -> None:
    failed = do_sampling([way(5, 1, row="pristi"), way(5, 1)], fitted, tell=print)
    (words,) = failed.values()
    assert "casper reproduce baselines --dataset aqi36 --row pristi --seeds 0" in words
    assert fitted.done(way(5, 1))


def test_the_page_shows_them_beside_ours(fitted: SamplingRoom, tmp_path: Path) -> None:
    do_sampling([way(), way(5), way(5, 1)], fitted, tell=print)
    ours = json.loads(fitted.result_of(way()).read_text()) | {"row": "casper", "steps": None, "samples": 1, "mae": 9.5}
    fitted.result_of(way()).with_name("sampling-aqi36-casper-one-pass-seed0.json").write_text(json.dumps(ours))
    results = read_results(fitted.results)
    text = page_text(results)
    assert "## What sampling is worth" in text
    assert "| aqi36 | casper | one pass |  | 9.50 / " in text
    assert "| aqi36 | csdi | 5 | 1 | " in text
    written = write_page(results, tmp_path / "page.md")
    assert tmp_path / "images" / "sampling.png" in written


def test_the_command_lists_and_refuses(command: Callable[..., Any], tmp_path: Path) -> None:
    listed = command("reproduce", "sampling", "--list", "--row", "pristi", "--results", str(tmp_path))
    assert listed.code == 0, listed.err
    assert "to do" in listed.out
    assert "sampling-aqi36-pristi-all-steps-100-samples-seed0.json" in listed.out
    assert command("reproduce", "sampling", "--set", "samples=3").code == 2
