"""Test that an interrupted and resumed training is bit-identical to an uninterrupted one."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import biv
from biv.models import MLP, Periodic
from biv.training import Schedule, Stack, Triplets, load_checkpoint, save_checkpoint, train_stack
from helpers.training_runs import FEATURES, assert_same_bits, clean_rows, seven_members

MODEL = MLP(FEATURES, (13, 6), 1, Periodic((0, 3), frequencies=3, width=3))
OPTIMIZERS = {
    "adam": Schedule(epochs=6, batch_size=51, test_every=4),
    "adamw": Schedule(epochs=6, batch_size=51, optimizer="adamw", weight_decay=0.1),
    "momentum": Schedule(epochs=6, batch_size=51, optimizer="sgd", momentum=0.9),
    "averaged": Schedule(epochs=6, batch_size=51, averaging=2.5),
}


def members():
    """Return seven members, one of which diverges during training."""
    seven = seven_members()
    seven[3] = replace(seven[3], learning_rate=1e18)
    return seven


@pytest.mark.parametrize("schedule", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("count", [7, 1])
def test_training_stopped_between_epochs_resumes_exactly(schedule, count, tmp_path):
    chosen, path = members()[:count], tmp_path / "folder" / "stack.pt"
    whole = train_stack(MODEL, chosen, schedule)
    for epochs in (1, 3, 3, 6):
        parts = train_stack(MODEL, chosen, replace(schedule, epochs=epochs), checkpoint=path)
    for part, trained in zip(parts, whole, strict=True):
        assert_same_bits(part, trained)
    assert [p.name for p in path.parent.iterdir()] == ["stack.pt"]


@pytest.mark.parametrize("seconds", [0, 1e9])
def test_training_interrupted_within_an_epoch_resumes_exactly(seconds, tmp_path, monkeypatch):
    schedule, path = OPTIMIZERS["adam"], tmp_path / "stack.pt"
    whole = train_stack(MODEL, members(), schedule)
    test, calls = Stack._test, []

    def interrupted(stack):
        calls.append(stack.step)
        if len(calls) == 5:
            raise KeyboardInterrupt
        test(stack)

    monkeypatch.setattr(Stack, "_test", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_stack(MODEL, members(), schedule, checkpoint=str(path), checkpoint_seconds=seconds)
    assert calls[-1] == 20
    assert biv.training.load_checkpoint(path)["step"] == 18
    resumed = train_stack(MODEL, members(), schedule, checkpoint=path)
    assert (
        calls[5] == 20
    )  # the interrupted epoch, steps 19 to 24, is repeated; earlier ones are not
    for part, trained in zip(resumed, whole, strict=True):
        assert_same_bits(part, trained)


def test_progress_bar_starts_at_the_step_of_the_checkpoint(tmp_path, monkeypatch):
    class Bar:
        def __init__(self, total, *_, done, **__):
            self.total, self.seen = total, [done]
            bars.append(self)

        def update(self):
            self.seen.append(self.seen[-1] + 1)

        def set_postfix_str(self, text, **_):
            assert text.startswith("train ")

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    bars = []
    monkeypatch.setattr("biv.training.train.progress_bar", Bar)
    for epochs in (2, 3):
        schedule = replace(OPTIMIZERS["adam"], epochs=epochs)
        train_stack(MODEL, seven_members()[:2], schedule, checkpoint=tmp_path / "stack.pt")
    assert [(bar.seen[0], bar.seen[-1], bar.total) for bar in bars] == [(0, 12, 12), (12, 18, 18)]


def epochs_done(path):
    """Return the epochs done by the checkpoint, which is complete at any moment."""
    return biv.training.load_checkpoint(path)["step"] // 6 if path.exists() else 0


@pytest.mark.slow
def test_killed_training_resumes_exactly(tmp_path):
    """Kill the training at an arbitrary moment: the checkpoint is complete and resumes exactly."""
    code = """
import sys, torch
from test_checkpoint import MODEL, OPTIMIZERS, members
from biv.training import train_stack
from dataclasses import replace
torch.set_num_threads(1)
schedule = replace(OPTIMIZERS["adam"], epochs=int(sys.argv[2]))
train_stack(MODEL, members(), schedule, checkpoint=sys.argv[1], checkpoint_seconds=0)
"""
    path = tmp_path / "stack.pt"
    folder = os.pathsep.join(str(path) for path in Path(__file__).parents[:2])
    command = [sys.executable, "-c", code, str(path), "100000"]
    for _ in range(3):
        before = epochs_done(path)
        run = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": folder})
        try:
            deadline = time.monotonic() + 120
            while epochs_done(path) <= before:
                assert run.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.01)
            time.sleep(0.1)
        finally:
            run.kill()
            run.wait()
    done = epochs_done(path)
    assert done >= 3
    longer = replace(OPTIMIZERS["adam"], epochs=done + 2)
    resumed = train_stack(MODEL, members(), longer, checkpoint=path)
    for part, trained in zip(resumed, train_stack(MODEL, members(), longer), strict=True):
        assert_same_bits(part, trained)


def with_first_member(**changes):
    return lambda seven: [replace(seven[0], **changes), *seven[1:]]


def other_table_of_features(seven):
    """Give one member the features of another."""
    rows = Triplets(seven[0].train.x, seven[1].train.y, seven[1].train.variance)
    return [seven[0], replace(seven[1], train=rows), *seven[2:]]


def variance_as_sample_weight(seven):
    rows = seven[1].train
    rows = Triplets(rows.x, rows.y, sample_weight=rows.variance)
    return [seven[0], replace(seven[1], train=rows, loss=biv.L2Loss()), *seven[2:]]


def with_scaled_loss(factor):
    def base(pred, target):
        return factor * (pred - target).abs()

    return with_first_member(loss=biv.BIVLoss(base=base))


CHANGES = {
    "loss": with_first_member(loss=biv.BIVLoss(0.06)),
    "digits of epsilon": with_first_member(loss=biv.BIVLoss(torch.tensor(0.050001))),
    "base": with_first_member(loss=biv.BIVLoss(base="mae")),
    "a base with another setting": with_first_member(
        loss=biv.BIVLoss(base=nn.HuberLoss("none", delta=2.0))
    ),
    "a base with another number": with_first_member(
        loss=biv.BIVLoss(base=lambda p, t: 2 * (p - t).abs())
    ),
    "a base with another closure": with_scaled_loss(2.0),
    "learning rate": with_first_member(learning_rate=2e-3),
    "seed": with_first_member(seed=99),
    "order": with_first_member(order_seed=99),
    "labels": with_first_member(train=seven_members()[1].train),
    "features": other_table_of_features,
    "roles": variance_as_sample_weight,
    "test rows": with_first_member(test=clean_rows(77)),
    "no test rows": with_first_member(test=None),
    "members": lambda seven: seven[:-1],
}
ORIGINALS = {
    "a base with another setting": with_first_member(
        loss=biv.BIVLoss(base=nn.HuberLoss("none", delta=1.0))
    ),
    "a base with another number": with_first_member(
        loss=biv.BIVLoss(base=lambda p, t: 3 * (p - t).abs())
    ),
    "a base with another closure": with_scaled_loss(3.0),
    "digits of epsilon": with_first_member(loss=biv.BIVLoss(torch.tensor(0.05))),
}


PARTS = {
    "digits of epsilon": "the loss of member 0",
    "base": "the loss of member 0",
    "a base with another setting": "the loss of member 0",
    "a base with another number": "the loss of member 0",
    "a base with another closure": "the loss of member 0",
    "order": "the seeds of member 0",
    "seed": "the seeds of member 0",
    "labels": "the training rows of member 0",
    "features": "the training rows of member 1",
    "roles": "the training rows of member 1",
    "no test rows": "the test rows of member 0",
    "members": "the number of members",
}


@pytest.mark.parametrize("name", CHANGES)
def test_checkpoint_of_another_training_is_rejected(name, tmp_path):
    path = tmp_path / "stack.pt"
    schedule = replace(OPTIMIZERS["adam"], epochs=1)
    before = ORIGINALS.get(name, list)(seven_members())
    train_stack(MODEL, before, schedule, checkpoint=path)
    part = PARTS.get(name, f"{name} of member 0")
    message = rf"stack\.pt: the state is from another training run, which differs in .*{part}.*away"
    with pytest.raises(ValueError, match=message):
        train_stack(MODEL, CHANGES[name](seven_members()), schedule, checkpoint=path)
    train_stack(MODEL, ORIGINALS.get(name, list)(seven_members()), schedule, checkpoint=path)


OTHER_NETWORKS = {
    "columns": MLP(FEATURES, (13, 6), 1, Periodic((0, 4), frequencies=3, width=3)),
    "activations": lambda generator: nn.Sequential(
        *(part for part in MODEL(generator) if not isinstance(part, nn.ReLU))
    ),
}


@pytest.mark.parametrize("network", OTHER_NETWORKS.values(), ids=OTHER_NETWORKS)
def test_checkpoint_of_another_network_or_schedule_is_rejected(network, tmp_path):
    """Test networks that have the same initial parameters and differ in other respects."""
    path, two = tmp_path / "stack.pt", seven_members()[:2]
    schedule = replace(OPTIMIZERS["adam"], epochs=1)
    train_stack(MODEL, two, schedule, checkpoint=path)
    with pytest.raises(ValueError, match="the state is from another training run"):
        train_stack(network, two, schedule, checkpoint=path)
    with pytest.raises(ValueError, match="the state is from another training run"):
        train_stack(MODEL, two, replace(schedule, batch_size=60), checkpoint=path)


def test_equal_training_made_of_new_objects_resumes(tmp_path):
    """Use copied tensors, NumPy's numbers, explicit seeds and a new partial function."""
    path, schedule = tmp_path / "stack.pt", replace(OPTIMIZERS["adam"], epochs=1)

    def huber(pred, target, delta):
        return nn.functional.huber_loss(pred, target, reduction="none", delta=delta)

    def with_huber():
        return biv.BIVLoss(base=partial(huber, delta=0.5))

    members = [replace(m, loss=with_huber(), learning_rate=1e-3) for m in seven_members()]
    train_stack(MODEL, members, schedule, checkpoint=path)
    again = [
        replace(
            member,
            train=Triplets(member.train.x.clone(), member.train.y.clone(), member.train.variance),
            loss=with_huber(),
            learning_rate=np.float64(1e-3),
            order_seed=member.seeds[1],
        )
        for member in members
    ]
    train_stack(MODEL, again, schedule, checkpoint=path)


def test_invalid_requests_raise(tmp_path):
    path, two, schedule = tmp_path / "stack.pt", seven_members()[:2], OPTIMIZERS["adam"]
    train_stack(MODEL, two, replace(schedule, epochs=3), checkpoint=path)
    with pytest.raises(
        ValueError, match="must have at least as many epochs as the state, 3; got 2"
    ):
        train_stack(MODEL, two, replace(schedule, epochs=2), checkpoint=path)
    with pytest.raises(TypeError, match="checkpoint_seconds must be"):
        train_stack(MODEL, two, schedule, checkpoint=path, checkpoint_seconds="60")
    stack = Stack(MODEL, two, schedule)
    with pytest.raises(OSError, match="exists|directory"):  # before training, not after it
        train_stack(MODEL, two, replace(schedule, epochs=10**9), checkpoint=path / "below.pt")
    stack.step = 1
    with pytest.raises(
        ValueError, match="at the end of an epoch, after a multiple of 6 steps; got 1"
    ):
        stack.state_dict()
    torch.save({"format": "biv checkpoint 2", "step": 0}, path)
    with pytest.raises(
        ValueError, match=r"stack\.pt is not a complete checkpoint: 'training' is missing"
    ):
        train_stack(MODEL, two, schedule, checkpoint=path)


def test_a_state_can_be_loaded_more_than_once():
    two, schedule = seven_members()[:2], OPTIMIZERS["momentum"]
    stack = Stack(MODEL, two, schedule)
    stack.run_epoch()
    state = stack.state_dict()
    twins = [Stack(MODEL, two, schedule) for _ in range(2)]
    for twin in twins:
        twin.load_state_dict(state)
        twin.run_epoch()
    stack.run_epoch()
    for twin in twins:
        assert torch.equal(twin._stacked.parameters, stack._stacked.parameters)


@pytest.mark.parametrize(("seconds", "saves"), [(0, 1 + 6 + 1), (1e9, 1 + 1)])
def test_checkpoint_seconds_sets_the_number_of_saves(seconds, saves, tmp_path, monkeypatch):
    """Saves happen at the start, after an epoch if one is due, and at the end."""
    written = []
    monkeypatch.setattr(
        "biv.training.checkpoint.save_checkpoint", lambda *args: written.append(args)
    )
    schedule = OPTIMIZERS["adam"]
    train_stack(
        MODEL, seven_members()[:2], schedule, checkpoint=tmp_path / "c", checkpoint_seconds=seconds
    )
    assert len(written) == saves


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", "truncated", "another", "a tensor"])
def test_invalid_file_is_named_in_the_error_and_kept(content, tmp_path):
    path = tmp_path / "stack.pt"
    schedule = replace(OPTIMIZERS["adam"], epochs=1)
    if content == "truncated":
        train_stack(MODEL, seven_members()[:2], schedule, checkpoint=path)
        path.write_bytes(path.read_bytes()[:-1000])
    elif content == "another":
        torch.save({"format": "something else"}, path)
    elif content == "a tensor":
        torch.save(torch.zeros(3), path)
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    reason = (
        "must have the format 'biv checkpoint 2'" if content == "another" else "is not a complete"
    )
    with pytest.raises(ValueError, match=rf"stack\.pt {reason}"):
        train_stack(MODEL, seven_members()[:2], schedule, checkpoint=path)
    assert path.read_bytes() == before


def test_long_format_is_shortened_in_the_error(tmp_path):
    torch.save({"format": "x" * 200_000}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match=r"got 'x+'\.\.\. \(200,000 characters\)"):
        load_checkpoint(tmp_path / "a.pt")


def test_a_changed_byte_is_detected(tmp_path):
    """Torch's reader would accept the byte as another number."""
    path = tmp_path / "a.pt"
    save_checkpoint(path, {"weights": torch.ones(64)})
    good = path.read_bytes()
    place = good.index(torch.ones(64).numpy().tobytes()) + 2
    path.write_bytes(good[:place] + b"\0" + good[place + 1 :])
    with pytest.raises(ValueError, match=r"a\.pt is not a complete checkpoint: move it away"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state["moments"].pop("exp_avg"), r"\['moments'\] has no entry 'exp_avg'"),
        (lambda state: state["curves"].clear(), r"the state\['curves'\] has no entry"),
        (lambda state: state.update(step=None), r"the state\['step'\] must be int; got NoneType"),
        (
            lambda state: state.update(step=1),
            "from the end of an epoch, a multiple of 6 steps; got step 1",
        ),
        (lambda state: state.pop("orders"), "the state has no entry 'orders'"),
    ],
)
def test_missing_or_invalid_entry_is_named_in_the_error(tmp_path, change, message):
    two, schedule = seven_members()[:2], OPTIMIZERS["adam"]
    state = Stack(MODEL, two, schedule).state_dict()
    change(state)
    save_checkpoint(tmp_path / "a.pt", state)
    with pytest.raises(
        ValueError, match=rf"a\.pt: .*{message}.* Move the file away to start again"
    ):
        train_stack(MODEL, two, schedule, checkpoint=tmp_path / "a.pt")
