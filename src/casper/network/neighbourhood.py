"""Which sensors each sensor looks at, in the two forms that the attention needs: a padded table and edge lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class EdgeLists(NamedTuple):
    """The edges of a neighbourhood in compressed rows, once by target and once by source; int32, on the device.

    source[start[i] : start[i + 1]] are the sensors that i looks at, in the table's order; target[reverse_start[j] :
    reverse_start[j + 1]] are the sensors that look at j. What lies behind the last row is slack. order, reverse_order:
    the sensors by falling number of edges, so that long work can begin first.
    """

    start: Tensor
    source: Tensor
    order: Tensor
    reverse_start: Tensor
    target: Tensor
    reverse_order: Tensor

    @classmethod
    def of(cls, index: Tensor, present: Tensor) -> EdgeLists:
        """index, present: (N, K). Nothing waits for the device."""
        sensors, slots = index.shape
        looked_at = torch.where(present, index, sensors).flatten()  # absent ones sort behind everybody
        looking = torch.arange(sensors, device=index.device).repeat_interleave(slots, output_size=sensors * slots)
        by_target = torch.argsort(~present.flatten(), stable=True)
        start = torch.cat((present.new_zeros(1, dtype=torch.int64), present.sum(1).cumsum(0)))
        sources, by_source = torch.sort(looked_at, stable=True)
        reverse_start = torch.searchsorted(sources, torch.arange(sensors + 1, device=index.device))
        return cls(
            *(
                one.to(torch.int32)
                for one in (
                    start,
                    looked_at[by_target],
                    start.diff().argsort(descending=True, stable=True),
                    reverse_start,
                    looking[by_source],
                    reverse_start.diff().argsort(descending=True, stable=True),
                )
            )
        )


@dataclass(frozen=True)
class Neighbourhood:
    """Which sensors each sensor looks at, as a padded table on the device.

    index: (N, K) sensor numbers, strongest first; present: (N, K), False for padding. full: nothing is padding, known
    beforehand so that the common case costs no masks. lists: the same as edge lists, if they are at hand.
    """

    index: Tensor
    present: Tensor
    full: bool = False
    lists: EdgeLists | None = None

    @classmethod
    def alone(cls, sensors: int, device: torch.device) -> Neighbourhood:
        """Every sensor looks at itself and nobody else."""
        everyone = torch.arange(sensors + 1, dtype=torch.int32, device=device)
        each = everyone[:-1]
        lists = EdgeLists(everyone, each, each, everyone, each, each)
        return cls(each[:, None].long(), torch.ones(sensors, 1, dtype=torch.bool, device=device), True, lists)

    def within(self, sensors: Tensor) -> Neighbourhood:
        """The same for some of the sensors, renumbered; neighbours outside of them are no longer present."""
        place = self.index.new_full((self.index.shape[0],), -1)
        place[sensors] = torch.arange(len(sensors), device=sensors.device)
        index = place[self.index[sensors]]
        return Neighbourhood(index.clamp_min(0), self.present[sensors] & (index >= 0))

    def with_lists(self) -> Neighbourhood:
        """The same with its edge lists made, to be used by several layers."""
        return Neighbourhood(self.index, self.present, self.full, self.edges())

    def edges(self) -> EdgeLists:
        return EdgeLists.of(self.index, self.present) if self.lists is None else self.lists

    def gather(self, x: Tensor) -> Tensor:
        """(B, N, T, ...) -> (B, N, K*T, ...): the neighbours' steps, neighbour by neighbour."""
        sensors, count = self.index.shape
        picked = x.index_select(1, self.index.reshape(-1))  # (B, N*K, T, ...)
        return picked.reshape(x.shape[0], sensors, count * x.shape[2], *x.shape[3:])

    def rows(self, sensors: Tensor) -> Neighbourhood:
        """What some of the sensors look at, among all sensors; only for gathering."""
        return Neighbourhood(self.index[sensors], self.present[sensors], self.full)

    def pairs(self, steps: int, *, constrained: bool) -> Tensor | None:
        """(N, 1 or T, K*T): which pairs exist, or None if all do; `constrained` keeps only keys with t' <= t."""
        if self.full and not constrained:
            return None
        sensors, count = self.present.shape
        exists = self.present[:, None, :, None].expand(sensors, 1, count, steps)
        if constrained:
            past = torch.ones(steps, steps, dtype=torch.bool, device=self.present.device).tril()
            exists = exists & past[None, :, None, :]
        return exists.reshape(sensors, -1, count * steps)

    def count(self, steps: int, *, constrained: bool) -> Tensor:
        """(): how many pairs of a query and a key exist in one window."""
        return self.present.sum() * (steps * (steps + 1) // 2 if constrained else steps * steps)
