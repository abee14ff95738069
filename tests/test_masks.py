from __future__ import annotations

import hashlib
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from casper.errors import InputError
from casper.masks import (
    LONG_GAP,
    beside_long_gaps,
    draw_faults_and_noise,
    gap_lengths,
    hide_blocks,
    hide_like_gaps,
    hide_points,
    hide_sensors,
    lengthen_gaps,
    next_month_pattern,
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def runs_of(column: NDArray[np.bool_]) -> list[int]:
    """Lengths of the runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], column.astype(np.int8), [0]])))
    return (edges[1::2] - edges[::2]).tolist()


# ---------------------------------------------------------------- drawn faults


@pytest.mark.parametrize(
    ("shape", "seed", "p_fault", "p_noise", "cells", "digest"),
    [
        ((34272, 207), 9101112, 0.0, 0.25, 1773799, "28570ecb81582108ec29f7f2e38cc2edbdd1c57d466ae4f81afd5748031d7688"),
        (
            (34272, 207),
            9101112,
            0.0015,
            0.05,
            648272,
            "43abe9315f41e77c05f9087534295d5d743c4a83d98fb044d4b64c08e30a3e0e",
        ),
        ((52128, 325), 56789, 0.0, 0.25, 4235930, "966be4e5084bffd8ebc0e7254fbd7f477b5d3519221ef452575479d66e10e54e"),
        (
            (52128, 325),
            56789,
            0.0015,
            0.05,
            1537955,
            "871e835207a7fdf59b7ec0540c0fc004bc157bdbf599edcb0d66c10677c038ba",
        ),
    ],
    ids=["METR-LA point", "METR-LA block", "PEMS-BAY point", "PEMS-BAY block"],
)
def test_drawn_masks_are_the_published_ones(
    shape: tuple[int, int], seed: int, p_fault: float, p_noise: float, cells: int, digest: str
):
    drawn = draw_faults_and_noise(shape, p_fault=p_fault, p_noise=p_noise, seed=seed)
    assert int(drawn.sum()) == cells
    assert hashlib.sha256(drawn.astype(np.uint8).tobytes()).hexdigest() == digest


def test_all_faults_of_a_sensor_share_one_length():
    # So rare that faults of a sensor hardly ever overlap; those cut off by the end of the table are left out.
    drawn = draw_faults_and_noise((40_000, 30), p_fault=1e-4, p_noise=0.0, shortest_fault=5, longest_fault=9, seed=3)
    lengths = [runs_of(column & ~column[-1]) for column in drawn.T]
    usual = [max(set(of_sensor), key=of_sensor.count) for of_sensor in lengths if of_sensor]
    assert set(usual) == {5, 6, 7, 8, 9}
    overlapping = sum(length != same for of_sensor, same in zip(lengths, usual, strict=True) for length in of_sensor)
    assert overlapping <= 2


def test_a_fault_longer_than_the_table_is_clipped():
    drawn = draw_faults_and_noise((6, 2), p_fault=0.5, p_noise=0.0, shortest_fault=20, longest_fault=20, seed=0)
    for column in drawn.T:
        first = int(np.argmax(column))
        assert column[first:].all()


# ---------------------------------------------------------------- the next month's gaps


def test_next_month_rule_gives_the_known_counts_on_aqi36(shared_data: Path):
    table = pd.read_parquet(shared_data / "aqi36.parquet")
    published = pd.read_parquet(shared_data / "aqi36_eval_mask.parquet").to_numpy(dtype=bool)
    assert isinstance(table.index, pd.DatetimeIndex)
    derived = next_month_pattern(table.notna().to_numpy(), table.index)
    assert int(derived.sum()) == 35702
    assert int((derived & published).sum()) == 35648


def test_gaps_come_from_the_next_month_and_days_without_counterpart_stay_visible():
    times = pd.date_range("2014-01-01", "2014-03-31 23:00", freq="h")
    observed = np.ones((len(times), 1), dtype=bool)
    gaps = {"2014-02-10 05:00": "2014-01-10 05:00", "2014-03-30 07:00": None, "2014-01-31 09:00": "2014-03-31 09:00"}
    for gap in gaps:
        observed[times.get_loc(gap)] = False
    hidden = next_month_pattern(observed, times)
    expected = sorted(pd.Timestamp(stamp) for stamp in gaps.values() if stamp is not None)
    assert list(times[hidden[:, 0]]) == expected  # 30 March would land on 28 February, where 28 March came first


# ---------------------------------------------------------------- simple draws


def test_points_are_hidden_one_by_one_and_only_where_observed():
    observed = rng().random((500, 40)) < 0.7
    hidden = hide_points(observed, share=0.2, rng=rng(1))
    assert not (hidden & ~observed).any()
    assert hidden.sum() / observed.sum() == pytest.approx(0.2, abs=0.02)
    np.testing.assert_array_equal(hidden, hide_points(observed, share=0.2, rng=rng(1)))


def test_blocks_are_runs_of_the_wanted_lengths_and_share():
    observed = np.ones((5000, 20), dtype=bool)
    hidden = hide_blocks(observed, share=0.02, shortest=10, longest=20, rng=rng(2))
    lengths = np.concatenate([runs_of(column[40:-40]) for column in hidden.T])
    assert np.mean((lengths >= 10) & (lengths <= 20)) > 0.8  # the others overlap or touch the cut
    assert hide_blocks(observed, share=0.3, rng=rng(3)).mean() == pytest.approx(0.3, abs=0.03)


def test_the_first_steps_are_hidden_as_often_as_the_others():
    hidden = hide_blocks(np.ones((100, 4000), dtype=bool), share=0.3, shortest=20, longest=20, rng=rng(4))
    assert hidden[0].mean() == pytest.approx(hidden[50].mean(), abs=0.04)


def test_whole_sensors_are_hidden_but_never_all_of_them():
    observed = np.ones((10, 5), dtype=bool)
    observed[:, 0] = False
    hidden = hide_sensors(observed, count=2, rng=rng())
    assert hidden.all(axis=0).sum() == 2
    assert not hidden[:, 0].any()
    with pytest.raises(InputError, match="cannot hide 4 of 4 reporting sensors"):
        hide_sensors(observed, count=4, rng=rng())


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_an_impossible_share_is_refused(share: float):
    with pytest.raises(InputError, match="share to hide"):
        hide_points(np.ones((3, 3), dtype=bool), share=share, rng=rng())


def test_impossible_block_lengths_are_refused():
    with pytest.raises(InputError, match="blocks of 5 to 4 steps"):
        hide_blocks(np.ones((9, 3), dtype=bool), share=0.1, shortest=5, longest=4, rng=rng())


# ---------------------------------------------------------------- gaps like the table's own


def with_gaps(kind: str) -> NDArray[np.bool_]:
    observed = np.ones((2000, 25), dtype=bool)
    if kind == "many gaps":
        observed = rng(5).random(observed.shape) < 0.4
    elif kind == "few gaps":
        observed &= ~hide_blocks(observed, share=0.03, rng=rng(6))
    elif kind == "outages of the whole network":
        observed[300:340] = False
        observed[1500:1700] = False
    elif kind == "sensors that never report":
        observed[:, :10] = False
    elif kind == "sensors that start late":
        observed[:1200, :8] = False
    return observed


KINDS = [
    "no gaps",
    "few gaps",
    "many gaps",
    "outages of the whole network",
    "sensors that never report",
    "sensors that start late",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.05, 0.2])
def test_about_the_wanted_share_is_hidden_whatever_the_gaps(kind: str, share: float):
    observed = with_gaps(kind)
    hidden = hide_like_gaps(observed, share=share, rng=rng(7))
    assert not (hidden & ~observed).any()
    assert hidden.sum() / observed.sum() == pytest.approx(share, abs=0.015)
    assert ((observed & ~hidden).any(axis=0) == observed.any(axis=0)).all()


def test_hidden_gaps_are_as_long_as_the_tables_own():
    observed = np.ones((5000, 30), dtype=bool)
    observed &= ~hide_blocks(observed, share=0.1, shortest=30, longest=30, rng=rng(8))
    hidden = hide_like_gaps(observed, share=0.1, rng=rng(9))
    lengths = np.concatenate([runs_of(column) for column in hidden.T])
    own = hidden.sum()
    assert lengths[lengths >= 15].sum() / own > 0.8


def test_short_gaps_long_ones_and_outages_are_hidden_in_the_tables_own_proportions():
    observed = np.ones((6000, 30), dtype=bool)
    observed &= ~hide_points(observed, share=0.04, rng=rng(1))
    observed &= ~hide_blocks(observed, share=0.06, shortest=60, longest=90, rng=rng(2))
    for first in rng(3).integers(0, 5980, size=20):
        observed[first : first + 15] = False

    def kinds(visible: NDArray[np.bool_], cells: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Shares of these cells in gaps of one step, in gaps of more than 40, and in outages."""
        length = gap_lengths(visible)[cells]
        return np.array([(length == 1).mean(), (length > 40).mean(), cells[~visible.any(axis=1)].sum() / cells.sum()])

    draws = [hide_like_gaps(observed, share=0.05, rng=rng(seed)) for seed in range(8)]
    found = np.mean([kinds(observed & ~hidden, hidden) for hidden in draws], axis=0)
    np.testing.assert_allclose(found, kinds(observed, ~observed), atol=0.1)


def test_no_single_time_gives_all_that_is_hidden():
    observed = with_gaps("outages of the whole network")
    shares = []
    for seed in range(5):
        hidden = hide_like_gaps(observed, share=0.1, rng=rng(seed))
        parts = [part.sum() for part in np.array_split(hidden, 10)]
        shares.append(max(parts) / sum(parts))
    assert np.mean(shares) < 0.5


def test_an_outage_of_the_whole_network_is_copied_for_all_sensors_at_once():
    hidden = hide_like_gaps(with_gaps("outages of the whole network"), share=0.1, rng=rng(10))
    assert hidden.all(axis=1).any()


def test_a_table_without_gaps_gets_both_points_and_blocks():
    hidden = hide_like_gaps(np.ones((2000, 25), dtype=bool), share=0.1, rng=rng(11))
    lengths = np.concatenate([runs_of(column) for column in hidden.T])
    assert (lengths == 1).any()
    assert (lengths >= 10).any()


def test_the_same_seed_hides_the_same_cells():
    observed = with_gaps("many gaps")
    first, second = (hide_like_gaps(observed, share=0.1, rng=rng(12)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 60), st.integers(1, 5), st.floats(0, 1), st.floats(0, 0.99), st.integers(0, 1000))
def test_every_sensor_keeps_something_to_see_in_any_table(
    steps: int, sensors: int, reporting: float, share: float, seed: int
):
    observed = rng(seed).random((steps, sensors)) < reporting
    hidden = hide_like_gaps(observed, share=share, rng=rng(seed))
    assert not (hidden & ~observed).any()
    assert ((observed & ~hidden).any(axis=0) == observed.any(axis=0)).all()


def test_a_large_table_takes_seconds_not_minutes():
    observed = rng().random((20_000, 400), dtype=np.float32) < 0.9
    before = time.perf_counter()
    hide_like_gaps(observed, share=0.1, rng=rng())
    assert time.perf_counter() - before < 5


# ---- gaps made longer


def with_long_gaps(sensors: int = 12) -> NDArray[np.bool_]:
    """Outages of 3 to 40 steps here and there, and points; the last sensor reads but now and then."""
    observed = rng(20).random((3000, sensors)) > 0.1
    observed &= ~hide_blocks(np.ones_like(observed), share=0.2, shortest=3, longest=40, rng=rng(21))
    observed[:, -1] = np.arange(3000) % 20 == 0
    return observed


def test_only_what_is_beside_a_long_gap_makes_it_longer() -> None:
    observed = with_long_gaps()
    hidden = lengthen_gaps(observed, share=0.01, rng=rng(22))
    assert hidden.any()
    assert not (hidden & ~observed).any()
    assert not (hidden & ~beside_long_gaps(observed)).any()
    long = gap_lengths(observed) > LONG_GAP
    for step, sensor in np.argwhere(beside_long_gaps(observed)):
        assert long[max(0, step - 1) : step + 2, sensor].any()
    # Every hidden cell continues a gap: no hole between visible cells.
    assert (gap_lengths(observed & ~hidden)[hidden] > LONG_GAP).all()


def test_no_more_is_hidden_beside_gaps_than_the_share_and_a_tenth_of_a_sensor() -> None:
    observed = with_long_gaps()
    hidden = [lengthen_gaps(observed, share=0.005, rng=rng(seed)) for seed in range(40)]
    # Where a gap's neighbours are holes themselves, fewer readings are there to hide.
    assert 0.5 < np.mean([one.sum() for one in hidden]) / (0.005 * observed.sum()) < 1
    generous = [lengthen_gaps(observed, share=0.5, rng=rng(seed)) for seed in range(40)]
    of_a_sensor = np.mean([one.sum(axis=0) for one in generous], axis=0) / observed.sum(axis=0)
    assert (of_a_sensor < 0.11).all()
    assert of_a_sensor[-1] > 0.02, "a sensor that reads now and then takes part"


def test_a_table_without_long_gaps_loses_nothing_beside_them() -> None:
    observed = np.ones((300, 4), dtype=bool)
    observed[10:15, 1] = observed[100:106, 2] = False
    assert not lengthen_gaps(observed, share=0.1, rng=rng()).any()
    assert not beside_long_gaps(observed).any()
    observed[:, 3] = False  # never heard: no end, either
    assert not lengthen_gaps(observed, share=0.1, rng=rng()).any()
