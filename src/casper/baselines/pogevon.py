"""PoGeVon (Wang, Yan, Qiu, Zhu, Guan, Margenot, Tong: Networked Time Series Imputation via Position-aware Graph
Enhanced Variational Autoencoders, KDD 2023), a variational autoencoder that knows where in the network a sensor is.

Two such autoencoders with weights of their own read a window, one forwards, one backwards. x: value, m: visible or not.

    positions  r_i: where a random walk that begins at anchor k, and returns there with probability c, is to be found:
               r = (1 - c) P' r + (the rest) e_k
    encoder    g = last states of a two-layer GRU over [x, m, r];  z ~ Normal(W g, exp(V g)), one per sensor and window
    decoder, for each step, h being the state so far:
      stage 1  x1 = W h;  x is filled with x1 where it is not visible
      network  u = W[W[x, m, r], h];  an edge's weight is e_ij = sigmoid(MLP[u_j, h_i, clock])
               v = v1 + v2,  v1 = W S u,  v2 = W S v1,  S the mean of both directions' row-normalised adjacency
      stage 2  y = W[z, x, m, v, h];  o = PReLU(W[y, attention of y to the other sensors' y, v, h]);  x2 = W[o, v, h]
      state    h = GRU([z, x filled with x2, m, v], h)
    estimate   MLP[o, v, h of both directions, an embedding of the sensor]
    loss       mean absolute error of the estimate and of all x1 and x2 on the visible cells, of which a share was
               hidden from the network, + 0.2 KL(z || standard normal) + 0.01 |e - A|, both for each direction

Sizes, weights and schedule are those of the authors' code (github.com/Derek-Wds/PoGeVon) for AQI-36: a state of 64, a
latent of 64 / 4, embeddings of 16, 2 heads, c = 0.15, log2(N) anchors, Adam at 1e-3, 300 epochs of 160 batches of 32,
patience 40, clipping at 5, 5 % of the visible cells hidden. For its traffic data: 500 epochs of 300 batches.

Departures from the original:
- Our networks have no missing edges. The message passing therefore uses the adjacency as it is, and the edge decoder
  only learns to restore it. (The authors' code lets the predicted edges replace those of the visible sensors.)
- Edges are scored between `edge_sensors` x `edge_sensors` sensors drawn anew in each step, which keeps large networks
  affordable. From them the norm |e - A| over a batch is estimated, for networks of more than 64 sensors (the original's
  largest) as if they had 64: the norm grows with their number, and would drown the other losses.
- The time of an edge is told by the clock's sines and cosines, not by sines of learned frequencies.
- The first state is random in the authors' code, at inference too. Here its mean 0 takes its place then, as for z.
- A walk's probabilities add up to 1 (the code leaves weights that add up to less as they are); anchors are drawn
  without replacement. The learning rate falls to 0 as in all our trainings, not to 1e-4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from casper.baselines.parts_pogevon import Decoder, Trace, TwoGates, TwoLinear
from casper.baselines.parts_recurrent import first_state, for_each_step, gated_step
from casper.config import NetworkConfig, TrainingConfig
from casper.errors import InputError
from casper.graph import SensorGraph
from casper.network.learning import Example, Outcome, Repeated, WindowNetwork
from casper.network.noise import Noise
from casper.neural import NeuralImputer, Recipe

# Sensors of the largest network in the original's experiments: above, the edges' loss does not grow any further.
_LARGEST_ORIGINAL = 64
_TINY = 1e-12


@dataclass(frozen=True)
class PogevonConfig(NetworkConfig):
    """The defaults are those of the authors' code."""

    width: int = 64
    """Size of the recurrent states and of every embedding."""
    latent: int = 16
    """Size of a sensor's latent variable."""
    embedding: int = 16
    """Size of a sensor's embedding in the last layer."""
    heads: int = 2
    """Heads of the attention between sensors."""
    feed_forward: int = 64
    """Hidden width of the last layer."""
    dropout: float = 0.0
    """In the last layer."""
    restart: float = 0.15
    """The probability c with which a random walk returns to its anchor."""
    anchors: int | None = None
    """Sensors from which random walks begin; None: log2 of the number of sensors."""
    prediction_weight: float = 1.0
    """Weight of the errors of both stages of both directions in the loss."""
    kl_weight: float = 0.2
    edge_weight: float = 0.01
    """Weight of the edges' errors; 0: no edge decoder."""
    edge_sensors: int = 16
    """The edges from so many sensors to as many sensors are restored in a training step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("width", "latent", "embedding", "heads", "feed_forward", "edge_sensors"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.width % self.heads:
            raise InputError(f"width must be a multiple of heads: {self.width} with {self.heads} heads is not")
        if not (0.0 <= self.dropout < 1.0 and 0.0 < self.restart <= 1.0):
            raise InputError(f"dropout must lie in [0, 1), restart in (0, 1], not {self.dropout} and {self.restart}")
        if self.anchors is not None and self.anchors < 1:
            raise InputError(f"anchors must be at least 1 or None, not {self.anchors}")
        if min(self.prediction_weight, self.kl_weight, self.edge_weight) < 0:
            raise InputError("the weights of the losses must not be negative")


def walk_positions(adjacency: NDArray[np.floating], anchors: NDArray[np.int64], restart: float) -> NDArray[np.float64]:
    """(N, anchors): the share of its time that each anchor's walk is at a sensor. From dead ends it returns, too."""
    count = len(adjacency)
    leaving = adjacency.sum(axis=1, keepdims=True, dtype=np.float64)
    onward = adjacency / np.where(leaving > 0, leaving, 1.0)
    # All returns go to the anchor, whatever their number: the solution is known but for its sum, which is 1.
    places = np.linalg.solve(np.eye(count) - (1.0 - restart) * onward.T, np.eye(count)[:, anchors])
    return places / places.sum(axis=0)


class Latent(NamedTuple):
    mean: Tensor  # (2, B, N, Z)
    log_deviation: Tensor

    def draw(self, noise: Noise) -> Tensor:
        if not noise.active:
            return self.mean
        return self.mean + self.log_deviation.exp() * normal_draws(noise, *self.mean.shape[2:])

    def divergence(self) -> Tensor:
        """From the standard normal, the mean of each direction's, added up."""
        each = 0.5 * ((2.0 * self.log_deviation).exp() + self.mean.square() - 1.0) - self.log_deviation
        return each.flatten(1).mean(dim=1).sum()


def normal_draws(noise: Noise, *shape: int) -> Tensor:
    """(2, B, *shape) standard normal numbers, by the method of Box and Muller."""
    radius, angle = noise.uniform(2, *shape, 2).transpose(0, 1).unbind(-1)
    return torch.sqrt(-2.0 * torch.log1p(-radius)) * torch.cos(2.0 * math.pi * angle)


class Encoder(nn.Module):
    """(2, B, T, N, inputs) -> the latent variable of every sensor."""

    def __init__(self, inputs: int, config: PogevonConfig) -> None:
        super().__init__()
        self.lower, self.upper = TwoGates(inputs, config.width), TwoGates(config.width, config.width)
        self.mean = TwoLinear(2 * config.width, config.latent)
        self.log_deviation = TwoLinear(2 * config.width, config.latent)
        self.step = Repeated(gated_step)

    def forward(self, cells: Tensor) -> Latent:
        lower = self._along(self.lower, cells)
        upper = self._along(self.upper, torch.stack(lower, dim=2))
        last = torch.cat((lower[-1], upper[-1]), dim=-1)
        return Latent(self.mean(last), self.log_deviation(last))

    def _along(self, gates: TwoGates, cells: Tensor) -> list[Tensor]:
        """The states after each of the steps, (2, B, N, D)."""
        h = first_state(cells, *cells.shape[:2], cells.shape[3], gates.recall.weight.shape[1])
        states: list[Tensor] = []
        weights = for_each_step(cells.shape[2], gates.recall.weight, gates.recall.bias)
        for now, mixing in zip(gates.read(cells).unbind(2), weights, strict=True):
            h = self.step(now, h, *mixing)
            states.append(h)
        return states


class EdgeDecoder(nn.Module):
    """The weight of an edge at a step, from what is known of its two sensors and from the clock."""

    def __init__(self, clock: int, config: PogevonConfig) -> None:
        super().__init__()
        width, self.sensors = config.width, config.edge_sensors
        self.time = TwoLinear(clock, width)
        self.hidden = TwoLinear(3 * width, width, bound=math.sqrt(2.0 * 6.0 / (4 * width)))
        self.out = TwoLinear(width, 1, bound=math.sqrt(2.0 * 6.0 / (width + 1)))

    def forward(self, nodes: Tensor, states: Tensor, clock: Tensor) -> Tensor:
        """nodes: (2, B, T, J, D), states: (2, B, T, I, D), clock: (2, B, T, F) -> (2, B, T, I, J)."""
        # The first layer reads three vectors: its parts are added up, which no pair has to be written down for.
        of_node, of_state, of_time = self.hidden.weight.chunk(3, dim=1)
        node, state, time = (
            torch.bmm(x.flatten(1, -2), part).unflatten(1, x.shape[1:-1])
            for x, part in ((nodes, of_node), (states, of_state), (self.time(clock), of_time))
        )
        time = (time + self.hidden.bias[:, :, None])[:, :, :, None, None]
        hidden = torch.relu(node[:, :, :, None] + state[:, :, :, :, None] + time)
        return torch.sigmoid(self.out(hidden).squeeze(-1))

    def error(self, trace: Trace, clock: Tensor, adjacency: Tensor, noise: Noise) -> Tensor:
        """An estimate of the norm of e - A over all windows, steps and pairs, added up over the directions."""
        count = adjacency.shape[0]
        # Rows that are 1 at one sensor each: a product with them chooses sensors, and so does that of its gradient.
        every = torch.eye(count, dtype=adjacency.dtype, device=adjacency.device)
        rows, columns = every[noise.pick(count, self.sensors)], every[noise.pick(count, self.sensors)]
        h = trace.states[..., -trace.nodes.shape[-1] :]
        edges = self(columns @ trace.nodes, rows @ h, clock)
        square = (edges - rows @ adjacency @ columns.T).square().flatten(1).mean(dim=1)
        pairs = clock.shape[1] * clock.shape[2] * min(count, _LARGEST_ORIGINAL) ** 2
        return torch.sqrt(pairs * square + _TINY).sum()


class _Passed(NamedTuple):
    """estimate: (B, N, T); adjacency: of the sensors at hand."""

    estimate: Tensor
    trace: Trace
    latent: Latent
    adjacency: Tensor


class PogevonNetwork(WindowNetwork):
    """Both directions' autoencoders and what joins them."""

    config: PogevonConfig
    adjacency: Tensor
    positions: Tensor

    def __init__(self, config: PogevonConfig, *, adjacency: Tensor, positions: Tensor, clock: int) -> None:
        """adjacency: (N, N), rows are sources; positions: (N, anchors); clock: number of features."""
        super().__init__()
        self.config = config
        self.register_buffer("adjacency", adjacency.float(), persistent=False)
        self.register_buffer("positions", positions.float())  # kept with the weights: its anchors are random
        anchors = positions.shape[1]
        self.encoder = Encoder(2 + anchors, config)
        self.decoder = Decoder(anchors, width=config.width, latent=config.latent, heads=config.heads)
        self.edges = EdgeDecoder(clock, config) if config.edge_weight > 0 else None
        self.embedding = nn.Parameter(torch.randn(adjacency.shape[0], config.embedding) * (2 / config.embedding) ** 0.5)
        # Together one linear map of both directions' states and of the embedding.
        bound = 1.0 / math.sqrt(6 * config.width + config.embedding)
        self.from_states = TwoLinear(3 * config.width, config.feed_forward, bound=bound)
        self.from_embedding = nn.Linear(config.embedding, config.feed_forward, bias=False)
        nn.init.uniform_(self.from_embedding.weight, -bound, bound)
        self.out = nn.Linear(config.feed_forward, 1)

    def loss(self, example: Example, noise: Noise, *, training: TrainingConfig, temperature: Tensor) -> Outcome:
        """Errors are taken on all visible cells, not only on those that were hidden."""
        config, visible = self.config, example.visible
        passed = self._pass(example.readable, example.seen, noise, example.sensors)
        truth = example.values.masked_fill(~visible, 0.0)
        count = visible.sum().clamp_min(1)
        loss = ((passed.estimate - truth).abs() * visible).sum() / count
        both_truth, both_visible = _both_ways(truth), _both_ways(visible)
        for stage in (passed.trace.first, passed.trace.second):
            loss = loss + config.prediction_weight * ((stage - both_truth).abs() * both_visible).sum() / count
        loss = loss + config.kl_weight * passed.latent.divergence()
        if self.edges is not None:
            clock = torch.stack((example.clock, example.clock.flip(1)))
            loss = loss + config.edge_weight * self.edges.error(passed.trace, clock, passed.adjacency, noise)
        return Outcome(loss, example.values.new_empty(0))

    def impute(self, values: Tensor, visible: Tensor, clock: Tensor) -> Tensor:
        return self._pass(values, visible, Noise.silent()).estimate

    def _pass(self, values: Tensor, visible: Tensor, noise: Noise, sensors: Tensor | None = None) -> _Passed:
        adjacency, positions, embedding = self.adjacency, self.positions, self.embedding
        if sensors is not None:
            adjacency, positions, embedding = (x[sensors] for x in (adjacency[:, sensors], positions, embedding))
        x, seen = _both_ways(values.masked_fill(~visible, 0.0))[..., None], _both_ways(visible)[..., None]
        cells = torch.cat((x, seen.to(x.dtype), positions.expand(*x.shape[:-1], -1)), dim=-1)
        latent = self.encoder(cells)
        h = first_state(x, 2, x.shape[1], x.shape[3], self.config.width)
        if noise.active:
            h = h + normal_draws(noise, *h.shape[2:]) / math.sqrt(self.config.width)
        trace = self.decoder(cells, seen, latent.draw(noise), h, adjacency)
        onward, backward = self.from_states(trace.states)
        hidden = torch.relu(onward + backward.flip(1) + self.from_embedding(embedding))  # (B, T, N, D)
        estimate = self.out(noise.dropout(hidden, self.config.dropout)).squeeze(-1)
        return _Passed(estimate.transpose(1, 2), trace, latent, adjacency)


def _both_ways(x: Tensor) -> Tensor:
    """(B, N, T) -> (2, B, T, N), as it is and with its steps in reverse."""
    x = x.transpose(1, 2)
    return torch.stack((x, x.flip(1)))


# 300 epochs, patience 40 and clipping at 5 are our usual settings, too. A compiled training (one step is compiled for
# all, see `Repeated`) is not measured on a GPU yet.
_TRAINING = TrainingConfig(
    batches_per_epoch=160, batch_size=32, learning_rate=1e-3, warmup_steps=0, hidden_shares=(0.05,), compiled=False
)


class PogevonImputer(NeuralImputer[PogevonConfig, PogevonNetwork]):
    """PoGeVon: recurrent variational autoencoders with positions of the sensors in their network."""

    name = "pogevon"
    summary = "position-aware graph enhanced variational autoencoder (Wang et al., KDD 2023)"
    recipe = Recipe(PogevonConfig(), _TRAINING)

    def choose_graph(self, graph: SensorGraph) -> SensorGraph:
        """As it is: the message passing goes along and against the edges."""
        return graph

    def make_network(self, graph: SensorGraph, *, clock: int) -> PogevonNetwork:
        count = len(graph.sensors)
        wanted = int(math.log2(count)) if self.config.anchors is None else min(self.config.anchors, count)
        anchors = torch.randperm(count)[: max(1, wanted)].numpy()
        positions = torch.as_tensor(walk_positions(graph.adjacency(), anchors, self.config.restart))
        adjacency = torch.as_tensor(graph.adjacency())
        return PogevonNetwork(self.config, adjacency=adjacency, positions=positions, clock=clock)
