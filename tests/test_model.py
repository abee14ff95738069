from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import literal
from casper.config import ModelConfig
from casper.model import CasperNetwork, PromptDecoder
from casper.network.embedding import CellProjection, Cells, guess_from_time
from casper.network.encoder import CausalAttention, EncoderLayer, TemporalTransformer
from casper.network.neighbourhood import Neighbourhood
from casper.network.noise import Noise

SENSORS, WINDOW, CLOCK = 4, 5, 4
INDEX = torch.tensor([[1, 2], [0, 1], [3, 0], [3, 3]])
PRESENT = torch.tensor([[True, True], [True, False], [True, True], [False, False]])
SMALL = ModelConfig(window=WINDOW, width=8, layers=2, heads=2, feed_forward=12, prompts=6)


def network(config: ModelConfig = SMALL, *, index: Tensor = INDEX, present: Tensor = PRESENT) -> CasperNetwork:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        built = CasperNetwork(config, neighbour_index=index, neighbour_present=present, clock=CLOCK)
        if isinstance(built.decoder, PromptDecoder) and config.decoder != "prompts":
            built.decoder.bank.normal_()
        return built


def window(batch: int = 2, *, steps: int = WINDOW, seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    visible = torch.rand(batch, SENSORS, steps, generator=generator) < 0.7
    values = torch.randn(batch, SENSORS, steps, generator=generator) * visible
    return values, visible, torch.randn(batch, steps, CLOCK, generator=generator)


def noise(batch: int = 2, *, seed: int = 3) -> Noise:
    return Noise(torch.Generator().manual_seed(seed), batch=batch, share=slice(None))


def double(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def randomised(module: nn.Module) -> Any:
    """In double precision, with no parameter left at an initial value that would hide a mistake."""
    generator = torch.Generator().manual_seed(7)
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.5)
    return module


# ---------------------------------------------------------------------- equations


def test_the_cell_projection_is_mlp_of_x_times_m_plus_m_times_one_minus_m() -> None:
    project = randomised(CellProjection(SMALL))
    values, visible = double(1, 2, 3), torch.tensor([[[True, False, True], [False, False, True]]])
    ours = project(Cells(values, visible))
    for i in range(2):
        for t in range(3):
            mlp = literal.linear(
                project.value[2], literal.relu(literal.linear(project.value[0], values[0, i, t][None]))
            )
            m = float(visible[0, i, t])
            torch.testing.assert_close(ours[0, i, t], mlp * m + project.missing * (1 - m))


@pytest.mark.parametrize("gate", ["gumbel", "none"])
def test_the_message_of_one_head_is_exactly_the_mlp_of_query_and_key(gate: str) -> None:
    config = SMALL.replace(heads=1, width=4, gate=gate)
    layer: CausalAttention = randomised(CausalAttention(config, sensors=SENSORS))
    h = double(1, SENSORS, 3, 4)
    ours, rho_mean = layer(h, Neighbourhood(INDEX, PRESENT), Noise.silent(), temperature=1.0)

    assert layer.message_query is not None
    first_weight = torch.cat((layer.message_query.weight, layer.message_key.weight), dim=1)  # acts on [query; key]
    rhos: list[Tensor] = []
    for i in range(SENSORS):
        for t in range(3):
            context = literal.context_of(i, t, INDEX, PRESENT, 3, constrained=False)
            if not context:
                # The sum has no terms, and without a message there is no bias of a message either.
                assert not ours[0, i, t].any()
                continue
            q = h[0, i, t]
            scores = torch.stack(
                [literal.linear(layer.query, q) @ literal.linear(layer.key, h[0, j, r]) for _, j, r in context]
            )
            alpha = (scores / math.sqrt(4)).exp() / (scores / math.sqrt(4)).exp().sum()
            beta = torch.ones_like(alpha)
            if gate == "gumbel":
                c_weight = torch.cat((layer.gate_query_logit.weight, layer.gate_key_logit.weight), dim=1)[0]
                for number, (_, j, r) in enumerate(context):
                    both = torch.cat((literal.linear(layer.gate_query, q), literal.linear(layer.gate_key, h[0, j, r])))
                    beta[number] = literal.sigmoid(c_weight @ both + layer.gate_query_logit.bias[0])
                rhos.append(beta)
            z = (beta * alpha).sum()
            expected = torch.zeros(4, dtype=torch.float64)
            for number, (_, j, r) in enumerate(context):
                hidden = literal.relu(first_weight @ torch.cat((q, h[0, j, r])) + layer.message_key.bias)
                message = layer.message_out.weight @ hidden + layer.message_out.bias
                expected = expected + beta[number] * alpha[number] / z * message
            torch.testing.assert_close(ours[0, i, t], expected)
    if gate == "gumbel":
        torch.testing.assert_close(rho_mean, torch.cat(rhos).mean())


def test_every_head_divides_its_scores_by_the_root_of_its_own_width() -> None:
    layer: CausalAttention = randomised(CausalAttention(SMALL.replace(gate="none"), sensors=SENSORS))
    h = double(1, SENSORS, 3, 8)
    seen = layer.look(h, Neighbourhood(INDEX, PRESENT), Noise.silent(), temperature=1.0)
    context = literal.context_of(0, 1, INDEX, PRESENT, 3, constrained=False)
    for head, own in enumerate((slice(0, 4), slice(4, 8))):
        query = literal.linear(layer.query, h[0, 0, 1])[own]
        keys = [literal.linear(layer.key, h[0, j, r])[own] for _, j, r in context]
        scores = torch.stack([(query * key).sum() / math.sqrt(4) for key in keys])
        torch.testing.assert_close(seen.attention[0, 0, head, 1].flatten(), scores.exp() / scores.exp().sum())


def test_own_queries_and_keys_add_to_the_scores_whatever_the_values_are() -> None:
    config = SMALL.replace(own_keys=True, gate="none")
    layer: CausalAttention = randomised(CausalAttention(config, sensors=SENSORS))
    assert layer.own is not None
    h, neighbourhood = double(1, SENSORS, 3, 8), Neighbourhood(INDEX, PRESENT)
    with torch.no_grad():
        for map_ in (layer.query, layer.key):
            map_.weight.zero_()
        layer.query.bias.zero_()
    seen = layer.look(h, neighbourhood, Noise.silent())
    own_query, own_key = layer.own.unflatten(-1, (2, 4))  # two heads of four channels
    scores = torch.einsum("hc,khc->hk", own_query[0], own_key[INDEX[0]]) / math.sqrt(4)
    wanted = torch.softmax(scores.repeat_interleave(3, dim=1), dim=1).unflatten(1, (2, 3))
    torch.testing.assert_close(seen.attention[0, 0, :, 1], wanted)
    some = torch.tensor([0, 2, 1])
    part = layer(h[:, some], neighbourhood.within(some), Noise.silent(), temperature=1.0, sensors=some)[0]
    whole = layer(h, neighbourhood, Noise.silent(), temperature=1.0)[0]
    torch.testing.assert_close(part[:, 0], whole[:, 0], msg="its neighbours 1 and 2 are in the part")


def test_training_gates_are_the_gumbel_gates_of_the_noise_and_temperature() -> None:
    layer: CausalAttention = randomised(CausalAttention(SMALL, sensors=SENSORS))
    h = double(2, SENSORS, 3, 8)
    neighbourhood = Neighbourhood(INDEX, PRESENT)
    seen = layer.look(h, neighbourhood, noise(), temperature=0.3)
    calm = layer.look(h, neighbourhood, Noise.silent(), temperature=0.3)
    drawn = noise().of_pairs().draw(INDEX, batch=2, steps=3, dtype=torch.float64)
    logistic = drawn.reshape(seen.rho.shape)
    present = PRESENT[None, :, None, :, None]
    expected = torch.sigmoid((torch.logit(seen.rho) + logistic) / 0.3)
    torch.testing.assert_close(seen.beta, torch.where(present, expected, 0.0))
    torch.testing.assert_close(calm.beta, calm.rho)


@pytest.mark.parametrize(
    ("settings", "training", "levels"),
    [({"gate_straight_through": True}, True, 2), ({"gate_hard_inference": True}, False, 2), ({}, True, 99)],
    ids=["straight-through training", "hard inference", "soft"],
)
def test_hard_gates_are_used_where_the_configuration_asks_for_them(
    settings: dict[str, bool], training: bool, levels: int
) -> None:
    layer: CausalAttention = randomised(CausalAttention(SMALL.replace(**settings), sensors=SENSORS))
    h = double(2, SENSORS, 3, 8)
    seen = layer.look(h, Neighbourhood(INDEX, PRESENT), noise() if training else Noise.silent(), temperature=1.0)
    assert (len(seen.beta.unique()) == 2) == (levels == 2)
    if not training:
        torch.testing.assert_close(seen.beta, (seen.rho > 0.5).double())


def test_the_null_slot_lets_closed_gates_take_weight_away() -> None:
    h = double(2, SENSORS, 3, 8)
    totals: list[Tensor] = []
    for null_slot in (True, False):
        layer: CausalAttention = randomised(CausalAttention(SMALL.replace(gate_null_slot=null_slot), sensors=SENSORS))
        seen = layer.look(h, Neighbourhood(INDEX, PRESENT), Noise.silent(), temperature=1.0)
        totals.append(seen.weight.sum(dim=(-1, -2))[:, :3])
    assert (totals[0] < 1).all()
    torch.testing.assert_close(totals[1], torch.ones_like(totals[1]))


def test_the_temporal_layer_is_an_ordinary_transformer_encoder_layer() -> None:
    config = SMALL.replace(heads=2)
    ours: TemporalTransformer = randomised(TemporalTransformer(config))
    reference = nn.TransformerEncoderLayer(8, 2, dim_feedforward=12, dropout=0.0, batch_first=True).double()
    with torch.no_grad():
        reference.self_attn.in_proj_weight.copy_(ours.query_key_value.weight)
        reference.self_attn.in_proj_bias.copy_(ours.query_key_value.bias)
        for mine, other in (
            (ours.out, reference.self_attn.out_proj),
            (ours.norm_attention, reference.norm1),
            (ours.norm_out, reference.norm2),
            (ours.feed_forward[0], reference.linear1),
            (ours.feed_forward[2], reference.linear2),
        ):
            other.load_state_dict(mine.state_dict())
    h = double(2, 3, 4, 8)
    alone = Neighbourhood.alone(h.shape[1], h.device)
    torch.testing.assert_close(ours(h, alone, Noise.silent()), reference(h.flatten(0, 1)).reshape(h.shape))


@pytest.mark.parametrize("skip", [True, False])
def test_an_encoder_layer_injects_the_input_again_then_adds_and_normalises(skip: bool) -> None:
    layer: EncoderLayer = randomised(EncoderLayer(SMALL.replace(skip=skip), sensors=SENSORS))
    values, visible, _ = window(steps=3)
    h, neighbourhood = double(2, SENSORS, 3, 8), Neighbourhood(INDEX, PRESENT)
    alone = Neighbourhood.alone(SENSORS, h.device)
    cells = Cells(values.double(), visible)
    ours, rho_mean = layer(h, cells, neighbourhood, alone, Noise.silent(), temperature=1.0)
    h_skip = h if layer.skip is None else h + layer.skip(cells)
    assert (layer.skip is not None) == skip
    h_in = layer.transformer(h_skip, alone, Noise.silent())
    h_out, expected_rho = layer.attention(h_in, neighbourhood, Noise.silent(), temperature=1.0)
    torch.testing.assert_close(ours[1, 2, 1], literal.layer_norm(layer.norm, (h_in + h_out)[1, 2, 1]))
    torch.testing.assert_close(rho_mean, expected_rho)


@pytest.mark.parametrize("heads", [1, 2])
def test_the_prompt_decoder_equals_a_literal_one(heads: int) -> None:
    decoder: PromptDecoder = randomised(PromptDecoder(SMALL.replace(prompt_heads=heads)))
    h = double(1, 2, 3, 8)

    def project(layers: nn.Module, x: Tensor) -> Tensor:
        assert isinstance(layers, nn.Sequential)
        first, second = layers
        assert isinstance(first, nn.Linear)
        assert isinstance(second, nn.LayerNorm)
        return literal.layer_norm(second, literal.linear(first, x))

    ours = decoder(h, Noise.silent())
    keys = [project(decoder.key, prompt) for prompt in decoder.prompts]
    values = [project(decoder.value, prompt) for prompt in decoder.prompts]
    for i in range(2):
        for t in range(3):
            context = literal.dot_product_attention(project(decoder.query, h[0, i, t]), keys, values, heads=heads)
            joined = literal.layer_norm(decoder.norm, h[0, i, t] + context)
            first, _, last = decoder.out
            assert isinstance(first, nn.Linear)
            assert isinstance(last, nn.Linear)
            expected = literal.linear(last, literal.relu(literal.linear(first, joined)))
            torch.testing.assert_close(ours[0, i, t], expected[0])


def test_sampled_prompts_are_drawn_anew_in_training_and_fixed_otherwise() -> None:
    sampled = network(SMALL.replace(decoder="sample-avg"))
    assert isinstance(sampled.decoder, PromptDecoder)
    h = torch.randn(1, SENSORS, WINDOW, 8, generator=torch.Generator().manual_seed(0))
    one, same, other = (sampled.decoder(h, noise(seed=seed)) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(sampled.decoder(h, Noise.silent()), sampled.decoder(h, Noise.silent()))


# ---------------------------------------------------------------------- the whole network


def test_permuting_the_sensors_permutes_the_estimate() -> None:
    order = torch.tensor([2, 0, 3, 1])
    place = torch.argsort(order)
    plain = network()
    permuted = network(index=place[INDEX[order]], present=PRESENT[order])
    with torch.no_grad():
        permuted.positions.sensor.copy_(plain.positions.sensor[order])
    values, visible, clock = window()
    expected = plain(values, visible, clock).estimate[:, order]
    ours = permuted(values[:, order], visible[:, order], clock).estimate
    torch.testing.assert_close(ours, expected)
    assert not torch.allclose(ours, plain(values, visible, clock).estimate)


@pytest.mark.parametrize("junk", [1e9, math.nan, math.inf])
def test_values_that_are_not_visible_never_matter(junk: float) -> None:
    model = network()
    values, visible, clock = window()
    estimate = model(values, visible, clock).estimate
    dirty = torch.where(visible, values, junk)
    assert torch.equal(model(dirty, visible, clock).estimate, estimate)
    assert torch.equal(model.embed(dirty, visible, clock), model.embed(values, visible, clock))
    model(dirty, visible, clock).estimate.sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_visible_values_do_matter() -> None:
    model = network()
    values, visible, clock = window()
    assert not torch.allclose(model(values + visible, visible, clock).estimate, model(values, visible, clock).estimate)


ABLATIONS: dict[str, dict[str, Any]] = {
    "paper": {},
    "w/o PBD": {"decoder": "mlp"},
    "K-means, maximum": {"decoder": "kmeans-max"},
    "K-means, average": {"decoder": "kmeans-avg"},
    "samples, maximum": {"decoder": "sample-max"},
    "samples, average": {"decoder": "sample-avg"},
    "w/o SCA": {"gate": "none"},
    "w/o A": {"graph": False},
    "constrained": {"constrained": True},
    "no skip": {"skip": False},
    "message from the key": {"message": "key"},
    "own neighbour": {"include_self": True},
    "relative time": {"relative_time": True},
    "dropout": {"dropout": 0.2},
    "straight-through": {"gate_straight_through": True},
    "null slot": {"gate_null_slot": True},
    "hard, null slot": {"gate_straight_through": True, "gate_null_slot": True},
    "one layer, one head": {"layers": 1, "heads": 1},
}


def table_of(config: ModelConfig) -> tuple[Tensor, Tensor]:
    own = torch.arange(SENSORS)[:, None]
    if not config.graph:
        return own, torch.ones(SENSORS, 1, dtype=torch.bool)
    if config.include_self:
        return torch.cat((own, INDEX), dim=1), torch.cat((torch.ones_like(own).bool(), PRESENT), dim=1)
    return INDEX, PRESENT


@pytest.mark.parametrize("settings", ABLATIONS.values(), ids=ABLATIONS.keys())
def test_every_configuration_runs_and_every_parameter_gets_a_gradient(settings: dict[str, Any]) -> None:
    config = SMALL.replace(**settings)
    index, present = table_of(config)
    model = network(config, index=index, present=present)
    values, visible, clock = window()
    prediction = model(values, visible, clock, noise(), temperature=0.5)
    assert prediction.estimate.shape == values.shape
    assert prediction.rho_mean.shape == (config.layers,)
    assert bool((prediction.rho_mean == 0).all()) == (config.gate == "none")
    (prediction.estimate.pow(2).sum() + prediction.rho_mean.sum()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad != 0).any(), name


@pytest.mark.parametrize("settings", ABLATIONS.values(), ids=ABLATIONS.keys())
def test_without_noise_the_network_is_deterministic(settings: dict[str, Any]) -> None:
    config = SMALL.replace(**settings)
    index, present = table_of(config)
    model = network(config, index=index, present=present)
    arguments = window()
    assert torch.equal(model(*arguments).estimate, model(*arguments).estimate)


def test_the_same_noise_gives_the_same_estimate_and_other_noise_another() -> None:
    model = network(SMALL.replace(dropout=0.3))
    one, same, other = (model(*window(), noise(seed=seed)).estimate for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("settings", [{}, {"relative_time": True}, {"constrained": True}])
def test_shorter_windows_than_the_configured_one_work(settings: dict[str, Any]) -> None:
    model = network(SMALL.replace(**settings))
    estimate = model(*window(steps=3)).estimate
    assert estimate.shape == (2, SENSORS, 3)
    assert estimate.isfinite().all()


def test_the_relative_bias_depends_on_the_lag_alone_whatever_the_length() -> None:
    layer: CausalAttention = randomised(
        CausalAttention(SMALL.replace(relative_time=True, heads=1, gate="none"), sensors=SENSORS)
    )
    assert layer.relative is not None
    with torch.no_grad():
        layer.query.weight.zero_()
        layer.query.bias.zero_()
        layer.relative.copy_(torch.arange(2 * WINDOW - 1.0)[None] - (WINDOW - 1))  # the bias is the lag t - t'
    for steps in (3, WINDOW):
        h = double(1, SENSORS, steps, 8)
        seen = layer.look(h, Neighbourhood(INDEX[:, :1], PRESENT[:, :1]), Noise.silent(), temperature=1.0)
        lag = torch.arange(steps)[:, None] - torch.arange(steps)
        torch.testing.assert_close(seen.attention[0, 0, 0, :, 0], torch.softmax(lag.double(), dim=-1))


@pytest.mark.parametrize("decoder", ["prompts", "mlp"])
def test_with_a_guess_an_untrained_network_interpolates_in_time(decoder: str) -> None:
    model = network(SMALL.replace(guess=True, decoder=decoder))
    values, visible, clock = window()
    torch.testing.assert_close(model(values, visible, clock).estimate, guess_from_time(values, visible)[..., 0])


def test_a_guess_reaches_the_embedding_of_holes_alone() -> None:
    project: CellProjection = randomised(CellProjection(SMALL.replace(guess=True)))
    values, visible = double(1, 2, 3), torch.tensor([[[True, False, True], [False, False, True]]])
    one, other = double(1, 2, 3, 3, seed=1), double(1, 2, 3, 3, seed=2)
    changed = (project(Cells(values, visible, one)) != project(Cells(values, visible, other))).all(-1)
    assert torch.equal(changed, ~visible)


def test_values_relative_to_the_windows_level_come_back_in_the_tables_units() -> None:
    model = randomised(network(SMALL.replace(window_level=True)))
    assert isinstance(model.level, nn.Linear)
    with torch.no_grad():
        model.level.weight.zero_()  # it is told the level, and might use it
    values, visible, clock = window()
    values, clock = values.double() * 1e6, clock.double()  # far from calm
    estimate = model(values, visible, clock).estimate
    moved = model((values * 3 + 5e6) * visible, visible, clock).estimate
    torch.testing.assert_close(moved, estimate * 3 + 5e6)
    assert not torch.allclose(network(SMALL)(values.float(), visible, clock.float()).estimate.double(), estimate)


def test_sharp_gates_are_the_same_gates_with_larger_logits() -> None:
    plain, sharp = network(), network(SMALL.replace(gate_sharpness=16.0))
    missing, unexpected = sharp.load_state_dict(plain.state_dict(), strict=False)
    assert (set(missing), unexpected) == ({"layers.0.attention.sharpness", "layers.1.attention.sharpness"}, [])
    inputs = window()
    assert torch.equal(sharp(*inputs).estimate, plain(*inputs).estimate), "they begin alike"
    sharp.progressed(0.35)
    ours, theirs = (torch.logit(next(one.inspect(*inputs)).rho.double()) for one in (sharp, plain))
    torch.testing.assert_close(ours, 4 * theirs, rtol=1e-3, atol=1e-3)
    sharp.progressed(0.7)
    assert all(layer.attention.sharpness == 16.0 for layer in sharp.layers)
    sharp.progressed(1.0)
    assert all(layer.attention.sharpness == 16.0 for layer in sharp.layers)


@pytest.mark.parametrize("constrained", [False, True])
def test_decided_gates_are_counted_in_every_layer(constrained: bool) -> None:
    model = randomised(network(SMALL.replace(constrained=constrained, gate_bias=0.0)))
    values, visible, clock = window()
    seen = list(model.inspect(values.double(), visible, clock.double()))
    past = torch.ones(WINDOW, WINDOW).tril().bool() if constrained else torch.ones(WINDOW, WINDOW).bool()
    exists = PRESENT[None, :, None, :, None] & past[:, None, :]
    wanted = [((one.rho < 0.1) | (one.rho > 0.9))[exists.expand(one.rho.shape)].double().mean() for one in seen]
    shares = model.decided(values.double(), visible, clock.double())
    torch.testing.assert_close(shares, torch.stack(wanted))
    assert 0 < shares.max() < 1
    assert network(SMALL.replace(gate="none")).decided(values, visible, clock).shape == (0,)


def test_inspect_shows_every_layer_and_agrees_with_the_penalty() -> None:
    model = network()
    seen = list(model.inspect(*window()))
    assert len(seen) == SMALL.layers
    rho_mean = model(*window()).rho_mean
    present = PRESENT[None, :, None, :, None]
    for number, layer in enumerate(seen):
        pairs = present.expand_as(layer.rho)
        torch.testing.assert_close(layer.rho[pairs].mean(), rho_mean[number])


@pytest.mark.parametrize("settings", [{}, {"message": "key"}, {"gate_null_slot": True}, {"decoder": "mlp"}])
def test_influence_is_what_the_estimate_loses_as_a_gate_is_shut_a_little(settings: dict[str, Any]) -> None:
    model = randomised(network(SMALL.replace(layers=2, **settings)))
    values, visible, clock = window()
    cells = (values.double(), visible, clock.double())
    everyone = torch.arange(SENSORS)
    with torch.no_grad():
        [(change, seen)] = model.influence(*cells, sensors=[everyone])
        *_, (attention, h, _) = model._attentions(*cells)
        projected = attention._project(h)
        layer = model.layers[-1]
        target, step, slot, key = 0, 1, 1, 3

        def estimate(shift: float) -> Tensor:
            """Of the query, with the gate of one of its pairs scaled by 1 + shift: its beta, written out."""
            rho = seen.beta[0, target, step].clone()  # (K, T)
            rho[slot, key] *= 1 + shift
            alpha = seen.attention[0, target, :, step]  # (H, K, T)
            weight = alpha * rho
            if not model.config.gate_null_slot:
                weight = weight / weight.sum(dim=(-1, -2), keepdim=True)
            theirs = projected.message_key[0, INDEX[target]]  # (K, T, H, C)
            hidden = theirs
            if projected.message_query is not None:
                hidden = torch.relu(projected.message_query[0, target, step] + theirs)
            summed = torch.einsum("hkt,kthc->hc", weight, hidden).flatten()
            total = weight.sum(dim=(-1, -2)).mean()
            message = attention.message_out.weight @ summed + attention.message_out.bias * total
            out = layer.norm(h[0, target, step] + message)
            return model._decode(out[None, None, None], Noise.silent())[0, 0, 0]

        size = 1e-5
        expected = (estimate(size) - estimate(-size)) / (2 * size)
    torch.testing.assert_close(change[0, target, step, slot, key], expected, rtol=1e-4, atol=1e-9)
    assert change.abs().max() > 0


def test_gates_start_open_at_the_configured_bias() -> None:
    wide, narrow = (network(SMALL.replace(gate_bias=bias))(*window()).rho_mean for bias in (4.0, -4.0))
    assert (wide > 0.9).all()
    assert (narrow < 0.1).all()


def test_one_windows_estimate_does_not_depend_on_the_others_in_its_batch() -> None:
    model = network()
    values, visible, clock = window(batch=3)
    together = model(values, visible, clock).estimate
    alone = model(values[1:2], visible[1:2], clock[1:2]).estimate
    torch.testing.assert_close(alone[0], together[1])
