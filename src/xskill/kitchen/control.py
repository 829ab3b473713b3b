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


class Reach:
    """Joints that bring the end effector to a pose, found by damped least squares."""

    def __init__(self, model: mujoco.MjModel) -> None:
        self._model = model
        self._try = mujoco.MjData(model)
        self._site = model.site("end_effector").id
        self._low, self._high = model.jnt_range[:ARM].T
        self._stiffness = model.actuator_gainprm[:ARM, 0]

    def pose(self, data: mujoco.MjData) -> tuple[Floats, Floats]:
        """Where the end effector is: position (3,), rotation (3, 3)."""
        return data.site_xpos[self._site].copy(), data.site_xmat[self._site].reshape(3, 3).copy()

    def joints(
        self,
        data: mujoco.MjData,
        position: Floats,
        rotation: Floats,
        *,
        turning: float = 1.0,
        start: Floats | None = None,
        iterations: int = ITERATIONS,
    ) -> Floats:
        """Joints (7,) for a pose, searched from those in `data`, or from `start`, and within their limits.

        An error of one radian counts as much as one of `turning` metres.
        """
        self._try.qpos[:] = data.qpos
        if start is not None:
            self._try.qpos[:ARM] = start
        jacobian, error = np.zeros((6, self._model.nv)), np.zeros(6)
        for _ in range(iterations):
            mujoco.mj_kinematics(self._model, self._try)
            mujoco.mj_comPos(self._model, self._try)
            now, facing = self.pose(self._try)
            error[:3], error[3:] = position - now, turning * rotation_between(facing, rotation)
            if np.abs(error).max() < 1e-4:
                break
            mujoco.mj_jacSite(self._model, self._try, jacobian[:3], jacobian[3:], self._site)
            jacobian[3:] *= turning
            joints = self._try.qpos[:ARM]
            free = np.ones(ARM, bool)
            for _ in range(2):  # a joint that would pass its limit stays, and the others do without it
                change = damped_step(jacobian[:, :ARM] * free, error)
                free = (joints + change >= self._low) & (joints + change <= self._high)
                if free.all():
                    break
            self._try.qpos[:ARM] = np.clip(joints + change, self._low, self._high)
        found: Floats = self._try.qpos[:ARM].copy()
        return found

    def droop(self, data: mujoco.MjData) -> Floats:
        """How far the joints (7,) hang below their targets by gravity."""
        hang: Floats = data.qfrc_bias[:ARM] / self._stiffness
        return hang


class PoseControl:
    """Joint targets that bring the end effector to a pose, gravity fed forward."""

    space = spaces.Box(
        np.array([-1.5, -1.0, 1.0, -1, -1, -1, -1, -1], np.float32),
        np.array([1.5, 1.5, 3.0, 1, 1, 1, 1, 1], np.float32),
        dtype=np.float32,
    )

    def __init__(self, model: mujoco.MjModel) -> None:
        self._reach = Reach(model)

    def pose(self, data: mujoco.MjData, *, closed: bool) -> Floats:
        """Where the end effector is, as an action: position, quaternion, gripper mode, (8,)."""
        position, rotation = self._reach.pose(data)
        quaternion = np.zeros(4)
        mujoco.mju_mat2Quat(quaternion, rotation.ravel())
        return np.concatenate([position, quaternion, [1.0 if closed else -1.0]])

    def targets(self, data: mujoco.MjData, action: npt.NDArray[np.floating]) -> Floats:
        """Controls (9,) for the pose (8,), searched from the joints as they are."""
        position, quaternion = np.asarray(action[:3], np.float64), np.asarray(action[3:7], np.float64)
        norm = np.linalg.norm(quaternion)
        rotation = np.zeros(9)
        mujoco.mju_quat2Mat(rotation, quaternion / norm if norm > 1e-6 else np.array([1.0, 0, 0, 0]))
        joints = self._reach.joints(data, position, rotation.reshape(3, 3))
        fingers = CLOSED if action[7] >= 0 else OPEN
        return np.concatenate([joints + self._reach.droop(data), [fingers, fingers]])


def damped_step(jacobian: Floats, error: Floats) -> Floats:
    """The change of joints (J,) that lessens an error (E,) by damped least squares, given its Jacobian (E, J)."""
    step: Floats = jacobian.T @ np.linalg.solve(jacobian @ jacobian.T + DAMPING**2 * np.eye(len(error)), error)
    return step


def rotation_between(now: Floats, goal: Floats) -> Floats:
    """The rotation vector (3,), in the world's frame, that takes one orientation (3, 3) to another."""
    quaternion, vector = np.zeros(4), np.zeros(3)
    mujoco.mju_mat2Quat(quaternion, (goal @ now.T).ravel())
    mujoco.mju_quat2Vel(vector, quaternion, 1.0)
    return vector


def rotated(vector: Floats) -> Floats:
    """The rotation (3, 3) about a vector (3,) by its length."""
    angle = float(np.linalg.norm(vector))
    quaternion, matrix = np.zeros(4), np.zeros(9)
    mujoco.mju_axisAngle2Quat(quaternion, vector / angle if angle else vector, angle)
    mujoco.mju_quat2Mat(matrix, quaternion)
    return matrix.reshape(3, 3)
