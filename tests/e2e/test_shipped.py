"""The model that comes with the repository does what it is shown, on a CPU, and `make demo` shows it."""

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

TASKS = ("slide", "light", "microwave")
PROMPTS = 3


def done_in_order(model: Model) -> int:
    """How many sub-tasks of three videos of a sphere are done in order, of nine."""
    todo, plans = [], {}
    with Stage(RenderOptions(*model.body.size)) as stage:
        for number in range(PROMPTS):
            film = film_of("sphere", [demonstrate(TASKS, "demo", number)])
            plans[number] = plan_of(model, stage.frames(film.body, *film.episode(0))["side"], FPS)
            start = initial_state("demo", number)
            todo.append(Trial("demo", Setting("shown", "sphere"), number, film.names[0], TASKS, start))
    records = roll_out(todo, Robots(model, lambda trial: plans[trial.condition]), workers=1)
    return round(sum(record.score * len(TASKS) for record in records))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """More than one wait for each other where other tests run beside this one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("one_thread")
def test_the_shipped_model_follows_a_sphere_and_a_broken_one_does_not() -> None:
    model = load_model(SHIPPED, torch.device("cpu"))
    assert done_in_order(model) >= 4  # of nine; seven where it was written
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.network.policy.parameters():
            weight.copy_(weight.flatten()[torch.randperm(weight.numel())].view_as(weight))
    assert done_in_order(model) <= 1


def test_the_shipped_model_is_small_and_says_what_it_is() -> None:
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 20e6
    card = (SHIPPED / "README.md").read_text()
    assert "xskill train" in card
    assert "Limits" in card


@pytest.mark.slow
def test_the_demo_needs_nothing(xskill: Command, tmp_path: Path) -> None:
    done = xskill("demo", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "asked, by a video of the sphere, " in done.stdout
    assert "done, in " in done.stdout
    files = {path.name for path in (tmp_path / "demo").iterdir()}
    assert files == {"prompt.mp4", "episode.mp4", "episode.json", "timelines.png", "report.html"}
