"""Competitor (b): padded neighbours, compiled. It is the package's plain version, handed to PyTorch's compiler."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from benchmarks.layer import Forward, LayerInputs
from casper.attention import GateRule, causal_attention
from casper.network.neighbourhood import Neighbourhood
from casper.network.noise import PairNoise


@dataclass(frozen=True)
class NoiseInAdvance(PairNoise):
    """Draws that lie ready: reading them is cheaper than hashing them anew. drawn: (B, N, T, K*T)."""

    drawn: Tensor = field(kw_only=True)

    def draw(self, index: Tensor, *, batch: int, steps: int, dtype: torch.dtype) -> Tensor:  # noqa: ARG002
        return self.drawn


class Padded:
    """A row of K neighbours for each sensor, K being the most that any has; every pair is a number in memory."""

    name = "padded"

    def __init__(self, *, compiled: bool) -> None:
        self.compiled = compiled
        self.how = "padded neighbours (casper, version plain), noise drawn beforehand, " + (
            "torch.compile" if compiled else "not compiled"
        )
        self._attend = _attend
        if compiled:
            torch.compiler.reset()  # or after eight shapes the compiler gives up, without a word
            self._attend = torch.compile(_attend, fullgraph=True, dynamic=False)

    def bind(self, neighbourhood: Neighbourhood, inputs: LayerInputs) -> Forward:
        dtype = inputs.tensors[0].dtype
        drawn = inputs.noise.draw(
            neighbourhood.index, batch=inputs.batch, steps=inputs.steps, dtype=torch.promote_types(dtype, torch.float32)
        ).to(dtype)
        temperature = inputs.temperature.to(dtype)

        def forward() -> tuple[Tensor, Tensor]:
            table = neighbourhood.index, neighbourhood.present, neighbourhood.full
            return self._attend(inputs.tensors, *table, inputs.noise.key, drawn, temperature)

        return forward


def _attend(
    tensors: tuple[Tensor, ...],
    index: Tensor,
    present: Tensor,
    full: bool,
    noise_key: Tensor,
    drawn: Tensor,
    temperature: Tensor,
) -> tuple[Tensor, Tensor]:
    """Only tensors and a constant come in, so that the compiler sees one graph and compiles it once."""
    query, key, message_query, message_key, gate_query, gate_key = tensors
    attended = causal_attention(
        query,
        key,
        message_query,
        message_key,
        gate_query,
        gate_key,
        Neighbourhood(index, present, full),
        gate=GateRule(NoiseInAdvance(noise_key, drawn=drawn), temperature),
        version="plain",
    )
    return attended.out, attended.rho_mean
