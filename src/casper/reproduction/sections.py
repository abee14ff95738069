"""Sections of docs/results.md: other methods, error bars, ablations, sensitivity, gates, the recipe, learning curves.

Each is empty where there are no runs for it. pictures: file names of the plots that are at hand.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from casper.reproduction.cells import duration, published_cell, said, steps_of
from casper.reproduction.markdown import image, table
from casper.reproduction.published import ABLATIONS, CRPS, DECIDED_GATES, PublishedAblation, PublishedFigure, figure_of
from casper.reproduction.results import Group, Results, title_of

_PUBLISHED_NAMES = {
    "mean": "Mean", "knn": "KNN", "mf": "MF", "mice": "MICE", "var": "VAR", "rgain": "rGAIN", "brits": "BRITS",
    "st-transformer": "ST-Transformer", "grin": "GRIN", "spin": "SPIN", "pogevon": "PoGeVon", "csdi": "CSDI",
    "pristi": "PriSTI",
}  # fmt: skip
# Intervals are meant to hold their share of the true values within so much.
_WELL_HELD = 0.015


def baselines(results: Results, _pictures: Collection[str]) -> str:
    groups = results.groups("baselines")
    if not groups:
        return ""
    parts = [
        "## Other methods in the same harness",
        "Every method is written fresh from its paper, fitted and scored on the same cells by the same code; where "
        "it is far from the published figure, its file in `src/casper/baselines/` says what is done differently. MAE "
        "/ MSE per window. in-sample: fitted on everything but the scored cells of the test steps, which is usual "
        "for methods without training windows; out-of-sample: on no reading of the test steps. Published: the CASPER "
        "paper's Table 1, PriSTI's for the diffusion models. Time per window: of imputing all overlapping test "
        "windows in batches, on the device of the run, in the fastest of the seeds. Trainings may have run several "
        "at a time: their times are upper bounds. Beside a method stands what was changed in its authors' recipe, to "
        "train it in the time at hand.",
    ]
    head = ("method", "ours", "published", "fitted", "seeds", "parameters", "training", "time per window", "device")
    for dataset in dict.fromkeys(group.dataset for group in groups):
        own = [group for group in results.groups("main") if group.dataset == dataset]
        others = [group for group in groups if group.dataset == dataset]
        rows = [_baseline_row(group, f"**CASPER, preset {group.row}**", figure_of("CASPER", dataset)) for group in own]
        rows += [
            _baseline_row(group, _changed(group), figure_of(_PUBLISHED_NAMES.get(group.row, ""), dataset))
            for group in others
        ]
        parts += [f"**{title_of(dataset)}**", table(head, rows)]
    return "\n\n".join(parts)


def _changed(group: Group) -> str:
    """The method and its changed settings, but for the one that changes nothing but the time."""
    changes = {f"{name}={value}" for run in group.runs for name, value in run.settings.items() if name != "compiled"}
    return f"{group.row} ({', '.join(sorted(changes))})" if changes else group.row


def _baseline_row(group: Group, label: str, published: PublishedFigure | None) -> Sequence[str]:
    first, runs = group.first, group.runs
    timed = [run for run in runs if run.device == first.device]  # what another device took is another figure
    per_window = [run.seconds_per_window for run in timed if run.seconds_per_window is not None]
    return (
        label,
        f"{said(group.spread('mae'))} / {said(group.spread('mse'))}",
        published_cell(published),
        first.protocol or "",
        str(len(runs)),
        f"{first.parameters:,}" if first.parameters else "",
        f"{steps_of(group.steps)} steps, {duration(sum(run.training_seconds for run in timed) / len(timed))}"
        if first.steps
        else "",
        f"{1e3 * min(per_window):.3g} ms" if per_window else "",
        first.device,
    )


def error_bars(results: Results, _pictures: Collection[str]) -> str:
    measured = [(group.dataset, group.row, group.runs) for group in results.groups("main", "baselines")]
    measured += [
        (one.dataset, f"{one.method}, shipped weights, on {_kind_of_device(one.device)}", (one,))
        for one in results.evaluations
        if one.weights
    ]
    rows, apart = list[Sequence[str]](), list[Sequence[str]]()
    for dataset, label, runs in measured:
        as_fitted = [run.intervals for run in runs if run.intervals]
        anew = [run.calibrated_intervals for run in runs if run.calibrated_intervals]
        for name, told in ((label, as_fitted), (f"{label}, `--calibrate`", anew)):
            if told:
                rows.append(_coverage_row(dataset, name, told))
                apart += [_coverage_apart(dataset, name, share, told) for share in told[0]["shares"]]
    if not rows:
        return ""
    head = ("data set", "row", "50 % hold", "90 % hold", "width of 50 %", "of 90 %", "CRPS", "PriSTI", "CSDI", "seeds")
    return "\n\n".join(
        (
            "## Error bars",
            "How many true values of the scored test cells lie within the intervals, in a table filled at one go; "
            "mean widths in the units of the data. Calibrated on held-back cells of other steps, or, with "
            "`--calibrate`, on visible readings of the test steps that are hidden for this purpose; never on test "
            "cells. One pass, no samples. The standard error behind ± is of 30 stretches of the test steps: what "
            "happens at one time happens to many cells. CRPS: relative to the mean value, by the quantiles 0.05 to "
            "0.95, beside what the diffusion models reach with 100 samples under PriSTI's protocol (second hand).",
            table(head, rows),
            "The same by length of the gap in steps, and by fifths of the filled values, low to high. Rows that "
            "were measured at earlier commits (they stand at the end of the page) have the calibration of then.",
            *_off_in_words(results),
            table(("data set", "row", "intervals", "by gap", "by level"), apart),
        )
    )


def _off_in_words(results: Results) -> Sequence[str]:
    """How many classes of gap and level are held as well as they should be, with the shipped weights judged anew."""
    near, within, wide, narrow, tested = 0, 0, list[str](), list[str](), 0
    for one in results.evaluations:
        if not (one.weights and one.calibrated_intervals and " CPU" in one.device):
            continue
        for share, told in one.calibrated_intervals["shares"].items():
            levels = {f"level {number}": each for number, each in enumerate(told["by_level"], start=1)}
            gaps = {f"gaps of {name}": each for name, each in told["by_gap"].items()}
            for name, each in {**gaps, **levels}.items():
                if each["coverage"] is None:
                    continue
                tested += 1
                off = each["coverage"] - float(share)
                if abs(off) <= _WELL_HELD:
                    near += 1
                elif abs(off) <= 2 * each["standard_error"]:
                    within += 1
                else:
                    words = f"{title_of(one.dataset)}, {name}: {each['coverage']:.1%} of {float(share):.0%}"
                    (wide if off > 0 else narrow).append(words)
    if not tested:
        return []
    return [
        f"Of the {tested} classes of the shipped weights with `--calibrate` on a CPU, {near} are within "
        f"{100 * _WELL_HELD:g} points of what they should hold, {within} more within two standard errors. "
        + "".join(
            f"{len(those)} {'hold' if len(those) > 1 else 'holds'} {what}: {'; '.join(those)}. "
            for what, those in (("more", wide), ("less", narrow))
            if those
        ).strip()
    ]


def _kind_of_device(device: str) -> str:
    return "a CPU" if " CPU" in device else f"an {device}"


def _coverage_row(dataset: str, label: str, told: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    shares = list(told[0]["shares"])
    crps = [CRPS.get((name, dataset)) for name in ("PriSTI", "CSDI")]
    return (
        title_of(dataset),
        label,
        *(_coverage(_of_share(told, share)) for share in shares),
        *(f"{_mean_of(told, share, 'width'):.3g}" for share in shares),
        f"{sum(one['crps'] for one in told) / len(told):.4f}",
        *("" if figure is None else f"{figure:.4f}" for figure in crps),
        str(len(told)),
    )


def _coverage_apart(dataset: str, label: str, share: str, told: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    scored = _of_share(told, share)
    return (
        title_of(dataset),
        label,
        f"{float(share):.0%}",
        ", ".join(f"{name}: {_coverage(one['by_gap'][name] for one in scored)}" for name in scored[0]["by_gap"]),
        ", ".join(_coverage(one["by_level"][number] for one in scored) for number in range(len(scored[0]["by_level"]))),
    )


def _of_share(told: Sequence[Mapping[str, Any]], share: str) -> list[Mapping[str, Any]]:
    return [one["shares"][share] for one in told]


def _mean_of(told: Sequence[Mapping[str, Any]], share: str, name: str) -> float:
    return sum(one[name] for one in _of_share(told, share)) / len(told)


def _coverage(classes: Iterable[Mapping[str, Any]]) -> str:
    """Its mean, with the mean of its standard errors, which older files do not tell."""
    known = [one for one in classes if one["coverage"] is not None]
    if not known:
        return "-"
    mean = f"{sum(one['coverage'] for one in known) / len(known):.1%}"
    if not all("standard_error" in one for one in known):
        return mean
    return f"{mean} ± {100 * sum(one['standard_error'] for one in known) / len(known):.1f}"


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
        f"{DECIDED_GATES:.0%} on AQI-36. Soft gates weigh with rho at inference, hard ones are open where rho > 0.5. "
        "These are the networks of the table; the shipped weights of AQI-36 are of the recipe before, whose gates are "
        "soft and less decided (`casper explain aqi36.parquet --model aqi36` shows them).",
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
        f"One thing changed at a time, trained for {steps_of(steps)} steps: the validation error, on which choices are "
        "made, and its difference from the starting point's; preset `best` joins what helped. Held back: the error on "
        "all scored cells of the steps before the test that the training did not see. Seeds differ by a few hundredths "
        "at least, so small differences mean nothing.",
    ]
    for dataset in dict.fromkeys(group.dataset for group in groups):
        here = {group.row: group for group in groups if group.dataset == dataset}
        base = _mean(here["starting point"], "validation_mae") if "starting point" in here else None
        best_first = sorted(here.items(), key=lambda one: _mean(one[1], "validation_mae") or float("inf"))
        rows = [_recipe_row(row, group, base) for row, group in best_first]
        parts += [f"**{title_of(dataset)}**", table(("changed", "validation MAE", "difference", "held back"), rows)]
    return "\n\n".join(parts)


def rehearsal(results: Results, _pictures: Collection[str]) -> str:
    groups = results.groups("rehearsal")
    if not groups:
        return ""
    steps = sorted({count for group in groups for count in group.steps})
    best_first = sorted(groups, key=lambda group: group.spread("mae").mean)
    rows = [
        (
            group.row,
            said(group.spread("mae")),
            said(group.spread("mse")),
            ", ".join(str(run.curve[run.best_epoch].step) for run in group.runs if run.best_epoch is not None),
            str(len(group.runs)),
        )
        for group in best_first
    ]
    parts = (
        "## A rehearsal in other months",
        "AQI-36 learned from January, April, July and October and judged by the scored cells of February, May, August "
        "and November (`aqi36-rehearsal`); no reading of a test month of AQI-36 is touched, so choices may be made by "
        f"it. Trained for {steps_of(steps)} steps; the kept weights are those with the lowest validation error, and "
        "with a thousand validation cells that is partly luck.",
        table(("changed", "MAE", "MSE", "steps of the kept weights", "seeds"), rows),
    )
    return "\n\n".join(parts)


def _recipe_row(label: str, group: Group, base: float | None) -> Sequence[str]:
    error, held_back = _mean(group, "validation_mae"), _mean(group, "held_back_mae")
    return (
        label,
        "" if error is None else f"{error:.3f}",
        "" if error is None or base is None or label == "starting point" else f"{error - base:+.3f}",
        "" if held_back is None else f"{held_back:.3f}",
    )


def _mean(group: Group, name: str) -> float | None:
    told = [value for run in group.runs if (value := getattr(run, name)) is not None]
    return sum(told) / len(told) if told else None


def learning_curves(_results: Results, pictures: Collection[str]) -> str:
    picture = image("learning-curves.png", "Validation error over the training", pictures)
    return f"## Learning curves\n\nA line for each seed.\n\n{picture}" if picture else ""
