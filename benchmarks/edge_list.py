"""Competitor (a): an edge list, as message-passing libraries do it and SPIN (Marisca et al., 2022) is written.

Both ends of every edge are gathered, a message is made for every pair of their steps, and what the edges carry is
summed at their targets. With PyTorch Geometric where it is installed; otherwise with index_add in plain PyTorch.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.layer import Forward, LayerInputs
from casper.network.neighbourhood import Neighbourhood

SegmentSoftmax = Callable[[Tensor], Tensor]
"""(B, E, T, H) -> the same, a softmax over the edges of each target."""
LIBRARY = "torch_geometric"


class Edges(NamedTuple):
    """source, target: (E,) sensor numbers; slot: (E,), the edge's column in the padded table; sensors: N."""

    source: Tensor
    target: Tensor
    slot: Tensor
    sensors: int

    @classmethod
    def of(cls, neighbourhood: Neighbourhood) -> Edges:
        target, slot = neighbourhood.present.nonzero(as_tuple=True)
        return cls(neighbourhood.index[target, slot], target, slot, neighbourhood.index.shape[0])


class Carried(NamedTuple):
    """What the edges bring to their targets, (B, E, T, D), and rho of every pair of steps, (B, E, T, T)."""

    messages: Tensor
    rho: Tensor


EdgeAttention = Callable[[tuple[Tensor, ...], Edges, Tensor | None, float | Tensor], tuple[Tensor, Tensor]]
"""The six tensors, the edges, draws (B, E, T, T) or None, and the temperature -> out (B, N, T, D), mean of rho ()."""


def at_hand() -> bool:
    return importlib.util.find_spec(LIBRARY) is not None


def edge_attention(*, library: bool) -> EdgeAttention:
    """With the library, or in plain PyTorch."""
    if not library:
        return _plain_torch
    with warnings.catch_warnings(action="ignore"):  # of the library about itself
        from benchmarks.edge_list_library import attend

    return attend


class EdgeList:
    name = "edge_list"

    def __init__(self, *, library: bool | None = None) -> None:
        """library: whether to use PyTorch Geometric; None: if it is installed."""
        library = at_hand() if library is None else library
        self._attend = edge_attention(library=library)
        self.how = "edge list, noise drawn beforehand, " + (
            "PyTorch Geometric's MessagePassing and softmax" if library else "index_add in plain PyTorch"
        )

    def bind(self, neighbourhood: Neighbourhood, inputs: LayerInputs) -> Forward:
        edges = Edges.of(neighbourhood)
        dtype = inputs.tensors[0].dtype
        drawn = inputs.noise.draw(
            neighbourhood.index, batch=inputs.batch, steps=inputs.steps, dtype=torch.promote_types(dtype, torch.float32)
        )  # (B, N, T, K*T), the same draws as every version of ours makes
        per_slot = drawn.unflatten(-1, (-1, inputs.steps)).transpose(2, 3)  # (B, N, K, T, T)
        drawn = per_slot[:, edges.target, edges.slot].to(dtype)  # (B, E, T, T)
        temperature = inputs.temperature.to(dtype)
        return lambda: self._attend(inputs.tensors, edges, drawn, temperature)


def carry(
    query: Tensor,
    key: Tensor,
    message_query: Tensor,
    message_key: Tensor,
    gate_query: Tensor,
    gate_key: Tensor,
    drawn: Tensor | None,
    temperature: float | Tensor,
    softmax_over_edges: SegmentSoftmax,
) -> Carried:
    """The messages of all edges. Query side and key side are gathered: (B, E, T, H, C), gates (B, E, T).

    The softmax goes over all steps of all edges of a target. It is taken over the steps of each edge first and over
    the edges then, which is the same and needs no scattering of pairs.
    """
    logit = gate_query[:, :, :, None] + gate_key[:, :, None]  # (B, E, T, T)
    noisy = logit if drawn is None else (logit + drawn) / temperature
    scores = torch.einsum("bethc,beshc->betsh", query, key) + F.logsigmoid(noisy)[..., None]  # (B, E, T, T, H)
    share_of_edge = softmax_over_edges(scores.logsumexp(3))  # (B, E, T, H)
    messages = F.relu(message_query[:, :, :, None] + message_key[:, :, None])  # (B, E, T, T, H, C)
    carried = (scores.softmax(3)[..., None] * messages).sum(3) * share_of_edge[..., None]  # (B, E, T, H, C)
    return Carried(carried.flatten(3), torch.sigmoid(logit))


def _plain_torch(
    tensors: tuple[Tensor, ...], edges: Edges, drawn: Tensor | None, temperature: float | Tensor
) -> tuple[Tensor, Tensor]:
    query, key, message_query, message_key, gate_query, gate_key = tensors
    batch, sensors, steps, heads, channels = query.shape

    def softmax_over_edges(x: Tensor) -> Tensor:
        shape = (batch, sensors, steps, heads)
        place = edges.target[None, :, None, None].expand_as(x)
        highest = x.new_full(shape, -torch.inf).scatter_reduce(1, place, x.detach(), "amax")
        exponential = (x - highest.index_select(1, edges.target)).exp()
        total = x.new_zeros(shape).index_add(1, edges.target, exponential)
        return exponential / total.index_select(1, edges.target)

    def at_target(x: Tensor) -> Tensor:
        return x.index_select(1, edges.target)

    def at_source(x: Tensor) -> Tensor:
        return x.index_select(1, edges.source)

    messages, rho = carry(
        at_target(query),
        at_source(key),
        at_target(message_query),
        at_source(message_key),
        at_target(gate_query),
        at_source(gate_key),
        drawn,
        temperature,
        softmax_over_edges,
    )
    out = messages.new_zeros(batch, sensors, steps, heads * channels).index_add(1, edges.target, messages)
    return out, rho.mean()
