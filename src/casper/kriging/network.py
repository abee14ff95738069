"""Kriging in space and time: the best linear estimate of a field whose covariance is learned from the table (ours).

The readings of a window are taken for a Gaussian field, so that the estimate of its holes h from its visible cells v is

    y_h = K_hv (K_vv + noise)^-1 y_v,      y = (f(x) - course) / deviation

f is a square root where readings are skewed, else nothing; the course is a sensor's own mean, day and week. The
covariance joins several scales r of time, each with relations of its own between the sensors i and j:

    K(i, t; j, t') = sum_r S_r(i, j) k_r(t - d_ri - t' + d_rj),      S_r = a_i a_j (sum_p w_rp C^p + w_r0 I) + E_r E_r^T

k_r: an exponential, or a smoother Matern kernel (3/2). d: how late a sensor is, because wind, water and traffic take
their time. C: the sensors' correlations in the table, each at its own delay, whose elementwise powers C^p count near
relations more and more, and stay covariances (Schur's product theorem). E_r: relations of low rank that are learned.
These, the scales, the weights w, the amplitudes a, the delays d and the noise are learned as CASPER is: by hiding
visible cells and restoring them. The linear model of coregionalisation and its estimate are those of geostatistics
(Journel and Huijbregts, 1978; Cressie, 1993); delays in it are those of Wackernagel (2003).

Beyond the window it may look at means of blocks of steps (`casper.kriging.beyond`).

There are few numbers to learn, so that a minute on a laptop is enough. It is at its best on smooth fields such as
temperature; where relations are not linear, as in traffic, a small network corrects it (`casper.kriging.correction`).

In a large network a sensor is estimated from the `patch` sensors that tell most about it, some sensors at a time.
Systems of equations of a few hundred unknowns, one after the other, gain nothing from a GPU: it learns on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from casper.config import NetworkConfig, Scaling, TrainingConfig, require
from casper.kriging.beyond import SIZES, BlockMeans, blocks_around, means_of_blocks, reach_of, steps_apart, with_blocks
from casper.kriging.correction import Correction, Field, nearest_sensors
from casper.kriging.delays import aligned
from casper.kriging.solving import conditional_mean
from casper.network.learning import Example, Outcome, WindowNetwork
from casper.network.noise import Noise
from casper.windows import Window

# Scales of time to begin with, in windows: of the exponential and of the smoother kernels.
_ROUGH, _SMOOTH = (0.02, 0.1, 0.4, 1.6), (0.1, 0.4, 1.6, 8.0)
_POWERS = (1, 2, 4, 12)
_NOISE = 0.02  # share of a sensor's variance, to begin with
_FAR_NOISE = 0.02  # the same of a block of steps beyond the window
_FIRST_RANK = 0.15  # size of the learned relations, to begin with, beside the correlations
_SMALLEST = 1e-4  # added to every variance, so that systems can be solved in single precision
_MOST_KEPT = 2**26  # numbers in all covariances that are kept for the next windows
# Readings that are more skewed than this are transformed.
_SKEWED = 1.0
# A root is steep at its edge: the lowest reading lies a little above it.
_ABOVE_THE_EDGE = 0.02
# A network that is hardly larger than a patch is looked at whole.
_WORTH_IT = 1.5
# A course of the day needs as many readings as this to be believed half way.
_READINGS_FOR_COURSE = 100.0
# Delays are learned in parts of a window.
_DELAYS_IN_WINDOW = 12.0


@dataclass(frozen=True)
class KrigingConfig(NetworkConfig):
    """Kriging in space and time."""

    window: int = 36
    """Steps the model sees at a time (T); twice as long ones take eight times as long."""
    scaling: Scaling = "sensor"
    """One mean and deviation for the whole table, or one for each sensor."""
    harmonics: int = 4
    """Waves of the day in a sensor's own course."""
    rank: int = 8
    """Of the learned relations between sensors."""
    patch: int = 24
    """Sensors that an estimate is drawn from, in networks that are larger than half as much again."""
    together: int = 6
    """Sensors of such a patch that are estimated together."""
    beyond: bool = False
    """Look at what lies on either side of the window, too, if held-back readings are filled better with it. Unless it
    is said, the table decides: one whose holes lie mostly in long gaps gains."""
    correction: bool = True
    """A small network corrects the linear estimate, if held-back readings are filled better with it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.rank >= 1, f"rank must be at least 1, not {self.rank}")
        require(self.patch >= 2, f"patch must be at least 2 sensors, not {self.patch}")
        require(
            1 <= self.together <= self.patch,
            f"together must lie between 1 and patch ({self.patch}), not {self.together}",
        )


KRIGING_TRAINING = TrainingConfig(
    epochs=10,
    batches_per_epoch=100,
    batch_size=8,
    learning_rate=0.03,
    warmup_steps=10,
    patience=10,
    clip=1.0,
    copied_gaps=0.4,
    block_gaps=0.3,
    hidden_shares=(0.2, 0.5),
    validation_cells=100_000,
    sensors_per_batch=24,
    compiled=False,
)
"""Few numbers are learned, so few steps are enough; steps are long, so they see few windows."""


class Patch(NamedTuple):
    """Sensors, and how many of them, the first ones, are estimated from all."""

    sensors: Tensor
    targets: int


class Filled(NamedTuple):
    """rest: (B, N, T), what readings and estimates have beyond the course, in deviations; course: (B, N, T);
    deviation: (N, 1)."""

    rest: Tensor
    course: Tensor
    deviation: Tensor

    @property
    def cells(self) -> Tensor:
        """(B, N, T), straightened."""
        return self.rest * self.deviation + self.course


class KrigingNetwork(WindowNetwork):
    """Values and visible cells of a window in, the best linear estimate of every other cell out."""

    config: KrigingConfig
    correlation: Tensor
    course: Tensor
    deviation: Tensor
    skew: Tensor
    edge: Tensor
    blocks: Tensor
    apart: Tensor
    looks_beyond: Tensor

    def __init__(self, config: KrigingConfig, *, sensors: int, clock: int) -> None:
        super().__init__()
        self.config = config
        scales, rank = len(_ROUGH) + len(_SMOOTH), min(config.rank, sensors)
        self.log_scale = nn.Parameter(torch.tensor([*_ROUGH, *_SMOOTH]).mul(config.window).log())
        parts = len(_POWERS) + 1
        self.log_weight = nn.Parameter(torch.full((scales, parts), -math.log(scales * parts)))
        self.log_amplitude = nn.Parameter(torch.zeros(scales, sensors))
        self.log_noise = nn.Parameter(torch.full((sensors,), math.log(_NOISE)))
        self.relation = nn.Parameter(torch.zeros(scales, sensors, rank))
        self.delay = nn.Parameter(torch.zeros(scales, sensors))
        if config.beyond:
            self.log_far_noise = nn.Parameter(torch.full((len(SIZES),), math.log(_FAR_NOISE)))
            self.register_buffer("blocks", blocks_around(config.window), persistent=False)
            self.register_buffer("apart", steps_apart(self.blocks), persistent=False)
            self.register_buffer("looks_beyond", torch.tensor(True))
        # What is read off the table, see `read_table`. skew: -1, 0 or 1; edge: where its root begins.
        self.register_buffer("correlation", torch.eye(sensors))
        self.register_buffer("course", torch.zeros(1 + clock, sensors))
        self.register_buffer("deviation", torch.ones(sensors))
        self.register_buffer("skew", torch.zeros(()))
        self.register_buffer("edge", torch.zeros(()))
        self._patches: list[Patch] | None = None
        # Covariances of patches, and of which state of the network they are.
        self._kept: dict[int, Tensor] = {}
        self._kept_of: tuple[object, ...] = ()
        self.correction = Correction(clock=clock)
        self.register_load_state_dict_pre_hook(_of_older_models)

    @torch.no_grad()
    def read_table(self, values: Tensor, visible: Tensor, clock: Tensor) -> None:
        """Transform, courses and correlations. values, visible: (T, N) of the steps to learn from; clock: (T, F)."""
        seen = values[visible].double()
        third = ((seen - seen.mean()) / seen.std(correction=0).clamp_min(1e-6)).pow(3).mean()
        if third.abs() > _SKEWED:
            self.skew.copy_(third.sign())
            self.edge.copy_((self.skew * seen).min())
        y, mask = self._straightened(values).double(), visible.double()
        features = torch.cat((torch.ones(len(clock), 1), clock), dim=1).double()
        held_small = torch.eye(features.shape[1], dtype=torch.float64) * _READINGS_FOR_COURSE / 2
        held_small[0, 0] = 1e-6
        products = (features[:, :, None] * features[:, None]).flatten(1)  # (T, F * F)
        grams = (mask.T @ products).unflatten(1, held_small.shape) + held_small
        self.course.copy_(torch.linalg.solve(grams, torch.einsum("tf,tn->nf", features, y * mask)).T)
        rest = (y - features @ self.course.double()) * mask
        deviation = (rest.square().sum(0) / mask.sum(0).clamp_min(1)).sqrt()
        typical = deviation[mask.sum(0) > 0].median()
        self.deviation.copy_(torch.where(deviation > 1e-3 * typical, deviation, typical.clamp_min(1e-6)))
        correlation, delay = aligned(rest / self.deviation, mask, self.config.window // 2)
        self.delay.copy_((delay * (_DELAYS_IN_WINDOW / self.config.window)).expand_as(self.delay))
        self.correlation.copy_(_nearest_correlation(correlation))
        values_of, vectors = torch.linalg.eigh(self.correlation)
        rank = self.relation.shape[-1]
        self.relation.copy_(_FIRST_RANK * vectors[:, -rank:] * values_of[-rank:].clamp_min(0).sqrt())
        self._patches = None

    def loss(
        self,
        example: Example,
        noise: Noise,  # noqa: ARG002  # nothing is random here
        *,
        training: TrainingConfig,  # noqa: ARG002
        temperature: Tensor,  # noqa: ARG002
    ) -> Outcome:
        self._kept.clear()  # the step that follows changes the weights, and fused optimisers do not let them know
        everybody = torch.arange(example.values.shape[1], device=example.values.device)
        sensors = everybody if example.sensors is None else example.sensors
        whole = [Patch(everybody, len(everybody))]
        window = Window(example.readable, example.seen, example.clock, example.wide)
        # Every other window is filled by itself, so that what is within it is not neglected.
        filled = self._filled(window, sensors, whole, example.hidden, alternately=True)
        estimate = torch.where(example.hidden, self._bent_back(filled.cells), example.values)
        error = example.mean_absolute_error(estimate)
        if not error.requires_grad:  # nothing that is hidden has a reading near it, so nothing is to be learned
            error = error + 0.0 * self.log_noise.sum()
        return Outcome(error, example.values.new_empty(0))

    @torch.no_grad()
    def missed(self, example: Example) -> tuple[Field, Tensor]:
        """What the correction learns from: the windows as they are filled without it, and (B, N, T) by how much their
        visible cells are missed."""
        everybody = torch.arange(example.values.shape[1])
        sensors = everybody if example.sensors is None else example.sensors
        seen, whole = example.seen, [Patch(everybody, len(everybody))]
        filled = self._filled(Window(example.readable, seen, example.clock, example.wide), sensors, whole, ~seen)
        truth = (self._straightened(example.values) - filled.course) / filled.deviation
        return self._field(filled, seen, example.clock, sensors), truth - filled.rest

    def impute(self, values: Tensor, visible: Tensor, clock: Tensor) -> Tensor:
        return self.impute_window(Window(values, visible, clock))

    @property
    def reach(self) -> int:
        return reach_of(self.blocks) if self.config.beyond and self.looks_beyond else 0

    @property
    def reach_in_training(self) -> int:
        return self.reach

    def impute_window(self, window: Window, *, quick: bool = False) -> Tensor:  # noqa: ARG002  # it is quick
        values, visible, clock = window.alone
        if self._patches is None or self._patches[0].sensors.device != values.device:
            self._patches = self._make_patches()
        sensors = torch.arange(values.shape[1], device=values.device)
        kept = None if torch.is_grad_enabled() else self._covariances_at_hand(values.shape[2])
        filled = self._filled(window, sensors, self._patches, ~visible, kept)
        if self.correction.learned:
            field = self._field(filled, visible, clock, sensors)
            filled.rest[~visible] += self.correction(field, (~visible).nonzero())
        return torch.where(visible, values, self._bent_back(filled.cells))

    def _covariances_at_hand(self, steps: int) -> dict[int, Tensor]:
        """By the number of a patch, as long as nothing is learned that would change them."""
        state = (steps, *((part.data_ptr(), part._version) for part in self.state_dict(keep_vars=True).values()))
        if state != self._kept_of:
            self._kept, self._kept_of = {}, state
        return self._kept

    def _filled(
        self,
        window: Window,
        sensors: Tensor,
        patches: list[Patch],
        wanted: Tensor,
        kept: dict[int, Tensor] | None = None,
        *,
        alternately: bool = False,
    ) -> Filled:
        """Readings, and the best linear estimate where it is wanted. sensors: (N,), their numbers; patches: places
        among them. kept: covariances of patches that are at hand, to which others are added while there is room.
        alternately: every other window does not look beyond itself."""
        values, seen, _ = window.alone
        rest, course, deviation = self._straight(window, sensors)
        made = rest.clone()
        means = None
        if window.wide is not None and self.reach:
            means = means_of_blocks(self._straight(window.wide, sensors).rest, window.wide.visible, self.blocks)
        for number, patch in enumerate(patches):
            everybody, targets = patch.sensors, patch.sensors[: patch.targets]
            needed = wanted[:, targets].flatten(1).any(1).nonzero().flatten().tolist()
            if not needed:
                continue
            covariance = None if kept is None else kept.get(number)
            if covariance is None:
                covariance = self._covariance(sensors[everybody], values.shape[2])
                if kept is not None and (len(kept) + 1) * covariance.numel() <= _MOST_KEPT:
                    kept[number] = covariance
            noise = self.log_noise[sensors[everybody]].exp().repeat_interleave(values.shape[2]) + _SMALLEST
            for at_window in needed:
                known, readings, noisy = seen[at_window, everybody].flatten(), rest[at_window, everybody], noise
                readings = readings.flatten()
                if means is not None and not (alternately and at_window % 2):
                    of_blocks = BlockMeans(*(part[at_window, everybody] for part in means))
                    known = torch.cat((known, of_blocks.seen.flatten() > 0))
                    readings = torch.cat((readings, of_blocks.mean.flatten()))
                    noisy = torch.cat((noise, self._noise_of_blocks(of_blocks, sensors[everybody])))
                can_read = known.nonzero().flatten()
                holes = wanted[at_window, targets].flatten().nonzero().flatten()
                at = targets[holes // values.shape[2]], holes % values.shape[2]
                within = covariance[: len(noisy), : len(noisy)]
                made[at_window, *at] = conditional_mean(within, noisy, readings[can_read], can_read, holes)
        return Filled(made, course, deviation)

    def _straight(self, window: Window, sensors: Tensor) -> Filled:
        """Readings of a window beyond their course."""
        features = torch.cat((torch.ones_like(window.clock[..., :1]), window.clock), dim=-1)  # (B, T, F)
        course = torch.einsum("btf,fn->bnt", features, self.course[:, sensors])
        deviation = self.deviation[sensors][:, None]
        return Filled((self._straightened(window.values) - course) / deviation, course, deviation)

    def _noise_of_blocks(self, means: BlockMeans, sensors: Tensor) -> Tensor:
        """(n K,): the readings' own, and that of a mean which only some of the steps tell."""
        count = means.seen.clamp_min(1)
        sizes = (self.blocks[:, 1] - self.blocks[:, 0]) / count
        noise = self.log_noise[sensors].exp()[:, None] / count + self.log_far_noise.exp().repeat(2) * sizes
        return noise.flatten() + _SMALLEST

    def _field(self, filled: Filled, seen: Tensor, clock: Tensor, sensors: Tensor) -> Field:
        nearest = nearest_sensors(self.correlation[sensors][:, sensors])
        return Field(filled.rest, seen, filled.course / filled.deviation, clock, nearest)

    def _covariance(self, sensors: Tensor, steps: int) -> Tensor:
        """(n T, n T) of the cells of these sensors, or (n T + n K, n T + n K) with the blocks beyond the window."""
        lag = torch.arange(1 - steps, steps, device=sensors.device)
        delay = self.delay[:, sensors] * (self.config.window / _DELAYS_IN_WINDOW)
        later = delay[:, :, None] - delay[:, None]  # (R, n, n)
        along_time = self._along_time((lag - later[..., None]).abs())  # (R, n, n, 2 T - 1)
        correlation = self.correlation[sensors][:, sensors]
        alone = torch.eye(len(sensors), device=sensors.device)
        powers = torch.stack([*(correlation**power for power in _POWERS), alone])
        amplitude, relation = self.log_amplitude[:, sensors].exp(), self.relation[:, sensors]
        across = torch.einsum("rp,pij->rij", self.log_weight.exp(), powers)
        across = across * amplitude[:, :, None] * amplitude[:, None] + relation @ relation.mT
        of_lag = torch.einsum("rij,rijl->ijl", across, along_time)
        cells = of_lag.unfold(-1, steps, 1).flip(-1)  # (n, n, T, T), the lag t - t'
        cells = cells.transpose(1, 2).flatten(2).flatten(0, 1)
        return with_blocks(cells, across, delay, self._along_time, self.blocks, self.apart) if self.reach else cells

    def _along_time(self, apart: Tensor) -> Tensor:
        """(R, ...) steps -> correlations of each scale."""
        apart = apart / self.log_scale.exp().reshape(-1, *(1,) * (apart.dim() - 1))
        rough, smooth = apart[: len(_ROUGH)], apart[len(_ROUGH) :] * math.sqrt(3.0)
        return torch.cat(((-rough).exp(), (1 + smooth) * (-smooth).exp()))

    def _straightened(self, values: Tensor) -> Tensor:
        if self.skew == 0:
            return values
        return self.skew * (self.skew * values - self.edge + _ABOVE_THE_EDGE).clamp_min(0.0).sqrt()

    def _bent_back(self, y: Tensor) -> Tensor:
        if self.skew == 0:
            return y
        return self.skew * ((self.skew * y).clamp_min(0.0).square() + self.edge - _ABOVE_THE_EDGE)

    def _make_patches(self) -> list[Patch]:
        """All sensors, or groups of those that tell most about each other with the ones that tell most about them."""
        device, tells = self.correlation.device, self.correlation.abs().cpu().numpy().copy()
        if len(tells) <= _WORTH_IT * self.config.patch:
            return [Patch(torch.arange(len(tells), device=device), len(tells))]
        groups = _groups(tells, self.config)
        return [Patch(torch.as_tensor(sensors, device=device), targets) for sensors, targets in groups]


def _of_older_models(network: nn.Module, weights: dict[str, Any], prefix: str, *_: object) -> None:
    """Models that were written before delays or corrections were learned have none."""
    assert isinstance(network, KrigingNetwork)
    weights.setdefault(f"{prefix}delay", torch.zeros_like(network.delay))
    if f"{prefix}correction.spread" not in weights:
        nothing = Correction(clock=network.course.shape[0] - 1)
        weights.update({f"{prefix}correction.{name}": value for name, value in nothing.state_dict().items()})


def _nearest_correlation(correlation: Tensor) -> Tensor:
    """Correlations of pairs, each from its own readings, need not fit together: negative variances are taken out."""
    variances, vectors = torch.linalg.eigh(correlation.fill_diagonal_(1.0))
    fitting = vectors * variances.clamp_min(1e-3) @ vectors.T
    size = fitting.diagonal().sqrt()
    return fitting / size / size[:, None]


def _groups(tells: NDArray[np.float32], config: KrigingConfig) -> Iterator[tuple[NDArray[np.int64], int]]:
    """Sensors of a patch, those first that are estimated, and how many these are."""
    free = np.ones(len(tells), dtype=bool)
    np.fill_diagonal(tells, 2.0)
    while free.any():
        first = int(np.flatnonzero(free)[0])
        targets = np.argsort(np.where(free, -tells[first], np.inf), kind="stable")[: min(config.together, free.sum())]
        free[targets] = False
        # Those count that tell much about any of them.
        others = np.argsort(-np.delete(tells[targets].max(axis=0), targets), kind="stable")
        rest = np.delete(np.arange(len(tells)), targets)[others[: config.patch - len(targets)]]
        yield np.concatenate((targets, rest)), len(targets)
