"""One step of the training: draw windows, hide cells, predict, learn. On a GPU it is recorded once and then replayed.

Everything happens on the device, the drawing of windows and masks too, so that nothing waits for the host within an
epoch; and a recorded step (a CUDA graph) costs one launch instead of hundreds. What changes from step to step is the
generator's seed, the learning rate and the temperature: numbers on the device that are set before each replay.

Several trainings may run side by side on one GPU, each in a thread and on a stream of its own.
"""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from casper.config import TrainingConfig
from casper.network.learning import Example, WindowNetwork, mean_of
from casper.network.noise import Noise
from casper.training.masks import TrainingMasks

if TYPE_CHECKING:
    from lightning.fabric import Fabric

    from casper.train import TrainingData

# Steps before the recording: libraries choose their algorithms and Triton compiles its kernels in the first ones.
_WARM_UP = 3
# Trainings side by side take turns in these first steps: they share the compilers.
_first_steps = threading.Lock()
# SPIN's schedule of the learning rate, with its restarts: see `TrainingConfig.schedule`.
_EPOCHS_IN_CYCLE, _LESS_AT_THE_END, _LOWEST = 100, 0.67, 0.1


class TrainingStep:
    """Call it with the step's number. losses, optimizer: as Fabric set them up. network: the one that learns.

    loss: of the last step; loss_sum, rho_sum: added up until they are set to zero; all () on the device.
    """

    def __init__(
        self,
        fabric: Fabric,
        losses: Any,
        network: WindowNetwork,
        optimizer: Any,
        data: TrainingData,
        training: TrainingConfig,
        *,
        patches: Tensor | None,
        window: int,
        seed: int,
    ) -> None:
        self._fabric, self._losses, self._network, self._optimizer = fabric, losses, network, optimizer
        self._data, self._training, self._patches = data, training, patches
        self._window, self._seed = window, seed
        self._masks = TrainingMasks(training, gaps=data.gaps, gap_starts=data.gap_starts)
        mine = training.batch_size // fabric.world_size
        self._share = slice(fabric.global_rank * mine, (fabric.global_rank + 1) * mine)
        self._generator = torch.Generator(fabric.device)
        self._temperature = torch.ones((), device=fabric.device)
        self.loss, self.loss_sum, self.rho_sum = (torch.zeros((), device=fabric.device) for _ in range(3))
        # Several processes exchange gradients, which not every way of connecting them can record.
        self._recordable = fabric.device.type == "cuda" and fabric.world_size == 1
        self._recording: torch.cuda.CUDAGraph | None = None
        self._warm_up = torch.cuda.Stream() if self._recordable else None
        self._steps_done = 0

    def __call__(self, step: int) -> None:
        self._prepare(step)
        if self._warm_up is None:
            self._learn()
        elif self._steps_done < _WARM_UP:
            self._warm_up.wait_stream(torch.cuda.current_stream())
            with _first_steps, torch.cuda.stream(self._warm_up):
                self._learn()
            torch.cuda.current_stream().wait_stream(self._warm_up)
        else:
            if self._recording is None:
                with _first_steps:
                    self._recording = self._record(self._warm_up)
                self._prepare(step)
            self._recording.replay()
        self._steps_done += 1

    def _prepare(self, step: int) -> None:
        seed_for_step(self._generator, self._seed, step)
        self._temperature.fill_(_temperature(self._training, step))
        self._network.progressed(step / self._training.steps)
        for group in self._optimizer.param_groups:
            rate = learning_rate(self._training, step)
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def _record(self, stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
        recording = torch.cuda.CUDAGraph()
        recording.register_generator_state(self._generator)
        self._optimizer.zero_grad(set_to_none=True)
        # What other threads ask of the GPU meanwhile does not disturb the recording of this one.
        with torch.cuda.graph(recording, stream=stream, capture_error_mode="thread_local"):
            self._learn()
        return recording

    def _learn(self) -> None:
        training, data, generator = self._training, self._data, self._generator
        reach = self._network.reach_in_training
        whole = draw_example(
            data, self._masks, self._patches, training.batch_size, self._window, generator, reach=reach
        )
        # The whole batch's count normalises every process's loss, so that their gradients add up to one's.
        example = whole.share(self._share, divisor=whole.divisor / self._fabric.world_size)
        noise = Noise(generator, batch=training.batch_size, share=self._share)
        loss, rho_mean = self._losses(example, noise, self._temperature)
        self._optimizer.zero_grad(set_to_none=True)
        self._fabric.backward(loss)
        # A check for infinite gradients would wait for the device.
        self._fabric.clip_gradients(self._losses, self._optimizer, max_norm=training.clip, error_if_nonfinite=False)
        self._optimizer.step()
        self.loss.copy_(loss.detach())
        self.loss_sum += loss.detach()
        self.rho_sum += mean_of(rho_mean.detach())


def draw_example(
    data: TrainingData,
    masks: TrainingMasks,
    patches: Tensor | None,
    windows: int,
    length: int,
    generator: torch.Generator,
    *,
    reach: int = 0,
) -> Example:
    """Windows of all sensors, or of one of the patches, and which of their cells are hidden.

    reach: so many steps on either side belong to them.
    """
    starts = _draw(data.train_starts, windows, generator)
    patch = None if patches is None else _draw(patches, 1, generator)[0]
    window = data.series.window(starts, length, patch, reach=reach)
    hidden = masks.draw(window.visible, generator, patch)
    visible = masks.silence(window.visible, hidden, generator)
    wide = window.wide
    if wide is not None:
        wide = replace(wide, visible=masks.prolong(wide.visible, hidden, generator))
    return Example(window.values, visible, hidden, window.clock, hidden.sum().clamp_min(1), patch, wide)


def seed_for_step(generator: torch.Generator, seed: int, step: int) -> None:
    """The same draws for the same step of the same training; the factors spread neighbouring seeds and steps apart."""
    generator.manual_seed((seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) % 2**63)


def learning_rate(training: TrainingConfig, step: int) -> float:
    """Linear warm-up, then a cosine down to zero at the last step, or several: see `TrainingConfig.schedule`."""
    warmup = min(training.warmup_steps, training.steps // 10)
    if step < warmup:
        return training.learning_rate * (step + 1) / warmup
    done = (step - warmup) / max(1, training.steps - warmup)
    if training.schedule == "cosine":
        return training.learning_rate * _falling(done)
    cycles = max(1, training.epochs // _EPOCHS_IN_CYCLE)
    return training.learning_rate * max(_LOWEST, _falling(cycles * done % 1) * (1 - _LESS_AT_THE_END * done))


def _falling(done: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * done))


def _temperature(training: TrainingConfig, step: int) -> float:
    return training.temperature * (training.temperature_end / training.temperature) ** (step / training.steps)


def _draw(starts: Tensor, count: int, generator: torch.Generator) -> Tensor:
    return starts[torch.randint(len(starts), (count,), generator=generator, device=starts.device)]
