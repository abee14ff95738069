"""rGAIN: recurrent generative adversarial imputation, the adversarial baseline of GRIN (Cini et al., ICLR 2022).

GAIN (Yoon et al., ICML 2018) with recurrent networks, akin to SSGAN (Miao et al., AAAI 2021). The N sensors of a
window are one multivariate series. The generator reads it in both directions, one step ahead each:

    x_hat_s = W h_s + b                               from the steps before s (or behind it)
    h_s+1   = GRU([m x + (1 - m) x_hat_s; z_s; m], h_s)            z: a little noise
    x_s     = W' dropout([h_s forwards; h_s backwards]) + b'       the answer

The discriminator, a bidirectional GRU, sees the completed window c = m x + (1 - m) x_s and a hint (m for 70 % of the
cells, 1/2 elsewhere), and guesses m. With BCE the binary cross-entropy,

    generator:      alpha * sum of the three estimates' RMSE on visible cells + BCE(D(c), 1) on what was not seen
    discriminator:  BCE(D(c), m) on all cells

Defaults are those of GRIN's experiments: 300 epochs of 160 batches of 32 windows, Adam at 1e-3, 20 % of the visible
cells hidden, alpha 20, hints 70 %, 4 noise channels, no clipping, each sensor scaled by itself; hidden 64 and dropout
0.1 for AQI-36, 128 and 0.2 for AQI and METR-LA, 256 and 0.2 for PEMS-BAY.

Departures from the original:
- one optimiser for both: the loss is their sum, and each one's parameters see only its own part. Adam treats every
  parameter by itself, so this is the same as two optimisers
- generator and discriminator learn at every step; GRIN's experiments train the generator at every third one
- imputing uses the mean of the noise instead of averaging five draws: the same table is filled the same way
- the learning rate falls along a cosine to 0 and at every step (our loop); GRIN stops at 1e-4 and steps once an epoch
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from casper.baselines.parts_recurrent import (
    BothWaysLinear,
    GatedCell,
    all_sensors,
    both_ways,
    first_state,
    for_each_step,
    gated_step,
    in_time_order,
    linear,
    mean_on,
    truth,
)
from casper.config import NetworkConfig, Scaling, TrainingConfig
from casper.errors import InputError
from casper.graph import SensorGraph
from casper.network.learning import Example, Outcome, Repeated, WindowNetwork
from casper.network.noise import Noise
from casper.neural import NeuralImputer, Recipe

# The generator's noise is drawn evenly from 0 to this.
_LOUDEST = 0.1
# What the hint tells of a cell that it tells nothing about.
_UNTOLD = 0.5
# Below this a mean square is 0: the slope of its root would be infinite.
_TINY = 1e-12


@dataclass(frozen=True)
class RgainConfig(NetworkConfig):
    """rGAIN. The defaults are those of GRIN's experiments."""

    scaling: Scaling = "sensor"
    """One mean and deviation for the whole table, or one for each sensor."""
    hidden: int = 64
    """Size of the states of generator and discriminator."""
    noise_channels: int = 4
    """Random numbers that the generator reads at every step."""
    dropout: float = 0.1
    reconstruction: float = 20.0
    """alpha, the weight of the error on visible cells against the discriminator's verdict."""
    hints: float = 0.7
    """Share of the cells of which the discriminator is told whether they were seen."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden < 1:
            raise InputError(f"hidden must be at least 1, not {self.hidden}")
        if self.noise_channels < 0:
            raise InputError(f"noise_channels must not be negative, not {self.noise_channels}")
        if not 0.0 <= self.dropout < 1.0:
            raise InputError(f"dropout must lie in [0, 1), not {self.dropout}")
        if self.reconstruction <= 0:
            raise InputError(f"reconstruction must be positive, not {self.reconstruction}")
        if not 0.0 <= self.hints <= 1.0:
            raise InputError(f"hints must lie between 0 and 1, not {self.hints}")


class Estimates(NamedTuple):
    """joint: (B, N, T), from both directions; ahead: (2, B, N, T), from each of them."""

    joint: Tensor
    ahead: Tensor


class GeneratorWeights(NamedTuple):
    """Of a step's linear maps: of what it reads, of the state, and from the state to the estimate of the next step."""

    unknown: Tensor
    state: Tensor
    state_bias: Tensor
    ahead: Tensor
    ahead_bias: Tensor


def _generate(
    known: Tensor, x: Tensor, seen: Tensor, estimate: Tensor, state: Tensor, weights: GeneratorWeights
) -> tuple[Tensor, Tensor]:
    """The next state, (2, B, H), and what it makes of the next step, (2, B, N)."""
    read = torch.baddbmm(known, torch.where(seen, x, estimate), weights.unknown)
    state = gated_step(read, state, weights.state, weights.state_bias)
    return state, linear(state, weights.ahead, weights.ahead_bias)


class Generator(nn.Module):
    def __init__(self, config: RgainConfig, sensors: int) -> None:
        super().__init__()
        self.hidden, self.channels, self.dropout = config.hidden, config.noise_channels, config.dropout
        self.cell = GatedCell(known=sensors + config.noise_channels, unknown=sensors, hidden=config.hidden)
        self.ahead = BothWaysLinear(config.hidden, sensors)
        self.joint = nn.Linear(2 * config.hidden, sensors)
        self.step = Repeated(_generate)

    def forward(self, values: Tensor, visible: Tensor, noise: Noise) -> Estimates:
        """values, visible: (B, N, T). What is not visible is not read."""
        x, seen = both_ways(values.masked_fill(~visible, 0.0)), both_ways(visible)
        known = self.cell.ahead(torch.cat((seen.to(x.dtype), both_ways(self._noise(x, noise))), -1))
        assert self.cell.unknown is not None, "the generator reads its own estimates"
        cell, read_out = self.cell.state, self.ahead
        weights = for_each_step(
            x.shape[1] - 1, self.cell.unknown, cell.weight, cell.bias, read_out.weight, read_out.bias
        )
        state = first_state(x, 2, x.shape[2], self.hidden)
        states, ahead = [state], [self.ahead(state)]
        # The last step is estimated from those before: nobody asks what comes after it.
        steps = zip(*(each[:, :-1].unbind(1) for each in (known, x, seen)), weights, strict=True)
        for *now, mixing in steps:
            state, estimate = self.step(*now, ahead[-1], state, GeneratorWeights(*mixing))
            states.append(state)
            ahead.append(estimate)
        remembered = in_time_order(torch.stack(states, dim=1))  # (2, B, H, T)
        both = noise.dropout(torch.cat((remembered[0], remembered[1]), dim=1).mT, self.dropout)  # (B, T, 2H)
        return Estimates(self.joint(both).mT, in_time_order(torch.stack(ahead, dim=1)))

    def _noise(self, x: Tensor, noise: Noise) -> Tensor:
        """(B, channels, T)."""
        _, steps, batch, _ = x.shape
        if not (noise.active and self.channels):
            return x.new_full((batch, self.channels, steps), _LOUDEST / 2)
        return (noise.uniform(self.channels, steps) * _LOUDEST).to(x.dtype)


class Verdicts(NamedTuple):
    """Logits of having been seen, (B, N, T). judged: the generator learns from them, the discriminator does not;
    learning: the other way round."""

    judged: Tensor
    learning: Tensor


class Discriminator(nn.Module):
    def __init__(self, config: RgainConfig, sensors: int) -> None:
        super().__init__()
        self.hidden, self.dropout = config.hidden, config.dropout
        self.cell = GatedCell(known=2 * sensors, unknown=0, hidden=config.hidden)
        self.out = nn.Linear(2 * config.hidden, sensors)
        self.step = Repeated(gated_step)

    def forward(self, completed: Tensor, hint: Tensor, noise: Noise) -> Verdicts:
        """(B, N, T) each. Both verdicts at once, as if there were twice as many directions."""

        def twice(learning: Tensor) -> Tensor:
            return torch.cat((learning.detach(), learning))

        cells = torch.cat((both_ways(completed), both_ways(hint)), -1)
        known, remembered = self.cell.known, self.cell.state
        read = linear(torch.cat((cells, cells.detach())), twice(known.weight), twice(known.bias))  # (4, T, B, 3H)
        state = first_state(read, 4, read.shape[2], self.hidden)
        states: list[Tensor] = []
        weights = for_each_step(read.shape[1], twice(remembered.weight), twice(remembered.bias))
        for now, mixing in zip(read.unbind(1), weights, strict=True):
            state = self.step(now, state, *mixing)
            states.append(state)
        judging, learning = (
            noise.dropout(torch.cat(in_time_order(each).unbind(0), dim=1).mT, self.dropout)  # (B, T, 2H)
            for each in torch.stack(states, dim=1).chunk(2)
        )
        judged = F.linear(judging, self.out.weight.detach(), self.out.bias.detach())
        return Verdicts(judged.mT, self.out(learning).mT)


class RgainNetwork(WindowNetwork):
    config: RgainConfig

    def __init__(self, config: RgainConfig, *, sensors: int) -> None:
        super().__init__()
        self.config = config
        self.generator = Generator(config, sensors)
        self.discriminator = Discriminator(config, sensors)

    def loss(self, example: Example, noise: Noise, *, training: TrainingConfig, temperature: Tensor) -> Outcome:
        seen = example.seen
        made = cast("Estimates", self.generator(example.readable, seen, noise))
        completed = torch.where(seen, example.values, made.joint.to(example.values.dtype))
        hint = self._hint(seen, noise).to(completed.dtype)
        verdicts = cast("Verdicts", self.discriminator(completed, hint, noise))
        loss = self._generator_loss(example, made, verdicts.judged)
        loss = loss + F.binary_cross_entropy_with_logits(verdicts.learning, seen.to(verdicts.learning.dtype))
        return Outcome(loss, example.values.new_empty(0))

    def _hint(self, seen: Tensor, noise: Noise) -> Tensor:
        if not noise.active:
            return torch.full(seen.shape, _UNTOLD, device=seen.device)
        told = noise.uniform(*seen.shape[1:]) < self.config.hints
        return torch.where(told, seen.float(), _UNTOLD)

    def _generator_loss(self, example: Example, made: Estimates, judged: Tensor) -> Tensor:
        target = truth(example)
        errors = [
            mean_on((estimate - target).square(), example.visible).clamp_min(_TINY).sqrt()
            for estimate in (made.joint, *made.ahead.unbind(0))
        ]
        unbelieved = F.binary_cross_entropy_with_logits(judged, torch.ones_like(judged), reduction="none")
        return self.config.reconstruction * torch.stack(errors).sum() + mean_on(unbelieved, ~example.seen)

    def impute(self, values: Tensor, visible: Tensor, clock: Tensor) -> Tensor:
        return cast("Estimates", self.generator(values, visible, Noise.silent())).joint


class RgainImputer(NeuralImputer[RgainConfig, RgainNetwork]):
    """Recurrent adversarial imputation; the graph is not used."""

    name = "rgain"
    summary = (
        "recurrent adversarial imputation (baseline of Cini et al., ICLR 2022, after GAIN: Yoon et al., ICML 2018)"
    )
    recipe = Recipe(
        RgainConfig(),
        TrainingConfig(
            epochs=300,
            batches_per_epoch=160,
            batch_size=32,
            learning_rate=1e-3,
            warmup_steps=0,
            patience=40,
            clip=1e6,  # none: the generator's gradients would set the size of the discriminator's steps
            hidden_shares=(0.2,),
            compiled=False,  # not measured on a GPU yet; True: one step is compiled for all, see `Repeated`
        ),
    )

    for_benchmarks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "aqi36": {"window": 36},
        **{name: {"hidden": 128, "dropout": 0.2} for name in ("aqi", "metr-la-point", "metr-la-block")},
        **{name: {"hidden": 256, "dropout": 0.2} for name in ("pems-bay-point", "pems-bay-block")},
    }

    def make_network(self, graph: SensorGraph, *, clock: int) -> RgainNetwork:
        return RgainNetwork(self.config, sensors=all_sensors(graph, self.training))
