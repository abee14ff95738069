"""What a network's estimates lose when one variable falls silent: it is hidden in whole windows, and the estimates of
the others are made again.

    certainty = -log10 P(Z >= mean(rise of the error) / its standard error),  Z standard normal

An estimate may lean on a variable that only goes with the true cause, but it is not the worse without it: whoever else
goes with the cause tells as much.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from casper.model import CasperNetwork
from casper.windows import Window


class Asked(NamedTuple):
    """Windows, with what is hidden in them left out of `window.visible`. truth, cells: (B, N, T), the values and which
    of them are asked for."""

    window: Window
    truth: Tensor
    cells: Tensor


class Lost:
    """The sums behind the certainties, over as many looks as wanted: of several networks, too."""

    def __init__(self, variables: int, device: torch.device) -> None:
        self._counts = torch.zeros(variables, dtype=torch.float64, device=device)
        self._rise, self._squares = (
            torch.zeros(variables, variables, dtype=torch.float64, device=device) for _ in range(2)
        )

    @torch.no_grad()
    def look(self, network: CasperNetwork, batches: Iterable[Asked]) -> None:
        for window, truth, cells in batches:
            self._counts += cells.sum((0, 2))
            error = (network(*_readable(window, window.visible)).estimate - truth).abs()
            for source in range(len(self._counts)):
                left = window.visible.clone()
                left[:, source] = False
                worse = ((network(*_readable(window, left)).estimate - truth).abs() - error).double() * cells
                self._rise[source] += worse.sum((0, 2))
                self._squares[source] += worse.square().sum((0, 2))

    def certainty(self) -> Tensor:
        """(sources, targets), see above."""
        counts = self._counts.clamp_min(1.0)
        mean = self._rise / counts
        variance = (self._squares / counts - mean.square()).clamp_min(0.0)
        rises = mean / (variance / counts).sqrt().clamp_min(1e-12)
        return -torch.special.log_ndtr(-rises) / math.log(10.0)


def answered(network: CasperNetwork, batches: Iterable[Asked]) -> Tensor:
    """(lags, sources, targets), lag 1 first: how strongly the estimates of the last step answer to each of the steps
    before, |d estimate / d value| summed over the windows in which both are known."""
    sums: Tensor | None = None
    for window, _, cells in batches:
        values, visible, clock = _readable(window, window.visible)
        values.requires_grad_()
        with torch.enable_grad():
            estimate = network(values, visible, clock).estimate[:, :, -1] * cells[:, :, -1]
        slopes = [
            torch.autograd.grad(estimate[:, target].sum(), values, retain_graph=True)[0].abs().sum(0)
            for target in range(values.shape[1])
        ]
        added = torch.stack(slopes, dim=1)[:, :, :-1].flip(-1).double()  # (sources, targets, lags)
        sums = added if sums is None else sums + added
    assert sums is not None
    return sums.permute(2, 0, 1)


def _readable(window: Window, visible: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return window.values * visible, visible, window.clock
