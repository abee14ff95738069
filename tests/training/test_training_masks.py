from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from casper.config import TrainingConfig
from casper.training.masks import TrainingMasks
from casper.windows import cut

BATCH, SENSORS, LENGTH, STEPS = 64, 5, 12, 100


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gaps(share: float = 0.3) -> Tensor:
    return torch.rand(STEPS, SENSORS, generator=generator(9)) < share


def masks(*, gap_starts: Tensor | None = None, table: Tensor | None = None, **settings: Any) -> TrainingMasks:
    starts = torch.arange(STEPS - LENGTH + 1) if gap_starts is None else gap_starts
    return TrainingMasks(
        TrainingConfig().replace(**settings), gaps=gaps() if table is None else table, gap_starts=starts
    )


def everything(batch: int = BATCH) -> Tensor:
    return torch.ones(batch, SENSORS, LENGTH, dtype=torch.bool)


MIXED: dict[str, Any] = {"copied_gaps": 0.4, "block_gaps": 0.4}


@pytest.mark.parametrize("settings", [{}, MIXED, {"block_gaps": 1.0}, {"copied_gaps": 1.0}, {"forecast_gaps": 1.0}])
def test_only_visible_cells_are_hidden(settings: dict[str, Any]) -> None:
    visible = torch.rand(BATCH, SENSORS, LENGTH, generator=generator(1)) < 0.5
    hidden = masks(**settings).draw(visible, generator())
    assert hidden.dtype == torch.bool
    assert hidden.any()
    assert not (hidden & ~visible).any()


def test_points_are_hidden_in_the_shares_asked_for() -> None:
    big = torch.ones(400, 20, 30, dtype=torch.bool)
    hidden = masks(hidden_shares=(0.2, 0.8)).draw(big, generator())
    share = hidden.float().mean(dim=(1, 2))
    low, high = share[share < 0.5], share[share > 0.5]
    assert low.mean().item() == pytest.approx(0.2, abs=0.01)
    assert high.mean().item() == pytest.approx(0.8, abs=0.01)
    assert len(low) / len(share) == pytest.approx(0.5, abs=0.1)


def test_blocks_are_single_runs_of_some_sensors() -> None:
    hidden = masks(block_gaps=1.0, hidden_shares=(0.5,)).draw(everything(400), generator())
    edges = torch.diff(hidden.int(), dim=2, prepend=torch.zeros(400, SENSORS, 1, dtype=torch.int))
    assert ((edges == 1).sum(dim=2) <= 1).all(), "a sensor fails once in a window"
    failing = hidden.any(dim=2)
    assert failing.float().mean().item() == pytest.approx(0.5, abs=0.05)
    lengths = hidden.sum(dim=2)[failing]
    assert lengths.min() == 1
    assert lengths.max() == LENGTH
    starts_inside = (edges == 1)[:, :, 1:].any(dim=2)[failing]
    assert starts_inside.any()
    assert not starts_inside.all()


def test_copied_patterns_equal_a_window_of_the_source() -> None:
    chosen = torch.tensor([3, 40])
    training = masks(copied_gaps=1.0, gap_starts=chosen)
    hidden = training.draw(everything(), generator())
    patterns = cut(gaps(), chosen, LENGTH)
    which = [(window == patterns).flatten(1).all(dim=1) for window in hidden]
    assert all(one.any() for one in which)
    assert torch.stack(which).any(dim=0).all(), "both windows are copied"


def test_a_copied_pattern_keeps_to_the_visible_cells() -> None:
    visible = torch.rand(BATCH, SENSORS, LENGTH, generator=generator(1)) < 0.5
    hidden = masks(copied_gaps=1.0, gap_starts=torch.tensor([3])).draw(visible, generator())
    assert torch.equal(hidden, cut(gaps(), torch.tensor([3]), LENGTH) & visible)


def test_a_pattern_without_holes_leaves_the_random_points() -> None:
    settings: dict[str, Any] = {"hidden_shares": (0.5,), "table": torch.zeros(STEPS, SENSORS, dtype=torch.bool)}
    hidden = masks(copied_gaps=1.0, **settings).draw(everything(), generator())
    assert hidden.float().mean().item() == pytest.approx(0.5, abs=0.05)


def test_nothing_to_copy_from_leaves_the_random_points() -> None:
    hidden = masks(copied_gaps=1.0, gap_starts=torch.zeros(0, dtype=torch.long)).draw(everything(), generator())
    assert hidden.any()


def test_copied_and_block_shares_are_kept() -> None:
    pattern = torch.zeros(STEPS, SENSORS, dtype=torch.bool)
    pattern[::2, 0] = True  # a pattern that neither points nor blocks produce
    training = masks(copied_gaps=0.25, block_gaps=0.5, hidden_shares=(0.5,), table=pattern)
    hidden = training.draw(everything(2000), generator())
    runs = torch.diff(hidden.int(), dim=2, prepend=torch.zeros(2000, SENSORS, 1, dtype=torch.int)).eq(1).sum(dim=2)
    copied = ~hidden[:, 1:].flatten(1).any(dim=1) & (runs[:, 0] == LENGTH // 2)
    points = (runs > 1).any(dim=1) & ~copied
    assert copied.float().mean().item() == pytest.approx(0.25, abs=0.04)
    assert points.float().mean().item() == pytest.approx(0.25, abs=0.04)


def test_the_same_generator_draws_the_same_and_another_does_not() -> None:
    training = masks(**MIXED)
    one, same, other = (training.draw(everything(), generator(seed)) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_the_last_step_is_hidden_for_everybody_where_it_is_to_be_foretold() -> None:
    hidden = masks(forecast_gaps=1.0).draw(everything(50), generator())
    assert (hidden == (torch.arange(LENGTH) == LENGTH - 1)).all()
    both = masks(forecast_gaps=0.5, block_gaps=0.5).draw(everything(400), generator())
    foretold = (both == hidden[:1]).all(dim=(1, 2))
    assert 0.4 < foretold.float().mean() < 0.65


def test_a_blackout_silences_the_whole_network_for_runs_of_steps() -> None:
    masks = TrainingMasks(
        TrainingConfig(blackout_gaps=1.0),
        gaps=torch.zeros(100, 5, dtype=torch.bool),
        gap_starts=torch.zeros(0, dtype=torch.long),
    )
    hidden = masks.draw(torch.ones(400, 5, 24, dtype=torch.bool), torch.Generator().manual_seed(0))
    assert (hidden == hidden[:, :1]).all(), "all sensors at once"
    steps = hidden[:, 0]
    assert 0.2 < steps.float().mean() < 0.7
    assert (~steps).any(dim=1).all(), "something is left to see"
    assert steps.any(dim=1).float().mean() > 0.9
    lone = steps[:, 1:-1] & ~steps[:, :-2] & ~steps[:, 2:]
    longer = steps[:, :-5].unfold(1, 6, 1).all(dim=2)
    assert lone.any(), "short ones"
    assert longer.any(), "long ones"


def test_silent_sensors_are_down_for_the_whole_window_and_not_too_many_of_them() -> None:
    visible = torch.rand(400, 40, 6, generator=generator(1)) < 0.9
    left = masks(silent_sensors=0.5).silence(visible, torch.zeros_like(visible), generator(2))
    assert not (left & ~visible).any()
    down = ~left.any(2) & visible.any(2)
    assert (left == (visible & ~down[:, :, None])).all(), "a sensor is down altogether or not at all"
    share = down.float().mean(1)
    assert 0.2 < share.mean() < 0.3, "half of half of them"
    assert share.min() == 0
    assert share.max() > 0.4
    assert masks().silence(visible, torch.zeros_like(visible), generator()) is visible
