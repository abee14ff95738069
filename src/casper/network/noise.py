"""The random numbers of one training step, the same however its batch is split over processes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor


class Noise:
    """Draws for the whole batch and hands out this process's share of it.

    Two processes with four windows each therefore see the same gates and dropout as one process with eight. Only keys
    are drawn from the generator, all of them at once; every number is then a hash of a key and of its place, which
    PyTorch's compiler can build into whatever uses the number.
    """

    def __init__(self, generator: torch.Generator | None, *, batch: int, share: slice) -> None:
        first, last, _ = share.indices(batch)
        self._first_window, self._windows, self._used = first, last - first, 0
        self._keys = None
        if generator is not None:
            self._keys = torch.randint(2**32, (_MOST_DRAWS, 2), generator=generator, device=generator.device)

    @classmethod
    def silent(cls) -> Self:
        """No randomness: gates are deterministic, dropout does nothing."""
        return cls(None, batch=0, share=slice(0))

    @property
    def active(self) -> bool:
        return self._keys is not None

    def uniform(self, *shape: int) -> Tensor:
        """Numbers in [0, 1), (share of the batch, *shape)."""
        size = math.prod(shape)
        first = self._first_window * size
        return self._hashed(first, first + self._windows * size).reshape(self._windows, *shape)

    def of_pairs(self) -> PairNoise:
        """Draws for all pairs of one attention layer; the same on every process."""
        return PairNoise(self._next_key(), first_window=self._first_window)

    def dropout(self, x: Tensor, share: float) -> Tensor:
        if not self.active or share == 0.0:
            return x
        return x * (self.uniform(*x.shape[1:]) >= share) / (1.0 - share)

    def pick(self, count: int, wanted: int) -> Tensor:
        """`wanted` numbers below `count`, drawn with replacement; the same on every process."""
        return (self._hashed(0, wanted).double() * count).long()

    def _next_key(self) -> Tensor:
        assert self._keys is not None, "silent noise cannot be drawn from"
        self._used += 1
        return self._keys[self._used - 1]

    def _hashed(self, first: int, last: int) -> Tensor:
        key = self._next_key()
        places, key = torch.arange(first, last, dtype=torch.int32, device=key.device), low_bits(key)
        return shifted(mix(mix(places ^ key[0]) ^ key[1]), 8).to(torch.float32) * 2.0**-24


# More than the deepest network draws in one step.
_MOST_DRAWS = 1024


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
        key = low_bits(self.key)
        rows = mix(mix(low_bits(rows) ^ key[0]) ^ key[1])  # (B, N, T)
        columns = low_bits((index[:, :, None] * steps + step) * COLUMN_STEP).flatten(1)  # (N, K*T)
        # 24 bits: with fewer, some numbers would be 1 and their draws infinite.
        wide = torch.promote_types(dtype, torch.float32)
        uniform = (shifted(mix(rows[..., None] ^ columns[:, None]), 9).to(wide) + 0.5) * 2.0**-23
        return (uniform.log() - (1.0 - uniform).log()).to(dtype)


COLUMN_STEP = 0x9E3779B1
MIX = (16, 0x7FEB352D, 15, 0x846CA68B, 16)
"""Shifts and factors of `mix`: a 32-bit hash in which every input bit moves every output bit (C. Wellons, 2018)."""
# PyTorch has no arithmetic of unsigned numbers. Signed ones have the same bits, and products wrap round alike.
_FACTORS = tuple(factor - (factor >> 31 << 32) for factor in (MIX[1], MIX[3]))


def mix(x: Tensor) -> Tensor:
    """x: int32, whose bits count. Half the size of int64, which makes up for most of the time it takes on a CPU."""
    x = (x ^ shifted(x, MIX[0])) * _FACTORS[0]
    x = (x ^ shifted(x, MIX[2])) * _FACTORS[1]
    return x ^ shifted(x, MIX[4])


def shifted(x: Tensor, places: int) -> Tensor:
    """To the right, and zeros move in; `>>` copies the sign."""
    return x >> places & 2 ** (32 - places) - 1


def low_bits(x: Tensor) -> Tensor:
    """The lower 32 bits of int64."""
    return x.to(torch.int32)
