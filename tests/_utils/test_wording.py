"""Messages name settings as arguments in Python and as options in the command."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest

import biv
from biv._utils.pages import errors_point_to
from biv._utils.warnings import warn
from biv._utils.wording import OPTIONS, STREAM_OPTIONS, Message, Setting, in_python, render_text
from biv.cli import main
from biv.tables import LabelledTable, Target, read_table

RATE = Message(
    "more epochs{rate} may help", rate=Message(", or a larger {s},", s=Setting("learning_rate"))
)


@pytest.mark.parametrize(
    ("setting", "python", "option"),
    [
        (Setting("y_var"), "y_var", "--target-var"),
        (Setting("target_std"), "target_std", "--target-std"),
        (Setting("keep", ["a b", "c"]), "keep=['a b', 'c']", "--keep 'a b' c"),
        (Setting("unknown_variance", "median"), "unknown_variance='median'", "--unknown-variance median"),
        (Setting("level", 0.6827), "level=0.6827", "--level 0.6827"),
        (Setting("force", True), "force=True", "--force"),
        (Setting("categories"), "categories", "--category"),
    ],
)  # fmt: skip
def test_a_setting_has_a_name_in_each_front_end(setting, python, option):
    message = Message("use {setting}!", setting=setting)
    assert str(message) == f"use {python}!"
    assert message.render(OPTIONS) == f"use {option}!"


def test_a_clause_is_left_out_if_its_setting_does_not_exist():
    assert str(RATE) == "more epochs, or a larger learning_rate, may help"
    assert RATE.render(OPTIONS) == "more epochs may help"
    assert RATE.render(STREAM_OPTIONS) == "more epochs, or a larger --learning-rate, may help"


def test_braces_of_a_user_are_text():
    message = Message("{name} and {keep}", name="{keep}", keep=Setting("keep", ["{x}"])) + " {}"
    assert str(message) == "{keep} and keep=['{x}'] {}"
    assert message.render(OPTIONS) == "{keep} and --keep '{x}' {}"


def test_exceptions_and_warnings_carry_messages():
    error = pickle.loads(pickle.dumps(ValueError(RATE)))
    assert (str(error), render_text(error, OPTIONS)) == (str(RATE), RATE.render(OPTIONS))
    with pytest.warns(UserWarning, match="larger learning_rate") as caught:
        warn(RATE)
    assert render_text(caught[0].message, OPTIONS) == "more epochs may help"
    assert render_text(ValueError("plain"), OPTIONS) == "plain"
    assert render_text(OSError(2, "gone"), OPTIONS) == str(OSError(2, "gone"))

    @errors_point_to("images")
    def fail():
        raise ValueError(RATE)

    with pytest.raises(ValueError, match=r"may help \(see: biv docs images\)") as raised:
        fail()
    assert render_text(raised.value, in_python) == str(raised.value)
    assert render_text(raised.value, OPTIONS) == "more epochs may help (see: biv docs images)"


def table(folder, **columns):
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    frame = pd.DataFrame({"x": x, "y": x + rng.normal(size=60), "s": rng.uniform(1, 2, 60)})
    path = folder / "t.csv"
    frame.assign(**columns).to_csv(path, index=False)
    return path


def error_of(capsys, *arguments):
    assert main([str(word) for word in arguments]) == 2
    return capsys.readouterr().err


COLUMNS = ("--target", "y", "--target-std", "s")


def test_the_message_about_an_ignored_identifier_has_both_forms(tmp_path, capsys):
    path = table(tmp_path, name=[f"row {k}" for k in range(60)])
    with pytest.warns(UserWarning, match=r"looks like an identifier \(keep=\['name'\] keeps it\)"):
        read_table(path, target="y", target_std="s")
    with pytest.raises(ValueError, match=r"\(keep=\['name'\] keeps 'name'\)"):
        LabelledTable.read(path, Target("y", std="s"), ignore=["x"])
    output = error_of(capsys, "train", path, *COLUMNS, "--ignore", "x", "--out", tmp_path / "m")
    assert "(--keep name keeps 'name')" in output


def test_the_error_about_text_in_a_column_of_numbers_has_both_forms(tmp_path, capsys):
    cells = [*map(str, range(59)), "l0"]
    path = table(tmp_path, code=cells)
    with pytest.raises(
        ValueError, match=r"other cells are \(categories=\['code'\] allows text\); got 'l0'"
    ):
        read_table(path, target="y", target_std="s")
    output = error_of(capsys, "inspect", path, *COLUMNS, "--no-picture")
    assert "nearly all other cells are (--category code allows text); got 'l0'" in output


def test_the_error_about_missing_error_bars_has_both_forms(tmp_path, capsys):
    s = np.where(np.arange(60) == 7, np.nan, 1.0)
    path = table(tmp_path, s=s)
    rows = LabelledTable.read(path, Target("y", std="s"))
    with pytest.raises(ValueError, match="unknown_variance='median' replaces missing error bars"):
        biv.workflows.train_folder(tmp_path / "m", rows, {})
    output = error_of(capsys, "train", path, *COLUMNS, "--out", tmp_path / "m")
    assert (
        "--unknown-variance median replaces missing error bars by the median of the known ones"
        in output
    )


def test_a_warning_of_a_fit_has_both_forms(tmp_path, capsys):
    path = table(tmp_path)
    data = read_table(path, target="y", target_std="s")
    model = biv.BIVRegressor(members=2, folds=2, max_epochs=1, random_state=0)
    expected = (
        "the last of max_epochs=1 epochs was the best: more epochs, or a larger learning_rate,"
    )
    with pytest.warns(UserWarning, match=expected):
        model.fit(data.x, data.y, y_var=data.variance)
    small = ("--members", "2", "--max-epochs", "1", "--no-report", "--out", tmp_path / "m")
    with warnings.catch_warnings():
        assert main([str(word) for word in ("train", path, *COLUMNS, *small)]) == 0
    output = capsys.readouterr().err
    assert (
        "the last of --max-epochs 1 epochs was the best: more epochs may improve the model"
        in output
    )
