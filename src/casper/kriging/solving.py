"""The conditional mean of a Gaussian field, and its slopes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_FIRST_HELP = 1e-6  # added to the variances where a system cannot be solved without


def conditional_mean(covariance: Tensor, noise: Tensor, readings: Tensor, can_read: Tensor, holes: Tensor) -> Tensor:
    """The mean of the holes, given the readings of the cells that can be read.

    covariance, noise: (C, C) and (C,) of all cells; can_read, holes: numbers of cells.
    """
    if not len(can_read):
        return readings.new_zeros(len(holes))
    return _ConditionalMean.apply(covariance, noise, readings, can_read, holes)


class _ConditionalMean(torch.autograd.Function):
    """k x with A x = readings, A the covariance of what can be read with its noise, k that of the holes with it.

    The slopes are written out: with A u = k^T g, those of A are -u x^T and those of k are g x^T. Autograd's own way
    back, through the factor of A and the choice of its rows, takes ten times as long.
    """

    @staticmethod
    def forward(
        ctx: Any, covariance: Tensor, noise: Tensor, readings: Tensor, can_read: Tensor, holes: Tensor
    ) -> Tensor:
        system = covariance.index_select(0, can_read).index_select(1, can_read)
        system.diagonal().add_(noise[can_read])
        factor, failed = torch.linalg.cholesky_ex(system)
        more_noise = _FIRST_HELP
        while failed:  # smooth fields without noise ask for more digits, and for some noise where these do not help
            system = system.double()
            system.diagonal().add_(more_noise)
            factor, failed = torch.linalg.cholesky_ex(system)
            more_noise *= 10
        solution = _solved(factor, readings)
        across = covariance.index_select(0, holes).index_select(1, can_read)
        ctx.save_for_backward(factor, solution, across, can_read, holes)
        ctx.cells = len(covariance)
        return across @ solution

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        factor, solution, across, can_read, holes = ctx.saved_tensors
        back = _solved(factor, across.T @ slope)
        left, right, of_noise = (slope.new_zeros(ctx.cells) for _ in range(3))
        left[can_read] = -back
        left[holes] += slope  # a cell may be both: what is hidden in training is no reading, but need not be
        right[can_read] = solution
        of_noise[can_read] = -back * solution
        return left[:, None] * right, of_noise, back, None, None


def _solved(factor: Tensor, right: Tensor) -> Tensor:
    """In the digits of the factor, given back in those of the right side."""
    return torch.cholesky_solve(right[:, None].to(factor.dtype), factor).squeeze(-1).to(right.dtype)
