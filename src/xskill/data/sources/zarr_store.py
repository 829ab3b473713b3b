"""diffusion_policy's zarr stores, folder or zip: `data/<name>` over all episodes, and where each ends."""

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from xskill.data.episodes import Floats
from xskill.data.recording import Pixels, Recording, Source
from xskill.data.sources import Choice, resized
from xskill.data.sources.arrays import (
    MOST,
    are_numbers,
    check_chunks,
    frames,
    gathered,
    laid_out,
    missing_chunks,
    numbers,
    readable,
    side_by_side,
)
from xskill.errors import DataError

STATES = (
    ("agent_pos",),
    ("state",),
    ("robot_joint", "gripper_state"),
    ("robot_eef_pose",),
    ("robot0_eef_pos", "robot0_eef_rot_axis_angle", "robot0_gripper_width"),
)
"""What is taken for the state: the first that is there."""
USUAL_FPS = 10.0
"""Frames a second, which zarr stores do not tell; most of diffusion_policy's tasks have this many."""
CODECS = frozenset(["blosc", "zstd", "gzip", "zlib", "lz4", "bz2", "lzma", "delta", "shuffle", "fixedscaleoffset"])
"""Ways of packing that make bytes of bytes, and can do nothing else."""


def read_zarr(path: Path, choice: Choice) -> Source:
    """All episodes of a store. Raises `DataError`.

    A rate that is asked for is taken for the one it was recorded at: no frame is left out.
    """
    actions = choice.actions or "action"
    _check_links(path)
    with _opened(path) as root:
        found = _arrays(root, path, "data")
        ends = _ends(_arrays(root, path, "meta"), path)
        for name, array in found.items():
            if array.shape[:1] != (ends[-1],):
                raise DataError(f"{path}: data/{name} is {array.shape}; the last episode ends at {ends[-1]}")
        if actions not in found:
            raise DataError(f"{path} has no data/{actions}, only {', '.join(found) or 'nothing'}")
        pictures = {name: array.shape[1:3] for name, array in found.items() if _are_pictures(array)}
        others = {name: are_numbers(array) for name, array in found.items() if name not in {*pictures, actions}}
        if not pictures:
            told = ", ".join(f"{name} {array.shape}" for name, array in found.items())
            raise DataError(f"{path} has no pictures (frames x height x width x 3), only {told}")
        layout = laid_out(pictures, others, choice, STATES, path)
        rows = {name: numbers(found[name], f"{path}: data/{name}") for name in (actions, *layout.states)}
        cameras = {camera: _camera(found[name], path, name) for camera, name in layout.cameras.items()}
        torn = [name for name in rows if _lacks_chunks(found[name], path)]
    episodes = enumerate(pairwise([0, *ends]))
    reads = (partial(_recording, index, part, rows, cameras, actions, torn, choice) for index, part in episodes)
    recordings, problems = gathered(reads)
    fps = choice.fps or USUAL_FPS
    said = "as asked for" if choice.fps else "a guess; --fps says otherwise"
    notes = [f"{len(ends)} episodes", *layout.notes(actions), f"{fps:g} frames a second, {said}"]
    notes += [f"{c.name} is not bytes; its numbers are taken times {c.scale:g}" for c in cameras.values() if c.scale]
    about = {"kind": "zarr", "file": path.name, "states": layout.states, "actions": actions}
    return Source(recordings, fps, layout.sizes, about, tuple(notes), problems)


def _recording(
    index: int,
    part: tuple[int, int],
    rows: Mapping[str, Floats],
    cameras: Mapping[str, "_Camera"],
    actions: str,
    torn: Sequence[str],
    choice: Choice,
) -> Recording:
    own = {name: whole[slice(*part)] for name, whole in rows.items()}
    for name in torn:
        if not own[name].any(axis=1).all():
            raise DataError(f"episode {index} lacks a part of data/{name}: a chunk of it is lost")
    shots = {name: choice.shots(partial(camera.frames, part)) for name, camera in cameras.items()}
    done = own.pop(actions)
    return Recording(f"{index:06d}", shots, side_by_side(own.values()), done)


@dataclass(frozen=True)
class _Camera:
    """An array of pictures."""

    path: Path
    name: str
    scale: float | None
    """What makes its numbers go from 0 to 255; none for bytes, which do."""
    torn: bool
    """Whether chunks of it are missing. zarr leaves out those of zeros, and takes what is lost for zeros, too."""

    def frames(self, part: tuple[int, int], size: tuple[int, int]) -> Iterator[Pixels]:
        """The pictures from `part[0]` to `part[1]`."""
        with _opened(self.path) as root:
            whole = frames(root["data"][self.name], *part, f"{self.path}: data/{self.name}")
            yield from resized(map(self._checked, whole), size)

    def _checked(self, picture: np.ndarray) -> np.ndarray:
        if self.torn and not picture.any():
            raise DataError(f"a picture of data/{self.name} is missing, or all black: its chunk is not there")
        if self.scale is None:
            return picture
        picture = picture * self.scale
        low, high = float(picture.min()), float(picture.max())
        if not (low >= 0 and high <= 255):
            raise DataError(f"data/{self.name} has pictures from {low:g} to {high:g}; expected 0 to 255, or 0 to 1")
        return np.rint(picture).astype(np.uint8)


def _camera(array: Any, path: Path, name: str) -> _Camera:
    scale = None
    if array.dtype != np.uint8:
        with readable(f"{path}: data/{name}"):
            largest = max(float(np.max(array[index])) for index in {0, array.shape[0] // 2, array.shape[0] - 1})
        scale = 255.0 if largest <= 1 else 1.0
    return _Camera(path, name, scale, _lacks_chunks(array, path))


def _lacks_chunks(array: Any, path: Path) -> bool:
    with readable(path):
        return missing_chunks(array, array.nchunks_initialized) > 0


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The root of a store. Raises `DataError`, also for the body."""
    if importlib.util.find_spec("zarr") is None:
        raise DataError(f"reading {path} needs zarr: pip install -e '.[zarr]'")
    import zarr

    if not path.exists():
        raise DataError(f"there is no zarr store {path}")
    if importlib.util.find_spec("imagecodecs") is not None:
        from imagecodecs.numcodecs import register_codecs

        register_codecs(verbose=False)
    with readable(path):
        store: Any = zarr.storage.ZipStore(str(path), mode="r") if path.is_file() else str(path)
        root = zarr.open_group(store, mode="r")
        try:
            yield root
        finally:
            if path.is_file():
                store.close()


def _arrays(root: Any, path: Path, group: str) -> dict[str, Any]:
    """The arrays of a group, once it is clear that reading them does no harm."""
    if group not in root:
        advice = "; if this is a zip of a .zarr folder, unpack it" if path.is_file() else ""
        raise DataError(f"{path} is not as diffusion_policy writes it: it has no '{group}'{advice}")
    with readable(f"{path}: {group}"):
        try:
            found = dict(root[group].arrays())
        except ValueError as error:
            if "codec not available" not in str(error):
                raise
            raise DataError(
                f"{path}: {group} is packed in a way that needs another library ({error}): pip install imagecodecs"
            ) from None
    for name, array in found.items():
        what = f"{path}: {group}/{name}"
        check_chunks(array, what)
        packing = array.compressors if hasattr(array, "compressors") else (array.compressor,)
        for codec in (*packing, *(array.filters or ())):
            way = getattr(codec, "codec_id", "zstd")  # those of zarr 3 have none, and all of them are safe
            if way not in CODECS and not way.startswith("imagecodecs_"):
                raise DataError(f"{what} is packed as '{way}', which is not read; write it anew with blosc or zstd")
    return found


def _ends(meta: dict[str, Any], path: Path) -> list[int]:
    """Where each episode ends."""
    what = f"{path}: meta/episode_ends"
    if "episode_ends" not in meta:
        raise DataError(f"{what} is missing, so that nothing tells where an episode ends")
    array = meta["episode_ends"]
    if array.dtype.kind not in "iu" or len(array.shape) != 1 or not 0 < array.shape[0] <= MOST:
        raise DataError(f"{what} is {array.shape} {array.dtype}; expected a whole number for each episode")
    with readable(what):
        ends: list[int] = np.asarray(array[:]).tolist()
    if any(end <= begin for begin, end in pairwise([0, *ends])):
        raise DataError(f"{what} does not rise from episode to episode")
    return ends


def _are_pictures(array: Any) -> bool:
    """Some stores keep pictures as floats, PushT's among them."""
    return len(array.shape) == 4 and array.shape[3] == 3 and (array.dtype == np.uint8 or array.dtype.kind == "f")


def _check_links(path: Path) -> None:
    for item in path.rglob("*"):
        if item.is_symlink() and not item.resolve().is_relative_to(path.resolve()):
            raise DataError(f"{item} leads out of the store; copy the files themselves into it (cp -rL)")
