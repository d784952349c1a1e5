"""Notes of the commands: mistakes in the table or the options, and changes to the rows."""

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
    """Write a table with correct error bars, all below 1, so that σ is larger than σ²."""
    rng = np.random.default_rng(0)
    rows = 600
    x = rng.normal(size=rows)
    err = rng.uniform(0.1, 0.4, size=rows)
    columns = {"x": x, "y": x + err * rng.normal(size=rows), "y_err": err} | changes
    pd.DataFrame(columns).to_csv(folder / "t.csv", index=False)
    return columns


def output_of(capsys, *arguments):
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr()


def inspect_output(capsys, *options):
    return output_of(capsys, "inspect", "t.csv", "--target", "y", "--no-picture", *options)


@pytest.mark.slow
def test_a_column_of_sigma_given_as_variance_is_noted(folder, capsys):
    write(folder)
    output = inspect_output(capsys, "--target-var", "y_err")
    assert "the name of column 'y_err' suggests --target-std" in output.err
    assert "σ² seems too large" in output.out
    honest = inspect_output(capsys, "--target-std", "y_err")
    assert "suggests --target" not in honest.err
    assert "seems too large" not in honest.out
    write(folder, y_var=np.full(600, 0.1))
    assert "suggests --target-var" in inspect_output(capsys, "--target-std", "y_var").err


def test_a_negative_error_overrides_a_variance_factor_that_looks_right(folder, capsys):
    """The factor is the slope of σ² on σ, which is 2σ: about 1 near σ = 0.5, and more above."""
    rng = np.random.default_rng(0)
    x, err = rng.normal(size=600), rng.uniform(0.55, 0.85, size=600)
    write(folder, x=x, y=x + err * rng.normal(size=600), y_err=err)
    output = " ".join(inspect_output(capsys, "--target-var", "y_err").out.split())
    assert "the error bars are larger than the labels' noise" in output
    assert "σ² seems too small" not in output


def comparison_with_error(mse):
    """Return a comparison in which BIV has this error and L2 a larger one."""
    methods = [
        MethodResult("BIV", Score(mse, 0.001), Score(0.0, 0.0), 1.0, ""),
        MethodResult("L2", Score(mse + 0.01, 0.001), Score(0.01, 0.001), 1.0, ""),
    ]
    lower = Effect(0.5, 0.4, 0.6)
    return MethodComparison(100, 100, 0, 5, 1.0, methods, {}, lower, lower, True, 0.0)


def test_no_recommendation_follows_from_negative_errors():
    possible, impossible = comparison_with_error(0.02), comparison_with_error(-0.02)
    assert possible.useful
    assert "Use the error bars" in possible.recommendation()
    assert impossible.useful is None
    assert "Nothing follows from these errors" in impossible.recommendation()
    assert "Use the error bars" not in impossible.recommendation()
    assert comparison_with_error(-0.002).useful  # negative within its standard error


@pytest.mark.slow
def test_missing_cells_are_noted(folder, capsys):
    x = np.random.default_rng(1).normal(size=600)
    x[:25] = np.nan
    write(folder, temp=x)
    assert "missing cells: 25 in 'temp'" in inspect_output(capsys, "--target-std", "y_err").err
    write(folder)
    assert "missing cells" not in inspect_output(capsys, "--target-std", "y_err").err


def test_error_bars_of_0_are_noted(folder, capsys):
    err = np.full(600, 0.2)
    err[:30] = 0.0
    write(folder, y_err=err)
    output = output_of(
        capsys, "train", "t.csv", "--target", "y", "--target-std", "y_err", "--max-epochs", 1,
        "--no-report",
    )  # fmt: skip
    assert "30 labels have an error bar of 0" in output.err


@pytest.mark.slow
def test_an_error_bar_among_the_features_is_noted(folder, capsys):
    columns = write(folder)
    write(folder, y_var=columns["y_err"] ** 2)
    assert (
        "'y_var' is used as a feature; if it is an error bar"
        in inspect_output(capsys, "--target-std", "y_err").err
    )


@pytest.mark.slow
@pytest.mark.parametrize(("sign", "word"), [(1, "small"), (-1, "large")])
def test_error_bars_that_depend_on_the_noise_are_noted(folder, capsys, sign, word):
    y = write(folder)["y"]
    write(folder, y_err=np.exp(sign * y / 2))
    output = " ".join(inspect_output(capsys, "--target-std", "y_err").out.split())
    assert f"labels that are {word} by chance get small error bars" in output


def test_new_categories_in_predict_are_noted(folder, capsys):
    town = np.array(["Bern", "Basel"])[np.arange(600) % 2]
    write(folder, town=town)
    output_of(
        capsys, "train", "t.csv", "--target", "y", "--target-std", "y_err", "--max-epochs", 1,
        "--no-report",
    )  # fmt: skip
    assert "do not occur" not in output_of(capsys, "predict", "biv-model", "t.csv").err
    town = town.copy()
    town[:3] = "Zug"
    write(folder, town=town)
    output = output_of(capsys, "predict", "biv-model", "t.csv", "--force").err
    assert "categories that do not occur in the training data" in output
    assert "3 in 'town'" in output


def write_table_with_both(folder):
    """Write σ and σ² of about 1, which cannot be output apart by their size."""
    rng = np.random.default_rng(0)
    a, sigma = rng.normal(size=(1500, 2)), np.exp(rng.normal(0, 0.8, 1500))
    y = 3 * a[:, 0] + sigma * rng.normal(size=1500)
    table = pd.DataFrame({"a": a[:, 0], "b": a[:, 1], "y": y, "e": sigma, "v": sigma**2})
    table.to_csv(folder / "table.csv", index=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "column", "other", "content"),
    [
        ("--target-var", "e", "v", "standard deviations, σ, .* pass it as --target-std"),
        ("--target-std", "v", "e", "variances, σ², .* pass it as --target-var"),
        ("--target-std", "e", "v", None),
        ("--target-var", "v", "e", None),
    ],
)
def test_a_misread_column_is_noted(folder, capsys, option, column, other, content):
    write_table_with_both(folder)
    arguments = ("table.csv", "--target", "y", option, column, "--ignore", other)
    inspection = " ".join(output_of(capsys, "inspect", *arguments, "--no-picture").out.split())
    trained = output_of(capsys, "train", *arguments, "--max-epochs", "12", "--out", "m", "--force")
    assert "seems to hold" not in trained.err  # only in the output, not as a note too
    page = (folder / "m" / "report.html").read_text(encoding="utf-8")
    for text in (inspection, " ".join(trained.out.split()), page):
        if content is None:
            assert "seems to hold" not in text
        else:
            assert re.search(f"{option} seems to hold {content}", text)
            assert "y_var" not in text
            assert text.count("seems to hold") == (2 if text is page else 1)
            assert "σ² seems" not in text


@pytest.mark.slow
def test_ends_of_an_interval_are_not_reported_as_a_misread_column(folder, capsys):
    write_table_with_both(folder)
    table = pd.read_csv(folder / "table.csv")
    half = 1.96 * np.sqrt(table.pop("e"))  # computed as if σ were a variance
    table.assign(low=table.y - half, high=table.y + half).to_csv(folder / "table.csv", index=False)
    arguments = ("table.csv", "--target", "y", "--target-interval", "low", "high", "--ignore", "v")
    assert "seems to hold" not in output_of(capsys, "inspect", *arguments, "--no-picture").out
    output = output_of(capsys, "train", *arguments, "--max-epochs", "12", "--out", "m", "--force")
    assert "seems to hold" not in output.err + output.out
