"""What a set of demonstrations is, whoever made them: videos of one embodiment, end to end, with or without actions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xskill.errors import DataError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Episodes:
    """Episodes of one embodiment, laid end to end: frame `f` of episode `e` has the index `starts[e] + f`.

    A demonstrator has neither `states` nor `actions`. Nothing here tells where one skill ends and the next begins.
    """

    embodiment: str
    fps: float
    names: tuple[str, ...]
    lengths: Ints
    """Frames in each episode, (E,)."""
    states: Floats | None = None
    """The robot's own joints, (N, S)."""
    actions: Floats | None = None
    """What it was told to do next, (N, A)."""
    preludes: tuple[int, ...] = ()
    """Frames at the beginning of each episode that only show how it came to this, and that nobody learns to act from;
    nothing where there are none."""

    def __post_init__(self) -> None:
        if not len(self.lengths) or len(self.names) != len(self.lengths) or self.lengths.min() < 1:
            raise DataError(
                f"{self.embodiment}: {len(self.names)} names for {len(self.lengths)} episodes of at least one frame"
            )
        if len(set(self.names)) != len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise DataError(f"{self.embodiment}: two episodes are called '{twice}'")
        if not (np.isfinite(self.fps) and self.fps > 0):
            raise DataError(f"{self.embodiment}: fps is {self.fps}; it must be a number above 0")
        for name in ("states", "actions"):
            values = getattr(self, name)
            if values is not None and (values.ndim != 2 or len(values) != self.frames or not np.isfinite(values).all()):
                raise DataError(
                    f"{self.embodiment}: {name} are {values.shape}; expected {self.frames} rows of finite numbers"
                )

        begins = self.begins
        if begins.shape != self.lengths.shape or not ((begins >= 0) & (begins < self.lengths)).all():
            raise DataError(f"{self.embodiment}: preludes must be as many as episodes, and shorter")

    @property
    def frames(self) -> int:
        """Frames in all, N."""
        return int(self.lengths.sum())

    @property
    def starts(self) -> Ints:
        """Index of each episode's first frame, (E,)."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def begins(self) -> Ints:
        """The first frame of each episode after its prelude, counted from its first, (E,)."""
        return np.array(self.preludes or [0] * len(self.lengths), np.int64)

    def about(self) -> dict[str, Any]:
        """All but the arrays, as JSON."""
        return {
            "embodiment": self.embodiment,
            "fps": self.fps,
            "names": list(self.names),
            "lengths": self.lengths.tolist(),
        } | ({"preludes": list(self.preludes)} if self.preludes else {})


def episodes_from(about: Mapping[str, Any], states: Floats | None, actions: Floats | None) -> Episodes:
    """The inverse of `Episodes.about`, given the arrays."""
    lengths = np.array(about["lengths"], np.int64)
    preludes = tuple(about.get("preludes", ()))
    return Episodes(about["embodiment"], about["fps"], tuple(about["names"]), lengths, states, actions, preludes)


def uniform_frames(starts: Ints, lengths: Ints, count: int) -> Ints:
    """`count` frames spread evenly over each video, first and last included: (V,), (V,) -> indices (V, count).

    A video shorter than `count` repeats frames.
    """
    share = np.linspace(0, 1, count) if count > 1 else np.array([0.5])
    index: Ints = starts[:, None] + np.rint(share * (lengths[:, None] - 1)).astype(np.int64)
    return index


def subsampled(length: int, speed: float) -> Ints:
    """Frames of a video of `length` frames shown `speed` times as fast: every frame at 1, every second at 2."""
    if not (np.isfinite(speed) and speed > 0):
        raise DataError(f"speed is {speed}; it must be a number above 0")
    index: Ints = np.floor(np.arange(int(np.ceil(length / speed))) * speed + 1e-9).astype(np.int64)
    return index[index < length]
