"""Test training on clusters, with real schedulers and workers on this machine that are killed."""

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
BAD = replace(RUN, seed=77)  # has the shape of the others; see `bad_run`
START_TIMEOUT = 60  # seconds in which a server must start


@pytest.fixture
def bad_run(tmp_path, monkeypatch):
    """Make the bad run raise a TypeError in every process that is started."""
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
    """Start a server in its own process group, and stop the whole group at the end."""
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
        with suppress(ProcessLookupError):  # processes that it left behind
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def eventually(condition):
    deadline = time.monotonic() + START_TIMEOUT
    while not (value := condition()):
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.05)
    return value


@contextmanager
def dask_cluster(folder, workers=2, threads=1, **settings):
    """Start a scheduler and workers; yield the address and the processes of the workers."""
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
    """Connect another client to a Dask cluster."""
    import distributed

    place = cluster.replace("dask://", "tcp://")
    with distributed.Client(place, set_as_default=False, timeout=START_TIMEOUT) as client:
        yield client


def connected(cluster, workers=2):
    """Return the workers of a cluster when all have joined."""
    with watching(cluster) as client:
        client.wait_for_workers(workers, timeout=START_TIMEOUT)
    return clusters.connect(clusters.address(cluster))


def provenance(store, runs):
    return {run: result.provenance for run, result in store.results(runs).items()}


def reproduce(folder, *options):
    command = ["reproduce", "table1", "--dataset", "bike2011", "--preset", "smoke"]
    return main([*command, "--seeds", "1", "--out", str(folder), *options])


def written(folder):
    """Return the text files that were written for the table."""
    return {
        kind: (folder / f"table1-bike2011-smoke.{kind}").read_bytes()
        for kind in ("csv", "md", "tex")
    }


@pytest.mark.slow
def test_training_started_here_is_finished_on_dask_although_a_worker_is_killed(
    tmp_path, monkeypatch, capsys
):
    local, cluster_store = (
        Store(tmp_path / "local" / "runs.sqlite"),
        Store(tmp_path / "cluster" / "runs.sqlite"),
    )
    expected = stacks.train(TABLE)
    local.add(expected)
    cluster_store.add(expected[:4])
    before = provenance(cluster_store, TABLE[:4])
    monkeypatch.setattr(runner, "LARGEST_STACK", 3)
    killed = []
    add = Store.add
    with dask_cluster(tmp_path, threads=2) as (cluster, _), watching(cluster) as client:
        client.wait_for_workers(2, timeout=START_TIMEOUT)
        pids = client.run(os.getpid)

        def add_and_kill(store, outcomes):
            add(store, outcomes)
            if outcomes and not killed:
                busy = [worker for worker, keys in client.processing().items() if keys]
                os.kill(pids[busy[0]], signal.SIGKILL)
                killed.append(busy[0])

        monkeypatch.setattr(Store, "add", add_and_kill)
        assert reproduce(tmp_path / "cluster", "--cluster", cluster) == 0
        eventually(lambda: killed and killed[0] not in client.nthreads())
    shown = capsys.readouterr().out
    assert f"18 runs to train, 4 already stored: in 2 processes of {cluster}." in shown
    assert f"{cluster} has 4 threads in 2 workers, but a worker trains one stack at a time" in shown
    assert "Trained 18 runs; 4 already stored." in shown
    results = cluster_store.results(TABLE)
    for outcome in expected:
        assert_same_result(results[outcome.run], outcome)
    assert {results[run].provenance["threads"] for run in TABLE} == {1}
    assert provenance(cluster_store, TABLE[:4]) == before
    assert reproduce(tmp_path / "local", "--stored") == 0
    assert written(tmp_path / "local") == written(tmp_path / "cluster")


@pytest.mark.slow
@pytest.mark.usefixtures("bad_run")
def test_on_dask_a_bad_run_fails_alone_and_an_interrupted_training_resumes_here(
    tmp_path, monkeypatch
):
    """Several scenarios share one cluster, because a cluster takes seconds to start."""
    store, lines = Store(tmp_path / "runs.sqlite"), []
    good = [replace(RUN, seed=seed) for seed in range(3)]
    settings = {
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
        "BIV_DATA_DIR": str(tmp_path / "none"),
        "BIV_CACHE_DIR": str(tmp_path / "none"),
    }
    with dask_cluster(tmp_path, **settings) as (cluster, _):
        # Missing data are an error before anything is trained.
        face = replace(RUN, dataset="utkface", pixels=32)
        with pytest.raises(ValueError, match=r"on the worker tcp://127\.0\.0\.1:\d+: .*UTKFace"):
            runner.complete([face], store, workers=connected(cluster))
        # An error about versions states both.
        with monkeypatch.context() as patch:
            patch.setattr(clusters, "_sources", lambda: "other")
            with pytest.raises(ValueError, match=r"worker tcp://.*\(sources other\).*; got biv"):
                clusters.connect(clusters.address(cluster))
        # A stack with one bad run is logged with its traceback and retried run by run.
        workers = connected(cluster)
        workers.count = 1  # so that all runs are in one stack
        summary = runner.complete([*good, BAD], store, workers=workers, log=lines.append)
        assert_fails_alone(summary, lines, store)
        # After an interrupt, finished runs are stored and the queue is empty.
        more = [replace(RUN, seed=seed) for seed in range(10, 22)]
        monkeypatch.setattr(runner, "LARGEST_STACK", 3)
        with pytest.raises(KeyboardInterrupt):
            runner.complete(more, store, workers=connected(cluster), log=interrupt)
        assert len(store.missing(more)) == 8
        with watching(cluster) as client:
            count = lambda dask_scheduler: len(dask_scheduler.tasks)  # noqa: E731
            eventually(lambda: client.run_on_scheduler(count) == 0)
        before = provenance(store, more)
        # Training that started on the cluster is finished on this machine.
        runner.complete(more[:6], store, jobs=1)
        assert not store.missing(more[:6])
        assert before.items() <= provenance(store, more).items()
        # A run that kills its worker fails, and the other worker continues. There are as many
        # stacks as workers, because Dask also suspects stacks that wait for a worker that dies.
        deadly = replace(RUN, seed=30)
        monkeypatch.setattr(clusters, "work", exiting_at(deadly))
        monkeypatch.setattr(runner, "LARGEST_STACK", 1)
        workers = connected(cluster)
        workers.count = 1
        summary = runner.complete([deadly, more[6]], store, workers=workers, log=lines.append)
        assert not store.missing(more[6:7])
        runner.complete(more, store, workers=connected(cluster, workers=1))
    ((run, error, trace),) = ((f.run, f.error, f.provenance["traceback"]) for f in summary.failed)
    assert run == deadly
    assert error.startswith("KilledWorker: every worker that trained this stack died")
    assert trace == ""
    assert not store.missing(more)
    expected = {outcome.run: outcome for outcome in stacks.train([*good, *more])}
    for run, result in store.results([*good, *more]).items():
        assert_same_result(result, expected[run])


def interrupt(_):
    raise KeyboardInterrupt


def exiting_at(deadly):
    """Return a replacement for `clusters.work`, sent by value, that kills the worker at one run."""

    def work_or_exit(runs, required):
        from biv.paper.workers import clusters

        if deadly in runs:
            os._exit(1)
        return clusters.work(runs, required)

    return work_or_exit


def assert_fails_alone(summary, lines, store):
    """Check that, of three good runs and a bad one in a stack, only the bad one fails."""
    first, *others = lines
    assert first.startswith("stack 1 of 5: 4 runs of bike2011 failed and will be retried (")
    assert "Traceback" in first
    assert "TypeError: " in first
    assert sorted(line.split(": ")[0] for line in others) == [
        f"stack {k} of 5" for k in range(2, 6)
    ]
    (line,) = (line for line in others if "1 failed" in line)
    assert "in make_or_raise" in line
    (failure,) = summary.failed
    assert failure.run == BAD
    assert failure.error.startswith("TypeError: ")
    assert (summary.stored, summary.trained) == (0, 3)
    (stored,) = store.failures()
    assert stored == failure
    assert stored.provenance["traceback"].startswith("Traceback (most recent call last)")


@pytest.mark.slow
@pytest.mark.usefixtures("bad_run")
def test_on_this_machine_a_bad_run_of_a_stack_fails_alone(tmp_path):
    store, lines = Store(tmp_path / "runs.sqlite"), []
    runs = [*(replace(RUN, seed=seed) for seed in range(3)), BAD]
    summary = runner.complete(runs, store, jobs=1, log=lines.append)
    assert_fails_alone(summary, lines, store)


@pytest.mark.parametrize("retry", [True, False])
def test_a_single_run_is_retried_once_unless_it_has_killed_its_workers(retry, tmp_path):
    attempts = []
    failure = stacks.StackFailure("E: no", "Traceback: no", "worker", {"biv": "0"}, retry)

    class Failing(IdleWorkers):
        def finished(self, _):
            while self.waiting and len(attempts) < 5:
                attempts.append(runs := self.waiting.pop(0))
                yield runs, failure

    workers = Failing()
    summary = runner.complete([RUN], Store(tmp_path / "runs.sqlite"), workers=workers)
    assert attempts == [[RUN]] * (2 if retry else 1)
    assert summary.failed == [Failure(RUN, "E: no", {"biv": "0", "traceback": "Traceback: no"})]
    assert workers.closed


class IdleWorkers:
    """Workers that train nothing."""

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
    active, observed = [], []

    def attempt(runs):
        active.append(runs)
        time.sleep(0.05)
        observed.append((len(active), torch.get_num_threads()))
        active.remove(runs)

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
    assert observed == [(1, 1)] * 4


def test_a_worker_that_joins_later_must_have_the_same_versions():
    with pytest.raises(
        clusters.OtherVersionError, match=r"must have biv 9 .*; got biv .*, which joined later"
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
        (["--cluster", text], f"the address of a cluster must be dask://HOST:PORT, ray or ray:HOST:PORT; got '{text}'")
        for text in ("dask", "dask:h:1", "dask://h", "dask://h:x", "dask://:1", "dask://h:1/x", "ray:", "ray://h:1", "ray:h", "ray:h:0", "slurm", "")
    ]
    + [
        (["--cluster", "ray", "--jobs", "2"], "give either --jobs (processes of this machine) or --cluster, not both"),
        (["--cluster", "ray", "--stored"], "--cluster cannot be combined with --stored or --list"),
        (["--cluster", "ray", "--list"], "--cluster cannot be combined with --stored or --list"),
    ],
)  # fmt: skip
def test_invalid_cluster_options_are_errors(options, message, tmp_path, capsys):
    assert reproduce(tmp_path / "new", *options) == 2
    assert message in capsys.readouterr().err
    assert main(["claims", *options, "--out", str(tmp_path / "new")]) == 2
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("kind", "name"), [("dask", "dask.distributed"), ("ray", "Ray")])
def test_a_missing_package_is_an_error(kind, name, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    text = {"dask": "dask://h:1", "ray": "ray"}[kind]
    with pytest.raises(ValueError, match=rf"{text} needs {name}: pip install 'biv\[{kind}\]'"):
        clusters.address(text)


@pytest.mark.parametrize("form", ["dask://{}", "ray:{}", "ray"])
def test_a_scheduler_that_does_not_run_is_an_error(form, tmp_path, monkeypatch, capsys):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, but not listening
        place = f"127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", place)
        assert reproduce(tmp_path / "new", "--cluster", form.format(place)) == 2
    assert f"{form.format(place)} does not answer" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_server_that_is_not_a_scheduler_is_an_error(monkeypatch):
    monkeypatch.setattr(clusters, "CONNECT_TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:  # which never answers
        place = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(
            ConnectionError, match=f"the server at dask://{place} is not a Dask scheduler"
        ):
            clusters.connect(clusters.address(f"dask://{place}"))


@pytest.mark.slow
def test_a_scheduler_without_workers_is_an_error(tmp_path, monkeypatch):
    with dask_cluster(tmp_path, workers=0) as (cluster, _):
        monkeypatch.setattr(clusters, "CONNECT_TIMEOUT", 2.0)
        with pytest.raises(ValueError, match=r"has no workers after 2 s\. Start some"):
            clusters.connect(clusters.address(cluster))


def test_workers_must_have_the_same_versions_and_data():
    ours = clusters.versions()
    clusters.require_versions({"a": ours, "b": ours})
    for other in (ours._replace(torch="1.0"), ours._replace(sources="x"), ours._replace(biv="9")):
        with pytest.raises(clusters.OtherVersionError, match=r"worker b .*; got biv"):
            clusters.require_versions({"a": ours, "b": other})
    with pytest.raises(
        clusters.OtherVersionError, match=r"worker b cannot report its versions .*No module"
    ):
        clusters.require_versions({"a": ours, "b": ModuleNotFoundError("No module")})
    assert (
        clusters.require_data({"a": Data("x", None, "3 files"), "b": Data("x", None, None)})
        == "3 files"
    )
    with pytest.raises(ValueError, match="same data; those of b and a differ"):
        clusters.require_data({"a": Data("x", None, None), "b": Data("y", None, None)})
    with pytest.raises(ValueError, match="on the worker b: too few"):
        clusters.require_data({"a": Data("x", None, None), "b": Data("", "too few", None)})
    with pytest.raises(ValueError, match="worker b cannot report which data it has: gone"):
        clusters.require_data({"a": Data("x", None, None), "b": OSError("gone")})


def test_data_are_identified_by_a_digest_of_the_labels():
    state = clusters.data([RUN])
    assert (len(state.digest), state.problem, state.note) == (12, None, None)
    assert (
        "bike2011 must have at least 9,264 rows for these runs; got 8,645"
        in clusters.data([replace(RUN, train_rows=9_000)]).problem
    )


def test_sources_are_identified_by_their_names_and_content(tmp_path, monkeypatch):
    monkeypatch.setattr(clusters, "__file__", str(tmp_path / "experiments" / "clusters.py"))

    def digest(name, content):
        (tmp_path / name).write_text(content)
        clusters._sources.cache_clear()
        value = clusters._sources()
        (tmp_path / name).unlink()
        return value

    try:
        one = digest("a.py", "x = 1")
        assert digest("a.py", "x = 1") == one
        assert len({one, digest("a.py", "x = 2"), digest("b.py", "x = 1")}) == 3
    finally:
        clusters._sources.cache_clear()


@pytest.mark.slow
def test_importing_the_command_imports_neither_dask_nor_ray():
    code = "import sys, biv.cli; print(*{'dask', 'distributed', 'ray'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""


RAY = """
import os, sys
from pathlib import Path
from biv.cli import main
from biv.paper.workers import clusters

marker = Path(sys.argv[1])

def work_or_exit(runs, required):
    from biv.paper.workers import clusters
    if not marker.exists():
        marker.touch()
        os._exit(1)
    return clusters.work(runs, required)

clusters.work = work_or_exit
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.slow
def test_on_ray_a_stack_whose_worker_died_is_given_to_another_worker(tmp_path):
    # Ray replaces 127.0.0.1 by the address that other machines can reach, hence 127.0.0.2. Two of
    # its servers listen on every address in any case, hence the random token.
    loopback = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
    script = tmp_path / "sweep.py"
    script.write_text(RAY)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # paths of sockets must be short
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
    assert f"22 runs to train, 0 already stored: in 2 processes of ray:{place}." in run.stdout
    assert "Trained 22 runs; 0 already stored." in run.stdout
    assert (tmp_path / "died").exists()
    results = Store(tmp_path / "runs.sqlite").results(TABLE)
    for outcome in stacks.train(TABLE):
        assert_same_result(results[outcome.run], outcome)


def listening(place):
    host, _, port = place.partition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


def test_workers_can_be_closed_twice():
    workers = Processes(1)
    workers.close()
    workers.close()


@pytest.mark.slow
def test_a_killed_worker_process_is_an_error():
    workers = Processes(1)
    workers.submit([RUN])
    (pid,) = workers._pool._processes
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="a worker process was killed"):
        list(workers.finished(lambda _: None))
    workers.close()
