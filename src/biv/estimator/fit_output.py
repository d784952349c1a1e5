"""The fit of one output: short trainings decide, and then the ensemble is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from biv._utils.wording import Message, Setting
from biv.epsilon import EpsilonPolicy, Fixed, Relative
from biv.estimator.ensembles import EnsembleSettings
from biv.estimator.fitted import FittedPart
from biv.estimator.networks import Network
from biv.estimator.training_rows import TrainingRows
from biv.losses.modules import BIVLoss, L2Loss
from biv.losses.registry import LossInfo
from biv.preprocessing import FeatureScaler
from biv.training import CrossFit

Array = npt.NDArray[Any]

PILOT_EPSILON = 0.05  # the paper's, for labels of unit variance
AUTO_EPSILON_FRACTION = 0.2  # "auto" also tries ε = 0.2·τ²


@dataclass(frozen=True)
class FitSettings:
    """What the fit of an output needs to know; :class:`biv.BIVRegressor` documents it.

    Attributes:
        loss: Loss of the ensemble.
        epsilon: "auto", a number in units of the label variance, or a policy.
        threshold: Cutoff in squared units of y; None is the mean of the variances.
        estimate_unknown: Whether unknown variances are estimated from residuals.
        calibrate: Whether the variances are multiplied by a factor estimated from residuals.
        ensemble: How ensembles are trained.
    """

    loss: LossInfo
    epsilon: float | str | EpsilonPolicy
    threshold: float | None
    estimate_unknown: bool
    calibrate: bool
    ensemble: EnsembleSettings


@dataclass(frozen=True, eq=False)
class OutputFit:
    """The ensemble of one output, and what was decided before it was trained.

    Attributes:
        rows: Rows that it was trained on, with calibrated and estimated variances.
        network: Network that was chosen.
        ensemble: Trained networks.
        epsilon: ε in units of the label variance, if it is one number.
    """

    rows: TrainingRows
    network: Network
    ensemble: CrossFit
    epsilon: float | None

    @cached_property
    def out_of_fold(self) -> Array:
        """Predictions of its rows by networks that have not seen them, (N, D), in units of y."""
        return self.rows.raw(self.ensemble.out_of_fold)

    def part(self, features: FeatureScaler, x: Tensor, used: npt.NDArray[np.bool_]) -> FittedPart:
        """Return what the fitted model keeps, with an out-of-fold prediction of every row.

        No member has learned from the rows without a label, so that all members predict them.

        Args:
            features: Scaler of the features.
            x: Scaled features of all rows of the table, (N, F).
            used: Which of them the fit has learned from, (N,).
        """
        ensemble = self.ensemble
        if not used.all():
            others = torch.from_numpy(~used)
            out_of_fold = x.new_empty(len(x), ensemble.out_of_fold.shape[1])
            out_of_fold[~others] = ensemble.out_of_fold
            out_of_fold[others] = ensemble.predict(x[others]).mean(dim=0)
            ensemble = replace(ensemble, out_of_fold=out_of_fold)
        diagnostics = self.rows.labels.diagnose(self.out_of_fold)
        scalers = self.rows.scalers
        return FittedPart(features, scalers, self.network, ensemble, diagnostics, self.epsilon)


def fit_output(
    rows: TrainingRows,
    candidates: Sequence[Network],
    settings: FitSettings,
    checkpoint: Path | None = None,
) -> OutputFit:
    """Train pilots if something is to be learned from them first, and then the ensemble.

    Args:
        rows: Rows of one output.
        candidates: Networks to choose from.
        settings: Settings of the fit.
        checkpoint: File that the ensemble's training resumes from and saves to.
    """
    network = candidates[0]
    epsilon: Any = settings.epsilon
    automatic = "epsilon" in settings.loss.tuned and isinstance(epsilon, str)
    estimates = settings.estimate_unknown and rows.labels.has_unknown
    if automatic or estimates or settings.calibrate or len(candidates) > 1:
        network, out_of_fold = _best_candidate(rows, candidates, settings)
        labels = rows.labels
        if settings.calibrate:
            labels = labels.calibrated(out_of_fold)
        if estimates:
            labels = labels.with_estimates(out_of_fold)
        rows = replace(rows, labels=labels)
        if automatic:
            epsilon = _automatic_epsilon(rows, network, out_of_fold, settings)
    arguments: dict[str, Any] = {}
    if "epsilon" in settings.loss.tuned:
        if isinstance(epsilon, (Fixed, Relative)):
            epsilon = rows.scalers[0].variance(float(epsilon.resolve(torch.zeros(1))))
        arguments["epsilon"] = epsilon
    if "threshold" in settings.loss.tuned:
        arguments["threshold"] = _threshold(settings, rows)
    loss = settings.loss.create(**arguments)
    ensemble = settings.ensemble.train(network, rows.triplets, loss, checkpoint=checkpoint)
    is_number = "epsilon" in arguments and not isinstance(epsilon, EpsilonPolicy)
    return OutputFit(rows, network, ensemble, float(epsilon) if is_number else None)


def _pilot(rows: TrainingRows, network: Network, epsilon: float, settings: FitSettings) -> Array:
    """Return what a pilot predicts out of fold, (N, D), in units of y."""
    loss = BIVLoss(epsilon) if settings.loss.uses_variance else L2Loss()
    return rows.raw(settings.ensemble.train(network, rows.triplets, loss, pilot=True).out_of_fold)


def _best_candidate(
    rows: TrainingRows, candidates: Sequence[Network], settings: FitSettings
) -> tuple[Network, Array]:
    """Return the network whose pilot predicts unseen labels best, and these predictions."""
    tried = [(own, _pilot(rows, own, PILOT_EPSILON, settings)) for own in candidates]
    return min(tried, key=lambda one: rows.score(one[1]))


def _automatic_epsilon(
    rows: TrainingRows, network: Network, out_of_fold: Array, settings: FitSettings
) -> float:
    """Return τ², or a fifth of it where a pilot with that predicts unseen labels better.

    Less is better where the best labels are also the ones that there is most to learn from.
    """
    tau2 = rows.residual_variance(out_of_fold)
    less = AUTO_EPSILON_FRACTION * tau2
    if tau2 > 0 and rows.score(_pilot(rows, network, less, settings)) < rows.score(out_of_fold):
        return less
    return tau2


def _threshold(settings: FitSettings, rows: TrainingRows) -> float:
    """Return the cutoff in units of the label variance.

    Raises:
        ValueError: No label has a lower variance.
    """
    variance = rows.triplets.variance
    assert variance is not None
    finite = variance[variance.isfinite()]
    threshold = float(finite.mean())
    if settings.threshold is not None:
        threshold = rows.scalers[0].variance(float(settings.threshold))
    if not bool((finite < threshold).any()):
        lowest = float(np.nanmin(np.asarray(rows.labels.variance)))
        raise ValueError(
            Message(
                "{loss} keeps no label: the lowest variance is {lowest:.4g}, and {threshold} is "
                "{found}",
                loss=Setting("loss", settings.loss.name),
                lowest=lowest,
                threshold=Setting("threshold"),
                found="their mean" if settings.threshold is None else f"{settings.threshold:.4g}",
            )
        )
    return threshold
