"""BIVRegressor: scikit-learn's own checks, and what error bars change."""

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
            "folds and batches are drawn by row, so a row of weight 2 is not a row that is there "
            "twice"
        )
    }


@pytest.mark.slow
@parametrize_with_checks(
    [biv.BIVRegressor(members=4, folds=4, max_epochs=30)],
    expected_failed_checks=expected_failed_checks,
)
def test_scikit_learn_s_own_checks(estimator, check):
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
    one = biv.BIVRegressor(**SMALL).fit(x, y, y_std=std)
    two = biv.BIVRegressor(**SMALL).fit(x, y, y_var=std**2)
    assert np.array_equal(one.predict(x), two.predict(x))
    with pytest.raises(ValueError, match="y_var or y_std, not both"):
        biv.BIVRegressor().fit(x, y, y_var=std**2, y_std=std)


@pytest.mark.slow
def test_units_do_not_matter():
    """Labels in other units: the same model in those."""
    x, y, std, _ = table(200)
    one = biv.BIVRegressor(**SMALL).fit(x, y, y_std=std)
    two = biv.BIVRegressor(**SMALL).fit(x * 1e3, y * 1e-4 + 7, y_std=std * 1e-4)
    np.testing.assert_allclose(two.predict(x * 1e3), one.predict(x) * 1e-4 + 7, rtol=1e-3)
    assert two.tau2_ == pytest.approx(one.tau2_ * 1e-8, rel=0.02)
    assert two.epsilon_ == pytest.approx(one.epsilon_ * 1e-8, rel=0.02)


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
def test_every_way_learns(options):
    x, y, std, _ = table()
    model = biv.BIVRegressor(**{**SMALL, **options}).fit(x, y, y_std=std)
    assert error(model) < 0.07 * 800  # of the variance of the true labels
    if "model" not in options:
        plain = biv.BIVRegressor(**{**SMALL, **options, "loss": "l2"}).fit(x, y, y_std=std)
        assert not np.allclose(model.predict(x), plain.predict(x), atol=0.1)


@pytest.mark.slow
def test_what_matters_more_is_followed():
    """Two kinds of rows that contradict each other: weights decide."""
    x, _, _, _ = table(400)
    y = np.where(np.arange(400) % 2, x[:, 0], -x[:, 0])
    for odd in (0.05, 0.95):
        weight = np.where(np.arange(400) % 2, odd, 1 - odd)
        model = biv.BIVRegressor(**SMALL).fit(x, y, sample_weight=weight)
        slope = np.polyfit(x[:, 0], model.predict(x), 1)[0]
        assert slope == pytest.approx(2 * odd - 1, abs=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [200, 400])
def test_automatic_epsilon_follows_the_error_of_the_model(rows):
    """Of a small table too, whose epochs have few steps."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, 3))
    y_var = biv.noise.Gamma(0.25, 0.5).sample(rows, rng)
    y = biv.noise.corrupt(x[:, 0] + np.sin(2 * x[:, 1]), y_var, rng)
    model = biv.BIVRegressor(random_state=0).fit(x, y, y_var=y_var)
    assert 1 / 10 < model.epsilon_ / model.tau2_ < 4
    assert model.epsilon_ < 0.2


@pytest.mark.slow
def test_automatic_epsilon_is_what_predicts_unseen_labels_better(monkeypatch):
    """All of τ², or a fifth of it."""
    x, y, std, _ = table(300)
    scores = {}
    score = TrainingRows.score

    def watched(self, out_of_fold):
        return scores.setdefault(len(scores), score(self, out_of_fold))

    monkeypatch.setattr("biv.estimator.networks.SCALES", (0.3,))
    monkeypatch.setattr(TrainingRows, "score", watched)
    model = biv.BIVRegressor(**SMALL).fit(x, y, y_std=std)
    _, less, all_of_it = scores.values()
    better = []
    for first, second in ((1.0, 2.0), (2.0, 1.0)):
        told = iter((0.0, first, second))
        monkeypatch.setattr(TrainingRows, "score", lambda *_, told=told: next(told))
        better.append(biv.BIVRegressor(**SMALL).fit(x, y, y_std=std).epsilon_)
    assert better[0] == pytest.approx(0.2 * better[1])
    assert model.epsilon_ == better[0 if less < all_of_it else 1]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["biv", "l2"])
def test_embeddings_are_as_fine_as_the_labels_ask_for(loss):
    """A straight line is best seen through slow waves, and what changes fast through fast ones."""
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
    """After four epochs, faster waves are still ahead on Friedman's function, and end behind."""
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
    """Between the two kinds of labels, 1 and 3,600, it matters not where; below or above, it does."""
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
def test_the_standard_deviation_is_about_the_error():
    x, y, std, _ = table()
    model = biv.BIVRegressor(**SMALL).fit(x, y, y_std=std)
    fresh, noisy, fresh_std, fresh_truth = table(2000, 9)
    mean, sure = model.predict(fresh, return_std=True)
    assert 0.3 < np.mean((mean - fresh_truth) ** 2) / np.mean(sure**2) < 3
    assert np.mean(np.abs(mean - fresh_truth) < sure) > 0.6
    _, wide = model.predict(fresh, return_std=True, y_var=fresh_std**2)
    np.testing.assert_allclose(wide**2, sure**2 + fresh_std**2)
    assert 0.6 < np.mean(np.abs(mean - noisy) < wide) < 0.85
    assert 0.5 < np.mean(((mean - noisy) / wide) ** 2) < 1.5
    with pytest.raises(ValueError, match="not returned: pass return_std=True"):
        model.predict(fresh, y_var=fresh_std**2)


@pytest.mark.slow
def test_a_score_on_noisy_labels_is_that_on_clean_ones():
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
    mean, sure = model.predict(x, return_std=True)
    assert mean.shape == sure.shape == (300, 2)
    assert np.corrcoef(mean[:, 0], -mean[:, 1])[0, 1] > 0.95
    assert model.tau2_.shape == (2,)
    with pytest.warns(UserWarning, match="σ² seems too small"):
        same = biv.BIVRegressor(**SMALL).fit(x, both, y_std=std)  # one error bar a row
    assert same.predict(x).shape == (300, 2)
    gaps = both.copy()
    gaps[:100, 0] = np.nan
    one = biv.metrics.noise_corrected_r2(mean[100:, 0], y[100:], std[100:] ** 2).value
    two = biv.metrics.noise_corrected_r2(mean[:, 1], both[:, 1], bars[:, 1] ** 2).value
    assert model.score(x, gaps, y_std=bars) == pytest.approx((one + two) / 2)
    plain = [r2_score(y[100:], mean[100:, 0]), r2_score(both[:, 1], mean[:, 1])]
    assert model.score(x, gaps) == pytest.approx(np.mean(plain))


@pytest.mark.slow
def test_several_outputs_are_fitted_as_each_would_be_alone():
    """Labels that are missing or ignored in one output change nothing in the other."""
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


def test_a_negative_error_is_not_chosen_silently():
    """The error bars are far too large, so that the error to the true labels seems negative."""
    x, y, std, _ = table(300)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = biv.BIVRegressor(**SMALL).fit(x, y, y_std=5 * std)
    assert min(model.history_) < 0
    assert any(
        "mean squared error of the chosen epoch is negative" in str(w.message) for w in caught
    )


def test_a_model_of_the_default_number_of_threads_is_loaded(tmp_path):
    x = np.random.default_rng(0).standard_normal((60, 2))
    model = biv.BIVRegressor(**{**SMALL, "max_epochs": 2}, n_jobs=None)
    with pytest.warns(UserWarning, match="epochs was the best: more epochs"):
        model.fit(x, x.sum(axis=1), y_std=np.full(60, 0.1))
    model.save(tmp_path / "m.safetensors")
    again = biv.BIVRegressor.load(tmp_path / "m.safetensors")
    assert again.n_jobs is None
    np.testing.assert_array_equal(again.predict(x), model.predict(x))


def test_prediction_uses_as_many_threads_as_n_jobs(monkeypatch):
    x, y, std, _ = table(300)
    model = biv.BIVRegressor(**{**SMALL, "max_epochs": 2}, n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, y, y_std=std)
    threads, predict = [], CrossFit.predict

    def watched(ensemble, x):
        threads.append(torch.get_num_threads())
        return predict(ensemble, x)

    monkeypatch.setattr(CrossFit, "predict", watched)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model.predict(x)
        assert threads == [1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_every_output_has_an_error_of_its_own():
    """One is easy and one is nothing but noise."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3))
    y = np.stack([x[:, 0] + x[:, 1] / 2, 100 * rng.normal(size=600)], axis=1)
    model = biv.BIVRegressor(**SMALL).fit(x, y)
    assert model.tau2_[0] < 0.2
    assert model.tau2_[1] == pytest.approx(100**2, rel=0.2)
    mean, sure = model.predict(x, return_std=True)
    assert sure[:, 0].max() < 0.6
    assert sure[:, 1].min() > 90
    assert model.effective_sample_size_ == 600
    np.testing.assert_allclose(mean, biv.BIVRegressor(**SMALL).fit(x, y).predict(x))


@pytest.mark.slow
def test_a_seed_is_a_model():
    x, y, std, _ = table(200)
    one, same, other = (
        biv.BIVRegressor(**{**SMALL, "random_state": s}).fit(x, y, y_std=std).predict(x)
        for s in (3, 3, 4)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("routing", [False, True])
def test_error_bars_are_sliced_with_the_rows(routing):
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
            assert (scores["test_score"] > 0.5).all()  # corrected: σ² reached the score
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
            "model must be one of 'ensemble', 'paper', or a fun.*; got 'tree'",
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
def test_what_cannot_be_is_said(options, fit, message):
    x, y, _, _ = table(50)
    fit = dict(fit)
    y = np.stack([y, y], axis=1) if fit.pop("two", False) else y
    with pytest.raises(fit.pop("error", ValueError), match=message):
        biv.BIVRegressor(**options).fit(x, y, **fit)


@pytest.mark.parametrize("method", ["fit", "score"])
def test_a_third_positional_argument_is_refused(method):
    # It was read as variances, where other estimators of scikit-learn take weights.
    x, y, std, _ = table(50)
    call = getattr(biv.BIVRegressor(), method)
    with pytest.raises(TypeError, match=f"{method}\\(\\) takes 3 positional arguments but 4 were"):
        call(x, y, std)


def test_predict_takes_its_options_by_name():
    x, _, _, _ = table(50)
    with pytest.raises(
        TypeError, match=r"predict\(\) takes 2 positional arguments but 3 were given"
    ):
        biv.BIVRegressor().predict(x, True)


@pytest.mark.parametrize("method", ["fit", "predict", "score"])
def test_error_bars_come_in_one_order(method):
    parameters = inspect.signature(getattr(biv.BIVRegressor, method)).parameters.values()
    named = [p.name for p in parameters if p.kind == p.KEYWORD_ONLY and p.name != "return_std"]
    assert named == ["y_var", "y_std", "sample_weight"][: len(named)]
    assert len(named) >= 2


@pytest.mark.parametrize("name", ["X", "y", "y_var", "y_std", "sample_weight"])
def test_masked_arrays_are_refused(name):
    """NumPy would use what the mask hides."""
    rows = {"X": np.ones((9, 1)), "y": np.arange(9.0)}
    value = rows.get(name, np.ones(9))
    rows[name] = np.ma.array(value, mask=value == 1)
    with pytest.raises(TypeError, match=f"{name} must not be a masked array"):
        biv.BIVRegressor(**SMALL).fit(**rows)


@pytest.mark.slow
def test_without_scikit_learn_the_rest_works():
    code = """
import sys
sys.modules["sklearn"] = None
from biv import *
import biv
assert "BIVRegressor" not in vars(biv)
import pydoc
pydoc.render_doc(biv)  # help, which looks at all that dir lists
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


# Networks of one's own.


def stackable(features, outputs):
    layers = torch.nn.Linear(features, 32), torch.nn.ReLU(), torch.nn.Linear(32, outputs)
    return torch.nn.Sequential(*layers)


def with_dropout(features, outputs):
    layers = torch.nn.Linear(features, 64), torch.nn.Tanh(), torch.nn.Dropout(0.05)
    return torch.nn.Sequential(*layers, torch.nn.BatchNorm1d(64), torch.nn.Linear(64, outputs))


@pytest.mark.slow
@pytest.mark.parametrize("own", [stackable, with_dropout])
def test_a_network_of_one_s_own(own, tmp_path):
    x, y, std, _ = table()
    options = {**SMALL, "model": own, "learning_rate": 0.02}
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
    loaded = biv.BIVRegressor.load(tmp_path / "model", model=own)
    np.testing.assert_allclose(loaded.predict(x), model.predict(x), rtol=1e-6)
    assert loaded.model is own
    other = with_dropout if own is stackable else stackable
    with pytest.raises(ValueError, match="is not a model, or was fitted with another function"):
        biv.BIVRegressor.load(tmp_path / "model", model=other)


@pytest.mark.slow
def test_networks_that_are_hard_to_please(tmp_path):
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

    x, y, std, _ = table(45)  # 33 rows a member: batches of 32 and of 1
    model = biv.BIVRegressor(**SMALL, model=tied).fit(x, y, y_std=std)
    model.save(tmp_path / "model")
    loaded = biv.BIVRegressor.load(tmp_path / "model", model=tied)
    np.testing.assert_allclose(loaded.predict(x), model.predict(x), rtol=1e-6)
    same = with_dropout(3, 1)
    with pytest.raises(ValueError, match="model must make a new network each time"):
        biv.BIVRegressor(**SMALL, model=lambda _features, _outputs: same).fit(x, y)


# What a fit leaves behind.


@pytest.mark.slow
def test_numbers_of_numpy_are_numbers(tmp_path):
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
    one, two = (m.predict(x, return_std=True, y_std=std) for m in (model, loaded))
    np.testing.assert_allclose(one, two, rtol=1e-6)


@pytest.mark.slow
def test_what_is_fitted_stays_so():
    """Whatever is set afterwards, and if another fit fails."""
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
def test_labels_that_do_not_vary(value):
    x, _, _, _ = table(60)
    model = biv.BIVRegressor(**SMALL).fit(x, np.full(60, value))
    np.testing.assert_allclose(model.predict(x), value, rtol=0.2, atol=0.2 * (value == 0))


def test_labels_to_ignore_are_not_looked_at():
    x, y, std, _ = table(100)
    wild = y.copy()
    wild[:10], std[:10] = 1e300, np.inf
    model = biv.BIVRegressor(**SMALL).fit(x, wild, y_std=std)
    assert np.abs(model.predict(x)).max() < 1000


def test_too_few_epochs_are_said(capsys):
    x, y, std, _ = table(300)
    few = biv.BIVRegressor(members=2, folds=2, max_epochs=2, verbose=True, random_state=0)
    with pytest.warns(ConvergenceWarning, match="the last of max_epochs=2 epochs was") as said:
        few.fit(x, y, y_std=std)
    assert said[0].filename == __file__
    told = capsys.readouterr().err
    assert "epoch 2 of 2, τ² " in told
    assert ", ε " in told


def test_columns_of_frames_that_are_not_what_they_seem():
    x, y, _, _ = table(150)
    data = pd.DataFrame({"a": x[:, 0], "b": np.array([1, None, 2] * 50, dtype=object)})
    encoder = FeatureEncoder.fit(data)
    assert encoder(data)[:3, 1:].tolist() == [[1, 0], [1.5, 1], [2, 0]]
    few = biv.BIVRegressor(members=2, folds=2, max_epochs=1, random_state=0)
    many = data.assign(town=[f"town {k % 120}" for k in range(150)])
    with pytest.warns(UserWarning, match="column 'town' has 120 categories in 150 filled") as said:
        few.fit(many, y)
    assert said[0].filename == __file__
    with pytest.raises(ValueError, match="2-dimensional"):
        biv.BIVRegressor().fit(data["a"], y)


QUICK = {"members": 2, "folds": 2, "max_epochs": 2, "random_state": 0}


def with_identifiers(rows=150):
    """Texts that are distinct in every cell, and in the few cells that are filled."""
    x, y, std, _ = table(rows)
    data = pd.DataFrame({"a": x[:, 0], "id": [f"row {k}" for k in range(rows)], "b": x[:, 1]})
    data["name"] = [f"Kepler-{k}" if k % 5 == 0 else None for k in range(rows)]
    return data, y, std


@pytest.mark.filterwarnings("ignore:the last of max_epochs")
def test_identifiers_of_a_frame_are_left_out(tmp_path):
    data, y, std = with_identifiers()
    with pytest.warns(UserWarning, match="was left out") as said:
        model = biv.BIVRegressor(**QUICK).fit(data, y, y_std=std)
    told = [str(w.message) for w in said if "left out" in str(w.message)]
    assert told == [
        "column 'id' was left out: 150 distinct texts in 150 filled cells, as identifiers have "
        "(keep=['id'] keeps it)",
        "column 'name' was left out: 30 distinct texts in 30 filled cells, as identifiers have "
        "(keep=['name'] keeps it)",
    ]
    assert {w.filename for w in said} == {__file__}
    assert model.ignored_features_ == ["id", "name"]
    assert model.n_features_in_ == 4
    assert model.feature_names_in_.tolist() == ["a", "id", "b", "name"]
    without = biv.BIVRegressor(**QUICK).fit(data[["a", "b"]], y, y_std=std)
    expected = without.predict(data[["a", "b"]])
    np.testing.assert_array_equal(model.predict(data), expected)
    anything = data.assign(id=pd.Timestamp("2024-01-01"), name=1.0)
    np.testing.assert_array_equal(model.predict(anything), expected)
    model.save(tmp_path / "model.safetensors")
    assert "keep" not in model_file.read(tmp_path / "model.safetensors")[1]["settings"]  # as before
    again = biv.BIVRegressor.load(tmp_path / "model.safetensors")
    assert again.keep == ()
    assert again.ignored_features_ == ["id", "name"]
    assert again.n_features_in_ == 4
    np.testing.assert_array_equal(again.predict(anything), expected)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(data[["a", "b"]])


@pytest.mark.filterwarnings("ignore:the last of max_epochs", "ignore:column 'id' has 150 categ")
def test_identifiers_of_a_frame_are_kept_by_name(tmp_path):
    data, y, std = with_identifiers()
    kept = biv.BIVRegressor(**QUICK, keep=["id", "name"]).fit(data, y, y_std=std)
    assert kept.ignored_features_ == []
    assert not np.array_equal(kept.predict(data), kept.predict(data.assign(id="row 0")))
    kept.save(tmp_path / "model.safetensors")
    again = biv.BIVRegressor.load(tmp_path / "model.safetensors")
    assert again.keep == ("id", "name")
    assert biv.BIVRegressor.load(tmp_path / "model.safetensors").get_params()["keep"] == again.keep
    np.testing.assert_array_equal(again.predict(data), kept.predict(data))


def test_a_frame_of_identifiers_alone_is_refused():
    data, y, _ = with_identifiers()
    with pytest.raises(ValueError, match=r"X must have a column .*keep=\['id'\] keeps it"):
        biv.BIVRegressor(**QUICK).fit(data[["id"]], y)


@pytest.mark.parametrize(
    ("keep", "found"), [("id", "got 'id'"), (["idd"], "got 'idd', which is not a column of X")]
)
def test_only_columns_that_exist_can_be_kept(keep, found):
    data, y, _ = with_identifiers()
    with pytest.raises(
        ValueError, match=f"keep must be a list of column names of a frame; {found}"
    ):
        biv.BIVRegressor(**QUICK, keep=keep).fit(data, y)
    with pytest.raises(ValueError, match="keep must be a list of column names of a frame"):
        biv.BIVRegressor(**QUICK, keep=keep).fit(data[["a", "b"]].to_numpy(), y)


@pytest.mark.filterwarnings("ignore:the last of max_epochs")
@pytest.mark.parametrize("kind", ["frame", "array", "frame with text"])
def test_a_copy_of_the_label_is_warned_of(kind):
    x, y, std, _ = table(150)
    data = pd.DataFrame({"a": x[:, 0], "in other units": 0.09 * y})
    data.loc[::7, "in other units"] = np.nan
    if kind == "frame with text":
        data["town"] = ["Bern", "Basel", "Zug"] * 50
    given = data.to_numpy() if kind == "array" else data
    name = "1" if kind == "array" else "'in other units'"
    with pytest.warns(UserWarning, match=f"column {name} of X repeats the label") as said:
        biv.BIVRegressor(**QUICK).fit(given, y, y_std=std)
    assert [w.filename for w in said if "repeats" in str(w.message)] == [__file__]
    if kind != "array":
        biv.BIVRegressor(**QUICK, keep=["in other units"]).fit(given, y, y_std=std)


@pytest.mark.filterwarnings("ignore:the last of max_epochs")
def test_a_copy_of_one_of_several_labels_is_warned_of():
    x, y, _, _ = table(150)
    with pytest.warns(UserWarning, match="column 0 of X repeats the label") as said:
        biv.BIVRegressor(**QUICK).fit(x, np.stack([y, x[:, 0]], axis=1))
    assert sum("repeats" in str(w.message) for w in said) == 1


@pytest.mark.parametrize(
    ("jobs", "threads"), [(None, 1), (1, 1), (2, 2), (99, 4), (-1, 4), (-9, 1)]
)
def test_jobs_are_threads(jobs, threads, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert thread_count(jobs) == threads


@pytest.mark.slow
def test_an_interrupted_fit_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    x, y, std, _ = table()
    straight = biv.BIVRegressor(**SMALL).fit(x, y, y_std=std)
    real, epochs = Stack.run_epoch, []

    def interrupted(stack, *rest):
        if stack.epoch == 12:  # which pilots do not reach
            raise KeyboardInterrupt
        real(stack, *rest)

    def counted(stack, *rest):
        epochs.append(stack.epoch)
        real(stack, *rest)

    model = biv.BIVRegressor(**SMALL, epsilon=straight.epsilon, checkpoint=tmp_path / "fit.pt")
    with monkeypatch.context() as patch:
        patch.setattr(Stack, "run_epoch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(x, y, y_std=std)
    assert not hasattr(model, "n_epochs_")
    monkeypatch.setattr(Stack, "run_epoch", counted)
    model.fit(x, y, y_std=std)
    assert epochs[-1] == len(straight.history_) - 1
    assert epochs.count(0) == 4  # those of the pilots: the ensemble itself resumed at epoch 12
    assert np.array_equal(model.predict(x), straight.predict(x))
    model.save(tmp_path / "model.safetensors")
    assert biv.BIVRegressor.load(tmp_path / "model.safetensors").checkpoint is None
