from __future__ import annotations

import numpy as np
import pytest

from casper.graph import SensorGraph
from casper.intervals import cell_facts
from casper.intervals.cell_facts import FACTS, Cells, cells_with_facts
from casper.masks import gap_lengths

STEPS, SENSORS, AROUND = 60, 4, 5


@pytest.fixture
def chain() -> SensorGraph:
    """Sensor 0 - 1 - 2, each listening to its neighbours; sensor 3 is alone."""
    return SensorGraph.from_edges("abcd", [0, 1, 1, 2], [1, 0, 2, 1], [1.0, 1.0, 0.5, 0.5], origin="a chain")


def table(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    scaled = np.cumsum(random.normal(size=(STEPS, SENSORS)), axis=0).astype(np.float32)
    return scaled, random.random((STEPS, SENSORS)) < 0.7


def looked_at(scaled: np.ndarray, visible: np.ndarray, graph: SensorGraph, estimate: np.ndarray | None = None) -> Cells:
    guess = np.zeros_like(scaled) if estimate is None else estimate
    parts = list(cells_with_facts(scaled, visible, guess, ~visible, graph, around=AROUND))
    return Cells(*(np.concatenate([getattr(part, name) for part in parts]) for name in Cells.__dataclass_fields__))


def test_every_hole_has_its_facts(chain: SensorGraph) -> None:
    scaled, visible = table()
    cells = looked_at(scaled, visible, chain)
    assert cells.facts.shape == ((~visible).sum(), len(FACTS))
    found = np.zeros_like(visible)
    found[cells.step, cells.sensor] = True
    np.testing.assert_array_equal(found, ~visible)


def test_large_tables_are_looked_at_piece_by_piece_with_the_same_result(
    chain: SensorGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    scaled, visible = table()
    whole = looked_at(scaled, visible, chain)
    monkeypatch.setattr(cell_facts, "_ROWS_AT_ONCE", 7)
    pieces = looked_at(scaled, visible, chain)
    np.testing.assert_array_equal(pieces.gap, whole.gap)
    np.testing.assert_allclose(pieces.facts, whole.facts, rtol=1e-5, atol=1e-6)


def test_gaps_are_as_long_as_they_are() -> None:
    visible = np.array([[1, 0, 0, 1, 0, 1, 1, 0], [0, 0, 1, 1, 1, 1, 1, 1], [0] * 8], dtype=bool).T
    gaps = gap_lengths(visible)
    assert gaps[:, 0].tolist() == [0, 2, 2, 0, 1, 0, 0, 1]
    assert gaps[:, 1].tolist() == [2, 2, 0, 0, 0, 0, 0, 0], "a gap at the end of the table ends there"
    assert gaps[:, 2].tolist() == [8] * 8


def test_facts_of_a_hole_that_can_be_counted_by_hand(chain: SensorGraph) -> None:
    scaled = np.tile(np.arange(STEPS, dtype=np.float32)[:, None], (1, SENSORS))
    visible = np.ones((STEPS, SENSORS), dtype=bool)
    visible[10:13, 1] = False  # neighbours report
    visible[30:34] = False  # nobody does
    estimate = scaled + 0.5
    cells = looked_at(scaled, visible, chain, estimate)
    by_name = dict(zip(FACTS, cells.facts[(cells.step == 11) & (cells.sensor == 1)][0], strict=True))
    assert by_name["steps to the nearest reading of the sensor"] == pytest.approx(np.log1p(2))
    assert by_name["neighbours that report at this step"] == 1
    assert by_name["steps to the nearest time at which any of them reports"] == 0
    straight = "how far the estimate is from a straight line between the sensor's readings"
    assert by_name[straight] == pytest.approx(np.log(0.52))
    assert by_name["how restless the sensor is around this time"] == pytest.approx(np.log(1.02))
    dark = dict(zip(FACTS, cells.facts[(cells.step == 31) & (cells.sensor == 0)][0], strict=True))
    assert dark["neighbours that report at this step"] == 0
    assert dark["steps to the nearest time at which any of them reports"] == pytest.approx(np.log1p(2))
    assert np.isnan(dark["how much neighbours disagree"])
    alone = dict(zip(FACTS, cells.facts[(cells.step == 31) & (cells.sensor == 3)][0], strict=True))
    assert np.isnan(alone["how far the estimate is from the neighbours' readings"])
    assert cells.gap[(cells.step == 31)].tolist() == [4, 4, 4, 4]
