"""Send signals to real processes at random moments of a job."""

import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fuzz import jobs
from fuzz.laws import Outcome

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP)
NAMES = (
    "train", "train --force", "predict --force", "report --force", "reproduce", "stream",
    "stream --force", "predict parquet", "train --force",
)  # fmt: skip
LONGEST = 240.0  # seconds
STARTING = 0.4  # of an undisturbed run, in which Python mostly imports


def case(rng, folder, number):
    """Job and signal by the number, the moment by chance; then the same command again."""
    job = jobs.JOBS[NAMES[number % len(NAMES)]]
    sent = SIGNALS[(number // len(NAMES) + number) % len(SIGNALS)]
    reference, duration = _reference(job.name)
    share = rng.uniform(0.05, STARTING) if rng.random() < 0.1 else rng.uniform(STARTING, 1.05)
    jobs.prepare(job, folder)
    outcome = _run(job, folder, sent, share * duration)
    called = f"{job.name}, {sent.name} at {share:.2f}, exit code {outcome.code}"
    try:
        if outcome.code == 0:
            jobs.require_finished(job, folder, reference)
            return
        early = outcome.err.rstrip().endswith("KeyboardInterrupt") and not outcome.out
        assert early or "Traceback (most" not in outcome.err, f"a traceback: {outcome.err[-600:]}"
        jobs.require_whole(job, folder, reference)
        again = _run(job, folder)
        done = jobs.state(folder) == reference.new  # it was killed after its last write
        refused = done and again.code == 2 and "already" in again.err
        assert again.code == 0 or refused, f"the next run fails: {again.err[-600:]}"
        jobs.require_finished(job, folder, reference)
    except AssertionError as error:
        raise AssertionError(f"{error} ({called})") from error


@functools.cache
def _reference(name):
    """What the job makes, and how long it takes."""
    with tempfile.TemporaryDirectory() as scratch:
        reference = jobs.clean(jobs.JOBS[name], Path(scratch).resolve(), _run)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve()
        jobs.prepare(jobs.JOBS[name], folder)
        start = time.perf_counter()
        _run(jobs.JOBS[name], folder)
        return reference, time.perf_counter() - start


def _run(job, folder, sent=None, after=0.0):
    """The command as a process of its own session, of which nothing may be left."""
    arguments = [str(argument) for argument in job.arguments(folder)]
    process = subprocess.Popen(
        [sys.executable, "-m", "biv", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    try:
        if sent is not None:
            try:
                out, err = process.communicate(timeout=after)
            except subprocess.TimeoutExpired:
                process.send_signal(sent)
        out, err = process.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{job.name} did not end within {LONGEST:.0f} s") from None
    finally:
        _end_session(process)
    return Outcome(process.returncode, out, err)


def _end_session(process):
    """Kill what is left of the session: the process itself, or workers that it has left."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
