from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from casper import simulate as module
from casper.errors import InputError, ProblemsError
from casper.simulate import Holes, Simulation, simulate

KM_PER_DEGREE = 111.195


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulate()


def places_km(simulation: Simulation) -> pd.DataFrame:
    sensors = simulation.sensors.set_index("id")
    east = sensors["longitude"] * KM_PER_DEGREE * np.cos(np.radians(47.0))
    return pd.DataFrame({"east": east, "north": sensors["latitude"] * KM_PER_DEGREE})


def east_of_ridge(simulation: Simulation) -> pd.Series:
    """The ridge runs from south to north, so each latitude meets it once."""
    sensors = simulation.sensors.set_index("id")
    ridge_longitude = np.interp(sensors["latitude"], simulation.ridge[:, 0], simulation.ridge[:, 1])
    return sensors["longitude"] > ridge_longitude


# ---- what comes out


def test_the_table_is_the_complete_readings_with_holes(simulation: Simulation) -> None:
    assert simulation.complete.shape == (2160, 24)
    assert simulation.complete.notna().all(axis=None)
    hidden = simulation.hidden()
    assert hidden.equals(simulation.table.isna())
    pd.testing.assert_frame_equal(simulation.table, simulation.complete.mask(hidden))
    assert isinstance(simulation.table.index, pd.DatetimeIndex)
    assert list(simulation.table.columns) == list(simulation.sensors["id"])
    assert simulation.wind.index.equals(simulation.table.index)


def test_readings_look_like_particulate_matter(simulation: Simulation) -> None:
    values = simulation.complete.to_numpy()
    assert values.min() > 0
    assert 25 < np.median(values) < 75
    assert 200 < values.max() < 600
    assert np.abs(np.diff(values, axis=0)).mean() > 5


def test_the_same_seed_gives_the_same_everything() -> None:
    first, second = simulate(sensors=6, steps=100, seed=3), simulate(sensors=6, steps=100, seed=3)
    for name in ("complete", "table", "sensors", "edges", "wind"):
        pd.testing.assert_frame_equal(getattr(first, name), getattr(second, name))
    np.testing.assert_array_equal(first.ridge, second.ridge)
    assert first.config == second.config
    assert first.seed == 3


def test_another_seed_gives_another_network() -> None:
    first, second = simulate(sensors=6, steps=100, seed=3), simulate(sensors=6, steps=100, seed=4)
    assert not np.allclose(first.sensors["latitude"], second.sensors["latitude"])
    assert not np.allclose(first.complete, second.complete)


@pytest.mark.parametrize("holes", [None, Holes(points=0.4, blocks=0, outages=0, high_values=0)])
def test_other_holes_leave_the_readings_as_they_are(simulation: Simulation, holes: Holes | None) -> None:
    other = simulate(holes=holes)
    pd.testing.assert_frame_equal(other.complete, simulation.complete)
    pd.testing.assert_frame_equal(other.edges, simulation.edges)
    assert not other.table.equals(simulation.table)


def test_without_holes_the_table_is_a_copy_of_the_complete_readings() -> None:
    simulation = simulate(sensors=4, steps=50, holes=None)
    pd.testing.assert_frame_equal(simulation.table, simulation.complete)
    simulation.table.iloc[0, 0] = -1.0
    assert simulation.complete.iloc[0, 0] > 0


def test_the_configuration_is_plain_data_and_repeats_the_simulation() -> None:
    first = simulate(
        sensors=np.int64(5), steps=60, start=pd.Timestamp("2023-05-01"), step=pd.Timedelta("15min"), holes=Holes()
    )
    told = json.loads(json.dumps(dataclasses.asdict(first.config)))
    second = simulate(**{**told, "holes": Holes(**told["holes"])})
    pd.testing.assert_frame_equal(first.table, second.table)


# ---- geometry and graph


def test_sensors_keep_their_distance_and_the_density_stays_when_the_network_grows() -> None:
    for count in (24, 150):
        places = places_km(simulate(sensors=count, steps=24)).to_numpy()
        distances = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
        np.fill_diagonal(distances, np.inf)
        assert distances.min() > 3
        assert 5 < np.median(distances.min(axis=1)) < 14
    small = places_km(simulate(steps=24))
    assert 45 < np.ptp(small["north"]) < 65


@pytest.mark.parametrize("seed", range(5))
def test_no_edge_crosses_the_ridge(seed: int) -> None:
    simulation = simulate(sensors=60, steps=240, seed=seed)
    is_east = east_of_ridge(simulation)
    assert 0.2 < is_east.mean() < 0.8
    sides = is_east[simulation.edges["source"]].to_numpy(), is_east[simulation.edges["target"]].to_numpy()
    np.testing.assert_array_equal(*sides)
    assert len(simulation.edges) > 60


def test_a_line_that_is_touched_or_crossed_blocks_and_one_that_is_passed_does_not() -> None:
    line = np.array([[0.0, -1.0], [0.0, 0.0], [1.0, 1.0]])
    start = np.array([[-1.0, -0.5], [-1.0, 0.0], [-1.0, 0.0], [0.5, 1.5], [-1.0, -2.0]])
    end = np.array([[1.0, -0.5], [0.0, 0.0], [-0.5, 5.0], [1.5, 0.5], [1.0, -2.0]])
    assert module._crosses(start, end, line).tolist() == [True, True, False, True, False]


def test_edges_are_near_lagged_by_distance_and_follow_the_wind(simulation: Simulation) -> None:
    edges, places = simulation.edges, places_km(simulation)
    way = places.loc[edges["target"]].to_numpy() - places.loc[edges["source"]].to_numpy()
    distance = np.hypot(way[:, 0], way[:, 1])
    assert distance.max() <= 24.01
    assert edges["lag"].min() >= 1
    np.testing.assert_array_equal(edges["lag"], np.maximum(np.rint(distance / 6.0), 1))
    assert edges.duplicated(["source", "target"]).sum() == 0
    bearing = np.degrees(np.arctan2(way[:, 0], way[:, 1]))
    towards = np.cos(np.radians(bearing[:, None] - simulation.wind["direction"].to_numpy()))
    assert (np.mean(towards > 0.5, axis=1) >= 0.25 - 1e-9).all()
    assert np.corrcoef(edges["weight"], np.mean(np.maximum(towards, 0), axis=1))[0, 1] > 0.3


def test_weights_are_positive_and_with_the_own_memory_stay_below_one() -> None:
    for step in ("5min", "1h", "1D"):
        simulation = simulate(sensors=50, steps=100, step=step)
        kept = np.exp(-pd.Timedelta(step) / pd.Timedelta(hours=0.9))
        assert (simulation.edges["weight"] > 0).all()
        assert simulation.edges.groupby("target")["weight"].sum().max() + kept < 1


def test_lags_count_steps_and_not_hours() -> None:
    hourly, often = simulate(steps=500), simulate(steps=500, step="10min")
    assert often.edges["lag"].median() == pytest.approx(6 * hourly.edges["lag"].median(), rel=0.35)


def test_a_puff_reaches_its_targets_after_exactly_the_lags_of_the_way() -> None:
    edges = module._Edges(
        source=np.array([0, 1]),
        target=np.array([1, 2]),
        lag=np.array([2, 3]),
        distance=np.array([10.0, 18.0]),
        bearing=np.radians([90.0, 90.0]),
    )
    emitted = np.zeros((20, 4))
    emitted[5, 0] = 100.0
    wind = {"speed": np.full(20, 9.0), "direction": np.full(20, 90.0)}
    local, weights = module._transport(emitted, edges, hours=1.0, burn_in=0, **wind)
    first = [int(np.argmax(column > 0)) if column.any() else None for column in local.T]
    assert first == [5, 7, 10, None]
    assert (weights > 0).all()
    # The coefficient that the weight tells is the one that carried the puff.
    assert local[7, 1] == pytest.approx(weights[0] * local[5, 0])
    against, none = module._transport(
        emitted, edges, speed=wind["speed"], direction=wind["direction"] + 180, hours=1.0, burn_in=0
    )
    assert against[:, 1:].max() == 0
    assert none.max() == pytest.approx(0, abs=1e-12)


def test_the_background_correlates_the_two_sides_of_the_ridge(simulation: Simulation) -> None:
    is_east = east_of_ridge(simulation)
    across = simulation.complete.corr().loc[is_east[is_east].index, is_east[~is_east].index]
    assert across.to_numpy().mean() > 0.1


def test_neighbours_know_more_about_a_gap_than_linear_interpolation_does(simulation: Simulation) -> None:
    values, hidden = simulation.complete.to_numpy(), simulation.hidden().to_numpy()
    straight = simulation.table.interpolate(limit_direction="both").to_numpy()
    linear_errors, neighbour_errors = [], []
    for sensor in range(values.shape[1]):
        others = np.delete(values, sensor, axis=1)
        lagged = [np.roll(others, shift, axis=0) for shift in range(-2, 3)]
        inputs = np.hstack([*lagged, np.ones((len(values), 1))])
        gap = hidden[:, sensor]
        weights = np.linalg.solve(
            inputs[~gap].T @ inputs[~gap] + 1e4 * np.eye(inputs.shape[1]), inputs[~gap].T @ values[~gap, sensor]
        )
        neighbour_errors.append(np.abs(inputs[gap] @ weights - values[gap, sensor]))
        linear_errors.append(np.abs(straight[gap, sensor] - values[gap, sensor]))
    assert np.concatenate(neighbour_errors).mean() < 0.8 * np.concatenate(linear_errors).mean()


# ---- stability


@settings(max_examples=25, deadline=None)
@given(
    sensors=st.integers(2, 40),
    steps=st.integers(24, 120),
    seed=st.integers(0, 2**32),
    step=st.sampled_from(["5min", "30min", "1h", "6h", "1D"]),
)
def test_any_size_step_and_seed_stays_finite_positive_and_bounded(
    sensors: int, steps: int, seed: int, step: str
) -> None:
    simulation = simulate(sensors=sensors, steps=steps, seed=seed, step=step)
    values = simulation.complete.to_numpy()
    assert np.isfinite(values).all()
    assert values.min() > 0
    assert values.max() < 650
    assert (simulation.table.notna().sum() >= 0.1 * steps).all()
    assert simulation.wind["direction"].between(0, 360).all()


# ---- holes


def test_about_a_quarter_is_missing_by_default(simulation: Simulation) -> None:
    assert 0.2 < simulation.hidden().to_numpy().mean() < 0.3


def run_lengths(hidden: pd.DataFrame) -> np.ndarray:
    padded = np.pad(hidden.to_numpy().astype(int), ((1, 1), (0, 0)))
    change = np.diff(padded, axis=0).T
    return np.nonzero(change == -1)[1] - np.nonzero(change == 1)[1]


@pytest.mark.parametrize(
    ("kind", "shortest", "longest"),
    [("points", 1, 1), ("blocks", 3, 24), ("outages", 48, 168), ("high_values", 1, 6)],
)
def test_each_kind_of_hole_has_its_share_and_its_length(kind: str, shortest: int, longest: int) -> None:
    none = {"points": 0.0, "blocks": 0.0, "outages": 0.0, "high_values": 0.0}
    hidden = simulate(sensors=60, holes=Holes(**{**none, kind: 0.1})).hidden()
    assert hidden.to_numpy().mean() == pytest.approx(0.1, abs=0.02)
    typical = np.median(run_lengths(hidden))
    assert shortest <= typical <= longest


def test_high_readings_fail_more_often() -> None:
    simulation = simulate(holes=Holes(points=0, blocks=0, outages=0, high_values=0.1))
    ranks = simulation.complete.rank(pct=True).to_numpy()
    hidden = simulation.hidden().to_numpy()
    assert ranks[hidden].mean() > 0.7


def test_the_first_rows_have_as_many_holes_as_the_others() -> None:
    hidden = simulate(sensors=300, steps=600, holes=Holes(points=0, outages=0.2)).hidden().to_numpy()
    assert hidden[:24].mean() == pytest.approx(hidden.mean(), abs=0.06)


def test_every_sensor_keeps_some_readings_however_much_fails() -> None:
    simulation = simulate(steps=200, sensors=80, holes=Holes(points=0.5, blocks=0.5, outages=0.5, high_values=0.5))
    assert simulation.hidden().to_numpy().mean() > 0.75
    assert simulation.table.notna().sum().min() >= 20


# ---- what cannot be simulated


@pytest.mark.parametrize("name", ["points", "blocks", "outages", "high_values"])
@pytest.mark.parametrize("share", [-0.1, 0.6, float("nan")])
def test_a_share_of_holes_that_is_none_is_refused(name: str, share: float) -> None:
    with pytest.raises(InputError, match=name):
        Holes(**{name: share})


def test_all_nonsense_sizes_are_told_at_once() -> None:
    with pytest.raises(ProblemsError, match=r"sensors is 1, .*steps is 3\.5, .*seed is -1") as caught:
        simulate(sensors=1, steps=3.5, seed=-1)  # pyright: ignore[reportArgumentType]
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("start", ["yesterdayish", "NaT"])
def test_a_start_that_is_no_time_is_refused(start: str) -> None:
    with pytest.raises(InputError, match=f"start is '{start}'"):
        simulate(start=start)


@pytest.mark.parametrize("step", ["often", "NaT", "0h", "1s", "2D", "-1h"])
def test_a_step_the_physics_cannot_follow_is_refused(step: str) -> None:
    with pytest.raises(InputError, match=f"step is '{step}', but a step between one minute and one day"):
        simulate(step=step)
