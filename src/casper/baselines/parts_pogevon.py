"""PoGeVon's decoder, step after step: see `casper.baselines.pogevon`, whose letters are used here.

Linear maps that follow each other are multiplied, and those that read the same are put side by side, once per window
instead of at every step. The function, its parameters and their gradients are the same.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from casper.baselines.parts_recurrent import BothWaysLinear, for_each_step, gated, linear, side_by_side
from casper.network.learning import Repeated

_TINY = 1e-12


class TwoLinear(BothWaysLinear):
    """Starts as nn.Linear does, or with weights within `bound` and no bias."""

    def __init__(self, inputs: int, outputs: int, *, bound: float | None = None) -> None:
        super().__init__(inputs, outputs, bound=bound)
        if bound is not None:
            nn.init.zeros_(self.bias)


class TwoGates(nn.Module):
    """A GRU cell for each direction: `gated_step` makes its next state of what `read` made of its input."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.read, self.recall = TwoLinear(inputs, 3 * width), TwoLinear(width, 3 * width)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1.0 / math.sqrt(width), 1.0 / math.sqrt(width))


class OthersAttention(nn.Module):
    """Of every sensor to all others at the same step: a linear map, then multi-head attention."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter, self.leave = TwoLinear(width, width), TwoLinear(width, width)
        self.query_key_value = TwoLinear(width, 3 * width, bound=math.sqrt(6.0 / (4 * width)))
        nn.init.zeros_(self.leave.bias)


class Trace(NamedTuple):
    """Of all steps. first, second: (2, B, T, N), x1 and x2; nodes: (2, B, T, N, D), u; states: [o, v, h]."""

    first: Tensor
    second: Tensor
    nodes: Tensor
    states: Tensor


class Maps(NamedTuple):
    """Weight and bias of each linear map of a step."""

    recall: Tensor  # h -> what the gates take of it, and x1
    recall_bias: Tensor
    node: Tensor  # [x, m, r, h] -> u
    node_bias: Tensor
    near: Tensor  # S u -> v1
    near_bias: Tensor
    far: Tensor  # S v1 -> v2
    far_bias: Tensor
    join: Tensor  # [z, x, m, v, h] -> o before its PReLU, but for attention; its queries, keys, values; what gates read
    join_bias: Tensor
    brought: Tensor  # what attention brought -> o before its PReLU
    slope: Tensor  # (2,)
    second: Tensor  # [o, v, h] -> x2
    second_bias: Tensor
    refill: Tensor  # x2, where x is not visible, in place of x1 -> what the gates read


class Now(NamedTuple):
    """What is known of a step before it is come to. cell: (2, B, N, [x, m, r]); seen: (2, B, N, 1); z: the latent's."""

    cell: Tensor
    seen: Tensor
    z: Tensor


def _step(now: Now, h: Tensor, support: Tensor, others: Tensor, maps: Maps, heads: int) -> tuple[Tensor, ...]:
    """The parts of a `Trace`, and the next h, (2, B, N, D). others: (N, N), 0, and -inf for a sensor itself."""
    x, mask, width = now.cell[..., :1], now.cell[..., 1:2], h.shape[-1]
    told = linear(h, maps.recall, maps.recall_bias)
    recalled, first, _ = told.split((3 * width, 1, told.shape[-1] - 3 * width - 1), dim=-1)
    filled = torch.where(now.seen, x, first)
    node = linear(torch.cat((filled, now.cell[..., 1:], h), dim=-1), maps.node, maps.node_bias)
    near = linear(support @ node, maps.near, maps.near_bias)
    around = near + linear(support @ near, maps.far, maps.far_bias)
    told = linear(torch.cat((now.z, filled, mask, around, h), dim=-1), maps.join, maps.join_bias)
    mixed, projected, read = told.split((width, 3 * width, 3 * width), dim=-1)
    projected = projected.flatten(0, 1).unflatten(-1, (3, heads, -1))
    query, key, value = projected.permute(2, 0, 3, 1, 4).unbind(0)  # (2B, H, N, C)
    attended = F.scaled_dot_product_attention(query, key, value, attn_mask=others)
    mixed = linear(attended.transpose(1, 2).reshape(h.shape), maps.brought, mixed.flatten(1, 2))
    # PyTorch has its slopes along the second axis.
    state = torch.cat((F.prelu(mixed.transpose(0, 1), maps.slope).transpose(0, 1), around, h), dim=-1)
    second = linear(state, maps.second, maps.second_bias)
    read = linear(torch.where(now.seen, x, second), maps.refill, read.flatten(1, 2))
    return first.squeeze(-1), second.squeeze(-1), node, state, gated(read, recalled, h)


class Decoder(nn.Module):
    """The two stages, step after step. The first axis of all tensors is the direction."""

    def __init__(self, anchors: int, *, width: int, latent: int, heads: int) -> None:
        super().__init__()
        told, self.heads = latent + 2, heads
        self.first = TwoLinear(width, 1)
        self.node, self.merge = TwoLinear(2 + anchors, width), TwoLinear(2 * width, width)
        self.near, self.far = TwoLinear(width, width), TwoLinear(width, width)
        self.join = TwoLinear(told + 2 * width, width)
        self.attention = OthersAttention(width)
        self.mix = TwoLinear(4 * width, width)
        self.slope = nn.Parameter(torch.full((2, 1, 1, 1), 0.25))
        self.second = TwoLinear(3 * width, 1)
        self.gates = TwoGates(told + width, width)
        self.step = Repeated(_step)

    def forward(self, cells: Tensor, seen: Tensor, z: Tensor, h: Tensor, adjacency: Tensor) -> Trace:
        """cells: (2, B, T, N, [x, m, r]); seen: (2, B, T, N, 1), m as truth values."""
        steps, support = cells.shape[2], _support(adjacency)
        itself = torch.eye(adjacency.shape[0], dtype=torch.bool, device=adjacency.device)
        others = torch.zeros_like(adjacency).masked_fill(itself, -math.inf)
        known = zip(cells.unbind(2), seen.unbind(2), *zip(*for_each_step(steps, z), strict=True), strict=True)
        made: list[tuple[Tensor, ...]] = []
        for now, maps in zip(known, for_each_step(steps, *self._maps()), strict=True):
            *parts, h = self.step(Now(*now), h, support, others, Maps(*maps), self.heads)
            made.append(tuple(parts))
        return Trace(*(torch.stack(parts, dim=2) for parts in zip(*made, strict=True)))

    def _maps(self) -> Maps:
        attention, recall, read = self.attention, self.gates.recall, self.gates.read
        width, told = self.near.weight.shape[1], self.join.weight.shape[1] - 2 * self.near.weight.shape[1]
        merge_node, merge_state = self.merge.weight.split(width, dim=1)
        node, node_bias = _one(self.node.weight, self.node.bias, merge_node, self.merge.bias)

        # Three maps of [z, x, m, v, h]; zeros for what they do not read.
        mix_joined, mix_brought, mix_rest = self.mix.weight.split((width, width, 2 * width), dim=1)
        brought, mix_bias = _one(attention.leave.weight, attention.leave.bias, mix_brought, self.mix.bias)
        mix, mix_bias = _one(self.join.weight, self.join.bias, mix_joined, mix_bias)
        mix = mix + F.pad(mix_rest, (0, 0, told, 0))
        projected = attention.query_key_value
        project = _one(attention.enter.weight, attention.enter.bias, projected.weight, projected.bias)
        project, project_bias = _one(self.join.weight, self.join.bias, *project)
        read_z, refill, read_rest = read.weight.split((told - 2, 1, 1 + width), dim=1)
        reading = torch.cat((read_z, torch.zeros_like(refill), read_rest), dim=1)
        return Maps(
            *(side_by_side(recall.weight, self.first.weight), side_by_side(recall.bias, self.first.bias)),
            *(torch.cat((node, merge_state), dim=1), node_bias),
            *(self.near.weight, self.near.bias, self.far.weight, self.far.bias),
            torch.cat((mix, project, F.pad(reading, (0, 0, 0, width))), dim=-1),
            torch.cat((mix_bias, project_bias, read.bias), dim=-1),
            *(brought, self.slope.flatten(), self.second.weight, self.second.bias, refill),
        )


def _one(weight: Tensor, bias: Tensor, next_weight: Tensor, next_bias: Tensor) -> tuple[Tensor, Tensor]:
    """Weight and bias of a linear map that is followed by another."""
    return weight @ next_weight, linear(bias, next_weight, next_bias)


def _support(adjacency: Tensor) -> Tensor:
    """The mean of the row-normalised adjacency and of its transpose's; rows without neighbours are 0."""
    onward = adjacency / (adjacency.sum(dim=1, keepdim=True) + _TINY)
    backward = adjacency.T / (adjacency.T.sum(dim=1, keepdim=True) + _TINY)
    return 0.5 * (onward + backward)
