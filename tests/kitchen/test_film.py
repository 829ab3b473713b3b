"""Filming: the same pixels however they are made, resumed after a kill, and nothing of the truth in the bank."""

import json
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import mujoco
import numpy as np
import psutil
import pytest

from tests.conftest import Command, launcher
from tests.kitchen.made import standing_still
from xskill.data.frames import FrameBank
from xskill.data.video import write_video
from xskill.errors import ConfigError, DataError
from xskill.kitchen import scene as scene_module
from xskill.kitchen.demos import Demonstration
from xskill.kitchen.env import HOME
from xskill.kitchen.film import Film, Stage, film_of, shoot
from xskill.kitchen.render import Renderer, RenderOptions
from xskill.kitchen.scene import Scene
from xskill.kitchen.tasks import TASKS, completions

SMALL = RenderOptions(height=40, width=56)


def waving(name: str, length: int) -> Demonstration:
    """An arm that waves; half-way the light goes on."""
    qpos = np.tile(np.array(HOME), (length, 1))
    qpos[:, :7] += 0.3 * np.sin(np.linspace(0, 6, length))[:, None]
    qpos[length // 2 :, list(TASKS["light"].qpos)] = TASKS["light"].goal
    return Demonstration(name, "friday_switch", qpos, qpos[:, :9] + 0.01)


DEMOS = (waving("a", 6), waving("b", 9), waving("c", 4))


def shot(film: Film, folder: Path, **more: Any) -> FrameBank:
    with Stage(SMALL) as stage:
        return shoot(film, folder, stage, **more)


def test_a_bank_holds_what_the_renderer_draws(tmp_path: Path) -> None:
    for body in ("franka", "sphere"):
        bank = shot(film_of(body, DEMOS), tmp_path, cameras=("side", "wrist"))
        scene = Scene()
        scene.dress(body)
        data = mujoco.MjData(scene.model)
        with Renderer(scene, SMALL) as renderer:
            for index, state in enumerate(np.concatenate([demo.qpos for demo in DEMOS])):
                data.qpos[:] = state
                mujoco.mj_forward(scene.model, data)
                for camera in ("side", "wrist"):
                    assert np.array_equal(bank.frames(camera)[index], renderer.frame(data, camera))


def test_what_decides_a_pixel_decides_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, again = (shot(film_of("sphere", DEMOS), tmp_path / str(n)) for n in range(2))
    assert one.path.name == again.path.name
    monkeypatch.setattr(scene_module, "SPHERE_RADIUS", 0.06)
    assert shot(film_of("sphere", DEMOS), tmp_path).path.name != one.path.name


def test_a_hand_moves_the_same_in_every_selection_and_never_twice_alike() -> None:
    all_, some = film_of("hand", DEMOS), film_of("hand", DEMOS[1:])
    assert np.array_equal(all_.qpos[1], some.qpos[0])
    assert all_.qpos[0].shape != all_.qpos[1].shape or not np.array_equal(all_.qpos[0], all_.qpos[1])
    idle = Demonstration("idle", "x", np.tile(np.array(HOME), (5, 1)), np.zeros((5, 9)))
    film = film_of("hand", (*DEMOS, idle))
    assert (film.names, film.left_out) == (all_.names, ("x/idle",))
    assert film_of("sphere", (*DEMOS, idle)).names[-1] == "x/idle"
    with pytest.raises(DataError, match="nothing for a hand to do"):
        film_of("hand", (idle,))


@pytest.mark.slow
def test_the_number_of_workers_does_not_change_a_pixel(tmp_path: Path) -> None:
    one, two = (shot(film_of("franka", DEMOS), tmp_path / str(n), workers=n) for n in (1, 2))
    assert one.path.name == two.path.name
    assert np.array_equal(one.frames("side"), two.frames("side"))


def test_only_the_robot_has_states_and_actions_and_only_demonstrators_are_sped_up(tmp_path: Path) -> None:
    robot = shot(film_of("franka", DEMOS, 1.5), tmp_path)
    sphere = shot(film_of("sphere", DEMOS, 1.5), tmp_path)
    assert robot.episodes.lengths.tolist() == [6, 9, 4]
    assert sphere.episodes.lengths.tolist() == [4, 6, 3]
    assert robot.episodes.states == pytest.approx(np.concatenate([demo.qpos[:, :9] for demo in DEMOS]))
    assert robot.episodes.actions == pytest.approx(np.concatenate([demo.ctrl for demo in DEMOS]))
    assert sphere.episodes.states is None
    assert sphere.episodes.actions is None
    with pytest.raises(ConfigError, match=r"no body 'spere' \(did you mean 'sphere'\?\)"):
        film_of("spere", DEMOS)


def test_a_hand_does_the_same_sub_tasks_in_its_own_way(tmp_path: Path) -> None:
    film = film_of("hand", DEMOS, 1.5)
    assert film.hands is not None
    assert [tuple(c.task for c in completions(qpos)) for qpos in film.qpos] == [("light",)] * 3
    bank = shot(film, tmp_path)
    without = shot(replace(film, hands=tuple(hands + 10 for hands in film.hands)), tmp_path)
    changed = np.abs(bank.frames("side").astype(int) - without.frames("side")).max((1, 2, 3))
    assert (changed > 40).all()  # the hand is always to be seen
    assert bank.episodes.states is None


def test_the_truth_lies_beside_the_bank_not_in_it(tmp_path: Path) -> None:
    bank = shot(film_of("sphere", DEMOS), tmp_path)
    truth = json.loads((tmp_path / f"{bank.path.name}.ground-truth.json").read_text())
    assert truth == {f"friday_switch/{name}": [["light", step]] for name, step in [("a", 3), ("b", 4), ("c", 2)]}
    assert "light" not in (bank.path / "manifest.json").read_text().replace("lights", "")


@pytest.mark.parametrize(("height", "width"), [(40, 56), (41, 57)])
def test_videos_have_every_frame(tmp_path: Path, height: int, width: int) -> None:
    frames = np.zeros((7, height, width, 3), np.uint8)
    frames[:, 10:30, 10:30] = (200, 40, 40)
    write_video(tmp_path / "v.mp4", frames, 12.5)
    with av.open(str(tmp_path / "v.mp4")) as container:
        assert float(container.streams.video[0].average_rate or 0) == 12.5
        read = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(read) == 7
    assert read[3][20, 20] == pytest.approx([200, 40, 40], abs=12)


@pytest.mark.slow
def test_making_killed_and_started_again_gives_the_same_bank(tmp_path: Path, xskill: Command) -> None:
    states = np.tile(np.array(HOME, np.float32), (90, 1))
    states[:, 0] += np.linspace(0, 1, 90, dtype=np.float32)
    many = {
        "qpos": states, "qvel": None, "ctrl": states[:, :9], "episode_ends": np.arange(3, 93, 3),
        "names": np.array([f"d{i}" for i in range(30)]), "folders": np.array(["friday"] * 30),
    }  # fmt: skip
    demos = standing_still(tmp_path / "many.npz", **many)
    words = ["data", "make", "kitchen", "--demos", str(demos), "--bodies", "sphere", "--workers", "2", "--out"]
    process = subprocess.Popen([*launcher(1), *words, str(tmp_path / "killed")])
    deadline = time.monotonic() + 60
    while not any(p.read_text().count("\n") > 3 for p in (tmp_path / "killed").rglob("making-*.jsonl")):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not [worker for worker in alive if "resource_tracker" not in " ".join(worker.cmdline())]
    assert not list((tmp_path / "killed/sphere").glob("*/manifest.json"))

    for folder in ("killed", "straight"):
        done = xskill(*words, tmp_path / folder)
        assert done.returncode == 0, done.stderr
        assert "sphere: 30 episodes, 90 frames" in done.stdout
    (killed,), (straight,) = ([p.parent for p in (tmp_path / f).rglob("manifest.json")] for f in ("killed", "straight"))
    assert killed.name == straight.name
    assert (killed / "manifest.json").read_bytes() == (straight / "manifest.json").read_bytes()
    FrameBank(killed).verify()


def test_a_demonstration_a_hand_cannot_repeat_is_named_passed_over_and_counted(xskill: Command, tmp_path: Path) -> None:
    states = np.tile(np.array(HOME, np.float32), (4, 1))
    states[1, list(TASKS["light"].qpos)] = TASKS["light"].goal
    demos = standing_still(tmp_path / "d.npz", qpos=states, ctrl=states[:, :9], episode_ends=np.array([2, 4]))
    done = xskill("data", "make", "kitchen", "--demos", demos, "--bodies", "hand", "--size", "24", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "hand: 1 episodes" in done.stdout
    assert "hand: 1 demonstrations passed over" in done.stdout
    assert "completes no sub-task" in done.stdout


def test_mistakes_are_one_sentence(xskill: Command, tmp_path: Path) -> None:
    demos = standing_still(tmp_path / "d.npz")
    for words, code, answer in [
        (["--demos", demos, "--episodes", "5:9"], 2, "--episodes 5:9 leaves none of the 2 demonstrations"),
        (["--demos", demos, "--workers", "0"], 2, "workers is 0; it must be at least 1"),
        (["--demos", demos, "--episodes", "x"], 2, "--episodes is 'x'; it must be first:end, as in 0:20"),
        (["--demos", tmp_path / "no"], 1, f"there are no demonstrations at {tmp_path / 'no'}: no such file or folder"),
        (["--demos", demos, "--speed", "0", "--bodies", "sphere"], 1, "speed is 0.0; it must be a number above 0"),
    ]:
        done = xskill("data", "make", "kitchen", "--out", tmp_path / "out", *words)
        assert (done.returncode, done.stderr.strip()) == (code, f"xskill: {answer}")
    assert xskill("data", "mak", "kitchen").returncode == 2
