from __future__ import annotations

from typing import Any, cast

import pytest

from casper import InputError
from casper.datasets import NAMES
from casper.methods import METHODS, has_network, make_imputer, settings_for
from casper.neural import NeuralImputer


@pytest.mark.parametrize("name", [name for name in METHODS if has_network(name) and name != "casper"])
def test_what_a_method_changes_for_a_benchmark_are_settings_that_it_has(name: str) -> None:
    assert set(cast("type[NeuralImputer[Any, Any]]", METHODS[name]).for_benchmarks) <= set(NAMES)
    for benchmark in NAMES:
        make_imputer(name, device="cpu", **settings_for(name, "paper", benchmark))


def test_casper_has_presets_for_benchmarks() -> None:
    assert settings_for("casper", "paper", "aqi36") == {"window": 36, "layers": 2}
    assert settings_for("casper", "paper", "metr-la-point") == {}


def test_unknown_methods_are_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="there is no method 'magic'; choose one of casper, mean"):
        make_imputer("magic")
