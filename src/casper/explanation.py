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

    attention: correlation weight alpha, averaged over heads. rho: probability that the source causes the value.
    beta: the gate. weight: beta * alpha / Z, what the message was really weighted with, averaged over heads.
    """

    sensor: str
    time: pd.Timestamp
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
        neighbours: NDArray[np.int64],
        present: NDArray[np.bool_],
    ) -> Self:
        """seen: of this query's sensor alone."""
        sources = pd.Index([sensors[number] for number in neighbours[present]], name="source")

        def table(values: Tensor) -> pd.DataFrame:  # (K, T)
            return pd.DataFrame(values.float().cpu().numpy()[present], index=sources, columns=times)

        return cls(
            sensor=sensors[query],
            time=times[step],
            attention=table(seen.attention[0, 0, :, step].mean(dim=0)),
            rho=table(seen.rho[0, 0, step]),
            beta=table(seen.beta[0, 0, step]),
            weight=table(seen.weight[0, 0, :, step].mean(dim=0)),
        )

    def causes(self) -> pd.DataFrame:
        """A row per source and step, heaviest first: source, time, lag, attention, rho, beta, weight.

        lag: how many steps the source's reading is older than the value; negative where it is younger.
        """
        columns = {name: getattr(self, name).to_numpy().ravel() for name in ("attention", "rho", "beta", "weight")}
        times = self.attention.columns
        query = int(np.flatnonzero(times == self.time)[0])
        sources = len(self.attention.index)
        frame = pd.DataFrame(
            {
                "source": np.repeat(np.asarray(self.attention.index, dtype=object), len(times)),
                "time": np.tile(times.to_numpy(), sources),
                "lag": np.tile(query - np.arange(len(times)), sources),
                **columns,
            }
        )
        return frame.sort_values("weight", ascending=False, kind="stable").reset_index(drop=True)
