"""Spatiotemporal causal attention (section 3.2 of the paper): one function, and the plain version that defines it.

Every query point (sensor i, step t) looks at all steps t' of its neighbouring sensors i'. Each pair has a correlation
score s (equation 12), a causal gate beta in [0, 1] with probability rho (equations 13 and 14) and a message v:

    out = 1/Z * sum_{i', t'} beta * alpha * v,     alpha = softmax(s),     Z = sum beta * alpha

The softmax normaliser cancels against Z, so with soft gates this is one softmax over s + log(beta). The versions in
`casper.kernels` use that: they compute the same in one pass and keep nothing of the size of the pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from casper.kernels import Version, choose_version, fast_version
from casper.network.neighbourhood import Neighbourhood
from casper.network.noise import PairNoise

Normaliser = Literal["gated", "null"]

# Scores of pairs that do not exist. Finite, so that a query without any pair gives a uniform softmax instead of NaN;
# its weights are then set to zero.
_ABSENT = -1e30
# How far above the best open key the score of a shut one may reach in the gradient of its gate.
_SHUT_CAP = 10.0


@dataclass(frozen=True)
class GateRule:
    """How gate probabilities become gates.

    noise: the gates' logistic draws, or None for deterministic gates. temperature: a number, or a scalar tensor on the
    device, which may change between replays of a recorded training step.
    hard: gates are exactly 0 or 1; in training their gradient is the soft gate's (straight-through).
    normaliser: "gated" divides by Z as the paper does; "null" lets closed gates give their weight to an empty message,
    so that shutting a gate always costs something and the penalty cannot be cheated by scaling all gates down. A shut
    key then still takes its share of alpha from the others: it has no message, but it is not without influence.
    """

    noise: PairNoise | None = None
    temperature: float | Tensor = 1.0
    hard: bool = False
    normaliser: Normaliser = "gated"

    @property
    def always_sums_to_one(self) -> bool:
        """Whether the weights of every query that has a pair sum to 1."""
        return not self.hard and self.normaliser == "gated"


@dataclass(frozen=True)
class Attended:
    """out: (B, N, T, D); rho_mean: the mean gate probability over all pairs that exist (the l1 norm, scaled).

    total: the sum of a query's weights, (B or 1, N or 1, T or 1, 1): 1, or 0 for a query without any open pair.
    """

    out: Tensor
    rho_mean: Tensor
    total: Tensor


@dataclass(frozen=True)
class AttentionDetails:
    """What the layer does, per pair of query (n, t) and key (k, t'); materialised only when asked for.

    attention: alpha, (B, N, H, T, K, T). rho, beta: (B, N, T, K, T). weight: beta * alpha / Z, (B, N, H, T, K, T).
    """

    attention: Tensor
    rho: Tensor
    beta: Tensor
    weight: Tensor


def causal_attention(
    query: Tensor,
    key: Tensor,
    message_query: Tensor | None,
    message_key: Tensor,
    gate_query: Tensor | None,
    gate_key: Tensor | None,
    neighbourhood: Neighbourhood,
    *,
    gate: GateRule | None = None,
    relative_bias: Tensor | None = None,
    constrained: bool = False,
    version: Version | None = None,
) -> Attended:
    """Every query's sum of its neighbours' messages, gated.

    query, key: (B, N, T, H, C), already projected and the query already divided by sqrt(C).
    message_query, message_key: (B, N, T, H, C). The hidden layer of the message MLP of a pair is
        relu(message_query + message_key); the MLP's last linear map is the caller's, after the sum. Without
        message_query the message depends on the key alone, message_key itself, and nothing is computed per pair.
    gate_query, gate_key: (B, N, T); their sum is the logit of rho. None: no gate.
    relative_bias: (H, T, T) added to the scores of (t, t').
    version: which implementation computes it; None: the fastest for the device, see `casper.kernels`.
    """
    if gate_query is None or gate_key is None:
        gate = gate_query = gate_key = None
    chosen = choose_version(query.device, version)
    tensors = (query, key, message_query, message_key, gate_query, gate_key, neighbourhood)
    if chosen == "plain":
        return plain_attention(*tensors, gate=gate, relative_bias=relative_bias, constrained=constrained)
    out, rho, total = fast_version(chosen)(*tensors, gate=gate, relative_bias=relative_bias, constrained=constrained)
    if gate is not None:
        pairs = neighbourhood.count(query.shape[2], constrained=constrained) * query.shape[0]
        rho = rho / pairs.clamp_min(1)
    if total is None:
        total = _known_total(out, neighbourhood.pairs(1, constrained=False))
    return Attended(out, rho, total)


def plain_attention(
    query: Tensor,
    key: Tensor,
    message_query: Tensor | None,
    message_key: Tensor,
    gate_query: Tensor | None,
    gate_key: Tensor | None,
    neighbourhood: Neighbourhood,
    *,
    gate: GateRule | None,
    relative_bias: Tensor | None,
    constrained: bool,
) -> Attended:
    """The definition, in plain PyTorch: every pair is a number in memory."""
    batch, sensors, steps, heads, channels = query.shape
    weighed = _weigh(
        query,
        key,
        gate_query,
        gate_key,
        neighbourhood,
        gate=gate,
        relative_bias=relative_bias,
        constrained=constrained,
    )
    weight = weighed.weight
    if message_query is None:
        out = weight @ neighbourhood.gather(message_key).transpose(2, 3)  # (B, N, H, T, C)
    else:
        # Contiguous, or the sum takes another order in memory than its gradient, which makes the gradient slow.
        mine = message_query.transpose(2, 3).contiguous()[..., None, :]  # (B, N, H, T, 1, C)
        theirs = neighbourhood.gather(message_key).transpose(2, 3).contiguous()[:, :, :, None]  # (B, N, H, 1, KT, C)
        hidden = F.relu(mine + theirs)  # (B, N, H, T, KT, C)
        out = (weight[..., None, :] @ hidden).squeeze(-2)  # (B, N, H, T, C)
    out = out.transpose(2, 3).reshape(batch, sensors, steps, heads * channels)
    total = _total(weight, weighed.exists, always_one=gate is None or gate.always_sums_to_one)
    return Attended(out, weighed.rho_mean, total)


def look_at_pairs(
    query: Tensor,
    key: Tensor,
    gate_query: Tensor | None,
    gate_key: Tensor | None,
    neighbourhood: Neighbourhood,
    *,
    gate: GateRule | None,
    relative_bias: Tensor | None,
    constrained: bool,
) -> AttentionDetails:
    """What the attention does with every pair; without the messages, which take most of the memory.

    query, gate_query: (B, M, T, ...) of some of the sensors, whose rows of the neighbourhood are given; key, gate_key:
    of all sensors.
    """
    return _weigh(
        query,
        key,
        gate_query,
        gate_key,
        neighbourhood,
        gate=gate,
        relative_bias=relative_bias,
        constrained=constrained,
    ).details(query.shape[2])


class _Weighed(NamedTuple):
    """scores, weight: (B, N, H, T, KT); rho, the gates' noisy logits and beta: (B, N, T, KT), None without a gate; soft
    gates are not needed for the weights, so their beta is made from the logits only when somebody looks."""

    scores: Tensor
    weight: Tensor
    rho: Tensor | None
    noisy: Tensor | None
    beta: Tensor | None
    rho_mean: Tensor
    exists: Tensor | None

    def details(self, steps: int) -> AttentionDetails:
        batch, sensors, heads = self.scores.shape[:3]
        ones = self.scores.new_ones(batch, sensors, steps, self.scores.shape[-1])
        beta = torch.sigmoid(self.noisy) if self.beta is None and self.noisy is not None else self.beta
        per_pair, per_head = (batch, sensors, steps, -1, steps), (batch, sensors, heads, steps, -1, steps)
        return AttentionDetails(
            attention=_only_existing(torch.softmax(self.scores, dim=-1), self.exists).reshape(per_head),
            rho=_existing(ones if self.rho is None else self.rho, self.exists).reshape(per_pair),
            beta=_existing(ones if beta is None else beta, self.exists).reshape(per_pair),
            weight=self.weight.reshape(per_head),
        )


def _weigh(
    query: Tensor,
    key: Tensor,
    gate_query: Tensor | None,
    gate_key: Tensor | None,
    neighbourhood: Neighbourhood,
    *,
    gate: GateRule | None,
    relative_bias: Tensor | None,
    constrained: bool,
) -> _Weighed:
    """Scores and gates of all pairs become weights."""
    batch, steps = query.shape[0], query.shape[2]
    exists = neighbourhood.pairs(steps, constrained=constrained)  # (N, 1 or T, KT)
    keys = neighbourhood.gather(key)  # (B, N, KT, H, C)
    scores = query.transpose(2, 3) @ keys.permute(0, 1, 3, 4, 2)  # (B, N, H, T, KT)
    bias = _score_bias(relative_bias, exists, neighbourhood.index.shape[1], scores.dtype)
    if bias is not None:
        scores = scores + bias
    if gate is None or gate_query is None or gate_key is None:
        weight = _only_existing(torch.softmax(scores, dim=-1), exists)
        return _Weighed(scores, weight, None, None, None, scores.new_zeros(()), exists)

    logit = gate_query[..., None] + neighbourhood.gather(gate_key)[:, :, None, :]  # (B, N, T, KT)
    rho = torch.sigmoid(logit)
    noisy = logit
    if gate.noise is not None:
        drawn = gate.noise.draw(neighbourhood.index, batch=batch, steps=steps, dtype=logit.dtype)
        noisy = (logit + drawn) / gate.temperature
    if gate.hard or gate.normaliser == "null":
        beta = torch.sigmoid(noisy)
        if gate.hard:
            beta = (noisy > 0).to(beta.dtype) + (beta - beta.detach())
        if gate.normaliser == "gated":
            weight = _hard_gated(scores, beta[:, :, None], exists)
        else:
            weight = _only_existing(torch.softmax(scores, dim=-1) * beta[:, :, None], exists)
    else:
        beta = None
        weight = _only_existing(torch.softmax(scores + F.logsigmoid(noisy)[:, :, None], dim=-1), exists)
    return _Weighed(scores, weight, rho, noisy, beta, mean_over_pairs(rho, exists), exists)


def _hard_gated(scores: Tensor, beta: Tensor, exists: Tensor | None) -> Tensor:
    """beta * alpha / Z for gates that are exactly 0 or 1, all zero where every gate is shut.

    Exponentials are taken relative to the best open key: a shut key cannot push the open ones out of the range of
    floating point numbers, however high its score. It has a gradient through its gate, which the cap keeps finite.
    """
    best = scores.masked_fill(beta == 0, _ABSENT).amax(-1, keepdim=True)
    some_open = best > _ABSENT / 2
    reference = torch.where(some_open, best, scores.amax(-1, keepdim=True)).detach()
    exponential = _only_existing((scores - reference).clamp_max(_SHUT_CAP).exp(), exists)
    gated = exponential * beta
    # Where every gate is shut the gradient that may open them again is alpha's, not alpha / 0.
    total = torch.where(some_open, gated.sum(-1, keepdim=True), exponential.sum(-1, keepdim=True).clamp_min(1.0))
    return gated / total


def _score_bias(relative: Tensor | None, exists: Tensor | None, neighbours: int, dtype: torch.dtype) -> Tensor | None:
    """What is added to the scores, (N or 1, H or 1, T or 1, KT): the lag's bias, and a wall before absent pairs."""
    bias = None if relative is None else relative.repeat(1, 1, neighbours)[None]  # every neighbour alike
    if exists is None:
        return bias
    wall = torch.zeros(exists.shape, dtype=dtype, device=exists.device).masked_fill(~exists, _ABSENT)[:, None]
    return wall if bias is None else bias + wall


def _existing(x: Tensor, exists: Tensor | None) -> Tensor:
    """(B, N, T, KT), zero for pairs that do not exist."""
    return x if exists is None else x * exists


def _only_existing(weight: Tensor, exists: Tensor | None) -> Tensor:
    """(B, N, H, T, KT), zero for pairs that do not exist: matters for queries that have none at all."""
    return weight if exists is None else weight * exists[:, None]


def _total(weight: Tensor, exists: Tensor | None, *, always_one: bool) -> Tensor:
    """(B or 1, N or 1, T or 1, 1): the sum of the weights, without adding them up where it is known."""
    if not always_one:
        return weight.sum(-1).mean(2)[..., None]  # over heads
    return _known_total(weight, exists)


def _known_total(like: Tensor, exists: Tensor | None) -> Tensor:
    """1 for every query that has a pair at all."""
    if exists is None:
        return like.new_ones(1, 1, 1, 1)
    return exists.any(-1).to(like.dtype)[None, :, :, None]


def mean_over_pairs(rho: Tensor, exists: Tensor | None) -> Tensor:
    if exists is None:
        return rho.mean()
    count = rho.shape[0] * exists.expand(-1, rho.shape[2], -1).sum()
    return (rho * exists).sum() / count.clamp_min(1)
