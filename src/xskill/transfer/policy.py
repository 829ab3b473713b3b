"""The skill-conditioned policy P(a | s, z): observations and a skill in, a chunk of actions out (paper, "Transfer")."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xskill.discover.encoder import as_input
from xskill.errors import DataError
from xskill.transfer.config import PolicyConfig
from xskill.transfer.statistics import Range, Scale
from xskill.transfer.unet import UNet1D
from xskill.transfer.vision import looker

Observation = Mapping[str, Tensor]
"""`state` (B, O, S) in the robot's units, and for every camera its images (B, O, H, W, 3), uint8."""


@dataclass(frozen=True)
class Body:
    """What a policy must know of the robot."""

    cameras: tuple[str, ...]
    size: tuple[int, int]
    states: Range
    actions: Range
    skill: int
    """Dimensions of a skill."""

    @property
    def sizes(self) -> tuple[object, ...]:
        """What a policy's weights depend on."""
        return self.cameras, self.size, len(self.states.half), len(self.actions.half), self.skill

    def __str__(self) -> str:
        numbers = f"{len(self.states.half)} numbers of state, {len(self.actions.half)} of action"
        return f"{numbers}, skills of {self.skill}, {self.size[0]}x{self.size[1]} images of {', '.join(self.cameras)}"


class SkillPolicy(Protocol):
    """What any imitation policy must offer to be given skills."""

    def loss(self, observation: Observation, skill: Tensor, actions: Tensor, kept: Tensor) -> Tensor:
        """The mean loss over a batch: skills (B, D), actions (B, T, A), which of those count (B, T)."""

    def noise(self, generators: Sequence[torch.Generator]) -> Tensor:
        """All that is random in the chunks of B robots, each drawn from its own generator: (B, ...)."""

    def act(self, observation: Observation, skill: Tensor, noise: Tensor) -> Tensor:
        """Chunks of actions (B, T, A) in the robot's units."""


class GoalEncoder(nn.Module):
    """Images to be reached, (N, H, W, 3), values from -1 to 1, to what a policy is told instead of skills, (N, D)."""

    def __init__(self, config: PolicyConfig, body: Body) -> None:
        super().__init__()
        self.look, seen = looker(config.vision, config.vision_width, body.size)
        self.head = nn.Sequential(nn.Linear(seen, body.skill), nn.LayerNorm(body.skill, elementwise_affine=False))

    def forward(self, images: Tensor) -> Tensor:
        told: Tensor = self.head(self.look(images))
        return told


CAMERA = "camera "
"""Before a camera's name among the tensors of a batch: what else is there may have any name."""


def observed(batch: Mapping[str, Tensor], cameras: Sequence[str]) -> dict[str, Tensor]:
    """What a policy sees, of all that belongs to a batch."""
    return {"state": batch["state"], **{camera: batch[CAMERA + camera] for camera in cameras}}


class Sight(nn.Module):
    """Observations and a skill to one condition vector (B, C)."""

    def __init__(self, config: PolicyConfig, body: Body) -> None:
        super().__init__()
        self._blind = config.blind
        lookers = {camera: looker(config.vision, config.vision_width, body.size) for camera in body.cameras}
        self.cameras = nn.ModuleDict({camera: network for camera, (network, _) in lookers.items()})
        self.states = Scale(body.states)
        seen = sum(width for _, width in lookers.values()) + len(body.states.half)
        self.width = config.observe * seen + body.skill
        self.squeeze: nn.Module = nn.Identity()
        if config.condition_width:
            self.squeeze = nn.Sequential(nn.Linear(self.width, config.condition_width), nn.Mish())
            self.width = config.condition_width

    def forward(self, observation: Observation, skill: Tensor) -> Tensor:
        parts = [self.states(observation["state"]).flatten(1)]
        for camera, network in self.cameras.items():
            images = observation[camera]
            parts.append(network(as_input(images.flatten(0, 1))).unflatten(0, images.shape[:2]).flatten(1))
        parts.append(torch.zeros_like(skill) if self._blind else skill)
        condition: Tensor = self.squeeze(torch.cat([part.float() for part in parts], dim=-1))
        return condition


class DiffusionPolicy(nn.Module):
    """Chi et al.: denoise a chunk of actions, conditioned on what is seen and which skill is to be executed."""

    def __init__(self, config: PolicyConfig, body: Body) -> None:
        super().__init__()
        self._config, self._shape = config, (config.predict, len(body.actions.half))
        self.sight, self.actions = Sight(config, body), Scale(body.actions)
        self.unet = UNet1D(self._shape[1], self.sight.width, config.channels, config.kernel, config.time_width)
        self._schedule = {
            "num_train_timesteps": config.train_steps,
            "beta_schedule": "squaredcos_cap_v2",
            "prediction_type": {"noise": "epsilon", "actions": "sample"}[config.guess],
        }
        import diffusers  # takes seconds, which whoever only discovers skills need not wait

        self._noising = diffusers.DDPMScheduler(**self._schedule)

    def loss(self, observation: Observation, skill: Tensor, actions: Tensor, kept: Tensor) -> Tensor:
        wanted = self.actions(actions)
        noise = torch.randn_like(wanted)
        level = torch.randint(self._config.train_steps, (len(wanted),), device=wanted.device)
        guessed = self.unet(self._noising.add_noise(wanted, noise, level), level, self.sight(observation, skill))
        right = noise if self._config.guess == "noise" else wanted
        return _kept_mean(F.mse_loss(guessed.float(), right, reduction="none"), kept)

    def noise(self, generators: Sequence[torch.Generator]) -> Tensor:
        draws = self._config.solver_steps if self._config.solver == "ddpm" else 1
        return torch.stack(
            [torch.stack([torch.randn(self._shape, generator=one) for _ in range(draws)]) for one in generators]
        )

    @torch.no_grad()
    def act(self, observation: Observation, skill: Tensor, noise: Tensor) -> Tensor:
        condition, solver, chunk = self.sight(observation, skill), self._solver(), noise[:, 0]
        for index, step in enumerate(solver.timesteps.tolist()):
            level = torch.full((len(chunk),), step, device=chunk.device)
            guess = self.unet(chunk, level, condition)
            if self._config.solver == "ddpm":
                chunk = _ancestor(solver, guess, step, chunk, noise[:, (index + 1) % noise.shape[1]])
            else:
                chunk = solver.step(guess, step, chunk, return_dict=False)[0]
        return self.actions.back(chunk)

    def _solver(self) -> Any:
        """What denoises, ready to begin with noise alone, at the highest level."""
        import diffusers

        count, levels = self._config.solver_steps, self._config.train_steps
        if self._config.solver == "ddim":
            how = {"clip_sample": True, "set_alpha_to_one": True, "timestep_spacing": "trailing"}
            even = diffusers.DDIMScheduler(**self._schedule, **how)
            even.set_timesteps(count)
            return even
        if self._config.solver == "ddpm":
            solver = diffusers.DDPMScheduler(**self._schedule, clip_sample=True)
        else:
            solver = diffusers.DPMSolverMultistepScheduler(**self._schedule, solver_order=2)
        solver.set_timesteps(timesteps=[levels * (count - step) // count - 1 for step in range(count)])
        return solver


class CloningPolicy(nn.Module):
    """Plain behaviour cloning: the chunk in one go, by mean squared error."""

    def __init__(self, config: PolicyConfig, body: Body) -> None:
        super().__init__()
        self.sight, self.actions = Sight(config, body), Scale(body.actions)
        width, chunk = 2 * config.channels[0], (config.predict, len(body.actions.half))
        self.head = nn.Sequential(
            nn.Linear(self.sight.width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, math.prod(chunk)), nn.Unflatten(1, chunk),
        )  # fmt: skip

    def loss(self, observation: Observation, skill: Tensor, actions: Tensor, kept: Tensor) -> Tensor:
        guessed = self.head(self.sight(observation, skill))
        wanted = self.actions(actions)
        return _kept_mean(F.mse_loss(guessed.float(), wanted, reduction="none"), kept)

    def noise(self, generators: Sequence[torch.Generator]) -> Tensor:
        return torch.zeros(len(generators), 0)

    @torch.no_grad()
    def act(self, observation: Observation, skill: Tensor, noise: Tensor) -> Tensor:
        return self.actions.back(self.head(self.sight(observation, skill)))


def policy_of(config: PolicyConfig, body: Body) -> DiffusionPolicy | CloningPolicy:
    """The policy that a config describes."""
    if not body.cameras:
        raise DataError("a policy needs at least one camera")
    if "state" in body.cameras:
        raise DataError("a camera cannot be called 'state': that is the joints' name in an observation")
    return DiffusionPolicy(config, body) if config.kind == "diffusion" else CloningPolicy(config, body)


def _kept_mean(errors: Tensor, kept: Tensor) -> Tensor:
    """The mean of errors (B, T, A) over the steps kept (B, T)."""
    weights = kept.to(errors.dtype)[:, :, None].expand_as(errors)
    return (errors * weights).sum() / weights.sum().clamp(min=1)


def _ancestor(solver: Any, guess: Tensor, level: int, chunk: Tensor, noise: Tensor) -> Tensor:
    """One step of DDPM as diffusers does it, but with noise drawn beforehand; none is added in the last one."""
    below = int(solver.previous_timestep(level))
    signal = float(solver.alphas_cumprod[level])
    cleaner = float(solver.alphas_cumprod[below]) if below >= 0 else 1.0
    if solver.config.prediction_type == "epsilon":
        guess = (chunk - math.sqrt(1 - signal) * guess) / math.sqrt(signal)
    kept, added = signal / cleaner, 1 - signal / cleaner
    mean = (math.sqrt(cleaner) * added * guess.clamp(-1, 1) + math.sqrt(kept) * (1 - cleaner) * chunk) / (1 - signal)
    return mean + math.sqrt((1 - cleaner) / (1 - signal) * added) * noise
