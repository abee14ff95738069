"""Muon: orthogonal steps of matrices, Adam's for everything else, and steps that can be stopped and continued."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from casper.training.muon import Muon, orthogonal


@pytest.mark.parametrize("shape", [(3, 32, 32), (2, 48, 20), (2, 20, 48)])
def test_singular_values_come_near_one(shape: tuple[int, int, int]):
    found = torch.linalg.svdvals(orthogonal(torch.randn(shape, generator=torch.Generator().manual_seed(0))))
    assert found.min() > 0.3
    assert found.max() < 1.3


def test_the_step_of_a_matrix_points_along_all_directions_of_its_gradient():
    u, _, v = torch.linalg.svd(torch.randn(32, 32, generator=torch.Generator().manual_seed(1)))
    strength = torch.linspace(1.0, 0.2, 32)
    found = orthogonal((u * strength @ v)[None])[0]
    assert torch.linalg.matrix_norm(found - u @ v, ord=2) < 0.4


def network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(32, 96), nn.ReLU(), nn.Linear(96, 32), nn.LayerNorm(32), nn.Linear(32, 1))


def take_steps(model: nn.Module, optimizer: torch.optim.Optimizer, numbers: range) -> list[float]:
    losses = list[float]()
    for number in numbers:
        x = torch.randn(64, 32, generator=torch.Generator().manual_seed(number))
        loss = (model(x)[:, 0] - (x[:, 0] * x[:, 1])).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def ends_at(make: Callable[[nn.Module], torch.optim.Optimizer], *, matrices: bool) -> torch.Tensor:
    """All weights after some steps, of which the matrices may be left as they are."""
    model = network()
    for parameter in model.parameters():
        parameter.requires_grad_(matrices or parameter.ndim == 1)
    take_steps(model, make(model), range(20))
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def by_muon(model: nn.Module) -> Muon:
    return Muon(model.named_parameters(), lr=0.01)


def by_adam(model: nn.Module) -> torch.optim.Adam:
    return torch.optim.Adam(model.parameters(), lr=0.01)


def test_what_is_no_matrix_is_learned_as_adam_learns_it():
    torch.testing.assert_close(ends_at(by_muon, matrices=False), ends_at(by_adam, matrices=False), rtol=1e-4, atol=1e-6)


def test_a_rate_on_the_device_gives_the_same_steps_as_a_number():
    def told_by_tensor(model: nn.Module) -> Muon:
        return Muon(model.named_parameters(), lr=torch.tensor(0.01))

    torch.testing.assert_close(
        ends_at(told_by_tensor, matrices=True), ends_at(by_muon, matrices=True), rtol=1e-4, atol=1e-6
    )


def test_it_learns_a_product_sooner_than_adam():
    losses = list[list[float]]()
    for make in (by_muon, by_adam):
        model = network()
        losses.append(take_steps(model, make(model), range(300)))
    assert sum(losses[0][-50:]) < sum(losses[1][-50:])


def test_a_continued_training_takes_the_same_steps():
    whole, first, second = network(), network(), network()
    expected = take_steps(whole, by_muon(whole), range(10))[5:]
    before, after = by_muon(first), by_muon(second)
    take_steps(first, before, range(5))
    second.load_state_dict(first.state_dict())
    after.load_state_dict(before.state_dict())
    assert take_steps(second, after, range(5, 10)) == pytest.approx(expected, rel=1e-5)
