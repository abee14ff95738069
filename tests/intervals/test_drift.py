"""Estimates far from any reading are as uncertain as sensors drift apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from casper import Casper
from casper.graph import SensorGraph
from casper.intervals.calibration import Calibration
from casper.intervals.drift import Drift
from casper.intervals.error_bars import draw_error_bars
from casper.simulate import Simulation
from casper.training.checkpoint import read_tensors

NAMES = ("a", "b", "c", "d")
STEPS = 4000


def drift(beyond: NDArray[np.float64], seen: NDArray[np.bool_] | None = None) -> Drift:
    """Of four neighbours that share a course, and have this beyond it."""
    course = np.random.default_rng(0).normal(size=(len(beyond), 1)).cumsum(axis=0)
    pairs = [(i, j) for i in range(4) for j in range(4) if i != j]
    source, target = zip(*pairs, strict=True)
    graph = SensorGraph.from_edges(NAMES, source, target, np.ones(len(pairs)), origin="by hand")
    seen = np.ones(beyond.shape, dtype=bool) if seen is None else seen
    return Drift.read(np.where(seen, course + beyond, 0.0).astype(np.float32), seen, graph)


def walks() -> NDArray[np.float64]:
    return 0.05 * np.random.default_rng(1).normal(size=(STEPS, 4)).cumsum(axis=0)


def test_sensors_that_wander_apart_are_known_less_the_farther_a_reading_is() -> None:
    read = drift(walks())
    near, far = read.added(np.array([60, 400]), than=20)
    assert 0 < near < far
    assert read.added(np.array([5, 20]), than=20).tolist() == [0, 0], "error bars were judged there"
    # A walk of steps of variance 0.0025, and a third of it in the mean of the other three.
    assert near == pytest.approx(40 * 0.0025 * 4 / 3, rel=0.4)


def test_sensors_that_only_flicker_are_known_as_well_from_afar() -> None:
    read = drift(np.random.default_rng(2).normal(size=(STEPS, 4)))
    assert read.added(np.array([1000]), than=20)[0] < 0.1 * read.variance[0]


def test_where_nothing_is_read_at_the_same_time_nothing_is_told() -> None:
    alone = np.arange(STEPS)[:, None] % 4 == np.arange(4)
    assert not drift(walks(), alone).added(np.array([1000]), than=20).any()


def test_intervals_are_wider_where_no_held_back_reading_was_as_far_away(
    tiny_folder: Path, six_sensors: Simulation
) -> None:
    model = Casper.from_pretrained(tiny_folder, device="cpu")
    tensors, _ = read_tensors(tiny_folder / "model.safetensors")
    of_calibration = {name.removeprefix("calibration:"): one for name, one in tensors.items() if "calibration:" in name}
    known = Calibration.from_tensors(of_calibration)
    assert known is not None
    table = six_sensors.table + 20 * walks()[:150, [0, 1, 2, 3, 0, 1]] * [1, 1, 1, 1, -1, -1]
    table.iloc[:100, 2] = np.nan
    holes = model.to_frame(table)
    filled = model.impute_frame(holes)

    def width(reach: float) -> NDArray[np.float64]:
        bars = draw_error_bars(replace(known, reach=np.asarray(reach)), model.reading(), holes, filled, (0.9,))
        return (bars.upper[0.9] - bars.lower[0.9])[:100, 2]

    plain, wider = width(np.inf), width(24.0)
    assert (wider[76:] == plain[76:]).all(), "within reach nothing changes"
    assert wider[:50].mean() > 1.05 * plain[:50].mean()
