"""The rules of the benchmark: the seven sub-tasks, when one is complete, in which order, and what ends an episode."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xskill.engine.config import did_you_mean
from xskill.errors import ConfigError

Floats = npt.NDArray[np.floating]

THRESHOLD = 0.3
"""A sub-task is complete while its joints are nearer to their goal than this (L2)."""
STEP = 0.08
"""Seconds of a step: of an action, and of a frame."""
STEPS_PER_TASK = 70
"""An episode may last this many steps for each sub-task of the prompt: 280 for four."""


@dataclass(frozen=True)
class Task:
    """A sub-task: which entries of qpos it is about, and where they should be."""

    qpos: tuple[int, ...]
    goal: tuple[float, ...]


TASKS: Mapping[str, Task] = {
    "bottom-burner": Task((11, 12), (-0.88, -0.01)),
    "top-burner": Task((15, 16), (-0.92, -0.01)),
    "light": Task((17, 18), (-0.69, -0.05)),
    "slide": Task((19,), (0.37,)),
    "hinge": Task((20, 21), (0.0, 1.45)),
    "microwave": Task((22,), (-0.75,)),
    "kettle": Task((23, 24, 25, 26, 27, 28, 29), (-0.23, 0.75, 1.62, 0.99, 0.0, 0.0, -0.06)),
}


@dataclass(frozen=True)
class Completion:
    """A sub-task and the step at which it was first complete."""

    task: str
    step: int


@dataclass(frozen=True)
class Score:
    """What an episode is worth: shares of the prompt in order and in any order, and whether all came in order."""

    ordered: float
    order_free: float
    success: bool


def check_tasks(names: Iterable[str]) -> tuple[str, ...]:
    """The names as a tuple. Raises `ConfigError` for one that is no sub-task, or comes twice."""
    names = tuple(map(str, names))
    for name in names:
        if "," in name:
            raise ConfigError(f"'{name}' is no sub-task; put spaces between them, as in {name.replace(',', ' ')}")
        if name not in TASKS:
            raise ConfigError(f"there is no sub-task '{name}'{did_you_mean(name, TASKS)}")
        if names.count(name) > 1:
            raise ConfigError(f"the sub-task '{name}' is asked for more than once")
    return names


def complete(qpos: Floats) -> npt.NDArray[np.bool_]:
    """Which sub-tasks are complete, in the order of `TASKS`: (..., 30) -> (..., 7)."""
    near = [np.linalg.norm(qpos[..., task.qpos] - np.array(task.goal), axis=-1) < THRESHOLD for task in TASKS.values()]
    return np.stack(near, axis=-1)


def complete_in(qpos: Floats) -> tuple[str, ...]:
    """The sub-tasks that are complete in one state (30,)."""
    return tuple(name for name, done in zip(TASKS, complete(qpos), strict=True) if done)


def completions(qpos: Floats, asked: Sequence[str] = ()) -> list[Completion]:
    """First completions along a trajectory (T, 30), by step; within a step in the order of `asked`, then of `TASKS`."""
    done = complete(qpos)
    names = list(TASKS)
    rank = {name: position for position, name in enumerate([*asked, *names])} | {n: i for i, n in enumerate(asked)}
    found = [Completion(name, int(done[:, i].argmax())) for i, name in enumerate(names) if done[:, i].any()]
    return sorted(found, key=lambda completion: (completion.step, rank[completion.task]))


def score(asked: Sequence[str], done: Sequence[str]) -> Score:
    """Walk along the prompt with what was done, in that order: what comes too early does not count, nor again later.

    Asked A B C D and done A C B D, A and B count: 2 of 4.
    """
    if not asked:
        return Score(0.0, 0.0, False)
    reached = 0
    for task in done:
        if reached < len(asked) and task == asked[reached]:
            reached += 1
    return Score(reached / len(asked), len(set(asked) & set(done)) / len(asked), reached == len(asked))


class Progress:
    """Follows an episode: what is complete now, what was completed first, and whether the episode is over."""

    def __init__(self, asked: Sequence[str] = (), limit: int | None = None) -> None:
        """`asked` is the prompt; without one nothing ends the episode but `limit`, a number of steps."""
        self.asked = check_tasks(asked)
        self.limit = limit if limit is not None else STEPS_PER_TASK * len(self.asked) or None
        self.step = 0
        self.now: tuple[str, ...] = ()
        self.first: list[Completion] = []

    def update(self, qpos: Floats, step: int) -> None:
        """Take in the state after `step` steps."""
        self.step = step
        self.now = complete_in(qpos)
        known = {completion.task for completion in self.first}
        new = [name for name in (*self.asked, *TASKS) if name in self.now and name not in known]
        self.first += [Completion(name, step) for name in dict.fromkeys(new)]

    @property
    def score(self) -> Score:
        """The score so far."""
        return score(self.asked, [completion.task for completion in self.first])

    @property
    def wrong(self) -> bool:
        """Whether a sub-task was completed that the prompt does not show: the episode ends there."""
        return bool(self.asked) and any(completion.task not in self.asked for completion in self.first)

    @property
    def terminated(self) -> bool:
        """Whether the prompt is fulfilled, or was left."""
        return self.wrong or (bool(self.asked) and set(self.asked) <= set(self.now))

    @property
    def truncated(self) -> bool:
        """Whether time is up."""
        return self.limit is not None and self.step >= self.limit
