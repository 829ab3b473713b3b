"""Which demonstrator's video shows what the robot does in an episode: found in skill space, from no labels, no pairs.

A policy that has only been told the robot's own skills takes another body's for something else where they differ a
little. It learns that dialect from counterparts: of all videos of a demonstrator those that run most like the episode,
moment by moment, where either may be the faster one (dynamic time warping). A single moment may look like many others;
a whole video does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from xskill.transfer.alignment import resampled

Ints = npt.NDArray[np.int64]

MOMENTS = 64
"""Moments of a video that are compared."""
COUNTERPARTS = 3
"""Videos of each demonstrator that are taken for counterparts of one episode."""
ALIKE = 0.65
"""Share of the usual cosine of two skills from which on a counterpart shows the same moment. Below it shows something
else: the robot is on its way back to something undone. Of moments of plain demonstrations 1.7 % are below."""
AHEAD, BACK = 4, 2.0
"""Moments by which a counterpart may be ahead of an episode from one to the next; and how much less alike, summed over
moments, all would have to be without going back to one before."""
AT_ONCE = 2**25
"""Comparisons of two moments that are on the device at once."""


@dataclass(frozen=True, eq=False)
class Shown:
    """Videos of one body by their skills (N, D), laid end to end: where each begins, and how long it is."""

    skills: Tensor
    starts: Ints
    lengths: Ints

    def moments(self) -> Tensor:
        """Skills at even moments of every video, each of length one: (V, MOMENTS, D)."""
        rows = [int(start) + resampled(int(n), MOMENTS) for start, n in zip(self.starts, self.lengths, strict=True)]
        return F.normalize(self.skills[torch.stack(rows).to(self.skills.device)].float(), dim=-1)


@dataclass(frozen=True, eq=False)
class Counterparts:
    """The videos that may stand for each episode, itself first: (E, C) each, on the CPU."""

    starts: Tensor
    """Where they begin among the skills of all bodies, laid end to end in the order they were given."""
    lasts: Tensor
    """Their last frame, counted from there."""
    places: Tensor
    """Which moment of them is shown at even moments of the episode, as a share from 0 to 1: (E, C, MOMENTS)."""

    def at(self, episodes: Tensor, which: Tensor, share: Tensor) -> Tensor:
        """The row of skills that shows, in video `which`, the moment of an episode at `share` of it: (B,) each."""
        places, spot = self.places[episodes, which], share.double() * (MOMENTS - 1)
        before = spot.long().clamp(0, MOMENTS - 2)[:, None]
        low, high = places.gather(1, before)[:, 0], places.gather(1, before + 1)[:, 0]
        part = spot - before[:, 0]
        place = torch.where(high < low, torch.where(part < 0.5, low, high), low + part * (high - low))
        return self.starts[episodes, which] + torch.floor(place * self.lasts[episodes, which] + 0.5).long()


def counterparts(robot: Shown, demonstrators: Sequence[Shown]) -> Counterparts:
    """Each robot episode's counterparts among the videos of each demonstrator, of which there may be none."""
    here, first = robot.moments(), len(robot.skills)
    starts, lasts = [torch.from_numpy(robot.starts)[:, None]], [torch.from_numpy(robot.lengths)[:, None] - 1]
    places = [torch.linspace(0, 1, MOMENTS, dtype=torch.float64).expand(len(here), 1, -1)]
    for body in demonstrators:
        there = body.moments().to(here.device)
        chosen = apart(here, there).topk(min(COUNTERPARTS, len(there)), largest=False).indices
        pairs = torch.arange(len(here), device=here.device).repeat_interleave(chosen.shape[1]), chosen.flatten()
        path, cosine = _paths(here, there, *pairs)
        path = _on_its_way(path, cosine >= ALIKE * cosine.median())
        places.append(path.unflatten(0, chosen.shape).double().cpu() / (MOMENTS - 1))
        chosen = chosen.cpu()
        starts.append(first + torch.from_numpy(body.starts)[chosen])
        lasts.append(torch.from_numpy(body.lengths)[chosen] - 1)
        first += len(body.skills)
    return Counterparts(*(torch.cat(parts, 1) for parts in (starts, lasts, places)))


def _paths(here: Tensor, there: Tensor, episodes: Tensor, videos: Tensor) -> tuple[Tensor, Tensor]:
    """Where in its video each episode is, (P, MOMENTS), and how much alike they are there."""
    paths, cosines = [], []
    for some, others in zip(episodes.split(512), videos.split(512), strict=True):
        likeness = here[some] @ there[others].mT
        paths.append(_followed(likeness))
        cosines.append(likeness.gather(2, paths[-1][:, :, None])[:, :, 0])
    return torch.cat(paths), torch.cat(cosines)


def apart(here: Tensor, there: Tensor) -> Tensor:
    """How unlike videos run, (E, V), from their moments (E, N, D) and (V, N, D)."""
    moments = here.shape[1]
    rows = []
    for some in here.split(max(1, AT_ONCE // (len(there) * moments**2))):
        likeness = torch.einsum("end,vmd->evnm", some, there).flatten(0, 1)
        last = _warped(1 - likeness)
        rows.append(last[:, -1].unflatten(0, (len(some), len(there))) / (2 * moments))
    return torch.cat(rows)


def _warped(costs: Tensor) -> Tensor:
    """Dynamic time warping of costs (P, N, N), diagonal by diagonal: the least sum up to the last one's cells, (P, N).

    A step in both videos counts twice, so that every path weighs the same.
    """
    moments = costs.shape[1]
    row = torch.arange(moments, device=costs.device)
    nothing = torch.full_like(costs[:, 0], torch.inf)
    before, last = nothing, nothing
    for diagonal in range(2 * moments - 1):
        column = diagonal - row
        outside = (column < 0) | (column >= moments)
        cost = costs[:, row, column.clamp(0, moments - 1)].masked_fill(outside, torch.inf)
        both = F.pad(before, (1, -1), value=0.0 if diagonal == 0 else torch.inf) + cost
        best = torch.minimum(torch.minimum(both, last), F.pad(last, (1, -1), value=torch.inf))
        before, last = last, cost + best
    return last


def _followed(likeness: Tensor) -> Tensor:
    """The moment of the second video that each moment of the first shows, (P, N), from their likeness (P, N, N).

    It stays or moves on; where the first does something again, it is back where the second does that.
    """
    moments = torch.arange(likeness.shape[1], device=likeness.device)
    total, came = (1 - likeness[:, 0]).masked_fill(moments > AHEAD, torch.inf), []
    for row in likeness.unbind(1)[1:]:
        best, step = torch.stack([F.pad(total, (n, -n), value=torch.inf) for n in range(AHEAD + 1)]).min(0)
        later, where = (part.flip(1) for part in total.flip(1).cummin(1))
        back = later + BACK < best
        came.append(torch.where(back, moments[-1] - where, moments - step))
        total = 1 - row + torch.where(back, later + BACK, best)
    path = [total.argmin(1)]
    for before in reversed(came):
        path.append(before.gather(1, path[-1][:, None])[:, 0])
    return torch.stack(path[::-1], 1)


def _on_its_way(path: Tensor, alike: Tensor) -> Tensor:
    """A path (P, N) in which moments that nobody shows, not being alike, belong to the next that somebody does."""
    moments = torch.arange(path.shape[1], device=path.device)
    ahead = torch.where(alike, moments, path.shape[1]).flip(1).cummin(1).values.flip(1)
    return torch.where(ahead < path.shape[1], path.gather(1, ahead.clamp(max=path.shape[1] - 1)), path)
