"""Counterparts: found among distractors and at any speed, moment by moment, and told in place of the robot's own."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.transfer.test_train import CONFIG, CPU, LENGTHS, robot_bank
from xskill.engine.loop import Step
from xskill.errors import ConfigError, DataError
from xskill.transfer.config import PolicyConfig
from xskill.transfer.counterpart import MOMENTS, Shown, _path, apart, counterparts
from xskill.transfer.train import TransferPhase

WIDTH = 16


def walk(seed: int, moments: int = 200) -> Tensor:
    """A smooth path through skill space."""
    steps = torch.randn(moments, WIDTH, generator=torch.Generator().manual_seed(seed))
    return torch.cumsum(steps, 0) + 5 * torch.randn(WIDTH, generator=torch.Generator().manual_seed(1000 + seed))


def shown(videos: list[Tensor]) -> Shown:
    lengths = np.array([len(video) for video in videos])
    return Shown(torch.cat(videos), np.cumsum(lengths) - lengths, lengths)


def faster_at_first(length: int) -> Tensor:
    """Where a demonstrator is who does the first half in a quarter of the time, and then takes longer."""
    time = torch.linspace(0, 1, length, dtype=torch.float64)
    return torch.where(time < 0.25, 2 * time, 0.5 + (time - 0.25) / 1.5)


def test_counterparts_are_found_at_another_speed_and_among_others() -> None:
    paths = [walk(seed) for seed in range(6)]
    robot = shown([path[::2] for path in paths])
    when = faster_at_first(150)
    seen = [path[(when * 199).round().long()] + 0.1 * torch.randn(150, WIDTH) for path in reversed(paths)]
    others = [walk(seed) for seed in range(50, 70)]
    found = counterparts(robot, [shown(others), shown([*others[:4], *seen])])
    assert found.starts.shape == (6, 1 + 3 + 3)
    first = len(robot.skills) + 20 * 200 + 4 * 200  # of the second demonstrator's own counterparts
    for episode in range(6):
        assert found.starts[episode, 4] == first + (5 - episode) * 150
        assert found.lasts[episode, 4] == 149
        for share in (0.1, 0.3, 0.5, 0.7, 0.9):
            row = found.at(torch.tensor([episode]), torch.tensor([4]), torch.tensor([share])).item()
            assert when[row - found.starts[episode, 4].item()] == pytest.approx(share, abs=0.04)


def test_an_episode_is_its_own_first_counterpart() -> None:
    robot = shown([walk(seed, length) for seed, length in enumerate((1, 2, 37, 300))])
    found = counterparts(robot, [])
    for episode, length in enumerate((1, 2, 37, 300)):
        at = torch.arange(length)
        which = torch.full((length,), episode)
        rows = found.at(which, torch.zeros_like(at), at / max(1, length - 1))
        assert torch.equal(rows, at + int(robot.starts[episode]))


def test_what_the_robot_does_again_is_not_what_its_counterpart_shows() -> None:
    path = walk(0)
    unlike = -path[80:100]  # nobody shows this
    robot = shown([torch.cat([path[:100], unlike, path[100:]])])
    found = counterparts(robot, [shown([path + 0.1 * torch.randn_like(path), walk(1)])])
    share = torch.linspace(0, 1, 220)
    same = found.show(torch.zeros(220, dtype=torch.long), torch.ones(220, dtype=torch.long), share)
    assert not same[103:117].any()
    assert same[:96].all()
    assert same[124:].all()
    assert found.show(torch.zeros(220, dtype=torch.long), torch.zeros(220, dtype=torch.long), share).all()


def plainly(costs: np.ndarray) -> tuple[float, list[tuple[int, int]]]:
    """Dynamic time warping cell by cell."""
    n = len(costs)
    best, came = np.full((n, n), np.inf), {}
    for i in range(n):
        for j in range(n):
            ways = {(i - 1, j - 1): 2.0, (i - 1, j): 1.0, (i, j - 1): 1.0} if i or j else {(-1, -1): 2.0}
            for (a, b), weight in ways.items():
                before = 0.0 if (a, b) == (-1, -1) else best[a, b] if a >= 0 and b >= 0 else np.inf
                if before + weight * costs[i, j] < best[i, j]:
                    best[i, j], came[i, j] = before + weight * costs[i, j], (a, b)
    path = [(n - 1, n - 1)]
    while path[-1] != (0, 0):
        path.append(came[path[-1]])
    return best[-1, -1] / (2 * n), path


def test_warping_equals_the_plain_one() -> None:
    here, there = (F.normalize(torch.stack([walk(s, MOMENTS) for s in seeds]), dim=-1) for seeds in ((1, 2, 3), (4, 5)))
    costs = apart(here, there)
    assert costs.shape == (3, 2)
    for i in range(3):
        for j in range(2):
            likeness = here[i] @ there[j].T
            cost, path = plainly(1 - likeness.numpy())
            assert costs[i, j].item() == pytest.approx(cost, rel=1e-4)
            rows = [[b for a, b in path if a == row] for row in range(MOMENTS)]
            places = torch.tensor([np.mean(columns) / (MOMENTS - 1) for columns in rows])
            assert torch.allclose(_path(likeness[None])[0], places.float(), atol=1e-5)


def test_a_share_of_moments_is_told_as_demonstrators_show_them(tmp_path: Path) -> None:
    made = robot_bank(tmp_path)
    robot = [walk(seed, int(length)) for seed, length in enumerate(LENGTHS)]
    watched = [path.repeat_interleave(2, 0) * 1000 for path in robot] * 3  # what is unlike is not told
    quiet = replace(CONFIG, shift=0, skill_noise=0.0, plan_noise=0.0, plan_drop=0.0, plan_warp=0.0, batch_size=256)

    def seen(cross: float) -> dict[str, Tensor]:
        phase = TransferPhase(
            replace(quiet, cross=cross), made, torch.cat(robot), np.array([0, 1, 2]), np.array([3]), 0, CPU,
            watched=[shown(watched)],
        )  # fmt: skip
        assert ("action_error_cross" in phase.evaluate(phase.network)) == bool(cross)
        return phase._looked_up(phase.batch(Step(0, "transfer", 0)), noisy=True)

    for cross in (0.0, 0.5, 1.0):
        batch = seen(cross)
        from_others = batch["told"].norm(dim=1) > 1000
        assert from_others.float().mean().item() == pytest.approx(cross, abs=0.1)
        assert torch.equal(from_others, batch["plan"].norm(dim=2).mean(1) > 1000)  # skill and plan are of one video
        nearest = batch["plan"][torch.arange(256), batch["away"].abs().argmin(1)]
        apart_ = (nearest - batch["told"]).norm(dim=1) / torch.where(from_others, 1000, 1)
        assert (apart_ < 20).all()  # the plan's moment nearest to now is where the skill comes from
    assert torch.equal(seen(0.0)["actions"], seen(1.0)["actions"])  # only what is told changes


def test_what_cannot_be_told_is_refused(tmp_path: Path) -> None:
    made = robot_bank(tmp_path)
    skills, few = torch.zeros(made.episodes.frames, 4), np.array([0])
    with pytest.raises(DataError, match="nobody is watched"):
        TransferPhase(replace(CONFIG, cross=0.5), made, skills, few, few, 0, CPU)
    with pytest.raises(ConfigError, match="cross"):
        replace(CONFIG, cross=0.5, policy=PolicyConfig(told="goal", ahead=4))
    with pytest.raises(ConfigError, match="cross"):
        replace(CONFIG, cross=1.5)
