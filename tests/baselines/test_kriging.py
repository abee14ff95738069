from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from casper.baselines.kriging import KrigingImputer
from casper.baselines.linear import LinearImputer
from casper.config import TrainingConfig
from casper.errors import InputError
from casper.kriging import KrigingConfig, KrigingNetwork, conditional_mean
from casper.methods import make_imputer
from casper.network.learning import Example
from casper.network.noise import Noise
from casper.simulate import Simulation

SENSORS, STEPS, CLOCK = 4, 6, 2
SMALL: dict[str, Any] = {"device": "cpu", "window": 12, "epochs": 2, "batches_per_epoch": 5}


def table(steps: int = 400, sensors: int = SENSORS, *, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Values, visible cells and clock of sensors that follow a common, smooth signal."""
    random = np.random.default_rng(seed)
    common = np.convolve(random.standard_normal(steps + 9), np.hanning(12)[1:-1], mode="valid")[:, None]
    values = common + 0.3 * random.standard_normal((steps, sensors))
    visible = random.random(values.shape) < 0.8
    clock = np.stack((np.sin(np.arange(steps)), np.cos(np.arange(steps))), axis=1)
    return torch.tensor(values * visible).float(), torch.tensor(visible), torch.tensor(clock).float()


def network(sensors: int = SENSORS, **settings: Any) -> KrigingNetwork:
    net = KrigingNetwork(KrigingConfig(window=STEPS, **settings), sensors=sensors, clock=CLOCK)
    net.read_table(*table(sensors=sensors))
    return net.eval()


def windows(count: int = 2, sensors: int = SENSORS) -> tuple[Tensor, Tensor, Tensor]:
    """(B, N, T), (B, N, T), (B, T, F)."""
    values, visible, clock = table(count * STEPS, sensors, seed=1)
    return (
        values.unflatten(0, (count, STEPS)).mT.contiguous(),
        visible.unflatten(0, (count, STEPS)).mT.contiguous(),
        clock.unflatten(0, (count, STEPS)),
    )


# ---------------------------------------------------------------------- the estimate


@torch.no_grad()
def covariance_of_cells(net: KrigingNetwork, i: int, t: int, j: int, u: int) -> float:
    """As the docstring writes it, cell by cell."""
    total = 0.0
    for r, scale in enumerate(net.log_scale.exp().tolist()):
        late = net.delay[r].double().numpy() * STEPS / 12
        apart = abs(t - late[i] - u + late[j]) / scale
        along = np.exp(-apart) if r < 4 else (1 + np.sqrt(3) * apart) * np.exp(-np.sqrt(3) * apart)
        weight, amplitude = net.log_weight[r].exp().tolist(), net.log_amplitude[r].exp().tolist()
        c = float(net.correlation[i, j])
        across = sum(w * c**power for w, power in zip(weight[:4], (1, 2, 4, 12), strict=True)) + weight[4] * (i == j)
        total += (across * amplitude[i] * amplitude[j] + float(net.relation[r, i] @ net.relation[r, j])) * along
    return total


@torch.no_grad()
def test_the_estimate_is_the_conditional_mean_of_the_documented_field() -> None:
    net = network()
    values, visible, clock = windows()
    for parameter in net.parameters():
        parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
    estimate = net.impute(values, visible, clock)
    assert net.skew == 0
    cells = [(i, t) for i in range(SENSORS) for t in range(STEPS)]
    for window in range(2):
        seen = [cell for cell in cells if visible[window][cell]]
        course = {(i, t): float(net.course[0, i] + clock[window, t] @ net.course[1:, i]) for i, t in cells}
        y = np.array([(float(values[window][c]) - course[c]) / float(net.deviation[c[0]]) for c in seen])
        system = np.array([[covariance_of_cells(net, *a, *b) for b in seen] for a in seen])
        system += np.diag([float(net.log_noise[i].exp()) + 1e-4 for i, _ in seen])
        for cell in set(cells) - set(seen):
            row = np.array([covariance_of_cells(net, *cell, *b) for b in seen])
            expected = course[cell] + float(net.deviation[cell[0]]) * float(row @ np.linalg.solve(system, y))
            assert float(estimate[window][cell]) == pytest.approx(expected, abs=2e-3)


@torch.no_grad()
def test_readings_stay_and_what_is_hidden_is_not_read() -> None:
    net = network()
    values, visible, clock = windows()
    estimate = net.impute(values, visible, clock)
    assert torch.equal(estimate[visible], values[visible])
    assert torch.equal(net.impute(values.masked_fill(~visible, 99.0), visible, clock), estimate)


@torch.no_grad()
def test_a_window_without_readings_is_filled_with_the_courses() -> None:
    net = network()
    values, visible, clock = windows(1)
    estimate = net.impute(values, torch.zeros_like(visible), clock)
    course = net.course[0][:, None] + (clock[0] @ net.course[1:]).T
    torch.testing.assert_close(estimate[0], course)


def test_every_number_is_learned() -> None:
    net = network()
    values, visible, clock = windows()
    hidden = visible & (torch.rand(visible.shape, generator=torch.Generator().manual_seed(0)) < 0.4)
    example = Example(values, visible, hidden, clock, hidden.sum())
    net.loss(example, Noise.silent(), training=TrainingConfig(), temperature=torch.ones(())).loss.backward()
    for name, parameter in net.named_parameters():
        if name.startswith("correction."):  # it learns afterwards
            assert parameter.grad is None, name
            continue
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_a_batch_without_readings_teaches_nothing_and_is_no_trouble() -> None:
    net = network()
    values, visible, clock = windows()
    example = Example(values, torch.zeros_like(visible), visible, clock, visible.sum())
    net.loss(example, Noise.silent(), training=TrainingConfig(), temperature=torch.ones(())).loss.backward()
    assert all(one.grad is None or not one.grad.any() for one in net.parameters())


@pytest.mark.parametrize("method", ["kriging", "casper"])
def test_a_network_that_is_silent_most_of_the_time_can_be_fitted(
    method: str, six_sensors: Simulation, tiny_settings: dict[str, Any]
) -> None:
    settings = SMALL if method == "kriging" else {"device": "cpu", **tiny_settings, "kriging": True}
    table = six_sensors.table.copy()
    table[table.index.day_of_year % 10 >= 2] = np.nan
    model = make_imputer(method, **settings).fit(table, sensors=six_sensors.sensors)
    assert model.impute(table).notna().all(axis=None)


# ---------------------------------------------------------------------- what is read off the table


def test_skewed_readings_are_straightened_and_bent_back() -> None:
    values, visible, clock = table()
    for sign in (1.0, -1.0):
        net = KrigingNetwork(KrigingConfig(window=STEPS), sensors=SENSORS, clock=CLOCK)
        net.read_table(sign * (2 * values).exp() * visible, visible, clock)
        assert net.skew == sign
        skewed = sign * (2 * values[visible]).exp()
        torch.testing.assert_close(net._bent_back(net._straightened(skewed)), skewed, rtol=1e-4, atol=1e-4)
        order = net._straightened(skewed[skewed.argsort()])
        assert (order.diff() >= 0).all()


def test_correlations_fit_together_and_silent_sensors_have_none() -> None:
    net = KrigingNetwork(KrigingConfig(window=STEPS), sensors=SENSORS, clock=CLOCK)
    values, visible, clock = table()
    visible[:, 0] = False
    net.read_table(values * visible, visible, clock)
    assert torch.linalg.eigvalsh(net.correlation).min() > 0
    assert net.correlation.diagonal().tolist() == pytest.approx([1.0] * SENSORS)
    assert net.correlation[0, 1:].abs().max() < 1e-6
    assert net.correlation[1, 2] > 0.7
    assert all(torch.isfinite(buffer).all() for buffer in net.buffers())


@torch.no_grad()
def test_patches_estimate_every_sensor_once_and_read_the_ones_that_tell_most() -> None:
    net = network(12, patch=5, together=2)
    patches = net._make_patches()
    targets = [int(sensor) for patch in patches for sensor in patch.sensors[: patch.targets]]
    assert sorted(targets) == list(range(12))
    assert all(len(patch.sensors) == 5 == len(patch.sensors.unique()) for patch in patches)
    values, visible, clock = windows(sensors=12)
    estimate = net.impute(values, visible, clock)
    whole = network(12).impute(values, visible, clock)
    assert torch.isfinite(estimate).all()
    assert not torch.equal(estimate, whole)
    assert float((estimate - whole).abs().mean()) < 0.2


# ---------------------------------------------------------------------- the imputer


def test_on_smooth_fields_it_is_better_than_a_straight_line() -> None:
    steps = np.arange(24 * 40)
    random = np.random.default_rng(0)
    slow = np.stack([np.sin(steps / period + random.random()) for period in (3.0, 7.0, 31.0)], axis=1)
    truth = slow @ random.random((3, 6)) + 0.02 * random.standard_normal((len(steps), 6))
    complete = pd.DataFrame(truth, pd.date_range("2024-01-01", periods=len(steps), freq="h"), list("abcdef"))
    holes = random.random(truth.shape) < 0.3
    ours, line = (
        np.abs(imputer.fit(complete.mask(holes)).impute(complete.mask(holes)).to_numpy() - truth)[holes].mean()
        for imputer in (
            KrigingImputer(**{**SMALL, "window": 24, "epochs": 4, "batches_per_epoch": 10}),
            LinearImputer(),
        )
    )
    assert ours < 0.7 * line


def test_what_a_river_brings_is_known_from_the_gauges_above() -> None:
    """A flood passes one gauge after the other; while a gauge is silent, those above and below it tell."""
    random = np.random.default_rng(0)
    flood = np.convolve(random.standard_normal(1500) * (random.random(1500) < 0.05), np.exp(-np.arange(60) / 6))[:1500]
    delays = np.arange(6) * 4
    truth = np.stack([np.roll(flood, delay) for delay in delays], axis=1)[60:]
    table = pd.DataFrame(truth, pd.date_range("2024-01-01", periods=len(truth), freq="15min"), list("abcdef"))
    holes = np.zeros(truth.shape, dtype=bool)
    for first in range(30, len(truth) - 30, 60):
        holes[first : first + 20, random.integers(6)] = True
    model = KrigingImputer(**{**SMALL, "window": 36, "epochs": 4, "batches_per_epoch": 10}).fit(table.mask(holes))
    assert model.network is not None
    learned = 3 * model.network.delay.detach().mean(0).numpy()
    np.testing.assert_allclose(learned - learned[0], delays, atol=1.0)
    error = np.abs(model.impute(table.mask(holes)).to_numpy() - truth)[holes].mean()
    line = np.abs(LinearImputer().fit(table.mask(holes)).impute(table.mask(holes)).to_numpy() - truth)[holes].mean()
    assert error < 0.3 * line


def test_series_without_any_noise_are_no_trouble() -> None:
    steps = np.arange(300)
    truth = np.stack([np.sin(steps / 20 + phase) for phase in (0.0, 0.5, 1.0)] * 4, axis=1)
    table = pd.DataFrame(truth, pd.date_range("2024-01-01", periods=300, freq="min"), [f"s{n}" for n in range(12)])
    holes = np.random.default_rng(0).random(truth.shape) < 0.2
    model = KrigingImputer(**{**SMALL, "window": 36, "batches_per_epoch": 25}).fit(table.mask(holes))
    assert np.abs(model.impute(table.mask(holes)).to_numpy() - truth)[holes].mean() < 0.01


def test_wrong_settings_are_refused() -> None:
    for settings, told in (({"rank": 0}, "rank"), ({"patch": 1}, "patch"), ({"patch": 4, "together": 5}, "together")):
        with pytest.raises(InputError, match=told):
            KrigingImputer(**settings)


def test_a_network_that_was_saved_before_there_were_delays_is_read() -> None:
    older = {name: one for name, one in network().state_dict().items() if name != "delay"}
    net = network()
    with torch.no_grad():
        net.delay.fill_(1.0)
    net.load_state_dict(older)
    assert not net.delay.any()


def test_a_saved_model_fills_as_before(six_sensors: Simulation, tmp_path: Any) -> None:
    model = KrigingImputer(**SMALL).fit(six_sensors.table, sensors=six_sensors.sensors)
    filled = model.impute(six_sensors.table)
    again = KrigingImputer.from_pretrained(model.save_pretrained(tmp_path / "model"))
    pd.testing.assert_frame_equal(again.impute(six_sensors.table), filled)


# ---------------------------------------------------------------------- the estimate and its slopes


def _a_system(cells: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    parts = torch.randn(cells, cells + 3, generator=random, dtype=torch.float64)
    return parts, torch.rand(cells, generator=random, dtype=torch.float64) + 0.1, torch.arange(cells)


def _plainly(covariance: Tensor, noise: Tensor, y: Tensor, seen: Tensor, holes: Tensor) -> Tensor:
    system = covariance[seen][:, seen] + noise[seen].diag()
    return covariance[holes][:, seen] @ torch.linalg.solve(system, y)


@pytest.mark.parametrize("overlap", [0, 3], ids=["holes are no readings", "some are"])
def test_the_slopes_that_are_written_out_are_autograds(overlap: int) -> None:
    parts, noise, number = _a_system()
    seen, holes = number[:8], number[8 - overlap :]
    readings = torch.linspace(-1.0, 2.0, 8, dtype=torch.float64)
    towards = torch.linspace(1.0, -2.0, len(holes), dtype=torch.float64)
    slopes = []
    for mean in (conditional_mean, _plainly):
        inputs = [one.clone().requires_grad_() for one in (parts, noise, readings)]
        estimate = mean(inputs[0] @ inputs[0].T, inputs[1], inputs[2], seen, holes)
        slopes.append((estimate.detach(), *torch.autograd.grad((estimate * towards).sum(), inputs)))
    for ours, plain in zip(*slopes, strict=True):
        torch.testing.assert_close(ours, plain)


def test_a_system_that_single_precision_cannot_solve_is_solved_all_the_same() -> None:
    places = torch.linspace(0.0, 1.0, 60)
    smooth = torch.exp(-((places[:, None] - places) ** 2) / 2)  # hardly any rank
    noise = torch.full((60,), 1e-7)
    assert torch.linalg.cholesky_ex(smooth[1:, 1:] + noise[1:].diag())[1] > 0, "the plain way fails"
    learned = noise.clone().requires_grad_()
    estimate = conditional_mean(smooth, learned, places[1:].sin(), torch.arange(1, 60), torch.arange(1))
    assert estimate.item() == pytest.approx(0.0, abs=0.05)
    estimate.sum().backward()
    assert learned.grad is not None
    assert learned.grad.isfinite().all()


def test_covariances_that_are_kept_are_those_of_the_weights_at_hand() -> None:
    net = network(sensors=40, patch=8, together=4)
    seen = windows(sensors=40)

    def answer() -> Tensor:
        with torch.no_grad():
            return net.impute(*seen)

    first, before = answer(), {name: weight.clone() for name, weight in net.state_dict().items()}
    assert answer().equal(first)
    assert len(net._kept) == 10, "one for each patch"
    fused = torch.optim.Adam(net.parameters(), lr=0.5, fused=True)  # as in training; it leaves no trace in the weights
    values, visible, clock = seen
    hidden = visible & (torch.rand(visible.shape, generator=torch.Generator().manual_seed(0)) < 0.4)
    example = Example(values, visible, hidden, clock, hidden.sum())
    net.loss(example, Noise.silent(), training=TrainingConfig(), temperature=torch.ones(())).loss.backward()
    fused.step()
    assert not answer().equal(first)
    net.load_state_dict(before)
    assert answer().equal(first)
    with torch.enable_grad():
        assert net.impute(*seen).requires_grad, "nothing is kept that slopes go through"
