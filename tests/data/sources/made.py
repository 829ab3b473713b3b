"""What other programs write: a robot's episodes as robomimic, diffusion_policy and Minari keep them."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import h5py
import minari
import numpy as np
import zarr
from minari.data_collector import EpisodeBuffer

from tests.data.test_video import moving
from xskill.data.lerobot import Dataset, open_dataset
from xskill.data.lerobot_write import write_dataset
from xskill.data.recording import Source
from xskill.data.sources import Choice
from xskill.data.video import stretch

LENGTHS = (12, 9, 15)
AS_IT_IS = Choice()


class Episode:
    """What a robot saw and did, T times: a picture, joints, a gripper, and an action."""

    def __init__(self, number: int, length: int, height: int = 40, width: int = 56) -> None:
        rng = np.random.default_rng(number)
        self.pictures = moving(length, height, width)
        self.pictures[..., 1] //= number + 1
        self.wrist = self.pictures[:, ::-1, ::-1].copy()
        self.small = np.arange(0, 10 * length, 10, np.uint8).repeat(20 * 28 * 3).reshape(length, 20, 28, 3)
        self.joints, self.gripper, self.actions = (rng.normal(size=(length, width)) for width in (7, 2, 4))

    @property
    def states(self) -> np.ndarray:
        return np.hstack([self.joints, self.gripper]).astype(np.float32)


EPISODES = [Episode(number, length) for number, length in enumerate(LENGTHS)]


def converted(source: Source, folder: Path) -> Dataset:
    """The dataset that a source becomes, with nothing left out."""
    done = write_dataset(folder, source, "robot")
    assert done.problems == ()
    return open_dataset(folder)


def left_out(source: Source, folder: Path) -> tuple[str, ...]:
    """What is said of the recordings that do not become part of the dataset."""
    return write_dataset(folder, source, "robot").problems


def shown(dataset: Dataset, camera: str, episode: int) -> np.ndarray:
    clip, length = dataset.clips[camera][episode], int(dataset.lengths[episode])
    return np.stack(list(stretch(clip.path, clip.start, length, dataset.fps, dataset.sizes[camera])))


def same(pictures: np.ndarray, others: np.ndarray, apart: float = 6) -> bool:
    """Whether pictures are the same but for what encoding does to them, each one by itself."""
    return pictures.shape == others.shape and bool(
        (np.abs(pictures.astype(float) - others).mean(axis=(1, 2, 3)) < apart).all()
    )


def assert_same(dataset: Dataset, camera: str, episodes: list[Episode] = EPISODES, wrist: str | None = None) -> None:
    """All episodes, in order, with their numbers to the last bit, and each camera's pictures."""
    assert dataset.lengths.tolist() == [len(episode.actions) for episode in episodes]
    assert np.array_equal(dataset.states, np.concatenate([episode.states for episode in episodes]))
    assert np.array_equal(dataset.actions, np.concatenate([e.actions for e in episodes]).astype(np.float32))
    for index, episode in enumerate(episodes):
        assert same(shown(dataset, camera, index), episode.pictures)
        if wrist:
            assert same(shown(dataset, wrist, index), episode.wrist)
            assert not same(shown(dataset, wrist, index), episode.pictures)


def robomimic(path: Path, numbers: tuple[int, ...] = (2, 9, 10), **env: object) -> Path:
    """A file as robomimic writes it: cameras compressed, demonstrations in the order of their names."""
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps({"env_name": "Lift", "type": 1, "env_kwargs": env})
        for number, episode in zip(numbers, EPISODES, strict=True):
            demo = data.create_group(f"demo_{number}")
            demo.attrs["num_samples"] = len(episode.actions)
            demo["actions"], demo["rewards"] = episode.actions, np.zeros(len(episode.actions))
            seen = demo.create_group("obs")
            seen.create_dataset("agentview_image", data=episode.pictures, compression="gzip", chunks=(1, 40, 56, 3))
            seen["robot0_eye_in_hand_image"] = episode.wrist
            seen["robot0_joint_pos"], seen["robot0_gripper_qpos"] = episode.joints, episode.gripper
            seen["object"] = np.ones((len(episode.actions), 10))
        file.create_group("mask")["train"] = np.array([b"demo_2", b"demo_9"])
    return path


def replay(path: Path, version: int = 2, episodes: list[Episode] = EPISODES, **changed: np.ndarray) -> Path:
    """A store as diffusion_policy's ReplayBuffer writes it, in a folder or a zip."""
    store = zarr.storage.ZipStore(path, mode="w") if path.suffix == ".zip" else str(path)
    root = zarr.open_group(store, mode="w", zarr_format=version)
    data, meta = root.create_group("data"), root.create_group("meta")
    whole = {
        "img": np.concatenate([episode.pictures for episode in episodes]),
        "camera_1": np.concatenate([episode.wrist for episode in episodes]),
        "state": np.concatenate([np.hstack([e.joints, e.gripper]) for e in episodes]),
        "keypoint": np.zeros((sum(len(e.actions) for e in episodes), 9, 2)),
        "action": np.concatenate([episode.actions for episode in episodes]),
    } | changed
    for name, values in whole.items():
        data.create_array(name, data=values, chunks=(7, *values.shape[1:]), config={"write_empty_chunks": True})
    meta.create_array("episode_ends", data=np.cumsum([len(episode.actions) for episode in episodes]))
    if not isinstance(store, str):
        store.close()
    return path


def box(values: np.ndarray) -> gym.spaces.Box:
    low, high = (0, 255) if values.dtype == np.uint8 else (-np.inf, np.inf)
    return gym.spaces.Box(low, high, values.shape[1:], values.dtype)


def recorded(name: str, see: Callable[[Episode], Any], **options: Any) -> None:
    """A dataset as Minari writes it; every episode ends with an observation that no action follows."""
    buffers = []
    for number, episode in enumerate(EPISODES):
        blank, count = np.zeros(len(episode.actions)), len(episode.actions)
        buffers.append(
            EpisodeBuffer(
                id=number, observations=see(episode), actions=episode.actions, rewards=blank.tolist(),
                terminations=[False] * count, truncations=[False] * (count - 1) + [True],
            )
        )  # fmt: skip
    spaces = {"observation_space": space_of(see(EPISODES[0])), "action_space": box(EPISODES[0].actions)}
    with warnings.catch_warnings(action="ignore"):  # it would like to know the author
        minari.create_dataset_from_buffers(name, buffers, **spaces, **options)


def and_last(values: np.ndarray) -> np.ndarray:
    return np.concatenate([values, values[:1]])


def as_parts(episode: Episode) -> dict[str, Any]:
    robot = {"agent_pos": and_last(np.hstack([episode.joints, episode.gripper]))}
    return {"pixels": {"top": and_last(episode.pictures), "small": and_last(episode.small)}} | robot


def space_of(seen: Any) -> gym.Space:
    if isinstance(seen, dict):
        return gym.spaces.Dict({name: space_of(part) for name, part in seen.items()})
    return box(seen)
