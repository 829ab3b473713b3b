"""Training of policy and aligner together (paper, Algorithm 2)."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xskill.data.frames import FrameBank, FrameStore
from xskill.engine.loop import Batch, Step
from xskill.engine.seeds import generator, seed_everything
from xskill.errors import DataError
from xskill.transfer.alignment import aligner_of
from xskill.transfer.config import TransferConfig
from xskill.transfer.policy import Body, policy_of
from xskill.transfer.statistics import range_of

Ints = npt.NDArray[np.int64]

KNOTS = 8
"""Pieces of a warped plan, each with a speed of its own."""
APART = 4
"""Tokens around the moment seen that a splice leaves alone."""
MOMENTS = 64
"""Held-out moments on which actions are compared."""


class TransferModel(nn.Module):
    """What transfer learns: a policy and an aligner."""

    def __init__(self, config: TransferConfig, body: Body, tokens: int, pace: float) -> None:
        """Plans have this many `tokens`; in one chunk of actions a robot usually moves on by `pace` of them."""
        super().__init__()
        self.policy = policy_of(config.policy, body)
        self.aligner = aligner_of(config.aligner, tokens, body.skill, body.size, pace)

    def forward(self, batch: Mapping[str, Tensor], cameras: Sequence[str]) -> tuple[Tensor, Tensor]:
        """The policy's and the aligner's losses on a batch as `TransferPhase` makes it."""
        kept = batch["kept"]
        observation = {"state": batch["state"], **{camera: batch[camera] for camera in cameras}}
        policy = self.policy.loss(observation, batch["told"], batch["actions"], kept)
        scene = batch[cameras[0]][:, -1]
        return policy, self.aligner.loss(scene, batch["plan"], batch["hidden"], batch["skill"], batch["away"])


class TransferPhase:
    """Learns a `TransferModel` from the robot's episodes and their skills."""

    name = "transfer"
    monitor = "action_error"
    better: Literal["min", "max"] = "min"

    def __init__(
        self,
        config: TransferConfig,
        bank: FrameBank,
        skills: Tensor,
        train: Ints,
        held_out: Ints,
        seed: int,
        device: torch.device,
        stores: Mapping[str, FrameStore] | None = None,
    ) -> None:
        """`skills` (N, D) are those of the bank's frames; `train` and `held_out` its episodes."""
        episodes = bank.episodes
        if episodes.actions is None or episodes.states is None:
            raise DataError(f"{bank.path} has no actions, so no policy can learn from it: is it the robot's?")
        if len(skills) != episodes.frames:
            raise DataError(f"{len(skills)} skills for the {episodes.frames} frames of {bank.path}")
        if not len(train) or not len(held_out):
            raise DataError(f"{len(train)} episodes to learn from and {len(held_out)} held out; both must be there")
        self._config, self._episodes, self._train, self._held_out = config, episodes, train, held_out
        self.cameras = bank.cameras
        self._frames = stores or {camera: bank.on(device, camera) for camera in bank.cameras}
        self._skills = skills.to(device)
        self._states = torch.from_numpy(episodes.states).to(device)
        self._actions = torch.from_numpy(episodes.actions).to(device)
        rows = np.concatenate([np.arange(s, s + n) for s, n in self._spans(train)])
        ranges = range_of(episodes.states[rows]), range_of(episodes.actions[rows])
        self.body = Body(bank.cameras, bank.size, *ranges, skills.shape[1])
        length = float(episodes.lengths[train].mean())
        self.tokens = config.aligner.tokens or max(1, round(length / 2))
        self.pace = config.policy.execute * self.tokens / length
        seed_everything(seed, self.name, "weights")
        self.network = TransferModel(config, self.body, self.tokens, self.pace)
        self.module: nn.Module = self.network

    def _spans(self, episodes: Ints) -> list[tuple[int, int]]:
        pairs = zip(self._episodes.starts[episodes], self._episodes.lengths[episodes], strict=True)
        return [(int(start), int(length)) for start, length in pairs]

    def batch(self, step: Step) -> Batch:
        """Moments drawn evenly from all training frames."""
        lengths = torch.from_numpy(self._episodes.lengths[self._train])
        chosen = torch.multinomial(
            lengths.double(), self._config.batch_size, True, generator=step.generator("episodes")
        )
        share = torch.rand(len(chosen), generator=step.generator("moments"), dtype=torch.float64)
        return self._moments(self._train[chosen.numpy()], (share * lengths[chosen]).long(), step)

    def _moments(self, episodes: Ints, at: Tensor, step: Step) -> Batch:
        """Indices of everything that belongs to frame `at` of each episode."""
        config, policy = self._config, self._config.policy
        start = torch.from_numpy(self._episodes.starts[episodes])
        last = torch.from_numpy(self._episodes.lengths[episodes]) - 1
        seen = (at[:, None] + torch.arange(1 - policy.observe, 1)).clamp(min=0)
        done = at[:, None] + torch.arange(policy.predict) - (policy.observe - 1)
        kept = (done >= 0) & (done <= last[:, None]) if config.mask_padding else torch.full_like(done, True).bool()
        share = warped(len(at), self.tokens, config.plan_warp, step.generator("warp"))
        plan = torch.floor(share * last[:, None] + 0.5).long()
        away = (plan - at[:, None]) * (self.tokens / last.clamp(min=1)[:, None])
        pixels = torch.randint(-config.shift, config.shift + 1, (len(at), 2), generator=step.generator("shift"))
        return {
            "ids": start + at,
            "seen": start[:, None] + seen,
            "done": start[:, None] + done.clamp(min=0).minimum(last[:, None]),
            "kept": kept,
            "plan": spliced(start[:, None] + plan, away, config.plan_splice, step.generator("splice")),
            "away": away.float(),
            "shift": pixels,
        }

    def loss(self, module: nn.Module, batch: Batch, step: Step) -> tuple[Tensor, Mapping[str, Tensor]]:
        policy, aligner = module(self._looked_up(batch, noisy=True), self.cameras)
        return policy + aligner, {"policy_loss": policy, "aligner_loss": aligner}

    def _looked_up(self, batch: Batch, *, noisy: bool) -> dict[str, Tensor]:
        """What the indices of a batch stand for; `noisy` as in training."""
        config = self._config
        images = {camera: shifted(store[batch["seen"]], batch["shift"]) for camera, store in self._frames.items()}
        state, skill, plan = self._states[batch["seen"]], self._skills[batch["ids"]], self._skills[batch["plan"]]
        told, hidden = skill, torch.zeros(plan.shape[:2], dtype=torch.bool, device=plan.device)
        if noisy:
            width = torch.tensor(self.body.states.half, device=state.device)
            state = state + config.state_noise * width * torch.randn_like(state)
            told, plan = _disturbed(skill, config.skill_noise), _disturbed(plan, config.plan_noise)
            hidden = torch.rand(plan.shape[:2], device=plan.device) < config.plan_drop
        actions = self._actions[batch["done"]]
        return {
            **images, "state": state, "skill": skill, "told": told, "plan": plan, "hidden": hidden,
            "away": batch["away"], "actions": actions, "kept": batch["kept"],
        }  # fmt: skip

    def updated(self) -> None:
        pass

    def evaluate(self, module: nn.Module) -> Mapping[str, float]:
        assert isinstance(module, TransferModel)
        spans = self._spans(self._held_out)
        which = np.arange(MOMENTS) % len(spans)
        share = torch.rand(MOMENTS, generator=generator("transfer", "held out"), dtype=torch.float64)
        at = (share * torch.tensor([spans[index][1] for index in which])).long()
        step = Step(0, self.name, 0)
        device = self._skills.device
        batch = {n: t.to(device) for n, t in self._moments(self._held_out[which], at, step).items()}
        batch["shift"] = torch.zeros_like(batch["shift"])
        seen = self._looked_up(batch, noisy=False)
        policy_loss, aligner_loss = module(seen, self.cameras)
        found = module.aligner(seen[self.cameras[0]][:, -1], seen["plan"])
        draws = [generator("transfer", "act", index) for index in range(MOMENTS)]
        chunk = module.policy.act({k: seen[k] for k in ("state", *self.cameras)}, seen["told"], draws)
        now = self._config.policy.observe - 1
        executed = slice(now, now + self._config.policy.execute)
        width = torch.tensor(self.body.actions.half, device=device)
        believed = found.attention.argmax(1)
        place_error = seen["away"].gather(1, believed[:, None]).abs().mean().item() / self.tokens
        error = ((chunk - seen["actions"]) / width).abs()[:, executed].mean().item()
        return {
            "action_error": error,
            "held_out_policy_loss": policy_loss.item(),
            "held_out_aligner_loss": aligner_loss.item(),
            "aligner_place_error": place_error,
            "aligner_cosine": F.cosine_similarity(found.skill.float(), seen["skill"]).mean().item(),
        }


def warped(plans: int, tokens: int, amount: float, random: torch.Generator) -> Tensor:
    """Where in its episode each token of each plan comes from, 0 to 1, rising: evenly, or faster in places, (P, N)."""
    even = torch.linspace(0, 1, tokens, dtype=torch.float64).expand(plans, -1)
    drawn = 2 * torch.rand(plans, KNOTS, generator=random, dtype=torch.float64) - 1
    if not amount:
        return even
    passed = F.pad(torch.cumsum((amount * math.log(2) * drawn).exp(), 1), (1, 0))
    passed = passed / passed[:, -1:]
    piece = (even * KNOTS).long().clamp(max=KNOTS - 1)
    low, high = passed.gather(1, piece), passed.gather(1, piece + 1)
    return low + (even * KNOTS - piece) * (high - low)


def spliced(plans: Tensor, away: Tensor, often: float, random: torch.Generator) -> Tensor:
    """Plans (B, N) whose later part, and whose earlier one, is `often` that of the next plan of the batch.

    What is replaced begins `APART` tokens or more from the moment seen, at a place of its own for each plan.
    """
    draw = torch.rand(4, len(plans), 1, generator=random)
    apart = APART + draw[2:] * away.abs().amax(1, keepdim=True)
    other = plans.roll(1, 0)
    later, earlier = (away > apart[0]) & (draw[0] < often), (away < -apart[1]) & (draw[1] < often)
    return torch.where(later | earlier, other, plans)


def shifted(images: Tensor, by: Tensor) -> Tensor:
    """Images (B, O, H, W, 3) moved by (B, 2) pixels down and right; what enters repeats the border."""
    height, width = images.shape[2:4]
    rows = (torch.arange(height, device=images.device) - by[:, :1]).clamp(0, height - 1)
    columns = (torch.arange(width, device=images.device) - by[:, 1:]).clamp(0, width - 1)
    which = torch.arange(len(images), device=images.device)[:, None, None, None]
    window = torch.arange(images.shape[1], device=images.device)[None, :, None, None]
    return images[which, window, rows[:, None, :, None], columns[:, None, None, :]]


def _disturbed(skills: Tensor, share: float) -> Tensor:
    """Skills (..., D) with noise of `share` of their length."""
    if not share:
        return skills
    scale: Tensor = share * skills.norm(dim=-1, keepdim=True) / skills.shape[-1] ** 0.5
    return skills + scale * torch.randn_like(skills)
