from __future__ import annotations

import numpy as np

from casper.datasets import Benchmark
from casper.training.lesson import also_watched


def test_where_few_cells_are_scored_visible_ones_of_the_validation_steps_are_watched_too(
    small_benchmark: Benchmark,
) -> None:
    hidden, observed = small_benchmark.hidden, small_benchmark.observed
    steps = small_benchmark.validation_steps & ~small_benchmark.train_steps
    scored, visible = int((hidden & observed)[steps].sum()), int((observed & ~hidden)[steps].sum())
    more = also_watched(small_benchmark, hidden, scored + visible // 10, seed=0)
    assert not more[~steps].any(), "nothing that is learned from, and no test step"
    assert not (more & (hidden | ~observed)).any()
    assert abs(int(more.sum()) - visible // 10) <= 0.05 * visible
    assert np.array_equal(more, also_watched(small_benchmark, hidden, scored + visible // 10, seed=0))
    assert not np.array_equal(more, also_watched(small_benchmark, hidden, scored + visible // 10, seed=1))


def test_never_more_than_a_fifth_of_what_is_visible_there(small_benchmark: Benchmark) -> None:
    steps = small_benchmark.validation_steps & ~small_benchmark.train_steps
    visible = int((small_benchmark.observed & ~small_benchmark.hidden)[steps].sum())
    more = also_watched(small_benchmark, small_benchmark.hidden, 10**9, seed=0)
    assert 0.15 * visible < more.sum() <= 0.2 * visible


def test_nothing_more_is_watched_where_enough_is_scored(small_benchmark: Benchmark) -> None:
    assert not also_watched(small_benchmark, small_benchmark.hidden, 0, seed=0).any()
