"""The kitchen as a dataset: every body's videos of recorded demonstrations, and which of them train."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from xskill.data.config import DataConfig
from xskill.data.split import Split, TrainingData, drawn
from xskill.engine.config import did_you_mean
from xskill.errors import ConfigError, DataError
from xskill.kitchen.demos import Demonstration
from xskill.kitchen.film import Stage, films_of, shoot
from xskill.kitchen.render import CAMERAS, RenderOptions
from xskill.kitchen.scene import BODIES
from xskill.kitchen.scripted import demonstrations, set_back_in, setbacks
from xskill.kitchen.tasks import check_tasks


def split(demos: Sequence[Demonstration], task: Sequence[str], level: int, held_out: int) -> Split:
    """Which demonstrations train at a level, judged by the order in which their states complete sub-tasks.

    Those of the unseen `task` are prompts. Level 1 takes out its second transition besides, Level 2 its first as well.
    Held out are those whose names draw the smallest numbers: the same ones whatever else is there.
    """
    task = check_tasks(task)
    unseen = {1: set(pairwise(task[1:3])), 2: set(pairwise(task[:3]))}.get(level, set())
    prompts = [demo.title for demo in demos if demo.order == task]
    seen = [demo.title for demo in demos if demo.order != task and not unseen & set(pairwise(demo.order))]
    aside = drawn(seen, held_out)
    if len(aside) >= len(seen):
        raise DataError(
            f"{len(seen)} demonstrations are left to learn from at level {level}, and {held_out} are to be held out"
        )
    train = tuple(name for name in seen if name not in aside)
    return Split(train, tuple(name for name in seen if name in aside), tuple(prompts))


def prepare(
    config: DataConfig,
    folder: Path,
    *,
    workers: int,
    say: Callable[[str], None],
    progress: Callable[[str, int, int], None],
) -> TrainingData:
    """Open the banks for a config in `folder`, or make them. `progress` is told (body, frames added, frames in all)."""
    for body in (config.robot, *config.demonstrators):
        if body not in BODIES:
            raise ConfigError(f"there is no body '{body}', and no dataset of that name{did_you_mean(body, BODIES)}")
    if not BODIES[config.robot].arm:
        raise ConfigError(f"'{config.robot}' has no arm to act with; data.robot must be franka")
    for camera in config.cameras:
        if camera not in CAMERAS:
            raise ConfigError(f"there is no camera '{camera}'{did_you_mean(camera, CAMERAS)}")
    if not config.demos:
        raise ConfigError(
            "there are no demonstrations to learn from; name them with --data.demos PATH (the relay-policy-learning "
            "release, as a folder, zip or .npz), have them simulated with --data.demos scripted, or name your own "
            "datasets with --data.robot FOLDER --data.demonstrators FOLDER"
        )
    read = demonstrations(
        config.demos,
        count=config.count, seed=config.seed, tasks=config.tasks, unseen=config.unseen,
        folder=folder, workers=workers, progress=progress,
    )  # fmt: skip
    for problem in read.problems:
        say(f"passed over: {problem}")
    parts = split(read.good, config.unseen, config.level, config.held_out)
    also = {demo.title for demo in read.good}
    if others := [demo for demo in read.shown if demo.title not in also]:
        aside = min(config.held_out, max(1, len(others) // 5))
        parts = parts.with_(split(others, config.unseen, config.level, aside))
    if config.setbacks:
        # Of all demonstrations, so that runs with other splits share their frames; those that train choose among them.
        again = setbacks(read.good, config.setbacks, config.seed, folder, workers, progress)
        read, train = replace(read, good=(*read.good, *again), shown=read.shown or read.good), set(parts.train)
        parts = parts.with_(Split(tuple(demo.title for demo in again if set_back_in(demo) in train), ()))
    films = films_of((config.robot, *config.demonstrators), read, config.speed)
    for film in films:
        for remark in film.remarks():
            say(remark)
    options = RenderOptions(height=config.size, width=config.size)
    with Stage(options) as stage:
        banks = [
            shoot(
                film, folder / film.body, stage,
                cameras=config.cameras if film is films[0] else config.cameras[:1], workers=workers, progress=progress,
            )
            for film in films
        ]  # fmt: skip
    return TrainingData(tuple(banks), parts)
