"""What every method of causal discovery answers to: one verb, `find`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from casper.config import Configuration
from casper.discovery.recording import Recording
from casper.errors import InputError
from casper.progress import Tell
from casper.train import Accelerator, check_device, uses_cuda

Config = TypeVar("Config", bound=Configuration)


@dataclass(frozen=True)
class Evidence:
    """How surely one variable is a cause of another: the larger, the surer. Self-pairs are in it.

    strength: (N, N), source first. by_lag: (L, N, N), lags 1 to L, for methods that tell lags apart.
    """

    strength: NDArray[np.float64]
    by_lag: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        found = self.strength if self.by_lag is None else self.by_lag
        assert self.strength.ndim == 2
        assert self.strength.shape[0] == self.strength.shape[1]
        assert found.shape[-2:] == self.strength.shape
        assert np.isfinite(self.strength).all()
        assert np.isfinite(found).all(), "a pair without evidence has strength 0"


class Discoverer(ABC, Generic[Config]):
    """A method with its settings. The same seed, settings and device find the same."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line with the paper."""
    meaning: ClassVar[str]
    """What an edge's weight is, for people: "a weight is ..."."""
    defaults: ClassVar[Configuration]

    def __init__(
        self,
        *,
        seed: int = 0,
        device: Accelerator = "auto",
        tell: Tell | None = None,
        **settings: Any,
    ) -> None:
        """tell: called now and then with a word on what goes on and the share that is done."""
        check_device(device, devices=1)
        self.seed, self.device = seed, torch.device("cuda" if uses_cuda(device) else "cpu")
        self.tell = tell
        self.config: Config = self.defaults.replace(**settings)  # type: ignore[assignment]

    @property
    def weights_mean(self) -> str:
        """`meaning`, as it is with the method's settings."""
        return self.meaning

    @abstractmethod
    def find(self, recording: Recording) -> Evidence:
        """Look at a recording. What is not observed is not read."""

    def generator(self) -> torch.Generator:
        """The randomness of this method, on the CPU: draw there and move, so that devices draw the same."""
        return torch.Generator().manual_seed(self.seed)

    def rounds(self, count: int, what: str) -> Iterator[int]:
        """range(count), with progress told."""
        for number in range(count):
            if self.tell is not None and number % max(1, count // 100) == 0:
                self.tell(what, number / count)
            yield number

    def require_steps(self, recording: Recording, fewest: int) -> None:
        if recording.values.shape[1] < fewest:
            raise InputError(
                f"{self.name} needs trajectories of at least {fewest} steps; the longest here has "
                f"{recording.values.shape[1]}"
            )
