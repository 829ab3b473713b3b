"""Episodes in many kitchens at once, one batched decision for all.

What happens in an episode depends on its trial alone, not on how many processes simulate, nor on which episodes run
beside it: kitchens do what they are told, and a robot always has the same place in a batch of always the same width.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import mujoco
import numpy as np
import numpy.typing as npt

from xskill.compose.agent import Agent, Decision, Observation, act_together
from xskill.compose.plan import SkillPlan
from xskill.compose.reading import Reading
from xskill.evaluate.protocol import UNDO_AFTER, Trial
from xskill.kitchen.env import NAMES, KitchenEnv
from xskill.kitchen.expert import Expert
from xskill.kitchen.film import Stage
from xskill.kitchen.many import Kitchens, Report, Start
from xskill.kitchen.render import RenderOptions
from xskill.kitchen.scene import Scene
from xskill.kitchen.tasks import score
from xskill.transfer.model import Model

Chunk = npt.NDArray[np.floating]
Floats = npt.NDArray[np.float64]
Pixels = npt.NDArray[np.uint8]
Truth = Mapping[str, Any]
"""A kitchen's `info`."""

WIDTH = 32
"""Robots that decide together; fewer leave places empty."""
APART = 7
"""Places between the robots of one condition in different settings, so that a few conditions run side by side."""
FILM = 256
"""Height and width of a film, about: a multiple of what the robot sees."""
CHUNK = 8
"""Recorded actions that are played before anything is seen again."""
STATE_NOISE = 0.01
"""The benchmark's noise on observed joints."""


@dataclass(frozen=True)
class Record:
    """What became of a trial."""

    setting: str
    condition: int
    prompt: str
    asked: tuple[str, ...]
    completed: tuple[tuple[str, int], ...]
    """Sub-tasks in the order first completed, each with its step."""
    score: float
    order_free: float
    success: bool
    """All that was asked for came in order; and what was undone was done again."""
    steps: int
    undone: tuple[str, int] | None
    """What was undone, and when."""
    redone: int | None
    """At which step it was seen done again."""
    seconds: float
    """How long it took; the only thing here that is not the same every time."""


class Performer(Protocol):
    """What moves robots: a trained model, or anything else that is to be scored like one."""

    cameras: tuple[str, ...]
    size: tuple[int, int]
    window: int
    """Latest observations it wants to see."""

    def begin(self, place: int, trial: Trial) -> None:
        """A new episode begins at this place of the batch."""

    def decide(self, seen: Mapping[int, Sequence[Observation]], truth: Mapping[int, Truth]) -> dict[int, Chunk]:
        """Chunks of actions (T, 9) for the places named, given their latest observations, oldest first.

        The truth about each is only for measures of what it would be worth to know.
        """


class Robots:
    """A trained model that follows the prompts; it may be `told` which sub-tasks are done, as nobody else is."""

    def __init__(
        self,
        model: Model,
        plan: Callable[[Trial], SkillPlan],
        reading: Reading | None = None,
        width: int = WIDTH,
        *,
        told: bool = False,
    ) -> None:
        self.cameras, self.size, self.window = model.body.cameras, model.body.size, model.transfer.policy.observe
        self._model, self._plan, self._reading, self._told = model, plan, reading, told
        self._trials: dict[int, Trial] = {}
        self._agents: list[Agent | None] = [None] * width
        self.decisions: dict[int, list[Decision]] = {}
        """Place -> what was decided in its episode so far."""

    def begin(self, place: int, trial: Trial) -> None:
        agent = Agent(self._model, seed=trial.seed, reading=self._reading)
        agent.follow(self._plan(trial))
        self._agents[place], self._trials[place], self.decisions[place] = agent, trial, []

    def decide(self, seen: Mapping[int, Sequence[Observation]], truth: Mapping[int, Truth]) -> dict[int, Chunk]:
        acting = [agent if place in seen else None for place, agent in enumerate(self._agents)]
        for place, moments in seen.items():
            agent = acting[place]
            assert agent is not None
            for moment in moments:
                agent.see(moment)
            if self._told:
                agent.within = self._trials[place].stretch(truth[place]["complete"])
        chunks = {}
        for place, decision in enumerate(act_together(acting)):
            if decision is not None:
                self.decisions[place].append(decision)
                chunks[place] = decision.actions
        return chunks


class Replayed:
    """Plays the actions of the demonstration that is shown, whatever it sees."""

    cameras: tuple[str, ...] = ("side",)
    window = 1

    def __init__(self, actions: Callable[[Trial], Chunk], size: int) -> None:
        self.size = (size, size)
        self._actions = actions
        self._left: dict[int, Chunk] = {}

    def begin(self, place: int, trial: Trial) -> None:
        self._left[place] = self._actions(trial)

    def decide(self, seen: Mapping[int, Sequence[Observation]], truth: Mapping[int, Truth]) -> dict[int, Chunk]:
        chunks = {place: self._left[place][:CHUNK] for place in seen}
        for place in seen:  # the last action is held
            self._left[place] = self._left[place][min(CHUNK, len(self._left[place]) - 1) :]
        return chunks


class Scripted:
    """The scripted expert, told the order and shown the state: what the sub-tasks allow at best."""

    cameras: tuple[str, ...] = ("side",)
    window = 1

    def __init__(self, size: int) -> None:
        self.size = (size, size)
        self._model = Scene().model
        self._data = mujoco.MjData(self._model)
        self._experts: dict[int, Expert] = {}

    def begin(self, place: int, trial: Trial) -> None:
        self._experts[place] = Expert(self._model, trial.asked, trial.seed)

    def decide(self, seen: Mapping[int, Sequence[Observation]], truth: Mapping[int, Truth]) -> dict[int, Chunk]:
        chunks: dict[int, Chunk] = {}
        for place in seen:
            self._data.qpos[:], self._data.qvel[:] = truth[place]["qpos"], truth[place]["qvel"]
            mujoco.mj_forward(self._model, self._data)
            chunks[place] = self._experts[place].act(self._data)[None]
        return chunks


@dataclass
class _Episode:
    trial: Trial
    report: Report
    began: float = field(default_factory=time.perf_counter)
    undone: tuple[str, int] | None = None
    redone: int | None = None
    interfered: bool = False

    def due(self) -> int | None:
        """The step at which something is to be undone, if that is known and was not done yet."""
        wanted, steps = self.trial.undo_at, self.report.info["steps"]
        if self.interfered:
            return None
        if self.trial.undo:
            return self.trial.undo[1]
        return steps[wanted - 1] + UNDO_AFTER if wanted and len(steps) >= wanted else None

    def interfere(self, kitchens: Kitchens, kitchen: int) -> None:
        """Undo what is to be undone now, if it is done."""
        info = self.report.info
        task = self.trial.undo[0] if self.trial.undo else info["order"][-1]
        self.interfered = True
        if task in info["complete"]:
            self.report = kitchens.undo({kitchen: task})[kitchen]
            self.undone = (task, info["step"])

    def record(self) -> Record:
        trial, info = self.trial, self.report.info
        worth, mended = score(trial.asked, info["order"]), not self.undone or self.redone is not None
        return Record(
            trial.setting.name, trial.condition, trial.prompt, trial.asked,
            tuple(zip(info["order"], info["steps"], strict=True)),
            worth.ordered, worth.order_free, worth.success and mended, info["step"],
            self.undone, self.redone, round(time.perf_counter() - self.began, 3),
        )  # fmt: skip


def roll_out(todo: Sequence[Trial], performer: Performer, *, workers: int, width: int = WIDTH) -> Iterator[Record]:
    """Run episodes and yield the record of each when it is over."""
    queues: dict[int, deque[Trial]] = {}
    for trial in todo:
        queues.setdefault((trial.condition + APART * trial.column) % width, deque()).append(trial)
    kitchen_of = {place: index for index, place in enumerate(queues)}
    if not queues:
        return
    height, columns = performer.size
    options: dict[str, Any] = {
        "cameras": performer.cameras, "options": RenderOptions(height, columns), "state_noise": STATE_NOISE,
    }  # fmt: skip
    with Kitchens(len(queues), workers=workers, window=performer.window, **options) as kitchens:
        live: dict[int, _Episode] = {}
        while queues or live:
            new = {place: queues[place].popleft() for place in queues if place not in live}
            queues = {place: queue for place, queue in queues.items() if queue}
            if new:
                reports = kitchens.reset({kitchen_of[place]: _start(trial) for place, trial in new.items()})
                for place, trial in new.items():
                    live[place] = _Episode(trial, reports[kitchen_of[place]])
                    performer.begin(place, trial)
            seen = {place: _seen(kitchens, kitchen_of[place], performer) for place in live}
            chunks = performer.decide(seen, {place: episode.report.info for place, episode in live.items()})
            before = {place: episode.report.info["step"] for place, episode in live.items()}
            for place, episode in live.items():  # somebody interferes at a step of their own, in the midst of a chunk
                due, kitchen = episode.due(), kitchen_of[place]
                if due is not None and due < before[place] + len(chunks[place]):
                    first = chunks[place][: max(0, due - before[place])]
                    chunks[place] = chunks[place][len(first) :]
                    if len(first):
                        episode.report = kitchens.step({kitchen: first})[kitchen]
                    if not episode.report.over:
                        episode.interfere(kitchens, kitchen)
            going = {place: chunk for place, chunk in chunks.items() if not live[place].report.over}
            reports = kitchens.step({kitchen_of[place]: chunk for place, chunk in going.items()})
            for place, episode in list(live.items()):
                episode.report = reports.get(kitchen_of[place], episode.report)
                now = episode.report.info["step"]
                if episode.undone and episode.redone is None and episode.undone[0] in episode.report.info["complete"]:
                    episode.redone = now
                if episode.report.over:
                    yield episode.record()
                    del live[place]


def watched(trial: Trial, performer: Performer, width: int = WIDTH) -> tuple[Record, Floats]:
    """The record of an episode, which happens as in any other roll-out, and the state (T, 30) after each step."""
    noting = _Noting(performer)
    (record,) = roll_out([trial], noting, workers=1, width=width)
    kitchen, states = KitchenEnv(cameras=()), []
    kitchen.reset(options=dict(_start(trial).options))
    for step, action in enumerate(np.concatenate(noting.chunks)[: record.steps]):
        if record.undone and record.undone[1] == step:
            kitchen.undo(record.undone[0])
        kitchen.move(action)
        states.append(kitchen.data.qpos.copy())
    return record, np.array(states)


class _Noting:
    """A performer of one episode whose actions are kept."""

    def __init__(self, performer: Performer) -> None:
        self.cameras, self.size, self.window = performer.cameras, performer.size, performer.window
        self.chunks: list[Chunk] = []
        self.begin, self._decide = performer.begin, performer.decide

    def decide(self, seen: Mapping[int, Sequence[Observation]], truth: Mapping[int, Truth]) -> dict[int, Chunk]:
        chunks = self._decide(seen, truth)
        self.chunks += chunks.values()
        return chunks


def filmed(body: str, states: Floats, seen: int, hands: Floats | None = None) -> Pixels:
    """A film (T, H, W, 3) of a body in those states: a multiple of the `seen` pixels a side, near `FILM`."""
    side = seen * max(1, round(FILM / seen))
    with Stage(RenderOptions(side, side, samples=4)) as stage:
        return stage.frames(body, states, hands)["side"]


def side_by_side(prompt: Pixels, frames: Pixels) -> Pixels:
    """A prompt, slowed down or sped up to last as long, and made as large, beside what the robot made of it."""
    when = np.linspace(0, len(prompt) - 1, len(frames)).round().astype(int)
    larger = frames.shape[1] // prompt.shape[1]
    return np.concatenate([prompt[when].repeat(larger, 1).repeat(larger, 2), frames], axis=2)


def _start(trial: Trial) -> Start:
    return Start(trial.condition, {"qpos": trial.start, "asked": trial.asked, "limit": trial.limit})


def _seen(kitchens: Kitchens, kitchen: int, performer: Performer) -> list[Observation]:
    """The latest observations of a kitchen, named as the performer's cameras are."""
    names = {"state": "state"} | {camera: NAMES[camera] for camera in performer.cameras}
    views = {name: kitchens.observations[key][kitchen] for name, key in names.items()}
    return [{name: view[moment] for name, view in views.items()} for moment in range(-performer.window, 0)]
