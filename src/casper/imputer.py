"""Casper: what a user calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import torch

from casper.causal import CausalGraph
from casper.config import ModelConfig, TrainingConfig
from casper.config import preset as find_preset
from casper.drawn_on import DrawnOn, Measure, measured, parts_of
from casper.errors import InputError, some
from casper.explanation import Explanation
from casper.graph import SensorGraph
from casper.model import CasperNetwork
from casper.neural import NeuralImputer, Recipe
from casper.progress import progress_over
from casper.train import Accelerator, TrainingData, watched_starts
from casper.training.companion import fit_kriging, mix_in_kriging, shares_in_words
from casper.training.prompts import install_prompts, pretrained_prompts
from casper.windows import Window, spread_starts

# The share of a window's cells that are hidden to see what the model draws on to fill them.
_HIDDEN_TO_LOOK = 0.2


class Casper(NeuralImputer[ModelConfig, CasperNetwork]):
    """Causality-aware imputation of sensor networks.

    preset: "fast" (a laptop), "paper" (the paper's settings), "best". Any setting of `ModelConfig` or
    `TrainingConfig` can be given by name to change the preset: Casper(preset="fast", window=48, epochs=30).
    progress: draw a bar while it works; a text begins the line, to tell models apart that are fitted side by side.
    """

    name = "casper"
    summary = "causality-aware spatiotemporal graph network (this package; Jing et al., CIKM 2024)"
    recipe = Recipe(ModelConfig(), TrainingConfig())

    def __init__(
        self,
        *,
        preset: str = "fast",
        seed: int = 0,
        device: Accelerator = "auto",
        devices: int = 1,
        progress: bool | str = False,
        **settings: Any,
    ) -> None:
        super().__init__(seed=seed, device=device, devices=devices, progress=progress)
        chosen = find_preset(preset)
        self._use(Recipe(chosen.model, chosen.training), settings)
        self.preset = preset

    @property
    def setting_to_look_beyond(self) -> str | None:
        return "kriging_beyond" if self.config.kriging else None

    def make_network(self, graph: SensorGraph, *, clock: int) -> CasperNetwork:
        index, present = self.neighbours(graph)
        return CasperNetwork(self.config, neighbour_index=index, neighbour_present=present, clock=clock)

    def prepare_network(self, network: CasperNetwork, data: TrainingData, folder: Path) -> None:
        if network.kriging is not None:
            fit_kriging(network, data, keep=self.training.keep, seed=self.seed, folder=folder, progress=self.progress)
        if self.config.decoder in ("prompts", "mlp"):
            return
        bank = pretrained_prompts(
            self.config,
            data,
            self.training,
            seed=self.seed,
            folder=folder,
            accelerator=self.device,
            devices=self.devices,
            progress=self.progress,
        )
        install_prompts(network, bank)

    def finish_network(self, network: CasperNetwork, data: TrainingData, before: float) -> float | None:  # noqa: ARG002
        if network.kriging is None:
            return None
        return mix_in_kriging(network, data, watched_starts(data, self.training, self.config.window))

    def describe(self) -> dict[str, Any]:
        told = super().describe()
        if self.result is not None and self.network is not None and self.network.kriging is not None:
            told["share_of_kriging"] = shares_in_words(self.network)
        return told

    def neighbours(self, graph: SensorGraph) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.config.graph:
            count = len(graph.sensors)
            return torch.arange(count)[:, None], torch.ones(count, 1, dtype=torch.bool)
        index, present = graph.neighbour_table(
            max_neighbours=self.config.neighbours, include_self=self.config.include_self
        )
        return torch.as_tensor(index), torch.as_tensor(present)

    @torch.inference_mode()
    def explain(self, table: pd.DataFrame, *, sensor: str, time: str | pd.Timestamp, layer: int = -1) -> Explanation:
        """What one value is made from: attention, rho, beta and weight over neighbours x steps of its window.

        A value that was observed is hidden from the model, so that it has to be made at all. A time without an offset
        is read as the table writes its own.
        """
        frame = self.to_frame(table)
        frame = frame.select(self.column_order(frame))
        self.check_length(frame)
        query = frame.sensors.index(sensor) if sensor in frame.sensors else None
        if query is None:
            raise InputError(f"there is no sensor {sensor!r} in the table; it has {some(frame.sensors)}")
        self._check_layer(layer)
        step = frame.position(time)
        window = self.config.window
        first = int(np.clip(step - window // 2, 0, len(frame.times) - window))
        network, device = self._placed_network()
        begin = max(0, first - network.reach)
        series = self._series(frame, begin, first + window + network.reach, device)
        cut = series.window(torch.tensor([first - begin], device=device), window, reach=network.reach)
        cut.values[0, query, step - first], cut.visible[0, query, step - first] = 0.0, False
        only = torch.tensor([query], device=device)
        seen = next(network.inspect(cut.values, cut.visible, cut.clock, sensors=[only], layer=layer))
        scaled = network.impute_window(cut)[0, :, step - first]
        return Explanation.build(
            seen,
            query=query,
            step=step - first,
            sensors=frame.sensors,
            times=frame.times[first : first + window],
            values=frame.values[first : first + window],
            estimate=float(self._fitted_scaler.unscale(scaled.float().cpu().numpy())[query]),
            neighbours=network.neighbour_index[query].cpu().numpy(),
            present=network.neighbour_present[query].cpu().numpy(),
        )

    @torch.no_grad()
    def causal_graph(
        self, table: pd.DataFrame, *, measure: Measure = "weight", windows: int = 256, layer: int | None = None
    ) -> CausalGraph:
        """Which sensors, at which lags, the model draws on in this table, averaged over evenly spread windows.

        What counts are the cells it fills: the table's holes, and some more that are hidden from it for this purpose.
        An edge's weight is the mean share of a value's message that comes from that source at that lag (`measure`
        "weight"; those of a target add up to 1), or another measure of `casper.drawn_on.Measure`. Its stability is the
        share of windows in which its gates are mostly open. Lags are t - t': negative ones reach into the future.
        layer: only this one; None: the mean of all.
        """
        frame = self.to_frame(table)
        frame = frame.select(self.column_order(frame))
        self.check_length(frame)
        self._check_layer(layer)
        if measure not in get_args(Measure):
            raise InputError(f"measure must be one of {', '.join(get_args(Measure))}, not {measure!r}")
        if measure == "rho" and self.config.gate == "none":
            raise InputError("this model has no gates: choose another measure than rho")
        if measure == "influence" and layer is not None and layer % self.config.layers != self.config.layers - 1:
            raise InputError("influence is measured in the last layer only: leave the layer out")
        if windows < 1:
            raise InputError(f"at least one window must be looked at, not {windows}")
        network, device = self._placed_network()
        steps, index = self.config.window, network.neighbour_index
        starts = spread_starts(len(frame.times), steps, 1)
        starts = starts[np.linspace(0, len(starts) - 1, min(windows, len(starts))).round().astype(np.int64)]
        shares = measure in ("weight", "attention")
        drawn_on = DrawnOn(len(frame.sensors), index.shape[1], steps, device, shares=shares)
        numbers_of_pair = self.config.width if measure == "influence" else self.config.heads
        parts = parts_of(len(frame.sensors), numbers_of_pair * index.shape[1] * steps**2, device)
        random = np.random.default_rng(self.seed)
        first = torch.zeros(1, dtype=torch.long, device=device)
        for start in progress_over(list(starts), "looking", self.progress):
            series = self._series(frame, int(start), int(start) + steps, device)
            cut = series.window(first, steps)
            hidden = torch.as_tensor(random.random(tuple(cut.visible.shape)) < _HIDDEN_TO_LOOK, device=device)
            cut = Window(cut.values.masked_fill(hidden, 0.0), cut.visible & ~hidden, cut.clock)
            drawn_on.add(measured(network, cut, measure, parts, layer), parts, ~cut.visible)
        origin = {
            "method": self.name,
            "measure": measure,
            "windows": len(starts),
            "layer": "last" if measure == "influence" else "mean of all" if layer is None else layer,
            "neighbours": self.graph.origin,
        }
        edges = drawn_on.edges(frame.sensors, index, network.neighbour_present)
        edges = edges[~edges["source"].isin(frame.dead)]  # there is nothing to draw from them
        if self.config.gate == "none":
            edges = edges.drop(columns="stability")  # nothing is ever shut
        return CausalGraph.build(frame.sensors, edges, step=frame.step, origin=origin)

    def _check_layer(self, layer: int | None) -> None:
        if layer is not None and not -self.config.layers <= layer < self.config.layers:
            raise InputError(f"the model has layers 0 to {self.config.layers - 1}, not {layer}")
