"""Tests of comparisons on tables for which the right recommendation is known."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from biv.metrics import Score
from biv.report import comparison as report
from biv.tables import LabelledTable, Target
from biv.workflows import compare, comparison
from biv.workflows.comparison_record import Effect
from biv.workflows.method_comparison import MethodComparison, MethodResult
from biv.workflows.methods import BIV, L2, SHUFFLED, RowSubset, methods


def table(tmp_path, rows=240, *, honest=True, seed=0):
    """Write a table whose labels are half almost clean and half very noisy; shuffle σ if dishonest."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2))
    std = np.where(rng.random(rows) < 0.5, 0.1, 3.0)
    y = x[:, 0] + np.sin(2 * x[:, 1]) + std * rng.normal(size=rows)
    stated = std if honest else rng.permutation(std)
    path = tmp_path / "data.csv"
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y, "s": stated}).to_csv(path, index=False)
    return LabelledTable.read(path, Target("y", std="s"))


@pytest.fixture
def small(monkeypatch):
    few = {"members": 2, "folds": 2, "max_epochs": 12}
    monkeypatch.setattr("biv.workflows.methods.NETWORKS", few)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_right_error_bars_are_recommended_and_shuffled_ones_are_not(tmp_path, monkeypatch):
    few = {name: own for name, own in methods().items() if name in (BIV, L2, SHUFFLED)}
    monkeypatch.setattr(comparison, "methods", lambda: few)
    calls = []
    result = compare(table(tmp_path, 300), after_task=lambda: calls.append(1))
    assert len(calls) == 5 * 3
    assert [m.to_best.value for m in result.methods] == sorted(
        m.to_best.value for m in result.methods
    )
    assert result.useful is True
    assert result.recommendation().startswith(
        "Use the error bars, with BIV. By paired differences, BIV's error is "
    )
    assert result.gain.low < result.gain.value < result.gain.high
    assert (
        json.loads(json.dumps(result.record().to_json(), allow_nan=False))["use_error_bars"] is True
    )
    assert f"| {L2} " in report.text(result.record())
    other = compare(table(tmp_path, honest=False), folds=3)
    assert other.useful is not True
    assert "Use the error bars" not in other.recommendation()


@pytest.mark.slow
def test_the_number_of_processes_changes_no_prediction(tmp_path, monkeypatch):
    few = {name: own for name, own in methods().items() if name.startswith(("linear", "boosting"))}
    monkeypatch.setattr(comparison, "methods", lambda: few)
    rows = table(tmp_path, 100)
    data = RowSubset(rows.features, rows.y, rows.variance, None)
    parts = np.array_split(np.arange(100), 3)
    one, two = (
        {o[:2]: o.predicted for o in comparison._outcomes(data, parts, 3, jobs, lambda: None)}
        for jobs in (1, 2)
    )
    assert len(one) == 9
    assert set(one) == set(two)
    for task, predicted in one.items():
        np.testing.assert_array_equal(predicted, two[task])


def fake(error, number=0):
    """Return a method whose predictions have a given root mean squared error."""

    def fit_predict(train: RowSubset, new, seed):
        truth = new["a"].to_numpy() + np.sin(2 * new["b"].to_numpy())
        rng = np.random.default_rng([len(train.y), seed, number])
        return truth + error * rng.normal(size=len(new)), f"off by {error}"

    return fit_predict


@pytest.mark.parametrize(
    ("errors", "useful", "says"),
    [
        ({BIV: 0.1, L2: 0.9, SHUFFLED: 0.9}, True, "Use the error bars, with trees or BIV. By paired differences, BIV's error is"),
        ({BIV: 0.9, L2: 0.1, SHUFFLED: 0.9}, False, "Do not use the error bars with BIV, which they make worse: use trees. By paired differences, BIV's error is"),
        ({BIV: 0.3, L2: 0.3, SHUFFLED: 0.3}, None, "These 240 rows do not show whether BIV is better than L2: use trees."),
        ({BIV: 0.1, L2: 0.9, SHUFFLED: 0.1}, None, "It is not shown that the error bars tell which labels are good: use trees or BIV."),
    ],
)  # fmt: skip
def test_the_recommendation_follows_from_the_errors(errors, useful, says, tmp_path, monkeypatch):
    known = {name: fake(error, k) for k, (name, error) in enumerate(errors.items())}
    known["trees"] = fake(0.1, 9)
    monkeypatch.setattr(comparison, "methods", lambda: known)
    result = compare(table(tmp_path), folds=4)
    assert result.useful is useful
    assert says in result.recommendation()
    by_name = {m.name: m for m in result.methods}
    for name, error in errors.items():
        assert by_name[name].mse.value == pytest.approx(error**2, abs=0.25 * error)
        assert by_name[name].chosen == f"off by {error}"
    assert result.as_good(by_name["trees"])
    if errors[BIV] == 0.9:
        assert not result.as_good(by_name[BIV])
        assert report.text(result.record()).count(" *") >= 2


def test_effects_are_fractions_and_the_control_is_never_the_best(tmp_path, monkeypatch):
    errors = {BIV: 0.45, L2: 0.9, SHUFFLED: 0.05, "trees": 0.2}
    known = {name: fake(error) for name, error in errors.items()}
    monkeypatch.setattr(comparison, "methods", lambda: known)
    result = compare(table(tmp_path, 600), folds=4)
    assert result.gain.value == pytest.approx(0.75, abs=0.08)
    assert result.control.value < -5
    assert result.methods[0].name == SHUFFLED
    assert result.methods[0].to_best.value < 0
    assert result.methods[1].to_best == (0.0, 0.0)
    assert (
        "Judged by weighted paired differences, trees is best; it uses the error bars."
        in result.recommendation()
    )


def test_weighted_scores_are_less_noisy(tmp_path, monkeypatch):
    known = {name: fake(0.5) for name in (BIV, L2, SHUFFLED)}
    monkeypatch.setattr(comparison, "methods", lambda: known)
    weighted, plain = (compare(table(tmp_path), weighted=w) for w in (True, False))
    assert weighted.methods[0].mse.stderr < plain.methods[0].mse.stderr / 3


def test_if_error_bars_are_correlated_with_the_label_both_scores_must_agree(tmp_path, monkeypatch):
    """BIV is good at small labels, which have small error bars; L2 is good at large ones."""

    def half(small, large):
        def fit_predict(train, new, seed):
            truth = new["a"].to_numpy() + np.sin(2 * new["b"].to_numpy())
            rng = np.random.default_rng([len(train.y), seed])
            return truth + np.where(truth < 0, small, large) * rng.normal(size=len(new)), ""

        return fit_predict

    good_below = {BIV: half(0.05, 1.5), L2: half(0.9, 0.1), SHUFFLED: half(1.0, 1.5)}
    monkeypatch.setattr(comparison, "methods", lambda: good_below)
    rows = table(tmp_path, 400)
    assert compare(rows).alike is None
    truth = rows.features["a"].to_numpy() + np.sin(2 * rows.features["b"].to_numpy())
    variance = np.where(truth < 0, 0.01, 4.0)
    noise = np.random.default_rng(5).normal(size=400)
    related = replace(rows, y=truth + np.sqrt(variance) * noise, variance=variance)
    result = compare(related)
    assert result.correlation > 0.4
    assert result.gain.low > 0 > result.alike.high
    assert result.disputed
    assert result.useful is None
    assert result.recommendation().startswith(
        "These scores do not decide whether to use the error bars. "
        f"Judged by the weighted paired difference, using the error bars {result.gain.in_words} of L2's error. "
        f"Judged by the unweighted score, using the error bars {result.alike.in_words} of the "
        "label variance. "
    )
    assert result.gain.in_words.startswith("lowers the error by ")
    assert result.alike.in_words.startswith("raises the error by ")
    plain = compare(related, weighted=False)
    assert plain.alike is None
    assert plain.useful is False
    assert "Errors and differences are unweighted: all labels count equally." in report.text(
        plain.record()
    ).replace("\n", " ")
    better = good_below | {BIV: half(0.05, 0.05)}
    monkeypatch.setattr(comparison, "methods", lambda: better)
    agreed = compare(related)
    assert agreed.alike.low > 0
    assert agreed.useful is True
    assert "so the weighted score mostly describes low labels." in agreed.recommendation()


def test_rows_are_limited_and_folds_cover_them(tmp_path, monkeypatch):
    seen = []

    def watched(train, new, seed):
        seen.append((len(train.y), len(new), seed))
        return fake(0.3)(train, new, seed)

    monkeypatch.setattr(comparison, "methods", lambda: dict.fromkeys((BIV, L2, SHUFFLED), watched))
    result = compare(table(tmp_path), rows=100, folds=4, seed=5)
    assert (result.rows, result.rows_in_all) == (100, 240)
    assert sorted(seen) == sorted([(75, 25, 5 + fold) for fold in range(4)] * 3)
    assert "100 of 240 rows" in report.text(result.record()).replace("\n", " ")


def test_a_method_that_fails_is_named(tmp_path, monkeypatch):
    def fails(*_):
        raise ValueError("not today")

    known = {name: fake(0.3) for name in (BIV, L2, SHUFFLED)}
    monkeypatch.setattr(comparison, "methods", lambda: known | {"other": fails})
    result = compare(table(tmp_path))
    assert result.failed == {"other": "not today"}
    assert "other gave no result: not today." in report.text(result.record())
    monkeypatch.setattr(comparison, "methods", lambda: known | {L2: fails})
    with pytest.raises(ValueError, match="L2 gave no result: not today"):
        compare(table(tmp_path))


@pytest.mark.slow
def test_iv_refuses_labels_without_noise(tmp_path):
    rows = table(tmp_path, 60)
    data = RowSubset(rows.features, rows.y, np.where(rows.variance < 1, 0.0, 9.0), None)
    with pytest.raises(ValueError, match="σ² = 0|variance|epsilon"):
        methods()["IV"](data, rows.features, 0)


def test_the_shuffled_control_has_the_same_weights_on_other_rows(tmp_path, monkeypatch):
    given = {}

    class Model:
        epsilon_ = 0.7

    def spy(train, new, _, **settings):
        given[len(given)] = (train.variance, settings)
        return np.zeros(len(new)), "", Model()

    monkeypatch.setattr("biv.workflows.methods._network", spy)
    rows = table(tmp_path, 60)
    data = RowSubset(rows.features, rows.y, rows.variance + np.arange(60), None)
    methods()[SHUFFLED](data, rows.features, 1)
    (plain, one), (shuffled, two) = given.values()
    assert one == {"loss": "biv"}
    assert two["loss"] == "biv"
    assert two["epsilon"].value == 0.7
    assert np.array_equal(plain, data.variance)
    assert sorted(shuffled) == sorted(plain)
    assert np.mean(shuffled == plain) < 0.2


def test_the_cutoff_is_chosen_by_out_of_fold_predictions(tmp_path, monkeypatch):
    tried = []
    rows = table(tmp_path, 60)

    class Model:
        def __init__(self, off):
            self.out_of_fold_ = rows.y + off

    def spy(train, new, seed, *, loss, threshold):  # noqa: ARG001
        assert loss == "cutoff"
        tried.append(threshold)
        return np.full(len(new), threshold), "", Model(1.0 if len(tried) == 2 else 2.0)

    monkeypatch.setattr("biv.workflows.methods._network", spy)
    variance = np.arange(1.0, 61.0)
    predicted, chosen = methods()["Cutoff"](
        RowSubset(rows.features, rows.y, variance, None), rows.features, 0
    )
    assert tried == pytest.approx([np.quantile(variance, q) for q in (0.25, 0.5, 0.75)])
    assert predicted[0] == tried[1]
    assert chosen == f"C {tried[1]:.3g}"


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [True, False])
def test_intervals_of_equally_good_methods_contain_zero(weighted, tmp_path, monkeypatch):
    """Each fold has a common random error, as a model of its own has."""

    def method(number):
        def fit_predict(train, new, seed):
            rng = np.random.default_rng([number, seed, int(1e6 * train.y.sum() % 1e6)])
            truth = new["a"].to_numpy() + np.sin(2 * new["b"].to_numpy())
            return truth + rng.normal(0, 0.5), ""  # all rows of a fold together

        return fit_predict

    known = {name: method(k) for k, name in enumerate((BIV, L2, SHUFFLED))}
    monkeypatch.setattr(comparison, "methods", lambda: known)
    inside = []
    for seed in range(40):
        result = compare(table(tmp_path, 200, seed=seed), folds=5, seed=seed, weighted=weighted)
        inside.append(result.gain.low <= 0 <= result.gain.high)
    assert np.mean(inside) > 0.75  # of independent rows, it would be less than half


def test_rows_of_weight_zero_are_not_scored(tmp_path, monkeypatch):
    known = {name: fake(0.3, k) for k, name in enumerate((BIV, L2, SHUFFLED))}
    monkeypatch.setattr(comparison, "methods", lambda: known)
    rows = table(tmp_path)
    weight = np.where(np.arange(240) < 100, 0.0, 1.0)
    assert compare(replace(rows, weight=weight)).rows == 140
    counted = compare(replace(rows, weight=1.0 + np.arange(240)))
    assert counted.methods[0].mse != compare(rows).methods[0].mse
    infinite = np.where(np.arange(240) < 50, np.inf, rows.variance)
    assert compare(replace(rows, variance=infinite)).rows == 190


def test_rows_of_unknown_error_bar_are_used_as_in_training(tmp_path, monkeypatch):
    seen = []

    def remembering(train, new, seed):
        seen.append(train.variance)
        return fake(0.3)(train, new, seed)

    known = dict.fromkeys((BIV, L2, SHUFFLED), remembering)
    monkeypatch.setattr(comparison, "methods", lambda: known)
    rows = table(tmp_path)
    unknown = np.where(np.arange(240) < 50, np.nan, rows.variance)
    missing = replace(rows, variance=unknown)
    with pytest.raises(
        ValueError, match="must have an error bar; .* unknown_variance='median' replaces"
    ):
        compare(missing)
    with pytest.raises(ValueError, match="unknown must be one of raise, median, estimate; got"):
        compare(missing, unknown="Median")
    result = compare(missing, unknown="median")
    assert (result.rows, result.rows_in_all, result.unknown) == (240, 240, 50)
    assert result.unknown_variance == np.nanmedian(unknown)
    assert all(np.isfinite(variance).all() for variance in seen)
    assert sum((v == result.unknown_variance).sum() for v in seen) >= 50 * 4 * 3
    assert result.record().to_json()["unknown_variance"] == result.unknown_variance
    text = report.text(result.record()).replace("\n", " ")
    assert "50 of 240 rows have no error bar; their σ² was set to" in text
    assert compare(rows).unknown_variance is None


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_the_variance_of_unknown_error_bars_is_estimated(tmp_path, monkeypatch):
    known = {name: fake(0.3, k) for k, name in enumerate((BIV, L2, SHUFFLED))}
    monkeypatch.setattr(comparison, "methods", lambda: known)
    rows = table(tmp_path, 400)
    noisy = rows.variance > 1
    unknown = np.where(noisy & (np.arange(400) % 2 == 0), np.nan, rows.variance)
    result = compare(replace(rows, variance=unknown), unknown="estimate")
    assert result.unknown == np.isnan(unknown).sum()
    assert result.unknown_variance == pytest.approx(9.0, rel=0.5)  # and their median is 0.01


def test_linear_least_squares_uses_weights_with_its_own_tau2():
    """If the truth is linear, weighted least squares finds it better than plain least squares."""
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(400, 2)), columns=["a", "b"])
    std = np.where(rng.random(400) < 0.3, 0.1, 5.0)
    truth = 3 * x["a"].to_numpy() - x["b"].to_numpy()
    y = truth + std * rng.normal(size=400)
    predicted, chosen = methods()["linear, weighted"](RowSubset(x, y, std**2, None), x, 0)
    plain = np.linalg.lstsq(np.c_[x, np.ones(400)], y)[0]
    error, plain_error = (
        np.mean((p - truth) ** 2) for p in (predicted, np.c_[x, np.ones(400)] @ plain)
    )
    assert error < plain_error / 5
    assert chosen.startswith("τ² ")


@pytest.mark.parametrize("name", ["boosting (scikit-learn)", "LightGBM"])
def test_boosting_with_weights_and_without(name, tmp_path):
    if name not in methods():
        pytest.skip("LightGBM is not installed")
    rows = table(tmp_path)
    data = RowSubset(rows.features, rows.y, rows.variance, None)
    truth = rows.features["a"] + np.sin(2 * rows.features["b"])
    plain, weighted = (
        float(np.mean((methods()[own](data, rows.features, 0)[0] - truth) ** 2))
        for own in (name, f"{name}, weighted")
    )
    assert weighted < plain / 2


def test_the_text_of_an_effect_and_of_close_methods():
    assert str(Effect(0.123, 0.05, 0.2)) == "12.3% (5.0% to 20.0%) lower"
    assert str(Effect(-0.5, -0.7, -0.2)) == "50.0% (20.0% to 70.0%) higher"
    assert Effect(0.123, 0.05, 0.2).in_words == "lowers the error by 12.3% (5.0% to 20.0%)"
    assert Effect(-0.5, -0.7, -0.2).in_words == "raises the error by 50.0% (20.0% to 70.0%)"
    score = Score(1.0, 0.1)
    alike = MethodResult("a", score, Score(0.1, 0.06), 1.0, "")
    best = MethodResult("LightGBM", score, Score(0.0, 0.0), 1.0, "")
    biv = MethodResult(BIV, score, Score(0.1, 0.06), 1.0, "")
    none = Effect(0.0, -1.0, 1.0)
    result = MethodComparison(900, 900, 0, 2, 1.0, [best, biv, alike], {}, none, none, True, 0.0)
    assert result.as_good(alike)
    assert not result.as_good(MethodResult("a", score, Score(0.1, 0.05), 1.0, ""))
    assert result.recommendation().endswith(
        "Judged by weighted paired differences, LightGBM is best; it ignores the error bars. Close "
        "to the best, and not shown to be worse: BIV; a."
    )


def test_an_error_far_above_the_best_is_not_as_good():
    """This holds however wide the interval of the difference is."""
    best = MethodResult(BIV, Score(0.082, 0.03), Score(0.0, 0.0), 1.0, "")
    far = MethodResult("linear", Score(0.726, 0.4), Score(0.644, 0.39), 1.0, "")
    none = Effect(0.0, -1.0, 1.0)
    result = MethodComparison(900, 900, 0, 2, 1.0, [best, far], {}, none, none, True, 0.0)
    assert not far.shown_worse
    assert not result.as_good(far)
    assert "not shown to be worse" not in result.recommendation()
    assert (
        "too uncertain to rule out: linear (0.726 of the label variance)."
        in result.recommendation()
    )
    assert [m["as_good_as_best"] for m in result.record().to_json()["methods"]] == [True, False]
    assert " *" not in report.text(result.record()).replace("* marks", "")


def test_close_methods_are_in_the_order_of_their_differences(tmp_path, monkeypatch):
    """Errors weight labels by another power of 1/(σ²+ε), so their order may differ."""
    names = (BIV, L2, SHUFFLED, "a", "b", "c")
    known = {name: fake(0.3, k) for k, name in enumerate(names)}
    monkeypatch.setattr(comparison, "methods", lambda: known)
    reordered = 0
    for seed in range(6):
        result = compare(table(tmp_path, 200, seed=seed), folds=2, seed=seed)
        differences = [m.to_best.value for m in result.methods]
        assert differences == sorted(differences)
        assert all(m.to_best.value >= 0 for m in result.methods if m.name != SHUFFLED)
        errors = [m.mse.value for m in result.methods]
        reordered += errors != sorted(errors)
    assert reordered  # otherwise this test would not see the difference
    assert "in the order of their differences" in " ".join(report.text(result.record()).split())


def test_misread_error_bars_have_no_recommendation(tmp_path, monkeypatch):
    known = {
        name: fake(error, k)
        for k, (name, error) in enumerate([(BIV, 0.1), (L2, 0.9), (SHUFFLED, 0.9)])
    }
    monkeypatch.setattr(comparison, "methods", lambda: known)
    rng = np.random.default_rng(0)
    x, std = rng.normal(size=(600, 2)), np.exp(rng.normal(0, 1, size=600))
    y = x[:, 0] + np.sin(2 * x[:, 1]) + std * rng.normal(size=600)
    path = tmp_path / "data.csv"
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y, "s": std**2}).to_csv(path, index=False)
    result = compare(LabelledTable.read(path, Target("y", std="s")), folds=2)
    assert result.useful is None
    assert result.recommendation().startswith(
        "Nothing follows from these errors: --target-std seems"
    )
    assert result.record().to_json()["finding"]["kind"] == "misread"
    right = compare(LabelledTable.read(path, Target("y", variance="s")), folds=2)
    assert right.useful is True
    assert right.finding.kind == "consistent"
    assert "- The residuals of held-out rows agree with the error bars" in " ".join(
        report.text(right.record()).split()
    )


def test_few_rows_give_no_recommendation():
    best = MethodResult(BIV, Score(0.1, 0.01), Score(0.0, 0.0), 1.0, "")
    other = MethodResult(L2, Score(0.4, 0.01), Score(0.3, 0.01), 1.0, "")
    lower = Effect(0.7, 0.6, 0.8)
    few, enough = (
        MethodComparison(rows, rows, 0, 2, 1.0, [best, other], {}, lower, lower, True, 0.0)
        for rows in (99, 100)
    )
    assert (few.useful, enough.useful) == (None, True)
    assert few.recommendation().startswith("99 rows are too few")
    assert "se the error bars" not in few.recommendation()


def test_tables_that_cannot_be_compared(tmp_path):
    with pytest.raises(
        ValueError, match="at least 30 rows with a label whose error bar is not infinite; got 20"
    ):
        compare(table(tmp_path, 20))
    with pytest.raises(ValueError, match="5 folds need at least 30 rows .*; got 7"):
        compare(table(tmp_path), rows=7)
    with pytest.raises(ValueError, match="20 folds need at least 40 rows .*; got 31"):
        compare(table(tmp_path, 31), folds=20)
    with pytest.raises(ValueError, match="folds must be an integer >= 2"):
        compare(table(tmp_path), folds=1)
    path = tmp_path / "data.csv"
    with pytest.raises(ValueError, match="no error bars to compare"):
        compare(LabelledTable.read(path, Target("y")))
