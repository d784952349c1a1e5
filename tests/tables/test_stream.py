"""Tables larger than memory: row groups, one pass over them, and batches."""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from biv.preprocessing import LabelScaler
from biv.preprocessing.encoder import FeatureEncoder
from biv.preprocessing.scaling import FeatureScaler
from biv.tables import LabelledTable, Target
from biv.tables.files import Files
from biv.tables.row_groups import RowGroups, assign_row_groups
from biv.tables.schema import Schema
from biv.tables.stream import Batch, Encoding, Shard, Stream
from biv.tables.survey import Reader, Survey
from helpers.parquet_files import labelled, write, write_folder

TARGET = Target("y", variance="v")


def read(folder, target=TARGET, **settings):
    files = Files(folder)
    names = [n for n in files.columns if n not in target.names]
    return Reader(RowGroups(files), Schema.guess(files, names), target, **settings)


def survey_groups(reader):
    return [Survey.of(reader, group) for group in range(len(reader.groups))]


def encoding(survey):
    return Encoding(survey.encoder(), survey.features(), survey.scaler())


def shards(reader, count, seed=0):
    surveys = survey_groups(reader)
    training_rows = {group: survey.training_rows for group, survey in enumerate(surveys)}
    encode = encoding(Survey.combine(surveys))
    assigned = assign_row_groups([group.rows for group in reader.groups.groups], count)
    return [
        Shard(k, groups, training_rows, reader, encode, seed) for k, groups in enumerate(assigned)
    ]


def test_row_groups_are_listed_and_read(tmp_path):
    columns = write_folder(tmp_path)
    groups = RowGroups(Files(tmp_path))
    assert [g.rows for g in groups.groups] == [
        200,
        200,
        200,
        100,
        200,
        200,
        50,
        200,
        200,
        200,
        200,
        100,
    ]
    assert groups.rows == 2050
    part = groups.read(6, ["y"])
    assert (part.path.name, part.start) == ("part-1.parquet", 400)
    np.testing.assert_array_equal(part.numbers("y"), columns["y"][1100:1150])


def test_files_that_cannot_be_one_table(tmp_path):
    write(tmp_path / "a.parquet", labelled(10))
    write(tmp_path / "b.parquet", {n: c[:0] for n, c in labelled(10).items()})
    with pytest.raises(ValueError, match="b.parquet must have rows; got none. Leave the file out"):
        RowGroups(Files(tmp_path))
    write(tmp_path / "b.parquet", {n: c for n, c in labelled(10).items() if n != "x1"})
    with pytest.raises(
        ValueError, match="b.parquet must have the columns of .*a.parquet; they differ in 'x1'"
    ):
        RowGroups(Files(tmp_path))
    write(tmp_path / "b.parquet", labelled(10) | {"x1": ["a"] * 10})
    with pytest.raises(
        ValueError, match="b.parquet must have the column types of the files before it: .*x1"
    ):
        RowGroups(Files(tmp_path))
    (tmp_path / "b.parquet").unlink()
    (tmp_path / "c.csv").write_text("x0,x1,x2,y,v\n1,2,3,4,5\n")
    with pytest.raises(
        ValueError,
        match=r"--stream requires Parquet files, which can be read by row group; got .*c\.csv",
    ):
        RowGroups(Files(tmp_path))


def test_a_file_that_changes_is_refused(tmp_path):
    write_folder(tmp_path)
    reader = read(tmp_path)
    write(tmp_path / "part-1.parquet", labelled(451))
    with pytest.raises(ValueError, match="part-1.parquet has changed while it was read"):
        reader.read(4)
    (tmp_path / "part-1.parquet").unlink()
    with pytest.raises(ValueError, match="part-1.parquet has changed while it was read"):
        reader.read(4)


def test_row_groups_are_assigned_to_shards_evenly():
    rng = np.random.default_rng(0)
    rows = rng.integers(1, 1000, size=50).tolist()
    assigned = assign_row_groups(rows, 6)
    assert sorted(g for groups in assigned for g in groups) == list(range(50))
    loads = [sum(rows[g] for g in groups) for groups in assigned]
    assert max(loads) - min(loads) <= 1000
    with pytest.raises(
        ValueError, match="must be between 1 and 3, the number of row groups; got 4"
    ):
        assign_row_groups([1, 2, 3], 4)


def test_a_survey_describes_the_whole_table(tmp_path):
    """One pass by row group gives the same statistics as reading the whole table."""
    rng = np.random.default_rng(0)
    columns = labelled(1200)
    columns["x1"][rng.random(1200) < 0.3] = np.nan
    columns["y"][rng.random(1200) < 0.1] = np.nan
    columns["colour"] = rng.choice(["red", "green", None], size=1200).tolist()
    columns["day"] = pa.array(rng.integers(0, 20_000, 1200), pa.int32()).cast(pa.date32())
    columns["flag"] = rng.random(1200) < 0.5
    write(tmp_path / "a.parquet", {n: c[:700] for n, c in columns.items()})
    write(tmp_path / "b.parquet", {n: c[700:] for n, c in columns.items()})
    reader = read(tmp_path)
    survey = Survey.combine(survey_groups(reader))
    table = LabelledTable.read(tmp_path, TARGET)
    assert survey.rows == len(table)
    assert survey.unlabelled == table.unlabelled > 0
    assert survey.training_rows + sum(map(len, survey.held_out)) == survey.rows
    exact = FeatureEncoder.fit(table.features)
    encoder = survey.encoder()
    names = list(table.features.columns)
    assert encoder.names(names) == exact.names(names)
    matrix = encoder(table.features)
    scaled = FeatureScaler.fit(matrix, ddof=0)
    np.testing.assert_allclose(survey.features().mean, scaled.mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(survey.features().std, scaled.std, rtol=1e-8, atol=1e-12)
    scaler = LabelScaler.fit(table.y, table.variance)
    assert survey.scaler().mean == pytest.approx(scaler.mean, rel=1e-3)
    assert survey.scaler().std == pytest.approx(scaler.std, rel=1e-3)


def test_rows_without_influence_are_left_out(tmp_path):
    columns = labelled(300)
    columns["v"][::3] = np.inf
    columns["w"] = np.where(np.arange(300) % 3 == 1, 0.0, 2.0)
    write(tmp_path / "a.parquet", columns)
    reader = read(tmp_path, Target("y", variance="v", weight="w"))
    rows, _, _ = reader.read(0)
    assert len(rows) == len(range(2, 200, 3))
    assert set(rows.weight) == {2.0}


def test_a_missing_error_bar_is_named(tmp_path):
    columns = labelled(300)
    columns["v"][250] = np.nan
    columns["y"][100], columns["v"][100] = np.nan, np.nan  # whose label is missing anyway
    write(tmp_path / "a.parquet", columns)
    message = "a.parquet, row 251, column 'v' must be known .*median.*; got 'nan'"
    with pytest.raises(ValueError, match=message):
        survey_groups(read(tmp_path))
    survey = Survey.combine(survey_groups(read(tmp_path, unknown="median")))
    assert (survey.unknown, survey.rows) == (1, 299)
    assert survey.labels.median_variance == pytest.approx(np.nanmedian(columns["v"]), rel=0.05)


@pytest.mark.parametrize("seed", [0, 1])
def test_every_row_that_is_not_held_out_is_used_once_per_epoch(tmp_path, seed):
    columns = write_folder(tmp_path)
    reader = read(tmp_path, seed=seed)
    parts = shards(reader, 4, seed)
    held_out = np.concatenate([h.y for s in survey_groups(reader) for h in s.held_out])
    assert 0.05 < len(held_out) / 2050 < 0.15
    scaler = parts[0].encoding.label_scaler
    orders = []
    for epoch in (0, 1):
        stream = Stream(parts, sum(s.rows for s in parts), 64)
        batches = list(stream.batches(epoch))
        assert len(batches) == stream.steps_per_epoch == -(-(2050 - len(held_out)) // 64)
        sizes = [len(b) for b in batches]
        assert max(sizes) - min(sizes) <= len(parts)
        seen = np.concatenate([b.y[:, 0] for b in batches])
        expected = scaler.label(np.setdiff1d(columns["y"], held_out)).astype(np.float32)
        np.testing.assert_array_equal(np.sort(seen), np.sort(expected))
        orders.append(seen)
    assert (orders[0] != orders[1]).mean() > 0.9


def test_batches_contain_the_scaled_rows_of_the_table(tmp_path):
    columns = write_folder(tmp_path)
    parts = shards(read(tmp_path), 3)
    encode = parts[0].encoding
    rows = {round(y, 6): k for k, y in enumerate(columns["y"])}
    for batch in Stream(parts, sum(s.rows for s in parts), 100).batches(0):
        places = [
            rows[round(y, 6)]
            for y in encode.label_scaler.label_raw(batch.y[:, 0].astype(float)).tolist()
            if round(y, 6) in rows
        ]
        assert len(places) > 0.5 * len(batch)  # the others lose their last digit to float32
        for batch_y, x, v in zip(batch.y[:, 0], batch.x, batch.variance[:, 0], strict=True):
            k = int(np.argmin(np.abs(columns["y"] - encode.label_scaler.label_raw(float(batch_y)))))
            exact = (
                np.array([columns[f"x{j}"][k] for j in range(3)]) - encode.feature_scaler.mean
            ) / encode.feature_scaler.std
            np.testing.assert_allclose(x, exact, rtol=1e-5, atol=1e-6)
            assert v == pytest.approx(columns["v"][k] / encode.label_scaler.std**2, rel=1e-5)


def test_rows_of_all_shards_are_mixed(tmp_path):
    """Batches of a sorted table are not sorted."""
    columns = labelled(4000)
    columns["y"] = np.sort(columns["y"])
    write(tmp_path / "a.parquet", columns, group_rows=100)
    parts = shards(read(tmp_path), 4)
    means = [b.y.mean() for b in Stream(parts, sum(s.rows for s in parts), 128).batches(0)]
    # Without shuffling, the means of the batches would have the standard deviation of the labels.
    assert np.std(means) < 0.25


@pytest.mark.parametrize("processes", [2, 3])
def test_batches_do_not_depend_on_the_number_of_processes(tmp_path, processes):
    write_folder(tmp_path)
    parts = shards(read(tmp_path), 6)
    total = sum(s.rows for s in parts)
    alone = Stream(parts, total, 100).batches(0)
    others = [Stream(parts[r::processes], total, 100).batches(0) for r in range(processes)]
    for one, *several in zip(alone, *others, strict=True):
        together = Batch.concatenate(several)
        assert Counter(together.y[:, 0].tolist()) == Counter(one.y[:, 0].tolist())


@pytest.mark.parametrize("first", [0, 1, 7, 20])
def test_a_stream_can_start_at_any_step(tmp_path, first):
    write_folder(tmp_path)
    parts = shards(read(tmp_path), 4)
    stream = Stream(parts, sum(s.rows for s in parts), 90)
    whole, rest = list(stream.batches(3)), list(stream.batches(3, first))
    assert len(rest) == len(whole) - first
    for a, b in zip(whole[first:], rest, strict=True):
        for one, other in zip(a, b, strict=True):
            assert one is other is None or np.array_equal(one, other)


def test_blocks_contain_several_small_groups(tmp_path, monkeypatch):
    monkeypatch.setattr("biv.tables.stream.BLOCK", 350)
    write_folder(tmp_path)
    (shard,) = shards(read(tmp_path), 1)
    blocks = shard.blocks(0)
    sizes = [sum(shard.training_rows[g] for g in block) for block in blocks]
    assert sorted(g for block in blocks for g in block) == list(range(12))
    assert all(350 <= size <= 350 + 200 for size in sizes[:-1])
    assert blocks != shard.blocks(1)
    with ThreadPoolExecutor(1) as pool:
        pieces = list(shard.pieces(0, 1, 0, pool))  # one piece spans all blocks
    assert len(pieces[0]) == shard.rows


def test_a_piece_may_be_empty(tmp_path):
    write(tmp_path / "a.parquet", labelled(400) | {"w": np.ones(400)}, group_rows=20)
    parts = shards(read(tmp_path, Target("y", variance="v", weight="w")), 20)
    stream = Stream(parts[:1], sum(s.rows for s in parts), 4)
    batches = list(stream.batches(0))
    assert len(batches) > parts[0].rows
    assert {len(b) for b in batches} == {0, 1}
    empty = next(b for b in batches if not len(b))
    assert [c.shape for c in empty] == [(0, 3), (0, 1), (0, 1), (0, 1)]
    assert sum(map(len, batches)) == parts[0].rows


def test_an_encoding_survives_json(tmp_path):
    write_folder(tmp_path)
    reader = read(tmp_path)
    survey = Survey.combine(survey_groups(reader))
    encode = Encoding(survey.encoder(), survey.features(), survey.scaler(), 3.5)
    again = Encoding.from_json(encode.to_json())
    rows, _, _ = reader.read(0)
    rows = replace(rows, variance=np.where(np.arange(len(rows)) == 0, np.nan, rows.variance))
    for one, other in zip(encode(rows), again(rows), strict=True):
        assert one is other is None or np.array_equal(one, other)
    assert again(rows).variance[0, 0] == np.float32(3.5 / encode.label_scaler.std**2)


def test_constant_labels_are_refused(tmp_path):
    write(tmp_path / "a.parquet", labelled(100) | {"y": np.full(100, 7.0)})
    with pytest.raises(ValueError, match=re.escape("every label is 7: nothing can be learned")):
        Survey.combine(survey_groups(read(tmp_path, Target("y")))).scaler()
