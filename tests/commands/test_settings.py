from __future__ import annotations

import pytest

from casper.commands.settings import method_settings, settings_of
from casper.config import ModelConfig, NetworkConfig
from casper.discovery import DISCOVERERS
from casper.errors import InputError
from casper.methods import METHODS, has_network


def test_a_setting_tells_its_value_its_choices_and_what_the_source_says_about_it() -> None:
    found = {one.name: one for one in settings_of(paper=ModelConfig(), mine=ModelConfig(width=64, gate="none"))}
    assert found["width"].values == {"paper": 32, "mine": 64}
    assert found["width"].takes == ""
    assert found["width"].meaning == "Size of every embedding (D)."
    assert found["gate"].takes == "gumbel, none"
    assert found["neighbours"].takes == "whole number or null"
    assert found["dropout"].meaning == "", "the source says nothing about it"
    assert found["window"].meaning == "Steps the model sees at a time (T).", "inherited"
    assert list(found)[: len(NetworkConfig.__dataclass_fields__)] == list(NetworkConfig.__dataclass_fields__)


@pytest.mark.parametrize("name", [*DISCOVERERS, *(name for name in METHODS if has_network(name))])
def test_every_method_with_settings_lists_them(name: str) -> None:
    assert all(len(listed) > 2 for listed in method_settings(name).values())
    assert method_settings(name)


def test_casper_is_both_and_its_presets_stand_beside_each_other() -> None:
    fitted, trained, discovering = method_settings("casper").values()
    assert list(fitted[0].values) == list(trained[0].values) == ["fast", "paper", "best"]
    assert list(discovering[0].values) == ["default"]


def test_methods_without_a_network_have_no_settings_and_unknown_ones_are_refused() -> None:
    assert method_settings("knn") == {}
    with pytest.raises(InputError, match="there is no method 'magic'; choose one of casper"):
        method_settings("magic")


@pytest.mark.parametrize("name", list(DISCOVERERS))
def test_every_method_of_causal_discovery_says_what_its_weights_are(name: str) -> None:
    meaning = DISCOVERERS[name](device="cpu").weights_mean
    assert 20 < len(meaning) < 150
    assert not meaning.endswith(".")


def test_what_a_weight_of_casper_is_depends_on_the_measure() -> None:
    casper = DISCOVERERS["casper"]
    assert "gate" in casper(device="cpu", measure="rho", pool="max").weights_mean
    assert casper(device="cpu", measure="rho", pool="max").weights_mean != casper(device="cpu").weights_mean
