from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from test_parts_diffusion import double, literal_noise, literal_transformer, noise, randomised
from torch import Tensor

from casper.baselines.csdi import CsdiConfig, CsdiImputer, CsdiNetwork
from casper.baselines.parts_diffusion import gaussian
from casper.config import TrainingConfig
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
}
SMALL = CsdiConfig(window=WINDOW, dropout=0.0, **SIZES)
TRAINING, WARM = TrainingConfig(), torch.ones(())
CLOCK = torch.zeros(2, WINDOW, 2)


def network(config: CsdiConfig = SMALL) -> CsdiNetwork:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return CsdiNetwork(config, sensors=SENSORS)


def example(*, dtype: torch.dtype = torch.float64) -> Example:
    generator = torch.Generator().manual_seed(5)
    visible = torch.rand(2, SENSORS, WINDOW, generator=generator) < 0.8
    hidden = visible & (torch.rand(2, SENSORS, WINDOW, generator=generator) < 0.5)
    return Example(double(2, SENSORS, WINDOW).to(dtype) * visible, visible, hidden, CLOCK, hidden.sum())


def literal_loss(net: CsdiNetwork, given: Example) -> Tensor:
    drawn = noise(2)
    steps = (drawn.uniform() * net.config.diffusion_steps).long()
    added = gaussian(drawn, SENSORS, WINDOW)
    total = torch.zeros((), dtype=torch.float64)
    for b in range(2):
        k, seen = int(steps[b]), given.visible[b] & ~given.hidden[b]
        kept = net.process.kept[k]
        noisy = kept**0.5 * given.values[b] + (1 - kept) ** 0.5 * added[b]
        side = torch.stack(
            [
                torch.stack(
                    [
                        torch.cat(
                            (net.side_information.steps[t], net.side_information.sensor[i], seen[i, t][None].double())
                        )
                        for t in range(WINDOW)
                    ]
                )
                for i in range(SENSORS)
            ]
        )

        def mix(number: int, h: dict[tuple[int, int], Tensor]) -> dict[tuple[int, int], Tensor]:
            layer: Any = net.layers[number]
            for i in range(SENSORS):
                along = [h[i, t] for t in range(WINDOW)]
                h |= {(i, t): x for t, x in enumerate(literal_transformer(layer.over_steps, along, along))}
            for t in range(WINDOW):
                along = [h[i, t] for i in range(SENSORS)]
                h |= {(i, t): x for i, x in enumerate(literal_transformer(layer.over_sensors, along, along))}
            return h

        predicted = literal_noise(net, noisy, given.values[b] * seen, side, seen, k, mix)
        total = total + ((predicted - added[b]) ** 2)[given.hidden[b]].sum()
    return total / given.hidden.sum()


def test_the_loss_and_its_gradients_are_those_of_the_equations() -> None:
    net, given = randomised(network()), example()
    ours = net.loss(given, noise(2), training=TRAINING, temperature=WARM)
    assert ours.rho_mean.shape == (0,)
    expected = literal_loss(net, given)
    torch.testing.assert_close(ours.loss, expected, rtol=1e-6, atol=0)
    parameters = list(net.parameters())
    for mine, theirs in zip(
        torch.autograd.grad(ours.loss, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-7)


def test_an_untrained_network_predicts_next_to_nothing() -> None:
    net, given = network(), example(dtype=torch.float32)
    assert not net.out.weight.any()
    assert net.loss(given, noise(2), training=TRAINING, temperature=WARM).loss > 0.3


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
    """What the network is told beside the noisy values does not change with them."""
    net, given = randomised(network()), example()
    changed = torch.where(given.hidden, 99.0, given.values)
    one, other = (net.condition(values, given.seen, None, Noise.silent()) for values in (given.values, changed))
    assert torch.equal(one.beside, other.beside)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(one.sides, other.sides, strict=True))


def test_an_imputation_repeats_itself_and_keeps_visible_values() -> None:
    net, given = randomised(network()).float(), example(dtype=torch.float32)
    filled = net.impute(given.values, given.visible, CLOCK)
    assert torch.equal(filled, net.impute(given.values, given.visible, CLOCK))
    assert torch.equal(filled[given.visible], given.values[given.visible])
    assert not filled.requires_grad


@pytest.mark.parametrize("sampling_steps", [None, 3])
def test_empty_windows_and_dead_sensors_give_numbers(sampling_steps: int | None) -> None:
    net = network(SMALL.replace(sampling_steps=sampling_steps))
    values, visible = torch.zeros(2, SENSORS, WINDOW), torch.zeros(2, SENSORS, WINDOW, dtype=torch.bool)
    visible[1, 0] = True
    assert net.impute(values, visible, CLOCK).isfinite().all()
    nothing = Example(values, visible, torch.zeros_like(visible), CLOCK, torch.ones(()))
    outcome = net.loss(nothing, noise(2), training=TRAINING, temperature=WARM)
    outcome.loss.backward()
    assert outcome.loss == 0


def test_some_of_the_sensors_can_be_trained_on_and_shorter_windows_filled() -> None:
    net, given = network(), example(dtype=torch.float32)
    some = torch.tensor([2, 0])
    part = Example(given.values[:, some], given.visible[:, some], given.hidden[:, some], CLOCK, given.divisor, some)
    assert net.loss(part, noise(2), training=TRAINING, temperature=WARM).loss.isfinite()
    assert net.impute(given.values[..., :2], given.visible[..., :2], CLOCK[:, :2]).shape == (2, SENSORS, 2)


def test_mixed_precision_gives_nearly_the_same_loss() -> None:
    net, given = randomised(network()).float(), example(dtype=torch.float32)
    plain = net.loss(given, noise(2), training=TRAINING, temperature=WARM).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = net.loss(given, noise(2), training=TRAINING, temperature=WARM).loss
    torch.testing.assert_close(mixed, plain, rtol=0.05, atol=0)


def test_it_learns_that_one_sensor_follows_another() -> None:
    """Sensor 1 is minus sensor 0, and is hidden: a linear relation that samples must show."""
    net = network(SMALL.replace(layers=1, width=16, diffusion_steps=10, samples=9))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(0)
    hidden = torch.zeros(16, SENSORS, WINDOW, dtype=torch.bool)
    hidden[:, 1] = True
    losses: list[float] = []
    for step in range(80):
        level = torch.randn(16, 1, WINDOW, generator=generator)
        values = torch.cat((level, -level, torch.zeros_like(level)), dim=1)
        given = Example(values, torch.ones_like(hidden), hidden, torch.zeros(16, WINDOW, 2), hidden.sum())
        loss = net.loss(given, noise(16, seed=step), training=TRAINING, temperature=WARM).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:20])
    filled = net.impute(values[:8], ~hidden[:8], torch.zeros(8, WINDOW, 2))
    error = (filled - values[:8])[hidden[:8]].abs().mean()
    assert float(error) < 0.5 * float(values[:8, 1].abs().mean())


def test_it_fits_fills_saves_and_loads(six_sensors: Simulation, tmp_path: Path) -> None:
    imputer = CsdiImputer(
        device="cpu", epochs=2, batches_per_epoch=5, batch_size=4, window=12, validation_cells=2000, **SIZES
    )
    filled = imputer.fit(six_sensors.table, sensors=six_sensors.sensors).impute(six_sensors.table)
    assert not filled.isna().any().any()
    observed = six_sensors.table.notna()
    assert (filled.where(observed) == six_sensors.table.where(observed)).to_numpy()[observed.to_numpy()].all()
    loaded = CsdiImputer.from_pretrained(imputer.save_pretrained(tmp_path / "model"), device="cpu")
    assert loaded.config == imputer.config
    np.testing.assert_array_equal(loaded.impute(six_sensors.table), filled)


def test_it_runs_on_a_benchmark_in_patches_of_sensors(small_benchmark: Benchmark) -> None:
    imputer = CsdiImputer(
        device="cpu", epochs=1, batches_per_epoch=3, batch_size=4, window=12, sensors_per_batch=4, **SIZES
    )
    imputer.fit_benchmark(small_benchmark)
    assert all(np.isfinite(estimate).all() for _, estimate in imputer.impute_windows(small_benchmark))


def test_the_recipe_is_the_published_one() -> None:
    imputer = CsdiImputer()
    config, training = imputer.config, imputer.training
    assert (config.width, config.layers, config.heads, config.diffusion_steps) == (64, 4, 8, 50)
    assert (config.beta_first, config.beta_last, config.samples, config.scaling) == (1e-4, 0.5, 100, "sensor")
    assert (training.batch_size, training.learning_rate, training.weight_decay) == (16, 1e-3, 1e-6)
    assert training.epochs == training.patience == 200
