"""Granger's question, on series whose causes are known and beside a plain least-squares fit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from casper.discovery import discover
from casper.discovery.granger import Certainties, GrangerConfig, granger
from casper.discovery.recording import Recording
from casper.errors import InputError


def chain(*, steps: int = 600, variables: int = 6, seed: int = 0) -> NDArray[np.float64]:
    """x1 moves x2 a step later, and x2 moves x3; the others are noise."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(steps, variables))
    for step in range(1, steps):
        x[step, 1] += 0.8 * x[step - 1, 0]
        x[step, 2] += 0.8 * x[step - 1, 1]
    return x


def asked(series: NDArray[np.float64], *, lags: int = 3) -> Certainties:
    return granger(Recording.of(series), GrangerConfig(lags=lags))


def test_causes_are_certain_and_noise_is_not() -> None:
    alone, beside = asked(chain())
    true = {(0, 1), (1, 2)}
    for source, target in np.ndindex(alone.shape):
        if (source, target) in true:
            assert min(alone[source, target], beside[source, target]) > 20
        elif (source, target) != (0, 2):
            assert max(alone[source, target], beside[source, target]) < 4
    assert alone[0, 2] > 20, "x1 does foretell x3, two steps ahead"
    assert beside[0, 2] < 2, "but x2 tells it all"
    assert (np.diag(alone) == 0).all()
    assert (np.diag(beside) == 0).all()


def test_noise_is_certain_as_often_as_chance_would_have_it() -> None:
    random = np.random.default_rng(1)
    for certainty in asked(random.normal(size=(8, 200, 40))):
        off = certainty[~np.eye(40, dtype=bool)]
        assert np.median(off) == pytest.approx(math.log10(2), abs=0.05)
        assert (off > 2).mean() == pytest.approx(0.01, abs=0.006)


def test_it_is_the_test_of_two_least_squares_fits() -> None:
    series, lags = chain(steps=200), 2
    z = (series - series.mean(0)) / series.std(0)
    y = z[lags:, 2] - z[lags:, 2].mean()

    def left(*variables: int, steps_of_last: int = lags) -> float:
        told = [(one, lag) for one in variables[:-1] for lag in (1, 2)]
        told += [(variables[-1], lag) for lag in range(1, steps_of_last + 1)]
        past = np.stack([z[lags - lag : -lag, one] for one, lag in told], axis=1)
        past = past - past.mean(0)
        return float(((y - past @ np.linalg.lstsq(past, y, rcond=None)[0]) ** 2).mean())

    def wanted(*known: int) -> float:
        ratios = [len(y) * np.log(left(*known) / left(*known, 1, steps_of_last=last)) for last in (1, 2)]
        return float(np.mean([-chi2.logsf(ratio, last) / np.log(10) for last, ratio in enumerate(ratios, start=1)]))

    alone, beside = asked(series, lags=lags)
    assert alone[1, 2] == pytest.approx(wanted(2), rel=0.01)
    rivals = [one for one in np.argsort(-alone[:, 2]) if one not in (1, 2)][:3]
    assert beside[1, 2] == pytest.approx(wanted(2, *rivals), rel=0.01)


def test_trajectories_are_not_joined_and_holes_are_no_matter() -> None:
    whole = chain(steps=900)
    pieces = asked(np.stack([whole[:300], whole[300:600], whole[600:]]))
    assert pieces.alone[0, 1] == pytest.approx(asked(whole).alone[0, 1], rel=0.1)
    assert pieces.alone[0, 1] != asked(whole).alone[0, 1]
    holes = np.where(np.random.default_rng(2).random(whole.shape) < 0.2, np.nan, whole)
    found = asked(holes)
    assert found.beside_rivals[0, 1] > 20
    assert found.beside_rivals[3:, :].max() < 4


def test_constant_and_copied_variables_are_no_trouble() -> None:
    series = chain()
    series[:, 4] = 7.0
    series[:, 5] = np.roll(series[:, 0], 1)  # foretold without error
    for certainty in asked(series):
        assert np.isfinite(certainty).all()
        assert (certainty[4] < 0.5).all()
        assert (certainty[:, 4] == 0).all()
        assert certainty[0, 5] > 100
    few = asked(series[:, :2])
    assert few.beside_rivals[0, 1] > 20, "two variables have no rivals"


def test_only_candidates_are_asked_about_and_only_they_are_rivals() -> None:
    series = chain()
    candidates = np.array([[1, 2], [0, 2], [0, 3], [0, 1], [0, 1], [0, 1]])
    alone, beside = granger(Recording.of(series), GrangerConfig(lags=3), candidates=candidates)
    whole = asked(series)
    pairs = {(int(source), target) for target, row in enumerate(candidates) for source in row}
    assert {(int(one), int(other)) for one, other in np.argwhere(alone)} == pairs
    for pair in pairs:
        assert alone[pair] == pytest.approx(whole.alone[pair])
    assert beside[0, 2] > 20, "x2, through which it passes, was no candidate"


def test_it_is_a_method_of_its_own() -> None:
    graph = discover(chain(), method="granger")
    strongest = graph.pairs().strongest(2).edges
    assert set(zip(strongest["source"], strongest["target"], strict=True)) == {("x1", "x2"), ("x2", "x3")}
    alone = discover(chain(), method="granger", rivals=0)
    assert alone.pairs().strongest(3).edges["source"].tolist().count("x1") == 2, "nobody stands between x1 and x3"
    with pytest.raises(InputError, match="lags must be at least 1"):
        discover(chain(), method="granger", lags=0)
    with pytest.raises(InputError, match="granger needs trajectories of at least 7 steps"):
        discover(chain(steps=6), method="granger")
