"""Processes that work beside the one that gives the orders: they simulate, render, decode; and whose turn it is."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any, TypeVar

from xskill.errors import DataError

Result = TypeVar("Result")

PARENT = "XSKILL_ENDS_WITH"
"""Tells a process the number of the one that it is to end with."""
NICE = 10
"""How much a process that works beside others gives way to them, of 19."""


def spread(
    work: Callable[..., Result],
    jobs: Sequence[tuple[Any, ...]],
    workers: int,
    opening: Callable[..., None] | None = None,
    told: tuple[Any, ...] = (),
) -> Iterator[Result]:
    """`work(*job)` for every job, in other processes, as they are done; each begins with `opening(*told)`.

    One worker without an opening is this process itself. What a job raises ends the others. Raises `DataError` when a
    process dies.
    """
    if workers == 1 and opening is None:
        yield from (work(*job) for job in jobs)
        return
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _open, (opening, told))
    try:
        for job in as_completed([pool.submit(work, *job) for job in jobs]):
            yield job.result()
    except BrokenProcessPool:
        raise DataError(
            "a process at work has died (out of memory?); start again to go on, with fewer --workers"
        ) from None
    except BaseException:  # an unfinished job costs nothing, a worker that is waited for may not come
        for process in list(pool._processes.values()):
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def settle() -> None:
    """Called first in such a process: end with the parent however it ends, leave Ctrl-C to it, use one core.

    It gives way to whoever trains: a GPU stands still while the one process that feeds it waits for a core.
    """
    os.nice(NICE)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["LP_NUM_THREADS"] = "0"  # a process a core; threads of the software renderer would only fight over it


def _open(opening: Callable[..., None] | None, told: tuple[Any, ...]) -> None:
    settle()
    if opening is not None:
        opening(*told)


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os.kill(os.getpid(), signal.SIGKILL)


def end_with_parent() -> None:
    """Where whoever started this process wants to know it ended when they are, end then, as Ctrl-C would end it."""
    parent = os.environ.pop(PARENT, "")
    if parent.isdigit():
        threading.Thread(target=_watch, args=(int(parent),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


class Places:
    """So many places for work; of all that wait for one, the first in turn gets it."""

    def __init__(self, count: int) -> None:
        self._free, self._waiting, self._changed = list(range(count)), set[int](), threading.Condition()

    @contextmanager
    def taken(self, turn: int) -> Iterator[int]:
        """A place, when there is one and nobody waits whose turn is earlier."""
        with self._changed:
            self._waiting.add(turn)
            self._changed.wait_for(lambda: self._free and turn == min(self._waiting))
            self._waiting.remove(turn)
            place = self._free.pop(0)
            self._changed.notify_all()
        try:
            yield place
        finally:
            with self._changed:
                self._free.append(place)
                self._changed.notify_all()
