"""The frame: what comes in is checked and put on a grid, what goes out is the caller's table without holes."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from casper.errors import InputError, ProblemsError
from casper.frame import SensorFrame, from_arrays, match_sensors, sensor_list, to_frame
from casper.frame.sensors import region


def hourly(values: Any, *, start: str = "2024-01-01", tz: str | None = None, columns: Any = None) -> pd.DataFrame:
    values = np.asarray(values)
    columns = [f"s{i}" for i in range(values.shape[1])] if columns is None else columns
    return pd.DataFrame(values, index=pd.date_range(start, periods=len(values), freq="h", tz=tz), columns=columns)


def small(**columns: Any) -> pd.DataFrame:
    columns = columns or {"a": [1.0, np.nan, 3.0], "b": [4.0, 5.0, 6.0]}
    return pd.DataFrame(columns, index=pd.date_range("2024-01-01", periods=3, freq="h"))


def at(*stamps: str) -> pd.DataFrame:
    return pd.DataFrame({"a": np.arange(len(stamps), dtype=float), "b": 1.0}, index=pd.to_datetime(list(stamps)))


def filled(frame: SensorFrame, value: float = 7.25) -> NDArray[np.float64]:
    return np.where(frame.observed, frame.values, value)


def problem(table: Any, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        to_frame(table, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- the way in and back ---


def test_a_wide_table_becomes_values_and_observed() -> None:
    frame = to_frame(small())
    np.testing.assert_array_equal(frame.values, [[1, 4], [np.nan, 5], [3, 6]])
    np.testing.assert_array_equal(frame.observed, [[True, True], [False, True], [True, True]])
    assert frame.sensors == ("a", "b")
    assert frame.step == pd.Timedelta("1h")
    assert frame.notes == ()
    assert frame.dead == ()


@settings(max_examples=60, deadline=None)
@given(
    values=hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=7),
        elements=st.floats(allow_nan=True, allow_infinity=False, width=64),
    ),
    dtype=st.sampled_from(["float64", "Float64", "object"]),
)
def test_observed_values_come_back_bit_for_bit_and_the_callers_table_is_unchanged(values: Any, dtype: Any) -> None:
    values[0, 0] = -0.0
    table = hourly(values).astype(dtype)
    before = table.copy(deep=True)
    frame = to_frame(table)
    restored = frame.restore(filled(frame))
    pd.testing.assert_frame_equal(table, before)
    after = restored.astype(np.float64).to_numpy()
    seen = ~np.isnan(values)
    assert after[seen].tobytes() == values[seen].tobytes()
    assert (after[~seen] == 7.25).all()
    assert list(restored.dtypes) == list(before.dtypes)


def test_the_frame_is_not_touched_by_later_changes_of_the_callers_table() -> None:
    table = small()
    frame = to_frame(table)
    table.iloc[0, 0] = 99.0
    assert np.asarray(frame.values)[0, 0] == 1.0
    assert frame.restore(filled(frame)).iloc[0, 0] == 1.0


@pytest.mark.parametrize("dtype", ["float32", "float64", "Float32", "Float64", "Int64", "Int8", "UInt16", "object"])
def test_every_kind_of_number_column_keeps_its_type_and_observed_values(dtype: Any) -> None:
    column = pd.array([1, None, 3], dtype=dtype) if dtype != "object" else np.array([1, None, 3], dtype=object)
    table = small(a=column, b=[1.0, 2.0, 3.0])
    frame = to_frame(table)
    restored = frame.restore(filled(frame, 1.75))
    assert restored["a"].dtype == table["a"].dtype
    assert restored["a"].iloc[[0, 2]].tolist() == [1, 3]
    assert restored["a"].iloc[1] == (2 if "Int" in dtype else 1.75)
    assert any("rounded" in note and "'a'" in note for note in frame.notes) == ("Int" in dtype)


@pytest.mark.parametrize("dtype", ["double[pyarrow]", "float[pyarrow]", "int64[pyarrow]"])
def test_arrow_columns_keep_their_type(dtype: Any) -> None:
    table = small(a=pd.array([1, None, 3], dtype=dtype), b=[1.0, 2.0, 3.0])
    frame = to_frame(table)
    restored = frame.restore(filled(frame, 2.0))
    assert restored["a"].dtype == table["a"].dtype
    assert restored["a"].tolist() == [1, 2, 3]


def test_integers_beyond_float_precision_come_back_exactly() -> None:
    big = 2**60 + 1
    table = small(a=np.array([big, 2, 3]), b=pd.array([big, None, 3], dtype="Int64"))
    restored = to_frame(table).restore(np.full((3, 2), 5.0))
    assert restored["a"].iloc[0] == big
    assert restored["b"].iloc[0] == big
    assert restored["a"].dtype == np.int64


def test_filled_values_stay_within_the_range_of_an_integer_column() -> None:
    table = small(a=pd.array([1, None, None], dtype="UInt8"), b=pd.array([1, None, 3], dtype="Int64"))
    restored = to_frame(table).restore(np.array([[0, 0], [-3.0, 1e30], [999.0, 0]]))
    assert restored["a"].tolist() == [1, 0, 255]
    assert restored["b"].iloc[1] > 2**62


def test_names_order_and_integer_columns_come_back_as_they_were() -> None:
    table = hourly([[1.0, np.nan], [2.0, 3.0]], columns=pd.Index([773869, 5], name="station"))
    table.index.name = "when"
    frame = to_frame(table)
    restored = frame.restore(filled(frame))
    assert frame.sensors == ("773869", "5")
    pd.testing.assert_index_equal(restored.columns, table.columns)
    pd.testing.assert_index_equal(restored.index, table.index)


def test_missing_values_become_holes_and_are_filled() -> None:
    table = small(a=np.array([1.0, -999.9, 3.0], dtype=np.float32), b=np.array([-999, 5, 6]))
    frame = to_frame(table, missing_values=(-999.9, -999))
    assert not frame.observed[1, 0]
    assert not frame.observed[0, 1]
    assert "1 value equal to -999 became holes." in frame.notes
    restored = frame.restore(filled(frame, 8.0))
    assert restored["a"].tolist() == [1, 8, 3]
    assert restored["b"].tolist() == [8, 5, 6]
    assert restored["b"].dtype == table["b"].dtype


def test_restore_refuses_other_shapes_and_remaining_holes() -> None:
    frame = to_frame(small())
    with pytest.raises(InputError, match="shape"):
        frame.restore(np.zeros((2, 2)))
    with pytest.raises(InputError, match=r"1 holes or infinities, the first: sensor 'a' at 2024-01-01 01:00:00"):
        frame.restore(frame.values)


def test_dead_sensors_are_named() -> None:
    assert to_frame(small(a=[np.nan] * 3, b=[1.0, 2.0, 3.0])).dead == ("a",)


def test_sensors_can_be_put_in_another_order() -> None:
    frame = to_frame(small()).select(np.array([1, 0]))
    assert frame.sensors == ("b", "a")
    assert frame.restore(filled(frame)).iloc[1].to_dict() == {"b": 5.0, "a": 7.25}


def test_hidden_cells_become_holes_that_are_filled() -> None:
    frame = to_frame(small())
    hidden = np.array([[False, True], [False, False], [False, False]])
    partial = frame.hide(hidden)
    assert not partial.observed[0, 1]
    assert np.isnan(np.asarray(partial.values)[0, 1])
    assert partial.restore(filled(partial)).iloc[0].tolist() == [1.0, 7.25]
    assert frame.observed[0, 1]


@pytest.mark.parametrize(("time", "step"), [("2024-01-01", 0), ("2024-01-01 01:00", 1), ("2024-01-01T02:00:00", 2)])
def test_a_time_is_found_on_its_step(time: str, step: int) -> None:
    assert to_frame(small()).position(time) == step


def test_a_time_on_the_clock_of_the_table_is_found_also_when_the_clocks_change() -> None:
    frame = to_frame(hourly(np.ones((6, 2)), start="2024-10-27", tz="Europe/Berlin"))
    assert frame.position("2024-10-27 02:00") == 2
    assert frame.position(pd.Timestamp("2024-10-27 02:00+01:00")) == 3


def test_a_time_without_offset_is_read_as_the_table_writes_its_stamps() -> None:
    in_utc = hourly(np.ones((6, 2)), start="2024-07-01", tz="UTC")
    frame = to_frame(in_utc, timezone="Europe/Berlin")
    assert frame.position("2024-07-01 03:00") == 3, "not on the clock of Berlin, which the file does not show"
    assert frame.position("2024-07-01 03:00+02:00") == 1
    naive = in_utc.tz_localize(None)
    assert to_frame(naive, timezone="Europe/Berlin").position("2024-07-01 03:00") == 3
    texts = to_frame(naive.set_axis(naive.index.astype(str), axis=0), timezone="Europe/Berlin")
    assert texts.position("2024-07-01 03:00") == 3
    with pytest.raises(InputError, match=r"2024-07-01 03:00:00\+02:00 and"):
        texts.position("2024-07-01 03:20")


def test_a_time_without_offset_is_found_where_every_stamp_has_an_offset_of_its_own() -> None:
    local = pd.date_range("2024-03-30 22:00", periods=8, freq="h", tz="Europe/Berlin")
    table = pd.DataFrame(np.ones((8, 2)), index=[stamp.isoformat() for stamp in local], columns=["a", "b"])
    frame = to_frame(table)
    assert [frame.position(str(stamp.tz_localize(None))) for stamp in local] == list(range(8))
    with pytest.raises(InputError, match=r"steps of the table, 2024-03-31 03:00:00\+02:00 and 2024-03-31 04:00:00\+02"):
        frame.position("2024-03-31 03:30")


def test_a_time_between_two_steps_is_refused_and_both_are_named() -> None:
    with pytest.raises(InputError, match="two steps of the table, 2024-01-01 01:00:00 and 2024-01-01 02:00:00: choose"):
        to_frame(small()).position("2024-01-01 01:59")
    in_utc = to_frame(hourly(np.ones((6, 2)), start="2024-07-01", tz="UTC"), timezone="Europe/Berlin")
    with pytest.raises(InputError, match=r"2024-07-01 03:00:00\+00:00 and 2024-07-01 04:00:00\+00:00"):
        in_utc.position("2024-07-01 03:20")


def test_a_time_as_far_from_its_step_as_the_tables_own_stamps_is_found() -> None:
    times = pd.DatetimeIndex(["2024-01-01 00:02", "2024-01-01 00:58", "2024-01-01 02:05", "2024-01-01 03:00"])
    frame = to_frame(pd.DataFrame(np.ones((4, 2)), index=times, columns=["a", "b"]), freq="1h")
    assert [frame.position(str(time)) for time in times] == [0, 1, 2, 3]
    assert frame.position("2024-01-01 01:04") == 1
    with pytest.raises(InputError, match="lies between two steps"):
        frame.position("2024-01-01 01:06")


@pytest.mark.parametrize("time", ["2023-12-31", "2024-01-01 02:01", "2024-01-01 03:00"])
def test_a_time_outside_of_the_table_is_refused(time: str) -> None:
    with pytest.raises(InputError, match="is not in the table, which runs from 2024-01-01 00:00:00 to"):
        to_frame(small()).position(time)


def test_an_offset_that_the_table_does_not_have_is_refused() -> None:
    with pytest.raises(InputError, match="has an offset, the time stamps of the table have none"):
        to_frame(small()).position("2024-01-01 00:00+00:00")


@pytest.mark.parametrize("time", ["noon", "01/02/2024", "2024-13-01"])
def test_a_text_that_is_no_clear_time_is_refused(time: str) -> None:
    with pytest.raises(InputError, match=f"'{time}' is not a time stamp"):
        to_frame(small()).position(time)


# --- the grid ---


def test_missing_rows_are_inserted_as_holes_and_not_returned() -> None:
    table = at("2024-01-01 00:00", "2024-01-01 01:00", "2024-01-01 03:00", "2024-01-01 04:00")
    frame = to_frame(table)
    assert len(frame.times) == 5
    assert not frame.observed[2].any()
    assert any("they count as holes" in note for note in frame.notes)
    pd.testing.assert_frame_equal(frame.restore(filled(frame)), table)


def test_jittered_stamps_go_to_the_nearest_round_step() -> None:
    table = at("2024-01-01 00:00:03", "2024-01-01 00:04:58", "2024-01-01 00:10:00", "2024-01-01 00:20:04")
    frame = to_frame(table, freq="5min")
    assert list(frame.times) == list(pd.date_range("2024-01-01", periods=5, freq="5min"))
    np.testing.assert_array_equal(np.asarray(frame.values)[:, 0], [0, 1, 2, np.nan, 3])
    assert any("Stamps moved" in note and ": 3," in note and "00:00:04" in note for note in frame.notes)
    pd.testing.assert_frame_equal(frame.restore(filled(frame)), table)


def test_readings_taken_near_half_past_neither_collide_nor_leave_holes() -> None:
    table = at("2024-01-01 00:29:58", "2024-01-01 01:30:02", "2024-01-01 02:29:59", "2024-01-01 03:30:01")
    frame = to_frame(table, freq="1h")
    assert frame.observed.all()
    assert len(frame.times) == 4


def test_even_stamps_off_the_round_clock_are_not_moved_by_freq() -> None:
    frame = to_frame(at("2024-01-01 00:07", "2024-01-01 00:12", "2024-01-01 00:17"), freq=timedelta(minutes=5))
    assert frame.times[0] == pd.Timestamp("2024-01-01 00:07")
    assert frame.notes == ()


def test_rows_that_share_a_step_are_averaged_and_come_back_with_their_own_values() -> None:
    table = at("2024-01-01 00:00", "2024-01-01 00:01", "2024-01-01 00:02", "2024-01-01 00:06")
    table["a"] = [2.0, 4.0, np.nan, np.nan]
    frame = to_frame(table, freq="5min")
    np.testing.assert_array_equal(np.asarray(frame.values)[:, 0], [3, np.nan])
    assert any("same step as the row before: 2;" in note for note in frame.notes)
    assert frame.restore(np.array([[5.0, 1.0], [6.0, 1.0]]))["a"].tolist() == [2, 4, 5, 6]


def test_a_freq_that_does_not_fit_is_refused_with_the_usual_difference() -> None:
    table = at(*[f"2024-01-01 {hour:02}:00" for hour in range(12)])
    text = problem(table, freq="45min")
    assert "a step of 00:45:00 does not fit the time stamps" in text
    assert "they are usually 01:00:00 apart, pass another --freq (freq=)" in text


@pytest.mark.parametrize("minutes", [5, 10, 15, 20, 30])
def test_several_rows_may_be_pooled_in_a_longer_step(minutes: int) -> None:
    stamps = pd.date_range("2024-01-01", "2024-01-01 06:00", freq=f"{minutes}min")
    assert to_frame(at(*map(str, stamps)), freq="1h").step == pd.Timedelta("1h")


@pytest.mark.parametrize("in_utc", [True, False])
def test_days_of_a_zone_with_clock_changes_ask_for_the_zone(*, in_utc: bool) -> None:
    stamps = pd.date_range("2024-03-28", periods=7, freq="D", tz="Europe/Berlin")
    shown = [(stamp.tz_convert("UTC") if in_utc else stamp).isoformat() for stamp in stamps]
    table = pd.DataFrame({"a": np.arange(7.0), "b": 1.0}, index=pd.Index(shown, dtype=object))
    text = problem(table)
    assert "days of a zone whose clocks change, pass --timezone Europe/Berlin (timezone='Europe/Berlin')" in text
    assert "--freq" not in text
    assert list(to_frame(table, timezone="Europe/Berlin").times) == list(stamps)


def test_irregular_stamps_without_freq_are_refused_with_a_proposal() -> None:
    text = problem(at("2024-01-01 00:00:03", "2024-01-01 00:04:58", "2024-01-01 00:10:00", "2024-01-01 00:15:01"))
    assert "pass --freq 5min (freq='5min')" in text
    assert "00:04:55 (1 times)" in text


def test_a_step_that_covers_less_than_half_of_the_differences_is_ambiguous() -> None:
    hours = [0, 1, 3, 5, 8]
    assert "not evenly spaced" in problem(at(*[f"2024-01-01 {hour:02}:00" for hour in hours]))


def test_a_grid_absurdly_larger_than_the_table_is_refused() -> None:
    text = problem(at("2024-01-01 00:00", "2024-01-01 00:05", "2024-01-01 00:10", "2034-01-01 00:00"))
    assert "4 rows" in text
    assert "wrong stamp" in text


@pytest.mark.parametrize(
    ("freq", "words"),
    [
        ("BMS", "no even step"),
        ("SMS", "no even step"),
        ("nonsense", "not understood"),
        ("-5min", "longer than nothing"),
    ],
)
def test_only_even_positive_steps_are_accepted(freq: Any, words: str) -> None:
    assert words in problem(small(), freq=freq)


@pytest.mark.parametrize("freq", ["D", "1D", pd.Timedelta(days=1)])
def test_daily_stamps_of_a_zone_with_clock_changes_stay_on_local_midnights(freq: Any) -> None:
    index = pd.date_range("2024-03-25", periods=14, freq="D", tz="Europe/Berlin")
    table = pd.DataFrame(np.ones((14, 2)), index=index)
    for frame in (to_frame(table), to_frame(table, freq=freq)):
        assert list(frame.times) == list(index)
        assert frame.observed.all()
        assert frame.notes == ()


# --- time zones ---


@pytest.mark.parametrize("start", ["2024-03-30 20:00", "2024-10-26 20:00"])
def test_an_aware_index_has_neither_holes_nor_collisions_when_clocks_change(start: str) -> None:
    table = hourly(np.arange(24.0).reshape(12, 2), start=start, tz="Europe/Berlin")
    frame = to_frame(table)
    assert frame.observed.all()
    assert str(frame.times.tz) == "Europe/Berlin"
    assert list(frame.times) == list(table.index)
    pd.testing.assert_frame_equal(frame.restore(frame.values), table)


def test_a_repeated_autumn_hour_without_zone_asks_for_the_zone() -> None:
    stamps = [f"2024-10-27 {clock}" for clock in ("01:30", "02:00", "02:30", "02:00", "02:30", "03:00")]
    text = problem(at(*stamps))
    assert "2024-10-27 02:00:00 occurs more than once" in text
    assert "timezone='Europe/Berlin'" in text
    assert "sort_index" not in text


def test_a_repeated_autumn_hour_is_told_apart_by_its_order() -> None:
    stamps = [f"2024-10-27 {clock}" for clock in ("01:30", "02:00", "02:30", "02:00", "02:30", "03:00")]
    table = at(*stamps)
    frame = to_frame(table, timezone="Europe/Berlin")
    assert frame.observed.all()
    assert [stamp.hour for stamp in frame.times.tz_convert("UTC")] == [23, 0, 0, 1, 1, 2]
    assert frame.notes == ()
    restored = frame.restore(frame.values)
    pd.testing.assert_index_equal(restored.index, table.index)


def test_an_ambiguous_hour_that_occurs_once_is_read_as_the_first_and_noted() -> None:
    table = at("2024-10-27 00:00", "2024-10-27 01:00", "2024-10-27 02:00", "2024-10-27 03:00", "2024-10-27 04:00")
    frame = to_frame(table, timezone="Europe/Berlin")
    assert len(frame.times) == 6
    assert any("1 stamps such as 2024-10-27 02:00:00" in note for note in frame.notes)


def test_a_stamp_that_the_clocks_jumped_over_is_named() -> None:
    table = at("2024-03-31 01:00", "2024-03-31 02:30", "2024-03-31 04:00")
    assert "2024-03-31 02:30:00 does not exist in Europe/Berlin" in problem(table, timezone="Europe/Berlin")


def test_an_unknown_zone_is_named() -> None:
    assert "unknown timezone 'Berlin'" in problem(small(), timezone="Berlin")


def test_timezone_sets_the_clock_of_an_aware_index() -> None:
    table = hourly(np.ones((3, 2)), tz="UTC")
    frame = to_frame(table, timezone="Asia/Tokyo")
    assert frame.times[0].hour == 9
    pd.testing.assert_index_equal(frame.restore(frame.values).index, table.index)


def test_the_two_offsets_of_one_zone_are_accepted_with_a_note() -> None:
    stamps = pd.date_range("2024-03-30 23:00", periods=5, freq="h", tz="Europe/Berlin")
    index = pd.Index([stamp.isoformat() for stamp in stamps], dtype=object)
    table = pd.DataFrame(np.ones((5, 2)), index=index)
    frame = to_frame(table)
    assert frame.observed.all()
    assert any("UTC+01:00" in note for note in frame.notes)
    assert list(frame.times) == list(stamps)
    local = to_frame(table, timezone="Europe/Berlin")
    assert local.times[-1].hour == 4
    pd.testing.assert_index_equal(local.restore(local.values).index, index)


def test_stamps_of_two_zones_and_stamps_with_and_without_zone_are_refused() -> None:
    far = pd.DataFrame(np.ones((2, 2)), index=["2024-01-01T00:00+01:00", "2024-01-01T00:00-05:00"])
    assert "mixed zones" in problem(far)
    half = pd.DataFrame(np.ones((2, 2)), index=["2024-01-01T00:00+01:00", "2024-01-01T01:00"])
    assert "such as 2024-01-01 01:00:00, have none" in problem(half)


# --- index kinds ---


@pytest.mark.parametrize(
    "index",
    [
        pd.Index(["2024-01-01 00:00", "2024-01-01 01:00", "2024-01-01 02:00"]),
        pd.Index([date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 3)], dtype=object),
        pd.period_range("2024-01-01", periods=3, freq="h"),
        pd.date_range("2024-01-01", periods=3, freq="h").as_unit("s"),
    ],
    ids=["iso texts", "dates", "periods", "seconds"],
)
def test_an_index_that_parses_as_stamps_is_accepted_and_returned_as_it_was(index: Any) -> None:
    table = small().set_axis(index)
    frame = to_frame(table)
    assert len(frame.times) == 3
    pd.testing.assert_index_equal(frame.restore(filled(frame)).index, index)


@pytest.mark.parametrize("index", [[0, 1, 2], ["01/02/2024", "02/02/2024", "03/02/2024"], ["2024-99-01", "x", "y"]])
def test_an_index_without_stamps_is_refused_with_the_remedy(index: Any) -> None:
    text = problem(small().set_axis(index))
    assert "holds no time stamps" in text
    assert "set_index(pd.to_datetime(" in text


@pytest.mark.parametrize("missing", [pd.NaT, None])
def test_missing_stamps_are_named_by_row(missing: Any) -> None:
    assert "row 2 of the table has no time stamp" in problem(
        small().set_axis(pd.Index(["2024-01-01", missing, "2024-01-03"], dtype=object))
    )
    assert "row 2" in problem(small().set_axis(pd.DatetimeIndex(["2024-01-01", missing, "2024-01-03"])))


def test_stamps_far_outside_of_history_are_refused() -> None:
    index = pd.DatetimeIndex(np.array(["0900-01-01", "0900-01-02", "0900-01-03"], dtype="datetime64[s]"))
    assert "1678" in problem(small().set_axis(index))


# --- what is refused ---


def test_something_that_is_no_table_is_refused() -> None:
    assert "expected a pandas DataFrame" in problem([[1, 2]])


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pd.DataFrame(index=pd.date_range("2024", periods=3)), "no columns"),
        (small().iloc[:0], "no rows"),
        (small().iloc[:1], "single row"),
        (small()[["a"]], "single sensor ('a')"),
        (small(a=[np.nan] * 3, b=[np.nan] * 3), "all values are missing"),
        (small(a=[True, False, True], b=[1.0, 2.0, 3.0]), "column 'a' holds True and False"),
        (small(a=np.array([1, True, None], dtype=object), b=[1.0, 2.0, 3.0]), "column 'a' has True at"),
        (small(a=["1", "2", "3"], b=[1.0, 2.0, 3.0]), "column 'a' has the text '1' at 2024-01-01 00:00:00"),
        (small(a=pd.array([None] * 3, dtype="string"), b=[1.0, 2.0, 3.0]), "column 'a' is of type string"),
        (
            small(a=np.array(["NaT"] * 3, dtype="timedelta64[ns]"), b=[1.0, 2.0, 3.0]),
            "column 'a' is of type timedelta64",
        ),
        (small(a=pd.arrays.SparseArray([1.0, 2.0, 3.0]), b=[1.0, 2.0, 3.0]), "column 'a' is sparse"),
        (small(a=[1.0, np.inf, -np.inf], b=[1.0, 2.0, 3.0]), "column 'a' has 2 infinite values, the first at 2024-01-"),
        (small().set_axis([1, "1"], axis=1), "sensor id '1' names more than one column"),
        (small().set_axis(pd.MultiIndex.from_tuples([("a", 1), ("b", 1)]), axis=1), "2 levels"),
        (small().iloc[[1, 1, 1]], "all rows have the time stamp 2024-01-01 01:00:00"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_with_the_place(table: Any, words: str) -> None:
    assert words in problem(table)


def test_text_among_numbers_is_named_with_its_stamp() -> None:
    table = small(a=np.array([1.0, "n/a", 3.0], dtype=object), b=[1.0, 2.0, 3.0])
    assert "column 'a' has the text 'n/a' at 2024-01-01 01:00:00" in problem(table)


def test_three_different_texts_of_a_column_are_named_and_the_others_counted() -> None:
    table = hourly(np.array([["x", 1.0], ["x", 2.0], ["y", 3.0], [True, 4.0], ["z", 5.0]], dtype=object))
    told = problem(table)
    assert "has the text 'x' at 2024-01-01 00:00:00 and the text 'y' at 2024-01-01 02:00:00 and True at" in told
    assert "2024-01-01 03:00:00 and 1 others: turn" in told


def test_all_problems_are_told_at_once() -> None:
    table = small(a=[1.0, np.inf, 3.0], b=["x", "y", "z"]).iloc[[2, 0, 1]]
    with pytest.raises(ProblemsError) as caught:
        to_frame(table, freq="SMS")
    assert len(caught.value.problems) == 3


# --- arrays ---


def test_arrays_on_a_regular_grid_become_a_frame() -> None:
    times = pd.date_range("2024-01-01", periods=3, freq="5min")
    frame = from_arrays([[1, 0], [2, 5], [3, 6]], [[True, False], [True, True], [True, True]], times, ["a", "b"])
    assert np.isnan(np.asarray(frame.values)[0, 1])
    assert frame.step == pd.Timedelta("5min")
    assert frame.restore(filled(frame)).iloc[0].tolist() == [1, 7.25]


@pytest.mark.parametrize(
    ("values", "times", "words"),
    [
        (np.ones((3, 3)), pd.date_range("2024", periods=3), "must be"),
        (np.full((3, 2), np.inf), pd.date_range("2024", periods=3), "NaN or infinite"),
        (np.ones((3, 2)), pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-04"]), "evenly spaced"),
    ],
)
def test_arrays_that_are_no_regular_grid_are_refused(values: Any, times: pd.DatetimeIndex, words: str) -> None:
    with pytest.raises(InputError, match=words):
        from_arrays(values, np.ones(values.shape, dtype=bool), times, ["a", "b"])


# --- the list of sensors ---


def places(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"sensor_id": ["a", "b"], "latitude": [50.0, 51.0], "longitude": [10.0, 11.0]} | columns)


@pytest.mark.parametrize(
    "names",
    [("ID", "Lat", "Lon"), ("station_id", "y", "x"), ("Sensor", "LATITUDE", "lng"), ("name", "lat", "long")],
)
def test_common_spellings_of_the_columns_are_understood(names: tuple[str, ...]) -> None:
    listed = sensor_list(places().set_axis(list(names), axis=1))
    assert listed.index.tolist() == ["a", "b"]
    assert listed["latitude"].tolist() == [50, 51]
    assert listed["longitude"].tolist() == [10, 11]


def test_ids_may_be_in_the_index_and_numbers_and_a_checked_list_stays_as_it_is() -> None:
    listed = sensor_list(places().set_index("sensor_id").set_axis([7, 8]))
    assert listed.index.tolist() == ["7", "8"]
    pd.testing.assert_frame_equal(sensor_list(listed), listed)


def test_whole_float_ids_lose_their_decimal_point() -> None:
    assert sensor_list(places(sensor_id=[773869.0, 5.0])).index.tolist() == ["773869", "5"]


def test_longitudes_up_to_360_are_wrapped() -> None:
    assert sensor_list(places(longitude=[350.0, 10.0]))["longitude"].tolist() == [-10, 10]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (
            places().drop(columns="latitude"),
            "found 'sensor_id', 'longitude', needed is one of each: latitude: latitude",
        ),
        (places().drop(columns="sensor_id"), "id: sensor_id, station_id"),
        (places().iloc[:0], "no rows"),
        (places(sensor_id=["a", "a"]), "sensor id 'a' occurs more than once"),
        (places(sensor_id=["a", None]), "row 2 of the list of sensors has no id"),
        (places(latitude=[50.0, None]), "the latitude of sensor 'b' is missing"),
        (places(latitude=["50", " "]), "the latitude of sensor 'b' is missing"),
        (places(longitude=["east", "11"]), "the longitude of sensor 'a' is not a number: 'east'"),
        (places(latitude=[91.0, 10.0], longitude=[120.0, 0.0]), "the latitude of sensor 'a' is 91, outside -90 to 90"),
        (places(longitude=[10.0, 400.0]), "the longitude of sensor 'b' is 400, outside -180 to 180"),
        (places(latitude=[116.0, 117.0], longitude=[40.0, 39.0]), "look swapped"),
    ],
)
def test_a_list_of_sensors_that_cannot_be_used_is_refused_with_the_place(table: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        sensor_list(table)
    assert words in str(caught.value)


def test_several_problems_of_a_list_are_told_at_once() -> None:
    with pytest.raises(ProblemsError) as caught:
        sensor_list(places(sensor_id=["a", "a"], latitude=[None, 1.0], longitude=["x", 1.0]))
    assert len(caught.value.problems) == 3


def test_sensors_are_matched_in_the_order_of_the_table_and_absent_ones_are_named() -> None:
    listed = places()
    assert match_sensors(listed, ["b"]).index.tolist() == ["b"]
    assert match_sensors(listed, ["b", "a"])["latitude"].tolist() == [51, 50]
    with pytest.raises(InputError, match=r"lacks 's0', .*'s7' and 2 more"):
        match_sensors(listed, ["a", *[f"s{i}" for i in range(10)]])


@pytest.mark.parametrize(
    ("latitude", "longitude", "words"),
    [
        ([47.1, 48.2], [10.0, 12.3], "between 47.1 and 48.2 degrees north, 10.0 and 12.3 degrees east"),
        ([-34.0, -33.5], [-70.9, -70.1], "between 33.5 and 34.0 degrees south, 70.1 and 70.9 degrees west"),
        ([-1.0, 2.0], [-3.0, 4.0], "1.0 degrees south and 2.0 degrees north, 3.0 degrees west and 4.0 degrees east"),
    ],
)
def test_the_region_of_sensors_is_told_in_words(latitude: list[float], longitude: list[float], words: str) -> None:
    assert words in region(pd.DataFrame({"latitude": latitude, "longitude": longitude}))


def test_all_steps_come_back_when_they_are_wanted() -> None:
    times = pd.date_range("2024-01-01", periods=6, freq="1h", name="time").delete([2, 3])
    table = pd.DataFrame(
        {"a": np.array([1.5, np.nan, 3.5, 4.5], dtype=np.float32), "b": pd.array([1, 2, None, 4], dtype="Int64")},
        index=times,
    )
    frame = to_frame(table)
    filled = np.full(frame.values.shape, 9.0)
    assert frame.restore(filled).index.equals(times)
    whole = frame.restore(filled, all_steps=True)
    assert list(whole.index) == list(pd.date_range("2024-01-01", periods=6, freq="1h"))
    assert whole.index.name == "time"
    assert whole.dtypes.to_list() == table.dtypes.to_list()
    assert whole["a"].to_list() == [1.5, 9.0, 9.0, 9.0, 3.5, 4.5]
    assert whole["b"].to_list() == [1, 2, 9, 9, 9, 4]
    assert (frame.hole_count(), frame.hole_count(all_steps=True)) == (2, 6)


def test_all_steps_of_a_zone_keep_the_zone() -> None:
    times = pd.date_range("2024-03-30", periods=60, freq="1h", tz="Europe/Berlin").delete(list(range(20, 40)))
    frame = to_frame(pd.DataFrame({"a": np.arange(40.0), "b": 1.0}, index=times))
    whole = frame.restore(np.zeros(frame.values.shape), all_steps=True)
    assert whole.index.equals(pd.date_range("2024-03-30", periods=60, freq="1h", tz="Europe/Berlin"))


# --- limits ---


def test_nothing_negative_is_expected_where_nothing_negative_was_read() -> None:
    assert to_frame(small(a=[1.0, 2.0, np.nan], b=[0.5, 7.0, 9.0])).limits == (0.0, np.inf)
    assert to_frame(small(a=[1.0, 2.0, np.nan], b=[-0.5, 7.0, 9.0])).limits == (-np.inf, np.inf)


def test_what_readings_reach_again_and_again_is_an_end_of_their_scale() -> None:
    steps = pd.date_range("2024-01-01", periods=100, freq="h")
    humidity = np.minimum(np.linspace(40.0, 130.0, 100), 100.0)
    table = pd.DataFrame({"a": humidity, "b": humidity - 1.0}, index=steps)
    assert to_frame(table).limits == (0.0, 100.0)
    assert to_frame(table.iloc[:70]).limits == (0.0, np.inf), "reached a few times only"
    cold = pd.DataFrame({"a": np.maximum(-humidity, -80.0), "b": -humidity / 2}, index=steps)
    assert to_frame(cold).limits == (-80.0, np.inf)


def test_the_day_of_a_reading_is_the_one_on_which_it_was_taken() -> None:
    hours = pd.to_timedelta(np.random.default_rng(0).integers(0, 24, 60), unit="h")
    taken = pd.date_range("2024-06-01", periods=60, freq="D") + hours
    frame = to_frame(pd.DataFrame({"a": np.arange(60.0), "b": np.arange(60.0) ** 2}, index=taken), freq="D")
    assert [frame.position(str(stamp)) for stamp in taken] == list(range(60))
    assert frame.position("2024-06-14") == 13
    with pytest.raises(InputError, match="2024-05-31 23:00 is not in the table"):
        frame.position("2024-05-31 23:00")
