"""The model folder: everything a robot needs to follow a prompt, self-describing.

config.json           configs of both phases, sizes, cameras, frames per second
skills.safetensors    encoder and prototypes, 16 bits a number
transfer.safetensors  policy and aligner, likewise
stats.json            ranges of states and actions
manifest.json         sha256 of every file, what it was trained on, versions
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import nn

from xskill.discover.config import DiscoverConfig
from xskill.discover.encoder import SkillModel
from xskill.engine.config import from_json, to_json
from xskill.engine.folder import check_folder, to_bytes, write_folder
from xskill.engine.replay import Recorded
from xskill.errors import CheckpointError, ConfigError, DataError
from xskill.transfer.config import TransferConfig
from xskill.transfer.network import TransferModel
from xskill.transfer.policy import Body
from xskill.transfer.statistics import range_from

_CONFIG, _STATS = "config.json", "stats.json"
_SKILLS, _TRANSFER = "skills.safetensors", "transfer.safetensors"


@dataclass(frozen=True)
class Model:
    """A trained model: both networks, and what must be known to use them."""

    discover: DiscoverConfig
    transfer: TransferConfig
    body: Body
    tokens: int
    """Skills in a plan."""
    pace: float
    """How many of them a robot usually moves on by in one chunk of actions."""
    fps: float
    """Frames a second of the robot's videos."""
    skills: SkillModel
    network: TransferModel

    @cached_property
    def records(self) -> dict[str, Recorded]:
        """What this model does again and again, by name, as a GPU plays it back."""
        return {}

    @property
    def ahead(self) -> int:
        """Skills of a plan from the robot's place in it to the one that the policy is told."""
        policy = self.transfer.policy
        return max(1, round(policy.ahead * self.pace / policy.execute)) if policy.ahead else 0


def save_model(model: Model, folder: Path, about: Mapping[str, Any]) -> None:
    """Write a model folder, replacing one that is there; `about` is kept in its manifest."""
    body = model.body
    config = {
        "discover": to_json(model.discover), "transfer": to_json(model.transfer), "cameras": list(body.cameras),
        "size": list(body.size), "skill": body.skill, "tokens": model.tokens, "pace": model.pace, "fps": model.fps,
    }  # fmt: skip
    files = [
        (_CONFIG, to_bytes(config)),
        (_STATS, to_bytes({"states": body.states.about(), "actions": body.actions.about()})),
        (_SKILLS, _packed(model.skills)),
        (_TRANSFER, _packed(model.network)),
    ]
    write_folder(folder, iter(files), dict(about))


def load_model(folder: Path, device: torch.device) -> Model:
    """Read a model folder, every byte of it checked. Raises `CheckpointError`."""
    check_folder(folder)
    try:
        config, stats = (json.loads((folder / name).read_bytes()) for name in (_CONFIG, _STATS))
        discover = from_json(DiscoverConfig, config["discover"], f"{folder / _CONFIG}: discover")
        transfer = from_json(TransferConfig, config["transfer"], f"{folder / _CONFIG}: transfer")
        ranges = {name: range_from(about) for name, about in stats.items()}
        height, width = config["size"]
        body = Body(tuple(config["cameras"]), (height, width), skill=config["skill"], **ranges)
        if body.skill != discover.encoder.width:
            raise ConfigError(f"its skills have {discover.encoder.width} dimensions, its policy wants {body.skill}")
        tokens, pace, fps = int(config["tokens"]), float(config["pace"]), float(config["fps"])
        skills, network = SkillModel(discover, body.size), TransferModel(transfer, body, tokens, pace)
        for module, name in ((skills, _SKILLS), (network, _TRANSFER)):
            weights = safetensors.torch.load_file(folder / name)
            module.load_state_dict({key: tensor.float() for key, tensor in weights.items()})
    except (OSError, KeyError, ValueError, TypeError, RuntimeError, safetensors.SafetensorError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__  # torch says more than one sentence
        raise CheckpointError(f"{folder} is not a model this version can read: {first}") from error
    except (ConfigError, DataError) as error:
        raise CheckpointError(f"{folder} is not a model this version can read: {error}") from error
    return Model(discover, transfer, body, tokens, pace, fps, skills.to(device).eval(), network.to(device).eval())


def _packed(module: nn.Module) -> bytes:
    weights = module.state_dict()
    return safetensors.torch.save({name: tensor.cpu().half().contiguous() for name, tensor in weights.items()})
