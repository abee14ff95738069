from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from casper.causal import CausalGraph
from casper.discovery import trials
from casper.discovery.systems import SYSTEMS
from casper.discovery.trials import Trial, TrialRoom, do_trials, system_of, trials_of
from casper.errors import InputError
from casper.report.found_picture import found_picture
from casper.report.result_plots import discovery_picture
from casper.reproduction.markdown import table
from casper.reproduction.trial_results import read_trials, trials_section
from casper.simulate import simulate


def test_a_table_lists_every_method_on_every_series_once() -> None:
    dream = trials_of("dream3")
    assert len(dream) == 5 * 10
    assert {one.dataset for one in dream} == {"ecoli1", "ecoli2", "yeast1", "yeast2", "yeast3"}
    simulated = trials_of("causal-simulated")
    assert {one.row for one in dream} - {one.row for one in simulated} == {
        "CASPER, the paper's recipe", "PCMCI, lags chosen",
    }  # fmt: skip
    assert len({one.name for one in simulated}) == len(simulated)
    assert len({one.dataset for one in simulated}) == len(SYSTEMS) * 5
    seeds = {one.dataset: one.seed for one in simulated}  # the last of each
    assert {name for name, last in seeds.items() if last == 2} == {"wind, 30 % points", "wind, 30 % blocks"}
    assert {last for last in seeds.values() if last != 2} == {0}
    few = trials_of("dream3", datasets=["yeast1"], rows=["NGM"], seeds=[3, 4])
    assert [(one.dataset, one.method, one.seed) for one in few] == [("yeast1", "ngm", 3), ("yeast1", "ngm", 4)]
    for wrong in ({"datasets": ["human1"]}, {"rows": ["magic"]}):
        with pytest.raises(InputError, match="the table dream3 has no"):
            trials_of("dream3", **wrong)


@pytest.fixture
def guessing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every method knows the truth of the system, a little blurred by its name."""

    def find(series: Any, *, method: str, seed: int, device: str, **settings: Any) -> CausalGraph:
        if method == "ngm":
            raise RuntimeError("out of luck")
        truth = SYSTEMS["var"](seed=seed).truth
        noise = np.random.default_rng(len(method)).random(truth.shape)
        return CausalGraph.from_matrix(truth + 2 * noise, list(series.columns), origin={"settings": settings})

    monkeypatch.setattr(trials, "discover", find)


@pytest.mark.usefixtures("guessing")
def test_trials_are_scored_written_and_not_done_twice(tmp_path: Path) -> None:
    wanted = trials_of("causal-simulated", datasets=["var, 30 % points"], rows=["NGC", "NGM", "CUTS"])
    heard: list[str] = []
    failed = do_trials(wanted, TrialRoom(tmp_path, "cpu"), tell=heard.append)
    assert list(failed) == ["causal-simulated-var-30-points-ngm-seed0"]
    assert "out of luck" in failed[wanted[1].name]
    told = json.loads((tmp_path / "causal" / f"{wanted[0].name}.json").read_text())
    assert told["row"] == "NGC"
    assert told["scores"]["offdiag"]["pairs"] == 90
    assert told["scores"]["cuts"]["pairs"] == 100
    assert told["across"] is None
    assert {"command", "commit", "device", "versions", "wall_seconds", "seed"} <= told.keys()
    assert f"{told['scores']['offdiag']['auroc']:.4f}" in heard[0]
    again: list[str] = []
    do_trials(wanted, TrialRoom(tmp_path, "cpu"), tell=again.append)
    assert len(again) == 1, "only the one that failed is tried again"

    page = trials_section(read_trials(tmp_path), pictures=["causal-simulated.png"])
    assert f"| NGC | {told['scores']['offdiag']['auroc']:.4f} |" in page
    assert "images/causal-simulated.png" in page
    assert discovery_picture(read_trials(tmp_path)).axes


def test_a_network_with_places_is_scored_between_neighbours_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(series: Any, **_: Any) -> CausalGraph:
        noise = np.random.default_rng(0).random((series.shape[1], series.shape[1]))
        return CausalGraph.from_matrix(noise, list(series.columns))

    monkeypatch.setattr(trials, "discover", find)
    wanted = trials_of("causal-simulated", datasets=["wind, complete"], rows=["NGC"])
    do_trials(wanted, TrialRoom(tmp_path, "cpu"), tell=print)
    scores = json.loads((tmp_path / "causal" / f"{wanted[0].name}.json").read_text())["scores"]
    assert scores["neighbours"]["auroc"] > 0.6 + scores["offdiag"]["auroc"] - 0.5, "most true edges join neighbours"
    (read,) = read_trials(tmp_path)
    page = trials_section([read], pictures=["causes-found.png"])
    assert f"| NGC | {scores['neighbours']['auroc']:.4f} |" in page
    assert "images/causes-found.png" in page
    assert read.strongest is not None
    made = simulate(seed=0, holes=None)
    assert len(read.strongest) == len(made.edges)
    truth, found = found_picture(read).axes
    assert len(truth.patches) == len(found.patches) == len(made.edges)
    hits = {tuple(pair) for pair in read.strongest} & set(zip(made.edges["source"], made.edges["target"], strict=True))
    assert f"{len(hits) / len(made.edges):.0%} true" in found.get_title(loc="left")
    assert read.across is not None
    assert f"{read.across:.0%} across the ridge" in found.get_title(loc="left")


def test_stability_is_told_by_how_many_of_its_pairs_are_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(series: Any, *, refits: int, **_: Any) -> CausalGraph:
        assert refits == 10
        truth = SYSTEMS["var"](seed=0).truth  # ten variables, of which each has two causes
        source, target = np.nonzero(~np.eye(10, dtype=bool))
        names = np.asarray(series.columns)
        stability = np.where(truth[source, target], 0.9, 0.1)
        stability[np.flatnonzero(truth[source, target])[0]] = 0.6
        edges = {"source": names[source], "target": names[target], "weight": 1.0, "stability": stability}
        return CausalGraph.build(list(names), pd.DataFrame(edges))

    monkeypatch.setattr(trials, "discover", find)
    wanted = trials_of("stability", datasets=["var, 30 % points"], rows=["NGC"])
    do_trials(wanted, TrialRoom(tmp_path, "cpu"), tell=print)
    page = trials_section(read_trials(tmp_path), pictures=())
    assert "| var, 30 % points | NGC | 0 of 70 (0%) | none | none | 1 of 1 (100%) | 19 of 19 (100%) |" in page
    assert "Causal discovery where the truth is known" not in page, "it has a section of its own"
    with pytest.raises(InputError, match="the table stability has no row 'CUTS'"):
        trials_of("stability", rows=["CUTS"])


def test_a_system_is_named_by_what_is_missing() -> None:
    assert system_of("var, complete", seed=0).series.notna().all().all()
    assert system_of("lorenz, 60 % blocks", seed=0).series.isna().to_numpy().mean() == pytest.approx(0.6, abs=0.02)


def test_dream3_is_told_under_both_conventions_with_the_published_mean(tmp_path: Path) -> None:
    folder = tmp_path / "causal"
    folder.mkdir()
    for number, name in enumerate(("ecoli1", "ecoli2", "yeast1", "yeast2", "yeast3")):
        record = {
            **vars(Trial("dream3", "NGC", 3, name, "ngc")),
            "scores": {kind: {"auroc": 0.5 + number / 100, "auprc": 0.1} for kind in ("cuts", "offdiag")},
            **{"across": None, "seconds": 1.0, "command": "casper reproduce dream3", "commit": "abc", "device": "cpu"},
        }
        (folder / f"{name}.json").write_text(json.dumps(record))
    page = trials_section(read_trials(tmp_path), pictures=())
    assert "| NGC | 0.5000 | 0.5100 | 0.5200 | 0.5300 | 0.5400 | 0.5200 | 0.1000 | 0.5579 |" in page
    assert "| NGC | 0.5000 | 0.5100 | 0.5200 | 0.5300 | 0.5400 | 0.5200 | 0.1000 |\n" in page
    (folder / "yeast3.json").unlink()
    assert "| 0.5300 |  |  | 0.5579 |" in trials_section(read_trials(tmp_path), pictures=()), "no mean of four"
    (folder / "yeast2.json").write_text("{}")
    with pytest.raises(InputError, match="does not say its table"):
        read_trials(tmp_path)


def test_several_seeds_are_told_by_their_mean_and_deviation(tmp_path: Path) -> None:
    folder = tmp_path / "causal"
    folder.mkdir()
    for seed, auroc in enumerate((0.8, 0.9)):
        record = {
            **vars(Trial("causal-simulated", "NGC", 3, "wind, 30 % points", "ngc", seed)),
            "scores": {kind: {"auroc": auroc, "auprc": 0.1} for kind in ("cuts", "offdiag", "neighbours")},
            **{"across": 0.1 * seed, "seconds": 1.0, "command": "casper reproduce", "commit": "abc", "device": "cpu"},
        }
        (folder / f"{seed}.json").write_text(json.dumps(record))
    page = trials_section(read_trials(tmp_path), pictures=())
    assert page.count("| NGC | 0.8500 ± 0.071 (2 seeds) |") == 2, "of all pairs, and of neighbours"
    assert "| NGC | 5% |" in page


def test_cells_of_a_table_may_hold_bars() -> None:
    assert table(["a|b"], [["c|d"]]) == "| a\\|b |\n|---|\n| c\\|d |"
