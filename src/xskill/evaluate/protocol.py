"""What is asked of a robot in each episode of a suite: pure functions of the suite and the condition's number."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xskill.engine.config import did_you_mean
from xskill.errors import ConfigError, DataError
from xskill.evaluate import SUITES
from xskill.kitchen.demos import Demonstration
from xskill.kitchen.env import initial_state
from xskill.kitchen.tasks import STEPS_PER_TASK, completions

EXTRA_STEPS = 100
"""More steps for an episode in which something is undone."""
UNDO_AFTER = 20
"""Steps between the completion of a sub-task and its being undone."""
ROBOT = "franka"


@dataclass(frozen=True)
class Setting:
    """A column of a table: who is seen in the prompts, how fast, and whether somebody interferes."""

    name: str
    body: str
    speed: float = 1.0
    undo: bool = False


@dataclass(frozen=True, eq=False)
class Trial:
    """One episode to come."""

    suite: str
    setting: Setting
    condition: int
    prompt: str
    """The demonstration that is shown."""
    asked: tuple[str, ...]
    """Its sub-tasks in order."""
    start: npt.NDArray[np.float64]
    """The state it begins in, (30,)."""
    undo: tuple[str, int] | None = None
    """A sub-task to be undone at a step of its own."""
    steps: int | None = None
    """How long it may last, if not as long as its sub-tasks are given."""
    ends: tuple[float, ...] = ()
    """Where in the prompt each sub-task is done, as a share of its length; for who is told the truth."""

    @property
    def seed(self) -> str:
        """What is random in the episode is a function of this: the same in all settings and for all methods."""
        return f"{self.suite}/{self.condition}"

    @property
    def limit(self) -> int:
        """Steps after which it is over."""
        return self.steps or STEPS_PER_TASK * len(self.asked) + (EXTRA_STEPS if self.setting.undo else 0)

    def stretch(self, done: Sequence[str]) -> tuple[float, float]:
        """The part of the prompt, from and to, that shows the first sub-task that is not done."""
        left = next((index for index, task in enumerate(self.asked) if task not in done), len(self.asked))
        borders = (0.0, *self.ends, 1.0)
        return borders[left], borders[left + 1]

    @property
    def undo_at(self) -> int | None:
        """After how many completions the latest is undone, if at all: the first, the second or the third."""
        return 1 + self.condition % max(1, len(self.asked) - 1) if self.setting.undo else None


def settings(suite: str, demonstrator: str, trained_at: float = 1.0) -> tuple[Setting, ...]:
    """The columns of a suite for a model that has watched `demonstrator`.

    As in the paper, a model that was trained on faster videos is only shown prompts that are as fast.
    """
    if suite not in SUITES:
        raise ConfigError(f"there is no suite '{suite}'{did_you_mean(suite, SUITES)}")
    if suite == "perturb":
        return (Setting(f"cross x{trained_at:g}, undone", demonstrator, trained_at, undo=True),)
    speeds = (1.0, 1.3, 1.5, 2.0) if trained_at == 1 else (trained_at,)
    return (Setting("same x1", ROBOT), *(Setting(f"cross x{speed:g}", demonstrator, speed) for speed in speeds))


def trials(
    suite: str, columns: Sequence[Setting], prompts: Sequence[Demonstration], conditions: Sequence[int]
) -> list[Trial]:
    """All episodes of a suite. Condition i shows one held-out demonstration and begins near another's first state."""
    if not prompts:
        raise DataError("no demonstration shows the unseen task, so there is nothing to prompt with")
    ends = {shown.title: _ends(shown) for shown in prompts}
    found = []
    for setting in columns:
        for condition in conditions:
            shown = prompts[condition % len(prompts)]
            begun = prompts[(condition + 1 + condition // len(prompts)) % len(prompts)]
            start = initial_state(suite, condition, begun.qpos[0])
            found.append(Trial(suite, setting, condition, shown.title, shown.order, start, ends=ends[shown.title]))
    return found


def _ends(shown: Demonstration) -> tuple[float, ...]:
    done = {end.task: end.step / (len(shown.qpos) - 1) for end in completions(shown.qpos)}
    return tuple(done[task] for task in shown.order)
