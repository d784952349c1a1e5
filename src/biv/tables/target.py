"""Which columns of a table hold the label, its error bar and its weight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from biv import labels
from biv._utils import validation
from biv._utils.arrays import LARGEST
from biv._utils.messages import shortened
from biv._utils.pages import argument_hint
from biv._utils.rank_correlation import rank_correlation
from biv._utils.wording import Message, Setting
from biv.tables.part import Part

Floats = npt.NDArray[np.float64]

MIN_INTERVALS = 20  # with fewer, intervals are not checked
MAX_OUTSIDE = 0.1  # largest fraction of the labels that may lie outside their intervals
NEARLY_ALL = 0.95  # fraction of intervals around 0 from which they look like distances
MIN_CORRELATION = 0.25  # smallest rank correlation of labels with midpoints of their intervals
ROUNDING = 1e-6  # a label may lie beyond the end of its interval by this fraction of itself


@dataclass(frozen=True)
class Target:
    """Names of the columns that hold the label, its error bar and its weight.

    Parameters
    ----------
    name : str
        Column of the labels.
    variance : str, optional
        Column of the variances σ², in squared label units. Give at most one of `variance`, `std`
        and `interval`; without any, the labels have no error bars.
    std : str, optional
        Column of the standard deviations σ, in label units.
    interval : tuple of (str, str), optional
        Columns of the two ends of a confidence interval around the label, in label units.
    level : float, default=0.95
        Probability that the interval contains the true label. Set it to 0.6827 for errors of one σ.
    weight : str, optional
        Column of the importance of each row, which is independent of its noise. Use it if some
        rows matter more than others.

    Raises
    ------
    ValueError
        If more than one kind of error bar is given, or one column is named twice.

    Examples
    --------
    >>> Target("y", interval=("low", "high"), weight="importance").names
    ['y', 'low', 'high', 'importance']
    """

    name: str
    variance: str | None = None
    std: str | None = None
    interval: tuple[str, str] | None = None
    level: float = 0.95
    weight: str | None = None

    def __post_init__(self) -> None:
        given = [n for n in ("variance", "std", "interval") if getattr(self, n) is not None]
        if len(given) > 1:
            raise ValueError(
                f"at most one of variance, std and interval can be given; got {' and '.join(given)}"
            )
        validation.real_number(
            "level", self.level, validation.Range(0.0, limit=1.0, open_below=True)
        )
        for name in self.names:
            if self.names.count(name) > 1:
                raise ValueError(
                    f"{shortened(name)} is used twice: as {' and as '.join(self._roles(name))}"
                )

    @property
    def error_bars(self) -> list[str]:
        """Columns of the error bar: none, one, or the two ends of an interval."""
        return [n for n in (self.variance, self.std, *(self.interval or ())) if n is not None]

    @property
    def names(self) -> list[str]:
        """All columns that are named."""
        weight = [] if self.weight is None else [self.weight]
        return [self.name, *self.error_bars, *weight]

    def role(self, name: str) -> str:
        """Return what a column of the target is, in words.

        Parameters
        ----------
        name : str
            One of `names`.

        Returns
        -------
        str
            "the label", "the error bar", "the low end of the interval", "the high end of the
            interval" or "the weight".

        Examples
        --------
        >>> Target("y", std="err").role("err")
        'the error bar'
        """
        return self._roles(name)[0]

    def _roles(self, name: str) -> list[str]:
        low, high = self.interval or (None, None)
        roles = [
            (self.name, "the label"),
            (self.variance, "the error bar"),
            (self.std, "the error bar"),
            (low, "the low end of the interval"),
            (high, "the high end of the interval"),
            (self.weight, "the weight"),
        ]
        return [role for column, role in roles if column == name]

    def labels(self, part: Part) -> Floats:
        """Return the labels of a part, with NaN for missing labels."""
        y = part.numbers(self.name)
        part.refuse(self.name, np.isinf(y), "finite")
        return y

    def variances(self, part: Part) -> Floats | None:
        """Return σ² of each label, with NaN for missing error bars; None without error bars."""
        if self.interval is not None:
            ends = self.ends(part)
            assert ends is not None
            known = ~np.isnan(ends).any(axis=1)
            variance = np.full(len(ends), np.nan)
            variance[known] = labels.interval(*ends[known].T, level=self.level).variance
            return variance
        if not self.error_bars:
            return None
        bar = part.numbers(self.error_bars[0])
        part.refuse(self.error_bars[0], bar < 0, "non-negative, because it is an error bar")
        most = LARGEST**2 if self.std is None else LARGEST
        expected = f"at most {most:g}, or inf for a label to ignore"
        part.refuse(self.error_bars[0], (bar > most) & np.isfinite(bar), expected)
        return bar if self.std is None else np.square(bar)

    def refuse_extremes(
        self, part: Part, y: Floats, variance: Floats | None, weight: Floats | None
    ) -> None:
        """Check that the powers of labels do not overflow, except for labels without weight.

        Raises
        ------
        ValueError
            If a label is too large in magnitude.
        """
        huge = np.abs(y) > LARGEST
        if variance is not None:
            huge &= ~np.isinf(variance)
        if weight is not None:
            huge &= weight > 0
        part.refuse(self.name, huge, f"at most {LARGEST:g} in magnitude")

    def ends(self, part: Part) -> Floats | None:
        """Return the ends of the intervals, (N, 2), with NaN for missing cells; or None."""
        if self.interval is None:
            return None
        low, high = (part.numbers(name) for name in self.interval)
        for name, end in zip(self.interval, (low, high), strict=True):
            part.refuse(name, np.isinf(end), "finite")
        expected = (
            f"at least as large as {shortened(self.interval[0])}, the lower end of the interval"
        )
        part.refuse(self.interval[1], high < low, expected)
        return np.stack([low, high], axis=1)

    def require_inside(self, source: object, y: Floats, ends: Floats | None) -> None:
        """Check that intervals contain their labels, and are not distances from the labels.

        Fewer than 20 known intervals are not checked. At most 10% of the labels may lie outside
        their intervals. If nearly all intervals contain 0, their midpoints must have a rank
        correlation of at least 0.25 with the labels. Intervals must not be symmetric about 0,
        unless the labels are 0.

        Raises
        ------
        ValueError
            If the intervals fail the check. The message explains how to compute their ends.
        """
        if self.interval is None or ends is None:
            return
        known = ~np.isnan(y + ends.sum(axis=1))
        y, (low, high) = y[known], ends[known].T
        if len(y) < MIN_INTERVALS:
            return
        slack = ROUNDING * np.abs(y)
        outside = int(((y < low - slack) | (y > high + slack)).sum())
        mirrored = np.mean((low == -high) & (y != 0)) >= NEARLY_ALL
        around_zero = np.mean((low <= 0) & (high >= 0)) >= NEARLY_ALL
        middle = low + high
        varied = np.ptp(middle) > 0 and np.ptp(y) > 0
        unrelated = varied and rank_correlation(middle, y) < MIN_CORRELATION
        if outside <= MAX_OUTSIDE * len(y) and not mirrored and not (around_zero and unrelated):
            return
        names = list(map(shortened, self.interval))
        label = shortened(self.name)
        problem = f"{outside:,} of {len(y):,} labels {label} lie outside"
        if around_zero:
            problem = f"they look like − and + errors, on both sides of 0, and {problem}"
        raise ValueError(
            Message(
                "{source}: {names} must be the ends of intervals that contain the labels; "
                "{problem}. If the columns are distances from the label, add two columns to the "
                "table, {label} minus the lower and {label} plus the upper distance (and use "
                "{level} for errors of one σ), or call biv.labels.asymmetric in Python{see}",
                source=source,
                names=" and ".join(names),
                problem=problem,
                label=label,
                level=Setting("level", 0.6827),
                see=argument_hint("variance"),
            )
        )

    def weights(self, part: Part) -> Floats | None:
        """Return the weights of the rows; None without a column of weights."""
        if self.weight is None:
            return None
        weight = part.numbers(self.weight)
        part.refuse(self.weight, ~(weight >= 0) | np.isinf(weight), "non-negative and finite")
        return weight
