"""Videos on disk. PyAV does the work; where it is not installed, OpenCV can still write."""

import importlib.util
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xskill.engine.folder import ASIDE, refused
from xskill.errors import DataError, VideoError

Pixels = npt.NDArray[np.uint8]


LONGEST = 600
"""Seconds of the longest video that is read as a whole: it shows one task."""
MOST = 1500
"""At most twice as many of its frames are kept; of longer ones every second is left out."""
LARGEST = 8192
"""Pixels along a side that a frame may have."""


@dataclass(frozen=True)
class About:
    """What a video says of itself before a frame is decoded."""

    height: int
    width: int
    rate: float
    seconds: float
    """0 where it does not say."""
    frames: float
    """How many it promises; infinity where it does not say."""


@contextmanager
def opened(path: Path) -> Iterator[tuple[Any, Any, About]]:
    """A video's container, its picture stream, and what it says of itself. Raises `VideoError`, also for the body."""
    if importlib.util.find_spec("av") is None:
        raise DataError("reading videos needs PyAV: pip install av")
    import av

    if not path.is_file():
        raise VideoError(f"there is no video {path}")
    try:
        with av.open(str(path.absolute())) as container:  # a relative one with a colon would be taken for an address
            if not container.streams.video:
                kinds = ", ".join(stream.type for stream in container.streams) or "nothing"
                raise VideoError(f"{path} has no picture, only {kinds}")
            stream = container.streams.best("video") or container.streams.video[0]  # not a cover, nor a thumbnail
            if not isinstance(stream, av.VideoStream) or stream.codec_context is None:
                raise VideoError(f"{path} is damaged, or of a kind that cannot be decoded")
            height, width = stream.codec_context.height, stream.codec_context.width
            if not (0 < height <= LARGEST and 0 < width <= LARGEST):
                raise VideoError(f"{path} says its frames are {width} x {height}; at most {LARGEST} a side are read")
            stream.thread_type = "AUTO"
            if stream.codec_context.name == "mjpeg":  # otherwise what is cut off a JPEG is made up in silence
                stream.codec_context.options = {"err_detect": "explode"}
            rate, seconds = float(stream.average_rate or 25), (container.duration or 0) / 1e6
            promised = min(stream.frames or math.inf, seconds * rate or math.inf)  # what was cut away is not shown
            yield container, stream, About(height, width, rate, seconds, promised)
    except (av.error.FFmpegError, OSError, ValueError, OverflowError, MemoryError) as error:
        raise VideoError(f"{path} is no video that can be read: {getattr(error, 'strerror', None) or error}") from None


def pictures(path: Path, size: tuple[int, int]) -> Iterator[tuple[float, Pixels]]:
    """Every frame of a video, upright and of this `size` whatever its shape, with its time in seconds.

    Raises `VideoError` for what is no video, is too long, or, at its end, when frames are missing.
    """
    first: float | None = None
    count, last, later, held = 0, -math.inf, 0.0, None
    with opened(path) as (container, stream, about):
        if about.seconds > LONGEST:
            raise _too_long(path)
        for frame in container.decode(stream):
            time = later + (float(frame.time) if frame.time is not None else count / about.rate)
            if time < last:  # another recording begins, with a clock of its own
                later += last + 1 / about.rate - time
                time = last + 1 / about.rate
            last = time
            first = time if first is None else first
            held = held or _held(frame)
            count += 1
            if time - first > LONGEST:
                raise _too_long(path)
            yield time, _upright(frame, size, path, held)
    if not count:
        raise VideoError(f"{path} is damaged: not one of its frames can be read")
    if (
        math.isfinite(about.frames) and count < 0.98 * about.frames - 2
    ):  # trimming may cost a few, and rates are rounded
        raise VideoError(f"{path} is damaged: only {count} of its {about.frames:.0f} frames can be read")


def read_video(path: Path | str, size: tuple[int, int]) -> tuple[Pixels, float]:
    """A video's frames (T, H, W, 3), upright, of this `size` whatever their shape, evenly spaced in time; their rate.

    Raises `DataError` for what is no video, is damaged, or is too long.
    """
    frames: list[Pixels] = []
    times: list[float] = []
    stride = 1
    path = Path(path)
    for index, (time, frame) in enumerate(pictures(path, size)):
        if index % stride:
            continue
        frames.append(frame)
        times.append(time)
        if len(frames) >= 2 * MOST:
            frames, times, stride = frames[::2], times[::2], 2 * stride
    lasting = times[-1] - times[0]
    if lasting <= 0:
        with opened(path) as (_, _, about):
            return np.stack(frames), about.rate
    rate = (len(frames) - 1) / lasting
    # Phones record at uneven intervals; everything after this counts frames.
    nearest = np.searchsorted((np.array(times[1:]) + times[:-1]) / 2, times[0] + np.arange(len(frames)) / rate)
    return np.stack([frames[index] for index in nearest]), rate


def even(timed: Iterable[tuple[float, Pixels]], fps: float) -> Iterator[Pixels]:
    """Frames at a steady rate: for every moment the frame whose time is nearest, from the first to the last."""
    rest = iter(timed)
    shown = next(rest, None)
    if shown is None:
        return
    (time, frame), start, moment = shown, shown[0], 0
    for later, following in rest:
        while start + moment / fps <= (time + later) / 2:
            yield frame
            moment += 1
        time, frame = later, following
    while start + moment / fps <= time + 1e-9:
        yield frame
        moment += 1


def stretch(path: Path, start: float, count: int, fps: float, size: tuple[int, int]) -> Iterator[Pixels]:
    """`count` frames of a longer video, the first at `start` seconds, each at its time. Raises `VideoError`."""
    late = 0.5 / fps
    with opened(path) as (container, stream, _):
        container.seek(max(0, int((start - late) / stream.time_base)), stream=stream)
        found, held = 0, None
        for frame in container.decode(stream):
            time = float(frame.time) if frame.time is not None else math.nan
            if not time >= start + found / fps - late:
                continue
            if time > start + found / fps + late:
                break
            held = held or _held(frame)
            yield _upright(frame, size, path, held)
            found += 1
            if found == count:
                return
    raise VideoError(f"{path} is damaged or too short: it has {found} of the {count} frames from {start:.2f} s on")


def _upright(frame: Any, size: tuple[int, int], path: Path, held: tuple[bool, bool, bool]) -> Pixels:
    """A frame as it is to be seen, where its camera was `held` so."""
    if frame.is_corrupt:
        raise VideoError(f"{path} is damaged at {float(frame.time or 0):.2f} s; cut that away, or record it anew")
    (height, width), (lying, mirrored, upturned) = size, held
    rows, columns = (width, height) if lying else (height, width)
    pixels = frame.reformat(columns, rows, "rgb24", interpolation="AREA").to_ndarray()
    pixels = pixels.swapaxes(0, 1) if lying else pixels
    return np.ascontiguousarray(pixels[:: -1 if upturned else 1, :: -1 if mirrored else 1])


def _held(frame: Any) -> tuple[bool, bool, bool]:
    """Whether rows and columns of a frame are to be exchanged, and then left and right, and up and down.

    Asked of one frame of a video only: a frame that was asked is not freed at once.
    """
    try:
        kept = [data for data in frame.side_data if data.type.name == "DISPLAYMATRIX"]
    except ValueError:  # among what comes with it is something that PyAV does not know
        kept = []
    if not kept:
        return False, False, False
    (across, down), (across_rows, down_rows) = np.frombuffer(kept[0], np.int32).reshape(3, 3)[:2, :2].tolist()
    if not across * down_rows - down * across_rows:  # it says nothing
        return False, False, False
    lying = abs(across) + abs(down_rows) < abs(down) + abs(across_rows)
    return (True, across_rows < 0, down < 0) if lying else (False, across < 0, down_rows < 0)


def _too_long(path: Path) -> VideoError:
    return VideoError(f"{path} lasts more than {LONGEST // 60} minutes; a video shows one task: cut it")


def write_video(path: Path, frames: Iterable[Pixels], fps: float) -> None:
    """Write frames (H, W, 3) as an mp4 (h264 with PyAV), whole or not at all.

    Raises `DataError` when neither library is there, `CheckpointError` when the disk refuses.
    """
    aside = path.with_name(f"{ASIDE}{os.getpid()}-{path.name}")
    try:
        if importlib.util.find_spec("av") is not None:
            encode_video(aside, frames, fps)
        elif importlib.util.find_spec("cv2") is not None:
            _with_opencv(aside, frames, fps)
        else:
            raise DataError("writing videos needs PyAV or OpenCV: pip install av")
        aside.replace(path)
    except OSError as error:
        raise refused(path, error) from error
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def encode_video(path: Path, frames: Iterable[Pixels], fps: float, codec: str = "libx264", **options: str) -> int:
    """Write frames with PyAV as they come; how many there were. Odd sides are filled up, since h264 wants even ones."""
    import av

    iterator = iter(frames)
    first = next(iterator, None)
    if first is None:
        raise VideoError(f"there are no frames to write to {path}")
    count, (height, width) = 0, first.shape[:2]
    odd = ((0, height % 2), (0, width % 2), (0, 0))
    with av.open(str(path.absolute()), "w", format="mp4") as container:
        stream: Any = container.add_stream(codec, rate=Fraction(fps).limit_denominator(1000))
        stream.options = {"crf": "18"} | options
        stream.height, stream.width, stream.pix_fmt = height + height % 2, width + width % 2, "yuv420p"
        for frame in chain([first], iterator):
            padded = np.ascontiguousarray(np.pad(frame, odd, mode="edge") if height % 2 or width % 2 else frame)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(padded, format="rgb24")))
            count += 1
        container.mux(stream.encode())
    return count


def _with_opencv(path: Path, frames: Iterable[Pixels], fps: float) -> None:
    import cv2

    writer = None
    for frame in frames:
        if writer is None:
            height, width = frame.shape[:2]
            writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), fps, (width, height))
            if not writer.isOpened():
                raise DataError(f"OpenCV could not write {path}")
        writer.write(frame[..., ::-1])
    if writer is not None:
        writer.release()
