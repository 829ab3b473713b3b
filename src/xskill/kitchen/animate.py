"""Demonstrators with motions of their own: one hand, or two at once, doing any order of any sub-tasks.

There is no physics here. A hand travels to a handle along a curve, the object moves along its joint with the hand on
it, and the hand lets go. The kettle is lifted. Speed, curves and grips vary; everything is a function of (order, seed).
These make videos that no recording of the robot contains.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import mujoco
import numpy as np
import numpy.typing as npt

from xskill.engine.config import require
from xskill.engine.seeds import numpy_generator
from xskill.kitchen.env import HOME
from xskill.kitchen.expert import HOLDS
from xskill.kitchen.scene import Scene
from xskill.kitchen.tasks import TASKS, check_tasks, complete

Floats = npt.NDArray[np.float64]

RESTS = np.array([(-0.25, 0.05, 2.15), (0.25, 0.05, 2.15)])
"""Where each hand waits, in front of the stove."""
IN_FRONT = np.array((0.0, -0.06, 0.0))
"""A hand's middle is this far before the handle it holds, towards the camera."""
LIFT = 0.15
"""How high the kettle is carried, in metres."""


@dataclass(frozen=True, eq=False)
class Motion:
    """States of the kitchen (T, 30) and places of the two hands (T, 2, 3); an unused hand rests."""

    qpos: Floats
    hands: Floats


def animate(order: Sequence[str], seed: int, *, hands: int = 1) -> Motion:
    """One hand doing the sub-tasks one after the other, or two hands doing them two at a time, in this order."""
    order = check_tasks(order)
    require(len(order) >= 1, "order", order, "at least one sub-task")
    random = numpy_generator("animate", seed, *order)
    pace = random.uniform(0.8, 1.25)
    qpos, places = np.array(HOME), RESTS.copy()
    path: list[tuple[Floats, Floats]] = [(qpos.copy(), places.copy())] * int(random.integers(3, 8))
    for first in range(0, len(order), hands):
        together = order[first : first + hands]
        parts = [_Part.drawn(task, hand, random, pace) for hand, task in enumerate(together)]
        before, begun = qpos.copy(), places.copy()
        delays = _delays(parts, before)
        last = max(part.length + delay for part, delay in zip(parts, delays, strict=True))
        for step in range(1, last + 1):
            for part, delay in zip(parts, delays, strict=True):
                part.apply(min(max(step - delay, 0), part.length), before, begun, qpos, places)
            path.append((qpos.copy(), places.copy()))
    states, where = (np.array(column) for column in zip(*path, strict=True))
    return Motion(states, where + _tremor(random, where.shape))


@dataclass(frozen=True, eq=False)
class _Part:
    """One hand's share: how long it approaches, moves the object and lets go, and the bends in its way."""

    task: str
    hand: int
    approach: int
    move: int
    leave: int
    bend: Floats
    grip: Floats

    @classmethod
    def drawn(cls, task: str, hand: int, random: np.random.Generator, pace: float) -> "_Part":
        frames = np.rint(np.array([random.uniform(14, 26), random.uniform(16, 26), random.uniform(3, 8)]) / pace)
        approach, move, leave = (max(2, int(count)) for count in frames)
        bend, grip = random.normal(0, (0.10, 0.06, 0.08)), random.normal(0, 0.012, 3)
        return cls(task, hand, approach, move, leave, bend, grip)

    @property
    def length(self) -> int:
        return self.approach + self.move + self.leave

    def done_at(self, before: Floats) -> int:
        """The frame, counted from this part's first, in which its sub-task is complete."""
        column, states = list(TASKS).index(self.task), np.tile(before, (self.move + 1, 1))
        for step, state in enumerate(states):
            state[list(TASKS[self.task].qpos)] = _carried(self.task, before, _eased(step / self.move))
        return self.approach + int(complete(states)[:, column].argmax())

    def apply(self, step: int, before: Floats, begun: Floats, qpos: Floats, places: Floats) -> None:
        """Put this part of the state where it is `step` frames in, given the state and hands before it began."""
        moved = _eased((step - self.approach) / self.move)
        qpos[list(TASKS[self.task].qpos)] = _carried(self.task, before, moved)
        held = _handle(self.task, qpos) + IN_FRONT + self.grip
        if step < self.approach:
            share = _eased(step / self.approach)
            places[self.hand] = (1 - share) * begun[self.hand] + share * held + 4 * share * (1 - share) * self.bend
        else:
            away = _eased((step - self.approach - self.move) / self.leave)
            places[self.hand] = held + away * 2 * IN_FRONT


def _delays(parts: Sequence[_Part], before: Floats) -> list[int]:
    """How long each hand waits for the one before it, so that what is done together is still done in order."""
    delays: list[int] = []
    finished = -2
    for part in parts:
        delays.append(max(0, finished + 2 - part.done_at(before)))
        finished = delays[-1] + part.done_at(before)
    return delays


def _eased(share: float) -> float:
    """A smooth start and end."""
    share = min(max(share, 0.0), 1.0)
    return share * share * (3 - 2 * share)


def _carried(task: str, before: Floats, share: float) -> Floats:
    """The entries of a sub-task on the way from where they were to their goal."""
    entries = list(TASKS[task].qpos)
    between: Floats = (1 - share) * before[entries] + share * np.array(TASKS[task].goal)
    if task == "kettle":
        between[2] += LIFT * np.sin(np.pi * share)
        between[3:] /= np.linalg.norm(between[3:])
    return between


@cache
def stage() -> tuple[mujoco.MjModel, mujoco.MjData]:
    """A kitchen to try states in."""
    model = Scene().model
    return model, mujoco.MjData(model)


def _handle(task: str, qpos: Floats) -> Floats:
    """Where a sub-task's handle is in a state, (3,)."""
    model, data = stage()
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    place: Floats = data.site(HOLDS[task].site).xpos.copy()
    return place


def _tremor(random: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """A hand is never quite still: noise of 4 mm, smoothed over five frames."""
    noise = random.normal(0, 0.004 * np.sqrt(5), shape)
    window = np.ones(5) / 5
    flat = noise.reshape(shape[0], -1)
    smooth = np.stack([np.convolve(column, window, "same") for column in flat.T], axis=1)
    return smooth.reshape(shape)
