"""The 1-D U-Net of Chi et al.'s diffusion policy: noise in a chunk of actions, told step and condition by FiLM."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

GROUPS = 8


class Convolution(nn.Conv1d):
    """A convolution over time (B, C, T) as one matrix product.

    Chunks of actions are short and many. A GPU's convolutions spend most of their time on turning such tensors from one
    layout to another; a product of matrices needs none.
    """

    def forward(self, input: Tensor) -> Tensor:
        (kernel,), (stride,), (padding,) = self.kernel_size, self.stride, (int(self.padding[0]),)
        x = F.pad(input.mT, (0, 0, padding, padding))
        end = x.shape[1] - kernel + 1
        columns = torch.cat([x[:, first : first + end : stride] for first in range(kernel)], -1)
        return F.linear(columns, self.weight.transpose(1, 2).flatten(1), self.bias).mT


class Doubling(nn.ConvTranspose1d):
    """The transposed convolution that makes a chunk (B, C, T) twice as long, as one matrix product, too."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels, 4, 2, 1)

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        assert self.bias is not None
        told = F.linear(input.mT, self.weight.permute(2, 1, 0).flatten(0, 1)).unflatten(-1, (4, -1))
        before, here, after = F.pad(told, (0, 0, 0, 0, 1, 1)).unfold(1, 3, 1).unbind(-1)  # (B, T, 4, C)
        both = torch.stack([here[:, :, 1] + before[:, :, 3], here[:, :, 2] + after[:, :, 0]], 2)
        return (both.flatten(1, 2) + self.bias.to(both.dtype)).mT


class UNet1D(nn.Module):
    """(B, T, A) noisy actions, (B,) denoising steps and (B, C) conditions to (B, T, A)."""

    def __init__(self, actions: int, condition: int, channels: tuple[int, ...], kernel: int, time_width: int) -> None:
        super().__init__()
        self.time = nn.Sequential(
            Sinusoids(time_width),
            nn.Linear(time_width, 4 * time_width),
            nn.Mish(),
            nn.Linear(4 * time_width, time_width),
        )
        told = time_width + condition
        levels = list(zip((actions, *channels), channels, strict=False))
        self.down = nn.ModuleList(_Level(a, b, told, kernel) for a, b in levels)
        self.shrink = nn.ModuleList(Convolution(c, c, 3, 2, 1) for c in channels[:-1])
        self.middle = _Level(channels[-1], channels[-1], told, kernel)
        upwards = list(zip(channels[:0:-1], channels[-2::-1], strict=True))
        self.up = nn.ModuleList(_Level(2 * b, a, told, kernel) for b, a in upwards)
        self.grow = nn.ModuleList(Doubling(a) for _, a in upwards)
        self.out = nn.Sequential(_Convolved(channels[0], channels[0], kernel), Convolution(channels[0], actions, 1))

    def forward(self, noisy: Tensor, step: Tensor, condition: Tensor) -> Tensor:
        told = torch.cat([self.time(step), condition], dim=-1)
        x = noisy.transpose(1, 2)
        passed: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(x, told)
            passed.append(x)
            if level < len(self.shrink):
                x = self.shrink[level](x)
        x = self.middle(x, told)
        for block, grow in zip(self.up, self.grow, strict=True):
            x = grow(block(torch.cat([x, passed.pop()], dim=1), told))
        result: Tensor = self.out(x)
        return result.transpose(1, 2)


class Sinusoids(nn.Module):
    """Numbers (B,) as sines and cosines of many frequencies, (B, width)."""

    frequencies: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        frequencies = torch.exp(-math.log(10000) * torch.arange(half) / max(1, half - 1))
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, numbers: Tensor) -> Tensor:
        angles = numbers[:, None].float() * self.frequencies
        return torch.cat([angles.sin(), angles.cos()], dim=-1)


class _Convolved(nn.Module):
    def __init__(self, before: int, after: int, kernel: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            Convolution(before, after, kernel, padding=kernel // 2), nn.GroupNorm(GROUPS, after), nn.Mish()
        )

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.body(x)
        return result


class _Level(nn.Module):
    def __init__(self, before: int, after: int, condition: int, kernel: int) -> None:
        super().__init__()
        self.first = _Residual(before, after, condition, kernel)
        self.second = _Residual(after, after, condition, kernel)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        result: Tensor = self.second(self.first(x, condition), condition)
        return result


class _Residual(nn.Module):
    """Two convolutions; between them the condition scales and shifts every channel."""

    def __init__(self, before: int, after: int, condition: int, kernel: int) -> None:
        super().__init__()
        self.first, self.second = _Convolved(before, after, kernel), _Convolved(after, after, kernel)
        self.film = nn.Sequential(nn.Mish(), nn.Linear(condition, 2 * after))
        self.past = Convolution(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        scale, shift = self.film(condition)[:, :, None].chunk(2, dim=1)
        result: Tensor = self.second(self.first(x) * (1 + scale) + shift) + self.past(x)
        return result
