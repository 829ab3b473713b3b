"""Training of policy and aligner together (paper, Algorithm 2)."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xskill.data.frames import FrameBank, FrameStore, ResidentFrames
from xskill.engine.checkpoint import Better
from xskill.engine.loop import Batch, Hot, Step
from xskill.engine.seeds import generator, seed_everything
from xskill.errors import DataError
from xskill.transfer.alignment import most_like
from xskill.transfer.augment import KNOTS, disturbed, shifted, spliced, warped
from xskill.transfer.config import TransferConfig
from xskill.transfer.counterpart import Shown, counterparts
from xskill.transfer.network import TransferModel
from xskill.transfer.policy import CAMERA, Body, observed
from xskill.transfer.statistics import range_of
from xskill.transfer.undone import EVENTS, PIXELS, Undone, undone_in

Ints = npt.NDArray[np.int64]

LEAD = 0.1
"""How long before something is done, as a share of the episode, a robot begins anew that sees it undone."""
MOMENTS = 64
"""Held-out moments on which actions are compared."""


class TransferPhase:
    """Learns a `TransferModel` from the robot's episodes and their skills."""

    name = "transfer"
    monitor = "action_error"
    better: Better = "newest"  # how near held-out actions are says little about how a robot fares

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
        watched: Sequence[Shown] = (),
        body: Body | None = None,
    ) -> None:
        """`skills` (N, D) are those of the bank's frames; `train` and `held_out` its episodes.

        What demonstrators have shown is `watched`, to be measured on, and to tell moments as they show them. A `body`
        that is known already is kept, or else learned about from the episodes.
        """
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
        self.settled = 0 if all(isinstance(store, ResidentFrames) for store in self._frames.values()) else None
        if config.cross and not watched:
            raise DataError(f"transfer.cross is {config.cross}, but nobody is watched who could show anything")
        self._skills = torch.cat([skills, *(body.skills for body in watched)]).to(device)
        own = Shown(self._skills[: len(skills)], episodes.starts, episodes.lengths)
        self._counterparts = counterparts(own, watched)
        self._states = torch.from_numpy(episodes.states).to(device)
        self._actions = torch.from_numpy(episodes.actions).to(device)
        rows = np.concatenate([np.arange(s, s + n) for s, n in self._spans(train)])
        ranges = range_of(episodes.states[rows]), range_of(episodes.actions[rows])
        found = Body(bank.cameras, bank.size, *ranges, skills.shape[1])
        self.body = body or found
        if self.body.sizes != found.sizes:
            raise DataError(f"{bank.path} is of a robot with {found}; the model to go on from has {self.body}")
        self._width = torch.tensor(self.body.states.half, device=device)
        whole = train[episodes.begins[train] == 0]  # what was undone and done again takes longer
        length = float(episodes.lengths[whole if len(whole) else train].mean())
        self.tokens = config.aligner.tokens or max(1, round(length / 2))
        self.pace = config.policy.execute * self.tokens / length
        seed_everything(seed, self.name, "weights")
        self.network = TransferModel(config, self.body, self.tokens, self.pace)
        self.module: nn.Module = self.network
        self.hot: Sequence[Hot] = [*self.network.parts(), (self, "_noisy")]

    def out_of_reach(self) -> float:
        """The share of actions beyond the range that the policy can act in."""
        reach, device = self.body.actions, self._actions.device
        middle, half = torch.tensor(reach.middle, device=device), torch.tensor(reach.half, device=device)
        return ((self._actions - middle).abs() > half * 1.001).any(1).float().mean().item()

    def _spans(self, episodes: Ints) -> list[tuple[int, int]]:
        pairs = zip(self._episodes.starts[episodes], self._episodes.lengths[episodes], strict=True)
        return [(int(start), int(length)) for start, length in pairs]

    @cached_property
    def _undone(self) -> Undone | None:
        """What was done when in the episodes, found when it is needed: it takes a while."""
        if not self._config.undo:
            return None
        some = np.concatenate([self._train, self._held_out])
        begins = self._episodes.begins[some]
        spans = [(s + b, n - b) for (s, n), b in zip(self._spans(some), begins.tolist(), strict=True)]
        undone = undone_in(self._frames[self.cameras[0]], dict(zip(some.tolist(), spans, strict=True)))
        undone.times[some] += torch.from_numpy(begins)[:, None]
        return undone

    def batch(self, step: Step) -> Batch:
        """Moments drawn evenly from all training frames but preludes."""
        begins = torch.from_numpy(self._episodes.begins[self._train])
        lengths = torch.from_numpy(self._episodes.lengths[self._train]) - begins
        chosen = torch.multinomial(
            lengths.double(), self._config.batch_size, True, generator=step.generator("episodes")
        )
        share = torch.rand(len(chosen), generator=step.generator("moments"), dtype=torch.float64)
        others = self._counterparts.starts.shape[1] - 1
        crossing = torch.rand(len(chosen), generator=step.generator("cross")) < self._config.cross
        if others and self._config.cross:  # a video in which something is undone is like no prompt
            crossing |= begins[chosen] > 0
        which = 1 + torch.randint(max(1, others), (len(chosen),), generator=step.generator("counterpart"))
        moments = self._train[chosen.numpy()], begins[chosen] + (share * lengths[chosen]).long(), which * crossing
        return self._moments(*moments, step, self._config.undo)

    def _moments(self, episodes: Ints, at: Tensor, which: Tensor, step: Step, undo: float) -> Batch:
        """Frame `at` of each episode, and what is drawn for it, told as its counterpart `which` shows it, 0 for itself.

        At a share of `undo`, where anything was done by then, some of it is undone, and `back` is where that is done in
        the plan. Beside a plan stands that of another in the batch. What belongs to a moment follows from this on the
        device, where it costs less.
        """
        start = torch.from_numpy(self._episodes.starts[episodes])
        begin = torch.from_numpy(self._episodes.begins[episodes])
        last = torch.from_numpy(self._episodes.lengths[episodes]) - 1
        shift, shown, chosen = self._config.shift, self._counterparts, torch.from_numpy(episodes)
        event, due = self._undoing(chosen, at, last, undo, step)
        moments = (at, at + self._config.policy.ahead, due)
        now, then, back = (shown.at(chosen, which, m.minimum(last) / last.clamp(min=1)) for m in moments)
        speeds = torch.rand(len(at), KNOTS, generator=step.generator("warp"))
        plans = shown.starts[chosen, which], shown.lasts[chosen, which], speeds
        starts, lasts, speeds = (torch.stack([drawn, drawn.roll(1, 0)], 1) for drawn in plans)
        return {
            "ids": start + at,
            "start": start,
            "begin": begin,
            "last": last,
            "episode": chosen,
            "event": event,
            "now": now,
            "then": then,
            "back": back,
            "plan_start": starts,
            "plan_last": lasts,
            "speeds": speeds,
            "splice": torch.rand(len(at), 4, generator=step.generator("splice")),
            "shift": torch.randint(-shift, shift + 1, (len(at), 2), generator=step.generator("shift")),
        }

    def _undoing(self, episodes: Tensor, at: Tensor, last: Tensor, undo: float, step: Step) -> tuple[Tensor, Tensor]:
        """What is undone at frame `at` of each episode, if anything, and the frame from which on it is done."""
        if self._undone is None:
            return torch.full_like(at, EVENTS), at
        times = self._undone.times[episodes]
        draws = torch.rand(len(at), EVENTS + 1, generator=step.generator("undo"))
        chance, event = torch.where(times < at[:, None], draws[:, 1:], -1).max(1)
        wanted = (chance >= 0) & (draws[:, 0] < undo)
        begins = torch.from_numpy(self._episodes.begins)[episodes]
        due = (times.gather(1, event[:, None])[:, 0] - (LEAD * (last - begins)).long()).maximum(begins)
        return torch.where(wanted, event, EVENTS), torch.where(wanted, due, at)

    def loss(self, module: nn.Module, batch: Batch, step: Step) -> tuple[Tensor, Mapping[str, Tensor]]:
        policy, aligner = module(self._looked_up(batch, noisy=True), self.cameras)
        return policy + aligner, {"policy_loss": policy, "aligner_loss": aligner}

    def _looked_up(self, batch: Batch, *, noisy: bool) -> dict[str, Tensor]:
        """Everything that belongs to the moments of a batch, on the device; `noisy` as in training."""
        config, policy, device = self._config, self._config.policy, self._skills.device
        start, begin, last = (batch[name][:, None] for name in ("start", "begin", "last"))
        at = batch["ids"][:, None] - start
        seen = start + (at + torch.arange(1 - policy.observe, 1, device=device)).maximum(begin)
        done = at + torch.arange(policy.predict, device=device) - (policy.observe - 1)
        kept = (done >= begin) & (done <= last) if config.mask_padding else torch.ones_like(done, dtype=torch.bool)
        done = start + done.maximum(begin).minimum(last)
        shares = warped(batch["speeds"], self.tokens, config.plan_warp)  # (B, 2, tokens), this plan and another
        plans = batch["plan_start"][:, :, None] + torch.floor(shares * batch["plan_last"][:, :, None] + 0.5).long()

        images = {CAMERA + camera: store[seen] for camera, store in self._frames.items()}
        scene, place = images[CAMERA + self.cameras[0]][:, -1], batch["now"]
        undone = torch.zeros_like(place, dtype=torch.bool)
        if self._undone is not None:
            changed, pixels = self._undone.scene(scene, batch["episode"], batch["event"])
            undone = pixels >= PIXELS  # else it is hidden, and nobody can tell
            scene = torch.where(undone[:, None, None, None], changed, scene)
            place = torch.where(undone, batch["back"], place)
        images["scene"] = scene[:, None]
        away = (plans[:, 0] - place[:, None]) * (self.tokens / batch["plan_last"][:, :1].clamp(min=1))
        plan = spliced(plans, away, config.plan_splice, batch["splice"])
        state, skill, tokens = self._states[seen], self._skills[place], self._skills[plan]
        if policy.told == "goal":
            images["goal"] = self._frames[self.cameras[0]][batch["then"][:, None]]
        told, hidden = self._skills[batch["then"]], torch.zeros(plan.shape, dtype=torch.bool, device=device)
        if noisy:
            images, state, told, tokens, hidden = self._noisy(images, batch["shift"], state, told, tokens)
        images |= {name: images[name][:, 0] for name in ("scene", "goal") if name in images}
        return {
            **images, "state": state, "skill": skill, "told": told, "plan": tokens, "hidden": hidden, "away": away,
            "undone": undone, "actions": self._actions[done], "kept": kept,
        }  # fmt: skip

    def _noisy(
        self, images: dict[str, Tensor], by: Tensor, state: Tensor, told: Tensor, plan: Tensor
    ) -> tuple[dict[str, Tensor], Tensor, Tensor, Tensor, Tensor]:
        """Images, joints, skills and plans as training shows them, and which tokens of the plans it hides."""
        config = self._config
        return (
            {camera: shifted(frames, by) for camera, frames in images.items()},
            state + config.state_noise * self._width * torch.randn_like(state),
            disturbed(told, config.skill_noise),
            disturbed(plan, config.plan_noise),
            torch.rand(plan.shape[:2], device=plan.device) < config.plan_drop,
        )

    def updated(self) -> None:
        pass

    def evaluate(self, module: nn.Module) -> Mapping[str, float]:
        assert isinstance(module, TransferModel)
        seen = self._held_out_moments(0)
        policy_loss, aligner_loss = module(seen, self.cameras)
        measured = {"action_error": self._action_error(module, seen)}
        if seen["state"].shape[-1] == seen["actions"].shape[-1]:
            still = self._off(seen["state"][:, -1:], seen["actions"])
            measured["over_standing_still"] = measured["action_error"] / max(still, 1e-9)
        measured |= {"held_out_policy_loss": policy_loss.item(), "held_out_aligner_loss": aligner_loss.item()}
        measured |= self._place_errors(module, seen, "aligner")
        if self._counterparts.starts.shape[1] > 1:
            shown = self._held_out_moments(1)
            measured["action_error_cross"] = self._action_error(module, shown)
            measured |= self._place_errors(module, shown, "aligner_cross")
        if self._undone is not None:
            shown = self._held_out_moments(0, undo=1)
            if shown["undone"].any():
                some = {name: tensor[shown["undone"]] for name, tensor in shown.items()}
                measured |= self._place_errors(module, some, "aligner_undone")
        return measured

    def _held_out_moments(self, which: int, undo: float = 0) -> dict[str, Tensor]:
        """The same moments of held-out episodes every time, told as their counterpart `which` shows them."""
        spans = self._spans(self._held_out)
        episodes = np.arange(MOMENTS) % len(spans)
        share = torch.rand(MOMENTS, generator=generator("transfer", "held out"), dtype=torch.float64)
        at = (share * torch.tensor([spans[index][1] for index in episodes])).long()
        batch = self._moments(self._held_out[episodes], at, torch.full_like(at, which), Step(0, self.name, 0), undo)
        return self._looked_up({n: t.to(self._skills.device) for n, t in batch.items()}, noisy=False)

    def _action_error(self, module: TransferModel, seen: dict[str, Tensor]) -> float:
        draws = [generator("transfer", "act", index) for index in range(MOMENTS)]
        noise = module.policy.noise(draws).to(self._skills.device)
        chunk = module.policy.act(observed(seen, self.cameras), module.told(seen), noise)
        return self._off(chunk, seen["actions"])

    def _off(self, actions: Tensor, wanted: Tensor) -> float:
        """How far the part of a chunk that is carried out is from what is wanted, in units of the actions' ranges."""
        policy, width = self._config.policy, torch.tensor(self.body.actions.half, device=wanted.device)
        executed = slice(policy.observe - 1, policy.observe - 1 + policy.execute)
        return ((actions - wanted) / width).abs()[:, executed].mean().item()

    def _place_errors(self, module: TransferModel, seen: dict[str, Tensor], name: str) -> dict[str, float]:
        """How far the skill that an aligner finds is from where it should be in the plan, and how unlike the true one.

        Its place is that of the plan's skill that is most like it: nothing makes a transformer look at a place.
        """
        found = module.aligner(seen["scene"], seen["plan"])
        place = most_like(found.skill.float(), seen["plan"])
        off = seen["away"].gather(1, place[:, None]).abs().mean().item()
        cosine = F.cosine_similarity(found.skill.float(), seen["skill"]).mean().item()
        return {f"{name}_place_error": off / self.tokens, f"{name}_cosine": cosine}
