"""SPIN: its equations cell by cell, what it must not read, and that it learns, saves and loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from casper.baselines import spin
from casper.baselines.spin import AdditiveAttention, SpinConfig, SpinImputer, SpinNetwork
from casper.config import TrainingConfig
from casper.errors import InputError
from casper.network.learning import Example
from casper.network.noise import Noise
from casper.simulate import Simulation

SETTINGS: dict[str, Any] = {"window": 12, "width": 8, "layers": 2, "masked_layers": 1, "batch_size": 4}
INDEX = torch.tensor([[1, 2], [0, 3], [0, 0], [3, 3]])  # the last sensor has no neighbour
PRESENT = torch.tensor([[True, True], [True, True], [True, False], [False, False]])
SENSORS, STEPS, CLOCK = 4, 3, 2


def network(**settings: Any) -> SpinNetwork:
    torch.manual_seed(0)
    config = SpinConfig(**{"window": STEPS, "width": 4, "layers": 3, "masked_layers": 2, **settings})
    return SpinNetwork(config, neighbour_index=INDEX, neighbour_present=PRESENT, clock=CLOCK).double()


def example(sensors: Tensor | None = None, *, batch: int = 2) -> Example:
    generator = torch.Generator().manual_seed(1)
    count = SENSORS if sensors is None else len(sensors)
    values = torch.randn(batch, count, STEPS, generator=generator, dtype=torch.float64)
    visible = torch.rand(batch, count, STEPS, generator=generator) < 0.7
    hidden = visible & (torch.rand(batch, count, STEPS, generator=generator) < 0.4)
    clock = torch.randn(batch, STEPS, CLOCK, generator=generator, dtype=torch.float64)
    return Example(values * visible, visible, hidden, clock, hidden.sum().clamp_min(1), sensors)


def loss_of(net: SpinNetwork, one: Example) -> Tensor:
    return net.loss(one, Noise.silent(), training=TrainingConfig(), temperature=torch.ones(())).loss


def literal_attention(attention: AdditiveAttention, query: Tensor, keys: list[Tensor]) -> Tensor:
    """One query and the measured cells of one series: equations 5, 7 and 8."""
    if not keys:
        return torch.zeros_like(query)
    messages = [
        attention.out(
            attention.second(attention.hidden(attention.first(attention.source(key) + attention.target(query))))
        )
        for key in keys
    ]
    scores = torch.stack([attention.score(message) for message in messages]).softmax(0)
    return sum((score * message for score, message in zip(scores, messages, strict=True)), torch.zeros_like(query))


def literal_estimates(net: SpinNetwork, values: Tensor, visible: Tensor, clock: Tensor) -> list[Tensor]:
    """One window, (N, T)."""
    h: dict[tuple[int, int], Tensor] = {}
    cells = [(i, t) for i in range(SENSORS) for t in range(STEPS)]
    for i, t in cells:
        together = torch.nn.functional.leaky_relu(net.clock(clock[t]) + net.sensor[i])
        q = net.coordinate(together) + net.steps[t]
        h[i, t] = net.norm(net.value(values[i, t].reshape(1)) + q if visible[i, t] else q)
    estimates: list[Tensor] = []
    for number, layer in enumerate(net.layers):
        assert isinstance(layer, spin.SpinLayer)
        masked = number < net.config.masked_layers
        for i, t in cells:
            if number == net.config.masked_layers:
                h[i, t] = h[i, t] + (net.measured[i] if visible[i, t] else net.missing[i])
            if visible[i, t]:
                h[i, t] = h[i, t] + layer.value(values[i, t].reshape(1))
        new = {}
        for i, t in cells:
            own = [h[i, s] for s in range(STEPS) if visible[i, s] and s != t]
            out = layer.skip(h[i, t]) + literal_attention(layer.own, h[i, t], own)
            for j in INDEX[i][PRESENT[i]].tolist():
                theirs = [h[j, s] for s in range(STEPS) if visible[j, s] or not masked]
                out = out + literal_attention(layer.neighbours, h[i, t], theirs)
            new[i, t] = layer.norm(out)
        h = new
        estimates.append(torch.stack([layer.readout(h[cell])[0] for cell in cells]).reshape(SENSORS, STEPS))
    return estimates


@pytest.mark.parametrize("numbers_at_once", [500, 2**20])
def test_every_layers_estimate_follows_the_equations(numbers_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spin, "_NUMBERS_AT_ONCE", {"cpu": numbers_at_once})
    net, one = network(), example()
    for layer, estimate in enumerate(net(one.values, one.visible, one.clock)):
        for window in range(2):
            literal = literal_estimates(net, one.values[window], one.visible[window], one.clock[window])
            torch.testing.assert_close(estimate[window], literal[layer])


def test_windows_are_filled_alike_however_many_are_filled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    net, one = network(), example(batch=5)
    together = net.impute(one.values, one.visible, one.clock)
    monkeypatch.setattr(spin, "_NUMBERS_AT_ONCE", {"cpu": 2 * STEPS**2 * net.config.width})
    torch.testing.assert_close(net.impute(one.values, one.visible, one.clock), together)


def test_the_loss_sums_the_layers_errors_and_its_gradient_is_the_equations() -> None:
    net, one = network(), example(batch=1)
    parameters = list(net.parameters())
    loss = loss_of(net, one)
    literal = torch.zeros((), dtype=torch.float64)
    for estimate in literal_estimates(net, one.readable[0], one.seen[0], one.clock[0]):
        literal = literal + ((estimate - one.values[0]).abs() * one.hidden[0]).sum() / one.divisor
    torch.testing.assert_close(loss, literal)
    ours = torch.autograd.grad(loss, parameters, allow_unused=True)
    theirs = torch.autograd.grad(literal, parameters, allow_unused=True)
    for mine, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, right)


def test_the_default_has_as_many_weights_as_the_original() -> None:
    index = torch.zeros(36, 1, dtype=torch.long)
    net = SpinNetwork(SpinConfig(), neighbour_index=index, neighbour_present=index == 0, clock=4)
    assert sum(parameter.numel() for parameter in net.parameters()) == 55_092


def test_what_is_not_visible_is_not_read() -> None:
    net, one = network(), example()
    changed = torch.where(one.visible, one.values, 100.0)
    assert torch.equal(net.impute(one.values, one.visible, one.clock), net.impute(changed, one.visible, one.clock))
    moved = one._replace(values=torch.where(one.hidden, one.values + 5.0, one.values))
    before, after = (net(case.readable, case.seen, case.clock) for case in (one, moved))
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_empty_windows_and_dead_sensors_give_finite_numbers_and_gradients() -> None:
    net, one = network(), example()
    nothing = one._replace(visible=torch.zeros_like(one.visible), hidden=torch.zeros_like(one.hidden))
    assert net.impute(one.values, nothing.visible, one.clock).isfinite().all()
    visible = one.visible.clone()
    visible[:, 1] = False
    for case in (nothing, one._replace(visible=visible, hidden=one.hidden & visible)):
        net.zero_grad()
        loss_of(net, case).backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())


def test_a_patch_of_sensors_is_a_network_of_its_own() -> None:
    net, sensors = network(), torch.tensor([0, 1, 3])
    one = example(sensors)
    alone = SpinNetwork(
        net.config,
        neighbour_index=torch.tensor([[1], [0], [2]]),
        neighbour_present=torch.tensor([[True], [True], [False]]),
        clock=CLOCK,
    ).double()
    state = {name: value for name, value in net.state_dict().items() if not name.startswith("neighbour_")}
    for name in ("sensor", "measured", "missing"):
        state[name] = state[name][sensors]
    alone.load_state_dict(state, strict=False)
    # Sensors 1 and 3 are neighbours too.
    alone.edge_source, alone.edge_target = torch.tensor([1, 0, 2]), torch.tensor([0, 1, 1])
    for mine, right in zip(
        net(one.values, one.visible, one.clock, sensors), alone(one.values, one.visible, one.clock), strict=True
    ):
        torch.testing.assert_close(mine, right)


def test_training_steps_reduce_the_loss() -> None:
    net, one = network(width=8), example()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    losses: list[float] = []
    for _ in range(25):
        loss = loss_of(net, one)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]


def test_it_fits_fills_saves_and_loads(six_sensors: Simulation, tmp_path: Path) -> None:
    model = SpinImputer(device="cpu", epochs=2, batches_per_epoch=3, validation_cells=2_000, **SETTINGS).fit(
        six_sensors.table, sensors=six_sensors.sensors
    )
    filled = model.impute(six_sensors.table)
    assert not filled.isna().any(axis=None)
    there = six_sensors.table.notna()
    assert filled[there].equals(six_sensors.table[there])
    loaded = SpinImputer.from_pretrained(model.save_pretrained(tmp_path / "model"), device="cpu")
    assert loaded.impute(six_sensors.table).equals(filled)


@pytest.mark.parametrize("wrong", [{"layers": 0}, {"masked_layers": -1}, {"width": 3}, {"window": 1}])
def test_impossible_sizes_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError):
        SpinConfig(**wrong)
