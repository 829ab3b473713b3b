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
from xskill.transfer.counterpart import AHEAD, BACK, MOMENTS, Shown, _followed, _on_its_way, apart, counterparts
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


def test_where_the_robot_does_something_again_its_counterpart_is_back_there() -> None:
    corners = torch.randn(1, WIDTH, 26, generator=torch.Generator().manual_seed(0))
    path = F.interpolate(corners, 200, mode="linear", align_corners=True)[0].T  # no two moments far apart are alike
    path[:, -1], nobody = 0, F.one_hot(torch.full((20,), WIDTH - 1), WIDTH)  # on the way back; nobody shows that
    robot = shown([torch.cat([path[:120], nobody, path[60:]])])
    found = counterparts(robot, [shown([path] * 3)])
    at = torch.arange(280)
    rows = found.at(torch.zeros_like(at), torch.ones_like(at), at / 279) - int(found.starts[0, 1])
    true = torch.cat([torch.arange(120), torch.full((20,), 60), torch.arange(60, 200)])
    steady = (at < 115) | (at >= 124)  # two moments of 64 are four frames apart
    assert (rows - true)[steady].abs().max() <= 8
    assert (rows[100:115] > 90).all()


def test_nothing_alike_keeps_its_own_time() -> None:
    path, alike = torch.arange(6)[None], torch.tensor([[True, False, False, True, False, False]])
    assert _on_its_way(path, alike).tolist() == [[0, 3, 3, 3, 4, 5]]


def best_path(costs: np.ndarray) -> float:
    """What the best path costs, moment by moment, all ways tried."""
    n = len(costs)
    total = np.where(np.arange(n) <= AHEAD, costs[0], np.inf)
    for row in costs[1:]:
        total = row + [
            min(total[j] + (0 if j <= i <= j + AHEAD else BACK if j > i else np.inf) for j in range(n))
            for i in range(n)
        ]
    return float(total.min())


def plainly(costs: np.ndarray) -> float:
    """Dynamic time warping cell by cell."""
    n = len(costs)
    best = np.full((n + 1, n + 1), np.inf)
    best[0, 0] = 0.0
    for i in range(n):
        for j in range(n):
            best[i + 1, j + 1] = min(
                best[i, j] + 2 * costs[i, j], best[i, j + 1] + costs[i, j], best[i + 1, j] + costs[i, j]
            )
    return float(best[-1, -1]) / (2 * n)


def test_warping_and_following_equal_the_plain_ones() -> None:
    here, there = (F.normalize(torch.stack([walk(s, MOMENTS) for s in seeds]), dim=-1) for seeds in ((1, 2, 3), (4, 5)))
    costs = apart(here, there)
    assert costs.shape == (3, 2)
    for i in range(3):
        for j in range(2):
            likeness = here[i] @ there[j].T
            assert costs[i, j].item() == pytest.approx(plainly(1 - likeness.numpy()), rel=1e-4)
            followed = _followed(likeness[None])[0]
            steps, given = followed.diff(), 1 - likeness[torch.arange(MOMENTS), followed]
            assert steps.max() <= AHEAD
            assert given.sum() + BACK * (steps < 0).sum() == pytest.approx(best_path(1 - likeness.numpy()), rel=1e-4)


def test_a_share_of_moments_is_told_as_demonstrators_show_them(tmp_path: Path) -> None:
    made = robot_bank(tmp_path)
    robot = [walk(seed, int(length)) for seed, length in enumerate(LENGTHS)]
    watched = [path.repeat_interleave(2, 0) * 1000 for path in robot] * 3
    quiet = replace(CONFIG, shift=0, skill_noise=0.0, plan_noise=0.0, plan_drop=0.0, plan_warp=0.0, batch_size=256)

    def seen(cross: float, preludes: tuple[int, ...] = ()) -> dict[str, Tensor]:
        phase = TransferPhase(
            replace(quiet, cross=cross), made, torch.cat(robot), np.array([0, 1, 2]), np.array([3]), 0, CPU,
            watched=[shown(watched)],
        )  # fmt: skip
        assert "action_error_cross" in phase.evaluate(phase.network)
        phase._episodes = replace(phase._episodes, preludes=preludes)
        batch = phase.batch(Step(0, "transfer", 0))
        return {"episode": batch["episode"], **phase._looked_up(batch, noisy=True)}

    for cross in (0.0, 0.5, 1.0):
        batch = seen(cross)
        from_others = batch["told"].norm(dim=1) > 1000
        assert from_others.float().mean().item() == pytest.approx(cross, abs=0.1)
        assert torch.equal(from_others, batch["plan"].norm(dim=2).mean(1) > 1000)  # skill and plan are of one video
        nearest = batch["plan"][torch.arange(256), batch["away"].abs().argmin(1)]
        apart_ = (nearest - batch["told"]).norm(dim=1) / torch.where(from_others, 1000, 1)
        assert (apart_ < 20).all()  # the plan's moment nearest to now is where the skill comes from
    assert torch.equal(seen(0.0)["actions"], seen(1.0)["actions"])  # only what is told changes
    set_back = seen(0.5, preludes=(0, 9, 0, 0))
    from_others = set_back["told"].norm(dim=1) > 1000
    assert from_others[set_back["episode"] == 1].all()  # nobody prompts with a video in which something is undone
    assert not from_others[set_back["episode"] != 1].all()
    assert (seen(0.0, preludes=(0, 9, 0, 0))["told"].norm(dim=1) < 1000).all()  # unless demonstrators tell nothing


def test_what_cannot_be_told_is_refused(tmp_path: Path) -> None:
    made = robot_bank(tmp_path)
    skills, few = torch.zeros(made.episodes.frames, 4), np.array([0])
    with pytest.raises(DataError, match="nobody is watched"):
        TransferPhase(replace(CONFIG, cross=0.5), made, skills, few, few, 0, CPU)
    with pytest.raises(ConfigError, match="cross"):
        replace(CONFIG, cross=0.5, policy=PolicyConfig(told="goal", ahead=4))
    with pytest.raises(ConfigError, match="cross"):
        replace(CONFIG, cross=1.5)
