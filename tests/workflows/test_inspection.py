"""What is said of error bars, on tables in which something is known to be odd."""

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
    """Honest error bars that go with nothing."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2))
    std = rng.uniform(0.5, 1.5, size=rows)
    y = 10 * x[:, 0] + std * rng.normal(size=rows)
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y, "s": std})


def seen(frame, tmp_path, **options):
    path = tmp_path / "data.csv"
    frame.to_csv(path, index=False)
    return inspect(LabelledTable.read(path, Target("y", std="s")), **options)


def kinds(found):
    return {remark.kind: remark for remark in found.remarks}


def test_of_honest_error_bars_there_is_nothing_to_say(tmp_path):
    found = seen(columns(), tmp_path)
    assert not set(kinds(found)) - {"far off"}
    remarks = report.text(found).partition("Rows and columns to look at:")[2]
    assert remarks.count("\n- ") == len(found.remarks)
    (worth,) = conclusions.expected_worth(found.worth, found.fit.tau2, found.finding.record())
    assert worth in " ".join(report.text(found).split())


def test_the_numbers(tmp_path):
    frame = columns()
    found = seen(frame, tmp_path)
    variance = frame["s"].to_numpy() ** 2
    assert found.label_variance == pytest.approx(
        biv.metrics.label_variance(frame["y"].to_numpy(), variance)
    )
    assert found.quantiles[0.5] == pytest.approx(np.median(variance))
    assert (found.quantiles[0.0], found.quantiles[1.0]) == pytest.approx(
        (variance.min(), variance.max())
    )
    weights = 1 / variance
    assert found.effective_sample_size == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    noise = variance + found.fit.tau2
    assert found.gain == pytest.approx(1 - 1 / (np.mean(1 / noise) * noise.mean()))
    told = json.loads(json.dumps(found.record().to_json(), allow_nan=False))
    assert told["rows"] == 300
    assert told["suggested_epsilon"] == pytest.approx(found.fit.epsilon / found.label_variance)


def test_the_worth_of_weights_is_that_of_a_weighted_mean():
    """By simulation: the variance of plain means of labels, over that of weighted ones."""
    rng = np.random.default_rng(0)
    noise = rng.gamma(0.7, 2.0, size=200) + 0.1
    draws = rng.normal(size=(20_000, 200)) * np.sqrt(noise)
    plain, weighted = draws.mean(axis=1), draws @ (1 / noise) / (1 / noise).sum()
    assert relative_efficiency(noise) == pytest.approx(plain.var() / weighted.var(), rel=0.04)
    assert relative_efficiency(np.ones(3)) == 1.0
    assert relative_efficiency(np.array([0.0, 1.0])) == np.inf


def test_one_huge_error_bar_is_found_and_not_fallen_over(tmp_path):
    frame = columns()
    frame.loc[3, "s"] = 1e10
    found = seen(frame, tmp_path)
    assert kinds(found)["huge"].rows.endswith("row 4")
    assert "100% lower variance" in " ".join(report.text(found).split())


def test_what_is_odd_is_found_with_its_rows(tmp_path):
    frame = columns()
    frame.loc[4, "s"] = 0.0
    frame.loc[[7, 9], "s"] = np.inf
    frame.loc[11, "s"] = 1e4
    frame.loc[13, "s"] = np.nan
    frame.loc[100:139, "s"] = 0.9
    frame.loc[20, "y"] += 500
    found = kinds(seen(frame, tmp_path))
    path = tmp_path / "data.csv"
    assert found["zero"].rows == f"{path}, row 5"
    assert found["ignored"].rows == f"{path}, rows 8, 10"
    assert found["huge"].rows == f"{path}, row 12"
    assert found["unknown"].rows == f"{path}, row 14"
    assert "40 labels share a few values of σ²" in found["duplicated"].text
    assert "0.81 (σ 0.9; 13%)" in found["duplicated"].text
    assert found["duplicated"].rows == f"{path}, rows 101, 102, 103, 104, 105, ..."
    assert found["far off"].rows.startswith(f"{path}, row")
    assert " 21" in found["far off"].rows


def test_what_is_not_odd(tmp_path):
    frame = columns()  # whose label variance is about 100
    frame["s"] = np.where(frame["b"] > 0, 1.0, 2.0)  # two levels are no default value
    frame.loc[11, "s"] = 50.0
    assert not {"huge", "duplicated"} & set(kinds(seen(frame, tmp_path)))


def test_rows_far_off_are_named_by_their_place_in_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(inspection, "FITTED_ROWS", 100)
    frame = columns()
    frame.loc[250:254, "y"] += 500
    rows = kinds(seen(frame, tmp_path))["far off"].rows
    numbers = [int(n) for n in rows.split("row")[-1].strip("s .").split(",") if n.strip().isdigit()]
    assert numbers
    assert all(251 <= n <= 255 for n in numbers)


@pytest.mark.slow
@pytest.mark.parametrize("sign", [1, -1])
def test_error_bars_that_go_with_labels_or_features(sign, tmp_path):
    frame = columns()
    frame["s"] = np.exp(sign * frame["y"] / 20)
    found = kinds(seen(frame, tmp_path))
    assert ("grow" if sign > 0 else "shrink") in found["related to the label"].text
    assert "'a' (" in found["related to features"].text
    frame = columns()
    frame["c"] = np.where(frame["s"] > 1, "rough", "fine")
    assert "'c=rough' (+0.87)" in kinds(seen(frame, tmp_path))["related to features"].text


def test_ranks_are_spearman_s():
    from scipy.stats import spearmanr

    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, 200).astype(float), rng.normal(size=200)
    b += a / 5
    assert label_correlation.label_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert label_correlation.label_correlation(a, None) == 0


def test_equal_error_bars_have_nothing_to_weigh(tmp_path):
    frame = columns().assign(s=2.0)
    found = seen(frame, tmp_path)
    assert "equal" in kinds(found)
    assert found.gain == pytest.approx(0)
    text = report.text(found)
    assert "times as many labels" not in text
    assert "Verdict: All error bars are equal, so weighting by them changes nothing.\n" in text


@pytest.mark.slow
def test_the_other_of_sigma_and_its_square_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(inspection, "QUICK_EPOCHS", 25)
    frame = columns(1500)
    frame["s"] = frame["s"] * 3
    assert seen(frame, tmp_path).finding.kind == "factor"
    frame = columns(1500)
    frame["y"] = frame["a"] + np.random.default_rng(1).normal(size=1500)  # whatever s says
    found = seen(frame, tmp_path)
    assert found.finding.kind == "nothing"
    told = report.text(found)
    assert "R²" not in told
    assert "times as many labels" not in told
    assert told.startswith("Verdict: The error bars seem unrelated to the noise of the labels.")
    assert json.loads(json.dumps(found.record().to_json()))["finding"]["kind"] == "nothing"


@pytest.mark.parametrize("missing", [-99.0, 999.0])
def test_a_number_that_stands_for_a_missing_label_is_found(tmp_path, missing):
    frame = columns()
    assert "stray" not in kinds(seen(frame, tmp_path))
    frame.loc[[7, 20, 31], "y"] = missing
    found = kinds(seen(frame, tmp_path))["stray"]
    assert found.text.startswith(f"3 labels are {missing:g}, while all others lie between ")
    assert found.rows.endswith("rows 8, 21, 32")


def test_scores_of_error_bars_larger_than_the_noise_are_not_shown(tmp_path):
    frame = columns(600).assign(s=3.0)
    found = seen(frame, tmp_path)
    truth = replace(found.fit, predicted=10 * frame["a"].to_numpy())
    found = inspection.inspect_fit(found.table, truth)
    assert found.finding.kind == "too large"
    assert "R²" not in report.text(found)  # above 1, and so of no use to anybody
    assert "times as many labels" not in report.text(found)


@pytest.mark.parametrize("rows", [5, 40])
def test_of_few_rows_there_is_no_verdict(tmp_path, rows):
    found = seen(columns(rows), tmp_path)
    assert found.finding.kind == "few"
    assert not any(kind.startswith("related") for kind in kinds(found))
    text = " ".join(report.text(found).split())
    assert text.startswith("Verdict: There are too few labels to tell whether the error bars are")
    assert f"needs at least 100 labels with an error bar; got {rows}." in text


def test_error_bars_of_few_repeats_are_asked_about(tmp_path):
    """Where σ² scatters, R² is too low by the labels of small ones, and right with all alike."""
    rng = np.random.default_rng(0)
    frame = columns(3000)
    truth = 10 * frame["a"].to_numpy()
    found = seen(frame, tmp_path)
    assert "few repeats" not in report.text(found)
    chance = rng.chisquare(2, size=3000) / 2  # of three repeats
    few = replace(found.table, variance=found.table.variance * chance)
    predicted = truth + rng.normal(size=3000)
    r2, alike = (
        biv.metrics.noise_corrected_r2(predicted, few.y, few.variance, weighted=weighted)
        for weighted in (True, False)
    )
    real = 1 - np.mean((predicted - truth) ** 2) / np.var(truth)
    assert alike.value == pytest.approx(real, abs=3 * alike.stderr)
    assert conclusions.scores_disagree(0.66, 0.02, 0.9, 0.03)
    (said,) = conclusions.which_labels_count((0.66, 0.02), (0.9, 0.03), 0.0, None)
    assert said.startswith("R² depends on which labels count: 0.660 if those with small error bars")
    assert "Trust the second if each σ comes from a few repeats" in said
    assert not conclusions.scores_disagree(0.88, 0.02, 0.9, 0.03)  # by chance
    assert not conclusions.scores_disagree(0.9, 0.02, 0.66, 0.03)
    assert not conclusions.scores_disagree(*[float("nan")] * 4)
    assert not conclusions.scores_disagree(0.9, 0.02, 1.165, 0.03)  # which is right of no model
    assert conclusions.which_labels_count((0.88, 0.02), (0.9, 0.03), 0.0, None) == []
    assert r2.value < alike.value


def test_of_a_large_table_some_rows_are_fitted(tmp_path, monkeypatch):
    monkeypatch.setattr(inspection, "FITTED_ROWS", 100)
    found = seen(columns(), tmp_path)
    assert found.fit.rows == len(found.fit.predicted) == 100
    assert len(np.unique(found.fit.places)) == 100


@pytest.mark.slow
def test_the_picture(tmp_path):
    frame = columns().rename(columns={"y": "$100 <b>"})
    frame.loc[3, "s"] = 0.0
    path = tmp_path / "data.csv"
    frame.to_csv(path, index=False)
    found = inspect(LabelledTable.read(path, Target("$100 <b>", std="s")))
    for name in ("bars.png", "bars.svg", "bars.pdf"):
        save_figure(report.draw(found), tmp_path / name)
        assert (tmp_path / name).stat().st_size > 5000
    text = (tmp_path / "bars.svg").read_text(encoding="utf-8")
    assert "Error bars of $100 &lt;b&gt;: 300 labels" in text
    panels = [
        "How large is σ²?",
        "Are error bars correlated with the label?",
        "Do residuals agree with them?",
    ]
    assert all(panel in text for panel in panels)


def test_without_error_bars_there_is_nothing_to_look_at(tmp_path):
    path = tmp_path / "data.csv"
    columns().to_csv(path, index=False)
    with pytest.raises(ValueError, match="the table has no error bars to inspect"):
        inspect(LabelledTable.read(path, Target("y")))
