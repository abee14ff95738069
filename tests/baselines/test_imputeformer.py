"""ImputeFormer: its equations cell by cell, its spectrum, what it must not read, that it learns, saves and loads."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from casper.baselines.imputeformer import (
    EmbeddedAttention,
    ImputeFormerConfig,
    ImputeFormerImputer,
    ImputeFormerNetwork,
    ProjectedAttention,
    spectrum_norm,
)
from casper.baselines.parts_attention import MultiHeadAttention
from casper.config import TrainingConfig
from casper.errors import InputError
from casper.network.learning import Example
from casper.network.noise import Noise
from casper.simulate import Simulation

SMALL: dict[str, Any] = {
    "input_width": 4,
    "embedding_width": 4,
    "layers": 2,
    "heads": 2,
    "projections": 2,
    "feed_forward": 6,
}
SENSORS, STEPS, CLOCK = 3, 4, 2


def network(**settings: Any) -> ImputeFormerNetwork:
    torch.manual_seed(0)
    config = ImputeFormerConfig(window=STEPS, **{**SMALL, **settings})
    return ImputeFormerNetwork(config, sensors=SENSORS, clock=CLOCK).double()


def example(*, batch: int = 2) -> Example:
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(batch, SENSORS, STEPS, generator=generator, dtype=torch.float64)
    visible = torch.rand(batch, SENSORS, STEPS, generator=generator) < 0.7
    hidden = visible & (torch.rand(batch, SENSORS, STEPS, generator=generator) < 0.4)
    clock = torch.randn(batch, STEPS, CLOCK, generator=generator, dtype=torch.float64)
    return Example(values * visible, visible, hidden, clock, hidden.sum().clamp_min(1))


def loss_of(net: ImputeFormerNetwork, one: Example) -> Tensor:
    return net.loss(one, Noise.silent(), training=TrainingConfig(batch_size=2), temperature=torch.ones(())).loss


def literal_attention(attention: MultiHeadAttention, query: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """One query, (D,), head by head."""
    width = query.shape[0] // attention.heads
    heads: list[Tensor] = []
    for head in range(attention.heads):
        of_head = slice(head * width, (head + 1) * width)
        asked = attention.query(query)[of_head] / math.sqrt(width)
        weights = torch.stack([asked @ attention.key(key)[of_head] for key in keys]).softmax(0)
        told = torch.stack([attention.value(value)[of_head] for value in values])
        heads.append((weights[:, None] * told).sum(0))
    return attention.out(torch.cat(heads))


def literal_temporal(layer: ProjectedAttention, series: list[Tensor]) -> list[Tensor]:
    projector = list(layer.projector)
    gathered = [literal_attention(layer.gather, vector, series, series) for vector in projector]
    out: list[Tensor] = []
    for h in series:
        h = layer.norm_attention(h + literal_attention(layer.spread, h, projector, gathered))
        out.append(layer.norm_out(h + layer.feed_forward(h)))
    return out


def literal_spatial(layer: EmbeddedAttention, cells: list[Tensor], learned: Tensor) -> list[Tensor]:
    """All sensors at one step: their embeddings and learned channels, (N, E)."""
    place = torch.stack([layer.place(one) for one in learned])  # (N, D)
    out: list[Tensor] = []
    for i, h in enumerate(cells):
        looked = place[i].softmax(0)
        message = torch.zeros_like(h)
        for j, other in enumerate(cells):
            alike = sum(looked[d] * place[:, d].softmax(0)[j] for d in range(len(looked)))
            message = message + alike * layer.value(other)
        h = layer.norm_attention(h + message)
        out.append(layer.norm_out(h + layer.feed_forward(h)))
    return out


def literal_estimate(net: ImputeFormerNetwork, values: Tensor, visible: Tensor, clock: Tensor) -> Tensor:
    """One window, (N, T)."""
    h = [
        [
            torch.cat((net.project(torch.cat(((values * visible)[i, t].reshape(1), clock[t]))), net.learned[t, i]))
            for t in range(STEPS)
        ]
        for i in range(SENSORS)
    ]
    for temporal, spatial in zip(net.temporal, net.spatial, strict=True):
        assert isinstance(temporal, ProjectedAttention)
        assert isinstance(spatial, EmbeddedAttention)
        h = [literal_temporal(temporal, series) for series in h]
        by_step = [literal_spatial(spatial, [h[i][t] for i in range(SENSORS)], net.learned[t]) for t in range(STEPS)]
        h = [[by_step[t][i] for t in range(STEPS)] for i in range(SENSORS)]
    return torch.stack([torch.stack([net.readout(cell)[0] for cell in series]) for series in h])


def test_the_estimate_follows_the_equations() -> None:
    net, one = network(), example()
    estimate = net.impute(one.values, one.visible, one.clock)
    for window in range(2):
        literal = literal_estimate(net, one.values[window], one.visible[window], one.clock[window])
        torch.testing.assert_close(estimate[window], literal)


def test_the_spectrum_is_the_fourier_transforms() -> None:
    for shape in ((2, 5, 4), (1, 207, 24)):
        window = torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        torch.testing.assert_close(spectrum_norm(window), torch.fft.fft2(window).abs().mean())
    assert torch.autograd.functional.jacobian(spectrum_norm, torch.zeros(1, 3, 4)).isfinite().all()


def test_the_loss_and_its_gradient_are_the_equations() -> None:
    net, one = network(fourier_weight=0.5), example()
    parameters = list(net.parameters())
    estimate = torch.stack(
        [literal_estimate(net, one.readable[window], one.seen[window], one.clock[window]) for window in range(2)]
    )
    filled = torch.where(one.seen, one.values, estimate)
    spectrum = torch.fft.fft2(filled).abs().mean() / math.sqrt(2)
    literal = ((estimate - one.values).abs() * one.hidden).sum() / one.divisor + 0.5 * spectrum
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
    assert torch.equal(loss_of(net, one), loss_of(net, one._replace(values=changed)))
    moved = one._replace(values=torch.where(one.hidden, one.values + 5.0, one.values))
    before, after = (net(case.readable, case.seen, case.clock, Noise.silent()) for case in (one, moved))
    assert torch.equal(before, after)


def test_empty_windows_give_finite_numbers_and_gradients() -> None:
    net, one = network(), example()
    nothing = one._replace(visible=torch.zeros_like(one.visible), hidden=torch.zeros_like(one.hidden))
    assert net.impute(one.values, nothing.visible, one.clock).isfinite().all()
    loss_of(net, nothing).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())


def test_a_patch_has_its_sensors_learned_channels_and_shorter_windows_the_first_steps() -> None:
    net, sensors, one = network(), torch.tensor([2, 0]), example()
    values, visible, clock = one.values[:, :2, :3], one.visible[:, :2, :3], one.clock[:, :3]
    small = ImputeFormerNetwork(net.config.replace(window=3), sensors=2, clock=CLOCK).double()
    small.load_state_dict({**net.state_dict(), "learned": net.learned[:3, sensors]})
    torch.testing.assert_close(
        net(values, visible, clock, Noise.silent(), sensors), small(values, visible, clock, Noise.silent())
    )


def test_it_learns_saves_and_loads(six_sensors: Simulation, tmp_path: Path) -> None:
    model = ImputeFormerImputer(
        device="cpu",
        window=12,
        epochs=3,
        batches_per_epoch=10,
        batch_size=4,
        learning_rate=5e-3,
        validation_cells=2_000,
        **SMALL,
    ).fit(six_sensors.table, sensors=six_sensors.sensors)
    assert model.result is not None
    losses = [record.train_loss for record in model.result.history]
    assert losses[-1] < losses[0]
    filled = model.impute(six_sensors.table)
    assert not filled.isna().any(axis=None)
    there = six_sensors.table.notna()
    assert filled[there].equals(six_sensors.table[there])
    loaded = ImputeFormerImputer.from_pretrained(model.save_pretrained(tmp_path / "model"), device="cpu")
    assert loaded.impute(six_sensors.table).equals(filled)


@pytest.mark.parametrize(
    "wrong", [{"layers": 0}, {"input_width": 3}, {"dropout": 1.0}, {"fourier_weight": -1.0}, {"projections": 0}]
)
def test_impossible_sizes_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        ImputeFormerConfig(**wrong)
