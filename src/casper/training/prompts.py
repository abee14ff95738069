"""Prompts that are not learned: the paper's ablation that takes the context from a pre-trained encoder instead.

An encoder without gate and prompts is trained first; every training window is pooled over its points into one
embedding, and K-means centres or samples of these embeddings stand in for the prompts.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from casper.config import ModelConfig, TrainingConfig
from casper.model import SAMPLED_BANK, CasperNetwork, PromptDecoder
from casper.progress import Tell
from casper.train import Accelerator, TrainingData, build_network, train, uses_cuda
from casper.windows import windows_at_once


def pretrained_prompts(
    config: ModelConfig,
    data: TrainingData,
    training: TrainingConfig,
    *,
    seed: int,
    folder: Path,
    accelerator: Accelerator,
    devices: int,
    progress: bool | str | Tell,
) -> Tensor:
    """The bank for `PromptDecoder.bank`; the pre-training is resumed where it was if `folder` holds one."""
    encoder = build_network(config.replace(gate="none", decoder="mlp"), data, seed=seed)
    result = train(
        encoder,
        data,
        training,
        seed=seed,
        folder=folder / "pretraining",
        accelerator=accelerator,
        devices=devices,
        resume=True,
        progress=progress,
    )
    encoder.load_state_dict(result.weights)
    device = torch.device("cuda" if uses_cuda(accelerator) else "cpu")
    embeddings = _pooled(encoder.to(device).eval(), data.to(device), maximum=config.decoder.endswith("max")).numpy()
    if config.decoder.startswith("kmeans"):
        from sklearn.cluster import KMeans

        # A short table has fewer windows than prompts; its centres are then repeated.
        clusters = min(config.prompts, len(np.unique(embeddings, axis=0)))
        centres = KMeans(clusters, n_init="auto", random_state=seed).fit(embeddings).cluster_centers_
        bank = np.resize(centres, (config.prompts, config.width))
    else:
        random = np.random.default_rng(seed)
        bank = embeddings[random.integers(len(embeddings), size=SAMPLED_BANK * config.prompts)]
    return torch.as_tensor(bank, dtype=torch.float32)


@torch.no_grad()
def _pooled(encoder: CasperNetwork, data: TrainingData, *, maximum: bool) -> Tensor:
    """(windows, D): each training window's embeddings pooled over its sensors and steps."""
    parts: list[Tensor] = []
    at_once = windows_at_once(data.truth.device, data.truth.shape[1] * encoder.config.window)
    for starts in data.train_starts.split(at_once):
        window = data.series.window(starts, encoder.config.window)
        h = encoder.embed(window.values, window.visible, window.clock).flatten(1, 2)  # (B, N*T, D)
        parts.append(h.amax(dim=1) if maximum else h.mean(dim=1))
    return torch.cat(parts).cpu()


def install_prompts(network: CasperNetwork, bank: Tensor) -> None:
    assert isinstance(network.decoder, PromptDecoder), "only the prompt based decoder has a bank"
    network.decoder.bank.copy_(bank)
