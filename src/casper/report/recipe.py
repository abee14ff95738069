"""What somebody needs to make a report again: data, model, settings, versions, command."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from casper import __version__
from casper.contract import Imputer
from casper.frame import SensorFrame
from casper.neural import NeuralImputer
from casper.report.words import number

_PACKAGES = ("torch", "numpy", "pandas", "plotly")


@dataclass(frozen=True)
class Recipe:
    """Names and values as texts. settings: one group each for the network and its training."""

    facts: dict[str, str]
    settings: dict[str, dict[str, str]]
    versions: dict[str, str]
    command: str | None


def recipe(model: Imputer, frame: SensorFrame, *, file: Path | None, command: str | None) -> Recipe:
    facts = {"method": model.name}
    settings: dict[str, dict[str, str]] = {}
    if isinstance(model, NeuralImputer):
        facts |= {"preset": model.preset, "seed": str(model.seed), **_from_card(model.describe())}
        settings = {"network": _texts(model.config.to_dict()), "training": _texts(model.training.to_dict())}
    facts |= {"sensor network": model.graph.origin, "SHA-256 of the readings": readings_hash(frame)}
    if file is not None:
        with file.open("rb") as opened:
            facts[f"SHA-256 of {file.name}"] = hashlib.file_digest(opened, "sha256").hexdigest()
    versions = {"casper-impute": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        versions[package] = metadata.version(package)
    return Recipe(facts, settings, versions, command)


def readings_hash(frame: SensorFrame) -> str:
    """Of sensors, times and readings as CASPER read them, whatever the file looks like."""
    digest = hashlib.sha256("\n".join(frame.sensors).encode())
    digest.update(np.ascontiguousarray(frame.times.as_unit("ns").asi8, dtype="<i8").tobytes())
    digest.update(np.where(frame.observed, frame.values, np.nan).astype("<f8").tobytes())
    return digest.hexdigest()


def _from_card(card: dict[str, Any]) -> dict[str, str]:
    """What was written down when the model was fitted; little, for a model of an early version."""
    told: dict[str, str] = {}
    if "parameters" in card:
        told["parameters"] = f"{card['parameters']:,}"
    if {"epochs", "best_epoch", "seconds", "trained_on"} <= set(card):
        seconds = f"{card['seconds']:.0f} s"
        told["fitted"] = (
            f"{card['epochs']} epochs in {seconds} on {card['trained_on']}, kept is epoch {card['best_epoch'] + 1}"
        )
    if card.get("validation_mae") is not None:
        told["error on held-back cells while fitting"] = number(float(card["validation_mae"]))
    if shares := card.get("share_of_kriging"):
        told["share of kriging, by distance to the nearest reading"] = ", ".join(
            f"{distance}: {share:.0%}" for distance, share in shares.items()
        )
    return told


def _texts(settings: dict[str, Any]) -> dict[str, str]:
    return {name.replace("_", " "): _text(value) for name, value in settings.items()}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return {None: "automatic", True: "yes", False: "no"}.get(value, str(value)) if not isinstance(value, str) else value
