from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from casper.errors import InputError
from casper.report import pictures
from casper.report.pictures import (
    error_picture,
    filled_picture,
    gap_picture,
    learning_curve_picture,
    map_picture,
    save,
)
from casper.simulate import Simulation, simulate


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulate(sensors=8, steps=720, seed=1)


@pytest.fixture(scope="module")
def filled(simulation: Simulation) -> pd.DataFrame:
    return simulation.table.interpolate(limit_direction="both")


def scores() -> pd.DataFrame:
    return pd.DataFrame({"mae": [15.8, 9.1, 24.2]}, index=["linear", "CASPER", "mean"])


def draw(figure: Figure) -> Figure:
    figure.canvas.draw()
    return figure


def words(figure: Figure) -> str:
    return " | ".join(text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text")))


# ---- gaps


def shown_shares(figure: Figure) -> np.ndarray:
    (mesh,) = [item for item in figure.axes[0].collections if isinstance(item, QuadMesh)]
    return np.asarray(mesh.get_array())


def test_a_small_table_shows_every_cell(simulation: Simulation) -> None:
    observed = simulation.table.notna()
    figure = draw(gap_picture(observed, title="Where readings are missing"))
    np.testing.assert_array_equal(shown_shares(figure), ~observed.to_numpy().T)
    assert "Where readings are missing" in words(figure)
    assert f"{1 - observed.to_numpy().mean():.1%} missing" in words(figure)
    assert all(name in words(figure) for name in observed.columns)
    assert len(figure.axes) == 1


def test_a_large_table_is_binned_and_shows_the_missing_share() -> None:
    observed = pd.DataFrame(np.ones((5000, 900), dtype=bool), index=pd.date_range("2024", periods=5000, freq="5min"))
    observed.iloc[:2500, :450] = False
    figure = draw(gap_picture(observed))
    shares = shown_shares(figure)
    assert shares.shape == (pictures.MOST_SENSOR_BINS, pictures.MOST_TIME_BINS)
    assert shares[:200, :500].min() == 1
    assert shares[200:].max() == 0
    assert shares.mean() == pytest.approx(0.25)
    assert "missing share of the bin" in words(figure)


def test_a_bin_with_some_readings_shows_their_share() -> None:
    observed = pd.DataFrame({"a": np.arange(4000) % 4 > 0}, index=pd.date_range("2024", periods=4000, freq="1h"))
    np.testing.assert_allclose(shown_shares(gap_picture(observed)), 0.25)


def test_a_single_row_can_be_drawn() -> None:
    draw(gap_picture(pd.DataFrame({"a": [True]}, index=pd.DatetimeIndex(["2024-01-01"]))))


@pytest.mark.parametrize(
    "table", [pd.DataFrame({"a": [True]}), pd.DataFrame(index=pd.DatetimeIndex(["2024-01-01"])), pd.DataFrame()]
)
def test_a_table_without_times_or_sensors_is_refused(table: pd.DataFrame) -> None:
    with pytest.raises(InputError, match="time stamps"):
        gap_picture(table)


def test_times_are_shown_in_the_zone_of_the_table() -> None:
    index = pd.date_range("2024-06-01 00:00", periods=6, freq="1h", tz="Asia/Tokyo")
    figure = draw(gap_picture(pd.DataFrame({"a": [True] * 6}, index=index)))
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert "01:00" in labels
    assert "15:00" not in labels


# ---- filled values


def test_filled_values_are_drawn_in_the_gaps_only(simulation: Simulation, filled: pd.DataFrame) -> None:
    table = simulation.table
    figure = draw(filled_picture(table, filled, truth=simulation.complete, unit="ug/m3"))
    assert len(figure.axes) == 4
    for axes in figure.axes:
        name = axes.get_title(loc="left")
        measured, joined, markers, truth = (np.asarray(line.get_ydata()) for line in axes.lines)
        gap = np.isnan(measured)
        assert 0 < gap.sum() < len(gap)
        np.testing.assert_array_equal(np.isnan(markers), ~gap)
        assert set(markers[gap]) <= set(filled[name])
        assert np.isfinite(joined[gap]).all()
        assert set(truth[gap]) <= set(simulation.complete[name])
    assert "ug/m3" in words(figure)
    assert [text.get_text() for text in figure.legends[0].texts] == ["measured", "filled", "truth"]


def test_the_picked_period_is_about_ten_days_with_plenty_of_gaps(simulation: Simulation, filled: pd.DataFrame) -> None:
    quiet_first = simulation.table.copy()
    quiet_first.iloc[:400] = simulation.complete.iloc[:400]
    quiet_first["S3"] = simulation.complete["S3"]
    figure = filled_picture(quiet_first, filled)
    measured = figure.axes[0].lines[0]
    assert len(measured.get_ydata()) == 240
    assert measured.get_xdata()[0] > 19722 + 240 / 24  # later than the quiet days; day 19,723 is the first of 2024
    assert "S3" not in [axes.get_title(loc="left") for axes in figure.axes]


def test_sensors_and_period_can_be_chosen(simulation: Simulation, filled: pd.DataFrame) -> None:
    figure = filled_picture(simulation.table, filled, sensors=["S5"], period=("2024-01-03", "2024-01-04 12:00"))
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "S5"
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), simulation.table["S5"].iloc[48:85])
    assert [text.get_text() for text in figure.legends[0].texts] == ["measured", "filled"]


def test_chosen_sensors_decide_on_the_period(simulation: Simulation, filled: pd.DataFrame) -> None:
    table = simulation.complete.copy()
    table.iloc[600:640:3, 2] = np.nan
    table.iloc[10:50:3, 3] = np.nan
    figure = filled_picture(table, filled, sensors=["S3"])
    assert np.isnan(figure.axes[0].lines[0].get_ydata()).sum() == 14


def test_a_short_table_is_shown_whole(simulation: Simulation, filled: pd.DataFrame) -> None:
    figure = filled_picture(simulation.table.iloc[:50, :2], filled.iloc[:50, :2])
    assert len(figure.axes) == 2
    assert len(figure.axes[0].lines[0].get_ydata()) == 50


def test_a_period_may_be_given_in_another_zone(simulation: Simulation, filled: pd.DataFrame) -> None:
    table, given = simulation.table.tz_localize("Asia/Tokyo"), filled.tz_localize("Asia/Tokyo")
    utc = (pd.Timestamp("2024-01-02 00:00", tz="UTC"), pd.Timestamp("2024-01-02 09:00", tz="UTC"))
    local = ("2024-01-02 09:00", "2024-01-02 18:00")
    for period in (utc, local):
        figure = filled_picture(table, given, sensors=["S2"], period=period)
        np.testing.assert_array_equal(figure.axes[0].lines[0].get_ydata(), table["S2"].iloc[33:43])


def test_what_does_not_fit_the_table_is_refused(simulation: Simulation, filled: pd.DataFrame) -> None:
    table = simulation.table
    with pytest.raises(InputError, match="filled: its times and sensors differ"):
        filled_picture(table, filled.iloc[1:])
    with pytest.raises(InputError, match="truth: its times and sensors differ"):
        filled_picture(table, filled, truth=simulation.complete.iloc[:, ::-1])
    with pytest.raises(InputError, match=r"'S99' is not in the table; it has S1, S2, S3, S4, S5 and 3 more"):
        filled_picture(table, filled, sensors=["S1", "S99"])
    with pytest.raises(InputError, match="choose it within 2024-01-01"):
        filled_picture(table, filled, period=("2030-01-01", "2030-02-01"))
    with pytest.raises(InputError, match="no pair of times"):
        filled_picture(table, filled, period=("2024-01-01", "later"))


# ---- map


def arrows(figure: Figure) -> list[FancyArrowPatch]:
    return [patch for patch in figure.axes[0].patches if isinstance(patch, FancyArrowPatch)]


def test_every_edge_is_an_arrow_and_the_strongest_is_the_widest(simulation: Simulation) -> None:
    figure = draw(map_picture(simulation.sensors, simulation.edges, ridge=simulation.ridge, title="The true graph"))
    drawn = arrows(figure)
    assert len(drawn) == len(simulation.edges) > 3
    widths = [arrow.get_linewidth() for arrow in drawn]
    assert widths == sorted(widths)
    strengths = sorted(simulation.edges["weight"] / simulation.edges["weight"].max())
    assert np.corrcoef(widths, strengths)[0, 1] == pytest.approx(1)
    text = words(figure)
    for expected in ("The true graph", f"{len(drawn)} edges", "lag (time steps)", "ridge", "S8"):
        assert expected in text
    latitude = np.radians(simulation.sensors["latitude"].mean())
    assert figure.axes[0].get_aspect() == pytest.approx(1 / np.cos(latitude))


def three_sensors() -> pd.DataFrame:
    return pd.DataFrame({"id": ["a", "b", "c"], "latitude": [50.0, 50.1, 50.2], "longitude": [8.0, 8.3, 8.1]})


def test_a_pair_shows_its_strongest_lag_and_no_sensor_points_at_itself() -> None:
    edges = pd.DataFrame(
        {
            "source": ["a", "a", "b", "c"],
            "target": ["b", "b", "a", "c"],
            "lag": [1, 4, 2, 1],
            "weight": [0.2, -0.9, 0.3, 5.0],
        }
    )
    figure = draw(map_picture(three_sensors(), edges))
    weak, strong = arrows(figure)
    assert weak.get_linewidth() < strong.get_linewidth()
    assert to_hex(weak.get_edgecolor()) != to_hex(strong.get_edgecolor())
    assert list(figure.axes[1].get_yticks()) == [2, 3, 4]


def test_too_many_edges_show_the_strongest_and_say_so() -> None:
    network = simulate(sensors=60, steps=60)
    figure = draw(map_picture(network.sensors, network.edges, most_edges=20))
    assert len(arrows(figure)) == 20
    assert f"the strongest 20 of {len(network.edges)} edges" in words(figure)
    assert "S01" not in words(figure)


def test_a_graph_without_edges_shows_the_sensors() -> None:
    none = pd.DataFrame({"source": [], "target": [], "lag": [], "weight": []})
    figure = draw(map_picture(three_sensors(), none))
    assert arrows(figure) == []
    assert "3 sensors, 0 edges" in words(figure)


def test_a_sensor_list_with_the_ids_in_its_index_is_understood() -> None:
    edges = pd.DataFrame({"source": ["a"], "target": ["b"], "lag": [1], "weight": [0.2]})
    assert len(arrows(map_picture(three_sensors().set_index("id"), edges))) == 1


def test_edges_that_cannot_be_placed_are_refused() -> None:
    edges = pd.DataFrame({"source": ["a"], "target": ["z"], "lag": [1], "weight": [0.2]})
    with pytest.raises(InputError, match="sensor 'z' has no coordinates"):
        map_picture(three_sensors(), edges)
    with pytest.raises(InputError, match="edges: the column 'lag' is missing"):
        map_picture(three_sensors(), edges.drop(columns="lag"))


# ---- scores and learning curve


def test_methods_are_sorted_by_error_and_the_best_stands_out() -> None:
    figure = draw(error_picture(scores(), unit="ug/m3"))
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["CASPER", "linear", "mean"]
    assert axes.yaxis_inverted()
    colours = [to_hex(bar.get_facecolor()) for bar in axes.patches]
    assert colours[0] != colours[1] == colours[2]
    assert [bar.get_width() for bar in axes.patches] == [9.1, 15.8, 24.2]
    assert "mean absolute error (ug/m3)" in words(figure)


def test_a_score_that_is_no_number_is_refused() -> None:
    bad = scores()
    bad.loc["linear", "mae"] = np.nan
    with pytest.raises(InputError, match="'linear' has no finite error"):
        error_picture(bad)
    with pytest.raises(InputError, match="column 'mae' is missing; it has rmse"):
        error_picture(bad.rename(columns={"mae": "rmse"}))


def test_the_learning_curve_marks_the_best_epoch_and_skips_unvalidated_ones() -> None:
    history = pd.DataFrame(
        {"epoch": [1, 2, 3, 4], "train_loss": [4.0, 3.0, 2.0, 1.0], "validation_mae": [9.0, np.nan, 7.25, 8.0]}
    )
    figure = draw(learning_curve_picture(history, unit="ug/m3"))
    upper, lower = figure.axes
    assert len(upper.lines[0].get_xdata()) == 4
    assert list(lower.lines[0].get_xdata()) == [1, 3, 4]
    assert "best: 7.25 in epoch 3" in words(figure)


def test_a_learning_curve_without_validation_has_no_best_epoch() -> None:
    history = pd.DataFrame({"epoch": [1, 2], "train_loss": [2.0, 1.0], "validation_mae": [np.nan, np.nan]})
    figure = draw(learning_curve_picture(history))
    assert "best" not in words(figure)
    with pytest.raises(InputError, match="'train_loss' is missing"):
        learning_curve_picture(history.drop(columns="train_loss"))


# ---- saving


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".PDF", b"%PDF")])
def test_a_figure_is_saved_by_its_suffix_and_always_alike(tmp_path: Path, suffix: str, start: bytes) -> None:
    first = save(error_picture(scores()), tmp_path / "new" / f"one{suffix}")
    second = save(error_picture(scores()), tmp_path / "new" / f"two{suffix}")
    assert first.read_bytes().startswith(start)
    assert first.read_bytes() == second.read_bytes()


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"picture\.gif: pictures are written as \.png, \.svg, \.pdf"):
        save(error_picture(scores()), tmp_path / "picture.gif")


def test_pyplot_is_never_loaded(shell: dict[str, str]) -> None:
    code = (
        "import sys, pandas as pd; from casper.report.pictures import error_picture; "
        "error_picture(pd.DataFrame({'mae': [1.0]}, index=['a'])).canvas.draw(); "
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, env=shell).returncode == 0
