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
    """Take job and signal from the number, send it at a random moment, and repeat the command."""
    job = jobs.JOBS[NAMES[number % len(NAMES)]]
    sent = SIGNALS[(number // len(NAMES) + number) % len(SIGNALS)]
    reference, duration, writing = _reference(job.name)
    from_first_write = rng.random() < 0.7  # so that short jobs, too, are killed while they write
    after = rng.uniform(0, 1.05) * ((writing + 0.01) if from_first_write else duration)
    jobs.prepare(job, folder)
    outcome = _run(job, folder, _Shot(sent, after, from_first_write))[0]
    moment = "the first write" if from_first_write else "the start"
    description = f"{job.name}, {sent.name} {after:.3f} s after {moment}, exit code {outcome.code}"
    try:
        if outcome.code == 0:
            jobs.require_finished(job, folder, reference)
            return
        early = outcome.err.rstrip().endswith("KeyboardInterrupt") and not outcome.out
        assert early or "Traceback (most" not in outcome.err, f"a traceback: {outcome.err[-600:]}"
        jobs.require_whole(job, folder, reference)
        again = jobs.run_again(job, folder, lambda job, folder: _run(job, folder)[0])
        done = jobs.state(folder) == reference.new  # the signal came after the last write
        refused = done and again.code == 2 and "already" in again.err
        assert again.code == 0 or refused, f"the next run fails: {again.err[-600:]}"
        jobs.require_finished(job, folder, reference)
    except AssertionError as error:
        raise AssertionError(f"{error} ({description})") from error


class _Shot(NamedTuple):
    """Signal, and the number of seconds after the start or the first write at which it is sent."""

    signal: signal.Signals
    after: float
    from_first_write: bool


@functools.cache
def _reference(name):
    """Return what the job makes, and how many seconds it takes and writes."""
    times = []

    def run(job, folder):
        outcome, *seconds = _run(job, folder)
        times.extend(seconds)
        return outcome

    with tempfile.TemporaryDirectory() as scratch:
        return jobs.clean(jobs.JOBS[name], Path(scratch).resolve(), run), *times


def _run(job, folder, shot=None):
    """Run the command in a new session, and kill all processes that it leaves.

    Return the outcome, the seconds that it took, and the seconds between first and last write.
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
                since = first if shot and shot.from_first_write else start
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
    """Return the files below the output folder with their times, which change with every write."""
    try:
        return {(path, path.lstat().st_mtime_ns) for path in (folder / "out").rglob("*")}
    except OSError:  # a file has disappeared meanwhile
        return None


def _end_session(process):
    """Kill the processes that are left in the session: the process itself, or its workers."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
