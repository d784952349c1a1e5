r"""The four losses as functions; :mod:`biv.losses.modules` has the same losses as modules.

Every loss computes a weight w per label, then the pair (Σ wℓ, denominator), and divides once. Here
ℓ is the elementwise loss, by default the squared error.

====== =================== ======================
loss   weight of a label   denominator
====== =================== ======================
L2     1                   Σ w
IV     1/(σ²+ε)            number of elements used
BIV    1/(σ²+ε)            Σ w
Cutoff 1 if σ² < C, else 0 Σ w
====== =================== ======================

All losses have these properties in common:

- `pred`, `target` and `variance` have equal shapes of any rank, or `variance` is (N, 1) for labels
  of shape (N, D). The same holds for `mask` and `sample_weight`. Nothing else is broadcast.
- All elements share one normaliser, so that outputs of small σ² outweigh the others. With
  ``per_output=True`` each output (an index of the last of two or more dimensions) has its own, and
  the loss is the mean of the outputs' losses. A policy for ε that reads the batch then reads each
  output separately, and an output without used elements does not count in the mean.
- `variance` is the variance σ² of the label in squared label units, **not** the standard deviation.
  0 marks a trusted label, +inf a label to ignore. It must not require grad.
- An element is left out if its target is NaN (missing), its variance is infinite, its
  `sample_weight` is 0, or its `mask` is False. It then affects neither the loss nor any gradient.
- `sample_weight` (>= 0) multiplies the weight of an element.
- If no element is used, the loss is 0. It is attached to the graph and has zero gradients.
- Half precision is computed, and returned, in float32.
- `validate_args` checks values, such as negative or NaN variances. The check may synchronise with a
  device. It is skipped while compiling and inside `torch.func` transforms. Shapes, dtypes and
  devices are always checked.
"""

from __future__ import annotations

from torch import Tensor

from biv.epsilon import EpsilonPolicy, as_policy
from biv.losses import _weighting
from biv.losses._reduction import Base, LossFormula


def l2_loss(
    pred: Tensor,
    target: Tensor,
    variance: Tensor | None = None,
    *,
    mask: Tensor | None = None,
    sample_weight: Tensor | None = None,
    per_output: bool = False,
    validate_args: bool = True,
) -> Tensor:
    r"""Compute the mean squared error, :math:`\frac{1}{K} \sum_k (f_k - \tilde y_k)^2`.

    Here f is the prediction, ỹ the label and K the number of elements used.

    Parameters
    ----------
    pred : Tensor of any shape
        Predictions f, in label units.
    target : Tensor of the shape of `pred`
        Noisy labels ỹ, in label units. NaN marks a missing label.
    variance : Tensor of the shape of `pred`, or (N, 1) for (N, D), default=None
        Noise variance σ² of each label. It is only used to leave out labels of infinite variance;
        pass it if there are any.
    mask : bool Tensor, default=None
        True for the elements to use; None uses all. Pass it if a batch is padded.
    sample_weight : Tensor, default=None
        Importance of each element, >= 0; the sum of them replaces K. None means 1.
        Pass it if some elements matter more for a reason other than their noise.
    per_output : bool, default=False
        Whether each output, an index of the last dimension, has its own normaliser. The loss is
        then the mean of the outputs' losses. Set it to True if outputs differ in unit or in the
        size of their variances.
    validate_args : bool, default=True
        Whether to check the values of the tensors. Set it to False if waiting for the GPU to check
        them slows down the training.

    Returns
    -------
    Tensor of shape ()
        The loss, in squared label units; 0 with zero gradients if no element is used.

    Raises
    ------
    TypeError
        If an argument is not a tensor of a floating-point dtype (or bool, for `mask`).
    ValueError
        If shapes or devices differ, or a variance is negative, NaN or requires grad.

    Notes
    -----
    Identities:

    - If all variances are finite, it is ``F.mse_loss(pred, target)``, whatever the variances are.
    - It is the limit of :func:`biv_loss` for ε → ∞ and of :func:`cutoff_loss` for C → ∞.

    Examples
    --------
    >>> import biv, torch
    >>> biv.l2_loss(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.0]))
    tensor(2.5000)
    """
    formula = LossFormula(_weighting.L2(), "mse", validate_args, per_output)
    return formula.value(pred, target, variance, mask, sample_weight)


def iv_loss(
    pred: Tensor,
    target: Tensor,
    variance: Tensor,
    *,
    epsilon: float | Tensor | EpsilonPolicy = 0.0,
    mask: Tensor | None = None,
    sample_weight: Tensor | None = None,
    per_output: bool = False,
    validate_args: bool = True,
) -> Tensor:
    r"""Compute the inverse-variance loss, which is not normalised by the weights.

    .. math:: \frac{1}{K} \sum_k \frac{(f_k - \tilde y_k)^2}{\sigma_k^2 + \epsilon}

    Here f is the prediction, ỹ the label and K the number of elements used.

    Parameters
    ----------
    pred : Tensor of any shape
        Predictions f, in label units.
    target : Tensor of the shape of `pred`
        Noisy labels ỹ, in label units. NaN marks a missing label.
    variance : Tensor of the shape of `pred`, or (N, 1) for (N, D)
        Noise variance σ² of each label, in squared label units. 0 marks a trusted label, +inf a
        label to ignore.
    epsilon : float, Tensor of shape () or EpsilonPolicy, default=0.0
        ε >= 0, **absolute**: in the units of `variance`; or a policy of :mod:`biv.epsilon`. The
        default is the paper's IV. Raise it if a variance can be 0 or close to 0.
    mask : bool Tensor, default=None
        True for the elements to use; None uses all. Pass it if a batch is padded.
    sample_weight : Tensor, default=None
        Importance of each element, >= 0; it multiplies the weight but not K. None means 1.
        Pass it if some elements matter more for a reason other than their noise.
    per_output : bool, default=False
        Whether each output, an index of the last dimension, has its own normaliser. The loss is
        then the mean of the outputs' losses. Set it to True if outputs differ in unit or in the
        size of their variances.
    validate_args : bool, default=True
        Whether to check the values of the tensors. Set it to False if waiting for the GPU to check
        them slows down the training.

    Returns
    -------
    Tensor of shape ()
        The loss, without unit; 0 with zero gradients if no element is used.

    Raises
    ------
    TypeError
        If an argument is not a tensor of a floating-point dtype (or bool, for `mask`).
    ValueError
        If shapes or devices differ, or a variance is negative, NaN or requires grad,
        or if a variance and ε are both 0.

    Notes
    -----
    The gradients are proportional to 1/(σ²+ε), so that a change of the noise level changes the
    learning rate that suits the loss. :func:`biv_loss` does not have that dependence.

    Identities:

    - Without `sample_weight`, it is :func:`biv_loss` times the mean of 1/(σ²+ε) over the elements
      used.
    - Multiplying σ² and ε by c divides it by c.
    - At ε = 0, its gradient is twice that of ``torch.nn.GaussianNLLLoss`` for the same variance.

    Examples
    --------
    >>> import biv, torch
    >>> pred, target = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.0])
    >>> biv.iv_loss(pred, target, torch.tensor([1.0, 2.0]))
    tensor(1.5000)
    """
    formula = LossFormula(_weighting.IV(as_policy(epsilon)), "mse", validate_args, per_output)
    return formula.value(pred, target, variance, mask, sample_weight)


def biv_loss(
    pred: Tensor,
    target: Tensor,
    variance: Tensor,
    *,
    epsilon: float | Tensor | EpsilonPolicy = 0.05,
    base: Base = "mse",
    mask: Tensor | None = None,
    sample_weight: Tensor | None = None,
    per_output: bool = False,
    validate_args: bool = True,
) -> Tensor:
    r"""Compute the batch inverse-variance loss, a weighted mean over the batch.

    .. math:: \left(\sum_k \frac{1}{\sigma_k^2 + \epsilon}\right)^{-1}
              \sum_k \frac{\ell(f_k, \tilde y_k)}{\sigma_k^2 + \epsilon}

    Here f is the prediction, ỹ the label and ℓ the elementwise loss `base`.

    Parameters
    ----------
    pred : Tensor of any shape
        Predictions f, in label units.
    target : Tensor of the shape of `pred`
        Noisy labels ỹ, in label units. NaN marks a missing label.
    variance : Tensor of the shape of `pred`, or (N, 1) for (N, D)
        Noise variance σ² of each label, in squared label units. 0 marks a trusted label, +inf a
        label to ignore.
    epsilon : float, Tensor of shape () or EpsilonPolicy, default=0.05
        ε >= 0, **absolute**: in the units of `variance`; or a policy of :mod:`biv.epsilon`. The
        default suits labels of unit variance. For other labels, use :class:`biv.epsilon.Relative`
        or multiply 0.05 by the label variance.
    base : {"mse", "mae", "huber"} or callable, default="mse"
        Elementwise loss ℓ, or a callable that maps (pred, target) to one loss per element. "huber"
        has δ = 1, in label units. Use "mae" or "huber" if some labels are outliers.
    mask : bool Tensor, default=None
        True for the elements to use; None uses all. Pass it if a batch is padded.
    sample_weight : Tensor, default=None
        Importance of each element, >= 0; it multiplies the weight in both sums. None means 1.
        Pass it if some elements matter more for a reason other than their noise.
    per_output : bool, default=False
        Whether each output, an index of the last dimension, has its own normaliser. The loss is
        then the mean of the outputs' losses. Set it to True if outputs differ in unit or in the
        size of their variances.
    validate_args : bool, default=True
        Whether to check the values of the tensors. Set it to False if waiting for the GPU to check
        them slows down the training.

    Returns
    -------
    Tensor of shape ()
        The loss, in the unit of ℓ (squared label units for "mse"); 0 with zero gradients if no
        element is used.

    Raises
    ------
    TypeError
        If an argument is not a tensor of a floating-point dtype (or bool, for `mask`).
    ValueError
        If shapes or devices differ, or a variance is negative, NaN or requires grad.

    Notes
    -----
    Identities:

    - If all variances are equal, or for ε → ∞, it is :func:`l2_loss`.
    - Multiplying σ² and ε by the same number changes nothing.
    - If ε = 0 and some variances are 0, it is the mean over the elements of zero variance, which is
      its limit for ε → 0.
    - With "mse", it is ``F.mse_loss(pred, target, weight=1/(variance + epsilon))``.

    References
    ----------
    Mai, Khamies, Paull, "Batch Inverse-Variance Weighting: Deep Heteroscedastic Regression", 2021,
    equation 4.

    Examples
    --------
    >>> import biv, torch
    >>> pred, target = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.0])
    >>> biv.biv_loss(pred, target, torch.tensor([1.0, 2.0]), epsilon=0.0)
    tensor(2.)
    """
    formula = LossFormula(_weighting.BIV(as_policy(epsilon)), base, validate_args, per_output)
    return formula.value(pred, target, variance, mask, sample_weight)


def cutoff_loss(
    pred: Tensor,
    target: Tensor,
    variance: Tensor,
    *,
    threshold: float | Tensor,
    mask: Tensor | None = None,
    sample_weight: Tensor | None = None,
    per_output: bool = False,
    validate_args: bool = True,
) -> Tensor:
    r"""Compute the mean squared error over the labels whose variance is below a threshold.

    .. math:: \left(\sum_k \mathbf 1\{\sigma_k^2 < C\}\right)^{-1}
              \sum_k \mathbf 1\{\sigma_k^2 < C\}\,(f_k - \tilde y_k)^2

    Here f is the prediction and ỹ the label.

    Parameters
    ----------
    pred : Tensor of any shape
        Predictions f, in label units.
    target : Tensor of the shape of `pred`
        Noisy labels ỹ, in label units. NaN marks a missing label.
    variance : Tensor of the shape of `pred`, or (N, 1) for (N, D)
        Noise variance σ² of each label, in squared label units. 0 marks a trusted label, +inf a
        label to ignore.
    threshold : float or Tensor of shape ()
        C > 0, in the units of `variance`. A label is used if its σ² is strictly below C.
    mask : bool Tensor, default=None
        True for the elements to use; None uses all. Pass it if a batch is padded.
    sample_weight : Tensor, default=None
        Importance of each element, >= 0; it multiplies the weight in both sums. None means 1.
        Pass it if some elements matter more for a reason other than their noise.
    per_output : bool, default=False
        Whether each output, an index of the last dimension, has its own normaliser. The loss is
        then the mean of the outputs' losses. Set it to True if outputs differ in unit or in the
        size of their variances.
    validate_args : bool, default=True
        Whether to check the values of the tensors. Set it to False if waiting for the GPU to check
        them slows down the training.

    Returns
    -------
    Tensor of shape ()
        The loss, in squared label units; 0 with zero gradients if no element is used.

    Raises
    ------
    TypeError
        If an argument is not a tensor of a floating-point dtype (or bool, for `mask`).
    ValueError
        If shapes or devices differ, or a variance is negative, NaN or requires grad.

    Notes
    -----
    Identity: it is :func:`l2_loss` of the labels below the threshold.

    Examples
    --------
    >>> import biv, torch
    >>> pred, target = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.0])
    >>> biv.cutoff_loss(pred, target, torch.tensor([1.0, 2.0]), threshold=2.0)
    tensor(1.)
    """
    formula = LossFormula(_weighting.Cutoff(threshold), "mse", validate_args, per_output)
    return formula.value(pred, target, variance, mask, sample_weight)
