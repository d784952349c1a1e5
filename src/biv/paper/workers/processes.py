"""Workers that are processes of this machine, one a core."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

import torch

from biv.paper import protocol, stacks
from biv.paper.spec import Run
from biv.paper.stacks import Report

OF_TERMINALS = [  # Ctrl-C and hanging up, which go to all processes that a command has started
    getattr(signal, name) for name in ("SIGINT", "SIGHUP") if hasattr(signal, name)
]
POLL = 0.2  # seconds between two looks at the workers' progress


class Processes:
    """So many processes, started when there is work, ended when closed."""

    def __init__(self, count: int) -> None:
        self.count = count
        context = multiprocessing.get_context("spawn")
        with _deaf():  # as is the process that clears away what these two leave
            self._steps, self._stop = context.Value("q", 0), context.Event()
        self._pool = ProcessPoolExecutor(
            count, context, initializer=_begin, initargs=(self._steps, self._stop, os.getpid())
        )
        self._waiting: dict[Future[Report], Sequence[Run]] = {}

    def require_rows(self, runs: Sequence[Run]) -> str | None:
        """See that the data are on this machine."""
        stacks.require_rows(runs)
        return protocol.left_out(runs[0].dataset, runs[0].pixels)

    def submit(self, runs: Sequence[Run]) -> None:
        """Have a stack trained."""
        with _deaf(), _told_if_broken():
            self._waiting[self._pool.submit(_attempt, runs)] = runs

    def finished(self, moved: Callable[[int], object]) -> Iterator[tuple[Sequence[Run], Report]]:
        """Every stack with what became of it, as they are done."""
        while self._waiting:
            done, _ = wait(self._waiting, timeout=POLL, return_when=FIRST_COMPLETED)
            moved(self._steps.value)
            for future in done:
                with _told_if_broken():
                    report = future.result()
                yield self._waiting.pop(future), report

    def close(self) -> None:
        """End the processes: when all is done, or when interrupted, within a step."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)


@contextmanager
def _told_if_broken() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        raise RuntimeError(
            "a worker process was ended from outside, by a lack of memory perhaps; what was "
            "done before is stored: start again to go on"
        ) from error


@contextmanager
def _deaf() -> Iterator[None]:
    """What is started meanwhile does not hear a terminal, from its first moment on: we do."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in OF_TERMINALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# Of this worker process: the counter that all share, and the event that ends them all.
_steps: Any = None
_stop: Any = None


def _begin(steps: Any, stop: Any, parent: int) -> None:
    """Set up a worker: one thread, and an end when its parent says so or is no more."""
    global _steps, _stop
    _steps, _stop = steps, stop
    for number in OF_TERMINALS:  # where it is not inherited, as from a thread
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _attempt(runs: Sequence[Run]) -> Report:
    return stacks.attempt(runs, _count)


def _count(steps: int) -> None:
    if _stop.is_set():
        os._exit(1)
    with _steps.get_lock():
        _steps.value += steps
