"""The paper's multi-layer perceptron, one network at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn

from biv._utils import validation
from biv._utils.pages import errors_point_to
from biv.models.embeddings import Periodic, PeriodicEmbedding

PAPER_WIDTHS = (100, 50, 20, 10)


@dataclass(frozen=True)
class MLP:
    """Recipe for multi-layer perceptrons: hidden layers with ReLU, and a linear output.

    Calling it with a ``torch.Generator`` returns a network, an ``nn.Sequential`` of ordinary layers
    that are initialized as in ``nn.Linear``. The network maps (N, features) to (N, outputs).

    Parameters
    ----------
    features : int
        Number of columns of x.
    widths : tuple of int, default=(100, 50, 20, 10)
        Widths of the hidden layers. The default is the paper's network. Change it for larger data
        or to save time.
    outputs : int, default=1
        Number of columns of y. Change it for several labels per row.
    periodic : Periodic or None, default=None
        Embedding of numeric columns before the first layer. Pass one if the label changes fast with
        some features.

    Raises
    ------
    TypeError
        `periodic` is neither a :class:`Periodic` nor None.
    ValueError
        A number of columns or a width is less than 1.

    Examples
    --------
    >>> import torch
    >>> from biv.models import MLP
    >>> network = MLP(features=19)(torch.Generator().manual_seed(0))
    >>> network(torch.randn(5, 19)).shape
    torch.Size([5, 1])
    >>> sum(p.numel() for p in network.parameters())
    8291
    """

    features: int
    widths: tuple[int, ...] = PAPER_WIDTHS
    outputs: int = 1
    periodic: Periodic | None = None

    @errors_point_to("networks")
    def __post_init__(self) -> None:
        validation.integer("features", self.features, at_least=1)
        validation.integer("outputs", self.outputs, at_least=1)
        periodic: object = self.periodic
        if not (periodic is None or isinstance(periodic, Periodic)):
            raise TypeError(
                f"periodic must be a Periodic or None; got {validation.describe(periodic)}"
            )
        for width in self.widths:
            validation.integer("widths", width, at_least=1)

    @property
    def inputs(self) -> int:
        """Return the number of inputs of the first linear layer."""
        if self.periodic is None:
            return self.features
        columns = len(self.periodic.columns)
        return self.features - columns + columns * self.periodic.width

    @property
    def size(self) -> int:
        """Return the number of parameters."""
        ends = [self.inputs, *self.widths, self.outputs]
        count = sum((a + 1) * b for a, b in pairwise(ends))
        if self.periodic is not None:
            waves, width = self.periodic.frequencies, self.periodic.width
            count += len(self.periodic.columns) * (waves + 2 * waves * width + width)
        return count

    def __call__(self, generator: torch.Generator) -> nn.Sequential:
        """Return a network whose parameters are drawn from `generator`."""
        layers: list[nn.Module] = []
        if self.periodic is not None:
            layers.append(PeriodicEmbedding(self.features, self.periodic, generator))
        width = self.inputs
        for hidden in self.widths:
            layers += [linear(width, hidden, generator), nn.ReLU()]
            width = hidden
        return nn.Sequential(*layers, linear(width, self.outputs, generator))


def linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """Return an ``nn.Linear`` with its usual initialization, drawn from an explicit generator."""
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")  # draws nothing
    bound = 1.0 / math.sqrt(inputs)
    nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return layer
