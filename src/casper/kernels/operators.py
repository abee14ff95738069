"""What the versions of the causal attention for the CPU have in common: their shape as PyTorch operators.

As operators they are one node for torch.compile and autograd, whatever happens inside. A version gives two functions,
`forward` and `backward`, on the arguments in `Given`; `make_attend` makes the rest of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from casper.kernels import FastVersion

if TYPE_CHECKING:
    from casper.attention import GateRule
    from casper.network.neighbourhood import Neighbourhood


class Given(NamedTuple):
    """The arguments of `casper.attention.causal_attention` as an operator takes them.

    Float tensors are all float32 or all float64. noise_key: (2,) int64 and temperature: (), both None without noise.
    """

    query: Tensor
    key: Tensor
    message_query: Tensor | None
    message_key: Tensor
    gate_query: Tensor | None
    gate_key: Tensor | None
    relative_bias: Tensor | None
    start: Tensor
    source: Tensor
    order: Tensor
    noise_key: Tensor | None
    temperature: Tensor | None
    first_window: int
    hard: bool
    null: bool
    constrained: bool

    @property
    def learned(self) -> tuple[Tensor | None, ...]:
        """What gradients are taken of."""
        return self[:DIFFERENTIABLE]

    @property
    def total_varies(self) -> bool:
        """Whether the weights of a query need not sum to 1, so that their sum is worth telling."""
        return self.gate_query is not None and (self.hard or self.null)


DIFFERENTIABLE = 7
_ARGUMENTS = (
    "Tensor query, Tensor key, Tensor? message_query, Tensor message_key, Tensor? gate_query, Tensor? gate_key, "
    "Tensor? relative_bias, Tensor start, Tensor source, Tensor order, Tensor? noise_key, Tensor? temperature, "
    "int first_window, bool hard, bool null, bool constrained"
)

# out (B, N, T, D), rho_sum () and total (B, N, T, 1); total is empty where `total_varies` is not set.
Forward = Callable[[Given], tuple[Tensor, Tensor, Tensor]]
# The gradients of these three -> those of `learned`, contiguous.
Backward = Callable[[Given, Tensor, Tensor, Tensor], list[Tensor | None]]


def empty_results(given: Given) -> tuple[Tensor, Tensor, Tensor]:
    """out, rho_sum and total, to be filled."""
    batch, sensors, steps, heads, channels = given.query.shape
    out = given.query.new_empty(batch, sensors, steps, heads * channels)
    total = out.new_empty((batch, sensors, steps, 1) if given.total_varies else (0,))
    return out, out.new_empty(()), total


def make_attend(name: str, forward: Forward, backward: Backward) -> FastVersion:
    """Registers casper::<name> and casper::<name>_backward, and wraps them as the function that the attention calls."""
    there, back = f"casper::{name}", f"casper::{name}_backward"
    torch.library.define(there, f"({_ARGUMENTS}) -> (Tensor, Tensor, Tensor)")
    gradients = ", ".join(["Tensor"] * DIFFERENTIABLE)
    torch.library.define(back, f"(Tensor d_out, Tensor d_rho_sum, Tensor d_total, {_ARGUMENTS}) -> ({gradients})")

    # Not torch.library.custom_op, which imports torch's compiler on its first call: two seconds of every command.
    @torch.library.impl(there, "CompositeExplicitAutograd")
    def run(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        return forward(Given(*arguments))

    @torch.library.impl(back, "CompositeExplicitAutograd")
    def run_back(d_out: Tensor, d_rho_sum: Tensor, d_total: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
        found = backward(Given(*arguments), d_out, d_rho_sum, d_total)
        return tuple(d_out.new_empty(0) if gradient is None else gradient for gradient in found)

    @torch.library.register_fake(there)
    def pretend(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        return empty_results(Given(*arguments))

    @torch.library.register_fake(back)
    def pretend_back(d_out: Tensor, d_rho_sum: Tensor, d_total: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
        _ = d_rho_sum, d_total
        return tuple(d_out.new_empty(0 if x is None else x.shape) for x in Given(*arguments).learned)

    def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:  # noqa: ARG001
        tensors = len(inputs) - 4
        ctx.save_for_backward(*inputs[:tensors])
        ctx.settings = inputs[tensors:]

    def differentiate(ctx: Any, d_out: Tensor, d_rho_sum: Tensor, d_total: Tensor) -> tuple[Tensor | None, ...]:
        given = Given(*ctx.saved_tensors, *ctx.settings)
        operator = getattr(torch.ops.casper, f"{name}_backward")
        found = operator(d_out, d_rho_sum, d_total, *given)
        return (
            *(None if x is None else gradient for x, gradient in zip(given.learned, found, strict=True)),
            *([None] * (len(given) - DIFFERENTIABLE)),
        )

    torch.library.register_autograd(there, differentiate, setup_context=keep)
    _ = run, run_back, pretend, pretend_back

    def attend(
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
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        double = any(x is not None and x.dtype == torch.float64 for x in (query, key, message_key, relative_bias))
        dtype = torch.float64 if double else torch.float32  # half precision is computed in single precision
        edges = neighbourhood.edges()
        noise = temperature = None
        if gate is not None and gate.noise is not None:
            noise = gate.noise
            temperature = torch.as_tensor(gate.temperature, dtype=dtype, device=query.device).detach()
        given = Given(
            query.to(dtype),
            key.to(dtype),
            None if message_query is None else message_query.to(dtype),
            message_key.to(dtype),
            None if gate_query is None or gate is None else gate_query.to(dtype),
            None if gate_key is None or gate is None else gate_key.to(dtype),
            None if relative_bias is None else relative_bias.to(dtype),
            edges.start,
            edges.source,
            edges.order,
            None if noise is None else noise.key,
            temperature,
            0 if noise is None else noise.first_window,
            hard=gate is not None and gate.hard,
            null=gate is not None and gate.normaliser == "null",
            constrained=constrained,
        )
        out, rho_sum, total = getattr(torch.ops.casper, name)(*given)
        return out.to(query.dtype), rho_sum, total.to(query.dtype) if given.total_varies else None

    return attend
