"""From records to numbers in a table."""

from dataclasses import replace

import pytest

from xskill.evaluate.rollouts import Record
from xskill.evaluate.tables import comparisons, markdown, sentences, summary, where_it_ended

ASKED = ("microwave", "kettle", "light", "slide")


def record(setting: str, condition: int, score: float, undone: bool = False, redone: int | None = None) -> Record:
    return Record(
        setting,
        condition,
        "x",
        ASKED,
        (),
        score,
        score,
        score == 1,
        100,
        ("light", 50) if undone else None,
        redone,
        1.0,
    )


def test_a_summary_is_the_mean_over_seeds_and_conditions() -> None:
    seeds = [
        [record("same x1", 0, 1.0), record("same x1", 1, 0.5), record("cross x1", 0, 0.0)],
        [record("same x1", 0, 1.0), record("same x1", 1, 0.5), record("cross x1", 0, 0.25)],
    ]
    found = summary(seeds)
    assert found["same x1"]["score"] == 0.75
    assert found["same x1"]["low"] <= 0.75 <= found["same x1"]["high"]
    assert found["same x1"]["success"] == 0.5
    assert (found["same x1"]["episodes"], found["same x1"]["seeds"]) == (4, 2)
    assert found["cross x1"]["score"] == pytest.approx(0.125)
    assert "redone" not in found["same x1"]


def test_the_same_score_again_and_again_is_not_certainty() -> None:
    for score, ends in ((1.0, (0.893, 1.0)), (0.5, (0.446, 0.554)), (0.0, (0.0, 0.107))):
        found = summary([[record("same x1", condition, score) for condition in range(32)]])["same x1"]
        assert found["score"] == score
        assert (found["low"], found["high"]) == pytest.approx(ends, abs=1e-3)  # Wilson's, of 32 alike


def test_what_was_redone_counts_among_what_was_undone() -> None:
    found = summary(
        [
            [
                record("u", 0, 1.0, True, 90),
                record("u", 1, 0.5, True),
                record("u", 2, 0.75, True, 80),
                record("u", 3, 0.0),
            ]
        ]
    )
    assert found["u"]["undone"] == 3
    assert found["u"]["redone"] == pytest.approx(2 / 3)
    table = markdown("perturb", {"XSkill": found}).splitlines()
    assert table[2].startswith("| **XSkill** | **56.2** (")
    assert table[3].startswith("| **XSkill**: what was undone is done again | **66.7** (")
    assert table[4].startswith("| XSkill: and then the rest, in order | **33.3** (")


def test_where_episodes_ended_is_told() -> None:
    seeds = [
        [record("a", 0, 1.0), record("a", 1, 0.5), record("b", 0, 0.5, True, 90), record("b", 1, 0.0, True)],
        [record("a", 0, 0.75)],
    ]
    told = where_it_ended({"ours": summary(seeds), "best": summary([[record("a", 0, 1.0)]])}).splitlines()
    assert told[0] == "ours, of 5 episodes missed first: light 2, slide 1, microwave 1; done again: light 1 of 2"
    assert told[1] == "best, of 1 episodes missed first: nothing"


def test_the_papers_numbers_stand_beside_ours() -> None:
    found = summary([[record("same x1", 0, 1.0), record("cross x1.5", 0, 0.5), record("cross x2", 0, 0.5)]])
    lines = markdown("table1", {"XSkill": found, "plan read by the clock": found}).splitlines()
    assert lines[0] == "|  | same x1 | cross x1.5 | cross x2 |"
    assert lines[2].startswith("| **XSkill** | **100.0** (20.7 to 100.0) | **50.0** (10.3 to 89.7) |")
    assert lines[3] == "| in the paper | 95.8 | 70.2 | - |"
    assert lines[4].startswith("| **plan read by the clock** |")
    assert len(lines) == 5
    assert "in the paper" not in markdown("validation", {"XSkill": found})


def test_methods_are_compared_episode_by_episode() -> None:
    ours = {0: [record(s, i, 1.0) for i in range(6) for s in "ab"], 3: [record("a", i, 0.5) for i in range(6)]}
    worse = {
        3: [record("a", i, 0.25) for i in range(6)],
        0: [record("a", i, 0.5) for i in range(6)] + [record("b", i, 1.0) for i in range(6)],  # 0.75 on average
    }
    others = {"scored once": {0: [record("a", 0, 1.0)]}, "other seeds": {0: ours[0], 1: ours[3]}}
    found = comparisons({"ours": ours, "worse": worse, **others})
    assert list(found) == ["ours less worse"]
    assert found["ours less worse"]["all"] == {"ahead": 0.25, "low": 0.25, "high": 0.25, "p": 2 / 2**12}
    assert found["ours less worse"]["b"] == {"ahead": 0, "low": 0, "high": 0, "p": 1}
    assert found["ours less worse"]["a"]["ahead"] == 0.375
    told = sentences(found)
    assert told.startswith("ours less worse: +25.0 (+25.0 to +25.0), p 0.00049; a +37.5 (+25.0 to +50.0), p ")
    assert told.endswith("; b +0.0 (+0.0 to +0.0), p 1")


def test_rows_that_were_shown_other_tasks_are_compared_with_their_like() -> None:
    def shown(prompt: str, score: float) -> dict[int, list[Record]]:
        return {0: [replace(record("a", i, score), prompt=prompt) for i in range(6)]}

    rows = {"x": shown("x", 0.5), "y": shown("y", 0.75), "x, more": shown("x", 1.0), "y, more": shown("y", 0.75)}
    found = comparisons(rows)
    assert {names: parts["all"]["ahead"] for names, parts in found.items()} == {
        "x less x, more": -0.5,
        "y less y, more": 0,
    }


def test_a_method_that_lacks_a_setting_is_not_compared() -> None:
    ours = {0: [record(s, i, 1.0) for i in range(6) for s in "ab"]}
    assert comparisons({"ours": ours, "half": {0: [record("a", i, 0.5) for i in range(6)]}}) == {}
    assert set(comparisons({"ours": {0: ours[0][::2]}, "half": {0: ours[0][::2]}})["ours less half"]) == {"all"}
