"""Whether error bars are right, by the residuals: their factor, and how their column was read."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from biv._utils import search
from biv._utils.pages import errors_point_to
from biv._utils.rank_correlation import rank_correlation
from biv.metrics._elements import elements, relative_weights
from biv.metrics._scores import Score
from biv.metrics.sample_size import raised_to_sample_size

READINGS = {"variance": 1, "std": 2, "precision": -1, "inverse std": -2}  # σ² is the column to it
MIN_READ = 500  # labels: of fewer, most slips are missed, and outliers look like one
MAX_READ = 20_000  # labels: more would take time and tell nothing more
FAR_BETTER = 4.0  # standard errors
FOLLOWING = 0.15  # rank correlation with the residuals, beyond which error bars follow the noise


@errors_point_to("checking")
def variance_factor(pred: Any, target: Any, variance: Any) -> Score:
    r"""By what factor the given variances are too small or too large, as the residuals see it.

    The slope c of squared residuals on the variances,

    .. math:: E\,(f_k - \tilde y_k)^2 = \tau^2 + c\,\sigma_k^2,

    by least squares weighted with :math:`(\tau^2 + c\,\sigma^2)^{-2}`, the inverse variance of a
    squared residual. The model's own error, and any noise of the same size in all labels, is in the
    intercept τ². **A model that is worse where labels are noisier** makes c too large.

    Args:
        pred: f, predictions not fitted on these labels.
        target: ỹ, the noisy labels.
        variance: σ², not all alike: else the slope cannot be told from the intercept.

    Returns:
        (value, stderr). 1 of honest variances; of such as are off by a common factor, what to
        multiply them by. Of anything else it is a slope: σ passed for σ² gives about 2σ, which
        looks right near σ = ½ (:func:`misread` looks at the shape).
        Near or below 0 they say nothing of how noisy each label is. The standard error holds
        for noise of any distribution.

    Raises:
        ValueError: The variances are all alike, or there are fewer than three.

    Identities: scaling σ² by c divides both results by c; scaling f and ỹ by c and σ² by c² changes
    nothing.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> variance = rng.uniform(0, 2, size=5000)
        >>> target = rng.normal(0, np.sqrt(0.3 + 4 * variance))  # four times what is said
        >>> value, stderr = variance_factor(np.zeros(5000), target, variance)
        >>> abs(value - 4) < 3 * stderr < 0.5
        True
    """
    f, y, v = elements(target, variance, pred)
    if len(v) < 3 or not bool(v.max() > v.min()):
        raise ValueError(
            "variance must differ between labels, three at least, for its factor to be told from "
            f"the model's own error; got {len(v)} in [{v.min():g}, {v.max():g}]"
        )
    square, scale = (f - y).square(), float(v.max())
    w = relative_weights(v, _likely_ratio(square, v)).square()
    # The line's slope by sums: a solver's last digit hangs on where in memory its arrays lie.
    apart, above = (x - (w * x).sum() / w.sum() for x in (v / scale, square))
    spread = (w * apart.square()).sum()
    slope = (w * apart * above).sum() / spread
    influence = w * apart * (above - slope * apart) / spread
    return Score(float(slope) / scale, math.sqrt(float(influence.square().sum())) / scale)


def _likely_ratio(square: Tensor, variance: Tensor) -> float:
    """τ²/c at which normal residuals of variance τ² + cσ² are most likely.

    There the weighted line through the squares is τ² + cσ² itself. Between bounds: the lower leaves
    weights that rest on enough labels, the upper lets all labels weigh alike.
    """
    high = 100 * float(variance.max())
    low = max(raised_to_sample_size(0.0, variance), high * 1e-12)
    scale = float(square.mean()) or 1.0

    def unlikely(ratios: Tensor) -> Tensor:
        spread = variance + ratios[:, None]
        factor = (square / scale / spread).mean(dim=1).clamp(min=torch.finfo(torch.float64).tiny)
        return factor.log() + spread.log().mean(dim=1)

    return search.argmin(unlikely, low, high)


@errors_point_to("error-bars")
def misread(pred: Any, target: Any, variance: Any, *, taken: str = "variance") -> str | None:
    r"""What a column of error bars seems to be, if it is not what it was taken for.

    With residuals r of rows left out and a model's own error τ², each reading of the column says
    how large :math:`r_k^2` is on average: :math:`\tau^2 + \sigma_k^2`, where σ² is the column, its
    square, or the inverse of either. The reading that was taken may have a factor c ≥ 0 besides,
    :math:`\tau^2 + c\,\sigma_k^2`; the others are taken at their word. One of these is returned if
    the normal likelihood of the residuals prefers it by more than four standard errors of the
    difference (Vuong, 1989). So the **shape** tells: :func:`variance_factor` is about 2σ where σ
    was passed for σ², and looks right near σ = ½.

    Args:
        pred: f, predictions not fitted on these labels.
        target: ỹ, the noisy labels.
        variance: σ² as the column was read; where it is 0, a label is not looked at.
        taken: What the column was read as: "variance" (σ²), "std" (σ), "precision" (1/σ²) or
            "inverse std" (1/σ).

    Returns:
        The reading that fits better, in these words; None if none does, as with honest error bars
        and with such as say nothing. None too if the column goes with the residuals' sign, as error
        bars made from the noisy label do: they have a shape of their own. With fewer than 500
        labels it is always None. **None does not show that the column was read correctly**: with
        normal noise, error bars that vary by a factor of 1.6 to 2 and a model whose own error is
        small beside them, σ passed for σ² is found in 40 to 90% of draws of 1,000 labels and in
        nearly all of 3,000. With heavy tails (Student's t, 3 degrees of freedom) it is found in
        one draw of ten of 3,000 labels, and with one outlier of 20 σ per hundred labels in none of
        10,000. A model's error that grows as σ² does, or a placeholder in many rows, may be taken
        for a slip.

    Identities: scaling f and ỹ by c and σ² by c² **may change the answer** unless it is None, since
    σ and σ² of the same column scale differently; shuffled error bars give None.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> sigma = rng.uniform(0.2, 2, size=3000)
        >>> target = rng.normal(0, np.sqrt(0.1 + sigma**2))
        >>> misread(np.zeros(3000), target, sigma)  # σ passed for σ²
        'std'
        >>> misread(np.zeros(3000), target, sigma**2)
    """
    if taken not in READINGS:
        raise ValueError(f"taken must be one of {', '.join(READINGS)}; got {taken!r}")
    f, y, v = elements(target, variance, pred, largest_variance=math.inf)
    used = v > 0
    stride = -(-int(used.sum()) // MAX_READ) or 1
    residual, v = (f - y)[used][::stride], v[used][::stride]
    square = residual.square()
    if len(v) < MIN_READ or not bool(v.max() > v.min()) or not bool(square.any()):
        return None
    if abs(rank_correlation(residual.numpy(), v.numpy())) > FOLLOWING:
        return None
    nothing = _log_likelihoods(square, torch.zeros_like(v), scaled=False)
    own = max(_log_likelihoods(square, v, scaled=True), nothing, key=torch.sum)
    found = {}
    for name, power in READINGS.items():
        if name != taken:
            other = v ** (power / READINGS[taken])
            gain = _log_likelihoods(square, other, scaled=False) - own
            if float(gain.sum()) > FAR_BETTER * math.sqrt(len(v)) * float(gain.std()):
                found[name] = float(gain.sum())
    return max(found, key=found.__getitem__, default=None)


def _log_likelihoods(square: Tensor, variance: Tensor, *, scaled: bool) -> Tensor:
    """Of each residual, were it normal with τ² + cσ² at the likeliest τ², and c if it is `scaled`.

    But for a constant; otherwise c = 1.
    """
    if scaled:
        spread = variance + _likely_ratio(square, variance)
        spread = spread * (square / spread).mean()
    else:
        scale = float(square.mean())

        def unlikely(tau2: Tensor) -> Tensor:
            spread = variance + tau2[:, None]
            return (spread.log() + square / spread).mean(dim=1)

        spread = variance + search.argmin(unlikely, 1e-9 * scale, 100 * scale)
    return -(spread.log() + square / spread) / 2
