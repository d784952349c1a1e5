"""Clusters that train stacks: their addresses, and checks of versions and data on every worker."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import platform
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np
import torch

from biv._utils.pages import page_hint
from biv.paper import protocol, stacks
from biv.paper.spec import Run
from biv.paper.stacks import Report
from biv.paper.workers.base import Workers

CONNECT_TIMEOUT = 8.0  # seconds to wait for a scheduler, and again for its first worker
FORMS = "dask://HOST:PORT, ray or ray:HOST:PORT"
PACKAGES = {"dask": ("distributed", "dask.distributed"), "ray": ("ray", "Ray")}


class Address(NamedTuple):
    """Address of a cluster.

    Attributes
    ----------
    kind : str
        "dask" or "ray".
    host_and_port : str or None
        HOST:PORT, or None to let Ray find the cluster.
    """

    kind: str
    host_and_port: str | None

    def __str__(self) -> str:
        if self.host_and_port is None:
            return self.kind
        return f"{self.kind}:{'//' if self.kind == 'dask' else ''}{self.host_and_port}"


def address(text: str) -> Address:
    """Parse the address of a cluster.

    Raises
    ------
    ValueError
        The text is not an address, or the package for this kind of cluster is not installed.

    Examples
    --------
    >>> address("dask://10.0.0.7:8786").host_and_port
    '10.0.0.7:8786'
    """
    kind, colon, host_and_port = text.partition(":")
    if kind == "dask":
        has_slashes = host_and_port.startswith("//")
        host_and_port = host_and_port.removeprefix("//") if has_slashes else ""
    if kind not in PACKAGES or (text != "ray" and not _is_host_and_port(host_and_port)):
        raise ValueError(f"the address of a cluster must be {FORMS}; got {text!r}")
    package, name = PACKAGES[kind]
    if importlib.util.find_spec(package) is None:
        raise ValueError(f"the cluster {text} needs {name}: pip install 'biv[{kind}]'")
    return Address(kind, host_and_port if colon else None)


def _is_host_and_port(text: str) -> bool:
    try:
        parts = urlsplit(f"//{text}")
        return parts.netloc == text and bool(parts.hostname and parts.port)
    except ValueError:
        return False


def connect(cluster: Address) -> Workers:
    """Connect to a cluster whose workers have the same versions as this process.

    Raises
    ------
    ConnectionError
        The cluster does not answer.
    ValueError
        The cluster has no workers, or a worker has another version of a package.
    """
    if cluster.kind == "dask":
        from biv.paper.workers.dask import DaskWorkers

        return DaskWorkers(cluster)
    from biv.paper.workers.ray import RayWorkers

    return RayWorkers(cluster)


def require_listening(cluster: Address, host_and_port: str) -> None:
    """Check that a server listens at an address, because libraries would wait much longer for it.

    Raises
    ------
    ConnectionError
        No server listens there.
    """
    parts = urlsplit(f"//{host_and_port}")
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), CONNECT_TIMEOUT).close()
    except OSError as error:
        raise ConnectionError(
            f"{cluster} does not answer ({error}). Check that it is running, that the address is "
            f"right and that this machine can reach it{page_hint('distributed')}"
        ) from error


class Versions(NamedTuple):
    """Versions that influence the exact numbers of a result."""

    biv: str
    sources: str
    torch: str
    numpy: str

    def __str__(self) -> str:
        return f"biv {self.biv} (sources {self.sources}), torch {self.torch} and NumPy {self.numpy}"


def versions() -> Versions:
    """Return the versions of this process."""
    return Versions(metadata.version("biv"), _sources(), torch.__version__, np.__version__)


@lru_cache(maxsize=1)
def _sources() -> str:
    """Return a digest of the sources of biv, read once, as imported modules are."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes()
        name = path.relative_to(package).as_posix()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


class OtherVersionError(ValueError):
    """A worker has other versions than this process."""


def require_versions(by_worker: Mapping[str, object]) -> None:
    """Check that workers have the same versions as this process.

    Parameters
    ----------
    by_worker : mapping
        The `versions` of each worker, or the exception that it raised instead.

    Raises
    ------
    OtherVersionError
        A worker has other versions, or could not report them.
    """
    for worker, reported in by_worker.items():
        if isinstance(reported, BaseException):
            raise OtherVersionError(
                f"the worker {worker} cannot report its versions ({type(reported).__name__}: "
                f"{reported}). Install {versions()} there and restart it"
            ) from reported
        if reported != versions():
            raise OtherVersionError(
                f"the worker {worker} must have {versions()}, as this machine; got {reported}. "
                "Install the same versions there and restart it"
            )


class Data(NamedTuple):
    """State of the data of some runs on a worker.

    Attributes
    ----------
    digest : str
        Digest of all labels, to check that all workers have the same data.
    problem : str or None
        Why the data cannot be used, or None.
    note : str or None
        Message about the data for the user, or None.
    """

    digest: str
    problem: str | None
    note: str | None


def data(runs: Sequence[Run]) -> Data:
    """Return the state of the data of these runs in this process."""
    labels = hashlib.sha256()
    try:
        stacks.require_rows(runs)
        for dataset, pixels in sorted({(run.dataset, run.pixels) for run in runs}, key=str):
            labels.update(protocol.source(dataset, pixels).data.y.tobytes())
        note = protocol.skipped_files_note(runs[0].dataset, runs[0].pixels)
    except (ValueError, OSError) as error:
        return Data("", str(error), None)
    return Data(labels.hexdigest()[:12], None, note)


async def data_in_thread(runs: Sequence[Run]) -> Data:
    """Do the same as `data`, without blocking the event loop of a worker that decodes images."""
    return await asyncio.to_thread(data, runs)


def require_data(by_worker: Mapping[str, object]) -> str | None:
    """Check that all workers have the same data and enough rows.

    Parameters
    ----------
    by_worker : mapping
        The `data` of each worker, or the exception that it raised instead.

    Returns
    -------
    str or None
        A message about the data for the user, if there is one.

    Raises
    ------
    ValueError
        The data of a worker cannot be used, or differ from those of another worker.
    """
    first: tuple[str, Data] | None = None
    for worker, reported in by_worker.items():
        if not isinstance(reported, Data):
            raise ValueError(f"the worker {worker} cannot report which data it has: {reported}")
        if reported.problem is not None:
            raise ValueError(f"on the worker {worker}: {reported.problem}")
        first = first or (worker, reported)
        if reported.digest != first[1].digest:
            raise ValueError(
                f"all workers must have the same data; those of {worker} and {first[0]} differ"
            )
    return first[1].note if first else None


_training = threading.Lock()  # a worker may have several threads, but trains one stack at a time


def work(runs: Sequence[Run], required: Versions) -> Report:
    """Train a stack on a worker, as a process of this machine would.

    Parameters
    ----------
    runs : sequence of Run
        Runs of one shape.
    required : Versions
        Versions of the runner. They are checked here too, because a worker may have joined after
        the check of all workers.

    Raises
    ------
    OtherVersionError
        The worker has other versions.
    """
    if versions() != required:
        raise OtherVersionError(
            f"all workers must have {required}; got {versions()} on {platform.node()}, which "
            "joined later. Finished runs are stored"
        )
    with _training, _one_thread():
        return stacks.attempt(runs)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
