from __future__ import annotations

import pytest

from casper import Casper, InputError
from casper.config import benchmark_settings
from casper.methods import METHODS, has_network
from casper.reproduction.tables import TABLES, Run, runs_of


def test_the_main_table_has_five_seeds_of_aqi36_and_three_of_the_others() -> None:
    runs = runs_of("main")
    counted = {name: sum(run.dataset == name and run.row == "paper" for run in runs) for name in TABLES["main"].seeds}
    assert counted == {
        "aqi36": 5, "metr-la-point": 3, "metr-la-block": 3, "aqi": 3, "pems-bay-point": 3, "pems-bay-block": 3
    }  # fmt: skip
    assert {run.preset for run in runs if run.row == "best"} == {"best"}


def test_every_method_is_a_row_of_the_baselines_and_only_what_is_random_has_several_seeds() -> None:
    runs = [run for run in runs_of("baselines") if run.dataset == "aqi36"]
    assert {run.method for run in runs} == set(METHODS) - {"casper"}
    seeds = {name: [run.seed for run in runs if run.method == name] for name in METHODS}
    assert seeds["mice"] == [0]
    assert seeds["grin"] == [0, 1, 2]
    for run in runs:
        assert has_network(run.method) == (len(seeds[run.method]) > 1)


@pytest.mark.parametrize("table", [name for name in TABLES if name != "baselines"])
def test_every_run_has_a_name_of_its_own_and_settings_that_the_model_takes(table: str) -> None:
    runs = runs_of(table)
    assert len({run.name for run in runs}) == len(runs)
    for run in runs:
        Casper(preset=run.preset, **{**benchmark_settings(run.preset, run.dataset), **run.settings})


def test_the_ablation_has_every_row_of_the_papers_table_in_its_order_and_one_schedule() -> None:
    runs = [run for run in runs_of("ablation") if run.seed == 0]
    assert [run.number for run in runs] == list(range(11))
    assert {run.settings["epochs"] * run.settings["batches_per_epoch"] for run in runs} == {9_000}
    assert runs[4].settings.items() >= {"decoder": "mlp", "gate": "none", "graph": False}.items()


def test_every_row_is_done_once_before_any_is_done_with_the_next_seed() -> None:
    seeds = [run.seed for run in runs_of("ablation")]
    assert seeds == sorted(seeds)


def test_runs_can_be_chosen() -> None:
    runs = runs_of("main", datasets=["aqi36"], rows=["paper"], seeds=[7, 8])
    assert [(run.dataset, run.row, run.seed) for run in runs] == [("aqi36", "paper", 7), ("aqi36", "paper", 8)]


def test_a_name_is_fit_for_a_file() -> None:
    run = Run("ablation", "prompts: K-means centres (max)", 5, "aqi36", 2)
    assert run.name == "ablation-aqi36-prompts-k-means-centres-max-seed2"


def test_plots_know_where_their_points_are() -> None:
    assert [run.value for run in runs_of("prompts", seeds=[0])] == [1, 50, 200, 500, 1000, 1400, 2000]


@pytest.mark.parametrize(
    ("table", "options", "said"),
    [
        ("mane", {}, "no table 'mane'; choose one of main, ablation"),
        ("ablation", {"datasets": ["metr-la"]}, "no data set 'metr-la'; it has aqi36"),
        ("main", {"rows": ["worst"]}, "no row 'worst'; it has paper, best"),
    ],
)
def test_what_is_not_there_is_refused(table: str, options: dict[str, list[str]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        runs_of(table, datasets=options.get("datasets", ()), rows=options.get("rows", ()))
