"""What the network is told about every cell of a window before it looks further: plain arithmetic, nothing learned."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# A window's deviation is not taken to be smaller than this share of the table's: calm windows are not blown up.
_CALMEST = 0.1


class Cells(NamedTuple):
    """values, visible: (B, N, T), what must not be read is 0. guess: see `guess_from_time`, None if nobody asked."""

    values: Tensor
    visible: Tensor
    guess: Tensor | None = None


class Level(NamedTuple):
    """Mean and deviation of a window's visible cells, (B, 1, 1)."""

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, values: Tensor, visible: Tensor) -> Level:
        """values: 0 where not visible. A window without visible cells is left as it is."""
        count = visible.sum((1, 2), keepdim=True)
        mean = values.sum((1, 2), keepdim=True) / count.clamp_min(1)
        spread = ((values - mean) * visible).square().sum((1, 2), keepdim=True) / count.clamp_min(1)
        return cls(mean, torch.where(count > 0, (spread + _CALMEST**2).sqrt(), 1.0))


def guess_from_time(values: Tensor, visible: Tensor) -> Tensor:
    """What the sensor's own visible steps say about a cell: (B, N, T) -> (B, N, T, 3).

    A straight line between the nearest visible steps before and after it, or the nearest one where there is one side
    only, or 0; and how near they are: 1 / (1 + steps), 0 where there is none.
    """
    steps = visible.shape[-1]
    step = torch.arange(steps, dtype=torch.int32, device=visible.device)
    before = torch.where(visible, step, -1).cummax(-1).values
    after = torch.where(visible, step, steps).flip(-1).cummin(-1).values.flip(-1)
    some_before, some_after = before >= 0, after < steps
    value_before = values.gather(-1, before.clamp_min(0).long())
    value_after = values.gather(-1, after.clamp_max(steps - 1).long())
    since, until = (step - before).to(values.dtype), (after - step).to(values.dtype)
    between = torch.lerp(value_before, value_after, since / (since + until).clamp_min(1))
    one_sided = torch.where(some_before, value_before, torch.where(some_after, value_after, 0.0))
    guess = torch.where(some_before & some_after, between, one_sided)
    near_before = torch.where(some_before, 1 / (1 + since), 0.0)
    near_after = torch.where(some_after, 1 / (1 + until), 0.0)
    return torch.stack((guess, near_before, near_after), dim=-1)
