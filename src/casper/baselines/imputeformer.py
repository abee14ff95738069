"""ImputeFormer: a Transformer of low rank (Nie, Qin, Ma, Mei, Sun; KDD 2024).

Value (0 in a hole) and clock are mapped to E_in channels and set beside E_emb learned channels of the cell's sensor and
step; D = E_in + E_emb. Then L layers, post-normalised, of

    projected temporal attention    P: C learned vectors, C much smaller than T, the same for all sensors
        Z = attention(query P, key h, value h)                          what the T steps come down to
        h' = LayerNorm(h + attention(query h, key P, value Z));   h = LayerNorm(h' + MLP(h'))        GELU
    embedded spatial attention      e: the learned channels of the sensors at a step, s = W e, one head
        h' = LayerNorm(h + softmax over channels(s) [softmax over sensors(s)^T W_v h]);
        h = LayerNorm(h' + MLP(h'))        ReLU; the brackets make it linear in the number of sensors

and an MLP with two hidden layers reads the estimate. The loss is the mean absolute error on the hidden cells plus
`fourier_weight` times the Fourier imputation loss: the l1 norm of the two-dimensional spectrum (sensors and steps) of
the window with the network's estimates in its holes, since a sparse spectrum means low rank.

Defaults, from the authors' configuration for METR-LA: E_in 32, E_emb 96, 3 layers, C 8, 4 heads, feed-forward 256,
dropout 0.1 (in the temporal layers only), fourier_weight 0.01; 300 epochs of 300 batches of 32, Adam 1e-3, patience 20,
gradient norm 5, hidden shares 0.2, 0.5 and 0.8. They use E_in 64 for AQI-36, E_in 64 and E_emb 32 for AQI, and
batches of 16 on AQI-36, AQI and PEMS-BAY; always windows of 24.

Departures from the original:
- the spectrum is each window's own and divided by sqrt(batch size): the authors' code transforms along the batch too,
  which for independent windows gives a loss of that size, but depends on how a batch is split over processes
- in the spectrum, estimates stand where the network could not read and measurements elsewhere, which is what the
  comments in the authors' code ask for; the code itself hands over the opposite mask (estimates where something was
  measured), and so lets readings that are kept for scoring into the loss
- the spectrum comes from matrix products with sines and cosines, and its modulus is sqrt(re^2 + im^2 + 1e-12): no
  complex numbers, which PyTorch's compiler cannot join with anything
- the clock has the cycles that a table can teach (day, week, year) instead of the day alone
- one cosine after a warm-up of 12 epochs instead of three with restarts; 32 bit numbers instead of 16
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from casper.baselines.parts_attention import MultiHeadAttention, mlp
from casper.config import NetworkConfig, TrainingConfig
from casper.errors import InputError
from casper.graph import SensorGraph
from casper.network.learning import Example, Outcome, WindowNetwork
from casper.network.noise import Noise
from casper.neural import NeuralImputer, Recipe


@dataclass(frozen=True)
class ImputeFormerConfig(NetworkConfig):
    """ImputeFormer, with the authors' sizes for METR-LA."""

    input_width: int = 32
    """Channels made of the value and the clock."""
    embedding_width: int = 96
    """Learned channels of each sensor at each step of the window."""
    layers: int = 3
    """Pairs of temporal and spatial attention."""
    heads: int = 4
    """Of the temporal attention."""
    projections: int = 8
    """What the steps of a series come down to (C)."""
    feed_forward: int = 256
    """Hidden width of the spatial layers' MLP; the temporal layers' has as many channels as the network."""
    dropout: float = 0.1
    """In the temporal layers."""
    fourier_weight: float = 0.01
    """Of the Fourier imputation loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = (self.input_width, self.embedding_width, self.layers, self.heads, self.projections, self.feed_forward)
        if min(sizes) < 1:
            raise InputError(
                "input_width, embedding_width, layers, heads, projections and feed_forward must be at least 1"
            )
        if self.width % self.heads:
            raise InputError(
                f"input_width + embedding_width must be a multiple of heads: {self.width} with {self.heads} is not"
            )
        if not 0.0 <= self.dropout < 1.0:
            raise InputError(f"dropout must lie in [0, 1), not {self.dropout}")
        if self.fourier_weight < 0.0:
            raise InputError(f"fourier_weight must not be negative, but is {self.fourier_weight}")

    @property
    def width(self) -> int:
        """Channels of the network (D)."""
        return self.input_width + self.embedding_width


class ProjectedAttention(nn.Module):
    """Along time, through a few learned vectors."""

    def __init__(self, config: ImputeFormerConfig) -> None:
        super().__init__()
        width, self.dropout = config.width, config.dropout
        self.projector = nn.Parameter(torch.randn(config.projections, width))
        self.gather, self.spread = MultiHeadAttention(width, config.heads), MultiHeadAttention(width, config.heads)
        self.norm_attention, self.norm_out = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, h: Tensor, noise: Noise) -> Tensor:
        # (B, N, T, D)
        gathered = self.gather(self.projector, h, h)  # (B, N, C, D)
        message = self.spread(h, self.projector, gathered)
        h = self.norm_attention(h + noise.dropout(message, self.dropout))
        return self.norm_out(h + noise.dropout(self.feed_forward(h), self.dropout))


class EmbeddedAttention(nn.Module):
    """Along sensors, by what is learned about them; what they measured has no say in who looks at whom."""

    def __init__(self, config: ImputeFormerConfig) -> None:
        super().__init__()
        width = config.width
        self.place, self.value = nn.Linear(config.embedding_width, width), nn.Linear(width, width)
        self.norm_attention, self.norm_out = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, config.feed_forward), nn.ReLU(), nn.Linear(config.feed_forward, width)
        )

    def forward(self, h: Tensor, learned: Tensor) -> Tensor:
        """h: (B, N, T, D); learned: (T, N, E)"""
        place = self.place(learned)  # (T, N, D)
        query, key = place.softmax(-1), place.softmax(-2)
        message = query @ (key.mT @ self.value(h).transpose(1, 2))  # (B, T, N, D)
        h = self.norm_attention(h + message.transpose(1, 2))
        return self.norm_out(h + self.feed_forward(h))


class ImputeFormerNetwork(WindowNetwork):
    """Values and visible cells of a window in, an estimate of every cell out."""

    config: ImputeFormerConfig

    def __init__(self, config: ImputeFormerConfig, *, sensors: int, clock: int) -> None:
        """clock: number of its features."""
        super().__init__()
        self.config = config
        self.project = nn.Linear(1 + clock, config.input_width)
        self.learned = nn.Parameter(torch.empty(config.window, sensors, config.embedding_width))
        nn.init.xavier_uniform_(self.learned)
        self.temporal = nn.ModuleList(ProjectedAttention(config) for _ in range(config.layers))
        self.spatial = nn.ModuleList(EmbeddedAttention(config) for _ in range(config.layers))
        self.readout = mlp(config.width, config.width, 1)

    def forward(
        self, values: Tensor, visible: Tensor, clock: Tensor, noise: Noise, sensors: Tensor | None = None
    ) -> Tensor:
        """An estimate of every cell, (B, N, T). What is not visible is not read.

        sensors: the numbers of the sensors that N stands for, if not all.
        """
        values = values.masked_fill(~visible, 0.0)
        batch, count, steps = values.shape
        learned = self.learned[:steps] if sensors is None else self.learned[:steps, sensors]  # (T, N, E)
        told = torch.cat((values[..., None], clock[:, None].expand(-1, count, -1, -1)), dim=-1)
        h = torch.cat((self.project(told), learned.transpose(0, 1).expand(batch, -1, -1, -1)), dim=-1)
        for temporal, spatial in zip(self.temporal, self.spatial, strict=True):
            h = spatial(temporal(h, noise), learned)
        return self.readout(h).squeeze(-1)

    def loss(self, example: Example, noise: Noise, *, training: TrainingConfig, temperature: Tensor) -> Outcome:
        estimate = self(example.readable, example.seen, example.clock, noise, example.sensors)
        loss = example.mean_absolute_error(estimate)
        if self.config.fourier_weight > 0:
            filled = torch.where(example.seen, example.values, estimate)
            weight = self.config.fourier_weight / math.sqrt(training.batch_size)
            loss = loss + weight * spectrum_norm(filled)
        return Outcome(loss, loss.new_empty(0))

    def impute(self, values: Tensor, visible: Tensor, clock: Tensor) -> Tensor:
        return self(values, visible, clock, Noise.silent())


def spectrum_norm(window: Tensor) -> Tensor:
    """(B, N, T) -> (): the mean modulus of the two-dimensional discrete Fourier transform over sensors and steps."""
    with torch.autocast(window.device.type, enabled=False):
        window = window.to(torch.promote_types(window.dtype, torch.float32))
        cosine_n, sine_n = _waves(window.shape[1], window)
        cosine_t, sine_t = _waves(window.shape[2], window)
        in_phase, behind = window @ cosine_t, window @ sine_t
        real = cosine_n @ in_phase - sine_n @ behind
        imaginary = cosine_n @ behind + sine_n @ in_phase
        return (real.square() + imaginary.square() + 1e-12).sqrt().mean()


def _waves(length: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin of 2 pi k l / length, (length, length)."""
    place = torch.arange(length, device=like.device)
    angle = (place[:, None] * place % length).to(like.dtype) * (2.0 * math.pi / length)
    return angle.cos(), angle.sin()


class ImputeFormerImputer(NeuralImputer[ImputeFormerConfig, ImputeFormerNetwork]):
    """A Transformer of low rank."""

    name = "imputeformer"
    summary = "low-rank Transformer with a Fourier loss (Nie et al., KDD 2024)"
    recipe = Recipe(
        ImputeFormerConfig(),
        TrainingConfig(batch_size=32, learning_rate=1e-3, warmup_steps=12 * 300, patience=20),
    )

    for_benchmarks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "aqi36": {"input_width": 64, "batch_size": 16},
        "aqi": {"input_width": 64, "embedding_width": 32, "batch_size": 16},
        **{name: {"batch_size": 16} for name in ("pems-bay-point", "pems-bay-block")},
    }

    def make_network(self, graph: SensorGraph, *, clock: int) -> ImputeFormerNetwork:
        return ImputeFormerNetwork(self.config, sensors=len(graph.sensors), clock=clock)
