"""SPIN: attention over what was measured, and nothing else (Marisca, Cini, Alippi; NeurIPS 2022).

Every cell (sensor i, step t) has a coordinate q = MLP(clock + learned vector of i) + sinusoids of the step. Its
embedding begins as LayerNorm(MLP(x) + q) where x was measured and as LayerNorm(q) where not. Then L layers:

    r(j, s -> i, t) = W2 prelu(W1 prelu(A h[j, s] + B h[i, t] + a) + b1) + b2               a message (equation 5)
    e(j -> i, t) = sum over s of softmax over s (w . r) r                        for each edge j -> i (7, 8)
    c(i, t) = the same over the own steps s != t, with other weights                              (9 to 11)
    h[i, t] = LayerNorm(S h[i, t] + c + sum over j of e),   before which V x is added where x was measured (12)

In the first `masked_layers` layers only measured cells send messages; after them all neighbours' cells do, told apart
by two learned vectors of their sensor, while the own series is always read where measured only. An MLP reads an
estimate from every layer (13); the loss is the sum over layers of the mean absolute error on the hidden cells (23).
The graph's weights are not used.

Defaults, from appendix A and the published configuration, the same for all data sets: width 32, 4 layers, the first 3
masked; 300 epochs of 300 batches of 8, Adam 8e-4, patience 40, gradient norm 5, hidden shares 0.2, 0.5 and 0.8; the
symmetric graph. With 36 sensors and 4 clock features there are 55092 weights, as in the original.

What is computed how: `casper.attention.causal_attention` cannot compute these layers. Its scores are products of a
query and a key, SPIN's are w . r, which no such product equals; its softmax runs over all neighbours at once, SPIN's
over one at a time; its messages have one hidden layer, SPIN's two. So the equations are computed here as they are, and
`casper.kernels.tiled`'s way out is taken: a few edges at a time, forgotten and computed again in the backward pass, so
that memory does not grow with the pairs. Since W2 is linear and the weights of a softmax sum to 1, W2 and w act on the
sum over s and on the hidden layer instead of on every message: one matrix product per pair, not two, and the same sum.

Departures from the original:
- the learning rate warms up over as many steps (12 epochs) and falls in one cosine, not in three with restarts that
  never go below a tenth: the training loop's schedule, the same for every method here
- 32 bit numbers instead of 16 (`precision="bf16-mixed"` comes near), batches in one piece instead of two halves
- the clock has the cycles that a table can teach (day, week, year) instead of always day and week
- LayerNorm divides by sqrt(variance + epsilon), the original's layers by deviation + epsilon
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from casper.baselines.parts_attention import embedding, mlp, some_rows
from casper.config import NetworkConfig, TrainingConfig
from casper.errors import InputError
from casper.graph import SensorGraph
from casper.network.embedding import sinusoids
from casper.network.learning import Example, Outcome, Repeated, WindowNetwork
from casper.network.neighbourhood import Neighbourhood
from casper.network.noise import Noise
from casper.neural import NeuralImputer, Recipe

# Numbers of a tile's largest tensor: its pairs' hidden layer. A GPU would idle on less; a processor has a cache.
_NUMBERS_AT_ONCE = {"cpu": 2**21, "cuda": 2**26}
# The score of what must not be read. Finite: with nothing to read the softmax is uniform, and then set to zero.
_UNREADABLE = -1e30


@dataclass(frozen=True)
class SpinConfig(NetworkConfig):
    """SPIN (not its hierarchical variant SPIN-H)."""

    width: int = 32
    """Size of every embedding and hidden layer."""
    layers: int = 4
    """Attention layers (L)."""
    masked_layers: int = 3
    """The first layers, in which only measured cells send messages to their neighbours (eta)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layers < 1:
            raise InputError(f"layers must be at least 1, not {self.layers}")
        if self.masked_layers < 0:
            raise InputError(f"masked_layers must not be negative, but is {self.masked_layers}")
        if self.width < 2 or self.width % 2:
            raise InputError(f"width must be even and at least 2, not {self.width}")


def _numbers_at_once(like: Tensor) -> int:
    return _NUMBERS_AT_ONCE["cpu" if like.device.type == "cpu" else "cuda"]


class Edges(NamedTuple):
    """Who listens to whom: source, target, present: (E,). What is not present is padding; None: nothing is.

    Among a sensor's own cells, a step does not listen to itself.
    """

    source: Tensor
    target: Tensor
    present: Tensor | None = None
    own: bool = False

    def part(self, of: slice) -> Edges:
        present = None if self.present is None else self.present[of]
        return Edges(self.source[of], self.target[of], present, self.own)


def _context(
    theirs: Tensor,
    mine: Tensor,
    may_read: Tensor | None,
    slopes: tuple[Tensor, Tensor],
    hidden_map: tuple[Tensor, Tensor],
    out_map: tuple[Tensor, Tensor],
    score: Tensor,
) -> Tensor:
    """What each edge brings, (B, E, T, D). theirs, mine: (B, E, T, D), of its two ends."""
    pairs = F.prelu(mine[:, :, :, None] + theirs[:, :, None], slopes[0])  # (B, E, T, S, D)
    hidden = F.prelu(F.linear(pairs, *hidden_map), slopes[1])
    out, bias = out_map
    # w . W2 hidden; what w makes of the bias is the same for all steps, and a softmax does not see it.
    scores = F.linear(hidden, score @ out).squeeze(-1)  # (B, E, T, S)
    if may_read is None:
        return F.linear((scores.softmax(-1)[..., None, :] @ hidden).squeeze(-2), out, bias)
    weight = scores.masked_fill(~may_read, _UNREADABLE).softmax(-1) * may_read
    summed = (weight[..., None, :].to(hidden.dtype) @ hidden).squeeze(-2)  # (B, E, T, D)
    # The bias belongs to the messages: no message, no bias.
    return F.linear(summed, out) + bias * may_read.any(-1, keepdim=True)


class AdditiveAttention(nn.Module):
    """The sum over a cell's edges of what it makes of the other end's series, equations 5 to 8."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.source, self.target = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        for linear in (self.source, self.target):
            nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(self.source.bias)
        self.first, self.second = nn.PReLU(init=0.2), nn.PReLU(init=0.25)
        self.hidden, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.score = nn.Linear(width, 1, bias=False)
        self.context = Repeated(_context)

    def forward(self, h: Tensor, readable: Tensor | None, edges: Edges) -> Tensor:
        """h: (B, N, T, D); readable: (B, N, T), the cells that may be listened to, None: all -> (B, N, T, D)"""
        batch, _, steps, width = h.shape
        source, target = self.source(h), self.target(h)
        at_once = max(1, _numbers_at_once(h) // (batch * steps * steps * width))
        total = torch.zeros_like(h)
        for first in range(0, len(edges.source), at_once):
            part = edges.part(slice(first, first + at_once))
            context = checkpoint(
                self._tile, source, target, readable, part, use_reentrant=False, preserve_rng_state=False
            )
            assert isinstance(context, Tensor)
            total = total.index_add(1, part.target, context.to(total.dtype))
        return total

    def _tile(self, source: Tensor, target: Tensor, readable: Tensor | None, edges: Edges) -> Tensor:
        """What each edge brings, (B, E, T, D)."""
        return self.context(
            source.index_select(1, edges.source),
            target.index_select(1, edges.target),
            self._may_read(readable, edges, steps=source.shape[2]),
            (self.first.weight, self.second.weight),
            (self.hidden.weight, self.hidden.bias),
            (self.out.weight, self.out.bias),
            self.score.weight,
        )

    @staticmethod
    def _may_read(readable: Tensor | None, edges: Edges, *, steps: int) -> Tensor | None:
        """(B or 1, E, T or 1, S), None: everything."""
        may_read = None if edges.present is None else edges.present[None, :, None, None].expand(-1, -1, -1, steps)
        if readable is not None:
            measured = readable.index_select(1, edges.source)[:, :, None]
            may_read = measured if may_read is None else measured & may_read
        if edges.own:
            other = ~torch.eye(steps, dtype=torch.bool, device=edges.source.device)
            may_read = other[None, None] if may_read is None else may_read & other
        return may_read


class SpinLayer(nn.Module):
    """Attention to the neighbours' series and to the own, equation 12, and the layer's readout, equation 13."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.value = nn.Linear(1, width)
        self.neighbours, self.own = AdditiveAttention(width), AdditiveAttention(width)
        self.skip = nn.Linear(width, width)
        nn.init.zeros_(self.skip.bias)
        self.norm = nn.LayerNorm(width)
        self.readout = mlp(width, width, 1)

    def forward(
        self, h: Tensor, values: Tensor, visible: Tensor, edges: Edges, own: Edges, *, masked: bool
    ) -> tuple[Tensor, Tensor]:
        """The next embedding, (B, N, T, D), and the layer's estimate, (B, N, T)."""
        h = h + self.value(values[..., None]) * visible[..., None]
        heard = self.neighbours(h, visible if masked else None, edges) + self.own(h, visible, own)
        h = self.norm(heard + self.skip(h))
        return h, self.readout(h).squeeze(-1)


class SpinNetwork(WindowNetwork):
    """Values and visible cells of a window in, an estimate of every cell out."""

    config: SpinConfig
    neighbour_index: Tensor
    neighbour_present: Tensor
    edge_source: Tensor
    edge_target: Tensor
    steps: Tensor

    def __init__(self, config: SpinConfig, *, neighbour_index: Tensor, neighbour_present: Tensor, clock: int) -> None:
        """neighbour_index, neighbour_present: (N, K), see `SensorGraph.neighbour_table`; clock: number of features."""
        super().__init__()
        self.config = config
        width, sensors = config.width, neighbour_index.shape[0]
        self.register_buffer("neighbour_index", neighbour_index)
        self.register_buffer("neighbour_present", neighbour_present)
        self.register_buffer("edge_source", neighbour_index[neighbour_present], persistent=False)
        self.register_buffer("edge_target", neighbour_present.nonzero()[:, 0], persistent=False)
        self.register_buffer("steps", sinusoids(config.window, width), persistent=False)
        self.clock, self.sensor = nn.Linear(clock, width), embedding(sensors, width)
        self.coordinate, self.value = mlp(width, width, width), mlp(1, width)
        self.norm = nn.LayerNorm(width)
        self.measured, self.missing = embedding(sensors, width), embedding(sensors, width)
        self.layers = nn.ModuleList(SpinLayer(width) for _ in range(config.layers))

    def forward(self, values: Tensor, visible: Tensor, clock: Tensor, sensors: Tensor | None = None) -> list[Tensor]:
        """Every layer's estimate, (B, N, T). What is not visible is not read.

        sensors: the numbers of the sensors that N stands for, if not all.
        """
        values = values.masked_fill(~visible, 0.0)
        there = visible[..., None]
        q = self._coordinates(clock, sensors)
        h = self.norm(torch.where(there, self.value(values[..., None]) + q, q))
        edges = self._edges(sensors)
        each = torch.arange(values.shape[1], device=values.device)
        own = Edges(each, each, own=True)
        estimates: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            if number == self.config.masked_layers:
                kinds = (some_rows(kind, sensors)[:, None] for kind in (self.measured, self.missing))
                h = h + torch.where(there, *kinds)
            h, estimate = layer(h, values, visible, edges, own, masked=number < self.config.masked_layers)
            estimates.append(estimate)
        return estimates

    def loss(self, example: Example, noise: Noise, *, training: TrainingConfig, temperature: Tensor) -> Outcome:
        estimates = self(example.readable, example.seen, example.clock, example.sensors)
        errors = torch.stack([example.mean_absolute_error(estimate) for estimate in estimates])
        return Outcome(errors.sum(), errors.new_empty(0))

    def impute(self, values: Tensor, visible: Tensor, clock: Tensor) -> Tensor:
        # So many windows that one edge of theirs is no more than a tile.
        windows = max(1, _numbers_at_once(values) // (values.shape[2] ** 2 * self.config.width))
        parts = zip(*(x.split(windows) for x in (values, visible, clock)), strict=True)
        return torch.cat([self(*part)[-1] for part in parts])

    def _coordinates(self, clock: Tensor, sensors: Tensor | None) -> Tensor:
        """(B, N, T, D): where a cell stands, whether it was measured or not."""
        sensor = some_rows(self.sensor, sensors)[:, None]
        together = F.leaky_relu(self.clock(clock)[:, None] + sensor)
        return self.coordinate(together) + self.steps[: clock.shape[1]]

    def _edges(self, sensors: Tensor | None) -> Edges:
        """Of some sensors, as many as the table has places: how many are present is only known on the device."""
        if sensors is None:
            return Edges(self.edge_source, self.edge_target)
        among = Neighbourhood(self.neighbour_index, self.neighbour_present).within(sensors)
        looking = torch.arange(len(sensors), device=sensors.device)
        target = looking[:, None].expand_as(among.index).reshape(-1)
        return Edges(among.index.reshape(-1), target, among.present.reshape(-1))


class SpinImputer(NeuralImputer[SpinConfig, SpinNetwork]):
    """Sparse spatiotemporal attention."""

    name = "spin"
    summary = "attention over measured points of own and neighbouring series (Marisca et al., NeurIPS 2022)"
    # Not measured on a GPU yet; True: what becomes of a tile is compiled, see `Repeated`.
    recipe = Recipe(SpinConfig(), TrainingConfig(warmup_steps=12 * 300, compiled=False))

    def make_network(self, graph: SensorGraph, *, clock: int) -> SpinNetwork:
        index, present = self.neighbours(graph)
        return SpinNetwork(self.config, neighbour_index=index, neighbour_present=present, clock=clock)
