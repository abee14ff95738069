"""Time stamps as files write them: ISO texts, dates, months, years, epoch numbers, dates over several columns."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from casper.errors import InputError
from casper.textfile import HOLES, ISO, Place, stripped_texts

TIME_NAMES = ("time", "timestamp", "date", "datetime", "date_time", "utc", "stamp")
PARTS = ("year", "month", "day", "hour", "minute")
"""What the columns are called over which a date may be spread, from the left."""
OFFSET = r":\d\d(?:[.,]\d+)?\s*(?:Z|[+-]\d\d(?::?\d\d)?)$"
CALENDAR = (
    r"^(?P<first>\d{1,4})(?P<mark>[./-])(?P<second>\d{1,2})[./-](?P<third>\d{4}|\d{1,2})"
    r"(?:[ T,]+(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?(?::(?P<seconds>\d\d)(?:\.0+)?)?\s*(?P<half>[AaPp][Mm])?)?$"
)
MONTHS = (
    r"^(?:(?P<year_first>\d{4})[-/](?P<second>\d{1,2})|(?P<first>\d{1,2})[-/.](?P<year_last>\d{4})"
    r"|(?P<name>[A-Za-z]{3,9})[. -]+(?P<year_named>\d{4})|(?P<year>\d{4}))$"
)
MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def parse_stamps(columns: pd.DataFrame, place: Place, name: str) -> pd.Index:
    """Time stamps from a column of texts, times or epoch numbers, from a date and a time column, or from those that
    `PARTS` names."""
    column = columns.iloc[:, 0]
    if columns.shape[1] == 1 and pd.api.types.is_datetime64_any_dtype(column.dtype):
        return pd.DatetimeIndex(column)
    texts = stripped_texts(column).reset_index(drop=True)
    if columns.shape[1] > 1 and texts.str.fullmatch(r"\d{4}(?:\.0)?").all():
        texts = _joined(columns)
    elif columns.shape[1] == 2:
        clock = columns.iloc[:, 1].astype(str).str.strip().reset_index(drop=True)
        clock = clock.str.replace(r"^(\d)(?=$|:)", r"0\1", regex=True).str.replace(r"^(\d\d)$", r"\1:00", regex=True)
        texts = texts.str.replace(" 00:00:00", "", regex=False) + " " + clock
    empty = np.flatnonzero(texts.str.lower().isin(HOLES).to_numpy())
    if len(empty):
        raise InputError(f"{place(int(empty[0]))}: no time stamp in column {name!r}")
    epoch = _epoch(texts)
    if epoch is not None:
        return epoch
    is_iso = texts.str.match(ISO).to_numpy(dtype=bool)
    parsed = _iso(texts) if is_iso.mean() >= 0.5 else _months(texts)
    if parsed is None:
        parsed = _calendar(texts, place)
    if parsed.isna().any() and is_iso.mean() >= 0.5:
        other = _calendar(texts, place)  # 2024-01-01 5:00 is not quite ISO
        parsed = parsed if other.isna().any() else other
    bad = np.flatnonzero(parsed.isna())
    if len(bad) == len(texts) and name.strip().lower() not in TIME_NAMES:
        raise InputError(
            f"{place(0)}: no time column found (column {name!r} has {texts.iloc[0]!r}); "
            "name it with --time-column NAME (time_column=)"
        )
    if len(bad):
        text = texts.iloc[bad[0]]
        raise InputError(f"{place(int(bad[0]))}: {text!r} is not a time stamp; write it like 2024-12-31 13:00")
    return parsed


def _epoch(texts: pd.Series) -> pd.DatetimeIndex | None:
    """Seconds or milliseconds since 1970, if all of them are and lie between 1990 and 2100."""
    if not texts.str.fullmatch(r"\d{9,13}(?:\.0*)?").all():
        return None
    numbers = texts.str.replace(r"\.0*$", "", regex=True).to_numpy(dtype=object).astype(np.int64)
    for unit, scale in (("s", 1), ("ms", 1000)):
        if ((numbers >= 631_152_000 * scale) & (numbers < 4_102_444_800 * scale)).all():
            return pd.DatetimeIndex(numbers.astype(f"datetime64[{unit}]")).tz_localize("UTC")
    return None


def _joined(columns: pd.DataFrame) -> pd.Series:
    """Year, month and what else there is of a date, as one text: 2024-03-01 5:00."""
    parts = [stripped_texts(columns.iloc[:, number]).reset_index(drop=True) for number in range(columns.shape[1])]
    parts = [part.str.replace(r"\.0$", "", regex=True).str.zfill(2) for part in parts]
    joined = parts[0].str.cat(parts[1:3], sep="-")
    if len(parts) > 3:
        joined = joined + " " + parts[3] + ":" + (parts[4] if len(parts) > 4 else "00")
    return joined


def _months(texts: pd.Series) -> pd.DatetimeIndex | None:
    """The first days of months such as 2024-03, 03/2024 or March 2024, or of years, if most of them are such."""
    parts = texts.str.extract(MONTHS)
    alone = parts["year"].notna()
    if alone.any() and not (alone.all() and texts.is_monotonic_increasing and texts.is_unique):
        return None  # four digits may be anything
    by_name = parts["name"].str.lower().str[:3].map({name: number for number, name in enumerate(MONTH_NAMES, start=1)})
    month = pd.to_numeric(parts["second"].fillna(parts["first"])).fillna(by_name).where(~alone, 1)
    year = pd.to_numeric(
        parts["year_first"].fillna(parts["year_last"]).fillna(parts["year_named"]).fillna(parts["year"])
    )
    found = pd.DatetimeIndex(pd.to_datetime(pd.DataFrame({"year": year, "month": month, "day": 1}), errors="coerce"))
    return None if int(np.isnat(found.to_numpy()).sum()) > len(found) / 2 else found


def _iso(texts: pd.Series) -> pd.Index:
    aware = texts.str.contains(OFFSET, case=False).to_numpy(dtype=bool)
    if not aware.any():
        return pd.DatetimeIndex(pd.to_datetime(texts, format="ISO8601", errors="coerce"))
    instants = pd.DatetimeIndex(pd.to_datetime(texts, format="ISO8601", errors="coerce", utc=True))
    if instants.isna().any():
        return instants
    offsets = texts.str.extract(r"(Z|[+-]\d\d(?::?\d\d)?)$", flags=re.IGNORECASE)[0]
    if aware.all() and len(offsets.unique()) == 1:
        return instants.tz_convert(pd.Timestamp(texts.iloc[0]).tzinfo)
    # Which offsets go together is for the frame to judge: every stamp keeps its own.
    return pd.Index([pd.Timestamp(text) for text in texts], dtype=object)


def _calendar(texts: pd.Series, place: Place) -> pd.DatetimeIndex:
    """Stamps such as 31.12.2024 13:00 or 12/31/2024 1:00 PM; which number is the day must be clear from the column."""
    parts = texts.str.extract(CALENDAR)
    year_first = parts["first"].str.len() == 4
    year_last = parts["third"].str.len() == 4
    first, second, third = (pd.to_numeric(parts[name]) for name in ("first", "second", "third"))
    open_order = year_last & ~year_first
    day_first = open_order & ((first > 12) | (parts["mark"] == "."))
    month_first = open_order & (second > 12) & (parts["mark"] != ".")
    if day_first.any() and month_first.any():
        rows = [int(np.argmax(order.to_numpy())) for order in (day_first, month_first)]
        examples = " and ".join(f"{texts.iloc[row]!r} ({place(row)})" for row in rows)
        raise InputError(
            f"the dates put the day first in some rows and the month in others: {examples}; use ISO stamps"
        )
    if open_order.any() and not day_first.any() and not month_first.any():
        row = int(np.argmax(open_order.to_numpy()))
        raise InputError(
            f"{place(row)}: {texts.iloc[row]!r} can be read with the day or the month first, here and in every row; "
            "write ISO stamps such as 2024-12-31 13:00"
        )
    day, month = (first, second) if day_first.any() else (second, first)
    half = parts["half"].str.lower()
    hour, minute, seconds = (pd.to_numeric(parts[name]).fillna(0) for name in ("hour", "minute", "seconds"))
    on_the_clock = (hour < 24) & (minute < 60) & (seconds < 60) & ((hour <= 12) | half.isna())
    hour = hour.where(half.isna(), hour % 12 + 12 * (half == "pm"))
    stamps = {
        "year": first.where(year_first, third),
        "month": second.where(year_first, month),
        "day": third.where(year_first, day),
        "hour": hour,
        "minute": minute,
        "second": seconds,
    }
    parsed = pd.to_datetime(pd.DataFrame(stamps), errors="coerce")
    return pd.DatetimeIndex(parsed.where((year_first != year_last) & on_the_clock))
