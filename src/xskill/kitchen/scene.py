"""The kitchen as a MuJoCo model, and the bodies that can be seen in it.

One model holds every body; which one the camera sees is a matter of colours (`Scene.dress`). Only the robot has joints
and actuators: the spheres are painted on its fingers or moved by hand (mocap), touch nothing and weigh nothing, so the
physics is exactly that of the assets that gymnasium-robotics ships.
"""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import mujoco
import numpy as np
import numpy.typing as npt

from xskill.engine.config import did_you_mean
from xskill.errors import ConfigError, DataError

Array = npt.NDArray[np.generic]
Colour = tuple[float, float, float, float]

OFF_WHITE: Colour = (0.95, 0.99, 0.92, 1.0)
RED: Colour = (0.85, 0.1, 0.1, 1.0)
UNSEEN: Colour = (0.0, 0.0, 0.0, 0.0)

LINK_TRIANGLES = 600
SPHERE_RADIUS = 0.05
FINGERS = ("panda0_leftfinger", "panda0_rightfinger")
FINGER_PAD = (0.0, 0.0, 0.045)  # in the finger's frame
HANDS = ("hand0", "hand1")
# On the flange, above the hand, looking along the fingers and 15 degrees down on them.
WRIST_POSITION, WRIST_ORIENTATION, WRIST_FOVY = (0.08, -0.08, 0.02), (0.12059, 0.915976, 0.37941, 0.04995), 80


@dataclass(frozen=True)
class Body:
    """What the camera sees of whoever acts: colours of the arm, of the spheres on its fingers, of the free hands."""

    arm: bool = False
    fingers: Colour = UNSEEN
    hands: tuple[Colour, Colour] = (UNSEEN, UNSEEN)
    moves_itself: bool = False
    """Whether its motion is its own (`animate.py`) rather than the robot's."""


BODIES: Mapping[str, Body] = {
    "franka": Body(arm=True),
    "sphere": Body(fingers=OFF_WHITE),
    "red-sphere": Body(fingers=RED),
    "hand": Body(hands=(RED, UNSEEN), moves_itself=True),
    "hands": Body(hands=(RED, RED), moves_itself=True),
}


@cache
def assets() -> Path:
    """The kitchen's MJCF file. Found without importing its package, which is slow and talkative. Raises `DataError`."""
    package = importlib.util.find_spec("gymnasium_robotics")
    if package is None or package.origin is None:
        raise DataError("the kitchen's scene comes with gymnasium-robotics; pip install gymnasium-robotics")
    path = Path(package.origin).parent / "envs/assets/kitchen_franka/kitchen_assets/kitchen_env_model.xml"
    if not path.exists():
        raise DataError(f"gymnasium-robotics is installed but has no kitchen at {path}; reinstall it")
    return path


class Scene:
    """The compiled kitchen with every body in it, dressed as one of them."""

    def __init__(self, *, simplified: bool = True) -> None:
        """Compile it, dressed as `franka`.

        `simplified` draws the robot with 600 triangles a link (its nine visual meshes are 94 % of the scene's
        triangles) and round shapes with fewer corners: five times faster in software, and hardly to be seen (SSIM 0.98
        at 112x112, `benchmarks/render.py`). What collides is never touched.
        """
        spec = mujoco.MjSpec.from_file(str(assets()))
        for finger in FINGERS:
            _add_ghost(spec.body(finger), f"sphere_{finger}", FINGER_PAD)
        for hand in HANDS:
            _add_ghost(spec.worldbody.add_body(name=hand, mocap=True), hand, (0.0, 0.0, 0.0))
        spec.body("panda0_link7").add_camera(name="wrist", pos=WRIST_POSITION, quat=WRIST_ORIENTATION, fovy=WRIST_FOVY)
        if simplified:
            for name, (vertices, faces) in _simplified(LINK_TRIANGLES).items():
                mesh = spec.mesh(name)
                mesh.file = ""
                mesh.uservert, mesh.userface = vertices.ravel(), faces.ravel()
            quality = spec.visual.quality
            quality.numslices, quality.numstacks, quality.numquads = 12, 2, 2
        self.model: mujoco.MjModel = spec.compile()
        robot = self.model.body("panda0_link0").rootid[0]
        own = self.model.body_rootid[self.model.geom_bodyid] == robot
        ghosts = np.isin(np.arange(self.model.ngeom), [self._geom(f"sphere_{finger}") for finger in FINGERS])
        self._arm = np.flatnonzero(own & (self.model.geom_group < 3) & ~ghosts)
        self._arm_colours = self.model.geom_rgba[self._arm].copy()
        self.dress("franka")

    def dress(self, body: str) -> None:
        """Let the camera see this body and no other. Raises `ConfigError` for a name that is none."""
        if body not in BODIES:
            raise ConfigError(f"there is no body '{body}'{did_you_mean(body, BODIES)}")
        look = BODIES[body]
        self.model.geom_rgba[self._arm] = self._arm_colours if look.arm else UNSEEN
        for finger in FINGERS:
            self.model.geom_rgba[self._geom(f"sphere_{finger}")] = look.fingers
        for hand, colour in zip(HANDS, look.hands, strict=True):
            self.model.geom_rgba[self._geom(hand)] = colour

    def _geom(self, name: str) -> int:
        return int(self.model.geom(name).id)


def _add_ghost(parent: mujoco.MjsBody, name: str, position: tuple[float, float, float]) -> None:
    """A sphere that is seen and nothing else: no mass, no contact."""
    parent.add_geom(
        name=name, type=mujoco.mjtGeom.mjGEOM_SPHERE, size=(SPHERE_RADIUS, 0, 0), pos=position,
        mass=0, contype=0, conaffinity=0, group=0,
    )  # fmt: skip


@cache
def _simplified(triangles: int) -> dict[str, tuple[Array, Array]]:
    """Name -> (vertices (V, 3), faces (F, 3)) of the robot's visual meshes that have more triangles than wanted."""
    import fast_simplification

    model = mujoco.MjSpec.from_file(str(assets())).compile()
    simpler = {}
    for index in range(model.nmesh):
        name, faces = model.mesh(index).name, model.mesh_facenum[index]
        if not name.endswith("_viz") or faces <= triangles:
            continue
        first_vertex, first_face = model.mesh_vertadr[index], model.mesh_faceadr[index]
        vertices = model.mesh_vert[first_vertex : first_vertex + model.mesh_vertnum[index]]
        rotation = np.zeros(9)
        mujoco.mju_quat2Mat(rotation, model.mesh_quat[index])  # compiling moved the mesh to its centre of mass
        vertices = vertices @ rotation.reshape(3, 3).T + model.mesh_pos[index]
        triples = model.mesh_face[first_face : first_face + faces]
        simpler[name] = fast_simplification.simplify(
            vertices.astype(np.float32), triples.astype(np.int32), target_count=triangles
        )
    return simpler
