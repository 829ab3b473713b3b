"""Sinkhorn against the paper's listing and POT, and what the prototypes keep to."""

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from xskill.discover.prototypes import SkillPrototypes, sinkhorn


def scores_of(clips: int, prototypes: int, seed: int = 0) -> Tensor:
    return torch.rand(clips, prototypes, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def listed(scores: Tensor, eps: float, niters: int) -> Tensor:
    """The appendix's listing, step by step, in double precision."""
    plan = torch.exp(scores.double() / eps).T
    plan = plan / plan.sum()
    rows, columns = plan.shape
    for _ in range(niters):
        plan = plan * ((1 / rows) / plan.sum(1)).unsqueeze(1)
        plan = plan * ((1 / columns) / plan.sum(0)).unsqueeze(0)
    return (plan / plan.sum(0, keepdim=True)).T


@pytest.mark.parametrize("clips", [5, 64, 300])
def test_three_iterations_are_the_papers(clips: int) -> None:
    scores = scores_of(clips, 32)
    ours = sinkhorn(scores, epsilon=0.05, iterations=3)
    assert torch.allclose(ours.double(), listed(scores, 0.05, 3), atol=1e-5)


def test_many_iterations_are_the_optimal_transport_plan() -> None:
    scores, clips, prototypes = scores_of(60, 16), 60, 16
    ours = sinkhorn(scores, epsilon=0.05, iterations=200)
    plan = ot.sinkhorn(
        np.full(clips, 1 / clips), np.full(prototypes, 1 / prototypes), -scores.double().numpy(), 0.05,
        numItermax=20000, stopThr=1e-12,
    )  # fmt: skip
    assert ours.numpy() == pytest.approx(plan * clips, abs=1e-4)
    assert ours.sum(1).numpy() == pytest.approx(1, abs=1e-5)
    assert ours.mean(0).numpy() == pytest.approx(1 / prototypes, rel=1e-3)


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-6, 1e8), st.integers(1, 40), st.integers(1, 12), st.integers(0, 99))
def test_no_scores_are_too_much(scale: float, clips: int, prototypes: int, seed: int) -> None:
    target = sinkhorn(scores_of(clips, prototypes, seed) * scale, epsilon=0.03, iterations=3)
    assert torch.isfinite(target).all()
    assert target.sum(1).numpy() == pytest.approx(1, abs=1e-4)


def test_every_prototype_is_used_even_when_all_clips_look_alike() -> None:
    alike = torch.zeros(64, 16)
    alike[:, 0] = 1  # every clip prefers the first
    alike += 1e-3 * scores_of(64, 16)
    assert sinkhorn(alike, epsilon=0.03, iterations=3).mean(0).numpy() == pytest.approx(1 / 16, rel=0.05)


def test_half_precision_scores_are_worked_on_in_single() -> None:
    scores = scores_of(64, 16)
    target = sinkhorn(scores.bfloat16(), epsilon=0.03, iterations=3)
    assert target.dtype == torch.float32
    assert torch.allclose(target, sinkhorn(scores.bfloat16().float(), epsilon=0.03, iterations=3))


def test_prototypes_are_unit_vectors_and_scores_are_cosines() -> None:
    prototypes = SkillPrototypes(5, 8)
    skills = 100 * scores_of(3, 8)
    assert prototypes(skills).abs().max() <= 1 + 1e-6
    assert torch.allclose(prototypes(skills), prototypes(skills / 7), atol=1e-6)
    with torch.no_grad():
        prototypes.weight.mul_(3).add_(0.1)
    prototypes.renormalise()
    assert prototypes.weight.detach().norm(dim=1).numpy() == pytest.approx(1)


def test_frozen_prototypes_get_a_gradient_of_zero_and_skills_still_learn() -> None:
    prototypes = SkillPrototypes(5, 8)
    skills = scores_of(3, 8).requires_grad_()
    prototypes(skills, frozen=True).square().sum().backward()
    assert prototypes.weight.grad is not None
    assert (prototypes.weight.grad == 0).all()
    assert skills.grad is not None
    assert skills.grad.abs().sum() > 0
