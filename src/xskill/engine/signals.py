"""Stopping when the user asks."""

import signal
import threading
from types import FrameType
from typing import Any

from rich.console import Console


class StopOnSignal:
    """Turns the first SIGINT or SIGTERM into `asked`; the next one acts as it always does."""

    def __init__(self, console: Console) -> None:
        self.asked = False
        self._console = console
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopOnSignal":
        if threading.current_thread() is threading.main_thread():  # Python allows handlers nowhere else
            self._before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self.__exit__()
        self._console.print("finishing this step, then saving; once more to stop at once")
