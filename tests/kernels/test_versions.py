"""Every fast version computes what the plain one defines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from attention_cases import (
    EVERYWHERE,
    NOISE,
    ON_PROCESSOR,
    RULES,
    SHAPES,
    Case,
    Shape,
    assert_agrees,
    attend,
    on_device,
    ragged,
    rule_on,
    tensors_of,
    values_and_gradients,
)
from torch import Tensor

import casper.attention
from casper.attention import GateRule, causal_attention
from casper.config import ModelConfig
from casper.errors import InputError
from casper.kernels import ENVIRONMENT, FastVersion, Version, choose_version, fast_version, native, using
from casper.model import CasperNetwork
from casper.network.neighbourhood import Neighbourhood
from casper.network.noise import Noise, PairNoise

SMALL = SHAPES[0]
KINDS: dict[str, dict[str, bool]] = {
    "pair message": {"pair": True},
    "pair message, only the past, bias": {"pair": True, "past": True, "bias": True},
    "key message, bias": {"pair": False, "bias": True},
    "key message, only the past": {"pair": False, "past": True},
}


@pytest.mark.parametrize(("version", "device"), EVERYWHERE)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_single_precision_agrees_with_the_definition(
    rule: GateRule | None, kind: dict[str, bool], version: Version, device: str
) -> None:
    for seed, shape in enumerate(SHAPES):
        case = Case(shape, rule, seed=seed, **kind)
        assert_agrees(case, ragged(shape.sensors, seed=seed), version, device, torch.float32, 1e-5)


@pytest.mark.parametrize(("version", "device"), EVERYWHERE)
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_half_precision_agrees_with_the_definition(rule: GateRule | None, version: Version, device: str) -> None:
    for seed, pair in enumerate((True, False)):
        case = Case(SHAPES[1], rule, pair=pair, bias=True, seed=10 + seed)
        assert_agrees(case, ragged(7), version, device, torch.bfloat16, 1e-2)


@pytest.mark.parametrize(("version", "device"), ON_PROCESSOR)
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_double_precision_agrees_with_the_definition_to_its_last_digits(
    rule: GateRule | None, version: Version, device: str
) -> None:
    for kind in KINDS.values():
        case = Case(SMALL, rule, seed=20, **kind)
        assert_agrees(case, ragged(7, seed=1), version, device, torch.float64, 1e-12)


@pytest.mark.parametrize(("version", "device"), EVERYWHERE)
def test_a_full_table_and_any_number_of_windows_agree_too(version: Version, device: str) -> None:
    index = torch.stack([torch.randperm(9, generator=torch.Generator().manual_seed(i))[:4] for i in range(9)])
    full = Neighbourhood(index, torch.ones_like(index, dtype=torch.bool), full=True).with_lists()
    for batch in (1, 20):
        case = Case(Shape(batch, 9, 6, 2, 4), RULES["soft, drawn"], seed=batch)
        assert_agrees(case, full, version, device, torch.float32, 1e-5)


@pytest.mark.parametrize(("version", "device"), ON_PROCESSOR)
@pytest.mark.parametrize(
    "case",
    [
        Case(Shape(1, 3, 3, 2, 1), GateRule(NOISE, 0.5), bias=True),
        Case(Shape(1, 3, 2, 1, 2), GateRule(NOISE, 0.5, normaliser="null"), past=True),
        Case(Shape(2, 3, 2, 1, 2), GateRule(), pair=False),
        Case(Shape(1, 3, 2, 2, 1), None, bias=True),
    ],
    ids=["drawn, bias", "null, only the past", "key message", "no gate"],
)
def test_gradients_pass_gradcheck(case: Case, version: Version, device: str) -> None:
    given = {name: tensor.requires_grad_() for name, tensor in tensors_of(case).items()}
    neighbourhood = ragged(3)

    def layer(*tensors: Tensor) -> tuple[Tensor, ...]:
        found = attend(dict(zip(given, tensors, strict=True)), case, neighbourhood, version)
        return tuple(value for value in found.values() if value.requires_grad)

    assert torch.autograd.gradcheck(layer, tuple(given.values()))


@pytest.mark.parametrize(("version", "device"), EVERYWHERE)
@pytest.mark.parametrize("name", ["soft, drawn", "hard, drawn", "soft, drawn, null"])
def test_a_batch_in_two_parts_draws_what_the_whole_draws(name: str, version: Version, device: str) -> None:
    case = Case(SHAPES[1], rule_on(RULES[name], device), seed=4)
    neighbourhood = on_device(ragged(7), device)
    given = {name: tensor.float().to(device) for name, tensor in tensors_of(case).items()}
    whole = attend(given, case, neighbourhood, version)
    parts: list[Tensor] = []
    for windows in (slice(0, 1), slice(1, 3)):
        assert case.rule is not None
        assert case.rule.noise is not None
        noise = replace(case.rule.noise, first_window=case.rule.noise.first_window + windows.start)
        shape = case.shape._replace(batch=windows.stop - windows.start)
        part = replace(case, shape=shape, rule=replace(case.rule, noise=noise))
        parts.append(attend({name: x[windows] for name, x in given.items()}, part, neighbourhood, version)["out"])
    torch.testing.assert_close(torch.cat(parts), whole["out"])
    same_draws = attend(
        {name: x[1:] for name, x in given.items()}, replace(part, rule=case.rule), neighbourhood, version
    )
    assert not torch.allclose(same_draws["out"], parts[1])


@pytest.mark.parametrize(("version", "device"), EVERYWHERE)
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_a_graph_without_any_edge_gives_zeros_and_zero_gradients(
    rule: GateRule | None, version: Version, device: str
) -> None:
    nobody = Neighbourhood(torch.zeros(7, 2, dtype=torch.int64), torch.zeros(7, 2, dtype=torch.bool))
    case = Case(SMALL, rule_on(rule, device))
    given = {name: tensor.float().to(device) for name, tensor in tensors_of(case).items()}
    found = values_and_gradients(given, case, on_device(nobody, device), version)
    for name, value in found.items():
        assert (value == 0).all(), name


@pytest.mark.parametrize(("version", "device"), EVERYWHERE)
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_extreme_numbers_agree_with_the_definition_and_stay_finite(
    rule: GateRule | None, version: Version, device: str
) -> None:
    case = Case(SMALL, rule, seed=6)
    given = tensors_of(case)
    given["query"] *= 30.0
    given["message_key"] *= 1e4
    if rule is not None:
        given["gate_query"][:, 1::2] = -300.0
        given["gate_query"][:, ::2] = 300.0
    given = {name: tensor.float() for name, tensor in given.items()}
    exact = attend({name: x.double() for name, x in given.items()}, case, ragged(7), "plain")
    moved = replace(case, rule=rule_on(rule, device))
    there = {name: tensor.to(device) for name, tensor in given.items()}
    ours = values_and_gradients(there, moved, on_device(ragged(7), device), version)
    assert all(value.isfinite().all() for value in ours.values())
    for name, expected in exact.items():
        torch.testing.assert_close(
            ours[name].double().cpu(), expected, rtol=1e-3, atol=1e-3 * expected.abs().max().item()
        )


@pytest.mark.parametrize(("version", "device"), EVERYWHERE)
@pytest.mark.parametrize("pair", [True, False], ids=["pair message", "key message"])
def test_a_number_that_is_none_shows_in_the_output(pair: bool, version: Version, device: str) -> None:
    case = Case(SMALL, rule_on(RULES["soft, drawn"], device), pair=pair)
    for name in tensors_of(case):
        given = {other: tensor.float().to(device) for other, tensor in tensors_of(case).items()}
        given[name][:, 3, 2] = torch.nan
        out = attend(given, case, on_device(ragged(7), device), version)["out"]
        assert out.isnan().any(), name


@pytest.mark.parametrize(("version", "device"), EVERYWHERE)
def test_the_order_of_numbers_in_memory_does_not_matter(version: Version, device: str) -> None:
    case = Case(SMALL, rule_on(RULES["soft, drawn"], device), bias=True)
    given = {name: tensor.float().to(device) for name, tensor in tensors_of(case).items()}
    strided = {name: tensor.mT.contiguous().mT for name, tensor in given.items()}
    assert not strided["query"].is_contiguous()
    neighbourhood = on_device(ragged(7), device)
    one, other = (values_and_gradients(x, case, neighbourhood, version) for x in (given, strided))
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, msg=name)


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize(("version", "device"), EVERYWHERE)
@pytest.mark.parametrize("name", ["soft, drawn", "hard, drawn"])
def test_a_compiled_function_gives_what_it_gives_uncompiled_in_one_graph(
    name: str, version: Version, device: str
) -> None:
    case = Case(SMALL, rule_on(RULES[name], device), bias=True)
    neighbourhood = on_device(ragged(7), device)
    given = {name: tensor.float().to(device).requires_grad_() for name, tensor in tensors_of(case).items()}

    def loss(tensors: dict[str, Tensor]) -> Tensor:
        found = attend(tensors, case, neighbourhood, version)
        return found["out"].sin().sum() + found["rho_mean"] + found["total"].sum()

    results: list[tuple[Tensor, ...]] = []
    for function in (loss, torch.compile(loss, fullgraph=True, backend="aot_eager")):
        value = function(given)
        results.append((value, *torch.autograd.grad(value, list(given.values()))))
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize(("version", "device"), EVERYWHERE)
@pytest.mark.parametrize("part", [None, [6, 0, 3, 5, 2]], ids=["all sensors", "some sensors"])
def test_the_network_gives_the_same_with_every_version(part: list[int] | None, version: Version, device: str) -> None:
    config = ModelConfig(window=6, width=8, layers=2, heads=2, feed_forward=8, prompts=4, relative_time=True)
    neighbourhood = ragged(7)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = CasperNetwork(
            config, neighbour_index=neighbourhood.index, neighbour_present=neighbourhood.present, clock=3
        ).to(device)
    generator = torch.Generator().manual_seed(1)
    values, clock = torch.randn(2, 7, 6, generator=generator), torch.randn(2, 6, 3, generator=generator)
    visible = torch.rand(2, 7, 6, generator=generator) < 0.7
    sensors = None if part is None else torch.tensor(part, device=device)
    chosen = slice(None) if part is None else part
    inputs = (values[:, chosen].to(device), visible[:, chosen].to(device), clock.to(device))

    def run(version: Version) -> list[Tensor]:
        noise = Noise(torch.Generator(device).manual_seed(2), batch=2, share=slice(None))
        with using(version):
            estimate, rho_mean = network(*inputs, noise, temperature=0.5, sensors=sensors)
        loss = estimate.square().sum() + rho_mean.sum()
        return [estimate, rho_mean, *torch.autograd.grad(loss, list(network.parameters()))]

    for ours, expected in zip(run(version), run("plain"), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4 * max(1.0, expected.abs().max().item()))


# ---------------------------------------------------------------------- which one is used


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The versions that were used, in order."""
    names: list[str] = []

    def noted(version: Version) -> FastVersion:
        names.append(version)
        return fast_version(version)

    def noted_plain(*arguments: Any, **options: Any) -> Any:
        names.append("plain")
        return plain(*arguments, **options)

    plain = casper.attention.plain_attention
    monkeypatch.setattr(casper.attention, "fast_version", noted)
    monkeypatch.setattr(casper.attention, "plain_attention", noted_plain)
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    return names


def attend_somehow(**options: Any) -> None:
    given = tensors_of(Case(SMALL, GateRule()))
    values: Any = given
    causal_attention(**values, neighbourhood=ragged(7), gate=GateRule(), **options)


def test_a_version_is_forced_by_argument_by_block_and_by_environment(
    used: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, "plain")
    attend_somehow()
    with using("tiled"):
        attend_somehow()
        attend_somehow(version="plain")
        with using(None):
            attend_somehow()
    assert used == ["plain", "tiled", "plain", "plain"]


def test_the_processors_version_is_native_where_there_is_a_compiler_and_tiled_elsewhere(
    used: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for at_hand, expected in ((True, "native"), (False, "tiled")):
        monkeypatch.setattr(native, "at_hand", lambda at_hand=at_hand: at_hand)
        assert choose_version(torch.device("cpu")) == expected
    attend_somehow()
    assert used == ["tiled"]


def test_an_unknown_version_in_the_environment_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, "nativ")
    with pytest.raises(InputError, match=r"CASPER_ATTENTION must be one of plain, tiled, native, triton, not 'nativ'"):
        attend_somehow()


def test_an_unknown_version_as_an_argument_is_told() -> None:
    unknown: Any = "nativ"
    with pytest.raises(InputError, match=r"version must be one of plain, tiled, native, triton, not 'nativ'"):
        choose_version(torch.device("cpu"), unknown)


def test_the_noise_of_part_of_the_sensors_is_that_of_the_whole() -> None:
    index, looking = ragged(7).index, torch.tensor([5, 1])
    options: dict[str, Any] = {"batch": 2, "steps": 3, "dtype": torch.float64}
    whole = NOISE.draw(index, **options)
    part = PairNoise(NOISE.key, NOISE.first_window, looking, 7).draw(index[looking], **options)
    assert torch.equal(part, whole[:, looking])
