"""Which demonstrations train: the paper's splits, and made-up demonstrations to train on."""

from pathlib import Path

import numpy as np
import pytest

from xskill.data.config import DataConfig
from xskill.errors import ConfigError, DataError
from xskill.kitchen.dataset import prepare, split
from xskill.kitchen.demos import Demonstration, read_demonstrations
from xskill.kitchen.env import HOME
from xskill.kitchen.tasks import TASKS, completions


def doing(name: str, *order: str) -> Demonstration:
    """A demonstration that completes these sub-tasks, one a step."""
    qpos = np.tile(np.array(HOME), (len(order) + 1, 1))
    for step, task in enumerate(order, 1):
        qpos[step:, list(TASKS[task].qpos)] = TASKS[task].goal
    return Demonstration(name, "x", qpos, qpos[:, :9])


TEST_TASK = DataConfig().unseen
DEMOS = [
    doing("test", *TEST_TASK),
    doing("kettle to light", "kettle", "light", "slide", "hinge"),
    doing("microwave to kettle", "microwave", "kettle", "slide", "hinge"),
    doing("neither", "kettle", "microwave", "light", "slide"),
    doing("other", "slide", "hinge", "light"),
]


@pytest.mark.parametrize(
    ("level", "names"),
    [
        (0, {"kettle to light", "microwave to kettle", "neither", "other"}),
        (1, {"microwave to kettle", "neither", "other"}),
        (2, {"neither", "other"}),
    ],
)
def test_a_level_takes_out_transitions(level: int, names: set[str]) -> None:
    parts = split(DEMOS, TEST_TASK, level, 1)
    assert {*parts.train, *parts.held_out} == {f"x/{name}" for name in names}
    assert len(parts.held_out) == 1
    assert parts.prompts == ("x/test",)


def test_what_is_held_out_does_not_depend_on_what_else_is_there() -> None:
    few, many = split(DEMOS, TEST_TASK, 0, 2), split([*DEMOS, doing("late", "light")], TEST_TASK, 0, 2)
    assert set(many.held_out) - {"x/late"} <= set(few.held_out)
    with pytest.raises(DataError, match="4 demonstrations are left to learn from at level 0, and 4 are to be held out"):
        split(DEMOS, TEST_TASK, 0, 4)


@pytest.mark.demos
def test_the_recorded_demonstrations_split_as_the_paper_says(demos: Path) -> None:
    good = read_demonstrations(demos).good
    splits = [split(good, TEST_TASK, level, 16) for level in (0, 1, 2)]
    sizes = [(len(parts.train) + len(parts.held_out), len(parts.prompts)) for parts in splits]
    assert sizes == [(533, 10), (493, 10), (378, 10)]


def test_puppets_do_four_sub_tasks_with_the_gripper_at_the_handle() -> None:
    read = read_demonstrations("puppets:4")
    assert read.problems == ()
    assert len({demo.order for demo in read.good}) == 4
    for demo in read.good:
        assert [completion.task for completion in completions(demo.qpos)] == demo.folder.split("_")[1:]
        assert np.abs(np.diff(demo.qpos[:, :7], axis=0)).max() < 0.5  # the arm does not jump
        assert np.array_equal(demo.ctrl[:-1], demo.qpos[1:, :9])
    assert np.array_equal(read.good[1].qpos, read_demonstrations("puppets:3").good[1].qpos)
    with pytest.raises(DataError, match="puppets:many names no number"):
        read_demonstrations("puppets:many")


def test_a_dataset_is_prepared_once_and_bodies_share_names(tmp_path: Path) -> None:
    config = DataConfig(demos="puppets:3", demonstrators=("sphere", "hand"), size=16, held_out=1)
    told: list[tuple[str, int, int]] = []
    first = prepare(config, tmp_path, workers=1, say=print, progress=lambda *news: told.append(news))
    assert [bank.episodes.embodiment for bank in first.banks] == ["franka", "sphere", "hand"]
    assert len({bank.episodes.names for bank in first.banks}) == 1
    assert {body: sum(n for b, n, _ in told if b == body) for body, _, _ in told} == {b: t for b, _, t in told}
    told.clear()
    again = prepare(config, tmp_path, workers=1, say=print, progress=lambda *news: told.append(news))
    assert [bank.path for bank in again.banks] == [bank.path for bank in first.banks]
    assert not told
    assert again.split == first.split
    robot = first.banks[0]
    assert [robot.episodes.names[i] for i in first.split.of(robot, first.split.held_out)] == list(first.split.held_out)


def test_bodies_that_make_no_sense_are_refused_before_anything_is_rendered(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="different from the robot and from each other"):
        DataConfig(demonstrators=("sphere", "sphere"))
    for config, answer in [
        (
            DataConfig(demos="puppets:3", robot="sphere", demonstrators=("franka",), held_out=1),
            "has no arm to act with",
        ),
        (DataConfig(robot="my-robt"), "there is no body 'my-robt', and no dataset of that name"),
        (DataConfig(demos="scripted", count=1, cameras=("sied",)), "there is no camera 'sied'"),
        (DataConfig(demos="puppets:3", held_out=2), "2 are to be held out"),
    ]:
        with pytest.raises((ConfigError, DataError), match=answer):
            prepare(config, tmp_path, workers=1, say=print, progress=lambda *_: None)
    assert not list(tmp_path.iterdir())


def test_without_demonstrations_it_says_where_to_find_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--data\.demos PATH"):
        prepare(DataConfig(), tmp_path, workers=1, say=print, progress=lambda *_: None)
