"""Minari datasets with pictures among their observations, on this machine already.

The format is read as it is documented, not through Minari: for a dataset that does not tell its spaces, that would make
the environment it names, and so run whatever that is.
"""

import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xskill.data.lerobot import inside
from xskill.data.recording import Pixels, Recording, Source
from xskill.data.sources import Choice, resized
from xskill.data.sources.arrays import (
    Layout,
    check_lengths,
    frames,
    gathered,
    laid_out,
    numbers,
    readable,
    side_by_side,
)
from xskill.data.sources.hdf5 import array_at, label, opened
from xskill.errors import DataError

STATES = (("state",), ("agent_pos",), ("observation",))
"""What is taken for the state: the first that is there."""
USUAL_FPS = 10.0
"""Frames a second, which Minari does not tell."""
ROOT = Path("~/.minari/datasets")


@dataclass(frozen=True)
class _Seen:
    """A part of the observations."""

    place: tuple[str, ...]
    """Where it is in an episode."""
    space: Mapping[str, Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.space.get("shape", ()))

    @property
    def is_picture(self) -> bool:
        return self.space["type"] == "Box" and self.space["dtype"] == "uint8" and self.shape[2:] == (3,)

    @property
    def is_numbers(self) -> bool:
        return self.space["type"] != "Text" and len(self.shape) < 2


def read_minari(source: Path, choice: Choice) -> Source:
    """All episodes of a dataset: its folder, or its id where it has been downloaded. Raises `DataError`.

    Observations within others are called `a.b`. A rate that is asked for is taken for the one it was recorded at: no
    frame is left out.
    """
    actions = choice.actions or "actions"
    folder = minari_folder(source)
    about, seen = _metadata(inside(folder, "metadata.json"))
    pictures = {name: (part.shape[0], part.shape[1]) for name, part in seen.items() if part.is_picture}
    others = {name: part.is_numbers for name, part in seen.items() if name not in pictures}
    if not pictures:
        advice = f"if it is of the kitchen, 'xskill data make kitchen --demos minari:{source}' renders them"
        raise DataError(f"the Minari dataset {source} has no pictures, only {', '.join(others)}; {advice}")
    layout = laid_out(pictures, others, choice, STATES, folder)
    path = inside(folder, "main_data.hdf5")
    with opened(path, "minari") as file:
        names = episodes_of(file, source)
        recordings, problems = gathered(
            partial(_recording, path, file, name, actions, layout, seen, choice) for name in names
        )
    if (promised := about.get("total_episodes")) != len(names):
        problems = (f"{path} has {len(names)} episodes; its metadata say {promised}", *problems)
    fps = choice.fps or USUAL_FPS
    said = "as asked for" if choice.fps else "a guess; --fps says otherwise"
    notes = f"{len(names)} episodes", *layout.notes(actions), f"{fps:g} frames a second, {said}"
    told = {"kind": "minari", "dataset": str(about.get("dataset_id", source)), "states": layout.states}
    return Source(recordings, fps, layout.sizes, told, notes, problems)


def minari_folder(source: Path) -> Path:
    """The folder with the files of a dataset: the one named, or that of an id which has been downloaded."""
    root = Path(os.environ.get("MINARI_DATASETS_PATH", ROOT)).expanduser()
    for folder in (source, source / "data", root / source / "data"):
        if (folder / "metadata.json").is_file():
            return folder
    told = f"there is no Minari dataset {source}, neither as a folder nor under {root}"
    raise DataError(f"{told}; 'minari download {source}' fetches it")


def episodes_of(file: Any, source: object) -> list[str]:
    """The names of all episodes in a dataset's HDF5 file, in the order of their numbers. Raises `DataError`."""
    names = sorted((name for name in file if re.fullmatch(r"episode_\d+", name)), key=lambda name: int(name[8:]))
    if not names:
        raise DataError(f"the Minari dataset {source} has no episodes")
    return names


def _metadata(path: Path) -> tuple[dict[str, Any], dict[str, _Seen]]:
    """What a dataset says of itself, and the parts of its observations by name."""
    with readable(path):
        about = json.loads(path.read_bytes())
        if (kept := about["data_format"]) != "hdf5":
            raise DataError(f"{path}: the data are kept as {kept!r}; only hdf5 is read: write them anew as that")
        if "observation_space" not in about:
            raise DataError(f"{path} does not tell the observation_space; write the dataset anew with Minari 0.5")
        return about, _parts(json.loads(about["observation_space"]), ("observations",))


def _parts(space: Mapping[str, Any], place: tuple[str, ...]) -> dict[str, _Seen]:
    if space["type"] == "Dict":
        inner = dict(space["subspaces"])
    elif space["type"] == "Tuple":
        inner = {f"_index_{index}": part for index, part in enumerate(space["subspaces"])}
    else:
        return {".".join(place[1:] or place): _Seen(place, space)}
    return {name: seen for key, part in inner.items() for name, seen in _parts(part, (*place, key)).items()}


def _recording(
    path: Path, file: Any, episode: str, actions: str, layout: Layout, seen: Mapping[str, _Seen], choice: Choice
) -> Recording:
    """An episode without its last observation, which no action follows."""
    done = numbers(array_at(file, episode, actions), label(file, episode, actions))
    lengths = {name: array_at(file, episode, *seen[name].place).shape[0] - 1 for name in layout.cameras.values()}
    parts = {}
    for name in layout.states:
        array = array_at(file, episode, *seen[name].place)
        parts[name] = numbers(array, label(array))[:-1]
    check_lengths({actions: len(done), **lengths, **{n: len(part) for n, part in parts.items()}}, label(file, episode))
    shots = {
        camera: choice.shots(partial(_frames, path, episode, seen[name], len(done)))
        for camera, name in layout.cameras.items()
    }
    return Recording(episode, shots, side_by_side(parts.values()), done)


def _frames(path: Path, episode: str, seen: _Seen, length: int, size: tuple[int, int]) -> Iterator[Pixels]:
    with opened(path, "minari") as file:
        array = array_at(file, episode, *seen.place)
        if array.shape[1:] == seen.shape and array.dtype == np.uint8:
            whole: Iterator[Any] = frames(array, 0, length, label(array))
        else:
            whole = _jpegs(array, seen.shape, length)
        yield from resized(whole, size)


def _jpegs(array: Any, shape: tuple[int, ...], length: int) -> Iterator[Pixels]:
    """Pictures kept as JPEG, a row of bytes each, as Minari keeps all but the smallest."""
    from h5py import check_vlen_dtype
    from PIL import Image

    what = label(array)
    if not (array.dtype == np.uint8 and array.ndim == 2 and array.shape[1] <= np.prod(shape)) and (
        check_vlen_dtype(array.dtype) != np.uint8 or array.ndim != 1
    ):
        raise DataError(f"{what} is {array.shape} {array.dtype}; expected pictures {shape}, or JPEG files of them")
    for index in range(length):
        with readable(f"picture {index} of {what}"):
            image = Image.open(io.BytesIO(array[index].tobytes()), formats=["JPEG"])
            if (image.height, image.width) != shape[:2]:
                raise DataError(f"picture {index} of {what} is {image.width} x {image.height}; it says {shape}")
            picture = np.asarray(image.convert("RGB"))
        yield picture
