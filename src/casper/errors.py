"""What can be wrong with what a user hands in, and how it is told: all at once, long lists cut short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn


class InputError(ValueError):
    """The user's data, files or options cannot be used as they are; the message names the place and the remedy."""


class ProblemsError(InputError):
    """Several things are wrong with one input; all of them are told at once."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class MissingPackageError(InputError):
    """An optional package is needed for what was asked."""

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package}: pip install 'casper-impute[{extra}]'")


def raise_all(problems: Sequence[str]) -> NoReturn:
    raise InputError(problems[0]) if len(problems) == 1 else ProblemsError(problems)


MOST_TEXTS = 3
"""That are named of a column that should hold numbers."""


def problems_of(error: InputError) -> list[str]:
    """Each problem that an error tells of."""
    return list(error.problems) if isinstance(error, ProblemsError) else [str(error)]


def some(names: Sequence[str], most: int = 8) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
