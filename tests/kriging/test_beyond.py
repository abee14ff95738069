"""Kriging that looks at what lies on either side of its window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from casper.baselines.kriging import KrigingImputer
from casper.config import PRESETS, benchmark_settings
from casper.datasets import NAMES
from casper.kriging import KRIGING_TRAINING, KrigingConfig, KrigingNetwork
from casper.kriging.beyond import SIZES, blocks_around, means_of_blocks, reach_of
from casper.masks import mostly_long_gaps
from casper.train import TrainingData
from casper.training.companion import fit_correction
from casper.windows import Series, Window

SENSORS, STEPS, CLOCK = 3, 12, 2
REACH = reach_of(blocks_around(STEPS))


def series(steps: int = 2 * REACH + 2 * STEPS, *, seed: int = 0) -> Series:
    random = np.random.default_rng(seed)
    common = random.standard_normal(steps).cumsum()[:, None] / 5
    values = (common + 0.3 * random.standard_normal((steps, SENSORS))).astype(np.float32)
    clock = np.stack((np.sin(np.arange(steps)), np.cos(np.arange(steps))), axis=1).astype(np.float32)
    return Series.build(values, random.random(values.shape) < 0.8, clock, torch.device("cpu"))


def network(table: Series, **settings: Any) -> KrigingNetwork:
    net = KrigingNetwork(KrigingConfig(window=STEPS, beyond=True, **settings), sensors=SENSORS, clock=CLOCK)
    net.read_table(table.values, table.visible, table.clock)
    return net.eval()


def middle(table: Series, *, reach: int = REACH) -> Window:
    return table.window(torch.tensor([REACH]), STEPS, reach=reach)


# ---------------------------------------------------------------------- blocks and their means


def test_blocks_lie_side_by_side_from_the_window_outwards_on_both_sides() -> None:
    before, after = blocks_around(36).split(len(SIZES))
    assert before.tolist() == [[-12, 0], [-60, -12], [-252, -60]]
    assert after.tolist() == [[36, 48], [48, 96], [96, 288]]
    assert reach_of(blocks_around(36)) == 252


def test_even_the_smallest_window_has_blocks_of_a_step() -> None:
    blocks = blocks_around(1)
    assert bool((blocks[:, 1] > blocks[:, 0]).all())


def test_a_blocks_mean_is_of_its_visible_steps_and_knows_how_many_they_are() -> None:
    blocks = blocks_around(STEPS)
    length = STEPS + 2 * REACH
    rest = torch.randn(2, SENSORS, length, generator=torch.Generator().manual_seed(0))
    visible = torch.rand(2, SENSORS, length, generator=torch.Generator().manual_seed(1)) < 0.5
    visible[1, 0, : REACH - 4] = False
    means = means_of_blocks(rest, visible, blocks)
    for number, (first, end) in enumerate((blocks + REACH).tolist()):
        part, seen = rest[..., first:end], visible[..., first:end]
        torch.testing.assert_close(means.seen[..., number], seen.sum(-1).float())
        expected = (part * seen).sum(-1) / seen.sum(-1).clamp_min(1)
        torch.testing.assert_close(means.mean[..., number], expected, atol=1e-5, rtol=1e-4)
    assert means.seen[1, 0, 1] == 0
    assert means.mean[1, 0, 1] == 0


# ---------------------------------------------------------------------- the field


@torch.no_grad()
def test_the_covariance_with_a_block_is_the_mean_of_those_with_its_steps() -> None:
    net = network(series())
    net.delay.zero_()
    count = SENSORS * STEPS
    whole = net._covariance(torch.arange(SENSORS), STEPS)
    assert whole.shape == (count + SENSORS * len(net.blocks), count + SENSORS * len(net.blocks))
    length = STEPS + 2 * REACH
    net.looks_beyond.fill_(False)
    steps = net._covariance(torch.arange(SENSORS), length).reshape(SENSORS, length, SENSORS, length)
    inner = slice(REACH, REACH + STEPS)
    to_cells = whole[:count, count:].unflatten(0, (SENSORS, STEPS)).unflatten(-1, (SENSORS, -1))
    among = whole[count:, count:].unflatten(0, (SENSORS, -1)).unflatten(-1, (SENSORS, -1))
    torch.testing.assert_close(whole[:count, :count], steps[:, inner][:, :, :, inner].reshape(count, count))
    for b, (first, end) in enumerate((net.blocks + REACH).tolist()):
        torch.testing.assert_close(to_cells[..., b], steps[:, inner, :, first:end].mean(-1), atol=0.03, rtol=0.03)
        for c, (begin, stop) in enumerate((net.blocks + REACH).tolist()):
            mean = steps[:, first:end][:, :, :, begin:stop].mean((1, 3))
            torch.testing.assert_close(among[:, b, :, c], mean, atol=1e-4, rtol=1e-3)


@torch.no_grad()
def test_covariances_with_blocks_are_covariances() -> None:
    net = network(series())
    net.delay.zero_()
    whole = net._covariance(torch.arange(SENSORS), STEPS).double()
    torch.testing.assert_close(whole, whole.T)
    assert float(torch.linalg.eigvalsh(whole).min()) > -1e-4


@torch.no_grad()
def test_a_sensor_that_is_silent_in_the_window_is_filled_by_what_it_read_before_and_after() -> None:
    table = series()
    table.visible[REACH : REACH + STEPS, 0] = False
    net, raised = network(table), series()
    raised.visible.copy_(table.visible)
    raised.values[:, 0] += 2.0
    change = net.impute_window(middle(raised)) - net.impute_window(middle(table))
    assert float(change[0, 0].mean()) > 0.3, "it was higher on both sides of the gap"
    alone = net.impute_window(middle(raised, reach=0)) - net.impute_window(middle(table, reach=0))
    assert float(alone.abs().max()) == 0, "by itself the window knows nothing of it"


@torch.no_grad()
def test_what_is_not_visible_beyond_the_window_is_not_read() -> None:
    table, other = series(), series()
    net = network(table)
    other.values[~other.visible] += 100.0
    torch.testing.assert_close(net.impute_window(middle(other)), net.impute_window(middle(table)))


@torch.no_grad()
def test_at_a_tables_end_what_is_missing_beyond_it_does_not_matter() -> None:
    table = series()
    net = network(table)
    first = table.window(torch.tensor([0]), STEPS, reach=REACH)
    assert first.wide is not None
    assert not first.wide.visible[..., :REACH].any()
    assert bool(net.impute_window(first).isfinite().all())


def test_a_network_that_does_not_look_beyond_has_neither_blocks_nor_reach() -> None:
    net = KrigingNetwork(KrigingConfig(window=STEPS), sensors=SENSORS, clock=CLOCK)
    assert net.reach == net.reach_in_training == 0
    assert "looks_beyond" not in net.state_dict()


# ---------------------------------------------------------------------- learning


def test_blocks_are_dropped_where_held_back_readings_are_filled_better_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = series(600)
    net = network(table, correction=False)
    steps = len(table.values)
    data = TrainingData(
        series=table,
        truth=table.values,
        scored=~table.visible,
        train_starts=torch.arange(steps - STEPS),
        validation_starts=torch.arange(0, steps - STEPS, STEPS),
        gaps=~table.visible,
        gap_starts=torch.arange(steps - STEPS),
        deviation=torch.ones(SENSORS),
        neighbour_index=torch.zeros(SENSORS, 1, dtype=torch.long),
        neighbour_present=torch.ones(SENSORS, 1, dtype=torch.bool),
        fingerprint="",
    )
    left = fit_correction(net, data, KRIGING_TRAINING, before=1e-6, seed=0, progress=False)
    assert net.reach > 0, "nothing is better than an error of nearly 0"
    assert left == pytest.approx(1e-6)
    left = fit_correction(net, data, KRIGING_TRAINING, before=1e6, seed=0, progress=False)
    assert net.reach == 0
    assert left < 1e6


def drifting(*, steps: int = 900, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Six sensors, one of which stands apart from the others for weeks, and is silent in between."""
    random = np.random.default_rng(seed)
    common = np.convolve(random.standard_normal(steps + 11), np.ones(12) / 4, mode="valid")[:, None]
    apart = np.repeat(random.standard_normal((steps // 150, 6)) * 3, 150, axis=0)
    values = common + apart + 0.2 * random.standard_normal((steps, 6))
    hidden = np.zeros_like(values, dtype=bool)
    for sensor in range(6):
        begin = 40 + 150 * sensor
        hidden[begin : begin + 60, sensor] = True
    times = pd.date_range("2024-01-01", periods=steps, freq="h")
    return pd.DataFrame(values, times, [f"s{number}" for number in range(6)]), hidden


def test_long_gaps_of_sensors_that_drift_are_filled_better_with_what_lies_beyond_the_window() -> None:
    table, hidden = drifting()
    off: list[float] = []
    for beyond in (False, True):
        model = KrigingImputer(seed=0, window=12, epochs=2, batches_per_epoch=30, correction=False, beyond=beyond)
        model.fit(table.mask(hidden))
        assert model.network is not None
        assert (model.network.reach > 0) == beyond
        off.append(float(np.abs(model.impute(table.mask(hidden)) - table).to_numpy()[hidden].mean()))
    assert off[1] < 0.8 * off[0]


def test_a_model_that_looks_beyond_its_window_is_the_same_after_it_was_saved(tmp_path: Any) -> None:
    table, hidden = drifting()
    model = KrigingImputer(seed=0, window=12, epochs=1, batches_per_epoch=10, correction=False)
    model.fit(table.mask(hidden))
    model.save_pretrained(tmp_path / "model")
    again = KrigingImputer.from_pretrained(tmp_path / "model", device="cpu")
    assert again.network is not None
    assert model.network is not None
    assert again.network.reach == model.network.reach
    pd.testing.assert_frame_equal(again.impute(table.mask(hidden)), model.impute(table.mask(hidden)))


@pytest.mark.parametrize("name", NAMES)
def test_benchmarks_are_filled_from_the_protocols_window_alone(name: str) -> None:
    for preset_name, chosen in PRESETS.items():
        settings = {**chosen.model.to_dict(), **benchmark_settings(preset_name, name)}
        assert not settings["kriging_beyond"]
    settings = {**KrigingImputer.recipe.model.to_dict(), **KrigingImputer.for_benchmarks[name]}
    assert not settings["beyond"]


# ---------------------------------------------------------------------- whether to look beyond


def with_gaps_of(length: int, *, share: float = 0.2, steps: int = 400) -> np.ndarray:
    observed = np.ones((steps, SENSORS), dtype=bool)
    for begin in range(0, steps - length, round(length / share)):
        observed[begin : begin + length, 0] = False
    return observed


def test_gaps_are_mostly_long_where_most_holes_lie_in_long_ones() -> None:
    assert mostly_long_gaps(with_gaps_of(25), 24)
    assert not mostly_long_gaps(with_gaps_of(24), 24)
    assert not mostly_long_gaps(np.ones((50, SENSORS), dtype=bool), 24), "nothing is missing"


def test_a_sensor_that_never_reports_is_no_long_gap() -> None:
    observed = with_gaps_of(5)
    observed[:, 1] = False
    assert not mostly_long_gaps(observed, 24)


@pytest.mark.parametrize(
    ("length", "asked", "beyond"), [(60, {}, True), (60, {"beyond": False}, False), (5, {}, False)]
)
def test_a_table_decides_whether_kriging_looks_beyond_its_window_unless_it_was_asked_for(
    length: int, asked: dict[str, bool], beyond: bool
) -> None:
    table, _ = drifting(steps=450)
    observed = np.column_stack([with_gaps_of(length, steps=450)[:, 0]] * 6)
    model = KrigingImputer(seed=0, window=12, epochs=1, batches_per_epoch=3, correction=False, **asked)
    model.fit(table.where(np.roll(observed, 20, axis=0)))
    assert model.config.beyond is beyond
