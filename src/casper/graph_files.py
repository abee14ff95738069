"""Causal graphs in files: JSON, GraphML and Parquet hold all of a graph, CSV only its edges."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from casper.causal import COLUMNS, CausalGraph
from casper.errors import InputError, first_line
from casper.files import atomic

Graph = TypeVar("Graph", bound=CausalGraph)

_FORMAT = "casper-causal-graph-1"
_ABOUT = "casper"
"""What is no edge stands as JSON under this name in a Parquet file's schema and in a GraphML file's graph."""
_KINDS = {
    "sensors": (list, "a list"),
    "step_seconds": ((int, float, type(None)), "a number or null"),
    "origin": (dict, "an object"),
    "edges": (list, "a list"),
}
_UNKNOWN = ("", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None", "<NA>")


def write_graph(graph: CausalGraph, path: Path) -> Path:
    if path.suffix not in _WRITERS:
        raise InputError(f"{path}: a graph is written as {', '.join(_WRITERS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as temporary:
        _WRITERS[path.suffix](graph, temporary)
    return path


def read_graph(kind: type[Graph], path: Path, sensors: Sequence[str] | None) -> Graph:
    """sensors: of a file that does not name them; such a file without `sensors` has those that have edges."""
    try:
        held = _READERS.get(path.suffix, _read_json)(path)
        if held.sensors is None:
            ends = {*held.edges.get("source", ()), *held.edges.get("target", ())}
            named = sorted(ends) if sensors is None else sensors
        elif sensors is None:
            named = held.sensors
        else:
            raise InputError("the file names its sensors itself; leave out sensors=")
        return kind.build(named, held.edges, step=held.step, origin=held.origin)
    except (ValueError, TypeError) as error:
        raise InputError(f"{path}: {first_line(error)}") from error


@dataclass(frozen=True)
class _Held:
    """What a file tells of a graph. sensors: None where it names only those with edges."""

    edges: pd.DataFrame
    sensors: Sequence[str] | None = None
    step: pd.Timedelta | None = None
    origin: Mapping[str, Any] = field(default_factory=dict[str, Any])


def _about(graph: CausalGraph) -> dict[str, Any]:
    """All but the edges."""
    return {
        "format": _FORMAT,
        "sensors": list(graph.sensors),
        "step_seconds": None if graph.step is None else graph.step.total_seconds(),
        "origin": dict(graph.origin),
    }


def _checked(text: str, *needed: str) -> dict[str, Any]:
    """Of JSON that we wrote; somebody may have cut it short or written another."""
    try:
        held = json.loads(text)
    except ValueError as error:
        raise InputError(f"this is not JSON: {error}; graphs are read from {', '.join(_READERS)}") from error
    if not isinstance(held, dict) or held.get("format") != _FORMAT:
        raise InputError(f'this does not hold a causal graph: it lacks "format": "{_FORMAT}"')
    lacking = [name for name in needed if name not in held]
    if lacking:
        raise InputError(f"this is only a part of a causal graph: it lacks {', '.join(lacking)}; write it anew")
    for name in needed:
        kind, words = _KINDS[name]
        if not isinstance(held[name], kind):
            raise InputError(f"{name} must be {words}; write the graph anew")
    return held


def _step(about: Mapping[str, Any]) -> pd.Timedelta | None:
    return None if about["step_seconds"] is None else pd.Timedelta(seconds=about["step_seconds"])


# ---------------------------------------------------------------------- JSON


def _write_json(graph: CausalGraph, path: Path) -> None:
    path.write_text(json.dumps({**_about(graph), "edges": graph.records()}, indent=1), encoding="utf-8")


def _read_json(path: Path) -> _Held:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"this is not JSON; graphs are read from {', '.join(_READERS)}") from error
    about = _checked(text, "sensors", "step_seconds", "origin", "edges")
    edges = pd.DataFrame(about["edges"], columns=list(COLUMNS))
    return _Held(edges, about["sensors"], _step(about), about["origin"])


# ---------------------------------------------------------------------- GraphML


def _write_graphml(graph: CausalGraph, path: Path) -> None:
    """The nodes are the sensors, so these are not told twice: another program may have left one out."""
    import networkx as nx

    told = graph.to_networkx()
    told.graph[_ABOUT] = json.dumps({name: value for name, value in _about(graph).items() if name != "sensors"})
    nx.write_graphml(told, path)


def _read_graphml(path: Path) -> _Held:
    import networkx as nx

    try:
        read = nx.read_graphml(path, force_multigraph=True)
    except (nx.NetworkXError, SyntaxError, ValueError, KeyError) as error:  # SyntaxError: of the XML
        raise InputError(f"this is not GraphML: {first_line(error)}") from error
    if not read.is_directed():
        raise InputError("the edges of this graph have no direction, and causes need one")
    rows = [{**edge, "source": source, "target": target} for source, target, edge in read.edges(data=True)]
    edges = pd.DataFrame(rows, columns=list(COLUMNS))
    sensors = list(map(str, read.nodes))
    if _ABOUT not in read.graph:
        return _Held(edges, sensors)
    about = _checked(str(read.graph[_ABOUT]), "step_seconds", "origin")
    return _Held(edges, sensors, _step(about), about["origin"])


# ---------------------------------------------------------------------- Parquet


def _write_parquet(graph: CausalGraph, path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.Table.from_pandas(graph.to_frame())
    held = {**(table.schema.metadata or {}), _ABOUT.encode(): json.dumps(_about(graph)).encode()}
    parquet.write_table(table.replace_schema_metadata(held), path)


def _read_parquet(path: Path) -> _Held:
    from pyarrow import parquet

    table = parquet.read_table(path)
    held = (table.schema.metadata or {}).get(_ABOUT.encode())
    if held is None:
        return _Held(table.to_pandas())
    about = _checked(held.decode(), "sensors", "step_seconds", "origin")
    return _Held(table.to_pandas(), about["sensors"], _step(about), about["origin"])


# ---------------------------------------------------------------------- CSV


def _write_csv(graph: CausalGraph, path: Path) -> None:
    """Durations in text are hard to read, most of all negative ones: a delay is told in seconds."""
    frame = graph.to_frame()
    if "delay" in frame:
        frame["delay_seconds"] = frame.pop("delay").dt.total_seconds()
    frame.to_csv(path, index=False)


def _read_csv(path: Path) -> _Held:
    """Words for "unknown" count in columns of numbers only: a sensor may be called NA."""
    unknown = {column: list(_UNKNOWN) for column in ("lag", "weight", "stability")}
    names = {"source": str, "target": str}
    return _Held(pd.read_csv(path, dtype=names, keep_default_na=False, na_values=unknown))


_WRITERS: dict[str, Callable[[CausalGraph, Path], None]] = {
    ".json": _write_json,
    ".graphml": _write_graphml,
    ".parquet": _write_parquet,
    ".csv": _write_csv,
}
_READERS: dict[str, Callable[[Path], _Held]] = {
    ".json": _read_json,
    ".graphml": _read_graphml,
    ".parquet": _read_parquet,
    ".csv": _read_csv,
}
GRAPH_SUFFIXES = tuple(_WRITERS)
