"""Moving the robot by the pose of its end effector instead of its joints, as the paper's real robot is moved."""

import mujoco
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

Floats = npt.NDArray[np.float64]

ARM = 7
DAMPING = 0.1
ITERATIONS = 60
OPEN, CLOSED = 0.04, 0.0


class PoseControl:
    """Joint targets that bring the end effector to a pose: damped least squares, gravity fed forward."""

    space = spaces.Box(
        np.array([-1.5, -1.0, 1.0, -1, -1, -1, -1, -1], np.float32),
        np.array([1.5, 1.5, 3.0, 1, 1, 1, 1, 1], np.float32),
        dtype=np.float32,
    )

    def __init__(self, model: mujoco.MjModel) -> None:
        self._model = model
        self._try = mujoco.MjData(model)
        self._site = model.site("end_effector").id
        self._low, self._high = model.jnt_range[:ARM].T

    def pose(self, data: mujoco.MjData, *, closed: bool) -> Floats:
        """Where the end effector is, as an action: position, quaternion, gripper mode, (8,)."""
        quaternion = np.zeros(4)
        mujoco.mju_mat2Quat(quaternion, data.site_xmat[self._site])
        return np.concatenate([data.site_xpos[self._site], quaternion, [1.0 if closed else -1.0]])

    def targets(self, data: mujoco.MjData, action: npt.NDArray[np.floating]) -> Floats:
        """Controls (9,) for the pose (8,), searched from the joints as they are."""
        position, quaternion = np.asarray(action[:3], np.float64), np.asarray(action[3:7], np.float64)
        norm = np.linalg.norm(quaternion)
        goal = quaternion / norm if norm > 1e-6 else np.array([1.0, 0, 0, 0])
        self._try.qpos[:] = data.qpos
        position_jacobian, rotation_jacobian = np.zeros((2, 3, self._model.nv))
        now, error = np.zeros(4), np.zeros(6)
        for _ in range(ITERATIONS):
            mujoco.mj_kinematics(self._model, self._try)
            mujoco.mj_comPos(self._model, self._try)
            error[:3] = position - self._try.site_xpos[self._site]
            mujoco.mju_mat2Quat(now, self._try.site_xmat[self._site])
            error[3:] = _rotation_between(now, goal)
            if np.abs(error).max() < 1e-4:
                break
            mujoco.mj_jacSite(self._model, self._try, position_jacobian, rotation_jacobian, self._site)
            jacobian = np.concatenate([position_jacobian[:, :ARM], rotation_jacobian[:, :ARM]])
            change = damped_step(jacobian, error)
            self._try.qpos[:ARM] = np.clip(self._try.qpos[:ARM] + change, self._low, self._high)
        droop = data.qfrc_bias[:ARM] / self._model.actuator_gainprm[:ARM, 0]
        fingers = CLOSED if action[7] >= 0 else OPEN
        return np.concatenate([self._try.qpos[:ARM] + droop, [fingers, fingers]])


def damped_step(jacobian: Floats, error: Floats) -> Floats:
    """The change of joints (J,) that lessens an error (E,) by damped least squares, given its Jacobian (E, J)."""
    step: Floats = jacobian.T @ np.linalg.solve(jacobian @ jacobian.T + DAMPING**2 * np.eye(len(error)), error)
    return step


def _rotation_between(now: Floats, goal: Floats) -> Floats:
    """The rotation vector, in the world's frame, that takes one orientation to another."""
    back, turn, vector = np.zeros(4), np.zeros(4), np.zeros(3)
    mujoco.mju_negQuat(back, now)
    mujoco.mju_mulQuat(turn, goal, back)
    mujoco.mju_quat2Vel(vector, turn, 1.0)
    return vector
