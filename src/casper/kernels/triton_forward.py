"""The attention's forward kernel, and how all three kernels are laid out.

A program belongs to one sensor and one group of heads; each of its 32 lanes (times SPLITS warps) to ROWS steps in a row
of one window of that sensor. It walks over the sensor's edges and the steps at their other end, with all channels of a
pair in one thread: what is read at the other end serves all rows of a lane, scores and channel sums need no exchange
between threads, sums over pairs stay in registers, and nothing of the size of the pairs is ever written. Nothing is
added atomically, so that the same inputs give the same bits.
"""
# Triton's language is not Python's: its functions take tensors of registers and have no types to write down.
# pyright: basic, reportMissingImports=false, reportIndexIssue=false

from __future__ import annotations

import triton.language as tl

from casper.kernels.triton_parts import (
    HARD,
    HARD_NULL,
    LOG2E,
    NO_GATE,
    NOTHING,
    SOFT,
    SOFT_NULL,
    exp2,
    jit,
    load_channels,
    log2_sigmoid,
    logistic2,
    merged_max,
    merged_sum,
    noise_of_rows,
    over_channels,
    places,
    relu,
    sigmoid2,
    spread,
    store_channels,
)


@jit
def forward_kernel(
    query, key, message_query, message_key, gate_query, gate_key, bias, noise_key, temperature,
    start, source, order,
    out, log_sum, best_open, total, rho_sum,
    batch, sensors, steps, first_window,
    query_stride, key_stride, message_query_stride, message_key_stride, gate_query_stride, gate_key_stride,
    HEADS: tl.constexpr, GROUP: tl.constexpr, CHANNELS: tl.constexpr, PADDED: tl.constexpr, VECTOR: tl.constexpr,
    ROWS: tl.constexpr, SPLITS: tl.constexpr, EVEN: tl.constexpr,
    PAIR: tl.constexpr, GATE: tl.constexpr, NOISY: tl.constexpr, BIASED: tl.constexpr, CONSTRAINED: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    """EVEN: the splits have the same number of steps, and every row has all of them for partners."""
    blocks = tl.cdiv(batch * tl.cdiv(steps, ROWS), 32)
    program = tl.program_id(0)
    head = program % (HEADS // GROUP) * GROUP  # the first of the group
    block = program // (HEADS // GROUP) % blocks
    sensor = tl.load(order + program // (HEADS // GROUP * blocks))
    window, step, _ = places(block, batch, steps, ROWS, 32 * SPLITS)
    split = tl.arange(0, 32 * SPLITS) // 32
    first_row = window * sensors * steps  # (L,), of the window
    row = first_row[:, None] + sensor * steps + step  # (L, R), of the query

    q = load_channels(query, row, query_stride, head, GROUP, CHANNELS, PADDED, VECTOR) * LOG2E
    if PAIR:
        mq = load_channels(message_query, row, message_query_stride, head, GROUP, CHANNELS, PADDED, VECTOR)
    if GATE != NO_GATE:
        gq = tl.load(gate_query + row.to(tl.int64) * gate_query_stride).to(tl.float32)
        if NOISY:
            row_hash = noise_of_rows(noise_key, first_window * (sensors * steps) + row)
            coldness = 1.0 / tl.load(temperature)

    top = tl.full([32 * SPLITS, ROWS, GROUP], NOTHING, tl.float32)
    weight_sum = tl.zeros([32 * SPLITS, ROWS, GROUP], tl.float32)
    message_sum = tl.zeros([32 * SPLITS, ROWS, GROUP, PADDED // VECTOR, VECTOR], tl.float32)
    gated_sum = tl.zeros([32 * SPLITS, ROWS, GROUP], tl.float32)
    top_any = tl.full([32 * SPLITS, ROWS, GROUP], NOTHING, tl.float32)
    any_sum = tl.zeros([32 * SPLITS, ROWS, GROUP], tl.float32)
    rho_here = tl.zeros([32 * SPLITS, ROWS], tl.float32)

    first_edge = tl.load(start + sensor)
    last_edge = tl.load(start + sensor + 1)
    for first_step in range(0, steps, SPLITS):
        key_step = first_step + split  # (L,)
        exists = tl.broadcast_to((key_step < steps)[:, None], [32 * SPLITS, ROWS])
        if CONSTRAINED:
            exists = exists & (key_step[:, None] <= step)
        if not EVEN:
            key_step = tl.minimum(key_step, steps - 1)
        if BIASED:
            heads = head + tl.arange(0, GROUP)[None, None, :]
            pair = step * steps + key_step[:, None]
            pair_bias = tl.load(bias + heads * (steps * steps) + pair[:, :, None]).to(tl.float32) * LOG2E
        for edge in range(first_edge, last_edge):
            neighbour = tl.load(source + edge)
            column = neighbour * steps + key_step
            key_row = first_row + column  # (L,)
            k = load_channels(key, key_row[:, None], key_stride, head, GROUP, CHANNELS, PADDED, VECTOR)
            score = over_channels(q * k)  # (L, R, G)
            if BIASED:
                score += pair_bias
            counted = exists[:, :, None]
            if GATE != NO_GATE:
                gk = tl.load(gate_key + key_row.to(tl.int64) * gate_key_stride).to(tl.float32)
                logit2 = (gq + gk[:, None]) * LOG2E  # (L, R)
                if head == 0:
                    rho_here += tl.where(exists, sigmoid2(logit2, FAST), 0.0)
                if NOISY:
                    logit2 = (logit2 + logistic2(row_hash, column[:, None], FAST)) * coldness
                if GATE == SOFT:
                    score += log2_sigmoid(logit2, FAST)[:, :, None]
                if GATE == HARD:
                    new_any = tl.maximum(top_any, tl.where(counted, score, NOTHING))
                    shares = tl.where(counted, exp2(score - new_any, FAST), 0.0)
                    any_sum = any_sum * exp2(top_any - new_any, FAST) + shares
                    top_any = new_any
                    counted = counted & (logit2 > 0)[:, :, None]

            if EVEN and GATE != HARD:
                new_top = tl.maximum(top, score)
                weight = exp2(score - new_top, FAST)
            else:
                new_top = tl.maximum(top, tl.where(counted, score, NOTHING))
                weight = tl.where(counted, exp2(score - new_top, FAST), 0.0)
            shrink = exp2(top - new_top, FAST)
            top = new_top
            weight_sum = weight_sum * shrink + weight
            if GATE == SOFT_NULL:
                weight = weight * sigmoid2(logit2, FAST)[:, :, None]
            if GATE == HARD_NULL:
                weight = tl.where((logit2 > 0)[:, :, None], weight, 0.0)
            if (GATE == SOFT_NULL) or (GATE == HARD_NULL):
                gated_sum = gated_sum * shrink + weight

            message = load_channels(
                message_key, key_row[:, None], message_key_stride, head, GROUP, CHANNELS, PADDED, VECTOR
            )
            if PAIR:
                message = relu(mq + message)
            message_sum = message_sum * shrink[:, :, :, None, None] + weight[:, :, :, None, None] * message

    highest = merged_max(top, SPLITS)
    if SPLITS > 1:
        shrink = exp2(top - spread(highest, SPLITS), FAST)
        weight_sum, gated_sum = weight_sum * shrink, gated_sum * shrink
        message_sum = message_sum * shrink[:, :, :, None, None]
    weight_sum = merged_sum(weight_sum, SPLITS)  # (32, R, G)
    share = tl.where(weight_sum > 0, 1.0 / weight_sum, 0.0)
    window, step, alive = places(block, batch, steps, ROWS, 32)
    row = (window * sensors * steps)[:, None] + sensor * steps + step
    row_and_head = row.to(tl.int64)[:, :, None] * HEADS + (head + tl.arange(0, GROUP)[None, None, :])
    kept = alive[:, :, None]
    message_sum = merged_sum(message_sum, SPLITS) * share[:, :, :, None, None]
    store_channels(out, message_sum, row, HEADS * CHANNELS, alive, head, GROUP, CHANNELS, PADDED, VECTOR)
    logarithm = highest + tl.log2(tl.maximum(weight_sum, 1e-38))
    if GATE == HARD:
        some_open = weight_sum > 0
        highest_any = merged_max(top_any, SPLITS)
        any_sum = merged_sum(any_sum * exp2(top_any - spread(highest_any, SPLITS), FAST), SPLITS)
        # Where every gate is shut the gates' gradients are those of the ungated softmax.
        logarithm = tl.where(some_open, logarithm, highest_any + tl.log2(tl.maximum(any_sum, 1e-38)))
        tl.store(best_open + row_and_head, tl.where(some_open, highest, highest_any), mask=kept)
        tl.store(total + row_and_head, tl.where(some_open, 1.0, 0.0), mask=kept)
    if (GATE == SOFT_NULL) or (GATE == HARD_NULL):
        tl.store(total + row_and_head, merged_sum(gated_sum, SPLITS) * share, mask=kept)
    tl.store(log_sum + row_and_head, logarithm, mask=kept)
    if GATE != NO_GATE:
        if head == 0:
            tl.store(rho_sum + row, merged_sum(rho_here, SPLITS), mask=alive)
