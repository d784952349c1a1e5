"""An interrupted and resumed training ends as an uninterrupted one, to the bit."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import biv
from biv.models import MLP, Periodic
from biv.training import Schedule, Stack, progress, train_stack
from trainings import FEATURES, assert_same_bits, clean_rows, seven_members

MODEL = MLP(FEATURES, (13, 6), 1, Periodic((0, 3), frequencies=3, width=3))
OPTIMIZERS = {
    "adam": Schedule(epochs=6, batch_size=51, test_every=4),
    "adamw": Schedule(epochs=6, batch_size=51, optimizer="adamw", weight_decay=0.1),
    "momentum": Schedule(epochs=6, batch_size=51, optimizer="sgd", momentum=0.9),
}


def members():
    """Seven, one of which diverges on the way."""
    seven = seven_members()
    seven[3] = replace(seven[3], learning_rate=1e18)
    return seven


@pytest.mark.parametrize("schedule", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("count", [7, 1])
def test_stopped_between_epochs_and_resumed(schedule, count, tmp_path):
    chosen, path = members()[:count], tmp_path / "folder" / "stack.pt"
    whole = train_stack(MODEL, chosen, schedule)
    for epochs in (1, 3, 3, 6):
        parts = train_stack(MODEL, chosen, replace(schedule, epochs=epochs), checkpoint=path)
    for part, trained in zip(parts, whole, strict=True):
        assert_same_bits(part, trained)
    assert [p.name for p in path.parent.iterdir()] == ["stack.pt"]


def test_interrupted_in_the_middle_of_an_epoch(tmp_path, monkeypatch):
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
        train_stack(MODEL, members(), schedule, checkpoint=str(path), checkpoint_seconds=0)
    assert calls[-1] == 20
    resumed = train_stack(MODEL, members(), schedule, checkpoint=path)
    assert calls[5] == 20  # the epoch of steps 19 to 24 was begun anew, those before were not
    for part, trained in zip(resumed, whole, strict=True):
        assert_same_bits(part, trained)


def test_the_bar_goes_on_where_the_checkpoint_was(tmp_path, monkeypatch):
    begun, made = [], progress.progress_bar

    def watched(total, what, *, enabled, done):
        begun.append((done, total))
        return made(total, what, enabled=enabled, done=done)

    monkeypatch.setattr("biv.training.stack.progress_bar", watched)
    for epochs in (2, 3):
        schedule = replace(OPTIMIZERS["adam"], epochs=epochs)
        train_stack(MODEL, seven_members()[:2], schedule, checkpoint=tmp_path / "stack.pt")
    assert begun == [(0, 12), (12, 18)]


@pytest.mark.slow
def test_killed_and_resumed(tmp_path):
    """SIGKILL, at whatever moment: what is there is whole, and the training ends the same."""
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
    folder = str(Path(__file__).parent)
    command = [sys.executable, "-c", code, str(path), "100000"]
    for _ in range(3):
        before = path.stat().st_mtime_ns if path.exists() else 0
        run = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": folder})
        deadline = time.monotonic() + 120
        while not (path.exists() and path.stat().st_mtime_ns > before):
            assert run.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.1)
        run.send_signal(signal.SIGKILL)
        run.wait()
    stack = Stack(MODEL, members(), OPTIMIZERS["adam"])
    stack.load_state_dict(biv.training.load_checkpoint(path))
    epochs = stack.epoch + 2
    assert stack.epoch >= 3
    longer = replace(OPTIMIZERS["adam"], epochs=epochs)
    resumed = train_stack(MODEL, members(), longer, checkpoint=path)
    for part, trained in zip(resumed, train_stack(MODEL, members(), longer), strict=True):
        assert_same_bits(part, trained)


def changed(**changes):
    return lambda seven: [replace(seven[0], **changes), *seven[1:]]


ANOTHER = {
    "loss": changed(loss=biv.BIVLoss(0.06)),
    "base": changed(loss=biv.BIVLoss(base="mae")),
    "learning rate": changed(learning_rate=2e-3),
    "seed": changed(seed=99),
    "order": changed(order_seed=99),
    "labels": changed(train=seven_members()[1].train),
    "test rows": changed(test=clean_rows(77)),
    "members": lambda seven: seven[:-1],
}


@pytest.mark.parametrize("other", ANOTHER.values(), ids=ANOTHER)
def test_a_checkpoint_is_of_one_training(other, tmp_path):
    path = tmp_path / "stack.pt"
    schedule = replace(OPTIMIZERS["adam"], epochs=1)
    train_stack(MODEL, seven_members(), schedule, checkpoint=path)
    with pytest.raises(ValueError, match="the state is of another training"):
        train_stack(MODEL, other(seven_members()), schedule, checkpoint=path)
    with pytest.raises(ValueError, match="the state is of another training"):
        train_stack(MODEL, seven_members(), replace(schedule, batch_size=60), checkpoint=path)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", "truncated", "another", "a tensor"])
def test_a_file_that_is_no_checkpoint_is_named_and_kept(content, tmp_path):
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
    with pytest.raises(
        ValueError, match=r"stack\.pt (is not a complete checkpoint|must be a 'biv checkpoint 1')"
    ):
        train_stack(MODEL, seven_members()[:2], schedule, checkpoint=path)
    assert path.read_bytes() == before
