"""Inputs of the causal attention, and what a version makes of them: values and gradients by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from casper.attention import GateRule, causal_attention
from casper.kernels import Version, native
from casper.network.neighbourhood import Neighbourhood
from casper.network.noise import PairNoise

_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
_COMPILER = pytest.mark.skipif(not native.at_hand(), reason="no C++ compiler on this machine")


def version_on(version: Version, device: str) -> Any:
    marks = [_GPU] if device == "cuda" else [_COMPILER] if version == "native" else []
    return pytest.param(version, device, marks=marks, id=f"{version} on {device}")


ON_PROCESSOR = [version_on("tiled", "cpu"), version_on("native", "cpu")]
EVERYWHERE = [*ON_PROCESSOR, version_on("tiled", "cuda"), version_on("triton", "cuda")]

NOISE = PairNoise(torch.tensor([4_000_000_000, 123_456_789]), first_window=3)
RULES: dict[str, GateRule | None] = {
    "no gate": None,
    "soft": GateRule(),
    "soft, drawn": GateRule(NOISE, 0.6),
    "soft, drawn, temperature in a tensor": GateRule(NOISE, torch.tensor(0.6)),
    "soft, null": GateRule(normaliser="null"),
    "soft, drawn, null": GateRule(NOISE, 0.6, normaliser="null"),
    "hard": GateRule(hard=True),
    "hard, drawn": GateRule(NOISE, 0.6, hard=True),
    "hard, drawn, null": GateRule(NOISE, 0.6, hard=True, normaliser="null"),
}


def rule_on(rule: GateRule | None, device: str) -> GateRule | None:
    if rule is None:
        return None
    noise = None if rule.noise is None else replace(rule.noise, key=rule.noise.key.to(device))
    temperature = rule.temperature.to(device) if isinstance(rule.temperature, Tensor) else rule.temperature
    return replace(rule, noise=noise, temperature=temperature)


class Shape(NamedTuple):
    batch: int
    sensors: int
    steps: int
    heads: int
    channels: int


# Odd sizes: no multiple of a vector's or a block's length.
SHAPES = [Shape(3, 7, 5, 2, 3), Shape(3, 7, 13, 1, 8), Shape(2, 7, 4, 3, 12)]


@dataclass(frozen=True)
class Case:
    """pair: messages depend on query and key; past: queries look at no later step; bias: there is a relative one."""

    shape: Shape
    rule: GateRule | None = None
    pair: bool = True
    past: bool = False
    bias: bool = False
    seed: int = 0


def ragged(sensors: int, *, seed: int = 0) -> Neighbourhood:
    """Sensor i looks at i others, so that the first one looks at nobody; nobody looks at the last but one.

    Holes lie anywhere in the table, and what they hold is a sensor's number like any other.
    """
    generator = torch.Generator().manual_seed(seed)
    seen = torch.tensor([sensor for sensor in range(sensors) if sensor != sensors - 2])
    index = torch.stack([seen[torch.randperm(len(seen), generator=generator)] for _ in range(sensors)])
    degrees = torch.arange(sensors).clamp_max(len(seen))
    places = torch.stack([torch.randperm(len(seen), generator=generator) for _ in range(sensors)])
    return Neighbourhood(index, places < degrees[:, None])


def tensors_of(case: Case) -> dict[str, Tensor]:
    """In double precision; what the case does not need is not there."""
    generator = torch.Generator().manual_seed(case.seed)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    batch, sensors, steps, heads, channels = case.shape
    given = {name: drawn(*case.shape) for name in ("query", "key", "message_query", "message_key")}
    given |= {name: drawn(batch, sensors, steps) for name in ("gate_query", "gate_key")}
    given["relative_bias"] = drawn(heads, steps, steps)
    unneeded = {"message_query"} if not case.pair else set[str]()
    unneeded |= {"gate_query", "gate_key"} if case.rule is None else set[str]()
    unneeded |= {"relative_bias"} if not case.bias else set[str]()
    given["query"] /= channels**0.5
    return {name: tensor for name, tensor in given.items() if name not in unneeded}


def attend(given: dict[str, Tensor], case: Case, neighbourhood: Neighbourhood, version: Version) -> dict[str, Tensor]:
    """out, rho_mean and total."""
    attended = causal_attention(
        given["query"],
        given["key"],
        given.get("message_query"),
        given["message_key"],
        given.get("gate_query"),
        given.get("gate_key"),
        neighbourhood,
        gate=case.rule,
        relative_bias=given.get("relative_bias"),
        constrained=case.past,
        version=version,
    )
    total = attended.total.expand(*case.shape[:3], 1)
    return {"out": attended.out, "rho_mean": attended.rho_mean, "total": total}


def values_and_gradients(
    given: dict[str, Tensor], case: Case, neighbourhood: Neighbourhood, version: Version
) -> dict[str, Tensor]:
    """Gradients are those of a sum with random factors: whole numbers, which any precision holds exactly."""
    learned = {name: tensor.detach().clone().requires_grad_() for name, tensor in given.items()}
    found = attend(learned, case, neighbourhood, version)
    generator = torch.Generator().manual_seed(case.seed + 1)
    loss = torch.zeros((), device=found["out"].device)
    for name, value in found.items():
        factors = torch.randint(-4, 5, value.shape, generator=generator)
        weight = 50.0 if name == "rho_mean" else 1.0  # one number has to be heard among many
        if value.requires_grad:
            loss = loss + weight * (value * factors.to(value)).sum()
    gradients = torch.autograd.grad(loss, list(learned.values()))
    found |= {f"gradient of {name}": gradient for name, gradient in zip(learned, gradients, strict=True)}
    return {name: value.detach() for name, value in found.items()}


def on_device(neighbourhood: Neighbourhood, device: str) -> Neighbourhood:
    return Neighbourhood(neighbourhood.index.to(device), neighbourhood.present.to(device), neighbourhood.full)


def assert_agrees(
    case: Case, neighbourhood: Neighbourhood, version: Version, device: str, dtype: torch.dtype, tolerance: float
) -> None:
    """With the plain version in double precision, on the same rounded inputs."""
    rounded = {name: tensor.to(dtype) for name, tensor in tensors_of(case).items()}
    exact = values_and_gradients({n: x.double() for n, x in rounded.items()}, case, neighbourhood, "plain")
    there = {name: tensor.to(device) for name, tensor in rounded.items()}
    moved = replace(case, rule=rule_on(case.rule, device))
    ours = values_and_gradients(there, moved, on_device(neighbourhood, device), version)
    assert ours.keys() == exact.keys()
    for name, expected in exact.items():
        error = torch.linalg.vector_norm(ours[name].double().cpu() - expected)
        size = torch.linalg.vector_norm(expected)
        assert error <= tolerance * size, f"{name} of {case.shape}: {error:.2e} of {size:.2e}"
