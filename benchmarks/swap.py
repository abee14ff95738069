"""Another attention in the model, for the length of a block."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.edge_list import Edges, at_hand, edge_attention
from casper import train
from casper.attention import Attended, GateRule, causal_attention
from casper.network import encoder
from casper.network.neighbourhood import Neighbourhood
from casper.train import fast_but_repeatable

ATTENTIONS = ("ours", "plain", "edge_list")


@contextlib.contextmanager
def attention_in_the_model(name: str, graph: Neighbourhood) -> Generator[None]:
    """Within the block `casper.network.encoder` computes its attention with one of ATTENTIONS. graph: the one it meets.

    The competitors are not asked for sums in a fixed order, as our training loop is: that would slow them down. Along
    the steps of each sensor on its own, where there is nothing to gate, they use PyTorch's fused attention.
    """
    if name == "ours":
        yield
        return
    between_sensors: Any = _plain if name == "plain" else _EdgeListAttention(graph)

    def swapped(*tensors: Any, **options: Any) -> Attended:
        alone = tensors[4] is None  # no gate
        return _fused(tensors[0], tensors[1], tensors[3]) if alone else between_sensors(*tensors, **options)

    before = encoder.causal_attention, train.fast_but_repeatable
    encoder.causal_attention, train.fast_but_repeatable = swapped, _fast_in_any_order
    try:
        yield
    finally:
        encoder.causal_attention, train.fast_but_repeatable = before


@contextlib.contextmanager
def _fast_in_any_order(device: torch.device) -> Generator[None]:
    with fast_but_repeatable(device):
        torch.use_deterministic_algorithms(False)
        yield


def _fused(query: Tensor, key: Tensor, value: Tensor) -> Attended:
    """query, key, value: (B, N, T, H, C), the query already divided by sqrt(C)."""
    q, k, v = (x.flatten(0, 1).transpose(1, 2) for x in (query, key, value))  # (B*N, H, T, C)
    out = F.scaled_dot_product_attention(q, k, v, scale=1.0).transpose(1, 2).reshape(*query.shape[:3], -1)
    return Attended(out, out.new_zeros(()), out.new_ones(1, 1, 1, 1))


def _plain(*tensors: Any, **options: Any) -> Attended:
    return causal_attention(*tensors, **{**options, "version": "plain"})


class _EdgeListAttention:
    """Takes what `causal_attention` takes. Its noise is drawn by torch.rand, as anybody would."""

    def __init__(self, graph: Neighbourhood) -> None:
        self._edges = Edges.of(graph)
        self._attend = edge_attention(library=at_hand())

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        message_query: Tensor,
        message_key: Tensor,
        gate_query: Tensor,
        gate_key: Tensor,
        neighbourhood: Neighbourhood,
        *,
        gate: GateRule,
        relative_bias: Tensor | None,
        constrained: bool,
    ) -> Attended:
        assert gate.always_sums_to_one
        assert relative_bias is None
        assert not constrained
        assert neighbourhood.index.shape[0] == self._edges.sensors
        drawn = None
        if gate.noise is not None:
            pairs = (query.shape[0], len(self._edges.source), query.shape[2], query.shape[2])
            drawn = torch.rand(pairs, device=query.device).logit(eps=1e-6).to(query.dtype)
        tensors = (query, key, message_query, message_key, gate_query, gate_key)
        out, rho_mean = self._attend(tensors, self._edges, drawn, gate.temperature)
        return Attended(out, rho_mean, neighbourhood.present.any(1).to(out.dtype)[None, :, None, None])
