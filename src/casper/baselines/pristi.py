"""PriSTI: conditional diffusion with enhanced prior modelling (Liu, Huang, Li, Li & Du, ICDE 2023).

A diffusion model like CSDI (see `parts_diffusion`) whose condition is the linear interpolation X of the seen cells. A
first module turns it into a prior; the noise estimation lets the prior, which holds no noise, say where to look:

    H  = W X + W [place in the window; sensor]
    prior = ReLU(Norm(H' + MLP(H'))),   H' = Norm(H + SA(H)) + Norm(H + TA(H)) + Norm(H + MP(H))
    each layer:  h = TA(x + step; looking by the prior)
                 h = Norm(h' + MLP(h')),  h' = Norm(h + SA(h; looking by the prior)) + Norm(h + MP(h))
                 then CSDI's gate, residual and skip, with [place; sensor] beside

    TA: a transformer layer over the steps of a sensor.  SA: attention over sensors, whose keys and values are first
    mixed into k virtual nodes.  MP: Graph WaveNet's diffusion convolution, 2 hops along the graph's edges, against
    them, and along a learned graph softmax(ReLU(E_1 E_2)).  Norm: over a window's cells and a quarter of the channels.

Defaults: the paper's for METR-LA and PEMS-BAY: 64 channels, 4 layers, 8 heads, 50 diffusion steps, beta from 1e-4 to
0.2, 64 virtual nodes, Adam 1e-3, batch 16, 300 epochs (the official code's weight decay 1e-6; its batch is 4). AQI-36:
`window=36, diffusion_steps=100, virtual_nodes=16, epochs=200`. Hidden cells: half random shares, half the gaps of
another window, which is the paper's choice for AQI-36; for traffic it has `copied_gaps=0` and random shares alone where
points are missing, `copied_gaps=0, block_gaps=0.7` or so where blocks are.

Departures from the original:
- those of CSDI's list: dropout, hidden shares, schedule and choice of the epoch, scored cells of the training period,
  median, noise shared by all windows
- an epoch has 300 batches, about what AQI-36 holds, on every table; on METR-LA the original's has 1,500 (6,000)
- no self edges in the graph (the official code has them for traffic, not for AQI-36); the convolution has a term for
  the sensor itself anyway
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from casper.baselines.parts_diffusion import (
    ANY_SHARE,
    TRAFFIC_GAPS,
    Condition,
    DiffusionConfig,
    DiffusionNetwork,
    Looked,
    ResidualLayer,
    TransformerLayer,
    attend,
    pointwise,
)
from casper.config import TrainingConfig
from casper.errors import InputError
from casper.graph import SensorGraph
from casper.network.embedding import guess_from_time
from casper.network.noise import Noise
from casper.neural import NeuralImputer, Recipe

_HOPS = 2
_NORM_GROUPS = 4
# Size of the two embeddings whose product is the learned graph.
_LEARNED_GRAPH = 10


@dataclass(frozen=True)
class PristiConfig(DiffusionConfig):
    """The defaults are those for METR-LA and PEMS-BAY."""

    beta_last: float = 0.2
    virtual_nodes: int = 64
    """Into so many the sensors' keys and values are mixed (k)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.virtual_nodes < 1:
            raise InputError(f"virtual_nodes must be at least 1, not {self.virtual_nodes}")
        if self.width % _NORM_GROUPS:
            raise InputError(f"width must be a multiple of {_NORM_GROUPS}, not {self.width}")


class Place(NamedTuple):
    """supports: (N, N) each, rows listen to columns; sensors: their numbers, if they are not all."""

    supports: Sequence[Tensor]
    sensors: Tensor | None


class WindowNorm(nn.Module):
    """Group normalisation: over all cells of a window and a quarter of the channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, h: Tensor) -> Tensor:
        wide = h.to(torch.promote_types(h.dtype, torch.float32))
        grouped = wide.unflatten(-1, (_NORM_GROUPS, -1))
        variance, mean = torch.var_mean(grouped, dim=(2, 3, 5), correction=0, keepdim=True)
        # One factor and one summand for each channel: nothing but `h` is kept for the way back.
        factor = (variance + 1e-5).rsqrt() * self.weight.unflatten(0, (_NORM_GROUPS, -1))
        return wide * factor.flatten(-2) + (self.bias - (mean * factor).flatten(-2))


class MessagePassing(nn.Module):
    """Diffusion convolution: the sensor itself, and for every support what is one and two hops away.

    W_0 h + sum of W_1 A h + W_2 A A h + ... over supports A, read as W_0 h + sum of A (W_1 h + A (W_2 h + ...)), which
    keeps less for the way back than the joined messages do.
    """

    def __init__(self, width: int, *, supports: int) -> None:
        super().__init__()
        terms = 1 + _HOPS * supports
        self.terms = nn.Linear(width, terms * width, bias=False)
        self.bias = nn.Parameter(torch.empty(width))
        for parameter in (self.terms.weight, self.bias):  # as of one map from all joined messages
            nn.init.uniform_(parameter, -1 / math.sqrt(terms * width), 1 / math.sqrt(terms * width))

    def forward(self, h: Tensor, supports: Sequence[Tensor]) -> Tensor:
        own, *terms = self.terms(h).chunk(1 + _HOPS * len(supports), dim=-1)
        total = own + self.bias
        for number, support in enumerate(supports):
            reached = torch.zeros_like(own)
            for term in reversed(terms[_HOPS * number : _HOPS * (number + 1)]):
                reached = (support @ (term + reached).flatten(-2)).unflatten(-1, h.shape[-2:])
            total = total + reached
        return total


class VirtualNodeAttention(nn.Module):
    """Sensors look at k mixtures of all sensors."""

    def __init__(self, config: PristiConfig, *, sensors: int) -> None:
        super().__init__()
        width, nodes, self.heads = config.width, config.virtual_nodes, config.heads
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width)
        bound = 1 / math.sqrt(nodes)
        self.key_nodes = nn.Parameter(torch.empty(sensors, nodes).uniform_(-bound, bound))
        self.value_nodes = nn.Parameter(torch.empty(sensors, nodes).uniform_(-bound, bound))

    def look(self, source: Tensor, place: Place) -> Looked:
        return Looked(self.query(source), _mixed(self.key(source), self.key_nodes, place))

    def forward(self, h: Tensor, looked: Looked, place: Place) -> Tensor:
        value = _mixed(self.value(h), self.value_nodes, place)
        return self.out(attend(*looked, value, heads=self.heads, along="sensors"))


def _mixed(h: Tensor, nodes: Tensor, place: Place) -> Tensor:
    """(B, S, N, T, D), (N, K) -> (B, S, K, T, D)."""
    nodes = nodes if place.sensors is None else nodes[place.sensors]
    return (nodes.mT @ h.flatten(-2)).unflatten(-1, h.shape[-2:])


class Merge(nn.Module):
    """Norm(h' + MLP(h')), h' the sum of the normalised parts."""

    def __init__(self, width: int, *, parts: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(WindowNorm(width) for _ in range(parts))
        self.hidden, self.feed_forward = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm_out = WindowNorm(width)

    def forward(self, h: Tensor, *parts: Tensor) -> Tensor:
        merged = torch.zeros_like(h)
        for norm, part in zip(self.norms, parts, strict=True):
            merged = merged + norm(h + part)
        return self.norm_out(merged + self.feed_forward(F.relu(self.hidden(merged))))


class PriorExtraction(nn.Module):
    """From the interpolation's embedding to the prior."""

    def __init__(self, config: PristiConfig, *, sensors: int, supports: int) -> None:
        super().__init__()
        self.over_steps = TransformerLayer(config, along="steps")
        self.over_sensors = VirtualNodeAttention(config, sensors=sensors)
        self.messages = MessagePassing(config.width, supports=supports)
        self.merge = Merge(config.width, parts=3)

    def forward(self, h: Tensor, place: Place, noise: Noise) -> Tensor:
        in_time = self.over_steps(h, self.over_steps.look(h), noise)
        in_space = self.over_sensors(h, self.over_sensors.look(h, place), place)
        return F.relu(self.merge(h, in_time, in_space, self.messages(h, place.supports)))


class Guide(NamedTuple):
    """Where one layer's attentions look, by the prior."""

    steps: Looked
    sensors: Looked
    place: Place


class NoiseEstimation(ResidualLayer):
    """Attention over steps, then over sensors and along the graph; the prior says where to look."""

    def __init__(self, config: PristiConfig, *, side: int, sensors: int, supports: int) -> None:
        super().__init__(config, side=side)
        self.over_steps = TransformerLayer(config, along="steps")
        self.over_sensors = VirtualNodeAttention(config, sensors=sensors)
        self.messages = MessagePassing(config.width, supports=supports)
        self.merge = Merge(config.width, parts=2)

    def look(self, prior: Tensor, place: Place) -> Guide:
        return Guide(self.over_steps.look(prior), self.over_sensors.look(prior, place), place)

    def mix(self, h: Tensor, guide: Guide, noise: Noise) -> Tensor:
        h = self.over_steps(h, guide.steps, noise)
        in_space = self.over_sensors(h, guide.sensors, guide.place)
        return self.merge(h, in_space, self.messages(h, guide.place.supports))


class PristiNetwork(DiffusionNetwork):
    """Reads the interpolation beside the noisy values, and is guided by the prior."""

    listens: Tensor

    def __init__(self, config: PristiConfig, *, listens: Tensor) -> None:
        """listens: (N, N), the weight with which a row's sensor listens to a column's."""
        sensors, supports = listens.shape[0], 3
        side = config.time_embedding + config.sensor_embedding
        layers = [NoiseEstimation(config, side=side, sensors=sensors, supports=supports) for _ in range(config.layers)]
        super().__init__(config, layers, sensors=sensors)
        self.register_buffer("listens", listens, persistent=False)
        self.learned_rows = nn.Parameter(torch.randn(sensors, _LEARNED_GRAPH))
        self.learned_columns = nn.Parameter(torch.randn(_LEARNED_GRAPH, sensors))
        self.interpolated, self.prior_side = pointwise(1, config.width), pointwise(side, config.width)
        self.prior = PriorExtraction(config, sensors=sensors, supports=supports)

    def condition(self, values: Tensor, seen: Tensor, sensors: Tensor | None, noise: Noise) -> Condition:
        interpolation = guess_from_time(values.masked_fill(~seen, 0.0), seen)[:, None, ..., 0]
        side = self.side_information(values.shape[-1], sensors)
        place = self._place(sensors)
        embedded = self.interpolated(interpolation[..., None]) + side.project(self.prior_side)
        prior = self.prior(embedded, place, noise)
        layers = [layer for layer in self.layers if isinstance(layer, NoiseEstimation)]
        return Condition(
            beside=interpolation,
            seen=seen[:, None],
            sides=[side.project(layer.side) for layer in layers],
            guides=[layer.look(prior, place) for layer in layers],
        )

    def _place(self, sensors: Tensor | None) -> Place:
        listens, rows, columns = self.listens, self.learned_rows, self.learned_columns
        if sensors is not None:
            listens = listens[sensors][:, sensors]
            rows, columns = rows[sensors], columns[:, sensors]
        learned = (rows @ columns).relu().softmax(dim=1)
        return Place((_shares(listens), _shares(listens.mT), learned), sensors)


def _shares(weights: Tensor) -> Tensor:
    """Rows that add up to 1, or stay 0."""
    total = weights.sum(dim=1, keepdim=True)
    return weights / torch.where(total > 0, total, 1.0)


class PristiImputer(NeuralImputer[PristiConfig, PristiNetwork]):
    """Draws many fillings of the holes from a diffusion model that is guided by a linear interpolation."""

    name = "pristi"
    summary = "diffusion guided by an interpolation, attention and the sensor graph (Liu et al., ICDE 2023)"
    recipe = Recipe(
        PristiConfig(),
        TrainingConfig(
            epochs=300,
            batches_per_epoch=300,
            batch_size=16,
            learning_rate=1e-3,
            warmup_steps=0,
            weight_decay=1e-6,
            patience=300,
            hidden_shares=ANY_SHARE,
            copied_gaps=0.5,
        ),
    )

    for_benchmarks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "aqi36": {"window": 36, "diffusion_steps": 100, "virtual_nodes": 16, "epochs": 200},
        **TRAFFIC_GAPS,
    }

    def choose_graph(self, graph: SensorGraph) -> SensorGraph:
        """Directed: messages go along its edges and against them."""
        return graph

    def make_network(self, graph: SensorGraph, *, clock: int) -> PristiNetwork:
        return PristiNetwork(self.config, listens=torch.as_tensor(graph.adjacency().T.copy()))
