"""The scripts of examples/: all run at their small size, and their claims hold there."""

import importlib.util
import math
import re
from numbers import Real
from pathlib import Path

import numpy as np
import pytest
import torch

import biv

FOLDER = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))
SIX = {
    "amyloid",
    "bootstrapped_targets",
    "crowd_ratings",
    "ensemble_teacher",
    "kalman_filter",
    "pytorch_loop",
}


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def numbers(result):
    """Yield all numbers that a script returns, also nested ones."""
    if isinstance(result, Real):
        yield float(result)
    elif isinstance(result, np.ndarray):
        yield from result.ravel().tolist()
    elif isinstance(result, (dict, list, tuple)):
        for part in result.values() if isinstance(result, dict) else result:
            yield from numbers(part)


def global_generators():
    return torch.random.get_rng_state().tolist(), repr(np.random.get_state())  # noqa: NPY002


def mean_ratio(result, weighted="biv", alike="l2"):
    return float(np.mean(np.divide(result[weighted], result[alike])))


# Claims of the docstrings. The margins allow for other machines; seeds differ by less.


def check_pytorch_loop(_module, result):
    assert mean_ratio(result["clean"], "BIVLoss", "MSELoss") < 0.97
    for name, clean in result["clean"].items():
        assert np.mean(result["estimated"][name]) == pytest.approx(np.mean(clean), abs=0.06)


def check_crowd_ratings(_module, result):
    assert mean_ratio(result) < 0.95
    assert np.mean(result["calibration"]) == pytest.approx(1, abs=0.15)


def check_kalman_filter(_module, result):
    assert mean_ratio(result) < 0.95
    assert np.mean(result["calibration"]) == pytest.approx(1, abs=0.15)


def check_ensemble_teacher(_module, result):
    assert mean_ratio(result) < 0.99
    assert mean_ratio(result, "l2", "teachers") == pytest.approx(0.97, abs=0.06)
    assert np.mean(result["calibration"]) > 1.5  # the error bars of the teachers are too small


def check_bootstrapped_targets(module, result):
    for world, (slip, methods) in module.WORLDS.items():
        truth, share = module.exact_values(slip)
        for method in methods:
            assert (result[world, method] < 0.95 * np.sqrt(share @ truth**2)).all()
        early, _ = result[world, module.BIV] / result[world, module.L2]
        assert early.mean() < 0.85


def check_amyloid(_module, result):
    assert "</html>" in result["page"].read_text(encoding="utf-8")
    for loss in ("biv", "l2"):
        weighted, alike = result[loss]
        assert weighted.value < 0.5 * 2.57  # 2.57 is the label variance, as `biv inspect` prints it
        assert alike.value < 0.5 * 2.57


CHECKS = {name.removeprefix("check_"): f for name, f in globals().items() if "check_" in name}


def test_the_six_examples_exist_and_have_checks():
    assert set(SCRIPTS) >= SIX
    assert set(CHECKS) == SIX


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_docstring_has_the_commands_and_the_results(name):
    text = load(name).__doc__
    assert re.search(rf"^    python examples/{name}\.py  ", text, re.MULTILINE)
    assert re.search(rf"^    python examples/{name}\.py --small  ", text, re.MULTILINE)
    _, _, outcome = text.partition("Output (the last digits differ between machines)")
    assert re.search(r"^ +\S.*\d ± \d", outcome, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_small_size(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    module, before = load(name), global_generators()
    result = module.main(["--small"])
    assert global_generators() == before  # no example draws from a global generator
    values = list(numbers(result))
    assert len(values) >= 4
    assert all(map(math.isfinite, values))
    printed = capsys.readouterr().out
    assert "±" in printed
    assert "nan" not in printed.split()
    assert [path.name for path in tmp_path.iterdir()] == (["build"] if name == "amyloid" else [])
    CHECKS.get(name, lambda *_: None)(module, result)


def shuffled(variance, seed=0):
    return variance[np.random.default_rng(seed).permutation(len(variance))]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::biv.estimator.findings.ErrorBarWarning")
@pytest.mark.parametrize("name", ["pytorch_loop", "crowd_ratings", "kalman_filter"])
def test_error_bars_of_other_rows_do_not_help(name, monkeypatch):
    module = load(name)
    fit = biv.BIVRegressor.fit

    def fit_shuffled(self, x, y, y_var=None):
        return fit(self, x, y, y_var=None if y_var is None else shuffled(y_var))

    monkeypatch.setattr(biv.BIVRegressor, "fit", fit_shuffled)
    if name == "pytorch_loop":
        loss = biv.BIVLoss()
        flipped = {"BIVLoss": lambda pred, y, variance: loss(pred, y, variance.flip(0))}
        monkeypatch.setattr(module, "LOSSES", module.LOSSES | flipped)
    with pytest.raises(AssertionError, match="mean_ratio"):
        CHECKS[name](module, module.main(["--small"]))
