"""The report as a file: what is in it, and that nothing else is needed. What it looks like: test_browser.py."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from report_cases import banded, numbers_of

from casper.errors import InputError, MissingPackageError
from casper.frame import SensorFrame
from casper.imputer import Casper
from casper.report import html
from casper.report.html import write_report
from casper.simulate import Simulation

pytest.importorskip("plotly", reason="the optional package plotly is not installed")

Command = Callable[..., Any]
ODD_NAMES = ['<b>&"x', "</script>", "%{y}", "'; drop", "=1+1", "Zürich 上海"]


@pytest.fixture(scope="module")
def page(barred_casper: Casper, six_sensors: Simulation, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, barred_casper, six_sensors.table, sensors=six_sensors.sensors, name="readings.csv", unit="ug/m3")
    return path.read_text(encoding="utf-8")


@pytest.fixture
def filled_frames(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many readings each frame had that the network filled. The check of a report hides some, so it has fewer."""
    seen: list[int] = []
    fill = Casper.impute_frame

    def counted(self: Casper, frame: SensorFrame) -> np.ndarray:
        seen.append(int(frame.observed.sum()))
        return fill(self, frame)

    monkeypatch.setattr(Casper, "impute_frame", counted)
    return seen


class _Tags(HTMLParser):
    """All tags with their attributes, and the words between them but for scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._within = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._within = tag

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within not in ("script", "style") and data.strip():
            self.words.append(" ".join(data.split()))


def words_of(page: str) -> str:
    return " ".join(_Tags(page).words)


def years(sensors: int, steps: int, *, missing: float = 0.13, step: str = "1h") -> pd.DataFrame:
    random = np.random.default_rng(0)
    values = 80 + np.cumsum(random.normal(0, 3, (steps, sensors)), axis=0)
    values[random.random(values.shape) < missing] = np.nan
    times = pd.date_range("2024-01-01", periods=steps, freq=step)
    return pd.DataFrame(values.round(3), index=times, columns=[f"S{number}" for number in range(sensors)])


# ---- one file, no network


def test_nothing_is_loaded_from_anywhere(page: str) -> None:
    for tag, attributes in _Tags(page).tags:
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            link = attributes.get(name)
            assert link is None or link.startswith(("#", "data:")), f"{tag} {name}={link}"
    assert "url(" not in page.split("</style>")[0]
    assert "@import" not in page
    assert "default-src 'none'" in page, "the browser is told to refuse whatever a script might ask for"


def test_the_sections_come_in_the_order_of_a_readers_questions(page: str) -> None:
    sections = re.findall(r'<section id="(\w+)"', page)
    assert sections == ["done", "coverage", "quality", "series", "map", "value", "data", "recipe"]
    linked = [attributes["href"] for tag, attributes in _Tags(page).tags if tag == "a" and "href" in attributes]
    assert {f"#{section}" for section in sections} == set(linked)


def test_what_was_done_is_told_in_two_sentences(page: str, six_sensors: Simulation) -> None:
    lead = " ".join(re.search(r'<p class="lead">(.*?)</p>', page, re.DOTALL)[1].split())  # type: ignore[index]
    holes = int(six_sensors.table.isna().to_numpy().sum())
    assert lead.startswith(f"CASPER filled {holes} holes among the 900 cells")
    assert len(re.findall(r"\.(?: |$)", lead)) == 2
    assert "linear interpolation" in lead
    assert "90% intervals" in lead


def test_every_control_has_a_label(page: str) -> None:
    tags = _Tags(page).tags
    for tag, attributes in tags:
        if tag == "figure":
            assert attributes.get("role") == "img"
            assert attributes.get("aria-label")
    for control in ("series-sensor", "map-sensor", "map-least", "map-shut", "value-chosen"):
        assert re.search(rf"<label[^>]*>(?:(?!</label>).)*id=\"{control}\"", page, re.DOTALL), control
    for button in re.findall(r"<button([^>]*)>([^<]*)</button>", page):
        assert "aria-label" in button[0] or re.search(r"[A-Za-z]{3}", button[1]), button


def test_where_kriging_is_mixed_in_the_map_and_the_value_say_that_they_do_not_show_it(
    page: str, six_sensors: Simulation, tiny_settings: dict[str, Any], tmp_path: Path
) -> None:
    assert "kriging's estimate" not in words_of(page)
    settings = {**tiny_settings, "kriging": True, "kriging_share": 0.25}
    mixed = Casper(device="cpu", **settings).fit(six_sensors.table, sensors=six_sensors.sensors)
    for shares, told in (([0.25] * 4, "(25%)"), ([0.0, 0.1, 0.3, 0.4], "(0 to 40%, by the distance to the sensor's")):
        mixed.network.kriging_share.copy_(torch.tensor(shares))  # type: ignore[union-attr]
        written = write_report(tmp_path / "mixed.html", mixed, six_sensors.table, force=True).read_text("utf-8")
        for section in ("map", "value"):
            within = words_of(written.split(f'<section id="{section}"')[1].split("</section>")[0])
            assert f"A part of every value {told}" in within, section
            assert "is kriging's estimate, which is not shown here." in within


def test_the_recipe_names_seed_settings_versions_and_hash(page: str) -> None:
    told = words_of(page)
    for part in ("seed", "casper-impute", "torch", "SHA-256 of the readings", "validation share", "0.2", "preset"):
        assert part in told, part


def test_the_same_table_gives_the_same_page(
    barred_casper: Casper, six_sensors: Simulation, page: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"sensors": six_sensors.sensors, "name": "readings.csv", "unit": "ug/m3"}
    again = write_report(tmp_path / "again.html", barred_casper, six_sensors.table, **options)
    assert again.read_text(encoding="utf-8") == page


def test_what_is_filled_already_gives_the_same_page_and_is_not_filled_again(
    barred_casper: Casper, six_sensors: Simulation, page: str, tmp_path: Path, filled_frames: list[int]
) -> None:
    filling = barred_casper.fill(barred_casper.to_frame(six_sensors.table), intervals=(0.5, 0.9))
    options: dict[str, Any] = {"sensors": six_sensors.sensors, "name": "readings.csv", "unit": "ug/m3"}
    again = write_report(tmp_path / "again.html", barred_casper, filling, **options)
    assert again.read_text(encoding="utf-8") == page
    assert filled_frames.count(six_sensors.table.notna().to_numpy().sum()) == 1


def test_names_are_shown_as_they_are_and_never_read_as_markup(
    six_sensors: Simulation, tiny_settings: dict[str, Any], tmp_path: Path
) -> None:
    table = six_sensors.table.set_axis(ODD_NAMES, axis=1)
    model = Casper(device="cpu", **{**tiny_settings, "epochs": 1}).fit(table)
    page = write_report(tmp_path / "odd.html", model, table, name='<i>"odd"</i>.csv', unit="<u>").read_text("utf-8")
    told = words_of(page)
    assert all(name in told for name in ODD_NAMES)
    assert '<i>"odd"</i>.csv' in told
    assert ODD_NAMES[0] not in page
    assert "<i>" not in page.replace("<i class=", "")
    assert page.count("</script>") == page.count("<script")
    assert numbers_of(page)["sensors"] == ODD_NAMES


# ---- sizes


def test_a_year_of_36_hourly_sensors_stays_below_five_megabytes(tmp_path: Path) -> None:
    table = years(36, 8760)
    path = write_report(tmp_path / "year.html", banded(table), table)
    assert path.stat().st_size < 5e6
    assert len(numbers_of(path.read_text("utf-8"))["series"]["sensors"]) == 36


def test_many_sensors_at_short_steps_stay_below_five_megabytes_and_the_reader_is_told(tmp_path: Path) -> None:
    table = years(300, 6000, step="5min", missing=0.05)
    path = write_report(tmp_path / "many.html", banded(table), table, series=["S299"])
    assert path.stat().st_size < 5e6
    page = path.read_text("utf-8")
    shown = [one["sensor"] for one in numbers_of(page)["series"]["sensors"]]
    assert 299 in shown
    assert len(shown) < 300
    assert f"the series of {len(shown)} of the 300 sensors" in words_of(page)


# ---- what may be lacking


def test_without_coordinates_the_sensors_stand_in_a_circle(
    barred_casper: Casper, six_sensors: Simulation, tmp_path: Path
) -> None:
    page = write_report(tmp_path / "circle.html", barred_casper, six_sensors.table).read_text("utf-8")
    assert "No coordinates were given" in words_of(page)
    network = numbers_of(page)["network"]
    assert not network["map"]
    assert np.allclose(np.hypot(network["x"], network["y"]), 1, atol=1e-3)


def test_a_model_without_error_bars_still_gets_a_report_that_says_why(
    tiny_folder: Path, six_sensors: Simulation, tmp_path: Path
) -> None:
    model = Casper.from_pretrained(tiny_folder, device="cpu")
    model._calibration = None  # as in a folder of an earlier version
    page = write_report(tmp_path / "plain.html", model, six_sensors.table).read_text("utf-8")
    assert numbers_of(page)["series"]["shares"] == []
    assert "This model has no error bars" in words_of(page)


def test_a_method_that_does_not_tell_what_it_draws_on_has_no_arrows(tmp_path: Path) -> None:
    table = years(3, 200)
    page = write_report(tmp_path / "linear.html", banded(table), table).read_text("utf-8")
    assert numbers_of(page)["network"] is None
    assert "does not tell which sensors it draws on" in words_of(page)


def test_a_model_without_arrows_from_a_sensor_to_itself_does_not_tell_that_it_draws_nothing_from_it(
    six_sensors: Simulation, tiny_settings: dict[str, Any], tmp_path: Path
) -> None:
    model = Casper(device="cpu", **{**tiny_settings, "epochs": 1, "include_self": False}).fit(six_sensors.table)
    page = write_report(tmp_path / "apart.html", model, six_sensors.table).read_text("utf-8")
    assert numbers_of(page)["network"]["own"] is None
    assert "own readings, which the model uses as well, not counted" in words_of(page)


def test_a_sensor_that_never_reports_is_flagged_and_named(
    six_sensors: Simulation, tiny_settings: dict[str, Any], tmp_path: Path
) -> None:
    table = six_sensors.table.assign(S3=np.nan)
    model = Casper(device="cpu", **{**tiny_settings, "epochs": 1}).fit(table, sensors=six_sensors.sensors)
    for calibration in (model._calibration, None):  # with error bars and without
        model._calibration = calibration
        path = write_report(tmp_path / "dead.html", model, table, sensors=six_sensors.sensors, force=True)
        page = path.read_text("utf-8")
        assert re.search(r"<li>[^<]+: <b>S3</b>", page)
    numbers = numbers_of(page)
    assert sum(numbers["coverage"]["flagged"][2]) == len(table)
    assert "sensors that never report 1: S3" in words_of(page)
    assert all(source != 2 for source, *_ in numbers["network"]["arrows"]), "nothing is drawn from it"
    assert all(source != 2 for source, _ in numbers["network"]["shut"]), "and it is not shut out, it is silent"


def test_a_table_without_holes_has_an_empty_place_and_no_broken_chart(
    barred_casper: Casper, six_sensors: Simulation, tmp_path: Path
) -> None:
    path = write_report(tmp_path / "full.html", barred_casper, six_sensors.complete, sensors=six_sensors.sensors)
    page = path.read_text("utf-8")
    assert "CASPER filled 0 holes" in words_of(page)
    assert "no sensor that reports has a gap" in words_of(page)
    assert numbers_of(page)["values"] == []


@pytest.mark.parametrize(
    ("silent", "told"), [(0, "missing 5.0% of all cells gaps"), (1, "missing 6.0% of all cells; at 1.0% of the steps")]
)
def test_steps_at_which_no_sensor_reports_are_told_only_where_there_are_any(
    tmp_path: Path, silent: int, told: str
) -> None:
    table = years(6, 100, missing=0)
    table.iloc[20:50, 0] = np.nan
    table.iloc[60 : 60 + silent] = np.nan
    written = write_report(tmp_path / "report.html", banded(table), table).read_text(encoding="utf-8")
    assert told in words_of(written)


def test_a_model_that_is_not_fitted_is_refused(six_sensors: Simulation, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not fitted yet"):
        write_report(tmp_path / "report.html", Casper(device="cpu"), six_sensors.table)
    assert not list(tmp_path.iterdir())


def test_a_table_of_other_sensors_is_refused(barred_casper: Casper, six_sensors: Simulation, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="fitted on other sensors"):
        write_report(tmp_path / "report.html", barred_casper, six_sensors.table.rename(columns={"S1": "X"}))


def test_what_keeps_a_page_from_being_written_is_told_before_the_work(
    barred_casper: Casper, six_sensors: Simulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html, "gather", lambda *_, **__: pytest.fail("worked in vain"))
    (tmp_path / "old.html").write_text("old")
    with pytest.raises(InputError, match="exists already"):
        write_report(tmp_path / "old.html", barred_casper, six_sensors.table)
    with pytest.raises(InputError, match=r"written as \.html"):
        write_report(tmp_path / "report.pdf", barred_casper, six_sensors.table)
    with pytest.raises(InputError, match="there is no folder"):
        write_report(tmp_path / "nowhere" / "report.html", barred_casper, six_sensors.table)


def test_without_plotly_the_remedy_is_told(
    barred_casper: Casper, six_sensors: Simulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    html._library.cache_clear()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'casper-impute\[report\]'"):
        write_report(tmp_path / "report.html", barred_casper, six_sensors.table)


# ---- the commands


@pytest.fixture
def readings(tmp_path: Path, six_sensors: Simulation, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    six_sensors.sensors.to_csv("sensors.csv", index=False)
    six_sensors.table.round(3).to_csv("readings.csv", index_label="time")
    return tmp_path / "readings.csv"


def test_the_command_writes_a_page_that_names_file_and_command(
    command: Command, readings: Path, tiny_folder: Path
) -> None:
    arguments = ("report", "readings.csv", "--model", tiny_folder, "--sensors", "sensors.csv", "-qo", "report.html")
    told = command(*arguments, "--unit", "ug/m3", "--series", "S2")
    assert told.code == 0, told.err
    assert "Wrote report.html" in told.out
    page = Path("report.html").read_text("utf-8")
    assert "SHA-256 of readings.csv" in words_of(page)
    assert "casper report readings.csv --model model" in words_of(page)
    assert str(tiny_folder) not in page, "where files lie on this machine is nobody's business"
    again = command(*arguments)
    assert again.code == 2
    assert "exists already" in again.err


def test_imputing_can_end_with_a_page(command: Command, readings: Path, tiny_folder: Path) -> None:
    arguments = ("impute", "readings.csv", "--model", tiny_folder, "-q", "-o", "filled.csv")
    refused = command(*arguments, "--report", "report.txt")
    assert refused.code == 2
    assert not Path("filled.csv").exists(), "nothing is written before everything is checked"
    told = command(*arguments, "--report", "report.html")
    assert told.code == 0, told.err
    assert Path("filled.csv").exists()
    assert '<section id="recipe"' in Path("report.html").read_text("utf-8")


def test_imputing_with_a_page_fills_the_table_once(
    command: Command, readings: Path, tiny_folder: Path, filled_frames: list[int]
) -> None:
    table = pd.read_csv(readings, index_col="time").drop(index="2024-01-02 05:00:00")
    table.to_csv(readings)
    told = command("impute", "readings.csv", "--model", tiny_folder, "-q", "-o", "filled.csv", "--report", "page.html")
    assert told.code == 0, told.err
    assert filled_frames.count(table.notna().to_numpy().sum()) == 1
    filled = pd.read_csv("filled.csv", index_col="time")
    assert list(filled.index) == list(table.index), "the rows that came in"
    numbers = numbers_of(Path("page.html").read_text("utf-8"))
    assert numbers["clock"]["steps"] == len(table) + 1, "the page shows every step"


def test_a_page_shows_the_intervals_asked_for(
    command: Command, readings: Path, barred_casper: Casper, tmp_path: Path
) -> None:
    barred_casper.save_pretrained(tmp_path / "model")
    arguments = ("impute", "readings.csv", "--model", "model", "-q", "-o", "filled.csv", "--report", "page.html")
    told = command(*arguments, "--intervals", "0.8", "--error-bars", "bars.csv")
    assert told.code == 0, told.err
    assert "upper_0.8" in pd.read_csv("bars.csv").columns
    assert numbers_of(Path("page.html").read_text("utf-8"))["series"]["shares"] == ["0.8"]


def test_what_is_asked_for_and_not_in_the_table_is_told_before_the_work(
    barred_casper: Casper, six_sensors: Simulation, tmp_path: Path, filled_frames: list[int]
) -> None:
    with pytest.raises(InputError, match="no sensor 'S99' in the table to show the series of"):
        write_report(tmp_path / "page.html", barred_casper, six_sensors.table, series=["S99"])
    assert not filled_frames


def test_a_report_needs_a_model(command: Command, readings: Path) -> None:
    assert "--model" in command("report", "readings.csv", "-o", "report.html").err
    told = command("report", "readings.csv", "--model", "nowhere", "-o", "report.html")
    assert told.code == 2
    assert "nowhere does not exist; models that come with the package: " in told.err
    assert not Path("report.html").exists()
