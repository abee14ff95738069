from __future__ import annotations

import torch

from casper.baselines.parts_graph import diffuse, diffuse_readings, transitions, walks

# 0 -> 1 (weight 1), 2 -> 1 (weight 3), 1 -> 2 (weight 2); sensor 3 is alone.
ADJACENCY = torch.tensor(
    [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 2.0, 0.0], [0.0, 3.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64
)


def test_a_sensor_takes_the_weighted_mean_of_those_it_listens_to_and_of_those_that_listen_to_it() -> None:
    along, against = transitions(ADJACENCY)
    assert along.tolist() == [[0, 0, 0, 0], [0.25, 0, 0.75, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert against.tolist() == [[0, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]


def test_walks_are_powers_of_both_directions() -> None:
    along, against = transitions(ADJACENCY)
    walked = walks(ADJACENCY, 3)
    expected = [along, against, along @ along, against @ against, along @ along @ along, against @ against @ against]
    assert walked.shape == (4, 6, 4)
    for kind, power in enumerate(expected):
        assert torch.equal(walked[:, kind], power)


def test_diffusion_adds_up_what_every_walk_brings() -> None:
    x = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    walked = walks(ADJACENCY, 2)
    brought = diffuse(x, walked)
    assert brought.shape == (2, 3, 4, 4 * 5)
    for receiver in range(4):
        for kind in range(4):
            expected = sum(walked[receiver, kind, origin] * x[1, 2, origin] for origin in range(4))
            torch.testing.assert_close(brought[1, 2, receiver, 5 * kind : 5 * kind + 5], expected)


def test_single_readings_diffuse_like_one_channel() -> None:
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    walked = walks(ADJACENCY, 2)
    torch.testing.assert_close(diffuse_readings(x, walked), diffuse(x[..., None], walked))


def test_a_lonely_sensor_is_brought_nothing() -> None:
    walked = walks(ADJACENCY, 2)
    assert not walked[3].any()
    assert torch.isfinite(walks(torch.zeros(2, 2), 2)).all()
