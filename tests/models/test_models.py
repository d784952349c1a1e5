"""The networks: the paper's, its embedding, and many of them stacked."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from biv.models import MLP, Periodic, PeriodicEmbedding, Stacked

SHAPES = {
    "the paper's": MLP(19),
    "linear": MLP(3, ()),
    "odd widths, two outputs": MLP(7, (13, 6), 2),
    "embedded": MLP(7, (13, 6), 1, Periodic((0, 3, 5), frequencies=3, width=3)),
    "all embedded, two outputs": MLP(2, (5,), 2, Periodic((1, 0), frequencies=4, width=8)),
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_an_mlp_begins_as_nn_linear_does():
    network = MLP(19)(generator(3))
    with torch.random.fork_rng():
        torch.manual_seed(3)
        widths = [19, 100, 50, 20, 10, 1]
        layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
    ours = [part for part in network if isinstance(part, nn.Linear)]
    for mine, theirs in zip(ours, layers, strict=True):
        assert torch.equal(mine.weight, theirs.weight)
        assert torch.equal(mine.bias, theirs.bias)
    assert sum(isinstance(part, nn.ReLU) for part in network) == 4
    assert sum(p.numel() for p in network.parameters()) == 8291


@pytest.mark.parametrize("spec", SHAPES.values(), ids=SHAPES)
def test_networks_draw_from_their_generator_alone(spec):
    before = torch.random.get_rng_state()
    one, again, other = (spec(generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    for a, b in zip(one.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(next(one.parameters()), next(other.parameters()))


def test_the_embedding_is_its_formula():
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


def test_frequencies_start_at_their_scale():
    embed = PeriodicEmbedding(1, Periodic((0,), frequencies=20_000, scale=0.3), generator())
    assert embed.frequency.std().item() == pytest.approx(0.3, rel=0.02)
    assert embed.weight.abs().max().item() == pytest.approx(1 / math.sqrt(40_000), rel=0.01)


@pytest.mark.parametrize("columns", [(), (0, 0), (4,), (-1,), (0.5,)])
def test_columns_to_embed_must_be_there(columns):
    with pytest.raises((TypeError, ValueError), match="columns"):
        MLP(4, periodic=Periodic(columns))(generator())


@pytest.mark.parametrize("spec", SHAPES.values(), ids=SHAPES)
def test_a_stack_is_its_networks(spec):
    """Predictions, and every gradient, against autograd; members outside the block stay."""
    networks = [spec(generator(seed)).double() for seed in range(5)]
    stacked = Stacked(networks)
    x = torch.randn(3, 48, spec.features, generator=generator(9), dtype=torch.float64)
    pull = torch.randn(3, spec.outputs, 48, generator=generator(8), dtype=torch.float64)
    block = stacked.block(slice(1, 4), 48)
    expected = torch.stack(
        [network(rows).T for network, rows in zip(networks[1:4], x, strict=True)]
    )
    found = block.forward(x.transpose(1, 2))
    torch.testing.assert_close(found, expected.detach(), rtol=1e-12, atol=1e-12)
    expected.backward(pull)
    block.backward(pull.clone())
    gradients = Stacked(networks)
    for member, network in enumerate(networks):
        for view, parameter in zip(
            stacked._views(stacked.gradients), network.parameters(), strict=True
        ):
            own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(view[member], own, rtol=1e-11, atol=1e-12)
    assert torch.equal(gradients.parameters, stacked.parameters)


@pytest.mark.parametrize("spec", SHAPES.values(), ids=SHAPES)
def test_a_member_comes_back_as_a_module(spec):
    networks = [spec(generator(seed)) for seed in range(3)]
    stacked = Stacked(networks)
    for member, network in enumerate(networks):
        twin = stacked.module(member)
        for (name, a), b in zip(
            network.state_dict().items(), twin.state_dict().values(), strict=True
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
def test_what_cannot_be_stacked_is_named(module):
    with pytest.raises(TypeError, match="got .* at position"):
        Stacked([module, module])


def test_networks_of_a_stack_are_alike():
    first, second = MLP(3, (4,))(generator()), MLP(3, (5,))(generator())
    with pytest.raises(ValueError, match="must be alike"):
        Stacked([first, second])
    first[0].weight.requires_grad_(False)
    for network in (first, nn.Sequential()):
        with pytest.raises(TypeError, match="must have parameters, all of them to be trained"):
            Stacked([network, network])


def test_blocks_have_two_members_and_whole_lines():
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
