"""Latent convergent cross mapping (De Brouwer, Arany, Simm and Moreau, ICLR 2021).

A latent process is learned for each variable from its own short, sporadic series, and no other: GRU-ODE-Bayes (De
Brouwer et al., NeurIPS 2019) without inputs. Between two steps the state h moves along

    dh/dt = (1 - z) (u - h),   r = sigmoid(W_r h + b_r),  z = sigmoid(W_z h + b_z),  u = tanh(W_u (r h) + b_u)

and says what it expects to see, mean and log-variance: MLP(h). Where there is a reading x, the state jumps:

    h <- GRU(relu(W_q [x; mean; log-variance; error] + b_q), h),   error = (x - mean) / deviation

The loss is the negative log-likelihood of the readings before the jump, plus `after` times KL(N(mean, variance) ||
N(x, 0.01^2)) behind it.

If x is a cause of y, the states of y know those of x (Takens; Sugihara et al., Science 2012). So the latent states of x
are read off those of y: a held-back point of y is surrounded by its k nearest library points of y, at distances d, and
x's state at that moment should be the mean of x's states at theirs, weighted by exp(-d / smallest d). The skill is the
correlation of what is read off with what is there, averaged over the latent dimensions. A coupling shows by its
convergence: skill grows with the library.

    strength[x, y] = max(0, skill(x from y; whole library) - skill(x from y; small library))

Defaults: hidden size, series in a batch, and the number of updates (that of 50 passes over DREAM-3's 46 trajectories)
are those with which CUTS (Cheng et al., ICLR 2023) ran this method; hidden size 20 and the use of all steps are also
those of the authors' worked example. The rest is from the authors' experiments: widths of the two small layers,
learning rate, weight decay, weight of the KL term, Euler steps, three quarters of the points as library, 100 points as
the small one, k = hidden + 1. `substeps`, `window`, `clip`, `draws` and `points` are ours.

Departures from the original:
- one set of tensors holds the models of all variables; Adam works on every number by itself, so that the models learn
  as they would alone
- time is counted in steps, each cut into `substeps` Euler steps
- the cell of the flow has biases, as with inputs; the authors' code leaves them out where there are none
- states begin at 0 instead of at random, and there is no dropout: the same series has the same latent states
- a model's gradient is clipped
- variances stay above that of the KL term's reading (0.01^2), so that a constant does not drive them to 0
- weights are kept, for each variable, where the error one step ahead on the held-back fifth of the series is smallest;
  the authors look further ahead
- long trajectories are cut into series of `window` steps for training; the latent states follow whole trajectories
- the small library is drawn several times and its skills are averaged, instead of taking the first points
- the authors' code prints the two skills side by side; a pair's strength here is their difference
- a constant variable is no cause and no effect: what its states do is to count steps
Holes need no filling: the flow leads over them. Each trajectory begins with its own state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from casper.config import Configuration, require
from casper.discovery.method import Discoverer, Evidence
from casper.discovery.recording import Recording
from casper.errors import InputError

LIBRARY_SHARE = 0.75
HELD_BACK_SHARE = 0.2
READING_DEVIATION = 0.01
VALIDATIONS = 25


@dataclass(frozen=True)
class LccmConfig(Configuration):
    """Latent convergent cross mapping."""

    hidden: int = 20
    """Dimensions of each variable's latent state."""
    layer: int = 10
    """Width of the layer that reads the state and of the layer that prepares a reading."""
    substeps: int = 4
    """Euler steps between two steps of the recording."""
    updates: int = 250
    """Steps of the optimiser."""
    batch: int = 10
    """Series in a batch."""
    window: int = 50
    """Longer trajectories are cut into series of so many steps for training."""
    learning_rate: float = 5e-3
    weight_decay: float = 5e-4
    after: float = 1e-4
    """Weight of the misfit behind the jump."""
    clip: float = 10.0
    """Largest gradient norm of one variable's model."""
    neighbours: int | None = None
    """Nearest neighbours from which a state is read off; None: hidden + 1, which can surround a point."""
    small_library: int = 100
    """Points of the small library; at most half of the whole one."""
    draws: int = 5
    """Small libraries over which the skill is averaged."""
    burn_in: float = 0.0
    """Share of each trajectory, at its beginning, whose latent states are not mapped (the authors' experiments with
    pendulums: 0.6; their worked example: none)."""
    points: int = 2000
    """Of more latent states than these, so many are mapped, evenly spread."""
    score: Literal["convergence", "skill"] = "convergence"
    """"skill": the whole library's skill by itself."""

    def __post_init__(self) -> None:
        for name in ("hidden", "layer", "substeps", "updates", "batch", "draws", "points"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}")
        require(self.window >= 2, f"window must be at least 2 steps, not {self.window}")
        require(self.learning_rate > 0, f"learning_rate must be positive, not {self.learning_rate}")
        require(self.clip > 0, f"clip must be positive, not {self.clip}")
        for name in ("weight_decay", "after"):
            require(getattr(self, name) >= 0, f"{name} must not be negative, not {getattr(self, name)}")
        require(
            self.neighbours is None or self.neighbours >= 2,
            f"neighbours must be at least 2 or None, not {self.neighbours}",
        )
        require(
            self.small_library > self.nearest,
            f"small_library must be more than the {self.nearest} neighbours, not {self.small_library}",
        )
        require(0.0 <= self.burn_in < 1.0, f"burn_in must lie in [0, 1), not {self.burn_in}")

    @property
    def nearest(self) -> int:
        return self.hidden + 1 if self.neighbours is None else self.neighbours


class Followed(NamedTuple):
    """What the processes did along B series. latents: (N, B, T, D), behind the jumps. loss, squared_error: (N,), summed
    over the readings of each variable, the error one step ahead of them."""

    latents: Tensor
    loss: Tensor
    squared_error: Tensor


class LatentProcesses(nn.Module):
    """GRU-ODE-Bayes for N variables side by side: every weight has the variables as its first axis."""

    def __init__(self, variables: int, config: LccmConfig, generator: torch.Generator) -> None:
        super().__init__()
        hidden, layer = config.hidden, config.layer

        def weight(inputs: int, outputs: int, blocks: int = 1) -> nn.Parameter:
            """(N, inputs, blocks * outputs), each block with Glorot's spread."""
            bound = math.sqrt(6.0 / (inputs + outputs))
            drawn = torch.rand((variables, inputs, blocks * outputs), generator=generator, dtype=torch.float64)
            return nn.Parameter(((2.0 * drawn - 1.0) * bound).float())

        def bias(outputs: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(variables, 1, outputs))

        self.substeps, self.after = config.substeps, config.after
        self.flow_gates, self.flow_gates_bias = weight(hidden, hidden, 2), bias(2 * hidden)  # r, z
        self.flow_aim, self.flow_aim_bias = weight(hidden, hidden), bias(hidden)  # u
        self.look, self.look_bias = weight(hidden, layer), bias(layer)
        self.expect, self.expect_bias = weight(layer, 2), bias(2)  # mean, log-variance
        self.prepare, self.prepare_bias = weight(4, layer), bias(layer)
        self.jump_reading, self.jump_reading_bias = weight(layer, hidden, 3), bias(3 * hidden)  # r, z, n
        self.jump_state, self.jump_state_bias = weight(hidden, hidden, 3), bias(3 * hidden)

    def flow(self, state: Tensor) -> Tensor:
        """From one step to just before the next. (N, B, D) -> (N, B, D)"""
        for _ in range(self.substeps):
            r, z = torch.baddbmm(self.flow_gates_bias, state, self.flow_gates).sigmoid().chunk(2, -1)
            aim = torch.baddbmm(self.flow_aim_bias, r * state, self.flow_aim).tanh()
            state = state + (1.0 - z) * (aim - state) / self.substeps
        return state

    def expected(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of a reading, (N, B, 1) each."""
        looked = torch.baddbmm(self.look_bias, state, self.look).relu()
        mean, log_variance = torch.baddbmm(self.expect_bias, looked, self.expect).chunk(2, -1)
        return mean, log_variance.clamp(2.0 * math.log(READING_DEVIATION), 10.0)

    def jump(self, reading: Tensor, state: Tensor) -> Tensor:
        """The GRU cell. reading: (N, B, 4), state: (N, B, D) -> (N, B, D)"""
        prepared = torch.baddbmm(self.prepare_bias, reading, self.prepare).relu()
        told = torch.baddbmm(self.jump_reading_bias, prepared, self.jump_reading).chunk(3, -1)
        known = torch.baddbmm(self.jump_state_bias, state, self.jump_state).chunk(3, -1)
        r, z = (told[0] + known[0]).sigmoid(), (told[1] + known[1]).sigmoid()
        candidate = (told[2] + r * known[2]).tanh()
        return candidate + z * (state - candidate)

    def forward(self, values: Tensor, observed: Tensor) -> Followed:
        """values, observed: (B, T, N). What is not observed is not read."""
        seen = observed.permute(2, 0, 1)[..., None]  # (N, B, T, 1)
        x = values.permute(2, 0, 1)[..., None].masked_fill(~seen, 0.0)  # (N, B, T, 1)
        state = x.new_zeros(*x.shape[:2], self.flow_aim.shape[-1])
        states: list[Tensor] = []
        means: list[Tensor] = []
        log_variances: list[Tensor] = []
        for t in range(x.shape[2]):
            state = self.flow(state) if t else state
            mean, log_variance = self.expected(state)
            error = standard_error(x[:, :, t], mean, log_variance)
            jumped = self.jump(torch.cat((x[:, :, t], mean, log_variance, error), -1), state)
            state = torch.where(seen[:, :, t], jumped, state)
            states.append(state)
            means.append(mean)
            log_variances.append(log_variance)
        latents, mean, log_variance = (torch.stack(steps, dim=2) for steps in (states, means, log_variances))
        surprise = 0.5 * (standard_error(x, mean, log_variance).square() + log_variance + math.log(2.0 * math.pi))
        mean_after, log_variance_after = self.expected(latents.flatten(1, 2))  # (N, B T, 1) each
        misfit = divergence(mean_after.view_as(x), log_variance_after.view_as(x), x)
        loss = ((surprise + self.after * misfit) * seen).sum((1, 2, 3))
        return Followed(latents, loss, ((x - mean).square() * seen).sum((1, 2, 3)))


def standard_error(reading: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    return (reading - mean) * (-0.5 * log_variance).exp()


def divergence(mean: Tensor, log_variance: Tensor, reading: Tensor) -> Tensor:
    """KL(N(mean, variance) || N(reading, 0.01^2)), element by element."""
    ratio = (log_variance.exp() + (mean - reading).square()) / READING_DEVIATION**2
    return math.log(READING_DEVIATION) - 0.5 * log_variance + 0.5 * ratio - 0.5


def cut_into_series(recording: Recording, window: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Every trajectory cut into runs of at most `window` steps: values and observed, (M, L, N); short ones end with
    steps that are not observed."""
    trajectories, steps, variables = recording.values.shape
    length = min(window, steps)
    pieces = -(-steps // length)
    space = ((0, 0), (0, pieces * length - steps), (0, 0))
    shape = (trajectories * pieces, length, variables)
    values = np.pad(recording.values, space).reshape(shape)
    observed = np.pad(recording.observed, space).reshape(shape)
    told = observed[:, 1:].any((1, 2))  # nothing is foretold in a series of one step
    return values[told], observed[told]


def states_to_map(recording: Recording, config: LccmConfig) -> NDArray[np.intp]:
    """Trajectory and step of every latent state that takes part in the cross mapping: (P, 2), in order."""
    lengths = recording.exists.sum(1)
    late = np.arange(recording.exists.shape[1]) >= (config.burn_in * lengths).astype(int)[:, None]
    points = np.argwhere(recording.exists & late)
    fewest = math.ceil(2 * config.nearest / LIBRARY_SHARE)  # half a library must still hold enough neighbours
    if len(points) < fewest:
        raise InputError(
            f"lccm needs at least {fewest} steps over all trajectories for {config.nearest} nearest neighbours; there "
            f"are {len(points)}"
        )
    kept = np.linspace(0, len(points) - 1, min(len(points), max(fewest, config.points)))
    return points[kept.round().astype(int)]


def cross_map(library: Tensor, held_back: Tensor, target: int, neighbours: int) -> Tensor:
    """How well every variable's states are read off those of the target: (N,). library: (N, L, D), held_back:
    (N, Q, D)."""
    variables, points, hidden = library.shape
    distance = torch.cdist(
        held_back[target], library[target], compute_mode="donot_use_mm_for_euclid_dist"
    )  # (Q, L); the faster way loses the digits of near neighbours
    near, which = distance.topk(neighbours, dim=-1, largest=False)  # (Q, k), nearest first
    weights = (-near / (near[:, :1] + 1e-5)).exp()
    shares = torch.zeros_like(distance).scatter_(1, which, weights / weights.sum(-1, keepdim=True))
    told = shares @ library.permute(1, 0, 2).reshape(points, variables * hidden)  # (Q, N D)
    truth = held_back.permute(1, 0, 2).reshape(-1, variables * hidden)  # (Q, N D)
    told, truth = told - told.mean(0), truth - truth.mean(0)
    moves = truth.norm(dim=0) > 1e-6 * math.sqrt(len(truth))  # a dimension that stands still tells nothing
    spread = (told.norm(dim=0) * truth.norm(dim=0)).clamp(min=1e-20)
    correlation = ((told * truth).sum(0) / spread).where(moves, 0.0).reshape(variables, hidden)
    return correlation.sum(-1) / moves.reshape(variables, hidden).sum(-1).clamp(min=1)


class LccmDiscoverer(Discoverer[LccmConfig]):
    """Cross mapping between latent processes that are learned one variable at a time."""

    name = "lccm"
    summary = "latent convergent cross mapping (De Brouwer, Arany, Simm, Moreau, ICLR 2021)"
    meaning = (
        "how much better the source's states can be read off the target's with all points than "
        "with few (a gain in correlation)"
    )
    defaults = LccmConfig()

    def find(self, recording: Recording) -> Evidence:
        self.require_steps(recording, 3)
        standard = recording.standardised()
        mapped = states_to_map(standard, self.config)
        generator = self.generator()
        processes = LatentProcesses(standard.variables, self.config, generator).to(self.device)
        self._train(processes, standard, generator)
        with torch.no_grad():
            latents = processes(*self._tensors(standard.values, standard.observed)).latents  # (N, R, T, D)
            where = torch.from_numpy(mapped).to(self.device)  # (P, 2)
            strength = self._strength(latents[:, where[:, 0], where[:, 1]], generator)
        # Standardised, a constant is 0 but for rounding; whatever varies reaches its deviation, which is 1.
        varies = np.abs(standard.values).max((0, 1)) > 0.5
        return Evidence(np.where(varies[:, None] & varies, strength, 0.0))

    def _tensors(self, values: NDArray[np.float64], observed: NDArray[np.bool_]) -> tuple[Tensor, Tensor]:
        return (
            torch.from_numpy(values.astype(np.float32)).to(self.device),
            torch.from_numpy(observed).to(self.device),
        )

    def _train(self, processes: LatentProcesses, recording: Recording, generator: torch.Generator) -> None:
        config = self.config
        values, observed = self._tensors(*cut_into_series(recording, config.window))
        order = torch.randperm(len(values), generator=generator)
        apart = int(HELD_BACK_SHARE * len(values))
        watched, taught = order[:apart].to(self.device), order[apart:]
        parameters = dict(processes.named_parameters())
        best = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        smallest = torch.full((recording.variables,), torch.inf, device=self.device)
        optimiser = torch.optim.Adam(processes.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
        queue = taught[:0]
        for update in self.rounds(config.updates, "learning latent processes"):
            if len(queue) < min(config.batch, len(taught)):
                queue = taught[torch.randperm(len(taught), generator=generator)]
            drawn, queue = queue[: config.batch].to(self.device), queue[config.batch :]
            optimiser.zero_grad()
            processes(values[drawn], observed[drawn]).loss.sum().backward()
            self._clip(processes)
            optimiser.step()
            last = update == config.updates - 1
            if apart and (last or (update + 1) % max(1, config.updates // VALIDATIONS) == 0):
                with torch.no_grad():
                    error = processes(values[watched], observed[watched]).squared_error
                better = error < smallest
                smallest = torch.where(better, error, smallest)
                for name, parameter in parameters.items():
                    best[name] = torch.where(better[:, None, None], parameter.detach(), best[name])
        if apart:
            processes.load_state_dict(best)

    def _clip(self, processes: LatentProcesses) -> None:
        """Each variable's gradient by itself: the models stay strangers to each other."""
        gradients = [parameter.grad for parameter in processes.parameters() if parameter.grad is not None]
        norm = torch.stack([gradient.square().sum((1, 2)) for gradient in gradients]).sum(0).sqrt()  # (N,)
        factor = (self.config.clip / norm.clamp(min=1e-12)).clamp(max=1.0)[:, None, None]
        for gradient in gradients:
            gradient.mul_(factor)

    def _strength(self, latents: Tensor, generator: torch.Generator) -> NDArray[np.float64]:
        """(N, N), source first, from the mapped latent states (N, P, D)."""
        variables, points = latents.shape[:2]
        whole = int(LIBRARY_SHARE * points)
        library, held_back = latents[:, :whole], latents[:, whole:]
        small = min(self.config.small_library, whole // 2)
        draws = [
            library[:, torch.randperm(whole, generator=generator)[:small].to(latents.device)]
            for _ in range(self.config.draws if self.config.score == "convergence" else 0)
        ]
        strength = torch.zeros(variables, variables)
        for target in self.rounds(variables, "cross mapping"):
            skill = cross_map(library, held_back, target, self.config.nearest)
            for drawn in draws:
                skill = skill - cross_map(drawn, held_back, target, self.config.nearest) / len(draws)
            strength[:, target] = skill.cpu()
        return strength.clamp(min=0.0).numpy().astype(np.float64)  # a skill that does not grow shows no coupling
