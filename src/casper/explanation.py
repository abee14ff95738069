"""What one imputed value was made from, as tables a person can read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from casper.attention import AttentionDetails


@dataclass(frozen=True)
class Explanation:
    """For the value of `sensor` at `time`: rows are the source sensors it may look at, columns the steps of its window.

    estimate: what the model says the value is, from this window alone; `impute` averages the windows that show a value.
    measured: the reading, if there is one; it was hidden from the model. readings: the window's, in the table's units,
    of the sensor itself (first) and of its sources; missing where there are none.
    attention: correlation weight alpha, averaged over heads. rho: probability that the source causes the value.
    beta: the gate. weight: beta * alpha / Z, what the message was really weighted with, averaged over heads.
    """

    sensor: str
    time: pd.Timestamp
    estimate: float
    measured: float | None
    readings: pd.DataFrame
    attention: pd.DataFrame
    rho: pd.DataFrame
    beta: pd.DataFrame
    weight: pd.DataFrame

    @classmethod
    def build(
        cls,
        seen: AttentionDetails,
        *,
        query: int,
        step: int,
        sensors: tuple[str, ...],
        times: pd.DatetimeIndex,
        values: NDArray[np.float64],
        estimate: float,
        neighbours: NDArray[np.int64],
        present: NDArray[np.bool_],
    ) -> Self:
        """seen: of this query's sensor alone. times, values: (T,) and (T, N) of the window, NaN where not observed."""
        sources = pd.Index([sensors[number] for number in neighbours[present]], name="source")
        shown = [query, *(number for number in neighbours[present] if number != query)]
        measured = float(values[step, query])

        def table(values: Tensor) -> pd.DataFrame:  # (K, T)
            return pd.DataFrame(values.float().cpu().numpy()[present], index=sources, columns=times)

        return cls(
            sensor=sensors[query],
            time=times[step],
            estimate=estimate,
            measured=None if np.isnan(measured) else measured,
            readings=pd.DataFrame(values[:, shown].T, index=[sensors[number] for number in shown], columns=times),
            attention=table(seen.attention[0, 0, :, step].mean(dim=0)),
            rho=table(seen.rho[0, 0, step]),
            beta=table(seen.beta[0, 0, step]),
            weight=table(seen.weight[0, 0, :, step].mean(dim=0)),
        )

    def shares(self) -> pd.DataFrame:
        """A row per source, heaviest first: source, weight (of all its steps together) and lag (of the heaviest)."""
        heaviest = self.weight.to_numpy().argmax(axis=1)
        told = {"weight": self.weight.sum(axis=1).to_numpy(), "lag": self._lags()[heaviest]}
        frame = pd.DataFrame({"source": np.asarray(self.weight.index, dtype=object), **told})
        return frame.sort_values("weight", ascending=False, kind="stable").reset_index(drop=True)

    def causes(self) -> pd.DataFrame:
        """A row per source and step, heaviest first: source, time, lag, attention, rho, beta, weight.

        lag: how many steps the source's reading is older than the value; negative where it is younger.
        """
        columns = {name: getattr(self, name).to_numpy().ravel() for name in ("attention", "rho", "beta", "weight")}
        times = self.attention.columns
        sources = len(self.attention.index)
        frame = pd.DataFrame(
            {
                "source": np.repeat(np.asarray(self.attention.index, dtype=object), len(times)),
                "time": np.tile(times.to_numpy(), sources),
                "lag": np.tile(self._lags(), sources),
                **columns,
            }
        )
        return frame.sort_values("weight", ascending=False, kind="stable").reset_index(drop=True)

    def _lags(self) -> NDArray[np.int64]:
        """(T,) how many steps older than the value each step of the window is."""
        times = self.attention.columns
        return int(np.flatnonzero(times == self.time)[0]) - np.arange(len(times))
