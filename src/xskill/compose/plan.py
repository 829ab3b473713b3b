"""A prompt video as a plan: the skills it shows, in order (paper, "Compose" and Algorithm 3)."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from xskill.discover.encode import Video, check_frames, features_of, resized_pieces, skills_of, stills_of
from xskill.errors import DataError
from xskill.transfer.alignment import resampled
from xskill.transfer.model import Model

SHORTER = tuple(2 ** (step / 4) for step in range(1, 8))
"""How many times as much training videos may show as a prompt does, 1.2 to 3.4, where it is not as much."""
VISIBLE = 3.0
"""Standard deviation of a channel, of 255, below which a frame shows nothing but a camera's noise."""
SHARPER = 0.008
"""By how much more skills must resemble prototypes, as a cosine, for a prompt to be read as a shorter one."""


@dataclass(frozen=True, eq=False)
class SkillPlan:
    """What a prompt asks for."""

    tokens: Tensor
    """Skills, or what a goal-conditioned policy takes for them, evenly sampled from the video: (N, D). Of a shorter
    task than those of training there are fewer, and the last one stands until the end."""
    stills: Tensor
    """The same of the frame alone at which each token begins, to find what is seen in the video: (N, D)."""
    frames: Tensor
    """The video's frame that each token comes from, (N,)."""
    prototypes: Tensor
    """The nearest prototype of every frame of the video, (T,)."""
    shorter: float = 1.0
    """How many times as much training videos show, as far as can be told."""

    @property
    def places(self) -> Tensor:
        """Where in the video each token comes from, 0 to 1: (N,)."""
        return self.frames / max(1, len(self.prototypes) - 1)


@torch.no_grad()
def plan_of(model: Model, video: Video, fps: float | None = None) -> SkillPlan:
    """Identify the skills in a video of any body, length and size. `fps` is its frame rate, the robot's if unknown.

    Its colours are red, green and blue, in this order; in any other the plan is of a scene in other colours. A video of
    one frame is a plan of one skill, which then stands for all of it. Raises `DataError` where there is nothing to see.
    """
    if isinstance(video, str | Path):
        raise DataError(f"{video} is a path; a prompt is frames, as xskill.data.video.read_video gives them")
    if not len(video):
        raise DataError("the prompt has no frames")
    check_frames(np.asarray(video[:1]))
    if fps is not None and not (math.isfinite(fps) and fps > 0):
        raise DataError(f"fps is {fps}; it must be the prompt's frames a second, above 0")
    moments = {0, len(video) // 2, len(video) - 1}
    if all(np.asarray(video[moment : moment + 1]).std((0, 1, 2)).max() < VISIBLE for moment in moments):
        raise DataError("the prompt shows nothing: its frames are of one colour")
    features = features_of(model.skills, video)
    skills, shorter = _read(model, features, fps / model.fps if fps else 1.0)
    frames = resampled(len(skills), max(1, round(model.tokens / shorter)))
    frames = torch.cat([frames, frames[-1:].expand(model.tokens - len(frames))])
    chosen = frames.to(skills.device)
    if model.network.goal is None:
        tokens, stills = skills[chosen], stills_of(model.skills, features[chosen], model.discover)
    else:
        pieces = resized_pieces(video, model.body.size, skills.device)
        tokens = stills = torch.cat([model.network.goal(piece) for piece in pieces])[chosen]
    return SkillPlan(tokens, stills, frames, model.skills.prototypes(skills).argmax(-1).cpu(), shorter)


def _read(model: Model, features: Tensor, rate: float) -> tuple[Tensor, float]:
    """The skills of every frame (T, D), and how many times as much training videos show."""
    kept = skills_of(model.skills, features, model.discover, rate=rate)
    if not (model.transfer.aligner.kind == "tracker" and model.transfer.aligner.rescale):
        return kept, 1.0
    shorter, to_beat = 1.0, _sharpness(model, kept) + SHARPER
    for scale in SHORTER:
        skills = skills_of(model.skills, features, model.discover, rate=rate, shorter=scale)
        if (sharpness := _sharpness(model, skills)) > to_beat:
            kept, shorter, to_beat = skills, scale, sharpness
    return kept, shorter


def _sharpness(model: Model, skills: Tensor) -> float:
    """How much skills (T, D) are like their nearest prototypes, on average."""
    return float(model.skills.prototypes(skills).amax(-1).mean())
