"""What kriging knows of the time beyond its window: means of blocks of steps on either side, longer ones farther away.

A gap that is longer than a window leaves no reading of its own sensor in it. How the sensor stood to its neighbours
before the gap, and how it does after it, is all that can be told of it then. A block's mean is one more reading of the
Gaussian field: its covariance with a cell, or with another block, is the mean of those of its steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

# Lengths of the blocks on either side, in windows, from near to far.
SIZES = (1 / 3, 4 / 3, 16 / 3)
# A block's covariance with a cell is a mean over so many of the block's moments.
_MOMENTS = 6


class BlockMeans(NamedTuple):
    """mean: (B, N, K), of what is visible in each block; seen: (B, N, K), how many steps that is."""

    mean: Tensor
    seen: Tensor


def blocks_around(window: int) -> Tensor:
    """(K, 2): the first step of every block and the one after its last, counted from the window's first; those before
    the window from near to far, then those after it."""
    ends = torch.tensor([0, *(max(1, round(size * window)) for size in SIZES)]).cumsum(0)
    near, far = ends[:-1], ends[1:]
    return torch.cat((torch.stack((-far, -near), dim=1), torch.stack((window + near, window + far), dim=1)))


def reach_of(blocks: Tensor) -> int:
    """Steps on either side of the window."""
    return -int(blocks.min())


def means_of_blocks(rest: Tensor, visible: Tensor, blocks: Tensor) -> BlockMeans:
    """rest, visible: (B, N, reach + T + reach)."""
    first, end = (blocks + reach_of(blocks)).T

    def sums(of: Tensor) -> Tensor:
        until = F.pad(of.double().cumsum(-1), (1, 0))
        return until[..., end] - until[..., first]

    count = sums(visible)
    return BlockMeans((sums(rest * visible) / count.clamp_min(1)).to(rest.dtype), count.to(rest.dtype))


def steps_apart(blocks: Tensor) -> Tensor:
    """(K, K, L): of the pairs of a step of one block and a step of another, the share that is 0, 1, 2, ... apart."""
    spans = [(first, end - first) for first, end in blocks.tolist()]
    longest = int(blocks.max() - blocks.min())
    shares = np.zeros((len(spans), len(spans), longest))
    for one, (first, length) in enumerate(spans):
        for other, (begin, width) in enumerate(spans):
            pairs = np.convolve(np.ones(length), np.ones(width)) / (length * width)
            apart = np.abs(begin - first + np.arange(1 - length, width))
            shares[one, other] = np.bincount(apart, pairs, minlength=longest)
    return torch.as_tensor(shares, dtype=torch.float32)


def with_blocks(
    cells: Tensor,
    across: Tensor,
    delay: Tensor,
    along_time: Callable[[Tensor], Tensor],
    blocks: Tensor,
    apart: Tensor,
) -> Tensor:
    """(n T, n T) covariances of cells -> (n T + n K, n T + n K), those of the blocks after them.

    across: (R, n, n), of sensors by scale; delay: (R, n), in steps; along_time: (R, ...) steps apart -> correlations;
    apart: see `steps_apart`. Blocks are long, so how late their sensors are is left out.
    """
    sensors = delay.shape[1]
    steps, count = len(cells) // sensors, len(blocks)
    share = (torch.arange(_MOMENTS, device=cells.device) + 0.5) / _MOMENTS
    first, end = blocks[:, :1], blocks[:, 1:]
    moments = first + (end - first) * share - 0.5  # (K, M)
    when = torch.arange(steps, device=cells.device) - delay[..., None]  # (R, n, T)
    to_cells = along_time((when[..., None, None] - moments).abs()).mean(-1)  # (R, n, T, K)
    lag = torch.arange(apart.shape[-1], device=cells.device).expand(len(delay), -1)
    among_blocks = torch.einsum("rl,kml->rkm", along_time(lag), apart)  # (R, K, K)
    cell_block = torch.einsum("rij,ritk->itjk", across, to_cells).reshape(sensors * steps, sensors * count)
    block_block = torch.einsum("rij,rkl->ikjl", across, among_blocks).reshape(sensors * count, sensors * count)
    return torch.cat((torch.cat((cells, cell_block), 1), torch.cat((cell_block.T, block_block), 1)))
