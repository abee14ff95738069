"""eSRU against its equations, and on series whose causes are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from casper.discovery.esru import EconomyUnits, EsruConfig, EsruDiscoverer, Pieces, prediction_error, shrink_groups
from casper.discovery.recording import Recording
from casper.errors import InputError

# Source, target: a chain, a fork and a collider.
CAUSES = ((0, 1), (1, 2), (0, 3), (4, 2))
VARIABLES = 5


def linear_series(trajectories: int, steps: int, *, seed: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(R, T, N) of a stable linear system with noise, and who causes whom."""
    random = np.random.default_rng(seed)
    truth = np.zeros((VARIABLES, VARIABLES), dtype=bool)
    truth[tuple(zip(*CAUSES, strict=True))] = True
    weights = 0.5 * truth + 0.4 * np.eye(VARIABLES)
    values = np.zeros((trajectories, steps, VARIABLES))
    values[:, 0] = random.normal(size=(trajectories, VARIABLES))
    for t in range(1, steps):
        values[:, t] = values[:, t - 1] @ weights + 0.5 * random.normal(size=(trajectories, VARIABLES))
    return values, truth


def area(strength: NDArray[np.float64], truth: NDArray[np.bool_]) -> float:
    pairs = ~np.eye(len(truth), dtype=bool)
    return float(roc_auc_score(truth[pairs], strength[pairs]))


def discoverer(**settings: Any) -> EsruDiscoverer:
    quick: dict[str, Any] = {"device": "cpu", "iterations": 150, "learning_rate": 1e-2, "decay": 0.97}
    return EsruDiscoverer(**{**quick, **settings})


def elu(x: float) -> float:
    return x if x > 0 else float(np.expm1(x))


def literal_prediction(units: EconomyUnits, config: EsruConfig, i: int, x: NDArray[np.float64]) -> list[float]:
    """What network i says of one trajectory (T, C), number by number."""
    w = {name: value.detach().numpy()[i] for name, value in units.state_dict().items() if name != "keep"}
    size, fed = config.statistics, config.feedback
    means = [0.0] * (len(config.scales) * size)
    told: list[float] = []
    for row in x:
        r = [sum(means[m] * w["sketch"][m, k] for m in range(len(means))) for k in range(fed)]
        for layer in range(config.feedback_layers):
            weight, bias = w[f"feedback.{layer}"], w[f"feedback_bias.{layer}"][0]
            r = [elu(sum(r[m] * weight[m, k] for m in range(fed)) + bias[k]) for k in range(fed)]
        phi = [
            elu(
                sum(row[j] * w["inputs"][j, k] for j in range(len(row)))
                + sum(r[m] * w["recurrent"][m, k] for m in range(fed))
                + w["statistics_bias"][0, k]
            )
            for k in range(size)
        ]
        for s, scale in enumerate(config.scales):
            for k in range(size):
                means[s * size + k] = scale * means[s * size + k] + (1 - scale) * phi[k]
        o = [
            elu(sum(means[m] * w["features"][m, k] for m in range(len(means))) + w["features_bias"][0, k])
            for k in range(config.features)
        ]
        told.append(sum(o[k] * w["output"][k, 0] for k in range(config.features)) + w["output_bias"][0, 0])
    return told


@pytest.mark.parametrize("layers", [1, 2])
def test_the_networks_follow_the_equations(layers: int) -> None:
    config = EsruConfig(scales=(0.0, 0.3, 0.9), statistics=3, feedback=2, feedback_layers=layers, features=4)
    units = EconomyUnits(4, config, torch.Generator().manual_seed(1)).double()
    x = 2.0 * torch.randn(3, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    made = units(x).detach().numpy()
    assert made.shape == (4, 3, 6)
    for i in range(4):
        for piece in range(3):
            expected = literal_prediction(units, config, i, x[piece].numpy())
            np.testing.assert_allclose(made[i, piece], expected, rtol=0, atol=1e-7)  # the scales are 32-bit numbers


def test_each_network_learns_alone() -> None:
    config = EsruConfig(statistics=3, feedback=2, features=2)
    units = EconomyUnits(3, config, torch.Generator().manual_seed(1))
    pieces = Pieces.of(Recording.of(linear_series(4, 9, seed=0)[0][:, :, :3]), 8, torch.device("cpu"))
    prediction_error(units, pieces)[1].backward()
    for weight in units.parameters():
        assert weight.grad is not None
        assert (weight.grad[[0, 2]] == 0).all()
        assert (weight.grad[1] != 0).any()


def test_shrinking_takes_the_thresholds_off_groups_and_numbers() -> None:
    config = EsruConfig(
        scales=(0.1, 0.5), statistics=3, feedback=2, features=4, shrinkage=0.3, sparsity=4.0, localisation=1.0
    )
    units = EconomyUnits(3, config, torch.Generator().manual_seed(3)).double()
    before = {name: value.detach().clone() for name, value in units.named_parameters()}
    units.shrink(config, 0.1)
    for i in range(3):
        for j in range(3):
            group = before["inputs"][i, j]
            expected = group * max(0.0, 1 - 0.4 / float(group.norm()))
            torch.testing.assert_close(units.inputs[i, j].detach(), expected)
        for k in range(3):
            for o in range(4):
                group = before["features"][i, [k, 3 + k], o]  # one statistic at both scales
                expected = group * max(0.0, 1 - 0.1 / float(group.norm()))
                torch.testing.assert_close(units.features[i, [k, 3 + k], o].detach(), expected)
    assert (units.inputs == 0).any()
    for name in ("recurrent", "statistics_bias", "feedback.0", "feedback_bias.0", "features_bias", "output_bias"):
        old = before[name]
        torch.testing.assert_close(units.get_parameter(name).detach(), old.sign() * (old.abs() - 0.03).clamp(min=0))


def test_a_group_of_zeros_stays() -> None:
    assert (shrink_groups(torch.zeros(2, 3), 0.1, dim=1) == 0).all()
    assert (shrink_groups(torch.zeros(2, 3), 0.0, dim=1) == 0).all()


def test_the_causes_in_a_linear_system_are_found() -> None:
    values, truth = linear_series(40, 13, seed=0)
    strength = discoverer().find(Recording.of(values)).strength
    assert strength.shape == (VARIABLES, VARIABLES)
    assert area(strength, truth) >= 0.95
    assert area(strength, truth) > area(strength.T, truth)


def test_the_causes_in_one_long_series_are_found_from_pieces() -> None:
    values, truth = linear_series(1, 600, seed=1)
    recording = Recording.of(values[0])
    assert len(Pieces.of(recording, 12, torch.device("cpu"))) == 50
    assert area(discoverer(piece=12).find(recording).strength, truth) >= 0.95


def test_the_same_seed_finds_the_same() -> None:
    recording = Recording.of(linear_series(6, 10, seed=0)[0])
    settings = {"iterations": 10, "piece": 4, "batch": 5}
    first, second = (discoverer(**settings).find(recording).strength for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, discoverer(seed=1, **settings).find(recording).strength)


def test_the_order_of_trajectories_does_not_matter() -> None:
    values, _ = linear_series(6, 10, seed=0)
    found, reversed_order = (
        discoverer(iterations=20).find(Recording.of(some)).strength for some in (values, values[::-1])
    )
    np.testing.assert_allclose(found, reversed_order, atol=1e-4)


def test_pieces_stay_inside_trajectories() -> None:
    long, short = np.arange(7.0)[:, None] + [0.0, 10.0], np.arange(3.0)[:, None] + [100.0, 200.0]
    recording = Recording.of([long, short])
    pieces = Pieces.of(recording, 4, torch.device("cpu"))
    scaled = recording.standardised().values
    known = pieces.known[:, :, 0].bool()
    # The long one gives 4 and 2 steps to predict, the short one 2; a piece behind its end is left out.
    assert known.tolist() == [[True] * 4, [True, True, False, False], [True, True, False, False]]
    np.testing.assert_allclose(pieces.inputs[0], scaled[0, :4], rtol=1e-6)
    np.testing.assert_allclose(pieces.targets[1][:2], scaled[1, 1:3], rtol=1e-6)
    np.testing.assert_allclose(pieces.targets[2][:2], scaled[0, 5:7], rtol=1e-6)


def test_what_is_behind_the_end_of_a_trajectory_is_not_read() -> None:
    values, _ = linear_series(5, 12, seed=0)
    recording = Recording.of([values[0][:6], *values[1:]])
    lies = replace(recording, values=np.where(recording.exists[:, :, None], recording.values, 1e3))
    found, misled = (discoverer(iterations=5).find(some).strength for some in (recording, lies))
    np.testing.assert_array_equal(found, misled)


def test_holes_are_not_read() -> None:
    values, _ = linear_series(5, 12, seed=0)
    random = np.random.default_rng(0)
    holey = np.where(random.random(values.shape) < 0.3, np.nan, values)
    recording = Recording.of(holey)
    lies = replace(recording, values=np.where(recording.observed, recording.values, 1e3))
    found, misled = (discoverer(iterations=5).find(some).strength for some in (recording, lies))
    np.testing.assert_array_equal(found, misled)


def test_a_hole_is_no_target() -> None:
    values = linear_series(2, 8, seed=0)[0]
    values[1, 5, 2] = np.nan
    pieces = Pieces.of(Recording.of(values), 20, torch.device("cpu"))
    assert pieces.known[1, 4, 2] == 0
    assert pieces.known.sum() == pieces.known.numel() - 1


def test_a_variable_that_never_changes_causes_nothing_and_has_no_causes() -> None:
    values, _ = linear_series(5, 12, seed=0)
    values[:, :, 2] = 7.0
    strength = discoverer(iterations=5).find(Recording.of(values)).strength
    assert (strength[2] == 0).all()
    assert (strength[:, 2] == 0).all()
    others = [0, 1, 3, 4]
    assert (strength[np.ix_(others, others)] > 0).all()


def test_too_short_trajectories_are_refused() -> None:
    with pytest.raises(InputError, match="esru needs trajectories of at least 2 steps"):
        discoverer().find(Recording.of(np.zeros((3, 1, 4))))


def test_a_recording_of_first_steps_alone_is_refused() -> None:
    values = linear_series(3, 4, seed=0)[0]
    values[:, 1:] = np.nan
    with pytest.raises(InputError, match="nothing to predict"):
        discoverer().find(Recording.of(values))


@pytest.mark.parametrize(
    ("setting", "value"),
    [("scales", [1.0]), ("scales", []), ("feedback", 0), ("sparsity", -1.0), ("learning_rate", 0.0), ("decay", 1.5)],
)
def test_settings_that_make_no_sense_are_refused(setting: str, value: object) -> None:
    with pytest.raises(InputError, match=setting):
        discoverer(**{setting: value})
