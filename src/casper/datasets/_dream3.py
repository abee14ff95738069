"""DREAM-3, size 100: five simulated gene networks whose true regulations are known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from casper.datasets._files import DataFile, DataSource, data_folder, find_published
from casper.errors import InputError

_PUBLISHED = "https://github.com/sakhanna/SRU_for_GCI, folder data/dream3"
_HASHES = {
    "ecoli1": "5611270b0eb7e8d52b26e238f1e84a2dca7d3b2b658cdd77101107ebfdfde10c",
    "ecoli2": "01cc8491b7a3f6f3edf84d163fa6bb68c4d16eca70c2e63e0beab4c43c708009",
    "yeast1": "abc047369f098895645cda25ee4b3b9cb3fad9828113bd3715e7a2f9ac8d74d5",
    "yeast2": "1a8c9d1ccb87bc566acaac58014c9d4e04aa5262cd3cb6e975da97003d07b761",
    "yeast3": "e8497a7eda640fb21893f2f85f8cd1b0e1571728c2c007b44be42a9229f0daa6",
}
DREAM3_NAMES = tuple(_HASHES)


@dataclass(frozen=True)
class GeneNetwork:
    """trajectories: (46, 21, 100), separate; network: (100, 100), rows are regulators, without self-loops."""

    name: str
    trajectories: NDArray[np.float64]
    network: NDArray[np.bool_]
    genes: tuple[str, ...]


def load_dream3(name: str, *, data_dir: str | Path | None = None, trust: bool = False) -> GeneNetwork:
    """One of the five networks; its file is checked by hash."""
    if name not in _HASHES:
        raise InputError(f"DREAM-3 has no network {name!r}; it has {', '.join(_HASHES)}")
    source = DataSource((DataFile(f"dream3/size100_{name}.npz", sha256=_HASHES[name]),), _PUBLISHED)
    with np.load(find_published(data_folder(data_dir), source, trust=trust), allow_pickle=False) as held:
        return GeneNetwork(
            name,
            held["trajectories"].astype(np.float64),
            held["network"] != 0,
            tuple(map(str, held["genes"])),
        )
