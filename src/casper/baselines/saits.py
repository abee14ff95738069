"""SAITS: self-attention-based imputation of time series (Du et al., Expert Systems with Applications 2023).

The N sensors of a window are one multivariate series: a step is a token of N readings and their mask. Two blocks of
transformer layers along time, in whose attention the diagonal is masked, so that no step is estimated from itself:

    Z1  = layers(W_e [x; m] + b_e + position)          X1 = W_z Z1 + b_z
    Z2  = layers(W_a [x'; m] + b_a + position)         X2 = W_g relu(W_b Z2 + b_b) + b_g,  x' = m x + (1 - m) X1
    eta = sigmoid(W_eta [m; A] + b_eta)                A: the last layer's attention, (T, T), mean over heads
    X3  = (1 - eta) X1 + eta X2                        the answer

A layer is pre-norm: h += attention(norm(h)); h += W relu(W norm(h)). The loss is the mean absolute error of X3 on the
hidden cells (masked imputation) plus that of X1, X2 and X3, a third each, on the seen ones (observed reconstruction).

Defaults are those of SPIN's experiments on our benchmarks (Marisca et al., NeurIPS 2022): one layer per block, width
and feed-forward 1024, 4 heads of 256, no dropout, 300 epochs of 300 batches of 128 windows, Adam at 3e-4, 20 % of the
visible cells hidden, clip 5, one scale for all. The authors' base model: layers=2, width=256, feed_forward=128,
key_width=64, value_width=64, dropout=0.1, learning_rate=1e-3, patience=30, scaling="sensor".

Departures from the original:
- no sharing of weights between layers: no published configuration repeats one
- eta weighs X2 as in the paper; the authors' code has it the other way round, which a sigmoid does not notice
- a window shorter than the trained one is possible: the attention to the steps that are not there is 0 in eta
- the learning rate falls along a cosine to 0 (our loop); SPIN's and the authors' stays
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from casper.baselines.parts_recurrent import all_sensors, mean_on, truth
from casper.config import NetworkConfig, TrainingConfig
from casper.errors import InputError
from casper.graph import SensorGraph
from casper.network.learning import Example, Outcome, WindowNetwork
from casper.network.noise import Noise
from casper.neural import NeuralImputer, Recipe


@dataclass(frozen=True)
class SaitsConfig(NetworkConfig):
    """SAITS. The defaults are those of SPIN's experiments."""

    layers: int = 1
    """Layers of each of the two blocks."""
    width: int = 1024
    """Size of a step's embedding."""
    feed_forward: int = 1024
    """Hidden width of a layer's feed-forward part."""
    heads: int = 4
    key_width: int = 256
    """Size of a head's queries and keys."""
    value_width: int = 256
    """Size of a head's values."""
    dropout: float = 0.0
    reconstruction: float = 1.0
    """Weight of the error on seen cells against that on hidden ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("layers", "width", "feed_forward", "heads", "key_width", "value_width"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0.0 <= self.dropout < 1.0:
            raise InputError(f"dropout must lie in [0, 1), not {self.dropout}")
        if self.reconstruction < 0:
            raise InputError(f"reconstruction must not be negative, not {self.reconstruction}")


def places(steps: int, width: int) -> Tensor:
    """(T, D): sines and cosines of the step's number (Vaswani et al., 2017), in turns."""
    channel = torch.arange(width)
    angle = torch.arange(steps)[:, None] / 10000.0 ** (2 * (channel // 2) / width)
    return torch.where(channel % 2 == 0, angle.sin(), angle.cos())


class Layer(nn.Module):
    """A transformer encoder layer with the norm first and no step attending to itself. (B, T, D) -> (B, T, D)"""

    def __init__(self, config: SaitsConfig) -> None:
        super().__init__()
        width, heads = config.width, config.heads
        self.heads, self.dropout = heads, config.dropout
        self.norm_attention = nn.LayerNorm(width)
        self.query = nn.Linear(width, heads * config.key_width, bias=False)
        self.key = nn.Linear(width, heads * config.key_width, bias=False)
        self.value = nn.Linear(width, heads * config.value_width, bias=False)
        self.out = nn.Linear(heads * config.value_width, width, bias=False)
        self.norm_feed_forward = nn.LayerNorm(width, eps=1e-6)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, config.feed_forward), nn.ReLU(), nn.Linear(config.feed_forward, width)
        )

    def forward(self, h: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
        """Also the attention, (B, H, T, T)."""
        normed = self.norm_attention(h)
        query, key, value = (
            project(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        itself = torch.eye(h.shape[1], dtype=torch.bool, device=h.device)
        scores = (query / math.sqrt(query.shape[-1])) @ key.mT
        # Not minus infinity: with a single step there would be nothing to attend to.
        attention = scores.masked_fill(itself, -1e9).softmax(-1)
        attended = self.out((attention @ value).transpose(1, 2).flatten(2))
        h = h + noise.dropout(attended, self.dropout)
        return h + noise.dropout(self.feed_forward(self.norm_feed_forward(h)), self.dropout), attention


class Estimates(NamedTuple):
    """X1, X2, X3, (B, N, T) each."""

    first: Tensor
    second: Tensor
    combined: Tensor


class SaitsNetwork(WindowNetwork):
    config: SaitsConfig
    places: Tensor

    def __init__(self, config: SaitsConfig, *, sensors: int) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("places", places(config.window, config.width), persistent=False)
        self.first_embedding = nn.Linear(2 * sensors, config.width)
        self.first_layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.first_out = nn.Linear(config.width, sensors)
        self.second_embedding = nn.Linear(2 * sensors, config.width)
        self.second_layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.second_out = nn.Sequential(nn.Linear(config.width, sensors), nn.ReLU(), nn.Linear(sensors, sensors))
        self.combine = nn.Linear(sensors + config.window, sensors)

    def forward(self, values: Tensor, visible: Tensor, noise: Noise) -> Estimates:
        """values, visible: (B, N, T), T at most the window. What is not visible is not read."""
        x, seen = values.masked_fill(~visible, 0.0).mT, visible.mT  # (B, T, N)
        mask, place = seen.to(x.dtype), self.places[: x.shape[1]]
        # As in the authors' code, only the first block's embedding is thinned out.
        h = noise.dropout(self.first_embedding(torch.cat((x, mask), -1)) + place, self.config.dropout)
        for layer in self.first_layers:
            h, _ = layer(h, noise)
        first = self.first_out(h)
        h = self.second_embedding(torch.cat((torch.where(seen, x, first), mask), -1)) + place
        attention = h.new_zeros(())
        for layer in self.second_layers:
            h, attention = layer(h, noise)
        second = self.second_out(h)
        looked_at = F.pad(attention.mean(1), (0, self.config.window - x.shape[1]))  # (B, T, window)
        eta = self.combine(torch.cat((mask, looked_at), -1)).sigmoid()
        return Estimates(first.mT, second.mT, ((1.0 - eta) * first + eta * second).mT)

    def loss(self, example: Example, noise: Noise, *, training: TrainingConfig, temperature: Tensor) -> Outcome:
        made = self(example.readable, example.seen, noise)
        target = truth(example)
        restored = ((made.combined - target).abs() * example.hidden).sum() / example.divisor
        observed = torch.zeros_like(target)
        for estimate in made:
            observed = observed + (estimate - target).abs() / len(made)
        loss = restored + self.config.reconstruction * mean_on(observed, example.seen)
        return Outcome(loss, example.values.new_empty(0))

    def impute(self, values: Tensor, visible: Tensor, clock: Tensor) -> Tensor:
        return self(values, visible, Noise.silent()).combined


class SaitsImputer(NeuralImputer[SaitsConfig, SaitsNetwork]):
    """Self-attention along time; the graph is not used."""

    name = "saits"
    summary = "self-attention along time (Du et al., Expert Systems with Applications 2023)"
    recipe = Recipe(
        SaitsConfig(),
        TrainingConfig(
            epochs=300,
            batches_per_epoch=300,
            batch_size=128,
            learning_rate=3e-4,
            warmup_steps=0,
            patience=40,
            clip=5.0,
            hidden_shares=(0.2,),
        ),
    )

    def make_network(self, graph: SensorGraph, *, clock: int) -> SaitsNetwork:
        return SaitsNetwork(self.config, sensors=all_sensors(graph, self.training))
