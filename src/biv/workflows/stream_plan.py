"""Settings and plan of streamed training; the plan is made once and kept in checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from biv._utils import typed_json, validation
from biv.estimator.ensembles import EnsembleSettings
from biv.estimator.fit_output import PILOT_EPSILON
from biv.estimator.networks import candidate_networks
from biv.losses import modules, registry
from biv.losses.modules import VarianceLoss
from biv.models import MLP
from biv.tables.stream import Encoding
from biv.tables.survey import Rows, Survey
from biv.training import Triplets
from biv.training.numerics import numerical_settings
from biv.training.streamed import INCOMPLETE_CHECKPOINT

PILOT_ROWS = 8_192  # largest number of rows used to choose the embedding
MIN_PILOT_ROWS = 64


@dataclass(frozen=True)
class StreamSettings:
    """Settings of streamed training.

    Attributes
    ----------
    loss : str, default="biv"
        Name of a loss of :mod:`biv.losses.registry`.
    epsilon : float or "auto", default="auto"
        ε in units of the label variance. "auto" takes 0.05 in the first epoch, and after each epoch
        the τ² of the held-out rows.
    threshold : float or None, default=None
        Cutoff in squared label units; None takes the mean of the variances.
    max_epochs : int, default=100
        Largest number of passes over the rows.
    patience : int, default=4
        Number of epochs without a score better by 1% after which training stops.
    batch_size : int, default=1024
        Number of rows per step, of all processes together.
    learning_rate : float or None, default=None
        Learning rate of AdamW; None takes that of the estimator.
    unknown_variance : {"raise", "median"}, default="raise"
        Treatment of unknown variances.
    shards : int or None, default=None
        Number of shards of the row groups; None takes a number that processes share evenly.
    seed : int, default=0
        Seed of everything random.
    """

    loss: str = "biv"
    epsilon: float | str = "auto"
    threshold: float | None = None
    max_epochs: int = 100
    patience: int = 4
    batch_size: int = 1024
    learning_rate: float | None = None
    unknown_variance: str = "raise"
    shards: int | None = None
    seed: int = 0


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """Decisions before streamed training, which do not depend on the number of processes.

    Attributes
    ----------
    shards : int
        Number of shards that the row groups are assigned to.
    encoding : Encoding
        Conversion of rows of the table to inputs of the network.
    network : MLP
        Recipe of the network.
    learning_rate : float
        Learning rate of AdamW.
    """

    shards: int
    encoding: Encoding
    network: MLP
    learning_rate: float

    @classmethod
    def of(
        cls, survey: Survey, held_out: Rows, settings: StreamSettings, shards: int
    ) -> StreamPlan:
        """Return the plan of a new training run.

        Parameters
        ----------
        survey : Survey
            Survey of the whole table.
        held_out : Rows
            Rows that are not trained on; the embedding is chosen on them.
        settings : StreamSettings
            Settings of the training.
        shards : int
            Number of shards.
        """
        median = survey.labels.median_variance if settings.unknown_variance == "median" else None
        encoding = Encoding(survey.encoder(), survey.features(), survey.scaler(), median)
        ensembles = EnsembleSettings(seed=settings.seed)
        network = _chosen_network(
            encoding, held_out, ensembles, weighs=registry.get(settings.loss).uses_variance
        )
        return cls(shards, encoding, network, settings.learning_rate or ensembles.rate(network))

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON."""
        return {
            "shards": self.shards,
            "encoding": self.encoding.to_json(),
            "recipe": asdict(self.network),
            "learning_rate": self.learning_rate,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any], checkpoint: Path, row_groups: int) -> StreamPlan:
        """Return the plan that a checkpoint holds.

        Parameters
        ----------
        content : mapping
            JSON of the plan.
        checkpoint : Path
            File that it comes from, which errors name.
        row_groups : int
            Number of row groups of the table.

        Raises
        ------
        DamagedFileError
            If something is missing, or has another type.
        """
        with typed_json.errors_name_file(checkpoint, INCOMPLETE_CHECKPOINT):
            return cls(
                validation.integer("shards", content["shards"], at_least=1, at_most=row_groups),
                Encoding.from_json(content["encoding"]),
                typed_json.convert(content["recipe"], MLP),
                typed_json.convert(content["learning_rate"], float),
            )


def _chosen_network(
    encoding: Encoding, held_out: Rows, ensembles: EnsembleSettings, *, weighs: bool
) -> MLP:
    """Return the network of the estimator, with the best embedding of a short training run."""
    every = -(-len(held_out) // PILOT_ROWS)
    batch = encoding(held_out[np.arange(0, len(held_out), every)])
    rows = Triplets(*(None if c is None else torch.tensor(c) for c in tuple(batch)))  # type: ignore[arg-type]
    candidates = candidate_networks(ensembles.model, rows.x, encoding.encoder)
    networks = [network for network in candidates if isinstance(network, MLP)]
    if len(networks) == 1 or len(rows) < MIN_PILOT_ROWS:
        return networks[0]
    loss: VarianceLoss = modules.L2Loss()
    if weighs and rows.variance is not None:
        loss = modules.BIVLoss(PILOT_EPSILON)

    def score(network: MLP) -> float:
        return float(ensembles.train(network, rows, loss, pilot=True).scores.min())

    with numerical_settings():
        return min(networks, key=score)
