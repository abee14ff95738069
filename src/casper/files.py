"""Writing files so that they are either there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

from casper.errors import InputError


@contextlib.contextmanager
def atomic(path: Path) -> Generator[Path]:
    """A temporary path beside `path` to write to; moved into place only if the block succeeds."""
    with _plain_words(path):
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
def atomic_folder(path: Path, *, force: bool) -> Generator[Path]:
    """A temporary folder beside `path` to fill; moved into place only if the block succeeds."""
    refuse_overwriting(path, force=force)
    # Replacing means deleting what is there, and nobody means these.
    if path.resolve() in (Path.home(), Path.cwd(), *Path.cwd().parents):
        raise InputError(f"{path.resolve()} is where you work or live, and is not replaced; choose a new folder")
    with _plain_words(path):
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        try:
            yield temporary
            temporary.chmod(0o777 & ~_umask())
            if path.is_dir():
                shutil.rmtree(path)
            elif path.exists():
                path.unlink()
            temporary.replace(path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def refuse_overwriting(path: Path, *, force: bool) -> None:
    if path.exists() and not force:
        raise InputError(f"{path} exists already; choose another name or pass --force (force=True) to replace it")
    if not path.resolve().parent.is_dir():
        raise InputError(f"there is no folder {path.resolve().parent}; create it first")


@contextlib.contextmanager
def _plain_words(path: Path) -> Generator[None]:
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
