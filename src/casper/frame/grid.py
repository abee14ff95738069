"""From the index of a table to a regular grid of time steps: stamps, their zone, the step, the rows on it."""

from __future__ import annotations

import re
import warnings
import zoneinfo
from datetime import date, timedelta, tzinfo
from datetime import timezone as fixed_zone
from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from casper.frame.months import MONTH, common_months, month_grid, months_of, months_text, offset_months

DAY = pd.Timedelta(days=1).value
HOUR = pd.Timedelta(hours=1).value
USUAL = 0.75  # of all stamps at one offset show where the steps are meant to lie
ABOUT_MIDNIGHT = 2 * HOUR
ZONE_OPTION = "--timezone Europe/Berlin (timezone='Europe/Berlin'), with your zone"
LARGEST_GRID = 20  # a grid with more steps per row of the table than this is a mistake, not a table with holes
SENSIBLE_STEPS = ("10s", "30s", "1min", "5min", "10min", "15min", "30min", "1h", "3h", "6h", "12h", "1D", "7D")
_STEPS_THAT_WORK = "steps such as '5min', '1h', '1D', 'MS' (months), 'QS' (quarters) and 'YS' (years)"
_FORMER_NAMES = {"M": "MS", "Q": "QS", "Y": "YS", "A": "YS"}  # that pandas knows no longer
ISO_DATE = re.compile(r"\s*\d{4}(?:-?\d\d-?\d\d|-\d\d\s*$)")


def index_stamps(
    index: pd.Index, timezone: str | None, problems: list[str], notes: list[str]
) -> pd.DatetimeIndex | None:
    """The index as stamps in one zone, row by row as they came, or None and the reasons in `problems`."""
    parsed = _parse_index(index, problems, notes)
    if parsed is None:
        return None
    not_a_time = np.flatnonzero(parsed.isna())
    if len(not_a_time):
        problems.append(f"row {not_a_time[0] + 1} of the table has no time stamp (NaT): drop it or give it its time")
        return None
    try:
        parsed = parsed.as_unit("ns")
        zone = None if timezone is None else zoneinfo.ZoneInfo(timezone)
    except pd.errors.OutOfBoundsDatetime:
        problems.append("time stamps must lie between the years 1678 and 2262")
        return None
    except (KeyError, ValueError, OSError):
        problems.append(f"unknown timezone {timezone!r}: give a name such as Europe/Berlin")
        return None
    if zone is not None:
        if parsed.tz is not None:
            parsed = parsed.tz_convert(zone)
        else:
            # Of a table with the newest row on top, the order of the rows tells the two hours apart from below.
            newest_first = (np.diff(parsed.asi8) < 0).mean() > 0.5 if len(parsed) > 1 else False
            localised = _localise(parsed[::-1], zone, notes)[::-1] if newest_first else _localise(parsed, zone, notes)
            lost = np.flatnonzero(localised.isna())
            if len(lost):
                problems.append(
                    f"time stamp {parsed[lost[0]]} does not exist in {timezone}: the clocks jumped over it; "
                    "correct it or leave out --timezone (timezone=)"
                )
                return None
            parsed = localised
    return parsed


def may_hold_stamps(index: pd.Index) -> bool:
    is_text = pd.api.types.is_object_dtype(index.dtype) or pd.api.types.is_string_dtype(index.dtype)
    return is_text or isinstance(index, pd.DatetimeIndex | pd.PeriodIndex)


def _parse_index(index: pd.Index, problems: list[str], notes: list[str]) -> pd.DatetimeIndex | None:
    remedy = "make the times its index with table.set_index(pd.to_datetime(table['your time column']))"
    if isinstance(index, pd.DatetimeIndex):
        return index
    if isinstance(index, pd.PeriodIndex):
        return index.to_timestamp()
    if not may_hold_stamps(index):
        problems.append(f"the index of the table holds no time stamps (it is of type {index.dtype}): {remedy}")
        return None
    stamps: list[pd.Timestamp] = []
    for value in index:
        # Only ISO texts: 01/02/2024 would be read as one of two days without a word.
        readable = isinstance(value, date) or (isinstance(value, str) and ISO_DATE.match(value))
        try:
            if not readable and not pd.isna(value):
                raise ValueError
            stamps.append(pd.Timestamp(cast("str | date", value if readable else pd.NaT)))
        except (ValueError, TypeError):
            problems.append(f"the index of the table holds no time stamps (found {value!r}): {remedy}")
            return None
    return _one_zone(stamps, problems, notes)


def _one_zone(stamps: list[pd.Timestamp], problems: list[str], notes: list[str]) -> pd.DatetimeIndex | None:
    known = [stamp for stamp in stamps if stamp is not pd.NaT]
    offsets = {stamp.utcoffset() for stamp in known}
    if len({str(stamp.tzinfo) for stamp in known}) <= 1:
        return pd.DatetimeIndex(stamps)
    remedy = "write all of them in one zone"
    if None in offsets:
        first = next(stamp for stamp in known if stamp.tzinfo is None)
        problems.append(f"mixed zones: some time stamps have a zone and others, such as {first}, have none; {remedy}")
        return None
    spread = sorted(cast("set[timedelta]", offsets))
    if spread[-1] - spread[0] > timedelta(hours=1):
        examples = [next(stamp for stamp in known if stamp.utcoffset() == offset) for offset in (spread[0], spread[-1])]
        problems.append(f"mixed zones: {examples[0]} and {examples[1]} are in two different zones; {remedy}")
        return None
    winter = fixed_zone(spread[0])
    notes.append(
        f"The stamps carry summer and winter offsets of one zone; time of day is read on the clock of {winter}: "
        f"pass {ZONE_OPTION}, for the local clock."
    )
    return pd.DatetimeIndex(pd.to_datetime(stamps, utc=True)).tz_convert(winter)


def _localise(naive: pd.DatetimeIndex, zone: tzinfo, notes: list[str]) -> pd.DatetimeIndex:
    """Attach a zone; of two runs through the hour that clocks repeat, the second is winter time."""

    def read(summer: NDArray[np.bool_]) -> pd.DatetimeIndex:
        return naive.tz_localize(zone, ambiguous=summer, nonexistent="NaT")

    size = len(naive)
    ambiguous = read(np.ones(size, dtype=bool)).asi8 != read(np.zeros(size, dtype=bool)).asi8
    follows = np.concatenate([[False], ambiguous[1:] & ambiguous[:-1]])
    goes_back = follows & np.concatenate([[False], np.diff(naive.asi8) <= 0])
    night = pd.Series(np.cumsum(~follows))
    second = pd.Series(goes_back).groupby(night).cumsum().to_numpy(dtype=bool)
    single = ambiguous & ~pd.Series(goes_back).groupby(night).transform("any").to_numpy(dtype=bool)
    if single.any():
        notes.append(
            f"{int(single.sum())} stamps such as {naive[single][0]} lie in an hour that the clocks repeat but occur "
            "once: read as the first of the two."
        )
    return read(~second)


def wanted_step(freq: str | timedelta, problems: list[str]) -> pd.Timedelta | None:
    try:
        if isinstance(freq, str):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # pandas 2 is chatty about spellings it still accepts
                offset = pd.tseries.frequencies.to_offset(_FORMER_NAMES.get(freq, freq))
            months = offset_months(offset)
            if months is not None:
                step = months * MONTH
            # Day is no Tick from pandas 3 on and has no length in nanoseconds.
            elif isinstance(offset, pd.offsets.Day | pd.offsets.Week):
                step = pd.Timedelta(days=offset.n * (7 if isinstance(offset, pd.offsets.Week) else 1))
            elif isinstance(offset, pd.offsets.Tick):
                step = pd.Timedelta(offset)
            else:
                problems.append(f"freq={freq!r} is no even step: {_STEPS_THAT_WORK} work")
                return None
        else:
            step = pd.Timedelta(freq)
    except (ValueError, TypeError):
        problems.append(f"freq={freq!r} is not understood: {_STEPS_THAT_WORK} work")
        return None
    if step <= pd.Timedelta(0):
        problems.append(f"freq={freq!r} must be longer than nothing: {_STEPS_THAT_WORK} work")
        return None
    return step


def regular_grid(
    stamps: pd.DatetimeIndex, wanted: pd.Timedelta | None, problems: list[str], notes: list[str]
) -> tuple[NDArray[np.int64], pd.DatetimeIndex, pd.Timedelta]:
    """The grid step of every row, the times of the grid, and its step."""
    # Whole days are counted on the local calendar (midnights are 23 to 25 hours apart), everything else in UTC.
    calendar = stamps.tz_localize(None)
    wall, utc = calendar.asi8, stamps.asi8
    if wanted is not None and months_of(wanted) is not None:
        return _calendar_grid(stamps, calendar, wanted, problems, notes)
    if wanted is not None:
        step, ticks = wanted.value, wall if wanted.value % DAY == 0 else utc
    else:
        step, ticks = _common_step(utc), utc
        by_day = _common_step(wall)
        if step is None and by_day is not None and by_day % DAY == 0:
            step, ticks = by_day, wall
    months = common_months(calendar) if step is None else None
    if months is not None:
        return _calendar_grid(stamps, calendar, months * MONTH, problems, notes)
    if step is None:
        problems.append(_uneven(utc, has_zone=stamps.tz is not None))
        return np.arange(len(stamps)), stamps, pd.Timedelta(0)
    on_wall = ticks is wall
    even = not ((ticks - ticks[0]) % step).any()
    by_days = on_wall and not even
    nearest = True
    if by_days:
        start, cells, nearest = _steps_of_days(ticks, step)
    else:
        start = int(ticks[0]) if even else _anchor(ticks, step, stamps[0])
        cells = (ticks - start + step // 2) // step
    start, cells = start + int(cells[0]) * step, cells - cells[0]
    size, length = int(cells[-1]) + 1, pd.Timedelta(step, unit="ns")
    if _too_many(size, stamps, length, problems):
        return cells, stamps, length
    shifts = ticks - start - cells * step
    if wanted is not None and not by_days and _fits_badly(ticks, shifts, step):
        usual = step_text(pd.Timedelta(_usual_difference(ticks), unit="ns"))
        problems.append(
            f"a step of {step_text(length)} does not fit the time stamps: more than half of them would be moved by "
            f"more than a quarter of it; they are usually {usual} apart, pass another --freq (freq=) or none"
        )
        return cells, stamps, length
    _note_grid(shifts, cells, size, length, notes, nearest=nearest)
    times = pd.DatetimeIndex(start + step * np.arange(size), tz=None)
    if stamps.tz is None:
        return cells, times, length
    if on_wall:
        return cells, _on_local_clock(times, stamps), length
    return cells, times.tz_localize("UTC").tz_convert(stamps.tz), length


def _calendar_grid(
    stamps: pd.DatetimeIndex, calendar: pd.DatetimeIndex, length: pd.Timedelta, problems: list[str], notes: list[str]
) -> tuple[NDArray[np.int64], pd.DatetimeIndex, pd.Timedelta]:
    """Of months, quarters or years. calendar: the stamps on the local clock."""
    months = months_of(length)
    assert months is not None
    cells, times = month_grid(calendar, months)
    if not _too_many(len(times), stamps, length, problems):
        _note_grid((calendar - times[cells]).asi8, cells, len(times), length, notes, nearest=False)
    return cells, _on_local_clock(times, stamps), length


def _on_local_clock(times: pd.DatetimeIndex, stamps: pd.DatetimeIndex) -> pd.DatetimeIndex:
    """Times without a zone in that of the stamps, if they have one."""
    if stamps.tz is None:
        return times
    return times.tz_localize(stamps.tz, ambiguous=np.ones(len(times), dtype=bool), nonexistent="shift_forward")


def _too_many(size: int, stamps: pd.DatetimeIndex, step: pd.Timedelta, problems: list[str]) -> bool:
    if size <= LARGEST_GRID * len(stamps):
        return False
    problems.append(
        f"{len(stamps)} rows from {stamps[0]} to {stamps[-1]} would become {size} steps of {step_text(step)}: "
        "look for a wrong stamp or pass a longer --freq (freq=)"
    )
    return True


def _common_step(ticks: NDArray[np.int64]) -> int | None:
    differences, counts = np.unique(np.diff(ticks), return_counts=True)
    most = int(np.argmax(counts))
    step = int(differences[most])
    regular = step > 0 and counts[most] * 2 >= counts.sum() and not (differences % step).any()
    return step if regular else None


def _usual_difference(ticks: NDArray[np.int64]) -> int:
    differences, counts = np.unique(np.diff(ticks), return_counts=True)
    return int(differences[np.argmax(counts)])


def _fits_badly(ticks: NDArray[np.int64], shifts: NDArray[np.int64], step: int) -> bool:
    # 20 minutes are a third of an hour: the mean of three rows is meant, not a mistake.
    pools_whole_rows = step % _usual_difference(ticks) == 0
    return not pools_whole_rows and bool((np.abs(shifts) > step / 4).mean() > 0.5)


def _uneven(ticks: NDArray[np.int64], *, has_zone: bool) -> str:
    steps = np.diff(ticks)
    differences, counts = np.unique(steps, return_counts=True)
    common = np.argsort(-counts, kind="stable")[:3]
    seen = [step_text(pd.Timedelta(int(differences[i]), unit="ns")) for i in common]
    listed = ", ".join(f"{length} ({counts[i]} times)" for i, length in zip(common, seen, strict=True))
    uneven = f"the time stamps are not evenly spaced (differences seen: {listed})"
    days = np.rint(steps / DAY)
    if has_zone and (days >= 1).all() and np.isin(np.abs(steps - days * DAY), (0, HOUR)).all():
        return f"{uneven}: these are days of a zone whose clocks change, pass {ZONE_OPTION}"
    median = float(np.median(steps))
    lengths = {text: pd.Timedelta(text) for text in SENSIBLE_STEPS} | {"MS": MONTH, "QS": 3 * MONTH, "YS": 12 * MONTH}
    proposal = min(lengths, key=lambda text: abs(np.log(lengths[text].value / median)))
    return f"{uneven}: pass --freq {proposal} (freq={proposal!r}) to put each on a step of that length"


def step_text(step: pd.Timedelta) -> str:
    """A length of time for people: 01:00:00, 1 day, 7 days, 1 day 12:00:00, 1 month."""
    months = months_of(step)
    if months is not None:
        return months_text(months)
    text = str(step).removeprefix("0 days ").removesuffix(" 00:00:00")
    return text.replace("1 days", "1 day", 1) if text.startswith("1 days") else text


def _anchor(ticks: NDArray[np.int64], step: int, first: pd.Timestamp) -> int:
    """Where the grid of uneven stamps starts: where most of them lie, else on round clock times that fit them."""
    midnight = int(first.normalize().as_unit("ns").value)
    offsets = (ticks - midnight) % step
    usual = _usual(offsets)
    if usual is not None:
        return midnight + usual
    concentration, centre = _centre(offsets, step)
    # Readings taken near half past would flip between two round hours; let the grid run through them instead.
    if concentration > 0.5 and abs(centre) > step / 4:
        median = centre + float(np.median((offsets - round(centre) + step // 2) % step - step // 2))
        round_lengths = [pd.Timedelta(text).value for text in SENSIBLE_STEPS]
        unit = max((length for length in round_lengths if length * 12 <= step), default=1)
        return midnight + round(median / unit) * unit
    return midnight


def _steps_of_days(ticks: NDArray[np.int64], step: int) -> tuple[int, NDArray[np.int64], bool]:
    """The start of a grid of whole days, the step of every stamp, and whether that is the nearest or the one it is in.

    A reading belongs to the day on which it was taken, at whatever time of day. Only a clock that runs about midnight
    is a little late or early: its readings go to the nearest one.
    ticks: on the local clock.
    """
    clock = ticks % DAY
    usual_time = _usual(clock)
    time_of_day = 0 if usual_time is None else usual_time
    begins = 0  # of a day, after midnight
    if usual_time is not None:
        early, late = usual_time - ABOUT_MIDNIGHT, usual_time + ABOUT_MIDNIGHT - DAY
        begins = min(early, 0) + max(late, 0)
    else:
        sides = [(clock <= ABOUT_MIDNIGHT).mean(), (clock >= DAY - ABOUT_MIDNIGHT).mean()]
        if sum(sides) >= USUAL and min(sides) >= 0.1:
            begins = -ABOUT_MIDNIGHT
    days, length = (ticks - begins) // DAY, step // DAY
    phases = (days - days[0]) % length
    usual_day = _usual(phases)
    concentration, centre = _centre(phases, length)
    is_usual = usual_day is not None or concentration > 0.5
    first = int(days[0]) + (usual_day if usual_day is not None else round(centre) if is_usual else 0)
    nearest = length > 1 and is_usual
    cells = (days - first + ((length - 1) // 2 if nearest else 0)) // length
    return first * DAY + time_of_day, cells, nearest or usual_time is not None or begins != 0


def _usual(offsets: NDArray[np.int64]) -> int | None:
    """The offset that nearly all stamps have, if there is one."""
    found, counts = np.unique(offsets, return_counts=True)
    most = int(np.argmax(counts))
    return int(found[most]) if counts[most] >= USUAL * len(offsets) else None


def _centre(offsets: NDArray[np.int64], period: int) -> tuple[float, float]:
    """How close together offsets lie (0 to 1), and their mean between minus and plus half a period."""
    direction = np.exp(2j * np.pi * (offsets / period)).mean()
    return abs(direction), float(np.angle(direction)) / (2 * np.pi) * period


def _note_grid(
    shifts: NDArray[np.int64],
    cells: NDArray[np.int64],
    size: int,
    step: pd.Timedelta,
    notes: list[str],
    *,
    nearest: bool,
) -> None:
    moved = int((shifts != 0).sum())
    if moved:
        largest = pd.Timedelta(int(np.abs(shifts).max()), unit="ns")
        where = "to the nearest step of" if nearest else "to the beginning of their step of"
        notes.append(f"Stamps moved {where} {step_text(step)}: {moved:,}, by at most {step_text(largest)}.")
    used = len(np.unique(cells))
    if used < len(cells):
        notes.append(
            f"Rows on the same step as the row before: {len(cells) - used:,}; the mean of their readings is used."
        )
    if used < size:
        notes.append(
            f"Steps of {step_text(step)} without a row: {size - used:,}; they count as holes, --all-steps writes them."
        )


def onto_grid(values: NDArray[np.float64], cells: NDArray[np.int64], size: int) -> NDArray[np.float64]:
    if size == len(cells) and cells[-1] == size - 1 and (np.diff(cells) == 1).all():
        return values
    used, starts = np.unique(cells, return_index=True)
    on_grid = np.full((size, values.shape[1]), np.nan)
    if len(used) == len(cells):
        on_grid[cells] = values
        return on_grid
    counts = np.add.reduceat(~np.isnan(values), starts, axis=0, dtype=np.float64)
    totals = np.add.reduceat(np.nan_to_num(values, nan=0.0), starts, axis=0)
    on_grid[used] = np.divide(totals, counts, out=np.full_like(totals, np.nan), where=counts > 0)
    return on_grid
