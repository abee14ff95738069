"""The fast versions of the causal attention, each tested against the plain one, and which of them is used.

triton   one kernel for each direction, on a GPU
native   the same in C++, compiled on first use where there is a compiler, on the CPU
tiled    plain PyTorch, a few sensors at a time and again in the backward pass; anywhere
plain    the definition in `casper.attention`

By default the first of these that the device can run. CASPER_ATTENTION=<name> in the environment, `with using(name):`
or `causal_attention(..., version=name)` force one.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Generator
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import torch
from torch import Tensor

from casper.errors import InputError

if TYPE_CHECKING:
    from casper.attention import GateRule
    from casper.network.neighbourhood import Neighbourhood

Version = Literal["plain", "tiled", "native", "triton"]

ENVIRONMENT = "CASPER_ATTENTION"

# Asked once, not in every step: PyTorch's compiler cannot look for packages.
_TRITON_INSTALLED = importlib.util.find_spec("triton") is not None

_forced: Version | None = None


class FastVersion(Protocol):
    """What `casper.attention.causal_attention` hands its arguments to.

    Returns out (B, N, T, D), the sum of rho over all existing pairs (), and the sum of every query's weights, the mean
    over heads, (B, N, T, 1), or None where it is 1 for all queries that have a pair.
    """

    def __call__(
        self,
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
    ) -> tuple[Tensor, Tensor, Tensor | None]: ...


@contextlib.contextmanager
def using(version: Version | None) -> Generator[None]:
    """Within the block this version computes the attention; None: the fastest again."""
    global _forced  # one switch for the process
    before, _forced = _forced, version
    try:
        yield
    finally:
        _forced = before


def choose_version(device: torch.device, wanted: Version | None = None) -> Version:
    forced = wanted or _forced
    if forced:
        return _known(forced, told_by="version")
    if os.environ.get(ENVIRONMENT):
        return _known(os.environ[ENVIRONMENT], told_by=ENVIRONMENT)
    if device.type == "cuda":
        return "triton" if _TRITON_INSTALLED else "tiled"
    if device.type == "cpu":
        from casper.kernels import native

        return "native" if native.at_hand() else "tiled"
    return "tiled"


def _known(name: str, *, told_by: str) -> Version:
    for version in get_args(Version):
        if name == version:
            return version
    raise InputError(f"{told_by} must be one of {', '.join(get_args(Version))}, not {name!r}")


def fast_version(version: Version) -> FastVersion:
    """Imported when it is first used: a laptop has no Triton, and needs none."""
    if version == "triton":
        from casper.kernels.triton_attention import attend
    elif version == "native":
        from casper.kernels.native import attend
    else:
        from casper.kernels.tiled import attend
    return attend
