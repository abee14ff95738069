"""What the benchmarks print: a line for each measurement, and tables at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.contestants import EDGE_LIST, PADDED

WORDS = {EDGE_LIST: "edge list", PADDED: "padded"}
_TROUBLE = ("out_of_memory", "failed", "skipped")


def measurement_line(case: Mapping[str, Any], name: str) -> str:
    entry = case["contestants"][name]
    where = f"{case['shape']:>12} width {case['width']} {case['dtype']:>8}  {WORDS.get(name, name):<16}"
    trouble = [f"{kind.replace('_', ' ')}: {entry[kind]}" for kind in _TROUBLE if kind in entry]
    error = entry.get("errors", {}).get("worst")
    told = [
        milliseconds(entry),
        memory(entry),
        entry.get("launched", ""),
        "" if error is None else f"error {error:.1e}",
    ]
    return " ".join((where, *(part for part in told if part != "-"), *trouble))


def attention_tables(console: Console, parts: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> None:
    if parts.get("speed"):
        console.print(_speed_table(parts["speed"]))
    for axis in ("sensors", "steps"):
        if parts.get("growth", {}).get(axis):
            console.print(_growth_table(parts["growth"][axis], axis))
    targets_table(console, found)


def targets_table(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    table = Table("target", "wanted", "measured", "met")
    for one in found:
        measured = "-" if one["measured"] is None else f"{one['measured']:.4g}"
        table.add_row(one["what"], one["target"], measured, {True: "yes", False: "NO", None: "?"}[one["met"]])
    console.print(table)


def _speed_table(cases: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("shape", "width", "dtype", "", title="one layer, forward and backward")
    for column in ("time", "of ours", "memory", "of ours", "error", "over floor", "launched"):
        table.add_column(column, justify="right")
    for case in cases:
        floor = case.get("roofline", {}).get("floor_milliseconds")
        for name, entry in case["contestants"].items():
            ratios = [_times(case.get("ratios", {}).get(f"{what} of {name}")) for what in ("time", "memory")]
            taken, error = entry.get("milliseconds"), entry.get("errors", {}).get("worst")
            table.add_row(
                case["shape"],
                str(case["width"]),
                case["dtype"],
                WORDS.get(name, name),
                milliseconds(entry),
                ratios[0],
                memory(entry),
                ratios[1],
                "-" if error is None else f"{error:.1e}",
                _times(taken / floor if taken and floor else None),
                entry.get("launched", "-"),
            )
        table.add_section()
    return table


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.1f} x"


def _growth_table(cases: Sequence[Mapping[str, Any]], axis: str) -> Table:
    names = list(cases[0]["contestants"])
    table = Table(axis, title=f"growth with {axis}")
    for name in names:
        table.add_column(f"{WORDS.get(name, name)}", justify="right")
        table.add_column("memory", justify="right")
    for column in ("time over\nprevious", "memory over\nprevious"):
        table.add_column(column, justify="right")
    for case in cases:
        over = case.get("over_previous") or {}
        entries = [case["contestants"][name] for name in names]
        cells = [cell for entry in entries for cell in (milliseconds(entry), memory(entry))]
        ratios = [f"{over[key]:.2f}" if key in over else "" for key in ("time", "memory")]
        table.add_row(f"{case[axis]:,}", *cells, *ratios)
    return table


def milliseconds(entry: Mapping[str, Any]) -> str:
    if entry.get("milliseconds") is None:
        return "no memory" if "out_of_memory" in entry else "-"
    taken = entry["milliseconds"]
    return f"{taken / 1000:.3g} s" if taken >= 1000 else f"{taken:.3g} ms"


def memory(entry: Mapping[str, Any]) -> str:
    peak = entry.get("peak_bytes")
    if peak is None:
        return "-"
    return f"{peak / 2**30:.2f} GiB" if peak >= 2**30 else f"{peak / 2**20:.1f} MiB"


def training_line(step: Mapping[str, Any]) -> str:
    trouble = [f"{kind.replace('_', ' ')}: {step[kind]}" for kind in _TROUBLE if kind in step]
    return " ".join((f"{milliseconds(step)} a step", memory(step), *trouble))


def training_table(parts: Mapping[str, Any]) -> Table:
    table = Table("data", "precision", "attention", title="the real training loop, and imputation")
    for column in ("one step", "memory"):
        table.add_column(column, justify="right")
    for step in parts["steps"]:
        attention = f"{WORDS.get(step['attention'], step['attention'])}{', compiled' if step['compiled'] else ''}"
        cells = (step["data"], step["precision"], attention)
        table.add_row(*cells, milliseconds(step), memory(step))
    for job in parts["imputing"]:
        taken = f"{job['seconds']:.2f} s" if "seconds" in job else "no memory"
        table.add_row(f"{job['data']}: {job['what']}", "", "ours", taken, "")
    return table


def agreement_table(summary: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("", "best validation errors", "mean", "deviation", title="trained with other attentions")
    for one in summary:
        best = ", ".join(f"{error:.3f}" for error in one["best"])
        table.add_row(one["contestant"], best, f"{one['mean']:.3f}", _plain_number(one["deviation"]))
    return table


def _plain_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
