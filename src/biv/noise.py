"""Noise on labels: distributions P(σ²) of the variance, and labels drawn with it.

Labels are corrupted in two steps: draw σ² ~ P, then ỹ ~ N(y, σ²). Everything draws from the
`numpy.random.Generator` it is given, and returns NumPy arrays.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from biv._utils import arrays, validation
from biv._utils.arrays import FloatArray

MAX_DRAWN = 2**40  # at a time: 8 TiB
LARGEST_MEAN = 1e150  # of σ²; the smallest is the reciprocal
ROUNDING = 1e-12  # V_max computed by the caller may miss ours by a digit


def _number(name: str, value: object, allowed: validation.Range, why: str = "") -> float:
    try:
        return float(validation.real_number(name, value, allowed))
    except ValueError as error:
        raise ValueError(f"{error} ({why})" if why else str(error)) from None


def _mean(value: object) -> float:
    """A mean variance whose square is an ordinary number, or 0."""
    mean = _number("mean", value, validation.NON_NEGATIVE)
    if mean and not 1 / LARGEST_MEAN <= mean <= LARGEST_MEAN:
        raise ValueError(
            f"mean must be 0 or in [{1 / LARGEST_MEAN:g}, {LARGEST_MEAN:g}], for its square to be "
            f"finite and above 0; got {mean:g}"
        )
    return mean


def _up_to(limit: float) -> validation.Range:
    return validation.Range(0.0, limit=limit * (1 + ROUNDING), closed=True)


class NoiseModel(Protocol):
    """A distribution P(σ²) with support on σ² >= 0."""

    @property
    def mean(self) -> float:
        """μ_P, the expected variance of the noise."""

    @property
    def variance(self) -> float:
        """The variance of σ² itself."""

    @property
    def support(self) -> tuple[float, float]:
        """The smallest interval that σ² lies in."""

    def sample(
        self, n: int | tuple[int, ...], generator: np.random.Generator
    ) -> npt.NDArray[np.float64]:
        """Independent draws of σ²."""


@dataclass(frozen=True, init=False)
class Uniform:
    r"""σ² uniform on [a, b], by its mean and variance: :math:`a, b = \mu \mp \sqrt{3V}`.

    Args:
        mean: μ >= 0.
        variance: V, at most :math:`V_{\max} = \mu^2/3`, where a = 0 and b = 2μ.
        spread: V / V_max in [0, 1], instead of `variance`.

    Identities: μ = (a + b)/2 and V = (b − a)²/12.

    Example:
        >>> Uniform(20_000, spread=1.0).support
        (0.0, 40000.0)
        >>> Uniform(3.0, variance=0.0).support
        (3.0, 3.0)
    """

    mean: float
    variance: float

    def __init__(
        self, mean: float, variance: float | None = None, *, spread: float | None = None
    ) -> None:
        mu = _mean(mean)
        largest = mu**2 / 3
        if (variance is None) == (spread is None):
            raise ValueError(
                f"give exactly one of variance and spread; got variance={variance}, spread={spread}"
            )
        if variance is not None:
            v = _number("variance", variance, _up_to(largest), "mean²/3 at most, where a is 0")
        else:
            v = largest * _number("spread", spread, _up_to(1.0))
        object.__setattr__(self, "mean", mu)
        object.__setattr__(self, "variance", v)

    @property
    def support(self) -> tuple[float, float]:
        """(a, b)."""
        half_width = min(math.sqrt(3 * self.variance), self.mean)
        return self.mean - half_width, self.mean + half_width

    def sample(
        self, n: int | tuple[int, ...], generator: np.random.Generator
    ) -> npt.NDArray[np.float64]:
        """`n` independent draws of σ²; a tuple is a shape."""
        low, high = self.support
        return validation.generator(generator).uniform(low, high, _shape(n))


@dataclass(frozen=True)
class BinaryUniform:
    r"""Two regimes: with probability p, σ² ~ U(0, 1); else σ² uniform about a high mean.

    The high regime has mean :math:`\mu_h = (\mu - p/2) / (1 - p)`, so that the whole has mean μ.

    Args:
        p: Probability of the low-noise regime, in [0, 1).
        mean: μ, of the whole; at least p/2.
        high_variance: V_h, of σ² within the high regime; at most :math:`\mu_h^2/3`.

    Identities: :math:`\mu = p/2 + (1 - p)\,\mu_h`; p = 0 is :class:`Uniform` of mean μ and variance
    V_h.

    Example:
        >>> noise = BinaryUniform(0.5, mean=2000)
        >>> noise.high.mean, noise.support
        (3999.5, (0.0, 3999.5))
    """

    p: float
    mean: float
    high_variance: float = 0.0
    high: Uniform = field(init=False, repr=False, compare=False)
    low: ClassVar[Uniform] = Uniform(0.5, spread=1.0)

    def __post_init__(self) -> None:
        p = _number("p", self.p, validation.Range(0.0, limit=1.0))
        least = p * self.low.mean
        mean = _number("mean", self.mean, validation.Range(least), "p/2 at least, where μ_h is 0")
        mean = _mean(mean)
        high_mean = (mean - least) / (1 - p)
        v = _number("high_variance", self.high_variance, _up_to(high_mean**2 / 3), "at most μ_h²/3")
        object.__setattr__(self, "p", p)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "high_variance", v)
        object.__setattr__(self, "high", Uniform(high_mean, variance=v))

    @property
    def variance(self) -> float:
        """Of both regimes together, p (1/12 + 1/4) + (1−p) (V_h + μ_h²) − μ²."""
        low, high = self.low, self.high
        # About the common mean, which loses no digits to the difference of large squares.
        return self.p * (low.variance + (low.mean - self.mean) ** 2) + (1 - self.p) * (
            high.variance + (high.mean - self.mean) ** 2
        )

    @property
    def support(self) -> tuple[float, float]:
        """From the lower to the upper end of the two regimes together."""
        low, high = self.high.support
        return (min(0.0, low), max(1.0, high)) if self.p > 0 else (low, high)

    def sample(
        self, n: int | tuple[int, ...], generator: np.random.Generator
    ) -> npt.NDArray[np.float64]:
        """`n` independent draws of σ²; a tuple is a shape."""
        shape = _shape(n)
        is_low = validation.generator(generator).random(shape) < self.p
        low, high = self.low.sample(shape, generator), self.high.sample(shape, generator)
        return np.where(is_low, low, high)


@dataclass(frozen=True)
class Gamma:
    r"""σ² ~ Gamma with shape α and rate α/μ: mean μ, variance μ²/α.

    .. math:: P(\sigma^2) = \frac{(\alpha/\mu)^\alpha}{\Gamma(\alpha)}\,
              (\sigma^2)^{\alpha - 1}\, e^{-\alpha \sigma^2/\mu}, \qquad \sigma^2 > 0

    The smaller α, the more labels have almost no noise, and the noisier the rest.

    Args:
        alpha: α > 0.
        mean: μ > 0.

    Identities: α = 1 is the exponential distribution, of variance μ²; scaling μ scales every draw.

    Example:
        >>> Gamma(alpha=0.5, mean=2.0).variance
        8.0
    """

    alpha: float
    mean: float
    support: ClassVar[tuple[float, float]] = (0.0, math.inf)

    def __post_init__(self) -> None:
        alpha = _number("alpha", self.alpha, validation.POSITIVE)
        _number("mean", self.mean, validation.POSITIVE)
        mean = _mean(self.mean)
        if math.isinf(mean**2 / alpha):
            raise ValueError(
                f"alpha must be large enough for mean²/alpha to be finite; got {alpha:g}"
            )
        object.__setattr__(self, "alpha", alpha)
        object.__setattr__(self, "mean", mean)

    @property
    def variance(self) -> float:
        """μ²/α."""
        return self.mean**2 / self.alpha

    def sample(
        self, n: int | tuple[int, ...], generator: np.random.Generator
    ) -> npt.NDArray[np.float64]:
        """`n` independent draws of σ²; a tuple is a shape."""
        return validation.generator(generator).gamma(self.alpha, self.mean / self.alpha, _shape(n))


def corrupt(
    y: npt.ArrayLike, variance: npt.ArrayLike, generator: np.random.Generator
) -> FloatArray:
    r"""Noisy labels, ỹ ~ N(y, σ²).

    .. math:: \tilde y_k = y_k + \sigma_k z_k, \qquad z_k \sim N(0, 1) \text{ independent}

    Args:
        y: The true labels, of any shape.
        variance: σ² of each, of the same shape, or (N, 1) beside (N, D).
        generator: Where the noise is drawn from.

    Returns:
        ỹ, of the shape and floating-point dtype of `y`; NaN, a missing label, where σ² is infinite:
        nothing of y is left there.

    Identities: σ² = 0 gives y; with one seed, adding a number to y adds it to ỹ, and scaling y by
    c > 0 and σ² by c² scales ỹ by c.

    Example:
        >>> import numpy as np
        >>> corrupt(np.array([1.0, 2.0]), np.array([0.0, 0.0]), np.random.default_rng(0))
        array([1., 2.])
    """
    clean, given = arrays.to_tensor("y", y).detach(), arrays.to_variances("variance", variance)
    labels = arrays.to_float_array("y", clean)
    validation.check_elements("y", clean, ~clean.isinf(), "finite, or NaN where it is missing")
    sigma2 = arrays.to_float_array("variance", validation.expanded("variance", given, "y", clean))
    noise = validation.generator(generator).standard_normal(labels.shape)
    known = np.isfinite(sigma2)
    noisy = labels + np.sqrt(np.where(known, sigma2, 0.0)) * noise
    return _as_dtype("y", np.where(known, noisy, np.nan), labels.dtype)


def disturb(variance: npt.ArrayLike, d_v: float, generator: np.random.Generator) -> FloatArray:
    r"""Variances that are themselves misjudged.

    .. math:: \tilde\sigma^2 = |\sigma^2 + \delta|, \quad
              \delta \sim N\left(0, (\sqrt{D_v}\,\sigma^2/3)^2\right)

    so that at D_v = 1 a change of sign is three standard deviations away (0.13%).

    Args:
        variance: σ², of any shape; 0 and +inf stay what they are.
        d_v: D_v >= 0, the coefficient of disturbance. A standard deviation of D_v·σ²/3, the other
            reading of the paper's formula, is ``disturb(variance, d_v**2, generator)``.
        generator: Where the disturbance is drawn from.

    Returns:
        The disturbed variances, of the shape and floating-point dtype of `variance`.

    Identities: D_v = 0 changes nothing; with one seed, scaling σ² scales the result.

    Example:
        >>> import numpy as np
        >>> disturb(np.array([0.0, 4.0]), 0.0, np.random.default_rng(0))
        array([0., 4.])
    """
    sigma2 = arrays.to_float_array("variance", arrays.to_variances("variance", variance))
    relative = math.sqrt(_number("d_v", d_v, validation.NON_NEGATIVE)) / 3
    factor = np.abs(1 + relative * validation.generator(generator).standard_normal(sigma2.shape))
    with np.errstate(over="ignore", invalid="ignore"):  # infinite ones stay so, even times 0
        disturbed = np.where(np.isinf(sigma2), np.inf, sigma2 * factor)
    _refuse_overflow("variance", np.isinf(disturbed) & np.isfinite(sigma2), "float64")
    return _as_dtype("variance", disturbed, sigma2.dtype)


def _as_dtype(name: str, values: FloatArray, dtype: np.dtype[Any]) -> FloatArray:
    """The values in the dtype of the argument that they were made of, which must have room."""
    with np.errstate(over="ignore"):
        result = values.astype(dtype)
    _refuse_overflow(name, np.isinf(result) & np.isfinite(values), str(dtype))
    return result


def _refuse_overflow(name: str, bad: npt.NDArray[np.bool_], dtype: str) -> None:
    if bad.any():
        where = np.argwhere(bad)[0].tolist()
        raise ValueError(
            f"{name} must leave room for the noise in {dtype}; got an overflow at index "
            f"{where[0] if len(where) == 1 else tuple(where)}: use a wider dtype or another unit"
        )


def _shape(n: int | tuple[int, ...]) -> tuple[int, ...]:
    try:
        shape = tuple(operator.index(size) for size in (n if isinstance(n, tuple) else (n,)))
    except TypeError:
        raise TypeError(
            f"n must be an integer or a tuple of them; got {validation.describe(n)}"
        ) from None
    if any(size < 0 for size in shape):
        raise ValueError(f"n must be >= 0; got {n}")
    if math.prod(shape) > MAX_DRAWN:
        raise ValueError(f"n must be at most {MAX_DRAWN:,} in all; got {validation.describe(n)}")
    return shape
