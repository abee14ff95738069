"""The list of sensors that a user hands in: ids and coordinates, found by the usual column names and checked.

Several columns may name the sensors, such as code and name. One is taken for the ids, and the others are kept beside
it: which of them the columns of a table are called by is seen when the list is matched with the table.

Places in a plane, such as UTM's or a national grid's, become degrees around (0, 0), where a degree is as long to the
north as to the east; `on_plane` tells that they are none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from casper.errors import InputError, raise_all, some

ID_NAMES = (
    *("sensor_id", "station_id", "site_id", "detector_id", "id"),
    *("sensor_code", "station_code", "site_code", "code", "sensor", "station", "site", "detector"),
    *("name", "sensor_name", "station_name", "site_name"),
)
LATITUDE_NAMES = ("latitude", "lat", "y")
LONGITUDE_NAMES = ("longitude", "lon", "lng", "long", "x")
NORTHING_NAMES = ("northing", "north", "utm_northing", "utm_y", "y_utm", "y_m", "y")
EASTING_NAMES = ("easting", "east", "utm_easting", "utm_x", "x_utm", "x_m", "x")
KM_PER_DEGREE = 111.195
_IN_PLANE = {"latitude": "northing", "longitude": "easting"}
# In the attributes of a list of sensors.
_PLANE = "plane"
_IDS_FROM = "ids_from"  # where its ids stood
_OTHER_IDS = "other_ids"  # and how each sensor is called elsewhere in the list: {column: {id: other id}}
_LARGEST_PLANE_KM = 10_000


def sensor_list(sensors: pd.DataFrame) -> pd.DataFrame:
    """Check a list of sensors; the result has the ids as text in its index and the columns latitude, longitude.

    Instead of degrees it may have metres of a plane: easting and northing, or x and y that cannot be degrees.
    """
    by_name = {re.sub(r"[\s.-]+", "_", str(column).strip().lower()): column for column in sensors.columns}

    def find(names: Sequence[str]) -> object:
        return next((by_name[name] for name in names if name in by_name), None)

    places = {"latitude": find(LATITUDE_NAMES), "longitude": find(LONGITUDE_NAMES)}
    plane = {"latitude": find(NORTHING_NAMES), "longitude": find(EASTING_NAMES)}
    in_metres = None not in plane.values() and (None in places.values() or _beyond_degrees(sensors, places, plane))
    if in_metres:
        places = plane
    named = [by_name[name] for name in ID_NAMES if name in by_name]
    unnamed = [one for one in sensors.columns if one not in (*named, *places.values()) and _may_be_ids(sensors[one])]
    in_index = not isinstance(sensors.index, pd.RangeIndex)
    id_column = next(iter(named if named or in_index else unnamed), None)
    accepted = {"latitude": LATITUDE_NAMES, "longitude": LONGITUDE_NAMES, "id": ID_NAMES}
    missing = [name for name, column in places.items() if column is None]
    if id_column is None and not in_index:
        missing.append("id")
    if missing:
        found = ", ".join(repr(str(column)) for column in sensors.columns) or "none"
        wanted = "; ".join(f"{name}: {', '.join(accepted[name])}" for name in missing)
        instead = "" if missing == ["id"] else " (or easting and northing, in metres)"
        raise InputError(f"the list of sensors lacks columns; found {found}, needed is one of each: {wanted}{instead}")
    if sensors.empty:
        raise InputError("the list of sensors has no rows")

    ids = pd.Series(sensors.index) if id_column is None else sensors[id_column].reset_index(drop=True)
    problems: list[str] = []
    nameless = np.flatnonzero(ids.isna().to_numpy())
    if len(nameless):
        problems.append(f"row {nameless[0] + 1} of the list of sensors has no id")
    names = _as_text(ids)
    twice = names[names.duplicated() & ids.notna()]
    if len(twice):
        problems.append(f"sensor id {twice.iloc[0]!r} occurs more than once in the list of sensors: keep one row each")

    result = pd.DataFrame(index=pd.Index(names.to_numpy(), dtype=object))
    for name, column in places.items():
        raw = sensors[column].reset_index(drop=True)
        number = pd.to_numeric(raw, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
        unusable = np.flatnonzero(~np.isfinite(number))
        if len(unusable):
            first = unusable[0]
            found = "" if pd.isna(raw.iloc[first]) else str(raw.iloc[first]).strip()
            text = f"is not a number: {found!r}" if found else "is missing"
            what, unit = (_IN_PLANE[name], "metres") if in_metres else (name, "degrees")
            problems.append(f"the {what} of sensor {names.iloc[first]!r} {text}; give it in {unit}")
        result[name] = number
    if problems:
        raise_all(problems)
    if in_metres:
        result = _from_plane(result)
    else:
        _check_degrees(result)
        result["longitude"] = result["longitude"].where(result["longitude"] <= 180, result["longitude"] - 360)
    if id_column is None:  # it may have been checked before
        result.attrs.update(
            {key: sensors.attrs[key] for key in (_PLANE, _IDS_FROM, _OTHER_IDS) if key in sensors.attrs}
        )
        return result
    others = {str(one): sensors[one] for one in (*named, *unnamed) if one != id_column}
    if in_index:
        others["index"] = pd.Series(sensors.index)
    others = {name: _as_text(column) for name, column in others.items() if _may_be_ids(column)}
    result.attrs[_IDS_FROM] = str(id_column)
    result.attrs[_OTHER_IDS] = {name: dict(zip(names, column, strict=True)) for name, column in others.items()}
    return result


def _may_be_ids(column: pd.Series | pd.DataFrame) -> bool:
    """Every row has one of its own, and they are no measurements, such as heights."""
    if isinstance(column, pd.DataFrame) or column.isna().any():  # several columns of one name
        return False
    texts = _as_text(column)
    numbers = pd.to_numeric(texts, errors="coerce").dropna()
    return bool(texts.is_unique and (texts != "").all() and (numbers % 1 == 0).all())


def _as_text(ids: pd.Series) -> pd.Series:
    if pd.api.types.is_float_dtype(ids.dtype) and bool((ids.dropna() % 1 == 0).all()):
        ids = ids.astype("Int64")  # 773869.0 is what pandas makes of the id 773869 when another id is missing
    return ids.astype(str).str.strip()


def on_plane(places: pd.DataFrame) -> bool:
    """Whether a checked list of sensors came in metres of a plane; its degrees then lie around (0, 0)."""
    return bool(places.attrs.get(_PLANE, False))


def match_sensors(sensors: pd.DataFrame, wanted: Sequence[str]) -> pd.DataFrame:
    """The rows of a list of sensors in the order of `wanted`; sensors of the list that are not wanted are left out."""
    listed = list_by(sensors, wanted)
    rows = _rows_of(wanted, list(listed.index))
    absent = [repr(sensor) for sensor in wanted if sensor not in rows]
    if absent:
        column = f", from its column {listed.attrs[_IDS_FROM]!r}," if _IDS_FROM in listed.attrs else ""
        told = f" (its ids{column} are such as {listed.index[0]!r})"
        raise InputError(
            f"the list of sensors lacks {some(absent)}: add a row with id, latitude, longitude for each{told}"
        )
    return listed.iloc[[rows[sensor] for sensor in wanted]].set_axis(list(wanted))


def list_by(sensors: pd.DataFrame, wanted: Sequence[str]) -> pd.DataFrame:
    """The whole list, its ids being those of which most are wanted if several of its columns name the sensors."""
    listed = sensor_list(sensors)
    most, chosen = len(_rows_of(wanted, list(listed.index))), None
    for column, other in listed.attrs.get(_OTHER_IDS, {}).items():
        found = len(_rows_of(wanted, [other[one] for one in listed.index]))
        if found > most:
            most, chosen = found, column
    attributes = {_IDS_FROM: chosen or listed.attrs.get(_IDS_FROM), _PLANE: listed.attrs.get(_PLANE)}
    if chosen is not None:
        other = listed.attrs[_OTHER_IDS][chosen]
        listed = listed.set_axis([other[one] for one in listed.index])
    listed.attrs = {key: value for key, value in attributes.items() if value}
    return listed


def _rows_of(wanted: Sequence[str], ids: Sequence[str]) -> dict[str, int]:
    """Where the wanted ones stand; 4.0 is what programs make of the id 4."""
    exact = {name: row for row, name in enumerate(ids)}
    whole = {_without_decimals(name): row for row, name in enumerate(ids)}
    rows = {sensor: exact.get(sensor, whole.get(_without_decimals(sensor))) for sensor in wanted}
    return {sensor: row for sensor, row in rows.items() if row is not None}


def _without_decimals(name: str) -> str:
    return re.sub(r"^(\d+)\.0+$", r"\1", name)


def region(places: pd.DataFrame) -> str:
    """Where the sensors lie, in words: latitude and longitude in the wrong columns are seen at a glance."""

    if on_plane(places):
        wide, high = (float(np.ptp(places[name])) * KM_PER_DEGREE for name in ("longitude", "latitude"))
        return f"sensors lie within {wide:.3g} km from west to east and {high:.3g} km from south to north"

    def between(degrees: pd.Series, below: str, above: str) -> str:
        low, high = float(degrees.min()), float(degrees.max())
        names = [below if value < 0 else above for value in (low, high)]
        if names[0] != names[1]:
            return f"{abs(low):.1f} degrees {names[0]} and {high:.1f} degrees {names[1]}"
        low, high = sorted((abs(low), abs(high)))
        return f"{low:.1f} and {high:.1f} degrees {names[0]}"

    north, east = between(places["latitude"], "south", "north"), between(places["longitude"], "west", "east")
    return f"sensors lie between {north}, {east}"


def _check_degrees(places: pd.DataFrame) -> None:
    latitude, longitude = places["latitude"].to_numpy(), places["longitude"].to_numpy()
    bad_latitude, bad_longitude = np.abs(latitude) > 90, (longitude < -180) | (longitude > 360)
    if not bad_latitude.any() and not bad_longitude.any():
        return
    # One odd latitude is a slip of the pen; where most are impossible and the longitudes would do, the columns are.
    swap_would_do = (np.abs(longitude) <= 90).all() and ((latitude >= -180) & (latitude <= 360)).all()
    if swap_would_do and bad_latitude.mean() >= 0.5:
        raise InputError("latitude and longitude of the sensors look swapped: exchange the two columns")
    problems: list[str] = []
    for name, bad, span in (("latitude", bad_latitude, "-90 to 90"), ("longitude", bad_longitude, "-180 to 180")):
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            value = places[name].iloc[first]
            problems.append(f"the {name} of sensor {places.index[first]!r} is {value:g}, outside {span} degrees")
    if bad_latitude.mean() >= 0.5 and bad_longitude.mean() >= 0.5:
        problems[-1] += "; if these are metres of a plane such as UTM's, call the columns easting and northing"
    raise_all(problems)


def _beyond_degrees(sensors: pd.DataFrame, places: dict[str, object], plane: dict[str, object]) -> bool:
    """x and y are whatever they can be: degrees, if most of them can."""
    if places != plane:
        return False
    north, east = (pd.to_numeric(sensors[column], errors="coerce").abs() for column in places.values())
    return bool(((north > 90) | (east > 360)).mean() >= 0.5)


def _from_plane(metres: pd.DataFrame) -> pd.DataFrame:
    middle = (metres.max() + metres.min()) / 2
    widest = float((metres.max() - metres.min()).max()) / 1000
    if widest > _LARGEST_PLANE_KM:
        raise InputError(f"easting and northing of the sensors span {widest:,.0f} km: they are to be given in metres")
    places = (metres - middle) / (1000 * KM_PER_DEGREE)
    places.attrs[_PLANE] = True
    return places
