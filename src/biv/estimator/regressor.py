"""Scikit-learn estimator for a table with a column of labels and a column of error bars."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from biv import metrics
from biv._utils import arrays, typed_json
from biv._utils.pages import errors_point_to
from biv._utils.warnings import warn
from biv._utils.wording import Message, Setting
from biv.epsilon import EpsilonPolicy
from biv.estimator import error_bars, fitted_json, model_file
from biv.estimator.columns import column_names, warn_of_copies, without_identifiers
from biv.estimator.ensembles import EnsembleSettings
from biv.estimator.error_bars import ErrorBars
from biv.estimator.fit_output import FitSettings, fit_output
from biv.estimator.fitted import Fitted
from biv.estimator.inputs import read_features, read_labels, read_sample_weight
from biv.estimator.networks import NetworkFunction, candidate_networks
from biv.estimator.parameters import check_parameters, check_units, thread_count
from biv.estimator.stored_settings import settings_from_json, settings_to_json
from biv.estimator.training_labels import TrainingLabels, usable
from biv.estimator.training_rows import TrainingRows, single
from biv.losses import registry
from biv.preprocessing import FeatureEncoder, FeatureScaler
from biv.preprocessing.encoder import Ignored
from biv.training.held_out import warn_if_negative
from biv.training.numerics import numerical_settings

if TYPE_CHECKING:
    from typing_extensions import Self

Array = npt.NDArray[Any]


class BIVRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    r"""Neural regression for labels with error bars.

    The model is an ensemble of small networks. It is trained with Batch Inverse-Variance weighting:
    a label with noise variance σ² has the weight 1/(σ²+ε). Pass the error bars to :meth:`fit`, as
    `y_std` (σ) or `y_var` (σ²). Features and labels are scaled internally.

    Each network leaves out one fold of the rows. The predictions of the left-out rows choose the
    number of epochs and estimate the variance τ² of the model's own error, from the noisy labels
    alone (:func:`biv.training.cross_fit`).

    Parameters
    ----------
    loss : {"biv", "l2", "iv", "cutoff"}, default="biv"
        Loss that the networks minimise. "biv" weights labels by 1/(σ²+ε), "iv" by 1/σ², and "l2"
        equally; "cutoff" uses only labels with σ² below `threshold`. Without error bars, "biv" is
        the same as "l2". Change it to compare methods.
    epsilon : "auto", float or EpsilonPolicy, default="auto"
        ε of "biv". "auto" estimates τ² with a pilot (a short training run). ε is this estimate, or
        a fifth of it if a second pilot with the lower ε predicts held-out labels better. A number
        is **relative**: it is in units of the label variance, usually 0.01 to 0.1. (In ``BIVLoss``,
        it is absolute.) A policy of :mod:`biv.epsilon` is in squared units of y. Set a number to
        compare values of ε.
    threshold : float or None, default=None
        Upper limit of σ² for "cutoff", in squared units of y. None is the mean of the variances.
        With several outputs, it must be None, since their units may differ. Lower it if the
        noisiest labels in use make the predictions worse.
    model : {"ensemble", "paper"} or callable, default="ensemble"
        Architecture of the networks. "ensemble" has periodic embeddings of numeric features, whose
        frequencies are chosen by pilots. "paper" is the network of the paper. A callable
        takes the number of features and the number of outputs, and returns a new ``nn.Module`` that
        maps (N, features) to (N, outputs). The number of outputs is always 1, because each output
        has its own networks. Pass a callable if you know an architecture that suits your features.
    members : int, default=16
        Number of networks, a multiple of `folds`. Training time is proportional to it. Lower it for
        a quick first result.
    folds : int, default=8
        Number of folds of the rows. If there are fewer rows than folds, each row is a fold. With
        fewer folds, each network is trained on fewer rows. Lower it if you lower `members`.
    max_epochs : int, default=100
        Maximum number of epochs. An epoch is a pass over all rows, or over 65,536 randomly drawn
        rows of a larger table. Raise it if a warning says that the last epoch was the best.
    patience : int or None, default=None
        Number of epochs without an improvement of `history_` by 1% after which training stops. None
        is the longer of 4 epochs and the epochs that make 96 steps. Raise it if `history_` still
        falls slowly at the end.
    batch_size : int or None, default=None
        Number of rows per step. None divides the training rows of a network into about 24 steps per
        epoch, with at least 32 and at most 256 rows per step. Raise it to train faster on a large
        table.
    learning_rate : float or None, default=None
        Learning rate of AdamW. None is 0.06/√k, at most 0.006, for an "ensemble" network with k
        inputs of the first layer, and 0.001 for other models. Lower it if training diverges.
    weight_decay : float, default=0.01
        Weight decay of AdamW. Raise it if the model overfits.
    unknown_variance : {"raise", "median", "estimate"}, default="raise"
        Treatment of labels whose variance is NaN. "raise" raises an error, "median" uses the median
        of the known variances, and "estimate" estimates one variance for all these labels from
        their residuals. A warning states the value used. Change it if some error bars are missing.
    calibrate_variance : bool, default=False
        Whether to multiply the variances by `variance_factor_` before training. Variances passed to
        :meth:`predict` and :meth:`score` are then multiplied too. Set it to True if all error bars
        are wrong by one common factor.
    keep : sequence of str, default=()
        Names of columns of a frame to use, without a warning, although they look like identifiers
        or copies of the label. By default, a column of text is left out, with a warning, if at
        least 95% of its filled cells are distinct and at least 20 are filled; a copy of the label
        is used, with a warning. Name a column here if such a warning is wrong about it.
    checkpoint : str, Path or None, default=None
        File from which an interrupted :meth:`fit` resumes. Call `fit` again with the same rows,
        parameters and seed; the model is the same to the last bit. The pilots are
        repeated. With several outputs, each output has its own file, whose name ends in the number
        of the output. Set it for long fits, and delete the file afterwards.
    n_jobs : int or None, default=1
        Number of threads for training and prediction. None is 1, and -1 is the number of
        processors; other negative numbers count back from that. The number of threads changes
        results by rounding errors only. Set 2 on idle processors, where two threads are about a
        third faster than one; on busy processors they are many times slower.
    random_state : int, RandomState instance or None, default=None
        Seed of folds, initial parameters and batches. Pass an int to get the same model in every
        call.
    verbose : bool, default=False
        Whether to show a progress bar on a terminal and print a summary to standard error. Set it
        to follow a long fit.

    Attributes
    ----------
    epsilon_ : float, ndarray of shape (n_outputs,) or None
        ε in squared units of y. None if `loss` is not "biv", and for a policy that has no fixed ε.
    tau2_ : float or ndarray of shape (n_outputs,)
        Estimated variance τ² of the model's own error, in squared units of y. It includes any
        additional noise of the same variance in every label that no error bar contains, since the
        two cannot be told apart.
    n_epochs_ : int
        Chosen number of epochs; with several outputs, the largest.
    history_ : ndarray of shape (n_epochs,)
        Estimated mean squared error to the true labels after every epoch, in units of the label
        variance. With several outputs, it is the mean over the outputs; an output whose training
        has ended contributes its lowest value. :meth:`fit` warns if the value of the chosen epoch
        is negative.
    out_of_fold_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        Prediction of each row by the networks that were not trained on it, in units of y.
    effective_sample_size_ : float
        Effective number of labels of the fit: Kish's effective sample size of the weights
        1/(σ²+τ²). With several outputs, their mean.
    variance_factor_ : float, ndarray of shape (n_outputs,) or None
        Factor by which `y_var` should be multiplied: the slope of the squared out-of-fold residuals
        on `y_var` (:func:`biv.metrics.variance_factor`). It is about 1 if the error bars are right,
        NaN if they are all equal, and None without error bars.
    variance_factor_interval_ : tuple (low, high), ndarray of shape (n_outputs, 2) or None
        95% interval of `variance_factor_`. It is too narrow with fewer than about 200 labels.
    reduced_chi_squared_ : tuple (value, stderr), ndarray of shape (n_outputs, 2) or None
        Reduced χ² of the out-of-fold residuals, using only σ² as their variance, with its standard
        error (:func:`biv.metrics.reduced_chi_squared`). The model's own error raises it above 1. If
        it is below 1, the error bars are too large.
    unknown_variance_ : float, ndarray of shape (n_outputs,) or None
        Variance that replaces unknown variances, in squared units of y. None if `unknown_variance`
        is "raise", and without error bars.
    ignored_features_ : list
        Names of the columns that were left out as identifiers. :meth:`predict` expects these
        columns and ignores their values.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns of X. Defined only if X was a frame.
    n_features_in_ : int
        Number of columns of X.

    Notes
    -----
    With the predictions :math:`f_m(x)` of M networks, :meth:`predict` returns their mean, and the
    square root of the variance

    .. math:: \frac{1}{M-1} \sum_m \left(f_m(x) - \bar f(x)\right)^2 + \tau^2
              \quad (+\, \sigma^2 \text{ of a new label, if given}),

    where τ² is the :func:`biv.metrics.residual_variance` of `out_of_fold_`. A part of the networks'
    variance is contained in τ² too, so that intervals of 68% hold more than 68% of the true labels.

    Several outputs are fitted separately, each on the rows that have its label. Shared networks
    would have to stop at the same epoch for all outputs. In a test with outputs of different
    difficulty, their error was up to 80% higher.

    The following identities hold up to rounding. Adding a number to y adds it to the predictions.
    Multiplying y and `y_std` by c multiplies predictions and standard deviations by c. Passing
    `y_std` is the same as passing its square as `y_var`. Without error bars, "biv" is "l2".

    References
    ----------
    V. Mai, W. Khamies and L. Paull, "Batch Inverse-Variance Weighting: Deep Heteroscedastic
    Regression", 2021. https://arxiv.org/abs/2107.04497

    Examples
    --------
    >>> import numpy as np
    >>> import biv
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y_std = rng.uniform(0.1, 2.0, size=300)
    >>> y = X[:, 0] + y_std * rng.normal(size=300)
    >>> model = biv.BIVRegressor(random_state=0).fit(X, y, y_std=y_std)
    >>> mean, std = model.predict(X, return_std=True)
    >>> bool(np.mean((mean - X[:, 0]) ** 2) < 0.2)
    True

    Another architecture, as a function that returns a network:

    >>> from torch import nn
    >>> def make_network(features, outputs):
    ...     return nn.Sequential(nn.Linear(features, 16), nn.Tanh(), nn.Linear(16, outputs))
    >>> options = {"members": 4, "folds": 4, "learning_rate": 0.02, "random_state": 0}
    >>> model = biv.BIVRegressor(model=make_network, **options).fit(X, y, y_std=y_std)
    >>> model.predict(X).shape
    (300,)
    """

    def __init__(
        self,
        *,
        loss: str = "biv",
        epsilon: float | str | EpsilonPolicy = "auto",
        threshold: float | None = None,
        model: str | NetworkFunction = "ensemble",
        members: int = 16,
        folds: int = 8,
        max_epochs: int = 100,
        patience: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float = 0.01,
        unknown_variance: str = "raise",
        calibrate_variance: bool = False,
        keep: Sequence[Any] = (),
        checkpoint: str | Path | None = None,
        n_jobs: int | None = 1,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.loss = loss
        self.epsilon = epsilon
        self.threshold = threshold
        self.model = model
        self.members = members
        self.folds = folds
        self.max_epochs = max_epochs
        self.patience = patience
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.unknown_variance = unknown_variance
        self.calibrate_variance = calibrate_variance
        self.keep = keep
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    # With metadata routing enabled, Pipeline, GridSearchCV and others pass these on by default.
    __metadata_request__fit: ClassVar = {"y_var": True, "y_std": True}
    __metadata_request__score: ClassVar = {"y_var": True, "y_std": True}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.input_tags.allow_nan = True
        return tags

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        y_var: Any = None,
        y_std: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Fit the model to rows, labels and error bars.

        Without `y_var` and `y_std`, all labels are assumed to be equally noisy. If the fit fails,
        the estimator keeps the model that was fitted before.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Numbers, or a pandas frame whose columns of text are categories. A missing number is
            replaced by the median of its column, and a further column marks it. A missing category
            is treated as one more category.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Noisy labels; NaN where a label is missing.
        y_var : array-like or float, default=None
            Noise variance σ² of each label, in squared units of y: of the shape of y, one per row
            as (n_samples,) or (n_samples, 1), or one for all labels. 0 is a label to trust, +inf a
            label to ignore, and NaN an unknown variance (see `unknown_variance`). Pass it if you
            have variances.
        y_std : array-like or float, default=None
            Standard deviation σ of the noise of each label, in units of y, with the same shapes.
            Pass it instead of `y_var` if you have standard deviations.
        sample_weight : array-like of shape (n_samples,), default=None
            Importance of each row, independent of its noise; a row of weight 0 is left out. Pass it
            if some rows matter more than others.

        Returns
        -------
        BIVRegressor
            The fitted estimator itself.

        Raises
        ------
        TypeError
            An argument or a parameter has an invalid type.
        ValueError
            An argument or a parameter has an invalid value, or training diverges.

        Warns
        -----
        ErrorBarWarning
            The out-of-fold residuals contradict the error bars.
        ConvergenceWarning
            The last epoch was the best.
        UserWarning
            A column looks like an identifier or a copy of the label, unknown variances were
            replaced, or the estimated error is negative.

        Examples
        --------
        >>> import numpy as np
        >>> import biv
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 1))
        >>> y_var = rng.choice([0.01, 1.0], size=300)
        >>> y = biv.noise.corrupt(X[:, 0], y_var, rng)
        >>> model = biv.BIVRegressor(members=2, folds=2, random_state=0)
        >>> model.fit(X, y, y_var=y_var).out_of_fold_.shape
        (300,)
        """
        before = dict(vars(self))
        try:
            with numerical_settings():
                return self._fit(X, y, y_var, y_std, sample_weight)
        except BaseException:
            self.__dict__ = before
            raise

    def _fit(self, X: Any, y: Any, y_var: Any, y_std: Any, sample_weight: Any) -> Self:
        start = time.perf_counter()
        check_parameters(vars(self))
        y = read_labels(y)
        table = read_features(self, X, reset=True)
        check_consistent_length(table, y)
        bars = error_bars.read(y, y_var, y_std)
        labels = y.reshape(len(y), -1)
        check_units(vars(self), labels.shape[1])
        settings = self._fit_settings(bars)
        names = column_names(X, self.n_features_in_, self.keep)
        encoder = without_identifiers(FeatureEncoder.fit(table), table, self.keep)
        warn_of_copies(encoder, names, table, labels, self.keep)
        matrix = encoder(table)
        weight = None
        if sample_weight is not None:
            weight = read_sample_weight(sample_weight, matrix)
            if not weight.any():
                raise ValueError("sample_weight must be positive in some row; got 0 in every row")
        usable_labels = usable(labels, weight, bars)
        arrays.check_magnitude("y", np.where(usable_labels, labels, np.nan), arrays.LARGEST)
        parts, fits = [], []
        for output, used in enumerate(usable_labels.T):
            # Fitted to the rows of this output, as in a fit of this output alone.
            features = FeatureScaler.fit(matrix[used], ddof=0)
            x = single(features(matrix))
            used_bars = None if bars is None else bars.rows(used, output)
            used_weight = None if weight is None else weight[used]
            fill = None
            if used_bars is not None and self.unknown_variance != "raise":
                fill = error_bars.medians(used_bars)  # "estimate" begins with it too
            rows = TrainingRows(
                x[torch.from_numpy(used)],
                TrainingLabels.from_arrays(
                    labels[used, output, None], used_bars, used_weight, fill
                ),
            )
            candidates = candidate_networks(self.model, rows.x, encoder)
            fit = fit_output(rows, candidates, settings, self._checkpoint(output, labels))
            fits.append(fit)
            parts.append(fit.part(features, x, used))
        fitted = Fitted(y.ndim == 1, encoder, parts, self.calibrate_variance)
        fitted.require_finite(fitted.out_of_fold, matrix, names)
        self._set_fitted(fitted)
        for fit in fits:
            fit.rows.labels.warn_about_error_bars(fit.out_of_fold)
        self._warn_about_epochs()
        if self.verbose:
            print(f"{self._summary()}, {time.perf_counter() - start:.1f} s", file=sys.stderr)
        return self

    def _fit_settings(self, bars: ErrorBars | None) -> FitSettings:
        """Return the settings of the fit, or raise if required error bars are missing."""
        loss = registry.for_labels(self.loss, have_variances=bars is not None)
        if bars is None and self.calibrate_variance:
            raise registry.error_bars_missing(Setting("calibrate_variance", True))
        if self.unknown_variance == "raise":
            error_bars.require_known(
                bars, ": set unknown_variance='median' or 'estimate' to replace it"
            )
        with arrays.errors_name_argument("random_state"):
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return FitSettings(
            loss=loss,
            epsilon=self.epsilon,
            threshold=self.threshold,
            estimate_unknown=self.unknown_variance == "estimate",
            calibrate=self.calibrate_variance,
            ensemble=EnsembleSettings(
                model=self.model,
                members=self.members,
                folds=self.folds,
                max_epochs=self.max_epochs,
                patience=self.patience,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                seed=seed,
                threads=thread_count(self.n_jobs),
                progress=self.verbose,
            ),
        )

    def _checkpoint(self, output: int, labels: Array) -> Path | None:
        """Return the checkpoint of one output; with several outputs, its name ends in a number."""
        if self.checkpoint is None:
            return None
        path = Path(self.checkpoint)
        return path if labels.shape[1] == 1 else path.with_name(f"{path.name}.{output}")

    def _warn_about_epochs(self) -> None:
        chosen = [part.ensemble for part in self._fitted.parts]
        if any(ensemble.epoch == self.max_epochs for ensemble in chosen):
            warn(
                Message(
                    "the last of {epochs} epochs was the best: more epochs{rate} may improve the "
                    "model",
                    epochs=Setting("max_epochs", self.max_epochs),
                    rate=Message(", or a larger {rate},", rate=Setting("learning_rate")),
                ),
                ConvergenceWarning,
            )
        warn_if_negative(min(float(ensemble.scores.min()) for ensemble in chosen))

    def _summary(self) -> str:
        results = {"τ²": self.tau2_, "ε": self.epsilon_, "variance factor": self.variance_factor_}
        parts = [
            f"{name} {' '.join(f'{x:.4g}' for x in np.atleast_1d(value))}"
            for name, value in results.items()
            if value is not None
        ]
        return ", ".join([f"epoch {self.n_epochs_} of {len(self.history_)}", *parts])

    def _set_fitted(self, fitted: Fitted) -> None:
        """Set the fitted attributes, in the units of the labels."""
        self._fitted = fitted
        diagnostics, per_output = fitted.diagnostics, fitted.per_output
        self.tau2_ = per_output(diagnostics.tau2)
        self.epsilon_ = per_output(fitted.epsilon)
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        rules = zip(names, fitted.encoder.columns, strict=True)
        self.ignored_features_ = [name for name, rule in rules if isinstance(rule, Ignored)]
        self.n_epochs_: int = fitted.epoch
        self.history_ = fitted.scores
        self.out_of_fold_ = fitted.shaped(fitted.out_of_fold)
        self.effective_sample_size_ = diagnostics.effective_sample_size
        self.reduced_chi_squared_ = per_output(diagnostics.reduced_chi_squared)
        self.unknown_variance_ = per_output(diagnostics.unknown_variance)
        factors = diagnostics.factors
        self.variance_factor_ = per_output(factors and [f.value for f in factors])
        self.variance_factor_interval_ = per_output(factors and [f[1:] for f in factors])

    def predict(
        self, X: Any, *, return_std: bool = False, y_var: Any = None, y_std: Any = None
    ) -> Any:
        """Predict the true labels of new rows and, on request, their standard deviations.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows with the columns of the fit.
        return_std : bool, default=False
            Whether to return standard deviations too: √(v + τ²), where v is the variance between
            the predictions of the networks. Set it to True to get error bars of the predictions.
            With a few hundred training rows, τ² is a rough estimate.
        y_var : array-like or float, default=None
            Noise variance of new labels, in squared units of y: of the shape of the predictions,
            one per row as (n_samples,) or (n_samples, 1), or one for all labels. Pass it to get the
            standard deviation of a new noisy label instead of that of the true label.
        y_std : array-like or float, default=None
            Standard deviation of the noise of new labels, in units of y, with the same shapes. Pass
            it instead of `y_var` if you have standard deviations.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predicted true labels, in units of y. The array has two dimensions if y had two.
        std : ndarray of the shape of `mean`
            Standard deviations in units of y. Returned only if `return_std` is True.

        Raises
        ------
        NotFittedError
            The model has not been fitted.
        ValueError
            X has other columns than in the fit or a prediction is not finite, or the error bars are
            invalid or passed without `return_std`.

        Examples
        --------
        >>> import numpy as np
        >>> import biv
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 1))
        >>> y = X[:, 0] + rng.normal(size=300)
        >>> options = {"members": 2, "folds": 2, "random_state": 0}
        >>> model = biv.BIVRegressor(**options).fit(X, y, y_std=1.0)
        >>> mean, std = model.predict(X[:3], return_std=True)
        >>> _, std_of_noisy_label = model.predict(X[:3], return_std=True, y_std=2.0)
        >>> np.allclose(std_of_noisy_label**2, std**2 + 2.0**2)
        True
        """
        check_is_fitted(self, "n_epochs_")
        if not (y_var is None and y_std is None) and not return_std:
            raise ValueError(
                "y_var and y_std change only the standard deviation, which is not returned: pass "
                "return_std=True"
            )
        fitted = self._fitted
        with numerical_settings(thread_count(self.n_jobs)):
            names = getattr(self, "feature_names_in_", None)
            mean, spread = fitted.predict(read_features(self, X, reset=False), names)
        if not return_std:
            return fitted.shaped(mean)
        variance = spread + fitted.diagnostics.tau2
        noise = fitted.new_variance(fitted.shaped(mean), y_var, y_std)
        if noise is not None:
            error_bars.require_finite(noise, "y_var" if y_std is None else "y_std")
        std = np.sqrt(variance if noise is None else variance + noise)
        return fitted.shaped(mean), fitted.shaped(std)

    def score(
        self, X: Any, y: Any, *, y_var: Any = None, y_std: Any = None, sample_weight: Any = None
    ) -> float:
        """Return R² of the predictions; with error bars, an estimate of R² to the true labels.

        With error bars, the score is :func:`biv.metrics.noise_corrected_r2`. Without them, it is
        scikit-learn's R² to the noisy labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows with the columns of the fit.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Labels of these rows. Missing labels (NaN) are ignored.
        y_var : array-like or float, default=None
            Noise variance of each label, in squared units of y: of the shape of y, one per row as
            (n_samples,) or (n_samples, 1), or one for all labels. Pass it if the labels are noisy.
        y_std : array-like or float, default=None
            Standard deviation of the noise of each label, in units of y, with the same shapes. Pass
            it instead of `y_var` if you have standard deviations.
        sample_weight : array-like of shape (n_samples,), default=None
            Importance of each row. Pass it if some rows matter more than others; it cannot be
            combined with error bars.

        Returns
        -------
        float
            R², the mean over outputs. The best value is 1.

        Raises
        ------
        NotFittedError
            The model has not been fitted.
        ValueError
            An argument is invalid, or error bars and `sample_weight` are both given.

        Examples
        --------
        >>> import numpy as np
        >>> import biv
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 1))
        >>> y = X[:, 0] + rng.normal(size=300)
        >>> options = {"members": 2, "folds": 2, "random_state": 0}
        >>> model = biv.BIVRegressor(**options).fit(X, y, y_std=1.0)
        >>> bool(model.score(X, y) < 0.7 < model.score(X, y, y_std=1.0))
        True
        """
        predicted = self.predict(X)
        labels = arrays.to_real_numbers("y", y)
        arrays.check_magnitude("y", labels, arrays.LARGEST)
        if labels.size != predicted.size or len(labels) != len(predicted):
            raise ValueError(f"y must have shape {predicted.shape}; got {labels.shape}")
        columns = labels.reshape(len(labels), -1)
        noise = self._fitted.new_variance(labels, y_var, y_std)
        if noise is not None and sample_weight is not None:
            raise ValueError("pass error bars (y_var or y_std) or sample_weight, not both")
        scores = []
        if sample_weight is not None:
            sample_weight = read_sample_weight(sample_weight, columns)
        for k, f in enumerate(predicted.reshape(columns.shape).T):
            target = columns[:, k]
            if noise is not None:
                scores.append(metrics.noise_corrected_r2(f, target, noise[:, k]).value)
                continue
            known = ~np.isnan(target)
            weight = None if sample_weight is None else sample_weight[known]
            scores.append(r2_score(target[known], f[known], sample_weight=weight))
        return float(np.mean(scores))

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file of tensors and JSON, which :meth:`load` reads.

        The file does not contain `checkpoint`, nor a `random_state` or `epsilon` that is an object.
        The loaded model has the defaults of these parameters and makes the same predictions. If
        `model` is a function, the file contains the parameters of its networks but not the
        function; pass the function to :meth:`load` again.

        Parameters
        ----------
        path : str or Path
            File to write. An existing file is replaced once the new one is complete.

        Raises
        ------
        NotFittedError
            The model has not been fitted.
        OSError
            The file cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> import biv
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 1))
        >>> y = X[:, 0] + rng.normal(size=300)
        >>> options = {"members": 2, "folds": 2, "random_state": 0}
        >>> model = biv.BIVRegressor(**options).fit(X, y, y_std=1.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(Path(folder) / "model.safetensors")
        ...     loaded = biv.BIVRegressor.load(Path(folder) / "model.safetensors")
        >>> np.allclose(loaded.predict(X), model.predict(X))
        True
        """
        check_is_fitted(self, "n_epochs_")
        tensors, content = fitted_json.to_json(self._fitted)
        content["settings"] = settings_to_json(self.get_params())
        content["feature_names"] = list(map(str, getattr(self, "feature_names_in_", [])))
        model_file.write(path, tensors, content)

    @classmethod
    def load(cls, path: str | Path, *, model: NetworkFunction | None = None) -> Self:
        """Return the model that :meth:`save` wrote, without running any code of the file.

        Parameters of the estimator are read from the file if they are numbers, texts or Booleans.
        `checkpoint` is not read, so that a file cannot choose where :meth:`fit` writes.

        Parameters
        ----------
        path : str or Path
            File to read.
        model : callable or None, default=None
            Function that returns a network. Pass it if the model was fitted with a function as
            `model`.

        Returns
        -------
        BIVRegressor
            The fitted estimator.

        Raises
        ------
        FileNotFoundError
            The file does not exist.
        ValueError
            The file is not a model, is damaged or has another format version; or `model` is missing
            or not needed.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> import biv
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 1))
        >>> y = X[:, 0] + rng.normal(size=300)
        >>> options = {"members": 2, "folds": 2, "random_state": 0}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "model.safetensors"
        ...     biv.BIVRegressor(**options).fit(X, y, y_std=1.0).save(path)
        ...     model = biv.BIVRegressor.load(path)
        >>> model.predict(X[:3]).shape
        (3,)
        """
        with errors_point_to("estimator"):
            tensors, content = model_file.read(path)
        if (content.get("network", {}) is None) != (model is not None):
            if model is None:
                raise ValueError(f"{path} was fitted with a function as model: pass it as model=")
            raise ValueError(f"{path} was fitted without a function as model: leave model out")
        reason = "is damaged" if model is None else "was fitted with another function as model"
        with typed_json.errors_name_file(path, f"is not a model, or {reason}"):
            settings = settings_from_json(
                content["settings"], cls._get_param_names(), BIVRegressor.__init__
            )
            if model is not None:
                settings["model"] = model
            loaded = cls(**settings)
            check_parameters(vars(loaded))
            fitted = fitted_json.from_json(tensors, content, model)
            names = typed_json.convert(content["feature_names"], list[str])
            return assembled(loaded, fitted, names)


Regressor = TypeVar("Regressor", bound=BIVRegressor)


def assembled(regressor: Regressor, fitted: Fitted, feature_names: Sequence[str]) -> Regressor:
    """Set the fitted model of an estimator to one that was fitted on a stream or read from a file.

    Parameters
    ----------
    regressor : BIVRegressor
        Estimator with the parameters of that fit. It is modified.
    fitted : Fitted
        Fitted model.
    feature_names : sequence of str
        Names of the columns of the table; empty if they had no names.

    Returns
    -------
    BIVRegressor
        The same estimator, now fitted.

    Raises
    ------
    ValueError
        The number of names differs from the number of columns of the model.
    """
    columns = len(fitted.encoder.columns)
    if feature_names and len(feature_names) != columns:
        raise ValueError(f"feature_names must have {columns} names; got {len(feature_names)}")
    regressor.n_features_in_ = columns
    if feature_names:
        regressor.feature_names_in_ = np.array(feature_names, dtype=object)
    regressor._set_fitted(fitted)
    return regressor
