"""The kitchen as a Gymnasium environment: `import xskill.kitchen`, then `gymnasium.make("xskill/Kitchen-v0")`."""

import copy
import functools
from collections.abc import Sequence
from typing import Any, Literal, cast

import gymnasium
import mujoco
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from xskill.engine.config import did_you_mean
from xskill.engine.seeds import numpy_generator
from xskill.errors import ConfigError, DataError
from xskill.kitchen.control import PoseControl
from xskill.kitchen.render import CAMERAS, Frame, Renderer, RenderOptions
from xskill.kitchen.scene import Scene
from xskill.kitchen.tasks import TASKS, Progress, check_tasks, complete_in

Floats = npt.NDArray[np.float64]
Observation = dict[str, npt.NDArray[Any]]

NAMES = {"side": "image", "wrist": "wrist"}
"""Camera -> its key in an observation."""
ROBOT_JOINTS = 9
SUBSTEPS = 40
"""Physics steps of 2 ms in one environment step: 0.08 s, 12.5 Hz."""

HOME: tuple[float, ...] = (
    0.13, -1.764, 1.854, -2.474, 0.283, 0.779, 1.601, 0.04, 0.04,
    *([0.0] * 14), -0.269, 0.35, 1.619, 1.0, 0.0, 0.0, 0.0,
)  # fmt: skip
"""Where the demonstrations begin on average: the arm over the counter, everything shut, the kettle on its burner."""

JOINT_SPREAD = 0.02
"""Standard deviation, in radians, of the seven arm joints around the state an initial condition starts from."""
OBJECT_SPREAD = 0.005
"""Standard deviation, in metres, of the kettle's place on the stove around the same."""
STATE_NOISE = 0.1
"""The benchmark's amplitude of uniform noise on observed joints; `state_noise` scales it (0.01 there)."""


def initial_state(suite: str, index: int, start: Sequence[float] | Floats = HOME) -> Floats:
    """The initial condition `index` of a suite, qpos (30,): a pure function of its arguments."""
    random = numpy_generator("kitchen", suite, index)
    qpos = np.array(start, np.float64)
    qpos[:7] += random.normal(0, JOINT_SPREAD, 7)
    qpos[23:25] += random.normal(0, OBJECT_SPREAD, 2)
    return qpos


class KitchenEnv(gymnasium.Env[Observation, npt.NDArray[np.float32]]):
    """One kitchen, one body to be seen, one robot to be moved.

    Observation: `image` (H, W, 3) uint8 from the side, `wrist` likewise when asked for, `state` (9,) float32 joints.
    Action: `joints`, absolute targets for seven joints and two fingers over one step of 0.08 s; or `pose`, position
    (3), orientation as a quaternion (4) and gripper mode (below 0 open, from 0 on closed) of the end effector.
    `info`: `step`, `complete` (sub-tasks complete now), `order` (sub-tasks in the order first completed, by step),
    `steps` (when), `score`; `qpos` (30,) and `qvel` (29,), the truth, for who may know it.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 12}  # noqa: RUF012 (Gymnasium's own form)

    def __init__(
        self,
        body: str = "franka",
        cameras: Sequence[str] = ("side",),
        options: RenderOptions = RenderOptions(),
        control: Literal["joints", "pose"] = "joints",
        asked: Sequence[str] = (),
        limit: int | None = None,
        state_noise: float = 0.0,
        render_mode: str | None = None,
    ) -> None:
        for camera in cameras:
            if camera not in CAMERAS:
                raise ConfigError(f"there is no camera '{camera}'{did_you_mean(camera, CAMERAS)}")
        self.render_mode = render_mode
        self.scene = Scene(simplified=options.simplified)
        self.scene.dress(body)
        self.data = mujoco.MjData(self.scene.model)
        self._renderer = functools.cache(functools.partial(Renderer, self.scene, options))
        self._options, self._cameras, self._noise = options, tuple(cameras), state_noise
        self._asked, self._limit = check_tasks(asked), limit
        self._pose = PoseControl(self.scene.model) if control == "pose" else None
        self._start, self._episode = np.array(HOME), 0
        self.progress = Progress(self._asked, limit)
        image = spaces.Box(0, 255, (options.height, options.width, 3), np.uint8)
        images = {NAMES[camera]: image for camera in self._cameras}
        state = spaces.Box(-np.inf, np.inf, (ROBOT_JOINTS,), np.float32)
        self.observation_space = cast(Any, spaces.Dict({**images, "state": state}))
        low, high = self.scene.model.actuator_ctrlrange.T.astype(np.float32)
        self.action_space = self._pose.space if self._pose else spaces.Box(low, high, dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode. `options` may hold `qpos` (30,), or `condition`, suite and index; `asked`; `limit`."""
        super().reset(seed=seed)
        options = options or {}
        condition = options.get("condition")
        self._start = np.array(initial_state(*condition) if condition else options.get("qpos", HOME), np.float64)
        if self._start.shape != (self.scene.model.nq,) or not np.isfinite(self._start).all():
            raise DataError(f"a state has {self.scene.model.nq} finite numbers; this one has shape {self._start.shape}")
        mujoco.mj_resetData(self.scene.model, self.data)
        self.data.qpos[:] = self._start
        self.data.ctrl[:] = self._start[:ROBOT_JOINTS]
        mujoco.mj_forward(self.scene.model, self.data)
        self.progress = Progress(options.get("asked", self._asked), options.get("limit", self._limit))
        self.progress.update(self.data.qpos, 0)
        self._episode = int(self.np_random.integers(2**62))
        return self.observe(), self.info()

    def step(self, action: npt.NDArray[np.floating]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Move towards `action` for 0.08 s. The reward is how many more sub-tasks of the prompt stand in order."""
        before = self.progress.score.ordered
        self.move(action)
        gained = (self.progress.score.ordered - before) * len(self.progress.asked)
        return self.observe(), gained, self.progress.terminated, self.progress.truncated, self.info()

    def move(self, action: npt.NDArray[np.floating]) -> None:
        """What `step` does, unseen: nothing is rendered."""
        action = np.asarray(action)
        if action.shape != self.action_space.shape or not np.isfinite(action).all():
            raise DataError(f"an action has {self.action_space.shape} finite numbers; this one is {action}")
        self.data.ctrl[:] = self._pose.targets(self.data, action) if self._pose else action
        mujoco.mj_step(self.scene.model, self.data, SUBSTEPS)
        self.progress.update(self.data.qpos, self.progress.step + 1)

    def undo(self, task: str) -> None:
        """Put a sub-task back to where the episode found it, as a person might turn the light off again.

        What the episode found complete goes back to where the demonstrations begin.
        """
        (task,) = check_tasks([task])
        model = self.scene.model
        entries = list(TASKS[task].qpos)
        found_complete = task in complete_in(self._start)
        self.data.qpos[entries] = (np.array(HOME) if found_complete else self._start)[entries]
        for joint in np.flatnonzero(np.isin(model.jnt_qposadr, entries)):
            first = model.jnt_dofadr[joint]
            self.data.qvel[first : first + (6 if model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE else 1)] = 0
        mujoco.mj_forward(model, self.data)
        self.progress.update(self.data.qpos, self.progress.step)

    def twin(self) -> "KitchenEnv":
        """Another kitchen with the same options and a life of its own, in the same model, drawn by the same renderer.

        A model takes a second to compile and a renderer holds a GL context; a process needs one of each.
        """
        other = copy.copy(self)
        other.data = mujoco.MjData(self.scene.model)
        other._np_random = None
        other.progress = Progress(self._asked, self._limit)
        return other

    def render(self) -> Frame | None:
        """The side view, in render mode `rgb_array`."""
        return self._draw("side") if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        self._renderer.cache_clear()

    def _draw(self, camera: str) -> Frame:
        return self._renderer().frame(self.data, camera)

    def observe(self) -> Observation:
        """What is seen and felt now; looked at twice, it is the same."""
        state = self.data.qpos[:ROBOT_JOINTS].copy()
        if self._noise:
            random = numpy_generator("joints", self._episode, self.progress.step)
            state += self._noise * STATE_NOISE * random.uniform(-1, 1, ROBOT_JOINTS)
        images = {NAMES[camera]: self._draw(camera) for camera in self._cameras}
        return {**images, "state": state.astype(np.float32)}

    def info(self) -> dict[str, Any]:
        """What is done so far."""
        first = self.progress.first
        return {
            "step": self.progress.step,
            "complete": self.progress.now,
            "order": tuple(completion.task for completion in first),
            "steps": tuple(completion.step for completion in first),
            "score": self.progress.score.ordered,
            "qpos": self.data.qpos.copy(),
            "qvel": self.data.qvel.copy(),
        }
