"""Damaged and forged models, stores and checkpoints, read by every command that reads them."""

import atexit
import functools
import json
import shutil
import tempfile
from pathlib import Path

import pandas as pd

from biv import BIVRegressor
from biv.workflows.checksums import sha256
from fuzz import jobs, stores, unfinished
from fuzz.disk import watched
from fuzz.laws import SAVED, command, contents_below, one_of, require_finite
from fuzz.spoiling import changed, check, spoil, write_forged_model, write_json
from fuzz.tables import require_finite_file


def case(rng, folder, number):  # noqa: ARG001
    """Damage one file and read it by one command."""
    source, out = folder / "source", folder / "out"
    source.mkdir()
    out.mkdir()
    kinds = [_model_folder] * 5 + [_model_file] * 2 + [stores.case] * 3 + [unfinished.case]
    kind = one_of(rng, kinds)
    _current_model(), unfinished.interrupted()  # cached before the writes are recorded
    with watched(folder.parent) as watch:
        kind(rng, source, out, watch)
    # Synchronising the output folder itself is allowed.
    outside = [
        path for _, path in watch.calls if path != str(out) and out not in Path(path).parents
    ]
    assert not outside, f"a file outside the output folder was written: {outside[0]}"


def _model_folder(rng, source, out, watch):
    """Damage one file of a model folder, then predict with it or write its report."""
    model, good = source / "model", one_of(rng, [SAVED / "folder", _current_model()])
    shutil.copytree(good, model)
    names = ["about.json", "evidence.json", "comparison.json"]
    name = one_of(rng, [name for name in names if (good / name).exists()])
    kind = one_of(rng, ["json"] * 6 + ["bytes"] * 2 + ["tensors", "missing", "file"])
    if kind == "json":
        write_json(model / name, changed(rng, json.loads((model / name).read_text())))
    elif kind == "tensors":
        name = "model.safetensors"
        write_forged_model(rng, good / name, model / name)
    else:
        name = one_of(rng, [name, "model.safetensors"])
        spoil(rng, model / name, kind)
    if name != "about.json" and rng.random() < 0.5:
        _update_checksums(model)
    action = one_of(rng, ["report", "report", "predict"])
    comparison = ()
    if action == "report" and rng.random() < 0.2:
        write_json(source / "comparison.json", changed(rng, _comparison()))
        comparison = "--comparison", source / "comparison.json"
    before = contents_below(source)
    watch.calls.clear()
    if action == "report":
        result = out / "page.html"
        outcome = command("report", model, *comparison, "--out", result)
    else:
        result = out / "p.csv"
        outcome = command("predict", model, SAVED / "table.csv", "--out", result)
    check(outcome, source, out, before, result)
    if outcome.code == 0 and action == "predict":
        require_finite_file(result)


@functools.cache
def _current_model():
    """Return a model folder of the current format, with a comparison; it is made once."""
    folder = Path(tempfile.mkdtemp(prefix="biv-fuzz-current-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_json(folder / "comparison.json", _comparison())
    options = *jobs.COLUMNS, *jobs.FEW, "--comparison", folder / "comparison.json"
    outcome = command("train", SAVED / "table.csv", *options, "--out", folder / "model")
    assert outcome.code == 0, f"the model to damage cannot be trained: {outcome}"
    return folder / "model"


def _update_checksums(model):
    """Update the checksums of a damaged model, so that the damage passes that check."""
    about = json.loads((model / "about.json").read_text())
    if "files" in about:
        about["files"] = {n: sha256(model / n) for n in about["files"] if (model / n).exists()}
        write_json(model / "about.json", about)


def _comparison():
    """Return a small example of what `biv compare --json` prints."""
    method = {
        "method": "BIV", "mse": 1.0, "mse_stderr": 0.1, "above_best": 0.0, "above_best_stderr": 0.0,
        "as_good_as_best": True, "chosen": "BIV", "seconds": 1.0,
    }  # fmt: skip
    number = {"value": 0.1, "low": 0.05, "high": 0.2}
    return {
        "target": "y", "control": number, "failed": {}, "folds": 5, "gain": number,
        "gain_all_labels_alike": number, "label_variance": 1.0, "methods": [method, method],
        "recommendation": "BIV", "rows": 60, "rows_in_all": 60,
    }  # fmt: skip


def _model_file(rng, source, out, watch):
    """Damage a file of `BIVRegressor.save`, then load it."""
    path = source / "model.biv"
    good = SAVED / one_of(rng, ["model.biv", "two-outputs.biv"])
    if rng.random() < 0.75:
        write_forged_model(rng, good, path)
    else:
        shutil.copy(good, path)
        spoil(rng, path, "bytes")
    rows = pd.read_csv(SAVED / "table.csv")[["a", "b", "town"]]
    before = contents_below(source)
    watch.calls.clear()
    try:
        model = BIVRegressor.load(path)
    except ValueError as error:
        assert str(path) in str(error), f"the error does not name the file: {error}"
        assert len(str(error)) < 4_000, f"an error of {len(str(error)):,} characters"
    else:
        assert model.checkpoint is None, f"the file chose the checkpoint {model.checkpoint}"
        assert not callable(model.model), "the file chose a function"
        try:
            mean, std = model.predict(rows, return_std=True)
        except ValueError as error:  # the rows do not fit the columns of the changed model
            assert "X" in str(error) or "column" in str(error), f"predict: {error!r}"
        else:
            require_finite("the prediction", mean)
            require_finite("its standard deviation", std)
            model.save(out / "again.biv")
    assert contents_below(source) == before, "the source has changed"
