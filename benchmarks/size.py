"""How large a network fits: a whole training step, and inference, of the paper's network on made-up readings."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import tidy
from benchmarks.shapes import Shape
from casper.config import preset
from casper.model import CasperNetwork
from casper.network.noise import Noise

CLOCK = 4
"""Sine and cosine of day and week."""
REPEATS = 3


def training_step(shape: Shape, device: torch.device, *, seed: int) -> dict[str, Any]:
    """Forward, backward and Adam on one window. peak_bytes: everything on the device, weights and readings included."""
    network, values, visible, clock = _made_up(shape, device, seed=seed)
    training = preset("paper").training
    optimizer = torch.optim.Adam(network.parameters(), lr=training.learning_rate, fused=True)
    generator = torch.Generator(device).manual_seed(seed)
    hidden = visible & (torch.rand(values.shape, generator=generator, device=device) < 0.5)

    def step() -> None:
        noise = Noise(generator, batch=1, share=slice(0, 1))
        prediction = network(values, visible & ~hidden, clock, noise)
        error = ((prediction.estimate - values).abs() * hidden).sum() / hidden.sum().clamp_min(1)
        optimizer.zero_grad(set_to_none=True)
        (error + training.sparsity * prediction.rho_mean.sum()).backward()
        optimizer.step()

    return {**shape.describe(), **_network_in_words(network), **_run(step, device)}


def inference(shape: Shape, device: torch.device, *, seed: int) -> dict[str, Any]:
    """One window in, an estimate of every cell out."""
    network, values, visible, clock = _made_up(shape, device, seed=seed)
    network.eval()

    @torch.inference_mode()
    def infer() -> None:
        network(values, visible, clock)

    return {**shape.describe(), **_network_in_words(network), **_run(infer, device)}


def _made_up(shape: Shape, device: torch.device, *, seed: int) -> tuple[CasperNetwork, Tensor, Tensor, Tensor]:
    """The paper's network with initial weights, and values (1, N, T), visible (1, N, T), clock (1, T, F)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = CasperNetwork(
            preset("paper").model.replace(window=shape.steps),
            neighbour_index=shape.neighbourhood.index,
            neighbour_present=shape.neighbourhood.present,
            clock=CLOCK,
        )
    generator = torch.Generator(device).manual_seed(seed)
    values = torch.randn(1, shape.sensors, shape.steps, generator=generator, device=device)
    visible = torch.rand(values.shape, generator=generator, device=device) < 0.75
    clock = torch.randn(1, shape.steps, CLOCK, generator=generator, device=device)
    return network.to(device), values, visible, clock


def _run(call: Any, device: torch.device) -> dict[str, Any]:
    """The fastest of a few runs after a first one; peak memory where the device keeps the books."""
    cuda = device.type == "cuda"
    call()
    tidy()
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    taken: list[float] = []
    for _ in range(REPEATS):
        _wait(device)
        begun = time.perf_counter()
        call()
        _wait(device)
        taken.append(time.perf_counter() - begun)
    told: dict[str, Any] = {"milliseconds": 1e3 * min(taken)}
    if cuda:
        told |= {"peak_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved()}
    return told


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _network_in_words(network: CasperNetwork) -> dict[str, Any]:
    config = network.config
    return {"width": config.width, "layers": config.layers, "heads": config.heads, "batch": 1, "dtype": "float32"}
