"""CASPER, read from top to bottom like section 3 of the paper.

Its choices, in order:
- input projection with a missing embedding; sensors, clock and place in the window are told apart by embeddings
- L encoder layers: skip projection, temporal transformer, spatiotemporal causal attention, add & norm
- prompt based decoder: learned prompts stand for the data set's global context
- everything the paper ablates is a value of `ModelConfig`

Tensors are (B, N, T, D): batch, sensors, steps of a window, channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from casper.attention import AttentionDetails
from casper.config import ModelConfig, TrainingConfig
from casper.kriging import KrigingConfig, KrigingNetwork
from casper.network.embedding import CellProjection, Cells, Level, Positions, guess_from_time, steps_to_reading
from casper.network.encoder import CausalAttention, EncoderLayer
from casper.network.learning import Example, Outcome, WindowNetwork
from casper.network.neighbourhood import EdgeLists, Neighbourhood
from casper.network.noise import Noise
from casper.windows import Window

# With sampled prompts the bank holds this many times the number of prompts, and every training step draws anew.
SAMPLED_BANK = 4
# The share of the training after which the gates are as steep as they get: the rest of it fits the weights to them.
_SHARP_AFTER = 0.7
# Into so many parts the questions to the prompts are cut on a GPU, each of whose processors works on one at a time.
_PARTS_ON_GPU = 264
# In networks this large kriging is cut short, or left out: it must not take longer than the network does.
_MANY_SENSORS, MOST_SENSORS_TO_KRIGE = 100, 2000
KRIGING_DISTANCES = (1, 3, 8)
"""Upper ends, in steps to the sensor's nearest reading, of the classes with a share of kriging each; the last has none.
"""


class Prediction(NamedTuple):
    """estimate: (B, N, T), scaled; rho_mean: (L,), the mean gate probability of each layer."""

    estimate: Tensor
    rho_mean: Tensor


class PromptDecoder(nn.Module):
    """Prompt based decoder: the embedding asks N_P prompts for the data set's context, an MLP reads both.

    Query, key and value projections are linear maps followed by LayerNorm; the context is added to the embedding.
    With prompts from a pre-trained encoder, `bank` holds its pooled embeddings instead of learned vectors: K-means
    centres are used as they are, samples are drawn anew from the bank at every training step.
    """

    bank: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, count = config.width, config.prompts
        self.heads, self.count, self.resample = config.prompt_heads, count, config.decoder.startswith("sample")
        if config.decoder == "prompts":
            self.prompts = nn.Parameter(torch.randn(count, width))
        else:
            self.register_buffer("bank", torch.zeros(SAMPLED_BANK * count if self.resample else count, width))
        self.query = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width))
        self.key = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width))
        self.value = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, h: Tensor, noise: Noise) -> Tensor:
        prompts = self._prompts(noise)
        asked = self.query(h.flatten(0, 2))  # (BNT, D)
        parts = _PARTS_ON_GPU if h.is_cuda else 1
        query = F.pad(asked, (0, 0, 0, -asked.shape[0] % parts)).unflatten(0, (parts, -1))
        key, value = (x.expand(parts, -1, -1) for x in (self.key(prompts), self.value(prompts)))
        query, key, value = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in (query, key, value))
        context = F.scaled_dot_product_attention(query, key, value).transpose(1, 2)  # (parts, BNT / parts, H, C)
        context = context.flatten(0, 1)[: asked.shape[0]].reshape(h.shape)
        return self.out(self.norm(h + context)).squeeze(-1)  # (B, N, T)

    def _prompts(self, noise: Noise) -> Tensor:
        if hasattr(self, "prompts"):
            return self.prompts
        if self.resample and noise.active:
            return self.bank[noise.pick(self.bank.shape[0], self.count)]
        return self.bank[: self.count]


class _Start(NamedTuple):
    """What the encoder begins with. level: the window's, if values were taken relative to it. sensors: their numbers,
    if they are not all."""

    h: Tensor
    cells: Cells
    neighbourhood: Neighbourhood
    alone: Neighbourhood
    level: Level | None
    sensors: Tensor | None


class CasperNetwork(WindowNetwork):
    """Values and visible cells of a window in, an estimate of every cell out."""

    config: ModelConfig
    neighbour_index: Tensor
    neighbour_present: Tensor
    kriging_share: Tensor

    def __init__(self, config: ModelConfig, *, neighbour_index: Tensor, neighbour_present: Tensor, clock: int) -> None:
        """neighbour_index, neighbour_present: (N, K), see `SensorGraph.neighbour_table`; clock: number of features."""
        super().__init__()
        self.config = config
        sensors = neighbour_index.shape[0]
        self.register_buffer("neighbour_index", neighbour_index)
        self.register_buffer("neighbour_present", neighbour_present)
        self._full = bool(neighbour_present.all())
        for name, list_of_edges in EdgeLists.of(neighbour_index, neighbour_present)._asdict().items():
            self.register_buffer(f"edges_{name}", list_of_edges, persistent=False)
        self.project = CellProjection(config)
        self.level = nn.Linear(2, config.width) if config.window_level else None
        self.positions = Positions(
            config.width,
            sensors=sensors,
            clock=clock,
            window=config.window,
            spread=config.sensor_spread,
            courses=config.own_clock,
        )
        self.layers = nn.ModuleList(EncoderLayer(config, sensors=sensors) for _ in range(config.layers))
        if config.decoder == "mlp":
            self.decoder = nn.Sequential(nn.Linear(config.width, config.width), nn.ReLU(), nn.Linear(config.width, 1))
        else:
            self.decoder = PromptDecoder(config)
        self.kriging = None
        if config.kriging and sensors <= MOST_SENSORS_TO_KRIGE:
            beside = KrigingConfig(window=config.window, beyond=config.kriging_beyond)
            if sensors > _MANY_SENSORS:
                beside = beside.replace(patch=16, together=4)
            self.kriging = KrigingNetwork(beside, sensors=sensors, clock=clock)
            self.register_buffer("kriging_share", torch.zeros(len(KRIGING_DISTANCES) + 1))
            self.register_load_state_dict_pre_hook(_without_kriging)
        if config.guess:  # it is the first estimate
            last = self.decoder.out[-1] if isinstance(self.decoder, PromptDecoder) else self.decoder[-1]
            assert isinstance(last, nn.Linear)
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def forward(
        self,
        values: Tensor,
        visible: Tensor,
        clock: Tensor,
        noise: Noise | None = None,
        *,
        temperature: float | Tensor = 1.0,
        sensors: Tensor | None = None,
    ) -> Prediction:
        """values, visible: (B, N, T); clock: (B, T, F). What is not visible is not read. No noise: deterministic.

        sensors: the numbers of the sensors that N stands for, if not all.
        """
        noise = Noise.silent() if noise is None else noise
        start = self._begin(values, visible, clock, sensors)
        h, rho_means = self._encode(start, noise, temperature=temperature)
        estimate = self._decode(h, noise)
        if start.cells.guess is not None:
            estimate = estimate + start.cells.guess[..., 0]
        if start.level is not None:
            estimate = estimate * start.level.deviation + start.level.mean
        return Prediction(estimate, torch.stack(rho_means))

    def loss(self, example: Example, noise: Noise, *, training: TrainingConfig, temperature: Tensor) -> Outcome:
        """Mean absolute error on the hidden cells, and the l1 norm of the gates."""
        predicted = self(
            example.readable, example.seen, example.clock, noise, temperature=temperature, sensors=example.sensors
        )
        error = example.mean_absolute_error(predicted.estimate)
        return Outcome(error + training.sparsity * predicted.rho_mean.sum(), predicted.rho_mean)

    def impute(self, values: Tensor, visible: Tensor, clock: Tensor) -> Tensor:
        return self.impute_window(Window(values, visible, clock))

    @property
    def reach(self) -> int:
        return 0 if self.kriging is None else self.kriging.reach

    def impute_window(self, window: Window, *, quick: bool = False) -> Tensor:  # noqa: ARG002  # it is quick
        estimate = self(*window.alone).estimate
        if self.kriging is None or not self.kriging_share.any():
            return estimate
        linear = self.kriging.impute_window(window)
        return torch.lerp(estimate, linear, self.kriging_share[distance_class(window.visible)])

    def embed(self, values: Tensor, visible: Tensor, clock: Tensor) -> Tensor:
        """The encoder's embeddings, (B, N, T, D)."""
        return self._encode(self._begin(values, visible, clock), Noise.silent())[0]

    def progressed(self, share: float) -> None:
        """The gates become as steep as they should be by now; they stay so with the weights."""
        if self.config.gate == "none" or self.config.gate_sharpness == 1:
            return
        for layer in self.layers:
            assert isinstance(layer, EncoderLayer)
            layer.attention.sharpness.fill_(self.config.gate_sharpness ** min(1.0, share / _SHARP_AFTER))

    def decided(self, values: Tensor, visible: Tensor, clock: Tensor) -> Tensor:
        """Of each layer, the share of gates that are clearly shut or open; (L,), or (0,) without gates."""
        if self.config.gate == "none":
            return values.new_empty(0)
        seen = self._attentions(values, visible, clock)
        return torch.stack([attention.decided(h, neighbourhood) for attention, h, neighbourhood in seen])

    def inspect(
        self,
        values: Tensor,
        visible: Tensor,
        clock: Tensor,
        *,
        sensors: Sequence[Tensor] = (),
        layer: int | None = None,
    ) -> Iterator[AttentionDetails]:
        """Attention, rho, beta and weight of every layer in turn, or of one of them.

        sensors: those of the queries, in parts that are looked at one after the other to save memory.
        """
        wanted = range(len(self.layers)) if layer is None else (range(len(self.layers))[layer],)
        for number, (attention, h, neighbourhood) in enumerate(self._attentions(values, visible, clock)):
            for part in (sensors or (None,)) if number in wanted else ():
                yield attention.look(h, neighbourhood, Noise.silent(), sensors=part)
            if number == wanted[-1]:
                return

    def influence(
        self, values: Tensor, visible: Tensor, clock: Tensor, *, sensors: Sequence[Tensor]
    ) -> Iterator[tuple[Tensor, AttentionDetails]]:
        """How much each pair of the last layer changes the estimate of its query; see `CausalAttention.influence`.

        sensors: as in `inspect`. Not under inference mode, because a gradient is taken.
        """
        seen = self._attentions(values, visible, clock)
        attention, h, neighbourhood = next(islice(seen, len(self.layers) - 1, None))
        layer = self.layers[-1]
        assert isinstance(layer, EncoderLayer)
        message, _ = attention(h, neighbourhood, Noise.silent(), temperature=1.0)
        with torch.enable_grad():
            message = message.detach().requires_grad_()
            # The decoder looks at every point on its own, so one gradient of the sum is that of each estimate.
            (gradient,) = torch.autograd.grad(self._decode(layer.norm(h + message), Noise.silent()).sum(), message)
        for part in sensors:
            yield attention.influence(h, neighbourhood, gradient, sensors=part)

    def _decode(self, h: Tensor, noise: Noise) -> Tensor:
        return self.decoder(h, noise) if isinstance(self.decoder, PromptDecoder) else self.decoder(h).squeeze(-1)

    def _attentions(
        self, values: Tensor, visible: Tensor, clock: Tensor
    ) -> Iterator[tuple[CausalAttention, Tensor, Neighbourhood]]:
        """The causal attention of every layer in turn, and what it is given."""
        h, cells, neighbourhood, alone, _, _ = self._begin(values, visible, clock)
        for layer in self.layers:
            assert isinstance(layer, EncoderLayer)
            h_in = layer.before_attention(h, cells, alone, Noise.silent())
            yield layer.attention, h_in, neighbourhood
            h, _ = layer.after_attention(h_in, neighbourhood, Noise.silent(), temperature=1.0)

    def _begin(self, values: Tensor, visible: Tensor, clock: Tensor, sensors: Tensor | None = None) -> _Start:
        neighbourhood = self._neighbourhood() if sensors is None else self._neighbourhood().within(sensors).with_lists()
        alone = Neighbourhood.alone(values.shape[1], values.device)
        values = values.masked_fill(~visible, 0.0)
        level = None
        if self.level is not None:
            level = Level.of(values, visible)
            values = ((values - level.mean) / level.deviation).masked_fill(~visible, 0.0)
        cells = Cells(values, visible, guess_from_time(values, visible) if self.config.guess else None)
        h = self.project(cells) + self.positions(clock, sensors)
        if self.level is not None and level is not None:
            h = h + self.level(torch.stack((level.mean, level.deviation.log()), dim=-1))
        return _Start(h, cells, neighbourhood, alone, level, sensors)

    def _encode(self, start: _Start, noise: Noise, *, temperature: float | Tensor = 1.0) -> tuple[Tensor, list[Tensor]]:
        h, cells, neighbourhood, alone, _, sensors = start
        rho_means: list[Tensor] = []
        for layer in self.layers:
            h, rho_mean = layer(h, cells, neighbourhood, alone, noise, temperature=temperature, sensors=sensors)
            rho_means.append(rho_mean)
        return h, rho_means

    def _neighbourhood(self) -> Neighbourhood:
        lists = EdgeLists(*(self.get_buffer(f"edges_{name}") for name in EdgeLists._fields))
        return Neighbourhood(self.neighbour_index, self.neighbour_present, self._full, lists)


def _without_kriging(network: nn.Module, weights: dict[str, Any], prefix: str, *_: object) -> None:
    """Models of large networks that were written when these had no kriging beside them."""
    assert isinstance(network, CasperNetwork)
    if not any(name.startswith(f"{prefix}kriging.") for name in weights):
        network.kriging = None
        del network.kriging_share


def distance_class(visible: Tensor) -> Tensor:
    """(B, N, T): the number of the share of kriging of each cell."""
    ends = torch.tensor(KRIGING_DISTANCES, dtype=torch.int32, device=visible.device)
    return torch.bucketize(steps_to_reading(visible), ends)
