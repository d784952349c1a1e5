"""Runs as data, the store that keeps them, and the processes that train them."""

import csv
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from biv.cli import main
from biv.experiments import runner
from biv.experiments.artefacts import PRESETS, Grid, Line, artefacts, find, gamma
from biv.experiments.protocol import MemberFactory, schedule, source
from biv.experiments.spec import Loss, Noise, Run
from biv.experiments.store import Failure, Result, Store
from biv.experiments.summary import summarise
from biv.report import figures, tables
from biv.training import History

RUN = Run(
    "bike2011",
    gamma(0.5),
    Loss("biv", epsilon=0.05),
    seed=3,
    train_rows=660,
    test_rows=264,
    epochs=20,
)
SMOKE = artefacts("bike2011", PRESETS["smoke"])


# A run.


def test_a_run_is_its_canonical_form():
    text = RUN.canonical()
    assert json.loads(text)["noise"]["parameter"] == 0.5
    assert Run.from_canonical(text) == RUN
    assert Run.from_canonical(text).key == RUN.key
    assert (
        replace(RUN, noise=Noise("gamma", 1), learning_rate=1).key
        == replace(RUN, noise=Noise("gamma", 1.0), learning_rate=1.0).key
    )


def test_the_hash_of_a_run_stays():
    """Computed with sha256sum from the canonical form, written by hand; stores depend on it."""
    assert (
        Run("bike", Noise("gamma", 1.0), Loss("biv", epsilon=0.05), seed=0).key
        == "e2fe741727da033bd45f"
    )


@pytest.mark.parametrize("field", [f.name for f in fields(Run)])
def test_every_field_is_part_of_the_hash(field):
    other = {
        "dataset": "bike",
        "noise": gamma(0.25),
        "loss": Loss("l2"),
        "test_region": "quiet",
        "optimizer": "sgd",
        "learning_rate": 0.5,
    }
    changed = replace(RUN, **{field: other.get(field, 7)})
    assert changed.key != RUN.key


@pytest.mark.parametrize(
    "change", [{"level": 2.0}, {"disturbance": 1.0}, {"squared_reading": True}, {"kind": "binary"}]
)
def test_every_field_of_the_noise_is_part_of_the_hash(change):
    assert replace(RUN, noise=replace(RUN.noise, **change)).key != RUN.key


def test_what_a_run_cannot_be():
    for make in (
        lambda: Noise("poisson"),
        lambda: Loss("l1"),
        lambda: replace(RUN, dataset="mnist"),
        lambda: replace(RUN, test_region="left"),
    ):
        with pytest.raises(ValueError, match="must be one of '.*; found '"):
            make()
    text = RUN.canonical().replace('"version":1', '"version":0')
    with pytest.raises(ValueError, match="version 1 was expected; found version 0"):
        Run.from_canonical(text)


# What a run trains on.


def test_methods_of_a_seed_see_the_same_split_and_noise():
    make = MemberFactory()
    biv, l2 = make(RUN), make(replace(RUN, loss=Loss("l2")))
    assert biv.train.x is l2.train.x
    assert biv.test.x is l2.test.x
    assert (biv.train.y == l2.train.y).all()
    clean = make(replace(RUN, noise=Noise()))
    assert clean.train.x is biv.train.x
    residual = (biv.train.y - clean.train.y) / biv.train.variance.sqrt()
    assert residual.std().item() == pytest.approx(1.0, abs=0.1)
    other = make(replace(RUN, seed=4))
    assert not (other.train.y == biv.train.y).all()


def test_noise_has_the_mean_and_labels_the_scale_of_the_paper():
    prepared = source("bike2011")
    whole = replace(RUN, train_rows=5_500, test_rows=2_200)
    for noise in (gamma(1.0), Noise("uniform", 1.0), Noise("binary", 0.5), Noise("hours", 0.1)):
        member = MemberFactory()(replace(whole, noise=noise))
        assert member.train.variance.mean().item() == pytest.approx(0.608, rel=0.06)
    half = MemberFactory()(replace(whole, noise=Noise("gamma", 1.0, level=0.5)))
    assert half.train.variance.mean().item() == pytest.approx(0.304, rel=0.06)
    y = prepared.scaler.label(prepared.data.y)
    assert (y.mean(), y.var(ddof=1)) == (pytest.approx(0.0, abs=1e-12), pytest.approx(1.0))
    assert prepared.x.shape == (8645, 19)


def test_a_disturbed_variance_keeps_the_labels():
    make = MemberFactory()
    plain, told, squared = (
        make(replace(RUN, noise=replace(gamma(1.0), disturbance=d, squared_reading=s)))
        for d, s in ((0.0, False), (2.0, False), (2.0, True))
    )
    assert (plain.train.y == told.train.y).all()
    spread = [
        ((m.train.variance / plain.train.variance) - 1).square().mean().sqrt().item()
        for m in (told, squared)
    ]
    assert spread[0] == pytest.approx(2**0.5 / 3, rel=0.15)
    assert spread[1] > spread[0]


def test_regions_of_the_day_make_up_the_test_set():
    make = MemberFactory()
    sizes = {
        region: len(make(replace(RUN, test_region=region)).test)
        for region in ("all", "quiet", "noisy")
    }
    assert sizes["all"] == 264 == sizes["quiet"] + sizes["noisy"]
    member = make(replace(RUN, noise=Noise("hours", 0.1)))
    assert sorted(set(np.round(member.train.variance.flatten().tolist(), 4))) == pytest.approx(
        [0.0608, 1.2], rel=0.1
    )


def test_cutoffs_are_in_units_of_the_mean_noise_or_raw():
    make, prepared = MemberFactory(), source("bike2011")
    relative = make(replace(RUN, loss=Loss("cutoff", threshold=0.25))).loss.threshold
    assert relative == pytest.approx(0.25 * 0.608)
    raw = make(replace(RUN, loss=Loss("cutoff", threshold=1.0, raw_threshold=True))).loss.threshold
    assert raw == pytest.approx(1.0 / prepared.scaler.std**2)


def test_the_schedule_is_the_run_s():
    found = schedule(replace(RUN, optimizer="sgd", test_every=4))
    assert (found.epochs, found.batch_size, found.test_every, found.optimizer, found.drop_last) == (
        20,
        256,
        4,
        "sgd",
        True,
    )


# The artefacts.


def test_the_sixteen_artefacts():
    whole = artefacts("bike", PRESETS["paper"])
    assert list(whole) == ["table1", *(f"fig{n:02d}" for n in range(1, 16))]
    assert len(whole["table1"].runs(5)) == 110
    assert whole["fig06"].runs(5) == whole["fig07"].runs(5)
    assert whole["fig12"].runs(5) == whole["fig13"].runs(5)
    every = {run for artefact in whole.values() for run in artefact.runs(5)}
    clean = [run for run in every if run.noise.kind == "none"]
    assert len(clean) == 5  # trained once, used by all
    assert {(run.train_rows, run.test_rows, run.epochs) for run in every} == {(7_000, 3_379, 100)}
    assert {run.batch_size * run.test_every for run in every} == {256}


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("fig03", "Gamma_BIV_CO"),
        ("3", "Gamma_BIV_CO"),
        ("varnoise", "VarNoise"),
        ("TABLE1", "GammaResults"),
    ],
)
def test_artefacts_go_by_number_or_name(name, label):
    assert find(name, SMOKE).label == label


def test_an_unknown_artefact_is_an_error():
    with pytest.raises(ValueError, match="table1 .*fig15 .*found 'fig16'"):
        find("fig16", SMOKE)


# The store.


def result(run=RUN, seed=0, diverged_at=None):
    rng = np.random.default_rng(seed)
    steps = run.epochs * (run.train_rows // run.batch_size)
    curves = rng.random((3, steps))
    history = History(curves[0], curves[1], curves[2], np.arange(1, steps + 1), diverged_at)
    return Result.of(run, history, {"machine": "here"})


def assert_same_result(one, other):
    assert one.run == other.run
    assert one.diverged_at == other.diverged_at
    for name in ("test_loss", "train_loss", "train_loss_std", "effective_batch_size"):
        assert np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True), name


def test_what_is_put_in_comes_out(tmp_path):
    store = Store(tmp_path / "runs.sqlite")
    runs = [replace(RUN, seed=seed) for seed in range(4)]
    kept = [result(run, seed, None if seed else 7) for seed, run in enumerate(runs[:3])]
    store.add(kept)
    found = Store(tmp_path / "runs.sqlite").results(runs)
    assert list(found) == runs[:3]
    for one in kept:
        assert_same_result(found[one.run], one)
        assert found[one.run].provenance == {"machine": "here"}
    assert store.missing([runs[3], *runs, runs[3]]) == [runs[3]]
    assert sorted(run.seed for run in store.runs()) == [0, 1, 2]
    assert found[runs[0]].diverged
    assert len(found[runs[1]].smoothed) == 40 - 34
    assert [p.name for p in tmp_path.iterdir()] == ["runs.sqlite"]


def test_a_result_keeps_the_epochs_of_a_training_curve():
    history = History(np.arange(40.0), np.full(40, 9.0), np.arange(40.0), np.arange(1, 41))
    kept = Result.of(RUN, history, {})
    assert kept.train_loss.tolist() == [2 * k + 0.5 for k in range(20)]
    assert (kept.train_loss_std == 0.5).all()
    assert (kept.effective_batch_size == 9.0).all()


def test_a_failure_is_kept_until_the_run_is_done(tmp_path):
    store = Store(tmp_path / "runs.sqlite")
    store.add([Failure(RUN, "ValueError: no row", {})])
    assert store.missing([RUN]) == [RUN]
    assert [failure.error for failure in store.failures()] == ["ValueError: no row"]
    store.add([result()])
    store.add([Failure(RUN, "ValueError: too late", {}), result(seed=1)])
    assert store.failures() == []
    assert_same_result(store.results([RUN])[RUN], result())


def test_all_is_written_or_nothing(tmp_path):
    store = Store(tmp_path / "runs.sqlite")

    def outcomes():
        yield result()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.add(outcomes())
    assert len(store) == 0


def _other_database(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE birds (name TEXT)")
    connection.close()


def _older_version(path):
    Store(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 0")
    connection.close()


def _truncated(path):
    store = Store(path)
    store.add([result(replace(RUN, seed=seed), seed) for seed in range(40)])
    path.write_bytes(path.read_bytes()[:-9000])


BAD_FILES = {
    "text": (
        lambda path: path.write_text("not a database, but long enough to be one" * 99),
        "is not a store, or is damaged",
    ),
    "truncated": (_truncated, "is not a store, or is damaged"),
    "another database": (_other_database, "is a database of another kind"),
    "older version": (_older_version, "must be a store of version 1; found version 0"),
}


@pytest.mark.parametrize(("spoil", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_file_that_is_no_store_is_named_and_kept(spoil, message, tmp_path):
    path = tmp_path / "runs.sqlite"
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=rf"runs\.sqlite {message}"):
        Store(path)
    assert path.read_bytes() == before


def test_two_writers_do_not_hurt_each_other(tmp_path):
    path = tmp_path / "runs.sqlite"
    runs = [replace(RUN, seed=seed) for seed in range(30)]
    threads = [
        threading.Thread(
            target=lambda own=own: [Store(path).add([result(run, run.seed)]) for run in own]
        )
        for own in (runs[:20], runs[10:])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = Store(path).results(runs)
    assert len(found) == 30
    for run in runs:
        assert_same_result(found[run], result(run, run.seed))


# The processes.


def test_stacks_are_of_one_shape_and_whole():
    runs = SMOKE["table1"].runs(5) + SMOKE["fig14"].runs(5)
    for jobs in (1, 2, 3):
        stacks = runner.pack(runs, jobs)
        assert sorted(run.key for stack in stacks for run in stack) == sorted(
            run.key for run in dict.fromkeys(runs)
        )
        assert all(len({run.shape() for run in stack}) == 1 for stack in stacks)
        assert max(len(stack) for stack in stacks) <= runner.LARGEST_STACK
    assert runner.pack([], 2) == []


@pytest.mark.slow
def test_what_is_missing_is_trained_and_what_fails_is_told(tmp_path):
    store = Store(tmp_path / "runs.sqlite")
    grid = Grid("bike2011", PRESETS["smoke"])
    good = grid.line("", gamma(1.0), Loss("biv", epsilon=0.05)).runs(3)
    bad = grid.line("", gamma(1.0), Loss("cutoff", threshold=1e-12)).runs(1)
    lines = []
    plan = runner.complete([*good, *bad, *good], store, jobs=2, say=lines.append)
    assert (plan.stored, plan.trained, len(plan.failed)) == (0, 3, 1)
    assert "keeps none of 660 training rows" in plan.failed[0].error
    assert lines[-1].startswith(f"stack {len(lines)} of {len(lines)}: ")
    again = runner.complete([*good, *bad], store, jobs=1)
    assert (again.stored, again.trained, len(again.failed)) == (3, 0, 1)
    assert runner.complete(good, store) == runner.Plan(3, 0, [])
    (alone,) = runner.train(good[1:2])
    assert_same_result(store.results(good)[good[1]], alone)


@pytest.mark.slow
def test_killed_twenty_times_it_still_ends_the_same(tmp_path):
    """SIGKILL at random moments: only what is missing is trained again, to the same bits."""
    code = """
import sys
from biv.experiments import runner
from biv.experiments.store import Store
from test_experiments import SMOKE
if __name__ == "__main__":
    runner.LARGEST_STACK = 4
    runner.complete(SMOKE["table1"].runs(2), Store(sys.argv[1]), jobs=2)
"""
    script, path = tmp_path / "plan.py", tmp_path / "runs.sqlite"
    script.write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    runs, moments, kept = SMOKE["table1"].runs(2), random.Random(0), 0
    kills = 0
    while kills < 20:
        process = subprocess.Popen([sys.executable, script, path], env=environment)
        time.sleep(moments.uniform(0.5, 6.0))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
        done = len(runs) - len(Store(path).missing(runs))
        assert done >= kept
        kept = done
        if done == len(runs):  # begin anew, there are kills left
            path.unlink()
            kept = 0
    subprocess.run([sys.executable, script, path], env=environment, check=True)
    found = Store(path).results(runs)
    assert len(found) == len(runs)
    for outcome in runner.train(runs):
        assert_same_result(found[outcome.run], outcome)


# The paper and its readings.


def test_every_departure_from_the_paper_is_marked_and_listed():
    root = Path(__file__).parent.parent
    sources = "".join(p.read_text(encoding="utf-8") for p in (root / "src").rglob("*.py"))
    marked = {int(n) for n in re.findall(r"NOTE\[DIFF\] (\d+)", sources)}
    listed = [
        int(n)
        for n in re.findall(
            r"^(\d+)\. \*\*",
            (root / "paper" / "DEVIATIONS.md").read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    ]
    assert listed == list(range(1, len(listed) + 1))
    assert marked == set(listed)


def line_of(*curves, diverged=()):
    """A line whose runs have these test losses."""
    runs = [replace(RUN, seed=seed) for seed in range(len(curves))]
    flat = np.zeros(20, dtype=np.float32)
    results = {
        run: Result(
            run,
            np.asarray(curve, dtype=np.float32),
            flat,
            flat,
            flat,
            3 if run.seed in diverged else None,
            {},
        )
        for run, curve in zip(runs, curves, strict=True)
    }
    return Line("L2", RUN), results


def test_the_headline_is_the_lowest_point_of_the_mean_smoothed_curve():
    rng = np.random.default_rng(0)
    curves = rng.random((3, 50)) + np.linspace(1, 0, 50) ** 2
    line, results = line_of(*curves)
    smooth = np.array([[c[k : k + 35].mean() for k in range(16)] for c in curves])
    own = summarise(line, results, seeds=3)
    step = smooth.mean(axis=0).argmin()
    assert own.lowest == pytest.approx(smooth.mean(axis=0)[step])
    assert own.lowest_std == pytest.approx(smooth[:, step].std(ddof=1), rel=1e-5)
    np.testing.assert_allclose(own.own_lowest, smooth.min(axis=1), rtol=1e-6)
    assert own.samples.tolist() == [256 * n for n in range(35, 51)]


def test_diverged_runs_are_counted_and_left_out():
    low, high = np.full(50, 0.2), np.full(50, 3.0)
    line, results = line_of(low, high, low, diverged=(2,))
    own = summarise(line, results, seeds=3)
    assert (own.diverged, len(own.seeds)) == (2, 3)
    assert own.lowest == pytest.approx(0.2)
    line, results = line_of(high, high)
    gone = summarise(line, results, seeds=5)
    assert np.isnan(gone.lowest)
    assert gone.seeds == (0, 1)
    assert summarise(line, {}, seeds=5) is None


def table_results(lowest):
    """Flat curves at the given heights: {panel: {method: height or None}}."""
    table, results = SMOKE["table1"], {}
    flat = np.zeros(20, dtype=np.float32)
    for panel in table.panels:
        for line in panel.lines:
            height = lowest.get((panel.title, line.label), 0.5)
            for run in line.runs(2) if height is not None else ():
                curve = np.full(40, height + 0.001 * run.seed, dtype=np.float32)
                results[run] = Result(run, curve, flat, flat, flat, None, {})
    return table, results


def test_the_table_says_what_the_runs_do():
    table, results = table_results(
        {
            ("α=1", "L2"): 0.2,
            ("α=1", "BIV"): 0.15,
            ("α=1", "GT"): 0.1,
            ("α=0.5", "GT"): 0.1,
            ("α=0.25", "GT"): 0.1,
            ("α=0.25", "IV"): 2.0,
            ("α=0.5", "C=μ"): None,
        }
    )
    columns = tables.cells(table, results, 2)
    found = {(cell.noise, cell.method): cell for column in columns for cell in column}
    biv = found["α=1", "BIV"]
    assert biv.best
    assert sum(cell.best for cell in columns[0]) == 1
    assert biv.ratio == pytest.approx(1.5, rel=0.01)
    assert biv.closed == pytest.approx(0.5, rel=0.02)
    assert biv.paper == (0.096, 0.006)
    text = tables.markdown(columns)
    assert "| 0.150 ± 0.001 * |" in re.sub(r" +\|", " |", text)
    assert "diverged 2/2" in text
    assert "not run" in text
    assert "N.A." in text
    rows = list(csv.DictReader(tables.comma_separated(columns).splitlines()))
    assert len(rows) == 24
    assert float(rows[5]["lowest"]) == pytest.approx(0.1505)
    assert rows[5]["best"] == "1"
    latex = tables.latex(columns)
    assert r"\mathbf{0.150} \pm 0.001" in latex or r"\mathbf{0.151} \pm 0.001" in latex
    assert latex.count(r"\\") == 9


@pytest.mark.parametrize("name", ["table1", "fig05", "fig14"])
def test_figures_are_drawn_from_what_there_is(name, tmp_path):
    """Whole, in part or from nothing; the same runs give the same file."""
    _, results = table_results({})
    artefact = SMOKE[name]
    flat = np.linspace(1, 0.5, 40, dtype=np.float32)
    for run in artefact.runs(2):
        epochs = np.ones(20, dtype=np.float32)
        results.setdefault(run, Result(run, flat, epochs, epochs / 2, epochs, None, {}))
    for there in (results, dict(list(results.items())[:3]), {}):
        paths = figures.save(figures.draw(artefact, there, 2), tmp_path, name)
        assert [p.suffix for p in paths] == [".svg", ".png"]
        first = paths[0].read_bytes()
        figures.save(figures.draw(artefact, there, 2), tmp_path, name)
        assert paths[0].read_bytes() == first
        assert artefact.label.encode() in first
    caption = figures.caption(artefact, {}, 2)
    assert f"{len(artefact.runs(2))} of {len(artefact.runs(2))} runs are missing" in caption


# The command.


@pytest.mark.slow
def test_reproduce_trains_once_and_draws_from_the_store(tmp_path, capsys):
    out = ["--dataset", "bike2011", "--preset", "smoke", "--seeds", "1", "--out", str(tmp_path)]
    assert main(["reproduce", "table1", "fig03", *out, "--jobs", "2"]) == 0
    shown = capsys.readouterr().out
    assert "24 runs trained, 0 were stored already" in shown
    assert "| α=0.25 | C=μ/20 |" in shown
    table = (tmp_path / "table1.csv").read_bytes()
    assert main(["reproduce", "table1", "4", *out]) == 0
    assert "2 runs trained, 22 were stored already" in capsys.readouterr().out
    assert (tmp_path / "table1.csv").read_bytes() == table
    names = {path.name for path in tmp_path.iterdir()}
    assert names >= {
        "runs.sqlite",
        "table1.md",
        "table1.tex",
        "fig03.svg",
        "fig03.png",
        "fig04.svg",
    }
    assert main(["reproduce", "--list", *out]) == 0
    listed = capsys.readouterr().out
    assert re.search(r"^table1 +GammaResults +22 +22 +0 s", listed, re.MULTILINE)
    assert main(["reproduce", "fig15", "--list", *out[:-1], str(tmp_path / "new")]) == 0
    listed = capsys.readouterr().out
    assert "table1" not in listed
    assert re.search(r"^fig15 +VarNoise +6 +0 +\d+ s", listed, re.MULTILINE)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "fig16"], "found 'fig16'"),
        (["reproduce"], "name what to reproduce"),
        (["reproduce", "table1", "--seeds", "0"], "--seeds and --jobs must be at least 1"),
    ],
)
def test_bad_usage_is_exit_code_2(arguments, message, tmp_path, capsys):
    assert main([*arguments, "--out", str(tmp_path / "new")]) == 2
    assert message in capsys.readouterr().err


def test_without_matplotlib_nothing_is_trained_in_vain(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["reproduce", "table1", "--out", str(tmp_path / "new")]) == 2
    assert "pip install matplotlib" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("arguments", [["--help"], ["reproduce", "--help"]])
def test_help_has_examples(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 0
    assert "examples:" in capsys.readouterr().out
