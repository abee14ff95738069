"""What more steps and more samples buy: the error of the diffusion models against the time they take."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from casper.report.style import BLUE, GREEN, INK, VERMILLION, new_figure, panel_title, plain
from casper.reproduction.results import title_of
from casper.reproduction.sampling_results import SamplingResult

_COLOURS = {"csdi": BLUE, "pristi": GREEN}
_CLOSE = 8  # points between a dot and its words


def sampling_picture(samplings: Sequence[SamplingResult]) -> Figure:
    """A panel for each data set; a line through one number of samples, another through one number of steps."""
    datasets = list(dict.fromkeys(one.dataset for one in samplings))
    figure = new_figure(7.0 * len(datasets), 4.6)
    for axes, dataset in zip(figure.subplots(1, len(datasets), squeeze=False).ravel(), datasets, strict=True):
        here = [one for one in samplings if one.dataset == dataset]
        for row in dict.fromkeys(one.row for one in here):
            mine = [one for one in here if one.row == row]
            colour = _COLOURS.get(row, VERMILLION)
            most = max((one.steps or 0 for one in mine), default=0)
            more_samples = sorted((one for one in mine if one.steps == most), key=lambda one: one.samples)
            more_steps = sorted(
                (one for one in mine if one.steps is not None and one.samples == _usual_samples(mine)),
                key=lambda one: one.steps or 0,
            )
            for line, style in ((more_samples, "-"), (more_steps, ":")):
                axes.plot(
                    [1e3 * one.seconds_per_window for one in line],
                    [one.mae for one in line],
                    style,
                    color=colour,
                    lw=1.5,
                )
            for one in mine:
                place = (1e3 * one.seconds_per_window, one.mae)
                axes.plot(*place, marker="o" if one.steps else "*", ms=5 if one.steps else 13, color=colour)
                words = f"{one.steps} x {one.samples}" if one.steps else row
                axes.annotate(words, place, (0, _CLOSE), textcoords="offset points", fontsize=7, color=INK, ha="center")
            axes.plot([], [], color=colour, label=row)
        axes.set_xscale("log")
        axes.set_xlabel("time per window (ms)")
        axes.set_ylabel("MAE")
        plain(axes)
        panel_title(axes, f"{title_of(dataset)}: steps x samples")
        axes.legend(frameon=False)
    return figure


def _usual_samples(mine: Sequence[SamplingResult]) -> int:
    """The number of samples that most were drawn with."""
    counts = [one.samples for one in mine]
    return max(counts, key=counts.count)
