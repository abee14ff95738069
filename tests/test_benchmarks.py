from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks import agreement, attention, breakdown, ceilings, page, training
from benchmarks.ceilings import Ceilings, count, roofline
from benchmarks.contestants import contestant
from benchmarks.cpu_memory import Specification, peak_bytes, peak_bytes_in_a_process
from benchmarks.edge_list import EdgeList, at_hand
from benchmarks.layer import Contestant, LayerInputs, Ours, there_and_back
from benchmarks.measure import errors, reference, time_it
from benchmarks.padded import Padded
from benchmarks.record import Record
from benchmarks.shapes import PUBLISHED, Shape, growing_shape, named_shape, random_ragged
from benchmarks.swap import attention_in_the_model
from benchmarks.targets import of_agreement, of_attention, of_training
from casper.attention import causal_attention
from casper.config import ModelConfig
from casper.datasets import Benchmark
from casper.errors import InputError
from casper.model import CasperNetwork
from casper.network import encoder
from casper.network.neighbourhood import Neighbourhood

CPU = torch.device("cpu")
SMALL = named_shape("small", data_dir=None, seed=0)


def drawn(shape: Shape = SMALL, *, dtype: torch.dtype = torch.float64, seed: int = 1) -> LayerInputs:
    """Two windows of eight channels in two heads."""
    inputs = LayerInputs.draw(shape, batch=2, width=8, heads=2, dtype=dtype, device=CPU, seed=seed)
    return replace(inputs, temperature=inputs.temperature.to(dtype), rho_gradient=inputs.rho_gradient.to(dtype))


def computed(one: Contestant, inputs: LayerInputs, shape: Shape = SMALL) -> tuple[Tensor, ...]:
    return there_and_back(one.bind(shape.neighbourhood_on(CPU), inputs), inputs)


# ---------------------------------------------------------------- the competitors compute the same


@pytest.mark.parametrize("one", [EdgeList(library=False), Padded(compiled=False)], ids=["edge list", "padded"])
def test_a_competitor_computes_what_the_plain_version_does(one: Contestant) -> None:
    lonely = ~SMALL.neighbourhood.present.any(1)
    assert lonely.any(), "a sensor without neighbour must be among those compared"
    inputs = drawn()
    wanted = computed(Ours("plain"), inputs)
    for mine, theirs in zip(computed(one, inputs), wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)
    assert all(tensor.abs().sum() > 0 for tensor in wanted), "everything compared must be something"


def test_the_edge_list_of_the_library_computes_the_same() -> None:
    if not at_hand():
        pytest.skip("PyTorch Geometric is not installed")
    inputs = drawn()
    for mine, theirs in zip(computed(EdgeList(library=True), inputs), computed(Ours("plain"), inputs), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


def test_compiled_padded_neighbours_are_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_really = torch.compile

    def without_code(function: Any, **options: Any) -> Any:
        return compile_really(function, backend="eager", **options)  # all but the slow last steps

    monkeypatch.setattr(torch, "compile", without_code)
    inputs = drawn()
    got, wanted = computed(Padded(compiled=True), inputs), computed(Ours("plain"), inputs)
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["plain", "edge_list"])
def test_the_model_gives_the_same_with_a_competitors_attention(name: str) -> None:
    here = SMALL.neighbourhood
    config = ModelConfig(window=SMALL.steps, width=8, heads=2, layers=2, feed_forward=8, prompts=4)
    torch.manual_seed(0)
    network = CasperNetwork(config, neighbour_index=here.index, neighbour_present=here.present, clock=2)
    values, clock = torch.randn(2, SMALL.sensors, SMALL.steps), torch.randn(2, SMALL.steps, 2)
    visible = torch.rand(values.shape) < 0.5
    wanted = network(values, visible, clock)
    with attention_in_the_model(name, here):
        assert encoder.causal_attention is not causal_attention
        got = network(values, visible, clock)
    assert encoder.causal_attention is causal_attention
    torch.testing.assert_close(got, wanted)


# ---------------------------------------------------------------- shapes and measuring


def test_made_up_graphs_are_as_large_as_the_published_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CASPER_DATA", raising=False)
    for name, known in PUBLISHED.items():
        shape = named_shape(name, data_dir=None, seed=3)
        assert (shape.sensors, shape.edges, shape.steps) == (known.sensors, known.edges, known.steps)
        assert "made up" in shape.origin


def test_graphs_are_the_data_sets_own_where_distances_are_at_hand(shared_data: Path) -> None:
    for name, known in PUBLISHED.items():
        shape = named_shape(name, data_dir=shared_data, seed=0)
        assert (shape.sensors, shape.edges) == (known.sensors, known.edges)
        assert known.distances in shape.origin


def test_other_distances_than_the_published_ones_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "metr_la_distances.npy", np.ones((207, 207)))
    with pytest.raises(InputError, match=r"metr_la_distances.npy gives 207 sensors"):
        named_shape("metr-la", data_dir=tmp_path, seed=0)


def test_growing_shapes_have_ten_neighbours_and_none_is_the_sensor_itself() -> None:
    shape = named_shape("40x6", data_dir=None, seed=0)
    assert (shape.sensors, shape.steps, shape.edges) == (40, 6, 400)
    assert not (shape.neighbourhood.index == torch.arange(40)[:, None]).any()


def test_the_reference_made_window_by_window_is_that_of_the_batch() -> None:
    inputs = drawn()
    for mine, theirs in zip(
        reference(SMALL.neighbourhood_on(CPU), inputs), computed(Ours("plain"), inputs), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-14)


def test_errors_are_relative_and_a_nan_is_the_worst() -> None:
    wanted = [torch.full((4,), 2.0, dtype=torch.float64) for _ in range(8)]
    got = [tensor.clone() for tensor in wanted]
    got[3] *= 1.01
    found = errors(got, wanted)
    assert found["gradient of key"] == pytest.approx(0.01)
    assert found["worst"] == pytest.approx(0.01)
    got[5][0] = torch.nan
    assert np.isnan(errors(got, wanted)["worst"])


def test_a_time_is_the_median_of_calls_that_take_turns() -> None:
    seen: list[int] = []
    told = time_it([lambda: seen.append(0), lambda: seen.append(1)], CPU, seconds=0.001)
    assert seen[:5] == [0, 0, 1, 0, 1]
    assert told["quartiles"][0] <= told["milliseconds"] <= told["quartiles"][1]
    assert told["repeats"] == len(seen) - 1


def test_the_peak_memory_of_a_call_is_what_it_holds_at_a_time() -> None:
    def hold_64_then_32_mebibytes() -> None:
        first = torch.ones(2**24)
        del first
        torch.ones(2**23)

    assert peak_bytes(hold_64_then_32_mebibytes) == pytest.approx(2**26, rel=0.05)


def test_the_peak_memory_of_a_contestant_is_measured_in_a_process_of_its_own() -> None:
    case = Specification(
        contestant="edge_list",
        shape="100x24",
        data_dir=None,
        batch=2,
        width=32,
        heads=4,
        dtype="float32",
        seed=0,
        compiled=False,
        threads=1,
    )
    messages = 2 * 1000 * 24 * 24 * 32 * 4
    assert 3 * messages < peak_bytes_in_a_process(case) < 8 * messages


def test_the_floor_follows_from_the_counted_work_and_the_slowest_ceiling() -> None:
    shape = Shape("hand", 3, random_ragged(sensors=4, edges=5, seed=0), "")
    work = count(shape, batch=2, width=8, heads=2, dtype=torch.bfloat16)
    assert work.pairs == 2 * 5 * 3 * 3
    assert work.special_functions == 2 * work.pairs * (2 + 6)
    assert work.bytes == 2 * (2 * 4 * 3) * (3 * (4 * 8 + 2) + 2 * 8)
    told = roofline(work, Ceilings(1e12, 1e12, 1e6), 10.0)
    assert told["bound"] == "special_functions"
    assert told["floor_milliseconds"] == pytest.approx(1e3 * work.special_functions / 1e6)
    assert told["measured_over_floor"] == pytest.approx(10.0 / told["floor_milliseconds"])


# ---------------------------------------------------------------- the commands


@pytest.fixture(autouse=True)
def small_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ceilings need not be right here."""
    monkeypatch.setattr(ceilings, "COPIED_ON_CPU", 2**12)
    monkeypatch.setattr(ceilings, "MATRIX", 32)


TINY = [
    *("--device", "cpu", "--shapes", "small", "--widths", "8", "--batch", "2", "--seconds", "0.005", "--sets", "2"),
    *("--versions", "tiled", "--no-compile", "--no-memory", "--growth-sensors", "20", "40", "--growth-steps", "2"),
    *("--training-sensors", "20", "--inference-sensors", "30"),
]


def read(path: Path) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def page_of(results: Path) -> str:
    text, picture = results / "docs" / "performance.md", results / "docs" / "images" / "performance.png"
    page.main(["--results", str(results), "--page", str(text), "--picture", str(picture)])
    return text.read_text()


def test_the_attention_benchmark_writes_all_it_measured_and_the_page_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "ODD", ((5, 6, 3, 12),))
    monkeypatch.setattr(attention, "GROWTH_SENSORS", 20)
    monkeypatch.setattr(attention, "GROWTH_STEPS", 4)
    out = tmp_path / "benchmark-attention-cpu.json"
    parts = ["--parts", "speed", "correctness", "growth", "size"]
    assert attention.main([*TINY, *parts, "--out", str(out)]) == 0
    told = read(out)
    assert told["command"].startswith("python -m benchmarks.attention --device cpu --shapes small")
    assert {"commit", "seed", "device", "versions", "wall_seconds"} <= told.keys()
    assert told["failed"] == {}
    [case] = told["speed"]
    assert list(case["contestants"]) == ["tiled", "edge_list", "padded"]
    for entry in case["contestants"].values():
        assert entry["milliseconds"] > 0
        assert entry["errors"]["worst"] < 1e-5
    ours, theirs = case["contestants"]["tiled"], case["contestants"]["edge_list"]
    assert case["ratios"]["time of edge_list"] == pytest.approx(theirs["milliseconds"] / ours["milliseconds"])
    assert case["roofline"]["measured_over_floor"] > 0
    assert [one["sensors"] for one in told["growth"]["sensors"]] == [20, 40]
    assert told["growth"]["sensors"][0]["over_previous"] is None
    assert told["growth"]["sensors"][1]["over_previous"]["time"] > 0
    assert told["size"]["training_step"]["milliseconds"] > 0
    assert told["size"]["inference"]["sensors"] == 30
    assert {target["what"] for target in told["targets"]} >= {
        "small, width 8, float32: faster than edge_list",
        "time when sensors double, largest ratio",
        "5/6/3, width 12, float32, tiled: error against float64",
        "inference of 30 sensors",
    }
    written = page_of(tmp_path)
    assert f"| small | 8 | float32 | {ours['milliseconds']:.3g} ms | {theirs['milliseconds']:.3g} ms |" in written
    assert f"`{told['command']}`" in written
    assert "(images/performance.png)" in written
    assert (tmp_path / "docs" / "images" / "performance.png").read_bytes().startswith(b"\x89PNG")


def test_the_training_benchmark_runs_the_real_loop_with_every_attention_and_the_page_tells_it(
    tmp_path: Path, small_benchmark: Benchmark
) -> None:
    settings = ["window=12", "width=8", "heads=2", "layers=1", "feed_forward=8", "prompts=8"]
    arguments = ["--device", "cpu", "--data", "small", "--steps", "2", "--epochs", "2", "--set", *settings]
    out = tmp_path / "benchmark-training-cpu.json"
    assert training.main([*arguments, "--out", str(out)], load_data=lambda name: small_benchmark) == 0
    told = read(out)
    assert told["failed"] == {}
    assert [step["attention"] for step in told["steps"]] == ["ours", "plain", "edge_list"]
    for step in told["steps"]:
        first, second = step["milliseconds_by_epoch"]
        assert step["milliseconds"] == second > 0
        assert first > 0
    [filled] = told["imputing"]
    assert filled["seconds"] > 0
    assert filled["what"] == "table of 240 steps x 6 sensors filled"
    assert f"| small | 1 | 8 | 32-true | CASPER | {told['steps'][0]['milliseconds']:.3g} ms |" in page_of(tmp_path)


def test_the_agreement_of_the_plain_and_the_fast_path_is_measured_and_told(
    tmp_path: Path, small_benchmark: Benchmark
) -> None:
    settings = ["window=12", "width=8", "heads=2", "layers=1", "feed_forward=8", "prompts=8"]
    arguments = ["--device", "cpu", "--steps", "3", "--epochs", "2", "--seeds", "0", "1", "--set", *settings]
    out = tmp_path / "benchmark-agreement-cpu.json"
    assert agreement.main([*arguments, "--out", str(out)], load_data=lambda name: small_benchmark) == 0
    told = read(out)
    plain, fast = told["summary"]
    assert [plain["contestant"], fast["contestant"]] == ["plain", "fast"]
    # So few steps cannot lead apart what differs by rounding alone.
    assert fast["best"] == pytest.approx(plain["best"], rel=1e-3)
    assert fast["best"] != plain["best"], "another version was used"
    assert [one["met"] for one in told["targets"]] == [True]
    assert f"| fast | {fast['best'][0]:.2f}, {fast['best'][1]:.2f} |" in page_of(tmp_path)


def test_means_far_apart_for_their_noise_are_no_agreement() -> None:
    runs = [
        {"contestant": name, "validation_mae": [99.0, error]}
        for name, error in (("plain", 1.0), ("plain", 1.2), ("fast", 2.0), ("fast", 2.2))
    ]
    plain, fast = agreement.summary(runs)
    assert plain["mean"] == pytest.approx(1.1)
    assert fast["standard_errors_apart"] == pytest.approx(1.0 / 0.02**0.5)
    [target] = of_agreement({"data": "some", "summary": [plain, fast]})
    assert target["met"] is False
    [unknown] = of_agreement({"data": "some", "summary": agreement.summary([runs[0], runs[2]])[1:]})
    assert unknown["met"] is None


def test_without_result_files_there_is_no_page(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no benchmark-\*\.json"):
        page.main(["--results", str(tmp_path), "--page", str(tmp_path / "page.md")])


def test_a_contestant_out_of_memory_is_recorded_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short_of_memory(name: str, *, compiled: bool) -> Contestant:
        if name == "edge_list":
            raise torch.OutOfMemoryError("tried to allocate too much\nand more words")
        if name == "plain":
            raise RuntimeError("broken [not markup]")
        return contestant(name, compiled=compiled)

    monkeypatch.setattr(attention, "contestant", short_of_memory)
    out = tmp_path / "result.json"
    assert attention.main([*TINY, "--versions", "tiled", "plain", "--parts", "speed", "--out", str(out)]) == 0
    entries = read(out)["speed"][0]["contestants"]
    assert entries["edge_list"] == {"out_of_memory": "OutOfMemoryError: tried to allocate too much"}
    assert entries["plain"] == {"failed": "RuntimeError: broken [not markup]"}
    assert entries["padded"]["milliseconds"] > 0
    unknown = next(one for one in read(out)["targets"] if one["what"].endswith("faster than edge_list"))
    assert unknown["met"] is None


def test_a_part_that_fails_costs_no_other_part_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any, **options: Any) -> Neighbourhood:
        raise RuntimeError("no graph today")

    monkeypatch.setattr(attention, "random_ragged", broken)
    out = tmp_path / "result.json"
    assert attention.main([*TINY, "--parts", "speed", "correctness", "--against", "--out", str(out)]) == 1
    told = read(out)
    assert told["failed"] == {"correctness": "RuntimeError: no graph today"}
    assert told["speed"][0]["contestants"]["tiled"]["milliseconds"] > 0


def test_what_needs_more_memory_than_there_is_is_not_tried_on_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "available_bytes", lambda: 1000)
    out = tmp_path / "result.json"
    assert attention.main([*TINY, "--parts", "speed", "--out", str(out)]) == 0
    [case] = read(out)["speed"]
    assert "no_reference" in case
    assert "out_of_memory" in case["contestants"]["edge_list"]
    assert case["contestants"]["tiled"]["milliseconds"] > 0


# ---------------------------------------------------------------- targets


def test_targets_are_met_missed_or_not_measured() -> None:
    case = {
        **growing_shape(sensors=20, steps=2, seed=0).describe(),
        "width": 32,
        "dtype": "bfloat16",
        "ours": "triton",
        "contestants": {"triton": {"errors": {"worst": 0.02}}, "edge_list": {}, "padded": {}},
        "ratios": {"time of edge_list": 12.0, "memory of edge_list": 19.0},
    }
    growth = {"sensors": [{"over_previous": None}, {"over_previous": {"time": 2.1, "memory": 2.3}}]}
    odd = {"shape": "odd", "width": 8, "dtype": "float32", "errors": {"triton": {"failed": "it broke"}}}
    parts = {"speed": [case], "correctness": [odd], "growth": growth}
    found = {one["what"]: one["met"] for one in of_attention(parts, "cuda")}
    assert found == {
        "20x2, width 32, bfloat16: faster than edge_list": True,
        "20x2, width 32, bfloat16: faster than padded": None,
        "20x2, width 32, bfloat16: less memory than edge_list": False,
        "20x2, width 32, bfloat16: error against float64": False,
        "odd, width 8, float32, triton: error against float64": False,
        "time when sensors double, largest ratio": True,
        "memory when sensors double, largest ratio": False,
    }


def test_a_training_step_and_an_imputation_have_their_limits() -> None:
    parts = {
        "steps": [
            {"data": "aqi36", "attention": "ours", "precision": "32-true", "compiled": True, "milliseconds": 3.4},
            {"data": "aqi36", "attention": "ours", "precision": "32-true", "compiled": False, "milliseconds": 5.0},
            {"data": "aqi36", "attention": "plain", "precision": "32-true", "compiled": True, "milliseconds": 9.0},
            {
                "data": "metr-la-point",
                "attention": "ours",
                "precision": "32-true",
                "compiled": True,
                "out_of_memory": "no",
            },
        ],
        "imputing": [{"data": "metr-la-point", "job": "test range", "what": "all windows", "seconds": 11.0}],
    }
    assert [one["met"] for one in of_training(parts, "cuda")] == [True, None, False]


def test_kernels_are_grouped_by_name_and_the_page_tells_their_share(tmp_path: Path) -> None:
    kernels = {
        "forward_kernel": (40.0, 40),
        "sm90_xmma_gemm_f32f32": (20.0, 100),
        "nvjet_tst_64x8": (10.0, 20),
        "triton_poi_fused_add": (20.0, 60),
        "Memcpy DtoD": (10.0, 10),
    }
    groups = breakdown.grouped(kernels, steps=10)
    assert [(one["group"], one["milliseconds"], one["launches"]) for one in groups] == [
        ("attention, forward", 4.0, 4.0),
        ("matrix products", 3.0, 12.0),
        ("small operations, joined by the compiler", 2.0, 6.0),
        ("everything else", 1.0, 1.0),
    ]
    record = Record(
        tmp_path / "benchmark-breakdown-cuda.json", module="benchmarks.breakdown", arguments=[], seed=0, device="cpu"
    )
    record.parts["steps"] = [{"data": "aqi36", "precision": "32-true", "groups": groups}]
    record.save()
    assert "| matrix products | 3.00 ms | 30% | 12 |" in page_of(tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_a_breakdown_says_so() -> None:
    with pytest.raises(InputError, match="needs a GPU"):
        breakdown.main([])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_every_part_runs_and_a_recorded_graph_is_timed_too(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    sizes = ["--growth-sensors", "20", "40", "--growth-steps", "4", "8", "--training-sensors", "50"]
    few = ["--shapes", "small", "--widths", "32", "--seconds", "0.01", "--no-compile", "--inference-sensors", "60"]
    assert attention.main(["--device", "cuda", *few, *sizes, "--out", str(out)]) == 0
    told = read(out)
    for case in told["speed"]:
        for entry in case["contestants"].values():
            assert entry["graph_milliseconds"] > 0
            assert entry["milliseconds"] == min(entry["graph_milliseconds"], entry["eager_milliseconds"])
            assert entry["peak_bytes"] > 0
    assert all(rate > 1e9 for rate in told["ceilings"].values())
    assert told["size"]["training_step"]["peak_bytes"] > 0
