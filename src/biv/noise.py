"""Simulated noise: distributions P(σ²) of the noise variance, and noisy labels.

To simulate noisy labels, draw σ² from a distribution P, and then ỹ from N(y, σ²). All functions
draw from the `numpy.random.Generator` that is passed, and return NumPy arrays.
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

MAX_DRAWN = 2**40  # largest number of values drawn at a time, which take 8 TiB
LARGEST_MEAN = 1e150  # largest mean of σ²; its reciprocal is the smallest one
ROUNDING = 1e-12  # relative tolerance for a V_max that the caller has computed


def _number(name: str, value: object, allowed: validation.Range, reason: str = "") -> float:
    try:
        return float(validation.real_number(name, value, allowed))
    except ValueError as error:
        raise ValueError(f"{error} ({reason})" if reason else str(error)) from None


def _mean(value: object) -> float:
    """Check a mean variance, whose square must neither overflow nor underflow."""
    mean = _number("mean", value, validation.NON_NEGATIVE)
    if mean and not 1 / LARGEST_MEAN <= mean <= LARGEST_MEAN:
        raise ValueError(
            f"mean must be 0 or in [{1 / LARGEST_MEAN:g}, {LARGEST_MEAN:g}], so that its square is "
            f"finite and above 0; got {mean:g}"
        )
    return mean


def _up_to(limit: float) -> validation.Range:
    return validation.Range(0.0, limit=limit * (1 + ROUNDING), closed=True)


class NoiseModel(Protocol):
    """Interface of the distributions P(σ²), whose support is a part of σ² >= 0.

    Examples
    --------
    >>> import biv
    >>> model: NoiseModel = biv.noise.Gamma(alpha=0.5, mean=2.0)
    >>> model.mean, model.variance
    (2.0, 8.0)
    """

    @property
    def mean(self) -> float:
        """Expected noise variance μ_P, in squared label units."""

    @property
    def variance(self) -> float:
        """Variance of σ² itself, in label units to the fourth power."""

    @property
    def support(self) -> tuple[float, float]:
        """Smallest interval that contains σ², in squared label units."""

    def sample(
        self, n: int | tuple[int, ...], generator: np.random.Generator
    ) -> npt.NDArray[np.float64]:
        """Return independent draws of σ².

        Parameters
        ----------
        n : int or tuple of int
            Number of draws, or shape of the array of draws.
        generator : numpy.random.Generator
            Generator to draw from.

        Returns
        -------
        ndarray of shape (n,) or n
            Draws, in squared label units.
        """


@dataclass(frozen=True, init=False)
class Uniform:
    r"""Uniform distribution of σ² on [a, b], with :math:`a, b = \mu \mp \sqrt{3V}`.

    Parameters
    ----------
    mean : float
        Mean μ >= 0 of σ², in squared label units.
    variance : float, default=None
        Variance V of σ², in label units to the fourth power. It is at most
        :math:`V_{\max} = \mu^2/3`, for which a = 0 and b = 2μ. Set either it or `spread`.
    spread : float, default=None
        V / V_max, in [0, 1]. Set it instead of `variance` if the distribution shall have the same
        shape whatever its mean is.

    Raises
    ------
    ValueError
        If both or none of `variance` and `spread` are set, or a number is out of range.

    Notes
    -----
    Identities: μ = (a + b)/2 and V = (b − a)²/12.

    Examples
    --------
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
            v = _number("variance", variance, _up_to(largest), "at most mean²/3, where a is 0")
        else:
            v = largest * _number("spread", spread, _up_to(1.0))
        object.__setattr__(self, "mean", mu)
        object.__setattr__(self, "variance", v)

    @property
    def support(self) -> tuple[float, float]:
        """Interval (a, b), in squared label units."""
        half_width = min(math.sqrt(3 * self.variance), self.mean)
        return self.mean - half_width, self.mean + half_width

    def sample(
        self, n: int | tuple[int, ...], generator: np.random.Generator
    ) -> npt.NDArray[np.float64]:
        """Return independent draws of σ².

        Parameters
        ----------
        n : int or tuple of int
            Number of draws, or shape of the array of draws.
        generator : numpy.random.Generator
            Generator to draw from.

        Returns
        -------
        ndarray of shape (n,) or n
            Draws, in squared label units.
        """
        low, high = self.support
        return validation.generator(generator).uniform(low, high, _shape(n))


@dataclass(frozen=True)
class BinaryUniform:
    r"""Mixture of two uniform distributions of σ², one low and one high.

    With probability p, σ² is drawn from U(0, 1); otherwise it is uniform with mean :math:`\mu_h`
    and variance :math:`V_h`. The mixture has mean μ because :math:`\mu_h = (\mu - p/2) / (1 - p)`.

    Parameters
    ----------
    p : float
        Probability of low noise, in [0, 1).
    mean : float
        Mean μ of the mixture, at least p/2, in squared label units.
    high_variance : float, default=0.0
        Variance V_h of σ² within the high part, at most :math:`\mu_h^2/3`, in label units to the
        fourth power. Raise it if the noisy labels shall not all have the same σ².

    Raises
    ------
    ValueError
        If a number is out of range.

    Notes
    -----
    Identities:

    - :math:`\mu = p/2 + (1 - p)\,\mu_h`.
    - With p = 0, it is :class:`Uniform` of mean μ and variance V_h.

    Examples
    --------
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
        mean = _number("mean", self.mean, validation.Range(least), "at least p/2, where μ_h is 0")
        mean = _mean(mean)
        high_mean = (mean - least) / (1 - p)
        v = _number("high_variance", self.high_variance, _up_to(high_mean**2 / 3), "at most μ_h²/3")
        object.__setattr__(self, "p", p)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "high_variance", v)
        object.__setattr__(self, "high", Uniform(high_mean, variance=v))

    @property
    def variance(self) -> float:
        """Variance of σ², p (1/12 + 1/4) + (1−p) (V_h + μ_h²) − μ²."""
        low, high = self.low, self.high
        # Computed about the common mean, because a difference of large squares would lose digits.
        return self.p * (low.variance + (low.mean - self.mean) ** 2) + (1 - self.p) * (
            high.variance + (high.mean - self.mean) ** 2
        )

    @property
    def support(self) -> tuple[float, float]:
        """Smallest interval that contains both parts, in squared label units."""
        low, high = self.high.support
        return (min(0.0, low), max(1.0, high)) if self.p > 0 else (low, high)

    def sample(
        self, n: int | tuple[int, ...], generator: np.random.Generator
    ) -> npt.NDArray[np.float64]:
        """Return independent draws of σ².

        Parameters
        ----------
        n : int or tuple of int
            Number of draws, or shape of the array of draws.
        generator : numpy.random.Generator
            Generator to draw from.

        Returns
        -------
        ndarray of shape (n,) or n
            Draws, in squared label units.
        """
        shape = _shape(n)
        is_low = validation.generator(generator).random(shape) < self.p
        low, high = self.low.sample(shape, generator), self.high.sample(shape, generator)
        return np.where(is_low, low, high)


@dataclass(frozen=True)
class Gamma:
    r"""Gamma distribution of σ² with mean μ and variance μ²/α.

    .. math:: P(\sigma^2) = \frac{(\alpha/\mu)^\alpha}{\Gamma(\alpha)}\,
              (\sigma^2)^{\alpha - 1}\, e^{-\alpha \sigma^2/\mu}, \qquad \sigma^2 > 0

    The smaller α is, the more labels have almost no noise, and the noisier are the others.

    Parameters
    ----------
    alpha : float
        Shape α > 0, without unit.
    mean : float
        Mean μ > 0 of σ², in squared label units.

    Raises
    ------
    ValueError
        If a number is not positive, or the variance μ²/α overflows.

    Notes
    -----
    Identities:

    - With α = 1, it is the exponential distribution, whose variance is μ².
    - Multiplying μ by c multiplies every draw by c.

    Examples
    --------
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
        """Variance of σ², μ²/α, in label units to the fourth power."""
        return self.mean**2 / self.alpha

    def sample(
        self, n: int | tuple[int, ...], generator: np.random.Generator
    ) -> npt.NDArray[np.float64]:
        """Return independent draws of σ².

        Parameters
        ----------
        n : int or tuple of int
            Number of draws, or shape of the array of draws.
        generator : numpy.random.Generator
            Generator to draw from.

        Returns
        -------
        ndarray of shape (n,) or n
            Draws, in squared label units.
        """
        return validation.generator(generator).gamma(self.alpha, self.mean / self.alpha, _shape(n))


def corrupt(
    y: npt.ArrayLike, variance: npt.ArrayLike, generator: np.random.Generator
) -> FloatArray:
    r"""Draw noisy labels, ỹ ~ N(y, σ²).

    .. math:: \tilde y_k = y_k + \sigma_k z_k, \qquad z_k \sim N(0, 1) \text{ independent}

    Parameters
    ----------
    y : array-like of any shape
        True labels, in label units. NaN marks a missing label.
    variance : array-like of the shape of `y`, or (N, 1) for (N, D)
        Noise variance σ² of each label, in squared label units.
    generator : numpy.random.Generator
        Source of the noise.

    Returns
    -------
    ndarray
        Noisy labels ỹ, of the shape and floating-point dtype of `y`. ỹ is NaN (a
        missing label) where σ² is infinite.

    Raises
    ------
    TypeError
        If `generator` is not a NumPy generator.
    ValueError
        If shapes differ, a label is infinite, a variance is negative or NaN, or ỹ overflows.

    Notes
    -----
    Identities:

    - σ² = 0 gives y.
    - With the same seed, adding a number to y adds it to ỹ.
    - With the same seed, multiplying y by c > 0 and σ² by c² multiplies ỹ by c.

    Examples
    --------
    >>> import numpy as np
    >>> corrupt(np.array([1.0, 2.0]), np.array([0.0, 4.0]), np.random.default_rng(0)).round(3)
    array([1.   , 1.736])
    """
    clean = arrays.to_tensor("y", y).detach()
    checked = arrays.to_variances("variance", variance)
    labels = arrays.to_float_array("y", clean)
    validation.check_elements("y", clean, ~clean.isinf(), "finite, or NaN where it is missing")
    sigma2 = arrays.to_float_array("variance", validation.expanded("variance", checked, "y", clean))
    noise = validation.generator(generator).standard_normal(labels.shape)
    known = np.isfinite(sigma2)
    noisy = labels + np.sqrt(np.where(known, sigma2, 0.0)) * noise
    return _as_dtype("y", np.where(known, noisy, np.nan), labels.dtype)


def disturb(variance: npt.ArrayLike, d_v: float, generator: np.random.Generator) -> FloatArray:
    r"""Draw wrong variances, as if the noise of each label had been misjudged.

    .. math:: \tilde\sigma^2 = |\sigma^2 + \delta|, \quad
              \delta \sim N\left(0, (\sqrt{D_v}\,\sigma^2/3)^2\right)

    At D_v = 1, σ² + δ is negative with probability 0.13%.

    Parameters
    ----------
    variance : array-like of any shape
        Noise variance σ² of each label, in squared label units. 0 and +inf are not changed.
    d_v : float
        Coefficient of disturbance D_v >= 0, without unit.
    generator : numpy.random.Generator
        Source of the disturbance.

    Returns
    -------
    ndarray
        Disturbed variances, of the shape and floating-point dtype of `variance`.

    Raises
    ------
    TypeError
        If `generator` is not a NumPy generator.
    ValueError
        If a variance is negative or NaN, `d_v` is negative, or a result overflows.

    Notes
    -----
    The paper's formula can also be read as a standard deviation of D_v·σ²/3. For that reading, call
    ``disturb(variance, d_v**2, generator)``.

    Identities:

    - D_v = 0 changes nothing.
    - With the same seed, multiplying σ² by c multiplies the result by c.

    Examples
    --------
    >>> import numpy as np
    >>> disturb(np.array([0.0, 4.0]), 1.0, np.random.default_rng(0)).round(3)
    array([0.   , 3.824])
    """
    sigma2 = arrays.to_float_array("variance", arrays.to_variances("variance", variance))
    relative = math.sqrt(_number("d_v", d_v, validation.NON_NEGATIVE)) / 3
    factor = np.abs(1 + relative * validation.generator(generator).standard_normal(sigma2.shape))
    with np.errstate(over="ignore", invalid="ignore"):  # inf stays inf, even if the factor is 0
        disturbed = np.where(np.isinf(sigma2), np.inf, sigma2 * factor)
    _check_no_overflow("variance", np.isinf(disturbed) & np.isfinite(sigma2), "float64")
    return _as_dtype("variance", disturbed, sigma2.dtype)


def _as_dtype(name: str, values: FloatArray, dtype: np.dtype[Any]) -> FloatArray:
    """Return the values in the dtype of the argument, and raise if they overflow."""
    with np.errstate(over="ignore"):
        result = values.astype(dtype)
    _check_no_overflow(name, np.isinf(result) & np.isfinite(values), str(dtype))
    return result


def _check_no_overflow(name: str, overflows: npt.NDArray[np.bool_], dtype: str) -> None:
    if overflows.any():
        index = np.argwhere(overflows)[0].tolist()
        raise ValueError(
            f"{name} with noise must be finite in {dtype}; got an overflow at index "
            f"{index[0] if len(index) == 1 else tuple(index)}: use a wider dtype or another unit"
        )


def _shape(n: int | tuple[int, ...]) -> tuple[int, ...]:
    try:
        shape = tuple(operator.index(size) for size in (n if isinstance(n, tuple) else (n,)))
    except TypeError:
        raise TypeError(
            f"n must be an integer or a tuple of integers; got {validation.describe(n)}"
        ) from None
    if any(size < 0 for size in shape):
        raise ValueError(f"n must be >= 0; got {n}")
    if math.prod(shape) > MAX_DRAWN:
        raise ValueError(
            f"n must be at most {MAX_DRAWN:,} values in total; got {validation.describe(n)}"
        )
    return shape
