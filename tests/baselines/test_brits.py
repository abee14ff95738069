from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from casper.baselines.brits import BritsConfig, BritsImputer, BritsNetwork
from casper.baselines.parts_recurrent import LongShortTermCell, both_ways, gap_lengths, in_time_order, remember
from casper.config import TrainingConfig
from casper.datasets import Benchmark
from casper.errors import InputError
from casper.network.learning import Example
from casper.network.noise import Noise
from casper.simulate import Simulation

SMALL: dict[str, Any] = {"device": "cpu", "window": 12, "hidden": 8, "epochs": 2, "batches_per_epoch": 5}
BATCH, SENSORS, STEPS, HIDDEN = 2, 3, 5, 2


def network(dtype: torch.dtype = torch.float64, sensors: int = SENSORS) -> BritsNetwork:
    torch.manual_seed(0)
    return BritsNetwork(BritsConfig(window=STEPS, hidden=HIDDEN), sensors=sensors).to(dtype)


def example(dtype: torch.dtype = torch.float64) -> Example:
    random = torch.Generator().manual_seed(1)
    visible = torch.rand(BATCH, SENSORS, STEPS, generator=random) < 0.7
    hidden = visible & (torch.rand(visible.shape, generator=random) < 0.3)
    values = torch.randn(visible.shape, generator=random, dtype=dtype) * visible
    return Example(values, visible, hidden, torch.zeros(BATCH, STEPS, 2, dtype=dtype), hidden.sum())


def loss_of(net: BritsNetwork, of: Example) -> Tensor:
    return net.loss(of, Noise.silent(), training=TrainingConfig(), temperature=torch.ones(())).loss


# ---------------------------------------------------------------------- the paper's equations, cell by cell


def linear(x: list[Tensor], weight: Tensor, bias: Tensor) -> list[Tensor]:
    return [bias[o] + sum(x[i] * weight[i, o] for i in range(len(x))) for o in range(weight.shape[1])]  # type: ignore[misc]


def literal_direction(
    net: BritsNetwork, direction: int, x: list[list[float]], m: list[list[bool]]
) -> list[list[tuple[Tensor, Tensor, Tensor]]]:
    """x, m: [T][N] -> history, features and combination of every cell, [T][N], steps in the direction's order."""
    sensors, hidden = len(x[0]), net.config.hidden

    def map_of(module: Any) -> tuple[Tensor, Tensor]:
        return module.weight[direction], module.bias[direction, 0]

    h = [torch.zeros((), dtype=torch.float64)] * hidden
    c = list(h)
    delta = [0.0] * sensors
    made: list[list[tuple[Tensor, Tensor, Tensor]]] = []
    for t in range(len(x)):
        if t > 0:
            delta = [1.0 if m[t - 1][n] else 1.0 + delta[n] for n in range(sensors)]
        gaps, mask = [torch.tensor(d).double() for d in delta], [torch.tensor(float(seen)).double() for seen in m[t]]
        gamma_h = [torch.exp(-rate.clamp_min(0)) for rate in linear(gaps, *map_of(net.decay_state.rate))]
        own_weight, own_bias = net.decay_value.weight[direction, 0, 0], net.decay_value.bias[direction, 0, 0]
        gamma_x = [torch.exp(-(gaps[n] * own_weight[n] + own_bias[n]).clamp_min(0)) for n in range(sensors)]
        x_hat = linear(h, *map_of(net.history))
        x_c = [torch.tensor(x[t][n]).double() if m[t][n] else x_hat[n] for n in range(sensors)]
        weight, bias = map_of(net.features.linear)
        z_hat = [bias[n] + sum(x_c[o] * weight[o, n] for o in range(sensors) if o != n) for n in range(sensors)]
        beta = [logit.sigmoid() for logit in linear(gamma_x + mask, *map_of(net.combine))]
        c_hat = [beta[n] * z_hat[n] + (1 - beta[n]) * x_hat[n] for n in range(sensors)]
        c_c = [torch.tensor(x[t][n]).double() if m[t][n] else c_hat[n] for n in range(sensors)]
        decayed = [h[i] * gamma_h[i] for i in range(hidden)]
        from_mask, from_rest = linear(mask, *map_of(net.cell.known)), linear(c_c + decayed, *map_of(net.cell.step))
        gates = [one + other for one, other in zip(from_mask, from_rest, strict=True)]
        read, forget, new, write = (gates[k * hidden : (k + 1) * hidden] for k in range(4))
        c = [forget[i].sigmoid() * c[i] + read[i].sigmoid() * new[i].tanh() for i in range(hidden)]
        h = [write[i].sigmoid() * c[i].tanh() for i in range(hidden)]
        made.append([(x_hat[n], z_hat[n], c_hat[n]) for n in range(sensors)])
    return made


def literal(net: BritsNetwork, of: Example) -> tuple[Tensor, Tensor]:
    """The loss and the answer for every cell, (B, N, T)."""
    error, apart = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    answer = torch.empty(of.values.shape, dtype=torch.float64)
    for b in range(BATCH):
        x, m = of.values[b].T.tolist(), of.seen[b].T.tolist()
        forwards = literal_direction(net, 0, x, m)
        backwards = literal_direction(net, 1, x[::-1], m[::-1])[::-1]
        for t in range(STEPS):
            for n in range(SENSORS):
                one, other = forwards[t][n], backwards[t][n]
                if of.visible[b, n, t]:
                    error = error + sum((estimate - of.values[b, n, t]).abs() for estimate in one + other)
                if not of.seen[b, n, t]:
                    apart = apart + (one[2] - other[2]).abs()
                answer[b, n, t] = ((one[2] + other[2]) / 2).detach()
    return error / of.visible.sum() + 0.1 * apart / of.values.numel(), answer


def test_loss_and_its_gradients_are_those_of_the_equations_cell_by_cell() -> None:
    net, of = network(), example()
    wanted, answer = literal(net, of)
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
    torch.testing.assert_close(net.impute(of.readable, of.seen, of.clock), answer)


def test_the_cell_is_torchs_lstm_cell() -> None:
    torch.manual_seed(0)
    cell, torchs = LongShortTermCell(known=2, unknown=3, hidden=4), nn.LSTMCell(5, 4)
    with torch.no_grad():
        torchs.weight_ih.copy_(torch.cat((cell.step.weight[1, :3], cell.known.weight[1])).T)
        torchs.weight_hh.copy_(cell.step.weight[1, 3:].T)
        torchs.bias_ih.copy_(cell.known.bias[1, 0])
        torchs.bias_hh.copy_(cell.step.bias[1, 0])
    known, unknown, h, c = (torch.randn(2, 6, size) for size in (2, 3, 4, 4))
    found = remember(cell.ahead(known[:, None])[:, 0], unknown, h, c, cell.step.weight)
    wanted = torchs(torch.cat((unknown[1], known[1]), -1), (h[1], c[1]))
    torch.testing.assert_close((found[0][1], found[1][1]), wanted)


def test_gaps_are_counted_from_the_last_visible_step_before_or_from_the_windows_edge() -> None:
    visible = torch.tensor([[[False, False, True, False, False, True, True], [False] * 7]])
    gaps = in_time_order(gap_lengths(both_ways(visible)))
    assert gaps[0, 0, 0].tolist() == [0, 1, 2, 1, 2, 3, 1]
    assert gaps[1, 0, 0].tolist() == [2, 1, 3, 2, 1, 1, 0]
    assert gaps[0, 0, 1].tolist() == [0, 1, 2, 3, 4, 5, 6]


# ---------------------------------------------------------------------- what it must not do


def test_what_is_not_visible_is_not_read() -> None:
    net, of = network(), example()
    garbage = torch.where(of.visible, of.values, torch.nan)
    assert loss_of(net, of._replace(values=garbage)) == loss_of(net, of)
    torch.testing.assert_close(
        net.impute(torch.where(of.seen, of.values, torch.nan), of.seen, of.clock),
        net.impute(of.values, of.seen, of.clock),
        rtol=0,
        atol=0,
    )


def test_an_estimate_of_a_seen_cell_does_not_look_at_the_cell() -> None:
    net, of = network(), example()
    everything = torch.ones_like(of.visible)
    changed = of.values.clone()
    changed[0, 1, 2] += 1.0
    before, after = net.impute(of.values, everything, of.clock), net.impute(changed, everything, of.clock)
    assert before[0, 1, 2] == after[0, 1, 2]
    assert (before[0, [0, 2], 2] != after[0, [0, 2], 2]).all()


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
    assert net.impute(of.values[..., :2], of.seen[..., :2], of.clock[:, :2]).shape == (BATCH, SENSORS, 2)


def test_settings_that_make_no_sense_are_refused(six_sensors: Simulation) -> None:
    for wrong in ({"hidden": 0}, {"consistency": -1.0}, {"window": 1}):
        with pytest.raises(InputError):
            BritsImputer(**wrong)
    with pytest.raises(InputError, match="reads all 6 sensors at once"):
        BritsImputer(**SMALL, sensors_per_batch=3).fit(six_sensors.table)


# ---------------------------------------------------------------------- as an imputer


def test_training_lowers_the_loss(six_sensors: Simulation) -> None:
    model = BritsImputer(**{**SMALL, "epochs": 5, "batches_per_epoch": 10, "learning_rate": 0.02})
    model.fit(six_sensors.table)
    assert model.result is not None
    assert model.result.history[-1].train_loss < 0.8 * model.result.history[0].train_loss


def test_it_is_trained_on_a_benchmark_with_a_longer_window_too(small_benchmark: Benchmark) -> None:
    model = BritsImputer(**{**SMALL, "window": 16, "epochs": 1})
    model.fit_benchmark(small_benchmark)
    starts, estimates = next(iter(model.impute_windows(small_benchmark)))
    assert estimates.shape == (len(starts), 6, small_benchmark.window)
    assert np.isfinite(estimates).all()
