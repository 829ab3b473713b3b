"""The phase: what belongs to a moment, noise only where told, labels kept, and what is refused."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.discover.made import SIZE
from tests.discover.made import TINY as DISCOVER
from tests.discover.made import bank as demonstrators_bank
from xskill.compose.plan import plan_of
from xskill.data.episodes import Episodes
from xskill.data.frames import BankPlan, FrameBank, Making, make_bank
from xskill.discover.encoder import SkillModel
from xskill.engine.loop import Step, compile_all
from xskill.errors import CheckpointError, ConfigError, DataError
from xskill.presets import PRESETS
from xskill.transfer.alignment import resampled
from xskill.transfer.augment import KNOTS, shifted, spliced, warped
from xskill.transfer.config import PolicyConfig
from xskill.transfer.label import labelled
from xskill.transfer.model import Model, load_model, save_model
from xskill.transfer.network import TransferModel
from xskill.transfer.policy import Body
from xskill.transfer.statistics import Range
from xskill.transfer.train import TransferPhase

CPU = torch.device("cpu")
CONFIG = replace(PRESETS["debug"][1].transfer, cross=0.0, undo=0.0)
LENGTHS = np.array([20, 26, 23, 30])
STEP = Step(0, "transfer", 0)


def robot_bank(folder: Path, size: int = SIZE, camera: str = "side", first: int = 0) -> FrameBank:
    """A robot whose frame, state and action at frame f of episode e all say so."""

    def fill(making: Making, todo: Sequence[int]) -> Iterable[int]:
        for episode in todo:
            frames = np.zeros((LENGTHS[episode], size, size, 3), np.uint8)
            frames[:] = (np.arange(LENGTHS[episode]) + 50 * episode + first)[:, None, None, None]
            making.write(episode, camera, frames)
            yield episode

    number = np.concatenate([np.arange(n) + 50 * e for e, n in enumerate(LENGTHS)]).astype(np.float32)
    states, actions = np.stack([number, -number], 1), np.stack([number + 0.5, number, number], 1)
    episodes = Episodes("robot", 10.0, tuple("abcd"), LENGTHS, states, actions)
    return make_bank(folder, BankPlan(episodes, (camera,), size, size, {"first": first}), fill)


@pytest.mark.parametrize("kind", ["diffusion", "cloning"])
@pytest.mark.parametrize("told", ["skill", "goal"])
@pytest.mark.parametrize("aligner", ["tracker", "transformer"])
def test_what_is_compiled_computes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, told: str, aligner: str
) -> None:
    """Traced as on a GPU, without waiting for a compiler."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager", fullgraph=True))
    policy = replace(CONFIG.policy, kind=kind, told=told, ahead=int(told == "goal"))
    config = replace(CONFIG, policy=policy, aligner=replace(CONFIG.aligner, kind=aligner))
    made = phase(tmp_path, config)
    whole = made.batch(STEP)
    losses = []
    for compiled in (False, True):
        if compiled:
            compile_all(made.hot)
        torch.manual_seed(0)
        loss, _ = made.loss(made.module, whole, STEP)
        made.module.zero_grad()
        loss.backward()
        losses.append((loss, [p.grad for p in made.module.parameters() if p.grad is not None]))
    torch.testing.assert_close(*losses)


def phase(folder: Path, config: object = CONFIG, width: int = 4, camera: str = "side") -> TransferPhase:
    made = robot_bank(folder, camera=camera)
    skills = torch.randn(made.episodes.frames, width, generator=torch.Generator().manual_seed(0))
    return TransferPhase(config, made, skills, np.array([0, 1, 2]), np.array([3]), 0, CPU)


def test_nobody_learns_from_a_prelude(tmp_path: Path) -> None:
    made = phase(tmp_path, replace(CONFIG, shift=0, state_noise=0.0, cross=0.0, undo=0.5))
    made._episodes = replace(made._episodes, preludes=(12, 0, 5, 0))
    for index in range(20):
        batch = made.batch(Step(0, "transfer", index))
        begin = torch.tensor(made._episodes.preludes)[batch["episode"]]
        assert (batch["ids"] - batch["start"] >= begin).all()
        seen = made._looked_up(batch, noisy=True)
        frames = seen["state"][:, :, 0] - 50 * batch["episode"][:, None]
        assert (frames >= begin[:, None]).all()
        actions = seen["actions"][:, :, 1] - 50 * batch["episode"][:, None]
        assert (actions >= begin[:, None]).all()
        assert torch.equal(seen["kept"][:, 0], batch["ids"] - batch["start"] > begin)


def test_a_robot_is_as_fast_as_where_nothing_was_undone(tmp_path: Path) -> None:
    made = robot_bank(tmp_path)
    made.episodes = replace(made.episodes, preludes=(12, 0, 0, 0))
    skills, split = torch.randn(made.episodes.frames, 4), (np.array([0, 1, 2]), np.array([3]))
    found = TransferPhase(CONFIG, made, skills, *split, 0, CPU)
    assert found.pace == CONFIG.policy.execute * found.tokens / LENGTHS[1:3].mean()
    assert found.pace != phase(tmp_path).pace


def test_everything_in_a_batch_belongs_to_its_moment(tmp_path: Path) -> None:
    made = phase(tmp_path, replace(CONFIG, shift=0, state_noise=0.0, skill_noise=0.0, plan_noise=0.0, plan_drop=0.0))
    for index in range(20):
        batch = made.batch(Step(0, "transfer", index))
        seen = made._looked_up(batch, noisy=True)
        starts = np.cumsum(LENGTHS) - LENGTHS
        for row, moment in enumerate(batch["ids"].tolist()):
            episode = int(np.searchsorted(starts, moment, "right")) - 1
            assert episode in (0, 1, 2)
            frame, last = moment - starts[episode], LENGTHS[episode] - 1
            window = np.clip([frame - 1, frame], 0, None) + 50 * episode
            assert seen["state"][row, :, 0].tolist() == window.tolist()
            assert seen["camera side"][row, :, 0, 0, 0].tolist() == window.tolist()
            wanted = np.arange(8) + frame - 1
            assert seen["actions"][row, :, 1].tolist() == (np.clip(wanted, 0, last) + 50 * episode).tolist()
            assert seen["kept"][row].tolist() == ((wanted >= 0) & (wanted <= last)).tolist()
            assert torch.equal(seen["told"][row], made._skills[moment])
            plan = np.array(
                [
                    starts[episode] + (made._skills[starts[episode] :] == z).all(1).int().argmax()
                    for z in seen["plan"][row]
                ]
            )
            assert plan[0] == starts[episode]
            assert plan[-1] == starts[episode] + last
            assert (np.diff(plan) >= 0).all()
            assert seen["away"][row].numpy() == pytest.approx((plan - moment) * made.tokens / last, abs=1e-4)


@pytest.mark.parametrize("tokens", [12, 40])  # fewer than an episode has frames, and more
def test_a_plan_that_is_not_warped_is_the_episode_resampled(tmp_path: Path, tokens: int) -> None:
    aligner = replace(CONFIG.aligner, tokens=tokens)
    made = phase(tmp_path, replace(CONFIG, plan_warp=0.0, aligner=aligner))
    batch = made.batch(STEP)
    plans = made._looked_up(batch, noisy=False)["plan"]
    for plan, start, last in zip(plans, batch["start"], batch["last"], strict=True):
        assert torch.equal(plan, made._skills[start + resampled(int(last) + 1, tokens)])


def test_only_the_policy_is_taken_over_where_it_is_kept(tmp_path: Path) -> None:
    base = phase(tmp_path)
    with torch.no_grad():
        for weight in base.network.parameters():
            weight.add_(0.1)
    for kept, anew in ((False, True), (True, True), (True, False)):
        made = phase(tmp_path, replace(CONFIG, keep_policy=kept, aligner_anew=anew))
        fresh = {name: tensor.clone() for name, tensor in made.network.state_dict().items()}
        made.network.go_on_from(base.network)
        for name, tensor in made.network.state_dict().items():
            source = fresh if kept and anew and name.startswith("aligner.") else base.network.state_dict()
            assert torch.equal(tensor, source[name])
        policy, aligner = made.network.train()(made._looked_up(made.batch(STEP), noisy=True), made.cameras)
        (policy + aligner).backward()
        assert all((weight.grad is None) == kept for weight in made.network.policy.parameters())
        assert any(weight.grad is not None for weight in made.network.aligner.parameters())


def test_eyes_that_are_kept_learn_nothing_and_everything_else_does(tmp_path: Path) -> None:
    base, made = phase(tmp_path), phase(tmp_path, replace(CONFIG, keep_eyes=True))
    made.network.go_on_from(base.network)
    policy, aligner = made.network.train()(made._looked_up(made.batch(STEP), noisy=True), made.cameras)
    (policy + aligner).backward()
    learned = {name for name, weight in made.network.named_parameters() if weight.grad is not None}
    eyes = {name for name in dict(made.network.named_parameters()) if name.startswith("policy.sight.cameras.")}
    assert eyes
    assert learned.isdisjoint(eyes)
    assert {name.split(".")[0] for name in learned} == {"policy", "aligner"}
    assert any(name.startswith("policy.unet.") for name in learned)


def test_padding_counts_unless_it_is_masked(tmp_path: Path) -> None:
    made = phase(tmp_path, replace(CONFIG, mask_padding=False))
    assert made._looked_up(made.batch(STEP), noisy=False)["kept"].all()


def test_moments_are_drawn_evenly_over_frames_and_are_a_function_of_the_step(tmp_path: Path) -> None:
    made = phase(tmp_path, replace(CONFIG, batch_size=3000))
    ids = made.batch(STEP)["ids"]
    counts = torch.bincount(ids, minlength=int(LENGTHS.sum()))
    assert (counts[:69] > 0).all()
    assert not counts[69:].any()
    assert torch.equal(ids, made.batch(STEP)["ids"])


def test_noise_is_of_the_size_told_and_never_reaches_the_targets(tmp_path: Path) -> None:
    config = replace(CONFIG, batch_size=400, skill_noise=0.5, plan_noise=0.25, plan_drop=0.3, state_noise=0.1)
    made = phase(tmp_path, config, width=64)
    batch = made.batch(STEP)
    clean, noisy = (made._looked_up(batch, noisy=noise) for noise in (False, True))
    assert torch.equal(clean["skill"], noisy["skill"])
    assert torch.equal(clean["actions"], noisy["actions"])
    for name, share in (("told", 0.5), ("plan", 0.25)):
        relative = (noisy[name] - clean[name]).norm(dim=-1) / clean[name].norm(dim=-1)
        assert relative.mean().item() == pytest.approx(share, rel=0.05)
    width = torch.tensor(made.body.states.half)
    assert ((noisy["state"] - clean["state"]) / width).std().item() == pytest.approx(0.1, rel=0.1)
    assert noisy["hidden"].float().mean().item() == pytest.approx(0.3, abs=0.03)
    assert not clean["hidden"].any()


def test_a_camera_may_have_almost_any_name(tmp_path: Path) -> None:
    for camera in ("goal", "scene", "plan", "actions"):
        made = phase(tmp_path / camera, camera=camera)
        seen = made._looked_up(made.batch(STEP), noisy=False)
        assert seen[f"camera {camera}"].shape[1:] == (2, SIZE, SIZE, 3)
        assert all(loss.isfinite() for loss in made.network(seen, made.cameras))
    with pytest.raises(DataError, match="a camera cannot be called 'state'"):
        phase(tmp_path / "state", camera="state")


def test_actions_beyond_those_of_the_model_gone_on_from_are_counted(tmp_path: Path) -> None:
    made = phase(tmp_path)
    assert made.out_of_reach() == pytest.approx(LENGTHS[3] / LENGTHS.sum())  # the episode held out goes further
    made.body = replace(made.body, actions=Range((0.0, 0.0, 0.0), (1e3, 1e3, 1e3)))
    assert made.out_of_reach() == 0


def test_a_plan_is_half_an_episode_long_unless_told(tmp_path: Path) -> None:
    free = replace(CONFIG, aligner=replace(CONFIG.aligner, tokens=0))
    assert phase(tmp_path, free).tokens == round(LENGTHS[:3].mean() / 2)
    assert phase(tmp_path).tokens == CONFIG.aligner.tokens


def test_warped_plans_rise_from_first_to_last() -> None:
    places = warped(torch.rand(200, KNOTS, generator=torch.Generator().manual_seed(0)), 50, 1.0)
    assert (places.diff(dim=1) > 0).all()
    assert places[:, 0].abs().max() == 0
    assert places[:, -1].numpy() == pytest.approx(1)
    even = np.linspace(0, 1, 50)
    assert np.abs(places.numpy() - even).max() > 0.05
    assert warped(torch.rand(2, 3, KNOTS), 50, 0.0)[1, 2].numpy() == pytest.approx(even, abs=1e-12)


def test_spliced_plans_keep_what_is_near_and_take_the_rest_from_another() -> None:
    plans = torch.arange(4)[:, None, None] * 200 + torch.tensor([[0], [100]]) + torch.arange(50)
    away = torch.arange(50.0).expand(4, -1) - 25
    assert torch.equal(spliced(plans, away, 0.0, torch.rand(4, 4)), plans[:, 0])
    changed = torch.zeros(4, 50, dtype=torch.bool)
    for seed in range(300):
        mixed = spliced(plans, away, 0.7, torch.rand(4, 4, generator=torch.Generator().manual_seed(seed)))
        kept = mixed == plans[:, 0]
        assert kept[:, 21:30].all()
        assert torch.equal(mixed[~kept], plans[:, 1][~kept])
        for row in kept[:, 25:].tolist() + kept[:, :26].flip(1).tolist():
            assert sorted(row, reverse=True) == row  # from some place on everything is the other's
        changed |= ~kept
    assert changed[:, [0, 1, 20, 30, 48, 49]].all()
    near_the_end = spliced(plans, away - 22, 1.0, torch.rand(4, 4, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(near_the_end[:, 43:], plans[:, 0, 43:])  # nothing later is far enough away
    assert (near_the_end[:, 0] == plans[:, 1, 0]).all()


def test_images_are_shifted_each_by_its_own() -> None:
    images = torch.arange(2 * 1 * 4 * 5 * 3, dtype=torch.uint8).reshape(2, 1, 4, 5, 3)
    moved = shifted(images, torch.tensor([[1, 0], [0, -2]]))
    assert torch.equal(moved[0, 0, 1:], images[0, 0, :-1])
    assert torch.equal(moved[0, 0, 0], images[0, 0, 0])
    assert torch.equal(moved[1, 0, :, :3], images[1, 0, :, 2:])
    assert torch.equal(shifted(images, torch.zeros(2, 2, dtype=torch.long)), images)


def test_labels_are_kept_until_encoder_or_data_change(tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder, made = SkillModel(DISCOVER, (SIZE, SIZE)).eval(), robot_bank(tmp_path)
    frames, path = made.on(CPU, "side"), tmp_path / "run/labels.safetensors"
    skills, key = labelled(encoder, made, frames, DISCOVER, path)
    assert skills.shape == (LENGTHS.sum(), DISCOVER.encoder.width)
    written = path.stat().st_mtime_ns
    again, same = labelled(encoder, made, frames, DISCOVER, path)
    assert torch.equal(again, skills)
    assert same == key
    assert path.stat().st_mtime_ns == written
    with torch.no_grad():
        encoder.encoder.token.add_(1)
    changed, other = labelled(encoder, made, frames, DISCOVER, path)
    assert other != key
    assert not torch.equal(changed, skills)
    elsewhere = robot_bank(tmp_path / "others", first=1)
    of_others, third = labelled(encoder, elsewhere, elsewhere.on(CPU, "side"), DISCOVER, path)
    assert third not in (key, other)
    assert not torch.equal(of_others, changed)
    path.write_bytes(b"damaged")
    assert torch.equal(labelled(encoder, made, frames, DISCOVER, path)[0], changed)


def test_saved_and_loaded_it_acts_bit_equally(tmp_path: Path) -> None:
    made = phase(tmp_path, width=DISCOVER.encoder.width)
    network = made.module
    assert isinstance(network, TransferModel)
    sizes = made.tokens, made.pace, 10.0
    parts = DISCOVER, CONFIG, made.body, *sizes, SkillModel(DISCOVER, (SIZE, SIZE)), network.eval()
    save_model(Model(*parts), tmp_path / "model", {"seed": 0})
    once = load_model(tmp_path / "model", CPU)
    save_model(once, tmp_path / "copy", {"seed": 0})
    twice = load_model(tmp_path / "copy", CPU)
    assert once.body == twice.body == made.body
    seen = made._looked_up(made.batch(STEP), noisy=False)
    observation = {"state": seen["state"], "side": seen["camera side"]}
    acts, aligned = [], []
    for model in (once, twice):
        draws = [torch.Generator().manual_seed(index) for index in range(len(seen["told"]))]
        acts.append(model.network.policy.act(observation, seen["told"], model.network.policy.noise(draws)))
        aligned.append(model.network.aligner(seen["camera side"][:, -1], seen["plan"]).skill)
    assert torch.equal(*acts)
    assert torch.equal(*aligned)
    shown = np.random.default_rng(0).integers(256, size=(30, SIZE, SIZE, 3), dtype=np.uint8)
    assert torch.equal(*(plan_of(model, shown, 10.0).tokens for model in (once, twice)))
    with pytest.raises(CheckpointError):
        load_model(tmp_path / "nowhere", CPU)
    wide = replace(DISCOVER, encoder=replace(DISCOVER.encoder, width=2 * DISCOVER.encoder.width))
    save_model(Model(wide, *parts[1:-2], SkillModel(wide, (SIZE, SIZE)), parts[-1]), tmp_path / "wide", {})
    with pytest.raises(CheckpointError, match="its skills have 64 dimensions, its policy wants 32"):
        load_model(tmp_path / "wide", CPU)


def test_what_cannot_be_learned_from_is_one_sentence(tmp_path: Path) -> None:
    made, watched = robot_bank(tmp_path), demonstrators_bank(tmp_path, "person")
    few = np.array([0])
    with pytest.raises(DataError, match="has no actions"):
        TransferPhase(CONFIG, watched, torch.zeros(watched.episodes.frames, 4), few, few, 0, CPU)
    with pytest.raises(DataError, match="3 skills for the 99 frames"):
        TransferPhase(CONFIG, made, torch.zeros(3, 4), few, few, 0, CPU)
    with pytest.raises(DataError, match="0 episodes to learn from"):
        TransferPhase(CONFIG, made, torch.zeros(99, 4), few[:0], few, 0, CPU)
    large = robot_bank(tmp_path, SIZE + 4)
    with pytest.raises(DataError, match="has frames of 20x20; the skill encoder was trained on 16x16"):
        labelled(SkillModel(DISCOVER, (SIZE, SIZE)), large, large.on(CPU, "side"), DISCOVER, tmp_path / "labels")


def test_the_kitchens_model_is_small_enough_to_ship() -> None:
    config = PRESETS["kitchen"][1]
    size, joints = (config.data.size, config.data.size), Range((0.0,) * 9, (1.0,) * 9)
    body = Body(("side",), size, joints, joints, config.discover.encoder.width)
    parts = SkillModel(config.discover, size), TransferModel(config.transfer, body, config.transfer.aligner.tokens, 3.6)
    counts = [sum(parameter.numel() for parameter in part.parameters()) for part in parts]
    assert sum(counts) <= 9.5e6
    assert 2 * max(counts) < 15e6  # bytes of the larger file


@pytest.mark.parametrize("told", ["skill", "goal"])
def test_a_goal_is_what_is_shown_ahead(tmp_path: Path, told: str) -> None:
    config = replace(CONFIG, skill_noise=0.0, shift=0, policy=replace(CONFIG.policy, told=told, ahead=5))
    made = phase(tmp_path, config)
    batch = made.batch(STEP)
    seen = made._looked_up(batch, noisy=True)
    ahead = (batch["ids"] + 5).minimum(batch["start"] + batch["last"])
    assert torch.equal(seen["told"], made._skills[ahead])
    assert torch.equal(seen["skill"], made._skills[batch["ids"]])
    if told == "skill":
        assert "goal" not in seen
        return
    assert torch.equal(seen["goal"][:, 0, 0, 0], made._frames["side"][ahead][:, 0, 0, 0])
    policy, _ = made.network(seen, made.cameras)
    policy.backward()
    assert made.network.goal is not None
    assert all(weight.grad is not None and weight.grad.any() for weight in made.network.goal.head.parameters())
    assert made.evaluate(made.network.eval())["action_error"] > 0


def test_a_goal_must_lie_ahead() -> None:
    with pytest.raises(ConfigError, match="ahead is 0; it must be at least 1: a goal lies ahead"):
        PolicyConfig(told="goal")
