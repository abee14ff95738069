"""What a network drew on, added up over many windows: for every pair of neighbours and every lag, never for all pairs
of sensors and steps at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle
from typing import Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from casper.model import CasperNetwork
from casper.windows import Window

Measure = Literal["weight", "attention", "rho", "influence"]
"""weight: beta * alpha / Z, what messages are really weighted with; attention: alpha alone; rho: the gates; influence:
how much the estimate would change, in deviations, if the pair's gate were shut (of the last layer, to first order)."""

# An edge stands in a window if its gates there are open by more than this, in the mean over its pairs.
_OPEN = 0.5
_LARGEST_PART = 32_000_000
"""Numbers in the largest tensor of a part."""


def parts_of(sensors: int, numbers_each: int, device: torch.device) -> list[Tensor]:
    """The sensors in parts whose details fit into memory; numbers_each: of one sensor."""
    at_once = max(1, _LARGEST_PART // max(1, numbers_each))
    return list(torch.arange(sensors, device=device).split(at_once))


def measured(
    network: CasperNetwork, window: Window, measure: Measure, parts: Sequence[Tensor], layer: int | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """The measure and the gates of every pair, (B, M, T, K, T): layer after layer, part after part of the sensors."""
    cells = (window.values, window.visible, window.clock)
    if measure == "influence":
        for change, seen in network.influence(*cells, sensors=parts):
            yield change.abs(), seen.beta
        return
    for seen in network.inspect(*cells, sensors=parts, layer=layer):
        yield seen.rho if measure == "rho" else getattr(seen, measure).mean(2), seen.beta


class DrawnOn:
    """Means over the windows' missing cells, for every target (N), neighbour (K) and lag (2 T - 1).

    Only cells that the network has to fill count: nothing is ever drawn on to know what is there to be seen. Those
    without a step of that lag within their window are left out of its mean; or with `shares` they count as drawing
    nothing from there, so that what a target draws from all its neighbours at all lags adds up to what it draws.
    """

    def __init__(
        self, sensors: int, neighbours: int, steps: int, device: torch.device, *, shares: bool = False
    ) -> None:
        self._shares = shares
        shape = (sensors, neighbours, 2 * steps - 1)
        self._sums = torch.zeros(shape, dtype=torch.float64, device=device)
        self._standing = torch.zeros(shape, dtype=torch.float64, device=device)
        self._counts = torch.zeros(sensors, 1, shape[2], dtype=torch.float64, device=device)  # of queries
        self._windows = torch.zeros_like(self._counts)  # with such queries
        step = torch.arange(steps, device=device)
        self._lag = (step[:, None] - step[None, :] + steps - 1).flatten()  # of the pair (t, t')

    def add(self, seen: Iterable[tuple[Tensor, Tensor]], parts: Sequence[Tensor], missing: Tensor) -> None:
        """What was measured of one window and its gates, both (1, M, T, K, T): layer after layer, and in each of them
        part after part of the sensors. Only one of them is held at a time. missing: (1, N, T), the cells that count."""
        sums, gates = torch.zeros_like(self._sums), torch.zeros_like(self._sums)
        taken = 0
        for (values, beta), part in zip(seen, cycle(parts), strict=False):
            counted = missing[0, part][:, :, None, None]  # (M, T, 1, 1)
            sums[part] += self._by_lag(values[0] * counted)
            gates[part] += self._by_lag(beta[0] * counted)
            taken += 1
        layers = taken // len(parts)
        steps = missing.shape[2]
        counts = self._by_lag(missing[0, :, :, None, None].double().expand(-1, -1, 1, steps))
        self._sums += sums / layers
        self._standing += gates / layers > _OPEN * counts
        self._counts += counts
        self._windows += counts > 0

    def _by_lag(self, values: Tensor) -> Tensor:
        """(M, T, K, T) -> (M, K, lags): the sum over the pairs of each lag."""
        sensors, steps, neighbours, _ = values.shape
        flat = values.transpose(1, 2).reshape(sensors, neighbours, steps * steps).double()
        return flat.new_zeros(sensors, neighbours, 2 * steps - 1).index_add_(-1, self._lag, flat)

    @property
    def weight(self) -> Tensor:
        """(N, K, lags), the mean over the cells that counted; lags from 1 - T to T - 1."""
        # Every cell has a step of lag 0: its own.
        counts = self._counts[:, :, self._counts.shape[2] // 2, None] if self._shares else self._counts
        return self._sums / counts.clamp_min(1)

    def edges(self, sensors: Sequence[str], index: Tensor, present: Tensor) -> pd.DataFrame:
        """A row per edge and lag that was ever drawn on; index, present: the table of neighbours, (N, K)."""
        weight = self.weight.cpu().numpy()
        stability = (self._standing / self._windows.clamp_min(1)).cpu().numpy()
        target, neighbour, lag = np.nonzero((weight > 0) & present.cpu().numpy()[:, :, None])
        names = np.asarray(sensors, dtype=object)
        return pd.DataFrame(
            {
                "source": names[index.cpu().numpy()[target, neighbour]],
                "target": names[target],
                "lag": lag - (weight.shape[2] // 2),
                "weight": weight[target, neighbour, lag],
                "stability": stability[target, neighbour, lag],
            }
        )
