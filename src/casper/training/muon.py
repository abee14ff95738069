"""Muon: steps of matrices made orthogonal, so that every direction of a weight matrix learns at the same pace.

Momentum M of a matrix's gradient is replaced by the nearest orthogonal matrix, M = U S V^T -> U V^T, found by a few
Newton-Schulz iterations (K. Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024), and scaled
so that its numbers are as large as Adam's usual ones (J. Liu et al., "Muon is scalable for LLM training", 2025): one
learning rate then suits both. What is not a weight matrix (biases, norms, embeddings, prompts) is learned by Adam
(Kingma and Ba, 2015).

PyTorch's own Muon takes matrices alone, and its learning rate cannot be told to a recorded step (see `training_step`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

# The iteration x -> a x + b x^3 + c x^5 on the singular values, which drives all of them to about 1.
_NEWTON_SCHULZ, _ITERATIONS = (3.4445, -4.7750, 2.0315), 5
_MOMENTUM = 0.95
# Numbers of a step of Adam are about so large, in learning rates.
_USUAL_STEP = 0.2
# Smaller sides are not worth it: they have hardly any directions.
_SHORTEST_SIDE = 16


class Muon(torch.optim.Adam):
    """lr may be a tensor on the device of the weights, which makes a step recordable by a CUDA graph (capturable)."""

    def __init__(
        self, named: Iterable[tuple[str, nn.Parameter]], *, lr: float | Tensor, capturable: bool = False
    ) -> None:
        named = list(named)
        self._matrices = [parameter for name, parameter in named if _is_matrix(name, parameter)]
        super().__init__([parameter for _, parameter in named], lr=lr, fused=True, capturable=capturable)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        assert closure is None, "nobody asks for the loss again"
        matrices = [matrix for matrix in self._matrices if matrix.grad is not None]
        gradients = [matrix.grad for matrix in matrices]
        for matrix in matrices:
            matrix.grad = None  # so that Adam leaves it alone
        super().step()
        for matrix, gradient in zip(matrices, gradients, strict=True):
            matrix.grad = gradient
        self._turn(matrices, self.param_groups[0]["lr"])

    def _turn(self, matrices: list[nn.Parameter], rate: float | Tensor) -> None:
        """Those of a shape at once: their products are small."""
        alike: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
        for matrix in matrices:
            state, gradient = self.state[matrix], matrix.grad
            assert gradient is not None, "only what has a gradient is learned"
            if not state:  # Adam, when it is loaded, asks every state for its step
                state |= {"momentum": torch.zeros_like(matrix), "step": torch.zeros((), device=matrix.device)}
            momentum = state["momentum"]
            momentum.lerp_(gradient, 1 - _MOMENTUM)
            ahead = gradient.lerp(momentum, _MOMENTUM)  # Nesterov's
            parts = _maps_in(matrix)
            for part, step in zip(matrix.chunk(parts), ahead.chunk(parts), strict=True):
                alike.setdefault(part.shape, []).append((part, step))
        for shape, pairs in alike.items():
            turned = orthogonal(torch.stack([step for _, step in pairs])) * (_USUAL_STEP * max(shape) ** 0.5 * rate)
            for (part, _), step in zip(pairs, turned, strict=True):
                part.sub_(step)


def orthogonal(matrices: Tensor) -> Tensor:
    """(K, rows, columns): about the nearest matrices whose rows, or columns, are orthogonal and of length 1."""
    a, b, c = _NEWTON_SCHULZ
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp_min(1e-12)
    for _ in range(_ITERATIONS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x


def _is_matrix(name: str, parameter: Tensor) -> bool:
    return name.endswith("weight") and parameter.ndim == 2 and min(parameter.shape) >= _SHORTEST_SIDE


def _maps_in(matrix: Tensor) -> int:
    """Several square maps of the same input may lie in one matrix (query, key and value): each is turned on its own."""
    rows, columns = matrix.shape
    return rows // columns if rows % columns == 0 else 1
