"""Arguments that scores accept and reject, and one score per output."""

import math
import re
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import biv
from biv import metrics
from biv.noise import corrupt


def test_any_scale():
    rng = np.random.default_rng(4)
    pred, target, variance = rng.normal(size=50), rng.normal(size=50), rng.gamma(1, size=50)
    one = metrics.noise_corrected_mse(pred, target, variance)
    for scale in (1e-30, 1e-6, 1e6, 1e30):
        other = metrics.noise_corrected_mse(pred * scale, target * scale, variance * scale**2)
        assert other.value == pytest.approx(one.value * scale**2, rel=1e-9)
        assert other.stderr == pytest.approx(one.stderr * scale**2, rel=1e-9)


SCORES = {
    "mse": metrics.noise_corrected_mse,
    "mse unweighted": lambda *a: metrics.noise_corrected_mse(*a, weighted=False),
    "r2": metrics.noise_corrected_r2,
    "chi2": metrics.reduced_chi_squared,
    "residual variance": metrics.residual_variance,
    "label variance": lambda pred, target, variance: metrics.label_variance(target, variance),
}


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_ignored_elements_and_accepted_types(score, problem):
    pred, y, variance = (column[:40] for column in problem)
    noisy = corrupt(y, variance, np.random.default_rng(5))
    expected = score(pred, noisy, variance)
    assert all(isinstance(number, float) for number in np.atleast_1d(expected).tolist())
    junk = [np.append(pred, [7.0, np.nan]), np.append(noisy, [np.nan, 3.0])]
    assert score(*junk, np.append(variance, [np.nan, np.inf])) == expected
    assert (
        score(*(torch.tensor(a, requires_grad=True) for a in (pred, noisy)), torch.tensor(variance))
        == expected
    )
    assert score(pred.tolist(), noisy.tolist(), variance.tolist()) == expected
    wide = score(*(a.reshape(20, 2) for a in (pred, noisy, variance)))
    assert wide == expected
    column = score(pred.reshape(20, 2), noisy.reshape(20, 2), variance[:20].reshape(20, 1))
    assert column == score(pred, noisy, np.repeat(variance[:20], 2))


UNITS = np.array([1.0, 1e-3, 1e5])

PER_OUTPUT = {
    "mse": metrics.noise_corrected_mse,
    "mse unweighted": partial(metrics.noise_corrected_mse, weighted=False),
    "r2": metrics.noise_corrected_r2,
    "residual variance": metrics.residual_variance,
    "difference": lambda pred, *a, **options: metrics.noise_corrected_difference(
        pred, 0.9 * pred, *a, **options
    ),
    "label variance": lambda _, *a, **options: metrics.label_variance(*a, **options),
}


@pytest.mark.parametrize("score", PER_OUTPUT.values(), ids=PER_OUTPUT)
def test_scores_per_output_are_those_of_the_columns(score, problem):
    pred, y, variance = (np.stack([c[:90], c[90:180], c[180:270]], axis=1) for c in problem)
    noisy = corrupt(y, variance, np.random.default_rng(5))
    noisy[:4, 1] = np.nan
    columns = pred * UNITS, noisy * UNITS, variance * UNITS**2
    result = score(*columns, per_output=True)
    expected = np.array([score(*(c[:, k] for c in columns)) for k in range(3)])
    np.testing.assert_allclose(np.array(result).T, expected, rtol=1e-12)
    assert isinstance(result[0], np.ndarray) or isinstance(result, np.ndarray)
    one_per_row = score(pred, noisy, variance[:, :1], per_output=True)
    assert np.array_equal(one_per_row, score(pred, noisy, variance[:, [0, 0, 0]], per_output=True))
    with pytest.raises(ValueError, match=r"outputs in the last dimension.*got shape \(90,\)"):
        score(*(c[:, 0] for c in columns), per_output=True)
    noisy[:, 2] = np.nan
    with pytest.raises(ValueError, match="output 2: target must hold at least one"):
        score(pred, noisy, variance, per_output=True)


ONES = np.ones(3)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: metrics.noise_corrected_mse(ONES, ONES, np.ones((3, 1))), ValueError, r"variance .*\(3,\); got \(3, 1\): use variance.reshape\(-1\)"),
        (lambda: metrics.noise_corrected_mse(np.ones(2), ONES, ONES), ValueError, r"pred .*\(3,\); got \(2,\)"),
        (lambda: metrics.noise_corrected_mse(ONES, ONES, -ONES), ValueError, "variance .*-1 at index 0"),
        (lambda: metrics.noise_corrected_mse(ONES, ONES, ONES * np.nan), ValueError, "variance .*nan at index 0"),
        (lambda: metrics.noise_corrected_mse(ONES * np.nan, ONES, ONES), ValueError, "pred must be finite; got nan at index 0"),
        (lambda: metrics.noise_corrected_mse(ONES, ONES * np.inf, ONES), ValueError, "target must be finite; got inf"),
        (lambda: metrics.noise_corrected_mse(ONES, ONES, ONES * np.inf), ValueError, "at least one element .*got none of 3"),
        (lambda: metrics.noise_corrected_mse(ONES, ONES, ONES, epsilon=-1.0), ValueError, "epsilon .*got -1"),
        (lambda: metrics.noise_corrected_mse(ONES, ONES, ONES, weighted=False, epsilon=1.0), ValueError, "epsilon must be None with weighted=False; got 1.0"),
        (lambda: metrics.noise_corrected_mse("a", ONES, ONES), TypeError, "pred must be an array of real numbers"),
        (lambda: metrics.noise_corrected_mse(ONES, torch.ones(3, dtype=torch.long), ONES), TypeError, "target .*torch.int64"),
        (lambda: metrics.label_variance(np.ones(1), np.ones(1)), ValueError, "at least two elements .*got 1"),
        (lambda: metrics.reduced_chi_squared(ONES, ONES, np.zeros(3)), ValueError, "variance must be positive if epsilon is 0; got 0 in 3 elements"),
        (lambda: metrics.reduced_chi_squared(ONES, ONES, ONES, parameters=3), ValueError, "parameters must be smaller than the number of labels used, 3; got 3"),
        (lambda: metrics.reduced_chi_squared(ONES, ONES, ONES, parameters=-1), ValueError, "parameters must be an integer >= 0; got -1"),
        (lambda: metrics.reduced_chi_squared(ONES, ONES, ONES, parameters=1.5), TypeError, "parameters must be an integer >= 0; got 1.5"),
        (lambda: metrics.noise_corrected_mse(ONES, np.ma.array(ONES, mask=[1, 0, 0]), ONES), TypeError, "target must not be a masked array"),
        (lambda: metrics.effective_sample_size(-ONES, epsilon=0), ValueError, "variance .*-1 at index 0"),
    ],
)  # fmt: skip
def test_bad_input(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_one_label_has_a_value_but_no_standard_error():
    score = biv.metrics.noise_corrected_mse(np.zeros(1), np.ones(1), np.zeros(1))
    assert score.value == 1
    assert math.isnan(score.stderr)


class Operations(TorchDispatchMode):
    """Records the names of torch's operations."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.names.add(operation.name())
        return operation(*args, **kwargs or {})


def test_scores_are_sums_of_elements(problem):
    """BLAS and LAPACK are not used: their last digit depends on the alignment of arrays."""
    pred, y, variance = problem
    other = y + 0.1
    with Operations() as recorded:
        metrics.noise_corrected_mse(pred, y, variance)
        metrics.noise_corrected_difference(pred, other, y, variance)
        metrics.noise_corrected_r2(pred, y, variance)
        metrics.reduced_chi_squared(pred, y, variance)
        metrics.label_moments(y, variance)
        metrics.residual_variance(pred, y, variance)
        metrics.variance_factor(pred, y, variance)
        metrics.misread(pred, y, variance)
        metrics.effective_sample_size(variance, epsilon=0.1)
    assert "aten::sum" in recorded.names
    of_matrices = re.compile(r"::(.*mm|mv|addmv|dot|vdot|.*linalg.*|.*lstsq.*|.*pinv.*)$")
    assert not [name for name in recorded.names if of_matrices.search(name)]
