"""`impute(table, intervals=...)` from end to end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from casper import Casper, InputError, make_imputer
from casper.baselines.kriging import KrigingImputer
from casper.datasets import Benchmark
from casper.evaluate import evaluate
from casper.filled import Filled
from casper.frame import from_arrays
from casper.intervals import calibrated
from casper.intervals.calibration import Calibration, HeldBack
from casper.intervals.cell_facts import beside_a_reading
from casper.intervals.scores import _standard_error, gap_names
from casper.masks import LONG_GAP, beside_long_gaps
from casper.simulate import Holes, Simulation, simulate
from casper.training.checkpoint import read_tensors, write_tensors

SHARES = (0.5, 0.9)


@pytest.fixture(scope="module")
def filled(tiny_casper: Casper, six_sensors: Simulation) -> Filled:
    return tiny_casper.impute(six_sensors.table, intervals=SHARES)


def test_the_table_is_the_one_without_intervals(filled: Filled, tiny_casper: Casper, six_sensors: Simulation) -> None:
    pd.testing.assert_frame_equal(filled.table, tiny_casper.impute(six_sensors.table))
    pd.testing.assert_frame_equal(filled.observed, six_sensors.table.notna())


def test_readings_have_no_error_bars_and_filled_values_lie_within_theirs(filled: Filled) -> None:
    seen, values = filled.observed.to_numpy(), filled.table.to_numpy()
    for share in SHARES:
        lower, upper = filled.lower[share].to_numpy(), filled.upper[share].to_numpy()
        np.testing.assert_array_equal(lower[seen], values[seen])
        np.testing.assert_array_equal(upper[seen], values[seen])
        assert (lower[~seen] <= values[~seen]).all()
        assert (values[~seen] <= upper[~seen]).all()
    width = {share: (filled.upper[share] - filled.lower[share]).to_numpy()[~seen] for share in SHARES}
    assert (width[0.9] >= width[0.5]).all()
    assert width[0.5].min() > 0
    assert filled.shares == SHARES


def test_nothing_negative_is_expected_where_nothing_negative_was_read(filled: Filled) -> None:
    assert filled.table.to_numpy()[filled.observed.to_numpy()].min() >= 0
    assert filled.lower[0.9].to_numpy().min() >= min(0.0, filled.table.to_numpy().min())


def test_columns_in_another_order_get_the_same_intervals(
    filled: Filled, tiny_casper: Casper, six_sensors: Simulation
) -> None:
    turned = six_sensors.table[six_sensors.table.columns[::-1]]
    again = tiny_casper.impute(turned, intervals=SHARES)
    pd.testing.assert_frame_equal(again.upper[0.9][filled.table.columns], filled.upper[0.9])
    pd.testing.assert_frame_equal(again.flagged[filled.table.columns], filled.flagged)


def test_steps_without_a_row_get_intervals_when_all_steps_are_wanted(
    tiny_casper: Casper, six_sensors: Simulation
) -> None:
    table = six_sensors.table.drop(six_sensors.table.index[50:53])
    some, every = (tiny_casper.impute(table, intervals=(0.9,), all_steps=choice) for choice in (False, True))
    assert some.lower[0.9].index.equals(table.index)
    assert every.lower[0.9].index.equals(every.table.index)
    assert len(every.table) == len(table) + 3
    assert not every.observed.iloc[50:53].to_numpy().any()


def test_true_values_lie_in_most_of_the_wide_intervals() -> None:
    # Readings that go missing because they are high are not like the ones that can be held back.
    made = simulate(sensors=8, steps=1200, seed=1, holes=Holes(high_values=0.0))
    model = Casper(device="cpu", epochs=2, batches_per_epoch=40, window=12, width=16, prompts=8, validation_share=0.1)
    result = model.fit(made.table, sensors=made.sensors).impute(made.table, intervals=SHARES)
    holes, truth = ~result.observed.to_numpy(), made.complete.to_numpy()
    for share in SHARES:
        inside = (result.lower[share].to_numpy() <= truth) & (truth <= result.upper[share].to_numpy())
        assert inside[holes].mean() == pytest.approx(share, abs=0.08)


def test_a_saved_model_keeps_its_error_bars(tiny_folder: Path, filled: Filled, six_sensors: Simulation) -> None:
    again = Casper.from_pretrained(tiny_folder, device="cpu").impute(six_sensors.table, intervals=SHARES)
    pd.testing.assert_frame_equal(again.lower[0.9], filled.lower[0.9])
    pd.testing.assert_frame_equal(again.upper[0.5], filled.upper[0.5])


def test_a_model_saved_by_an_older_version_says_what_to_do(
    tiny_folder: Path, filled: Filled, six_sensors: Simulation, tmp_path: Path
) -> None:
    tensors, _ = read_tensors(tiny_folder / "model.safetensors")
    write_tensors(
        tmp_path / "model.safetensors", {k: v for k, v in tensors.items() if not k.startswith("calibration:")}
    )
    (tmp_path / "config.json").write_text((tiny_folder / "config.json").read_text())
    old = Casper.from_pretrained(tmp_path, device="cpu")
    assert not old.has_intervals
    assert old.impute(six_sensors.table).notna().all(axis=None)
    with pytest.raises(InputError, match=r"calibrate\(table\)"):
        old.impute(six_sensors.table, intervals=SHARES)
    again = old.calibrate(six_sensors.table).impute(six_sensors.table, intervals=SHARES)
    pd.testing.assert_frame_equal(again.upper[0.9], filled.upper[0.9])


def test_more_draws_judge_by_more_readings(tiny_folder: Path, six_sensors: Simulation) -> None:
    model = Casper.from_pretrained(tiny_folder, device="cpu")
    frame = model.to_frame(six_sensors.table)
    draws = [model.hold_back(frame, draw=number) for number in range(3)]
    assert not any((one == other).all() for one, other in zip(draws, [*draws[1:], draws[0]], strict=True))
    once, thrice = (
        Casper.from_pretrained(tiny_folder, device="cpu").calibrate(six_sensors.table, draws=count) for count in (1, 3)
    )
    assert once.held_back_mae != thrice.held_back_mae
    shown = [np.abs(model.impute_frame(frame.hide(held)) - frame.values)[held] for held in draws]
    assert thrice.held_back_mae == pytest.approx(np.concatenate(shown).mean())
    with pytest.raises(InputError, match="at least once"):
        once.calibrate(six_sensors.table, draws=0)


@pytest.mark.parametrize("fewest", [1, 10**9])
def test_ends_of_copied_gaps_are_judged_only_where_real_ones_are_too_few(
    fewest: int, tiny_folder: Path, six_sensors: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Casper.from_pretrained(tiny_folder, device="cpu")
    frame = model.to_frame(six_sensors.table)
    judged = list[HeldBack]()
    monkeypatch.setattr(calibrated, "FEWEST_OF_A_GROUP", fewest)
    monkeypatch.setattr(Calibration, "fit", lambda cells, *, sensors: judged.append(cells))
    model.calibrate_frame(frame, *(model.hold_back(frame, draw=draw) for draw in range(20)))
    (cells,) = judged
    at_end = beside_a_reading(cells.facts) & (cells.gap > LONG_GAP)
    beside = beside_long_gaps(frame.observed)[cells.step, cells.sensor]
    assert (at_end & beside).any()
    assert (at_end & ~beside).any() == (fewest > 1)


def test_readings_of_some_steps_alone_are_held_back(tiny_folder: Path, six_sensors: Simulation) -> None:
    model = Casper.from_pretrained(tiny_folder, device="cpu")
    frame = model.to_frame(six_sensors.table)
    late = np.arange(len(frame.times)) >= len(frame.times) * 3 // 4
    for draw in range(3):
        held = model.hold_back(frame, draw=draw, at=late)
        assert not held[~late].any()
        assert 0.6 < held.sum() / (model.training.validation_share * frame.observed[late].sum()) < 1.6


def test_a_table_too_short_to_calibrate_on_leaves_the_error_bars_as_they_were(
    tiny_folder: Path, six_sensors: Simulation
) -> None:
    model = Casper.from_pretrained(tiny_folder, device="cpu")
    before = model._calibration
    with pytest.raises(InputError, match="too few readings to calibrate"):
        model.calibrate(six_sensors.table.iloc[: model.config.window + 2])
    assert model._calibration is before


def test_methods_without_a_network_say_that_they_have_none(six_sensors: Simulation) -> None:
    mean = make_imputer("mean").fit(six_sensors.table)
    with pytest.raises(InputError, match="mean gives no error bars"):
        mean.impute(six_sensors.table, intervals=SHARES)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [((), "such as"), (0.9, "such as"), ((90,), "between 0 and"), ("9", "such as"), ((0.5, "x"), "not 'x'")],
)
def test_wrong_shares_are_refused(tiny_casper: Casper, six_sensors: Simulation, wrong: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        tiny_casper.impute(six_sensors.table, intervals=wrong)


def test_sensors_that_never_report_are_flagged_with_a_reason(tiny_casper: Casper, six_sensors: Simulation) -> None:
    silent = six_sensors.table.columns[2]
    table = six_sensors.table.assign(**{silent: np.nan})
    result = tiny_casper.impute(table, intervals=(0.9,))
    assert "never reports" in result.flagged_sensors[silent]
    assert result.flagged[silent].all()
    assert not result.flagged.drop(columns=silent).all().any()


def test_a_long_table_has_a_row_for_every_filled_value(filled: Filled) -> None:
    long = filled.to_long()
    assert len(long) == int((~filled.observed).to_numpy().sum())
    assert list(long.columns) == [
        "time",
        "sensor",
        "value",
        "lower_0.5",
        "upper_0.5",
        "lower_0.9",
        "upper_0.9",
        "flagged",
    ]
    first = long.iloc[0]
    assert first["value"] == filled.table.loc[first["time"], first["sensor"]]
    assert first["upper_0.9"] == filled.upper[0.9].loc[first["time"], first["sensor"]]


def test_a_sensor_is_drawn_with_its_bands(filled: Filled) -> None:
    sensor = str(filled.table.columns[0])
    times = filled.table.index
    axes = filled.plot(sensor, start=times[20], end=times[80], ax=Figure().add_subplot())
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["90% of true values", "50% of true values", "filled", "measured"]
    assert sensor in axes.get_title(loc="left")
    with pytest.raises(InputError, match="no sensor 'nowhere'"):
        filled.plot("nowhere")


def test_a_notebook_shows_what_was_filled(filled: Filled) -> None:
    shown = filled._repr_html_()
    assert f"{int((~filled.observed).to_numpy().sum()):,} of" in shown
    assert "mean width of 90% intervals" in shown


def test_names_cannot_smuggle_markup_into_a_notebook(tiny_settings: dict[str, Any]) -> None:
    made = simulate(sensors=6, steps=150, seed=3)
    names = {made.table.columns[0]: "<b>&"}
    model = Casper(device="cpu", **tiny_settings).fit(made.table.rename(columns=names))
    shown = model.impute(made.table.rename(columns=names), intervals=(0.9,))._repr_html_()
    assert "<b>&" not in shown
    assert "&lt;b&gt;&amp;" in shown


def test_a_benchmark_tells_how_good_the_error_bars_are(
    small_benchmark: Benchmark, tiny_settings: dict[str, Any]
) -> None:
    model = Casper(device="cpu", **tiny_settings)
    model.fit_benchmark(small_benchmark)
    told = evaluate(model, small_benchmark)["intervals"]
    json.dumps(told)
    assert 0 < told["crps"] < 1
    for share in ("0.5", "0.9"):
        scored = told["shares"][share]
        assert abs(scored["coverage"] - float(share)) < 0.25
        assert list(scored["by_gap"]) == gap_names()
        for classes in (scored["by_gap"].values(), scored["by_level"]):
            assert all(one["cells"] == 0 or 0 <= one["standard_error"] < 0.5 for one in classes)
            assert sum(one["cells"] for one in classes) == int(
                (small_benchmark.hidden & small_benchmark.test_steps[:, None]).sum()
            )
    assert told["shares"]["0.9"]["width"] > told["shares"]["0.5"]["width"]
    mean = make_imputer("mean")
    mean.fit_benchmark(small_benchmark)
    assert evaluate(mean, small_benchmark)["intervals"] is None


def test_error_bars_of_a_benchmark_never_look_at_its_test_cells(
    small_benchmark: Benchmark, tiny_settings: dict[str, Any]
) -> None:
    scored = small_benchmark.hidden & small_benchmark.test_steps[:, None]
    frame = small_benchmark.frame
    other = from_arrays(np.where(scored, 1e6, frame.values), frame.observed, frame.times, frame.sensors)
    told: list[list[Calibration]] = []
    for benchmark in (small_benchmark, replace(small_benchmark, frame=other)):
        model = Casper(device="cpu", **tiny_settings)
        model.fit_benchmark(benchmark)
        within = model.calibrated_within(benchmark)
        assert model._calibration is not None
        assert within._calibration is not None
        told.append([model._calibration, within._calibration])
    for first, second in zip(*told, strict=True):
        np.testing.assert_array_equal(first.quantiles, second.quantiles)
        np.testing.assert_array_equal(first.slopes, second.slopes)


def test_calibrating_within_the_test_steps_leaves_the_model_as_it_was(
    small_benchmark: Benchmark, tiny_settings: dict[str, Any]
) -> None:
    model = Casper(device="cpu", **tiny_settings)
    model.fit_benchmark(small_benchmark)
    before = model._calibration
    told = evaluate(model, small_benchmark, calibrate=True)
    assert model._calibration is before
    assert told["calibrated_intervals"]["shares"]["0.9"] != told["intervals"]["shares"]["0.9"]
    assert told["calibrated_intervals"]["mae_step"] == told["intervals"]["mae_step"]


def test_the_standard_error_counts_stretches_of_time_and_not_cells() -> None:
    random = np.random.default_rng(0)
    stretch = np.repeat(np.arange(30), 100)
    alone = random.random(3000) < 0.5
    assert _standard_error(alone, stretch) == pytest.approx(np.sqrt(0.25 / 3000), rel=0.4)
    together = np.repeat(random.random(30) < 0.5, 100)
    assert _standard_error(together, stretch) == pytest.approx(np.sqrt(0.25 / 30), rel=0.1)


def test_a_long_outage_of_all_sensors_is_known_to_be_a_guess() -> None:
    """Nothing like it was held back, so that only the distance to the readings tells."""
    made = simulate(sensors=6, steps=900, seed=5)
    dark = np.zeros(made.table.shape, dtype=bool)
    dark[400:520] = True
    model = KrigingImputer(window=24, epochs=2, batches_per_epoch=10).fit(made.table, sensors=made.sensors)
    filled = model.impute(made.table.mask(dark), intervals=(0.9,))
    inside = (filled.lower[0.9] <= made.complete) & (made.complete <= filled.upper[0.9])
    middle = slice(430, 490)
    assert inside.to_numpy()[middle].mean() > 0.75
    assert filled.flagged.to_numpy()[middle].mean() > 0.9
    width = (filled.upper[0.9] - filled.lower[0.9]).to_numpy()
    assert np.median(width[middle]) > 1.3 * np.median(width[400:402])


def test_a_sensor_that_was_never_heard_has_intervals_as_wide_as_sensors_differ() -> None:
    made = simulate(sensors=6, steps=500, seed=5)
    apart = made.table + np.arange(6) * 200.0
    silent = made.table.columns[2]
    apart[silent] = np.nan
    model = KrigingImputer(window=24, epochs=2, batches_per_epoch=10).fit(apart, sensors=made.sensors)
    filled = model.impute(apart, intervals=(0.9,))
    width = filled.upper[0.9] - filled.lower[0.9]
    assert width[silent].median() > 1.5 * width.drop(columns=silent).max().max()
