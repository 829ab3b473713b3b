"""How simulating and filming the kitchen scale: N processes doing N times the work of one, on N cores.

`environments` steps and renders kitchens, `filming` renders episodes into frame banks. Both are the throughput of N
processes as a share of N times that of one: 1 is perfect. Starting processes is not counted.
`over_every_frame` is how many times faster kitchens go when, of 8 steps, only the 2 frames a policy sees are rendered.
"""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from harness import arguments, compare, report
from xskill.kitchen.demos import Demonstration
from xskill.kitchen.env import HOME
from xskill.kitchen.film import film_of, shoot_all
from xskill.kitchen.many import Kitchens, Start

EACH = 4
"""Kitchens for each process."""
EPISODE = 40
"""Frames of a filmed episode."""


def waving(index: int, steps: int) -> np.ndarray:
    """Joint targets (steps, 9) of an arm that waves over the counter."""
    targets = np.tile(np.array(HOME[:9]), (steps, 1))
    targets[:, :7] += 0.3 * np.sin(np.arange(steps)[:, None] / 8 + index)
    return targets


def stepping(kitchens: Kitchens, chunks: int) -> Callable[[], None]:
    """Work: in every kitchen `chunks` times 8 steps."""

    def work() -> None:
        for _ in range(chunks):
            kitchens.step({index: waving(index, 8) for index in range(kitchens.count)})

    return work


def opened(workers: int, window: int) -> Kitchens:
    kitchens = Kitchens(EACH * workers, workers=workers, window=window)
    kitchens.reset({index: Start(seed=index) for index in range(kitchens.count)})
    return kitchens


def filming(workers: int, episodes: int) -> float:
    """Frames per second while all `workers` film, each that many episodes."""
    count = workers * (episodes + 1)
    states = np.tile(np.array(HOME), (EPISODE, 1))
    states[:, :9] = waving(0, EPISODE)
    demos = [Demonstration(str(index), "waving", states, states[:, :9]) for index in range(count)]
    reports: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        films = [film_of("franka", demos)]
        shoot_all(films, Path(folder), workers=workers, progress=lambda *_: reports.append(time.time()))
    reports = reports[1:]  # the first says that there is nothing yet
    begun = reports[workers - 1]  # by now every process has started
    return EPISODE * (count - workers) / (reports[-1] - begun)


def main() -> None:
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes: N")
    parser.add_argument("--chunks", type=int, default=4, help="chunks of 8 steps a round in each kitchen")
    options = parser.parse_args()
    workers, chunks = options.workers, options.chunks
    with opened(1, 8) as one, opened(workers, 8) as many, opened(workers, 2) as few:
        environments = compare(stepping(one, chunks), stepping(many, chunks), options.rounds)
        over_every_frame = compare(stepping(many, chunks), stepping(few, chunks), options.rounds)
    rates = [filming(workers, 2 * chunks) / filming(1, 2 * chunks) / workers for _ in range(options.rounds)]
    report(
        {"environments": environments, "over_every_frame": over_every_frame},
        options.json,
        filming=round(float(np.median(rates)), 3),
        filming_quartiles=[round(float(share), 3) for share in np.quantile(rates, [0.25, 0.75])],
        workers=workers,
    )


if __name__ == "__main__":
    main()
