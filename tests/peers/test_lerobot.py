"""LeRobot itself reads the datasets we write, and we read those it writes. `make test-peers` installs it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lerobot.datasets.compute_stats import aggregate_stats
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.datasets.v30.convert_dataset_v21_to_v30 import convert_dataset

from tests.data.samples import (
    ACTIONS,
    CAMERAS,
    LENGTHS,
    STATES,
    TASKS,
    all_frames,
    all_numbers,
    assert_same_frames,
    decoded,
    numbers,
    picture,
    source,
    task,
    write_v21,
)
from xskill.data import lerobot_write
from xskill.data.lerobot import ACTION, IMAGES, STATE, open_dataset
from xskill.data.lerobot_write import write_dataset

FRAMES = sum(LENGTHS)
EPISODE = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
STEP = np.concatenate([np.arange(length) for length in LENGTHS])
RATES = [10, 12.5, 29.97]
THEIRS = (7, 2, 12, 19, 4)
"""LeRobot joins no h264 videos of which one has a single frame."""


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few episodes fill a file."""
    monkeypatch.setattr(lerobot_write, "LARGEST_VIDEO", 4000)
    monkeypatch.setattr(lerobot_write, "LARGEST_TABLE", 1000)


@pytest.fixture
def ours(tmp_path: Path) -> Callable[..., Path]:
    """A dataset that we wrote."""

    def write(fps: float = 10, **kinds: int | None) -> Path:
        folder = tmp_path / "ours"
        assert not write_dataset(folder, source(fps, **kinds), "arm").problems
        assert len(list(folder.glob("data/*/*.parquet"))) > 1
        assert len(list(folder.glob("videos/*top/*/*.mp4"))) > 1
        return folder

    return write


def opened(folder: Path, **options: Any) -> LeRobotDataset:
    return LeRobotDataset("somebody/something", root=folder, **options)


def picture_of(item: dict[str, Any], camera: str) -> np.ndarray:
    """(H, W, 3), as bright as 255."""
    found: np.ndarray = item[IMAGES + camera].numpy()
    return np.moveaxis(found, -3, -1) * 255


@pytest.mark.parametrize("fps", RATES)
def test_lerobot_reads_all_that_we_wrote(ours: Callable[..., Path], fps: float) -> None:
    theirs = opened(ours(fps))
    assert (theirs.num_episodes, theirs.num_frames, len(theirs), theirs.fps) == (len(LENGTHS), FRAMES, FRAMES, fps)
    assert theirs.meta.robot_type == "arm"
    assert theirs.meta.total_tasks == len(TASKS)
    items = [theirs[index] for index in range(FRAMES)]
    for name, width in ((STATE, STATES), (ACTION, ACTIONS)):
        assert np.array_equal(np.stack([item[name].numpy() for item in items]), all_numbers(width))
    counted = {"episode_index": EPISODE, "frame_index": STEP, "index": np.arange(FRAMES)}
    for name, expected in counted.items():
        assert [item[name].item() for item in items] == expected.tolist()
    assert [item["timestamp"].item() for item in items] == (STEP / fps).astype(np.float32).tolist()
    assert [item["task"] for item in items] == [task(episode) for episode in EPISODE.tolist()]
    for camera in CAMERAS:
        assert_same_frames(np.stack([picture_of(item, camera) for item in items]), all_frames(camera))


def test_lerobot_takes_our_statistics_for_its_own(ours: Callable[..., Path]) -> None:
    stats = opened(ours()).meta.stats
    values = {STATE: all_numbers(STATES), ACTION: all_numbers(ACTIONS)}
    values |= {"timestamp": (STEP / 10)[:, None], "task_index": (EPISODE % len(TASKS))[:, None]}
    for name, array in values.items():
        for kind, expected in zip(("mean", "std", "min", "max"), told(array), strict=True):
            assert stats[name][kind] == pytest.approx(expected, abs=1e-6)
        assert stats[name]["count"] == [FRAMES]
    for camera in CAMERAS:
        found = stats[IMAGES + camera]
        for kind, expected in zip(
            ("mean", "std", "min", "max"), told(all_frames(camera).reshape(-1, 3) / 255), strict=True
        ):
            assert found[kind].shape == (3, 1, 1)
            assert found[kind][:, 0, 0] == pytest.approx(expected, abs=1e-6)
    twice = aggregate_stats([stats, stats])
    assert twice[STATE]["mean"] == pytest.approx(stats[STATE]["mean"])
    assert twice[STATE]["std"] == pytest.approx(stats[STATE]["std"])


def told(array: np.ndarray) -> list[np.ndarray]:
    return [array.mean(0), array.std(0), array.min(0), array.max(0)]


@pytest.mark.parametrize("fps", RATES)
def test_lerobot_finds_the_frames_before_and_after(ours: Callable[..., Path], fps: float) -> None:
    steps = [-3, 0, 1, 4]
    wanted = {name: [step / fps for step in steps] for name in (STATE, ACTION, IMAGES + "top")}
    theirs = opened(ours(fps), delta_timestamps=wanted)
    ends = np.cumsum(LENGTHS)
    pictures = all_frames("top")
    for index in range(FRAMES):
        item, begin, end = theirs[index], ends[EPISODE[index]] - LENGTHS[EPISODE[index]], ends[EPISODE[index]]
        asked = index + np.array(steps)
        shown = asked.clip(begin, end - 1)
        for name, width in ((STATE, STATES), (ACTION, ACTIONS)):
            assert np.array_equal(item[name].numpy(), all_numbers(width)[shown])
            assert item[f"{name}_is_pad"].tolist() == ((asked < begin) | (asked >= end)).tolist()
        assert np.abs(picture_of(item, "top") - pictures[shown]).mean((1, 2, 3)).max() < 4


def test_lerobot_reads_some_of_our_episodes(ours: Callable[..., Path]) -> None:
    theirs = opened(ours(), episodes=[1, 3])
    assert len(theirs) == LENGTHS[1] + LENGTHS[3]
    item = theirs[LENGTHS[1] + 5]
    assert np.array_equal(item[STATE].numpy(), numbers(3, LENGTHS[3], STATES)[5])
    assert np.abs(picture_of(item, "wrist") - picture("wrist", 3, 5)).mean() < 4


def test_lerobot_reads_a_demonstrator_that_has_no_numbers(ours: Callable[..., Path]) -> None:
    theirs = opened(ours(states=None, actions=None))
    assert set(theirs[0]) & {STATE, ACTION} == set()
    assert_same_frames(np.stack([picture_of(theirs[index], "top") for index in range(FRAMES)]), all_frames("top"))


def test_lerobot_reads_states_and_actions_of_one_number(ours: Callable[..., Path]) -> None:
    theirs = opened(ours(states=1, actions=1))
    assert [theirs[index][ACTION].item() for index in range(FRAMES)] == all_numbers(1)[:, 0].tolist()


def test_lerobot_records_on_where_we_stopped(ours: Callable[..., Path]) -> None:
    folder = ours()
    theirs = opened(folder, vcodec="h264")
    record(theirs, len(LENGTHS), 6)
    theirs.finalize()
    lengths = (*LENGTHS, 6)
    assert len(opened(folder)) == sum(lengths)
    dataset = open_dataset(folder)
    assert dataset.lengths.tolist() == list(lengths)
    assert np.array_equal(dataset.actions, all_numbers(ACTIONS, lengths))
    for camera in CAMERAS:
        assert_same_frames(decoded(dataset, camera), all_frames(camera, lengths), within=8)


def record(theirs: LeRobotDataset, episode: int, length: int) -> None:
    for step in range(length):
        frame = {IMAGES + camera: picture(camera, episode, step) for camera in CAMERAS}
        frame |= {STATE: numbers(episode, length, STATES)[step], ACTION: numbers(episode, length, ACTIONS)[step]}
        theirs.add_frame(frame | {"task": task(episode)})
    theirs.save_episode(parallel_encoding=False)


@pytest.mark.parametrize("codec", ["libsvtav1", "h264"])
@pytest.mark.parametrize(("files", "streamed"), [("one", False), ("several", False), ("several", True)])
def test_we_read_what_lerobot_wrote(tmp_path: Path, codec: str, files: str, streamed: bool) -> None:
    features: dict[str, Any] = {
        IMAGES + camera: {"dtype": "video", "shape": (*size, 3), "names": ["height", "width", "channels"]}
        for camera, size in CAMERAS.items()
    }
    features[STATE] = {"dtype": "float32", "shape": (STATES,), "names": [f"joint {i}" for i in range(STATES)]}
    features[ACTION] = {"dtype": "float32", "shape": (ACTIONS,), "names": None}
    theirs = LeRobotDataset.create(
        "a/b", 10, features, tmp_path / "a", "arm", vcodec=codec, streaming_encoding=streamed, encoder_threads=1
    )
    if files == "several":
        theirs.meta.update_chunk_settings(data_files_size_in_mb=0.004, video_files_size_in_mb=0.006, chunks_size=2)
    for episode, length in enumerate(THEIRS):
        record(theirs, episode, length)
    theirs.finalize()
    kept = len(list((tmp_path / "a").glob("videos/*top/*/*.mp4"))), len(list((tmp_path / "a").glob("data/*/*.parquet")))
    assert kept == (1, 1) if files == "one" else min(kept) > 1

    dataset = open_dataset(tmp_path / "a")
    assert (dataset.version, dataset.fps, dataset.sizes) == ("v3.0", 10, CAMERAS)
    assert dataset.lengths.tolist() == list(THEIRS)
    assert dataset.tasks == tuple(task(episode) for episode in range(len(THEIRS)))
    assert np.array_equal(dataset.states, all_numbers(STATES, THEIRS))
    assert np.array_equal(dataset.actions, all_numbers(ACTIONS, THEIRS))
    for camera in CAMERAS:
        assert_same_frames(decoded(dataset, camera), all_frames(camera, THEIRS), within=8)


@pytest.mark.parametrize("limits", [(100, 200), (0.002, 0.002)])
def test_we_read_the_older_layout_and_what_lerobot_makes_of_it_alike(
    tmp_path: Path, limits: tuple[float, float]
) -> None:
    write_v21(tmp_path / "a/b", lengths=THEIRS)
    shutil.copytree(tmp_path / "a/b", tmp_path / "old")
    convert_dataset("a/b", None, *limits, root=tmp_path, push_to_hub=False)
    old, new = open_dataset(tmp_path / "old"), open_dataset(tmp_path / "a/b")
    assert (old.version, new.version) == ("v2.1", "v3.0")
    tables, videos = len(list(new.folder.glob("data/*/*"))), len({clip.path for clip in new.clips["top"]})
    assert (tables, videos) == (1, 1) if limits == (100, 200) else min(tables, videos) > 1
    assert (old.fps, old.names, old.tasks, old.sizes) == (new.fps, new.names, new.tasks, new.sizes)
    assert np.array_equal(old.lengths, new.lengths)
    assert np.array_equal(old.states, new.states)
    assert np.array_equal(old.actions, new.actions)
    for camera in CAMERAS:
        assert np.array_equal(decoded(old, camera), decoded(new, camera))
        assert_same_frames(decoded(new, camera), all_frames(camera, THEIRS))
