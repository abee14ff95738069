"""Who takes part, by the name in the result files."""

from __future__ import annotations

from typing import get_args

import torch

from benchmarks.edge_list import EdgeList
from benchmarks.layer import Contestant, Ours
from benchmarks.padded import Padded
from casper.errors import InputError
from casper.kernels import Version, choose_version

EDGE_LIST, PADDED = EdgeList.name, Padded.name


def contestant(name: str, *, compiled: bool) -> Contestant:
    """compiled: whether padded neighbours are compiled; the others are not asked."""
    if name == EDGE_LIST:
        return EdgeList()
    if name == PADDED:
        return Padded(compiled=compiled)
    return Ours(as_version(name))


def as_version(name: str) -> Version:
    for version in get_args(Version):
        if name == version:
            return version
    raise InputError(f"there is no version {name!r} of the attention; choose from {', '.join(get_args(Version))}")


def our_versions(device: torch.device) -> tuple[Version, ...]:
    """The one a user gets on this device comes first; on a CPU the one that needs no compiler takes part too."""
    first = choose_version(device)
    return (first, "tiled") if device.type == "cpu" and first != "tiled" else (first,)
