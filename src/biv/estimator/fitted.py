"""Fitted model: an encoder of tables, scalers, and networks."""

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

FAR = 1e3  # standard deviations; a feature nearer to its mean cannot make a prediction overflow
PREDICTABLE = "a number that the model has a finite prediction for"


class RowError(ValueError):
    """Error of a row whose prediction is not finite.

    Attributes
    ----------
    row : int
        Number of the row, counted from 0.
    column : object
        Name or number of the column whose value is too large; None if there is none.
    """

    row: int = -1
    column: Any = None

    @classmethod
    def for_cell(cls, row: int, column: Any, value: float) -> RowError:
        """Return the error of a cell with this value."""
        error = cls(
            f"X must hold numbers that the model has a finite prediction for; got {value:g} in "
            f"row {row}, column {shortened(column)}"
        )
        error.row, error.column = row, column
        return error


@dataclass(frozen=True, eq=False)
class FittedPart:
    """Ensemble of one output.

    In files of version 0.1 one ensemble may have several outputs.

    Attributes
    ----------
    features : FeatureScaler
        Scaler of the encoded table.
    labels : list of LabelScaler
        Scaler of each output.
    network : Network
        Specification of the networks.
    ensemble : CrossFit
        Trained networks with their scores.
    diagnostics : LabelDiagnostics
        Diagnostics of the labels.
    epsilon : float or None
        ε in units of the label variance, if it is one number.
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
        """Out-of-fold predictions of each row, (N, outputs), in units of y."""
        return raw(self.labels, self.ensemble.out_of_fold.double().numpy())


@dataclass(frozen=True, eq=False)
class Fitted:
    """Fitted model.

    Attributes
    ----------
    single : bool
        Whether y had one dimension.
    encoder : FeatureEncoder
        Encoder of tables as matrices.
    parts : list of FittedPart
        Ensemble of each output.
    calibrated : bool
        Whether the variances were calibrated.
    """

    single: bool
    encoder: FeatureEncoder
    parts: list[FittedPart]
    calibrated: bool

    @property
    def labels(self) -> list[LabelScaler]:
        """Scaler of each output."""
        return [scaler for part in self.parts for scaler in part.labels]

    @property
    def diagnostics(self) -> LabelDiagnostics:
        """Diagnostics of the labels of all outputs."""
        return LabelDiagnostics.joined([part.diagnostics for part in self.parts])

    @property
    def epsilon(self) -> list[float] | None:
        """ε of each output in squared units of y, if it is a number."""
        values = [
            part.epsilon * scaler.std**2
            for part in self.parts
            for scaler in part.labels
            if part.epsilon is not None
        ]
        return values or None

    @property
    def epoch(self) -> int:
        """Chosen epoch; with several outputs, the latest."""
        return max(part.ensemble.epoch for part in self.parts)

    @property
    def scores(self) -> npt.NDArray[np.float64]:
        """Mean score of the outputs after every epoch.

        After the training of an output has ended, its score is that of its chosen epoch.
        """
        curves = [part.ensemble.scores for part in self.parts]
        longest = max(map(len, curves))
        padded = [np.pad(s, (0, longest - len(s)), constant_values=s.min()) for s in curves]
        outputs = [len(part.labels) for part in self.parts]
        return np.average(padded, axis=0, weights=outputs)

    def predict(self, table: Any, names: Sequence[Any] | None = None) -> tuple[Array, Array]:
        """Return the members' mean and their variance.

        Parameters
        ----------
        table : DataFrame or ndarray of shape (N, F)
            Rows to predict.
        names : sequence or None, default=None
            Names of the columns of an array, for errors.

        Returns
        -------
        mean : ndarray of shape (N, outputs)
            Mean of the members' predictions, in units of y.
        variance : ndarray of shape (N, outputs)
            Variance of the members' predictions, in squared units of y.

        Raises
        ------
        RowError
            A number is too large for a finite prediction.
        """
        matrix = self.encoder(table)
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow is an error below
            means, spreads = zip(*(part.predict(matrix) for part in self.parts), strict=True)
            mean, spread = np.concatenate(means, axis=1), np.concatenate(spreads, axis=1)
            total = mean + spread
        self.require_finite(total, matrix, getattr(table, "columns", names))
        return mean, spread

    def require_finite(self, predicted: Array, matrix: Array, names: Sequence[Any] | None) -> None:
        """Check that all predictions are finite.

        Parameters
        ----------
        predicted : ndarray of shape (N, outputs)
            Predictions of each row.
        matrix : ndarray of shape (N, features)
            Encoded rows.
        names : sequence or None
            Names of the columns of the table, for errors.

        Raises
        ------
        RowError
            A number is too large for a finite prediction.
        ValueError
            A prediction is not finite although all numbers are ordinary.
        """
        finite = np.isfinite(predicted).all(axis=1)
        if not finite.all():
            raise self._row_error(matrix, int(np.flatnonzero(~finite)[0]), names)

    def _row_error(self, matrix: Array, row: int, names: Sequence[Any] | None) -> ValueError:
        """Return the error of a row whose prediction is not finite."""
        size = np.max([np.abs(part.features(matrix[[row]])[0]) for part in self.parts], axis=0)
        worst = int(np.nan_to_num(size, nan=np.inf).argmax())
        if size[worst] < FAR:
            return ValueError(f"the prediction of row {row} is not finite: the model is damaged")
        place = self.encoder.place_of(worst)
        column = place if names is None else names[place]
        return RowError.for_cell(row, column, float(matrix[row, worst]))

    @property
    def out_of_fold(self) -> Array:
        """Out-of-fold predictions of each row, (N, outputs), in units of y."""
        return np.concatenate([part.out_of_fold for part in self.parts], axis=1)

    def shaped(self, values: Array) -> Array:
        """Return values, (N, outputs), in the shape of y."""
        return values[:, 0] if self.single else values

    def per_output(self, values: Any) -> Any:
        """Return one value if y had one dimension, else the values of the outputs as (D,)."""
        if values is None:
            return None
        return values[0] if self.single else np.array(values)

    def new_variance(self, y: Array, y_var: Any, y_std: Any) -> Array | None:
        """Return variances of new labels, (N, D), corrected as in the fit, or None."""
        bars = error_bars.read(y, y_var, y_std)
        if bars is None:
            return None
        diagnostics = self.diagnostics
        if self.calibrated and diagnostics.factors is not None:
            bars = ErrorBars(error_bars.multiplied(bars.variance, diagnostics.factors), bars.name)
        if diagnostics.unknown_variance is not None:
            return bars.filled(diagnostics.unknown_variance)
        error_bars.require_known(
            bars, ": fit the model with unknown_variance='median' to replace it"
        )
        return bars.variance
