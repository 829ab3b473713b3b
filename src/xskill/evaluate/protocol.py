"""What is asked of a robot in each episode of a suite: pure functions of the suite and the condition's number."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import numpy.typing as npt

from xskill.engine.config import did_you_mean
from xskill.engine.seeds import seed_of
from xskill.errors import ConfigError, DataError
from xskill.evaluate import SUITES
from xskill.kitchen.animate import animate
from xskill.kitchen.demos import Demonstration
from xskill.kitchen.env import initial_state
from xskill.kitchen.film import film_of
from xskill.kitchen.scene import BODIES
from xskill.kitchen.tasks import STEPS_PER_TASK, TASKS, completions

EXTRA_STEPS = 100
"""More steps for an episode in which something is undone."""
UNDO_AFTER = 20
"""Steps between the completion of a sub-task and its being undone."""
NEW_ORDERS = 32
PROMPTS = 32
"""Prompts of the suites that have more to choose from: pairs, in turn, and seen."""
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
    column: int = 0
    """Which of its suite's settings this is."""

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


def settings(suite: str, demonstrators: Sequence[str], trained_at: float = 1.0) -> tuple[Setting, ...]:
    """The columns of a suite for a model that has watched `demonstrators`; prompts across bodies are the first one's.

    As in the paper, a model that was trained on faster videos is only shown prompts that are as fast.
    """
    if suite not in SUITES:
        raise ConfigError(f"there is no suite '{suite}'{did_you_mean(suite, SUITES)}")
    demonstrator, free = demonstrators[0], [body for body, look in BODIES.items() if look.moves_itself]
    if suite == "mismatch":
        return (Setting("same x1", ROBOT), *(Setting(f"shown by {body}", body, trained_at) for body in free))
    if suite == "orders":
        watched = [body for body in demonstrators if body in free] or free[:1]
        return tuple(Setting(f"shown by {body}", body, trained_at) for body in watched)
    undone = Setting(f"cross x{trained_at:g}, undone", demonstrator, trained_at, undo=True)
    if suite == "perturb":
        return (undone,)
    if suite in ("pairs", "seen"):
        both = Setting("same x1", ROBOT), Setting(f"cross x{trained_at:g}", demonstrator, trained_at)
        return both if suite == "pairs" else (*both, undone)
    speeds = (1.0, 1.3, 1.5, 2.0) if trained_at == 1 else (trained_at,)
    columns = (Setting("same x1", ROBOT), *(Setting(f"cross x{speed:g}", demonstrator, speed) for speed in speeds))
    return (*columns, undone) if suite == "validation" else columns


def trials(
    suite: str, columns: Sequence[Setting], prompts: Sequence[Demonstration], conditions: Sequence[int]
) -> list[Trial]:
    """All episodes of a suite. Condition i shows one held-out demonstration and begins near another's first state."""
    if not prompts:
        raise DataError("no demonstration shows the unseen task, so there is nothing to prompt with")
    found = []
    for column, setting in enumerate(columns):
        film = film_of(setting.body, prompts, setting.speed)
        ends = dict(zip(film.names, map(_ends, film.qpos, film.orders), strict=True))
        for condition in conditions:
            shown = prompts[condition % len(prompts)]
            further = 1 + condition // len(prompts) % max(1, len(prompts) - 1)  # never the one that is shown
            begun = prompts[(condition + further) % len(prompts)]
            start = initial_state(suite, condition, begun.qpos[0])
            shows = shown.title, shown.order, start
            found.append(Trial(suite, setting, condition, *shows, ends=ends[shown.title], column=column))
    return found


def new_orders(demos: Sequence[Demonstration]) -> list[Demonstration]:
    """Demonstrations of `NEW_ORDERS` orders of four sub-tasks that none of `demos` has: the same ones every time.

    They are animated; only a body with motions of its own can show them.
    """
    seen = {demo.order for demo in demos}
    orders = sorted(set(permutations(TASKS, 4)) - seen, key=lambda order: seed_of("new order", *order))
    motions = [(order, animate(order, index).qpos) for index, order in enumerate(orders[:NEW_ORDERS])]
    return [Demonstration(f"{i:02d}", "_".join(order), qpos, qpos[:, :9]) for i, (order, qpos) in enumerate(motions)]


def _ends(states: npt.NDArray[np.floating], order: Sequence[str]) -> tuple[float, ...]:
    """Where in a film each sub-task is done, as a share of its length."""
    done = {end.task: end.step / max(1, len(states) - 1) for end in completions(states, order)}
    return tuple(done.get(task, 1.0) for task in order)
