"""Recorded demonstrations of the kitchen: states and controls at 12.5 Hz, from whatever form they come in.

A source is a folder of `.mjl` files, one such file, the zip of them that the relay-policy-learning release ships, a
packed `.npz`, or a Minari dataset (`minari:D4RL/kitchen/complete-v2`, or the folder of one). What is damaged is named,
passed over and counted; nothing is dropped in silence.
"""

import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from xskill.data.lerobot import inside
from xskill.data.sources.arrays import numbers
from xskill.data.sources.hdf5 import array_at, opened
from xskill.data.sources.minari_store import episodes_of, minari_folder
from xskill.errors import DataError
from xskill.kitchen.tasks import STEP, completions

Floats = npt.NDArray[np.float64]

STRIDE = 40  # records of a .mjl file, 0.002 s apart, to one step of 0.08 s
SIZES = {"qpos": 30, "qvel": 29, "ctrl": 9}
HEADER = struct.Struct("<7i")
PEER_SPEED = 2.0  # the Minari datasets' actions are joint velocities in this unit (rad/s), held for one step


@dataclass(frozen=True, eq=False)
class Demonstration:
    """One demonstration: states `qpos` (T, 30), `qvel` (T, 29) where recorded, and `ctrl` (T, 9), the actions."""

    name: str
    folder: str
    """The folder it was kept in: its sub-tasks, not always in the order performed."""
    qpos: Floats
    ctrl: Floats
    qvel: Floats | None = None
    prelude: int = 0
    """States at the beginning that only show how it came to this."""

    def __len__(self) -> int:
        return len(self.qpos)

    @property
    def title(self) -> str:
        """Folder and name: what it is called among others."""
        return f"{self.folder}/{self.name}"

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Its sub-tasks in the order in which the states complete them."""
        return tuple(completion.task for completion in completions(self.qpos))


@dataclass(frozen=True)
class Demonstrations:
    """What could be read, and a sentence for everything that could not."""

    good: tuple[Demonstration, ...]
    problems: tuple[str, ...] = ()
    shown: tuple[Demonstration, ...] = ()
    """What the demonstrators do, where that is something else than what the robot does."""


def read_demonstrations(source: Path | str) -> Demonstrations:
    """Read every demonstration in `source`. Raises `DataError` when there is not a single good one."""
    good, problems = [], []
    for read in _found(source):
        try:
            good.append(read())
        except DataError as error:
            problems.append(str(error))
    if not good:
        several = f"none of the {len(problems)} demonstrations in {source} can be read; the first: {problems[0]}"
        raise DataError(problems[0] if len(problems) == 1 else several)
    return Demonstrations(tuple(good), tuple(problems))


def _found(source: Path | str) -> Iterator[Callable[[], Demonstration]]:
    """One reader for each demonstration in `source`."""
    if isinstance(source, str) and source.startswith("puppets:"):
        yield from _puppets(source.removeprefix("puppets:"))
        return
    if isinstance(source, str) and source.startswith("minari:"):
        yield from _minari(Path(source.removeprefix("minari:")))
        return
    path = Path(source)
    if not path.exists():
        raise DataError(f"there are no demonstrations at {path}: no such file or folder")
    if path.is_dir() and (path / "data" / "main_data.hdf5").exists():
        yield from _minari(path)
    elif path.is_dir():
        files = sorted(path.rglob("*.mjl"))
        if not files:
            raise DataError(f"there is no .mjl file in the folder {path}")
        yield from (partial(_mjl, str(file), file.parent.name, file.read_bytes) for file in files)
    elif path.suffix == ".mjl":
        yield partial(_mjl, str(path), path.parent.name, path.read_bytes)
    elif path.suffix == ".zip":
        yield from _zip(path)
    elif path.suffix == ".npz":
        yield from _npz(path)
    else:
        raise DataError(f"{path} is neither a folder nor a .mjl, .zip or .npz file")


def _puppets(count: str) -> Iterator[Callable[[], Demonstration]]:
    from xskill.kitchen.puppet import puppets

    if not count.isdecimal() or int(count) < 1:
        raise DataError(f"puppets:{count} names no number of demonstrations; it should read puppets:40")
    for demo in puppets(int(count)):
        yield partial(_itself, demo)


def _itself(demo: Demonstration) -> Demonstration:
    return demo


def _zip(path: Path) -> Iterator[Callable[[], Demonstration]]:
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(f"{path} is not a readable zip file: {error}") from None
    names = sorted(name for name in archive.namelist() if name.endswith(".mjl"))
    if not names:
        raise DataError(f"there is no .mjl file in {path}")
    for name in names:
        yield partial(_mjl, f"{path}/{name}", Path(name).parent.name, partial(archive.read, name))


def _mjl(name: str, folder: str, read: Callable[[], bytes]) -> Demonstration:
    """A MuJoCo log: seven sizes, the model's name, then records of (time, qpos, qvel, ctrl, mocap, sensors, user)."""
    try:
        data = read()
    except (
        OSError,
        EOFError,
        RuntimeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:  # also encrypted, odd compression
        raise DataError(f"{name} cannot be read: {error}") from None
    if len(data) < HEADER.size:
        raise DataError(f"{name} has {len(data)} bytes; a .mjl file begins with {HEADER.size} bytes of sizes")
    nq, nv, nu, mocap, sensors, user, letters = HEADER.unpack_from(data)
    if (nq, nv, nu) != tuple(SIZES.values()) or min(mocap, sensors, user, letters) < 0:
        raise DataError(f"{name} is not of the kitchen: its sizes are nq {nq}, nv {nv}, nu {nu}; expected 30, 29, 9")
    width = 1 + nq + nv + nu + 7 * mocap + sensors + user
    begin = HEADER.size + letters
    records, rest = divmod(len(data) - begin, 4 * width)
    if rest or records < 0:
        raise DataError(f"{name} is truncated: it ends within record {records} ({rest} of {4 * width} bytes)")
    values = np.frombuffer(data, "<f4", records * width, begin).reshape(records, width)[::STRIDE]
    qpos, qvel, ctrl = np.split(values[:, 1 : 1 + nq + nv + nu], [nq, nq + nv], axis=1)
    return _checked(name, folder, qpos, ctrl, qvel)


def _npz(path: Path) -> Iterator[Callable[[], Demonstration]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, TypeError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is not a readable .npz file: {error}") from None
    missing = [name for name in ("qpos", "ctrl", "episode_ends", "names", "folders") if name not in arrays]
    if missing:
        raise DataError(f"{path} lacks {', '.join(missing)}; it has {', '.join(arrays) or 'nothing'}")
    ends = arrays["episode_ends"]
    lengths = np.diff(ends, prepend=0)
    if not len(ends) or lengths.min() <= 0 or {ends[-1]} != {len(arrays["qpos"]), len(arrays["ctrl"])}:
        raise DataError(f"{path}: episode_ends must rise to the number of states, {len(arrays['qpos'])}")
    if not len(arrays["names"]) == len(arrays["folders"]) == len(ends):
        raise DataError(f"{path}: names and folders must be as many as episodes, {len(ends)}")
    preludes = arrays.get("preludes", np.zeros(len(ends), np.int64))
    if preludes.shape != ends.shape or not ((preludes >= 0) & (preludes < lengths)).all():
        raise DataError(f"{path}: preludes must be as many as episodes, and shorter")
    for index, (end, length) in enumerate(zip(ends, lengths, strict=True)):
        part = slice(end - length, end)
        qvel = arrays["qvel"][part] if "qvel" in arrays else None
        name, folder = str(arrays["names"][index]), str(arrays["folders"][index])
        states, ctrl = arrays["qpos"][part], arrays["ctrl"][part]
        yield partial(_checked, f"{path}/{folder}/{name}", folder, states, ctrl, qvel, int(preludes[index]))


def _minari(source: Path) -> Iterator[Callable[[], Demonstration]]:
    """A Minari dataset of FrankaKitchen; its actions are velocities, which its environment turns into targets."""
    path = inside(minari_folder(source), "main_data.hdf5")
    with opened(path, "minari") as file:
        names = episodes_of(file, source)
    for name in names:
        yield partial(_minari_episode, f"{source}/{name.removeprefix('episode_')}", path, name)


def _minari_episode(name: str, path: Path, episode: str) -> Demonstration:
    with opened(path, "minari") as file:
        seen, actions = (
            numbers(array_at(file, episode, *place), f"{name}: {place[-1]}")
            for place in (("observations", "observation"), ("actions",))
        )
    if seen.shape[1] != sum((9, 9, 21, 20)) or actions.shape != (len(seen) - 1, 9):
        sizes = f"these are {seen.shape} and {actions.shape}"
        raise DataError(f"{name}: FrankaKitchen has observations (T + 1, 59) and actions (T, 9); {sizes}")
    joints, speeds, objects, object_speeds = np.split(seen[:-1], [9, 18, 39], axis=1)
    targets = joints + PEER_SPEED * STEP * np.clip(actions, -1, 1)
    return _checked(name, "", np.hstack([joints, objects]), targets, np.hstack([speeds, object_speeds]))


def _checked(
    name: str,
    folder: str,
    qpos: npt.NDArray[np.floating],
    ctrl: npt.NDArray[np.floating],
    qvel: npt.NDArray[np.floating] | None,
    prelude: int = 0,
) -> Demonstration:
    arrays = {"qpos": qpos, "ctrl": ctrl} | ({"qvel": qvel} if qvel is not None else {})
    if len(qpos) < 2:
        raise DataError(f"{name} is empty: {len(qpos)} states")
    for key, array in arrays.items():
        if array.ndim != 2 or array.shape != (len(qpos), SIZES[key]):
            raise DataError(f"{name}: {key} is {array.shape}; expected ({len(qpos)}, {SIZES[key]})")
        if not np.isfinite(array).all():
            step = int(np.argwhere(~np.isfinite(array))[0, 0])
            raise DataError(f"{name}: {key} is not a number at step {step}")
    doubles = {key: array.astype(np.float64) for key, array in arrays.items()}
    return Demonstration(Path(name).name, folder, doubles["qpos"], doubles["ctrl"], doubles.get("qvel"), prelude)
