"""Which part a column plays where names leave it open: the readings tell long from wide, and which column is the id."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from casper.errors import InputError, some
from casper.io.heading import DATE
from casper.io.layout import ID_NAMES, Roles
from casper.io.stamps import PARTS, PARTS_WITH_DAY_OF_YEAR, part_name
from casper.io.textfile import BadText, parse_numbers, stripped_texts

log = logging.getLogger("casper")

SEVERAL_ROWS_A_TIME = 0.1  # of all rows; the hour that clocks repeat in autumn is no more than a few of a wide table
HARDLY_ANY = 0.01


def settle_roles(file: str, raw: pd.DataFrame, stamps: pd.Index, roles: Roles, decimal: str = ".") -> Roles:
    """The roles, where several columns may be the id or none is sure to be the one of the readings.

    A file with an id column and a row per sensor and time is no wide table.
    """
    if not roles.maybe_ids:
        return roles
    if roles.value is not None:
        return replace(roles, id=_id_among(file, raw, stamps, roles), maybe_ids=())
    several = roles.surely_long or bool(stamps.duplicated().mean() >= SEVERAL_ROWS_A_TIME)
    wide = replace(roles, id=None, maybe_ids=())
    if not several and not _has_one_sensor(raw, roles.maybe_ids):
        return wide
    numbers, texts = _values_and_notes(raw, roles, decimal)
    if len(numbers) == 1 and (several or texts):
        id_at = _id_among(file, raw, stamps, roles)
        names = [str(raw.columns[position]).strip() for position in (id_at, numbers[0])]
        log.info(
            f"{file}: read as a long table, with the sensors in column {names[0]!r} and the readings in {names[1]!r}."
        )
        return replace(roles, id=id_at, value=numbers[0], maybe_ids=())
    if not several:
        return wide
    listed = some([repr(str(raw.columns[position])) for position in numbers]) or "its columns"
    if roles.surely_long:
        raise InputError(
            f"{file}: no value column found for the long layout; name it with --value-column NAME (value_column=), "
            f"one of {listed}"
        )
    repeated = stamps[stamps.duplicated()][0]
    raise InputError(
        f"{file} looks like a long table (a column {str(raw.columns[roles.maybe_ids[0]])!r}, and {repeated} more than "
        f"once): pass --layout long --value-column NAME (layout='long', value_column=) with one of {listed}"
    )


def refuse_times_in_header(file: str, header: Sequence[object]) -> None:
    """Of a table whose first column could not be read as times."""
    names = [str(name).strip() for name in header]
    times = [name for name in names if re.match(DATE, name) and not name.isdecimal()]
    if len(times) > 1 and len(times) * 2 > len(names):
        raise InputError(
            f"{file}: the times seem to run along the header ({times[0]!r}, {times[1]!r} and so on), with a row for "
            "each sensor; a row for each time is needed: turn the table round, in pandas with table.T"
        )


def _has_one_sensor(raw: pd.DataFrame, ids: Sequence[int]) -> bool:
    return len(raw) > 1 and any(len(raw.iloc[:, position].unique()) == 1 for position in ids)


def _values_and_notes(raw: pd.DataFrame, roles: Roles, decimal: str) -> tuple[list[int], list[int]]:
    """The columns of numbers that may be the readings, and those of texts."""
    numbers: list[int] = []
    texts: list[int] = []
    for position in sorted(set(range(raw.shape[1])) - {*roles.stamps, *roles.ignored, *roles.maybe_ids}):
        column, bad = raw.iloc[:, position], list[BadText]()
        readings = parse_numbers(column, decimal, "", bad)
        if bad:
            texts.append(position)
        elif not np.isnan(readings).all():
            numbers.append(position)
    # The hour of a time stands beside it in some files, and a second id beside the one that was named.
    no_readings = (*PARTS, *PARTS_WITH_DAY_OF_YEAR, *ID_NAMES)
    readings_only = [position for position in numbers if part_name(raw.columns[position]) not in no_readings]
    return readings_only or numbers, texts


def _id_among(file: str, raw: pd.DataFrame, stamps: pd.Index, roles: Roles) -> int:
    """The column that tells the rows of one time apart; of several the coarsest, and then the one called id."""
    candidates = roles.maybe_ids
    if len(candidates) == 1:
        return candidates[0]
    names = {position: str(raw.columns[position]).strip() for position in candidates}
    codes = {position: pd.factorize(stripped_texts(raw.iloc[:, position]))[0] for position in candidates}
    times = pd.factorize(stamps)[0]
    own_rows = ~raw.duplicated().to_numpy()

    def repeats(position: int) -> float:
        pairs = pd.DataFrame({"time": times[own_rows], "sensor": codes[position][own_rows]})
        return float(pairs.duplicated().mean())

    unique = [position for position in candidates if repeats(position) < HARDLY_ANY]
    listed = " and ".join(repr(names[position]) for position in unique or candidates)
    remedy = "name the one that does with --id-column NAME (id_column=)"
    if not unique:
        raise InputError(f"{file}: none of the columns {listed} alone tells the sensors apart; {remedy}")
    sizes = {position: len(np.unique(codes[position])) for position in unique}
    # A finer name, of the device for example, changes within one series: the coarser one keeps that together.
    chosen = min(unique, key=lambda position: (sizes[position], not part_name(names[position]).endswith("id")))
    if len(unique) == 1:
        log.info(f"{file}: {names[chosen]!r} tells the sensors apart and is used as their id.")
        return chosen
    finest = max(sizes.values())
    if len(pd.DataFrame({position: codes[position] for position in unique}).drop_duplicates()) != finest:
        raise InputError(f"{file}: the columns {listed} tell the sensors apart in different ways; {remedy}")
    another = "--id-column NAME (id_column=) takes another."
    if finest == sizes[chosen]:
        log.info(f"{file}: the columns {listed} name the same sensors; {names[chosen]!r} is used, {another}")
    else:
        log.warning(
            f"{file}: the columns {listed} all tell the rows of a time apart; {names[chosen]!r} is used, which has the "
            f"fewest names ({sizes[chosen]}, not {finest}): {another}"
        )
    return chosen
