"""What the tests of reports and pictures share."""

from __future__ import annotations

from typing import Any

import pytest

from casper.imputer import Casper
from casper.simulate import Simulation


@pytest.fixture(scope="session")
def barred_casper(six_sensors: Simulation, tiny_settings: dict[str, Any]) -> Casper:
    """Like `tiny_casper`, but enough is held back for error bars."""
    return Casper(device="cpu", **tiny_settings, validation_share=0.2).fit(
        six_sensors.table, sensors=six_sensors.sensors
    )
