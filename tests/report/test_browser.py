"""The report in a real browser: the system's Chromium, driven by Playwright, at the width of a desk and of a phone."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from report_cases import banded

from casper.imputer import Casper
from casper.report.html import write_report
from casper.simulate import Simulation, simulate

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytest.importorskip("plotly", reason="the optional package plotly is not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")

_CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(_CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")

_ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
DESK, PHONE = 1280, 390
_PATIENCE_MS = 60_000


@dataclass
class Opened:
    """A page and everything it complained about or asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list[str])
    requests: list[str] = field(default_factory=list[str])

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def count(self, selector: str) -> int:
        return self.page.locator(selector).count()

    def wait_until(self, condition: str) -> None:
        """Playwright's own way would evaluate texts within the page, which the page forbids."""
        for _ in range(_PATIENCE_MS // 50):
            if self.page.evaluate(condition):
                return
            self.page.wait_for_timeout(50)
        pytest.fail(f"never true: {condition}")


Open = Callable[..., AbstractContextManager[Opened]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=_CHROMIUM, args=list(_ARGUMENTS))
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's."""
    made = simulate(sensors=24, steps=2160, seed=0)
    model = Casper.from_pretrained("demo", device="cpu")
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_report(path, model, made.table, sensors=made.sensors, name="readings.csv", unit="ug/m3")


@pytest.fixture
def opened(browser: Browser) -> Open:
    """Opens a file and waits until all its charts are drawn; afterwards it must not have complained."""

    @contextmanager
    def open_page(
        path: Path, *, width: int = DESK, before: str = "", ready: bool = True, **options: Any
    ) -> Iterator[Opened]:
        context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, **options)
        shown = Opened(context.new_page())
        shown.page.on("console", lambda told: shown.complaints.append(told.text) if told.type != "log" else None)
        shown.page.on("pageerror", lambda error: shown.complaints.append(str(error)))
        shown.page.on("request", lambda asked: shown.requests.append(asked.url))
        if before:
            shown.page.add_init_script(before)
        shown.page.set_default_timeout(_PATIENCE_MS)
        shown.page.goto(path.as_uri())
        if ready:
            shown.page.wait_for_selector("html[data-ready]")
        yield shown
        context.close()
        assert shown.complaints == []
        assert [url for url in shown.requests if not url.startswith(("file:", "data:"))] == []
        assert len([url for url in shown.requests if url.startswith("file:")]) == 1, "the page itself and no other file"

    return open_page


@pytest.mark.parametrize("width", [DESK, PHONE])
def test_it_opens_from_disk_with_all_charts_and_without_any_request(opened: Open, report: Path, width: int) -> None:
    with opened(report, width=width) as shown:
        for chart in ("coverage", "errors", "series", "map", "value"):
            assert shown.count(f"#{chart}-chart svg.main-svg") > 0, chart
        widest = shown.page.evaluate("document.documentElement.scrollWidth")
        assert widest <= width, "the page must not scroll sideways"
        for control in shown.page.locator("select, button, input").all():
            box = control.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width, control.get_attribute("id")


def test_every_control_has_a_name_for_those_who_do_not_see_it(opened: Open, report: Path) -> None:
    with opened(report) as shown:
        told = shown.page.context.new_cdp_session(shown.page).send("Accessibility.getFullAXTree")
        roles = ("button", "combobox", "slider", "checkbox")
        nodes = [node for node in told["nodes"] if node.get("role", {}).get("value") in roles]
        names = [(node["role"]["value"], node["name"]["value"]) for node in nodes]
        assert len(names) == shown.page.locator("button, select, input").count()
        assert [role for role, name in names if not name.strip()] == []
        assert ("slider", "Weight at least") in names
        shown.page.fill("#map-least", "7")
        assert shown.page.get_attribute("#map-least", "aria-valuetext") == "7%"


@pytest.mark.parametrize("width", [DESK, PHONE])
def test_every_control_of_the_series_does_what_it_says(opened: Open, report: Path, width: int) -> None:
    with opened(report, width=width) as shown:
        page = shown.page

        def period() -> tuple[float, float]:
            first, last = page.evaluate("document.getElementById('series-chart').layout.xaxis.range")
            return float(first), float(last)

        begun = period()
        page.select_option("#series-sensor", label="S05")
        assert shown.text("#series-note").startswith("S05: ")
        assert period() != begun
        for button, longer in (("zoom-in", False), ("zoom-out", True)):
            before = period()
            page.click(f"#{button}")
            after = period()
            assert (after[1] - after[0] > before[1] - before[0]) is longer
        before = period()
        page.click("#later")
        assert period()[0] > before[0]
        page.click("#earlier")
        assert period() == pytest.approx(before)
        page.click("#gap-before")
        assert period()[0] < before[0]
        page.click("#gap-after")
        page.click("#whole")
        hours = (period()[1] - period()[0]) / 3_600_000
        assert hours == 2159


def test_dragging_over_a_part_of_the_series_zooms_in_and_a_double_click_goes_back(opened: Open, report: Path) -> None:
    with opened(report) as shown:
        page = shown.page
        page.click("#whole")
        page.locator("#series-chart").scroll_into_view_if_needed()
        box = page.locator("#series-chart .nsewdrag").bounding_box()
        assert box is not None
        length = "(([a, b]) => b - a)(document.getElementById('series-chart').layout.xaxis.range)"
        before = page.evaluate(length)
        middle = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + 0.3 * box["width"], middle)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.5 * box["width"], middle, steps=5)
        page.mouse.up()
        shown.wait_until(f"{length} < {0.3 * before}")
        page.mouse.dblclick(box["x"] + 0.5 * box["width"], middle)
        shown.wait_until(f"Math.abs({length} - {before}) < 1")


@pytest.mark.parametrize("width", [DESK, PHONE])
def test_the_map_obeys_threshold_and_choice(opened: Open, report: Path, width: int) -> None:
    arrows = "document.getElementById('map-chart').data.find((trace) => trace.marker?.symbol === 'arrow').x.length"
    with opened(report, width=width) as shown:
        page = shown.page
        usual = page.evaluate(arrows)
        page.fill("#map-least", "2")
        assert page.evaluate(arrows) > usual
        assert shown.text("#map-least-shown") == "2%"
        page.fill("#map-least", "30")
        assert 0 < page.evaluate(arrows) < usual
        page.fill("#map-least", "1")
        page.select_option("#map-sensor", label="causes of S07")
        assert 1 <= page.evaluate(arrows) <= 8
        told = shown.text("#map-note")
        assert told.startswith("S07 is filled from: its own readings at other times ")
        page.set_checked("#map-shut", checked=True)
        page.select_option("#map-sensor", label="all sensors")
        assert "shut out" in shown.text("#map-key")
        page.set_checked("#map-shut", checked=False)
        assert "shut out" not in shown.text("#map-key")
        for button in ("#map-in", "#map-in", "#map-out"):
            page.click(button)
        assert page.evaluate(arrows) > 0


def test_pointing_at_an_arrow_or_a_cell_tells_about_it(opened: Open, report: Path) -> None:
    spot = """() => {
        const chart = document.getElementById("map-chart");
        const spots = chart.data.find((trace) => trace.marker?.opacity === 0);
        chart.scrollIntoView({ block: "center" });
        const box = chart.getBoundingClientRect();
        return { x: box.x + spots.x[0], y: box.y + spots.y[0], words: spots.text[0] };
    }"""
    with opened(report) as shown:
        page = shown.page
        found = page.evaluate(spot)
        page.mouse.move(found["x"], found["y"])
        page.wait_for_selector("#map-chart .hoverlayer .hovertext")
        words = shown.page.locator("#map-chart .hoverlayer").text_content() or ""
        assert "→" in words
        assert "is filled from" in words
        for chart, expected in (("coverage", "measured"), ("errors", "hidden readings"), ("value", "%")):
            place = page.locator(f"#{chart}-chart .nsewdrag").first
            place.scroll_into_view_if_needed()
            box = place.bounding_box()
            assert box is not None
            if chart == "errors":
                dot = page.locator("#errors-chart .points path").first.bounding_box()
                assert dot is not None
                page.mouse.move(dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2)
            else:
                page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
            page.wait_for_selector(f"#{chart}-chart .hoverlayer .hovertext")
            assert expected in (page.locator(f"#{chart}-chart .hoverlayer").text_content() or "")


def test_a_click_on_a_sensor_chooses_it(opened: Open, report: Path) -> None:
    dot = """() => {
        const chart = document.getElementById("map-chart");
        const sensors = chart.data[chart.data.length - 1];
        chart.scrollIntoView({ block: "center" });
        const box = chart.getBoundingClientRect();
        return [box.x + sensors.x[4], box.y + sensors.y[4]];
    }"""
    with opened(report) as shown:
        for chosen, told in (("4", "S05 is filled from"), ("-1", "")):  # and once more for all sensors
            x, y = shown.page.evaluate(dot)
            shown.page.mouse.click(x + 2, y)
            shown.wait_until(f"document.getElementById('map-sensor').value === '{chosen}'")
            assert told in shown.text("#map-note")


def test_the_pointer_over_a_filled_value_is_not_told_the_reading_beside_it(opened: Open, report: Path) -> None:
    spot = """() => {
        const chart = document.getElementById("series-chart");
        chart.scrollIntoView({ block: "center" });
        const { xaxis, yaxis } = chart._fullLayout;
        const words = chart.data[chart.data.length - 1].customdata;
        const step = words.findIndex((told, at) => told.startsWith("filled") && words[at - 1]?.startsWith("measured"));
        const { x, y } = chart.data[chart.data.length - 1];
        const box = chart.getBoundingClientRect();
        return [box.x + xaxis._offset + xaxis.d2p(x[step]), box.y + yaxis._offset + yaxis.d2p(y[step]), words[step]];
    }"""
    with opened(report) as shown:
        x, y, words = shown.page.evaluate(spot)
        shown.page.mouse.move(x, y)
        shown.page.wait_for_selector("#series-chart .hoverlayer .hovertext")
        told = shown.page.locator("#series-chart .hoverlayer").text_content() or ""
        assert words in told
        assert "measured" not in told


def test_a_tap_tells_a_value_and_leaves_the_period_as_it_is(opened: Open, report: Path) -> None:
    period = "document.getElementById('series-chart').layout.xaxis.range"
    with opened(report, width=PHONE, has_touch=True, is_mobile=True) as shown:
        page = shown.page
        before = page.evaluate(period)
        page.locator("#series-chart").scroll_into_view_if_needed()
        box = page.locator("#series-chart .nsewdrag").bounding_box()
        assert box is not None
        page.touchscreen.tap(box["x"] + 0.4 * box["width"], box["y"] + 0.4 * box["height"])
        page.wait_for_selector("#series-chart .hoverlayer .hovertext")
        page.wait_for_timeout(500)
        assert page.evaluate(period) == before


def test_zooming_the_map_leads_to_sensors_and_names_all_that_have_room(opened: Open, report: Path) -> None:
    in_view = """(() => {
        const chart = document.getElementById("map-chart");
        const { x, y } = chart.data[chart.data.length - 1];
        const { width, height } = chart.layout;
        return x.filter((at, sensor) => at > 0 && at < width && y[sensor] > 0 && y[sensor] < height).length;
    })()"""
    names = "document.getElementById('map-chart').data.find((trace) => trace.textposition).text.length"
    with opened(report) as shown:
        for button in ("#map-in", "#map-in", "#map-in", "#map-in", "#map-out", "#map-out", "#map-out", "#map-out"):
            shown.page.click(button)
            assert shown.page.evaluate(in_view) > 0
            assert shown.count("#map-chart .textpoint") == shown.page.evaluate(names)
        assert shown.page.evaluate(in_view) == 24


def test_another_value_can_be_looked_into(opened: Open, report: Path) -> None:
    with opened(report) as shown:
        first = shown.text("#value-words")
        shown.page.select_option("#value-chosen", index=3)
        assert shown.text("#value-words") != first
        assert "Drawn most from" in shown.text("#value-words")


def test_the_theme_follows_the_system_and_can_be_switched(opened: Open, report: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    ink = "document.getElementById('series-chart').layout.font.color"
    with opened(report, color_scheme="dark") as shown:
        page = shown.page
        dark = (page.evaluate(ground), page.evaluate(ink))
        page.click("#theme")
        light = (page.evaluate(ground), page.evaluate(ink))
        assert dark[0] != light[0]
        assert dark[1] != light[1], "charts follow, too"
        page.emulate_media(color_scheme="light")
        page.emulate_media(color_scheme="dark")
        assert page.evaluate(ground) == light[0], "what the reader chose stays"


def test_everything_can_be_reached_and_changed_with_the_keyboard(opened: Open, report: Path) -> None:
    with opened(report) as shown:
        page = shown.page
        reached: set[str] = set()
        page.locator("#theme").focus()
        for _ in range(60):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.id"))
        controls = {
            control.get_attribute("id") for control in page.locator("main select, main button, main input").all()
        }
        disabled = {control.get_attribute("id") for control in page.locator("main :disabled").all()}
        assert controls - disabled <= reached
        page.locator("#map-least").focus()
        before = shown.text("#map-least-shown")
        page.keyboard.press("ArrowRight")
        assert shown.text("#map-least-shown") != before
        page.locator("#map-sensor").focus()
        page.keyboard.press("ArrowDown")
        shown.wait_until("document.getElementById('map-note').textContent.includes('S01 is filled from')")


def test_it_prints_in_light_colours_and_is_as_before_afterwards(opened: Open, report: Path) -> None:
    with opened(report, color_scheme="dark") as shown:
        page = shown.page
        assert len(page.pdf(format="A4")) > 50_000
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate("document.documentElement.dataset.theme") == "light"
        assert page.evaluate("document.getElementById('map-chart').layout.width") < 700, "as wide as paper"
        assert page.evaluate("document.getElementById('coverage-chart').layout.height") <= 480, "on the first page"
        for hint in ("drag", "click", "Choose"):
            assert hint not in shown.text("#series-note") + shown.text("#map-note"), "paper does not move"
        page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        assert page.evaluate("document.getElementById('map-chart').layout.width") > 900


def test_charts_follow_the_width_of_the_window(opened: Open, report: Path) -> None:
    with opened(report) as shown:
        shown.page.set_viewport_size({"width": 700, "height": 900})
        shown.wait_until("document.getElementById('coverage-chart').layout.width < 700")
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= 700


def test_a_browser_that_cannot_unpack_shows_the_words_and_says_so(opened: Open, report: Path) -> None:
    with opened(report, before="delete window.DecompressionStream", ready=False) as shown:
        shown.page.wait_for_selector("#trouble:not([hidden])")
        assert "too old to unpack" in shown.text("#trouble")
        assert shown.page.locator("#series-chart").is_hidden()
        assert "CASPER filled" in shown.text(".lead")


def test_without_scripts_the_words_and_tables_are_there(opened: Open, report: Path) -> None:
    with opened(report, ready=False, java_script_enabled=False) as shown:
        assert "charts need JavaScript" in shown.text("noscript")
        assert shown.count("#quality table") == 2


def test_names_with_markup_and_a_silent_sensor_are_drawn_as_they_are(
    opened: Open, six_sensors: Simulation, tiny_settings: dict[str, Any], tmp_path: Path
) -> None:
    names = ['<b>&"x', "</script>", "%{y}", "dead", "a long name that goes on and on", "Zürich 上海"]
    table = six_sensors.table.set_axis(names, axis=1).assign(dead=np.nan)
    model = Casper(device="cpu", **{**tiny_settings, "epochs": 1, "include_self": False}).fit(table)
    with opened(write_report(tmp_path / "odd.html", model, table), width=PHONE) as shown:
        axis = shown.page.locator("#coverage-chart .ytick text").all_text_contents()
        assert axis[0] == names[0]
        assert axis[1] == names[1]
        shown.page.select_option("#series-sensor", label="dead")
        shown.page.select_option("#map-sensor", label=f"causes of {names[0]}")
        assert names[0] in shown.text("#map-note")
        assert "its own readings" not in shown.text("#map-note"), "this model has no arrows from a sensor to itself"


def test_among_many_sensors_the_map_goes_to_the_chosen_one_and_back(
    opened: Open, tiny_settings: dict[str, Any], tmp_path: Path
) -> None:
    made = simulate(sensors=130, steps=150, seed=0)
    model = Casper(device="cpu", **{**tiny_settings, "epochs": 1}).fit(made.table, sensors=made.sensors)
    path = write_report(tmp_path / "many.html", model, made.table, sensors=made.sensors)
    spread = """(() => {
        const { x } = document.getElementById("map-chart").data.at(-1);
        return Math.max(...x) - Math.min(...x);
    })()"""
    with opened(path) as shown:
        whole = shown.page.evaluate(spread)
        shown.page.select_option("#map-sensor", index=9)
        assert shown.page.evaluate(spread) > 2 * whole
        shown.page.select_option("#map-sensor", label="all sensors")
        assert shown.page.evaluate(spread) == pytest.approx(whole)


@pytest.mark.parametrize("width", [DESK, PHONE])
def test_a_crowded_sensor_and_its_causes_are_brought_apart_and_named(
    opened: Open, tiny_settings: dict[str, Any], tmp_path: Path, width: int
) -> None:
    """Eight stations within a town, as many all over a country."""
    made = simulate(sensors=16, steps=150, seed=0)
    places = made.sensors.copy()
    where = ["latitude", "longitude"]
    town, country = np.arange(8), np.arange(8, 16)
    places.loc[town, where] = 45 + np.stack([town % 3, town // 3], axis=1) * 0.03
    places.loc[country, where] = 45 + np.stack([country % 3 - 1, country // 3 - 4], axis=1) * 1.5
    model = Casper(device="cpu", **{**tiny_settings, "epochs": 1}).fit(made.table, sensors=places)
    path = write_report(tmp_path / "crowded.html", model, made.table, sensors=places)
    drawn = """(() => {
        const { data } = document.getElementById("map-chart");
        const { x } = data.at(-1);
        return { spread: Math.max(...x) - Math.min(...x), names: data.find((trace) => trace.textposition).text };
    })()"""
    with opened(path, width=width) as shown:
        page = shown.page
        whole = page.evaluate(drawn)
        page.fill("#map-least", "1")
        page.select_option("#map-sensor", value="0")
        closer = page.evaluate(drawn)
        assert closer["spread"] > 2 * whole["spread"]
        told = [name for name in made.table if name in shown.text("#map-note")]
        assert len(told) > 2
        assert set(told) <= set(closer["names"])
        page.select_option("#map-sensor", value="-1")
        assert page.evaluate(drawn)["spread"] == pytest.approx(whole["spread"])


def test_a_table_without_holes_and_a_model_without_arrows_are_drawn(
    opened: Open, six_sensors: Simulation, tmp_path: Path
) -> None:
    table = six_sensors.complete
    with opened(write_report(tmp_path / "full.html", banded(table), table)) as shown:
        assert shown.count(".empty") == 2
        assert shown.page.locator("#gap-after").is_disabled()
        shown.page.click("#zoom-in")


def test_months_stand_where_the_calendar_has_them(opened: Open, tmp_path: Path) -> None:
    times = pd.date_range("2000-01-01", periods=120, freq="MS")
    values = np.random.default_rng(0).random((120, 3)) + np.sin(np.arange(120) * np.pi / 6)[:, None] + 5.0
    values[30:40, 1] = np.nan
    table = pd.DataFrame(values, index=times, columns=list("abc"))
    path = write_report(tmp_path / "months.html", banded(table), table, name="months.csv")
    with opened(path) as shown:
        x = shown.page.evaluate("document.getElementById('series-chart').data.at(-1).x")
        assert set(pd.to_datetime(x, unit="ms")) <= set(times), "on the first of the month"
        chart = shown.page.locator("#series-chart")
        shown.page.evaluate(
            "Plotly.relayout('series-chart', {'xaxis.range[0]': '2002-02-20', 'xaxis.range[1]': '2003-06-10'})"
        )
        shown.page.wait_for_timeout(200)
        assert "2002-03-01 00:00 to 2003-06-01 00:00" in (chart.get_attribute("aria-label") or "")
        assert "steps of 1 month" in shown.text("body")
