"""python -m benchmarks.page: docs/performance.md and its picture, with numbers from the result files alone."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contestants import EDGE_LIST, PADDED
from benchmarks.own_tables_page import write_own_tables
from benchmarks.plots import LABELS, entry_of, performance_picture, shape_name
from benchmarks.record import RESULTS
from benchmarks.tables import memory, milliseconds
from casper.errors import InputError
from casper.files import atomic
from casper.report.pictures import save
from casper.reproduction.markdown import table

PAGE, PICTURE = Path("docs/performance.md"), Path("docs/images/performance.png")
OWN_TABLES = Path("docs/own-tables.md")
DATA_NAMES = {"aqi36": "AQI-36", "metr-la-point": "METR-LA"}
PAGE_NAMES = {"demo": "demo", "aqi36": "AQI-36", "large": "simulated network"}
SEEN = {"words": "words", "library": "library runs", "first_chart": "first chart", "all_charts": "all charts"}
ATTENTION_NAMES = {"ours": "CASPER", "plain": "padded neighbours", EDGE_LIST: LABELS[EDGE_LIST]}

Result = Mapping[str, Any]

INTRODUCTION = """# How fast it is

Made by `python -m benchmarks.page` from the files `{pattern}`; every number below stands in one of them.

Causal attention looks at every pair of steps of every two neighbouring sensors. CASPER computes it in one pass and
keeps nothing of the size of these pairs. It is measured beside what a user would pick instead:

- **edge list**: both ends of every edge are gathered, a message is made for every pair of their steps, and messages are
  summed at their targets, as message-passing libraries do it
- **padded neighbours**: a table of neighbours for each sensor, in plain PyTorch, given to `torch.compile`

All compute the same function on the same random inputs, with {heads} heads, gates and a message for every pair. The
competitors get their gates' noise drawn beforehand, outside of the measured time; CASPER draws its own. Times are
medians of forward and backward together; on a GPU each contestant is launched step by step and as a replayed CUDA
graph, and the better time counts. Memory is the peak above the inputs. The error is the norm of the difference from the
plain version in float64, divided by the norm of that; the largest among the output and all gradients."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder with benchmark-*.json")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    parser.add_argument("--own-tables", type=Path, default=OWN_TABLES, help="page on tables like a user's")
    options = parser.parse_args(arguments)
    if own := read(options.results, "own_tables"):
        options.own_tables.parent.mkdir(parents=True, exist_ok=True)
        with atomic(options.own_tables) as temporary:
            temporary.write_text(write_own_tables(own), encoding="utf-8")
    attention, training, breakdown, agreement, report = (
        read(options.results, benchmark) for benchmark in ("attention", "training", "breakdown", "agreement", "report")
    )
    if not (attention or training or breakdown or agreement or report):
        if own:
            return 0
        raise InputError(f"{options.results} has no benchmark-*.json; run python -m benchmarks.attention first")
    picture = None
    if attention:
        picture = os.path.relpath(save(performance_picture(attention[0]), options.picture), options.page.parent)
    options.page.parent.mkdir(parents=True, exist_ok=True)
    with atomic(options.page) as temporary:
        written = write_page(attention, training, breakdown, agreement, report, picture, options.results)
        temporary.write_text(written, encoding="utf-8")
    return 0


def read(folder: Path, benchmark: str) -> list[dict[str, Any]]:
    """The result files of one benchmark, GPUs first."""
    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob("benchmark-*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        if result["benchmark"] == benchmark:
            found.append({**result, "file": path.name})
    return sorted(found, key=lambda result: result["device_kind"] != "cuda")


def write_page(
    attention: Sequence[Result],
    training: Sequence[Result],
    breakdown: Sequence[Result],
    agreement: Sequence[Result],
    report: Sequence[Result],
    picture: str | None,
    folder: Path,
) -> str:
    heads = {case["heads"] for result in attention for case in result.get("speed", ())} or {4}
    text = [INTRODUCTION.format(pattern=f"{folder.name}/benchmark-*.json", heads=" or ".join(map(str, sorted(heads))))]
    if picture is not None:
        text.append(f"![Time of one layer, and how it grows]({picture})")
    for result in attention:
        text += [f"## One layer on {result['device']}", *_attention_sections(result)]
    for result in training:
        text += [f"## The whole training loop on {result['device']}", *_training_sections(result)]
    for result in breakdown:
        text += [f"## Where the time of a training step goes on {result['device']}", *_breakdown(result)]
    for result in agreement:
        text += [f"## What is learned, on {result['device']}", _agreement(result)]
    for result in report:
        text += [f"## The report in a browser, on {result['device']}", *_report(result)]
    everything = (*attention, *training, *breakdown, *agreement, *report)
    targets = [(result, one) for result in everything for one in result.get("targets", ())]
    if targets:
        text += ["## What was promised", _promises(targets)]
    text += ["## Where the numbers come from", _origins(everything)]
    return "\n\n".join(text) + "\n"


def _attention_sections(result: Result) -> list[str]:
    text: list[str] = []
    if cases := result.get("speed"):
        text += [_speed(cases), _graphs(cases)]
        if any("floor_milliseconds" in case.get("roofline", {}) for case in cases):
            text += ["### Against what the hardware can do", _roofline(cases, result["ceilings"])]
    growth = result.get("growth", {})
    for axis in ("sensors", "steps"):
        if growth.get(axis):
            text += [f"### Growth with the number of {axis}", _growth(growth[axis], axis)]
    if size := result.get("size"):
        text += ["### Large networks", _size(size)]
    return text


def _speed(cases: Sequence[Result]) -> str:
    others = [who for who in (EDGE_LIST, PADDED) if any(who in case["contestants"] for case in cases)]
    header = ["graph", "width", "numbers", "CASPER"]
    header += [cell for who in others for cell in (LABELS[who], "times CASPER's")]
    header += ["CASPER's memory", *(f"memory, {LABELS[who]}" for who in others), "CASPER's error"]
    rows: list[list[str]] = []
    for case in cases:
        ours = entry_of(case, "ours")
        row = [shape_name(case), str(case["width"]), case["dtype"], milliseconds(ours)]
        for who in others:
            row += [milliseconds(entry_of(case, who)), _times(case.get("ratios", {}).get(f"time of {who}"))]
        row += [memory(ours), *(memory(entry_of(case, who)) for who in others)]
        error = ours.get("errors", {}).get("worst")
        rows.append([*row, "-" if error is None else f"{error:.1e}"])
    how = list(
        dict.fromkeys(entry["how"] for case in cases for entry in case["contestants"].values() if "how" in entry)
    )
    return "\n".join((table(header, rows), "", f"In words: {'; '.join(how)}."))


def _graphs(cases: Sequence[Result]) -> str:
    lines = dict.fromkeys(
        f"- {shape_name(case)}: {case['sensors']:,} sensors, {case['edges']:,} edges, "
        f"{case['steps']} steps, batch {case['batch']}; graph: {case['graph']}"
        for case in cases
    )
    return "\n".join(lines)


def _roofline(cases: Sequence[Result], ceilings: Result) -> str:
    measured = (
        f"Measured ceilings: {ceilings['bytes_per_second'] / 1e9:,.0f} GB/s copied, "
        f"{ceilings['multiply_adds_per_second'] / 1e12:.3g} T float32 multiply-adds/s, "
        f"{ceilings['special_functions_per_second'] / 1e12:.3g} T special functions/s. The floor is the longest of the "
        "times that the counted work takes at these rates (`benchmarks/ceilings.py` says what is counted)."
    )
    header = [
        "graph",
        "width",
        "numbers",
        "pairs",
        "special functions",
        "multiply-adds",
        "bytes",
        "floor",
        "CASPER / floor",
    ]
    rows: list[list[str]] = []
    for case in cases:
        work = case["roofline"]
        if "floor_milliseconds" not in work:
            continue
        needed = work["milliseconds_of"]
        rows.append(
            [
                shape_name(case),
                str(case["width"]),
                case["dtype"],
                f"{work['pairs'] / 1e6:.1f} M",
                *(f"{needed[what]:.3g} ms" for what in ("special_functions", "multiply_adds", "bytes")),
                f"{work['floor_milliseconds']:.3g} ms ({work['bound'].replace('_', ' ')})",
                _times(work.get("measured_over_floor")),
            ]
        )
    return f"{measured}\n\n{table(header, rows)}"


def _growth(cases: Sequence[Result], axis: str) -> str:
    header = [axis, "CASPER", "over previous", "memory", "over previous", LABELS[EDGE_LIST], "its memory"]
    rows: list[list[str]] = []
    for case in cases:
        over, ours, theirs = case.get("over_previous") or {}, entry_of(case, "ours"), entry_of(case, EDGE_LIST)
        row = [f"{case[axis]:,}", milliseconds(ours), _times(over.get("time"))]
        rows.append([*row, memory(ours), _times(over.get("memory")), milliseconds(theirs), memory(theirs)])
    return table(header, rows)


def _size(size: Result) -> str:
    names = {"training_step": "training step (forward, backward, Adam)", "inference": "inference"}
    rows = [
        [
            names[what],
            f"{one['sensors']:,}",
            f"{one['most_neighbours']}",
            f"{one['steps']}",
            milliseconds(one),
            memory(one),
        ]
        for what, one in size.items()
    ]
    return table(["what", "sensors", "neighbours", "steps", "time", "peak memory"], rows)


def _training_sections(result: Result) -> list[str]:
    header = ["data", "layers", "width", "precision", "attention", "one step", "peak memory"]
    rows = [
        [
            _data_name(step),
            str(step["layers"]),
            str(step["width"]),
            step["precision"],
            ATTENTION_NAMES[step["attention"]] + (", compiled" if step["compiled"] else ""),
            milliseconds(step),
            memory(step),
        ]
        for step in result.get("steps", ())
    ]
    text = [table(header, rows)] if rows else []
    if jobs := result.get("imputing"):
        taken = [f"{one['seconds']:.2f} s" if "seconds" in one else "out of memory" for one in jobs]
        names = [f"{_data_name(one)}: {one['what']}" for one in jobs]
        text.append(table(["imputing", "time"], [list(row) for row in zip(names, taken, strict=True)]))
    return text


def _breakdown(result: Result) -> list[str]:
    text: list[str] = []
    for step in result["steps"]:
        total = sum(one["milliseconds"] for one in step["groups"])
        rows = [
            [
                one["group"],
                f"{one['milliseconds']:.2f} ms",
                f"{one['milliseconds'] / total:.0%}",
                f"{one['launches']:.0f}",
            ]
            for one in step["groups"]
        ]
        text.append(f"{_data_name(step)}, {step['precision']}, compiled: {total:.2f} ms of kernels in a step.")
        text.append(table(["part", "time", "share", "launches"], rows))
    return text


def _agreement(result: Result) -> str:
    """The best validation errors with the plain attention and with the fast path."""
    rows = [
        [
            one["contestant"],
            ", ".join(f"{error:.2f}" for error in one["best"]),
            f"{one['mean']:.2f}",
            "-" if one["standard_errors_apart"] is None else f"{one['standard_errors_apart']:.2f}",
        ]
        for one in result["summary"]
    ]
    said = (
        f"{_data_name(result)}, preset paper cut to {result['steps']:,} steps: best validation error of each seed. "
        "Seeds are the same for all, and so are the windows, gaps and gates they draw."
    )
    return f"{said}\n\n{table(['attention', 'best errors', 'mean', 'standard errors from plain'], rows)}"


def _report(result: Result) -> list[str]:
    """How large the pages are, and how long until a reader sees words and charts."""
    views = {view: one for page in result["pages"] for view, one in page["milliseconds"].items()}
    said = (
        f"Pages of `casper report`, opened from disk in {result['browser']}. Sentences and tables are "
        "there first; the charts' library is unpacked and started, and then one chart is drawn after the other. "
        + " ".join(
            f"{view.capitalize()}: {one['width']} pixels wide"
            + (f", the processor made {one['slower']} times slower." if one["slower"] > 1 else ".")
            for view, one in views.items()
        )
    )
    header = ["page", "sensors", "steps", "written in", "size", "of it library", "numbers", "words"]
    sizes = [
        [
            PAGE_NAMES[one["name"]],
            f"{one['sensors']:,}",
            f"{one['steps']:,}",
            f"{one['seconds_to_write']:.0f} s",
            *(f"{one['bytes'][part] / 1e6:.2f} MB" for part in ("page", "library", "numbers", "words")),
        ]
        for one in result["pages"]
    ]
    times = [
        [
            PAGE_NAMES[one["name"]],
            *(f"{seen[what] / 1000:.1f} s" for seen in one["milliseconds"].values() for what in SEEN),
        ]
        for one in result["pages"]
    ]
    waits = ["page", *(f"{view}: {words}" for view in views for words in SEEN.values())]
    return [said, table(header, sizes), table(waits, times)]


def _promises(targets: Iterable[tuple[Result, Result]]) -> str:
    words = {True: "yes", False: "**no**", None: "not measured"}
    rows = [
        [
            result["device"],
            one["what"],
            one["target"],
            "-" if one["measured"] is None else f"{one['measured']:.3g}",
            words[one["met"]],
        ]
        for result, one in targets
    ]
    return table(["device", "what", "target", "measured", "met"], rows)


def _origins(results: Sequence[Result]) -> str:
    lines: list[str] = []
    for one in results:
        versions = ", ".join(f"{name} {version}" for name, version in one["versions"].items() if version)
        lines.append(
            f"- `{one['file']}`: `{one['command']}` at commit {one['commit']}, seed {one['seed']}, on {one['device']}, "
            f"in {one['wall_seconds']:.0f} s; {versions}"
        )
        lines += [f"  - the part {part} failed: {why}" for part, why in one.get("failed", {}).items()]
    return "\n".join(lines)


def _data_name(one: Result) -> str:
    return DATA_NAMES.get(one["data"]) or str(one["data"])


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.1f} x" if ratio >= 10 else f"{ratio:.2f} x"


if __name__ == "__main__":
    sys.exit(main())
