"""Content of `biv compare --json` and of comparison.json in a model folder.

Field names are those of the JSON. Fields with a default may be missing in files of version 0.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
    """Relative reduction of one error below another, with a 95% interval.

    The other error is the denominator. If it is less than one standard error above 0, its standard
    error takes its place.
    """

    value: Number
    low: Number
    high: Number

    def __str__(self) -> str:
        if self.value < 0:
            return f"{-self.value:.1%} ({-self.high:.1%} to {-self.low:.1%}) higher"
        return f"{self.value:.1%} ({self.low:.1%} to {self.high:.1%}) lower"

    @property
    def in_words(self) -> str:
        """The change of the error, such as "lowers the error by 12.3% (6.9% to 17.6%)"."""
        amount, _, direction = str(self).rpartition(" ")
        return f"{'lowers' if direction == 'lower' else 'raises'} the error by {amount}"


@dataclass(frozen=True, kw_only=True)
class MethodRecord:
    """Result of one method, with errors in squared label units.

    Attributes
    ----------
    method : str
        Name of the method.
    mse, mse_stderr : float
        Noise-corrected mean squared error on held-out rows, and its standard error.
    mse_over_label_variance : float or None
        The same error in units of the label variance.
    above_best, above_best_stderr : float
        Paired difference to the error of the best method, and its standard error.
    as_good_as_best : bool
        Whether the method may be used instead of the best one.
    shown_worse_than_best : bool or None
        Whether the best method is significantly better.
    seconds : float
        Duration of all folds.
    chosen : str
        Setting that the method chose itself, in the first fold.
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
        """Whether the best is significantly better; files of version 0.1 lack that field."""
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
    reasons: list[str] = field(default_factory=list)  # files of version 0.1 have none

    def to_json(self) -> dict[str, Any]:
        """Return it as `biv compare --json` prints it."""
        return dict(typed_json.to_json(self))

    @classmethod
    def read(cls, path: Path, target: str, what: str = COMPARED) -> ComparisonRecord:
        """Read a comparison from a file.

        Parameters
        ----------
        path : Path
            File with the output of `biv compare --json`.
        target : str
            Name of the label.
        what : str
            Description of the file in an error.

        Raises
        ------
        ValueError
            If the file holds something else, or a comparison of another label.
        """
        comparison = typed_json.read(path, cls, what=what)
        if comparison.target != target:
            raise ValueError(
                f"{path} must be a comparison of the label {shortened(target)}; got "
                f"{shortened(comparison.target)}"
            )
        return comparison
