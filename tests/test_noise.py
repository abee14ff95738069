from __future__ import annotations

import pytest
import torch

from casper.noise import Noise


def whole_and_halves() -> list[Noise]:
    shares = (slice(None), slice(0, 3), slice(3, 6))
    return [Noise(torch.Generator().manual_seed(4), batch=6, share=share) for share in shares]


def test_two_halves_of_a_batch_draw_what_the_whole_draws() -> None:
    whole, first, second = whole_and_halves()
    x = torch.randn(6, 5, 2, generator=torch.Generator().manual_seed(0))
    # In the order of a forward pass, so that later draws depend on earlier ones.
    assert torch.equal(whole.uniform(3, 2), torch.cat((first.uniform(3, 2), second.uniform(3, 2))))
    assert torch.equal(whole.dropout(x, 0.4), torch.cat((first.dropout(x[:3], 0.4), second.dropout(x[3:], 0.4))))
    assert torch.equal(whole.logistic(7), torch.cat((first.logistic(7), second.logistic(7))))
    picked = whole.pick(100, 10)
    assert torch.equal(picked, first.pick(100, 10))
    assert torch.equal(picked, second.pick(100, 10))
    assert torch.equal(whole.uniform(1), torch.cat((first.uniform(1), second.uniform(1))))


def test_silent_noise_leaves_everything_as_it_is_and_cannot_be_drawn_from() -> None:
    silent = Noise.silent()
    x = torch.ones(2, 3)
    assert not silent.active
    assert silent.dropout(x, 0.5) is x
    with pytest.raises(AssertionError, match="silent"):
        silent.uniform(2)
    with pytest.raises(AssertionError, match="silent"):
        silent.pick(3, 2)


def test_dropout_keeps_the_mean_and_drops_the_share_asked_for() -> None:
    loud = Noise(torch.Generator().manual_seed(0), batch=100, share=slice(None))
    assert loud.active
    dropped = loud.dropout(torch.ones(100, 1000), 0.3)
    assert dropped.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert (dropped == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
    x = torch.ones(100, 2)
    assert loud.dropout(x, 0.0) is x


def test_logistic_draws_are_finite_and_have_the_logistic_distribution() -> None:
    drawn = Noise(torch.Generator().manual_seed(0), batch=100, share=slice(None)).logistic(2000)
    assert drawn.isfinite().all()
    assert drawn.mean().item() == pytest.approx(0.0, abs=0.02)
    assert drawn.std().item() == pytest.approx(torch.pi / 3**0.5, rel=0.01)
    assert (drawn < 1.0).float().mean().item() == pytest.approx(torch.sigmoid(torch.tensor(1.0)).item(), abs=0.005)


def test_picked_numbers_lie_below_the_count() -> None:
    picked = Noise(torch.Generator().manual_seed(0), batch=1, share=slice(None)).pick(5, 200)
    assert set(picked.tolist()) == {0, 1, 2, 3, 4}
