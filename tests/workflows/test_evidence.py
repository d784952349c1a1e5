"""Tests of the data behind a report: statistics checked by plain Python, and listed rows."""

import json
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest

import biv
from biv.tables import LabelledTable, Target
from biv.workflows import evidence, inspection
from biv.workflows.evidence import OutOfFoldPredictions, TableEvidence
from biv.workflows.evidence_parts import (
    BinnedResiduals,
    ErrorBarSummary,
    IntervalCoverage,
    WeightShares,
)


def table(tmp_path, rows=400, seed=0):
    rng = np.random.default_rng(seed)
    x, std = rng.normal(size=rows), rng.uniform(0.2, 2.0, rows)
    frame = pd.DataFrame({"x": x, "y": x + std * rng.normal(size=rows), "s": std})
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path, part in zip(paths, (frame[:100], frame[100:]), strict=True):
        part.to_csv(path, index=False)
    return LabelledTable.read(paths, Target("y", std="s")), x


def judged(rows, predicted, tau2=0.0):
    places = np.arange(len(rows))
    return OutOfFoldPredictions(places, predicted, np.full(len(rows), np.sqrt(tau2)), rows.variance)


def evidence_of(rows, predicted, tau2=0.0, **overrides):
    options = {"label_variance": 1.0, "tau2": tau2, "epsilon": None, "inspection": None} | overrides
    return TableEvidence.of(rows, judged(rows, predicted, tau2), **options)


def inspected(rows, x):
    places = np.arange(len(rows))
    fit = inspection.OutOfFoldFit(
        tau2=0.0,
        epsilon=0.0,
        variance_factor=None,
        variance_factor_interval=None,
        places=places,
        predicted=x,
    )
    return inspection.inspect_fit(rows, fit)


def test_evidence_round_trips_through_json(tmp_path):
    rows, x = table(tmp_path)
    result = evidence_of(rows, x, inspection=inspected(rows, x))
    (tmp_path / "evidence.json").write_text(json.dumps(result.to_json()))
    assert TableEvidence.read(tmp_path / "evidence.json") == result


def test_right_error_bars_have_the_nominal_coverage(tmp_path):
    rows, x = table(tmp_path, rows=20_000)
    result = evidence_of(rows, x)  # predictions are the truth, so residuals are the labels' noise
    for level, share in zip(result.coverage.level, result.coverage.observed, strict=True):
        assert share == pytest.approx(level, abs=3.5 * np.sqrt(level * (1 - level) / 20_000))


def test_coverage_by_hand():
    off = np.array([0.5, 1.5, 2.5, 0.1])
    width = NormalDist().inv_cdf(0.75)
    assert IntervalCoverage.of(off, [0.5]).observed == [np.mean([o <= width for o in off])]


def test_residuals_are_averaged_per_bin():
    rng = np.random.default_rng(0)
    variance, square = rng.random(100), rng.random(100)
    bins = BinnedResiduals.of(variance, square)
    order = sorted(range(100), key=variance.__getitem__)
    assert len(bins.mean) == 5  # of at least twenty rows
    for k in range(5):
        part = order[20 * k : 20 * (k + 1)]
        assert bins.variance[k] == pytest.approx(sum(variance[i] for i in part) / 20)
        assert bins.mean[k] == pytest.approx(sum(square[i] for i in part) / 20)
        assert bins.stderr[k] == pytest.approx(np.std([square[i] for i in part]) / np.sqrt(20))


def test_mean_squared_residuals_are_the_variances(tmp_path):
    rows, x = table(tmp_path, rows=20_000)
    bins = evidence_of(rows, x, inspection=inspected(rows, x)).residuals
    errors = (np.array(bins.mean) - bins.variance) / bins.stderr
    assert np.abs(errors).max() < 4
    assert np.sqrt(np.mean(errors**2)) < 1.7


@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_weight_shares_by_hand(epsilon):
    finite = np.array([4.0, 1.0, 2.0])
    shares = WeightShares.of(finite, epsilon=epsilon, points=4)
    weights = sorted((1 / (v + epsilon) for v in finite), reverse=True)
    expected = [sum(weights[:k]) / sum(weights) for k in range(4)]
    np.testing.assert_allclose(shares.labels, [0, 1 / 3, 2 / 3, 1])
    np.testing.assert_allclose(shares.with_epsilon, expected)
    np.testing.assert_allclose(shares.equal, shares.labels)
    assert all(np.diff(result).min() >= 0 for result in (shares.labels, *shares.curves().values()))


def test_a_label_without_noise_holds_all_the_weight_if_epsilon_is_0():
    shares = WeightShares.of(np.array([0.0, 1.0, 1.0, 1.0]), epsilon=0.0, points=5)
    assert shares.with_epsilon == [0.0, 1.0, 1.0, 1.0, 1.0]
    assert list(shares.curves()) == ["unweighted", "1/(σ²+ε)"]


@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
@pytest.mark.parametrize("wide", [False, True])
def test_a_histogram_counts_every_positive_variance(scale, wide):
    rng = np.random.default_rng(0)
    variance = scale * (rng.gamma(0.3, size=500) if wide else rng.uniform(1, 2, 500))
    variance[:3] = 0.0
    variance[3] = np.inf
    bars = ErrorBarSummary.of(variance, scale, 0.1 * scale, None)
    assert sum(bars.histogram) == 496
    assert (bars.count, bars.zeros, bars.log) == (499, 3, wide)
    assert len(bars.edges) == len(bars.histogram) + 1
    most = variance[np.isfinite(variance)].max() / scale  # in units of the label variance
    assert bars.edges[-1] == pytest.approx(most)
    finite = variance[np.isfinite(variance)] + 0.1 * scale
    assert bars.worth == pytest.approx(finite.mean() * (1 / finite).mean())


def test_all_variances_may_be_zero():
    bars = ErrorBarSummary.of(np.zeros(5), 1.0, 0.5, None)
    assert sum(bars.histogram) == 0
    assert bars.worth == pytest.approx(1.0)


def test_listed_outliers_are_the_most_distant_with_their_file_and_row(tmp_path):
    rows, x = table(tmp_path)
    x = x.copy()
    x[150] += 600.0
    x[20] -= 30.0
    outliers = evidence_of(rows, x).outliers
    assert len(outliers) == evidence.OUTLIERS_LISTED
    assert outliers[0].where == f"{tmp_path / 'b.csv'}, row 51"
    assert outliers[1].where == f"{tmp_path / 'a.csv'}, row 21"
    offs = [row.standardised_residual for row in outliers]
    assert offs == sorted(offs, reverse=True)
    by_hand = abs(rows.y[150] - x[150]) / np.sqrt(rows.variance[150])
    assert offs[0] == pytest.approx(by_hand)
    unsure = (
        evidence_of(rows, x, tau2=9.0).outliers[0].standardised_residual
    )  # the model's result error counts too
    assert unsure == pytest.approx(abs(rows.y[150] - x[150]) / np.sqrt(rows.variance[150] + 9))


def test_ignored_labels_are_not_judged(tmp_path):
    rows, x = table(tmp_path)
    rows.variance[5] = np.inf
    rows.y[5] = 1e6
    result = evidence_of(rows, x)
    assert result.judged == 399
    assert max(result.cloud.y) < 1e3


def test_the_scatter_plot_shows_rows_spread_over_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(evidence, "POINTS", 9)
    rows, x = table(tmp_path)
    result = evidence_of(rows, x)
    assert result.cloud.y == [rows.y[k] for k in (0, 50, 100, 150, 200, 249, 299, 349, 399)]
    assert result.judged == 400


def test_a_model_is_judged_on_out_of_fold_predictions(tmp_path):
    rows, _ = table(tmp_path)
    model = biv.BIVRegressor(members=4, folds=4, max_epochs=3, random_state=0)
    with pytest.warns(UserWarning, match="max_epochs"):
        model.fit(rows.features, rows.y, y_var=rows.variance)
    result = TableEvidence.from_model(model, rows)
    np.testing.assert_allclose(result.cloud.predicted, model.out_of_fold_)
    np.testing.assert_allclose(result.cloud.std, model.predict(rows.features, return_std=True)[1])
    np.testing.assert_allclose(np.square(result.cloud.sigma), rows.variance)
    assert result.tau2 == pytest.approx(float(model.tau2_))
    assert result.bars.quantiles["1"] == rows.variance.max()
