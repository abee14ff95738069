"""Latent convergent cross mapping: the equations, coupled logistic maps, and what must not be read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from casper.discovery.lccm import (
    LatentProcesses,
    LccmConfig,
    LccmDiscoverer,
    cross_map,
    cut_into_series,
    divergence,
    states_to_map,
)
from casper.discovery.recording import Recording
from casper.errors import InputError

TINY: dict[str, Any] = {
    "hidden": 3,
    "layer": 4,
    "substeps": 1,
    "updates": 4,
    "window": 10,
    "small_library": 10,
    "draws": 2,
}


def coupled_maps(
    trajectories: int, steps: int, *, variables: int = 4, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Chaotic logistic maps, the first drives the second, that one the third; the others are alone."""
    rng = np.random.default_rng(seed)
    growth = np.array([3.8, 3.7, 3.75, 3.85])[:variables]
    coupling = np.zeros((variables, variables))
    coupling[0, 1] = coupling[1, 2] = 0.3
    x = rng.uniform(0.2, 0.8, (trajectories, variables))
    values: list[NDArray[np.float64]] = []
    for step in range(50 + steps):
        x = x * (growth - growth * x - x @ coupling)
        if step >= 50:
            values.append(x)
    return np.stack(values, axis=1), coupling > 0


def sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 / (1.0 + np.exp(-x))


def test_every_variable_follows_the_equations_of_its_own_process() -> None:
    config = LccmConfig(hidden=3, layer=4, substeps=2, after=0.01)
    processes = LatentProcesses(2, config, torch.Generator().manual_seed(1)).double()
    rng = np.random.default_rng(2)
    for parameter in processes.parameters():  # biases begin at 0, where a mistake would not show
        parameter.data += torch.from_numpy(rng.normal(0.0, 0.2, parameter.shape))
    values, observed = rng.normal(size=(3, 5, 2)), rng.random((3, 5, 2)) < 0.7
    found = processes(torch.from_numpy(values), torch.from_numpy(observed))

    def weights(name: str, variable: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        one = [getattr(processes, which)[variable].detach().numpy() for which in (name, f"{name}_bias")]
        return one[0], one[1][0]

    def expectation(h: NDArray[np.float64], variable: int) -> tuple[float, float]:
        w, b = weights("look", variable)
        w2, b2 = weights("expect", variable)
        mean, log_variance = np.maximum(h @ w + b, 0.0) @ w2 + b2
        return mean, np.clip(log_variance, 2 * np.log(0.01), 10.0)

    for variable in range(2):
        loss = squared = 0.0
        cell = torch.nn.GRUCell(4, 3, dtype=torch.float64)
        for side, name in (("ih", "jump_reading"), ("hh", "jump_state")):
            w, b = weights(name, variable)
            getattr(cell, f"weight_{side}").data = torch.from_numpy(w.T.copy())
            getattr(cell, f"bias_{side}").data = torch.from_numpy(b.copy())
        for series in range(3):
            h = np.zeros(3)
            for t in range(5):
                for _ in range(2 if t else 0):
                    w, b = weights("flow_gates", variable)
                    r, z = np.split(sigmoid(h @ w + b), 2)
                    w, b = weights("flow_aim", variable)
                    h = h + 0.5 * (1 - z) * (np.tanh((r * h) @ w + b) - h)
                if observed[series, t, variable]:
                    x = values[series, t, variable]
                    mean, log_variance = expectation(h, variable)
                    error = (x - mean) / np.exp(0.5 * log_variance)
                    loss += 0.5 * (error**2 + log_variance + np.log(2 * np.pi))
                    squared += (x - mean) ** 2
                    w, b = weights("prepare", variable)
                    reading = np.maximum(np.array([x, mean, log_variance, error]) @ w + b, 0.0)
                    h = cell(torch.from_numpy(reading), torch.from_numpy(h)).detach().numpy()
                    mean, log_variance = expectation(h, variable)
                    loss += 0.01 * (
                        np.log(0.01)
                        - 0.5 * log_variance
                        + (np.exp(log_variance) + (mean - x) ** 2) / (2 * 0.01**2)
                        - 0.5
                    )
                np.testing.assert_allclose(found.latents[variable, series, t].detach().numpy(), h, atol=1e-12)
        np.testing.assert_allclose(found.loss[variable].item(), loss, rtol=1e-10)
        np.testing.assert_allclose(found.squared_error[variable].item(), squared, rtol=1e-10)


def test_the_misfit_of_a_certain_and_right_expectation_is_nothing() -> None:
    x = torch.tensor([0.3], dtype=torch.float64)
    certain = torch.full_like(x, 2 * np.log(0.01))
    assert divergence(x, certain, x).item() == pytest.approx(0.0, abs=1e-12)
    assert divergence(x + 0.02, certain, x).item() == pytest.approx(2.0)  # two deviations away: 2^2 / 2


def test_states_are_read_off_the_nearest_states_of_the_target() -> None:
    rng = np.random.default_rng(3)
    library, held_back = rng.normal(size=(3, 12, 2)), rng.normal(size=(3, 7, 2))
    library[1, :, 1] = held_back[1, :, 1] = 0.5  # stands still: it counts neither for nor against
    for target in range(3):
        found = cross_map(torch.from_numpy(library), torch.from_numpy(held_back), target, 4).numpy()
        for source in range(3):
            told = np.zeros((7, 2))
            for point in range(7):
                distance = np.sqrt(((library[target] - held_back[target, point]) ** 2).sum(-1))
                nearest = np.argsort(distance)[:4]
                weight = np.exp(-distance[nearest] / (distance[nearest[0]] + 1e-5))
                told[point] = (weight / weight.sum()) @ library[source, nearest]
            dimensions = [0] if source == 1 else [0, 1]
            skill = np.mean([np.corrcoef(told[:, d], held_back[source, :, d])[0, 1] for d in dimensions])
            np.testing.assert_allclose(found[source], skill, rtol=1e-10)


def test_states_are_read_off_the_target_and_not_off_the_source() -> None:
    """A square is known from its number; the number's sign is lost in the square."""
    number = np.random.default_rng(4).uniform(-1.0, 1.0, (500, 1))
    states = torch.from_numpy(np.stack([number**2, number]))
    read_off_square = cross_map(states[:, :400], states[:, 400:], 0, 3)
    read_off_number = cross_map(states[:, :400], states[:, 400:], 1, 3)
    assert read_off_number[0] > 0.99
    assert read_off_square[1].abs() < 0.5


def test_coupled_logistic_maps_are_found() -> None:
    values, truth = coupled_maps(4, 200)
    method = LccmDiscoverer(device="cpu", hidden=8, substeps=1, updates=100, batch=40, window=10, small_library=20)
    found = method.find(Recording.of(values)).strength
    others = ~np.eye(len(truth), dtype=bool)
    assert roc_auc_score(truth[others], found[others]) >= 0.9
    assert found[0, 1] > found[1, 0]
    assert found[1, 2] > found[2, 1]


def test_a_skill_that_shrinks_with_the_library_shows_no_coupling() -> None:
    strangers = Recording.of(np.random.default_rng(3).normal(size=(60, 6)))
    found = LccmDiscoverer(device="cpu", **TINY).find(strangers).strength
    assert found.min() == 0.0
    assert (found == 0.0).sum() >= 3


def test_the_same_seed_finds_the_same_and_another_one_does_not() -> None:
    recording = Recording.of(coupled_maps(3, 30)[0])
    first, again, other = (LccmDiscoverer(seed=seed, device="cpu", **TINY).find(recording) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.strength, again.strength)
    assert not np.array_equal(first.strength, other.strength)


def test_what_is_not_observed_is_not_read() -> None:
    values = coupled_maps(3, 30)[0]
    values[np.random.default_rng(5).random(values.shape) < 0.2] = np.nan
    recording = Recording.of(values)
    lied = replace(recording, values=np.where(recording.observed, recording.values, 7.0))
    first, second = (LccmDiscoverer(device="cpu", **TINY).find(one).strength for one in (recording, lied))
    np.testing.assert_array_equal(first, second)


def test_a_trajectory_does_not_see_the_one_before_it() -> None:
    """The latent states of a trajectory are the same whatever comes before it, and so are the series it is cut into."""
    values = coupled_maps(3, 25)[0]
    changed = values.copy()
    changed[0] = 0.5
    processes = LatentProcesses(4, LccmConfig(), torch.Generator().manual_seed(0))
    latents = [
        processes(torch.from_numpy(one).float(), torch.ones(one.shape, dtype=torch.bool)).latents.detach().numpy()
        for one in (values, changed)
    ]
    np.testing.assert_array_equal(latents[0][:, 1:], latents[1][:, 1:])
    assert not np.allclose(latents[0][:, 0], latents[1][:, 0])
    series, observed = cut_into_series(Recording.of(values), 10)
    assert series.shape == (9, 10, 4)
    np.testing.assert_array_equal(series[5, :5], values[1, 20:])
    assert not observed[5, 5:].any()


def test_a_series_of_a_single_step_teaches_nothing_and_is_left_out() -> None:
    series, _ = cut_into_series(Recording.of(coupled_maps(2, 21)[0]), 10)
    assert len(series) == 4


def test_models_learn_as_if_they_were_alone() -> None:
    """A variable's latent process has nothing to do with the other variables."""
    values = coupled_maps(3, 30)[0]
    changed = values.copy()
    changed[:, :, 3] = np.random.default_rng(6).normal(0.0, 100.0, values.shape[:2])
    first, second = (LccmDiscoverer(device="cpu", **TINY).find(Recording.of(one)).strength for one in (values, changed))
    np.testing.assert_allclose(first[:3, :3], second[:3, :3], atol=1e-5)
    assert not np.allclose(first[3], second[3], atol=1e-2)


def test_constants_are_no_causes_and_trajectories_may_differ_in_length() -> None:
    values = coupled_maps(3, 30)[0]
    values[:, :, 2] = 4.2
    method = LccmDiscoverer(device="cpu", **TINY, score="skill")
    found = method.find(Recording.of([values[0], values[1, :17], values[2, :1]]))
    assert (found.strength[2] == 0).all()
    assert (found.strength[:, 2] == 0).all()
    assert (found.strength[:2, :2] != 0).all()


def test_points_are_thinned_and_the_beginning_is_left_out() -> None:
    recording = Recording.of([np.random.default_rng(7).normal(size=(length, 2)) for length in (40, 10)])
    mapped = states_to_map(recording, LccmConfig(hidden=3, burn_in=0.5, points=20))
    assert len(mapped) == 20
    assert len(np.unique(mapped, axis=0)) == 20
    assert mapped[mapped[:, 0] == 0, 1].min() == 20
    assert mapped[mapped[:, 0] == 1, 1].max() == 9


def test_the_skill_by_itself_is_a_correlation() -> None:
    recording = Recording.of(coupled_maps(3, 30)[0])
    skill = LccmDiscoverer(device="cpu", **TINY, score="skill").find(recording).strength
    assert (np.abs(skill) <= 1.0 + 1e-6).all()
    assert (skill.diagonal() > 0.8).all()


def test_recordings_that_are_too_short_are_refused() -> None:
    with pytest.raises(InputError, match="lccm needs trajectories of at least 3 steps; the longest here has 2"):
        LccmDiscoverer(device="cpu").find(Recording.of(np.random.default_rng(8).normal(size=(100, 2, 3))))
    with pytest.raises(InputError, match="lccm needs at least 56 steps over all trajectories for 21 nearest"):
        LccmDiscoverer(device="cpu").find(Recording.of(np.random.default_rng(8).normal(size=(55, 3))))


def test_settings_out_of_range_are_refused() -> None:
    wrongs: list[dict[str, Any]] = [
        {"small_library": 21},
        {"burn_in": 1.0},
        {"window": 1},
        {"updates": 0},
        {"neighbours": 1},
    ]
    for wrong in wrongs:
        with pytest.raises(InputError, match=next(iter(wrong))):
            LccmDiscoverer(device="cpu", **wrong)
