"""The smallest complete phase: tell in which of eight directions a disc moves, from generated clips.

It shows how a phase is written; the engine's tests and benchmarks train it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xskill.engine.checkpoint import Better
from xskill.engine.config import LoopConfig, require
from xskill.engine.loop import Batch, Hot, Step
from xskill.engine.seeds import generator, seed_everything

DIRECTIONS = 8
HELD_OUT = 256


@dataclass(frozen=True)
class ExampleConfig:
    """The engine's example phase: in which of eight directions does a disc move?"""

    batch_size: int = 32
    """Clips in a global batch."""
    clips: int = 4096
    """Different training clips."""
    frames: int = 8
    """Frames in a clip."""
    image_size: int = 32
    """Height and width of a frame."""
    width: int = 16
    """Channels of the first convolution."""
    dropout: float = 0.1
    """Share of features hidden at random in training."""
    loop: LoopConfig = field(default_factory=LoopConfig)

    def __post_init__(self) -> None:
        require(self.batch_size >= 1, "batch_size", self.batch_size, "at least 1")
        require(self.clips >= self.batch_size, "clips", self.clips, f"at least the batch size, {self.batch_size}")
        require(self.frames >= 2, "frames", self.frames, "at least 2")
        require(self.image_size >= 8, "image_size", self.image_size, "at least 8")
        require(self.width >= 1, "width", self.width, "at least 1")
        require(0 <= self.dropout < 1, "dropout", self.dropout, "in [0, 1)")


class ExamplePhase:
    """Trains `DirectionNet`; the clips are drawn once from the seed and rendered on the device when needed."""

    name = "example"
    monitor = "held_out_loss"
    settled: int | None = 0
    better: Better = "min"

    def __init__(self, config: ExampleConfig, seed: int) -> None:
        self._config = config
        self._paths = _random_paths(config.clips, generator(seed, self.name, "clips"))
        self._held_out = _random_paths(HELD_OUT, generator(seed, self.name, "held out"))
        seed_everything(seed, self.name, "weights")
        self.module: nn.Module = DirectionNet(config.width, config.dropout)
        self.hot: Sequence[Hot] = [(self.module, "forward")]

    def batch(self, step: Step) -> Batch:
        ids = torch.randint(self._config.clips, (self._config.batch_size,), generator=step.generator("ids"))
        return {"ids": ids, "paths": self._paths[ids]}

    def loss(self, module: nn.Module, batch: Batch, step: Step) -> tuple[Tensor, Mapping[str, Tensor]]:
        clips, directions = render(batch["paths"], self._config.frames, self._config.image_size)
        scores = module(clips)
        return F.cross_entropy(scores, directions), {"accuracy": _accuracy(scores, directions)}

    def updated(self) -> None:
        pass

    def evaluate(self, module: nn.Module) -> Mapping[str, float]:
        device = next(module.parameters()).device
        clips, directions = render(self._held_out.to(device), self._config.frames, self._config.image_size)
        scores = module(clips)
        loss = F.cross_entropy(scores, directions).item()
        return {"held_out_loss": loss, "held_out_accuracy": _accuracy(scores, directions).item()}


class DirectionNet(nn.Module):
    """A CNN over every frame, then a linear layer on how its features change: (B, T, 3, H, W) -> (B, 8)."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.frames = nn.Sequential(
            nn.Conv2d(3, width, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(2 * width * 16, 4 * width),
        )
        self.head = nn.Linear(4 * width, DIRECTIONS)

    def forward(self, clips: Tensor) -> Tensor:
        features = self.frames(clips.flatten(0, 1)).unflatten(0, clips.shape[:2])
        scores: Tensor = self.head(features[:, -1] - features[:, 0])
        return scores


def render(paths: Tensor, frames: int, size: int) -> tuple[Tensor, Tensor]:
    """Clips of a soft disc on a plain ground, and its direction: (B, 10) -> (B, frames, 3, size, size), (B,)."""
    direction = (paths[:, 0] * DIRECTIONS).long()
    angle = direction * (2 * math.pi / DIRECTIONS)
    heading = torch.stack([angle.cos(), angle.sin()], -1)
    middle, speed = 0.35 + 0.3 * paths[:, 1:3], 0.2 + 0.2 * paths[:, 3:4]
    time = torch.linspace(-1, 1, frames, device=paths.device)
    centre = middle[:, None] + time[None, :, None] * (speed * heading)[:, None]  # (B, T, 2) in units of the image
    axis = (torch.arange(size, device=paths.device) + 0.5) / size
    x, y = (
        axis[None, None, None, :] - centre[..., 0, None, None],
        axis[None, None, :, None] - centre[..., 1, None, None],
    )
    disc = torch.sigmoid((0.12 - (x * x + y * y).sqrt()) * size)[:, :, None]
    colour, ground = paths[:, None, 4:7, None, None], paths[:, None, 7:10, None, None]
    return disc * colour + (1 - disc) * ground, direction


def _random_paths(count: int, random: torch.Generator) -> Tensor:
    return torch.rand(count, 10, generator=random)


def _accuracy(scores: Tensor, directions: Tensor) -> Tensor:
    return (scores.argmax(-1) == directions).float().mean()
