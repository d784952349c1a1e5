"""ResNet-18, the paper's network for images, for regression."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from biv._utils import validation
from biv.models.mlp import linear

STEM = 64  # channels after the first convolution
STAGES = (
    (64, 1),
    (128, 2),
    (256, 2),
    (512, 2),
)  # channels and first stride of each stage of two blocks


@dataclass(frozen=True)
class ResNet18:
    """Recipe for ResNet-18 networks for regression, not pretrained.

    Calling it with a ``torch.Generator`` returns a network. It maps images of shape
    (N, channels, height, width) to (N, outputs). Pixels are in [0, 255], as they are stored. The
    network standardises them itself, so that its state dict has all that a prediction needs. Names,
    shapes and initialization of the layers are those of torchvision. The state dict has the entries
    of torchvision's, and also the statistics of the pixels.

    Parameters
    ----------
    mean : tuple of float, default=(127.5, 127.5, 127.5)
        Mean of each channel, on the scale from 0 to 255. Pass that of your training images, by
        :meth:`biv.images.Pixels.fit`.
    std : tuple of float, default=(127.5, 127.5, 127.5)
        Standard deviation of each channel, > 0. Pass it together with `mean`.
    outputs : int, default=1
        Number of columns of y. Change it for several labels per image.

    Raises
    ------
    ValueError
        `mean` and `std` differ in length or are empty, or a number is invalid.

    References
    ----------
    He, Zhang, Ren and Sun, Deep residual learning for image recognition, 2016.

    Examples
    --------
    >>> import torch
    >>> from biv.models import ResNet18
    >>> network = ResNet18()(torch.Generator().manual_seed(0))
    >>> network(torch.zeros(2, 3, 64, 64, dtype=torch.uint8)).shape
    torch.Size([2, 1])
    >>> sum(p.numel() for p in network.parameters())
    11177025
    """

    mean: tuple[float, ...] = (127.5, 127.5, 127.5)
    std: tuple[float, ...] = (127.5, 127.5, 127.5)
    outputs: int = 1

    def __post_init__(self) -> None:
        validation.integer("outputs", self.outputs, at_least=1)
        if len(self.mean) != len(self.std) or not self.mean:
            raise ValueError(
                "mean and std must have one number per channel; got "
                f"{len(self.mean)} and {len(self.std)}"
            )
        for value in self.mean:
            validation.real_number("mean", value, validation.FINITE)
        for value in self.std:
            validation.real_number("std", value, validation.POSITIVE)

    def __call__(self, generator: torch.Generator) -> nn.Module:
        """Return a network whose parameters are drawn from `generator`, laid out channels last."""
        with torch.device("meta"):  # so that nothing is drawn from the global generator
            network = _ResNet(len(self.mean), self.outputs)
        network.to_empty(device="cpu")
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(
                    module.weight, mode="fan_out", nonlinearity="relu", generator=generator
                )
            elif isinstance(module, nn.BatchNorm2d):
                module.reset_parameters()
        network.fc = linear(network.fc.in_features, self.outputs, generator)
        network.pixels = Standardise(self.mean, self.std)
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network


class Standardise(nn.Module):
    """Layer that turns pixels of any dtype into floats of mean 0 and variance 1 per channel.

    Use it as the first layer of a network that gets images as they are stored, in bytes.

    Parameters
    ----------
    mean : tuple of float
        Mean of each channel; see :meth:`biv.images.Pixels.fit`.
    std : tuple of float
        Standard deviation of each channel.

    Examples
    --------
    >>> import torch
    >>> from biv.models import Standardise
    >>> layer = Standardise((100.0,) * 3, (50.0,) * 3)
    >>> layer(torch.full((1, 3, 2, 2), 200, dtype=torch.uint8)).unique()
    tensor([2.])
    """

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("scale", 1.0 / torch.tensor(std).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Return standardised images, laid out channels last.

        Parameters
        ----------
        images : Tensor of shape (N, C, H, W)
            Images on the scale of `mean`.

        Returns
        -------
        Tensor of shape (N, C, H, W)
            Standardised images.

        Raises
        ------
        ValueError
            The images have another number of channels, or are floats in [0, 1] although the mean is
            on the scale from 0 to 255.
        """
        mean, scale = self.get_buffer("mean"), self.get_buffer("scale")
        if images.ndim != 4 or images.shape[1] != mean.shape[1]:
            raise ValueError(
                f"images must have shape (rows, {mean.shape[1]}, height, width); "
                f"got {tuple(images.shape)}"
            )
        floats = images.is_floating_point() and images.numel() > 0
        if floats and mean.amax() > 1 >= images.amax() > 0:  # black images are 0 on either scale
            raise ValueError(
                f"images must have pixels from 0 to 255, as their mean is {mean.amax():g}; got "
                f"floats of at most {images.amax():g}: multiply them by 255, or pass the mean and "
                "std of these images"
            )
        values = images.to(mean.dtype, memory_format=torch.channels_last)
        return (values - mean) * scale


class _Block(nn.Module):
    """Two convolutions with a residual connection."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = (
            None
            if stride == 1 and inputs == outputs
            else nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        residual = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        return self.relu(x + residual)  # type: ignore[no-any-return]


class _ResNet(nn.Module):
    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.pixels: nn.Module = nn.Identity()
        self.conv1 = nn.Conv2d(channels, STEM, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(STEM)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        width = STEM
        for number, (wide, stride) in enumerate(STAGES, start=1):
            stage = nn.Sequential(_Block(width, wide, stride), _Block(wide, wide, 1))
            self.add_module(f"layer{number}", stage)
            width = wide
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(width, outputs)

    def forward(self, images: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(self.pixels(images)))))
        for number in range(1, len(STAGES) + 1):
            x = self.get_submodule(f"layer{number}")(x)
        return self.fc(self.avgpool(x).flatten(1))  # type: ignore[no-any-return]
