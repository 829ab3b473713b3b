"""Filming demonstrations: every body's frames of the same kitchen, rendered in parallel straight into frame banks."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
import numpy.typing as npt

from xskill.data.episodes import Episodes, subsampled
from xskill.data.frames import BankPlan, FrameBank, Making, make_bank
from xskill.engine.config import did_you_mean, require
from xskill.engine.folder import to_bytes, write_file
from xskill.engine.seeds import seed_of
from xskill.engine.workers import spread
from xskill.errors import ConfigError, DataError
from xskill.kitchen.animate import animate
from xskill.kitchen.demos import Demonstration, Demonstrations
from xskill.kitchen.render import Renderer, RenderOptions
from xskill.kitchen.scene import BODIES, UNSEEN, Scene
from xskill.kitchen.tasks import STEP, completions

Floats = npt.NDArray[np.float64]

FPS = 1 / STEP


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
    orders: tuple[tuple[str, ...], ...] = ()
    """The sub-tasks done, in order, an episode."""
    left_out: tuple[str, ...] = ()
    """Demonstrations this body could not repeat: they complete no sub-task."""
    preludes: tuple[int, ...] = ()
    """Frames of each that only show how it came to this, where any has some."""

    def remarks(self) -> list[str]:
        """A sentence for each demonstration left out."""
        return [f"{self.body}: passed over: {name} completes no sub-task" for name in self.left_out]

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
    idle = tuple(demo.title for demo in demos if look.moves_itself and not demo.order)
    demos = [demo for demo in demos if demo.order or not look.moves_itself]
    if not demos:
        raise DataError(f"none of the demonstrations completes a sub-task, so there is nothing for a {body} to do")
    names = tuple(demo.title for demo in demos)
    qpos, hands = tuple(demo.qpos for demo in demos), None
    if look.moves_itself:
        count = sum(colour != UNSEEN for colour in look.hands)
        # Seeded by the demonstration itself: the same in every selection, and no two alike.
        seeded = zip(demos, names, strict=True)
        motions = [animate(demo.order, seed_of(body, name), hands=count) for demo, name in seeded]
        qpos, hands = tuple(motion.qpos for motion in motions), tuple(motion.hands for motion in motions)
    actions = tuple(demo.ctrl for demo in demos) if look.arm else None
    if not look.arm:
        kept = [subsampled(len(states), speed) for states in qpos]
        qpos = tuple(states[frames] for states, frames in zip(qpos, kept, strict=True))
        hands = hands and tuple(places[frames] for places, frames in zip(hands, kept, strict=True))
    preludes = tuple(demo.prelude for demo in demos) if look.arm and any(demo.prelude for demo in demos) else ()
    return Film(body, names, qpos, actions, hands, tuple(demo.order for demo in demos), idle, preludes)


def films_of(bodies: Sequence[str], read: Demonstrations, speed: float = 1.0) -> list[Film]:
    """A film of each body: the robot's of its demonstrations, the others' of those that are theirs, if any are."""
    own = {body: body in BODIES and BODIES[body].arm for body in bodies}
    return [film_of(body, read.good if own[body] or not read.shown else read.shown, speed) for body in bodies]


def shoot_all(
    films: Sequence[Film],
    folder: Path,
    *,
    cameras: Sequence[str] = ("side",),
    options: RenderOptions = RenderOptions(),
    workers: int = 1,
    progress: Callable[[str, int, int], None] = lambda body, added, total: None,
) -> list[FrameBank]:
    """Render films into banks FOLDER/BODY/KEY, or open those that are there, as `shoot` does."""
    with Stage(options) as stage:
        return [
            shoot(film, folder / film.body, stage, cameras=cameras, workers=workers, progress=progress)
            for film in films
        ]


def shoot(
    film: Film,
    folder: Path,
    stage: "Stage",
    *,
    cameras: Sequence[str] = ("side",),
    workers: int = 1,
    progress: Callable[[str, int, int], None] = lambda body, added, total: None,
) -> FrameBank:
    """Render a film into a bank under `folder`, or open the one that is there; the result is the same to the pixel.

    `progress` is told body, frames added and frames in all. Beside the bank, `<key>.ground-truth.json` says which
    sub-task was completed when: for evaluation only, nothing that trains may read it.
    """
    require(workers >= 1, "workers", workers, "at least 1")
    lengths = np.array([len(states) for states in film.qpos])
    states = np.concatenate(film.qpos)[:, :9].astype(np.float32) if film.actions else None
    actions = np.concatenate(film.actions).astype(np.float32) if film.actions else None
    episodes = Episodes(film.body, FPS, film.names, lengths, states, actions, film.preludes)
    motions = [np.ascontiguousarray(part).tobytes() for part in (*film.qpos, *(film.hands or ()))]
    digest = hashlib.sha256(b"".join(motions)).hexdigest()
    source = {"made_by": "kitchen", "body": film.body, "motions": digest, "render": stage.about(film.body)}
    plan = BankPlan(episodes, tuple(cameras), stage.options.height, stage.options.width, source)

    def fill(making: Making, todo: Sequence[int]) -> Iterator[int]:
        total = int(lengths.sum())
        progress(film.body, total - int(lengths[list(todo)].sum()), total)
        for episode in _rendered(film, making, todo, stage, workers):
            progress(film.body, int(lengths[episode]), total)
            yield episode

    bank = make_bank(folder, plan, fill)
    done = [[[c.task, c.step] for c in completions(qpos, o)] for qpos, o in zip(film.qpos, film.orders, strict=True)]
    truth = dict(zip(film.names, done, strict=True))
    write_file(folder / f"{plan.key}.ground-truth.json", to_bytes(truth))
    return bank


def _rendered(film: Film, making: Making, todo: Sequence[int], stage: "Stage", workers: int) -> Iterator[int]:
    if workers == 1:
        for episode in todo:
            yield stage.shoot(making, film.body, episode, *film.episode(episode))
        return
    jobs = [(making, film.body, episode, *film.episode(episode)) for episode in todo]
    yield from spread(_shoot, jobs, workers, _open_worker, (stage.options,))


class Stage:
    """The scene and its renderer: one in a process, for all bodies."""

    def __init__(self, options: RenderOptions) -> None:
        self.options = options
        self._scene = Scene(simplified=options.simplified)
        self._model = hashlib.sha256(saved_model(self._scene.model))  # before the renderer sets its sizes
        self._renderer, self._data = Renderer(self._scene, options), mujoco.MjData(self._scene.model)

    def about(self, body: str) -> dict[str, object]:
        """Everything that decides a pixel besides the state: the dressed model, the options, who renders."""
        self._scene.dress(body)
        look = self._model.copy()
        look.update(self._scene.model.geom_rgba.tobytes())
        return {"model": look.hexdigest(), "renderer": self._renderer.name, **self.options.about()}

    def shoot(self, making: Making, body: str, episode: int, qpos: Floats, hands: Floats | None) -> int:
        """Render one episode into a bank on its way, and return its number."""
        for camera, shot in self.frames(body, qpos, hands, making.plan.cameras).items():
            making.write(episode, camera, shot)
        return episode

    def frames(
        self, body: str, qpos: Floats, hands: Floats | None = None, cameras: Sequence[str] = ("side",)
    ) -> dict[str, npt.NDArray[np.uint8]]:
        """Camera -> what it sees (T, H, W, 3) of a body in states (T, 30) of the kitchen, free hands at (T, 2, 3)."""
        self._scene.dress(body)
        model, data, size = self._scene.model, self._data, (self.options.height, self.options.width)
        frames = {camera: np.empty((len(qpos), *size, 3), np.uint8) for camera in cameras}
        for step, state in enumerate(qpos):
            data.qpos[:] = state
            if hands is not None:
                data.mocap_pos[:] = hands[step]
            mujoco.mj_kinematics(model, data)
            mujoco.mj_camlight(model, data)
            for camera, shot in frames.items():
                self._renderer.draw(data, camera, shot[step])
        return frames

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *_: object) -> None:
        self._renderer.close()


def saved_model(model: mujoco.MjModel) -> bytes:
    """A compiled model as bytes."""
    buffer = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return buffer.tobytes()


_stage: Stage


def _open_worker(options: RenderOptions) -> None:
    global _stage
    _stage = Stage(options)


def _shoot(making: Making, body: str, episode: int, qpos: Floats, hands: Floats | None) -> int:
    return _stage.shoot(making, body, episode, qpos, hands)
