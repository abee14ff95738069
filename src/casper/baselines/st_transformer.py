"""The spatiotemporal Transformer that Marisca, Cini and Alippi compare SPIN with (NeurIPS 2022, section 5).

A measured value becomes MLP(x), every hole the same learned token; an MLP of the clock and the step's sinusoids are
added. Then L layers, each with its own weights and pre-normalised:

    h' = W h + attention over the steps of a sensor (LayerNorm(h))
    h'' = h' + attention over all sensors at a step (LayerNorm(h'))
    h = h'' + MLP(LayerNorm(h''))                                       one hidden layer, ELU

An MLP reads an estimate from every layer. The loss is the sum over layers of the mean absolute error on the hidden
cells; the last layer's estimate is the answer. No graph is used and no sensor has an embedding of its own: sensors
differ by what they measured.

Defaults, from SPIN's appendix A and its published configuration: 5 layers, width 64, 4 heads, feed-forward 128, no
dropout; 300 epochs of 300 batches of 8, Adam 8e-4, patience 40, gradient norm 5, hidden shares 0.2, 0.5 and 0.8.

Departures from the original:
- the learning rate warms up over as many steps (12 epochs) and falls in one cosine, not in three with restarts that
  never go below a tenth: the training loop's schedule, the same for every method here
- 32 bit numbers instead of 16 (`precision="bf16-mixed"` comes near)
- the clock has the cycles that a table can teach (day, week, year) instead of always day and week
- LayerNorm divides by sqrt(variance + epsilon), the original by deviation + epsilon; weights begin as PyTorch's linear
  maps do
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from casper.baselines.parts_attention import MultiHeadAttention, embedding, mlp
from casper.config import NetworkConfig, TrainingConfig
from casper.errors import InputError
from casper.graph import SensorGraph
from casper.network.embedding import sinusoids
from casper.network.learning import Example, Outcome, WindowNetwork
from casper.network.noise import Noise
from casper.neural import NeuralImputer, Recipe


@dataclass(frozen=True)
class STTransformerConfig(NetworkConfig):
    """The spatiotemporal Transformer of SPIN's comparison."""

    width: int = 64
    """Size of every embedding."""
    layers: int = 5
    """Pairs of attention along time and along sensors."""
    heads: int = 4
    feed_forward: int = 128
    """Hidden width of every layer's MLP and of its readout."""
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.layers, self.heads, self.feed_forward) < 1:
            raise InputError("layers, heads and feed_forward must be at least 1")
        if self.width < 2 or self.width % 2 or self.width % self.heads:
            raise InputError(f"width must be even and a multiple of heads: {self.width} with {self.heads} heads is not")
        if not 0.0 <= self.dropout < 1.0:
            raise InputError(f"dropout must lie in [0, 1), not {self.dropout}")


class STTransformerLayer(nn.Module):
    """Attention along time, attention along sensors, MLP."""

    def __init__(self, config: STTransformerConfig) -> None:
        super().__init__()
        width, self.dropout = config.width, config.dropout
        self.skip = nn.Linear(width, width)
        self.norm_time, self.norm_sensors, self.norm_mlp = (nn.LayerNorm(width) for _ in range(3))
        self.along_time = MultiHeadAttention(width, config.heads)
        self.along_sensors = MultiHeadAttention(width, config.heads)
        self.widen, self.narrow = nn.Linear(width, config.feed_forward), nn.Linear(config.feed_forward, width)

    def forward(self, h: Tensor, noise: Noise) -> Tensor:
        asked = self.norm_time(h)
        h = self.skip(h) + noise.dropout(self.along_time(asked, asked, asked), self.dropout)
        asked = self.norm_sensors(h).transpose(1, 2)  # (B, T, N, D)
        h = h + noise.dropout(self.along_sensors(asked, asked, asked).transpose(1, 2), self.dropout)
        widened = noise.dropout(nn.functional.elu(self.widen(self.norm_mlp(h))), self.dropout)
        return h + noise.dropout(self.narrow(widened), self.dropout)


class STTransformerNetwork(WindowNetwork):
    """Values and visible cells of a window in, an estimate of every cell out."""

    config: STTransformerConfig
    steps: Tensor

    def __init__(self, config: STTransformerConfig, *, clock: int) -> None:
        """clock: number of its features."""
        super().__init__()
        self.config = config
        self.value, self.clock = mlp(1, config.width), mlp(clock, config.width)
        self.token = embedding(1, config.width)
        self.register_buffer("steps", sinusoids(config.window, config.width), persistent=False)
        self.layers = nn.ModuleList(STTransformerLayer(config) for _ in range(config.layers))
        self.readouts = nn.ModuleList(mlp(config.width, config.feed_forward, 1) for _ in range(config.layers))

    def forward(self, values: Tensor, visible: Tensor, clock: Tensor, noise: Noise) -> list[Tensor]:
        """Every layer's estimate, (B, N, T). What is not visible is not read."""
        values = values.masked_fill(~visible, 0.0)
        h = torch.where(visible[..., None], self.value(values[..., None]), self.token[0])
        h = h + (self.clock(clock) + self.steps[: clock.shape[1]])[:, None]
        estimates: list[Tensor] = []
        for layer, readout in zip(self.layers, self.readouts, strict=True):
            h = layer(h, noise)
            estimates.append(readout(h).squeeze(-1))
        return estimates

    def loss(self, example: Example, noise: Noise, *, training: TrainingConfig, temperature: Tensor) -> Outcome:
        estimates = self(example.readable, example.seen, example.clock, noise)
        errors = torch.stack([example.mean_absolute_error(estimate) for estimate in estimates])
        return Outcome(errors.sum(), errors.new_empty(0))

    def impute(self, values: Tensor, visible: Tensor, clock: Tensor) -> Tensor:
        return self(values, visible, clock, Noise.silent())[-1]


class STTransformerImputer(NeuralImputer[STTransformerConfig, STTransformerNetwork]):
    """Attention along time and along all sensors in turn."""

    name = "st-transformer"
    summary = "attention along time and along sensors in turn (baseline of Marisca et al., NeurIPS 2022)"
    recipe = Recipe(STTransformerConfig(), TrainingConfig(warmup_steps=12 * 300))

    def make_network(self, graph: SensorGraph, *, clock: int) -> STTransformerNetwork:
        return STTransformerNetwork(self.config, clock=clock)
