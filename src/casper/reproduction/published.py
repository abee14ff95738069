"""Figures that others published, each with the text it was found in. Nothing here was measured by us."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Checked = Literal["paper", "second hand", "unchecked"]


@dataclass(frozen=True)
class Spread:
    """A mean and, where there were several seeds, the standard deviation over them."""

    mean: float
    deviation: float | None = None


@dataclass(frozen=True)
class Source:
    """Where a figure was found. checked: in the paper itself; in a named text that quotes the paper; or not at all."""

    text: str
    checked: Checked


@dataclass(frozen=True)
class PublishedFigure:
    """What a paper reports for one method on one data set; None where the text that we found does not say it."""

    method: str
    dataset: str
    mae: Spread
    mse: Spread | None
    source: Source


@dataclass(frozen=True)
class PublishedAblation:
    """A row of the CASPER paper's Table 2. changes: the settings of `ModelConfig` that such a run changes."""

    label: str
    mae: Spread
    mse: Spread
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def describes(self, model: Mapping[str, Any]) -> bool:
        """Whether a run with these settings of the model is this row, whatever it is called."""
        return all(model.get(name, usual) == self.changes.get(name, usual) for name, usual in _FULL_MODEL.items())


_FULL_MODEL = {"decoder": "prompts", "gate": "gumbel", "graph": True, "constrained": False, "skip": True}

CASPER_PAPER = Source(
    "Jing et al., Causality-Aware Spatiotemporal Graph Neural Networks for Spatiotemporal Time Series Imputation, "
    "CIKM 2024, Table 1 (baselines as that table gives them)",
    "paper",
)
_WIKI = "as quoted by the public notes github.com/hyperv0id/llm-wiki"
PRISTI_PAPER = Source(
    f"Liu et al., PriSTI, ICDE 2023 (arXiv:2302.09746), {_WIKI}, wiki/pristi.md; CSDI as run by PriSTI's authors",
    "second hand",
)
COFILL_PAPER = Source(
    f"He et al., Filling the Missings (CoFILL), 2025 (arXiv:2506.07099), {_WIKI}, wiki/cofill.md", "second hand"
)
COSTI_PAPER = Source(
    "Solís-García et al., TIMBA, 2024 (arXiv:2410.05916), repeated in Tables 4 and 5 of the same authors' CoSTI, "
    f"Knowledge-Based Systems 2025, {_WIKI}, wiki/costi.md",
    "second hand",
)
OUR_PLAN = Source("as quoted in our plan, not checked", "unchecked")

# The columns of the paper's Table 1, in its order; a row holds MAE, deviation, MSE, deviation for each.
_COLUMNS = ("aqi36", "aqi", "metr-la-point", "pems-bay-point", "metr-la-block", "pems-bay-block")
_TABLE_1: dict[str, tuple[tuple[float, float, float, float], ...]] = {
    "Mean": (
        (53.48, 0.0, 4578.08, 0.0),
        (39.6, 0.0, 3231.04, 0.0),
        (7.56, 0.0, 142.22, 0.0),
        (5.42, 0.0, 86.59, 0.0),
        (7.48, 0.0, 139.54, 0.0),
        (5.46, 0.0, 87.56, 0.0),
    ),
    "KNN": (
        (30.21, 0.0, 2892.31, 0.0),
        (34.1, 0.0, 3471.14, 0.0),
        (7.88, 0.0, 129.29, 0.0),
        (4.3, 0.0, 49.8, 0.0),
        (7.79, 0.0, 124.61, 0.0),
        (4.3, 0.0, 49.9, 0.0),
    ),
    "MF": (
        (30.54, 0.26, 2763.06, 63.35),
        (26.74, 0.24, 2021.44, 27.98),
        (5.56, 0.03, 113.46, 1.08),
        (3.29, 0.01, 51.39, 0.64),
        (5.46, 0.02, 109.61, 0.78),
        (3.28, 0.01, 50.14, 0.13),
    ),
    "MICE": (
        (30.37, 0.09, 2594.06, 7.17),
        (26.98, 0.1, 1930.92, 10.08),
        (4.42, 0.07, 55.07, 1.46),
        (3.09, 0.02, 31.43, 0.41),
        (4.22, 0.05, 51.07, 1.25),
        (2.94, 0.02, 28.28, 0.37),
    ),
    "VAR": (
        (15.64, 0.08, 833.46, 13.85),
        (22.95, 0.3, 1402.84, 52.63),
        (2.69, 0.0, 21.1, 0.02),
        (1.3, 0.0, 6.52, 0.01),
        (3.11, 0.08, 28.0, 0.76),
        (2.09, 0.1, 16.06, 0.73),
    ),
    "rGAIN": (
        (15.37, 0.26, 641.92, 33.89),
        (21.78, 0.5, 1274.93, 60.28),
        (2.83, 0.01, 20.03, 0.09),
        (1.88, 0.02, 10.37, 0.2),
        (2.9, 0.01, 21.67, 0.15),
        (2.18, 0.01, 13.96, 0.2),
    ),
    "BRITS": (
        (14.5, 0.35, 662.36, 65.16),
        (20.21, 0.22, 1157.89, 25.66),
        (2.34, 0.0, 16.46, 0.05),
        (1.47, 0.0, 7.94, 0.03),
        (2.34, 0.01, 17.0, 0.14),
        (1.7, 0.01, 10.5, 0.07),
    ),
    "ST-Transformer": (
        (11.98, 0.53, 557.22, 46.52),
        (18.11, 0.25, 1135.46, 89.27),
        (2.16, 0.0, 13.66, 0.03),
        (0.74, 0.0, 1.96, 0.03),
        (3.54, 0.0, 52.22, 0.99),
        (1.7, 0.02, 20.37, 0.43),
    ),
    "GRIN": (
        (12.08, 0.47, 523.14, 57.17),
        (14.73, 0.15, 775.91, 28.49),
        (1.91, 0.0, 10.41, 0.03),
        (0.67, 0.0, 1.55, 0.01),
        (2.03, 0.0, 13.26, 0.05),
        (1.14, 0.01, 6.6, 0.1),
    ),
    # The table prints the same MSE for SPIN on METR-LA with points and with blocks missing; one may be a slip.
    "SPIN": (
        (11.77, 0.54, 455.53, 12.27),
        (13.92, 0.15, 773.6, 26.64),
        (1.9, 0.01, 18.47, 0.31),
        (0.7, 0.01, 1.91, 0.01),
        (1.98, 0.01, 18.47, 0.31),
        (1.06, 0.02, 7.42, 0.16),
    ),
    "PoGeVon": (
        (10.92, 0.24, 493.94, 51.89),
        (14.18, 0.04, 740.57, 8.01),
        (1.96, 0.01, 11.08, 0.05),
        (0.67, 0.01, 1.51, 0.03),
        (1.95, 0.01, 13.08, 0.08),
        (1.54, 0.02, 17.18, 0.48),
    ),
    "CASPER": (
        (10.09, 0.13, 396.16, 12.94),
        (13.3, 0.06, 658.07, 4.88),
        (1.84, 0.0, 9.99, 0.01),
        (0.65, 0.0, 1.63, 0.01),
        (1.92, 0.01, 11.98, 0.23),
        (1.0, 0.0, 5.37, 0.04),
    ),
}


def _of_table_1() -> list[PublishedFigure]:
    return [
        PublishedFigure(method, dataset, Spread(mae, mae_deviation), Spread(mse, mse_deviation), CASPER_PAPER)
        for method, cells in _TABLE_1.items()
        for dataset, (mae, mae_deviation, mse, mse_deviation) in zip(_COLUMNS, cells, strict=True)
    ]


def _only_mae(method: str, source: Source, **by_dataset: float) -> list[PublishedFigure]:
    """Underscores stand for the hyphens of the data sets' names."""
    return [
        PublishedFigure(method, name.replace("_", "-"), Spread(mae), None, source) for name, mae in by_dataset.items()
    ]


FIGURES: tuple[PublishedFigure, ...] = (
    *_of_table_1(),
    *_only_mae(
        "PriSTI",
        PRISTI_PAPER,
        aqi36=9.03,
        metr_la_point=1.72,
        metr_la_block=1.86,
        pems_bay_point=0.55,
        pems_bay_block=0.78,
    ),
    *_only_mae(
        "CSDI",
        PRISTI_PAPER,
        aqi36=9.51,
        metr_la_point=1.79,
        metr_la_block=1.98,
        pems_bay_point=0.57,
        pems_bay_block=0.86,
    ),
    *_only_mae("CoFILL", COFILL_PAPER, aqi36=8.70),
    *_only_mae("TIMBA", COSTI_PAPER, aqi36=9.56, metr_la_point=1.69, pems_bay_point=0.58),
    *_only_mae("TIMBA", OUR_PLAN, metr_la_block=1.76),
)

_NO_PROMPTS, _NO_GATES = {"decoder": "mlp"}, {"gate": "none"}
ABLATIONS: tuple[PublishedAblation, ...] = (
    PublishedAblation("CASPER", Spread(10.09, 0.13), Spread(396.16, 12.94)),
    PublishedAblation("w/o PBD", Spread(10.36, 0.11), Spread(445.03, 29.03), _NO_PROMPTS),
    PublishedAblation("w/o SCA", Spread(10.45, 0.17), Spread(426.64, 34.41), _NO_GATES),
    PublishedAblation("w/o PBD, SCA", Spread(10.84, 0.20), Spread(472.24, 42.77), _NO_PROMPTS | _NO_GATES),
    PublishedAblation(
        "w/o PBD, SCA, A", Spread(14.86, 0.21), Spread(767.96, 25.32), _NO_PROMPTS | _NO_GATES | {"graph": False}
    ),
    PublishedAblation("K-means centres (max)", Spread(10.18, 0.14), Spread(427.20, 28.84), {"decoder": "kmeans-max"}),
    PublishedAblation("K-means centres (avg)", Spread(10.23, 0.15), Spread(421.43, 19.40), {"decoder": "kmeans-avg"}),
    PublishedAblation("sampling (max)", Spread(10.25, 0.18), Spread(421.78, 33.26), {"decoder": "sample-max"}),
    PublishedAblation("sampling (avg)", Spread(10.56, 0.19), Spread(474.27, 50.55), {"decoder": "sample-avg"}),
    PublishedAblation("constrained causality", Spread(10.83, 0.19), Spread(477.85, 45.62), {"constrained": True}),
    PublishedAblation("w/o skip projection", Spread(10.35, 0.21), Spread(438.02, 28.38), {"skip": False}),
)

DECIDED_GATES = 0.98
"""The share of rho on AQI-36 that the paper finds below 0.1 or above 0.9."""


def figure_of(method: str, dataset: str) -> PublishedFigure | None:
    return next((figure for figure in FIGURES if (figure.method, figure.dataset) == (method, dataset)), None)


def best_figure(dataset: str) -> PublishedFigure | None:
    """The smallest published mean absolute error that we know of."""
    return min(
        (figure for figure in FIGURES if figure.dataset == dataset), key=lambda figure: figure.mae.mean, default=None
    )


DREAM3_AUROC = {
    "CASPER, the paper's recipe": 0.6325,
    "PCMCI": 0.5517,
    "PCMCI, lags chosen": 0.5517,
    "NGC": 0.5579,
    "eSRU": 0.5587,
    "LCCM": 0.5046,
    "NGM": 0.5477,
    "CUTS": 0.5915,
}
"""Mean AUROC over the five networks of size 100, all 10,000 pairs: the CASPER paper's table on DREAM-3."""

CRPS = {
    ("PriSTI", "aqi36"): 0.0997,
    ("CSDI", "aqi36"): 0.1056,
    ("PriSTI", "metr-la-block"): 0.0244,
    ("CSDI", "metr-la-block"): 0.0260,
}
"""Relative CRPS by method and data set, of 100 samples for each value: PriSTI's paper, quoted as in `PRISTI_PAPER`."""
