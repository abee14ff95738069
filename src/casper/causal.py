"""The causal graph: which sensors influence which, after how many steps, how strongly and how surely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from casper.errors import InputError, some
from casper.graph import graph_from_coordinates

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes

COLUMNS = ("source", "target", "lag", "weight", "stability")
SelfPairs = Literal["offdiag", "cuts"]
"""How pairs of a sensor with itself count when a graph is compared with the truth; files of results say it so, too."""
MEANINGS = {
    "weight": "the share of a value's message that comes from the source at that lag",
    "attention": "the share of the attention that goes to the source at that lag, before the gates",
    "rho": "the probability that the gate from the source at that lag is open",
    "influence": "how much the estimate would change, in deviations, if the gate from the source at that lag were shut",
    "witnesses": "log10 of the product of 1 - log10 p over three tests of whether the source foretells the target, "
    "one by the network and two linear",
}
"""What an edge of CASPER's weighs, for people; by `casper.drawn_on.Measure`, or "witnesses"."""


@dataclass(frozen=True, eq=False)
class CausalGraph:
    """Edges "source influences target `lag` steps later".

    edges: a row per edge with the columns source, target, lag, weight, stability; strongest first. lag: whole steps,
    negative where the value was drawn from the source's future, missing where the method does not tell lags apart.
    stability: share of the windows (or refits) in which the edge stands, missing where it was not measured.
    step: the length of a step, if known. origin: what it was found by and in.
    """

    sensors: tuple[str, ...]
    edges: pd.DataFrame
    step: pd.Timedelta | None = None
    origin: Mapping[str, Any] = field(default_factory=dict[str, Any])

    # ------------------------------------------------------------------ making

    @classmethod
    def build(
        cls,
        sensors: Sequence[str],
        edges: pd.DataFrame,
        *,
        step: pd.Timedelta | None = None,
        origin: Mapping[str, Any] | None = None,
    ) -> Self:
        """Checks the edges, gives them their columns and order. Lag and stability may be left out."""
        sensors = tuple(map(str, sensors))
        for column in ("source", "target", "weight"):
            if column not in edges.columns:
                raise InputError(f"edges need a column {column!r}; there are {some(list(map(str, edges.columns)))}")
        lags = edges["lag"] if "lag" in edges else pd.Series(pd.NA, index=edges.index)
        clean = pd.DataFrame(
            {
                "source": edges["source"].astype(str).to_numpy(),
                "target": edges["target"].astype(str).to_numpy(),
                "lag": lags.astype("Int64").array,
                "weight": edges["weight"].to_numpy(dtype=np.float64),
                "stability": edges["stability"].to_numpy(dtype=np.float64) if "stability" in edges else np.nan,
            }
        )
        unknown = sorted((set(clean["source"]) | set(clean["target"])) - set(sensors))
        if unknown:
            raise InputError(f"edges name {some(unknown)}, which are not among the {len(sensors)} sensors")
        if not (clean["weight"] >= 0).all() or np.isinf(clean["weight"]).any():
            raise InputError("every edge needs a weight that is a number and not negative: how strong or sure it is")
        if clean.duplicated(["source", "target", "lag"]).any():
            raise InputError("an edge is listed twice: source, target and lag together must be unique")
        order = clean.sort_values(["weight", "target", "source", "lag"], ascending=[False, True, True, True]).index
        clean = clean.loc[order].reset_index(drop=True)
        return cls(sensors, clean, step, dict(origin or {}))

    @classmethod
    def from_matrix(
        cls,
        matrix: ArrayLike | pd.DataFrame,
        sensors: Sequence[str] | None = None,
        *,
        by_lag: ArrayLike | None = None,
        step: pd.Timedelta | None = None,
        origin: Mapping[str, Any] | None = None,
    ) -> Self:
        """matrix: (N, N), rows are sources; 0 is no edge. by_lag: (L, N, N), lags 1 to L, instead of it."""
        if isinstance(matrix, pd.DataFrame):
            if list(map(str, matrix.index)) != list(map(str, matrix.columns)):
                raise InputError("a table of weights needs the same names in the same order in rows and columns")
            sensors = list(map(str, matrix.index)) if sensors is None else sensors
        if sensors is None:
            sensors = _numbers(len(np.asarray(matrix)))
        names = np.asarray(sensors, dtype=object)
        weights = np.asarray(matrix, dtype=np.float64) if by_lag is None else np.asarray(by_lag, dtype=np.float64)
        if weights.shape[-2:] != (len(names), len(names)):
            raise InputError(f"a matrix of shape {weights.shape} does not fit {len(names)} sensors")
        found = np.nonzero(weights)
        edges = {"source": names[found[-2]], "target": names[found[-1]], "weight": weights[found]}
        if by_lag is not None:
            edges["lag"] = found[0] + 1
        return cls.build(sensors, pd.DataFrame(edges), step=step, origin=origin)

    @classmethod
    def of_refits(cls, graphs: Sequence[CausalGraph], *, standing: int) -> Self:
        """One graph from several, found in resampled data or with other seeds: weights are averaged, and an edge's
        stability is the share of the graphs in which it is among the `standing` strongest."""
        if not graphs:
            raise InputError("there is no graph to join")
        if any(graph.sensors != graphs[0].sensors for graph in graphs):
            raise InputError("the graphs have different sensors")
        every = pd.concat(
            [graph.edges.assign(stands=np.arange(len(graph.edges)) < standing) for graph in graphs], ignore_index=True
        )
        sums = every.groupby(["source", "target", "lag"], dropna=False)[["weight", "stands"]].sum() / len(graphs)
        edges = sums.rename(columns={"stands": "stability"}).reset_index()
        origin = {**graphs[0].origin, "refits": len(graphs), "standing": standing}
        return cls.build(graphs[0].sensors, edges, step=graphs[0].step, origin=origin)

    # ------------------------------------------------------------------ choosing

    def threshold(self, weight: float = 0.0, *, stability: float = 0.0) -> Self:
        """Only edges of at least this weight and stability; edges of unknown stability stay if none is asked for."""
        kept = self.edges["weight"] >= weight
        if stability > 0:
            kept &= self.edges["stability"] >= stability
        return self._kept(kept)

    def top(self, count: int) -> Self:
        """The strongest edges of every target."""
        return self._kept(self.edges.groupby("target", sort=False).cumcount() < count)

    def strongest(self, count: int) -> Self:
        """The strongest edges of all."""
        return self._kept(pd.Series(np.arange(len(self.edges)) < count))

    def constrained(self) -> Self:
        """Only causes that do not come after their effect (lag >= 0, or not told)."""
        return self._kept(self.edges["lag"].isna() | (self.edges["lag"] >= 0).fillna(False))

    def pairs(self) -> Self:
        """Of every pair of two sensors only the strongest lag."""
        apart = self.without_self()
        return apart._kept(~apart.edges.duplicated(["source", "target"]))

    def without_lags(self) -> Self:
        """Of every pair only the strongest edge, its lag forgotten."""
        kept = self._kept(~self.edges.duplicated(["source", "target"]))
        return replace(kept, edges=kept.edges.assign(lag=pd.Series(pd.NA, index=kept.edges.index, dtype="Int64")))

    def without_self(self) -> Self:
        """Without edges from a sensor to itself."""
        return self._kept(self.edges["source"] != self.edges["target"])

    def between_neighbours(self, sensors: pd.DataFrame) -> Self:
        """Only edges between sensors that stand near each other, see `graph_from_coordinates`, and of a sensor to
        itself. sensors: id, latitude, longitude."""
        near = graph_from_coordinates(sensors, ids=self.sensors)
        joined = {(near.sensors[i], near.sensors[j]) for i, j in zip(near.source, near.target, strict=True)}
        joined |= {(name, name) for name in self.sensors}
        pairs = zip(self.edges["source"], self.edges["target"], strict=True)
        kept = self._kept(pd.Series([pair in joined for pair in pairs], dtype=bool))
        return replace(kept, origin={**self.origin, "pairs": "neighbours only"})

    def causes_of(self, sensor: str) -> pd.DataFrame:
        """Its incoming edges, strongest first."""
        self._known(sensor)
        return self.to_frame().query("target == @sensor").reset_index(drop=True)

    def effects_of(self, sensor: str) -> pd.DataFrame:
        """Its outgoing edges, strongest first."""
        self._known(sensor)
        return self.to_frame().query("source == @sensor").reset_index(drop=True)

    def _known(self, sensor: str) -> None:
        if sensor not in self.sensors:
            raise InputError(f"the graph has no sensor {sensor!r}; it has {some(list(self.sensors))}")

    def _kept(self, kept: pd.Series) -> Self:
        return replace(self, edges=self.edges[kept.to_numpy(dtype=bool)].reset_index(drop=True))

    # ------------------------------------------------------------------ comparing

    def matrix(self) -> pd.DataFrame:
        """Sources (rows) x targets (columns): the largest weight over all lags, 0 without an edge."""
        weights = np.zeros((len(self.sensors), len(self.sensors)))
        place = {sensor: number for number, sensor in enumerate(self.sensors)}
        sources, targets = (self.edges[end].map(place).to_numpy(dtype=np.int64) for end in ("source", "target"))
        np.maximum.at(weights, (sources, targets), self.edges["weight"].to_numpy())
        index = pd.Index(self.sensors, name="source")
        return pd.DataFrame(weights, index=index, columns=pd.Index(self.sensors, name="target"))

    def compare(
        self, truth: CausalGraph | pd.DataFrame | ArrayLike, *, self_pairs: SelfPairs = "offdiag"
    ) -> dict[str, float]:
        """How well this graph finds the true one's pairs, whatever their lags.

        truth: a graph, a table of edges (source, target), or a matrix with sources in rows; its weights only say
        whether there is an edge. AUROC and AUPRC rank all pairs by weight. F1, precision, recall and the structural
        Hamming distance (missing + wrong edges) are of the graph as it stands, and f1_best of its best threshold.
        self_pairs: "offdiag" leaves them out; "cuts", as CUTS scores DREAM-3, takes all N x N pairs, with the true
        diagonal empty.
        """
        from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score

        if self_pairs not in get_args(SelfPairs):
            raise InputError(f"self_pairs={self_pairs!r} is not known; choose one of {', '.join(get_args(SelfPairs))}")
        wanted, found = self._truth(truth), self.matrix().to_numpy()
        diagonal = np.eye(len(self.sensors), dtype=bool)
        pairs = np.ones_like(wanted) if self_pairs == "cuts" else ~diagonal
        actual, score = (wanted & ~diagonal)[pairs], found[pairs]
        if actual.all() or not actual.any():
            raise InputError("the true graph has no edges, or all of them: there is nothing to tell apart")
        predicted = score > 0
        hits = int((predicted & actual).sum())
        precision, recall, _ = precision_recall_curve(actual, score)
        return {
            "auroc": float(roc_auc_score(actual, score)),
            "auprc": float(average_precision_score(actual, score)),
            "f1": 2 * hits / (int(predicted.sum()) + int(actual.sum())),
            "f1_best": float((2 * precision * recall / np.maximum(precision + recall, 1e-12)).max()),
            "precision": hits / max(1, int(predicted.sum())),
            "recall": hits / int(actual.sum()),
            "hamming": int((predicted != actual).sum()),
            "pairs": int(pairs.sum()),
            "true_edges": int(actual.sum()),
        }

    def _truth(self, truth: CausalGraph | pd.DataFrame | ArrayLike) -> NDArray[np.bool_]:
        if isinstance(truth, pd.DataFrame) and {"source", "target"} <= set(truth.columns):
            truth = CausalGraph.build(
                self.sensors, truth[["source", "target"]].drop_duplicates().assign(weight=1.0), origin={}
            )
        if isinstance(truth, CausalGraph):
            truth = truth.matrix()
        if isinstance(truth, pd.DataFrame):
            truth = truth.set_axis(list(map(str, truth.index)), axis=0).set_axis(list(map(str, truth.columns)), axis=1)
            if set(truth.index) != set(self.sensors) or set(truth.columns) != set(self.sensors):
                raise InputError("the two graphs have different sensors")
            truth = truth.loc[list(self.sensors), list(self.sensors)]
        matrix = np.asarray(truth)
        if matrix.shape != (len(self.sensors), len(self.sensors)):
            raise InputError(f"a true network of shape {matrix.shape} does not fit {len(self.sensors)} sensors")
        return matrix != 0

    # ------------------------------------------------------------------ handing out

    def to_frame(self) -> pd.DataFrame:
        """The edges with two more columns: direction (past, same or future) and, if a step's length is known, delay."""
        lag = self.edges["lag"]
        sign = np.sign(lag.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan))
        direction = np.select([sign > 0, sign < 0, sign == 0], ["past", "future", "same"], "")
        frame = self.edges.assign(direction=direction)
        if self.step is not None:
            frame["delay"] = pd.to_timedelta(lag.astype("Float64") * self.step.total_seconds(), unit="s")
        return frame

    def to_networkx(self) -> nx.MultiDiGraph:
        """A MultiDiGraph: one edge for each lag, with the attributes lag, weight and stability where they are known."""
        import networkx as nx

        graph: nx.MultiDiGraph = nx.MultiDiGraph()
        graph.add_nodes_from(self.sensors)
        for edge in self.records():
            source, target = edge.pop("source"), edge.pop("target")
            graph.add_edge(source, target, **{name: value for name, value in edge.items() if value is not None})
        return graph

    def write(self, path: str | Path) -> Path:
        """By the name's ending: .json, .graphml and .parquet hold all of the graph, .csv only its edges.

        A CSV has no place for more: sensors without edges, the step's length and the origin are lost, see `read`.
        """
        from casper.graph_files import write_graph

        return write_graph(self, Path(path))

    @classmethod
    def read(cls, path: str | Path, *, sensors: Sequence[str] | None = None) -> Self:
        """A graph that `write` wrote, or edges in Parquet, GraphML or CSV written by somebody else.

        sensors: of a CSV, or of somebody else's Parquet file, which do not name those without edges; without it the
        sensors are the ones that have edges. A CSV does not tell the step's length and the origin either.
        """
        from casper.graph_files import read_graph

        return read_graph(cls, Path(path), sensors)

    @property
    def meaning(self) -> str | None:
        """What a weight is, in words, if it is known: "a weight is ..."."""
        return self.origin.get("weights") or MEANINGS.get(str(self.origin.get("measure")))

    def plot(self, sensors: pd.DataFrame | None = None, ax: Axes | None = None) -> Axes:
        """Arrows on a map from the strongest causes of every sensor, if their places (id, latitude, longitude) are
        given, or a matrix of sources and targets. Without `ax` into a new figure of pyplot, as pandas does."""
        from casper.report.graph_pictures import draw_graph

        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(figsize=(8, 7), layout="constrained")
        draw_graph(ax, self, sensors)
        return ax

    def _repr_html_(self) -> str:
        from casper.report.notebook import graph_html

        return graph_html(self)

    def records(self) -> list[dict[str, Any]]:
        """Edges as plain Python values, None for what is not known."""
        columns = [[None if pd.isna(value) else value for value in self.edges[name].astype(object)] for name in COLUMNS]
        return [dict(zip(COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)]

    def __len__(self) -> int:
        return len(self.edges)

    def __repr__(self) -> str:
        return f"CausalGraph({len(self.sensors)} sensors, {len(self.edges)} edges)"


def _numbers(count: int) -> list[str]:
    return [f"x{number + 1}" for number in range(count)]
