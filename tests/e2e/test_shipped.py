"""The model that comes with the repository does what it is shown, on a CPU, and `make demo` shows it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.conftest import Command
from xskill.compose.plan import plan_of
from xskill.evaluate.demo import SHIPPED
from xskill.evaluate.protocol import Setting, Trial
from xskill.evaluate.rollouts import Robots, roll_out
from xskill.kitchen.env import initial_state
from xskill.kitchen.film import FPS, Stage, film_of
from xskill.kitchen.render import RenderOptions
from xskill.kitchen.scripted import demonstrate
from xskill.transfer.model import Model, load_model

KITCHEN = SHIPPED.with_name("kitchen")
PROMPTS = (("slide", "light", "microwave"), ("slide", "microwave"), ("kettle", "light"))


def completed(model: Model) -> int:
    """How many of three short videos of a sphere are followed to their end."""
    todo, plans = [], {}
    with Stage(RenderOptions(*model.body.size)) as stage:
        for number, tasks in enumerate(PROMPTS):
            film = film_of("sphere", [demonstrate(tasks, "demo", 0)])
            plans[number] = plan_of(model, stage.frames(film.body, *film.episode(0))["side"], FPS)
            start = initial_state("demo", 0)
            todo.append(Trial("demo", Setting("shown", "sphere"), number, film.names[0], tasks, start))
    records = roll_out(todo, Robots(model, lambda trial: plans[trial.condition]), workers=1)
    return sum(record.success for record in records)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """More than one wait for each other where other tests run beside this one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_the_shipped_model_follows_a_sphere_and_a_broken_one_does_not() -> None:
    model = load_model(SHIPPED, torch.device("cpu"))
    assert completed(model) >= 2  # all three where it was written
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.network.policy.parameters():
            weight.copy_(weight.flatten()[torch.randperm(weight.numel())].view_as(weight))
    assert completed(model) == 0


@pytest.mark.slow
@pytest.mark.demos
@pytest.mark.usefixtures("one_thread")
def test_the_kitchens_model_does_the_unseen_task(demos: Path, xskill: Command) -> None:
    words = ("--model", KITCHEN, "--demos", demos, "--conditions", "0:1", "--device", "cpu", "--json")
    done = xskill("eval", "table1", *words)
    assert done.returncode == 0, done.stderr
    scores = [cell["score"] for cell in json.loads(done.stdout.splitlines()[-1])["XSkill"].values()]
    assert len(scores) == 5
    assert sum(scores) >= 4  # of five; all of them where it was written


@pytest.mark.parametrize("folder", [SHIPPED, KITCHEN])
def test_a_shipped_model_is_small_and_says_what_it_is(folder: Path) -> None:
    load_model(folder, torch.device("cpu"))
    sizes = [path.stat().st_size for path in folder.iterdir()]
    assert sum(sizes) < 20e6
    assert max(sizes) < 15e6
    card = (folder / "README.md").read_text()
    assert "xskill train" in card
    assert "Limits" in card


@pytest.mark.slow
def test_the_demo_needs_nothing(xskill: Command, tmp_path: Path) -> None:
    done = xskill("demo", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "asked, by a video of the sphere, " in done.stdout
    assert "done: " in done.stdout
    shown = json.loads((tmp_path / "demo/episode.json").read_text())
    first, step = shown["completed"][0]
    words = ("--model", SHIPPED, "--prompt", "demo/prompt.mp4", "--asked", *shown["asked"], "--device", "cpu")
    undone = xskill("compose", *words, "--undo", f"{first}@{step + 20}", "--steps", step + 60)
    assert undone.returncode == 0, undone.stderr
    assert f"{first}, undone after {(step + 20) / 12.5:.1f} s, was " in undone.stdout
    assert json.loads((tmp_path / "out/episode.json").read_text())["undone"] == [first, step + 20]
    files = {path.name for path in (tmp_path / "demo").iterdir()}
    assert files == {"prompt.mp4", "episode.mp4", "episode.json", "timelines.png", "report.html"}
