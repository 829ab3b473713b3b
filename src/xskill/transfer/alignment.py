"""Which skill of the plan is to be executed now: the paper's Skill Alignment Transformer (SAT), and a tracker.

The transformer sees the whole plan and the scene and says which skill comes next. It learns orders along with it: on an
order it has never seen it leaps to what usually follows. The tracker knows no orders. It learns only how well the scene
fits each moment of a plan, and keeps a belief over the plan's moments that moves on as the robot does: it neither leaps
over what is unfinished nor forgets where it was, and goes back where the scene says so.
"""

import math
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xskill.discover.encoder import as_input
from xskill.transfer.config import AlignerConfig
from xskill.transfer.unet import Convolution
from xskill.transfer.vision import looker


class Alignment(NamedTuple):
    """What an aligner says of each of B robots."""

    skill: Tensor
    """The skill to execute now, (B, D)."""
    attention: Tensor
    """How much it looked at, or believes in, each skill of the plan, (B, N); rows sum to one."""


def likeliest(plans: Tensor, belief: Tensor) -> Alignment:
    """The skills that plans (B, N, D) have where a belief (B, N) is strongest."""
    return Alignment(plans[torch.arange(len(plans), device=plans.device), belief.argmax(1)], belief)


class Aligner(Protocol):
    """What finds a robot's place in its plan."""

    def __call__(self, images: Tensor, plan: Tensor, before: Tensor | None = None) -> Alignment:
        """What is seen now, (B, H, W, 3) uint8, and plans (B, N, D), to the skill to execute now.

        `before` (B, N) is the attention of one chunk of actions ago, or that of `beginning`; without it nothing is
        known of the past. An aligner may ignore it.
        """

    def beginning(self, robots: int) -> Tensor:
        """The attention (B, N) of robots that have not begun."""

    def loss(self, images: Tensor, plan: Tensor, hidden: Tensor, skill: Tensor, away: Tensor) -> Tensor:
        """The mean loss over a batch.

        Some tokens of the plans are `hidden` (B, N); the true skill is (B, D); tokens are `away` (B, N) from the moment
        seen, counted in tokens.
        """


def most_like(skills: Tensor, plans: Tensor) -> Tensor:
    """The moments of plans (B, N, D) whose skills are most like the given ones (B, D): (B,)."""
    return F.cosine_similarity(skills[:, None], plans, dim=2).argmax(1)


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
        self.layers = nn.ModuleList(
            _Layer(width, config.heads, config.feedforward, config.dropout) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, skill))

    def forward(self, images: Tensor, plan: Tensor, before: Tensor | None = None) -> Alignment:
        return self._aligned(images, plan)

    def beginning(self, robots: int) -> Tensor:
        return torch.full((robots, self.tokens), 1 / self.tokens, device=self.summary.device)

    def loss(self, images: Tensor, plan: Tensor, hidden: Tensor, skill: Tensor, away: Tensor) -> Tensor:
        plan = torch.where(hidden[:, :, None], self.hidden, plan)
        return F.mse_loss(self._aligned(images, plan).skill.float(), skill)

    def _aligned(self, images: Tensor, plan: Tensor) -> Alignment:
        state = self.state(self.look(as_input(images))).float()[:, None]
        tokens = torch.cat([plan, state, self.summary.expand(len(plan), 1, -1)], dim=1) + self.positions
        for layer in self.layers[:-1]:
            tokens, _ = layer(tokens)
        tokens, attention = self.layers[-1](tokens, weights=True)
        skill: Tensor = self.head(self.norm(tokens[:, -1]))
        looked = attention[:, :, -1, : self.tokens].mean(1).float()
        return Alignment(skill, looked / looked.sum(1, keepdim=True).clamp(min=1e-9))


class PlanTracker(nn.Module):
    """A filter over the plan's moments: a learned fit of scene and moment, and a model of how robots move on."""

    def __init__(self, config: AlignerConfig, tokens: int, skill: int, size: tuple[int, int], pace: float) -> None:
        """`pace` is how many tokens a robot usually moves on in one chunk of actions."""
        super().__init__()
        self._config, self.tokens, self._pace = config, tokens, pace
        width, kernel = config.feedforward, config.neighbours * 2 + 1
        self.look, seen = looker(config.vision, config.vision_width, size)
        self.scene = nn.Sequential(nn.ReLU(), nn.Linear(seen, width))
        told = width * (2 if config.history else 1)
        self.moments = nn.Sequential(
            Convolution(skill, width, kernel, padding=config.neighbours), nn.ReLU(), Convolution(told, width, 1)
        )
        self.hidden = nn.Parameter(0.02 * torch.randn(skill))

    def forward(self, images: Tensor, plan: Tensor, before: Tensor | None = None) -> Alignment:
        fit = self._fit(images, plan).softmax(-1)
        if before is not None:
            belief = self.moved(before) * fit**self._config.trust
            fit = belief / belief.sum(1, keepdim=True).clamp(min=1e-30)
        return likeliest(plan, fit)

    def beginning(self, robots: int) -> Tensor:
        return F.one_hot(torch.zeros(robots, dtype=torch.long, device=self.hidden.device), self.tokens).float()

    def moved(self, before: Tensor) -> Tensor:
        """The belief (B, N) after a chunk of actions, before anything is seen of what came of it.

        Mostly it stays or moves on, by any step up to `advance` times the pace. Seldom it steps back to anywhere
        before, and very seldom it leaps to anywhere at all. What would run past the end is left out, so that the sum
        may fall below one: were it kept there, the last moment would draw the belief to itself.
        """
        config = self._config
        reach = max(1, math.ceil(config.advance * self._pace))
        total = F.pad(before, (reach + 1, 0)).cumsum(1)
        onward = (total[:, reach + 1 :] - total[:, : self.tokens]) / (reach + 1)
        places = torch.arange(1, self.tokens + 1, device=before.device)
        back = (before / places).flip(1).cumsum(1).flip(1)
        return (1 - config.step_back - config.leap) * onward + config.step_back * back + config.leap / self.tokens

    def loss(self, images: Tensor, plan: Tensor, hidden: Tensor, skill: Tensor, away: Tensor) -> Tensor:
        plan = torch.where(hidden[:, :, None], self.hidden, plan)
        wanted = (-0.5 * away.square()).softmax(-1)
        return F.cross_entropy(self._fit(images, plan), wanted)

    def _fit(self, images: Tensor, plan: Tensor) -> Tensor:
        """How well the scene fits each moment of the plan, (B, N), as logits."""
        scene, shown = self.scene(self.look(as_input(images))), self.moments[:2](F.normalize(plan, dim=-1).mT)
        if self._config.history:  # what a plan has shown by then, in whatever order, must be seen done
            shown = torch.cat([shown, shown.cummax(-1).values], 1)
        moments = self.moments[2](shown)
        fit: Tensor = (scene[:, None] @ moments)[:, 0].float() / moments.shape[1] ** 0.5
        return fit


def aligner_of(
    config: AlignerConfig, tokens: int, skill: int, size: tuple[int, int], pace: float
) -> SkillAligner | PlanTracker:
    """The aligner that a config describes."""
    if config.kind == "transformer":
        return SkillAligner(config, tokens, skill, size)
    return PlanTracker(config, tokens, skill, size, pace)


class _Layer(nn.Module):
    """One layer of a transformer encoder, normalised first, that can tell its attention."""

    def __init__(self, width: int, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self._heads, self._drop = heads, nn.Dropout(dropout)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.Linear(width, feedforward), nn.ReLU(), self._drop, nn.Linear(feedforward, width), self._drop
        )

    def forward(self, x: Tensor, *, weights: bool = False) -> tuple[Tensor, Tensor]:
        """Tokens (B, N, W) to tokens, and with `weights` the attention (B, heads, N, N)."""
        query, key, value = self.mixed(self.first(x)).unflatten(-1, (3, self._heads, -1)).permute(2, 0, 3, 1, 4)
        if weights:
            attention = (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1)
            mixed = self._drop(attention) @ value
        else:
            dropped = self._drop.p if self.training else 0.0
            attention, mixed = x[:, :0], F.scaled_dot_product_attention(query, key, value, dropout_p=dropped)
        x = x + self._drop(self.out(mixed.transpose(1, 2).flatten(2)))
        return x + self.feed(self.second(x)), attention
