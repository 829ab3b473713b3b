"""Datasets as LeRobot keeps them: tables in parquet, videos in mp4, the rest in JSON. Version 3.0, and 2.1 to read.

Reading one is checking it: what the tables say of each other is compared before a number of it is used. That the videos
hold the frames they should is seen when those are decoded (`xskill.data.decode`).
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from xskill.data.episodes import Episodes, Floats, Ints
from xskill.data.video import LARGEST
from xskill.engine.config import did_you_mean
from xskill.engine.folder import json_lines
from xskill.errors import DataError

INFO, STATS, TASKS, EPISODES = "meta/info.json", "meta/stats.json", "meta/tasks.parquet", "meta/episodes"
EXTRA = "meta/xskill.json"
"""What this project adds: names of episodes, and where they come from."""
STATE, ACTION, IMAGES = "observation.state", "action", "observation.images."
VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"


@dataclass(frozen=True)
class Clip:
    """Where an episode is in a video."""

    path: Path
    start: float
    """Seconds."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset of one embodiment, all but its frames."""

    folder: Path
    version: str
    fps: float
    names: tuple[str, ...]
    lengths: Ints
    tasks: tuple[str, ...]
    """What each episode shows, in words."""
    states: Floats | None
    actions: Floats | None
    clips: Mapping[str, tuple[Clip, ...]]
    """Camera, by its short name -> where each episode is."""
    sizes: Mapping[str, tuple[int, int]]
    """Camera -> height and width of its frames."""

    def episodes(self, embodiment: str) -> Episodes:
        """The episodes as training knows them, under names that no other embodiment has."""
        names = tuple(f"{embodiment}/{name}" for name in self.names)
        return Episodes(embodiment, self.fps, names, self.lengths, self.states, self.actions)

    def camera(self, wanted: str) -> str:
        """The camera of that name; where there is only one, that one. Raises `DataError`."""
        if wanted in self.clips:
            return wanted
        if len(self.clips) == 1:
            return next(iter(self.clips))
        raise DataError(f"{self.folder} has no camera '{wanted}'{did_you_mean(wanted, self.clips)}")


def is_dataset(folder: Path) -> bool:
    """Whether a folder looks like one."""
    return (folder / INFO).is_file()


def open_dataset(folder: Path) -> Dataset:
    """Read all tables of a dataset. Raises `DataError` at the first thing that is not as it should be."""
    info = _info(folder)
    packed = info["codebase_version"].startswith("v3")
    where = _packed_index(folder) if packed else _loose_index(folder)
    lengths = np.array([one["length"] for one in where], np.int64)
    cameras = [name for name, feature in info["features"].items() if feature["dtype"] == "video"]
    if not cameras:
        kept = [name for name, feature in info["features"].items() if feature["dtype"] == "image"]
        advice = f"; '{kept[0]}' is kept as single pictures, which are not read" if kept else ""
        raise DataError(f"{folder / INFO}: there is no video among the features{advice}")
    table = _rows(folder, info, where, packed)
    states, actions = (_numbers(table, info, name, folder) for name in (STATE, ACTION))
    names = [f"{one['episode_index']:06d}" for one in where]
    extra = _json(folder / EXTRA) if (folder / EXTRA).is_file() else {}
    given = extra.get("names")
    if isinstance(given, list) and len(set(map(str, given))) == len(where) == len(given):
        names = list(map(str, given))
    clips = {_short(name): tuple(_clip(folder, info, name, one, packed) for one in where) for name in cameras}
    sizes = {_short(name): _size(info["features"][name], folder) for name in cameras}
    tasks = tuple("; ".join(map(str, one.get("tasks") or ())) for one in where)
    parts = tuple(names), lengths, tasks, states, actions, clips, sizes
    return Dataset(folder, info["codebase_version"], float(info["fps"]), *parts)


def inside(folder: Path, name: str) -> Path:
    """A file of the dataset. Raises `DataError` when it is missing, or its path or a link leads elsewhere."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"{path} leads out of the dataset; copy the files themselves into it (cp -rL)")
    if not path.is_file():
        raise DataError(f"{path} is missing")
    return path


def _info(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise DataError(f"there is no dataset {folder}: it is not a folder")
    if not is_dataset(folder):
        raise DataError(f"{folder} is no LeRobot dataset: it has no {INFO}; make one of videos with xskill data import")
    path = inside(folder, INFO)
    info = _json(path)
    version, fps, features = (info.get(name) for name in ("codebase_version", "fps", "features"))
    if not (isinstance(version, str) and version.startswith(("v3.", "v2."))):
        raise DataError(f"{path}: codebase_version is {version!r}; v3.0 and v2.1 are read")
    if isinstance(fps, bool) or not isinstance(fps, int | float) or not (math.isfinite(fps) and 0 < fps <= 1000):
        raise DataError(f"{path}: fps is {fps!r}; it must be a number above 0")
    if not isinstance(features, dict) or not all(isinstance(f, dict) and "dtype" in f for f in features.values()):
        raise DataError(f"{path}: features must be a table of names, each with a dtype and a shape")
    return info


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is not readable: {error}") from None
    if not isinstance(found, dict):
        raise DataError(f"{path} is no table of names and values")
    return found


def _packed_index(folder: Path) -> list[dict[str, Any]]:
    files = sorted((folder / EPISODES).glob("chunk-*/file-*.parquet"))
    if not files:
        raise DataError(f"{folder / EPISODES} has no tables of episodes")
    where: list[dict[str, Any]] = []
    for file in files:
        table = _table(inside(folder, str(file.relative_to(folder))))
        where += table.select([name for name in table.column_names if not name.startswith("stats/")]).to_pylist()
    return _checked_index(where, files[0])


def _loose_index(folder: Path) -> list[dict[str, Any]]:
    path = inside(folder, "meta/episodes.jsonl")
    lines = sum(bool(line.strip()) for line in path.read_bytes().splitlines())
    where = list(json_lines(path))
    if len(where) != lines:
        raise DataError(f"{path}: {lines - len(where)} of its {lines} lines are damaged")
    return _checked_index(where, path)


def _checked_index(where: list[dict[str, Any]], path: Path) -> list[dict[str, Any]]:
    if not where:
        raise DataError(f"{path} tells of no episode")
    for one in where:
        for name, least in (("episode_index", 0), ("length", 1)):
            if not isinstance(one.get(name), int) or not least <= one[name] < 2**40:
                raise DataError(f"{path}: {name} of an episode is {one.get(name)!r}; it must be at least {least}")
    where.sort(key=lambda one: one["episode_index"])
    numbers = [one["episode_index"] for one in where]
    for earlier, later in pairwise(numbers):
        if earlier == later:
            raise DataError(f"{path}: there are two episodes {later}")
    return where


def _rows(folder: Path, info: Mapping[str, Any], where: Sequence[Mapping[str, Any]], packed: bool) -> pa.Table:
    """The rows of all episodes, end to end, after a look at whether they are those the index speaks of."""
    pattern = info.get("data_path", DATA)
    files = list(dict.fromkeys(_filled(pattern, _place(one, "data", info, packed), folder) for one in where))
    columns = ["episode_index", "frame_index", "timestamp", *(c for c in (STATE, ACTION) if c in info["features"])]
    tables = []
    for file in files:
        table = _table(inside(folder, file))
        if missing := [column for column in columns if column not in table.column_names]:
            raise DataError(f"{folder / file} has no column '{missing[0]}'")
        tables.append(table.select(columns))
    try:
        rows = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(f"{folder}: the tables of its episodes differ in kind: {error}") from None
    for name in ("episode_index", "frame_index", "timestamp"):
        kind = rows[name].type
        if rows[name].null_count or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise DataError(f"{folder}: column '{name}' is {kind} with {rows[name].null_count} gaps, not numbers")
    numbers, lengths = ([one[name] for one in where] for name in ("episode_index", "length"))
    episode, frame = (rows[name].to_numpy() for name in ("episode_index", "frame_index"))
    counted = dict(zip(*(part.tolist() for part in np.unique(episode, return_counts=True)), strict=True))
    for number, length in zip(numbers, lengths, strict=True):
        if (count := counted.get(number, 0)) != length:
            raise DataError(f"{folder}: episode {number} has {count} rows; the index says {length}")
    if len(rows) != sum(lengths):
        raise DataError(f"{folder}: {len(rows) - sum(lengths)} rows belong to no episode of the index")
    order = np.lexsort((frame, episode))
    rows = rows.take(order)
    expected = np.concatenate([np.arange(length) for length in lengths])
    if not np.array_equal(frame[order], expected):
        at = int(np.flatnonzero(frame[order] != expected)[0])
        raise DataError(f"{folder}: episode {episode[order][at]} has no frame {expected[at]}, or has it twice")
    apart = np.abs(rows["timestamp"].to_numpy() - expected / info["fps"])
    if not (apart < 0.5 / info["fps"]).all():
        at = int(np.flatnonzero(~(apart < 0.5 / info["fps"]))[0])
        raise DataError(
            f"{folder}: frame {expected[at]} of episode {episode[order][at]} is {apart[at]:.3f} s from where "
            f"{info['fps']} frames a second put it"
        )
    return rows


def _numbers(table: pa.Table, info: Mapping[str, Any], name: str, folder: Path) -> Floats | None:
    """A column as rows of finite numbers, or none where the dataset has no such feature."""
    if name not in info["features"]:
        return None
    column = table[name].combine_chunks()
    kind = column.type
    values = column.flatten() if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) else column
    if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
        raise DataError(f"{folder}: '{name}' is {kind}; it must be lists of numbers")
    width, ragged = divmod(len(values), len(table))
    if column.null_count or values.null_count or ragged or not width:
        raise DataError(f"{folder}: rows of '{name}' are empty, or not of one length")
    if pa.types.is_list(kind) and len(set(np.diff(column.offsets.to_numpy()).tolist())) != 1:
        raise DataError(f"{folder}: rows of '{name}' are not of one length")
    found: npt.NDArray[np.float32] = values.to_numpy(zero_copy_only=False).astype(np.float32).reshape(-1, width)
    bad = np.flatnonzero(~np.isfinite(found).all(1))
    if len(bad):
        episode, frame = (table[column][int(bad[0])].as_py() for column in ("episode_index", "frame_index"))
        raise DataError(f"{folder}: '{name}' of frame {frame} of episode {episode} is not finite ({len(bad)} rows)")
    return found


def _place(one: Mapping[str, Any], kind: str, info: Mapping[str, Any], packed: bool) -> dict[str, int]:
    """The numbers that name a file of an episode."""
    if not packed:
        number = one["episode_index"]
        return {"episode_index": number, "episode_chunk": number // (info.get("chunks_size") or 1000)}
    place = {name: one.get(f"{kind}/{name}") for name in ("chunk_index", "file_index")}
    if not all(isinstance(number, int) for number in place.values()):
        raise DataError(f"the index does not say in which file of '{kind}' episode {one['episode_index']} is")
    return {name: number for name, number in place.items() if number is not None}


def _clip(folder: Path, info: Mapping[str, Any], name: str, one: Mapping[str, Any], packed: bool) -> Clip:
    pattern = info.get("video_path") or VIDEO
    file = _filled(pattern, {"video_key": name, **_place(one, f"videos/{name}", info, packed)}, folder)
    start = one.get(f"videos/{name}/from_timestamp", 0.0) if packed else 0.0
    if not isinstance(start, int | float) or not (math.isfinite(start) and start >= 0):
        raise DataError(f"{folder}: episode {one['episode_index']} begins at {start!r} s of '{file}'")
    return Clip(inside(folder, file), float(start))


def _filled(pattern: object, values: Mapping[str, int | str], folder: Path) -> str:
    try:
        return str(pattern).format(**values)
    except (ValueError, KeyError, IndexError, AttributeError, MemoryError) as error:
        raise DataError(f"{folder / INFO}: the path {pattern!r} cannot be filled in: {error!r}") from None


def _size(feature: Mapping[str, Any], folder: Path) -> tuple[int, int]:
    shape, names = feature.get("shape"), feature.get("names")
    if not (isinstance(shape, list) and len(shape) == 3 and all(isinstance(n, int) and n > 0 for n in shape)):
        raise DataError(f"{folder / INFO}: the shape of a video is {shape!r}; it must be height, width and channels")
    last = not (isinstance(names, list) and names[:1] in (["channel"], ["channels"]))
    height, width = shape[:2] if last else shape[1:]
    if max(height, width) > LARGEST:
        raise DataError(f"{folder / INFO}: a video of {width} x {height}; at most {LARGEST} a side are read")
    return height, width


def _short(name: str) -> str:
    return name.removeprefix(IMAGES)


def _table(path: Path) -> pa.Table:
    try:
        return pq.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise DataError(f"{path} is no table that can be read: {str(error).splitlines()[0]}") from None
