"""Processes that simulate and render beside the one that gives the orders."""

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import wait


def settle() -> None:
    """Called first in such a process: end with the parent however it ends, leave Ctrl-C to it, use one core."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["LP_NUM_THREADS"] = "0"  # a process a core; threads of the software renderer would only fight over it


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os.kill(os.getpid(), signal.SIGKILL)
