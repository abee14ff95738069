"""How good error bars are: how many true values they hold, how wide they are, and the CRPS."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from casper.contract import Imputer
from casper.datasets import Benchmark
from casper.intervals.calibration import LONGEST_GAPS
from casper.intervals.error_bars import ErrorBars
from casper.masks import gap_lengths

SHARES = (0.5, 0.9)
"""Of the intervals whose coverage is told."""
LEVELS = 5
"""Into so many equally large classes the cells are cut by their estimates."""
# The test steps are cut into so many stretches to see how far the coverage is a matter of luck.
_STRETCHES = 30
# The quantiles 0.05, 0.10, ... 0.95, by which the CRPS is approximated in the literature (CSDI, PriSTI).
_SHARES_OF_CRPS = tuple(round(0.1 * number, 1) for number in range(1, 10))


def score_intervals(imputer: Imputer, benchmark: Benchmark, filled: NDArray[np.float64]) -> dict[str, Any]:
    """On the scored cells of the test steps, each counted once, in a table (T, N) filled from end to end.

    crps: relative to the mean true value. shares: for each of `SHARES` its coverage with its standard error, mean
    width, and the same coverage by length of the gap and by level of the estimate, with the number of cells.
    """
    shown, steps = benchmark.visible_frame, benchmark.test_steps
    bars = imputer.error_bars(shown, filled, (*SHARES, *(share for share in _SHARES_OF_CRPS if share not in SHARES)))
    scored = benchmark.hidden & steps[:, None]
    stretch = (np.cumsum(steps) - 1) * _STRETCHES // int(steps.sum())  # (T,)
    stretch_of_cell = np.broadcast_to(stretch[:, None], scored.shape)[scored]
    truth, estimate = benchmark.values[scored], filled[scored]
    gap_class = np.searchsorted(LONGEST_GAPS, gap_lengths(shown.observed)[scored])
    level_class = np.searchsorted(np.quantile(estimate, np.arange(1, LEVELS) / LEVELS), estimate)
    return {
        "crps": _crps(truth, estimate, bars, scored),
        "mae_step": float(np.abs(truth - estimate).mean()),
        "flagged": float(bars.flagged[scored].mean()),
        "shares": {
            f"{share:g}": _of_share(
                (bars.lower[share][scored] <= truth) & (truth <= bars.upper[share][scored]),
                (bars.upper[share] - bars.lower[share])[scored],
                gap_class,
                level_class,
                stretch_of_cell,
            )
            for share in SHARES
        },
    }


def gap_names() -> list[str]:
    """Of the classes of gaps, in steps."""
    first = [1, *(length + 1 for length in LONGEST_GAPS)]
    return [
        f"{low}" if low == high else f"{low}-{high}" for low, high in zip(first[:-1], LONGEST_GAPS, strict=True)
    ] + [f"{first[-1]}+"]


def _of_share(
    inside: NDArray[np.bool_],
    width: NDArray[np.float64],
    gap_class: NDArray[np.int64],
    level_class: NDArray[np.int64],
    stretch: NDArray[np.int64],
) -> dict[str, Any]:
    return {
        "coverage": float(inside.mean()),
        "standard_error": _standard_error(inside, stretch),
        "width": float(width.mean()),
        "by_gap": {name: _class(inside, gap_class == number, stretch) for number, name in enumerate(gap_names())},
        "by_level": [_class(inside, level_class == number, stretch) for number in range(LEVELS)],
    }


def _standard_error(inside: NDArray[np.bool_], stretch: NDArray[np.int64]) -> float:
    """Of the coverage. What happens at one time happens to many cells: stretches of time count, not single cells."""
    beyond = np.bincount(stretch, weights=inside - inside.mean())
    count = len(np.unique(stretch))
    return float(np.sqrt(count / max(1, count - 1) * np.square(beyond).sum()) / len(inside))


def _class(inside: NDArray[np.bool_], chosen: NDArray[np.bool_], stretch: NDArray[np.int64]) -> dict[str, Any]:
    count = int(chosen.sum())
    if not count:
        return {"coverage": None, "standard_error": None, "cells": 0}
    inside, stretch = inside[chosen], stretch[chosen]
    return {"coverage": float(inside.mean()), "standard_error": _standard_error(inside, stretch), "cells": count}


def _crps(
    truth: NDArray[np.float64], estimate: NDArray[np.float64], bars: ErrorBars, scored: NDArray[np.bool_]
) -> float:
    """Twice the mean pinball loss over the quantiles, relative to the mean absolute true value."""
    losses = [0.5 * np.abs(truth - estimate).mean()]
    for share in _SHARES_OF_CRPS:
        for probability, ends in (((1 - share) / 2, bars.lower[share]), ((1 + share) / 2, bars.upper[share])):
            over = truth - ends[scored]
            losses.append(np.maximum(probability * over, (probability - 1) * over).mean())
    return float(2 * np.mean(losses) / np.abs(truth).mean())
