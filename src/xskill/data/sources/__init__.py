"""Where demonstrations come from: each module turns what somebody else wrote into a `Source` of recordings."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from xskill.data.recording import Pixels, Shots
from xskill.engine.config import did_you_mean, require, unset
from xskill.errors import DataError

LARGEST_SIDE = 640
"""Pixels of the longer side that are kept unless a size is asked for."""


@dataclass(frozen=True)
class Choice:
    """What of a source is wanted, and how."""

    fps: Annotated[float | None, unset("as they are")] = None
    """Frames a second of the dataset; videos are brought to it by time."""
    size: Annotated[tuple[int, int] | None, unset("as they are, at most 640 pixels a side")] = None
    """Height and width of its frames."""
    crop: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)
    """What is kept of every picture: left, top, right and bottom edge, as shares of its width and height."""
    cameras: Annotated[tuple[str, ...], unset("all that are found")] = ()
    """Which cameras, by name."""
    states: Annotated[tuple[str, ...], unset("guessed, and printed")] = ()
    """Which arrays make up the state, of sources that have any."""
    actions: Annotated[str | None, unset("what the source's own library calls it")] = None
    """Which array holds the actions."""

    def __post_init__(self) -> None:
        left, top, right, bottom = self.crop
        told = "left, top, right and bottom edge, from 0 to 1, left before right and top before bottom"
        require(0 <= left < right <= 1 and 0 <= top < bottom <= 1, "crop", self.crop, told)
        require(self.fps is None or 0 < self.fps <= 1000, "fps", self.fps, "a number above 0")
        require(self.size is None or min(self.size) >= 8, "size", self.size, "at least 8 pixels a side")

    def kept(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the dataset's frames, given those of the source."""
        if self.size is not None:
            return self.size
        left, top, right, bottom = self.crop
        kept = height * (bottom - top), width * (right - left)
        shrink = min(1.0, LARGEST_SIDE / max(kept))
        return max(2, 2 * round(kept[0] * shrink / 2)), max(2, 2 * round(kept[1] * shrink / 2))

    def shots(self, whole: Shots) -> Shots:
        """Frames of the part that is kept, from what gives whole ones of any size."""
        left, top, right, bottom = self.crop

        def part(size: tuple[int, int]) -> Iterator[Pixels]:
            height, width = round(size[0] / (bottom - top)), round(size[1] / (right - left))
            up, aside = min(round(top * height), height - size[0]), min(round(left * width), width - size[1])
            for frame in whole((height, width)):
                yield np.ascontiguousarray(frame[up : up + size[0], aside : aside + size[1]])

        return part

    def chosen(self, found: Iterable[str], where: object) -> tuple[str, ...]:
        """The cameras that are wanted, of those found. Raises `DataError`."""
        names = tuple(found)
        for camera in self.cameras:
            if camera not in names:
                raise DataError(f"{where} has no camera '{camera}'{did_you_mean(camera, names)}")
        if not names:
            raise DataError(f"{where} has no pictures")
        return self.cameras or names


def resized(frames: Iterable[Any], size: tuple[int, int]) -> Iterator[Pixels]:
    """Pictures (H, W, 3) uint8 brought to a height and width, smoothed as they shrink."""
    import av

    for frame in frames:
        picture = np.asarray(frame)
        if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8 or not min(picture.shape):
            raise DataError(
                f"a picture is {picture.shape} {picture.dtype}; expected height, width and 3 colours, uint8"
            )
        if picture.shape[:2] == size:
            yield picture
        else:
            whole = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            pixels: Any = whole.reformat(size[1], size[0], "rgb24", interpolation="AREA").to_ndarray()
            yield pixels
