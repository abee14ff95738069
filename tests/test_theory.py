"""The paper's theory as numbers: Definition 4, Theorem 1 and Remark 1."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from casper.attention import GateRule, causal_attention
from casper.network.neighbourhood import Neighbourhood

SENSORS, STEPS, WIDTH = 3, 4, 6
# Sensor 0 looks at sensors 1 and 2; the others look at 0.
NEIGHBOURS = Neighbourhood(
    torch.tensor([[1, 2], [0, 0], [0, 0]]), torch.tensor([[True, True], [True, False], [True, False]])
)


def tensors(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    names = ("query", "key", "message_query", "message_key")
    shape = (1, SENSORS, STEPS, 1, WIDTH)
    return {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name in names}


def attended(given: dict[str, Tensor], logit: Tensor, *, hard: bool) -> Tensor:
    """logit: (N, T), of every key; queries add nothing to it."""
    gates = {"gate_query": torch.zeros(1, SENSORS, STEPS, dtype=torch.float64), "gate_key": logit[None]}
    return causal_attention(**given, **gates, neighbourhood=NEIGHBOURS, gate=GateRule(hard=hard)).out


@pytest.mark.parametrize("seed", range(5))
def test_definition_4_a_key_whose_gate_is_shut_cannot_change_the_output_and_an_open_one_can(seed: int) -> None:
    given = tensors(seed)
    logit = torch.full((SENSORS, STEPS), 3.0, dtype=torch.float64)
    logit[1, 2] = -3.0  # rho < 0.5: shut
    before = attended(given, logit, hard=True)
    for (sensor, step), changes in {(1, 2): False, (1, 1): True, (2, 2): True}.items():
        other = {name: x.clone() for name, x in given.items()}
        for name in ("key", "message_key"):
            other[name][0, sensor, step] += 5.0
        after = attended(other, logit, hard=True)
        assert torch.equal(before[0, 0], after[0, 0]) != changes


def scene(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of a query with K keys: correlation weights alpha, messages v, the decoder's slope dy/dh, the gates' inputs."""
    generator = torch.Generator().manual_seed(seed)
    keys = 7
    alpha = torch.randn(keys, generator=generator, dtype=torch.float64).softmax(0)
    messages = torch.randn(keys, WIDTH, generator=generator, dtype=torch.float64)
    slope = torch.randn(WIDTH, generator=generator, dtype=torch.float64)
    inputs = torch.randn(keys, 2 * WIDTH, generator=generator, dtype=torch.float64)
    return alpha, messages, slope, inputs


@pytest.mark.parametrize("seed", range(5))
def test_theorem_1_the_gradient_of_the_gates_weights_is_the_papers(seed: int) -> None:
    """dL/dw = sum over keys of (lambda - g) rho (1 - rho) h, with g = dy/dh . alpha v / Z."""
    alpha, messages, slope, inputs = scene(seed)
    weight = torch.randn(2 * WIDTH, generator=torch.Generator().manual_seed(seed + 99), dtype=torch.float64)
    weight.requires_grad_()
    penalty = 0.03
    rho = torch.sigmoid(inputs @ weight)
    total = (rho * alpha).sum().detach()  # Z is a number that normalises, as in the paper's proof
    estimate = (slope * ((rho * alpha)[:, None] * messages).sum(0) / total).sum()
    truth = estimate.detach() + 1.0  # above the estimate: the error falls as the estimate rises
    ((truth - estimate).abs() + penalty * rho.sum()).backward()
    g = (messages @ slope) * alpha / total
    wanted = (((penalty - g) * rho * (1 - rho))[:, None] * inputs).sum(0).detach()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, wanted)


@pytest.mark.parametrize("seed", range(5))
def test_remark_1_the_papers_g_is_autograds_slope_of_the_estimate_by_the_gate(seed: int) -> None:
    alpha, messages, slope, _ = scene(seed)
    beta = torch.rand(7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()
    total = (beta * alpha).sum().detach()
    ((beta * alpha) @ messages / total @ slope).backward()
    assert beta.grad is not None
    torch.testing.assert_close(beta.grad, (messages @ slope) * alpha / total)


@pytest.mark.parametrize("start", [-1.0, 0.0, 2.0])
def test_theorem_1_gradient_descent_opens_the_gates_above_lambda_and_shuts_those_below(start: float) -> None:
    """With all else fixed, the loss is (lambda - g) rho of each gate, whose logit is what descent moves."""
    g = torch.tensor([-0.5, 0.0, 0.01, 0.04, 0.2, 1.0], dtype=torch.float64)
    penalty = 0.03
    logit = torch.full_like(g, start, requires_grad=True)
    for _ in range(4_000):
        (slope,) = torch.autograd.grad(((penalty - g) * torch.sigmoid(logit)).sum(), logit)
        with torch.no_grad():
            logit -= 50.0 * slope
    rho = torch.sigmoid(logit)
    assert (rho[g > penalty] > 0.99).all()
    assert (rho[g < penalty] < 0.01).all()
