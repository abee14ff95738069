"""Which windows train, validate and test: by calendar month for air quality, in order of time for traffic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from casper.metrics import window_counts

TEST_MONTHS = (3, 6, 9, 12)
TEST_SHARE = 0.2
VALIDATION_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Split:
    """First steps of the windows of each part."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]


def split_by_months(
    times: pd.DatetimeIndex,
    window: int,
    *,
    test_months: tuple[int, ...] = TEST_MONTHS,
    left_out: tuple[int, ...] = (),
) -> Split:
    """Test windows lie in March, June, September and December; validation windows right before each of these months.

    left_out: months that no window touches.
    """
    steps = len(times)
    count = steps - window + 1
    month = np.asarray(times.month)
    in_test_month, in_other_month = np.isin(month, test_months), ~np.isin(month, test_months + left_out)
    test = np.flatnonzero(in_test_month[:count] & in_test_month[window - 1 :])
    other = np.flatnonzero(in_other_month[:count] & in_other_month[window - 1 :])
    first_of_month = test[np.diff(test, prepend=-2) > 1]
    per_month = int(VALIDATION_SHARE * other.size) // len(test_months)
    before = np.arange(-per_month, 0) - window
    validation = np.sort((first_of_month[:, None] + before).ravel() % count)
    validation_steps = np.cumsum(window_counts(validation, window, steps) > 0)
    until = np.concatenate([[0], validation_steps])
    shares_no_step = until[other + window] == until[other]
    return Split(other[shares_no_step], validation, test)


def split_in_order(steps: int, window: int) -> Split:
    """The last fifth of the windows tests, the last tenth of what is left validates, with a window's length between."""
    count = steps - window + 1
    test_length = int(TEST_SHARE * count)
    test_start = count - test_length
    validation_start = test_start - int(VALIDATION_SHARE * test_start)
    return Split(
        np.arange(validation_start - window, dtype=np.int64),
        np.arange(validation_start, test_start - window, dtype=np.int64),
        np.arange(test_start, count, dtype=np.int64),
    )
