"""What every imputer with a network does: fit it on windows of a table, fill tables with it, save and load itself."""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from casper import pretrained
from casper.baselines.linear import interpolate
from casper.config import NetworkConfig, TrainingConfig
from casper.contract import TableOptions, log
from casper.datasets import Benchmark, Protocol
from casper.errors import InputError
from casper.frame import SensorFrame
from casper.graph import SensorGraph
from casper.intervals.calibrated import CalibratedImputer
from casper.intervals.error_bars import Reading
from casper.masks import mostly_long_gaps
from casper.metrics import score_table
from casper.network.learning import WindowNetwork
from casper.overlap import averaged, inner_starts, merged, starts_with_holes
from casper.progress import progress_over
from casper.train import (
    Accelerator,
    TrainingData,
    TrainingResult,
    check_device,
    check_devices,
    initialised,
    train,
    watched_starts,
)
from casper.training.lesson import Lesson, also_watched, read_lesson
from casper.windows import (
    Scaler,
    Series,
    clock_features,
    refit_starts,
    spread_starts,
    starts_with_readings,
    starts_within,
    windows_at_once,
)

ConfigT = TypeVar("ConfigT", bound=NetworkConfig)
NetworkT = TypeVar("NetworkT", bound=WindowNetwork)
# Shorter tables are not worth a network.
_FEWEST_STEPS = 16
# So often an epoch looks at each window of a short table.
_MOST_LOOKS = 20


@dataclass(frozen=True)
class Recipe(Generic[ConfigT]):
    """A network's settings and those of its training."""

    model: ConfigT
    training: TrainingConfig


class NeuralImputer(CalibratedImputer, Generic[ConfigT, NetworkT]):
    """An imputer whose network fills windows. A method says its recipe and how its network is made.

    Any setting of the network or of its training can be given by name.
    progress: draw a bar while it works; a text begins the line, to tell models apart that are fitted side by side.
    """

    recipe: ClassVar[Recipe[Any]]
    usual_protocol: ClassVar[Protocol] = "out-of-sample"
    for_benchmarks: ClassVar[Mapping[str, Mapping[str, Any]]] = {"aqi36": {"window": 36}}
    """What the method's authors change in the recipe for some of the benchmarks."""
    preset: str = "default"

    @property
    def setting_to_look_beyond(self) -> str | None:
        """The name of the setting that has it look beyond its window, if there is one."""
        return None

    def __init__(
        self,
        *,
        seed: int = 0,
        device: Accelerator = "auto",
        devices: int = 1,
        progress: bool | str = False,
        **settings: Any,
    ) -> None:
        if not (isinstance(seed, int) and 0 <= seed < 2**32):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"seed must be a whole number from 0 to {2**32 - 1}, not {seed!r}")
        if device not in get_args(Accelerator):
            raise InputError(f"device must be one of {', '.join(get_args(Accelerator))}, not {device!r}")
        self.seed, self.devices, self.progress = seed, devices, progress
        self.device: Accelerator = device
        self._use(self.recipe, settings)
        self.network: NetworkT | None = None
        self.result: TrainingResult | None = None
        self.card: dict[str, Any] = {}
        self._scaler: Scaler | None = None
        self._periods: tuple[float, ...] = ()
        self._linear_mae: float | None = None
        self._finished_mae: float | None = None
        self._folder: Path | None = None
        self._tensorboard = False

    def _use(self, recipe: Recipe[ConfigT], settings: dict[str, Any]) -> None:
        """The recipe with some settings changed."""
        of_model, of_training = set(recipe.model.__dataclass_fields__), set(TrainingConfig.__dataclass_fields__)
        unknown = sorted(set(settings) - of_model - of_training)
        if unknown:
            raise InputError(
                f"{type(self).__name__} has no setting {', '.join(unknown)}; "
                f"known: {', '.join(sorted(of_model | of_training))}"
            )
        self.config = recipe.model.replace(**{name: settings[name] for name in settings if name in of_model})
        self.training = recipe.training.replace(**{name: settings[name] for name in settings if name in of_training})
        self._given = frozenset(settings)

    # ------------------------------------------------------------------ what a method says

    @abstractmethod
    def make_network(self, graph: SensorGraph, *, clock: int) -> NetworkT:
        """By the settings. clock: the number of its features."""

    def choose_graph(self, graph: SensorGraph) -> SensorGraph:
        """Which form of a benchmark's directed graph the method is meant for."""
        return graph.symmetric()

    def prepare_network(self, network: NetworkT, data: TrainingData, folder: Path) -> None:
        """Whatever comes before the training."""

    def finish_network(self, network: NetworkT, data: TrainingData, before: float) -> float | None:
        """Whatever comes after it; the validation error, if it has changed from what it was before."""

    def neighbours(self, graph: SensorGraph) -> tuple[torch.Tensor, torch.Tensor]:
        """A table of the sensors that belong together, see `SensorGraph.neighbour_table`."""
        index, present = graph.neighbour_table(max_neighbours=None, include_self=False)
        return torch.as_tensor(index), torch.as_tensor(present)

    def train_in(self, folder: str | Path, *, tensorboard: bool = False) -> Self:
        """Keep checkpoints and metrics in `folder`, and continue from there if it holds an unfinished training."""
        self._folder, self._tensorboard = Path(folder), tensorboard
        return self

    # ------------------------------------------------------------------ fitting

    def fit_frame(self, frame: SensorFrame, graph: SensorGraph) -> None:
        self._suit_table(frame)
        self.check_length(frame)
        held = self.hold_back(frame)
        starts = starts_with_readings(frame.observed & ~held, self.config.window)
        # Windows side by side are enough to watch the error on every held-back cell once or twice.
        watched = spread_starts(len(frame.times), self.config.window, max(1, self.config.window // 2))
        lesson = read_lesson(
            frame,
            graph,
            self.config,
            neighbours=self.neighbours(graph),
            scored=held,
            train_starts=starts,
            validation_starts=watched,
            gap_starts=starts,
            scaled_on=~held,
        )
        self._train(graph, lesson)
        looked_at = watched_starts(lesson.data, self.training, self.config.window)
        self._linear_mae = self._mae_of_linear(frame, held, looked_at)
        self._graph = graph
        self.calibrate_frame(frame, held)

    def fit_benchmark(self, benchmark: Benchmark) -> None:
        """Train on the training windows' visible cells, watch the scored cells of the validation windows.

        In sample, the test windows' visible cells are trained on, too.
        """
        graph = self.choose_graph(benchmark.graph)
        self._train(graph, self.read_benchmark(benchmark, graph))
        self._remember(benchmark.frame, graph, TableOptions())
        self.calibrate_on(benchmark)

    def read_benchmark(self, benchmark: Benchmark, graph: SensorGraph) -> Lesson:
        """What a training on this benchmark learns from."""
        steps, window = len(benchmark.frame.times), self.config.window
        self.check_length(benchmark.frame)
        trained_on, known = benchmark.train_starts, benchmark.train_steps
        if self.protocol_of(benchmark) == "in-sample":
            trained_on = np.union1d(trained_on, benchmark.test_starts)
            known = known | benchmark.test_steps
        train_starts = refit_starts(trained_on, benchmark.window, window, steps)
        validation_starts = refit_starts(benchmark.validation_starts, benchmark.window, window, steps)
        if not (len(train_starts) and len(validation_starts)):
            raise InputError(
                f"a window of {window} steps is too long for the split of {benchmark.name}; use a smaller one"
            )
        handed_back = benchmark.train_steps[:, None] if self.training.train_on_hidden else np.False_
        scored = benchmark.hidden & ~handed_back
        return read_lesson(
            benchmark.frame,
            graph,
            self.config,
            neighbours=self.neighbours(graph),
            scored=scored | also_watched(benchmark, scored, self.training.watched_cells, seed=self.seed),
            train_starts=train_starts,
            validation_starts=validation_starts,
            gap_starts=starts_within(benchmark.gap_source_steps, window),
            scaled_on=known[:, None] & ~benchmark.hidden,
        )

    def _train(self, graph: SensorGraph, lesson: Lesson) -> None:
        data, scaler, periods = lesson
        check_devices(self.training, self.device, self.devices)
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) if self._folder is None else self._folder
            network = initialised(lambda: self.make_network(graph, clock=2 * len(periods)), seed=self.seed)
            self.prepare_network(network, data, folder)
            result = train(
                network,
                data,
                self.training,
                seed=self.seed,
                folder=folder,
                accelerator=self.device,
                devices=self.devices,
                resume=True,
                progress=self.progress,
                tensorboard=self._tensorboard,
            )
        network.load_state_dict(result.weights)
        self._finished_mae = self.finish_network(network.eval(), data, result.best_mae)
        # Only now: a training that fails leaves the model as it was.
        self.network, self.result, self._scaler, self._periods = network.eval(), result, scaler, periods

    @property
    def validation_mae(self) -> float | None:
        """Of a model that was fitted just now."""
        if self._finished_mae is not None:
            return self._finished_mae
        return None if self.result is None else self.result.best_mae

    def _mae_of_linear(self, frame: SensorFrame, held: NDArray[np.bool_], starts: torch.Tensor) -> float | None:
        """The error of linear interpolation on the very cells, counted as often, that the validation error is from."""
        if not (held & frame.observed).any():
            return None
        filled = interpolate(frame.hide(held))
        scores = score_table(
            frame.values, filled, held & frame.observed, starts=starts.numpy(), window=self.config.window
        )
        return scores["mae"]

    # ------------------------------------------------------------------ imputing

    def impute_frame(self, frame: SensorFrame) -> NDArray[np.float64]:
        self.check_length(frame)
        return self.impute_steps(frame, np.ones(len(frame.times), dtype=bool))

    def impute_steps(self, frame: SensorFrame, wanted: NDArray[np.bool_]) -> NDArray[np.float64]:
        starts = starts_with_holes(frame.observed, self.config.window, wanted)
        estimated, known = merged(self._estimates(frame, starts, self.config.window), frame.values.shape)
        return np.where(known[:, None], self._fitted_scaler.unscale(estimated), frame.values)

    def impute_windows(self, benchmark: Benchmark) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Every benchmark window on its own. A model with a shorter window averages the ones that fit into it."""
        self.check_benchmark(benchmark)
        frame = benchmark.visible_frame
        length = min(self.config.window, benchmark.window)
        needed = inner_starts(benchmark.test_starts, benchmark.window, length)
        for starts, estimate in averaged(
            self._estimates(frame, needed, length), needed, benchmark.test_starts, window=benchmark.window
        ):
            yield starts, self._fitted_scaler.unscale(estimate.swapaxes(1, 2)).swapaxes(1, 2)

    @torch.inference_mode()
    def _estimates(
        self, frame: SensorFrame, starts: NDArray[np.int64], length: int
    ) -> Iterator[tuple[NDArray[np.int64], torch.Tensor]]:
        """Batches of starts (B,), rising, and scaled estimates (B, N, length) on the device.

        Only the batch's rows are held as tensors.
        """
        network, device = self._placed_network()
        per_batch = windows_at_once(device, len(frame.sensors) * length)
        batches = np.array_split(starts, -(-len(starts) // per_batch)) if len(starts) else []
        for batch in progress_over(batches, "filling", self.progress):
            first, last = max(0, int(batch[0]) - network.reach), int(batch[-1]) + length + network.reach
            series = self._series(frame, first, last, device)
            starts_there = torch.as_tensor(batch - first, device=device)
            yield batch, network.impute_window(series.window(starts_there, length, reach=network.reach))

    def _series(self, frame: SensorFrame, first: int, last: int, device: torch.device) -> Series:
        rows = slice(first, last)
        observed = frame.observed[rows]
        scaled = np.where(observed, self._fitted_scaler.scale(frame.values[rows]), 0.0)
        return Series.build(scaled, observed, clock_features(frame.times[rows], self._periods), device)

    def _placed_network(self) -> tuple[NetworkT, torch.device]:
        if self.network is None:
            raise InputError("this model is not fitted yet; call fit(table) first")
        check_device(self.device, 1)
        device = torch.device("cuda" if self.device != "cpu" and torch.cuda.is_available() else "cpu")
        with torch.inference_mode(False):  # parameters that are moved within it could never have gradients again
            return self.network.to(device), device

    def reading(self) -> Reading:
        return Reading(self._fitted_scaler, self.graph, self.config.window)

    @property
    def _fitted_scaler(self) -> Scaler:
        if self._scaler is None:
            raise InputError("this model is not fitted yet; call fit(table) first")
        return self._scaler

    def _suit_table(self, frame: SensorFrame) -> None:
        """A table that is shorter than the recipe's window gets one of half its length, unless there is hardly anything
        to learn from; one of few windows is not looked at over and over; where holes lie mostly in long gaps, kriging
        looks beyond its window. What was asked for is left as it is."""
        steps = len(frame.times)
        if _FEWEST_STEPS <= steps < self.config.window and "window" not in self._given:
            self.config = self.config.replace(window=steps // 2)
            log.info("the table has %d steps: the model looks at %d at a time", steps, self.config.window)
        enough = -(-_MOST_LOOKS * max(1, steps - self.config.window + 1) // self.training.batch_size)
        if enough < self.training.batches_per_epoch and "batches_per_epoch" not in self._given:
            self.training = self.training.replace(batches_per_epoch=enough)
        beyond = self.setting_to_look_beyond
        if beyond and beyond not in self._given and mostly_long_gaps(frame.observed, 2 * self.config.window):
            self.config = self.config.replace(**{beyond: True})
            log.info("most holes lie in gaps longer than two windows: kriging looks beyond its window, too")

    def check_length(self, frame: SensorFrame) -> None:
        if len(frame.times) < self.config.window:
            raise InputError(
                f"the table has {len(frame.times)} steps, the model looks at {self.config.window} at a time; "
                "use a longer table or a model with a smaller window (--set window=...)"
            )

    # ------------------------------------------------------------------ saving and loading

    def save_pretrained(self, folder: str | Path, *, force: bool = False) -> Path:
        """A folder with config.json and model.safetensors, written whole or not at all."""
        if self.network is None or self._step is None:
            raise InputError("this model is not fitted yet; call fit(table) first")
        description = {
            "method": self.name,
            "model": self.config.to_dict(),
            "training": self.training.to_dict(),
            "preset": self.preset,
            "seed": self.seed,
            "step_seconds": self._step.total_seconds(),
            "periods": list(self._periods),
            "options": {
                "freq": self._options.freq,
                "timezone": self._options.timezone,
                "missing_values": list(self._options.missing_values),
            },
            "card": self.describe(),
        }
        learned = pretrained.Learned(self.graph, self._fitted_scaler, self._calibration)
        return pretrained.write(Path(folder), self.network, learned, description, force=force)

    @classmethod
    def from_pretrained(cls, name: str | Path, *, device: Accelerator = "auto", progress: bool = False) -> Self:
        """Load a folder made by `save_pretrained`, or shipped weights by name (see `casper.pretrained.shipped`)."""
        loaded = pretrained.read(name)
        if loaded.description["method"] != cls.name:
            raise InputError(f"{name} holds a model of the method {loaded.description['method']}, not {cls.name}")
        model = cls(device=device, progress=progress)
        try:
            model.config = type(model.config).from_dict(loaded.description["model"])
            model.training = TrainingConfig.from_dict(loaded.description["training"])
        except InputError as error:
            raise InputError(f"{loaded.source / pretrained.CONFIG}: {error}") from error
        model.preset, model.seed = loaded.description["preset"], loaded.description["seed"]
        model.card = loaded.description["card"]
        model._graph, model._scaler, model._calibration = loaded.learned
        model._periods = tuple(loaded.description["periods"])
        model._step = pd.Timedelta(seconds=loaded.description["step_seconds"])
        options = loaded.description["options"]
        model._options = TableOptions(options["freq"], options["timezone"], tuple(options["missing_values"]))
        network = model.make_network(model.graph, clock=2 * len(model._periods))
        model.network = loaded.into(network)
        return model

    def describe(self) -> dict[str, Any]:
        """What a person wants to know about a fitted model; of a loaded one, what was written with it."""
        if self.result is None or self.network is None:
            return self.card
        return {
            "sensors": len(self.graph.sensors),
            "graph": self.graph.origin,
            "parameters": sum(parameter.numel() for parameter in self.network.parameters()),
            "epochs": len(self.result.history),
            "best_epoch": self.result.best_epoch,
            "validation_mae": self.validation_mae,
            "validation_mae_of_linear_interpolation": self._linear_mae,
            "most_of_the_error": self.most_of_the_error,
            "seconds": sum(record.seconds for record in self.result.history),
            "torch": torch.__version__,
            "trained_on": torch.cuda.get_device_name() if torch.cuda.is_available() and self.device != "cpu" else "CPU",
        }
