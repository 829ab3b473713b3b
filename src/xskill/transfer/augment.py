"""What training does to plans, images and skills so that a robot can do with others: warps, splices, shifts, noise."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

KNOTS = 8
"""Pieces of a warped plan, each with a speed of its own."""
APART = 4
"""Tokens around the moment seen that a splice leaves alone."""


def warped(draws: Tensor, tokens: int, amount: float) -> Tensor:
    """Where in its episode each token of a plan comes from, 0 to 1, rising: evenly, or faster in places.

    Draws (..., KNOTS), from 0 to 1, decide how fast each piece is: (..., tokens).
    """
    even = torch.linspace(0, 1, tokens, dtype=torch.float64, device=draws.device).expand(*draws.shape[:-1], -1)
    passed = F.pad(torch.cumsum((amount * math.log(2) * (2 * draws.double() - 1)).exp(), -1), (1, 0))
    passed = passed / passed[..., -1:]
    piece = (even * KNOTS).long().clamp(max=KNOTS - 1)
    low, high = passed.gather(-1, piece), passed.gather(-1, piece + 1)
    return low + (even * KNOTS - piece) * (high - low)


def spliced(plans: Tensor, away: Tensor, often: float, draws: Tensor) -> Tensor:
    """The first of two plans (B, 2, N), of which the later part, and the earlier one, is `often` that of the second.

    What is replaced begins more than `APART` tokens from the moment seen, at a place that draws (B, 4) decide; where
    there is nothing so far away, nothing is.
    """
    tokens = away.shape[1]
    places, now = torch.arange(tokens, device=away.device), away.abs().argmin(1, keepdim=True)
    after, before = now + APART + 1, now - APART - 1  # the nearest that may be replaced
    later = places >= after + (draws[:, 2:3] * (tokens - after).clamp(min=0)).long()
    earlier = places <= before - (draws[:, 3:4] * (before + 1).clamp(min=0)).long()
    replaced = (later & (draws[:, :1] < often)) | (earlier & (draws[:, 1:2] < often))
    return torch.where(replaced, plans[:, 1], plans[:, 0])


def shifted(images: Tensor, by: Tensor) -> Tensor:
    """Images (B, O, H, W, 3) moved by (B, 2) pixels down and right; what enters repeats the border."""
    height, width = images.shape[2:4]
    rows = (torch.arange(height, device=images.device) - by[:, :1]).clamp(0, height - 1)
    columns = (torch.arange(width, device=images.device) - by[:, 1:]).clamp(0, width - 1)
    which = torch.arange(len(images), device=images.device)[:, None, None, None]
    window = torch.arange(images.shape[1], device=images.device)[None, :, None, None]
    return images[which, window, rows[:, None, :, None], columns[:, None, None, :]]


def disturbed(skills: Tensor, share: float) -> Tensor:
    """Skills (..., D) with noise of `share` of their length."""
    if not share:
        return skills
    scale: Tensor = share * skills.norm(dim=-1, keepdim=True) / skills.shape[-1] ** 0.5
    return skills + scale * torch.randn_like(skills)
