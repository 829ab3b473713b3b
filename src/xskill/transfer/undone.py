"""Scenes in which something done is not done, made from the robot's own videos, from no labels.

A robot that follows its plan well never sees one, so nothing teaches it to go back. But where a camera stands still,
what is done for good is a lasting change of the picture: pixels that show one thing up to some moment and another ever
after, whatever passes in front of them. Pixels that change together are one thing done, an `event`. Put back to what
they showed before, wherever nothing hides them, they make it undone. Something done for a purpose is done in other
videos, too, at the same place; what changes a picture in one of them only, where an arm has rested, is no event.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from xskill.data.frames import FrameStore
from xskill.transfer.alignment import resampled

MOMENTS = 112
"""Moments of a video that are looked at."""
VALUES = 16
"""Moments whose colours are taken for what a pixel may show."""
SAME, OTHER = 10, 24
"""Colours are the same up to this difference of a channel, of 255, and others from that on."""
SHOWN = 0.5
"""Share of a stretch of frames in which a pixel must show what it is said to show; else it is hidden."""
GAIN = 0.05
"""Share of all frames that two colours must explain beyond what one does."""
EARLY = 14
"""Moments at the beginning in which nothing is done: a robot leaves its place, which looks like a lasting change."""
TOGETHER = 6
"""Moments on either side of an event within which its pixels change."""
PIXELS = 6
"""Fewest of an event."""
EVENTS = 8
"""Most in a video."""
PIECE = 2**14
"""Pixels that are looked at at once."""
ALIKE = 0.3
"""Pixels that two events have in common, as a share of those of either, from which on they are the same thing done."""
COMMON = 0.05
"""Share of the videos in which something must be done to be worth doing: with fewer than twenty, one is enough."""
COMPARED = 512
"""Videos, and events, that are compared at once."""
NEVER = 2**30
"""When an event happens that does not."""


@dataclass(frozen=True, eq=False)
class Undone:
    """What was done in each of E episodes, EVENTS places for each, and what to show where it is not."""

    before: Tensor
    """(E, H, W, 3) uint8: what each pixel shows before the event that changes it."""
    after: Tensor
    """Likewise, after it."""
    event: Tensor
    """(E, H, W) uint8: which event changes a pixel; EVENTS where none does."""
    times: Tensor
    """(E, EVENTS): the frame of each event, counted from the episode's first, or `NEVER`; on the CPU."""

    def scene(self, images: Tensor, episodes: Tensor, events: Tensor) -> tuple[Tensor, Tensor]:
        """Images (B, H, W, 3) of moments of episodes (B,) with one event of each undone (B,); EVENTS leaves them.

        And how many pixels of each that changes: where something hides the event, none or few.
        """
        after, changed = self.after[episodes], self.event[episodes] == events[:, None, None]
        seen = (images.short() - after.short()).abs().amax(-1) <= OTHER
        put_back = changed & seen & (events < EVENTS)[:, None, None]
        return torch.where(put_back[..., None], self.before[episodes], images), put_back.sum((1, 2))


def undone_in(frames: FrameStore, spans: Mapping[int, tuple[int, int]]) -> Undone:
    """What is done in some episodes, each given by number as its first frame in a store and its length."""
    count, undone = max(spans) + 1, None
    for episode, (start, length) in spans.items():
        moments = resampled(length, MOMENTS)
        before, after, event, times = _lasting(frames[start + moments])
        if undone is None:
            undone = Undone(
                before.new_zeros((count, *before.shape)),
                after.new_zeros((count, *after.shape)),
                event.new_full((count, *event.shape), EVENTS),
                torch.full((count, EVENTS), NEVER),
            )
        undone.before[episode], undone.after[episode], undone.event[episode] = before, after, event
        undone.times[episode] = torch.where(times < MOMENTS, moments[times.clamp(max=MOMENTS - 1)], NEVER)
    assert undone is not None
    return replace(undone, times=_common(undone, list(spans)))


def _common(undone: Undone, episodes: list[int]) -> Tensor:
    """When events are that happen in so many of some episodes that they are no accident: (E, EVENTS).

    Of many episodes, `COMPARED` stand for all.
    """
    video, which = torch.nonzero(undone.times[episodes] < NEVER, as_tuple=True)
    changed, times = undone.event[episodes].flatten(1), undone.times.clone()

    def pixels(video: Tensor, which: Tensor) -> Tensor:
        there = changed[video.to(changed.device)]
        return (there == which.to(changed.device)[:, None]).float()

    others = torch.linspace(0, len(episodes) - 1, min(COMPARED, len(episodes))).long()
    known = torch.isin(video, others)
    theirs = pixels(video[known], which[known])
    for one, event in zip(video.split(COMPARED), which.split(COMPARED), strict=True):
        mine = pixels(one, event)
        both = mine @ theirs.T
        same = both >= ALIKE * (mine.sum(1, keepdim=True) + theirs.sum(1) - both)
        videos = torch.zeros(len(one), len(episodes)).index_add_(1, video[known], same.float().cpu())
        videos[torch.arange(len(one)), one] = 0
        rare = (videos > 0).sum(1) < int(COMMON * len(others))
        times[torch.tensor(episodes)[one[rare]], event[rare]] = NEVER
    return times


def _lasting(video: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The lasting changes of a video's MOMENTS (T, H, W, 3): what was there before and after, which event, and when.

    For every pixel and every cut of the video in two: how many frames before it show the commonest colour there, how
    many after it the commonest there. The best cut explains most frames; where something hides the change itself,
    several cuts do, and it lies between the first and the last of them.
    """
    size = video.shape[1:3]
    found = [_cut(part) for part in video.flatten(1, 2).short().split(PIECE, 1)]
    before, after, low, high, lasting = (torch.cat(parts) for parts in zip(*found, strict=True))
    event, times = _grouped(low, high, lasting)
    return before.reshape(*size, 3), after.reshape(*size, 3), event.reshape(size), times


def _cut(pixels: Tensor) -> tuple[Tensor, ...]:
    """Colours before and after the best cut of pixels (T, P, 3), from when to when it may be, and whether it lasts."""
    count, device = len(pixels), pixels.device
    colours = pixels[torch.linspace(0, count - 1, VALUES, device=device).long()]  # (VALUES, P, 3)
    shown = torch.stack([((pixels - colour).abs().amax(-1) <= SAME).short() for colour in colours], 1)
    votes = torch.cat([torch.zeros_like(shown[:1]), shown.cumsum(0, dtype=torch.int16)])  # (T + 1, VALUES, P)
    (earlier, first), (later, last) = votes.max(1), (votes[-1] - votes).max(1)
    explained = earlier + later
    best, cuts = explained.amax(0), torch.arange(count + 1, device=device)[:, None]
    low = torch.where(explained == best, cuts, count + 1).amin(0)
    high = torch.where(explained == best, cuts, -1).amax(0)
    cut, pixel = (low + high) // 2, torch.arange(pixels.shape[1], device=device)
    before, after = colours[first[cut, pixel], pixel], colours[last[cut, pixel], pixel]
    lasting = (
        ((before - after).abs().amax(-1) > OTHER)
        & (earlier[cut, pixel] >= SHOWN * cut)
        & (later[cut, pixel] >= SHOWN * (count - cut))
        & (best - votes[-1].amax(0) >= GAIN * count)
        & (high >= EARLY)
    )
    return before.byte(), after.byte(), low, high, lasting


def _grouped(low: Tensor, high: Tensor, lasting: Tensor) -> tuple[Tensor, Tensor]:
    """Pixels (P,) that change at some time from `low` to `high`, gathered into events (P,), the largest first."""
    event, times = torch.full_like(low, EVENTS, dtype=torch.uint8), torch.full((EVENTS,), MOMENTS)
    moments = torch.arange(MOMENTS, device=low.device)
    possible = (low[lasting, None] - 1 <= moments) & (high[lasting, None] + 1 >= moments)  # (pixels, MOMENTS)
    possible[:, :EARLY] = False
    left, mine = torch.ones(len(possible), dtype=torch.bool, device=low.device), event[lasting]
    for index in range(EVENTS):
        together = (possible & left[:, None]).sum(0)
        if together.amax() < PIXELS:
            break
        likeliest = moments[together == together.amax()]
        moment = likeliest[len(likeliest) // 2]
        now = left & (low[lasting] <= moment + TOGETHER) & (high[lasting] >= moment - TOGETHER)
        mine[now], times[index], left = index, int(moment), left & ~now
    event[lasting] = mine
    return event, times
