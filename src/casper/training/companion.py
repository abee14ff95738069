"""Kriging beside CASPER's network: fitted before it, mixed in after it, as far as the held-back readings say.

On smooth series, next to a reading, the best linear estimate is hard to beat, and a network that was trained for some
minutes does not reach it; far from readings, and where relations are not linear, the network is better. So every
distance to the sensor's nearest reading has a share of its own.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from casper.config import Kept, TrainingConfig
from casper.kriging import KRIGING_TRAINING, KrigingNetwork
from casper.kriging.correction import surroundings
from casper.metrics import window_counts
from casper.model import KRIGING_DISTANCES, CasperNetwork, distance_class
from casper.network.learning import WindowNetwork
from casper.progress import Tell, progress_over
from casper.train import TrainingData, train, watched_starts
from casper.training.masks import TrainingMasks
from casper.training.patches import sensor_patches
from casper.training.step import draw_example, seed_for_step
from casper.windows import cut

# Cells of a class that a share is believed from, and by how much it must lower their error.
_FEWEST_CELLS = 200
_WORTH_IT = 0.002
_SHARES = torch.linspace(0.0, 1.0, 21)
# The correction learns from so many batches of windows of so many sensors, and from so many cells of each window.
_LESSONS, _SENSORS_TO_CORRECT, _CELLS_OF_A_WINDOW = 600, 24, 60
_DISTANCES_IN_WORDS = ("1 step", "2 or 3 steps", "4 to 8 steps", "more steps")


def read_training_steps(network: KrigingNetwork, data: TrainingData) -> None:
    """What kriging reads off a table before it learns, from the steps of the training windows alone."""
    counts = window_counts(data.train_starts.numpy(), network.config.window, len(data.series.values))
    steps = torch.as_tensor(counts > 0)
    network.read_table(data.series.values[steps], data.series.visible[steps], data.series.clock[steps])


def fit_kriging(
    network: CasperNetwork, data: TrainingData, *, keep: Kept, seed: int, folder: Path, progress: bool | str | Tell
) -> None:
    """On the CPU, in place; its training is resumed where it was if `folder` holds one. CASPER's leaves it as it is.

    keep: as in CASPER's own training, for both are watched by the same cells.
    """
    assert network.kriging is not None, "only a network with kriging beside it"
    read_training_steps(network.kriging, data)
    training = KRIGING_TRAINING.replace(keep=keep)
    result = train(
        network.kriging,
        data,
        training,
        seed=seed,
        folder=folder / "kriging",
        accelerator="cpu",
        resume=True,
        progress="kriging" if progress is True else progress,
    )
    network.kriging.load_state_dict(result.weights)
    fit_correction(network.kriging, data, training, before=result.best_mae, seed=seed, progress=progress)
    network.kriging.requires_grad_(False)


def fit_correction(
    network: KrigingNetwork,
    data: TrainingData,
    training: TrainingConfig,
    *,
    before: float,
    seed: int,
    progress: bool | str | Tell,
) -> float:
    """After kriging itself, in place, on the CPU; dropped unless the held-back readings are filled better with it.

    training: kriging's own, whose gaps it learns from, too. before: the validation error without a correction. Gives
    back the error that is left.
    """
    before = _look_beyond_if_better(network, data, training, before)
    if not network.config.correction:
        return before
    around, missed = _seen_and_missed(network, data, training, seed=seed, progress=progress)
    if len(missed) < _FEWEST_CELLS:
        return before
    network.correction.learn(around, missed, seed=seed, progress=progress)
    after = _watched_error(network, data, training, before)
    if after >= before:
        network.correction.forget()
    return min(before, after)


def _look_beyond_if_better(
    network: KrigingNetwork, data: TrainingData, training: TrainingConfig, before: float
) -> float:
    """Blocks beyond the window are kept if the held-back readings are filled better with them; the error that is
    left."""
    if not network.reach:
        return before
    network.looks_beyond.fill_(False)
    without = _watched_error(network, data, training, before)
    network.looks_beyond.fill_(before < without)
    return min(before, without)


def _watched_error(network: KrigingNetwork, data: TrainingData, training: TrainingConfig, otherwise: float) -> float:
    watched = watched_starts(data, training, network.config.window)
    (errors,), _ = _errors(data, watched, network.config.window, network)
    return float(errors.abs().mean()) if len(errors) else otherwise


def _seen_and_missed(
    network: KrigingNetwork, data: TrainingData, training: TrainingConfig, *, seed: int, progress: bool | str | Tell
) -> tuple[Tensor, Tensor]:
    """Surroundings of hidden cells, (C, features), and by how much kriging misses them, (C,)."""
    masks = TrainingMasks(training, gaps=data.gaps, gap_starts=data.gap_starts)
    patches = sensor_patches(data.neighbour_index, data.neighbour_present, _SENSORS_TO_CORRECT, seed=seed)
    generator = torch.Generator()
    around, missed = list[Tensor](), list[Tensor]()
    # A training that is asked to be short has a short lesson here.
    for step in progress_over(range(min(_LESSONS, training.steps)), "what kriging misses", progress):
        seed_for_step(generator, seed, training.steps + step)
        example = draw_example(
            data, masks, patches, training.batch_size, network.config.window, generator, reach=network.reach
        )
        field, by = network.missed(example)
        cells = example.hidden.nonzero()
        cells = cells[torch.randperm(len(cells), generator=generator)[: _CELLS_OF_A_WINDOW * training.batch_size]]
        around.append(surroundings(field, cells))
        missed.append(by[tuple(cells.T)])
    return torch.cat(around), torch.cat(missed)


@torch.no_grad()
def mix_in_kriging(network: CasperNetwork, data: TrainingData, starts: Tensor) -> float | None:
    """Sets the shares that are best on the scored cells of these windows, unless the settings say one; their error with
    them, in original units, or None if there are none."""
    assert network.kriging is not None, "only a network with kriging beside it"
    network.kriging_share.zero_()
    length = network.config.window
    (ours, other), classes = _errors(data, starts, length, network, network.kriging)
    if not len(ours):
        return None
    fixed = network.config.kriging_share
    network.kriging_share.copy_(_best_shares(ours, other, classes) if fixed is None else torch.tensor(fixed))
    return float(torch.lerp(ours, other, network.kriging_share[classes]).abs().mean())


@torch.no_grad()
def _errors(data: TrainingData, starts: Tensor, length: int, *networks: WindowNetwork) -> tuple[list[Tensor], Tensor]:
    """On the scored cells of these windows, in original units: the errors of each network, and the class of
    the cells' distance to a reading."""
    errors, classes = [[torch.zeros(0)] for _ in networks], [torch.zeros(0, dtype=torch.long)]
    for start in starts.split(1):  # one window after the other: they are few, and kriging takes them one by one
        window = data.series.window(start, length, reach=max(network.reach for network in networks))
        scored = cut(data.scored, start, length)
        if not scored.any():
            continue
        unit, truth = data.deviation[:, None].expand(scored.shape), cut(data.truth, start, length)
        classes.append(distance_class(window.visible)[scored])
        for network, of_it in zip(networks, errors, strict=True):
            of_it.append(((network.impute_window(window) - truth) * unit)[scored])
    return [torch.cat(of_it) for of_it in errors], torch.cat(classes)


def _best_shares(ours: Tensor, other: Tensor, classes: Tensor) -> Tensor:
    """One for each class of distance. ours, other, classes: of as many cells, their two errors and their class."""
    chosen = torch.zeros(len(KRIGING_DISTANCES) + 1)
    for number in range(len(chosen)):
        mine = classes == number
        if mine.sum() < _FEWEST_CELLS:
            mine = torch.ones_like(mine)  # too few to tell: as in all
        errors = torch.stack([torch.lerp(ours[mine], other[mine], share).abs().mean() for share in _SHARES.tolist()])
        if errors.min() < (1 - _WORTH_IT) * errors[0]:
            chosen[number] = _SHARES[errors.argmin()]
    return chosen


def shares_in_words(network: CasperNetwork) -> dict[str, float]:
    """How much of a filled value is kriging's, by the distance to the sensor's nearest reading."""
    return dict(zip(_DISTANCES_IN_WORDS, network.kriging_share.tolist(), strict=True))
