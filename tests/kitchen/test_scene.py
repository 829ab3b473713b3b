"""One scene, many bodies: each is seen as it should be, and none changes the physics."""

from collections.abc import Iterator
from pathlib import Path

import gymnasium
import gymnasium_robotics
import mujoco
import numpy as np
import pytest

from xskill.errors import ConfigError
from xskill.kitchen.env import HOME, SUBSTEPS
from xskill.kitchen.render import Renderer, RenderOptions
from xskill.kitchen.scene import BODIES, Scene


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


@pytest.fixture(scope="module")
def renderer(scene: Scene) -> Iterator[Renderer]:
    with Renderer(scene) as renderer:
        yield renderer


def at_home(scene: Scene) -> mujoco.MjData:
    data = mujoco.MjData(scene.model)
    data.qpos[:] = HOME
    data.mocap_pos[:] = (-0.3, 0.4, 2.1), (0.3, 0.4, 2.1)
    mujoco.mj_forward(scene.model, data)
    return data


def test_every_body_looks_different_and_only_where_it_is(scene: Scene, renderer: Renderer) -> None:
    frames = {}
    for body in BODIES:
        scene.dress(body)
        frames[body] = renderer.frame(at_home(scene)).astype(int)
    scene.dress("franka")
    names = list(BODIES)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            assert (np.abs(frames[a] - frames[b]).max(-1) > 30).sum() > 15, (a, b)
    assert (np.abs(frames["hand"] - frames["hands"]).max(-1) > 8).mean() < 0.02  # one small sphere more
    assert (np.abs(frames["sphere"] - frames["red-sphere"]).max(-1) > 8).mean() < 0.02  # another colour
    redness = {body: int(((f[..., 0] > 100) & (f[..., 1] < 60) & (f[..., 2] < 60)).sum()) for body, f in frames.items()}
    assert redness["hands"] > redness["hand"] > redness["sphere"]
    assert redness["red-sphere"] > redness["sphere"]


def test_dressing_back_and_forth_changes_nothing(scene: Scene, renderer: Renderer) -> None:
    before = renderer.frame(at_home(scene))
    for body in BODIES:
        scene.dress(body)
    scene.dress("franka")
    assert np.array_equal(renderer.frame(at_home(scene)), before)
    with pytest.raises(ConfigError, match=r"no body 'frank' \(did you mean 'franka'\?\)"):
        scene.dress("frank")


@pytest.mark.parametrize(("height", "width"), [(112, 112), (64, 96), (1, 1), (240, 320)])
def test_frames_have_any_size_from_both_cameras(scene: Scene, height: int, width: int) -> None:
    with Renderer(scene, RenderOptions(height=height, width=width)) as renderer:
        for camera in ("side", "wrist"):
            frame = renderer.frame(at_home(scene), camera)
            assert frame.shape == (height, width, 3)
            assert frame.dtype == np.uint8


def test_frames_are_deterministic_to_the_pixel(scene: Scene, renderer: Renderer) -> None:
    data = at_home(scene)
    frames = [renderer.frame(data) for _ in range(3)]
    with Renderer(Scene()) as other:
        frames.append(other.frame(at_home(other.scene)))
    assert all(np.array_equal(frame, frames[0]) for frame in frames)
    assert frames[0].std() > 20


def peer_positions(start: np.ndarray, controls: np.ndarray) -> np.ndarray:
    """The same controls in gymnasium-robotics' own environment: qpos after each step."""
    gymnasium.register_envs(gymnasium_robotics)
    env = gymnasium.make("FrankaKitchen-v1", tasks_to_complete=["kettle"]).unwrapped
    robot = env.robot_env
    env.reset(seed=0)
    mujoco.mj_resetData(robot.model, robot.data)
    robot.set_state(start, np.zeros(robot.model.nv))
    positions = []
    for control in controls:
        robot.do_simulation(control, SUBSTEPS)
        positions.append(robot.data.qpos.copy())
    env.close()
    return np.array(positions)


def our_positions(start: np.ndarray, controls: np.ndarray) -> np.ndarray:
    from xskill.kitchen.env import KitchenEnv

    env = KitchenEnv(cameras=())
    env.reset(options={"qpos": start})
    positions = []
    for control in controls:
        env.step(control)
        positions.append(env.data.qpos.copy())
    return np.array(positions)


def test_the_physics_is_the_peers(scene: Scene) -> None:
    """A made-up motion that sweeps the arm through the furniture."""
    low, high = scene.model.actuator_ctrlrange.T
    time = np.linspace(0, 1, 60)[:, None]
    controls = np.clip(np.array(HOME)[:9] + 0.8 * np.sin(2 * np.pi * time * np.arange(1, 10) / 3), low, high)
    ours, peers = our_positions(np.array(HOME), controls), peer_positions(np.array(HOME), controls)
    assert np.abs(ours[-1] - np.array(HOME)).max() > 0.5
    assert np.array_equal(ours, peers)


@pytest.mark.demos
@pytest.mark.slow
def test_the_physics_is_the_peers_over_a_whole_demonstration(demos: Path) -> None:
    with np.load(demos, allow_pickle=False) as file:
        end = file["episode_ends"][0]
        start, controls = file["qpos"][0].astype(float), file["ctrl"][:end].astype(float)
    ours, peers = our_positions(start, controls), peer_positions(start, controls)
    assert np.array_equal(ours, peers)
