"""The Skill Alignment Transformer (SAT) of the paper: which skill of the plan is to be executed now."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xskill.transfer.config import AlignerConfig
from xskill.transfer.vision import looker


class Alignment(NamedTuple):
    """What an aligner says of each of B robots."""

    skill: Tensor
    """The skill to execute now, (B, D)."""
    attention: Tensor
    """How much it looked at each skill of the plan, (B, N); rows sum to one."""

    @property
    def progress(self) -> Tensor:
        """Where in the plan it looked, on average, from 0 to 1: (B,)."""
        places = torch.linspace(0, 1, self.attention.shape[1], device=self.attention.device)
        return self.attention @ places


def resampled(length: int, tokens: int) -> Tensor:
    """Which of `length` skills form a plan of `tokens`: evenly spread, up or down, first and last included."""
    places = torch.linspace(0, 1, tokens, dtype=torch.float64) * (length - 1)
    return torch.floor(places + 0.5).long()


class SkillAligner(nn.Module):
    """Plan tokens, a state token and a representation token through a transformer; an MLP reads off the skill."""

    def __init__(self, config: AlignerConfig, tokens: int, skill: int, size: tuple[int, int]) -> None:
        super().__init__()
        self.tokens = tokens
        width = skill  # a token is a skill
        self.look, seen = looker(config.vision, config.vision_width, size)
        self.state = nn.Linear(seen, width)
        self.positions = nn.Parameter(0.02 * torch.randn(tokens + 2, width))
        self.summary = nn.Parameter(0.02 * torch.randn(width))
        self.hidden = nn.Parameter(0.02 * torch.randn(width))
        self.layers = nn.ModuleList(_Layer(width, config.heads, config.feedforward) for _ in range(config.layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, skill))

    def forward(self, images: Tensor, plan: Tensor, dropped: Tensor | None = None) -> Alignment:
        """What is seen now, (B, H, W, 3) uint8, and plans (B, N, D), of which some tokens may be `dropped` (B, N)."""
        pixels = images.permute(0, 3, 1, 2).float() / 127.5 - 1
        state = self.state(self.look(pixels)).float()[:, None]
        if dropped is not None:
            plan = torch.where(dropped[:, :, None], self.hidden, plan)
        tokens = torch.cat([plan, state, self.summary.expand(len(plan), 1, -1)], dim=1) + self.positions
        for layer in self.layers[:-1]:
            tokens, _ = layer(tokens)
        tokens, attention = self.layers[-1](tokens, weights=True)
        skill: Tensor = self.head(self.norm(tokens[:, -1]))
        looked = attention[:, :, -1, : self.tokens].mean(1).float()
        return Alignment(skill, looked / looked.sum(1, keepdim=True).clamp(min=1e-9))


class _Layer(nn.Module):
    """One layer of a transformer encoder, normalised first, that can tell its attention."""

    def __init__(self, width: int, heads: int, feedforward: int) -> None:
        super().__init__()
        self._heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, feedforward), nn.ReLU(), nn.Linear(feedforward, width))

    def forward(self, x: Tensor, *, weights: bool = False) -> tuple[Tensor, Tensor]:
        """Tokens (B, N, W) to tokens, and with `weights` the attention (B, heads, N, N)."""
        query, key, value = self.mixed(self.first(x)).unflatten(-1, (3, self._heads, -1)).permute(2, 0, 3, 1, 4)
        if weights:
            attention = (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1)
            mixed = attention @ value
        else:
            attention, mixed = x[:, :0], F.scaled_dot_product_attention(query, key, value)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.feed(self.second(x)), attention
