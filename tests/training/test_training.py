"""Test the data and settings of a training run, its curves and its progress bar."""

import io
import re
import sys
import time
from dataclasses import replace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

import biv
from biv._utils import progress
from biv.models import MLP, Periodic
from biv.training import (
    History,
    Member,
    Schedule,
    Stack,
    Triplets,
    smoothed,
    train_reference,
    train_stack,
)
from helpers.training_runs import FEATURES, clean_rows, seven_members, triplets

MODEL = MLP(FEATURES, (13, 6))


def test_arrays_become_float32_and_tensors_keep_their_dtype():
    rows = Triplets(np.zeros((5, 3)), np.zeros(5), np.ones((5, 1)))
    assert rows.x.dtype == rows.y.dtype == rows.variance.dtype == torch.float32
    assert rows.y.shape == rows.variance.shape == (5, 1)
    x = torch.zeros(5, 3, dtype=torch.float64)
    assert Triplets(x, torch.zeros(5)).x is x
    assert Triplets(x, torch.zeros(5)).y.dtype == torch.float64
    wide = Triplets(x, torch.zeros(5, 2), torch.ones(5), torch.ones(5, 1))
    assert wide.variance.shape == wide.sample_weight.shape == (5, 2)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": np.zeros(5)}, r"x must have shape \(rows, features\), .*; got \(5,\)"),
        ({"x": np.full((5, 3), np.nan)}, "x must be finite; got nan at index"),
        ({"y": np.zeros(4)}, r"y must have 5 rows, one per row of x; got shape \(4, 1\)"),
        (
            {"variance": np.ones((5, 2))},
            r"variance must have the shape of y, \(5, 1\); got \(5, 2\)",
        ),
        ({"sample_weight": np.ones(6)}, "sample_weight must have 5 rows, one per row of x"),
        ({"x": torch.zeros(5, 3).long()}, "x must have a floating-point dtype"),
        ({"x": torch.zeros(5, 3).half()}, "x must be float32 or float64; got torch.float16"),
        ({"x": torch.zeros(5, 3, requires_grad=True)}, "x must not require grad"),
        ({"x": np.array([["a"]] * 5)}, "x must hold numbers"),
        ({"x": np.zeros((5, 3), dtype=complex)}, "x must hold numbers"),
        ({"y": None}, "y must hold numbers; got None"),
    ],
)
def test_columns_that_do_not_fit_raise(columns, message):
    good = {"x": np.zeros((5, 3)), "y": np.zeros(5), "variance": np.ones(5)}
    with pytest.raises((TypeError, ValueError), match=message):
        Triplets(**{**good, **columns})


def test_arrays_are_copied():
    x = np.zeros((5, 3), dtype=np.float32)
    x.flags.writeable = False
    rows = Triplets(x[::-1], np.zeros(5), np.ones(5))
    assert rows.x.numpy().base is not x
    y = np.zeros(5, dtype=np.float32)
    rows = Triplets(x, y)
    y[0] = 7.0
    assert rows.y[0] == 0.0


def test_a_loss_without_positive_weights_raises():
    with pytest.raises(
        ValueError,
        match=r"member 'strict': no label has a positive weight under CutoffLoss\(threshold=0.001\)"
        r"; got 300 training rows with variances from 0.01\d* to 1.0\d*",
    ):
        Member(triplets(0), None, biv.CutoffLoss(0.001), name="strict")
    with pytest.raises(ValueError, match="no label has a positive weight .* got 0 training rows"):
        Member(Triplets(np.zeros((0, 3)), np.zeros(0)), None, biv.L2Loss())


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"train": (1, 2)}, TypeError, "train must be a Triplets; got"),
        ({"loss": torch.nn.MSELoss()}, TypeError, "loss must be a VarianceLoss; got"),
        ({"seed": -1}, ValueError, "seed must be an integer >= 0"),
        ({"seed": 1.5}, TypeError, "seed must be an integer >= 0"),
        ({"order_seed": "a"}, TypeError, "order_seed must be an integer >= 0"),
        ({"learning_rate": 0.0}, ValueError, "learning_rate must be a finite number > 0"),
        ({"loss": biv.IVLoss(), "train": Triplets(np.zeros((2, 3)), np.zeros(2), np.zeros(2)), "test": None}, ValueError, "variance must be positive if epsilon is 0"),
        ({"train": Triplets(np.zeros((2, 3)), np.zeros(2)), "test": None}, TypeError, "variance must be a torch.Tensor; got None"),
        ({"train": Triplets(np.zeros((2, 3)), np.zeros(2), -np.ones(2)), "test": None}, ValueError, "variance must be non-negative"),
        ({"test": Triplets(np.zeros((2, 3)), np.zeros(2))}, ValueError, "test rows must have 7 features of torch.float32, like the training rows; got 3"),
        ({"test": clean_rows(0, dtype=torch.float64)}, ValueError, "got 7 of torch.float64"),
        ({"test": triplets(0)}, ValueError, "test labels must be clean.*noise_corrected_mse"),
        ({"test": clean_rows(0, outputs=2)}, ValueError, "y must have 1 columns, like the training labels"),
        ({"test": Triplets(np.zeros((0, 7)), np.zeros(0))}, ValueError, "there must be at least one test row"),
        ({"test": Triplets(np.zeros((2, 7)), np.array([0.0, np.nan]))}, ValueError, "y of the test rows must be finite"),
    ],
)  # fmt: skip
def test_invalid_member_raises(changes, error, message):
    with pytest.raises(error, match=message):
        replace(seven_members()[0], **changes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": -1}, "epochs"),
        ({"batch_size": 0}, "batch_size"),
        ({"test_every": 0}, "test_every"),
        ({"optimizer": "lbfgs"}, "optimizer must be one of 'adam', 'adamw', 'sgd'; got 'lbfgs'"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"momentum": 1.0, "optimizer": "sgd"}, r"momentum must be in \[0, 1\)"),
        ({"momentum": 0.9}, "momentum must be 0 unless optimizer is 'sgd'; got 0.9 with 'adam'"),
        ({"averaging": -0.5}, "averaging must be .*; got -0.5"),
    ],
)
def test_invalid_schedule_raises(settings, message):
    with pytest.raises(ValueError, match=message):
        Schedule(**settings)


def test_steps_per_epoch():
    assert Schedule(drop_last=True).steps_per_epoch(7000) == 27
    assert Schedule().steps_per_epoch(7000) == 28
    assert Schedule().steps_per_epoch(7) == 1
    assert Schedule(epoch_rows=1000).steps_per_epoch(7000) == 4
    assert Schedule(epoch_rows=1000).steps_per_epoch(300) == 2
    with pytest.raises(ValueError, match="at least 256 training rows, one batch; got 7"):
        Schedule(drop_last=True).steps_per_epoch(7)


@pytest.mark.parametrize(
    ("other", "schedule", "message"),
    [
        (Member(triplets(1, rows=600)), Schedule(), "same number of steps per epoch; got 2 for member 0 and 3 for member 1: choose a batch_size"),
        (Member(triplets(1, outputs=2)), Schedule(), "same number of columns of y; got 1 for member 0 and 2 for member 1"),
        (Member(triplets(1, dtype=torch.float64)), Schedule(), "same dtype; got torch.float32 for member 0 and torch.float64 for member 1"),
        (Member(Triplets(np.zeros((300, 3)), np.zeros(300), np.ones(300))), Schedule(), "same number of features; got 7 for member 0 and 3 for member 1"),
        (Member(triplets(1, rows=100)), Schedule(batch_size=512), "same batch shape; got 512 for member 0 and 128 for member 1: choose a batch_size of at most the smallest number of rows"),
    ],
)  # fmt: skip
def test_members_that_do_not_fit_together_raise(other, schedule, message):
    with pytest.raises(ValueError, match=message):
        Stack(MODEL, [Member(triplets(0)), other], schedule)


def test_wrong_types_raise():
    member, network = Member(triplets(0)), torch.nn.Linear(FEATURES, 1)
    with pytest.raises(
        TypeError, match="model must be a function that makes a network from a torch.Generator.*got"
    ):
        train_stack(network, [member], Schedule())
    with pytest.raises(TypeError, match="members must be a list of Member; got"):
        train_stack(MODEL, member, Schedule())
    with pytest.raises(TypeError, match="model must be an nn.Module; got MLP"):
        train_reference(MODEL, member, Schedule())
    with pytest.raises(TypeError, match="periodic must be a Periodic or None; got True"):
        MLP(3, periodic=True)
    with pytest.raises(TypeError, match="columns must be a tuple of integers; got 3"):
        Periodic(columns=3)


def test_reprs_are_short():
    rows = triplets(0)
    assert repr(rows) == "Triplets(300 rows, 7 features, 1 labels each, variance)"
    short = History(np.ones(40), np.ones(40), np.full(40, 0.25), np.arange(40), 7)
    assert repr(short) == "History(40 steps, last test loss 0.25, diverged at step 7)"
    amyloid = biv.datasets.load_amyloid()
    assert repr(amyloid).startswith("Dataset(16066 rows, 882 features, labels with variances; ")
    assert len(repr(amyloid)) < 300


def test_networks_that_do_not_fit_the_data_raise():
    member = Member(triplets(0))
    with pytest.raises(ValueError, match="at least one member"):
        Stack(MODEL, [], Schedule())
    with pytest.raises(ValueError, match="must accept 7 features"):
        Stack(MLP(3), [member], Schedule())
    with pytest.raises(
        ValueError, match=r"must return predictions of shape \(rows, 1\), like y; got \(1, 2\)"
    ):
        Stack(MLP(FEATURES, outputs=2), [member], Schedule())
    stack = Stack(MODEL, [member], Schedule())
    assert stack.predict(np.zeros((3, FEATURES))).shape == (1, 3, 1)
    with pytest.raises(ValueError, match=r"x must have shape \(rows, 7\); got \(3, 2\)"):
        stack.predict(torch.zeros(3, 2))


def test_smoothing_is_a_trailing_mean():
    curve = np.random.default_rng(0).normal(size=(2, 100))
    smooth = smoothed(curve)
    assert smooth.shape == (2, 66)
    np.testing.assert_allclose(smooth[:, 0], curve[:, :35].mean(axis=1))
    np.testing.assert_allclose(smooth[:, -1], curve[:, -35:].mean(axis=1))
    assert smoothed(curve[0, :34]).shape == (0,)
    with pytest.raises(ValueError, match="window must be an integer >= 1"):
        smoothed(curve, 0)


def history(test_loss, diverged_at=None):
    steps = np.arange(len(test_loss))
    return History(steps * 1.0, steps * 1.0, np.asarray(test_loss), steps, diverged_at)


def test_diverged():
    assert not history(np.full(40, 0.9)).diverged
    assert history(np.full(40, 1.1)).diverged
    assert not history(
        np.r_[np.full(40, 1.1), np.full(35, 0.9)]
    ).diverged  # only the end of the curve counts
    assert history(np.full(40, 0.1), diverged_at=7).diverged
    assert not history(np.full(5, 9.0)).diverged  # too short to be smoothed
    assert not history([]).diverged


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_on_terminals_only(terminal, monkeypatch):
    """The bar has steps, losses and remaining time; a short run shows no bar."""
    screen = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    members = seven_members()[:2]
    train_stack(MODEL, members, Schedule(epochs=1, batch_size=64))
    train_reference(MODEL(members[0].generators()[0]), members[0], Schedule(epochs=1))
    assert screen.getvalue().strip() == ""
    monkeypatch.setattr(progress, "DELAY", 0.0)
    stack = Stack(MODEL, members, Schedule(epochs=30, batch_size=64))
    with progress.progress_bar(150, "2 members") as bar:
        for _ in range(3):
            stack.run_epoch(bar.update)
            bar.set_postfix_str(stack.summary(), refresh=False)
            time.sleep(0.11)
            bar.update(0)
        bar.refresh()
    shown = screen.getvalue()
    if terminal:
        assert re.search(r"2 members:.*15/150 \[.*<.*train \d\.\d+, test \d\.\d+\]", shown)
    else:
        assert shown == ""
    train_stack(MODEL, members, Schedule(epochs=1, batch_size=64), progress=False)
    assert screen.getvalue() == shown


def test_the_reference_loop_shows_its_losses(monkeypatch):
    shown = MagicMock()
    monkeypatch.setattr("biv.training.train.progress_bar", shown)
    member = seven_members()[0]
    network = MODEL(member.generators()[0])
    history = train_reference(network, member, Schedule(epochs=1, batch_size=100, test_every=2))
    bar = shown.return_value.__enter__.return_value
    texts = [call.args[0] for call in bar.set_postfix_str.call_args_list]
    trained, (tested,) = history.train_loss, history.test_loss
    assert texts == [
        f"train {trained[0]:.3f}",
        f"train {trained[1]:.3f}, test {tested:.3f}",
        f"train {trained[2]:.3f}, test {tested:.3f}",
    ]
    assert bar.update.call_count == shown.call_args.args[0] == 3


def test_summary_counts_diverged_members():
    members = seven_members()[:2]
    wild = replace(members[0], learning_rate=1e18)
    stack = Stack(MODEL, [wild, members[1]], Schedule(batch_size=64))
    stack.run_epoch()
    assert re.fullmatch(r"train \d\.\d+, test \d\.\d+, 1 diverged", stack.summary())
