"""Filled values are written with a few digits more than the readings have, and readings as they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from casper.frame import to_frame
from casper.io import read_table, write_table
from casper.io.digits import decimals_of, round_estimates, round_filled
from table_files import put


def test_the_decimals_of_readings_are_counted_and_a_silent_sensor_takes_those_of_the_others() -> None:
    table = pd.DataFrame(
        {"a": [1.25, 3.5, 9.9], "b": [7.0, 8.0, 0.1234567], "silent": 1 / 3, "made": [0.1 + 0.2, 1 / 3, 2 / 3]}
    )
    holes = np.zeros((3, 4), dtype=bool)
    holes[2, 1], holes[:, 2] = True, True
    assert decimals_of(table.iloc[:, :3], holes[:, :3]).tolist() == [2, 0, 2]
    assert decimals_of(table, holes)[3] > 15


@pytest.mark.parametrize(
    ("estimate", "decimals", "written"),
    [
        (12.345678901234567, 2, "12.3457"),
        (12345.678901234567, 2, "12345.6789"),
        (12345.678901234567, 0, "12345.68"),
        (0.00012345678901, 1, "0.000123457"),
        (-7.123456789, 1, "-7.12346"),
        (0.0, 1, "0.0"),
        (1 / 3, 300, "0.3333333333333333"),
    ],
)
def test_estimates_get_two_decimals_more_or_six_digits(estimate: float, decimals: int, written: str) -> None:
    assert repr(float(round_estimates(np.array([estimate]), decimals)[0])) == written


def test_only_holes_are_rounded_and_the_table_itself_is_not() -> None:
    table = pd.DataFrame({"a": [1.5, 2 / 3, 2.5], "b": [1, 2, 3]})
    before = table.copy(deep=True)
    holes = np.array([[False, False], [True, True], [False, False]])
    assert round_filled(table, holes)["a"].tolist() == [1.5, 0.666667, 2.5]
    assert round_filled(table, ~holes)["a"].iloc[1] == 2 / 3
    pd.testing.assert_frame_equal(table, before)


def test_a_csv_shows_short_estimates_beside_untouched_readings_and_parquet_all_digits(tmp_path: Path) -> None:
    text = "time;a;b\n01.01.2024 00:00;1,25;17\n02.01.2024 00:00;;18\n13.01.2024 00:00;3,1415926535;\n"
    table, form = read_table(put(tmp_path, text))
    frame = to_frame(table, freq="1D")
    estimate = np.where(frame.observed, frame.values, 100 / 3)
    for name in ("out.csv", "out.parquet"):
        write_table(frame.restore(estimate), tmp_path / name, like=form, filled=frame.holes())
    rounded = text.replace(";;", ";33,333333333333;").replace("35;\n", "35;33,3333\n")
    assert (tmp_path / "out.csv").read_text() == rounded
    assert pd.read_parquet(tmp_path / "out.parquet")["a"].iloc[1] == 100 / 3
