from __future__ import annotations

import torch

from casper.network.learning import Example, mean_of


def example() -> Example:
    values = torch.tensor([[[1.0, 3.0, 0.0, 5.0]]])
    visible = torch.tensor([[[True, True, False, True]]])
    hidden = torch.tensor([[[False, True, False, True]]])
    return Example(values, visible, hidden, torch.zeros(1, 4, 2), torch.tensor(4.0))


def test_a_network_reads_what_is_visible_and_not_hidden() -> None:
    assert example().seen.tolist() == [[[True, False, False, False]]]
    assert example().readable.tolist() == [[[1.0, 0.0, 0.0, 0.0]]]
    assert example().values[0, 0, 1] == 3.0, "the truth is left alone"


def test_the_error_is_taken_on_hidden_cells_and_divided_by_the_whole_batchs_count() -> None:
    estimate = torch.tensor([[[100.0, 4.0, 100.0, 2.0]]])
    assert example().mean_absolute_error(estimate) == (1.0 + 3.0) / 4.0


def test_the_mean_of_nothing_is_zero() -> None:
    assert mean_of(torch.empty(0)) == 0.0
    assert mean_of(torch.tensor([1.0, 2.0])) == 1.5
