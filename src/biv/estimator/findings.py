"""What the residuals of rows left out say about the error bars: one finding, in one sentence.

Warnings of a fit, `biv inspect`, `biv train` and the report pages all take it from :func:`judge`,
so that they cannot contradict each other.
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

MIN_JUDGED = 100  # labels of finite σ²: of fewer, nothing is said
LIKE_ONE = (0.8, 1.25)  # a factor that makes no difference
FAR_OFF = 3.0  # the factor of the variances beyond which something is wrong
FAR_BELOW = 0.2  # 0, in units of the median variance
FOLLOWING = 0.6  # partial rank correlation of σ² with ỹ − f, which only the label's noise explains
REPEATED = 0.02  # share of the labels that one value of σ² must have to be looked at on its own
VALUES_SHOWN = 4
WIDE = 1e4  # range of σ² in a column of repeated values: no set of instruments differs by so much

NAMES = {"variance": Setting("y_var"), "std": Setting("y_std")}
CALIBRATE = Setting("calibrate_variance", True)
INSTEAD = {  # what a column seems to hold, what to do with it, and how to give it then
    "variance": ("variances, σ²", "give it as", "variance"),
    "std": ("standard deviations, σ", "give it as", "std"),
    "precision": ("1/σ²", "give its inverse as", "variance"),
    "inverse std": ("1/σ", "give its inverse as", "std"),
}
SILENT = ("few", "equal", "undecided", "consistent")  # kinds that ask for nothing to be done
VOIDING = {
    "misread",
    "nothing",
    "placeholders",
    "too large",
}  # scores by these error bars are wrong

TOO_LARGE = (
    "the squared error to the true labels would be below 0, which cannot be: the error bars are "
    "larger than the labels' noise. Check their units, and whether they are σ or σ²"
)
# Templates of messages: {numbers} is a factor with its interval.
_OFF = (
    "by the residuals of rows left out, it should be multiplied by {numbers}. Check the units, "
    "whether the column is σ or σ², and the level of an interval; {calibrate} corrects a common "
    "factor"
)
_TEXTS = {
    "equal": "all error bars are equal, so that residuals cannot show whether their size is right",
    "nothing": "squared residuals of rows left out do not grow with σ² (slope {numbers}; it should "
    "be 1): the error bars seem to say nothing about the noise of each label. They may belong to "
    f"other rows, or be an inverse (1/σ or 1/σ²){page_hint('checking')}",
    "factor below 1": f"σ² seems too large: {_OFF}. If each σ comes from a few repeats, shrink "
    f"them instead, as biv.labels.repeats does{page_hint('error-bars')}",
    "factor above 1": f"σ² seems too small: {_OFF}. A model that is worse where labels are noisier "
    f"looks so too; calibrating then does harm{page_hint('checking')}",
    "shape": "squared residuals of rows left out grow faster than σ², by a factor of {numbers}, "
    "and from less than 0: no common factor corrects these error bars. Check whether the column "
    f"is σ and not σ²{page_hint('error-bars')}",
    "too large": f"{TOO_LARGE}{page_hint('error-bars')}",
    "undecided": "the residuals of rows left out do not show whether the error bars are right: the "
    "factor of σ² is {numbers}",
    "undecided below 1": "σ² may be too large: by the residuals of rows left out, its factor is "
    "{numbers}. Noise with heavy tails can look so too, so that this is not certain",
    "consistent": "the residuals of rows left out agree with the error bars: the factor of σ² is "
    "{numbers}",
}


class ErrorBarWarning(UserWarning):
    """A fit has found something about its error bars that should be looked at."""


@dataclass(frozen=True, kw_only=True)
class FindingRecord:
    """A finding as files and reports keep it: its kind and its sentence."""

    kind: str
    text: str

    @property
    def voids_scores(self) -> bool:
        """Whether scores that rest on these error bars mean nothing."""
        return self.kind in VOIDING


class Finding(NamedTuple):
    """What the residuals say about some error bars.

    Attributes:
        kind: "few" (labels, too few to judge), "equal" (error bars), "placeholders", "follows" (the
            noise of the label), "misread", "nothing" (about the noise), "factor", "shape" (which no
            factor corrects), "too large", "undecided" or "consistent".
        text: The same in a sentence, with the numbers that it rests on.
        factor: Of the variances, with its 95% interval; NaN where it cannot be told.
    """

    kind: str
    text: Message
    factor: Factor

    @property
    def voids_scores(self) -> bool:
        """Whether scores that rest on these error bars mean nothing."""
        return self.kind in VOIDING

    @property
    def is_grave(self) -> bool:
        """Whether a fit warns of it: what is off by a factor, or says nothing, if by far."""
        if self.kind in ("factor", "nothing"):
            return self.factor.low > FAR_OFF or self.factor.high < 1 / FAR_OFF
        return self.kind not in SILENT

    def record(self, wording: Wording = ADVICE_OPTIONS) -> FindingRecord:
        """Return the finding as files and reports keep it, worded for the command."""
        return FindingRecord(kind=self.kind, text=render_text(self.text, wording))


def judge(
    pred: Array,
    target: Array,
    variance: Array,
    taken: str | None = "variance",
    *,
    calibrated: float | None = None,
) -> Finding:
    """The one finding about some error bars.

    An advice is given only if the error bars would pass this very judgement once it is followed. So
    it never leads to the opposite advice.

    Args:
        pred: f, (N,), of rows left out.
        target: ỹ.
        variance: σ², as the error bars were read. A label whose σ² is not finite does not count.
        taken: What they were given as: "variance" or "std"; None if another reading cannot be, as
            with the ends of an interval.
        calibrated: What a fit has multiplied the variances by: then a factor is judged after that.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> std = rng.uniform(0.1, 3, size=2000)
        >>> noise = std * rng.normal(size=2000)
        >>> judge(noise, np.zeros(2000), std**2).kind
        'consistent'
        >>> judge(noise, np.zeros(2000), std).text
        'y_var seems to hold standard deviations, σ, by the residuals of rows left out: give it as \
y_std (see: biv docs error-bars)'
    """
    known = np.isfinite(pred) & np.isfinite(target) & np.isfinite(variance)
    f, y, v = pred[known], target[known], variance[known]
    if len(v) < MIN_JUDGED:
        return Finding(
            "few",
            Message(
                "{count} labels with an error bar are too few to judge the error bars by their "
                "residuals: at least {fewest} are needed",
                count=len(v),
                fewest=MIN_JUDGED,
            ),
            Factor(np.nan, np.nan, np.nan),
        )
    typical = float(np.median(v))
    huge = v > WIDE * typical
    if typical > 0 and huge.mean() < REPEATED:  # a few labels that say nothing do not decide
        f, y, v = f[~huge], y[~huge], v[~huge]
    finding = _judge(f, y, v, taken)
    if calibrated is not None and finding.kind in ("factor", "nothing"):
        return judge(f, y, max(calibrated, 0.0) * v, None)
    if finding.kind in (*SILENT, "follows"):
        return finding
    repeated = _repeated(v)
    rest = ~np.isin(v, repeated)
    if rest.sum() >= MIN_JUDGED and rest.sum() < len(v):
        hangs_on_them = _judge(f[rest], y[rest], v[rest], taken).kind != finding.kind
    else:
        hangs_on_them = bool(len(repeated) > 1 and v.max() > WIDE * v.min())
    if not hangs_on_them:
        return finding
    return finding._replace(kind="placeholders", text=_placeholders(v, repeated))


def _repeated(variance: Array) -> Array:
    """Values that many labels share, the commonest first."""
    values, counts = np.unique(variance, return_counts=True)
    many = counts >= max(REPEATED * len(variance), 3)
    return np.asarray(values[many][np.argsort(-counts[many], kind="stable")])


def _placeholders(variance: Array, repeated: Array) -> Message:
    shown = ", ".join(f"{np.sqrt(value):.4g}" for value in repeated[:VALUES_SHOWN])
    more = ", ..." if len(repeated) > VALUES_SHOWN else ""
    sharing = int(np.isin(variance, repeated).sum())
    advice = Message(
        "Where an error bar is unknown, pass NaN (in a file, leave the cell empty), and choose "
        "with {unknown} what takes its place",
        unknown=Setting("unknown_variance"),
    )
    return Message(
        "{sharing:,} of {count:,} labels share a few error bars (σ = {shown}), which the residuals "
        "of rows left out do not bear out: are they placeholders? {advice}{page}",
        sharing=sharing,
        count=len(variance),
        shown=shown + more,
        # If all are placeholders, no error bar would be left.
        advice="If so, fit without error bars" if sharing == len(variance) else advice,
        page=page_hint("error-bars"),
    )


def _judge(f: Array, y: Array, v: Array, taken: str | None) -> Finding:
    found = factor(f, y, v)
    following = _following(f, y, v)
    if abs(following) > FOLLOWING:
        return Finding("follows", _follows(following), found)
    reading = None if taken is None else _other_reading(f, y, v, taken)
    if reading is not None:
        held, do, instead = INSTEAD[reading]
        message = Message(
            "{column} seems to hold {held}, by the residuals of rows left out: {do} {instead}"
            "{page}",
            column=NAMES[str(taken)],
            held=held,
            do=do,
            instead=NAMES[instead],
            page=page_hint("error-bars"),
        )
        return Finding("misread", message, found)
    kind = _size(f, y, v, found)
    which = kind
    if kind == "factor" or (kind == "undecided" and found.high < LIKE_ONE[0]):
        which += " below 1" if found.value < 1 else " above 1"
    numbers = f"{found.value:.3g} ({found.low:.3g} to {found.high:.3g})"
    message = Message(_TEXTS[which], numbers=numbers, calibrate=CALIBRATE)
    return Finding(kind, message, found)


def _other_reading(f: Array, y: Array, v: Array, taken: str) -> str | None:
    """What the column seems to be, if it would be judged to be right as that."""
    reading = metrics.misread(f, y, v, taken=taken)
    if reading is None:
        return None
    used = v > 0
    f, y = f[used], y[used]
    obeyed = v[used] ** (metrics.READINGS[reading] / metrics.READINGS[taken])
    if metrics.misread(f, y, obeyed, taken=INSTEAD[reading][2]) is not None:
        return None
    found = factor(f, y, obeyed)
    kind = _size(f, y, obeyed, found)
    near = kind == "factor" and 1 / FAR_OFF < found.value < FAR_OFF
    return reading if near or kind in SILENT else None


def _size(f: Array, y: Array, v: Array, found: Factor) -> str:
    """The kind of finding, by the factor and by the error to the true labels."""
    off = _is_off(found)
    if off and found.value < 1:
        return "factor"
    if _exceed_noise(f, y, v):
        return "too large"
    if found.low <= 0 and found.value + SURE * found.stderr < 1:
        return "nothing"
    if off:
        return "shape" if _exceed_noise(f, y, found.value * v) else "factor"
    if np.isnan(found.value):
        return "equal"
    like_one = found.low <= 1 <= found.high or LIKE_ONE[0] < found.value < LIKE_ONE[1]
    precise = found.low > 1 / FAR_OFF and found.high < FAR_OFF
    return "consistent" if like_one and precise else "undecided"


def _exceed_noise(f: Array, y: Array, v: Array) -> bool:
    """Whether the squared error to the true labels would be below 0, and by much.

    By much, since a mean of skewed squares is below 0 by chance more often than it seems.
    """
    mse = metrics.noise_corrected_mse(f, y, v)
    return is_impossible(*mse) and mse.value < -FAR_BELOW * float(np.median(v))


def _is_off(found: Factor) -> bool:
    """Whether a factor is surely not 1, and far enough from it to matter.

    The standard error of a factor below 1 is small because the factor is: where the noise has heavy
    tails, both are small by chance. So it is taken as it would be at 1.
    """
    if not found.low > 0 or LIKE_ONE[0] < found.value < LIKE_ONE[1]:
        return False
    return abs(found.value - 1) > SURE * found.stderr / min(found.value, 1.0)


def _following(f: Array, y: Array, v: Array) -> float:
    """Spearman's correlation of σ² with the residuals, at a given prediction.

    At a given prediction, since a model that misses the extremes has residuals that go with all
    that the labels go with, right error bars included.
    """
    residual, variance, predicted = ranks(y - f), ranks(v), ranks(f)
    own, other = residual @ predicted, variance @ predicted
    apart = (1 - own**2) * (1 - other**2)
    return float((residual @ variance - own * other) / np.sqrt(apart)) if apart > 0 else 0.0


def _follows(correlation: float) -> Message:
    way = "high" if correlation > 0 else "low"
    return Message(
        "of labels with the same prediction, those that are {way} have the larger error bars (rank "
        "correlation {correlation:+.2f}): they seem to be computed from the noisy labels, as √n of "
        "a count n is, and weighting by them biases predictions{page}",
        way=way,
        correlation=correlation,
        page=page_hint("error-bars"),
    )
