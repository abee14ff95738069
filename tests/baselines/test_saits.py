from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from casper.baselines.saits import Layer, SaitsConfig, SaitsImputer, SaitsNetwork
from casper.config import TrainingConfig
from casper.datasets import Benchmark
from casper.errors import InputError
from casper.network.learning import Example
from casper.network.noise import Noise
from casper.simulate import Simulation

SIZES: dict[str, Any] = {
    "window": 12,
    "width": 16,
    "feed_forward": 16,
    "heads": 2,
    "key_width": 8,
    "value_width": 8,
}
SMALL: dict[str, Any] = {"device": "cpu", **SIZES, "epochs": 2, "batches_per_epoch": 5, "batch_size": 16}
BATCH, SENSORS, STEPS = 2, 3, 4


def network(dtype: torch.dtype = torch.float64, **settings: Any) -> SaitsNetwork:
    torch.manual_seed(0)
    sizes = SaitsConfig(window=STEPS, layers=2, width=5, feed_forward=7, heads=2, key_width=3, value_width=2)
    return SaitsNetwork(sizes.replace(**settings), sensors=SENSORS).to(dtype)


def example(dtype: torch.dtype = torch.float64) -> Example:
    random = torch.Generator().manual_seed(1)
    visible = torch.rand(BATCH, SENSORS, STEPS, generator=random) < 0.8
    hidden = visible & (torch.rand(visible.shape, generator=random) < 0.4)
    values = torch.randn(visible.shape, generator=random, dtype=dtype) * visible
    return Example(values, visible, hidden, torch.zeros(BATCH, STEPS, 2, dtype=dtype), hidden.sum())


def loss_of(net: SaitsNetwork, of: Example, noise: Noise | None = None) -> Tensor:
    noise = Noise.silent() if noise is None else noise
    return net.loss(of, noise, training=TrainingConfig(), temperature=torch.ones(())).loss


# ---------------------------------------------------------------------- the equations, step by step


def literal_layer(layer: Layer, h: list[Tensor]) -> tuple[list[Tensor], list[list[Tensor]]]:
    """h: T vectors -> T vectors, and the attention of step t to step s, mean over heads."""
    steps, heads = len(h), layer.heads
    normed = [layer.norm_attention(x) for x in h]
    query, key, value = ([m(x).chunk(heads) for x in normed] for m in (layer.query, layer.key, layer.value))
    attended: list[Tensor] = []
    mean = [[torch.zeros((), dtype=torch.float64)] * steps for _ in range(steps)]
    for t in range(steps):
        of_heads: list[Tensor] = []
        for head in range(heads):
            others = [s for s in range(steps) if s != t]
            size = query[t][head].numel()
            strength = {s: torch.exp(query[t][head] @ key[s][head] / math.sqrt(size)) for s in others}
            total = sum(strength.values())
            of_heads.append(sum(strength[s] / total * value[s][head] for s in others))  # type: ignore[arg-type]
            for s in others:
                mean[t][s] = mean[t][s] + strength[s] / total / heads
        attended.append(h[t] + layer.out(torch.cat(of_heads)))
    return [x + layer.feed_forward(layer.norm_feed_forward(x)) for x in attended], mean


def literal_window(net: SaitsNetwork, x: Tensor, m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x, m: (N, T) -> the three estimates, (N, T)."""
    width, steps = net.config.width, x.shape[1]
    place = torch.empty(steps, width, dtype=torch.float64)
    for t in range(steps):
        for i in range(0, width, 2):
            place[t, i] = math.sin(t / 10000 ** (i / width))
            if i + 1 < width:
                place[t, i + 1] = math.cos(t / 10000 ** (i / width))
    mask = m.double()
    h = [net.first_embedding(torch.cat((x[:, t], mask[:, t]))) + place[t] for t in range(steps)]
    for layer in net.first_layers:
        h, _ = literal_layer(layer, h)  # type: ignore[arg-type]
    first = torch.stack([net.first_out(step) for step in h], dim=1)
    completed = mask * x + (1 - mask) * first
    h = [net.second_embedding(torch.cat((completed[:, t], mask[:, t]))) + place[t] for t in range(steps)]
    attention: list[list[Tensor]] = []
    for layer in net.second_layers:
        h, attention = literal_layer(layer, h)  # type: ignore[arg-type]
    second = torch.stack([net.second_out(step) for step in h], dim=1)
    looked_at = torch.stack([torch.stack(row) for row in attention])
    eta = torch.stack([net.combine(torch.cat((mask[:, t], looked_at[t]))).sigmoid() for t in range(steps)], dim=1)
    return first, second, (1 - eta) * first + eta * second


def test_loss_and_its_gradients_are_those_of_the_equations_step_by_step() -> None:
    net, of = network(), example()
    made = [literal_window(net, of.readable[b], of.seen[b]) for b in range(BATCH)]
    first, second, combined = (torch.stack([window[k] for window in made]) for k in range(3))
    imputation = (combined - of.values)[of.hidden].abs().mean()
    reconstruction = sum((x - of.values)[of.seen].abs().mean() / 3 for x in (first, second, combined))
    wanted = imputation + reconstruction
    wanted.backward()
    gradients = {name: parameter.grad for name, parameter in net.named_parameters()}
    net.zero_grad()
    found = loss_of(net, of)
    found.backward()
    torch.testing.assert_close(found, wanted)
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0, name
        torch.testing.assert_close(parameter.grad, gradients[name], msg=lambda text, name=name: f"{name}: {text}")
    torch.testing.assert_close(net.impute(of.readable, of.seen, of.clock), combined)


def test_no_step_attends_to_itself() -> None:
    torch.manual_seed(0)
    _, attention = Layer(SaitsConfig(**SIZES))(torch.randn(2, 6, 16), Noise.silent())
    assert (attention.diagonal(dim1=-2, dim2=-1) == 0).all()
    torch.testing.assert_close(attention.sum(-1), torch.ones(2, 2, 6))


def test_dropout_thins_out_and_comes_from_the_steps_noise() -> None:
    net, of = network(dropout=0.5), example()

    def draw(seed: int) -> Tensor:
        return loss_of(net, of, Noise(torch.Generator().manual_seed(seed), batch=BATCH, share=slice(0, BATCH)))

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


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


@pytest.mark.parametrize("seen", ["nothing", "one sensor is dead", "everything"])
def test_losses_gradients_and_answers_are_finite(seen: str) -> None:
    net, of = network(torch.float32), example(torch.float32)
    visible = torch.zeros_like(of.visible) if seen == "nothing" else torch.ones_like(of.visible)
    if seen == "one sensor is dead":
        visible[:, 1] = False
    hidden = of.hidden & visible
    of = of._replace(values=of.values * visible, visible=visible, hidden=hidden, divisor=hidden.sum().clamp_min(1))
    loss_of(net, of).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    assert net.impute(of.values, of.visible, of.clock).isfinite().all()


def test_it_runs_in_half_precision_and_through_a_shorter_window() -> None:
    net, of = network(torch.float32), example(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = loss_of(net, of)
    torch.testing.assert_close(half, loss_of(net, of), rtol=0.05, atol=0.05)
    for steps in (1, 2):
        short = net.impute(of.values[..., :steps], of.seen[..., :steps], of.clock[:, :steps])
        assert short.shape == (BATCH, SENSORS, steps)
        assert short.isfinite().all()


@pytest.mark.parametrize(
    "wrong", [{"layers": 0}, {"width": 0}, {"key_width": 0}, {"dropout": 1.0}, {"reconstruction": -1.0}]
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        SaitsImputer(**wrong)


# ---------------------------------------------------------------------- as an imputer


def test_training_lowers_the_loss(six_sensors: Simulation) -> None:
    model = SaitsImputer(**{**SMALL, "epochs": 5, "batches_per_epoch": 10, "learning_rate": 0.01})
    model.fit(six_sensors.table)
    assert model.result is not None
    assert model.result.history[-1].train_loss < 0.8 * model.result.history[0].train_loss


def test_it_is_trained_on_a_benchmark_with_a_longer_window_too(small_benchmark: Benchmark) -> None:
    model = SaitsImputer(**{**SMALL, "window": 16, "epochs": 1})
    model.fit_benchmark(small_benchmark)
    starts, estimates = next(iter(model.impute_windows(small_benchmark)))
    assert estimates.shape == (len(starts), 6, small_benchmark.window)
    assert np.isfinite(estimates).all()
