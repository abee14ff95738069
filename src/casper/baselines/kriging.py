"""Kriging as a method of its own; see `casper.kriging` for the model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from casper.config import FEW_WATCHED
from casper.datasets import NAMES
from casper.graph import SensorGraph
from casper.kriging import KRIGING_TRAINING, KrigingConfig, KrigingNetwork
from casper.neural import NeuralImputer, Recipe
from casper.train import Accelerator, TrainingData, check_device
from casper.training.companion import fit_correction, read_training_steps


class KrigingImputer(NeuralImputer[KrigingConfig, KrigingNetwork]):
    """Kriging in space and time; neighbours are found by the table's correlations, the graph serves the training."""

    name = "kriging"
    summary = "kriging in space and time: a Gaussian field with a learned covariance (this package)"
    recipe = Recipe(KrigingConfig(), KRIGING_TRAINING)
    for_benchmarks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **{name: {"window": 24} for name in NAMES},
        "aqi36": {"window": 36, **FEW_WATCHED},
    }

    def __init__(
        self,
        *,
        seed: int = 0,
        device: Accelerator = "auto",
        devices: int = 1,
        progress: bool | str = False,
        **settings: Any,
    ) -> None:
        check_device(device, devices)
        super().__init__(seed=seed, device="cpu", devices=devices, progress=progress, **settings)

    @property
    def setting_to_look_beyond(self) -> str:
        return "beyond"

    def make_network(self, graph: SensorGraph, *, clock: int) -> KrigingNetwork:
        return KrigingNetwork(self.config, sensors=len(graph.sensors), clock=clock)

    def prepare_network(self, network: KrigingNetwork, data: TrainingData, folder: Path) -> None:
        read_training_steps(network, data)

    def finish_network(self, network: KrigingNetwork, data: TrainingData, before: float) -> float | None:
        return fit_correction(network, data, self.training, before=before, seed=self.seed, progress=self.progress)
