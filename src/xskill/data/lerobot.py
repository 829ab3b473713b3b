"""Datasets as LeRobot keeps them: tables in parquet, videos in mp4, the rest in JSON. Version 3.0, and 2.1 to read.

Reading one is checking it: what the tables say of each other is compared before a number of it is used. That the videos
hold the frames they should is seen when those are decoded (`xskill.data.decode`).
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
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
COUNTED = ("episode_index", "frame_index", "timestamp")

T = TypeVar("T")


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
    rows = _rows(folder, info, where, packed)
    states, actions = rows.get(STATE), rows.get(ACTION)
    names = [f"{one['episode_index']:06d}" for one in where]
    extra = _json(folder / EXTRA) if (folder / EXTRA).is_file() else {}
    given = extra.get("names")
    if isinstance(given, list) and len(set(map(str, given))) == len(where) == len(given):
        names = list(map(str, given))
    clips = {_short(name): tuple(_clip(folder, info, name, one, packed) for one in where) for name in cameras}
    sizes = {_short(name): _size(info["features"][name], folder) for name in cameras}
    tasks = tuple(_task(one) for one in where)
    parts = tuple(names), lengths, tasks, states, actions, clips, sizes
    return Dataset(folder, info["codebase_version"], float(info["fps"]), *parts)


def inside(folder: Path, name: str) -> Path:
    """A file of the dataset. Raises `DataError` when it is missing, or its path or a link leads elsewhere."""
    path = folder / name
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise DataError(f"{path} leads out of the dataset; copy the files themselves into it (cp -rL)")
        if not path.is_file():
            raise DataError(f"{path} is missing")
    except (OSError, ValueError, RuntimeError) as error:  # too long a name, a zero in it, links in a circle
        raise DataError(f"{str(path)[:200]!r} is no file of the dataset: {error}"[:400]) from None
    return path


def _info(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise DataError(f"there is no dataset {folder}: it is not a folder")
    if not (folder / INFO).is_file():
        raise DataError(f"{folder} is no LeRobot dataset: it has no {INFO}; make one of videos with xskill data import")
    path = inside(folder, INFO)
    info = _json(path)
    version, fps, features = (info.get(name) for name in ("codebase_version", "fps", "features"))
    if not (isinstance(version, str) and version.startswith(("v3.", "v2."))):
        raise DataError(f"{path}: codebase_version is {version!r}; v3.0 and v2.1 are read")
    if isinstance(fps, bool) or not isinstance(fps, int | float) or not 0 < fps <= 1000:
        raise DataError(f"{path}: fps is {fps!r}; it must be a number above 0 and at most 1000")
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
        path = inside(folder, str(file.relative_to(folder)))
        where += _told(path, lambda table: _without_stats(table).to_pylist())
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


def _rows(
    folder: Path, info: Mapping[str, Any], where: Sequence[Mapping[str, Any]], packed: bool
) -> dict[str, npt.NDArray[Any]]:
    """Columns of all episodes, end to end, after a look at whether their rows are those the index speaks of."""
    pattern = info.get("data_path", DATA)
    named = [_filled(pattern, _place(folder, one, "data", info, packed), folder) for one in where]
    # As LeRobot does, whose converter does not always name the file it has put an episode into.
    there = sorted((folder / "data").glob("*/*.parquet")) if packed else []
    files = [str(file.relative_to(folder)) for file in there] if packed else named
    kept = [name for name in (STATE, ACTION) if name in info["features"]]
    parts = {file: _told(inside(folder, file), lambda table: _columns(table, kept)) for file in files}
    parts = {file: part for file, part in parts.items() if len(part["frame_index"])}
    if not parts:
        raise DataError(f"{inside(folder, named[0])} has no rows")
    rows, origin = _joined(folder, parts)

    numbers, lengths = ([one[name] for one in where] for name in ("episode_index", "length"))
    found, counts = (part.tolist() for part in np.unique(rows["episode_index"], return_counts=True))
    counted = dict(zip(found, counts, strict=True))
    for number, length, file in zip(numbers, lengths, named, strict=True):
        if (count := counted.pop(number, 0)) != length:
            raise DataError(f"{inside(folder, file)}: episode {number} has {count} rows; the index says {length}")
    for number, count in counted.items():
        path = folder / origin[int((rows["episode_index"] == number).argmax())]
        raise DataError(f"{path}: {count} rows are of episode {number}, which the index does not have")
    order = np.lexsort((rows["frame_index"], rows["episode_index"]))
    rows = {name: column[order] for name, column in rows.items()}
    expected = np.concatenate([np.arange(length) for length in lengths])

    def refuse(wrong: npt.NDArray[np.bool_], what: str) -> None:
        if wrong.any():
            at = int(wrong.argmax())
            path, episode = folder / origin[order[at]], rows["episode_index"][at]
            raise DataError(f"{path}: {what} (frame {expected[at]} of episode {episode})")

    refuse(rows["frame_index"] != expected, "a frame is missing, or is there twice")
    apart = np.abs(rows["timestamp"] - expected / info["fps"])
    refuse(~(apart < 0.5 / info["fps"]), f"a timestamp is not where {info['fps']} frames a second put it")
    for name in kept:
        refuse(~np.isfinite(rows[name]).all(1), f"'{name}' is not finite")
    return rows


def _joined(
    folder: Path, parts: Mapping[str, Mapping[str, npt.NDArray[Any]]]
) -> tuple[dict[str, npt.NDArray[Any]], list[str]]:
    """The columns of several tables, and of which table each row is."""
    first, *others = parts
    for name, column in parts[first].items():
        for other in others:
            if (shape := parts[other][name].shape[1:]) != column.shape[1:]:
                raise DataError(f"{folder / other}: '{name}' is {shape} a frame, {column.shape[1:]} in {first}")
    rows = {name: np.concatenate([part[name] for part in parts.values()]) for name in parts[first]}
    return rows, [file for file, part in parts.items() for _ in range(len(part["frame_index"]))]


def _columns(table: pa.Table, kept: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Columns of a table: those that count as (N,), numbers as (N, D)."""
    found: dict[str, npt.NDArray[Any]] = {}
    for name in (*COUNTED, *kept):
        if name not in table.column_names:
            raise DataError(f"has no column '{name}'")
        column, kind = table[name].combine_chunks(), table[name].type
        lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
        values = column.flatten() if lists and name in kept else column
        whole = pa.types.is_integer(values.type)
        if not (whole or (pa.types.is_floating(values.type) and not name.endswith("_index"))):
            raise DataError(f"has a column '{name}' of {kind}; it must be numbers{' in lists' if name in kept else ''}")
        if column.null_count or values.null_count:
            raise DataError(f"has gaps in its column '{name}'")
        widths = pc.unique(pc.list_value_length(column)).to_pylist() if lists else [1]
        if len(column) and (len(widths) != 1 or not widths[0]):
            raise DataError(f"has rows of '{name}' that are empty, or not of one length")
        found[name] = values.to_numpy(zero_copy_only=False)
        if name in kept:
            with np.errstate(over="ignore"):  # what is too large becomes infinite, and that is refused
                found[name] = found[name].astype(np.float32).reshape(len(column), *widths[:1])
    return found


def _place(folder: Path, one: Mapping[str, Any], kind: str, info: Mapping[str, Any], packed: bool) -> dict[str, int]:
    """The numbers that name a file of an episode."""
    if not packed:
        number = one["episode_index"]
        size = info.get("chunks_size", 1000)
        if not isinstance(size, int) or size < 1:
            raise DataError(f"{folder / INFO}: chunks_size is {size!r}; it must be at least 1")
        return {"episode_index": number, "episode_chunk": number // size}
    place = {name: one.get(f"{kind}/{name}") for name in ("chunk_index", "file_index")}
    if not all(isinstance(number, int) for number in place.values()):
        raise DataError(f"{folder / EPISODES} does not say in which file of '{kind}' episode {one['episode_index']} is")
    return {name: number for name, number in place.items() if number is not None}


def _clip(folder: Path, info: Mapping[str, Any], name: str, one: Mapping[str, Any], packed: bool) -> Clip:
    pattern = info.get("video_path") or VIDEO
    file = _filled(pattern, {"video_key": name, **_place(folder, one, f"videos/{name}", info, packed)}, folder)
    start = one.get(f"videos/{name}/from_timestamp", 0.0) if packed else 0.0
    if not isinstance(start, int | float) or not (math.isfinite(start) and start >= 0):
        raise DataError(f"{folder / file}: episode {one['episode_index']} begins at {start!r} s of it, says the index")
    return Clip(inside(folder, file), float(start))


def _filled(pattern: object, values: Mapping[str, int | str], folder: Path) -> str:
    try:
        return str(pattern).format(**values)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, MemoryError) as error:
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


def _task(one: Mapping[str, Any]) -> str:
    told = one.get("tasks")
    return "; ".join(map(str, told)) if isinstance(told, list) else str(told or "")


def _without_stats(table: pa.Table) -> pa.Table:
    return table.select([name for name in table.column_names if not name.startswith("stats/")])


def _told(path: Path, what: Callable[[pa.Table], T]) -> T:
    """What is asked of a table. Raises `DataError` that names its file."""
    try:
        return what(pq.read_table(path, partitioning=None, page_checksum_verification=True))
    except DataError as error:
        raise DataError(f"{path} {error}") from None
    except (pa.ArrowException, OSError, ValueError, LookupError, MemoryError) as error:
        raise DataError(f"{path} is no table that can be read: {str(error).splitlines()[0]}") from None
