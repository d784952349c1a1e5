"""Content of about.json of a model folder: how a model was trained, and the results of the fit.

Field names are those of the file. Fields with a default may be missing, because version 0.1 did not
write them or because they belong to a streamed training run.
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
    """Results of a fit, in label units; a number is None where it is undefined.

    Attributes
    ----------
    epoch : int
        Number of the chosen epoch, starting at 1.
    epochs : int
        Number of epochs trained.
    mse, mse_stderr : float
        Weighted mean squared error to the true labels on held-out rows, in squared label units, and
        its standard error.
    r2, r2_stderr : float or None
        Weighted R² to the true labels on held-out rows, and its standard error.
    r2_all_labels_alike, r2_all_labels_alike_stderr : float or None
        The same R², unweighted, and its standard error.
    mse_all_labels_alike, mse_all_labels_alike_stderr : float
        The same mean squared error, unweighted, and its standard error.
    rank_correlation_with_label : float
        Rank correlation of σ² with the label.
    label_variance : float
        Variance of the labels without their noise, in squared label units.
    tau2 : float
        Variance of the model's own error, in squared label units.
    epsilon : float or None
        ε of the loss, in squared label units; None for a loss without ε.
    relative_epsilon : float or None
        ε in units of the label variance.
    effective_sample_size : float
        Kish's effective sample size for the weights 1/(σ²+τ²).
    variance_factor : float or None
        Estimated factor by which the variances should be multiplied.
    variance_factor_interval : (float or None, float or None) or None
        Its 95% interval; None without error bars.
    unknown_variance : float or None
        σ² used for labels whose error bar is unknown.
    history : list of float or None
        Score of each epoch, in units of the label variance.
    train_loss : list of float or None
        Training losses of a streamed training run, each a mean over several steps.
    train_loss_steps : int
        Number of steps of each of these means.
    finding : FindingRecord or None
        Finding about the error bars.
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

        Parameters
        ----------
        model : BIVRegressor
            Fitted model.
        y : (N,) array
            Labels of the rows of ``model.out_of_fold_``.
        variance : (N,) array or None
            σ² of these labels.
        weight : (N,) array or None
            Sample weights of these labels.
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
        """Whether the labels had error bars."""
        return self.variance_factor_interval is not None

    def check(self) -> None:
        """Check the relations between fields.

        Raises
        ------
        ValueError
            If fields contradict each other.
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
    """Record of how a model was trained.

    Attributes
    ----------
    command : str or None
        Command that trained the model; None if Python code did.
    files : dict of str to int
        Files of the table, each with its number of rows.
    rows : int
        Number of rows with a label.
    rows_without_label : int
        Number of rows without a label, which were left out.
    rows_held_out : int
        Number of rows that the epoch was chosen by (streamed training only).
    processes, shards, steps : int
        Number of processes, of shards and of training steps (streamed training only).
    settings : dict
        Settings of the estimator or of the streamed training run.
    result : FitRecord
        Results of the fit.
    seconds : float
        Duration of training.
    peak_memory_bytes : int or None
        Peak memory of the process; None where it is unknown.
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

    Attributes
    ----------
    biv : str
        Version that wrote the file.
    schema : Schema
        Meaning of the columns of the table.
    target : Target
        Columns of the labels.
    about : TrainingRecord
        How the model was trained.
    files : dict of str to str
        SHA-256 checksums of the other files of the folder.
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
        """Read a file.

        Raises
        ------
        ValueError
            If it is damaged, or of another version.
        """
        manifest = typed_json.read(path, cls, FORMAT)
        with typed_json.errors_name_file(path):
            manifest.about.result.check()
        return manifest


def _finite(value: float | None) -> float | None:
    """Return a finite number, or None, since JSON has no NaN."""
    return None if value is None or not math.isfinite(value) else float(value)


def peak_memory() -> int | None:
    """Return the peak memory of this process in bytes; None where it is unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
