"""The best network of streamed training as a fitted estimator."""

from __future__ import annotations

import numpy as np
import torch

from biv.estimator.error_bars import ErrorBars
from biv.estimator.fitted import Fitted, FittedPart
from biv.estimator.regressor import BIVRegressor, assembled
from biv.estimator.training_labels import TrainingLabels
from biv.estimator.training_rows import raw
from biv.losses import registry
from biv.tables.survey import Rows, Survey
from biv.training import CrossFit
from biv.training.streamed import StreamedTraining
from biv.workflows.stream_plan import StreamPlan, StreamSettings

TINY = 1e-300  # replaces τ² = 0, so that trusted labels have a finite weight


def fitted_regressor(
    training: StreamedTraining,
    plan: StreamPlan,
    survey: Survey,
    held_out: Rows,
    settings: StreamSettings,
) -> BIVRegressor:
    """Return a fitted estimator with the network of the best epoch.

    Parameters
    ----------
    training : StreamedTraining
        Finished training.
    plan : StreamPlan
        Plan that it started with.
    survey : Survey
        Survey of the whole table.
    held_out : Rows
        Rows that it was not trained on; ``out_of_fold_`` is about these.
    settings : StreamSettings
        Settings of the training.
    """
    stopping, encoding, scalers = training.stopping, plan.encoding, [plan.encoding.label_scaler]
    module = plan.network(torch.Generator())
    module.load_state_dict(stopping.best)
    bars = None if held_out.variance is None else ErrorBars(held_out.variance[:, None], "y_var")
    fill = None if encoding.unknown is None or bars is None else np.array([encoding.unknown])
    labels = TrainingLabels.from_arrays(held_out.y[:, None], bars, held_out.weight, fill)
    diagnostics = labels.diagnose(raw(scalers, stopping.predicted.double().numpy()))
    if bars is not None:  # the size is for the whole table, not only for the held-out rows
        size = survey.labels.effective_sample_size(max(diagnostics.tau2[0], TINY))
        diagnostics = diagnostics._replace(effective_sample_size=size)
    ensemble = CrossFit(
        [module.eval()],
        stopping.epoch,
        np.array(stopping.scores),
        stopping.predicted,
        diagnostics.tau2[0] / encoding.label_scaler.std**2,
    )
    has_epsilon = "epsilon" in registry.get(settings.loss).user_settings and bars is not None
    epsilon = training.epsilons[stopping.epoch - 1] if has_epsilon else None
    part = FittedPart(
        encoding.feature_scaler, scalers, plan.network, ensemble, diagnostics, epsilon
    )
    regressor = BIVRegressor(  # refitting it in memory would train an ensemble
        loss=settings.loss,
        epsilon=settings.epsilon,
        threshold=settings.threshold,
        max_epochs=settings.max_epochs,
        learning_rate=settings.learning_rate,
        unknown_variance=settings.unknown_variance,
        random_state=settings.seed,
    )
    names = list(map(str, held_out.features.columns))
    return assembled(regressor, Fitted(True, encoding.encoder, [part], calibrated=False), names)
