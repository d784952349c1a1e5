"""Run jobs on a small file system that fills up, where one can be mounted.

    unshare -m python -m fuzz.full JOB KILOBYTES FOLDER

The file system belongs to the process's own mount namespace, and ends with it.
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
    """There are no mount namespaces here, or not for this user."""


def case(rng, folder, number):
    """Job by the number; how much fits by chance, up to what it needs."""
    require_mount()
    job = jobs.JOBS[NAMES[number % len(NAMES)]]
    least = _kilobytes(job, None) + 4
    size = int(rng.integers(least, max(_needed(job.name), least + 1) + 8))
    ended = subprocess.run(
        ["unshare", "-m", sys.executable, "-m", "fuzz.full", job.name, str(size), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    said = ended.stderr.strip().splitlines()
    assert ended.returncode == 0, f"{job.name} in {size} kB: {said[-1] if said else 'no message'}"


def require_mount():
    """Raise CannotMountError, with the reason, where nothing can be mounted."""
    reason = _reason()
    if reason:
        raise CannotMountError(reason)


@functools.cache
def _reason():
    script = 'mount -t tmpfs -o size=64k none "$1"'
    with tempfile.TemporaryDirectory() as folder:
        try:
            tried = subprocess.run(
                ["unshare", "-m", "sh", "-c", script, "sh", folder],
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as error:
            return f"unshare cannot be run: {error}"
    return f"nothing can be mounted: {tried.stderr.strip()}" if tried.returncode else ""


@functools.cache
def _needed(name):
    """The kilobytes that the outputs of a job have in the end."""
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
    """Mount, run, look, make room, run again, look."""
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
