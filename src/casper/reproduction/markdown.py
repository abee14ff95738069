"""Pieces of the pages that are written by commands."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

IMAGES = "images"
"""The folder of a page's pictures, beside it."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [_line(head), "|" + "---|" * len(head), *map(_line, rows)]
    return "\n".join(lines)


def image(name: str, words: str, pictures: Collection[str]) -> str:
    """A picture of the page, or nothing if it is not among those at hand."""
    return f"![{words}]({IMAGES}/{name})" if name in pictures else ""


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
