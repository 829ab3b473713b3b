"""The rules: when a sub-task is complete, in which order, what an episode is worth and what ends it."""

import numpy as np
import pytest
from gymnasium_robotics.envs.franka_kitchen.kitchen_env import BONUS_THRESH, OBS_ELEMENT_GOALS, OBS_ELEMENT_INDICES

from xskill.errors import ConfigError
from xskill.kitchen.env import HOME
from xskill.kitchen.tasks import (
    TASKS,
    THRESHOLD,
    Completion,
    Progress,
    Score,
    check_tasks,
    complete,
    completions,
    score,
)

PEER = {
    "bottom-burner": "bottom burner",
    "top-burner": "top burner",
    "light": "light switch",
    "slide": "slide cabinet",
    "hinge": "hinge cabinet",
    "microwave": "microwave",
    "kettle": "kettle",
}


def with_done(*tasks: str) -> np.ndarray:
    """The home state with these sub-tasks complete."""
    qpos = np.array(HOME)
    for task in tasks:
        qpos[list(TASKS[task].qpos)] = TASKS[task].goal
    return qpos


def test_goals_and_threshold_are_the_benchmarks() -> None:
    assert THRESHOLD == BONUS_THRESH
    assert set(PEER) == set(TASKS)
    for name, peer in PEER.items():
        assert TASKS[name].qpos == tuple(OBS_ELEMENT_INDICES[peer])
        assert TASKS[name].goal == pytest.approx(OBS_ELEMENT_GOALS[peer])


def test_nothing_is_complete_at_home_and_each_at_its_goal() -> None:
    assert not complete(np.array(HOME)).any()
    for index, name in enumerate(TASKS):
        assert complete(with_done(name)).tolist() == [i == index for i in range(len(TASKS))]
    assert complete(np.stack([with_done(), with_done(*TASKS)])).tolist() == [[False] * 7, [True] * 7]


def test_completions_are_ordered_by_step_and_ties_by_the_prompt() -> None:
    path = np.stack([with_done(), with_done("slide"), with_done("kettle"), with_done("kettle", "light", "hinge")])
    assert completions(path) == [
        Completion("slide", 1), Completion("kettle", 2), Completion("light", 3), Completion("hinge", 3),
    ]  # fmt: skip
    asked = ("hinge", "light")
    assert [c.task for c in completions(path, asked)] == ["slide", "kettle", "hinge", "light"]


@pytest.mark.parametrize(
    ("done", "ordered", "order_free"),
    [
        ("ABCD", 1.0, 1.0),
        ("ACBD", 0.5, 1.0),
        ("BACD", 0.25, 1.0),
        ("ABDC", 0.75, 1.0),
        ("DCBA", 0.25, 1.0),
        ("AB", 0.5, 0.5),
        ("", 0.0, 0.0),
        ("XA", 0.25, 0.25),
    ],
)
def test_the_score_is_a_walk_along_the_prompt(done: str, ordered: float, order_free: float) -> None:
    assert score("ABCD", done) == Score(ordered, order_free, ordered == 1.0)


def test_an_episode_ends_when_all_is_done_when_the_prompt_is_left_or_when_time_is_up() -> None:
    progress = Progress(("kettle", "light"))
    progress.update(with_done("kettle"), 1)
    assert not progress.terminated
    progress.update(with_done("kettle", "light"), 2)
    assert progress.terminated
    assert not progress.wrong
    assert progress.score == Score(1.0, 1.0, True)

    strayed = Progress(("kettle", "light"))
    strayed.update(with_done("kettle", "slide"), 1)
    assert strayed.wrong
    assert strayed.terminated
    assert strayed.score.ordered == 0.5

    slow = Progress(("kettle", "light"))
    slow.update(with_done(), 139)
    assert not slow.truncated
    slow.update(with_done(), 140)
    assert slow.truncated


def test_a_sub_task_undone_is_no_longer_complete_but_was_completed_first_when_it_was() -> None:
    progress = Progress(("kettle", "light"))
    progress.update(with_done("light"), 5)
    progress.update(with_done(), 6)
    progress.update(with_done("light", "kettle"), 9)
    assert progress.now == ("light", "kettle")
    assert progress.first == [Completion("light", 5), Completion("kettle", 9)]
    assert progress.score.ordered == 0.5


def test_ties_within_a_step_count_in_the_prompts_order() -> None:
    for asked in (("light", "kettle"), ("kettle", "light")):
        progress = Progress(asked)
        progress.update(with_done("light", "kettle"), 3)
        assert tuple(completion.task for completion in progress.first) == asked
        assert progress.score.success


def test_names_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"no sub-task 'ketle' \(did you mean 'kettle'\?\)"):
        check_tasks(["light", "ketle"])
    with pytest.raises(ConfigError, match="more than once"):
        Progress(("light", "light"))
