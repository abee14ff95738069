"""Parts of a large network to train on: a step sees a patch of neighbouring sensors, whatever the network's size."""

from __future__ import annotations

from collections import deque

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# A network that is hardly larger than a patch is trained on whole.
_WORTH_IT = 1.5
_MOST_PATCHES = 512


def sensor_patches(neighbour_index: Tensor, neighbour_present: Tensor, size: int | None, *, seed: int) -> Tensor | None:
    """(P, size) sensor numbers, each row a patch grown from one sensor along its neighbours; None: train on all.

    Patches start from sensors all over the network, so that every sensor is in some of them.
    """
    sensors = neighbour_index.shape[0]
    if size is None or sensors <= _WORTH_IT * size:
        return None
    random = np.random.default_rng(seed)
    index, present = neighbour_index.cpu().numpy(), neighbour_present.cpu().numpy()
    count = min(_MOST_PATCHES, sensors)
    patches: list[NDArray[np.int64]] = []
    seen_in_a_patch = np.zeros(sensors, dtype=bool)
    while len(patches) < count or not seen_in_a_patch.all():
        # First the ones no patch holds yet.
        candidates = np.flatnonzero(~seen_in_a_patch)
        first = random.choice(candidates) if len(candidates) else random.integers(sensors)
        patch = _grow(index, present, int(first), size, random)
        seen_in_a_patch[patch] = True
        patches.append(patch)
    return torch.as_tensor(np.stack(patches))


def _grow(
    index: NDArray[np.int64], present: NDArray[np.bool_], first: int, size: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """Breadth first from one sensor; where the neighbours run out, somewhere else."""
    chosen: dict[int, None] = {}
    waiting = deque([first])
    while len(chosen) < size:
        if not waiting:
            waiting.append(int(random.choice(np.setdiff1d(np.arange(len(index)), list(chosen)))))
        sensor = waiting.popleft()
        if sensor not in chosen:
            chosen[sensor] = None
            waiting.extend(int(neighbour) for neighbour in index[sensor][present[sensor]])
    return np.sort(np.fromiter(chosen, dtype=np.int64))
