"""Put the best run of a benchmark among the weights that come with the package.

python tools/ship_weights.py aqi36 metr-la-point --work runs

The seed is chosen by its validation error, never by its test error. The model's card says what it learned from, how it
was made, how good it is and what it is for; its error bars are calibrated anew.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import casper
from casper.datasets import load
from casper.imputer import Casper

WEIGHTS = Path(casper.__file__).parent / "weights"
_LARGEST = 3_000_000
_ABOUT = {
    "aqi36": "hourly PM2.5 (ug/m3) of 36 stations in Beijing (ST-MVL / Urban Air)",
    "metr-la-point": "METR-LA: speeds (miles per hour) of 207 detectors in Los Angeles every 5 minutes, points missing",
    "metr-la-block": "METR-LA: speeds (miles per hour) of 207 detectors in Los Angeles every 5 minutes, blocks missing",
}
_INTENDED_USE = (
    "to check the figures of docs/results.md, and to fill holes of these very sensors; readings of other sensors need "
    "a model of their own (casper fit)"
)
SCORES = ("mae", "mse", "mre", "mae_step", "mse_step", "mre_step", "n_scored")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+", choices=_ABOUT)
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder with result files")
    parser.add_argument("--work", type=Path, default=Path("runs"), help="folder with the fitted models")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    options = parser.parse_args()
    for dataset in options.datasets:
        ship(dataset, results=options.results, work=options.work, device=options.device)


def ship(dataset: str, *, results: Path, work: Path, device: Any) -> None:
    runs = {path: json.loads(path.read_text()) for path in results.glob(f"main-{dataset}-best-seed*.json")}
    if not runs:
        raise SystemExit(f"{results} has no run of preset best on {dataset}: casper reproduce main --dataset {dataset}")
    path = min(runs, key=lambda one: runs[one]["validation_mae"])
    run = runs[path]
    model = Casper.from_pretrained(work / path.stem / "model", device=device)
    benchmark = load(dataset)
    model.calibrate_on(benchmark)
    times, learned = benchmark.frame.times, benchmark.frame.times[benchmark.train_steps]
    model.card = {
        **model.card,
        "data": _ABOUT[dataset],
        "period": f"training steps from {learned[0]} to {learned[-1]}, {len(learned):,} of {len(times):,}",
        "recipe": f"{run['command']} at commit {run['commit']}",
        "chosen": f"by validation error among the seeds {', '.join(str(seed) for seed in sorted(_seeds(runs)))}",
        "test": {name: run[name] for name in SCORES},
        "intended_use": _INTENDED_USE,
    }
    size = save_among_weights(model, dataset)
    print(f"{dataset}: seed {run['seed']}, validation {run['validation_mae']:.3f}, {size:,} bytes")  # noqa: T201


def save_among_weights(model: Casper, dataset: str) -> int:
    """The bytes it takes."""
    folder = model.save_pretrained(WEIGHTS / dataset, force=True)
    size = sum(file.stat().st_size for file in folder.iterdir())
    if size > _LARGEST:
        raise SystemExit(f"{folder} has {size:,} bytes, more than the {_LARGEST:,} that are to be shipped")
    return size


def _seeds(runs: dict[Path, dict[str, Any]]) -> list[int]:
    return [run["seed"] for run in runs.values()]


if __name__ == "__main__":
    main()
