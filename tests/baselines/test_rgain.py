from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from casper.baselines.parts_recurrent import GatedCell
from casper.baselines.rgain import RgainConfig, RgainImputer, RgainNetwork
from casper.config import TrainingConfig
from casper.datasets import Benchmark
from casper.errors import InputError
from casper.network.learning import Example
from casper.network.noise import Noise
from casper.simulate import Simulation

SMALL: dict[str, Any] = {"device": "cpu", "window": 12, "hidden": 8, "epochs": 2, "batches_per_epoch": 5}
BATCH, SENSORS, STEPS = 2, 3, 4


def network(dtype: torch.dtype = torch.float64, **settings: Any) -> RgainNetwork:
    torch.manual_seed(0)
    config = RgainConfig(window=STEPS, hidden=2, noise_channels=2, dropout=0.25).replace(**settings)
    return RgainNetwork(config, sensors=SENSORS).to(dtype)


def example(dtype: torch.dtype = torch.float64) -> Example:
    random = torch.Generator().manual_seed(1)
    visible = torch.rand(BATCH, SENSORS, STEPS, generator=random) < 0.7
    hidden = visible & (torch.rand(visible.shape, generator=random) < 0.3)
    values = torch.randn(visible.shape, generator=random, dtype=dtype) * visible
    return Example(values, visible, hidden, torch.zeros(BATCH, STEPS, 2, dtype=dtype), hidden.sum())


def noise() -> Noise:
    """The same draws every time."""
    return Noise(torch.Generator().manual_seed(7), batch=BATCH, share=slice(0, BATCH))


def loss_of(net: RgainNetwork, of: Example) -> Tensor:
    return net.loss(of, noise(), training=TrainingConfig(), temperature=torch.ones(())).loss


# ---------------------------------------------------------------------- the equations, cell by cell


def torchs_cell(cell: GatedCell, direction: int, read: Tensor, h: Tensor) -> Tensor:
    """PyTorch's own cell with the same weights; it reads [known; unknown]."""
    parts = [cell.known.weight] if cell.unknown is None else [cell.known.weight, cell.unknown]
    of_input, of_state = torch.cat([part[direction] for part in parts]), cell.state.weight[direction]
    biases = (cell.known.bias[direction, 0], cell.state.bias[direction, 0])
    return torch.gru_cell(read[None], h[None], of_input.T, of_state.T, *biases)[0]


def literal_generator(net: RgainNetwork, of: Example, z: Tensor, kept: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """z: (B, channels, T); kept: (B, T, 2H), dropout's factors -> joint, forwards, backwards (B, N, T)."""
    generator = net.generator
    hidden = generator.hidden
    seen = of.seen
    ahead = torch.empty(2, BATCH, SENSORS, STEPS, dtype=torch.float64)
    states = torch.empty(2, BATCH, STEPS, hidden, dtype=torch.float64)
    for direction in range(2):
        order = list(range(STEPS)) if direction == 0 else list(range(STEPS))[::-1]
        for b in range(BATCH):
            h = torch.zeros(hidden, dtype=torch.float64)
            for t in order:
                x_hat = h @ generator.ahead.weight[direction] + generator.ahead.bias[direction, 0]
                ahead[direction, b, :, t], states[direction, b, t] = x_hat, h
                read = torch.stack([of.values[b, n, t] if seen[b, n, t] else x_hat[n] for n in range(SENSORS)])
                known = torch.cat((seen[b, :, t].double(), z[b, :, t].double()))
                h = torchs_cell(generator.cell, direction, torch.cat((known, read)), h)
    both = torch.cat((states[0], states[1]), -1) * kept
    return generator.joint(both).mT, ahead[0], ahead[1]


def literal_discriminator(net: RgainNetwork, completed: Tensor, hint: Tensor, kept: Tensor) -> Tensor:
    discriminator = net.discriminator
    states = torch.empty(2, BATCH, STEPS, discriminator.hidden, dtype=torch.float64)
    for direction in range(2):
        order = list(range(STEPS)) if direction == 0 else list(range(STEPS))[::-1]
        for b in range(BATCH):
            h = torch.zeros(discriminator.hidden, dtype=torch.float64)
            for t in order:
                h = torchs_cell(discriminator.cell, direction, torch.cat((completed[b, :, t], hint[b, :, t])), h)
                states[direction, b, t] = h
    return discriminator.out(torch.cat((states[0], states[1]), -1) * kept).mT


def test_the_loss_is_that_of_the_equations_with_torchs_own_cells() -> None:
    net, of, draws = network(), example(), noise()
    width = 2 * net.config.hidden
    z = draws.uniform(2, STEPS) * 0.1
    kept = [(draws.uniform(STEPS, width) >= 0.25).double() / 0.75]
    told = draws.uniform(SENSORS, STEPS) < 0.7
    kept += [(draws.uniform(STEPS, width) >= 0.25).double() / 0.75 for _ in range(2)]
    with torch.no_grad():
        estimates = literal_generator(net, of, z, kept[0])
        completed = torch.where(of.seen, of.values, estimates[0])
        hint = torch.where(told, of.seen.double(), 0.5)
        roots = [(x - of.values)[of.visible].square().mean().sqrt() for x in estimates]
        believed = literal_discriminator(net, completed, hint, kept[1]).sigmoid()
        generator = 20.0 * sum(roots) - believed[~of.seen].log().mean()
        seen = literal_discriminator(net, completed, hint, kept[2]).sigmoid()
        discriminator = -torch.where(of.seen, seen.log(), (1 - seen).log()).mean()
        torch.testing.assert_close(loss_of(net, of), generator + discriminator)


def test_each_player_learns_from_its_own_part_of_the_loss() -> None:
    """As two optimisers would do it: the discriminator's parameters frozen, then the generator's answer."""
    net, of = network(dropout=0.0), example()
    loss_of(net, of).backward()
    found = {name: parameter.grad for name, parameter in net.named_parameters()}
    draws = noise()
    z, told = draws.uniform(2, STEPS) * 0.1, draws.uniform(SENSORS, STEPS) < 0.7
    every = torch.ones(BATCH, STEPS, 2 * net.config.hidden, dtype=torch.float64)
    estimates = literal_generator(net, of, z, every)
    hint = torch.where(told, of.seen.double(), 0.5)
    completed = torch.where(of.seen, of.values, estimates[0])
    logits = literal_discriminator(net, completed, hint, every)[~of.seen]
    roots = [(x - of.values)[of.visible].square().mean().sqrt() for x in estimates]
    against = F.binary_cross_entropy_with_logits(logits, torch.ones_like(logits))
    learning = literal_discriminator(net, completed.detach(), hint, every)
    players = (
        ("generator", 20.0 * sum(roots) + against),
        ("discriminator", F.binary_cross_entropy_with_logits(learning, of.seen.double())),
    )
    for player, part in players:
        parameters = dict(net.get_submodule(player).named_parameters())
        gradients = torch.autograd.grad(part, list(parameters.values()), retain_graph=True)
        for name, gradient in zip(parameters, gradients, strict=True):
            assert gradient.abs().sum() > 0, name
            torch.testing.assert_close(
                found[f"{player}.{name}"], gradient, msg=lambda text, name=name: f"{name}: {text}"
            )


# ---------------------------------------------------------------------- what it must not do


def test_what_is_not_visible_is_not_read() -> None:
    net, of = network(), example()
    assert loss_of(net, of._replace(values=torch.where(of.visible, of.values, torch.nan))) == loss_of(net, of)
    torch.testing.assert_close(
        net.impute(torch.where(of.seen, of.values, torch.nan), of.seen, of.clock),
        net.impute(of.values, of.seen, of.clock),
        rtol=0,
        atol=0,
    )


def test_filling_is_not_random() -> None:
    net, of = network(), example()
    assert net.impute(of.values, of.seen, of.clock).equal(net.impute(of.values, of.seen, of.clock))


@pytest.mark.parametrize("seen", ["nothing", "one sensor is dead", "everything"])
def test_losses_gradients_and_answers_are_finite(seen: str) -> None:
    net, of = network(torch.float32), example(torch.float32)
    visible = torch.zeros_like(of.visible) if seen == "nothing" else torch.ones_like(of.visible)
    if seen == "one sensor is dead":
        visible[:, 1] = False
    hidden = of.hidden & visible & (seen != "everything")
    of = of._replace(values=of.values * visible, visible=visible, hidden=hidden, divisor=hidden.sum().clamp_min(1))
    loss_of(net, of).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    assert net.impute(of.values, of.visible, of.clock).isfinite().all()


def test_it_runs_in_half_precision_without_noise_and_through_a_shorter_window() -> None:
    net, of = network(torch.float32), example(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = loss_of(net, of)
    torch.testing.assert_close(half, loss_of(net, of), rtol=0.05, atol=0.05)
    silent = network(torch.float32, noise_channels=0)
    assert silent.loss(of, Noise.silent(), training=TrainingConfig(), temperature=torch.ones(())).loss.isfinite()
    assert net.impute(of.values[..., :2], of.seen[..., :2], of.clock[:, :2]).shape == (BATCH, SENSORS, 2)


@pytest.mark.parametrize(
    "wrong", [{"hidden": 0}, {"noise_channels": -1}, {"dropout": 1.0}, {"reconstruction": 0.0}, {"hints": 1.5}]
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        RgainImputer(**wrong)


# ---------------------------------------------------------------------- as an imputer


def test_training_lowers_the_loss(six_sensors: Simulation) -> None:
    model = RgainImputer(**{**SMALL, "epochs": 5, "batches_per_epoch": 10, "learning_rate": 0.02})
    model.fit(six_sensors.table)
    assert model.result is not None
    assert model.result.history[-1].train_loss < 0.8 * model.result.history[0].train_loss


def test_it_is_trained_on_a_benchmark_with_a_longer_window_too(small_benchmark: Benchmark) -> None:
    model = RgainImputer(**{**SMALL, "window": 16, "epochs": 1})
    model.fit_benchmark(small_benchmark)
    starts, estimates = next(iter(model.impute_windows(small_benchmark)))
    assert estimates.shape == (len(starts), 6, small_benchmark.window)
    assert np.isfinite(estimates).all()
