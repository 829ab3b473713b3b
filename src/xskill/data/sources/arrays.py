"""Arrays in files, whichever library opens them: looked at before they are read, and read in pieces."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from xskill.data.episodes import Floats
from xskill.data.sources import Choice
from xskill.data.video import LARGEST
from xskill.engine.config import did_you_mean
from xskill.errors import DataError

T = TypeVar("T")

PIECE = 2**26
"""Bytes of frames that are read at once."""
LARGEST_CHUNK = 2**30
"""Bytes of the largest part of a file that is unpacked at once."""
MOST = 2**26
"""Numbers that the states or actions of a file may have."""


@contextmanager
def readable(what: object) -> Iterator[None]:
    """Turn whatever goes wrong while a file is read into a `DataError` that names it."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # at damaged bytes, libraries and their codecs raise what they like
        told = str(error).strip().splitlines() or [repr(error)]
        raise DataError(f"{what} is damaged, or not what its name says: {told[0]}") from error


def are_numbers(array: Any) -> bool:
    """Whether an array is numbers, (T,) or (T, D)."""
    return array.dtype.kind in "biuf" and len(array.shape) in (1, 2)


def are_pictures(array: Any) -> bool:
    """Whether an array is pictures of bytes, (T, H, W, 3)."""
    return len(array.shape) == 4 and array.shape[3] == 3 and array.dtype == np.uint8


def numbers(array: Any, what: str) -> Floats:
    """An array of numbers as rows (T, D). Raises `DataError` for one that is not, is empty, or is too large."""
    if not are_numbers(array) or 0 in array.shape:
        raise DataError(f"{what} is {array.shape} {array.dtype}; expected a row of numbers for each frame")
    if math.prod(array.shape) > MOST:
        raise DataError(f"{what} says it is {array.shape}; at most {MOST} numbers are read")
    with readable(what), np.errstate(over="ignore"):
        rows: Floats = np.asarray(array[:]).astype(np.float32).reshape(array.shape[0], -1)
    return rows


def frames(array: Any, begin: int, end: int, what: str) -> Iterator[Any]:
    """The pictures from `begin` to `end` of an array (T, H, W, 3), read a piece at a time. Raises `DataError`."""
    step = max(1, PIECE // (math.prod(array.shape[1:]) * array.dtype.itemsize))
    for at in range(begin, end, step):
        with readable(what):
            piece = np.asarray(array[at : min(at + step, end)])
        yield from piece


def check_size(size: tuple[int, int], what: str) -> None:
    """Raises `DataError` for pictures of a size that no camera has."""
    height, width = size
    if not (0 < height <= LARGEST and 0 < width <= LARGEST):
        raise DataError(f"{what} says its pictures are {width} x {height}; at most {LARGEST} a side are read")


def check_chunks(array: Any, what: str) -> None:
    """Raises `DataError` when an array is kept in parts that are too large to unpack."""
    if array.chunks and math.prod(array.chunks) * array.dtype.itemsize > LARGEST_CHUNK:
        raise DataError(f"{what} says its chunks are {array.chunks}; at most {LARGEST_CHUNK >> 20} MB are unpacked")


def missing_chunks(array: Any, there: int) -> int:
    """How many of its parts are not there, and would be read as zeros."""
    whole: int = math.prod(
        -(-side // part) for side, part in zip(array.shape, array.chunks or array.shape, strict=True)
    )
    return max(0, whole - there)


def check_lengths(lengths: Mapping[str, int], what: str) -> None:
    """Raises `DataError` unless all arrays of an episode are equally long."""
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{length} of {name}" for name, length in lengths.items())
        raise DataError(f"{what} has {told}; there must be one of each for every frame")


@dataclass(frozen=True)
class Layout:
    """Which arrays of a file are used, and for what."""

    cameras: Mapping[str, str]
    """Camera -> the array of its pictures."""
    sizes: Mapping[str, tuple[int, int]]
    """Camera -> height and width of the frames that are made of them."""
    states: tuple[str, ...]
    """The arrays that make up the state, side by side."""
    unused: tuple[str, ...]

    def notes(self, actions: str) -> tuple[str, ...]:
        """What was guessed, for the user to see."""
        sizes = ((camera, name, *self.sizes[camera]) for camera, name in self.cameras.items())
        shown = "; ".join(f"{camera} ({name}, {width} x {height})" for camera, name, height, width in sizes)
        told = [f"cameras: {shown}", f"state: {', '.join(self.states) or 'none'}", f"action: {actions}"]
        return (*told, f"not used: {', '.join(self.unused)}") if self.unused else tuple(told)


def laid_out(
    pictures: Mapping[str, tuple[int, int]],
    others: Mapping[str, bool],
    choice: Choice,
    guesses: Iterable[tuple[str, ...]],
    what: object,
) -> Layout:
    """Decide what is used: the cameras that are chosen, and for the state what is asked for, or else guessed.

    `pictures` has the height and width of each, `others` whether they are numbers. Where no guess is all there, every
    array of numbers is part of the state. Raises `DataError`.
    """
    named = {_camera(name, pictures): name for name in pictures}
    cameras = {camera: named[camera] for camera in choice.chosen(named, what)}
    for name in cameras.values():
        check_size(pictures[name], f"{what}: {name}")
    known = [name for name, usable in others.items() if usable]
    for name in choice.states:
        if name not in known:
            raise DataError(f"{what} has no row of numbers '{name}' for each frame{did_you_mean(name, known)}")
    state = choice.states or next((guess for guess in guesses if set(guess) <= set(known)), tuple(known))
    sizes = {camera: choice.kept(*pictures[name]) for camera, name in cameras.items()}
    used = {*cameras.values(), *state}
    return Layout(cameras, sizes, state, tuple(name for name in (*pictures, *others) if name not in used))


def _camera(name: str, among: Iterable[str]) -> str:
    short = name.removesuffix("_image").removesuffix("_rgb")
    return short if short and short not in among else name


def side_by_side(parts: Iterable[Floats]) -> Floats | None:
    """The state that several arrays (T, D) make up, or none where there are none."""
    all_of_them = list(parts)
    return np.concatenate(all_of_them, axis=1) if all_of_them else None


def first(reads: Iterable[Callable[[], T]]) -> T:
    """The first that can be read. Raises the first `DataError` when none can."""
    failed = None
    for read in reads:
        try:
            return read()
        except DataError as error:
            failed = failed or error
    assert failed is not None
    raise failed


def gathered(reads: Iterable[Callable[[], T]]) -> tuple[list[T], tuple[str, ...]]:
    """All that can be read, and a sentence for each that cannot."""
    good, problems = [], []
    for read in reads:
        try:
            good.append(read())
        except DataError as error:
            problems.append(str(error))
    return good, tuple(problems)
