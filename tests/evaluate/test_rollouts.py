"""Roll-outs: what is recorded is what happened, whoever simulates and whatever runs beside it."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.evaluate.made import SIZE, model, trial
from xskill.compose.agent import Observation
from xskill.compose.plan import SkillPlan
from xskill.evaluate.protocol import Trial, new_orders, settings, trials
from xskill.evaluate.rollouts import Record, Replayed, Robots, Scripted, Truth, filmed, roll_out, side_by_side, watched
from xskill.kitchen.animate import animate
from xskill.kitchen.demos import Demonstration, read_demonstrations
from xskill.kitchen.env import HOME
from xskill.kitchen.scripted import demonstrate
from xskill.kitchen.tasks import completions


class Still:
    """Does nothing, eight steps at a time."""

    cameras: tuple[str, ...] = ("side",)
    size = (SIZE, SIZE)
    window = 1

    def begin(self, place: int, trial: Trial) -> None:
        pass

    def decide(self, seen: Mapping[int, Sequence[object]], truth: Mapping[int, Truth]) -> dict[int, np.ndarray]:
        return {place: np.tile(HOME[:9], (8, 1)) for place in seen}


def records(*todo: Trial) -> list[Record]:
    return sorted(roll_out(todo, Still(), workers=1), key=lambda record: record.condition)


def test_time_runs_out() -> None:
    (record,) = records(trial("light"))
    assert record.steps == 70
    assert (record.score, record.order_free, record.success, record.completed) == (0, 0, False, ())


def test_what_is_done_at_once_counts_in_the_prompts_order_and_ends_the_episode() -> None:
    found = records(
        trial("slide", "light", done=("light", "slide")),
        trial("light", "slide", "hinge", condition=1, done=("light", "slide")),
        trial("hinge", "slide", condition=2, done=("slide",)),
    )
    assert found[0].success
    assert found[0].completed == (("slide", 0), ("light", 0))
    assert found[0].steps <= 1  # nothing was left to do
    assert (found[1].score, found[1].steps) == (2 / 3, 210)
    assert (found[2].score, found[2].order_free) == (0, 0.5)  # too early, so it does not count


def test_a_sub_task_that_was_not_shown_ends_the_episode() -> None:
    (record,) = records(trial("hinge", "slide", done=("light",)))
    assert record.completed == (("light", 0),)
    assert record.steps <= 1
    assert record.order_free == 0


def test_the_last_finished_sub_task_is_undone_at_its_step_and_there_is_more_time() -> None:
    (record,) = records(trial("slide", "hinge", done=("slide",), undo=True))
    assert record.undone == ("slide", 20)
    assert record.redone is None
    assert record.steps == 240
    assert not record.success
    assert record.score == 0.5  # it was done first, and that counts


def robots(kind: type[Robots] = Robots, *, told: bool = False) -> Robots:
    made = model()
    skills = torch.randn(made.tokens, made.body.skill, generator=torch.Generator().manual_seed(1))
    plan = SkillPlan(skills, skills, torch.arange(made.tokens), torch.zeros(made.tokens))
    return kind(made, lambda trial: plan, "aligner", width=4, told=told)


def test_records_do_not_depend_on_workers_nor_on_what_runs_beside() -> None:
    todo = [
        replace(trial("light", condition=condition, setting=name), column=column)
        for column, name in enumerate(("a", "b"))
        for condition in range(5)
    ]

    def found(workers: int, todo: Sequence[Trial]) -> list[Record]:
        made = roll_out(todo, robots(), workers=workers, width=4)
        return sorted((replace(r, seconds=0.0) for r in made), key=lambda r: (r.setting, r.condition))

    once = found(1, todo)
    assert len(once) == 10
    shuffled = todo.copy()
    random.Random(0).shuffle(shuffled)
    assert found(2, shuffled) == once
    assert found(4, todo) == once
    assert found(2, todo[7:]) == once[7:]


@pytest.mark.parametrize("undo", [None, ("slide", 9)])
def test_an_episode_watched_again_is_the_same_episode(undo: tuple[str, int] | None) -> None:
    """Its states are gone through again by its actions alone, an interference included."""
    once = replace(trial("slide", "hinge", done=("slide",)), undo=undo, steps=40)
    record, states = watched(once, robots(), width=4)
    truths: list[Truth] = []

    class Noted(Robots):
        def decide(
            self, seen: Mapping[int, Sequence[Observation]], truth: Mapping[int, Truth]
        ) -> dict[int, np.ndarray]:
            truths.extend(truth.values())
            return super().decide(seen, truth)

    (again,) = roll_out([once], robots(Noted), workers=1, width=4)
    assert replace(again, seconds=0) == replace(record, seconds=0)
    assert (record.undone, len(states)) == (undo, record.steps)
    assert len(truths) == 10
    for truth in truths[1:]:
        assert np.array_equal(states[truth["step"] - 1], truth["qpos"])


def test_a_film_is_as_many_times_larger_as_it_says() -> None:
    _, states = watched(trial("light"), robots(), width=4)
    film = filmed("franka", states[:3], 100)
    assert film.shape == (3, 300, 300, 3)
    both = side_by_side(np.zeros((7, 100, 100, 3), np.uint8), film)
    assert both.shape == (3, 300, 600, 3)
    assert not both[:, :, :300].any()


def test_who_is_told_what_is_done_keeps_to_what_is_not() -> None:
    shown = replace(trial("light", "slide", "hinge"), ends=(0.3, 0.6, 0.9))
    assert shown.stretch(()) == (0.0, 0.3)
    assert shown.stretch(("light",)) == shown.stretch(("light", "hinge")) == (0.3, 0.6)
    assert shown.stretch(("slide",)) == (0.0, 0.3)  # the light was turned off again
    assert shown.stretch(("light", "slide", "hinge")) == (0.9, 1.0)
    begun = replace(trial("light", "slide", "hinge", done=("light",)), ends=(0.3, 0.6, 0.9))
    told = robots(told=True)
    list(roll_out([begun], told, workers=1, width=4))
    assert all(0.25 <= decision.progress <= 0.65 for decision in told.decisions[0])
    assert {decision.attention.argmax() for decision in told.decisions[0]} <= {3, 4, 5, 6, 7}


@pytest.mark.parametrize("source", ["scripted", pytest.param("recorded", marks=pytest.mark.demos)])
def test_a_replayed_demonstration_is_scored_as_it_was_performed(source: str, request: pytest.FixtureRequest) -> None:
    order = ("microwave", "kettle", "light", "slide")
    if source == "scripted":
        shown = [demonstrate(order, "replayed", index) for index in range(2)]
    else:
        good = read_demonstrations(request.getfixturevalue("demos")).good
        shown = [demo for demo in good if demo.order == order][:2]
    actions = {demo.title: demo.ctrl for demo in shown}
    right = [
        replace(trial(*demo.order, condition=index), prompt=demo.title, start=demo.qpos[0])
        for index, demo in enumerate(shown)
    ]
    wrong = replace(right[0], condition=2, asked=("kettle", "microwave", "light", "slide"))
    other = replace(right[0], condition=3, asked=("microwave", "light", "slide", "hinge"))
    undone = replace(right[0], condition=4, setting=replace(right[0].setting, undo=True))
    third, fourth = (done.step for done in completions(shown[0].qpos, order)[2:4])
    late = replace(right[0], condition=5, steps=(third + fourth) // 2)
    found = {
        r.condition: r
        for r in roll_out([*right, wrong, other, undone, late], Replayed(lambda t: actions[t.prompt], SIZE), workers=2)
    }
    for index, demo in enumerate(shown):
        assert found[index].success
        assert [task for task, _ in found[index].completed] == list(demo.order)
        assert found[index].steps == found[index].completed[-1][1]
    assert found[2].score == 0.25  # the kettle; what follows waits for the microwave, which came too early
    assert found[2].order_free == 1
    assert found[3].completed[-1][0] == "kettle"  # not shown: over
    assert found[3].score == 0.25
    assert found[4].undone is not None
    assert found[4].undone[1] >= found[4].completed[1][1] + 20  # condition 4 undoes after the second
    assert found[4].redone is None
    assert [task for task, _ in found[4].completed] == list(shown[0].order)  # no action was left out
    assert not found[4].success  # all were done, but one of them is not any more
    assert (found[5].score, found[5].steps, found[5].success) == (0.75, late.steps, False)  # time was up


@pytest.mark.parametrize("prompts", [2, 4, 5, 10])
def test_an_episode_never_begins_where_its_own_prompt_did(prompts: int) -> None:
    begin = np.tile(HOME, (prompts, 5, 1))
    begin[:, :, 0] += np.arange(prompts)[:, None]
    shown = [Demonstration(str(index), "x", qpos, qpos[:, :9]) for index, qpos in enumerate(begin)]
    columns = settings("pairs", ("sphere",))[:1]
    begun = [(round(t.start[0] - HOME[0]), t.prompt) for t in trials("pairs", columns, shown, range(32))]
    assert all(f"x/{start}" != prompt for start, prompt in begun)
    assert {start for start, _ in begun} == set(range(prompts))


def test_trials_are_pure_functions_of_suite_and_condition() -> None:
    qpos = np.tile(HOME, (5, 1))
    shown = [Demonstration(str(index), "x", qpos, qpos[:, :9]) for index in range(3)]
    columns = settings("table1", ("sphere",))
    assert [column.name for column in columns] == ["same x1", "cross x1", "cross x1.3", "cross x1.5", "cross x2"]
    found = trials("table1", columns, shown, range(8))
    again = trials("table1", columns[1:2], shown, [5])
    (one,) = [t for t in found if t.setting == columns[1] and t.condition == 5]
    assert np.array_equal(one.start, again[0].start)
    assert one.prompt == again[0].prompt == "x/2"
    assert one.seed == again[0].seed
    assert len({t.start.tobytes() for t in found}) == 8  # the same in every column
    assert {t.prompt for t in found} == {"x/0", "x/1", "x/2"}
    undone = [
        replace(t, asked=("light", "slide", "hinge", "kettle"))
        for t in trials("perturb", settings("perturb", ("sphere",)), shown, range(4))
    ]
    assert [t.undo_at for t in undone] == [1, 2, 3, 1]
    assert {t.limit for t in undone} == {380}


def test_hands_show_the_unseen_task_their_own_way() -> None:
    columns = settings("mismatch", ("sphere",))
    assert [(column.name, column.body) for column in columns] == [
        ("same x1", "franka"), ("shown by hand", "hand"), ("shown by hands", "hands"),
    ]  # fmt: skip
    motion = animate(("kettle", "light"), 3).qpos
    shown = [Demonstration("0", "x", motion, motion[:, :9])]
    same, hand, hands = trials("mismatch", columns, shown, [7])
    assert same.asked == hand.asked == hands.asked == ("kettle", "light")
    assert np.array_equal(same.start, hands.start)
    assert 0 < same.ends[0] < same.ends[1] < 1
    assert len({same.ends, hand.ends, hands.ends}) == 3  # told the truth about what each of them shows
    assert hands.ends[1] - hands.ends[0] < hand.ends[1] - hand.ends[0]  # two at once


def test_new_orders_are_new() -> None:
    first = new_orders([])
    assert [demo.order for demo in first] == [demo.order for demo in new_orders([])]
    assert len({demo.order for demo in first}) == 32
    assert all(len(demo.order) == 4 for demo in first)
    left = new_orders(first[:20])
    assert not {demo.order for demo in left} & {demo.order for demo in first[:20]}
    assert [demo.order for demo in left[:12]] == [demo.order for demo in first[20:]]
    assert [column.body for column in settings("orders", ("sphere",))] == ["hand"]
    assert [column.body for column in settings("orders", ("sphere", "hands"))] == ["hands"]


def test_the_scripted_expert_is_scored_like_any_other_and_mends_what_is_undone() -> None:
    todo = [trial("light", "kettle"), trial("light", "kettle", condition=1, undo=True)]
    done = {record.condition: record for record in roll_out(todo, Scripted(SIZE), workers=1)}
    assert done[0].success
    assert done[1].undone is not None
    assert done[1].redone is not None
    assert done[1].success
