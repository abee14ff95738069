"""Files that the tests of reading and writing share, and what a user does with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from casper.errors import InputError
from casper.frame import to_frame
from casper.io import read_table, write_table

WIDE = "time,a,b\n2024-01-01 00:00,1.5,4\n2024-01-01 01:00,,5\n2024-01-01 02:00,3.25,6\n"
LONG = (
    "station,time,value,unit\n"
    "x,2024-01-01 01:00,1.5,mm\n"
    "x,2024-01-01 02:00,,mm\n"
    "007,2024-01-01 02:00,3.5,cm\n"
    "007,2024-01-01 00:00,2.5,cm\n"
)


def put(folder: Path, content: str | bytes, name: str = "readings.csv") -> Path:
    file = folder / name
    if isinstance(content, str):
        content = content.encode()
    file.write_bytes(content)
    return file


def problem(path: Path, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        read_table(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def filled_copy(path: Path, target: Path, **options: Any) -> str:
    """What a user does: read, fill, write in the same form."""
    table, form = read_table(path, **options)
    frame = to_frame(table)
    write_table(frame.restore(np.where(frame.observed, frame.values, 7.5)), target, like=form)
    return target.read_bytes().decode(form.style.encoding)
