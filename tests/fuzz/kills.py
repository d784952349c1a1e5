"""Send signals to real processes at random moments of a job."""

import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from fuzz import jobs
from fuzz.laws import Outcome

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP)
NAMES = (
    "train", "train --force", "predict --force", "report --force", "reproduce", "stream",
    "stream --force", "predict parquet", "train --force",
)  # fmt: skip
LONGEST = 240.0  # seconds


def case(rng, folder, number):
    """Job and signal by the number, the moment by chance; then the same command again."""
    job = jobs.JOBS[NAMES[number % len(NAMES)]]
    sent = SIGNALS[(number // len(NAMES) + number) % len(SIGNALS)]
    reference, duration, writing = _reference(job.name)
    watching = rng.random() < 0.7  # of a short job, hardly any other moment is one of writing
    after = rng.uniform(0, 1.05) * ((writing + 0.01) if watching else duration)
    jobs.prepare(job, folder)
    outcome = _run(job, folder, _Shot(sent, after, watching))[0]
    moment = "the first write" if watching else "the start"
    called = f"{job.name}, {sent.name} {after:.3f} s after {moment}, exit code {outcome.code}"
    try:
        if outcome.code == 0:
            jobs.require_finished(job, folder, reference)
            return
        early = outcome.err.rstrip().endswith("KeyboardInterrupt") and not outcome.out
        assert early or "Traceback (most" not in outcome.err, f"a traceback: {outcome.err[-600:]}"
        jobs.require_whole(job, folder, reference)
        again = jobs.run_again(job, folder, lambda job, folder: _run(job, folder)[0])
        done = jobs.state(folder) == reference.new  # it was killed after its last write
        refused = done and again.code == 2 and "already" in again.err
        assert again.code == 0 or refused, f"the next run fails: {again.err[-600:]}"
        jobs.require_finished(job, folder, reference)
    except AssertionError as error:
        raise AssertionError(f"{error} ({called})") from error


class _Shot(NamedTuple):
    """A signal, so many seconds after the start or after the first write."""

    signal: signal.Signals
    after: float
    watching: bool


@functools.cache
def _reference(name):
    """What the job makes, how long it takes, and how long it writes."""
    times = []

    def run(job, folder):
        outcome, *taken = _run(job, folder)
        times.extend(taken)
        return outcome

    with tempfile.TemporaryDirectory() as scratch:
        return jobs.clean(jobs.JOBS[name], Path(scratch).resolve(), run), *times


def _run(job, folder, shot=None):
    """The command as a process of its own session, of which nothing may be left.

    Returns:
        The outcome; the seconds that it took, and those between its first and its last write.
    """
    arguments = [str(argument) for argument in job.arguments(folder)]
    start, listed = time.perf_counter(), _listing(folder)
    first = last = None
    with (folder / "stdout").open("w+") as out, (folder / "stderr").open("w+") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "biv", *arguments],
            stdout=out,
            stderr=err,
            start_new_session=True,
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        try:
            while process.poll() is None:
                now = time.perf_counter()
                if now - start > LONGEST:
                    raise AssertionError(f"{job.name} did not end within {LONGEST:.0f} s")
                if _listing(folder) != listed:
                    first, last, listed = first or now, now, _listing(folder)
                since = first if shot and shot.watching else start
                if shot and since is not None and now - since > shot.after:
                    process.send_signal(shot.signal)
                    shot = None
                time.sleep(0.001)
        finally:
            _end_session(process)
    end = time.perf_counter()
    texts = ((folder / name).read_text(errors="replace") for name in ("stdout", "stderr"))
    return Outcome(process.returncode, *texts), end - start, (last or end) - (first or end)


def _listing(folder):
    """What changes with the first write."""
    try:
        return {(path, path.lstat().st_mtime_ns) for path in (folder / "out").rglob("*")}
    except OSError:  # gone meanwhile
        return None


def _end_session(process):
    """Kill what is left of the session: the process itself, or workers that it has left."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
