"""Sections of docs/results.md: other methods, ablations, sensitivity, gates, the recipe, learning curves.

Each is empty where there are no runs for it. pictures: file names of the plots that are at hand.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from casper.markdown import image, table
from casper.published import ABLATIONS, DECIDED_GATES, PublishedAblation, PublishedFigure, figure_of
from casper.result_cells import duration, published_cell, said, steps_of
from casper.results import Group, Results, title_of

_PUBLISHED_NAMES = {
    "mean": "Mean", "knn": "KNN", "mf": "MF", "mice": "MICE", "var": "VAR", "rgain": "rGAIN", "brits": "BRITS",
    "st-transformer": "ST-Transformer", "grin": "GRIN", "spin": "SPIN", "pogevon": "PoGeVon", "csdi": "CSDI",
    "pristi": "PriSTI",
}  # fmt: skip


def baselines(results: Results, _pictures: Collection[str]) -> str:
    groups = results.groups("baselines")
    if not groups:
        return ""
    parts = [
        "## Other methods in the same harness",
        "Every method is written fresh from its paper, fitted and scored on the same cells by the same code. MAE / MSE "
        "per window. in-sample: fitted on everything but the scored cells of the test steps, which is usual for "
        "methods without training windows; out-of-sample: on no reading of the test steps. Published: the CASPER "
        "paper's Table 1, PriSTI's for the diffusion models. Time per window: of imputing all overlapping test windows "
        "in batches, on the device of the run, in the fastest of the seeds.",
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
        f"{said(group.spread('mae'))} / {said(group.spread('mse'))}",
        published_cell(published),
        first.protocol or "",
        str(len(runs)),
        f"{first.parameters:,}" if first.parameters else "",
        duration(sum(run.training_seconds for run in runs) / len(runs)) if first.steps else "",
        f"{1e3 * min(per_window):.3g} ms" if per_window else "",
        first.device,
    )


def ablation(results: Results, _pictures: Collection[str]) -> str:
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
        f"AQI-36, per window, beside Table 2 of the paper. Trained for {steps_of(steps)} steps; the paper trains for "
        "at most 300 epochs.",
    ]
    if len(steps) > 1:
        parts.append(
            "**Warning:** the rows were not trained for the same number of steps, so part of their difference may be "
            "the training: " + "; ".join(f"{group.row}: {steps_of(group.steps)}" for group in groups) + "."
        )
    head = ("row", "MAE", "MSE", "seeds", "MAE, published", "MSE, published")
    return "\n\n".join([*parts, table(head, rows)])


def _ablation_row(label: str, ours: Group | None, published: PublishedAblation | None) -> Sequence[str]:
    measured = (
        (said(ours.spread("mae")), said(ours.spread("mse")), str(len(ours.runs))) if ours else ("not run", "", "")
    )
    return (label, *measured, *((said(published.mae), said(published.mse)) if published else ("", "")))


def sensitivity(results: Results, pictures: Collection[str]) -> str:
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
                said(group.spread("mae")),
                said(group.spread("mse")),
                str(len(group.runs)),
            )
            for group in groups
        ]
        parts += [
            f"**{name[0].upper()}{name[1:]}.** {claim} Trained for {steps_of(steps)} steps.",
            image(f"sensitivity-{number}.png", f"Test error by {name}", pictures),
            table(("data set", name.split(",")[0], "MAE", "MSE", "seeds"), rows),
        ]
    return "\n\n".join(["## Sensitivity", *filter(None, parts)]) if parts else ""


def gates(results: Results, pictures: Collection[str]) -> str:
    groups = [group for group in results.groups("main", "gates") if group.decided or group.first.table == "gates"]
    if not groups:
        return ""
    rows = [
        (
            title_of(group.dataset),
            group.row,
            "hard" if group.first.model.get("gate_hard_inference") else "soft",
            ", ".join(f"{share:.1%}" for share in group.decided or ()),
            said(group.spread("mae")),
            said(group.spread("mse")),
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


def recipe(results: Results, _pictures: Collection[str]) -> str:
    """Validation errors alone: test errors choose nothing."""
    groups = results.groups("recipe")
    if not groups:
        return ""
    steps = sorted({count for group in groups for count in group.steps})
    parts = [
        "## What helps and what does not",
        f"Preset `best` with one thing changed, trained for {steps_of(steps)} steps; the validation error, on which "
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


def learning_curves(_results: Results, pictures: Collection[str]) -> str:
    picture = image("learning-curves.png", "Validation error over the training", pictures)
    return f"## Learning curves\n\nA line for each seed.\n\n{picture}" if picture else ""
