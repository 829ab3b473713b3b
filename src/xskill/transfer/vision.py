"""What looks at images: a ResNet-18 with group normalisation, as Chi et al. have it, and smaller networks."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import convert_conv2d_weight_memory_format

from xskill.discover.encoder import Strided
from xskill.transfer.config import Vision

SMALLER = {
    "small": ((32, 5, 2), (64, 3, 2), (64, 3, 2), (64, 3, 2)),
    "tiny": ((32, 7, 4), (32, 3, 2), (32, 3, 2)),
}
"""Channels, kernel and stride of each convolution of the smaller networks."""
GROUP = 16
"""Channels in one group of a ResNet's normalisation."""


def looker(kind: Vision, width: int, size: tuple[int, int]) -> tuple[nn.Module, int]:
    """A network from images (N, H, W, 3), values from -1 to 1, to features (N, F), and F."""
    return (ResNet18(), ResNet18.width) if kind == "resnet18" else (SmallCNN(width, size, SMALLER[kind]), width)


class ResNet18(nn.Module):
    """He et al.'s ResNet-18 up to its average, with GroupNorm: batches and moving averages do not mix with it."""

    width = 512

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            Strided(3, 64, 7, stride=2, padding=3, bias=False), _norm(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        widths, strides = (64, 64, 128, 256, 512), (1, 2, 2, 2)
        blocks: list[nn.Module] = []
        for before, after, stride in zip(widths, widths[1:], strides, strict=False):
            blocks += [_Block(before, after, stride), _Block(after, after, 1)]
        self.blocks = nn.Sequential(*blocks)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.blocks(self.stem(images.permute(0, 3, 1, 2)))
        return features.mean((2, 3))


class _Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False), _norm(after), nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False), _norm(after),
        )  # fmt: skip
        same = stride == 1 and before == after
        self.past = (
            nn.Identity() if same else nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), _norm(after))
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.past(x) + self.body(x))


def _norm(channels: int) -> nn.GroupNorm:
    return Norm(channels // GROUP, channels)


class Norm(nn.GroupNorm):
    """Group normalisation that leaves images as precise as they are.

    Under mixed precision torch would make it, and all that follows up to the next convolution, twice as wide: what a
    step takes is mostly the time to read and write these images. Sums are precise all the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        with torch.autocast(input.device.type, enabled=False):
            weight, bias = self.weight.to(input.dtype), self.bias.to(input.dtype)
            return F.group_norm(input, self.num_groups, weight, bias, self.eps)


class SmallCNN(nn.Module):
    """A few convolutions and a linear layer that knows where in the image everything is."""

    def __init__(self, width: int, size: tuple[int, int], convolutions: Sequence[tuple[int, int, int]]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for channels, kernel, stride in convolutions:
            convolution = (Strided if before == 3 else nn.Conv2d)(before, channels, kernel, stride, kernel // 2)
            layers += [convolution, Norm(8, channels), nn.ReLU()]
            before = channels
        self.body = nn.Sequential(*layers, nn.Flatten())
        convert_conv2d_weight_memory_format(self.body, torch.channels_last)  # the order in which images lie
        with torch.no_grad():
            flat = self.body(torch.zeros(1, 3, *size)).shape[1]
        self.head = nn.Linear(flat, width)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.head(self.body(images.permute(0, 3, 1, 2)))
        return features
