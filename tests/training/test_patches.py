"""Patches of a large network: connected, covering every sensor, and equal to the whole where nothing is cut off."""

from __future__ import annotations

import torch

from casper.config import ModelConfig
from casper.model import CasperNetwork
from casper.network.neighbourhood import Neighbourhood
from casper.training.patches import sensor_patches

# A ring of 40 sensors, each looking at the next one on either side.
RING = torch.stack([(torch.arange(40) + 1) % 40, (torch.arange(40) - 1) % 40], dim=1)
ALL = torch.ones(40, 2, dtype=torch.bool)


def test_a_small_network_is_trained_on_whole() -> None:
    assert sensor_patches(RING, ALL, 30, seed=0) is None
    assert sensor_patches(RING, ALL, None, seed=0) is None


def test_patches_hold_each_sensor_once_and_cover_the_network() -> None:
    patches = sensor_patches(RING, ALL, 10, seed=0)
    assert patches is not None
    assert patches.shape[1] == 10
    assert all(len(set(patch.tolist())) == 10 for patch in patches)
    assert set(patches.flatten().tolist()) == set(range(40))


def test_a_patch_is_a_connected_part_of_the_network() -> None:
    patches = sensor_patches(RING, ALL, 10, seed=0)
    assert patches is not None
    for patch in patches:
        inside = Neighbourhood(RING, ALL).within(patch).present
        # A stretch of the ring: all but its two ends see both neighbours.
        assert inside.sum() == 2 * 10 - 2


def test_sensors_without_neighbours_still_make_patches() -> None:
    patches = sensor_patches(RING, torch.zeros_like(ALL), 10, seed=0)
    assert patches is not None
    assert all(len(set(patch.tolist())) == 10 for patch in patches)


def test_patches_depend_on_the_seed_alone() -> None:
    first, again, other = (sensor_patches(RING, ALL, 10, seed=seed) for seed in (3, 3, 4))
    assert first is not None
    assert again is not None
    assert other is not None
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_sensor_whose_neighbours_are_all_in_the_patch_gets_the_same_estimate_as_in_the_whole_network() -> None:
    config = ModelConfig(window=6, width=8, layers=1, heads=2, prompts=4, neighbours=2)
    torch.manual_seed(0)
    network = CasperNetwork(config, neighbour_index=RING, neighbour_present=ALL, clock=4)
    values, visible, clock = torch.randn(2, 40, 6), torch.rand(2, 40, 6) < 0.7, torch.randn(2, 6, 4)
    patch = torch.arange(5, 15)
    whole = network(values, visible, clock).estimate
    part = network(values[:, patch], visible[:, patch], clock, sensors=patch).estimate
    torch.testing.assert_close(part[:, 1:-1], whole[:, patch][:, 1:-1])
    assert not torch.allclose(part[:, 0], whole[:, patch[0]])
