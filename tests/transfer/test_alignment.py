"""The aligner: resampling, attention, and that it finds its place in a plan."""

from dataclasses import replace

import pytest
import torch

from xskill.errors import ConfigError
from xskill.transfer.alignment import PlanTracker, SkillAligner, aligner_of, resampled
from xskill.transfer.config import AlignerConfig

TINY = AlignerConfig(vision="small", vision_width=16, layers=2, heads=2, feedforward=32)


@pytest.mark.parametrize(("length", "tokens"), [(1, 5), (2, 5), (5, 5), (7, 5), (200, 5), (3, 1)])
def test_plans_are_resampled_evenly_up_and_down(length: int, tokens: int) -> None:
    which = resampled(length, tokens)
    assert which.tolist() == [round(place * (length - 1) / max(1, tokens - 1) + 1e-9) for place in range(tokens)]
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


@pytest.mark.parametrize("kind", ["transformer", "tracker"])
def test_a_hidden_token_is_not_seen_in_training(kind: str) -> None:
    torch.manual_seed(0)
    aligner = aligner_of(replace(TINY, kind=kind), 4, 8, (16, 16), 1.0)
    image, plan = torch.zeros(1, 16, 16, 3, dtype=torch.uint8), torch.randn(1, 4, 8)
    other = plan.clone()
    other[:, 2] = -2 * other[:, 2]
    truth = torch.randn(1, 8), torch.tensor([[-1.0, 0, 1, 2]])
    nothing, third = torch.zeros(1, 4, dtype=torch.bool), torch.tensor([[False, False, True, False]])
    assert torch.allclose(aligner.loss(image, plan, third, *truth), aligner.loss(image, other, third, *truth))
    assert not torch.allclose(aligner.loss(image, plan, nothing, *truth), aligner.loss(image, other, nothing, *truth))


def tracker(tokens: int = 20, pace: float = 2.0, **changes: float) -> PlanTracker:
    config = replace(TINY, kind="tracker", neighbours=1, **changes)
    return PlanTracker(config, tokens, 8, (16, 16), pace)


@pytest.mark.parametrize("history", [False, True])
def test_a_moment_is_told_apart_by_what_is_around_it_and_what_was_shown_before(history: bool) -> None:
    torch.manual_seed(0)
    made = tracker(history=history)
    image, plan = torch.randint(256, (1, 16, 16, 3), dtype=torch.uint8), torch.randn(1, 20, 8)
    other = plan.clone()
    other[0, 8] *= -1
    same = torch.isclose(made._fit(image, plan), made._fit(image, other), atol=1e-6)[0]
    assert same[:7].all()  # nothing is told of what comes later, but by neighbours
    assert not same[7:10].any()
    assert same[10:].all() != history
    again = plan[:, [*range(8), *range(8)]]  # what is shown a second time was shown
    assert torch.allclose(made._fit(image, again)[0, 10:15], made._fit(image, again)[0, 2:7]) != history


def test_belief_stays_or_moves_on_seldom_back_and_hardly_ever_leaps() -> None:
    made = tracker(step_back=0.02, leap=0.001)
    at = torch.eye(20)[[0, 10, 18]]
    moved = made.moved(at)
    assert moved[:2].sum(1).numpy() == pytest.approx(1, abs=1e-5)
    for row, place in enumerate([0, 10, 18]):
        ahead = moved[row, place : place + 5]  # twice the pace
        assert ahead.numpy() == pytest.approx(float(ahead[-1]), rel=0.15)
        assert place + 5 > 20 or ahead.sum() > 0.95
        assert place + 5 > 20 or moved[row, place + 5 :].max() < 1e-4
        assert (moved[row, :place] > 5e-4).all()
        assert moved[row, :place].sum() < 0.03


def test_the_end_of_a_plan_does_not_draw_the_belief_to_itself() -> None:
    made = tracker(tokens=40)
    fit = -0.5 * ((torch.arange(40.0) - 33) / 2).square()[None]  # the robot stands still at 33
    made._fit = lambda images, plan: fit
    belief = torch.eye(40)[[33]]
    for _ in range(20):
        found = made(torch.zeros(1, 16, 16, 3, dtype=torch.uint8), torch.zeros(1, 40, 8), belief)
        belief = found.attention
    assert belief.sum().item() == pytest.approx(1)
    assert belief.argmax() <= 37


def test_a_transformer_leaves_numbers_out_in_training_only() -> None:
    torch.manual_seed(0)
    aligner = aligner_of(replace(TINY, kind="transformer", dropout=0.5), 10, 16, (16, 16), 1.0)
    images, plan = torch.zeros(1, 16, 16, 3, dtype=torch.uint8), torch.randn(1, 10, 16)
    one, other = (aligner(images, plan).skill for _ in range(2))
    assert not torch.allclose(one, other)
    aligner.eval()
    one, other = (aligner(images, plan).skill for _ in range(2))
    assert torch.equal(one, other)


def test_a_belief_that_could_never_recover_is_refused() -> None:
    with pytest.raises(ConfigError, match="leap is 0"):
        tracker(leap=0.0)


def test_a_tracker_neither_leaps_over_what_is_unfinished_nor_loses_its_place() -> None:
    """Two moments of the plan look alike; what was believed before tells which of them it is."""
    made = tracker(trust=1.0)
    fit = torch.full((1, 20), -10.0)
    fit[0, [3, 15]] = torch.tensor([0.0, 1.0])  # the later one fits even better
    made._fit = lambda images, plan: fit
    plan = torch.randn(1, 20, 8)
    image = torch.zeros(1, 16, 16, 3, dtype=torch.uint8)
    assert torch.equal(made(image, plan).skill[0], plan[0, 15])  # nothing known of the past
    before = made.beginning(1)
    for _ in range(10):
        found = made(image, plan, before)
        assert torch.equal(found.skill[0], plan[0, 3])
        before = found.attention
    fit[0, [3, 15]] = -10
    fit[0, 4] = 0  # the scene moves on, and so does it
    assert torch.equal(made(image, plan, before).skill[0], plan[0, 4])
    undone = torch.eye(20)[[17]]
    for _ in range(3):  # what was done is seen undone
        found = made(image, plan, undone)
        undone = found.attention
    assert torch.equal(found.skill[0], plan[0, 4])


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "history"), [("transformer", False), ("tracker", False), ("tracker", True)])
def test_it_learns_where_in_the_plan_the_scene_is(kind: str, history: bool) -> None:
    torch.manual_seed(0)
    tokens, frames = 10, torch.zeros(10, 16, 16, 3, dtype=torch.uint8)
    for place in range(tokens):
        frames[place, :, place : place + 5] = 255  # a bar that moves along
    plans = torch.nn.functional.normalize(torch.randn(2, tokens, 16), dim=-1) * 4
    aligner = aligner_of(replace(TINY, kind=kind, history=history), tokens, 16, (16, 16), 1.0)
    nothing, places = torch.zeros(32, tokens, dtype=torch.bool), torch.arange(tokens)
    optimizer = torch.optim.AdamW(aligner.parameters(), lr=2e-3)
    for _ in range(500):
        plan, place = torch.randint(2, (32,)), torch.randint(tokens, (32,))
        loss = aligner.loss(frames[place], plans[plan], nothing, plans[plan, place], places - place[:, None].float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        found = aligner(frames, plans[:1].expand(tokens, -1, -1))
    nearest = torch.cdist(found.skill, plans[0]).argmin(1)
    assert nearest.tolist() == list(range(tokens))
    if kind == "tracker":
        assert found.attention.argmax(1).tolist() == list(range(tokens))
