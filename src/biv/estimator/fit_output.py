"""Fit of one output: pilots (short training runs) choose the settings of the ensemble."""

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

PILOT_EPSILON = 0.05  # the ε of the paper, for labels of unit variance
AUTO_EPSILON_FRACTION = 0.2  # "auto" also tries ε = 0.2·τ²


@dataclass(frozen=True)
class FitSettings:
    """Settings of the fit of an output; :class:`biv.BIVRegressor` documents them.

    Attributes
    ----------
    loss : LossInfo
        Loss of the ensemble.
    epsilon : "auto", float or EpsilonPolicy
        ε. A number is in units of the label variance.
    threshold : float or None
        Cutoff in squared units of y. None is the mean of the variances.
    estimate_unknown : bool
        Whether unknown variances are estimated from residuals.
    calibrate : bool
        Whether the variances are multiplied by a factor estimated from residuals.
    ensemble : EnsembleSettings
        Settings of the training.
    """

    loss: LossInfo
    epsilon: float | str | EpsilonPolicy
    threshold: float | None
    estimate_unknown: bool
    calibrate: bool
    ensemble: EnsembleSettings


@dataclass(frozen=True, eq=False)
class OutputFit:
    """Ensemble of one output, with the settings that the pilots chose.

    Attributes
    ----------
    rows : TrainingRows
        Training rows, with calibrated and estimated variances.
    network : Network
        Chosen network.
    ensemble : CrossFit
        Trained networks.
    epsilon : float or None
        ε in units of the label variance, if it is one number.
    """

    rows: TrainingRows
    network: Network
    ensemble: CrossFit
    epsilon: float | None

    @cached_property
    def out_of_fold(self) -> Array:
        """Out-of-fold predictions of the training rows, (N, D), in units of y."""
        return self.rows.raw(self.ensemble.out_of_fold)

    def part(self, features: FeatureScaler, x: Tensor, used: npt.NDArray[np.bool_]) -> FittedPart:
        """Return this output's part of the fitted model, with a prediction of every row.

        No member was trained on the rows that were not used, so all members predict these.

        Parameters
        ----------
        features : FeatureScaler
            Scaler of the features.
        x : Tensor of shape (N, F)
            Scaled features of all rows of the table.
        used : ndarray of bool of shape (N,)
            True for the training rows.

        Returns
        -------
        FittedPart
            Part of the fitted model.
        """
        ensemble = self.ensemble
        if not used.all():
            unused = torch.from_numpy(~used)
            out_of_fold = x.new_empty(len(x), ensemble.out_of_fold.shape[1])
            out_of_fold[~unused] = ensemble.out_of_fold
            out_of_fold[unused] = ensemble.predict(x[unused]).mean(dim=0)
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
    """Train pilots if a setting depends on them, and then train the ensemble.

    Parameters
    ----------
    rows : TrainingRows
        Rows of one output.
    candidates : sequence of Network
        Networks to choose from.
    settings : FitSettings
        Settings of the fit.
    checkpoint : Path or None, default=None
        File that the ensemble's training resumes from and saves to.

    Returns
    -------
    OutputFit
        Trained ensemble.

    Raises
    ------
    ValueError
        The cutoff loss keeps no label, or the variances cannot be calibrated.
    """
    network = candidates[0]
    epsilon: Any = settings.epsilon
    automatic = "epsilon" in settings.loss.user_settings and isinstance(epsilon, str)
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
    if "epsilon" in settings.loss.user_settings:
        if isinstance(epsilon, (Fixed, Relative)):
            epsilon = rows.scalers[0].variance(float(epsilon.resolve(torch.zeros(1))))
        arguments["epsilon"] = epsilon
    if "threshold" in settings.loss.user_settings:
        arguments["threshold"] = _threshold(settings, rows)
    loss = settings.loss.create(**arguments)
    ensemble = settings.ensemble.train(network, rows.triplets, loss, checkpoint=checkpoint)
    is_number = "epsilon" in arguments and not isinstance(epsilon, EpsilonPolicy)
    return OutputFit(rows, network, ensemble, float(epsilon) if is_number else None)


def _pilot(rows: TrainingRows, network: Network, epsilon: float, settings: FitSettings) -> Array:
    """Train a pilot and return its out-of-fold predictions, (N, D), in units of y."""
    loss = BIVLoss(epsilon) if settings.loss.uses_variance else L2Loss()
    return rows.raw(settings.ensemble.train(network, rows.triplets, loss, pilot=True).out_of_fold)


def _best_candidate(
    rows: TrainingRows, candidates: Sequence[Network], settings: FitSettings
) -> tuple[Network, Array]:
    """Return the network whose pilot has the best score, and its out-of-fold predictions."""
    pilots = [(network, _pilot(rows, network, PILOT_EPSILON, settings)) for network in candidates]
    return min(pilots, key=lambda pilot: rows.score(pilot[1]))


def _automatic_epsilon(
    rows: TrainingRows, network: Network, out_of_fold: Array, settings: FitSettings
) -> float:
    """Return τ², or a fifth of it if a pilot with that ε predicts held-out labels better.

    A smaller ε is better where the most precise labels are also the most informative ones.
    """
    tau2 = rows.residual_variance(out_of_fold)
    smaller = AUTO_EPSILON_FRACTION * tau2
    if tau2 > 0 and rows.score(_pilot(rows, network, smaller, settings)) < rows.score(out_of_fold):
        return smaller
    return tau2


def _threshold(settings: FitSettings, rows: TrainingRows) -> float:
    """Return the cutoff in units of the label variance.

    Raises
    ------
    ValueError
        No label has a lower variance.
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
                "{loss} needs a label with a variance below {limit}; got a lowest variance of "
                "{lowest:.4g}: set a larger {threshold}",
                loss=Setting("loss", settings.loss.name),
                limit="the mean of the variances"
                if settings.threshold is None
                else Setting("threshold", float(settings.threshold)),
                lowest=lowest,
                threshold=Setting("threshold"),
            )
        )
    return threshold
