"""`xskill compose`: one prompt video, one episode, and everything there is to see of it."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from xskill.compose.agent import Decision, load
from xskill.compose.plan import SkillPlan, plan_of
from xskill.compose.reading import Reading
from xskill.data.video import read_video, write_video
from xskill.discover.look import prototype_colours
from xskill.engine.config import Device, unset
from xskill.engine.folder import make_folder, to_bytes, write_file
from xskill.engine.log import plain_console
from xskill.errors import ConfigError, RunError
from xskill.evaluate.protocol import EXTRA_STEPS, ROBOT, Setting, Trial
from xskill.evaluate.rollouts import Pixels, Record, Robots, filmed, side_by_side, watched
from xskill.kitchen.env import initial_state
from xskill.kitchen.film import FPS
from xskill.kitchen.tasks import STEPS_PER_TASK, check_tasks
from xskill.transfer.model import Model

FILES = ("episode.json", "report.html", "timelines.png", "episode.mp4", "prompt.mp4")
"""What `xskill compose` and `xskill demo` leave in a folder."""


@dataclass(frozen=True)
class Compose:
    """Let the robot do what a video shows: one episode, and a film, a picture and a record of it.

    Any size and frame rate will do, and up to ten minutes; frames are resized to what the model knows, whatever their
    shape.
    """

    model: Path
    """Model folder, as a training leaves it in RUN/model."""
    prompt: Path
    """The video that shows the task."""
    out: Path = Path("out")
    """Folder for episode.json, episode.mp4 and timelines.png."""
    env: Literal["kitchen"] = "kitchen"
    """Where the robot is."""
    asked: Annotated[tuple[str, ...], unset("no score")] = ()
    """The sub-tasks the video shows, in order, to be scored against."""
    undo: Annotated[str, unset("nobody does")] = ""
    """Somebody interferes: light@150 turns the light off again at step 150."""
    condition: int = 0
    """Initial condition, by number."""
    steps: Annotated[int, unset("70 for each sub-task asked for, 280 when none are, and 100 more with --undo")] = 0
    """Steps the robot has."""
    reading: Annotated[Reading | None, unset("aligner, unless the model is told goals")] = None
    """How the plan is read: by the model's aligner, by the clock, or by nearest neighbours."""
    device: Device = "auto"
    """Where the network runs."""


def compose(options: Compose) -> None:
    """Do what the options say."""
    console = plain_console()
    asked, undo = check_tasks(options.asked), _undo(options.undo)
    if options.condition < 0 or options.steps < 0:
        raise ConfigError(f"--condition {options.condition} and --steps {options.steps} must not be below 0")
    usual = STEPS_PER_TASK * (len(asked) or 4) + (EXTRA_STEPS if undo else 0)
    steps, out = options.steps or usual, options.out.expanduser()
    if undo and not 0 < undo[1] < steps:
        raise ConfigError(f"--undo {undo[0]}@{undo[1]}: the episode lasts from step 1 to step {steps - 1}")
    own_folder(out)
    shown = options.prompt.expanduser()
    if shown.resolve() in [(out / name).resolve() for name in FILES]:
        raise ConfigError(f"{shown} is a file that --out {out} replaces; give --out another folder")
    model = load(options.model.expanduser(), options.device).model
    prompt, fps = read_video(shown, model.body.size)
    setting, start = Setting("prompt", "unknown"), initial_state("compose", options.condition)
    trial = Trial("compose", setting, options.condition, str(options.prompt), asked, start, undo, steps)
    forget(out)
    about = {"model": str(options.model), "reading": options.reading}
    record = perform(model, trial, prompt, fps, prompt, out, about, options.reading)
    console.print(told_done(record, steps))
    if len(prompt) == 1:
        console.print("the prompt is a single picture, which shows no movement: expect little", style="yellow")
    if undo and not record.undone:
        console.print(f"{undo[0]} was not done at step {undo[1]}, so there was nothing to undo", style="yellow")
    if record.undone:
        again = f"done again by {record.redone / FPS:.1f} s" if record.redone else "not done again"
        console.print(f"{record.undone[0]}, undone after {record.undone[1] / FPS:.1f} s, was {again}")
    if asked:
        undone = ", though not all is done any more" * (record.score == 1 and not record.success)
        all_ = "all" if record.score == 1 else "not all"
        console.print(f"score {record.score:.2f}: {all_} in the order asked for{undone}")
    console.print(f"see {out / 'episode.mp4'}, {out / 'timelines.png'}, {out / 'episode.json'}")


def own_folder(out: Path) -> None:
    """Make the folder for an episode. Raises `RunError` where there is something else in it."""
    if (out / "config.json").exists():
        raise RunError(f"{out} holds a training or a model; remove it, or give --out another folder")
    make_folder(out)


def forget(out: Path) -> None:
    """Remove what an earlier episode has left in a folder, the record first: without it there is no episode.

    Where there is none, a page or a prompt is somebody else's, and stays.
    """
    for name in FILES if (out / FILES[0]).exists() else ():
        (out / name).unlink(missing_ok=True)


def perform(
    model: Model,
    trial: Trial,
    prompt: Pixels,
    fps: float | None,
    shown: Pixels,
    out: Path,
    about: Mapping[str, Any],
    reading: Reading | None = None,
) -> Record:
    """Let the robot do what a prompt shows, and leave a film of both, a picture and a record in `out`.

    `shown` is the prompt as the film has it: as large as the film, or as the model sees it. The record comes last, and
    says what it is `about`.
    """
    plan = plan_of(model, prompt, fps)
    robots = Robots(model, lambda trial: plan, reading, width=1)
    record, states = watched(trial, robots, width=1)
    decisions = robots.decisions[0]
    write_video(out / "episode.mp4", side_by_side(shown, filmed(ROBOT, states, model.body.size[0])), FPS)
    write_file(out / "timelines.png", timelines(plan, decisions, record, model.discover.num_prototypes))
    write_file(out / "episode.json", to_bytes(_told(record, decisions) | dict(about)))
    return record


def told_done(record: Record, limit: int) -> str:
    """What was done in an episode that could last so many steps, when, and why it ended, in words."""
    done = ", ".join(f"{task} after {step / FPS:.1f} s" for task, step in record.completed) or "nothing"
    astray = [task for task, _ in record.completed if record.asked and task not in record.asked]
    why = f"{astray[0]} was not asked for, which ended it" if astray else ""
    if not (astray or record.success) and record.steps >= limit:
        why = f"time was up after {limit / FPS:.1f} s"
    return f"done: {done}" + f"; {why}" * bool(why)


def _told(record: Record, decisions: Sequence[Decision]) -> dict[str, object]:
    told = json.loads(json.dumps(asdict(record)))
    if not record.asked:
        told |= {"score": None, "order_free": None, "success": None}
    told["fps"] = FPS
    told["decisions"] = [
        {"prototype": decision.prototype, "progress": decision.progress, "seconds": decision.seconds}
        for decision in decisions
    ]
    return dict(told)


def _undo(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    task, _, step = text.partition("@")
    if not step.isdecimal():
        raise ConfigError(f"--undo is '{text}'; it must be one sub-task and a step, as in light@150")
    return check_tasks([task])[0], int(step)


def timelines(plan: SkillPlan, decisions: Sequence[Decision], record: Record, prototypes: int) -> bytes:
    """The prompt's skills and the robot's, a colour for each prototype, and where in the plan it believed to be."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), layout="constrained")
    shown, did, where = figure.subplots(3, 1, height_ratios=(1, 1, 4))
    colours = prototype_colours(prototypes)
    edges = np.minimum(np.arange(len(decisions) + 1) * len(decisions[0].actions), record.steps)
    for axis, title, strip in (
        (shown, "the prompt", plan.prototypes.numpy()),
        (did, "the robot", np.array([decision.prototype for decision in decisions])),
    ):
        axis.imshow(colours[strip][None], aspect="auto", interpolation="nearest")
        axis.set_title(title, loc="left", fontsize="small")
        axis.set_xticks([])
        axis.set_yticks([])
    where.step(edges, [*(decision.progress for decision in decisions), decisions[-1].progress], where="post")
    again = [(f"{record.undone[0]} again", record.redone)] if record.undone and record.redone else []
    for task, step in (*record.completed, *again):
        where.axvline(step, color="C2")
        where.text(step, 0.02, f" {task}", rotation=90, va="bottom", fontsize="small")
    if record.undone:
        where.axvline(record.undone[1], color="C3", linestyle="--")
        where.text(record.undone[1], 0.5, f" {record.undone[0]} undone", rotation=90, fontsize="small", color="C3")
    where.set(xlim=(0, record.steps), ylim=(0, 1), xlabel="step", ylabel="progress along the plan")
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=100)
    return drawn.getvalue()
