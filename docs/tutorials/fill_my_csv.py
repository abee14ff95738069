# ruff: noqa: T201  # a tutorial talks
# %% [markdown]
# # Fill the holes in my CSV
#
# You have a table, a row per time and a column per sensor, with holes in it, and a list of where the sensors are. You
# want the same table without holes, and to know how far to trust it. This takes a few minutes of a laptop.
#
# Run it as a script (`python docs/tutorials/fill_my_csv.py FOLDER`) or cell by cell in an editor that knows `# %%`.

# %%
import sys
import tempfile
from pathlib import Path

import numpy as np

from casper import Casper, make_imputer
from casper.check import summarise
from casper.frame import to_frame
from casper.io import read_sensors, read_table, write_table
from casper.report.pictures import filled_picture, gap_picture, save
from casper.simulate import simulate

given = len(sys.argv) == 2 and not sys.argv[1].startswith("-")
folder = Path(sys.argv[1] if given else tempfile.mkdtemp(prefix="casper-"))
folder.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## The files
#
# Here they are simulated: 16 air-quality stations, a month of hours, a fifth of the readings lost to single faults and
# long failures. The truth behind the holes is kept aside, to see how well they are filled. Yours would be two files
# that look like these; stamps with or without a zone, other separators, long tables (id, time, value), Parquet and HDF5
# are all understood.

# %%
made = simulate(sensors=16, steps=720, seed=1)
made.table.round(2).to_csv(folder / "readings.csv", index_label="time")
made.sensors.to_csv(folder / "sensors.csv", index=False)

table, look = read_table(folder / "readings.csv")
sensors = read_sensors(folder / "sensors.csv")
print(table.iloc[:3, :5])

# %% [markdown]
# ## Look before you fill
#
# `casper check readings.csv --sensors sensors.csv` prints all of this and more. Numbers that stand for "missing", such
# as -999, are named here; tell them to `fit` with `missing_values=(-999,)`.

# %%
summary = summarise(to_frame(table))
print(f"{summary.sensors} sensors, {summary.steps} steps of {summary.step}, {summary.missing_share:.1%} missing")
print(f"longest gap: {summary.gaps.longest} steps, sensor {summary.gaps.longest_sensor}")
for sentence in summary.sentences():
    print(sentence)
save(gap_picture(table.notna()), folder / "gaps.png")

# %% [markdown]
# ## Fit
#
# The preset "fast" is made for laptops and takes some minutes. Here it is cut short, to half a minute: leave out
# `short`, and the error falls further. Without coordinates leave out `sensors`: then the strongest correlations in the
# table serve as the network.

# %%
short = {"epochs": 4, "batches_per_epoch": 50, "warmup_steps": 20, "weight_averaging": 0.97, "learning_rate": 5e-3}
# Begin with a straight line, and learn what to add to it.
short |= {"layers": 1, "prompts": 32, "kriging": False, "guess": True}
model = Casper(preset="fast", seed=0, **short).fit(table, sensors=sensors)
about = model.describe()
print(f"mean absolute error on held-back readings: {about['validation_mae']:.2f}")
print(f"linear interpolation, on the same ones:    {about['validation_mae_of_linear_interpolation']:.2f}")

# %% [markdown]
# ## Fill
#
# What was measured comes back exactly as it was: units, names, order, index. The file is written as yours was, with the
# same stamps and separators.

# %%
filled = model.impute(table)
assert filled.notna().all(axis=None)
assert filled.where(table.notna()).equals(table)
write_table(filled, folder / "filled.csv", like=look, force=True)
print(f"filled {filled.attrs['casper']['filled']:,} of {filled.size:,} cells")

# %% [markdown]
# ## Error bars
#
# Every filled value comes with an interval, calibrated on held-back readings. `to_long()` lists the filled values with
# their ends; values that are hardly better than a guess are flagged, and so are sensors too cut off to be filled well.

# %%
with_bars = model.impute(table, intervals=(0.5, 0.9))
with_bars.to_long().to_csv(folder / "filled-values.csv", index=False)
for sensor, why in with_bars.flagged_sensors.items():
    print(f"trust {sensor} with care: {why}")

# %% [markdown]
# ## Was it any good?
#
# In a simulation we can ask. With your own readings the error on held-back ones, printed above, is the honest answer.

# %%
holes = table.isna().to_numpy()


def error(answer: np.ndarray) -> float:
    return float(np.abs(answer - made.complete.to_numpy())[holes].mean())


linear = make_imputer("linear").fit(table, sensors=sensors).impute(table)
print(f"mean absolute error in the holes: CASPER {error(filled.to_numpy()):.2f}, linear {error(linear.to_numpy()):.2f}")
inside = (made.complete >= with_bars.lower[0.9]) & (made.complete <= with_bars.upper[0.9])
print(f"{inside.to_numpy()[holes].mean():.0%} of the true values lie in the 90 % intervals")

picture = filled_picture(table, filled, truth=made.complete, unit="PM2.5, ug/m3", title="Filled by CASPER")
save(picture, folder / "filled.png")

# %% [markdown]
# ## Keep the model
#
# A folder with its settings and weights. It fills next month's table, too, as long as sensors and time step are the
# same.

# %%
model.save_pretrained(folder / "model", force=True)
again = Casper.from_pretrained(folder / "model")
assert np.allclose(again.impute(table), filled)
print(f"everything is in {folder}")

# %% [markdown]
# The same on the command line:
#
# ```bash
# casper check  readings.csv --sensors sensors.csv
# casper fit    readings.csv --sensors sensors.csv -o model
# casper impute readings.csv --model model -o filled.csv
# casper plot series readings.csv --filled filled.csv -o filled.png
# ```
