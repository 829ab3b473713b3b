"""A prompt video as a plan: the skills it shows, in order (paper, "Compose" and Algorithm 3)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from xskill.discover.encode import Video, encode_video, resized_pieces
from xskill.errors import DataError
from xskill.transfer.alignment import resampled
from xskill.transfer.model import Model


@dataclass(frozen=True, eq=False)
class SkillPlan:
    """What a prompt asks for."""

    tokens: Tensor
    """Skills, or what a goal-conditioned policy takes for them, evenly sampled from the video: (N, D)."""
    frames: Tensor
    """The video's frame that each token comes from, (N,)."""
    prototypes: Tensor
    """The nearest prototype of every frame of the video, (T,)."""


@torch.no_grad()
def plan_of(model: Model, video: Video, fps: float | None = None) -> SkillPlan:
    """Identify the skills in a video of any body, length and size. `fps` is its frame rate, the robot's if unknown."""
    if all(np.ptp(np.asarray(video[moment : moment + 1])) == 0 for moment in {0, len(video) // 2, len(video) - 1}):
        raise DataError("the prompt shows nothing: its frames are of one colour")
    rate = fps / model.fps if fps else 1.0
    told = skills = encode_video(model.skills, video, model.discover, rate=rate)
    if model.network.goal is not None:
        told = torch.cat([model.network.goal(piece) for piece in resized_pieces(video, model.body.size, skills.device)])
    frames = resampled(len(skills), model.tokens)
    prototypes = model.skills.prototypes(skills).argmax(-1)
    return SkillPlan(told[frames.to(skills.device)], frames, prototypes.cpu())
