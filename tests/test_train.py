from __future__ import annotations

import csv
import importlib.util
import os
import signal
import subprocess
import sys
import types
from dataclasses import asdict, replace
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest
import torch
from torch.multiprocessing.spawn import ProcessRaisedException

from casper import train as train_module
from casper.config import ModelConfig, TrainingConfig
from casper.errors import InputError, MissingPackageError
from casper.model import PromptDecoder
from casper.network.learning import Example
from casper.progress import TrainingProgress
from casper.train import (
    CHECKPOINT,
    METRICS,
    EpochRecord,
    TrainingData,
    TrainingResult,
    build_network,
    check_device,
    read_result,
    train,
)
from casper.training import step as training_step
from casper.training.checkpoint import read_tensors, under_prefix
from casper.training.masks import TrainingMasks
from casper.training.prompts import install_prompts, pretrained_prompts
from casper.windows import Series, spread_starts

SENSORS, STEPS, WINDOW = 4, 160, 6
TINY = ModelConfig(window=WINDOW, width=8, layers=1, heads=2, feed_forward=8, prompts=4, dropout=0.1)
SHORT = TrainingConfig(
    epochs=4,
    batches_per_epoch=3,
    batch_size=4,
    learning_rate=3e-3,
    warmup_steps=2,
    copied_gaps=0.3,
    block_gaps=0.3,
    weight_averaging=0.9,
    temperature_end=0.5,
    validation_cells=1_000,
)


def data(*, seed: int = 0, fingerprint: str = "a table") -> TrainingData:
    """Waves that travel from sensor to sensor, with holes."""
    random = np.random.default_rng(seed)
    step = np.arange(STEPS)
    values = np.sin(2 * np.pi * (step[:, None] - 2 * np.arange(SENSORS)) / 24).astype(np.float32)
    observed = random.random(values.shape) < 0.9
    scored = observed & (random.random(values.shape) < 0.1)
    clock = np.stack((np.sin(2 * np.pi * step / 24), np.cos(2 * np.pi * step / 24)), axis=1).astype(np.float32)
    starts = torch.as_tensor(spread_starts(STEPS, WINDOW, 1))
    return TrainingData(
        series=Series.build(values, observed & ~scored, clock, torch.device("cpu")),
        truth=torch.as_tensor(np.where(observed, values, 0.0)),
        scored=torch.as_tensor(scored),
        train_starts=starts,
        validation_starts=starts[::5],
        gaps=torch.as_tensor(~observed),
        gap_starts=starts,
        deviation=torch.full((SENSORS,), 2.0),
        neighbour_index=torch.tensor([[1, 2], [0, 2], [1, 3], [3, 3]]),
        neighbour_present=torch.tensor([[True, True], [True, True], [True, True], [False, False]]),
        fingerprint=fingerprint,
    )


def fit(
    folder: Path, *, config: ModelConfig = TINY, training: TrainingConfig = SHORT, **options: Any
) -> TrainingResult:
    table = options.pop("table", None) or data()
    seed = options.pop("seed", 1)
    options.setdefault("accelerator", "cpu")
    return train(build_network(config, table, seed=seed), table, training, seed=seed, folder=folder, **options)


def without_seconds(history: tuple[EpochRecord, ...]) -> list[dict[str, float]]:
    return [{name: value for name, value in asdict(record).items() if name != "seconds"} for record in history]


def assert_identical(one: TrainingResult, other: TrainingResult) -> None:
    assert without_seconds(one.history) == without_seconds(other.history)
    assert one.best_epoch == other.best_epoch
    assert set(one.weights) == set(other.weights)
    for name, tensor in one.weights.items():
        assert torch.equal(tensor, other.weights[name]), name


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainingResult]:
    folder = tmp_path_factory.mktemp("uninterrupted")
    return folder, fit(folder)


# ---------------------------------------------------------------------- the same again


def test_the_same_seed_gives_the_same_weights_bit_for_bit(
    uninterrupted: tuple[Path, TrainingResult], tmp_path: Path
) -> None:
    torch.manual_seed(12345)  # the global generator must not matter
    assert_identical(fit(tmp_path), uninterrupted[1])


def test_another_seed_gives_other_weights(uninterrupted: tuple[Path, TrainingResult], tmp_path: Path) -> None:
    other = fit(tmp_path, seed=2)
    assert not torch.equal(other.weights["project.missing"], uninterrupted[1].weights["project.missing"])


def test_training_leaves_the_callers_network_and_the_global_generator_alone(tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    table = data()
    network = build_network(TINY, table, seed=1)
    initial = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    train(network, table, SHORT.replace(epochs=1), seed=1, folder=tmp_path, accelerator="cpu")
    assert all(torch.equal(tensor, initial[name]) for name, tensor in network.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), before)


def test_sensors_that_are_down_are_not_read_but_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Example] = []

    def watched(*parts: Any) -> Example:
        made.append(Example(*parts))
        return made[-1]

    monkeypatch.setattr("casper.training.step.Example", watched)
    fit(tmp_path, training=SHORT.replace(silent_sensors=1.0, hidden_shares=(0.5,)))
    seen = torch.stack([example.seen for example in made]).any(-1)
    scored = torch.stack([example.hidden for example in made]).any(-1)
    assert 0.2 < (scored & ~seen).float().mean() < 0.8, "half of all, on average"


def train_and_die(folder: str, draws: str) -> None:
    """Run in a process of its own: killed, as by the system, at the given training step."""
    torch.set_num_threads(1)
    draw, left = TrainingMasks.draw, [int(draws)]

    def dying_draw(self: TrainingMasks, *arguments: Any) -> torch.Tensor:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return draw(self, *arguments)

    TrainingMasks.draw = dying_draw
    fit(Path(folder))


def test_a_killed_training_resumes_to_bitwise_the_same_weights(
    uninterrupted: tuple[Path, TrainingResult], tmp_path: Path
) -> None:
    call = f"import test_train; test_train.train_and_die({str(tmp_path)!r}, '8')"  # in the middle of the third epoch
    source = Path(train_module.__file__).parents[1]
    path = os.pathsep.join([str(source), str(Path(__file__).parent)])
    died = subprocess.run(
        [sys.executable, "-c", call], env={**os.environ, "PYTHONPATH": path}, capture_output=True, timeout=120
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    assert len(read_result(tmp_path).history) == 2
    assert sorted(one.name for one in tmp_path.iterdir()) == [CHECKPOINT, METRICS]
    assert_identical(fit(tmp_path, resume=True), uninterrupted[1])
    # Not only what was kept as best, also where the training stands.
    whole, _ = read_tensors(uninterrupted[0] / CHECKPOINT)
    resumed, _ = read_tensors(tmp_path / CHECKPOINT)
    assert set(whole) == set(resumed)
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in whole.items())


def test_a_training_with_muon_resumes_to_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {
        "config": TINY.replace(width=16, feed_forward=16), "training": SHORT.replace(optimizer="muon")
    }  # fmt: skip
    whole = fit(tmp_path / "whole", **options)
    draw, left = TrainingMasks.draw, [8]

    def interrupted(self: TrainingMasks, *arguments: Any) -> torch.Tensor:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return draw(self, *arguments)

    monkeypatch.setattr(TrainingMasks, "draw", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "part", **options)
    monkeypatch.setattr(TrainingMasks, "draw", draw)
    assert_identical(fit(tmp_path / "part", resume=True, **options), whole)
    by_adam = fit(tmp_path / "adam", config=options["config"])
    assert not torch.equal(by_adam.weights["decoder.query.0.weight"], whole.weights["decoder.query.0.weight"])


def test_resuming_a_finished_training_gives_its_result(uninterrupted: tuple[Path, TrainingResult]) -> None:
    folder, result = uninterrupted
    again = fit(folder, resume=True)
    assert again.history == result.history
    assert_identical(again, result)


def test_resume_in_an_empty_folder_just_trains(uninterrupted: tuple[Path, TrainingResult], tmp_path: Path) -> None:
    assert_identical(fit(tmp_path / "new" / "folder", resume=True), uninterrupted[1])


def test_a_folder_with_a_training_is_not_overwritten(uninterrupted: tuple[Path, TrainingResult]) -> None:
    with pytest.raises(InputError, match=r"holds a training already; continue it with --resume"):
        fit(uninterrupted[0])


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"seed": 2}, "seed 1 instead of 2"),
        ({"table": data(fingerprint="another one")}, "another table"),
        ({"config": TINY.replace(heads=4)}, "heads 2 instead of 4"),
        ({"training": SHORT.replace(hidden_shares=(0.5,))}, r"hidden_shares \[0.2, 0.5, 0.8\] instead of \[0.5\]"),
    ],
    ids=["seed", "table", "network", "training"],
)
def test_resuming_another_training_is_refused_and_the_difference_named(
    changes: dict[str, Any], difference: str, uninterrupted: tuple[Path, TrainingResult]
) -> None:
    with pytest.raises(InputError, match=f"belongs to a training with {difference}; resume with the same"):
        fit(uninterrupted[0], resume=True, **changes)


def test_a_damaged_checkpoint_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT).write_bytes(b"not a checkpoint")
    with pytest.raises(InputError, match="not a readable weights file"):
        fit(tmp_path, resume=True)


# ---------------------------------------------------------------------- several processes


def test_two_processes_train_like_one(tmp_path: Path) -> None:
    # One validation window for two processes: one of them has nothing to validate.
    table = replace(data(), validation_starts=torch.tensor([40]))
    # Adam turns rounding noise in gradients that are really 0 into steps as long as the learning rate: keep it small.
    training = SHORT.replace(epochs=2, learning_rate=1e-4)
    alone = fit(tmp_path / "alone", table=table, training=training)
    both = fit(tmp_path / "both", table=table, training=training, devices=2)
    for one, other in zip(alone.history, both.history, strict=True):
        assert other.train_loss == pytest.approx(one.train_loss, rel=1e-5)
        assert other.validation_mae == pytest.approx(one.validation_mae, rel=1e-5)
        assert other.rho_mean == pytest.approx(one.rho_mean, rel=1e-5)
    gradients, other_gradients = (read_tensors(tmp_path / name / CHECKPOINT)[0] for name in ("alone", "both"))
    averages = [name for name in gradients if name.endswith("/exp_avg")]
    assert averages
    for name in averages:
        torch.testing.assert_close(other_gradients[name], gradients[name], rtol=1e-3, atol=1e-5)


def test_an_input_error_of_a_child_process_stays_one() -> None:
    own_errors = train_module._own_errors  # pyright: ignore[reportPrivateUsage]
    told = "Traceback (most recent call last):\n  ...\ncasper.errors.InputError: the disk is full: free some space\n"
    with pytest.raises(InputError, match=r"^the disk is full: free some space$"), own_errors():
        raise ProcessRaisedException(told, 0, 1)
    with pytest.raises(ProcessRaisedException, match="KeyError"), own_errors():
        raise ProcessRaisedException("Traceback:\nKeyError: 3", 0, 1)


@pytest.mark.parametrize("before", [None, "7"])
def test_processes_share_the_cores_and_the_setting_is_restored(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer_threads = train_module.fewer_threads
    if before is None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", before)
    with fewer_threads(1000):
        assert os.environ["OMP_NUM_THREADS"] == "1"
    assert os.environ.get("OMP_NUM_THREADS") == before


def test_a_batch_that_cannot_be_split_evenly_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a batch of 4 windows cannot be split evenly over 3 devices"):
        fit(tmp_path, devices=3)


# ---------------------------------------------------------------------- what a training leaves behind


def test_metrics_have_a_row_per_epoch(uninterrupted: tuple[Path, TrainingResult]) -> None:
    folder, result = uninterrupted
    with (folder / METRICS).open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert [int(row["epoch"]) for row in rows] == [0, 1, 2, 3]
    for row, record in zip(rows, result.history, strict=True):
        decided = tuple(float(share) for share in row.pop("decided").split())
        assert decided == pytest.approx(record.decided, abs=1e-4)
        assert {**{name: float(value) for name, value in row.items()}, "decided": record.decided} == asdict(record)


def test_the_loss_goes_down_and_the_best_weights_are_kept(tmp_path: Path) -> None:
    result = fit(tmp_path, training=SHORT.replace(epochs=6, batches_per_epoch=20, learning_rate=1e-2))
    losses = [record.train_loss for record in result.history]
    assert losses[-1] < 0.8 * losses[0]
    assert result.history[-1].validation_mae < 0.8 * result.history[0].validation_mae
    assert result.best_mae == min(record.validation_mae for record in result.history)
    assert result.history[result.best_epoch].validation_mae == result.best_mae
    assert all(0 < record.rho_mean < 1 for record in result.history)
    assert [record.learning_rate for record in result.history] == sorted(
        (record.learning_rate for record in result.history), reverse=True
    ), "a cosine falls after its warm-up"


def validation_mae(weights: dict[str, torch.Tensor]) -> float:
    table = data()
    network = build_network(TINY, table, seed=0)
    network.load_state_dict(weights)
    window = table.series.window(table.validation_starts, WINDOW)
    rows = table.validation_starts[:, None] + torch.arange(WINDOW)
    scored = table.scored[rows].transpose(1, 2)
    with torch.no_grad():
        error = (
            network(window.values, window.visible, window.clock).estimate - table.truth[rows].transpose(1, 2)
        ).abs()
    return 2.0 * float(error[scored].mean())  # the deviation of every sensor is 2


@pytest.mark.parametrize("averaging", [0.0, 0.9])
def test_the_weights_that_were_validated_are_the_ones_kept(averaging: float, tmp_path: Path) -> None:
    training = SHORT.replace(epochs=1, weight_averaging=averaging, validation_cells=1_000_000, learning_rate=2e-2)
    result = fit(tmp_path, training=training)
    assert validation_mae(result.weights) == pytest.approx(result.best_mae, rel=1e-4)
    tensors, _ = read_tensors(tmp_path / CHECKPOINT)
    current, averaged = under_prefix("model", tensors), under_prefix("average", tensors)
    apart = not torch.equal(current["project.missing"], averaged["project.missing"])
    assert apart, "the average lags behind, or stays where it began when it is not used"
    expected = averaged if averaging else current
    assert all(torch.equal(result.weights[name], expected[name]) for name in averaged)


def test_patience_stops_a_training_that_does_not_improve(tmp_path: Path) -> None:
    # The learning rate is so small that no epoch after the first changes a weight.
    training = SHORT.replace(epochs=30, patience=2, learning_rate=1e-30, weight_averaging=0.0)
    result = fit(tmp_path, training=training)
    assert result.best_epoch == 0
    assert len(result.history) == 3
    assert len(fit(tmp_path, training=training, resume=True).history) == 3, "and a resumed one stays stopped"


def test_the_last_weights_are_kept_where_asked_for_whatever_the_validation_error(tmp_path: Path) -> None:
    # The learning rate is so small that no epoch is better than the first.
    training = SHORT.replace(epochs=5, patience=2, learning_rate=1e-30, weight_averaging=0.0, keep="last")
    result = fit(tmp_path, training=training)
    assert len(result.history) == 5, "nor does patience stop it"
    assert result.best_epoch == 4
    training = SHORT.replace(epochs=5, learning_rate=3e-2, weight_averaging=0.0, keep="last")
    result = fit(tmp_path / "learning", training=training)
    tensors, _ = read_tensors(tmp_path / "learning" / CHECKPOINT)
    for name, weight in under_prefix("model", tensors).items():
        assert torch.equal(weight, result.weights[name]), name
    assert result.best_mae == result.history[-1].validation_mae


def test_bf16_is_a_matter_for_gpus_and_ignored_on_the_cpu(
    uninterrupted: tuple[Path, TrainingResult], tmp_path: Path
) -> None:
    assert_identical(fit(tmp_path, training=SHORT.replace(precision="bf16-mixed")), uninterrupted[1])


def test_a_compiled_training_learns_what_an_ordinary_one_does(
    uninterrupted: tuple[Path, TrainingResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The compiler's tracing without its code generation, which takes longer than everything else here.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager", fullgraph=True))
    compiled = fit(tmp_path, training=SHORT.replace(compiled=True))
    for name, weight in uninterrupted[1].weights.items():
        torch.testing.assert_close(compiled.weights[name], weight)


def test_gates_become_steep_in_the_course_of_training_and_stay_so(tmp_path: Path) -> None:
    result = fit(tmp_path, config=TINY.replace(gate_sharpness=100.0, gate_bias=0.0))
    sharpness = result.weights["layers.0.attention.sharpness"].item()
    done = (result.best_epoch + 1) * SHORT.batches_per_epoch - 1
    assert sharpness == pytest.approx(100.0 ** min(1.0, done / SHORT.steps / 0.7))
    assert result.history[-1].decided[0] > result.history[0].decided[0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_a_recorded_step_gives_bitwise_what_the_step_itself_gives(
    optimizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {
        "config": TINY.replace(width=16), "training": SHORT.replace(optimizer=optimizer), "accelerator": "cuda"
    }  # fmt: skip
    recorded = fit(tmp_path / "recorded", **options)
    monkeypatch.setattr(training_step, "_WARM_UP", 1_000_000)
    assert_identical(fit(tmp_path / "step by step", **options), recorded)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
def test_a_compiled_training_on_a_gpu_is_repeatable_and_learns_what_an_ordinary_one_does(tmp_path: Path) -> None:
    settings = SHORT.replace(compiled=True)
    compiled = fit(tmp_path / "compiled", training=settings, accelerator="cuda")
    assert_identical(fit(tmp_path / "again", training=settings, accelerator="cuda"), compiled)
    ordinary = fit(tmp_path / "ordinary", training=SHORT.replace(compiled=False), accelerator="cuda")
    assert compiled.best_mae == pytest.approx(ordinary.best_mae, rel=1e-2)


@pytest.mark.parametrize(("device", "processes", "steps", "pays"), [
    ("cuda", 1, 90_000, True), ("cuda", 1, 2_400, False), ("cuda", 2, 90_000, False), ("cpu", 1, 90_000, False)
])  # fmt: skip
def test_long_trainings_on_one_gpu_are_compiled(
    device: str, processes: int, steps: int, pays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CASPER_ATTENTION", "triton")
    fabric: Any = SimpleNamespace(device=torch.device(device), world_size=processes)
    training = TrainingConfig(epochs=steps // 300, batches_per_epoch=300)
    assert train_module._compiling_pays(training, fabric) is pays


def test_devices_that_are_not_there_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="devices must be at least 1, not 0"):
        fit(tmp_path, devices=0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="no GPU was found on this machine; use --device cpu"):
        fit(tmp_path, accelerator="cuda")
    assert list(tmp_path.iterdir()) == []
    check_device("auto", 4)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    check_device("auto", 1)
    with pytest.raises(InputError, match="2 GPUs were asked for, this machine has 1"):
        check_device("auto", 2)


def test_progress_is_drawn_on_standard_error_only_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(tmp_path / "quiet", training=SHORT.replace(epochs=1))
    assert capsys.readouterr() == ("", "")
    fit(tmp_path / "shown", training=SHORT.replace(epochs=1), progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "epoch 1/1" in shown.err
    with TrainingProgress(SHORT.replace(batches_per_epoch=30), True) as progress:
        progress.begin_epoch(0)
        for _ in range(30):
            progress.step(torch.tensor(0.125))
        progress.end_epoch(0.125, float("inf"), 1.5)
    assert "0.125" in capsys.readouterr().err


def test_progress_can_be_told_to_somebody_instead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[str, float]] = []
    training = SHORT.replace(epochs=2, batches_per_epoch=25)
    result = fit(tmp_path, training=training, progress=lambda what, share: told.append((what, share)))
    first = f"{result.history[0].validation_mae:.4g}"
    assert told == [("training", 0.5), (f"training, error {first} (best {first})", 1.0)]
    assert capsys.readouterr() == ("", "")


def test_trainings_side_by_side_share_one_display_and_say_who_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress(SHORT, "seed 7") as one:
        with TrainingProgress(SHORT, "seed 8") as other:
            one.begin_epoch(0)
            other.begin_epoch(1)
            other.end_epoch(0.5, 2.5, 1.5)
        one.end_epoch(0.25, 3.5, 2.25)
    drawn = capsys.readouterr().err
    assert "seed 7 epoch 1/4" in drawn
    assert "seed 8: best 1.5" in drawn
    assert "best 2.25" in drawn.splitlines()[-1], "the last one's line stays"


def test_tensorboard_logs_are_refused_at_once_without_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_found(_name: str) -> None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", nothing_found)
    with pytest.raises(MissingPackageError, match=r"casper-impute\[tensorboard\]"):
        fit(tmp_path / "new", tensorboard=True)
    assert not (tmp_path / "new").exists()


def test_tensorboard_gets_every_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, int]] = []

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            assert folder == str(tmp_path / "tensorboard")

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            written.append(("closed", -1))

        def add_scalar(self, name: str, value: float, epoch: int) -> None:
            assert np.isfinite(value)
            written.append((name, epoch))

    package, module = types.ModuleType("tensorboard"), types.ModuleType("torch.utils.tensorboard")
    package.__spec__ = ModuleSpec("tensorboard", None)
    module.__dict__["SummaryWriter"] = SummaryWriter
    monkeypatch.setitem(sys.modules, "tensorboard", package)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    fit(tmp_path, training=SHORT.replace(epochs=2), tensorboard=True)
    assert [epoch for name, epoch in written if name == "validation_mae"] == [0, 1]
    assert written.count(("closed", -1)) == 2


# ---------------------------------------------------------------------- prompts that are not learned


@pytest.mark.parametrize("decoder", ["kmeans-max", "kmeans-avg", "sample-max", "sample-avg"])
def test_prompts_from_a_pre_trained_encoder_train_end_to_end(decoder: str, tmp_path: Path) -> None:
    config, training, table = TINY.replace(decoder=decoder), SHORT.replace(epochs=2), data()
    options: dict[str, Any] = {"seed": 1, "folder": tmp_path, "accelerator": "cpu", "devices": 1}
    bank = pretrained_prompts(config, table, training, progress=False, **options)
    assert torch.equal(bank, pretrained_prompts(config, table, training, progress=False, **options)), (
        "resumed, not redone"
    )
    assert (tmp_path / "pretraining" / CHECKPOINT).exists()
    network = build_network(config, table, seed=1)
    assert isinstance(network.decoder, PromptDecoder)
    assert bank.shape == network.decoder.bank.shape
    assert len(bank.unique(dim=0)) > 1
    install_prompts(network, bank)
    result = train(network, table, training, seed=1, folder=tmp_path, accelerator="cpu")
    assert len(result.history) == 2
    assert torch.equal(result.weights["decoder.bank"], bank), "the bank is not trained"
    assert all(np.isfinite(record.train_loss) for record in result.history)


def test_more_prompts_than_windows_repeat_the_centres(tmp_path: Path) -> None:
    config, table = (
        TINY.replace(decoder="kmeans-avg", prompts=10),
        replace(data(), train_starts=torch.tensor([0, 50, 90])),
    )
    options: dict[str, Any] = {"accelerator": "cpu", "devices": 1, "progress": False}
    bank = pretrained_prompts(config, table, SHORT.replace(epochs=1), seed=1, folder=tmp_path, **options)
    assert bank.shape == (10, 8)
    assert len(bank.unique(dim=0)) == 3


def test_only_prompt_decoders_take_prompts() -> None:
    with pytest.raises(AssertionError, match="bank"):
        install_prompts(build_network(TINY.replace(decoder="mlp"), data(), seed=0), torch.zeros(4, 8))


def test_the_learning_rate_restarts_every_hundred_epochs_and_never_falls_below_a_tenth() -> None:
    training = TrainingConfig(epochs=300, batches_per_epoch=10, warmup_steps=120, schedule="restarts")
    rates = [training_step.learning_rate(training, step) / training.learning_rate for step in range(training.steps)]
    assert max(rates[:120]) == rates[119] == pytest.approx(1.0)
    rises = [step for step in range(121, training.steps) if rates[step] > rates[step - 1]]
    assert rises == [120 + 960, 120 + 2 * 960]
    assert [rates[step] for step in rises] == pytest.approx([1 - 0.67 / 3, 1 - 0.67 * 2 / 3])
    assert min(rates[120:]) == 0.1
    plain = training.replace(schedule="cosine")
    once = [training_step.learning_rate(plain, step) for step in range(120, plain.steps)]
    assert once == sorted(once, reverse=True)
    assert once[-1] < 1e-5 * training.learning_rate
    short = training.replace(epochs=30)
    rates = [training_step.learning_rate(short, step) for step in range(30, short.steps)]
    assert rates == sorted(rates, reverse=True), "a short training has one cycle"
