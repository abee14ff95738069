"""What the recurrent baselines share, and how their steps are compiled."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from casper.baselines.brits import BritsConfig, BritsNetwork
from casper.baselines.grin import GrinConfig, GrinImputer, GrinNetwork
from casper.baselines.parts_recurrent import first_state, for_each_step, gated_step
from casper.baselines.pogevon import PogevonConfig, PogevonNetwork
from casper.baselines.rgain import RgainConfig, RgainNetwork
from casper.config import TrainingConfig
from casper.datasets import Benchmark
from casper.network.learning import Example, WindowNetwork
from casper.network.noise import Noise

# The compiler asks all it is given for gradients, and keeps the warning from being shown, but not from being raised.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")

BATCH, SENSORS, STEPS = 2, 4, 5
ADJACENCY = torch.rand(SENSORS, SENSORS, generator=torch.Generator().manual_seed(0))
# The network, and how many functions it repeats.
NETWORKS: dict[str, tuple[Callable[[], WindowNetwork], int]] = {
    "grin": (lambda: GrinNetwork(GrinConfig(window=STEPS, hidden=4), adjacency=ADJACENCY), 1),
    "brits": (lambda: BritsNetwork(BritsConfig(window=STEPS, hidden=4), sensors=SENSORS), 1),
    "rgain": (lambda: RgainNetwork(RgainConfig(window=STEPS, hidden=4), sensors=SENSORS), 2),
    "pogevon": (
        lambda: PogevonNetwork(
            PogevonConfig(window=STEPS, width=4, latent=2),
            adjacency=ADJACENCY,
            positions=ADJACENCY[:, :2],
            clock=2,
        ),
        2,
    ),
}


def network(name: str) -> WindowNetwork:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return NETWORKS[name][0]()


def example() -> Example:
    random = torch.Generator().manual_seed(1)
    visible = torch.rand(BATCH, SENSORS, STEPS, generator=random) < 0.7
    hidden = visible & (torch.rand(visible.shape, generator=random) < 0.3)
    values = torch.randn(visible.shape, generator=random) * visible
    return Example(values, visible, hidden, torch.zeros(BATCH, STEPS, 2), hidden.sum())


def loss_and_gradients(net: WindowNetwork) -> list[Tensor]:
    noise = Noise(torch.Generator().manual_seed(2), batch=BATCH, share=slice(None))
    loss = net.loss(example(), noise, training=TrainingConfig(), temperature=torch.ones(())).loss
    return [loss, *torch.autograd.grad(loss, list(net.parameters()))]


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What was compiled: the compiler's tracing without its code generation, which takes longer than all else here."""
    from torch._dynamo.backends.debugging import aot_eager

    traced: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        traced.append(graph)
        return aot_eager(graph, inputs)

    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend, fullgraph=True))
    yield traced
    torch.compiler.reset()


def test_views_of_a_weight_get_together_the_gradient_of_the_weight() -> None:
    random = torch.Generator().manual_seed(0)
    weight, bias = (torch.randn(2, size, 3, generator=random, requires_grad=True) for size in (4, 1))
    xs = torch.randn(STEPS, 2, 6, 4, generator=random)
    found = torch.stack([x @ w + b for x, (w, b) in zip(xs, for_each_step(STEPS, weight, bias), strict=True)])
    wanted = torch.stack([x @ weight + bias for x in xs])
    assert torch.equal(found, wanted)
    torch.testing.assert_close(
        torch.autograd.grad(found.sin().sum(), (weight, bias)), torch.autograd.grad(wanted.sin().sum(), (weight, bias))
    )


def test_the_first_state_is_nothing_and_asks_for_gradients_in_training_only() -> None:
    state = first_state(torch.ones(1, dtype=torch.float64), 2, 3)
    assert state.tolist() == [[0.0] * 3] * 2
    assert state.dtype == torch.float64
    assert state.requires_grad
    with torch.no_grad():
        assert not first_state(state, 2, 3).requires_grad


def test_the_gated_step_is_torchs_gru_cell() -> None:
    random = torch.Generator().manual_seed(0)
    read, state, weight, bias = (
        torch.randn(size, generator=random) for size in ((2, 6, 12), (2, 6, 4), (2, 4, 12), (2, 1, 12))
    )
    found = gated_step(read, state, weight, bias)
    for direction in range(2):
        parts = (torch.eye(12), weight[direction].T, torch.zeros(12), bias[direction, 0])
        torch.testing.assert_close(found[direction], torch.gru_cell(read[direction], state[direction], *parts))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_is_compiled_once_for_all_and_gives_what_it_gave(name: str, graphs: list[Any]) -> None:
    net = network(name)
    wanted = loss_and_gradients(net)
    assert net.compile_repeated()
    torch.testing.assert_close(loss_and_gradients(net), wanted)
    assert len(graphs) == NETWORKS[name][1], "the first step has the same shapes, strides and gradients as the others"


@pytest.mark.parametrize("name", NETWORKS)
def test_filling_is_not_compiled_nor_is_the_compiled_step_copied_or_saved(name: str, graphs: list[Any]) -> None:
    net = network(name)
    names = list(net.state_dict())
    net.compile_repeated()
    with torch.no_grad():
        net.impute(example().values, example().seen, example().clock)
    loss_and_gradients(copy.deepcopy(net))  # by way of its __getstate__, as everything that stores whole modules
    assert graphs == []
    assert list(net.state_dict()) == names


@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="no C++ compiler on this machine")
def test_a_training_with_a_compiled_step_learns_what_an_ordinary_one_does(small_benchmark: Benchmark) -> None:
    torch.compiler.reset()
    losses: list[list[float]] = []
    for compiled in (False, True):
        settings: dict[str, Any] = {"window": 6, "hidden": 4, "hops": 1, "epochs": 2, "batches_per_epoch": 3}
        model = GrinImputer(device="cpu", batch_size=2, validation_cells=500, compiled=compiled, **settings)
        model.fit_benchmark(small_benchmark)
        assert model.result is not None
        losses.append([x for record in model.result.history for x in (record.train_loss, record.validation_mae)])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
