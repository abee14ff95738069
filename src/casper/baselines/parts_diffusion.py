"""What CSDI and PriSTI share: the diffusion process, its samplers, and the residual network that predicts the noise.

    beta_k: quadratic from beta_first to beta_last           kept_k = product of (1 - beta_j) over j <= k
    forward:   x_k = sqrt(kept_k) x_0 + sqrt(1 - kept_k) e,  e ~ N(0, 1)
    loss:      mean over hidden cells of (e - predicted(x_k, k | seen cells))^2,  k uniform
    ancestral: x_{k-1} = (x_k - beta_k / sqrt(1 - kept_k) predicted) / sqrt(1 - beta_k) + sigma_k z,
               sigma_k^2 = beta_k (1 - kept_{k-1}) / (1 - kept_k)                       (Ho et al., NeurIPS 2020)
    DDIM:      x_j = sqrt(kept_j) x_0' + sqrt(1 - kept_j) predicted, where x_0' is what x_k and the predicted noise
               imply, for j the next of a few steps; not random but for where it starts (Song et al., ICLR 2021)

Steps are counted from 0; after step 0 comes the sample itself. An imputation is the median of many samples.
Tensors are (B, S, N, T, D): windows, samples of each, sensors, steps of a window, channels. In training S is 1.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from casper.config import NetworkConfig, Scaling, TrainingConfig, require
from casper.network.learning import Example, Outcome, WindowNetwork
from casper.network.noise import Noise

# Cells, over windows and samples, that are denoised together: 1 to 2 GB on a GPU.
_CELLS_AT_ONCE = {"cpu": 2**14, "cuda": 2**18}
# CUDA's limit on the independent attentions of one call.
_MOST_ATTENTIONS = 65_535
_SAMPLING_SEED = 20_211_206
# The originals hide any share of a window's cells, all equally likely.
ANY_SHARE = tuple(round(0.05 + 0.1 * number, 2) for number in range(10))
# Traffic has no gaps worth copying; on blocks 0.7 stands for the mixture that PriSTI's code draws.
TRAFFIC_GAPS: dict[str, dict[str, Any]] = {
    f"{network}-{kind}": {"copied_gaps": 0.0, **({"block_gaps": 0.7} if kind == "block" else {})}
    for network in ("metr-la", "pems-bay")
    for kind in ("point", "block")
}
# The share of the data's variance in what a short sampling begins with.
_TRACE = 1e-3
# Steps of the one sample by which the error is watched after each epoch.
_QUICK_STEPS = 10


@dataclass(frozen=True)
class DiffusionConfig(NetworkConfig):
    """The settings of both methods; the defaults are CSDI's for PM2.5."""

    scaling: Scaling = "sensor"
    """Both originals standardise every sensor on its own."""
    width: int = 64
    """Channels."""
    layers: int = 4
    """Residual layers."""
    heads: int = 8
    feed_forward: int = 64
    """Hidden width of the transformer layers' feed-forward part."""
    dropout: float = 0.1
    """In the transformer layers."""
    step_embedding: int = 128
    """Size of the diffusion step's embedding."""
    time_embedding: int = 128
    """Size of the embedding of a step's place in the window."""
    sensor_embedding: int = 16
    diffusion_steps: int = 50
    beta_first: float = 1e-4
    beta_last: float = 0.5
    samples: int = 100
    """An imputation is the median of so many."""
    sampling_steps: int | None = None
    """None or diffusion_steps: ancestral sampling, as published; fewer: DDIM, see `DiffusionProcess.sequence`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("layers", "heads", "feed_forward", "sensor_embedding", "samples"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}")
        require(
            self.width >= self.heads and self.width % self.heads == 0,
            f"width must be a multiple of heads: {self.width} with {self.heads} heads is not",
        )
        require(0 <= self.dropout < 1, f"dropout must lie in [0, 1), not {self.dropout}")
        for name, least in (("step_embedding", 4), ("time_embedding", 2)):
            size = getattr(self, name)
            require(size >= least and size % 2 == 0, f"{name} must be even and at least {least}, not {size}")
        # Each step of the ancestral sampling takes one of the draws that a Noise has.
        require(
            1 <= self.diffusion_steps <= 1000, f"diffusion_steps must be from 1 to 1000, not {self.diffusion_steps}"
        )
        require(
            0 < self.beta_first <= self.beta_last < 1,
            f"beta_first and beta_last must rise within (0, 1): {self.beta_first} and {self.beta_last} do not",
        )
        require(
            self.sampling_steps is None or 1 <= self.sampling_steps <= self.diffusion_steps,
            f"sampling_steps must be None or from 1 to diffusion_steps, not {self.sampling_steps}",
        )


# ---------------------------------------------------------------- the process


class DiffusionProcess:
    """The quadratic schedule, and the steps back from noise to data."""

    def __init__(self, config: DiffusionConfig) -> None:
        roots = np.linspace(math.sqrt(config.beta_first), math.sqrt(config.beta_last), config.diffusion_steps)
        self.betas: list[float] = (roots**2).tolist()
        self.kept: list[float] = np.cumprod(1 - roots**2).tolist()

    def sequence(self, count: int) -> list[int]:
        """All steps from the last one down, or `count` of them, evenly spread.

        A few begin where there is a trace of the data: what is predicted of pure noise is a long way from any data, and
        a mistake in it is blown up by 1 / sqrt(kept).
        """
        first = max(count - 1, sum(kept >= _TRACE for kept in self.kept) - 1)
        return [int(step) for step in np.linspace(first, 0, count).round()]

    def ancestral(self, x: Tensor, predicted: Tensor, step: int, fresh: Tensor | None) -> Tensor:
        """One step down. fresh: Gaussian noise; at step 0 there is none."""
        beta, kept = self.betas[step], self.kept[step]
        mean = (x - beta / math.sqrt(1 - kept) * predicted) / math.sqrt(1 - beta)
        if fresh is None:
            return mean
        return mean + math.sqrt(beta * (1 - self.kept[step - 1]) / (1 - kept)) * fresh

    def ddim(self, x: Tensor, predicted: Tensor, step: int, following: int | None) -> Tensor:
        """Down to the step `following`, or to the data."""
        kept = self.kept[step]
        kept_then = 1.0 if following is None else self.kept[following]
        data = (x - math.sqrt(1 - kept) * predicted) / math.sqrt(kept)
        return math.sqrt(kept_then) * data + math.sqrt(1 - kept_then) * predicted


def gaussian(noise: Noise, *shape: int) -> Tensor:
    """Normal numbers, (share of the batch, *shape), by the transformation of Box and Muller."""
    uniform = noise.uniform(2, *shape)
    return (-2 * torch.log1p(-uniform[:, 0])).sqrt() * (2 * math.pi * uniform[:, 1]).cos()


def median_of_samples(samples: Tensor) -> Tensor:
    """(B, S, N, T) -> (B, N, T). By sorting, since PyTorch's median may not be used where runs must repeat."""
    ordered, count = samples.sort(dim=1).values, samples.shape[1]
    return (ordered[:, (count - 1) // 2] + ordered[:, count // 2]) / 2


# ---------------------------------------------------------------- parts of the network


def pointwise(size_in: int, size_out: int) -> nn.Linear:
    """A linear map of every cell on its own, with the initial weights of He et al."""
    layer = nn.Linear(size_in, size_out)
    nn.init.kaiming_normal_(layer.weight)
    return layer


def attend(query: Tensor, key: Tensor, value: Tensor, *, heads: int, along: Literal["steps", "sensors"]) -> Tensor:
    """Attention among the steps of a sensor, or among the sensors at a step: (B, S, N, T, D) -> (B, S, N, T, D).

    Keys and values may have another number of what is attended to, queries and keys one S for all samples.
    """
    batch, samples = value.shape[:2]
    split = [x.expand(-1, samples, -1, -1, -1).unflatten(-1, (heads, -1)) for x in (query, key, value)]
    shape = (batch, samples, *query.shape[2:])
    # These two orders of axes let the kernels read the projections where they lie.
    if along == "steps":
        queries, keys, values = (x.flatten(0, 2).transpose(1, 2) for x in split)  # (BSN, H, T, C)
        return F.scaled_dot_product_attention(queries, keys, values).transpose(1, 2).reshape(shape)
    queries, keys, values = (x.flatten(0, 1).permute(0, 2, 3, 1, 4).flatten(1, 2) for x in split)  # (BS, TH, N, C)
    attended = F.scaled_dot_product_attention(queries, keys, values).unflatten(1, (shape[3], heads))
    return attended.permute(0, 3, 1, 2, 4).reshape(shape)


class Looked(NamedTuple):
    """Queries and keys, which fix where an attention looks: (B, S or 1, N, T, D)."""

    query: Tensor
    key: Tensor


class TransformerLayer(nn.Module):
    """A transformer encoder layer along the steps or the sensors. What it looks at may be another embedding."""

    def __init__(self, config: DiffusionConfig, *, along: Literal["steps", "sensors"]) -> None:
        super().__init__()
        width = config.width
        self.heads, self.dropout = config.heads, config.dropout
        self.along: Literal["steps", "sensors"] = along
        self.query_key, self.value, self.out = (nn.Linear(width, size * width) for size in (2, 1, 1))
        for layer in (self.query_key, self.value):  # as PyTorch's own attention begins
            nn.init.uniform_(layer.weight, -math.sqrt(1.5 / width), math.sqrt(1.5 / width))
        for layer in (self.query_key, self.value, self.out):
            nn.init.zeros_(layer.bias)
        self.norm_attention, self.norm_out = nn.LayerNorm(width), nn.LayerNorm(width)
        self.hidden = nn.Linear(width, config.feed_forward)
        self.feed_forward = nn.Linear(config.feed_forward, width)

    def look(self, source: Tensor) -> Looked:
        query, key = self.query_key(source).chunk(2, dim=-1)
        return Looked(query, key)

    def forward(self, h: Tensor, looked: Looked, noise: Noise) -> Tensor:
        attended = self.out(attend(*looked, self.value(h), heads=self.heads, along=self.along))
        h = self.norm_attention(h + noise.dropout(attended, self.dropout))
        hidden = noise.dropout(F.gelu(self.hidden(h)), self.dropout)
        return self.norm_out(h + noise.dropout(self.feed_forward(hidden), self.dropout))


class StepEmbedding(nn.Module):
    """The diffusion step as sines and cosines, through two layers: (B,) -> (B, E)."""

    table: Tensor

    def __init__(self, config: DiffusionConfig) -> None:
        super().__init__()
        size, half = config.step_embedding, config.step_embedding // 2
        rate = 10.0 ** (4.0 * np.arange(half) / (half - 1))
        angle = np.arange(config.diffusion_steps)[:, None] * rate
        table = np.concatenate((np.sin(angle), np.cos(angle)), axis=1)
        self.register_buffer("table", torch.as_tensor(table, dtype=torch.float32), persistent=False)
        self.first, self.second = nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, step: Tensor) -> Tensor:
        return F.silu(self.second(F.silu(self.first(self.table[step]))))


class Side(NamedTuple):
    """What is known beside the values: time: (T, E) sinusoids; sensor: (N, E'); mask: (B, N, T), seen cells, or none"""

    time: Tensor
    sensor: Tensor
    mask: Tensor | None

    def project(self, layer: nn.Linear) -> Tensor:
        """The layer applied to the joined parts of every cell, without joining them: (B or 1, 1, N, T, size)."""
        parts = [self.time.shape[-1], self.sensor.shape[-1], *([] if self.mask is None else [1])]
        weights = layer.weight.split(parts, dim=1)
        projected = F.linear(self.time, weights[0], layer.bias) + F.linear(self.sensor, weights[1])[:, None]
        if self.mask is None:
            return projected[None, None]
        return (projected + self.mask[..., None].to(projected.dtype) * weights[2][:, 0].to(projected.dtype))[:, None]


class SideInformation(nn.Module):
    """Where in the window, and which sensor."""

    steps: Tensor

    def __init__(self, config: DiffusionConfig, *, sensors: int) -> None:
        super().__init__()
        size = config.time_embedding
        angle = np.arange(config.window)[:, None] / 10_000.0 ** (np.arange(0, size, 2) / size)
        table = np.stack((np.sin(angle), np.cos(angle)), axis=-1).reshape(config.window, size)
        self.register_buffer("steps", torch.as_tensor(table, dtype=torch.float32), persistent=False)
        self.sensor = nn.Parameter(torch.randn(sensors, config.sensor_embedding))

    def forward(self, steps: int, sensors: Tensor | None, mask: Tensor | None = None) -> Side:
        return Side(self.steps[:steps], self.sensor if sensors is None else self.sensor[sensors], mask)


class ResidualLayer(nn.Module, ABC):
    """A gated residual layer (DiffWave's); how cells exchange what they know is the method's own, `mix`."""

    def __init__(self, config: DiffusionConfig, *, side: int) -> None:
        super().__init__()
        width = config.width
        self.step = nn.Linear(config.step_embedding, width)
        self.side = pointwise(side, 2 * width)
        self.middle = pointwise(width, 2 * width)
        self.out = pointwise(width, 2 * width)

    @abstractmethod
    def mix(self, h: Tensor, guide: Any, noise: Noise) -> Tensor:
        """What the cells tell each other."""

    def forward(self, x: Tensor, step: Tensor, side: Tensor, guide: Any, noise: Noise) -> tuple[Tensor, Tensor]:
        """What goes on to the next layer, and what goes to the output."""
        mixed = self.mix(x + self.step(step)[:, None, None, None], guide, noise)
        gate, content = (self.middle(mixed) + side).chunk(2, dim=-1)
        residual, skip = self.out(gate.sigmoid() * content.tanh()).chunk(2, dim=-1)
        return (x + residual) / math.sqrt(2.0), skip


class Condition(NamedTuple):
    """What the seen cells tell the denoiser, the same at every diffusion step and for every sample.

    beside: (B, 1, N, T), read beside the noisy values; seen: (B, 1, N, T); sides, guides: one for each layer.
    """

    beside: Tensor
    seen: Tensor
    sides: Sequence[Tensor]
    guides: Sequence[Any]


# ---------------------------------------------------------------- the network


class DiffusionNetwork(WindowNetwork):
    """Learns to predict the noise in hidden cells; fills windows by sampling. A method says layers and condition."""

    config: DiffusionConfig
    signal: Tensor
    spread: Tensor

    def __init__(self, config: DiffusionConfig, layers: Sequence[ResidualLayer], *, sensors: int) -> None:
        super().__init__()
        self.config, self.process = config, DiffusionProcess(config)
        kept = torch.tensor(self.process.kept, dtype=torch.float64)
        self.register_buffer("signal", kept.sqrt().float(), persistent=False)
        self.register_buffer("spread", (1 - kept).sqrt().float(), persistent=False)
        self.side_information = SideInformation(config, sensors=sensors)
        self.step_embedding = StepEmbedding(config)
        self.project = pointwise(2, config.width)
        self.layers = nn.ModuleList(layers)
        self.hidden, self.out = pointwise(config.width, config.width), nn.Linear(config.width, 1)
        nn.init.zeros_(self.out.weight)

    @property
    def residual_layers(self) -> list[ResidualLayer]:
        return [layer for layer in self.layers if isinstance(layer, ResidualLayer)]

    @abstractmethod
    def condition(self, values: Tensor, seen: Tensor, sensors: Tensor | None, noise: Noise) -> Condition:
        """values, seen: (B, N, T); sensors: their numbers, if they are not all."""

    def denoise(self, noisy: Tensor, step: Tensor, condition: Condition, noise: Noise) -> Tensor:
        """The noise in every cell. noisy: (B, S, N, T), read where not seen; step: (B,), or (1,) for all windows."""
        cells = (noisy.masked_fill(condition.seen, 0.0), condition.beside.expand_as(noisy))
        x = F.relu(self.project(torch.stack(cells, dim=-1)))
        embedded = self.step_embedding(step)
        total = torch.zeros_like(x)
        for layer, side, guide in zip(self.residual_layers, condition.sides, condition.guides, strict=True):
            x, skip = layer(x, embedded, side, guide, noise)
            total = total + skip
        hidden = F.relu(self.hidden(total / math.sqrt(len(self.layers))))
        return self.out(hidden).squeeze(-1).to(noisy.dtype)

    def loss(self, example: Example, noise: Noise, *, training: TrainingConfig, temperature: Tensor) -> Outcome:
        """Mean squared error of the predicted noise on the hidden cells."""
        clean = example.values.masked_fill(~example.visible, 0.0)[:, None]
        step = (noise.uniform().double() * self.config.diffusion_steps).long()
        added = gaussian(noise, *clean.shape[2:])[:, None]
        at = (slice(None), None, None, None)
        noisy = self.signal[step][at] * clean + self.spread[step][at] * added
        condition = self.condition(example.values, example.seen, example.sensors, noise)
        predicted = self.denoise(noisy, step, condition, noise)
        squared = (predicted - added).square() * example.hidden[:, None]
        return Outcome(squared.sum() / example.divisor, example.values.new_empty(0))

    def impute(self, values: Tensor, visible: Tensor, clock: Tensor) -> Tensor:
        """The median of the samples; visible cells come back as they are."""
        steps = self.config.sampling_steps or self.config.diffusion_steps
        return self._estimate(values, visible, samples=self.config.samples, steps=steps)

    def quick_impute(self, values: Tensor, visible: Tensor, clock: Tensor) -> Tensor:
        """One sample in few steps: its error is larger than the median's but falls with it."""
        return self._estimate(values, visible, samples=1, steps=min(_QUICK_STEPS, self.config.diffusion_steps - 1) or 1)

    @torch.no_grad()
    def _estimate(self, values: Tensor, visible: Tensor, *, samples: int, steps: int) -> Tensor:
        """So many windows and samples at a time as fit into the memory; how many changes nothing but rounding."""
        count, sensors, length = values.shape
        most = max(1, _CELLS_AT_ONCE.get(values.device.type, _CELLS_AT_ONCE["cpu"]) // (sensors * length))
        most = max(1, min(most, _MOST_ATTENTIONS // max(sensors, length)))
        together = min(samples, most)
        medians: list[Tensor] = []
        for part in torch.arange(count).split(most // together):
            rows = slice(int(part[0]), int(part[-1]) + 1)
            condition = self.condition(values[rows], visible[rows], None, Noise.silent())
            drawn = [
                self.draw(condition, slice(first, min(first + together, samples)), samples=samples, steps=steps)
                for first in range(0, samples, together)
            ]
            medians.append(median_of_samples(torch.cat(drawn, dim=1)))
        return torch.where(visible, values, torch.cat(medians))

    def draw(self, condition: Condition, share: slice, *, samples: int, steps: int) -> Tensor:
        """The samples of `share`, (B, S, N, T).

        Every window is given the same noise, so that an imputation does not depend on the windows beside it.
        """
        batch, _, *cells = condition.seen.shape
        device = condition.seen.device
        noise = Noise(torch.Generator(device).manual_seed(_SAMPLING_SEED), batch=samples, share=share)
        order, ancestral = self.process.sequence(steps), steps == self.config.diffusion_steps
        on_device = torch.tensor(order, device=device)
        x = gaussian(noise, *cells).to(condition.beside.dtype).expand(batch, -1, -1, -1)
        for place, step in enumerate(order):
            predicted = self.denoise(x, on_device[place : place + 1], condition, Noise.silent())
            if ancestral:
                x = self.process.ancestral(x, predicted, step, gaussian(noise, *cells) if step > 0 else None)
            else:
                x = self.process.ddim(x, predicted, step, order[place + 1] if place + 1 < len(order) else None)
        return x
