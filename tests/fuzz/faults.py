"""Let each call of a job that changes the disk fail, one after another."""

import functools
import tempfile
from pathlib import Path

from fuzz import jobs
from fuzz.disk import watched
from fuzz.laws import require_clear

NAMES = [name for name in jobs.JOBS if name != "reproduce"]  # whose workers are processes


def case(rng, folder, number):  # noqa: ARG001
    """Job and call by the number: so many cases reach every call, alone and from there on."""
    job = jobs.JOBS[NAMES[number % len(NAMES)]]
    reference, calls = _reference(job.name)
    step = number // len(NAMES) * 7 % (2 * calls)
    place, persistent = 1 + step // 2, step % 2 == 1
    jobs.prepare(job, folder)
    with watched(folder / "out", place, persistent=persistent) as watch:
        outcome = jobs.run(job, folder)
    kind, path = watch.calls[place - 1]
    called = f"{job.name}, call {place} of {calls}, {kind} of {Path(path).name}"
    try:
        require_clear(outcome, folder / "out", Path(path))
        jobs.require_whole(job, folder, reference)
        if outcome.code or "--force" in job.name:
            again = jobs.run_again(job, folder)
            assert again.code == 0, f"the next run fails: {again.err[-400:]}"
        jobs.require_finished(job, folder, reference)
    except AssertionError as error:
        raise AssertionError(f"{error} ({called}, exit code {outcome.code})") from error


@functools.cache
def _reference(name):
    with tempfile.TemporaryDirectory() as scratch:
        job, folder = jobs.JOBS[name], Path(scratch).resolve()
        jobs.prepare(job, folder)
        old = jobs.state(folder)
        with watched(folder / "out") as watch:
            outcome = jobs.run(job, folder)
        assert outcome.code == 0, f"{name} fails undisturbed: {outcome}"
        files = jobs.files_below(folder / "out")
        return jobs.Clean(old, jobs.state(folder), files), len(watch.calls)
