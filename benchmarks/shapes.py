"""The graphs that are measured: those of the published data sets, and made-up ones that grow."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from casper.datasets import data_folder
from casper.errors import InputError
from casper.graph import gaussian_kernel, graph_from_adjacency, kernel_width
from casper.network.neighbourhood import Neighbourhood

STATIONS_OF_KERNEL = 36
"""The kernel width of both air-quality sets is that of the first 36 stations."""
GROWTH_DEGREE = 10


@dataclass(frozen=True)
class Published:
    """What is known of a data set's graph, made symmetric: enough to check it, and to make up one like it."""

    distances: str
    sensors: int
    edges: int
    steps: int


PUBLISHED = {
    "aqi36": Published("aqi_distances.npy", sensors=36, edges=654, steps=36),
    "metr-la": Published("metr_la_distances.npy", sensors=207, edges=2626, steps=24),
    "aqi": Published("aqi_distances.npy", sensors=437, edges=5398, steps=24),
}
SMALL = "small"
"""A few sensors and steps, to try the commands."""
NAMES = (*PUBLISHED, SMALL)


@dataclass(frozen=True)
class Shape:
    """A graph and a number of steps. neighbourhood: on the CPU; origin: where the graph came from, in words."""

    name: str
    steps: int
    neighbourhood: Neighbourhood
    origin: str

    @property
    def sensors(self) -> int:
        return self.neighbourhood.index.shape[0]

    @property
    def edges(self) -> int:
        return int(self.neighbourhood.present.sum())

    def neighbourhood_on(self, device: torch.device) -> Neighbourhood:
        """With its edge lists made, as a network keeps it."""
        here = self.neighbourhood
        return Neighbourhood(here.index.to(device), here.present.to(device), here.full).with_lists()

    def describe(self) -> dict[str, str | int]:
        return {
            "shape": self.name,
            "sensors": self.sensors,
            "edges": self.edges,
            "most_neighbours": int(self.neighbourhood.present.sum(1).max()),
            "sensors_without_neighbour": int((~self.neighbourhood.present.any(1)).sum()),
            "steps": self.steps,
            "graph": self.origin,
        }


def named_shape(name: str, *, data_dir: Path | None, seed: int) -> Shape:
    """One of NAMES: with the data set's own graph where its distances are at hand, otherwise with one like it.

    A name like 250x24 is a growing shape of so many sensors and steps.
    """
    if grown := re.fullmatch(r"(\d+)x(\d+)", name):
        return growing_shape(sensors=int(grown[1]), steps=int(grown[2]), seed=seed)
    if name == SMALL:
        return Shape(name, 5, random_ragged(sensors=9, edges=23, seed=seed), f"random, seed {seed}")
    if name not in PUBLISHED:
        raise InputError(f"there is no shape {name!r}; choose from {', '.join(NAMES)}, or sensors x steps like 250x24")
    known = PUBLISHED[name]
    found = _distances(known, data_dir)
    if found is None:
        made = random_ragged(sensors=known.sensors, edges=known.edges, seed=seed)
        origin = f"made up, as the data set is not at hand: random points, the nearest joined; seed {seed}"
        return Shape(name, known.steps, made, origin)
    width = kernel_width(found[:STATIONS_OF_KERNEL, :STATIONS_OF_KERNEL] if name.startswith("aqi") else found)
    weights = gaussian_kernel(found[: known.sensors, : known.sensors], width=width)
    graph = graph_from_adjacency(weights, ids=[str(number) for number in range(known.sensors)]).symmetric()
    shape = Shape(
        name,
        known.steps,
        _from_tables(*graph.neighbour_table(max_neighbours=None, include_self=False)),
        f"the data set's own, from {known.distances}, made symmetric",
    )
    if (shape.sensors, shape.edges) != (known.sensors, known.edges):
        raise InputError(
            f"{known.distances} gives {shape.sensors} sensors and {shape.edges} edges for {name}, "
            f"not the published {known.sensors} and {known.edges}: get the published file"
        )
    return shape


def growing_shape(*, sensors: int, steps: int, degree: int = GROWTH_DEGREE, seed: int) -> Shape:
    """Every sensor looks at its nearest ones. They are numbered at random, so neighbours lie apart in memory."""
    from sklearn.neighbors import KDTree

    places = np.random.default_rng(seed).random((sensors, 2))
    nearest = np.asarray(KDTree(places).query(places, k=degree + 1, return_distance=False))[:, 1:]
    made = _from_tables(nearest.astype(np.int64), np.ones(nearest.shape, dtype=bool))
    origin = f"random points, each looking at its {degree} nearest, seed {seed}"
    return Shape(f"{sensors}x{steps}", steps, made, origin)


def random_ragged(*, sensors: int, edges: int, seed: int) -> Neighbourhood:
    """Random points in a square, the nearest pairs joined in both directions until there are enough edges."""
    places = np.random.default_rng(seed).random((sensors, 2))
    target, source = np.nonzero(~np.eye(sensors, dtype=bool))
    distance = np.square(places[target] - places[source]).sum(axis=1)
    weights = np.zeros((sensors, sensors))
    kept = np.argsort(distance, kind="stable")[:edges]
    weights[source[kept], target[kept]] = 1.0 / (1.0 + distance[kept])
    graph = graph_from_adjacency(weights, ids=[str(number) for number in range(sensors)])
    return _from_tables(*graph.neighbour_table(max_neighbours=None, include_self=False))


def _distances(known: Published, data_dir: Path | None) -> NDArray[np.floating] | None:
    """None if no data folder was given, or if it lacks the file."""
    if data_dir is None and not os.environ.get("CASPER_DATA"):
        return None
    path = data_folder(data_dir) / known.distances
    return np.load(path, allow_pickle=False) if path.is_file() else None


def _from_tables(index: NDArray[np.int64], present: NDArray[np.bool_]) -> Neighbourhood:
    return Neighbourhood(torch.as_tensor(index), torch.as_tensor(present), full=bool(present.all()))
