"""A trained skill model, read back from a checkpoint."""

from pathlib import Path

import safetensors
import safetensors.torch
import torch

from xskill.discover.config import DiscoverConfig
from xskill.discover.encoder import SkillModel
from xskill.engine.checkpoint import PRETRAINED
from xskill.errors import CheckpointError


def load_skills(checkpoint: Path, config: DiscoverConfig, size: tuple[int, int], device: torch.device) -> SkillModel:
    """The encoder and prototypes of a checkpoint, trained on frames of `size`. Raises `CheckpointError`."""
    model = SkillModel(config, size)
    try:
        model.load_state_dict(safetensors.torch.load_file(checkpoint / PRETRAINED))
    except (OSError, RuntimeError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"{checkpoint} holds no skill model of this config: {error}") from error
    return model.to(device).eval()
