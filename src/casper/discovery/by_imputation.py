"""CASPER as a method of causal discovery (section 4.6 of the paper): learn to restore hidden cells, then look at what
the network draws on to do so.

Every variable is a sensor and every other variable its neighbour. The network is trained on windows within the
trajectories: to foretell their last step from the steps before (ours), or to restore cells hidden anywhere in them (the
paper's). Then the trajectories are looked at once more, with such cells hidden, and for every ordered pair the chosen
measure of ((i, t), (j, t')) is pooled: its maximum over all windows, t and t', or its mean over windows and t for every
lag t - t' >= 1, of which the strongest lag counts.

- measure "rho", pool "max" is the paper's: gates, the largest over both time axes. The logit of a gate is a part of the
  query plus a part of the key (equation 13), so these strengths rank sources and targets, hardly single pairs.
- measure "influence", pool "mean": how much the estimate of a hidden cell would change if the gate were shut: the slope
  by the gate, times the gate; where Z is taken for a number, that slope is the g of the paper's Remark 1. Ranks pairs.
- measure "witnesses" (ours): how surely the source foretells the target, by three tests that err in different ways.
  a: what the network's estimates lose when the source is hidden (`casper.discovery.silence`); it knows curved effects
  and sets every source against all others, but where these tell much the same, nobody is missed. b and c: what a linear
  model gains by the source alone, and beside its strongest rivals (`casper.discovery.granger`). With a, b and c for
  -log10 of the p-values the strength is log10((1 + a)(1 + b)(1 + c)): everyone's word counts, and nobody can shout the
  others down. A foretold value's lags weigh as strongly as the network answers to the source at each.

Holes need no filling: what is not observed is not visible to the network. Only the linear model fills them, by lines.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from casper.causal import MEANINGS
from casper.config import Configuration, ModelConfig, TrainingConfig, require
from casper.discovery.granger import GrangerConfig, granger, together
from casper.discovery.method import Discoverer, Evidence
from casper.discovery.recording import Recording
from casper.discovery.silence import Asked, Lost, answered
from casper.drawn_on import DrawnOn, Measure, measured, parts_of
from casper.errors import InputError
from casper.model import CasperNetwork
from casper.train import TrainingData, build_network, train
from casper.windows import Series, Window, windows_at_once

Pool = Literal["max", "mean"]
DiscoveryMeasure = Literal["witnesses", Measure]
Task = Literal["forecast", "imputation"]

_LONGEST_WINDOW: dict[Task, int] = {"forecast": 6, "imputation": 24}
_SHORTEST_WINDOW = 4
_HELD_BACK = 0.05
_HIDDEN_TO_LOOK = 0.3
_MOST_CANDIDATES = 200
# Windows looked at in silence, each as often as there are variables.
_MOST_SILENCES, _FEWEST_SILENT_WINDOWS = 200_000, 64


@dataclass(frozen=True)
class CasperDiscoveryConfig(Configuration):
    task: Task = "forecast"
    """What the network learns: to foretell a window's last step, or to restore cells hidden at random as in the paper.
    Between known steps before and after it, a value hardly needs its causes."""
    measure: DiscoveryMeasure = "witnesses"
    """"witnesses": how surely the source foretells; else what is pooled, see `casper.drawn_on.Measure`."""
    pool: Pool = "mean"
    constrained: bool = True
    """Only keys that are not later than the query. False: as the paper."""
    window: int | None = None
    """Steps looked at at a time, one more than the longest lag that can be seen; None: 6 to foretell, 24 to impute, or
    as many as trajectories have."""
    candidates: int | None = None
    """How many variables each one looks at, the most correlated ones; None: all, up to 200."""
    width: int = 64
    layers: int = 1
    """With more of them it is hardly told apart whether a cause is direct."""
    heads: int = 4
    prompts: int = 64
    dropout: float = 0.0
    silent_sensors: float = 0.0
    """Up to this share of the variables is hidden in a whole training window, see `TrainingConfig`."""
    own_keys: bool = False
    """Every variable has a query and a key of its own, see `ModelConfig`."""
    sensor_spread: float = 1.0
    """How different the variables are to begin with, see `ModelConfig`: each has effects of its own."""
    sparsity: float = 1e-3
    """lambda, the weight of the mean gate probability in the loss."""
    epochs: int = 10
    batches_per_epoch: int = 100
    batch_size: int = 16
    learning_rate: float = 2e-3
    folds: int = 3
    """"witnesses": so many networks, each looked at in a part of the windows that it did not learn from; 1: one
    network, looked at where it learned."""
    looks: int = 256
    """Windows in which it is looked at what the network draws on."""

    def __post_init__(self) -> None:
        require(
            self.window is None or self.window >= _SHORTEST_WINDOW,
            f"window must be at least {_SHORTEST_WINDOW} steps or None, not {self.window}",
        )
        require(
            self.candidates is None or self.candidates >= 1,
            f"candidates must be at least 1 or None, not {self.candidates}",
        )
        require(self.looks >= 1, f"looks must be at least 1, not {self.looks}")
        require(self.folds >= 1, f"folds must be at least 1, not {self.folds}")
        require(
            self.pool == "mean" or self.measure not in ("influence", "witnesses"), f'{self.measure} is pooled by "mean"'
        )


class CasperDiscoverer(Discoverer[CasperDiscoveryConfig]):
    name = "casper"
    summary = "what an imputing network draws on (this package; Jing et al., CIKM 2024)"
    meaning = MEANINGS["witnesses"]
    defaults = CasperDiscoveryConfig()

    @property
    def weights_mean(self) -> str:
        return MEANINGS[self.config.measure]

    def find(self, recording: Recording) -> Evidence:
        self.require_steps(recording, _SHORTEST_WINDOW)
        if self.config.window is not None and self.config.window > recording.values.shape[1]:
            raise InputError(
                f"a window of {self.config.window} steps is longer than the {recording.values.shape[1]} steps there are"
            )
        recording = recording.standardised()
        steps = min(recording.values.shape[1], self.config.window or _LONGEST_WINDOW[self.config.task])
        starts = _starts(recording, steps)
        candidates = self._candidates(recording)
        if self.config.measure == "witnesses":
            return self._witnesses(recording, steps, starts, candidates)
        network = self._fit(recording, steps, starts, candidates)
        return self._pooled(network, self.config.measure, recording, steps, starts, candidates)

    def _candidates(self, recording: Recording) -> Tensor:
        """(N, K): everybody else, or those whose values go most with a variable's own, or its next ones."""
        count = recording.variables
        kept = min(count - 1, _MOST_CANDIDATES if self.config.candidates is None else self.config.candidates)
        if kept == count - 1:
            everybody = torch.arange(count).expand(count, count)
            return everybody[~torch.eye(count, dtype=torch.bool)].reshape(count, count - 1)
        values, _ = recording.filled().windows(2)
        now, later = values[:, 0], values[:, 1]
        together = np.maximum(_correlations(now, now), _correlations(now, later))  # (sources, targets)
        np.fill_diagonal(together, -1.0)
        return torch.as_tensor(np.argsort(-together, axis=0, kind="stable")[:kept].T.copy())

    def _fit(self, recording: Recording, steps: int, starts: Tensor, candidates: Tensor) -> CasperNetwork:
        config = self.config
        rows, variables = recording.exists.size, recording.variables
        observed = torch.as_tensor(recording.observed.reshape(rows, variables))
        truth = torch.as_tensor(recording.values.reshape(rows, variables), dtype=torch.float32)
        held, watched = self._held_back(observed, steps, starts)
        data = TrainingData(
            series=Series(truth.masked_fill(held | ~observed, 0.0), observed & ~held, torch.zeros(rows, 1)),
            truth=truth,
            scored=held,
            train_starts=starts,
            validation_starts=watched,
            gaps=~observed,
            gap_starts=starts,
            deviation=torch.ones(variables),
            neighbour_index=candidates,
            neighbour_present=torch.ones_like(candidates, dtype=torch.bool),
            fingerprint="",
        )
        model = ModelConfig(
            window=steps,
            width=config.width,
            layers=config.layers,
            heads=config.heads,
            prompts=config.prompts,
            dropout=config.dropout,
            constrained=config.constrained,
            relative_time=True,
            own_keys=config.own_keys,
            sensor_spread=config.sensor_spread,
        )
        training = TrainingConfig(
            epochs=config.epochs,
            batches_per_epoch=config.batches_per_epoch,
            batch_size=config.batch_size,
            learning_rate=config.learning_rate,
            sparsity=config.sparsity,
            forecast_gaps=1.0 if config.task == "forecast" else 0.0,
            silent_sensors=config.silent_sensors,
            warmup_steps=min(200, config.epochs * config.batches_per_epoch // 5),
            patience=config.epochs,
            weight_averaging=0.99,
            compiled=False,
        )
        network = build_network(model, data, seed=self.seed)
        with tempfile.TemporaryDirectory() as folder:
            accelerator = "cuda" if self.device.type == "cuda" else "cpu"
            result = train(
                network,
                data,
                training,
                seed=self.seed,
                folder=Path(folder),
                accelerator=accelerator,
                progress=self.tell or False,
            )
        network.load_state_dict(result.weights)
        return network.eval().to(self.device)

    def _held_back(self, observed: Tensor, steps: int, starts: Tensor) -> tuple[Tensor, Tensor]:
        """Cells that are kept from the training to watch the error of what it is to learn, and the windows with them:
        cells anywhere, or all cells of some windows' last steps."""
        generator = self.generator()
        if self.config.task == "imputation":
            return observed & (torch.rand(observed.shape, generator=generator) < _HELD_BACK), starts
        chosen = torch.randperm(len(starts), generator=generator)[: max(1, round(_HELD_BACK * len(starts)))]
        watched = starts[chosen.sort().values]
        last = torch.zeros(len(observed), 1, dtype=torch.bool)
        last[watched + steps - 1] = True
        return observed & last, watched

    def _witnesses(self, recording: Recording, steps: int, starts: Tensor, candidates: Tensor) -> Evidence:
        """One network for each part of the windows, learned from the others: what it makes nothing of where it has not
        learned, is no cause."""
        variables = recording.variables
        at_once = windows_at_once(self.device, variables * steps)
        parts = starts.tensor_split(min(self.config.folds, len(starts)))
        most = max(_FEWEST_SILENT_WINDOWS, _MOST_SILENCES // variables)
        lost = Lost(variables, self.device)
        by_lag = torch.zeros(steps - 1, variables, variables, dtype=torch.float64, device=self.device)
        for number, part in enumerate(parts):
            others = starts if len(parts) == 1 else torch.cat([*parts[:number], *parts[number + 1 :]])
            network = self._fit(recording, steps, others, candidates)
            looks = _spread(part, -(-most // len(parts)))
            lost.look(network, self._asked(recording, steps, looks, at_once=at_once, what="silencing each in turn"))
            if self.config.task == "forecast":
                few = _spread(part, -(-self.config.looks // len(parts)))
                batches = self._asked(recording, steps, few, at_once=at_once, what="looking at lags")
                by_lag += answered(network, batches)
        linear = granger(
            recording,
            GrangerConfig(lags=steps - 1),
            candidates=candidates.numpy(),
            targets=lambda count: self.rounds(count, "asking a linear model"),
        )
        strength = together(lost.certainty().cpu().numpy(), *linear)
        strength *= _by_source(torch.ones(candidates.shape), candidates)
        if self.config.task == "imputation":
            return Evidence(strength)
        share = (by_lag / by_lag.amax(0).clamp_min(1e-30)).cpu().numpy()
        share[0] = np.where(share.max(0) > 0, share[0], 1.0)  # nowhere answered, it is next to nothing anyway
        return Evidence(strength, strength * share)

    @torch.no_grad()
    def _pooled(
        self,
        network: CasperNetwork,
        measure: Measure,
        recording: Recording,
        steps: int,
        starts: Tensor,
        candidates: Tensor,
    ) -> Evidence:
        config, (variables, kept) = self.config, candidates.shape
        drawn_on = DrawnOn(variables, kept, steps, self.device)
        largest = torch.zeros(variables, kept, device=self.device)
        numbers = config.width if measure == "influence" else config.heads
        parts = parts_of(variables, numbers * kept * steps**2, self.device)
        for asked in self._asked(recording, steps, _spread(starts, config.looks), at_once=1, what="looking"):
            window = asked.window
            window = Window(window.values * window.visible, window.visible, window.clock)
            seen = measured(network, window, measure, parts)
            if config.pool == "mean":
                drawn_on.add(seen, parts, asked.cells)
                continue
            for place, (one, _) in enumerate(seen):
                part = parts[place % len(parts)]
                largest[part] = torch.maximum(largest[part], one.amax(dim=(0, 2, 4)))
        if config.pool == "max":
            return Evidence(_by_source(largest, candidates))
        past = drawn_on.weight[:, :, steps:]  # (N, K, T - 1): lags 1 to T - 1
        by_lag = np.stack([_by_source(past[:, :, lag], candidates) for lag in range(past.shape[2])])
        return Evidence(by_lag.max(0), by_lag)

    def _asked(self, recording: Recording, steps: int, starts: Tensor, *, at_once: int, what: str) -> Iterator[Asked]:
        """Windows with cells hidden as the network's task hides them; asked for is what is known of these."""
        rows, variables = recording.exists.size, recording.variables
        values = torch.as_tensor(recording.values.reshape(rows, variables), dtype=torch.float32)
        visible = torch.as_tensor(recording.observed.reshape(rows, variables))
        series = Series(values, visible, torch.zeros(rows, 1))
        generator = self.generator()
        batches = starts.split(at_once)
        for number in self.rounds(len(batches), what):
            cut = series.window(batches[number], steps)
            hidden = self._hidden(cut.visible.shape, generator)
            window = Window(cut.values, cut.visible & ~hidden, cut.clock).map(lambda part: part.to(self.device))
            yield Asked(window, cut.values.to(self.device), (hidden & cut.visible).to(self.device))

    def _hidden(self, shape: torch.Size, generator: torch.Generator) -> Tensor:
        """Which cells of windows (B, N, T) are hidden and asked for."""
        if self.config.task == "imputation":
            return torch.rand(shape, generator=generator) < _HIDDEN_TO_LOOK
        return (torch.arange(shape[2]) == shape[2] - 1).expand(shape)


def _spread(starts: Tensor, most: int) -> Tensor:
    """As many of them, evenly spread."""
    return starts[torch.linspace(0, len(starts) - 1, min(most, len(starts))).round().long()]


def _starts(recording: Recording, steps: int) -> Tensor:
    """Of all windows within a trajectory, counted in the trajectories put one behind the other."""
    length = recording.values.shape[1]
    first = np.arange(length - steps + 1)
    whole = recording.exists[:, first[:, None] + np.arange(steps)].all(-1)  # (R, starts)
    trajectory, start = np.nonzero(whole)
    return torch.as_tensor(trajectory * length + start)


def _correlations(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """|correlation| of every column of a with every column of b; 0 for constant columns."""
    a, b = a - a.mean(0), b - b.mean(0)
    norms = np.sqrt((a**2).sum(0))[:, None] * np.sqrt((b**2).sum(0))
    return np.abs(a.T @ b) / np.where(norms > 0, norms, 1.0)


def _by_source(values: Tensor, candidates: Tensor) -> NDArray[np.float64]:
    """(targets, K) -> (sources, targets), 0 for pairs that were no candidates."""
    strength = np.zeros((len(candidates), len(candidates)))
    strength[candidates.numpy(), np.arange(len(candidates))[:, None]] = values.double().cpu().numpy()
    return strength
