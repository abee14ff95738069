from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from casper.baselines import parts_diffusion
from casper.baselines.parts_diffusion import (
    Condition,
    DiffusionConfig,
    DiffusionNetwork,
    DiffusionProcess,
    Looked,
    ResidualLayer,
    SideInformation,
    StepEmbedding,
    TransformerLayer,
    attend,
    gaussian,
    median_of_samples,
)
from casper.errors import InputError
from casper.network.noise import Noise

SMALL = DiffusionConfig(
    window=5,
    width=8,
    layers=2,
    heads=2,
    feed_forward=6,
    dropout=0.0,
    step_embedding=6,
    time_embedding=4,
    sensor_embedding=3,
    diffusion_steps=8,
    samples=3,
)


# ---------------------------------------------------------------------- what the tests of both methods use


def noise(batch: int, *, seed: int = 3) -> Noise:
    return Noise(torch.Generator().manual_seed(seed), batch=batch, share=slice(None))


def double(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def randomised(module: nn.Module) -> Any:
    """In double precision, with no parameter left at an initial value that would hide a mistake."""
    generator = torch.Generator().manual_seed(7)
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.4)
    return module


def linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """Of one cell."""
    return layer.weight @ x if layer.bias is None else layer.weight @ x + layer.bias


def literal_attention(query: Tensor, keys: list[Tensor], values: list[Tensor], heads: int) -> Tensor:
    """One query (D,) looks at a list of keys and values (D,)."""
    size = len(query) // heads
    parts: list[Tensor] = []
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        scores = torch.stack([(query[own] * key[own]).sum() / math.sqrt(size) for key in keys])
        weights = scores.exp() / scores.exp().sum()
        parts.append(sum((w * value[own] for w, value in zip(weights, values, strict=True)), torch.zeros(size)))
    return torch.cat(parts)


def literal_norm(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    mean = x.mean()
    return (x - mean) / ((x - mean) ** 2).mean().add(norm.eps).sqrt() * norm.weight + norm.bias


def literal_transformer(layer: TransformerLayer, sequence: list[Tensor], source: list[Tensor]) -> list[Tensor]:
    width = len(sequence[0])
    looked = [linear(layer.query_key, x) for x in source]
    keys, values = [x[width:] for x in looked], [linear(layer.value, x) for x in sequence]
    out: list[Tensor] = []
    for place, x in enumerate(sequence):
        attended = linear(layer.out, literal_attention(looked[place][:width], keys, values, layer.heads))
        h = literal_norm(layer.norm_attention, x + attended)
        inner = linear(layer.hidden, h)
        inner = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
        out.append(literal_norm(layer.norm_out, h + linear(layer.feed_forward, inner)))
    return out


def literal_noise(
    network: DiffusionNetwork, noisy: Tensor, beside: Tensor, side: Tensor, seen: Tensor, step: int, mix: Any
) -> Tensor:
    """The predicted noise of one window, (N, T). side: (N, T, E). mix(number, cells): the method's own part."""
    sensors, steps = noisy.shape
    cells = [(i, t) for i in range(sensors) for t in range(steps)]
    x = {
        (i, t): linear(network.project, torch.stack((noisy[i, t] * ~seen[i, t], beside[i, t]))).relu() for i, t in cells
    }
    embedding = network.step_embedding
    hidden = linear(embedding.first, embedding.table[step])
    embedded = linear(embedding.second, hidden * hidden.sigmoid())
    embedded = embedded * embedded.sigmoid()
    total = {cell: torch.zeros(network.config.width, dtype=torch.float64) for cell in cells}
    for number, layer in enumerate(network.residual_layers):
        mixed = mix(number, {cell: x[cell] + linear(layer.step, embedded) for cell in cells})
        for cell in cells:
            gate, content = (linear(layer.middle, mixed[cell]) + linear(layer.side, side[cell])).chunk(2)
            residual, skip = linear(layer.out, gate.sigmoid() * content.tanh()).chunk(2)
            x[cell] = (x[cell] + residual) / math.sqrt(2)
            total[cell] = total[cell] + skip
    predicted = {
        cell: linear(network.out, linear(network.hidden, total[cell] / math.sqrt(network.config.layers)).relu())
        for cell in cells
    }
    return torch.stack([torch.stack([predicted[i, t][0] for t in range(steps)]) for i in range(sensors)])


# ---------------------------------------------------------------------- the process


def test_the_schedule_is_quadratic_and_what_is_kept_is_a_product() -> None:
    process = DiffusionProcess(DiffusionConfig())
    assert process.betas[0] == pytest.approx(1e-4)
    assert process.betas[-1] == pytest.approx(0.5)
    roots = np.sqrt(process.betas)
    assert np.diff(roots) == pytest.approx((math.sqrt(0.5) - 0.01) / 49)
    kept = 1.0
    for beta, ours in zip(process.betas, process.kept, strict=True):
        kept *= 1 - beta
        assert ours == pytest.approx(kept)


@pytest.mark.parametrize(("count", "first"), [(1, 43), (2, 43), (7, 43), (44, 43), (47, 46), (50, 49)])
def test_a_sequence_of_steps_falls_from_where_a_trace_of_the_data_is_left(count: int, first: int) -> None:
    process = DiffusionProcess(DiffusionConfig())
    assert process.kept[43] > 1e-3 > process.kept[44]
    sequence = process.sequence(count)
    assert len(set(sequence)) == count
    assert sequence[0] == first
    assert sequence == sorted(sequence, reverse=True)
    assert count == 1 or sequence[-1] == 0


def test_the_steps_back_follow_the_equations() -> None:
    process = DiffusionProcess(SMALL)
    x, predicted, fresh = double(4, seed=1), double(4, seed=2), double(4, seed=3)
    beta, kept, before = process.betas[5], process.kept[5], process.kept[4]
    mean = (x - beta / (1 - kept) ** 0.5 * predicted) / (1 - beta) ** 0.5
    torch.testing.assert_close(process.ancestral(x, predicted, 5, None), mean)
    sigma = ((1 - before) / (1 - kept) * beta) ** 0.5
    torch.testing.assert_close(process.ancestral(x, predicted, 5, fresh), mean + sigma * fresh)
    data = (x - (1 - kept) ** 0.5 * predicted) / kept**0.5
    torch.testing.assert_close(process.ddim(x, predicted, 5, None), data)
    then = process.kept[2]
    torch.testing.assert_close(process.ddim(x, predicted, 5, 2), then**0.5 * data + (1 - then) ** 0.5 * predicted)


def test_ddim_with_the_true_noise_finds_the_data_again() -> None:
    process = DiffusionProcess(SMALL)
    data, added = double(3, seed=1), double(3, seed=2)
    x = process.kept[-1] ** 0.5 * data + (1 - process.kept[-1]) ** 0.5 * added
    for step, following in ((7, 4), (4, 0), (0, None)):
        x = process.ddim(x, added, step, following)
    torch.testing.assert_close(x, data)


def test_gaussian_numbers_are_normal_and_follow_from_the_noise() -> None:
    drawn = gaussian(noise(4), 50_000)
    assert drawn.shape == (4, 50_000)
    assert drawn.isfinite().all()
    assert float(drawn.mean()) == pytest.approx(0, abs=0.01)
    assert float(drawn.std()) == pytest.approx(1, abs=0.01)
    assert float((drawn.abs() < 1).float().mean()) == pytest.approx(0.6827, abs=0.005)
    assert torch.equal(drawn, gaussian(noise(4), 50_000))
    halves = [
        gaussian(Noise(torch.Generator().manual_seed(3), batch=4, share=slice(first, first + 2)), 50_000)
        for first in (0, 2)
    ]
    assert torch.equal(torch.cat(halves), drawn)


@pytest.mark.parametrize("count", [1, 2, 5, 6])
def test_the_median_is_numpys(count: int) -> None:
    samples = double(2, count, 3, 4)
    expected = np.median(samples.numpy(), axis=1)
    np.testing.assert_allclose(median_of_samples(samples).numpy(), expected)


# ---------------------------------------------------------------------- sampling


class IdleLayer(ResidualLayer):
    def mix(self, h: Tensor, guide: Any, noise: Noise) -> Tensor:
        return h


class KnownNetwork(DiffusionNetwork):
    """Every cell is distributed as N(MEAN, DEVIATION^2), and the best prediction of the noise is known."""

    MEAN, DEVIATION = 1.5, 0.4

    def __init__(self, config: DiffusionConfig) -> None:
        super().__init__(config, [IdleLayer(config, side=1)] * config.layers, sensors=4)
        self.calls: list[tuple[int, ...]] = []

    def condition(self, values: Tensor, seen: Tensor, sensors: Tensor | None, noise: Noise) -> Condition:
        return Condition(values[:, None], seen[:, None], [], [])

    def denoise(self, noisy: Tensor, step: Tensor, condition: Condition, noise: Noise) -> Tensor:
        self.calls.append(tuple(noisy.shape))
        kept = self.process.kept[int(step)]
        variance = kept * self.DEVIATION**2 + 1 - kept
        return math.sqrt(1 - kept) * (noisy - math.sqrt(kept) * self.MEAN) / variance


@pytest.mark.parametrize(("steps", "tolerance"), [(50, 0.1), (49, 0.1), (12, 0.25)])
def test_samples_have_the_distribution_that_the_network_knows(steps: int, tolerance: float) -> None:
    """A few steps of DDIM find the mean, and less than the whole width."""
    network = KnownNetwork(DiffusionConfig(samples=400))
    condition = network.condition(torch.zeros(1, 10, 10), torch.zeros(1, 10, 10, dtype=torch.bool), None, noise(1))
    drawn = network.draw(condition, slice(None), samples=400, steps=steps)
    assert len(network.calls) == steps
    assert float(drawn.mean()) == pytest.approx(network.MEAN, abs=0.02)
    assert float(drawn.std()) == pytest.approx(network.DEVIATION, rel=tolerance)


def test_an_imputation_is_the_median_of_the_samples_and_keeps_what_is_visible() -> None:
    network = KnownNetwork(DiffusionConfig(samples=101))
    values, visible = torch.full((2, 4, 6), 9.0), torch.zeros(2, 4, 6, dtype=torch.bool)
    visible[1, 2] = True
    estimate = network.impute(values, visible, torch.zeros(2, 6, 2))
    assert torch.equal(estimate[1, 2], values[1, 2])
    holes = estimate[~visible]
    assert float(holes.mean()) == pytest.approx(network.MEAN, abs=0.05)
    assert float(holes.std()) < 0.1
    condition = network.condition(values, visible, None, noise(1))
    drawn = network.draw(condition, slice(None), samples=101, steps=50)
    torch.testing.assert_close(estimate[0], drawn[0].median(0).values)


def test_the_error_is_watched_with_one_short_sample() -> None:
    network = KnownNetwork(DiffusionConfig())
    estimate = network.quick_impute(torch.zeros(2, 4, 6), torch.zeros(2, 4, 6, dtype=torch.bool), torch.zeros(2, 6, 2))
    assert estimate.shape == (2, 4, 6)
    assert network.calls == [(2, 1, 4, 6)] * 10


def test_chunks_and_company_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    network = KnownNetwork(SMALL.replace(samples=5))
    values, visible, clock = torch.zeros(3, 4, 6), torch.zeros(3, 4, 6, dtype=torch.bool), torch.zeros(3, 6, 2)
    whole = network.impute(values, visible, clock)
    assert torch.equal(network.impute(values[:1], visible[:1], clock[:1]), whole[:1])
    monkeypatch.setitem(parts_diffusion._CELLS_AT_ONCE, "cpu", 2 * 24)
    network.calls.clear()
    torch.testing.assert_close(network.impute(values, visible, clock), whole)
    assert {shape[:2] for shape in network.calls} == {(1, 2), (1, 1)}


# ---------------------------------------------------------------------- parts of the network


@pytest.mark.parametrize("along", ["steps", "sensors"])
def test_a_transformer_layer_is_its_equations(along: Any) -> None:
    layer = randomised(TransformerLayer(SMALL, along=along))
    h, source = double(2, 1, 3, 4, 8, seed=1), double(2, 1, 3, 4, 8, seed=2)
    ours = layer(h, layer.look(source), Noise.silent())
    for window in range(2):
        for other in range(3 if along == "steps" else 4):
            pick = (window, 0, other) if along == "steps" else (window, 0, slice(None), other)
            expected = literal_transformer(layer, list(h[pick]), list(source[pick]))
            torch.testing.assert_close(ours[pick], torch.stack(expected))


@pytest.mark.parametrize("along", ["steps", "sensors"])
def test_samples_share_queries_and_keys(along: Any) -> None:
    looked = Looked(double(2, 1, 3, 4, 8, seed=1), double(2, 1, 3, 4, 8, seed=2))
    value = double(2, 5, 3, 4, 8, seed=3)
    together = attend(*looked, value, heads=2, along=along)
    assert together.shape == value.shape
    for sample in range(5):
        alone = attend(*looked, value[:, sample : sample + 1], heads=2, along=along)
        torch.testing.assert_close(together[:, sample], alone[:, 0])


def test_steps_and_places_are_told_by_sines_and_cosines() -> None:
    table = StepEmbedding(SMALL).table
    for step in range(8):
        for i in range(3):
            angle = step * 10 ** (4 * i / 2)
            assert float(table[step, i]) == pytest.approx(math.sin(angle), abs=1e-6)
            assert float(table[step, 3 + i]) == pytest.approx(math.cos(angle), abs=1e-6)
    steps = SideInformation(SMALL, sensors=2).steps
    for step in range(5):
        for i in range(2):
            angle = step / 10_000 ** (2 * i / 4)
            assert float(steps[step, 2 * i]) == pytest.approx(math.sin(angle), abs=1e-6)
            assert float(steps[step, 2 * i + 1]) == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize("masked", [True, False])
def test_the_side_information_is_projected_as_if_it_were_joined(masked: bool) -> None:
    information = randomised(SideInformation(SMALL, sensors=3))
    mask = torch.tensor([[[1, 0, 1, 1]] * 3, [[0, 0, 1, 0]] * 3], dtype=torch.bool) if masked else None
    layer = randomised(nn.Linear(7 + masked, 6))
    numbers = torch.tensor([2, 0, 1])
    projected = information(4, numbers, mask).project(layer)
    for i in range(3):
        for t in range(4):
            for window in range(projected.shape[0]):
                parts = [information.steps[t], information.sensor[numbers[i]]]
                parts += [] if mask is None else [mask[window, i, t][None].double()]
                torch.testing.assert_close(projected[window, 0, i, t], layer(torch.cat(parts)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"width": 10},
        {"diffusion_steps": 0},
        {"diffusion_steps": 2000},
        {"sampling_steps": 51},
        {"sampling_steps": 0},
        {"beta_last": 1.0},
        {"beta_first": 0.6},
        {"samples": 0},
        {"dropout": 1.0},
        {"step_embedding": 3},
        {"time_embedding": 5},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        DiffusionConfig().replace(**wrong)
