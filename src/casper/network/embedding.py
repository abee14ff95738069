"""The first embedding of a window: what every cell is told about itself before it looks at any other."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from casper.config import ModelConfig

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
    step, before, after = _readings_around(visible)
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


def steps_to_reading(visible: Tensor) -> Tensor:
    """(B, N, T): how far the sensor's own nearest visible step is; as much as a window has where there is none."""
    steps = visible.shape[-1]
    step, before, after = _readings_around(visible)
    since, until = torch.where(before >= 0, step - before, steps), torch.where(after < steps, after - step, steps)
    return torch.minimum(since, until)


def _readings_around(visible: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(T,), (B, N, T), (B, N, T): the steps, and of each the last visible one up to it (or -1) and the next (or T)."""
    steps = visible.shape[-1]
    step = torch.arange(steps, dtype=torch.int32, device=visible.device)
    before = torch.where(visible, step, -1).cummax(-1).values
    after = torch.where(visible, step, steps).flip(-1).cummin(-1).values.flip(-1)
    return step, before, after


class CellProjection(nn.Module):
    """H = MLP(X) * M + m * (1 - M): a measured value becomes its embedding, a hole the missing embedding m.

    With a guess from the sensor's own visible steps, an MLP of it is added to m.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.width
        self.value = nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, width))
        self.missing = nn.Parameter(torch.randn(width) * 0.02)
        if config.guess:
            self.guess = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, cells: Cells) -> Tensor:
        # (B, N, T) -> (B, N, T, D)
        missing = self.missing if cells.guess is None else self.missing + self.guess(cells.guess)
        return torch.where(cells.visible[..., None], self.value(cells.values[..., None]), missing)


class Positions(nn.Module):
    """Which sensor, what time of day and week, which step of the window: (N, D), (B, T, F), (T, D) -> (B, N, T, D).

    courses: so many maps of the clock, of which every sensor mixes its own: what an hour means differs among sensors.
    """

    steps: Tensor

    def __init__(
        self, width: int, *, sensors: int, clock: int, window: int, spread: float = 0.02, courses: int = 0
    ) -> None:
        super().__init__()
        self.sensor = nn.Parameter(torch.randn(sensors, width) * spread)
        self.clock = nn.Linear(clock, width)
        self.register_buffer("steps", sinusoids(window, width), persistent=False)
        self.step = nn.Linear(width, width, bias=False)
        self.mixture = self.courses = None
        if courses:
            self.mixture = nn.Parameter(torch.randn(sensors, courses) / math.sqrt(courses))
            self.courses = nn.Parameter(torch.zeros(clock, courses * width))

    def forward(self, clock: Tensor, sensors: Tensor | None) -> Tensor:
        sensor = self.sensor if sensors is None else self.sensor[sensors]
        along_time = self.clock(clock) + self.step(self.steps[: clock.shape[1]])  # (B, T, D)
        everywhere = sensor[None, :, None] + along_time[:, None]  # (B, N, T, D)
        if self.mixture is None or self.courses is None:
            return everywhere
        mixture = self.mixture if sensors is None else self.mixture[sensors]
        courses = (clock @ self.courses).unflatten(-1, (mixture.shape[1], -1))  # (B, T, courses, D)
        return everywhere + torch.einsum("nc,btcd->bntd", mixture, courses)


def sinusoids(length: int, width: int) -> Tensor:
    """(length, width), width even: the place in a window as waves of different lengths (Vaswani et al., 2017)."""
    rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angle = torch.arange(length)[:, None] * rate
    return torch.stack((angle.sin(), angle.cos()), dim=-1).reshape(length, width)
