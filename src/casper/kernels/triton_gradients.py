"""The attention's two backward kernels: gradients of the queries' side, and of the keys' side along reversed edges.

Laid out like the forward kernel, which left the logarithm of every query's sum of weights: a pair's weight, its gate
and its message are computed again from the inputs, in both kernels.
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
    SHUT_CAP2,
    SOFT,
    SOFT_NULL,
    exp2,
    jit,
    load_channels,
    log2_sigmoid,
    logistic2,
    merged_sum,
    noise_of_rows,
    over_channels,
    places,
    relu,
    sigmoid2,
    slope_of_relu,
    store_channels,
)


@jit
def _score_and_gate_gradients(
    score, noisy2, weight_gradient, log_sum, delta, best, exists,
    EVEN: tl.constexpr, GATE: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """The pairs' weights, and the gradients of their scores and of their noisy logits.

    score: without the gate; weight_gradient: of the pair's weight; both (L, R, G). noisy2, exists: (L, R).
    log_sum, delta, best: of the pair's query, (L, R, G) or to be spread over it.
    """
    if GATE == SOFT:
        score += log2_sigmoid(noisy2, FAST)[:, :, None]
    if GATE == HARD:
        # A shut key may have a score far above the open ones; its share is capped.
        score = tl.minimum(score - best, SHUT_CAP2) + best
    share = exp2(score - log_sum, FAST)
    if not EVEN:
        share = tl.where(exists[:, :, None], share, 0.0)
    weight = share
    if GATE == SOFT_NULL:
        weight = share * sigmoid2(noisy2, FAST)[:, :, None]
    if (GATE == HARD) or (GATE == HARD_NULL):
        weight = tl.where((noisy2 > 0)[:, :, None], share, 0.0)

    if (GATE == SOFT_NULL) or (GATE == HARD_NULL):
        score_gradient = weight * weight_gradient - share * delta
        pulled = share * weight_gradient
    else:
        score_gradient = weight * (weight_gradient - delta)
        pulled = share * (weight_gradient - delta)
    gate_gradient = tl.sum(pulled, axis=2)  # over heads
    if GATE == SOFT:
        gate_gradient = gate_gradient * sigmoid2(-noisy2, FAST)
    if (GATE == SOFT_NULL) or (GATE == HARD_NULL) or (GATE == HARD):
        gate_gradient = gate_gradient * (sigmoid2(noisy2, FAST) * sigmoid2(-noisy2, FAST))
    return weight, score_gradient, gate_gradient


@jit
def query_gradients_kernel(
    query, key, message_query, message_key, gate_query, gate_key, bias, noise_key, temperature,
    start, source, order,
    out, log_sum, best_open, total,
    out_gradient, total_gradient, rho_gradient,
    query_gradient, message_query_gradient, gate_query_gradient, bias_gradient, delta_of_query, row_hashes,
    batch, sensors, steps, first_window, owners,
    query_stride, key_stride, message_query_stride, message_key_stride, gate_query_stride, gate_key_stride,
    HEADS: tl.constexpr, GROUP: tl.constexpr, CHANNELS: tl.constexpr, PADDED: tl.constexpr, VECTOR: tl.constexpr,
    ROWS: tl.constexpr, SPLITS: tl.constexpr, EVEN: tl.constexpr,
    PAIR: tl.constexpr, GATE: tl.constexpr, NOISY: tl.constexpr, BIASED: tl.constexpr, CONSTRAINED: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    """With a bias a program has several sensors one after the other, and adds up their gradients of the bias."""
    blocks = tl.cdiv(batch * tl.cdiv(steps, ROWS), 32)
    program = tl.program_id(0)
    group = program % (HEADS // GROUP)
    head = group * GROUP
    block = program // (HEADS // GROUP) % blocks
    owner = program // (HEADS // GROUP * blocks)
    width: tl.constexpr = HEADS * CHANNELS
    window, step, alive = places(block, batch, steps, ROWS, 32 * SPLITS)
    split = tl.arange(0, 32 * SPLITS) // 32
    once = alive & (split == 0)[:, None]
    first_row = window * sensors * steps  # (L,)
    heads = head + tl.arange(0, GROUP)[None, None, :]
    merged_window, merged_step, merged_alive = places(block, batch, steps, ROWS, 32)

    for turn in range(owner, sensors, owners):
        sensor = tl.load(order + turn)
        row = first_row[:, None] + sensor * steps + step  # (L, R)
        row_and_head = row.to(tl.int64)[:, :, None] * HEADS + heads
        q = load_channels(query, row, query_stride, head, GROUP, CHANNELS, PADDED, VECTOR) * LOG2E
        do = load_channels(out_gradient, row, width, head, GROUP, CHANNELS, PADDED, VECTOR)
        delta = over_channels(do * load_channels(out, row, width, head, GROUP, CHANNELS, PADDED, VECTOR))  # (L, R, G)
        row_log_sum = tl.load(log_sum + row_and_head)
        best = row_log_sum
        if GATE == HARD:
            best = tl.load(best_open + row_and_head)
        if (GATE == SOFT_NULL) or (GATE == HARD_NULL) or (GATE == HARD):
            of_total = tl.load(total_gradient + row_and_head).to(tl.float32)
            delta += of_total * tl.load(total + row_and_head)
        if PAIR:
            mq = load_channels(message_query, row, message_query_stride, head, GROUP, CHANNELS, PADDED, VECTOR)
        if GATE != NO_GATE:
            gq = tl.load(gate_query + row.to(tl.int64) * gate_query_stride).to(tl.float32)
            of_rho = tl.load(rho_gradient).to(tl.float32)
            coldness = 1.0
            if NOISY:
                row_hash = noise_of_rows(noise_key, first_window * (sensors * steps) + row)
                coldness = 1.0 / tl.load(temperature)
                if head == 0:
                    tl.store(row_hashes + row, row_hash.to(tl.int32, bitcast=True), mask=once)

        query_sum = tl.zeros([32 * SPLITS, ROWS, GROUP, PADDED // VECTOR, VECTOR], tl.float32)
        passed_sum = tl.zeros([32 * SPLITS, ROWS, GROUP, PADDED // VECTOR, VECTOR], tl.float32)
        gate_sum = tl.zeros([32 * SPLITS, ROWS], tl.float32)
        first_edge = tl.load(start + sensor)
        last_edge = tl.load(start + sensor + 1)
        for first_step in range(0, steps, SPLITS):
            key_step = first_step + split  # (L,)
            exists = tl.broadcast_to((key_step < steps)[:, None], [32 * SPLITS, ROWS])
            if BIASED:
                inside = (exists & alive)[:, :, None]
            if CONSTRAINED:
                exists = exists & (key_step[:, None] <= step)
            if not EVEN:
                key_step = tl.minimum(key_step, steps - 1)
            if BIASED:
                pair = step * steps + key_step[:, None]
                pair_bias = tl.load(bias + heads * (steps * steps) + pair[:, :, None]).to(tl.float32) * LOG2E
                bias_sum = tl.zeros([32 * SPLITS, ROWS, GROUP], tl.float32)
            for edge in range(first_edge, last_edge):
                neighbour = tl.load(source + edge)
                column = neighbour * steps + key_step
                key_row = first_row + column  # (L,)
                k = load_channels(key, key_row[:, None], key_stride, head, GROUP, CHANNELS, PADDED, VECTOR)
                score = over_channels(q * k)
                if BIASED:
                    score += pair_bias
                message = load_channels(
                    message_key, key_row[:, None], message_key_stride, head, GROUP, CHANNELS, PADDED, VECTOR
                )
                if PAIR:
                    message = relu(mq + message)
                weight_gradient = over_channels(do * message)
                if (GATE == SOFT_NULL) or (GATE == HARD_NULL) or (GATE == HARD):
                    weight_gradient += of_total
                noisy2 = exists
                if GATE != NO_GATE:
                    gk = tl.load(gate_key + key_row.to(tl.int64) * gate_key_stride).to(tl.float32)
                    logit2 = (gq + gk[:, None]) * LOG2E
                    noisy2 = logit2
                    if NOISY:
                        noisy2 = (logit2 + logistic2(row_hash, column[:, None], FAST)) * coldness
                weight, score_gradient, gate_gradient = _score_and_gate_gradients(
                    score, noisy2, weight_gradient, row_log_sum, delta, best, exists, EVEN, GATE, FAST
                )
                query_sum += score_gradient[:, :, :, None, None] * k
                if PAIR:
                    passed_sum += weight[:, :, :, None, None] * slope_of_relu(message)
                if BIASED:
                    bias_sum += score_gradient
                if GATE != NO_GATE:
                    gate_sum += gate_gradient * coldness
                    if head == 0:
                        rho = sigmoid2(logit2, FAST)
                        gate_sum += tl.where(exists, rho * (1.0 - rho), 0.0) * of_rho
            if BIASED:
                of_query = window[:, None] * steps + step
                mine = ((owner * HEADS + heads) * (batch * steps) + of_query[:, :, None]).to(tl.int64) * steps
                mine = bias_gradient + mine + key_step[:, None, None]  # (L, R, G)
                tl.store(mine, tl.load(mine, mask=inside, other=0.0) + bias_sum, mask=inside)

        merged_row = (merged_window * sensors * steps)[:, None] + sensor * steps + merged_step
        query_sum = merged_sum(query_sum, SPLITS)
        store_channels(
            query_gradient, query_sum, merged_row, width, merged_alive, head, GROUP, CHANNELS, PADDED, VECTOR
        )
        if PAIR:
            merged_do = load_channels(out_gradient, merged_row, width, head, GROUP, CHANNELS, PADDED, VECTOR)
            passed_sum = merged_sum(passed_sum, SPLITS) * merged_do
            store_channels(
                message_query_gradient, passed_sum, merged_row, width, merged_alive,
                head, GROUP, CHANNELS, PADDED, VECTOR,
            )  # fmt: skip
        if GATE != NO_GATE:
            place_of_group = merged_row.to(tl.int64) * (HEADS // GROUP) + group
            tl.store(gate_query_gradient + place_of_group, merged_sum(gate_sum, SPLITS), mask=merged_alive)
        tl.store(delta_of_query + row_and_head, delta, mask=once[:, :, None])


@jit
def key_gradients_kernel(
    query, key, message_query, message_key, gate_query, gate_key, bias, temperature,
    start, target, order,
    log_sum, best_open, delta_of_query, row_hashes,
    out_gradient, total_gradient, rho_gradient,
    key_gradient, message_key_gradient, gate_key_gradient,
    batch, sensors, steps,
    query_stride, key_stride, message_query_stride, message_key_stride, gate_query_stride, gate_key_stride,
    HEADS: tl.constexpr, GROUP: tl.constexpr, CHANNELS: tl.constexpr, PADDED: tl.constexpr, VECTOR: tl.constexpr,
    ROWS: tl.constexpr, SPLITS: tl.constexpr, EVEN: tl.constexpr,
    PAIR: tl.constexpr, GATE: tl.constexpr, NOISY: tl.constexpr, BIASED: tl.constexpr, CONSTRAINED: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    """Lanes are keys here, and a program walks over the queries that look at its sensor."""
    blocks = tl.cdiv(batch * tl.cdiv(steps, ROWS), 32)
    program = tl.program_id(0)
    group = program % (HEADS // GROUP)
    head = group * GROUP
    block = program // (HEADS // GROUP) % blocks
    sensor = tl.load(order + program // (HEADS // GROUP * blocks))
    width: tl.constexpr = HEADS * CHANNELS
    window, key_step, _ = places(block, batch, steps, ROWS, 32 * SPLITS)
    split = tl.arange(0, 32 * SPLITS) // 32
    first_row = window * sensors * steps  # (L,)
    column = sensor * steps + key_step  # (L, R)
    key_row = first_row[:, None] + column
    heads = head + tl.arange(0, GROUP)[None, None, :]

    k = load_channels(key, key_row, key_stride, head, GROUP, CHANNELS, PADDED, VECTOR) * LOG2E
    mk = load_channels(message_key, key_row, message_key_stride, head, GROUP, CHANNELS, PADDED, VECTOR)
    coldness = 1.0
    if GATE != NO_GATE:
        gk = tl.load(gate_key + key_row.to(tl.int64) * gate_key_stride).to(tl.float32)
        of_rho = tl.load(rho_gradient).to(tl.float32)
        if NOISY:
            coldness = 1.0 / tl.load(temperature)

    key_sum = tl.zeros([32 * SPLITS, ROWS, GROUP, PADDED // VECTOR, VECTOR], tl.float32)
    message_sum = tl.zeros([32 * SPLITS, ROWS, GROUP, PADDED // VECTOR, VECTOR], tl.float32)
    gate_sum = tl.zeros([32 * SPLITS, ROWS], tl.float32)
    first_edge = tl.load(start + sensor)
    last_edge = tl.load(start + sensor + 1)
    for first_step in range(0, steps, SPLITS):
        step = first_step + split  # (L,), of the query
        exists = tl.broadcast_to((step < steps)[:, None], [32 * SPLITS, ROWS])
        if CONSTRAINED:
            exists = exists & (key_step <= step[:, None])
        if not EVEN:
            step = tl.minimum(step, steps - 1)
        if BIASED:
            pair = step[:, None] * steps + key_step
            pair_bias = tl.load(bias + heads * (steps * steps) + pair[:, :, None]).to(tl.float32) * LOG2E
        for edge in range(first_edge, last_edge):
            row = (first_row + (tl.load(target + edge) * steps + step))[:, None]  # (L, 1)
            row_and_head = row.to(tl.int64)[:, :, None] * HEADS + heads
            q = load_channels(query, row, query_stride, head, GROUP, CHANNELS, PADDED, VECTOR)
            score = over_channels(q * k)
            if BIASED:
                score += pair_bias
            do = load_channels(out_gradient, row, width, head, GROUP, CHANNELS, PADDED, VECTOR)
            message = mk
            if PAIR:
                mq = load_channels(message_query, row, message_query_stride, head, GROUP, CHANNELS, PADDED, VECTOR)
                message = relu(mq + mk)
            weight_gradient = over_channels(do * message)
            best = score
            if GATE == HARD:
                best = tl.load(best_open + row_and_head)
            if (GATE == SOFT_NULL) or (GATE == HARD_NULL) or (GATE == HARD):
                weight_gradient += tl.load(total_gradient + row_and_head).to(tl.float32)
            noisy2 = exists
            if GATE != NO_GATE:
                gq = tl.load(gate_query + row.to(tl.int64) * gate_query_stride).to(tl.float32)
                logit2 = (gq + gk) * LOG2E
                noisy2 = logit2
                if NOISY:
                    row_hash = tl.load(row_hashes + row).to(tl.uint32, bitcast=True)
                    noisy2 = (logit2 + logistic2(row_hash, column, FAST)) * coldness
            weight, score_gradient, gate_gradient = _score_and_gate_gradients(
                score, noisy2, weight_gradient, tl.load(log_sum + row_and_head), tl.load(delta_of_query + row_and_head),
                best, exists, EVEN, GATE, FAST,
            )  # fmt: skip
            key_sum += score_gradient[:, :, :, None, None] * q
            pulled = weight[:, :, :, None, None] * do
            if PAIR:
                pulled = pulled * slope_of_relu(message)
            message_sum += pulled
            if GATE != NO_GATE:
                gate_sum += gate_gradient * coldness
                if head == 0:
                    rho = sigmoid2(logit2, FAST)
                    gate_sum += tl.where(exists, rho * (1.0 - rho), 0.0) * of_rho

    window, key_step, alive = places(block, batch, steps, ROWS, 32)
    row = (window * sensors * steps)[:, None] + sensor * steps + key_step
    key_sum, message_sum = merged_sum(key_sum, SPLITS), merged_sum(message_sum, SPLITS)
    store_channels(key_gradient, key_sum, row, width, alive, head, GROUP, CHANNELS, PADDED, VECTOR)
    store_channels(message_key_gradient, message_sum, row, width, alive, head, GROUP, CHANNELS, PADDED, VECTOR)
    if GATE != NO_GATE:
        place_of_group = row.to(tl.int64) * (HEADS // GROUP) + group
        tl.store(gate_key_gradient + place_of_group, merged_sum(gate_sum, SPLITS), mask=alive)
