"""Neural Granger causality (Tank, Covert, Foti, Shojaie and Fox, IEEE TPAMI 2021).

Every variable i has a network of its own (a component) that foretells it from the past of all variables:

    MLP    x_i(t) = v . relu(sum_k W_k x(t - k) + b) + c            lags k = 1 ... K
    LSTM   x_i(t) = v . h(t - 1) + c,   (h, s)(t) = LSTM(x(t); W, U)

W_k[:, j] is all that variable j's value of lag k can do in network i, so j is not a cause of i where W[:, j] = 0. Each
network minimises

    mean squared error + ridge (|v|^2, and |U|^2 of the LSTM) + penalty Omega(W),   Omega(W) = sum over j of

    group          |W_1..K[:, j]|                                   a source is used or not
    mixed          |W_1..K[:, j]| + sum_k |W_k[:, j]|               ... and each of its lags
    hierarchical   sum_k |W_k..K[:, j]|                             a lag is used only where all shorter ones are

by proximal gradient descent: a gradient step on the first two terms, then the groups are shrunk, small ones to 0. The
step is halved for a network where it does not lower the objective enough (the authors' GISTA), and grows otherwise. An
LSTM's lags cannot be told apart: it has one group for each source.

The strength of a pair. At any one penalty most groups are exactly 0 and tie. The authors draw their ROC curves by
sweeping the penalty, from where all pairs are used to where none is: each model is one point of the curve, so a pair
ranks by how strong a penalty it withstands. So here: the penalty grows along a path, and

    strength = (number of penalties that leave the group above 0 + norm / (1 + norm)) / (penalties + 1)

The norm, averaged over the path, only orders the pairs that give way at the same penalty. `by_lag` is made in the same
way from the single lags' norms.

Defaults: ridge 0.01 (never tuned), step 0.05, a line search with 0.5 and the hierarchical penalty are those of the
authors' code; CUTS (Cheng et al., ICLR 2023) runs the MLP on DREAM-3 with the same ridge and step. Lag 2 and 10 hidden
units (their cLSTM; 5 in their cMLP) are the paper's for DREAM-3 as we recall it, not checked against its text. The path
begins, as the authors', where nearly all pairs of DREAM-3 are used and ends where hardly any is.

Departures from the original:
- the sweep is one path, each penalty beginning where the weaker one ended, instead of a training from scratch for each;
  from weak to strong, since a network whose input weights are 0 hardly comes back
- series are standardised, so that one range of penalties suits all; the authors choose a range for each data set
- the line search tries one step for all networks at once and keeps what was better; it never accepts a worse point,
  and steps may grow again
- one hidden layer, as in all of the paper's experiments
- the LSTM reads pieces of a trajectory that follow one another, not one beginning at every step; on trajectories of up
  to `context` steps, as in DREAM-3, these are the trajectories themselves
- holes are filled with the last observed value before they are read (as CUTS does for it), and are never foretold
- trajectories are never mixed: no lag and no state reaches from one into the next
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from casper.config import Configuration, require
from casper.discovery.method import Discoverer, Evidence
from casper.discovery.recording import Recording

Network = Literal["mlp", "lstm"]
Penalty = Literal["group", "mixed", "hierarchical"]
Weights = dict[str, Tensor]
"""By name; the first axis is the network. "entry": what is penalised, (N, units, lags, sources)."""

SUFFICIENT = 0.5
"""Share of the expected decrease that a step has to bring."""
ROUNDING = 1e-6
"""A rise by this share of the objective is none: single precision sees no smaller one."""


@dataclass(frozen=True)
class NgcConfig(Configuration):
    """Neural Granger causality. The defaults are the authors' for DREAM-3 where they tell them."""

    network: Network = "mlp"
    """A perceptron over the last steps, or a recurrent network over the whole past, for each variable."""
    penalty: Penalty = "hierarchical"
    """How the lags of a source are grouped; an LSTM has no lags, there all are the same."""
    lag: int = 2
    """Steps back that the MLP sees."""
    context: int = 20
    """Steps that the LSTM foretells in one go; longer trajectories are cut into pieces."""
    hidden: int = 10
    """Hidden units of each network."""
    ridge: float = 0.01
    """Weight of the squares of all weights behind the input."""
    weakest: float | None = None
    """First penalty of the path: leaves nearly all pairs. None: 0.01 for the MLP, 0.03 for the LSTM, which otherwise
    learns the noise by heart before the penalty grows."""
    strongest: float = 2.0
    """Last penalty of the path: leaves hardly any; in between they grow geometrically."""
    penalties: int = 20
    """How many penalties there are on the path."""
    iterations: int = 100
    """Steps of descent at each penalty."""
    learning_rate: float = 0.05
    """Size of the first step at each penalty."""

    def __post_init__(self) -> None:
        for name in ("lag", "context", "hidden", "iterations"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}")
        require(self.penalties >= 2, f"penalties must be at least 2, not {self.penalties}")
        require(self.ridge >= 0, f"ridge must not be negative, not {self.ridge}")
        require(
            0 < self.first_penalty < self.strongest,
            f"weakest must be positive and less than strongest: {self.first_penalty} and {self.strongest} are not",
        )
        require(self.learning_rate > 0, f"learning_rate must be positive, not {self.learning_rate}")

    @property
    def first_penalty(self) -> float:
        return (0.01 if self.network == "mlp" else 0.03) if self.weakest is None else self.weakest

    def path(self) -> list[float]:
        """The penalties, weak to strong."""
        return np.geomspace(self.first_penalty, self.strongest, self.penalties).tolist()


class Examples(NamedTuple):
    """MLP: inputs (M, lags, N), lag 1 first; targets, counted (M, N). LSTM: all (M, steps, N). Where `counted` is 0
    the target is not known."""

    inputs: Tensor
    targets: Tensor
    counted: Tensor


class Components(ABC):
    """N networks side by side, one for each variable."""

    ridged: tuple[str, ...]
    """The weights that have the ridge penalty."""

    def __init__(self, variables: int, hidden: int) -> None:
        self.variables, self.hidden = variables, hidden

    @abstractmethod
    def initial(self, generator: torch.Generator) -> Weights:
        """Random weights, on the CPU."""

    @abstractmethod
    def predict(self, weights: Weights, inputs: Tensor) -> Tensor:
        """What the N networks foretell, in the shape of the targets."""

    @abstractmethod
    def examples(self, recording: Recording) -> Examples:
        """From a standardised recording."""

    def smooth(self, weights: Weights, examples: Examples, ridge: float) -> Tensor:
        """Each network's mean squared error plus ridge. (N)"""
        apart = (self.predict(weights, examples.inputs) - examples.targets) ** 2 * examples.counted
        cells = examples.counted.flatten(0, -2).sum(0).clamp(min=1.0)
        return apart.flatten(0, -2).sum(0) / cells + ridge * _squares([weights[name] for name in self.ridged])


class Perceptrons(Components):
    ridged = ("exit",)

    def __init__(self, variables: int, hidden: int, lag: int) -> None:
        super().__init__(variables, hidden)
        self.lag = lag

    def initial(self, generator: torch.Generator) -> Weights:
        n, h = self.variables, self.hidden
        near, far = 1.0 / math.sqrt(n * self.lag), 1.0 / math.sqrt(h)
        return {
            "entry": _uniform(near, (n, h, self.lag, n), generator),
            "entry_bias": _uniform(near, (n, h), generator),
            "exit": _uniform(far, (n, h), generator),
            "exit_bias": _uniform(far, (n,), generator),
        }

    def predict(self, weights: Weights, inputs: Tensor) -> Tensor:
        # (M, lags, N) -> (M, lags N) -> (M, N hidden): one product for all networks.
        units = functional.linear(inputs.flatten(1), weights["entry"].flatten(2).flatten(0, 1))
        units = (units.unflatten(1, (self.variables, self.hidden)) + weights["entry_bias"]).relu()  # (M, N, hidden)
        return (units * weights["exit"]).sum(-1) + weights["exit_bias"]

    def examples(self, recording: Recording) -> Examples:
        values, _ = recording.filled("hold").windows(self.lag + 1)
        _, observed = recording.windows(self.lag + 1)
        return Examples(_tensor(values[:, -2::-1]), _tensor(values[:, -1]), _tensor(observed[:, -1]))


class LongShortTermNetworks(Components):
    ridged = ("recurrent", "exit")

    def __init__(self, variables: int, hidden: int, context: int) -> None:
        super().__init__(variables, hidden)
        self.context = context

    def initial(self, generator: torch.Generator) -> Weights:
        n, h = self.variables, self.hidden
        bound = 1.0 / math.sqrt(h)
        return {
            "entry": _uniform(bound, (n, 4 * h, 1, n), generator),
            "entry_bias": _uniform(bound, (n, 4 * h), generator),
            "recurrent": _uniform(bound, (n, h, 4 * h), generator),
            "exit": _uniform(bound, (n, h, 1), generator),
            "exit_bias": _uniform(bound, (n,), generator),
        }

    def predict(self, weights: Weights, inputs: Tensor) -> Tensor:
        pieces, steps, n = inputs.shape
        # (M, steps, N) -> (M, steps, N 4 hidden): one product for all networks and steps.
        read = functional.linear(inputs, weights["entry"].flatten(2).flatten(0, 1)).unflatten(2, (n, -1))
        read = (read + weights["entry_bias"]).permute(1, 2, 0, 3).contiguous()  # (steps, N, M, 4 hidden)
        state = memory = inputs.new_zeros(n, pieces, self.hidden)
        states: list[Tensor] = []
        for now in read.unbind(0):
            gates = torch.baddbmm(now, state, weights["recurrent"])
            opened, kept, shown = gates[..., : 3 * self.hidden].sigmoid().chunk(3, -1)
            memory = kept * memory + opened * gates[..., 3 * self.hidden :].tanh()
            state = shown * memory.tanh()
            states.append(state)
        every = torch.cat(states, dim=1)  # (N, steps M, hidden)
        foretold = (every @ weights["exit"]).reshape(n, steps, pieces)
        return foretold.permute(2, 1, 0) + weights["exit_bias"]

    def examples(self, recording: Recording) -> Examples:
        """Step t is foretold from the steps before it in its piece. All pieces are about equally long."""
        values = recording.filled("hold").values
        foretold = values.shape[1] - 1
        pieces = math.ceil(foretold / self.context)
        length = math.ceil(foretold / pieces)

        def cut(array: NDArray[np.float64]) -> NDArray[np.float64]:
            padded = np.pad(array, ((0, 0), (0, pieces * length - foretold), (0, 0)))
            return padded.reshape(len(array) * pieces, length, -1)  # (R, pieces length, N) -> (R pieces, length, N)

        counted = cut(recording.observed[:, 1:].astype(np.float64))
        known = counted.any((1, 2))
        inputs, targets = cut(values[:, :-1])[known], cut(values[:, 1:])[known]
        return Examples(_tensor(inputs), _tensor(targets), _tensor(counted[known]))


def _tensor(array: NDArray[np.float64] | NDArray[np.bool_]) -> Tensor:
    return torch.from_numpy(array.astype(np.float32))


def _uniform(bound: float, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return (torch.rand(shape, generator=generator) * 2.0 - 1.0) * bound


def _squares(weights: list[Tensor]) -> Tensor:
    """The sum of each network's squares. (N, ...) -> (N)"""
    return torch.cat([weight.reshape(len(weight), -1) for weight in weights], dim=1).square().sum(1)


def _groups(entry: Tensor, kind: Penalty) -> list[slice]:
    """The lags of every group, in the order in which they are shrunk: a group after all those inside it."""
    lags = entry.shape[2]
    if lags == 1 or kind == "group":
        return [slice(0, lags)]
    if kind == "mixed":
        return [*(slice(k, k + 1) for k in range(lags)), slice(0, lags)]
    return [slice(k, lags) for k in reversed(range(lags))]


def omega(entry: Tensor, kind: Penalty) -> Tensor:
    """The penalty of each network's input weights. (N, units, lags, sources) -> (N)"""
    norms = [torch.linalg.vector_norm(entry[:, :, lags], dim=(1, 2)) for lags in _groups(entry, kind)]
    return torch.stack(norms).sum((0, 2))


def shrink(entry: Tensor, by: Tensor, kind: Penalty) -> Tensor:
    """The proximal step: every group's norm less `by` (N), 0 where it was not larger. Shape as entry."""
    shrunk, less = entry.clone(), by[:, None, None, None]
    for lags in _groups(entry, kind):
        norm = torch.linalg.vector_norm(shrunk[:, :, lags], dim=(1, 2), keepdim=True)
        shrunk[:, :, lags] *= (1.0 - less / norm.clamp(min=torch.finfo(entry.dtype).tiny)).clamp(min=0.0)
    return shrunk


class Descent:
    """Proximal gradient descent of N networks at once, each with a step size of its own."""

    def __init__(self, networks: Components, weights: Weights, examples: Examples, config: NgcConfig) -> None:
        self.networks, self.weights, self.examples, self.config = networks, weights, examples, config
        self.loss, self.slopes = self._slopes(weights)
        self.step = torch.full_like(self.loss, config.learning_rate)

    def _slopes(self, weights: Weights) -> tuple[Tensor, Weights]:
        leaves = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
        loss = self.networks.smooth(leaves, self.examples, self.config.ridge)
        # A network's loss depends on its own weights only: the sum's gradients are those of each.
        slopes = torch.autograd.grad(loss.sum(), list(leaves.values()))
        return loss.detach(), dict(zip(leaves, slopes, strict=True))

    def restart(self) -> None:
        """With the first step size again."""
        self.step.fill_(self.config.learning_rate)

    def advance(self, penalty: float) -> None:
        """Try a step; the networks whose objective falls enough take it."""
        kind = self.config.penalty
        tried = {name: weight - _along(self.step, weight) * self.slopes[name] for name, weight in self.weights.items()}
        tried["entry"] = shrink(tried["entry"], self.step * penalty, kind)
        loss, slopes = self._slopes(tried)
        moved = _squares([tried[name] - weight for name, weight in self.weights.items()])
        before = self.loss + penalty * omega(self.weights["entry"], kind)
        after = loss + penalty * omega(tried["entry"], kind)
        lower = before - after + ROUNDING * before.abs()
        better = lower >= SUFFICIENT / (2.0 * self.step) * moved  # False where `after` is not a number
        self.loss = torch.where(better, loss, self.loss)
        for name in tried:
            here = _along(better, tried[name])
            self.weights[name] = torch.where(here, tried[name], self.weights[name])
            self.slopes[name] = torch.where(here, slopes[name], self.slopes[name])
        self.step = torch.where(better, self.step * 1.1, self.step * 0.5)


def _along(one_each: Tensor, weight: Tensor) -> Tensor:
    """(N) in a shape that goes with a weight of N networks."""
    return one_each.reshape(-1, *[1] * (weight.dim() - 1))


class Withstood:
    """How far along the path of penalties each group lasts."""

    def __init__(self) -> None:
        self.norms: list[NDArray[np.float64]] = []

    def see(self, norms: Tensor) -> None:
        self.norms.append(norms.double().cpu().numpy())

    def strength(self) -> NDArray[np.float64]:
        norms = np.stack(self.norms)
        mean = norms.mean(0)
        return ((norms > 0).sum(0) + mean / (1.0 + mean)) / (len(norms) + 1)


class NgcDiscoverer(Discoverer[NgcConfig]):
    """Which variables' pasts a sparse network needs to foretell each variable."""

    name = "ngc"
    summary = "neural Granger causality, sparse MLPs or LSTMs (Tank et al., IEEE TPAMI 2021)"
    meaning = "the share of the penalties, from weak to strong, that the pair withstands: 0 none, 1 all of them"
    defaults = NgcConfig()

    def find(self, recording: Recording) -> Evidence:
        config, variables = self.config, recording.variables
        if config.network == "mlp":
            self.require_steps(recording, config.lag + 1)
            networks: Components = Perceptrons(variables, config.hidden, config.lag)
        else:
            self.require_steps(recording, 2)
            networks = LongShortTermNetworks(variables, config.hidden, config.context)
        examples = Examples(*(part.to(self.device) for part in networks.examples(recording.standardised())))
        weights = {name: weight.to(self.device) for name, weight in networks.initial(self.generator()).items()}
        descent = Descent(networks, weights, examples, config)
        pairs, lags, path = Withstood(), Withstood(), config.path()
        for number in self.rounds(len(path) * config.iterations, "training"):
            stage, done = divmod(number, config.iterations)
            if done == 0:
                descent.restart()
            descent.advance(path[stage])
            if done == config.iterations - 1:
                entry = descent.weights["entry"]  # (N targets, units, lags, N sources)
                pairs.see(torch.linalg.vector_norm(entry, dim=(1, 2)).T)  # (sources, targets)
                lags.see(torch.linalg.vector_norm(entry, dim=1).permute(1, 2, 0))  # (lags, sources, targets)
        return Evidence(pairs.strength(), lags.strength() if config.network == "mlp" else None)
