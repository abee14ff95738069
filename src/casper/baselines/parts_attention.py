"""What the attention baselines share: MLPs, embeddings, steps as waves, multi-head attention along one axis."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# PyTorch's attention kernels for GPUs refuse more sequences than this at a time (pytorch/pytorch#142228).
_SEQUENCES_AT_ONCE = 2**15


def mlp(inputs: int, hidden: int, outputs: int | None = None, *, layers: int = 2) -> nn.Sequential:
    """So many hidden layers, a ReLU behind each; with `outputs`, a linear map follows."""
    parts: list[nn.Module] = []
    for layer in range(layers):
        parts += [nn.Linear(inputs if layer == 0 else hidden, hidden), nn.ReLU()]
    if outputs is not None:
        parts.append(nn.Linear(hidden, outputs))
    return nn.Sequential(*parts)


def embedding(count: int, width: int) -> nn.Parameter:
    """(count, width) numbers to learn."""
    bound = 1.0 / math.sqrt(width)
    return nn.Parameter(torch.empty(count, width).uniform_(-bound, bound))


def some_rows(table: Tensor, rows: Tensor | None) -> Tensor:
    """The rows that a patch of sensors has, or all."""
    return table if rows is None else table[rows]


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention along the last axis but one; the axes before it are batches, and may be left out
    of the query or of the key where it is the same for all of them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """query: (..., Q, D); key, value: (..., K, D) -> (..., Q, D)"""
        query, key, value = self.query(query), self.key(key), self.value(value)
        batches = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
        split = [self._split(x.expand(*batches, *x.shape[-2:])) for x in (query, key, value)]
        parts = zip(*(x.split(_SEQUENCES_AT_ONCE) for x in split), strict=True)
        attended = torch.cat([F.scaled_dot_product_attention(*part) for part in parts])  # (sequences, H, Q, C)
        return self.out(attended.transpose(1, 2).reshape(*batches, query.shape[-2], -1))

    def _split(self, x: Tensor) -> Tensor:
        """(..., L, D) -> (sequences, H, L, C)"""
        return x.reshape(-1, *x.shape[-2:]).unflatten(-1, (self.heads, -1)).transpose(1, 2)
