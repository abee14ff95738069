"""The random numbers of one training step, the same however its batch is split over processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor


class Noise:
    """Draws for the whole batch and hands out this process's share of it.

    Two processes with four windows each therefore see the same gates and dropout as one process with eight.
    """

    def __init__(self, generator: torch.Generator | None, *, batch: int, share: slice) -> None:
        self._generator, self._batch, self._share = generator, batch, share

    @classmethod
    def silent(cls) -> Self:
        """No randomness: gates are deterministic, dropout does nothing."""
        return cls(None, batch=0, share=slice(0))

    @property
    def active(self) -> bool:
        return self._generator is not None

    def uniform(self, *shape: int) -> Tensor:
        """Numbers in [0, 1), (share of the batch, *shape)."""
        assert self._generator is not None, "silent noise cannot be drawn from"
        drawn = torch.rand(self._batch, *shape, generator=self._generator, device=self._generator.device)
        return drawn[self._share]

    def of_pairs(self) -> PairNoise:
        """Draws for all pairs of one attention layer, of which only the key is drawn now; the same on every process."""
        assert self._generator is not None, "silent noise cannot be drawn from"
        key = torch.randint(2**32, (2,), generator=self._generator, device=self._generator.device)
        return PairNoise(key, first_window=self._share.start or 0)

    def dropout(self, x: Tensor, share: float) -> Tensor:
        if not self.active or share == 0.0:
            return x
        return x * (self.uniform(*x.shape[1:]) >= share) / (1.0 - share)

    def pick(self, count: int, wanted: int) -> Tensor:
        """`wanted` numbers below `count`, drawn with replacement; the same on every process."""
        assert self._generator is not None, "silent noise cannot be drawn from"
        return torch.randint(count, (wanted,), generator=self._generator, device=self._generator.device)


@dataclass(frozen=True)
class PairNoise:
    """Logistic draws (differences of two Gumbel draws) for all pairs of a query (i, t) and a key (j, t').

    A draw is a function of the key and of the pair's numbers, so that every version of the attention draws the same
    gates, and draws them again in its backward pass instead of storing them:

        row  = ((first_window + window) * N + i) * T + t          column = j * T + t'          all modulo 2^32
        hash = mix(mix(mix(row ^ key[0]) ^ key[1]) ^ (column * COLUMN_STEP))
        u    = (hash >> 9 + 1/2) / 2^23,  in (0, 1) and exact in float32;      draw = log(u) - log(1 - u)

    key: (2,) int64, 32 random bits each. first_window: the place of the first window in the whole batch.
    looking, sensors: the numbers of the sensors that look, (n,), and N, if they are not all of the N.
    """

    key: Tensor
    first_window: int = 0
    looking: Tensor | None = None
    sensors: int | None = None

    def draw(self, index: Tensor, *, batch: int, steps: int, dtype: torch.dtype) -> Tensor:
        """index: (N, K) sensor numbers of the keys -> (B, N, T, K*T)."""
        device = index.device
        sensors = index.shape[0] if self.sensors is None else self.sensors
        looking = torch.arange(sensors, device=device) if self.looking is None else self.looking
        window = torch.arange(self.first_window, self.first_window + batch, device=device)
        step = torch.arange(steps, device=device)
        rows = (window[:, None, None] * sensors + looking[:, None]) * steps + step
        rows = mix(mix((rows & MASK) ^ self.key[0]) ^ self.key[1])  # (B, N, T)
        columns = ((index[:, :, None] * steps + step) * COLUMN_STEP & MASK).flatten(1)  # (N, K*T)
        uniform = ((mix(rows[..., None] ^ columns[:, None]) >> 9).to(dtype) + 0.5) * 2.0**-23
        return uniform.log() - (1.0 - uniform).log()


MASK = 2**32 - 1
COLUMN_STEP = 0x9E3779B1
MIX = (16, 0x7FEB352D, 15, 0x846CA68B, 16)
"""Shifts and factors of `mix`: a 32-bit hash in which every input bit moves every output bit (C. Wellons, 2018)."""


def mix(x: Tensor) -> Tensor:
    """x: int64 holding 32 bits."""
    x = x ^ (x >> MIX[0])
    x = x * MIX[1] & MASK
    x = x ^ (x >> MIX[2])
    x = x * MIX[3] & MASK
    return x ^ (x >> MIX[4])
