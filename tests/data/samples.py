"""Small datasets to read and write, whose every frame can be told from every other."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from xskill.data.lerobot import IMAGES, Dataset
from xskill.data.recording import Pixels, Recording, Source
from xskill.data.video import encode_video, stretch

CAMERAS = {"top": (64, 96), "wrist": (64, 64)}
SHORT = (5, 3)
"""Lengths of the episodes that damage is done to."""
TABLE, INDEX = "data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet"
FILM = f"videos/{IMAGES}top/chunk-000/file-000.mp4"
LENGTHS = (7, 1, 12, 19, 4)
TASKS = ("open the microwave", "die Tür öffnen")
STATES, ACTIONS = 9, 4
ABOUT = {"made": "for a test"}


def picture(camera: str, episode: int, frame: int) -> Pixels:
    """A bar that moves as the episode goes on, before a colour that tells the episode."""
    height, width = CAMERAS[camera]
    pixels = np.full((height, width, 3), (40 * episode, 200 - 40 * episode, 60), np.uint8)
    if camera == "wrist":
        pixels = pixels[..., ::-1].copy()
    at = 2 * frame
    pixels[:, at : at + 12] = (250, 250, 250)
    pixels[at : at + 8] = (10, 10, 10)
    return pixels


def film(camera: str, episode: int, length: int) -> Pixels:
    return np.stack([picture(camera, episode, frame) for frame in range(length)])


def task(episode: int) -> str:
    return TASKS[episode % len(TASKS)]


def numbers(episode: int, length: int, width: int) -> np.ndarray:
    return np.random.default_rng((episode, width)).normal(size=(length, width)).astype(np.float32)


def recording(episode: int, length: int, *, states: int | None = STATES, actions: int | None = ACTIONS) -> Recording:
    shots = {name: lambda size, name=name: iter(film(name, episode, length)) for name in CAMERAS}
    made = [numbers(episode, length, width) if width else None for width in (states, actions)]
    return Recording(f"take {episode}", shots, *made, task=task(episode))


def source(fps: float = 10, lengths: Sequence[int] = LENGTHS, **kinds: int | None) -> Source:
    made = [recording(episode, length, **kinds) for episode, length in enumerate(lengths)]
    return Source(made, fps, CAMERAS, ABOUT)


def all_numbers(width: int, lengths: Sequence[int] = LENGTHS) -> np.ndarray:
    return np.concatenate([numbers(episode, length, width) for episode, length in enumerate(lengths)])


def all_frames(camera: str, lengths: Sequence[int] = LENGTHS) -> Pixels:
    return np.concatenate([film(camera, episode, length) for episode, length in enumerate(lengths)])


def nearest(frame: np.ndarray, frames: Pixels) -> tuple[int, float]:
    """Which of the `frames` one is most like, and how far it is from that, of 255."""
    apart = np.abs(frames.astype(np.float32) - frame).mean((1, 2, 3))
    return int(apart.argmin()), float(apart.min())


def decoded(dataset: Dataset, camera: str) -> Pixels:
    """All frames of a camera, episode after episode."""
    size, found = dataset.sizes[camera], []
    for clip, length in zip(dataset.clips[camera], dataset.lengths.tolist(), strict=True):
        found += list(stretch(clip.path, clip.start, length, dataset.fps, size))
    return np.stack(found)


def assert_same_frames(found: np.ndarray, expected: Pixels, *, within: float = 4) -> None:
    """Each frame is the one it should be, not its neighbour, up to what a codec loses."""
    assert found.shape == expected.shape
    for index, frame in enumerate(found):
        which, apart = nearest(frame, expected)
        assert which == index
        assert apart < within


def write_v21(folder: Path, fps: float = 10, lengths: Sequence[int] = LENGTHS) -> None:
    """A dataset in the layout LeRobot had before 3.0: a table and a video an episode, the rest in lines of JSON."""
    (folder / "meta").mkdir(parents=True)
    features: dict[str, Any] = {
        "observation.state": {"dtype": "float32", "shape": [STATES], "names": None},
        "action": {"dtype": "float32", "shape": [ACTIONS], "names": None},
        "timestamp": {"dtype": "float32", "shape": [1], "names": None},
    }
    for name in ("frame_index", "episode_index", "index", "task_index"):
        features[name] = {"dtype": "int64", "shape": [1], "names": None}
    episodes, stats = [], []
    begin = 0
    for episode, length in enumerate(lengths):
        steps = np.arange(length)
        columns = {
            "timestamp": (steps / fps).astype(np.float32),
            "frame_index": steps,
            "episode_index": np.full(length, episode),
            "index": begin + steps,
            "task_index": np.full(length, episode % len(TASKS)),
        }
        vectors = {"observation.state": STATES, "action": ACTIONS}
        arrays = {name: numbers(episode, length, width) for name, width in vectors.items()}
        table = folder / f"data/chunk-000/episode_{episode:06d}.parquet"
        table.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({name: list(array) for name, array in arrays.items()} | columns), table)
        of_episode = {name: _stats(array) for name, array in arrays.items()}
        of_episode |= {name: _stats(column[:, None]) for name, column in columns.items()}
        for camera, size in CAMERAS.items():
            features[IMAGES + camera] = {
                "dtype": "video",
                "shape": [*size, 3],
                "names": ["height", "width", "channel"],
                "info": {"video.fps": fps, "video.codec": "h264", "video.pix_fmt": "yuv420p", "has_audio": False},
            }
            frames = film(camera, episode, length)
            path = folder / f"videos/chunk-000/{IMAGES}{camera}/episode_{episode:06d}.mp4"
            path.parent.mkdir(parents=True, exist_ok=True)
            encode_video(path, frames, fps, g="2")
            told = _stats(frames.reshape(-1, 3) / 255)
            of_episode[IMAGES + camera] = {
                name: value if name == "count" else np.reshape(value, (3, 1, 1)).tolist()
                for name, value in told.items()
            }
        episodes.append({"episode_index": episode, "tasks": [task(episode)], "length": length})
        stats.append({"episode_index": episode, "stats": of_episode})
        begin += length
    info = {
        "codebase_version": "v2.1", "robot_type": "arm", "total_episodes": len(lengths), "total_frames": begin,
        "total_tasks": len(TASKS), "total_videos": len(CAMERAS) * len(lengths), "total_chunks": 1, "chunks_size": 1000,
        "fps": fps, "splits": {"train": f"0:{len(lengths)}"},
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
        "features": features,
    }  # fmt: skip
    (folder / "meta/info.json").write_text(json.dumps(info, indent=4))
    tasks = [{"task_index": index, "task": text} for index, text in enumerate(TASKS)]
    for name, lines in (("episodes", episodes), ("episodes_stats", stats), ("tasks", tasks)):
        (folder / f"meta/{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _stats(values: np.ndarray) -> dict[str, list[float]]:
    told = {"min": values.min(0), "max": values.max(0), "mean": values.mean(0), "std": values.std(0)}
    return {name: value.tolist() for name, value in told.items()} | {"count": [len(values)]}
