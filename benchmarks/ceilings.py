"""How fast this machine can copy, multiply and take exponentials, measured; and the floor that follows for a shape."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks.layer import TENSORS
from benchmarks.measure import Call, time_it
from benchmarks.shapes import Shape

COPIED = 2**28
"""Numbers in the copied array: a gigabyte, more than any cache holds."""
COPIED_ON_CPU = 2**25
MATRIX = 1024
IN_CACHE = 2**18


@dataclass(frozen=True)
class Ceilings:
    """Measured rates of the device: bytes, float32 multiply-adds and special functions (exp2 and its like) a second."""

    bytes_per_second: float
    multiply_adds_per_second: float
    special_functions_per_second: float

    @classmethod
    def measure(cls, device: torch.device, *, seconds: float) -> Ceilings:
        return _on_gpu(device, seconds=seconds) if device.type == "cuda" else _on_cpu(seconds=seconds)


def _on_gpu(device: torch.device, *, seconds: float) -> Ceilings:
    from benchmarks.gpu_probes import EXPONENTIALS, MULTIPLY_ADDS, probe_exponentials, probe_multiply_adds

    source = torch.randn(COPIED, device=device)
    target = torch.empty_like(source)
    return Ceilings(
        bytes_per_second=2 * source.nbytes / _seconds(lambda: target.copy_(source), device, seconds),
        multiply_adds_per_second=MULTIPLY_ADDS / _seconds(probe_multiply_adds(device), device, seconds),
        special_functions_per_second=EXPONENTIALS / _seconds(probe_exponentials(device), device, seconds),
    )


def _on_cpu(*, seconds: float) -> Ceilings:
    device = torch.device("cpu")
    source = torch.randn(COPIED_ON_CPU)
    target = torch.empty_like(source)
    left, right = torch.randn(MATRIX, MATRIX), torch.randn(MATRIX, MATRIX)
    near, result = torch.randn(IN_CACHE), torch.empty(IN_CACHE)
    return Ceilings(
        bytes_per_second=2 * source.nbytes / _seconds(lambda: target.copy_(source), device, seconds),
        multiply_adds_per_second=MATRIX**3 / _seconds(lambda: left @ right, device, seconds),
        special_functions_per_second=IN_CACHE / _seconds(lambda: torch.exp(near, out=result), device, seconds),
    )


def _seconds(call: Call, device: torch.device, seconds: float) -> float:
    """A ceiling is what the machine can do when nothing disturbs it: the lower quartile, not the median."""
    return 1e-3 * time_it([call], device, seconds=seconds)["quartiles"][0]


@dataclass(frozen=True)
class Work:
    """What a layer must do at least, forward and backward; see `count`."""

    pairs: int
    multiply_adds: int
    special_functions: int
    bytes: int


def count(shape: Shape, *, batch: int, width: int, heads: int, dtype: torch.dtype) -> Work:
    """The work of one layer with gumbel gate and pair message, everything per pair being computed once in each pass.

    Per pair and channel, counting an addition or multiplication of its own as one multiply-add:
      forward    score 1, sum of both message parts 1, relu 1, weighted sum 1                                      = 4
      backward   the same again but the weighted sum 3; gradient of the weight 1, of the hidden layer and of relu's
                 input 2; gradients of message query, message key, query and key 4                           = 10
    Per pair: 12 integer operations of the noise's hash and 10 multiply-adds of gate and rho, in both passes.
    Special functions per pair: the softmax's exponential, one for each head; noise 2, gate 2, rho 2; in both passes.
    Bytes: every tensor read once in each pass, out and all gradients written once. Neighbours are read from the cache.
    """
    pairs = batch * shape.edges * shape.steps**2
    points = batch * shape.sensors * shape.steps
    big = sum(not name.startswith("gate") for name in TENSORS)
    tensors = points * (big * width + (len(TENSORS) - big))
    moved = 3 * tensors + 2 * points * width  # read, read, gradients written; out and its gradient
    return Work(
        pairs=pairs,
        multiply_adds=pairs * (14 * width + 2 * 22),
        special_functions=2 * pairs * (heads + 6),
        bytes=moved * dtype.itemsize,
    )


def roofline(work: Work, ceilings: Ceilings | None, milliseconds: float | None) -> dict[str, Any]:
    """The work, the time each ceiling asks for it, the floor (the longest), and the measured time over it."""
    told: dict[str, Any] = asdict(work)
    if ceilings is None:
        return told
    needed = {
        "bytes": 1e3 * work.bytes / ceilings.bytes_per_second,
        "multiply_adds": 1e3 * work.multiply_adds / ceilings.multiply_adds_per_second,
        "special_functions": 1e3 * work.special_functions / ceilings.special_functions_per_second,
    }
    bound = max(needed, key=needed.__getitem__)
    told |= {"milliseconds_of": needed, "bound": bound, "floor_milliseconds": needed[bound]}
    if milliseconds is not None:
        told["measured_over_floor"] = milliseconds / needed[bound]
    return told
