"""Clusters that train stacks: their addresses, and what is asked of every worker beforehand."""

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

PATIENCE = 8.0  # seconds to wait for a scheduler, and as many for its first worker
FORMS = "dask://HOST:PORT, ray or ray:HOST:PORT"
PACKAGES = {"dask": ("distributed", "dask.distributed"), "ray": ("ray", "Ray")}


class Address(NamedTuple):
    """Where a cluster is.

    Attributes:
        kind: "dask" or "ray".
        place: HOST:PORT; None is for Ray to find.
    """

    kind: str
    place: str | None

    def __str__(self) -> str:
        if self.place is None:
            return self.kind
        return f"{self.kind}:{'//' if self.kind == 'dask' else ''}{self.place}"


def address(text: str) -> Address:
    """The address that a text is of.

    Raises:
        ValueError: It is of none, or the package that it needs is not installed.

    Example:
        >>> address("dask://10.0.0.7:8786").place
        '10.0.0.7:8786'
    """
    kind, colon, place = text.partition(":")
    if kind == "dask":
        place = place.removeprefix("//") if place.startswith("//") else ""
    if kind not in PACKAGES or (text != "ray" and not _is_place(place)):
        raise ValueError(f"a cluster is {FORMS}; got {text!r}")
    package, name = PACKAGES[kind]
    if importlib.util.find_spec(package) is None:
        raise ValueError(f"the cluster {text} needs {name}: pip install 'biv[{kind}]'")
    return Address(kind, place if colon else None)


def _is_place(text: str) -> bool:
    try:
        parts = urlsplit(f"//{text}")
        return parts.netloc == text and bool(parts.hostname and parts.port)
    except ValueError:
        return False


def connect(where: Address) -> Workers:
    """The workers of a cluster, which have what is needed to train as this process would.

    Raises:
        ConnectionError: Nobody answers there.
        ValueError: There are no workers, or one has another version of something.
    """
    if where.kind == "dask":
        from biv.paper.workers.dask import DaskWorkers

        return DaskWorkers(where)
    from biv.paper.workers.ray import RayWorkers

    return RayWorkers(where)


def require_listening(where: Address, place: str) -> None:
    """See that somebody is there, before a library waits for it much longer.

    Raises:
        ConnectionError: Nobody is.
    """
    parts = urlsplit(f"//{place}")
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), PATIENCE).close()
    except OSError as error:
        raise ConnectionError(
            f"{where} does not answer ({error}): is it running, is that its address, and may this "
            f"machine reach it?{page_hint('distributed')}"
        ) from error


class Versions(NamedTuple):
    """What decides the bits of a result, beside the run, the data and the kind of processor."""

    biv: str
    sources: str
    torch: str
    numpy: str

    def __str__(self) -> str:
        return f"biv {self.biv} (sources {self.sources}), torch {self.torch} and NumPy {self.numpy}"


def versions() -> Versions:
    """Of this process."""
    return Versions(metadata.version("biv"), _sources(), torch.__version__, np.__version__)


@lru_cache(maxsize=1)
def _sources() -> str:
    """A digest of our own sources as they were when first asked for, as what is imported is."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes()
        name = path.relative_to(package).as_posix()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


class OtherVersionError(ValueError):
    """A worker would not train as this process does."""


def require_versions(found: Mapping[str, object]) -> None:
    """See that workers are like this process.

    Args:
        found: The `versions` of each worker, or what was raised instead.

    Raises:
        OtherVersionError: One is not.
    """
    for worker, there in found.items():
        if isinstance(there, BaseException):
            raise OtherVersionError(
                f"the worker {worker} cannot say which biv it has ({type(there).__name__}: {there})"
                f": install there what is here, {versions()}, and start it again"
            ) from there
        if there != versions():
            raise OtherVersionError(
                f"the worker {worker} must have what is here, {versions()}; got {there}: install "
                "the same, and start it again"
            )


class Data(NamedTuple):
    """What a worker has of the data of runs.

    Attributes:
        digest: Of all labels, by which data are known to be the same everywhere.
        problem: Why they cannot be used, if so.
        note: What people should know about them.
    """

    digest: str
    problem: str | None
    note: str | None


def data(runs: Sequence[Run]) -> Data:
    """What this process has of the data of runs."""
    labels = hashlib.sha256()
    try:
        stacks.require_rows(runs)
        for dataset, pixels in sorted({(run.dataset, run.pixels) for run in runs}, key=str):
            labels.update(protocol.source(dataset, pixels).data.y.tobytes())
        note = protocol.left_out(runs[0].dataset, runs[0].pixels)
    except (ValueError, OSError) as error:
        return Data("", str(error), None)
    return Data(labels.hexdigest()[:12], None, note)


async def data_meanwhile(runs: Sequence[Run]) -> Data:
    """The same, for a worker that has other things to do while images are decoded."""
    return await asyncio.to_thread(data, runs)


def require_data(found: Mapping[str, object]) -> str | None:
    """See that all workers have the same data, and enough.

    Args:
        found: What each worker says of its `data`, or what was raised instead.

    Returns:
        What people should know about these data.

    Raises:
        ValueError: They do not.
    """
    first: tuple[str, Data] | None = None
    for worker, there in found.items():
        if not isinstance(there, Data):
            raise ValueError(f"the worker {worker} cannot say which data it has: {there}")
        if there.problem is not None:
            raise ValueError(f"on the worker {worker}: {there.problem}")
        first = first or (worker, there)
        if there.digest != first[1].digest:
            raise ValueError(
                f"all workers must have the same data; {worker} and {first[0]} have different ones"
            )
    return first[1].note if first else None


_at_work = threading.Lock()  # a worker may have several threads; one stack takes them all


def work(runs: Sequence[Run], here: Versions) -> Report:
    """Train a stack on a worker, as a process of this machine would.

    Args:
        runs: Of one shape.
        here: The versions of who asked. A worker may have come after all others were looked at.

    Raises:
        OtherVersionError: The worker has others.
    """
    if versions() != here:
        raise OtherVersionError(
            f"a worker must have {here}; one that came later, on {platform.node()}, has "
            f"{versions()}; what was done before is stored"
        )
    with _at_work, _one_thread():
        return stacks.attempt(runs)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
