"""Plots of measured runs: what they show, not how it looks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from casper.report.result_plots import (
    Curve,
    draw_pictures,
    gates_picture,
    learning_curves_picture,
    sensitivity_picture,
)
from casper.report.style import BLUE, VERMILLION
from casper.reproduction.results import read_results
from result_runs import put, put_run


def drawn(figure: Figure) -> list[Axes]:
    figure.canvas.draw()
    return figure.axes


def titles(figure: Figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in drawn(figure)]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def curves(folder: Path) -> list[Curve]:
    return [Curve.of_run(run) for group in read_results(folder).groups("main") for run in group.runs]


def test_only_plots_with_runs_are_drawn(tmp_path: Path) -> None:
    put(tmp_path, "a.json")
    assert draw_pictures(read_results(tmp_path)) == {}
    put_run(tmp_path, curve=[], decided=None)
    assert draw_pictures(read_results(tmp_path)) == {}
    put_run(tmp_path, "prompts", "200 prompts", value=200.0)
    assert list(draw_pictures(read_results(tmp_path))) == ["sensitivity-prompts.png"]
    put_run(tmp_path, seed=1)
    names = ["sensitivity-prompts.png", "gates.png", "learning-curves.png"]
    assert list(draw_pictures(read_results(tmp_path))) == names


# ---- sensitivity


def test_a_sensitivity_plot_shows_means_deviations_and_every_seed(tmp_path: Path) -> None:
    for number, value in enumerate((0.1, 0.001)):
        for seed, mae in enumerate((10.0, 10.2, 10.7)):
            put_run(tmp_path, "sparsity", f"lambda = {value}", seed, mae=mae + value, value=value, number=number)
    groups = read_results(tmp_path).groups("sparsity")
    figure = sensitivity_picture(groups)
    (axes,) = drawn(figure)
    (bars,) = axes.containers
    assert axes.get_xscale() == "log"
    assert bars[0].get_xdata() == pytest.approx([0.001, 0.1])
    assert bars[0].get_ydata() == pytest.approx([10.301, 10.4])
    (segments,) = bars[2]
    assert np.ptp(segments.get_segments()[0][:, 1]) == pytest.approx(2 * np.std([10.0, 10.2, 10.7], ddof=1))
    assert sum(len(line.get_xdata()) for line in axes.lines if line.get_linestyle() == "None") >= 6
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.001", "0.1"]
    assert axes.get_xlabel() == "lambda"


def test_zero_has_its_place_on_a_logarithmic_axis(tmp_path: Path) -> None:
    for number, value in enumerate((0.0, 1e-5, 1.0)):
        put_run(tmp_path, "sparsity", f"lambda = {value}", value=value, number=number)
    groups = read_results(tmp_path).groups("sparsity")
    (axes,) = drawn(sensitivity_picture(groups))
    assert axes.get_xscale() == "symlog"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "1e-05", "1"]
    places = axes.transData.transform([(value, 10.0) for value in (0.0, 1e-5, 1.0)])[:, 0]
    assert np.all(np.diff(places) > 40)


def test_a_single_seed_has_no_error_bar_and_prompts_a_linear_axis(tmp_path: Path) -> None:
    put_run(tmp_path, "prompts", "50 prompts", value=50.0)
    put_run(tmp_path, "prompts", "200 prompts", value=200.0, number=1, dataset="metr-la-point")
    figure = sensitivity_picture(read_results(tmp_path).groups("prompts"))
    assert titles(figure) == ["AQI-36", "METR-LA, point"]
    (bars,) = figure.axes[0].containers
    assert np.ptp(bars[2][0].get_segments()[0][:, 1]) == 0
    assert figure.axes[0].get_xscale() == "linear"


# ---- gates


def test_gates_are_the_mean_over_seeds_up_to_where_the_first_one_stopped(tmp_path: Path) -> None:
    for seed, epochs in enumerate((3, 2)):
        curve = [
            {"epoch": epoch, "validation_mae": 9.0, "decided": [0.1 * (epoch + seed), 0.5]} for epoch in range(epochs)
        ]
        put_run(tmp_path, seed=seed, curve=curve)
    put_run(tmp_path, "gates", "harder", dataset="metr-la-point")
    figure = gates_picture(read_results(tmp_path).groups("main", "gates"))
    assert titles(figure) == ["AQI-36: paper", "METR-LA, point: harder"]
    lines = [line for line in figure.axes[0].lines if line.get_linestyle() == "-"]
    assert [list(line.get_xdata()) for line in lines] == [[300, 600]] * 2
    assert lines[0].get_ydata() == pytest.approx([0.05, 0.15])
    assert lines[1].get_ydata() == pytest.approx([0.5, 0.5])
    assert legend(figure) == ["layer 1", "layer 2", "paper: 98% on AQI-36"]


def test_runs_without_gates_get_no_panel(tmp_path: Path) -> None:
    put_run(tmp_path)
    put_run(tmp_path, row="ungated", number=1, curve=[{"epoch": 0, "validation_mae": 9.0, "decided": None}])
    figure = draw_pictures(read_results(tmp_path))["gates.png"]
    assert titles(figure) == ["AQI-36: paper"]


# ---- learning curves


def test_learning_curves_have_a_line_for_each_seed_in_the_colour_of_its_preset(tmp_path: Path) -> None:
    for seed in range(3):
        put_run(tmp_path, seed=seed)
        put_run(tmp_path, row="best", number=1, seed=seed)
    put_run(tmp_path, row="own", number=2, dataset="metr-la-block", mae=1.9)
    figure = learning_curves_picture(curves(tmp_path))
    assert titles(figure) == ["AQI-36", "METR-LA, block"]
    assert [to_hex(line.get_color()).upper() for line in figure.axes[0].lines] == [BLUE] * 3 + [VERMILLION] * 3
    assert list(figure.axes[0].lines[0].get_xdata()) == [300, 600, 900]
    assert legend(figure) == ["paper", "best", "own"]


def test_high_errors_of_the_first_epochs_are_cut_off_but_no_run_disappears(tmp_path: Path) -> None:
    errors = {0: (90.0, 10.0), 1: (80.0, 30.0)}
    for seed, maes in errors.items():
        curve = [{"epoch": epoch, "validation_mae": mae, "decided": None} for epoch, mae in enumerate(maes)]
        put_run(tmp_path, seed=seed, curve=curve)
    (axes,) = drawn(learning_curves_picture(curves(tmp_path)))
    low, high = axes.get_ylim()
    assert low < 10.0
    assert 30.0 < high < 80.0


def test_curves_of_fitted_models_have_a_panel_of_their_own_and_more_labels_than_colours_more_styles() -> None:
    history = pd.DataFrame({"epoch": [0, 1, 2], "validation_mae": [3.0, np.nan, 2.0]})
    figure = learning_curves_picture([Curve.of_history(history, f"model {number}") for number in range(8)])
    assert titles(figure) == ["fitted models"]
    (axes,) = figure.axes
    assert axes.get_xlabel() == "epochs"
    assert list(axes.lines[0].get_xdata()) == [1, 3]
    looks = {(to_hex(line.get_color()), line.get_linestyle()) for line in axes.lines}
    assert len(looks) == 8
    assert len(legend(figure)) == 8


def test_both_sensitivities_stand_beside_each_other(tmp_path: Path) -> None:
    put_run(tmp_path, "sparsity", "lambda = 0.1", value=0.1)
    put_run(tmp_path, "prompts", "50 prompts", value=50.0)
    figure = sensitivity_picture(read_results(tmp_path).groups("sparsity", "prompts"))
    drawn(figure)
    assert [axes.get_xlabel() for axes in figure.axes] == ["lambda", "number of prompts"]
