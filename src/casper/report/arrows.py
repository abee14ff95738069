"""The map of a report: where the sensors lie, and from which of them each one is filled."""

from __future__ import annotations

from math import cos, radians
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from casper.causal import CausalGraph
from casper.frame.sensors import KM_PER_DEGREE, match_sensors
from casper.imputer import Casper
from casper.report.words import lag_words, span

MOST_OF_A_SENSOR = 8
MOST_SHUT = 6_000
SHUT = 0.01
"""A neighbour from which less than this share of a sensor's values is drawn counts as shut out by the model."""


def network(
    model: Casper,
    graph: CausalGraph,
    sensors: tuple[str, ...],
    step: pd.Timedelta,
    places: pd.DataFrame | None,
    *,
    dead: tuple[str, ...],
) -> dict[str, Any]:
    """graph: of the model and the table. sensors: the table's, whose order the numbers in the result refer to.

    x, y: km east and north, or a circle of radius 1 without places (`map` says which). arrows: source, target, the
    share of all the target is drawn from, the strongest lag, the share of windows in which its gates are open (-1 if
    unknown); the strongest few of every target. own: the share that each sensor's own readings at other times have,
    None if the model has no such arrows and reads them elsewhere. shut: neighbours in the sensor network that are
    hardly drawn on. lagClasses: what the colours stand for, lags of `least` and more.
    """
    x, y = _circle(len(sensors)) if places is None else _plane(places, sensors)
    shares = pair_shares(graph)
    number = {sensor: place for place, sensor in enumerate(sensors)}
    apart = shares[shares["source"] != shares["target"]]
    kept = apart[apart["share"] >= SHUT]
    kept = kept[kept.groupby("target").cumcount() < MOST_OF_A_SENSOR]
    arrows = [
        [number[source], number[target], round(share, 4), lag, -1 if np.isnan(stability) else round(stability, 3)]
        for source, target, share, lag, stability in zip(
            *(kept[name].tolist() for name in ("source", "target", "share", "lag", "stability")), strict=True
        )
    ]
    itself = shares[shares["source"] == shares["target"]]
    own = np.zeros(len(sensors))
    own[[number[sensor] for sensor in itself["target"]]] = itself["share"].to_numpy()
    shut = _shut(model, apart, number, silent={number[sensor] for sensor in dead})
    return {
        "map": places is not None,
        "x": _rounded(x),
        "y": _rounded(y),
        "arrows": arrows,
        "own": None if itself.empty else _rounded(own),
        "mostOfASensor": MOST_OF_A_SENSOR,
        "shut": shut[:MOST_SHUT],
        "lagClasses": [{"least": least, "words": words} for least, words in lag_classes(step)],
        "lagWords": {str(lag): lag_words(lag, step) for lag in sorted({arrow[3] for arrow in arrows})},
    }


def lag_classes(step: pd.Timedelta) -> list[tuple[int, str]]:
    """From the far future to the far past: the smallest lag of a class, and words."""
    spans = [span(step, fewest, most) for fewest, most in ((4, None), (2, 3), (1, 1))]
    after = list(zip((-1_000_000, -3, -1), (f"{one} after" for one in spans), strict=True))
    before = list(zip((1, 2, 4), (f"{one} before" for one in reversed(spans)), strict=True))
    return [*after, (0, "at the same time"), *before]


def pair_shares(graph: CausalGraph) -> pd.DataFrame:
    """A row per pair, largest share first: source, target, share, and the lag and stability of its strongest lag.

    share: the weights of all its lags, of all the weight that the target has. The shares of a target, its own readings
    included, sum to one.
    """
    edges = graph.edges
    strongest = edges.drop_duplicates(["source", "target"])  # they come strongest first
    weight = edges.groupby(["source", "target"])["weight"].sum().rename("share").reset_index()
    pairs = strongest[["source", "target", "lag", "stability"]].merge(weight, on=["source", "target"])
    pairs["share"] /= pairs.groupby("target")["share"].transform("sum")
    pairs["lag"] = pairs["lag"].astype("int64")
    return pairs.sort_values(["share", "target", "source"], ascending=[False, True, True]).reset_index(drop=True)


def _shut(model: Casper, apart: pd.DataFrame, number: dict[str, int], *, silent: set[int]) -> list[list[int]]:
    """Pairs (source, target) that the network may look at, strongest neighbours first, and hardly does."""
    index, present = (part.numpy() for part in model.neighbours(model.graph))
    names = model.graph.sensors
    target, neighbour = np.nonzero(present)
    order = np.lexsort((target, neighbour))  # the nearest of every sensor first
    drawn_on = {
        (number[source], number[aim])
        for source, aim, share in zip(apart["source"], apart["target"], apart["share"], strict=True)
        if share >= SHUT
    }
    pairs = [
        (number[names[index[t, n]]], number[names[t]]) for t, n in zip(target[order], neighbour[order], strict=True)
    ]
    return [[s, t] for s, t in pairs if s != t and (s, t) not in drawn_on and s not in silent]


def _plane(places: pd.DataFrame, sensors: tuple[str, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    listed = match_sensors(places, sensors)
    latitude, longitude = listed["latitude"].to_numpy(), listed["longitude"].to_numpy()
    middle = float(latitude.mean())
    east = (longitude - longitude.mean() + 180) % 360 - 180  # the short way round, also across the date line
    return east * KM_PER_DEGREE * cos(radians(middle)), (latitude - middle) * KM_PER_DEGREE


def _circle(count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    angle = np.pi / 2 - 2 * np.pi * np.arange(count) / count  # clockwise from the top
    return np.cos(angle), np.sin(angle)


def _rounded(values: NDArray[np.float64]) -> list[float]:
    return [round(float(value), 4) for value in values]
