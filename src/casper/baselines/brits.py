"""BRITS: bidirectional recurrent imputation of time series (Cao et al., NeurIPS 2018).

The N sensors of a window are one multivariate series. In each direction of time, at every step t:

    x_hat  = W_x h + b_x                        history: from what the cell remembers
    x_c    = m x + (1 - m) x_hat
    z_hat  = W_z x_c + b_z,  diag(W_z) = 0      features: from the other sensors at the same step
    beta   = sigmoid(W_b [gamma_x; m] + b_b)
    c_hat  = beta z_hat + (1 - beta) x_hat      their combination
    c_c    = m x + (1 - m) c_hat
    h      = LSTM([c_c; m], gamma_h h)          gamma = exp(-max(0, W delta + b)), delta: steps since the last reading

The loss is the mean absolute error of x_hat, z_hat and c_hat on all visible cells, of both directions, plus 0.1 times
the mean difference between the two directions' c_c. The answer is the mean of the two c_hat.

Defaults are those of GRIN's experiments (Cini et al., ICLR 2022): 300 epochs of 160 batches of 32 windows, Adam at
1e-3, 5 % of the visible cells hidden, gradients clipped at 5, each sensor scaled by itself; hidden 64 for AQI-36 (also
the authors' for health care), 128 for AQI and METR-LA, 256 for PEMS-BAY.

Departures from the original:
- no classification head: there are no labels here
- cells are hidden in training and count in the loss, as GRIN trains it; the authors hide none
- the history is read before the state decays and beta is a sigmoid, as in the paper and in GRIN's version; the
  authors' code decays first and has no sigmoid
- errors are averaged over all steps at once, as GRIN does, not step by step
- the learning rate falls along a cosine to 0 and at every step (our loop); GRIN stops at 1e-4 and steps once an epoch
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from casper.baselines.parts_recurrent import (
    BothWaysLinear,
    LongShortTermCell,
    SensorDecay,
    TemporalDecay,
    all_sensors,
    both_ways,
    first_state,
    for_each_step,
    gap_lengths,
    in_time_order,
    linear,
    mean_on,
    remember,
    truth,
)
from casper.config import NetworkConfig, Scaling, TrainingConfig
from casper.errors import InputError
from casper.graph import SensorGraph
from casper.network.learning import Example, Outcome, Repeated, WindowNetwork
from casper.network.noise import Noise
from casper.neural import NeuralImputer, Recipe


@dataclass(frozen=True)
class BritsConfig(NetworkConfig):
    """BRITS. The defaults are those of GRIN's experiments."""

    scaling: Scaling = "sensor"
    """One mean and deviation for the whole table, or one for each sensor."""
    hidden: int = 64
    """Size of the LSTM's state."""
    consistency: float = 0.1
    """Weight of the difference between the two directions in the loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden < 1:
            raise InputError(f"hidden must be at least 1, not {self.hidden}")
        if self.consistency < 0:
            raise InputError(f"consistency must not be negative, not {self.consistency}")


class OtherSensors(nn.Module):
    """z_hat = W_z x_c + b_z with a zero diagonal: no sensor is estimated from itself."""

    others: Tensor

    def __init__(self, sensors: int) -> None:
        super().__init__()
        self.linear = BothWaysLinear(sensors, sensors, bound=1.0 / math.sqrt(sensors))
        self.register_buffer("others", 1.0 - torch.eye(sensors), persistent=False)

    def weight(self) -> Tensor:
        return self.linear.weight * self.others


class Estimates(NamedTuple):
    """(2, B, N, T) each, forwards and backwards. completed: visible values where there are, else `combined`."""

    history: Tensor
    features: Tensor
    combined: Tensor
    completed: Tensor


class Known(NamedTuple):
    """What is known of a step before it is come to, (2, B, ..). x, seen, beta: of N; keep: of H; ahead: of 4H."""

    x: Tensor
    seen: Tensor
    beta: Tensor
    keep: Tensor
    ahead: Tensor


class Weights(NamedTuple):
    """Of a step's linear maps."""

    history: Tensor
    history_bias: Tensor
    features: Tensor
    features_bias: Tensor
    cell: Tensor


def _step(known: Known, state: Tensor, memory: Tensor, weights: Weights) -> tuple[Tensor, ...]:
    """x_hat, z_hat and c_hat, the next state and memory."""
    x_hat = linear(state, weights.history, weights.history_bias)
    z_hat = linear(torch.where(known.seen, known.x, x_hat), weights.features, weights.features_bias)
    c_hat = x_hat + known.beta * (z_hat - x_hat)
    completed = torch.where(known.seen, known.x, c_hat)
    return x_hat, z_hat, c_hat, *remember(known.ahead, completed, state * known.keep, memory, weights.cell)


class BritsNetwork(WindowNetwork):
    config: BritsConfig

    def __init__(self, config: BritsConfig, *, sensors: int) -> None:
        super().__init__()
        self.config = config
        self.decay_state = TemporalDecay(sensors, config.hidden)
        self.decay_value = SensorDecay(sensors)
        self.history = BothWaysLinear(config.hidden, sensors)
        self.features = OtherSensors(sensors)
        self.combine = BothWaysLinear(2 * sensors, sensors)
        self.cell = LongShortTermCell(known=sensors, unknown=sensors, hidden=config.hidden)
        self.step = Repeated(_step)

    def forward(self, values: Tensor, visible: Tensor) -> Estimates:
        """values, visible: (B, N, T). What is not visible is not read."""
        x, seen = both_ways(values.masked_fill(~visible, 0.0)), both_ways(visible)
        mask, gaps = seen.to(x.dtype), gap_lengths(seen).to(x.dtype)
        # All that does not depend on the state is worked out for all steps at once.
        keep = self.decay_state(gaps)
        beta = self.combine(torch.cat((self.decay_value(gaps), mask), -1)).sigmoid()
        known = zip(*(each.unbind(1) for each in (x, seen, beta, keep, self.cell.ahead(mask))), strict=True)
        weights = for_each_step(
            x.shape[1],
            *(self.history.weight, self.history.bias),
            *(self.features.weight(), self.features.linear.bias),
            self.cell.step.weight,
        )
        state, memory = (first_state(x, 2, x.shape[2], self.config.hidden) for _ in range(2))
        made: list[tuple[Tensor, ...]] = []
        for now, mixing in zip(known, weights, strict=True):
            *estimates, state, memory = self.step(Known(*now), state, memory, Weights(*mixing))
            made.append(tuple(estimates))
        in_order = [in_time_order(torch.stack(steps, dim=1)) for steps in zip(*made, strict=True)]
        return Estimates(*in_order, completed=torch.where(visible, values, in_order[-1]))

    def loss(self, example: Example, noise: Noise, *, training: TrainingConfig, temperature: Tensor) -> Outcome:
        made = self(example.readable, example.seen)
        target = truth(example)
        error = torch.zeros_like(target)
        for estimate in (made.history, made.features, made.combined):
            error = error + (estimate - target).abs().sum(0)
        apart = (made.completed[0] - made.completed[1]).abs().mean()
        loss = mean_on(error, example.visible) + self.config.consistency * apart
        return Outcome(loss, example.values.new_empty(0))

    def impute(self, values: Tensor, visible: Tensor, clock: Tensor) -> Tensor:
        return self(values, visible).combined.mean(0)


class BritsImputer(NeuralImputer[BritsConfig, BritsNetwork]):
    """Bidirectional recurrent imputation; the graph is not used."""

    name = "brits"
    summary = "bidirectional recurrent imputation (Cao et al., NeurIPS 2018)"
    recipe = Recipe(
        BritsConfig(),
        TrainingConfig(
            epochs=300,
            batches_per_epoch=160,
            batch_size=32,
            learning_rate=1e-3,
            warmup_steps=0,
            patience=40,
            clip=5.0,
            hidden_shares=(0.05,),
            compiled=False,  # not measured on a GPU yet; True: one step is compiled for all, see `Repeated`
        ),
    )

    for_benchmarks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "aqi36": {"window": 36},
        **{name: {"hidden": 128} for name in ("aqi", "metr-la-point", "metr-la-block")},
        **{name: {"hidden": 256} for name in ("pems-bay-point", "pems-bay-block")},
    }

    def make_network(self, graph: SensorGraph, *, clock: int) -> BritsNetwork:
        return BritsNetwork(self.config, sensors=all_sensors(graph, self.training))
