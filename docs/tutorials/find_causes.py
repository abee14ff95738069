# ruff: noqa: T201  # a tutorial talks
# %% [markdown]
# # Find causes in my network
#
# CASPER fills a hole from other sensors, at other times, through gates that it learned to open or to shut. What it
# draws on is a causal graph: source, target, lag, weight. This page looks at that graph, at a single value, and at what
# other methods of causal discovery find.
#
# Run it as a script (`python docs/tutorials/find_causes.py FOLDER`) or cell by cell in an editor that knows `# %%`.

# %%
import sys
import tempfile
from pathlib import Path

from casper import Casper, discover
from casper.report.causes_picture import Shares, causes_map
from casper.report.explanation_picture import explanation_picture
from casper.report.graph_pictures import graph_picture, map_picture
from casper.report.style import save
from casper.simulate import simulate

given = len(sys.argv) == 2 and not sys.argv[1].startswith("-")
folder = Path(sys.argv[1] if given else tempfile.mkdtemp(prefix="casper-"))
folder.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## A network whose causes are known
#
# 24 simulated stations on both sides of a ridge. The wind carries dust along either side, never across; the background
# rises and falls everywhere at once, so that stations across the ridge are correlated without being each other's cause.
# `made.edges` is the truth, which no method is shown.

# %%
made = simulate(sensors=24, steps=2160, seed=0)
save(map_picture(made.sensors, made.edges, ridge=made.ridge, title="How the wind carries"), folder / "truth.png")
print(f"{len(made.edges)} true edges; {made.table.isna().mean(axis=None):.0%} of the readings are missing")

# %% [markdown]
# ## What the model draws on
#
# These weights were fitted on this very table and are shipped with the package; with your own table it is
# `Casper().fit(table, sensors=sensors)`. The graph is averaged over windows spread over the table, over the holes and
# some more cells that are hidden for this purpose. A weight is the share of a value's message that comes from a source
# at a lag; its stability is the share of windows in which its gates are open. Negative lags reach into the future:
# to fill a hole that is fair, as a cause it is not, and `constrained()` leaves them out.

# %%
model = Casper.from_pretrained("demo")
graph = model.causal_graph(made.table, windows=16)
print(graph.constrained().without_self().to_frame().head(5).to_string(index=False))
scores = graph.compare(made.edges)
print(f"of all pairs, true ones rank above others with probability {scores['auroc']:.2f} (AUROC)")

graph.write(folder / "graph.json")  # also .graphml, .parquet, .csv; graph.to_networkx() for more
save(graph_picture(graph, made.sensors, title="What each station is filled from"), folder / "graph.png")

# %% [markdown]
# In a notebook, `graph` on a line of its own shows its strongest edges, and `graph.plot(made.sensors)` the map.
#
# ## One value
#
# Why did it fill in this number? The matrices of the paper's Figure 5 (what it would look at, its gates, and what these
# leave) and the arrows of its Figure 6.

# %%
sensor = "S03"
time = made.table.index[made.table[sensor].isna()][100]
why = model.explain(made.table, sensor=sensor, time=time)
print(f"{sensor} at {time}: filled with {why.estimate:.1f}, the truth is {made.complete.loc[time, sensor]:.1f}")
print(why.shares().head(4).to_string(index=False))
save(explanation_picture(why), folder / "why.png")
save(causes_map(Shares.of_value(why), made.sensors), folder / "causes.png")

# %% [markdown]
# ## Causes without imputation
#
# `discover` looks for causes in any multivariate series, with holes or without, and needs no places. CASPER is one of
# its methods, trained here to foretell each step from those before; NGC, eSRU, LCCM, NGM, CUTS and PCMCI are the
# others. Weights of different methods are on different scales: compare their order, not their size. The training is
# cut short here; leave the settings out for your own series. `refits=10` would tell how stable each edge is.

# %%
few = made.table.iloc[:1440, :10]
names = set(few.columns)
truth = made.edges[made.edges["source"].isin(names) & made.edges["target"].isin(names)]
for method, settings in {
    "casper": {"epochs": 5, "folds": 1, "looks": 48},
    "cuts": {"settling_epochs": 5, "imputing_epochs": 5, "refining_epochs": 5},
}.items():
    found = discover(few, method=method, seed=0, **settings)
    print(f"{method}: AUROC {found.compare(truth)['auroc']:.2f}; a weight is {found.meaning}")
    save(graph_picture(found, title=f"Found by {method}"), folder / f"found-by-{method}.png")
print(f"pictures and the graph are in {folder}")

# %% [markdown]
# The same on the command line:
#
# ```bash
# casper graph    readings.csv --model my-model -o graph.json --picture graph.png --sensors sensors.csv
# casper explain  readings.csv --model my-model --sensor S03 --time '2024-01-05 12:00' -o why.png
# casper plot causes readings.csv --model my-model --sensor S03 --sensors sensors.csv -o causes.png
# casper discover readings.csv --method cuts -o found.json --top 20 --picture found.png
# casper discover readings.csv --sensors sensors.csv --near -o near.json   # only edges between neighbours
# casper methods --settings cuts
# ```
