"""What other programs wrote becomes a dataset: its names, numbers and pictures; and a sentence for what is wrong."""

import io
import json
import shutil
import struct
import sys
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import gymnasium as gym
import h5py
import minari
import numpy as np
import pytest
import zarr
from minari.data_collector import EpisodeBuffer
from PIL import Image

from tests.conftest import Command
from tests.data.test_video import moving, places, written
from xskill.data.lerobot import Dataset, open_dataset
from xskill.data.lerobot_write import write_dataset
from xskill.data.recording import Source
from xskill.data.sources import Choice, arrays
from xskill.data.sources.folder import read_folder
from xskill.data.sources.minari_store import read_minari
from xskill.data.sources.robomimic import read_robomimic
from xskill.data.sources.zarr_store import read_zarr
from xskill.data.video import stretch
from xskill.errors import DataError

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


# robomimic


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


def test_a_robomimic_file_becomes_a_dataset(tmp_path: Path) -> None:
    source = read_robomimic(robomimic(tmp_path / "lift.hdf5", control_freq=10), AS_IT_IS)
    dataset = converted(source, tmp_path / "out")
    assert dataset.names == ("demo_2", "demo_9", "demo_10")
    assert dataset.fps == 10
    assert set(dataset.tasks) == {"Lift"}
    assert set(dataset.sizes) == {"agentview", "robot0_eye_in_hand"}
    assert_same(dataset, "agentview", wrist="robot0_eye_in_hand")
    told = "\n".join(source.notes)
    assert "state: robot0_joint_pos, robot0_gripper_qpos" in told
    assert "not used: object" in told
    assert "agentview (agentview_image, 56 x 40)" in told


def test_what_is_asked_for_comes_before_what_robomimic_files_say(tmp_path: Path) -> None:
    path = robomimic(tmp_path / "lift.hdf5", control_freq=10)
    choice = Choice(
        fps=25, size=(32, 48), crop=(0.5, 0, 1, 1), cameras=("agentview",), states=("object",), actions="rewards"
    )
    source = read_robomimic(path, choice)
    dataset = converted(source, tmp_path / "out")
    assert (dataset.fps, dict(dataset.sizes)) == (25, {"agentview": (32, 48)})
    assert dataset.states is not None
    assert dataset.actions is not None
    assert (dataset.states.shape, dataset.actions.shape) == ((36, 10), (36, 1))
    frames = shown(dataset, "agentview", 0)
    assert frames[0].mean() < 10  # the bar begins on the left, which is cut away
    assert frames[-1, :, -10:, 0].mean() > 200


def test_a_rate_that_robomimic_files_do_not_tell_is_guessed_aloud(tmp_path: Path) -> None:
    for env in ({}, {"control_freq": "often"}, {"control_freq": -1}):
        source = read_robomimic(robomimic(tmp_path / "lift.hdf5", **env), AS_IT_IS)
        assert source.fps == 20
        assert "20 frames a second, a guess; --fps says otherwise" in source.notes


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (["robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos", "object"], 3),
        (["object", "proprio"], 2),
        ([], 0),
    ],
)
def test_the_state_of_a_robomimic_file_is_guessed(tmp_path: Path, kept: list[str], expected: int) -> None:
    with h5py.File(robomimic(tmp_path / "lift.hdf5"), "a") as file:
        for demo in file["data"].values():
            for name in ("robot0_joint_pos", "robot0_gripper_qpos", "object"):
                del demo["obs"][name]
            for number, name in enumerate(kept):
                demo["obs"][name] = np.full((len(demo["actions"]), 1), number)
    recording = next(iter(read_robomimic(tmp_path / "lift.hdf5", AS_IT_IS).recordings))
    row = None if recording.states is None else recording.states[0].tolist()
    assert row == (list(range(expected)) or None)


def test_frames_are_read_as_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "PIECE", 2**20)
    long = np.zeros((200, 240, 320, 3), np.uint8) + np.arange(200, dtype=np.uint8)[:, None, None, None]
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["data/demo_0/actions"] = np.zeros((200, 2))
        seen = file.create_group("data/demo_0/obs")
        seen.create_dataset("agentview_image", data=long, compression="gzip", chunks=(1, 240, 320, 3))
    tracemalloc.start()
    (recording,) = read_robomimic(tmp_path / "a.hdf5", AS_IT_IS).recordings
    values = [int(frame[0, 0, 0]) for frame in recording.shots["agentview"]((240, 320))]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert values == list(range(200))
    assert peak < 8 * 2**20 < long.nbytes / 4


def test_a_file_that_is_no_robomimic_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no file .*none\.hdf5"):
        read_robomimic(tmp_path / "none.hdf5", AS_IT_IS)
    whole = robomimic(tmp_path / "whole.hdf5").read_bytes()
    for name, content in {"text": b"not HDF5", "empty": b"", "half": whole[: len(whole) // 2]}.items():
        path = tmp_path / f"{name}.hdf5"
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"{name}\.hdf5 is damaged, or not what its name says"):
            read_robomimic(path, AS_IT_IS)
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["images"] = np.zeros(3)
    with pytest.raises(DataError, match=r"other\.hdf5: /data is missing"):
        read_robomimic(tmp_path / "other.hdf5", AS_IT_IS)
    with h5py.File(tmp_path / "other.hdf5", "a") as file:
        file.create_group("data/train")
    with pytest.raises(DataError, match=r"other\.hdf5 has no demonstrations"):
        read_robomimic(tmp_path / "other.hdf5", AS_IT_IS)


def test_a_robomimic_file_without_pictures_says_how_to_get_them(tmp_path: Path) -> None:
    path = robomimic(tmp_path / "lift.hdf5")
    with pytest.raises(DataError, match=r"no camera 'agentvew' \(did you mean 'agentview'\?\)"):
        read_robomimic(path, Choice(cameras=("agentvew",)))
    with pytest.raises(DataError, match=r"no row of numbers 'objects' for each frame \(did you mean 'object'\?\)"):
        read_robomimic(path, Choice(states=("objects",)))
    with h5py.File(path, "a") as file:
        for demo in file["data"].values():
            del demo["obs/agentview_image"], demo["obs/robot0_eye_in_hand_image"]
    with pytest.raises(DataError, match=r"no pictures, only object, .*dataset_states_to_obs\.py adds them"):
        read_robomimic(path, AS_IT_IS)
    with h5py.File(path, "a") as file:
        for demo in file["data"].values():
            del demo["obs"]
    with pytest.raises(DataError, match=r"has no obs; robomimic's dataset_states_to_obs\.py"):
        read_robomimic(path, AS_IT_IS)


def replaced(demo: h5py.Group, name: str, *shape: int, **how: Any) -> h5py.Dataset:
    del demo[name]
    return demo.create_dataset(name, shape or None, **how)


def uneven(demo: h5py.Group) -> None:
    rows = replaced(demo, "actions", 9, dtype=h5py.vlen_dtype("f4"))
    for index in range(9):
        rows[index] = np.zeros(index)


def never_written(demo: h5py.Group) -> None:
    replaced(demo, "obs/agentview_image", 9, 40, 56, 3, dtype="u1", chunks=(1, 40, 56, 3))[:3] = 7


def elsewhere(demo: h5py.Group, link: object) -> None:
    del demo["actions"]
    demo["actions"] = link


def virtual(demo: h5py.Group) -> None:
    layout = h5py.VirtualLayout((9, 4), "f8")
    layout[:] = h5py.VirtualSource("other.hdf5", "secret", (9, 4))
    del demo["actions"]
    demo.create_virtual_dataset("actions", layout)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda demo: demo.pop("actions"), "demo_9/actions is missing"),
        (lambda demo: demo.pop("obs"), "demo_9 has no pictures, for it has no obs"),
        (lambda demo: demo["obs"].pop("agentview_image"), "demo_9/obs/agentview_image is missing"),
        (lambda demo: demo["obs"].pop("robot0_joint_pos"), "demo_9/obs/robot0_joint_pos is missing"),
        (lambda demo: replaced(demo, "actions", data=np.zeros((8, 4))), "8 of actions, 9 of agentview_image"),
        (lambda demo: replaced(demo, "actions", data=np.zeros((0, 4))), r"actions is \(0, 4\) float64; expected a row"),
        (lambda demo: replaced(demo, "actions", data=["no"] * 9), "actions is .* object; expected a row of numbers"),
        (uneven, "expected a row of numbers"),
        (lambda demo: replaced(demo, "actions", 10**6, 10**6, dtype="f4"), "was not written to its end"),
        (lambda demo: replaced(demo, "obs/agentview_image", 9, 10**5, 10**5, 3, dtype="u1", chunks=(1, 1, 1, 3)),
         "was not written to its end"),
        (lambda demo: replaced(demo, "obs/agentview_image", 1, 10**5, 10**5, 3, dtype="u1", chunks=(1, 9**5, 9**5, 1)),
         "at most 1024 MB are unpacked"),
        (lambda demo: replaced(demo, "obs/agentview_image", data=np.zeros((9, 2, 8193, 3), np.uint8)),
         "says its pictures are 8193 x 2; at most 8192 a side"),
        (lambda demo: replaced(demo, "obs/agentview_image", data=np.zeros((9, 40, 56, 3))), "expected pictures"),
        (never_written, "was not written to its end: 6 of its chunks are missing"),
        (lambda demo: elsewhere(demo, h5py.ExternalLink("other.hdf5", "/secret")), "actions is a link"),
        (lambda demo: elsewhere(demo, h5py.SoftLink("/data/demo_2/actions")), "actions is a link"),
        (virtual, "actions is kept in another file"),
        (lambda demo: replaced(demo, "actions", 9, 4, dtype="f8", external=[("other.raw", 0, 9 * 32)]),
         "actions is kept in another file"),
    ],
)  # fmt: skip
def test_a_bad_demonstration_is_named_and_the_others_are_kept(
    tmp_path: Path, spoil: Callable[[h5py.Group], object], told: str
) -> None:
    with h5py.File(robomimic(tmp_path / "lift.hdf5"), "a") as file:
        spoil(file["data/demo_9"])
    source = read_robomimic(tmp_path / "lift.hdf5", AS_IT_IS)
    assert [recording.name for recording in source.recordings] == ["demo_2", "demo_10"]
    (problem,) = source.problems
    with pytest.raises(DataError, match=told):
        raise DataError(problem)
    assert str(tmp_path / "lift.hdf5") in problem


def test_numbers_that_are_none_and_damaged_pictures_are_left_out_as_the_dataset_is_written(tmp_path: Path) -> None:
    path = robomimic(tmp_path / "lift.hdf5")
    with h5py.File(path, "a") as file:
        file["data/demo_9/actions"][3] = np.nan
        place = file["data/demo_10/obs/agentview_image"].id.get_chunk_info(5).byte_offset
    content = bytearray(path.read_bytes())
    content[place : place + 20] = bytes(20)
    path.write_bytes(content)
    first, second = left_out(read_robomimic(path, AS_IT_IS), tmp_path / "out")
    assert first == "demo_9: actions are not all finite numbers"
    assert "demo_10: " in second
    assert "agentview_image is damaged" in second
    assert open_dataset(tmp_path / "out").names == ("demo_2",)


def test_more_numbers_than_anybody_recorded_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "MOST", 14 * 4)
    (problem,) = read_robomimic(robomimic(tmp_path / "a.hdf5"), Choice(states=("robot0_gripper_qpos",))).problems
    assert "demo_10/actions says it is (15, 4); at most 56 numbers are read" in problem


@pytest.mark.parametrize(
    ("library", "read"),
    [("h5py", lambda f: read_robomimic(f / "a", AS_IT_IS)), ("zarr", lambda f: read_zarr(f / "a", AS_IT_IS))],
)
def test_a_library_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, read: Callable[[Path], Source]
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DataError, match=rf"needs {library}: pip install 'xskill\["):
        read(tmp_path)


# zarr


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


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", ["replay.zarr", "replay.zarr.zip"])
def test_a_replay_buffer_becomes_a_dataset(
    tmp_path: Path, name: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "PIECE", 5 * 40 * 56 * 3)  # pieces that end elsewhere than chunks and episodes
    source = read_zarr(replay(tmp_path / name, version), AS_IT_IS)
    dataset = converted(source, tmp_path / "out")
    assert dataset.names == ("000000", "000001", "000002")
    assert dataset.fps == 10
    assert_same(dataset, "img", wrist="camera_1")
    told = "\n".join(source.notes)
    assert "state: state" in told
    assert "not used: keypoint" in told
    assert "10 frames a second, a guess" in told


@pytest.mark.parametrize("largest", [255, 1])
def test_pictures_that_are_floats_are_read(tmp_path: Path, largest: int) -> None:
    floats = np.concatenate([episode.pictures for episode in EPISODES]).astype(np.float32) * (largest / 255)
    source = read_zarr(replay(tmp_path / "a.zarr", img=floats), Choice(cameras=("img",)))
    assert any("img is not bytes" in note for note in source.notes)
    assert_same(converted(source, tmp_path / "out"), "img")


def changed(path: Path, **fields: object) -> None:
    """Change what the array at `path` says of itself."""
    about = path / ".zarray"
    about.write_text(json.dumps(json.loads(about.read_text()) | fields))


def linked(path: Path) -> None:
    path.rename(path.parent.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent.parent / "elsewhere")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda root: shutil.rmtree(root / "data/action"), "has no data/action, only .*img"),
        (lambda root: (root / "data/.zgroup").unlink(), "has no 'data'"),
        (lambda root: shutil.rmtree(root / "meta/episode_ends"), "episode_ends is missing"),
        (lambda root: (root / "data/img/.zarray").write_text("{"), "data is damaged"),
        (lambda root: (root / "data/action/0.0").write_bytes(b"none"), "data/action is damaged"),
        (lambda root: (root / "meta/episode_ends/0").write_bytes(b"none"), "meta/episode_ends is damaged"),
        (
            lambda root: changed(root / "data/action", shape=[35, 4]),
            r"action is \(35, 4\); .* ends at 36",
        ),
        (lambda root: changed(root / "data/img", shape=[36, 10**5, 10**5, 3]), "pictures are 100000 x 100000"),
        (lambda root: changed(root / "data/img", chunks=[36, 10**5, 10**5, 3]), "at most 1024 MB are unpacked"),
        (lambda root: changed(root / "data/action", dtype="|O"), "data is damaged"),
        (lambda root: changed(root / "data/action", dtype="|O", filters=[{"id": "pickle"}]), "data is damaged"),
        (lambda root: changed(root / "data/action", filters=[{"id": "json2"}]), "data is damaged"),
        (
            lambda root: changed(root / "data/action", filters=[{"id": "base64"}]),
            "packed as 'base64', which",
        ),
        (lambda root: changed(root / "data/img", compressor={"id": "imagecodecs_other"}), "pip install imagecodecs"),
        (
            lambda root: changed(root / "data/action", dtype="<U2", fill_value=""),
            "expected a row of numbers",
        ),
        (lambda root: linked(root / "data/img"), "img leads out of the store"),
    ],
)
def test_a_bad_replay_buffer_is_refused(tmp_path: Path, spoil: Callable[[Path], object], told: str) -> None:
    spoil(replay(tmp_path / "a.zarr"))
    with pytest.raises(DataError, match=told) as caught:
        read_zarr(tmp_path / "a.zarr", AS_IT_IS)
    assert str(tmp_path / "a.zarr") in str(caught.value)


@pytest.mark.parametrize("ends", [[12, 12, 36], [21, 12, 36], [-3, 21, 36]])
def test_episodes_of_a_replay_buffer_follow_each_other(tmp_path: Path, ends: list[int]) -> None:
    root = zarr.open_group(replay(tmp_path / "a.zarr"), mode="a")
    root["meta/episode_ends"][:] = ends
    with pytest.raises(DataError, match="episode_ends does not rise"):
        read_zarr(tmp_path / "a.zarr", AS_IT_IS)


def test_a_file_that_is_no_replay_buffer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no zarr store"):
        read_zarr(tmp_path / "none.zarr", AS_IT_IS)
    with pytest.raises(DataError, match="is damaged, or not what its name says"):
        read_zarr(tmp_path, AS_IT_IS)
    whole = replay(tmp_path / "whole.zarr.zip").read_bytes()
    for name, content in {"text": b"no zip", "empty": b"", "half": whole[: len(whole) // 2]}.items():
        path = tmp_path / f"{name}.zarr.zip"
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"{name}\.zarr\.zip is damaged, or not what its name says"):
            read_zarr(path, AS_IT_IS)
    none = replay(tmp_path / "flat.zarr", img=np.zeros((36, 5)), camera_1=np.zeros((36, 40, 56, 1), np.uint8))
    with pytest.raises(DataError, match=r"no pictures .*, only .*camera_1 \(36, 40, 56, 1\)"):
        read_zarr(none, AS_IT_IS)


def test_episodes_that_lost_a_chunk_are_left_out(tmp_path: Path) -> None:
    path = replay(tmp_path / "a.zarr")
    (path / "data/img/1.0.0.0").unlink()  # frames 7 to 13: of the first and second episode
    first, second = left_out(read_zarr(path, AS_IT_IS), tmp_path / "out")
    assert first == "000000: a picture of data/img is missing, or all black: its chunk is not there"
    assert second.startswith("000001: a picture")
    for name in ("action", "state"):
        path = replay(tmp_path / f"{name}.zarr")
        (path / f"data/{name}/5.0").unlink()
        source = read_zarr(path, AS_IT_IS)
        assert source.problems == (f"episode 2 lacks a part of data/{name}: a chunk of it is lost",)
        assert [recording.name for recording in source.recordings] == ["000000", "000001"]


def test_pictures_of_a_replay_buffer_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    path = replay(tmp_path / "a.zarr")
    (path / "data/img/1.0.0.0").write_bytes(b"none")  # frames 7 to 13: of the first and second episode
    first, second = left_out(read_zarr(path, AS_IT_IS), tmp_path / "out")
    assert first.startswith("000000: ")
    assert second.startswith("000001: ")
    assert "data/img is damaged" in first
    floats = np.concatenate([episode.pictures for episode in EPISODES]).astype(np.float32)
    floats[30] = -5
    (problem,) = left_out(read_zarr(replay(tmp_path / "b.zarr", img=floats), AS_IT_IS), tmp_path / "floats")
    assert "000002: " in problem
    assert "pictures from -5 to -5; expected 0 to 255" in problem


# Minari


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


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


@pytest.mark.parametrize("named", ["by id", "by folder"])
def test_a_minari_dataset_becomes_a_dataset(tmp_path: Path, store: Path, named: str) -> None:
    recorded("robot/push-v0", as_parts)
    source = read_minari(Path("robot/push-v0") if named == "by id" else store / "robot/push-v0", AS_IT_IS)
    dataset = converted(source, tmp_path / "out")
    assert dataset.names == ("episode_0", "episode_1", "episode_2")
    assert set(dataset.sizes) == {"pixels.top", "pixels.small"}
    assert_same(dataset, "pixels.top")
    for index, episode in enumerate(EPISODES):
        assert same(shown(dataset, "pixels.small", index), episode.small, 2)
    assert "state: agent_pos" in source.notes


@pytest.mark.parametrize("options", [{}, {"jpeg_encoding": False}])
def test_a_minari_dataset_may_be_nothing_but_pictures(tmp_path: Path, store: Path, options: dict[str, bool]) -> None:
    recorded("push-v0", lambda episode: and_last(episode.pictures), **options)
    dataset = converted(read_minari(Path("push-v0"), AS_IT_IS), tmp_path / "out")
    assert dataset.states is None
    assert same(shown(dataset, "observations", 1), EPISODES[1].pictures)


def test_a_minari_dataset_without_pictures_says_what_to_do(store: Path) -> None:
    recorded("D4RL/kitchen/complete-v9", lambda episode: {"observation": and_last(episode.joints)})
    with pytest.raises(DataError, match=r"no pictures, only observation; .*--demos minari:D4RL/kitchen/complete-v9"):
        read_minari(Path("D4RL/kitchen/complete-v9"), AS_IT_IS)
    with pytest.raises(DataError, match=r"there is no Minari dataset none-v0, .*'minari download none-v0' fetches it"):
        read_minari(Path("none-v0"), AS_IT_IS)


def test_the_environment_that_a_minari_dataset_names_is_never_made(store: Path, tmp_path: Path) -> None:
    recorded("push-v0", as_parts)
    path = store / "push-v0/data/metadata.json"
    about = json.loads(path.read_text())
    del about["observation_space"], about["action_space"]
    spec = {"id": "evil-v0", "entry_point": "pathlib:Path.touch", "kwargs": {"self": str(tmp_path / "made")}}
    path.write_text(json.dumps(about | {"env_spec": json.dumps(spec)}))
    with pytest.raises(DataError, match="does not tell the observation_space"):
        read_minari(Path("push-v0"), AS_IT_IS)
    assert not (tmp_path / "made").exists()


def told_anew(folder: Path, **fields: object) -> None:
    path = folder / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5000])


def moved(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


HUGE = json.dumps({"type": "Box", "dtype": "uint8", "shape": [10**5, 10**5, 3], "low": 0, "high": 255})


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: (folder / "metadata.json").write_text("{"), r"metadata\.json is damaged"),
        (lambda folder: (folder / "metadata.json").write_text("[" * 100_000), r"metadata\.json is damaged"),
        (lambda folder: told_anew(folder, observation_space=HUGE), "pictures are 100000 x 100000"),
        (lambda folder: told_anew(folder, observation_space='{"type": "Dict"}'), r"metadata\.json is damaged"),
        (lambda folder: told_anew(folder, data_format="arrow"), "kept as 'arrow'; only hdf5 is read"),
        (lambda folder: (folder / "main_data.hdf5").unlink(), r"main_data\.hdf5 is missing"),
        (lambda folder: moved(folder / "main_data.hdf5"), r"main_data\.hdf5 leads out of the dataset"),
        (lambda folder: cut(folder / "main_data.hdf5"), r"main_data\.hdf5 is damaged"),
        (lambda folder: h5py.File(folder / "main_data.hdf5", "w").close(), "has no episodes"),
    ],
)
def test_a_bad_minari_dataset_is_refused(store: Path, spoil: Callable[[Path], object], told: str) -> None:
    recorded("push-v0", as_parts)
    spoil(store / "push-v0/data")
    with pytest.raises(DataError, match=told):
        read_minari(Path("push-v0"), AS_IT_IS)


def test_bad_episodes_of_a_minari_dataset_are_named_and_the_others_kept(store: Path, tmp_path: Path) -> None:
    recorded("push-v0", as_parts)
    wide = io.BytesIO()
    Image.fromarray(np.zeros((40, 2000, 3), np.uint8)).save(wide, format="JPEG")
    with h5py.File(store / "push-v0/data/main_data.hdf5", "a") as file:
        del file["episode_0/actions"]
        file["episode_0/actions"] = np.zeros((12 + 1, 4))
        file["episode_1/observations/pixels/top"][4] = np.frombuffer(wide.getvalue(), np.uint8)
        del file["episode_2"]
    source = read_minari(Path("push-v0"), AS_IT_IS)
    assert len(source.problems) == 2
    assert "has 2 episodes; its metadata say 3" in source.problems[0]
    assert "has 13 of actions, 12 of pixels.small, 12 of pixels.top" in source.problems[1]
    with pytest.raises(DataError, match=r"picture 4 of .*pixels/top is 2000 x 40; it says \(40, 56, 3\)"):
        write_dataset(tmp_path / "out", Source(source.recordings, 10, source.sizes, {}), "robot")


def test_a_minari_dataset_cannot_have_a_camera_that_is_written_elsewhere(store: Path, tmp_path: Path) -> None:
    recorded("push-v0", lambda episode: {"top": and_last(episode.small)})
    path = store / "push-v0/data/metadata.json"
    path.write_text(path.read_text().replace("top", "x/../../../../elsewhere"))
    with h5py.File(store / "push-v0/data/main_data.hdf5", "a") as file:
        for episode in file.values():
            episode["observations/x/../../../../elsewhere"] = episode["observations/top"]
    with pytest.raises(DataError, match="it must be a name that a file can have"):
        write_dataset(tmp_path / "within/out", read_minari(Path("push-v0"), AS_IT_IS), "robot")
    assert not list(tmp_path.rglob("elsewhere*"))


@pytest.mark.parametrize("kind", ["robomimic", "zarr", "minari"])
def test_a_file_with_wrong_bytes_is_read_or_refused(
    tmp_path: Path, store: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xskill.data.sources.robomimic.PATIENCE", 3)
    recorded("push-v0", as_parts)
    read, named, file = {
        "robomimic": (read_robomimic, *[robomimic(tmp_path / "a.hdf5")] * 2),
        "zarr": (read_zarr, *[replay(tmp_path / "a.zarr.zip")] * 2),
        "minari": (read_minari, Path("push-v0"), store / "push-v0/data/main_data.hdf5"),
    }[kind]
    whole = np.frombuffer(file.read_bytes(), np.uint8)
    refused = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        places = rng.integers(len(whole) if seed % 2 else 4000, size=rng.integers(1, 8))
        wrong = whole.copy()
        wrong[places] = rng.integers(256, size=len(places))
        file.write_bytes(wrong.tobytes())
        try:
            source = read(named, AS_IT_IS)
            for recording in source.recordings:
                for camera, shots in recording.shots.items():
                    assert {frame.shape[:2] for frame in shots(source.sizes[camera])} == {source.sizes[camera]}
        except DataError as error:
            refused.append(str(error))
    assert refused
    assert not any("\n" in told for told in refused)


@pytest.mark.parametrize("kind", ["robomimic", "zarr", "minari"])
def test_every_source_has_its_command(xskill: Command, tmp_path: Path, store: Path, kind: str) -> None:
    robomimic(tmp_path / "a.robomimic")
    replay(tmp_path / "a.zarr")
    recorded("a-v0", as_parts)
    named = "a-v0" if kind == "minari" else f"a.{kind}"
    done = xskill("data", "import", kind, named, "out", "--fps", 5, "--size", 32, 32)
    assert done.returncode == 0, done.stderr
    assert "state: " in done.stdout
    dataset = open_dataset(tmp_path / "out")
    assert (dataset.fps, set(dataset.sizes.values()), dataset.lengths.tolist()) == (5, {(32, 32)}, list(LENGTHS))


# folders of videos and pictures

AV1 = next((name for name in ("libsvtav1", "libaom-av1") if name in av.codecs_available), "")


def filmed(path: Path, codec: str, frames: np.ndarray, rate: int = 10, sound: bool = False) -> Path:
    """A video in whatever container its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=rate)
        stream.height, stream.width, stream.pix_fmt = *frames.shape[1:3], "yuv420p"
        if sound:
            track: Any = container.add_stream("aac", rate=44100)
            for at in range(0, 44100 * len(frames) // rate, 1024):
                silence = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
                silence.sample_rate, silence.pts = 44100, at
                container.mux(track.encode(silence))
            container.mux(track.encode())
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return path


def turned(path: Path) -> Path:
    """Say of an mp4, as a phone held upright does, that it is to be turned clockwise by a quarter."""
    content = bytearray(path.read_bytes())
    matrix = content.index(b"tkhd") + 44
    content[matrix : matrix + 36] = struct.pack(">9i", 0, 2**16, 0, -(2**16), 0, 0, 0, 0, 2**30)
    path.write_bytes(content)
    return path


def sequence(folder: Path, frames: np.ndarray, kind: str = "png") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for index, frame in enumerate(frames):
        Image.fromarray(frame).save(folder / f"{index}.{kind}")


@pytest.mark.parametrize(
    ("name", "codec", "sound"),
    [
        ("a.mp4", "libx264", False),
        ("a.mp4", "libx264", True),
        ("a.mov", "libx264", False),
        ("a.MOV", "mpeg4", False),
        ("a.webm", "libvpx-vp9", False),
        ("a.mp4", AV1, False),
        ("a.webm", AV1, False),
    ],
)
def test_a_folder_of_videos_becomes_a_dataset(tmp_path: Path, name: str, codec: str, sound: bool) -> None:
    frames = moving(20, 80, 120)
    filmed(tmp_path / "in" / name, codec, frames, sound=sound)
    filmed(tmp_path / "in/within" / name, codec, frames[::-1])
    dataset = converted(read_folder(tmp_path / "in", AS_IT_IS), tmp_path / "out")
    assert (dataset.names, dataset.fps, dict(dataset.sizes)) == ((name, f"within/{name}"), 10, {"side": (80, 120)})
    assert (dataset.states, dataset.actions) == (None, None)
    assert same(shown(dataset, "side", 0), frames, 8)
    assert same(shown(dataset, "side", 1), frames[::-1], 8)


def test_a_video_of_a_phone_held_upright_is_upright(tmp_path: Path) -> None:
    frames = moving(10, 80, 120)
    (tmp_path / "in").mkdir()
    turned(filmed(tmp_path / "in/a.mp4", "libx264", frames))
    dataset = converted(read_folder(tmp_path / "in", AS_IT_IS), tmp_path / "out")
    assert dataset.sizes["side"] == (120, 80)
    assert same(shown(dataset, "side", 0), np.rot90(frames, -1, axes=(1, 2)))


def test_odd_sizes_are_made_even_and_large_ones_smaller(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    sequence(tmp_path / "in", moving(5, 81, 121))
    dataset = converted(read_folder(tmp_path / "in", AS_IT_IS), tmp_path / "out")
    assert dataset.sizes["side"] == (80, 120)
    assert shown(dataset, "side", 0).shape == (5, 80, 120, 3)
    filmed(tmp_path / "large/a.mp4", "libx264", moving(3, 540, 960))
    assert read_folder(tmp_path / "large", AS_IT_IS).sizes["side"] == (360, 640)


def test_uneven_times_become_even_ones(tmp_path: Path) -> None:
    times = [*range(0, 100, 2), *range(100, 301, 10)]
    (tmp_path / "in").mkdir()
    written(tmp_path / "in/a.mp4", np.stack([moving(301)[time] for time in times]), times)
    dataset = converted(read_folder(tmp_path / "in", Choice(fps=20)), tmp_path / "out")
    assert dataset.lengths.tolist() == [61]
    seen = places(shown(dataset, "side", 0))
    assert seen == pytest.approx(np.linspace(seen[0], seen[-1], 61), abs=0.03)
    assert seen[-1] - seen[0] > 0.7


def test_pictures_are_shown_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    frames = moving(12, 40, 60)
    for kind, name in (("png", "take 10"), ("jpg", "take 9")):
        sequence(tmp_path / "in" / name, frames, kind)
    source = read_folder(tmp_path / "in", AS_IT_IS)
    dataset = converted(source, tmp_path / "out")
    assert dataset.names == ("take 9", "take 10")
    assert any("taken to have 10 frames a second" in note for note in source.notes)
    for episode in range(2):
        assert same(shown(dataset, "side", episode), frames)


def test_what_is_asked_of_a_folder_is_done(tmp_path: Path) -> None:
    filmed(tmp_path / "in/a.mp4", "libx264", moving(41, 80, 120), rate=20)
    choice = Choice(fps=5, size=(32, 64), crop=(0.5, 0.0, 1.0, 0.5), cameras=("front",))
    dataset = converted(read_folder(tmp_path / "in", choice), tmp_path / "out")
    assert (dataset.fps, dataset.lengths.tolist(), dict(dataset.sizes)) == (5, [11], {"front": (32, 64)})
    frames = shown(dataset, "front", 0)
    assert frames[0].mean() < 10  # the bar begins on the left, which is cut away
    assert frames[-1, :, -12:, 0].mean() > 200
    assert frames[-1, :, :40].mean() < 20


def test_bad_videos_are_named_and_the_others_kept(tmp_path: Path) -> None:
    whole = filmed(tmp_path / "in/1.mp4", "libx264", moving(40)).read_bytes()
    (tmp_path / "in/2.mp4").write_bytes(b"no video")
    (tmp_path / "in/3.mp4").write_bytes(b"")
    (tmp_path / "in/4.mp4").write_bytes(whole[: len(whole) // 2])
    begin, end = whole.index(b"mdat") + 8, whole.index(b"moov")
    half = (begin + end) // 2
    (tmp_path / "in/5.mp4").write_bytes(
        whole[:half] + bytes(whole.index(b"moov") - half) + whole[whole.index(b"moov") :]
    )
    (tmp_path / "in/notes.txt").write_text("not a video, and none is expected")
    problems = left_out(read_folder(tmp_path / "in", AS_IT_IS), tmp_path / "out")
    assert [next(n for n in "2345" if f"{n}.mp4" in problem) for problem in problems] == list("2345")
    assert open_dataset(tmp_path / "out").names == ("1.mp4",)


def test_a_folder_with_nothing_to_see_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no folder"):
        read_folder(tmp_path / "none", AS_IT_IS)
    (tmp_path / "notes.txt").write_text("words")
    with pytest.raises(DataError, match=r"neither videos nor pictures \(1 other files\)"):
        read_folder(tmp_path, AS_IT_IS)
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"none of the videos and pictures in .* can be read"):
        read_folder(tmp_path, AS_IT_IS)


@pytest.mark.parametrize("kind", ["png", "jpg", "webp", "bmp", "tif"])
def test_a_picture_that_is_cut_off_leaves_its_sequence_out(tmp_path: Path, kind: str) -> None:
    for name in "ab":
        sequence(
            tmp_path / "in" / name, np.random.default_rng(0).integers(256, size=(6, 40, 60, 3), dtype=np.uint8), kind
        )
    cut_off = tmp_path / f"in/a/3.{kind}"
    cut_off.write_bytes(cut_off.read_bytes()[: cut_off.stat().st_size // 2])
    (problem,) = left_out(read_folder(tmp_path / "in", AS_IT_IS), tmp_path / "out")
    assert problem.startswith("a: ")
    assert f"3.{kind}" in problem
