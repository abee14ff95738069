from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from casper.baselines.grin import GrinConfig, GrinImputer, GrinNetwork
from casper.config import TrainingConfig
from casper.datasets import Benchmark
from casper.errors import InputError
from casper.network.learning import Example
from casper.network.noise import Noise
from casper.simulate import Simulation

SENSORS, STEPS, HIDDEN = 4, 5, 3
SMALL = GrinConfig(window=STEPS, hidden=HIDDEN, embedding=2, merge_width=4)
TINY: dict[str, Any] = {
    "device": "cpu",
    "window": 12,
    "hidden": 8,
    "embedding": 4,
    "merge_width": 8,
    "epochs": 2,
    "batches_per_epoch": 5,
    "batch_size": 4,
    "validation_cells": 2_000,
}
# Sensor 3 is alone; the graph is directed.
ADJACENCY = torch.tensor(
    [[0.0, 0.5, 0.2, 0.0], [0.0, 0.0, 0.9, 0.0], [0.4, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64
)


def network(config: GrinConfig = SMALL) -> GrinNetwork:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return GrinNetwork(config, adjacency=ADJACENCY).double()


def window(batch: int = 2, *, steps: int = STEPS) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    visible = torch.rand(batch, SENSORS, steps, generator=generator) < 0.6
    values = torch.randn(batch, SENSORS, steps, generator=generator, dtype=torch.float64)
    return values * visible, visible


def example(seed: int = 2) -> Example:
    values, visible = window()
    hidden = visible & (torch.rand(visible.shape, generator=torch.Generator().manual_seed(seed)) < 0.4)
    return Example(values, visible, hidden, torch.zeros(2, STEPS, 2), hidden.sum())


def loss_of(net: GrinNetwork, drawn: Example) -> Tensor:
    return net.loss(drawn, Noise.silent(), training=TrainingConfig(), temperature=torch.ones(())).loss


# ------------------------------------------------------------------ the paper's equations, one window, one cell a time


def literal_walks() -> list[Tensor]:
    along = torch.zeros(SENSORS, SENSORS, dtype=torch.float64)
    against = torch.zeros(SENSORS, SENSORS, dtype=torch.float64)
    for source in range(SENSORS):
        for target in range(SENSORS):
            if ADJACENCY[source, target] > 0:
                along[target, source] = ADJACENCY[source, target] / ADJACENCY[:, target].sum()
                against[source, target] = ADJACENCY[source, target] / ADJACENCY[source].sum()
    return [along, against, along @ along, against @ against]


def literal_reading(net: GrinNetwork, way: int, x: Tensor, m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x, m: (N, T) in the order of reading -> both stages (N, T) and what the MLP is told (N, T, 2 D)."""
    part = net.recurrence

    def linear(layer: Any, v: Tensor) -> Tensor:
        return v @ layer.weight[way] + layer.bias[way, 0]

    def conv(layer: Any, state: Tensor, inputs: list[Tensor]) -> Tensor:
        """[v, P_1 v, ..., P_K v] W, its rows in the network's order: the state's, then each input's."""
        steps = [torch.eye(SENSORS, dtype=torch.float64), *literal_walks()]
        columns = [torch.cat([p @ v for p in steps], dim=-1) for v in (state, *(i[:, None] for i in inputs))]
        return linear(layer, torch.cat(columns, dim=-1))

    h = part.start[way]
    first, second, told = [], [], []
    for step in range(x.shape[1]):
        mask = m[:, step].double()
        first.append(linear(part.first, h)[:, 0])
        filled = mask * x[:, step] + (1 - mask) * first[-1]
        z = linear(part.decoder.into, torch.cat([filled[:, None], mask[:, None], h], dim=-1))
        message = linear(part.decoder.walks, torch.cat([p @ z for p in literal_walks()[:2]], dim=-1))
        mixed = linear(part.decoder.out, torch.cat([message, h], dim=-1))
        q = mixed.clamp_min(0) + part.decoder.slope[way, 0] * mixed.clamp_max(0)
        told.append(torch.cat([q, h], dim=-1))
        second.append(linear(part.second, told[-1])[:, 0])
        filled = mask * x[:, step] + (1 - mask) * second[-1]
        reset, keep = conv(part.cell.gates, h, [filled, mask]).sigmoid().split(HIDDEN, dim=-1)
        candidate = conv(part.cell.candidate, reset * h, [filled, mask]).tanh()
        h = keep * h + (1 - keep) * candidate
    return torch.stack(first, 1), torch.stack(second, 1), torch.stack(told, 1)


def literal(net: GrinNetwork, x: Tensor, m: Tensor) -> tuple[Tensor, list[Tensor]]:
    """(N, T) -> the imputation and the stages forwards and backwards."""
    first, second, told = literal_reading(net, 0, x, m)
    back = [part.flip(1) for part in literal_reading(net, 1, x.flip(1), m.flip(1))]
    embedding = net.embedding[:, None].expand(-1, x.shape[1], -1)
    layer = net.merge(torch.cat([told, back[2], m[..., None].double(), embedding], dim=-1)).relu()
    return net.out(layer)[..., 0], [first, back[0], second, back[1]]


def test_the_network_computes_the_papers_equations() -> None:
    net, (values, visible) = network(), window()
    predicted = net(values, visible)
    for number in range(len(values)):
        estimate, stages = literal(net, values[number], visible[number])
        torch.testing.assert_close(predicted.estimate[number], estimate)
        torch.testing.assert_close(predicted.stages[:, number], torch.stack(stages))


def test_the_loss_adds_the_errors_of_all_estimates_on_all_visible_cells_and_so_do_its_gradients() -> None:
    net, drawn = network(), example()
    total = torch.zeros((), dtype=torch.float64)
    for number in range(2):
        estimate, stages = literal(net, drawn.readable[number], drawn.seen[number])
        for guess in (estimate, *stages):
            total = total + ((guess - drawn.values[number]).abs()[drawn.visible[number]]).sum()
    expected = total / drawn.visible.sum()
    loss = loss_of(net, drawn)
    torch.testing.assert_close(loss, expected)
    parameters = list(net.parameters())
    for mine, theirs in zip(
        torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        torch.testing.assert_close(mine, theirs)


def test_a_longer_walk_is_one_setting() -> None:
    net = network(replace(SMALL, hops=1))
    assert net.recurrence.cell.gates.weight.shape == (2, 3 * (HIDDEN + 2), 2 * HIDDEN)
    assert network(replace(SMALL, hops=3))(*window()).estimate.shape == (2, SENSORS, STEPS)


# ------------------------------------------------------------------ what may be read


def test_what_is_not_visible_is_not_read() -> None:
    net, (values, visible) = network(), window()
    clock = torch.zeros(2, STEPS, 2)
    spoilt = torch.where(visible, values, float("nan"))
    assert torch.equal(net.impute(values, visible, clock), net.impute(spoilt, visible, clock))


def test_in_training_neither_hidden_nor_invisible_cells_are_read() -> None:
    net, drawn = network(), example()
    values = torch.where(drawn.visible, drawn.values, 1e6)
    assert torch.equal(loss_of(net, drawn), loss_of(net, drawn._replace(values=values)))
    spoilt = torch.where(drawn.hidden, 1e3, drawn.values)
    before = net(drawn.readable, drawn.seen)
    after = net(drawn._replace(values=spoilt).readable, drawn.seen)
    assert torch.equal(before.estimate, after.estimate)
    assert torch.equal(before.stages, after.stages)


def test_the_estimate_of_a_cell_does_not_read_the_cell() -> None:
    net, (values, visible) = network(), window()
    visible[0, 1, 2] = True
    changed = values.clone()
    changed[0, 1, 2] += 5.0
    before, after = net(values, visible).estimate, net(changed, visible).estimate
    assert before[0, 1, 2] == after[0, 1, 2]
    assert (before[0, 1] != after[0, 1]).sum() == STEPS - 1


def test_visible_cells_come_back_as_they_are() -> None:
    net, (values, visible) = network(), window()
    filled = net.impute(values, visible, torch.zeros(2, STEPS, 2))
    assert torch.equal(filled[visible], values[visible])


def test_edges_are_told_apart_by_their_direction() -> None:
    net, (values, visible) = network(), window()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        turned = GrinNetwork(SMALL, adjacency=ADJACENCY.mT.contiguous()).double()
    turned.load_state_dict(net.state_dict())
    assert not torch.allclose(net(values, visible).estimate, turned(values, visible).estimate)


def test_a_lonely_sensor_is_filled_from_itself() -> None:
    net, (values, visible) = network(), window()
    changed = values.clone()
    changed[:, :3] += 1.0
    assert torch.equal(net(values, visible).estimate[:, 3], net(changed, visible).estimate[:, 3])


def test_windows_without_a_visible_cell_give_finite_numbers() -> None:
    net = network()
    nothing = torch.zeros(1, SENSORS, 2, dtype=torch.bool)
    values = torch.zeros(1, SENSORS, 2, dtype=torch.float64)
    assert torch.isfinite(net.impute(values, nothing, torch.zeros(1, 2, 2))).all()
    loss = loss_of(net, Example(values, nothing, nothing, torch.zeros(1, 2, 2), torch.ones(())))
    assert loss == 0.0
    loss.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in net.parameters() if parameter.grad is not None)


def test_a_patch_of_sensors_is_a_network_of_its_own() -> None:
    net, (values, visible) = network(), window()
    patch = torch.tensor([0, 2, 3])
    alone = GrinNetwork(SMALL, adjacency=ADJACENCY[patch][:, patch]).double()
    weights = net.state_dict()
    weights["embedding"], weights["recurrence.start"] = net.embedding[patch], net.recurrence.start[:, patch]
    alone.load_state_dict(weights)
    values, visible = values[:, patch], visible[:, patch]
    torch.testing.assert_close(net(values, visible, patch).estimate, alone(values, visible).estimate)


def test_half_precision_stays_close() -> None:
    net, (values, visible) = network().float(), window()
    clock = torch.zeros(2, STEPS, 2)
    exact = net.impute(values.float(), visible, clock)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = net.impute(values.float(), visible, clock)
        drawn = example()
        loss_of(net, drawn._replace(values=drawn.values.float())).backward()
    torch.testing.assert_close(rough.float(), exact, atol=0.05, rtol=0.05)


# ------------------------------------------------------------------ the imputer


def test_the_settings_are_checked() -> None:
    with pytest.raises(InputError, match="hops must be at least 1"):
        GrinConfig(hops=0)
    with pytest.raises(InputError, match="window must be at least 2"):
        GrinConfig(window=1)


def test_the_benchmarks_graph_stays_directed(small_benchmark: Benchmark) -> None:
    assert GrinImputer().choose_graph(small_benchmark.graph) is small_benchmark.graph


def test_a_few_steps_reduce_the_loss(small_benchmark: Benchmark) -> None:
    model = GrinImputer(**{**TINY, "epochs": 3, "batches_per_epoch": 10, "learning_rate": 0.03})
    model.fit_benchmark(small_benchmark)
    assert model.result is not None
    losses = [record.train_loss for record in model.result.history]
    assert losses[-1] < 0.8 * losses[0]
    starts, filled = next(model.impute_windows(small_benchmark))
    assert filled.shape == (len(starts), 6, 12)
    assert np.isfinite(filled).all()


def test_a_table_is_filled_and_a_saved_model_fills_it_alike(six_sensors: Simulation, tmp_path: Path) -> None:
    table = six_sensors.table
    model = GrinImputer(**TINY).fit(table, sensors=six_sensors.sensors)
    filled = model.impute(table)
    assert not filled.isna().any().any()
    seen = table.notna().to_numpy()
    assert (filled.to_numpy()[seen] == table.to_numpy()[seen]).all()
    loaded = GrinImputer.from_pretrained(model.save_pretrained(tmp_path / "model"), device="cpu")
    assert loaded.impute(table).equals(filled)


def test_a_dead_sensor_and_patches_of_a_network_do_no_harm(six_sensors: Simulation) -> None:
    table = six_sensors.table.copy()
    table.iloc[:, 2] = np.nan
    model = GrinImputer(**{**TINY, "epochs": 1, "batches_per_epoch": 2, "sensors_per_batch": 3})
    filled = model.fit(table, sensors=six_sensors.sensors).impute(table)
    assert np.isfinite(filled.to_numpy()).all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
@pytest.mark.parametrize("settings", [{}, {"sensors_per_batch": 3}, {"precision": "bf16-mixed"}])
def test_a_recorded_training_on_a_gpu_learns_what_one_on_a_cpu_does(
    small_benchmark: Benchmark, settings: dict[str, Any]
) -> None:
    errors: list[float] = []
    for device in ("cpu", "cuda"):
        model = GrinImputer(**{**TINY, **settings, "batches_per_epoch": 20, "device": device})
        model.fit_benchmark(small_benchmark)
        assert model.result is not None
        errors.append(model.result.best_mae)
    # Both devices draw windows of their own.
    assert errors[1] == pytest.approx(errors[0], rel=0.3)
