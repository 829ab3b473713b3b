"""A scripted robot that does any order of sub-tasks by physics.

It looks at the state and nothing else: every step asks anew which sub-task comes next, where its handle is and how
the hand stands to it, so what slips, is pushed or is undone is simply done again. How it goes about it (where it
grasps, how fast it is, which way it takes, where it hesitates) is drawn from a seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
import numpy.typing as npt

from xskill.engine.seeds import numpy_generator
from xskill.kitchen.control import ARM, CLOSED, OPEN, Reach, rotated, rotation_between
from xskill.kitchen.tasks import STEP, TASKS, check_tasks, complete_in

Floats = npt.NDArray[np.float64]
Vector = tuple[float, float, float]

SPEED, CREEP = 0.45, 0.35
"""Of the hand on its way, and close to a handle, in metres a second."""
TURN = 1.6
"""Of the hand, in radians a second."""
ACCELERATION = 8.0
"""Of a joint, in radians a second a second."""
FORCE = 0.9
"""Share of the motors' force that may go into speed: joints are damped so much that this is what limits them."""
SETTLE = 0.4
"""Share of what is left of a way that a step may go, so that it ends softly."""
CLEAR = 0.15
"""How near to its base (y) a travelling hand is drawn in, past doors that stand open."""
OVER = 0.25
"""How high above a handle the hand goes to get before it, in metres."""
LIFT = 0.1
"""How high the kettle is carried, in metres."""
ASIDE = np.array((0.03, 0.0, 0.0))
"""Where it is put, from its goal: the hand needs room beside the microwave."""
TURNING = 0.3
"""What a radian counts in metres, where a hand cannot be both in its place and turned as it should."""
SERIES = 512
"""Steps after which hesitations and tremor repeat."""


@dataclass(frozen=True)
class Hold:
    """How a handle is held and moved; directions are the world's while everything is shut."""

    site: str
    joint: str
    at: Vector
    """The grasp, from the handle's site."""
    along: Vector
    """How far from there it may be, either way."""
    pointing: Vector
    """Where the fingers point."""
    opening: Vector
    """Where they open to."""
    aim: float
    """Where the joint goes, past the point at which the sub-task is complete; the kettle goes to its goal."""
    speed: float
    """Of the joint, a second."""
    posture: tuple[float, ...]
    """Joints of the arm near the handle: of the many ways to reach it, the one with the elbow out of the way."""
    follow: float = 0.0
    """Share of the joint's turn in which the hand takes part."""
    before: float = 0.18
    """How far before the handle the hand lines up."""
    clear: float = 0.11
    """How far before the handle the hand is free to go elsewhere."""
    near: float = 0.06
    """How far from its aim the joint may be left."""


HOLDS: Mapping[str, Hold] = {
    "bottom-burner": Hold(
        "knob2_site", "knob_Joint_2", at=(0, -0.03, 0), along=(0, 0.005, 0.004),
        pointing=(0.1, 1, 0.1), opening=(1, 0, 0), aim=-0.88, speed=1.1, follow=1.0,
        posture=(-1.37, -1.46, 1.43, -2.30, -0.18, 1.98, 1.98),
    ),
    "top-burner": Hold(
        "knob4_site", "knob_Joint_4", at=(0, -0.03, 0), along=(0, 0.005, 0.004),
        pointing=(0.1, 1, 0.2), opening=(1, 0, 0), aim=-0.92, speed=1.1, follow=1.0,
        posture=(-1.42, -1.44, 1.28, -2.21, -0.03, 2.02, 1.71),
    ),
    "light": Hold(
        "light_site", "light_switch", at=(0, -0.01, 0), along=(0, 0.006, 0.006),
        pointing=(0, 1, 0.2), opening=(1, 0, 0), aim=-0.69, speed=2.5, follow=0.3,
        posture=(-1.32, -1.52, 1.39, -2.10, -0.03, 1.80, 1.57),
    ),
    # Low, from the right and a little rolled: else the hand meets the hinge cabinet's door where that stands open.
    "slide": Hold(
        "slide_site", "slide_cabinet", at=(0.015, 0, -0.138), along=(0, 0, 0.008),
        pointing=(0.35, 0.7, 0.6), opening=(1, -0.7, 0.23), aim=0.37, speed=0.28, before=0.25,
        posture=(-1.56, -1.50, 1.20, -2.30, 0.30, 2.00, 1.30),
    ),
    "hinge": Hold(
        "hinge_site2", "right_hinge_cabinet", at=(0, 0, -0.05), along=(0, 0, 0.03),
        pointing=(0.1, 0.86, 0.5), opening=(1, -0.1, 0), aim=1.27, speed=1.0, follow=-0.15,
        posture=(-1.31, -1.70, 0.90, -1.99, 1.10, 1.39, 0.29), before=0.25, clear=0.2, near=0.03,
    ),
    "microwave": Hold(
        "microhandle_site", "microwave", at=(0, 0, 0.05), along=(0, 0, 0.03),
        pointing=(-0.2, 0.96, -0.1), opening=(0.96, 0.2, 0), aim=-0.75, speed=0.65, follow=-0.4,
        posture=(-1.10, -1.70, 1.83, -1.54, -0.76, 1.36, 2.59),
    ),
    "kettle": Hold(
        "kettle_site", "kettle", at=(-0.09, 0.01, -0.075), along=(0, 0, 0.012),
        pointing=(0.25, 0.96, -0.1), opening=(0.96, -0.25, 0), aim=0.0, speed=0.27,
        posture=(-0.80, -1.70, 2.09, -2.16, 0.19, 1.04, 1.92), before=0.15, near=0.025,
    ),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Manner:
    """How one sub-task is gone about this time."""

    grasp: Floats
    """From the usual grasp, (3,)."""
    tilt: Floats
    """Of the hand, a rotation vector (3,)."""
    before: float
    """How far before the handle the hand lines up, in metres."""
    bend: Floats
    """How far the way there swings out, (3,)."""
    reach: float
    """How far the joint goes, as a share of its aim."""
    pace: float

    @classmethod
    def drawn(cls, task: str, seed: int | str) -> "Manner":
        random, hold = numpy_generator("manner", seed, task), HOLDS[task]
        return cls(
            random.uniform(-1, 1) * np.array(hold.along),
            random.normal(0, 0.03, 3),
            random.uniform(0.85, 1.15) * hold.before,
            random.normal(0, (0.05, 0.02, 0.05)),
            random.uniform(0.95, 1.02),
            random.uniform(0.75, 1.1),
        )


class Expert:
    """Does the sub-tasks of an order, one after the other. Same model, state, seed and step: same action."""

    def __init__(self, model: mujoco.MjModel, order: Sequence[str], seed: int | str = 0) -> None:
        """Raises `ConfigError` for a name that is no sub-task, or comes twice."""
        self.order = check_tasks(order)
        self.stage = ""
        """What it was about in the latest step, for who watches."""
        self._reach, self._step = Reach(model), 0
        self._handles = {task: Handle(model, task, Manner.drawn(task, seed)) for task in TASKS}
        self._fastest = FORCE * model.actuator_forcerange[:ARM, 1] / model.dof_damping[:ARM]
        self._lag = model.dof_damping[:ARM] / model.actuator_gainprm[:ARM, 0]
        self._low, self._high = model.actuator_ctrlrange.T
        self._pace, self._tremor = _hesitation(seed), _tremor(seed)

    def next(self, data: mujoco.MjData) -> str | None:
        """The first sub-task that is not complete, or is in the hand and still on its way; None when all is done."""
        done = complete_in(data.qpos)
        here, facing = self._reach.pose(data)
        for task in self.order:
            handle = self._handles[task]
            if task not in done or (handle.held(data, here, facing) and handle.under_way(data)):
                return task
        return None

    def act(self, data: mujoco.MjData) -> Floats:
        """The targets (9,) for the next step. When all is done, the hand lets go, draws back and rests."""
        moment = self._step % SERIES
        self._step += 1
        targets = self._targets(data, self._pace[moment])
        targets[:ARM] += self._tremor[moment]
        return np.clip(targets, self._low, self._high)

    def _targets(self, data: mujoco.MjData, pace: float) -> Floats:
        task = self.next(data)
        here, facing = self._reach.pose(data)
        opened = data.qpos[ARM : ARM + 2].min() > 0.034
        amid = [handle for handle in self._handles.values() if handle.about(data, here, facing)]
        wanted = self._handles[task] if task else None
        if wanted and wanted.held(data, here, facing):
            self.stage = "move"
            return self._carry(data, wanted, pace)
        if amid and (not opened or amid != [wanted]) and not (wanted and wanted.ready(data, here, facing)):
            self.stage = "leave" if opened else "release"
            back = amid[0].grasp(data)[0] - 0.3 * facing[:, 2]
            return self._move(data, back if opened else here, facing, OPEN, CREEP)
        if wanted is None:
            self.stage = "rest"
            return self._move(data, here, facing, OPEN, SPEED)
        grasp, hand = wanted.grasp(data)
        if wanted.ready(data, here, facing):
            self.stage = "grasp"
            return self._move(data, grasp, hand, CLOSED, CREEP)
        pace *= wanted.manner.pace
        depth, aside, askew = wanted.off(data, here, facing)
        ready = grasp - wanted.manner.before * hand[:, 2] + min(1.0, aside / 0.3) * wanted.manner.bend
        if depth > 0.06:  # it was put back behind the hand: over it, not through it
            ready[2] += OVER
            if here[2] < grasp[2] + 0.8 * OVER:
                self.stage = "rise"
                return self._move(data, here + np.array((0, 0, OVER)), facing, OPEN, SPEED)
        if aside > 0.12 or askew > 0.5:
            self.stage = "travel"
            ready[1] = max(CLEAR, ready[1] - 2 * float(np.hypot(*(ready - here)[[0, 2]])))
            joints = self._reach.joints(data, ready, hand, start=np.array(wanted.hold.posture), iterations=20)
            return self._steer(data, SETTLE * (joints - data.qpos[:ARM]), OPEN, pace)
        self.stage = "approach"  # the nearer to the handle, the better lined up
        away = float(np.clip(max(4 * (aside - 0.008), askew - 0.2), 0, wanted.manner.before))
        return self._move(data, grasp - away * hand[:, 2], hand, OPEN, pace * (SPEED if depth < -0.1 else CREEP))

    def _carry(self, data: mujoco.MjData, handle: "Handle", pace: float) -> Floats:
        """Move on with what is in the hand. From where the hand is: it may lead, but not slip out sideways."""
        here, facing = self._reach.pose(data)
        grasp, hand = handle.grasp(data)
        way, turn = handle.onward(data, pace * handle.manner.pace * STEP)
        slip, twist = _across(grasp - here, way), _across(rotation_between(facing, hand), turn)
        return self._drive(data, here + way + 0.3 * slip, rotated(turn + 0.3 * twist) @ facing, CLOSED)

    def _move(self, data: mujoco.MjData, place: Floats, hand: Floats, fingers: float, speed: float) -> Floats:
        """One step on the straight way to a pose."""
        here, facing = self._reach.pose(data)
        way, turn = place - here, rotation_between(facing, hand)
        far, angle = float(np.linalg.norm(way)), float(np.linalg.norm(turn))
        way *= min(SETTLE, speed * STEP / max(far, 1e-9))
        turn *= min(SETTLE, TURN * STEP / max(angle, 1e-9))
        return self._drive(data, here + way, rotated(turn) @ facing, fingers)

    def _drive(self, data: mujoco.MjData, place: Floats, hand: Floats, fingers: float) -> Floats:
        """Targets that bring the hand to a pose within one step."""
        joints = self._reach.joints(data, place, hand, turning=TURNING, iterations=8)
        return self._steer(data, joints - data.qpos[:ARM], fingers, 1.0)

    def _steer(self, data: mujoco.MjData, change: Floats, fingers: float, pace: float) -> Floats:
        """Targets that change the joints by so much within one step, as far as the motors can; gravity fed forward."""
        wish, rate = change / STEP, data.qvel[:ARM]
        wish /= max(1.0, float(np.abs(wish / self._fastest).max()) / pace)
        speed = rate + np.clip(wish - rate, -ACCELERATION * STEP, ACCELERATION * STEP)
        targets = data.qpos[:ARM] + speed * (STEP + self._lag) + self._reach.droop(data)
        return np.concatenate([targets, [fingers, fingers]])


class Handle:
    """A handle in the scene, and how it is to be held and moved this time."""

    def __init__(self, model: mujoco.MjModel, task: str, manner: Manner) -> None:
        self.hold, self.manner = HOLDS[task], manner
        self._goal = np.array(TASKS[task].goal)
        self._site, self._joint = model.site(self.hold.site).id, model.joint(self.hold.joint).id
        self._body, self._kind = model.site_bodyid[self._site], model.jnt_type[self._joint]
        self._entry, self._speed = int(model.jnt_qposadr[self._joint]), int(model.jnt_dofadr[self._joint])
        shut = mujoco.MjData(model)
        mujoco.mj_kinematics(model, shut)
        self._shut = shut.xmat[self._body].reshape(3, 3).T.copy()
        self._at = np.array(self.hold.at) + manner.grasp
        pointing = _unit(np.array(self.hold.pointing))
        opening = _unit(_across(np.array(self.hold.opening), pointing))
        self._hand = rotated(manner.tilt) @ np.column_stack([np.cross(opening, pointing), opening, pointing])

    def grasp(self, data: mujoco.MjData) -> tuple[Floats, Floats]:
        """Where the hand is to be, (3,), and how turned, (3, 3), to hold the handle as it is now."""
        turned, hand = data.xmat[self._body].reshape(3, 3) @ self._shut, self._hand
        if self._kind == mujoco.mjtJoint.mjJNT_HINGE:
            hand = rotated(self.hold.follow * data.qpos[self._entry] * data.xaxis[self._joint]) @ hand
        return data.site_xpos[self._site] + turned @ self._at, hand

    def onward(self, data: mujoco.MjData, seconds: float) -> tuple[Floats, Floats]:
        """How a hand that holds it moves, (3,), and turns, a rotation vector (3,), to bring it nearer to its aim."""
        left, step, still = self._left(data), self.hold.speed * seconds, np.zeros(3)
        if self._kind == mujoco.mjtJoint.mjJNT_FREE:
            far = float(np.linalg.norm(left[:2]))
            if far > 0.06:  # up before across: it would scrape along the stove
                left[:2] *= np.clip(-left[2] / 0.04, 0.05, 1)
            left[2] += LIFT * np.clip(far / 0.08 - 0.4, 0, 1)
            return left * min(1.0, step / max(float(np.linalg.norm(left)), 1e-9)), still
        turn = float(np.clip(left[0], -step, step)) * data.xaxis[self._joint]
        if self._kind == mujoco.mjtJoint.mjJNT_SLIDE:
            return turn, still
        arm = self.grasp(data)[0] - data.xanchor[self._joint]
        return rotated(turn) @ arm - arm, self.hold.follow * turn

    def under_way(self, data: mujoco.MjData) -> bool:
        """Whether it moves and has still some way to go."""
        left = self._left(data)
        speed = float(np.linalg.norm(data.qvel[self._speed : self._speed + len(left)]))
        return float(np.linalg.norm(left)) > self.hold.near and speed > 0.1 * self.hold.speed

    def off(self, data: mujoco.MjData, here: Floats, facing: Floats) -> tuple[float, float, float]:
        """How a hand stands to the grasp: metres too deep, metres aside, radians askew."""
        grasp, hand = self.grasp(data)
        depth = float((here - grasp) @ hand[:, 2])
        aside = float(np.linalg.norm(_across(here - grasp, hand[:, 2])))
        return depth, aside, float(np.linalg.norm(rotation_between(facing, hand)))

    def about(self, data: mujoco.MjData, here: Floats, facing: Floats) -> bool:
        """Whether the hand is so near that it cannot go elsewhere without drawing back."""
        if np.abs(here - data.site_xpos[self._site]).max() > 0.5:  # most are, and that is quickly seen
            return False
        depth, aside, _ = self.off(data, here, facing)
        return aside < 0.05 and -self.hold.clear < depth < 0.06

    def ready(self, data: mujoco.MjData, here: Floats, facing: Floats) -> bool:
        """Whether the fingers would hold it if they closed."""
        depth, aside, askew = self.off(data, here, facing)
        return aside < 0.015 and abs(depth) < 0.02 and askew < 0.3

    def held(self, data: mujoco.MjData, here: Floats, facing: Floats) -> bool:
        """Whether the fingers are about it, closed as far as they go."""
        depth, aside, askew = self.off(data, here, facing)
        gap, closing = data.qpos[ARM : ARM + 2].sum(), -data.qvel[ARM : ARM + 2].sum()
        return bool(aside < 0.035 and -0.05 < depth < 0.035 and askew < 0.6 and gap < 0.074 and closing < 0.06)

    def _left(self, data: mujoco.MjData) -> Floats:
        """What the joint has still to go: (1,), the kettle (3,)."""
        if self._kind == mujoco.mjtJoint.mjJNT_FREE:
            left: Floats = self._goal[:3] + ASIDE - data.qpos[self._entry : self._entry + 3]
            return left
        return np.array([self.manner.reach * self.hold.aim - data.qpos[self._entry]])


def _hesitation(seed: int | str) -> Floats:
    """The pace at each moment, (SERIES,): 1, but for a pause of a few steps now and then."""
    random = numpy_generator("hesitation", seed)
    pace = np.ones(SERIES)
    for start in np.flatnonzero(random.random(SERIES) < 0.012):
        pace[start : start + random.integers(2, 7)] = 0.15
    return pace


def _tremor(seed: int | str) -> Floats:
    """What is added to the arm's targets at each moment, (SERIES, 7): 3 mrad, smoothed over five steps."""
    noise = numpy_generator("tremor", seed).normal(0, 0.003 * np.sqrt(5), (SERIES, ARM))
    return np.stack([np.convolve(joint, np.ones(5) / 5, "same") for joint in noise.T], axis=1)


def _unit(vector: Floats) -> Floats:
    unit: Floats = vector / np.linalg.norm(vector)
    return unit


def _across(vector: Floats, along: Floats) -> Floats:
    """The part of a vector (3,) that is not along another."""
    across: Floats = vector - along * (along @ vector) / max(float(along @ along), 1e-12)
    return across
