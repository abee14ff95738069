"""The result file of a benchmark: written anew after every measurement, so that nothing finished is ever lost."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console

from casper.evaluate import device_name, provenance, told_command, write_result

RESULTS = Path("results")


class Record:
    """parts: what was measured, by the name of the part; `save` adds where it came from."""

    def __init__(self, path: Path, *, module: str, arguments: Sequence[str], seed: int, device: str) -> None:
        self.path, self.started = path, time.time()
        self.parts: dict[str, Any] = {}
        self.failed: dict[str, str] = {}
        self._origin = provenance(seed=seed, device=device_name(device), started=self.started)
        self._origin["command"] = told_command(f"python -m {module}", arguments)
        self._origin["versions"] |= {name: _version(name) for name in ("triton", "torch-geometric")}
        self._device, self._benchmark = device, module.rpartition(".")[2]

    @property
    def seconds(self) -> float:
        return time.time() - self.started

    def save(self, targets: Sequence[dict[str, Any]] = ()) -> None:
        everything: dict[str, Any] = {
            "benchmark": self._benchmark,
            "device_kind": self._device,
            "targets": list(targets),
            **self.parts,
            "failed": self.failed,
            **self._origin,
            "wall_seconds": round(self.seconds, 2),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_result(self.path, _finite(everything))


def default_path(benchmark: str, device: str) -> Path:
    return RESULTS / f"benchmark-{benchmark}-{device}.json"


def make_console() -> Console:
    """Wide enough for the tables where nobody watches. Error messages may hold brackets, which are no markup."""
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=160)


def _finite(value: Any) -> Any:
    """JSON knows no NaN: what is not a number becomes null."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
