"""Make each call of a job that changes the disk fail, one after another."""

import functools
import tempfile
from pathlib import Path

from fuzz import jobs
from fuzz.disk import watched
from fuzz.laws import require_clear

NAMES = [name for name in jobs.JOBS if name != "reproduce"]  # its workers are processes


def case(rng, folder, number):  # noqa: ARG001
    """Take job and call from the number, so that enough cases reach every call in both modes."""
    job = jobs.JOBS[NAMES[number % len(NAMES)]]
    reference, calls = _reference(job.name)
    step = number // len(NAMES) * 7 % (2 * calls)
    place, persistent = 1 + step // 2, step % 2 == 1
    jobs.prepare(job, folder)
    with watched(folder / "out", place, persistent=persistent) as watch:
        outcome = jobs.run(job, folder)
    kind, path = watch.calls[place - 1]
    description = f"{job.name}, call {place} of {calls}, {kind} of {Path(path).name}"
    try:
        require_clear(outcome, folder / "out", Path(path))
        jobs.require_whole(job, folder, reference)
        if outcome.code or "--force" in job.name:
            again = jobs.run_again(job, folder)
            assert again.code == 0, f"the next run fails: {again.err[-400:]}"
        jobs.require_finished(job, folder, reference)
    except AssertionError as error:
        raise AssertionError(f"{error} ({description}, exit code {outcome.code})") from error


@functools.cache
def _reference(name):
    with tempfile.TemporaryDirectory() as scratch:
        job, folder = jobs.JOBS[name], Path(scratch).resolve()
        jobs.prepare(job, folder)
        old = jobs.state(folder)
        with watched(folder / "out") as watch:
            outcome = jobs.run(job, folder)
        assert outcome.code == 0, f"{name} fails without a fault: {outcome}"
        files = jobs.files_below(folder / "out")
        return jobs.Clean(old, jobs.state(folder), files), len(watch.calls)
