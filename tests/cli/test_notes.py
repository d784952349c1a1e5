"""What commands say of a table beside their results: slips that people make, and what was done."""

import re

import numpy as np
import pandas as pd
import pytest

from biv.cli import main
from biv.metrics import Score
from biv.workflows.comparison_record import Effect
from biv.workflows.method_comparison import MethodComparison, MethodResult


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder, **changes):
    """Honest error bars, all below 1, so that σ is larger than σ²."""
    rng = np.random.default_rng(0)
    rows = 600
    x = rng.normal(size=rows)
    err = rng.uniform(0.1, 0.4, size=rows)
    columns = {"x": x, "y": x + err * rng.normal(size=rows), "y_err": err} | changes
    pd.DataFrame(columns).to_csv(folder / "t.csv", index=False)
    return columns


def said(capsys, *arguments):
    assert main([str(word) for word in arguments]) == 0
    return capsys.readouterr()


def inspected(capsys, *options):
    return said(capsys, "inspect", "t.csv", "--target", "y", "--no-picture", *options)


@pytest.mark.slow
def test_sigma_for_its_square_is_told(folder, capsys):
    write(folder)
    told = inspected(capsys, "--target-var", "y_err")
    assert "by its name, column 'y_err' may be for --target-std" in told.err
    assert "σ² seems too large" in told.out
    honest = inspected(capsys, "--target-std", "y_err")
    assert "may be for" not in honest.err
    assert "seems too large" not in honest.out
    write(folder, y_var=np.full(600, 0.1))
    assert "may be for --target-var" in inspected(capsys, "--target-std", "y_var").err


def test_a_factor_that_looks_right_is_not_believed_where_an_error_is_below_0(folder, capsys):
    """It is a slope, of σ² on σ: 2σ, about 1 near σ = ½ and more above."""
    rng = np.random.default_rng(0)
    x, err = rng.normal(size=600), rng.uniform(0.55, 0.85, size=600)
    write(folder, x=x, y=x + err * rng.normal(size=600), y_err=err)
    told = " ".join(inspected(capsys, "--target-var", "y_err").out.split())
    assert "the error bars are larger than the labels' noise" in told
    assert "σ² seems too small" not in told


def compared(mse):
    """A comparison in which BIV has this error, and L2 more."""
    methods = [
        MethodResult("BIV", Score(mse, 0.001), Score(0.0, 0.0), 1.0, ""),
        MethodResult("L2", Score(mse + 0.01, 0.001), Score(0.01, 0.001), 1.0, ""),
    ]
    lower = Effect(0.5, 0.4, 0.6)
    return MethodComparison(100, 100, 0, 5, 1.0, methods, {}, lower, lower, True, 0.0)


def test_nothing_follows_from_errors_below_0():
    possible, impossible = compared(0.02), compared(-0.02)
    assert possible.useful
    assert "Use the error bars" in possible.recommendation()
    assert impossible.useful is None
    assert "Nothing follows from these errors" in impossible.recommendation()
    assert "Use the error bars" not in impossible.recommendation()
    assert compared(-0.002).useful  # by chance


@pytest.mark.slow
def test_missing_cells_are_told(folder, capsys):
    x = np.random.default_rng(1).normal(size=600)
    x[:25] = np.nan
    write(folder, temp=x)
    assert "missing cells: 25 in 'temp'" in inspected(capsys, "--target-std", "y_err").err
    write(folder)
    assert "missing cells" not in inspected(capsys, "--target-std", "y_err").err


def test_error_bars_of_0_are_told(folder, capsys):
    err = np.full(600, 0.2)
    err[:30] = 0.0
    write(folder, y_err=err)
    told = said(
        capsys, "train", "t.csv", "--target", "y", "--target-std", "y_err", "--max-epochs", 1,
        "--no-report",
    )  # fmt: skip
    assert "30 labels have an error bar of 0" in told.err


@pytest.mark.slow
def test_a_second_error_bar_that_is_learned_from_is_told(folder, capsys):
    columns = write(folder)
    write(folder, y_var=columns["y_err"] ** 2)
    assert "'y_var' is learned from" in inspected(capsys, "--target-std", "y_err").err


@pytest.mark.slow
@pytest.mark.parametrize(("sign", "word"), [(1, "small"), (-1, "large")])
def test_which_labels_get_small_error_bars_by_chance(folder, capsys, sign, word):
    y = write(folder)["y"]
    write(folder, y_err=np.exp(sign * y / 2))
    told = " ".join(inspected(capsys, "--target-std", "y_err").out.split())
    assert f"labels that are {word} by chance get small error bars" in told


def test_categories_that_training_has_not_seen_are_told(folder, capsys):
    town = np.array(["Bern", "Basel"])[np.arange(600) % 2]
    write(folder, town=town)
    said(
        capsys, "train", "t.csv", "--target", "y", "--target-std", "y_err", "--max-epochs", 1,
        "--no-report",
    )  # fmt: skip
    assert "not seen" not in said(capsys, "predict", "biv-model", "t.csv").err
    town = town.copy()
    town[:3] = "Zug"
    write(folder, town=town)
    told = said(capsys, "predict", "biv-model", "t.csv", "--force").err
    assert "categories that training has not seen" in told
    assert "3 in 'town'" in told


def slipped(folder):
    """σ about 1, by whose size no slip shows."""
    rng = np.random.default_rng(0)
    a, sigma = rng.normal(size=(1500, 2)), np.exp(rng.normal(0, 0.8, 1500))
    y = 3 * a[:, 0] + sigma * rng.normal(size=1500)
    table = pd.DataFrame({"a": a[:, 0], "b": a[:, 1], "y": y, "e": sigma, "v": sigma**2})
    table.to_csv(folder / "table.csv", index=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "column", "other", "held"),
    [
        ("--target-var", "e", "v", "standard deviations, σ, .* pass it as --target-std"),
        ("--target-std", "v", "e", "variances, σ², .* pass it as --target-var"),
        ("--target-std", "e", "v", None),
        ("--target-var", "v", "e", None),
    ],
)
def test_a_column_read_as_something_else_is_told(folder, capsys, option, column, other, held):
    slipped(folder)
    given = ("table.csv", "--target", "y", option, column, "--ignore", other)
    inspection = " ".join(said(capsys, "inspect", *given, "--no-picture").out.split())
    trained = said(capsys, "train", *given, "--max-epochs", "12", "--out", "m", "--force")
    assert "seems to hold" not in trained.err  # once is enough
    page = (folder / "m" / "report.html").read_text(encoding="utf-8")
    for told in (inspection, " ".join(trained.out.split()), page):
        if held is None:
            assert "seems to hold" not in told
        else:
            assert re.search(f"{option} seems to hold {held}", told)
            assert "y_var" not in told
            assert told.count("seems to hold") == (2 if told is page else 1)
            assert "σ² seems" not in told


@pytest.mark.slow
def test_ends_of_an_interval_are_not_taken_for_another_error_bar(folder, capsys):
    slipped(folder)
    table = pd.read_csv(folder / "table.csv")
    half = 1.96 * np.sqrt(table.pop("e"))  # as if σ were a variance
    table.assign(low=table.y - half, high=table.y + half).to_csv(folder / "table.csv", index=False)
    given = ("table.csv", "--target", "y", "--target-interval", "low", "high", "--ignore", "v")
    assert "seems to hold" not in said(capsys, "inspect", *given, "--no-picture").out
    told = said(capsys, "train", *given, "--max-epochs", "12", "--out", "m", "--force")
    assert "seems to hold" not in told.err + told.out
