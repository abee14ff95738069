"""Every choice there is, as frozen dataclasses: the network, its training, and the presets that combine them."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args, get_origin

from casper.errors import InputError

Decoder = Literal["prompts", "mlp", "kmeans-max", "kmeans-avg", "sample-max", "sample-avg"]
Gate = Literal["gumbel", "none"]
Message = Literal["pair", "key"]
Scaling = Literal["global", "sensor"]
Precision = Literal["32-true", "bf16-mixed"]
Schedule = Literal["cosine", "restarts"]
Optimizer = Literal["adam", "muon"]
Kept = Literal["best", "last"]


class Configuration:
    """JSON round trip for the dataclasses below; unknown keys and values of the wrong kind are errors."""

    def to_dict(self) -> dict[str, Any]:
        """What JSON gives back when it has been there: tuples become lists."""
        values = dataclasses.asdict(typing.cast("Any", self))
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        hints = typing.get_type_hints(cls)
        unknown = sorted(set(values) - set(hints))
        if unknown:
            raise InputError(
                f"{cls.__name__} has no setting {', '.join(map(repr, unknown))}; known settings: {', '.join(hints)}"
            )
        return cls(**{name: _checked(cls.__name__, name, hints[name], value) for name, value in values.items()})

    def replace(self, **changes: Any) -> Self:
        """A copy with some settings changed; wrong names and values are refused as in `from_dict`."""
        return type(self).from_dict({**self.to_dict(), **changes})


def _checked(owner: str, name: str, hint: Any, value: Any) -> Any:
    """The value as the hint wants it (lists become tuples, ints become floats), or an InputError."""
    options = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for option in options:
        origin = get_origin(option)
        if option is types.NoneType and value is None:
            return None
        if origin is Literal and value in get_args(option):
            return value
        if origin is tuple and isinstance(value, list | tuple):
            return tuple(_checked(owner, name, get_args(option)[0], item) for item in value)
        if option is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if option in (int, bool, str) and type(value) is option:
            return value
    wanted = " or ".join(
        ", ".join(map(repr, get_args(o))) if get_origin(o) is Literal else getattr(o, "__name__", str(o))
        for o in options
    )
    raise InputError(f"{owner}.{name} cannot be {value!r}: it takes {wanted}")


def require(condition: bool, message: str) -> None:
    if not condition:
        raise InputError(message)


@dataclass(frozen=True)
class NetworkConfig(Configuration):
    """What every network that fills windows has to be told."""

    window: int = 24
    """Steps the model sees at a time (T)."""
    scaling: Scaling = "global"
    """One mean and deviation for the whole table, or one for each sensor."""
    harmonics: int = 1
    """Waves of the clock: 1 tells only the time within the day, week and year; more add halves, thirds, ... of the day,
    or of the year where days cannot be seen, for whatever rises and falls more than once in it."""

    def __post_init__(self) -> None:
        require(self.window >= 2, f"window must be at least 2 steps, not {self.window}")
        require(self.harmonics >= 1, f"harmonics must be at least 1, not {self.harmonics}")


@dataclass(frozen=True)
class ModelConfig(NetworkConfig):
    """CASPER. The defaults are the paper's; the ablations of its Table 2 are values of these settings."""

    width: int = 32
    """Size of every embedding (D)."""
    layers: int = 4
    """Encoder layers (L)."""
    heads: int = 4
    """Heads of the temporal transformer and of the causal attention."""
    feed_forward: int = 64
    """Hidden width of the temporal transformer's feed-forward part."""
    dropout: float = 0.0
    neighbours: int | None = None
    """Strongest neighbours each sensor looks at; None: all of the graph's."""
    include_self: bool = False
    """Whether a sensor is its own neighbour in the causal attention."""
    graph: bool = True
    """False: no sensor network (ablation "w/o A"); every sensor sees only itself."""
    message: Message = "pair"
    """"pair": MLP([query; key]) as in the paper; "key": from the key alone, which makes it ordinary attention."""
    relative_time: bool = False
    """A learned bias per head and lag in the attention scores (not in the paper)."""
    own_keys: bool = False
    """Every sensor has a query and a key of its own in the causal attention, besides those made from its embedding:
    which sensors matter to which is then learned sooner (not in the paper)."""
    constrained: bool = False
    """True: only keys with t' <= t (ablation "constrained causality")."""
    gate: Gate = "gumbel"
    """"none": no causal gate (ablation "w/o SCA")."""
    gate_straight_through: bool = False
    """Training gates are exactly 0 or 1, with the soft gate's gradient."""
    gate_hard_inference: bool = False
    """At inference a gate is open where rho > 0.5; otherwise its weight is rho."""
    gate_null_slot: bool = False
    """Closed gates give their weight to an empty message instead of being normalised away by Z."""
    gate_bias: float = 2.0
    """Where the gates start: the first logit of rho, so that training begins with open gates."""
    gate_sharpness: float = 1.0
    """How steep the gates become in the course of training, beginning at 1: rho = sigmoid(sharpness * logit). Steep
    gates must decide."""
    skip: bool = True
    """False: no skip projection (ablation)."""
    sensor_spread: float = 0.02
    """Deviation of the sensors' embeddings to begin with: with a small one all are alike until they are told apart."""
    decoder: Decoder = "prompts"
    """"mlp": ablation "w/o PBD"; the others take the prompts from a pre-trained encoder's pooled embeddings."""
    prompts: int = 1000
    prompt_heads: int = 1
    """Heads of the attention to the prompts."""
    guess: bool = False
    """Begin with a line through the sensor's own nearest visible steps, and learn what to add (not in the paper)."""
    own_clock: int = 0
    """Every sensor has a daily and weekly course of its own, mixed from so many learned ones (not in the paper)."""
    kriging: bool = False
    """Beside the network the best linear estimate of a Gaussian field (see `casper.kriging`), mixed in as far as the
    held-back readings say, in networks of up to 2,000 sensors (not in the paper)."""
    kriging_share: float | None = None
    """How much of a filled value is kriging's; None: the held-back readings choose, by the distance to a reading."""
    kriging_beyond: bool = False
    """Kriging also looks at what lies on either side of the window, where held-back readings are filled better with it
    (not in the paper). Unless it is said, the table decides: one whose holes lie mostly in long gaps gains."""
    window_level: bool = False
    """Take values relative to the mean and deviation of the window's visible cells (not in the paper)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.layers >= 1, f"layers must be at least 1, not {self.layers}")
        require(self.heads >= 1, f"heads must be at least 1, not {self.heads}")
        require(
            self.width >= 2 and self.width % self.heads == 0 and self.width % 2 == 0,
            f"width must be even and a multiple of heads: {self.width} with {self.heads} heads is not",
        )
        require(
            self.prompt_heads >= 1 and self.width % self.prompt_heads == 0,
            f"width must be a multiple of prompt_heads: {self.width} with {self.prompt_heads} heads is not",
        )
        require(self.feed_forward >= 1, f"feed_forward must be at least 1, not {self.feed_forward}")
        require(0.0 <= self.dropout < 1.0, f"dropout must lie in [0, 1), not {self.dropout}")
        require(
            self.neighbours is None or self.neighbours >= 1,
            f"neighbours must be at least 1 or None, not {self.neighbours}",
        )
        require(self.sensor_spread > 0, f"sensor_spread must be positive, not {self.sensor_spread}")
        require(self.own_clock >= 0, f"own_clock must not be negative, not {self.own_clock}")
        require(self.gate_sharpness >= 1, f"gate_sharpness must be at least 1, not {self.gate_sharpness}")
        require(
            self.kriging_share is None or 0 <= self.kriging_share <= 1,
            f"kriging_share must lie in [0, 1] or be None, not {self.kriging_share}",
        )
        require(self.prompts >= 1, f"prompts must be at least 1, not {self.prompts}")


@dataclass(frozen=True)
class TrainingConfig(Configuration):
    """The training. The defaults are the paper's."""

    epochs: int = 300
    batches_per_epoch: int = 300
    batch_size: int = 8
    optimizer: Optimizer = "adam"
    """"muon": the steps of weight matrices are made orthogonal (see `casper.training.muon`), which learns faster than
    the paper's Adam."""
    learning_rate: float = 8e-4
    schedule: Schedule = "cosine"
    """Of the learning rate, after the warm-up: "cosine" falls to zero once; "restarts" as SPIN's, which falls anew for
    every 100 epochs, from a little less each time, and never below a tenth."""
    warmup_steps: int = 500
    weight_decay: float = 0.0
    patience: int = 40
    """Epochs without a better validation error before training stops."""
    clip: float = 5.0
    """Largest gradient norm."""
    hidden_shares: tuple[float, ...] = (0.2, 0.5, 0.8)
    """A share p of the visible cells, drawn from these for each window, is hidden and scored."""
    copied_gaps: float = 0.0
    """Share of training windows that hide cells in the pattern of another window's real gaps instead."""
    block_gaps: float = 0.0
    """Share of training windows that hide runs of steps of some sensors, as when a sensor fails."""
    forecast_gaps: float = 0.0
    """Share of training windows that hide all of their last step, as when it is to be foretold."""
    blackout_gaps: float = 0.0
    """Share of training windows in which the whole network is silent for some runs of steps, as when a server fails."""
    silent_sensors: float = 0.0
    """Up to this share of the sensors, drawn anew for every training window, is not read in it at all, as when they are
    down; their hidden cells are scored like the others'."""
    train_on_hidden: bool = False
    """Benchmarks only: learn also from the readings that are hidden in the training steps, as GRIN and PriSTI do."""
    sparsity: float = 1e-3
    """lambda, the weight of the mean gate probability in the loss."""
    temperature: float = 1.0
    """Temperature of the Gumbel gates at the start ..."""
    temperature_end: float = 1.0
    """... and at the end of training; in between it falls geometrically."""
    weight_averaging: float = 0.0
    """Decay of the running average of the weights that is validated and kept; 0: the weights themselves."""
    validation_share: float = 0.05
    """Share of a user's observed cells held back, in the shapes of the table's own gaps, to watch the error."""
    validation_cells: int = 4_000_000
    """Validate on as many windows, evenly spread, as have so many cells in all."""
    watched_cells: int = 0
    """Benchmarks only: where the validation windows have fewer scored cells, some of their visible ones are hidden and
    watched as well, in the shapes of gaps."""
    keep: Kept = "best"
    """"best": the weights with the lowest validation error; "last": those of the last epoch, for where so few cells are
    watched that the lowest is luck."""
    sensors_per_batch: int | None = None
    """Larger networks are trained on patches of so many neighbouring sensors at a time; None: always on all."""
    precision: Precision = "32-true"
    compiled: bool | None = None
    """Let PyTorch's compiler join the network's small operations: half a minute at the start, then faster steps.
    None: on a GPU, in trainings long enough to be worth it."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batches_per_epoch", "batch_size", "patience", "validation_cells"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}")
        require(self.watched_cells >= 0, f"watched_cells must not be negative, not {self.watched_cells}")
        require(self.learning_rate > 0, f"learning_rate must be positive, not {self.learning_rate}")
        require(
            len(self.hidden_shares) > 0 and all(0 < share < 1 for share in self.hidden_shares),
            f"hidden_shares must lie between 0 and 1, not {self.hidden_shares}",
        )
        kinds = (self.copied_gaps, self.block_gaps, self.forecast_gaps, self.blackout_gaps)
        require(
            min(kinds) >= 0 and sum(kinds) <= 1,
            "copied_gaps, block_gaps, forecast_gaps and blackout_gaps add up to at most 1: "
            f"{', '.join(map(str, kinds))} do not",
        )
        require(
            self.sensors_per_batch is None or self.sensors_per_batch >= 2,
            f"sensors_per_batch must be at least 2 or None, not {self.sensors_per_batch}",
        )
        require(0 <= self.silent_sensors <= 1, f"silent_sensors must lie in [0, 1], not {self.silent_sensors}")
        require(0 <= self.weight_averaging < 1, f"weight_averaging must lie in [0, 1), not {self.weight_averaging}")
        require(0 < self.validation_share < 0.5, f"validation_share must lie in (0, 0.5), not {self.validation_share}")
        require(
            self.temperature > 0 and self.temperature_end > 0,
            f"temperatures must be positive, not {self.temperature} and {self.temperature_end}",
        )

    @property
    def steps(self) -> int:
        return self.epochs * self.batches_per_epoch


@dataclass(frozen=True)
class Preset:
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)


PRESETS: dict[str, Preset] = {
    "fast": Preset(
        ModelConfig(
            window=36,
            width=32,
            layers=2,
            heads=2,
            neighbours=8,
            include_self=True,
            message="key",
            relative_time=True,
            prompts=64,
            dropout=0.05,
            scaling="sensor",
            sensor_spread=1.0,
            kriging=True,
        ),
        TrainingConfig(
            epochs=8,
            batches_per_epoch=300,
            batch_size=6,
            learning_rate=3e-3,
            warmup_steps=200,
            patience=8,
            copied_gaps=0.4,
            block_gaps=0.2,
            weight_averaging=0.995,
            validation_cells=150_000,
            sensors_per_batch=48,
        ),
    ),
    "paper": Preset(),
    "best": Preset(
        ModelConfig(
            width=64, relative_time=True, dropout=0.1, include_self=True, own_clock=8, harmonics=4, sensor_spread=1.0
        ),
        TrainingConfig(
            epochs=80,
            batch_size=32,
            learning_rate=3e-3,
            patience=20,
            copied_gaps=0.5,
            weight_averaging=0.999,
            sensors_per_batch=64,
        ),
    ),
}


FEW_WATCHED: dict[str, Any] = {"watched_cells": 6000, "keep": "last"}
"""For AQI-36: its validation windows have some 2,400 scored cells, of four stretches of a week. Which weights have the
lowest error there is luck (see docs/recipe.md)."""
# The paper uses longer windows and fewer layers for AQI-36 than for the other benchmarks.
_AQI36 = {"window": 36, "layers": 2}
# METR-LA has more readings than a training can look at twice: few neighbours make the most of the time, and there is
# nothing to be kept from overfitting.
_BEST_METR_LA = {
    "own_keys": True,
    "neighbours": 8,
    "dropout": 0.0,
    "train_on_hidden": True,
    "precision": "bf16-mixed",
}
# Where windows are shorter than a user's, a step sees as many cells in more of them.
_FAST_24 = {"window": 24, "batch_size": 9}
_WINDOWS_OF_24 = ("aqi", "metr-la-point", "metr-la-block", "pems-bay-point", "pems-bay-block")
_FOR_BENCHMARK: dict[tuple[str, str], dict[str, Any]] = {
    **{("fast", name): _FAST_24 for name in _WINDOWS_OF_24},
    ("fast", "aqi36"): FEW_WATCHED,
    ("paper", "aqi36"): _AQI36,
    ("best", "aqi36"): {
        **FEW_WATCHED,
        "window": 36,
        "window_level": True,
        "width": 96,
        "layers": 3,
        "dropout": 0.2,
        "sensor_spread": 0.02,  # neither better nor worse here than 1
        "gate_sharpness": 128.0,
        "gate_hard_inference": True,
        "kriging": True,
        "kriging_share": 0.4,  # the few validation days adjoin the training, and would choose less
        "train_on_hidden": True,
        "epochs": 10,
    },
    ("best", "metr-la-point"): {**_BEST_METR_LA, "hidden_shares": [0.25], "copied_gaps": 0.0},
    ("best", "metr-la-block"): {**_BEST_METR_LA, "block_gaps": 0.2, "copied_gaps": 0.4, "epochs": 40},
}


def benchmark_settings(preset_name: str, benchmark: str) -> dict[str, Any]:
    """What a preset changes for one of the benchmarks."""
    return dict(_FOR_BENCHMARK.get((preset_name, benchmark), {}))


def preset(name: str) -> Preset:
    if name not in PRESETS:
        raise InputError(f"there is no preset {name!r}; choose one of {', '.join(PRESETS)}")
    return PRESETS[name]
