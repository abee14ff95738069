"""How figures are said in tables."""

from __future__ import annotations

from collections.abc import Sequence

from casper.reproduction.published import PublishedFigure, Spread
from casper.reproduction.results import Group, TrainedRun

MARKS = {"paper": "", "second hand": " †", "unchecked": " ‡"}
"""How surely we know a published figure."""


def published_cell(figure: PublishedFigure | None) -> str:
    if figure is None:
        return ""
    return f"{said(figure.mae)} / {said(figure.mse) or '-'}{MARKS[figure.source.checked]}"


def said(spread: Spread | None) -> str:
    """Two digits after the point, or one where there are hundreds before it."""
    if spread is None:
        return ""
    digits = 1 if abs(spread.mean) >= 100 else 2
    mean = f"{spread.mean:.{digits}f}"
    return mean if spread.deviation is None else f"{mean} ± {spread.deviation:.{digits}f}"


def seeds(group: Group) -> str:
    return "1 seed" if len(group.runs) == 1 else f"{len(group.runs)} seeds"


def steps_of(counts: Sequence[int]) -> str:
    return f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"


def training_of(run: TrainedRun) -> str:
    beside = f" ({run.side_by_side} side by side)" if run.side_by_side > 1 else ""
    return duration(run.training_seconds) + beside


def duration(seconds: float) -> str:
    if seconds < 1:
        return "< 1 s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
