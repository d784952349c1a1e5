"""What about.json of a model folder holds: how a model was trained, and what the fit found.

Field names are those of the file. Fields with a default may be missing: version 0.1 did not write
them, or they belong to a streamed training.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import UNSET, Meta, UnsetType

from biv import metrics
from biv._utils import typed_json
from biv._utils.typed_json import Count, NonNegative, Number, Positive, Scalar
from biv.estimator.findings import FindingRecord
from biv.estimator.regressor import BIVRegressor
from biv.tables import Target
from biv.tables.schema import Schema
from biv.workflows.label_correlation import label_correlation
from biv.workflows.scores import r2_scores

Floats = npt.NDArray[np.float64]

FORMAT = "biv model folder 1"


@dataclass(frozen=True, kw_only=True)
class FitRecord:
    """What a fit found, in units of the labels; None where a number is undefined.

    Attributes:
        epoch: The chosen epoch, from 1 on.
        epochs: Number of epochs trained.
        mse: Mean squared error to the true labels, on rows that the networks had not seen.
        mse_stderr: Its standard error.
        r2: R² to the true labels, likewise.
        r2_stderr: Its standard error.
        r2_all_labels_alike: R² with all labels alike.
        r2_all_labels_alike_stderr: Its standard error.
        mse_all_labels_alike: Mean squared error with all labels alike.
        mse_all_labels_alike_stderr: Its standard error.
        rank_correlation_with_label: Rank correlation of σ² with the label.
        label_variance: Variance of the labels without their noise.
        tau2: Variance of the model's own error.
        epsilon: ε of the loss; None of a loss without one.
        relative_epsilon: ε in units of the label variance.
        effective_sample_size: Kish's, of weights 1/(σ²+τ²).
        variance_factor: Factor by which the variances seem to be too small.
        variance_factor_interval: Its 95% interval; None without error bars.
        unknown_variance: σ² taken for labels whose error bar is unknown.
        history: Score of each epoch, in units of the label variance.
        train_loss: Training losses of a stream, each the mean of a number of steps.
        train_loss_steps: That number.
        finding: What the residuals say about the error bars.
    """

    epoch: Annotated[int, Meta(ge=1)]
    epochs: Count
    mse: Number
    mse_stderr: Number
    r2: Number | None
    r2_stderr: Number | None
    r2_all_labels_alike: Number | None = None
    r2_all_labels_alike_stderr: Number | None = None
    mse_all_labels_alike: Number
    mse_all_labels_alike_stderr: Number
    rank_correlation_with_label: Number
    label_variance: Positive
    tau2: NonNegative
    epsilon: NonNegative | None
    relative_epsilon: NonNegative | None
    effective_sample_size: NonNegative
    variance_factor: Number | None
    variance_factor_interval: tuple[Number | None, Number | None] | None
    unknown_variance: NonNegative | None
    history: list[Number | None]
    train_loss: Annotated[list[Number | None], Meta(min_length=1)] | UnsetType = UNSET
    train_loss_steps: Count | UnsetType = UNSET
    finding: FindingRecord | None = None

    @classmethod
    def of(
        cls, model: BIVRegressor, y: Floats, variance: Floats | None, weight: Floats | None
    ) -> FitRecord:
        """Summarize a fit, without a finding.

        Args:
            model: Fitted.
            y: The labels that ``model.out_of_fold_`` is of.
            variance: Their σ².
            weight: Their importance.
        """
        known = model._fitted.new_variance(y, variance, None)
        noise = np.zeros(len(y)) if known is None else known[:, 0]
        epsilon = model.epsilon_
        label_variance = float(model._fitted.labels[0].std) ** 2
        mse, plain_mse = (
            metrics.noise_corrected_mse(
                model.out_of_fold_, y, noise, weighted=weighted, sample_weight=weight
            )
            for weighted in (True, False)
        )
        r2, plain_r2 = (
            metrics.Score(1 - score.value / label_variance, score.stderr / label_variance)
            for score in (mse, plain_mse)
        )
        if weight is None:
            r2, plain_r2 = r2_scores(model.out_of_fold_, y, noise)
        interval = model.variance_factor_interval_
        return cls(
            epoch=model.n_epochs_,
            epochs=len(model.history_),
            mse=mse.value,
            mse_stderr=mse.stderr,
            r2=_finite(r2.value),
            r2_stderr=_finite(r2.stderr),
            r2_all_labels_alike=_finite(plain_r2.value),
            r2_all_labels_alike_stderr=_finite(plain_r2.stderr),
            mse_all_labels_alike=plain_mse.value,
            mse_all_labels_alike_stderr=plain_mse.stderr,
            rank_correlation_with_label=label_correlation(y, variance),
            label_variance=label_variance,
            tau2=float(model.tau2_),
            epsilon=None if epsilon is None else float(epsilon),
            relative_epsilon=None if epsilon is None else float(epsilon) / label_variance,
            effective_sample_size=float(model.effective_sample_size_),
            variance_factor=_finite(model.variance_factor_),
            variance_factor_interval=None
            if interval is None
            else (_finite(interval[0]), _finite(interval[1])),
            unknown_variance=_finite(model.unknown_variance_),
            history=[_finite(score) for score in model.history_],
        )

    @property
    def has_error_bars(self) -> bool:
        """Whether the fit was given error bars."""
        return self.variance_factor_interval is not None

    def check(self) -> None:
        """Check what types do not say.

        Raises:
            ValueError: Fields contradict each other.
        """
        if self.epoch > len(self.history) or self.history[self.epoch - 1] is None:
            raise ValueError(f"about.result.history must have a score of epoch {self.epoch}")
        if self.epsilon is not None and self.relative_epsilon is None:
            raise ValueError("about.result.relative_epsilon must be a number, as epsilon is")
        for name in ("r2", "r2_all_labels_alike"):
            if getattr(self, name) is not None and getattr(self, f"{name}_stderr") is None:
                raise ValueError(f"about.result.{name}_stderr must be a number, as {name} is")


@dataclass(frozen=True, kw_only=True)
class TrainingRecord:
    """How a model was trained.

    Attributes:
        command: Command that trained it, if one did.
        files: Files of its table, each with its number of rows.
        rows: Number of rows with a label.
        rows_without_label: Number of rows without one, which were left out.
        rows_held_out: Of a stream: rows that the epoch was chosen by.
        processes: Of a stream: number of processes.
        shards: Of a stream: number of shards.
        steps: Of a stream: number of training steps.
        settings: Settings of the estimator or of the stream.
        result: What the fit found.
        seconds: Duration of the training.
        peak_memory_bytes: Peak memory of the process; None where that is not known.
    """

    command: str | None
    files: dict[str, Count]
    rows: Count
    rows_without_label: Count
    rows_held_out: Count | UnsetType = UNSET
    processes: Count | UnsetType = UNSET
    shards: Count | UnsetType = UNSET
    steps: Count | UnsetType = UNSET
    settings: dict[str, Scalar | list[Scalar]]
    result: FitRecord
    seconds: NonNegative
    peak_memory_bytes: Count | None


@dataclass(frozen=True, kw_only=True)
class FolderManifest:
    """Content of about.json.

    Attributes:
        biv: Version that wrote it.
        schema: What the columns of the table meant.
        target: Where the labels were.
        about: How the model was trained.
        files: SHA-256 of the other files of the folder.
    """

    biv: str = ""
    schema: Schema
    target: Target
    about: TrainingRecord
    files: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return it as the file holds it."""
        return {"format": FORMAT, **typed_json.to_json(self)}

    @classmethod
    def read(cls, path: Path) -> FolderManifest:
        """Return the content of a file.

        Raises:
            ValueError: It is damaged, or of another version.
        """
        found = typed_json.read(path, cls, FORMAT)
        with typed_json.errors_name_file(path):
            found.about.result.check()
        return found


def _finite(value: float | None) -> float | None:
    """Return a number as JSON has it: None where it is undefined."""
    return None if value is None or not math.isfinite(value) else float(value)


def peak_memory() -> int | None:
    """Return the peak memory of this process in bytes; None where that is not known."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
