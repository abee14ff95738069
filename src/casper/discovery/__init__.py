"""Causal discovery: `discover(series, method=...)` for CASPER and the methods the paper compares it with.

Every method is a file here, behind `Discoverer.find`; it is loaded when it is first asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from casper.causal import CausalGraph
from casper.discovery.method import Discoverer, Evidence
from casper.discovery.recording import Recording
from casper.errors import InputError
from casper.frame import match_sensors
from casper.progress import Tell
from casper.train import Accelerator

__all__ = ["DISCOVERERS", "CausalGraph", "Discoverer", "Evidence", "Recording", "discover"]

_PLACES = {
    "casper": "casper.discovery.by_imputation:CasperDiscoverer",
    "pcmci": "casper.discovery.pcmci:PcmciDiscoverer",
    "ngc": "casper.discovery.ngc:NgcDiscoverer",
    "esru": "casper.discovery.esru:EsruDiscoverer",
    "lccm": "casper.discovery.lccm:LccmDiscoverer",
    "ngm": "casper.discovery.ngm:NgmDiscoverer",
    "cuts": "casper.discovery.cuts:CutsDiscoverer",
    "granger": "casper.discovery.granger:GrangerDiscoverer",
}


class _Discoverers(Mapping[str, type[Discoverer[Any]]]):
    def __getitem__(self, name: str) -> type[Discoverer[Any]]:
        if name not in _PLACES:
            raise InputError(f"there is no method of causal discovery {name!r}; choose one of {', '.join(_PLACES)}")
        module, _, discoverer = _PLACES[name].partition(":")
        return getattr(importlib.import_module(module), discoverer)

    def __contains__(self, name: object) -> bool:
        return name in _PLACES

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


_SHORTEST_BLOCK = 30
"""Steps of the blocks into which a single series is cut for refits, if it has that many."""

DISCOVERERS: Mapping[str, type[Discoverer[Any]]] = _Discoverers()


def discover(
    series: pd.DataFrame | NDArray[np.floating] | Sequence[pd.DataFrame | NDArray[np.floating]],
    *,
    method: str = "casper",
    seed: int = 0,
    device: Accelerator = "auto",
    refits: int = 0,
    sensors: pd.DataFrame | None = None,
    tell: Tell | None = None,
    **settings: Any,
) -> CausalGraph:
    """Which variables of a multivariate series cause which: a graph with a weight for every pair.

    series: a table (a row per step, a column per variable; NaN is a hole), an array, or a list of such: separate
    trajectories. The weights rank pairs, the larger the surer; they are not on the same scale for every method.
    refits: look so many times more, at blocks of the series drawn with replacement and with other seeds; an edge's
    stability is then the share of these in which its pair is among the strongest N log N of the N variables' pairs.
    sensors: their places (id, latitude, longitude); then only edges between neighbours are kept, see
    `CausalGraph.between_neighbours`. Methods look at all variables all the same: those far away may tell of a common
    cause.
    settings: of the method, by name. tell: called now and then with what goes on and the share that is done.
    """
    if refits < 0:
        raise InputError(f"refits must not be negative, not {refits}")
    recording = Recording.of(series)
    if sensors is not None:
        match_sensors(sensors, recording.names)  # before any work is done
    graph = _graph(recording, method, seed, device, tell, settings, sensors)
    if not refits:
        return graph
    random = np.random.default_rng(seed)
    again = [
        _graph(_resampled(recording, random), method, seed + 1 + number, device, tell, settings, sensors)
        .pairs()
        .without_lags()
        for number in range(refits)
    ]
    count = recording.variables
    stable = CausalGraph.of_refits(again, standing=round(count * np.log(count)))
    stability = stable.edges.set_index(["source", "target"])["stability"]
    keys = pd.MultiIndex.from_frame(graph.edges[["source", "target"]])
    edges = graph.edges.assign(stability=stability.reindex(keys).to_numpy())  # none of a variable with itself
    return replace(graph, edges=edges, origin={**graph.origin, "refits": refits})


def _graph(
    recording: Recording,
    method: str,
    seed: int,
    device: Accelerator,
    tell: Tell | None,
    settings: Mapping[str, Any],
    sensors: pd.DataFrame | None,
) -> CausalGraph:
    discoverer = DISCOVERERS[method](seed=seed, device=device, tell=tell, **settings)
    found = _find(discoverer, recording)
    origin = {
        "method": method,
        "seed": seed,
        "settings": discoverer.config.to_dict(),
        "weights": discoverer.weights_mean,
    }
    graph = CausalGraph.from_matrix(
        found.strength, recording.names, by_lag=found.by_lag, step=recording.step, origin=origin
    )
    return graph if sensors is None else graph.between_neighbours(sensors)


def _find(discoverer: Discoverer[Any], recording: Recording) -> Evidence:
    """A variable of which nothing is known is neither cause nor effect of anything; no method has to look at it."""
    known = np.flatnonzero(recording.observed.any((0, 1)))
    if len(known) == recording.variables:
        return discoverer.find(recording)
    if len(known) < 2:
        raise InputError("causal discovery needs at least two variables with readings")
    found = discoverer.find(
        replace(
            recording,
            values=recording.values[:, :, known],
            observed=recording.observed[:, :, known],
            names=tuple(recording.names[number] for number in known),
        )
    )

    def among_all(strength: NDArray[np.float64]) -> NDArray[np.float64]:
        whole = np.zeros((*strength.shape[:-2], recording.variables, recording.variables))
        whole[..., known[:, None], known] = strength
        return whole

    return Evidence(among_all(found.strength), None if found.by_lag is None else among_all(found.by_lag))


def _resampled(recording: Recording, random: np.random.Generator) -> Recording:
    """Trajectories drawn with replacement; a single one is cut into blocks first, which become trajectories."""
    if len(recording.values) == 1:
        steps = recording.values.shape[1]
        recording = recording.cut(max(2, min(round(np.sqrt(steps)), steps // _SHORTEST_BLOCK)))
    chosen = random.integers(len(recording.values), size=len(recording.values))
    return replace(
        recording,
        values=recording.values[chosen],
        observed=recording.observed[chosen],
        exists=recording.exists[chosen],
    )
