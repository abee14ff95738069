"""Time, peak memory and error of one layer, forward and backward, on a GPU or a CPU."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from benchmarks.layer import TENSORS, LayerInputs, Ours, there_and_back
from casper.network.neighbourhood import Neighbourhood

Call = Callable[[], object]
FEWEST, MOST = 3, 500
"""Repeats of a measurement, however long or short one takes."""
WARM_UP = 3


@dataclass(frozen=True)
class Timing:
    """The median of many repeats, in milliseconds, with the quartiles around it."""

    milliseconds: float
    quartiles: tuple[float, float]
    repeats: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Timing:
        low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
        return cls(middle, (low, high), len(samples))

    def to_dict(self) -> dict[str, Any]:
        return {"milliseconds": self.milliseconds, "quartiles": list(self.quartiles), "repeats": self.repeats}


def time_it(calls: Sequence[Call], device: torch.device, *, seconds: float) -> dict[str, Any]:
    """Each call is the same work on other inputs. On a GPU both launched one by one and replayed as one CUDA graph;
    `milliseconds` is the better of the two and `launched` says which."""
    if device.type != "cuda":
        return {**_time_on_cpu(calls, seconds=seconds).to_dict(), "launched": "eager"}
    eager = _time_on_gpu(calls, seconds=seconds)
    told: dict[str, Any] = {**eager.to_dict(), "launched": "eager", "eager_milliseconds": eager.milliseconds}
    try:
        replayed = _time_graph(calls, seconds=seconds)
    except Exception as error:  # whatever hinders the recording, the eager time stands
        torch.cuda.synchronize()
        return {**told, "graph_milliseconds": None, "graph_failed": first_line(error)}
    told["graph_milliseconds"] = replayed.milliseconds
    if replayed.milliseconds < eager.milliseconds:
        told |= {**replayed.to_dict(), "launched": "CUDA graph"}
    return told


def _time_on_cpu(calls: Sequence[Call], *, seconds: float) -> Timing:
    begun = time.perf_counter()
    calls[0]()
    repeats = _repeats(time.perf_counter() - begun, seconds)
    samples: list[float] = []
    for number in range(repeats):
        begun = time.perf_counter()
        calls[number % len(calls)]()
        samples.append(1e3 * (time.perf_counter() - begun))
    return Timing.of(samples)


def _time_on_gpu(calls: Sequence[Call], *, seconds: float) -> Timing:
    for number in range(WARM_UP):
        calls[number % len(calls)]()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    calls[0]()
    torch.cuda.synchronize()
    repeats = _repeats(time.perf_counter() - begun, seconds)
    marks = [_event() for _ in range(repeats + 1)]
    marks[0].record()
    for number in range(repeats):
        calls[number % len(calls)]()
        marks[number + 1].record()
    torch.cuda.synchronize()
    return Timing.of([before.elapsed_time(after) for before, after in pairwise(marks)])


def _time_graph(calls: Sequence[Call], *, seconds: float) -> Timing:
    """All calls are recorded in one graph, as the layers of a training step are."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what is made on first use must not be made during the recording
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    timing = _time_on_gpu([graph.replay], seconds=seconds)
    low, high = timing.quartiles
    return Timing(timing.milliseconds / len(calls), (low / len(calls), high / len(calls)), timing.repeats)


def _repeats(one: float, seconds: float) -> int:
    return max(FEWEST, min(MOST, int(seconds / max(one, 1e-9))))


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)


def peak_bytes_on_gpu(call: Call) -> int:
    """What a call allocates at most at a time, above what was there before, its results included."""
    call()  # compiled and tuned before
    tidy()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def tidy() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def reference(neighbourhood: Neighbourhood, inputs: LayerInputs) -> tuple[Tensor, ...]:
    """The plain version in float64, one window at a time: out, mean of rho, gradients."""
    windows: list[tuple[Tensor, ...]] = []
    for number in range(inputs.batch):
        one = inputs.window(number, torch.float64)
        got = there_and_back(Ours("plain").bind(neighbourhood, one), one)
        windows.append(tuple(tensor.detach() for tensor in got))
    joined = [torch.cat(parts) if parts[0].ndim else torch.stack(parts).mean() for parts in zip(*windows, strict=True)]
    return tuple(joined)


def errors(got: Sequence[Tensor], wanted: Sequence[Tensor]) -> dict[str, float]:
    """||got - wanted|| / ||wanted|| of the output, the mean of rho and every gradient; `worst` is the largest."""
    names = ("out", "rho_mean", *(f"gradient of {name}" for name in TENSORS))
    found = {
        name: float((mine.detach().double() - theirs).norm() / theirs.norm())
        for name, mine, theirs in zip(names, got, wanted, strict=True)
    }
    # max() would pass over a NaN that does not come first.
    worst = max(found.values()) if all(value == value for value in found.values()) else float("nan")
    return {**found, "worst": worst}


def first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:300] if text else ''}"
