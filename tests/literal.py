"""The paper's section 3 with Python loops over queries and keys: slow, and nothing to get wrong.

Numbers are float64 tensors without dimensions, so that gradients of the loops can be compared too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Context = list[tuple[int, int, int]]
"""Keys of a query: (slot in the neighbour table, sensor, step)."""


@dataclass(frozen=True)
class Gate:
    """first, second: the two Gumbel draws of every pair, (B, N, T, K*T); None for a deterministic gate."""

    first: Tensor | None = None
    second: Tensor | None = None
    temperature: float = 1.0
    hard: bool = False
    null_slot: bool = False


@dataclass(frozen=True)
class Attended:
    """out: (B, N, T, H*C); alpha, weight: (B, N, H, T, K, T); rho, beta: (B, N, T, K, T); rho_mean: a number."""

    out: Tensor
    alpha: Tensor
    rho: Tensor
    beta: Tensor
    weight: Tensor
    rho_mean: Tensor


def relu(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, 0.0)


def sigmoid(x: Tensor) -> Tensor:
    return torch.exp(x) / (1 + torch.exp(x))


def gumbel_gate(rho: Tensor, first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """The printed equation, with the two independent draws it means."""
    is_open = torch.exp((torch.log(rho) + first) / temperature)
    is_shut = torch.exp((torch.log(1 - rho) + second) / temperature)
    return is_open / (is_open + is_shut)


def context_of(sensor: int, step: int, index: Tensor, present: Tensor, steps: int, constrained: bool) -> Context:
    return [
        (slot, int(index[sensor, slot]), other)
        for slot in range(index.shape[1])
        if present[sensor, slot]
        for other in range(steps)
        if other <= step or not constrained
    ]


def causal_attention(
    query: Tensor,
    key: Tensor,
    message_query: Tensor | None,
    message_key: Tensor,
    gate_query: Tensor | None,
    gate_key: Tensor | None,
    index: Tensor,
    present: Tensor,
    *,
    gate: Gate | None = None,
    bias: Tensor | None = None,
    constrained: bool = False,
) -> Attended:
    """Equation by equation; query, key and messages: (B, N, T, H, C); gate_query, gate_key: (B, N, T)."""
    batch, sensors, steps, heads, channels = query.shape
    slots = index.shape[1]
    out = torch.zeros(batch, sensors, steps, heads, channels, dtype=torch.float64)
    alphas = torch.zeros(batch, sensors, heads, steps, slots, steps, dtype=torch.float64)
    weights, rhos = torch.zeros_like(alphas), torch.zeros(batch, sensors, steps, slots, steps, dtype=torch.float64)
    betas, rho_list = torch.zeros_like(rhos), [torch.zeros((), dtype=torch.float64)]
    for b in range(batch):
        for i in range(sensors):
            for t in range(steps):
                context = context_of(i, t, index, present, steps, constrained)
                beta: dict[tuple[int, int, int], Tensor] = {}
                for slot, j, r in context:
                    beta[slot, j, r] = torch.ones((), dtype=torch.float64)
                    if gate is not None and gate_query is not None and gate_key is not None:
                        rho = sigmoid(gate_query[b, i, t] + gate_key[b, j, r])
                        rhos[b, i, t, slot, r] = rho
                        rho_list.append(rho)
                        beta[slot, j, r] = _gate(rho, gate, (b, i, t, slot * steps + r))
                    betas[b, i, t, slot, r] = beta[slot, j, r]
                for h in range(heads):
                    alpha = _softmax_of_scores(context, query[b, i, t, h], key[b, :, :, h], bias, h, t)
                    terms = {pair: beta[pair] * alpha[pair] for pair in context}
                    z = sum(terms.values(), torch.zeros((), dtype=torch.float64))
                    if gate is not None and gate.null_slot:
                        z = torch.ones((), dtype=torch.float64)
                    for pair in context:
                        slot, j, r = pair
                        value = message_key[b, j, r, h]
                        if message_query is not None:
                            value = relu(message_query[b, i, t, h] + value)
                        weight = terms[pair] / z if z > 0 else torch.zeros((), dtype=torch.float64)
                        out[b, i, t, h] = out[b, i, t, h] + weight * value
                        alphas[b, i, h, t, slot, r], weights[b, i, h, t, slot, r] = alpha[pair], weight
    gates = len(rho_list) - 1
    rho_mean = sum(rho_list, torch.zeros((), dtype=torch.float64)) / max(gates, 1)
    ones_if_ungated = betas if gate is None else rhos
    return Attended(out.reshape(batch, sensors, steps, -1), alphas, ones_if_ungated, betas, weights, rho_mean)


def _gate(rho: Tensor, gate: Gate, place: tuple[int, int, int, int]) -> Tensor:
    if gate.first is None or gate.second is None:
        soft = rho
    else:
        soft = gumbel_gate(rho, gate.first[place], gate.second[place], gate.temperature)
    if not gate.hard:
        return soft
    return (soft.detach() > 0.5).double() + soft - soft.detach()


def _softmax_of_scores(
    context: Context, query: Tensor, keys: Tensor, bias: Tensor | None, head: int, step: int
) -> dict[tuple[int, int, int], Tensor]:
    exponential: dict[tuple[int, int, int], Tensor] = {}
    for slot, j, r in context:
        score = (query * keys[j, r]).sum()
        if bias is not None:
            score = score + bias[head, step, r]
        exponential[slot, j, r] = torch.exp(score)
    total = sum(exponential.values(), torch.zeros((), dtype=torch.float64))
    return {pair: value / total for pair, value in exponential.items()}


def linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """One vector, entry by entry."""
    out: list[Tensor] = []
    for row in range(layer.weight.shape[0]):
        entry = (layer.weight[row] * x).sum()
        out.append(entry + layer.bias[row] if "bias" in dict(layer.named_parameters()) else entry)
    return torch.stack(out)


def layer_norm(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    mean = x.sum() / len(x)
    variance = ((x - mean) ** 2).sum() / len(x)
    return (x - mean) / torch.sqrt(variance + norm.eps) * norm.weight + norm.bias


def dot_product_attention(query: Tensor, keys: list[Tensor], values: list[Tensor], heads: int) -> Tensor:
    """One query vector, heads side by side (Vaswani et al., 2017)."""
    size = len(query) // heads
    parts: list[Tensor] = []
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        exponentials = [torch.exp((query[own] * key[own]).sum() / math.sqrt(size)) for key in keys]
        total = torch.stack(exponentials).sum()
        weighted = [e / total * value[own] for e, value in zip(exponentials, values, strict=True)]
        parts.append(torch.stack(weighted).sum(dim=0))
    return torch.cat(parts)
