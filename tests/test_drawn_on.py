from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from casper import Casper, drawn_on, imputer
from casper.causal import CausalGraph
from casper.errors import InputError
from casper.simulate import Simulation


@pytest.fixture(scope="module")
def fitted(six_sensors: Simulation) -> Casper:
    settings = {"window": 12, "width": 8, "heads": 2, "layers": 2, "feed_forward": 8, "prompts": 8}
    model = Casper(preset="fast", device="cpu", epochs=1, batches_per_epoch=4, **settings)
    return model.fit(six_sensors.table, sensors=six_sensors.sensors)


def by_hand(model: Casper, table: pd.DataFrame, measure: str, layer: int) -> pd.Series:
    """Over all pairs (t, t') of a lag whose query is missing, in the first window: the mean for gates, which are
    probabilities; for shares the sum, relative to all missing cells of the target."""
    frame = model._options.to_frame(table)
    series = model._series(frame, 0, 12, torch.device("cpu"))
    cut = series.window(torch.zeros(1, dtype=torch.long), 12)
    with torch.inference_mode():
        seen = list(model.network.inspect(cut.values, cut.visible, cut.clock))[layer]
    values = seen.rho if measure == "rho" else getattr(seen, measure).mean(2)
    found: dict[tuple[str, str, int], list[float]] = {}
    index, present = model.network.neighbour_index, model.network.neighbour_present
    for target in range(index.shape[0]):
        for slot in range(index.shape[1]):
            if present[target, slot]:
                for t in np.flatnonzero(~cut.visible[0, target]):
                    for key in range(12):
                        edge = (frame.sensors[int(index[target, slot])], frame.sensors[target], t - key)
                        found.setdefault(edge, []).append(values[0, target, t, slot, key].item())
    missing = dict(zip(frame.sensors, (~cut.visible[0]).sum(1).tolist(), strict=True))
    return pd.Series(
        {edge: np.mean(one) if measure == "rho" else sum(one) / missing[edge[1]] for edge, one in found.items()}
    )


@pytest.mark.parametrize("measure", ["weight", "attention", "rho"])
@pytest.mark.parametrize("layer", [0, -1])
def test_an_edge_weighs_what_its_pairs_do(
    fitted: Casper, six_sensors: Simulation, measure: str, layer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imputer, "_HIDDEN_TO_LOOK", 0.0)
    table = six_sensors.complete.copy()
    table.iloc[2:9, :3] = np.nan
    table.iloc[[0, 5], 3] = np.nan
    graph = fitted.causal_graph(table, measure=measure, windows=1, layer=layer)
    ours = graph.edges.set_index(["source", "target", "lag"])["weight"]
    wanted = by_hand(fitted, table, measure, layer)
    assert len(ours) == len(wanted)
    np.testing.assert_allclose(ours.loc[list(wanted.index)].to_numpy(float), wanted.to_numpy(), rtol=1e-5, atol=1e-7)


def test_layers_are_averaged_and_parts_of_the_sensors_change_nothing(
    fitted: Casper, six_sensors: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fitted.causal_graph(six_sensors.table, windows=3)
    layers = [fitted.causal_graph(six_sensors.table, windows=3, layer=layer) for layer in (0, 1)]
    pd.testing.assert_series_equal(
        weights(whole), (weights(layers[0]) + weights(layers[1])) / 2, rtol=1e-6, check_index=True
    )
    monkeypatch.setattr(drawn_on, "_LARGEST_PART", 1)
    assert len(drawn_on.parts_of(6, 100, torch.device("cpu"))) == 6
    one_by_one = fitted.causal_graph(six_sensors.table, windows=3)
    pd.testing.assert_series_equal(weights(one_by_one), weights(whole), rtol=1e-5)


def weights(graph: CausalGraph) -> pd.Series:
    return graph.edges.set_index(["source", "target", "lag"])["weight"].sort_index()


@pytest.mark.parametrize("hidden", [0.2, 1.0])
def test_the_shares_of_a_target_add_up_to_one(
    fitted: Casper, six_sensors: Simulation, hidden: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imputer, "_HIDDEN_TO_LOOK", hidden)
    edges = fitted.causal_graph(six_sensors.table, windows=2).edges
    np.testing.assert_allclose(edges.groupby("target")["weight"].sum(), 1.0, rtol=1e-5)


def test_an_edge_stands_in_the_windows_where_its_gates_are_mostly_open(fitted: Casper, six_sensors: Simulation) -> None:
    assert (fitted.causal_graph(six_sensors.table, windows=2).edges["stability"] == 1.0).all(), "gates start open"
    shut = Casper(preset="fast", device="cpu", epochs=1, batches_per_epoch=1, window=12, width=8, gate_bias=-9.0)
    shut.fit(six_sensors.table, sensors=six_sensors.sensors)
    assert (shut.causal_graph(six_sensors.table, windows=2).edges["stability"] == 0.0).all()


def test_a_constrained_model_draws_on_no_future(six_sensors: Simulation) -> None:
    model = Casper(preset="fast", device="cpu", epochs=1, batches_per_epoch=1, window=12, width=8, constrained=True)
    graph = model.fit(six_sensors.table, sensors=six_sensors.sensors).causal_graph(six_sensors.table, windows=2)
    assert graph.edges["lag"].min() == 0
    assert graph.step == pd.Timedelta("1h")
    assert graph.origin["windows"] == 2


def test_layers_that_do_not_exist_are_refused(fitted: Casper, six_sensors: Simulation) -> None:
    with pytest.raises(InputError, match="layers 0 to 1, not 2"):
        fitted.causal_graph(six_sensors.table, layer=2)


def test_influence_is_another_measure(fitted: Casper, six_sensors: Simulation) -> None:
    graph = fitted.causal_graph(six_sensors.table, windows=2, measure="influence")
    weighed = fitted.causal_graph(six_sensors.table, windows=2)
    assert len(graph) == len(weighed)
    assert (graph.edges["weight"] >= 0).all()
    assert not np.allclose(weights(graph), weights(weighed))


def test_hidden_cells_are_the_same_for_the_same_seed(fitted: Casper, six_sensors: Simulation) -> None:
    first, second = (fitted.causal_graph(six_sensors.table, windows=4) for _ in range(2))
    pd.testing.assert_frame_equal(first.edges, second.edges)


def test_what_cannot_be_measured_is_refused_and_without_gates_nothing_is_stable(six_sensors: Simulation) -> None:
    options = {"epochs": 1, "batches_per_epoch": 1, "window": 12, "width": 8, "gate": "none"}
    model = Casper(preset="fast", device="cpu", **options).fit(six_sensors.table, sensors=six_sensors.sensors)
    assert model.causal_graph(six_sensors.table, windows=1).edges["stability"].isna().all()
    for wrong, message in (
        ({"measure": "rho"}, "no gates"),
        ({"measure": "beauty"}, "measure must be one of weight"),
        ({"measure": "influence", "layer": 0}, "last layer only"),
        ({"windows": 0}, "at least one window"),
    ):
        with pytest.raises(InputError, match=message):
            model.causal_graph(six_sensors.table, **wrong)
