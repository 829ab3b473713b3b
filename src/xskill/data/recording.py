"""What every source of demonstrations is turned into: recordings, one after the other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xskill.data.episodes import Floats

Pixels = npt.NDArray[np.uint8]
Shots = Callable[[tuple[int, int]], Iterable[Pixels]]
"""Frames (H, W, 3) of a given height and width, made or decoded as they are asked for."""


@dataclass(frozen=True, eq=False)
class Recording:
    """One episode on its way into a dataset."""

    name: str
    shots: Mapping[str, Shots]
    """Camera -> its frames; all cameras have equally many."""
    states: Floats | None = None
    """(T, S)."""
    actions: Floats | None = None
    """(T, A)."""
    task: str = ""
    """What it shows, in words."""


@dataclass(frozen=True, eq=False)
class Source:
    """Recordings of one embodiment, not yet read."""

    recordings: Sequence[Recording]
    fps: float
    sizes: Mapping[str, tuple[int, int]]
    """Camera -> height and width of its frames."""
    about: Mapping[str, object]
    """Where they come from, for the dataset to keep."""
    notes: tuple[str, ...] = ()
    """What was guessed, for the user to see."""
    problems: tuple[str, ...] = ()
    """What could not even be opened: a sentence each, with the file's name."""
