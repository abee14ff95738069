"""python -m benchmarks.own_tables: how well tables like a user's are filled, by what a user would try first.

Three tables as people have them, on other steps and of other lengths than the published benchmarks: smooth weather
(simulated, every 10 minutes), traffic (a fifth of METR-LA's sensors over six weeks, averaged to 15 minutes) and air
(two months of AQI-36, none of them a test month). A fifth of the readings is hidden, 8 % at single points and 12 % in
runs of 4 to 48 steps, and scored. Every method has its default settings, the places of the sensors, and the CPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.measure import first_line
from benchmarks.record import Record, default_path, make_console
from casper.datasets import data_folder
from casper.errors import InputError
from casper.intervals.calibration import LONGEST_GAPS
from casper.intervals.scores import gap_names
from casper.masks import gap_lengths, hide_blocks, hide_points
from casper.methods import has_network, make_imputer

Table = tuple[pd.DataFrame, pd.DataFrame]
"""A row per time, a column per sensor; and the sensors' places."""
METHODS = ("linear", "knn", "mf", "mice", "kriging", "casper")
WEEKS_OF_TRAFFIC, EVERY = 6, 5
MONTHS_OF_AIR = ("2014-10-01", "2014-12-01")


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = _parse(arguments)
    record = Record(options.out, module="benchmarks.own_tables", arguments=arguments, seed=options.seed, device="cpu")
    record.parts = {"tables": {}, "scores": []}
    console = make_console()
    for name in options.tables:
        try:
            table, sensors = TABLES[name](options.data_dir, options.seed)
        except InputError as error:  # readings that are not here cost the other tables nothing
            record.failed[name] = first_line(error)
            record.save()
            continue
        hidden = _hidden(table, options.seed)
        record.parts["tables"][name] = _described(table, hidden)
        for method in options.methods:
            settings = dict(pair.split("=", 1) for pair in options.set) if method == "casper" else {}
            told = {"table": name, "method": method, **_scored(method, table, sensors, hidden, options.seed, settings)}
            record.parts["scores"].append(told)
            record.save()
            console.print(f"{record.seconds:6.1f} s ", told)
    return 1 if record.failed else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.own_tables", description=__doc__)
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--set", nargs="*", default=[], help="settings of casper, such as epochs=2, for a quick look")
    parser.add_argument("--data-dir", type=Path, help="folder with METR-LA and AQI-36; else CASPER_DATA")
    parser.add_argument("--seed", type=int, default=0, help="of the methods, the weather and the holes")
    parser.add_argument("--out", type=Path, default=default_path("own-tables", "cpu"))
    return parser.parse_args(arguments)


def _scored(
    method: str,
    table: pd.DataFrame,
    sensors: pd.DataFrame,
    hidden: NDArray[np.bool_],
    seed: int,
    settings: Mapping[str, str],
) -> dict[str, Any]:
    options: dict[str, Any] = {"seed": seed, "device": "cpu"} if has_network(method) else {}
    shown = table.mask(hidden)
    begun = time.perf_counter()
    imputer = make_imputer(method, **options, **{name: int(value) for name, value in settings.items()})
    imputer.fit(shown, sensors=sensors)
    fitted = time.perf_counter()
    error = np.abs(imputer.impute(shown).to_numpy() - table.to_numpy())
    filled = time.perf_counter()
    gap_class = np.searchsorted(LONGEST_GAPS, gap_lengths(shown.notna().to_numpy()))
    classes = {name: hidden & (gap_class == number) for number, name in enumerate(gap_names())}
    return {
        "mae": float(error[hidden].mean()),
        "by_gap": {name: float(error[cells].mean()) if cells.any() else None for name, cells in classes.items()},
        "fitting_seconds": round(fitted - begun, 1),
        "filling_seconds": round(filled - fitted, 1),
    }


def _hidden(table: pd.DataFrame, seed: int) -> NDArray[np.bool_]:
    random, observed = np.random.default_rng((seed, 1)), table.notna().to_numpy()
    points = hide_points(observed, share=0.08, rng=random)
    return points | hide_blocks(observed & ~points, share=0.12, shortest=4, longest=48, rng=random)


def _described(table: pd.DataFrame, hidden: NDArray[np.bool_]) -> dict[str, Any]:
    return {
        "sensors": table.shape[1],
        "steps": len(table),
        "step_minutes": (table.index[1] - table.index[0]) / pd.Timedelta(minutes=1),
        "missing": float(table.isna().to_numpy().mean()),
        "hidden": int(hidden.sum()),
    }


# ---------------------------------------------------------------- the tables


def _weather(folder: Path | None, seed: int, *, sensors: int = 30, days: int = 60) -> Table:  # noqa: ARG001
    """Temperatures: weather that passes over all, differences that spread over 40 and 10 km, days of changing warmth,
    and a little noise of the thermometers."""
    random = np.random.default_rng((seed, 2))
    steps, places = days * 144, random.random((sensors, 2)) * 60.0  # km
    apart = np.linalg.norm(places[:, None] - places, axis=-1)
    wide, near = (np.linalg.cholesky(np.exp(-apart / reach) + 1e-6 * np.eye(sensors)) for reach in (40.0, 10.0))
    day = np.arange(steps)[:, None] / 144
    values = (
        12.0
        + 5.0 * _smooth(random, steps, 1, memory=400)
        + 2.0 * _smooth(random, steps, sensors, memory=150) @ wide.T
        + 0.8 * _smooth(random, steps, sensors, memory=20) @ near.T
        + (4.0 + random.random(sensors))
        * np.sin(2 * np.pi * (day - 0.35))
        * (0.7 + 0.3 * _smooth(random, steps, 1, memory=144))
        + 0.1 * random.standard_normal((steps, sensors))
    )
    names = [f"s{number}" for number in range(sensors)]
    times = pd.date_range("2024-03-01", periods=steps, freq="10min")
    where = {"id": names, "latitude": 48 + places[:, 1] / 111, "longitude": 9 + places[:, 0] / 75}
    return pd.DataFrame(values.round(2), times, names), pd.DataFrame(where)


def _smooth(random: np.random.Generator, steps: int, count: int, *, memory: float) -> NDArray[np.float64]:
    """(steps, count): noise that is forgotten with this memory, smoothed once more, of deviation 1."""
    from scipy.signal import lfilter

    keep = np.exp(-1.0 / memory)
    rough = lfilter([1.0], [1.0, -keep], random.standard_normal((steps, count)), axis=0)
    series = np.asarray(lfilter([1.0 - keep], [1.0, -keep], rough, axis=0))
    return series / series.std(axis=0)


def _traffic(folder: Path | None, seed: int) -> Table:  # noqa: ARG001
    speeds = _read(folder, "metr_la.parquet").replace(0.0, np.nan)
    speeds = speeds.iloc[: WEEKS_OF_TRAFFIC * 7 * 288, ::EVERY].resample("15min").mean()
    return speeds, _places(folder, "metr_la_sensors.csv", speeds)


def _air(folder: Path | None, seed: int) -> Table:  # noqa: ARG001
    """Without the cells that the benchmark scores."""
    readings = _read(folder, "aqi36.parquet").mask(_read(folder, "aqi36_eval_mask.parquet"))
    begin, end = MONTHS_OF_AIR
    months = readings[(readings.index >= begin) & (readings.index < end)]
    return months, _places(folder, "aqi36_stations.csv", months)


TABLES: dict[str, Callable[[Path | None, int], Table]] = {"weather": _weather, "traffic": _traffic, "air": _air}


def _read(folder: Path | None, name: str) -> pd.DataFrame:
    path = data_folder(folder) / name
    if not path.exists():
        raise InputError(f"{path.name} is not in the data folder")
    return pd.read_parquet(path)


def _places(folder: Path | None, name: str, table: pd.DataFrame) -> pd.DataFrame:
    places = pd.read_csv(data_folder(folder) / name, dtype={0: str})
    places.columns = ["id", "latitude", "longitude"]
    return places[places["id"].isin(table.columns)].reset_index(drop=True)


if __name__ == "__main__":
    sys.exit(main())
