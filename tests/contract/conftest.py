"""Every imputer there is, made small enough for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from casper.contract import Imputer
from casper.methods import METHODS, make_imputer
from casper.simulate import Simulation


@pytest.fixture(scope="session", params=list(METHODS))
def make(request: pytest.FixtureRequest, tiny_settings: dict[str, Any]) -> Callable[[], Imputer]:
    """Makes an imputer that is not fitted yet; Casper's training is a few steps, the contract needs no more."""
    hurried = {**tiny_settings, "epochs": 1, "batches_per_epoch": 4, "device": "cpu"}
    options: dict[str, Any] = hurried if request.param == "casper" else {}
    return lambda: make_imputer(request.param, **options)


@pytest.fixture(scope="session")
def fitted(make: Callable[[], Imputer], six_sensors: Simulation) -> Imputer:
    """Not to be fitted again."""
    return make().fit(six_sensors.table, sensors=six_sensors.sensors)
