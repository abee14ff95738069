"""The report: one HTML file that needs nothing but a browser, neither a network nor anything beside it.

The charts' library and their numbers lie in the page compressed, and the page unpacks them itself. A reader without
scripts still has the sentences and the tables.
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
from collections.abc import Sequence
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from casper.causal import CausalGraph
from casper.contract import Imputer
from casper.errors import InputError, MissingPackageError
from casper.files import atomic, refuse_overwriting
from casper.filling import Filling
from casper.frame import SensorFrame
from casper.frame.months import months_of
from casper.report.coverage import coverage
from casper.report.page_text import page_text, zone_words
from casper.report.report_data import ReportData, gather
from casper.report.series import shown_series
from casper.report.words import duration

SUFFIXES = (".html", ".htm")
# In this order: later ones use what earlier ones define.
_SCRIPTS = ("common.js", "coverage.js", "errors.js", "series.js", "labels.js", "network.js", "attention.js", "start.js")


def write_report(
    path: str | Path,
    model: Imputer,
    table: pd.DataFrame | Filling,
    *,
    sensors: pd.DataFrame | None = None,
    name: str = "the table",
    unit: str = "",
    series: Sequence[str] = (),
    graph: CausalGraph | None = None,
    file: Path | None = None,
    command: str | None = None,
    freq: str | None = None,
    timezone: str | None = None,
    missing_values: Sequence[float] | None = None,
    force: bool = False,
) -> Path:
    """Fill the table and write a page about it: what was filled, how well, and what it was drawn from.

    table: or what `model.fill(model.to_frame(table), intervals=(0.5, 0.9))` made of it, so that it is not filled again.
    sensors: id, latitude, longitude, for the map; without them the sensors stand in a circle. name, unit: of the
    readings, as the page calls them. series: sensors whose series the page must hold, if it cannot hold all. graph: the
    model's causal graph of this table, if it is already there. file, command: for the recipe at the page's end.
    """
    path = Path(path)
    refuse_report(path, force=force)
    data = gather(
        model,
        table,
        name=name,
        unit=unit,
        sensors=sensors,
        series=series,
        graph=graph,
        file=file,
        command=command,
        freq=freq,
        timezone=timezone,
        missing_values=missing_values,
    )
    page = render(data)
    with atomic(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def refuse_report(path: Path, *, force: bool) -> None:
    """Whatever would keep the page from being written is told before the work is done."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: a report is written as {' or '.join(SUFFIXES)}; give the file such an ending")
    refuse_overwriting(path, force=force)
    _library()


def render(data: ReportData) -> str:
    """The same data give the same page, byte for byte."""
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_page_file("report.html"))
    numbers = chart_data(data)
    return template.render(
        **page_text(data),
        style=_page_file("style.css"),
        scripts="\n".join(_page_file(script) for script in _SCRIPTS),
        library=_library(),
        numbers=_packed(json.dumps(numbers, separators=(",", ":"), allow_nan=False)),
        shown_series=len(numbers["series"]["sensors"]),
        first_shown=data.frame.times[numbers["series"]["first"]],
        all_steps_shown=numbers["series"]["first"] == 0,
        bins=_bins(data, numbers["coverage"]),
    )


def chart_data(data: ReportData) -> dict[str, Any]:
    """What the page's scripts draw."""
    by_sensor = {} if data.check is None else data.check.by_sensor
    number = {sensor: place for place, sensor in enumerate(data.frame.sensors)}
    return {
        "sensors": list(data.frame.sensors),
        "unit": data.unit,
        "clock": {
            "start": data.frame.times[0].tz_localize(None).isoformat(),
            "step": data.frame.step.total_seconds(),
            "times": _uneven_times(data.frame),
            "steps": len(data.frame.times),
            "zone": zone_words(data),
            "words": duration(data.frame.step),
        },
        "coverage": coverage(data.frame.observed, data.filled.flagged.to_numpy(dtype=bool)),
        "errors": [
            [number[sensor], one.cells, float(f"{one.mae:.4g}"), float(f"{one.mae_of_linear:.4g}")]
            for sensor, one in by_sensor.items()
        ],
        "series": shown_series(data.frame, data.filled, wanted=data.wanted_series),
        "network": data.network,
        "values": data.values,
        "gates": data.has_gates,
    }


def _uneven_times(frame: SensorFrame) -> list[int] | None:
    """Milliseconds since 1970 of every step of months, quarters or years; steps of a fixed length can be counted."""
    if months_of(frame.step) is None:
        return None
    return (frame.times.tz_localize(None).as_unit("ms").asi8).tolist()


def _bins(data: ReportData, borders: dict[str, Any]) -> dict[str, Any]:
    """How many cells of the table a cell of the heat map stands for, at most."""
    steps, sensors = (max(b - a for a, b in pairwise(borders[axis])) for axis in ("times", "sensors"))
    return {"steps": steps, "sensors": sensors, "duration": duration(data.frame.step, steps)}


def _page_file(name: str) -> str:
    return (resources.files("casper.report") / "page" / name).read_text(encoding="utf-8")


@functools.cache
def _library() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingPackageError("plotly", extra="report", purpose="A report") from error
    return _packed(get_plotlyjs())


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=9, mtime=0)).decode("ascii")
