"""The agent: a prompt becomes a plan, observations become decisions, alone or together."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import xskill
from tests.discover.made import SIZE, video
from tests.discover.made import TINY as DISCOVER
from xskill.compose import plan as compose_plan
from xskill.compose.agent import Agent, _decided, act_together
from xskill.compose.plan import plan_of
from xskill.compose.reading import Reading
from xskill.discover.encoder import SkillModel
from xskill.errors import CheckpointError, ConfigError, DataError
from xskill.presets import PRESETS
from xskill.transfer.alignment import resampled
from xskill.transfer.config import Solver
from xskill.transfer.model import Model, save_model
from xskill.transfer.network import TransferModel
from xskill.transfer.policy import Body
from xskill.transfer.statistics import Range

_DEBUG = PRESETS["debug"][1].transfer
TRANSFER = replace(_DEBUG, cross=0.0, aligner=replace(_DEBUG.aligner, kind="transformer"))
TOKENS = TRANSFER.aligner.tokens
PACE = 2.5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model with random weights."""
    torch.manual_seed(0)
    body = Body(("side",), (SIZE, SIZE), Range((0.0,) * 2, (1.0,) * 2), Range((0.0,) * 3, (1.0,) * 3), 32)
    skills, network = SkillModel(DISCOVER, (SIZE, SIZE)).eval(), TransferModel(TRANSFER, body, TOKENS, PACE).eval()
    save_model(Model(DISCOVER, TRANSFER, body, TOKENS, PACE, 10.0, skills, network), tmp_path / "model", {})
    return tmp_path / "model"


def seen(index: int) -> dict[str, np.ndarray]:
    return {"state": np.full(2, index / 10), "side": video("robot", "a", 20)[index]}


@pytest.mark.parametrize("length", [1, 5, 40])
def test_a_prompt_of_any_length_becomes_a_plan(folder: Path, length: int) -> None:
    agent = xskill.load(folder, "cpu")
    plan = agent.prompt(video("person", "b", length).repeat(2, 1).repeat(3, 2))
    assert plan.tokens.shape == (TOKENS, 32)
    assert plan.frames[0] == 0
    assert plan.frames[-1] == length - 1
    assert plan.prototypes.shape == (length,)


def test_a_prompt_that_shows_nothing_is_one_sentence(folder: Path) -> None:
    agent, noise = xskill.load(folder, "cpu"), np.random.default_rng(0).normal(4, 2, (4, SIZE, SIZE, 3))
    with pytest.raises(DataError, match="the prompt has no frames"):
        agent.prompt(video("person", "b", 4)[:0])
    for dark in (np.zeros((4, SIZE, SIZE, 3), np.uint8), noise.clip(0, 255).astype(np.uint8)):  # a covered camera
        with pytest.raises(DataError, match="the prompt shows nothing"):
            agent.prompt(dark)


def test_a_prompt_in_other_colours_is_another_plan(folder: Path) -> None:
    right, wrong = (
        xskill.load(folder, "cpu").prompt(video("person", "b", 20)[..., order]) for order in ([0, 1, 2], [2, 1, 0])
    )
    assert wrong.tokens.isfinite().all()
    assert torch.equal(right.frames, wrong.frames)
    assert not torch.allclose(right.tokens, wrong.tokens)


@pytest.mark.parametrize("fits", [1.0, 2.0, 3.0])
def test_a_prompt_that_shows_less_is_read_on_the_scale_that_fits(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fits: float
) -> None:
    aligner = replace(TRANSFER.aligner, kind="tracker", rescale=True)
    model = replace(xskill.load(folder, "cpu").model, transfer=replace(TRANSFER, aligner=aligner))
    typical = model.skills.prototypes.weight.detach()[torch.arange(33) % DISCOVER.num_prototypes]
    found = {scale: typical + (scale != fits) * torch.randn(33, 32) for scale in (1.0, 2.0, 3.0)}
    monkeypatch.setattr(compose_plan, "SHORTER", (2.0, 3.0))
    monkeypatch.setattr(compose_plan, "skills_of", lambda *_, shorter=1.0, **__: found[shorter])
    plan, used = plan_of(model, video("person", "b", 33)), round(TOKENS / fits)
    assert plan.shorter == fits
    assert plan.frames[:used].tolist() == resampled(33, used).tolist()
    assert set(plan.frames[used:].tolist()) <= {32}
    assert torch.equal(plan.tokens, found[fits][plan.frames])
    assert plan.places[[0, used - 1, -1]].tolist() == [0, 1, 1]
    monkeypatch.setattr(compose_plan, "SHARPER", 2.0)  # nothing is so much sharper
    assert plan_of(model, video("person", "b", 33)).shorter == 1
    monkeypatch.setattr(compose_plan, "SHARPER", 0.0)
    transformer = replace(TRANSFER, aligner=replace(aligner, kind="transformer"))  # it has learned its positions
    assert plan_of(replace(model, transfer=transformer), video("person", "b", 33)).shorter == 1


def test_a_decision_says_what_and_why(folder: Path) -> None:
    agent = xskill.load(folder, "cpu")
    agent.prompt(video("person", "b", 20))
    decision = agent.act(seen(0))
    assert agent.decision is decision
    assert decision.actions.shape == (TRANSFER.policy.execute, 3)
    assert decision.skill.shape == (32,)
    assert 0 <= decision.prototype < DISCOVER.num_prototypes
    assert decision.attention.shape == (TOKENS,)
    # Nothing teaches a transformer to look at its place: that is where the plan has the skill it says.
    likeness = torch.cosine_similarity(torch.from_numpy(decision.skill)[None], agent.plan.tokens)
    assert decision.progress == pytest.approx(float(agent.plan.places[likeness.argmax()]), abs=1e-6)
    assert decision.seconds > 0


def test_what_it_does_follows_from_seed_prompt_and_what_it_saw(folder: Path) -> None:
    def lived(seed: int, *moments: int) -> np.ndarray:
        agent = xskill.load(folder, "cpu", seed=seed)
        agent.prompt(video("person", "b", 20))
        for moment in moments[:-1]:
            agent.see(seen(moment))
        return agent.act(seen(moments[-1])).actions

    assert np.array_equal(lived(0, 1, 2), lived(0, 1, 2))
    assert np.array_equal(lived(0, 5, 1, 2), lived(0, 1, 2))  # two observations are remembered
    assert not np.array_equal(lived(0, 1, 2), lived(1, 1, 2))
    assert not np.array_equal(lived(0, 1, 2), lived(0, 0, 2))
    assert np.array_equal(lived(0, 2), lived(0, 2, 2))  # the first stands for those before it


def test_step_by_step_it_does_what_it_decides_having_seen_everything_between(folder: Path) -> None:
    by_steps, by_chunks = (xskill.load(folder, "cpu") for _ in range(2))
    for agent in (by_steps, by_chunks):
        agent.prompt(video("person", "b", 20))
    assert by_steps.decision is None
    execute = TRANSFER.policy.execute
    stepped = [by_steps.step(seen(moment)) for moment in range(2 * execute + 1)]
    decisions = []
    for moment in range(2 * execute + 1):
        if moment % execute:
            by_chunks.see(seen(moment))
        else:
            decisions.append(by_chunks.act(seen(moment)))
    done = np.concatenate([decision.actions for decision in decisions])[: len(stepped)]
    assert np.array_equal(stepped, done)
    assert by_steps.decision is not None
    assert by_steps.decision.progress == decisions[-1].progress
    by_steps.reset()
    assert by_steps.decision is None
    assert np.array_equal(by_steps.step(seen(0)), stepped[0])  # nothing of the old chunk is left
    by_steps.act(seen(1))
    fresh = by_steps.step(seen(2))
    assert by_steps.decision is not None
    assert np.array_equal(fresh, by_steps.decision.actions[0])  # nor where it was asked for another in between


def test_many_agents_decide_as_if_alone(folder: Path) -> None:
    model = xskill.load(folder, "cpu").model
    together, alone = ([Agent(model, seed=seed) for seed in range(4)] for _ in range(2))
    for agents in (together, alone):
        for index, agent in enumerate(agents):
            agent.prompt(video("person", "abcd"[index], 20 + index))
            agent.see(seen(index))
    for one, agent in zip(act_together(together), alone, strict=True):
        other = act_together([agent])[0]
        assert one.actions == pytest.approx(other.actions, abs=1e-3)
        assert one.progress == pytest.approx(other.progress, abs=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("solver", ["ddim", "ddpm", "dpm-solver"])
@pytest.mark.parametrize("reading", ["aligner", "clock", "nearest"])
def test_a_decision_played_back_is_the_one_made_piece_by_piece(solver: Solver, reading: Reading, folder: Path) -> None:
    loaded = xskill.load(folder, "cuda").model
    transfer = replace(TRANSFER, policy=replace(TRANSFER.policy, solver=solver))
    network = TransferModel(transfer, loaded.body, TOKENS, PACE).to("cuda").eval()
    model = replace(loaded, transfer=transfer, network=network)
    played, piecewise = (Agent(replace(model), reading=reading) for _ in range(2))
    piecewise.model.records[reading] = partial(_decided, piecewise.model, reading)
    for agent in (played, piecewise):
        agent.prompt(video("person", "b", 20))
    for moment in range(6):
        one, other = (agent.act(seen(moment)) for agent in (played, piecewise))
        assert one.actions == pytest.approx(other.actions, abs=1e-5)
        assert one.attention == pytest.approx(other.attention, abs=1e-5)


def test_a_camera_may_be_of_any_size(folder: Path) -> None:
    agent = xskill.load(folder, "cpu")
    agent.prompt(video("person", "b", 20))
    small = agent.act(seen(3)).actions
    agent.reset()
    large = seen(3) | {"side": seen(3)["side"].repeat(4, 0).repeat(6, 1)}
    assert agent.act(large).actions == pytest.approx(small, abs=0.02)
    assert large["side"].shape == (4 * SIZE, 6 * SIZE, 3)
    agent.reset()
    assert not np.allclose(agent.act(large | {"side": 255 - large["side"]}).actions, small, atol=0.02)


def test_what_cannot_be_meant_is_refused(folder: Path) -> None:
    agent = xskill.load(folder, "cpu")
    shown = video("person", "b", 20)
    for prompt, answer in [
        ("prompt.mp4", "is a path; a prompt is frames"),
        (shown / 255, "expected \\(height, width, 3\\) uint8"),
        (shown[..., 0], "expected \\(height, width, 3\\) uint8"),
    ]:
        with pytest.raises(DataError, match=answer):
            agent.prompt(prompt)
    for fps in (0, -12.5, float("nan"), float("inf")):
        with pytest.raises(DataError, match="must be the prompt's frames a second, above 0"):
            agent.prompt(shown, fps)
    agent.prompt(shown)
    with pytest.raises(DataError, match="the actions are no numbers"):
        agent.act(seen(0) | {"state": np.full(2, 1e38)})
    of_another = replace(agent.plan, tokens=agent.plan.tokens[:, :-1])
    with pytest.raises(DataError, match=r"the plan has skills of \(12, 31\), this model's have \(12, 32\): plan anew"):
        agent.follow(of_another)
    others = Agent(agent.model, reading="clock"), xskill.load(folder, "cpu")
    for together in ([agent, others[0]], [agent, None, others[1]], [None], []):
        with pytest.raises(DataError, match="need one model, and one way of reading their plans"):
            act_together(together)
    with pytest.raises(ConfigError, match="there is no reading 'magic'"):
        Agent(agent.model, reading="magic")
    with pytest.raises(ConfigError, match="there is no device 'gpu'"):
        xskill.load(folder, "gpu")


def test_what_an_agent_cannot_use_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        xskill.load(tmp_path / "nothing")
    agent = xskill.load(folder, "cpu")
    with pytest.raises(DataError, match="needs a prompt"):
        agent.act(seen(0))
    agent.prompt(video("person", "b", 20))
    for changes, answer in [
        ({"side": None}, "has no 'side'; this model needs state, side"),
        ({"state": np.zeros(3)}, r"'state' is \(3,\) float64; this model needs \(2,\)"),
        ({"state": np.array([0, np.nan])}, "finite numbers"),
        ({"state": np.array(["a", "b"])}, "finite numbers"),
        (
            {"side": np.zeros((3, 8, 8), np.uint8)},
            r"'side' is \(3, 8, 8\) uint8; this model needs \(height, width, 3\)",
        ),
        ({"side": np.zeros((0, 8, 3), np.uint8)}, r"'side' is \(0, 8, 3\)"),
        ({"side": np.zeros((SIZE, SIZE, 3))}, "uint8"),
    ]:
        wrong = {name: value for name, value in {**seen(0), **changes}.items() if value is not None}
        with pytest.raises(DataError, match=answer):
            agent.act(wrong)
