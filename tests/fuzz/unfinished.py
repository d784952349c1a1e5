"""Checkpoints of interrupted trainings, damaged and found by the training that would resume."""

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
    """Damage the checkpoint, then train; what was there stays unless the training succeeds."""
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
    assert not Path("harm").exists(), "the code of a checkpoint was run"
    if outcome.code == 0:
        broken = [own for own in jobs.state(folder).values() if own.startswith("broken")]
        assert not broken, f"the model is broken: {broken[0]}"
        if kind in ("bytes", "none"):
            assert jobs.state(folder) == finished, f"resumed from {kind}, it is another model"
        return
    assert kind != "none", f"a good checkpoint is refused: {outcome.err[-400:]}"
    require_clear(outcome, path)
    said = outcome.err.casefold()
    assert "start again" in said, f"what to do is not said: {outcome.err}"
    assert contents_below(out) == before, "what was there has changed"


def _saved(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def _change(rng, state):
    """Remove or replace a part of it, at any depth."""
    inside = state
    while True:
        key = one_of(rng, list(inside))
        if not isinstance(inside[key], dict) or not inside[key] or rng.random() < 0.2:
            break
        inside = inside[key]
    own = inside[key]
    change = one_of(rng, ["remove", "value", "shape"])
    if change == "remove":
        del inside[key]
    elif change == "shape" and isinstance(own, torch.Tensor):
        inside[key] = one_of(rng, [own.reshape(-1)[:0], own[None], own.reshape(-1).repeat(2)])
    else:
        inside[key] = one_of(rng, [None, "x", -1, 2**70, 0.5, [], {}, [1, 2], torch.ones(3)])


@functools.cache
def interrupted():
    """The folders of trainings that were interrupted, and what they are in the end, by job."""
    scratch = Path(tempfile.mkdtemp(prefix="biv-fuzz-unfinished-")).resolve()
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    found = {}
    for name, (owner, method) in JOBS.items():
        folder, whole = scratch / name, getattr(owner, method)
        jobs.prepare(jobs.JOBS[name], folder)

        def end(self, *given, whole=whole):
            whole(self, *given)
            if getattr(self, "file", self) is not None:  # a pilot is not saved
                raise KeyboardInterrupt

        with mock.patch.object(owner, method, end):
            outcome = jobs.run(jobs.JOBS[name], folder)
        assert outcome.code == 130, f"not interrupted: {outcome}"
        clean = scratch / f"{name}-clean"
        found[name] = folder, jobs.clean(jobs.JOBS[name], clean).new
    return found
