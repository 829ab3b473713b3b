"""The scripted robot: every sub-task by physics, again after interference, within its limits, never twice alike."""

from collections.abc import Callable, Sequence
from functools import cache

import mujoco
import numpy as np
import pytest

from xskill.errors import ConfigError
from xskill.kitchen.env import KitchenEnv, initial_state
from xskill.kitchen.expert import Expert
from xskill.kitchen.tasks import TASKS

ORDER = ("microwave", "kettle", "light", "slide")
FASTEST = 87 / 100, 12 / 10
"""Radians a second at which damping takes all the force of the motors: of the first four joints, of the wrist."""


@cache
def kitchen() -> KitchenEnv:
    return KitchenEnv(cameras=())


def performed(
    order: Sequence[str],
    seed: int,
    steps: int = 450,
    meanwhile: Callable[[KitchenEnv], None] = lambda env: None,
    start: np.ndarray | None = None,
) -> tuple[KitchenEnv, np.ndarray, np.ndarray]:
    """The kitchen after an episode, the actions (T, 9) and the speeds of the joints (T, 9)."""
    env = kitchen()
    env.reset(options={"qpos": initial_state("test", seed) if start is None else start, "asked": order, "limit": steps})
    expert, actions, speeds = Expert(env.scene.model, order, seed), [], []
    while not (env.progress.terminated or env.progress.truncated):
        meanwhile(env)
        actions.append(expert.act(env.data))
        env.move(actions[-1])
        speeds.append(env.data.qvel[:9].copy())
    return env, np.array(actions), np.array(speeds)


def touching(model: mujoco.MjModel, data: mujoco.MjData) -> bool:
    """Whether the robot touches anything."""
    own = model.body_rootid == model.body("panda0_link0").rootid[0]
    return any(own[model.geom_bodyid[contact.geom]].any() for contact in data.contact[: data.ncon])


def anywhere(seed: int) -> np.ndarray:
    """A state with the arm well away from where demonstrations begin, touching nothing."""
    env, random = kitchen(), np.random.default_rng(seed)
    data = mujoco.MjData(env.scene.model)
    low, high = env.scene.model.jnt_range[:7].T
    while True:
        data.qpos[:] = initial_state("test", seed)
        data.qpos[:7] = np.clip(data.qpos[:7] + random.normal(0, 0.25, 7), low, high)
        mujoco.mj_forward(env.scene.model, data)
        x, y, z = data.site("end_effector").xpos
        if not touching(env.scene.model, data) and -0.7 < x < 0.2 and 0.05 < y < 0.35 and 1.85 < z < 2.5:
            return np.array(data.qpos)


@pytest.mark.parametrize("task", TASKS)
def test_every_sub_task_is_done_alone_from_anywhere(task: str) -> None:
    for seed in range(2):
        env, _, _ = performed([task], seed, 150, start=anywhere(seed))
        assert [completion.task for completion in env.progress.first] == [task]


@pytest.mark.parametrize("order", [ORDER, ("hinge", "slide", "bottom-burner", "top-burner")])
def test_four_sub_tasks_are_done_in_the_order_asked_for_and_within_the_protocols_time(order: tuple[str, ...]) -> None:
    env, _, _ = performed(order, 0, 280)
    assert tuple(completion.task for completion in env.progress.first) == order
    assert env.progress.score.success


def test_actions_and_joints_keep_within_their_limits() -> None:
    env, actions, speeds = performed(ORDER, 1)
    low, high = env.scene.model.actuator_ctrlrange.T
    assert ((actions >= low) & (actions <= high)).all()
    assert np.abs(speeds[:, :4]).max() < FASTEST[0] * 1.1
    assert np.abs(speeds[:, 4:7]).max() < FASTEST[1] * 1.1
    change = np.abs(np.diff(actions[:, :7], axis=0)).max()
    assert change < 0.35, "a target leaps"


def test_what_was_undone_is_done_again() -> None:
    undone: list[int] = []

    def meanwhile(env: KitchenEnv) -> None:
        done = env.progress.first
        if not undone and done and done[-1].task == "kettle" and env.progress.step > done[-1].step + 20:
            env.undo("microwave")
            undone.append(env.progress.step)

    env, _, _ = performed(ORDER, 2, meanwhile=meanwhile)
    assert undone
    assert env.progress.terminated
    assert set(env.progress.now) == set(ORDER)


def test_an_arm_that_is_pushed_aside_finds_its_way_back() -> None:
    hand: dict[bool, np.ndarray] = {}

    def pushing(push: bool) -> Callable[[KitchenEnv], None]:
        def meanwhile(env: KitchenEnv) -> None:
            body, step = env.scene.model.body("panda0_link7").id, env.progress.step
            env.data.xfrc_applied[body, :3] = (-80, -80, 40) if push and 30 <= step < 38 else 0
            if step == 38:
                hand[push] = env.data.site("end_effector").xpos.copy()

        return meanwhile

    performed(ORDER, 3, meanwhile=pushing(False))
    env, _, _ = performed(ORDER, 3, meanwhile=pushing(True))
    assert np.linalg.norm(hand[True] - hand[False]) > 0.05
    assert env.progress.score.success


def test_the_same_seed_acts_the_same_and_another_one_differently() -> None:
    start = initial_state("test", 0)
    found = [performed(["light"], seed, start=start)[1] for seed in (0, 0, 1)]
    assert np.array_equal(found[0], found[1])
    first, other = found[0][20], found[2][20]
    assert np.abs(first - other).max() > 0.02


def test_when_all_is_done_the_hand_is_open_and_still() -> None:
    env = kitchen()
    env.reset(options={"qpos": initial_state("test", 5)})
    expert = Expert(env.scene.model, ["bottom-burner"], 5)
    for _ in range(120):
        env.move(expert.act(env.data))
    assert expert.next(env.data) is None
    assert expert.stage == "rest"
    assert env.data.qpos[7:9].min() > 0.035
    assert np.abs(env.data.qvel[:7]).max() < 0.1


@pytest.mark.parametrize(
    ("order", "told"),
    [(["ligth"], "there is no sub-task 'ligth' (did you mean 'light'?)"), (["light", "light"], "more than once")],
)
def test_an_order_that_makes_no_sense_is_refused(order: list[str], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Expert(kitchen().scene.model, order)
    assert told in str(refused.value)
