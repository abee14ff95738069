from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from casper.errors import InputError
from casper.files import atomic, atomic_folder, refuse_overwriting


def fill_and_fail(path: Path, error: BaseException) -> None:
    path.write_text("half of the new")
    raise error


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_only_when_the_block_is_done(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with atomic(path) as temporary:
        temporary.write_text("new")
        assert temporary.suffix == ".csv"
        assert not path.exists()
    assert path.read_text() == "new"
    assert names(tmp_path) == ["out.csv"]


def test_an_exception_leaves_the_old_file_and_no_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic(path) as temporary:
        fill_and_fail(temporary, KeyboardInterrupt())
    assert path.read_text() == "old"
    assert names(tmp_path) == ["out.csv"]


def test_files_have_the_permissions_of_ordinary_new_files(tmp_path: Path) -> None:
    (tmp_path / "ordinary").write_text("")
    with atomic(tmp_path / "ours") as temporary:
        temporary.write_text("")
    with atomic_folder(tmp_path / "folder", force=False, ours=()):
        pass
    (tmp_path / "ordinary folder").mkdir()
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "ordinary").stat().st_mode
    assert (tmp_path / "folder").stat().st_mode == (tmp_path / "ordinary folder").stat().st_mode


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EACCES, "no permission to write"),
        (errno.EROFS, "no permission to write"),
    ],
)
def test_a_full_or_forbidden_disk_is_told_in_plain_words(
    number: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.csv"
    path.write_text("old")

    def refuse(_handle: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(InputError, match=words) as caught, atomic(path) as temporary:
        temporary.write_text("new")
    assert str(path) in str(caught.value)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["out.csv"]


def test_other_errors_of_the_system_are_not_dressed_up(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError), atomic(tmp_path / "out") as temporary:
        raise IsADirectoryError(errno.EISDIR, str(temporary))
    assert names(tmp_path) == []


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "model"
    with pytest.raises(RuntimeError, match="half way"), atomic_folder(path, force=False, ours=("a",)) as temporary:
        fill_and_fail(temporary / "a", RuntimeError("half way"))
    assert names(tmp_path) == []
    with atomic_folder(path, force=False, ours=("a",)) as temporary:
        (temporary / "a").write_text("a")
    assert names(path) == ["a"]
    assert names(tmp_path) == ["model"]


def test_a_folder_is_replaced_only_by_force_and_an_exception_leaves_the_old_one(tmp_path: Path) -> None:
    path, ours = tmp_path / "model", ("old", "new")
    path.mkdir()
    (path / "old").write_text("old")
    with pytest.raises(InputError, match="exists already"), atomic_folder(path, force=False, ours=ours):
        pass
    with pytest.raises(RuntimeError, match="half way"), atomic_folder(path, force=True, ours=ours):
        raise RuntimeError("half way")
    assert names(path) == ["old"]
    with atomic_folder(path, force=True, ours=ours) as temporary:
        (temporary / "new").write_text("new")
    assert names(path) == ["new"]
    assert names(tmp_path) == ["model"]


def test_an_empty_folder_needs_no_force(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.mkdir()
    with atomic_folder(path, force=False, ours=()) as temporary:
        (temporary / "new").write_text("new")
    assert names(path) == ["new"]


def test_a_folder_with_anything_of_the_users_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text("ours")
    (path / "thesis.txt").write_text("precious")
    refusal = pytest.raises(InputError, match=r"holds thesis\.txt, which CASPER did not write")
    with refusal, atomic_folder(path, force=True, ours=("config.json",)):
        pass
    assert (path / "thesis.txt").read_text() == "precious"


def test_a_file_is_never_replaced_by_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "readings.csv"
    path.write_text("precious")
    with (
        pytest.raises(InputError, match="is a file, and a folder is to be written"),
        atomic_folder(path, force=True, ours=("readings.csv",)),
    ):
        pass
    assert path.read_text() == "precious"


def test_the_working_folder_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="is where you work"), atomic_folder(Path(), force=True, ours=()):
        pass
    assert tmp_path.is_dir()


def test_overwriting_is_refused_by_name_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    refuse_overwriting(path, force=False)
    path.write_text("")
    with pytest.raises(InputError, match=r"out\.csv exists already; .*--force"):
        refuse_overwriting(path, force=False)
    refuse_overwriting(path, force=True)
    with pytest.raises(InputError, match=r"there is no folder .*nowhere; create it first"):
        refuse_overwriting(tmp_path / "nowhere" / "out.csv", force=False)
