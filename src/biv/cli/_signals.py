"""SIGTERM and SIGHUP end a command as Ctrl-C does: what was begun is cleaned up, and said."""

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

CLEANUP_SECONDS = 5.0


class Interrupted(KeyboardInterrupt):
    """A signal has asked the command to end.

    Attributes:
        exit_code: What a shell reports of a process that the signal has ended.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.exit_code = 128 + number


@contextmanager
def raise_on_signal() -> Iterator[None]:
    """Raise :class:`Interrupted` on one of these signals, and ignore others for some seconds.

    A terminal may send several at once, and a second one would cut off the cleanup that the first
    has started. One that comes later ends a cleanup that does not end by itself. Signals that the
    command was started to ignore stay ignored, as by ``nohup``. Processes that the command starts
    have handlers of their own. Those of `torchrun` are left to it: what waits for another process
    does not come to run a handler.
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
    replaced = (signal.SIG_DFL, signal.default_int_handler)  # not what others have set, nor ignored
    try:
        for number, handler in before.items():
            if handler in replaced:
                signal.signal(number, end)
        yield
    finally:
        for number, handler in before.items():
            if handler in replaced:
                signal.signal(number, handler)
