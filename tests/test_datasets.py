from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from casper import datasets
from casper.datasets import NAMES, Benchmark, data_folder, load, verify
from casper.datasets._splits import split_by_months, split_in_order
from casper.errors import InputError, MissingPackageError
from casper.graph import SensorGraph, gaussian_kernel, graph_from_adjacency, great_circle_km
from casper.masks import next_month_pattern
from casper.methods import settings_for
from casper.metrics import score_cells, score_table


@pytest.fixture(scope="module")
def aqi36(shared_data: Path) -> Benchmark:
    return load("aqi36", data_dir=shared_data)


@pytest.fixture(scope="module")
def metr_la_point(shared_data: Path) -> Benchmark:
    return load("metr-la-point", data_dir=shared_data)


@pytest.fixture(scope="module")
def metr_la_block(shared_data: Path) -> Benchmark:
    return load("metr-la-block", data_dir=shared_data)


def column_means(values: NDArray[np.float64], seen: NDArray[np.bool_]) -> NDArray[np.float64]:
    mean = np.where(seen, values, 0.0).sum(axis=0) / seen.sum(axis=0)
    return np.broadcast_to(mean, values.shape)


def interpolated(benchmark: Benchmark) -> NDArray[np.float64]:
    steps = np.arange(len(benchmark.values))
    filled = [
        np.interp(steps, steps[seen], column[seen])
        for column, seen in zip(benchmark.values.T, benchmark.visible.T, strict=True)
    ]
    return np.stack(filled, axis=1)


# ---------------------------------------------------------------- the published figures


@pytest.mark.parametrize("name", ["aqi36", "metr-la-point", "metr-la-block"])
def test_every_published_count_and_hash_is_met(name: str, shared_data: Path):
    checks = verify(name, data_dir=shared_data)
    assert [check for check in checks if not check.ok] == []
    assert len(checks) > 15


@pytest.mark.parametrize(
    ("window", "windows", "test", "validation", "train"), [(36, 8724, 2788, 564, 4948), (24, 8736, 2836, 568, 5052)]
)
def test_months_split_as_published(window: int, windows: int, test: int, validation: int, train: int):
    times = pd.date_range("2014-05-01 01:00", "2015-04-30 23:00", freq="h")
    split = split_by_months(times, window)
    assert len(times) - window + 1 == windows
    assert (split.test.size, split.validation.size, split.train.size) == (test, validation, train)
    first, last = times[split.test], times[split.test + window - 1]
    assert set(first.month) | set(last.month) == {3, 6, 9, 12}


@pytest.mark.parametrize(
    ("steps", "train_end", "validation", "test"),
    [(34272, 24635, (24660, 27375), (27400, 34248)), (52128, 37491, (37516, 41659), (41684, 52104))],
    ids=["METR-LA", "PEMS-BAY"],
)
def test_traffic_splits_in_order_as_published(
    steps: int, train_end: int, validation: tuple[int, int], test: tuple[int, int]
):
    split = split_in_order(steps, 24)
    assert (split.train[0], split.train[-1]) == (0, train_end)
    assert (split.validation[0], split.validation[-1]) == validation
    assert (split.test[0], split.test[-1]) == test


@pytest.mark.parametrize("name", ["aqi36", "metr_la_point"])
def test_training_windows_share_no_step_with_validation_or_test_windows(name: str, request: pytest.FixtureRequest):
    benchmark: Benchmark = request.getfixturevalue(name)
    trained = benchmark.train_steps
    offsets = np.arange(benchmark.window)
    assert trained[benchmark.train_starts[:, None] + offsets].all()
    assert not (trained & benchmark.test_steps).any()
    assert not trained[benchmark.validation_starts[:, None] + offsets].any()


def test_the_scaler_of_window_24_is_the_published_one(aqi36: Benchmark):
    split = split_by_months(aqi36.frame.times, 24)
    shorter = replace(aqi36, window=24, train_starts=split.train, test_starts=split.test)
    assert shorter.scaler() == pytest.approx((90.6593, 83.4910), abs=5e-5)
    scored = shorter.hidden & shorter.test_steps[:, None]
    assert int(scored.sum()) == 20434


def test_hidden_cells_are_observed_and_never_visible(aqi36: Benchmark, metr_la_block: Benchmark):
    for benchmark in (aqi36, metr_la_block):
        assert not (benchmark.hidden & ~benchmark.observed).any()
        assert not (benchmark.hidden & benchmark.visible).any()
        assert np.isfinite(benchmark.values[benchmark.observed]).all()


def test_gaps_of_the_months_after_test_months_are_never_copied(aqi36: Benchmark, metr_la_point: Benchmark):
    months = set(aqi36.frame.times[aqi36.gap_source_steps].month)
    assert months == {2, 5, 8, 11}
    assert not (aqi36.gap_source_steps & ~aqi36.train_steps).any()
    np.testing.assert_array_equal(metr_la_point.gap_source_steps, metr_la_point.train_steps)


# ---------------------------------------------------------------- graphs


def test_the_graph_of_metr_la_is_directed_and_symmetrises_to_the_published_count(metr_la_point: Benchmark):
    graph = metr_la_point.graph
    assert graph.source.size == 1515
    assert graph.weight.sum(dtype=np.float64) == pytest.approx(607.5817, abs=5e-5)
    assert graph.symmetric().source.size == 2626
    assert metr_la_point.kernel_width == pytest.approx(2584.4502, abs=1e-4)
    np.testing.assert_array_equal(metr_la_point.adjacency, graph.adjacency())


def test_the_graph_of_pems_bay_is_the_published_one(shared_data: Path):
    graph = kernel_graph(np.load(shared_data / "pems_bay_distances.npy"), width=None)
    assert graph.source.size == 2369
    assert graph.weight.sum(dtype=np.float64) == pytest.approx(1329.7470, abs=5e-5)
    assert graph.symmetric().source.size == 4158


def test_the_graph_of_all_437_stations_is_the_published_one(shared_data: Path):
    distances = np.load(shared_data / "aqi_distances.npy")
    graph = kernel_graph(distances, width=float(np.std(distances[:36, :36])))
    assert graph.source.size == 5398
    assert graph.weight.sum(dtype=np.float64) == pytest.approx(2806.0832, abs=5e-5)
    assert int((graph.degree() == 0).sum()) == 14


def test_the_distances_of_aqi36_are_those_of_its_coordinates(shared_data: Path):
    stations = pd.read_csv(shared_data / "aqi36_stations.csv")
    km = great_circle_km(stations["latitude"], stations["longitude"])
    np.testing.assert_allclose(
        np.load(shared_data / "aqi_distances.npy")[:36, :36], km, atol=1e-3
    )  # made from rounded coordinates


def kernel_graph(distances: NDArray[np.floating], width: float | None) -> SensorGraph:
    ids = [str(index) for index in range(len(distances))]
    return graph_from_adjacency(gaussian_kernel(distances, width=width), ids=ids)


# ---------------------------------------------------------------- reference scores


def test_the_station_mean_scores_as_published_on_aqi36(aqi36: Benchmark):
    test_months = np.isin(aqi36.frame.times.month, [3, 6, 9, 12])[:, None]
    scored = aqi36.hidden & test_months
    in_sample = score_cells(aqi36.values, column_means(aqi36.values, aqi36.observed & ~scored), scored)
    assert in_sample.mae == pytest.approx(53.4816, abs=5e-5)
    assert in_sample.mse == pytest.approx(4578.08, abs=5e-3)
    out_of_sample = score_cells(aqi36.values, column_means(aqi36.values, aqi36.observed & ~test_months), scored)
    assert out_of_sample.mae == pytest.approx(55.0812, abs=5e-5)
    assert out_of_sample.mse == pytest.approx(4715.70, abs=5e-3)
    assert out_of_sample.mre == pytest.approx(79.07, abs=5e-3)


@pytest.mark.parametrize(
    ("name", "expected", "count"),
    [("metr_la_point", (7.5647, 142.2185, 13.10), 311423), ("metr_la_block", (7.4847, 139.5386, 12.96), 112318)],
)
def test_the_sensor_mean_of_grin_scores_as_published(
    name: str, expected: tuple[float, float, float], count: int, request: pytest.FixtureRequest
):
    benchmark: Benchmark = request.getfixturevalue(name)
    steps = len(benchmark.values)
    scored = benchmark.hidden & (np.arange(steps) >= steps - int(0.2 * steps))[:, None]
    scores = score_cells(benchmark.values, column_means(benchmark.values, benchmark.observed & ~scored), scored)
    assert (scores.mae, scores.mse) == pytest.approx(expected[:2], abs=5e-5)
    assert scores.mre == pytest.approx(expected[2], abs=5e-3)
    assert scores.count == count


def test_the_sensor_mean_of_the_training_steps_scores_as_published_per_step_and_per_window(metr_la_point: Benchmark):
    benchmark = metr_la_point
    means = column_means(benchmark.values, benchmark.visible & benchmark.train_steps[:, None])
    scores = score_table(benchmark.values, means, benchmark.hidden, starts=benchmark.test_starts, window=24)
    assert scores["mae_step"] == pytest.approx(7.5589, abs=5e-5)
    assert scores["mae"] == pytest.approx(7.5678, abs=5e-5)
    assert scores["n_scored"] == 312311


@pytest.mark.parametrize(
    ("name", "mae", "mse"), [("metr_la_point", 2.4355, 14.8119), ("metr_la_block", 3.2697, 33.8094)]
)
def test_linear_interpolation_scores_as_published(name: str, mae: float, mse: float, request: pytest.FixtureRequest):
    benchmark: Benchmark = request.getfixturevalue(name)
    scores = score_table(
        benchmark.values,
        interpolated(benchmark),
        benchmark.hidden,
        starts=benchmark.test_starts,
        window=benchmark.window,
    )
    assert scores["mae_step"] == pytest.approx(mae, abs=5e-5)
    assert scores["mse_step"] == pytest.approx(mse, abs=5e-5)


# ---------------------------------------------------------------- small files of the same layout


def small_pems_bay(folder: Path, *, suffix: str = "h5") -> pd.DataFrame:
    """Three days of four sensors with a missing hour; integer column names, as in the published file."""
    times = pd.date_range("2017-03-11", periods=3 * 288, freq="5min")
    table = pd.DataFrame(np.random.default_rng(0).uniform(1, 70, (len(times), 4)), index=times, columns=range(400, 404))
    table = table.drop(index=pd.date_range("2017-03-12 02:00", periods=12, freq="5min"))
    table.iloc[5, 1] = 0.0
    if suffix == "h5":
        table.to_hdf(folder / "pems-bay.h5", key="speed")
    else:
        table.set_axis([str(name) for name in table.columns], axis=1).to_parquet(folder / "pems_bay.parquet")
    distances = np.random.default_rng(1).uniform(100, 5000, (4, 4)).astype(np.float32)
    np.save(folder / "pems_bay_distances.npy", distances)
    return table


def small_aqi(folder: Path, *, suffix: str = "h5") -> pd.DataFrame:
    times = pd.date_range("2014-05-01", "2015-04-30 23:00", freq="h")
    rng = np.random.default_rng(2)
    values = np.where(rng.random((len(times), 5)) < 0.2, np.nan, rng.uniform(1, 300, (len(times), 5)))
    table = pd.DataFrame(values, index=times, columns=[f"00{index}" for index in range(5)])
    stations = pd.DataFrame({"latitude": 40 + rng.random(5), "longitude": 116 + rng.random(5)}, index=table.columns)
    if suffix == "h5":
        table.to_hdf(folder / "full437.h5", key="pm25")
        stations.to_hdf(folder / "full437.h5", key="stations")
    else:
        table.to_parquet(folder / "aqi.parquet")
    np.save(folder / "aqi_distances.npy", great_circle_km(stations["latitude"], stations["longitude"]))
    return table


@pytest.mark.usefixtures("hdf5")
@pytest.mark.parametrize("suffix", ["h5", "parquet"])
def test_pems_bay_is_put_on_the_full_grid_and_keeps_its_zeros(suffix: str, tmp_path: Path):
    table = small_pems_bay(tmp_path, suffix=suffix)
    benchmark = load("pems-bay-block", data_dir=tmp_path, trust=True)
    assert len(benchmark.frame.times) == len(table) + 12
    assert not benchmark.observed[288 + 24 : 288 + 36].any()
    assert benchmark.observed.sum() == table.size
    assert benchmark.values[5, 1] == 0.0
    assert benchmark.frame.sensors == ("400", "401", "402", "403")
    np.testing.assert_array_equal(benchmark.values[:288], table.to_numpy(dtype=np.float32)[:288])


@pytest.mark.usefixtures("hdf5")
@pytest.mark.parametrize("suffix", ["h5", "parquet"])
def test_aqi_hides_what_is_missing_a_month_later(suffix: str, tmp_path: Path):
    table = small_aqi(tmp_path, suffix=suffix)
    benchmark = load("aqi", data_dir=tmp_path, trust=True)
    assert benchmark.window == 24
    assert isinstance(table.index, pd.DatetimeIndex)
    np.testing.assert_array_equal(benchmark.hidden, next_month_pattern(table.notna().to_numpy(), table.index))
    assert set(benchmark.frame.times[benchmark.test_steps].month) == {3, 6, 9, 12}


@pytest.mark.usefixtures("hdf5")
def test_files_that_are_not_the_published_ones_are_refused_unless_trusted(tmp_path: Path):
    small_pems_bay(tmp_path)
    with pytest.raises(InputError, match=r"pems-bay\.h5 is not the published file \(sha256 .*trust=True"):
        load("pems-bay-point", data_dir=tmp_path)
    small_aqi(tmp_path)
    with pytest.raises(InputError, match=r"full437\.h5 is not the published file \(git blob"):
        load("aqi", data_dir=tmp_path)


def test_a_file_without_a_published_checksum_is_refused_unless_trusted(tmp_path: Path):
    small_aqi(tmp_path, suffix="parquet")
    with pytest.raises(InputError, match=r"no published checksum is known for .*aqi\.parquet"):
        load("aqi", data_dir=tmp_path)


@pytest.mark.usefixtures("hdf5")
def test_verification_does_not_open_a_foreign_hdf5_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    small_pems_bay(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("the file was opened")

    monkeypatch.setattr(pd, "read_hdf", refuse)
    checks = verify("pems-bay-point", data_dir=tmp_path)
    assert [check.what for check in checks] == ["sha256 of pems-bay.h5", "sha256 of pems_bay_distances.npy"]
    assert not any(check.ok for check in checks)


def test_verification_shows_what_differs_in_a_foreign_table(tmp_path: Path):
    small_pems_bay(tmp_path, suffix="parquet")
    by_name = {check.what: check for check in verify("pems-bay-point", data_dir=tmp_path)}
    assert (by_name["sensors"].expected, by_name["sensors"].found) == ("325", "4")
    assert "sha256 of the drawn cells" in by_name
    small_aqi(tmp_path, suffix="parquet")
    assert not all(check.ok for check in verify("aqi", data_dir=tmp_path))


def test_the_git_blob_id_is_what_git_would_say(tmp_path: Path):
    (tmp_path / "full437.h5").write_bytes(b"what is up, doc?")
    np.save(tmp_path / "aqi_distances.npy", np.zeros((2, 2)))
    checks = verify("aqi", data_dir=tmp_path)
    assert checks[0].found == "bd9dbf5aae1a3862dd1526723246b20206e5fc37"


# ---------------------------------------------------------------- what can be wrong


def test_an_unknown_benchmark_is_answered_with_those_there_are(shared_data: Path):
    assert len(NAMES) == 6
    for ask in (load, verify):
        with pytest.raises(InputError, match="choose one of aqi36, aqi, metr-la-point"):
            ask("metr-la", data_dir=shared_data)


def test_a_missing_file_is_named_with_its_folder_and_its_publisher(tmp_path: Path):
    with pytest.raises(InputError, match=r"metr_la\.parquet or metr-la\.h5.*is not in .*DCRNN") as caught:
        load("metr-la-point", data_dir=tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_the_folder_comes_from_the_argument_then_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CASPER_DATA", raising=False)
    with pytest.raises(InputError, match="set the environment variable CASPER_DATA"):
        data_folder()
    monkeypatch.setenv("CASPER_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    (tmp_path / "other").mkdir()
    assert data_folder(tmp_path / "other") == tmp_path / "other"
    with pytest.raises(InputError, match="does not exist"):
        data_folder(tmp_path / "nowhere")


@pytest.mark.usefixtures("hdf5")
def test_reading_hdf5_says_which_package_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    small_aqi(tmp_path)

    def nothing_installed(name: str) -> None:
        return None

    monkeypatch.setattr("importlib.util.find_spec", nothing_installed)
    with pytest.raises(MissingPackageError, match=r"casper-impute\[hdf5\]"):
        load("aqi", data_dir=tmp_path, trust=True)


@pytest.mark.usefixtures("hdf5")
def test_a_file_with_something_else_in_it_is_refused(tmp_path: Path):
    small_aqi(tmp_path)
    pd.DataFrame({"a": [1.0]}).to_hdf(tmp_path / "full437.h5", key="other", mode="w")
    with pytest.raises(InputError, match=r"full437\.h5 does not hold the expected table"):
        load("aqi", data_dir=tmp_path, trust=True)
    (tmp_path / "full437.h5").unlink()
    pd.DataFrame({"a": [1.0]}).to_parquet(tmp_path / "aqi.parquet")
    with pytest.raises(InputError, match="rows are labelled by time"):
        load("aqi", data_dir=tmp_path, trust=True)


def test_times_out_of_order_are_refused(tmp_path: Path):
    table = small_aqi(tmp_path, suffix="parquet")
    table.iloc[::-1].to_parquet(tmp_path / "aqi.parquet")
    with pytest.raises(InputError, match="not in order or repeat"):
        load("aqi", data_dir=tmp_path, trust=True)


def test_a_mask_that_does_not_fit_the_readings_is_refused(shared_data: Path, tmp_path: Path):
    for name in ("aqi36.parquet", "aqi_distances.npy"):
        shutil.copy(shared_data / name, tmp_path / name)
    pd.read_parquet(shared_data / "aqi36_eval_mask.parquet").iloc[1:].to_parquet(tmp_path / "aqi36_eval_mask.parquet")
    with pytest.raises(InputError, match="do not have the same rows and columns"):
        load("aqi36", data_dir=tmp_path, trust=True)


def test_the_public_names_are_all_there():
    assert all(hasattr(datasets, name) for name in datasets.__all__)


def test_the_rehearsal_of_aqi36_touches_no_test_month(aqi36: Benchmark, shared_data: Path):
    rehearsal = load("aqi36-rehearsal", data_dir=shared_data)
    months = np.asarray(rehearsal.frame.times.month)
    assert set(months[rehearsal.test_steps]) == {2, 5, 8, 11}
    assert set(months[rehearsal.train_steps | rehearsal.validation_steps | rehearsal.gap_source_steps]) == {1, 4, 7, 10}
    touched = rehearsal.train_steps | rehearsal.validation_steps | rehearsal.test_steps
    assert not (touched & aqi36.test_steps).any()
    assert not (rehearsal.train_steps & rehearsal.validation_steps).any()
    np.testing.assert_array_equal(rehearsal.hidden, aqi36.hidden)


def test_a_rehearsal_has_the_settings_of_its_benchmark():
    assert settings_for("casper", "best", "aqi36-rehearsal") == settings_for("casper", "best", "aqi36")
    assert settings_for("grin", "best", "aqi36-rehearsal") == {"window": 36}
