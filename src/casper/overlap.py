"""Windows that overlap: which ones to look at, and how their estimates become one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from casper.windows import spread_starts

Estimates = Iterable[tuple[NDArray[np.int64], Tensor]]
"""Batches of starts (B,), rising, and estimates (B, N, window)."""


def starts_with_holes(observed: NDArray[np.bool_], window: int, wanted: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Windows of a table (T, N) that overlap by half; not those that have nothing to fill or no wanted step (T,)."""
    starts = spread_starts(len(observed), window, max(1, window // 2))
    incomplete = np.asarray(~observed.all(axis=1))
    starts = starts[_count(incomplete, starts, window) > 0]
    return starts[_count(wanted, starts, window) > 0]


def _count(steps: NDArray[np.bool_], starts: NDArray[np.int64], window: int) -> NDArray[np.int64]:
    """How many of the steps (T,) lie in each window."""
    before = np.concatenate(([0], np.cumsum(steps)))
    return before[starts + window] - before[starts]


def merged(estimates: Estimates, shape: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(T, N), and the steps (T,) of which there is an estimate.

    Near a window's middle a model knows most, so the middle counts most.
    """
    total, weights = np.zeros(shape), np.zeros(shape[0])
    for batch, estimate in estimates:
        window = estimate.shape[2]
        weight = 1.0 + np.minimum(np.arange(window), np.arange(window)[::-1])
        rows = slice(int(batch[0]), int(batch[-1]) + window)
        together = torch.zeros(rows.stop - rows.start, estimate.shape[1], device=estimate.device)
        weighted = (estimate.float() * torch.as_tensor(weight, dtype=torch.float32, device=estimate.device)).mT
        for apart in _groups_apart(batch, window):
            steps = torch.as_tensor(batch[apart, None] - batch[0] + np.arange(window), device=estimate.device)
            together[steps] += weighted[torch.as_tensor(apart, device=estimate.device)]
        total[rows] += together.cpu().numpy()
        places = (batch[:, None] + np.arange(window)).ravel()
        weights += np.bincount(places, np.tile(weight, len(batch)), minlength=len(weights))
    return total / np.maximum(weights, 1.0)[:, None], weights > 0


def _groups_apart(starts: NDArray[np.int64], window: int) -> list[NDArray[np.int64]]:
    """Places of the starts, which rise, in groups whose windows do not overlap: sums over a group need no order."""
    groups: list[list[int]] = []
    for place, start in enumerate(starts):
        for group in groups:
            if starts[group[-1]] + window <= start:
                group.append(place)
                break
        else:
            groups.append([place])
    return [np.asarray(group) for group in groups]


def inner_starts(starts: NDArray[np.int64], window: int, length: int) -> NDArray[np.int64]:
    """Shorter windows that cover the ones that begin at `starts`, several times over."""
    return np.unique(starts[:, None] + _offsets(window, length))


def averaged(
    estimates: Estimates, needed: NDArray[np.int64], starts: NDArray[np.int64], *, window: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Batches of starts (B,) and (B, N, window): the mean of the shorter windows within each, see `inner_starts`."""
    kept: NDArray[np.float32] | None = None
    done = 0
    for batch, estimate in estimates:
        if kept is None:
            kept = np.empty((len(needed), *estimate.shape[1:]), dtype=np.float32)
        kept[done : done + len(batch)] = estimate.float().cpu().numpy()
        done += len(batch)
    assert kept is not None, "a benchmark has test windows"
    sensors, length = kept.shape[1:]
    offsets = _offsets(window, length)
    weight = np.zeros(window)
    for offset in offsets:
        weight[offset : offset + length] += 1.0
    for some in np.array_split(starts, max(1, len(starts) // 256)):
        total = np.zeros((len(some), sensors, window))
        for offset in offsets:
            total[:, :, offset : offset + length] += kept[np.searchsorted(needed, some + offset)]
        yield some, total / weight


def _offsets(window: int, length: int) -> NDArray[np.int64]:
    return spread_starts(window, length, max(1, length // 4))
