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

# A gate counts as open for an edge if it is so for this share of the edge's pairs in a window.
_OPEN = 0.5
_LARGEST_PART = 32_000_000
"""Numbers in the largest tensor of a part."""


def parts_of(sensors: int, numbers_each: int, device: torch.device) -> list[Tensor]:
    """The sensors in parts whose details fit into memory; numbers_each: of one sensor."""
    at_once = max(1, _LARGEST_PART // max(1, numbers_each))
    return list(torch.arange(sensors, device=device).split(at_once))


def measured(
    network: CasperNetwork, window: Window, measure: Measure, parts: Sequence[Tensor], layer: int | None
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
    """Sums over windows and layers, for every target (N), neighbour (K) and lag (2 T - 1)."""

    def __init__(self, sensors: int, neighbours: int, steps: int, device: torch.device) -> None:
        shape = (sensors, neighbours, 2 * steps - 1)
        self._sums = torch.zeros(shape, dtype=torch.float64, device=device)
        self._standing = torch.zeros(shape, dtype=torch.float64, device=device)
        step = torch.arange(steps, device=device)
        self._lag = (step[:, None] - step[None, :] + steps - 1).flatten()  # of the pair (t, t')
        self._pairs = torch.bincount(self._lag, minlength=2 * steps - 1)  # of each lag, in a window
        self._windows = 0

    def add(self, seen: Iterable[tuple[Tensor, Tensor]], parts: Sequence[Tensor]) -> None:
        """What was measured of one window and its gates, both (1, M, T, K, T): layer after layer, and in each of them
        part after part of the sensors. Only one of them is held at a time."""
        measured, gates = torch.zeros_like(self._sums), torch.zeros_like(self._sums)
        count = 0
        for (values, beta), part in zip(seen, cycle(parts), strict=False):
            measured[part] += self._by_lag(values)[0]
            gates[part] += self._by_lag(beta)[0]
            count += 1
        layers = count // len(parts)
        self._sums += measured / layers
        self._standing += gates / layers > _OPEN
        self._windows += 1

    def _by_lag(self, values: Tensor) -> Tensor:
        """(B, M, T, K, T) -> (B, M, K, lags): the mean over the pairs of each lag."""
        batch, sensors, steps, neighbours, _ = values.shape
        flat = values.permute(0, 1, 3, 2, 4).reshape(batch, sensors, neighbours, steps * steps).double()
        sums = flat.new_zeros(batch, sensors, neighbours, len(self._pairs))
        return sums.index_add_(-1, self._lag, flat) / self._pairs

    def edges(self, sensors: Sequence[str], index: Tensor, present: Tensor) -> pd.DataFrame:
        """A row per edge and lag that was ever drawn on; index, present: the table of neighbours, (N, K)."""
        weight = (self._sums / max(1, self._windows)).cpu().numpy()
        stability = (self._standing / max(1, self._windows)).cpu().numpy()
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
