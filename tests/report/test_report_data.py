"""The numbers behind a report: bins, series, errors on hidden cells, arrows, explained values, words."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from report_cases import banded

from casper.causal import CausalGraph
from casper.filled import Filled
from casper.frame import SensorFrame, to_frame
from casper.imputer import Casper
from casper.masks import hide_like_gaps, lengthen_gaps
from casper.report import hidden_check, series
from casper.report.arrows import lag_classes, network, pair_shares
from casper.report.coverage import MOST_ROWS, MOST_TIME_BINS, coverage
from casper.report.explained_values import explained_values
from casper.report.recipe import readings_hash
from casper.report.words import counted, duration, lag_words, moment, number, percent, span
from casper.simulate import Simulation

HOUR = pd.Timedelta(hours=1)


def as_grid(frame: SensorFrame) -> pd.DataFrame:
    return pd.DataFrame(frame.values, index=frame.times, columns=list(frame.sensors))


def filled_from(frame: SensorFrame) -> Filled:
    return banded(as_grid(frame)).impute(as_grid(frame), intervals=(0.5, 0.9))


# ---- coverage


def test_a_small_table_has_a_bin_for_every_cell() -> None:
    observed = np.array([[True, False], [True, True], [False, True]])
    bins = coverage(observed, ~observed)
    assert bins["times"] == [0, 1, 2, 3]
    assert bins["measured"] == [[1, 1, 0], [0, 1, 1]]
    assert bins["flagged"] == [[0, 0, 1], [1, 0, 0]]


def test_bins_of_a_large_table_hold_every_cell_once() -> None:
    observed = np.random.default_rng(0).random((5000, 700)) < 0.8
    bins = coverage(observed, ~observed)
    assert len(bins["times"]) - 1 <= MOST_TIME_BINS
    assert len(bins["sensors"]) - 1 <= MOST_ROWS
    assert np.sum(bins["measured"]) == observed.sum()
    assert np.sum(bins["flagged"]) == (~observed).sum()
    sizes = np.outer(np.diff(bins["sensors"]), np.diff(bins["times"]))
    assert (np.asarray(bins["measured"]) <= sizes).all()


# ---- series


def test_series_come_back_with_four_digits_and_their_intervals(six_sensors: Simulation) -> None:
    frame = to_frame(six_sensors.table)
    filled = filled_from(frame)
    shown = series.shown_series(frame, filled)
    assert shown["first"] == 0
    assert [one["sensor"] for one in shown["sensors"]] == list(range(6))
    for one in shown["sensors"]:
        column, hole = one["sensor"], ~frame.observed[:, one["sensor"]]
        values = np.asarray(one["values"]) * 10.0 ** -one["decimals"]
        np.testing.assert_allclose(values, filled.table.iloc[:, column], rtol=0, atol=0.5 * 10.0 ** -one["decimals"])
        assert 10.0 ** -one["decimals"] <= np.quantile(values, 0.9) / 1000
        assert series.runs(hole).tolist() == one["holes"]
        for share in (0.5, 0.9):
            upper = np.asarray(one["upper"][f"{share:g}"]) * 10.0 ** -one["decimals"]
            np.testing.assert_allclose(
                upper, filled.upper[share].to_numpy()[hole, column], atol=10.0 ** -one["decimals"]
            )


def test_when_not_all_series_fit_those_with_most_holes_and_the_wanted_ones_are_shown(
    six_sensors: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = to_frame(six_sensors.table)
    holes = (~frame.observed).sum(axis=0)
    fewest, most = int(np.argmin(holes)), int(np.argmax(holes))
    room = 2 * len(frame.times) + 4 * int(holes[fewest] + holes[most])
    monkeypatch.setattr(series, "MOST_NUMBERS", room)
    shown = series.shown_series(frame, filled_from(frame), wanted=[frame.sensors[fewest]])
    assert {one["sensor"] for one in shown["sensors"]} == {fewest, most}


def test_of_a_series_too_long_for_any_page_the_end_is_shown(
    six_sensors: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = to_frame(six_sensors.table)
    monkeypatch.setattr(series, "MOST_NUMBERS", 200)
    shown = series.shown_series(frame, filled_from(frame))
    assert shown["first"] == len(frame.times) - 40
    assert len(shown["sensors"]) >= 1
    assert len(shown["sensors"][0]["values"]) == 40


def test_a_series_of_zeros_is_shown_too() -> None:
    frame = to_frame(
        pd.DataFrame({"a": [0.0, np.nan, 0.0], "b": 1.0}, index=pd.date_range("2024", periods=3, freq="h"))
    )
    assert series.shown_series(frame, filled_from(frame))["sensors"][0]["values"] == [0, 0, 0]


# ---- errors on hidden cells


def test_the_hidden_cells_are_those_that_fitting_held_back(barred_casper: Casper, six_sensors: Simulation) -> None:
    frame = to_frame(six_sensors.table)
    random = np.random.default_rng(barred_casper.seed)
    drawn = hide_like_gaps(frame.observed, share=0.2, rng=random)
    drawn |= lengthen_gaps(frame.observed, share=0.04, rng=random)
    np.testing.assert_array_equal(hidden_check.held_back(barred_casper, frame), drawn)
    shuffled = to_frame(six_sensors.table.iloc[:, ::-1])
    np.testing.assert_array_equal(hidden_check.held_back(barred_casper, shuffled), drawn[:, ::-1])


def test_errors_and_coverage_are_those_of_the_hidden_cells(six_sensors: Simulation) -> None:
    frame = to_frame(six_sensors.complete)
    model = banded(six_sensors.complete)
    check = hidden_check.hidden_check(model, frame, as_grid(frame), (0.5, 0.9))
    assert check is not None
    hidden = hidden_check.held_back(model, frame)
    filled = model.impute(six_sensors.complete.mask(hidden)).to_numpy()
    errors = np.abs(filled - six_sensors.complete.to_numpy())[hidden]
    assert check.total.cells == hidden.sum()
    assert check.total.mae == pytest.approx(errors.mean())
    assert check.total.mae_of_linear == check.total.mae, "the model is linear interpolation"
    assert check.total.gain == 0
    assert check.total.held == pytest.approx({0.5: (errors <= 2).mean(), 0.9: (errors <= 4).mean()})
    assert check.total.width == pytest.approx({0.5: 4, 0.9: 8})
    assert sum(one.cells for one in check.by_gap.values()) == check.total.cells
    assert sum(one.cells for one in check.by_sensor.values()) == check.total.cells
    assert check.stretches == 0


def test_holes_farther_from_readings_than_any_hidden_one_are_counted(six_sensors: Simulation) -> None:
    def checked(table: pd.DataFrame) -> hidden_check.HiddenCheck:
        frame = to_frame(table)
        check = hidden_check.hidden_check(banded(six_sensors.complete), frame, as_grid(frame), ())
        assert check is not None
        return check

    holed = six_sensors.complete.copy()
    holed.iloc[10:14, 1] = np.nan
    assert checked(holed).beyond == 0
    holed.iloc[:120, 2] = np.nan  # its readings begin at step 120, so that the first hole is 120 steps away
    check = checked(holed)
    assert 0 < check.reach < 60
    assert check.beyond == pytest.approx((120 - check.reach) / 124)


def test_of_a_large_table_only_some_stretches_are_looked_at(
    six_sensors: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hidden_check, "MOST_CELLS", 300)
    monkeypatch.setattr(hidden_check, "FEWEST_STEPS", 12)
    monkeypatch.setattr(hidden_check, "STRETCHES", 4)
    frame = to_frame(six_sensors.complete)
    check = hidden_check.hidden_check(banded(six_sensors.complete), frame, as_grid(frame), ())
    assert check is not None
    assert 1 <= check.stretches <= 4
    assert check.total.cells < hidden_check.held_back(banded(six_sensors.complete), frame).sum()
    assert check.total.held == {}


def test_a_table_with_nothing_to_hide_has_no_check() -> None:
    table = pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, np.nan]}, index=pd.date_range("2024", periods=2, freq="h"))
    frame = to_frame(table)
    assert hidden_check.hidden_check(banded(table), frame, as_grid(frame), ()) is None


def graph_of(*edges: tuple[str, str, int, float]) -> CausalGraph:
    return CausalGraph.build("abc", pd.DataFrame(edges, columns=["source", "target", "lag", "weight"]))


def test_the_shares_of_a_sensor_sum_to_one_over_all_lags_and_itself() -> None:
    shares = pair_shares(graph_of(("a", "b", 1, 0.3), ("a", "b", 2, 0.1), ("b", "b", 1, 0.4), ("c", "b", 0, 0.2)))
    assert shares["source"].tolist() == ["a", "b", "c"]
    assert shares["share"].tolist() == pytest.approx([0.4, 0.4, 0.2])
    assert shares["lag"].tolist() == [1, 1, 0], "of the heaviest lag"


def test_arrows_are_the_strongest_of_the_graph_and_the_rest_of_the_neighbours_is_shut(
    barred_casper: Casper, six_sensors: Simulation
) -> None:
    names = six_sensors.table.columns
    graph = barred_casper.causal_graph(six_sensors.table, windows=5)
    target = names[0]
    lone = graph.edges[(graph.edges["target"] != target) | (graph.edges["source"] == target)]
    drawn = network(
        barred_casper, CausalGraph.build(names, lone), tuple(names), HOUR, six_sensors.sensors, dead=(names[5],)
    )
    assert drawn["map"]
    assert all(share >= 0.01 for _, _, share, *_ in drawn["arrows"])
    assert not [arrow for arrow in drawn["arrows"] if arrow[1] == 0], "nothing was left to draw on but itself"
    assert drawn["own"][0] == pytest.approx(1.0)
    index, present = barred_casper.neighbours(barred_casper.graph)
    neighbours = {int(place) for place in index[0][present[0]]} - {0, 5}
    assert {source for source, aim in drawn["shut"] if aim == 0} == neighbours
    distance = np.hypot(drawn["x"][0] - drawn["x"][1], drawn["y"][0] - drawn["y"][1])
    assert 1 < distance < 100, "kilometres"


def test_classes_of_lags_are_told_in_the_units_of_the_table() -> None:
    words = dict(lag_classes(pd.Timedelta(minutes=5)))
    assert words[0] == "at the same time"
    assert words[1] == "5 min before"
    assert words[2] == "10 to 15 min before"
    assert words[-3] == "10 to 15 min after"
    assert words[4] == "20 min or more before"


# ---- values


def test_a_value_in_the_middle_of_each_sensors_longest_gap_is_explained(
    barred_casper: Casper, six_sensors: Simulation
) -> None:
    frame = to_frame(six_sensors.table)
    grid = as_grid(frame)
    values = explained_values(barred_casper, frame, grid, barred_casper.impute(grid, intervals=(0.9,)))
    assert len(values) == 6
    assert "90% interval" in values[0]["words"]
    for value in values:
        time = value["label"].split(", ")[1]
        whole = barred_casper.explain(grid, sensor=frame.sensors[value["sensor"]], time=time)
        np.testing.assert_allclose(np.asarray(value["weight"]) / 100, whole.weight, atol=1e-4)
        np.testing.assert_allclose(np.asarray(value["attention"]) / 100, whole.attention, atol=1e-4)
        assert not frame.observed[frame.position(time), value["sensor"]]
        assert value["offsets"][list(whole.weight.columns).index(pd.Timestamp(time))] == 0
        assert len(value["causes"]) == 3


# ---- words


def test_numbers_read_well() -> None:
    assert [number(value) for value in (0, 0.01234, 1.2345, 12.345, 1234.5, float("nan"))] == [
        "0", "0.0123", "1.23", "12.3", "1,234", "-",
    ]  # fmt: skip
    assert [percent(value) for value in (0, 0.0001, 0.123, 0.9999, 1, float("nan"))] == [
        "0.0%", "<0.1%", "12.3%", ">99.9%", "100.0%", "-",
    ]  # fmt: skip
    assert counted(1, "hole") == "1 hole"
    assert counted(2000, "hole") == "2,000 holes"


def test_times_read_well() -> None:
    assert [duration(HOUR, steps) for steps in (1, 60.5, 72, 202)] == ["1 h", "60.5 h", "3 days", "8.42 days"]
    assert duration(pd.Timedelta(days=1), 400) == "400 days"
    assert duration(pd.Timedelta(minutes=5), 9) == "45 min"
    assert duration(pd.Timedelta(seconds=1.25)) == "1.25 s"
    assert span(HOUR, 2, 6) == "2 to 6 h"
    assert span(pd.Timedelta(minutes=15), 2, 6) == "30 min to 1.5 h"
    assert span(HOUR, 25, None) == "25 h or more"
    assert lag_words(0, HOUR) == "at the same time"
    assert lag_words(3, HOUR) == "3 h earlier"
    assert lag_words(-1, HOUR) == "1 h later"
    assert moment(pd.Timestamp("2024-01-01 12:30:15")) == "2024-01-01 12:30:15"


def test_the_hash_of_the_readings_tells_tables_apart_and_nothing_else(six_sensors: Simulation) -> None:
    told = readings_hash(to_frame(six_sensors.table))
    assert told == readings_hash(to_frame(six_sensors.table.copy()))
    changed = six_sensors.table.copy()
    changed.iloc[0, 0] = 1.0
    assert told != readings_hash(to_frame(changed))
    assert told != readings_hash(to_frame(six_sensors.table.rename(columns={"S1": "X"})))
