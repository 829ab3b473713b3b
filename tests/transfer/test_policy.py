"""Both policies: schedules against diffusers, what conditions them, and that they learn."""

from dataclasses import replace

import pytest
import torch
from diffusers import DDPMScheduler
from torch import Tensor

from xskill.errors import ConfigError
from xskill.transfer.config import PolicyConfig, Solver
from xskill.transfer.policy import Body, CloningPolicy, DiffusionPolicy, Observation, policy_of
from xskill.transfer.statistics import Range

TINY = PolicyConfig(
    vision="small", vision_width=16, observe=2, predict=8, execute=4, channels=(16, 32), kernel=3, time_width=16,
    train_steps=50, solver="ddim", solver_steps=10,
)  # fmt: skip
RATE = 5e-3
BODY = Body(("side", "wrist"), (16, 16), Range((0.0,) * 2, (1.0,) * 2), Range((1.0,) * 3, (2.0,) * 3), skill=4)


def generators(count: int, seed: int = 0) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed + index) for index in range(count)]


def seen(count: int, seed: int = 0) -> Observation:
    random = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (count, 2, 16, 16, 3), generator=random, dtype=torch.uint8)
    return {"state": torch.randn(count, 2, 2, generator=random), "side": images, "wrist": images.flip(2)}


def policy(**changes: object) -> DiffusionPolicy | CloningPolicy:
    torch.manual_seed(0)
    return policy_of(replace(TINY, **changes), BODY).eval()


def acted(made: DiffusionPolicy | CloningPolicy, given: Observation, skill: Tensor, seed: int = 0) -> Tensor:
    return made.act(given, skill, made.noise(generators(len(skill), seed)))


def skills(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("guess", ["noise", "actions"])
@pytest.mark.parametrize("solver", ["ddpm", "ddim", "dpm-solver"])
def test_a_chunk_is_denoised_as_diffusers_does(solver: Solver, guess: str) -> None:
    made = policy(solver=solver, guess=guess)
    assert isinstance(made, DiffusionPolicy)
    assert made._solver().config.prediction_type == {"noise": "epsilon", "actions": "sample"}[guess]
    ours = acted(made, seen(1), skills(1))
    scheduler, random = made._solver(), generators(1)[0]
    chunk, condition = torch.randn(1, 8, 3, generator=random), made.sight(seen(1), skills(1))
    with torch.no_grad():
        for step in scheduler.timesteps:
            guessed = made.unet(chunk, step[None], condition)
            chunk = scheduler.step(guessed, step, chunk, generator=random).prev_sample
    assert torch.allclose(ours, 2 * chunk + 1, atol=1e-5)
    assert ours.shape == (1, 8, 3)


@pytest.mark.parametrize("guess", ["noise", "actions"])
@pytest.mark.parametrize("solver", ["ddpm", "ddim", "dpm-solver"])
def test_denoising_goes_from_noise_alone_to_no_noise_at_all(solver: Solver, guess: str) -> None:
    """However many steps it takes: who always knows the right chunk must end with it."""
    right = torch.rand(1, 8, 3, generator=generators(1)[0]) * 2 - 1
    for steps in range(1, TINY.train_steps + 1):
        if solver == "ddim" and TINY.train_steps % steps:
            with pytest.raises(ConfigError, match=f"solver_steps is {steps}; it must be a divisor of train_steps, 50"):
                policy(solver=solver, solver_steps=steps)
            continue
        made = policy(solver=solver, solver_steps=steps, guess=guess)
        assert isinstance(made, DiffusionPolicy)
        scheduler = made._solver()
        assert (scheduler.timesteps[0], len(scheduler.timesteps)) == (TINY.train_steps - 1, steps)
        chunk = torch.randn(1, 8, 3, generator=generators(2)[1])
        for level in scheduler.timesteps:
            signal = scheduler.alphas_cumprod[level]
            noise = (chunk - signal.sqrt() * right) / (1 - signal).sqrt()
            guessed = noise if guess == "noise" else right
            chunk = scheduler.step(guessed, level, chunk, generator=generators(1)[0]).prev_sample
        assert torch.allclose(chunk, right, atol=2e-2), steps


def test_noise_is_added_as_the_reference_says() -> None:
    made = policy()
    assert isinstance(made, DiffusionPolicy)
    reference = DDPMScheduler(50, beta_schedule="squaredcos_cap_v2")
    assert torch.equal(made._noising.alphas_cumprod, reference.alphas_cumprod)


def test_a_blind_policy_does_not_know_its_skill() -> None:
    for blind in (False, True):
        one, other = (acted(policy(blind=blind), seen(1), skills(1, seed)) for seed in (0, 1))
        assert torch.equal(one, other) == blind


@pytest.mark.parametrize("kind", ["diffusion", "cloning"])
def test_each_of_a_batch_acts_as_if_alone(kind: str) -> None:
    made = policy(kind=kind, solver="ddpm")
    together = acted(made, seen(3), skills(3))
    for index in range(3):
        alone = {name: value[index : index + 1] for name, value in seen(3).items()}
        one = acted(made, alone, skills(3)[index : index + 1], index)
        assert torch.allclose(one[0], together[index], atol=1e-4)
    order = torch.tensor([2, 0, 1])
    mixed = made.act({n: v[order] for n, v in seen(3).items()}, skills(3)[order], made.noise(generators(3))[order])
    assert torch.allclose(mixed, together[order], atol=1e-4)


@pytest.mark.parametrize("kind", ["diffusion", "cloning"])
def test_masked_steps_get_no_gradient(kind: str) -> None:
    made = policy(kind=kind)
    kept = torch.tensor([[True] * 3 + [False] * 5])
    torch.manual_seed(1)
    actions = torch.randn(1, 8, 3)
    one = made.loss(seen(1), skills(1), actions, kept)
    if kind == "cloning":
        other = actions.clone()
        other[:, 3:] += 100
        assert made.loss(seen(1), skills(1), other, kept).item() == pytest.approx(one.item())
    torch.manual_seed(1)
    everything = made.loss(seen(1), skills(1), actions, torch.full((1, 8), True))
    assert one.item() != pytest.approx(everything.item())
    last, gradients = made.unet if isinstance(made, DiffusionPolicy) else made.head, []
    last.register_full_backward_hook(lambda module, inputs, outputs: gradients.append(outputs[0]))
    made.loss(seen(1), skills(1), actions, kept).backward()
    (gradient,) = gradients
    by_step = gradient.reshape(1, 8, 3) if kind == "cloning" or gradient.shape[1] == 8 else gradient.mT
    assert not by_step[:, 3:].any()
    assert by_step[:, :3].all()
    made.zero_grad()
    nothing = made.loss(seen(1), skills(1), actions, torch.full((1, 8), False))
    nothing.backward()
    assert all(p.grad is None or not p.grad.any() for p in made.parameters())


def train(
    made: DiffusionPolicy | CloningPolicy, observation: Observation, skill: Tensor, actions: Tensor, steps: int
) -> None:
    made.train()
    optimizer, kept = torch.optim.AdamW(made.parameters(), lr=RATE), torch.full(actions.shape[:2], True)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - step / steps)
        loss = made.loss(observation, skill, actions, kept)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    made.eval()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "steps"), [("diffusion", 600), ("cloning", 200)])
def test_a_short_episode_is_learned_by_heart(kind: str, steps: int) -> None:
    made = policy(kind=kind, channels=(32,), train_steps=20)
    wanted = 1 + 2 * torch.sin(torch.arange(8)[None, :, None] / 3 + torch.arange(12)[:, None, None] / 2).repeat(1, 1, 3)
    repeated = {name: value.repeat_interleave(4, 0) for name, value in seen(12).items()}
    train(made, repeated, skills(12).repeat_interleave(4, 0), wanted.repeat_interleave(4, 0), steps)
    error = (acted(made, seen(12), skills(12)) - wanted).abs() / 2
    assert error.mean() < 0.06


@pytest.mark.slow
def test_the_skill_decides_between_two_demonstrations_that_look_the_same() -> None:
    made = policy(channels=(32,), train_steps=20)
    left, right = torch.full((8, 3), -0.5), torch.full((8, 3), 2.5)
    same = {name: value.repeat_interleave(64, 0) for name, value in seen(1).items()}
    skill = torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0]]).repeat(32, 1)
    train(made, same, skill, torch.stack([left, right]).repeat(32, 1, 1), 300)
    both = {name: value.repeat_interleave(2, 0) for name, value in seen(1).items()}
    chunk = acted(made, both, skill[:2])
    assert (chunk[0] - left).abs().mean() < 0.3
    assert (chunk[1] - right).abs().mean() < 0.3
