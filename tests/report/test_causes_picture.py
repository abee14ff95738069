from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from casper import Casper
from casper.causal import CausalGraph
from casper.errors import InputError
from casper.report.causes_picture import Shares, causes_bars, causes_map
from casper.report.explanation_picture import explanation_picture
from casper.report.style import BLUE
from casper.simulate import Simulation


def words(figure: Figure) -> str:
    return " | ".join(text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text")))


def arrows(figure: Figure) -> list[FancyArrowPatch]:
    return [patch for patch in figure.axes[0].patches if isinstance(patch, FancyArrowPatch)]


def shares() -> Shares:
    edges = pd.DataFrame(
        {
            "source": ["a", "a", "b", "c", "d", "t", "b"],
            "target": ["t", "t", "t", "t", "t", "t", "a"],
            "lag": [1, 2, -1, 0, 3, 1, 1],
            "weight": [0.3, 0.2, 0.1, 0.02, 0.0, 0.38, 0.9],
        }
    )
    return Shares.of_sensor(CausalGraph.build(["a", "b", "c", "d", "t"], edges), "t")


def places(count: int = 5) -> pd.DataFrame:
    random = np.random.default_rng(1)
    names = ["t", "a", "b", "c", "d", *(f"far{number}" for number in range(count - 5))]
    near = random.uniform(0, 0.1, size=(5, 2))
    far = random.uniform(1, 3, size=(count - 5, 2))
    where = np.vstack([near, far])
    return pd.DataFrame({"id": names, "latitude": 45 + where[:, 0], "longitude": 7 + where[:, 1]})


def test_the_lags_of_a_source_are_added_up_and_the_heaviest_is_told() -> None:
    table = shares().table
    assert table["source"].tolist() == ["a", "t", "b", "c", "d"]
    assert table["weight"].tolist() == pytest.approx([0.5, 0.38, 0.1, 0.02, 0.0])
    assert table["lag"].tolist() == [1, 1, -1, 0, 3]
    assert shares().own == pytest.approx(0.38)


def test_causes_give_more_than_an_equal_share_or_as_much_as_is_asked_for() -> None:
    assert shares().causes(None)["source"].tolist() == ["a"]  # 0.62 / 4 each would be equal
    assert shares().causes(0.1)["source"].tolist() == ["a", "b"]
    assert shares().causes(0.0)["source"].tolist() == ["a", "b", "c"], "a share of nothing is none"


def test_a_sensor_without_causes_is_refused() -> None:
    none = pd.DataFrame({"source": ["a"], "target": ["b"], "weight": [1.0]})
    with pytest.raises(InputError, match="sensor 'a' has no causes"):
        Shares.of_sensor(CausalGraph.build(["a", "b"], none), "a")


def test_the_map_has_an_arrow_for_each_cause_and_a_dotted_line_for_what_is_hardly_used() -> None:
    figure = causes_map(shares(), places(), least=0.1)
    figure.canvas.draw()
    weak, strong = arrows(figure)
    assert weak.get_linewidth() < strong.get_linewidth()
    assert len([line for line in figure.axes[0].lines if line.get_linestyle() != "-"]) == 2
    assert "2 causes, 2 more sensors looked at; its own readings give 38%" in words(figure)
    assert "Causes of sensor t on the average" in words(figure)


def test_one_cause_is_told_in_the_singular() -> None:
    assert "1 cause, 3 more sensors looked at" in words(causes_bars(shares()))


def test_in_a_large_network_only_the_neighbourhood_is_shown() -> None:
    figure = causes_map(shares(), places(207))
    figure.canvas.draw()
    assert figure.axes[0].get_xlim()[1] < 7.5
    assert "far9" not in words(figure)


def test_a_source_without_a_place_is_refused() -> None:
    with pytest.raises(InputError, match="lacks 'b'"):
        causes_map(shares(), places().query("id != 'b'"))


def test_without_places_there_is_a_bar_for_each_source() -> None:
    figure = causes_bars(shares(), title="Mine")
    figure.canvas.draw()
    bars = figure.axes[0].patches
    assert [bar.get_width() for bar in bars] == pytest.approx([50, 38, 10, 2, 0])
    assert [to_hex(bar.get_facecolor()).upper() == BLUE for bar in bars] == [True, False, False, False, False]
    for expected in ("t (itself)", "lag -1", "same step", "Mine"):
        assert expected in words(figure)


def test_one_values_causes_are_those_of_its_explanation(tiny_casper: Casper, six_sensors: Simulation) -> None:
    why = tiny_casper.explain(six_sensors.table, sensor="S2", time=six_sensors.table.index[70])
    told = Shares.of_value(why)
    assert told.about == f"at {six_sensors.table.index[70]:%Y-%m-%d %H:%M}"
    assert told.table["weight"].sum() == pytest.approx(1)
    causes_map(told, six_sensors.sensors).canvas.draw()


# ---- Figure 5


def test_the_attention_picture_shows_input_attention_gates_and_weights_and_marks_the_value(
    tiny_casper: Casper, six_sensors: Simulation
) -> None:
    why = tiny_casper.explain(six_sensors.table, sensor="S2", time=six_sensors.table.index[70])
    figure = explanation_picture(why)
    figure.canvas.draw()
    panels = figure.axes[:4]
    assert [axes.get_title(loc="left") for axes in panels] == ["input", "without gates", "gates", "with gates"]
    for axes in panels:
        (diamond,) = axes.lines
        assert (diamond.get_marker(), *diamond.get_xydata()[0]) == ("D", 6.0, 0.0)
    shown = np.ma.filled(panels[3].images[0].get_array(), np.nan)
    np.testing.assert_allclose(shown, why.weight.reindex(why.readings.index).to_numpy(), rtol=1e-6)
    assert f"estimate: {why.estimate:.4g}, measured: {why.measured:.4g}" in words(figure)


def test_a_model_without_gates_has_attention_alone(six_sensors: Simulation, tiny_settings: dict[str, object]) -> None:
    ungated = Casper(device="cpu", **{**tiny_settings, "epochs": 1, "gate": "none"})
    ungated.fit(six_sensors.table, sensors=six_sensors.sensors)
    why = ungated.explain(six_sensors.table, sensor="S2", time=six_sensors.table.index[70])
    figure = explanation_picture(why)
    headings = [axes.get_title(loc="left") for axes in figure.axes]
    assert [heading for heading in headings if heading] == ["input", "without gates"]
