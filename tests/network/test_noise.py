from __future__ import annotations

import pytest
import torch

from casper.network.noise import MIX, Noise, PairNoise, low_bits, mix

INDEX = torch.tensor([[1, 2], [0, 2], [1, 0]])


def pairs(noise: PairNoise, *, batch: int, steps: int = 4, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return noise.draw(INDEX, batch=batch, steps=steps, dtype=dtype)


def whole_and_halves() -> list[Noise]:
    shares = (slice(None), slice(0, 3), slice(3, 6))
    return [Noise(torch.Generator().manual_seed(4), batch=6, share=share) for share in shares]


def test_two_halves_of_a_batch_draw_what_the_whole_draws() -> None:
    whole, first, second = whole_and_halves()
    x = torch.randn(6, 5, 2, generator=torch.Generator().manual_seed(0))
    # In the order of a forward pass, so that later draws depend on earlier ones.
    assert torch.equal(whole.uniform(3, 2), torch.cat((first.uniform(3, 2), second.uniform(3, 2))))
    assert torch.equal(whole.dropout(x, 0.4), torch.cat((first.dropout(x[:3], 0.4), second.dropout(x[3:], 0.4))))
    of_whole, of_first, of_second = (noise.of_pairs() for noise in (whole, first, second))
    assert torch.equal(pairs(of_whole, batch=6), torch.cat((pairs(of_first, batch=3), pairs(of_second, batch=3))))
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
    with pytest.raises(AssertionError, match="silent"):
        silent.of_pairs()


def test_dropout_keeps_the_mean_and_drops_the_share_asked_for() -> None:
    loud = Noise(torch.Generator().manual_seed(0), batch=100, share=slice(None))
    assert loud.active
    dropped = loud.dropout(torch.ones(100, 1000), 0.3)
    assert dropped.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert (dropped == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
    x = torch.ones(100, 2)
    assert loud.dropout(x, 0.0) is x


def test_draws_of_pairs_are_finite_and_have_the_logistic_distribution() -> None:
    noise = Noise(torch.Generator().manual_seed(0), batch=100, share=slice(None)).of_pairs()
    drawn = pairs(noise, batch=100, steps=18)
    assert drawn.numel() > 190_000
    assert drawn.isfinite().all()
    assert drawn.mean().item() == pytest.approx(0.0, abs=0.02)
    assert drawn.std().item() == pytest.approx(torch.pi / 3**0.5, rel=0.01)
    assert (drawn < 1.0).float().mean().item() == pytest.approx(torch.sigmoid(torch.tensor(1.0)).item(), abs=0.005)


def test_neighbouring_draws_of_pairs_are_not_alike() -> None:
    noise = Noise(torch.Generator().manual_seed(0), batch=30, share=slice(None)).of_pairs()
    drawn = pairs(noise, batch=30, steps=20)  # (B, N, T, KT)
    for dim in range(4):
        one, other = drawn.narrow(dim, 1, drawn.shape[dim] - 1), drawn.narrow(dim, 0, drawn.shape[dim] - 1)
        assert torch.corrcoef(torch.stack((one.flatten(), other.flatten())))[0, 1].abs() < 0.02


def test_a_pair_has_the_same_draw_wherever_it_stands_in_the_table() -> None:
    noise = PairNoise(torch.tensor([1, 2**32 - 1]), first_window=5)
    swapped = noise.draw(INDEX.flip(1), batch=2, steps=4, dtype=torch.float64)
    drawn = pairs(noise, batch=2, dtype=torch.float64)
    assert torch.equal(swapped, torch.cat((drawn[..., 4:], drawn[..., :4]), dim=-1))
    assert drawn.unique().numel() == drawn.numel()


def test_draws_of_pairs_are_the_same_in_single_and_double_precision() -> None:
    noise = PairNoise(torch.tensor([7, 2**31]))
    single, exact = (pairs(noise, batch=50, steps=18, dtype=dtype) for dtype in (torch.float32, torch.float64))
    torch.testing.assert_close(single.double(), exact, rtol=1e-6, atol=1e-6)


def test_other_keys_and_other_layers_draw_other_numbers() -> None:
    noise = Noise(torch.Generator().manual_seed(0), batch=2, share=slice(None))
    first_layer, second_layer = noise.of_pairs(), noise.of_pairs()
    assert not torch.equal(pairs(first_layer, batch=2), pairs(second_layer, batch=2))


def test_picked_numbers_lie_below_the_count() -> None:
    picked = Noise(torch.Generator().manual_seed(0), batch=1, share=slice(None)).pick(5, 200)
    assert set(picked.tolist()) == {0, 1, 2, 3, 4}


def test_draws_of_pairs_are_finite_and_the_same_in_half_precision() -> None:
    noise, index = PairNoise(torch.tensor([7, 8])), torch.arange(20)[:, None].expand(20, 5)
    single = noise.draw(index, batch=4, steps=12, dtype=torch.float32)
    half = noise.draw(index, batch=4, steps=12, dtype=torch.bfloat16)
    assert half.isfinite().all()
    assert torch.equal(half, single.bfloat16())


def hashed(x: int) -> int:
    """`mix` in Python's own numbers."""
    x ^= x >> MIX[0]
    x = x * MIX[1] % 2**32
    x ^= x >> MIX[2]
    x = x * MIX[3] % 2**32
    return x ^ x >> MIX[4]


def test_the_hash_is_that_of_unsigned_32_bit_numbers() -> None:
    numbers = [0, 1, 12345, 2**31 - 1, 2**31, 2**32 - 1, 0xDEADBEEF]
    ours = mix(low_bits(torch.tensor(numbers))).long() % 2**32
    assert ours.tolist() == [hashed(number) for number in numbers]
    beyond = mix(low_bits(torch.tensor([2**32 + 7, 2**40 + 2**31]))).long() % 2**32
    assert beyond.tolist() == [hashed(7), hashed(2**31)]
