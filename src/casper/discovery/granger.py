"""Granger's question (Econometrica, 1969), asked of all pairs: do the last steps of a source foretell a target better
than the target's own last steps do? Once of the two alone, and once beside the few others that foretell it best alone,
so that what only passes through them does not count. Linear, and a matter of seconds for a hundred variables.

    certainty = mean over l of -log10 P(X_l >= n log(r0 / r_l)),  X_l chi-squared with l degrees of freedom

with n the steps, and r0 and r_l the mean squares that are left without the source and with its last l steps, l from 1
to the number of lags: a cause that acts at once need not be sought at every lag. Holes are filled by straight lines:
where they are many, all is a little less certain than that.

On its own this is a method of causal discovery (not one of the paper's): the strength of a pair is log10 of
(1 + certainty alone)(1 + certainty beside the rivals). CASPER hears both beside its network, see `by_imputation`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from casper.config import Configuration, require
from casper.discovery.method import Discoverer, Evidence
from casper.discovery.recording import Recording

# Of the target's variance: what is left is no less than this, lest a copy of another variable be infinitely certain.
_LEAST_LEFT = 1e-9
# Beyond it the logarithm of P is no longer a number.
_MOST = 1000.0


@dataclass(frozen=True)
class GrangerConfig(Configuration):
    lags: int = 5
    """Steps into the past that may foretell."""
    rivals: int = 3
    """Beside so many others a source is asked about for the second time."""
    ridge: float = 1e-3
    """Of the predictors' variances, added to them: steps that follow each other closely tell nearly the same."""

    def __post_init__(self) -> None:
        require(self.lags >= 1, f"lags must be at least 1, not {self.lags}")
        require(self.rivals >= 0, f"rivals must not be negative, not {self.rivals}")
        require(self.ridge > 0, f"ridge must be positive, not {self.ridge}")


class GrangerDiscoverer(Discoverer[GrangerConfig]):
    name = "granger"
    summary = "linear models with and without a source, alone and beside its rivals (Granger, Econometrica 1969)"
    meaning = "log10 of the product of 1 - log10 p over two linear tests of whether the source foretells the target"
    defaults = GrangerConfig()

    def find(self, recording: Recording) -> Evidence:
        self.require_steps(recording, self.config.lags + 2)
        found = granger(recording, self.config, targets=lambda count: self.rounds(count, "asking a linear model"))
        return Evidence(together(*found))


class Certainties(NamedTuple):
    """(sources, targets) each; 0 for pairs that were not asked about."""

    alone: NDArray[np.float64]
    beside_rivals: NDArray[np.float64]


def granger(
    recording: Recording,
    config: GrangerConfig,
    *,
    candidates: NDArray[np.int64] | None = None,
    targets: Callable[[int], Iterable[int]] = range,
) -> Certainties:
    """candidates: (N, K), the sources to ask about for each target; None: all others. targets: what to go through
    instead of range(N), to show how far it is."""
    values, _ = recording.standardised().filled().windows(config.lags + 1)
    values = values - values.mean(0)
    past, now = np.ascontiguousarray(values[:, -2::-1].swapaxes(1, 2)), values[:, -1]  # (M, N, L), lag 1 first; (M, N)
    within = np.einsum("mnk,mnl->nkl", past, past) / len(past) + config.ridge * np.eye(config.lags)
    seen = _Seen(past, now, within, config.ridge)
    alone, beside = (np.zeros((recording.variables,) * 2) for _ in range(2))
    everybody = np.arange(recording.variables)
    for target in targets(recording.variables):
        others = everybody[everybody != target] if candidates is None else candidates[target]
        alone[others, target] = seen.certainty(target, others, beside=[])
        ranked = others[np.argsort(-alone[others, target], kind="stable")]
        rivals, rest = np.split(ranked, [config.rivals])
        beside[rest, target] = seen.certainty(target, rest, beside=rivals)
        for rival in rivals:  # its own rivals are the others, and the next one
            nearest = ranked[: config.rivals + 1]
            beside[rival, target] = seen.certainty(target, np.array([rival]), beside=nearest[nearest != rival])[0]
    return Certainties(alone, beside)


def together(*certainties: NDArray[np.float64]) -> NDArray[np.float64]:
    """The strength of pairs of which several tests are as certain as that: log10 of the product of 1 + each."""
    return np.log10(1 + np.stack(certainties)).sum(0)


class _Seen(NamedTuple):
    """past: (M, N, L) and now: (M, N), centred; within: (N, L, L), the covariances of each variable's lags."""

    past: NDArray[np.float64]
    now: NDArray[np.float64]
    within: NDArray[np.float64]
    ridge: float

    def certainty(self, target: int, sources: NDArray[np.int64], *, beside: Iterable[int]) -> NDArray[np.float64]:
        """Of each source (S,), given the target's own past and that of the ones beside it."""
        count, _, lags = self.past.shape
        known = self.past[:, [target, *beside]].reshape(count, -1)
        told = self.past[:, sources].reshape(count, -1)
        y = self.now[:, target]
        variance = y @ y / count
        own = known.T @ known / count
        own += self.ridge * np.eye(len(own))
        shared = (told.T @ known / count).reshape(len(sources), lags, known.shape[1])
        with_known = known.T @ y / count
        by_known = np.linalg.solve(own, with_known)
        left = variance - with_known @ by_known
        # What a source adds: its covariances with what the known ones leave of the target, and of itself (Schur).
        news = (told.T @ y / count).reshape(len(sources), lags) - shared @ by_known
        spread = self.within[sources] - shared @ np.linalg.solve(own, shared.swapaxes(1, 2))
        # Of its first lag, its first two, ...: the factor of Cholesky has them one within the other.
        gain = np.square(np.linalg.solve(np.linalg.cholesky(spread), news[:, :, None])[:, :, 0]).cumsum(-1)  # (S, L)
        least = _LEAST_LEFT * variance
        if left <= least:  # it is constant, or foretold already
            return np.zeros(len(sources))
        ratio = count * np.log(left / np.maximum(left - gain, least))
        return -chi2.logsf(np.clip(ratio, 0.0, _MOST), np.arange(1, lags + 1)).mean(-1) / math.log(10.0)
