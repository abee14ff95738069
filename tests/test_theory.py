"""The paper's theory on the package's own attention: Definition 4, Theorem 1 and Remark 1.

The paper's g = dy/dh . alpha v / Z is the slope of the estimate by a gate where Z is a number. The package's Z is the
sum of beta alpha, which moves with the gates: its slope is g less alpha / Z times dy/dh . h, h the attention's output.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import pytest
import torch
from torch import Tensor

from casper.attention import GateRule, causal_attention, look_at_pairs
from casper.config import ModelConfig
from casper.kernels import Version
from casper.network.encoder import CausalAttention
from casper.network.neighbourhood import Neighbourhood
from casper.network.noise import Noise

Z = Literal["moves", "held", "one"]
"""moves: the package's, followed by the gradient. held: the same, taken as a number by the gradient, as in the paper's
proof. one: the null slot's, which is no function of the gates to begin with."""

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


class Point(NamedTuple):
    """What the formulas need to know of one query with K keys; pull: dy/dh . v of each key, v its message."""

    alpha: Tensor
    pull: Tensor

    def g(self, rho: Tensor, z: Z) -> Tensor:
        """The paper's g of every gate (Remark 1): beta is rho where nothing is drawn, so d beta / d rho is 1."""
        return self.alpha * self.pull / self._total(rho, z)

    def slope(self, rho: Tensor, z: Z) -> Tensor:
        """The whole slope of the estimate by every gate: where Z moves, a gate also takes from all other messages."""
        g = self.g(rho, z)
        return g - self.alpha / self._total(rho, z) * (rho * g).sum() if z == "moves" else g

    def _total(self, rho: Tensor, z: Z) -> Tensor:
        return rho.new_ones(()) if z == "one" else (rho * self.alpha).sum()


# ---------------------------------------------------------------------- one query, each of its gates on its own


STEP, KEYS = 1, 2 * STEPS  # the query is (sensor 0, STEP), its keys all steps of sensors 1 and 2


class Scene:
    """A query whose every gate has a logit of its own, behind it a decoder that is linear: y = decoder . h."""

    def __init__(self, seed: int) -> None:
        self.given = tensors(seed)
        self.given["query"] /= math.sqrt(WIDTH)
        self.decoder = torch.randn(WIDTH, generator=torch.Generator().manual_seed(seed + 50), dtype=torch.float64)
        query, message_query = (self.given[name][0, 0, STEP, 0] for name in ("query", "message_query"))
        key, message_key = (self.given[name][0, 1:, :, 0].flatten(0, 1) for name in ("key", "message_key"))
        self.point = Point(torch.softmax(key @ query, 0), torch.relu(message_query + message_key) @ self.decoder)

    def estimate(self, logit: Tensor, z: Z, version: Version | None = None) -> Tensor:
        """The package's, of the gates' logits (KEYS,)."""
        nothing = torch.zeros(1, SENSORS, STEPS, dtype=torch.float64)
        gates = (nothing, torch.cat((nothing[0, 0], logit)).reshape(1, SENSORS, STEPS))
        messages = (self.given["message_query"], self.given["message_key"])
        pair = (self.given["query"], self.given["key"])
        rule = GateRule(normaliser="null" if z == "one" else "gated")
        y = causal_attention(*pair, *messages, *gates, NEIGHBOURS, gate=rule, version=version).out[0, 0, STEP]
        if z != "held":
            return y @ self.decoder
        seen = look_at_pairs(*pair, *gates, NEIGHBOURS, gate=rule, relative_bias=None, constrained=False)
        return y @ self.decoder * held(seen.attention[0, 0, 0, STEP] * seen.beta[0, 0, STEP])


def held(gated: Tensor) -> Tensor:
    """1, with the gradient that undoes what Z has: the product with Z loses it, the quotient takes Z for a number."""
    total = gated.sum((-1, -2))
    return total / total.detach()


@pytest.mark.parametrize("version", ["plain", None])
@pytest.mark.parametrize("z", ["held", "one", "moves"])
@pytest.mark.parametrize("seed", range(5))
def test_remark_1_the_attentions_slope_by_a_gate_is_the_papers_g_and_what_z_takes_where_it_moves(
    seed: int, z: Z, version: Version | None
) -> None:
    scene = Scene(seed)
    rho = torch.rand(KEYS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()
    (slope,) = torch.autograd.grad(scene.estimate(torch.logit(rho), z, version), rho)
    rho = rho.detach()
    torch.testing.assert_close(slope, scene.point.slope(rho, z))
    assert torch.allclose(slope, scene.point.g(rho, z)) == (z != "moves")


# Seed and lambda: gates on both sides of lambda, none so near to it that Z takes its g across on the way.
SCENES = [(0, 0.03), (7, 0.025), (11, 0.03)]


def descend(scene: Scene, z: Z, *, start: float, penalty: float, rate: float) -> tuple[Tensor, Tensor]:
    """Gradient descent on the logits alone. The gates at its end, (KEYS,), and those before every step."""
    logit = torch.full((KEYS,), start, dtype=torch.float64, requires_grad=True)
    path: list[Tensor] = []
    for _ in range(600):
        rho = torch.sigmoid(logit)
        # The truth is above the estimate, as in the paper's proof: the error falls as the estimate rises.
        (slope,) = torch.autograd.grad(penalty * rho.sum() - scene.estimate(logit, z, "plain"), logit)
        path.append(rho.detach())
        with torch.no_grad():
            logit -= rate * slope
    return torch.sigmoid(logit).detach(), torch.stack(path)


@pytest.mark.parametrize("z", ["held", "one"])
@pytest.mark.parametrize("start", [-1.0, 2.0])
@pytest.mark.parametrize(("seed", "penalty"), SCENES)
def test_theorem_1_descent_on_the_gates_opens_those_whose_g_is_above_lambda_and_shuts_those_below(
    seed: int, penalty: float, start: float, z: Z
) -> None:
    scene = Scene(seed)
    rho, path = descend(scene, z, start=start, penalty=penalty, rate=100.0)
    # Held or not, Z changes from step to step and g with it: here on no gate so far that it would cross lambda.
    above = torch.stack([scene.point.g(before, z) > penalty for before in path])
    assert (above == above[0]).all()
    assert 0 < above[0].sum() < KEYS
    assert (rho[above[0]] > 0.99).all()
    assert (rho[~above[0]] < 0.01).all()


@pytest.mark.parametrize("start", [-1.0, 2.0])
@pytest.mark.parametrize(("seed", "penalty"), [(0, 0.1), (11, 0.1)])
def test_where_descent_follows_z_it_goes_by_the_whole_slope_and_can_shut_even_the_gates_whose_g_is_above_lambda(
    seed: int, penalty: float, start: float
) -> None:
    """Theorem 1 needs Z to be a number: all gates made smaller by the same share change no estimate, and cost less."""
    scene = Scene(seed)
    # Slowly: a gate that one long step opens all the way comes back from there later than a test can wait.
    rho, path = descend(scene, "moves", start=start, penalty=penalty, rate=20.0)
    wanted = torch.stack([scene.point.slope(before, "moves") > penalty for before in path[:-1]])
    assert torch.equal(path[1:] > path[:-1], wanted)
    above = torch.stack([scene.point.g(before, "moves") > penalty for before in path])
    assert above.all(0).any()
    assert (rho < 0.1).all()


# ---------------------------------------------------------------------- the whole layer, whose gates share weights


def layer_of(z: Z, seed: int) -> tuple[CausalAttention, Tensor]:
    """With no parameter at an initial value that would hide a mistake, and what it is given, (1, N, T, D)."""
    config = ModelConfig(window=STEPS, width=WIDTH, heads=1, gate_null_slot=z == "one")
    layer = CausalAttention(config, sensors=SENSORS).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.5)
    return layer, torch.randn(1, SENSORS, STEPS, WIDTH, generator=generator, dtype=torch.float64)


def points_of(layer: CausalAttention, h: Tensor, decoder: Tensor) -> list[tuple[Point, Tensor, Tensor, Tensor]]:
    """Of every query: the point, its gates rho (K,), and what W_c acts on, of the query and of the keys."""
    points: list[tuple[Point, Tensor, Tensor, Tensor]] = []
    for sensor in range(SENSORS):
        keys = h[0, NEIGHBOURS.index[sensor][NEIGHBOURS.present[sensor]]].flatten(0, 1)
        for query in h[0, sensor]:
            alpha = torch.softmax(layer.key(keys) @ layer.query(query) / math.sqrt(WIDTH), 0)
            assert layer.message_query is not None
            message = layer.message_out(torch.relu(layer.message_query(query) + layer.message_key(keys)))
            of_query, of_keys = layer.gate_query(query), layer.gate_key(keys)
            rho = torch.sigmoid(layer.gate_query_logit(of_query) + layer.gate_key_logit(of_keys))[:, 0]
            points.append((Point(alpha, message @ decoder), rho, of_query.expand_as(of_keys), of_keys))
    return points


@pytest.mark.parametrize("z", ["held", "one", "moves"])
@pytest.mark.parametrize("seed", range(5))
def test_theorem_1_the_gradient_of_the_gates_weights_is_the_papers(seed: int, z: Z) -> None:
    """dL/dw = sum over all pairs of (lambda - g) rho (1 - rho) h; where Z moves with the whole slope in place of g."""
    layer, h = layer_of(z, seed)
    decoder = torch.randn(WIDTH, generator=torch.Generator().manual_seed(seed + 99), dtype=torch.float64)
    message, rho_mean = layer(h, NEIGHBOURS, Noise.silent(), temperature=1.0)
    estimate = message @ decoder
    if z == "held":
        seen = layer.look(h, NEIGHBOURS, Noise.silent())
        estimate = estimate * held(seen.attention[:, :, 0] * seen.beta)
    penalty, pairs = 0.03, NEIGHBOURS.count(STEPS, constrained=False)
    truth = estimate.detach() + 1.0  # above the estimate: the error falls as the estimate rises
    ((truth - estimate).abs().sum() + penalty * rho_mean * pairs).backward()

    wanted = torch.zeros(2, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        for point, rho, of_query, of_keys in points_of(layer, h, decoder):
            by_logit = (penalty - point.slope(rho, z)) * rho * (1 - rho)
            wanted += torch.stack((by_logit @ of_query, by_logit @ of_keys))
    for weights, expected in zip((layer.gate_query_logit.weight, layer.gate_key_logit.weight), wanted, strict=True):
        assert weights.grad is not None
        torch.testing.assert_close(weights.grad[0], expected)


@pytest.mark.parametrize("z", ["one", "moves"])
@torch.no_grad()
def test_influence_is_the_gate_times_the_whole_slope_which_is_the_papers_g_where_z_is_one(z: Z) -> None:
    layer, h = layer_of(z, seed=0)
    decoder = torch.randn(WIDTH, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    gradient = decoder.expand(1, SENSORS, STEPS, WIDTH)
    change, _ = layer.influence(h, NEIGHBOURS, gradient, sensors=torch.arange(SENSORS))
    for number, (point, rho, _, _) in enumerate(points_of(layer, h, decoder)):
        ours = change[0, number // STEPS, number % STEPS].flatten()[: len(rho)]
        torch.testing.assert_close(ours, rho * point.slope(rho, z))
        assert torch.allclose(ours, rho * point.g(rho, z)) == (z == "one")
