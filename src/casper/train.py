"""The training loop, on Lightning Fabric: any device, any number of processes, killed and resumed without a trace.

All randomness of a step is drawn from a generator seeded by (seed, step) for the whole batch, so a run that was
killed repeats exactly what an uninterrupted one does, and several processes draw what one process would.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import torch
import torch.utils.deterministic
from torch import Tensor
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

from casper.config import ModelConfig, TrainingConfig
from casper.errors import InputError
from casper.files import plain_words
from casper.kernels import choose_version
from casper.model import CasperNetwork
from casper.network.learning import Losses, WindowNetwork
from casper.progress import Tell, TrainingProgress
from casper.training.keeper import (
    CHECKPOINT,
    METRICS,
    EpochRecord,
    Keeper,
    TrainingResult,
    check_tensorboard,
    read_result,
    refuse_other_training,
)
from casper.training.muon import Muon
from casper.training.patches import sensor_patches
from casper.training.step import TrainingStep
from casper.windows import Series, cut, windows_at_once

if TYPE_CHECKING:
    from lightning.fabric import Fabric

__all__ = [
    "CHECKPOINT",
    "METRICS",
    "Accelerator",
    "EpochRecord",
    "TrainingData",
    "TrainingResult",
    "build_network",
    "check_device",
    "check_devices",
    "fast_but_repeatable",
    "fewer_threads",
    "initialised",
    "read_result",
    "train",
    "uses_cuda",
    "watched_starts",
]

Accelerator = Literal["auto", "cpu", "cuda"]
Network = TypeVar("Network", bound=WindowNetwork)

_FEWEST_VALIDATION_WINDOWS = 16
_WINDOWS_FOR_GATES = 4
_STEPS_WORTH_COMPILING = 20_000
# PyTorch draws initial weights from it and from nothing else; trainings side by side take turns.
_global_generator = threading.Lock()


@dataclass(frozen=True)
class TrainingData:
    """Everything a training needs, as CPU tensors.

    series: what the model may read. truth, scored: (T, N), cells whose error is watched, hidden from `series`.
    gaps: (T, N), real holes; gap_starts: windows whose holes may be copied. deviation: (N,), scaled -> original units.
    """

    series: Series
    truth: Tensor
    scored: Tensor
    train_starts: Tensor
    validation_starts: Tensor
    gaps: Tensor
    gap_starts: Tensor
    deviation: Tensor
    neighbour_index: Tensor
    neighbour_present: Tensor
    fingerprint: str

    def to(self, device: torch.device) -> TrainingData:
        moved = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        series = Series(*(tensor.to(device) for tensor in (self.series.values, self.series.visible, self.series.clock)))
        return replace(self, series=series, **moved)


def initialised(make: Callable[[], Network], *, seed: int) -> Network:
    """A network with initial weights drawn from `seed`, leaving the global generator as it was."""
    with _global_generator, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # the CPU's alone: a GPU's may be part of a recording just now
        return make()


def build_network(config: ModelConfig, data: TrainingData, *, seed: int) -> CasperNetwork:
    return initialised(
        lambda: CasperNetwork(
            config,
            neighbour_index=data.neighbour_index,
            neighbour_present=data.neighbour_present,
            clock=data.series.clock.shape[1],
        ),
        seed=seed,
    )


def train(
    network: WindowNetwork,
    data: TrainingData,
    training: TrainingConfig,
    *,
    seed: int,
    folder: Path,
    accelerator: Accelerator = "auto",
    devices: int = 1,
    resume: bool = False,
    progress: bool | str | Tell = False,
    tensorboard: bool = False,
) -> TrainingResult:
    """Train, leaving a checkpoint and metrics.csv in `folder` after every epoch; the best weights come back.

    progress: see `TrainingProgress`.
    """
    check_devices(training, accelerator, devices)
    if tensorboard:
        check_tensorboard()
    run = _Run(network, data, training, seed, folder, progress, tensorboard)
    if not resume and (folder / CHECKPOINT).exists():
        raise InputError(f"{folder} holds a training already; continue it with --resume (resume=True) or go elsewhere")
    refuse_other_training(folder, run.identity)
    with plain_words(folder):
        folder.mkdir(parents=True, exist_ok=True)
    from lightning.fabric import Fabric  # as slow to import as PyTorch, and only training needs it

    for speaker in ("lightning.fabric", "lightning.pytorch"):  # whichever was imported last speaks for both
        logging.getLogger(speaker).setLevel(logging.WARNING)  # no advice about tensor cores, please
    fabric = Fabric(
        accelerator="gpu" if uses_cuda(accelerator) else "cpu",
        devices=devices,
        strategy="ddp_spawn" if devices > 1 else "auto",
        precision=training.precision if uses_cuda(accelerator) else "32-true",
    )
    if devices > 1:
        with fewer_threads(devices), _own_errors():
            fabric.launch(partial(_loop, run=run))
    else:
        _loop(fabric, run)
    return read_result(folder)


def check_devices(training: TrainingConfig, accelerator: Accelerator, devices: int) -> None:
    """Refuse what this machine does not have, and a batch that its devices cannot share."""
    check_device(accelerator, devices)
    if training.batch_size % devices:
        raise InputError(
            f"a batch of {training.batch_size} windows cannot be split evenly over {devices} devices; change batch_size"
        )


def check_device(accelerator: Accelerator, devices: int) -> None:
    """Refuse what this machine does not have, before any work is done."""
    if devices < 1:
        raise InputError(f"devices must be at least 1, not {devices}")
    if accelerator == "cuda" and not torch.cuda.is_available():
        raise InputError("no GPU was found on this machine; use --device cpu, or leave the device to be chosen")
    if uses_cuda(accelerator) and devices > torch.cuda.device_count():
        raise InputError(f"{devices} GPUs were asked for, this machine has {torch.cuda.device_count()}")


def uses_cuda(accelerator: Accelerator) -> bool:
    return accelerator == "cuda" or (accelerator == "auto" and torch.cuda.is_available())


@contextlib.contextmanager
def _own_errors() -> Generator[None]:
    """A child process hands its errors over as text; what is meant for the user becomes an InputError again."""
    try:
        yield
    except ProcessRaisedException as error:
        _, found, message = str(error).rpartition(f"{InputError.__module__}.{InputError.__name__}: ")
        if not found:
            raise
        raise InputError(message.strip()) from error
    except ProcessExitedException as error:
        raise InputError(
            "a process of the training ended at once; in a script, more than one device needs the code that starts it "
            "to stand below: if __name__ == '__main__':"
        ) from error


@contextlib.contextmanager
def fewer_threads(processes: int) -> Generator[None]:
    """Child processes inherit the setting: the machine's cores are shared out, not fought over."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(max(1, torch.get_num_threads() // processes))
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


@contextlib.contextmanager
def fast_but_repeatable(device: torch.device) -> Generator[None]:
    """On a GPU, sums whose order would change from run to run are done in a fixed order; a CPU does so anyway.

    Matrix products may round their factors to TF32: far less than the noise of a step.
    """
    if device.type != "cuda":
        yield
        return
    # Without a fixed workspace cuBLAS may choose another order; it is read when the library is first used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    settings: Any = torch.utils.deterministic
    filled, products = settings.fill_uninitialized_memory, torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    torch.use_deterministic_algorithms(True)
    settings.fill_uninitialized_memory = False  # it is written before it is read, and filling it takes time
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.set_float32_matmul_precision(products)
        settings.fill_uninitialized_memory = filled


@dataclass(frozen=True)
class _Run:
    network: WindowNetwork
    data: TrainingData
    training: TrainingConfig
    seed: int
    folder: Path
    progress: bool | str | Tell
    tensorboard: bool

    @property
    def identity(self) -> dict[str, Any]:
        """What must be the same for a checkpoint to be continued (the length of the training fixes its schedule)."""
        return {
            "model": self.network.config.to_dict(),
            "training": self.training.to_dict(),
            "seed": self.seed,
            "data": self.data.fingerprint,
        }


def _loop(fabric: Fabric, run: _Run) -> None:
    """One process of the training. Reads top to bottom; everything it calls is below."""
    training = run.training
    data = run.data.to(fabric.device)
    # A copy: the caller's network stays as it was, and spawned processes would otherwise share its memory.
    # It shares its parameters with the wrapped one and is what gets averaged, validated and saved.
    network = copy.deepcopy(run.network).to(fabric.device)
    optimizer = _optimizer(network, training, fabric.device)
    compiled = _compiling_pays(training, fabric) if training.compiled is None else training.compiled
    losses = Losses(network, training)
    if compiled and not network.compile_repeated():
        losses = cast("Losses", torch.compile(losses, dynamic=False))
    wrapped, wrapped_optimizer = fabric.setup(losses, optimizer)
    keeper = Keeper(
        run.folder,
        network,
        optimizer,
        identity=run.identity,
        averaging=training.weight_averaging,
        kept=training.keep,
        tensorboard=run.tensorboard,
    )
    keeper.load_if_present()
    patches = sensor_patches(data.neighbour_index, data.neighbour_present, training.sensors_per_batch, seed=run.seed)
    learn = TrainingStep(
        fabric,
        wrapped,
        network,
        wrapped_optimizer,
        data,
        training,
        patches=None if patches is None else patches.to(fabric.device),
        window=run.network.config.window,
        seed=run.seed,
    )

    shown = TrainingProgress(training, run.progress if fabric.is_global_zero else False)
    with fast_but_repeatable(fabric.device), shown:
        for epoch in range(len(keeper.history), training.epochs):
            if keeper.epochs_without_progress >= training.patience:
                break
            begun = time.perf_counter()
            shown.begin_epoch(epoch)
            learn.loss_sum.zero_()
            learn.rho_sum.zero_()
            for batch in range(training.batches_per_epoch):
                step = epoch * training.batches_per_epoch + batch
                learn(step)
                keeper.average(step)
                shown.step(learn.loss)

            record = EpochRecord(
                epoch=epoch,
                train_loss=_mean_over_processes(fabric, learn.loss_sum) / training.batches_per_epoch,
                validation_mae=_validate(fabric, keeper, data, training),
                rho_mean=_mean_over_processes(fabric, learn.rho_sum) / training.batches_per_epoch,
                decided=_decided(keeper, data, training),
                learning_rate=float(optimizer.param_groups[0]["lr"]),
                seconds=time.perf_counter() - begun,
            )
            keeper.add(record)
            if fabric.is_global_zero:
                keeper.save()
            fabric.barrier()
            shown.end_epoch(record.train_loss, record.validation_mae, keeper.best_mae)


def _compiling_pays(training: TrainingConfig, fabric: Fabric) -> bool:
    """The compiler takes half a minute and saves up to a third of every step. The CPU's steps have less to save."""
    on_one_gpu = fabric.device.type == "cuda" and fabric.world_size == 1
    return on_one_gpu and choose_version(fabric.device) == "triton" and training.steps >= _STEPS_WORTH_COMPILING


def _optimizer(network: WindowNetwork, training: TrainingConfig, device: torch.device) -> torch.optim.Optimizer:
    """On a GPU the learning rate is a number on the device, so that a recorded step can be told another one."""
    on_gpu = device.type == "cuda"
    rate = torch.tensor(training.learning_rate, device=device) if on_gpu else training.learning_rate
    if training.optimizer == "muon":
        return Muon(network.named_parameters(), lr=rate, capturable=on_gpu)
    return torch.optim.Adam(
        network.parameters(), lr=rate, weight_decay=training.weight_decay, fused=True, capturable=on_gpu
    )


def _mean_over_processes(fabric: Fabric, value: Tensor) -> float:
    reduced = fabric.all_reduce(value, reduce_op="mean")
    assert isinstance(reduced, Tensor)
    return float(reduced)


@torch.no_grad()
def _validate(fabric: Fabric, keeper: Keeper, data: TrainingData, training: TrainingConfig) -> float:
    """Mean absolute error on the scored cells of the validation windows, in the table's units, averaged weights."""
    sums = torch.zeros(2, dtype=torch.float64, device=fabric.device)
    with keeper.averaged_weights() as network, fabric.autocast():
        length = network.config.window
        at_once = windows_at_once(fabric.device, data.truth.shape[1] * length)
        mine = watched_starts(data, training, length)[fabric.global_rank :: fabric.world_size]
        # With more processes than windows, some have none.
        for starts in mine.split(at_once) if len(mine) else ():
            window = data.series.window(starts, length, reach=network.reach)
            truth, scored = cut(data.truth, starts, length), cut(data.scored, starts, length)
            estimate = network.impute_window(window, quick=True)
            error = (estimate - truth).abs() * data.deviation[:, None]
            sums += torch.stack(((error * scored).sum(), scored.sum())).double()
    sums = fabric.all_reduce(sums, reduce_op="sum")
    assert isinstance(sums, Tensor)
    return float(sums[0] / sums[1].clamp_min(1))


@torch.no_grad()
def _decided(keeper: Keeper, data: TrainingData, training: TrainingConfig) -> tuple[float, ...]:
    """Of each layer, the share of gates that are clearly shut or open, in a few validation windows."""
    with keeper.averaged_weights() as network:
        starts = watched_starts(data, training, network.config.window)
        few = starts[torch.linspace(0, len(starts) - 1, _WINDOWS_FOR_GATES).round().long().to(starts.device)]
        window = data.series.window(few, network.config.window)
        return tuple(network.decided(window.values, window.visible, window.clock).tolist())


def watched_starts(data: TrainingData, training: TrainingConfig, window: int) -> Tensor:
    """The validation windows that are used: evenly spread, and no more cells than asked for."""
    starts = data.validation_starts
    most = max(_FEWEST_VALIDATION_WINDOWS, training.validation_cells // (data.truth.shape[1] * window))
    if len(starts) <= most:
        return starts
    return starts[torch.linspace(0, len(starts) - 1, most, device=starts.device).round().long()]
