"""Ways to read a plan: which of its skills is to be executed now. The model's aligner is one; the others are measures.

`clock`: the plan moves on at the pace of the training episodes, whatever the scene shows. `nearest`: the skill that
begins where the prompt looks most like the scene, to the skill encoder, each image repeated to a clip (the paper's
NN-composition). A policy that is told goals can only be read for in these two ways: no aligner has learned what it
takes for skills.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from xskill.discover.encode import stills_of
from xskill.discover.encoder import as_input
from xskill.errors import DataError
from xskill.transfer.alignment import Alignment, likeliest
from xskill.transfer.model import Model

Reading = Literal["aligner", "clock", "nearest"]
EVERYWHERE = (0.0, 1.0)


def read(
    reading: Reading, model: Model, scenes: Tensor, plans: Tensor, stills: Tensor, before: Tensor, acted: Tensor
) -> Alignment:
    """The skills for B robots: scenes (B, H, W, 3) uint8, plans and their stills (B, N, D).

    `before` (B, N) is the attention of one chunk ago, `acted` (B,) how many chunks each robot has carried out.
    """
    goal, policy = model.network.goal, model.transfer.policy
    if reading == "aligner":
        if policy.ahead:
            raise DataError(
                f"this policy is told what is {policy.ahead} frames ahead; read its prompts by nearest neighbours"
            )
        found: Alignment = model.network.aligner(scenes, plans, before)
        return found
    if reading == "clock":
        place = (acted * model.pace).round().long().clamp(max=plans.shape[1] - 1)
    else:
        seen = goal(as_input(scenes)) if goal else _still_of(model, scenes)
        likeness = F.normalize(stills, dim=-1) @ F.normalize(seen, dim=-1)[:, :, None]
        place = likeness[:, :, 0].argmax(1)
    belief = F.one_hot(place, plans.shape[1]).float()
    told = (place + model.ahead).clamp(max=plans.shape[1] - 1)
    return Alignment(plans[torch.arange(len(plans), device=plans.device), told], belief)


def _still_of(model: Model, scenes: Tensor) -> Tensor:
    """What the skill encoder makes of single images (B, H, W, 3): (B, D)."""
    return stills_of(model.skills, model.skills.encoder.features(as_input(scenes)), model.discover)


def kept_within(found: Alignment, plans: Tensor, places: Tensor, stretches: Tensor) -> Alignment:
    """What was found, kept to a stretch of each prompt, (B, 2) from and to: for who is told how far they have come.

    A plan's skills come from `places` (B, N) of the prompt, 0 to 1.
    """
    low, high = stretches.T[:, :, None]
    apart = 0.5 * places.diff(dim=1, prepend=places[:, :1]).amax(1, keepdim=True)  # the shortest stretch has a skill
    inside = (places >= low - apart) & (places <= high + apart)
    attention = (found.attention.clamp(min=1e-12) * inside).float()
    return likeliest(plans, attention / attention.sum(1, keepdim=True).clamp(min=1e-30))
