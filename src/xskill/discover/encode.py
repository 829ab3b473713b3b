"""From videos to skills with a trained encoder: every frame through the CNN once, in pieces that fit."""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from xskill.data.frames import FrameStore
from xskill.discover.config import DiscoverConfig
from xskill.discover.encoder import SkillModel, as_input
from xskill.errors import DataError

PIECE = 1024
"""Frames, and clips, that are on the device at once."""


class Video(Protocol):
    """Frames that can be counted and sliced: an array, a mapped file, a decoder."""

    def __len__(self) -> int: ...

    def __getitem__(self, piece: slice) -> npt.NDArray[np.uint8]: ...


def clip_frames(length: int, config: DiscoverConfig, rate: float = 1.0, shorter: float = 1.0) -> Tensor:
    """The frames of the clip that begins at each frame of a video: (T, L); past the end the last frame stands.

    On the time scale of the whole `video` they are as far apart as the samples of a training video, which may show
    `shorter` times as much; on that of `frames` they are neighbours, where a video with `rate` times as many frames a
    second as in training skips some.
    """
    whole = config.time_scale == "video"
    step = shorter * (length - 1) / max(1, config.frames_per_video - 1) if whole else rate
    begin, ahead = torch.arange(length)[:, None], torch.arange(config.clip_length)
    return (begin + torch.round(ahead * step + 1e-4).long()).clamp(max=length - 1)


@torch.no_grad()
def encode_frames(model: SkillModel, frames: FrameStore, videos: list[Tensor], config: DiscoverConfig) -> Tensor:
    """Skills (T, D) of videos laid end to end, each given as the indices (T,) of its frames in a store."""
    device = model.prototypes.weight.device
    index, begins = torch.cat(videos), np.cumsum([0, *map(len, videos)])
    clips = [clip_frames(len(video), config) + int(begin) for video, begin in zip(videos, begins, strict=False)]
    features = torch.cat([model.encoder.features(as_input(frames[part].to(device))) for part in index.split(PIECE)])
    return torch.cat([model.encoder.skills(features[part.to(device)]) for part in torch.cat(clips).split(PIECE)])


@torch.no_grad()
def encode_video(model: SkillModel, video: Video, config: DiscoverConfig, *, rate: float = 1.0) -> Tensor:
    """The skill of the clip that begins at each frame of a video of any length, size and frame rate: (T, D).

    Frames are resized to what the encoder was trained on, whatever their shape. `rate` is the video's frames per second
    over those of the training videos; only the time scale `frames` needs it. Frames are read and dropped in pieces:
    memory grows by one feature and one skill a frame.
    """
    return skills_of(model, features_of(model, video), config, rate=rate)


@torch.no_grad()
def features_of(model: SkillModel, video: Video) -> Tensor:
    """What the CNN makes of every frame of a video: (T, F)."""
    if len(video) < 1:
        raise DataError("a video without frames has no skills")
    device = model.prototypes.weight.device
    return torch.cat([model.encoder.features(piece) for piece in resized_pieces(video, model.encoder.size, device)])


@torch.no_grad()
def skills_of(
    model: SkillModel, features: Tensor, config: DiscoverConfig, *, rate: float = 1.0, shorter: float = 1.0
) -> Tensor:
    """Skills (T, D) as `encode_video` finds them, read as if training videos showed `shorter` times as much."""
    clips = clip_frames(len(features), config, rate, shorter).to(features.device)
    return torch.cat([model.encoder.skills(features[part]) for part in clips.split(PIECE)])


@torch.no_grad()
def stills_of(model: SkillModel, features: Tensor, config: DiscoverConfig) -> Tensor:
    """Skills (N, D) of clips in which nothing moves, each a frame repeated."""
    return model.encoder.skills(features[:, None].expand(-1, config.clip_length, -1))


def resized_pieces(video: Video, size: tuple[int, int], device: torch.device) -> Iterator[Tensor]:
    """A video's frames as encoders take them, a piece at a time."""
    larger = max(1, np.asarray(video[:1]).size // (size[0] * size[1] * 3))
    at_once = max(1, PIECE // larger)  # of frames that are larger, fewer
    for first in range(0, len(video), at_once):
        piece = np.asarray(video[first : first + at_once])
        check_frames(piece)
        yield resized(piece, size, device)


def check_frames(frames: npt.NDArray[Any]) -> None:
    """Raises `DataError` for what are no frames (N, H, W, 3) uint8."""
    if frames.ndim != 4 or frames.shape[-1] != 3 or frames.dtype != np.uint8:
        raise DataError(f"frames are {frames.shape[1:]} {frames.dtype}; expected (height, width, 3) uint8")


def resized_image(image: npt.NDArray[np.uint8], size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """An image (h, w, 3) brought to (H, W, 3), whatever its shape, as videos are."""
    if image.shape[:2] == size:
        return image
    small = resized(image[None], size, torch.device("cpu"))[0]
    return ((small + 1) * 127.5).round().to(torch.uint8).numpy()


def resized(frames: npt.NDArray[np.uint8], size: tuple[int, int], device: torch.device) -> Tensor:
    """Frames (N, h, w, 3) uint8 as the encoder takes them, (N, H, W, 3), resized if need be.

    A pixel of a smaller image is the mean of those it covers, as when training videos are decoded.
    """
    pixels = as_input(torch.from_numpy(np.array(frames)).to(device))
    if pixels.shape[1:3] == size:
        return pixels
    channels = pixels.permute(0, 3, 1, 2)
    if pixels.shape[1] >= size[0] and pixels.shape[2] >= size[1]:
        changed = F.interpolate(channels, size, mode="area")
    else:
        changed = F.interpolate(channels, size, mode="bilinear", antialias=True)
    return changed.permute(0, 2, 3, 1).clamp(-1, 1)
