"""What a linear estimate misses: a small network that looks at kriging's and at the readings around it (ours).

Kriging fills a window with the best linear estimate (`casper.kriging`). Where relations are not linear, such as fronts
that pass, jams that break up or nights that are calmer than days, its errors follow a pattern that can be seen in the
filled window itself: the values of the sensor some steps before and after, those of the sensors that have most in
common with it, and which of them were measured. A perceptron reads these around every hole and says what to add:

    y = y_kriging + MLP(what lies around, relative to y_kriging)

All of it is in kriging's units (deviations from a sensor's course), so that one small network serves all sensors. It
begins with adding nothing, learns by hiding visible cells and restoring them while kriging stays as it is, and is kept
only if the held-back readings are filled better with it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from casper.progress import Tell, progress_over

# How far it looks: steps of the sensor itself on both sides, other sensors, and steps of theirs on both sides.
_OWN_STEPS, _OTHERS, _THEIR_STEPS = 6, 6, 2
_OF_THE_CELL = 6
_WIDTH = 128
# What lies farther from the usual than so many deviations is no farther.
_FARTHEST, _LEAST_SPREAD = 5.0, 0.01
# Cells at a time: their surroundings are some hundred numbers each.
_CELLS_AT_ONCE = 2**16
# How it learns: cells of a step, steps, those of its warm-up, the rate, and how slowly its weights' average follows.
_BATCH, _STEPS, _WARM_UP, _RATE, _AVERAGING = 1024, 2000, 100, 0.001, 0.995
# So often it looks at each cell at most.
_MOST_LOOKS = 8
# Against learning the windows by heart: the share of what is computed that is left out, and noise in what is seen.
_DROPOUT, _BLUR = 0.1, 0.2


class Field(NamedTuple):
    """Windows that kriging has filled, in deviations from the sensors' courses; (B, N, T).

    values: readings, and its estimates elsewhere; seen: which are readings; course: the courses themselves, in
    deviations. clock: (B, T, F). nearest: (N, K), the sensors with which each one has most in common.
    """

    values: Tensor
    seen: Tensor
    course: Tensor
    clock: Tensor
    nearest: Tensor


def nearest_sensors(correlation: Tensor) -> Tensor:
    """(N, N) -> (N, K) the sensors that each one has most in common with; fewer than usual in a small network."""
    others = correlation.clone().fill_diagonal_(-torch.inf)
    return others.topk(min(_OTHERS, len(correlation) - 1), dim=1).indices


class Correction(nn.Module):
    """What to add to kriging's estimates."""

    usual: Tensor
    spread: Tensor

    def __init__(self, *, clock: int) -> None:
        super().__init__()
        features = 4 * _OWN_STEPS + 2 * _OTHERS * (2 * _THEIR_STEPS + 1) + _OF_THE_CELL + clock
        self.layers = nn.ModuleList((nn.Linear(features, _WIDTH), nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, 1)))
        for parameter in self.layers[-1].parameters():
            nn.init.zeros_(parameter)
        self.layers.requires_grad_(False)
        # Mean and deviation of the surroundings it has learned from; 0 before.
        self.register_buffer("usual", torch.zeros(features))
        self.register_buffer("spread", torch.zeros(features))

    @property
    def learned(self) -> bool:
        return bool(self.spread.any())

    @torch.no_grad()
    def forget(self) -> None:
        """Nothing is added from now on."""
        self.spread.zero_()

    def forward(self, field: Field, cells: Tensor) -> Tensor:
        """cells: (C, 3), the numbers of window, sensor and step -> (C,)."""
        parts = cells.split(_CELLS_AT_ONCE)
        return torch.cat([self._added(self._unusual(surroundings(field, part))) for part in parts])

    def learn(self, around: Tensor, missed: Tensor, *, seed: int, progress: bool | str | Tell) -> None:
        """around: (C, features), the surroundings of cells; missed: (C,), by how much kriging misses them."""
        generator = torch.Generator().manual_seed(seed)
        steps = min(_STEPS, 1 + _MOST_LOOKS * len(missed) // _BATCH)
        with torch.no_grad():
            self.usual.copy_(around.mean(0))
            self.spread.copy_(around.std(0, correction=0).clamp_min(_LEAST_SPREAD))
            around = self._unusual(around)
        self.layers.requires_grad_(True)
        averaged = AveragedModel(self.layers, multi_avg_fn=_average)
        optimizer = torch.optim.Adam(self.layers.parameters(), fused=True)
        with torch.enable_grad():
            for step in progress_over(range(steps), "correction", progress):
                for group in optimizer.param_groups:
                    group["lr"] = _RATE * min(1.0, (step + 1) / _WARM_UP) * (1 + math.cos(math.pi * step / steps)) / 2
                drawn = torch.randint(len(missed), (_BATCH,), generator=generator)
                blurred = around[drawn] + _BLUR * torch.randn(_BATCH, around.shape[1], generator=generator)
                loss = (self._added(blurred, generator) - missed[drawn]).abs().mean()
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                averaged.update_parameters(self.layers)
        self.layers.load_state_dict(averaged.module.state_dict())
        self.layers.requires_grad_(False)  # no other training touches it

    def _added(self, unusual: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """(C, features) -> (C,). generator: of the dropout, in training."""
        *hidden, last = self.layers
        for layer in hidden:
            unusual = F.gelu(layer(unusual))
            if generator is not None:
                kept = torch.rand(unusual.shape, generator=generator) >= _DROPOUT
                unusual = unusual * kept / (1 - _DROPOUT)
        return last(unusual).squeeze(-1)

    def _unusual(self, around: Tensor) -> Tensor:
        return ((around - self.usual) / self.spread).clamp(-_FARTHEST, _FARTHEST)


def _average(averaged: Any, current: Any, steps: Any) -> None:
    """Early on the average forgets quickly, or it would remember the random start."""
    get_ema_multi_avg_fn(min(_AVERAGING, float((1 + steps) / (10 + steps))))(averaged, current, steps)


def surroundings(field: Field, cells: Tensor) -> Tensor:
    """(C, features): what the network sees of each cell, relative to kriging's estimate of it. cells: (C, 3)."""
    window, sensor, step = cells.T
    estimate = field.values[window, sensor, step]
    seen = field.seen.to(estimate.dtype)

    def around(of: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        """of: (C, k) sensors; steps: (s,) -> differences and readings, (C, k * s); 0 beyond the window's ends."""
        at = step[:, None, None] + steps
        within = (at >= 0) & (at < field.values.shape[2])
        at = window[:, None, None], of[..., None], at.clamp(0, field.values.shape[2] - 1)
        apart = (field.values[at] - estimate[:, None, None]) * within
        return apart.flatten(1), (seen[at] * within).flatten(1)

    own = torch.arange(-_OWN_STEPS, _OWN_STEPS + 1, device=cells.device)
    theirs = torch.arange(-_THEIR_STEPS, _THEIR_STEPS + 1, device=cells.device)
    none = (_OTHERS - field.nearest.shape[1]) * len(theirs)
    others = [F.pad(seen_there, (0, none)) for seen_there in around(field.nearest[sensor], theirs)]
    of_the_cell = (
        estimate,
        field.course[window, sensor, step],
        field.values.mean(1)[window, step] - estimate,
        field.values.std(1, correction=0)[window, step],
        seen.mean(1)[window, step],
        seen.mean((1, 2))[window],
    )
    return torch.cat(
        (
            *around(sensor[:, None], own[own != 0]),
            *others,
            torch.stack(of_the_cell, dim=1),
            field.clock[window, step],
        ),
        dim=1,
    )
