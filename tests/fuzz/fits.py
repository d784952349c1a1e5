"""Small fits of odd frames, which give finite predictions or an error that names an argument."""

import re
import warnings

import numpy as np
import pandas as pd

from biv import BIVRegressor
from fuzz.laws import one_of, require_finite

HUGE = (1e38, 4e38, -4e38, 1e154, 1e200, 1e300, 1.7e308)
ARGUMENT = re.compile(r"\b(X|y|y_var|y_std|sample_weight|column|feature|row|rows|labels?)\b")
# Messages of scikit-learn, which its estimator checks require.
STANDARD = re.compile(r"Sample weights|Found array with|Found input variables")
NAMES = ("a", "b", "c", "d")


def case(rng, folder, number):  # noqa: ARG001
    """Fit, predict other rows, save and load; the loaded model must predict the same."""
    rows = int(one_of(rng, [1, 2, 3, 8, 20, 40, 40, 40, 40]))
    with np.errstate(all="ignore"):
        frame = _frame(rng, rows)
        x = frame if rng.random() < 0.8 else frame.to_numpy()
        y = _labels(rng, rows)
        arguments = _error_bars(rng, (rows,) if y is None else np.shape(y)) | _importance(rng, rows)
    model = BIVRegressor(
        members=int(one_of(rng, [2, 4])),
        folds=2,
        max_epochs=3,
        model=one_of(rng, ["paper", "ensemble"]),
        unknown_variance=one_of(rng, ["raise", "median", "estimate"]),
        calibrate_variance=bool(arguments.keys() & {"y_var", "y_std"}) and rng.random() < 0.2,
        random_state=0,
    )
    if not _accepted(lambda: model.fit(x, y, **arguments)):
        return
    for name in ("tau2_", "effective_sample_size_"):
        require_finite(name, getattr(model, name))
    new = _new_rows(rng, frame)
    new = new if isinstance(x, pd.DataFrame) else new.to_numpy()
    predicted = _accepted(lambda: model.predict(new, return_std=True))
    if not predicted:
        return
    for name, values in zip(("the prediction", "its standard deviation"), predicted, strict=True):
        require_finite(name, values)
    model.save(folder / "model.biv")
    again = BIVRegressor.load(folder / "model.biv").predict(new, return_std=True)
    for before, after in zip(predicted, again, strict=True):
        assert np.array_equal(before, after), "the loaded model gives other predictions"


def _accepted(call):
    """Return the result of a call, or None after a clear error; NumPy's warnings are failures."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = call()
        except (ValueError, TypeError) as error:
            clear = ARGUMENT.search(str(error)) or STANDARD.search(str(error))
            assert clear, f"the error does not name an argument: {error!r}"
            assert len(str(error)) < 2_000, f"an error of {len(str(error)):,} characters"
            result = None
    leaked = [w for w in caught if not issubclass(w.category, (UserWarning, FutureWarning))]
    assert not leaked, f"a warning leaked: {leaked[0].category.__name__}: {leaked[0].message}"
    return result


def _column(rng, rows):
    """Return a column of one kind; most kinds have mainly ordinary cells."""
    values = rng.normal(size=rows)
    kind = one_of(
        rng,
        ["number"] * 4
        + ["gaps", "huge", "one huge", "tiny", "constant", "bool", "integer", "nullable", "text"]
        + ["category", "date", "object", "infinite", "objects with infinity", "big integers"]
        + ["empty", "span", "complex", "bytes", "one text", "float16"],
    )
    texts = np.array(["red", "green", "", "blau ü", "\x00", "x" * 300], dtype=object)
    some = rng.random(rows) < 0.2
    if kind == "gaps":
        values[some] = np.nan
    elif kind == "huge":
        values = values * one_of(rng, HUGE) / 10
    elif kind == "one huge":
        values[int(rng.integers(rows))] = one_of(rng, HUGE)
    elif kind == "tiny":
        values = values * 1e-310
    elif kind == "constant":
        values[:] = one_of(rng, [0.0, 1.0, 1e30, 1e308])
    elif kind == "bool":
        return values > 0
    elif kind == "integer":
        return rng.integers(-(2**62), 2**62, rows)
    elif kind == "nullable":
        return pd.array(np.where(some, None, rng.integers(0, 9, rows)), dtype="Int64")
    elif kind == "text":
        return np.where(some, None, texts[rng.integers(len(texts), size=rows)])
    elif kind == "category":
        return pd.Categorical(texts[rng.integers(len(texts), size=rows)])
    elif kind == "date":
        days = np.datetime64("2020-01-01") + rng.integers(0, 900, rows).astype("timedelta64[D]")
        return np.where(some, np.datetime64("NaT"), days)
    elif kind == "object":
        odd = [None, 1, 2.5, True, "text", (1, 2), [3], {}, b"x", np.nan, 10**400, object()]
        cells = np.empty(rows, dtype=object)
        cells[:] = [one_of(rng, odd) for _ in range(rows)]
        return cells
    elif kind == "infinite":
        values[some] = np.inf
    elif kind == "objects with infinity":
        return np.where(some, np.inf, values).astype(object)
    elif kind == "big integers":
        return np.array([10 ** int(rng.integers(0, 400)) for _ in range(rows)], dtype=object)
    elif kind == "empty":
        values[:] = np.nan
    elif kind == "span":
        return pd.to_timedelta(rng.integers(0, 900, rows), unit="s")
    elif kind == "complex":
        return values + 1j
    elif kind == "bytes":
        return np.array([b"x"] * rows, dtype=object)
    elif kind == "one text":
        return np.array(["same"] * rows, dtype=object)
    elif kind == "float16":
        return values.astype(np.float16)
    return values


def _frame(rng, rows):
    count = int(one_of(rng, [1, 2, 2, 3]))
    columns = [pd.Series(_column(rng, rows)) for _ in range(count)]
    if rng.random() < 0.7:
        columns.append(pd.Series(rng.normal(size=rows)))
    frame = pd.concat(columns, axis=1)
    frame.columns = NAMES[: len(columns)]
    odd = rng.random()
    if odd < 0.05:
        frame.columns = ["a"] * len(columns)
    elif odd < 0.1:
        frame.columns = range(len(columns))
    elif odd < 0.15:
        frame.index = ["i"] * rows
    return frame


def _labels(rng, rows):
    y = 3 + 2 * rng.normal(size=rows)
    kind = one_of(
        rng,
        ["plain"] * 8
        + ["huge", "tiny", "constant", "gaps", "missing", "infinite", "two", "integer", "text"]
        + ["object", "series", "bool", "short", "none", "complex", "dates", "two with gaps"],
    )
    changed = {
        "huge": lambda: y * one_of(rng, HUGE) / 10,
        "tiny": lambda: y * 1e-200,
        "constant": lambda: np.full(rows, one_of(rng, [0.0, 5.0, 1e308])),
        "gaps": lambda: np.where(rng.random(rows) < 0.3, np.nan, y),
        "missing": lambda: np.full(rows, np.nan),
        "infinite": lambda: np.where(rng.random(rows) < 0.1, np.inf, y),
        "two": lambda: np.stack([y, y * 1e6], axis=1),
        "two with gaps": lambda: np.where(rng.random((rows, 2)) < 0.3, np.nan, y[:, None]),
        "integer": lambda: (10 * y).astype(int),
        "text": lambda: y.astype(str),
        "object": lambda: np.array([one_of(rng, [1, 2.5, None, "x"]) for _ in y], dtype=object),
        "series": lambda: pd.Series(y, index=range(5, rows + 5)),
        "bool": lambda: y > 3,
        "short": lambda: y[:-1],
        "none": lambda: None,
        "complex": lambda: y + 1j,
        "dates": lambda: y.astype("datetime64[s]"),
    }
    return changed[kind]() if kind in changed else y


def _error_bars(rng, shape):
    bars = rng.gamma(1.0, 1.0, size=shape) + 0.01
    some = rng.random(shape) < 0.3
    kinds = {
        "none": dict,
        "std": lambda: {"y_std": bars},
        "var": lambda: {"y_var": bars},
        "zero": lambda: {"y_var": np.where(some, 0.0, bars)},
        "infinite": lambda: {"y_var": np.where(some, np.inf, bars)},
        "unknown": lambda: {"y_var": np.where(some, np.nan, bars)},
        "huge": lambda: {"y_std": bars * one_of(rng, HUGE[:2] + HUGE[3:]) / 10},
        "tiny": lambda: {"y_std": bars * 1e-160},
        "negative": lambda: {"y_var": np.where(some, -bars, bars)},
        "number": lambda: {"y_var": one_of(rng, [0.5, 0, -1, np.nan, np.inf, "1", True, 10**400])},
        "both": lambda: {"y_var": bars, "y_std": bars},
        "mixed": lambda: {"y_var": np.where(some, one_of(rng, [0.0, -0.0, 1e-300, 1e300]), bars)},
        "text": lambda: {"y_std": bars.astype(str)},
        "complex": lambda: {"y_var": bars + 1j},
        "short": lambda: {"y_std": bars[:-1]},
        "list": lambda: {"y_std": bars.tolist()},
    }
    return kinds[one_of(rng, ["std", "var", *kinds])]()


def _importance(rng, rows):
    weight = rng.uniform(size=rows)
    kind = one_of(rng, ["none"] * 6 + ["some", "zero", "huge", "tiny", "negative", "nan", "short"])
    return {
        "none": dict,
        "some": lambda: {"sample_weight": weight * (weight > 0.3)},
        "zero": lambda: {"sample_weight": weight * 0},
        "huge": lambda: {"sample_weight": weight * one_of(rng, [3e38, 1e300])},
        "tiny": lambda: {"sample_weight": weight * 1e-300},
        "negative": lambda: {"sample_weight": weight - 0.5},
        "nan": lambda: {"sample_weight": np.where(weight < 0.3, np.nan, weight)},
        "short": lambda: {"sample_weight": weight[:-1]},
    }[kind]()


def _new_rows(rng, frame):
    """Return rows of the frame, one of them possibly with an odd cell."""
    new = frame.iloc[: int(one_of(rng, [1, 1, 5, len(frame)]))].copy()
    if rng.random() < 0.6:
        place = int(rng.integers(new.shape[1]))
        column = new.iloc[:, place].astype(object)
        odd = [np.nan, None, 4e38, 1e308, np.inf, "unseen", -1e39, True, 10**400]
        column.iloc[int(rng.integers(len(new)))] = one_of(rng, odd)
        names = list(new.columns)
        new.columns = range(len(names))
        new[place] = column if rng.random() < 0.5 else column.infer_objects()
        new.columns = names
    return new
