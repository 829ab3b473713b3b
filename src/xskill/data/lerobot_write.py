"""Writing a dataset as LeRobot 3.0 does: episodes packed into few files, whole or not there at all.

Every episode is encoded by itself, and then appended to the video of its camera without being encoded again; so an
episode that cannot be read leaves nothing behind.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from xskill.data.lerobot import ACTION, DATA, EPISODES, EXTRA, IMAGES, INFO, STATE, STATS, TASKS, VIDEO
from xskill.data.lerobot_stats import Stats, stats_of, stats_of_pictures, together
from xskill.data.recording import Pixels, Recording, Source
from xskill.data.video import encode_video
from xskill.engine.folder import ASIDE, finish_folder, refused, to_bytes
from xskill.errors import DataError

LARGEST_VIDEO, LARGEST_TABLE = 200 * 2**20, 100 * 2**20
"""Bytes after which the next file is begun."""
CODEC: Mapping[str, str] = {"g": "8", "bf": "0"}
"""A frame that can be jumped to every few; none that refers to later ones, so that videos can be joined."""
SAMPLED = 20
"""Frames of an episode that statistics of images are taken from, at most."""


@dataclass(frozen=True)
class Written:
    """What came of it."""

    folder: Path
    episodes: int
    frames: int
    problems: tuple[str, ...]
    """A sentence for every recording that was left out."""


def write_dataset(
    folder: Path,
    source: Source,
    robot: str,
    *,
    overwrite: bool = False,
    progress: Callable[[str], None] = lambda name: None,
) -> Written:
    """Write the recordings of a source as the dataset `folder`. `progress` is told the name of each one done.

    A recording that cannot be read is left out and named. Raises `DataError` when none is left, or the folder is there.
    """
    if folder.exists() and not overwrite:
        raise DataError(f"{folder} is there already; name another folder, or replace it with --overwrite")
    aside = folder.with_name(f"{ASIDE}{folder.name}")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        problems = list(source.problems)
        with ExitStack() as stack:
            pack = _Pack(aside, source)
            stack.callback(pack.close)
            for recording in source.recordings:
                try:
                    pack.add(recording)
                except DataError as error:
                    problems.append(f"{recording.name}: {error}")
                progress(recording.name)
        if not pack.episodes:
            raise DataError(f"nothing of it can be read: {problems[0] if problems else 'there are no recordings'}")
        pack.finish(robot, problems)
        finish_folder(aside, folder, {"made_by": "xskill"})
        return Written(folder, len(pack.episodes), pack.frames, tuple(problems))
    except OSError as error:
        raise refused(folder, error) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


class _Pack:
    """A dataset on its way."""

    def __init__(self, folder: Path, source: Source) -> None:
        for camera in source.sizes:
            if Path(camera).name != camera:
                raise DataError(f"a camera is called '{camera}'; it must be a name that a file can have")
        self.folder, self.source = folder, source
        self.episodes: list[dict[str, Any]] = []
        self.names: list[str] = []
        self.frames = 0
        self._tasks: dict[str, int] = {}
        self._videos = {camera: _Video(folder, IMAGES + camera, source.fps) for camera in source.sizes}
        self._table = _Table(folder)
        self._stats: dict[str, list[Stats]] = {}
        self._kinds: dict[str, int] | None = None

    def add(self, recording: Recording) -> None:
        """One more episode, all of it or, when something is wrong with it, nothing."""
        if set(recording.shots) != set(self.source.sizes):
            raise DataError(f"it has the cameras {sorted(recording.shots)}; expected {sorted(self.source.sizes)}")
        if recording.name in self.names:
            raise DataError("another one has the same name")
        with ExitStack() as stack:
            samples: dict[str, list[Pixels]] = {}
            length = None
            for camera, size in self.source.sizes.items():
                path = self._videos[camera].next
                stack.callback(path.unlink, missing_ok=True)
                kept = samples[camera] = []
                count = encode_video(path, _sampled(recording.shots[camera](size), kept), self.source.fps, **CODEC)
                if length is not None and count != length:
                    raise DataError(f"camera '{camera}' has {count} frames, the one before {length}")
                length = count
            assert length is not None
            numbers = {name: _checked(name, array, length) for name, array in _arrays(recording).items()}
            kinds = {name: array.shape[1] for name, array in numbers.items()}
            if self._kinds is not None and kinds != self._kinds:
                raise DataError(f"it has {kinds or 'no numbers'}, the first one {self._kinds or 'none'} a frame")
            self._kinds = kinds
            self._commit(recording, length, numbers, samples)

    def _commit(
        self, recording: Recording, length: int, numbers: Mapping[str, np.ndarray], samples: Mapping[str, list[Pixels]]
    ) -> None:
        number, task = len(self.episodes), self._tasks.setdefault(recording.task, len(self._tasks))
        steps = np.arange(length)
        counted: dict[str, np.ndarray] = {
            "timestamp": (steps / self.source.fps).astype(np.float32),
            "frame_index": steps,
            "episode_index": np.full(length, number),
            "index": self.frames + steps,
            "task_index": np.full(length, task),
        }
        columns: dict[str, np.ndarray] = {name: column[:, None] for name, column in counted.items()}
        stats = {name: stats_of(array) for name, array in {**numbers, **columns}.items()}
        stats |= {IMAGES + camera: stats_of_pictures(kept) for camera, kept in samples.items()}
        for name, found in stats.items():
            self._stats.setdefault(name, []).append(found)
        at: dict[str, Any] = {"episode_index": number, "tasks": [recording.task], "length": length}
        at |= {"dataset_from_index": self.frames, "dataset_to_index": self.frames + length}
        at |= self._table.add(pa.table({**{name: _lists(array) for name, array in numbers.items()}, **counted}))
        for video in self._videos.values():
            at |= video.take(length)
        at |= {f"stats/{name}/{kind}": value.tolist() for name, of in stats.items() for kind, value in of.items()}
        self.episodes.append(at | {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0})
        self.names.append(recording.name)
        self.frames += length

    def close(self) -> None:
        """Let go of open files."""
        self._table.close()
        for video in self._videos.values():
            video.close()

    def finish(self, robot: str, problems: list[str]) -> None:
        """Write all that is not frames and rows."""
        source = self.source
        (self.folder / EPISODES / "chunk-000").mkdir(parents=True)
        index = self.folder / EPISODES / "chunk-000/file-000.parquet"
        pq.write_table(pa.Table.from_pylist(self.episodes), index, write_page_checksum=True)
        _write_tasks(self.folder / TASKS, self._tasks)
        features: dict[str, Any] = {
            IMAGES + camera: {
                "dtype": "video", "shape": [*_even(size), 3], "names": ["height", "width", "channels"],
                "info": {"video.fps": source.fps, "video.height": _even(size)[0], "video.width": _even(size)[1],
                         "video.channels": 3, "video.codec": "h264", "video.pix_fmt": "yuv420p",
                         "video.is_depth_map": False, "has_audio": False},
            }
            for camera, size in source.sizes.items()
        }  # fmt: skip
        for name, width in (self._kinds or {}).items():
            features[name] = {"dtype": "float32", "shape": [width], "names": None}
        features["timestamp"] = {"dtype": "float32", "shape": [1], "names": None}
        for name in ("frame_index", "episode_index", "index", "task_index"):
            features[name] = {"dtype": "int64", "shape": [1], "names": None}
        info = {
            "codebase_version": "v3.0", "robot_type": robot, "total_episodes": len(self.episodes),
            "total_frames": self.frames, "total_tasks": len(self._tasks), "chunks_size": 1000,
            "data_files_size_in_mb": LARGEST_TABLE // 2**20, "video_files_size_in_mb": LARGEST_VIDEO // 2**20,
            "fps": int(source.fps) if float(source.fps).is_integer() else source.fps,
            "splits": {"train": f"0:{len(self.episodes)}"}, "data_path": DATA, "video_path": VIDEO,
            "features": features,
        }  # fmt: skip
        (self.folder / INFO).write_bytes(to_bytes(info))
        stats = {
            name: {kind: value.tolist() for kind, value in together(parts).items()}
            for name, parts in self._stats.items()
        }
        (self.folder / STATS).write_bytes(to_bytes(stats))
        extra = {"names": self.names, "source": dict(source.about), "left_out": problems}
        (self.folder / EXTRA).write_bytes(to_bytes(extra))


class _Video:
    """The videos of one camera: episodes appended one after the other, a new file when one is large."""

    def __init__(self, folder: Path, key: str, fps: float) -> None:
        self._folder, self._key, self._fps = folder, key, fps
        self.next = folder / f"{key}.mp4"
        self._file, self._frames = 0, 0
        self._container: Any = None
        self._stream: Any = None
        self._written = 0

    def take(self, length: int) -> dict[str, Any]:
        """Append the episode in `next`; where it is now."""
        import av

        if self._container is not None and self._written > LARGEST_VIDEO:
            self.close()
            self._file, self._frames = self._file + 1, 0
        chunk, file = divmod(self._file, 1000)
        with av.open(str(self.next)) as episode:
            stream: Any = episode.streams.video[0]
            if self._container is None:
                path = self._folder / VIDEO.format(video_key=self._key, chunk_index=chunk, file_index=file)
                path.parent.mkdir(parents=True, exist_ok=True)
                self._container = av.open(str(path), "w", format="mp4")
                self._stream, self._written = self._container.add_stream_from_template(stream), 0
            tick = 1 / (self._fps * stream.time_base)
            begin = round(self._frames * tick)
            packet: Any
            for packet in episode.demux(stream):
                if packet.dts is None:
                    continue
                packet.pts, packet.dts, packet.stream = packet.pts + begin, packet.dts + begin, self._stream
                self._written += packet.size
                self._container.mux(packet)
        self.next.unlink()
        start = self._frames / self._fps
        self._frames += length
        where: dict[str, Any] = {"chunk_index": chunk, "file_index": file}
        where |= {"from_timestamp": start, "to_timestamp": self._frames / self._fps}
        return {f"videos/{self._key}/{name}": value for name, value in where.items()}

    def close(self) -> None:
        if self._container is not None:
            self._container.close()
            self._container = None


class _Table:
    """The rows of all episodes, a new file when one is large."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._file, self._bytes = folder, 0, 0
        self._writer: Any = None

    def add(self, rows: pa.Table) -> dict[str, int]:
        if self._writer is not None and self._bytes > LARGEST_TABLE:
            self.close()
            self._file, self._bytes = self._file + 1, 0
        chunk, file = divmod(self._file, 1000)
        if self._writer is None:
            path = self._folder / DATA.format(chunk_index=chunk, file_index=file)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(path, rows.schema, write_page_checksum=True)
        self._writer.write_table(rows)
        self._bytes += rows.nbytes
        return {"data/chunk_index": chunk, "data/file_index": file}

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _sampled(frames: Any, kept: list[Pixels]) -> Iterator[Pixels]:
    """Frames as they come, some of them kept: every one, then every second, every fourth, ..."""
    stride = 1
    for index, frame in enumerate(frames):
        if index % stride == 0:
            kept.append(frame)
            if len(kept) > SAMPLED:
                del kept[1::2]
                stride *= 2
        yield frame


def _arrays(recording: Recording) -> dict[str, np.ndarray]:
    named = {STATE: recording.states, ACTION: recording.actions}
    return {name: array for name, array in named.items() if array is not None}


def _checked(name: str, array: np.ndarray, length: int) -> np.ndarray:
    what = {STATE: "states", ACTION: "actions"}[name]
    if array.ndim != 2 or len(array) != length:
        raise DataError(f"{what} are {array.shape} for {length} frames; there must be a row for each")
    if not np.issubdtype(array.dtype, np.number) or not np.isfinite(array).all():
        raise DataError(f"{what} are not all finite numbers")
    return array.astype(np.float32)


def _lists(array: np.ndarray) -> pa.Array:
    if array.shape[1] == 1:  # a feature of one number is no list to LeRobot
        return pa.array(array[:, 0])
    return pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), array.shape[1])


def _even(size: tuple[int, int]) -> tuple[int, int]:
    return size[0] + size[0] % 2, size[1] + size[1] % 2


def _write_tasks(path: Path, tasks: Mapping[str, int]) -> None:
    """Tasks and their numbers, so that pandas, which LeRobot reads it with, takes the tasks for the index."""
    table = pa.table({"task_index": pa.array(list(tasks.values())), "task": pa.array(list(tasks))})
    kinds = {"task_index": ("int64", "int64"), "task": ("unicode", "object")}
    about = {
        "index_columns": ["task"],
        "column_indexes": [],
        "columns": [
            {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": numpy, "metadata": None}
            for name, (kind, numpy) in kinds.items()
        ],
        "pandas_version": "2.0.0",
    }
    pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(about)}), path)
