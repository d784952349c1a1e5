"""The scikit-learn estimator: a table, a column of labels, and a column of error bars."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)
from torch import Tensor, nn

from biv import _checks, metrics, modelfile
from biv.datasets import FeatureScaler, LabelScaler
from biv.epsilon import EpsilonPolicy
from biv.features import FeatureEncoder, has_categories
from biv.models import MLP, Periodic
from biv.modules import BIVLoss, CutoffLoss, IVLoss, L2Loss, VarianceLoss
from biv.training import CrossFit, Schedule, Triplets, cross_fit

if TYPE_CHECKING:
    from typing_extensions import Self

Array = npt.NDArray[Any]

LOSSES = ("biv", "l2", "iv", "cutoff")
MODELS = ("ensemble", "paper")
USUAL_EPSILON = 0.05  # the paper's, of labels of unit variance
PILOT_EPOCHS = 5  # after which "auto" looks at how large the model's own error is
AVERAGING = 2.0  # chosen on noisy held-out labels
FEWEST_ROWS = 2
FEWEST_VALUES = 3  # of a numeric feature that is embedded; what has fewer is a switch


class BIVRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    r"""Neural regression for labels with error bars.

    An ensemble of small networks is trained with Batch Inverse-Variance weighting, each label
    counting 1/(σ²+ε). Features, labels, σ² and ε are scaled inside. Each network leaves out a fold
    of the rows, and what it predicts there chooses the number of epochs and estimates the model's
    own error, from noisy labels alone (:func:`biv.training.cross_fit`).

    Args:
        loss: "biv"; "l2" (every label alike), "iv" (1/σ², no ε) or "cutoff" (only labels with
            σ² below `threshold`). Without error bars, "biv" is "l2".
        epsilon: ε of "biv": "auto" takes the model's own residual variance τ², estimated after a
            few epochs; a number is relative, in units of the label variance (.01 to .1 is usual);
            or a policy of :mod:`biv.epsilon`, for labels of unit variance.
        threshold: Of "cutoff", in squared units of y; None takes the mean of the variances,
            and is the only way with several outputs, whose units may differ.
        model: "ensemble", with periodic embeddings of numeric features, or "paper", the network of
            the paper.
        members: Networks, a multiple of `folds`.
        folds: Parts that the rows are dealt into.
        max_epochs: Passes over the rows at most.
        patience: Epochs without a better score before training stops.
        batch_size: Rows a step.
        learning_rate: Of AdamW.
        weight_decay: Of AdamW.
        random_state: A seed, a generator of NumPy's old kind, or None.
        verbose: Whether to show a bar on a terminal.

    Attributes:
        epsilon_: ε, in squared units of y (the first output's, if there are several); None of other
            losses than "biv" and of a policy.
        tau2_: The estimated variance of the model's own error, in squared units of y, an output.
        n_epochs_: The epoch that was chosen.
        history_: The out-of-fold score after every epoch, in units of the label variance.
        effective_sample_size_: How many equally reliable labels the error bars amount to.
        n_features_in_: Columns of X.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 2))
        >>> y_std = rng.uniform(0.1, 2.0, size=300)
        >>> y = X[:, 0] + y_std * rng.normal(size=300)
        >>> model = BIVRegressor(max_epochs=20, random_state=0).fit(X, y, y_std=y_std)
        >>> mean, std = model.predict(X, return_std=True)
        >>> bool(np.mean((mean - X[:, 0]) ** 2) < 0.2)
        True
    """

    def __init__(
        self,
        *,
        loss: str = "biv",
        epsilon: float | str | EpsilonPolicy = "auto",
        threshold: float | None = None,
        model: str = "ensemble",
        members: int = 8,
        folds: int = 8,
        max_epochs: int = 100,
        patience: int = 12,
        batch_size: int = 256,
        learning_rate: float = 2e-3,
        weight_decay: float = 0.01,
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
        self.random_state = random_state
        self.verbose = verbose

    # What Pipeline, GridSearchCV and the like pass on by default, with metadata routing enabled.
    __metadata_request__fit: ClassVar = {"y_var": True, "y_std": True}
    __metadata_request__score: ClassVar = {"y_var": True}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.input_tags.allow_nan = True
        return tags

    def fit(
        self,
        X: Any,
        y: Any,
        y_var: Any = None,
        y_std: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learn from rows, labels and their error bars.

        Args:
            X: (N, features): numbers, or a pandas frame whose columns of text are categories. A
                missing number becomes the median of its column, with a column that says so; a
                missing category is one of its own.
            y: (N,) or (N, outputs); NaN is a missing label.
            y_var: σ² of each label, as y; 0 is a label to trust, +inf one to ignore.
            y_std: The same as a standard deviation; one of the two at most.
            sample_weight: How much each row matters, (N,), whatever its noise.
        """
        self._check_settings()
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        table = self._table(X, reset=True)
        y = check_array(
            y, ensure_2d=False, dtype=np.float64, ensure_all_finite="allow-nan", input_name="y"
        )
        check_consistent_length(table, y)
        labels = y.reshape(len(y), -1)
        variance = _variance(y_var, y_std, y)
        loss = "l2" if variance is None and self.loss == "biv" else self.loss
        if variance is None and loss != "l2":
            raise ValueError(f"loss={loss!r} needs y_var or y_std; found neither")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._single = y.ndim == 1
        self._encoder = FeatureEncoder.fit(table)
        matrix = self._encoder(table)
        self._features = FeatureScaler.fit(matrix, ddof=0)
        self._labels = [
            _label_scaler(labels[:, k], None if variance is None else variance[:, k])
            for k in range(labels.shape[1])
        ]
        rows = self._rows(matrix, labels, variance, sample_weight)
        self._fitted = self._fit(rows, loss, seed)
        self.effective_sample_size_ = float(len(rows))
        if rows.variance is not None:
            self.effective_sample_size_ = metrics.effective_sample_size(
                rows.variance, epsilon=self._fitted.tau2
            )
        self._report()
        return self

    def _table(self, X: Any, *, reset: bool) -> Any:
        """A frame with categories as it is, anything else as an array; its shape is looked at."""
        if has_categories(X):
            validate_data(self, X, skip_check_array=True, reset=reset)
            if reset and len(X) < FEWEST_ROWS:
                raise ValueError(f"X must have at least {FEWEST_ROWS} rows; found {len(X)}")
            return X
        return validate_data(
            self,
            X,
            reset=reset,
            dtype=np.float64,
            ensure_all_finite="allow-nan",
            ensure_min_samples=FEWEST_ROWS if reset else 1,
        )

    def _check_settings(self) -> None:
        for name, allowed in (("loss", LOSSES), ("model", MODELS)):
            if getattr(self, name) not in allowed:
                names = ", ".join(repr(one) for one in allowed)
                raise ValueError(f"{name} must be one of {names}; found {getattr(self, name)!r}")
        epsilon: object = self.epsilon
        if isinstance(epsilon, str):
            if epsilon != "auto":
                raise ValueError(f"epsilon must be 'auto', a number or a policy; found {epsilon!r}")
        elif not isinstance(epsilon, EpsilonPolicy):
            _checks.real_number("epsilon", epsilon, _checks.NON_NEGATIVE)

    def _rows(
        self,
        matrix: Array,
        labels: Array,
        variance: Array | None,
        sample_weight: Any,
    ) -> Triplets:
        y = np.stack([s.label(labels[:, k]) for k, s in enumerate(self._labels)], axis=1)
        if variance is not None:
            variance = np.stack(
                [s.variance(variance[:, k]) for k, s in enumerate(self._labels)], axis=1
            )
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, matrix, ensure_non_negative=True)
            if not weight.any():
                raise ValueError("sample_weight must not be zero in every row")
        return Triplets(
            _single(self._features(matrix)),
            _single(y),
            None if variance is None else _single(variance),
            None if weight is None else _single(weight[:, None]),
        )

    def _fit(self, rows: Triplets, loss: str, seed: int) -> CrossFit:
        self._mlp = network = self._network(rows)
        folds = min(self.folds, len(rows))
        members = self.members if folds == self.folds else folds

        def fit(loss: VarianceLoss, epochs: int) -> CrossFit:
            schedule = Schedule(
                epochs=epochs,
                batch_size=self.batch_size,
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
                learning_rate=self.learning_rate,
                members=members,
                folds=folds,
                patience=self.patience,
                seed=seed % 2**20,
                progress=self.verbose,
            )

        self._epsilon: float | None = None
        if loss != "biv":
            return fit(self._other_loss(loss, rows), self.max_epochs)
        epsilon: Any = self.epsilon
        if isinstance(epsilon, str):
            epsilon = fit(BIVLoss(USUAL_EPSILON), min(PILOT_EPOCHS, self.max_epochs)).tau2
        if not isinstance(epsilon, EpsilonPolicy):
            self._epsilon = float(epsilon)
        return fit(BIVLoss(epsilon), self.max_epochs)

    def _other_loss(self, loss: str, rows: Triplets) -> VarianceLoss:
        if loss == "l2":
            return L2Loss()
        if loss == "iv":
            return IVLoss()
        assert rows.variance is not None
        if self.threshold is not None:
            if len(self._labels) > 1:  # its units are those of one output
                raise ValueError(f"threshold is for one output; found {len(self._labels)}")
            return CutoffLoss(self._labels[0].variance(float(self.threshold)))
        return CutoffLoss(float(rows.variance[rows.variance.isfinite()].mean()))

    def _network(self, rows: Triplets) -> MLP:
        outputs, columns = rows.y.shape[1], rows.x.T
        if self.model == "paper":
            return MLP(len(columns), outputs=outputs)
        numbers = self._encoder.numeric
        numeric = tuple(k for k in numbers if len(np.unique(columns[k].numpy())) >= FEWEST_VALUES)
        embedding = Periodic(numeric, frequencies=16, width=8, scale=0.3) if numeric else None
        return MLP(len(columns), (128, 128), outputs, embedding)

    def _report(self) -> None:
        """The fitted attributes, in the units of the labels."""
        scales = np.array([scaler.std**2 for scaler in self._labels])
        tau2 = self._fitted.tau2 * scales
        self.tau2_ = float(tau2[0]) if self._single else tau2
        self.epsilon_ = None if self._epsilon is None else self._epsilon * float(scales[0])
        self.n_epochs_ = self._fitted.epoch
        self.history_ = self._fitted.scores

    def predict(self, X: Any, return_std: bool = False, y_var: Any = None) -> Any:
        """The true labels of new rows, and how sure that is.

        Args:
            X: (N, features).
            return_std: Whether to return (mean, std), the standard deviation of the true label:
                the root of the members' variance and τ².
            y_var: The noise variance of new labels, to have the standard deviation of those.
        """
        check_is_fitted(self, "n_epochs_")
        matrix = self._encoder(self._table(X, reset=False))
        each = self._fitted.predict(_single(self._features(matrix))).double().numpy()
        mean = self._raw(each.mean(axis=0))
        if y_var is not None and not return_std:
            raise ValueError("y_var changes the standard deviation: ask for return_std=True")
        if not return_std:
            return mean[:, 0] if self._single else mean
        ddof = 1 if len(each) > 1 else 0
        scales = np.array([scaler.std for scaler in self._labels])
        variance = (each.var(axis=0, ddof=ddof) + self._fitted.tau2) * scales**2
        noise = _variance(y_var, None, mean[:, 0] if self._single else mean)
        std = np.sqrt(variance if noise is None else variance + noise)
        return (mean[:, 0], std[:, 0]) if self._single else (mean, std)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file of tensors and JSON, which :meth:`load` reads.

        A `random_state` or `epsilon` that is an object is not kept: the loaded model has the
        default in its place, and predicts the same.
        """
        check_is_fitted(self, "n_epochs_")
        tensors = {
            f"member.{k}.{name}": tensor
            for k, module in enumerate(self._fitted.modules)
            for name, tensor in module.state_dict().items()
        }
        tensors["features.mean"] = torch.from_numpy(self._features.mean)
        tensors["features.std"] = torch.from_numpy(self._features.std)
        tensors["out_of_fold"] = self._fitted.out_of_fold
        plain = (str, int, float, bool, type(None))
        content = {
            "settings": {k: v for k, v in self.get_params().items() if isinstance(v, plain)},
            "members": len(self._fitted.modules),
            "network": asdict(self._mlp),
            "labels": [[scaler.mean, scaler.std] for scaler in self._labels],
            "single": self._single,
            "epoch": self._fitted.epoch,
            "scores": [float(s) if np.isfinite(s) else None for s in self._fitted.scores],
            "tau2": self._fitted.tau2,
            "epsilon": self._epsilon,
            "effective_sample_size": self.effective_sample_size_,
            "columns": self._encoder.told(),
            "feature_names": list(map(str, getattr(self, "feature_names_in_", []))),
        }
        modelfile.write(path, tensors, content)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The model that :meth:`save` wrote. No code of the file is run.

        Raises:
            ValueError: The file is no model, is damaged, or is of another version.
        """
        tensors, content = modelfile.read(path)
        try:
            return cls(**content["settings"])._restored(tensors, content)
        except (KeyError, TypeError, RuntimeError) as error:
            raise ValueError(f"{path} is not a model, or is damaged: {error}") from error

    def _restored(self, tensors: dict[str, Tensor], content: dict[str, Any]) -> Self:
        self._mlp = _network(content["network"])
        modules: list[nn.Module] = []
        for k in range(content["members"]):
            module = self._mlp(torch.Generator())
            prefix = f"member.{k}."
            own = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
            module.load_state_dict(own)
            modules.append(module.eval())
        scores = np.array([np.inf if s is None else s for s in content["scores"]])
        self._features = FeatureScaler(
            tensors["features.mean"].numpy(), tensors["features.std"].numpy()
        )
        self._labels = [LabelScaler(mean, std) for mean, std in content["labels"]]
        self._single, self._epsilon = content["single"], content["epsilon"]
        self._fitted = CrossFit(
            modules, content["epoch"], scores, tensors["out_of_fold"], content["tau2"]
        )
        self._encoder = FeatureEncoder.from_told(content["columns"])
        self.n_features_in_ = len(self._encoder.columns)
        if content["feature_names"]:
            self.feature_names_in_ = np.array(content["feature_names"], dtype=object)
        self.effective_sample_size_ = content["effective_sample_size"]
        self._report()
        return self

    def _raw(self, normalised: Array) -> Array:
        columns = [s.label_raw(normalised[:, k]) for k, s in enumerate(self._labels)]
        return np.stack(columns, axis=1)

    def score(self, X: Any, y: Any, y_var: Any = None, sample_weight: Any = None) -> float:
        """R²; with the variances of noisy labels, R² to the true ones behind them.

        The latter is :func:`biv.metrics.noise_corrected_r2`, which has no use for `sample_weight`.
        """
        predicted = self.predict(X)
        if y_var is None:
            return float(r2_score(y, predicted, sample_weight=sample_weight))
        if sample_weight is not None:
            raise ValueError("a noise-corrected score takes y_var or sample_weight, not both")
        labels = np.asarray(y, dtype=np.float64)
        variance = _variance(y_var, None, labels)
        shape = (len(labels), -1)
        score = metrics.noise_corrected_r2(
            predicted.reshape(shape), labels.reshape(shape), variance
        )
        return score.value


def _network(told: dict[str, Any]) -> MLP:
    """An MLP back from JSON."""
    periodic = told.pop("periodic")
    if periodic is not None:
        periodic = Periodic(**{**periodic, "columns": tuple(periodic["columns"])})
    return MLP(**{**told, "widths": tuple(told["widths"])}, periodic=periodic)


def _variance(y_var: Any, y_std: Any, y: Array) -> Array | None:
    """σ² of every label, (N, D); None if there is none."""
    if y_var is not None and y_std is not None:
        raise ValueError("give y_var or y_std, not both")
    name, given = ("y_var", y_var) if y_std is None else ("y_std", y_std)
    if given is None:
        return None
    value = np.asarray(given, dtype=np.float64)
    if value.shape != y.shape and value.shape != (len(y), 1) and value.shape != (len(y),):
        raise ValueError(f"{name} must have the shape of y, {y.shape}; found {value.shape}")
    bad = np.flatnonzero(~(value.reshape(len(y), -1) >= 0).all(axis=1))
    if len(bad):
        raise ValueError(f"{name} must be at least 0 and not NaN; found others in rows {bad[:5]}")
    value = value.reshape(len(y), -1)
    if name == "y_std":
        value = value**2
    return np.broadcast_to(value, (len(y), y.reshape(len(y), -1).shape[1]))


def _label_scaler(labels: Array, variance: Array | None) -> LabelScaler:
    """Labels that do not vary have nothing to scale by: they are moved to 0 only."""
    known = labels[~np.isnan(labels)]
    if len(known) and np.ptp(known) == 0:
        return LabelScaler(float(known[0]), 1.0)
    return LabelScaler.fit(labels, variance, ddof=0)


def _single(values: Array) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)
