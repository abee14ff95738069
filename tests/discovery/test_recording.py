from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from casper.discovery.recording import Recording
from casper.errors import InputError

NAN = np.nan


def test_a_table_an_array_and_a_list_of_either_become_trajectories() -> None:
    table = pd.DataFrame({"a": [1.0, NAN, 3.0], "b": [4.0, 5.0, 6.0]})
    one = Recording.of(table)
    assert one.names == ("a", "b")
    assert one.values[0].tolist() == [[1, 4], [0, 5], [3, 6]]
    assert one.observed[0].tolist() == [[True, True], [False, True], [True, True]]
    assert not one.complete
    assert Recording.of(np.ones((5, 3))).names == ("x1", "x2", "x3")
    assert Recording.of(np.ones((4, 5, 3))).values.shape == (4, 5, 3)
    several = Recording.of([table, table.iloc[:2]])
    assert several.exists.tolist() == [[True] * 3, [True, True, False]]
    assert not several.observed[1, 2].any()


@pytest.mark.parametrize(
    ("series", "message"),
    [
        ([], "no trajectory"),
        (np.ones((5, 1)), "at least two variables"),
        (np.full((5, 2), NAN), "no value is observed"),
        ([np.ones((5, 2)), np.ones((5, 3))], r"trajectory 1 has shape \(5, 3\)"),
        (
            [pd.DataFrame(np.ones((3, 2)), columns=["a", "b"]), pd.DataFrame(np.ones((3, 2)), columns=["a", "c"])],
            "other",
        ),
    ],
)
def test_what_is_no_recording_is_refused(series, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Recording.of(series)


def test_variables_are_standardised_by_what_is_observed_and_constants_become_zero() -> None:
    given = Recording.of(np.array([[[1.0, 7.0], [NAN, 7.0], [3.0, 7.0]], [[5.0, 7.0], [7.0, NAN], [NAN, NAN]]]))
    scaled = given.standardised()
    first = scaled.values[..., 0][given.observed[..., 0]]
    assert first.mean() == pytest.approx(0)
    assert first.std() == pytest.approx(1)
    assert (scaled.values[..., 1] == 0).all()
    assert (scaled.values[~given.observed] == 0).all()


@pytest.mark.parametrize(("how", "wanted"), [("linear", [2, 2, 3, 4, 4]), ("hold", [2, 2, 2, 4, 4])])
def test_holes_are_filled_within_their_trajectory(how, wanted: list[float]) -> None:
    series = np.array([[NAN, 2.0, NAN, 4.0, NAN], [1.0] * 5]).T
    other = np.array([[NAN, NAN], [8.0, 8.0]]).T  # never observed in this trajectory: the mean over the others
    filled = Recording.of([series, other]).filled(how)
    assert filled.values[0, :, 0].tolist() == wanted
    assert filled.values[1, :2, 0].tolist() == [3.0, 3.0]
    assert filled.complete
    assert (filled.values[1, 2:] == 0).all(), "nothing lies behind the end"


def test_windows_never_reach_from_one_trajectory_into_the_next() -> None:
    long, short = np.arange(10.0).reshape(5, 2), 100 + np.arange(6.0).reshape(3, 2)
    values, observed = Recording.of([long, short]).windows(3)
    assert values.shape == (3 + 1, 3, 2)
    assert values[-1].tolist() == short.tolist()
    assert observed.all()
    with pytest.raises(InputError, match="at least 6 are needed"):
        Recording.of([long, short]).windows(6)


def test_a_long_trajectory_is_cut_into_pieces() -> None:
    pieces = Recording.of(np.arange(14.0).reshape(7, 2)).cut(3)
    assert pieces.values.shape == (3, 3, 2)
    assert pieces.values[2].tolist() == [[12, 13], [0, 0], [0, 0]]
    assert pieces.exists.tolist() == [[True] * 3, [True] * 3, [True, False, False]]


def test_rows_with_time_stamps_are_checked_and_missing_ones_are_holes() -> None:
    times = pd.date_range("2024-01-01", periods=6, freq="h")
    table = pd.DataFrame(np.arange(12.0).reshape(6, 2), index=times, columns=["a", "b"])
    gappy = Recording.of(table.iloc[[0, 1, 4, 5]])
    assert gappy.values[0, :, 0].tolist() == [0, 2, 0, 0, 8, 10]
    assert gappy.observed[0, :, 0].tolist() == [True, True, False, False, True, True]
    assert gappy.step == pd.Timedelta("1h")
    np.testing.assert_array_equal(Recording.of(table.iloc[::-1]).values[0], table.to_numpy())
    twice = pd.concat([table, table.iloc[:1] + 1])
    with pytest.raises(InputError, match="more than once with different readings"):
        Recording.of(twice)
    with pytest.raises(InputError, match="different lengths"):
        Recording.of([table, table.iloc[::2]])
