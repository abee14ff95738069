from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

import literal
from casper.attention import Attended, AttentionDetails, GateRule, causal_attention, look_at_pairs
from casper.network.neighbourhood import Neighbourhood
from casper.network.noise import PairNoise

BATCH, SENSORS, STEPS = 2, 4, 3
# Sensor 1 has one neighbour less, sensor 3 has none at all; padding points at the sensor itself.
INDEX = torch.tensor([[1, 2], [0, 1], [3, 0], [3, 3]])
PRESENT = torch.tensor([[True, True], [True, False], [True, True], [False, False]])
PADDED = Neighbourhood(INDEX, PRESENT)
FULL_INDEX = torch.tensor([[1, 2], [0, 3], [3, 0], [2, 1]])
FULL = Neighbourhood(FULL_INDEX, torch.ones(4, 2, dtype=torch.bool), full=True)
LONELY = 3


def inputs(*, heads: int = 2, channels: int = 2, seed: int = 0, steps: int = STEPS) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    names = ("query", "key", "message_query", "message_key")
    drawn = {
        name: torch.randn(BATCH, SENSORS, steps, heads, channels, generator=generator, dtype=torch.float64)
        for name in names
    }
    for name in ("gate_query", "gate_key"):
        drawn[name] = torch.randn(BATCH, SENSORS, steps, generator=generator, dtype=torch.float64)
    return drawn


def with_gradients(given: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone().requires_grad_() for name, tensor in given.items()}


def attend(given: Mapping[str, Tensor | None], neighbourhood: Neighbourhood, **options: Any) -> Attended:
    values: Any = given
    return causal_attention(neighbourhood=neighbourhood, **values, **options)


def look(
    given: Mapping[str, Tensor | None],
    neighbourhood: Neighbourhood,
    *,
    gate: GateRule | None,
    relative_bias: Tensor | None = None,
    constrained: bool = False,
) -> AttentionDetails:
    values: Any = {name: given[name] for name in ("query", "key", "gate_query", "gate_key")}
    options: Any = {"gate": gate, "relative_bias": relative_bias, "constrained": constrained}
    return look_at_pairs(neighbourhood=neighbourhood, **values, **options)


def attend_literally(
    given: Mapping[str, Tensor | None], neighbourhood: Neighbourhood, **options: Any
) -> literal.Attended:
    values: Any = given
    return literal.causal_attention(index=neighbourhood.index, present=neighbourhood.present, **values, **options)


NOISE = PairNoise(torch.tensor([123_456_789, 987_654_321]))
GATES: dict[str, GateRule | None] = {
    "no gate": None,
    "soft gate without noise": GateRule(),
    "gumbel gate": GateRule(NOISE, 0.7),
    "gumbel gate, temperature in a tensor": GateRule(NOISE, torch.tensor(0.7)),
    "gumbel gate, null slot": GateRule(NOISE, 0.7, normaliser="null"),
    "hard gate": GateRule(hard=True),
    "straight-through gumbel gate": GateRule(NOISE, 0.7, hard=True),
    "straight-through gumbel gate, null slot": GateRule(NOISE, 0.7, hard=True, normaliser="null"),
}


def literal_gate(rule: GateRule | None, neighbourhood: Neighbourhood) -> literal.Gate | None:
    """The same rule with its draws written out; a logistic draw is the difference of two Gumbel draws."""
    if rule is None:
        return None
    first = second = None
    if rule.noise is not None:
        first = rule.noise.draw(neighbourhood.index, batch=BATCH, steps=STEPS, dtype=torch.float64)
        second = torch.zeros_like(first)
    null_slot = rule.normaliser == "null"
    return literal.Gate(first, second, float(rule.temperature), hard=rule.hard, null_slot=null_slot)


def assert_same(ours: Attended, seen: AttentionDetails, theirs: literal.Attended) -> None:
    torch.testing.assert_close(ours.out, theirs.out)
    torch.testing.assert_close(ours.rho_mean, theirs.rho_mean)
    torch.testing.assert_close(seen.attention, theirs.alpha)
    torch.testing.assert_close(seen.rho, theirs.rho)
    torch.testing.assert_close(seen.beta, theirs.beta)
    torch.testing.assert_close(seen.weight, theirs.weight)


@pytest.mark.parametrize("rule", GATES.values(), ids=GATES.keys())
@pytest.mark.parametrize(
    ("neighbourhood", "constrained", "pair"),
    [(PADDED, False, True), (FULL, False, False), (PADDED, True, True)],
    ids=["padded", "full, message from the key alone", "padded, only the past"],
)
def test_values_and_gradients_equal_the_literal_equations(
    rule: GateRule | None, neighbourhood: Neighbourhood, constrained: bool, pair: bool
) -> None:
    ours_in, theirs_in = with_gradients(inputs()), with_gradients(inputs())

    def arguments(given: dict[str, Tensor]) -> dict[str, Tensor | None]:
        drop = {"gate_query", "gate_key"} if rule is None else set[str]()
        drop |= set() if pair else {"message_query"}
        return {name: None if name in drop else tensor for name, tensor in given.items()}

    ours = attend(arguments(ours_in), neighbourhood, gate=rule, constrained=constrained)
    seen = look(arguments(ours_in), neighbourhood, gate=rule, constrained=constrained)
    gate = literal_gate(rule, neighbourhood)
    theirs = attend_literally(arguments(theirs_in), neighbourhood, gate=gate, constrained=constrained)
    assert_same(ours, seen, theirs)

    direction = torch.randn(ours.out.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    ((ours.out * direction).sum() + ours.rho_mean).backward()
    ((theirs.out * direction).sum() + theirs.rho_mean).backward()
    for name, tensor in ours_in.items():
        expected = theirs_in[name].grad
        if expected is None:
            assert tensor.grad is None
            continue
        assert tensor.grad is not None
        if rule is not None and rule.hard and rule.normaliser == "gated" and name.startswith("gate"):
            continue  # where every gate is shut the literal Z is 0 and has no gradient; compared below
        torch.testing.assert_close(tensor.grad, expected)


def test_straight_through_gates_pass_the_soft_gates_gradient_through_the_hard_forward_pass() -> None:
    given = inputs(seed=3)
    given["gate_key"][:, :, 0] += 12.0  # every query has an open gate, so that Z is never 0
    ours_in, theirs_in = with_gradients(given), with_gradients(given)
    rule = GateRule(NOISE, 0.7, hard=True)
    ours, seen = attend(ours_in, FULL, gate=rule), look(ours_in, FULL, gate=rule)
    assert set(seen.beta.unique().tolist()) == {0.0, 1.0}
    assert (seen.beta.amax(dim=(-1, -2)) == 1).all()
    theirs = attend_literally(theirs_in, FULL, gate=literal_gate(rule, FULL))
    assert_same(ours, seen, theirs)
    (ours.out**2).sum().backward()
    (theirs.out**2).sum().backward()
    for name, tensor in ours_in.items():
        assert tensor.grad is not None
        torch.testing.assert_close(tensor.grad, theirs_in[name].grad)


def test_with_a_null_slot_straight_through_and_soft_gates_have_the_same_gate_gradients() -> None:
    # The output is linear in the gates here, so the two differ in the forward pass only.
    gradients: list[Tensor] = []
    for hard in (True, False):
        given = with_gradients(inputs())
        rule = GateRule(NOISE, 0.7, hard=hard, normaliser="null")
        attend(given, PADDED, gate=rule).out.sum().backward()
        gradient = given["gate_key"].grad
        assert gradient is not None
        gradients.append(gradient)
    torch.testing.assert_close(gradients[0], gradients[1])
    assert gradients[0].abs().max() > 0


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_heads_attend_independently(heads: int) -> None:
    given = inputs(heads=heads)
    together = attend(given, PADDED, gate=GateRule()).out
    for head in range(heads):
        alone = {name: x[..., head : head + 1, :] if x.dim() == 5 else x for name, x in given.items()}
        own = slice(head * 2, head * 2 + 2)
        torch.testing.assert_close(attend(alone, PADDED, gate=GateRule()).out, together[..., own])


def test_a_relative_bias_is_added_to_the_scores_of_every_neighbour_alike() -> None:
    bias = torch.randn(2, STEPS, STEPS, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    given = inputs()
    ours = attend(given, PADDED, gate=GateRule(), relative_bias=bias)
    seen = look(given, PADDED, gate=GateRule(), relative_bias=bias)
    theirs = attend_literally(given, PADDED, gate=literal.Gate(), bias=bias)
    assert_same(ours, seen, theirs)
    without = attend(given, PADDED, gate=GateRule())
    assert not torch.allclose(ours.out, without.out)


@pytest.mark.parametrize("rule", GATES.values(), ids=GATES.keys())
def test_a_sensor_without_neighbours_gets_a_zero_message_and_finite_gradients(rule: GateRule | None) -> None:
    given = with_gradients(inputs())
    attended = attend(given, PADDED, gate=rule)
    assert (attended.out[:, LONELY] == 0).all()
    assert (look(given, PADDED, gate=rule).weight[:, LONELY] == 0).all()
    assert (attended.out[:, 0] != 0).any()
    attended.out.sum().backward()
    for name, tensor in given.items():
        if tensor.grad is not None:
            assert tensor.grad.isfinite().all(), name


def test_a_graph_without_any_edge_gives_zeros_and_no_penalty() -> None:
    nobody = Neighbourhood(INDEX, torch.zeros_like(PRESENT))
    attended = attend(inputs(), nobody, gate=GateRule())
    assert (attended.out == 0).all()
    assert attended.rho_mean == 0


@pytest.mark.parametrize("normaliser", ["gated", "null"])
def test_hard_gates_that_are_all_shut_give_a_zero_message_and_gradients_of_ordinary_size(normaliser: str) -> None:
    given = inputs()
    given["gate_query"] = torch.full_like(given["gate_query"], -5.0)
    given["gate_key"] = torch.zeros_like(given["gate_key"])
    given = with_gradients(given)
    rule = GateRule(hard=True, normaliser="null" if normaliser == "null" else "gated")
    attended = attend(given, FULL, gate=rule)
    assert (attended.out == 0).all()
    attended.out.sum().backward()
    gradient = given["gate_key"].grad
    assert gradient is not None
    assert gradient.isfinite().all()
    assert 0 < gradient.abs().max() < 1.0  # there is a way back, and it is no cliff


def test_padding_does_not_matter_wherever_it_points() -> None:
    elsewhere = torch.where(PRESENT, INDEX, 2)
    given = inputs()
    for rule in (GateRule(), GateRule(hard=True), None):
        first = attend(given, PADDED, gate=rule)
        second = attend(given, Neighbourhood(elsewhere, PRESENT), gate=rule)
        torch.testing.assert_close(first.out, second.out)
        torch.testing.assert_close(first.rho_mean, second.rho_mean)


def test_a_table_known_to_be_full_gives_what_its_mask_gives() -> None:
    given = inputs()
    masked = Neighbourhood(FULL.index, FULL.present)
    for rule in (GateRule(), GateRule(hard=True), None):
        fast, slow = (attend(given, one, gate=rule) for one in (FULL, masked))
        torch.testing.assert_close(fast.out, slow.out)
        torch.testing.assert_close(fast.rho_mean, slow.rho_mean)
        torch.testing.assert_close(*(vars(look(given, one, gate=rule)) for one in (FULL, masked)))


def test_constrained_attention_never_looks_ahead() -> None:
    given = inputs()
    before = attend(given, FULL, gate=GateRule(), constrained=True).out
    for name in ("key", "message_key", "gate_key"):
        given[name][:, :, 2] += 10.0
    after = attend(given, FULL, gate=GateRule(), constrained=True).out
    torch.testing.assert_close(before[:, :, :2], after[:, :, :2], rtol=0, atol=0)
    assert not torch.allclose(before[:, :, 2], after[:, :, 2])


Change = Callable[[dict[str, Tensor], int, int], None]


def _nudge(given: dict[str, Tensor], sensor: int, step: int) -> None:
    given["key"][:, sensor, step] += 0.3
    given["message_key"][:, sensor, step] -= 0.5


def _shout(given: dict[str, Tensor], sensor: int, step: int) -> None:
    given["key"][:, sensor, step] = 200.0 * given["query"][:, 0, 0].sign()
    given["message_key"][:, sensor, step] = 1e6


@pytest.mark.parametrize("change", [_nudge, _shout], ids=["a little", "a lot"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_definition_4_a_key_changes_the_output_if_and_only_if_its_hard_gate_is_open(
    change: Change, dtype: torch.dtype
) -> None:
    base = inputs()
    base["gate_query"] = torch.zeros_like(base["gate_query"])
    base["gate_key"] = torch.ones_like(base["gate_key"])
    base["gate_key"][:, 1, 1] = -1.0  # sensor 1 at step 1 is shut for everybody
    base = {name: tensor.to(dtype) for name, tensor in base.items()}

    def outputs(sensor: int, step: int) -> tuple[Tensor, Tensor]:
        changed = {name: tensor.clone() for name, tensor in base.items()}
        change(changed, sensor, step)
        rule = GateRule(hard=True)
        one, other = (attend(x, FULL, gate=rule).out for x in (base, changed))
        return one[:, 0], other[:, 0]  # sensor 0 listens to sensors 1 and 2

    torch.testing.assert_close(*outputs(1, 1), rtol=1e-5, atol=1e-6)
    before, after = outputs(1, 2)
    assert ((before - after).abs().amax(dim=(-1, -2)) > 1e-3).all()


def test_details_are_consistent_with_the_output() -> None:
    given = inputs()
    rule = GateRule(NOISE, 0.7)
    attended, seen = attend(given, PADDED, gate=rule), look(given, PADDED, gate=rule)
    neighboured = PRESENT.any(dim=1)
    torch.testing.assert_close(
        seen.attention.sum(dim=(-1, -2)), neighboured.double()[None, :, None, None].expand(BATCH, -1, 2, STEPS)
    )
    torch.testing.assert_close(seen.weight.sum(dim=(-1, -2)), seen.attention.sum(dim=(-1, -2)))
    product = seen.attention * seen.beta[:, :, None]
    total = product.sum(dim=(-1, -2), keepdim=True)
    torch.testing.assert_close(seen.weight, product / total.clamp_min(1e-300))
    mine = given["message_query"][:, :, :, None, None]  # (B, N, T, 1, 1, H, C)
    theirs = given["message_key"][:, INDEX][:, :, None]  # (B, N, 1, K, T, H, C)
    out = torch.einsum("bnhtkr,bntkrhc->bnthc", seen.weight, literal.relu(mine + theirs))
    torch.testing.assert_close(out.flatten(-2), attended.out)
    present = PRESENT[None, :, None, :, None].expand_as(seen.rho)
    torch.testing.assert_close(seen.rho[present].mean(), attended.rho_mean)
    assert (seen.rho[~present] == 0).all()
    assert (seen.beta[~present] == 0).all()


def test_some_sensors_are_looked_at_as_all_are() -> None:
    given, some = inputs(), torch.tensor([2, 0])
    whole = look(given, PADDED, gate=GateRule())
    chosen = {name: x[:, some] if name.endswith("query") else x for name, x in given.items()}
    torch.testing.assert_close(
        vars(look(chosen, PADDED.rows(some), gate=GateRule())), {name: x[:, some] for name, x in vars(whole).items()}
    )


SMALL_INDEX, SMALL_PRESENT = torch.tensor([[1], [0], [2]]), torch.tensor([[True], [True], [False]])


@pytest.mark.parametrize("kind", ["gumbel", "null", "deterministic", "none", "key message", "constrained"])
def test_gradients_of_the_soft_paths_pass_gradcheck(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    shape = (1, 3, 2, 2, 1)
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(4)]
    tensors += [torch.randn(shape[:3], generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    bias = torch.randn(2, 2, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    rule = {
        "none": None,
        "deterministic": GateRule(),
        "null": GateRule(NOISE, 0.5, normaliser="null"),
    }.get(kind, GateRule(NOISE, 0.5))

    def layer(*given: Tensor) -> tuple[Tensor, Tensor]:
        query, key, message_query, message_key, gate_query, gate_key, relative = given
        attended = causal_attention(
            query,
            key,
            None if kind == "key message" else message_query,
            message_key,
            gate_query,
            gate_key,
            Neighbourhood(SMALL_INDEX, SMALL_PRESENT),
            gate=rule,
            relative_bias=relative,
            constrained=kind == "constrained",
        )
        return attended.out, attended.rho_mean + 0 * gate_query.sum()

    assert torch.autograd.gradcheck(layer, (*tensors, bias))


def test_extreme_logits_stay_finite() -> None:
    given = inputs()
    for size in (1e3, -1e3):
        shifted = with_gradients({**given, "gate_query": torch.full_like(given["gate_query"], size)})
        for rule in (GateRule(), GateRule(hard=True), GateRule(normaliser="null")):
            attended = attend(shifted, PADDED, gate=rule)
            assert attended.out.isfinite().all()
            attended.out.sum().backward()
        for tensor in shifted.values():
            assert tensor.grad is not None
            assert tensor.grad.isfinite().all()
