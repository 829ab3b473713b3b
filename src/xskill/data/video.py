"""Videos on disk. PyAV does the work; where it is not installed, OpenCV can still write."""

import importlib.util
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xskill.errors import DataError

Pixels = npt.NDArray[np.uint8]


LONGEST = 600
"""Seconds of the longest video that is read as a whole: it shows one task."""
MOST = 1500
"""At most twice as many of its frames are kept; of longer ones every second is left out."""


def read_video(path: Path, size: tuple[int, int]) -> tuple[Pixels, float]:
    """A video's frames (T, H, W, 3), upright, of this `size` whatever their shape, evenly spaced in time; their rate.

    Raises `DataError` for what is no video, is damaged, or is too long.
    """
    if importlib.util.find_spec("av") is None:
        raise DataError("reading videos needs PyAV: pip install av")
    import av

    if not path.is_file():
        raise DataError(f"there is no video {path}")
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise DataError(
                    f"{path} has no picture, only {', '.join(s.type for s in container.streams) or 'nothing'}"
                )
            stream = container.streams.video[0]
            rate, lasting = float(stream.average_rate or 25), (container.duration or 0) / 1e6
            if lasting > LONGEST:
                raise _too_long(path)
            frames, times, decoded = _decoded(path, container, stream, rate, size)
            expected = min(stream.frames or math.inf, lasting * rate or math.inf)  # what was cut away is not shown
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise DataError(f"{path} is no video that can be read: {error}") from None
    if not frames:
        raise DataError(f"{path} is damaged: not one of its frames can be read")
    if math.isfinite(expected) and decoded < 0.9 * expected - 1:
        raise DataError(f"{path} is damaged: only {decoded} of its {expected:.0f} frames can be read")
    lasting = times[-1] - times[0]
    if len(frames) == 1 or lasting <= 0:
        return np.stack(frames[:1]), rate
    rate = (len(frames) - 1) / lasting
    # Phones record at uneven intervals; everything after this counts frames.
    nearest = np.searchsorted((np.array(times[1:]) + times[:-1]) / 2, times[0] + np.arange(len(frames)) / rate)
    return np.stack([frames[index] for index in nearest]), rate


def _decoded(
    path: Path, container: Any, stream: Any, rate: float, size: tuple[int, int]
) -> tuple[list[Pixels], list[float], int]:
    """Frames, their times in seconds, and how many were decoded; of many, every second is kept, every fourth, ..."""
    stream.thread_type = "AUTO"
    frames: list[Pixels] = []
    times: list[float] = []
    height, width = size
    stride, decoded = 1, 0
    for frame in container.decode(stream):
        time = float(frame.time) if frame.time is not None else decoded / rate
        decoded += 1
        if time - (times[0] if times else time) > LONGEST:
            raise _too_long(path)
        if (decoded - 1) % stride:
            continue
        turns = round(getattr(frame, "rotation", 0) / 90) % 4
        rows, columns = (width, height) if turns % 2 else (height, width)
        pixels = frame.reformat(columns, rows, "rgb24", interpolation="AREA").to_ndarray()
        frames.append(np.ascontiguousarray(np.rot90(pixels, turns)))
        times.append(time)
        if len(frames) >= 2 * MOST:
            frames, times, stride = frames[::2], times[::2], 2 * stride
    return frames, times, decoded


def _too_long(path: Path) -> DataError:
    return DataError(f"{path} lasts more than {LONGEST // 60} minutes; a prompt shows one task: cut it")


def write_video(path: Path, frames: Pixels, fps: float) -> None:
    """Write frames (T, H, W, 3) as an mp4 (h264 with PyAV). Raises `DataError` when neither library is there."""
    if importlib.util.find_spec("av") is not None:
        _with_pyav(path, frames, fps)
    elif importlib.util.find_spec("cv2") is not None:
        _with_opencv(path, frames, fps)
    else:
        raise DataError("writing videos needs PyAV or OpenCV: pip install av")


def _with_pyav(path: Path, frames: Pixels, fps: float) -> None:
    import av

    height, width = frames.shape[1:3]
    even = np.pad(frames, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")  # h264 wants even sizes
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1000), options={"crf": "18"})
        stream.height, stream.width, stream.pix_fmt = even.shape[1], even.shape[2], "yuv420p"
        for frame in even:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")))
        container.mux(stream.encode())


def _with_opencv(path: Path, frames: Pixels, fps: float) -> None:
    import cv2

    height, width = frames.shape[1:3]
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), fps, (width, height))
    if not writer.isOpened():
        raise DataError(f"OpenCV could not write {path}")
    for frame in frames:
        writer.write(frame[..., ::-1])
    writer.release()
