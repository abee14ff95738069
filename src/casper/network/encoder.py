"""CASPER's encoder layer: skip projection, temporal transformer, spatiotemporal causal attention (section 3.2)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from casper.attention import AttentionDetails, GateRule, causal_attention, look_at_pairs, mean_over_pairs
from casper.config import ModelConfig
from casper.network.embedding import CellProjection, Cells
from casper.network.neighbourhood import Neighbourhood
from casper.network.noise import Noise


class TemporalTransformer(nn.Module):
    """A transformer encoder layer along the steps of each sensor on its own (Vaswani et al., 2017).

    Its attention is the causal attention's without neighbours and gates, whose kernels suit such short series.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.width
        self.heads, self.dropout = config.heads, config.dropout
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_attention = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, config.feed_forward), nn.ReLU(), nn.Linear(config.feed_forward, width)
        )
        self.norm_out = nn.LayerNorm(width)

    def forward(self, h: Tensor, alone: Neighbourhood, noise: Noise) -> Tensor:
        query, key, value = self.query_key_value(h).unflatten(-1, (3, self.heads, -1)).unbind(3)  # (B, N, T, H, C)
        query = query / math.sqrt(query.shape[-1])
        attended = self.out(causal_attention(query, key, None, value, None, None, alone).out)
        h = self.norm_attention(h + noise.dropout(attended, self.dropout))
        return self.norm_out(h + noise.dropout(self.feed_forward(h), self.dropout))


class Projected(NamedTuple):
    """What the causal attention reads: vectors (B, N, T, H, C) and the gate's logits (B, N, T)."""

    query: Tensor
    key: Tensor
    message_query: Tensor | None
    message_key: Tensor
    gate_query: Tensor | None
    gate_key: Tensor | None


class CausalAttention(nn.Module):
    """Spatiotemporal causal attention (equations 10 to 15): neighbours' steps, each behind a causal gate.

    The message MLP([query; key]) is split: its first layer into a query and a key part, its last layer behind the sum.
    """

    sharpness: Tensor

    def __init__(self, config: ModelConfig, *, sensors: int) -> None:
        super().__init__()
        width, self.config = config.width, config
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.message_key = nn.Linear(width, width)
        self.message_query = nn.Linear(width, width, bias=False) if config.message == "pair" else None
        self.message_out = nn.Linear(width, width)
        if config.gate == "gumbel":
            self.gate_query, self.gate_key = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
            self.gate_query_logit, self.gate_key_logit = nn.Linear(width, 1), nn.Linear(width, 1, bias=False)
            nn.init.constant_(self.gate_query_logit.bias, config.gate_bias)
            if config.gate_sharpness > 1:
                self.register_buffer("sharpness", torch.ones(()))
        self.relative = nn.Parameter(torch.zeros(config.heads, 2 * config.window - 1)) if config.relative_time else None
        # Of the query and the key of every sensor: products of the size of 1, to begin with.
        self.own = nn.Parameter(torch.randn(2, sensors, width)) if config.own_keys else None

    def forward(
        self,
        h: Tensor,
        neighbourhood: Neighbourhood,
        noise: Noise,
        *,
        temperature: float | Tensor,
        sensors: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """sensors: the numbers of those that h is of, if they are not all."""
        attended = causal_attention(
            *self._project(h, sensors),
            neighbourhood,
            gate=self._gate_rule(noise, temperature),
            relative_bias=self._relative_bias(h.shape[2]),
            constrained=self.config.constrained,
        )
        # The bias of the message MLP belongs to the message: no message, no bias.
        message = F.linear(attended.out, self.message_out.weight) + self.message_out.bias * attended.total
        return message, attended.rho_mean

    def look(
        self,
        h: Tensor,
        neighbourhood: Neighbourhood,
        noise: Noise,
        *,
        temperature: float | Tensor = 1.0,
        sensors: Tensor | None = None,
    ) -> AttentionDetails:
        """What the layer does with h, pair by pair; sensors: the numbers of the queries' sensors, if not all."""
        chosen = torch.arange(h.shape[1], device=h.device) if sensors is None else sensors
        projected = self._project(h)
        return look_at_pairs(
            projected.query[:, chosen],
            projected.key,
            None if projected.gate_query is None else projected.gate_query[:, chosen],
            projected.gate_key,
            neighbourhood.rows(chosen),
            gate=self._gate_rule(noise, temperature),
            relative_bias=self._relative_bias(h.shape[2]),
            constrained=self.config.constrained,
        )

    def influence(
        self, h: Tensor, neighbourhood: Neighbourhood, gradient: Tensor, *, sensors: Tensor
    ) -> tuple[Tensor, AttentionDetails]:
        """What shutting each pair's gate would take away, to first order, from a quantity with this gradient.

        That is beta times the whole slope by beta, (B, M, T, K, T). With the null slot this is beta times the g of the
        paper's Remark 1, where Z is 1. Without it Z moves with the gates, which the paper's g leaves out: the slope is
        g less alpha / Z times what all messages of the query come to. gradient: (B, N, T, D), with respect to the
        layer's messages. sensors: (M,), those of the queries.
        """
        heads, config = self.config.heads, self.config
        seen = self.look(h, neighbourhood, Noise.silent(), sensors=sensors)
        projected, mine = self._project(h), neighbourhood.rows(sensors)
        hidden = mine.gather(projected.message_key).transpose(2, 3)[:, :, :, None]  # (B, M, H, 1, KT, C)
        if projected.message_query is not None:
            hidden = F.relu(projected.message_query[:, sensors].transpose(2, 3)[..., None, :] + hidden)
        gradient = gradient[:, sensors]
        towards = (gradient @ self.message_out.weight).unflatten(-1, (heads, -1)).transpose(2, 3)  # (B, M, H, T, C)
        pulls = (hidden * towards[..., None, :]).sum(-1)  # (B, M, H, T, KT)
        weight = seen.weight.flatten(-2)
        if config.gate_null_slot:  # the others' weights stay as they are
            pulls = pulls + (gradient @ self.message_out.bias)[:, :, None, :, None] / heads
        else:
            pulls = pulls - (weight * pulls).sum(-1, keepdim=True)
        return (weight * pulls).sum(2).unflatten(-1, seen.rho.shape[-2:]), seen

    def decided(self, h: Tensor, neighbourhood: Neighbourhood) -> Tensor:
        """The share of gates that are clearly shut (rho < 0.1) or open (rho > 0.9)."""
        projected = self._project(h)
        assert projected.gate_query is not None, "a layer without gates decides nothing"
        assert projected.gate_key is not None, "a layer without gates decides nothing"
        logit = projected.gate_query[..., None] + neighbourhood.gather(projected.gate_key)[:, :, None, :]
        exists = neighbourhood.pairs(h.shape[2], constrained=self.config.constrained)
        return mean_over_pairs((logit.abs() > math.log(9.0)).to(h.dtype), exists)

    def _project(self, h: Tensor, sensors: Tensor | None = None) -> Projected:
        """All of it by one matrix product.

        The gate's two maps are linear both, so they are joined; the query is divided by sqrt(C) by its weights.
        """
        heads, width = self.config.heads, self.config.width
        scale = 1.0 / math.sqrt(width // heads)
        weights = [self.query.weight * scale, self.key.weight]
        biases = [self.query.bias * scale, h.new_zeros(width)]
        if self.message_query is not None:
            weights.append(self.message_query.weight)
            biases.append(h.new_zeros(width))
        weights.append(self.message_key.weight)
        biases.append(self.message_key.bias)
        if self.config.gate == "gumbel":
            steep = self.sharpness if self.config.gate_sharpness > 1 else 1.0
            weights.append(steep * self.gate_query_logit.weight @ self.gate_query.weight)
            weights.append(steep * self.gate_key_logit.weight @ self.gate_key.weight)
            # Rows of a multiple of 32 numbers: on a GPU no part of a row then lies across more lines of the cache than
            # it must, and Triton knows that it can read four numbers at a time.
            spare = -sum(weight.shape[0] for weight in weights) % 32
            weights.append(h.new_zeros(spare, width))
            biases += [steep * self.gate_query_logit.bias, h.new_zeros(1 + spare)]
        projected = F.linear(h, torch.cat(weights), torch.cat(biases))
        parts = list(projected.split([weight.shape[0] for weight in weights], dim=-1))
        vectors = [part.unflatten(-1, (heads, -1)) for part in parts[: 3 + (self.message_query is not None)]]
        query, key, message_key = vectors[0], vectors[1], vectors[-1]
        message_query = vectors[2] if self.message_query is not None else None
        if self.own is not None:
            own = self.own if sensors is None else self.own[:, sensors]
            own_query, own_key = own.unflatten(-1, (heads, -1))[:, None, :, None]  # (1, N, 1, H, C) each
            query, key = query + own_query * scale, key + own_key
        if self.config.gate == "none":
            return Projected(query, key, message_query, message_key, None, None)
        return Projected(query, key, message_query, message_key, parts[-3].squeeze(-1), parts[-2].squeeze(-1))

    def _gate_rule(self, noise: Noise, temperature: float | Tensor) -> GateRule | None:
        if self.config.gate == "none":
            return None
        normaliser = "null" if self.config.gate_null_slot else "gated"
        if not noise.active:
            return GateRule(hard=self.config.gate_hard_inference, normaliser=normaliser)
        return GateRule(noise.of_pairs(), temperature, self.config.gate_straight_through, normaliser)

    def _relative_bias(self, steps: int) -> Tensor | None:
        if self.relative is None:
            return None
        step = torch.arange(steps, device=self.relative.device)
        return self.relative[:, step[:, None] - step[None, :] + self.config.window - 1]  # (H, T, T)


class EncoderLayer(nn.Module):
    """H^(l) = LayerNorm(H_in + SCA(H_in)),  H_in = Transformer(H^(l-1) + skip projection of the input)."""

    def __init__(self, config: ModelConfig, *, sensors: int) -> None:
        super().__init__()
        self.skip = CellProjection(config) if config.skip else None
        self.transformer = TemporalTransformer(config)
        self.attention = CausalAttention(config, sensors=sensors)
        self.norm = nn.LayerNorm(config.width)
        self.dropout = config.dropout

    def forward(
        self,
        h: Tensor,
        cells: Cells,
        neighbourhood: Neighbourhood,
        alone: Neighbourhood,
        noise: Noise,
        *,
        temperature: float | Tensor,
        sensors: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """alone: the neighbourhood in which every sensor sees only itself. sensors: their numbers, if not all."""
        h_in = self.before_attention(h, cells, alone, noise)
        return self.after_attention(h_in, neighbourhood, noise, temperature=temperature, sensors=sensors)

    def after_attention(
        self,
        h_in: Tensor,
        neighbourhood: Neighbourhood,
        noise: Noise,
        *,
        temperature: float | Tensor,
        sensors: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        h_out, rho_mean = self.attention(h_in, neighbourhood, noise, temperature=temperature, sensors=sensors)
        return self.norm(h_in + noise.dropout(h_out, self.dropout)), rho_mean

    def before_attention(self, h: Tensor, cells: Cells, alone: Neighbourhood, noise: Noise) -> Tensor:
        if self.skip is not None:
            h = h + self.skip(cells)
        return self.transformer(h, alone, noise)
