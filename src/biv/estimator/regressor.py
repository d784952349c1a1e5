"""The scikit-learn estimator: a table, a column of labels, and a column of error bars."""

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

    An ensemble of small networks is trained with Batch Inverse-Variance weighting: each label
    counts with weight 1/(σ²+ε). Features, labels, σ² and ε are scaled inside. Each network leaves
    out a fold of the rows, and its predictions of that fold choose the number of epochs and
    estimate the model's own error from noisy labels alone (:func:`biv.training.cross_fit`). Several
    outputs are fitted one by one, each on the rows that have its label: a network that is shared
    by outputs of different difficulty has to stop at one epoch, and was up to 80% worse than
    separate ones.

    With the predictions :math:`f_m(x)` of M networks, :meth:`predict` returns their mean, and as
    its variance

    .. math:: \frac{1}{M-1} \sum_m \left(f_m(x) - \bar f(x)\right)^2 + \tau^2
              \quad (+\, \sigma^2 \text{ of a new label, if given}),

    where τ² is the :func:`biv.metrics.residual_variance` of `out_of_fold_`. That counts some of the
    networks' variance twice: intervals of 68% cover more than 68%.

    Parameters
    ----------
    loss : {"biv", "l2", "iv", "cutoff"}, default="biv"
        Weighting of the labels: "biv" by 1/(σ²+ε), "iv" by 1/σ², "l2" all alike, "cutoff" only
        those with σ² below `threshold`. Without error bars, "biv" is "l2". Change it to compare
        methods.
    epsilon : "auto", float or EpsilonPolicy, default="auto"
        ε of "biv". "auto" takes the model's own residual variance τ², estimated by a short training
        before the real one, or a fifth of it if a short training with that much predicts unseen
        labels better. A number is **relative**, in units of the label variance (0.01 to 0.1 is
        usual; in ``BIVLoss`` it is absolute). A policy of :mod:`biv.epsilon` is in squared units of
        y. Set a number to compare values of ε.
    threshold : float, default=None
        Largest σ² that "cutoff" keeps, in squared units of y; None takes the mean of the variances,
        and is the only choice with several outputs, whose units may differ. Lower it if the
        noisiest labels kept still do harm.
    model : {"ensemble", "paper"} or callable, default="ensemble"
        "ensemble" has periodic embeddings of numeric features, whose frequencies are chosen by
        short trainings; "paper" is the network of the paper. A callable is given the numbers of
        features and outputs and returns a new ``nn.Module`` from (N, features) to (N, outputs);
        each output has networks of its own, so that the number of outputs is 1. Change it if you
        know an architecture that suits your features.
    members : int, default=16
        Number of networks, a multiple of `folds`. Training time grows in proportion; use fewer for
        a quick look.
    folds : int, default=8
        Number of parts that the rows are dealt into, at most one per row. With fewer folds, each
        network learns from fewer rows; choose fewer if you choose fewer members.
    max_epochs : int, default=100
        Largest number of passes over the rows; of a table with more than 65,536 rows, a pass takes
        65,536 drawn anew. Raise it if a warning says that the last epoch was the best.
    patience : int, default=None
        Number of epochs without a `history_` lower by 1% after which training stops. None takes 4,
        and for a small table as many as make 96 steps. Raise it if `history_` still falls slowly.
    batch_size : int, default=None
        Rows per step. None takes 256, and for a small table fewer, but at least 32, so that an
        epoch has 24 steps. Raise it to train a large table faster.
    learning_rate : float, default=None
        Learning rate of AdamW. None takes 0.06/√k for the k inputs of the first layer of an
        "ensemble" network, at most 0.006, and 0.001 for other models. Lower it if training
        diverges.
    weight_decay : float, default=0.01
        Weight decay of AdamW. Raise it if the model overfits.
    unknown_variance : {"raise", "median", "estimate"}, default="raise"
        Treatment of labels whose `y_var` is NaN: raise an error, take the median of the known
        variances, or estimate one variance for all of them from their residuals. A warning says
        what was taken. Change it if some error bars are missing.
    calibrate_variance : bool, default=False
        Whether to multiply the variances by `variance_factor_` before training; variances passed to
        :meth:`predict` and :meth:`score` are multiplied likewise. Set it if all error bars are
        wrong by one common factor.
    keep : sequence of str, default=()
        Names of columns of a frame to learn from although they look like identifiers or copies of
        the label. In a frame, a column of text with at least 20 filled cells of which 95% are
        distinct is otherwise left out, with a warning. Name a column here if that is wrong.
    checkpoint : str or Path, default=None
        File that an interrupted :meth:`fit` resumes from, to the same bits, if it is called again
        with the same rows, parameters and seed. Short trainings before the real one are repeated.
        With several outputs, each has a file of its own, whose name ends in its number. Set it for
        long fits, and remove the file afterwards.
    n_jobs : int or None, default=1
        Number of threads for training and prediction; negative numbers count back from all
        processors, and -1 is all of them. Two are faster by a third on idle processors, and many
        times slower on busy ones, since they wait for each other. They change the model by rounding
        at most.
    random_state : int, RandomState instance or None, default=None
        Seed of folds, first parameters and batches. Pass an int for the same model in every call.
    verbose : bool, default=False
        Whether to show a progress bar on a terminal and print a summary to standard error. Set it
        to follow a long fit.

    Attributes
    ----------
    epsilon_ : float, ndarray of shape (n_outputs,) or None
        ε in squared units of y. None with a loss other than "biv" and with a policy.
    tau2_ : float or ndarray of shape (n_outputs,)
        Estimated variance τ² of the model's own error, in squared units of y. It includes noise
        that all labels share and no error bar knows of: the two cannot be told apart.
    n_epochs_ : int
        Number of epochs that was chosen; with several outputs, the largest of theirs.
    history_ : ndarray of shape (n_epochs,)
        Estimated mean squared error to the true labels after every epoch, in units of the label
        variance. With several outputs, their mean, to which an output whose training has ended
        contributes its lowest value. A warning is given if the chosen one is negative.
    out_of_fold_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        Predictions of each row by the networks that have not learned from it, in units of y.
    effective_sample_size_ : float
        Number of labels that the fit rests on: Kish's effective size of the weights 1/(σ²+τ²).
    variance_factor_ : float, ndarray of shape (n_outputs,) or None
        Factor that `y_var` should be multiplied by: the slope of the squared out-of-fold residuals
        on it (:func:`biv.metrics.variance_factor`). 1 for honest error bars, NaN if all are equal,
        None without error bars.
    variance_factor_interval_ : tuple (low, high), ndarray of shape (n_outputs, 2) or None
        95% interval of `variance_factor_`; too narrow with fewer than about 200 labels.
    reduced_chi_squared_ : tuple (value, stderr), ndarray of shape (n_outputs, 2) or None
        Reduced χ² of the out-of-fold residuals by the error bars alone, with its standard error
        (:func:`biv.metrics.reduced_chi_squared`). The model's own error takes it above 1; below 1,
        the error bars are too large.
    unknown_variance_ : float, ndarray of shape (n_outputs,) or None
        Variance that is taken where `y_var` is NaN, in squared units of y; None if that is an
        error.
    ignored_features_ : list
        Names of the columns that were left out as identifiers; :meth:`predict` accepts anything in
        them.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns of the frame that was fitted; absent otherwise.
    n_features_in_ : int
        Number of columns of X.

    Notes
    -----
    Adding a number to y adds it to predictions. Scaling y and `y_std` by c scales predictions and
    standard deviations by c. Both hold up to rounding. `y_std` is equivalent to `y_var` of its
    square, and without error bars "biv" is "l2".

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y_std = rng.uniform(0.1, 2.0, size=300)
    >>> y = X[:, 0] + y_std * rng.normal(size=300)
    >>> model = BIVRegressor(random_state=0).fit(X, y, y_std=y_std)
    >>> mean, std = model.predict(X, return_std=True)
    >>> bool(np.mean((mean - X[:, 0]) ** 2) < 0.2)
    True

    A network of one's own:

    >>> from torch import nn
    >>> own = lambda features, outputs: nn.Sequential(nn.Linear(features, 16), nn.Tanh(),
    ...                                               nn.Linear(16, outputs))
    >>> model = BIVRegressor(model=own, learning_rate=0.02, members=4, folds=4, random_state=0)
    >>> model.fit(X, y, y_std=y_std).predict(X).shape
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

    # What Pipeline, GridSearchCV and the like pass on by default, with metadata routing enabled.
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
        """Fit the model to rows, labels and their error bars.

        If it fails, what was fitted before stays. Without `y_var` and `y_std`, all labels are
        taken to be equally noisy.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Numbers, or a pandas frame whose columns of text are categories. A missing number
            becomes the median of its column, with a further column that marks it; a missing
            category is a category of its own.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Noisy labels; NaN where a label is missing.
        y_var : array-like of shape (n_samples,), (n_samples, 1) or (n_samples, n_outputs), or \
                float, default=None
            Noise variance σ² of each label, in squared units of y. With several outputs, one per
            row stands for all labels of the row. 0 is a label to trust, +inf a label to ignore,
            and NaN an unknown variance (see `unknown_variance`).
        y_std : array-like of the same shapes, or float, default=None
            Standard deviation σ of each label, in units of y. Give `y_var` or `y_std`, not both.
        sample_weight : array-like of shape (n_samples,), default=None
            Importance of each row, whatever its noise. 0 leaves the row out.

        Returns
        -------
        BIVRegressor
            The fitted estimator itself.
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
                raise ValueError("sample_weight must not be zero in every row")
        counting = usable(labels, weight, bars)
        arrays.check_magnitude("y", np.where(counting, labels, np.nan), arrays.LARGEST)
        parts, fits = [], []
        for output, used in enumerate(counting.T):
            # Of the output's own rows, so that a fit of several outputs is several fits of one.
            features = FeatureScaler.fit(matrix[used], ddof=0)
            x = single(features(matrix))
            own = None if bars is None else bars.rows(used, output)
            fill = None
            if own is not None and self.unknown_variance != "raise":
                fill = error_bars.medians(own)  # also where "estimate" begins
            rows = TrainingRows(
                x[torch.from_numpy(used)],
                TrainingLabels.of(
                    labels[used, output, None], own, None if weight is None else weight[used], fill
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
        """Return what the fit of each output needs to know, or raise where error bars lack."""
        loss = registry.for_labels(self.loss, have_variances=bars is not None)
        if bars is None and self.calibrate_variance:
            raise registry.error_bars_missing(Setting("calibrate_variance", True))
        if self.unknown_variance == "raise":
            error_bars.require_known(
                bars, ": unknown_variance='median' or 'estimate' puts something in its place"
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
        """Return the file of one output; several have a number at the end of their names."""
        if self.checkpoint is None:
            return None
        path = Path(self.checkpoint)
        return path if labels.shape[1] == 1 else path.with_name(f"{path.name}.{output}")

    def _warn_about_epochs(self) -> None:
        chosen = [part.ensemble for part in self._fitted.parts]
        if any(ensemble.epoch == self.max_epochs for ensemble in chosen):
            warn(
                Message(
                    "the last of {epochs} epochs was the best: with more{rate} it may become "
                    "better",
                    epochs=Setting("max_epochs", self.max_epochs),
                    rate=Message(", or a larger {rate},", rate=Setting("learning_rate")),
                ),
                ConvergenceWarning,
            )
        warn_if_negative(min(float(ensemble.scores.min()) for ensemble in chosen))

    def _summary(self) -> str:
        results = {"τ²": self.tau2_, "ε": self.epsilon_, "variance factor": self.variance_factor_}
        words = [
            f"{name} {' '.join(f'{x:.4g}' for x in np.atleast_1d(value))}"
            for name, value in results.items()
            if value is not None
        ]
        return ", ".join([f"epoch {self.n_epochs_} of {len(self.history_)}", *words])

    def _set_fitted(self, fitted: Fitted) -> None:
        """Set the fitted attributes, in the units of the labels."""
        self._fitted = fitted
        found, per_output = fitted.diagnostics, fitted.per_output
        self.tau2_ = per_output(found.tau2)
        self.epsilon_ = per_output(fitted.epsilon)
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        rules = zip(names, fitted.encoder.columns, strict=True)
        self.ignored_features_ = [name for name, rule in rules if isinstance(rule, Ignored)]
        self.n_epochs_: int = fitted.epoch
        self.history_ = fitted.scores
        self.out_of_fold_ = fitted.shaped(fitted.out_of_fold)
        self.effective_sample_size_ = found.effective_sample_size
        self.reduced_chi_squared_ = per_output(found.reduced_chi_squared)
        self.unknown_variance_ = per_output(found.unknown_variance)
        factors = found.factors
        self.variance_factor_ = per_output(factors and [f.value for f in factors])
        self.variance_factor_interval_ = per_output(factors and [f[1:] for f in factors])

    def predict(
        self, X: Any, *, return_std: bool = False, y_var: Any = None, y_std: Any = None
    ) -> Any:
        """Predict the true labels of new rows and, if asked, how sure these predictions are.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows with the columns of the fit.
        return_std : bool, default=False
            Whether to return the standard deviation too: the root of the members' variance plus
            τ². With a few hundred training rows, τ² is rough.
        y_var : array-like of the shape of the predictions, (n_samples,) or (n_samples, 1), or \
                float, default=None
            Noise variance of new labels, in squared units of y. Give it for the standard deviation
            of a new noisy label instead of that of the true one.
        y_std : array-like of the same shapes, or float, default=None
            Standard deviation of the noise of new labels. Give `y_var` or `y_std`, not both.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predicted labels; of two dimensions if y had two.
        std : ndarray of the same shape
            Standard deviations in units of y, only if `return_std` is True.
        """
        check_is_fitted(self, "n_epochs_")
        if not (y_var is None and y_std is None) and not return_std:
            raise ValueError("error bars change the standard deviation: ask for return_std=True")
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
        """Return R²; with error bars of the labels, R² with respect to the true labels.

        The latter is :func:`biv.metrics.noise_corrected_r2`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows with the columns of the fit.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their labels; those that are NaN do not count.
        y_var : array-like of the shape of y, (n_samples,) or (n_samples, 1), or float, default=None
            Noise variance of each label, in squared units of y.
        y_std : array-like of the same shapes, or float, default=None
            Standard deviation of each label, in units of y. Give `y_var` or `y_std`, not both.
        sample_weight : array-like of shape (n_samples,), default=None
            Importance of each row; not together with error bars.

        Returns
        -------
        float
            R², the mean over outputs.
        """
        predicted = self.predict(X)
        labels = arrays.to_real_numbers("y", y)
        arrays.check_magnitude("y", labels, arrays.LARGEST)
        if labels.size != predicted.size or len(labels) != len(predicted):
            raise ValueError(f"y must have shape {predicted.shape}; got {labels.shape}")
        columns = labels.reshape(len(labels), -1)
        noise = self._fitted.new_variance(labels, y_var, y_std)
        if noise is not None and sample_weight is not None:
            raise ValueError("a noise-corrected score takes error bars or sample_weight, not both")
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

        A `checkpoint` is not kept, nor a `random_state` or `epsilon` that is an object: the loaded
        model has the default in its place, and predicts the same. If `model` is a function, the
        parameters of its networks are kept and the function is not: give it to :meth:`load` again.

        Parameters
        ----------
        path : str or Path
            File to write; until it is complete, the file before it stays.
        """
        check_is_fitted(self, "n_epochs_")
        tensors, content = fitted_json.to_json(self._fitted)
        content["settings"] = settings_to_json(self.get_params())
        content["feature_names"] = list(map(str, getattr(self, "feature_names_in_", [])))
        model_file.write(path, tensors, content)

    @classmethod
    def load(cls, path: str | Path, *, model: NetworkFunction | None = None) -> Self:
        """Return the model that :meth:`save` wrote. No code of the file is run.

        Only numbers, words and truth values are taken from the file as parameters, and no path:
        a file does not choose where :meth:`fit` writes.

        Parameters
        ----------
        path : str or Path
            File to read.
        model : callable, default=None
            Function that made the networks. Give it if the model was fitted with a function.

        Returns
        -------
        BIVRegressor
            The fitted estimator.

        Raises
        ------
        ValueError
            The file is no model, is damaged, or is of another version; or it needs `model`, or has
            no use for it.
        """
        with errors_point_to("estimator"):
            tensors, content = model_file.read(path)
        if (content.get("network", {}) is None) != (model is not None):
            wanted = "pass it as model=" if model is None else "leave model out"
            whose = "a function of its maker's" if model is None else "biv itself"
            raise ValueError(f"the networks of {path} were made by {whose}: {wanted}")
        what = "is damaged" if model is None else "was made by another function than this"
        with typed_json.errors_name_file(path, f"is not a model, or {what}"):
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
    """Give an estimator a model that was fitted elsewhere: in a file, or on a stream.

    Parameters
    ----------
    regressor : BIVRegressor
        Estimator with the parameters of that fit; it becomes fitted.
    fitted : Fitted
        Fitted model.
    feature_names : sequence of str
        Names of the columns of its table; empty if they had no names.

    Raises
    ------
    ValueError
        The model has another number of columns.
    """
    columns = len(fitted.encoder.columns)
    if feature_names and len(feature_names) != columns:
        raise ValueError(f"feature_names must name {columns} columns")
    regressor.n_features_in_ = columns
    if feature_names:
        regressor.feature_names_in_ = np.array(feature_names, dtype=object)
    regressor._set_fitted(fitted)
    return regressor
