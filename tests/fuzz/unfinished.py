"""Damaged checkpoints of interrupted training runs, read by the run that resumes."""

import atexit
import functools
import io
import pickle
import shutil
import tempfile
from pathlib import Path
from unittest import mock

import torch

from biv.training.cross_fitting import _Checkpointing
from biv.training.streamed import StreamedTraining
from fuzz import jobs
from fuzz.laws import contents_below, one_of, require_clear
from fuzz.spoiling import spoil

JOBS = {"train": (_Checkpointing, "save_if_due"), "stream": (StreamedTraining, "_save")}


class _Harmful:
    def __reduce__(self):
        return (Path.touch, (Path("harm"),))


def case(rng, source, out, watch):  # noqa: ARG001
    """Damage the checkpoint, then train; the files stay unless the training succeeds."""
    name = one_of(rng, list(JOBS))
    job, folder = jobs.JOBS[name], out.parent
    template, finished = interrupted()[name]
    out.rmdir()
    shutil.copytree(template, folder, dirs_exist_ok=True)
    (path,) = (out / "model").glob("unfinished-*.pt")
    kind = one_of(rng, ["bytes", "bytes", "bytes", "other", "version", "state", "none"])
    if kind == "bytes":
        spoil(rng, path, "bytes")
    elif kind == "other":
        path.write_bytes(one_of(rng, [b"PK\3\4", b"\0" * 100, pickle.dumps(_Harmful()), _saved(3)]))
    elif kind != "none":
        state = torch.load(path, weights_only=True)
        if kind == "version":
            state["format"] = one_of(rng, ["biv checkpoint 1", "biv checkpoint 3", None, 2, [], {}])
        else:
            _change(rng, state)
        path.write_bytes(_saved(state))
    before = contents_below(out)
    watch.calls.clear()
    outcome = jobs.run(job, folder)
    assert not Path("harm").exists(), "code in a checkpoint was run"
    if outcome.code == 0:
        outputs = jobs.state(folder)
        broken = [content for content in outputs.values() if content.startswith("broken")]
        assert not broken, f"the model is broken: {broken[0]}"
        if kind in ("bytes", "none"):
            assert outputs == finished, f"the model resumed from {kind} differs"
        return
    assert kind != "none", f"a valid checkpoint is rejected: {outcome.err[-400:]}"
    require_clear(outcome, path)
    message = outcome.err.casefold()
    assert "start again" in message, f"the message does not say what to do: {outcome.err}"
    assert contents_below(out) == before, "the files have changed"


def _saved(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def _change(rng, state):
    """Remove or replace an entry of a state, at any depth."""
    inside = state
    while True:
        key = one_of(rng, list(inside))
        if not isinstance(inside[key], dict) or not inside[key] or rng.random() < 0.2:
            break
        inside = inside[key]
    value = inside[key]
    change = one_of(rng, ["remove", "value", "shape"])
    if change == "remove":
        del inside[key]
    elif change == "shape" and isinstance(value, torch.Tensor):
        flat = value.reshape(-1)
        inside[key] = one_of(rng, [flat[:0], value[None], flat.repeat(2)])
    else:
        inside[key] = one_of(rng, [None, "x", -1, 2**70, 0.5, [], {}, [1, 2], torch.ones(3)])


@functools.cache
def interrupted():
    """Return a folder with an interrupted run, and the outputs of a complete one, by job."""
    scratch = Path(tempfile.mkdtemp(prefix="biv-fuzz-unfinished-")).resolve()
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    runs = {}
    for name, (owner, method) in JOBS.items():
        folder, save = scratch / name, getattr(owner, method)
        jobs.prepare(jobs.JOBS[name], folder)

        def save_and_interrupt(self, *arguments, save=save):
            save(self, *arguments)
            if getattr(self, "file", self) is not None:  # a pilot has no checkpoint
                raise KeyboardInterrupt

        with mock.patch.object(owner, method, save_and_interrupt):
            outcome = jobs.run(jobs.JOBS[name], folder)
        assert outcome.code == 130, f"the training was not interrupted: {outcome}"
        clean = scratch / f"{name}-clean"
        runs[name] = folder, jobs.clean(jobs.JOBS[name], clean).new
    return runs
