"""What every imputer promises, whichever method it is; a new method is tested by being listed in METHODS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from casper.contract import Imputer
from casper.datasets import Benchmark, Protocol
from casper.errors import InputError
from casper.methods import METHODS, has_network, load_model, make_imputer
from casper.metrics import window_counts
from casper.neural import NeuralImputer
from casper.simulate import Simulation

Make = Callable[[], Imputer]

SHORT = 30  # steps of the tables that hypothesis punches holes into
FEW = settings(max_examples=15, deadline=None, database=None, derandomize=True)


def with_dead_sensor(table: pd.DataFrame, sensor: str) -> pd.DataFrame:
    dead = table.copy()
    dead[sensor] = np.nan
    return dead


def hurried(name: str) -> Imputer:
    """A method without a network; chained equations go round a hundred times if nobody stops them."""
    return make_imputer(name, **({"rounds": 3} if name == "mice" else {}))


def same_bits(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Also tells -0.0 from 0.0, which an equality would not."""
    measured = one.notna().to_numpy()
    return all(
        one.iloc[:, column].to_numpy()[measured[:, column]].tobytes()
        == other.iloc[:, column].to_numpy()[measured[:, column]].tobytes()
        for column in range(one.shape[1])
    )


# ---------------------------------------------------------------------- the table comes back, without holes


def test_fit_returns_the_imputer_itself(make: Make, six_sensors: Simulation) -> None:
    imputer = make()
    assert imputer.fit(six_sensors.table, sensors=six_sensors.sensors) is imputer


def test_no_hole_is_left(fitted: Imputer, six_sensors: Simulation) -> None:
    assert six_sensors.table.isna().to_numpy().any()
    assert np.isfinite(fitted.impute(six_sensors.table).to_numpy()).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_observed_values_come_back_bit_for_bit(fitted: Imputer, six_sensors: Simulation, dtype: str) -> None:
    table = six_sensors.table.astype(dtype)
    table.iloc[3, 2] = -0.0
    filled = fitted.impute(table)
    assert list(filled.dtypes) == [np.dtype(dtype)] * 6
    assert same_bits(table, filled)


def test_integer_columns_stay_integers_and_keep_their_readings(fitted: Imputer, six_sensors: Simulation) -> None:
    table = six_sensors.table.copy()
    table["S1"] = six_sensors.complete["S1"].round().astype("int64")
    table["S2"] = six_sensors.table["S2"].round().astype("Int64")
    filled = fitted.impute(table)
    pd.testing.assert_series_equal(filled["S1"], table["S1"])
    assert filled["S2"].dtype == "Int64"
    assert filled["S2"].notna().all()
    measured = table["S2"].notna()
    assert (filled["S2"][measured] == table["S2"][measured]).all()
    assert any("whole numbers" in note for note in filled.attrs["casper"]["notes"])


def test_nothing_is_filled_beyond_the_ends_of_a_scale(fitted: Imputer, six_sensors: Simulation) -> None:
    middle = six_sensors.table.median()
    rain = (six_sensors.table - middle).clip(lower=0.0)
    assert fitted.impute(rain).to_numpy().min() >= 0.0
    full = (six_sensors.table - middle).clip(upper=0.0) + 100.0
    assert fitted.impute(full).to_numpy().max() <= 100.0


def test_the_callers_table_is_left_alone(make: Make, six_sensors: Simulation) -> None:
    table = six_sensors.table.copy()
    before = table.copy(deep=True)
    filled = make().fit_transform(table, sensors=six_sensors.sensors)
    filled.iloc[:] = 0.0  # nor do the two share memory
    pd.testing.assert_frame_equal(table, before, check_exact=True)
    assert not table.attrs


def test_names_order_and_index_come_back(fitted: Imputer, six_sensors: Simulation) -> None:
    table = six_sensors.table[["S4", "S1", "S6", "S2", "S5", "S3"]].rename_axis(index="when", columns="station")
    filled = fitted.impute(table)
    pd.testing.assert_index_equal(filled.index, table.index, exact=True)
    pd.testing.assert_index_equal(filled.columns, table.columns, exact=True)


def test_a_time_zone_comes_back(make: Make, six_sensors: Simulation) -> None:
    table = six_sensors.table.tz_localize("Asia/Tokyo")
    filled = make().fit_transform(table, sensors=six_sensors.sensors)
    pd.testing.assert_index_equal(filled.index, table.index, exact=True)
    assert filled.notna().to_numpy().all()


def test_a_table_without_holes_comes_back_unchanged(fitted: Imputer, six_sensors: Simulation) -> None:
    filled = fitted.impute(six_sensors.complete)
    pd.testing.assert_frame_equal(filled, six_sensors.complete, check_exact=True)


def test_numbers_that_stand_for_a_hole_are_filled(make: Make, six_sensors: Simulation) -> None:
    table = six_sensors.table.fillna(-999.0)
    filled = make().fit_transform(table, sensors=six_sensors.sensors, missing_values=[-999.0])
    assert (filled.to_numpy() > -999.0).all()
    assert same_bits(six_sensors.table, filled)


def test_rows_that_the_table_left_out_are_not_added(make: Make, six_sensors: Simulation) -> None:
    table = six_sensors.table.drop(six_sensors.table.index[[40, 41, 90]])
    filled = make().fit_transform(table, sensors=six_sensors.sensors)
    pd.testing.assert_index_equal(filled.index, table.index)
    assert filled.notna().to_numpy().all()


def test_a_dead_sensor_is_filled_and_flagged(make: Make, six_sensors: Simulation) -> None:
    table = with_dead_sensor(six_sensors.table, "S3")
    filled = make().fit_transform(table, sensors=six_sensors.sensors)
    assert np.isfinite(filled["S3"]).all()
    assert filled.attrs["casper"]["flagged"] == ["S3"]


def test_a_sensor_that_died_after_fitting_is_filled_and_flagged(fitted: Imputer, six_sensors: Simulation) -> None:
    filled = fitted.impute(with_dead_sensor(six_sensors.table, "S5"))
    assert np.isfinite(filled["S5"]).all()
    assert filled.attrs["casper"]["flagged"] == ["S5"]
    assert filled.attrs["casper"]["method"] == fitted.name


def test_fit_transform_is_fit_and_then_impute(make: Make, fitted: Imputer, six_sensors: Simulation) -> None:
    at_once = make().fit_transform(six_sensors.table, sensors=six_sensors.sensors)
    pd.testing.assert_frame_equal(at_once, fitted.impute(six_sensors.table), check_exact=True)
    pd.testing.assert_frame_equal(at_once, fitted.transform(six_sensors.table), check_exact=True)


@pytest.mark.parametrize("kind", ["distances", "adjacency", "nothing"])
def test_the_graph_may_come_from_a_matrix_or_from_the_readings(make: Make, six_sensors: Simulation, kind: str) -> None:
    matrix = np.abs(np.arange(6.0)[:, None] - np.arange(6.0)) + (kind == "adjacency")
    filled = make().fit_transform(six_sensors.table, **({} if kind == "nothing" else {kind: matrix}))
    assert filled.notna().to_numpy().all()


# ---------------------------------------------------------------------- what is refused


def test_imputing_before_fitting_is_refused(make: Make, six_sensors: Simulation, small_benchmark: Benchmark) -> None:
    with pytest.raises(InputError, match="not fitted yet; call fit"):
        make().impute(six_sensors.table)
    with pytest.raises(InputError, match="not fitted yet; call fit"):
        next(iter(make().impute_windows(small_benchmark)))


def test_a_table_of_other_sensors_is_refused_by_name(fitted: Imputer, six_sensors: Simulation) -> None:
    with pytest.raises(InputError, match=r"lacks S2, S4 and the model does not know X9; fit a model"):
        fitted.impute(six_sensors.table.drop(columns="S4").rename(columns={"S2": "X9"}))
    with pytest.raises(InputError, match=r"other sensors: the model does not know S7;"):
        fitted.impute(six_sensors.table.assign(S7=1.0))


def test_a_table_of_another_step_is_refused_with_both_steps(fitted: Imputer, six_sensors: Simulation) -> None:
    with pytest.raises(InputError, match=r"steps of 01:00:00, this table has steps of 02:00:00"):
        fitted.impute(six_sensors.table.iloc[::2])


def test_a_benchmark_of_other_sensors_is_refused(fitted: Imputer, small_benchmark: Benchmark) -> None:
    names = tuple(f"other{number}" for number in range(6))
    other = replace(small_benchmark, frame=replace(small_benchmark.frame, sensors=names))
    with pytest.raises(InputError, match="other sensors than those of small"):
        next(iter(fitted.impute_windows(other)))


def test_a_saved_model_gives_the_same_numbers(fitted: Imputer, six_sensors: Simulation, tmp_path: Path) -> None:
    if not isinstance(fitted, NeuralImputer):
        pytest.skip("only models with a network are kept")
    loaded = load_model(fitted.save_pretrained(tmp_path / "model"), device="cpu")
    assert type(loaded) is type(fitted)
    assert loaded.config == fitted.config
    pd.testing.assert_frame_equal(loaded.impute(six_sensors.table), fitted.impute(six_sensors.table), check_exact=True)


def test_a_method_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(InputError, match="no method 'magic'; choose one of casper, mean, linear, knn"):
        make_imputer("magic")


def test_every_method_has_its_own_name_and_says_what_it_does() -> None:
    assert list(METHODS) == [method.name for method in METHODS.values()]
    assert len({method.summary for method in METHODS.values()}) == len(METHODS)


# ---------------------------------------------------------------------- properties


@FEW
@given(holes=arrays(np.bool_, (SHORT, 6)))
def test_any_pattern_of_holes_is_filled_around_the_readings(
    fitted: Imputer, six_sensors: Simulation, holes: np.ndarray
) -> None:
    assume(not holes.all())
    table = six_sensors.complete.iloc[:SHORT].mask(holes)
    filled = fitted.impute(table)
    assert np.isfinite(filled.to_numpy()).all()
    assert same_bits(table, filled)


@FEW
@given(order=st.permutations(range(6)))
def test_sensors_in_another_order_are_filled_alike(fitted: Imputer, six_sensors: Simulation, order: list[int]) -> None:
    table = six_sensors.table
    permuted = fitted.impute(table.iloc[:, order])
    pd.testing.assert_frame_equal(permuted, fitted.impute(table).iloc[:, order], check_exact=True)


@pytest.mark.parametrize("name", [name for name in METHODS if not has_network(name)])
@FEW
@given(order=st.permutations(range(6)))
def test_a_baseline_fitted_in_another_order_fills_alike(six_sensors: Simulation, name: str, order: list[int]) -> None:
    table, places = six_sensors.table, six_sensors.sensors
    straight = hurried(name).fit_transform(table, sensors=places)
    permuted = hurried(name).fit_transform(table.iloc[:, order], sensors=places.iloc[order])
    pd.testing.assert_frame_equal(permuted, straight.iloc[:, order], rtol=1e-12)


@pytest.mark.parametrize("name", [name for name in METHODS if not has_network(name)])
@FEW
@given(factor=st.floats(0.01, 100), shift=st.floats(-1000, 1000))
def test_other_units_give_the_same_answer_in_those_units(
    six_sensors: Simulation, name: str, factor: float, shift: float
) -> None:
    table, places = six_sensors.table, six_sensors.sensors
    filled = hurried(name).fit_transform(table, sensors=places)
    in_other_units = hurried(name).fit_transform(factor * table + shift, sensors=places)
    pd.testing.assert_frame_equal(in_other_units, factor * filled + shift, rtol=1e-9, atol=1e-9)


def test_casper_fitted_in_other_units_gives_the_same_answer_in_those_units(six_sensors: Simulation) -> None:
    table, places = six_sensors.table, six_sensors.sensors
    options = {"window": 12, "width": 8, "heads": 2, "layers": 1, "prompts": 8, "epochs": 1, "batches_per_epoch": 8}
    celsius = make_imputer("casper", device="cpu", **options).fit_transform(table, sensors=places)
    fahrenheit = make_imputer("casper", device="cpu", **options).fit_transform(1.8 * table + 32, sensors=places)
    # Rounding differs, and a training passes it on: a thousandth of the readings' spread is allowed.
    np.testing.assert_allclose((fahrenheit - 32) / 1.8, celsius, atol=1e-3 * float(np.nanstd(table)), rtol=0)


# ---------------------------------------------------------------------- benchmarks


def windows_of(imputer: Imputer, benchmark: Benchmark) -> Iterator[np.ndarray]:
    imputer.fit_benchmark(benchmark)
    starts, filled = zip(*imputer.impute_windows(benchmark), strict=True)
    np.testing.assert_array_equal(np.concatenate(starts), benchmark.test_starts)
    yield from np.concatenate(filled)


def test_what_is_hidden_in_the_test_never_influences_the_answer(make: Make, small_benchmark: Benchmark) -> None:
    secret = small_benchmark.hidden & small_benchmark.test_steps[:, None]
    assert secret.sum() > 50
    frame = replace(small_benchmark.frame, values=np.where(secret, 1e6, small_benchmark.values))
    honest, tampered = make(), make()
    for one, other in zip(
        windows_of(honest, small_benchmark), windows_of(tampered, replace(small_benchmark, frame=frame)), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_out_of_sample_no_reading_of_the_test_steps_is_fitted_on(make: Make, small_benchmark: Benchmark) -> None:
    """Whatever was measured there: what the method does in another table stays the same."""
    tested = small_benchmark.test_steps[:, None]
    louder = replace(small_benchmark.frame, values=np.where(tested, 7.0, small_benchmark.values))
    elsewhere = small_benchmark.frame.hide(small_benchmark.hidden | tested)

    def answers(protocol: Protocol) -> list[np.ndarray]:
        told: list[np.ndarray] = []
        for frame in (small_benchmark.frame, louder):
            imputer = make()
            imputer.fit_benchmark(replace(small_benchmark, frame=frame, protocol=protocol))
            told.append(imputer.impute_frame(elsewhere))
        return told

    np.testing.assert_array_equal(*answers("out-of-sample"))
    # In sample they are fitted on. Interpolation fits nothing but means, which hardly any hole here needs.
    assert make().name == "linear" or not np.array_equal(*answers("in-sample"))


def test_what_is_visible_does_influence_the_answer(make: Make, small_benchmark: Benchmark) -> None:
    """Otherwise the test above would prove nothing."""
    seen = small_benchmark.visible & ~small_benchmark.test_steps[:, None]
    louder = replace(small_benchmark.frame, values=np.where(seen, small_benchmark.values + 100, small_benchmark.values))
    one = np.stack(list(windows_of(make(), small_benchmark)))
    other = np.stack(list(windows_of(make(), replace(small_benchmark, frame=louder))))
    # Linear interpolation looks beyond the test period only where a series begins with a hole.
    assert make().name == "linear" or not np.array_equal(one, other)


def test_the_windows_of_a_benchmark_have_its_shape_and_no_holes(make: Make, small_benchmark: Benchmark) -> None:
    filled = np.stack(list(windows_of(make(), small_benchmark)))
    assert filled.shape == (len(small_benchmark.test_starts), 6, small_benchmark.window)
    assert np.isfinite(filled).all()


def test_casper_is_trained_without_any_hidden_cell_but_those_it_watches(
    small_benchmark: Benchmark, tiny_settings: dict[str, object]
) -> None:
    steps = len(small_benchmark.values)
    watched = window_counts(small_benchmark.validation_starts, small_benchmark.window, steps) > 0
    secret = small_benchmark.hidden & ~watched[:, None]
    frame = replace(small_benchmark.frame, values=np.where(secret, -1e6, small_benchmark.values))
    honest, tampered = (make_imputer("casper", device="cpu", **tiny_settings) for _ in range(2))
    honest.fit_benchmark(small_benchmark)
    tampered.fit_benchmark(replace(small_benchmark, frame=frame))
    assert honest.network is not None
    assert tampered.network is not None
    for name, weight in honest.network.state_dict().items():
        assert weight.equal(tampered.network.state_dict()[name]), name
    assert [record.train_loss for record in honest.result.history] == [
        record.train_loss for record in tampered.result.history
    ]
