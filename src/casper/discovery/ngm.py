"""NGM: neural graphical modelling in continuous time (Bellot, Branson, van der Schaar, ICLR 2022).

The mean of the series is the solution of an ordinary differential equation with one small network for each variable j:

    dx_j/dt = f_j(x) = v_j . ELU(W_j x + b_j) + c_j          W_j: (hidden, N)

Variable i is a cause of j where the column W_j[:, i] is not 0. The networks are fitted to short segments: from a
segment's first step the equation is solved through the next ones, and the squared error there is minimised by Adam.
After each step of Adam the columns shrink by the proximal operator of the group lasso, which makes many exactly 0:

    W_j[:, i]  <-  max(0, 1 - rate penalty_ji / |W_j[:, i]|) W_j[:, i]

There are two trainings, each from scratch: a first one with the same penalty for all, and a second, adaptive one with
penalty_ji = penalty / |first W_j[:, i]|, so that what the first one found weak has to be worth more to stay.

Evidence: the norms |W_j[:, i]| of the second training. Pairs that it removed (norm 0) would all be tied: they rank
below all others and among themselves by their norms in the first training, scaled to at most half of the smallest norm
that is left. Pairs that were removed twice have strength 0.

Defaults: 2000 steps, segments of 5 points and penalty 0.05 are what CUTS (Cheng et al., ICLR 2023, Table 5) took for
all its data sets, DREAM-3 among them; one hidden layer of 12, ELU, Adam at 0.01, the same rate for the shrinking, 20
segments at a time and exponent 1 of the adaptive penalty are the authors' code's. Time is counted in steps of the grid,
as there.

Departures from the original:
- variables are standardised: with one penalty for all, a column's norm must not depend on its variable's unit
- a Runge-Kutta step of fourth order for each step of the grid (`substeps` makes it finer) and plain backpropagation
  through it, instead of an adaptive solver with the adjoint method: segments are short
- holes: errors count at observed cells only. The state at the beginning of a segment has to be whole, so holes there,
  and only there, are taken from the line through the nearest observed steps of the same trajectory; the original knows
  only steps of which all variables are measured
- a variable that is constant or never observed is neither cause nor effect: an infinite penalty keeps its columns at 0.
  The equation could use it as a hidden state otherwise
- segments never leave their trajectory; those near its end are shorter, so that every step is used and trajectories of
  two steps are enough. They are drawn with replacement
- the known beginning of a segment is no part of the mean error, and gradients are clipped: one wild solution early on
  would otherwise stay in Adam's memory for a thousand steps
- CUTS does not say whether its 2000 steps are one training or two; here each of the two has so many
- the score of a removed pair, as said above; the original thresholds the norms
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from casper.config import Configuration, require
from casper.discovery.method import Discoverer, Evidence
from casper.discovery.recording import Recording

LARGEST_GRADIENT = 5.0


@dataclass(frozen=True)
class NgmConfig(Configuration):
    """NGM. The defaults are those of CUTS's experiments and, where that paper is silent, of the authors' code."""

    hidden: int = 12
    """Width of the hidden layer of each variable's network."""
    steps: int = 2000
    """Training steps, in each of the two trainings."""
    segments: int = 20
    """Segments in a training step."""
    horizon: int = 5
    """Points of a segment, the one it begins with included."""
    substeps: int = 1
    """Runge-Kutta steps between two points."""
    learning_rate: float = 0.01
    penalty: float = 0.05
    """Weight of the group lasso: a column shrinks by learning_rate * penalty in each step."""
    adaptive: bool = True
    """False: the first training only."""
    adaptive_exponent: float = 1.0
    """The second training's penalty is divided by this power of the first one's norms."""

    def __post_init__(self) -> None:
        for name in ("hidden", "steps", "segments", "substeps"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}")
        require(self.horizon >= 2, f"horizon must be at least 2 points, not {self.horizon}")
        require(self.learning_rate > 0, f"learning_rate must be positive, not {self.learning_rate}")
        require(self.penalty >= 0, f"penalty must not be negative, not {self.penalty}")
        require(self.adaptive_exponent > 0, f"adaptive_exponent must be positive, not {self.adaptive_exponent}")


class VectorField(nn.Module):
    """The N networks f_j side by side. (B, N) -> (B, N)"""

    def __init__(self, variables: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()

        def uniform(*shape: int, bound: float) -> nn.Parameter:
            return nn.Parameter((2.0 * torch.rand(shape, generator=generator) - 1.0) * bound)

        self.inward = uniform(variables, hidden, variables, bound=variables**-0.5)  # (target, hidden, source)
        self.inward_bias = uniform(variables, hidden, bound=variables**-0.5)
        self.outward = uniform(variables, hidden, bound=hidden**-0.5)
        self.outward_bias = uniform(variables, bound=hidden**-0.5)

    def forward(self, state: Tensor) -> Tensor:
        # One product for all networks: (B, source) x (source, target * hidden).
        inside = functional.linear(state, self.inward.flatten(0, 1), self.inward_bias.flatten())
        outside = functional.elu(inside).unflatten(1, self.outward.shape) * self.outward  # (B, target, hidden)
        return outside.sum(-1) + self.outward_bias

    def norms(self) -> Tensor:
        """|W_j[:, i]|, (target, source)."""
        return self.inward.detach().norm(dim=1)

    def shrink(self, amount: Tensor) -> None:
        """The proximal step: every column shorter by its amount, (target, source), or 0."""
        norms = self.norms()
        # The amount is infinite where the first training removed the column.
        left = (norms - amount).clamp_min(0.0) / norms.clamp_min(torch.finfo(norms.dtype).tiny)
        with torch.no_grad():
            self.inward.mul_(left[:, None, :])  # (target, 1, source)


def solve(field: VectorField, start: Tensor, points: int, substeps: int) -> Tensor:
    """The states at the `points` steps after `start`, by the classical Runge-Kutta method. (B, N) -> (B, points, N)"""
    length, state = 1.0 / substeps, start
    reached: list[Tensor] = []
    for _ in range(points):
        for _ in range(substeps):
            first = field(state)
            second = field(state + 0.5 * length * first)
            third = field(state + 0.5 * length * second)
            fourth = field(state + length * third)
            state = state + length / 6.0 * (first + 2.0 * second + 2.0 * third + fourth)
        reached.append(state)
    return torch.stack(reached, dim=1)


class Batch(NamedTuple):
    start: Tensor
    """(B, N), whole."""
    after: Tensor
    """(B, points, N), the steps behind the start."""
    observed: Tensor
    """(B, points, N), False also behind the end of a trajectory."""


@dataclass(frozen=True)
class Segments:
    """All places where a segment may begin, and what follows them."""

    whole: Tensor
    """(R, T, N), holes filled: only for the beginnings."""
    values: Tensor
    """(R, T + points, N): nothing is observed behind the end."""
    observed: Tensor
    """(R, T + points, N)"""
    places: Tensor
    """(M, 2): trajectory and step."""
    points: int
    """Steps behind the beginning."""

    @classmethod
    def of(cls, recording: Recording, points: int, device: torch.device) -> Self:
        def room(array: NDArray[np.generic]) -> NDArray[np.generic]:
            return np.pad(array, ((0, 0), (0, points), (0, 0)))

        followed = recording.exists[:, :-1] & recording.exists[:, 1:]
        return cls(
            whole=torch.as_tensor(recording.filled("linear").values, dtype=torch.float32, device=device),
            values=torch.as_tensor(room(recording.values), dtype=torch.float32, device=device),
            observed=torch.as_tensor(room(recording.observed), device=device),
            places=torch.as_tensor(np.argwhere(followed), device=device),
            points=points,
        )

    def at(self, numbers: Tensor) -> Batch:
        trajectory, step = self.places[numbers].unbind(1)  # (B,) each
        later = step[:, None] + torch.arange(1, self.points + 1, device=step.device)  # (B, points)
        return Batch(
            self.whole[trajectory, step],
            self.values[trajectory[:, None], later],
            self.observed[trajectory[:, None], later],
        )


def mean_error(field: VectorField, batch: Batch, substeps: int) -> Tensor:
    """Mean squared error of the solution over what is observed behind the start."""
    solution = solve(field, batch.start, batch.after.shape[1], substeps)
    errors = (solution - batch.after).square().masked_fill(~batch.observed, 0.0)
    return errors.sum() / batch.observed.sum().clamp_min(1)


def strengths(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """The second training's norms; where they are 0 the first one's, scaled to rank below all of the second's."""
    left = second[second > 0]
    if not left.size:
        return first
    return np.where(second > 0, second, first * (0.5 * left.min() / first.max()))


class NgmDiscoverer(Discoverer[NgmConfig]):
    """A sparse ordinary differential equation, fitted in two trainings."""

    name = "ngm"
    summary = "penalised neural ordinary differential equations (Bellot et al., ICLR 2022)"
    meaning = "the norm of the weights with which the target's equation reads the source, on standardised series"
    defaults = NgmConfig()

    def find(self, recording: Recording) -> Evidence:
        self.require_steps(recording, 2)
        config, generator = self.config, self.generator()
        scaled = recording.standardised()
        segments = Segments.of(scaled, config.horizon - 1, self.device)
        penalty = torch.full((recording.variables, recording.variables), config.penalty, device=self.device)
        # The largest value of a standardised variable is at least 1, unless it is constant or never observed.
        still = torch.as_tensor(np.abs(scaled.values).max((0, 1)) < 0.5, device=self.device)  # (N,)
        penalty = penalty.masked_fill(still[:, None] | still[None, :], torch.inf)  # (target, source)
        first = self._train(segments, penalty, generator, "training").norms()
        norms = [first]
        if config.adaptive:
            adapted = penalty / first.pow(config.adaptive_exponent)
            norms.append(self._train(segments, adapted, generator, "training adaptively").norms())
        by_source = [found.T.double().cpu().numpy() for found in norms]  # (source, target) each
        return Evidence(strengths(by_source[0], by_source[-1]))

    def _train(self, segments: Segments, penalty: Tensor, generator: torch.Generator, what: str) -> VectorField:
        """penalty: (target, source)."""
        config = self.config
        field = VectorField(segments.whole.shape[2], config.hidden, generator).to(self.device)
        drawn = torch.randint(len(segments.places), (config.steps, config.segments), generator=generator)
        drawn = drawn.to(self.device)
        optimiser = torch.optim.Adam(field.parameters(), lr=config.learning_rate)
        for step in self.rounds(config.steps, what):
            optimiser.zero_grad()
            mean_error(field, segments.at(drawn[step]), config.substeps).backward()
            nn.utils.clip_grad_norm_(field.parameters(), LARGEST_GRADIENT)
            optimiser.step()
            field.shrink(config.learning_rate * penalty)
        return field
