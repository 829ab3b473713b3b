"""Training of the skill encoder and the prototypes (paper, Algorithm 1)."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from xskill.data.episodes import uniform_frames
from xskill.data.frames import FrameBank, ResidentFrames, stores
from xskill.discover.augment import VIEWS, Views, augment, draw_views
from xskill.discover.config import DiscoverConfig
from xskill.discover.encoder import SkillModel
from xskill.discover.losses import Neighbours, draw_neighbours, swapped_prediction, time_contrast
from xskill.discover.measure import HeldOut, measures
from xskill.engine.checkpoint import Better
from xskill.engine.loop import Batch, Hot, Step
from xskill.engine.seeds import generator, seed_everything
from xskill.errors import DataError

Ints = npt.NDArray[np.int64]

AT_CHANCE = 0.98
"""Prototype loss over log K from which on it is no better than guessing."""
COLLAPSED = 0.1
"""Used by an embodiment is less than this share of the prototypes: its skills have collapsed."""


@dataclass(frozen=True, eq=False)
class Footage:
    """The videos of one embodiment: a bank, which of its episodes train, and which are only looked at."""

    bank: FrameBank
    train: Ints
    held_out: Ints

    def __post_init__(self) -> None:
        if not len(self.train):
            raise DataError(f"there is no video of '{self.name}' to learn from in {self.bank.path}")

    @property
    def name(self) -> str:
        """The embodiment."""
        return self.bank.episodes.embodiment


class DiscoverPhase:
    """Learns a `SkillModel`. The first of `footage` is the robot's by custom; nothing here depends on it."""

    name = "discover"
    monitor = "shared_usage"

    def __init__(
        self,
        config: DiscoverConfig,
        footage: Sequence[Footage],
        seed: int,
        device: torch.device,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        check(footage, config, warn)
        self._config, self._footage, self._warn = config, tuple(footage), functools.cache(warn)  # the same, once
        self.better: Better = "max" if config.keep == "aligned" else "newest"
        self.frames = stores([videos.bank for videos in footage], device)
        alike = not config.alternate and all(isinstance(store, ResidentFrames) for store in self.frames)
        self.settled = config.frozen_steps if alike else None
        self.held_out = [
            HeldOut(videos.bank, frames, videos.held_out) for videos, frames in zip(footage, self.frames, strict=True)
        ]
        seed_everything(seed, self.name, "weights")
        self._model = SkillModel(config, footage[0].bank.size)
        self.module: nn.Module = self._model
        self.hot: Sequence[Hot] = ((self.module, "forward"),)
        self._held: Tensor | None = None
        self._pixels = self.pixels(config, device)

    @staticmethod
    def pixels(config: DiscoverConfig, device: torch.device) -> torch.dtype:
        """The format of augmented pixels: half precision where the network's own is."""
        return torch.float16 if device.type == "cuda" and config.loop.precision == "bf16" else torch.float32

    def batch(self, step: Step) -> Batch:
        """Videos of all embodiments whose turn it is, in rotation, so that every process gets as many of each."""
        return self._batch({body: self._drawn(self._footage[body], step) for body in self._turn(step)}, step)

    def _turn(self, step: Step) -> Sequence[int]:
        """The embodiments that are shown in a step."""
        bodies = range(len(self._footage))
        return (step.index % len(bodies),) if self._config.alternate else bodies

    def _batch(self, chosen: Mapping[int, Ints], step: Step) -> Batch:
        """Videos of embodiments, each given by its number and the episodes it shows."""
        config, episodes = self._config, list(chosen.values())
        frames = [self._frames_of(self._footage[body], some, step) for body, some in chosen.items()]
        ids, index = (torch.from_numpy(np.stack(parts, 1)).flatten(0, 1) for parts in (episodes, frames))
        near, far = draw_neighbours(
            len(ids), config.frames_per_video,
            positive_window=config.positive_window, negative_window=config.negative_window,
            negatives=config.negatives, generator=step.generator("neighbours"),
        )  # fmt: skip
        runs = config.frames_per_video if config.augment.each_frame else 1
        views = torch.stack(draw_views(len(ids) * runs, config.augment, step.generator("views")), -1)
        drawn = {"views": views.unflatten(0, (-1, runs)), "positive": near, "negatives": far}
        return {"ids": ids, "frames": index, **drawn}

    def _frames_of(self, footage: Footage, chosen: Ints, step: Step) -> Ints:
        """The frames (V, M) of some episodes that are seen in a step."""
        episodes, count = footage.bank.episodes, self._config.frames_per_video
        starts, lengths = episodes.starts[chosen], episodes.lengths[chosen]
        if self._config.sampling == "even":
            return uniform_frames(starts, lengths, count)
        return random_frames(starts, lengths, count, step.generator(f"frames of {footage.name}"))

    def _drawn(self, footage: Footage, step: Step) -> Ints:
        """Episodes (videos,) of one embodiment: each once in an epoch, in an order drawn from the seed."""
        count = len(footage.train)
        turn = step.index // (len(self._footage) if self._config.alternate else 1)
        places = turn * self._config.videos + np.arange(self._config.videos)
        epochs = {int(epoch): self._order(footage, step.seed, int(epoch)) for epoch in np.unique(places // count)}
        drawn: Ints = footage.train[[epochs[place // count][place % count] for place in places.tolist()]]
        return drawn

    def _order(self, footage: Footage, seed: int, epoch: int) -> Ints:
        whose = self._footage[0] if self._config.paired else footage
        return torch.randperm(len(footage.train), generator=generator(seed, self.name, whose.name, epoch)).numpy()

    def loss(self, module: nn.Module, batch: Batch, step: Step) -> tuple[Tensor, Mapping[str, Tensor]]:
        config = self._config
        frozen = step.index < config.frozen_steps
        self._held = self._model.prototypes.weight.detach().clone() if frozen else None
        parts = self._losses(module, batch, self._turn(step), frozen=frozen, together=True)
        return config.prototype_weight * parts["prototype_loss"] + config.time_weight * parts["time_loss"], parts

    def _losses(
        self, module: nn.Module, batch: Batch, shown: Sequence[int], *, frozen: bool, together: bool
    ) -> dict[str, Tensor]:
        """The losses on a batch of the embodiments that are shown."""
        config, bodies = self._config, len(shown)
        rows = {name: tensor.unflatten(0, (-1, bodies)).transpose(0, 1) for name, tensor in batch.items()}
        frames = torch.cat([self.frames[body][index] for body, index in zip(shown, rows["frames"], strict=True)])
        views = Views(*rows["views"].flatten(0, 2).unbind(-1))
        pictures = augment(frames, views, config.augment.blur_sigma[1], self._pixels)
        scores = module(pictures.flatten(0, 1), frozen=frozen).unflatten(0, (VIEWS, bodies, -1))  # ... video, clip, K
        prototype, time = [], []
        for body in range(bodies):  # each is clustered alone, and so has to use every prototype
            clips = scores[:, body].flatten(1, 2)
            prototype.append(
                swapped_prediction(
                    clips[0],
                    clips[1],
                    temperature=config.temperature,
                    epsilon=config.sinkhorn_epsilon,
                    iterations=config.sinkhorn_iterations,
                    together=together,
                )
            )
            neighbours = Neighbours(rows["positive"][body], rows["negatives"][body])
            time += [time_contrast(view, neighbours, temperature=config.time_temperature) for view in scores[:, body]]
        return {"prototype_loss": torch.stack(prototype).mean(), "time_loss": torch.stack(time).mean()}

    def updated(self) -> None:
        if self._held is not None:  # weight decay moves what has no gradient, too
            with torch.no_grad():
                self._model.prototypes.weight.copy_(self._held)
        self._model.prototypes.renormalise()

    def evaluate(self, module: nn.Module) -> Mapping[str, float]:
        assert isinstance(module, SkillModel)
        config, device = self._config, module.prototypes.weight.device
        count = min(config.videos, *(len(videos.held_out) for videos in self._footage))
        few = {body: videos.held_out[:count] for body, videos in enumerate(self._footage)}
        batch = {name: tensor.to(device) for name, tensor in self._batch(few, Step(0, self.name, 0)).items()}
        losses = self._losses(module, batch, list(few), frozen=True, together=False)
        over_chance = losses["prototype_loss"].item() / math.log(config.num_prototypes)
        found = measures(module, self.held_out, config)
        if config.prototype_weight and over_chance > AT_CHANCE:
            self._warn("the prototype loss sits at log K: assignments are no better than guessed so far")
        for videos in self._footage:
            used = found[f"used_{videos.name}"]
            if used < max(2, COLLAPSED * config.num_prototypes):
                self._warn(
                    f"the skills of '{videos.name}' have collapsed: "
                    f"{used:.0f} of {config.num_prototypes} prototypes are used"
                )
        return {"held_out_time_loss": losses["time_loss"].item(), "prototype_loss_over_log_k": over_chance, **found}


def random_frames(starts: Ints, lengths: Ints, count: int, generator: torch.Generator) -> Ints:
    """`count` different frames of each video, drawn at random and in order: (V,), (V,) -> indices (V, count).

    A video shorter than `count` repeats frames, as `uniform_frames` does.
    """
    index = uniform_frames(starts, lengths, count)
    chance = torch.rand(len(lengths), max(count, int(lengths.max())), generator=generator).numpy()
    chance[np.arange(chance.shape[1]) >= lengths[:, None]] = -1
    drawn = np.sort(np.argsort(-chance, 1)[:, :count], 1)
    return np.where(lengths[:, None] < count, index, starts[:, None] + drawn)


def check(footage: Sequence[Footage], config: DiscoverConfig, warn: Callable[[str], None]) -> None:
    """Refuse what cannot be learned from, and warn of what will hardly work."""
    names = [videos.name for videos in footage]
    if not footage:
        raise DataError("there is no video to learn from")
    if len(set(names)) != len(names):
        raise DataError(f"two sets of videos are of the same embodiment: {', '.join(names)}")
    sizes = {videos.bank.size for videos in footage}
    if len(sizes) > 1:
        raise DataError(f"videos have different sizes: {', '.join(f'{h}x{w}' for h, w in sorted(sizes))}")
    shown = [[videos.bank.episodes.names[episode] for episode in videos.train] for videos in footage]
    if config.paired and any(names != shown[0] for names in shown):
        raise DataError("discover.paired is for embodiments that all show the same demonstrations; these do not")
    if len(footage) == 1:
        warn(f"all videos are of '{names[0]}': skills are discovered, but shared with nobody")
    clips = config.videos * config.frames_per_video
    if clips < config.num_prototypes:
        warn(f"a step has {clips} clips of each embodiment, fewer than the {config.num_prototypes} prototypes to share")
    for videos in footage:
        lengths = videos.bank.episodes.lengths[videos.train]
        if (short := int((lengths < config.clip_length).sum())) > 0:
            warn(f"{short} videos of '{videos.name}' are shorter than a clip of {config.clip_length}: frames repeat")
        if not len(videos.held_out):
            raise DataError(f"no video of '{videos.name}' is held out, so nobody could tell whether it worked")
