"""Error bars: how far an estimate may be off, judged by cells that were held back from the fit.

An interval reaches from `estimate + scale * low` to `estimate + scale * high`. The scale is different for every cell,
because some cells are harder than others; it is learned from a few facts about the cell (`cell_facts.py`). Errors
differ not only in their size: some cells are mostly right and sometimes far off, some err to one side. So what is left
after dividing by the scale has quantiles that lean on the same facts (quantile regression: Koenker and Bassett, 1978),
and are then set right by the held-back cells' errors (split conformal prediction: Papadopoulos et al., 2002; Lei et
al., 2018; Romano et al., 2019), taken apart for short gaps, long ones and the ends of long ones, and for low and high
values, wherever enough cells were held back (Mondrian: Vovk et al., 2003). The split is crosswise (Vovk, 2015): a
cell's scale comes from cells of other times, and every cell serves both purposes. All of it is one pass over a filled
table; nothing is sampled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from casper.errors import InputError
from casper.intervals.cell_facts import FACTS, Cells, beside_a_reading, distance_to_readings
from casper.masks import LONG_GAP

FEWEST_CELLS = 30
"""Held-back cells without which no error bar is worth its name."""
LONGEST_GAPS = (1, LONG_GAP, 24)
"""Upper ends, in steps, of the classes of gaps; the last class has none."""
WIDEST = 0.98
"""The largest share of errors that an interval can be asked to hold."""
FEWEST_OF_A_GROUP = 150
"""Held-back cells from which a group of cells can be judged on its own."""

_GAP_CLASSES, _SHORT_CLASSES = len(LONGEST_GAPS) + 1, 1 + LONGEST_GAPS.index(LONG_GAP)
# The ends of long gaps are classes of their own, after the others.
_PLACES = _GAP_CLASSES + (_GAP_CLASSES - _SHORT_CLASSES)
_LEVEL_CLASSES = 5
# Where the level's function may bend, by how many cells there are to learn it from.
_KNOTS = {0: (0.02, 0.2, 0.5, 0.8, 0.98), 5000: (0.01, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.99)}
# A sensor needs as many held-back cells as this to be believed half way that its errors are unlike the others'.
_CELLS_TO_BELIEVE_A_SENSOR = 20.0
_PARTS, _TURNS = 10, 4  # the cells are cut into so many parts, each of so many stretches of time
_FURTHEST = 3.0  # facts are not followed further from their mean than this, in deviations
_LEVELS = np.concatenate(([0.005], np.arange(0.01, 0.995, 0.01), [0.995]))
# Quantiles that lean on the facts; others lean as those between which they lie. Fewer cells teach nothing about it, and
# more than so many nothing new.
_LEANING = np.array([0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975])
_FEWEST_TO_LEAN, _MOST_TO_LEAN = 2_000, 40_000
_HELD_UPRIGHT = 20.0  # as many cells that say that there is nothing to lean on
# Among _LEVELS, where the quantiles of a cell are written out; the ends of an interval lie between two of them.
_WRITTEN = np.concatenate(([0, 1, 2], np.arange(5, 100, 5), [98, 99, 100]))
_CELLS_AT_ONCE = 100_000


@dataclass(frozen=True)
class HeldBack:
    """Cells held back from the fit, C of them: what is known about each, and by how much its estimate is off.

    facts: (C, F), NaN where unknown; level: (C,) the estimates; step, sensor, gap, away: (C,), where it is, the length
    of its gap and how far its sensor's nearest reading is, in steps; error: (C,) truth - estimate. All in scaled units.
    """

    facts: NDArray[np.float32]
    level: NDArray[np.float32]
    step: NDArray[np.int64]
    sensor: NDArray[np.int64]
    gap: NDArray[np.int64]
    away: NDArray[np.int64]
    error: NDArray[np.float32]

    @classmethod
    def joined(cls, parts: Sequence[HeldBack]) -> Self:
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


@dataclass(frozen=True)
class Calibration:
    """What was learned from the held-back cells.

    centre, spread: (F,) of the facts; knots: of the level; slopes: of the facts and of the level's hats; offset: ();
    of_sensor: (N,). middle: mean and deviation of the logarithm of the scale; leaning: (L, F + hats + 1), of the
    quantiles of error / scale on facts, level and scale. quantiles: (groups, levels) of what is left then; borders: of
    the classes of the level; typical: the mean size of error / scale; farthest: see `beyond`;
    reach: steps from a sensor's nearest reading that error bars could be judged at.
    """

    centre: NDArray[np.float64]
    spread: NDArray[np.float64]
    knots: NDArray[np.float64]
    slopes: NDArray[np.float64]
    offset: NDArray[np.float64]
    of_sensor: NDArray[np.float64]
    middle: NDArray[np.float64]
    leaning: NDArray[np.float64]
    borders: NDArray[np.float64]
    quantiles: NDArray[np.float64]
    typical: NDArray[np.float64]
    farthest: NDArray[np.float64]
    reach: NDArray[np.float64]

    @classmethod
    def fit(cls, cells: HeldBack, *, sensors: int) -> Self:
        if len(cells.error) < FEWEST_CELLS:
            raise InputError(
                f"only {len(cells.error)} readings were held back, error bars need {FEWEST_CELLS}; "
                "use a longer table or a larger validation_share"
            )
        known = np.isfinite(cells.facts)
        count = np.maximum(known.sum(0), 1)
        centre = np.where(known, cells.facts, 0.0).sum(0, dtype=np.float64) / count
        spread = np.sqrt(np.square(np.where(known, cells.facts - centre, 0.0)).sum(0, dtype=np.float64) / count)
        spread = np.where(spread > 1e-6, spread, 1.0)
        bends = next(places for least, places in reversed(_KNOTS.items()) if len(cells.level) >= least)
        knots = np.unique(np.quantile(cells.level.astype(np.float64), bends))
        design = _design(cells.facts, cells.level, centre, spread, knots)
        size = np.abs(cells.error)
        whole = _fit_scale(design, cells.sensor, size, sensors)
        slopes, offset, of_sensor = whole
        # An error is divided by what cells of other times say about its scale: its own would flatter it.
        log_scale = np.empty(len(size))
        part = _part_of_time(cells.step)
        for number in range(_PARTS):
            out = part == number
            others = _fit_scale(design[~out], cells.sensor[~out], size[~out], sensors, begin=whole)
            log_scale[out] = design[out] @ others[0] + others[1] + others[2][cells.sensor[out]]
        borders = np.quantile(cells.level.astype(np.float64), np.arange(1, _LEVEL_CLASSES) / _LEVEL_CLASSES)
        left = cells.error / np.exp(log_scale)
        middle = np.array([log_scale.mean(), log_scale.std() + 1e-6])
        design = _with_scale(design, log_scale, middle)
        leaning = _fit_leaning(design, left)
        groups = _groups_of_cells(_place_class(cells.gap, cells.facts), np.searchsorted(borders, cells.level))
        quantiles = np.stack(
            [_quantiles(groups, left - design @ _at(leaning, _LEANING, p), p) for p in _LEVELS], axis=1
        )
        typical = np.asarray(np.abs(left).mean())
        return cls(
            *(centre, spread, knots, slopes, np.asarray(offset), of_sensor),
            *(middle, leaning, borders, quantiles, typical, np.asarray(distance_to_readings(cells.facts).max())),
            np.asarray(reach_of(cells.away), dtype=np.float64),
        )

    def scale(
        self, facts: NDArray[np.float32], level: NDArray[np.float32], sensor: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """(C,) of so many cells."""
        return np.exp(self._design(facts, level) @ self.slopes + self.offset + self.of_sensor[sensor])

    def bounds(
        self, shares: Sequence[float], scale: NDArray[np.float64], cells: Cells, level: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """(shares, 2, C): what to add to the estimates so that a share of the true values lies between, as much below
        as above."""
        for share in shares:
            check_share(share)
        group = _place_class(cells.gap, cells.facts) * _LEVEL_CLASSES + np.searchsorted(self.borders, level)
        lines = np.stack([_at(self.leaning, _LEANING, p) for p in _LEVELS[_WRITTEN]], axis=1)
        ends = np.empty((len(shares), 2, len(level)))
        for first in range(0, len(level), _CELLS_AT_ONCE):
            some = slice(first, first + _CELLS_AT_ONCE)
            design = _with_scale(self._design(cells.facts[some], level[some]), np.log(scale[some]), self.middle)
            # Sorted, because lines may cross where quantiles must not (Chernozhukov et al., 2010).
            quantiles = np.sort(design @ lines + self.quantiles[group[some]][:, _WRITTEN], axis=1).T
            for number, share in enumerate(shares):
                ends[number, 0, some] = np.minimum(_at(quantiles, _LEVELS[_WRITTEN], (1 - share) / 2), 0.0)
                ends[number, 1, some] = np.maximum(_at(quantiles, _LEVELS[_WRITTEN], (1 + share) / 2), 0.0)
        return ends * scale

    def beyond(self, facts: NDArray[np.float32], *, window: int) -> NDArray[np.float64]:
        """(C,), from 0 to 1: how far cells lie beyond all that was held back, as in a long outage of the whole network.
        0: no farther from any reading than some of those; 1: a window away, where nothing is known any more."""
        unknown = np.log1p(window) - self.farthest
        return np.clip((distance_to_readings(facts) - self.farthest) / max(float(unknown), 1e-6), 0.0, 1.0)

    def expected_error(self, scale: NDArray[np.float64]) -> NDArray[np.float64]:
        """The mean absolute error to be expected of cells of such a scale."""
        return scale * self.typical

    def scale_of(self, expected: NDArray[np.float64]) -> NDArray[np.float64]:
        """The scale of cells of which such a mean absolute error is expected."""
        return expected / max(float(self.typical), 1e-12)

    def _design(self, facts: NDArray[np.float32], level: NDArray[np.float32]) -> NDArray[np.float64]:
        return _design(facts, level, self.centre, self.spread, self.knots)

    def to_tensors(self) -> dict[str, Tensor]:
        return {field.name: torch.as_tensor(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self | None:
        """None if there are none, or if they are of a version that judged by other facts."""
        if "slopes" in tensors and "leaning" not in tensors:  # of a version in which nothing leant on facts
            upright = torch.zeros(len(_LEANING), len(tensors["slopes"]) + 1, dtype=torch.float64)
            middle, anywhere = torch.tensor([0.0, 1.0]).double(), torch.tensor(torch.inf).double()
            tensors = {**tensors, "middle": middle, "leaning": upright, "farthest": anywhere}
        tensors = {"reach": torch.tensor(torch.inf).double(), **tensors}  # older versions did not ask how far it is
        quantiles = tensors.get("quantiles", torch.zeros(0))
        if len(quantiles) == _GAP_CLASSES * _LEVEL_CLASSES:  # of a version in which the ends of gaps were like the rest
            tensors = {**tensors, "quantiles": torch.cat((quantiles, quantiles[_SHORT_CLASSES * _LEVEL_CLASSES :]))}
        if set(tensors) != {field.name for field in fields(cls)} or len(tensors["centre"]) != len(FACTS):
            return None
        return cls(**{field.name: tensors[field.name].numpy() for field in fields(cls)})


def reach_of(away: NDArray[np.int64]) -> int:
    """Steps from a sensor's nearest reading that error bars can be judged at: hardly any held-back cell is farther."""
    farther = min(max(1, len(away) // 100), FEWEST_CELLS)
    return int(np.partition(away, -farther)[-farther])


def check_share(share: float) -> None:
    if not isinstance(share, Real) or not 0 < share <= WIDEST:
        raise InputError(
            f"an interval holds a share of the true values between 0 and {WIDEST:g}, such as 0.9; not {share!r}"
        )


def _design(
    facts: NDArray[np.float32],
    level: NDArray[np.float32],
    centre: NDArray[np.float64],
    spread: NDArray[np.float64],
    knots: NDArray[np.float64],
) -> NDArray[np.float64]:
    """(C, F + hats): what the scale of a cell, and the quantiles of its errors, are learned from."""
    return np.concatenate((_standardised(facts, centre, spread), _hats(level, knots)), axis=1)


def _standardised(
    facts: NDArray[np.float32], centre: NDArray[np.float64], spread: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What is not known counts as average."""
    return np.clip(np.nan_to_num((facts - centre) / spread, nan=0.0), -_FURTHEST, _FURTHEST)


def _hats(level: NDArray[np.float32], knots: NDArray[np.float64]) -> NDArray[np.float64]:
    """(C, knots - 1): a function of the level that is straight between knots and flat beyond them."""
    places = np.interp(level, knots, np.arange(len(knots)))
    hats = np.clip(1 - np.abs(places[:, None] - np.arange(len(knots))), 0.0, 1.0)
    return hats[:, 1:]


def _place_class(gap: NDArray[np.int64], facts: NDArray[np.float32]) -> NDArray[np.int64]:
    """(C,): the class of the gap, or of the ends of such gaps."""
    of_gap = np.searchsorted(LONGEST_GAPS, gap)
    at_end = (of_gap >= _SHORT_CLASSES) & beside_a_reading(facts)
    return of_gap + at_end * (_PLACES - _GAP_CLASSES)


def _part_of_time(step: NDArray[np.int64]) -> NDArray[np.int64]:
    """(C,), 0 to _PARTS - 1, in turns of stretches that hold equally many cells."""
    place = np.searchsorted(np.sort(step), step)
    return place * (_PARTS * _TURNS) // len(step) % _PARTS


_Scale = tuple[NDArray[np.float64], float, NDArray[np.float64]]
"""Slopes, offset and sensors' offsets of the logarithm of the scale."""


def _fit_scale(
    design: NDArray[np.float64],
    sensor: NDArray[np.int64],
    size: NDArray[np.float32],
    sensors: int,
    *,
    begin: _Scale | None = None,
) -> _Scale:
    """begin: what is nearly right, if it is known.

    They maximise the likelihood of errors that follow a Laplace distribution, whose scale is its mean absolute value:
    a convex problem. Sensors with few cells are drawn towards the others.
    """
    x, number = torch.as_tensor(design), torch.as_tensor(sensor)
    # A few perfect estimates must not claim that there are no errors at all.
    error = torch.as_tensor(size, dtype=torch.float64)
    error = error.clamp_min(1e-3 * float(error.mean()) + 1e-12)
    most = 200 if begin is None else 20  # steps
    if begin is None:
        begin = np.zeros(x.shape[1]), float(error.mean().log()), np.zeros(sensors)
    slopes, offset, own = (torch.tensor(one, dtype=torch.float64, requires_grad=True) for one in begin)
    solver = torch.optim.LBFGS([slopes, offset, own], max_iter=most, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        solver.zero_grad()
        log_scale = x @ slopes + offset + own[number]
        held_small = slopes.square().sum() + _CELLS_TO_BELIEVE_A_SENSOR * own.square().sum()
        total = (error * torch.exp(-log_scale) + log_scale).mean() + held_small / (2 * len(error))
        total.backward()
        return total

    with torch.enable_grad():
        solver.step(loss)
    return slopes.detach().numpy(), float(offset.detach()), own.detach().numpy()


def _with_scale(
    design: NDArray[np.float64], log_scale: NDArray[np.float64], middle: NDArray[np.float64]
) -> NDArray[np.float64]:
    standard = np.clip((log_scale - middle[0]) / middle[1], -_FURTHEST, _FURTHEST)
    return np.concatenate((design, standard[:, None]), axis=1)


def _at(rows: NDArray[np.float64], levels: NDArray[np.float64], probability: float) -> NDArray[np.float64]:
    """rows: (levels, ...) -> (...), between the two rows whose levels are next to the probability."""
    place = np.interp(probability, levels, np.arange(len(levels)))
    low = int(place)
    high = min(low + 1, len(levels) - 1)
    return rows[low] + (rows[high] - rows[low]) * (place - low)


def _fit_leaning(design: NDArray[np.float64], left: NDArray[np.float64]) -> NDArray[np.float64]:
    """(L, columns of the design): slopes of the quantiles of what is left, by the pinball loss, its corner rounded."""
    if len(left) < _FEWEST_TO_LEAN:
        return np.zeros((len(_LEANING), design.shape[1]))
    every = -(-len(left) // _MOST_TO_LEAN)
    x, y, p = torch.as_tensor(design[::every]), torch.as_tensor(left[::every]), torch.as_tensor(_LEANING)
    rounded = 0.05 * float(y.abs().mean()) + 1e-12
    upright = torch.tensor(np.quantile(y.numpy(), _LEANING), requires_grad=True)
    slopes = torch.zeros(len(p), x.shape[1], dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS([upright, slopes], max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        solver.zero_grad()
        above = y[:, None] - (x @ slopes.T + upright)
        pinball = p * above + rounded * torch.nn.functional.softplus(-above / rounded)
        total = pinball.mean(0).sum() + _HELD_UPRIGHT * slopes.square().sum() / (2 * len(y))
        total.backward()
        return total

    with torch.enable_grad():
        solver.step(loss)
    return slopes.detach().numpy()


def _groups_of_cells(place_class: NDArray[np.int64], level_class: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """(place classes * level classes): the cells of the group, or if they are too few, of its place, of its gaps, of
    its level, or all."""
    everything = np.arange(len(place_class))
    gap_class = _gap_of_place(place_class)
    groups: list[NDArray[np.int64]] = []
    for place in range(_PLACES):
        here, of_gap = place_class == place, gap_class == _gap_of_place(place)
        for levels in range(_LEVEL_CLASSES):
            of_level = level_class == levels
            candidates = map(np.flatnonzero, (here & of_level, here, of_gap, of_level))
            groups.append(next((one for one in candidates if len(one) >= FEWEST_OF_A_GROUP), everything))
    return groups


def _gap_of_place(place: Any) -> Any:
    return place - (_PLACES - _GAP_CLASSES) * (place >= _GAP_CLASSES)


def _quantiles(groups: list[NDArray[np.int64]], left: NDArray[np.float64], level: float) -> NDArray[np.float64]:
    """(groups,) of a next value, not of these: with n of them, it is as likely to fall into any of the n + 1 spaces
    between."""
    places = [(level * (len(group) + 1) - 1) / max(1, len(group) - 1) for group in groups]
    return np.array(
        [np.quantile(left[group], np.clip(place, 0.0, 1.0)) for group, place in zip(groups, places, strict=True)]
    )
