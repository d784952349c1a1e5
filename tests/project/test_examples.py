"""The scripts of examples/: all run at their small size, and what they claim holds there."""

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


def numbers(found):
    """All that a script returns, however it is nested."""
    if isinstance(found, Real):
        yield float(found)
    elif isinstance(found, np.ndarray):
        yield from found.ravel().tolist()
    elif isinstance(found, (dict, list, tuple)):
        for part in found.values() if isinstance(found, dict) else found:
            yield from numbers(part)


def global_generators():
    return torch.random.get_rng_state().tolist(), repr(np.random.get_state())  # noqa: NPY002


def mean_ratio(found, weighted="biv", alike="l2"):
    return float(np.mean(np.divide(found[weighted], found[alike])))


# What the docstrings claim, with room for other machines: seeds differ by less than the margins.


def check_pytorch_loop(_module, found):
    assert mean_ratio(found["clean"], "BIVLoss", "MSELoss") < 0.97
    for name, clean in found["clean"].items():
        assert np.mean(found["estimated"][name]) == pytest.approx(np.mean(clean), abs=0.06)


def check_crowd_ratings(_module, found):
    assert mean_ratio(found) < 0.95
    assert np.mean(found["calibration"]) == pytest.approx(1, abs=0.15)


def check_kalman_filter(_module, found):
    assert mean_ratio(found) < 0.95
    assert np.mean(found["calibration"]) == pytest.approx(1, abs=0.15)


def check_ensemble_teacher(_module, found):
    assert mean_ratio(found) < 0.99
    assert mean_ratio(found, "l2", "teachers") == pytest.approx(0.97, abs=0.06)
    assert np.mean(found["calibration"]) > 1.5  # teachers are surer than they should be


def check_bootstrapped_targets(module, found):
    for world, (slip, methods) in module.WORLDS.items():
        truth, share = module.exact_values(slip)
        for method in methods:
            assert (found[world, method] < 0.95 * np.sqrt(share @ truth**2)).all()
        early, _ = found[world, module.BIV] / found[world, module.L2]
        assert early.mean() < 0.85


def check_amyloid(_module, found):
    assert "</html>" in found["page"].read_text(encoding="utf-8")
    for loss in ("biv", "l2"):
        weighted, alike = found[loss]
        assert weighted.value < 0.5 * 2.57  # the label variance, as `biv inspect` has it
        assert alike.value < 0.5 * 2.57


CHECKS = {name.removeprefix("check_"): f for name, f in globals().items() if "check_" in name}


def test_the_six_are_there_and_checked():
    assert set(SCRIPTS) >= SIX
    assert set(CHECKS) == SIX


@pytest.mark.parametrize("name", SCRIPTS)
def test_docstring_says_how_to_run_it_and_what_comes_out(name):
    text = load(name).__doc__
    assert re.search(rf"^    python examples/{name}\.py  ", text, re.MULTILINE)
    assert re.search(rf"^    python examples/{name}\.py --small  ", text, re.MULTILINE)
    _, _, outcome = text.partition("What comes out")
    assert re.search(r"^ +\S.*\d ± \d", outcome, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_small_size(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    module, before = load(name), global_generators()
    found = module.main(["--small"])
    assert global_generators() == before  # everything draws from generators of its own
    values = list(numbers(found))
    assert len(values) >= 4
    assert all(map(math.isfinite, values))
    printed = capsys.readouterr().out
    assert "±" in printed
    assert "nan" not in printed.split()
    assert [path.name for path in tmp_path.iterdir()] == (["build"] if name == "amyloid" else [])
    CHECKS.get(name, lambda *_: None)(module, found)


def shuffled(variance, seed=0):
    return variance[np.random.default_rng(seed).permutation(len(variance))]


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::biv.estimator.findings.ErrorBarWarning"
)  # the regressor notices
@pytest.mark.parametrize("name", ["pytorch_loop", "crowd_ratings", "kalman_filter"])
def test_error_bars_of_other_rows_do_not_help(name, monkeypatch):
    module = load(name)
    fit = biv.BIVRegressor.fit

    def fit_with_those(self, x, y, y_var=None):
        return fit(self, x, y, y_var=None if y_var is None else shuffled(y_var))

    monkeypatch.setattr(biv.BIVRegressor, "fit", fit_with_those)
    if name == "pytorch_loop":
        loss = biv.BIVLoss()
        those = {"BIVLoss": lambda pred, y, variance: loss(pred, y, variance.flip(0))}
        monkeypatch.setattr(module, "LOSSES", module.LOSSES | those)
    with pytest.raises(AssertionError, match="mean_ratio"):
        CHECKS[name](module, module.main(["--small"]))
