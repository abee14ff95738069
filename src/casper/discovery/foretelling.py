"""How many steps of the past are worth looking at, told without any truth: by what they foretell of held-back parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from casper.discovery.recording import Recording

# Held-back parts, and what is added to the predictors' squares, in steps that say that nothing can be foretold.
_PARTS = 5
_RIDGES = 10.0 ** np.arange(0.0, 4.25, 0.25)
# Errors that differ by less are the same.
_AS_GOOD = 1.002


def steps_worth_looking_at(recording: Recording, *, most: int) -> int:
    """The number of lags, up to `most`, whose linear model of all variables foretells held-back parts best; the fewest
    of those that are as good.

    Every number foretells the same readings: what would lie before a trajectory's first step counts as its mean. In
    holes the last reading is held on, for a line to the next one would tell of it.
    """
    errors = np.array([held_back_error(recording, lags) for lags in range(1, most + 1)])
    return 1 + int(np.argmax(errors <= _AS_GOOD * errors.min()))


def held_back_error(recording: Recording, lags: int) -> float:
    """The mean square that is left of standardised variables, with the ridge that is best for it."""
    whole = recording.standardised()
    if len(whole.values) < _PARTS:
        whole = _in_parts(whole)
    past, now, read, part = _pasts(whole, lags)
    left = np.zeros(len(_RIDGES))
    for number in range(_PARTS):
        out = part == number
        if not out.any():
            continue
        known, told = past[~out], now[~out]
        # One decomposition serves every ridge.
        strengths, directions = np.linalg.eigh(known.T @ known)
        towards, seen = directions.T @ (known.T @ told), past[out] @ directions
        for place, ridge in enumerate(_RIDGES):
            foretold = seen @ (towards / (strengths.clip(0.0) + ridge)[:, None])
            left[place] += np.square((now[out] - foretold) * read[out]).sum()
    return float(left.min() / max(1, read.sum()))


def _in_parts(recording: Recording) -> Recording:
    """Few trajectories, each in several pieces, one after the other."""
    arrays = recording.values, recording.observed, recording.exists
    alone = [
        replace(recording, values=values[None], observed=observed[None], exists=exists[None]).cut(_PARTS)
        for values, observed, exists in zip(*arrays, strict=True)
    ]
    return replace(
        recording,
        values=np.concatenate([one.values for one in alone]),
        observed=np.concatenate([one.observed for one in alone]),
        exists=np.concatenate([one.exists for one in alone]),
    )


def _pasts(
    recording: Recording, lags: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_], NDArray[np.int64]]:
    """Of every step but a trajectory's first: (S, lags * N) the steps before it, (S, N) itself, (S, N) what of it was
    read, (S,) its part."""
    values = recording.filled("hold").values
    trajectories, steps, variables = values.shape
    past = np.zeros((trajectories, steps - 1, lags, variables))
    for lag in range(1, min(lags, steps - 1) + 1):
        past[:, lag - 1 :, lag - 1] = values[:, : steps - lag]
    there = recording.exists[:, 1:]
    part = np.broadcast_to((np.arange(trajectories) % _PARTS)[:, None], there.shape)
    past = past.reshape(trajectories, steps - 1, -1)
    return past[there], values[:, 1:][there], recording.observed[:, 1:][there], part[there]
