from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from casper.kriging import delays
from casper.kriging.delays import aligned


def waves(late: list[int], *, steps: int = 2000, noise: float = 0.3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Readings and where there are any, of sensors that follow one signal, each so many steps late."""
    random = np.random.default_rng(seed)
    signal = np.convolve(random.standard_normal(steps + 200), np.hanning(9), mode="same")
    rows = np.stack([np.roll(signal, one) for one in late], axis=1)[100 : 100 + steps]
    rows = rows / rows.std(0) + noise * random.standard_normal(rows.shape)
    there = random.random(rows.shape) < 0.7
    return torch.tensor(rows * there), torch.tensor(there).double()


def test_delays_are_found_up_to_a_common_one() -> None:
    late = [0, 3, 7, 12]
    correlation, delay = aligned(*waves(late), longest=15)
    np.testing.assert_allclose(delay.numpy(), np.array(late) - np.mean(late), atol=0.3)
    assert correlation[~torch.eye(4, dtype=torch.bool)].min() > 0.8
    assert correlation.diagonal().tolist() == [1.0] * 4
    assert torch.equal(correlation, correlation.T)


def test_sensors_that_are_on_time_stay_so() -> None:
    rest, mask = waves([0, 0, 0])
    correlation, delay = aligned(rest, mask, longest=12)
    assert delay.tolist() == [0.0, 0.0, 0.0]
    torch.testing.assert_close(correlation, delays._correlation(rest, rest, mask, mask))


def test_sensors_that_have_nothing_in_common_are_not_late() -> None:
    random = np.random.default_rng(0)
    rest = torch.tensor(random.standard_normal((2000, 5)))
    _, delay = aligned(rest, torch.ones_like(rest), longest=12)
    assert delay.abs().max() == 0.0


def test_a_silent_sensor_is_not_late() -> None:
    rest, mask = waves([0, 4, 8, 2])
    mask[:, 3] = 0.0
    correlation, delay = aligned(rest * mask, mask, longest=12)
    np.testing.assert_allclose((delay - delay[0])[:3].numpy(), [0, 4, 8], atol=0.3)
    assert correlation[3, :3].abs().max() == 0.0


@pytest.mark.parametrize(("steps", "most"), [(300, 6e10), (2000, 1e4)])
def test_short_tables_and_very_large_networks_are_not_searched(
    steps: int, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delays, "_MOST_SUMS", most)
    _, delay = aligned(*waves([0, 3, 7, 12], steps=steps), longest=15)
    assert delay.tolist() == [0.0] * 4
