"""What a training keeps: the average of its weights, the best ones so far, the history, and all of it on disk."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import math
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from casper.config import Kept
from casper.errors import InputError, MissingPackageError
from casper.files import atomic
from casper.network.learning import WindowNetwork
from casper.training.checkpoint import (
    load_optimizer,
    optimizer_tensors,
    read_tensors,
    under_prefix,
    with_prefix,
    write_tensors,
)

CHECKPOINT = "checkpoint.safetensors"
METRICS = "metrics.csv"


@dataclass(frozen=True)
class EpochRecord:
    epoch: int
    train_loss: float
    """Mean absolute error on hidden training cells (scaled) plus the penalty."""
    validation_mae: float
    """In the table's units."""
    rho_mean: float
    learning_rate: float
    seconds: float
    decided: tuple[float, ...] = ()
    """Of each layer, the share of gates with rho below 0.1 or above 0.9; none without gates."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EpochRecord:
        named = dict(values)
        decided = tuple(named.pop("decided", ()))
        return cls(**named, decided=decided)


@dataclass(frozen=True)
class TrainingResult:
    weights: dict[str, Tensor]
    history: tuple[EpochRecord, ...]
    best_epoch: int
    """The one whose weights these are."""

    @property
    def best_mae(self) -> float:
        """The validation error of these weights."""
        return self.history[self.best_epoch].validation_mae


def read_result(folder: Path) -> TrainingResult:
    tensors, state = read_tensors(folder / CHECKPOINT)
    history = tuple(EpochRecord.from_dict(record) for record in state["history"])
    return TrainingResult(under_prefix("best", tensors), history, state["best_epoch"])


def refuse_other_training(folder: Path, identity: Mapping[str, Any]) -> None:
    """A checkpoint is continued only by the training that left it; the message names the first difference."""
    path = folder / CHECKPOINT
    if not path.exists():
        return
    _, state = read_tensors(path)
    if state.get("identity") != identity:
        raise InputError(
            f"{path} belongs to a training with {_first_difference(state.get('identity'), identity)}; "
            "resume with the same table, settings and seed, or start anew in another folder"
        )


class Keeper:
    """`identity` (JSON) says which training this is; `averaging` is the decay of the running average, 0 for none;
    `kept`: which epoch's weights are."""

    def __init__(
        self,
        folder: Path,
        network: WindowNetwork,
        optimizer: torch.optim.Optimizer,
        *,
        identity: Mapping[str, Any],
        averaging: float,
        kept: Kept,
        tensorboard: bool,
    ) -> None:
        self._folder, self._network, self._optimizer = folder, network, optimizer
        self._identity, self._averaging, self._kept, self._tensorboard = identity, averaging, kept, tensorboard
        self._names = [name for name, _ in network.named_parameters()]
        self._parameters = [parameter.detach() for parameter in network.parameters()]
        self._averaged = [parameter.clone() for parameter in self._parameters]
        self._best = self._copy_of_weights()
        self.history: list[EpochRecord] = []
        self.best_epoch = 0

    @property
    def best_mae(self) -> float:
        return self.history[self.best_epoch].validation_mae if self.history else math.inf

    @property
    def epochs_without_progress(self) -> int:
        """If the last weights are kept, every epoch is progress."""
        return len(self.history) - 1 - self.best_epoch if self.history else 0

    def average(self, step: int) -> None:
        if self._averaging > 0:
            # Early on the average forgets quickly, or it would remember the random start.
            decay = min(self._averaging, (1 + step) / (10 + step))
            get_ema_multi_avg_fn(decay)(self._averaged, self._parameters, step)

    @contextlib.contextmanager
    def averaged_weights(self) -> Generator[WindowNetwork]:
        """The network with the weights to be judged."""
        if self._averaging == 0:
            yield self._network
            return
        current = [parameter.clone() for parameter in self._parameters]
        _copy(self._averaged, self._parameters)
        try:
            yield self._network
        finally:
            _copy(current, self._parameters)

    def add(self, record: EpochRecord) -> None:
        self.history.append(record)
        if self._kept == "last" or record.validation_mae < self.best_mae or len(self.history) == 1:
            self.best_epoch = record.epoch
            with self.averaged_weights():
                self._best = self._copy_of_weights()

    def save(self) -> None:
        """The checkpoint comes last: what was written before it is written again if the training is killed here."""
        self._write_metrics()
        if self._tensorboard:
            _write_tensorboard(self._folder, self.history[-1])
        tensors = {
            **with_prefix("model", self._network.state_dict()),
            **with_prefix("average", dict(zip(self._names, self._averaged, strict=True))),
            **with_prefix("best", self._best),
            **with_prefix("optimizer", optimizer_tensors(self._optimizer, self._names)),
        }
        state = {
            "identity": self._identity,
            "history": [asdict(record) for record in self.history],
            "best_epoch": self.best_epoch,
        }
        write_tensors(self._folder / CHECKPOINT, tensors, state=state)

    def load_if_present(self) -> None:
        path = self._folder / CHECKPOINT
        if not path.exists():
            return
        tensors, state = read_tensors(path)
        self._network.load_state_dict(under_prefix("model", tensors))
        load_optimizer(self._optimizer, self._names, under_prefix("optimizer", tensors))
        averaged = under_prefix("average", tensors)
        _copy([averaged[name] for name in self._names], self._averaged)
        self._best = under_prefix("best", tensors)
        self.history = [EpochRecord.from_dict(record) for record in state["history"]]
        self.best_epoch = state["best_epoch"]

    def _copy_of_weights(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self._network.state_dict().items()}

    def _write_metrics(self) -> None:
        with atomic(self._folder / METRICS) as temporary, temporary.open("w", newline="") as opened:
            writer = csv.DictWriter(opened, fieldnames=list(EpochRecord.__dataclass_fields__))
            writer.writeheader()
            for record in self.history:
                writer.writerow({**asdict(record), "decided": " ".join(f"{share:.4f}" for share in record.decided)})


def _copy(source: list[Tensor], target: list[Tensor]) -> None:
    for one, other in zip(source, target, strict=True):
        other.copy_(one)


def _first_difference(theirs: Any, ours: Any, name: str = "settings") -> str:
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        for key in ours:
            if theirs.get(key) != ours[key]:
                return _first_difference(theirs.get(key), ours[key], key)
    if name == "data" or isinstance(theirs, Mapping) or isinstance(ours, Mapping):
        return "another table" if name == "data" else f"other {name}"
    return f"{name} {theirs!r} instead of {ours!r}"


def check_tensorboard() -> None:
    """Refuse before any work is done, not after the first epoch."""
    if importlib.util.find_spec("tensorboard") is None:
        raise MissingPackageError("tensorboard", extra="tensorboard", purpose="writing TensorBoard logs")


def _write_tensorboard(folder: Path, record: EpochRecord) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder / "tensorboard")) as writer:
        for name in ("train_loss", "validation_mae", "rho_mean", "learning_rate"):
            writer.add_scalar(name, getattr(record, name), record.epoch)
        for layer, share in enumerate(record.decided, start=1):
            writer.add_scalar(f"decided/layer_{layer}", share, record.epoch)
