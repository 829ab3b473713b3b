"""The agent: a model and plans, knowing nothing of simulators or sockets. Evaluation, server and studio all use it."""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from xskill.compose.plan import SkillPlan, plan_of
from xskill.compose.reading import EVERYWHERE, Reading, kept_within, read
from xskill.discover.encode import Video, resized_image
from xskill.engine.config import Device, did_you_mean
from xskill.engine.distributed import chosen
from xskill.engine.replay import Recorded, Tensors
from xskill.engine.seeds import generator
from xskill.errors import ConfigError, DataError
from xskill.transfer.alignment import Alignment, most_like
from xskill.transfer.model import Model, load_model
from xskill.transfer.policy import CAMERA, observed

Observation = Mapping[str, npt.NDArray[np.generic]]
"""`state` (S,) and an image (H, W, 3) uint8, red, green and blue, of any size for every camera of the model."""


@dataclass(frozen=True, eq=False)
class Decision:
    """What an agent does next, and why."""

    actions: npt.NDArray[np.float32]
    """(steps, A), to be carried out one after the other before it is asked again."""
    skill: npt.NDArray[np.float32]
    """The skill it executes, or what stands for the goal it wants to reach, (D,)."""
    prototype: int
    """The prototype nearest to it."""
    attention: npt.NDArray[np.float32]
    """How much it looked at each skill of the plan, (N,)."""
    progress: float
    """Where in the plan it believes to be, 0 to 1."""
    seconds: float
    """How long it took to decide."""


class Agent:
    """Follows one prompt at a time. `act_together` lets many decide in one forward pass."""

    def __init__(self, model: Model, *, seed: int | str = 0, reading: Reading | None = None) -> None:
        """What is random in its actions is a function of `seed` and of how often it has acted.

        Unless told otherwise, its plan is read by the model's aligner; by nearest neighbours if it is told goals.
        """
        self.model, self._seed = model, seed
        if reading not in (None, *get_args(Reading)):
            raise ConfigError(f"there is no reading '{reading}'{did_you_mean(str(reading), get_args(Reading))}")
        self.reading: Reading = reading or ("nearest" if model.transfer.policy.ahead else "aligner")
        self.plan: SkillPlan | None = None
        self.within = EVERYWHERE
        """The stretch of the plan, 0 to 1, that it is told to keep to."""
        self.decision: Decision | None = None
        """What `step` or `act` decided last."""
        self._seen: deque[Observation] = deque(maxlen=model.transfer.policy.observe)
        self._left: deque[npt.NDArray[np.float32]] = deque()
        self._acted = 0
        self._believed: Tensor | None = None

    def prompt(self, video: Video, fps: float | None = None) -> SkillPlan:
        """Watch a video of the task, and start over."""
        plan = plan_of(self.model, video, fps)
        self.follow(plan)
        return plan

    def follow(self, plan: SkillPlan) -> None:
        """Take up a plan made before, and start over. Raises `DataError` for one that another model has made."""
        wanted = (self.model.tokens, self.model.body.skill)
        if plan.tokens.shape != wanted:
            raise DataError(f"the plan has skills of {tuple(plan.tokens.shape)}, this model's have {wanted}: plan anew")
        self.plan = plan
        self.reset()

    def reset(self) -> None:
        """Forget what was seen and done; the plan stays."""
        self._seen.clear()
        self._left.clear()
        self._acted, self._believed, self.decision, self.within = 0, None, None, EVERYWHERE

    def step(self, observation: Observation) -> npt.NDArray[np.float32]:
        """Take in an observation, one for each frame of the robot's time, and give the action (A,) to carry out now.

        It decides, which takes a while, whenever the actions of its last `decision` are used up.
        """
        self.see(observation)
        if not self._left:
            (self.decision,) = act_together([self])
            assert self.decision is not None
            self._left.extend(self.decision.actions)
        return self._left.popleft()

    def see(self, observation: Observation) -> None:
        """Take in an observation without acting on it: robots move while a chunk is carried out."""
        self._seen.append(_checked(observation, self.model))

    def act(self, observation: Observation) -> Decision:
        """Take in an observation and decide what to do next.

        A model looks at several observations, one frame apart: those made while the actions are carried out are to be
        shown by `see`.
        """
        self.see(observation)
        self._left.clear()  # what `step` had in mind
        (self.decision,) = act_together([self])
        assert self.decision is not None
        return self.decision


@torch.no_grad()
def act_together(agents: Sequence[Agent | None]) -> list[Decision | None]:
    """Decide for agents of one model, reading alike, each from what it has seen last; `None` holds an empty place.

    What an agent decides depends on how many places there are and on which is its own, by rounding; on nobody else.
    """
    began = time.perf_counter()
    present = [agent for agent in agents if agent is not None]
    if len({(id(agent.model), agent.reading) for agent in present}) != 1:
        raise DataError("agents that decide together need one model, and one way of reading their plans")
    if any(agent.plan is None for agent in present):
        raise DataError("an agent needs a prompt before it can act")
    if any(not agent._seen for agent in present):
        raise DataError("an agent needs an observation before it can act")
    model, reading, policy = present[0].model, present[0].reading, present[0].model.transfer.policy
    device = model.skills.prototypes.weight.device
    names = {"state": "state", **{CAMERA + camera: camera for camera in model.body.cameras}}
    given = {key: _stacked([_window(agent, name) for agent in agents]).to(device) for key, name in names.items()}
    nothing, beginning = (
        torch.zeros(model.tokens, model.body.skill, device=device),
        model.network.aligner.beginning(1)[0],
    )
    given["plan"] = torch.stack([agent.plan.tokens if agent and agent.plan else nothing for agent in agents])
    given["stills"] = torch.stack([agent.plan.stills if agent and agent.plan else nothing for agent in agents])
    places = [agent.plan.places if agent and agent.plan else torch.linspace(0, 1, model.tokens) for agent in agents]
    given["places"] = torch.stack(places).to(device)
    given["before"] = torch.stack(
        [beginning if not agent or agent._believed is None else agent._believed for agent in agents]
    )
    given["acted"] = torch.tensor([float(agent._acted) if agent else 0.0 for agent in agents]).to(device)
    draws = [generator("act", agent._seed, agent._acted) if agent else generator("nobody") for agent in agents]
    given["noise"] = model.network.policy.noise(draws).to(device)
    stretches = [agent.within if agent else EVERYWHERE for agent in agents]
    if any(stretch != EVERYWHERE for stretch in stretches):
        given["within"] = torch.tensor(stretches).to(device)
    decide = model.records.setdefault(reading, Recorded(partial(_decided, model, reading)))
    decided = decide(given)
    now = policy.observe - 1
    actions = decided["chunk"][:, now : now + policy.execute].cpu().numpy()
    if not all(np.isfinite(chunk).all() for agent, chunk in zip(agents, actions, strict=True) if agent):
        raise DataError("the actions are no numbers: is the state in the units of the model's training?")
    skills, attention = decided["skill"].cpu().numpy(), decided["attention"].cpu().numpy()
    prototypes, progress = decided["prototype"].tolist(), decided["progress"].tolist()
    seconds = time.perf_counter() - began
    decisions: list[Decision | None] = []
    for place, agent in enumerate(agents):
        if agent is None:
            decisions.append(None)
            continue
        agent._acted, agent._believed = agent._acted + 1, decided["attention"][place]
        if model.network.goal is not None and agent.plan is not None:  # a goal is no skill: what is shown there
            prototypes[place] = int(agent.plan.prototypes[agent.plan.frames[attention[place].argmax()]])
        parts = actions[place], skills[place], prototypes[place], attention[place], progress[place]
        decisions.append(Decision(*parts, seconds))
    return decisions


def _decided(model: Model, reading: Reading, given: Tensors) -> Tensors:
    """What agents with these observations, plans, beliefs and noise do."""
    scenes = given[CAMERA + model.body.cameras[0]][:, -1]
    found = read(reading, model, scenes, *(given[name] for name in ("plan", "stills", "before", "acted")))
    if "within" in given:
        found = kept_within(found, given["plan"], given["places"], given["within"])
    skill = found.skill.float()
    return {
        "chunk": model.network.policy.act(observed(given, model.body.cameras), skill, given["noise"]).float(),
        "skill": skill,
        "prototype": model.skills.prototypes(skill).argmax(-1),
        "attention": found.attention,
        "progress": (_believed(model, reading, found, given["plan"]) * given["places"]).sum(1),
    }


def _believed(model: Model, reading: Reading, found: Alignment, plans: Tensor) -> Tensor:
    """Where robots are in their plans (B, N, D), as a share for each moment: (B, N).

    A transformer is taught to say a skill, not to look at its place: that is where the plan has the skill most like it.
    """
    if reading != "aligner" or model.transfer.aligner.kind == "tracker":
        return found.attention
    return F.one_hot(most_like(found.skill.float(), plans), plans.shape[1]).float()


def load(folder: Path | str, device: Device = "auto", *, seed: int | str = 0) -> Agent:
    """An agent with the model in `folder`. Raises `CheckpointError`."""
    return Agent(load_model(Path(folder).expanduser(), chosen(device)), seed=seed)


def _checked(observation: Observation, model: Model) -> Observation:
    """What a model needs of an observation, its images as large as the model sees them."""
    wanted, numbers = ("state", *model.body.cameras), (len(model.body.states.half),)
    if missing := [name for name in wanted if name not in observation]:
        raise DataError(f"the observation has no '{missing[0]}'; this model needs {', '.join(wanted)}")
    state, checked = np.asarray(observation["state"]), {}
    if state.shape != numbers or state.dtype.kind not in "fiu" or not np.isfinite(state).all():
        raise DataError(f"'state' is {state.shape} {state.dtype}; this model needs {numbers}, finite numbers")
    for camera in model.body.cameras:
        image = np.asarray(observation[camera])
        if image.ndim != 3 or image.shape[-1] != 3 or not image.size or image.dtype != np.uint8:
            raise DataError(f"'{camera}' is {image.shape} {image.dtype}; this model needs (height, width, 3), uint8")
        checked[camera] = np.array(resized_image(image.astype(np.uint8, copy=False), model.body.size))
    return {"state": state.astype(np.float32), **checked}


def _window(agent: Agent | None, name: str) -> npt.NDArray[np.generic] | None:
    """The latest observations (O, ...); the first one stands for those before it."""
    if agent is None:
        return None
    seen = [observation[name] for observation in agent._seen]
    missing = agent.model.transfer.policy.observe - len(seen)
    return np.stack([seen[0]] * missing + seen)


def _stacked(windows: Sequence[npt.NDArray[np.generic] | None]) -> Tensor:
    nothing = np.zeros_like(next(window for window in windows if window is not None))
    stacked = torch.from_numpy(np.stack([nothing if window is None else window for window in windows]))
    return stacked if stacked.dtype == torch.uint8 else stacked.float()
