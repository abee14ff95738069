"""Two Triton kernels that do nothing but multiply and add, or take exponentials, to see how fast the GPU can."""
# Triton's kernels are not Python that a type checker could follow, and where there is no GPU it is not installed.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from benchmarks.measure import Call

_PROGRAMS, _LANES, _ROUNDS, _CHAINS = 4096, 1024, 256, 8
MULTIPLY_ADDS = _PROGRAMS * _LANES * _ROUNDS * _CHAINS
EXPONENTIALS = MULTIPLY_ADDS

jit: Any = triton.jit


@jit
def _multiply_adds(given, result, LANES: tl.constexpr, ROUNDS: tl.constexpr):
    """Eight independent chains, so that no instruction waits for the one before it."""
    place = tl.program_id(0) * LANES + tl.arange(0, LANES)
    x = tl.load(given + place)
    a, b, c, d = x, x + 1.0, x + 2.0, x + 3.0
    e, f, g, h = x + 4.0, x + 5.0, x + 6.0, x + 7.0
    for _ in range(ROUNDS):
        a = tl.fma(a, x, x)
        b = tl.fma(b, x, x)
        c = tl.fma(c, x, x)
        d = tl.fma(d, x, x)
        e = tl.fma(e, x, x)
        f = tl.fma(f, x, x)
        g = tl.fma(g, x, x)
        h = tl.fma(h, x, x)
    tl.store(result + place, a + b + c + d + e + f + g + h)


@jit
def _exp2(x):
    return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)


@jit
def _exponentials(given, result, LANES: tl.constexpr, ROUNDS: tl.constexpr):
    place = tl.program_id(0) * LANES + tl.arange(0, LANES)
    x = tl.load(given + place)
    a, b, c, d = x, x + 1.0, x + 2.0, x + 3.0
    e, f, g, h = x + 4.0, x + 5.0, x + 6.0, x + 7.0
    for _ in range(ROUNDS):
        a = _exp2(-a)
        b = _exp2(-b)
        c = _exp2(-c)
        d = _exp2(-d)
        e = _exp2(-e)
        f = _exp2(-f)
        g = _exp2(-g)
        h = _exp2(-h)
    tl.store(result + place, a + b + c + d + e + f + g + h)


def probe_multiply_adds(device: torch.device) -> Call:
    return _probe(_multiply_adds, device)


def probe_exponentials(device: torch.device) -> Call:
    return _probe(_exponentials, device)


def _probe(kernel: Any, device: torch.device) -> Call:
    given: Tensor = torch.rand(_PROGRAMS * _LANES, device=device) * -0.5
    result = torch.empty_like(given)
    return lambda: kernel[(_PROGRAMS,)](given, result, LANES=_LANES, ROUNDS=_ROUNDS, num_warps=8)
