r"""The losses, as functions; :mod:`biv.losses.modules` has the same four as modules.

Every loss is weights → the pair (Σ wℓ, denominator) → one division:

====== =================== ======================
loss   weight of a label   denominator
====== =================== ======================
L2     1                   Σ w
IV     1/(σ²+ε)            number of elements used
BIV    1/(σ²+ε)            Σ w
Cutoff 1 if σ² < C, else 0 Σ w
====== =================== ======================

Common to all of them:

- `pred`, `target` and `variance` have equal shapes of any rank, or `variance` is (N, 1) beside
  (N, D); the same for `mask` and `sample_weight`. Nothing else is broadcast.
- There is one normaliser over all elements, so that outputs of small σ² outweigh the others. With
  ``per_output=True`` each output (an index of the last of two or more dimensions) has its own, and
  the loss is the mean of the outputs' losses; ε policies that read the batch read each output by
  itself, and an output with nothing left does not count in the mean.
- σ² is the variance of the label, **not** its standard deviation, in squared label units. 0 is a
  trusted label; +inf one to ignore. It must not require grad.
- A NaN in `target` is a missing label. What is missing, masked out (`mask` is True for the elements
  to use) or of infinite variance is removed from both sums, and nothing of it reaches a gradient.
- `sample_weight` (>= 0) says how much an element matters; it multiplies the weight. 0 removes the
  element.
- Where nothing is left the loss is 0, attached to the graph, with zero gradients.
- Half precision is computed, and returned, in float32.
- `validate_args` looks at the values (negative or NaN variances, ...) and so may synchronise with a
  device. It is skipped while compiling and inside `torch.func` transforms. Shapes, dtypes and
  devices are checked always.
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
    r"""Mean squared error, :math:`\frac{1}{K} \sum_k (f_k - \tilde y_k)^2`.

    Args:
        pred: f, the predictions.
        target: ỹ, the noisy labels; NaN where one is missing.
        variance: σ² of each label. Used only to leave out labels of infinite variance.
        mask: True for the elements to use.
        sample_weight: Importance of each element, >= 0; its sum then replaces K.
        per_output: Whether each output, an index of the last of two or more dimensions, has a
            normaliser of its own: the loss is then the mean of the outputs' losses.
        validate_args: Whether to look at the values.

    Returns:
        A 0-d tensor.

    Identities: it is ``F.mse_loss(pred, target)``, whatever the variances, if all are finite;
    :func:`biv_loss` and :func:`cutoff_loss` tend to it as ε and C grow.

    Example:
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
    r"""Inverse-variance loss.

    .. math:: \frac{1}{K} \sum_k \frac{(f_k - \tilde y_k)^2}{\sigma_k^2 + \epsilon}

    Args:
        pred: f, the predictions.
        target: ỹ, the noisy labels; NaN where one is missing.
        variance: σ² of each label.
        epsilon: ε, **absolute**, in the units of `variance`; or a policy of :mod:`biv.epsilon`.
            0, the default, is the paper's IV; a label of variance 0 needs more.
        mask: True for the elements to use.
        sample_weight: Importance of each element, >= 0; multiplies the weight, and leaves K, the
            number of elements used, as it is.
        per_output: Whether each output, an index of the last of two or more dimensions, has a
            normaliser of its own: the loss is then the mean of the outputs' losses.
        validate_args: Whether to look at the values.

    Returns:
        A 0-d tensor.

    Raises:
        ValueError: Some variance is 0 and so is ε.

    Its gradients scale with 1/(σ²+ε); :func:`biv_loss` is the same loss without that scale.

    Identities: without `sample_weight` it is :func:`biv_loss` times the mean of 1/(σ²+ε) over the
    elements used; scaling σ² and ε by c divides it by c; at ε = 0 its gradient is twice that of
    ``torch.nn.GaussianNLLLoss`` given `variance`.

    Example:
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
    r"""Batch inverse-variance loss.

    .. math:: \left(\sum_k \frac{1}{\sigma_k^2 + \epsilon}\right)^{-1}
              \sum_k \frac{\ell(f_k, \tilde y_k)}{\sigma_k^2 + \epsilon}

    Args:
        pred: f, the predictions.
        target: ỹ, the noisy labels; NaN where one is missing.
        variance: σ² of each label.
        epsilon: ε, **absolute**, in the units of `variance`: the default suits labels of unit
            variance. For others scale it with the label variance, as
            :class:`biv.epsilon.Relative` does; or give another policy of :mod:`biv.epsilon`.
        base: ℓ: "mse", "mae", "huber" (δ = 1, in label units), or a callable giving elementwise
            losses.
        mask: True for the elements to use.
        sample_weight: Importance of each element, >= 0; multiplies the weight, in both sums.
        per_output: Whether each output, an index of the last of two or more dimensions, has a
            normaliser of its own: the loss is then the mean of the outputs' losses.
        validate_args: Whether to look at the values.

    Returns:
        A 0-d tensor.

    Identities: equal variances, or ε → ∞, give :func:`l2_loss`; scaling σ² and ε together changes
    nothing; ε = 0 beside variances of 0 gives the mean over those elements alone, the limit;
    with "mse" it is ``F.mse_loss(pred, target, weight=1/(variance + epsilon))``.

    Reference: Mai, Khamies, Paull, "Batch Inverse-Variance Weighting: Deep Heteroscedastic
    Regression", 2021, equation 4.

    Example:
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
    r"""Mean squared error over the labels whose variance is below a threshold.

    .. math:: \left(\sum_k \mathbf 1\{\sigma_k^2 < C\}\right)^{-1}
              \sum_k \mathbf 1\{\sigma_k^2 < C\}\,(f_k - \tilde y_k)^2

    Args:
        pred: f, the predictions.
        target: ỹ, the noisy labels; NaN where one is missing.
        variance: σ² of each label.
        threshold: C > 0, in the units of `variance`; strictly below it a label is kept.
        mask: True for the elements to use.
        sample_weight: Importance of each element, >= 0; multiplies the weight, in both sums.
        per_output: Whether each output, an index of the last of two or more dimensions, has a
            normaliser of its own: the loss is then the mean of the outputs' losses.
        validate_args: Whether to look at the values.

    Returns:
        A 0-d tensor; 0 where no label is kept.

    Identity: :func:`l2_loss` on the kept subset.

    Example:
        >>> import biv, torch
        >>> pred, target = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.0])
        >>> biv.cutoff_loss(pred, target, torch.tensor([1.0, 2.0]), threshold=2.0)
        tensor(1.)
    """
    formula = LossFormula(_weighting.Cutoff(threshold), "mse", validate_args, per_output)
    return formula.value(pred, target, variance, mask, sample_weight)
