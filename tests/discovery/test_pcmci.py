from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from casper.discovery.pcmci import PcmciDiscoverer, strength_of
from casper.discovery.recording import Recording
from casper.errors import InputError

TRUTH = np.array([[0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]], dtype=bool)
OTHERS = ~np.eye(4, dtype=bool)


def trajectories(count: int = 4, steps: int = 80, seed: int = 0) -> NDArray[np.float64]:
    """(count, steps, 4): every variable follows its own past and those of its causes."""
    draw = np.random.default_rng(seed)
    weights = 0.4 * TRUTH + 0.3 * np.eye(4)
    series = np.zeros((count, steps, 4))
    for t in range(1, steps):
        series[:, t] = series[:, t - 1] @ weights + draw.normal(size=(count, 4))
    return series


def with_holes(series: NDArray[np.float64], share: float, seed: int = 1) -> NDArray[np.float64]:
    return np.where(np.random.default_rng(seed).random(series.shape) < share, np.nan, series)


def find(series: Any, **settings: Any) -> NDArray[np.float64]:
    return PcmciDiscoverer(device="cpu", **{"lags": 2, **settings}).find(Recording.of(series)).strength


@pytest.fixture
def tigramite() -> None:
    pytest.importorskip("tigramite", reason="the optional package tigramite is not installed")


def test_the_package_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == "tigramite"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "tigramite", None)
    with pytest.raises(InputError, match=r"tigramite: pip install 'casper-impute\[pcmci\]'"):
        find(trajectories())


@pytest.mark.parametrize(("settings", "message"), [({"lags": 0}, "lags"), ({"alpha": 0.0}, "alpha")])
def test_settings_without_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"{message} must"):
        PcmciDiscoverer(device="cpu", **settings)


def test_strength_grows_as_p_falls_even_where_p_is_zero_to_machine_precision() -> None:
    p_values = np.array([np.nan, 1.0, 0.5, 1e-3, 1e-299, 0.0, 0.0])
    statistics = np.array([np.nan, 0.0, 0.1, -0.3, 0.98, 0.99, -0.999])
    found = strength_of(p_values, statistics)
    assert found[0] == found[1] == 0.0
    assert found[3] == pytest.approx(3.0)
    assert (np.diff(found[1:]) > 0).all()


@pytest.mark.usefixtures("tigramite")
@pytest.mark.parametrize("test", ["partial-correlation", "robust-partial-correlation"])
def test_causes_are_found(test: str) -> None:
    evidence = PcmciDiscoverer(device="cpu", lags=2, test=test).find(Recording.of(trajectories()))
    assert roc_auc_score(TRUTH[OTHERS], evidence.strength[OTHERS]) >= 0.95
    assert evidence.by_lag is not None
    assert evidence.by_lag.shape == (2, 4, 4)
    assert (evidence.by_lag[0][TRUTH] > evidence.by_lag[1][TRUTH]).all()  # all causes are one step old
    np.testing.assert_array_equal(evidence.strength, evidence.by_lag.max(0))


@pytest.mark.usefixtures("tigramite")
def test_causes_are_found_behind_holes() -> None:
    found = find(with_holes(trajectories(steps=120), 0.1), lags=1)
    assert roc_auc_score(TRUTH[OTHERS], found[OTHERS]) >= 0.95


@pytest.mark.usefixtures("tigramite")
def test_target_by_target_gives_what_tigramite_gives_for_all_at_once() -> None:
    from tigramite.data_processing import DataFrame
    from tigramite.independence_tests.parcorr import ParCorr
    from tigramite.pcmci import PCMCI

    series = with_holes(trajectories(), 0.05)
    there = np.isfinite(series)
    scaled = (series - np.nanmean(series, (0, 1))) / np.nanstd(series, (0, 1))
    no_step_lost = np.pad(np.where(there, scaled, 999.0), ((0, 0), (4, 0), (0, 0)), constant_values=999.0)
    frame = DataFrame(no_step_lost, analysis_mode="multiple", missing_flag=999.0)
    expected = PCMCI(frame, ParCorr(), verbosity=0).run_pcmci(tau_min=1, tau_max=2, pc_alpha=0.05)["p_matrix"]
    found = PcmciDiscoverer(device="cpu", lags=2).find(Recording.of(series)).by_lag
    assert found is not None
    np.testing.assert_allclose(found.transpose(1, 2, 0), -np.log10(expected[:, :, 1:]), rtol=1e-6, atol=1e-9)


@pytest.mark.usefixtures("tigramite")
def test_the_order_of_trajectories_does_not_matter() -> None:
    series = trajectories(steps=40)
    np.testing.assert_allclose(find(series), find(series[::-1]), rtol=1e-6)


@pytest.mark.usefixtures("tigramite")
def test_a_jump_between_trajectories_is_not_read_as_dynamics() -> None:
    # The last step of each trajectory sets the first one of the next: only whoever mixes them sees a cause.
    series = np.random.default_rng(0).normal(size=(80, 4, 2))
    series[1:, 0, 1] = 5.0 * series[:-1, -1, 0]
    apart, mixed = find(series, lags=1), find(series.reshape(-1, 2), lags=1)
    assert mixed[0, 1] > 5.0
    assert apart[0, 1] < 2.0


@pytest.mark.usefixtures("tigramite")
def test_what_is_not_observed_is_not_read() -> None:
    recording = Recording.of(with_holes(trajectories(), 0.1))
    changed = Recording(
        np.where(recording.observed, recording.values, 1e3), recording.observed, recording.exists, recording.names
    )
    searcher = PcmciDiscoverer(device="cpu", lags=1)
    np.testing.assert_array_equal(searcher.find(recording).strength, searcher.find(changed).strength)


@pytest.mark.usefixtures("tigramite")
def test_trajectories_may_differ_in_length_and_variables_may_be_constant() -> None:
    series = trajectories()
    series[..., 2] = 0.1
    found = find([series[0], series[1, :25], series[2, :2]])
    np.testing.assert_array_equal(found[2], np.zeros(4))
    np.testing.assert_array_equal(found[:, 2], np.zeros(4))
    assert found[0, 1] > 2.0


@pytest.mark.usefixtures("tigramite")
def test_a_single_trajectory_is_enough() -> None:
    assert find(trajectories(count=1)[0], lags=1)[0, 1] > 2.0


@pytest.mark.usefixtures("tigramite")
def test_too_short_trajectories_are_refused() -> None:
    with pytest.raises(InputError, match="pcmci needs trajectories of at least 4 steps; the longest here has 3"):
        find(trajectories(steps=3))


@pytest.mark.usefixtures("tigramite")
def test_what_no_sample_can_tell_is_no_evidence_and_no_reason_to_give_up() -> None:
    series = trajectories(count=1, steps=200)
    series[:, ::2, 0] = np.nan
    series[:, ::2, 1] = np.nan  # never read one step after the other
    found = find(series, lags=1)
    assert found[0, 1] == found[1, 0] == 0.0
    assert found[3, 0] > 2.0


@pytest.mark.usefixtures("tigramite")
def test_progress_is_told_for_both_stages() -> None:
    told: list[str] = []
    PcmciDiscoverer(device="cpu", lags=1, tell=lambda what, _: told.append(what)).find(Recording.of(trajectories()))
    assert told == ["choosing parents"] * 4 + ["testing"] * 4
