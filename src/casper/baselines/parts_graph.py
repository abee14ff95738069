"""Diffusion over a directed sensor graph, along its edges and against them (Li et al., DCRNN, ICLR 2018).

With A[s, t] the weight of the edge from s to t, a sensor takes the weighted mean of the sensors it listens to, or of
those that listen to it:

    along[t, s] = A[s, t] / sum_s A[s, t]        against[s, t] = A[s, t] / sum_t A[s, t]

A sensor without such neighbours has a row of zeros. Walks of up to K hops are the powers of both. They are held as
one dense matrix, so that all of them are taken by a single matrix product: fast up to a few thousand sensors.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

DIRECTIONS = 2
"""Along the edges and against them."""


def transitions(adjacency: Tensor) -> tuple[Tensor, Tensor]:
    """(N, N) weights, rows being sources -> one step along the edges and one against them; rows are who receives."""
    return _rows_as_shares(adjacency.mT), _rows_as_shares(adjacency)


def walks(adjacency: Tensor, hops: int) -> Tensor:
    """(N, N) weights, rows being sources -> (N, K, N): receiver, walk, origin; K = 2 * hops.

    The walks are in the order: along, against, along twice, against twice, and so on.
    """
    along, against = transitions(adjacency)
    taken = [along, against]
    for _ in range(hops - 1):
        taken += [along @ taken[-2], against @ taken[-1]]
    return torch.stack(taken, dim=1)


def diffuse(x: Tensor, walked: Tensor) -> Tensor:
    """x: (..., N, C), walked: (N, K, N) as from `walks` -> (..., N, K * C), what each walk brings to each sensor."""
    sensors, kinds, _ = walked.shape
    # Walks vary faster than receivers: the product comes out with a sensor's channels side by side, nothing is moved.
    return (walked.flatten(0, 1) @ x).unflatten(-2, (sensors, kinds)).flatten(-2)


def diffuse_readings(x: Tensor, walked: Tensor) -> Tensor:
    """The same for one number per sensor: (..., N) -> (..., N, K)."""
    return F.linear(x, walked.flatten(0, 1)).unflatten(-1, walked.shape[:2])


def _rows_as_shares(weights: Tensor) -> Tensor:
    total = weights.sum(dim=1, keepdim=True)
    return weights / torch.where(total > 0, total, 1.0)
