"""Processes that simulate and render beside the one that gives the orders."""

import ctypes
import os
import signal


def settle() -> None:
    """Called first in such a process: end with the parent however it ends, leave Ctrl-C to it, use one core."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["LP_NUM_THREADS"] = "0"  # a process a core; threads of the software renderer would only fight over it
