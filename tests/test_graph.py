from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from casper import graph as graph_module
from casper.errors import InputError
from casper.frame import SensorFrame, from_arrays
from casper.graph import (
    SensorGraph,
    build_graph,
    gaussian_kernel,
    graph_from_adjacency,
    graph_from_coordinates,
    graph_from_correlation,
    graph_from_distances,
    great_circle_km,
)


def names(count: int) -> tuple[str, ...]:
    return tuple(f"s{index}" for index in range(count))


def places(latitude: NDArray[np.float64], longitude: NDArray[np.float64]) -> pd.DataFrame:
    return pd.DataFrame({"sensor_id": names(len(latitude)), "latitude": latitude, "longitude": longitude})


def city(count: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return places(52 + rng.normal(0, 0.1, count), 13 + rng.normal(0, 0.1, count))


def small_graph() -> SensorGraph:
    """s1 and s2 influence s0 (s2 more), s0 influences s1; s3 is alone."""
    return SensorGraph.from_edges(names(4), [1, 2, 0, 3], [0, 0, 1, 3], [0.2, 0.9, 0.5, 1.0], origin="made up")


def frame_of(values: NDArray[np.float64], observed: NDArray[np.bool_] | None = None) -> SensorFrame:
    times = pd.date_range("2024-01-01", periods=len(values), freq="h")
    seen = np.ones(values.shape, dtype=bool) if observed is None else observed
    return from_arrays(values, seen, times, names(values.shape[1]))


# ---------------------------------------------------------------- the graph itself


def test_edges_are_sorted_by_target_then_weight_and_self_edges_are_dropped():
    graph = small_graph()
    assert list(zip(graph.source.tolist(), graph.target.tolist(), strict=True)) == [(2, 0), (1, 0), (0, 1)]
    assert graph.degree().tolist() == [2, 1, 0, 0]


def test_rows_of_the_adjacency_are_sources():
    adjacency = small_graph().adjacency()
    assert adjacency[2, 0] == np.float32(0.9)
    assert adjacency[0, 2] == 0
    assert adjacency.dtype == np.float32


def test_the_neighbour_table_lists_the_strongest_sources_and_pads_with_the_sensor_itself():
    table, present = small_graph().neighbour_table(max_neighbours=None, include_self=False)
    assert table.tolist() == [[2, 1], [0, 1], [2, 2], [3, 3]]
    assert present.tolist() == [[True, True], [True, False], [False, False], [False, False]]


def test_the_neighbour_table_can_be_cut_and_begin_with_the_sensor_itself():
    table, present = small_graph().neighbour_table(max_neighbours=1, include_self=True)
    assert table.tolist() == [[0, 2], [1, 0], [2, 2], [3, 3]]
    assert present.tolist() == [[True, True], [True, True], [True, False], [True, False]]


@pytest.mark.parametrize("include_self", [True, False])
def test_the_neighbour_table_has_a_column_even_without_edges(include_self: bool):
    graph = graph_from_adjacency(np.zeros((3, 3)), ids=names(3))
    table, present = graph.neighbour_table(max_neighbours=5, include_self=include_self)
    assert table.tolist() == [[0], [1], [2]]
    assert (present == include_self).all()


def test_a_permuted_graph_connects_the_same_sensors():
    graph = small_graph()
    order = [2, 0, 3, 1]
    permuted = graph.permuted(order)
    assert permuted.sensors == ("s2", "s0", "s3", "s1")
    np.testing.assert_array_equal(permuted.adjacency(), graph.adjacency()[np.ix_(order, order)])
    with pytest.raises(InputError, match="exactly once"):
        graph.permuted([0, 0, 1, 2])


def test_the_symmetric_graph_takes_the_larger_weight_of_both_directions():
    rng = np.random.default_rng(0)
    weights = rng.random((6, 6)) * (rng.random((6, 6)) < 0.4)
    graph = graph_from_adjacency(weights, ids=names(6))
    adjacency = graph.adjacency()
    np.testing.assert_array_equal(graph.symmetric().adjacency(), np.maximum(adjacency, adjacency.T))
    assert "symmetric" in graph.symmetric().origin


# ---------------------------------------------------------------- distances and kernels


def test_great_circle_distances_are_right_for_known_cities():
    berlin, paris, sydney = (52.52, 13.405), (48.8566, 2.3522), (-33.8688, 151.2093)
    km = great_circle_km(*np.array([berlin, paris, sydney]).T)
    assert km[0, 1] == pytest.approx(877.5, abs=1)
    assert km[0, 2] == pytest.approx(16_094, abs=10)
    assert np.diag(km).tolist() == [0, 0, 0]


def test_kernel_width_counts_the_zero_diagonal_and_ignores_unconnected_pairs():
    distances = np.array([[0.0, 3.0, np.inf], [1.0, 0.0, np.nan], [np.inf, 2.0, 0.0]])
    width = np.std([0, 0, 0, 3, 1, 2])
    weights = gaussian_kernel(distances, threshold=0.0)
    assert weights[0, 1] == pytest.approx(np.exp(-((3 / width) ** 2)))
    assert weights[0, 2] == weights[1, 2] == 0
    assert np.diag(weights).tolist() == [0, 0, 0]
    assert gaussian_kernel(distances, width=1.0)[2, 1] == 0  # exp(-4) is below the threshold


def test_sensors_at_one_place_are_full_neighbours():
    assert gaussian_kernel(np.zeros((2, 2))).tolist() == [[0, 1], [1, 0]]


def test_a_matrix_without_any_finite_distance_connects_nobody():
    assert not gaussian_kernel(np.full((2, 2), np.inf)).any()


# ---------------------------------------------------------------- coordinates


@pytest.mark.parametrize("count", [2, 3, 5, 40, 300])
def test_every_sensor_gets_some_but_not_too_many_neighbours(count: int):
    graph = graph_from_coordinates(city(count), ids=names(count))
    assert graph.degree().min() >= min(4, count - 1)
    assert graph.degree().max() <= min(32, count - 1)
    assert (graph.weight >= np.float32(0.1)).all()
    assert (graph.weight <= 1).all()


def test_neighbours_are_the_nearest_ones():
    graph = graph_from_coordinates(city(50), ids=names(50), min_neighbours=3, max_neighbours=3)
    table, _ = graph.neighbour_table(max_neighbours=None, include_self=False)
    km = great_circle_km(city(50)["latitude"], city(50)["longitude"])
    np.fill_diagonal(km, np.inf)
    np.testing.assert_array_equal(np.sort(table, axis=1), np.sort(np.argsort(km, axis=1)[:, :3], axis=1))


def test_within_its_limits_the_graph_is_the_thresholded_kernel():
    sensors = city(20)
    graph = graph_from_coordinates(sensors, ids=names(20), min_neighbours=0, max_neighbours=19)
    kernel = gaussian_kernel(great_circle_km(sensors["latitude"], sensors["longitude"]))
    np.testing.assert_allclose(graph.adjacency(), kernel, rtol=1e-6)
    assert "great-circle" in graph.origin
    assert "threshold 0.1" in graph.origin


def test_a_far_sensor_keeps_its_nearest_neighbours_at_the_threshold_weight():
    latitude = np.array([0.0, 0.001, 0.002, 0.003, 0.004, 0.005, 50.0])
    graph = graph_from_coordinates(places(latitude, np.zeros(7)), ids=names(7), min_neighbours=2)
    far = graph.target == 6
    assert graph.source[far].tolist() == [4, 5]
    np.testing.assert_array_equal(graph.weight[far], np.float32(0.1))


@pytest.mark.parametrize("count", [1, 2, 60])
def test_sensors_that_share_one_place_are_no_trouble(count: int):
    graph = graph_from_coordinates(places(np.full(count, 10.0), np.full(count, 20.0)), ids=names(count))
    assert (graph.degree() == min(32, count - 1)).all()
    assert (graph.weight == 1).all()


def test_the_tree_finds_the_same_neighbours_as_the_matrix(monkeypatch: pytest.MonkeyPatch):
    sensors = pd.concat([city(300, seed=1)] * 2, ignore_index=True)  # two sensors at every place
    sensors["sensor_id"] = names(600)
    dense = graph_from_coordinates(sensors, ids=names(600))
    monkeypatch.setattr(graph_module, "LARGEST_DENSE_NETWORK", 100)
    monkeypatch.setattr(graph_module, "WIDTH_SAMPLE", 600)
    tree = graph_from_coordinates(sensors, ids=names(600))
    np.testing.assert_array_equal(tree.degree(), dense.degree())
    np.testing.assert_allclose(np.sort(tree.weight), np.sort(dense.weight), rtol=1e-4)


def test_ten_thousand_sensors_some_in_heaps_get_a_graph():
    rng = np.random.default_rng(2)
    latitude, longitude = rng.uniform(30, 50, 10_000), rng.uniform(-120, -70, 10_000)
    latitude[:50], longitude[:50] = 40.0, -100.0  # more at one place than neighbours are listed
    graph = graph_from_coordinates(places(latitude, longitude), ids=names(10_000))
    assert (graph.degree() == 32).all()
    assert (graph.source != graph.target).all()


def test_sensors_are_put_in_the_order_of_the_table():
    sensors = city(6)
    shuffled = sensors.iloc[[3, 1, 5, 0, 2, 4]]
    a, b = (graph_from_coordinates(each, ids=names(6)) for each in (sensors, shuffled))
    np.testing.assert_array_equal(a.adjacency(), b.adjacency())


def test_a_sensor_without_coordinates_is_named():
    with pytest.raises(InputError, match="s3"):
        graph_from_coordinates(city(3), ids=names(4))


# ---------------------------------------------------------------- matrices


def test_rows_of_a_distance_matrix_are_sources():
    distances = np.full((3, 3), np.inf)
    distances[0, 1] = 5.0
    graph = graph_from_distances(distances, ids=names(3))
    assert (graph.source.tolist(), graph.target.tolist()) == ([0], [1])


def test_unconnected_pairs_stay_unconnected_and_the_diagonal_does_not_matter():
    distances = np.array([[7.0, 1.0, np.nan], [1.0, np.nan, np.inf], [2.0, np.inf, -1.0]])
    graph = graph_from_distances(distances, ids=names(3))
    edges = set(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    assert edges == {(0, 1), (1, 0), (2, 0)}


def test_the_callers_matrix_is_left_as_it_was():
    distances = np.array([[7.0, 1.0], [np.nan, 0.0]])
    before = distances.copy()
    graph_from_distances(distances, ids=names(2))
    np.testing.assert_array_equal(distances, before)


def test_whole_numbers_are_fine_as_distances():
    assert graph_from_distances([[0, 2], [3, 0]], ids=names(2)).source.size == 2


def test_labelled_matrices_are_matched_by_name():
    labelled = pd.DataFrame([[0, 0.5], [0.0, 0]], index=["s1", "s0"], columns=["s1", "s0"])
    graph = graph_from_adjacency(labelled, ids=names(2))
    assert (graph.source.tolist(), graph.target.tolist()) == ([1], [0])
    unlabelled = pd.DataFrame([[0, 0.5], [0.0, 0]])
    assert graph_from_adjacency(unlabelled, ids=names(2)).source.tolist() == [0]


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((2, 3)), "2 x 3 but the table has 3 sensors"),
        (np.zeros(3), "matrix is 3 but"),
        (np.array([[0, -1.0, 0], [0, 0, 0], [0, 0, 0]]), "from sensor 's0' to sensor 's1' is -1.0"),
        ([["a", "b", "c"]] * 3, "must hold numbers only"),
        (pd.DataFrame(np.zeros((2, 2)), index=["s0", "s1"], columns=["s0", "s1"]), "no row for sensor 's2'"),
        (pd.DataFrame(np.zeros((3, 2)), index=list(names(3)), columns=["s0", "s1"]), "no column for sensor 's2'"),
        (pd.DataFrame(np.zeros((2, 2)), index=["s0", "s0"], columns=["s0", "s1"]), "two rows named 's0'"),
    ],
)
def test_unusable_matrices_are_refused_in_plain_words(matrix: object, message: str):
    for make in (graph_from_distances, graph_from_adjacency):
        with pytest.raises(InputError, match=message):
            make(matrix, ids=names(3))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_must_be_finite(bad: float):
    with pytest.raises(InputError, match="weight from sensor 's1' to sensor 's0'"):
        graph_from_adjacency(np.array([[0, 1], [bad, 0]]), ids=names(2))


# ---------------------------------------------------------------- correlation


def correlated(steps: int = 400, seed: int = 0) -> NDArray[np.float64]:
    """Sensors 0 to 3 follow one signal, 4 to 7 another, 8 does the opposite of the first, 9 never moves."""
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=(2, steps, 1))
    noise = rng.normal(size=(steps, 8)) * 0.3
    return np.hstack([first + noise[:, :4], second + noise[:, 4:], -first, np.full((steps, 1), 5.0)]) * 10 + 1000


def test_correlated_sensors_find_each_other_across_gaps():
    values = correlated()
    observed = np.random.default_rng(1).random(values.shape) < 0.6
    graph = graph_from_correlation(np.where(observed, values, np.nan), observed, ids=names(10), neighbours=3)
    for sensor in range(8):
        sources = graph.source[graph.target == sensor]
        group = range(4) if sensor < 4 else range(4, 8)
        assert set(sources.tolist()) == set(group) - {sensor}
    assert not (graph.weight > 1).any()


def test_correlations_over_joint_steps_equal_those_of_pandas():
    values = correlated(seed=2)[:, :8]
    observed = np.random.default_rng(3).random(values.shape) < 0.7
    table = pd.DataFrame(np.where(observed, values, np.nan))
    expected = table.corr(min_periods=50).to_numpy(copy=True)
    np.fill_diagonal(expected, 0)
    graph = graph_from_correlation(table.to_numpy(), observed, ids=names(8), neighbours=7)
    np.testing.assert_allclose(graph.adjacency(), np.maximum(expected, 0), atol=1e-5)


def test_opposite_constant_and_silent_sensors_get_no_edges():
    values = correlated()
    observed = np.ones(values.shape, dtype=bool)
    observed[:, 7] = False
    graph = graph_from_correlation(values, observed, ids=names(10), neighbours=9)
    assert not np.isin(graph.source, [7, 9]).any()
    assert not np.isin(graph.target, [7, 9]).any()
    assert not ((graph.source == 8) & (graph.target < 4)).any()


def test_pairs_that_were_rarely_observed_together_are_not_trusted():
    values = correlated()
    observed = np.ones(values.shape, dtype=bool)
    observed[:, 0] = False
    observed[:49, 0] = True
    graph = graph_from_correlation(values, observed, ids=names(10))
    assert not np.isin(0, graph.target)
    short = graph_from_correlation(values[:30], observed[:30], ids=names(10))
    assert np.isin(0, short.target)  # a short table cannot offer as many


def test_long_tables_are_sampled_without_meeting_the_same_hour_each_time(monkeypatch: pytest.MonkeyPatch):
    hours = np.arange(24 * 200)
    values = np.sin(2 * np.pi * (hours[:, None] + np.array([0, 0.5, 12])) / 24)
    monkeypatch.setattr(graph_module, "LONGEST_CORRELATION_SAMPLE", 200)
    graph = graph_from_correlation(values, np.ones(values.shape, dtype=bool), ids=names(3))
    assert set(zip(graph.source.tolist(), graph.target.tolist(), strict=True)) == {(0, 1), (1, 0)}
    assert graph.weight.min() > 0.95


def test_many_sensors_are_correlated_block_by_block(monkeypatch: pytest.MonkeyPatch):
    values = correlated()
    observed = np.ones(values.shape, dtype=bool)
    at_once = graph_from_correlation(values, observed, ids=names(10))
    monkeypatch.setattr(graph_module, "ROWS_AT_ONCE", 3)
    in_blocks = graph_from_correlation(values, observed, ids=names(10))
    np.testing.assert_allclose(in_blocks.adjacency(), at_once.adjacency(), rtol=1e-5)


# ---------------------------------------------------------------- whichever a user has


def test_the_graph_comes_from_what_is_given_and_else_from_the_readings():
    frame = frame_of(correlated())
    assert "great-circle" in build_graph(frame, sensors=city(10)).origin
    assert "distance matrix" in build_graph(frame, distances=np.ones((10, 10))).origin
    assert "weight matrix" in build_graph(frame, adjacency=np.ones((10, 10))).origin
    assert "correlation" in build_graph(frame).origin


def test_two_descriptions_of_the_network_are_one_too_many():
    with pytest.raises(InputError, match="both distances and adjacency were given"):
        build_graph(frame_of(correlated()), distances=np.ones((10, 10)), adjacency=np.ones((10, 10)))


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 12), st.integers(0, 1000))
def test_any_graph_keeps_its_promises(count: int, seed: int):
    rng = np.random.default_rng(seed)
    distances = np.where(rng.random((count, count)) < 0.3, np.inf, rng.integers(0, 4, (count, count)))
    graph = graph_from_distances(distances, ids=names(count), min_neighbours=2, max_neighbours=3)
    assert (graph.source != graph.target).all()
    assert (graph.weight > 0).all()
    assert graph.degree().max(initial=0) <= 3
    order = np.lexsort((graph.source, -graph.weight, graph.target))
    np.testing.assert_array_equal(order, np.arange(order.size))
    table, present = graph.neighbour_table(max_neighbours=2, include_self=False)
    np.testing.assert_array_equal(present.sum(axis=1), np.minimum(graph.degree(), 2))
    assert (graph.adjacency()[table, np.arange(count)[:, None]][present] > 0).all()
