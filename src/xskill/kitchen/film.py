"""Filming demonstrations: every body's frames of the same kitchen, rendered in parallel straight into frame banks."""

import ctypes
import hashlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import mujoco
import numpy as np
import numpy.typing as npt

from xskill.data.episodes import Episodes, subsampled
from xskill.data.frames import BankPlan, FrameBank, Making, make_bank
from xskill.engine.config import did_you_mean
from xskill.engine.folder import to_bytes, write_file
from xskill.errors import ConfigError
from xskill.kitchen.animate import animate
from xskill.kitchen.demos import Demonstration
from xskill.kitchen.render import Renderer, RenderOptions
from xskill.kitchen.scene import BODIES, UNSEEN, Scene
from xskill.kitchen.tasks import completions

Floats = npt.NDArray[np.float64]

FPS = 12.5


@dataclass(frozen=True, eq=False)
class Film:
    """What one body is filmed doing, an array an episode.

    States of the kitchen (T, 30); what the robot was told to do (T, 9); where free hands are (T, 2, 3).
    """

    body: str
    names: tuple[str, ...]
    qpos: tuple[Floats, ...]
    actions: tuple[Floats, ...] | None = None
    hands: tuple[Floats, ...] | None = None

    def episode(self, index: int) -> tuple[Floats, Floats | None]:
        """States and hands of one episode."""
        return self.qpos[index], self.hands[index] if self.hands else None


def film_of(body: str, demos: Sequence[Demonstration], speed: float = 1.0) -> Film:
    """A body doing what was recorded, or, with motions of its own, the same sub-tasks in the same order.

    A demonstrator's videos are sub-sampled to `speed`, the robot's are not.
    """
    if body not in BODIES:
        raise ConfigError(f"there is no body '{body}'{did_you_mean(body, BODIES)}")
    look = BODIES[body]
    names = tuple(f"{demo.folder}/{demo.name}" for demo in demos)
    if look.arm:
        return Film(body, names, tuple(demo.qpos for demo in demos), tuple(demo.ctrl for demo in demos))
    if look.moves_itself:
        count = sum(colour != UNSEEN for colour in look.hands)
        motions = [animate(demo.order, seed, hands=count) for seed, demo in enumerate(demos)]
        kept = [subsampled(len(motion.qpos), speed) for motion in motions]
        qpos = tuple(motion.qpos[frames] for motion, frames in zip(motions, kept, strict=True))
        return Film(body, names, qpos, hands=tuple(m.hands[frames] for m, frames in zip(motions, kept, strict=True)))
    return Film(body, names, tuple(demo.qpos[subsampled(len(demo), speed)] for demo in demos))


def shoot(
    film: Film,
    folder: Path,
    *,
    cameras: Sequence[str] = ("side",),
    options: RenderOptions = RenderOptions(),
    workers: int = 1,
    progress: Callable[[int], None] = lambda frames: None,
) -> FrameBank:
    """Render a film into a bank under `folder`, or open the one that is there; the result is the same to the pixel.

    `progress` is told how many frames were added. Beside the bank, `<key>.ground-truth.json` says which sub-task was
    completed when: for evaluation only, nothing that trains may read it.
    """
    lengths = np.array([len(states) for states in film.qpos])
    states = np.concatenate(film.qpos)[:, :9].astype(np.float32) if film.actions else None
    actions = np.concatenate(film.actions).astype(np.float32) if film.actions else None
    episodes = Episodes(film.body, FPS, film.names, lengths, states, actions)
    motions = [np.ascontiguousarray(part).tobytes() for part in (*film.qpos, *(film.hands or ()))]
    digest = hashlib.sha256(b"".join(motions)).hexdigest()
    source = {"made_by": "kitchen", "body": film.body, "motions": digest, "render": options.about()}
    plan = BankPlan(episodes, tuple(cameras), options.height, options.width, source)

    def fill(making: Making, todo: Sequence[int]) -> Iterator[int]:
        progress(int(lengths.sum() - lengths[list(todo)].sum()))
        for episode in _rendered(film, making, todo, options, workers):
            progress(int(lengths[episode]))
            yield episode

    bank = make_bank(folder, plan, fill)
    done = [[[c.task, c.step] for c in completions(qpos)] for qpos in film.qpos]
    truth = dict(zip(film.names, done, strict=True))
    write_file(folder / f"{plan.key}.ground-truth.json", to_bytes(truth))
    return bank


def _rendered(film: Film, making: Making, todo: Sequence[int], options: RenderOptions, workers: int) -> Iterator[int]:
    if workers == 1:
        _open(film.body, options)
        for episode in todo:
            yield _render(making, episode, *film.episode(episode))
        return
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _open_worker, (film.body, options))
    try:
        jobs = [pool.submit(_render, making, episode, *film.episode(episode)) for episode in todo]
        for job in as_completed(jobs):
            yield job.result()
    finally:
        pool.shutdown(cancel_futures=True)


_renderer: Renderer
_data: mujoco.MjData


def _open_worker(body: str, options: RenderOptions) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # end with the parent, however it ends
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops the work
    os.environ["LP_NUM_THREADS"] = "1"  # a process a core; threads of the software renderer would only fight over it
    _open(body, options)


def _open(body: str, options: RenderOptions) -> None:
    """The scene and its renderer, one of each in a process."""
    global _renderer, _data
    scene = Scene(simplified=options.simplified)
    scene.dress(body)
    _renderer, _data = Renderer(scene, options), mujoco.MjData(scene.model)


def _render(making: Making, episode: int, qpos: Floats, hands: Floats | None) -> int:
    model = _renderer.scene.model
    frames = {c: np.empty((len(qpos), making.plan.height, making.plan.width, 3), np.uint8) for c in making.plan.cameras}
    for step, state in enumerate(qpos):
        _data.qpos[:] = state
        if hands is not None:
            _data.mocap_pos[:] = hands[step]
        mujoco.mj_kinematics(model, _data)
        mujoco.mj_camlight(model, _data)
        for camera, film in frames.items():
            _renderer.draw(_data, camera, film[step])
    for camera, film in frames.items():
        making.write(episode, camera, film)
    return episode
