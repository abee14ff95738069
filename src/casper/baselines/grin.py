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
  of being applied one after the other at every step, and maps that read the same are put side by side. The function,
  its parameters and their gradients are the same.
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
from torch.nn import functional as F

from casper.baselines.parts_graph import DIRECTIONS, diffuse, diffuse_readings, walks
from casper.baselines.parts_recurrent import BothWaysLinear, for_each_step, linear, side_by_side
from casper.config import NetworkConfig, TrainingConfig
from casper.errors import InputError
from casper.graph import SensorGraph
from casper.network.learning import Example, Outcome, Repeated, WindowNetwork
from casper.network.noise import Noise
from casper.neural import NeuralImputer, Recipe

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


class StepMaps(NamedTuple):
    """The linear maps of a step, side by side by what they are applied to: put together once per window, not at each
    step. "Walks" are those of `_walks`, the first of which stays where it is; K of the others."""

    of_state: Tensor  # (2, (1 + K) D, 3 D + 1 ..): h and its walks -> decoder before its PReLU, gates, first stage
    state_bias: Tensor  # (2, 1, 3 D + 1 ..), `side_by_side` as well
    of_neighbours: Tensor  # (2, 6, D): one hop along and against of x, of m, and of a constant 1 -> decoder
    slope: Tensor  # (2,), of the PReLU
    of_decoded: Tensor  # (2, 2 D, 1): q and h -> second stage
    decoded_bias: Tensor  # (2, 1, 1)
    of_inputs: Tensor  # (2, 2 (1 + K) + 1, 3 D): x and its walks, m and its walks, a constant 1 -> gates, new state
    of_kept: Tensor  # (2, (1 + K) D, D): r h and its walks -> new state


class DecoderMaps(NamedTuple):
    """The spatial decoder before its PReLU as one linear map."""

    of_state: Tensor  # (2, (1 + 2) D, D): h and its walks of one hop
    of_neighbours: Tensor  # (2, 6, D), see `StepMaps`
    bias: Tensor  # (2, 1, D)


class SpatialDecoder(nn.Module):
    """What the neighbours at the same step, and the state, tell about a reading."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.into = BothWaysLinear(_INPUTS + hidden, hidden)
        self.walks = BothWaysLinear(DIRECTIONS * hidden, hidden)
        self.out = BothWaysLinear(2 * hidden, hidden)
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
            of_state=torch.cat((state_out, (state[:, None] @ brought).flatten(1, 2)), dim=1),
            of_neighbours=(read[:, None] @ brought).transpose(1, 2).flatten(1, 2),
            bias=self.walks.bias @ message_out + self.out.bias,
        )


class GraphCell(nn.Module):
    """A GRU cell whose linear maps read a sensor and its walks. kinds: K of the walks."""

    def __init__(self, hidden: int, *, kinds: int) -> None:
        super().__init__()
        # Rows of the weights: the state and its walks, then each input and its walks.
        self.rows = [(1 + kinds) * hidden, _INPUTS * (1 + kinds)]
        self.gates = BothWaysLinear(sum(self.rows), 2 * hidden)
        self.candidate = BothWaysLinear(sum(self.rows), hidden)


class Step(NamedTuple):
    """What is known of a step before it is come to, of both readings. x, seen: (2, B, N)."""

    x: Tensor
    seen: Tensor
    neighbours: Tensor  # (2, B, N, 4), one hop along and against of m, and of a constant 1
    mask: Tensor  # (2, B, N, 1 + K + 1), m and its walks, and 1


def _step(step: Step, h: Tensor, walked: Tensor, hop: Tensor, maps: StepMaps) -> tuple[Tensor, ...]:
    """h: (2, B, N, D) -> both stages, (2, B, N), [q, h], (2, B, N, 2 D), and the next h.

    walked: (N, 1 + K, N); hop: (N, 2, N), those of them that go one hop.
    """
    hidden = h.shape[-1]
    told = linear(diffuse(h, walked), maps.of_state, maps.state_bias)
    decoded, gates, first, _ = told.split((hidden, 2 * hidden, 1, told.shape[-1] - 3 * hidden - 1), dim=-1)
    first = first.squeeze(-1)

    near = diffuse_readings(torch.where(step.seen, step.x, first), hop)
    decoded = linear(torch.cat((near, step.neighbours), dim=-1), maps.of_neighbours, decoded.flatten(1, 2))
    # PyTorch has its slopes along the second axis.
    q_and_h = torch.cat((F.prelu(decoded.transpose(0, 1), maps.slope).transpose(0, 1), h), dim=-1)
    second = linear(q_and_h, maps.of_decoded, maps.decoded_bias).squeeze(-1)

    filled = diffuse_readings(torch.where(step.seen, step.x, second), walked)
    inputs = torch.cat((filled, step.mask), dim=-1).flatten(1, 2) @ maps.of_inputs
    gates_of_inputs, new = inputs.split((2 * hidden, hidden), dim=-1)
    reset, keep = (gates + gates_of_inputs.view_as(gates)).sigmoid().chunk(2, dim=-1)
    new = linear(diffuse(reset * h, walked), maps.of_kept, new).tanh()
    return first, second, q_and_h, new + keep * (h - new)


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
        self.first = BothWaysLinear(hidden, 1)
        self.decoder = SpatialDecoder(hidden)
        self.second = BothWaysLinear(2 * hidden, 1)
        self.cell = GraphCell(hidden, kinds=DIRECTIONS * config.hops)
        self.step = Repeated(_step)

    def maps(self) -> StepMaps:
        cell, decoder = self.cell, self.decoder.maps()
        gates_of_state, gates_of_inputs = cell.gates.weight.split(cell.rows, dim=1)
        new_of_state, new_of_inputs = cell.candidate.weight.split(cell.rows, dim=1)
        # The first stage reads no walks and the decoder only short ones: zeros for the others.
        of_first, of_decoder = (
            F.pad(weight, (0, 0, 0, cell.rows[0] - weight.shape[1])) for weight in (self.first.weight, decoder.of_state)
        )
        biases = (cell.gates.bias, cell.candidate.bias)
        return StepMaps(
            of_state=side_by_side(of_decoder, gates_of_state, of_first),
            state_bias=side_by_side(decoder.bias, torch.zeros_like(cell.gates.bias), self.first.bias),
            of_neighbours=decoder.of_neighbours,
            slope=self.decoder.slope.flatten(),
            of_decoded=self.second.weight,
            decoded_bias=self.second.bias,
            of_inputs=torch.cat(
                (torch.cat((gates_of_inputs, new_of_inputs), dim=-1), torch.cat(biases, dim=-1)), dim=1
            ),
            of_kept=new_of_state,
        )

    def forward(self, values: Tensor, visible: Tensor, walked: Tensor, sensors: Tensor | None) -> Reading:
        """values: (B, N, T), 0 where not visible; walked: (N, 1 + K, N); sensors: their numbers, if not all."""
        batch, _, steps = values.shape
        # All that does not depend on the state is done for all steps at once.
        mask = diffuse_readings(visible.to(values.dtype).movedim(-1, 0), walked)  # (T, B, N, 1 + K)
        hop = walked[:, 1 : 1 + DIRECTIONS].contiguous()
        connected = hop.sum(dim=-1).expand(*mask.shape[:2], -1, -1)  # 1 where there is a neighbour
        known = (
            values.movedim(-1, 0),
            visible.movedim(-1, 0),
            torch.cat((mask[..., 1 : 1 + DIRECTIONS], connected), dim=-1),
            F.pad(mask, (0, 1), value=1.0),
        )
        each_step = zip(*(_both_ways(x).unbind(0) for x in known), strict=True)
        start = self.start if sensors is None else self.start[:, sensors]
        h = start[:, None].expand(-1, batch, -1, -1).contiguous()  # as all later states are
        made: list[tuple[Tensor, ...]] = []
        for now, maps in zip(each_step, for_each_step(steps, *self.maps()), strict=True):
            *estimates, h = self.step(Step(*now), h, walked, hop, StepMaps(*maps))
            made.append(tuple(estimates))
        first, second, told = zip(*made, strict=True)
        return Reading(_in_time(first), _in_time(second), torch.stack(told))


def _walks(adjacency: Tensor, hops: int) -> Tensor:
    """`walks`, and before them the one that stays where it is: (N, 1 + K, N)."""
    staying = torch.eye(len(adjacency), dtype=adjacency.dtype, device=adjacency.device)
    return torch.cat((staying[:, None], walks(adjacency, hops)), dim=1)


def _both_ways(x: Tensor) -> Tensor:
    """(T, ...) -> (T, 2, ...), the second from the last step to the first."""
    return torch.stack((x, x.flip(0)), dim=1)


def _in_time(steps: tuple[Tensor, ...]) -> Tensor:
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
        self.register_buffer("walked", _walks(adjacency, config.hops), persistent=False)
        self.recurrence = Recurrence(config, sensors=sensors)
        # As the authors draw them: for the rectified units of a layer that reads N numbers.
        self.embedding = nn.Parameter(torch.randn(sensors, config.embedding) * math.sqrt(2.0 / sensors))
        self.merge = nn.Linear(2 * _READINGS * config.hidden + 1 + config.embedding, config.merge_width)
        self.out = nn.Linear(config.merge_width, 1)

    def forward(self, values: Tensor, visible: Tensor, sensors: Tensor | None = None) -> Prediction:
        """values, visible: (B, N, T). What is not visible is not read. sensors: their numbers, if they are not all."""
        values = values.masked_fill(~visible, 0.0)
        walked = self.walked if sensors is None else _walks(self.adjacency[sensors][:, sensors], self.config.hops)
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
            compiled=False,  # not measured on a GPU yet; True: one step is compiled for all, see `Repeated`
        ),
    )

    def choose_graph(self, graph: SensorGraph) -> SensorGraph:
        """The directed one: the network tells upstream from downstream."""
        return graph

    def make_network(self, graph: SensorGraph, *, clock: int) -> GrinNetwork:
        return GrinNetwork(self.config, adjacency=torch.as_tensor(graph.adjacency()))
