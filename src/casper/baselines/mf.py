"""Low-rank factorisation of the table of steps and sensors.

In standard units per sensor, a reading is modelled as z[t, n] = o[t] + u[t] . v[n]: an offset and a few factors per
step, and as many loadings per sensor (Koren, Bell and Volinsky, Matrix factorization techniques for recommender
systems, Computer 2009). The sum of squared errors over the observed cells, plus a penalty on the squares of u and v, is
minimised by turns: with the loadings held fixed every step is a small ridge regression, with the steps held fixed every
sensor is one. A table that was not fitted is filled with the fitted loadings and its own steps.

Rank 10 and a penalty of 1e-5 per observed cell are the settings of Cini et al., ICLR 2022 (GRIN).

Departures from GRIN, which called fancyimpute 0.6: that library minimises absolute errors with full-batch Nadam
(learning rate 0.001) and stops once a held-out tenth of the cells improves by less than 0.001 in five steps. On large
tables this is long before the minimum: on METR-LA the published error, 5.56, is that of the early stop (5.57 when we
did the same), and the same model solved to the end, as it is here, has 4.06.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from casper.baselines.mean import sensor_means
from casper.contract import Imputer
from casper.errors import InputError
from casper.frame import SensorFrame
from casper.graph import SensorGraph

_OFFSET_PENALTY = 1e-3  # next to nothing; a step without readings then has the offset zero
_SENSORS_PER_FACTOR = 3  # with more factors, small tables are fitted exactly and their holes filled with anything


class MatrixFactorizationImputer(Imputer):
    """`rank` factors (at most one for three sensors), found in `rounds` rounds of alternating ridge regressions.

    The weight of the penalty is `penalty` times the number of observed cells, but not less than one.
    """

    name = "mf"
    summary = "low-rank factorisation of steps and sensors by alternating regressions (Koren et al., Computer 2009)"

    def __init__(self, *, rank: int = 10, penalty: float = 1e-5, rounds: int = 20) -> None:
        if rank < 1 or rounds < 1:
            raise InputError(f"rank and rounds must be at least 1, got {rank} and {rounds}")
        if not penalty >= 0:
            raise InputError(f"penalty must not be negative, got {penalty}")
        self._rank, self._penalty, self._rounds = rank, penalty, rounds

    def fit_frame(self, frame: SensorFrame, graph: SensorGraph) -> None:
        # Sums are rounded in the order of their terms: by name, the order of the columns makes no difference.
        self._order = np.argsort(np.array(frame.sensors), kind="stable")
        self._means = sensor_means(frame)
        self._spread = _spread(frame)
        self._ridge = max(1.0, self._penalty * float(frame.observed.sum()))
        scaled, observed = self._scaled(frame)
        loadings = _principal_directions(scaled, min(self._rank, max(1, scaled.shape[1] // _SENSORS_PER_FACTOR)))
        for _ in range(self._rounds):
            steps = self._solve_steps(scaled, observed, loadings)
            factors, offsets = steps[:, :-1], steps[:, -1]
            residual = observed * (scaled - offsets[:, None])
            loadings = _ridge_regressions(residual.T, observed.T, factors, np.full(factors.shape[1], self._ridge))
        self._loadings = loadings

    def impute_frame(self, frame: SensorFrame) -> NDArray[np.float64]:
        steps = self._solve_steps(*self._scaled(frame), self._loadings)
        answer = steps @ _with_ones(self._loadings).T
        filled = np.empty_like(frame.values)
        filled[:, self._order] = answer * self._spread[self._order] + self._means[self._order]
        return np.where(frame.observed, frame.values, filled)

    def _solve_steps(
        self, scaled: NDArray[np.float64], observed: NDArray[np.float64], loadings: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """(T, rank + 1) factors and, last, the offset of each step."""
        penalties = np.append(np.full(loadings.shape[1], self._ridge), _OFFSET_PENALTY)
        return _ridge_regressions(scaled, observed, _with_ones(loadings), penalties)

    def _scaled(self, frame: SensorFrame) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(T, N) in standard units with zeros in the holes, and ones where there are none; sensors by name."""
        unit = np.where(self._spread > 0, self._spread, 1.0)
        scaled = np.where(frame.observed, (frame.values - self._means) / unit, 0.0)
        observed = frame.observed.astype(np.float64)
        return np.ascontiguousarray(scaled[:, self._order]), np.ascontiguousarray(observed[:, self._order])


def _spread(frame: SensorFrame) -> NDArray[np.float64]:
    """(N,) standard deviation of each sensor, zero where it never changes; a sensor that never reports takes the
    typical one of the others."""
    count = frame.observed.sum(axis=0)
    centred = np.where(frame.observed, frame.values - sensor_means(frame), 0.0)
    variance = (centred**2).sum(axis=0) / np.maximum(count, 1)
    typical = np.sort(variance[count > 0]).mean()
    return np.sqrt(np.where(count > 0, variance, typical))


def _principal_directions(scaled: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
    """(N, rank) where to start: the table's main directions, holes taken as means."""
    weights, directions = np.linalg.eigh(scaled.T @ scaled)
    largest = np.argsort(weights)[::-1][:rank]
    return (directions[:, largest] * np.maximum(weights[largest], 0.0) ** 0.25).astype(np.float64)


def _ridge_regressions(
    targets: NDArray[np.float64],
    observed: NDArray[np.float64],
    inputs: NDArray[np.float64],
    penalties: NDArray[np.float64],
) -> NDArray[np.float64]:
    """(R, K): for each row of targets (R, C), a regression of its observed cells on inputs (C, K). Holes hold zeros."""
    columns, size = inputs.shape
    products = (inputs[:, :, None] * inputs[:, None, :]).reshape(columns, size * size)
    normal = (observed @ products).reshape(-1, size, size) + np.diag(penalties)
    solved = np.linalg.solve(normal, (targets @ inputs)[:, :, None]).astype(np.float64, copy=False)
    return solved[:, :, 0]


def _with_ones(loadings: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.column_stack([loadings, np.ones(len(loadings))])
