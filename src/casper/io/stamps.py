"""Time stamps as files write them: ISO texts, dates, months, years, epoch numbers, dates over several columns."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from casper.errors import InputError
from casper.io.heading import HOLES, ISO
from casper.io.textfile import Place, stripped_texts

TIME_NAMES = ("time", "timestamp", "time_stamp", "date", "datetime", "date_time", "utc", "stamp")
PARTS = ("year", "month", "day", "hour", "minute")
"""What the columns are called over which a date may be spread, from the left."""
DAY_OF_YEAR = "doy"
PARTS_WITH_DAY_OF_YEAR = ("year", DAY_OF_YEAR, "hour", "minute")
OTHER_NAMES_OF_PARTS = {
    "year": ("yyyy", "yr"),
    "month": ("mo",),
    "day": ("dy",),
    DAY_OF_YEAR: ("day_of_year", "dayofyear", "yday", "jday", "julian_day", "ddd"),
    "hour": ("hr",),
}
OFFSET = r":\d\d(?:[.,]\d+)?\s*(?:Z|[+-]\d\d(?::?\d\d)?)$"
CALENDAR = (
    r"^(?P<first>\d{1,4})(?P<mark>[./-])(?P<second>\d{1,2})[./-](?P<third>\d{4}|\d{1,2})"
    r"(?:[ T,]+(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?(?::(?P<seconds>\d\d)(?:\.0+)?)?\s*(?P<half>[AaPp][Mm])?)?$"
)
MONTHS = (
    r"^(?:(?P<year_first>\d{4})[-/](?P<second>\d{1,2})|(?P<first>\d{1,2})[-/.](?P<year_last>\d{4})"
    r"|(?P<name>[A-Za-z]{3,9})[. -]+(?P<year_named>\d{4})|(?P<year>\d{4}))$"
)
LATE_MIDNIGHT = r"(?<=\d[T ])24(?=:00(?::00(?:[.,]0+)?)?\s*(?:Z|[+-]\d\d(?::?\d\d)?)?$)"  # 24:00, the end of a day
DIGITS = (
    r"^(?P<year>(?:19|20)\d\d)(?P<month>\d\d)(?P<day>\d\d)"
    r"(?:(?P<hour>\d\d)(?:(?P<minute>\d\d)(?P<second>\d\d)?)?)?(?:\.0*)?$"
)
DAYS_OF_YEARS = r"^(?P<year>(?:19|20)\d\d)-?(?P<day>[0-3]\d\d)(?:[T ]+(?P<hour>\d\d?)(?::(?P<minute>\d\d))?)?(?:\.0*)?$"
DAY_WITH_MONTH_NAME = r"^(\d{1,2})[-/. ]*([A-Za-z]{3,9})\.?[-/, ]*(\d{4}|\d\d)(?=$|[T ,])"
MONTH_NAME_WITH_DAY = r"^([A-Za-z]{3,9})\.?[- ]+(\d{1,2})(?:,| |-)[ ]*(\d{4})(?=$|[ ,])"
PIVOT = 69  # two digits from here on are a year of the last century
MONTH_NAMES = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)


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
    is_iso = texts.str.match(ISO).to_numpy(dtype=bool)
    parsed: pd.Index | None = None if is_iso.all() else _digits(texts)
    if parsed is None:
        parsed = _epoch(texts)
    if parsed is None:
        parsed = _iso(texts) if is_iso.mean() >= 0.5 else _days_of_years(texts)
    if parsed is None:
        parsed = _months(texts)
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


def _digits(texts: pd.Series) -> pd.DatetimeIndex | None:
    """Dates in one run of digits, to the day, the hour, the minute or the second, if most of a column of such are.

    Seconds since 1970 have as many digits as dates with an hour, but before 2030 they begin like no year of these
    centuries, and from then on hardly one in a hundred has digits that make a month, a day and an hour.
    """
    found = _instants(_numbers(texts.str.extract(DIGITS)))
    return found if int(np.isnat(found.to_numpy()).sum()) < len(found) / 2 else None


def _days_of_years(texts: pd.Series) -> pd.DatetimeIndex | None:
    """Dates such as 2024-366 or 2024366, the day of the year, if all of a column are."""
    parts = texts.str.extract(DAYS_OF_YEARS)
    if parts["year"].isna().any():
        return None
    numbers = _numbers(parts)
    year, day = numbers["year"], numbers["day"]
    found = _instants({**numbers, "month": year * 0 + 1, "day": year * 0 + 1})
    in_year = (day >= 1) & (day <= 365 + pd.DatetimeIndex(found).is_leap_year)
    found = found + pd.to_timedelta((day - 1).to_numpy(), unit="D")
    return found if in_year.all() else None


def _numbers(parts: pd.DataFrame) -> dict[str, pd.Series]:
    return {str(name): pd.to_numeric(parts[name]) for name in parts.columns}


def _instants(parts: dict[str, pd.Series]) -> pd.DatetimeIndex:
    """Of the parts of dates, NaN where the hour or what is smaller is not written; 24:00 ends a day."""
    clock = {name: parts[name].fillna(0) for name in ("hour", "minute", "second") if name in parts}
    midnight = clock.get("hour", pd.Series(0.0, index=parts["year"].index)) == 24
    for name in ("minute", "second"):
        if name in clock:
            midnight &= clock[name] == 0
    if "hour" in clock:
        clock["hour"] = clock["hour"].mask(midnight, 0)
    on_the_clock = pd.Series(True, index=midnight.index)
    for name, series in clock.items():
        on_the_clock &= series < (24 if name == "hour" else 60)
    whole = {name: parts[name] for name in ("year", "month", "day")} | clock
    found = pd.to_datetime(pd.DataFrame(whole), errors="coerce").where(on_the_clock)
    return pd.DatetimeIndex(found + pd.to_timedelta(midnight.astype(int), unit="D"))


def _joined(columns: pd.DataFrame) -> pd.Series:
    """Year, month and what else there is of a date, as one text: 2024-03-01 5:00, or 2024-061 5:00."""
    parts = [stripped_texts(columns.iloc[:, number]).reset_index(drop=True) for number in range(columns.shape[1])]
    parts = [part.str.replace(r"\.0$", "", regex=True).str.zfill(2) for part in parts]
    of_date = 3
    if part_name(columns.columns[1]) == DAY_OF_YEAR:
        parts[1], of_date = parts[1].str.zfill(3), 2
    joined = parts[0]
    for part in parts[1:of_date]:
        joined = joined + "-" + part
    if len(parts) > of_date:
        joined = joined + " " + parts[of_date] + ":" + (parts[of_date + 1] if len(parts) > of_date + 1 else "00")
    return joined


def part_name(name: object) -> str:
    """The name in `PARTS`, or `DAY_OF_YEAR`, of a column with such a part of a date; that of another as it is."""
    plain = str(name).strip().lower().replace(" ", "_")
    return next((part for part, others in OTHER_NAMES_OF_PARTS.items() if plain in others), plain)


def _months(texts: pd.Series) -> pd.DatetimeIndex | None:
    """The first days of months such as 2024-03, 03/2024 or March 2024, or of years, if most of them are such."""
    parts = texts.str.extract(MONTHS)
    alone = parts["year"].notna()
    if alone.any() and not (alone.all() and texts.is_monotonic_increasing and texts.is_unique):
        return None  # four digits may be anything
    by_name = (
        parts["name"].str.lower().str[:3].map({name[:3]: number for number, name in enumerate(MONTH_NAMES, start=1)})
    )
    month = pd.to_numeric(parts["second"].fillna(parts["first"])).fillna(by_name).where(~alone, 1)
    year = pd.to_numeric(
        parts["year_first"].fillna(parts["year_last"]).fillna(parts["year_named"]).fillna(parts["year"])
    )
    found = pd.DatetimeIndex(pd.to_datetime(pd.DataFrame({"year": year, "month": month, "day": 1}), errors="coerce"))
    return None if int(np.isnat(found.to_numpy()).sum()) > len(found) / 2 else found


def _iso(texts: pd.Series) -> pd.Index:
    late = texts.str.contains(LATE_MIDNIGHT).to_numpy(dtype=bool)
    if late.any():
        parsed = _iso(texts.str.replace(LATE_MIDNIGHT, "00", regex=True))
        return parsed.where(~late, parsed + pd.Timedelta(days=1))
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
    parts = _months_by_number(texts).str.extract(CALENDAR)
    year_first = parts["first"].str.len() == 4
    year_last = parts["third"].str.len() == 4
    first, second, third = (pd.to_numeric(parts[name]) for name in ("first", "second", "third"))
    short = ~year_first & ~year_last & (parts["third"].str.len() == 2)
    if short.any():
        if _short_year_is_first(texts[short], parts[short], place):
            year_first |= short
            first = first.mask(short, _full_year(first))
        else:
            year_last |= short
            third = third.mask(short, _full_year(third))
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
    fits_half = (hour <= 12) | half.isna()
    parsed = _instants(
        {
            "year": first.where(year_first, third),
            "month": second.where(year_first, month),
            "day": third.where(year_first, day),
            "hour": hour.where(half.isna(), hour % 12 + 12 * (half == "pm")),
            "minute": minute,
            "second": seconds,
        }
    )
    readable = (year_first != year_last).to_numpy(dtype=bool) & fits_half.to_numpy(dtype=bool)
    return pd.DatetimeIndex(parsed.where(readable))


def _months_by_number(texts: pd.Series) -> pd.Series:
    """Dates such as 01-JAN-2024 and Jan 01, 2024 as 01.1.2024."""
    if not texts.str.contains(r"[A-Za-z]{3}").any():
        return texts
    plain = pd.Series(texts.unique())  # a long table has each of them many times
    for pattern, name, rest in ((DAY_WITH_MONTH_NAME, 2, (1, 3)), (MONTH_NAME_WITH_DAY, 1, (2, 3))):

        def by_number(found: re.Match[str], name: int = name, rest: tuple[int, int] = rest) -> str:
            called = found[name].lower()
            number = next((at for at, full in enumerate(MONTH_NAMES, start=1) if full.startswith(called)), None)
            return found[0] if number is None else f"{found[rest[0]]}.{number}.{found[rest[1]]}"

        plain = plain.str.replace(pattern, by_number, regex=True)
    return texts.map(dict(zip(texts.unique(), plain, strict=True)))


def _full_year(short: pd.Series) -> pd.Series:
    return short + np.where(short >= PIVOT, 1900, 2000)


def _short_year_is_first(texts: pd.Series, parts: pd.DataFrame, place: Place) -> bool:
    """Whether dates with two digits for the year are written like 24-12-31, not like 31/12/24 or 12/31/24.

    Read in the right order they hardly ever go back, and they lie closest together.
    """
    if (parts["mark"] == ".").any():
        return False
    first, second, third = (pd.to_numeric(parts[name]) for name in ("first", "second", "third"))

    def looks(year: pd.Series, month: pd.Series, day: pd.Series) -> tuple[int, int]:
        """How often such dates go back, and the days from the first to the last."""
        read = _instants({"year": _full_year(year), "month": month, "day": day}).to_numpy()
        if np.isnat(read).any():
            return len(read), 0
        days = read.astype("datetime64[D]").astype(np.int64)
        return int((np.diff(days) < 0).sum()), int(np.ptp(days))

    year_first = looks(first, second, third)
    year_last = min(looks(third, second, first), looks(third, first, second))
    if year_first == year_last != (len(texts), 0):
        row = int(texts.index[0])
        raise InputError(
            f"{place(row)}: {texts[row]!r} can be read with the year first or last; "
            "write ISO stamps such as 2024-12-31 13:00"
        )
    return year_first < year_last
