"""One layer of causal attention as it is measured: its random inputs, and what computes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from benchmarks.shapes import Shape
from casper.attention import GateRule, causal_attention
from casper.kernels import Version
from casper.network.neighbourhood import Neighbourhood
from casper.network.noise import PairNoise

Forward = Callable[[], tuple[Tensor, Tensor]]
"""Computes the layer: out (B, N, T, D) and the mean of rho ()."""
TENSORS = ("query", "key", "message_query", "message_key", "gate_query", "gate_key")
TEMPERATURE = 0.9
OPEN_GATES = 2.0
"""The logits of a network's gates start around here."""


@dataclass(frozen=True)
class LayerInputs:
    """tensors: those of TENSORS, leaves that want gradients; temperature: () on the device.

    out_gradient: (B, N, T, D); rho_gradient: (). What comes back from the rest of the network.
    """

    tensors: tuple[Tensor, ...]
    noise: PairNoise
    temperature: Tensor
    out_gradient: Tensor
    rho_gradient: Tensor

    @classmethod
    def draw(
        cls,
        shape: Shape,
        *,
        batch: int,
        width: int,
        heads: int,
        dtype: torch.dtype,
        device: torch.device,
        seed: int,
    ) -> LayerInputs:
        generator = torch.Generator(device).manual_seed(seed)
        points = (batch, shape.sensors, shape.steps)
        channels = width // heads

        def normal(*size: int) -> Tensor:
            return torch.randn(*size, generator=generator, device=device)

        drawn = [normal(*points, heads, channels) for _ in range(4)] + [normal(*points) for _ in range(2)]
        drawn[0] /= channels**0.5
        drawn[4] += OPEN_GATES
        return cls(
            tensors=tuple(tensor.to(dtype).requires_grad_() for tensor in drawn),
            noise=PairNoise(torch.randint(2**32, (2,), generator=generator, device=device)),
            temperature=torch.tensor(TEMPERATURE, device=device),
            out_gradient=normal(*points, width).to(dtype),
            # As large as the number of queries: then it moves every gate as much as the messages do.
            rho_gradient=torch.tensor(float(batch * shape.sensors * shape.steps), device=device),
        )

    @property
    def batch(self) -> int:
        return self.tensors[0].shape[0]

    @property
    def steps(self) -> int:
        return self.tensors[0].shape[2]

    def window(self, number: int, dtype: torch.dtype) -> LayerInputs:
        """One window of the batch on its own, in another precision."""
        one = slice(number, number + 1)
        return LayerInputs(
            tensors=tuple(tensor.detach()[one].to(dtype).requires_grad_() for tensor in self.tensors),
            noise=replace(self.noise, first_window=self.noise.first_window + number),
            temperature=self.temperature.to(dtype),
            out_gradient=self.out_gradient[one].to(dtype),
            rho_gradient=self.rho_gradient.to(dtype) / self.batch,
        )


class Contestant(Protocol):
    """A way to compute the layer. name: its key in the result file; how: what it is, in words."""

    name: str
    how: str

    def bind(self, neighbourhood: Neighbourhood, inputs: LayerInputs) -> Forward:
        """The layer on these inputs; what is prepared here is not timed."""
        ...


class Ours:
    """`casper.attention.causal_attention` in one of its versions; it draws its noise itself."""

    def __init__(self, version: Version) -> None:
        self.version: Version = version
        self.name, self.how = version, f"casper, version {version}"

    def bind(self, neighbourhood: Neighbourhood, inputs: LayerInputs) -> Forward:
        rule = GateRule(inputs.noise, inputs.temperature)

        def forward() -> tuple[Tensor, Tensor]:
            query, key, message_query, message_key, gate_query, gate_key = inputs.tensors
            attended = causal_attention(
                query,
                key,
                message_query,
                message_key,
                gate_query,
                gate_key,
                neighbourhood,
                gate=rule,
                version=self.version,
            )
            return attended.out, attended.rho_mean

        return forward


def there_and_back(forward: Forward, inputs: LayerInputs) -> tuple[Tensor, ...]:
    """Forward and backward: out, the mean of rho, and the gradient of every tensor."""
    out, rho_mean = forward()
    arriving = (inputs.out_gradient, inputs.rho_gradient.to(rho_mean.dtype))
    return out, rho_mean, *torch.autograd.grad((out, rho_mean), inputs.tensors, arriving)
