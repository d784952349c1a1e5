"""Parameters of BIVRegressor: the table of constraints, and the docstring."""

import inspect
import re

import numpy as np
import pandas as pd
import pytest

import biv
from biv.estimator.parameters import CONSTRAINTS, check_parameters
from helpers.frames import SMALL, table

CHECKED_WITH_DATA = {"keep", "random_state"}
METHODS = ["fit", "predict", "score", "save", "load"]


def documented(section, value):
    """Return the names of a numpydoc section of a docstring, each with its type."""
    text = inspect.cleandoc(value.__doc__)
    _, _, after = text.partition(f"\n{section}\n{'-' * len(section)}\n")
    body = re.split(r"\n\n\w+\n-+\n", after)[0]
    return dict(re.findall(r"^(\w+) : (.+)$", body, flags=re.MULTILINE))


def test_every_parameter_has_a_constraint():
    assert set(CONSTRAINTS) | CHECKED_WITH_DATA == set(biv.BIVRegressor().get_params())


def test_the_defaults_are_allowed():
    check_parameters(biv.BIVRegressor().get_params())


@pytest.mark.parametrize("name", sorted(CONSTRAINTS))
@pytest.mark.parametrize("value", [pd.NA, "x" * 100_000, np.zeros((1000, 2)), [1] * 5000, {}])
def test_errors_name_the_parameter_and_are_short(name, value):
    if name == "checkpoint" and isinstance(value, str):
        return  # any text is a path
    with pytest.raises((TypeError, ValueError), match=f"^{name} must be .*; got ") as error:
        check_parameters(biv.BIVRegressor(**{name: value}).get_params())
    assert len(str(error.value)) < 500


def test_fit_checks_parameters_of_the_training_first():
    x, y, _, _ = table(50)
    for name, value in (("learning_rate", 0.0), ("weight_decay", -1.0)):
        with pytest.raises(ValueError, match=f"{name} must be .*; got .*biv docs estimator"):
            biv.BIVRegressor(**{name: value}).fit(x, y)


def test_a_subclass_may_have_fewer_parameters():
    class Small(biv.BIVRegressor):
        def __init__(self, *, members=4):
            super().__init__(members=members, folds=2, max_epochs=1)

    x, y, _, _ = table(50)
    with pytest.warns(UserWarning, match="the last of max_epochs=1"):
        assert Small().fit(x, y).predict(x).shape == (50,)


def test_every_parameter_and_its_default_is_documented():
    described = documented("Parameters", biv.BIVRegressor)
    signature = inspect.signature(biv.BIVRegressor.__init__).parameters
    assert list(described) == [name for name in signature if name != "self"]
    for name, text in described.items():
        assert text.endswith(f"default={signature[name].default!r}".replace("'", '"')), name


@pytest.mark.filterwarnings("ignore:the last of max_epochs")
def test_every_attribute_is_documented():
    x, y, std, _ = table(60)
    frame = pd.DataFrame(x, columns=list("abc"))
    model = biv.BIVRegressor(**SMALL).fit(frame, y, y_std=std)
    fitted = {name for name in vars(model) if name.endswith("_") and not name.startswith("_")}
    assert set(documented("Attributes", biv.BIVRegressor)) == fitted


@pytest.mark.parametrize("method", METHODS)
def test_every_argument_of_a_method_is_documented(method):
    function = getattr(biv.BIVRegressor, method)
    arguments = [name for name in inspect.signature(function).parameters if name != "self"]
    assert list(documented("Parameters", function)) == arguments
