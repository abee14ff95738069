"""CSDI: conditional score-based diffusion for imputation (Tashiro, Song, Song & Ermon, NeurIPS 2021).

A network is taught to find the Gaussian noise in hidden cells, given the seen ones; from pure noise it then draws what
the holes may have held, and the median of many draws is the imputation. `parts_diffusion` holds the process. The
network has residual layers, each of which exchanges what cells know by "2D attention":

    x^0 = ReLU(W [noisy where not seen; values where seen])
    h   = Transformer over sensors(Transformer over steps(x^l + W_k embedding of the diffusion step))
    gate, content = W_m h + W_s [place in the window; sensor; seen or not]
    residual, skip = W_o (sigmoid(gate) tanh(content)),     x^{l+1} = (x^l + residual) / sqrt(2)
    predicted noise = W_2 ReLU(W_1 sum of skips / sqrt(layers)),  W_2 = 0 at the start

Defaults: the official settings for PM2.5 (AQI-36, window 36): 64 channels, 4 layers, 8 heads, embeddings of 128 (time,
diffusion step) and 16 (sensor), 50 steps, beta from 1e-4 to 0.5, 100 samples; Adam 1e-3, weight decay 1e-6, batch 16,
200 epochs (of about 300 batches on AQI-36), no early stop; half of the windows hide a random share of their cells, any
from 0 to 1, the others the gap pattern of another window ("mix"). Data without gap patterns: `copied_gaps=0`.

Departures from the original:
- no dropout on attention weights (fused attention; dropout elsewhere as in the original), since all randomness of a
  training step comes from its `Noise`
- the hidden share is one of ten from 0.05 to 0.95 instead of any number, and cells are hidden independently
- the learning rate falls as a cosine instead of in two steps, gradients are clipped, and the best epoch by the error of
  one quick sample is kept instead of the last: the training loop is the same for all methods
- scored cells of the training months are not learned from unless `train_on_hidden` is set (the original does)
- the median of an even number of samples lies between the middle two, instead of being the lower one
- all windows share the samples' noise, so that an imputation does not depend on which windows are filled together
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from casper.baselines.parts_diffusion import (
    ANY_SHARE,
    TRAFFIC_GAPS,
    Condition,
    DiffusionConfig,
    DiffusionNetwork,
    ResidualLayer,
    TransformerLayer,
)
from casper.config import TrainingConfig
from casper.graph import SensorGraph
from casper.network.noise import Noise
from casper.neural import NeuralImputer, Recipe


@dataclass(frozen=True)
class CsdiConfig(DiffusionConfig):
    """CSDI has no settings beyond those of every diffusion network here."""


class TwoDimensionalAttention(ResidualLayer):
    """Steps of a sensor look at each other, then sensors at a step."""

    def __init__(self, config: CsdiConfig, *, side: int) -> None:
        super().__init__(config, side=side)
        self.over_steps = TransformerLayer(config, along="steps")
        self.over_sensors = TransformerLayer(config, along="sensors")

    def mix(self, h: Tensor, guide: Any, noise: Noise) -> Tensor:
        h = self.over_steps(h, self.over_steps.look(h), noise)
        return self.over_sensors(h, self.over_sensors.look(h), noise)


class CsdiNetwork(DiffusionNetwork):
    """Reads the seen values beside the noisy ones, and is told which are seen."""

    def __init__(self, config: CsdiConfig, *, sensors: int) -> None:
        side = config.time_embedding + config.sensor_embedding + 1
        layers = [TwoDimensionalAttention(config, side=side) for _ in range(config.layers)]
        super().__init__(config, layers, sensors=sensors)

    def condition(self, values: Tensor, seen: Tensor, sensors: Tensor | None, noise: Noise) -> Condition:
        side = self.side_information(values.shape[-1], sensors, seen)
        return Condition(
            beside=values.masked_fill(~seen, 0.0)[:, None],
            seen=seen[:, None],
            sides=[side.project(layer.side) for layer in self.residual_layers],
            guides=[None] * len(self.layers),
        )


class CsdiImputer(NeuralImputer[CsdiConfig, CsdiNetwork]):
    """Draws many fillings of the holes from a conditional diffusion model; their median is the imputation."""

    name = "csdi"
    summary = "conditional score-based diffusion with 2D attention (Tashiro et al., NeurIPS 2021)"
    recipe = Recipe(
        CsdiConfig(),
        TrainingConfig(
            epochs=200,
            batches_per_epoch=300,
            batch_size=16,
            learning_rate=1e-3,
            warmup_steps=0,
            weight_decay=1e-6,
            patience=200,
            hidden_shares=ANY_SHARE,
            copied_gaps=0.5,
        ),
    )

    for_benchmarks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "aqi36": {"window": 36},
        **TRAFFIC_GAPS,
    }

    def make_network(self, graph: SensorGraph, *, clock: int) -> CsdiNetwork:
        return CsdiNetwork(self.config, sensors=len(graph.sensors))
