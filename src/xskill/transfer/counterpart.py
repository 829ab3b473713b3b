"""Which demonstrator's video shows what the robot does in an episode: found in skill space, from no labels, no pairs.

A policy that has only been told the robot's own skills takes another body's for something else where they differ a
little. It learns that dialect from counterparts: of all videos of a demonstrator those that run most like the episode,
moment by moment, where either may be the faster one (dynamic time warping). A single moment may look like many others;
a whole video does not.
"""

from collections.abc import Iterator, Sequence
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
"""Share of the usual cosine of two skills from which on a counterpart shows the same moment; below it shows something
else, as where the robot does a thing again. Of moments of plain demonstrations 1.7 % are below."""
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
    alike: Tensor
    """Whether they show the same there."""

    def show(self, episodes: Tensor, which: Tensor, share: Tensor) -> Tensor:
        """Whether video `which` shows the moment of an episode at `share` of it: (B,) each."""
        spot = torch.floor(share.double() * (MOMENTS - 1) + 0.5).long()
        return self.alike[episodes, which, spot]

    def at(self, episodes: Tensor, which: Tensor, share: Tensor) -> Tensor:
        """The row of skills that shows, in video `which`, the moment of an episode at `share` of it: (B,) each."""
        places, spot = self.places[episodes, which], share.double() * (MOMENTS - 1)
        before = spot.long().clamp(0, MOMENTS - 2)[:, None]
        low, high = places.gather(1, before)[:, 0], places.gather(1, before + 1)[:, 0]
        place = low + (spot - before[:, 0]) * (high - low)
        return self.starts[episodes, which] + torch.floor(place * self.lasts[episodes, which] + 0.5).long()


def counterparts(robot: Shown, demonstrators: Sequence[Shown]) -> Counterparts:
    """Each robot episode's counterparts among the videos of each demonstrator, of which there may be none."""
    here, first = robot.moments(), len(robot.skills)
    starts, lasts = [torch.from_numpy(robot.starts)[:, None]], [torch.from_numpy(robot.lengths)[:, None] - 1]
    places = [torch.linspace(0, 1, MOMENTS, dtype=torch.float64).expand(len(here), 1, -1)]
    alike = [torch.ones(len(here), 1, MOMENTS, dtype=torch.bool)]
    for body in demonstrators:
        there = body.moments().to(here.device)
        chosen = apart(here, there).topk(min(COUNTERPARTS, len(there)), largest=False).indices
        pairs = torch.arange(len(here), device=here.device).repeat_interleave(chosen.shape[1]), chosen.flatten()
        paths, cosines = [], []
        for e, v in zip(*(part.split(512) for part in pairs), strict=True):
            likeness = here[e] @ there[v].mT
            paths.append(_path(likeness))
            spot = torch.floor(paths[-1] * (MOMENTS - 1) + 0.5).long()
            cosines.append(likeness.gather(2, spot[:, :, None])[:, :, 0])
        path, cosine = (torch.cat(parts).unflatten(0, chosen.shape).cpu() for parts in (paths, cosines))
        places.append(path.double())
        alike.append(cosine >= ALIKE * cosine.median())
        chosen = chosen.cpu()
        starts.append(first + torch.from_numpy(body.starts)[chosen])
        lasts.append(torch.from_numpy(body.lengths)[chosen] - 1)
        first += len(body.skills)
    return Counterparts(*(torch.cat(parts, 1) for parts in (starts, lasts, places, alike)))


def apart(here: Tensor, there: Tensor) -> Tensor:
    """How unlike videos run, (E, V), from their moments (E, N, D) and (V, N, D)."""
    moments = here.shape[1]
    rows = []
    for some in here.split(max(1, AT_ONCE // (len(there) * moments**2))):
        likeness = torch.einsum("end,vmd->evnm", some, there).flatten(0, 1)
        *_, last = _warped(1 - likeness)
        rows.append(last[:, -1].unflatten(0, (len(some), len(there))) / (2 * moments))
    return torch.cat(rows)


def _warped(costs: Tensor) -> Iterator[Tensor]:
    """Dynamic time warping of costs (P, N, N), diagonal by diagonal: the least sum up to each row's cell, (P, N).

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
        yield last


def _path(likeness: Tensor) -> Tensor:
    """Where in the second video each moment of the first is, as a share, from their likeness (P, N, N): (P, N)."""
    costs, moments = 1 - likeness, likeness.shape[1]
    reached = F.pad(torch.stack(list(_warped(costs)), 1), (1, 0, 2, 0), value=torch.inf)  # diagonal + 2, row + 1
    pair = torch.arange(len(costs), device=costs.device)
    row = column = torch.full_like(pair, moments - 1)
    total, count = torch.zeros_like(costs[:, 0]), torch.zeros_like(costs[:, 0])
    on_its_way = torch.ones_like(costs[:, 0, 0])
    for _ in range(2 * moments - 1):
        total[pair, row] += on_its_way * column
        count[pair, row] += on_its_way
        diagonal = row + column
        both = reached[pair, diagonal, row] + costs[pair, row, column]
        up, left = reached[pair, diagonal + 1, row], reached[pair, diagonal + 1, row + 1]
        way = torch.stack([both, up, left]).argmin(0)
        on_its_way = (diagonal > 0).to(costs.dtype)
        row, column = (place - ((diagonal > 0) & (way != stays)).long() for place, stays in ((row, 2), (column, 1)))
    return total / count / (moments - 1)
