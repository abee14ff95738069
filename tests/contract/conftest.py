"""Every imputer there is, made small enough for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from casper.config import TrainingConfig
from casper.contract import Imputer
from casper.methods import METHODS, has_network, make_imputer
from casper.neural import NeuralImputer
from casper.simulate import Simulation


@pytest.fixture(scope="session", params=list(METHODS))
def make(request: pytest.FixtureRequest, tiny_settings: dict[str, Any]) -> Callable[[], Imputer]:
    """Makes an imputer that is not fitted yet; trainings are a few steps, the contract needs no more."""
    options: dict[str, Any] = {"rounds": 5} if request.param == "mice" else {}
    if has_network(request.param):
        recipe = cast("type[NeuralImputer[Any, Any]]", METHODS[request.param]).recipe
        known = {*type(recipe.model).__dataclass_fields__, *TrainingConfig.__dataclass_fields__}
        sampled = {"samples": 3, "diffusion_steps": 6, "channels": 8, "time_embedding": 8}
        hurried = {**tiny_settings, **sampled, "epochs": 1, "batches_per_epoch": 4}
        options = {"device": "cpu", **{name: value for name, value in hurried.items() if name in known}}
    return lambda: make_imputer(request.param, **options)


@pytest.fixture(scope="session")
def fitted(make: Callable[[], Imputer], six_sensors: Simulation) -> Imputer:
    """Not to be fitted again."""
    return make().fit(six_sensors.table, sensors=six_sensors.sensors)
