"""What the recurrent baselines share: both directions of time at once, gap lengths, decay, gated cells.

A window becomes (2, T, B, N): the series as it is and the series read backwards, step after step. Every map has
one set of weights per direction, so that one batched matrix product serves both: a step of a recurrence costs half
the launches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from casper.config import TrainingConfig
from casper.errors import InputError
from casper.graph import SensorGraph
from casper.network.learning import Example

# As many numbers of 16 bits are the 16 bytes that tensor cores read at once.
_WHOLE_ROWS = 8


def all_sensors(graph: SensorGraph, training: TrainingConfig) -> int:
    """Their number, for networks that read all sensors as one series and cannot be trained on some of them."""
    sensors = len(graph.sensors)
    if training.sensors_per_batch is not None and training.sensors_per_batch < sensors:
        raise InputError(
            f"this method reads all {sensors} sensors at once: sensors_per_batch must be None, "
            f"not {training.sensors_per_batch}"
        )
    return sensors


def mean_on(errors: Tensor, cells: Tensor) -> Tensor:
    """The mean of `errors` on some cells, 0 of none. Several processes take it each on its own windows."""
    return (errors * cells).sum() / cells.sum().clamp_min(1)


def truth(example: Example) -> Tensor:
    """The values that the loss may compare with, 0 elsewhere: 0 times what is not visible might not be a number."""
    return example.values.masked_fill(~example.visible, 0.0)


def both_ways(x: Tensor) -> Tensor:
    """(B, N, T) -> (2, T, B, N): forwards and backwards in time."""
    forwards = x.permute(2, 0, 1)
    return torch.stack((forwards, forwards.flip(0)))


def in_time_order(x: Tensor) -> Tensor:
    """(2, T, B, C), each direction in its own order -> (2, B, C, T), both in the order of time."""
    return torch.stack((x[0], x[1].flip(0))).permute(0, 2, 3, 1)


def gap_lengths(visible: Tensor) -> Tensor:
    """(2, T, B, N) -> steps since the sensor's last visible step before this one, or since the window's first step."""
    step = torch.arange(visible.shape[1], dtype=torch.int32, device=visible.device)[:, None, None]
    last = torch.where(visible, step, 0).cummax(1).values
    return step - torch.cat((torch.zeros_like(last[:, :1]), last[:, :-1]), dim=1)


def for_each_step(steps: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same weights at every step, as views of each step's own.

    Gradients of one tensor that is used T times are added up by T - 1 small operations; those of T views are stacked
    and summed. What differs from step to step has its `unbind` for this: indexing would add up T mostly empty tensors.
    """
    return zip(*(tensor.expand(steps, *tensor.shape).unbind(0) for tensor in tensors), strict=True)


def first_state(like: Tensor, *shape: int) -> Tensor:
    """Zeros. They ask for gradients as all later states do: a step that were told others would be compiled twice."""
    return like.new_zeros(shape, requires_grad=torch.is_grad_enabled())


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A map per direction: x: (2, ..., I), weight: (2, I, O), bias: (2, 1 or all in between, O) -> (2, ..., O)."""
    return torch.baddbmm(bias, x.flatten(1, -2), weight).unflatten(1, x.shape[1:-1])


def side_by_side(*maps: Tensor) -> Tensor:
    """Weights, or biases, of maps that read the same, as one, and zeros: GPUs are slow with rows of odd lengths."""
    together = torch.cat(maps, dim=-1)
    return F.pad(together, (0, -together.shape[-1] % _WHOLE_ROWS))


class BothWaysLinear(nn.Module):
    """A linear map per direction: (2, ..., inputs) -> (2, ..., outputs). Weights begin within +-bound."""

    def __init__(self, inputs: int, outputs: int, *, bound: float | None = None) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs) if bound is None else bound
        self.weight = nn.Parameter(torch.empty(2, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(2, 1, outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class TemporalDecay(nn.Module):
    """gamma = exp(-max(0, W delta + b)): the longer the gaps, the less of the state is kept. (2, T, B, N) -> (.., C)"""

    def __init__(self, sensors: int, channels: int) -> None:
        super().__init__()
        self.rate = BothWaysLinear(sensors, channels, bound=1.0 / math.sqrt(channels))

    def forward(self, gaps: Tensor) -> Tensor:
        return torch.exp(-torch.relu(self.rate(gaps)))


class SensorDecay(nn.Module):
    """The same with a diagonal W: each sensor's own gap decides. (2, T, B, N) -> (2, T, B, N)"""

    def __init__(self, sensors: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(sensors)
        self.weight = nn.Parameter(torch.empty(2, 1, 1, sensors).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(2, 1, 1, sensors).uniform_(-bound, bound))

    def forward(self, gaps: Tensor) -> Tensor:
        return torch.exp(-torch.relu(gaps * self.weight + self.bias))


class LongShortTermCell(nn.Module):
    """LSTM cells (Hochreiter & Schmidhuber, 1997), one per direction: what is read is (2, B, I), states (2, B, H).

    Part of the input is often known for all steps beforehand: `ahead` works on it at once, `remember` on the rest.
    known, unknown: the sizes of the two parts.
    """

    def __init__(self, known: int, unknown: int, hidden: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(hidden)
        self.known = BothWaysLinear(known, 4 * hidden, bound=bound)
        self.step = BothWaysLinear(unknown + hidden, 4 * hidden, bound=bound)

    def ahead(self, known: Tensor) -> Tensor:
        """(2, T, B, known) -> what `remember` takes of each step, (2, T, B, 4H)."""
        return self.known(known) + self.step.bias[:, None]


def remember(ahead: Tensor, unknown: Tensor, state: Tensor, memory: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The next state and memory of a `LongShortTermCell`. weight: its `step.weight`."""
    gates = torch.baddbmm(ahead, torch.cat((unknown, state), -1), weight)
    read, forget, new, write = gates.chunk(4, -1)
    memory = forget.sigmoid() * memory + read.sigmoid() * new.tanh()
    return write.sigmoid() * memory.tanh(), memory


class GatedCell(nn.Module):
    """GRU cells (Cho et al., 2014), one per direction. known, unknown: as of `LongShortTermCell`, unknown may be 0.

    `gated_step` makes the next state of what `ahead` made of the known part, plus the product with `unknown`.
    """

    def __init__(self, known: int, unknown: int, hidden: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(hidden)
        self.known = BothWaysLinear(known, 3 * hidden, bound=bound)
        self.unknown = nn.Parameter(torch.empty(2, unknown, 3 * hidden).uniform_(-bound, bound)) if unknown else None
        self.state = BothWaysLinear(hidden, 3 * hidden, bound=bound)

    def ahead(self, known: Tensor) -> Tensor:
        """(2, T, B, known) -> (2, T, B, 3H)."""
        return self.known(known)


def gated(read: Tensor, recalled: Tensor, state: Tensor) -> Tensor:
    """The next state of GRU cells, (2, ..., H). read, recalled: (2, ..., 3H), made of their input and of the state."""
    sizes = (2 * state.shape[-1], state.shape[-1])
    (gates, new), (gates_of_state, new_of_state) = read.split(sizes, -1), recalled.split(sizes, -1)
    reset, keep = (gates + gates_of_state).sigmoid().chunk(2, -1)
    new = (new + reset * new_of_state).tanh()
    return new + keep * (state - new)


def gated_step(read: Tensor, state: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The same with the map that recalls the state."""
    return gated(read, linear(state, weight, bias), state)
