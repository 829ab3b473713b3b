"""Scripted demonstrations: the expert does sub-tasks in a random order, and what it did is kept beside the data.

Each is a pure function of a seed and its number, whoever simulates it. What demonstrators do are other ones than the
robot's, so nothing pairs the bodies but what they have in common.
"""

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from xskill.data.config import check_numbers
from xskill.engine.config import require
from xskill.engine.folder import make_folder, sweep, write_file
from xskill.engine.seeds import numpy_generator
from xskill.engine.workers import spread
from xskill.errors import DataError
from xskill.kitchen import control, env, expert, tasks
from xskill.kitchen.demos import Demonstration, Demonstrations, read_demonstrations
from xskill.kitchen.env import HOME, OBJECT_SPREAD, KitchenEnv
from xskill.kitchen.expert import Expert
from xskill.kitchen.film import saved_model
from xskill.kitchen.tasks import TASKS, check_tasks, complete_in, completions

Floats = npt.NDArray[np.float64]
Told = Callable[[str, int, int], None]

SCRIPTED = "scripted"
EVERY = 40
"""Of so many demonstrations, one does the task that is kept for the test."""
LENGTHS = range(162, 339)
"""Steps of human demonstrations, of four sub-tasks: no scripted one of four is shorter or longer."""
FOUR = 4
"""With more sub-tasks there is more time."""
SPREAD = 0.05
"""Standard deviation, in radians, of the arm's joints at the start."""
ATTEMPTS, TRIED = 20, 5
"""At one demonstration; and how many others are tried in turn for a setback."""
LATER, UNAWARE = (5, 40), (0, 25)
"""Steps from when something is done to when it is undone, and from then to when the robot has noticed."""
BACK = 0.08
"""How far a joint goes in a step, at most, on the way back to a demonstration after a setback, in radians."""
NEW_PAIRS = tuple((task, (*TASKS, *TASKS)[place + step]) for step in (1, 3) for place, task in enumerate(TASKS))
"""Orders of two sub-tasks that are kept for tests: no scripted demonstration of two has them.

A third of all: each sub-task comes first in two of them and second in two.
"""
_SETBACK, _AGAIN = "-setback-", "_again"
"""Told in the name and in the folder of a demonstration that is set back."""
_Job = tuple[int, str, int, tuple[str, ...]]
"""Seed, role, number and order of a demonstration."""


def demonstrations(
    source: str,
    *,
    count: int,
    seed: int,
    tasks: Sequence[int],
    unseen: Sequence[str],
    folder: Path,
    workers: int,
    progress: Told = lambda title, added, total: None,
) -> Demonstrations:
    """Read the demonstrations in `source`; for `scripted`, those in `folder`, after making what is missing there.

    Sources joined with a plus sign are read one after the other. Raises `DataError` when one of them has not a single
    good demonstration.
    """
    sources = [source] if Path(source).exists() else source.split("+")
    if not all(sources):
        raise DataError(f"'{source}' names nothing on one side of a plus sign")
    if len(set(sources)) < len(sources):
        raise DataError(f"{source} names the same demonstrations twice")
    found = [read_demonstrations(one) for one in sources if one != SCRIPTED]
    if SCRIPTED in sources:
        require(count >= 1, "count", count, "at least 1")
        check_numbers(tasks)
        roles = ("robot", "demonstrator")
        jobs = [(seed, role, i, _order(seed, role, i, unseen, tasks)) for role in roles for i in range(count)]
        made = _made(jobs, folder, workers, progress)
        found.append(Demonstrations(tuple(made[:count]), shown=tuple(made[count:])))
    shown = tuple(demo for read in found for demo in read.shown or read.good) if SCRIPTED in sources else ()
    return Demonstrations(
        tuple(demo for read in found for demo in read.good),
        tuple(problem for read in found for problem in read.problems),
        shown,
    )


def is_name(source: str) -> bool:
    """Whether demonstrations are called by a name, and not by where they lie."""
    return source == SCRIPTED or ":" in source


def prompts_of(
    orders: Sequence[Sequence[str]], folder: Path, workers: int, progress: Told = lambda title, added, total: None
) -> list[Demonstration]:
    """A demonstration of each order that nobody has learned from, kept in `folder` and made where it is missing."""
    return _made([(0, "prompt", index, tuple(order)) for index, order in enumerate(orders)], folder, workers, progress)


def setbacks(
    demos: Sequence[Demonstration], count: int, seed: int, folder: Path, workers: int, progress: Told
) -> list[Demonstration]:
    """Demonstrations in which what was done last is undone: some of `demos` up to there, then the expert does it again.

    What is left is done as in the demonstration, or else by the expert. They are kept in `folder` and made where they
    are missing. `set_back_in` tells which demonstration each is of.
    """
    of = _content(demos)
    able = [demo for demo in demos if demo.order]
    if not able:
        raise DataError("none of the demonstrations completes a sub-task, so there is nothing to undo")
    jobs = {
        f"{seed}-setback-{index:05d}-{of}": ([able[place] for place in _some(len(able), seed, index)], seed, index)
        for index in range(count)
    }
    return _kept(_set_back, jobs, folder, workers, progress)


def set_back_in(setback: Demonstration) -> str:
    """The title of the demonstration that a setback is of."""
    return f"{setback.folder.removesuffix(_AGAIN)}/{setback.name.rsplit(_SETBACK, 1)[0]}"


def _made(jobs: Sequence[_Job], folder: Path, workers: int, progress: Told) -> list[Demonstration]:
    """What the jobs come to, in their order, after making what is missing in `folder`."""
    named = {
        f"{seed}-{role}-{index:05d}-{'_'.join(order)}": (order, seed, role, index) for seed, role, index, order in jobs
    }
    return _kept(demonstrate, named, folder, workers, progress)


def _kept(
    work: Callable[..., Demonstration], jobs: Mapping[str, tuple[Any, ...]], folder: Path, workers: int, progress: Told
) -> list[Demonstration]:
    """What `work` makes of each job, in their order: read from where it was kept, by name, or made and kept now."""
    require(workers >= 1, "workers", workers, "at least 1")
    cached = folder / SCRIPTED / _key()
    make_folder(cached)
    sweep(cached)
    paths = {name: cached / f"{name}.npz" for name in jobs}
    found = {name: _cached(path) for name, path in paths.items()}
    todo = {path: (path, work, jobs[name]) for name, path in paths.items() if found[name] is None}
    progress(SCRIPTED, len(found) - len(todo), len(found))
    for path in spread(_make, list(todo.values()), min(workers, max(1, len(todo)))):
        found[path.stem] = _cached(path)
        progress(SCRIPTED, 1, len(found))
    for name, demo in found.items():
        if demo is None:
            raise DataError(f"{paths[name]} was made and cannot be read")
    return [demo for name in jobs if (demo := found[name])]


def demonstrate(order: Sequence[str], *key: int | str) -> Demonstration:
    """The expert doing `order` as it does under this key. An attempt that fails, or takes too long, is made anew.

    Raises `DataError` when there was none that did not.
    """
    order, kitchen = check_tasks(order), _kitchen()
    for attempt in range(ATTEMPTS):
        random = numpy_generator("scripted", *key, attempt)
        performer = Expert(kitchen.scene.model, order, int(random.integers(2**62)))
        kitchen.reset(options={"qpos": _start(random), "limit": LENGTHS[-1] * max(FOUR, len(order)) // FOUR})
        demo = _performed(performer, random, "-".join(map(str, key)) or "0", "_".join(order))
        if demo and demo.order == order and (len(order) != FOUR or len(demo) in LENGTHS):
            return demo
    raise DataError(f"the scripted robot did not manage {', '.join(order)} in {ATTEMPTS} attempts")


def _order(seed: int, role: str, index: int, unseen: Sequence[str], tasks: Sequence[int]) -> tuple[str, ...]:
    if index % EVERY == 0:
        return tuple(unseen)
    random = numpy_generator("order", seed, role, index)
    while True:
        drawn = tuple(map(str, random.permutation(list(TASKS))[: tasks[index % len(tasks)]]))
        if drawn not in NEW_PAIRS:
            return drawn


def _start(random: np.random.Generator) -> Floats:
    """Near where the recorded demonstrations begin, (30,)."""
    qpos, (low, high) = np.array(HOME), _kitchen().scene.model.jnt_range[: control.ARM].T
    qpos[: control.ARM] = np.clip(qpos[: control.ARM] + random.normal(0, SPREAD, control.ARM), low, high)
    qpos[23:25] += random.normal(0, OBJECT_SPREAD, 2)
    return qpos


def _some(count: int, seed: int, index: int) -> list[int]:
    """Which of so many demonstrations are tried for a setback, one after the other."""
    return [int(place) for place in numpy_generator("setback", seed, index).integers(count, size=TRIED)]


def _set_back(demos: Sequence[Demonstration], seed: int, index: int) -> Demonstration:
    """One of some demonstrations up to a while after something was done, which is undone. The expert does it again.

    Before, the robot may have gone on unaware, and pushed things about: that is left out, nobody should learn it.
    Afterwards the robot goes to where the demonstration was by then, and on with it: the expert has another way of
    doing things, and a policy that is told the same skill for both would learn neither. Where that fails in half of
    the attempts, as it does where recorded actions lead nowhere, the expert does what is left, too.
    """
    kitchen = _kitchen()
    for attempt in range(ATTEMPTS):
        random, demo = numpy_generator("set back", seed, index, attempt), demos[attempt % len(demos)]
        done = completions(demo.qpos)
        which = int(random.integers(len(done)))
        following = [end.step - 1 for end in done[which + 1 :]][:1]  # the last step in which the next is not done
        last = min(done[which].step + int(random.integers(*LATER)), *following, len(demo) - 1)
        left, unaware = demo.order[which:], demo.ctrl[last:][: int(random.integers(*UNAWARE))]
        if left[0] not in complete_in(demo.qpos[last]):
            continue
        kitchen.reset(options={"qpos": demo.qpos[0]})  # where it is put back to
        kitchen.data.qpos[:] = demo.qpos[last]
        kitchen.data.qvel[:] = demo.qvel[last] if demo.qvel is not None else 0
        kitchen.undo(left[0])
        for action in unaware:
            kitchen.move(action)
        kitchen.progress.limit = kitchen.progress.step + LENGTHS[-1] * max(FOUR, len(left)) // FOUR
        goes_on = attempt < ATTEMPTS // 2 and bool(following)
        performer = Expert(kitchen.scene.model, left[:1] if goes_on else left, int(random.integers(2**62)))
        again = _performed(performer, random, f"{demo.name}{_SETBACK}{seed}-{index}", f"{demo.folder}{_AGAIN}")
        if again and goes_on:  # at a moment in which the hand is free, on its way to what comes next
            again = _gone_on(again, demo, int(random.integers(last, (last + following[0]) // 2 + 1)))
        if again is None or [end.task for end in completions(again.qpos, left) if end.step > 0] != list(left):
            continue
        if not set(demo.order) <= set(complete_in(again.qpos[-1])):
            continue  # on its way back it has knocked something over
        states = np.concatenate([demo.qpos[:last], again.qpos])
        actions = np.concatenate([demo.ctrl[:last], again.ctrl])
        whole = Demonstration(again.name, again.folder, states, actions, prelude=last)
        if whole.order == demo.order:
            return whole
    raise DataError(f"the scripted robot did not do again what was undone in {ATTEMPTS} attempts")


def _gone_on(before: Demonstration, demo: Demonstration, at: int) -> Demonstration:
    """What came `before`, then the way to step `at` of a demonstration, then its rest, in the kitchen as it stands."""
    kitchen, states = _kitchen(), []
    way = demo.ctrl[at] - before.ctrl[-1]
    steps = max(1, int(np.ceil(np.pi / 2 * np.abs(way[: control.ARM]).max() / BACK)))
    share = (1 - np.cos(np.pi * np.arange(1, steps) / steps)) / 2
    actions = np.concatenate([before.ctrl[-1] + share[:, None] * way, demo.ctrl[at:]])
    for action in actions:
        states.append(kitchen.data.qpos.copy())
        kitchen.move(action)
    ways = np.concatenate([before.qpos, states]), np.concatenate([before.ctrl, actions])
    return Demonstration(before.name, before.folder, *ways)


def _performed(performer: Expert, random: np.random.Generator, name: str, folder: str) -> Demonstration | None:
    """What a performer does in the kitchen as it stands, until it has rested a while; None when it takes too long."""
    kitchen, rest = _kitchen(), int(random.integers(2, 8))
    states, speeds, actions = [], [], []
    while rest and not kitchen.progress.truncated:
        states.append(kitchen.data.qpos.copy())
        speeds.append(kitchen.data.qvel.copy())
        actions.append(performer.act(kitchen.data))
        kitchen.move(actions[-1])
        rest -= performer.stage == "rest"
    return None if rest else Demonstration(name, folder, np.array(states), np.array(actions), np.array(speeds))


def _make(path: Path, work: Callable[..., Demonstration], job: Sequence[Any]) -> Path:
    """Have a demonstration simulated and keep it, packed as recorded ones are; where it is kept."""
    demo = work(*job)
    numbers = {"qpos": demo.qpos, "qvel": demo.qvel, "ctrl": demo.ctrl}
    arrays: dict[str, Any] = {name: array.astype(np.float32) for name, array in numbers.items() if array is not None}
    arrays |= {"episode_ends": [len(demo)], "names": [demo.name], "folders": [demo.folder], "preludes": [demo.prelude]}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_file(path, buffer.getvalue())
    return path


def _cached(path: Path) -> Demonstration | None:
    try:
        return read_demonstrations(path).good[0]
    except DataError:  # not made yet, or damaged
        return None


def _content(demos: Sequence[Demonstration]) -> str:
    """Names all of some demonstrations that decides which setbacks they have."""
    digest = hashlib.sha256()
    for demo in demos:
        digest.update(demo.title.encode() + demo.qpos.tobytes() + demo.ctrl.tobytes())
        digest.update(b"" if demo.qvel is None else demo.qvel.tobytes())
    return digest.hexdigest()[:8]


@cache
def _kitchen() -> KitchenEnv:
    return KitchenEnv(cameras=())


def _key() -> str:
    """Names all that decides a demonstration besides its seed and number: the scene, the physics, the script."""
    digest = hashlib.sha256(saved_model(_kitchen().scene.model) + mujoco.__version__.encode())
    for module in (control, env, expert, tasks):
        digest.update(Path(module.__file__ or "").read_bytes())
    digest.update(Path(__file__).read_bytes())
    return digest.hexdigest()[:16]
