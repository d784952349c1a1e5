"""How the ensemble of one output is trained: the settings, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from biv.estimator.networks import Network, NetworkFunction, default_learning_rate
from biv.losses.modules import VarianceLoss
from biv.training import CrossFit, Schedule, Triplets, cross_fit

PILOT_EPOCHS, PILOT_STEPS = 12, 96  # of a pilot: at most 12 epochs, or more to make 96 steps
PILOT_FOLDS = 4  # at most: each member of a pilot learns from three quarters of the rows
USUAL_BATCH, SMALLEST_BATCH, STEPS = 256, 32, 24  # an epoch of a small table has so many steps
EPOCH_ROWS = 1 << 16  # of a large table
MIN_EPOCHS, PATIENT_STEPS = 4, 96
WEIGHT_DECAY = 0.01
AVERAGING = 2.0  # chosen on noisy held-out labels


@dataclass(frozen=True)
class EnsembleSettings:
    """Settings of the ensembles of one model; :class:`biv.BIVRegressor` documents them.

    Attributes:
        model: "ensemble", "paper", or a function that makes a network.
        members: Number of networks.
        folds: Number of parts that the rows are dealt into.
        max_epochs: Largest number of passes over the rows.
        patience: Epochs without a better score before training stops; None follows the table.
        batch_size: Rows per step; None follows the table.
        learning_rate: Learning rate of AdamW; None follows the network.
        weight_decay: Weight decay of AdamW.
        seed: Seed of folds, first parameters and orders.
        threads: Number of threads to train on.
        progress: Whether to show a bar on a terminal.
    """

    model: str | NetworkFunction = "ensemble"
    members: int = 16
    folds: int = 8
    max_epochs: int = 100
    patience: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float = WEIGHT_DECAY
    seed: int = 0
    threads: int = 1
    progress: bool = False

    def rate(self, network: Network) -> float:
        """Return the learning rate of a network."""
        if self.learning_rate is not None:
            return self.learning_rate
        return default_learning_rate(self.model, network)

    def train(
        self,
        network: Network,
        rows: Triplets,
        loss: VarianceLoss,
        *,
        pilot: bool = False,
        checkpoint: Path | None = None,
    ) -> CrossFit:
        """Train an ensemble on the rows of one output.

        Args:
            network: How its networks are made.
            rows: Scaled features and labels; with fewer rows than folds, each row is a fold.
            loss: Loss of all members; ε in units of the label variance.
            pilot: Whether to train fewer members for a few epochs only. Their out-of-fold
                predictions decide about the network, ε and the error bars of the full ensemble.
            checkpoint: File to resume from and to save to.
        """
        folds = min(self.folds, len(rows), PILOT_FOLDS if pilot else len(rows))
        size, steps = self._batches(len(rows), folds)
        epochs = self.max_epochs
        if pilot:
            epochs = min(max(PILOT_EPOCHS, -(-PILOT_STEPS // steps)), epochs)
        schedule = Schedule(
            epochs=epochs,
            batch_size=size,
            epoch_rows=EPOCH_ROWS,
            test_every=None,
            optimizer="adamw",
            weight_decay=self.weight_decay,
            averaging=AVERAGING,
        )
        return cross_fit(
            network,
            rows,
            schedule,
            loss=loss,
            learning_rate=self.rate(network),
            members=folds if pilot or folds < self.folds else self.members,
            folds=folds,
            patience=self.patience or max(MIN_EPOCHS, -(-PATIENT_STEPS // steps)),
            seed=self.seed % 2**20,
            threads=self.threads,
            progress=self.progress,
            checkpoint=checkpoint,
        )

    def _batches(self, rows: int, folds: int) -> tuple[int, int]:
        """Return the rows per batch and the batches per epoch of each member."""
        learned = rows - -(-rows // folds)
        size = self.batch_size or min(USUAL_BATCH, max(SMALLEST_BATCH, learned // STEPS))
        steps = -(-learned // size)
        if self.batch_size is None:
            size = -(-learned // steps)  # all alike: a small last one would count as much as others
        return size, steps
