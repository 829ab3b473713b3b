"""Demonstrations made for tests."""

from pathlib import Path

import numpy as np

from xskill.kitchen.env import HOME


def standing_still(path: Path, **changes: object) -> Path:
    """A packed file of two demonstrations in which nothing happens, 5 and 7 states long; `changes` replace arrays."""
    states = np.tile(np.array(HOME, np.float32), (12, 1))
    arrays: dict[str, object] = {
        "qpos": states,
        "qvel": np.zeros((12, 29), np.float32),
        "ctrl": states[:, :9],
        "episode_ends": np.array([5, 12]),
        "names": np.array(["a", "b"]),
        "folders": np.array(["friday_kettle_switch", "friday_slide_hinge"]),
    } | changes
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    return path
