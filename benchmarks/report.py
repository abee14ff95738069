"""python -m benchmarks.report: how large the pages of `casper report` are, and how long until a reader sees them.

Written and opened from disk in the system's Chromium: the demo, AQI-36 with the shipped weights, and a large simulated
network. A desk opens them as fast as this machine can; a phone is as wide as one, with a processor made slower.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

from benchmarks.measure import first_line
from benchmarks.record import Record, default_path, make_console
from benchmarks.targets import at_most
from casper.datasets import data_folder
from casper.errors import InputError
from casper.imputer import Casper
from casper.io import read_sensors, read_table
from casper.report.html import write_report
from casper.simulate import simulate

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGES = ("demo", "aqi36", "large")
MOST_BYTES = 5_000_000
VIEWS = {"desk": (1440, 1), "phone": (390, 4)}
"""Width in pixels, and how many times slower the processor is made."""
# The large network's model is hardly trained, for neither the size of a page nor the time to draw it depends on that.
BRIEF: dict[str, Any] = {
    "epochs": 1, "batches_per_epoch": 10, "width": 8, "heads": 2, "layers": 1, "feed_forward": 8, "prompts": 8,
    "validation_cells": 20_000,
}  # fmt: skip
_ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
_PATIENCE_MS = 120_000
# Writes down when the charts' library, the first chart and the last one were there, in milliseconds since the page was
# asked for.
_WATCH = """
window.seen = {};
new MutationObserver(() => {
  const note = (name, there) => { if (there && !(name in seen)) seen[name] = performance.now(); };
  note("library", window.Plotly);
  note("first_chart", document.querySelector("#coverage-chart .main-svg"));
  note("all_charts", document.documentElement?.dataset.ready);
}).observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ["data-ready"] });
"""
_SEEN = "({ words: performance.getEntriesByName('first-contentful-paint')[0].startTime, ...seen })"
# For a picture: what was done, where, the series and the map, side by side.
_SIDE_BY_SIDE = """
.bar, #quality, #value, #data, #recipe, #map > p:not(.note) { display: none }
main { max-width: none; columns: 2; column-gap: 1.2rem; padding: 0.4rem 1.2rem 1.2rem }
section { break-inside: avoid; margin-top: 0; margin-bottom: 1.2rem }
#done { padding-bottom: 0 } #series { break-before: column }
"""


@dataclass(frozen=True)
class Sizes:
    """In bytes as they lie in the file: library and numbers are compressed, words are the tables and sentences."""

    page: int
    library: int
    numbers: int
    words: int

    @classmethod
    def of(cls, page: str) -> Sizes:
        library, numbers = (
            sum(map(len, re.findall(rf'<script type="text/plain" id="{part}">([^<]*)<', page)))
            for part in ("library", "numbers")
        )
        whole = len(page.encode())
        return cls(whole, library, numbers, whole - library - numbers)


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = _parse(arguments)
    record = Record(options.out, module="benchmarks.report", arguments=arguments, seed=options.seed, device="cpu")
    console = make_console()
    with _folder(options.keep) as folder, _chromium() as browser:
        record.parts = {"browser": f"Chromium {browser.version}", "plotly": metadata.version("plotly"), "pages": []}
        for name in options.pages:
            try:
                told = _measured(name, folder / f"{name}.html", browser, options)
            except InputError as error:  # readings that are not here cost the other pages nothing
                record.failed[name] = first_line(error)
            else:
                record.parts["pages"].append(told)
            record.save(_targets(record.parts["pages"]))
            console.print(f"{record.seconds:6.1f} s ", record.failed.get(name) or record.parts["pages"][-1])
        if options.picture is not None:
            _take_picture(browser, folder / "aqi36.html", options.picture)
    return 1 if record.failed else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("--pages", nargs="+", choices=PAGES, default=list(PAGES))
    parser.add_argument("--data-dir", type=Path, help="folder with AQI-36; else CASPER_DATA")
    parser.add_argument("--sensors", type=int, default=1500, help="of the large network")
    parser.add_argument("--steps", type=int, default=720, help="of the large network, in hours")
    parser.add_argument("--repeats", type=int, default=5, help="how often a page is opened; medians are told")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder to leave the pages in")
    parser.add_argument("--picture", type=Path, help="also take a picture of the page of AQI-36, such as the README's")
    parser.add_argument("--out", type=Path, default=default_path("report", "cpu"))
    options = parser.parse_args(arguments)
    if options.picture is not None and "aqi36" not in options.pages:
        parser.error("--picture shows the page of aqi36: name it in --pages")
    return options


@contextmanager
def _folder(kept: Path | None) -> Generator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@contextmanager
def _chromium() -> Generator[Browser]:
    from playwright.sync_api import sync_playwright

    found = which("chromium")
    if found is None:
        raise InputError("there is no Chromium on this machine: apt-get install chromium")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=found, args=list(_ARGUMENTS))
        yield browser
        browser.close()


def _measured(name: str, path: Path, browser: Browser, options: argparse.Namespace) -> dict[str, Any]:
    makers: dict[str, Callable[[], dict[str, Any]]] = {
        "demo": lambda: _write_demo(path),
        "aqi36": lambda: _write_aqi36(path, data_folder(options.data_dir)),
        "large": lambda: _write_large(path, options),
    }
    told = makers[name]()
    sizes = Sizes.of(path.read_text(encoding="utf-8"))
    views = {view: _opened(browser, path, *VIEWS[view], repeats=options.repeats) for view in VIEWS}
    return {"name": name, **told, "bytes": asdict(sizes), "milliseconds": views}


def _write_demo(path: Path) -> dict[str, Any]:
    made = simulate(sensors=24, steps=2160, seed=0)
    return _write(path, Casper.from_pretrained("demo", device="cpu"), made.table, sensors=made.sensors)


def _write_aqi36(path: Path, folder: Path) -> dict[str, Any]:
    file = folder / "aqi36.parquet"
    table, _ = read_table(file)
    model = Casper.from_pretrained("aqi36", device="cpu")
    told = "casper report aqi36.parquet --model aqi36 --sensors aqi36_stations.csv --unit µg/m³ -o report.html"
    places = read_sensors(folder / "aqi36_stations.csv")
    return _write(path, model, table, sensors=places, name=file.name, file=file, command=told)


def _write_large(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    made = simulate(sensors=options.sensors, steps=options.steps, seed=options.seed)
    model = Casper(preset="fast", seed=options.seed, device="cpu", **BRIEF).fit(made.table, sensors=made.sensors)
    return _write(path, model, made.table, sensors=made.sensors)


def _write(path: Path, model: Casper, table: Any, *, name: str = "readings.csv", **report: Any) -> dict[str, Any]:
    begun = time.perf_counter()
    write_report(path, model, table, name=name, unit="µg/m³", force=True, **report)
    return {
        "sensors": table.shape[1],
        "steps": table.shape[0],
        "seconds_to_write": round(time.perf_counter() - begun, 1),
    }


def _opened(browser: Browser, path: Path, width: int, slower: int, *, repeats: int) -> dict[str, Any]:
    """Medians: until words and tables are there, the charts' library runs, the first chart is there, all charts are."""
    seen: list[dict[str, float]] = []
    for _ in range(repeats):
        with _page(browser, path, width, slower) as page:
            seen.append(page.evaluate(_SEEN))
    medians = {what: round(statistics.median(one[what] for one in seen)) for what in seen[0]}
    return {"width": width, "slower": slower, "opened": repeats, **medians}


@contextmanager
def _page(browser: Browser, path: Path, width: int, slower: int = 1) -> Generator[Page]:
    context = browser.new_context(viewport={"width": width, "height": 900}, offline=True)
    page = context.new_page()
    page.set_default_timeout(_PATIENCE_MS)
    page.add_init_script(_WATCH)
    if slower > 1:
        context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": slower})
    page.goto(path.resolve().as_uri())
    page.wait_for_selector("html[data-ready]")
    yield page
    context.close()


def _targets(pages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [at_most(f"page of {one['name']}", MOST_BYTES / 1e6, one["bytes"]["page"] / 1e6, "MB") for one in pages]


def _take_picture(browser: Browser, path: Path, picture: Path) -> None:
    """In few colours, which a page of charts does not miss."""
    from PIL import Image

    with _page(browser, path, 1500) as page:
        page.add_style_tag(content=_SIDE_BY_SIDE)
        page.set_viewport_size({"width": 1700, "height": 900})  # charts are drawn anew when the width changes
        page.wait_for_timeout(2_000)
        page.locator("main").screenshot(path=picture)
    with Image.open(picture) as taken:
        few = taken.convert("RGB").quantize(192, dither=Image.Dither.NONE)
    few.save(picture, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
