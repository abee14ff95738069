from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from casper.discovery.cuts import (
    CutsConfig,
    CutsDiscoverer,
    Randomness,
    TargetNetworks,
    Windows,
    prediction_error,
    relaxed_gates,
)
from casper.discovery.recording import Recording
from casper.errors import InputError

QUICK: dict[str, Any] = {
    "lags": 2,
    "hidden": 16,
    "layers": 1,
    "learning_rate": 1e-2,
    "settling_epochs": 6,
    "imputing_epochs": 6,
    "refining_epochs": 12,
    "imputation_rate": 0.2,
}
TRUTH = np.array([[0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]], dtype=bool)
OTHERS = ~np.eye(4, dtype=bool)


def trajectories(count: int = 4, steps: int = 150, seed: int = 0) -> NDArray[np.float64]:
    """(count, steps, 4): every variable follows its own past and those of its causes."""
    draw = np.random.default_rng(seed)
    weights = 0.45 * TRUTH + 0.3 * np.eye(4)
    series = np.zeros((count, steps, 4))
    for t in range(1, steps):
        series[:, t] = series[:, t - 1] @ weights + draw.normal(size=(count, 4))
    return series


def with_holes(series: NDArray[np.float64], share: float, seed: int = 1) -> NDArray[np.float64]:
    return np.where(np.random.default_rng(seed).random(series.shape) < share, np.nan, series)


def find(series: Any, **settings: Any) -> NDArray[np.float64]:
    return CutsDiscoverer(device="cpu", **{**QUICK, **settings}).find(Recording.of(series)).strength


def few(**settings: Any) -> dict[str, Any]:
    return {"settling_epochs": 1, "imputing_epochs": 2, "refining_epochs": 1, **settings}


def test_causes_are_found() -> None:
    evidence = CutsDiscoverer(device="cpu", **QUICK).find(Recording.of(trajectories()))
    assert roc_auc_score(TRUTH[OTHERS], evidence.strength[OTHERS]) >= 0.95
    assert evidence.by_lag is not None
    assert evidence.by_lag.shape == (2, 4, 4)
    assert (evidence.by_lag[0][TRUTH] > evidence.by_lag[1][TRUTH]).all()  # all causes are one step old
    np.testing.assert_array_equal(evidence.strength, evidence.by_lag.max(0))


def test_causes_are_found_behind_holes() -> None:
    found = find(with_holes(trajectories(), 0.2))
    assert roc_auc_score(TRUTH[OTHERS], found[OTHERS]) >= 0.9


def test_the_same_seed_finds_the_same() -> None:
    series = trajectories(steps=60)
    first, second, other = (find(series, **few(), seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


def test_what_is_not_observed_is_not_read() -> None:
    recording = Recording.of(with_holes(trajectories(steps=60), 0.3))
    changed = Recording(
        np.where(recording.observed, recording.values, 1e3), recording.observed, recording.exists, recording.names
    )
    searcher = CutsDiscoverer(device="cpu", **{**QUICK, **few()})
    np.testing.assert_array_equal(searcher.find(recording).strength, searcher.find(changed).strength)


def test_holes_are_imputed_and_refined_on() -> None:
    series = with_holes(trajectories(steps=60), 0.3)
    still, moved = (find(series, **few(imputation_rate=rate)) for rate in (0.0, 0.5))
    assert not np.array_equal(still, moved)
    whole = trajectories(steps=60)
    still, moved = (find(whole, **few(imputation_rate=rate)) for rate in (0.0, 0.5))
    np.testing.assert_array_equal(still, moved)  # there is nothing to impute


def test_windows_never_leave_their_trajectory() -> None:
    recording = Recording.of([np.zeros((length, 2)) for length in (4, 7, 2)])
    windows = Windows.of(recording, 3)
    rows, longest = [], 7
    for number, length in enumerate((4, 7, 2)):
        for t in range(3, length):
            rows.append([number * longest + t - lag for lag in range(4)])
    np.testing.assert_array_equal(torch.cat((windows.now[:, None], windows.past), 1), rows)


def test_a_jump_between_trajectories_is_not_read_as_dynamics() -> None:
    # The last step of each trajectory sets the first one of the next: only whoever mixes them sees a cause.
    draw = np.random.default_rng(0)
    series = draw.normal(size=(80, 4, 2))
    series[1:, 0, 1] = 5.0 * series[:-1, -1, 0]
    apart, mixed = find(series, lags=1), find(series.reshape(-1, 2), lags=1)
    assert mixed[0, 1] > 0.5 > apart[0, 1]


def test_trajectories_may_differ_in_length_and_variables_may_be_constant() -> None:
    series = trajectories(count=3, steps=60)
    series[..., 2] = 7.0
    found = find([series[0], series[1, :25], series[2, :2]], **few())
    assert found.shape == (4, 4)
    assert np.isfinite(found).all()


def test_a_variable_that_is_never_observed_is_no_obstacle() -> None:
    series = trajectories(count=2, steps=40)
    series[..., 1] = np.nan
    assert np.isfinite(find(series, **few())).all()


def test_too_short_trajectories_are_refused() -> None:
    with pytest.raises(InputError, match="cuts needs trajectories of at least 3 steps; the longest here has 2"):
        find(np.zeros((3, 2, 4)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lags": 0}, "lags must be at least 1"),
        ({"sparsity": -1.0}, "sparsity must not be negative"),
        ({"last_temperature": 0.0}, "last_temperature must be positive"),
        ({"imputation_rate": 2.0}, "imputation_rate must lie between 0 and 1"),
        ({"settling_epochs": 0, "imputing_epochs": 0, "refining_epochs": 0}, "at least one epoch"),
    ],
)
def test_settings_without_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        CutsDiscoverer(device="cpu", **settings)


def test_gates_are_the_papers_gumbel_softmax_of_log_probabilities() -> None:
    draw = torch.Generator().manual_seed(0)
    theta = torch.randn(2, 3, generator=draw, dtype=torch.float64)
    uniform = torch.rand(2, 4, 3, generator=draw, dtype=torch.float64)
    gates = relaxed_gates(theta, uniform, 0.3)
    for j in range(2):
        for b in range(4):
            for k in range(3):
                m, u = 1.0 / (1.0 + math.exp(-float(theta[j, k]))), float(uniform[j, b, k])
                # The difference of two Gumbel draws has the distribution of log u - log(1 - u).
                opened = math.exp((math.log(m) + math.log(u)) / 0.3)
                closed = math.exp((math.log(1.0 - m) + math.log(1.0 - u)) / 0.3)
                assert float(gates[j, b, k]) == pytest.approx(opened / (opened + closed), rel=1e-12)


def test_every_target_has_a_network_of_its_own() -> None:
    config = CutsConfig(hidden=3, layers=2)
    networks = TargetNetworks(2, 4, config, torch.Generator().manual_seed(0)).double().requires_grad_(False)
    past = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    answer = networks(past)
    assert answer.shape == (5, 2)
    for j in range(2):
        for b in range(5):
            state = past[j, b].tolist()
            for depth in range(3):
                weight, bias = networks.weights[depth][j], networks.biases[depth][j, 0]
                if depth:
                    state = [value if value > 0 else 0.05 * value for value in state]
                state = [
                    float(bias[o]) + sum(float(weight[i, o]) * value for i, value in enumerate(state))
                    for o in range(weight.shape[1])
                ]
            assert float(answer[b, j]) == pytest.approx(state[0], rel=1e-12)


def test_errors_are_averaged_over_the_steps_that_count_for_each_target() -> None:
    draw = np.random.default_rng(0)
    predicted, truth = draw.normal(size=(2, 6, 3))
    counts = draw.random((6, 3)) < 0.5
    counts[:, 2] = False
    expected = 0.0
    for j in range(3):
        errors = [(predicted[b, j] - truth[b, j]) ** 2 for b in range(6) if counts[b, j]]
        expected += sum(errors) / max(len(errors), 1)
    found = prediction_error(*(torch.from_numpy(part) for part in (predicted, truth, counts.astype(float))))
    assert float(found) == pytest.approx(expected, rel=1e-12)


def test_the_temperature_falls_twice() -> None:
    config = CutsConfig(settling_epochs=2, imputing_epochs=1, refining_epochs=3)
    assert [config.temperature_in(epoch) for epoch in range(6)] == pytest.approx([1.0, 0.1**0.5, 0.1] * 2)


def test_uniform_numbers_lie_inside_the_unit_interval_and_fill_it() -> None:
    numbers = Randomness(torch.Generator().manual_seed(0), torch.device("cpu")).uniform(101, 1003)
    assert numbers.shape == (101, 1003)
    assert 0.0 < float(numbers.min()) < 1e-3
    assert 1.0 - 1e-3 < float(numbers.max()) < 1.0
    counts = torch.histc(numbers, bins=10, min=0.0, max=1.0) / numbers.numel()
    assert float((counts - 0.1).abs().max()) < 5e-3
    assert abs(float(torch.corrcoef(torch.stack((numbers.flatten()[:-1], numbers.flatten()[1:])))[0, 1])) < 0.02


def test_small_recordings_are_gone_over_several_times() -> None:
    randomness = Randomness(torch.Generator().manual_seed(0), torch.device("cpu"))
    searcher = CutsDiscoverer(device="cpu", batch_size=10, fewest_batches=5)
    sizes = [len(batch) for batch in searcher._batches(25, randomness)]  # pyright: ignore[reportPrivateUsage]
    assert sizes == [9, 8, 8] * 2
    assert len(searcher._batches(101, randomness)) == 11  # pyright: ignore[reportPrivateUsage]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
def test_a_gpu_finds_what_the_cpu_finds() -> None:
    series = trajectories(steps=60)
    there = CutsDiscoverer(device="cuda", **{**QUICK, **few()}).find(Recording.of(series)).strength
    np.testing.assert_allclose(there, find(series, **few()), atol=1e-2)
