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

MIN_INTERVALS = 20  # that are judged by whether they hold their labels


MAX_OUTSIDE = 0.1  # share of the labels that may lie outside their intervals


NEARLY_ALL = 0.95  # share of the intervals that hold 0, where these are distances from the label


ALONG_WITH_LABELS = 0.25  # rank correlation of labels with the midpoints of their intervals


ROUNDING = 1e-6  # of a label beyond the end of its interval, relative


@dataclass(frozen=True)
class Target:
    """Which columns hold the label, its error bar and its importance.

    Attributes:
        name: Of the label.
        variance: Of σ².
        std: Of σ.
        interval: Of the two ends of a confidence interval.
        level: Of that interval.
        weight: Of how much a row matters, whatever its noise.

    Raises:
        ValueError: More than one kind of error bar is named, or a column twice.

    Example:
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
                "an error bar is a variance, a standard deviation or an interval; got "
                f"{' and '.join(given)}"
            )
        validation.real_number(
            "level", self.level, validation.Range(0.0, limit=1.0, open_below=True)
        )
        if len(set(self.names)) < len(self.names):
            raise ValueError(
                f"label, error bar and weight must be different columns; got {self.names}"
            )

    @property
    def error_bars(self) -> list[str]:
        """The columns that hold them, by name; none, one, or the two of an interval."""
        return [n for n in (self.variance, self.std, *(self.interval or ())) if n is not None]

    @property
    def names(self) -> list[str]:
        """Of all these columns."""
        weight = [] if self.weight is None else [self.weight]
        return [self.name, *self.error_bars, *weight]

    def labels(self, part: Part) -> Floats:
        """NaN where there is none."""
        y = part.numbers(self.name)
        part.refuse(self.name, np.isinf(y), "finite")
        return y

    def variances(self, part: Part) -> Floats | None:
        """σ², NaN where the cell is missing; None if no column has it."""
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
        part.refuse(self.error_bars[0], bar < 0, "0 or more, as an error bar is")
        most = LARGEST**2 if self.std is None else LARGEST
        wanted = f"at most {most:g}, or inf for a label to ignore"
        part.refuse(self.error_bars[0], (bar > most) & np.isfinite(bar), wanted)
        return bar if self.std is None else np.square(bar)

    def refuse_extremes(
        self, part: Part, y: Floats, variance: Floats | None, weight: Floats | None
    ) -> None:
        """Refuse labels whose powers overflow, but for those that count for nothing."""
        huge = np.abs(y) > LARGEST
        if variance is not None:
            huge &= ~np.isinf(variance)
        if weight is not None:
            huge &= weight > 0
        part.refuse(self.name, huge, f"at most {LARGEST:g} in magnitude")

    def ends(self, part: Part) -> Floats | None:
        """The ends of the intervals, (N, 2), NaN where a cell is missing; None without any."""
        if self.interval is None:
            return None
        low, high = (part.numbers(name) for name in self.interval)
        for name, end in zip(self.interval, (low, high), strict=True):
            part.refuse(name, np.isinf(end), "finite")
        wanted = (
            f"at least as large as {shortened(self.interval[0])}, the lower end of the interval"
        )
        part.refuse(self.interval[1], high < low, wanted)
        return np.stack([low, high], axis=1)

    def require_inside(self, source: object, y: Floats, ends: Floats | None) -> None:
        """Refuse intervals that do not hold their labels, such as distances from the labels.

        At least 20 intervals must be known to be judged. At most 10% of the labels may lie outside
        their interval. Intervals that contain 0 must not be mirror images about 0, nor have
        midpoints that do not go with the labels (a rank correlation below 0.25).

        Raises:
            ValueError: They do; the message says how to compute the ends.
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
        elsewhere = varied and rank_correlation(middle, y) < ALONG_WITH_LABELS
        if outside <= MAX_OUTSIDE * len(y) and not mirrored and not (around_zero and elsewhere):
            return
        names = list(map(shortened, self.interval))
        label = shortened(self.name)
        found = f"{outside:,} of {len(y):,} labels {label} lie outside"
        if around_zero:
            found = f"they look like − and + errors, on both sides of 0, and {found}"
        raise ValueError(
            Message(
                "{source}: {names} must be the ends of intervals that hold the labels; {found}. If "
                "they are distances from the label, add columns with the ends to the table, "
                "{label} minus the lower distance and {label} plus the upper one, and name these, "
                "with {level} for errors of one σ; or, in Python, let biv.labels.asymmetric make "
                "labels and variances of the distances{see}",
                source=source,
                names=" and ".join(names),
                found=found,
                label=label,
                level=Setting("level", 0.6827),
                see=argument_hint("variance"),
            )
        )

    def weights(self, part: Part) -> Floats | None:
        """Of the rows; None if no column has them."""
        if self.weight is None:
            return None
        weight = part.numbers(self.weight)
        part.refuse(self.weight, ~(weight >= 0) | np.isinf(weight), "0 or more, and finite")
        return weight
