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
    """Settings of a :class:`PeriodicEmbedding` of numeric features.

    Parameters
    ----------
    columns : tuple of int
        Indices of the columns of x to embed. The other columns are passed on unchanged.
    frequencies : int, default=16
        K, the number of frequencies per column. Increase it for features with a more complicated
        effect on the label.
    width : int, default=8
        Number of outputs per column. Decrease it if x has very many numeric columns.
    scale : float, default=0.1
        Standard deviation of the initial frequencies, for features of unit variance. Increase it if
        the label changes fast with a feature; larger values also fit more noise.

    Raises
    ------
    TypeError
        `columns` is not a sequence of integers.
    ValueError
        `columns` is empty or names a column twice, or another number is not positive.

    Examples
    --------
    >>> import torch
    >>> from biv.models import MLP, Periodic
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
        value: object = self.columns
        if not isinstance(value, Iterable):
            raise TypeError(
                f"columns must be a tuple of integers; got {validation.describe(value)}"
            )
        columns = tuple(validation.integer("columns", column, at_least=0) for column in value)
        object.__setattr__(self, "columns", columns)
        if not self.columns or len(set(self.columns)) < len(self.columns):
            raise ValueError(f"columns must name each column to embed once; got {self.columns!r}")
        for name in ("frequencies", "width"):
            validation.integer(name, getattr(self, name), at_least=1)
        validation.real_number("scale", self.scale, validation.POSITIVE)


class PeriodicEmbedding(nn.Module):
    r"""Layer of sines and cosines of each numeric feature, at learned frequencies.

    A column x_j becomes

    .. math:: h_j = \mathrm{relu}(A_j\,[\cos(2\pi c_j x_j), \sin(2\pi c_j x_j)] + b_j)

    with K frequencies c_j, drawn from N(0, scale²) at the start, and A_j and b_j initialized as in
    ``nn.Linear``. It lets a small network follow labels that change fast with a feature.

    The input has shape (..., features). The output has shape (..., others + columns × width), where
    `others` is the number of columns that are not embedded. These columns come first in the output.

    Parameters
    ----------
    features : int
        Number of columns of x.
    spec : Periodic
        Which columns to embed, and how.
    generator : torch.Generator
        Generator that the parameters are drawn from.

    Raises
    ------
    ValueError
        `spec` names a column that x does not have.

    References
    ----------
    Gorishniy, Rubachev and Babenko, On embeddings for numerical features in tabular deep learning,
    2022.

    Examples
    --------
    >>> import torch
    >>> from biv.models import Periodic, PeriodicEmbedding
    >>> embed = PeriodicEmbedding(3, Periodic((0, 2), width=4), torch.Generator())
    >>> embed(torch.randn(5, 3)).shape
    torch.Size([5, 9])
    """

    def __init__(self, features: int, spec: Periodic, generator: torch.Generator) -> None:
        super().__init__()
        if not all(0 <= column < features for column in spec.columns):
            raise ValueError(
                f"columns must be in [0, {features - 1}], as x has {features} columns; "
                f"got {spec.columns!r}"
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
        """Return the settings that the representation of the module shows."""
        return f"{len(self.others) + len(self.columns)}, {self.spec}"

    def forward(self, x: Tensor) -> Tensor:
        """Return x with the columns of `spec` embedded.

        Parameters
        ----------
        x : Tensor of shape (..., features)
            Scaled features.

        Returns
        -------
        Tensor of shape (..., embedded features)
            The other columns of x, followed by the embeddings.
        """
        angle = x[..., self.columns, None] * (2 * math.pi * self.frequency)
        waves = torch.cat([angle.cos(), angle.sin()], dim=-1)
        embedded = torch.einsum("...cw,cdw->...cd", waves, self.weight) + self.bias
        return torch.cat([x[..., self.others], embedded.relu().flatten(-2)], dim=-1)
