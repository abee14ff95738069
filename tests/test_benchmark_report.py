"""The benchmark of the report's page, on a network that is filled in no time."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import which

import pytest

pytest.importorskip("plotly", reason="the optional package plotly is not installed")
pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")

from benchmarks import page, report

pytestmark = pytest.mark.skipif(which("chromium") is None, reason="no Chromium here: apt-get install chromium")


def test_sizes_and_times_are_written_down_and_the_page_tells_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "VIEWS", {"desk": (1440, 1)})
    monkeypatch.delenv("CASPER_DATA", raising=False)
    out = tmp_path / "benchmark-report-cpu.json"
    small = ["--sensors", "8", "--steps", "300", "--repeats", "1", "--keep", str(tmp_path / "pages")]
    assert report.main(["--pages", "aqi36", "large", *small, "--out", str(out)]) == 1, "there are no readings of AQI-36"
    told = json.loads(out.read_text())
    assert {"command", "commit", "seed", "device", "versions", "wall_seconds", "browser"} <= told.keys()
    assert "CASPER_DATA" in told["failed"]["aqi36"]
    [large] = told["pages"]
    assert (large["name"], large["sensors"], large["steps"]) == ("large", 8, 300)
    sizes = large["bytes"]
    assert sizes["page"] == (tmp_path / "pages" / "large.html").stat().st_size
    assert sizes["page"] == sizes["library"] + sizes["numbers"] + sizes["words"]
    assert min(sizes.values()) > 1_000
    seen = large["milliseconds"]["desk"]
    assert 0 < seen["words"] < seen["library"] < seen["first_chart"] < seen["all_charts"]
    assert told["targets"] == [
        {"what": "page of large", "target": "at most 5 MB", "measured": sizes["page"] / 1e6, "met": True}
    ]
    text = tmp_path / "performance.md"
    page.main(["--results", str(tmp_path), "--page", str(text), "--picture", str(tmp_path / "performance.png")])
    written = text.read_text()
    assert f"| {sizes['page'] / 1e6:.2f} MB |" in written
    assert f"{seen['words'] / 1000:.1f} s" in written


def test_a_picture_needs_the_page_that_it_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        report.main(["--pages", "demo", "--picture", str(tmp_path / "report.png")])
    assert "name it in --pages" in capsys.readouterr().err
