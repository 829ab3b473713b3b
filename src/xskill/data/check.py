"""Whether a dataset is fit to be learned from, and if not, why."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xskill.data.lerobot import Clip, Dataset, open_dataset
from xskill.data.video import stretch
from xskill.engine.folder import MANIFEST, damages, read_manifest
from xskill.engine.workers import spread
from xskill.errors import CheckpointError, DataError

GLANCE = (16, 16)
"""Frames are decoded to this size: enough to see that they are there, and show something."""


@dataclass(frozen=True)
class Findings:
    """What was found in a dataset."""

    ok: bool
    episodes: int
    frames: int
    problems: tuple[str, ...]

    def about(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def check_dataset(
    folder: Path, *, workers: int = 1, progress: Callable[[str, int, int], None] = lambda name, added, total: None
) -> Findings:
    """Read every table and decode every frame. `progress` is told the folder's name, frames added, frames in all."""
    problems = _changed(folder)
    try:
        dataset = open_dataset(folder)
    except DataError as error:
        return Findings(False, 0, 0, (*problems, str(error)))
    total = int(dataset.lengths.sum()) * len(dataset.clips)
    jobs = [
        (camera, dataset.names[episode], clip, int(dataset.lengths[episode]), dataset.fps)
        for camera, clips in dataset.clips.items()
        for episode, clip in enumerate(clips)
    ]
    for found, length in spread(_seen, jobs, workers):
        problems += found
        progress(folder.name, length, total)
    problems += _unfit(dataset)
    return Findings(not problems, len(dataset.names), int(dataset.lengths.sum()), tuple(problems))


def _changed(folder: Path) -> list[str]:
    """A sentence for every file that is not as it was written, where somebody has noted how that was."""
    if not (folder / MANIFEST).is_file():
        return []
    try:
        return list(damages(folder, read_manifest(folder)))
    except CheckpointError as error:
        return [str(error)]


def _seen(camera: str, name: str, clip: Clip, length: int, fps: float) -> tuple[list[str], int]:
    """What is wrong with the frames of an episode, and how many it should have."""
    blank = True
    try:
        for frame in stretch(clip.path, clip.start, length, fps, GLANCE):
            blank = blank and int(np.ptp(frame)) == 0
    except DataError as error:
        return [f"episode '{name}': {error}"], length
    return [f"episode '{name}' shows nothing: every frame of '{camera}' is of one colour"] if blank else [], length


def _unfit(dataset: Dataset) -> list[str]:
    problems = []
    if len(dataset.names) < 2:
        problems.append("there is one episode; at least two are needed, to learn from one and look at the other")
    if (dataset.states is None) != (dataset.actions is None):
        there, missing = ("states", "actions") if dataset.actions is None else ("actions", "states")
        problems.append(f"there are {there} but no {missing}: a robot needs both, a demonstrator neither")
    return problems
