from __future__ import annotations

import numpy as np
import pandas as pd

from casper.baselines.knn import NeighbourMeanImputer
from casper.baselines.linear import LinearImputer
from casper.baselines.mean import MeanImputer

NAN = np.nan
WEIGHTS = np.array([[0, 3, 1], [3, 0, 0], [1, 0, 0]], dtype=float)  # a listens to b and, less, to c


def table(**columns: list[float]) -> pd.DataFrame:
    length = len(next(iter(columns.values())))
    return pd.DataFrame(columns, index=pd.date_range("2024-01-01", periods=length, freq="1h"))


def test_the_mean_of_a_sensor_fills_its_holes() -> None:
    filled = MeanImputer().fit_transform(table(a=[1, NAN, 5, NAN], b=[7, 7, NAN, 10]), adjacency=np.ones((2, 2)))
    assert filled["a"].tolist() == [1, 3, 5, 3]
    assert filled["b"].tolist() == [7, 7, 8, 10]


def test_a_sensor_that_never_reported_takes_the_mean_of_all_readings() -> None:
    given = table(a=[1, NAN, 5, NAN], b=[NAN, NAN, NAN, 9], c=[NAN] * 4)
    for method in (MeanImputer, LinearImputer, NeighbourMeanImputer):
        filled = method().fit_transform(given, adjacency=np.zeros((3, 3)))
        assert filled["c"].tolist() == [5.0] * 4, method.name


def test_a_straight_line_joins_the_readings_and_the_ends_are_held() -> None:
    given = table(a=[NAN, 2, NAN, NAN, 8, NAN], b=[1, 2, 3, 4, 5, 6])
    filled = LinearImputer().fit_transform(given, adjacency=np.ones((2, 2)))
    assert filled["a"].tolist() == [2, 2, 4, 6, 8, 8]
    assert filled["b"].tolist() == given["b"].tolist()


def test_the_line_is_drawn_in_time_and_not_in_rows() -> None:
    given = table(a=[0, 1, NAN, 3, 4, 5, 6, 9, 10], b=[0.0] * 9).drop(index=pd.Timestamp("2024-01-01 03:00"))
    filled = LinearImputer().fit_transform(given, adjacency=np.ones((2, 2)))
    assert filled["a"].iloc[2] == 2.0


def test_a_sensor_that_stopped_reporting_is_filled_with_the_mean_it_had() -> None:
    imputer = LinearImputer().fit(table(a=[1, 3, NAN], b=[1, 1, 1]), adjacency=np.ones((2, 2)))
    assert imputer.impute(table(a=[NAN, NAN, NAN], b=[1, 1, 1]))["a"].tolist() == [2.0, 2.0, 2.0]


def test_neighbours_are_averaged_by_weight_among_those_that_report() -> None:
    given = table(a=[NAN, NAN, NAN, 10], b=[4, 4, NAN, 4], c=[8, NAN, NAN, 8])
    filled = NeighbourMeanImputer().fit_transform(given, adjacency=WEIGHTS)
    assert filled["a"].tolist() == [5.0, 4.0, 10.0, 10.0]  # (3 * 4 + 8) / 4; b alone; nobody: its own mean
    assert filled["b"].tolist() == [4.0, 4.0, 4.0, 4.0]
    assert filled["c"].tolist() == [8.0, 8.0, 8.0, 8.0]


def test_weights_are_read_from_source_to_target() -> None:
    one_way = np.zeros((3, 3))
    one_way[1, 0] = 1.0  # b influences a, and nothing else does
    filled = NeighbourMeanImputer().fit_transform(table(a=[NAN, 1], b=[6, NAN], c=[3, 3]), adjacency=one_way)
    assert filled.iloc[0].tolist() == [6, 6, 3]
    assert filled["b"].iloc[1] == 6.0


def test_only_the_ten_nearest_sensors_are_asked() -> None:
    count = 13
    weights = np.zeros((count, count))
    weights[1:, 0] = np.arange(count - 1, 0, -1)  # sensor 1 is nearest to sensor 0, sensor 12 is farthest
    readings = {f"s{number}": [float(number <= 10), 0.0] for number in range(count)}
    readings["s0"] = [NAN, 0.5]
    filled = NeighbourMeanImputer().fit_transform(table(**readings), adjacency=weights)
    assert filled["s0"].iloc[0] == 1.0
