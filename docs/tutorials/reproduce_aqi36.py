# ruff: noqa: T201  # a tutorial talks
# %% [markdown]
# # Reproduce AQI-36
#
# 36 stations in Beijing, a year of hourly PM2.5, and a published set of readings that are hidden and scored: March,
# June, September and December are the test months. The paper reports a mean absolute error of 10.09. This page trains a
# small model for half a minute on a CPU and compares it with linear interpolation, by the same protocol; the last lines
# say how the full table is made.
#
# Run it as a script (`python docs/tutorials/reproduce_aqi36.py FOLDER`); `CASPER_DATA` names the folder with the data.

# %%
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from casper import Casper, datasets, make_imputer
from casper.evaluate import evaluate
from casper.report.pictures import error_picture, filled_picture, save

given = len(sys.argv) == 2 and not sys.argv[1].startswith("-")
folder = Path(sys.argv[1] if given else tempfile.mkdtemp(prefix="casper-"))
folder.mkdir(parents=True, exist_ok=True)

lacking = datasets.at_hand()["aqi36"]
if lacking:
    print(f"AQI-36 is not in {datasets.data_folder()}, so there is nothing to reproduce: see `casper data list`.")
    sys.exit(0)

# %% [markdown]
# ## The benchmark
#
# Readings, the published mask, the sensor network (a Gaussian kernel of distances) and the split. `casper data verify
# aqi36` checks bytes, counts and splits against the published ones.

# %%
benchmark = datasets.load("aqi36")
hidden = benchmark.hidden & benchmark.test_steps[:, None]
print(f"{len(benchmark.frame.times):,} hours, {len(benchmark.frame.sensors)} stations")
print(f"{hidden.sum():,} readings of the test months are hidden and scored")

# %% [markdown]
# ## Two methods, one protocol
#
# `short` keeps the training to half a minute; without it the preset "fast" takes a quarter of an hour and comes close
# to 11. CASPER sees the training months alone, and in the test months what is not hidden. A cell counts once for every
# window that shows it, as in the paper's log; `mae_step` counts it once.

# %%
short = {"epochs": 2, "batches_per_epoch": 50, "warmup_steps": 20, "weight_averaging": 0.97, "learning_rate": 5e-3}
short |= {"layers": 1, "prompts": 32, "kriging": False, "guess": True, "window_level": True, "validation_cells": 60_000}
casper = Casper(preset="fast", seed=0, device="cpu", **short)
linear = make_imputer("linear")
scores = {}
for name, method in {"CASPER, half a minute": casper, "linear interpolation": linear}.items():
    method.fit_benchmark(benchmark)
    scores[name] = evaluate(method, benchmark)
table = pd.DataFrame(scores).T[["mae", "mse", "mae_step"]].astype(float)
print(table.round(2).to_string())
print("the paper, fully trained, five seeds: 10.09 (mae), 396.2 (mse)")
save(error_picture(table, unit="ug/m3", title="AQI-36, hidden readings of the test months"), folder / "errors.png")

# %% [markdown]
# ## What it looks like
#
# A few days of a test month: what the model saw, what it filled in, and what had been measured.

# %%
first = int(benchmark.test_starts[200])
days = slice(first, first + 240)
index, columns = benchmark.frame.times[days], list(benchmark.frame.sensors)
measured = pd.DataFrame(benchmark.frame.values[days], index=index, columns=columns)
visible = measured.mask(benchmark.hidden[days])
most_hidden = np.argsort(-benchmark.hidden[days].sum(axis=0))[:3]
picture = filled_picture(
    visible,
    casper.impute(visible),
    truth=measured,
    sensors=[columns[number] for number in sorted(most_hidden)],
    unit="PM2.5, ug/m3",
    title="AQI-36: visible, filled and hidden readings",
)
save(picture, folder / "filled.png")
print(f"pictures are in {folder}")

# %% [markdown]
# ## The full reproduction
#
# Hours on a GPU, days on a CPU. Every run leaves a result file; a run that was stopped goes on where it was.
#
# ```bash
# casper reproduce main --dataset aqi36 --data-dir DATA     # presets paper and best, five seeds
# casper reproduce baselines --dataset aqi36 --data-dir DATA
# casper results --page docs/results.md                     # tables and plots of all result files
# casper plot learning results/main-aqi36-*.json -o learning.png
# ```
