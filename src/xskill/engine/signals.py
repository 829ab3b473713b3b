"""Stopping when the user asks."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from xskill.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Let a signal end the process here and now: while torch is imported, an exception would abort it half-way."""

    def leave(number: int, frame: FrameType | None) -> None:
        os.write(2, b"xskill: interrupted\n")
        os._exit(Interrupted.exit_code)

    before = {number: signal.signal(number, leave) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class StopOnSignal:
    """Turns the first SIGINT or SIGTERM into `asked()`; the next one interrupts at once."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._asked, self._quiet = False, quiet
        self._before: dict[signal.Signals, Any] = {}

    def asked(self) -> bool:
        return self._asked

    def __enter__(self) -> "StopOnSignal":
        if threading.current_thread() is threading.main_thread():  # Python allows handlers nowhere else
            self._before = {number: signal.signal(number, self._ask) for number in SIGNALS}
        return self

    @contextmanager
    def not_yet(self) -> Iterator[None]:
        """For work that nothing is lost of: here already the first signal interrupts at once."""
        handlers = {number: signal.getsignal(number) for number in self._before}
        for number in handlers:
            signal.signal(number, signal.default_int_handler)
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        for each in SIGNALS:
            signal.signal(each, signal.default_int_handler)
        if not self._quiet:  # not print: a handler may run in the middle of one
            os.write(2, b"\nfinishing this step, then saving; once more to stop at once\n")
