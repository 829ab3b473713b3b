"""The little of torchvision that LeRobot's dataset modules use, on PyAV; the real one cannot be installed here."""

from torchvision import io, transforms

__all__ = ["io", "set_video_backend", "transforms"]


def set_video_backend(backend: str) -> None:
    assert backend == "pyav"
