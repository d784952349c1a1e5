"""The four losses as modules, which keep their settings and can normalise over ranks or windows."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from biv._utils import validation
from biv.epsilon import EpsilonPolicy, as_policy
from biv.losses import _distributed, _reduction, _weighting
from biv.losses._distributed import Normaliser
from biv.losses._reduction import Base, Labels, LossFormula, LossSums, Weighted
from biv.losses._weighting import Weighting

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


Entry = TypeVar("Entry", Tensor, Tensor | None)


class VarianceLoss(nn.Module, ABC):
    r"""Base class of :class:`L2Loss`, :class:`IVLoss`, :class:`BIVLoss` and :class:`CutoffLoss`.

    .. math:: \frac{\sum_k s_k w_k\,\ell(f_k, \tilde y_k)}{Z}

    The sum is over the elements used. Here f is the prediction, ỹ the label and ℓ the elementwise
    loss; s is the `sample_weight`, which is 1 by default. Each loss defines its weights w and its
    denominator Z.

    Parameters
    ----------
    process_group : ProcessGroup, default=None
        Processes whose batches share one normaliser; None normalises over the local batch. Pass
        ``torch.distributed.group.WORLD`` to train with DistributedDataParallel, but only **after**
        ``init_process_group``, because ``WORLD`` is None before.
    per_output : bool, default=False
        Whether each output, an index of the last of two or more dimensions, has its own normaliser.
        The loss is then the mean of the losses of those outputs that have used elements. Set it to
        True if outputs differ in unit or in the size of their variances.
    validate_args : bool, default=True
        Whether to check the values of the tensors. Set it to False if waiting for the GPU to check
        them slows down the training.

    Raises
    ------
    TypeError
        If `process_group` is not a group of this process.

    Notes
    -----
    The settings are attributes, which may be changed between batches.

    With a process group, every rank must call the loss, if necessary with zero rows. The value on
    one rank is its part of the loss times the number of ranks. DistributedDataParallel averages the
    gradients over the ranks, which gives the gradient of the loss of all batches together. If one
    rank gets invalid input, all ranks raise; with ``validate_args=False``, the other ranks get NaN
    instead. A policy for ε that reads the batch synchronises with the device in any case, because
    it needs the number of rows of each rank.

    Examples
    --------
    >>> loss: VarianceLoss = BIVLoss(epsilon=1.0)
    >>> loss(torch.tensor([1.0, 2.0]), torch.zeros(2), variance=torch.tensor([0.0, 3.0]))
    tensor(1.6000)
    """

    _formula: LossFormula | None = None

    def __init__(
        self,
        *,
        process_group: ProcessGroup | None = None,
        per_output: bool = False,
        validate_args: bool = True,
    ) -> None:
        super().__init__()
        _distributed.check_group(process_group)
        self.process_group = process_group
        self.per_output = per_output
        self.validate_args = validate_args
        self.base: Base = "mse"

    @abstractmethod
    def weighting(self) -> Weighting:
        """Return the weighting of the current settings; called after each change of a setting."""

    @property
    def formula(self) -> LossFormula:
        """The loss with the current settings."""
        formula = self._formula
        if formula is None:
            formula = LossFormula(self.weighting(), self.base, self.validate_args, self.per_output)
            object.__setattr__(self, "_formula", formula)
        return formula

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        object.__setattr__(self, "_formula", None)  # a setting may have changed

    def forward(
        self,
        pred: Tensor,
        target: Tensor,
        variance: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of a batch.

        Parameters
        ----------
        pred : Tensor of any shape
            Predictions f, in label units.
        target : Tensor of the shape of `pred`
            Noisy labels ỹ, in label units. NaN marks a missing label.
        variance : Tensor of the shape of `pred`, or (N, 1) for (N, D), optional
            Noise variance σ² of each label (not σ), in squared label units. 0 marks a trusted
            label, +inf a label to ignore. :class:`L2Loss` also accepts None, its default.
        mask : bool Tensor, default=None
            True for the elements to use, in a shape that `variance` may have. Pass it if a batch is
            padded.
        sample_weight : Tensor, default=None
            Importance of each element, >= 0, in a shape that `variance` may have. Pass it if some
            elements matter more for a reason other than their noise.

        Returns
        -------
        Tensor of shape ()
            The loss; 0 with zero gradients if no element is used.

        Raises
        ------
        TypeError
            If an argument is not a tensor of a floating-point dtype (or bool, for `mask`).
        ValueError
            If shapes or devices differ, or a variance is negative, NaN or requires grad.
        RuntimeError
            If another rank of the process group got invalid input.
        """
        formula = self.formula
        if self.process_group is None:
            return formula.value(pred, target, variance, mask, sample_weight)
        with self._report_failure(formula, [pred]):
            _reduction.check_pred(pred, target)
            labels = formula.labels(target, variance, mask, sample_weight)
        normaliser, (weighted,) = self._normalise(formula, [labels])
        return normaliser.loss(weighted.numerator(formula.base, pred))

    def sums(
        self,
        pred: Tensor,
        target: Tensor,
        variance: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> LossSums:
        """Return the pair (Σ wℓ, denominator) of this process's batch.

        Add the pairs of several batches to get their common loss. The parameters are those of
        :meth:`forward`.

        Returns
        -------
        LossSums
            The pair of sums; its method `value` returns the loss.

        Raises
        ------
        ValueError
            If ε is a policy that reads the batch; use :meth:`window`, which resolves it once for
            all batches. Also as in :meth:`forward`.

        Examples
        --------
        >>> pred, target = torch.tensor([1.0, 2.0, 4.0]), torch.zeros(3)
        >>> variance = torch.tensor([1.0, 2.0, 4.0])
        >>> loss = BIVLoss(epsilon=0.0)
        >>> pairs = [loss.sums(pred[k], target[k], variance[k]) for k in ([0], [1, 2])]
        >>> (pairs[0] + pairs[1]).value() == loss(pred, target, variance)
        tensor(True)
        """
        formula = replace(self.formula, weighting=self.formula.weighting.additive())
        return formula.sums(pred, target, variance, mask, sample_weight)

    def weights(
        self,
        target: Tensor,
        variance: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Return the weights of the elements of this process's batch, up to a common factor.

        The parameters are those of :meth:`forward`, without `pred`.

        Returns
        -------
        Tensor of the shape of `target`
            Weights, which are 0 for unused elements. The factors 1/(σ²+ε) of :class:`BIVLoss` are
            divided by the largest of them. With `per_output`, the weights are divided by the
            denominator of their output, so that they sum to 1 in each output (except for IV).

        Examples
        --------
        >>> target, variance = torch.zeros(3), torch.tensor([1.0, 2.0, 4.0])
        >>> BIVLoss(epsilon=0.0).weights(target, variance)
        tensor([1.0000, 0.5000, 0.2500])
        """
        return self.formula.weigh(target, variance, mask, sample_weight).weights

    def window(
        self,
        targets: Iterable[Tensor],
        variances: Iterable[Tensor | None] | None = None,
        *,
        masks: Iterable[Tensor | None] | None = None,
        sample_weights: Iterable[Tensor | None] | None = None,
    ) -> WindowLoss:
        """Return a loss that is normalised over several micro-batches, for gradient accumulation.

        Call the result on each micro-batch of the window. The losses and gradients **add up** to
        those of the window as one batch. Do not divide them by the number of micro-batches. Pass
        each micro-batch once, with the same mask and sample weight as here.

        Parameters
        ----------
        targets : iterable of Tensor
            Labels of each micro-batch. A rank without rows passes one micro-batch of zero rows.
        variances : iterable of Tensor, optional
            Variances of each micro-batch. :class:`L2Loss` also accepts None, its default.
        masks : iterable of Tensor or None, default=None
            Mask of each micro-batch. Pass them if micro-batches are padded.
        sample_weights : iterable of Tensor or None, default=None
            Sample weights of each micro-batch. Pass them if the micro-batches are called with
            sample weights.

        Returns
        -------
        WindowLoss
            The loss of one micro-batch, with the arguments of :meth:`forward`.

        Raises
        ------
        TypeError
            If an argument is a single tensor instead of one tensor per micro-batch.
        ValueError
            If `targets` is empty, or the arguments differ in length.

        Notes
        -----
        A policy for ε is resolved once, on all variances of the window; with a process group, on
        those of the windows of all ranks.

        Examples
        --------
        >>> model, loss = torch.nn.Linear(1, 1, bias=False), BIVLoss(epsilon=0.0)
        >>> _ = torch.nn.init.ones_(model.weight)
        >>> x, y, v = torch.arange(1.0, 6.0).reshape(5, 1), torch.zeros(5, 1), torch.ones(5, 1)
        >>> batches = list(zip(x.split(2), y.split(2), v.split(2)))
        >>> window_loss = loss.window([y for _, y, _ in batches], [v for _, _, v in batches])
        >>> for x_part, y_part, v_part in batches:
        ...     window_loss(model(x_part), y_part, v_part).backward()
        >>> model.weight.grad  # that of the whole batch: the mean of 2x²
        tensor([[22.]])
        """
        formula = self.formula
        columns = {"variances": variances, "masks": masks, "sample_weights": sample_weights}
        target_list: list[Tensor] = []
        with self._report_failure(formula, target_list):
            target_list += _column("targets", targets)
            labels = [formula.labels(*batch) for batch in _rows(target_list, columns)]
            if formula.per_output:
                expected = _distributed.output_shape(target_list[0])
                for target in target_list:
                    _distributed.check_outputs(target, expected)
        normaliser, _ = self._normalise(formula, labels)
        return WindowLoss(formula, normaliser)

    def extra_repr(self) -> str:
        """Return the settings as arguments of the constructor."""
        settings = self._settings() | ({"per_output": True} if self.per_output else {})
        return ", ".join(f"{name}={value!r}" for name, value in settings.items())

    def _settings(self) -> dict[str, object]:
        return {}

    @contextmanager
    def _report_failure(self, formula: LossFormula, tensors: Sequence[object]) -> Iterator[None]:
        """Report an error to the other ranks, so that they do not wait for this one."""
        try:
            yield
        except Exception:
            if self.process_group is not None:
                devices = [value.device for value in tensors if isinstance(value, Tensor)]
                _distributed.report_failure(
                    formula.weighting,
                    self.process_group,
                    devices[0] if devices else torch.device("cpu"),
                    validate_args=formula.validate_args,
                )
            raise

    def _normalise(
        self, formula: LossFormula, batches: Sequence[Labels]
    ) -> tuple[Normaliser, list[Weighted]]:
        return _distributed.normalise(
            formula.weighting,
            batches,
            self.process_group,
            validate_args=formula.validate_args,
            per_output=formula.per_output,
        )

    def __deepcopy__(self, memo: dict[int, object]) -> VarianceLoss:
        # A process group cannot be copied; the copy of the loss uses the same group.
        state = self.__dict__.copy()
        group = state.pop("process_group")
        result = type(self).__new__(type(self))
        result.__dict__.update(copy.deepcopy(state, memo), process_group=group)
        return result


def _rows(
    targets: Sequence[Tensor], columns: dict[str, Iterable[Tensor | None] | None]
) -> list[tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]]:
    """Return one tuple per micro-batch, with None for arguments that were not passed."""
    count = len(targets)
    if not count:
        raise ValueError("targets must hold at least one micro-batch; got none")
    filled: list[Sequence[Tensor | None]] = []
    for name, values in columns.items():
        column = [None] * count if values is None else _column(name, values)
        if len(column) != count:
            raise ValueError(
                f"{name} must hold one entry per micro-batch, {count}; got {len(column)}"
            )
        filled.append(column)
    return list(zip(targets, *filled, strict=True))


def _column(name: str, values: Iterable[Entry]) -> list[Entry]:
    if isinstance(values, Tensor):  # iterating would take each row for a micro-batch
        raise TypeError(
            f"{name} must be a list with one tensor per micro-batch; "
            f"got {validation.describe(values)}"
        )
    return list(values)


@dataclass(frozen=True)
class WindowLoss:
    """Loss of the micro-batches of a window, created by :meth:`biv.VarianceLoss.window`.

    Calling it with the arguments of :meth:`biv.VarianceLoss.forward` returns the part of one
    micro-batch. The parts of all micro-batches add up to the loss of the window.

    Attributes
    ----------
    formula : LossFormula
        Elementwise loss and weighting.
    normaliser : Normaliser
        Denominator of the window.

    Examples
    --------
    >>> pred, target, variance = torch.ones(4), torch.zeros(4), torch.ones(4)
    >>> window = BIVLoss().window(target.split(2), variance.split(2))
    >>> batches = zip(pred.split(2), target.split(2), variance.split(2))
    >>> sum(window(*batch) for batch in batches)
    tensor(1.)
    """

    formula: LossFormula
    normaliser: Normaliser

    def __call__(
        self,
        pred: Tensor,
        target: Tensor,
        variance: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Return the part of this micro-batch in the loss of the window, of shape ()."""
        _reduction.check_pred(pred, target)
        scope, per_output = self.normaliser.scope, self.formula.per_output
        if per_output:
            _distributed.check_outputs(target, scope.smallest_variance.shape)
        labels = self.formula.labels(target, variance, mask, sample_weight)
        weighted = Weighted.from_labels(
            self.formula.weighting, labels, scope, per_output=per_output
        )
        return self.normaliser.loss(weighted.numerator(self.formula.base, pred))


class L2Loss(VarianceLoss):
    r"""Mean squared error as a module; :func:`biv.l2_loss` is the function.

    .. math:: \frac{1}{K} \sum_k (f_k - \tilde y_k)^2

    Here f is the prediction, ỹ the label and K the number of elements used. Call the module with
    the arguments of :meth:`VarianceLoss.forward`.

    Parameters
    ----------
    process_group : ProcessGroup, default=None
        Processes whose batches share one normaliser; None normalises over the local batch. Pass it
        to train on several processes; see :class:`VarianceLoss`.
    per_output : bool, default=False
        Whether each output has its own normaliser. Set it to True if outputs differ in unit or in
        the size of their variances; see :class:`VarianceLoss`.
    validate_args : bool, default=True
        Whether to check the values of the tensors. Set it to False if waiting for the GPU to check
        them slows down the training.

    Raises
    ------
    TypeError
        If `process_group` is not a group of this process.

    Examples
    --------
    >>> L2Loss()(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.0]))
    tensor(2.5000)
    """

    def weighting(self) -> Weighting:  # noqa: D102
        return _weighting.L2()


class IVLoss(VarianceLoss):
    r"""Inverse-variance loss as a module; :func:`biv.iv_loss` is the function.

    .. math:: \frac{1}{K} \sum_k \frac{(f_k - \tilde y_k)^2}{\sigma_k^2 + \epsilon}

    Here f is the prediction, ỹ the label, σ² its variance and K the number of elements used. Call
    the module with the arguments of :meth:`VarianceLoss.forward`.

    Parameters
    ----------
    epsilon : float, Tensor of shape () or EpsilonPolicy, default=0.0
        ε >= 0, **absolute**: in the units of the variance; or a policy of :mod:`biv.epsilon`. The
        default is the paper's IV. Raise it if a variance can be 0 or close to 0.
    process_group : ProcessGroup, default=None
        Processes whose batches share one normaliser; None normalises over the local batch. Pass it
        to train on several processes; see :class:`VarianceLoss`.
    per_output : bool, default=False
        Whether each output has its own normaliser. Set it to True if outputs differ in unit or in
        the size of their variances; see :class:`VarianceLoss`.
    validate_args : bool, default=True
        Whether to check the values of the tensors. Set it to False if waiting for the GPU to check
        them slows down the training.

    Raises
    ------
    TypeError
        If `epsilon` is not a number or policy, or `process_group` is not a group of this process.
    ValueError
        If `epsilon` is negative, infinite or NaN.

    Examples
    --------
    >>> IVLoss()(torch.tensor([1.0, 2.0]), torch.zeros(2), torch.tensor([1.0, 2.0]))
    tensor(1.5000)
    """

    def __init__(
        self,
        epsilon: float | Tensor | EpsilonPolicy = 0.0,
        *,
        process_group: ProcessGroup | None = None,
        per_output: bool = False,
        validate_args: bool = True,
    ) -> None:
        super().__init__(
            process_group=process_group, per_output=per_output, validate_args=validate_args
        )
        self.epsilon = epsilon
        _ = self.formula  # raises errors of the settings now and not at the first batch

    def weighting(self) -> Weighting:  # noqa: D102
        return _weighting.IV(as_policy(self.epsilon))

    def _settings(self) -> dict[str, object]:
        return {"epsilon": self.epsilon}


class BIVLoss(VarianceLoss):
    r"""Batch inverse-variance loss as a module; :func:`biv.biv_loss` is the function.

    .. math:: \left(\sum_k \frac{1}{\sigma_k^2 + \epsilon}\right)^{-1}
              \sum_k \frac{\ell(f_k, \tilde y_k)}{\sigma_k^2 + \epsilon}

    Here f is the prediction, ỹ the label, σ² its variance and ℓ the elementwise loss `base`. Call
    the module with the arguments of :meth:`VarianceLoss.forward`.

    Parameters
    ----------
    epsilon : float, Tensor of shape () or EpsilonPolicy, default=0.05
        ε >= 0, **absolute**: in the units of the variance; or a policy of :mod:`biv.epsilon`. The
        default suits labels of unit variance. For other labels, use for example
        ``Relative(0.05, label_variance)`` or ``MinimumBatchSize(fraction=0.5)``.
    base : {"mse", "mae", "huber"} or callable, default="mse"
        Elementwise loss ℓ, or a callable that returns one loss per element, such as
        ``torch.nn.SmoothL1Loss(reduction="none")``. "huber" has δ = 1, in label units. Use "mae" or
        "huber" if some labels are outliers.
    process_group : ProcessGroup, default=None
        Processes whose batches share one normaliser; None normalises over the local batch. Pass it
        to train on several processes; see :class:`VarianceLoss`.
    per_output : bool, default=False
        Whether each output has its own normaliser. Set it to True if outputs differ in unit or in
        the size of their variances; see :class:`VarianceLoss`.
    validate_args : bool, default=True
        Whether to check the values of the tensors. Set it to False if waiting for the GPU to check
        them slows down the training.

    Raises
    ------
    TypeError
        If `epsilon` is not a number or policy, or `process_group` is not a group of this process.
    ValueError
        If `epsilon` is negative, infinite or NaN, or `base` is not the name of a loss.

    Examples
    --------
    >>> loss = BIVLoss(epsilon=0.0)
    >>> loss(torch.tensor([1.0, 2.0]), torch.zeros(2), torch.tensor([1.0, 2.0]))
    tensor(2.)
    """

    def __init__(
        self,
        epsilon: float | Tensor | EpsilonPolicy = 0.05,
        base: Base = "mse",
        *,
        process_group: ProcessGroup | None = None,
        per_output: bool = False,
        validate_args: bool = True,
    ) -> None:
        super().__init__(
            process_group=process_group, per_output=per_output, validate_args=validate_args
        )
        self.epsilon, self.base = epsilon, base
        _ = self.formula

    def weighting(self) -> Weighting:  # noqa: D102
        return _weighting.BIV(as_policy(self.epsilon))

    def _settings(self) -> dict[str, object]:
        return {"epsilon": self.epsilon, "base": self.base}


class CutoffLoss(VarianceLoss):
    r"""Mean squared error of labels of low variance; :func:`biv.cutoff_loss` is the function.

    .. math:: \left(\sum_k \mathbf 1\{\sigma_k^2 < C\}\right)^{-1}
              \sum_k \mathbf 1\{\sigma_k^2 < C\}\,(f_k - \tilde y_k)^2

    Here f is the prediction, ỹ the label and σ² its variance. Call the module with the arguments of
    :meth:`VarianceLoss.forward`.

    Parameters
    ----------
    threshold : float or Tensor of shape ()
        C > 0, in the units of the variance. A label is used if its σ² is strictly below C.
    process_group : ProcessGroup, default=None
        Processes whose batches share one normaliser; None normalises over the local batch. Pass it
        to train on several processes; see :class:`VarianceLoss`.
    per_output : bool, default=False
        Whether each output has its own normaliser. Set it to True if outputs differ in unit or in
        the size of their variances; see :class:`VarianceLoss`.
    validate_args : bool, default=True
        Whether to check the values of the tensors. Set it to False if waiting for the GPU to check
        them slows down the training.

    Raises
    ------
    TypeError
        If `threshold` is not a number, or `process_group` is not a group of this process.
    ValueError
        If `threshold` is not positive.

    Examples
    --------
    >>> loss = CutoffLoss(threshold=2.0)
    >>> loss(torch.tensor([1.0, 2.0]), torch.zeros(2), torch.tensor([1.0, 2.0]))
    tensor(1.)
    """

    def __init__(
        self,
        threshold: float | Tensor,
        *,
        process_group: ProcessGroup | None = None,
        per_output: bool = False,
        validate_args: bool = True,
    ) -> None:
        super().__init__(
            process_group=process_group, per_output=per_output, validate_args=validate_args
        )
        self.threshold = threshold
        _ = self.formula

    def weighting(self) -> Weighting:  # noqa: D102
        return _weighting.Cutoff(self.threshold)

    def _settings(self) -> dict[str, object]:
        return {"threshold": self.threshold}
