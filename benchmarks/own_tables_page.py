"""docs/own-tables.md, made from what `python -m benchmarks.own_tables` wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from casper.reproduction.cells import duration
from casper.reproduction.markdown import table

Result = Mapping[str, Any]

_WHAT = {
    "weather": "Simulated temperatures, smooth, with days and weather that passes over all stations",
    "traffic": "Speeds of every fifth sensor of METR-LA over six weeks",
    "air": "PM2.5 of AQI-36 in October and November 2014, without the cells that the benchmark scores",
}
INTRODUCTION = """# Tables like yours

Made by `python -m benchmarks.page` from `results/benchmark-own-tables-*.json`; do not edit it by hand.

What a user would try first, on tables with other steps and lengths than the published benchmarks. A fifth of the
readings is hidden, 8 % at single points and 12 % in runs of 4 to 48 steps, and scored. Every method has its default
settings; CASPER's is preset `fast`. Mean absolute error in the units of the table, in all and by the length of the gap
in steps; one seed. Times are upper bounds: other work may have run beside it. The simulated weather is made of Gaussian
processes, which suits kriging. The air's months are not those of any test; traffic ends before METR-LA's test
begins. How long kriging learns, alone and in preset `fast`, was settled on these tables with other holes (`--seed 0`),
and its correction was looked at with these, so the two rows flatter it a little; the other methods' settings were not
looked at here."""


def write_own_tables(results: Sequence[Result]) -> str:
    return "\n\n".join([INTRODUCTION, *(part for result in results for part in _of_result(result))]) + "\n"


def _of_result(result: Result) -> list[str]:
    text = [
        f"Measured on {result['device']}, commit `{str(result['commit'])[:10]}`:",
        f"```bash\n{result['command']}\n```",
    ]
    for name, about in result["tables"].items():
        scores = [score for score in result["scores"] if score["table"] == name]
        best = min(score["mae"] for score in scores)
        gaps = list(scores[0]["by_gap"])
        rows = [
            [
                score["method"],
                f"**{score['mae']:.3g}**" if score["mae"] == best else f"{score['mae']:.3g}",
                *("-" if score["by_gap"][gap] is None else f"{score['by_gap'][gap]:.3g}" for gap in gaps),
                duration(score["fitting_seconds"]),
                duration(score["filling_seconds"]),
            ]
            for score in scores
        ]
        text += [
            f"## {name.capitalize()}",
            f"{_WHAT[name]}: {about['sensors']} sensors, {about['steps']:,} steps of "
            f"{about['step_minutes']:g} minutes, {about['missing']:.1%} missing before anything is hidden.",
            table(["method", "MAE", *(f"gaps of {gap}" for gap in gaps), "fitted in", "filled in"], rows),
        ]
    return text
