"""Videos on disk. PyAV does the work; where it is not installed, OpenCV can still write."""

import importlib.util
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from xskill.errors import DataError

Pixels = npt.NDArray[np.uint8]


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
