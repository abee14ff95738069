"""How the native version is built, and what it promises beyond its results."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from attention_cases import RULES, Case, Shape, attend, ragged, tensors_of, values_and_gradients

from casper.errors import InputError
from casper.kernels import native

needs_compiler = pytest.mark.skipif(not native.at_hand(), reason="no C++ compiler on this machine")
LARGE = Case(Shape(3, 7, 9, 2, 4), RULES["soft, drawn"], bias=True)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for compiled libraries that is not there yet."""
    folder = tmp_path / "new" / "cache"
    monkeypatch.setenv(native.CACHE, str(folder))
    return folder


@pytest.fixture(scope="module")
def compiled() -> Path:
    """A library that works."""
    library = native.load_library()
    assert library is not None
    return Path(vars(library)["_name"])


def compiler(folder: Path, script: str) -> str:
    """Its last argument is the file to write, unless it is asked for its version."""
    path = folder / "compiler"
    path.write_text(f'#!/bin/sh\nfor last; do :; done\n[ "$1" = --version ] && exit\n{script}\n')
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return str(path)


def only_file_in(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


@needs_compiler
def test_the_number_of_threads_changes_no_bit_of_the_results() -> None:
    before = torch.get_num_threads()
    cases = [LARGE, replace(LARGE, shape=Shape(1, 7, 9, 2, 4)), replace(LARGE, rule=RULES["hard, drawn"], pair=False)]
    try:
        for case in cases:
            given = {name: tensor.float() for name, tensor in tensors_of(case).items()}
            results = []
            for threads in (1, 2, 3):
                torch.set_num_threads(threads)
                results.append(values_and_gradients(given, case, ragged(7), "native"))
            for name, value in results[0].items():
                assert torch.equal(value, results[1][name]), name
                assert torch.equal(value, results[2][name]), name
    finally:
        torch.set_num_threads(before)


@needs_compiler
def test_the_library_is_compiled_once_and_found_again(
    cache: Path, compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("CXX", compiler(tmp_path, f'echo "$@" >>{log}; cp {compiled} "$last"'))
    assert native.load_library() is not None
    assert native.load_library() is not None
    assert len(log.read_text().splitlines()) == 1
    assert only_file_in(cache).read_bytes() == compiled.read_bytes()


@needs_compiler
def test_processes_that_compile_at_the_same_time_do_not_meet(
    cache: Path, compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Writes in two goes, as a compiler may: whoever loads the first half does not get far.
    slow = f'head -c 999 {compiled} >"$last"; sleep 0.3; cp {compiled} "$last"'
    monkeypatch.setenv("CXX", compiler(tmp_path, slow))
    with ThreadPoolExecutor(4) as pool:
        loading = [pool.submit(native.load_library) for _ in range(4)]
    assert all(one.result() is not None for one in loading)
    assert only_file_in(cache).read_bytes() == compiled.read_bytes()


@needs_compiler
def test_a_compiler_without_openmp_is_asked_for_less(
    cache: Path, compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picky = f'case "$*" in *-fopenmp*) exit 1;; esac; cp {compiled} "$last"'
    monkeypatch.setenv("CXX", compiler(tmp_path, picky))
    assert native.load_library() is not None
    assert only_file_in(cache).exists()


@pytest.mark.parametrize("script", [None, "exit 1", "echo internal error >&2; kill -9 $$", ": >$last"])
def test_without_a_compiler_that_works_there_is_no_library_and_no_noise(
    script: str | None, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "nowhere") if script is None else compiler(tmp_path, script))
    assert native.load_library() is None
    assert capfd.readouterr() == ("", "")


def test_without_a_place_to_keep_it_there_is_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(native.CACHE, str(tmp_path / "file"))
    assert native.load_library() is None


def test_asking_for_it_where_there_is_none_is_an_error_that_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native, "_library", None)
    assert not native.at_hand()
    with pytest.raises(InputError, match=r"needs a C\+\+ compiler"):
        attend(tensors_of(LARGE), LARGE, ragged(7), "native")
