"""The list of sensors that a user hands in: ids and coordinates, found by the usual column names and checked.

Places in a plane, such as UTM's or a national grid's, become degrees around (0, 0), where a degree is as long to the
north as to the east; `on_plane` tells that they are none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from casper.errors import InputError, raise_all, some

ID_NAMES = ("sensor_id", "station_id", "id", "sensor", "station", "name")
LATITUDE_NAMES = ("latitude", "lat", "y")
LONGITUDE_NAMES = ("longitude", "lon", "lng", "long", "x")
NORTHING_NAMES = ("northing", "north", "utm_northing", "utm_y", "y_utm", "y_m", "y")
EASTING_NAMES = ("easting", "east", "utm_easting", "utm_x", "x_utm", "x_m", "x")
KM_PER_DEGREE = 111.195
_IN_PLANE = {"latitude": "northing", "longitude": "easting"}
_PLANE = "plane"  # in the attributes of a list of sensors
_LARGEST_PLANE_KM = 10_000


def sensor_list(sensors: pd.DataFrame) -> pd.DataFrame:
    """Check a list of sensors; the result has the ids as text in its index and the columns latitude, longitude.

    Instead of degrees it may have metres of a plane: easting and northing, or x and y that cannot be degrees.
    """
    by_name = {str(column).strip().lower(): column for column in sensors.columns}

    def find(names: Sequence[str]) -> object:
        return next((by_name[name] for name in names if name in by_name), None)

    places = {"latitude": find(LATITUDE_NAMES), "longitude": find(LONGITUDE_NAMES)}
    plane = {"latitude": find(NORTHING_NAMES), "longitude": find(EASTING_NAMES)}
    in_metres = None not in plane.values() and (None in places.values() or _beyond_degrees(sensors, places, plane))
    if in_metres:
        places = plane
    id_column = find(ID_NAMES)
    accepted = {"latitude": LATITUDE_NAMES, "longitude": LONGITUDE_NAMES, "id": ID_NAMES}
    missing = [name for name, column in places.items() if column is None]
    if id_column is None and isinstance(sensors.index, pd.RangeIndex):
        missing.append("id")
    if missing:
        found = ", ".join(repr(str(column)) for column in sensors.columns) or "none"
        wanted = "; ".join(f"{name}: {', '.join(accepted[name])}" for name in missing)
        instead = "" if missing == ["id"] else " (or easting and northing, in metres)"
        raise InputError(f"the list of sensors lacks columns; found {found}, needed is one of each: {wanted}{instead}")
    if sensors.empty:
        raise InputError("the list of sensors has no rows")

    ids = pd.Series(sensors.index) if id_column is None else sensors[id_column].reset_index(drop=True)
    if pd.api.types.is_float_dtype(ids.dtype) and bool((ids.dropna() % 1 == 0).all()):
        ids = ids.astype("Int64")  # 773869.0 is what pandas makes of the id 773869 when another id is missing
    problems: list[str] = []
    nameless = np.flatnonzero(ids.isna().to_numpy())
    if len(nameless):
        problems.append(f"row {nameless[0] + 1} of the list of sensors has no id")
    names = ids.astype(str).str.strip()
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
        return _from_plane(result)
    _check_degrees(result)
    result["longitude"] = result["longitude"].where(result["longitude"] <= 180, result["longitude"] - 360)
    if on_plane(sensors):  # checked before
        result.attrs[_PLANE] = True
    return result


def on_plane(places: pd.DataFrame) -> bool:
    """Whether a checked list of sensors came in metres of a plane; its degrees then lie around (0, 0)."""
    return bool(places.attrs.get(_PLANE, False))


def match_sensors(sensors: pd.DataFrame, wanted: Sequence[str]) -> pd.DataFrame:
    """The rows of a list of sensors in the order of `wanted`; sensors of the list that are not wanted are left out."""
    listed = sensor_list(sensors)
    absent = [repr(sensor) for sensor in wanted if sensor not in listed.index]
    if absent:
        raise InputError(f"the list of sensors lacks {some(absent)}: add a row with id, latitude, longitude for each")
    return listed.loc[list(wanted)]


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
