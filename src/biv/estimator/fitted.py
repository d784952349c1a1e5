"""A fitted model: networks, and all that leads from a table to them and back to labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from biv._utils.messages import shortened
from biv.estimator import error_bars
from biv.estimator.diagnostics import LabelDiagnostics
from biv.estimator.error_bars import ErrorBars
from biv.estimator.networks import Network
from biv.estimator.training_rows import raw, single
from biv.preprocessing import FeatureScaler, LabelScaler
from biv.preprocessing.encoder import FeatureEncoder
from biv.training import CrossFit

Array = npt.NDArray[Any]

FAR = 1e3  # standard deviations from the mean, below which no feature makes a prediction overflow


PREDICTABLE = "a number that the model has a finite prediction for"


class RowError(ValueError):
    """A row that has no finite prediction.

    Attributes:
        row: Number of the row, from 0 on.
        column: Name or number of the column that is to blame; None if none is.
    """

    row: int = -1
    column: Any = None

    @classmethod
    def of(cls, row: int, column: Any, found: float) -> RowError:
        """Return the error of a cell, with what was found in it."""
        error = cls(
            f"X must hold numbers that the model has a finite prediction for; got {found:g} in "
            f"row {row}, column {shortened(column)}"
        )
        error.row, error.column = row, column
        return error


@dataclass(frozen=True, eq=False)
class FittedPart:
    """The ensemble of one output.

    In files of version 0.1 one ensemble may have several outputs.

    Attributes:
        features: From the encoded table to what the networks want.
        labels: The scaler of each output.
        network: How its networks are made.
        ensemble: The networks, and how they were chosen.
        diagnostics: What was found out about the labels.
        epsilon: ε in units of the label variance, if it is one number.
    """

    features: FeatureScaler
    labels: list[LabelScaler]
    network: Network
    ensemble: CrossFit
    diagnostics: LabelDiagnostics
    epsilon: float | None

    def predict(self, matrix: Array) -> tuple[Array, Array]:
        """Return the members' mean and their variance, each (N, outputs), in units of y."""
        each = self.ensemble.predict(single(self.features(matrix))).double().numpy()
        scales = np.array([scaler.std for scaler in self.labels])
        spread = each.var(axis=0, ddof=1 if len(each) > 1 else 0) * scales**2
        return raw(self.labels, each.mean(axis=0)), spread

    @property
    def out_of_fold(self) -> Array:
        """Predictions of each row by members that have not learned from it, in units of y."""
        return raw(self.labels, self.ensemble.out_of_fold.double().numpy())


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted model.

    Attributes:
        single: Whether y had one dimension.
        encoder: From a table to a matrix.
        parts: The ensembles, one per output.
        calibrated: Whether variances were multiplied.
    """

    single: bool
    encoder: FeatureEncoder
    parts: list[FittedPart]
    calibrated: bool

    @property
    def labels(self) -> list[LabelScaler]:
        """The scaler of each output."""
        return [scaler for part in self.parts for scaler in part.labels]

    @property
    def diagnostics(self) -> LabelDiagnostics:
        """What was found out about the labels of all outputs."""
        return LabelDiagnostics.joined([part.diagnostics for part in self.parts])

    @property
    def epsilon(self) -> list[float] | None:
        """ε of each output in squared units of y, if it is a number."""
        found = [
            part.epsilon * scaler.std**2
            for part in self.parts
            for scaler in part.labels
            if part.epsilon is not None
        ]
        return found or None

    @property
    def epoch(self) -> int:
        """The epoch that was chosen; the last of them if there are several outputs."""
        return max(part.ensemble.epoch for part in self.parts)

    @property
    def scores(self) -> npt.NDArray[np.float64]:
        """The mean score of the outputs after every epoch.

        An output whose training has ended counts with the score of the epoch that was chosen.
        """
        each = [part.ensemble.scores for part in self.parts]
        longest = max(map(len, each))
        ended = [np.pad(s, (0, longest - len(s)), constant_values=s.min()) for s in each]
        outputs = [len(part.labels) for part in self.parts]
        return np.average(ended, axis=0, weights=outputs)

    def predict(self, table: Any, names: Sequence[Any] | None = None) -> tuple[Array, Array]:
        """Return the members' mean and their variance, each (N, outputs), in units of y.

        Args:
            table: A frame or an array.
            names: Names of the columns of an array, if they have any.

        Raises:
            RowError: A number is too large for a finite prediction.
        """
        matrix = self.encoder(table)
        with np.errstate(over="ignore", invalid="ignore"):  # it is looked for below
            means, spreads = zip(*(part.predict(matrix) for part in self.parts), strict=True)
            mean, spread = np.concatenate(means, axis=1), np.concatenate(spreads, axis=1)
            both = mean + spread
        self.require_finite(both, matrix, getattr(table, "columns", names))
        return mean, spread

    def require_finite(self, predicted: Array, matrix: Array, names: Sequence[Any] | None) -> None:
        """Check that all predictions are finite.

        Args:
            predicted: Predictions of each row, (N, outputs).
            matrix: The encoded rows.
            names: Names of the columns of the table, if they have any.

        Raises:
            RowError: A number is too large for a finite prediction.
        """
        finite = np.isfinite(predicted).all(axis=1)
        if not finite.all():
            raise self._row_error(matrix, int(np.flatnonzero(~finite)[0]), names)

    def _row_error(self, matrix: Array, row: int, names: Sequence[Any] | None) -> ValueError:
        """What to say of a row whose prediction is not finite."""
        size = np.max([np.abs(part.features(matrix[[row]])[0]) for part in self.parts], axis=0)
        worst = int(np.nan_to_num(size, nan=np.inf).argmax())
        if size[worst] < FAR:
            return ValueError(f"the prediction of row {row} is not finite: the model is damaged")
        place = self.encoder.place_of(worst)
        column = place if names is None else names[place]
        return RowError.of(row, column, float(matrix[row, worst]))

    @property
    def out_of_fold(self) -> Array:
        """Predictions of each row by members that have not learned from it, in units of y."""
        return np.concatenate([part.out_of_fold for part in self.parts], axis=1)

    def shaped(self, values: Array) -> Array:
        """Return values, (N, outputs), in the shape of y."""
        return values[:, 0] if self.single else values

    def per_output(self, values: Any) -> Any:
        """Return values of each output as y was: one value if y had one dimension, else (D,)."""
        if values is None:
            return None
        return values[0] if self.single else np.array(values)

    def new_variance(self, y: Array, y_var: Any, y_std: Any) -> Array | None:
        """Return variances of new labels, (N, D), calibrated and filled in as in the fit."""
        bars = error_bars.read(y, y_var, y_std)
        if bars is None:
            return None
        diagnostics = self.diagnostics
        if self.calibrated and diagnostics.factors is not None:
            bars = ErrorBars(error_bars.multiplied(bars.variance, diagnostics.factors), bars.name)
        if diagnostics.unknown_variance is not None:
            return bars.filled(diagnostics.unknown_variance)
        error_bars.require_known(bars, ": fit with unknown_variance='median' to have it filled in")
        return bars.variance
