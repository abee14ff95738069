"""What the command line prints: tables and sentences for a person."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table

if TYPE_CHECKING:  # printing a summary must not wait for PyTorch to be loaded
    from pathlib import Path

    import pandas as pd

    from casper.causal import CausalGraph
    from casper.check import TableSummary
    from casper.commands.demo import DemoResult
    from casper.commands.settings import Setting
    from casper.datasets import Check
    from casper.explanation import Explanation
    from casper.graph import SensorGraph

_MOST_LISTED = 8


def set_up_notes(*, quiet: bool) -> None:
    """Notes of the package (what was done to the table, where the graph came from) go to standard error."""
    logger = logging.getLogger("casper")
    logger.handlers.clear()
    logger.setLevel(logging.WARNING if quiet else logging.INFO)
    logger.addHandler(
        RichHandler(console=Console(stderr=True), show_time=False, show_level=False, show_path=False, markup=False)
    )


def note(*sentences: str) -> None:
    """Notes like the package's own, from the command line."""
    for sentence in sentences:
        logging.getLogger("casper").info(sentence)


def show_summary(name: str, summary: TableSummary, graph: SensorGraph, *, region: str | None = None) -> None:
    from casper.frame.grid import step_text

    gaps, degree = summary.gaps, graph.degree()
    lines = {
        "period": f"{summary.start} to {summary.end}",
        "step": f"{step_text(summary.step)}, {summary.steps:,} steps",
        "sensors": f"{summary.sensors:,}",
        **({} if region is None else {"region": region}),
        "missing": f"{summary.missing_share:.1%} of all cells; everything at {summary.blackout_share:.1%} of the steps",
        "gaps": f"{gaps.count:,} gaps, median {gaps.median:g} steps; cells by length of their gap: "
        + ", ".join(f"{length}: {cells:,}" for length, cells in gaps.cells_by_length.items()),
        "longest gap": "none"
        if gaps.longest_sensor is None
        else f"{gaps.longest:,} steps, sensor {gaps.longest_sensor}, {gaps.longest_start} to {gaps.longest_end}",
        "never report": _listed(summary.dead),
        "hardly report": _listed(summary.nearly_dead),
        "constant": _listed(summary.constant),
        "graph": f"{graph.origin}; {len(graph.source):,} edges; "
        f"neighbours per sensor {degree.min()} to {degree.max()}, {degree.mean():.1f} on average",
    }
    table = Table(title=name, show_header=False, title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for what, told in lines.items():
        table.add_row(what, told)
    for what, sentences in {
        "suspicious": summary.sentences(),
        "done": list(summary.notes),
    }.items():
        for number, sentence in enumerate(sentences):
            table.add_row(what if number == 0 else "", sentence)
    _console().print(table)


def show_fitted(out: Path, card: Mapping[str, Any]) -> None:
    linear = card["validation_mae_of_linear_interpolation"]
    beside = "" if linear is None else f" (linear interpolation: {linear:.4g})"
    shares = card.get("share_of_kriging", {})
    told = ", ".join(f"{distance}: {share:.0%}" for distance, share in shares.items())
    leans = f"Share of kriging in a filled value, by distance to the nearest reading: {told}\n" if told else ""
    _console().print(
        f"Fitted in {card['seconds']:.0f} s ({card['epochs']} epochs on {card['trained_on']}, kept is epoch "
        f"{card['best_epoch'] + 1}).\nMean absolute error on held-back cells: {card['validation_mae']:.4g}{beside}\n"
        f"{leans}The model is in {out}; fill a table with: casper impute TABLE --model {out} -o FILLED",
        highlight=False,
        soft_wrap=True,
    )
    warning, worst = "", card.get("most_of_the_error")
    if linear is not None and card["validation_mae"] > linear:
        whose = f" Most of the error is of the sensor {worst}." if worst else ""
        warning = f"Linear interpolation did better on them: this model is of little use.{whose}"
        warning += " Look at the table with: casper check TABLE"
    elif worst:
        warning = f"Most of the error is of the sensor {worst}: are all of its readings in the same units?"
    if warning:
        _console(stderr=True).print(warning, highlight=False, markup=False, soft_wrap=True)


def show_filled(out: Path, filled: pd.DataFrame) -> None:
    about = filled.attrs["casper"]
    _console().print(
        f"Filled {about['filled']:,} of {filled.size:,} cells; wrote {out}", highlight=False, soft_wrap=True
    )
    if about["flagged"]:
        _console(stderr=True).print(
            f"Filled from other sensors alone, trust with care: {_listed(about['flagged'])} (no reading at all).",
            highlight=False,
            soft_wrap=True,
        )


def show_scores(scores: Mapping[str, Any]) -> None:
    table = Table(title=f"{scores['method']} on {scores['dataset']} ({scores['n_scored']:,} scored cells)")
    for column in ("", "MAE", "MSE", "MRE %"):
        table.add_column(column, justify="right")
    for label, suffix in (("per window", ""), ("per step", "_step")):
        table.add_row(label, *(f"{scores[name + suffix]:.4f}" for name in ("mae", "mse", "mre")))
    _console().print(table)


def show_edges(graph: CausalGraph, *, most: int = _MOST_LISTED) -> None:
    """The strongest ones, without self-pairs, and what their weights are."""
    table = Table("source", "target", "lag", "weight", "stability", title="strongest edges", title_justify="left")
    for edge in graph.without_self().strongest(most).records():
        lag = "" if edge["lag"] is None else f"{edge['lag']:+d}"
        stability = "" if edge["stability"] is None else f"{edge['stability']:.0%}"
        table.add_row(edge["source"], edge["target"], lag, f"{edge['weight']:.4g}", stability)
    console = _console()
    console.print(table)
    if graph.meaning is not None:
        console.print(f"A weight is {graph.meaning}.", highlight=False, soft_wrap=True)


def show_causes(explanation: Explanation, causes: pd.DataFrame) -> None:
    what = f"{explanation.sensor} at {explanation.time}"
    console = _console()
    measured = "there is no reading" if explanation.measured is None else f"the reading is {explanation.measured:.6g}"
    hidden = "" if explanation.measured is None else " and was hidden from it"
    console.print(
        f"{what}: the model says {explanation.estimate:.6g}; {measured}{hidden}.", highlight=False, soft_wrap=True
    )
    table = Table("source", "time", "lag", "attention", "rho", "weight", title="drawn from", title_justify="left")
    for cause in causes.head(_MOST_LISTED).itertuples():
        numbers = (f"{getattr(cause, name):.3g}" for name in ("attention", "rho", "weight"))
        table.add_row(str(cause.source), str(cause.time), f"{cause.lag:+d}", *numbers)
    console.print(table)


def show_settings(heading: str, settings: Sequence[Setting]) -> None:
    names = list(settings[0].values)
    table = Table("setting", *names, "what it is", title=heading, title_justify="left")
    for one in settings:
        values = (value if isinstance(value, str) else json.dumps(value) for value in one.values.values())
        table.add_row(one.name, *values, ". ".join(filter(None, (one.takes, one.meaning))))
    _console().print(table)


def show_methods(purpose: str, summaries: Mapping[str, str]) -> None:
    table = Table("method", "what it is", title=f"methods that {purpose}", title_justify="left")
    for name, summary in summaries.items():
        table.add_row(name, summary)
    _console().print(table)


def show_card(name: str, card: Mapping[str, Any]) -> None:
    table = Table(title=f"model {name}", title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for label, value in ((label, value) for label, value in card.items() if value is not None):
        told = ", ".join(f"{key} {_figure(one)}" for key, one in value.items()) if isinstance(value, dict) else value
        table.add_row(label.replace("_", " "), _figure(told))
    _console().print(table)


def _figure(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def show_benchmarks(at_hand: Mapping[str, Sequence[str]]) -> None:
    table = Table("benchmark", "at hand", "what is lacking")
    for name, lacking in at_hand.items():
        table.add_row(name, "no" if lacking else "yes", "\n".join(lacking))
    _console().print(table)


def show_checks(results: Mapping[str, Sequence[Check]]) -> None:
    table = Table("benchmark", "what", "expected", "found", "")
    for name, checks in results.items():
        for check in checks:
            table.add_row(name, check.what, str(check.expected), str(check.found), "ok" if check.ok else "WRONG")
    _console().print(table)


def show_demo(result: DemoResult) -> None:
    table = Table(title=f"Error on {result.hidden:,} readings that the model never saw (ug/m3)", title_justify="left")
    for column in ("method", "MAE", "RMSE", "worse than CASPER by"):
        table.add_column(column, justify="left" if column == "method" else "right")
    best = result.scores["mae"].iloc[0]
    for label, row in result.scores.iterrows():
        worse = "" if row["mae"] == best else f"{row['mae'] / best - 1:+.0%}"
        table.add_row(str(label), f"{row['mae']:.2f}", f"{row['rmse']:.2f}", worse)
    console = _console()
    console.print(table)
    console.print(f"{result.about} Took {result.seconds:.1f} s.", highlight=False, soft_wrap=True)
    for path, what in result.files.items():
        console.print(f"  {path}: {what}", highlight=False, soft_wrap=True)


def _console(*, stderr: bool = False) -> Console:
    """Names of sensors and files are shown as they are: [/b] is no markup and :b: no picture."""
    return Console(stderr=stderr, markup=False, emoji=False)


def _listed(names: Sequence[str]) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return ", ".join(names[:_MOST_LISTED]) + more
