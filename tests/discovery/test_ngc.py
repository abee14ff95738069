"""Neural Granger causality: its equations, and what it finds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from casper.discovery.ngc import (
    Components,
    Descent,
    Examples,
    LongShortTermNetworks,
    NgcConfig,
    NgcDiscoverer,
    Penalty,
    Perceptrons,
    Weights,
    Withstood,
    omega,
    shrink,
)
from casper.discovery.recording import Recording
from casper.errors import InputError

SHORT: dict[str, Any] = {"penalties": 8, "iterations": 30}
PENALTIES: tuple[Penalty, ...] = ("group", "mixed", "hierarchical")


def ring(steps: int = 300, variables: int = 5, seed: int = 0) -> NDArray[np.float64]:
    """A linear VAR: every variable is driven by itself and by its left neighbour."""
    random = np.random.default_rng(seed)
    series = np.zeros((steps, variables))
    for t in range(1, steps):
        series[t] = 0.3 * series[t - 1] + 0.5 * np.roll(series[t - 1], 1) + random.normal(size=variables)
    return series


def ring_truth(variables: int = 5) -> NDArray[np.bool_]:
    return np.roll(np.eye(variables, dtype=bool), 1, axis=1)  # source i, target i + 1


def found(series: Any, **settings: Any) -> NDArray[np.float64]:
    return NgcDiscoverer(device="cpu", **{**SHORT, **settings}).find(Recording.of(series)).strength


def off_diagonal(truth: NDArray[np.bool_], strength: NDArray[np.float64]) -> float:
    others = ~np.eye(len(truth), dtype=bool)
    return float(roc_auc_score(truth[others], strength[others]))


def doubles(weights: Weights) -> Weights:
    return {name: weight.double() for name, weight in weights.items()}


def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


def random_examples(networks: Components, shape: tuple[int, int], targets: tuple[int, ...]) -> Examples:
    random = torch.Generator().manual_seed(1)
    inputs = torch.randn((*shape, networks.variables), generator=random, dtype=torch.float64)
    wanted = torch.randn(targets, generator=random, dtype=torch.float64)
    return Examples(inputs, wanted, (torch.rand(targets, generator=random) < 0.7).double())


def test_the_perceptrons_answer_is_the_papers_sum() -> None:
    networks = Perceptrons(variables=3, hidden=2, lag=2)
    w = doubles(networks.initial(torch.Generator().manual_seed(0)))
    inputs = random_examples(networks, (4, 2), (4, 3)).inputs
    answer = networks.predict(w, inputs)
    for m in range(4):
        for i in range(3):
            y = float(w["exit_bias"][i])
            for h in range(2):
                z = float(w["entry_bias"][i, h])
                for k in range(2):
                    for j in range(3):
                        z += float(w["entry"][i, h, k, j] * inputs[m, k, j])
                y += float(w["exit"][i, h]) * max(z, 0.0)
            assert float(answer[m, i]) == pytest.approx(y, rel=1e-12)


def test_the_recurrent_answer_is_an_lstms() -> None:
    networks = LongShortTermNetworks(variables=3, hidden=2, context=4)
    w = doubles(networks.initial(torch.Generator().manual_seed(0)))
    inputs = random_examples(networks, (2, 4), (2, 4, 3)).inputs
    answer = networks.predict(w, inputs)
    for m in range(2):
        for i in range(3):
            state, memory = [0.0, 0.0], [0.0, 0.0]
            for t in range(4):
                gates = [float(b) for b in w["entry_bias"][i]]
                for g in range(8):
                    gates[g] += sum(float(w["entry"][i, g, 0, j] * inputs[m, t, j]) for j in range(3))
                    gates[g] += sum(float(w["recurrent"][i, h, g]) * state[h] for h in range(2))
                for h in range(2):
                    opened, kept, shown = sigmoid(gates[h]), sigmoid(gates[2 + h]), sigmoid(gates[4 + h])
                    memory[h] = kept * memory[h] + opened * math.tanh(gates[6 + h])
                    state[h] = shown * math.tanh(memory[h])
                y = float(w["exit_bias"][i]) + sum(float(w["exit"][i, h, 0]) * state[h] for h in range(2))
                assert float(answer[m, t, i]) == pytest.approx(y, rel=1e-12)


def test_the_loss_is_the_mean_error_of_the_known_targets_plus_ridge() -> None:
    networks = LongShortTermNetworks(variables=3, hidden=2, context=4)
    w = doubles(networks.initial(torch.Generator().manual_seed(0)))
    examples = random_examples(networks, (2, 4), (2, 4, 3))
    answer, loss = networks.predict(w, examples.inputs), networks.smooth(w, examples, ridge=0.3)
    for i in range(3):
        errors = [
            float((answer[m, t, i] - examples.targets[m, t, i]) ** 2)
            for m in range(2)
            for t in range(4)
            if examples.counted[m, t, i]
        ]
        ridge = 0.3 * sum(float((w[name][i] ** 2).sum()) for name in ("recurrent", "exit"))
        assert float(loss[i]) == pytest.approx(sum(errors) / len(errors) + ridge, rel=1e-12)


def test_the_penalties_are_the_papers_sums_of_norms() -> None:
    entry = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for i in range(2):
        group, mixed, hierarchical = 0.0, 0.0, 0.0
        for j in range(5):
            group += float(entry[i, :, :, j].norm())
            mixed += float(entry[i, :, :, j].norm()) + sum(float(entry[i, :, k, j].norm()) for k in range(4))
            hierarchical += sum(float(entry[i, :, k:, j].norm()) for k in range(4))
        for kind, wanted in zip(PENALTIES, (group, mixed, hierarchical), strict=True):
            assert float(omega(entry, kind)[i]) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("kind", PENALTIES)
def test_shrinking_is_the_proximal_step_of_the_penalty(kind: Penalty) -> None:
    """No other point has a smaller |x - entry|^2 / 2 + by Omega(x)."""
    random = torch.Generator().manual_seed(0)
    entry = torch.randn(1, 3, 3, 6, generator=random, dtype=torch.float64)
    by = torch.tensor([0.8], dtype=torch.float64)

    def objective(x: torch.Tensor) -> float:
        return float(((x - entry) ** 2).sum() / 2 + (by * omega(x, kind)).sum())

    shrunk = shrink(entry, by, kind)
    for size in (1e-4, 1e-2, 1.0):
        for _ in range(50):
            other = shrunk + size * torch.randn(entry.shape, generator=random, dtype=torch.float64)
            assert objective(shrunk) < objective(other)


def test_small_groups_become_exactly_zero_and_long_lags_first() -> None:
    entry = torch.full((1, 4, 3, 2), 0.1)
    entry[:, :, 2] = 0.05
    entry[..., 1] = 0.01
    shrunk = shrink(entry, torch.tensor([0.15]), "hierarchical")
    used = (shrunk.norm(dim=1) > 0)[0]  # (lags, sources)
    assert used[:, 0].tolist() == [True, True, False]
    assert not used[:, 1].any()


def test_descent_never_makes_a_network_worse() -> None:
    networks = Perceptrons(variables=4, hidden=5, lag=2)
    examples = networks.examples(Recording.of(ring(80, 4)).standardised())
    descent = Descent(networks, networks.initial(torch.Generator().manual_seed(0)), examples, NgcConfig())
    before = descent.loss + 0.1 * omega(descent.weights["entry"], "hierarchical")
    first = before
    for _ in range(60):
        descent.advance(0.1)
        after = descent.loss + 0.1 * omega(descent.weights["entry"], "hierarchical")
        assert (after <= before * (1 + 1e-5)).all()
        before = after
    assert (before < 0.9 * first).all()


def test_a_pair_ranks_by_the_penalty_it_withstands_and_then_by_its_norm() -> None:
    seen = Withstood()
    for norms in ([[5.0, 0.3], [0.2, 0.0]], [[0.0, 0.2], [0.1, 0.0]]):
        seen.see(torch.tensor(norms))
    (brief, long_large), (long_small, never) = seen.strength()
    assert never == 0
    assert never < brief < long_small < long_large < 1


@pytest.mark.parametrize("network", ["mlp", "lstm"])
def test_the_causes_in_a_linear_system_are_found(network: str) -> None:
    strength = found(ring(), network=network)
    assert off_diagonal(ring_truth(), strength) >= 0.95
    assert (strength >= 0).all()


def test_the_lag_of_a_cause_is_found() -> None:
    random = np.random.default_rng(0)
    cause, noise = random.normal(size=(2, 400))
    effect = np.concatenate((noise[:2], cause[:-2] + 0.3 * noise[2:]))
    evidence = NgcDiscoverer(device="cpu", penalty="mixed", lag=4, **SHORT).find(
        Recording.of(np.stack((cause, effect), axis=1))
    )
    assert evidence.by_lag is not None
    assert evidence.by_lag.shape == (4, 2, 2)
    assert evidence.by_lag[:, 0, 1].argmax() == 1  # lag 2
    assert evidence.strength[0, 1] > evidence.strength[1, 0]


def test_a_recurrent_network_tells_no_lags_apart() -> None:
    evidence = NgcDiscoverer(device="cpu", network="lstm", penalties=2, iterations=2).find(Recording.of(ring(30)))
    assert evidence.by_lag is None


@pytest.mark.parametrize("network", ["mlp", "lstm"])
def test_the_same_seed_finds_the_same(network: str) -> None:
    few = {"network": network, "penalties": 3, "iterations": 5}
    first, again, other = (found(ring(60), seed=seed, **few) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize("network", ["mlp", "lstm"])
def test_the_order_of_trajectories_does_not_matter(network: str) -> None:
    trajectories = [ring(25, seed=0), ring(18, seed=1) + 3.0, ring(11, seed=2) - 2.0]
    few = {"network": network, "penalties": 3, "iterations": 5}
    np.testing.assert_allclose(found(trajectories, **few), found(trajectories[::-1], **few), rtol=1e-3, atol=1e-5)


def test_no_example_reaches_from_one_trajectory_into_the_next() -> None:
    lengths = (9, 6, 4)
    trajectories = [np.full((length, 2), float(number)) for number, length in enumerate(lengths)]
    recording = Recording.of(trajectories)
    past = Perceptrons(2, hidden=3, lag=3).examples(recording)
    assert len(past.inputs) == sum(length - 3 for length in lengths)
    assert (past.inputs == past.targets[:, None]).all()
    pieces = LongShortTermNetworks(2, hidden=3, context=4).examples(recording)
    assert pieces.inputs.shape == (5, 4, 2)  # 8 = 4 + 4 steps, 5 = 4 + 1, 3; a sixth would be empty
    assert pieces.counted[..., 0].sum() == sum(length - 1 for length in lengths)
    assert (pieces.inputs == pieces.targets)[pieces.counted > 0].all()


def test_lag_one_comes_first_in_the_perceptrons_inputs() -> None:
    examples = Perceptrons(2, hidden=3, lag=2).examples(Recording.of(np.arange(8.0).reshape(4, 2)))
    assert examples.targets[0].tolist() == [4, 5]
    assert examples.inputs[0].tolist() == [[2, 3], [0, 1]]


@pytest.mark.parametrize("network", ["mlp", "lstm"])
def test_what_is_not_observed_is_not_read(network: str) -> None:
    series = ring(60)
    series[np.random.default_rng(5).random(series.shape) < 0.2] = np.nan
    series[:, 4] = np.nan  # never observed
    recording = Recording.of(series)
    method = NgcDiscoverer(device="cpu", network=network, penalties=3, iterations=5)
    first = method.find(recording).strength
    recording.values[~recording.observed] = 1e3
    np.testing.assert_array_equal(first, method.find(recording).strength)


@pytest.mark.parametrize("network", ["mlp", "lstm"])
def test_a_constant_variable_is_no_trouble(network: str) -> None:
    series = ring(80, variables=3)
    series[:, 1] = 7.0
    strength = found(series, network=network)
    assert np.isfinite(strength).all()
    assert strength[1].max() < strength[0, 0]


def test_trajectories_that_are_too_short_are_refused() -> None:
    with pytest.raises(InputError, match="ngc needs trajectories of at least 4 steps; the longest here has 3"):
        found(ring(3), lag=3)
    with pytest.raises(InputError, match="at least 2 steps"):
        found(ring(1), network="lstm")


@pytest.mark.parametrize(
    "settings",
    [
        {"lag": 0},
        {"hidden": 0},
        {"penalties": 1},
        {"weakest": 3.0},
        {"weakest": 0.0},
        {"ridge": -1.0},
        {"network": "x"},
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        NgcDiscoverer(device="cpu", **settings)
