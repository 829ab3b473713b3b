"""How well the scripted robot does: random orders of four sub-tasks, each sub-task alone, and with interference.

`ordered_all` is the share of orders of which all four are completed, in order, within 450 steps; `within_280` those
that need no more than the protocol allows. `per_task` is each sub-task alone, from an arm anywhere before the
furniture. `pushed` are orders in which the arm is pushed for half a second, or the latest sub-task is undone.
"""

import argparse
import json
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache

import mujoco
import numpy as np

from xskill.engine.seeds import numpy_generator
from xskill.kitchen.control import ARM
from xskill.kitchen.env import KitchenEnv, initial_state
from xskill.kitchen.expert import Expert
from xskill.kitchen.tasks import STEPS_PER_TASK, TASKS

LIMIT, ALONE = 450, 150
PUSH, PUSHED_FOR = 60.0, 6
"""Newtons, in a random direction, and steps."""
UNDO_AFTER = 20


@dataclass(frozen=True)
class Outcome:
    """What became of an episode."""

    order: tuple[str, ...]
    success: bool
    steps: int


@cache
def kitchen() -> KitchenEnv:
    return KitchenEnv(cameras=())


def touching(model: mujoco.MjModel, data: mujoco.MjData) -> bool:
    """Whether the robot touches anything."""
    own = model.body_rootid == model.body("panda0_link0").rootid[0]
    return any(own[model.geom_bodyid[contact.geom]].any() for contact in data.contact[: data.ncon])


def anywhere(index: int) -> np.ndarray:
    """A state (30,) with the arm in a random pose that touches nothing, the hand before the furniture."""
    env, random = kitchen(), numpy_generator("anywhere", index)
    model, data = env.scene.model, mujoco.MjData(env.scene.model)
    low, high = model.jnt_range[:ARM].T
    while True:
        data.qpos[:] = initial_state("anywhere", index)
        data.qpos[:ARM] = np.clip(data.qpos[:ARM] + random.normal(0, 0.25, ARM), low, high)
        mujoco.mj_forward(model, data)
        x, y, z = data.site("end_effector").xpos
        if not touching(model, data) and -0.7 < x < 0.2 and 0.05 < y < 0.35 and 1.85 < z < 2.5:
            return np.array(data.qpos)


def episode(index: int, order: tuple[str, ...], interfere: bool = False) -> Outcome:
    """One episode of one order, from initial condition `index`."""
    env, alone = kitchen(), len(order) == 1
    start = anywhere(index) if alone else initial_state("expert", index)
    env.reset(options={"qpos": start, "asked": order, "limit": ALONE if alone else LIMIT})
    expert, random = Expert(env.scene.model, order, index), numpy_generator("interference", index)
    hand, push = env.scene.model.body("panda0_link7").id, random.normal(0, PUSH / np.sqrt(3), 3)
    at, which, undone = int(random.integers(30, 150)), int(random.integers(max(1, len(order) - 1))), False
    while not (env.progress.terminated or env.progress.truncated):
        step, done = env.progress.step, env.progress.first
        if interfere and index % 2:
            env.data.xfrc_applied[hand, :3] = push if at <= step < at + PUSHED_FOR else 0
        elif interfere and not undone and len(done) > which and step >= done[which].step + UNDO_AFTER:
            env.undo(done[which].task)
            undone = True
        env.move(expert.act(env.data))
    return Outcome(order, env.progress.score.success and env.progress.terminated, env.progress.step)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=200, help="orders, with interference and without")
    parser.add_argument("--alone", type=int, default=50, help="episodes of each sub-task alone")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    four = [tuple(map(str, numpy_generator("orders", i).permutation(list(TASKS))[:4])) for i in range(options.orders)]
    single = [(index, (task,)) for task in TASKS for index in range(options.alone)]
    with ProcessPoolExecutor(options.workers) as pool:
        orders = list(pool.map(episode, range(len(four)), four))
        pushed = list(pool.map(episode, range(len(four)), four, [True] * len(four)))
        alone = list(pool.map(episode, *zip(*single, strict=True))) if single else []
    for name, outcomes in (("order", orders), ("order with interference", pushed), ("alone", alone)):
        for index, outcome in enumerate(outcomes):
            if not outcome.success:
                print(f"{name} {index}: {', '.join(outcome.order)} not completed", file=sys.stderr)

    def share(outcomes: list[Outcome], limit: int = LIMIT) -> float:
        return round(statistics.mean(outcome.success and outcome.steps <= limit for outcome in outcomes), 4)

    summary = {
        "ordered_all": share(orders),
        "within_280": share(orders, 4 * STEPS_PER_TASK),
        "per_task": {task: share([found for found in alone if found.order == (task,)]) for task in TASKS if alone},
        "pushed": share(pushed),
        "median_steps": statistics.median([outcome.steps for outcome in orders if outcome.success] or [0]),
        "orders": len(orders),
    }
    print(json.dumps(summary) if options.json else summary)


if __name__ == "__main__":
    main()
