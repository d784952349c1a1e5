"""ResNet-18 compared with its published architecture and with torchvision's implementation."""

import importlib.util
import math

import pytest
import torch
from torch import nn

from biv.models import ResNet18, Standardise

# The architecture of He et al.: each convolution as (outputs, inputs, kernel, stride), in order.
STAGE = [(c, o, k, s) for first, wide in ((64, 64), (64, 128), (128, 256), (256, 512))
         for c, o, k, s in (
             (wide, first, 3, 1 if wide == 64 else 2), (wide, wide, 3, 1),
             *([(wide, first, 1, 2)] if wide != 64 else []),
             (wide, wide, 3, 1), (wide, wide, 3, 1))]  # fmt: skip
CONVOLUTIONS = [(64, 3, 7, 2), *STAGE]


def new_network(seed=0, **settings):
    return ResNet18(**settings)(torch.Generator().manual_seed(seed))


def images(rows=2, size=64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (rows, 3, size, size), generator=generator, dtype=torch.uint8)


def test_the_architecture():
    network = new_network()
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    shapes = [(*m.weight.shape[:2], m.kernel_size[0], m.stride[0]) for m in convolutions]
    assert shapes == CONVOLUTIONS
    assert all(m.bias is None for m in convolutions)
    assert [m.num_features for m in network.modules() if isinstance(m, nn.BatchNorm2d)] == [
        width for width, *_ in CONVOLUTIONS
    ]
    assert sum(p.numel() for p in network.parameters()) == 11_177_025
    assert (
        sum(p.numel() for p in new_network(outputs=1000).parameters()) == 11_689_512
    )  # the published number for ImageNet


@pytest.mark.parametrize(
    ("size", "sides"), [(200, (100, 50, 50, 25, 13, 7)), (64, (32, 16, 16, 8, 4, 2))]
)
def test_the_shapes_of_the_layers(size, sides):
    network, outputs = new_network().eval(), {}
    for name in ("conv1", "maxpool", "layer1", "layer2", "layer3", "layer4"):
        network.get_submodule(name).register_forward_hook(
            lambda _, __, out, name=name: outputs.update({name: out})
        )
    with torch.no_grad():
        assert network(images(size=size)).shape == (2, 1)
    widths = (64, 64, 64, 128, 256, 512)
    assert [tuple(out.shape[1:]) for out in outputs.values()] == [
        (width, side, side) for width, side in zip(widths, sides, strict=True)
    ]
    assert all(out.is_contiguous(memory_format=torch.channels_last) for out in outputs.values())


def test_weights_and_images_are_laid_out_channels_last():
    network = new_network()
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            assert module.weight.is_contiguous(memory_format=torch.channels_last)
    standardised = network.pixels(images())
    assert standardised.is_contiguous(memory_format=torch.channels_last)
    assert standardised.dtype == torch.float32


def test_the_network_standardises_pixels():
    network = new_network(mean=(10.0, 20.0, 30.0), std=(1.0, 2.0, 4.0))
    x = images()
    result = network.pixels(x)
    for channel, (mean, std) in enumerate(((10, 1), (20, 2), (30, 4))):
        torch.testing.assert_close(result[:, channel], (x[:, channel].float() - mean) / std)
    assert {"pixels.mean", "pixels.scale"} <= set(network.state_dict())


def test_parameters_are_drawn_only_from_the_generator():
    before = torch.get_rng_state()
    first, same, other = (new_network(seed).state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["conv1.weight"], other["conv1.weight"])
    for name, weight in first.items():
        if "conv" in name:  # He initialization, by the number of outputs (fan-out)
            expected = math.sqrt(2 / (weight.shape[0] * weight.shape[2] * weight.shape[3]))
            assert weight.std().item() == pytest.approx(expected, rel=0.03), name
        elif "running_var" in name or (".bn" in name and "weight" in name):
            assert bool((weight == 1).all())
    assert first["fc.weight"].abs().max() <= 1 / math.sqrt(512)


def test_a_state_dict_holds_the_whole_network(tmp_path):
    network = new_network(mean=(10.0, 20.0, 30.0), std=(1.0, 2.0, 4.0)).eval()
    torch.save(network.state_dict(), tmp_path / "network.pt")
    other = new_network(seed=1).eval()
    other.load_state_dict(torch.load(tmp_path / "network.pt", weights_only=True))
    with torch.no_grad():
        assert torch.equal(network(images()), other(images()))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mean": (1.0,)}, "one number per channel; got 1 and 3"),
        ({"mean": (), "std": ()}, "one number per channel; got 0 and 0"),
        ({"std": (1.0, 0.0, 1.0)}, "std must be"),
        ({"mean": (1.0, math.nan, 1.0)}, "mean must be"),
        ({"outputs": 0}, "outputs must be an integer >= 1"),
    ],
)
def test_invalid_settings_are_rejected(settings, message):
    with pytest.raises(ValueError, match=message):
        ResNet18(**settings)


@pytest.mark.parametrize("shape", [(2, 1, 8, 8), (3, 8, 8)])
def test_images_must_have_the_channels_of_the_network(shape):
    with pytest.raises(ValueError, match=r"images must have shape \(rows, 3, height, width\)"):
        new_network()(torch.zeros(shape))


def test_pixels_from_0_to_1_are_rejected_where_bytes_are_expected():
    with pytest.raises(ValueError, match="pixels from 0 to 255, .*; got floats of at most 0"):
        new_network()(images() / 256)
    new_network(mean=(0.5,) * 3, std=(0.25,) * 3).eval()(images() / 256)


@pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed"
)
@pytest.mark.parametrize("size", [64, 200])
def test_outputs_equal_those_of_torchvision(size):
    from torchvision.models import resnet18

    theirs = resnet18(num_classes=1)
    ours = new_network(mean=(0.0,) * 3, std=(1.0,) * 3)
    shapes = {
        name: v.shape for name, v in ours.state_dict().items() if not name.startswith("pixels.")
    }
    assert shapes == {name: v.shape for name, v in theirs.state_dict().items()}
    ours.load_state_dict(theirs.state_dict(), strict=False)
    x = torch.randn(2, 3, size, size)
    for network in (ours, theirs):
        network.train()
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)
    for network in (ours, theirs):
        network.eval()
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)


def test_empty_batches_and_black_images_are_accepted():
    layer = Standardise((100.0,) * 3, (50.0,) * 3)
    assert layer(torch.empty(0, 3, 4, 4)).shape == (0, 3, 4, 4)
    assert (layer(torch.zeros(1, 3, 4, 4)) == -2).all()
    with pytest.raises(ValueError, match="multiply them by 255"):
        layer(torch.full((1, 3, 4, 4), 0.5))
