"""Multiple imputation by chained equations: every sensor is regressed on the others, in turns.

White, Royston and Wood, Multiple imputation using chained equations, Statistics in Medicine 2011. The holes start as
the sensors' means. Then, sensor by sensor and round after round, a Bayesian ridge regression on ten other sensors at
the same step, drawn anew with probabilities that follow their correlations, replaces what stood in the sensor's holes.
One answer is kept, made of posterior means, not several random ones. At most 100 rounds and ten sensors are the
settings of Cini et al., ICLR 2022 (GRIN). The engine is scikit-learn's IterativeImputer.

Departures from GRIN's script, none of which changes a score visibly: readings are standardised per sensor and sensors
are taken in the order of their names, so that units and the order of columns do not matter; sensors that never report
are left out of the equations and filled with the mean of all readings; the seed is fixed.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from casper.baselines.mean import sensor_means
from casper.contract import Imputer
from casper.errors import InputError
from casper.frame import SensorFrame
from casper.graph import SensorGraph


class ChainedEquationsImputer(Imputer):
    """Regressions of every sensor on `nearest` others, repeated for `rounds` rounds or until nothing changes."""

    name = "mice"
    summary = "chained Bayesian ridge regressions on other sensors at the same step (White et al., Stat. Med. 2011)"

    def __init__(self, *, rounds: int = 100, nearest: int = 10, seed: int = 0) -> None:
        if rounds < 1 or nearest < 1:
            raise InputError(f"rounds and nearest must be at least 1, got {rounds} and {nearest}")
        self._rounds, self._nearest, self._seed = rounds, nearest, seed

    def fit_frame(self, frame: SensorFrame, graph: SensorGraph) -> None:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.experimental import (
            enable_iterative_imputer,  # noqa: F401  # pyright: ignore[reportUnusedImport]  # importing it is its use
        )
        from sklearn.impute import IterativeImputer

        self._means = sensor_means(frame)
        alive = np.flatnonzero(frame.observed.any(axis=0))
        self._used = alive[np.argsort(np.array(frame.sensors)[alive], kind="stable")]
        self._spread = _spread(frame.values[:, self._used])
        self._chain = None
        if len(self._used) < 2:
            return  # nothing to regress on: means it is
        chain = IterativeImputer(
            max_iter=self._rounds,
            n_nearest_features=self._nearest if self._nearest < len(self._used) - 1 else None,  # None: all others
            random_state=self._seed,
        )
        with warnings.catch_warnings():
            # With sensors drawn anew in each round the values keep moving a little: the limit ends it, by design.
            warnings.simplefilter("ignore", ConvergenceWarning)
            chain.fit(self._scaled(frame))
        self._chain = chain

    def impute_frame(self, frame: SensorFrame) -> NDArray[np.float64]:
        filled = np.tile(self._means, (len(frame.values), 1))
        if self._chain is not None:
            answer = self._chain.transform(self._scaled(frame))
            filled[:, self._used] += answer * self._spread
        return np.where(frame.observed, frame.values, filled)

    def _scaled(self, frame: SensorFrame) -> NDArray[np.float64]:
        """(T, used sensors) in standard units, NaN in the holes."""
        return np.ascontiguousarray((frame.values[:, self._used] - self._means[self._used]) / self._spread)


def _spread(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N,) standard deviation of each sensor; one where it never changes."""
    deviation = np.nanstd(values, axis=0)
    return np.where(deviation > 0, deviation, 1.0)
