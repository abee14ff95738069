"""The random numbers of one training step, the same however its batch is split over processes."""

from __future__ import annotations

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

    def logistic(self, *shape: int) -> Tensor:
        """The difference of two Gumbel draws, (share of the batch, *shape)."""
        return torch.logit(self.uniform(*shape), eps=1e-6)

    def dropout(self, x: Tensor, share: float) -> Tensor:
        if not self.active or share == 0.0:
            return x
        return x * (self.uniform(*x.shape[1:]) >= share) / (1.0 - share)

    def pick(self, count: int, wanted: int) -> Tensor:
        """`wanted` numbers below `count`, drawn with replacement; the same on every process."""
        assert self._generator is not None, "silent noise cannot be drawn from"
        return torch.randint(count, (wanted,), generator=self._generator, device=self._generator.device)
