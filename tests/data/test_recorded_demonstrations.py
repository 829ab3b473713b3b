"""The recorded demonstrations, where there are any, are what the facts say they are."""

from pathlib import Path

import numpy as np
import pytest


@pytest.mark.demos
def test_the_recorded_demonstrations_are_whole(demos: Path) -> None:
    with np.load(demos, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    assert set(arrays) >= {"qpos", "qvel", "ctrl", "episode_ends", "names", "folders"}
    frames = len(arrays["qpos"])
    assert arrays["qpos"].shape == (frames, 30)
    assert arrays["ctrl"].shape == (frames, 9)
    assert arrays["episode_ends"][-1] == frames
    lengths = np.diff(arrays["episode_ends"], prepend=0)
    assert len(lengths) == len(arrays["names"]) == 543
    assert (lengths.min(), int(np.median(lengths)), lengths.max()) == (162, 225, 338)
