from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import casper.model
from casper import Casper
from casper.kriging import KRIGING_TRAINING
from casper.model import distance_class
from casper.network.embedding import steps_to_reading
from casper.simulate import Simulation


@pytest.fixture(scope="module")
def with_kriging(six_sensors: Simulation, tiny_settings: dict[str, Any]) -> Casper:
    """Not to be fitted again."""
    settings = {**tiny_settings, "kriging": True}
    return Casper(device="cpu", **settings).fit(six_sensors.table, sensors=six_sensors.sensors)


def estimates(model: Casper, six_sensors: Simulation) -> tuple[torch.Tensor, ...]:
    """Of one window: the network's, kriging's, and what comes of both; and the visible cells."""
    network = model.network
    assert network is not None
    assert network.kriging is not None
    frame = model.to_frame(six_sensors.table)
    series = model._series(frame, 0, model.config.window, torch.device("cpu"))
    window = series.window(torch.zeros(1, dtype=torch.long), model.config.window)
    seen = window.values, window.visible, window.clock
    with torch.no_grad():
        return network(*seen).estimate, network.kriging.impute(*seen), network.impute(*seen), window.visible


def test_steps_to_the_nearest_reading_are_counted_on_both_sides() -> None:
    visible = torch.tensor([[[True, False, False, False, True, False], [False] * 6]])
    assert steps_to_reading(visible).tolist() == [[[0, 1, 2, 1, 0, 1], [6] * 6]]
    assert distance_class(torch.tensor([[[True, *[False] * 11]]])).tolist() == [[[0, 0, 1, 1, *[2] * 5, *[3] * 3]]]


def test_the_answer_is_a_mixture_by_the_distance_to_the_nearest_reading(
    with_kriging: Casper, six_sensors: Simulation
) -> None:
    network = with_kriging.network
    assert network is not None
    before = network.kriging_share.clone()
    try:
        network.kriging_share.copy_(torch.tensor([1.0, 0.5, 0.25, 0.0]))
        ours, linear, mixed, visible = estimates(with_kriging, six_sensors)
        share = network.kriging_share[distance_class(visible)]
        torch.testing.assert_close(mixed, (1 - share) * ours + share * linear)
        assert not torch.allclose(mixed, ours)
        network.kriging_share.zero_()
        ours, _, mixed, _ = estimates(with_kriging, six_sensors)
        assert torch.equal(mixed, ours)
    finally:
        network.kriging_share.copy_(before)


def test_shares_are_chosen_that_lower_the_error_on_held_back_readings(with_kriging: Casper) -> None:
    assert with_kriging.network is not None
    assert with_kriging.result is not None
    assert with_kriging.validation_mae is not None
    # A network that was hardly trained leaves most of it to kriging.
    assert with_kriging.network.kriging_share.max() > 0.5
    assert with_kriging.validation_mae < with_kriging.result.best_mae
    card = with_kriging.describe()
    assert card["validation_mae"] == with_kriging.validation_mae
    assert list(card["share_of_kriging"].values()) == with_kriging.network.kriging_share.tolist()
    assert "1 step" in card["share_of_kriging"]


def test_a_share_that_was_asked_for_is_taken_everywhere(six_sensors: Simulation, tiny_settings: dict[str, Any]) -> None:
    model = Casper(device="cpu", **{**tiny_settings, "kriging": True, "kriging_share": 0.25})
    model.fit(six_sensors.table, sensors=six_sensors.sensors)
    assert set(model.describe()["share_of_kriging"].values()) == {0.25}
    assert model.validation_mae != model.result.best_mae  # type: ignore[union-attr]
    ours, linear, mixed, _ = estimates(model, six_sensors)
    torch.testing.assert_close(mixed, 0.75 * ours + 0.25 * linear)


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_beyond_0_and_1_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="kriging_share must lie in"):
        Casper(kriging_share=share)


def test_the_networks_training_leaves_kriging_as_it_was_fitted(
    with_kriging: Casper, six_sensors: Simulation, tiny_settings: dict[str, Any]
) -> None:
    other = Casper(device="cpu", **{**tiny_settings, "kriging": True, "epochs": 1})
    other.fit(six_sensors.table, sensors=six_sensors.sensors)
    for model in (with_kriging, other):
        assert model.network is not None
        assert model.network.kriging is not None
    kriging = {k: v for k, v in with_kriging.network.state_dict().items() if k.startswith("kriging.")}  # type: ignore[union-attr]
    again = other.network.state_dict()  # type: ignore[union-attr]
    assert kriging
    assert all(torch.equal(value, again[name]) for name, value in kriging.items())


def test_in_a_very_large_network_it_is_left_out_and_the_model_is_read_as_it_was(
    six_sensors: Simulation, tiny_settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(casper.model, "MOST_SENSORS_TO_KRIGE", 5)
    model = Casper(device="cpu", **{**tiny_settings, "kriging": True})
    model.fit(six_sensors.table, sensors=six_sensors.sensors)
    assert model.network is not None
    assert model.network.kriging is None
    assert model.validation_mae == model.result.best_mae  # type: ignore[union-attr]
    filled = model.impute(six_sensors.table)
    assert not filled.isna().to_numpy().any()
    model.save_pretrained(tmp_path / "model")
    monkeypatch.undo()  # what is very large has changed before
    again = Casper.from_pretrained(tmp_path / "model", device="cpu")
    pd.testing.assert_frame_equal(again.impute(six_sensors.table), filled)


def test_a_saved_model_keeps_its_shares(with_kriging: Casper, six_sensors: Simulation, tmp_path: Path) -> None:
    filled = with_kriging.impute(six_sensors.table)
    again = Casper.from_pretrained(with_kriging.save_pretrained(tmp_path / "model"), device="cpu")
    pd.testing.assert_frame_equal(again.impute(six_sensors.table), filled)


def test_an_interrupted_fit_takes_its_kriging_up_again(
    with_kriging: Casper, six_sensors: Simulation, tiny_settings: dict[str, Any], tmp_path: Path
) -> None:
    for _ in range(2):
        model = Casper(device="cpu", **{**tiny_settings, "kriging": True}).train_in(tmp_path)
        model.fit(six_sensors.table, sensors=six_sensors.sensors)
        assert len((tmp_path / "kriging" / "metrics.csv").read_text().splitlines()) == 1 + KRIGING_TRAINING.epochs
        assert np.array_equal(
            model.impute(six_sensors.table).to_numpy(), with_kriging.impute(six_sensors.table).to_numpy()
        )
