"""Tables read from files: the meaning of cells, and errors that name a bad cell."""

import datetime as dt
import gzip
import re

import numpy as np
import pandas as pd
import pytest

import biv
from biv.datasets import read_table
from biv.tables import LabelledTable, Target, files
from biv.tables.column import Column
from biv.tables.files import Files
from biv.tables.schema import Schema

LINES = [
    "id,size,ok,colour,when,y,err",
    "a1,1.5,true,red,2024-01-01,10,1",
    "a2,,false,blue,2024-02-29,11,2",
    "a3,3,true,,2024-12-31,12,0.5",
    "a4,4,,red,,13,inf",
]
READ = {"target": "y", "target_std": "err"}


def write(path, lines=LINES, *, end="\n", encoding="utf-8"):
    text = end.join(lines) + end
    content = text.encode(encoding)
    path.write_bytes(gzip.compress(content) if path.name.endswith(".gz") else content)
    return path


def write_typed(path):
    """Write the same table to Parquet, with typed columns."""
    frame = pd.DataFrame(
        {
            "id": ["a1", "a2", "a3", "a4"],
            "size": [1.5, None, 3.0, 4.0],
            "ok": pd.array([True, False, True, None], dtype="boolean"),
            "colour": ["red", "blue", None, "red"],
            "when": pd.to_datetime(["2024-01-01", "2024-02-29", "2024-12-31", None]),
            "y": [10, 11, 12, 13],
            "err": [1, 2, 0.5, np.inf],
        }
    )
    frame.to_parquet(path)
    return path


def test_kinds_of_columns(tmp_path):
    data = read_table(write(tmp_path / "a.csv"), **READ, ignore=["id"])
    assert data.feature_names == (
        "size", "size is missing", "ok", "ok is missing", "colour=blue", "colour=red", "colour=␀",
        "when", "when is missing", "when: day of the year", "when: day of the year is missing",
        "when: day of the week", "when: day of the week is missing",
    )  # fmt: skip
    columns = dict(zip(data.feature_names, data.x.T.tolist(), strict=True))
    assert columns["size"] == [1.5, 3.0, 3.0, 4.0]  # the missing number is the median of the others
    assert columns["size is missing"] == [0, 1, 0, 0]
    assert columns["ok"] == [1, 0, 1, 1]
    assert columns["colour=red"] == [1, 0, 0, 1]
    assert columns["colour=␀"] == [0, 0, 1, 0]
    assert columns["when"][:3] == [19723, 19782, 20088]  # days since 1970
    assert columns["when: day of the year"][:3] == [1, 60, 366]
    assert columns["when: day of the week"][:3] == [0, 3, 1]  # from Monday on
    assert data.y.tolist() == [10, 11, 12, 13]
    assert data.variance.tolist() == [1, 4, 0.25, np.inf]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("windows.csv", {"end": "\r\n"}),
        ("mac.csv", {"end": "\r"}),
        ("mark.csv", {"encoding": "utf-8-sig"}),
        ("packed.csv.gz", {}),
        ("tabs.tsv", {"lines": [line.replace(",", "\t") for line in LINES]}),
        ("semicolons.csv", {"lines": [line.replace(",", ";") for line in LINES]}),
        ("blank.csv", {"lines": [*LINES, "", ""]}),
        ("words.csv", {"lines": [LINES[0], *(line.replace(",,", ", NA ,") for line in LINES[1:])]}),
        ("UPPER.CSV", {}),
        ("typed.parquet", None),
    ],
)
def test_the_format_of_a_file_does_not_change_the_table(tmp_path, name, options):
    plain = read_table(write(tmp_path / "plain.csv"), **READ, ignore=["id"])
    path = tmp_path / name
    other = read_table(
        write_typed(path) if options is None else write(path, **options), **READ, ignore=["id"]
    )
    assert other.feature_names == plain.feature_names
    np.testing.assert_array_equal(other.x, plain.x)
    np.testing.assert_array_equal(other.y, plain.y)
    np.testing.assert_array_equal(other.variance, plain.variance)


def test_several_files_or_a_folder_are_one_table(tmp_path):
    one = write(tmp_path / "one.csv", LINES)
    folder = tmp_path / "parts"
    (folder / "deep").mkdir(parents=True)
    names = LINES[0].split(",")
    order = [3, 0, 1, 2, 4, 5, 6]  # columns in another order

    def reorder(line):
        return ",".join(line.split(",")[k] for k in order)

    first = write(folder / "1.csv", LINES[:3])
    second = write(folder / "deep" / "2.csv", [reorder(line) for line in (LINES[0], *LINES[3:])])
    (folder / "notes.txt").write_text("not a table")
    write(folder / ".hidden.csv", ["nothing", "1"])
    whole = read_table(one, **READ, ignore=["id"])
    for paths in (folder, [first, second], [str(first), str(second)]):
        parts = read_table(paths, **READ, ignore=["id"])
        np.testing.assert_array_equal(parts.x, whole.x)
        np.testing.assert_array_equal(parts.y, whole.y)
    assert reorder(LINES[0]) != ",".join(names)


def test_the_size_of_parts_does_not_change_the_table(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    lines = ["n,c,y,err", *(f"{rng.normal()},{'abc'[k % 3]},{k},{1 + k % 2}" for k in range(53))]
    path = write(tmp_path / "a.csv", lines)
    pd.read_csv(path).to_parquet(tmp_path / "a.parquet")
    whole = read_table(path, **READ)
    monkeypatch.setattr(files, "ROWS", 7)
    monkeypatch.setattr(files, "BLOCK", 200)
    assert len(list(Files(path).parts())) > 5
    for name in ("a.csv", "a.parquet"):
        parts = read_table(tmp_path / name, **READ)
        np.testing.assert_array_equal(parts.x, whole.x)
        np.testing.assert_array_equal(parts.variance, whole.variance)
    with pytest.raises(ValueError, match="a.csv, row 40, column 'y' must be a number; got 'x'"):
        read_table(write(path, [*lines[:40], "1,a,x,1", *lines[41:]]), **READ)


@pytest.mark.slow
def test_the_amyloid_file_gives_the_included_dataset():
    included = files.Path(biv.datasets.__file__).parent / "data" / "amyloid.csv.gz"
    data = read_table(included, target="y", target_std="dy", features=["x"])
    known = biv.datasets.load_amyloid()
    np.testing.assert_array_equal(data.y, known.y)
    np.testing.assert_allclose(data.variance, known.variance)
    seen = known.x.any(axis=0)  # letters that never occur at a position have no column here
    letters = [f"x[{name[:-1]}]={name[-1]}" for name in np.array(known.feature_names)[seen]]
    order = [data.feature_names.index(name) for name in letters]
    np.testing.assert_array_equal(data.x[:, order], known.x[:, seen])
    assert len(order) == data.x.shape[1]


def test_error_bars_as_variances_and_intervals(tmp_path):
    path = write(tmp_path / "a.csv", ["x,y,v,low,high", "1,5,4,3.04,6.96", "2,6,,1,", "3,7,0,7,7"])
    assert read_table(path, target="y").variance is None
    variance = read_table(path, target="y", target_var="v", features=["x"]).variance
    np.testing.assert_array_equal(variance, [4, np.nan, 0])
    ends = read_table(path, target="y", target_interval=("low", "high"), features=["x"]).variance
    np.testing.assert_allclose(ends, [1.0, np.nan, 0], rtol=1e-4)  # ± 1.96 is one σ at 95%
    half = read_table(
        path, target="y", target_interval=("low", "high"), level=0.5, features=["x"]
    ).variance
    np.testing.assert_allclose(half[0], (1.96 / 0.6744898) ** 2, rtol=1e-6)


def test_rows_without_a_label_are_left_out_with_a_warning(tmp_path):
    path = write(tmp_path / "a.csv", ["x,y,s", "1,,1", "2,5,2", "3,NA,3", "4,6,4"])
    with pytest.warns(UserWarning, match="left out 2 rows without a label in column 'y'"):
        data = read_table(path, target="y", target_std="s")
    assert data.x.ravel().tolist() == [2, 4]
    assert data.variance.tolist() == [4, 16]
    table = LabelledTable.read(path, Target("y", std="s"))
    assert [table.where(k) for k in range(2)] == [f"{path}, row 2", f"{path}, row 4"]


def test_where_names_the_file_and_row_of_a_label(tmp_path):
    first = write(tmp_path / "1.csv", ["x,y", "1,1", "2,", "3,3"])
    second = write(tmp_path / "2.csv", ["x,y", "4,", "5,5"])
    table = LabelledTable.read([first, second], Target("y"))
    assert [table.where(k) for k in range(3)] == [
        f"{first}, row 1", f"{first}, row 3", f"{second}, row 2",
    ]  # fmt: skip


def test_unicode_names_and_quoted_cells(tmp_path):
    lines = ['größe,"a, ""b""",目標,σ', "1,x,2,0.5", '2,"x, y",3,0.5']
    data = read_table(write(tmp_path / "ü.csv", lines), target="目標", target_std="σ")
    assert data.feature_names == ("größe", 'a, "b"=x', 'a, "b"=x, y')


def test_numeric_columns_can_be_categories(tmp_path):
    path = write(tmp_path / "a.csv", ["post,y", "01,1", "1,2", "01,3"])
    assert read_table(path, target="y").feature_names == ("post",)
    data = read_table(path, target="y", categories=["post"])
    assert data.feature_names == ("post=01", "post=1")


def test_identifiers_are_left_out_with_a_warning(tmp_path):
    lines = ["id,x,empty,y", *(f"row {k},{k},,{k}" for k in range(150))]
    with pytest.warns(UserWarning, match="left out") as warned:
        data = read_table(write(tmp_path / "a.csv", lines), target="y")
    assert data.feature_names == ("x",)
    assert [str(w.message) for w in warned] == [
        "column 'id' was left out: 150 distinct texts in 150 filled cells, so it looks like "
        "an identifier (keep=['id'] keeps it)",
        "column 'empty' was left out: empty",
    ]
    assert {w.filename for w in warned} == {__file__}


INCHIKEY = "ABCDEFGHIJKLMN-OPQRSTUVWX-Y"


def with_texts(path, rows=200):
    """Write a table with two columns of identifiers, a category and a column of sequences."""
    rng = np.random.default_rng(0)

    def letters(alphabet, length):
        return ["".join(rng.choice(list(alphabet), length)) for _ in range(rows)]

    return write(path, [
        "key,name,town,dna,x,y",
        *(f"{''.join(rng.permutation(list(INCHIKEY)))},{f'Kepler-{k}' if k % 4 == 0 else ''},"
          f"town {k % 60},{dna},{k * k % 7},{k}"
          for k, dna in enumerate(letters("ACGT", 12))),
    ])  # fmt: skip


def kinds(table):
    return {column.name: column.kind for column in table.schema.columns}


def test_text_that_is_distinct_in_the_filled_cells_is_left_out(tmp_path):
    """It may look like a sequence, as an InChIKey does, and most cells may be empty."""
    path = with_texts(tmp_path / "a.csv")
    table = LabelledTable.read(path, Target("y"))
    assert kinds(table) == {"town": "category", "x": "number"}
    assert table.schema.ignored == {
        "key": "200 distinct sequences of 27 letters in 200 filled cells, as identifiers have",
        "name": "50 distinct texts in 50 filled cells, as identifiers have",
        "dna": "200 distinct sequences of 12 letters in 200 filled cells, as identifiers have",
    }
    assert table.schema.identifiers == ["key", "name", "dna"]


def test_a_column_is_kept_by_keep_or_by_naming_it(tmp_path):
    path = with_texts(tmp_path / "a.csv")
    kept = LabelledTable.read(path, Target("y"), keep=["dna", "name"])
    assert kinds(kept) == {
        "name": "category", "town": "category", "dna": "sequence", "x": "number",
    }  # fmt: skip
    assert list(kept.schema.ignored) == ["key"]
    named = LabelledTable.read(path, Target("y"), features=["dna"])
    assert kinds(named) == {"dna": "sequence"}
    as_categories = LabelledTable.read(path, Target("y"), categories=["key"])
    assert kinds(as_categories)["key"] == "category"


def test_sequences_of_which_some_repeat_are_features(tmp_path):
    rng = np.random.default_rng(0)
    dna = ["".join(rng.choice(list("ACGT"), 8)) for _ in range(180)]
    lines = ["dna,y", *(f"{dna[k % 180]},{k}" for k in range(200))]  # 90% are distinct
    assert kinds(LabelledTable.read(write(tmp_path / "a.csv", lines), Target("y"))) == {
        "dna": "sequence"
    }


def test_identifiers_of_a_long_table_are_recognised_by_the_texts_that_were_counted(
    tmp_path, monkeypatch
):
    """Counting stops at a number of texts, and later cells do not change the fraction."""
    monkeypatch.setattr("biv.tables.schema.COUNTED", 120)
    monkeypatch.setattr("biv.tables.files.ROWS", 50)
    path = tmp_path / "a.parquet"
    rng = np.random.default_rng(0)
    dna = ["".join(rng.choice(list("ACGT"), 12)) for _ in range(400)]
    pd.DataFrame({"dna": dna, "x": 1.0, "y": np.arange(400.0)}).to_parquet(path)
    table = LabelledTable.read(path, Target("y"))
    cells = "150 or more distinct sequences of 12 letters in 400 filled cells"
    reason = f"{cells}, as identifiers have"
    assert table.schema.ignored == {"dna": reason}


def test_a_column_of_few_cells_is_not_an_identifier(tmp_path):
    lines = ["a,b,y", *(f"{f'a {k}' if k < 19 else ''},b {k},{k}" for k in range(20))]
    table = LabelledTable.read(write(tmp_path / "a.csv", lines), Target("y"))
    assert kinds(table) == {"a": "category"}
    assert table.schema.identifiers == ["b"]


def test_the_error_explains_how_to_keep_the_only_column(tmp_path):
    path = with_texts(tmp_path / "a.csv")
    with pytest.raises(
        ValueError,
        match=r"a column to learn from; got none; 'key' has 200 .*\(keep=\['key'\] keeps 'key'\)",
    ):
        LabelledTable.read(path, Target("y"), ignore=["town", "x"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep": ["y"]}, "'y' cannot be kept: it is the label"),
        (
            {"keep": ["key"], "ignore": ["key"]},
            "'key' cannot be kept: it is among the columns to ignore too",
        ),
        ({"keep": ["key"], "features": ["x"]}, "'key' cannot be kept: it is not among the feat"),
        ({"keep": ["kee"]}, "must have a column 'kee'; did you mean 'key'"),
    ],
)
def test_columns_that_cannot_be_kept(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        read_table(with_texts(tmp_path / "a.csv"), target="y", **settings)


def test_codes_over_many_letters_are_not_sequences(tmp_path):
    """The codes have equal lengths, as sequences do, but use lower and upper case."""
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLM"))
    few, many = (
        ["".join(rng.choice(alphabet, 8)) for _ in range(200)]
        for alphabet in (letters[:20], letters)
    )
    lines = [
        "few,many,y",
        *(f"{a},{b},{k}" for k, (a, b) in enumerate(zip(few, many, strict=True))),
    ]
    path = write(tmp_path / "a.csv", lines)
    table = LabelledTable.read(path, Target("y"), keep=["few", "many"])
    assert [(c.name, c.kind, c.length) for c in table.schema.columns] == [
        ("few", "sequence", 8), ("many", "category", 0),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_columns_have_the_requested_order(tmp_path, name):
    frame = pd.DataFrame({"x": [1.0], "y": [2.0], "z": [3.0]})
    path = tmp_path / name
    frame.to_csv(path, index=False) if name == "a.csv" else frame.to_parquet(path)
    assert next(Files(path).parts(["z", "x"])).cells.schema.names == ["z", "x"]


def test_an_index_column_without_a_name_is_not_a_feature(tmp_path):
    path = tmp_path / "a.csv"
    pd.DataFrame({"x": [5.0, 6.0], "y": [1.0, 2.0]}).to_csv(path)
    assert read_table(path, target="y").feature_names == ("x",)


def test_a_schema_survives_json(tmp_path):
    import json

    table = LabelledTable.read(write(tmp_path / "a.csv"), Target("y", std="err"))
    again = Schema.from_json(json.loads(json.dumps(table.schema.to_json())))
    assert again == table.schema
    assert [c.kind for c in again.columns] == ["category", "number", "truth", "category", "date"]
    part = next(Files(tmp_path / "a.csv").parts())
    for name, values in again.frame(part).items():
        assert values.equals(table.features[name]), name


def test_types_of_parquet(tmp_path):
    from decimal import Decimal

    import pyarrow as pa
    import pyarrow.parquet as pq

    zone = dt.timezone(dt.timedelta(hours=1))
    noon = dt.datetime(2024, 1, 1, 12, tzinfo=zone)
    columns = {
        "whole": pa.array([1, None, 3]),
        "exact": pa.array([Decimal("1.5"), Decimal("2.5"), None]),
        "small": pa.array([1, 2, 3], pa.float16()),
        "day": pa.array([dt.date(2024, 1, 1)] * 3),
        "noon": pa.array([noon] * 3, pa.timestamp("us", tz="+01:00")),
        "named": pa.array(["a", "b", None]).dictionary_encode(),
        "many": pa.array([[1], [2], []]),
        "raw": pa.array([b"1", b"2", b"3"]),
        "none": pa.nulls(3),
        "y": pa.array([1, 2, 3], pa.int8()),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    table = LabelledTable.read(tmp_path / "a.parquet", Target("y"))
    assert {c.name: c.kind for c in table.schema.columns} == {
        "whole": "number", "exact": "number", "small": "number", "day": "date", "noon": "date",
        "named": "category",
    }  # fmt: skip
    assert dict(table.schema.ignored) == {
        "many": "of type list<element: int64>", "raw": "of type binary", "none": "empty",
    }  # fmt: skip
    assert table.features["noon: hour"].tolist() == [11, 11, 11]  # in UTC
    np.testing.assert_array_equal(table.features["exact"], [1.5, 2.5, np.nan])
    assert table.features["named"].tolist()[:2] == ["a", "b"]
    with pytest.raises(ValueError, match=r"row 1, column 'many' must be a number; got '\[1\]'"):
        read_table(tmp_path / "a.parquet", target="many")
    with pytest.raises(ValueError, match="row 1, column 'day' must be a number"):
        read_table(tmp_path / "a.parquet", target="day")


def test_hours(tmp_path):
    path = write(tmp_path / "a.csv", ["t,y", "2024-01-01 06:30,1", "2024-01-01T23:00:00Z,2"])
    data = read_table(path, target="y")
    assert data.feature_names[-1] == "t: hour"
    assert data.x[:, -1].tolist() == [6.5, 23.0]


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        (["x,y", "1,2"], {"target": "Y"}, "must have a column 'Y'; did you mean 'y'?"),
        (["x,yield", "1,2"], {"target": "yeild"}, "must have a column 'yeild'; did you mean 'yield'?"),
        (["x,y", "1,2"], {"target": "other"}, "must have a column 'other'; got 'x', 'y'"),
        (["x,y,s", "1,2,3"], {"target": "y", "target_std": "t"}, "must have a column 't'"),
        (["x,y", "1,2"], {"target": "y", "ignore": ["z"]}, "must have a column 'z'"),
        (["x,y", "1,2", "1,abc"], {"target": "y"}, "a.csv, row 2, column 'y' must be a number; got 'abc'"),
        (["x,y", "1,inf"], {"target": "y"}, "a.csv, row 1, column 'y' must be finite; got 'inf'"),
        (["x,y", "1,2", "inf,2"], {"target": "y"}, "row 2, column 'x' must be finite; got 'inf'"),
        (["x,y,s", "1,2,1", "1,2,-3"], {"target": "y", "target_std": "s"}, "a.csv, row 2, column 's' must be non-negative, because it is an error bar; got '-3'"),
        (["x,y,s", "1,2,1", "1,2,x"], {"target": "y", "target_var": "s"}, "row 2, column 's' must be a number; got 'x'"),
        (["x,y,a,b", "1,2,3,2"], {"target": "y", "target_interval": ("a", "b")}, "row 1, column 'b' must be at least as large as 'a', the lower end of the interval; got '2'"),
        (["x,y,a,b", "1,2,-inf,2"], {"target": "y", "target_interval": ("a", "b")}, "row 1, column 'a' must be finite"),
        (["x,y,s", "1,2,1"], {"target": "y", "target_std": "s", "target_var": "s"}, "got variance and std"),
        (["x,y", "1,2"], {"target": "y", "target_std": "y"}, "'y' is used twice: as the label and as the error bar"),
        (["x,y", "1,2"], {"target": "y", "target_interval": ("x", "y")}, "'y' is used twice: as the label and as the high end of the interval"),
        (["x,y", "1,2"], {"target": "y", "features": ["y"]}, "'y' is the label, so it cannot also be a feature"),
        (["x,y", "1,2"], {"target": "y", "target_interval": ("x", "x"), "level": 1.0}, "level must be"),
        (["x,y", "1,"], {"target": "y"}, "must have rows with a 'y'; got none"),
        (["x,y"], {"target": "y"}, "there are no rows in "),
        (["x,y", ",2"], {"target": "y"}, "a.csv: all cells to learn from are empty"),
        (["y", "1"], {"target": "y"}, "must have a column to learn from; got none"),
        (["x,x", "1,2"], {"target": "y"}, "must name each column once; got 'x' twice"),
        ([""], {"target": "y"}, "must begin with the names of its columns; got none"),
        (["x,y", "1,2", "1,2,3"], {"target": "y"}, "row 2 must have 2 cells, one per column; got 3"),
        (["x,y", "1,2", "1"], {"target": "y"}, "row 2 must have 2 cells, one per column; got 1"),
        (["x,y", *["1,2"] * 150, "1;5,2"], {"target": "y"}, "row 151, column 'x' must be a number, as nearly all other cells are (categories=['x'] allows text); got '1;5'"),
    ],
)  # fmt: skip
def test_errors_name_the_file_the_row_and_the_column(tmp_path, lines, options, message):
    path = write(tmp_path / "a.csv", lines)
    with pytest.raises(ValueError, match=re.escape(message)):
        read_table(path, **options)


def test_files_that_cannot_be_read(tmp_path):
    write(tmp_path / "date.csv")
    with pytest.raises(FileNotFoundError, match="data.csv does not exist; did you mean .*date.csv"):
        read_table(tmp_path / "data.csv", **READ)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty must contain tables .*; got none"):
        read_table(tmp_path / "empty", **READ)
    (tmp_path / "a.xlsx").touch()
    with pytest.raises(ValueError, match="must end in one of"):
        read_table(tmp_path / "a.xlsx", **READ)
    for name in ("a.csv", "a.csv.gz", "a.parquet"):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00broken")
        with pytest.raises(ValueError, match=f"{name} cannot be read"):
            read_table(tmp_path / name, **READ)
    with pytest.raises(ValueError, match="got none"):
        read_table([], **READ)


def test_files_whose_columns_differ(tmp_path):
    first, second = write(tmp_path / "1.csv"), write(tmp_path / "2.csv", ["id,size", "1,2"])
    with pytest.raises(
        ValueError, match="2.csv must have the columns of .*1.csv; they differ in 'colour', 'err'"
    ):
        read_table([first, second], **READ)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
@pytest.mark.parametrize("change", ["shrinks", "is gone", "grows"])
def test_a_file_that_changes_while_it_is_read(tmp_path, monkeypatch, name, change):
    monkeypatch.setattr(files, "ROWS", 100)
    monkeypatch.setattr(files, "BLOCK", 1000)
    path = tmp_path / name
    frame = pd.DataFrame({"x": np.arange(1000.0), "y": np.arange(1000.0)})
    frame.to_csv(path, index=False) if name == "a.csv" else frame.to_parquet(path)
    size = path.stat().st_size

    def disturb(_):
        if change == "is gone":
            path.unlink(missing_ok=True)
        else:
            with path.open("r+b") as file:
                file.truncate(size // 2 if change == "shrinks" else size + 10)

    with pytest.raises(ValueError, match=f"{name} has changed while it was read"):
        LabelledTable.read(path, Target("y"), after_part=disturb)


def test_a_cell_that_is_invalid_for_its_column(tmp_path):
    path = write(tmp_path / "a.csv", ["a,b,c,d", "maybe,yesterday,ACGTT,1"])
    part = next(Files(path).parts())
    for column, message in [
        (Column("a", "truth"), "row 1, column 'a' must be true or false; got 'maybe'"),
        (
            Column("b", "date"),
            "row 1, column 'b' must be a date, as in 2024-12-31; got 'yesterday'",
        ),
        (
            Column("c", "sequence", length=4),
            "row 1, column 'c' must be a text of 4 letters, as in training; got 'ACGTT'",
        ),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            column(part)


def test_columns_of_missing_cells_keep_their_kind(tmp_path):
    path = write(tmp_path / "a.csv", ["a,b,c,d,e", ",,,,1"])
    part = next(Files(path).parts())
    kinds = ["truth", "date", "category", "number"]
    schema = Schema(tuple(Column(n, k) for n, k in zip("abcd", kinds, strict=True)), {})
    frame = schema.frame(part)
    assert frame.isna().all(axis=None)
    assert [dtype.kind for dtype in frame.dtypes] == ["f", "f", "f", "f", "O", "f"]


def test_without_pandas_the_error_names_what_to_install(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        ValueError, match="reading tables requires pandas: pip install pandas, or biv"
    ):
        read_table(write(tmp_path / "a.csv"), **READ)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        ValueError, match="reading tables requires pyarrow: pip install pyarrow, or biv"
    ):
        read_table(write(tmp_path / "a.csv"), **READ)


def test_headers_of_every_kind(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('"a\nb";"c, d, e";y\n1;2;3\n4;5;6\n', encoding="utf-8")
    data = read_table(path, target="y")
    assert data.feature_names == ("a\nb", "c, d, e")
    assert data.x.tolist() == [[1, 2], [4, 5]]
    packed = write(tmp_path / "B.CSV.GZ".lower(), ["x,y", "1,2"])
    packed.rename(tmp_path / "B.CSV.GZ")
    assert read_table(tmp_path / "B.CSV.GZ", target="y").y.tolist() == [2]


def test_missing_numbers_in_parquet(tmp_path):
    """A missing number is NaN, as NumPy writes it, or null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"x": [1.0, np.nan, None], "y": [1.0, 2.0, np.nan], "s": [np.nan, 1.0, 1.0]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.warns(UserWarning, match="left out 1 row without a label in column 'y'"):
        data = read_table(tmp_path / "a.parquet", **{**READ, "target_std": "s"})
    assert data.x.tolist() == [[1.0, 0.0], [1.0, 1.0]]
    np.testing.assert_array_equal(data.variance, [np.nan, 1.0])


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_the_first_and_the_last_date_that_python_knows(tmp_path, name):
    frame = pd.DataFrame({"t": ["0001-01-01", "2024-01-01", "9999-12-31"], "y": [1.0, 2.0, 3.0]})
    if name == "a.csv":
        frame.to_csv(tmp_path / name, index=False)
    else:
        frame["t"] = [dt.date.fromisoformat(t) for t in frame["t"]]
        frame.to_parquet(tmp_path / name)
    days = read_table(tmp_path / name, target="y").x[:, 0]
    assert days.tolist() == [-719162, 19723, 2932896]


def test_a_typing_error_in_a_short_column_is_an_error_too(tmp_path):
    lines = ["x,y", *(f"{k},{k}" for k in range(20)), "1O,3"]
    with pytest.raises(ValueError, match="row 21, column 'x' must be a number, .*; got '1O'"):
        read_table(write(tmp_path / "a.csv", lines), target="y")


def test_no_row_is_read_twice(tmp_path):
    (tmp_path / "data").mkdir()
    path = write(tmp_path / "data" / "a.csv")
    for hidden in (".ipynb_checkpoints", "_temporary"):
        (tmp_path / "data" / hidden).mkdir()
        write(tmp_path / "data" / hidden / "a.csv")
    assert len(read_table(tmp_path / "data", **READ)) == 4
    with pytest.raises(ValueError, match="a.csv must be given once; got it twice"):
        read_table([path, tmp_path / "data"], **READ)


def test_a_missing_cell_of_a_table_with_one_column(tmp_path):
    path = write(tmp_path / "a.csv", ["a", "1", "", "3"])
    (part,) = Files(path).parts()
    np.testing.assert_array_equal(part.numbers("a"), [1, np.nan, 3])


def test_two_features_of_one_name_are_refused(tmp_path):
    path = write(tmp_path / "a.csv", ["d,d: day of the week,y", "2024-01-01,5,1", "2024-01-02,6,2"])
    with pytest.raises(ValueError, match="two columns give a feature 'd: day of the week'"):
        read_table(path, target="y")
    assert read_table(path, target="y", features=["d", "d"]).x.shape == (2, 3)


def test_lists_are_not_categories(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [[1], [2]], "y": [1, 2]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="row 1, column 'x' must be text, a number or a date"):
        read_table(tmp_path / "a.parquet", target="y", categories=["x"])
    with pytest.raises(ValueError, match="'y' is the label, so it cannot also be a category"):
        read_table(tmp_path / "a.parquet", target="y", categories=["y"])


def test_a_damaged_archive(tmp_path):
    path = write(tmp_path / "a.csv.gz", LINES * 50)
    content = bytearray(path.read_bytes())
    content[12:40] = b"x" * 28
    path.write_bytes(content)
    with pytest.raises(ValueError, match="a.csv.gz cannot be read"):
        read_table(path, **READ)


def intervals(path, *, distances=False, outside=0, rows=200, signs=(-1, 1), centre=3.0, size=1.0):
    """Write labels with the ends of their intervals, or with distances from the labels."""
    rng = np.random.default_rng(0)
    y = centre + rng.normal(size=rows)
    minus, plus = size * rng.uniform(0.1, 0.5, (2, rows))
    shift = np.where(np.arange(rows) < outside, 5.0, 0.0)  # moves intervals away from their labels
    base = 0 * y if distances else y + shift
    frame = pd.DataFrame({"x": rng.normal(size=rows), "y": y})
    frame["a"], frame["b"] = base + signs[0] * minus, base + signs[1] * plus
    frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"outside": 20},  # 10%
        {"centre": 0.0},  # intervals around 0, as distances are
        {"centre": 0.0, "size": 20.0, "outside": 10},
        {"distances": True, "rows": 19},
    ],
)
def test_intervals_that_contain_nearly_all_labels_are_accepted(tmp_path, options):
    path = intervals(tmp_path / "a.csv", **options)
    data = read_table(path, target="y", target_interval=("a", "b"))
    assert len(data) == options.get("rows", 200)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"outside": 21},
            "contain the labels; 21 of 200 labels 'y' lie outside. If the columns are",
        ),
        ({"distances": True}, "they look like − and [+] errors, on both sides of 0, and 200 of 20"),
        ({"distances": True, "centre": 0.0}, "they look like − and [+] errors"),
        ({"distances": True, "signs": (0.1, 1)}, "200 of 200 labels 'y' lie outside"),
    ],
)
def test_distances_from_the_label_are_refused_as_intervals(tmp_path, options, message):
    path = intervals(tmp_path / "a.csv", **options)
    with pytest.raises(ValueError, match=message) as raised:
        read_table(path, target="y", target_interval=("a", "b"))
    assert "add two columns to the table" in str(raised.value)
    assert "biv.labels.asymmetric" in str(raised.value)


def test_symmetric_distances_are_refused_even_if_they_contain_all_labels(tmp_path):
    rng = np.random.default_rng(0)
    error = rng.uniform(5, 9, 50)
    frame = pd.DataFrame({"x": 1.0, "y": rng.normal(size=50), "a": -error, "b": error})
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ValueError, match="they look like − and [+] errors, .* and 0 of 50"):
        read_table(tmp_path / "a.csv", target="y", target_interval=("a", "b"))
    frame["y"] = 0.0  # then they are the ends of intervals
    frame.to_csv(tmp_path / "a.csv", index=False)
    read_table(tmp_path / "a.csv", target="y", target_interval=("a", "b"))


def test_asymmetric_distances_are_refused_even_if_they_contain_all_labels(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": 1.0, "y": 0.1 * rng.normal(size=50)})
    frame["a"], frame["b"] = -rng.uniform(0.3, 0.5, 50), rng.uniform(0.3, 0.6, 50)
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ValueError, match="they look like − and [+] errors, .* and 0 of 50"):
        read_table(tmp_path / "a.csv", target="y", target_interval=("a", "b"))
    frame[["a", "b"]] = frame[["a", "b"]].add(frame["y"], axis=0)  # now the ends
    frame.to_csv(tmp_path / "a.csv", index=False)
    read_table(tmp_path / "a.csv", target="y", target_interval=("a", "b"))


def test_a_label_rounded_beyond_its_interval_counts_as_inside(tmp_path):
    y = np.random.default_rng(0).normal(size=50)
    frame = pd.DataFrame({"x": 1.0, "y": y.astype(np.float32), "a": y, "b": y})
    frame.to_parquet(tmp_path / "a.parquet")
    data = read_table(tmp_path / "a.parquet", target="y", target_interval=("a", "b"))
    assert not data.variance.any()


def test_ends_of_intervals_are_kept_with_their_rows(tmp_path):
    path = write(tmp_path / "a.csv", ["x,y,a,b", "1,2,1,3", "2,,0,1", "3,4,,9"])
    table = LabelledTable.read(path, Target("y", interval=("a", "b")))
    np.testing.assert_array_equal(table.ends, [[1, 3], [np.nan, 9]])
    assert LabelledTable.read(path, Target("y")).ends is None
