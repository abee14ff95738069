"""Where the tiles are cut makes no difference."""

from __future__ import annotations

import pytest
import torch
from attention_cases import RULES, SHAPES, Case, assert_agrees, ragged, tensors_of, values_and_gradients

from casper.attention import GateRule
from casper.kernels import tiled

# Of the largest sensor of one window of the largest shape: 13 * 6 * 13 pairs of 8 channels of 8 bytes.
ONE_SENSOR = 65_000


@pytest.mark.parametrize("tile", [1, ONE_SENSOR, 5 * ONE_SENSOR], ids=["one sensor", "a few", "many"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_tiles_of_any_size_agree_with_the_definition(
    rule: GateRule | None, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiled, "TILE_BYTES_ON_CPU", tile)
    for seed, shape in enumerate(SHAPES):
        for pair in (True, False):
            case = Case(shape, rule, pair=pair, past=not pair, bias=True, seed=seed)
            assert_agrees(case, ragged(shape.sensors, seed=seed), "tiled", "cpu", torch.float64, 1e-12)


def test_autocast_around_it_does_not_make_it_less_precise() -> None:
    case = Case(SHAPES[0], RULES["soft, drawn"])
    given = {name: tensor.float() for name, tensor in tensors_of(case).items()}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        within = values_and_gradients(given, case, ragged(7), "tiled")
    without = values_and_gradients(given, case, ragged(7), "tiled")
    for name, value in without.items():
        torch.testing.assert_close(within[name], value, msg=name)
