"""Runner that runs cases in separate processes and keeps their results in a file."""

import contextlib
import hashlib
import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa

MAX_MEMORY = 3 << 30  # bytes that a case may allocate
MAX_SECONDS = 300.0  # time after which a case is killed
BATCH = {"kills": 1, "full": 1, "faults": 5}  # cases between two checks of the time limit
USUAL_BATCH = 20
PROGRESS = ("done", "seconds", "failures")


def run_case(campaign, case, seed, number):
    """Run one case in an empty folder; return None, or why it failed."""
    rng = np.random.default_rng([seed, zlib.crc32(campaign.encode()), number])
    folder = Path(tempfile.mkdtemp(prefix="biv-fuzz-")).resolve()
    try:
        with _bounded_memory():
            case(rng, folder, number)
    except AssertionError as error:
        return str(error).replace(str(folder), "FOLDER")
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        in_biv = [frame for frame in frames if f"{os.sep}biv{os.sep}" in frame.filename] or frames
        place = f"{Path(in_biv[-1].filename).name}:{in_biv[-1].lineno}"
        message = str(error).replace(str(folder), "FOLDER")[:400]
        return f"{type(error).__name__} escaped at {place}: {message}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return None


@contextlib.contextmanager
def _bounded_memory():
    """Make allocations beyond the limit fail, if the system reports the memory in use."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        yield
        return
    pa.array(["text"])  # Arrow reserves its memory at the first allocation
    in_use = int(re.search(r"VmData:\s+(\d+)", status).group(1)) << 10
    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (in_use + MAX_MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


def _serve(connection, seed):
    """Run the cases that arrive through a pipe, until None does."""
    import torch

    from fuzz.campaigns import CAMPAIGNS

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, lambda *_: None)  # the runner handles it, after this batch
    while (request := connection.recv()) is not None:
        campaign, number = request
        start = time.perf_counter()
        failure = run_case(campaign, CAMPAIGNS[campaign], seed, number)
        connection.send((failure, time.perf_counter() - start))


class _Worker:
    """Process that runs cases; it is replaced if a case ends it or exceeds the time limit."""

    def __init__(self, seed):
        self.seed, self.process = seed, None

    def run(self, campaign, number):
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.connection, other_end = context.Pipe()
            self.process = context.Process(target=_serve, args=(other_end, self.seed))
            self.process.start()
            other_end.close()
        self.connection.send((campaign, number))
        try:
            if self.connection.poll(MAX_SECONDS):
                return self.connection.recv()
            self.process.kill()
            failure = f"did not end within {MAX_SECONDS:.0f} s"
        except EOFError:
            self.process.join()
            failure = f"ended the process, with exit code {self.process.exitcode}"
        self.process.join()
        self.process = None
        return failure, MAX_SECONDS

    def close(self):
        if self.process is not None:
            self.connection.send(None)
            self.process.join()


def _sources():
    """Return a digest of the code under test and of the campaigns."""
    import biv

    folders = (Path(biv.__file__).parent, Path(__file__).parent)
    paths = (path for folder in folders for path in sorted(folder.rglob("*.py")))
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


class State:
    """Results of the cases done, in a file that is replaced as a whole.

    Results for another seed or other sources are dropped.

    Attributes
    ----------
    done : dict of str to list
        Finished batches, by campaign.
    seconds : dict of str to float
        Process time in seconds, by campaign.
    failures : dict of str to dict
        Reason for each failure, by campaign and number.
    """

    def __init__(self, path, seed):
        self.path, self.seed, self.sources = Path(path), seed, _sources()
        self.done, self.seconds, self.failures = {}, {}, {}
        if self.path.is_file():
            saved = json.loads(self.path.read_text())
            if (saved["seed"], saved["sources"]) == (seed, self.sources):
                self.done, self.seconds, self.failures = (saved[name] for name in PROGRESS)

    def add(self, campaign, batch, seconds, failures):
        self.done.setdefault(campaign, []).append(batch)
        self.seconds[campaign] = self.seconds.get(campaign, 0.0) + seconds
        self.failures.setdefault(campaign, {}).update(failures)
        self.write()

    def write(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = {name: getattr(self, name) for name in ("seed", "sources", *PROGRESS)}
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(content, indent=1))
        temporary.replace(self.path)


def batches(cases):
    """Return the numbers of every campaign in batches, with the campaigns evenly mixed."""
    ordered = []
    for campaign, count in cases.items():
        size = BATCH.get(campaign, USUAL_BATCH)
        starts = range(0, count, size)
        for k, start in enumerate(starts):
            numbers = range(start, min(start + size, count))
            ordered.append(((k + 0.5) / len(starts), campaign, f"{start}-{numbers[-1]}", numbers))
    return [batch[1:] for batch in sorted(ordered, key=lambda batch: batch[:2])]


def run(cases, state, *, jobs, seconds):
    """Run the batches that are not done; return False if the time limit ended the run."""
    waiting = [b for b in batches(cases) if b[1] not in state.done.get(b[0], ())]
    waiting.reverse()
    lock, stop, end = threading.Lock(), threading.Event(), time.monotonic() + seconds

    def work():
        worker = _Worker(state.seed)
        while time.monotonic() < end and not stop.is_set():
            with lock:
                if not waiting:
                    break
                campaign, name, numbers = waiting.pop()
            outcomes = {number: worker.run(campaign, number) for number in numbers}
            failures = {str(n): failure for n, (failure, _) in outcomes.items() if failure}
            with lock:
                state.add(campaign, name, sum(s for _, s in outcomes.values()), failures)
                for number, failure in failures.items():
                    print(f"{campaign} {number}: {failure.splitlines()[0][:200]}", file=sys.stderr)
        worker.close()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        stop.set()
        for thread in threads:
            thread.join()
    return not waiting


def table(cases, state):
    """Return a table of campaigns, followed by the failures grouped by their messages."""
    lines = [f"{'campaign':10} {'cases':>7} {'failures':>9} {'seconds':>8}"]
    groups = {}
    for campaign in cases:
        count = 0
        for name in state.done.get(campaign, ()):
            first, last = map(int, name.split("-"))
            count += last - first + 1
        failures = state.failures.get(campaign, {})
        seconds = state.seconds.get(campaign, 0.0)
        lines.append(f"{campaign:10} {count:7,} {len(failures):9,} {seconds:8,.0f}")
        for number, failure in sorted(failures.items(), key=lambda item: int(item[0])):
            kind = re.sub(r"[-+.\d]*\d[-+.\de]*|FOLDER\S*", "…", failure)[:120]
            kind = kind.partition(" (")[0]
            groups.setdefault((campaign, kind), []).append((number, failure))
    for (campaign, _), group in sorted(groups.items(), key=lambda item: -len(item[1])):
        numbers = " ".join(number for number, _ in group[:8])
        more = " …" if len(group) > 8 else ""
        lines.append(f"\n{campaign}: {len(group)} of this kind, --case {numbers}{more}")
        lines.append(f"  {group[0][1].strip()[:600]}")
    return "\n".join(lines)
