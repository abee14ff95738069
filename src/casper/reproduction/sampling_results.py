"""Result files of `casper reproduce sampling`, and the part of docs/results.md that is made from them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from casper.reproduction.markdown import image, table
from casper.reproduction.result_files import read_records

FOLDER = "sampling"
"""Where these files lie, in the folder of results."""
PICTURE = "sampling.png"

_NEEDED = (
    "row", "dataset", "steps", "samples", "mae", "mse", "windows", "seconds_per_window", "command", "commit", "device",
    "seed",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SamplingResult:
    """steps: None where one pass is enough."""

    file: str
    row: str
    dataset: str
    steps: int | None
    samples: int
    mae: float
    mse: float
    windows: int
    seconds_per_window: float
    command: str
    commit: str | None
    device: str
    seed: int


def read_samplings(results: Path) -> tuple[SamplingResult, ...]:
    """Of a folder of results, cheapest first; none where there are none."""
    found = [
        SamplingResult(file=file, **{name: record[name] for name in _NEEDED})
        for file, record in read_records(results / FOLDER, _NEEDED)
    ]
    return tuple(sorted(found, key=lambda one: (one.dataset, one.row, (one.steps or 0) * one.samples, one.samples)))


def sampling_section(samplings: Sequence[SamplingResult], pictures: Collection[str]) -> str:
    if not samplings:
        return ""
    rows = [
        (
            one.dataset,
            one.row,
            "one pass" if one.steps is None else str(one.steps),
            "" if one.steps is None else str(one.samples),
            f"{one.mae:.2f} / {one.mse:.4g}",
            f"{1e3 * one.seconds_per_window:.3g} ms",
            one.device,
        )
        for one in samplings
    ]
    windows = ", ".join(dict.fromkeys(f"{one.windows} of {one.dataset}" for one in samplings))
    commands = "\n".join(dict.fromkeys(one.command for one in samplings))
    parts = (
        "## What sampling is worth",
        "The diffusion models fill a window in many steps, and an imputation is the median of many samples. MAE / MSE "
        f"per window over test windows that are evenly spread ({windows}), so not the figures of the other tables; "
        "CASPER with its shipped weights on the same windows. How long the diffusion models were trained stands with "
        "the other methods above. The largest number of steps is the one they were trained with.",
        image(PICTURE, "Error against the time per window", pictures),
        table(("data set", "method", "steps", "samples", "MAE / MSE", "time per window", "device"), rows),
        f"```bash\n{commands}\n```",
    )
    return "\n\n".join(part for part in parts if part)
