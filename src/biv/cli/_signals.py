"""Signals that end a command as Ctrl-C does: with cleanup and a message."""

from __future__ import annotations

import math
import multiprocessing
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from biv._utils.torchrun import launched_by_torchrun

CLEANUP_SECONDS = 5.0  # after a signal, others are ignored for so long


class Interrupted(KeyboardInterrupt):
    """Exception that a signal raises to end the command.

    Attributes
    ----------
    exit_code : int
        Exit code that a shell reports for a process ended by the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.exit_code = 128 + number


@contextmanager
def raise_on_signal() -> Iterator[None]:
    """Raise :class:`Interrupted` on SIGINT, SIGTERM and SIGHUP, and then ignore them for seconds.

    A terminal may send several signals at once, and the second would interrupt the cleanup that
    the first has started. A signal that arrives later ends a cleanup that hangs. Signals that are
    ignored at the start stay ignored, as under ``nohup``. Handlers are set in the main thread of
    the main process only. Under `torchrun` none are set: a process that waits for another process
    cannot run a handler, and torchrun ends its processes itself.
    """
    names = [name for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or multiprocessing.parent_process() is not None or launched_by_torchrun():
        yield
        return
    raised_at = -math.inf

    def end(number: int, _: FrameType | None) -> None:
        nonlocal raised_at
        if time.monotonic() - raised_at > CLEANUP_SECONDS:
            raised_at = time.monotonic()
            raise Interrupted(number)

    before = {number: signal.getsignal(number) for number in (getattr(signal, n) for n in names)}
    replaced = (signal.SIG_DFL, signal.default_int_handler)  # keep custom handlers and SIG_IGN
    try:
        for number, handler in before.items():
            if handler in replaced:
                signal.signal(number, end)
        yield
    finally:
        for number, handler in before.items():
            if handler in replaced:
                signal.signal(number, handler)
