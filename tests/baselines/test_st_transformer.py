"""The spatiotemporal Transformer: its equations, what it must not read, and that it learns, saves and loads."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from casper.baselines import parts_attention
from casper.baselines.parts_attention import MultiHeadAttention
from casper.baselines.st_transformer import (
    STTransformerConfig,
    STTransformerImputer,
    STTransformerLayer,
    STTransformerNetwork,
)
from casper.config import TrainingConfig
from casper.errors import InputError
from casper.network.learning import Example
from casper.network.noise import Noise
from casper.simulate import Simulation

SETTINGS: dict[str, Any] = {"window": 12, "width": 8, "layers": 2, "heads": 2, "feed_forward": 8, "batch_size": 4}
SENSORS, STEPS, CLOCK = 3, 4, 2


def network() -> STTransformerNetwork:
    torch.manual_seed(0)
    config = STTransformerConfig(window=STEPS, width=4, layers=2, heads=2, feed_forward=6)
    return STTransformerNetwork(config, clock=CLOCK).double()


def example() -> Example:
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(2, SENSORS, STEPS, generator=generator, dtype=torch.float64)
    visible = torch.rand(2, SENSORS, STEPS, generator=generator) < 0.7
    hidden = visible & (torch.rand(2, SENSORS, STEPS, generator=generator) < 0.4)
    clock = torch.randn(2, STEPS, CLOCK, generator=generator, dtype=torch.float64)
    return Example(values * visible, visible, hidden, clock, hidden.sum().clamp_min(1))


def loss_of(net: STTransformerNetwork, one: Example) -> Tensor:
    return net.loss(one, Noise.silent(), training=TrainingConfig(), temperature=torch.ones(())).loss


def literal_attention(attention: MultiHeadAttention, query: Tensor, keys: list[Tensor]) -> Tensor:
    """One query, (D,), and its keys, head by head."""
    width = query.shape[0] // attention.heads
    heads: list[Tensor] = []
    for head in range(attention.heads):
        of_head = slice(head * width, (head + 1) * width)
        asked = attention.query(query)[of_head] / math.sqrt(width)
        weights = torch.stack([asked @ attention.key(key)[of_head] for key in keys]).softmax(0)
        told = torch.stack([attention.value(key)[of_head] for key in keys])
        heads.append((weights[:, None] * told).sum(0))
    return attention.out(torch.cat(heads))


def literal_estimates(net: STTransformerNetwork, values: Tensor, visible: Tensor, clock: Tensor) -> list[Tensor]:
    """One window, (N, T)."""
    h: dict[tuple[int, int], Tensor] = {}
    for i in range(SENSORS):
        for t in range(STEPS):
            what = net.value(values[i, t].reshape(1)) if visible[i, t] else net.token[0]
            h[i, t] = what + net.clock(clock[t]) + net.steps[t]
    estimates: list[Tensor] = []
    for layer, readout in zip(net.layers, net.readouts, strict=True):
        assert isinstance(layer, STTransformerLayer)
        asked = {cell: layer.norm_time(x) for cell, x in h.items()}
        for i, t in h:
            series = [asked[i, s] for s in range(STEPS)]
            h[i, t] = layer.skip(h[i, t]) + literal_attention(layer.along_time, asked[i, t], series)
        asked = {cell: layer.norm_sensors(x) for cell, x in h.items()}
        for i, t in h:
            everyone = [asked[j, t] for j in range(SENSORS)]
            h[i, t] = h[i, t] + literal_attention(layer.along_sensors, asked[i, t], everyone)
        for cell, x in h.items():
            h[cell] = x + layer.narrow(F.elu(layer.widen(layer.norm_mlp(x))))
        estimates.append(torch.stack([readout(x)[0] for x in h.values()]).reshape(SENSORS, STEPS))
    return estimates


@pytest.mark.parametrize("sequences_at_once", [1, 2**15])
def test_every_layers_estimate_follows_the_equations(sequences_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_attention, "_SEQUENCES_AT_ONCE", sequences_at_once)
    net, one = network(), example()
    for layer, estimate in enumerate(net(one.values, one.visible, one.clock, Noise.silent())):
        for window in range(2):
            literal = literal_estimates(net, one.values[window], one.visible[window], one.clock[window])
            torch.testing.assert_close(estimate[window], literal[layer])


def test_the_loss_sums_the_layers_errors_and_its_gradient_is_the_equations() -> None:
    net, one = network(), example()
    parameters = list(net.parameters())
    literal = torch.zeros((), dtype=torch.float64)
    for window in range(2):
        for estimate in literal_estimates(net, one.readable[window], one.seen[window], one.clock[window]):
            literal = literal + ((estimate - one.values[window]).abs() * one.hidden[window]).sum() / one.divisor
    loss = loss_of(net, one)
    torch.testing.assert_close(loss, literal)
    for mine, right in zip(
        torch.autograd.grad(loss, parameters), torch.autograd.grad(literal, parameters), strict=True
    ):
        torch.testing.assert_close(mine, right)


def test_what_is_not_visible_is_not_read() -> None:
    net, one = network(), example()
    changed = torch.where(one.visible, one.values, 100.0)
    assert torch.equal(net.impute(one.values, one.visible, one.clock), net.impute(changed, one.visible, one.clock))
    moved = one._replace(values=torch.where(one.hidden, one.values + 5.0, one.values))
    before, after = (net(case.readable, case.seen, case.clock, Noise.silent()) for case in (one, moved))
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_empty_windows_give_finite_numbers_and_gradients() -> None:
    net, one = network(), example()
    nothing = one._replace(visible=torch.zeros_like(one.visible), hidden=torch.zeros_like(one.hidden))
    assert net.impute(one.values, nothing.visible, one.clock).isfinite().all()
    loss_of(net, nothing).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())


def test_dropout_is_drawn_from_the_noise() -> None:
    torch.manual_seed(0)
    config = STTransformerConfig(window=STEPS, width=4, layers=1, heads=2, feed_forward=6, dropout=0.5)
    net, one = STTransformerNetwork(config, clock=CLOCK).double(), example()

    def drawn(seed: int) -> Tensor:
        noise = Noise(torch.Generator().manual_seed(seed), batch=2, share=slice(0, 2))
        return net(one.values, one.visible, one.clock, noise)[-1]

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


def test_it_learns_saves_and_loads(six_sensors: Simulation, tmp_path: Path) -> None:
    model = STTransformerImputer(
        device="cpu", epochs=3, batches_per_epoch=10, learning_rate=5e-3, validation_cells=2_000, **SETTINGS
    ).fit(six_sensors.table, sensors=six_sensors.sensors)
    assert model.result is not None
    losses = [record.train_loss for record in model.result.history]
    assert losses[-1] < losses[0]
    filled = model.impute(six_sensors.table)
    assert not filled.isna().any(axis=None)
    there = six_sensors.table.notna()
    assert filled[there].equals(six_sensors.table[there])
    loaded = STTransformerImputer.from_pretrained(model.save_pretrained(tmp_path / "model"), device="cpu")
    assert loaded.impute(six_sensors.table).equals(filled)


@pytest.mark.parametrize("wrong", [{"layers": 0}, {"width": 6}, {"width": 5, "heads": 1}, {"dropout": 1.0}])
def test_impossible_sizes_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        STTransformerConfig(**wrong)
