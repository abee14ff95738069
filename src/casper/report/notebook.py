"""What a notebook shows of a model, a filled table or a graph: small HTML tables in the notebook's own colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from casper.report.words import counted, duration, lag_words, number, percent

if TYPE_CHECKING:
    from casper.causal import CausalGraph
    from casper.contract import Imputer
    from casper.filled import Filled

_EDGES_SHOWN = 10
_SENSORS_SHOWN = 12
_LEFT, _RIGHT = "text-align:left", "text-align:right"


def heading(words: str) -> str:
    return f"<p><b>{escape(words)}</b></p>"


def facts(told: Mapping[str, str | None]) -> str:
    """A row for each fact that is known; names and values are texts, not HTML."""
    rows = (
        f'<tr><th scope="row" style="{_LEFT}">{escape(name)}</th><td style="{_LEFT}">{escape(value)}</td></tr>'
        for name, value in told.items()
        if value
    )
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def rows_of(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()) -> str:
    """A table of texts, not HTML; the columns named in `numbers` are flush right."""
    sides = [_RIGHT if name in numbers else _LEFT for name in head]
    top = "".join(f'<th scope="col" style="{side}">{escape(name)}</th>' for name, side in zip(head, sides, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{side}">{escape(cell)}</td>' for cell, side in zip(row, sides, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def imputer_html(imputer: Imputer) -> str:
    """What it is, on what it was fitted, and its validation error beside that of linear interpolation."""
    from casper.neural import NeuralImputer

    name = type(imputer).__name__
    fitted = imputer.is_fitted
    told: dict[str, str | None] = {"method": imputer.summary}
    if isinstance(imputer, NeuralImputer):
        told["settings"] = f"preset {imputer.preset}, windows of {imputer.config.window} steps, seed {imputer.seed}"
    if fitted:
        told |= _fitted(imputer)
    return heading(f"{name}, {'fitted' if fitted else 'not fitted yet: call fit(table)'}") + facts(told)


def _fitted(imputer: Imputer) -> dict[str, str | None]:
    from casper.neural import NeuralImputer

    count = counted(len(imputer.graph.sensors), "sensor")
    step = imputer.step
    told: dict[str, str | None] = {
        "fitted on": count if step is None else f"{count}, steps of {duration(step)}",
        "network": imputer.graph.origin,
    }
    card = imputer.describe() if isinstance(imputer, NeuralImputer) else {}
    if "epochs" in card:
        length = f"{counted(card['epochs'], 'epoch')}, kept is epoch {card['best_epoch'] + 1}"
        told["training"] = f"{length}; {card['seconds']:.0f} s on {card['trained_on']}"
        told["weights"] = f"{card['parameters']:,}"
    error, linear = card.get("validation_mae"), card.get("validation_mae_of_linear_interpolation")
    if error is not None:
        beside = "" if linear is None else f"; linear interpolation: {number(linear)} ({_compared(error, linear)})"
        told["mean absolute error on held-back readings"] = f"{number(error)}{beside}"
    return told


def _compared(error: float, linear: float) -> str:
    if linear == 0:
        return "which is exact"
    return f"{percent(abs(1 - error / linear), decimals=0)} {'better' if error <= linear else 'worse'} than that"


def filled_html(filled: Filled) -> str:
    """What was filled, sensor by sensor, those with most holes first."""
    holes = (~filled.observed).sum()
    holes = holes[holes > 0].sort_values(ascending=False)
    widest = filled.shares[-1]
    head = ["sensor", "filled", "share", f"mean width of {widest:.0%} intervals", "remark"]
    rows = [
        [
            str(name),
            f"{count:,}",
            percent(count / len(filled.table)),
            number(_mean_width(filled, str(name), widest)),
            filled.flagged_sensors.get(str(name), ""),
        ]
        for name, count in holes.head(_SENSORS_SHOWN).items()
    ]
    total, cells, more = int(holes.sum()), filled.table.size, len(holes) - len(rows)
    told = f"{total:,} of {cells:,} cells filled ({percent(total / cells)}) in {counted(len(holes), 'sensor')}"
    rest = f"<p>and {counted(more, 'more sensor')}</p>" if more > 0 else ""
    return heading(told) + rows_of(head, rows, numbers=head[1:4]) + rest


def _mean_width(filled: Filled, sensor: str, share: float) -> float:
    missing = ~filled.observed[sensor].to_numpy()
    return float((filled.upper[share][sensor] - filled.lower[share][sensor]).to_numpy()[missing].mean())


def graph_html(graph: CausalGraph) -> str:
    """Counts, what a weight is, and the strongest edges between different sensors."""
    apart = graph.without_self()
    shown = apart.strongest(_EDGES_SHOWN)
    lags = graph.edges["lag"].dropna()
    told = {
        "edges": f"{len(apart):,} between different sensors, {len(graph) - len(apart):,} of a sensor with itself",
        "pairs": f"{len(graph.pairs()):,} of {len(graph.sensors) * (len(graph.sensors) - 1):,}",
        "lags": f"{int(lags.min())} to {int(lags.max())} steps" if len(lags) else "not told apart",
        "found by": " ".join(filter(None, (str(graph.origin.get("method", "")), _measure(graph)))),
        "a weight is": graph.meaning,
    }
    stable = bool(shown.edges["stability"].notna().any())
    head = ["source", "target", "lag", "weight", *(["stability"] if stable else [])]
    rows: list[list[str]] = []
    for edge in shown.records():
        lag = "" if edge["lag"] is None else f"{edge['lag']:+d}" if edge["lag"] else "0"
        if edge["lag"] is not None and graph.step is not None:
            lag += f" ({lag_words(edge['lag'], graph.step)})"
        row = [edge["source"], edge["target"], lag, number(edge["weight"])]
        rows.append([*row, *([] if not stable else ["" if edge["stability"] is None else f"{edge['stability']:.0%}"])])
    table = rows_of(head, rows, numbers=("weight", "stability")) if rows else ""
    more = len(apart) - len(shown)
    rest = f"<p>and {counted(more, 'weaker edge')}</p>" if more > 0 else ""
    return heading(f"Causal graph of {counted(len(graph.sensors), 'sensor')}") + facts(told) + table + rest


def _measure(graph: CausalGraph) -> str:
    return f"({graph.origin['measure']})" if "measure" in graph.origin else ""
