"""Tables made from result files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from casper.errors import InputError
from casper.results import END, START, fill_in, markdown_table, read_results

RECORD = {
    "dataset": "aqi36",
    "method": "mean",
    "mae": 53.7181,
    "mse": 4655.62,
    "mae_step": 53.4816,
    "mse_step": 4578.08,
    "command": "casper evaluate aqi36 --method mean",
    "commit": "0" * 40,
    "device": "CPU",
    "wall_seconds": 75.0,
}


def put(folder: Path, name: str, **changes: Any) -> None:
    (folder / name).write_text(json.dumps({**RECORD, **changes}))


def test_results_are_ordered_by_data_set_and_error(tmp_path: Path) -> None:
    put(tmp_path, "a.json")
    put(tmp_path, "b.json", method="linear", mae=14.4)
    put(tmp_path, "c.json", dataset="aqi", mae=99.0)
    assert [record["file"] for record in read_results(tmp_path)] == ["c.json", "b.json", "a.json"]


def test_the_table_shows_both_ways_of_counting_and_the_file(tmp_path: Path) -> None:
    put(tmp_path, "a.json")
    put(tmp_path, "b.json", method="linear", mae=14.4, wall_seconds=3.2)
    rows = markdown_table(read_results(tmp_path)).splitlines()[2:]
    assert rows[0].startswith("| aqi36 | linear | 14.40 |")
    assert "| 3 s |" in rows[0]
    put(tmp_path, "b.json", method="linear", mae=14.4, wall_seconds=0.2)
    assert "| < 1 s |" in markdown_table(read_results(tmp_path))
    assert rows[1] == "| aqi36 | mean | 53.72 | 4655.6 | 53.48 | 4578.1 | 1.2 min | CPU | `a.json` |"


def test_a_document_gets_the_table_between_its_marks_again_and_again(tmp_path: Path) -> None:
    document = tmp_path / "README.md"
    document.write_text(f"before\n{START}\nold\n{END}\nafter\n")
    for table in ("first", "second"):
        fill_in(document, table)
    assert document.read_text() == f"before\n{START}\nsecond\n{END}\nafter\n"


def test_a_document_without_marks_is_refused(tmp_path: Path) -> None:
    document = tmp_path / "README.md"
    document.write_text("no place")
    with pytest.raises(InputError, match="no place for the table"):
        fill_in(document, "table")


def test_a_result_that_does_not_say_where_it_came_from_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({key: RECORD[key] for key in RECORD if key != "commit"}))
    with pytest.raises(InputError, match=r"a\.json does not say its commit"):
        read_results(tmp_path)


def test_unreadable_results_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(InputError, match=r"a\.json is not readable JSON"):
        read_results(tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        read_results(tmp_path / "nowhere")


def test_measurements_of_speed_stay_out_of_the_table(tmp_path: Path) -> None:
    put(tmp_path, "a.json")
    (tmp_path / "benchmark-attention-cpu.json").write_text('{"speed": []}')
    assert [record["file"] for record in read_results(tmp_path)] == ["a.json"]
