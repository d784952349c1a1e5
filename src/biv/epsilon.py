"""Policies that choose ε in the weights 1/(σ²+ε).

There are three policies. :class:`Fixed` is a number in the units of the variance. :class:`Relative`
is a fraction of the variance of the labels. :class:`MinimumBatchSize` chooses, for each batch, the
smallest ε with which the effective batch size is large enough.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from biv._utils import arrays, search, validation
from biv._utils.arrays import Array
from biv._utils.pages import argument_hint, errors_point_to
from biv.losses import weights

ROUNDING_MARGIN = 1e-4  # upper limit of the margin for rounding, as a fraction of count/size − 1
SIZE_TOLERANCE = 1e-6  # a size is reached at size·(1 − SIZE_TOLERANCE)


def epsilon_for_batch_size(
    variance: Array, size: float, dim: int | Sequence[int] | None = None
) -> Array:
    r"""Find the smallest ε with which the effective batch size (EBS) is at least `size`.

    .. math:: \epsilon^* = \min \{\epsilon \ge 0 :
              \mathrm{EBS}(1/(\sigma^2+\epsilon)) \ge \mathrm{size}\,(1 - 10^{-6})\}

    Parameters
    ----------
    variance : ndarray or Tensor of any shape
        Noise variance σ² >= 0 of each label, in squared units of y. Labels of infinite variance do
        not count.
    size : float
        Requested effective batch size, in labels, at most the number of finite variances.
    dim : int or sequence of int, default=None
        Dimension or dimensions that make up one batch; None means all of them. Set it if the array
        holds several batches: each gets its own ε.

    Returns
    -------
    ndarray or Tensor
        ε in the units of `variance`, of the same type, with the dimensions `dim` removed. It is 0
        if the size is reached without ε.

    Raises
    ------
    ValueError
        If no ε reaches `size` in some batch, a variance is negative or NaN, or ε overflows.

    Notes
    -----
    The effective batch size does not decrease as ε grows, and tends to the number of finite
    variances. ε is found by bisection, at any scale of the variances. The factor 1 − 10⁻⁶ allows
    for rounding.

    Identities:

    - Multiplying σ² by c multiplies ε by c.
    - If all variances are equal, or size <= 1, ε is 0.

    Examples
    --------
    >>> import biv
    >>> import numpy as np
    >>> variance = np.array([0.0, 1.0, 2.0, 4.0])
    >>> epsilon = epsilon_for_batch_size(variance, 3)
    >>> round(float(epsilon), 3)
    1.059
    >>> w = biv.inverse_variance_weights(variance, epsilon)
    >>> round(float(biv.effective_batch_size(w)), 3)
    3.0
    """
    tensor = arrays.to_variances("variance", variance)
    tensor = tensor.reshape(1) if tensor.ndim == 0 else tensor
    requested = validation.real_number("size", size, validation.POSITIVE)
    dims = weights.reduced_dims(dim, tensor.ndim)
    if validation.values_are_readable():
        _check_reachable(requested, tensor.isfinite().sum(dims))
    epsilon = _solve(tensor, dims, size=requested)
    if validation.values_are_readable() and bool(epsilon.isinf().any()):
        raise ValueError(
            f"variance must be small enough for epsilon to be finite in {epsilon.dtype}; got up to "
            f"{float(tensor[tensor.isfinite()].max()):g}: choose another unit or a wider dtype"
        )
    result: Array = arrays.to_kind_of(variance, epsilon)
    return result


def _check_reachable(size: float | Tensor, available: Tensor) -> None:
    # A size is reachable if size·(1 − tolerance) < count.
    unreachable = available <= size * (1 - SIZE_TOLERANCE)
    if bool(unreachable.any()):
        batch = f" in batch {tuple(unreachable.nonzero()[0].tolist())}" if available.ndim else ""
        count = int(available[unreachable][0])
        elements = "element has" if count == 1 else "elements have"
        raise ValueError(
            f"size must be at most {count}, since only {count} {elements} a finite "
            f"variance{batch}; got {float(size):g}{argument_hint('epsilon')}"
        )


def _solve(
    variance: Tensor,
    dims: tuple[int, ...],
    *,
    size: float | Tensor = math.inf,
    fraction: float = 1.0,
) -> Tensor:
    """Return the smallest ε that reaches min(size, fraction · number of finite variances)."""
    dtype = arrays.at_least_float32(variance.dtype)
    if 0 in (variance.shape[d] for d in dims):
        return variance.sum(dims).to(dtype)
    # The search needs float64. Apple's GPUs do not have it, so that the CPU searches for them.
    device = torch.device("cpu") if variance.device.type == "mps" else variance.device
    exact = variance.to(device, torch.float64) + 0.0  # turns -0.0, whose reciprocal is -inf, into 0
    finite = exact.isfinite()
    count = finite.sum(dims, keepdim=True).double()
    scale = torch.where(finite, exact, 0.0).amax(dims, keepdim=True)
    # In units of the largest finite variance, the problem is the same at every scale.
    relative = torch.where(finite, exact / torch.where(scale > 0, scale, 1.0), torch.inf)
    # The goal is a few units in the last place above size·(1 − SIZE_TOLERANCE), so that the result
    # reaches that size in spite of rounding. If the size is close to the count, the margin must be
    # smaller, because a slightly larger size would then need a much larger ε.
    requested = (count * fraction).clamp(max=size)
    largest_margin = min(16 * torch.finfo(dtype).eps, SIZE_TOLERANCE / 2)
    margin = (count / requested.clamp(min=1e-300) - 1.0 + SIZE_TOLERANCE) * ROUNDING_MARGIN
    goal = requested * (1.0 - SIZE_TOLERANCE + margin.clamp(max=largest_margin))

    smallest = relative.amin(dims, keepdim=True)

    def reached(epsilon: Tensor) -> Tensor:
        ratio = (smallest + epsilon) / (relative + epsilon)  # w / max(w), for ε > 0
        total, squares = ratio.sum(dims, keepdim=True), ratio.square().sum(dims, keepdim=True)
        return total.square() >= goal * squares

    # By Kantorovich's inequality, EBS >= N·4Mm/(M+m)² for weights in [m, M]. Here M/m <= 1 + 1/ε,
    # hence EBS/N >= 1 − 1/(4ε²). That is at least goal/N if ε >= √(1 + 1/slack)/2, with slack =
    # N/goal − 1. Because √(1 + 1/slack) <= 1/√slack + 1, `high` is at least twice that ε.
    slack = (count / goal - 1.0).clamp(min=SIZE_TOLERANCE / 4)
    high = 1.0 / slack.sqrt() + 1.0
    # An ε this far below the smallest positive variance changes no weight within its precision.
    positive = torch.where(relative > 0, relative, 1.0).amin(dims, keepdim=True)
    low = (positive * 1e-20).clamp(min=1e-290, max=1.0)
    root = search.smallest_where(reached, low, high)
    none_needed = weights.kish(1.0 / relative, dims, keepdim=True) >= goal
    epsilon = torch.where(none_needed, 0.0, root * scale)
    return epsilon.squeeze(dims).to(variance.device, dtype)


class EpsilonPolicy(ABC):
    """Base class of the policies that choose ε for all labels that share one normaliser.

    These are the labels of a batch, of a window of micro-batches, or of the batches of all ranks;
    with `per_output`, those of one output. To write another policy, derive from this class and
    implement :meth:`resolve`.

    Attributes
    ----------
    reads_batch : bool, default=True
        Whether ε depends on the variances. Set it to False if it does not, so that ranks need not
        exchange their variances.

    Examples
    --------
    >>> class Median(EpsilonPolicy):
    ...     def resolve(self, variance):
    ...         return variance[variance.isfinite()].median()
    >>> Median().resolve(torch.tensor([1.0, 2.0, 4.0, torch.inf]))
    tensor(2.)
    """

    reads_batch: ClassVar[bool] = True

    @abstractmethod
    def resolve(self, variance: Tensor) -> float | Tensor:
        """Return ε, in the units of `variance`.

        Parameters
        ----------
        variance : Tensor of any shape
            Variances σ² of all labels that share the normaliser; +inf for unused labels.

        Returns
        -------
        float or Tensor of shape ()
            ε >= 0.
        """

    def check(self, variance: Tensor) -> None:  # noqa: B027
        """Check that ε can be chosen; called if arguments are validated.

        Parameters
        ----------
        variance : Tensor of any shape
            Variances σ² as in :meth:`resolve`.

        Raises
        ------
        ValueError
            If ε cannot be chosen.
        """


@dataclass(frozen=True)
class Fixed(EpsilonPolicy):
    """The same ε for every batch.

    Parameters
    ----------
    value : float or Tensor of shape ()
        ε >= 0, **absolute**: in the units of the variance. 0.05 suits labels of unit variance; for
        other labels see :class:`Relative`.

    Raises
    ------
    ValueError
        If the value is negative, infinite or NaN.

    Notes
    -----
    Identity: passing the number itself to a loss has the same effect.

    Examples
    --------
    >>> Fixed(0.05).resolve(torch.ones(8))
    0.05
    """

    value: float | Tensor
    reads_batch: ClassVar[bool] = False

    def __post_init__(self) -> None:
        value = validation.real_number("epsilon", self.value, validation.NON_NEGATIVE)
        object.__setattr__(self, "value", value)

    def resolve(self, variance: Tensor) -> float | Tensor:  # noqa: ARG002
        """Return the value.

        Parameters
        ----------
        variance : Tensor of any shape
            Variances σ²; they are not used.

        Returns
        -------
        float or Tensor of shape ()
            The value.
        """
        return self.value


@dataclass(frozen=True)
class Relative(EpsilonPolicy):
    r"""A fraction of the variance of the labels, :math:`\epsilon = \mathrm{fraction} \cdot V`.

    Use it if a number that suits labels of unit variance, such as the paper's 0.05, shall apply to
    labels in another unit.

    Parameters
    ----------
    fraction : float
        ε as a fraction of the label variance, >= 0, without unit.
    label_variance : float
        Variance V >= 0 of the true labels, in squared label units.
        :func:`biv.metrics.label_variance` estimates it.

    Raises
    ------
    ValueError
        If a number is negative, infinite or NaN, or the product overflows.

    Notes
    -----
    Identities:

    - It equals ``Fixed(fraction * label_variance)``.
    - If the labels are scaled to unit variance with :class:`biv.preprocessing.LabelScaler`, the
      number `fraction` has the same effect.

    Examples
    --------
    >>> Relative(0.05, label_variance=400.0).resolve(torch.ones(8))
    20.0
    """

    fraction: float
    label_variance: float
    reads_batch: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("fraction", "label_variance"):
            value = float(
                validation.real_number(name, getattr(self, name), validation.NON_NEGATIVE)
            )
            object.__setattr__(self, name, value)
        if math.isinf(self.fraction * self.label_variance):
            raise ValueError(
                "fraction times label_variance must be finite; got "
                f"{self.fraction:g} times {self.label_variance:g}"
            )

    def resolve(self, variance: Tensor) -> float | Tensor:  # noqa: ARG002
        """Return fraction × label variance.

        Parameters
        ----------
        variance : Tensor of any shape
            Variances σ²; they are not used.

        Returns
        -------
        float or Tensor of shape ()
            ε, in the units of the label variance.
        """
        return self.fraction * self.label_variance


@dataclass(frozen=True)
class MinimumBatchSize(EpsilonPolicy):
    """The smallest ε with which the effective batch size is at least a given number.

    Parameters
    ----------
    size : float, default=None
        Minimum effective batch size, >= 1, in labels. Set either it or `fraction`.
    fraction : float, default=None
        Minimum effective batch size as a fraction, in (0, 1], of the labels used in the batch. Set
        it instead of `size` if batches differ in size.

    Raises
    ------
    ValueError
        If both or none of `size` and `fraction` are set, or one is out of range.

    Notes
    -----
    The effective batch size is that of the weights 1/(σ²+ε) of the labels used; `sample_weight` is
    ignored.

    With `size`, a batch in which fewer labels are used raises an error. This can happen in the
    last, shorter batch of an epoch. With ``validate_args=False``, while compiling, and inside
    `torch.func`, such a batch instead gets the largest effective batch size that it can have.

    Identities:

    - ε is :func:`biv.epsilon_for_batch_size` of the batch.
    - Multiplying σ² by c multiplies ε by c, and equal variances give 0.
    - In a batch with N labels used, `fraction` is equivalent to a `size` of fraction × N.

    Examples
    --------
    >>> variance = torch.tensor([0.0, 1.0, 2.0, 4.0], dtype=torch.float64)
    >>> round(float(MinimumBatchSize(3).resolve(variance)), 3)
    1.059
    >>> round(float(MinimumBatchSize(fraction=0.75).resolve(variance)), 3)
    1.059
    """

    size: float | None = None
    fraction: float | None = None

    @errors_point_to("epsilon")
    def __post_init__(self) -> None:
        if (self.size is None) == (self.fraction is None):
            raise ValueError(
                f"give exactly one of size and fraction; got size={self.size}, "
                f"fraction={self.fraction}"
            )
        if self.size is not None:
            size = float(validation.real_number("size", self.size, validation.POSITIVE))
            if size < 1:
                raise ValueError(
                    f"size must be a finite number >= 1; got {size:g}: "
                    f"for a fraction of the batch use fraction={size:g}"
                )
            object.__setattr__(self, "size", size)
        else:
            allowed = validation.Range(0.0, open_below=True, limit=1.0, closed=True)
            fraction = float(validation.real_number("fraction", self.fraction, allowed))
            object.__setattr__(self, "fraction", fraction)

    def resolve(self, variance: Tensor) -> float | Tensor:
        """Return the smallest ε that reaches the minimum.

        Parameters
        ----------
        variance : Tensor of any shape
            Variances σ² of all labels that share the normaliser; +inf for unused labels.

        Returns
        -------
        float or Tensor of shape ()
            ε >= 0, in the units of `variance`.
        """
        flat = variance.flatten()
        if self.size is not None:
            return _solve(flat, (0,), size=self.size)
        assert self.fraction is not None  # one of the two is given
        return _solve(flat, (0,), fraction=self.fraction)

    def check(self, variance: Tensor) -> None:
        """Check that a batch has at least `size` usable labels, or none.

        Parameters
        ----------
        variance : Tensor of any shape
            Variances σ² of all labels that share the normaliser; +inf for unused labels.

        Raises
        ------
        ValueError
            If there are too few usable labels.
        """
        available = variance.isfinite().sum()
        if self.size is not None and 0 < available <= self.size * (1 - SIZE_TOLERANCE):
            raise ValueError(
                f"MinimumBatchSize(size={self.size:g}) needs at least that many usable labels; "
                f"got {int(available)} in this batch: use MinimumBatchSize(fraction=...), "
                f"a smaller size, or drop the incomplete batch{argument_hint('epsilon')}"
            )


def as_policy(epsilon: float | Tensor | EpsilonPolicy) -> EpsilonPolicy:
    """Return a policy unchanged, and a number as :class:`Fixed`."""
    if isinstance(epsilon, EpsilonPolicy):
        return epsilon
    try:
        return Fixed(epsilon)
    except TypeError as error:
        page = argument_hint("epsilon")
        message = str(error).removesuffix(page)
        raise TypeError(
            f"{message}: pass a number or a policy such as MinimumBatchSize(fraction=0.5){page}"
        ) from None
