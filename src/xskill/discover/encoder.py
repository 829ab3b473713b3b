"""The temporal skill encoder (paper, appendix): every frame passes the CNN once, clips are windows over features."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import convert_conv2d_weight_memory_format

from xskill.discover.config import DiscoverConfig, EncoderConfig
from xskill.discover.prototypes import SkillPrototypes

KERNELS = ((8, 4, 2), (4, 2, 1), (3, 2, 1))
"""Kernel size, stride and padding of the CNN's three layers: a sixteenth of the height and width remains."""


class Strided(nn.Conv2d):
    """The usual convolution over images, computed otherwise on a GPU.

    A GPU's own is slow where there are only three channels. There it is done on blocks of pixels as large as the
    stride, all colours of a block being its channels: the same sums, several times as fast.
    """

    def forward(self, input: Tensor) -> Tensor:
        if not input.is_cuda:
            return super().forward(input)
        blocks, weight, size = in_blocks(input, self.weight, self.stride[0], int(self.padding[0]))
        return F.conv2d(blocks, weight, self.bias)[:, :, : size[0], : size[1]]


def in_blocks(images: Tensor, weight: Tensor, stride: int, padding: int) -> tuple[Tensor, Tensor, tuple[int, int]]:
    """Images (N, C, H, W) as blocks, what a convolution's weights (O, C, K, K) are for these, and its output's size.

    No kernel may lie outside of the image altogether: the padding is less than half of it.
    """
    assert 2 * padding < weight.shape[-1]
    kernel, ahead = weight.shape[-1], -(-padding // stride)
    span = ahead + (kernel - 1 - padding) // stride + 1  # blocks that a kernel touches, `ahead` of them before its own
    spare = -(images.shape[1] * stride**2) % 8  # a GPU wants channels by the eight
    first = ahead * stride - padding
    weight = F.pad(weight, (first, span * stride - kernel - first) * 2)
    weight = weight.unflatten(3, (span, stride)).unflatten(2, (span, stride)).permute(0, 3, 5, 1, 2, 4)
    weight = F.pad(weight.flatten(1, 3), (0, 0, 0, 0, 0, spare))
    height, width = ((n + 2 * padding - kernel) // stride + 1 for n in images.shape[2:])
    missing = [(-n) % stride for n in images.shape[2:]]
    pixels = F.pad(images.permute(0, 2, 3, 1), (0, 0, 0, missing[1], 0, missing[0]))
    blocks = pixels.unflatten(2, (-1, stride)).unflatten(1, (-1, stride)).permute(0, 1, 3, 2, 4, 5).flatten(3)
    around = (ahead, span - 1 - ahead)
    return F.pad(blocks, (0, spare, *around, *around)).permute(0, 3, 1, 2), weight, (height, width)


class SkillEncoder(nn.Module):
    """Frames to features, clips of features to skills."""

    def __init__(self, config: EncoderConfig, clip_length: int, size: tuple[int, int]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after, kernel in zip((3, *config.channels), config.channels, KERNELS, strict=False):
            layers += [(Strided if before == 3 else nn.Conv2d)(before, after, *kernel), nn.ReLU()]
        self.cnn = nn.Sequential(*layers, nn.Flatten())
        convert_conv2d_weight_memory_format(self.cnn, torch.channels_last)  # the order in which frames lie
        with torch.no_grad():
            flat = self.cnn(torch.zeros(1, 3, *size)).shape[1]
        self.mlp = nn.Sequential(nn.Linear(flat, config.width), nn.ReLU(), nn.Linear(config.width, config.width))
        self.token = nn.Parameter(0.02 * torch.randn(config.width))
        self.positions = nn.Parameter(0.02 * torch.randn(clip_length + 1, config.width))
        layer = nn.TransformerEncoderLayer(
            config.width, config.heads, config.feedforward, config.dropout, batch_first=True, norm_first=True
        )
        norm = nn.LayerNorm(config.width)
        self.transformer = nn.TransformerEncoder(layer, config.layers, norm, enable_nested_tensor=False)
        self.clip_length, self.size = clip_length, size

    def features(self, frames: Tensor) -> Tensor:
        """Frames (N, H, W, 3), values from -1 to 1, to features (N, D)."""
        features: Tensor = self.mlp(self.cnn(frames.permute(0, 3, 1, 2)))
        return features

    def skills(self, clips: Tensor) -> Tensor:
        """Clips of features (N, L, D) to skills (N, D), read from a representation token before the first frame."""
        token = self.token.to(clips.dtype).expand(len(clips), 1, -1)
        tokens = torch.cat([token, clips], dim=1) + self.positions
        skills: Tensor = self.transformer(tokens)[:, 0]
        return skills


class SkillModel(nn.Module):
    """What discovery learns: an encoder and prototypes."""

    def __init__(self, config: DiscoverConfig, size: tuple[int, int]) -> None:
        """`size` is the height and width of the frames."""
        super().__init__()
        self.encoder = SkillEncoder(config.encoder, config.clip_length, size)
        self.prototypes = SkillPrototypes(config.num_prototypes, config.encoder.width)

    def forward(self, videos: Tensor, *, frozen: bool = False) -> Tensor:
        """Scores of the clip that begins at each frame of each video: (V, M, H, W, 3) -> (V, M, K), in fp32.

        A clip that runs past the end sees the last frame again, in training as in use.
        """
        features = self.encoder.features(videos.flatten(0, 1)).unflatten(0, videos.shape[:2])
        length = self.encoder.clip_length
        padded = torch.cat([features, features[:, -1:].expand(-1, length - 1, -1)], dim=1)
        clips = padded.unfold(1, length, 1).transpose(2, 3)  # (V, M, L, D)
        skills = self.encoder.skills(clips.flatten(0, 1)).unflatten(0, videos.shape[:2])
        with torch.autocast(videos.device.type, enabled=False):
            scores: Tensor = self.prototypes(skills.float(), frozen=frozen)
        return scores


def as_input(frames: Tensor) -> Tensor:
    """Frames (..., H, W, 3) uint8 as the encoder takes them: from -1 to 1."""
    return frames.float() / 127.5 - 1
