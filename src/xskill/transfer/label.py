"""Skills of every frame of a body's videos, found with the frozen encoder and kept beside the run."""

import hashlib
from pathlib import Path

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from xskill.data.frames import FrameBank, FrameStore
from xskill.discover.config import DiscoverConfig
from xskill.discover.encode import encode_frames
from xskill.discover.encoder import SkillModel
from xskill.engine.folder import write_file
from xskill.errors import DataError


def labelled(
    model: SkillModel, bank: FrameBank, frames: FrameStore, config: DiscoverConfig, path: Path
) -> tuple[Tensor, str]:
    """Skills (N, D) of all frames of a bank, and a name for them that changes with the bank and the encoder.

    They are read from the file `path` when this encoder has labelled this bank before.
    """
    if bank.size != model.encoder.size:
        (height, width), (rows, columns) = bank.size, model.encoder.size
        raise DataError(
            f"{bank.path} has frames of {height}x{width}; the skill encoder was trained on {rows}x{columns}"
        )
    key = f"{bank.path.name}-{_fingerprint(model, config)}"
    try:
        with safetensors.safe_open(path, "pt") as file:
            if (file.metadata() or {}).get("key") == key:
                skills: Tensor = file.get_tensor("skills")
                return skills, key
    except (OSError, safetensors.SafetensorError):
        pass
    episodes = bank.episodes
    videos = [torch.arange(s, s + n) for s, n in zip(episodes.starts, episodes.lengths, strict=True)]
    skills = encode_frames(model, frames, videos, config).float().cpu().contiguous()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, safetensors.torch.save({"skills": skills}, {"key": key}))
    return skills, key


def _fingerprint(model: SkillModel, config: DiscoverConfig) -> str:
    """Names an encoder by its weights and by how it is used."""
    digest = hashlib.sha256(f"{config.time_scale} {config.clip_length} {config.frames_per_video}".encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensor.detach().cpu().float().numpy()).tobytes())
    return digest.hexdigest()[:16]
