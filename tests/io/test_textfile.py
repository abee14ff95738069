"""Text files: separators, encodings, numbers and holes are understood and kept, mistakes are told with their line."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from casper.errors import InputError, ProblemsError
from casper.frame import to_frame
from casper.io import read_table, write_table
from table_files import WIDE, filled_copy, problem, put


def test_a_wide_csv_is_read_and_written_back_with_its_holes_filled(tmp_path: Path) -> None:
    table, form = read_table(put(tmp_path, WIDE))
    assert table.columns.tolist() == ["a", "b"]
    assert table.index.equals(pd.date_range("2024-01-01", periods=3, freq="h"))
    assert table.index.name == "time"
    assert table["a"].tolist()[::2] == [1.5, 3.25]
    assert form.layout == "wide"
    assert filled_copy(tmp_path / "readings.csv", tmp_path / "out.csv") == WIDE.replace(",,", ",7.5,")


@pytest.mark.parametrize("start", ["2024-03-30 23:00", "2024-10-26 23:00"])
@pytest.mark.parametrize("named", ["offset", "utc", "naive"])
def test_stamps_around_a_clock_change_come_back_byte_for_byte(tmp_path: Path, start: str, named: str) -> None:
    stamps = pd.date_range(start, periods=7, freq="h", tz="Europe/Berlin")
    shown = {
        "offset": [stamp.isoformat() for stamp in stamps],
        "utc": [stamp.tz_convert("UTC").strftime("%Y-%m-%dT%H:%MZ") for stamp in stamps],
        "naive": [stamp.strftime("%Y-%m-%d %H:%M") for stamp in stamps],
    }[named]
    text = "time,a,b\n" + "".join(f"{stamp},{i}.5,{i}.25\n" for i, stamp in enumerate(shown))
    table, form = read_table(put(tmp_path, text))
    frame = to_frame(table, timezone="Europe/Berlin")
    assert frame.observed.all()
    assert list(frame.times) == list(stamps)
    write_table(frame.restore(frame.values), tmp_path / "out.csv", like=form)
    assert (tmp_path / "out.csv").read_text() == text
    again, _ = read_table(tmp_path / "out.csv")
    pd.testing.assert_frame_equal(again, table)


def test_offsets_of_one_zone_and_of_several_reach_the_frame(tmp_path: Path) -> None:
    one, _ = read_table(put(tmp_path, "time,a,b\n2024-01-01T00:00+01:00,1,2\n2024-01-01T01:00+01:00,1,2\n"))
    assert str(one.index[0].utcoffset()) == "1:00:00"
    mixed, _ = read_table(put(tmp_path, "time,a,b\n2024-01-01T00:00+01:00,1,2\n2024-01-01T01:00,1,2\n"))
    with pytest.raises(InputError, match="mixed zones"):
        to_frame(mixed)


def test_floats_are_read_exactly_and_written_as_the_shortest_text(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(size=500), 10.0 ** rng.uniform(-300, 300, 500)]).reshape(500, 2)
    table = pd.DataFrame(values, columns=["a", "b"], index=pd.date_range("2024-01-01", periods=500, freq="h"))
    write_table(table, tmp_path / "out.csv")
    again, form = read_table(tmp_path / "out.csv")
    assert again.to_numpy().tobytes() == values.tobytes()
    write_table(again, tmp_path / "again.csv", like=form)
    assert (tmp_path / "again.csv").read_text() == (tmp_path / "out.csv").read_text()


def test_exactness_does_not_suffer_when_a_column_has_odd_texts_for_holes(tmp_path: Path) -> None:
    numbers = [repr(x) for x in np.random.default_rng(1).normal(size=50).tolist()]
    rows = "".join(f"2024-01-01 00:{i:02},{number}, nA \n" for i, number in enumerate(numbers))
    table, _ = read_table(put(tmp_path, "time,a,b\n" + rows + "2024-01-01 00:50,mIsSiNg,2.5 \n"))
    assert [repr(x) for x in table["a"].tolist()[:50]] == numbers
    assert table["b"].tolist()[-1] == 2.5
    assert table["b"].isna().sum() == 50


@pytest.mark.parametrize(
    "hole",
    [
        *("", "NA", "NaN", "nan", "null", "NULL", "None", "-", "--", "n/a", "N/A", "Missing", "#N/A", "#n/v", "---"),
        *("k.A.", "ND", "n.d.", "M", "MM", "mm", "*", "***", "/", "//", "///", "<NA>"),
    ],
)
def test_the_usual_texts_for_holes_are_holes(tmp_path: Path, hole: str) -> None:
    table, _ = read_table(put(tmp_path, f"time,a,b\n2024-01-01,{hole},1\n2024-01-02,2.5,1\n"))
    assert table["a"].dtype == np.float64
    assert table["a"].isna().tolist() == [True, False]


def test_a_semicolon_file_with_decimal_commas_and_a_byte_order_mark_comes_back_in_kind(tmp_path: Path) -> None:
    text = '﻿Zeit;"Süd, 1";b\r\n31.12.2023 23:00;1,5;4\r\n01.01.2024 00:00;;-5,25\r\n'
    path = put(tmp_path, text)
    table, form = read_table(path)
    assert table.columns.tolist() == ["Süd, 1", "b"]
    assert table["b"].tolist() == [4, -5.25]
    assert table.index[0] == pd.Timestamp("2023-12-31 23:00")
    assert form.style.encoding == "utf-8-sig"
    out = filled_copy(path, tmp_path / "out.csv")
    assert out == text.removeprefix("﻿").replace(";;", ";7,5;").replace('"', "").replace(";4", ";4,0")


def test_latin_1_and_utf_16_files_are_read(tmp_path: Path) -> None:
    for encoding in ("latin-1", "utf-16"):
        table, _ = read_table(put(tmp_path, WIDE.replace(",a,", ",Süd,").encode(encoding)))
        assert table.columns.tolist() == ["Süd", "b"]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators_are_recognised_and_kept(tmp_path: Path, separator: str) -> None:
    text = WIDE.replace(",", separator)
    assert filled_copy(put(tmp_path, text, "r.txt"), tmp_path / "out.txt") == text.replace(
        separator * 2, f"{separator}7.5{separator}"
    )


def test_another_suffix_gets_its_own_separator(tmp_path: Path) -> None:
    assert filled_copy(put(tmp_path, WIDE), tmp_path / "out.tsv").startswith("time\ta\tb\n2024-01-01 00:00\t1.5\t4\n")


def test_gzipped_text_is_read_and_written(tmp_path: Path) -> None:
    path = put(tmp_path, gzip.compress(WIDE.encode()), "readings.csv.gz")
    table, form = read_table(path)
    write_table(table, tmp_path / "out.csv.gz", like=form)
    assert gzip.decompress((tmp_path / "out.csv.gz").read_bytes()).decode() == WIDE


def test_comments_blank_lines_and_a_separator_at_line_ends_are_tolerated(tmp_path: Path) -> None:
    text = "# from the lab\n\ntime,a,b,\n2024-01-01,1,2,\n# pause\n\n2024-01-02,3,4,\n"
    table, _ = read_table(put(tmp_path, text))
    assert table.columns.tolist() == ["a", "b"]
    assert table["b"].tolist() == [2, 4]


def test_a_hash_in_a_sensor_name_is_no_comment(tmp_path: Path) -> None:
    table, _ = read_table(put(tmp_path, WIDE.replace(",a,b", ",#1,#2")))
    assert table.columns.tolist() == ["#1", "#2"]


def test_whole_numbers_with_holes_stay_whole_and_filled_values_keep_their_fraction(tmp_path: Path) -> None:
    text = "time,a,b\n2024-01-01,1,1.0\n2024-01-02,,2.0\n2024-01-03,3,\n"
    assert filled_copy(put(tmp_path, text), tmp_path / "o.csv") == text.replace(",,", ",7.5,").replace(
        "3,\n", "3,7.5\n"
    )


def test_huge_integers_are_not_squeezed_into_floats(tmp_path: Path) -> None:
    text = f"time,a,b\n2024-01-01,{2**60 + 1},1\n2024-01-02,5,2\n"
    assert filled_copy(put(tmp_path, text), tmp_path / "out.csv") == text


def test_leading_zeros_of_sensor_names_survive(tmp_path: Path) -> None:
    assert read_table(put(tmp_path, WIDE.replace("a,b", "001001,2")))[0].columns.tolist() == ["001001", "2"]


SPACED = """  date       time      a      b
2024-01-01 00:00    1.5  4
2024-01-01 01:00     NA  5
2024-01-01 02:00   3.25  -6
"""


@pytest.mark.parametrize("name", ["readings.txt", "readings.dat"])
def test_columns_may_be_separated_by_any_number_of_spaces(tmp_path: Path, name: str) -> None:
    path = put(tmp_path, SPACED, name)
    table, form = read_table(path)
    assert table.index.equals(pd.date_range("2024-01-01", periods=3, freq="h"))
    assert table["a"].fillna(-1).tolist() == [1.5, -1, 3.25]
    write_table(table, tmp_path / ("out" + path.suffix), like=form)
    written = (tmp_path / ("out" + path.suffix)).read_text()
    assert [line.split() for line in written.splitlines()] == [line.split() for line in SPACED.splitlines()]
    pd.testing.assert_frame_equal(read_table(tmp_path / ("out" + path.suffix))[0], table)
    assert "line 3, column 'b': 'wet' is not a number" in problem(put(tmp_path, SPACED.replace("NA  5", "NA  wet")))


def test_a_single_space_stands_between_empty_cells_too(tmp_path: Path) -> None:
    text = "time a b\n2024-01-01 1.5 4.5\n2024-01-02  5.5\n2024-01-03 3.5 \n"
    table, form = read_table(put(tmp_path, text))
    assert table["a"].fillna(-1).tolist() == [1.5, -1, 3.5]
    write_table(table, tmp_path / "out.csv", like=form)
    assert (tmp_path / "out.csv").read_text() == text


# --- mistakes in text files ---


def test_a_text_among_numbers_is_named_with_line_column_and_text(tmp_path: Path) -> None:
    text = "# lab\ntime,a,b\n2024-01-01,1,2\n\n2024-01-02,broken,2\n2024-01-03,worse,2\n"
    assert "readings.csv, line 5, column 'a': 'broken' is not a number" in problem(put(tmp_path, text))
    text = "time,a,b\n2024-01-01,True,2\n2024-01-02,False,2\n"
    assert "line 2, column 'a': 'True' is not a number" in problem(put(tmp_path, text))


def test_the_remedy_for_a_text_fits_the_column(tmp_path: Path) -> None:
    text = "time,a,my note\n2024-01-01,1,fine\n2024-01-02,broken,\n2024-01-03,1,rain\n"
    with pytest.raises(ProblemsError) as caught:
        read_table(put(tmp_path, text))
    number, note = caught.value.problems
    assert number.endswith(
        "'broken' is not a number; leave the cell empty for a hole, "
        "or skip the column with --ignore-column a (ignore_columns=)"
    )
    assert note.startswith("readings.csv, line 2, column 'my note': 'fine' is not a number, nor is anything else")
    assert note.endswith("looks like a column of notes, skip it with --ignore-column 'my note' (ignore_columns=)")


def test_three_different_texts_of_a_column_are_named_and_the_others_counted(tmp_path: Path) -> None:
    def told(*cells: str) -> str:
        rows = "".join(f"2024-01-{day + 1:02d},{cell},2\n" for day, cell in enumerate(cells))
        return problem(put(tmp_path, "time,a,b\n" + rows))

    empty = "; leave the cells empty for holes, or skip the column with --ignore-column a"
    assert f"line 2, column 'a': 'x' is not a number, nor is 'y' (line 5){empty}" in told("x", "1", "x", "y")
    assert f"'x' is not a number, nor are 'y' (line 4) and 'z' (line 5){empty}" in told("x", "1", "y", "z")
    assert "nor are 'y' (line 4), 'z' (line 5) and another text; leave" in told("x", "1", "y", "z", "u")
    assert "nor are 'y' (line 4), 'z' (line 5) and 2 other texts; leave" in told("x", "1", "y", "z", "u", "v")


def test_a_column_without_a_name_is_named_by_its_number(tmp_path: Path) -> None:
    told = problem(put(tmp_path, "time,a,,b\n2024-01-01,1,wet,2\n2024-01-02,1,dry,2\n"))
    assert "line 2, column number 3, which has no name: 'wet' is not a number, nor is anything else" in told
    assert told.endswith("give it a name in the header and skip it with --ignore-column NAME (ignore_columns=)")


def test_texts_and_a_bad_stamp_are_told_together(tmp_path: Path) -> None:
    with pytest.raises(ProblemsError) as caught:
        read_table(put(tmp_path, "time,a,b\n2024-01-01,broken,2\nsoon,3,2\n2024-01-03,4,2\n"))
    text, stamp = caught.value.problems
    assert "'broken' is not a number" in text
    assert "'soon' is not a time stamp" in stamp


def test_a_list_for_problems_lets_the_rest_of_the_table_be_read(tmp_path: Path) -> None:
    problems: list[str] = []
    table, _ = read_table(put(tmp_path, WIDE.replace("3.25", "broken")), problems=problems)
    assert len(problems) == 1
    assert table["a"].fillna(-1).tolist() == [1.5, -1, -1]
    assert table["b"].tolist() == [4, 5, 6]


def test_one_text_in_many_columns_is_one_problem(tmp_path: Path) -> None:
    names = ",".join("abcdef")
    text = f"time,{names}\n2024-01-01{',1' * 5},???\n2024-01-02{',???' * 6}\n2024-01-03{',1' * 6}\n"
    told = problem(put(tmp_path, text))
    assert "line 2, column 'f': '???' is not a number, in 6 columns ('a', 'b', 'c', 'd', 'e', 'f'); leave" in told


def test_many_different_texts_are_told_at_once_but_not_endlessly(tmp_path: Path) -> None:
    header = "time," + ",".join(f"s{i}" for i in range(15))
    row = ",".join(f"x{i}" for i in range(15))
    with pytest.raises(ProblemsError) as caught:
        read_table(put(tmp_path, f"{header}\n2024-01-01,{row}\n"))
    assert len(caught.value.problems) == 11
    assert caught.value.problems[-1] == "and 5 more texts like these"


@pytest.mark.parametrize(
    "titles",
    ["Air quality, Berlin\n", "Air quality\nmade in 2024\n", "Air quality,,\n,,\n", '"Air, quality, Berlin"\n'],
)
def test_title_lines_above_the_header_are_skipped_told_and_come_back(
    tmp_path: Path, titles: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = put(tmp_path, titles + WIDE)
    with caplog.at_level("INFO", logger="casper"):
        table, _ = read_table(path)
    assert table.columns.tolist() == ["a", "b"]
    lines = {1: "1 line", 2: "2 lines"}[titles.count("\n")]
    assert f"skipped {lines} above the header, such as" in caplog.text
    assert filled_copy(path, tmp_path / "out.csv") == titles + WIDE.replace(",,", ",7.5,")
    assert filled_copy(path, tmp_path / "out.tsv").startswith("time\ta")


def test_title_lines_do_not_hide_the_separator_or_the_line_of_a_mistake(tmp_path: Path) -> None:
    text = "Messwerte\r\nStation;Süd\r\n\r\nZeit;a;b\r\n31.12.2023 23:00;1,5;4,5\r\n01.01.2024 00:00;{};5,5\r\n"
    table, _ = read_table(put(tmp_path, text.format("2,5")))
    assert table["a"].tolist() == [1.5, 2.5]
    assert "line 6, column 'a': 'x' is not" in problem(put(tmp_path, text.format("x")))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty"),
        ("\n \n", "nothing but blank lines"),
        ("time,a,b\n", "has no rows below its header"),
        ("time,a,b\n2024-01-01,1,2\n2024-01-02,1,2,3\n", "line 3: 4 fields where the header has 3"),
        ("time,a,b\n2024-01-01,1,2,3\n2024-01-02,1,2,3\n", "line 2: 4 fields where the header has 3"),
        ('time,a,b\n2024-01-01,1,2\n2024-01-02,"1,2\n', "line 3: 2 fields where the header has 3"),
        ('time,a,b\n2024-01-01,1,2\n2024-01-02,1,"2\n', "readings.csv cannot be read: "),
        ("station,time,value\nx,2024-01-01,1,2\ny,2024-01-01,1,2\n", "line 2: 4 fields where the header has 3"),
        ("time,,\n", "has no rows below its header"),
        ("time\n2024-01-01 12:00\n", "a single column found; columns are separated by comma"),
        ("x" * 200_000 + ",y\n", "readings.csv cannot be read as a table"),
        (
            "2024-01-01,1,2\n2024-01-02,1,2\n",
            "line 1: expected column names, found '2024-01-01'; the header is missing",
        ),
        (" 01-JAN-2012 00:00,Sunday,4\n 01-JAN-2012 01:00,Sunday,4\n", "names, found '01-JAN-2012 00:00'; the header"),
        (b"PK\x03\x04\x00\x00junk", "is not a text file"),
    ],
)
def test_damaged_text_files_are_refused(tmp_path: Path, content: str | bytes, words: str) -> None:
    assert words in problem(put(tmp_path, content))


def test_damaged_gzip_files_are_refused(tmp_path: Path) -> None:
    assert "cannot be read" in problem(put(tmp_path, b"no gzip", "r.csv.gz"))
    assert "cannot be read" in problem(put(tmp_path, gzip.compress(WIDE.encode())[:-9], "r.csv.gz"))
