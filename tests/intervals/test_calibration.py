"""Intervals of the share asked for, wide where estimates are poor, narrow where they are good."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from casper import InputError
from casper.intervals import calibration
from casper.intervals.calibration import FEWEST_CELLS, Calibration, HeldBack
from casper.intervals.cell_facts import FACTS, Cells, beside_a_reading

SENSORS = 5


def cells(count: int = 20_000, seed: int = 0) -> HeldBack:
    """Errors grow with the first fact and with the level; the others say nothing; sensor 4 is worse than most."""
    random = np.random.default_rng(seed)
    facts = random.normal(size=(count, len(FACTS))).astype(np.float32)
    level = random.gamma(2.0, size=count).astype(np.float32)
    sensor = random.integers(SENSORS, size=count)
    gap = random.choice([1, 3, 12, 60], size=count)
    scale = np.exp(0.5 * facts[:, 0] + 0.3 * np.minimum(level, 4) + 0.8 * (sensor == 4))
    error = (random.exponential(size=count) - np.log(2)) * scale  # skewed: more to be expected above than below
    return HeldBack(facts, level, np.arange(count), sensor, gap, 1 + gap // 2, error.astype(np.float32))


def bounds(fitted: Calibration, other: HeldBack, *shares: float) -> np.ndarray:
    scale = fitted.scale(other.facts, other.level, other.sensor)
    return fitted.bounds(
        shares, scale, Cells(other.step, other.sensor, other.facts, other.gap, other.away), other.level
    )


def inside(fitted: Calibration, other: HeldBack, share: float) -> np.ndarray:
    ((low, high),) = bounds(fitted, other, share)
    return (low <= other.error) & (other.error <= high)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_intervals_hold_the_share_of_new_errors_that_was_asked_for(share: float) -> None:
    fitted, new = Calibration.fit(cells(), sensors=SENSORS), cells(seed=1)
    held = inside(fitted, new, share)
    assert held.mean() == pytest.approx(share, abs=0.01)
    for gap in (1, 3, 12, 60):
        assert held[new.gap == gap].mean() == pytest.approx(share, abs=0.02)
    for sensor in range(SENSORS):
        assert held[new.sensor == sensor].mean() == pytest.approx(share, abs=0.04)
    high = new.level > np.quantile(new.level, 0.8)
    assert held[high].mean() == pytest.approx(share, abs=0.03)


def test_the_scale_follows_what_makes_cells_hard() -> None:
    fitted = Calibration.fit(cells(), sensors=SENSORS)
    facts = np.zeros((4, len(FACTS)), dtype=np.float32)
    facts[:2, 0] = facts[2:, 1] = [1, -1]
    scale = fitted.scale(facts, np.full(4, 2.0, np.float32), np.zeros(4, dtype=np.int64))
    assert scale[0] / scale[1] == pytest.approx(np.e, rel=0.05)
    assert scale[2] / scale[3] == pytest.approx(1.0, rel=0.05)
    of_sensor = np.exp(fitted.of_sensor)
    assert of_sensor[4] / of_sensor[:4].mean() == pytest.approx(np.exp(0.8), rel=0.1)


def test_few_cells_do_not_flatter_themselves() -> None:
    """The scale is fitted to the very cells whose errors it divides: without other times to judge by, intervals of new
    cells would hold too few."""
    held = [
        inside(Calibration.fit(cells(300, seed), sensors=SENSORS), cells(5000, 100 + seed), 0.9).mean()
        for seed in range(12)
    ]
    assert np.mean(held) == pytest.approx(0.9, abs=0.01)


def test_skewed_errors_give_skewed_intervals() -> None:
    fitted = Calibration.fit(cells(), sensors=SENSORS)
    ((low, high),) = bounds(fitted, cells(200, seed=2), 0.9)
    assert (high > 2 * -low).all()


def test_errors_that_differ_in_shape_have_intervals_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some cells are mostly right and sometimes far off; their mean size alone would mislead."""

    def of_two_shapes(seed: int) -> HeldBack:
        made, random = cells(20_000, seed), np.random.default_rng(seed + 50)
        rarely = made.facts[:, 2] > 0
        made.facts[:, 2] = np.where(rarely, 1.0, -1.0)
        seldom = random.normal(size=len(rarely)) * np.where(random.random(len(rarely)) < 0.2, 3.0, 0.1)
        error = np.where(rarely, seldom, random.normal(size=len(rarely)) * 0.78)
        return replace(made, error=error.astype(np.float32))

    new = of_two_shapes(1)
    rarely = new.facts[:, 2] > 0
    leaning = Calibration.fit(of_two_shapes(0), sensors=SENSORS)
    monkeypatch.setattr(calibration, "_FEWEST_TO_LEAN", 10**9)
    upright = Calibration.fit(of_two_shapes(0), sensors=SENSORS)
    for share in (0.5, 0.9):
        for kind in (rarely, ~rarely):
            assert inside(leaning, new, share)[kind].mean() == pytest.approx(share, abs=0.02)
        assert abs(inside(upright, new, share)[rarely].mean() - share) > 0.03


def test_wider_shares_have_wider_intervals_around_the_estimate() -> None:
    fitted, new = Calibration.fit(cells(), sensors=SENSORS), cells(200, seed=2)
    ends = bounds(fitted, new, 0.1, 0.5, 0.9, 0.95, 0.98)
    for (low, high), (lower, higher) in pairwise(ends):
        assert (lower <= low).all()
        assert (low <= 0).all()
        assert (high >= 0).all()
        assert (high <= higher).all()


def test_few_cells_share_their_quantiles() -> None:
    few = Calibration.fit(cells(120), sensors=SENSORS)
    assert (few.quantiles == few.quantiles[0]).all()
    assert inside(few, cells(seed=3), 0.9).mean() == pytest.approx(0.9, abs=0.08)
    assert not (Calibration.fit(cells(), sensors=SENSORS).quantiles[0] == few.quantiles[0]).all()


def test_what_is_not_known_of_a_cell_counts_as_average() -> None:
    fitted = Calibration.fit(cells(), sensors=SENSORS)
    facts = np.stack([np.full(len(FACTS), np.nan), fitted.centre]).astype(np.float32)
    scale = fitted.scale(facts, np.ones(2, np.float32), np.zeros(2, dtype=np.int64))
    assert scale[0] == pytest.approx(scale[1])


def test_too_few_cells_are_refused_with_a_remedy() -> None:
    with pytest.raises(InputError, match="validation_share"):
        Calibration.fit(cells(FEWEST_CELLS - 1), sensors=SENSORS)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, 90])
def test_shares_that_mean_nothing_are_refused(share: float) -> None:
    fitted = Calibration.fit(cells(500), sensors=SENSORS)
    with pytest.raises(InputError, match=r"such as 0\.9"):
        bounds(fitted, cells(1), share)


def test_it_goes_through_tensors_and_comes_back() -> None:
    fitted, new = Calibration.fit(cells(), sensors=SENSORS), cells(50, seed=4)
    back = Calibration.from_tensors(fitted.to_tensors())
    assert back is not None
    np.testing.assert_array_equal(
        back.scale(new.facts, new.level, new.sensor), fitted.scale(new.facts, new.level, new.sensor)
    )
    np.testing.assert_array_equal(inside(back, new, 0.5), inside(fitted, new, 0.5))


def test_the_ends_of_long_gaps_are_judged_on_their_own() -> None:
    """What a failing sensor measures at the end of a gap is odd, in a way that no line through facts tells."""
    fitted, new = (with_odd_ends(seed) for seed in (0, 1))
    held = inside(Calibration.fit(fitted, sensors=SENSORS), new, 0.5)
    at_end = beside_a_reading(new.facts) & (new.gap > 6)
    for gap in (12, 60):
        assert held[at_end & (new.gap == gap)].mean() == pytest.approx(0.5, abs=0.06)
        assert held[~at_end & (new.gap == gap)].mean() == pytest.approx(0.5, abs=0.03)


def with_odd_ends(seed: int) -> HeldBack:
    random = np.random.default_rng(seed)
    made = cells(seed=seed)
    made.facts[:, 0] = np.log1p(random.choice([1, 2, 3, 8], size=len(made.gap), p=[0.1, 0.3, 0.3, 0.3]))
    at_end = beside_a_reading(made.facts) & (made.gap > 6)
    odd = at_end & (random.random(len(at_end)) < 0.5)  # half of them are far off, the others as usual
    return replace(made, error=np.where(odd, made.error + np.float32(20), made.error))


def test_error_bars_of_a_version_that_did_not_set_the_ends_of_gaps_apart_are_read() -> None:
    fitted = Calibration.fit(cells(), sensors=SENSORS).to_tensors()
    older = {**fitted, "quantiles": fitted["quantiles"][:20]}
    back = Calibration.from_tensors(older)
    assert back is not None
    assert back.quantiles.shape == fitted["quantiles"].shape
    np.testing.assert_array_equal(back.quantiles[20:], fitted["quantiles"][10:20])


def test_error_bars_of_a_version_without_leaning_quantiles_are_read() -> None:
    fitted = Calibration.fit(cells(500), sensors=SENSORS)  # too few to lean
    assert not fitted.leaning.any()
    older = {name: one for name, one in fitted.to_tensors().items() if name not in ("middle", "leaning")}
    back = Calibration.from_tensors(older)
    assert back is not None
    new = cells(50, seed=4)
    np.testing.assert_array_equal(bounds(back, new, 0.5, 0.9), bounds(fitted, new, 0.5, 0.9))


def test_perfect_estimates_do_not_break_it() -> None:
    perfect = cells(100)
    fitted = Calibration.fit(replace(perfect, error=np.zeros(100, np.float32)), sensors=SENSORS)
    assert np.isfinite(fitted.scale(perfect.facts, perfect.level, perfect.sensor)).all()


def test_what_an_older_version_wrote_is_not_read() -> None:
    tensors = Calibration.fit(cells(500), sensors=SENSORS).to_tensors()
    assert Calibration.from_tensors({}) is None
    assert Calibration.from_tensors({**tensors, "centre": tensors["centre"][:-1]}) is None
    assert Calibration.from_tensors({name: one for name, one in tensors.items() if name != "borders"}) is None
