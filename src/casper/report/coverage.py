"""Where a table was measured, filled and flagged, in no more bins than a screen has pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from casper.report.runs import bin_borders

MOST_TIME_BINS = 480
MOST_ROWS = 240


def coverage(observed: NDArray[np.bool_], flagged: NDArray[np.bool_]) -> dict[str, Any]:
    """observed, flagged: (T, N). Counts of cells for every bin: `measured` and `flagged`, sensors down, time across.

    times, sensors: the borders of the bins, one more than there are bins. Large tables put several steps, or several
    sensors that follow each other, into one bin; the counts say how many cells of each kind it holds.
    """
    times, sensors = bin_borders(len(observed), MOST_TIME_BINS), bin_borders(observed.shape[1], MOST_ROWS)

    def counts(cells: NDArray[np.bool_]) -> list[list[int]]:
        per_bin = np.add.reduceat(cells, times[:-1], axis=0, dtype=np.int64)
        return np.add.reduceat(per_bin, sensors[:-1], axis=1).T.tolist()

    return {
        "times": times.tolist(),
        "sensors": sensors.tolist(),
        "measured": counts(observed),
        "flagged": counts(flagged),
    }
