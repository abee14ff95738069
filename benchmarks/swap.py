"""Another attention in the model, for the length of a block."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

import torch
from torch import Tensor

from benchmarks.edge_list import Edges, at_hand, edge_attention
from casper import model
from casper.attention import Attended, GateRule, causal_attention
from casper.neighbourhood import Neighbourhood

ATTENTIONS = ("ours", "plain", "edge_list")


@contextlib.contextmanager
def attention_in_the_model(name: str, graph: Neighbourhood) -> Generator[None]:
    """Within the block `casper.model` computes its attention with one of ATTENTIONS. graph: the one it will meet.

    The competitors are not asked for sums in a fixed order, as our training loop is: that would slow them down.
    """
    if name == "ours":
        yield
        return
    swapped: Any = _plain if name == "plain" else _EdgeListAttention(graph)
    before = model.causal_attention
    model.causal_attention = swapped
    try:
        yield
    finally:
        model.causal_attention = before


def _plain(*tensors: Any, **options: Any) -> Attended:
    torch.use_deterministic_algorithms(False)
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
        details: bool,
    ) -> Attended:
        assert gate.always_sums_to_one
        assert relative_bias is None
        assert not constrained
        assert not details
        assert neighbourhood.index.shape[0] == self._edges.sensors
        torch.use_deterministic_algorithms(False)
        drawn = None
        if gate.noise is not None:
            pairs = (query.shape[0], len(self._edges.source), query.shape[2], query.shape[2])
            drawn = torch.rand(pairs, device=query.device).logit(eps=1e-6).to(query.dtype)
        tensors = (query, key, message_query, message_key, gate_query, gate_key)
        out, rho_mean = self._attend(tensors, self._edges, drawn, gate.temperature)
        return Attended(out, rho_mean, neighbourhood.present.any(1).to(out.dtype)[None, :, None, None])
