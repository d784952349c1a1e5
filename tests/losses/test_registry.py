"""A registered loss is available wherever a loss is chosen by its name."""

import math
import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import biv
from biv.cli import main
from biv.epsilon import EpsilonPolicy, as_policy
from biv.losses import registry
from biv.losses._weighting import Weighting
from biv.losses.registry import LossInfo
from biv.paper import protocol
from biv.paper.spec import Loss
from biv.workflows import streamed
from biv.workflows.methods import methods
from helpers.cases import Case, batch


@dataclass(frozen=True)
class InverseDeviation(Weighting):
    """Weight 1/√(σ²+ε), normalised by Σ w."""

    policy: EpsilonPolicy

    def weights(self, variance, scope, dtype):
        return (variance.to(dtype) + scope.epsilon).rsqrt()


class InverseDeviationLoss(biv.VarianceLoss):
    def __init__(self, epsilon=0.05, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def weighting(self):
        return InverseDeviation(as_policy(self.epsilon))


TOY = LossInfo(
    "toy",
    "Toy",
    f"{__name__}:InverseDeviationLoss",
    settings=("epsilon",),
    user_settings=("epsilon",),
    without_variance="l2",
)
CASE = Case(
    "toy",
    lambda variance, epsilon: 1 / math.sqrt(variance + epsilon),
    lambda *args, epsilon, **kwargs: InverseDeviationLoss(epsilon)(*args, **kwargs),
    InverseDeviationLoss,
    {"epsilon": 0.05},
)


@pytest.fixture
def toy():
    registry.register(TOY)
    yield
    registry.unregister("toy")


def test_a_registered_loss_equals_its_reference():
    pred, target, variance = batch(40)
    expected = CASE.reference(pred, target, variance)
    assert float(CASE(pred, target, variance)) == pytest.approx(expected)
    assert float(CASE.build()(pred, target, variance)) == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.usefixtures("toy")
@pytest.mark.filterwarnings("ignore:the last of max_epochs")
def test_the_estimator_accepts_a_registered_loss():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    variance = rng.uniform(0.1, 2.0, size=120)
    y = x[:, 0] + rng.normal(0, np.sqrt(variance))
    settings = {"members": 2, "folds": 2, "max_epochs": 3, "random_state": 0}
    fits = {
        loss: biv.BIVRegressor(loss=loss, epsilon=0.1, **settings).fit(x, y, y_var=variance)
        for loss in ("toy", "biv", "l2")
    }
    assert fits["toy"].epsilon_ == pytest.approx(fits["biv"].epsilon_)  # a user setting is passed
    for other in ("biv", "l2"):
        assert not np.array_equal(fits["toy"].predict(x), fits[other].predict(x))
    without = biv.BIVRegressor(loss="toy", **settings).fit(x, y)
    alike = biv.BIVRegressor(loss="l2", **settings).fit(x, y)
    assert np.array_equal(without.predict(x), alike.predict(x))


@pytest.mark.usefixtures("toy")
def test_the_command_accepts_a_registered_loss(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    help_text = " ".join(capsys.readouterr().out.split())
    assert "{biv,l2,iv,cutoff,toy}" in help_text
    assert "with --loss biv or toy: ε, as a number in units of the label variance" in help_text
    assert main(["train", "no.csv", "--target", "y", "--loss", "toy", "--threshold", "1"]) == 2
    assert "--threshold requires --loss cutoff; got --loss toy" in capsys.readouterr().err


@pytest.mark.usefixtures("toy")
def test_streaming_accepts_a_registered_loss():
    settings = streamed.StreamSettings(loss="toy")
    ranks = SimpleNamespace(side_group=None)
    losses = streamed._losses(settings, None, None, ranks, noisy=True)
    assert isinstance(losses(0.25), InverseDeviationLoss)
    assert losses(0.25).epsilon == 0.25
    assert isinstance(streamed._losses(settings, None, None, ranks, noisy=False)(0.25), biv.L2Loss)


@pytest.mark.usefixtures("toy")
def test_the_experiments_accept_a_registered_loss():
    loss = protocol._loss(Loss("toy", epsilon=0.5), None)
    assert isinstance(loss, InverseDeviationLoss)
    assert loss.epsilon == 0.5


@pytest.mark.usefixtures("toy")
def test_the_comparison_accepts_a_registered_loss():
    assert "Toy" in methods()
    assert list(methods())[:5] == ["L2", "IV", "Cutoff", "Toy", "BIV"]


@pytest.mark.parametrize("name", registry.names())
def test_every_loss_is_created_from_its_settings(name):
    info = registry.get(name)
    assert set(info.user_settings) <= set(info.settings)
    loss = info.create(**dict.fromkeys(info.settings, 0.5))
    assert isinstance(loss, biv.VarianceLoss)
    assert loss._settings().items() >= dict.fromkeys(info.settings, 0.5).items()
    pred, target, variance = batch(8)
    if info.uses_variance:
        assert loss(pred, target, variance) != loss(pred, target, 1 / variance)
    variance[0] = 0.0
    loss = info.create(**dict.fromkeys(set(info.settings) & {"threshold"}, 0.5))
    if info.accepts_zero_variance:
        assert torch.isfinite(loss(pred, target, variance))
    else:
        with pytest.raises(ValueError, match="variance must be positive"):
            loss(pred, target, variance)


@pytest.mark.usefixtures("toy")
def test_names_of_losses_are_unique():
    with pytest.raises(ValueError, match="a loss named 'toy' already exists"):
        registry.register(TOY)
    with pytest.raises(ValueError, match="loss must be one of .*'cutoff', 'toy'; got 'huber'"):
        registry.get("huber")


def test_names_are_known_without_torch():
    code = (
        "import sys; from biv.cli import train; from biv.losses import registry;"
        "assert 'biv' in registry.names(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
