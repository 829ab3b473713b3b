"""Scripted demonstrations: functions of their number, as long as human ones, unpaired, kept and resumed."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Command
from xskill.data.config import DataConfig
from xskill.data.split import to_watch
from xskill.errors import ConfigError, DataError
from xskill.kitchen import scripted
from xskill.kitchen.dataset import prepare
from xskill.kitchen.demos import Demonstration, Demonstrations
from xskill.kitchen.film import films_of
from xskill.kitchen.scripted import LENGTHS, NEW_PAIRS, demonstrate, demonstrations, prompts_of, set_back_in, setbacks
from xskill.kitchen.tasks import TASKS, complete, completions

UNSEEN = DataConfig().unseen


def made(folder: Path, count: int = 2, workers: int = 1, tasks: tuple[int, ...] = (4,)) -> Demonstrations:
    return demonstrations("scripted", count=count, seed=0, tasks=tasks, unseen=UNSEEN, folder=folder, workers=workers)


def same(one: Demonstration, other: Demonstration) -> bool:
    return one.title == other.title and np.array_equal(one.qpos, other.qpos) and np.array_equal(one.ctrl, other.ctrl)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scripted")
    made(path)
    return path


def test_they_do_what_they_are_called_in_the_time_that_people_take(folder: Path) -> None:
    read = made(folder)
    assert read.good[0].order == UNSEEN  # something to prompt with
    for demo in (*read.good, *read.shown):
        assert "_".join(demo.order) == demo.folder
        assert len(demo) in LENGTHS
        assert demo.qvel is not None
        assert demo.qvel.shape == (len(demo), 29)


def test_the_actions_lead_through_the_states_again(folder: Path) -> None:
    demo = made(folder).good[0]
    env = scripted._kitchen()
    env.reset(options={"qpos": demo.qpos[0]})
    for action in demo.ctrl:
        env.move(action)
    assert tuple(completion.task for completion in env.progress.first) == demo.order


def test_no_two_bodies_do_the_same(folder: Path) -> None:
    read = made(folder)
    robot, sphere = films_of(["franka", "sphere"], read)
    assert not set(robot.names) & set(sphere.names)
    assert not any(np.array_equal(one[:, :9], other[:, :9]) for one in robot.qpos for other in sphere.qpos)


def test_they_do_not_depend_on_how_many_are_made_or_by_how_many_processes(folder: Path, tmp_path: Path) -> None:
    one, several = made(folder), made(tmp_path, 3, workers=2)
    assert all(map(same, one.good, several.good))
    assert all(map(same, one.shown, several.shown))
    assert not same(several.good[1], several.good[2])


def test_they_have_as_many_sub_tasks_as_is_said(tmp_path: Path) -> None:
    read = made(tmp_path, 4, tasks=(1, 2))
    assert read.good[0].order == UNSEEN
    assert [len(demo.order) for demo in (*read.good[1:], *read.shown[1:])] == [2, 1, 2] * 2
    assert all("_".join(demo.order) == demo.folder for demo in (*read.good, *read.shown))


def test_all_seven_can_be_done() -> None:
    assert demonstrate(tuple(TASKS)).order == tuple(TASKS)


def test_pairs_that_are_kept_for_tests_are_in_no_demonstration_and_treat_all_sub_tasks_alike() -> None:
    assert len(set(NEW_PAIRS)) == len(NEW_PAIRS) == 14
    for place in (0, 1):
        assert Counter(pair[place] for pair in NEW_PAIRS) == dict.fromkeys(TASKS, 2)
    drawn = {scripted._order(0, "robot", index, UNSEEN, (2,)) for index in range(1000)}
    assert len(drawn) == 1 + 42 - 14  # the unseen task, and all other pairs
    assert not drawn & set(NEW_PAIRS)


def test_prompts_are_nobodys_demonstrations(folder: Path) -> None:
    (prompt,) = prompts_of([UNSEEN], folder, 1)
    assert prompt.order == UNSEEN
    assert same(prompt, prompts_of([UNSEEN, ("light",)], folder, 1)[0])
    assert not any(same(prompt, demo) for demo in (*made(folder).good, *made(folder).shown))


def test_another_seed_makes_others() -> None:
    one, other, again = (demonstrate(["light"], seed) for seed in (0, 1, 0))
    assert same(one, again)
    assert one.qpos.shape != other.qpos.shape or not np.allclose(one.qpos, other.qpos, atol=1e-3)


def test_what_was_made_before_an_interruption_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = made(folder)
    files = sorted(path for path in folder.rglob("*.npz") if not {"prompt", "setback"} & set(path.stem.split("-")))
    assert len(files) == 4
    gone, torn = files[0], files[1]
    gone.unlink()
    torn.write_bytes(torn.read_bytes()[:1000])
    done: list[Path] = []
    work = scripted._make
    monkeypatch.setattr(scripted, "_make", lambda path, *job: done.append(path) or work(path, *job))
    after = made(folder)
    assert len(done) == 2
    assert all(map(same, (*before.good, *before.shown), (*after.good, *after.shown)))


def test_they_train_like_any_other(folder: Path) -> None:
    config = DataConfig(demos="scripted", count=3, size=8, held_out=1)
    data = prepare(config, folder, workers=1, say=lambda text: None, progress=lambda *_: None)
    robot, sphere = data.banks
    assert not set(robot.episodes.names) & set(sphere.episodes.names)
    for bank in data.banks:
        held_out, train = data.split.of(bank, data.split.held_out), data.split.of(bank, data.split.train)
        assert (len(held_out), len(train)) == (1, 1)  # the third is a prompt


def test_they_may_be_added_to_recorded_ones(folder: Path) -> None:
    config = DataConfig(demos="puppets:6+scripted", count=3, size=8, held_out=1)
    data = prepare(config, folder, workers=1, say=lambda text: None, progress=lambda *_: None)
    robot, sphere = (set(bank.episodes.names) for bank in data.banks)
    assert (len(robot), len(sphere), len(robot & sphere)) == (9, 9, 6)  # bodies share what was recorded
    assert not set(data.split.train) & set(data.split.held_out)
    for bank in data.banks:
        assert len(data.split.of(bank, data.split.held_out)) >= 1
    with pytest.raises(DataError, match=r"scripted\+scripted names the same demonstrations twice"):
        demonstrations("scripted+scripted", count=1, seed=0, tasks=(4,), unseen=UNSEEN, folder=folder, workers=1)
    with pytest.raises(DataError, match="names nothing on one side of a plus sign"):
        demonstrations("scripted+", count=1, seed=0, tasks=(4,), unseen=UNSEEN, folder=folder, workers=1)
    with pytest.raises(DataError, match=r"there are no demonstrations at nowhere\.npz"):
        demonstrations("nowhere.npz+scripted", count=1, seed=0, tasks=(4,), unseen=UNSEEN, folder=folder, workers=1)


def test_after_a_setback_it_does_it_again_and_goes_on(folder: Path) -> None:
    read, names, went_on = made(folder), list(TASKS), []
    again = setbacks(read.good, 4, 0, folder, 1, lambda *_: None)
    assert all(map(same, again, setbacks(read.good, 4, 0, folder, 1, lambda *_: None)))
    for demo in again:
        (source,) = (one for one in read.good if np.allclose(one.qpos[0], demo.qpos[0]))
        assert demo.folder == f"{source.folder}_again"
        assert set_back_in(demo) == source.title
        assert np.allclose(demo.qpos[: demo.prelude], source.qpos[: demo.prelude])  # up to then it is the other one
        task = [end.task for end in completions(source.qpos) if end.step <= demo.prelude][-1]
        done = complete(demo.qpos)
        assert done[demo.prelude - 1, names.index(task)]
        assert not done[demo.prelude, names.index(task)]
        assert done[-1, names.index(task)]
        assert demo.order == source.order
        if task != source.order[-1]:  # what is left it does as the other one did
            assert np.allclose(demo.ctrl[-20:], source.ctrl[-20:])
            went_on.append(demo.name)
        env = scripted._kitchen()
        env.reset(options={"qpos": demo.qpos[demo.prelude]})
        for action in demo.ctrl[demo.prelude :]:
            env.move(action)
        assert complete(env.data.qpos)[names.index(task)]
    assert went_on


def test_setbacks_are_kept_under_the_titles_of_what_they_are_of(folder: Path) -> None:
    """Else those of the same motions under other names would be kept, and none of them would train."""
    read = made(folder).good[:1]
    other = [replace(demo, folder="elsewhere") for demo in read]
    (one,), (another,) = (setbacks(demos, 1, 0, folder, 1, lambda *_: None) for demos in (read, other))
    assert set_back_in(one) == read[0].title
    assert set_back_in(another) == other[0].title


@pytest.mark.parametrize("level", [0, 2])
def test_setbacks_are_of_demonstrations_that_train(folder: Path, level: int) -> None:
    config = DataConfig(demos="puppets:24", size=8, held_out=1, setbacks=8, level=level)
    data, plain = (
        prepare(one, folder, workers=1, say=lambda text: None, progress=lambda *_: None)
        for one in (config, replace(config, setbacks=0))
    )
    (robot, sphere), (before, sphere_before) = (
        [set(bank.episodes.names) for bank in one.banks] for one in (data, plain)
    )
    assert sphere == sphere_before
    again = robot - before
    assert len(again) == 8
    ours = {name for name in again if name.rsplit("-setback-", 1)[0].replace("_again/", "/") in plain.split.train}
    assert set(data.split.train) - set(plain.split.train) == ours
    assert 0 < len(ours) < 8
    watched = [
        [bank.episodes.names[i] for i in to_watch(one.split, bank)] for one in (data, plain) for bank in one.banks
    ]
    assert watched[0] == watched[2]  # skills are discovered in what people have done
    assert watched[1] == watched[3]
    assert (data.split.held_out, data.split.prompts) == (plain.split.held_out, plain.split.prompts)
    episodes, known = data.banks[0].episodes, plain.banks[0].episodes
    assert known.preludes == ()
    firsts = {tuple(known.states[known.starts[i]]) for i, name in enumerate(known.names) if name in plain.split.train}
    for i, name in enumerate(episodes.names):
        assert (episodes.begins[i] > 0) == (name in again)
        if name in ours:
            assert tuple(episodes.states[episodes.starts[i]]) in firsts
    other = prepare(
        replace(config, level=2 - level), folder, workers=1, say=lambda text: None, progress=lambda *_: None
    )
    assert [bank.path for bank in other.banks] == [bank.path for bank in data.banks]  # splits share frames
    with pytest.raises(ConfigError, match="setbacks is -1; it must be at least 0"):
        DataConfig(setbacks=-1)
    with pytest.raises(DataError, match="nothing to undo"):
        setbacks([], 1, 0, folder, 1, lambda *_: None)


def test_what_cannot_be_made_is_refused_in_a_sentence(tmp_path: Path, xskill: Command) -> None:
    with pytest.raises(ConfigError, match="count is 0; it must be at least 1"):
        made(tmp_path, 0)
    for tasks in ((), (2, 8)):
        with pytest.raises(ConfigError, match="one or more numbers, 1 to 7 each"):
            DataConfig(tasks=tasks)
    with pytest.raises(ConfigError, match="there is no sub-task 'lihgt'"):
        demonstrate(["lihgt"])
    for words in (("--count", "0"), ("--tasks", "0"), ("--tasks", "2", "8"), ("--tasks",)):
        done = xskill("data", "make", "kitchen", "--out", "out", *words)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert words[0][2:] in done.stderr


def test_a_robot_that_never_manages_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted, "LENGTHS", range(5, 6))
    monkeypatch.setattr(scripted, "ATTEMPTS", 2)
    with pytest.raises(DataError, match="did not manage light in 2 attempts"):
        demonstrate(["light"])
