"""`xskill demo`: another body shows a task that you choose, and the robot does it."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from xskill.compose.agent import load
from xskill.data.video import write_video
from xskill.engine.config import Device, did_you_mean, unset
from xskill.engine.log import plain_console
from xskill.errors import ConfigError
from xskill.evaluate.episode import forget, own_folder, perform, told_done
from xskill.evaluate.protocol import Setting, Trial
from xskill.evaluate.rollouts import filmed
from xskill.kitchen.env import initial_state
from xskill.kitchen.film import FPS, Stage, film_of
from xskill.kitchen.render import RenderOptions
from xskill.kitchen.scene import BODIES
from xskill.kitchen.scripted import demonstrate
from xskill.kitchen.tasks import TASKS, check_tasks

SHIPPED = Path(__file__).resolve().parents[3] / "models/quick"
"""The model that comes with the repository."""


@dataclass(frozen=True)
class Demo:
    """Somebody else shows a task in one video, and the robot does it in the simulated kitchen.

    A scripted robot does the sub-tasks that you choose, and another body is filmed in its place. The trained robot has
    never seen that video, and is told nothing else.
    """

    tasks: tuple[str, ...] = ("slide", "light", "microwave")
    """Sub-tasks, in order: bottom-burner, top-burner, light, slide, hinge, microwave, kettle."""
    body: str = "sphere"
    """Who shows them: sphere, red-sphere; hand, hands, which move in ways of their own; or franka, the robot itself."""
    seed: int = 0
    """Another one is another video, and another start for the robot."""
    model: Annotated[Path, unset("the one that comes with xskill")] = SHIPPED
    """Model folder, as a training leaves it in RUN/model."""
    out: Path = Path("demo")
    """Folder for the film, the timelines, the record and a page about them."""
    device: Device = "auto"
    """Where the network runs."""


def demo(options: Demo) -> None:
    """Do what the options say."""
    console, began = plain_console(), time.perf_counter()
    tasks, out, folder = check_tasks(options.tasks), options.out.expanduser(), options.model.expanduser()
    if not tasks:
        raise ConfigError(f"--tasks names no sub-task; choose from {', '.join(TASKS)}")
    if options.body not in BODIES:
        raise ConfigError(f"there is no body '{options.body}'{did_you_mean(options.body, BODIES)}")
    if options.seed < 0:
        raise ConfigError(f"--seed {options.seed} must not be below 0")
    if folder == SHIPPED and not folder.exists():
        raise ConfigError(
            f"there is no model in {folder}; train one (`xskill train quick`) and name it (--model runs/quick/model)"
        )
    model = load(folder, options.device).model
    own_folder(out)
    film = film_of(options.body, [demonstrate(tasks, "demo", options.seed)])
    height, width = model.body.size
    states, hands = film.episode(0)
    with Stage(RenderOptions(height, width)) as stage:
        prompt = stage.frames(film.body, states, hands)["side"]
    large = filmed(film.body, states, height, hands)
    forget(out)
    write_video(out / "prompt.mp4", large, FPS)
    console.print(f"asked, by a video of the {film.body}, {len(prompt) / FPS:.0f} s long: {', '.join(tasks)}")
    setting = Setting(f"shown by {film.body}", film.body)
    start = initial_state("demo", options.seed)
    trial = Trial("demo", setting, options.seed, "prompt.mp4", tasks, start)
    record = perform(model, trial, prompt, FPS, large, out, {"model": str(folder)})
    console.print(told_done(record, trial.limit))
    if record.success:
        console.print("everything, in the order asked for", style="green")
    else:
        count = round(record.score * len(tasks))
        console.print(f"in the order asked for: {count} of {len(tasks)}", style="yellow")
    console.print(f"all of this took {time.perf_counter() - began:.0f} s; see {out / 'episode.mp4'}")
