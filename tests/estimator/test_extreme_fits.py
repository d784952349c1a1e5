"""Fits and predictions with extreme numbers and unusual types."""

import contextlib
import math
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import torch

import biv
from biv.estimator import error_bars
from biv.estimator.fitted import RowError
from biv.preprocessing import FeatureScaler, LabelScaler
from biv.preprocessing.encoder import FeatureEncoder

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
QUICK = {"members": 2, "folds": 2, "max_epochs": 2, "epsilon": 0.05, "random_state": 0}
ROWS = 40
GAPS = pd.Series([None, *range(ROWS - 1)], dtype="Int64")


def table(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, 3))
    return x, x[:, 0] + 0.1 * rng.normal(size=ROWS), rng.uniform(0.1, 1.0, size=ROWS)


@pytest.fixture(scope="module")
def fitted():
    x, y, std = table()
    frame = pd.DataFrame(x, columns=list("abc"))
    with pytest.MonkeyPatch.context():
        return biv.BIVRegressor(**QUICK).fit(frame, y, y_std=std), frame


@pytest.mark.parametrize("value", [4e38, -4e38, 1e200, -1e308, 1.7e308])
def test_a_row_without_a_finite_prediction_is_named_with_its_column(fitted, value):
    model, frame = fitted
    x = frame.copy()
    x.loc[3, "b"] = value
    for features in (x, x.assign(a=x["a"].astype(object))):
        with pytest.raises(RowError, match=r"got .*e\+\d+ in row 3, column 'b'") as raised:
            model.predict(features)
        assert (raised.value.row, raised.value.column) == (3, "b")
        assert pickle.loads(pickle.dumps(raised.value)).row == 3


@pytest.mark.parametrize("value", [1e30, 1e37, 3e38])
def test_predictions_are_finite_or_an_error(fitted, value):
    model, frame = fitted
    x = frame.copy()
    x.loc[3, "b"] = value
    predicted = np.zeros(1)
    with contextlib.suppress(RowError):
        predicted = model.predict(x, return_std=True)
    assert np.isfinite(predicted).all()


@pytest.mark.parametrize("left_out", ["weight", "label"])
def test_a_row_that_is_not_trained_on_has_a_finite_prediction_too(left_out, tmp_path):
    """A saved model with a NaN could not be loaded, since `load` takes it for damage."""
    x, y, std = table()
    x[5, 1], weight = 4e38, np.ones(ROWS)
    if left_out == "weight":
        weight[5] = 0.0
    else:
        y[5] = np.nan
    model = biv.BIVRegressor(**QUICK)
    with pytest.raises(ValueError, match=r"got 4e\+38 in row 5, column 1$"):
        model.fit(x, y, y_std=std, sample_weight=weight)
    x[5, 1] = 1e30
    model.fit(x, y, y_std=std, sample_weight=weight).save(tmp_path / "m")
    assert np.isfinite(biv.BIVRegressor.load(tmp_path / "m").out_of_fold_).all()


def test_a_damaged_network_is_not_blamed_on_a_row(fitted):
    model, frame = fitted
    damaged = pickle.loads(pickle.dumps(model))
    for module in damaged._fitted.parts[0].ensemble.modules:
        for parameter in module.parameters():
            parameter.data.fill_(math.nan)
    with pytest.raises(ValueError, match="the prediction of row 0 is not finite: the model is dam"):
        damaged.predict(frame)


def test_error_bars_of_new_labels_are_finite(fitted):
    model, frame = fitted
    infinite = np.where(np.arange(ROWS) == 5, np.inf, 1.0)
    for name in ("y_var", "y_std"):
        with pytest.raises(ValueError, match=f"^{name} must be finite .* in row 5"):
            model.predict(frame, return_std=True, **{name: infinite})
    with pytest.raises(ValueError, match="^y_std must be at most .* in row 5"):
        model.predict(frame, return_std=True, y_std=np.where(np.arange(ROWS) == 5, 1e200, 1.0))


@pytest.mark.parametrize("exponent", [1000, -1000])
def test_features_of_any_size_are_scaled_alike(exponent):
    x = np.random.default_rng(0).normal(3.0, 1.0, size=(20, 2))
    huge = x * [1.0, 2.0**exponent]
    one, other = FeatureScaler.fit(x), FeatureScaler.fit(huge)
    np.testing.assert_array_equal(one(x), other(huge))
    assert one.mean[0] == other.mean[0]
    assert one.std[0] == other.std[0]


def test_one_huge_cell_leaves_a_column_that_varies():
    x = np.zeros((10, 1))
    x[3], x[4] = 1.7e308, -1.7e308
    for ddof in (0, 1):
        scaled = FeatureScaler.fit(x, ddof=ddof)(x)
        assert np.isfinite(scaled).all()
        assert scaled[3] > 1 > -1 > scaled[4]
    assert FeatureEncoder.fit(x[3:5]).columns[0].median == 0
    assert FeatureEncoder.fit(np.abs(x[3:5])).columns[0].median == 1.7e308


@pytest.mark.parametrize("scale", [1e300, 1e-300])
def test_a_fit_is_the_same_in_features_of_other_units(scale):
    x, y, _ = table()
    scale = 2.0 ** round(math.log2(scale))
    models = [biv.BIVRegressor(**QUICK).fit(x * [1, by, 1], y) for by in (1.0, scale)]
    np.testing.assert_array_equal(models[0].predict(x), models[1].predict(x * [1, scale, 1]))


def test_a_column_of_objects_must_be_finite_like_one_of_floats():
    x, y, _ = table()
    frame = pd.DataFrame(x, columns=list("abc"))
    frame["b"] = [math.inf, *frame["b"][1:]]
    for column in (frame["b"].astype(object), frame["b"].astype("Float64"), frame["b"]):
        with pytest.raises(ValueError, match="column 'b' must be finite; got infinity in row 0"):
            biv.BIVRegressor(**QUICK).fit(frame.assign(b=column, town="x"), y)
    too_long = pd.Series([10**400, *range(ROWS - 1)], dtype=object)
    with pytest.raises(
        ValueError, match="column 'b' must be finite; got an integer that is too large"
    ):
        biv.BIVRegressor(**QUICK).fit(frame.assign(b=too_long), y)


@pytest.mark.parametrize("gap", [None, math.nan, pd.NA])
def test_one_row_whose_category_is_missing_is_predicted(gap):
    x, y, _ = table()
    town = pd.Series(["Bern", "Zug", None, "Basel"] * (ROWS // 4), dtype=object)
    frame = pd.DataFrame({"a": x[:, 0], "town": town})
    model = biv.BIVRegressor(**QUICK).fit(frame, y)
    row = pd.DataFrame({"a": frame["a"][2:3], "town": [gap]})
    assert model.predict(row)[0] == pytest.approx(model.predict(frame)[2])
    assert model._fitted.encoder.unseen(row) == {}


def test_a_number_missing_in_every_row_of_a_text_column_is_a_number_missing():
    encoder = FeatureEncoder.fit(pd.DataFrame({"a": [1.0, None, 3.0]}))
    gaps = pd.DataFrame({"a": pd.array([None, None], dtype="string")})
    np.testing.assert_array_equal(encoder(gaps), [[2.0, 1.0]] * 2)


@pytest.mark.parametrize("size", [1e80, 1e300, 1e307, 1e-80, 1e-300])
def test_labels_whose_powers_overflow_or_underflow_are_an_error(size):
    x, y, _ = table()
    with pytest.raises(ValueError, match="^y must .* choose another unit"):
        biv.BIVRegressor(**QUICK).fit(x, y * size)
    with pytest.raises(ValueError, match="^y must .* choose another unit"):
        LabelScaler.fit(y * size)


@pytest.mark.parametrize(
    ("bars", "match"),
    [
        ({"y_std": 1e200}, "y_std must be at most 1e[+]75"),
        ({"y_var": 1e200}, "y_var must be at most 1e[+]150"),
        ({"y_std": 1e-200}, "y_std must be 0 or at least 1e-75, so that its square is not 0; got"),
        ({"y_var": 1e-200}, "y_var must be 0 or at least 1e-150; got a smaller value in"),
        ({"y_std": 1j}, "y_std must hold real numbers"),
        ({"y_var": np.full(ROWS, 1 + 1j)}, "y_var must hold real numbers"),
        ({"y_var": np.full(ROWS, 1 + 1j, dtype=object)}, "y_var must hold numbers"),
        ({"y_var": 10**400}, "y_var must hold numbers"),
        ({"y_var": torch.ones(ROWS, requires_grad=True)}, r"y_var must not require .*\.detach"),
        ({"y_var": torch.ones(ROWS).to_sparse()}, r"y_var must be a dense .*to_dense"),
        ({"y_var": torch.ones(ROWS).to(torch.float8_e4m3fn)}, r"y_var must have .*\.float\(\)"),
    ],
)
def test_errors_name_the_argument_of_invalid_error_bars(bars, match):
    x, y, _ = table()
    with pytest.raises((TypeError, ValueError), match=match):
        biv.BIVRegressor(**QUICK).fit(x, y, **bars)


@pytest.mark.parametrize("argument", ["X", "y", "sample_weight"])
@pytest.mark.parametrize(
    "convert",
    [
        lambda t: t.requires_grad_(),
        lambda t: t.to_sparse(),
        lambda t: t.to(torch.float8_e4m3fn),
        lambda t: t.to(torch.bfloat16),
    ],
)
def test_errors_name_the_argument_of_tensors_that_numpy_cannot_read(argument, convert):
    x, y, _ = table()
    given = {"X": x, "y": y, "sample_weight": np.ones(ROWS)}
    given[argument] = convert(torch.tensor(given[argument]))
    with pytest.raises(TypeError, match=f"^{argument} must"):
        biv.BIVRegressor(**QUICK).fit(**given)


@pytest.mark.parametrize("scale", [1e307, 1e-300])
def test_sample_weights_of_any_size_fit_alike(scale):
    x, y, std = table()
    weight = np.random.default_rng(1).uniform(0.5, 1.0, ROWS)
    models = [
        biv.BIVRegressor(**QUICK).fit(x, y, y_std=std, sample_weight=weight * by)
        for by in (1.0, scale)
    ]
    np.testing.assert_allclose(models[0].predict(x), models[1].predict(x), rtol=1e-3, atol=1e-3)


def test_hugely_noisy_labels_are_not_all_ignored():
    x, y, _ = table()
    model = biv.BIVRegressor(**QUICK, loss="l2").fit(x, y, y_var=1e60)
    assert np.isfinite(model.predict(x)).all()


@pytest.mark.parametrize("name", ["members", "max_epochs", "batch_size", "patience"])
@pytest.mark.parametrize("digits", [20, 5000])
def test_huge_integers_are_an_error(name, digits):
    (x, y, _), number = table(), 10**digits
    with pytest.raises(ValueError, match=f"^{name} must be an integer <="):
        biv.BIVRegressor(**{**QUICK, name: number}).fit(x, y)


@pytest.mark.parametrize("argument", ["X", "y", "sample_weight"])
def test_errors_name_the_argument_of_an_integer_too_large_for_a_float(argument):
    x, y, _ = table()
    given = {"X": x.tolist(), "y": y.tolist(), "sample_weight": [1.0] * ROWS}
    given[argument][3] = [10**400] * 3 if argument == "X" else 10**400
    with pytest.raises(ValueError, match=f"^{argument} must be finite; got an integer too large"):
        biv.BIVRegressor(**QUICK).fit(**given)


def test_score_with_extreme_numbers(fitted):
    (model, frame), (_, y, _) = fitted, table()
    weight = np.random.default_rng(1).uniform(0.5, 1.0, ROWS)
    score = model.score(frame, y, sample_weight=weight)
    assert model.score(frame, y, sample_weight=weight * 1e308) == pytest.approx(score)
    with pytest.raises(ValueError, match="^y must be at most"):
        model.score(frame, y * 1e300)
    with pytest.raises(ValueError, match="^y must hold real numbers"):
        model.score(frame, y + 1j)


def test_a_missing_value_of_pandas_is_an_unknown_error_bar():
    gaps = pd.Series([0.5, None, 2.0]).convert_dtypes()
    assert error_bars.read(np.zeros(3), None, gaps).unknown[:, 0].tolist() == [False, True, False]


def with_cell(argument, cell):
    """Return arguments of a fit of which one contains this cell."""
    x, y, std = table()
    given = {"X": x, "y": y, "y_std": std, "sample_weight": np.ones(ROWS)}
    given[argument] = given[argument].astype(object)
    given[argument][(3, 1) if argument == "X" else 3] = cell
    return given


@pytest.mark.parametrize("argument", ["X", "y", "y_std", "sample_weight"])
@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("x" * 5000, r"'x+'\.\.\. \(5,000 characters\)"),
        (b"x", "b'x'"),
        (pd.Timestamp(0), "Timestamp.* not 'Timestamp'"),
        ([1.0, 2.0], r"\[1.0, 2.0\]"),
    ],
)
def test_errors_name_the_argument_and_row_of_an_invalid_cell(argument, cell, shown):
    where = "row 3, column 1" if argument == "X" else "row 3"
    with pytest.raises(ValueError, match=f"^{argument} must hold numbers; got .*in {where}") as e:
        biv.BIVRegressor(**QUICK).fit(**with_cell(argument, cell))
    assert re.search(shown, str(e.value))
    assert len(str(e.value)) < 300


def test_missing_values_of_pandas_are_nan():
    x, _, _ = table()
    gaps = GAPS.to_numpy(dtype=float, na_value=np.nan)
    rows = pd.DataFrame(x).assign(gaps=GAPS).to_numpy()  # an array of objects
    settings = {**QUICK, "unknown_variance": "median"}
    plain = biv.BIVRegressor(**settings).fit(np.c_[x, gaps], gaps, y_std=gaps)
    for given in (GAPS, GAPS.to_numpy(), GAPS.tolist()):
        model = biv.BIVRegressor(**settings).fit(rows, given, y_std=given)
        np.testing.assert_array_equal(model.predict(rows), plain.predict(np.c_[x, gaps]))


@pytest.mark.parametrize("argument", ["X", "y", "y_std", "sample_weight"])
def test_complex_numbers_are_an_error_with_a_short_message(argument):
    x, y, std = table()
    given = {"X": x, "y": y, "y_std": std, "sample_weight": np.ones(ROWS)}
    given[argument] = given[argument] + 1j
    with pytest.raises(ValueError, match=f"^{argument} must hold real numbers; got c") as error:
        biv.BIVRegressor(**QUICK).fit(**given)
    assert len(str(error.value)) < 200


def test_errors_name_the_argument_with_rows_of_different_lengths():
    x, y, _ = table()
    with pytest.raises(ValueError, match="^X must be an array of numbers: .*inhomogeneous"):
        biv.BIVRegressor(**QUICK).fit([*x.tolist()[1:], [1.0]], y)


def test_numpy_does_not_warn_of_features_whose_sum_overflows():
    x, y, _ = table()
    x[:, 0] = 1.7e308 * (-1.0) ** np.arange(
        ROWS
    )  # partial sums are +inf and -inf, and the sum is NaN
    assert np.isfinite(biv.BIVRegressor(**QUICK).fit(x, y).predict(x)).all()


@pytest.mark.parametrize("is_frame", [False, True])
def test_errors_name_the_row_and_column_of_an_infinite_number(fitted, is_frame):
    model, frame = fitted
    x = frame.copy() if is_frame else frame.to_numpy(copy=True)
    if is_frame:
        x.iloc[2, 1] = np.inf
    else:
        x[2, 1] = np.inf
        model = biv.BIVRegressor(**QUICK).fit(frame.to_numpy(), frame["a"], y_std=np.ones(len(x)))
    column = "'b'" if is_frame else "1"
    message = f"contains infinity .*: got an infinite number in row 2, column {column}$"
    with pytest.raises(ValueError, match=message):
        model.predict(x)


def test_errors_name_an_infinite_number_beside_missing_values_of_pandas():
    x, y, _ = table()
    frame = pd.DataFrame(x, columns=list("abc")).assign(gaps=GAPS)
    frame.loc[2, "b"] = np.inf
    with pytest.raises(ValueError, match="got an infinite number in row 2, column 'b'$"):
        biv.BIVRegressor(**QUICK).fit(frame, y)


def test_the_error_of_wrong_column_names_is_short(fitted):
    model, frame = fitted
    for name in ("infinity", "x" * 200_000):
        with pytest.raises(ValueError, match="^X: The feature names should match") as e:
            model.predict(frame.rename(columns={"a": name}))
        assert len(str(e.value)) < 600


@pytest.mark.parametrize("value", [pd.NA, np.ones(2), pd.DataFrame({"a": [1]}), "x" * 200_000])
@pytest.mark.parametrize("name", sorted(set(biv.BIVRegressor().get_params()) - {"checkpoint"}))
def test_errors_name_an_invalid_setting(name, value):
    x, y, std = table()
    with pytest.raises((TypeError, ValueError), match=f"^{name}(:| must be) ") as e:
        biv.BIVRegressor(**{**QUICK, name: value}).fit(x, y, y_std=std)
    assert len(str(e.value)) < 600


@pytest.mark.parametrize("value", [pd.NA, "x" * 200_000])
@pytest.mark.parametrize("name", ["X", "y", "y_var", "y_std", "sample_weight"])
def test_errors_name_an_argument_that_is_not_an_array(name, value):
    x, y, _ = table()
    with pytest.raises((TypeError, ValueError), match=f"^{name}\\b") as e:
        biv.BIVRegressor(**QUICK).fit(**({"X": x, "y": y} | {name: value}))
    assert len(str(e.value)) < 700


def test_a_checkpoint_must_be_a_path():
    x, y, _ = table()
    with pytest.raises(TypeError, match="^checkpoint must be a path; got <NA>"):
        biv.BIVRegressor(**QUICK, checkpoint=pd.NA).fit(x, y)
