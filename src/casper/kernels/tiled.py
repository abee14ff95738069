"""The definition of the causal attention, a few sensors of a few windows at a time.

Every tile is computed by `casper.attention.plain_attention` and forgotten; the backward pass computes it again. Memory
therefore does not grow with the number of pairs, and on a processor the pairs of a tile stay in its cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from casper.attention import GateRule, plain_attention
from casper.kernels.operators import Given, empty_results, make_attend
from casper.network.neighbourhood import Neighbourhood
from casper.network.noise import PairNoise

# The size of a tile's largest tensor, unless one sensor of one window has more. A core has one or two megabytes of
# cache; a GPU would idle on so little work.
TILE_BYTES_ON_CPU = 2 << 20
TILE_BYTES_ELSEWHERE = 256 << 20

Floats = list[Tensor | None]
"""query, key, message_query, message_key, gate_query, gate_key, relative_bias, as in `Given`."""


@dataclass(frozen=True, kw_only=True)
class _Tile(Neighbourhood):
    """Some windows of some sensors that look, (n,); index, present: (n, K), K the most neighbours that one of them has.

    Keys and what belongs to them are gathered before they are handed to the definition, so that a tile's gradients have
    the size of the tile.
    """

    windows: slice
    looking: Tensor

    def gather(self, x: Tensor) -> Tensor:
        """(B, n*K, T, ...) -> (B, n, K*T, ...)"""
        return x.reshape(x.shape[0], self.index.shape[0], -1, *x.shape[3:])

    def sensors_of(self, place: int) -> Tensor:
        """The sensors that this one of `Floats` is of: queries and keys take turns."""
        return self.index.flatten() if place % 2 else self.looking

    def cut(self, floats: Floats) -> Floats:
        *by_sensor, relative_bias = floats
        cut: Floats = [
            None if x is None else x[self.windows].index_select(1, self.sensors_of(place))
            for place, x in enumerate(by_sensor)
        ]
        return [*cut, relative_bias]

    def add(self, parts: Floats, to: Floats) -> None:
        *by_sensor, bias_part = parts
        *gradients, bias_gradient = to
        for place, (part, gradient) in enumerate(zip(by_sensor, gradients, strict=True)):
            if part is not None and gradient is not None:
                gradient[self.windows].index_add_(1, self.sensors_of(place), part)
        if bias_part is not None and bias_gradient is not None:
            bias_gradient += bias_part


def _tiles(given: Given) -> Iterator[_Tile]:
    """Sensors with similar numbers of neighbours together. A GPU is waited for once, here."""
    batch, sensors, steps, heads, channels = given.query.shape
    wanted = TILE_BYTES_ON_CPU if given.query.device.type == "cpu" else TILE_BYTES_ELSEWHERE
    per_pair = heads * (1 if given.message_query is None else channels) * given.query.element_size()
    order, counts = given.order.long(), given.start.diff().long()
    falling = counts[order].tolist()
    first = 0
    while first < sensors and falling[first] > 0:
        room = max(wanted // (per_pair * steps * steps * falling[first]), 1)
        wide = min(room, batch)
        last = min(first + room // wide, sensors)
        looking = order[first:last]
        slots = torch.arange(falling[first], device=order.device)
        present = slots < counts[looking, None]
        index = given.source.long()[(given.start[looking, None] + slots).clamp_max(len(given.source) - 1)]
        index = torch.where(present, index, looking[:, None])  # what lies behind a row may be no sensor at all
        full = falling[first] == falling[last - 1]
        for window in range(0, batch, wide):
            yield _Tile(index, present, full, windows=slice(window, min(window + wide, batch)), looking=looking)
        first = last


def _attend_tile(given: Given, tile: _Tile, floats: Floats) -> tuple[Tensor, Tensor, Tensor]:
    query, key, message_query, message_key, gate_query, gate_key, relative_bias = floats
    assert query is not None
    assert key is not None
    assert message_key is not None
    noise = None
    if given.noise_key is not None:
        first_window = given.first_window + tile.windows.start
        noise = PairNoise(given.noise_key, first_window, tile.looking, given.query.shape[1])
    temperature = 1.0 if given.temperature is None else given.temperature
    gate = GateRule(noise, temperature, given.hard, "null" if given.null else "gated")
    attended = plain_attention(
        query,
        key,
        message_query,
        message_key,
        gate_query,
        gate_key,
        tile,
        gate=None if gate_query is None else gate,
        relative_bias=relative_bias,
        constrained=given.constrained,
    )
    pairs = tile.count(query.shape[2], constrained=given.constrained) * query.shape[0]
    return attended.out, attended.rho_mean * pairs, attended.total


def _forward(given: Given) -> tuple[Tensor, Tensor, Tensor]:
    out, rho_sum, total = (x.zero_() for x in empty_results(given))
    with torch.autocast(given.query.device.type, enabled=False):
        for tile in _tiles(given):
            part_out, part_rho, part_total = _attend_tile(given, tile, tile.cut(list(given.learned)))
            out[tile.windows].index_copy_(1, tile.looking, part_out)
            rho_sum += part_rho
            if given.total_varies:
                total[tile.windows].index_copy_(1, tile.looking, part_total)
    return out, rho_sum, total


def _backward(given: Given, d_out: Tensor, d_rho_sum: Tensor, d_total: Tensor) -> Floats:
    gradients: Floats = [None if x is None else x.new_zeros(x.shape) for x in given.learned]
    with torch.autocast(given.query.device.type, enabled=False):
        for tile in _tiles(given):
            floats = tile.cut(list(given.learned))
            there = [place for place, x in enumerate(floats) if x is not None]

            def attend_again(*present: Tensor, tile: _Tile = tile, there: list[int] = there) -> tuple[Tensor, ...]:
                filled: Floats = [None] * len(given.learned)
                for place, x in zip(there, present, strict=True):
                    filled[place] = x
                out, rho_sum, total = _attend_tile(given, tile, filled)
                return (out, rho_sum, total) if given.total_varies else (out, rho_sum)

            # torch.func, because an operator's inside is out of autograd's sight.
            pull = torch.func.vjp(attend_again, *(floats[place] for place in there))[1]
            upstream = [d_out[tile.windows].index_select(1, tile.looking), d_rho_sum]
            if given.total_varies:
                upstream.append(d_total[tile.windows].index_select(1, tile.looking))
            parts: Floats = [None] * len(floats)
            for place, part in zip(there, pull(tuple(upstream)), strict=True):
                parts[place] = part
            tile.add(parts, to=gradients)
    return gradients


attend = make_attend("tiled", _forward, _backward)
