"""Writing files so that they are either there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Collection, Generator
from pathlib import Path

from casper.errors import InputError, some


@contextlib.contextmanager
def atomic(path: Path) -> Generator[Path]:
    """A temporary path beside `path` to write to; moved into place only if the block succeeds."""
    with plain_words(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            with temporary.open("rb+") as written:
                os.fsync(written.fileno())
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path, *, force: bool, ours: Collection[str]) -> Generator[Path]:
    """A temporary folder beside `path` to fill; moved into place only if the block succeeds."""
    refuse_replacing_folder(path, force=force, ours=ours)
    with plain_words(path):
        temporary = Path(tempfile.mkdtemp(dir=path.resolve().parent, prefix=f".{path.name}."))
        try:
            yield temporary
            temporary.chmod(0o777 & ~_umask())
            if path.is_dir():
                shutil.rmtree(path)
            temporary.replace(path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def refuse_overwriting(path: Path, *, force: bool) -> None:
    if path.exists() and not force:
        raise InputError(f"{path} exists already; choose another name or pass --force (force=True) to replace it")
    _refuse_nowhere(path)


def refuse_replacing_folder(path: Path, *, force: bool, ours: Collection[str]) -> None:
    """A folder is replaced only if all it holds was written by us (`ours` are the names), and only with `force`.

    Replacing means deleting: nobody's other files are worth a mistyped name.
    """
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file, and a folder is to be written; choose another name")
    held = sorted(one.name for one in path.iterdir()) if path.is_dir() else []
    others = [name for name in held if name not in ours]
    if others:
        raise InputError(f"{path} holds {some(others, 3)}, which CASPER did not write; choose another folder")
    if held:
        refuse_overwriting(path, force=force)
    if path.resolve() == Path.cwd():
        raise InputError(f"{path.resolve()} is where you work, and is not replaced; name a folder in it")
    _refuse_nowhere(path)


def _refuse_nowhere(path: Path) -> None:
    if not path.resolve().parent.is_dir():
        raise InputError(f"there is no folder {path.resolve().parent}; create it first")


@contextlib.contextmanager
def plain_words(path: Path) -> Generator[None]:
    """What the system refuses while `path` is written, said so that a person understands it."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise InputError(f"the disk is full: {path} was not written; free some space and try again") from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise InputError(f"no permission to write {path}; choose another place") from error
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
