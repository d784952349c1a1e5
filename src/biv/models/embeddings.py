"""Periodic embeddings of numeric features (Gorishniy, Rubachev and Babenko, 2022)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from biv._utils import validation
from biv._utils.pages import errors_point_to


@dataclass(frozen=True)
class Periodic:
    """How numeric features are embedded before the first layer; see :class:`PeriodicEmbedding`.

    Attributes:
        columns: The columns of x to embed; the others go on as they are.
        frequencies: K, how many frequencies a column gets.
        width: How many outputs a column gets.
        scale: The standard deviation that the frequencies start with, for features of unit
            variance: larger sees finer detail, and more noise.

    Example:
        >>> from biv.models import MLP
        >>> network = MLP(features=3, periodic=Periodic((0, 2)))(torch.Generator())
        >>> network(torch.zeros(5, 3)).shape
        torch.Size([5, 1])
    """

    columns: tuple[int, ...]
    frequencies: int = 16
    width: int = 8
    scale: float = 0.1

    @errors_point_to("networks")
    def __post_init__(self) -> None:
        given: object = self.columns
        if not isinstance(given, Iterable):
            found = validation.describe(given)
            raise TypeError(f"columns must be a tuple of integers; got {found}")
        columns = tuple(validation.integer("columns", column, at_least=0) for column in given)
        object.__setattr__(self, "columns", columns)
        if not self.columns or len(set(self.columns)) < len(self.columns):
            raise ValueError(f"columns must name each column to embed once; got {self.columns!r}")
        for name in ("frequencies", "width"):
            validation.integer(name, getattr(self, name), at_least=1)
        validation.real_number("scale", self.scale, validation.POSITIVE)


class PeriodicEmbedding(nn.Module):
    r"""Sines and cosines of each numeric feature, at frequencies that are learned.

    A column x_j becomes

    .. math:: h_j = \mathrm{relu}(A_j\,[\cos(2\pi c_j x_j), \sin(2\pi c_j x_j)] + b_j)

    with K frequencies c_j ~ N(0, scale²) at the start, and A_j, b_j drawn as ``nn.Linear`` draws
    its own. With it a small network can follow what changes fast with a number.

    Shapes: (..., features) to (..., others + columns × width), the others first.

    Example:
        >>> embed = PeriodicEmbedding(3, Periodic((0, 2), width=4), torch.Generator())
        >>> embed(torch.randn(5, 3)).shape
        torch.Size([5, 9])
    """

    def __init__(self, features: int, spec: Periodic, generator: torch.Generator) -> None:
        super().__init__()
        if not all(0 <= column < features for column in spec.columns):
            raise ValueError(
                f"columns must lie in [0, {features - 1}], the columns of x; got {spec.columns!r}"
            )
        self.spec = spec
        self.others = [c for c in range(features) if c not in set(spec.columns)]
        self.columns = list(spec.columns)
        self.outputs = len(self.others) + len(self.columns) * spec.width
        count, waves = len(self.columns), 2 * spec.frequencies
        bound = 1.0 / math.sqrt(waves)

        def uniform(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape).uniform_(-bound, bound, generator=generator))

        start = torch.empty(count, spec.frequencies).normal_(generator=generator)
        self.frequency = nn.Parameter(start * spec.scale)
        self.weight = uniform(count, spec.width, waves)
        self.bias = uniform(count, spec.width)

    def extra_repr(self) -> str:
        """What tells one embedding from another."""
        return f"{len(self.others) + len(self.columns)}, {self.spec}"

    def forward(self, x: Tensor) -> Tensor:
        """Embed the columns that were named."""
        angle = x[..., self.columns, None] * (2 * math.pi * self.frequency)
        waves = torch.cat([angle.cos(), angle.sin()], dim=-1)
        embedded = torch.einsum("...cw,cdw->...cd", waves, self.weight) + self.bias
        return torch.cat([x[..., self.others], embedded.relu().flatten(-2)], dim=-1)
