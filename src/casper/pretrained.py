"""Fitted models on disk: a folder with config.json and model.safetensors; and the ones shipped with the package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from casper.errors import InputError, some
from casper.files import atomic_folder
from casper.graph import SensorGraph
from casper.intervals.calibration import Calibration
from casper.training.checkpoint import read_tensors, under_prefix, with_prefix, write_tensors
from casper.windows import Scaler

CONFIG, WEIGHTS = "config.json", "model.safetensors"
FILES = (CONFIG, WEIGHTS, "metrics.csv", "tensorboard")
"""What a model's folder may hold; one that holds anything else is never replaced."""
_FORMAT = "casper-model-1"
_SHIPPED = Path(__file__).parent / "weights"
_KINDS: dict[str, type | tuple[type, ...]] = {
    "format": str,
    "method": str,
    "model": dict,
    "training": dict,
    "preset": str,
    "seed": int,
    "step_seconds": (int, float),
    "periods": list,
    "options": dict,
    "card": dict,
    "sensors": list,
    "graph_origin": str,
}
"""Keys of config.json and what they hold."""
_OF_THE_GRAPH = ("neighbour_index", "neighbour_present")

Network = TypeVar("Network", bound=nn.Module)


class Learned(NamedTuple):
    """What a fitted model knows besides its weights."""

    graph: SensorGraph
    scaler: Scaler
    calibration: Calibration | None


@dataclass(frozen=True)
class Loaded:
    description: dict[str, Any]
    weights: dict[str, Tensor]
    learned: Learned
    source: Path

    def into(self, network: Network) -> Network:
        """The network with these weights."""
        try:
            expected = {name: tensor.clone() for name, tensor in network.named_buffers() if name in _OF_THE_GRAPH}
            network.load_state_dict(self.weights)
            if not all(torch.equal(network.get_buffer(name), tensor) for name, tensor in expected.items()):
                raise RuntimeError("the neighbours are not those of the graph")
        except RuntimeError as error:
            raise InputError(
                f"the weights in {self.source} do not fit their config.json; the folder is damaged"
            ) from error
        return network.eval()


def shipped() -> tuple[str, ...]:
    """Names of the models that come with the package."""
    return tuple(sorted(path.name for path in _SHIPPED.glob("*") if (path / CONFIG).is_file()))


def write(
    folder: Path,
    network: nn.Module,
    learned: Learned,
    description: Mapping[str, Any],
    *,
    force: bool,
) -> Path:
    graph, scaler, calibration = learned
    tensors = {
        **with_prefix("network", network.state_dict()),
        "graph:source": torch.as_tensor(graph.source),
        "graph:target": torch.as_tensor(graph.target),
        "graph:weight": torch.as_tensor(graph.weight),
        "scaler:mean": torch.as_tensor(scaler.mean),
        "scaler:deviation": torch.as_tensor(scaler.deviation),
        **with_prefix("calibration", {} if calibration is None else calibration.to_tensors()),
    }
    told = {
        "format": _FORMAT,
        **description,
        "sensors": list(graph.sensors),
        "graph_origin": graph.origin,
    }
    with atomic_folder(folder, force=force, ours=FILES) as temporary:
        write_tensors(temporary / WEIGHTS, tensors)
        (temporary / CONFIG).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return folder


def read(name: str | Path) -> Loaded:
    folder = Path(name)
    if not (folder / CONFIG).is_file() and str(name) in shipped():
        folder = _SHIPPED / str(name)
    if not folder.is_dir() or not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
        what = "is not a model folder (config.json and model.safetensors)" if folder.exists() else "does not exist"
        raise InputError(f"{name} {what}; models that come with the package: {', '.join(shipped()) or 'none'}")
    description = _description(folder / CONFIG)
    tensors, _ = read_tensors(folder / WEIGHTS)
    try:
        graph = SensorGraph(
            tuple(description["sensors"]),
            tensors["graph:source"].numpy(),
            tensors["graph:target"].numpy(),
            tensors["graph:weight"].numpy(),
            description["graph_origin"],
        )
        scaler = Scaler(tensors["scaler:mean"].numpy(), tensors["scaler:deviation"].numpy())
        calibration = Calibration.from_tensors(under_prefix("calibration", tensors))
    except KeyError as error:
        raise InputError(f"{folder / WEIGHTS} is not a CASPER model: it lacks {error}") from error
    if not (len(graph.sensors) == len(scaler.mean) and np.isfinite(scaler.mean).all()):
        raise InputError(f"{folder} is damaged: its sensors and its weights do not fit together")
    return Loaded(description, under_prefix("network", tensors), Learned(graph, scaler, calibration), folder)


def _description(path: Path) -> dict[str, Any]:
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not readable JSON ({error})") from error
    if not isinstance(description, dict) or description.get("format") != _FORMAT:
        raise InputError(f"{path} does not describe a CASPER model of a format this version knows ({_FORMAT})")
    description.setdefault("method", "casper")  # the only one there was at first
    unknown, missing = sorted(set(description) - set(_KINDS)), sorted(set(_KINDS) - set(description))
    if unknown or missing:
        told = [f"unknown keys {', '.join(unknown)}"] * bool(unknown) + [f"no {', '.join(missing)}"] * bool(missing)
        raise InputError(f"{path} has {' and '.join(told)}; fit the model again or undo the change")
    wrong = [name for name, kind in _KINDS.items() if not isinstance(description[name], kind)]
    if not wrong and not all(isinstance(period, int | float) for period in description["periods"]):
        wrong = ["periods"]
    if not wrong and set(description["options"]) != {"freq", "timezone", "missing_values"}:
        wrong = ["options"]
    if wrong:
        raise InputError(f"{path} is damaged: {some(wrong)} cannot be read; fit the model again or undo the change")
    return description
