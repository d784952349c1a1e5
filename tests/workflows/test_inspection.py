"""Tests of inspections on tables with known peculiarities."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import biv
from biv.report import conclusions
from biv.report import inspection as report
from biv.report.matplotlib_figures import save_figure
from biv.tables import LabelledTable, Target
from biv.workflows import inspect, inspection, label_correlation
from biv.workflows.evidence_parts import relative_efficiency


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(inspection, "QUICK_EPOCHS", 4)


def columns(rows=300, seed=0):
    """Return a table with right error bars that are unrelated to labels and features."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2))
    std = rng.uniform(0.5, 1.5, size=rows)
    y = 10 * x[:, 0] + std * rng.normal(size=rows)
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y, "s": std})


def inspect_frame(frame, tmp_path, **options):
    path = tmp_path / "data.csv"
    frame.to_csv(path, index=False)
    return inspect(LabelledTable.read(path, Target("y", std="s")), **options)


def kinds(result):
    return {remark.kind: remark for remark in result.remarks}


def test_right_error_bars_have_no_remarks(tmp_path):
    result = inspect_frame(columns(), tmp_path)
    assert not set(kinds(result)) - {"far off"}
    remarks = report.text(result).partition("Rows and columns to look at:")[2]
    assert remarks.count("\n- ") == len(result.remarks)
    (worth,) = conclusions.expected_worth(result.worth, result.fit.tau2, result.finding.record())
    assert worth in " ".join(report.text(result).split())


def test_the_numbers_of_an_inspection(tmp_path):
    frame = columns()
    result = inspect_frame(frame, tmp_path)
    variance = frame["s"].to_numpy() ** 2
    assert result.label_variance == pytest.approx(
        biv.metrics.label_variance(frame["y"].to_numpy(), variance)
    )
    assert result.quantiles[0.5] == pytest.approx(np.median(variance))
    assert (result.quantiles[0.0], result.quantiles[1.0]) == pytest.approx(
        (variance.min(), variance.max())
    )
    weights = 1 / variance
    assert result.effective_sample_size == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    noise = variance + result.fit.tau2
    assert result.gain == pytest.approx(1 - 1 / (np.mean(1 / noise) * noise.mean()))
    text = json.loads(json.dumps(result.record().to_json(), allow_nan=False))
    assert text["rows"] == 300
    assert text["suggested_epsilon"] == pytest.approx(result.fit.epsilon / result.label_variance)


def test_relative_efficiency_is_that_of_a_weighted_mean():
    """Compare with the simulated variance of plain means over that of weighted means."""
    rng = np.random.default_rng(0)
    noise = rng.gamma(0.7, 2.0, size=200) + 0.1
    draws = rng.normal(size=(20_000, 200)) * np.sqrt(noise)
    plain, weighted = draws.mean(axis=1), draws @ (1 / noise) / (1 / noise).sum()
    assert relative_efficiency(noise) == pytest.approx(plain.var() / weighted.var(), rel=0.04)
    assert relative_efficiency(np.ones(3)) == 1.0
    assert relative_efficiency(np.array([0.0, 1.0])) == np.inf


def test_one_huge_error_bar_is_reported(tmp_path):
    frame = columns()
    frame.loc[3, "s"] = 1e10
    result = inspect_frame(frame, tmp_path)
    assert kinds(result)["huge"].rows.endswith("row 4")
    assert "helps as much as having more than 100 times as many labels." in " ".join(
        report.text(result).split()
    )


def test_remarks_name_the_odd_rows(tmp_path):
    frame = columns()
    frame.loc[4, "s"] = 0.0
    frame.loc[[7, 9], "s"] = np.inf
    frame.loc[11, "s"] = 1e4
    frame.loc[13, "s"] = np.nan
    frame.loc[100:139, "s"] = 0.9
    frame.loc[20, "y"] += 500
    result = kinds(inspect_frame(frame, tmp_path))
    path = tmp_path / "data.csv"
    assert result["zero"].rows == f"{path}, row 5"
    assert result["ignored"].rows == f"{path}, rows 8, 10"
    assert result["huge"].rows == f"{path}, row 12"
    assert result["unknown"].rows == f"{path}, row 14"
    assert "40 labels share a few values of σ²" in result["duplicated"].text
    assert "0.81 (σ 0.9; 13%)" in result["duplicated"].text
    assert result["duplicated"].rows == f"{path}, rows 101, 102, 103, 104, 105, ..."
    assert result["far off"].rows.startswith(f"{path}, row")
    assert " 21" in result["far off"].rows


def test_two_levels_of_error_bars_are_not_odd(tmp_path):
    frame = columns()  # whose label variance is about 100
    frame["s"] = np.where(frame["b"] > 0, 1.0, 2.0)  # two levels are not default values
    frame.loc[11, "s"] = 50.0
    assert not {"huge", "duplicated"} & set(kinds(inspect_frame(frame, tmp_path)))


def test_outliers_are_named_by_their_row_in_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(inspection, "FITTED_ROWS", 100)
    frame = columns()
    frame.loc[250:254, "y"] += 500
    rows = kinds(inspect_frame(frame, tmp_path))["far off"].rows
    numbers = [int(n) for n in rows.split("row")[-1].strip("s .").split(",") if n.strip().isdigit()]
    assert numbers
    assert all(251 <= n <= 255 for n in numbers)


@pytest.mark.slow
@pytest.mark.parametrize("sign", [1, -1])
def test_error_bars_correlated_with_labels_or_features(sign, tmp_path):
    frame = columns()
    frame["s"] = np.exp(sign * frame["y"] / 20)
    result = kinds(inspect_frame(frame, tmp_path))
    size = "larger" if sign > 0 else "smaller"
    assert f"Larger labels have {size} error bars" in result["related to the label"].text
    assert "'a' (" in result["related to features"].text
    frame = columns()
    frame["c"] = np.where(frame["s"] > 1, "rough", "fine")
    assert "'c=rough' (+0.87)" in kinds(inspect_frame(frame, tmp_path))["related to features"].text


def test_the_rank_correlation_is_spearman_s():
    from scipy.stats import spearmanr

    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, 200).astype(float), rng.normal(size=200)
    b += a / 5
    assert label_correlation.label_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert label_correlation.label_correlation(a, None) == 0


def test_equal_error_bars_make_weighting_useless(tmp_path):
    frame = columns().assign(s=2.0)
    result = inspect_frame(frame, tmp_path)
    assert "equal" in kinds(result)
    assert result.gain == pytest.approx(0)
    text = report.text(result)
    assert "times as many labels" not in text
    assert "Verdict: All error bars are equal, so weighting by them changes nothing.\n" in text
    table = text[text.index("error bars  ") : text.index("labels 'y'")].splitlines()
    assert [line.split()[0] for line in table] == ["error", "all"]
    assert table[1].split()[:2] == ["all", "4"]


@pytest.mark.slow
def test_wrong_error_bars_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(inspection, "QUICK_EPOCHS", 25)
    frame = columns(1500)
    frame["s"] = frame["s"] * 3
    assert inspect_frame(frame, tmp_path).finding.kind == "factor"
    frame = columns(1500)
    frame["y"] = frame["a"] + np.random.default_rng(1).normal(size=1500)  # whatever s says
    result = inspect_frame(frame, tmp_path)
    assert result.finding.kind == "nothing"
    text = report.text(result)
    assert "R²" not in text
    assert "times as many labels" not in text
    assert text.startswith("Verdict: The error bars seem unrelated to the noise of the labels.")
    assert json.loads(json.dumps(result.record().to_json()))["finding"]["kind"] == "nothing"


@pytest.mark.parametrize("missing", [-99.0, 999.0])
def test_a_number_that_stands_for_a_missing_label_is_reported(tmp_path, missing):
    frame = columns()
    assert "stray" not in kinds(inspect_frame(frame, tmp_path))
    frame.loc[[7, 20, 31], "y"] = missing
    result = kinds(inspect_frame(frame, tmp_path))["stray"]
    assert result.text.startswith(f"3 labels are {missing:g}, while all others lie between ")
    assert result.rows.endswith("rows 8, 21, 32")


def test_scores_of_error_bars_larger_than_the_noise_are_not_shown(tmp_path):
    frame = columns(600).assign(s=3.0)
    result = inspect_frame(frame, tmp_path)
    truth = replace(result.fit, predicted=10 * frame["a"].to_numpy())
    result = inspection.inspect_fit(result.table, truth)
    assert result.finding.kind == "too large"
    assert "R²" not in report.text(result)  # above 1, and so of no use to anybody
    assert "times as many labels" not in report.text(result)


@pytest.mark.parametrize("rows", [5, 40])
def test_few_rows_give_no_verdict(tmp_path, rows):
    result = inspect_frame(columns(rows), tmp_path)
    assert result.finding.kind == "few"
    assert not any(kind.startswith("related") for kind in kinds(result))
    text = " ".join(report.text(result).split())
    assert text.startswith("Verdict: There are too few labels to tell whether the error bars are")
    assert f"needs at least 100 labels with an error bar; got {rows}." in text


def test_error_bars_from_a_few_repeats_are_explained(tmp_path):
    """If σ² scatters, the weighted R² is too low, and the unweighted one is right."""
    rng = np.random.default_rng(0)
    frame = columns(3000)
    truth = 10 * frame["a"].to_numpy()
    result = inspect_frame(frame, tmp_path)
    assert "few repeats" not in report.text(result)
    chance = rng.chisquare(2, size=3000) / 2  # of three repeats
    few = replace(result.table, variance=result.table.variance * chance)
    predicted = truth + rng.normal(size=3000)
    r2, alike = (
        biv.metrics.noise_corrected_r2(predicted, few.y, few.variance, weighted=weighted)
        for weighted in (True, False)
    )
    real = 1 - np.mean((predicted - truth) ** 2) / np.var(truth)
    assert alike.value == pytest.approx(real, abs=3 * alike.stderr)
    assert conclusions.scores_disagree(0.66, 0.02, 0.9, 0.03)
    (sentence,) = conclusions.which_labels_count((0.66, 0.02), (0.9, 0.03), 0.0, None)
    assert sentence.startswith(
        "R² depends on the weights: 0.660 weighted (labels with small error bars"
    )
    assert "Trust the unweighted R² if each σ comes from a few repeats" in sentence
    assert not conclusions.scores_disagree(0.88, 0.02, 0.9, 0.03)  # by chance
    assert not conclusions.scores_disagree(0.9, 0.02, 0.66, 0.03)
    assert not conclusions.scores_disagree(*[float("nan")] * 4)
    assert not conclusions.scores_disagree(0.9, 0.02, 1.165, 0.03)  # which no model can have
    assert conclusions.which_labels_count((0.88, 0.02), (0.9, 0.03), 0.0, None) == []
    assert r2.value < alike.value


def test_a_large_table_is_fitted_on_a_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(inspection, "FITTED_ROWS", 100)
    result = inspect_frame(columns(), tmp_path)
    assert result.fit.rows == len(result.fit.predicted) == 100
    assert len(np.unique(result.fit.places)) == 100


@pytest.mark.slow
def test_the_picture(tmp_path):
    frame = columns().rename(columns={"y": "$100 <b>"})
    frame.loc[3, "s"] = 0.0
    path = tmp_path / "data.csv"
    frame.to_csv(path, index=False)
    result = inspect(LabelledTable.read(path, Target("$100 <b>", std="s")))
    for name in ("bars.png", "bars.svg", "bars.pdf"):
        save_figure(report.draw(result), tmp_path / name)
        assert (tmp_path / name).stat().st_size > 5000
    text = (tmp_path / "bars.svg").read_text(encoding="utf-8")
    assert "Error bars of $100 &lt;b&gt;: 300 labels" in text
    panels = [
        "How large is σ²?",
        "Are error bars correlated with the label?",
        "Do residuals agree with them?",
    ]
    assert all(panel in text for panel in panels)


def test_a_table_without_error_bars_is_refused(tmp_path):
    path = tmp_path / "data.csv"
    columns().to_csv(path, index=False)
    with pytest.raises(ValueError, match="the table has no error bars to inspect"):
        inspect(LabelledTable.read(path, Target("y")))
