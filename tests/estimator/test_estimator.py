"""BIVRegressor: checks of scikit-learn, and the effect of error bars and parameters."""

import inspect
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import biv
from biv.epsilon import Fixed, MinimumBatchSize, Relative
from biv.estimator import model_file
from biv.estimator.parameters import thread_count
from biv.estimator.training_rows import TrainingRows
from biv.preprocessing.encoder import FeatureEncoder
from biv.training import CrossFit
from biv.training.stack import Stack
from helpers.frames import SMALL, error, table

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def expected_failed_checks(_estimator):
    return {
        "check_sample_weight_equivalence_on_dense_data": (
            "folds and batches are drawn by row, so that a row of weight 2 differs from a repeated "
            "row"
        )
    }


@pytest.mark.slow
@parametrize_with_checks(
    [biv.BIVRegressor(members=4, folds=4, max_epochs=30)],
    expected_failed_checks=expected_failed_checks,
)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_error_bars_make_a_better_model():
    x, y, std, _ = table()
    weighted = biv.BIVRegressor(**SMALL).fit(x, y, y_std=std)
    plain = biv.BIVRegressor(**SMALL, loss="l2").fit(x, y, y_std=std)
    assert error(weighted) < 0.4 * error(plain)
    assert 200 < weighted.effective_sample_size_ < 400
    assert weighted.epsilon_ > 0
    assert plain.epsilon_ is None
    assert 1 <= weighted.n_epochs_ <= len(weighted.history_) <= 30


@pytest.mark.slow
def test_a_standard_deviation_is_the_root_of_a_variance():
    x, y, std, _ = table(200)
    by_std = biv.BIVRegressor(**SMALL).fit(x, y, y_std=std)
    by_var = biv.BIVRegressor(**SMALL).fit(x, y, y_var=std**2)
    assert np.array_equal(by_std.predict(x), by_var.predict(x))
    with pytest.raises(ValueError, match="y_var or y_std, not both"):
        biv.BIVRegressor().fit(x, y, y_var=std**2, y_std=std)


@pytest.mark.slow
def test_units_do_not_matter():
    """With labels in other units, the model is the same in those units."""
    x, y, std, _ = table(200)
    model = biv.BIVRegressor(**SMALL).fit(x, y, y_std=std)
    scaled = biv.BIVRegressor(**SMALL).fit(x * 1e3, y * 1e-4 + 7, y_std=std * 1e-4)
    np.testing.assert_allclose(scaled.predict(x * 1e3), model.predict(x) * 1e-4 + 7, rtol=1e-3)
    assert scaled.tau2_ == pytest.approx(model.tau2_ * 1e-8, rel=0.02)
    assert scaled.epsilon_ == pytest.approx(model.epsilon_ * 1e-8, rel=0.02)


@pytest.mark.slow
def test_without_error_bars_biv_is_l2():
    x, y, _, _ = table(200)
    assert np.array_equal(
        biv.BIVRegressor(**SMALL).fit(x, y).predict(x),
        biv.BIVRegressor(**SMALL, loss="l2").fit(x, y).predict(x),
    )
    for loss in ("iv", "cutoff"):
        with pytest.raises(ValueError, match=f"loss='{loss}' needs y_var or y_std"):
            biv.BIVRegressor(loss=loss).fit(x, y)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"loss": "iv"},
        {"loss": "cutoff"},
        {"loss": "cutoff", "threshold": 4.0},
        {"epsilon": 0.05},
        {"epsilon": MinimumBatchSize(fraction=0.25)},
        {"model": "paper", "max_epochs": 60, "learning_rate": 0.01},
    ],
)
def test_the_model_learns_with_every_option(options):
    x, y, std, _ = table()
    model = biv.BIVRegressor(**{**SMALL, **options}).fit(x, y, y_std=std)
    assert error(model) < 0.07 * 800  # 800 is the variance of the true labels
    if "model" not in options:
        plain = biv.BIVRegressor(**{**SMALL, **options, "loss": "l2"}).fit(x, y, y_std=std)
        assert not np.allclose(model.predict(x), plain.predict(x), atol=0.1)


@pytest.mark.slow
def test_predictions_follow_sample_weight():
    """Two kinds of rows contradict each other, and the weights decide between them."""
    x, _, _, _ = table(400)
    y = np.where(np.arange(400) % 2, x[:, 0], -x[:, 0])
    for share in (0.05, 0.95):
        weight = np.where(np.arange(400) % 2, share, 1 - share)
        model = biv.BIVRegressor(**SMALL).fit(x, y, sample_weight=weight)
        slope = np.polyfit(x[:, 0], model.predict(x), 1)[0]
        assert slope == pytest.approx(2 * share - 1, abs=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [200, 400])
def test_automatic_epsilon_follows_the_error_of_the_model(rows):
    """This holds for a small table too, whose epochs have few steps."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, 3))
    y_var = biv.noise.Gamma(0.25, 0.5).sample(rows, rng)
    y = biv.noise.corrupt(x[:, 0] + np.sin(2 * x[:, 1]), y_var, rng)
    model = biv.BIVRegressor(random_state=0).fit(x, y, y_var=y_var)
    assert 1 / 10 < model.epsilon_ / model.tau2_ < 4
    assert model.epsilon_ < 0.2


@pytest.mark.slow
def test_automatic_epsilon_is_the_one_with_the_better_score(monkeypatch):
    """It is τ² or a fifth of it."""
    x, y, std, _ = table(300)
    scores = {}
    score = TrainingRows.score

    def recorded(self, out_of_fold):
        return scores.setdefault(len(scores), score(self, out_of_fold))

    monkeypatch.setattr("biv.estimator.networks.SCALES", (0.3,))
    monkeypatch.setattr(TrainingRows, "score", recorded)
    model = biv.BIVRegressor(**SMALL).fit(x, y, y_std=std)
    _, score_of_fifth, score_of_tau2 = scores.values()
    better = []
    for first, second in ((1.0, 2.0), (2.0, 1.0)):
        fixed = iter((0.0, first, second))
        monkeypatch.setattr(TrainingRows, "score", lambda *_, fixed=fixed: next(fixed))
        better.append(biv.BIVRegressor(**SMALL).fit(x, y, y_std=std).epsilon_)
    assert better[0] == pytest.approx(0.2 * better[1])
    assert model.epsilon_ == better[0 if score_of_fifth < score_of_tau2 else 1]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["biv", "l2"])
def test_the_frequencies_of_embeddings_suit_the_labels(loss):
    """Labels that are linear in x need low frequencies, and labels that vary fast need high ones."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 2))
    y_var = rng.uniform(0.01, 0.5, size=1500)
    chosen = []
    for truth in (x[:, 0] + x[:, 1], np.sin(12 * x[:, 0]) + x[:, 1]):
        model = biv.BIVRegressor(**{**SMALL, "max_epochs": 8}, loss=loss)
        model.fit(x, biv.noise.corrupt(truth, y_var, rng), y_var=y_var)
        chosen.append(model._fitted.parts[0].network.periodic.scale)
    assert chosen == [0.1, 0.6]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_pilots_are_long_enough_for_smooth_labels(seed):
    """On Friedman's function, high frequencies are better after four epochs and worse at the end."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(1000, 10))
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2
    y += 10 * x[:, 3] + 5 * x[:, 4]
    y, y_var = (y - y.mean()) / y.std(), rng.gamma(1, 0.6, size=1000) + 1e-9
    noisy = y + np.sqrt(y_var) * rng.normal(size=1000)
    model = biv.BIVRegressor(members=4, folds=4, max_epochs=12, epsilon=0.05, random_state=seed)
    model.fit(x, noisy, y_var=y_var)
    assert model._fitted.parts[0].network.periodic.scale == 0.1


@pytest.mark.slow
def test_a_policy_is_in_squared_units_of_y():
    x, y, std, _ = table(300)
    scale = biv.metrics.label_variance(y, std**2)
    same = [
        biv.BIVRegressor(**SMALL, epsilon=epsilon).fit(x, y, y_std=std)
        for epsilon in (0.05, Relative(0.05, scale), Fixed(0.05 * scale))
    ]
    for model in same[1:]:
        np.testing.assert_allclose(model.predict(x), same[0].predict(x), rtol=1e-5)
        assert model.epsilon_ == pytest.approx(0.05 * scale)


@pytest.mark.slow
def test_a_number_for_epsilon_is_relative_to_the_label_variance():
    x, y, std, truth = table()
    model = biv.BIVRegressor(**SMALL, epsilon=0.05).fit(x, y, y_std=std)
    assert model.epsilon_ == pytest.approx(0.05 * truth.var(), rel=0.15)


@pytest.mark.slow
def test_a_threshold_is_in_squared_units_of_y():
    """The variances are 1 and 3,600: only the side of these on which the threshold lies matters."""
    x, y, std, _ = table(300)
    options = {**SMALL, "loss": "cutoff"}
    low, between, above = (
        biv.BIVRegressor(**options, threshold=c).fit(x, y, y_std=std).predict(x)
        for c in (1.5, 3000.0, 4000.0)
    )
    assert np.array_equal(low, between)
    assert not np.allclose(between, above)
    with pytest.raises(
        ValueError, match="threshold=4.0 is in squared units of one output; got 2 outputs"
    ):
        biv.BIVRegressor(**options, threshold=4.0).fit(x, np.stack([y, y], axis=1), y_std=std)


@pytest.mark.slow
def test_the_standard_deviation_is_close_to_the_error():
    x, y, std, _ = table()
    model = biv.BIVRegressor(**SMALL).fit(x, y, y_std=std)
    fresh, noisy, fresh_std, fresh_truth = table(2000, 9)
    mean, std_of_truth = model.predict(fresh, return_std=True)
    assert 0.3 < np.mean((mean - fresh_truth) ** 2) / np.mean(std_of_truth**2) < 3
    assert np.mean(np.abs(mean - fresh_truth) < std_of_truth) > 0.6
    _, std_of_label = model.predict(fresh, return_std=True, y_var=fresh_std**2)
    np.testing.assert_allclose(std_of_label**2, std_of_truth**2 + fresh_std**2)
    assert 0.6 < np.mean(np.abs(mean - noisy) < std_of_label) < 0.85
    assert 0.5 < np.mean(((mean - noisy) / std_of_label) ** 2) < 1.5
    with pytest.raises(ValueError, match="not returned: pass return_std=True"):
        model.predict(fresh, y_var=fresh_std**2)


@pytest.mark.slow
def test_a_score_on_noisy_labels_is_close_to_that_on_clean_ones():
    x, y, std, _ = table()
    model = biv.BIVRegressor(**SMALL).fit(x, y, y_std=std)
    fresh, noisy, fresh_std, truth = table(4000, 9)
    clean = model.score(fresh, truth)
    assert model.score(fresh, noisy, y_var=fresh_std**2) == pytest.approx(clean, abs=0.03)
    assert model.score(fresh, noisy) < clean - 0.3
    by_std = model.score(fresh, noisy, y_std=fresh_std)
    assert by_std == pytest.approx(model.score(fresh, noisy, y_var=fresh_std**2))
    with pytest.raises(
        ValueError, match=r"error bars \(y_var or y_std\) or sample_weight, not both"
    ):
        model.score(fresh, noisy, y_std=fresh_std, sample_weight=fresh_std)


@pytest.mark.slow
def test_several_outputs():
    x, y, std, _ = table(300)
    both, bars = np.stack([y, -10 * y], axis=1), np.stack([std, 10 * std], axis=1)
    model = biv.BIVRegressor(**SMALL).fit(x, both, y_std=bars)
    mean, predicted_std = model.predict(x, return_std=True)
    assert mean.shape == predicted_std.shape == (300, 2)
    assert np.corrcoef(mean[:, 0], -mean[:, 1])[0, 1] > 0.95
    assert model.tau2_.shape == (2,)
    with pytest.warns(UserWarning, match="σ² seems too small"):
        per_row = biv.BIVRegressor(**SMALL).fit(x, both, y_std=std)  # one error bar per row
    assert per_row.predict(x).shape == (300, 2)
    gaps = both.copy()
    gaps[:100, 0] = np.nan
    first = biv.metrics.noise_corrected_r2(mean[100:, 0], y[100:], std[100:] ** 2).value
    second = biv.metrics.noise_corrected_r2(mean[:, 1], both[:, 1], bars[:, 1] ** 2).value
    assert model.score(x, gaps, y_std=bars) == pytest.approx((first + second) / 2)
    plain = [r2_score(y[100:], mean[100:, 0]), r2_score(both[:, 1], mean[:, 1])]
    assert model.score(x, gaps) == pytest.approx(np.mean(plain))


@pytest.mark.slow
def test_several_outputs_are_fitted_separately():
    """Labels that are missing or ignored in one output do not affect the other."""
    x, y, std, _ = table(300)
    noise = np.random.default_rng(1).normal(size=300)
    both = np.stack([y, np.sin(x[:, 0]) + 0.1 * noise], axis=1)
    both[::3, 1] = np.nan
    bars = np.stack([std, np.full(300, 0.1)], axis=1)
    bars[:20, 1] = np.inf
    joint = biv.BIVRegressor(**SMALL).fit(x, both, y_std=bars)
    alone = biv.BIVRegressor(**SMALL).fit(x, y, y_std=std)
    assert np.array_equal(joint.predict(x)[:, 0], alone.predict(x))
    assert np.array_equal(joint.out_of_fold_[:, 0], alone.out_of_fold_)
    used = ~np.isnan(both[:, 1]) & np.isfinite(bars[:, 1])
    alone = biv.BIVRegressor(**SMALL).fit(x[used], both[used, 1], y_std=0.1)
    assert np.array_equal(joint.predict(x)[:, 1], alone.predict(x))
    assert np.array_equal(joint.out_of_fold_[used, 1], alone.out_of_fold_)
    np.testing.assert_allclose(joint.out_of_fold_[~used, 1], alone.predict(x[~used]), rtol=1e-5)


def test_a_fit_warns_of_a_negative_error():
    """The error bars are far too large, so that the estimated error is negative."""
    x, y, std, _ = table(300)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = biv.BIVRegressor(**SMALL).fit(x, y, y_std=5 * std)
    assert min(model.history_) < 0
    assert any(
        "mean squared error of the chosen epoch is negative" in str(w.message) for w in caught
    )


def test_n_jobs_none_is_loaded(tmp_path):
    x = np.random.default_rng(0).standard_normal((60, 2))
    model = biv.BIVRegressor(**{**SMALL, "max_epochs": 2}, n_jobs=None)
    with pytest.warns(UserWarning, match="epochs was the best: more epochs"):
        model.fit(x, x.sum(axis=1), y_std=np.full(60, 0.1))
    model.save(tmp_path / "m.safetensors")
    loaded = biv.BIVRegressor.load(tmp_path / "m.safetensors")
    assert loaded.n_jobs is None
    np.testing.assert_array_equal(loaded.predict(x), model.predict(x))


def test_prediction_uses_as_many_threads_as_n_jobs(monkeypatch):
    x, y, std, _ = table(300)
    model = biv.BIVRegressor(**{**SMALL, "max_epochs": 2}, n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, y, y_std=std)
    threads, predict = [], CrossFit.predict

    def recorded(ensemble, x):
        threads.append(torch.get_num_threads())
        return predict(ensemble, x)

    monkeypatch.setattr(CrossFit, "predict", recorded)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model.predict(x)
        assert threads == [1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_every_output_has_its_own_tau2():
    """One output is easy, and the other is pure noise."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3))
    y = np.stack([x[:, 0] + x[:, 1] / 2, 100 * rng.normal(size=600)], axis=1)
    model = biv.BIVRegressor(**SMALL).fit(x, y)
    assert model.tau2_[0] < 0.2
    assert model.tau2_[1] == pytest.approx(100**2, rel=0.2)
    mean, std = model.predict(x, return_std=True)
    assert std[:, 0].max() < 0.6
    assert std[:, 1].min() > 90
    assert model.effective_sample_size_ == 600
    np.testing.assert_allclose(mean, biv.BIVRegressor(**SMALL).fit(x, y).predict(x))


@pytest.mark.slow
def test_the_same_seed_gives_the_same_model():
    x, y, std, _ = table(200)
    first, same, other = (
        biv.BIVRegressor(**{**SMALL, "random_state": s}).fit(x, y, y_std=std).predict(x)
        for s in (3, 3, 4)
    )
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)


@pytest.mark.slow
@pytest.mark.parametrize("routing", [False, True])
def test_searches_and_cross_validation_select_error_bars_with_their_rows(routing):
    x, y, std, _ = table(240)
    search = {"epsilon": [0.01, 0.1]}
    with sklearn.config_context(enable_metadata_routing=routing):
        grid = GridSearchCV(biv.BIVRegressor(**SMALL), search, cv=2).fit(x, y, y_var=std**2)
        assert grid.predict(x).shape == (240,)
        if routing:
            scores = cross_validate(
                make_pipeline(StandardScaler(), biv.BIVRegressor(**SMALL)),
                x,
                y,
                cv=2,
                params={"y_var": np.stack([std**2], axis=1)},
            )
            assert (
                scores["test_score"] > 0.5
            ).all()  # R² to the true labels, since σ² reached the score
            same = cross_validate(
                make_pipeline(StandardScaler(), biv.BIVRegressor(**SMALL)),
                x,
                y,
                cv=2,
                params={"y_std": std},
            )
            np.testing.assert_allclose(same["test_score"], scores["test_score"])
    assert clone(grid.best_estimator_).get_params() == grid.best_estimator_.get_params()


@pytest.mark.parametrize(
    ("options", "fit", "message"),
    [
        ({"loss": "l1"}, {}, "loss must be one of 'biv', 'l2', 'iv', 'cutoff'; got 'l1'"),
        (
            {"model": "tree"},
            {},
            "model must be one of 'ensemble', 'paper' or a function that returns an nn.Module; got 'tree'",
        ),
        ({"epsilon": "best"}, {}, "epsilon must be 'auto', a number or a policy; got 'best'"),
        ({"epsilon": -1.0}, {}, "epsilon must be .*; got -1"),
        ({"model": torch.nn.Linear(3, 1)}, {}, "model must be one of .*; got Linear"),
        (
            {"model": lambda _features, _outputs: 3},
            {"error": TypeError},
            "model must return an nn.Module; got 3 of type int",
        ),
        (
            {"model": lambda features, _outputs: torch.nn.Bilinear(features, 3, 2)},
            {"error": TypeError},
            "missing 1 required positional argument",
        ),
        (
            {"model": lambda features, _: torch.nn.Sequential(torch.nn.Linear(features, 2))},
            {},
            "must return predictions of shape \\(rows, 1\\), like y; got \\(1, 2\\)",
        ),
        (
            {"model": lambda f, _: torch.nn.Sequential(torch.nn.Linear(f, 2), torch.nn.Tanh())},
            {},
            "must return predictions of shape \\(rows, 1\\), like y; got \\(1, 2\\)",
        ),
        ({"calibrate_variance": "no"}, {}, "calibrate_variance must be one of False, True; got"),
        ({"max_epochs": 0}, {}, "max_epochs must be an integer >= 1; got 0"),
        ({"folds": 1}, {}, "folds must be an integer >= 2; got 1"),
        ({"folds": 8, "members": 12}, {}, "members must be a multiple of folds \\(8\\); got 12"),
        ({"patience": 0}, {}, "patience must be an integer >= 1; got 0"),
        ({"n_jobs": 0}, {}, "n_jobs must be a non-zero integer or None; got 0"),
        ({"threshold": -1.0}, {}, "threshold must be .*; got -1"),
        (
            {"loss": "cutoff", "threshold": 1e-9},
            {"y_std": np.full(50, 0.5)},
            "loss='cutoff' needs a label with a variance below threshold=1e-09; got .* 0.25: set a larger",
        ),
        (
            {"epsilon": Fixed(3.0)},
            {"two": True, "y_std": np.ones(50)},
            "is in squared units of one output; got 2 outputs",
        ),
        (
            {},
            {"y_var": np.full(50, np.inf)},
            "every output must have at least 2 usable labels.*got 0",
        ),
        ({}, {"y_std": ["±1"] * 50}, "y_std must hold numbers; got '±1' in row 0"),
        ({"unknown_variance": "mean"}, {}, "unknown_variance must be one of 'raise', .* 'mean'"),
        ({"calibrate_variance": True}, {}, "calibrate_variance=True needs y_var or y_std"),
        (
            {"calibrate_variance": True},
            {"y_var": np.ones(50)},
            "calibrate_variance=True needs error bars that differ",
        ),
        (
            {},
            {"y_var": np.full(50, -1.0)},
            "y_var must not be negative; got a negative value in 50 rows \\(0, 1, 2, 3, 4, ...\\)",
        ),
        (
            {},
            {"y_std": np.where(np.arange(50) == 7, np.nan, 1.0)},
            "y_std must not be NaN; got NaN in row 7: set unknown_variance='median' or 'estimate'",
        ),
        (
            {"unknown_variance": "median"},
            {"y_std": np.full(50, np.nan)},
            "y_std must be known for at least one label of every output; got none",
        ),
        ({}, {"y_var": np.ones(49)}, "y_var must have the shape of y, \\(50,\\); got \\(49,\\)"),
        ({}, {"sample_weight": np.zeros(50)}, "(?i)sample.weights? must"),
    ],
)
def test_errors_of_invalid_parameters_and_arguments(options, fit, message):
    x, y, _, _ = table(50)
    fit = dict(fit)
    y = np.stack([y, y], axis=1) if fit.pop("two", False) else y
    with pytest.raises(fit.pop("error", ValueError), match=message):
        biv.BIVRegressor(**options).fit(x, y, **fit)


@pytest.mark.parametrize("method", ["fit", "score"])
def test_a_third_positional_argument_is_an_error(method):
    # It could be mistaken for sample weights, which other estimators of scikit-learn take there.
    x, y, std, _ = table(50)
    call = getattr(biv.BIVRegressor(), method)
    with pytest.raises(TypeError, match=f"{method}\\(\\) takes 3 positional arguments but 4 were"):
        call(x, y, std)


def test_options_of_predict_are_keyword_only():
    x, _, _, _ = table(50)
    with pytest.raises(
        TypeError, match=r"predict\(\) takes 2 positional arguments but 3 were given"
    ):
        biv.BIVRegressor().predict(x, True)


@pytest.mark.parametrize("method", ["fit", "predict", "score"])
def test_error_bars_have_the_same_order_in_every_method(method):
    parameters = inspect.signature(getattr(biv.BIVRegressor, method)).parameters.values()
    named = [p.name for p in parameters if p.kind == p.KEYWORD_ONLY and p.name != "return_std"]
    assert named == ["y_var", "y_std", "sample_weight"][: len(named)]
    assert len(named) >= 2


@pytest.mark.parametrize("name", ["X", "y", "y_var", "y_std", "sample_weight"])
def test_masked_arrays_are_an_error(name):
    """NumPy would use the masked values."""
    rows = {"X": np.ones((9, 1)), "y": np.arange(9.0)}
    value = rows.get(name, np.ones(9))
    rows[name] = np.ma.array(value, mask=value == 1)
    with pytest.raises(TypeError, match=f"{name} must not be a masked array"):
        biv.BIVRegressor(**SMALL).fit(**rows)


@pytest.mark.slow
def test_the_rest_of_biv_works_without_scikit_learn():
    code = """
import sys
sys.modules["sklearn"] = None
from biv import *
import biv
assert "BIVRegressor" not in vars(biv)
import pydoc
pydoc.render_doc(biv)  # help(), which reads every attribute that dir() lists
try:
    biv.BIVRegressor
except ImportError as error:
    print(error)
try:
    biv.BIVRegresor
except AttributeError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install scikit-learn" in run.stdout
    assert "no attribute 'BIVRegresor'" in run.stdout


# Networks of the user.


def stackable(features, outputs):
    layers = torch.nn.Linear(features, 32), torch.nn.ReLU(), torch.nn.Linear(32, outputs)
    return torch.nn.Sequential(*layers)


def with_dropout(features, outputs):
    layers = torch.nn.Linear(features, 64), torch.nn.Tanh(), torch.nn.Dropout(0.05)
    return torch.nn.Sequential(*layers, torch.nn.BatchNorm1d(64), torch.nn.Linear(64, outputs))


@pytest.mark.slow
@pytest.mark.parametrize("function", [stackable, with_dropout])
def test_a_function_as_model(function, tmp_path):
    x, y, std, _ = table()
    options = {**SMALL, "model": function, "learning_rate": 0.02}
    state = torch.get_rng_state()
    model = biv.BIVRegressor(**options).fit(x, y, y_std=std)
    assert torch.equal(torch.get_rng_state(), state)
    assert error(model) < 0.4 * 800
    torch.manual_seed(7)
    again = clone(model).fit(x, y, y_std=std)
    assert np.array_equal(again.predict(x), model.predict(x))
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="model was fitted with a function as model: pass it"):
        biv.BIVRegressor.load(tmp_path / "model")
    loaded = biv.BIVRegressor.load(tmp_path / "model", model=function)
    np.testing.assert_allclose(loaded.predict(x), model.predict(x), rtol=1e-6)
    assert loaded.model is function
    other = with_dropout if function is stackable else stackable
    with pytest.raises(ValueError, match="is not a model, or was fitted with another function"):
        biv.BIVRegressor.load(tmp_path / "model", model=other)


@pytest.mark.slow
def test_tied_weights_and_a_function_that_returns_the_same_network(tmp_path):
    class Tied(torch.nn.Module):
        def __init__(self, features):
            super().__init__()
            self.one, self.norm = (
                torch.nn.Linear(features, features),
                torch.nn.BatchNorm1d(features),
            )
            self.two, self.out = torch.nn.Linear(features, features), torch.nn.Linear(features, 1)
            self.two.weight = self.one.weight

        def forward(self, x):
            return self.out(self.two(self.norm(self.one(x)).tanh()))

    def tied(features, _outputs):
        return Tied(features)

    x, y, std, _ = table(45)  # 33 rows per member: batches of 32 and of 1
    model = biv.BIVRegressor(**SMALL, model=tied).fit(x, y, y_std=std)
    model.save(tmp_path / "model")
    loaded = biv.BIVRegressor.load(tmp_path / "model", model=tied)
    np.testing.assert_allclose(loaded.predict(x), model.predict(x), rtol=1e-6)
    network = with_dropout(3, 1)
    with pytest.raises(
        ValueError, match="model must make a new network at each call; got the same one twice"
    ):
        biv.BIVRegressor(**SMALL, model=lambda _features, _outputs: network).fit(x, y)


# The fitted model.


@pytest.mark.slow
def test_parameters_may_be_numpy_scalars(tmp_path):
    x, y, std, _ = table(100)
    options = {
        "members": np.int64(4),
        "folds": np.int64(4),
        "max_epochs": np.int64(10),
        "batch_size": np.int32(16),
        "epsilon": np.float32(0.05),
        "calibrate_variance": np.bool_(True),
        "random_state": np.int64(3),
    }
    model = biv.BIVRegressor(**options).fit(x, y, y_std=std)
    model.save(tmp_path / "model")
    loaded = biv.BIVRegressor.load(tmp_path / "model")
    for name, value in options.items():
        assert getattr(loaded, name) == value, name
    saved, read = (m.predict(x, return_std=True, y_std=std) for m in (model, loaded))
    np.testing.assert_allclose(saved, read, rtol=1e-6)


@pytest.mark.slow
def test_a_fitted_model_is_kept():
    """Later parameters do not change it, nor does a fit that fails."""
    x, y, std, _ = table(200)
    model = biv.BIVRegressor(**SMALL).fit(x, y, y_std=std)
    before = model.predict(x, return_std=True, y_std=std)
    model.set_params(calibrate_variance=True)
    np.testing.assert_array_equal(model.predict(x, return_std=True, y_std=std), before)
    model.set_params(learning_rate=1e30)
    with pytest.raises(ValueError, match="smaller learning_rate"):
        model.fit(7 * x[:, :2] + 3, y, y_std=std)
    np.testing.assert_array_equal(model.predict(x, return_std=True, y_std=std), before)


@pytest.mark.slow
@pytest.mark.parametrize("value", [1e-9, 0.0, 5e12])
def test_constant_labels(value):
    x, _, _, _ = table(60)
    model = biv.BIVRegressor(**SMALL).fit(x, np.full(60, value))
    np.testing.assert_allclose(model.predict(x), value, rtol=0.2, atol=0.2 * (value == 0))


def test_labels_of_infinite_error_bars_are_ignored():
    x, y, std, _ = table(100)
    wild = y.copy()
    wild[:10], std[:10] = 1e300, np.inf
    model = biv.BIVRegressor(**SMALL).fit(x, wild, y_std=std)
    assert np.abs(model.predict(x)).max() < 1000


def test_a_fit_warns_of_too_few_epochs_and_prints_a_summary(capsys):
    x, y, std, _ = table(300)
    few = biv.BIVRegressor(members=2, folds=2, max_epochs=2, verbose=True, random_state=0)
    with pytest.warns(ConvergenceWarning, match="the last of max_epochs=2 epochs was") as caught:
        few.fit(x, y, y_std=std)
    assert caught[0].filename == __file__
    printed = capsys.readouterr().err
    assert "epoch 2 of 2, τ² " in printed
    assert ", ε " in printed


def test_columns_of_objects_and_of_many_categories():
    x, y, _, _ = table(150)
    data = pd.DataFrame({"a": x[:, 0], "b": np.array([1, None, 2] * 50, dtype=object)})
    encoder = FeatureEncoder.fit(data)
    assert encoder(data)[:3, 1:].tolist() == [[1, 0], [1.5, 1], [2, 0]]
    few = biv.BIVRegressor(members=2, folds=2, max_epochs=1, random_state=0)
    many = data.assign(town=[f"town {k % 120}" for k in range(150)])
    with pytest.warns(
        UserWarning, match="column 'town' has 120 categories in 150 filled"
    ) as caught:
        few.fit(many, y)
    assert caught[0].filename == __file__
    with pytest.raises(ValueError, match="2-dimensional"):
        biv.BIVRegressor().fit(data["a"], y)


QUICK = {"members": 2, "folds": 2, "max_epochs": 2, "random_state": 0}


def with_identifiers(rows=150):
    """Return a frame with two columns of distinct texts, of which one has missing cells."""
    x, y, std, _ = table(rows)
    data = pd.DataFrame({"a": x[:, 0], "id": [f"row {k}" for k in range(rows)], "b": x[:, 1]})
    data["name"] = [f"Kepler-{k}" if k % 5 == 0 else None for k in range(rows)]
    return data, y, std


@pytest.mark.filterwarnings("ignore:the last of max_epochs")
def test_identifiers_of_a_frame_are_left_out(tmp_path):
    data, y, std = with_identifiers()
    with pytest.warns(UserWarning, match="was left out") as caught:
        model = biv.BIVRegressor(**QUICK).fit(data, y, y_std=std)
    messages = [str(w.message) for w in caught if "left out" in str(w.message)]
    assert messages == [
        "column 'id' was left out: 150 distinct texts in 150 filled cells, so it looks like "
        "an identifier (keep=['id'] keeps it)",
        "column 'name' was left out: 30 distinct texts in 30 filled cells, so it looks like "
        "an identifier (keep=['name'] keeps it)",
    ]
    assert {w.filename for w in caught} == {__file__}
    assert model.ignored_features_ == ["id", "name"]
    assert model.n_features_in_ == 4
    assert model.feature_names_in_.tolist() == ["a", "id", "b", "name"]
    without = biv.BIVRegressor(**QUICK).fit(data[["a", "b"]], y, y_std=std)
    expected = without.predict(data[["a", "b"]])
    np.testing.assert_array_equal(model.predict(data), expected)
    anything = data.assign(id=pd.Timestamp("2024-01-01"), name=1.0)
    np.testing.assert_array_equal(model.predict(anything), expected)
    model.save(tmp_path / "model.safetensors")
    # An empty `keep` is not stored, as in version 0.1.
    assert "keep" not in model_file.read(tmp_path / "model.safetensors")[1]["settings"]
    loaded = biv.BIVRegressor.load(tmp_path / "model.safetensors")
    assert loaded.keep == ()
    assert loaded.ignored_features_ == ["id", "name"]
    assert loaded.n_features_in_ == 4
    np.testing.assert_array_equal(loaded.predict(anything), expected)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(data[["a", "b"]])


@pytest.mark.filterwarnings("ignore:the last of max_epochs", "ignore:column 'id' has 150 categ")
def test_identifiers_of_a_frame_are_kept_by_name(tmp_path):
    data, y, std = with_identifiers()
    kept = biv.BIVRegressor(**QUICK, keep=["id", "name"]).fit(data, y, y_std=std)
    assert kept.ignored_features_ == []
    assert not np.array_equal(kept.predict(data), kept.predict(data.assign(id="row 0")))
    kept.save(tmp_path / "model.safetensors")
    path = tmp_path / "model.safetensors"
    loaded = biv.BIVRegressor.load(path)
    assert loaded.keep == ("id", "name")
    assert biv.BIVRegressor.load(path).get_params()["keep"] == loaded.keep
    np.testing.assert_array_equal(loaded.predict(data), kept.predict(data))


def test_a_frame_of_identifiers_only_is_an_error():
    data, y, _ = with_identifiers()
    with pytest.raises(
        ValueError,
        match=r"all columns of X look like identifiers; column 'id' .*keep=\['id'\] keeps it",
    ):
        biv.BIVRegressor(**QUICK).fit(data[["id"]], y)


@pytest.mark.parametrize(
    ("keep", "shown"), [("id", "got 'id'"), (["idd"], "got 'idd', which is not a column of X")]
)
def test_only_columns_that_exist_can_be_kept(keep, shown):
    data, y, _ = with_identifiers()
    with pytest.raises(
        ValueError, match=f"keep must be a list of column names of a frame; {shown}"
    ):
        biv.BIVRegressor(**QUICK, keep=keep).fit(data, y)
    with pytest.raises(ValueError, match="keep must be a list of column names of a frame"):
        biv.BIVRegressor(**QUICK, keep=keep).fit(data[["a", "b"]].to_numpy(), y)


@pytest.mark.filterwarnings("ignore:the last of max_epochs")
@pytest.mark.parametrize("kind", ["frame", "array", "frame with text"])
def test_a_fit_warns_of_a_copy_of_the_label(kind):
    x, y, std, _ = table(150)
    data = pd.DataFrame({"a": x[:, 0], "in other units": 0.09 * y})
    data.loc[::7, "in other units"] = np.nan
    if kind == "frame with text":
        data["town"] = ["Bern", "Basel", "Zug"] * 50
    given = data.to_numpy() if kind == "array" else data
    name = "1" if kind == "array" else "'in other units'"
    with pytest.warns(UserWarning, match=f"column {name} of X repeats the label") as caught:
        biv.BIVRegressor(**QUICK).fit(given, y, y_std=std)
    assert [w.filename for w in caught if "repeats" in str(w.message)] == [__file__]
    if kind != "array":
        biv.BIVRegressor(**QUICK, keep=["in other units"]).fit(given, y, y_std=std)


@pytest.mark.filterwarnings("ignore:the last of max_epochs")
def test_a_fit_warns_of_a_copy_of_one_of_several_labels():
    x, y, _, _ = table(150)
    with pytest.warns(UserWarning, match="column 0 of X repeats the label") as caught:
        biv.BIVRegressor(**QUICK).fit(x, np.stack([y, x[:, 0]], axis=1))
    assert sum("repeats" in str(w.message) for w in caught) == 1


@pytest.mark.parametrize(
    ("jobs", "threads"), [(None, 1), (1, 1), (2, 2), (99, 4), (-1, 4), (-9, 1)]
)
def test_n_jobs_is_the_number_of_threads(jobs, threads, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert thread_count(jobs) == threads


@pytest.mark.slow
def test_an_interrupted_fit_resumes_to_the_same_bits(tmp_path, monkeypatch):
    x, y, std, _ = table()
    uninterrupted = biv.BIVRegressor(**SMALL).fit(x, y, y_std=std)
    run_epoch, epochs = Stack.run_epoch, []

    def interrupted(stack, *rest):
        if stack.epoch == 12:  # pilots do not reach this epoch
            raise KeyboardInterrupt
        run_epoch(stack, *rest)

    def counted(stack, *rest):
        epochs.append(stack.epoch)
        run_epoch(stack, *rest)

    model = biv.BIVRegressor(**SMALL, epsilon=uninterrupted.epsilon, checkpoint=tmp_path / "fit.pt")
    with monkeypatch.context() as patch:
        patch.setattr(Stack, "run_epoch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(x, y, y_std=std)
    assert not hasattr(model, "n_epochs_")
    monkeypatch.setattr(Stack, "run_epoch", counted)
    model.fit(x, y, y_std=std)
    assert epochs[-1] == len(uninterrupted.history_) - 1
    assert epochs.count(0) == 4  # four pilots; the ensemble itself resumed at epoch 12
    assert np.array_equal(model.predict(x), uninterrupted.predict(x))
    model.save(tmp_path / "model.safetensors")
    assert biv.BIVRegressor.load(tmp_path / "model.safetensors").checkpoint is None
