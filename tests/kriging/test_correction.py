from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import casper.training.companion
from casper.baselines.kriging import KrigingImputer
from casper.kriging.correction import Correction, Field, nearest_sensors, surroundings
from casper.simulate import Simulation

SENSORS, STEPS, CLOCK = 4, 20, 2
SMALL: dict[str, Any] = {"device": "cpu", "window": 12, "epochs": 2, "batches_per_epoch": 5}


def field(windows: int = 3) -> Field:
    random = torch.Generator().manual_seed(0)
    values, course = torch.randn(2, windows, SENSORS, STEPS, generator=random)
    seen = torch.rand(windows, SENSORS, STEPS, generator=random) < 0.6
    clock = torch.randn(windows, STEPS, CLOCK, generator=random)
    correlation = torch.tensor([[1.0, 0.9, 0.1, 0.5], [0.9, 1.0, 0.3, 0.2], [0.1, 0.3, 1.0, 0.4], [0.5, 0.2, 0.4, 1.0]])
    return Field(values, seen, course, clock, nearest_sensors(correlation))


def holes(of: Field) -> Tensor:
    return (~of.seen).nonzero()


def test_the_nearest_sensors_are_those_with_most_in_common() -> None:
    assert field().nearest.tolist() == [[1, 3, 2], [0, 2, 3], [3, 1, 0], [0, 2, 1]]
    assert nearest_sensors(torch.ones(1, 1)).shape == (1, 0)


def test_surroundings_are_relative_to_the_estimate_and_end_with_the_window() -> None:
    of = field()
    seen = surroundings(of, torch.tensor([[1, 2, 0], [0, 0, 10]]))
    first, second = seen[:, :12]  # six steps before, six after
    assert first[:6].tolist() == [0.0] * 6
    torch.testing.assert_close(first[6:], of.values[1, 2, 1:7] - of.values[1, 2, 0])
    torch.testing.assert_close(second[:6], of.values[0, 0, 4:10] - of.values[0, 0, 10])
    assert seen[1, 12:18].tolist() == of.seen[0, 0, 4:10].float().tolist()
    others = seen[1, 24:54].unflatten(0, (6, 5))
    torch.testing.assert_close(others[0], of.values[0, 1, 8:13] - of.values[0, 0, 10])
    assert others[3:].abs().max() == 0  # there are only three others
    torch.testing.assert_close(seen[:, -CLOCK:], torch.stack((of.clock[1, 0], of.clock[0, 10])))


def test_a_network_of_one_sensor_has_no_others() -> None:
    of = field()
    alone = Field(of.values[:, :1], of.seen[:, :1], of.course[:, :1], of.clock, nearest_sensors(torch.ones(1, 1)))
    assert surroundings(alone, holes(alone))[:, 24:84].abs().max() == 0


def lesson(cells: int) -> tuple[Tensor, Tensor]:
    """Surroundings, and what is missed: no linear estimate could know it."""
    around = torch.randn(cells, len(Correction(clock=CLOCK).usual), generator=torch.Generator().manual_seed(1))
    return around, around[:, 0].abs()


def test_it_learns_what_follows_from_the_surroundings() -> None:
    around, missed = lesson(100_000)
    one = Correction(clock=CLOCK)
    assert not one.learned
    one.learn(around, missed, seed=3, progress=False)
    assert one.learned
    with torch.no_grad():
        left = one._added(one._unusual(around)) - missed
    assert left.abs().mean() < 0.7 * (missed - missed.median()).abs().mean()
    one.forget()
    assert not one.learned


def test_the_same_is_learned_with_the_same_seed_and_no_other_training_touches_it() -> None:
    one, other = Correction(clock=CLOCK), Correction(clock=CLOCK)
    other.load_state_dict(one.state_dict())
    for correction in (one, other):
        correction.learn(*lesson(4000), seed=3, progress=False)
        assert not any(parameter.requires_grad for parameter in correction.parameters())
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


@pytest.fixture(scope="module")
def corrected(six_sensors: Simulation) -> KrigingImputer:
    """Not to be fitted again."""
    return KrigingImputer(**SMALL).fit(six_sensors.table, sensors=six_sensors.sensors)


def test_readings_stay_and_the_error_is_never_higher_with_it(
    corrected: KrigingImputer, six_sensors: Simulation
) -> None:
    assert corrected.result is not None
    assert corrected.validation_mae is not None
    assert corrected.validation_mae <= corrected.result.best_mae
    filled = corrected.impute(six_sensors.table)
    seen = six_sensors.table.notna().to_numpy()
    assert (filled.to_numpy()[seen] == six_sensors.table.to_numpy()[seen]).all()
    assert not filled.isna().to_numpy().any()


def test_it_is_saved_with_the_model_and_older_models_have_none(
    corrected: KrigingImputer, six_sensors: Simulation, tmp_path: Path
) -> None:
    network = corrected.network
    assert network is not None
    with torch.no_grad():  # whether or not the few steps above have taught it anything
        network.correction.spread.fill_(1.0)
        network.correction.layers[-1].bias.fill_(0.5)  # type: ignore[operator]
    filled = corrected.impute(six_sensors.table)
    again = KrigingImputer.from_pretrained(corrected.save_pretrained(tmp_path / "model"), device="cpu")
    pd.testing.assert_frame_equal(again.impute(six_sensors.table), filled)
    older = {name: value for name, value in network.state_dict().items() if not name.startswith("correction.")}
    assert again.network is not None
    again.network.load_state_dict(older)
    assert not again.network.correction.learned
    assert not np.allclose(again.impute(six_sensors.table), filled)


def test_it_is_dropped_where_it_does_not_help(six_sensors: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    def misled(self: Correction, around: Tensor, missed: Tensor, **_: Any) -> None:
        self.usual.copy_(around.mean(0))
        self.spread.fill_(1.0)
        self.layers[-1].bias.fill_(50.0)  # type: ignore[operator]

    monkeypatch.setattr(Correction, "learn", misled)
    model = KrigingImputer(**SMALL).fit(six_sensors.table, sensors=six_sensors.sensors)
    assert model.network is not None
    assert not model.network.correction.learned
    assert model.validation_mae == model.result.best_mae  # type: ignore[union-attr]


def test_it_can_be_left_out(six_sensors: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is to be learned")

    monkeypatch.setattr(casper.training.companion, "_seen_and_missed", refused)
    model = KrigingImputer(**SMALL, correction=False).fit(six_sensors.table, sensors=six_sensors.sensors)
    assert model.network is not None
    assert not model.network.correction.learned
