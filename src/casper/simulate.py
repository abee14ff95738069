"""A wind-blown air-quality network whose causal graph is known: data to try CASPER on, and to judge what it finds.

Pollution is emitted near some sensors and carried by a turning wind from sensor to sensor, never across a ridge.
A regional background rises and falls everywhere at once, so that the two sides of the ridge correlate without any
influence between them. In formulas, for the local concentration c of sensor j at step t:

    c_j(t) = p c_j(t-1) + (1 - p) [ emission_j(t) + sum over edges i -> j of share_ij(wind(t)) c_i(t - lag_ij) ]
    reading_j(t) = instrument(c_j(t) + background(t))

`edges` lists exactly the pairs of that sum; the shares of one sensor add up to less than one, so nothing blows up.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import ceil, exp, radians, sqrt

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from casper.errors import InputError, ProblemsError
from casper.frame.sensors import KM_PER_DEGREE

# The plain: how densely sensors stand, and how far and how fast pollution travels between them.
CENTRE_LATITUDE, CENTRE_LONGITUDE = 47.0, 20.0
KM_BETWEEN_SENSORS = 12.25  # the cell of one sensor; 24 sensors give a plain of about 60 km
REACH_KM = 24.0
DECAY_KM = 15.0
TRAVEL_KM_PER_HOUR = 6.0  # turns a distance into a lag

# The air: how long pollution stays, how much of it is carried on, and when a pair counts as an edge.
MEMORY_HOURS = 0.9
CARRIED_SHARE = 0.86
WIND_TOWARDS_DEGREES, WIND_SPREAD_DEGREES = 60.0, 45.0
EDGE_WIND_SHARE = 0.25  # a pair is an edge if the wind points within 60 degrees of it at least so often
BURN_IN_HOURS = 48.0

# The instrument.
SATURATION = 500.0
RELATIVE_NOISE, ABSOLUTE_NOISE = 0.03, 1.0
SMALLEST_READING = 0.1

# How long failures last, in hours (shortest, longest), and the share of readings every sensor keeps at least.
BLOCK_HOURS, OUTAGE_HOURS, HIGH_VALUE_HOURS = (3.0, 24.0), (48.0, 168.0), (1.0, 6.0)
HIGH_VALUE_STEEPNESS = 6  # failures grow like the sensor's own rank (0 to 1) to this power
KEPT_SHARE = 0.1


@dataclass(frozen=True)
class Holes:
    """The share of all cells that each kind of failure makes missing (the kinds may overlap)."""

    points: float = 0.05  # single readings
    blocks: float = 0.08  # a few hours to a day of one sensor
    outages: float = 0.08  # several days of one sensor
    high_values: float = 0.06  # up to six hours, likelier to begin when the reading is high

    def __post_init__(self) -> None:
        for kind in fields(self):
            share = getattr(self, kind.name)
            if not 0 <= share <= 0.5:
                raise InputError(f"holes: {kind.name} is {share}, but a share between 0 and 0.5 is needed")


DEFAULT_HOLES = Holes()


@dataclass(frozen=True)
class SimulationConfig:
    """What a simulation was made from; the same configuration gives the same simulation."""

    sensors: int = 24
    steps: int = 2160
    seed: int = 0
    start: str = "2024-01-01"
    step: str = "1h"
    holes: Holes | None = DEFAULT_HOLES


@dataclass(frozen=True)
class Simulation:
    """Readings in ug/m3 with and without holes, and everything that made them."""

    complete: pd.DataFrame  # what the sensors would have reported: a row per time, a column per sensor
    table: pd.DataFrame  # the same with holes
    sensors: pd.DataFrame  # id, latitude, longitude
    edges: pd.DataFrame  # source, target, lag, weight: source influences target `lag` steps later
    ridge: NDArray[np.float64]  # (M, 2) latitude and longitude of the line nothing crosses
    wind: pd.DataFrame  # speed (km/h) and direction (compass degrees it blows towards; 90 is east) per time
    config: SimulationConfig

    @property
    def seed(self) -> int:
        return self.config.seed

    def hidden(self) -> pd.DataFrame:
        """True where the table has a hole; `complete` knows the truth there."""
        return self.table.isna()

    def east_of_ridge(self) -> NDArray[np.bool_]:
        """(N,), in the order of `sensors`: on which side each of them stands."""
        along = self.ridge[np.argsort(self.ridge[:, 0])]
        latitude, longitude = (self.sensors[name].to_numpy() for name in ("latitude", "longitude"))
        return longitude > np.interp(latitude, along[:, 0], along[:, 1])


def simulate(
    *,
    sensors: int = 24,
    steps: int = 2160,
    seed: int = 0,
    start: str | pd.Timestamp = "2024-01-01",
    step: str | pd.Timedelta = "1h",
    holes: Holes | None = DEFAULT_HOLES,
) -> Simulation:
    """Draw a network and let the wind blow; `holes=None` leaves the table complete.

    Geometry, weather, emissions, instruments and holes have their own random numbers: other holes, same readings.
    """
    _check_numbers(sensors=(sensors, 2), steps=(steps, 24), seed=(seed, 0))
    times, hours = _time_axis(steps=steps, start=start, step=step)
    geometry, weather, sources, instruments, failures = (
        np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(5)
    )

    # The recursion starts from clean air some time before the table does.
    burn_in = max(ceil(BURN_IN_HOURS / hours), 12)
    all_times = pd.date_range(end=times[-1], periods=steps + burn_in, freq=pd.Timedelta(step))

    places = _scatter_sensors(geometry, sensors)
    ridge = _draw_ridge(geometry, side=_side(sensors))
    speed, direction = _blow(weather, steps=steps + burn_in, hours=hours)
    edges = _find_edges(places, ridge, direction[burn_in:], hours=hours)
    emitted = _emit(sources, all_times, sensors=sensors, hours=hours, speed=speed)
    local, weights = _transport(emitted, edges, speed, direction, hours=hours, burn_in=burn_in)
    background = _background(weather, all_times, hours=hours)
    readings = _measure(instruments, (local + background[:, None])[burn_in:])

    names = pd.Index([f"S{number:0{len(str(sensors))}d}" for number in range(1, sensors + 1)])
    complete = pd.DataFrame(readings, index=times, columns=names)
    table = complete.copy()
    if holes is not None:
        table = table.mask(_fail(failures, readings, holes, hours=hours))
    latitude, longitude = _to_degrees(places, side=_side(sensors))
    return Simulation(
        complete=complete,
        table=table,
        sensors=pd.DataFrame({"id": names, "latitude": latitude, "longitude": longitude}),
        edges=pd.DataFrame(
            {"source": names[edges.source], "target": names[edges.target], "lag": edges.lag, "weight": weights}
        ),
        ridge=np.column_stack(_to_degrees(ridge, side=_side(sensors))),
        wind=pd.DataFrame({"speed": speed[burn_in:], "direction": direction[burn_in:] % 360.0}, index=times),
        config=SimulationConfig(
            sensors=int(sensors),
            steps=int(steps),
            seed=int(seed),
            start=str(pd.Timestamp(start)),
            step=str(step),
            holes=holes,
        ),
    )


def _check_numbers(**given: tuple[object, int]) -> None:
    problems = [
        f"{name} is {value!r}, but a whole number of at least {least} is needed"
        for name, (value, least) in given.items()
        if not isinstance(value, int | np.integer) or value < least
    ]
    if problems:
        raise ProblemsError(problems)


def _time_axis(*, steps: int, start: str | pd.Timestamp, step: str | pd.Timedelta) -> tuple[pd.DatetimeIndex, float]:
    """The rows of the table, and the hours between them."""
    try:
        hours = pd.Timedelta(step) / pd.Timedelta(hours=1)
    except ValueError:
        hours = 0.0
    if not 1 / 60 <= hours <= 24:
        raise InputError(f"step is {step!r}, but a step between one minute and one day is needed, like '1h' or '5min'")
    try:
        return pd.date_range(pd.Timestamp(start), periods=steps, freq=pd.Timedelta(step)), hours
    except (ValueError, OverflowError) as error:
        raise InputError(f"start is {start!r}, but a time like '2024-01-01' is needed ({error})") from None


# ---- geometry: kilometres east and north of the south-west corner


def _side(sensors: int) -> float:
    """The side of the square plain in km; it grows with the network so that the density stays."""
    return ceil(sqrt(sensors)) * KM_BETWEEN_SENSORS


def _scatter_sensors(rng: np.random.Generator, sensors: int) -> NDArray[np.float64]:
    """(N, 2) places, each in its own cell of a grid and away from its border, so that no two are close."""
    cells = ceil(sqrt(sensors))
    chosen = rng.permutation(cells * cells)[:sensors]
    corner = np.column_stack([chosen % cells, chosen // cells])
    return (corner + rng.uniform(0.18, 0.82, size=(sensors, 2))) * KM_BETWEEN_SENSORS


def _draw_ridge(rng: np.random.Generator, *, side: float) -> NDArray[np.float64]:
    """(M, 2) a winding line from south to north that leaves the plain at both ends."""
    north = np.linspace(-0.05, 1.05, 13)
    middle, tilt = rng.uniform(0.42, 0.58), rng.uniform(-0.3, 0.3)
    bends = 0.05 * np.sin(2 * np.pi * (north * rng.uniform(0.8, 1.6) + rng.uniform()))
    return np.column_stack([middle + tilt * (north - 0.5) + bends, north]) * side


def _to_degrees(places: NDArray[np.float64], *, side: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Latitude and longitude of places in km."""
    east, north = (places - side / 2).T
    return (
        CENTRE_LATITUDE + north / KM_PER_DEGREE,
        CENTRE_LONGITUDE + east / (KM_PER_DEGREE * np.cos(radians(CENTRE_LATITUDE))),
    )


@dataclass(frozen=True)
class _Edges:
    """Parallel arrays, one entry per directed pair: positions of the sensors, steps, km, and the compass bearing."""

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    lag: NDArray[np.int64]
    distance: NDArray[np.float64]
    bearing: NDArray[np.float64]  # radians


def _find_edges(
    places: NDArray[np.float64], ridge: NDArray[np.float64], direction: NDArray[np.float64], *, hours: float
) -> _Edges:
    """Pairs within reach, on one side of the ridge, that the wind joins often enough; sorted by target and source."""
    distances = np.hypot(*(places[None, :, :] - places[:, None, :]).transpose(2, 0, 1))
    target, source = np.nonzero((distances <= REACH_KM) & (distances > 0))
    free = ~_crosses(places[source], places[target], ridge)
    target, source = target[free], source[free]
    bearing = np.arctan2(*(places[target] - places[source]).T)
    wind = np.radians(direction)
    windy = np.array([np.mean(np.cos(wind - angle) > 0.5) >= EDGE_WIND_SHARE for angle in bearing], dtype=bool)
    target, source, bearing = target[windy], source[windy], bearing[windy]
    distance = distances[target, source]
    lag = np.maximum(np.rint(distance / (TRAVEL_KM_PER_HOUR * hours)), 1).astype(np.int64)
    return _Edges(source=source, target=target, lag=lag, distance=distance, bearing=bearing)


def _crosses(start: NDArray[np.float64], end: NDArray[np.float64], line: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each segment from start to end meets the polyline: each one's ends lie on two sides of the other."""

    def side_of(a: NDArray[np.float64], b: NDArray[np.float64], p: NDArray[np.float64]) -> NDArray[np.float64]:
        return (b[..., 0] - a[..., 0]) * (p[..., 1] - a[..., 1]) - (b[..., 1] - a[..., 1]) * (p[..., 0] - a[..., 0])

    start, end = start[:, None, :], end[:, None, :]  # (pairs, 1, 2) against (1, M - 1, 2)
    first, last = line[None, :-1, :], line[None, 1:, :]
    parts_line = side_of(start, end, first) * side_of(start, end, last) <= 0
    parts_pair = side_of(first, last, start) * side_of(first, last, end) <= 0
    return np.any(parts_line & parts_pair, axis=1)


# ---- weather and emissions


def _wandering(
    rng: np.random.Generator, steps: int, series: int, *, hours: float, memory_hours: float
) -> NDArray[np.float64]:
    """(steps, series) of mean zero and variance one that forget their past after about `memory_hours`."""
    kept = exp(-hours / memory_hours)
    values = rng.standard_normal((steps, series))
    values[1:] *= sqrt(1 - kept**2)
    for step in range(1, steps):
        values[step] += kept * values[step - 1]
    return values


def _blow(rng: np.random.Generator, *, steps: int, hours: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Wind speed in km/h and the direction it blows towards in degrees, around a prevailing sector."""
    speed = 9.0 * np.exp(0.45 * _wandering(rng, steps, 1, hours=hours, memory_hours=10.0)[:, 0])
    prevailing = rng.normal(WIND_TOWARDS_DEGREES, 20.0)
    turning = _wandering(rng, steps, 1, hours=hours, memory_hours=14.0)[:, 0]
    return speed, prevailing + WIND_SPREAD_DEGREES * turning


def _background(rng: np.random.Generator, times: pd.DatetimeIndex, *, hours: float) -> NDArray[np.float64]:
    """What every sensor of the region sees alike: slow, with a daily cycle that peaks before dawn."""
    slow = _wandering(rng, len(times), 1, hours=hours, memory_hours=30.0)[:, 0]
    return 20.0 * np.exp(0.5 * slow) * (1 + 0.25 * np.cos(2 * np.pi * (_hour_of_day(times) - 4.0) / 24.0))


def _hour_of_day(times: pd.DatetimeIndex) -> NDArray[np.float64]:
    return np.asarray(times.hour, dtype=np.float64) + np.asarray(times.minute, dtype=np.float64) / 60.0


def _emit(
    rng: np.random.Generator, times: pd.DatetimeIndex, *, sensors: int, hours: float, speed: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(steps, N) what is emitted near each sensor: much at some, a little everywhere, in rhythms and in bursts."""
    hour = _hour_of_day(times)
    rush = 0.35 + 1.5 * np.exp(-0.5 * ((hour - 8.0) / 1.3) ** 2) + 1.2 * np.exp(-0.5 * ((hour - 18.0) / 1.8) ** 2)
    traffic = rush * np.where(np.asarray(times.day_of_week) >= 5, 0.55, 1.0)
    strong = rng.permutation(sensors) < max(round(0.3 * sensors), 1)
    strength = np.where(strong, 46.0, 2.5) * np.exp(0.35 * rng.standard_normal(sensors))
    traffic_share = rng.uniform(0.3, 0.9, size=sensors)
    rhythm = traffic_share * traffic[:, None] + (1 - traffic_share)

    flicker = np.exp(0.7 * _wandering(rng, len(times), sensors, hours=hours, memory_hours=2.0) - 0.2)
    # Episodes (a fire, a cold start): one every four days and sensor, fading with a memory of five hours.
    begins = rng.uniform(size=flicker.shape) < 1 - exp(-hours / 96.0)
    episodes = np.where(begins, rng.gamma(2.0, 1.5, size=flicker.shape), 0.0)
    for step in range(1, len(times)):
        episodes[step] += exp(-hours / 4.0) * episodes[step - 1]

    dilution = np.sqrt(9.0 / np.maximum(speed, 2.0))  # a stronger wind thins what is emitted on the spot
    return strength * rhythm * (flicker + episodes) * dilution[:, None]


# ---- transport and measurement


def _transport(
    emitted: NDArray[np.float64],
    edges: _Edges,
    speed: NDArray[np.float64],
    direction: NDArray[np.float64],
    *,
    hours: float,
    burn_in: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(steps, N) local concentrations, and for each edge its coefficient on average over the steps of the table."""
    steps, sensors = emitted.shape
    kept = exp(-hours / MEMORY_HOURS)
    along_north, along_east = np.cos(edges.bearing), np.sin(edges.bearing)
    wind_north, wind_east = np.cos(np.radians(direction)), np.sin(np.radians(direction))
    strength = speed / (speed + 2.0)  # still air carries nothing
    nearness = 5.0 * np.exp(-edges.distance / DECAY_KM)

    longest = int(edges.lag.max(initial=1))
    local = np.zeros((longest + steps, sensors))  # the first rows are the clean air that lags may reach back to
    weights = np.zeros(len(edges.lag))
    for step in range(steps):
        alignment = np.maximum(along_north * wind_north[step] + along_east * wind_east[step], 0.0)
        share = strength[step] * nearness * alignment**2
        arriving = np.bincount(edges.target, weights=share, minlength=sensors)
        share *= CARRIED_SHARE / np.maximum(arriving, 1.0)[edges.target]
        row = longest + step
        carried = np.bincount(edges.target, weights=share * local[row - edges.lag, edges.source], minlength=sensors)
        local[row] = kept * local[row - 1] + (1 - kept) * (emitted[step] + carried)
        if step >= burn_in:
            weights += share
    return local[longest:], weights * (1 - kept) / (steps - burn_in)


def _measure(rng: np.random.Generator, concentration: NDArray[np.float64]) -> NDArray[np.float64]:
    """What instruments report: they saturate softly, and are noisy in proportion and by a constant."""
    capped = concentration / (1 + (concentration / SATURATION) ** 4) ** 0.25
    relative, absolute = rng.standard_normal((2, *concentration.shape))
    return np.maximum(capped * (1 + RELATIVE_NOISE * relative) + ABSOLUTE_NOISE * absolute, SMALLEST_READING)


# ---- holes


def _fail(rng: np.random.Generator, readings: NDArray[np.float64], holes: Holes, *, hours: float) -> NDArray[np.bool_]:
    """(steps, N) True where a reading is lost; every sensor keeps some."""
    steps = len(readings)
    evenly = np.ones(1)
    rank = (readings.argsort(axis=0).argsort(axis=0) + 0.5) / steps
    likelier_when_high = (HIGH_VALUE_STEEPNESS + 1) * rank**HIGH_VALUE_STEEPNESS  # one on average
    lost = rng.uniform(size=readings.shape) < holes.points
    for share, duration, likelihood in (
        (holes.blocks, BLOCK_HOURS, evenly),
        (holes.outages, OUTAGE_HOURS, evenly),
        (holes.high_values, HIGH_VALUE_HOURS, likelier_when_high),
    ):
        lost |= _runs(rng, readings.shape, share=share, duration=duration, likelihood=likelihood, hours=hours)

    keep = ceil(KEPT_SHARE * steps)
    for sensor in np.nonzero((~lost).sum(axis=0) < keep)[0]:
        lost[rng.choice(steps, size=keep, replace=False), sensor] = False
    return lost


def _runs(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    *,
    share: float,
    duration: tuple[float, float],
    likelihood: NDArray[np.float64],
    hours: float,
) -> NDArray[np.bool_]:
    """Failures that begin at random with the given relative likelihood and last a while, `share` of all cells."""
    steps, sensors = shape
    shortest, longest = (min(max(round(limit / hours), 1), steps // 3) for limit in duration)
    # Beginnings before the first row count too: else the first rows would have fewer holes than the others.
    before = longest
    rate = -np.log1p(-share) / ((shortest + longest) / 2)
    chance = np.broadcast_to(rate * likelihood, shape)
    chance = np.vstack([np.full((before, sensors), rate), chance])
    begin, sensor = np.nonzero(rng.uniform(size=chance.shape) < 1 - np.exp(-chance))
    end = np.minimum(begin + rng.integers(shortest, longest + 1, size=len(begin)), before + steps)
    change = np.zeros((before + steps + 1, sensors), dtype=np.int64)
    np.add.at(change, (begin, sensor), 1)
    np.add.at(change, (end, sensor), -1)
    return change.cumsum(axis=0)[before : before + steps] > 0
