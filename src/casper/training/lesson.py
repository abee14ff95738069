"""What a network is taught: a table in the units it learns in, on its clock, and which cells it is asked for."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from casper.config import NetworkConfig
from casper.datasets import Benchmark
from casper.frame import SensorFrame
from casper.graph import SensorGraph
from casper.masks import hide_like_gaps
from casper.train import TrainingData
from casper.windows import Scaler, Series, choose_periods, clock_features

# At most this share of the visible cells of a benchmark's validation steps is watched besides the scored ones.
_MOST_ALSO_WATCHED = 0.2


class Lesson(NamedTuple):
    """data: what a training learns from; scaler: how it is scaled; periods: of its clock, in steps."""

    data: TrainingData
    scaler: Scaler
    periods: tuple[float, ...]


def read_lesson(
    frame: SensorFrame,
    graph: SensorGraph,
    config: NetworkConfig,
    *,
    neighbours: tuple[Tensor, Tensor],
    scored: NDArray[np.bool_],
    train_starts: NDArray[np.int64],
    validation_starts: NDArray[np.int64],
    gap_starts: NDArray[np.int64],
    scaled_on: NDArray[np.bool_],
) -> Lesson:
    """neighbours: a table of them, see `SensorGraph.neighbour_table`; scored: (T, N), hidden from training and watched;
    scaled_on: (T, N), what the scaler may read."""
    scaler = Scaler.fit(frame.values, frame.observed & scaled_on, config.scaling, graph)
    periods = choose_periods(frame.step, len(frame.times), harmonics=config.harmonics)
    scaled = np.where(frame.observed, scaler.scale(frame.values), 0.0)
    visible = frame.observed & ~scored
    index, present = neighbours
    data = TrainingData(
        series=Series.build(scaled, visible, clock_features(frame.times, periods), torch.device("cpu")),
        truth=torch.as_tensor(scaled, dtype=torch.float32),
        scored=torch.as_tensor(scored & frame.observed),
        train_starts=torch.as_tensor(train_starts),
        validation_starts=torch.as_tensor(validation_starts),
        gaps=torch.as_tensor(~frame.observed),
        gap_starts=torch.as_tensor(gap_starts),
        deviation=torch.as_tensor(scaler.deviation, dtype=torch.float32),
        neighbour_index=index,
        neighbour_present=present,
        fingerprint=_fingerprint(frame, visible, train_starts, scaled_on),
    )
    return Lesson(data, scaler, periods)


def also_watched(benchmark: Benchmark, scored: NDArray[np.bool_], enough: int, *, seed: int) -> NDArray[np.bool_]:
    """(T, N): visible cells of the validation steps, in the shapes of gaps, as many as are lacking if fewer cells than
    `enough` are scored there: by few cells one cannot tell what is better."""
    hidden, steps = np.zeros_like(scored), benchmark.validation_steps & ~benchmark.train_steps
    visible = benchmark.observed[steps] & ~scored[steps]
    lacking = enough - int((benchmark.observed & scored)[steps].sum())
    share = min(_MOST_ALSO_WATCHED, lacking / max(1, int(visible.sum())))
    if share > 0:
        hidden[steps] = hide_like_gaps(visible, share=share, rng=np.random.default_rng(seed))
    return hidden


def _fingerprint(
    frame: SensorFrame, visible: NDArray[np.bool_], starts: NDArray[np.int64], scaled_on: NDArray[np.bool_]
) -> str:
    """Tells tables, and what is learned from them, apart, so that a training is not continued on other data."""
    digest = hashlib.sha256()
    for part in (np.where(visible, frame.values, 0.0), visible, frame.times.asi8, starts, scaled_on):
        digest.update(np.ascontiguousarray(part).tobytes())
    digest.update("\n".join(frame.sensors).encode())
    return digest.hexdigest()
