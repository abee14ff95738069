"""The causal attention in C++ (native_attention.cpp), for processors.

It is compiled on this machine and for it, with whatever C++ compiler there is, when this module is first imported; the
library is kept in a folder of the user. Where that fails there is no native version, and nothing else is wrong.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from casper.errors import InputError
from casper.kernels.operators import Given, empty_results, make_attend

CACHE = "CASPER_CACHE"

_FOLDER = Path(__file__).parent
_SOURCE = _FOLDER / "native_attention.cpp"
_INCLUDED = (_FOLDER / "native_sensor.hpp", _FOLDER / "native_vectors.hpp")
_OPTIMISED = (
    "-std=c++17",
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-fvisibility-inlines-hidden",
)
_SHARED = ("-shared", "-fPIC")
_LONGEST_SECONDS = 120

# The backward pass is cut into at least this many pieces, however many threads there are: its sums must not depend on
# them. Each piece beyond the windows of a batch costs memory of the size of one window's gradients.
_PIECES = 16


def at_hand() -> bool:
    """Whether there is a native version on this machine."""
    return _library is not None


# ---------------------------------------------------------------------- compilation


def load_library() -> ctypes.CDLL | None:
    """The compiled library, or None if there is no way to have one."""
    if sys.platform == "win32":
        return None
    try:
        compiler = _compiler()
        if compiler is None:
            return None
        version = _run([compiler, "--version"]).stdout
        for flags in _choices_of_flags():
            library = _built(compiler, flags, version)
            if library is not None:
                return library
    except (OSError, RuntimeError, subprocess.SubprocessError):  # RuntimeError: there is no home folder
        pass
    return None


def _compiler() -> str | None:
    wanted = os.environ.get("CXX")
    names = [wanted] if wanted else ["c++", "g++", "clang++"]
    return next((found for found in map(shutil.which, names) if found is not None), None)


def _choices_of_flags() -> list[tuple[str, ...]]:
    """The best first: a compiler may know no OpenMP, or not the machine it runs on."""
    native = ("-march=native", "-mprefer-vector-width=512") if platform.machine() in ("x86_64", "AMD64") else ()
    return [
        (*_OPTIMISED, *native, "-fopenmp", *_SHARED),
        (*_OPTIMISED, *native, *_SHARED),
        (*_OPTIMISED, *_SHARED),
    ]


def _built(compiler: str, flags: Sequence[str], version: str) -> ctypes.CDLL | None:
    """From the folder of the user, or compiled now; None if this compiler cannot with these flags."""
    sources = b"".join(path.read_bytes() for path in (_SOURCE, *_INCLUDED))
    made_for = "\n".join((compiler, version, *flags, platform.machine(), _processor()))
    name = hashlib.sha256(sources + made_for.encode()).hexdigest()[:24]
    target = _cache_folder() / f"attention-{name}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        # Under another name first: another process may be doing the same, or look for it now.
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder) / target.name
            if _run([compiler, *flags, str(_SOURCE), "-o", str(made)]).returncode != 0:
                return None
            made.replace(target)
    return ctypes.CDLL(str(target))


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_SECONDS, check=False)  # noqa: S603


def _cache_folder() -> Path:
    given = os.environ.get(CACHE)
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "casper-impute"


def _processor() -> str:
    """What tells processors apart that do not run each other's code."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor()
    told = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(told)}))


_library = load_library()


# ---------------------------------------------------------------------- calls


_SIZES = ("batch", "sensors", "steps", "heads", "channels", "parts", "threads")
_POINTERS = (
    *("start", "source", "order"),
    *("query", "key", "message_query", "message_key", "gate_query", "gate_key", "relative_bias"),
    *("out", "total", "rho_sum", "d_out", "d_total"),
    *("d_query", "d_message_query", "d_gate_query"),
    *("d_key_parts", "d_message_key_parts", "d_gate_key_parts", "d_relative_bias_parts"),
)


class _Problem(ctypes.Structure):
    """struct Problem in native_sensor.hpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in _SIZES),
        *((name, ctypes.c_void_p) for name in _POINTERS),
        ("d_rho_sum", ctypes.c_double),
        ("temperature", ctypes.c_double),
        ("first_window", ctypes.c_int64),
        ("noise_key", ctypes.c_uint32 * 2),
        *((name, ctypes.c_int32) for name in ("noisy", "hard", "null", "constrained")),
    )


def _call(
    name: str, given: Given, tensors: dict[str, Tensor | None], *, parts: int = 1, d_rho_sum: float = 0.0
) -> None:
    if _library is None:
        raise InputError("there is no native version of the attention here: it needs a C++ compiler (c++ or $CXX)")
    if given.query.device.type != "cpu":
        raise InputError(f"the native version of the attention is for processors, not for {given.query.device}")
    batch, sensors, steps, heads, channels = given.query.shape
    noise_key = (0, 0) if given.noise_key is None else given.noise_key.tolist()
    inputs = {
        "start": given.start,
        "source": given.source,
        "order": given.order,
        "query": given.query,
        "key": _along_keys(given.key),
        "message_query": given.message_query,
        "message_key": _along_keys(given.message_key),
        "gate_query": given.gate_query,
        "gate_key": given.gate_key,
        "relative_bias": given.relative_bias,
    }
    held = {place: x.contiguous() for place, x in (inputs | tensors).items() if x is not None}
    problem = _Problem(
        **dict(zip(_SIZES, (batch, sensors, steps, heads, channels, parts, torch.get_num_threads()), strict=True)),
        **{place: x.data_ptr() for place, x in held.items()},
        d_rho_sum=d_rho_sum,
        temperature=1.0 if given.temperature is None else given.temperature.item(),
        first_window=given.first_window,
        noise_key=(ctypes.c_uint32 * 2)(*noise_key),
        noisy=given.noise_key is not None,
        hard=given.hard,
        null=given.null,
        constrained=given.constrained,
    )
    _library[name](ctypes.byref(problem), given.query.dtype == torch.float64)


def _along_keys(x: Tensor) -> Tensor:
    """(B, N, T, H, C) -> (B, N, H, C, T)"""
    return x.permute(0, 1, 3, 4, 2)


def _forward(given: Given) -> tuple[Tensor, Tensor, Tensor]:
    out, _, total = empty_results(given)
    rho_sum = torch.empty(given.query.shape[:2], dtype=torch.float64)
    tensors = {"out": out, "total": total if given.total_varies else None, "rho_sum": rho_sum}
    _call("casper_forward", given, tensors)
    return out, rho_sum.sum(1).sum().to(out.dtype), total


def _backward(given: Given, d_out: Tensor, d_rho_sum: Tensor, d_total: Tensor) -> list[Tensor | None]:
    batch, sensors, steps, heads, channels = given.query.shape
    parts = max(min(-(-_PIECES // max(batch, 1)), sensors), 1)
    new = given.query.new_empty
    gated, pair = given.gate_query is not None, given.message_query is not None
    d_query, d_message_query = new(given.query.shape), new(given.query.shape) if pair else None
    d_gate_query = new(batch, sensors, steps) if gated else None
    of_keys = (parts, batch, sensors, heads, channels, steps)
    d_key, d_message_key = new(of_keys), new(of_keys)
    d_gate_key = new(parts, batch, sensors, steps) if gated else None
    d_relative_bias = None if given.relative_bias is None else new(parts, batch, heads, steps, steps)
    tensors = {
        "d_out": d_out,
        "d_total": d_total if given.total_varies else None,
        "d_query": d_query,
        "d_message_query": d_message_query,
        "d_gate_query": d_gate_query,
        "d_key_parts": d_key,
        "d_message_key_parts": d_message_key,
        "d_gate_key_parts": d_gate_key,
        "d_relative_bias_parts": d_relative_bias,
    }
    _call("casper_backward", given, tensors, parts=parts, d_rho_sum=d_rho_sum.item())
    return [
        d_query,
        _joined(d_key).permute(0, 1, 4, 2, 3).contiguous(),
        d_message_query,
        _joined(d_message_key).permute(0, 1, 4, 2, 3).contiguous(),
        d_gate_query,
        None if d_gate_key is None else _joined(d_gate_key),
        None if d_relative_bias is None else _joined(d_relative_bias.flatten(0, 1)),
    ]


def _joined(parts: Tensor) -> Tensor:
    """Added up in one order, whatever the number of threads; in the first part's memory."""
    whole, *rest = parts.unbind()
    for part in rest:
        whole += part
    return whole


attend = make_attend("native", _forward, _backward)
