"""Who is near whom: distances, kernels, and the directed graph that says which sensors a sensor listens to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from casper.errors import InputError
from casper.frame import match_sensors
from casper.frame.sensors import on_plane

if TYPE_CHECKING:
    from casper.frame import SensorFrame

EARTH_RADIUS_KM = 6371.0088
KERNEL_THRESHOLD = 0.1
LARGEST_DENSE_NETWORK = 4000
"""Above this many sensors distances are searched in a tree instead of being held in a matrix."""
WIDTH_SAMPLE = 2000
LONGEST_CORRELATION_SAMPLE = 20_000
LARGEST_CORRELATION_CELLS = 100_000_000
ROWS_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class SensorGraph:
    """Weighted edges "source influences target", sorted by target, falling weight, source; without self edges."""

    sensors: tuple[str, ...]
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    weight: NDArray[np.float32]
    origin: str
    """One sentence for people: where the graph came from."""

    @classmethod
    def from_edges(
        cls, sensors: Sequence[str], source: ArrayLike, target: ArrayLike, weight: ArrayLike, *, origin: str
    ) -> SensorGraph:
        """Puts edges in order and drops self edges and edges without weight."""
        sources, targets = np.asarray(source, dtype=np.int64), np.asarray(target, dtype=np.int64)
        weights = np.asarray(weight, dtype=np.float32)
        kept = (sources != targets) & (weights > 0)
        sources, targets, weights = sources[kept], targets[kept], weights[kept]
        order = np.lexsort((sources, -weights, targets))
        return cls(tuple(sensors), sources[order], targets[order], weights[order], origin)

    def adjacency(self) -> NDArray[np.float32]:
        """(N, N) weights; rows are sources, columns are targets."""
        matrix = np.zeros((len(self.sensors), len(self.sensors)), dtype=np.float32)
        matrix[self.source, self.target] = self.weight
        return matrix

    def degree(self) -> NDArray[np.int64]:
        """How many sensors each sensor listens to (incoming edges)."""
        return np.bincount(self.target, minlength=len(self.sensors)).astype(np.int64)

    def neighbour_table(
        self, *, max_neighbours: int | None, include_self: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The strongest sources of every sensor as a padded (N, K) table, and which of its entries are present.

        At most `max_neighbours` sources are kept (the sensor itself, if included, comes first and does not count).
        Padding points to the sensor itself. K is at least 1, even in a graph without edges.
        """
        count = len(self.sensors)
        degree = self.degree()
        rank = np.arange(self.target.size) - (np.cumsum(degree) - degree)[self.target]
        kept = rank < (self.target.size if max_neighbours is None else max_neighbours)
        first = int(include_self)
        width = max(1, first + int(rank[kept].max(initial=-1)) + 1)
        table = np.repeat(np.arange(count, dtype=np.int64)[:, None], width, axis=1)
        present = np.zeros((count, width), dtype=bool)
        present[:, :first] = True
        table[self.target[kept], first + rank[kept]] = self.source[kept]
        present[self.target[kept], first + rank[kept]] = True
        return table, present

    def permuted(self, order: ArrayLike) -> SensorGraph:
        """The same graph with its sensors listed in another order: new sensor k is old sensor `order[k]`."""
        old_of_new = np.asarray(order, dtype=np.int64)
        if not np.array_equal(np.sort(old_of_new), np.arange(len(self.sensors))):
            raise InputError(f"order must name each of the {len(self.sensors)} sensors exactly once")
        new_of_old = np.argsort(old_of_new)
        sensors = [self.sensors[index] for index in old_of_new]
        return SensorGraph.from_edges(
            sensors, new_of_old[self.source], new_of_old[self.target], self.weight, origin=self.origin
        )

    def symmetric(self) -> SensorGraph:
        """The graph with every edge in both directions, each with the larger of the two weights."""
        source = np.concatenate([self.source, self.target])
        target = np.concatenate([self.target, self.source])
        weight = np.concatenate([self.weight, self.weight])
        order = np.lexsort((-weight, source, target))
        source, target, weight = source[order], target[order], weight[order]
        strongest = np.ones(source.size, dtype=bool)
        strongest[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
        origin = f"{self.origin}; made symmetric with the larger weight of both directions"
        return SensorGraph.from_edges(
            self.sensors, source[strongest], target[strongest], weight[strongest], origin=origin
        )


# ---------------------------------------------------------------- distances and kernels


def great_circle_km(latitude: ArrayLike, longitude: ArrayLike) -> NDArray[np.float64]:
    """(N, N) distances over the surface of the earth, from coordinates in degrees."""
    lat, lon = np.radians(np.asarray(latitude, dtype=np.float64)), np.radians(np.asarray(longitude, dtype=np.float64))
    half_lat, half_lon = (lat[:, None] - lat) / 2, (lon[:, None] - lon) / 2
    chord = np.sin(half_lat) ** 2 + np.cos(lat)[:, None] * np.cos(lat) * np.sin(half_lon) ** 2
    return 2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.clip(chord, 0.0, 1.0)))


def kernel_width(distances: NDArray[np.floating]) -> float:
    """Population standard deviation of the finite distances, the zeros of the diagonal included."""
    finite = distances[np.isfinite(distances)]
    return float(np.std(finite)) if finite.size else 0.0


def gaussian_kernel(
    distances: NDArray[np.floating], *, width: float | None = None, threshold: float = KERNEL_THRESHOLD
) -> NDArray[np.floating]:
    """Weights exp(-(distance / width)^2); zero below the threshold, on the diagonal, where not connected (inf, NaN)."""
    weights = _kernel(distances, kernel_width(distances) if width is None else width)
    weights[weights < threshold] = 0
    np.fill_diagonal(weights, 0)
    return weights


def _kernel(distances: NDArray[np.floating], width: float) -> NDArray[np.floating]:
    connected = np.where(np.isnan(distances), np.inf, distances)
    if width == 0:  # all sensors at one place: only those there are near
        return (connected == 0).astype(distances.dtype)
    return np.exp(-np.square(connected / distances.dtype.type(width)))


# ---------------------------------------------------------------- graphs from what a user has


def build_graph(
    frame: SensorFrame,
    *,
    sensors: pd.DataFrame | None = None,
    distances: ArrayLike | pd.DataFrame | None = None,
    adjacency: ArrayLike | pd.DataFrame | None = None,
) -> SensorGraph:
    """The graph of a table's sensors from coordinates, distances or weights; from the readings if none is given."""
    given = [
        name
        for name, value in (("sensors", sensors), ("distances", distances), ("adjacency", adjacency))
        if value is not None
    ]
    if len(given) > 1:
        raise InputError(f"both {given[0]} and {given[1]} were given: pass only one of sensors, distances, adjacency")
    if sensors is not None:
        return graph_from_coordinates(sensors, ids=frame.sensors)
    if distances is not None:
        return graph_from_distances(distances, ids=frame.sensors)
    if adjacency is not None:
        return graph_from_adjacency(adjacency, ids=frame.sensors)
    return graph_from_correlation(frame.values, frame.observed, ids=frame.sensors)


def graph_from_coordinates(
    sensors_df: pd.DataFrame, *, ids: Sequence[str], min_neighbours: int = 4, max_neighbours: int = 32
) -> SensorGraph:
    """Neighbours by great-circle distance: within the kernel's reach, but no fewer and no more than asked for."""
    places = match_sensors(sensors_df, ids)
    latitude = places["latitude"].to_numpy(dtype=np.float64)
    longitude = places["longitude"].to_numpy(dtype=np.float64)
    if len(ids) > LARGEST_DENSE_NETWORK:
        sample = np.random.default_rng(0).choice(len(ids), WIDTH_SAMPLE, replace=False)
        width = kernel_width(great_circle_km(latitude[sample], longitude[sample]))
        nearest, km = _nearest_by_tree(latitude, longitude, count=max_neighbours)
    else:
        distances = great_circle_km(latitude, longitude)
        width = kernel_width(distances)
        np.fill_diagonal(distances, np.inf)
        nearest, km = _smallest_per_row(distances, count=max_neighbours)
    kind = "distances in a plane" if on_plane(places) else "great-circle distances"
    origin = f"{kind} between {len(ids)} sensors, Gaussian kernel of width {width:.4g} km, " + _limits(
        min_neighbours, max_neighbours
    )
    return _graph_of_nearest(nearest, km, ids=ids, width=width, min_neighbours=min_neighbours, origin=origin)


def graph_from_distances(
    matrix: ArrayLike | pd.DataFrame, *, ids: Sequence[str], min_neighbours: int = 4, max_neighbours: int = 32
) -> SensorGraph:
    """Neighbours from distances, rows being sources; inf or NaN means not connected, the diagonal is ignored."""
    distances = _square_matrix(matrix, ids=ids, what="distance")
    _refuse(distances < 0, distances, ids=ids, what="distance", remedy="distances must be zero or more")
    width = kernel_width(distances)
    distances[np.isnan(distances)] = np.inf
    np.fill_diagonal(distances, np.inf)
    nearest, found = _smallest_per_row(distances.T, count=max_neighbours)
    origin = f"a distance matrix of {len(ids)} sensors, Gaussian kernel of width {width:.4g} in its unit, " + _limits(
        min_neighbours, max_neighbours
    )
    return _graph_of_nearest(nearest, found, ids=ids, width=width, min_neighbours=min_neighbours, origin=origin)


def graph_from_adjacency(
    matrix: ArrayLike | pd.DataFrame, *, ids: Sequence[str], origin: str | None = None
) -> SensorGraph:
    """The graph of a weight matrix, rows being sources; zero means not connected, the diagonal is ignored."""
    weights = _square_matrix(matrix, ids=ids, what="weight")
    bad = ~(np.isfinite(weights) & (weights >= 0))
    _refuse(bad, weights, ids=ids, what="weight", remedy="weights must be zero (not connected) or more")
    source, target = np.nonzero(weights)
    origin = origin or f"a weight matrix of {len(ids)} sensors, used as given"
    return SensorGraph.from_edges(ids, source, target, weights[source, target], origin=origin)


def graph_from_correlation(
    values: NDArray[np.floating],
    observed: NDArray[np.bool_],
    *,
    ids: Sequence[str],
    neighbours: int = 10,
    min_joint_steps: int = 50,
) -> SensorGraph:
    """The sensors whose readings rise and fall together, over the steps at which both were observed.

    Only positive correlations make edges; sensors that never report get none. In short tables fewer joint steps do.
    """
    joint_steps = min(min_joint_steps, max(3, len(values) // 4))
    standard, seen = _standardised_sample(values, observed)
    source, target, weight = [], [], []
    for targets in _blocks(len(ids)):
        correlation = _correlation_with(standard, seen, targets, joint_steps=joint_steps)  # (targets, all sensors)
        nearest, found = _smallest_per_row(-correlation, count=neighbours)
        source.append(nearest.ravel())
        target.append(np.repeat(np.arange(len(ids))[targets], nearest.shape[1]))
        weight.append(np.clip(-found, 0, 1).ravel())
    origin = (
        f"correlation of the readings of {len(ids)} sensors, up to {neighbours} strongest per sensor, "
        f"at least {joint_steps} joint steps"
    )
    return SensorGraph.from_edges(
        ids, np.concatenate(source), np.concatenate(target), np.concatenate(weight), origin=origin
    )


# ---------------------------------------------------------------- the parts they are made of


def _limits(min_neighbours: int, max_neighbours: int) -> str:
    return f"threshold {KERNEL_THRESHOLD}, {min_neighbours} to {max_neighbours} neighbours where there are as many"


def _blocks(count: int) -> Iterator[slice]:
    return (slice(first, min(first + ROWS_AT_ONCE, count)) for first in range(0, count, ROWS_AT_ONCE))


def _smallest_per_row(matrix: NDArray[np.floating], *, count: int) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
    """Column numbers and values of the `count` smallest entries of each row, smallest first."""
    count = min(count, matrix.shape[1])
    columns = np.empty((len(matrix), count), dtype=np.int64)
    found = np.empty((len(matrix), count), dtype=matrix.dtype)
    for rows in _blocks(len(matrix)):
        block = matrix[rows]
        smallest = np.sort(np.argpartition(block, count - 1, axis=1)[:, :count], axis=1)
        smallest_values = np.take_along_axis(block, smallest, axis=1)
        order = np.argsort(smallest_values, axis=1, kind="stable")  # equals stay in sensor order
        columns[rows] = np.take_along_axis(smallest, order, axis=1)
        found[rows] = np.take_along_axis(smallest_values, order, axis=1)
    return columns, found


def _nearest_by_tree(
    latitude: NDArray[np.float64], longitude: NDArray[np.float64], *, count: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    from sklearn.neighbors import BallTree

    places = np.radians(np.column_stack([latitude, longitude]))
    angle, nearest = BallTree(places, metric="haversine").query(places, k=min(count + 1, len(places)))
    km = np.asarray(angle) * EARTH_RADIUS_KM
    # A sensor is its own nearest place, but with many sensors at one place it need not come first, nor be found at all.
    km[nearest == np.arange(len(places))[:, None]] = np.inf
    order = np.argsort(km, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(np.asarray(nearest), order, axis=1), np.take_along_axis(km, order, axis=1)


def _graph_of_nearest(
    nearest: NDArray[np.int64],
    distances: NDArray[np.floating],
    *,
    ids: Sequence[str],
    width: float,
    min_neighbours: int,
    origin: str,
) -> SensorGraph:
    """Edges to each row's sensor from its listed nearest ones; the first `min_neighbours` stay however far they are."""
    weights = _kernel(distances, width)
    within_reach = (weights >= KERNEL_THRESHOLD) | (np.arange(nearest.shape[1]) < min_neighbours)
    target, rank = np.nonzero(within_reach & np.isfinite(distances))
    weight = np.maximum(weights[target, rank], KERNEL_THRESHOLD)
    return SensorGraph.from_edges(ids, nearest[target, rank], target, weight, origin=origin)


def _standardised_sample(
    values: NDArray[np.floating], observed: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Zero-filled standardised readings and 1/0 for observed, at a sample of steps from all over the table."""
    steps, count = values.shape
    wanted = min(LONGEST_CORRELATION_SAMPLE, max(1, LARGEST_CORRELATION_CELLS // count))
    if steps > wanted:
        # A random step of each equal stretch: a fixed stride could always meet the same hour of the day.
        jitter = np.random.default_rng(0).random(wanted)
        sampled = ((np.arange(wanted) + jitter) * steps / wanted).astype(np.int64)
        values, observed = values[sampled], observed[sampled]
    standard = np.where(observed, values, 0.0)
    seen = observed.sum(axis=0)
    standard = np.where(observed, standard - standard.sum(axis=0) / np.maximum(seen, 1), 0.0)
    spread = np.sqrt(np.square(standard).sum(axis=0) / np.maximum(seen, 1))
    standard /= np.where(spread > 0, spread, 1.0)
    return standard.astype(np.float32), observed.astype(np.float32)


def _correlation_with(
    standard: NDArray[np.float32], seen: NDArray[np.float32], targets: slice, *, joint_steps: int
) -> NDArray[np.float32]:
    """(targets, all sensors) correlation over joint steps; -inf where it cannot be told or is not positive."""
    target_standard, target_seen = standard[:, targets], seen[:, targets]
    squares = np.square(standard)
    joint = target_seen.T @ seen
    steps = np.maximum(joint, 1)
    target_mean = target_standard.T @ seen / steps
    source_mean = target_seen.T @ standard / steps
    covariance = target_standard.T @ standard / steps - target_mean * source_mean
    target_variance = squares[:, targets].T @ seen / steps - np.square(target_mean)
    source_variance = target_seen.T @ squares / steps - np.square(source_mean)
    # Readings that do not move while both are observed leave only rounding errors behind.
    moving = (target_variance > 1e-5) & (source_variance > 1e-5)
    usable = (joint >= joint_steps) & moving & (covariance > 0)
    rows = np.arange(len(usable))
    usable[rows, rows + targets.start] = False
    scale = np.sqrt(np.where(moving, target_variance * source_variance, 1.0))
    return np.where(usable, covariance / scale, np.float32(-np.inf))


def _square_matrix(matrix: ArrayLike | pd.DataFrame, *, ids: Sequence[str], what: str) -> NDArray[np.floating]:
    """The matrix as an own copy of numbers in the order of `ids`, with a zero diagonal."""
    if isinstance(matrix, pd.DataFrame) and not (_unlabelled(matrix.index) and _unlabelled(matrix.columns)):
        matrix = _in_order(matrix, ids=ids, what=what)
    try:
        numbers = np.array(matrix)
        if not np.issubdtype(numbers.dtype, np.floating):
            numbers = numbers.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"the {what} matrix must hold numbers only: {error}") from error
    if numbers.shape != (len(ids), len(ids)):
        shape = " x ".join(str(size) for size in numbers.shape)
        raise InputError(
            f"the {what} matrix is {shape} but the table has {len(ids)} sensors: "
            "give one row and one column per sensor, in the order of the table's columns"
        )
    np.fill_diagonal(numbers, 0)
    return numbers


def _unlabelled(labels: pd.Index) -> bool:
    return isinstance(labels, pd.RangeIndex) and labels.start == 0 and labels.step == 1


def _in_order(matrix: pd.DataFrame, *, ids: Sequence[str], what: str) -> pd.DataFrame:
    named = matrix.set_axis([str(label) for label in matrix.index], axis=0)
    named = named.set_axis([str(label) for label in matrix.columns], axis=1)
    for place, labels in (("row", named.index), ("column", named.columns)):
        if not labels.is_unique:
            raise InputError(f"the {what} matrix has two {place}s named {labels[labels.duplicated()][0]!r}: keep one")
        missing = [name for name in ids if name not in labels]
        if missing:
            shown = ", ".join(repr(name) for name in missing[:5]) + (", ..." if len(missing) > 5 else "")
            raise InputError(f"the {what} matrix has no {place} for sensor {shown}: add it, or take out the row names")
    return named.loc[list(ids), list(ids)]


def _refuse(
    bad: NDArray[np.bool_], matrix: NDArray[np.floating], *, ids: Sequence[str], what: str, remedy: str
) -> None:
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InputError(
            f"the {what} from sensor {ids[row]!r} to sensor {ids[column]!r} is {matrix[row, column]}: {remedy}"
        )
