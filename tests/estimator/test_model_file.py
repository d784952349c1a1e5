"""Files of fitted models."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import biv
from biv.epsilon import MinimumBatchSize
from biv.estimator import model_file
from helpers.frames import SMALL, table

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.slow
def test_a_changed_bit_is_an_error(fitted, tmp_path):
    path = tmp_path / "model"
    fitted.save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(8, len(whole), size=60):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="model (is not a model|must be a)"):
            biv.BIVRegressor.load(path)


@pytest.fixture(scope="module")
def fitted():
    x, y, std, _ = table(200)
    return biv.BIVRegressor(**SMALL).fit(x, y, y_std=std)


@pytest.mark.slow
def test_a_loaded_model_predicts_the_same_in_another_process(fitted, tmp_path):
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]
    x, *_ = table(50, 3)
    np.save(tmp_path / "x.npy", x)
    code = f"""
import numpy as np, biv
model = biv.BIVRegressor.load({str(path)!r})
mean, std = model.predict(np.load({str(tmp_path / "x.npy")!r}), return_std=True)
np.save({str(tmp_path / "y.npy")!r}, [mean, std])
print(model.n_epochs_, model.epsilon_, model.tau2_, model.effective_sample_size_, model.get_params())
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    np.testing.assert_allclose(
        np.load(tmp_path / "y.npy"), fitted.predict(x, return_std=True), rtol=1e-6
    )
    attributes = fitted.n_epochs_, fitted.epsilon_, fitted.tau2_, fitted.effective_sample_size_
    assert run.stdout.strip() == " ".join(map(str, (*attributes, fitted.get_params())))


@pytest.mark.slow
def test_several_outputs_and_a_policy_can_be_saved(tmp_path):
    x, y, std, _ = table(100)
    both, bars = np.stack([y, -y], axis=1), np.stack([std, std], axis=1)
    both[x[:, 0] > 0, 1] = np.nan  # the features of the two outputs are scaled differently
    options = {**SMALL, "epsilon": MinimumBatchSize(fraction=0.25), "model": "paper"}
    model = biv.BIVRegressor(**options).fit(x, both, y_std=bars)
    model.save(tmp_path / "model")
    loaded = biv.BIVRegressor.load(tmp_path / "model")
    np.testing.assert_allclose(loaded.predict(x), model.predict(x), rtol=1e-6)
    assert loaded.epsilon == "auto"
    assert loaded.epsilon_ is None


@pytest.mark.parametrize("length", [0, 4, 100, -1])
def test_the_error_of_a_truncated_file_names_it(length, fitted, tmp_path):
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match="model.safetensors is not a model, or is damaged"):
        biv.BIVRegressor.load(path)


def test_files_that_are_not_models_are_an_error(fitted, tmp_path):
    from safetensors.torch import save_file

    fitted.save(tmp_path / "good")
    save_file({"x": torch.zeros(3)}, tmp_path / "other")
    with pytest.raises(ValueError, match="other must be a 'biv model 1'; got None"):
        biv.BIVRegressor.load(tmp_path / "other")
    tensors, content = model_file.read(tmp_path / "good")
    for damaged in (
        ({k: v for k, v in tensors.items() if k != "member.1.0.frequency"}, content),
        (tensors, {**content, "members": 9}),
        (tensors, {k: v for k, v in content.items() if k != "network"}),
        (tensors, {**content, "settings": {"loss": "biv", "colour": 3}}),
        (tensors, {**content, "labels": [[0.0, -1.0]]}),
        (tensors, {**content, "scores": 3}),
    ):
        model_file.write(tmp_path / "bad", *damaged)
        with pytest.raises(ValueError, match="bad is not a model, or is damaged"):
            biv.BIVRegressor.load(tmp_path / "bad")
    with pytest.raises(
        ValueError, match="good was fitted without a function as model: leave model out"
    ):
        biv.BIVRegressor.load(tmp_path / "good", model=nn.Linear)
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        biv.BIVRegressor.load(tmp_path / "nowhere")


class WithName(biv.BIVRegressor):
    def __init__(self, *, name="", folds=8, members=16, max_epochs=100, verbose=False):
        super().__init__(folds=folds, members=members, max_epochs=max_epochs, verbose=verbose)
        self.name = name


def test_booleans_given_as_numbers_and_settings_of_a_subclass_are_loaded(tmp_path):
    x, y, std, _ = table(60)
    few = {"members": 2, "folds": 2, "max_epochs": 2}
    WithName(name="a", verbose=1, **few).fit(x, y, y_std=std).save(tmp_path / "model")
    loaded = WithName.load(tmp_path / "model")
    assert loaded.name == "a"
    assert loaded.verbose is True
    with pytest.raises(ValueError, match="settings has 'name', which is unknown"):
        biv.BIVRegressor.load(tmp_path / "model")
