"""How late sensors are, and how much they have in common when that is taken into account; read off a table."""

from __future__ import annotations

import torch
from torch import Tensor

# Two sensors need as many common readings as this for half of their correlation to be believed.
_READINGS_TO_BELIEVE = 30.0
# Sums that are done for all delays together at most; of long tables and large networks some stretches are enough.
_MOST_SUMS = 6e10
_FEWEST_STEPS = 500
# Delays are kept if the sensors that belong together have so much more in common with them.
_WORTH_IT = 0.01
# Correlations to this power say which pairs of sensors are asked for their delay: those that belong together.
_POWER = 4
# A sensor that nobody has much in common with is not late.
_HELD_AT_NONE = 1e-2


def aligned(rest: Tensor, mask: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """(N, N) correlations of the sensors, each pair's at its delay; (N,) delays in steps, whose mean is none.

    rest, mask: (T, N), readings without what is common to all, 0 where there is none, and 1 where there is one.
    Of each pair the delay is looked for at which the two are correlated most, up to `longest` steps; then every sensor
    is given one delay, such that their differences are near those of the pairs.
    """
    now = _correlation(rest, rest, mask, mask)
    steps, sensors = rest.shape
    affordable = int(_MOST_SUMS / (2 * max(1, longest) * sensors**2))
    none = torch.zeros(sensors, dtype=rest.dtype)
    if sensors < 2 or longest < 1 or min(steps - longest, affordable) < _FEWEST_STEPS:
        return now, none
    some, there = _stretch(rest, affordable), _stretch(mask, affordable)
    later = [
        _correlation(some[lag:], some[: len(some) - lag], there[lag:], there[: len(some) - lag])
        for lag in range(longest + 1)
    ]
    # (2 longest + 1, N, N): of i with j, where i is later by -longest to longest steps
    every = torch.stack([*(one.T for one in reversed(later[1:])), *later])
    best, place = every.max(0)
    weight = best.clamp_min(0.0) ** _POWER
    weight.fill_diagonal_(0.0)
    delay = _agreed(place - longest, weight)
    apart = (delay[:, None] - delay).round().long().clamp(-longest, longest) + longest
    shifted = every.gather(0, apart[None])[0]
    if (weight * (shifted - every[longest])).sum() < _WORTH_IT * weight.sum():
        return now, none
    return shifted.fill_diagonal_(1.0), delay


def _correlation(x: Tensor, y: Tensor, x_there: Tensor, y_there: Tensor) -> Tensor:
    """(N, N), of the columns of x and of y, both (T, N), over the steps at which both have readings."""
    common = x_there.T @ y_there
    size_x, size_y = (x.square().T @ y_there).clamp_min(1e-6), (x_there.T @ y.square()).clamp_min(1e-6)
    return x.T @ y / (size_x * size_y).sqrt() * common / (common + _READINGS_TO_BELIEVE)


def _agreed(pairs: Tensor, weight: Tensor) -> Tensor:
    """(N,) d with d_i - d_j near pairs[i, j], by weighted least squares."""
    towards = (weight * pairs).sum(1)
    system = weight.sum(1).diag() - weight + _HELD_AT_NONE * torch.eye(len(weight), dtype=weight.dtype)
    delay = torch.linalg.solve(system, towards)
    return delay - delay.mean()


def _stretch(rows: Tensor, most: int) -> Tensor:
    """The middle of it, if it is longer than that."""
    first = max(0, (len(rows) - most) // 2)
    return rows[first : first + most]
