"""What `biv compare --json` prints and comparison.json of a model folder holds.

Field names are those of the JSON. Fields with a default may be missing in files of version 0.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from biv._utils import typed_json
from biv._utils.messages import shortened
from biv._utils.typed_json import Count, NonNegative, Number, Positive
from biv.estimator.findings import FindingRecord

COMPARED = "must be what `biv compare --json` prints"


@dataclass(frozen=True)
class Effect:
    """How much lower one error is than another, as a share of the other, with a 95% interval.

    An error to the true labels that is not even one standard error above 0 counts as so much.
    """

    value: Number
    low: Number
    high: Number

    def __str__(self) -> str:
        if self.value < 0:
            return f"{-self.value:.1%} ({-self.high:.1%} to {-self.low:.1%}) higher"
        return f"{self.value:.1%} ({self.low:.1%} to {self.high:.1%}) lower"


@dataclass(frozen=True, kw_only=True)
class MethodRecord:
    """One of the methods that were compared, with errors in squared units of the label.

    Attributes:
        method: Name.
        mse: Noise-corrected mean squared error of rows left out.
        mse_stderr: Its standard error.
        mse_over_label_variance: The same error in units of the label variance.
        above_best: How much the error exceeds that of the best method, paired.
        above_best_stderr: Its standard error.
        as_good_as_best: Whether the method may be used instead of the best.
        shown_worse_than_best: Whether the best is shown to be better.
        seconds: Duration of all folds.
        chosen: What the method chose itself, in the first fold.
    """

    method: str
    mse: Number
    mse_stderr: Number
    mse_over_label_variance: Number | None = None
    above_best: Number
    above_best_stderr: Number
    as_good_as_best: bool
    shown_worse_than_best: bool | None = None
    seconds: NonNegative
    chosen: str

    @property
    def is_worse(self) -> bool:
        """Whether the best is shown to be better; files of version 0.1 say it the other way."""
        worse = self.shown_worse_than_best
        return not self.as_good_as_best if worse is None else worse


@dataclass(frozen=True, kw_only=True)
class ComparisonRecord:
    """Methods compared on one label, the best first; see :class:`MethodComparison`."""

    target: str
    rows: Count
    rows_in_all: Count
    rows_of_unknown_variance: Count = 0
    unknown_variance: NonNegative | None = None
    folds: Count
    label_variance: Positive
    methods: Annotated[list[MethodRecord], Meta(min_length=1)]
    failed: dict[str, str]
    gain: Effect
    control: Effect
    weighted_scores: bool = True
    rank_correlation_with_label: Number | None = None
    gain_all_labels_alike: Effect | None
    finding: FindingRecord | None = None
    use_error_bars: bool | None = None
    recommendation: str

    def to_json(self) -> dict[str, Any]:
        """Return it as `biv compare --json` prints it."""
        return dict(typed_json.to_json(self))

    @classmethod
    def read(cls, path: Path, target: str, what: str = COMPARED) -> ComparisonRecord:
        """Return the comparison that a file holds.

        Args:
            path: What `biv compare --json` printed.
            target: Name of the label.
            what: Said of a file that is something else.

        Raises:
            ValueError: It is something else, or of another label.
        """
        found = typed_json.read(path, cls, what=what)
        if found.target != target:
            raise ValueError(
                f"{path} must be a comparison of the label {shortened(target)}; got "
                f"{shortened(found.target)}"
            )
        return found
