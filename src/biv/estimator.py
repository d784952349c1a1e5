"""The scikit-learn estimator: a table, a column of labels, and a column of error bars."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    TypedDict,
    Union,
    get_args,
    get_type_hints,
)

import numpy as np
import numpy.typing as npt
import torch
from msgspec import Meta
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
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

from biv import _arrays, _checks, _json, errorbars, metrics, modelfile
from biv._checks import describe, shortened
from biv._pages import helps_with, see
from biv._warnings import warn
from biv.datasets import FeatureScaler
from biv.epsilon import EpsilonPolicy, Fixed, Relative
from biv.features import (
    MISSING,
    Categorical,
    FeatureEncoder,
    Ignored,
    Numeric,
    columns_of,
    has_categories,
)
from biv.fitted import Fitted, OwnNetwork, Part
from biv.fitting import Fitting, single, usable
from biv.leakage import is_identifier, label_copies
from biv.models import MLP, Periodic
from biv.modules import BIVLoss, CutoffLoss, IVLoss, L2Loss, VarianceLoss
from biv.training import CrossFit, Schedule, Triplets, cross_fit
from biv.training.held_out import warn_if_negative
from biv.training.machine import steady_machine

if TYPE_CHECKING:
    from typing_extensions import Self

Array = npt.NDArray[Any]

LOSSES = ("biv", "l2", "iv", "cutoff")
MODELS = ("ensemble", "paper")
UNKNOWN = ("raise", "median", "estimate")
USUAL_EPSILON = 0.05  # the paper's, of labels of unit variance
PILOT_EPOCHS, PILOT_STEPS = 12, 96  # of a pilot: at most 12 epochs, or more to make 96 steps
PILOT_FOLDS = 4  # at most: each member of a pilot learns from three quarters of the rows
SHARE = 0.2  # of which "auto" takes the whole or this much
USUAL_RATE = 1e-3
LARGEST_RATE, RATE_OF_ONE_INPUT = 6e-3, 0.06  # of an ensemble; chosen on noisy held-out labels
USUAL_BATCH, SMALLEST_BATCH, STEPS = 256, 32, 24  # an epoch of a small table has so many steps
EPOCH_ROWS = 1 << 16  # of a large one
FEWEST_EPOCHS, PATIENT_STEPS = 4, 96
MANY_CATEGORIES = 100  # in more than half of the filled cells: an identifier?
AVERAGING = 2.0  # chosen on noisy held-out labels
SCALES = (0.1, 0.25, 0.6)  # of embeddings: for smooth labels, and for those that change fast
FEWEST_ROWS = 2
SMALLEST_IMPORTANCE = 1e-18  # of the largest sample weight, and the largest is the reciprocal
MOST_MEMBERS = 10_000
LOADED_INTEGER = Annotated[int, Meta(ge=-(1 << 31), lt=1 << 32)]  # of the settings in a file
LOADED_WORD = Annotated[str, Meta(max_length=100)]
LOADED_SETTING = LOADED_INTEGER | LOADED_WORD | float | bool | None
FEWEST_VALUES = 3  # of a numeric feature that is embedded; what has fewer is a switch


class BIVRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    r"""Neural regression for labels with error bars.

    An ensemble of small networks is trained with Batch Inverse-Variance weighting, each label
    counting 1/(σ²+ε). Features, labels, σ² and ε are scaled inside. Each network leaves out a fold
    of the rows, and what it predicts there chooses the number of epochs and estimates the model's
    own error, from noisy labels alone (:func:`biv.training.cross_fit`). Several outputs are fitted
    one by one, each on the rows that have its label: a network that is shared by outputs of
    different difficulty has to stop at one epoch, and was up to 80 % worse than separate ones.

    With :math:`f_m(x)` of M networks, :meth:`predict` returns their mean, and as its variance

    .. math:: \frac{1}{M-1} \sum_m \left(f_m(x) - \bar f(x)\right)^2 + \tau^2
              \quad (+\, \sigma^2 \text{ of a new label, if given}),

    τ² being the :func:`biv.metrics.residual_variance` of `out_of_fold_`. That counts some of the
    networks' variance twice: intervals of 68 % hold more.

    Args:
        loss: "biv"; "l2" (every label alike), "iv" (1/σ², no ε) or "cutoff" (only labels with
            σ² below `threshold`). Without error bars, "biv" is "l2".
        epsilon: ε of "biv": "auto" takes the model's own residual variance τ², estimated by a short
            training before the real one, or a fifth of it, where another with that much predicts
            labels better that it has not seen. A number is **relative**, in units of the label
            variance (.01 to .1 is usual; in ``BIVLoss`` it is absolute). A policy of
            :mod:`biv.epsilon` is in squared units of y.
        threshold: Of "cutoff", in squared units of y; None takes the mean of the variances,
            and is the only way with several outputs, whose units may differ.
        model: "ensemble", with periodic embeddings of numeric features, whose first frequencies are
            low, middling or high, as short trainings find best; "paper", the network of the paper;
            or a function of yours that is given the numbers of features and outputs and
            makes an ``nn.Module``, from (N, features) to (N, outputs). Each output has networks of
            its own, so that the number of outputs is 1.
        members: Networks, a multiple of `folds`.
        folds: Parts that the rows are dealt into, one a row at most.
        max_epochs: Passes over the rows at most, of a large table over 65,536 of them, drawn anew
            each time. A warning says if that was too few.
        patience: Epochs without a `history_` lower by 1 % before training stops; None takes 4,
            and as many as make 96 steps of a small table.
        batch_size: Rows a step; None takes 256, and fewer of a small table, 32 at least, for an
            epoch of 24 steps.
        learning_rate: Of AdamW. None takes .06/√k for the k inputs of an "ensemble" 's first layer,
            .006 at most, and .001 for other models, which may want another, and more patience.
        weight_decay: Of AdamW.
        unknown_variance: What to do where `y_var` is NaN: "raise" an error, take the "median" of
            the others, or "estimate" one variance for all of them, from how far off these labels
            are. A warning says what was taken.
        calibrate_variance: Whether to multiply the variances by `variance_factor_` before training,
            as for error bars that are all wrong by one factor. Variances of new labels, in
            :meth:`predict` and :meth:`score`, are multiplied likewise.
        keep: Names of columns of a frame that are learned from although they look like identifiers
            or like copies of the label. Of a frame (never of an array), a column of text of which
            at least 95 % of 20 or more filled cells are distinct is left out, with a warning.
        checkpoint: A file that an interrupted :meth:`fit` goes on from, if it is called again with
            the same rows, settings and seed; to the same bits. Short trainings before the real one
            are done again. With several outputs, each has a file of its own, whose name ends in
            its number. Remove it when you have no more use for it.
        n_jobs: Number of threads for training and prediction; negative numbers count back from all
            processors, -1 being all. Two are faster by a third on idle processors, and many times
            slower than one on busy ones, since they wait for each other. They change the model by
            rounding at most.
        random_state: A seed, a generator of NumPy's old kind, or None.
        verbose: Whether to show a bar on a terminal, and to say what came out.

    Attributes:
        epsilon_: ε, in squared units of y; one for each output, if there are several. None with
            losses other than "biv" and with a policy.
        tau2_: The estimated variance of the model's own error, in squared units of y; one for each
            output. A noise that all labels share and no error bar knows
            of is in it too: the two cannot be told apart.
        n_epochs_: The epoch that was chosen; with several outputs, the largest of theirs.
        history_: The estimated mean squared error to the true labels after every epoch, in units of
            the label variance; with several outputs, their mean, to which an output whose training
            has ended contributes its lowest. A warning is given where the chosen one is negative.
        out_of_fold_: What members that have not learned from a row predict for it, as y.
        effective_sample_size_: How many labels the fit rests on: Kish's size of the weights
            1/(σ²+τ²).
        variance_factor_: By what factor `y_var` seems to be off: the slope of squared out-of-fold
            residuals on it (:func:`biv.metrics.variance_factor`); 1 of honest error bars, and what
            to multiply them by if they are off by a common factor. None without error bars, NaN if
            they are alike.
        variance_factor_interval_: Its 95 % interval; of fewer than some 200 labels, too narrow.
        reduced_chi_squared_: Of the out-of-fold residuals, by the error bars alone, with its
            standard error (:func:`biv.metrics.reduced_chi_squared`). The model's own error takes it
            above 1; below 1, the error bars are too large. None without error bars.
        unknown_variance_: What is taken where `y_var` is NaN; None if that is an error.
        ignored_features_: Names of the columns that were left out as identifiers. They may hold
            anything in :meth:`predict`.
        feature_names_in_: Of the columns of a frame.
        n_features_in_: Columns of X.

    Identities: adding a number to y adds it to predictions, and scaling y and `y_std` by c scales
    predictions and standard deviations by c; `y_std` is `y_var` of its square; without error bars
    "biv" is "l2". The first two but for rounding.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 2))
        >>> y_std = rng.uniform(0.1, 2.0, size=300)
        >>> y = X[:, 0] + y_std * rng.normal(size=300)
        >>> model = BIVRegressor(random_state=0).fit(X, y, y_std=y_std)
        >>> mean, std = model.predict(X, return_std=True)
        >>> bool(np.mean((mean - X[:, 0]) ** 2) < 0.2)
        True

        A network of one's own:

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
        model: str | Callable[[int, int], nn.Module] = "ensemble",
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
        n_jobs: int = 1,
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
        y_var: Any = None,
        y_std: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learn from rows, labels and their error bars.

        If it fails, what was fitted before stays.

        Args:
            X: (N, features): numbers, or a pandas frame whose columns of text are categories. A
                missing number becomes the median of its column, with a column that says so; a
                missing category is one of its own.
            y: (N,) or (N, outputs); NaN is a missing label.
            y_var: σ² of each label, as y; or (N,) or (N, 1) for all labels of a row, or one number.
                0 is a label to trust, +inf one to ignore, NaN unknown (see `unknown_variance`).
            y_std: The same as a standard deviation; one of the two at most.
            sample_weight: How much each row matters, (N,), whatever its noise; 0 leaves it out.
        """
        before = dict(vars(self))
        try:
            with steady_machine():
                return self._fit(X, y, y_var, y_std, sample_weight)
        except BaseException:
            self.__dict__ = before
            raise

    def _fit(self, X: Any, y: Any, y_var: Any, y_std: Any, sample_weight: Any) -> Self:
        self._check_settings()
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        for name, column in (("y", y), ("sample_weight", sample_weight)):
            _arrays.refuse_mask(name, column)
            _arrays.refuse_tensor(name, column)
        table = self._table(X, reset=True)
        with _arrays.checking("y"):
            y = _arrays.of_cells("y", y)
            y = check_array(
                y, ensure_2d=False, dtype=np.float64, ensure_all_finite="allow-nan", input_name="y"
            )
        check_consistent_length(table, y)
        bars = errorbars.read(y, y_var, y_std)
        self._check_units(y)
        loss = "l2" if bars is None and self.loss == "biv" else self.loss
        if bars is None and (loss != "l2" or self.calibrate_variance):
            what = f"loss={loss!r}" if loss != "l2" else "calibrate_variance=True"
            raise ValueError(f"{what} needs y_var or y_std; found neither{see('y_var')}")
        if self.unknown_variance == "raise":
            errorbars.require_known(
                bars, ": unknown_variance='median' or 'estimate' puts something in its place"
            )
        with _arrays.checking("random_state"):
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        names = self._column_names(X)
        encoder = _without_identifiers(FeatureEncoder.fit(table), table, self.keep)
        _warn_of_copies(encoder, names, table, y.reshape(len(y), -1), self.keep)
        matrix = encoder(table)
        weight = None
        if sample_weight is not None:
            weight = _importance(sample_weight, matrix)
            if not weight.any():
                raise ValueError("sample_weight must not be zero in every row")
        start = time.perf_counter()
        labels = y.reshape(len(y), -1)
        parts, findings = [], []
        counting = usable(labels, weight, bars)
        _arrays.refuse_extremes("y", np.where(counting, labels, np.nan), _arrays.LARGEST)
        for output, used in enumerate(counting.T):
            # Of the output's own rows, so that a fit of several outputs is several fits of one.
            features = FeatureScaler.fit(matrix[used], ddof=0)
            x = single(features(matrix))
            fitting = Fitting(
                x[torch.from_numpy(used)],
                labels[used, output, None],
                None if weight is None else weight[used],
                None if bars is None else bars.rows(used, output),
                self.unknown_variance,
            )
            recipes = self._networks(fitting.x, encoder)
            checkpoint = self._checkpoint(output, labels)
            recipe, ensemble, epsilon = self._train(fitting, recipes, loss, seed, checkpoint)
            story = fitting.story(fitting.raw(ensemble.out_of_fold))
            part = Part(features, fitting.scalers, recipe, ensemble, story, epsilon)
            findings.append((fitting, part.out_of_fold))
            parts.append(_with_every_row(part, x, used))
        self._fitted = Fitted(y.ndim == 1, encoder, parts, self.calibrate_variance)
        self._fitted.require_finite(self._fitted.out_of_fold, matrix, names)
        self._report()
        for fitting, out_of_fold in findings:
            fitting.tell(out_of_fold)
        self._warn_about_epochs()
        if self.verbose:
            print(f"{self._summary()}, {time.perf_counter() - start:.1f} s", file=sys.stderr)
        return self

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
                f"the last of max_epochs={self.max_epochs} epochs was the best: with more, or a "
                "larger learning_rate, it may become better",
                ConvergenceWarning,
            )
        warn_if_negative(min(float(ensemble.scores.min()) for ensemble in chosen))

    def _summary(self) -> str:
        told = {"τ²": self.tau2_, "ε": self.epsilon_, "variance factor": self.variance_factor_}
        words = [
            f"{name} {' '.join(f'{x:.4g}' for x in np.atleast_1d(value))}"
            for name, value in told.items()
            if value is not None
        ]
        return ", ".join([f"epoch {self.n_epochs_} of {len(self.history_)}", *words])

    def _column_names(self, X: Any) -> Sequence[Any]:
        """The names of the columns of a frame, and their places in an array."""
        names = list(X.columns) if hasattr(X, "columns") else []
        known, found = frozenset(names), shortened(self.keep)
        if not isinstance(self.keep, str):
            with suppress(TypeError):  # it is no list, or a name in it cannot be hashed
                lost = [name for name in self.keep if name not in known]
                if not lost:
                    return names or range(self.n_features_in_)
                found = f"{shortened(lost[0])}, which X lacks"
        raise ValueError(f"keep must be a list of names of columns of a frame; found {found}")

    def _table(self, X: Any, *, reset: bool) -> Any:
        """A frame with categories as it is, anything else as an array; its shape is looked at."""
        _arrays.refuse_mask("X", X)
        _arrays.refuse_tensor("X", X)
        if has_categories(X):
            with _arrays.checking("X"):
                validate_data(self, X, skip_check_array=True, reset=reset)
            if reset and len(X) < FEWEST_ROWS:
                raise ValueError(f"X must have at least {FEWEST_ROWS} rows; found {len(X)}")
            return X
        with _arrays.checking("X"):
            if not hasattr(X, "iloc"):
                X = _arrays.of_cells("X", X, ": use a pandas frame, whose text is categories")
            try:
                return validate_data(
                    self,
                    X,
                    reset=reset,
                    dtype=np.float64,
                    ensure_all_finite="allow-nan",
                    ensure_min_samples=FEWEST_ROWS if reset else 1,
                )
            except ValueError as error:
                raise _with_place_of_infinity(error, X) from None

    @helps_with("estimator")
    def _check_settings(self) -> None:
        model: object = self.model
        if not callable(model) or isinstance(model, nn.Module):
            _checks.one_of("model", model, MODELS, ", or a function that makes an nn.Module")
        _checks.one_of("loss", self.loss, LOSSES)
        _checks.one_of("unknown_variance", self.unknown_variance, UNKNOWN)
        _checks.one_of("calibrate_variance", self.calibrate_variance, (False, True))
        if not isinstance(self.verbose, (bool, np.bool_, Integral)):
            raise TypeError(f"verbose must be True or False; found {describe(self.verbose)}")
        if not isinstance(self.checkpoint, (str, os.PathLike, type(None))):
            raise TypeError(f"checkpoint must be a path; found {describe(self.checkpoint)}")
        _checks.integer("members", self.members, at_least=1, at_most=MOST_MEMBERS)
        for name, least in (("folds", 2), ("max_epochs", 1)):
            _checks.integer(name, getattr(self, name), at_least=least)
        for name in ("patience", "batch_size"):
            if getattr(self, name) is not None:
                _checks.integer(name, getattr(self, name), at_least=1)
        if self.members % self.folds:
            raise ValueError(
                f"members must be a multiple of folds, {self.folds}; found {self.members}"
            )
        if self.threshold is not None:
            _checks.real_number("threshold", self.threshold, _checks.POSITIVE)
        epsilon: object = self.epsilon
        if isinstance(epsilon, str):
            if epsilon != "auto":
                raise ValueError(
                    f"epsilon must be 'auto', a number or a policy; found {shortened(epsilon)}"
                    f"{see('epsilon')}"
                )
        elif not isinstance(epsilon, EpsilonPolicy):
            _checks.real_number("epsilon", epsilon, _checks.NON_NEGATIVE)

    def _check_units(self, y: Array) -> None:
        """Refuse settings in squared units of y where several outputs have different units."""
        outputs = y[0].size
        for name in ("threshold", "epsilon"):
            value = getattr(self, name)
            absolute = name == "threshold" or isinstance(value, (Fixed, Relative))
            if outputs > 1 and value is not None and absolute:
                raise ValueError(
                    f"{name}={value!r} is in squared units of one output; found {outputs} outputs: "
                    + (
                        "leave it out"
                        if name == "threshold"
                        else "give a number, which is relative"
                    )
                )

    def _train(
        self,
        fitting: Fitting,
        recipes: Sequence[MLP | OwnNetwork],
        loss: str,
        seed: int,
        checkpoint: Path | None,
    ) -> tuple[MLP | OwnNetwork, CrossFit, float | None]:
        """Pilots, if something is to be learned from them first, and then the ensemble.

        Returns the network that was chosen, the ensemble, and ε, in units of the label variance, if
        that is one number.
        """
        rows = fitting.rows()
        epsilon: Any = self.epsilon
        automatic = loss == "biv" and isinstance(epsilon, str)
        estimates = fitting.has_unknown and self.unknown_variance == "estimate"

        def pilot(recipe: MLP | OwnNetwork, epsilon: float) -> Array:
            """What it predicts out of fold, in units of y."""
            counted = L2Loss() if loss == "l2" else BIVLoss(epsilon)
            fitted = self._cross_fit(recipe, rows, counted, seed, pilot=True)
            return fitting.raw(fitted.out_of_fold)

        recipe = recipes[0]
        if automatic or estimates or self.calibrate_variance or len(recipes) > 1:
            tried = [(own, pilot(own, USUAL_EPSILON)) for own in recipes]
            recipe, out_of_fold = min(tried, key=lambda one: fitting.score(one[1]))
            if self.calibrate_variance:
                fitting.calibrate(out_of_fold)
            if estimates:
                fitting.estimate(out_of_fold)
            rows = fitting.rows()
            if automatic:
                epsilon = tau2 = fitting.residual_variance(out_of_fold)
                # Less, where the best labels are also the ones that there is most to learn from.
                if tau2 > 0:
                    with_less = fitting.score(pilot(recipe, SHARE * tau2))
                    if with_less < fitting.score(out_of_fold):
                        epsilon = SHARE * tau2
        if loss != "biv":
            other = self._other_loss(loss, fitting, rows)
            return recipe, self._cross_fit(recipe, rows, other, seed, checkpoint=checkpoint), None
        if isinstance(epsilon, (Fixed, Relative)):
            epsilon = fitting.scalers[0].variance(float(epsilon.resolve(torch.zeros(1))))
        fitted = self._cross_fit(recipe, rows, BIVLoss(epsilon), seed, checkpoint=checkpoint)
        return recipe, fitted, None if isinstance(epsilon, EpsilonPolicy) else float(epsilon)

    def _cross_fit(
        self,
        recipe: MLP | OwnNetwork,
        rows: Triplets,
        loss: VarianceLoss,
        seed: int,
        *,
        pilot: bool = False,
        checkpoint: Path | None = None,
    ) -> CrossFit:
        folds = min(self.folds, len(rows), PILOT_FOLDS if pilot else len(rows))
        learned = len(rows) - -(-len(rows) // folds)  # by each member
        size = self.batch_size or min(USUAL_BATCH, max(SMALLEST_BATCH, learned // STEPS))
        steps = -(-learned // size)
        if self.batch_size is None:
            size = -(-learned // steps)  # all alike: a small last one would count as much as others
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
            recipe,
            rows,
            schedule,
            loss=loss,
            learning_rate=self._learning_rate(recipe),
            members=folds if pilot or folds < self.folds else self.members,
            folds=folds,
            patience=self.patience or max(FEWEST_EPOCHS, -(-PATIENT_STEPS // steps)),
            seed=seed % 2**20,
            threads=self._threads(),
            progress=self.verbose,
            checkpoint=checkpoint,
        )

    def _learning_rate(self, recipe: MLP | OwnNetwork) -> float:
        if self.learning_rate is not None:
            return self.learning_rate
        if isinstance(recipe, OwnNetwork) or self.model == "paper":
            return USUAL_RATE
        # A step of Adam moves every weight alike, and k of them move the sum that they feed.
        return min(LARGEST_RATE, RATE_OF_ONE_INPUT / math.sqrt(recipe.inputs))

    def _threads(self) -> int:
        cores = os.cpu_count() or 1
        given: object = 1 if self.n_jobs is None else self.n_jobs  # as scikit-learn has it
        if not isinstance(given, Integral) or given == 0:
            raise ValueError(f"n_jobs must be 1 or more, or -1 for all; found {shortened(given)}")
        jobs = int(given)
        return min(jobs, cores) if jobs > 0 else max(cores + 1 + jobs, 1)

    def _other_loss(self, loss: str, fitting: Fitting, rows: Triplets) -> VarianceLoss:
        if loss == "l2":
            return L2Loss()
        if loss == "iv":
            return IVLoss()
        assert rows.variance is not None
        finite = rows.variance[rows.variance.isfinite()]
        threshold = float(finite.mean())
        if self.threshold is not None:
            threshold = fitting.scalers[0].variance(float(self.threshold))
        if not bool((finite < threshold).any()):
            lowest = float(np.nanmin(np.asarray(fitting.variance)))
            raise ValueError(
                f"loss='cutoff' leaves no label: the lowest variance is {lowest:.4g}, and the "
                f"threshold {'their mean' if self.threshold is None else f'{self.threshold:.4g}'}"
            )
        return CutoffLoss(threshold)

    def _networks(self, x: Tensor, encoder: FeatureEncoder) -> Sequence[MLP | OwnNetwork]:
        """Return the network of one output, or several to choose from."""
        columns = x.T
        if not isinstance(self.model, str):
            return [OwnNetwork(self.model, len(columns), outputs=1)]
        if self.model == "paper":
            return [MLP(len(columns))]
        numbers = encoder.numeric
        numeric = tuple(k for k in numbers if len(np.unique(columns[k].numpy())) >= FEWEST_VALUES)
        if not numeric:
            return [MLP(len(columns), (64, 64))]
        embeddings = (Periodic(numeric, frequencies=8, width=8, scale=scale) for scale in SCALES)
        return [MLP(len(columns), (64, 64), periodic=own) for own in embeddings]

    def _report(self) -> None:
        """The fitted attributes, in the units of the labels."""
        fitted, story = self._fitted, self._fitted.story
        self.tau2_ = fitted.an_output(story.tau2)
        self.epsilon_ = fitted.an_output(fitted.epsilon)
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        rules = zip(names, fitted.encoder.columns, strict=True)
        self.ignored_features_ = [name for name, rule in rules if isinstance(rule, Ignored)]
        self.n_epochs_: int = fitted.epoch
        self.history_ = fitted.scores
        self.out_of_fold_ = fitted.shaped(fitted.out_of_fold)
        self.effective_sample_size_ = story.effective_sample_size
        self.reduced_chi_squared_ = fitted.an_output(story.reduced_chi_squared)
        self.unknown_variance_ = fitted.an_output(story.unknown_variance)
        factors = story.factors
        self.variance_factor_ = fitted.an_output(factors and [f.value for f in factors])
        self.variance_factor_interval_ = fitted.an_output(factors and [f[1:] for f in factors])

    def predict(
        self, X: Any, return_std: bool = False, y_var: Any = None, *, y_std: Any = None
    ) -> Any:
        """The true labels of new rows, and how sure that is.

        Args:
            X: (N, features).
            return_std: Whether to return (mean, std), the standard deviation of the true label:
                the root of the members' variance and τ². Of a few hundred rows, τ² is rough.
            y_var: The noise variance of new labels, to have the standard deviation of those; as
                what is predicted, or one a row.
            y_std: The same as a standard deviation.

        Returns:
            (N,), or (N, outputs) if y had two dimensions.
        """
        check_is_fitted(self, "n_epochs_")
        if not (y_var is None and y_std is None) and not return_std:
            raise ValueError("error bars change the standard deviation: ask for return_std=True")
        fitted = self._fitted
        with steady_machine(self._threads()):
            names = getattr(self, "feature_names_in_", None)
            mean, spread = fitted.predict(self._table(X, reset=False), names)
        if not return_std:
            return fitted.shaped(mean)
        variance = spread + fitted.story.tau2
        noise = fitted.new_variance(fitted.shaped(mean), y_var, y_std)
        if noise is not None:
            errorbars.require_finite(noise, "y_var" if y_std is None else "y_std")
        std = np.sqrt(variance if noise is None else variance + noise)
        return fitted.shaped(mean), fitted.shaped(std)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file of tensors and JSON, which :meth:`load` reads.

        A `checkpoint` is not kept, nor a `random_state` or `epsilon` that is an object: the loaded
        model has the default in its place, and predicts the same. Of a `model` of yours the
        parameters are kept and the function is not: give it to :meth:`load` again.
        """
        check_is_fitted(self, "n_epochs_")
        tensors, content = self._fitted.told()
        kept = (str, int, float, bool, type(None))
        settings = {k: modelfile.plain(v) for k, v in self.get_params().items()}
        content["settings"] = {
            k: v for k, v in settings.items() if isinstance(v, kept) and k != "checkpoint"
        }
        if len(self.keep):
            content["settings"]["keep"] = list(map(str, self.keep))
        content["feature_names"] = list(map(str, getattr(self, "feature_names_in_", [])))
        modelfile.write(path, tensors, content)

    @classmethod
    def load(
        cls, path: str | Path, *, model: Callable[[int, int], nn.Module] | None = None
    ) -> Self:
        """The model that :meth:`save` wrote. No code of the file is run.

        Of its settings only numbers, words and truth values are taken from the file, and no path:
        a file does not choose where :meth:`fit` writes.

        Args:
            path: The file.
            model: The function that made its networks, if that was one of yours.

        Raises:
            ValueError: The file is no model, is damaged, or is of another version; or it wants
                `model`, or has no use for it.
        """
        with helps_with("estimator"):
            tensors, content = modelfile.read(path)
        if (content.get("network", {}) is None) != (model is not None):
            wanted = "pass it as model=" if model is None else "leave model out"
            whose = "a function of its maker's" if model is None else "biv itself"
            raise ValueError(f"the networks of {path} were made by {whose}: {wanted}")
        what = "is damaged" if model is None else "was made by another function than this"
        with _json.damaged(path, f"is not a model, or {what}"):
            settings = _stored_settings(content["settings"], cls._get_param_names())
            if model is not None:
                settings["model"] = model
            loaded = cls(**settings)
            loaded._check_settings()
            return loaded._restored(tensors, content, model)

    def _restored(
        self,
        tensors: dict[str, Tensor],
        content: dict[str, Any],
        model: Callable[[int, int], nn.Module] | None,
    ) -> Self:
        fitted = Fitted.from_told(tensors, content, model)
        names = _json.convert(content["feature_names"], list[str])
        if names and len(names) != len(fitted.encoder.columns):
            raise ValueError(f"feature_names must name {len(fitted.encoder.columns)} columns")
        return self._holding(fitted, names)

    def _holding(self, fitted: Fitted, feature_names: Sequence[str]) -> Self:
        """This, with a model that was fitted elsewhere."""
        self._fitted = fitted
        self.n_features_in_ = len(fitted.encoder.columns)
        if feature_names:
            self.feature_names_in_ = np.array(feature_names, dtype=object)
        self._report()
        return self

    def score(
        self, X: Any, y: Any, y_var: Any = None, sample_weight: Any = None, y_std: Any = None
    ) -> float:
        """R²; with the error bars of noisy labels, R² to the true ones behind them.

        The latter is :func:`biv.metrics.noise_corrected_r2`, which has no use for `sample_weight`.
        Of several outputs it is their mean; labels that are NaN do not count.
        """
        predicted = self.predict(X)
        labels = _arrays.real_numbers("y", y)
        _arrays.refuse_extremes("y", labels, _arrays.LARGEST)
        if labels.size != predicted.size or len(labels) != len(predicted):
            raise ValueError(f"y must have shape {predicted.shape}; found {labels.shape}")
        columns = labels.reshape(len(labels), -1)
        noise = self._fitted.new_variance(labels, y_var, y_std)
        if noise is not None and sample_weight is not None:
            raise ValueError("a noise-corrected score takes error bars or sample_weight, not both")
        scores = []
        if sample_weight is not None:
            sample_weight = _importance(sample_weight, columns)
        for k, f in enumerate(predicted.reshape(columns.shape).T):
            target = columns[:, k]
            if noise is not None:
                scores.append(metrics.noise_corrected_r2(f, target, noise[:, k]).value)
                continue
            known = ~np.isnan(target)
            weight = None if sample_weight is None else sample_weight[known]
            scores.append(r2_score(target[known], f[known], sample_weight=weight))
        return float(np.mean(scores))


def _with_place_of_infinity(error: ValueError, X: Any) -> ValueError:
    """Return scikit-learn's error of an infinite number with its row and column."""
    if "infinity" not in str(error):
        return error
    frame = hasattr(X, "iloc")
    numbers = X.to_numpy(np.float64, na_value=np.nan) if frame else np.asarray(X, np.float64)
    places = np.argwhere(np.isinf(numbers))
    if not len(places):  # it is the name of a column
        return error
    row, place = places[0]
    column = X.columns[place] if hasattr(X, "columns") else int(place)
    where = f"row {row}, column {_checks.shortened(column)}"
    return ValueError(f"{str(error).rstrip('.')}: found an infinite number in {where}")


def _importance(sample_weight: Any, rows: Array) -> Array:
    """Checked sample weights, of a size that float32 and sums of them have room for."""
    with _arrays.checking("sample_weight"):
        sample_weight = _arrays.of_cells("sample_weight", sample_weight)
        weight: Array = _check_sample_weight(sample_weight, rows, ensure_non_negative=True)
    largest = weight.max(initial=0.0)
    ordinary = SMALLEST_IMPORTANCE < largest < 1 / SMALLEST_IMPORTANCE
    return weight if ordinary or not largest else weight / largest


def _stored_settings(content: Any, names: Collection[str]) -> dict[str, Any]:
    """Return the settings that a file holds, which are numbers, words and truth values.

    What the constructor takes as a path or an object has no place in a file. An unknown setting is
    an error, because a model fitted again without it would be another.

    Args:
        content: The settings as JSON has them.
        names: All parameters of the estimator, which a subclass may have more of.

    Raises:
        ValueError: A setting is unknown, or of another type.
    """
    bounded = {int: LOADED_INTEGER, str: LOADED_WORD}
    hints = get_type_hints(BIVRegressor.__init__)
    kinds: dict[str, Any] = {name: LOADED_SETTING for name in names if name not in hints}
    kinds["keep"] = tuple[str, ...]
    for name, hint in hints.items():
        taken = get_args(hint) or (hint,)
        plain = [kind for kind in taken if kind in (str, int, float, bool, type(None))]
        if Path not in taken and set(plain) - {type(None)}:
            kinds[name] = Union[tuple(bounded.get(kind, kind) for kind in plain)]  # noqa: UP007
    given = _json.convert(content, dict[str, Any])
    if odd := sorted(set(given) - set(kinds)):
        name = _checks.shortened(odd[0])
        raise ValueError(f"settings has {name}, which is unknown: a newer biv may have written it")
    for name in given:
        if kinds[name] is bool and given[name] in (0, 1):  # such as verbose=1
            given[name] = bool(given[name])
    return dict(_json.convert(given, TypedDict("Settings", kinds, total=False)))  # type: ignore


def _with_every_row(part: Part, x: Tensor, used: npt.NDArray[np.bool_]) -> Part:
    """Add to `out_of_fold` the rows without a label, which all members have not learned from."""
    if used.all():
        return part
    ensemble, others = part.ensemble, torch.from_numpy(~used)
    out_of_fold = x.new_empty(len(x), len(part.labels))
    out_of_fold[~others] = ensemble.out_of_fold
    out_of_fold[others] = ensemble.predict(x[others]).mean(dim=0)
    return replace(part, ensemble=replace(ensemble, out_of_fold=out_of_fold))


def _without_identifiers(
    encoder: FeatureEncoder, table: Any, keep: Sequence[Any]
) -> FeatureEncoder:
    """Leave out columns of text that look like identifiers, but for those to keep."""
    left_out = {}
    for place, rule in enumerate(encoder.columns):
        if not isinstance(rule, Categorical):
            continue
        name, filled = table.columns[place], int(table.iloc[:, place].notna().sum())
        quoted = shortened(name)
        count = len(rule.values) - (MISSING in rule.values)
        if is_identifier(count, filled) and name not in keep:
            left_out[place] = (
                f"column {quoted} was left out: {count:,} distinct texts in {filled:,} filled "
                f"cells, as identifiers have (keep=[{quoted}] keeps it)"
            )
        elif count > max(MANY_CATEGORIES, filled / 2):
            warn(
                f"column {quoted} has {count} categories in {filled} filled cells, and each "
                "becomes a column: is it an identifier, or numbers read as text?"
            )
    if len(left_out) == len(encoder.columns):
        raise ValueError(f"X must have a column to learn from; {'; '.join(left_out.values())}")
    for said in left_out.values():
        warn(said)
    return encoder.ignoring(left_out)


def _warn_of_copies(
    encoder: FeatureEncoder, names: Sequence[Any], table: Any, y: Array, keep: Sequence[Any]
) -> None:
    numbers = [k for k, rule in enumerate(encoder.columns) if isinstance(rule, Numeric)]
    asked = [k for k in numbers if names[k] not in keep]
    columns = [(names[place], values) for place, values in columns_of(table, asked)]
    for label in y.T:
        for name, correlation in label_copies(columns, label).items():
            quoted = shortened(name)
            kept = "" if isinstance(names, range) else f", or name it in keep=[{quoted}]"
            warn(
                f"column {quoted} of X repeats the label (rank correlation {correlation:+.4f}): "
                f"leave it out if it was computed from the label{kept}"
            )
