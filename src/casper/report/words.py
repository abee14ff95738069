"""Numbers as a person reads them."""

from __future__ import annotations

import math

import pandas as pd

from casper.frame.months import months_of, months_text

# The seconds of a unit, and from how many of them on it is used.
_UNITS = {"days": (86_400.0, 3), "h": (3_600.0, 1), "min": (60.0, 1), "s": (1.0, 0)}

_MONTHS_UP_TO = 48  # more of them are told in years


def number(value: float) -> str:
    """Three significant digits, and never fewer than those before the point."""
    if not math.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{value:,.{min(max(digits, 0), 8)}f}"


def percent(share: float, *, decimals: int = 1) -> str:
    """Never 0% of something, nor 100% of not everything."""
    if not math.isfinite(share):
        return "-"
    least = 0.1**decimals / 100
    if 0 < share < least:
        return f"<{least:.{decimals}%}"
    if 1 - least < share < 1:
        return f">{1 - least:.{decimals}%}"
    return f"{share:.{decimals}%}"


def duration(step: pd.Timedelta, steps: float = 1) -> str:
    """So many steps in the unit that people would use: 45 min, 3 h, 48 h, 8.42 days, 1 month, 2.5 years."""
    months = months_of(step)
    if months is not None:
        count = months * steps
        if count == round(count) and (count < _MONTHS_UP_TO or count % 12 == 0):
            return months_text(round(count))
        return f"{count:.3g} months" if count < _MONTHS_UP_TO else f"{count / 12:.3g} years"
    seconds = step.total_seconds() * steps
    unit = next(unit for unit, (size, fewest) in _UNITS.items() if seconds >= fewest * size)
    count = seconds / _UNITS[unit][0]
    return f"{count:.0f} {unit}" if count >= 100 else f"{count:.3g} {unit}"


def span(step: pd.Timedelta, fewest: int, most: int | None) -> str:
    """From so many steps to so many, or more: 2 to 6 h."""
    first = duration(step, fewest)
    if most is None:
        return f"{first} or more"
    if most == fewest:
        return first
    last = duration(step, most)
    same_unit = first.rpartition(" ")[2].rstrip("s") == last.rpartition(" ")[2].rstrip("s")
    return f"{first.rpartition(' ')[0] if same_unit else first} to {last}"


def lag_words(lag: int, step: pd.Timedelta) -> str:
    """Whether a source's reading is older or younger than the value that is filled from it."""
    if lag == 0:
        return "at the same time"
    return f"{duration(step, abs(lag))} {'earlier' if lag > 0 else 'later'}"


def moment(time: pd.Timestamp) -> str:
    return f"{time:%Y-%m-%d %H:%M}" if time.second == 0 else f"{time:%Y-%m-%d %H:%M:%S}"


def counted(count: int, one: str, several: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else several or one + 's'}"
