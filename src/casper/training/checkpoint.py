"""Training state and trained weights on disk: safetensors with JSON beside or inside them, never pickle."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load_file, save
from torch import Tensor

from casper.errors import InputError
from casper.files import atomic

_STATE = "casper-training-state"


def write_tensors(path: Path, tensors: Mapping[str, Tensor], *, state: Mapping[str, Any] | None = None) -> None:
    """One file, written atomically; `state` (anything JSON can hold) travels in its header."""
    metadata = {_STATE: json.dumps(state)} if state is not None else None
    content = save({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}, metadata)
    with atomic(path) as temporary:
        temporary.write_bytes(content)  # not safetensors' own writer, which does not say when a disk is full


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file and the state in its header (empty if there is none)."""
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    try:
        tensors = load_file(path)
        with safetensors.safe_open(path, framework="pt") as opened:
            metadata = opened.metadata() or {}
    except (safetensors.SafetensorError, OSError, struct.error) as error:
        raise InputError(
            f"{path} is not a readable weights file ({error}): it may be damaged or of another kind; "
            "use another copy, or fit again"
        ) from error
    return tensors, json.loads(metadata.get(_STATE, "{}"))


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: list[str]) -> dict[str, Tensor]:
    """The optimiser's moments under "name/moment"; `names` are the parameters' names in the optimiser's order."""
    return {
        f"{names[number]}/{moment}": value
        for number, moments in optimizer.state_dict()["state"].items()
        for moment, value in moments.items()
    }


def load_optimizer(optimizer: torch.optim.Optimizer, names: list[str], tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        name, moment = key.rsplit("/", 1)
        state.setdefault(names.index(name), {})[moment] = value
    whole = optimizer.state_dict()
    whole["state"] = state
    optimizer.load_state_dict(whole)


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}:{name}": tensor for name, tensor in tensors.items()}


def under_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(f"{prefix}:"): value for name, value in tensors.items() if name.startswith(f"{prefix}:")}
