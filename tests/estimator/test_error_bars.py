"""Error bars that are wrong, unknown or unrelated to the noise."""

import re
import warnings

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import cross_validate

import biv
from biv.estimator.findings import ErrorBarWarning
from helpers.frames import SMALL, error, table

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def half_as_large():
    """Return a model fitted with half of the right error bars, and the data."""
    x, y, std, _ = table(1000, 4)
    std = std * np.random.default_rng(0).uniform(0.5, 1.5, size=len(std))
    y = table(1000, 4)[3] + std * np.random.default_rng(1).normal(size=len(std))
    return biv.BIVRegressor(**SMALL, calibrate_variance=True).fit(x, y, y_std=std / 2), (x, y, std)


@pytest.mark.slow
def test_error_bars_are_calibrated(half_as_large):
    model, (x, y, std) = half_as_large
    low, high = model.variance_factor_interval_
    assert low < 4 < high
    assert model.variance_factor_ == pytest.approx(4, rel=0.2)
    factor = model.variance_factor_
    _, std_of_truth = model.predict(x, return_std=True)
    _, std_of_label = model.predict(x, return_std=True, y_var=std**2 / 4)
    np.testing.assert_allclose(std_of_label**2, std_of_truth**2 + factor * std**2 / 4)
    right = biv.BIVRegressor(**SMALL).fit(x, y, y_std=std)
    assert right.variance_factor_ == pytest.approx(1, rel=0.2)
    assert model.tau2_ == pytest.approx(right.tau2_, rel=0.5)
    assert model.score(x, y, y_std=std / 2) == pytest.approx(model_score(model, x, y, factor, std))
    with pytest.warns(UserWarning, match="σ² seems too small"):
        wrong = biv.BIVRegressor(**SMALL).fit(x, y, y_std=std / 2)
    assert wrong.variance_factor_ == pytest.approx(4, rel=0.2)  # estimated, though not corrected
    _, too_narrow = wrong.predict(x, return_std=True, y_var=std**2 / 4)
    assert np.mean(np.abs(model.out_of_fold_ - y) < std_of_label) == pytest.approx(0.72, abs=0.1)
    noisy = std > 10
    assert np.mean((np.abs(wrong.out_of_fold_ - y) < too_narrow)[noisy]) < 0.6
    assert np.mean((np.abs(model.out_of_fold_ - y) < std_of_label)[noisy]) > 0.62


def model_score(model, x, y, factor, std):
    return biv.metrics.noise_corrected_r2(model.predict(x), y, factor * std**2 / 4).value


@pytest.mark.slow
def test_fitted_attributes_are_saved(half_as_large, tmp_path):
    model, (x, y, std) = half_as_large
    model.save(tmp_path / "model")
    loaded = biv.BIVRegressor.load(tmp_path / "model")
    for name in vars(model):
        if name.endswith("_") and not name.startswith("_"):
            np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name), err_msg=name)
    assert loaded.score(x, y, y_std=std) == pytest.approx(model.score(x, y, y_std=std))


@pytest.mark.slow
def test_calibration_gives_equal_weights_to_error_bars_unrelated_to_the_noise():
    x, y, std, _ = table(400)
    wrong = 80 - std  # small where the noise is large
    with pytest.warns(UserWarning, match="the error bars do not explain the residuals") as caught:
        model = biv.BIVRegressor(**SMALL, calibrate_variance=True).fit(x, y, y_std=wrong)
    assert caught[0].filename == __file__
    assert model.variance_factor_ < 0
    assert model.effective_sample_size_ == pytest.approx(400)


@pytest.mark.slow
def test_a_score_replaces_unknown_variances_as_the_fit_does():
    x, y, std, _ = table(300)
    gaps = np.where(np.arange(300) % 10 == 0, np.nan, std)
    options = {**SMALL, "unknown_variance": "median"}
    with (
        sklearn.config_context(enable_metadata_routing=True),
        pytest.warns(UserWarning, match="is unknown"),
    ):
        scores = cross_validate(biv.BIVRegressor(**options), x, y, cv=2, params={"y_std": gaps})
    assert (scores["test_score"] > 0.3).all()
    model = biv.BIVRegressor(**options).fit(x, y, y_std=std)
    filled = np.where(np.isnan(gaps), np.median(std**2), std**2)
    assert model.score(x, y, y_std=gaps) == pytest.approx(model.score(x, y, y_var=filled))
    _, std_with_gaps = model.predict(x, return_std=True, y_std=gaps)
    _, std_filled = model.predict(x, return_std=True, y_var=filled)
    np.testing.assert_allclose(std_with_gaps, std_filled)
    plain = biv.BIVRegressor(**SMALL).fit(x, y, y_std=std)
    with pytest.raises(ValueError, match="fit the model with unknown_variance='median'"):
        plain.score(x, y, y_std=gaps)


@pytest.mark.slow
def test_the_median_is_of_calibrated_variances():
    x, y, std, _ = table(800, 4)
    given = np.where(np.arange(800) % 10 == 0, np.nan, std / 3)
    model = biv.BIVRegressor(**SMALL, calibrate_variance=True, unknown_variance="median")
    with pytest.warns(UserWarning, match="is unknown"):
        model.fit(x, y, y_std=given)
    median = np.nanmedian(given**2)
    assert model.unknown_variance_ == pytest.approx(model.variance_factor_ * median)


@pytest.mark.slow
@pytest.mark.parametrize("treatment", ["median", "estimate"])
def test_unknown_variances(treatment):
    """The error bars of all noisy labels are unknown, except among the first 200."""
    x, y, std, _ = table()
    y_std = np.where(std > 1, np.nan, std)
    y_std[:200] = std[:200]
    model = biv.BIVRegressor(**SMALL, unknown_variance=treatment)
    with pytest.warns(
        UserWarning, match=r"the variance of \d+ of 600 labels is unknown and was set to"
    ) as caught:
        model.fit(x, y, y_std=y_std)
    assert {warning.filename for warning in caught} == {__file__}  # the line that calls fit
    known = y_std[~np.isnan(y_std)]
    if treatment == "median":
        assert model.unknown_variance_ == np.median(known**2)
    else:
        assert model.unknown_variance_ == pytest.approx(60**2, rel=0.3)
        assert error(model) < 0.3 * 800
    assert biv.BIVRegressor(**SMALL).fit(x, y, y_std=std).unknown_variance_ is None


@pytest.mark.slow
def test_a_row_of_weight_0_has_no_effect():
    """Its label and error bar change neither the model nor the scaling nor the diagnostics."""
    x, y, std, _ = table(200)
    weight = np.ones(200)
    weight[:40] = 0
    wild, bars = y.copy(), std.copy()
    wild[:40], bars[:40] = 1e9, 1e-3
    model = biv.BIVRegressor(**SMALL).fit(x, y, y_std=std, sample_weight=weight)
    other = biv.BIVRegressor(**SMALL).fit(x, wild, y_std=bars, sample_weight=weight)
    assert np.array_equal(model.predict(x), other.predict(x))
    for name in ("tau2_", "epsilon_", "variance_factor_", "effective_sample_size_"):
        assert getattr(model, name) == getattr(other, name), name


@pytest.mark.slow
def test_calibration_keeps_infinite_error_bars_infinite():
    x, y, std, _ = table(400)
    wrong = np.where(np.arange(400) < 50, np.inf, 80 - std)
    with pytest.warns(UserWarning, match="the error bars do not explain the residuals"):
        model = biv.BIVRegressor(**SMALL, calibrate_variance=True).fit(x, y, y_std=wrong)
    assert model.effective_sample_size_ == pytest.approx(350)


@pytest.mark.slow
def test_the_variance_of_a_missing_label_is_ignored():
    x, y, std, _ = table(100)
    y[:10], std[:5], std[5:10] = np.nan, np.nan, -1.0
    model = biv.BIVRegressor(**SMALL).fit(x, y, y_std=std)
    assert np.isfinite(model.predict(x)).all()
    assert np.isfinite(model.out_of_fold_).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "argument", "message"),
    [
        ("std", "y_var", "y_var seems to hold standard deviations, σ, .*: pass it as y_std"),
        ("variance", "y_std", "y_std seems to hold variances, σ², .*: pass it as y_var"),
        ("precision", "y_var", "y_var seems to hold 1/σ², .*: pass its inverse as y_var"),
    ],
)
def test_a_fit_warns_of_misread_error_bars(content, argument, message):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 2))
    std = np.exp(rng.normal(0, 0.8, 1500))
    y = 3 * x[:, 0] + std * rng.normal(size=1500)
    column = std ** {"std": 1, "variance": 2, "precision": -2}[content]
    for calibrate in (False, True):
        model = biv.BIVRegressor(**SMALL, calibrate_variance=calibrate)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(x, y, **{argument: column})
        (text,) = [str(w.message) for w in caught if w.category is ErrorBarWarning]
        assert re.search(message + r" \(see: biv docs error-bars\)", text)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        biv.BIVRegressor(**SMALL).fit(x, y, y_std=std)
    assert not any(w.category is ErrorBarWarning for w in caught)


@pytest.mark.slow
def test_a_fit_warns_of_error_bars_larger_than_the_noise_whose_factor_looks_right():
    """σ is passed as σ². Near σ = ½ the factor, a slope, is 2σ = 1, as for right error bars."""
    rng = np.random.default_rng(0)
    x, std = rng.normal(size=(800, 2)), rng.uniform(0.35, 0.65, size=800)
    y = x[:, 0] + std * rng.normal(size=800)
    with pytest.warns(ErrorBarWarning, match="error to the true labels is negative") as caught:
        model = biv.BIVRegressor(**SMALL).fit(x, y, y_var=std)
    assert caught[-1].filename == __file__
    low, high = model.variance_factor_interval_
    assert low < 1 < high
    with warnings.catch_warnings():
        warnings.simplefilter("error", ErrorBarWarning)
        biv.BIVRegressor(**SMALL).fit(x, y, y_std=std)


@pytest.mark.slow
def test_the_reduced_chi_squared_of_right_and_too_large_error_bars():
    x, y, std, _ = table(400)
    model = biv.BIVRegressor(**SMALL).fit(x, y, y_std=std)
    expected = biv.metrics.reduced_chi_squared(model.out_of_fold_, y, std**2)
    assert model.reduced_chi_squared_ == pytest.approx(tuple(expected), rel=1e-3)
    assert model.reduced_chi_squared_[0] > 2  # it includes the model's own error
    with pytest.warns(UserWarning, match="σ² seems too large: .* multiplied by 0.0"):
        large = biv.BIVRegressor(**SMALL).fit(x, y, y_std=30 + 10 * std)
    assert large.tau2_ == 0
    assert large.reduced_chi_squared_[0] < 0.1
    without = biv.BIVRegressor(**SMALL).fit(x, y)
    assert without.reduced_chi_squared_ is without.variance_factor_ is None
    assert without.effective_sample_size_ == 400
