"""What is said of an episode, and what it may replace."""

from dataclasses import replace
from pathlib import Path

import pytest

from xskill.evaluate.episode import FILES, forget, told_done
from xskill.evaluate.rollouts import Record

COMPLETE = Record(
    "prompt", 0, "prompt.mp4", ("light", "slide"), (("light", 25), ("slide", 140)),
    score=1.0, order_free=1.0, success=True, steps=140, undone=None, redone=None, seconds=1.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),  # at the last step, and yet in time
        ({"completed": (("light", 25),), "success": False}, "; time was up after 11.2 s"),
        ({"completed": (("hinge", 25),), "success": False, "steps": 25}, "; hinge was not asked for, which ended it"),
    ],
)
def test_an_episode_that_was_cut_short_says_why(changes: dict[str, object], why: str) -> None:
    said = told_done(replace(COMPLETE, **changes), 140)
    assert said.startswith("done: ")
    assert said.partition(";")[2] == why[1:]


def test_only_what_an_episode_has_left_is_removed(tmp_path: Path) -> None:
    for name in ("prompt.mp4", "report.html", "notes.txt"):
        (tmp_path / name).write_text("somebody's")
    forget(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    (tmp_path / "episode.json").write_text("{}")
    forget(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert {"prompt.mp4", "report.html"} < set(FILES)
