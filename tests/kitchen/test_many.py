"""Many kitchens at once: the same as one after the other, however many processes there are."""

import os
import signal
import threading
import time

import numpy as np
import pytest

from xskill.errors import ConfigError, DataError
from xskill.kitchen.env import HOME, KitchenEnv
from xskill.kitchen.many import Kitchens, Start
from xskill.kitchen.render import RenderOptions
from xskill.kitchen.tasks import TASKS

OPTIONS = {"cameras": ("side", "wrist"), "options": RenderOptions(height=24, width=32), "state_noise": 0.01}
STARTS = {index: Start(seed=index, options={"condition": ("test", index)}) for index in range(5)}


def waving(index: int, steps: int) -> np.ndarray:
    """A chunk of actions that is different in every kitchen."""
    chunk = np.tile(np.array(HOME[:9]), (steps, 1))
    chunk[:, :7] += 0.2 * np.sin(np.arange(steps) + index)[:, None]
    return chunk


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_kitchens_in_processes_are_kitchens_one_after_the_other(workers: int) -> None:
    with Kitchens(5, workers=workers, window=2, **OPTIONS) as kitchens:
        reports = kitchens.reset(STARTS)
        assert [report.over for report in reports.values()] == [False] * 5
        first = {name: view.copy() for name, view in kitchens.observations.items()}
        kitchens.step({index: waving(index, 3) for index in (4, 1, 0)})
        kitchens.step({index: waving(index, 1) for index in (0, 1)})
        for index, start in STARTS.items():
            env = KitchenEnv(**OPTIONS)
            observation, _ = env.reset(seed=start.seed, options=dict(start.options))
            seen = [observation, observation]
            for chunk in {0: (3, 1), 1: (3, 1), 4: (3,)}.get(index, ()):
                for step, action in enumerate(waving(index, chunk)):
                    env.move(action)
                    if chunk - step <= 2:
                        seen.append(env.observe())
            for name, view in kitchens.observations.items():
                assert np.array_equal(first[name][index], [observation[name]] * 2)
                assert np.array_equal(view[index], [moment[name] for moment in seen[-2:]])
            env.close()
        assert not np.array_equal(kitchens.observations["image"][0], kitchens.observations["image"][1])


@pytest.mark.slow
def test_an_episode_that_ends_cuts_its_chunk_short_and_undoing_is_seen() -> None:
    done = np.array(HOME)
    done[list(TASKS["light"].qpos)] = TASKS["light"].goal
    with Kitchens(2, workers=2, cameras=("side",), options=OPTIONS["options"], limit=4) as kitchens:
        begun = kitchens.reset(
            {0: Start(options={"qpos": done, "asked": ("light", "kettle")}), 1: Start(options={"asked": ("slide",)})}
        )
        assert begun[0].info["order"] == ("light",)
        assert begun[0].info["score"] == 0.5
        before = kitchens.observations["image"].copy()
        assert kitchens.undo({0: "light"})[0].info["complete"] == ()
        assert not np.array_equal(before[0], kitchens.observations["image"][0])
        assert np.array_equal(before[1], kitchens.observations["image"][1])
        report = kitchens.step({1: waving(1, 8)})[1]
        assert report.over
        assert report.info["complete"] == ()
        env = KitchenEnv(cameras=())
        env.reset()
        for action in waving(1, 8)[:4]:
            env.move(action)
        assert np.array_equal(kitchens.observations["state"][1, -1], env.observe()["state"])  # the last of the episode


@pytest.mark.slow
def test_mistakes_and_deaths_are_one_sentence_and_mistakes_do_no_harm() -> None:
    with pytest.raises(ConfigError, match="no camera 'sid'"):
        Kitchens(2, cameras=("sid",))
    with Kitchens(2, workers=2, cameras=()) as kitchens:
        kitchens.reset({0: Start(), 1: Start()})
        with pytest.raises(DataError, match="kitchen 0: actions are rows of 9 finite numbers"):
            kitchens.step({0: np.zeros((1, 4)), 1: waving(1, 1)})
        with pytest.raises(DataError, match="could not be told to reset: TypeError"):
            kitchens.reset({0: Start(options={"condition": ("x",)})})
        with pytest.raises(DataError, match="no kitchen 2"):
            kitchens.step({2: waving(1, 1)})
        assert set(kitchens.step({1: waving(1, 2), 0: waving(0, 2)})) == {0, 1}
        os.kill(kitchens._processes[0].pid, signal.SIGKILL)
        with pytest.raises(DataError, match="has died"):
            kitchens.step({0: waving(0, 1), 1: waving(1, 1)})
        with pytest.raises(DataError, match="cannot be trusted"):
            kitchens.step({1: waving(1, 1)})


@pytest.mark.slow
def test_kitchens_outlive_the_thread_that_made_them() -> None:
    made: list[Kitchens] = []
    thread = threading.Thread(target=lambda: made.append(Kitchens(1, cameras=())))
    thread.start()
    thread.join()
    time.sleep(0.5)
    with made[0] as kitchens:
        assert not kitchens.reset({0: Start()})[0].over
