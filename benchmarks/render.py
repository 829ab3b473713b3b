"""Software rendering of the kitchen at 112x112: ours over MuJoCo's default flags, and over switching those off alone.

`ssim` compares our frames with the same flags and full meshes over the states rendered (mean; `ssim_min` the worst).
"""

from pathlib import Path

import mujoco
import numpy as np
from scipy.ndimage import gaussian_filter

from harness import arguments, compare, report, seconds
from xskill.kitchen.env import HOME, initial_state
from xskill.kitchen.render import Frame, Renderer, RenderOptions
from xskill.kitchen.scene import Scene
from xskill.kitchen.tasks import TASKS

States = np.ndarray


def states_of(demos: Path | None, count: int) -> States:
    """States of recorded demonstrations, or made-up ones: arms all over the place, sub-tasks done and not."""
    random = np.random.default_rng(0)
    if demos is not None:
        with np.load(demos, allow_pickle=False) as file:
            qpos: States = file["qpos"]
        chosen: States = qpos[random.integers(len(qpos), size=count)].astype(float)
        return chosen
    made = np.array([initial_state("render", index) for index in range(count)])
    made[:, :7] += random.normal(0, 0.4, (count, 7))
    for state in made:
        for task in TASKS.values():
            if random.random() < 0.3:
                state[list(task.qpos)] = task.goal
    return made


def structural_similarity(a: Frame, b: Frame) -> float:
    """Mean SSIM over the three channels: Gaussian window of 1.5 pixels, the usual constants."""
    x, y = a.astype(float), b.astype(float)

    def blur(image: np.ndarray) -> np.ndarray:
        blurred: np.ndarray = gaussian_filter(image, (1.5, 1.5, 0), truncate=3.5)
        return blurred

    mean_x, mean_y = blur(x), blur(y)
    var_x, var_y, both = blur(x * x) - mean_x**2, blur(y * y) - mean_y**2, blur(x * y) - mean_x * mean_y
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    alike = (2 * mean_x * mean_y + c1) * (2 * both + c2)
    return float((alike / ((mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2))).mean())


class Drawing:
    """A scene, its renderer and its states."""

    def __init__(self, scene: Scene, options: RenderOptions, states: States) -> None:
        self.renderer = Renderer(scene, options)
        self.states = [mujoco.MjData(scene.model) for _ in states]
        for data, qpos in zip(self.states, states, strict=True):
            data.qpos[:] = qpos
            mujoco.mj_forward(scene.model, data)

    def frames(self, count: int | None = None) -> list[Frame]:
        return [self.renderer.frame(data) for data in self.states[:count]]


def main() -> None:
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--demos", type=Path, help="recorded demonstrations (.npz) to take states from")
    parser.add_argument("--states", type=int, default=20)
    parser.add_argument("--default-frames", type=int, default=4, help="frames a round at the default flags (slow)")
    options = parser.parse_args()
    states = states_of(options.demos, options.states)
    assert np.array(HOME).shape == states.shape[1:]

    ours = Drawing(Scene(), RenderOptions(), states)
    flags = Drawing(Scene(simplified=False), RenderOptions(), states)
    full = RenderOptions(shadows=True, reflections=True, samples=8)
    default = Drawing(Scene(simplified=False), full, states)
    few = options.default_frames
    # Compared over the same number of frames, so a ratio of times is a ratio of frames per second.
    over_flags = compare(flags.frames, ours.frames, options.rounds)
    over_default = compare(lambda: default.frames(few), lambda: ours.frames(few), options.rounds)
    alike = [structural_similarity(a, b) for a, b in zip(ours.frames(), flags.frames(), strict=True)]
    fps = len(states) / np.median([seconds(ours.frames) for _ in range(options.rounds)])
    report(
        {"over_default": over_default, "over_flags": over_flags},
        options.json,
        fps=round(float(fps), 1),
        ssim=round(float(np.mean(alike)), 4),
        ssim_min=round(min(alike), 4),
        states=len(states),
    )


if __name__ == "__main__":
    main()
