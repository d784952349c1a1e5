"""Frames with categories and missing values, and the matrices that networks get."""

import json

import numpy as np
import pandas as pd
import pytest

import biv
from biv.preprocessing.encoder import FeatureEncoder
from helpers.frames import SMALL, error, frame, table

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.slow
def test_frames_with_categories_and_gaps(tmp_path):
    data, y, std, _ = frame()
    model = biv.BIVRegressor(**SMALL).fit(data, y, y_std=std)
    fresh, _, _, truth = frame(1000, 9)
    known = fresh["a"].notna().to_numpy()
    mean = model.predict(fresh)
    assert np.mean((mean - truth)[known] ** 2) < 0.25 * truth.var()
    assert model.feature_names_in_.tolist() == list(data.columns)
    assert model.n_features_in_ == 5
    model.save(tmp_path / "model")
    np.testing.assert_allclose(biv.BIVRegressor.load(tmp_path / "model").predict(fresh), mean)
    fresh.loc[0, "town"] = "Luzern"  # not seen in training: 0 in all columns of the category
    assert np.isfinite(model.predict(fresh)).all()


def test_columns_must_be_those_of_training():
    data, y, std, _ = frame(100)
    model = biv.BIVRegressor(**SMALL).fit(data, y, y_std=std)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(data.rename(columns={"a": "c"}))
    swapped = data.assign(town=1.0, kind=pd.Categorical(["one"] * 100))
    with pytest.raises(ValueError, match="column 'town' must hold categories, as in training"):
        model.predict(swapped)
    dated = data.assign(b=pd.Timestamp("2020-01-01"))
    with pytest.raises(ValueError, match="column 'b' must hold numbers, .*; got datetime64"):
        biv.BIVRegressor().fit(dated, y)
    with pytest.raises(ValueError, match="column 'a' must be finite"):
        biv.BIVRegressor().fit(data.assign(a=np.inf), y)


def test_encoding_of_numbers_booleans_and_categories():
    data = pd.DataFrame(
        {
            "n": pd.array([3, None, 1], dtype="Int64"),
            "t": [True, False, True],
            "c": ["v", None, "u"],
        }
    )
    encoder = FeatureEncoder.fit(data)
    expected = [[3, 0, 1, 0, 1, 0], [2, 1, 0, 0, 0, 1], [1, 0, 1, 1, 0, 0]]
    assert encoder(data).tolist() == expected  # n, n is missing, t; c: u, v, missing
    assert encoder.numeric == (0, 2)
    restored = FeatureEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert restored(data).tolist() == expected
    other = pd.DataFrame({"n": [5.0], "t": [False], "c": ["w"]})
    assert encoder(other).tolist() == [[5, 0, 0, 0, 0, 0]]


@pytest.mark.slow
def test_missing_labels_are_left_out():
    x, y, std, _ = table(300)
    gaps = y.copy()
    gaps[::4] = np.nan
    model = biv.BIVRegressor(**SMALL).fit(x, gaps, y_std=std)
    assert error(model) < 0.3 * 800
    both = np.stack([y, np.where(np.arange(300) % 2, y, np.nan)], axis=1)
    two = biv.BIVRegressor(**SMALL).fit(x, both, y_std=std)
    assert np.corrcoef(*two.predict(x).T)[0, 1] > 0.9
