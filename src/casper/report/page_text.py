"""The words and tables of a report's page; what moves is drawn by its scripts."""

from __future__ import annotations

from typing import Any

import numpy as np

from casper.check import GAP_LENGTHS, TableSummary
from casper.report.hidden_check import HiddenCheck, Scores
from casper.report.report_data import ReportData
from casper.report.runs import runs
from casper.report.words import counted, duration, moment, number, percent, span

_FULL_NAMES = {"casper": "CASPER"}
# A share of the filled values.
_WORTH_TELLING = 0.005


def page_text(data: ReportData) -> dict[str, Any]:
    """What the page's template asks for."""
    return {
        "name": data.name,
        "method": method_name(data),
        "unit": data.unit,
        "sentences": sentences(data),
        "figures": _figures(data),
        "why_no_intervals": _sentence(data.why_no_intervals),
        "shares": [percent(share, decimals=0) for share in data.filled.shares],
        "gap_rows": _gap_rows(data),
        "sensor_rows": _sensor_rows(data),
        "check": data.check,
        "out_of_reach": _out_of_reach(data),
        "flagged": _by_reason(data.filled.flagged_sensors),
        "network": data.network,
        "values": data.values,
        "has_gates": data.has_gates,
        "kriging": _kriging(data),
        "windows": data.graph_origin.get("windows", 0),
        "looks": _looks(data),
        "gap_bars": _gap_bars(data),
        "suspicions": data.summary.sentences(),
        "notes": list(dict.fromkeys((*data.frame.notes, *data.filled.notes))),
        "recipe": data.recipe,
    }


def _sentence(words: str | None) -> str | None:
    return words and words[0].upper() + words[1:].rstrip(".") + "."


def method_name(data: ReportData) -> str:
    return _FULL_NAMES.get(data.method, data.method)


def sentences(data: ReportData) -> list[str]:
    """What was done, and how well: two of them."""
    summary, holes = data.summary, int((~data.frame.observed).sum())
    unit = f" {data.unit}" if data.unit else ""
    done = (
        f"{method_name(data)} filled {counted(holes, 'hole')} among the {data.frame.observed.size:,} cells "
        f"({percent(summary.missing_share)}) of {data.name}, which holds {counted(summary.sensors, 'sensor')} at steps "
        f"of {duration(summary.step)} from {moment(summary.start)} to {moment(summary.end)}; all that was measured "
        "stayed as it was."
    )
    if data.check is None:
        return [done, "The table is too small to hide some of its readings and see how well they are found again."]
    total = data.check.total
    held = "there are no error bars."
    if total.held:
        share = max(total.held)
        held = (
            f"{percent(total.held[share], decimals=0)} of them lie within their {percent(share, decimals=0)} intervals."
        )
    return [
        done,
        f"On {counted(total.cells, 'reading')} that were hidden to check it, its mean absolute error is "
        f"{number(total.mae)}{unit}, that of linear interpolation {number(total.mae_of_linear)}{unit}; {held}",
    ]


def _figures(data: ReportData) -> list[dict[str, str]]:
    """The few numbers that a reader takes away."""
    summary, flagged = data.summary, int(data.filled.flagged.to_numpy().sum())
    told = [
        {"value": f"{summary.sensors:,}", "label": "sensors", "kind": ""},
        {"value": percent(1 - summary.missing_share), "label": "measured", "kind": "measured"},
        {"value": percent(summary.missing_share), "label": "filled", "kind": "filled"},
        {"value": f"{flagged:,}", "label": "filled cells flagged", "kind": "flagged"},
    ]
    if data.check is not None and np.isfinite(data.check.total.gain):
        gain = data.check.total.gain
        than = f"{'smaller' if gain >= 0 else 'larger'} error than linear interpolation"
        told.append({"value": percent(abs(gain), decimals=0), "label": than, "kind": ""})
    return told


def _score_cells(scores: Scores, largest: float) -> dict[str, Any]:
    return {
        "cells": f"{scores.cells:,}",
        "mae": number(scores.mae),
        "linear": number(scores.mae_of_linear),
        "mae_bar": round(100 * scores.mae / largest, 1),
        "linear_bar": round(100 * scores.mae_of_linear / largest, 1),
        "held": [percent(scores.held[share], decimals=0) for share in sorted(scores.held)],
        "width": [number(scores.width[share]) for share in sorted(scores.width)],
    }


def _out_of_reach(data: ReportData) -> str:
    """What the check cannot tell."""
    check = data.check
    if check is None or check.beyond < _WORTH_TELLING:
        return ""
    told = (
        f"{percent(check.beyond, decimals=0)} of the filled values lie more than "
        f"{duration(data.frame.step, check.reach)} from their sensor's nearest reading, farther than what was hidden "
        "here: how good those are this check cannot tell."
    )
    return told + (" Their intervals are less certain than the rest." if check.total.held else "")


def _kriging(data: ReportData) -> str:
    """What the arrows and weights leave out: they are of the network, and kriging may be mixed into its values."""
    shares = data.kriging_shares
    if not any(shares):
        return ""
    least, most = (percent(share, decimals=0) for share in (min(shares), max(shares)))
    how = most if least == most else f"{least.rstrip('%')} to {most}, by the distance to the sensor's nearest reading"
    return f"A part of every value ({how}) is kriging's estimate, which is not shown here."


def _gap_rows(data: ReportData) -> list[dict[str, Any]]:
    check: HiddenCheck | None = data.check
    if check is None:
        return []
    every = (*check.by_gap.values(), check.total)
    largest = max(max(one.mae, one.mae_of_linear) for one in every) or 1.0
    rows = [
        {"label": span(data.frame.step, *GAP_LENGTHS[label]), **_score_cells(one, largest)}
        for label, one in check.by_gap.items()
    ]
    return [*rows, {"label": "all", **_score_cells(check.total, largest)}]


def _sensor_rows(data: ReportData) -> list[dict[str, Any]]:
    observed, by_sensor = data.frame.observed, {} if data.check is None else data.check.by_sensor
    rows: list[dict[str, Any]] = []
    for place, sensor in enumerate(data.frame.sensors):
        gaps = runs(~observed[:, place])
        longest = int(gaps[:, 1].max()) if len(gaps) else 0
        scores = by_sensor.get(sensor)
        rows.append(
            {
                "sensor": sensor,
                "measured": percent(float(observed[:, place].mean())),
                "longest": duration(data.frame.step, longest) if longest else "none",
                "scores": None if scores is None else _score_cells(scores, 1.0),
                "remark": data.filled.flagged_sensors.get(sensor, ""),
            }
        )
    return rows


def _by_reason(flagged: dict[str, str]) -> dict[str, list[str]]:
    sensors: dict[str, list[str]] = {}
    for sensor, reason in flagged.items():
        sensors.setdefault(reason, []).append(sensor)
    return sensors


def _looks(data: ReportData) -> dict[str, str]:
    """What `casper check` tells, in the words of this page."""
    summary, gaps = data.summary, data.summary.gaps
    longest = "none"
    if gaps.longest_sensor is not None and gaps.longest_start is not None and gaps.longest_end is not None:
        longest = (
            f"{duration(summary.step, gaps.longest)}, sensor {gaps.longest_sensor}, "
            f"{moment(gaps.longest_start)} to {moment(gaps.longest_end)}"
        )
    return {
        "period": f"{moment(summary.start)} to {moment(summary.end)}{zone_words(data)}",
        "step": f"{duration(summary.step)}; {counted(summary.steps, 'step')}",
        "missing": _missing(data.summary),
        "gaps": f"{gaps.count:,}; half of them no longer than {duration(summary.step, gaps.median)}"
        if gaps.count
        else "none",
        "longest gap": longest,
        "sensors that never report": _listed(summary.dead),
        "that hardly report (below 5%)": _listed(summary.nearly_dead),
        "that always report one value": _listed(summary.constant),
    }


def _missing(summary: TableSummary) -> str:
    if not summary.missing_share:
        return "none"
    silent = f"; at {percent(summary.blackout_share)} of the steps no sensor reports" if summary.blackout_share else ""
    return f"{percent(summary.missing_share)} of all cells{silent}"


def zone_words(data: ReportData) -> str:
    """Charts show one clock for the whole period, that of its first step."""
    start = data.frame.times[0]
    return "" if start.tzinfo is None else f" (clock: UTC{start:%z})"


def _listed(names: tuple[str, ...]) -> str:
    return f"{len(names)}: {', '.join(names)}" if names else "none"


def _gap_bars(data: ReportData) -> list[dict[str, Any]]:
    cells = data.summary.gaps.cells_by_length
    total = sum(cells.values())
    return [
        {
            "label": span(data.frame.step, *GAP_LENGTHS[label]),
            "cells": f"{count:,}",
            "share": round(100 * count / total, 1),
        }
        for label, count in cells.items()
        if total
    ]
