"""What estimates lose when a variable falls silent, on a network whose use of every variable is known."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor, nn

from casper.discovery.silence import Asked, Lost, answered
from casper.windows import Window


class _Estimate(NamedTuple):
    estimate: Tensor


class _Known(nn.Module):
    """Foretells x0 = 0.8 x1(t - 1), x1 = 0.5 x0(t - 2), and x2 from x0(t - 1), which has nothing to do with it."""

    def forward(self, values: Tensor, visible: Tensor, clock: Tensor) -> _Estimate:
        assert visible.shape == values.shape
        assert clock.shape[:2] == (values.shape[0], values.shape[2])
        last = torch.stack((0.8 * values[:, 1, -2], 0.5 * values[:, 0, -3], 0.3 * values[:, 0, -2]), dim=1)
        return _Estimate(torch.cat((values[:, :, :-1], last[:, :, None]), dim=2))


_KNOWN: Any = _Known()


def lost(batches: list[Asked]) -> Tensor:
    sums = Lost(3, torch.device("cpu"))
    sums.look(_KNOWN, batches)
    return sums.certainty()


def batches(count: int = 3, *, windows: int = 400) -> list[Asked]:
    generator = torch.Generator().manual_seed(0)
    made: list[Asked] = []
    for _ in range(count):
        values = torch.randn(windows, 3, 4, generator=generator)
        values[:, 0, -1] = 0.8 * values[:, 1, -2] + 0.1 * values[:, 0, -1]
        values[:, 1, -1] = 0.5 * values[:, 0, -3] + 0.1 * values[:, 1, -1]
        last = (torch.arange(4) == 3).expand(values.shape)
        made.append(Asked(Window(values, ~last, torch.zeros(windows, 4, 1)), values, last))
    return made


def test_what_helps_counts_and_what_misleads_does_not() -> None:
    made = batches()
    certainty = lost(made)
    truth = torch.cat([asked.truth for asked in made])
    rise = ((truth[:, 0, -1]).abs() - (truth[:, 0, -1] - 0.8 * truth[:, 1, -2]).abs()).double()  # without x1: nothing
    wanted = -norm.logsf(rise.mean() / (rise.std(correction=0) / len(rise) ** 0.5)) / np.log(10)
    assert certainty[1, 0].item() == pytest.approx(wanted, rel=1e-4)
    assert certainty[1, 0] > 20
    assert certainty[0, 1] > 20
    assert certainty[0, 2] < 1e-3, "the estimate of x2 moves without x0, but is the better for it"
    assert certainty[2].tolist() == pytest.approx([np.log10(2)] * 3), "nobody reads x2: as likely as not"


def test_batches_add_up() -> None:
    whole = batches(1, windows=600)[0]
    halves = [
        Asked(Window(*(getattr(whole.window, name)[part] for name in ("values", "visible", "clock"))), *other)
        for part in (slice(0, 300), slice(300, 600))
        for other in [(whole.truth[part], whole.cells[part])]
    ]
    by_lag = [answered(_KNOWN, looked) for looked in (halves, [whole])]
    torch.testing.assert_close(*by_lag)
    torch.testing.assert_close(lost(halves), lost([whole]))
    one_by_one = Lost(3, torch.device("cpu"))
    for half in halves:
        one_by_one.look(_KNOWN, [half])
    assert (one_by_one.certainty() == lost(halves)).all()


def test_cells_that_are_not_asked_for_do_not_count() -> None:
    (asked,) = batches(1)
    spoilt = asked.truth.clone()
    spoilt[:200, :, -1] = 1e6
    cells = asked.cells.clone()
    cells[:200] = False
    few = lost([Asked(asked.window, spoilt, cells)])
    rest = Window(asked.window.values[200:], asked.window.visible[200:], asked.window.clock[200:])
    alone = lost([Asked(rest, asked.truth[200:], asked.cells[200:])])
    torch.testing.assert_close(few, alone)


def test_estimates_answer_to_the_lags_they_are_made_from() -> None:
    by_lag = answered(_KNOWN, batches(2, windows=50))
    assert by_lag.shape == (3, 3, 3)
    wanted = torch.zeros(3, 3, 3).double()
    wanted[0, 1, 0], wanted[1, 0, 1], wanted[0, 0, 2] = 80.0, 50.0, 30.0
    torch.testing.assert_close(by_lag, wanted, rtol=1e-5, atol=1e-5)
