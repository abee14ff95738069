"""Tables for README and docs, made from the result files that `casper evaluate --out` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from casper.errors import InputError
from casper.files import atomic

START, END = "<!-- results:start -->", "<!-- results:end -->"
_NEEDED = ("dataset", "method", "mae", "mse", "mae_step", "mse_step", "command", "commit", "device", "wall_seconds")


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Every result file of a folder, by data set, best first; each must say where it came from.

    Measurements of speed (benchmark-*.json) are another kind of result and stay out of the table.
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder} with result files")
    records: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.json")):
        if path.name.startswith("benchmark-"):
            continue
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(f"{path} is not readable JSON: {error}") from error
        lacking = [key for key in _NEEDED if key not in record]
        if lacking:
            raise InputError(f"{path} does not say its {', '.join(lacking)}; write it again with casper evaluate --out")
        records.append({**record, "file": path.name})
    return sorted(records, key=lambda record: (record["dataset"], record["mae"]))


def markdown_table(records: list[dict[str, Any]]) -> str:
    """MAE and MSE, counted per window and per step as the protocols do, with the time and the file of each figure."""
    lines = [
        "| data set | method | MAE | MSE | MAE per step | MSE per step | fit and score | device | file |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for record in records:
        cells = (
            record["dataset"],
            record["method"],
            f"{record['mae']:.2f}",
            f"{record['mse']:.1f}",
            f"{record['mae_step']:.2f}",
            f"{record['mse_step']:.1f}",
            _duration(record["wall_seconds"]),
            record["device"],
            f"`{record['file']}`",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def fill_in(document: Path, table: str) -> None:
    """Put the table between the marks of a document."""
    text = document.read_text(encoding="utf-8")
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise InputError(f"{document} has no place for the table: add the lines {START} and {END}")
    with atomic(document) as temporary:
        temporary.write_text(f"{before}{START}\n{table}\n{END}{after}", encoding="utf-8")


def _duration(seconds: float) -> str:
    if seconds < 1:
        return "< 1 s"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"
