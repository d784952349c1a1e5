"""Training of the ensemble of one output: settings, and the schedule derived from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from biv.estimator.networks import Network, NetworkFunction, default_learning_rate
from biv.losses.modules import VarianceLoss
from biv.training import CrossFit, Schedule, Triplets, cross_fit

PILOT_EPOCHS, PILOT_STEPS = 12, 96  # a pilot has 12 epochs, or more to make 96 steps
PILOT_FOLDS = 4  # at most; then each member of a pilot is trained on three quarters of the rows
USUAL_BATCH, SMALLEST_BATCH = 256, 32
STEPS = 24  # per epoch; the batches of a small table are made smaller to reach it
EPOCH_ROWS = 1 << 16  # rows per epoch of a large table
MIN_EPOCHS, PATIENT_STEPS = 4, 96  # patience: 4 epochs, or more to make 96 steps
WEIGHT_DECAY = 0.01
AVERAGING = 2.0  # chosen on noisy held-out labels


@dataclass(frozen=True)
class EnsembleSettings:
    """Settings of the ensembles of one model; :class:`biv.BIVRegressor` documents them.

    Attributes
    ----------
    model : {"ensemble", "paper"} or callable, default="ensemble"
        Architecture, or a function that returns a network.
    members : int, default=16
        Number of networks.
    folds : int, default=8
        Number of folds of the rows.
    max_epochs : int, default=100
        Maximum number of epochs.
    patience : int or None, default=None
        Number of epochs without a better score before training stops. None depends on the number
        of rows.
    batch_size : int or None, default=None
        Number of rows per step. None depends on the number of rows.
    learning_rate : float or None, default=None
        Learning rate of AdamW. None depends on the network.
    weight_decay : float, default=0.01
        Weight decay of AdamW.
    seed : int, default=0
        Seed of folds, initial parameters and orders of rows.
    threads : int, default=1
        Number of threads for training.
    progress : bool, default=False
        Whether to show a progress bar on a terminal.
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
        """Return the learning rate for a network."""
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

        Parameters
        ----------
        network : Network
            Specification of the members.
        rows : Triplets
            Scaled features and labels. With fewer rows than folds, each row is a fold.
        loss : VarianceLoss
            Loss of all members, with ε in units of the label variance.
        pilot : bool, default=False
            Whether to train fewer members for a few epochs only. Their out-of-fold predictions
            decide about the network, ε and the error bars of the full ensemble.
        checkpoint : Path or None, default=None
            File to resume from and to save to.

        Returns
        -------
        CrossFit
            Trained members, with their out-of-fold predictions.
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
        """Return the number of rows per batch and of batches per epoch of each member."""
        training_rows = rows - -(-rows // folds)
        size = self.batch_size or min(USUAL_BATCH, max(SMALLEST_BATCH, training_rows // STEPS))
        steps = -(-training_rows // size)
        if self.batch_size is None:
            # Equal batches: a small last one would have the same influence as the others.
            size = -(-training_rows // steps)
        return size, steps
