"""Markdown made from result files: the README's short table, and docs/results.md with its pictures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from casper.files import atomic, refuse_overwriting
from casper.markdown import IMAGES, image, table
from casper.published import (
    ABLATIONS,
    DECIDED_GATES,
    FIGURES,
    PublishedAblation,
    PublishedFigure,
    Source,
    Spread,
    best_figure,
    figure_of,
)
from casper.results import DATASETS, Evaluation, Group, Results, TrainedRun, title_of
from casper.trial_results import trials_section

PAGE = "docs/results.md"

_COMPARED = ("CASPER", "SPIN", "GRIN", "PoGeVon", "PriSTI", "CSDI", "CoFILL", "TIMBA")
_WITHOUT_READINGS = ("aqi", "pems-bay-point", "pems-bay-block")
_MARKS = {"paper": "", "second hand": " †", "unchecked": " ‡"}
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
    from casper.report.pictures import save  # matplotlib takes a second to load
    from casper.report.result_plots import draw_pictures

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
        _baselines,
        _ablation,
        _sensitivity,
        _gates,
        _recipe,
        _learning_curves,
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
    published = [(method, *(_published_cell(figure_of(method, name)) for name in columns)) for method in _COMPARED]
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
  table, and no hidden cell of any month is read or trained on. The CASPER paper takes its masks and most of its
  settings from SPIN.
- GRIN trains on the hidden cells of the months that are not tested. Which of the two ways of counting its paper's
  tables use is not stated; the same holds for the methods that CASPER's Table 1 took from there.
- PriSTI scores test windows that do not overlap, cuts METR-LA at 70 % and 80 % of the steps (here about 72 % and 80 %)
  and AQI-36 by other validation windows, standardises each sensor on its own, and also reads and trains on the hidden
  cells of the months that are not tested. The figures of CSDI are those of PriSTI's paper, so the same holds for them.
- CoFILL and TIMBA compare themselves with PriSTI; we have not checked their protocols. CoFILL's authors also report an
  error on METR-LA with blocks missing that is 10.22 % below PriSTI's †; the figure itself we did not find.
- Figures for training on the test months as well ("in sample") are left out. A dash: not known to us.
- CASPER's Table 1 prints the same MSE for SPIN on METR-LA with points and with blocks missing; one may be a slip."""


_PUBLISHED_NAMES = {
    "mean": "Mean", "knn": "KNN", "mf": "MF", "mice": "MICE", "var": "VAR", "rgain": "rGAIN", "brits": "BRITS",
    "st-transformer": "ST-Transformer", "grin": "GRIN", "spin": "SPIN", "pogevon": "PoGeVon", "csdi": "CSDI",
    "pristi": "PriSTI",
}  # fmt: skip


def _baselines(results: Results, _pictures: Collection[str]) -> str:
    groups = results.groups("baselines")
    if not groups:
        return ""
    parts = [
        "## Other methods in the same harness",
        "Every method is written fresh from its paper, fitted and scored on the same cells by the same code. MAE / MSE "
        "per window. in-sample: fitted on everything but the scored cells of the test steps, which is usual for "
        "methods without training windows; out-of-sample: on no reading of the test steps. Published: the CASPER "
        "paper's Table 1, PriSTI's for the diffusion models. Time per window: of imputing all overlapping test windows "
        "in batches, on the device of the run.",
    ]
    head = ("method", "ours", "published", "fitted", "seeds", "parameters", "training", "time per window", "device")
    for dataset in dict.fromkeys(group.dataset for group in groups):
        own = [group for group in results.groups("main") if group.dataset == dataset]
        others = [group for group in groups if group.dataset == dataset]
        rows = [_baseline_row(group, f"**CASPER, preset {group.row}**", figure_of("CASPER", dataset)) for group in own]
        rows += [
            _baseline_row(group, group.row, figure_of(_PUBLISHED_NAMES.get(group.row, ""), dataset)) for group in others
        ]
        parts += [f"**{title_of(dataset)}**", table(head, rows)]
    return "\n\n".join(parts)


def _baseline_row(group: Group, label: str, published: PublishedFigure | None) -> Sequence[str]:
    first, runs = group.first, group.runs
    per_window = [run.seconds_per_window for run in runs if run.seconds_per_window is not None]
    return (
        label,
        f"{_said(group.spread('mae'))} / {_said(group.spread('mse'))}",
        _published_cell(published),
        first.protocol or "",
        str(len(runs)),
        f"{first.parameters:,}" if first.parameters else "",
        _duration(sum(run.training_seconds for run in runs) / len(runs)) if first.steps else "",
        f"{1e3 * min(per_window):.3g} ms" if per_window else "",
        first.device,
    )


def _ablation(results: Results, _pictures: Collection[str]) -> str:
    groups = [group for group in results.groups("ablation") if group.dataset == "aqi36"]
    if not groups:
        return ""
    left, rows = list(groups), list[Sequence[str]]()
    for published in ABLATIONS:
        ours = next((group for group in left if published.describes(group.first.model)), None)
        if ours is not None:
            left.remove(ours)
        rows.append(_ablation_row(published.label if ours is None else ours.row, ours, published))
    rows += [_ablation_row(group.row, group, None) for group in left]
    steps = sorted({count for group in groups for count in group.steps})
    parts = [
        "## What each part is worth",
        f"AQI-36, per window, beside Table 2 of the paper. Trained for {_steps(steps)} steps; the paper trains for at "
        "most 300 epochs.",
    ]
    if len(steps) > 1:
        parts.append(
            "**Warning:** the rows were not trained for the same number of steps, so part of their difference may be "
            "the training: " + "; ".join(f"{group.row}: {_steps(group.steps)}" for group in groups) + "."
        )
    head = ("row", "MAE", "MSE", "seeds", "MAE, published", "MSE, published")
    return "\n\n".join([*parts, table(head, rows)])


def _ablation_row(label: str, ours: Group | None, published: PublishedAblation | None) -> Sequence[str]:
    measured = (
        (_said(ours.spread("mae")), _said(ours.spread("mse")), str(len(ours.runs))) if ours else ("not run", "", "")
    )
    return (label, *measured, *((_said(published.mae), _said(published.mse)) if published else ("", "")))


def _sensitivity(results: Results, pictures: Collection[str]) -> str:
    told = {
        "sparsity": ("lambda, the weight of the l1 norm", "The paper finds the lowest MAE around 0.001."),
        "prompts": ("number of prompts", "The paper finds the best results between 200 and 1,400."),
    }
    parts: list[str] = []
    for number, (name, claim) in told.items():
        groups = results.groups(number)
        if not groups:
            continue
        steps = sorted({count for group in groups for count in group.steps})
        rows = [
            (
                title_of(group.dataset),
                f"{group.value:g}",
                _said(group.spread("mae")),
                _said(group.spread("mse")),
                str(len(group.runs)),
            )
            for group in groups
        ]
        parts += [
            f"**{name[0].upper()}{name[1:]}.** {claim} Trained for {_steps(steps)} steps.",
            image(f"sensitivity-{number}.png", f"Test error by {name}", pictures),
            table(("data set", name.split(",")[0], "MAE", "MSE", "seeds"), rows),
        ]
    return "\n\n".join(["## Sensitivity", *filter(None, parts)]) if parts else ""


def _gates(results: Results, pictures: Collection[str]) -> str:
    groups = [group for group in results.groups("main", "gates") if group.decided or group.first.table == "gates"]
    if not groups:
        return ""
    rows = [
        (
            title_of(group.dataset),
            group.row,
            "hard" if group.first.model.get("gate_hard_inference") else "soft",
            ", ".join(f"{share:.1%}" for share in group.decided or ()),
            _said(group.spread("mae")),
            _said(group.spread("mse")),
            str(len(group.runs)),
        )
        for group in groups
    ]
    parts = (
        "## Do the gates decide?",
        "A gate counts as decided where rho is below 0.1 or above 0.9; the paper finds "
        f"{DECIDED_GATES:.0%} on AQI-36. Soft gates weigh with rho at inference, hard ones are open where rho > 0.5.",
        image("gates.png", "Share of decided gates over the training", pictures),
        table(("data set", "row", "gates at inference", "decided, by layer", "MAE", "MSE", "seeds"), rows),
    )
    return "\n\n".join(filter(None, parts))


def _recipe(results: Results, _pictures: Collection[str]) -> str:
    """Validation errors alone: test errors choose nothing."""
    groups = results.groups("recipe")
    if not groups:
        return ""
    steps = sorted({count for group in groups for count in group.steps})
    parts = [
        "## What helps and what does not",
        f"Preset `best` with one thing changed, trained for {_steps(steps)} steps; the validation error, on which "
        "choices are made, and its difference from the preset's. Seeds differ by a few hundredths at least, so small "
        "differences mean nothing.",
    ]
    for dataset in dict.fromkeys(group.dataset for group in groups):
        here = {group.row: _validation(group) for group in groups if group.dataset == dataset}
        base = here.get("preset best")
        rows = [
            (row, f"{error:.3f}", "" if base is None or row == "preset best" else f"{error - base:+.3f}")
            for row, error in sorted(here.items(), key=lambda one: one[1])
        ]
        parts += [f"**{title_of(dataset)}**", table(("changed", "validation MAE", "difference"), rows)]
    return "\n\n".join(parts)


def _validation(group: Group) -> float:
    told = [run.validation_mae for run in group.runs if run.validation_mae is not None]
    return sum(told) / len(told) if told else float("nan")


def _learning_curves(_results: Results, pictures: Collection[str]) -> str:
    picture = image("learning-curves.png", "Validation error over the training", pictures)
    return f"## Learning curves\n\nA line for each seed.\n\n{picture}" if picture else ""


def _trials(results: Results, pictures: Collection[str]) -> str:
    return trials_section(results.trials, pictures)


def _origins(results: Results, _pictures: Collection[str]) -> str:
    parts: list[str] = []
    for name in results.tables():
        runs = [run for run in results.runs if run.table == name]
        head = ("file", "seed", "MAE", "steps", "training")
        rows = [(f"`{run.file}`", str(run.seed), f"{run.mae:.3f}", f"{run.steps:,}", _training(run)) for run in runs]
        folded = f"<details><summary>{len(runs)} runs</summary>\n\n{table(head, rows)}\n\n</details>"
        parts += [f"### {name.capitalize()}", _origin(runs), folded]
    if results.evaluations:
        rows = [_short_evaluation(one) for one in results.evaluations]
        parts += ["### Single evaluations", _origin(results.evaluations), table(_SHORT_HEAD, rows)]
    return "\n\n".join(["## Where the numbers come from", *parts]) if parts else ""


def _origin(results: Sequence[Evaluation]) -> str:
    commands = "\n".join(dict.fromkeys(one.command for one in results))
    devices = ", ".join(dict.fromkeys(one.device for one in results))
    commits = ", ".join(f"`{name}`" for name in dict.fromkeys(_short_commit(one.commit) for one in results))
    return f"```bash\n{commands}\n```\n\nDevices: {devices}. Commits (a plus: with changes): {commits}."


def _sources() -> str:
    """Each text once, in the order of the rows that use it."""
    used: dict[Source, list[str]] = {}
    for figure in FIGURES:
        if figure.method in _COMPARED:
            used.setdefault(figure.source, []).append(figure.method)
    lines = [
        f"- {', '.join(sorted(set(methods), key=_COMPARED.index))}{_MARKS[source.checked]}: {source.text}"
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
        return f"{_said(group.spread(mae))} / {_said(group.spread(mse))} ({_seeds(group)})"

    rows = dict.fromkeys(group.row for group in sorted(groups, key=lambda group: group.first.number))
    return [(f"**ours, preset `{row}`**", *(cell(row, name) for name in columns)) for row in rows]


def _published_cell(figure: PublishedFigure | None) -> str:
    if figure is None:
        return ""
    return f"{_said(figure.mae)} / {_said(figure.mse) or '-'}{_MARKS[figure.source.checked]}"


def _short_group(group: Group) -> Sequence[str]:
    scores = [_said(group.spread(name)) for name in ("mae", "mse", "mae_step", "mse_step")]
    time = _duration(sum(run.wall_seconds for run in group.runs) / len(group.runs))
    devices = ", ".join(dict.fromkeys(run.device for run in group.runs))
    files = f"{len(group.runs)} files" if len(group.runs) > 1 else f"`{group.first.file}`"
    return (group.dataset, f"**casper, preset {group.row}** ({_seeds(group)})", *scores, time, devices, files)


def _short_published(dataset: str) -> list[Sequence[str]]:
    named = {"published": figure_of("CASPER", dataset), "best published that we know of": best_figure(dataset)}
    found = {words: figure for words, figure in named.items() if figure is not None}
    if len(set(found.values())) < len(found):
        found.popitem()  # nobody has published a better one
    return [
        (
            dataset,
            f"{figure.method}, {words}{_MARKS[figure.source.checked]}",
            _said(figure.mae),
            _said(figure.mse),
            *[""] * 5,
        )
        for words, figure in found.items()
    ]


def _short_evaluation(one: Evaluation) -> Sequence[str]:
    return (
        one.dataset,
        one.method,
        f"{one.mae:.2f}",
        f"{one.mse:.1f}",
        f"{one.mae_step:.2f}",
        f"{one.mse_step:.1f}",
        _duration(one.wall_seconds),
        one.device,
        f"`{one.file}`",
    )


def _said(spread: Spread | None) -> str:
    """Two digits after the point, or one where there are hundreds before it."""
    if spread is None:
        return ""
    digits = 1 if abs(spread.mean) >= 100 else 2
    mean = f"{spread.mean:.{digits}f}"
    return mean if spread.deviation is None else f"{mean} ± {spread.deviation:.{digits}f}"


def _seeds(group: Group) -> str:
    return "1 seed" if len(group.runs) == 1 else f"{len(group.runs)} seeds"


def _steps(counts: Sequence[int]) -> str:
    return f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"


def _training(run: TrainedRun) -> str:
    beside = f" ({run.side_by_side} side by side)" if run.side_by_side > 1 else ""
    return _duration(run.training_seconds) + beside


def _short_commit(commit: str | None) -> str:
    if commit is None:
        return "unknown"
    return commit[:10] + ("+" if commit.endswith("+") else "")


def _duration(seconds: float) -> str:
    if seconds < 1:
        return "< 1 s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
