from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.text import Annotation

from casper.causal import CausalGraph
from casper.report.graph_pictures import draw_graph, graph_picture, map_picture
from casper.report.style import BLUE


def draw(figure: Figure) -> Figure:
    figure.canvas.draw()
    return figure


def words(figure: Figure) -> str:
    return " | ".join(text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text")))


def arrows(axes: Axes) -> list[FancyArrowPatch]:
    return [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]


def line_of(count: int, *, up: float, across: float) -> pd.DataFrame:
    """Sensors along a straight road."""
    along = np.linspace(0, 1, count)
    names = [f"sensor {number}" for number in range(count)]
    return pd.DataFrame({"id": names, "latitude": 50 + up * along, "longitude": 8 + across * along})


def chain(places: pd.DataFrame, **lag: object) -> CausalGraph:
    names = list(places["id"])
    edges = pd.DataFrame({"source": names[:-1], "target": names[1:], "weight": np.linspace(1, 2, len(names) - 1)})
    return CausalGraph.build(names, edges.assign(**lag))


def cluster(count: int) -> pd.DataFrame:
    """Many sensors close to each other and a few far away, as in a city."""
    random = np.random.default_rng(0)
    places = random.normal(scale=0.02, size=(count, 2))
    places[:4] = [(0.5, 0.5), (-0.5, 0.5), (0.5, -0.5), (-0.5, -0.5)]
    names = [f"00{number:04d}" for number in range(count)]
    return pd.DataFrame({"id": names, "latitude": 40 + places[:, 0], "longitude": 116 + places[:, 1]})


# ---- maps


@pytest.mark.parametrize("places", [line_of(3, up=1, across=0.01), line_of(3, up=0.01, across=1), cluster(36)])
def test_everything_on_a_map_lies_within_the_picture(places: pd.DataFrame) -> None:
    figure = draw(
        graph_picture(chain(places, lag=1), places, title="What each sensor is filled from (a-long-name.csv)")
    )
    whole = figure.bbox
    axes = figure.axes[0]
    for text in (figure._suptitle, axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label):
        box = text.get_window_extent()
        assert box.width == 0 or (whole.x0 <= box.x0 and box.x1 <= whole.x1), text.get_text()
        assert box.height == 0 or (whole.y0 <= box.y0 and box.y1 <= whole.y1), text.get_text()
    shape = axes.get_window_extent()
    assert 0.5 < shape.width / shape.height < 2, "a road has room for its arrows"


@pytest.mark.parametrize("places", [cluster(36), line_of(10, up=0.3, across=0.2)])
def test_names_do_not_cover_each_other(places: pd.DataFrame) -> None:
    figure = draw(graph_picture(chain(places, lag=1), places))
    labels = [
        text for text in figure.axes[0].texts if isinstance(text, Annotation) and text.get_text() in set(places.id)
    ]
    assert len(labels) == len(places)
    for label in labels:
        label.arrow_patch = label.arrowprops = None  # lines to their places may cross
    boxes = [label.get_window_extent() for label in labels]
    covered = sum(one.overlaps(other) for place, one in enumerate(boxes) for other in boxes[:place])
    assert covered == 0


def test_edges_without_lags_have_one_colour_and_no_colour_bar() -> None:
    places = line_of(4, up=0.3, across=0.2)
    figure = draw(graph_picture(chain(places), places))
    (axes,) = figure.axes
    assert {to_hex(arrow.get_edgecolor()).upper() for arrow in arrows(axes)} == {BLUE}


def test_a_single_lag_is_told_in_words() -> None:
    places = line_of(4, up=0.3, across=0.2)
    figure = draw(graph_picture(chain(places, lag=2), places))
    assert len(figure.axes) == 1
    assert "all arrows: lag 2" in words(figure)


def test_a_map_shows_the_strongest_causes_of_every_sensor_alone() -> None:
    places = line_of(8, up=0.3, across=0.2)
    weights = np.random.default_rng(0).random((8, 8))
    figure = graph_picture(CausalGraph.from_matrix(weights, list(places["id"])), places)
    assert len(arrows(figure.axes[0])) == 8 * 3


def test_large_networks_are_drawn_without_names() -> None:
    places = cluster(207)
    figure = draw(map_picture(places, chain(places, lag=1).edges))
    assert "000100" not in words(figure)
    assert "the strongest 150 of 206 edges" in words(figure)


# ---- matrices


@pytest.mark.parametrize("count", [10, 36, 207])
def test_a_matrix_has_sources_down_and_targets_across(count: int) -> None:
    names = [f"S{number}" for number in range(count)]
    edges = pd.DataFrame({"source": ["S1", "S1"], "target": ["S3", "S1"], "weight": [0.5, 9.0]})
    figure = draw(graph_picture(CausalGraph.build(names, edges, origin={"measure": "rho"}), title="T"))
    axes, bar = figure.axes
    shown = axes.images[0].get_array()
    assert shown[1, 3] == 0.5
    assert shown.mask[1, 1], "a sensor with itself is left out"
    assert axes.images[0].get_clim() == (0, 0.5)
    assert ("S9" in words(figure)) == (count <= 40)
    assert "1 edges between" in words(figure)
    assert "probability that the gate" in bar.get_ylabel()


def test_a_graph_without_edges_can_be_drawn() -> None:
    none = pd.DataFrame({"source": [], "target": [], "weight": []})
    draw(graph_picture(CausalGraph.build(["a", "b"], none)))
    draw(graph_picture(CausalGraph.build(["a"], none)))


# ---- into given axes


def test_a_graph_plots_itself_into_given_axes_or_a_new_figure_of_pyplot() -> None:
    mpl.use("agg")
    import matplotlib.pyplot as plt

    places = line_of(4, up=0.3, across=0.2)
    graph = chain(places, lag=1)
    figure = Figure()
    axes = figure.add_subplot()
    assert graph.plot(places, ax=axes) is axes
    assert len(arrows(axes)) == 3
    try:
        drawn = graph.plot()
        assert drawn.figure is plt.gcf()
        assert len(drawn.images) == 1
    finally:
        plt.close("all")


def test_several_graphs_fit_into_one_figure() -> None:
    places = line_of(4, up=0.3, across=0.2)
    figure = Figure(layout="constrained")
    for axes in figure.subplots(1, 2):
        draw_graph(axes, chain(places, lag=1), places)
    draw(figure)
