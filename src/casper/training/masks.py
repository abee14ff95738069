"""Which visible cells are hidden from the model and scored in a training step; drawn on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from casper.config import TrainingConfig
from casper.windows import cut


class TrainingMasks:
    """Points hidden at random, blocks as of a failing sensor, the last step, blackouts of the whole network, and real
    gaps copied from another time.

    gaps: (T, N), True where the table has a real hole; gap_starts: windows whose holes may be copied.
    """

    def __init__(self, training: TrainingConfig, *, gaps: Tensor, gap_starts: Tensor) -> None:
        self._training = training
        self._gaps, self._gap_starts = gaps, gap_starts
        self._shares = torch.tensor(training.hidden_shares, device=gaps.device)

    def draw(self, visible: Tensor, generator: torch.Generator, sensors: Tensor | None = None) -> Tensor:
        """(B, N, T) visible cells -> the ones to hide. A window with few visible cells may come out with none."""
        batch, _, length = visible.shape
        uniform = torch.rand(visible.shape, generator=generator, device=visible.device)
        share = self._shares[self._integers(len(self._shares), batch, generator)]
        hidden = uniform < share[:, None, None]
        kind = torch.rand(batch, generator=generator, device=visible.device)[:, None, None]
        training = self._training
        if training.block_gaps > 0:
            blocks = self._blocks(visible, share, generator)
            hidden = torch.where(kind < training.block_gaps, blocks, hidden)
        if training.forecast_gaps > 0:
            last = torch.arange(length, device=visible.device) == length - 1
            foretold = (kind >= training.block_gaps) & (kind < training.block_gaps + training.forecast_gaps)
            hidden = torch.where(foretold, last, hidden)
        if training.blackout_gaps > 0:
            begin = training.block_gaps + training.forecast_gaps
            silent = (kind >= begin) & (kind < begin + training.blackout_gaps)
            hidden = torch.where(silent, self._blackouts(length, share, generator)[:, None], hidden)
        if training.copied_gaps > 0 and len(self._gap_starts) > 0:
            source = self._gap_starts[self._integers(len(self._gap_starts), batch, generator)]
            copied = cut(self._gaps, source, length, sensors) & visible
            # A pattern without holes here teaches nothing: such windows keep the other mask.
            use = (kind >= 1 - training.copied_gaps) & copied.any(dim=(1, 2), keepdim=True)
            hidden = torch.where(use, copied, hidden)
        return hidden & visible

    def silence(self, visible: Tensor, hidden: Tensor, generator: torch.Generator) -> Tensor:
        """(B, N, T) visible cells -> what is left of them when some sensors are down for the whole window. hidden: the
        ones to be restored, which stay known, whoever is down."""
        if self._training.silent_sensors == 0:
            return visible
        draws = torch.rand(visible.shape[0], visible.shape[1] + 1, 1, generator=generator, device=visible.device)
        return visible & (draws[:, 1:] >= draws[:, :1] * self._training.silent_sensors) | hidden

    def prolong(self, wide: Tensor, hidden: Tensor, generator: torch.Generator) -> Tensor:
        """(B, N, T + 2 reach) visible cells -> what is left of them when gaps that touch an end of the window go on
        beyond it, short ways as often as long ones. hidden: (B, N, T), the gaps."""
        length = hidden.shape[2]
        reach = (wide.shape[2] - length) // 2
        draws = torch.rand(2, *hidden.shape[:2], 1, generator=generator, device=wide.device)
        before, after = reach**draws * torch.stack((hidden[..., :1], hidden[..., -1:]))
        step = torch.arange(-reach, length + reach, device=wide.device)
        return wide & ~((step < 0) & (step >= -before)) & ~((step >= length) & (step < length + after))

    def _integers(self, below: int, count: int, generator: torch.Generator) -> Tensor:
        return torch.randint(below, (count,), generator=generator, device=generator.device)

    @staticmethod
    def _blocks(visible: Tensor, share: Tensor, generator: torch.Generator) -> Tensor:
        """One run of steps for a random part of the sensors, from a single step to the whole window."""
        batch, sensors, length = visible.shape
        draws = torch.rand(3, batch, sensors, 1, generator=generator, device=visible.device)
        run = (draws[0] * length).floor() + 1
        first = (draws[1] * (length + run - 1)).floor() - run + 1  # runs may stick out at both ends
        step = torch.arange(length, device=visible.device)
        failing = draws[2] < share[:, None, None]
        return failing & (step >= first) & (step < first + run)

    @staticmethod
    def _blackouts(length: int, share: Tensor, generator: torch.Generator) -> Tensor:
        """(B,) -> (B, T): runs of silent steps, equally long and far apart in a window; they take up `share` of it.

        Short runs are as frequent as long ones: half of them are shorter than the root of half a window.
        """
        draws = torch.rand(2, len(share), 1, generator=generator, device=share.device)
        run = (length / 2) ** draws[0]
        period = torch.maximum(run / share[:, None], run + 1)
        step = torch.arange(length, device=share.device)
        return (step + (draws[1] * period).floor()) % period.floor() < run.floor()
