"""Workers that are processes on this machine."""

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

# Signals of a terminal (Ctrl-C and hang-up), which it sends to all processes of a command.
TERMINAL_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGHUP") if hasattr(signal, name)]
POLL_INTERVAL = 0.2  # seconds between two checks of the progress


class Processes:
    """Pool of processes that are started on the first submission and stopped by `close`."""

    def __init__(self, count: int) -> None:
        self.count = count
        context = multiprocessing.get_context("spawn")
        # The resource tracker that Value and Event start inherits this.
        with _terminal_signals_ignored():
            self._steps, self._stop = context.Value("q", 0), context.Event()
        self._pool = ProcessPoolExecutor(
            count,
            context,
            initializer=_initialize_worker,
            initargs=(self._steps, self._stop, os.getpid()),
        )
        self._waiting: dict[Future[Report], Sequence[Run]] = {}

    def require_rows(self, runs: Sequence[Run]) -> str | None:
        """Check that this machine has the data. Return a note on skipped files, if any."""
        stacks.require_rows(runs)
        return protocol.skipped_files_note(runs[0].dataset, runs[0].pixels)

    def submit(self, runs: Sequence[Run]) -> None:
        """Queue a stack for training."""
        with _terminal_signals_ignored(), _explain_broken_pool():
            self._waiting[self._pool.submit(_attempt, runs)] = runs

    def finished(
        self, on_progress: Callable[[int], object]
    ) -> Iterator[tuple[Sequence[Run], Report]]:
        """Yield every stack with its report, in the order in which they finish."""
        while self._waiting:
            done, _ = wait(self._waiting, timeout=POLL_INTERVAL, return_when=FIRST_COMPLETED)
            on_progress(self._steps.value)
            for future in done:
                with _explain_broken_pool():
                    report = future.result()
                yield self._waiting.pop(future), report

    def close(self) -> None:
        """Stop the processes; a process that is training stops after its current step."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)


@contextmanager
def _explain_broken_pool() -> Iterator[None]:
    """Raise a broken pool as an error that says what to do."""
    try:
        yield
    except BrokenProcessPool as error:
        raise RuntimeError(
            "a worker process was killed, possibly because memory ran out. Finished runs are "
            "stored; run the same command again to resume"
        ) from error


@contextmanager
def _terminal_signals_ignored() -> Iterator[None]:
    """Let processes that are started meanwhile ignore terminal signals from their first moment."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in TERMINAL_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# Set in each worker process: the step counter that all share, and the event that stops all.
_steps: Any = None
_stop: Any = None


def _initialize_worker(steps: Any, stop: Any, parent: int) -> None:
    """Set up a worker process: one thread, and an exit when its parent stops it or exits."""
    global _steps, _stop
    _steps, _stop = steps, stop
    for number in TERMINAL_SIGNALS:  # not inherited if the pool was used from a thread
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()


def _exit_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _attempt(runs: Sequence[Run]) -> Report:
    return stacks.attempt(runs, _count_steps)


def _count_steps(steps: int) -> None:
    if _stop.is_set():
        os._exit(1)
    with _steps.get_lock():
        _steps.value += steps
