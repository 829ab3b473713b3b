"""Two augmented views of every video, on the device, fused: resized crop, blur, colour jitter, grayscale.

A resized crop is linear in rows and in columns, and so is a Gaussian blur: both together are one matrix from the left
and one from the right. All that is done to colours is a 3x3 matrix and a shift, so it joins the one from the right: two
matrix products and a clamp do everything. What is drawn is the same for a run of frames, all of a video or a single
one; never for a clip, since clips share the features of frames.
"""

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from xskill.discover.config import AugmentConfig

VIEWS = 2
LUMA = (0.299, 0.587, 0.114)
RADIUS_IN_SIGMAS = 3


class Views(NamedTuple):
    """What is done to each view of each run of frames, each (R, 2)."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor
    """The crop, as shares of the image."""
    sigma: Tensor
    """Standard deviation of the blur in pixels; 0 leaves a view sharp."""
    brightness: Tensor
    contrast: Tensor
    saturation: Tensor
    """Factors; 1 changes nothing."""
    hue: Tensor
    """A turn, as a share of the colour circle."""
    gray: Tensor
    """1 takes all colour away."""


def draw_views(runs: int, config: AugmentConfig, generator: torch.Generator) -> Views:
    """Draw what is done to the two views of so many runs of frames."""

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(runs, VIEWS, generator=generator)

    def happens(chance: float) -> Tensor:
        return (torch.rand(runs, VIEWS, generator=generator) < chance).float()

    area = uniform(*config.crop)
    ratio = (uniform(-1, 1) * (-area.log()).clamp(max=math.log(4 / 3))).exp()  # never wider or higher than the image
    height, width = (area / ratio).sqrt(), (area * ratio).sqrt()
    jitter, blur = happens(config.jitter), happens(config.blur)
    factors = [1 + jitter * uniform(-s, s) for s in (config.brightness, config.contrast, config.saturation)]
    brightness, contrast, saturation = factors
    return Views(
        uniform(0, 1) * (1 - height), uniform(0, 1) * (1 - width), height, width,
        blur * uniform(*config.blur_sigma), brightness, contrast, saturation, jitter * uniform(-config.hue, config.hue),
        happens(config.grayscale),
    )  # fmt: skip


@torch.no_grad()
def augment(frames: Tensor, views: Views, max_sigma: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """Frames (V, M, H, W, 3) uint8 to views (2, V, M, H, W, 3), values from -1 to 1.

    Videos have the same number of runs each. Half precision (fp16) is exact enough for pixels, and what a GPU
    multiplies fastest.
    """
    runs, shape = len(views.top), frames.shape
    frames = frames.reshape(runs, -1, *shape[2:])
    _, count, height, width, _ = frames.shape
    radius = math.ceil(RADIUS_IN_SIGMAS * max_sigma)
    pixels = frames.to(dtype).reshape(runs, count, height, width * 3)
    mean = brightness_of(frames)
    result = torch.empty(VIEWS, runs, count * height, width * 3, dtype=dtype, device=frames.device)
    for view, out in enumerate(result):
        one = Views(*(value[:, view] for value in views))
        rows = spread(one.top, one.height, one.sigma, height, radius)
        columns = spread(one.left, one.width, one.sigma, width, radius)
        colours, shift = recolouring(one, mean)
        # A row of pixels is mixed along its width and across its colours at once: (W, 3) -> (W, 3). From 0 to 255 to
        # -1 to 1 on the way.
        mix = torch.einsum("nvw,ndc->nwcvd", columns, colours * (2 / 255)).reshape(runs, width * 3, width * 3)
        mixed = rows.to(dtype)[:, None] @ pixels
        shift = (2 * shift - 1).to(dtype)[:, None, None]
        torch.baddbmm(shift, mixed.reshape(runs, count * height, width * 3), mix.to(dtype), out=out)
    return result.clamp_(-1, 1).reshape(VIEWS, *shape)


def spread(start: Tensor, share: Tensor, sigma: Tensor, size: int, radius: int) -> Tensor:
    """What crops, resizes and blurs one axis: (N,) each -> matrices (N, size, size) from source to result.

    Bilinear between pixel centres; the blur mirrors at the border.
    """
    pixel = torch.arange(size, device=start.device, dtype=torch.float32)
    source = (start[:, None] + share[:, None] * (pixel + 0.5) / size) * size - 0.5  # (N, size)
    source = source.clamp(0, size - 1)
    resize = (1 - (source[:, :, None] - pixel).abs()).clamp(min=0)
    offsets = torch.arange(-radius, radius + 1, device=start.device, dtype=torch.float32)
    kernel = torch.exp(-0.5 * (offsets / sigma[:, None].clamp(min=1e-3)) ** 2)
    kernel = kernel / kernel.sum(1, keepdim=True)
    blur = torch.einsum("no,ijo->nij", kernel, _mirrored(size, radius, start.device))
    return blur @ resize


@cache
def _mirrored(size: int, radius: int, device: torch.device) -> Tensor:
    """Where an offset from a pixel leads, the border being a mirror: (size, size, offsets), ones and zeros."""
    place = torch.arange(size)[:, None] + torch.arange(-radius, radius + 1)
    period = max(1, 2 * (size - 1))
    place = place.remainder(period)
    place = torch.minimum(place, period - place)
    return torch.nn.functional.one_hot(place, size).permute(0, 2, 1).float().to(device)


def recolouring(views: Views, mean: Tensor) -> tuple[Tensor, Tensor]:
    """What is done to colours, brightness to hue in their usual order, then gray: matrices (N, 3, 3), shifts (N,).

    Contrast turns about `mean` (N,), a run's mean brightness, so that it is the same for all of its frames.
    """
    to_gray, same = _luma(mean.device).expand(3, 3), torch.eye(3, device=mean.device)
    saturation, gray = views.saturation[:, None, None], views.gray[:, None, None]
    colours = saturation * same + (1 - saturation) * to_gray
    colours = _turned(views.hue) @ colours
    colours = (1 - gray) * colours + gray * (to_gray @ colours)
    shift = (1 - views.contrast) * views.brightness * mean  # gray, which all that follows leaves alone
    return colours * (views.brightness * views.contrast)[:, None, None], shift


def _turned(hue: Tensor) -> Tensor:
    """A turn of the hue at constant luma: (N,) -> (N, 3, 3)."""
    to_yiq, from_yiq = _yiq(hue.device)
    angle = -2 * math.pi * hue
    zero, one = torch.zeros_like(angle), torch.ones_like(angle)
    cos, sin = angle.cos(), angle.sin()
    turn = torch.stack([one, zero, zero, zero, cos, -sin, zero, sin, cos], dim=-1).reshape(-1, 3, 3)
    return from_yiq @ turn @ to_yiq


@cache
def _yiq(device: torch.device) -> tuple[Tensor, Tensor]:
    """To luma and two axes of chroma, and back."""
    there = torch.tensor([LUMA, (0.596, -0.274, -0.322), (0.211, -0.523, 0.312)])
    return there.to(device), torch.linalg.inv(there).to(device)


@cache
def _luma(device: torch.device) -> Tensor:
    return torch.tensor(LUMA, device=device)


def brightness_of(frames: Tensor) -> Tensor:
    """Mean luma of each run, from 0 to 1, of every tenth frame and fourth pixel: (R, M, H, W, 3) -> (R,)."""
    some = frames[:, ::10, ::4, ::4].float().mean((1, 2, 3)) / 255
    return some @ _luma(frames.device)
