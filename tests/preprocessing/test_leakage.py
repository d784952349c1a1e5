"""The rules that find identifiers and copies of the label, also at their thresholds."""

import numpy as np
import pytest

from biv.preprocessing.leakage import integer_ids, is_identifier, label_copies


@pytest.mark.parametrize(
    ("distinct", "filled", "expected"),
    [(95, 100, True), (94, 100, False), (20, 20, True), (19, 19, False), (19, 20, True)],
)
def test_an_identifier_is_distinct_in_most_filled_cells(distinct, filled, expected):
    assert is_identifier(distinct, filled) is expected


def test_integers_that_look_like_identifiers_are_found():
    many = np.arange(300.0)
    twice, gaps = many // 2, np.where(many % 2, many, np.nan)
    columns = {
        "n": many, "star_id": twice, "kepid": twice, "ID": twice, "id of star": twice, "gaps": gaps,
        "halves": many / 2, "twice": twice, "idle": twice, "thrice id": many // 3,
    }  # fmt: skip
    assert list(integer_ids(columns.items())) == [
        "n", "star_id", "kepid", "ID", "id of star", "gaps",
    ]  # fmt: skip
    assert list(integer_ids([("id", np.arange(99.0))])) == []


def test_copies_of_the_label_in_any_monotone_units_are_found():
    rng = np.random.default_rng(0)
    y = rng.lognormal(size=200)
    noisy = y + 0.1 * rng.normal(size=200)
    columns = {"same": y, "log": np.log(y), "inverse": 1 / y, "noisy": noisy, "const": 0 * y}
    assert label_copies(columns.items(), y) == {"same": 1.0, "log": 1.0, "inverse": -1.0}


def test_a_rounded_copy_is_found_and_a_noisy_one_is_not():
    y = np.random.default_rng(0).normal(size=1000)
    noisy = y + 0.1 * np.random.default_rng(1).normal(size=1000)
    assert list(label_copies([("rounded", y.round(2)), ("noisy", noisy)], y)) == ["rounded"]


@pytest.mark.parametrize(("rows", "values", "expected"), [
    (50, 50, True), (49, 49, False), (200, 20, True), (200, 19, False),
])  # fmt: skip
def test_a_copy_needs_enough_rows_and_distinct_values(rows, values, expected):
    y = np.arange(rows) % values + 0.0
    assert bool(label_copies([("copy", 3 * y)], y)) is expected


def test_only_rows_where_both_are_known_are_compared():
    y = np.random.default_rng(0).normal(size=120)
    column = np.where(np.arange(120) < 60, y, np.nan)
    assert label_copies([("x", column)], y) == {"x": 1.0}
    assert label_copies([("x", column)], np.where(np.arange(120) < 20, np.nan, y)) == {}


def test_rows_of_a_long_table_are_selected_from_all_of_it():
    y = np.random.default_rng(0).normal(size=100_000)
    half = np.where(np.arange(100_000) < 50_000, y, -y)
    assert list(label_copies([("half", half), ("copy", 2 * y)], y)) == ["copy"]
