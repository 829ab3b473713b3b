"""robomimic's HDF5 files: `data/demo_N/actions`, and what was seen under `data/demo_N/obs`."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from xskill.data.recording import Pixels, Recording, Source
from xskill.data.sources import Choice, resized
from xskill.data.sources.arrays import (
    Layout,
    are_numbers,
    are_pictures,
    check_lengths,
    check_size,
    first,
    frames,
    gathered,
    laid_out,
    numbers,
    side_by_side,
)
from xskill.data.sources.hdf5 import array_at, arrays, group_at, label, opened
from xskill.errors import DataError

STATES = (
    ("robot0_joint_pos", "robot0_gripper_qpos"),
    ("robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos"),
    ("joint_states", "gripper_states"),
)
"""What is taken for the state: the first that is there."""
USUAL_FPS = 20.0
"""robosuite's rate of control, for files that do not tell theirs."""
PATIENCE = 20
"""Seconds that reading the file's attributes may take."""
ADVICE = "robomimic's dataset_states_to_obs.py adds them"

# A process of its own: HDF5 looks for a string without end where the file is damaged, and cannot be interrupted.
_TELL = """
import sys, h5py
with h5py.File(sys.argv[1], "r") as file:
    print(file["data"].attrs["env_args"])
"""


def read_robomimic(path: Path, choice: Choice) -> Source:
    """All demonstrations of a file, in the order of their numbers. Raises `DataError`.

    A rate that is asked for is taken for the one it was recorded at: no frame is left out.
    """
    actions = choice.actions or "actions"
    with opened(path, "robomimic") as file:
        data = group_at(file, "data")
        demos = sorted((name for name in data if re.fullmatch(r"demo_\d+", name)), key=lambda name: int(name[5:]))
        if not demos:
            raise DataError(f"{path} has no demonstrations: there is no data/demo_0, data/demo_1, ...")
        layout = first(partial(_layout, data, demo, choice) for demo in demos)
        task, rate = _env(path)
        reads = (partial(_recording, path, data, demo, actions, layout, choice, task) for demo in demos)
        recordings, problems = gathered(reads)
    fps = choice.fps or rate or USUAL_FPS
    said = "as asked for" if choice.fps else "as its env_args say" if rate else "a guess; --fps says otherwise"
    notes = f"{len(demos)} demonstrations", *layout.notes(actions), f"{fps:g} frames a second, {said}"
    about = {"kind": "robomimic", "file": path.name, "task": task, "states": layout.states, "actions": actions}
    return Source(recordings, fps, layout.sizes, about, notes, problems)


def _layout(data: Any, demo: str, choice: Choice) -> Layout:
    seen = arrays(_seen(data, demo))
    pictures = {name: array.shape[1:3] for name, array in seen.items() if are_pictures(array)}
    others = {name: are_numbers(array) for name, array in seen.items() if name not in pictures}
    if not pictures:
        raise DataError(f"{label(data, demo)} has no pictures, only {', '.join(others) or 'nothing'}; {ADVICE}")
    return laid_out(pictures, others, choice, STATES, label(data, demo))


def _recording(path: Path, data: Any, demo: str, actions: str, layout: Layout, choice: Choice, task: str) -> Recording:
    done = numbers(array_at(data, demo, actions), label(data, demo, actions))
    seen = _seen(data, demo)
    lengths = {name: _pictures(seen, name).shape[0] for name in layout.cameras.values()}
    parts = {name: numbers(array_at(seen, name), label(seen, name)) for name in layout.states}
    check_lengths({actions: len(done), **lengths, **{name: len(part) for name, part in parts.items()}}, label(seen))
    shots = {c: choice.shots(partial(_frames, path, demo, name)) for c, name in layout.cameras.items()}
    return Recording(demo, shots, side_by_side(parts.values()), done, task)


def _seen(data: Any, demo: str) -> Any:
    group = group_at(data, demo)
    if "obs" not in group:
        raise DataError(f"{label(group)} has no pictures, for it has no obs; {ADVICE}")
    return group_at(group, "obs")


def _pictures(seen: Any, name: str) -> Any:
    array = array_at(seen, name)
    if not are_pictures(array):
        raise DataError(f"{label(array)} is {array.shape} {array.dtype}; expected pictures, as the first demonstration")
    check_size(array.shape[1:3], label(array))
    return array


def _frames(path: Path, demo: str, name: str, size: tuple[int, int]) -> Iterator[Pixels]:
    with opened(path, "robomimic") as file:
        array = _pictures(group_at(file, "data", demo, "obs"), name)
        yield from resized(frames(array, 0, array.shape[0], label(array)), size)


def _env(path: Path) -> tuple[str, float | None]:
    """The task, and the rate at which the robot was controlled, where the file tells."""
    try:
        told = subprocess.run([sys.executable, "-c", _TELL, path], capture_output=True, timeout=PATIENCE).stdout
        env = json.loads(told)
        rate = float(env.get("env_kwargs", {}).get("control_freq", 0))
        return str(env.get("env_name", "")), rate if 0 < rate <= 1000 else None
    except subprocess.TimeoutExpired:
        raise DataError(f"{path} is damaged: its env_args cannot be read") from None
    except (ValueError, TypeError, AttributeError, RecursionError):
        return "", None
