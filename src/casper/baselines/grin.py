"""GRIN: Cini, Marisca, Alippi, "Filling the G_ap_s: Multivariate Time Series Imputation by Graph Neural Networks",
ICLR 2022. A recurrent network reads a window once forwards and once backwards in time; its cells and its decoder
exchange messages over the directed sensor graph.

At a step, with h the state after the steps before, x the readings, m 1 where they are visible, P_k the walks over the
graph (`parts_graph`: along and against the edges, up to `hops`), [a, b] channels side by side, and every W with a bias:

    first stage       x' = h W_first                              x filled by x' where m = 0
    spatial decoder   z = [x, m, h] W_in                          message = [P_1 z, P_2 z] W_walks    (one hop, no self)
                      q = PReLU([message, h] W_out)               x'' = [q, h] W_read                 (second stage)
    graph GRU cell    conv(v) = [v, P_1 v, ..., P_K v] W          v = [x filled by x'', m, h]
                      r, u = sigmoid(conv(v))                     c = tanh(conv([x filled by x'', m, r h]))
                      h <- u h + (1 - u) c                        (h at the first step: learned, one per sensor)

    imputation        MLP([q, h] forwards, [q, h] backwards, m, sensor embedding)

so that the estimate of a cell never reads the cell itself. Loss: mean absolute errors over all visible cells, also
those that were left to be read, of the imputation and of both stages in both directions, added up.

The defaults are those of the authors' repository (Graph-Machine-Learning-Group/grin, commit 4a28afb), which are the
same for AQI, AQI-36, METR-LA and PEMS-BAY but for the window: hidden and MLP width 64, two hops in the cell, one in
the decoder, one layer, embeddings of 8, no dropout; Adam at 1e-3 with a cosine schedule, 300 epochs of 160 batches of
32 windows, patience 40, gradient norm at most 5, every visible cell hidden with probability 0.05.

Departures from the original:
- The cosine ends at 0 and moves with every step; there it ends at 1e-4 and moves with every epoch. The training loop
  is the same for all methods.
- W_in, W_walks and W_out follow each other without anything in between: they are multiplied once per window instead
  of being applied one after the other at every step. The function, its parameters and their gradients are the same.
- Options that none of the authors' benchmark settings uses are left out: more layers, normalisation, dropout,
  attention in the decoder, a decoder of several hops, other ways to merge, exogenous inputs.
- On AQI and AQI-36 the authors hand the scored cells of the training months back to the training. Here that is the
  setting `train_on_hidden`, off unless asked for, so that all methods learn from the same cells.
- With several devices each divides by its own count of visible cells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from casper.baselines.parts_graph import DIRECTIONS, diffuse, diffuse_readings, walks
from casper.config import NetworkConfig, TrainingConfig
from casper.errors import InputError
from casper.graph import SensorGraph
from casper.learning import Example, Outcome, WindowNetwork
from casper.neural import NeuralImputer, Recipe
from casper.noise import Noise

# Forwards and backwards in time: the two recurrences share nothing, so they are computed side by side.
_READINGS = 2
# A reading, and whether it is visible.
_INPUTS = 2
_PRELU_SLOPE = 0.25


@dataclass(frozen=True)
class GrinConfig(NetworkConfig):
    """GRIN. The defaults are the authors'."""

    hidden: int = 64
    """Size of the recurrent state and of the decoder (D)."""
    hops: int = 2
    """Longest walk over the graph within a recurrent cell."""
    embedding: int = 8
    """Size of a sensor's embedding, which the final MLP reads."""
    merge_width: int = 64
    """Hidden width of the final MLP, which joins both readings."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("hidden", "hops", "embedding", "merge_width"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")


class PairedLinear(nn.Module):
    """A linear map for each of the two readings: (2, ..., C) -> (2, ..., D); drawn like those of `nn.Linear`."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(channels)
        self.weight = nn.Parameter(torch.empty(_READINGS, channels, out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(_READINGS, 1, out).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        return _mixed(self.bias, (x, self.weight))


def _mixed(start: Tensor, *terms: tuple[Tensor, Tensor]) -> Tensor:
    """start + the sum of x @ weight over the terms; x: (2, ..., C), weight: (2, C, D), start: (2, 1 or ..., D)."""
    shape = terms[0][0].shape[1:-1]
    total = start.flatten(1, -2)
    for x, weight in terms:
        total = torch.baddbmm(total, x.flatten(1, -2), weight)
    return total.unflatten(1, shape)


class DecoderMaps(NamedTuple):
    """The spatial decoder before its PReLU as one linear map: what h, its walks, and the inputs' walks are mixed by."""

    of_state: Tensor  # (2, D, D)
    of_walked_state: Tensor  # (2, 2 D, D)
    of_inputs: Tensor  # (2, 6, D): one hop along and against of x, of m, and of a constant 1
    bias: Tensor  # (2, 1, D)


class SpatialDecoder(nn.Module):
    """What the neighbours at the same step, and the state, tell about a reading."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.into = PairedLinear(_INPUTS + hidden, hidden)
        self.walks = PairedLinear(DIRECTIONS * hidden, hidden)
        self.out = PairedLinear(2 * hidden, hidden)
        self.slope = nn.Parameter(torch.full((_READINGS, 1, 1, 1), _PRELU_SLOPE))

    def maps(self) -> DecoderMaps:
        """The product of the three linear maps."""
        hidden = self.into.weight.shape[-1]
        message_out, state_out = self.out.weight.split(hidden, dim=1)
        # (2, directions, D, D): what becomes of a vector that one hop brought.
        brought = self.walks.weight.unflatten(1, (DIRECTIONS, hidden)) @ message_out[:, None]
        read = torch.cat((self.into.weight[:, :_INPUTS], self.into.bias), dim=1)  # (2, 3, D): x, m, 1
        state = self.into.weight[:, _INPUTS:]
        return DecoderMaps(
            of_state=state_out,
            of_walked_state=(state[:, None] @ brought).flatten(1, 2),
            of_inputs=(read[:, None] @ brought).transpose(1, 2).flatten(1, 2),
            bias=self.walks.bias @ message_out + self.out.bias,
        )

    def forward(self, maps: DecoderMaps, h: Tensor, walked_h: Tensor, walked_inputs: Tensor) -> Tensor:
        """walked_h: (2, B, N, 2 D), walked_inputs: (2, B, N, 6), see `DecoderMaps` -> (2, B, N, D)."""
        mixed = _mixed(maps.bias, (h, maps.of_state), (walked_h, maps.of_walked_state), (walked_inputs, maps.of_inputs))
        return torch.where(mixed > 0, mixed, self.slope * mixed)


class CellMaps(NamedTuple):
    """The recurrent cell's weights by what they are applied to."""

    gates_of_state: Tensor  # (2, D, 2 D)
    gates_of_walked_state: Tensor  # (2, K D, 2 D)
    new_of_state: Tensor  # (2, D, D)
    new_of_walked_state: Tensor  # (2, K D, D)
    of_inputs: Tensor  # (2, 2 (1 + K), 3 D): of x and its walks, of m and its walks; for the gates and the new state
    bias: Tensor  # (2, 1, 3 D)


class GraphCell(nn.Module):
    """A GRU cell whose linear maps read a sensor and its walks. kinds: K of the walks."""

    def __init__(self, hidden: int, *, kinds: int) -> None:
        super().__init__()
        # Rows of the weights: the state, its walks, then each input and its walks.
        self._rows = [hidden, kinds * hidden, _INPUTS * (1 + kinds)]
        self.gates = PairedLinear(sum(self._rows), 2 * hidden)
        self.candidate = PairedLinear(sum(self._rows), hidden)

    def maps(self) -> CellMaps:
        gates_of_state, gates_of_walked_state, gates_of_inputs = self.gates.weight.split(self._rows, dim=1)
        new_of_state, new_of_walked_state, new_of_inputs = self.candidate.weight.split(self._rows, dim=1)
        return CellMaps(
            gates_of_state,
            gates_of_walked_state,
            new_of_state,
            new_of_walked_state,
            torch.cat((gates_of_inputs, new_of_inputs), dim=-1),
            torch.cat((self.gates.bias, self.candidate.bias), dim=-1),
        )

    def forward(self, maps: CellMaps, inputs: Tensor, h: Tensor, walked_h: Tensor, walked: Tensor) -> Tensor:
        """inputs: (2, B, N, 2 (1 + K)), h: (2, B, N, D), walked_h: (2, B, N, K D) -> the new state."""
        hidden = h.shape[-1]
        told_gates, told_new = _mixed(maps.bias, (inputs, maps.of_inputs)).split((2 * hidden, hidden), dim=-1)
        gates = _mixed(told_gates, (h, maps.gates_of_state), (walked_h, maps.gates_of_walked_state))
        reset, keep = gates.sigmoid().chunk(2, dim=-1)
        kept = reset * h
        new = _mixed(told_new, (kept, maps.new_of_state), (diffuse(kept, walked), maps.new_of_walked_state)).tanh()
        return keep * h + (1.0 - keep) * new


class Reading(NamedTuple):
    """first, second: (2, B, N, T), the two stages' estimates; told: (T, 2, B, N, 2 D), what the final MLP reads, its
    steps in the order in which each reading came to them."""

    first: Tensor
    second: Tensor
    told: Tensor


class Recurrence(nn.Module):
    """Reads windows forwards and backwards in time."""

    def __init__(self, config: GrinConfig, *, sensors: int) -> None:
        super().__init__()
        hidden = config.hidden
        self.start = nn.Parameter(torch.randn(_READINGS, sensors, hidden) / math.sqrt(hidden))
        self.first = PairedLinear(hidden, 1)
        self.decoder = SpatialDecoder(hidden)
        self.second = PairedLinear(2 * hidden, 1)
        self.cell = GraphCell(hidden, kinds=DIRECTIONS * config.hops)

    def forward(self, values: Tensor, visible: Tensor, walked: Tensor, sensors: Tensor | None) -> Reading:
        """values: (B, N, T), 0 where not visible; walked: (N, K, N); sensors: their numbers, if they are not all."""
        batch, _, steps = values.shape
        one_hop = walked[:, :DIRECTIONS].contiguous()
        # All that does not depend on the state is done for all steps at once.
        mask = visible.to(values.dtype).movedim(-1, 0)  # (T, B, N)
        told_by_mask = torch.cat((mask[..., None], diffuse_readings(mask, walked)), dim=-1)
        constant = one_hop.sum(dim=-1).expand(_READINGS, batch, -1, -1)  # 1 where there is a neighbour
        xs, ms, masks = (_both_ways(x) for x in (values.movedim(-1, 0), visible.movedim(-1, 0), told_by_mask))
        decoder_maps, cell_maps = self.decoder.maps(), self.cell.maps()

        h = (self.start if sensors is None else self.start[:, sensors])[:, None].expand(-1, batch, -1, -1)
        firsts: list[Tensor] = []
        seconds: list[Tensor] = []
        told: list[Tensor] = []
        for step in range(steps):
            x, m, m_and_walked = xs[step], ms[step], masks[step]  # (2, B, N), the same, (2, B, N, 1 + K)
            walked_h = diffuse(h, walked)
            first = self.first(h).squeeze(-1)
            walked_x = diffuse_readings(torch.where(m, x, first), one_hop)
            walked_inputs = torch.cat((walked_x, m_and_walked[..., 1 : 1 + DIRECTIONS], constant), dim=-1)
            one_hop_h = walked_h[..., : DIRECTIONS * h.shape[-1]]
            q_and_h = torch.cat((self.decoder(decoder_maps, h, one_hop_h, walked_inputs), h), dim=-1)
            second = self.second(q_and_h).squeeze(-1)
            firsts.append(first)
            seconds.append(second)
            told.append(q_and_h)
            if step + 1 < steps:
                filled = torch.where(m, x, second)
                inputs = torch.cat((filled[..., None], diffuse_readings(filled, walked), m_and_walked), dim=-1)
                h = self.cell(cell_maps, inputs, h, walked_h, walked)
        return Reading(_in_time(firsts), _in_time(seconds), torch.stack(told))


def _both_ways(x: Tensor) -> Tensor:
    """(T, ...) -> (T, 2, ...), the second from the last step to the first."""
    return torch.stack((x, x.flip(0)), dim=1)


def _in_time(steps: list[Tensor]) -> Tensor:
    """T of (2, B, N) in the order of reading -> (2, B, N, T), both from the first step to the last."""
    forwards, backwards = torch.stack(steps, dim=-1)
    return torch.stack((forwards, backwards.flip(-1)))


class Prediction(NamedTuple):
    """estimate: (B, N, T); stages: (4, B, N, T), the estimates on the way there, of both stages and readings."""

    estimate: Tensor
    stages: Tensor


class GrinNetwork(WindowNetwork):
    """adjacency: (N, N) weights, rows being sources."""

    config: GrinConfig
    adjacency: Tensor
    walked: Tensor

    def __init__(self, config: GrinConfig, *, adjacency: Tensor) -> None:
        super().__init__()
        self.config = config
        sensors = adjacency.shape[0]
        self.register_buffer("adjacency", adjacency, persistent=False)
        self.register_buffer("walked", walks(adjacency, config.hops), persistent=False)
        self.recurrence = Recurrence(config, sensors=sensors)
        # As the authors draw them: for the rectified units of a layer that reads N numbers.
        self.embedding = nn.Parameter(torch.randn(sensors, config.embedding) * math.sqrt(2.0 / sensors))
        self.merge = nn.Linear(2 * _READINGS * config.hidden + 1 + config.embedding, config.merge_width)
        self.out = nn.Linear(config.merge_width, 1)

    def forward(self, values: Tensor, visible: Tensor, sensors: Tensor | None = None) -> Prediction:
        """values, visible: (B, N, T). What is not visible is not read. sensors: their numbers, if they are not all."""
        values = values.masked_fill(~visible, 0.0)
        walked = self.walked if sensors is None else walks(self.adjacency[sensors][:, sensors], self.config.hops)
        read = self.recurrence(values, visible, walked, sensors)
        return Prediction(self._merged(read.told, visible, sensors), torch.cat((read.first, read.second)))

    def _merged(self, told: Tensor, visible: Tensor, sensors: Tensor | None) -> Tensor:
        """The final MLP. Its first layer is applied part by part: side by side they would fill a lot of memory."""
        told_by_reading = 2 * self.config.hidden
        of_readings, of_mask, of_embedding = self.merge.weight.mT.split(
            (_READINGS * told_by_reading, 1, self.config.embedding)
        )
        of_readings = of_readings.unflatten(0, (_READINGS, told_by_reading))
        mixed = (told.flatten(2, 3) @ of_readings).unflatten(2, told.shape[2:4])  # (T, 2, B, N, M)
        embedding = self.embedding if sensors is None else self.embedding[sensors]
        of_sensor = embedding @ of_embedding + self.merge.bias
        mask = visible.movedim(-1, 0)[..., None].to(mixed.dtype)  # (T, B, N, 1)
        layer = (mixed[:, 0] + mixed[:, 1].flip(0) + mask * of_mask + of_sensor).relu()
        return self.out(layer).squeeze(-1).movedim(0, -1)

    def loss(self, example: Example, noise: Noise, *, training: TrainingConfig, temperature: Tensor) -> Outcome:
        """Over all visible cells, not only the hidden ones."""
        predicted = self(example.readable, example.seen, example.sensors)
        truth = example.values.masked_fill(~example.visible, 0.0)
        estimates = torch.cat((predicted.estimate[None], predicted.stages))  # (5, B, N, T)
        errors = ((estimates - truth).abs() * example.visible).sum()
        return Outcome(errors / example.visible.sum().clamp_min(1), example.values.new_empty(0))

    def impute(self, values: Tensor, visible: Tensor, clock: Tensor) -> Tensor:
        """Visible cells come back as they are."""
        return torch.where(visible, values, self(values, visible).estimate)


class GrinImputer(NeuralImputer[GrinConfig, GrinNetwork]):
    """Graph recurrent imputation network. Any setting of `GrinConfig` or `TrainingConfig` can be given by name."""

    name = "grin"
    summary = "bidirectional graph recurrent network, GRIN (Cini, Marisca, Alippi, ICLR 2022)"
    recipe = Recipe(
        GrinConfig(),
        TrainingConfig(
            epochs=300,
            batches_per_epoch=160,
            batch_size=32,
            learning_rate=1e-3,
            warmup_steps=0,
            patience=40,
            clip=5.0,
            hidden_shares=(0.05,),
            compiled=False,  # the unrolled steps keep the compiler busy for minutes; a recorded step is fast without
        ),
    )

    def choose_graph(self, graph: SensorGraph) -> SensorGraph:
        """The directed one: the network tells upstream from downstream."""
        return graph

    def make_network(self, graph: SensorGraph, *, clock: int) -> GrinNetwork:
        return GrinNetwork(self.config, adjacency=torch.as_tensor(graph.adjacency()))
