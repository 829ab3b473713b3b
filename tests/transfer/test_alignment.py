"""The aligner: resampling, attention, and that it finds its place in a plan."""

import pytest
import torch

from xskill.transfer.alignment import Alignment, SkillAligner, resampled
from xskill.transfer.config import AlignerConfig

TINY = AlignerConfig(vision="small", vision_width=16, layers=2, heads=2, feedforward=32)


@pytest.mark.parametrize(("length", "tokens"), [(1, 5), (2, 5), (5, 5), (7, 5), (200, 5), (3, 1)])
def test_plans_are_resampled_evenly_up_and_down(length: int, tokens: int) -> None:
    which = resampled(length, tokens)
    assert len(which) == tokens
    assert (which.diff() >= 0).all()
    assert which[0] == 0
    if tokens > 1:
        assert which[-1] == length - 1
    if length == tokens:
        assert which.tolist() == list(range(length))
    if length > tokens > 1:
        assert which.diff().max() - which.diff().min() <= 1
    if 1 < length < tokens:
        assert set(which.tolist()) == set(range(length))


def test_attention_is_a_share_of_the_plan() -> None:
    torch.manual_seed(0)
    aligner = SkillAligner(TINY, 10, 8, (16, 16))
    found = aligner(torch.randint(256, (3, 16, 16, 3), dtype=torch.uint8), torch.randn(3, 10, 8))
    assert found.skill.shape == (3, 8)
    assert found.attention.shape == (3, 10)
    assert found.attention.sum(1).detach().numpy() == pytest.approx(1, abs=1e-5)
    assert Alignment(found.skill, torch.eye(10)[[0, 9, 0]]).progress.tolist() == pytest.approx([0, 1, 0])


def test_a_dropped_token_is_not_seen() -> None:
    torch.manual_seed(0)
    aligner = SkillAligner(TINY, 4, 8, (16, 16)).eval()
    image, plan = torch.zeros(1, 16, 16, 3, dtype=torch.uint8), torch.randn(1, 4, 8)
    other = plan.clone()
    other[:, 2] *= -2
    dropped = torch.tensor([[False, False, True, False]])
    assert torch.allclose(aligner(image, plan, dropped).skill, aligner(image, other, dropped).skill)
    assert not torch.allclose(aligner(image, plan).skill, aligner(image, other).skill, atol=1e-6)


@pytest.mark.slow
def test_it_learns_where_in_the_plan_the_scene_is() -> None:
    torch.manual_seed(0)
    tokens, frames = 10, torch.zeros(10, 16, 16, 3, dtype=torch.uint8)
    for place in range(tokens):
        frames[place, :, place : place + 5] = 255  # a bar that moves along
    plans = torch.nn.functional.normalize(torch.randn(2, tokens, 16), dim=-1) * 4
    aligner = SkillAligner(TINY, tokens, 16, (16, 16))
    optimizer = torch.optim.AdamW(aligner.parameters(), lr=2e-3)
    for _ in range(500):
        plan, place = torch.randint(2, (32,)), torch.randint(tokens, (32,))
        found = aligner(frames[place], plans[plan])
        loss = (found.skill - plans[plan, place]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        found = aligner(frames, plans[:1].expand(tokens, -1, -1))
    nearest = torch.cdist(found.skill, plans[0]).argmin(1)
    assert nearest.tolist() == list(range(tokens))
