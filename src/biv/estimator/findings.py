"""Judge error bars by the residuals of held-out rows: one finding, in one sentence.

Warnings of a fit, `biv inspect`, `biv train` and the report pages all use :func:`judge`, so that
they cannot contradict each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from biv import metrics
from biv._utils.pages import page_hint
from biv._utils.rank_correlation import ranks
from biv._utils.wording import ADVICE_OPTIONS, Message, Setting, Wording, render_text
from biv.estimator.error_bars import SURE, Factor, factor, is_impossible

Array = npt.NDArray[Any]

MIN_JUDGED = 100  # with fewer labels of finite σ², there is no judgement
LIKE_ONE = (0.8, 1.25)  # a factor in this range makes no difference
FAR_OFF = 3.0  # a factor of the variances beyond this is worth a warning
FAR_BELOW = 0.2  # an error below -0.2 median variances is clearly negative
MAX_NOISE_CORRELATION = 0.6  # partial rank correlation of σ² and ỹ − f; above it, σ² follows ỹ
REPEATED = 0.02  # a value of σ² that this fraction of the labels shares may be a placeholder
VALUES_SHOWN = 4
WIDE = 1e4  # ratio of the largest to the smallest σ², which instruments do not reach

NAMES = {"variance": Setting("y_var"), "std": Setting("y_std")}
CALIBRATE = Setting("calibrate_variance", True)
INSTEAD = {  # by reading: the content of the column, the advice, and the reading to pass it as
    "variance": ("variances, σ²", "pass it as", "variance"),
    "std": ("standard deviations, σ", "pass it as", "std"),
    "precision": ("1/σ²", "pass its inverse as", "variance"),
    "inverse std": ("1/σ", "pass its inverse as", "std"),
}
SILENT = ("few", "equal", "undecided", "consistent")  # kinds that need no action
VOIDING = {"misread", "nothing", "placeholders", "too large"}  # kinds that make scores meaningless

TOO_LARGE = (
    "the estimated squared error to the true labels is negative, which is impossible: the error "
    "bars are larger than the labels' noise. Check their units, and whether they are σ or σ²"
)
# Templates of messages: {numbers} is a factor with its interval.
_OFF = (
    "the residuals of held-out rows suggest that it should be multiplied by {numbers}. Check the "
    "units, whether the column is σ or σ² and, if the error bars come from a confidence interval, "
    "the level of that interval; {calibrate} corrects a common factor"
)
_TEXTS = {
    "equal": "all error bars are equal, so that residuals cannot show whether their size is right",
    "nothing": "squared residuals of held-out rows do not grow with σ²: their slope is {numbers}, "
    "and 1 is expected. The error bars seem unrelated to the noise of each label. They may belong "
    f"to other rows, or be an inverse, 1/σ or 1/σ²{page_hint('checking')}",
    "factor below 1": f"σ² seems too large: {_OFF}. If each σ comes from a few repeats, pool the "
    "variances instead (moderate them towards a common value) with biv.labels.repeats"
    f"{page_hint('error-bars')}",
    "factor above 1": f"σ² seems too small: {_OFF}. A model that is worse where labels are noisier "
    f"has the same effect on this factor; in that case do not calibrate{page_hint('checking')}",
    "shape": "squared residuals of held-out rows grow faster than σ², by a factor of {numbers}, "
    "from a negative intercept: no common factor corrects these error bars. Check whether the "
    f"column is σ and not σ²{page_hint('error-bars')}",
    "too large": f"{TOO_LARGE}{page_hint('error-bars')}",
    "undecided": "the residuals of held-out rows do not show whether the error bars are right: to "
    "match them, σ² would have to be multiplied by {numbers}",
    "undecided below 1": "σ² may be too large: to match the residuals of held-out rows, it would "
    "have to be multiplied by {numbers}. This is not certain, since noise with heavy tails has the "
    "same effect",
    "consistent": "the residuals of held-out rows agree with the error bars: to match them "
    "exactly, σ² would have to be multiplied by {numbers}",
}


class ErrorBarWarning(UserWarning):
    """Warning of a fit that its error bars seem wrong and should be checked.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("ignore", ErrorBarWarning)  # if you have checked the error bars
    """


@dataclass(frozen=True, kw_only=True)
class FindingRecord:
    """Kind and sentence of a finding, as files and reports keep them."""

    kind: str
    text: str

    @property
    def voids_scores(self) -> bool:
        """Whether scores that depend on these error bars are meaningless."""
        return self.kind in VOIDING


class Finding(NamedTuple):
    """Judgement of some error bars by residuals.

    Attributes
    ----------
    kind : str
        "few" (too few labels to judge), "equal" (equal error bars), "placeholders" (a few repeated
        values), "follows" (error bars that follow the noise of the labels), "misread" (a column of
        something else), "nothing" (error bars unrelated to the noise), "factor" (a common factor),
        "shape" (an error that no factor corrects), "too large", "undecided" or "consistent".
    text : Message
        Sentence that states the finding with its numbers.
    factor : Factor
        Factor that the variances should be multiplied by, with its 95% interval; NaN where it
        cannot be estimated.
    """

    kind: str
    text: Message
    factor: Factor

    @property
    def voids_scores(self) -> bool:
        """Whether scores that depend on these error bars are meaningless."""
        return self.kind in VOIDING

    @property
    def is_grave(self) -> bool:
        """Whether a fit warns of it.

        A fit warns of a factor or a slope only if it is far off, and of other kinds always.
        """
        if self.kind in ("factor", "nothing"):
            return self.factor.low > FAR_OFF or self.factor.high < 1 / FAR_OFF
        return self.kind not in SILENT

    def record(self, wording: Wording = ADVICE_OPTIONS) -> FindingRecord:
        """Return the kind and the sentence, worded for the command."""
        return FindingRecord(kind=self.kind, text=render_text(self.text, wording))


def judge(
    pred: Array,
    target: Array,
    variance: Array,
    passed_as: str | None = "variance",
    *,
    calibrated: float | None = None,
) -> Finding:
    """Return the one finding about some error bars.

    Advice is given only if the error bars, corrected by it, would pass this same judgement. So it
    never leads to the opposite advice.

    Parameters
    ----------
    pred : ndarray of shape (N,)
        Predictions f of held-out rows.
    target : ndarray of shape (N,)
        Noisy labels ỹ.
    variance : ndarray of shape (N,)
        σ², as the error bars were read. Labels whose σ² is not finite are ignored.
    passed_as : {"variance", "std"} or None, default="variance"
        Quantity that the error bars were passed as. None allows no other reading, as for the
        bounds of an interval.
    calibrated : float or None, default=None
        Factor that a fit has multiplied the variances by. A finding about the size of the error
        bars is then made about the multiplied variances.

    Returns
    -------
    Finding
        The finding.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> std = rng.uniform(0.1, 3, size=2000)
    >>> noise = std * rng.normal(size=2000)
    >>> judge(noise, np.zeros(2000), std**2).kind
    'consistent'
    >>> judge(noise, np.zeros(2000), std).text
    'y_var seems to hold standard deviations, σ, judging by the residuals of held-out rows: \
pass it as y_std (see: biv docs error-bars)'
    """
    known = np.isfinite(pred) & np.isfinite(target) & np.isfinite(variance)
    f, y, v = pred[known], target[known], variance[known]
    if len(v) < MIN_JUDGED:
        return Finding(
            "few",
            Message(
                "judging the error bars by residuals needs at least {minimum} labels with an error "
                "bar; got {count}",
                count=len(v),
                minimum=MIN_JUDGED,
            ),
            Factor(np.nan, np.nan, np.nan),
        )
    typical = float(np.median(v))
    huge = v > WIDE * typical
    if typical > 0 and huge.mean() < REPEATED:  # a few worthless labels must not decide
        f, y, v = f[~huge], y[~huge], v[~huge]
    finding = _judge(f, y, v, passed_as)
    if calibrated is not None and finding.kind in ("factor", "nothing"):
        return judge(f, y, max(calibrated, 0.0) * v, None)
    if finding.kind in (*SILENT, "follows"):
        return finding
    repeated = _repeated(v)
    rest = ~np.isin(v, repeated)
    if rest.sum() >= MIN_JUDGED and rest.sum() < len(v):
        depends_on_repeated = _judge(f[rest], y[rest], v[rest], passed_as).kind != finding.kind
    else:
        depends_on_repeated = bool(len(repeated) > 1 and v.max() > WIDE * v.min())
    if not depends_on_repeated:
        return finding
    return finding._replace(kind="placeholders", text=_placeholders(v, repeated))


def _repeated(variance: Array) -> Array:
    """Return the values that many labels share, the most frequent first."""
    values, counts = np.unique(variance, return_counts=True)
    many = counts >= max(REPEATED * len(variance), 3)
    return np.asarray(values[many][np.argsort(-counts[many], kind="stable")])


def _placeholders(variance: Array, repeated: Array) -> Message:
    shown = ", ".join(f"{np.sqrt(value):.4g}" for value in repeated[:VALUES_SHOWN])
    more = ", ..." if len(repeated) > VALUES_SHOWN else ""
    sharing = int(np.isin(variance, repeated).sum())
    advice = Message(
        "Where an error bar is unknown, pass NaN (in a file, leave the cell empty), and choose its "
        "replacement with {unknown}",
        unknown=Setting("unknown_variance"),
    )
    return Message(
        "{sharing:,} of {count:,} labels share a few error bars (σ = {shown}) that the residuals "
        "of held-out rows contradict: they may be placeholders. {advice}{page}",
        sharing=sharing,
        count=len(variance),
        shown=shown + more,
        # If all are placeholders, no error bar would be left.
        advice="In that case, fit without error bars" if sharing == len(variance) else advice,
        page=page_hint("error-bars"),
    )


def _judge(f: Array, y: Array, v: Array, passed_as: str | None) -> Finding:
    estimate = factor(f, y, v)
    correlation = _correlation_with_noise(f, y, v)
    if abs(correlation) > MAX_NOISE_CORRELATION:
        return Finding("follows", _follows_noise(correlation), estimate)
    reading = None if passed_as is None else _other_reading(f, y, v, passed_as)
    if reading is not None:
        content, advice, instead = INSTEAD[reading]
        message = Message(
            "{column} seems to hold {content}, judging by the residuals of held-out rows: "
            "{advice} {instead}{page}",
            column=NAMES[str(passed_as)],
            content=content,
            advice=advice,
            instead=NAMES[instead],
            page=page_hint("error-bars"),
        )
        return Finding("misread", message, estimate)
    kind = _size(f, y, v, estimate)
    text = kind
    if kind == "factor" or (kind == "undecided" and estimate.high < LIKE_ONE[0]):
        text += " below 1" if estimate.value < 1 else " above 1"
    numbers = f"{estimate.value:.3g} ({estimate.low:.3g} to {estimate.high:.3g})"
    message = Message(_TEXTS[text], numbers=numbers, calibrate=CALIBRATE)
    return Finding(kind, message, estimate)


def _other_reading(f: Array, y: Array, v: Array, passed_as: str) -> str | None:
    """Return the reading that fits the column, or None; read so, it must pass the judgement."""
    reading = metrics.misread(f, y, v, taken=passed_as)
    if reading is None:
        return None
    used = v > 0
    f, y = f[used], y[used]
    corrected = v[used] ** (metrics.READINGS[reading] / metrics.READINGS[passed_as])
    if metrics.misread(f, y, corrected, taken=INSTEAD[reading][2]) is not None:
        return None
    estimate = factor(f, y, corrected)
    kind = _size(f, y, corrected, estimate)
    near = kind == "factor" and 1 / FAR_OFF < estimate.value < FAR_OFF
    return reading if near or kind in SILENT else None


def _size(f: Array, y: Array, v: Array, estimate: Factor) -> str:
    """Return the kind of finding by the factor and by the error to the true labels."""
    off = _is_off(estimate)
    if off and estimate.value < 1:
        return "factor"
    if _exceed_noise(f, y, v):
        return "too large"
    if estimate.low <= 0 and estimate.value + SURE * estimate.stderr < 1:
        return "nothing"
    if off:
        return "shape" if _exceed_noise(f, y, estimate.value * v) else "factor"
    if np.isnan(estimate.value):
        return "equal"
    like_one = estimate.low <= 1 <= estimate.high or LIKE_ONE[0] < estimate.value < LIKE_ONE[1]
    precise = estimate.low > 1 / FAR_OFF and estimate.high < FAR_OFF
    return "consistent" if like_one and precise else "undecided"


def _exceed_noise(f: Array, y: Array, v: Array) -> bool:
    """Return whether the estimated squared error to the true labels is clearly negative.

    The margin is wide, since the mean of skewed squares is negative by chance more often than its
    standard error suggests.
    """
    mse = metrics.noise_corrected_mse(f, y, v)
    return is_impossible(*mse) and mse.value < -FAR_BELOW * float(np.median(v))


def _is_off(estimate: Factor) -> bool:
    """Return whether a factor is certainly not 1, and far enough from 1 to matter.

    The standard error grows with the factor. Where the noise has heavy tails, both may be too small
    by chance. The standard error of a factor below 1 is therefore rescaled to a factor of 1.
    """
    if not estimate.low > 0 or LIKE_ONE[0] < estimate.value < LIKE_ONE[1]:
        return False
    return abs(estimate.value - 1) > SURE * estimate.stderr / min(estimate.value, 1.0)


def _correlation_with_noise(f: Array, y: Array, v: Array) -> float:
    """Return Spearman's partial correlation of σ² with the residuals, given the prediction.

    The prediction is partialled out because a model that misses the extremes has residuals
    correlated with the true labels, and so with every error bar that depends on these.
    """
    residual, variance, predicted = ranks(y - f), ranks(v), ranks(f)
    of_residual, of_variance = residual @ predicted, variance @ predicted
    unexplained = (1 - of_residual**2) * (1 - of_variance**2)
    if not unexplained > 0:
        return 0.0
    return float((residual @ variance - of_residual * of_variance) / np.sqrt(unexplained))


def _follows_noise(correlation: float) -> Message:
    side = "higher" if correlation > 0 else "lower"
    return Message(
        "among labels with the same prediction, the {side} ones have the larger error bars (rank "
        "correlation {correlation:+.2f}): the error bars seem to be computed from the noisy labels "
        "(such as √n of a count n), and weighting by them biases predictions{page}",
        side=side,
        correlation=correlation,
        page=page_hint("error-bars"),
    )
