"""Run jobs on a small file system that fills up, if one can be mounted.

    unshare -m python -m fuzz.full JOB KILOBYTES FOLDER

The file system belongs to the mount namespace of the process, and disappears with it.
"""

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fuzz import jobs
from fuzz.laws import require_clear

NAMES = ("train", "predict", "predict parquet", "report --force", "reproduce --stored", "stream")
ROOM = "64m"


class CannotMountError(Exception):
    """Error raised if this system or user cannot mount a file system."""


def case(rng, folder, number):
    """Take the job from the number, and a random size up to what the job needs."""
    require_mount()
    job = jobs.JOBS[NAMES[number % len(NAMES)]]
    least = _kilobytes(job, None) + 4
    size = int(rng.integers(least, max(_needed(job.name), least + 1) + 8))
    run = subprocess.run(
        ["unshare", "-m", sys.executable, "-m", "fuzz.full", job.name, str(size), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    lines = run.stderr.strip().splitlines()
    assert run.returncode == 0, f"{job.name} in {size} kB: {lines[-1] if lines else 'no message'}"


def require_mount():
    """Raise CannotMountError, with the reason, if nothing can be mounted."""
    reason = _reason()
    if reason:
        raise CannotMountError(reason)


@functools.cache
def _reason():
    script = 'mount -t tmpfs -o size=64k none "$1"'
    with tempfile.TemporaryDirectory() as folder:
        try:
            attempt = subprocess.run(
                ["unshare", "-m", "sh", "-c", script, "sh", folder],
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as error:
            return f"unshare cannot be run: {error}"
    return f"nothing can be mounted: {attempt.stderr.strip()}" if attempt.returncode else ""


@functools.cache
def _needed(name):
    """Return the size of a job's outputs in kilobytes."""
    return _kilobytes(jobs.JOBS[name], jobs.run)


def _kilobytes(job, do):
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve()
        jobs.prepare(job, folder)
        if do is not None:
            do(job, folder)
        paths = (path for path in (folder / "out").rglob("*") if path.is_file())
        return sum(4 * (-(-path.stat().st_size // 4096)) + 4 for path in paths)


def _child(name, size, folder):
    """Run a job on a file system that is too small, enlarge it and run the job again."""
    job, folder = jobs.JOBS[name], Path(folder)
    with tempfile.TemporaryDirectory() as scratch:
        reference = jobs.clean(job, Path(scratch).resolve())
    out = folder / "out"
    out.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", str(out)], check=True)
    jobs.prepare(job, folder)
    outcome = jobs.run(job, folder)
    require_clear(outcome, out)
    jobs.require_whole(job, folder, reference)
    subprocess.run(["mount", "-o", f"remount,size={ROOM}", str(out)], check=True)
    if outcome.code:
        again = jobs.run_again(job, folder)
        assert again.code == 0, f"the next run fails: {again.err[-400:]}"
    jobs.require_finished(job, folder, reference)


if __name__ == "__main__":
    _child(*sys.argv[1:])
