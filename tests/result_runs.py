"""Result files as `casper evaluate` and `casper reproduce` write them, for tests of what is made of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from casper.config import ModelConfig

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


def run_record(table: str = "main", row: str = "paper", seed: int = 0, **changes: Any) -> dict[str, Any]:
    """What `casper reproduce` writes for a run of three epochs. Changes of the model's settings are not replaced."""
    model = ModelConfig(window=36, layers=2).to_dict() | changes.pop("model", {})
    mae = changes.get("mae", 10.0)
    curve = [
        {"epoch": epoch, "validation_mae": mae + 2 - epoch, "decided": [0.2 * epoch, 0.3 * epoch]} for epoch in range(3)
    ]
    return {
        **RECORD,
        "table": table,
        "row": row,
        "number": 0,
        "value": None,
        "method": "casper",
        "preset": "paper",
        "seed": seed,
        "mae": mae,
        "mse": 4 * mae**2,
        "mae_step": mae - 1,
        "mse_step": 3 * mae**2,
        "steps": 900,
        "training_seconds": 90.0,
        "side_by_side": 1,
        "model": model,
        "training": {"epochs": 3, "batches_per_epoch": 300},
        "curve": curve,
        "decided": [0.4, 0.6],
        "command": f"casper reproduce {table}",
        "device": "NVIDIA H200",
        **changes,
    }


def put_run(folder: Path, *told: Any, **changes: Any) -> None:
    record = run_record(*told, **changes)
    words = re.sub(r"[^a-z0-9.]+", "-", record["row"].lower())
    name = f"{record['table']}-{record['dataset']}-{words}-seed{record['seed']}.json"
    (folder / name).write_text(json.dumps(record))
