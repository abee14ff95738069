"""Reading result files: JSON that says where it came from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from casper.errors import InputError


def read_record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is not readable JSON: {error}") from error
    if not isinstance(record, dict):
        raise InputError(f"{path} holds no result")
    return record


def read_records(folder: Path, needed: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and contents of all result files of a folder; none where there is no such folder."""
    for path in sorted(folder.glob("*.json")):
        record = read_record(path)
        refuse_lacking(path, record, needed, "casper reproduce")
        yield path.name, record


def refuse_lacking(path: Path, record: Mapping[str, Any], needed: Sequence[str], command: str) -> None:
    lacking = [key for key in needed if key not in record]
    if lacking:
        raise InputError(f"{path} does not say its {', '.join(lacking)}; write it again with {command}")


def short_commit(commit: str | None) -> str:
    if commit is None:
        return "unknown"
    return commit[:10] + ("+" if commit.endswith("+") else "")
