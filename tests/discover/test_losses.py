"""The two losses, against plain loops over clips."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from xskill.discover.losses import Neighbours, draw_neighbours, swapped_prediction, time_contrast
from xskill.discover.prototypes import sinkhorn


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=generator(seed))


def test_each_view_predicts_the_others_assignment() -> None:
    first, second = random(40, 8), random(40, 8, seed=1)
    loss = swapped_prediction(first, second, temperature=0.1, epsilon=0.05, iterations=3)
    total = 0.0
    for predicting, watched in ((first, second), (second, first)):
        target = sinkhorn(watched, epsilon=0.05, iterations=3)
        for clip in range(40):
            total += F.cross_entropy(predicting[clip] / 0.1, target[clip]).item() / 40 / 2
    assert loss.item() == pytest.approx(total, rel=1e-5)


def test_nothing_flows_back_through_the_targets() -> None:
    first, second = random(12, 4).requires_grad_(), random(12, 4, seed=1).requires_grad_()
    swapped_prediction(first, second, temperature=0.1, epsilon=0.05, iterations=3).backward()
    target = sinkhorn(second.detach(), epsilon=0.05, iterations=3)
    by_hand = (F.softmax(first.detach() / 0.1, -1) - target) / 0.1 / 12 / 2
    assert first.grad is not None
    assert torch.allclose(first.grad, by_hand, atol=1e-6)


@pytest.mark.parametrize(("clips", "near", "far"), [(30, 4, 12), (10, 1, 2), (100, 4, 12), (27, 3, 12)])
def test_windows_are_exact_up_to_the_ends_of_a_video(clips: int, near: int, far: int) -> None:
    drawn = draw_neighbours(400, clips, positive_window=near, negative_window=far, negatives=16, generator=generator())
    for clip in range(clips):
        positives = {c for c in range(clips) if 0 < abs(c - clip) <= near}
        negatives = {c for c in range(clips) if abs(c - clip) > far}
        assert set(drawn.positive[:, clip].tolist()) == positives
        assert set(drawn.negatives[:, clip].flatten().tolist()) == negatives


def test_neighbours_are_drawn_evenly() -> None:
    drawn = draw_neighbours(4000, 30, positive_window=2, negative_window=12, negatives=4, generator=generator())
    share = torch.bincount(drawn.positive[:, 10], minlength=30) / 4000
    assert share[[8, 9, 11, 12]].numpy() == pytest.approx(0.25, abs=0.03)
    left = (drawn.negatives[:, 14] < 14).float().mean().item()
    assert left == pytest.approx(2 / 5, abs=0.03)  # 0 and 1 before, 27 to 29 after


def test_time_contrast_is_info_nce_clip_by_clip() -> None:
    scores = random(2, 30, 6)
    drawn = draw_neighbours(2, 30, positive_window=4, negative_window=12, negatives=5, generator=generator())
    total = 0.0
    for video in range(2):
        for clip in range(30):
            near = scores[video, clip] @ scores[video, drawn.positive[video, clip]] / 0.5
            far = torch.stack([scores[video, clip] @ scores[video, n] / 0.5 for n in drawn.negatives[video, clip]])
            total -= (near - torch.cat([near[None], far]).logsumexp(0)).item() / 60
    assert time_contrast(scores, drawn, temperature=0.5).item() == pytest.approx(total, rel=1e-5)


def test_time_contrast_of_equal_clips_is_chance() -> None:
    drawn = Neighbours(torch.zeros(1, 4, dtype=torch.long), torch.zeros(1, 4, 16, dtype=torch.long))
    assert time_contrast(torch.ones(1, 4, 3), drawn, temperature=0.1).item() == pytest.approx(math.log(17))
