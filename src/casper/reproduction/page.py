"""Markdown made from result files: the README's short table, and docs/results.md with its pictures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from casper.files import atomic, refuse_overwriting
from casper.reproduction.cells import MARKS, duration, published_cell, said, seeds, training_of
from casper.reproduction.markdown import IMAGES, table
from casper.reproduction.published import FIGURES, Source, best_figure, figure_of
from casper.reproduction.result_files import short_commit
from casper.reproduction.results import DATASETS, Evaluation, Group, Results, title_of
from casper.reproduction.sampling_results import sampling_section
from casper.reproduction.sections import (
    ablation,
    baselines,
    error_bars,
    gates,
    learning_curves,
    recipe,
    rehearsal,
    sensitivity,
)
from casper.reproduction.trial_results import trials_section

PAGE = "docs/results.md"

_COMPARED = ("CASPER", "SPIN", "GRIN", "PoGeVon", "PriSTI", "CSDI", "CoFILL", "TIMBA")
_WITHOUT_READINGS = ("aqi", "pems-bay-point", "pems-bay-block")
_MARKS_EXPLAINED = (
    "† found in a text that quotes the paper, not in the paper itself; ‡ as quoted in our plan, not checked."
)
_SHORT_HEAD = ("data set", "method", "MAE", "MSE", "MAE per step", "MSE per step", "fit and score", "device", "file")


def short_table(results: Results) -> str:
    """For each measured data set: our presets, what was published, and single evaluations; with time and file."""
    rows: list[Sequence[str]] = []
    for dataset in results.datasets():
        rows += [_short_group(group) for group in results.groups("main") if group.dataset == dataset]
        rows += _short_published(dataset)
        rows += [_short_evaluation(one) for one in results.evaluations if one.dataset == dataset]
    told = (
        f"Mean ± standard deviation over seeds; all runs, more figures and sources: [{PAGE}]({PAGE}). "
        f"{_MARKS_EXPLAINED} Figures of others than CASPER may be scored by another protocol."
    )
    return f"{table(_SHORT_HEAD, rows)}\n\n{told}"


def write_page(results: Results, page: Path) -> list[Path]:
    """Write the page, and its pictures into the folder `images` beside it. Returns what was written."""
    from casper.report.result_plots import draw_pictures
    from casper.report.style import save  # matplotlib takes a second to load

    refuse_overwriting(page, force=True)
    pictures = draw_pictures(results)
    written = [save(figure, page.parent / IMAGES / name) for name, figure in pictures.items()]
    with atomic(page) as temporary:
        temporary.write_text(page_text(results, pictures=pictures.keys()), encoding="utf-8")
    return [page, *written]


def page_text(results: Results, *, pictures: Collection[str] = ()) -> str:
    """The page, with those sections that have runs. pictures: file names of the plots that are at hand."""
    opening = (
        "# Results\n\nMade by `casper results --page docs/results.md` from the files in `results/`; do not edit it by "
        "hand. ± is the standard deviation over seeds (n - 1 in the denominator); a figure without it has one seed."
    )
    sections: tuple[Callable[[Results, Collection[str]], str], ...] = (
        _main,
        error_bars,
        baselines,
        _sampling,
        ablation,
        sensitivity,
        gates,
        recipe,
        rehearsal,
        learning_curves,
        _trials,
        _origins,
    )
    written = [section(results, pictures) for section in sections]
    return "\n\n".join([opening, *(text for text in written if text)]) + "\n"


# ---- sections of the page


def _main(results: Results, _pictures: Collection[str]) -> str:
    groups = results.groups("main")
    if not groups:
        return ""
    columns = [*DATASETS, *(name for name in results.datasets() if name not in DATASETS)]
    head = ("method", *map(title_of, columns))
    published = [(method, *(published_cell(figure_of(method, name)) for name in columns)) for method in _COMPARED]
    parts = (
        "## Benchmarks",
        "MAE / MSE in the units of the data (µg/m³, miles per hour), **per window**: every scored cell counts once for "
        "each test window that shows it.",
        table(head, [*_our_rows(groups, columns, "mae", "mse"), *published]),
        _MARKS_EXPLAINED,
        "Ours **per step**: the imputations of overlapping windows are averaged first, then each scored cell counts "
        "once.",
        table(head, _our_rows(groups, columns, "mae_step", "mse_step")),
        _PROTOCOLS,
        _sources(),
    )
    return "\n\n".join(parts)


_PROTOCOLS = """Not all of these figures are the same quantity:

- Ours follow SPIN: windows start at every step, all of the test windows count, one mean and deviation scales the whole
  table, and with preset `paper` no hidden cell of any month is read or trained on. The CASPER paper takes its masks and
  most of its settings from SPIN. Preset `best` learns from the hidden cells of the training steps, too, as GRIN and
  PriSTI do; no preset sees any of the test steps.
- GRIN trains on the hidden cells of the months that are not tested. Which of the two ways of counting its paper's
  tables use is not stated; the same holds for the methods that CASPER's Table 1 took from there.
- PriSTI scores test windows that do not overlap, cuts METR-LA at 70 % and 80 % of the steps (here about 72 % and 80 %)
  and AQI-36 by other validation windows, standardises each sensor on its own, and also reads and trains on the hidden
  cells of the months that are not tested. The figures of CSDI are those of PriSTI's paper, so the same holds for them.
- CoFILL and TIMBA compare themselves with PriSTI; we have not checked their protocols. CoFILL's authors also report an
  error on METR-LA with blocks missing that is 10.22 % below PriSTI's †; the figure itself we did not find.
- Figures for training on the test months as well ("in sample") are left out. A dash: not known to us.
- CASPER's Table 1 prints the same MSE for SPIN on METR-LA with points and with blocks missing; one may be a slip."""


def _sampling(results: Results, pictures: Collection[str]) -> str:
    return sampling_section(results.samplings, pictures)


def _trials(results: Results, pictures: Collection[str]) -> str:
    return trials_section(results.trials, pictures)


def _origins(results: Results, _pictures: Collection[str]) -> str:
    parts: list[str] = []
    for name in results.tables():
        runs = [run for run in results.runs if run.table == name]
        head = ("file", "seed", "MAE", "steps", "training")
        rows = [(f"`{run.file}`", str(run.seed), f"{run.mae:.3f}", f"{run.steps:,}", training_of(run)) for run in runs]
        folded = f"<details><summary>{len(runs)} runs</summary>\n\n{table(head, rows)}\n\n</details>"
        parts += [f"### {name.capitalize()}", _origin(runs), folded]
    if results.evaluations:
        rows = [_short_evaluation(one) for one in results.evaluations]
        parts += ["### Single evaluations", _origin(results.evaluations), table(_SHORT_HEAD, rows)]
    return "\n\n".join(["## Where the numbers come from", *parts]) if parts else ""


def _origin(results: Sequence[Evaluation]) -> str:
    commands = "\n".join(dict.fromkeys(one.command for one in results))
    devices = ", ".join(dict.fromkeys(one.device for one in results))
    commits = ", ".join(f"`{name}`" for name in dict.fromkeys(short_commit(one.commit) for one in results))
    return f"```bash\n{commands}\n```\n\nDevices: {devices}. Commits (a plus: with changes): {commits}."


def _sources() -> str:
    """Each text once, in the order of the rows that use it."""
    used: dict[Source, list[str]] = {}
    for figure in FIGURES:
        if figure.method in _COMPARED:
            used.setdefault(figure.source, []).append(figure.method)
    lines = [
        f"- {', '.join(sorted(set(methods), key=_COMPARED.index))}{MARKS[source.checked]}: {source.text}"
        for source, methods in used.items()
    ]
    return "\n".join(["Sources of the published figures:\n", *lines])


# ---- rows and cells


def _our_rows(groups: Sequence[Group], columns: Sequence[str], mae: str, mse: str) -> list[Sequence[str]]:
    measured = {group.dataset for group in groups}

    def cell(row: str, name: str) -> str:
        group = next((group for group in groups if (group.row, group.dataset) == (row, name)), None)
        if group is None:
            absent = name in _WITHOUT_READINGS and name not in measured
            return "not measured: readings not at hand" if absent else "not run"
        return f"{said(group.spread(mae))} / {said(group.spread(mse))} ({seeds(group)})"

    rows = dict.fromkeys(group.row for group in sorted(groups, key=lambda group: group.first.number))
    return [(f"**ours, preset `{row}`**", *(cell(row, name) for name in columns)) for row in rows]


def _short_group(group: Group) -> Sequence[str]:
    scores = [said(group.spread(name)) for name in ("mae", "mse", "mae_step", "mse_step")]
    # A run that was interrupted and went on later has a short wall time.
    time = duration(sum(max(run.wall_seconds, run.training_seconds) for run in group.runs) / len(group.runs))
    devices = ", ".join(dict.fromkeys(run.device for run in group.runs))
    files = f"{len(group.runs)} files" if len(group.runs) > 1 else f"`{group.first.file}`"
    return (group.dataset, f"**casper, preset {group.row}** ({seeds(group)})", *scores, time, devices, files)


def _short_published(dataset: str) -> list[Sequence[str]]:
    named = {"published": figure_of("CASPER", dataset), "best published that we know of": best_figure(dataset)}
    found = {words: figure for words, figure in named.items() if figure is not None}
    if len(set(found.values())) < len(found):
        found.popitem()  # nobody has published a better one
    return [
        (
            dataset,
            f"{figure.method}, {words}{MARKS[figure.source.checked]}",
            said(figure.mae),
            said(figure.mse),
            *[""] * 5,
        )
        for words, figure in found.items()
    ]


def _short_evaluation(one: Evaluation) -> Sequence[str]:
    return (
        one.dataset,
        one.method if one.weights is None else f"{one.method}, shipped weights",
        f"{one.mae:.2f}",
        f"{one.mse:.1f}",
        f"{one.mae_step:.2f}",
        f"{one.mse_step:.1f}",
        duration(one.wall_seconds),
        one.device,
        f"`{one.file}`",
    )
