"""What was promised, and whether a result keeps it. A target that could not be measured is neither met nor missed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.contestants import EDGE_LIST, PADDED

Target = dict[str, Any]

FASTER = {"cuda": {EDGE_LIST: 10.0, PADDED: 3.0}, "cpu": {EDGE_LIST: 3.0}}
SMALLER = {"cuda": 20.0, "cpu": 10.0}
"""Peak memory is to be the edge list's divided by this."""
LARGEST_ERROR = {"float32": 1e-5, "bfloat16": 1e-2}
TOLERANCE = 1.1
DOUBLING = {"sensors": (2.0, 2.0), "steps": (4.0, 2.0)}
"""Doubling this may multiply time and memory by so much, within the tolerance."""
TRAINING_BYTES = 16 * 2**30
SEED_NOISE = 2.0
"""So many standard errors the mean validation error may move."""
STEP_MILLISECONDS = {"aqi36": 3.5, "metr-la-point": 7.0}
IMPUTING_SECONDS = {("cuda", "metr-la-point", "test range"): 10.0, ("cpu", "aqi36", "whole table"): 30.0}


def target(what: str, wanted: str, measured: float | None, *, met: bool | None) -> Target:
    finite = measured is not None and math.isfinite(measured)
    return {"what": what, "target": wanted, "measured": measured if finite else None, "met": met}


def at_least(what: str, bound: float, measured: float | None, unit: str) -> Target:
    return target(what, f"at least {bound:g} {unit}", measured, met=None if measured is None else measured >= bound)


def at_most(what: str, bound: float, measured: float | None, unit: str) -> Target:
    return target(what, f"at most {bound:g} {unit}", measured, met=None if measured is None else measured <= bound)


def of_attention(parts: Mapping[str, Any], device: str) -> list[Target]:
    return [
        *(one for case in parts.get("speed", ()) for one in _of_case(case, device)),
        *(_of_error(case, name) for case in parts.get("correctness", ()) for name in case["errors"]),
        *_of_growth(parts.get("growth", {})),
        *_of_size(parts.get("size", {})),
    ]


def _of_case(case: Mapping[str, Any], device: str) -> list[Target]:
    where = f"{case['shape']}, width {case['width']}, {case['dtype']}"
    ratios, ours = case.get("ratios", {}), case["contestants"].get(case["ours"], {})
    found = [
        at_least(f"{where}: faster than {name}", bound, ratios.get(f"time of {name}"), "x")
        for name, bound in FASTER[device].items()
        if name in case["contestants"]
    ]
    if EDGE_LIST in case["contestants"]:
        memory = ratios.get(f"memory of {EDGE_LIST}")
        found.append(at_least(f"{where}: less memory than {EDGE_LIST}", SMALLER[device], memory, "x"))
    error = math.inf if "failed" in ours else ours.get("errors", {}).get("worst")
    return [*found, _error_target(f"{where}: error against float64", case["dtype"], error)]


def _of_error(case: Mapping[str, Any], version: str) -> Target:
    what = f"{case['shape']}, width {case['width']}, {case['dtype']}, {version}: error against float64"
    found = case["errors"][version]
    return _error_target(what, case["dtype"], math.inf if "failed" in found else found["worst"])


def _error_target(what: str, dtype: str, error: float | None) -> Target:
    bound = LARGEST_ERROR[dtype]
    return target(what, f"under {bound:g}", error, met=None if error is None else error < bound)


def _of_growth(growth: Mapping[str, Any]) -> list[Target]:
    found: list[Target] = []
    for axis, (time_bound, memory_bound) in DOUBLING.items():
        doublings = [one for one in growth.get(axis, ()) if one.get("over_previous")]
        for key, bound in (("time", time_bound), ("memory", memory_bound)):
            worst = _largest([one["over_previous"].get(key) for one in doublings])
            what = f"{key} when {axis} double, largest ratio"
            if doublings:
                found.append(at_most(what, round(bound * TOLERANCE, 2), worst, "x"))
    return found


def _largest(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known else None


def _of_size(size: Mapping[str, Any]) -> list[Target]:
    found: list[Target] = []
    if step := size.get("training_step"):
        peak = step.get("peak_bytes")
        what = f"training step of {step['sensors']:,} sensors: peak memory"
        wanted = f"under {TRAINING_BYTES // 2**30} GiB"
        gibibytes = None if peak is None else peak / 2**30
        met = False if "out_of_memory" in step else None if peak is None else peak < TRAINING_BYTES
        found.append(target(what, wanted, gibibytes, met=met))
    if inference := size.get("inference"):
        done = inference.get("milliseconds")
        found.append(target(f"inference of {inference['sensors']:,} sensors", "runs", done, met=done is not None))
    return found


def of_training(parts: Mapping[str, Any], device: str) -> list[Target]:
    found: list[Target] = []
    for step in parts.get("steps", ()):
        as_in_long_trainings = step["attention"] == "ours" and step["compiled"]
        if device == "cuda" and as_in_long_trainings and step["data"] in STEP_MILLISECONDS:
            what = f"{step['data']}: training step, compiled, {step['precision']}"
            found.append(at_most(what, STEP_MILLISECONDS[step["data"]], step.get("milliseconds"), "ms"))
    for imputing in parts.get("imputing", ()):
        bound = IMPUTING_SECONDS.get((device, imputing["data"], imputing["job"]))
        if bound is not None:
            what = f"{imputing['data']}: {imputing['what']}"
            found.append(at_most(what, bound, imputing.get("seconds"), "s"))
    return found


def of_agreement(parts: Mapping[str, Any]) -> list[Target]:
    return [
        at_most(
            f"{parts['data']}: validation error, {one['contestant']} against plain",
            SEED_NOISE,
            one["standard_errors_apart"],
            "standard errors apart",
        )
        for one in parts.get("summary", ())
        if one["contestant"] != "plain"
    ]
