from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from test_parts_diffusion import (
    double,
    linear,
    literal_attention,
    literal_noise,
    literal_transformer,
    noise,
    randomised,
)
from torch import Tensor
from torch.nn import functional as F

from casper.baselines.parts_diffusion import gaussian
from casper.baselines.pristi import (
    MessagePassing,
    PristiConfig,
    PristiImputer,
    PristiNetwork,
    VirtualNodeAttention,
    WindowNorm,
)
from casper.config import TrainingConfig
from casper.errors import InputError
from casper.network.learning import Example
from casper.network.noise import Noise

if TYPE_CHECKING:
    from casper.datasets import Benchmark
    from casper.simulate import Simulation

SENSORS, WINDOW = 3, 4
SIZES: dict[str, Any] = {
    "width": 8,
    "layers": 2,
    "heads": 2,
    "feed_forward": 6,
    "step_embedding": 6,
    "time_embedding": 4,
    "sensor_embedding": 3,
    "diffusion_steps": 6,
    "samples": 4,
    "virtual_nodes": 2,
}
SMALL = PristiConfig(window=WINDOW, dropout=0.0, **SIZES)
TRAINING, WARM = TrainingConfig(), torch.ones(())
CLOCK = torch.zeros(2, WINDOW, 2)
# Sensor 0 listens to sensor 1 and a little to sensor 2, sensor 1 to nobody.
LISTENS = torch.tensor([[0.0, 0.9, 0.3], [0.0, 0.0, 0.0], [0.5, 0.0, 0.0]])
Cells = dict[tuple[int, int], Tensor]
CELLS = [(i, t) for i in range(SENSORS) for t in range(WINDOW)]


def network(config: PristiConfig = SMALL, *, listens: Tensor = LISTENS) -> PristiNetwork:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return PristiNetwork(config, listens=listens)


def example(*, dtype: torch.dtype = torch.float64) -> Example:
    generator = torch.Generator().manual_seed(5)
    visible = torch.rand(2, SENSORS, WINDOW, generator=generator) < 0.8
    hidden = visible & (torch.rand(2, SENSORS, WINDOW, generator=generator) < 0.5)
    return Example(double(2, SENSORS, WINDOW).to(dtype) * visible, visible, hidden, CLOCK, hidden.sum())


# ---------------------------------------------------------------------- the equations, cell by cell


def stacked(cells: Cells) -> Tensor:
    return torch.stack([torch.stack([cells[i, t] for t in range(WINDOW)]) for i in range(SENSORS)])


def literal_window_norm(norm: WindowNorm, cells: Cells) -> Cells:
    """PyTorch's own, which wants (windows, channels, cells)."""
    normed = F.group_norm(stacked(cells).permute(2, 0, 1)[None], 4, norm.weight, norm.bias)[0]
    return {cell: normed[:, cell[0], cell[1]] for cell in CELLS}


def literal_messages(messages: MessagePassing, cells: Cells, supports: list[list[list[Tensor]]]) -> Cells:
    """One map from the joined messages."""
    joined = torch.cat(messages.terms.weight.chunk(7), dim=1)
    out: Cells = {}
    for i, t in CELLS:
        parts = [cells[i, t]]
        for support in supports:
            once = [sum((support[a][b] * cells[b, t] for b in range(SENSORS)), torch.zeros(8)) for a in range(SENSORS)]
            parts += [once[i], sum((support[i][b] * once[b] for b in range(SENSORS)), torch.zeros(8))]
        out[i, t] = joined @ torch.cat(parts) + messages.bias
    return out


def literal_virtual(layer: VirtualNodeAttention, cells: Cells, source: Cells) -> Cells:
    out: Cells = {}
    for t in range(WINDOW):
        keys = [
            sum((layer.key_nodes[i, k] * linear(layer.key, source[i, t]) for i in range(SENSORS)), torch.zeros(8))
            for k in range(2)
        ]
        values = [
            sum((layer.value_nodes[i, k] * linear(layer.value, cells[i, t]) for i in range(SENSORS)), torch.zeros(8))
            for k in range(2)
        ]
        for i in range(SENSORS):
            attended = literal_attention(linear(layer.query, source[i, t]), keys, values, layer.heads)
            out[i, t] = linear(layer.out, attended)
    return out


def literal_in_time(layer: Any, cells: Cells, source: Cells) -> Cells:
    out: Cells = {}
    for i in range(SENSORS):
        own, looked = [[x[i, t] for t in range(WINDOW)] for x in (cells, source)]
        out |= {(i, t): x for t, x in enumerate(literal_transformer(layer, own, looked))}
    return out


def literal_merge(merge: Any, cells: Cells, *parts: Cells) -> Cells:
    normed = [
        literal_window_norm(norm, {cell: cells[cell] + part[cell] for cell in CELLS})
        for norm, part in zip(merge.norms, parts, strict=True)
    ]
    total = {cell: sum((part[cell] for part in normed), torch.zeros(8)) for cell in CELLS}
    fed = {cell: total[cell] + linear(merge.feed_forward, linear(merge.hidden, total[cell]).relu()) for cell in CELLS}
    return literal_window_norm(merge.norm_out, fed)


def literal_supports(net: PristiNetwork) -> list[list[list[Tensor]]]:
    along = [[w / max(1e-12, float(sum(row))) for w in row] for row in LISTENS.double()]
    against = [[w / max(1e-12, float(sum(row))) for w in row] for row in LISTENS.double().T]
    scores = [[(row * net.learned_columns[:, j]).sum().relu() for j in range(SENSORS)] for row in net.learned_rows]
    learned = [[s.exp() / torch.stack(row).exp().sum() for s in row] for row in scores]
    return [along, against, learned]


def literal_loss(net: PristiNetwork, given: Example) -> Tensor:
    drawn = noise(2)
    steps = (drawn.uniform() * net.config.diffusion_steps).long()
    added = gaussian(drawn, SENSORS, WINDOW)
    supports = literal_supports(net)
    information = net.side_information
    side = stacked({(i, t): torch.cat((information.steps[t], information.sensor[i])) for i, t in CELLS})
    total = torch.zeros((), dtype=torch.float64)
    for b in range(2):
        seen = given.visible[b] & ~given.hidden[b]
        line = torch.zeros(SENSORS, WINDOW, dtype=torch.float64)
        for i in range(SENSORS):
            at = np.flatnonzero(seen[i])
            if len(at):
                line[i] = torch.as_tensor(np.interp(range(WINDOW), at, given.values[b, i, at]))
        h = {cell: linear(net.interpolated, line[cell][None]) + linear(net.prior_side, side[cell]) for cell in CELLS}
        merged = literal_merge(
            net.prior.merge,
            h,
            literal_in_time(net.prior.over_steps, h, h),
            literal_virtual(net.prior.over_sensors, h, h),
            literal_messages(net.prior.messages, h, supports),
        )
        prior = {cell: x.relu() for cell, x in merged.items()}

        def mix(number: int, x: Cells, prior: Cells = prior) -> Cells:
            layer: Any = net.layers[number]
            x = literal_in_time(layer.over_steps, x, prior)
            in_space = literal_virtual(layer.over_sensors, x, prior)
            return literal_merge(layer.merge, x, in_space, literal_messages(layer.messages, x, supports))

        k = int(steps[b])
        kept = net.process.kept[k]
        noisy = kept**0.5 * given.values[b] + (1 - kept) ** 0.5 * added[b]
        predicted = literal_noise(net, noisy, line, side, seen, k, mix)
        total = total + ((predicted - added[b]) ** 2)[given.hidden[b]].sum()
    return total / given.hidden.sum()


def test_the_loss_and_its_gradients_are_those_of_the_equations() -> None:
    net, given = randomised(network()), example()
    ours = net.loss(given, noise(2), training=TRAINING, temperature=WARM)
    assert ours.rho_mean.shape == (0,)
    expected = literal_loss(net, given)
    torch.testing.assert_close(ours.loss, expected, rtol=1e-5, atol=0)
    parameters = list(net.parameters())
    for mine, theirs in zip(
        torch.autograd.grad(ours.loss, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


# ---------------------------------------------------------------------- the contract


def test_what_is_not_visible_is_not_read() -> None:
    net, given = randomised(network()), example()
    elsewhere = torch.where(given.visible, given.values, 99.0)
    before = net.loss(given, noise(2), training=TRAINING, temperature=WARM).loss
    after = net.loss(given._replace(values=elsewhere), noise(2), training=TRAINING, temperature=WARM).loss
    assert torch.equal(before, after)
    hole = ~given.visible
    for fill in (net.impute, net.quick_impute):
        filled, again = fill(given.values, given.visible, CLOCK), fill(elsewhere, given.visible, CLOCK)
        assert torch.equal(filled[hole], again[hole])


def test_the_hidden_values_are_seen_through_the_noise_alone() -> None:
    """Neither the interpolation nor the prior changes with them."""
    net, given = randomised(network()), example()
    changed = torch.where(given.hidden, 99.0, given.values)
    one, other = (net.condition(values, given.seen, None, Noise.silent()) for values in (given.values, changed))
    assert torch.equal(one.beside, other.beside)
    for mine, theirs in zip(one.guides, other.guides, strict=True):
        assert torch.equal(mine.steps.query, theirs.steps.query)
        assert torch.equal(mine.sensors.key, theirs.sensors.key)


def test_an_imputation_repeats_itself_and_keeps_visible_values() -> None:
    net, given = randomised(network()).float(), example(dtype=torch.float32)
    filled = net.impute(given.values, given.visible, CLOCK)
    assert torch.equal(filled, net.impute(given.values, given.visible, CLOCK))
    assert torch.equal(filled[given.visible], given.values[given.visible])
    assert not filled.requires_grad


@pytest.mark.parametrize("sampling_steps", [None, 3])
def test_empty_windows_dead_sensors_and_graphs_without_edges_give_numbers(sampling_steps: int | None) -> None:
    net = network(SMALL.replace(sampling_steps=sampling_steps), listens=torch.zeros(SENSORS, SENSORS))
    values, visible = torch.zeros(2, SENSORS, WINDOW), torch.zeros(2, SENSORS, WINDOW, dtype=torch.bool)
    visible[1, 0] = True
    assert net.impute(values, visible, CLOCK).isfinite().all()
    nothing = Example(values, visible, torch.zeros_like(visible), CLOCK, torch.ones(()))
    outcome = net.loss(nothing, noise(2), training=TRAINING, temperature=WARM)
    outcome.loss.backward()
    assert outcome.loss == 0
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())


def test_two_sensors_and_two_steps_are_enough() -> None:
    net = network(SMALL.replace(window=2), listens=torch.zeros(2, 2))
    assert net.impute(torch.ones(1, 2, 2), torch.eye(2, dtype=torch.bool)[None], CLOCK[:1, :2]).isfinite().all()


def test_all_sensors_in_another_order_give_the_same_loss() -> None:
    """As a patch of sensors: embeddings, virtual nodes and graphs follow their sensors."""
    net, given = randomised(network()), example()
    order = torch.tensor([2, 0, 1])
    values, seen = given.values[:, order], given.seen[:, order]
    plain = net.condition(given.values, given.seen, None, Noise.silent())
    moved = net.condition(values, seen, order, Noise.silent())
    noisy, step = double(2, 1, SENSORS, WINDOW, seed=4), torch.tensor([1, 4])
    torch.testing.assert_close(
        net.denoise(noisy[:, :, order], step, moved, Noise.silent()),
        net.denoise(noisy, step, plain, Noise.silent())[:, :, order],
    )


def test_mixed_precision_gives_nearly_the_same_loss() -> None:
    net, given = randomised(network()).float(), example(dtype=torch.float32)
    plain = net.loss(given, noise(2), training=TRAINING, temperature=WARM).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = net.loss(given, noise(2), training=TRAINING, temperature=WARM).loss
    torch.testing.assert_close(mixed, plain, rtol=0.05, atol=0)


def test_the_interpolation_lets_a_few_steps_teach_it_something() -> None:
    """Straight lines with holes: the condition alone holds the answer."""
    net = network(SMALL.replace(layers=1, width=16, diffusion_steps=10, samples=9))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(0)
    hidden = torch.zeros(16, SENSORS, WINDOW, dtype=torch.bool)
    hidden[:, :, 1:3] = True
    losses: list[float] = []
    for step in range(70):
        ends = torch.randn(2, 16, SENSORS, 1, generator=generator)
        values = torch.lerp(ends[0], ends[1], torch.linspace(0, 1, WINDOW))
        given = Example(values, torch.ones_like(hidden), hidden, torch.zeros(16, WINDOW, 2), hidden.sum())
        loss = net.loss(given, noise(16, seed=step), training=TRAINING, temperature=WARM).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert np.mean(losses[-20:]) < 0.6 * np.mean(losses[:20])
    filled = net.impute(values[:8], ~hidden[:8], torch.zeros(8, WINDOW, 2))
    error = (filled - values[:8])[hidden[:8]].abs().mean()
    assert float(error) < 0.6 * float(values[:8][hidden[:8]].abs().mean())


def test_it_fits_fills_saves_and_loads(six_sensors: Simulation, tmp_path: Path) -> None:
    imputer = PristiImputer(
        device="cpu", epochs=2, batches_per_epoch=5, batch_size=4, window=12, validation_cells=2000, **SIZES
    )
    filled = imputer.fit(six_sensors.table, sensors=six_sensors.sensors).impute(six_sensors.table)
    assert not filled.isna().any().any()
    observed = six_sensors.table.notna()
    assert (filled.where(observed) == six_sensors.table.where(observed)).to_numpy()[observed.to_numpy()].all()
    loaded = PristiImputer.from_pretrained(imputer.save_pretrained(tmp_path / "model"), device="cpu")
    assert loaded.config == imputer.config
    np.testing.assert_array_equal(loaded.impute(six_sensors.table), filled)


def test_it_runs_on_a_benchmark_in_patches_of_sensors(small_benchmark: Benchmark) -> None:
    imputer = PristiImputer(
        device="cpu", epochs=1, batches_per_epoch=3, batch_size=4, window=12, sensors_per_batch=4, **SIZES
    )
    imputer.fit_benchmark(small_benchmark)
    assert imputer.graph is small_benchmark.graph
    assert all(np.isfinite(estimate).all() for _, estimate in imputer.impute_windows(small_benchmark))


def test_the_recipe_is_the_published_one() -> None:
    imputer = PristiImputer()
    config, training = imputer.config, imputer.training
    assert (config.width, config.layers, config.heads, config.diffusion_steps) == (64, 4, 8, 50)
    assert (config.beta_first, config.beta_last, config.virtual_nodes, config.samples) == (1e-4, 0.2, 64, 100)
    assert (training.batch_size, training.learning_rate, training.weight_decay) == (16, 1e-3, 1e-6)


@pytest.mark.parametrize("wrong", [{"virtual_nodes": 0}, {"width": 6, "heads": 1}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        PristiConfig().replace(**wrong)
