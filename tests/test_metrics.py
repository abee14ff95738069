from __future__ import annotations

import numpy as np
import pytest

from casper.errors import InputError
from casper.metrics import ErrorSums, PerStepAverage, coverage, score_cells, score_table, score_windows, window_counts


def test_errors_are_averaged_over_all_scored_cells_and_mre_is_a_percentage():
    truth = np.array([[10.0, 20.0], [30.0, 40.0]])
    imputed = np.array([[12.0, 20.0], [30.0, 36.0]])
    scores = score_cells(truth, imputed, np.array([[True, False], [False, True]]))
    assert (scores.mae, scores.mse, scores.count) == (3.0, 10.0, 2)
    assert scores.mre == pytest.approx(100 * 6 / 50)


def test_relative_error_is_taken_against_magnitudes_so_that_temperatures_below_zero_do_not_cancel():
    scores = score_cells(np.array([-5.0, 5.0]), np.array([-4.0, 5.0]), np.array([True, True]))
    assert scores.mre == pytest.approx(10.0)


def test_sums_added_in_batches_equal_sums_added_at_once():
    rng = np.random.default_rng(0)
    truth, imputed = rng.random(50), rng.random(50)
    batched, whole = ErrorSums(), ErrorSums()
    batched.add(truth[:20], imputed[:20])
    batched.add(truth[20:], imputed[20:])
    whole.add(truth, imputed)
    assert batched.scores().mae == pytest.approx(whole.scores().mae)
    assert batched.scores().count == 50


def test_nothing_scored_gives_nan_and_zero_truth_gives_no_relative_error():
    nothing = ErrorSums().scores()
    assert nothing.count == 0
    assert np.isnan([nothing.mae, nothing.mse, nothing.mre]).all()
    zeros = score_cells(np.zeros(2), np.ones(2), np.array([True, True]))
    assert zeros.mae == 1.0
    assert np.isnan(zeros.mre)


def test_a_scored_cell_that_was_not_filled_is_an_error_not_a_nan_score():
    with pytest.raises(InputError, match="1 of 2 cells cannot be scored"):
        score_cells(np.array([1.0, 2.0]), np.array([1.0, np.nan]), np.array([True, True]))


def test_window_counts_say_how_many_windows_cover_a_step():
    assert window_counts(np.array([0, 1, 2, 7]), 3, 10).tolist() == [1, 2, 3, 2, 1, 0, 0, 1, 1, 1]


def test_a_table_filled_once_scores_like_its_windows():
    rng = np.random.default_rng(1)
    truth, imputed = rng.random((30, 4)), rng.random((30, 4))
    hidden = rng.random((30, 4)) < 0.3
    starts, window = np.arange(12, 26), 5
    by_table = score_table(truth, imputed, hidden, starts=starts, window=window)
    windows = np.stack([imputed[start : start + window].T for start in starts])  # (B, N, window)
    batches = [(starts[:6], windows[:6]), (starts[6:], windows[6:])]
    by_window = score_windows(batches, truth=truth, hidden=hidden)
    assert by_window == pytest.approx(by_table)
    assert by_table["n_scored"] == hidden[12:].sum()
    assert by_table["mae"] != by_table["mae_step"]


def test_per_window_counts_a_cell_once_per_window_and_per_step_averages_first():
    truth = np.zeros((3, 1))
    hidden = np.array([[False], [True], [False]])
    batches = [(np.array([0, 1]), np.array([[[0.0, 4.0]], [[-4.0, 0.0]]]))]  # the middle step is filled with 4 and -4
    scores = score_windows(batches, truth=truth, hidden=hidden)
    assert scores["mae"] == 4.0
    assert scores["mae_step"] == 0.0
    assert scores["n_scored"] == 1


def test_the_average_over_windows_is_nan_where_no_window_was():
    average = PerStepAverage((4, 2))
    average.add(np.array([0, 1]), np.array([[[1.0, 2.0], [1.0, 2.0]], [[4.0, 6.0], [4.0, 6.0]]]))
    assert average.covered.tolist() == [True, True, True, False]
    np.testing.assert_array_equal(average.mean()[:, 0], [1.0, 3.0, 6.0, np.nan])


def test_coverage_counts_cells_inside_their_interval_ends_included():
    truth = np.array([1.0, 2.0, 3.0, 9.0])
    scored = np.array([True, True, True, False])
    assert coverage(truth, truth - np.array([0, 1, -1, 0]), truth + 1, scored) == pytest.approx(2 / 3)
    assert np.isnan(coverage(truth, truth, truth, np.zeros(4, dtype=bool)))
