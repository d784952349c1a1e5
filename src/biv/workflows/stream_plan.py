"""How a table in pieces is dealt, scaled and learned from: decided once, kept in checkpoints."""

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

PILOT_ROWS = 8_192  # that the embedding is chosen on
MIN_PILOT_ROWS = 64


@dataclass(frozen=True)
class StreamSettings:
    """How a network is trained on a table in pieces.

    Attributes:
        loss: Name of a loss of :mod:`biv.losses.registry`.
        epsilon: "auto": 0.05 in the first epoch, then the τ² of the rows held out, after every one;
            or a number in units of the label variance.
        threshold: Cutoff in squared units of y; None takes the mean of the variances.
        max_epochs: Largest number of passes over the rows.
        patience: Number of epochs without a score better by 1% after which training stops.
        batch_size: Rows per step, of all processes together.
        learning_rate: Learning rate of AdamW; None takes that of the estimator.
        unknown_variance: "raise" or "median".
        shards: Number of shards of the row groups; None takes as many as processes share evenly.
        seed: Seed of everything random.
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
    """What a streamed training begins with, whatever the number of processes.

    Attributes:
        shards: Number of shards that the row groups are dealt to.
        encoding: From rows of the table to what the network learns from.
        network: How the network is made.
        learning_rate: Learning rate of AdamW.
    """

    shards: int
    encoding: Encoding
    network: MLP
    learning_rate: float

    @classmethod
    def of(
        cls, survey: Survey, held_out: Rows, settings: StreamSettings, shards: int
    ) -> StreamPlan:
        """Return the plan of a new training.

        Args:
            survey: Survey of the whole table.
            held_out: Rows that are not learned from, on which the embedding is chosen.
            settings: Settings of the training.
            shards: Number of shards.
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

        Args:
            content: Its JSON.
            checkpoint: File that it comes from.
            row_groups: Number of row groups of the table.

        Raises:
            DamagedFileError: Something is missing, or of another type.
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
    """Return the estimator's own network, its embedding chosen by short trainings."""
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
