"""Many kitchens at once: physics and rendering in parallel processes, observations in one shared array.

Each process has one model and one renderer for all its kitchens. Frames are written where the parent reads them;
only short messages go to and fro. What happens in a kitchen depends on nothing but what it is told, so the number of
processes changes nothing but the time.
"""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt

from xskill.engine.config import require
from xskill.engine.workers import settle
from xskill.errors import DataError, XSkillError
from xskill.kitchen.env import KitchenEnv, Observation

_SPAWN = get_context("spawn")


@dataclass(frozen=True)
class Start:
    """How one kitchen begins an episode: what `KitchenEnv.reset` takes."""

    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """What became of one kitchen: the environment's `info`, and whether its episode is over."""

    info: Mapping[str, Any]
    over: bool


class Kitchens:
    """`count` kitchens in `workers` processes. Close it, or use it as a context manager."""

    def __init__(self, count: int, *, workers: int = 1, window: int = 1, **options: Any) -> None:
        """`window` is how many of the latest observations are kept; `options` are those of `KitchenEnv`."""
        require(count >= 1, "count", count, "at least 1")
        require(workers >= 1, "workers", workers, "at least 1")
        require(window >= 1, "window", window, "at least 1")
        probe: Any = KitchenEnv(**options)  # here, so that a wrong option is an error here
        kinds = {name: (box.shape, box.dtype.str) for name, box in probe.observation_space.items()}
        self._action = probe.action_space.shape
        sizes = {name: count * window * int(np.prod(s)) * np.dtype(d).itemsize for name, (s, d) in kinds.items()}
        shared = {name: _SPAWN.RawArray(ctypes.c_uint8, size) for name, size in sizes.items()}
        self.observations = _views(shared, kinds, count, window)
        """Name -> (count, window, ...), the latest observation last; written in place."""
        self.count, self._broken = count, False
        shares = [range(first, count, workers) for first in range(min(workers, count))]
        self._home = {index: worker for worker, mine in enumerate(shares) for index in mine}
        self._pipes: list[Connection] = []
        self._processes = []
        for mine in shares:
            ours, theirs = _SPAWN.Pipe()
            process = _SPAWN.Process(
                target=_work, args=(theirs, mine, options, shared, kinds, count, window), daemon=True
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def reset(self, starts: Mapping[int, Start]) -> dict[int, Report]:
        """Begin new episodes in the kitchens named; the others stay as they are."""
        return self._ask("reset", starts)

    def step(self, actions: Mapping[int, npt.NDArray[np.floating]]) -> dict[int, Report]:
        """Carry out a chunk of actions, (steps, A), in each kitchen named. An episode that ends cuts its chunk short.

        Of each chunk only what `observations` keeps is rendered.
        """
        for index, chunk in actions.items():
            if np.ndim(chunk) != 2 or np.shape(chunk)[1:] != self._action or not np.isfinite(chunk).all():
                raise DataError(f"kitchen {index}: actions are rows of {self._action[0]} finite numbers, not {chunk}")
        return self._ask("step", actions)

    def undo(self, tasks: Mapping[int, str]) -> dict[int, Report]:
        """Put a sub-task back in each kitchen named, as `KitchenEnv.undo` does."""
        return self._ask("undo", tasks)

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join()

    def __enter__(self) -> "Kitchens":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, what: str, orders: Mapping[int, Any]) -> dict[int, Report]:
        if unknown := set(orders) - set(self._home):
            raise DataError(f"there is no kitchen {min(unknown)}; they are numbered 0 to {self.count - 1}")
        parts: list[dict[int, Any]] = [{} for _ in self._pipes]
        for index, order in orders.items():
            parts[self._home[index]][index] = order
        if self._broken:
            raise DataError("an earlier call was cut short, so these kitchens cannot be trusted; make new ones")
        asked = [pipe for pipe, part in zip(self._pipes, parts, strict=True) if part]
        reports: dict[int, Report] = {}
        failure: XSkillError | None = None
        self._broken = True  # until every answer is in: one left unread would be taken for the next call's
        try:
            for pipe, part in zip(self._pipes, parts, strict=True):
                if part:
                    pipe.send((what, part))
            for pipe in asked:
                answer = pipe.recv()
                if isinstance(answer, XSkillError):
                    failure = answer
                else:
                    reports |= answer
        except (EOFError, ConnectionError):
            raise DataError("a process that simulates has died (out of memory?); try fewer workers") from None
        self._broken = False
        if failure is not None:
            raise failure
        return {index: reports[index] for index in orders}


def _views(
    shared: Mapping[str, Any], kinds: Mapping[str, tuple[Sequence[int], str]], count: int, window: int
) -> Observation:
    return {
        name: np.frombuffer(shared[name], np.dtype(kind)).reshape(count, window, *shape)
        for name, (shape, kind) in kinds.items()
    }


def _work(
    pipe: Connection,
    mine: Sequence[int],
    options: Mapping[str, Any],
    shared: Mapping[str, Any],
    kinds: Mapping[str, tuple[Sequence[int], str]],
    count: int,
    window: int,
) -> None:
    """The life of one process: its kitchens, until the pipe closes."""
    settle()
    views = _views(shared, kinds, count, window)
    first = KitchenEnv(**options)
    kitchens = {index: first if index == mine[0] else first.twin() for index in mine}
    while True:
        try:
            what, orders = pipe.recv()
        except EOFError:
            return
        try:
            answer: object = {
                index: _obeyed(kitchens[index], what, order, index, views) for index, order in orders.items()
            }
        except XSkillError as error:
            answer = error
        except Exception as error:
            answer = DataError(f"a kitchen could not be told to {what}: {type(error).__name__}: {error}")
        try:
            pipe.send(answer)
        except ConnectionError:  # nobody listens any more
            return


def _obeyed(kitchen: KitchenEnv, what: str, order: Any, index: int, views: Observation) -> Report:
    def over() -> bool:
        return kitchen.progress.terminated or kitchen.progress.truncated

    if what == "reset":
        observation, _ = kitchen.reset(seed=order.seed, options=dict(order.options))
        for name, view in views.items():
            view[index] = observation[name]
    elif what == "undo":
        kitchen.undo(order)
        for name, value in kitchen.observe().items():
            views[name][index, -1] = value
    else:
        window = views["state"].shape[1]
        for left, action in zip(range(len(order) - 1, -1, -1), order, strict=True):
            kitchen.move(action)
            if left < window or over():
                for name, value in kitchen.observe().items():
                    views[name][index, :-1] = views[name][index, 1:].copy()
                    views[name][index, -1] = value
            if over():
                break
    return Report(kitchen.info(), over())
