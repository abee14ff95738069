"""What the attention's Triton kernels share: the gate and its noise, loads and sums of tiles.

Units: scores and logarithms are kept to base 2, because the hardware's exponential and logarithm are.
"""
# Triton's language is not Python's: its functions take tensors of registers and have no types to write down.
# pyright: basic, reportMissingImports=false, reportIndexIssue=false

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from casper.network.noise import COLUMN_STEP, MIX

jit: Any = triton.jit

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
NOTHING = tl.constexpr(-1e30)
SHUT_CAP2 = tl.constexpr(10.0 * 1.4426950408889634)
"""`casper.attention`'s cap on the scores of shut gates, to base 2."""

# How gates weigh; `gate_kind` in triton_attention.py says which rule is which.
NO_GATE = tl.constexpr(0)
SOFT = tl.constexpr(1)
SOFT_NULL = tl.constexpr(2)
HARD = tl.constexpr(3)
HARD_NULL = tl.constexpr(4)

_SHIFT_1, _FACTOR_1, _SHIFT_2, _FACTOR_2, _SHIFT_3 = (tl.constexpr(number) for number in MIX)
_COLUMN_STEP = tl.constexpr(COLUMN_STEP)


@jit
def exp2(x, FAST: tl.constexpr):
    if FAST:
        return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)
    return tl.exp2(x)


@jit
def log2(x, FAST: tl.constexpr):
    if FAST:
        return tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)
    return tl.log2(x)


@jit
def reciprocal(x, FAST: tl.constexpr):
    if FAST:
        return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)
    return 1.0 / x


@jit
def sigmoid2(x2, FAST: tl.constexpr):
    """Sigmoid of x, given x * log2(e)."""
    return reciprocal(1.0 + exp2(-x2, FAST), FAST)


@jit
def relu(x):
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)


@jit
def slope_of_relu(y):
    """As a number, because a product with it can be added up in the same instruction."""
    return tl.where(y > 0, 1.0, 0.0)


@jit
def _mix(x):
    x ^= x >> _SHIFT_1
    x *= _FACTOR_1
    x ^= x >> _SHIFT_2
    x *= _FACTOR_2
    return x ^ (x >> _SHIFT_3)


@jit
def noise_of_rows(noise_key, rows):
    """The part of the noise's hash that belongs to the queries; see `casper.network.noise.PairNoise`."""
    first = tl.load(noise_key).to(tl.uint32)
    second = tl.load(noise_key + 1).to(tl.uint32)
    return _mix(_mix(rows.to(tl.uint32) ^ first) ^ second)


@jit
def logistic2(row_hash, columns, FAST: tl.constexpr):
    """Logistic draws * log2(e)."""
    hashed = _mix(row_hash ^ (columns.to(tl.uint32) * _COLUMN_STEP))
    uniform = ((hashed >> 9).to(tl.int32).to(tl.float32) + 0.5) * (1.0 / 8388608.0)
    return log2(uniform, FAST) - log2(1.0 - uniform, FAST)


@jit
def log2_sigmoid(x2, FAST: tl.constexpr):
    """log2(sigmoid(x)), given x * log2(e), for any x."""
    return tl.minimum(x2, 0.0) - log2(1.0 + exp2(-tl.abs(x2), FAST), FAST)


# A tile has the axes (L, R, G, C / V, V): lanes, rows of a lane, heads, channels loaded V at a time. Lanes come first
# because Triton then gives each of them a thread, and leaves everything else of a lane to that thread.


@jit
def places(block, batch, steps, ROWS: tl.constexpr, LANES: tl.constexpr):
    """Windows (L,), steps (L, R) and whether they exist (L, R). A lane has ROWS steps in a row of one window.

    What does not exist stands for something that does, so that it can be read. Every 32 lanes have the same places.
    """
    lanes_of_window = tl.cdiv(steps, ROWS)
    place = block * 32 + tl.arange(0, LANES) % 32
    window = tl.minimum(place // lanes_of_window, batch - 1)
    step = (place % lanes_of_window)[:, None] * ROWS + tl.arange(0, ROWS)[None, :]
    alive = (place < batch * lanes_of_window)[:, None] & (step < steps)
    return window, tl.minimum(step, steps - 1), alive


@jit
def load_channels(
    base, rows, row_stride, first_head,
    GROUP: tl.constexpr, CHANNELS: tl.constexpr, PADDED: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    """rows: (L, R) -> (L, R, G, C / V, V) in float32."""
    head = first_head + tl.arange(0, GROUP)[:, None, None]
    channel = tl.arange(0, PADDED // VECTOR)[None, :, None] * VECTOR + tl.arange(0, VECTOR)[None, None, :]
    place = base + (rows.to(tl.int64) * row_stride)[:, :, None, None, None]
    place = place + (head * CHANNELS + channel)[None, None, :, :, :]
    if PADDED == CHANNELS:
        return tl.load(place).to(tl.float32)
    return tl.load(place, mask=(channel < CHANNELS)[None, None, :, :, :], other=0.0).to(tl.float32)


@jit
def store_channels(
    base, values, rows, row_stride, alive, first_head,
    GROUP: tl.constexpr, CHANNELS: tl.constexpr, PADDED: tl.constexpr, VECTOR: tl.constexpr,
):  # fmt: skip
    """values: (L, R, G, C / V, V); rows, alive: (L, R)."""
    head = first_head + tl.arange(0, GROUP)[:, None, None]
    channel = tl.arange(0, PADDED // VECTOR)[None, :, None] * VECTOR + tl.arange(0, VECTOR)[None, None, :]
    place = base + (rows.to(tl.int64) * row_stride)[:, :, None, None, None]
    place = place + (head * CHANNELS + channel)[None, None, :, :, :]
    kept = alive[:, :, None, None, None] & (channel < CHANNELS)[None, None, :, :, :]
    tl.store(place, values.to(base.dtype.element_ty), mask=kept)


@jit
def over_channels(x):
    """(L, R, G, C / V, V) -> (L, R, G)."""
    return tl.sum(tl.sum(x, axis=4), axis=3)


@jit
def _by_split(x, SPLITS: tl.constexpr):
    """(S * 32, ...) -> (S, 32, ...)."""
    if len(x.shape) == 2:
        parts = tl.reshape(x, [SPLITS, 32, x.shape[1]])
    elif len(x.shape) == 3:
        parts = tl.reshape(x, [SPLITS, 32, x.shape[1], x.shape[2]])
    else:
        parts = tl.reshape(x, [SPLITS, 32, x.shape[1], x.shape[2], x.shape[3], x.shape[4]])
    return parts


@jit
def merged_sum(x, SPLITS: tl.constexpr):
    """(S * 32, ...) -> (32, ...): the splits' parts together."""
    if SPLITS == 1:
        return x
    return tl.sum(_by_split(x, SPLITS), axis=0)


@jit
def merged_max(x, SPLITS: tl.constexpr):
    """(S * 32, R, G) -> (32, R, G)."""
    if SPLITS == 1:
        return x
    return tl.max(_by_split(x, SPLITS), axis=0)


@jit
def spread(x, SPLITS: tl.constexpr):
    """(32, R, G) -> (S * 32, R, G): the same for every split."""
    if SPLITS == 1:
        return x
    return tl.reshape(
        tl.broadcast_to(x[None, :, :, :], [SPLITS, 32, x.shape[1], x.shape[2]]),
        [SPLITS * 32, x.shape[1], x.shape[2]],
    )
