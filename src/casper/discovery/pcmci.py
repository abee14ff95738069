"""PCMCI: conditional independence tests in two stages (Runge et al., Science Advances 2019), run by tigramite.

    PC stage    for every target j, begin with all (i, lag) as its possible causes and drop those that become
                independent of x_j given the strongest others, at level alpha; what is left are the parents P(j)
    MCI stage   for every (i, lag, j), test x_i(t - lag) against x_j(t) given P(j) without the pair itself, and given
                P(i) shifted by the lag

The evidence of (i, lag, j) is -log10 of the MCI test's p-value, and that of a pair is its strongest lag.

Defaults are those of CUTS's DREAM-3 table (Cheng et al., ICLR 2023, Table 5): lags up to 5, alpha 0.05, linear partial
correlation.

tigramite is licensed under the GPL and is not a part of this package: it is imported only when `find` is called, and
has to be installed by whoever wants it.

Departures from tigramite's `run_pcmci`: targets are visited one by one, which tells progress and changes nothing;
p-values are not corrected for multiple tests and not cut at a level, since only their order counts here; lag 0 is not
tested. Trajectories are tigramite's multiple datasets. Holes are its missing values: a test leaves out the samples in
which one of its own variables is missing. tigramite sets the first 2 * lags steps of every trajectory aside as the past
of the others, which would be half of what DREAM-3 has: here holes stand in their place, in front of the first step, and
a test uses whatever steps have all that it asks for. Where none has, as with many parents and many holes, tigramite
gives up; here that test finds nothing. The second stage asks for up to twice as many steps as there are lags, so that
in short trajectories fewer lags can find more: with `lags=None` held-back parts say how many.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from casper.config import Configuration, require
from casper.discovery.foretelling import steps_worth_looking_at
from casper.discovery.method import Discoverer, Evidence
from casper.discovery.recording import Recording
from casper.errors import InputError, MissingPackageError

Independence = Literal["partial-correlation", "robust-partial-correlation"]

_TESTS: dict[Independence, tuple[str, str]] = {
    "partial-correlation": ("parcorr", "ParCorr"),
    "robust-partial-correlation": ("robust_parcorr", "RobustParCorr"),
}
# Standardised values stay below the square root of their number, so that none of them is mistaken for a hole.
_HOLE = 1e12
# So many lags are compared where none are asked for.
_MOST_LAGS = 5
# Below the smallest p-value that is told apart from 0, the test statistic decides.
_SMALLEST = 1e-300


@dataclass(frozen=True)
class PcmciConfig(Configuration):
    """PCMCI. The defaults are those of CUTS's experiments with DREAM-3."""

    lags: int | None = 5
    """Steps into the past that are tested (tau_max). None: as many, up to 5, as foretell held-back parts best."""
    alpha: float = 0.05
    """Level at which the first stage keeps possible parents (pc_alpha)."""
    test: Independence = "partial-correlation"
    """"robust-partial-correlation": every variable's values are first replaced by normal quantiles of their ranks."""

    def __post_init__(self) -> None:
        require(self.lags is None or self.lags >= 1, f"lags must be at least 1 or None, not {self.lags}")
        require(0.0 < self.alpha < 1.0, f"alpha must lie between 0 and 1, not {self.alpha}")


class PcmciDiscoverer(Discoverer[PcmciConfig]):
    """Conditional independence tests on the variables' pasts; draws no random numbers and uses no GPU."""

    name = "pcmci"
    summary = "conditional independence tests in two stages (Runge et al., Science Advances 2019); needs tigramite"
    meaning = "-log10 of the p-value of the test that source and target are independent: 1.3 stands for 5 %, 2 for 1 %"
    defaults = PcmciConfig()

    def find(self, recording: Recording) -> Evidence:
        tigramite = _Tigramite.load(self.config.test)
        lags = self.config.lags
        if lags is None:
            self.require_steps(recording, 3)
            lags = steps_worth_looking_at(recording, most=min(_MOST_LAGS, recording.values.shape[1] - 2))
        self.require_steps(recording, lags + 2)
        try:
            by_lag = self._tested(tigramite, recording, lags)
        except ValueError as error:
            raise InputError(f"pcmci: too few complete samples for a test ({error}); try fewer lags") from error
        return Evidence(by_lag.max(0), by_lag)

    def _tested(self, tigramite: _Tigramite, recording: Recording, lags: int) -> NDArray[np.float64]:
        """(lags, N, N)"""
        count = recording.variables
        analysis = tigramite.analysis(recording, lags)
        candidates = {(source, -lag): "-?>" for source in range(count) for lag in range(1, lags + 1)}

        def links_to(target: int) -> dict[int, dict[tuple[int, int], str]]:
            return {variable: candidates if variable == target else {} for variable in range(count)}

        parents: dict[int, list[tuple[int, int]]] = {}
        for target in self.rounds(count, "choosing parents"):
            chosen = analysis.run_pc_stable(
                link_assumptions=links_to(target), tau_min=1, tau_max=lags, pc_alpha=self.config.alpha
            )
            parents[target] = chosen[target]
        by_lag = np.zeros((lags, count, count))
        for target in self.rounds(count, "testing"):
            found = analysis.run_mci(link_assumptions=links_to(target), tau_min=1, tau_max=lags, parents=parents)
            evidence = strength_of(found["p_matrix"], found["val_matrix"])  # (N, N, 1 + lags)
            by_lag[:, :, target] = evidence[:, target, 1:].T
        return by_lag


def strength_of(p_values: NDArray[np.float64], statistics: NDArray[np.float64]) -> NDArray[np.float64]:
    """-log10 p; where p is 0 to machine precision, the size of the test statistic goes on telling pairs apart. A test
    without degrees of freedom (p is NaN) is no evidence."""
    surely = -np.log10(np.clip(p_values, _SMALLEST, 1.0)) + np.where(p_values < _SMALLEST, np.abs(statistics), 0.0)
    return np.nan_to_num(surely, nan=0.0)


def _forgiving(test: Any) -> Any:
    """The same test, which finds nothing where no sample has all that it asks for, instead of giving up."""

    class Forgiving(test):
        def run_test(self, *arguments: Any, **options: Any) -> Any:
            try:
                return super().run_test(*arguments, **options)
            except ValueError as error:
                if "No valid samples" not in str(error):
                    raise
                return (0.0, 1.0) if options.get("alpha_or_thres") is None else (0.0, 1.0, False)

    return Forgiving


@dataclass(frozen=True)
class _Tigramite:
    """What is used of tigramite, which has no types."""

    frame: Any
    pcmci: Any
    test: Any

    @classmethod
    def load(cls, test: Independence) -> _Tigramite:
        module, name = _TESTS[test]
        try:
            return cls(
                import_module("tigramite.data_processing").DataFrame,
                import_module("tigramite.pcmci").PCMCI,
                _forgiving(getattr(import_module(f"tigramite.independence_tests.{module}"), name)),
            )
        except ModuleNotFoundError as error:
            raise MissingPackageError("tigramite", extra="pcmci", purpose="causal discovery by PCMCI") from error

    def analysis(self, recording: Recording, lags: int) -> Any:
        """tigramite's PCMCI on all trajectories of a recording."""
        scaled = recording.standardised()
        marked = np.where(scaled.observed, scaled.values, _HOLE)
        before = np.full((2 * lags, recording.variables), _HOLE)
        trajectories = {
            number: np.concatenate((before, marked[number, there])) for number, there in enumerate(scaled.exists)
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it wonders whether a single trajectory is meant
            frame = self.frame(trajectories, analysis_mode="multiple", missing_flag=_HOLE)
        return self.pcmci(dataframe=frame, cond_ind_test=self.test(significance="analytic"), verbosity=0)
