"""Runs of holes, what lies beside them, and bins for more cells than a picture has pixels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def runs(cells: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(R, 2): start and length of each run of True."""
    change = np.flatnonzero(np.diff(np.r_[False, cells, False].astype(np.int8)))
    start, end = change[::2], change[1::2]
    return np.column_stack([start, end - start])


def with_neighbours(hole: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The holes and the readings next to them, so that a line over a hole meets what was measured."""
    return hole | np.r_[hole[1:], False] | np.r_[False, hole[:-1]]


def bin_borders(length: int, most: int) -> NDArray[np.int64]:
    """Borders of at most `most` bins of nearly one size."""
    return np.unique(np.linspace(0, length, min(length, most) + 1).round().astype(np.int64))
