"""Made-up demonstrations of the robot: its gripper is led along the path of an animated hand.

There is no physics in them, so a policy cannot learn the kitchen from them; but they are videos, states and actions of
all seven sub-tasks that need no recording. `debug` and the tests use them.
"""

from collections.abc import Iterator

import mujoco
import numpy as np
import numpy.typing as npt

from xskill.data.config import DataConfig
from xskill.engine.seeds import numpy_generator
from xskill.kitchen.animate import IN_FRONT, animate, stage
from xskill.kitchen.control import ARM, damped_step
from xskill.kitchen.demos import Demonstration
from xskill.kitchen.env import HOME, ROBOT_JOINTS
from xskill.kitchen.tasks import TASKS

Floats = npt.NDArray[np.float64]

ITERATIONS = 20
TASKS_EACH = 4


def puppets(count: int) -> Iterator[Demonstration]:
    """The first `count` of an endless row of demonstrations, four sub-tasks each, in orders drawn at random.

    Every eighth does the task that is usually kept for the test: something to prompt with.
    """
    led = _Led()
    for index in range(count):
        random = numpy_generator("puppet", index)
        order = [str(task) for task in random.permutation(list(TASKS))[:TASKS_EACH]]
        order = order if index % 8 else list(DataConfig().unseen)
        motion = animate(order, index)
        qpos = motion.qpos.copy()
        qpos[:, :ROBOT_JOINTS] = led.joints(motion.hands[:, 0] - IN_FRONT)
        actions = np.concatenate([qpos[1:, :ROBOT_JOINTS], qpos[-1:, :ROBOT_JOINTS]])
        yield Demonstration(f"{index:04d}", "puppet_" + "_".join(order), qpos, actions)


class _Led:
    """An arm whose end effector is led from place to place: damped least squares, its orientation left free."""

    def __init__(self) -> None:
        self._model, self._data = stage()
        self._site = self._model.site("end_effector").id
        self._low, self._high = self._model.jnt_range[:ARM].T

    def joints(self, path: Floats) -> Floats:
        """Places (T, 3) to joints (T, 9), each found from the one before."""
        self._data.qpos[:] = HOME
        return np.array([self._reach(place) for place in path])

    def _reach(self, place: Floats) -> Floats:
        jacobian = np.zeros((3, self._model.nv))
        for _ in range(ITERATIONS):
            mujoco.mj_kinematics(self._model, self._data)
            mujoco.mj_comPos(self._model, self._data)
            error = place - self._data.site_xpos[self._site]
            if np.abs(error).max() < 1e-3:
                break
            mujoco.mj_jacSite(self._model, self._data, jacobian, None, self._site)
            change = damped_step(jacobian[:, :ARM], error)
            self._data.qpos[:ARM] = np.clip(self._data.qpos[:ARM] + change, self._low, self._high)
        found: Floats = self._data.qpos[:ROBOT_JOINTS].copy()
        return found
