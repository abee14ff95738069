from __future__ import annotations

import numpy as np
import torch

from casper.embedding import Level, guess_from_time


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
