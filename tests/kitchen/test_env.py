"""The environment: Gymnasium's own checks, what it observes, how it is moved, undone and started."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from xskill.errors import ConfigError, DataError
from xskill.kitchen import ENVIRONMENT
from xskill.kitchen.env import HOME, KitchenEnv, initial_state
from xskill.kitchen.render import RenderOptions
from xskill.kitchen.tasks import TASKS

SMALL = RenderOptions(height=32, width=48)
STAY = np.array(HOME[:9])


@pytest.mark.parametrize("control", ["joints", "pose"])
def test_gymnasium_is_satisfied(control: str) -> None:
    env = gymnasium.make(
        ENVIRONMENT,
        control=control,
        cameras=("side", "wrist"),
        options=SMALL,
        asked=("kettle",),
        render_mode="rgb_array",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would rather have everything between -1 and 1
        check_env(env.unwrapped)
    env.close()


def test_observations_hold_what_was_asked_for() -> None:
    env = KitchenEnv(cameras=("side", "wrist"), options=SMALL)
    observation, info = env.reset(seed=1)
    assert {name: value.shape for name, value in observation.items()} == {
        "image": (32, 48, 3), "wrist": (32, 48, 3), "state": (9,),
    }  # fmt: skip
    assert not np.array_equal(observation["image"], observation["wrist"])
    assert {"step": 0, "complete": (), "order": (), "steps": (), "score": 0.0}.items() <= info.items()
    assert observation["state"] == pytest.approx(STAY)
    env.close()
    assert set(KitchenEnv(cameras=()).reset()[0]) == {"state"}


def test_state_noise_is_the_benchmarks_and_seeded() -> None:
    env = KitchenEnv(cameras=(), state_noise=0.01)
    first, again, other = (env.reset(seed=seed)[0]["state"] for seed in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.array_equal(env.observe()["state"], env.observe()["state"])  # looked at twice, the same
    samples = np.array([env.reset()[0]["state"] for _ in range(300)]) - STAY
    assert np.abs(samples).max() <= 0.001 + 1e-6
    assert samples.std() == pytest.approx(0.001 / np.sqrt(3), rel=0.1)


def test_the_same_actions_give_the_same_episode() -> None:
    results = []
    for _ in range(2):
        env = KitchenEnv(cameras=(), asked=("kettle", "light"))
        env.reset(seed=0, options={"condition": ("test", 3)})
        for step in range(20):
            env.step(STAY + 0.1 * np.sin(step))
        results.append(env.data.qpos.copy())
    assert np.array_equal(*results)


def test_an_initial_condition_is_a_pure_function_of_its_index() -> None:
    assert np.array_equal(initial_state("a", 5), initial_state("a", 5))
    states = {tuple(initial_state(suite, index)) for suite in ("a", "b") for index in range(32)}
    assert len(states) == 64
    stacked = np.array(list(states))
    assert 0 < stacked[:, :7].std(0).max() < 0.05
    assert (stacked[:, 9:23] == 0).all()
    env = KitchenEnv(cameras=())
    env.reset(options={"condition": ("a", 5)})
    assert np.array_equal(env.data.qpos, initial_state("a", 5))


@pytest.mark.parametrize("task", TASKS)
def test_a_finished_sub_task_can_be_undone_and_stays_so(task: str) -> None:
    env = KitchenEnv(cameras=(), asked=("kettle", "microwave"))
    env.reset()
    entries = list(TASKS[task].qpos)
    env.data.qpos[entries] = TASKS[task].goal
    env.step(STAY)
    assert env.progress.now == (task,)
    order = env.progress.first
    env.undo(task)
    assert env.progress.now == ()
    _, _, _, _, info = env.step(STAY)
    assert info["complete"] == ()
    assert env.progress.first == order
    assert env.data.qpos[entries] == pytest.approx(np.array(HOME)[entries], abs=0.02)


def test_the_score_rises_as_the_prompt_is_followed() -> None:
    env = KitchenEnv(cameras=(), asked=("slide", "light"))
    env.reset()
    env.data.qpos[list(TASKS["slide"].qpos)] = TASKS["slide"].goal
    _, reward, terminated, _, info = env.step(STAY)
    assert (reward, terminated, info["order"], info["steps"], info["score"]) == (1.0, False, ("slide",), (1,), 0.5)
    env.data.qpos[list(TASKS["hinge"].qpos)] = TASKS["hinge"].goal
    _, reward, terminated, _, info = env.step(STAY)
    assert (reward, terminated, info["score"]) == (0.0, True, 0.5)


def test_the_end_effector_goes_to_the_pose_it_is_told() -> None:
    env = KitchenEnv(cameras=(), control="pose")
    env.reset()
    assert env._pose is not None
    goal = env._pose.pose(env.data, closed=True)
    goal[:3] += (0.1, 0.05, 0.1)
    for _ in range(40):
        env.step(goal.astype(np.float32))
    reached = env._pose.pose(env.data, closed=True)
    assert reached[:3] == pytest.approx(goal[:3], abs=0.01)
    assert abs(reached[3:7] @ goal[3:7]) > 0.999
    assert env.data.qpos[7:9] == pytest.approx(0, abs=0.005)
    goal[7] = -1
    for _ in range(20):
        env.step(goal.astype(np.float32))
    assert env.data.qpos[7:9] == pytest.approx(0.04, abs=0.005)


def test_bad_input_is_refused() -> None:
    env = KitchenEnv(cameras=())
    env.reset()
    with pytest.raises(DataError, match="finite numbers"):
        env.step(np.full(9, np.nan))
    with pytest.raises(DataError, match="finite numbers"):
        env.step(np.zeros(8))
    with pytest.raises(DataError, match="a state has 30 finite numbers"):
        env.reset(options={"qpos": np.zeros(9)})
    with pytest.raises(ConfigError, match=r"no camera 'sid' \(did you mean 'side'\?\)"):
        KitchenEnv(cameras=("sid",))
    with pytest.raises(ConfigError, match="no sub-task"):
        env.undo("dishes")
