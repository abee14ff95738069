"""Progress on the terminal: of a training (epoch, loss, validation error), and of other work that takes long."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from torch import Tensor

from casper.config import TrainingConfig

_Item = TypeVar("_Item")
Tell = Callable[[str, float], None]
"""Is called now and then with what goes on and the share of it that is done."""

_DRAW_EVERY = 25


class TrainingProgress:
    """Draws on standard error, or nothing at all. Trainings side by side in threads share one display, a line each.

    progress: whether it is drawn, or what the line begins with, to tell trainings apart; or who is told instead.
    """

    def __init__(self, training: TrainingConfig, progress: bool | str | Tell) -> None:
        self._training = training
        self._tell = progress if callable(progress) else None
        self._shown = bool(progress) and self._tell is None
        self._label = progress if isinstance(progress, str) else ""
        self._bar: Progress | None = None
        self._task, self._steps, self._best, self._told = TaskID(0), 0, "-", "training"

    def __enter__(self) -> Self:
        if self._shown:
            self._bar = _display.open()
            self._task = self._bar.add_task(
                f"{self._label} " if self._label else "",
                total=self._training.steps,
                epoch="",
                loss="-",
                mae="-",
                best="-",
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            _display.close(self._task, f"{self._label}: best {self._best}")

    def begin_epoch(self, epoch: int) -> None:
        self._steps = epoch * self._training.batches_per_epoch
        self._update(completed=self._steps, epoch=f"{epoch + 1}/{self._training.epochs}")

    def step(self, loss: Tensor) -> None:
        """On a GPU the steps run ahead of the host, which would have to wait to read a loss: it is shown later."""
        self._steps += 1
        if self._tell is not None and self._steps % _DRAW_EVERY == 0:
            self._tell(self._told, self._steps / self._training.steps)
        if self._shown and self._steps % _DRAW_EVERY == 0:
            self._update(completed=self._steps)
            if not loss.is_cuda:
                self._update(loss=f"{loss.item():.4f}")

    def end_epoch(self, loss: float, mae: float, best: float) -> None:
        self._best = _short(best)
        self._told = f"training, error {_short(mae)} (best {self._best})"
        self._update(completed=self._steps, loss=f"{loss:.4f}", mae=_short(mae), best=self._best)
        if self._bar is not None and not self._bar.console.is_terminal:  # a file shows no bar: a line for every epoch
            epoch = self._steps // self._training.batches_per_epoch
            told = f"epoch {epoch}/{self._training.epochs}: loss {loss:.4f}, error {_short(mae)} (best {self._best})"
            self._bar.console.print(f"{self._label} {told}".strip(), highlight=False, markup=False)

    def _update(self, **told: Any) -> None:
        if self._bar is not None:
            self._bar.update(self._task, **told)


class _Display:
    """The one display of all trainings of this process; on the terminal for as long as any of them runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bar: Progress | None = None
        self._users = 0

    def open(self) -> Progress:
        with self._lock:
            self._users += 1
            if self._bar is None:
                self._bar = Progress(
                    TextColumn("{task.description}epoch {task.fields[epoch]}"),
                    BarColumn(bar_width=16),
                    TextColumn("loss {task.fields[loss]}, error {task.fields[mae]} (best {task.fields[best]})"),
                    TimeRemainingColumn(),
                    TextColumn("left"),
                    console=Console(stderr=True),
                )
                self._bar.start()
            return self._bar

    def close(self, task: TaskID, last_words: str) -> None:
        """The last training's line stays; the others leave a few words above the lines that go on."""
        with self._lock:
            assert self._bar is not None
            self._users -= 1
            if self._users:
                self._bar.remove_task(task)
                self._bar.console.print(last_words, highlight=False, markup=False)
            else:
                self._bar.stop()
                self._bar = None


_display = _Display()


def progress_over(items: Sequence[_Item], what: str, progress: bool | str | Tell) -> Iterator[_Item]:
    """The items, with a bar on the terminal for as long as they take; or who is told instead, is told."""
    if callable(progress):
        for number, item in enumerate(items):
            progress(what, number / len(items))
            yield item
    else:
        with _bar(shown=bool(progress)) as bar:
            yield from bar.track(items, description=what)


@contextlib.contextmanager
def told_by_many(*, shown: bool) -> Generator[Callable[[str, str, float], None]]:
    """A bar for each of several works that go on at the same time: who tells, what goes on, which share is done."""
    tasks: dict[str, TaskID] = {}
    with _bar(shown=shown) as bar:

        def show(name: str, what: str, share: float) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=1.0)
            bar.update(tasks[name], description=f"{name}: {what}", completed=share, visible=share < 1)

        yield show


@contextlib.contextmanager
def told_progress(name: str, *, shown: bool) -> Generator[Tell]:
    """A bar for work that tells now and then what goes on and which share of it is done."""
    with _bar(shown=shown) as bar:
        task = bar.add_task(name, total=1.0)
        yield lambda what, share: bar.update(task, description=f"{name}: {what}", completed=share)


def _bar(*, shown: bool) -> Progress:
    """Gone when the work is done; only where somebody watches."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), TextColumn("left"))
    return Progress(*columns, console=console, disable=not (shown and console.is_terminal), transient=True)


def _short(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "-"
