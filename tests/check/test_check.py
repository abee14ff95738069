"""The summary of a table: its holes are counted right, and readings that may not be readings are pointed out."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from casper.check import Suspicion, TableSummary, sentences, stand_ins, summarise
from casper.frame import from_arrays, to_frame

TIMES = pd.date_range("2024-01-01", periods=200, freq="h")


def noise(seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(20.0, 3.0, 200)


def summary_of(*columns: NDArray[np.float64]) -> TableSummary:
    values = np.column_stack(columns)
    return summarise(from_arrays(values, ~np.isnan(values), TIMES, [f"s{i}" for i in range(len(columns))]))


def suspicions_of(*columns: NDArray[np.float64]) -> list[tuple[str, str, int, float]]:
    found = summary_of(*columns).suspicions
    return [(item.sensor, item.kind, item.count, item.value) for item in found]


def test_period_size_and_notes_are_reported() -> None:
    table = pd.DataFrame(np.column_stack([noise(0), noise(1)]), index=TIMES).drop(TIMES[5])
    summary = summarise(to_frame(table))
    assert (summary.start, summary.end) == (TIMES[0], TIMES[-1])
    assert summary.step == pd.Timedelta("1h")
    assert (summary.steps, summary.sensors) == (200, 2)
    assert "Steps of 01:00:00 without a row: 1;" in summary.notes[0]
    assert summary.missing_share == pytest.approx(1 / 200)
    assert summary.blackout_share == pytest.approx(1 / 200)


def test_gaps_are_counted_by_length_and_the_longest_is_placed() -> None:
    first, second = noise(0), noise(1)
    for start, length in ((0, 1), (10, 6), (30, 7), (60, 24), (100, 25)):
        first[start : start + length] = np.nan
    second[170:] = np.nan
    gaps = summary_of(first, second).gaps
    assert gaps.count == 6
    assert gaps.cells_by_length == {"1": 1, "2-6": 6, "7-24": 31, "25+": 55}
    assert gaps.median == 15.5
    assert (gaps.longest, gaps.longest_sensor) == (30, "s1")
    assert (gaps.longest_start, gaps.longest_end) == (TIMES[170], TIMES[199])


def test_a_complete_table_has_no_gaps() -> None:
    gaps = summary_of(noise(0), noise(1)).gaps
    assert (gaps.count, gaps.median, gaps.longest, gaps.longest_sensor) == (0, 0.0, 0, None)


def test_dead_nearly_dead_and_constant_sensors_are_told_apart() -> None:
    dead = np.full(200, np.nan)
    nearly = np.full(200, np.nan)
    nearly[:9] = noise()[:9]
    single = np.full(200, np.nan)
    single[3] = 1.0
    summary = summary_of(dead, nearly, np.full(200, 4.0), noise(), single)
    assert summary.dead == ("s0",)
    assert summary.nearly_dead == ("s1", "s4")
    assert summary.constant == ("s2",)
    assert summary.suspicions == ()


def test_dead_sensors_do_not_count_as_gaps() -> None:
    assert summary_of(np.full(200, np.nan), noise(), noise(1)).gaps.count == 0


@pytest.mark.parametrize("sentinel", [-999.0, -9999.0, 9999.0, -99.9, -1.0])
def test_numbers_that_stand_for_holes_are_named_once(sentinel: float) -> None:
    values = noise()
    values[[5, 50]] = sentinel
    assert suspicions_of(values, noise(1)) == [("s0", "sentinel", 2, sentinel)]


def test_two_different_stand_ins_are_both_found() -> None:
    values = noise()
    values[5], values[6] = -999.0, -9999.0
    assert [item[3] for item in suspicions_of(values, noise(1))] == [-999.0, -9999.0]


def test_minus_one_is_an_ordinary_reading_among_negative_ones() -> None:
    values = noise() - 20.0
    values[5] = -1.0
    assert suspicions_of(values, noise(1)) == []


def test_large_readings_that_look_like_a_sentinel_are_left_alone_among_their_like() -> None:
    values = noise() * 500.0
    values[5] = 9999.0
    assert suspicions_of(values, noise(1)) == []


@pytest.mark.parametrize(("value", "kind"), [(0.0, "zeros"), (17.5, "stuck")])
def test_long_runs_of_one_value_are_suspicious(value: float, kind: str) -> None:
    values = np.random.default_rng(0).normal(0.0, 30.0, 200)
    values[20:44] = value
    assert suspicions_of(values, noise(1)) == [("s0", kind, 24, value)]
    values[30] = np.nan
    assert suspicions_of(values, noise(1)) == []


def test_readings_very_far_from_the_others_are_suspicious() -> None:
    values = noise()
    values[70], values[80] = 500.0, 400.0
    assert suspicions_of(values, noise(1)) == [("s0", "outlier", 2, 500.0)]


def test_a_sensor_that_mostly_reads_the_same_has_no_outliers() -> None:
    values = np.tile([0.0, 0.0, 0.0, 5.0], 50)
    assert suspicions_of(values, noise(1)) == []


def test_zeros_far_below_all_other_readings_stand_for_holes() -> None:
    speeds = noise()
    speeds[[5, 50, 51]] = 0.0
    assert suspicions_of(speeds, noise(1)) == [("s0", "sentinel", 3, 0.0)]
    speeds[5] = 20.0
    assert suspicions_of(speeds, noise(1)) == []  # two may be a traffic jam


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).poisson(4.0, 200).astype(float),  # counts
        np.tile([0.0, 0.2, 0.4, 0.0, 0.2], 40),  # rain
        np.tile([0.0, 5.0], 100),  # on and off
        np.abs(np.random.default_rng(0).normal(0.0, 30.0, 200)).round(),
    ],
)
def test_zeros_among_small_readings_are_readings(values: NDArray[np.float64]) -> None:
    assert suspicions_of(values, noise(1)) == []


def test_a_hole_that_other_sensors_read_is_to_be_emptied_in_the_file() -> None:
    humid = np.random.default_rng(0).uniform(60, 100, 200).round(1)
    humid[[4, 8]] = 99.9
    columns = [humid, noise(1), noise(2)]
    columns[1][[5, 6, 7]] = 99.9
    (alone,) = summary_of(*columns).sentences()
    assert alone == (
        "s1: 3 times 99.9, which often stands for a hole: empty these cells in the file if so; "
        "elsewhere in the table 99.9 is a reading, first at 2024-01-01 05:00:00"
    )
    columns[2][6] = 99.9
    (shared,) = summary_of(*columns).sentences()
    assert shared.startswith("99.9 in 2 sensors, 4 times, first s1 at 2024-01-01 05:00:00, which often stands")
    assert "--missing-value" not in shared


def test_stand_ins_are_found_without_the_rest_of_the_check() -> None:
    values = np.column_stack([noise(0), noise(1)])
    values[5:8, 1], values[70, 0] = -999.0, 500.0
    frame = from_arrays(values, np.ones(values.shape, dtype=bool), TIMES, ["a", "b"])
    assert stand_ins(frame) == [item for item in summarise(frame).suspicions if item.kind == "sentinel"]
    assert sentences(stand_ins(frame)) == summarise(frame).sentences()[1:]
    assert len(sentences(stand_ins(frame))) == 1


def test_daylight_is_not_far_from_the_night() -> None:
    hours = np.arange(200) % 24
    sun = np.maximum(0.0, np.sin((hours - 8) / 9 * np.pi)) * np.random.default_rng(0).uniform(500, 900, 200)
    sun[hours < 8] = sun[hours > 17] = 0.0
    assert (sun == 0).mean() > 0.55
    assert suspicions_of(sun, noise(1)) == []
    sun[60] = 50_000.0
    assert suspicions_of(sun, noise(1)) == [("s0", "outlier", 1, 50_000.0)]


def test_what_a_sensor_often_reads_is_not_far_from_the_others() -> None:
    times = pd.date_range("2024-01-01", periods=4000, freq="h")
    values = np.random.default_rng(0).normal(20.0, 3.0, (4000, 2))
    kinds: list[list[str]] = []
    for often in (40, 60):
        values[np.arange(often) * 50, 0] = np.random.default_rng(1).uniform(300, 400, often)
        frame = from_arrays(values, np.ones(values.shape, dtype=bool), times, ["a", "b"])
        kinds.append([item.kind for item in summarise(frame).suspicions])
    assert kinds == [["outlier"], []], "one in a hundred, and more"


def test_the_first_snow_is_no_change_of_units() -> None:
    """A sensor whose depth jumps tenfold, in a network whose other sensors rise in the same days."""
    columns: list[NDArray[np.float64]] = []
    for number in range(5):
        depth = np.random.default_rng(number).normal(0.8, 0.05, 200) + np.linspace(0, 0.2, 200)
        depth[: 100 + 2 * number] *= 0.1
        columns.append(depth)
    (alone,) = summary_of(columns[0], *(noise(number) for number in range(1, 5))).suspicions
    assert (alone.kind, alone.time) == ("jump", TIMES[100])
    assert summary_of(*columns).suspicions == ()


def test_a_jump_by_no_factor_between_units_is_a_question() -> None:
    values = noise()
    values[150:] *= 37.0
    (told,) = summary_of(values, noise(1)).sentences()
    assert told == (
        "s0: readings are about 35 times as large from 2024-01-07 06:00:00 on. Is that so, or are they in other units? "
        "Then divide the later ones, or make two sensors of it"
    )
    both = [noise(seed) for seed in range(4)]
    for column in both[:2]:
        column[:50] *= 37.0
    (told,) = summary_of(*both).sentences()
    assert "before 2024-01-03 02:00:00 as later in 2 sensors (s0, s1). Is that so" in told
    assert told.endswith("Then divide the earlier ones, or make two sensors of each")


def test_suspicions_that_many_sensors_share_are_one_sentence() -> None:
    columns = [noise(seed) for seed in range(8)]
    for number, column in enumerate(columns[:7]):
        column[10 - number : 13] = -999.0
    columns[7][3] = -9999.0
    columns[0][100], columns[1][90] = 500.0, 600.0
    summary = summary_of(*columns)
    shared, far, alone = summary.sentences()
    assert shared == (
        "-999 in 7 sensors, 42 times, first s6 at 2024-01-01 04:00:00, which often stands for a hole: "
        "pass --missing-value -999 (missing_values=) if so (s0, s1, s2, s3, s4 and 2 more)"
    )
    assert (
        far
        == "2 readings very far from the others in 2 sensors, the farthest 600 in s1 at 2024-01-04 18:00:00 (s0, s1)"
    )
    assert alone == summary.suspicions[-1].sentence
    assert len(summary.suspicions) == 10


def test_shared_runs_are_one_sentence_for_zeros_and_one_for_other_values() -> None:
    columns = [np.random.default_rng(seed).normal(0.0, 30.0, 200) for seed in range(4)]
    for number, column in enumerate(columns):
        column[:24] = 17.5 if number < 2 else 0.0
    stuck, zeros = summary_of(*columns).sentences()
    assert stuck.startswith("48 readings in runs of 24 equal values or more in 2 sensors, first s0 at 2024-01-01 00:00")
    assert zeros.startswith("48 zeros in runs of 24 steps or more in 2 sensors, first s2")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("sentinel", "3 times -999, which often stands for a hole"),
        ("zeros", "3 zeros in runs"),
        ("stuck", "3 readings in runs of 24 equal values"),
    ],
)
def test_a_suspicion_reads_as_a_sentence(kind: Any, words: str) -> None:
    sentence = Suspicion("s7", kind, 3, -999.0, TIMES[1]).sentence
    assert sentence.startswith(f"s7: {words}")
    assert sentence.endswith("first at 2024-01-01 01:00:00")


def test_the_farthest_reading_of_all_is_the_example_and_the_sensor_with_most_is_named() -> None:
    columns = [noise(seed) for seed in range(3)]
    columns[0][5], columns[1][60:66], columns[2][[80, 90]] = 250.0, 300.0, (400.0, 20_000.0)
    first, second, third = summary_of(*columns).suspicions
    assert first.sentence == "s0: 1 reading very far from the others, 250 at 2024-01-01 05:00:00"
    assert second.deviations < third.deviations
    assert third.sentence == "s2: 2 readings very far from the others, the farthest 20000 at 2024-01-04 18:00:00"
    assert summary_of(*columns).sentences() == [
        "9 readings very far from the others in 3 sensors, the farthest 20000 in s2 at 2024-01-04 18:00:00, "
        "most in s1: 6 (s1, s2, s0)"
    ]


def test_a_sensor_in_other_units_from_some_time_on_is_told_instead_of_its_outliers() -> None:
    later, earlier = noise(0), noise(1)
    later[150:] *= 100.0
    earlier[:40] *= 1000.0
    summary = summary_of(later, earlier, noise(2))
    up, down = summary.sentences()
    assert up == (
        "s0: readings are about 100 times as large from 2024-01-07 06:00:00 on; other units? "
        "Divide the later ones, or make two sensors of it"
    )
    assert down == (
        "s1: readings are about 1,000 times as large before 2024-01-02 16:00:00 as later; other units? "
        "Divide the earlier ones, or make two sensors of it"
    )
    assert [item.kind for item in summary.suspicions] == ["jump", "jump"]
    assert json.loads(json.dumps(summary.to_dict()))["suspicions"][0]["factor"] == pytest.approx(100.0, rel=0.1)


def test_sensors_that_change_their_units_together_are_one_sentence() -> None:
    columns = [noise(seed) for seed in range(3)]
    for column in columns[:2]:
        column[100:] *= 10.0
    (told,) = summary_of(*columns).sentences()
    assert told == (
        "readings are about 10 times as large from 2024-01-05 04:00:00 on in 2 sensors (s0, s1); other units? "
        "Divide the later ones, or make two sensors of each"
    )


def test_findings_name_silent_and_constant_sensors_too() -> None:
    odd = noise(0)
    odd[3] = 500.0
    told = summary_of(odd, np.full(200, np.nan), np.full(200, 5.0)).findings()
    assert told[:2] == ["never report: s1", "constant: s2"]
    assert "very far from the others" in told[2]


def test_steps_of_days_are_written_as_such() -> None:
    table = pd.DataFrame({"a": noise(0), "b": noise(1)}, index=pd.date_range("2024-01-01", periods=200, freq="D"))
    assert summarise(to_frame(table)).to_dict()["step"] == "1 day"


def test_the_summary_becomes_json() -> None:
    gappy = noise()
    gappy[3:6], gappy[50] = np.nan, -999.0
    for columns in ((gappy, noise(1)), (noise(0), noise(1))):
        summary = summary_of(*columns)
        told = json.loads(json.dumps(summary.to_dict()))
        assert told["start"] == "2024-01-01T00:00:00"
        assert told["step"] == "01:00:00"
        assert told["step_seconds"] == 3600
        assert told["gaps"]["longest"] == summary.gaps.longest
        assert len(told["suspicions"]) == len(summary.suspicions)
    assert told["gaps"]["longest_start"] is None
