"""The two losses of discovery (paper, section "Discover" and Algorithm 1), for all clips of all videos at once."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from xskill.discover.prototypes import sinkhorn


def swapped_prediction(
    first: Tensor, second: Tensor, *, temperature: float, epsilon: float, iterations: int, together: bool = False
) -> Tensor:
    """Each view predicts the other's target assignment: scores (clips, K) of two views of one embodiment -> ().

    The mean over clips, where the paper sums. Nothing flows back through the targets; `together` as in `sinkhorn`.
    """
    losses = []
    for predicting, watched in ((first, second), (second, first)):
        target = sinkhorn(watched.detach(), epsilon=epsilon, iterations=iterations, together=together)
        predicted = F.log_softmax(predicting.float() / temperature, dim=-1)
        losses.append(-(target * predicted).sum(-1).mean())
    return torch.stack(losses).mean()


class Neighbours(NamedTuple):
    """For every clip of every video which clips it is compared with: positive (V, C), negatives (V, C, N)."""

    positive: Tensor
    negatives: Tensor


def draw_neighbours(
    videos: int, clips: int, *, positive_window: int, negative_window: int, negatives: int, generator: torch.Generator
) -> Neighbours:
    """A positive at most `positive_window` away, negatives more than `negative_window` away, none past the ends."""
    clip = torch.arange(clips)
    first, last = (clip - positive_window).clamp(min=0), (clip + positive_window).clamp(max=clips - 1)
    positive = first + _below(last - first, (videos, clips), generator)
    positive = positive + (positive >= clip).long()  # a clip is not its own positive
    before, after = (clip - negative_window).clamp(min=0), (clips - 1 - clip - negative_window).clamp(min=0)
    drawn = _below((before + after)[:, None], (videos, clips, negatives), generator)
    beyond = clip[:, None] + negative_window + 1 + drawn - before[:, None]
    return Neighbours(positive, torch.where(drawn < before[:, None], drawn, beyond))


def _below(limits: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Integers from 0 to `limits` - 1, which is broadcast to `shape`."""
    return (torch.rand(shape, generator=generator, dtype=torch.float64) * limits).long()


def time_contrast(scores: Tensor, neighbours: Neighbours, *, temperature: float) -> Tensor:
    """InfoNCE between the scores of clips near and far in time: (V, C, K) -> (). Similarity is the dot product."""
    scores = scores.float()
    alike = scores @ scores.mT / temperature  # (V, C, C)
    near = alike.gather(2, neighbours.positive[:, :, None])
    far = alike.gather(2, neighbours.negatives)
    return -F.log_softmax(torch.cat([near, far], dim=2), dim=2)[:, :, 0].mean()
