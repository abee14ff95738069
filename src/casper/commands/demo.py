"""The demo: a simulated network, shipped weights, the truth to compare with, pictures, and a report."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from casper.baselines.knn import NeighbourMeanImputer
from casper.baselines.linear import LinearImputer
from casper.baselines.mean import MeanImputer
from casper.causal import CausalGraph
from casper.contract import Imputer
from casper.errors import MissingPackageError
from casper.files import atomic_folder, refuse_replacing_folder
from casper.filling import Filling
from casper.imputer import Casper
from casper.report import pictures
from casper.report.html import write_report
from casper.report.report_data import INTERVALS
from casper.simulate import simulate

_UNIT = "PM2.5, ug/m3"
_REPORT = "report.html"
FILES = {
    "filled.csv": "the table without holes",
    "readings.csv": "the table with holes",
    "sensors.csv": "the sensors' coordinates",
    "gaps.png": "where readings are missing",
    "filled.png": "measured, filled and true values of some sensors",
    "errors.png": "the error table as a picture",
    "true_graph.png": "the sensors and the true causal arrows",
    "graph.json": "who is filled from whom, at which lag",
    "found_graph.png": "the strongest of these as arrows, to compare with the true ones",
    _REPORT: "all of it as a page: open it in a browser",
}
_WINDOWS_FOR_GRAPH = 48
_ARROWS_OF_SENSOR = 3


@dataclass(frozen=True)
class DemoResult:
    scores: pd.DataFrame
    """Index: method, best first; columns mae, rmse."""
    hidden: int
    files: dict[Path, str]
    about: str
    seconds: float


def run_demo(out: Path, *, force: bool) -> DemoResult:
    begun = time.perf_counter()
    refuse_replacing_folder(out, force=force, ours=FILES)
    # The weights named "demo" were fitted on this very table; the truth behind its holes was never seen by any method.
    made = simulate(sensors=24, steps=2160, seed=0)
    casper = Casper.from_pretrained("demo")
    filling = casper.fill(casper.to_frame(made.table), intervals=INTERVALS)
    others: dict[str, Imputer] = {
        "linear interpolation": LinearImputer().fit(made.table, sensors=made.sensors),
        "neighbour mean": NeighbourMeanImputer().fit(made.table, sensors=made.sensors),
        "sensor mean": MeanImputer().fit(made.table, sensors=made.sensors),
    }
    tables = {"CASPER": filling.table()} | {label: imputer.impute(made.table) for label, imputer in others.items()}
    hidden = made.hidden().to_numpy()
    errors = {label: (table - made.complete).to_numpy()[hidden] for label, table in tables.items()}
    scores = pd.DataFrame(
        {
            "mae": {k: np.abs(e).mean() for k, e in errors.items()},
            "rmse": {k: np.sqrt((e**2).mean()) for k, e in errors.items()},
        }
    ).sort_values("mae")
    filled = tables["CASPER"]
    graph = casper.causal_graph(made.table, windows=_WINDOWS_FOR_GRAPH)
    title = "Filled by CASPER"
    figures = {
        "gaps.png": pictures.gap_picture(made.table.notna()),
        "filled.png": pictures.filled_picture(made.table, filled, truth=made.complete, unit=_UNIT, title=title),
        "errors.png": pictures.error_picture(scores[["mae"]], unit=_UNIT),
        "true_graph.png": pictures.map_picture(
            made.sensors, made.edges, ridge=made.ridge, title="How the simulated wind carries"
        ),
        "found_graph.png": pictures.map_picture(
            made.sensors,
            graph.pairs().top(_ARROWS_OF_SENSOR).edges,
            ridge=made.ridge,
            title="What CASPER fills each sensor from",
        ),
    }
    with atomic_folder(out, force=force, ours=FILES) as folder:
        made.table.to_csv(folder / "readings.csv")
        made.sensors.to_csv(folder / "sensors.csv", index=False)
        filled.to_csv(folder / "filled.csv")
        graph.write(folder / "graph.json")
        for name, figure in figures.items():
            pictures.save(figure, folder / name)
        no_report = _write_report(folder / _REPORT, casper, filling, made.sensors, graph)
    files = {out / name: what for name, what in FILES.items() if no_report is None or name != _REPORT}
    share = hidden.mean()
    about = f"{hidden.shape[1]} simulated stations, {hidden.shape[0]:,} hours, {share:.0%} of the readings missing."
    about += "" if no_report is None else f" There is no report: {no_report}."
    return DemoResult(scores, int(hidden.sum()), files, about, time.perf_counter() - begun)


def _write_report(path: Path, model: Casper, filling: Filling, sensors: pd.DataFrame, graph: CausalGraph) -> str | None:
    """Or why there is none."""
    try:
        write_report(
            path,
            model,
            filling,
            sensors=sensors,
            name="readings.csv",
            unit="µg/m³",
            graph=graph,
            command="casper report readings.csv --model demo --sensors sensors.csv --unit µg/m³ -o report.html",
        )
    except MissingPackageError as missing:
        return str(missing)
    return None
