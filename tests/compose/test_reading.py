"""Ways to read a plan, for policies that are told skills and for those that are told goals."""

from dataclasses import replace

import pytest
import torch

from tests.compose.test_agent import PACE, TOKENS, TRANSFER
from tests.discover.made import SIZE, video
from tests.discover.made import TINY as DISCOVER
from xskill.compose.agent import Agent
from xskill.compose.plan import plan_of
from xskill.compose.reading import read
from xskill.discover.encoder import SkillModel
from xskill.errors import DataError
from xskill.transfer.config import TransferConfig
from xskill.transfer.model import Model
from xskill.transfer.network import TransferModel
from xskill.transfer.policy import Body
from xskill.transfer.statistics import Range

AHEAD = 5
"""Frames; at this pace, three tokens."""


def model(told: str, ahead: int) -> Model:
    config: TransferConfig = replace(TRANSFER, policy=replace(TRANSFER.policy, told=told, ahead=ahead))
    torch.manual_seed(0)
    body = Body(("side",), (SIZE, SIZE), Range((0.0,) * 2, (1.0,) * 2), Range((0.0,) * 3, (1.0,) * 3), 32)
    network = TransferModel(config, body, TOKENS, PACE).eval()
    return Model(DISCOVER, config, body, TOKENS, PACE, 10.0, SkillModel(DISCOVER, (SIZE, SIZE)).eval(), network)


@torch.no_grad()
def test_a_goal_is_found_where_the_prompt_shows_what_is_seen() -> None:
    made, prompt = model("goal", AHEAD), video("robot", "a", TOKENS)
    plan = plan_of(made, prompt)
    assert made.ahead == 3
    assert plan.frames.tolist() == list(range(TOKENS))
    scenes, places = torch.from_numpy(prompt[[0, 4, TOKENS - 1]]), torch.tensor([0, 4, TOKENS - 1])
    nothing, told = torch.zeros(3, TOKENS), (plan.tokens.expand(3, -1, -1), plan.stills.expand(3, -1, -1))
    found = read("nearest", made, scenes, *told, nothing, torch.zeros(3))
    assert torch.equal(found.attention.argmax(1), places)
    assert torch.equal(found.skill, plan.tokens[(places + 3).clamp(max=TOKENS - 1)])
    by_clock = read("clock", made, scenes, *told, nothing, torch.tensor([0.0, 1.0, 2.0]))
    assert torch.equal(by_clock.skill, plan.tokens[[3, 2 + 3, 5 + 3]])
    with pytest.raises(DataError, match="told what is 5 frames ahead; read its prompts by nearest neighbours"):
        read("aligner", made, scenes, *told, nothing, torch.zeros(3))


@torch.no_grad()
def test_a_skill_is_found_where_the_prompt_looks_like_the_scene() -> None:
    made, prompt = model("skill", 0), video("robot", "a", TOKENS)
    plan, moments = plan_of(made, prompt), list(range(TOKENS))
    told = (plan.tokens.expand(TOKENS, -1, -1), plan.stills.expand(TOKENS, -1, -1))
    found = read("nearest", made, torch.from_numpy(prompt), *told, torch.zeros(TOKENS, TOKENS), torch.zeros(TOKENS))
    assert found.attention.argmax(1).tolist() == moments  # though nothing moves in a scene, and a lot in the skills
    assert torch.equal(found.skill, plan.tokens)


def test_an_agent_reads_as_its_model_was_trained_to() -> None:
    assert Agent(model("skill", 0)).reading == "aligner"
    assert Agent(model("skill", AHEAD)).reading == "nearest"
    agent = Agent(model("goal", AHEAD))
    plan = agent.prompt(video("person", "b", 20))
    decision = agent.act({"state": torch.zeros(2).numpy(), "side": video("robot", "a", 20)[0]})
    assert decision.prototype == plan.prototypes[plan.frames[decision.attention.argmax()]]
