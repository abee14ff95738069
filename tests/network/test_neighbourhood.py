from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from casper.network.neighbourhood import EdgeLists, Neighbourhood

# Sensor 1 has a hole in the middle of its row, sensor 3 looks at nobody; nobody looks at sensor 2.
INDEX = torch.tensor([[1, 3, 0], [0, 1, 3], [1, 2, 2], [3, 3, 3]])
PRESENT = torch.tensor([[True, True, False], [True, False, True], [True, False, False], [False, False, False]])


def rows(start: torch.Tensor, entries: torch.Tensor) -> list[list[int]]:
    return [entries[begin:end].tolist() for begin, end in pairwise(start.tolist())]


def test_edge_lists_hold_the_present_neighbours_in_the_tables_order_and_the_same_edges_reversed() -> None:
    lists = EdgeLists.of(INDEX, PRESENT)
    assert rows(lists.start, lists.source) == [[1, 3], [0, 3], [1], []]
    assert rows(lists.reverse_start, lists.target) == [[1], [0, 2], [], [0, 1]]
    assert all(tensor.dtype == torch.int32 for tensor in lists)


def test_sensors_are_ordered_by_falling_number_of_edges() -> None:
    lists = EdgeLists.of(INDEX, PRESENT)
    assert lists.order.tolist() == [0, 1, 2, 3]
    assert lists.reverse_order.tolist() == [1, 3, 0, 2]


def test_a_neighbourhood_without_any_edge_has_empty_lists() -> None:
    lists = EdgeLists.of(INDEX, torch.zeros_like(PRESENT))
    assert lists.start.tolist() == [0] * 5
    assert lists.reverse_start.tolist() == [0] * 5


def test_lists_that_are_at_hand_are_not_made_again() -> None:
    with_lists = Neighbourhood(INDEX, PRESENT).with_lists()
    assert with_lists.edges() is with_lists.lists
    assert with_lists.with_lists().lists is with_lists.lists


@pytest.mark.parametrize(("constrained", "pairs"), [(False, 5 * 9), (True, 5 * 6)])
def test_pairs_are_counted_as_the_mask_counts_them(constrained: bool, pairs: int) -> None:
    neighbourhood = Neighbourhood(INDEX, PRESENT)
    assert neighbourhood.count(3, constrained=constrained) == pairs
    exists = neighbourhood.pairs(3, constrained=constrained)
    assert exists is not None
    assert exists.expand(-1, 3, -1).sum() == pairs


def test_alone_every_sensor_looks_at_itself_only() -> None:
    alone = Neighbourhood.alone(3, torch.device("cpu"))
    assert alone.full
    made = EdgeLists.of(alone.index, alone.present)
    for name, expected in made._asdict().items():
        assert torch.equal(getattr(alone.edges(), name), expected), name
