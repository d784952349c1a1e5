"""Labels, noise and scores at the limits of the ranges of numbers and dtypes."""

import os

import numpy as np
import pytest
import torch

import biv
from biv import labels, metrics, noise
from biv.tables.files import Files


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: labels.plus_minus([1.0], [1.0], level=1e-300), "^level must be at least 1e-06"),
        (lambda: labels.plus_minus([1.0], [1.0], level=1 - 1e-16), "^level must be .* below 1"),
        (lambda: labels.interval([0.0], [1.0], level=1e-9), "^level must be at least"),
        (lambda: labels.plus_minus([1.0], [1e200]), "^y and half_width .*variance inf at index"),
        (lambda: labels.plus_minus([1.0], [1e-200]), "^y and half_width .*variance 0 at index"),
        (
            lambda: labels.plus_minus(torch.ones(2).half(), torch.tensor([1.0, 1e-4]).half()),
            r"^y and half_width .*float16; .*variance 0 at index \(1,\)",
        ),
        (lambda: labels.interval([-1.7e308], [1.7e308]), "^low and high must give"),
        (lambda: labels.interval([1.7e308], [1.7e308]), "^low and high must give"),
        (lambda: labels.asymmetric([1.0], [1e200], [1e200]), "^y and minus and plus must give"),
        (lambda: labels.samples([[1e200, 2e200, 3e200, 5e200]]), "^values must give"),
        (lambda: labels.samples([[1e-200, 2e-200, 3e-200, 5e-200]]), "^values must give"),
        (lambda: labels.ensemble([[1e200], [2e200]], [[1.0], [1.0]]), "^means and variances must"),
        (lambda: labels.repeats([0, 0, 1], [1e200, 2e200, 1.0]), "^values must be at most 1e[+]75"),
        (lambda: labels.ratings([0, 0], [1e-90, 2e-90], [0, 1]), "^values must not all be below"),
        (lambda: labels.counts([1.0], 1e200), "^events and exposure must give"),
        (lambda: labels.counts([1.0], np.inf), "^exposure must be positive and finite"),
        (lambda: labels.counts([np.inf]), "^events must be non-negative and finite"),
        (lambda: labels.count_ratio([1e308], [1e-308]), "^events and others must give"),
        (lambda: labels.poll([0.5], [np.inf]), "^count must be positive and finite"),
        (
            lambda: labels.bootstrapped([0.0], [1.0], [1e-310], gamma=1e-30),
            "^reward and next_value and next_variance must give",
        ),
        (lambda: labels.posterior((np.ones(1), np.full((1, 1), 1 + 1j))), "^covariance must hold"),
        (lambda: labels.posterior((np.ones(1), np.full((1, 1), np.nan))), "^means and covariances"),
        (lambda: labels.posterior((np.full(2, 1.7e308), np.eye(2)), [1, 1]), "^means and cov"),
        (lambda: noise.Uniform(1e300, spread=1.0), r"^mean must be 0 or in \[1e-150, 1e\+150\]"),
        (lambda: noise.Uniform(1e-300, spread=1.0), r"^mean must be 0 or in"),
        (lambda: noise.BinaryUniform(0.5, 1e300), r"^mean must be 0 or in"),
        (lambda: noise.Gamma(1.0, 1e300), r"^mean must be 0 or in"),
        (lambda: noise.Gamma(1e-300, 1e10), r"^alpha must be large enough"),
        (
            lambda: noise.corrupt(np.ones(2, np.float32), np.full(2, 1e100), rng()),
            "^y with noise must be finite in float32",
        ),
        (lambda: noise.corrupt([np.inf], [1.0], rng()), "^y must be finite, or NaN"),
        (
            lambda: noise.disturb(np.full(9, 6e4, np.float16), 9.0, rng()),
            "^variance with noise must be finite in float16",
        ),
        (lambda: metrics.noise_corrected_mse([1e100], [0.0], [1.0]), "^pred must be at most 1e"),
        (lambda: metrics.residual_variance([1.0], [1e200], [1.0]), "^target must be at most"),
        (lambda: metrics.reduced_chi_squared([1.0], [0.0], [1e-310]), "^variance must be large en"),
        (lambda: metrics.steady_epsilon(0.1, [1e308, 1.0]), "^variance must be at most 1e"),
        (lambda: biv.inverse_variance_weights([1e-310]), "^variance must be 0, or large enough"),
        (lambda: biv.epsilon_for_batch_size([1e308, 1.0], 2), "^variance must be small enough"),
        (
            lambda: metrics.noise_corrected_r2([0.0, 0.0], [1e-100, 2e-100], [0.0, 0.0]),
            "^target an",
        ),
        (lambda: biv.epsilon.Relative(1e200, 1e200), "^fraction times label_variance must be fin"),
        (lambda: noise.Uniform(1.0, 0.0).sample(2**70, rng()), "^n must be at most"),
        (lambda: metrics.label_variance([1.0, 2.0], [1e200, 1.0]), "^variance must be at most"),
    ],
)
def test_overflow_and_underflow_are_errors_that_name_the_argument(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def rng():
    return np.random.default_rng(0)


def test_infinite_error_bars_still_make_labels_to_ignore():
    assert labels.plus_minus([1.0, 2.0], [np.inf, 1.0]).variance[0] == np.inf
    assert labels.asymmetric([1.0], [np.inf], [1.0]).variance[0] == np.inf
    assert np.isinf(noise.disturb([np.inf, 1.0], 100.0, rng())[0])
    assert labels.plus_minus([1.0], [0.0]).variance[0] == 0
    assert labels.poll([0.5], [10], population=10).variance[0] == 0


def test_large_but_valid_labels_are_accepted():
    variance = labels.plus_minus([1e60], [1e60]).variance
    assert variance[0] == pytest.approx(1e120 / 3)
    assert noise.Uniform(1e100, spread=1.0).support == (0.0, 2e100)


def test_paths_that_are_not_regular_files_are_rejected(tmp_path):
    loop, pipe, broken = (tmp_path / name for name in ("d.csv", "p.csv", "e.csv"))
    loop.symlink_to(loop)
    broken.symlink_to(tmp_path / "gone.csv")
    os.mkfifo(pipe)
    for path in (loop, broken):
        with pytest.raises(FileNotFoundError, match=f"{path.name} is a symbolic link to a file"):
            Files(path)
    with pytest.raises(ValueError, match=r"p\.csv must be a regular file or a folder"):
        Files(pipe)
