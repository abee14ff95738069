"""How many lags are chosen, where it is known how many there are."""

import numpy as np
import pytest
from numpy.typing import NDArray

from casper.discovery.foretelling import held_back_error, steps_worth_looking_at
from casper.discovery.recording import Recording


def series(lag: int, *, steps: int, seed: int, variables: int = 4) -> NDArray[np.float64]:
    """Every variable is driven by the one before it in the ring, so many steps earlier."""
    random = np.random.default_rng(seed)
    values = random.standard_normal((steps, variables))
    for step in range(lag, steps):
        values[step] += 0.8 * np.roll(values[step - lag], 1)
    return values


@pytest.mark.parametrize("lag", [1, 2, 4])
def test_the_lag_that_drives_the_variables_is_found_in_one_trajectory(lag: int):
    assert steps_worth_looking_at(Recording.of(series(lag, steps=600, seed=lag)), most=5) == lag


def test_the_lag_is_found_in_many_short_trajectories():
    many = [series(1, steps=12, seed=seed) for seed in range(40)]
    assert steps_worth_looking_at(Recording.of(many), most=5) == 1


def test_noise_is_foretold_by_its_mean():
    noise = np.random.default_rng(0).standard_normal((500, 3))
    assert held_back_error(Recording.of(noise), 3) == pytest.approx(1.0, abs=0.03)


def test_no_step_is_foretold_across_the_end_of_a_trajectory():
    random = np.random.default_rng(1)
    pairs = [np.repeat(random.standard_normal((1, 2)), 2, axis=0) for _ in range(200)]  # each of two equal steps
    assert held_back_error(Recording.of(pairs), 1) < 0.1
    assert held_back_error(Recording.of([pair[:1] for pair in pairs[:2]] + pairs), 1) < 0.1


def test_holes_tell_nothing_of_what_comes_after_them():
    noise = np.random.default_rng(2).standard_normal((800, 3))
    noise[np.random.default_rng(3).random(noise.shape) < 0.4] = np.nan
    assert held_back_error(Recording.of(noise), 2) > 0.98


def test_shorter_trajectories_end_where_they_end():
    whole = [series(2, steps=60, seed=seed) for seed in range(12)]
    whole[3] = whole[3][:20]
    assert steps_worth_looking_at(Recording.of(whole), most=4) == 2
