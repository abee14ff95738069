from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch
from torch import nn

from casper.errors import InputError
from casper.training.checkpoint import (
    load_optimizer,
    optimizer_tensors,
    read_tensors,
    under_prefix,
    with_prefix,
    write_tensors,
)


def test_tensors_and_state_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    tensors = {
        "a": torch.randn(3, 2, generator=torch.Generator().manual_seed(0)).T,  # not contiguous
        "b": torch.tensor([True, False]),
        "c": torch.tensor(3),
        "d": nn.Parameter(torch.ones(2)),
    }
    write_tensors(path, tensors, state={"epoch": 3, "history": [1.5, None], "naïve": "ü"})
    back, state = read_tensors(path)
    assert state == {"epoch": 3, "history": [1.5, None], "naïve": "ü"}
    assert set(back) == set(tensors)
    for name, tensor in tensors.items():
        assert torch.equal(back[name], tensor)
        assert back[name].dtype == tensor.dtype


def test_without_state_there_is_an_empty_one(tmp_path: Path) -> None:
    write_tensors(tmp_path / "weights.safetensors", {"a": torch.ones(1)})
    assert read_tensors(tmp_path / "weights.safetensors")[1] == {}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no file .*nothing\.safetensors"):
        read_tensors(tmp_path / "nothing.safetensors")


@pytest.mark.parametrize("damage", ["empty", "text", "cut short", "cut in the header"])
def test_a_damaged_file_is_an_input_error_that_names_it(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    write_tensors(path, {"a": torch.ones(100)}, state={"epoch": 3})
    whole = path.read_bytes()
    content = {"empty": b"", "text": b"time,a,b\n" * 50, "cut short": whole[:-10], "cut in the header": whole[:20]}
    path.write_bytes(content[damage])
    with pytest.raises(InputError, match=r"weights\.safetensors is not a readable weights file"):
        read_tensors(path)


def test_a_full_disk_leaves_the_old_file_and_is_told_in_plain_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights.safetensors"
    write_tensors(path, {"a": torch.ones(1)})

    def full(_path: Path, _content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="the disk is full"):
        write_tensors(path, {"a": torch.zeros(1)})
    assert torch.equal(read_tensors(path)[0]["a"], torch.ones(1))
    assert [one.name for one in tmp_path.iterdir()] == ["weights.safetensors"]


def network_and_optimizer() -> tuple[nn.Linear, torch.optim.Adam]:
    network = nn.Linear(3, 2)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape))
    return network, torch.optim.Adam(network.parameters(), lr=0.1)


def step(network: nn.Linear, optimizer: torch.optim.Adam, number: int) -> None:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(number))
    optimizer.zero_grad()
    network(x).pow(2).sum().backward()
    optimizer.step()


def test_an_optimiser_goes_on_bit_for_bit_after_a_round_trip(tmp_path: Path) -> None:
    network, optimizer = network_and_optimizer()
    names = [name for name, _ in network.named_parameters()]
    for number in range(3):
        step(network, optimizer, number)
    path = tmp_path / "state.safetensors"
    write_tensors(
        path,
        {**with_prefix("model", network.state_dict()), **with_prefix("optimizer", optimizer_tensors(optimizer, names))},
    )

    other, other_optimizer = network_and_optimizer()
    tensors, _ = read_tensors(path)
    assert {"optimizer:weight/exp_avg", "optimizer:bias/step"} <= set(tensors)
    other.load_state_dict(under_prefix("model", tensors))
    load_optimizer(other_optimizer, names, under_prefix("optimizer", tensors))
    for number in range(3, 6):
        step(network, optimizer, number)
        step(other, other_optimizer, number)
    assert torch.equal(network.weight, other.weight)
    assert torch.equal(network.bias, other.bias)


def test_an_optimiser_that_has_not_stepped_yet_has_nothing_to_keep() -> None:
    network, optimizer = network_and_optimizer()
    names = [name for name, _ in network.named_parameters()]
    assert optimizer_tensors(optimizer, names) == {}
    load_optimizer(optimizer, names, {})
    step(network, optimizer, 0)


def test_prefixes_keep_groups_apart() -> None:
    both = {**with_prefix("model", {"a:b": torch.ones(1)}), **with_prefix("models", {"a": torch.zeros(1)})}
    assert set(both) == {"model:a:b", "models:a"}
    assert set(under_prefix("model", both)) == {"a:b"}
