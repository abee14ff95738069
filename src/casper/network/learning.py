"""What the training loop and the imputers ask of a network: CASPER and every baseline that learns fill windows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from casper.config import TrainingConfig
from casper.network.noise import Noise
from casper.windows import Window


class Example(NamedTuple):
    """The windows of a training step. Tensors are (B, N, T) but for the clock, (B, T, F).

    values: scaled, 0 where not visible. hidden: the visible cells that are to be restored. divisor: (), what sums
    over hidden cells are divided by, the same for every process. sensors: their numbers, if they are not all.
    wide: the windows with what lies on either side of them, for networks that look there.
    """

    values: Tensor
    visible: Tensor
    hidden: Tensor
    clock: Tensor
    divisor: Tensor
    sensors: Tensor | None = None
    wide: Window | None = None

    @property
    def seen(self) -> Tensor:
        """The cells that the network may read."""
        return self.visible & ~self.hidden

    @property
    def readable(self) -> Tensor:
        """Their values, 0 elsewhere."""
        return self.values * self.seen

    def share(self, share: slice, *, divisor: Tensor) -> Example:
        """One process's part of the windows."""
        values, visible, hidden, clock = (part[share] for part in self[:4])
        wide = None if self.wide is None else self.wide.map(lambda part: part[share])
        return Example(values, visible, hidden, clock, divisor, self.sensors, wide)

    def mean_absolute_error(self, estimate: Tensor) -> Tensor:
        """On the hidden cells."""
        return ((estimate - self.values).abs() * self.hidden).sum() / self.divisor


class Outcome(NamedTuple):
    """loss: (); rho_mean: (layers with gates,), the mean gate probability of each."""

    loss: Tensor
    rho_mean: Tensor


class Repeated(nn.Module):
    """A function of tensors that a network calls again and again, such as the step of a recurrence.

    The compiler takes seconds for the function and minutes for a loss in which it is unrolled. It has no weights of
    its own, and what was compiled is neither copied nor saved with the network.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function
        self._compiled: Callable[..., Any] | None = None

    def forward(self, *inputs: Any) -> Any:
        # Only training is compiled: validation has batches of other sizes, and each would be compiled anew.
        compiled = self._compiled if torch.is_grad_enabled() else None
        return (compiled or self._function)(*inputs)

    def compile_for_training(self) -> None:
        self._compiled = torch.compile(self._function, dynamic=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_compiled": None}


class WindowNetwork(nn.Module, ABC):
    """Learns to restore hidden cells of windows, and fills windows."""

    config: Any
    """A NetworkConfig."""

    @abstractmethod
    def loss(self, example: Example, noise: Noise, *, training: TrainingConfig, temperature: Tensor) -> Outcome:
        """Of a training step."""

    @abstractmethod
    def impute(self, values: Tensor, visible: Tensor, clock: Tensor) -> Tensor:
        """values, visible: (B, N, T); clock: (B, T, F) -> an estimate of every cell, (B, N, T). Not random."""

    def quick_impute(self, values: Tensor, visible: Tensor, clock: Tensor) -> Tensor:
        """The same for watching the error after each epoch; cheaper, where `impute` takes long."""
        return self.impute(values, visible, clock)

    @property
    def reach(self) -> int:
        """How many steps on either side of a window it looks at when it fills it, see `Window.wide`."""
        return 0

    @property
    def reach_in_training(self) -> int:
        """The same for the windows that it learns from."""
        return 0

    def impute_window(self, window: Window, *, quick: bool = False) -> Tensor:
        """`impute`, or `quick_impute`, with all that belongs to the window."""
        return (self.quick_impute if quick else self.impute)(*window.alone)

    def compile_repeated(self) -> bool:
        """Have its repeated parts compiled; False if there are none, and the whole loss is what should be compiled."""
        parts = [part for part in self.modules() if isinstance(part, Repeated)]
        for part in parts:
            part.compile_for_training()
        return bool(parts)

    def progressed(self, share: float) -> None:
        """Told before every step which share of the training is done."""

    def decided(self, values: Tensor, visible: Tensor, clock: Tensor) -> Tensor:  # noqa: ARG002
        """Of each layer with gates, the share of them that are clearly shut or open."""
        return values.new_empty(0)


class Losses(nn.Module):
    """The loss of a network as a module, which is what gets wrapped for several devices, and compiled by default."""

    def __init__(self, network: WindowNetwork, training: TrainingConfig) -> None:
        super().__init__()
        self.network, self.settings = network, training

    def forward(self, example: Example, noise: Noise, temperature: Tensor) -> Outcome:
        return self.network.loss(example, noise, training=self.settings, temperature=temperature)


def mean_of(values: Tensor) -> Tensor:
    """The mean, or 0 of nothing."""
    return values.sum() / max(1, values.numel())
