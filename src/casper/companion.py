"""Kriging beside CASPER's network: fitted before it, mixed in after it, as far as the held-back readings say.

On smooth series, next to a reading, the best linear estimate is hard to beat, and a network that was trained for some
minutes does not reach it; far from readings, and where relations are not linear, the network is better. So every
distance to the sensor's nearest reading has a share of its own.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from casper.kriging import KRIGING_TRAINING, KrigingNetwork
from casper.metrics import window_counts
from casper.model import KRIGING_DISTANCES, CasperNetwork, distance_class
from casper.progress import Tell
from casper.train import TrainingData, train
from casper.windows import cut

# Cells of a class that a share is believed from, and by how much it must lower their error.
_FEWEST_CELLS = 200
_WORTH_IT = 0.002
_SHARES = torch.linspace(0.0, 1.0, 21)
_DISTANCES_IN_WORDS = ("1 step", "2 or 3 steps", "4 to 8 steps", "more steps")


def read_training_steps(network: KrigingNetwork, data: TrainingData) -> None:
    """What kriging reads off a table before it learns, from the steps of the training windows alone."""
    counts = window_counts(data.train_starts.numpy(), network.config.window, len(data.series.values))
    steps = torch.as_tensor(counts > 0)
    network.read_table(data.series.values[steps], data.series.visible[steps], data.series.clock[steps])


def fit_kriging(
    network: CasperNetwork, data: TrainingData, *, seed: int, folder: Path, progress: bool | str | Tell
) -> None:
    """On the CPU, in place; its training is resumed where it was if `folder` holds one. CASPER's leaves it as it is."""
    assert network.kriging is not None, "only a network with kriging beside it"
    read_training_steps(network.kriging, data)
    result = train(
        network.kriging,
        data,
        KRIGING_TRAINING,
        seed=seed,
        folder=folder / "kriging",
        accelerator="cpu",
        resume=True,
        progress="kriging" if progress is True else progress,
    )
    network.kriging.load_state_dict(result.weights)
    network.kriging.requires_grad_(False)


@torch.no_grad()
def mix_in_kriging(network: CasperNetwork, data: TrainingData, starts: Tensor) -> float | None:
    """Sets the shares that are best on the scored cells of these windows, unless the settings say one; their error with
    them, in original units, or None if there are none."""
    assert network.kriging is not None, "only a network with kriging beside it"
    network.kriging_share.zero_()
    length = network.config.window
    parts: list[tuple[Tensor, ...]] = []
    for start in starts.split(1):  # one window after the other: they are few, and kriging takes them one by one
        window = data.series.window(start, length)
        scored = cut(data.scored, start, length)
        if not scored.any():
            continue
        seen = window.values, window.visible, window.clock
        unit = data.deviation[:, None].expand(scored.shape)
        truth = cut(data.truth, start, length)
        both = network.impute(*seen), network.kriging.impute(*seen)
        apart = [((estimate - truth) * unit)[scored] for estimate in both]
        parts.append((*apart, distance_class(window.visible)[scored]))
    if not parts:
        return None
    ours, other, classes = (torch.cat(part) for part in zip(*parts, strict=True))
    fixed = network.config.kriging_share
    network.kriging_share.copy_(_best_shares(ours, other, classes) if fixed is None else torch.tensor(fixed))
    return float(torch.lerp(ours, other, network.kriging_share[classes]).abs().mean())


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
