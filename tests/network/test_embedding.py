from __future__ import annotations

import numpy as np
import pytest
import torch

from casper.network.embedding import Level, Positions, guess_from_time


def test_a_guess_is_a_line_through_the_nearest_visible_steps_and_tells_how_near_they_are() -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(2, 3, 9, generator=generator, dtype=torch.float64)
    visible = torch.rand(values.shape, generator=generator) < 0.4
    visible[0, 0], visible[0, 1] = False, False
    visible[0, 1, 4] = True
    guess = guess_from_time(values * visible, visible).numpy()
    for place in np.ndindex(2, 3):
        known = np.flatnonzero(visible[place].numpy())
        for step in range(9):
            before, after = known[known <= step], known[known >= step]
            expected = np.interp(step, known, values[place].numpy()[known]) if len(known) else 0.0
            nearness = [
                1 / (1 + step - before[-1]) if len(before) else 0,
                1 / (1 + after[0] - step) if len(after) else 0,
            ]
            np.testing.assert_allclose(guess[place][step], [expected, *nearness])


def test_the_level_of_a_window_is_that_of_its_visible_cells() -> None:
    values = torch.tensor([[[1.0, 3.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
    visible = torch.tensor([[[True, True], [False, False]], [[False, False], [False, False]]])
    level = Level.of(values, visible)
    torch.testing.assert_close(level.mean.flatten(), torch.tensor([2.0, 0.0]))
    torch.testing.assert_close(level.deviation.flatten(), torch.tensor([1.01**0.5, 1.0]))


def test_a_calm_window_is_not_blown_up() -> None:
    level = Level.of(torch.full((1, 2, 3), 5.0), torch.ones(1, 2, 3, dtype=torch.bool))
    torch.testing.assert_close(level.deviation, torch.full((1, 1, 1), 0.1))


def test_sensors_begin_as_far_apart_as_asked_for() -> None:
    for spread in (0.02, 1.0):
        torch.manual_seed(0)
        positions = Positions(16, sensors=200, clock=2, window=3, spread=spread)
        assert positions.sensor.std().item() == pytest.approx(spread, rel=0.05)


def test_every_sensor_mixes_its_own_course_of_the_day_from_a_few() -> None:
    torch.manual_seed(0)
    positions = Positions(4, sensors=5, clock=2, window=3, courses=2).double()
    assert positions.mixture is not None
    assert positions.courses is not None
    clock = torch.randn(6, 3, 2, dtype=torch.float64)
    before = positions(clock, None)
    with torch.no_grad():
        positions.courses.normal_()
    after = positions(clock, None)
    for sensor in range(5):
        own = sum(
            positions.mixture[sensor, course] * (clock @ positions.courses[:, 4 * course : 4 * course + 4])
            for course in range(2)
        )
        torch.testing.assert_close(after[:, sensor] - before[:, sensor], own)
    some = torch.tensor([3, 1])
    torch.testing.assert_close(positions(clock, some), after[:, some])
