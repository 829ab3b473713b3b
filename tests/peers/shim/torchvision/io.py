"""Frames of a video from a time on, as torchvision's reader gave them."""

from collections.abc import Iterator
from typing import Any

import av
import torch


class VideoReader:
    def __init__(self, path: str, stream: str) -> None:
        assert stream == "video"
        self.container = av.open(path)
        self._stream = self.container.streams.video[0]

    def seek(self, seconds: float, keyframes_only: bool) -> None:
        """To the key frame at or before this time; that is all torchvision did with PyAV."""
        assert keyframes_only
        self.container.seek(int(seconds / self._stream.time_base), stream=self._stream)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for frame in self.container.decode(self._stream):
            pixels = torch.from_numpy(frame.to_ndarray(format="rgb24")).permute(2, 0, 1)
            yield {"data": pixels, "pts": float(frame.time)}
