"""python -m benchmarks.attention: one layer of causal attention, ours beside what a user would pick instead.

Parts: speed (time, peak memory and error on the shapes of the published data sets), correctness (error on odd sizes),
growth (twice the sensors, twice the steps), size (training step and inference of whole large networks).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks import size, targets
from benchmarks.ceilings import Ceilings, count, roofline
from benchmarks.contestants import EDGE_LIST, PADDED, as_version, contestant, our_versions
from benchmarks.cpu_memory import Specification, available_bytes, peak_bytes_in_a_process
from benchmarks.layer import Contestant, LayerInputs, there_and_back
from benchmarks.measure import errors, first_line, peak_bytes_on_gpu, reference, tidy, time_it
from benchmarks.record import Record, default_path, make_console
from benchmarks.shapes import NAMES, PUBLISHED, Shape, growing_shape, named_shape, random_ragged
from benchmarks.tables import attention_tables, measurement_line, memory, milliseconds

HEADS, BATCH = 4, 8
PARTS = ("speed", "correctness", "growth", "size")
DEFAULTS: dict[str, dict[str, Any]] = {
    "cuda": {
        "shapes": list(PUBLISHED),
        "dtypes": ["bfloat16", "float32"],
        "growth_sensors": [250, 500, 1000, 2000, 4000, 8000, 16_000],
        "growth_steps": [12, 24, 48, 96, 192],
        "parts": list(PARTS),
        "seconds": 0.3,
        "compile_until": 400.0,
    },
    "cpu": {
        "shapes": ["aqi36"],
        "dtypes": ["float32"],
        "growth_sensors": [125, 250, 500, 1000],
        "growth_steps": [12, 24, 48],
        "parts": ["speed", "correctness", "growth"],
        "seconds": 3.0,
        "compile_until": 3600.0,
    },
}
GROWTH_STEPS, GROWTH_SENSORS = 24, 250
"""What stays while the other grows."""
ODD = ((37, 61, 23, 28), (5, 4, 1, 12), (61, 300, 50, 20), (7, 42, 67, 64))
"""Sensors, edges, steps, width of odd shapes: sensors without neighbour, one step, all joined to all."""
ODD_BATCH = 3


class Run:
    """One run of the command: its options, where it runs, and its record."""

    def __init__(self, options: argparse.Namespace, record: Record, console: Console) -> None:
        self.options, self.record, self.console = options, record, console
        self.device = torch.device(options.device)
        self.versions = [as_version(name) for name in options.versions or our_versions(self.device)]
        self.ceilings: Ceilings | None = None

    def save(self) -> None:
        self.record.save(targets.of_attention(self.record.parts, self.device.type))

    def say(self, *what: object) -> None:
        self.console.print(f"{self.record.seconds:6.1f} s ", *what)


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = _parse(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    path = options.out or default_path("attention", options.device)
    record = Record(path, module="benchmarks.attention", arguments=arguments, seed=options.seed, device=options.device)
    console = make_console()
    run = Run(options, record, console)
    parts: dict[str, Callable[[Run], None]] = {
        "ceilings": _ceilings,
        "speed": _speed,
        "correctness": _correctness,
        "growth": _growth,
        "size": _size,
    }
    for name in ("ceilings", *options.parts):
        try:
            parts[name](run)
        except Exception as error:  # one part's failure must not cost the others
            record.failed[name] = first_line(error)
            console.print_exception()
        run.save()
    attention_tables(console, record.parts, targets.of_attention(record.parts, run.device.type))
    console.print(f"{path}, {record.seconds:.0f} s")
    return 1 if record.failed else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention", description=__doc__)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cuda", "cpu"), default=device)
    parser.add_argument("--shapes", nargs="+", metavar="NAME", help=f"{', '.join(NAMES)}, or sensors x steps: 250x24")
    parser.add_argument("--widths", nargs="+", type=int, default=[32, 64])
    parser.add_argument("--dtypes", nargs="+", choices=("bfloat16", "float32"))
    parser.add_argument("--parts", nargs="+", choices=PARTS)
    parser.add_argument("--versions", nargs="+", help="ours; the first is compared (default: what the device gets)")
    parser.add_argument("--against", nargs="*", choices=(EDGE_LIST, PADDED), default=[EDGE_LIST, PADDED])
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--growth-sensors", nargs="+", type=int)
    parser.add_argument("--growth-steps", nargs="+", type=int)
    parser.add_argument("--training-sensors", type=int, default=10_000, help="sensors of the part size's training step")
    parser.add_argument("--inference-sensors", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, help="time of one measurement")
    parser.add_argument("--sets", type=int, default=3, help="input sets that take turns")
    parser.add_argument("--no-compile", action="store_true", help="padded neighbours as they are")
    parser.add_argument("--compile-until", type=float, help="seconds after which nothing is compiled")
    parser.add_argument("--no-memory", action="store_true", help="no peak memory (on a CPU it takes a process each)")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data-dir", type=Path, help="folder of the distances (or CASPER_DATA); else made-up graphs")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    for name, value in DEFAULTS[options.device].items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def _ceilings(run: Run) -> None:
    run.ceilings = Ceilings.measure(run.device, seconds=min(0.3, run.options.seconds))
    run.record.parts["ceilings"] = asdict(run.ceilings)
    tidy()
    run.say("ceilings", ", ".join(f"{name} {rate:.3g}" for name, rate in asdict(run.ceilings).items()))


# ---------------------------------------------------------------- speed


def _speed(run: Run) -> None:
    cases: list[dict[str, Any]] = []
    run.record.parts["speed"] = cases
    for name in run.options.shapes:
        shape = named_shape(name, data_dir=run.options.data_dir, seed=run.options.seed)
        for width in run.options.widths:
            for dtype in run.options.dtypes:
                cases.append(_new_case(run, shape, width=width, dtype=dtype))
                _fill_case(run, shape, cases[-1])


def _new_case(run: Run, shape: Shape, *, width: int, dtype: str) -> dict[str, Any]:
    return {
        **shape.describe(),
        "batch": run.options.batch,
        "width": width,
        "heads": HEADS,
        "dtype": dtype,
        "ours": run.versions[0],
        "contestants": {},
    }


def _fill_case(run: Run, shape: Shape, case: dict[str, Any]) -> None:
    sets = _draw_sets(run, shape, width=case["width"], dtype=case["dtype"])
    try:
        _require_memory(run, _bytes_of_pairs(run, shape, case["width"], 8, padded=True) / run.options.batch)
        wanted = reference(shape.neighbourhood_on(run.device), sets[0])
    except (torch.OutOfMemoryError, MemoryError) as error:
        wanted, case["no_reference"] = None, first_line(error)
    for name in (*run.versions, *run.options.against):
        case["contestants"][name] = _measure(run, shape, case, name, sets, wanted)
        run.say(measurement_line(case, name))
        _compare(case)
        ours = case["contestants"][case["ours"]].get("milliseconds")
        dtype = getattr(torch, case["dtype"])
        work = count(shape, batch=case["batch"], width=case["width"], heads=HEADS, dtype=dtype)
        case["roofline"] = roofline(work, run.ceilings, ours)
        run.save()


def _draw_sets(run: Run, shape: Shape, *, width: int, dtype: str, batch: int | None = None) -> list[LayerInputs]:
    return [
        LayerInputs.draw(
            shape,
            batch=batch or run.options.batch,
            width=width,
            heads=HEADS,
            dtype=getattr(torch, dtype),
            device=run.device,
            seed=run.options.seed + number,
        )
        for number in range(run.options.sets)
    ]


def _measure(
    run: Run,
    shape: Shape,
    case: dict[str, Any],
    name: str,
    sets: Sequence[LayerInputs],
    wanted: Sequence[torch.Tensor] | None,
) -> dict[str, Any]:
    """Time, peak memory, error; or why there are none."""
    compiled = name == PADDED and not run.options.no_compile
    if compiled and run.record.seconds > run.options.compile_until:
        return {"skipped": f"nothing is compiled after {run.options.compile_until:g} s"}
    told: dict[str, Any] = {}
    try:
        if name in (EDGE_LIST, PADDED):
            size_of_number = getattr(torch, case["dtype"]).itemsize
            _require_memory(run, _bytes_of_pairs(run, shape, case["width"], size_of_number, padded=name == PADDED))
        one = contestant(name, compiled=compiled)
        told["how"] = one.how
        told |= _time_and_error(run, shape, one, sets, wanted)
        if not run.options.no_memory and run.device.type == "cpu":
            told["peak_bytes"] = peak_bytes_in_a_process(_specification(run, case, name, compiled=compiled))
    except (torch.OutOfMemoryError, MemoryError) as error:
        told["out_of_memory"] = first_line(error)
    except Exception as error:  # one contestant's failure must not cost the others
        told["failed"] = first_line(error)
    tidy()
    return told


def _time_and_error(
    run: Run, shape: Shape, one: Contestant, sets: Sequence[LayerInputs], wanted: Sequence[torch.Tensor] | None
) -> dict[str, Any]:
    neighbourhood = shape.neighbourhood_on(run.device)
    bound = [(one.bind(neighbourhood, inputs), inputs) for inputs in sets]
    calls = [partial(there_and_back, forward, inputs) for forward, inputs in bound]
    told: dict[str, Any] = {}
    if wanted is not None:
        told["errors"] = errors(calls[0](), wanted)
    if run.device.type == "cuda" and not run.options.no_memory:
        told["peak_bytes"] = peak_bytes_on_gpu(calls[0])
    return {**told, **time_it(calls, run.device, seconds=run.options.seconds)}


def _specification(run: Run, case: dict[str, Any], name: str, *, compiled: bool) -> Specification:
    folder = run.options.data_dir
    return Specification(
        contestant=name,
        shape=case["shape"],
        data_dir=None if folder is None else str(folder),
        batch=case["batch"],
        width=case["width"],
        heads=HEADS,
        dtype=case["dtype"],
        seed=run.options.seed,
        compiled=compiled,
        threads=torch.get_num_threads(),
    )


def _bytes_of_pairs(run: Run, shape: Shape, width: int, size_of_number: int, *, padded: bool) -> float:
    """About what a contestant holds that keeps all messages: messages, what they are made of, and their gradients."""
    edges = shape.neighbourhood.index.numel() if padded else shape.edges
    return 5.5 * run.options.batch * edges * shape.steps**2 * width * size_of_number


def _require_memory(run: Run, needed: float) -> None:
    """A GPU refuses what does not fit; on a CPU the system ends the process instead, so it is refused beforehand."""
    if run.device.type == "cpu" and needed > available_bytes():
        raise MemoryError(f"needs about {needed / 2**30:.0f} GiB, {available_bytes() / 2**30:.0f} GiB are free")


def _compare(case: dict[str, Any]) -> None:
    """The others' time and memory as multiples of ours."""
    ours = case["contestants"][case["ours"]]
    case["ratios"] = {
        f"{what} of {name}": entry[key] / ours[key]
        for name, entry in case["contestants"].items()
        if name != case["ours"]
        for what, key in (("time", "milliseconds"), ("memory", "peak_bytes"))
        if entry.get(key) and ours.get(key)
    }


# ---------------------------------------------------------------- correctness, growth, size


def _correctness(run: Run) -> None:
    cases: list[dict[str, Any]] = []
    run.record.parts["correctness"] = cases
    for sensors, edges, steps, width in ODD:
        neighbourhood = random_ragged(sensors=sensors, edges=edges, seed=run.options.seed)
        shape = Shape(f"{sensors}/{edges}/{steps}", steps, neighbourhood, f"random, seed {run.options.seed}")
        here = shape.neighbourhood_on(run.device)
        for dtype in run.options.dtypes:
            inputs = _draw_sets(run, shape, width=width, dtype=dtype, batch=ODD_BATCH)[0]
            wanted = reference(here, inputs)
            found: dict[str, Any] = {}
            for version in run.versions:
                try:
                    forward = contestant(version, compiled=False).bind(here, inputs)
                    found[version] = errors(there_and_back(forward, inputs), wanted)
                except Exception as error:  # nor one version's
                    found[version] = {"failed": first_line(error)}
            cases.append({**shape.describe(), "width": width, "heads": HEADS, "dtype": dtype, "errors": found})
    run.say("correctness on", len(cases), "odd cases")


def _growth(run: Run) -> None:
    growth: dict[str, list[dict[str, Any]]] = {"sensors": [], "steps": []}
    run.record.parts["growth"] = growth
    axes = {
        "sensors": [(number, GROWTH_STEPS) for number in run.options.growth_sensors],
        "steps": [(GROWTH_SENSORS, number) for number in run.options.growth_steps],
    }
    for axis, sizes in axes.items():
        for sensors, steps in sizes:
            shape = growing_shape(sensors=sensors, steps=steps, seed=run.options.seed)
            case = _new_case(run, shape, width=run.options.widths[0], dtype=run.options.dtypes[0])
            sets = _draw_sets(run, shape, width=case["width"], dtype=case["dtype"])
            others = [name for name in run.options.against if name == EDGE_LIST]
            for name in (run.versions[0], *others):
                case["contestants"][name] = _measure(run, shape, case, name, sets, None)
                run.say(measurement_line(case, name))
            del sets
            case["over_previous"] = _over(case, growth[axis][-1], axis) if growth[axis] else None
            growth[axis].append(case)
            run.save()


def _over(case: dict[str, Any], before: dict[str, Any], axis: str) -> dict[str, float] | None:
    """Our time and memory as multiples of the previous size's, if this one is twice as large."""
    if case[axis] != 2 * before[axis]:
        return None
    mine, theirs = (one["contestants"][one["ours"]] for one in (case, before))
    keys = (("time", "milliseconds"), ("memory", "peak_bytes"))
    return {what: mine[key] / theirs[key] for what, key in keys if mine.get(key) and theirs.get(key)}


def _size(run: Run) -> None:
    found: dict[str, Any] = {}
    run.record.parts["size"] = found
    wanted = (
        ("training_step", run.options.training_sensors, size.training_step),
        ("inference", run.options.inference_sensors, size.inference),
    )
    for what, sensors, measure in wanted:
        shape = growing_shape(sensors=sensors, steps=GROWTH_STEPS, seed=run.options.seed)
        try:
            found[what] = measure(shape, run.device, seed=run.options.seed)
        except torch.OutOfMemoryError as error:
            found[what] = {**shape.describe(), "out_of_memory": first_line(error)}
        tidy()
        run.say(f"{what.replace('_', ' ')} of {sensors:,} sensors", milliseconds(found[what]), memory(found[what]))
        run.save()


if __name__ == "__main__":
    sys.exit(main())
