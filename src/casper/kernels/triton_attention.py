"""The causal attention on a GPU: Triton kernels behind two operators that PyTorch's compiler and autograd know."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton
from torch import Tensor

from casper.kernels import triton_parts as parts
from casper.kernels.triton_forward import forward_kernel
from casper.kernels.triton_gradients import key_gradients_kernel, query_gradients_kernel

if TYPE_CHECKING:
    from casper.attention import GateRule
    from casper.network.neighbourhood import Neighbourhood

# With a bias, so many programs share out the sensors: enough to fill the largest GPUs.
_PROGRAMS = 8192
# A kernel of fewer warps than this leaves parts of the GPU idle.
_FULL = 2600
_WARPS_OF_TWO_ROWS = 1000
_FEWEST_PARTNERS = 32


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
    """See `casper.kernels.FastVersion`. Numbers of half the size are widened once here, not once for every pair."""
    noise = None if gate is None else gate.noise
    temperature = None
    if gate is not None and noise is not None:
        temperature = torch.as_tensor(gate.temperature, dtype=torch.float32, device=query.device)
    given = (query, key, message_query, message_key, gate_query, gate_key, relative_bias)
    out, rho_sums, total, _, _ = _forward(
        *(None if x is None else x.float() for x in given),
        None if noise is None else noise.key,
        temperature,
        *neighbourhood.edges(),
        0 if noise is None else noise.first_window,
        0 if gate is None else 1 + 2 * gate.hard + (gate.normaliser == "null"),
        constrained,
    )
    known = gate is None or gate.always_sums_to_one
    return out.to(query.dtype), rho_sums.sum(), None if known else total.mean(-1, keepdim=True).to(query.dtype)


@torch.library.custom_op("casper::triton_attention", mutates_args=())
def _forward(
    query: Tensor,
    key: Tensor,
    message_query: Tensor | None,
    message_key: Tensor,
    gate_query: Tensor | None,
    gate_key: Tensor | None,
    bias: Tensor | None,
    noise_key: Tensor | None,
    temperature: Tensor | None,
    start: Tensor,
    source: Tensor,
    order: Tensor,
    reverse_start: Tensor,
    target: Tensor,
    reverse_order: Tensor,
    first_window: int,
    gate_kind: int,
    constrained: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Out (B, N, T, D); per query: sums of rho (B, N, T); per head: total, logarithm of the weights' sum, best open.

    gate_kind: one of the numbers in triton_parts.py.
    """
    layer = _Layer(query, key, message_query, message_key, gate_query, gate_key, bias)
    out, rho_sum, total, log_sum, best_open = _results(query, gate_kind)
    options = layer.options(gate_kind, noisy=noise_key is not None, constrained=constrained)
    tiling = layer.tiling(source.shape[0], rows_may_share=True) | options
    layer.launch(
        forward_kernel, layer.sensors, tiling,
        *layer.inputs, noise_key, temperature, start, source, order,
        out, log_sum, best_open, total, rho_sum,
        layer.batch, layer.sensors, layer.steps, first_window, *layer.strides,
    )  # fmt: skip
    return out, rho_sum, total, log_sum, best_open


@_forward.register_fake
def _(query: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return _results(query, gate_kind=rest[-2])


def _results(query: Tensor, gate_kind: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch, sensors, steps, heads, channels = query.shape
    per_head, nothing = (batch, sensors, steps, heads), (0,)
    return (
        query.new_empty(batch, sensors, steps, heads * channels),
        query.new_empty((batch, sensors, steps) if gate_kind else nothing),
        query.new_empty(per_head if gate_kind > parts.SOFT.value else nothing),
        query.new_empty(per_head),
        query.new_empty(per_head if gate_kind == parts.HARD.value else nothing),
    )


@torch.library.custom_op("casper::triton_attention_backward", mutates_args=())
def _backward(
    out_gradient: Tensor,
    rho_gradient: Tensor,
    total_gradient: Tensor,
    out: Tensor,
    total: Tensor,
    log_sum: Tensor,
    best_open: Tensor,
    query: Tensor,
    key: Tensor,
    message_query: Tensor | None,
    message_key: Tensor,
    gate_query: Tensor | None,
    gate_key: Tensor | None,
    bias: Tensor | None,
    noise_key: Tensor | None,
    temperature: Tensor | None,
    start: Tensor,
    source: Tensor,
    order: Tensor,
    reverse_start: Tensor,
    target: Tensor,
    reverse_order: Tensor,
    first_window: int,
    gate_kind: int,
    constrained: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, message_query, message_key, gate_query, gate_key, bias; empty where there is no such."""
    layer = _Layer(query, key, message_query, message_key, gate_query, gate_key, bias)
    options = layer.options(gate_kind, noisy=noise_key is not None, constrained=constrained)
    tiling = layer.tiling(source.shape[0], rows_may_share=False) | options
    batch, sensors, steps, heads, _ = query.shape
    groups = heads // tiling["GROUP"]
    query_gradient, key_gradient, message_query_gradient, message_key_gradient = (
        query.new_empty((0,) if x is None else query.shape) for x in (query, key, message_query, message_key)
    )
    gate_query_gradient, gate_key_gradient = (
        query.new_empty((0,) if x is None else (batch, sensors, steps, groups)) for x in (gate_query, gate_key)
    )
    delta = query.new_empty(batch, sensors, steps, heads)
    row_hashes = query.new_empty((0,) if noise_key is None else (batch, sensors, steps), dtype=torch.int32)
    owners, bias_parts = sensors, query.new_empty(0)
    if bias is not None:
        owners = min(sensors, max(1, _PROGRAMS // layer.programs_of_sensor(tiling)))
        bias_parts = query.new_zeros(owners, heads, batch, steps, steps)
    out_gradient, total_gradient = out_gradient.contiguous(), total_gradient.contiguous()
    layer.launch(
        query_gradients_kernel, owners, tiling,
        *layer.inputs, noise_key, temperature, start, source, order,
        out, log_sum, best_open, total, out_gradient, total_gradient, rho_gradient,
        query_gradient, message_query_gradient, gate_query_gradient, bias_parts, delta, row_hashes,
        batch, sensors, steps, first_window, owners, *layer.strides,
    )  # fmt: skip
    layer.launch(
        key_gradients_kernel, sensors, tiling,
        *layer.inputs, temperature, reverse_start, target, reverse_order,
        log_sum, best_open, delta, row_hashes, out_gradient, total_gradient, rho_gradient,
        key_gradient, message_key_gradient, gate_key_gradient,
        batch, sensors, steps, *layer.strides,
    )  # fmt: skip
    return (
        query_gradient,
        key_gradient,
        message_query_gradient,
        message_key_gradient,
        gate_query_gradient if gate_query is None else gate_query_gradient.sum(-1),
        gate_key_gradient if gate_key is None else gate_key_gradient.sum(-1),
        bias_parts if bias is None else bias_parts.sum((0, 2)),
    )


@_backward.register_fake
def _(*given: Any) -> tuple[Tensor, ...]:
    inputs = given[7:14]
    return tuple(inputs[0].new_empty(0) if x is None else x.new_empty(x.shape) for x in inputs)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    out, _, total, log_sum, best_open = output
    ctx.save_for_backward(out, total, log_sum, best_open, *inputs[:15])
    ctx.settings = inputs[15:]
    ctx.mark_non_differentiable(log_sum, best_open)


def _gradients(
    ctx: Any, out_gradient: Tensor, rho_gradients: Tensor, total_gradient: Tensor, *_unused: Tensor
) -> tuple[Tensor | None, ...]:
    # Every query's sum of rho goes into one sum, so their gradients are all the same number.
    rho_gradient = rho_gradients.flatten()[:1]
    gradients = _backward(out_gradient, rho_gradient, total_gradient, *ctx.saved_tensors, *ctx.settings)
    given = ctx.saved_tensors[4:11]
    return *(None if x is None else one for x, one in zip(given, gradients, strict=True)), *(None,) * 11


_forward.register_autograd(_gradients, setup_context=_keep_for_backward)


class _Layer:
    """The sizes and inputs that the three kernels share, and how they are cut into programs."""

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        message_query: Tensor | None,
        message_key: Tensor,
        gate_query: Tensor | None,
        gate_key: Tensor | None,
        bias: Tensor | None,
    ) -> None:
        self.batch, self.sensors, self.steps, self._heads, self._channels = query.shape
        self._nvidia = query.is_cuda and torch.version.hip is None
        given = (query, key, message_query, message_key, gate_query, gate_key)
        rows = tuple(None if x is None else in_rows(x) for x in given)
        self.inputs = (*rows, None if bias is None else bias.contiguous())
        self.strides = tuple(0 if x is None else x.stride(2) for x in rows)

    def options(self, gate_kind: int, *, noisy: bool, constrained: bool) -> dict[str, Any]:
        return {
            "PAIR": self.inputs[2] is not None,
            "GATE": gate_kind,
            "NOISY": noisy,
            "BIASED": self.inputs[6] is not None,
            "CONSTRAINED": constrained,
            "FAST": self._nvidia,
        }

    def tiling(self, edges: int, *, rows_may_share: bool) -> dict[str, Any]:
        """How a kernel is cut up; measured on an H200 with the shapes of benchmarks/.

        Narrow heads go in pairs, which share a gate. In the forward kernel a lane with one wider head has two rows,
        which share what is read at the other end of an edge; the other kernels would need too many registers for that.
        Where the GPU is not full, several warps share the steps at the other end, if each of them still has enough to
        do. A cap on the registers of a thread leaves room for more threads, as long as the channels fit into it.
        """
        padded = triton.next_power_of_2(self._channels)
        group = 2 if padded <= 8 and self._heads % 2 == 0 else 1
        groups = self.sensors * (self._heads // group)
        two_rows = rows_may_share and padded == 16 and self.steps > 1 and groups * self._blocks(2) >= _WARPS_OF_TWO_ROWS
        rows = 2 if two_rows else 1
        partners = edges * self.steps // max(self.sensors, 1)
        splits = 1
        while splits < 4 and groups * self._blocks(rows) * splits < _FULL and partners >= splits * 2 * _FEWEST_PARTNERS:
            splits *= 2
        cut = {
            "HEADS": self._heads,
            "GROUP": group,
            "CHANNELS": self._channels,
            "PADDED": padded,
            "VECTOR": min(padded, 4),  # 16 bytes at a time
            "ROWS": rows,
            "SPLITS": splits,
            "num_warps": splits,
        }
        if self._nvidia and rows * group * padded <= 16:
            cut["maxnreg"] = 128
        return cut

    def programs_of_sensor(self, cut: dict[str, Any]) -> int:
        return self._blocks(cut["ROWS"]) * (self._heads // cut["GROUP"])

    def launch(self, kernel: Any, sensors: int, constants: dict[str, Any], *arguments: Any) -> None:
        even = self.steps % constants["SPLITS"] == 0 and not constants["CONSTRAINED"]
        kernel[(sensors * self.programs_of_sensor(constants),)](*arguments, EVEN=even, **constants)

    def _blocks(self, rows: int) -> int:
        """Of 32 lanes."""
        return triton.cdiv(self.batch * triton.cdiv(self.steps, rows), 32)


def in_rows(x: Tensor) -> Tensor:
    """(B, N, T, ...) whose rows (b, n, t) lie at equal distances and are dense in themselves; a copy if need be."""
    batch, sensors, steps = x.shape[:3]
    row = x.stride(2)
    evenly = (batch == 1 or x.stride(0) == sensors * steps * row) and (sensors == 1 or x.stride(1) == steps * row)
    dense = x.dim() == 3 or (x.stride(4) == 1 and (x.shape[3] == 1 or x.stride(3) == x.shape[4]))
    return x if evenly and dense else x.contiguous()
