"""Names beside places on a map, so that none covers another."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from casper.report.style import GREY, INK

_DISTANCES = (6, 12, 22, 34, 48, 64)
"""Points between a place and its name: the nearest ones that are free, with a line to the place if they are far."""
_ANGLES = np.radians([45, -45, 135, -135, 0, 90, 180, -90, 22, -22, 158, -158, 67, -67, 113, -113])
_DOT = 4
"""Half of the side of a place's mark, in points."""


def label_places(axes: Axes, listed: pd.DataFrame, *, avoid: pd.DataFrame | None = None, size: float = 8) -> None:
    """avoid: places whose marks are not to be covered; without: the same. To be called when all else is drawn."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # only then it is known how far apart places are on paper
    points = 72 / figure.dpi
    dots = _on_paper(axes, listed if avoid is None else avoid) * points
    taken = np.hstack([dots - _DOT, dots + _DOT])  # (places, 4): left, low, right, high
    inside = np.array(axes.get_window_extent().extents) * points
    for name, place in zip(listed.index, _on_paper(axes, listed) * points, strict=True):
        sides, far = _sides(str(name), size)
        boxes = np.hstack([place + sides[:, :2], place + sides[:, 2:]])
        covered = _common(boxes, taken).sum(axis=1) + (_area(boxes) - _common(boxes, inside[None])[:, 0])
        best = int(np.argmin(covered.round(3)))
        taken = np.vstack([taken, boxes[best]])
        label = axes.annotate(
            str(name),
            (listed.loc[name, "longitude"], listed.loc[name, "latitude"]),
            xytext=(sides[best, 0], sides[best, 1]),
            textcoords="offset points",
            fontsize=size,
            color=INK,
            arrowprops={"arrowstyle": "-", "lw": 0.5, "color": GREY} if far[best] else None,
        )
        label.set(zorder=5, bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "alpha": 0.7, "linewidth": 0})
        label.set_in_layout(False)  # the layout is made; another one would move the places


def _on_paper(axes: Axes, listed: pd.DataFrame) -> NDArray[np.float64]:
    """(places, 2), in pixels."""
    return np.asarray(axes.transData.transform(listed[["longitude", "latitude"]].to_numpy(dtype=np.float64)))


def _sides(name: str, size: float) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Where a name may stand, relative to its place, the best side first: (sides, 4); and which of them are far."""
    half = np.array([0.62 * size * len(name) + 2, 1.25 * size]) / 2
    towards = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1)
    towards /= np.abs(towards).max(axis=1, keepdims=True)  # on the sides of a square: names are broad
    middles = np.concatenate([towards * (distance + half) for distance in _DISTANCES])
    far = np.repeat(np.array(_DISTANCES) > _DISTANCES[1], len(_ANGLES))
    return np.hstack([middles - half, middles + half]), far


def _common(boxes: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """(boxes, others): the areas that they share."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    return np.clip(high - low, 0, None).prod(axis=2)


def _area(boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    return (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
