"""The benchmark on tables like a user's, made short."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import own_tables, page


def test_methods_are_scored_on_hidden_readings_and_the_page_tells_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CASPER_DATA", raising=False)
    table, sensors = own_tables._weather(None, 0, sensors=6, days=3)
    monkeypatch.setitem(own_tables.TABLES, "weather", lambda folder, seed: (table, sensors))
    out = tmp_path / "benchmark-own-tables-cpu.json"
    arguments = ["--tables", "weather", "traffic", "--methods", "linear", "mean", "--out", str(out)]
    assert own_tables.main(arguments) == 1, "there are no readings of METR-LA"
    told = json.loads(out.read_text())
    assert {"command", "commit", "seed", "device", "versions", "wall_seconds"} <= told.keys()
    assert "CASPER_DATA" in told["failed"]["traffic"]
    linear, mean = told["scores"]
    assert (linear["method"], mean["method"]) == ("linear", "mean")
    assert 0 < linear["mae"] < mean["mae"]
    assert linear["by_gap"]["1"] < linear["by_gap"]["7-24"]
    assert told["tables"]["weather"]["hidden"] == pytest.approx(0.2 * table.size, rel=0.3)
    text = tmp_path / "own-tables.md"
    page.main(["--results", str(tmp_path), "--own-tables", str(text)])
    assert f"| linear | **{linear['mae']:.3g}** |" in text.read_text()


def test_the_weather_is_the_same_for_the_same_seed_and_smooth() -> None:
    first, _ = own_tables._weather(None, 3, sensors=4, days=2)
    again, _ = own_tables._weather(None, 3, sensors=4, days=2)
    other, _ = own_tables._weather(None, 4, sensors=4, days=2)
    assert first.equals(again)
    assert not first.equals(other)
    values = first.to_numpy()
    assert np.abs(np.diff(values, axis=0)).mean() < 0.1 * values.std()
