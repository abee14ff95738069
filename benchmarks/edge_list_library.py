"""The edge list with PyTorch Geometric's message passing; imported only where it is installed."""
# pyright: reportMissingImports=false

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

from benchmarks.edge_list import Edges, carry

_Base: Any = MessagePassing


class CausalMessagePassing(_Base):
    """Tensors are (B, N, T, ...), so sensors are dimension 1; the library gathers `_i` at targets, `_j` at sources."""

    def __init__(self) -> None:
        super().__init__(aggr="add", node_dim=1)
        self.rho_mean: Tensor | None = None

    def forward(
        self, tensors: tuple[Tensor, ...], edges: Edges, drawn: Tensor | None, temperature: float | Tensor
    ) -> tuple[Tensor, Tensor]:
        query, key, message_query, message_key, gate_query, gate_key = tensors
        out = self.propagate(
            torch.stack((edges.source, edges.target)),
            query=query,
            key=key,
            message_query=message_query,
            message_key=message_key,
            gate_query=gate_query,
            gate_key=gate_key,
            drawn=drawn,
            temperature=temperature,
            size=(edges.sensors, edges.sensors),
        )
        rho_mean, self.rho_mean = self.rho_mean, None
        assert rho_mean is not None
        return out, rho_mean

    def message(
        self,
        query_i: Tensor,
        key_j: Tensor,
        message_query_i: Tensor,
        message_key_j: Tensor,
        gate_query_i: Tensor,
        gate_key_j: Tensor,
        drawn: Tensor | None,
        temperature: float | Tensor,
        index: Tensor,
        size_i: int | None,
    ) -> Tensor:
        carried = carry(
            query_i,
            key_j,
            message_query_i,
            message_key_j,
            gate_query_i,
            gate_key_j,
            drawn,
            temperature,
            partial(softmax, index=index, num_nodes=size_i, dim=1),
        )
        self.rho_mean = carried.rho.mean()
        return carried.messages


attend = CausalMessagePassing()
