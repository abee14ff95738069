from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from casper.baselines.pogevon import (
    PogevonConfig,
    PogevonImputer,
    PogevonNetwork,
    TwoLinear,
    normal_draws,
    walk_positions,
)
from casper.config import TrainingConfig
from casper.datasets import Benchmark
from casper.errors import InputError
from casper.network.learning import Example
from casper.network.noise import Noise
from casper.simulate import Simulation

SMALL: dict[str, Any] = {
    "width": 8,
    "latent": 3,
    "embedding": 2,
    "feed_forward": 6,
    "edge_sensors": 4,
}
HURRIED: dict[str, Any] = {**SMALL, "device": "cpu", "window": 12, "epochs": 2, "batches_per_epoch": 5, "batch_size": 4}
ADJACENCY = np.array([[0.0, 0.5, 0.0, 0.0], [0.2, 0.0, 0.9, 0.0], [0.0, 0.3, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
CLOCK = 2


def network(adjacency: np.ndarray = ADJACENCY, **settings: Any) -> PogevonNetwork:
    torch.manual_seed(1)
    config = PogevonConfig(**{**SMALL, "window": 5, **settings})
    positions = walk_positions(adjacency, np.array([1, 0]), config.restart)
    made = PogevonNetwork(
        config, adjacency=torch.tensor(adjacency), positions=torch.as_tensor(positions), clock=CLOCK
    ).double()
    # From float32 back to what they were, so that a literal double implementation can be compared closely.
    made.adjacency, made.positions = torch.tensor(adjacency), torch.as_tensor(positions)
    return made


def example(batch: int = 2, sensors: int = 4, steps: int = 5) -> Example:
    generator = torch.Generator().manual_seed(0)
    visible = torch.rand(batch, sensors, steps, generator=generator) < 0.7
    hidden = visible & (torch.rand(batch, sensors, steps, generator=generator) < 0.3)
    values = torch.randn(batch, sensors, steps, generator=generator, dtype=torch.float64) * visible
    clock = torch.randn(batch, steps, CLOCK, generator=generator, dtype=torch.float64)
    return Example(values, visible, hidden, clock, hidden.sum().clamp_min(1))


def noise(batch: int = 2) -> Noise:
    return Noise(torch.Generator().manual_seed(7), batch=batch, share=slice(None))


def loss_of(made: PogevonNetwork, given: Example) -> Tensor:
    return made.loss(given, noise(len(given.values)), training=TrainingConfig(), temperature=torch.ones(())).loss


# ---------------------------------------------------------------- the equations, one sensor at a time


def literal_linear(layer: TwoLinear, direction: int, *parts: Tensor) -> Tensor:
    return torch.cat(parts) @ layer.weight[direction] + layer.bias[direction, 0]


def literal_gru(gates: Any, direction: int, x: Tensor, h: Tensor) -> Tensor:
    cell = torch.nn.GRUCell(len(x), len(h), dtype=torch.float64)
    weights = {
        "weight_ih": gates.read.weight[direction].T,
        "weight_hh": gates.recall.weight[direction].T,
        "bias_ih": gates.read.bias[direction, 0],
        "bias_hh": gates.recall.bias[direction, 0],
    }
    return torch.func.functional_call(cell, weights, (x[None], h[None]))[0]


def literal_attention(made: PogevonNetwork, direction: int, y: list[Tensor], i: int) -> Tensor:
    attention, heads = made.decoder.attention, made.config.heads
    entered = [literal_linear(attention.enter, direction, each) for each in y]
    projected = [literal_linear(attention.query_key_value, direction, each).reshape(3, heads, -1) for each in entered]
    others = [j for j in range(len(y)) if j != i]
    attended: list[Tensor] = []
    for head in range(heads):
        query = projected[i][0, head]
        scores = torch.stack([query @ projected[j][1, head] / math.sqrt(len(query)) for j in others])
        weights = scores.exp() / scores.exp().sum()
        attended.append(sum((w * projected[j][2, head] for w, j in zip(weights, others, strict=True)), torch.zeros(())))
    return literal_linear(attention.leave, direction, *attended)


def literal_direction(made: PogevonNetwork, d: int, x: Tensor, seen: Tensor, z_noise: Tensor, h0: Tensor) -> Any:
    """One direction of one window; x, seen: (N, T) in its order of steps."""
    encoder, decoder, count, steps = made.encoder, made.decoder, x.shape[0], x.shape[1]
    r, adjacency = made.positions, made.adjacency
    mask = seen.double()
    z, divergences = [], []
    for i in range(count):
        low, high = torch.zeros(made.config.width).double(), torch.zeros(made.config.width).double()
        for t in range(steps):
            low = literal_gru(encoder.lower, d, torch.cat((x[i, t : t + 1], mask[i, t : t + 1], r[i])), low)
            high = literal_gru(encoder.upper, d, low, high)
        mean = literal_linear(encoder.mean, d, low, high)
        deviation = literal_linear(encoder.log_deviation, d, low, high).exp()
        z.append(mean + deviation * z_noise[i])
        q, p = torch.distributions.Normal(mean, deviation), torch.distributions.Normal(0.0, 1.0)
        divergences.append(torch.distributions.kl_divergence(q, p))
    out_sum, in_sum = adjacency.sum(1), adjacency.sum(0)
    h = list(h0)
    first, second, nodes, states = [], [], [], []
    for t in range(steps):
        x1 = [literal_linear(decoder.first, d, h[i]) for i in range(count)]
        m = [mask[i, t : t + 1] for i in range(count)]
        filled = [x[i, t : t + 1] if seen[i, t] else x1[i] for i in range(count)]
        u = [
            literal_linear(decoder.merge, d, literal_linear(decoder.node, d, filled[i], m[i], r[i]), h[i])
            for i in range(count)
        ]

        def spread(v: list[Tensor]) -> list[Tensor]:
            result = []
            for i in range(count):
                total = torch.zeros(made.config.width).double()
                for j in range(count):
                    if out_sum[i] > 0:
                        total = total + adjacency[i, j] / out_sum[i] * v[j] / 2
                    if in_sum[i] > 0:
                        total = total + adjacency[j, i] / in_sum[i] * v[j] / 2
                result.append(total)
            return result

        v1 = [literal_linear(decoder.near, d, each) for each in spread(u)]
        v2 = [literal_linear(decoder.far, d, each) for each in spread(v1)]
        v = [a + b for a, b in zip(v1, v2, strict=True)]
        y = [literal_linear(decoder.join, d, z[i], filled[i], m[i], v[i], h[i]) for i in range(count)]
        o = [
            torch.nn.functional.prelu(
                literal_linear(decoder.mix, d, y[i], literal_attention(made, d, y, i), v[i], h[i]),
                decoder.slope[d].flatten(),
            )
            for i in range(count)
        ]
        x2 = [literal_linear(decoder.second, d, o[i], v[i], h[i]) for i in range(count)]
        first.append(torch.cat(x1))
        second.append(torch.cat(x2))
        nodes.append((u, h))
        states.append([torch.cat((o[i], v[i], h[i])) for i in range(count)])
        refilled = [x[i, t : t + 1] if seen[i, t] else x2[i] for i in range(count)]
        h = [literal_gru(decoder.gates, d, torch.cat((z[i], refilled[i], m[i], v[i])), h[i]) for i in range(count)]
    return torch.stack(first, 1), torch.stack(second, 1), nodes, states, torch.stack(divergences)


def literal_loss(made: PogevonNetwork, given: Example, drawn: Noise) -> tuple[Tensor, Tensor]:
    """The loss and the estimate. drawn: silent, or what the network draws from, in its order."""
    config = made.config
    batch, count, steps = given.values.shape
    h0 = torch.zeros(2, batch, count, config.width).double()
    z_noise = torch.zeros(2, batch, count, config.latent).double()
    rows = columns = torch.zeros(0, dtype=torch.long)
    if drawn.active:
        h0 = normal_draws(drawn, count, config.width).double() / math.sqrt(config.width)
        z_noise = normal_draws(drawn, count, config.latent).double()
        rows, columns = drawn.pick(count, config.edge_sensors), drawn.pick(count, config.edge_sensors)
    estimates, divergences, absolute, squares = [], [[], []], torch.zeros(()).double(), torch.zeros(2).double()
    for b in range(batch):
        x, seen, truth, visible = given.readable[b], given.seen[b], given.values[b], given.visible[b]
        both: list[Any] = []
        for d in range(2):
            order = list(range(steps))[:: 1 if d == 0 else -1]
            found = literal_direction(made, d, x[:, order], seen[:, order], z_noise[d, b], h0[d, b])
            first, second, nodes, states, divergence = found
            divergences[d].append(divergence)
            for stage in (first, second):
                absolute = absolute + (stage - truth[:, order]).abs()[visible[:, order]].sum()
            both.append([states[order.index(t)] for t in range(steps)])
            for place, t in enumerate(order):
                u, h = nodes[place]
                time = literal_linear(made.edges.time, d, given.clock[b, t]) if made.edges is not None else None
                for i in rows.tolist():
                    for j in columns.tolist():
                        assert made.edges is not None
                        assert time is not None
                        hidden = literal_linear(made.edges.hidden, d, u[j], h[i], time).relu()
                        edge = literal_linear(made.edges.out, d, hidden).sigmoid()[0]
                        squares[d] += (edge - made.adjacency[i, j]) ** 2
        estimate = torch.zeros(count, steps).double()
        for i in range(count):
            for t in range(steps):
                hidden = made.from_embedding(made.embedding[i])
                for d in range(2):
                    hidden = hidden + literal_linear(made.from_states, d, both[d][t][i])
                estimate[i, t] = made.out(hidden.relu())[0]
        absolute = absolute + (estimate - truth).abs()[visible].sum()
        estimates.append(estimate)
    loss = absolute / given.visible.sum()
    loss = loss + config.kl_weight * (torch.stack(divergences[0]).mean() + torch.stack(divergences[1]).mean())
    if drawn.active:
        mean_square = squares / (batch * steps * config.edge_sensors**2)
        loss = loss + config.edge_weight * (mean_square * batch * steps * count**2).sqrt().sum()
    return loss, torch.stack(estimates)


def test_the_estimate_is_that_of_the_equations() -> None:
    made, given = network(), example()
    expected = literal_loss(made, given, Noise.silent())[1]
    torch.testing.assert_close(made.impute(given.readable, given.seen, given.clock), expected)


def test_the_loss_and_its_gradients_are_those_of_the_equations() -> None:
    made, given = network(), example(steps=3)
    expected = literal_loss(made, given, noise())[0]
    found = loss_of(made, given)
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)
    wanted = [name for name, _ in made.named_parameters()]
    parameters = list(made.parameters())
    for name, ours, theirs in zip(
        wanted, torch.autograd.grad(found, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9, msg=name)


# ---------------------------------------------------------------- positions and draws


def test_positions_are_where_a_walk_with_restarts_comes_to_rest() -> None:
    adjacency = ADJACENCY.copy()
    adjacency[2] = 0.0  # a dead end: the walk returns to its anchor
    anchors = np.array([0, 3])
    probability = adjacency / np.maximum(adjacency.sum(1, keepdims=True), 1e-30)
    for anchor, found in zip(anchors, walk_positions(adjacency, anchors, 0.15).T, strict=True):
        place = np.eye(4)[anchor]
        for _ in range(300):
            place = 0.85 * probability.T @ place
            place[anchor] += 1.0 - place.sum()
        np.testing.assert_allclose(found, place, atol=1e-12)


def test_nobody_walks_from_a_sensor_without_neighbours() -> None:
    np.testing.assert_allclose(walk_positions(ADJACENCY, np.array([3]), 0.15)[:, 0], [0, 0, 0, 1])


def test_draws_are_standard_normal_and_differ_between_directions() -> None:
    drawn = normal_draws(noise(8), 50, 50)
    assert drawn.shape == (2, 8, 50, 50)
    assert abs(float(drawn.mean())) < 0.02
    assert abs(float(drawn.std()) - 1.0) < 0.02
    assert abs(float((drawn[0] * drawn[1]).mean())) < 0.03
    assert abs(float((drawn.abs() < 1.0).double().mean()) - 0.6827) < 0.01


# ---------------------------------------------------------------- what may be read


def test_what_is_not_visible_is_not_read() -> None:
    made, given = network(), example()
    changed = torch.where(given.seen, given.values, given.values + 100.0)
    filled = made.impute(given.values, given.seen, given.clock)
    assert torch.equal(filled, made.impute(changed, given.seen, given.clock))


def test_hidden_values_are_scored_but_not_read() -> None:
    made, given = network(), example()
    plain = loss_of(made, given)
    nowhere = given._replace(values=torch.where(given.visible, given.values, 1e3))
    assert torch.equal(loss_of(made, nowhere), plain)
    far, farther = (
        loss_of(made, given._replace(values=torch.where(given.hidden, value, given.values))).item()
        for value in (1000.0, 3000.0)
    )
    share = 5 * given.hidden.sum().item() / given.visible.sum().item()  # five estimates are scored
    assert farther - far == pytest.approx(2000.0 * share, rel=1e-9), "were they read, the estimates would move"


def test_every_sensor_and_step_can_matter_to_an_estimate() -> None:
    made, given = network(), example()
    values = given.values.clone().requires_grad_()
    made.impute(values, torch.ones_like(given.visible), given.clock)[0, 1, 2].backward()
    assert values.grad is not None
    assert (values.grad[0] != 0).all(), "even those without an edge, by the attention"
    assert (values.grad[1] == 0).all(), "but not other windows"


@pytest.mark.parametrize("sensors", [2, 4])
def test_windows_without_visible_cells_and_graphs_without_edges_give_finite_numbers(sensors: int) -> None:
    made, given = network(np.zeros((sensors, sensors))), example(sensors=sensors, steps=2)
    nothing = torch.zeros_like(given.visible)
    empty = Example(given.values * 0, nothing, nothing, given.clock, torch.ones(()))
    loss = loss_of(made, empty)
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in made.parameters())
    assert made.impute(empty.values, nothing, given.clock).isfinite().all()


def test_part_of_the_sensors_can_be_trained_on() -> None:
    made, given = network(), example()
    chosen = torch.tensor([0, 1, 3])
    values, visible, hidden = (x[:, chosen] for x in given[:3])
    part = Example(values, visible, hidden, given.clock, given.divisor, chosen)
    loss = loss_of(made, part)
    loss.backward()
    assert loss.isfinite()
    assert made.embedding.grad is not None
    assert (made.embedding.grad[2] == 0).all()


def test_only_the_edge_loss_needs_the_clock_and_it_can_be_left_out() -> None:
    made = network(edge_weight=0.0)
    assert made.edges is None
    given = example()
    assert torch.equal(loss_of(made, given), loss_of(made, given._replace(clock=given.clock + 1.0)))


def test_half_precision_is_close() -> None:
    made, given = network().float(), example()
    single = given._replace(values=given.values.float(), clock=given.clock.float())
    exact = loss_of(made, single)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = loss_of(made, single)
    assert rough.dtype == torch.float32
    assert rough.item() == pytest.approx(exact.item(), rel=0.03)


# ---------------------------------------------------------------- as an imputer


def test_training_reduces_the_loss(small_benchmark: Benchmark) -> None:
    imputer = PogevonImputer(**{**HURRIED, "epochs": 3, "batches_per_epoch": 10, "learning_rate": 1e-2})
    imputer.fit_benchmark(small_benchmark)
    assert imputer.result is not None
    first, *_, last = imputer.result.history
    assert last.train_loss < 0.8 * first.train_loss
    assert last.validation_mae < first.validation_mae
    for _, filled in imputer.impute_windows(small_benchmark):
        assert np.isfinite(filled).all()


def test_a_table_is_filled_and_a_saved_model_gives_the_same_numbers(six_sensors: Simulation, tmp_path: Path) -> None:
    table = six_sensors.table
    imputer = PogevonImputer(**HURRIED).fit(table, sensors=six_sensors.sensors)
    filled = imputer.impute(table)
    assert not filled.isna().to_numpy().any()
    observed = table.notna().to_numpy()
    assert (filled.to_numpy()[observed] == table.to_numpy()[observed]).all()
    folder = imputer.save_pretrained(tmp_path / "model")
    torch.manual_seed(123)  # other anchors are drawn when it is made anew, but the saved ones are used
    pd.testing.assert_frame_equal(PogevonImputer.from_pretrained(folder, device="cpu").impute(table), filled)


def test_the_defaults_are_those_of_the_authors() -> None:
    imputer = PogevonImputer(device="cpu")
    config, training = imputer.config, imputer.training
    assert (config.width, config.latent, config.embedding, config.heads, config.feed_forward) == (64, 16, 16, 2, 64)
    assert (config.restart, config.kl_weight, config.edge_weight, config.prediction_weight) == (0.15, 0.2, 0.01, 1.0)
    assert (training.epochs, training.batches_per_epoch, training.batch_size) == (300, 160, 32)
    assert (training.learning_rate, training.patience, training.clip) == (1e-3, 40, 5.0)
    assert training.hidden_shares == (0.05,)


@pytest.mark.parametrize(
    "wrong",
    [{"width": 7}, {"latent": 0}, {"dropout": 1.0}, {"restart": 0.0}, {"anchors": 0}, {"kl_weight": -1.0}],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        dataclasses.replace(PogevonConfig(), **wrong)
