"""How many digits filled values are written with: a few more than the readings beside them have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

_MORE = 2  # decimals more than the readings have
_SIGNIFICANT = 6  # digits, if these are more
_MOST_DECIMALS = 12  # readings with more come out of a calculation: estimates keep all of theirs beside them
_ALL = 300  # decimals: nothing is rounded
_SAMPLE = 1000  # readings that tell how many decimals a sensor has


def decimals_of(table: pd.DataFrame, holes: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(N,): how many decimals the readings of each sensor have; sensors without any have those of the others."""
    found = [_decimals(_readings(table.iloc[:, position], holes[:, position])) for position in range(table.shape[1])]
    most = max((one for one in found if one is not None), default=0)
    return np.array([most if one is None else one for one in found], dtype=np.int64)


def round_estimates(estimates: NDArray[Any], decimals: int | NDArray[np.int64]) -> NDArray[Any]:
    """Estimates beside readings that have so many decimals, with a few digits more; the type stays."""
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.floor(np.log10(np.abs(estimates.astype(np.float64))))
    significant = np.where(np.isfinite(size), _SIGNIFICANT - 1 - np.nan_to_num(size), 0.0)
    places = np.maximum(np.asarray(decimals) + _MORE, significant)
    rounded = estimates.copy()
    for place in np.unique(places[places <= 2 * _MOST_DECIMALS]):
        there = places == place
        rounded[there] = np.round(estimates[there], int(place))
    return rounded


def round_filled(table: pd.DataFrame, holes: NDArray[np.bool_]) -> pd.DataFrame:
    """The same table with the cells of `holes` (R, N) rounded, and no other cell touched."""
    decimals = decimals_of(table, holes)
    columns: dict[int, Any] = {position: table.iloc[:, position] for position in range(table.shape[1])}
    for position in np.flatnonzero(holes.any(axis=0)).tolist():
        if isinstance(table.dtypes.iloc[position], np.dtype) and table.dtypes.iloc[position].kind == "f":
            numbers, hole = columns[position].to_numpy(copy=True), holes[:, position]
            numbers[hole] = round_estimates(numbers[hole], int(decimals[position]))
            columns[position] = numbers
    out = pd.DataFrame(columns, index=table.index)
    out.columns = table.columns
    return out


def _readings(column: pd.Series, hole: NDArray[np.bool_]) -> NDArray[Any]:
    there = np.flatnonzero(~hole)
    sample = column.iloc[there[:: max(1, len(there) // _SAMPLE)]]
    numbers = pd.to_numeric(sample, errors="coerce").to_numpy(na_value=np.nan)
    return numbers[np.isfinite(numbers)] if numbers.dtype.kind == "f" else numbers


def _decimals(readings: NDArray[Any]) -> int | None:
    if len(readings) == 0:
        return None
    if readings.dtype.kind != "f":
        return 0
    fits = (places for places in range(_MOST_DECIMALS + 1) if (np.round(readings, places) == readings).all())
    return next(fits, _ALL)
