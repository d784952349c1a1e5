"""Sweeps on clusters, on this machine's loopback: real schedulers, real workers, real deaths."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
import torch

from biv.cli import main
from biv.paper import runner, stacks
from biv.paper.results import Failure
from biv.paper.store import Store
from biv.paper.workers import clusters
from biv.paper.workers.clusters import Address, Data
from biv.paper.workers.processes import Processes
from helpers.paper_runs import RUN, SMOKE, assert_same_result

TABLE = SMOKE["table1"].runs(1)
BAD = replace(RUN, seed=77)  # of the shape of the others; see `bad_run`
PATIENCE = 60  # seconds until a server must be there


@pytest.fixture
def bad_run(tmp_path, monkeypatch):
    """Have the bad run raise what is no ValueError, in every process that is started."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(f"""
from biv.paper.protocol import MemberFactory
make = MemberFactory.__call__
def make_or_raise(self, run):
    if run.seed == {BAD.seed}:
        raise TypeError("no such seed")
    return make(self, run)
MemberFactory.__call__ = make_or_raise
""")
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(tmp_path / "site"), *([inherited] if inherited else [])])
    monkeypatch.setenv("PYTHONPATH", path)


@contextmanager
def started(*command, **environment):
    """A server with whatever it starts, ended by its own process group."""
    process = subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
        with suppress(ProcessLookupError):  # what it left behind, if it did
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def eventually(condition):
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.05)
    return found


@contextmanager
def dask_cluster(folder, workers=2, threads=1, **settings):
    """A scheduler and workers, each a process of its own; its address and the workers' processes."""
    file = folder / "scheduler.json"
    local = ("--host", "127.0.0.1", "--no-dashboard", "--dashboard-address", "127.0.0.1:0")
    command = ("-m", "dask", "scheduler", *local, "--port", "0", "--scheduler-file", str(file))
    with started(*command, **settings):
        eventually(lambda: file.exists() and file.read_text())
        place = json.loads(file.read_text())["address"].removeprefix("tcp://")
        options = ("--no-nanny", "--nthreads", str(threads), "--local-directory", str(folder))
        command = ("-m", "dask", "worker", f"tcp://{place}", *local, *options)
        with started_all(workers, *command, **settings) as processes:
            yield f"dask://{place}", processes


@contextmanager
def started_all(count, *command, **environment):
    if count == 0:
        yield []
        return
    with (
        started(*command, **environment) as one,
        started_all(count - 1, *command, **environment) as others,
    ):
        yield [one, *others]


@contextmanager
def watching(cluster):
    """A client of a Dask cluster, beside the sweep's own."""
    import distributed

    place = cluster.replace("dask://", "tcp://")
    with distributed.Client(place, set_as_default=False, timeout=PATIENCE) as client:
        yield client


def connected(cluster, workers=2):
    """The workers of a cluster, once all have come."""
    with watching(cluster) as client:
        client.wait_for_workers(workers, timeout=PATIENCE)
    return clusters.connect(clusters.address(cluster))


def provenance(store, runs):
    return {run: result.provenance for run, result in store.results(runs).items()}


def reproduce(folder, *options):
    command = ["reproduce", "table1", "--dataset", "bike2011", "--preset", "smoke"]
    return main([*command, "--seeds", "1", "--out", str(folder), *options])


def written(folder):
    """What is written of a table, pictures aside."""
    return {
        kind: (folder / f"table1-bike2011-smoke.{kind}").read_bytes()
        for kind in ("csv", "md", "tex")
    }


@pytest.mark.slow
def test_a_sweep_begun_here_ends_on_dask_though_a_worker_is_killed(tmp_path, monkeypatch, capsys):
    here, there = (
        Store(tmp_path / "here" / "runs.sqlite"),
        Store(tmp_path / "there" / "runs.sqlite"),
    )
    expected = stacks.train(TABLE)
    here.add(expected)
    there.add(expected[:4])
    begun = provenance(there, TABLE[:4])
    monkeypatch.setattr(runner, "LARGEST_STACK", 3)
    killed = []
    add = Store.add
    with dask_cluster(tmp_path, threads=2) as (cluster, _), watching(cluster) as client:
        client.wait_for_workers(2, timeout=PATIENCE)
        pids = client.run(os.getpid)

        def add_and_kill(store, outcomes):
            add(store, outcomes)
            if outcomes and not killed:
                busy = [worker for worker, keys in client.processing().items() if keys]
                os.kill(pids[busy[0]], signal.SIGKILL)
                killed.append(busy[0])

        monkeypatch.setattr(Store, "add", add_and_kill)
        assert reproduce(tmp_path / "there", "--cluster", cluster) == 0
        eventually(lambda: killed and killed[0] not in client.nthreads())
    shown = capsys.readouterr().out
    assert f"18 runs to train, 4 stored already: in 2 processes of {cluster}." in shown
    assert f"{cluster} has 4 threads in 2 workers, and a worker trains one stack at a time" in shown
    assert "18 runs trained, 4 were stored already." in shown
    found = there.results(TABLE)
    for outcome in expected:
        assert_same_result(found[outcome.run], outcome)
    assert {found[run].provenance["threads"] for run in TABLE} == {1}
    assert provenance(there, TABLE[:4]) == begun
    assert reproduce(tmp_path / "here", "--stored") == 0
    assert written(tmp_path / "here") == written(tmp_path / "there")


@pytest.mark.slow
@pytest.mark.usefixtures("bad_run")
def test_on_dask_what_fails_fails_alone_and_what_is_interrupted_ends_here(tmp_path, monkeypatch):
    """One cluster for all of it, since each takes seconds to start."""
    store, lines = Store(tmp_path / "runs.sqlite"), []
    good = [replace(RUN, seed=seed) for seed in range(3)]
    settings = {
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
        "BIV_DATA_DIR": str(tmp_path / "none"),
        "BIV_CACHE_DIR": str(tmp_path / "none"),
    }
    with dask_cluster(tmp_path, **settings) as (cluster, _):
        # Data that are not there are told before anything is trained.
        face = replace(RUN, dataset="utkface", pixels=32)
        with pytest.raises(ValueError, match=r"on the worker tcp://127\.0\.0\.1:\d+: .*UTKFace"):
            runner.complete([face], store, workers=connected(cluster))
        # Another version is told with both.
        with monkeypatch.context() as patch:
            patch.setattr(clusters, "_sources", lambda: "other")
            with pytest.raises(ValueError, match=r"worker tcp://.*\(sources other\).*; got biv"):
                clusters.connect(clusters.address(cluster))
        # One bad run of a stack: its traceback, another attempt, the rest.
        workers = connected(cluster)
        workers.count = 1  # all in one stack
        plan = runner.complete([*good, BAD], store, workers=workers, say=lines.append)
        assert_fails_alone(plan, lines, store)
        # Interrupted: what was done is stored, nothing is left in the queue.
        more = [replace(RUN, seed=seed) for seed in range(10, 22)]
        monkeypatch.setattr(runner, "LARGEST_STACK", 3)
        with pytest.raises(KeyboardInterrupt):
            runner.complete(more, store, workers=connected(cluster), say=interrupt)
        assert len(store.missing(more)) == 8
        with watching(cluster) as client:
            count = lambda dask_scheduler: len(dask_scheduler.tasks)  # noqa: E731
            eventually(lambda: client.run_on_scheduler(count) == 0)
        before = provenance(store, more)
        # What was begun there ends here.
        runner.complete(more[:6], store, jobs=1)
        assert not store.missing(more[:6])
        assert before.items() <= provenance(store, more).items()
        # A run that ends its worker is given up, and the other worker goes on. There are as many
        # stacks as workers: Dask suspects those too that wait for a worker when it dies.
        deadly = replace(RUN, seed=30)
        monkeypatch.setattr(clusters, "work", ending_at(deadly))
        monkeypatch.setattr(runner, "LARGEST_STACK", 1)
        workers = connected(cluster)
        workers.count = 1
        plan = runner.complete([deadly, more[6]], store, workers=workers, say=lines.append)
        assert not store.missing(more[6:7])
        runner.complete(more, store, workers=connected(cluster, workers=1))
    ((run, error, told),) = ((f.run, f.error, f.provenance["traceback"]) for f in plan.failed)
    assert run == deadly
    assert error.startswith("KilledWorker: all that were given this stack died")
    assert told == ""
    assert not store.missing(more)
    expected = {outcome.run: outcome for outcome in stacks.train([*good, *more])}
    for run, result in store.results([*good, *more]).items():
        assert_same_result(result, expected[run])


def interrupt(_):
    raise KeyboardInterrupt


def ending_at(deadly):
    """What a worker is given to do instead, sent by value: the worker ends at one run."""

    def work_or_end(runs, here):
        from biv.paper.workers import clusters

        if deadly in runs:
            os._exit(1)
        return clusters.work(runs, here)

    return work_or_end


def assert_fails_alone(plan, lines, store):
    """Three good runs and a bad one in a stack: it is tried again, and nobody else fails."""
    first, *others = lines
    assert first.startswith("stack 1 of 5: 4 runs of bike2011 failed and will be tried again (")
    assert "Traceback" in first
    assert "TypeError: " in first
    assert sorted(line.split(": ")[0] for line in others) == [
        f"stack {k} of 5" for k in range(2, 6)
    ]
    (told,) = (line for line in others if "1 failed" in line)
    assert "in make_or_raise" in told
    (failure,) = plan.failed
    assert failure.run == BAD
    assert failure.error.startswith("TypeError: ")
    assert (plan.stored, plan.trained) == (0, 3)
    (stored,) = store.failures()
    assert stored == failure
    assert stored.provenance["traceback"].startswith("Traceback (most recent call last)")


@pytest.mark.slow
@pytest.mark.usefixtures("bad_run")
def test_here_one_bad_run_of_a_stack_fails_alone(tmp_path):
    store, lines = Store(tmp_path / "runs.sqlite"), []
    runs = [*(replace(RUN, seed=seed) for seed in range(3)), BAD]
    plan = runner.complete(runs, store, jobs=1, say=lines.append)
    assert_fails_alone(plan, lines, store)


@pytest.mark.parametrize("again", [True, False])
def test_a_lone_run_is_tried_twice_and_no_more(again, tmp_path):
    """And once if it has ended its workers."""
    attempts = []
    trouble = stacks.Trouble("E: no", "Traceback: no", "there", {"biv": "0"}, again)

    class Failing(Silent):
        def finished(self, _):
            while self.waiting and len(attempts) < 5:
                attempts.append(runs := self.waiting.pop(0))
                yield runs, trouble

    workers = Failing()
    plan = runner.complete([RUN], Store(tmp_path / "runs.sqlite"), workers=workers)
    assert attempts == [[RUN]] * (2 if again else 1)
    assert plan.failed == [Failure(RUN, "E: no", {"biv": "0", "traceback": "Traceback: no"})]
    assert workers.closed


class Silent:
    """Workers that do nothing."""

    count, closed = 1, False

    def __init__(self):
        self.waiting = []

    def require_rows(self, _):
        return None

    def submit(self, runs):
        self.waiting.append(runs)

    def close(self):
        self.closed = True


def test_a_worker_trains_one_stack_at_a_time_on_one_thread(monkeypatch):
    at_once, seen = [], []

    def attempt(runs):
        at_once.append(runs)
        time.sleep(0.05)
        seen.append((len(at_once), torch.get_num_threads()))
        at_once.remove(runs)

    monkeypatch.setattr(stacks, "attempt", attempt)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        threads = [
            threading.Thread(target=clusters.work, args=([k], clusters.versions()))
            for k in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        clusters.work([3], clusters.versions())
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [(1, 1)] * 4


def test_a_worker_that_comes_later_is_held_to_the_same_version():
    with pytest.raises(
        clusters.OtherVersionError, match=r"must have biv 9 .*; one that came later"
    ):
        clusters.work([RUN], clusters.versions()._replace(biv="9"))


def test_addresses():
    assert clusters.address("dask://10.0.0.7:8786") == Address("dask", "10.0.0.7:8786")
    assert clusters.address("dask://[::1]:8786") == Address("dask", "[::1]:8786")
    assert clusters.address("ray") == Address("ray", None)
    assert clusters.address("ray:head:6379") == Address("ray", "head:6379")
    for text in ("dask://10.0.0.7:8786", "ray", "ray:head:6379"):
        assert str(clusters.address(text)) == text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cluster", text], f"a cluster is dask://HOST:PORT, ray or ray:HOST:PORT; got '{text}'")
        for text in ("dask", "dask:h:1", "dask://h", "dask://h:x", "dask://:1", "dask://h:1/x", "ray:", "ray://h:1", "ray:h", "ray:h:0", "slurm", "")
    ]
    + [
        (["--cluster", "ray", "--jobs", "2"], "--jobs are processes of this machine"),
        (["--cluster", "ray", "--stored"], "--stored and --list train nothing"),
        (["--cluster", "ray", "--list"], "--stored and --list train nothing"),
    ],
)  # fmt: skip
def test_bad_usage_is_told(options, message, tmp_path, capsys):
    assert reproduce(tmp_path / "new", *options) == 2
    assert message in capsys.readouterr().err
    assert main(["claims", *options, "--out", str(tmp_path / "new")]) == 2
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("kind", "name"), [("dask", "dask.distributed"), ("ray", "Ray")])
def test_a_package_that_is_missing_is_told(kind, name, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    text = {"dask": "dask://h:1", "ray": "ray"}[kind]
    with pytest.raises(ValueError, match=rf"{text} needs {name}: pip install 'biv\[{kind}\]'"):
        clusters.address(text)


@pytest.mark.parametrize("form", ["dask://{}", "ray:{}", "ray"])
def test_a_scheduler_that_is_not_there_is_told(form, tmp_path, monkeypatch, capsys):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        place = f"127.0.0.1:{nobody.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", place)
        assert reproduce(tmp_path / "new", "--cluster", form.format(place)) == 2
    assert f"{form.format(place)} does not answer" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_server_of_others_is_no_scheduler(monkeypatch):
    monkeypatch.setattr(clusters, "PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:  # which says nothing
        place = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=f"at dask://{place} is no scheduler of Dask"):
            clusters.connect(clusters.address(f"dask://{place}"))


@pytest.mark.slow
def test_a_scheduler_without_workers_is_told(tmp_path, monkeypatch):
    with dask_cluster(tmp_path, workers=0) as (cluster, _):
        monkeypatch.setattr(clusters, "PATIENCE", 2.0)
        with pytest.raises(ValueError, match=r"has no workers after 2 s: start some"):
            clusters.connect(clusters.address(cluster))


def test_what_is_asked_of_workers():
    here = clusters.versions()
    clusters.require_versions({"a": here, "b": here})
    for other in (here._replace(torch="1.0"), here._replace(sources="x"), here._replace(biv="9")):
        with pytest.raises(clusters.OtherVersionError, match=r"worker b .*; got biv"):
            clusters.require_versions({"a": here, "b": other})
    with pytest.raises(clusters.OtherVersionError, match=r"worker b cannot say .*No module"):
        clusters.require_versions({"a": here, "b": ModuleNotFoundError("No module")})
    assert (
        clusters.require_data({"a": Data("x", None, "3 files"), "b": Data("x", None, None)})
        == "3 files"
    )
    with pytest.raises(ValueError, match="same data; b and a have different ones"):
        clusters.require_data({"a": Data("x", None, None), "b": Data("y", None, None)})
    with pytest.raises(ValueError, match="on the worker b: too few"):
        clusters.require_data({"a": Data("x", None, None), "b": Data("", "too few", None)})
    with pytest.raises(ValueError, match="worker b cannot say which data it has: gone"):
        clusters.require_data({"a": Data("x", None, None), "b": OSError("gone")})


def test_data_are_known_by_their_labels():
    found = clusters.data([RUN])
    assert (len(found.digest), found.problem, found.note) == (12, None, None)
    assert "bike2011 has 8,645 rows" in clusters.data([replace(RUN, train_rows=9_000)]).problem


def test_sources_are_known_by_their_names_and_content(tmp_path, monkeypatch):
    monkeypatch.setattr(clusters, "__file__", str(tmp_path / "experiments" / "clusters.py"))

    def digest(name, content):
        (tmp_path / name).write_text(content)
        clusters._sources.cache_clear()
        found = clusters._sources()
        (tmp_path / name).unlink()
        return found

    try:
        one = digest("a.py", "x = 1")
        assert digest("a.py", "x = 1") == one
        assert len({one, digest("a.py", "x = 2"), digest("b.py", "x = 1")}) == 3
    finally:
        clusters._sources.cache_clear()


@pytest.mark.slow
def test_neither_dask_nor_ray_is_imported_unasked():
    code = "import sys, biv.cli; print(*{'dask', 'distributed', 'ray'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""


RAY = """
import os, sys
from pathlib import Path
from biv.cli import main
from biv.paper.workers import clusters

marker = Path(sys.argv[1])

def work_or_end(runs, here):
    from biv.paper.workers import clusters
    if not marker.exists():
        marker.touch()
        os._exit(1)
    return clusters.work(runs, here)

clusters.work = work_or_end
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.slow
def test_on_ray_a_stack_whose_worker_died_is_given_to_another(tmp_path):
    # For 127.0.0.1 Ray takes the address that others can reach. Two of its servers listen on every
    # address whatever one says: hence a token that nobody else has.
    loopback = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
    script = tmp_path / "sweep.py"
    script.write_text(RAY)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # paths of sockets are to be short
        settings = {"RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")}
        (tmp_path / "token").write_text(os.urandom(16).hex())
        settings |= {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
        with socket.socket() as free:
            free.bind((loopback, 0))
            place = f"{loopback}:{free.getsockname()[1]}"
        command = ("-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus", "2")
        command += ("--node-ip-address", loopback, "--port", place.partition(":")[2])
        command += ("--include-dashboard", "false", "--temp-dir", folder)
        command += ("--object-store-memory", "100000000")
        with started(*command, **settings):
            eventually(lambda: listening(place))
            command = ["reproduce", "table1", "--dataset", "bike2011", "--preset", "smoke"]
            command += ["--seeds", "1", "--out", str(tmp_path), "--cluster", f"ray:{place}"]
            run = subprocess.run(
                [sys.executable, script, str(tmp_path / "died"), *command],
                env={**os.environ, **settings},
                capture_output=True,
                text=True,
                timeout=240,
            )
    assert run.returncode == 0, run.stderr
    assert f"22 runs to train, 0 stored already: in 2 processes of ray:{place}." in run.stdout
    assert "22 runs trained, 0 were stored already." in run.stdout
    assert (tmp_path / "died").exists()
    found = Store(tmp_path / "runs.sqlite").results(TABLE)
    for outcome in stacks.train(TABLE):
        assert_same_result(found[outcome.run], outcome)


def listening(place):
    host, _, port = place.partition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


def test_closing_twice_does_no_harm():
    workers = Processes(1)
    workers.close()
    workers.close()


@pytest.mark.slow
def test_a_process_here_that_is_ended_from_outside_ends_the_sweep():
    workers = Processes(1)
    workers.submit([RUN])
    (pid,) = workers._pool._processes
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="a worker process was ended from outside"):
        list(workers.finished(lambda _: None))
    workers.close()
