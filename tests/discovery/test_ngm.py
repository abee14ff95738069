"""NGM: sparse ordinary differential equations, one small network for each variable."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.integrate import solve_ivp
from sklearn.metrics import roc_auc_score
from torch import Tensor

from casper.discovery.ngm import NgmConfig, NgmDiscoverer, Segments, VectorField, mean_error, solve, strengths
from casper.discovery.recording import Recording
from casper.errors import InputError

CPU = torch.device("cpu")


def tiny_field(variables: int = 3, hidden: int = 4) -> VectorField:
    return VectorField(variables, hidden, torch.Generator().manual_seed(1)).double()


def literal_derivative(field: VectorField, state: list[float]) -> list[float]:
    variables, hidden, _ = field.inward.shape
    derivative: list[float] = []
    for j in range(variables):
        total = field.outward_bias[j].item()
        for h in range(hidden):
            inside = field.inward_bias[j, h].item()
            for i in range(variables):
                inside += field.inward[j, h, i].item() * state[i]
            total += field.outward[j, h].item() * (inside if inside > 0 else math.exp(inside) - 1)
        derivative.append(total)
    return derivative


def literal_solution(field: VectorField, state: list[float], points: int, substeps: int) -> list[list[float]]:
    def moved(by: list[float], length: float) -> list[float]:
        return [x + length * d for x, d in zip(state, by, strict=True)]

    length = 1 / substeps
    reached: list[list[float]] = []
    for _ in range(points):
        for _ in range(substeps):
            k1 = literal_derivative(field, state)
            k2 = literal_derivative(field, moved(k1, length / 2))
            k3 = literal_derivative(field, moved(k2, length / 2))
            k4 = literal_derivative(field, moved(k3, length))
            state = moved([(a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True)], length)
        reached.append(state)
    return reached


def lorenz(variables: int = 8, trajectories: int = 8, steps: int = 60) -> tuple[Recording, NDArray[np.bool_]]:
    """Lorenz-96 from random beginnings: dx_j/dt = (x_{j+1} - x_{j-2}) x_{j-1} - x_j + 10."""
    draw = np.random.default_rng(3)

    def derivative(_: float, x: NDArray[np.float64]) -> NDArray[np.float64]:
        return (np.roll(x, -1) - np.roll(x, 2)) * np.roll(x, 1) - x + 10.0

    times = 0.05 * np.arange(steps)
    series = [
        solve_ivp(derivative, (0.0, times[-1]), draw.normal(2.0, 3.0, variables), t_eval=times, rtol=1e-8).y.T
        for _ in range(trajectories)
    ]
    truth = np.zeros((variables, variables), dtype=bool)  # (source, target)
    for target in range(variables):
        for shift in (-2, -1, 0, 1):
            truth[(target + shift) % variables, target] = True
    return Recording.of(series), truth


def chain(holes: float = 0.0) -> tuple[Recording, NDArray[np.bool_]]:
    """A noisy linear equation in which six variables drive one another along two branches."""
    edges = np.array([(0, 1), (1, 2), (2, 3), (0, 4), (4, 5)])
    rates = -0.3 * np.eye(6)  # (source, target)
    rates[edges[:, 0], edges[:, 1]] = [-0.35, 0.35, -0.35, 0.35, -0.35]
    one_step = torch.linalg.matrix_exp(torch.as_tensor(rates)).numpy()
    draw = np.random.default_rng(5)
    series = np.zeros((12, 30, 6))
    series[:, 0] = draw.normal(0.0, 2.0, (12, 6))
    for t in range(1, 30):
        series[:, t] = series[:, t - 1] @ one_step + draw.normal(0.0, 0.2, (12, 6))
    series[draw.random(series.shape) < holes] = np.nan
    return Recording.of(series), rates != 0


def area(strength: NDArray[np.float64], truth: NDArray[np.bool_]) -> float:
    """AUROC over the pairs of different variables."""
    others = ~np.eye(len(truth), dtype=bool)
    return float(roc_auc_score(truth[others], strength[others]))


def test_the_networks_are_those_of_the_equation() -> None:
    field, states = tiny_field(), torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    literal = [literal_derivative(field, state.tolist()) for state in states]
    torch.testing.assert_close(field(states), torch.tensor(literal, dtype=torch.float64))


@pytest.mark.parametrize("substeps", [1, 3])
def test_the_solution_is_that_of_a_literal_runge_kutta_loop(substeps: int) -> None:
    field, states = tiny_field(), torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    literal = [literal_solution(field, state.tolist(), 4, substeps) for state in states]
    torch.testing.assert_close(solve(field, states, 4, substeps), torch.tensor(literal, dtype=torch.float64))


def test_the_solution_approaches_that_of_an_adaptive_solver() -> None:
    field, start = tiny_field(), torch.tensor([[0.5, -1.0, 2.0]], dtype=torch.float64)

    def derivative(_: float, state: NDArray[np.float64]) -> NDArray[np.float64]:
        return field(torch.as_tensor(state)[None]).detach().numpy()[0]

    exact = solve_ivp(derivative, (0.0, 4.0), start[0].numpy(), t_eval=[1, 2, 3, 4], rtol=1e-11, atol=1e-11).y.T
    np.testing.assert_allclose(solve(field, start, 4, 10).detach().numpy()[0], exact, atol=1e-6)


def test_columns_shrink_by_their_amount_and_stop_at_zero() -> None:
    field = tiny_field()
    before, norms = field.inward.detach().clone(), field.norms()
    amount = torch.full((3, 3), 0.1, dtype=torch.float64)
    amount[0, 1], amount[2, 0] = norms[0, 1] + 0.01, math.inf
    field.shrink(amount)
    for j in range(3):
        for i in range(3):
            length = math.sqrt(sum(before[j, h, i].item() ** 2 for h in range(4)))
            left = max(0.0, length - amount[j, i].item()) / length
            torch.testing.assert_close(field.inward[j, :, i].detach(), before[j, :, i] * left)
    assert (field.norms() == 0).sum() == 2


def test_a_column_of_zeros_stays_finite() -> None:
    field = tiny_field()
    with torch.no_grad():
        field.inward.zero_()
    field.shrink(torch.full((3, 3), 0.1, dtype=torch.float64))
    assert (field.inward == 0).all()


def test_the_error_is_the_mean_over_observed_points_behind_the_start() -> None:
    recording, _ = chain(holes=0.4)
    segments = Segments.of(recording, 4, CPU)
    field, batch = tiny_field(6), segments.at(torch.tensor([0, 7, 28, 100]))  # 28: one step before the end
    batch = batch._replace(start=batch.start.double(), after=batch.after.double())
    total, count = 0.0, 0
    for start, after, observed in zip(batch.start, batch.after, batch.observed, strict=True):
        solution = literal_solution(field, start.tolist(), 4, 1)
        for k in range(4):
            for j in range(6):
                if observed[k, j]:
                    total += (solution[k][j] - after[k, j].item()) ** 2
                    count += 1
    assert 0 < count < 4 * 4 * 6
    assert mean_error(field, batch, 1).item() == pytest.approx(total / count)


def test_segments_stay_in_their_trajectory() -> None:
    lengths = (6, 1, 3, 2)
    series = [10.0 * number + np.arange(length)[:, None] * np.ones(2) for number, length in enumerate(lengths)]
    segments = Segments.of(Recording.of(series), 4, CPU)
    assert len(segments.places) == sum(length - 1 for length in lengths)
    batch = segments.at(torch.arange(len(segments.places)))
    expected = batch.start[:, None, :] + torch.arange(1.0, 5.0)[None, :, None]
    assert torch.equal(batch.after[batch.observed], expected[batch.observed])
    assert batch.observed.any(1).all()


def test_removed_pairs_rank_below_all_others_and_by_the_first_training() -> None:
    first = np.array([[3.0, 0.5], [2.0, 0.0]])
    second = np.array([[0.0, 0.2], [0.0, 0.0]])
    found = strengths(first, second)
    assert found[0, 1] == 0.2
    assert found[1, 1] == 0.0
    assert 0.2 > found[0, 0] > found[1, 0] > 0
    assert np.array_equal(strengths(first, np.zeros((2, 2))), first)


def test_the_second_training_keeps_removed_columns_removed_and_penalises_weak_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recording, _ = chain()
    method = NgmDiscoverer(steps=3, penalty=0.5, device="cpu")
    norms = torch.full((6, 6), 2.0)
    norms[0, 1] = 0.0
    penalties: list[Tensor] = []

    def train(segments: Segments, penalty: Tensor, generator: torch.Generator, what: str) -> VectorField:
        penalties.append(penalty)
        field = VectorField(6, 1, generator)
        with torch.no_grad():
            field.inward.copy_(norms[:, None, :])
        return field

    monkeypatch.setattr(method, "_train", train)
    method.find(recording)
    assert (penalties[0] == 0.5).all()
    assert penalties[1][0, 1] == math.inf
    assert (penalties[1][norms > 0] == 0.25).all()


def test_a_linear_chain_is_found() -> None:
    recording, truth = chain()
    assert area(NgmDiscoverer(steps=250, penalty=0.5, device="cpu").find(recording).strength, truth) >= 0.9


def test_a_linear_chain_is_found_through_holes() -> None:
    recording, truth = chain(holes=0.2)
    assert area(NgmDiscoverer(steps=250, penalty=0.5, device="cpu").find(recording).strength, truth) >= 0.9


def test_lorenz_96_is_found() -> None:
    recording, truth = lorenz()
    assert area(NgmDiscoverer(steps=250, penalty=0.5, device="cpu").find(recording).strength, truth) >= 0.9


def test_the_same_seed_finds_the_same_and_another_one_something_else() -> None:
    recording, _ = chain()
    found = [NgmDiscoverer(seed=seed, steps=20, device="cpu").find(recording).strength for seed in (1, 1, 2)]
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_the_order_of_the_trajectories_does_not_matter_to_the_error() -> None:
    recording, _ = chain(holes=0.2)
    order = np.random.default_rng(0).permutation(12)
    shuffled = replace(recording, values=recording.values[order], observed=recording.observed[order])
    field, errors = tiny_field(6), list[float]()
    for one in (recording, shuffled):
        segments = Segments.of(one, 4, CPU)
        batch = segments.at(torch.arange(len(segments.places)))
        errors.append(mean_error(field, batch._replace(start=batch.start.double()), 1).item())
    assert errors[0] == pytest.approx(errors[1], rel=1e-10)


def test_holes_are_not_read() -> None:
    recording, _ = chain(holes=0.3)
    other = replace(recording, values=np.where(recording.observed, recording.values, 1e6))
    found = [NgmDiscoverer(steps=20, device="cpu").find(one).strength for one in (recording, other)]
    assert np.array_equal(found[0], found[1])


def test_constant_and_unobserved_variables_and_short_trajectories_are_no_trouble() -> None:
    recording, _ = chain(holes=0.1)
    series = [np.where(recording.observed[r], recording.values[r], np.nan)[: 2 + r] for r in range(12)]
    for one in series:
        one[:, 2] = 7.0
        one[:, 3] = np.nan
    strength = NgmDiscoverer(steps=20, device="cpu").find(Recording.of(series)).strength
    assert (strength[2:4] == 0).all()  # what does not move is no cause ...
    assert (strength[:, 2:4] == 0).all()  # ... and has none
    assert (strength[np.ix_([0, 1, 4, 5], [0, 1, 4, 5])] > 0).all()


def test_progress_is_told_for_both_trainings() -> None:
    recording, _ = chain()
    heard: list[tuple[str, float]] = []
    NgmDiscoverer(steps=2, device="cpu", tell=lambda what, share: heard.append((what, share))).find(recording)
    assert heard == [("training", 0.0), ("training", 0.5), ("training adaptively", 0.0), ("training adaptively", 0.5)]


def test_trajectories_of_one_step_are_refused() -> None:
    with pytest.raises(InputError, match="ngm needs trajectories of at least 2 steps; the longest here has 1"):
        NgmDiscoverer(device="cpu").find(Recording.of(np.ones((3, 1, 2))))


@pytest.mark.parametrize(
    ("name", "value"),
    [("hidden", 0), ("steps", 0), ("segments", 0), ("horizon", 1), ("substeps", 0), ("penalty", -1.0)],
)
def test_senseless_settings_are_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=name):
        NgmConfig().replace(**{name: value})
