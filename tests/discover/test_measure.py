"""The measures, on skills whose worth is known beforehand."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import normalized_mutual_info_score
from torch import Tensor

from xskill.discover.measure import (
    Encoded,
    information,
    labels,
    mutual_information,
    overlap,
    retrieval,
    round_trip,
    usage,
)

TRUTH = {"a": [("x", 9), ("y", 19)], "b": [("y", 12), ("x", 15)]}


def body(name: str, skills: Tensor, lengths: tuple[int, ...] = (20, 20), prototype: Tensor | None = None) -> Encoded:
    video = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    frame = torch.cat([torch.arange(length) for length in lengths])
    prototype = video if prototype is None else prototype
    skills = F.normalize(skills, dim=-1)
    return Encoded(name, ("a", "b")[: len(lengths)], 10.0, np.array(lengths), skills, prototype, video, frame)


def random(seed: int, count: int = 40, width: int = 64) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


def test_equal_skills_find_back_and_unrelated_ones_hardly() -> None:
    skills = random(0)
    assert round_trip(body("robot", skills), body("person", skills)) == 1
    assert round_trip(body("robot", skills), body("person", random(1))) < 0.5
    assert round_trip(body("robot", skills), body("person", skills + 0.05 * random(1))) > 0.95


def test_one_skill_for_everything_does_not_count_as_round_trip() -> None:
    same = torch.ones(40, 8)
    assert round_trip(body("robot", same), body("person", same)) < 0.2


def test_usage_and_overlap() -> None:
    one, other = (body("robot", random(0), prototype=torch.arange(40) % k) for k in (4, 2))
    assert usage(one, 8)["used_robot"] == 4
    assert usage(one, 8)["evenness_robot"] == pytest.approx(np.log(4) / np.log(8))
    assert overlap(one, other, 8) == pytest.approx(0.5)
    assert overlap(one, one, 8) == pytest.approx(1)


def test_a_clip_is_on_the_way_to_the_next_sub_task() -> None:
    names = labels(body("robot", random(0)), TRUTH)
    assert names[:20].tolist() == ["x"] * 10 + ["y"] * 10
    assert names[20:].tolist() == ["y"] * 13 + ["x"] * 3 + [""] * 4
    fast = labels(body("robot", random(0, 20), (10, 10)), TRUTH, speed=2.0)
    assert fast.tolist() == ["x"] * 5 + ["y"] * 5 + ["y"] * 7 + ["x"] + [""] * 2


def test_retrieval_finds_the_same_moment_of_the_same_motion() -> None:
    skills = random(0)
    robot = body("robot", skills)
    found = retrieval(robot, TRUTH, body("person", skills), TRUTH, 1.0)
    assert found["time_error_person"] == 0
    assert found["recall_person"] == 1
    late = torch.cat([skills[:20].roll(-8, 0), skills[20:].roll(-8, 0)])  # each shows what comes 0.8 s later
    found = retrieval(robot, TRUTH, body("person", late), TRUTH, 1.0)
    assert found["time_error_person"] == pytest.approx(0.8)
    assert found["recall_person"] == 0


def test_retrieval_at_another_speed_is_measured_in_the_robots_time() -> None:
    skills = random(0)
    faster = body("person", torch.cat([skills[:20:2], skills[20::2]]), (10, 10))
    found = retrieval(body("robot", skills), TRUTH, faster, TRUTH, 2.0)
    assert found["recall_person_x2"] == 1
    assert found["time_error_person_x2"] < 0.2


def test_sub_tasks_are_compared_with_other_videos_only() -> None:
    of_task = {"x": 0, "y": 1, "": 2}
    robot = body("robot", random(0))
    one_hot = F.one_hot(torch.tensor([of_task[name] for name in labels(robot, TRUTH)]), 3).float()
    robot, person = body("robot", one_hot), body("person", one_hot)
    assert retrieval(robot, TRUTH, person, TRUTH, 1.0)["sub_task_person"] == 1
    only_itself = torch.eye(40)  # knows its own video by heart, and nothing of others
    found = retrieval(body("robot", only_itself), TRUTH, body("person", only_itself), TRUTH, 1.0)
    assert found["recall_person"] == 1
    assert found["sub_task_person"] < 0.8
    differ = {"a": [("z", 9), ("y", 19)], "b": [("y", 12), ("x", 15)]}  # z and x are nowhere else to be found
    codes = F.one_hot(torch.tensor(["xyz".find(name) for name in labels(robot, differ)]) % 4, 4).float()
    assert retrieval(body("robot", codes), differ, body("person", codes), differ, 1.0)["sub_task_person"] == 1
    nothing = {"a": [("x", 9)], "b": [("y", 12)]}
    assert "sub_task_person" not in retrieval(robot, nothing, person, nothing, 1.0)


def test_information_is_full_when_prototypes_are_sub_tasks_and_none_when_there_is_one() -> None:
    robot = body("robot", random(0))
    codes = torch.tensor([{"x": 0, "y": 1, "": 2}[name] for name in labels(robot, TRUTH)])
    knows, blind = (body("robot", random(0), prototype=p) for p in (codes, torch.zeros(40, dtype=torch.long)))
    assert information([knows, knows], [TRUTH, TRUTH]) == pytest.approx(1)
    assert information([blind, blind], [TRUTH, TRUTH]) == pytest.approx(0)


def test_mutual_information_is_sklearns() -> None:
    generator = np.random.default_rng(0)
    for one, other in [(3, 5), (1, 4), (40, 40)]:
        a, b = generator.integers(one, size=200), generator.integers(other, size=200)
        a[:50] = b[:50] % one
        assert mutual_information(a, b) == pytest.approx(normalized_mutual_info_score(a, b), abs=1e-9)
