from __future__ import annotations

import subprocess
import sys

import pandas as pd
import pytest

from casper import Casper, make_imputer
from casper.causal import CausalGraph
from casper.simulate import Simulation


def test_a_model_that_is_not_fitted_says_so() -> None:
    shown = Casper(preset="paper", window=48)._repr_html_()
    assert "not fitted yet" in shown
    assert "preset paper, windows of 48 steps" in shown


def test_a_fitted_model_tells_its_error_beside_that_of_linear_interpolation(
    tiny_casper: Casper, six_sensors: Simulation
) -> None:
    shown = tiny_casper._repr_html_()
    card = tiny_casper.describe()
    for expected in ("Casper, fitted", "6 sensors, steps of 1 h", "great-circle distances", "2 epochs", "linear"):
        assert expected in shown
    assert f"{card['parameters']:,}" in shown
    linear = make_imputer("linear").fit(six_sensors.table, sensors=six_sensors.sensors)._repr_html_()
    assert "LinearImputer, fitted" in linear
    assert "6 sensors" in linear


def test_a_loaded_model_tells_what_was_written_with_it(tiny_casper: Casper, tiny_folder: str) -> None:
    assert Casper.from_pretrained(tiny_folder)._repr_html_() == tiny_casper._repr_html_()


def edges() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "source": ["<b>x</b>", "y", "y"],
            "target": ["y", "<b>x</b>", "y"],
            "lag": [2, -1, 1],
            "weight": [0.5, 0.25, 9.0],
            "stability": [0.75, None, 1.0],
        }
    )


def test_a_graph_shows_its_counts_and_strongest_edges_and_names_are_escaped() -> None:
    step = pd.Timedelta("15min")
    shown = CausalGraph.build(["<b>x</b>", "y", "z"], edges(), step=step, origin={"measure": "weight"})._repr_html_()
    assert "<b>x" not in shown
    assert "&lt;b&gt;x&lt;/b&gt;" in shown
    for expected in (
        "Causal graph of 3 sensors",
        "2 between different sensors, 1 of a sensor with itself",
        "2 of 6",
        "-1 to 2 steps",
        "+2 (30 min earlier)",
        "-1 (15 min later)",
        "75%",
        "share of a value&#x27;s message",
    ):
        assert expected in shown


def test_a_graph_without_lags_or_edges_is_shown_too() -> None:
    none = CausalGraph.build(["a", "b"], edges().iloc[:0])._repr_html_()
    assert "not told apart" in none
    assert "<thead>" not in none
    many = pd.DataFrame(1.0, index=list("abcdef"), columns=list("abcdef"))
    shown = CausalGraph.from_matrix(many)._repr_html_()
    assert shown.count("<tr>") == 1 + 10 + shown.split("<thead>")[0].count("<tr>")
    assert "and 20 weaker edges" in shown
    assert "stability" not in shown


@pytest.mark.parametrize("module", ["casper.causal", "casper.contract"])
def test_what_is_only_for_notebooks_is_loaded_when_it_is_asked_for(shell: dict[str, str], module: str) -> None:
    code = f"import sys, {module}; sys.exit('casper.report.notebook' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, env=shell).returncode == 0
