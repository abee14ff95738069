from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from casper.config import PRESETS, ModelConfig, TrainingConfig, preset
from casper.errors import InputError


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_a_trip_through_json(name: str) -> None:
    chosen = preset(name)
    for config in (chosen.model, chosen.training):
        told = config.to_dict()
        back = json.loads(json.dumps(told))
        assert back == told, "what JSON gives back must equal what was told, or trainings could not be resumed"
        assert type(config).from_dict(back) == config


def test_other_values_survive_too() -> None:
    model = ModelConfig(neighbours=3, decoder="kmeans-max", gate="none")
    training = TrainingConfig(hidden_shares=(0.1, 0.9), precision="bf16-mixed")
    assert ModelConfig.from_dict(json.loads(json.dumps(model.to_dict()))) == model
    assert TrainingConfig.from_dict(json.loads(json.dumps(training.to_dict()))) == training


def test_missing_keys_take_their_defaults() -> None:
    assert ModelConfig.from_dict({"width": 16}) == ModelConfig(width=16)


def test_unknown_keys_are_named() -> None:
    with pytest.raises(
        InputError, match=r"ModelConfig has no setting 'widht'; known settings: window, scaling, harmonics, width"
    ):
        ModelConfig.from_dict({"widht": 3})


@pytest.mark.parametrize(
    ("kind", "name", "value", "wanted"),
    [
        (ModelConfig, "width", "32", "int"),
        (ModelConfig, "width", 32.0, "int"),
        (ModelConfig, "width", True, "int"),
        (ModelConfig, "skip", 1, "bool"),
        (ModelConfig, "dropout", "low", "float"),
        (ModelConfig, "dropout", False, "float"),
        (ModelConfig, "dropout", None, "float"),
        (ModelConfig, "neighbours", 2.5, "int or NoneType"),
        (ModelConfig, "decoder", "transformer", "'prompts', 'mlp'"),
        (ModelConfig, "decoder", ["mlp"], "'prompts', 'mlp'"),
        (TrainingConfig, "hidden_shares", 0.5, "tuple"),
        (TrainingConfig, "hidden_shares", ["half"], "float"),
        (TrainingConfig, "precision", "16-mixed", "'32-true', 'bf16-mixed'"),
    ],
)
def test_values_of_the_wrong_kind_are_refused_and_the_right_kind_is_told(
    kind: type[ModelConfig] | type[TrainingConfig], name: str, value: Any, wanted: str
) -> None:
    with pytest.raises(InputError) as caught:
        kind.from_dict({name: value})
    assert f"{kind.__name__}.{name} cannot be {value!r}" in str(caught.value) or isinstance(value, list)
    assert wanted in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "changes", "complaint"),
    [
        (ModelConfig, {"window": 1}, "window must be at least 2"),
        (ModelConfig, {"layers": 0}, "layers must be at least 1"),
        (ModelConfig, {"heads": 0}, "heads must be at least 1"),
        (ModelConfig, {"width": 30, "heads": 4}, "30 with 4 heads is not"),
        (ModelConfig, {"width": 3, "heads": 1}, "width must be even"),
        (ModelConfig, {"feed_forward": 0}, "feed_forward"),
        (ModelConfig, {"dropout": 1.0}, "dropout"),
        (ModelConfig, {"neighbours": 0}, "neighbours must be at least 1 or None"),
        (ModelConfig, {"prompts": 0}, "prompts"),
        (TrainingConfig, {"epochs": 0}, "epochs must be at least 1"),
        (TrainingConfig, {"batches_per_epoch": 0}, "batches_per_epoch"),
        (TrainingConfig, {"batch_size": -1}, "batch_size"),
        (TrainingConfig, {"patience": 0}, "patience"),
        (TrainingConfig, {"validation_cells": 0}, "validation_cells"),
        (TrainingConfig, {"watched_cells": -1}, "watched_cells must not be negative"),
        (TrainingConfig, {"learning_rate": 0.0}, "learning_rate must be positive"),
        (TrainingConfig, {"hidden_shares": ()}, "hidden_shares"),
        (TrainingConfig, {"hidden_shares": (0.2, 1.0)}, "hidden_shares"),
        (TrainingConfig, {"copied_gaps": 0.7, "block_gaps": 0.7}, "copied_gaps, block_gaps"),
        (TrainingConfig, {"block_gaps": -0.1}, "copied_gaps, block_gaps"),
        (TrainingConfig, {"weight_averaging": 1.0}, "weight_averaging"),
        (TrainingConfig, {"validation_share": 0.5}, "validation_share"),
        (TrainingConfig, {"temperature_end": 0.0}, "temperatures must be positive"),
    ],
)
def test_values_out_of_range_are_refused_with_their_name(
    kind: type[ModelConfig] | type[TrainingConfig], changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        kind(**changes)
    with pytest.raises(InputError, match=complaint):
        kind().replace(**changes)


def test_replace_changes_a_copy_and_checks_like_from_dict() -> None:
    config = TrainingConfig()
    changed = config.replace(epochs=3, learning_rate=1, hidden_shares=[0.5])
    assert changed == dataclasses.replace(config, epochs=3, learning_rate=1.0, hidden_shares=(0.5,))
    assert isinstance(changed.learning_rate, float)
    assert config == TrainingConfig()
    with pytest.raises(InputError, match="no setting 'epoch'"):
        config.replace(epoch=3)
    with pytest.raises(InputError, match=r"epochs cannot be '3'"):
        config.replace(epochs="3")


def test_configurations_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ModelConfig().width = 4  # pyright: ignore[reportAttributeAccessIssue]


def test_the_number_of_steps_is_epochs_times_batches() -> None:
    assert TrainingConfig(epochs=3, batches_per_epoch=7).steps == 21


def test_an_unknown_preset_is_told_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"no preset 'quick'; choose one of fast, paper, best"):
        preset("quick")
