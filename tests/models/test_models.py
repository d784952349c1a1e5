"""The paper's network, its embedding, and stacks of networks."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from biv.models import MLP, Periodic, PeriodicEmbedding, Stacked

SHAPES = {
    "paper": MLP(19),
    "linear": MLP(3, ()),
    "odd widths, two outputs": MLP(7, (13, 6), 2),
    "embedded": MLP(7, (13, 6), 1, Periodic((0, 3, 5), frequencies=3, width=3)),
    "all embedded, two outputs": MLP(2, (5,), 2, Periodic((1, 0), frequencies=4, width=8)),
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_an_mlp_is_initialized_as_nn_linear():
    network = MLP(19)(generator(3))
    with torch.random.fork_rng():
        torch.manual_seed(3)
        widths = [19, 100, 50, 20, 10, 1]
        layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
    ours = [part for part in network if isinstance(part, nn.Linear)]
    for layer, expected in zip(ours, layers, strict=True):
        assert torch.equal(layer.weight, expected.weight)
        assert torch.equal(layer.bias, expected.bias)
    assert sum(isinstance(part, nn.ReLU) for part in network) == 4
    assert sum(p.numel() for p in network.parameters()) == 8291


@pytest.mark.parametrize("spec", SHAPES.values(), ids=SHAPES)
def test_networks_draw_only_from_their_generator(spec):
    before = torch.random.get_rng_state()
    first, same, other = (spec(generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    for a, b in zip(first.parameters(), same.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(next(first.parameters()), next(other.parameters()))


def test_the_embedding_equals_its_formula():
    spec = Periodic((0, 2), frequencies=3, width=4, scale=0.5)
    embed = PeriodicEmbedding(4, spec, generator()).double()
    x = torch.randn(6, 4, generator=generator(1), dtype=torch.float64)
    c, w, b = (p.detach().numpy() for p in (embed.frequency, embed.weight, embed.bias))
    expected = [x[:, [1, 3]].numpy()]
    for k, column in enumerate(spec.columns):
        angle = 2 * math.pi * x[:, column, None].numpy() * c[k]
        waves = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
        expected.append(np.maximum(waves @ w[k].T + b[k], 0))
    np.testing.assert_allclose(embed(x).detach().numpy(), np.concatenate(expected, axis=1))


def test_initial_frequencies_have_the_given_scale():
    embed = PeriodicEmbedding(1, Periodic((0,), frequencies=20_000, scale=0.3), generator())
    assert embed.frequency.std().item() == pytest.approx(0.3, rel=0.02)
    assert embed.weight.abs().max().item() == pytest.approx(1 / math.sqrt(40_000), rel=0.01)


@pytest.mark.parametrize("columns", [(), (0, 0), (4,), (-1,), (0.5,)])
def test_invalid_columns_to_embed_are_rejected(columns):
    with pytest.raises((TypeError, ValueError), match="columns"):
        MLP(4, periodic=Periodic(columns))(generator())


@pytest.mark.parametrize("spec", SHAPES.values(), ids=SHAPES)
def test_a_stack_computes_the_same_as_its_networks(spec):
    """Compare predictions and gradients with autograd; members outside the block do not change."""
    networks = [spec(generator(seed)).double() for seed in range(5)]
    stacked = Stacked(networks)
    x = torch.randn(3, 48, spec.features, generator=generator(9), dtype=torch.float64)
    upstream = torch.randn(3, spec.outputs, 48, generator=generator(8), dtype=torch.float64)
    block = stacked.block(slice(1, 4), 48)
    expected = torch.stack(
        [network(rows).T for network, rows in zip(networks[1:4], x, strict=True)]
    )
    result = block.forward(x.transpose(1, 2))
    torch.testing.assert_close(result, expected.detach(), rtol=1e-12, atol=1e-12)
    expected.backward(upstream)
    block.backward(upstream.clone())
    unchanged = Stacked(networks)
    for member, network in enumerate(networks):
        for view, parameter in zip(
            stacked._views(stacked.gradients), network.parameters(), strict=True
        ):
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(view[member], gradient, rtol=1e-11, atol=1e-12)
    assert torch.equal(unchanged.parameters, stacked.parameters)


@pytest.mark.parametrize("spec", SHAPES.values(), ids=SHAPES)
def test_a_member_is_returned_as_a_module(spec):
    networks = [spec(generator(seed)) for seed in range(3)]
    stacked = Stacked(networks)
    for member, network in enumerate(networks):
        copy = stacked.module(member)
        for (name, a), b in zip(
            network.state_dict().items(), copy.state_dict().values(), strict=True
        ):
            assert torch.equal(a, b), name
    with torch.no_grad():
        next(networks[0].parameters()).fill_(7.0)
    assert not (stacked.parameters == 7.0).any()  # a copy, not a view


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(3, 2), nn.Tanh()),
        nn.Sequential(nn.ReLU(), nn.Linear(3, 2)),
        nn.Sequential(nn.Linear(3, 2, bias=False)),
        nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.ReLU()),
        nn.Sequential(TWICE := nn.Linear(3, 3), TWICE),
    ],
)
def test_layers_that_cannot_be_stacked_are_named(module):
    with pytest.raises(TypeError, match="got .* at position"):
        Stacked([module, module])


def test_networks_of_a_stack_must_have_the_same_layers():
    first, second = MLP(3, (4,))(generator()), MLP(3, (5,))(generator())
    with pytest.raises(ValueError, match="must have the same layers"):
        Stacked([first, second])
    first[0].weight.requires_grad_(False)
    for network in (first, nn.Sequential()):
        with pytest.raises(
            TypeError, match="must have parameters, and all of them must be trained"
        ):
            Stacked([network, network])


def test_blocks_need_two_members_and_aligned_rows():
    stacked = Stacked([MLP(3)(generator(seed)) for seed in range(3)])
    for members, rows in ((slice(0, 1), 16), (slice(0, 2), 15)):
        with pytest.raises(ValueError, match="at least two members and a multiple of 16 rows"):
            stacked.block(members, rows)
    with pytest.raises(ValueError, match="at least two"):
        Stacked([MLP(3)(generator())])


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"features": 0}, "features"),
        ({"features": 2, "widths": (3, 0)}, "widths"),
        ({"features": 2, "outputs": 0}, "outputs"),
    ],
)
def test_sizes_must_be_positive(arguments, name):
    with pytest.raises(ValueError, match=name):
        MLP(**arguments)
