"""What causal discovery looks at: one or several trajectories of the same variables, with or without holes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from casper.errors import InputError
from casper.frame import to_frame

Filling = Literal["hold", "linear"]


@dataclass(frozen=True)
class Recording:
    """Trajectories are separate: no window, lag or recurrence may reach from one into the next.

    values: (R, T, N), 0 where not observed. observed: (R, T, N). exists: (R, T), False behind the end of a trajectory
    that is shorter than the longest one. names: of the N variables. step: its length, where times are known.
    """

    values: NDArray[np.float64]
    observed: NDArray[np.bool_]
    exists: NDArray[np.bool_]
    names: tuple[str, ...]
    step: pd.Timedelta | None = None

    @classmethod
    def of(cls, series: pd.DataFrame | NDArray[np.floating] | Sequence[pd.DataFrame | NDArray[np.floating]]) -> Self:
        """From a table or array (a row per step, a column per variable, NaN is a hole), or a list of such, one for
        each trajectory. An array of three axes is (trajectories, steps, variables). A table with time stamps is
        checked and put on a regular grid; steps that have no row are holes."""
        trajectories = [series] if isinstance(series, pd.DataFrame) or getattr(series, "ndim", 0) == 2 else list(series)
        if not trajectories:
            raise InputError("there is no trajectory to look at")
        step = None
        if all(isinstance(one, pd.DataFrame) and isinstance(one.index, pd.DatetimeIndex) for one in trajectories):
            frames = [to_frame(cast("pd.DataFrame", one)) for one in trajectories]
            step = frames[0].step
            if any(frame.step != step for frame in frames):
                raise InputError("the trajectories have steps of different lengths; resample them")
            trajectories = [pd.DataFrame(frame.values, columns=list(frame.sensors)) for frame in frames]
        first = trajectories[0]
        names = tuple(map(str, first.columns)) if isinstance(first, pd.DataFrame) else None
        arrays: list[NDArray[np.float64]] = []
        for number, one in enumerate(trajectories):
            if isinstance(one, pd.DataFrame) and tuple(map(str, one.columns)) != names:
                raise InputError(f"trajectory {number} has other columns than the first one")
            try:
                array = np.asarray(one, dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise InputError(f"trajectory {number} holds something that is no number: {error}") from error
            if array.ndim != 2 or np.ndim(first) != 2 or array.shape[1] != np.shape(first)[1]:
                raise InputError(
                    f"trajectory {number} has shape {array.shape}; (steps, {np.shape(first)[1]}) is needed"
                )
            arrays.append(array)
        if names is not None and len(set(names)) < len(names):
            raise InputError(f"two columns are called {next(one for one in names if names.count(one) > 1)!r}")
        variables = arrays[0].shape[1]
        if variables < 2:
            raise InputError("causal discovery needs at least two variables")
        longest = max(len(array) for array in arrays)
        values = np.zeros((len(arrays), longest, variables))
        observed = np.zeros(values.shape, dtype=bool)
        exists = np.zeros(values.shape[:2], dtype=bool)
        for number, array in enumerate(arrays):
            here = np.isfinite(array)
            values[number, : len(array)] = np.where(here, array, 0.0)
            observed[number, : len(array)] = here
            exists[number, : len(array)] = True
        if not observed.any():
            raise InputError("no value is observed")
        return cls(values, observed, exists, names or tuple(f"x{number + 1}" for number in range(variables)), step)

    @property
    def variables(self) -> int:
        return self.values.shape[2]

    @property
    def complete(self) -> bool:
        return bool((self.observed | ~self.exists[:, :, None]).all())

    def standardised(self) -> Self:
        """Every variable with mean 0 and deviation 1 over what is observed of it; constant ones with deviation 0."""
        counts = self.observed.sum((0, 1)).clip(1)
        means = (self.values * self.observed).sum((0, 1)) / counts
        centred = (self.values - means) * self.observed
        deviations = np.sqrt((centred**2).sum((0, 1)) / counts)
        return replace(self, values=centred / np.where(deviations > 1e-12, deviations, 1.0))

    def filled(self, how: Filling = "linear") -> Self:
        """Without holes, for methods that cannot look past them: a line through the nearest observed steps of the same
        trajectory, or the last observed step held on. Before the first and behind the last one the nearest is held;
        a variable that is never observed in a trajectory gets its mean over the others."""
        values = self.values.copy()
        counts = self.observed.sum((0, 1))
        means = (self.values * self.observed).sum((0, 1)) / counts.clip(1)
        steps = np.arange(values.shape[1])
        for trajectory, variable in zip(*np.nonzero(~self.observed.all(1)), strict=True):
            known = np.flatnonzero(self.observed[trajectory, :, variable])
            if not len(known):
                values[trajectory, :, variable] = means[variable]
            elif how == "linear":
                values[trajectory, :, variable] = np.interp(steps, known, values[trajectory, known, variable])
            else:
                last = known[(np.searchsorted(known, steps, side="right") - 1).clip(0)]
                values[trajectory, :, variable] = values[trajectory, last, variable]
        return replace(self, values=values * self.exists[:, :, None], observed=self.exists[:, :, None] | self.observed)

    def cut(self, pieces: int) -> Self:
        """A single trajectory as several, one after the other; what is left at the end is a shorter one."""
        assert len(self.values) == 1, "of several trajectories the pieces are there already"
        length = -(-self.values.shape[1] // pieces)
        spare = pieces * length - self.values.shape[1]

        def stacked(x: NDArray[Any]) -> NDArray[Any]:
            return np.pad(x[0], ((0, spare), *((0, 0),) * (x.ndim - 2))).reshape(pieces, length, *x.shape[2:])

        return replace(self, values=stacked(self.values), observed=stacked(self.observed), exists=stacked(self.exists))

    def windows(self, length: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Every run of `length` steps inside a trajectory: values and observed, (M, length, N)."""
        steps = self.values.shape[1]
        if length > steps:
            raise InputError(f"trajectories of {steps} steps are too short: at least {length} are needed")
        starts = np.arange(steps - length + 1)
        reach = starts[:, None] + np.arange(length)  # (starts, length)
        whole = self.exists[:, reach].all(-1)  # (R, starts)
        return self.values[:, reach][whole], self.observed[:, reach][whole]
