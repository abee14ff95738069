"""Steps of the calendar: tables of months, quarters and years, whose stamps are even on the calendar, not in seconds.

Such a step is a length of time like any other, so many mean months of the Gregorian calendar; a month is told from 30
days by that length alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

MONTH = pd.Timedelta(days=365.2425) / 12
_OFFSETS: tuple[tuple[tuple[type[Any], ...], int], ...] = (
    ((pd.offsets.MonthBegin, pd.offsets.MonthEnd), 1),
    ((pd.offsets.QuarterBegin, pd.offsets.QuarterEnd), 3),
    ((pd.offsets.YearBegin, pd.offsets.YearEnd), 12),
)


def months_of(step: pd.Timedelta) -> int | None:
    """How many months of the calendar a step stands for; None: it is a fixed length of time."""
    return None if step < MONTH or step.value % MONTH.value else step.value // MONTH.value


def offset_months(offset: pd.tseries.offsets.BaseOffset) -> int | None:
    """Of pandas' MS, ME, QS, YE and the like; None: of another kind."""
    return next((offset.n * months for kinds, months in _OFFSETS if isinstance(offset, kinds)), None)


def months_text(months: int) -> str:
    count, unit = (months // 12, "year") if months % 12 == 0 else (months, "month")
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


def month_numbers(times: pd.DatetimeIndex) -> NDArray[np.int64]:
    """Months since the year 0."""
    return times.year.to_numpy(dtype=np.int64) * 12 + times.month.to_numpy(dtype=np.int64) - 1


def common_months(times: pd.DatetimeIndex) -> int | None:
    """The step of stamps that lie on one day of their months, such as the first, the 15th or the last one.

    times: ascending, without a zone.
    """
    if _day(times) is None:
        return None
    differences, counts = np.unique(np.diff(month_numbers(times)), return_counts=True)
    step = int(differences[np.argmax(counts)])
    regular = step > 0 and counts.max() * 2 >= counts.sum() and not (differences % step).any()
    return step if regular else None


def month_grid(times: pd.DatetimeIndex, months: int) -> tuple[NDArray[np.int64], pd.DatetimeIndex]:
    """The step of every stamp, and the times of all steps. times: ascending, without a zone.

    Steps lie on the day of the stamps, and on the first of the month where these lie on several. A quarter that the
    stamps do not fit begins in January, April, July or October.
    """
    numbers = month_numbers(times)
    even = not ((numbers - numbers[0]) % months).any()
    first = int(numbers[0] if even else numbers[0] // months * months)
    cells = (numbers - first) // months
    day = _day(times) if even else None
    every = first + months * np.arange(int(cells[-1]) + 1)
    begins = pd.DatetimeIndex((every - 1970 * 12).astype("datetime64[M]").astype("datetime64[ns]"))
    if day is None:
        return cells, begins
    time_of_day = times[0] - times[0].normalize()
    return cells, begins + pd.to_timedelta(np.minimum(day, begins.days_in_month) - 1, unit="D") + time_of_day


def _day(times: pd.DatetimeIndex) -> int | None:
    """The one day of the month on which all stamps lie, at the same time of day: the 31st is the last one."""
    latest = int(times.day.max())
    on_it = times.day == np.minimum(latest, times.days_in_month)
    time_of_day = (times - times.normalize()).asi8
    return latest if on_it.all() and (time_of_day == time_of_day[0]).all() else None
