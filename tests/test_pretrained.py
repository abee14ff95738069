from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

from casper import Casper, pretrained
from casper.errors import InputError
from casper.methods import load_model
from casper.pretrained import CONFIG, WEIGHTS
from casper.simulate import Simulation


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    """A copy that may be spoilt."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "copy"))


def change_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    description = json.loads((folder / CONFIG).read_text())
    change(description)
    (folder / CONFIG).write_text(json.dumps(description))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)


def refusal(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        Casper.from_pretrained(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_loaded_model_fills_exactly_as_the_saved_one(
    tiny_casper: Casper, tiny_folder: Path, six_sensors: Simulation
) -> None:
    loaded = Casper.from_pretrained(tiny_folder, device="cpu")
    pd.testing.assert_frame_equal(
        loaded.impute(six_sensors.table), tiny_casper.impute(six_sensors.table), check_exact=True
    )


def test_a_loaded_model_knows_what_it_was(tiny_casper: Casper, tiny_folder: Path) -> None:
    loaded = Casper.from_pretrained(tiny_folder, device="cpu")
    assert loaded.describe() == tiny_casper.describe()
    assert loaded.config == tiny_casper.config
    assert loaded.training == tiny_casper.training
    assert (loaded.preset, loaded.seed) == (tiny_casper.preset, tiny_casper.seed)
    assert loaded.graph.origin == tiny_casper.graph.origin
    assert loaded.graph.sensors == tiny_casper.graph.sensors
    assert (loaded.graph.adjacency() == tiny_casper.graph.adjacency()).all()


def test_a_loaded_model_can_be_saved_again(tiny_folder: Path, tmp_path: Path) -> None:
    again = Casper.from_pretrained(tiny_folder).save_pretrained(tmp_path / "again")
    assert (again / CONFIG).read_text() == (tiny_folder / CONFIG).read_text()
    assert (again / WEIGHTS).read_bytes() == (tiny_folder / WEIGHTS).read_bytes()


def test_how_a_table_is_to_be_read_is_remembered(
    six_sensors: Simulation, tiny_settings: dict[str, Any], tmp_path: Path
) -> None:
    marked = six_sensors.table.fillna(-999.0)
    model = Casper(device="cpu", **{**tiny_settings, "epochs": 1, "batches_per_epoch": 2})
    model.fit(marked, sensors=six_sensors.sensors, missing_values=[-999.0], timezone="Asia/Tokyo", freq="1h")
    loaded = Casper.from_pretrained(model.save_pretrained(tmp_path / "model"), device="cpu")
    pd.testing.assert_frame_equal(loaded.impute(marked), model.impute(marked), check_exact=True)
    assert (loaded.impute(marked).to_numpy() > -999).all()


def test_a_model_is_a_json_and_a_safetensors_file_and_nothing_else(tiny_folder: Path) -> None:
    assert sorted(path.name for path in tiny_folder.iterdir()) == [CONFIG, WEIGHTS]
    assert json.loads((tiny_folder / CONFIG).read_text())["format"] == "casper-model-1"


def test_a_folder_that_exists_is_replaced_only_by_force(tiny_casper: Casper, folder: Path) -> None:
    before = (folder / WEIGHTS).read_bytes()
    (folder / "metrics.csv").write_text("old")
    with pytest.raises(InputError, match="exists already"):
        tiny_casper.save_pretrained(folder)
    assert (folder / "metrics.csv").exists()
    tiny_casper.save_pretrained(folder, force=True)
    assert (folder / WEIGHTS).read_bytes() == before
    assert not (folder / "metrics.csv").exists()


def test_a_model_is_loaded_by_its_own_method(folder: Path) -> None:
    assert isinstance(load_model(folder, device="cpu"), Casper)
    change_config(folder, lambda description: description.update(method="magic"))
    with pytest.raises(InputError, match="holds a model of the method magic, not casper"):
        Casper.from_pretrained(folder)
    with pytest.raises(InputError, match="there is no method 'magic'"):
        load_model(folder)


def test_a_model_of_before_there_were_other_methods_is_a_casper(folder: Path) -> None:
    change_config(folder, lambda description: description.pop("method"))
    assert isinstance(load_model(folder, device="cpu"), Casper)


def test_shipped_weights_are_found_by_name(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(tiny_folder, tmp_path / "weights" / "air")
    (tmp_path / "weights" / "unfinished").mkdir()
    monkeypatch.setattr(pretrained, "_SHIPPED", tmp_path / "weights")
    assert pretrained.shipped() == ("air",)
    assert pretrained.read("air").source == tmp_path / "weights" / "air"
    with pytest.raises(InputError, match="water does not exist; models that come with the package: air"):
        Casper.from_pretrained("water")


def test_a_folder_that_happens_to_have_the_name_of_shipped_weights_does_not_hide_them(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tiny_folder, tmp_path / "weights" / "air")
    (tmp_path / "air").mkdir()
    monkeypatch.setattr(pretrained, "_SHIPPED", tmp_path / "weights")
    monkeypatch.chdir(tmp_path)
    assert pretrained.read("air").source == tmp_path / "weights" / "air"
    shutil.copytree(tiny_folder, tmp_path / "air", dirs_exist_ok=True)
    assert pretrained.read("air").source == Path("air")  # but a model of that name is the nearer one


def test_a_folder_without_a_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "_SHIPPED", tmp_path / "nothing")
    assert "is not a model folder (config.json and model.safetensors)" in refusal(tmp_path)
    assert "does not exist; models that come with the package: none" in refusal(tmp_path / "elsewhere")


def test_a_truncated_weights_file_is_refused(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-100])
    assert f"{folder / WEIGHTS} is not a readable weights file" in refusal(folder)


def test_weights_of_something_else_are_refused(folder: Path) -> None:
    save_file({"bert.embeddings": torch.zeros(3)}, folder / WEIGHTS)
    assert f"{folder / WEIGHTS} is not a CASPER model: it lacks 'graph:source'" in refusal(folder)


def test_a_description_that_is_no_json_is_refused(folder: Path) -> None:
    (folder / CONFIG).write_text("{")
    assert f"{folder / CONFIG} is not readable JSON" in refusal(folder)
    (folder / CONFIG).write_bytes(b"\xff\xfe\xff")
    assert f"{folder / CONFIG} is not readable JSON" in refusal(folder)


def test_a_description_of_something_else_is_refused(folder: Path) -> None:
    for foreign in ("[]", '{"model_type": "bert"}', '{"format": "casper-model-99"}'):
        (folder / CONFIG).write_text(foreign)
        assert "does not describe a CASPER model of a format this version knows (casper-model-1)" in refusal(folder)


def test_unknown_and_missing_keys_are_named(folder: Path) -> None:
    change_config(folder, lambda told: told.update(colour="blue"))
    assert f"{folder / CONFIG} has unknown keys colour" in refusal(folder)
    change_config(folder, lambda told: told.pop("periods"))
    assert "has unknown keys colour and no periods" in refusal(folder)


def test_an_unknown_setting_of_the_network_is_named_with_its_file(folder: Path) -> None:
    change_config(folder, lambda told: told["model"].update(depth=3))
    told = refusal(folder)
    assert str(folder / CONFIG) in told
    assert "'depth'" in told


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", []),
        ("training", None),
        ("seed", "one"),
        ("step_seconds", "hourly"),
        ("periods", ["day"]),
        ("periods", 24),
        ("options", {}),
        ("options", None),
        ("sensors", 6),
        ("graph_origin", None),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(folder: Path, key: str, value: object) -> None:
    change_config(folder, lambda told: told.update({key: value}))
    told = refusal(folder)
    assert f"{folder / CONFIG} is damaged: {key}" in told


def test_sensors_that_do_not_fit_the_weights_are_refused(folder: Path) -> None:
    change_config(folder, lambda told: told["sensors"].pop())
    assert "its sensors and its weights do not fit together" in refusal(folder)


def test_a_network_of_another_shape_is_refused(folder: Path) -> None:
    change_config(folder, lambda told: told["model"].update(width=16))
    assert "do not fit their config.json" in refusal(folder)


def test_neighbours_that_do_not_exist_are_refused(folder: Path) -> None:
    change_weights(folder, lambda tensors: tensors["network:neighbour_index"].fill_(6))
    assert "do not fit their config.json" in refusal(folder)


def test_weights_without_a_network_are_refused(folder: Path) -> None:
    change_weights(folder, lambda tensors: tensors.pop("network:neighbour_index"))
    assert "do not fit their config.json" in refusal(folder)
