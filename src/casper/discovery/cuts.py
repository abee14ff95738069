"""CUTS: neural Granger causality that fills the holes as it goes (Cheng et al., ICLR 2023).

Every edge (source i, lag l, target j) has a probability m = sigmoid(theta), and every target j has its own network f_j,
which reads the last steps of all variables through gates s, one for each edge and each sample. Three things alternate,
once in every epoch, over batches of windows:

    prediction      theta fixed, s ~ Bernoulli(m):          min over f of  sum_j L_j
    imputation      in holes:                               x <- (1 - alpha) x + alpha f_j(s * past)
    graph           f fixed, s = sigmoid((theta + log u - log(1 - u)) / tau), u uniform (Gumbel-softmax):
                                                            min over theta of  sum_j L_j + lambda sum m
    L_j             mean squared error of f_j(s * past) over the observed steps of x_j

Holes begin with the last observed value. First nothing is imputed (n1 epochs), then holes are imputed but not counted
in L (n2), and at last imputed values stay as they are and count in L as observed ones do (n3). The temperature tau
falls exponentially from 1 to 0.1 in the first n1 + n2 epochs, and again in the last n3; learning rates fall to a tenth
over all of them. The evidence of an edge is m, and that of a pair its largest m among the lags.

Defaults are those of the paper's DREAM-3 experiment (its Table 4): n1, n2, n3 = 20, 30, 50; alpha 0.01; 5 lags; batches
of 128; 5 hidden layers of 128 with leaky ReLU (slope 0.05); Adam at 1e-4 for the networks and 1e-2 for theta; no weight
decay; lambda 5.

Where the paper and the authors' code differ:
- The code divides the sum of m by N^2 and the error by N, so that an edge weighs lambda / N beside its target's error;
  the published lambda = 5 only makes sense in this way. `sparsity` is this weight of one edge, 5 / 100, which is the
  same on DREAM-3 and does not grow as variables become fewer.
- The code hands probabilities to Gumbel-softmax where the paper's equation 21 has their logarithms, which leaves gates
  half open whatever theta is. This is the paper's.
- The code's temperature comes down only to 0.32 before it is raised again. This is the paper's schedule.
- The code freezes imputed values in the last phase, the paper does not say. This is the code's.

Departures from the original:
- windows lie inside trajectories, and batches of an epoch are of about the same size, none is left out
- L_j is averaged over each target's own observed steps (the paper's equation 5), not over all targets at once
- a hole is imputed right after the prediction stage, before the graph sees it (the paper's Figure 1); holes in the
  first `lags` steps of a trajectory have no past to be predicted from and keep their first filling
- small recordings are gone over several times in an epoch, so that it has at least `fewest_batches` batches (6, as many
  as DREAM-3 has); the authors raised the number of epochs by hand instead
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from casper.config import Configuration, require
from casper.discovery.method import Discoverer, Evidence
from casper.discovery.recording import Recording


@dataclass(frozen=True)
class CutsConfig(Configuration):
    """CUTS. The defaults are those of the paper's experiment with DREAM-3."""

    lags: int = 5
    """Steps into the past that may be causes."""
    hidden: int = 128
    """Width of each target's network."""
    layers: int = 5
    """Hidden layers of each target's network."""
    settling_epochs: int = 20
    """Epochs before anything is imputed (n1)."""
    imputing_epochs: int = 30
    """Epochs in which holes are imputed, but are no targets yet (n2)."""
    refining_epochs: int = 50
    """Epochs in which imputed values are targets, too (n3)."""
    imputation_rate: float = 0.01
    """How far a hole moves towards its prediction in an epoch (alpha)."""
    batch_size: int = 128
    """Most windows in a batch."""
    fewest_batches: int = 6
    """Fewest batches in an epoch; small recordings are gone over several times."""
    learning_rate: float = 1e-4
    """Of the networks; falls to a tenth."""
    graph_learning_rate: float = 1e-2
    """Of the edges' log-odds theta; falls to a tenth."""
    weight_decay: float = 0.0
    """Of the networks, as Adam adds it to the gradient."""
    temperature: float = 1.0
    """Of the gates when the graph is fitted, in the beginning and again when refining begins (tau)."""
    last_temperature: float = 0.1
    """What the temperature falls to."""
    sparsity: float = 0.05
    """What one edge costs, in units of its target's variance, times its probability (the paper's lambda / N)."""

    def __post_init__(self) -> None:
        for name in ("lags", "hidden", "layers", "batch_size", "fewest_batches"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("settling_epochs", "imputing_epochs", "refining_epochs", "weight_decay", "sparsity"):
            require(getattr(self, name) >= 0, f"{name} must not be negative, not {getattr(self, name)}")
        for name in ("learning_rate", "graph_learning_rate", "temperature", "last_temperature"):
            require(getattr(self, name) > 0, f"{name} must be positive, not {getattr(self, name)}")
        require(self.epochs >= 1, "there must be at least one epoch")
        require(
            0.0 <= self.imputation_rate <= 1.0, f"imputation_rate must lie between 0 and 1, not {self.imputation_rate}"
        )

    @property
    def epochs(self) -> int:
        return self.settling_epochs + self.imputing_epochs + self.refining_epochs

    def temperature_in(self, epoch: int) -> float:
        """Falls exponentially until refining begins, and once more from there to the end."""
        before = self.settling_epochs + self.imputing_epochs
        passed, length = (epoch, before) if epoch < before else (epoch - before, self.refining_epochs)
        return self.temperature * (self.last_temperature / self.temperature) ** (passed / max(length - 1, 1))


class Randomness:
    """Uniform numbers, drawn on the CPU and cheap to move: four 16-bit ones out of every drawn word."""

    def __init__(self, generator: torch.Generator, device: torch.device) -> None:
        self.generator, self.device = generator, device

    def uniform(self, *shape: int) -> Tensor:
        """In (0, 1), never at its ends, so that log-odds are finite."""
        count = math.prod(shape)
        words = torch.randint(-(2**63), 2**63 - 1, (-(-count // 4),), generator=self.generator)
        levels = words.view(torch.int16)[:count].to(self.device)
        return ((levels.to(torch.float32) + (2**15 + 0.5)) / 2**16).reshape(shape)

    def order(self, count: int) -> Tensor:
        return torch.randperm(count, generator=self.generator).to(self.device)


class TargetNetworks(nn.Module):
    """One network for each target, all of them in one set of tensors. K = lags * N: what a network reads."""

    def __init__(self, targets: int, reads: int, config: CutsConfig, generator: torch.Generator) -> None:
        super().__init__()
        sizes = [reads, *[config.hidden] * config.layers, 1]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for size_in, size_out in pairwise(sizes):
            bound, bias_bound = math.sqrt(6.0 / (size_in + size_out)), 1.0 / math.sqrt(size_in)  # Xavier; PyTorch's own
            weight = torch.rand(targets, size_in, size_out, generator=generator)
            bias = torch.rand(targets, 1, size_out, generator=generator)
            self.weights.append(nn.Parameter(bound * (2.0 * weight - 1.0)))
            self.biases.append(nn.Parameter(bias_bound * (2.0 * bias - 1.0)))

    def forward(self, past: Tensor) -> Tensor:
        """past, gated for each target: (N, B, K) -> (B, N)"""
        state = past
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if number:
                state = F.leaky_relu(state, 0.05)
            state = torch.baddbmm(bias, state, weight)
        return state[:, :, 0].T


def relaxed_gates(theta: Tensor, uniform: Tensor, temperature: float) -> Tensor:
    """theta: (N, K), uniform: (N, B, K) -> (N, B, K) in (0, 1)"""
    return ((theta[:, None] + uniform.logit()) / temperature).sigmoid()


def prediction_error(predicted: Tensor, truth: Tensor, counts: Tensor) -> Tensor:
    """Sum over targets of the mean squared error where `counts` is 1. (B, N) each"""
    return (((predicted - truth) ** 2 * counts).sum(0) / counts.sum(0).clamp_min(1.0)).sum()


@dataclass(frozen=True)
class Windows:
    """Where targets and their pasts lie in the rows of all trajectories, one behind the other.

    now: (M,). past: (M, lags), lag 1 first, always in the same trajectory.
    """

    now: Tensor
    past: Tensor

    @classmethod
    def of(cls, recording: Recording, lags: int) -> Windows:
        steps = recording.exists.shape[1]
        trajectory, step = np.nonzero(recording.exists[:, lags:])
        now = trajectory * steps + step + lags
        return cls(torch.from_numpy(now), torch.from_numpy(now[:, None] - np.arange(1, lags + 1)))

    def to(self, device: torch.device) -> Windows:
        return Windows(self.now.to(device), self.past.to(device))


class CutsDiscoverer(Discoverer[CutsConfig]):
    """Alternates between predicting through a random graph, filling holes, and fitting the graph."""

    name = "cuts"
    summary = "prediction, imputation and a graph of gates in turns (Cheng et al., ICLR 2023)"
    meaning = "the probability that the edge exists, from 0 to 1"
    defaults = CutsConfig()

    def find(self, recording: Recording) -> Evidence:
        config, count = self.config, recording.variables
        self.require_steps(recording, config.lags + 1)
        theta = self._fitted(recording)  # (N, lags * N)
        probability = theta.double().sigmoid().reshape(count, config.lags, count)  # (targets, lags, sources)
        by_lag = probability.permute(1, 2, 0).cpu().numpy()
        return Evidence(by_lag.max(0), by_lag)

    def _fitted(self, recording: Recording) -> Tensor:
        """theta: (N, lags * N), what each target reads in order of lags, then sources."""
        config, count = self.config, recording.variables
        generator = self.generator()
        randomness = Randomness(generator, self.device)
        windows = Windows.of(recording, config.lags).to(self.device)
        # Trajectories one behind the other: (R * T, N)
        values = torch.from_numpy(recording.standardised().filled("hold").values).float().reshape(-1, count)
        values = values.to(self.device)
        observed = torch.from_numpy(recording.observed).reshape(-1, count).to(self.device)
        networks = TargetNetworks(count, config.lags * count, config, generator).to(self.device)
        theta = torch.zeros(count, config.lags * count, device=self.device, requires_grad=True)
        adams = (
            torch.optim.Adam(networks.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay),
            torch.optim.Adam([theta], lr=config.graph_learning_rate),
        )
        schedules = [torch.optim.lr_scheduler.ExponentialLR(adam, 0.1 ** (1.0 / config.epochs)) for adam in adams]

        for epoch in self.rounds(config.epochs, "training"):
            imputing = config.settling_epochs <= epoch < config.settling_epochs + config.imputing_epochs
            refining = epoch >= config.settling_epochs + config.imputing_epochs
            counts = torch.ones_like(values) if refining else observed.float()
            batches = self._batches(len(windows.now), randomness)
            predicted = values.clone()
            for batch in batches:
                now, past = windows.now[batch], values[windows.past[batch]].flatten(1)  # past: (B, lags * N)
                open_gates = randomness.uniform(count, *past.shape) < theta.detach().sigmoid()[:, None]
                answer = networks(past * open_gates)
                adams[0].zero_grad()
                prediction_error(answer, values[now], counts[now]).backward()
                adams[0].step()
                predicted[now] = answer.detach()
            if imputing:
                moved = values + config.imputation_rate * (predicted - values)
                values = torch.where(observed, values, moved)
            for batch in batches:
                now, past = windows.now[batch], values[windows.past[batch]].flatten(1)  # past: (B, lags * N)
                uniform = randomness.uniform(count, *past.shape)
                answer = networks(past * relaxed_gates(theta, uniform, config.temperature_in(epoch)))
                error = prediction_error(answer, values[now], counts[now])
                objective = error + config.sparsity * theta.sigmoid().sum()
                (theta.grad,) = torch.autograd.grad(objective, theta)  # the networks' gradients are not wanted
                adams[1].step()
            for schedule in schedules:
                schedule.step()
        return theta.detach()

    def _batches(self, windows: int, randomness: Randomness) -> list[Tensor]:
        """The numbers of the windows of each batch: all windows once, and again until there are batches enough."""
        per_pass = -(-windows // self.config.batch_size)
        passes = -(-self.config.fewest_batches // per_pass)
        return [batch for _ in range(passes) for batch in randomness.order(windows).tensor_split(per_pass)]
