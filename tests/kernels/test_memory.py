"""The fast versions on a processor keep nothing of the size of the pairs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from attention_cases import ON_PROCESSOR, RULES, Case, Shape, tensors_of, values_and_gradients

from casper.kernels import Version
from casper.network.neighbourhood import Neighbourhood

SENSORS, NEIGHBOURS, STEPS = 36, 18, 36
LITTLE = 60  # megabytes
PROCESS = Path("/proc/self")

needs_gauge = pytest.mark.skipif(
    not (PROCESS / "clear_refs").exists(), reason="this system does not tell a process's peak memory"
)


def peak_of(version: Version, *, batch: int, sensors: int = SENSORS) -> float:
    """Megabytes that the process grew at most while it went forward and backward."""
    case = Case(Shape(batch, sensors, STEPS, 4, 8), RULES["soft, drawn"])
    generator = torch.Generator().manual_seed(0)
    index = torch.stack([torch.randperm(sensors, generator=generator)[:NEIGHBOURS] for _ in range(sensors)])
    neighbourhood = Neighbourhood(index, torch.ones_like(index, dtype=torch.bool), full=True)
    given = {name: tensor.float() for name, tensor in tensors_of(case).items()}
    (PROCESS / "clear_refs").write_text("5")  # forget the highest point so far
    before = _memory("VmRSS")
    values_and_gradients(given, case, neighbourhood, version)
    return _memory("VmHWM") - before


def _memory(name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+) kB", (PROCESS / "status").read_text())
    assert found is not None
    return int(found[1]) / 1024


@needs_gauge
@pytest.mark.parametrize(("version", "device"), ON_PROCESSOR)
def test_memory_does_not_grow_with_the_pairs(version: Version, device: str) -> None:
    peak_of(version, batch=1, sensors=NEIGHBOURS)  # what is loaded once is not counted
    assert peak_of(version, batch=3) < LITTLE


@needs_gauge
def test_the_plain_version_shows_what_the_pairs_would_take() -> None:
    # Three windows, as above, would take a gigabyte.
    assert peak_of("plain", batch=1) > 5 * LITTLE
