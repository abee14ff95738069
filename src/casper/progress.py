"""The progress bar of a training: epoch, loss, validation error, time left."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from casper.config import TrainingConfig

_Item = TypeVar("_Item")

_DRAW_EVERY = 25


class TrainingProgress:
    """Draws on standard error, or nothing at all."""

    def __init__(self, training: TrainingConfig, *, shown: bool) -> None:
        self._training = training
        self._bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(bar_width=16),
            TextColumn("loss {task.fields[loss]}, error {task.fields[mae]} (best {task.fields[best]})"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=Console(stderr=True),
            disable=not shown,
        )
        self._task = self._bar.add_task("training", total=training.steps, epoch="", loss="-", mae="-", best="-")
        self._steps = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin_epoch(self, epoch: int) -> None:
        self._steps = epoch * self._training.batches_per_epoch
        self._bar.update(self._task, completed=self._steps, epoch=f"{epoch + 1}/{self._training.epochs}")

    def step(self, loss: Tensor) -> None:
        """On a GPU the steps run ahead of the host, which would have to wait to read a loss: it is shown later."""
        self._steps += 1
        if not self._bar.disable and self._steps % _DRAW_EVERY == 0:
            self._bar.update(self._task, completed=self._steps)
            if not loss.is_cuda:
                self._bar.update(self._task, loss=f"{loss.item():.4f}")

    def end_epoch(self, loss: float, mae: float, best: float) -> None:
        self._bar.update(self._task, completed=self._steps, loss=f"{loss:.4f}", mae=_short(mae), best=_short(best))


def progress_over(items: Sequence[_Item], what: str, *, shown: bool) -> Iterator[_Item]:
    """The items, with a bar on the terminal for as long as they take."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn(what),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        disable=not (shown and console.is_terminal),
        transient=True,
    )
    with bar:
        yield from bar.track(items)


def _short(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "-"
