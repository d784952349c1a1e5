"""The runner: cases in processes of their own, what became of them in a file."""

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

MAX_MEMORY = 3 << 30  # bytes, that a case may need beyond what the process has before
MAX_SECONDS = 300.0  # after which a case counts as one that never ends
BATCH = {"kills": 1, "full": 1, "faults": 5}  # cases, between two looks at the clock
USUAL_BATCH = 20
PROGRESS = ("done", "seconds", "failures")


def run_case(campaign, case, seed, number):
    """Run one case in an empty folder; None, or why it failed."""
    rng = np.random.default_rng([seed, zlib.crc32(campaign.encode()), number])
    folder = Path(tempfile.mkdtemp(prefix="biv-fuzz-")).resolve()
    try:
        with _bounded_memory():
            case(rng, folder, number)
    except AssertionError as error:
        return str(error).replace(str(folder), "FOLDER")
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if f"{os.sep}biv{os.sep}" in frame.filename] or frames
        place = f"{Path(own[-1].filename).name}:{own[-1].lineno}"
        said = str(error).replace(str(folder), "FOLDER")[:400]
        return f"{type(error).__name__} escaped at {place}: {said}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return None


@contextlib.contextmanager
def _bounded_memory():
    """Let allocations beyond the bound fail, where the system can say what there is."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        yield
        return
    pa.array(["text"])  # reserves memory for all that follows
    held = int(re.search(r"VmData:\s+(\d+)", status).group(1)) << 10
    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (held + MAX_MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


def _serve(connection, seed):
    """In a process: run the cases that are asked for."""
    import torch

    from fuzz.campaigns import CAMPAIGNS

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, lambda *_: None)  # is for the runner, which ends after this batch
    while (asked := connection.recv()) is not None:
        campaign, number = asked
        start = time.perf_counter()
        failure = run_case(campaign, CAMPAIGNS[campaign], seed, number)
        connection.send((failure, time.perf_counter() - start))


class _Worker:
    """A process that runs cases, replaced when a case ends it or never ends itself."""

    def __init__(self, seed):
        self.seed, self.process = seed, None

    def run(self, campaign, number):
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.connection, theirs = context.Pipe()
            self.process = context.Process(target=_serve, args=(theirs, self.seed))
            self.process.start()
            theirs.close()
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
    """A digest of the code under test and of the campaigns."""
    import biv

    folders = (Path(biv.__file__).parent, Path(__file__).parent)
    paths = (path for folder in folders for path in sorted(folder.rglob("*.py")))
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


class State:
    """What has been done, in a file that is replaced as a whole.

    Results of another seed or of other sources are dropped.

    Attributes:
        done: The batches that are finished, by campaign.
        seconds: Of a process, by campaign.
        failures: Why each case failed, by campaign and number.
    """

    def __init__(self, path, seed):
        self.path, self.seed, self.sources = Path(path), seed, _sources()
        self.done, self.seconds, self.failures = {}, {}, {}
        if self.path.is_file():
            told = json.loads(self.path.read_text())
            if (told["seed"], told["sources"]) == (seed, self.sources):
                self.done, self.seconds, self.failures = (told[name] for name in PROGRESS)

    def add(self, campaign, batch, seconds, failures):
        self.done.setdefault(campaign, []).append(batch)
        self.seconds[campaign] = self.seconds.get(campaign, 0.0) + seconds
        self.failures.setdefault(campaign, {}).update(failures)
        self.write()

    def write(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        told = {name: getattr(self, name) for name in ("seed", "sources", *PROGRESS)}
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        beside.write_text(json.dumps(told, indent=1))
        beside.replace(self.path)


def batches(cases):
    """Every campaign's numbers in batches, the campaigns mixed evenly."""
    found = []
    for campaign, count in cases.items():
        size = BATCH.get(campaign, USUAL_BATCH)
        starts = range(0, count, size)
        for k, start in enumerate(starts):
            numbers = range(start, min(start + size, count))
            found.append(((k + 0.5) / len(starts), campaign, f"{start}-{numbers[-1]}", numbers))
    return [batch[1:] for batch in sorted(found, key=lambda batch: batch[:2])]


def run(cases, state, *, jobs, seconds):
    """Run what the state does not have yet; False if the time was up before all was done."""
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
    """Campaign, cases, failures, seconds; then the failures, those that are alike together."""
    lines = [f"{'campaign':10} {'cases':>7} {'failures':>9} {'seconds':>8}"]
    alike = {}
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
            alike.setdefault((campaign, kind), []).append((number, failure))
    for (campaign, _), several in sorted(alike.items(), key=lambda item: -len(item[1])):
        numbers = " ".join(number for number, _ in several[:8])
        more = " …" if len(several) > 8 else ""
        lines.append(f"\n{campaign}: {len(several)} of this kind, --case {numbers}{more}")
        lines.append(f"  {several[0][1].strip()[:600]}")
    return "\n".join(lines)
